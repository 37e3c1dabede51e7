//! JSON text as Jackson writes it and reads it. Consumers compare bytes, so its escapes are ours:
//! two `\u` escapes for a character above U+FFFF, upper-case hexadecimal, nothing else escaped that
//! need not be.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write as _;

/// Jackson's limit on nested arrays and objects.
const DEPTH_MAX: usize = 1000;
/// Members of an object that are searched without an index.
const UNINDEXED_MAX: usize = 16;
/// Jackson's limit on the digits of a number.
const NUMBER_LENGTH_MAX: usize = 1000;

/// Bytes that do not stand for themselves: control characters, quote, backslash, and the first
/// byte of a character above U+FFFF.
const SPECIAL: [bool; 256] = {
    let mut special = [false; 256];
    let mut byte = 0;
    while byte < special.len() {
        special[byte] = byte < 0x20 || byte >= 0xf0;
        byte += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

/// Writes `text` quoted, as Jackson does where it makes bytes.
pub(super) fn write_string(out: &mut String, text: &str) {
    quote(out, text, true);
}

/// Writes `text` quoted, as Jackson does where it makes a Java string: no character is escaped for
/// being above U+FFFF.
pub(super) fn write_java_string(out: &mut String, text: &str) {
    quote(out, text, false);
}

fn quote(out: &mut String, text: &str, escape_pairs: bool) {
    out.push('"');
    let mut plain_from = 0;
    let special =
        |(_, byte): &(usize, u8)| SPECIAL[usize::from(*byte)] && (escape_pairs || *byte < 0xf0);
    for (at, byte) in text.bytes().enumerate().filter(special) {
        let short = match byte {
            b'"' => "\\\"",
            b'\\' => "\\\\",
            0x08 => "\\b",
            b'\t' => "\\t",
            b'\n' => "\\n",
            0x0c => "\\f",
            b'\r' => "\\r",
            _ => "",
        };
        out.push_str(&text[plain_from..at]);
        plain_from = at + 1;
        if !short.is_empty() {
            out.push_str(short);
        } else if let Some(character) = text[at..].chars().next() {
            plain_from = at + character.len_utf8();
            for unit in character.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{unit:04X}");
            }
        }
    }
    out.push_str(&text[plain_from..]);
    out.push('"');
}

/// Sets a member. Few members are searched one by one; of many an index is kept.
fn put<'t>(
    members: &mut Members<'t>,
    index: &mut HashMap<Cow<'t, str>, usize>,
    name: Cow<'t, str>,
    value: Node<'t>,
) {
    let known = if members.len() <= UNINDEXED_MAX {
        members.iter().position(|(known, _)| *known == name)
    } else {
        if index.is_empty() {
            index.extend(members.iter().map(|(name, _)| name.clone()).zip(0..));
        }
        index.get(&name).copied()
    };
    match known.and_then(|at| members.get_mut(at)) {
        Some(member) => member.1 = value,
        None => {
            if !index.is_empty() {
                index.insert(name.clone(), members.len());
            }
            members.push((name, value));
        }
    }
}

/// A parsed document. Text without escapes is borrowed.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node<'t> {
    Null,
    Boolean(bool),
    /// Fits 32 bits.
    Int(i32),
    /// Fits 64 bits, not 32.
    Long(i64),
    /// Longer than 64 bits; Connect has no type for it.
    BigInteger,
    Double(f64),
    String(Cow<'t, str>),
    Array(Vec<Node<'t>>),
    /// Members in the order of first appearance; of a repeated name the last value.
    Object(Members<'t>),
}

/// The members of an object.
pub(super) type Members<'t> = Vec<(Cow<'t, str>, Node<'t>)>;

/// The text does not begin with a JSON value that Jackson would take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// Reads the first value of `text`; what follows it is not looked at.
pub(super) fn parse(text: &str) -> Result<Node<'_>, Malformed> {
    Parser {
        bytes: text.as_bytes(),
        text,
        at: 0,
    }
    .value(0)
}

struct Parser<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
}

