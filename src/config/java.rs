//! Java's regular expressions, in the dialect of the engine used here.
//!
//! Most of the syntax is common. What differs is translated, and what cannot be is refused by name;
//! nothing is passed through in the hope that it means the same. One difference is left alone on
//! purpose: Java's `.` stops at `\r`, U+0085, U+2028 and U+2029 too, which no topic, table or
//! column name can contain without being refused elsewhere.

use std::fmt;

use fancy_regex::{Expr, Regex};

use super::validated::TopicPattern;

/// Why an expression was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegexError(String);

impl fmt::Display for RegexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for RegexError {}

fn refuse<T>(text: impl Into<String>) -> Result<T, RegexError> {
    Err(RegexError(text.into()))
}

/// Compiles a Java expression that must match the whole of its input.
///
/// # Errors
/// The expression is invalid, or uses a construct of Java that has no counterpart.
pub(super) fn whole(text: &str) -> Result<Regex, RegexError> {
    compile(text, "")
}

/// As [`whole`], without regard to case.
///
/// # Errors
/// As [`whole`].
pub(super) fn whole_ignoring_case(text: &str) -> Result<Regex, RegexError> {
    compile(text, "(?i)")
}

/// Compiles a Java expression for a RegexRouter.
///
/// # Errors
/// As [`whole`].
pub(super) fn topic_pattern(text: &str) -> Result<TopicPattern, RegexError> {
    Ok(TopicPattern {
        whole: whole(text)?,
        first: build(&translate(text)?)?,
    })
}

fn compile(text: &str, flags: &str) -> Result<Regex, RegexError> {
    let translated = translate(text)?;
    // On its own first: `a)(b` would become valid inside the group that anchors it.
    Expr::parse_tree(&translated).map_err(|error| RegexError(error.to_string()))?;
    build(&format!("{flags}\\A(?:{translated})\\z"))
}

fn build(translated: &str) -> Result<Regex, RegexError> {
    Regex::new(translated).map_err(|error| RegexError(error.to_string()))
}

/// Checks a replacement in the syntax of Java's `Matcher.replaceFirst` against the groups of
/// `regex`.
///
/// # Errors
/// A lone `$` or `\`, or a group that the expression does not have.
pub(super) fn check_replacement(regex: &Regex, replacement: &str) -> Result<(), RegexError> {
    let mut chars = replacement.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.next().is_none() => {
                return refuse("ends in a lone backslash; write \\\\ for a backslash");
            }
            '$' => match chars.next() {
                Some('{') => {
                    let name: String = chars.by_ref().take_while(|&c| c != '}').collect();
                    if !regex.capture_names().flatten().any(|known| known == name) {
                        return refuse(format!("the expression has no group named {name:?}"));
                    }
                }
                Some(digit @ '0'..='9') => {
                    let group = digit as usize - '0' as usize;
                    if group >= regex.captures_len() {
                        return refuse(format!("the expression has no group {group}"));
                    }
                }
                _ => return refuse("has a $ without a group; write \\$ for a dollar sign"),
            },
            _ => {}
        }
    }
    Ok(())
}

/// Rewrites a Java expression into the engine's dialect.
pub(super) fn translate(text: &str) -> Result<String, RegexError> {
    let mut translator = Translator {
        rest: text.chars().collect::<Vec<_>>().into_iter().peekable(),
        out: String::with_capacity(text.len() + 16),
        class_depth: 0,
    };
    translator.run()?;
    Ok(translator.out)
}

struct Translator {
    rest: std::iter::Peekable<std::vec::IntoIter<char>>,
    out: String,
    class_depth: usize,
}

/// Members of the ASCII classes that Java's `\d`, `\w`, `\s`, `\h`, `\v` stand for.
fn members(letter: char) -> Option<&'static str> {
    Some(match letter.to_ascii_lowercase() {
        'd' => "0-9",
        'w' => "a-zA-Z0-9_",
        's' => "\\t\\n\\x0B\\x0C\\r\\x20",
        'h' => "\\t\\x20\\x{A0}\\x{1680}\\x{180E}\\x{2000}-\\x{200A}\\x{202F}\\x{205F}\\x{3000}",
        'v' => "\\n\\x0B\\x0C\\r\\x{85}\\x{2028}\\x{2029}",
        _ => return None,
    })
}

/// POSIX classes as Java's `\p{..}` names them, all ASCII.
const POSIX: &[(&str, &str)] = &[
    ("Lower", "a-z"),
    ("Upper", "A-Z"),
    ("ASCII", "\\x00-\\x7F"),
    ("Alpha", "a-zA-Z"),
    ("Digit", "0-9"),
    ("Alnum", "a-zA-Z0-9"),
    ("Punct", "!-/:-@\\[-`{-~"),
    ("Graph", "!-~"),
    ("Print", "\\x20-~"),
    ("Blank", "\\x20\\t"),
    ("Cntrl", "\\x00-\\x1F\\x7F"),
    ("XDigit", "0-9a-fA-F"),
    ("Space", "\\t\\n\\x0B\\x0C\\r\\x20"),
];

impl Translator {
    fn run(&mut self) -> Result<(), RegexError> {
        while let Some(c) = self.rest.next() {
            match c {
                '\\' => self.escape()?,
                '[' => {
                    self.class_depth += 1;
                    self.out.push('[');
                    if self.rest.peek() == Some(&'^') {
                        self.rest.next();
                        self.out.push('^');
                    }
                }
                ']' if self.class_depth > 0 => {
                    self.class_depth -= 1;
                    self.out.push(']');
                }
                // Set operators of this engine that Java does not have.
                '~' if self.class_depth > 0 => self.out.push_str("\\~"),
                '-' if self.class_depth > 0 && self.rest.peek() == Some(&'-') => {
                    return refuse("-- inside a character class; escape the hyphen as \\-");
                }
                '(' if self.class_depth == 0 && self.rest.peek() == Some(&'?') => self.group()?,
                _ => self.out.push(c),
            }
        }
        Ok(())
    }

    /// `(?`: only inline flags differ.
    fn group(&mut self) -> Result<(), RegexError> {
        self.out.push('(');
        let ahead: Vec<char> = self.rest.clone().skip(1).take(8).collect();
        for flag in ahead
            .iter()
            .take_while(|c| c.is_ascii_alphabetic() || **c == '-')
        {
            if matches!(flag, 'U' | 'd') {
                return refuse(format!(
                    "the inline flag {flag} is not supported; remove it"
                ));
            }
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<(), RegexError> {
        let Some(c) = self.rest.next() else {
            return refuse("ends in a lone backslash");
        };
        match c {
            'd' | 'w' | 's' | 'h' | 'v' | 'D' | 'W' | 'S' | 'H' | 'V' => {
                let members = members(c).unwrap_or_default();
                self.class(members, c.is_ascii_uppercase());
            }
            'p' | 'P' => self.property(c == 'P')?,
            'Q' => self.quotation(),
            'E' => return refuse("\\E without \\Q before it"),
            'u' => self.unicode()?,
            'x' if self.rest.peek() == Some(&'{') => self.out.push_str("\\x"),
            'x' => {
                let code = self.number(16, 2, 2)?;
                self.code_point(code)?;
            }
            '0' => {
                let code = self.number(8, 1, 3)?;
                self.code_point(code)?;
            }
            'c' => match self.rest.next() {
                Some(letter) if letter.is_ascii() => self.code_point(letter as u32 ^ 0x40)?,
                _ => return refuse("\\c without a control letter"),
            },
            'e' => self.out.push_str("\\x1B"),
            'f' => self.out.push_str("\\x0C"),
            'a' => self.out.push_str("\\x07"),
            't' | 'n' | 'r' | 'b' | 'B' | 'A' | 'z' | 'G' | 'k' | '1'..='9' => {
                self.out.push('\\');
                self.out.push(c);
            }
            'Z' => self.out.push_str("(?=\\r?\\n?\\z)"),
            'R' => self
                .out
                .push_str("(?:\\r\\n|[\\n\\x0B\\x0C\\r\\x{85}\\x{2028}\\x{2029}])"),
            'X' | 'N' => return refuse(format!("\\{c} is not supported")),
            c if c.is_ascii_alphabetic() => {
                return refuse(format!("\\{c} is not an escape of Java's expressions"));
            }
            c => self.literal(c),
        }
        Ok(())
    }

    /// A character that stands for itself wherever it is.
    fn literal(&mut self, c: char) {
        if c.is_ascii_punctuation() && c != '<' && c != '>' && c != '_' {
            self.out.push('\\');
        }
        match c {
            ' ' => self.out.push_str("\\x20"),
            '#' => self.out.push('#'),
            c => self.out.push(c),
        }
    }

    fn class(&mut self, members: &str, negated: bool) {
        match (negated, self.class_depth) {
            (true, _) => self.out.push_str(&format!("[^{members}]")),
            (false, 0) => self.out.push_str(&format!("[{members}]")),
            (false, _) => self.out.push_str(members),
        }
    }

    fn property(&mut self, negated: bool) -> Result<(), RegexError> {
        let name: String = match self.rest.next() {
            Some('{') => self.rest.by_ref().take_while(|&c| c != '}').collect(),
            Some(letter) => letter.to_string(),
            None => return refuse("\\p without a property"),
        };
        if let Some((_, members)) = POSIX.iter().find(|(posix, _)| *posix == name) {
            self.class(members, negated);
            return Ok(());
        }
        if name.starts_with("java") || name.starts_with("In") {
            return refuse(format!("the property \\p{{{name}}} is not supported"));
        }
        let name = name.strip_prefix("Is").unwrap_or(&name);
        let letter = if negated { 'P' } else { 'p' };
        self.out.push_str(&format!("\\{letter}{{{name}}}"));
        Ok(())
    }

    fn quotation(&mut self) {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.literal(c);
        }
    }

    fn unicode(&mut self) -> Result<(), RegexError> {
        let first = self.number(16, 4, 4)?;
        if !(0xD800..0xDC00).contains(&first) {
            return self.code_point(first);
        }
        if self.rest.next() != Some('\\') || self.rest.next() != Some('u') {
            return refuse("half of a surrogate pair");
        }
        let second = self.number(16, 4, 4)?;
        if !(0xDC00..0xE000).contains(&second) {
            return refuse("half of a surrogate pair");
        }
        self.code_point(0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00))
    }