impl<'t> Parser<'t> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, Malformed> {
        let byte = self.peek().ok_or(Malformed)?;
        self.at += 1;
        Ok(byte)
    }

    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'t>, Malformed> {
        if depth > DEPTH_MAX {
            return Err(Malformed);
        }
        self.blanks();
        match self.peek().ok_or(Malformed)? {
            b'{' => self.object(depth),
            b'[' => self.array(depth),
            b'"' => Ok(Node::String(self.string()?)),
            b't' => self.word("true", Node::Boolean(true)),
            b'f' => self.word("false", Node::Boolean(false)),
            b'n' => self.word("null", Node::Null),
            b'-' | b'0'..=b'9' => self.number(),
            _ => Err(Malformed),
        }
    }

    fn word(&mut self, word: &str, node: Node<'t>) -> Result<Node<'t>, Malformed> {
        let end = self.at + word.len();
        if self.bytes.get(self.at..end) != Some(word.as_bytes()) {
            return Err(Malformed);
        }
        self.at = end;
        // `truex` is one wrong word, not a right one with something behind it.
        match self.peek() {
            Some(byte) if byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80 => {
                Err(Malformed)
            }
            _ => Ok(node),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'t>, Malformed> {
        self.at += 1;
        let mut members = Members::new();
        self.blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members));
        }
        let mut index = HashMap::new();
        loop {
            self.blanks();
            if self.peek() != Some(b'"') {
                return Err(Malformed);
            }
            let name = self.string()?;
            self.blanks();
            if self.next()? != b':' {
                return Err(Malformed);
            }
            let value = self.value(depth + 1)?;
            put(&mut members, &mut index, name, value);
            self.blanks();
            match self.next()? {
                b',' => {}
                b'}' => return Ok(Node::Object(members)),
                _ => return Err(Malformed),
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<Node<'t>, Malformed> {
        self.at += 1;
        let mut items = Vec::new();
        self.blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.blanks();
            match self.next()? {
                b',' => {}
                b']' => return Ok(Node::Array(items)),
                _ => return Err(Malformed),
            }
        }
    }

    fn string(&mut self) -> Result<Cow<'t, str>, Malformed> {
        self.at += 1;
        let mut unescaped = String::new();
        let mut plain_from = self.at;
        loop {
            match self.next()? {
                b'"' => {
                    let plain = &self.text[plain_from..self.at - 1];
                    if unescaped.is_empty() {
                        return Ok(Cow::Borrowed(plain));
                    }
                    unescaped.push_str(plain);
                    return Ok(Cow::Owned(unescaped));
                }
                b'\\' => {
                    unescaped.push_str(&self.text[plain_from..self.at - 1]);
                    self.escape(&mut unescaped)?;
                    plain_from = self.at;
                }
                0..=0x1f => return Err(Malformed),
                _ => {}
            }
        }
    }

    fn escape(&mut self, out: &mut String) -> Result<(), Malformed> {
        out.push(match self.next()? {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(out),
            _ => return Err(Malformed),
        });
        Ok(())
    }

    /// Half a surrogate pair has no UTF-8 form; Java's encoder writes `?` for it.
    fn unicode(&mut self, out: &mut String) -> Result<(), Malformed> {
        let first = self.hex()?;
        let pair_follows = (0xD800..0xDC00).contains(&first)
            && self.bytes.get(self.at..self.at + 2) == Some(b"\\u");
        if !pair_follows {
            out.push(char::from_u32(u32::from(first)).unwrap_or('?'));
            return Ok(());
        }
        let rewind = self.at;
        self.at += 2;
        let second = self.hex()?;
        match char::decode_utf16([first, second]).next() {
            Some(Ok(character)) => out.push(character),
            _ => {
                out.push('?');
                self.at = rewind;
            }
        }
        Ok(())
    }

    fn hex(&mut self) -> Result<u16, Malformed> {
        let digits = self.bytes.get(self.at..self.at + 4).ok_or(Malformed)?;
        if !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(Malformed);
        }
        self.at += 4;
        u16::from_str_radix(&self.text[self.at - 4..self.at], 16).map_err(|_| Malformed)
    }

    fn digits(&mut self) -> Result<usize, Malformed> {
        let from = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        match self.at - from {
            0 => Err(Malformed),
            count => Ok(count),
        }
    }

    fn number(&mut self) -> Result<Node<'t>, Malformed> {
        let from = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let leading_zero = self.peek() == Some(b'0');
        if self.digits()? > 1 && leading_zero {
            return Err(Malformed);
        }
        let mut integer = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
            integer = false;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits()?;
            integer = false;
        }
        let text = &self.text[from..self.at];
        if text.len() > NUMBER_LENGTH_MAX {
            return Err(Malformed);
        }
        if !integer {
            return text.parse().map(Node::Double).map_err(|_| Malformed);
        }
        Ok(match text.parse::<i64>() {
            Ok(value) => i32::try_from(value).map_or(Node::Long(value), Node::Int),
            Err(_) => Node::BigInteger,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> String {
        let mut out = String::new();
        write_string(&mut out, text);
        out
    }

    #[test]
    fn escapes_as_jackson_does() {
        assert_eq!(
            quoted("Zoë \"q\" \\ / \t\n\r\u{1}\u{1f}\u{7f}€😀\u{2028}\u{8}\u{c}"),
            "\"Zoë \\\"q\\\" \\\\ / \\t\\n\\r\\u0001\\u001F\u{7f}€\\uD83D\\uDE00\u{2028}\\b\\f\""
        );
    }

    #[test]
    fn a_text_inside_a_text_keeps_its_pairs() {
        let mut out = String::new();
        write_java_string(&mut out, "😀\"\u{1f}é");
        assert_eq!(out, "\"😀\\\"\\u001Fé\"");
    }

    #[test]
    fn reads_the_first_value_and_no_further() {
        assert_eq!(
            parse("{\"a\": 1} trailing"),
            Ok(Node::Object(vec![("a".into(), Node::Int(1))]))
        );
    }

    #[test]
    fn of_a_repeated_name_the_last_value_stands_at_the_first_place() {
        assert_eq!(
            parse("{\"a\":1,\"b\":2,\"a\":3}"),
            Ok(Node::Object(vec![
                ("a".into(), Node::Int(3)),
                ("b".into(), Node::Int(2)),
            ]))
        );
    }

    #[test]
    fn large_objects_keep_order_and_last_values() {
        let members: Vec<String> = (0..100).map(|n| format!("\"k{}\":{n}", n % 50)).collect();
        let text = format!("{{{}}}", members.join(","));
        let Ok(Node::Object(read)) = parse(&text) else {
            panic!("an object was expected")
        };
        let expected: Members<'_> = (0..50)
            .map(|n| (format!("k{n}").into(), Node::Int(n + 50)))
            .collect();
        assert_eq!(read, expected);
    }

    #[test]
    fn sorts_numbers_into_javas_types() {
        let Ok(Node::Array(items)) =
            parse("[2147483647, 2147483648, -0, -0.0, 1e400, 9223372036854775808, 1E2]")
        else {
            panic!("an array was expected")
        };
        assert_eq!(
            items,
            [
                Node::Int(i32::MAX),
                Node::Long(2_147_483_648),
                Node::Int(0),
                Node::Double(-0.0),
                Node::Double(f64::INFINITY),
                Node::BigInteger,
                Node::Double(100.0),
            ]
        );
    }

    #[test]
    fn refuses_what_jackson_refuses() {
        for text in [
            "",
            "{",
            "[",
            "{bad",
            "{\"a\": 1,}",
            "{'a': 1}",
            "[NaN]",
            "[01]",
            "[1.]",
            "[.5]",
            "[+1]",
            "[\"\t\"]",
            "[\"\\x\"]",
            "[\"\\u12\"]",
            "[truex]",
            "[1 2]",
            "{\"a\" 1}",
        ] {
            assert_eq!(parse(text), Err(Malformed), "{text:?} was accepted");
        }
        assert!(parse(&"[".repeat(100_000)).is_err());
    }

    #[test]
    fn reads_surrogate_pairs() {
        assert_eq!(
            parse("[\"\\ud83d\\ude00\\u00e9\"]"),
            Ok(Node::Array(vec![Node::String("😀é".into())]))
        );
    }

    proptest::proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn every_string_reads_back(text in ".*") {
            let quoted = quoted(&text);
            proptest::prop_assert_eq!(parse(&quoted), Ok(Node::String(text.as_str().into())));
        }
    }
}