    fn number(&mut self, radix: u32, least: usize, most: usize) -> Result<u32, RegexError> {
        let mut value = 0;
        let mut digits = 0;
        while digits < most {
            let Some(digit) = self.rest.peek().and_then(|c| c.to_digit(radix)) else {
                break;
            };
            value = value * radix + digit;
            digits += 1;
            self.rest.next();
        }
        if digits < least {
            return refuse("a numeric escape with too few digits");
        }
        Ok(value)
    }

    fn code_point(&mut self, code: u32) -> Result<(), RegexError> {
        if char::from_u32(code).is_none() {
            return refuse("a numeric escape that is no character");
        }
        self.out.push_str(&format!("\\x{{{code:X}}}"));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(java: &str, text: &str) -> bool {
        whole(java).unwrap().is_match(text).unwrap()
    }

    #[test]
    fn ascii_classes_stay_ascii() {
        assert!(matches(r"\d+", "42"));
        assert!(!matches(r"\d+", "٤٢"));
        assert!(!matches(r"\w+", "é"));
        assert!(matches(r"[\w-]+", "a-b_c"));
        assert!(matches(r"[^\D]+", "12"));
        assert!(matches(r"\p{Alpha}\p{Punct}[\p{Digit}x]", "a!x"));
    }

    #[test]
    fn horizontal_space_is_not_a_hexadecimal_digit() {
        assert!(matches(r"a\hb", "a b"));
        assert!(!matches(r"a\hb", "aab"));
    }

    #[test]
    fn quotation_and_code_points() {
        assert!(matches(r"\Qa.b|c\E.", "a.b|cd"));
        assert!(!matches(r"\Qa.b\E", "axb"));
        assert!(matches(r"\u00e9\x41\0101", "éAA"));
        assert!(matches(r"\uD83D\uDE00", "😀"));
        assert!(matches(r"public\.out\_box\/\<", "public.out_box/<"));
    }

    #[test]
    fn groups_look_around_and_possessive_quantifiers_work() {
        assert!(matches(r"(?<a>x)\k<a>(?!y).*+", "xxz"));
        assert!(matches("(?i)order", "ORDER"));
        assert!(matches("[a-z&&[^b]]", "a"));
        assert!(!matches("[a-z&&[^b]]", "b"));
    }

    #[test]
    fn the_whole_input_must_match() {
        assert!(!matches("a|b", "ab"));
        assert!(whole("a)(b").is_err());
        assert!(whole("[[a-z]").is_err());
        assert!(whole("public.(outbox").is_err());
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        for text in [
            r"\X",
            r"(?U)a",
            r"\p{InGreek}",
            r"\p{javaLowerCase}",
            r"\y",
            "a\\",
            r"\uD83D",
        ] {
            assert!(whole(text).is_err(), "{text}");
        }
    }

    #[test]
    fn replacements_are_checked_against_the_groups() {
        let regex = whole("(?<agg>.*)-(.*)").unwrap();
        for good in ["x.${agg}.$2", "$0", r"\$x\\", "plain", "$10"] {
            assert_eq!(check_replacement(&regex, good), Ok(()), "{good}");
        }
        for bad in ["${nope}", "$3", "x$", "$x", "a\\", "${agg"] {
            let refused = check_replacement(&regex, bad).is_err();
            assert_eq!(refused, bad != "${agg", "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_translated_or_refused(text in ".*") {
            let _ = whole(&text);
            let _ = check_replacement(&whole("(a)").unwrap(), &text);
        }
    }
}
