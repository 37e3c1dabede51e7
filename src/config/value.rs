//! How the text of a property becomes a value: each type is parsed here and nowhere else.

use std::time::Duration;

use super::date_pattern::DatePattern;
use super::java;
use super::validated::{Listener, Pattern, Place, Placement};

/// The type of a property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// Any text that must never be shown.
    Secret,
    /// A path of the file system.
    Path,
    /// `true` or `false`.
    Flag,
    /// A whole number within bounds.
    Number(i64, i64),
    /// Milliseconds, at least so many.
    Millis(i64),
    /// A port, or a comma-separated list of ports.
    Ports,
    /// One of these words; trimmed, without regard to case.
    Choice(&'static [&'static str]),
    /// A comma-separated list.
    List,
    /// A comma-separated list of these words.
    Choices(&'static [&'static str]),
    /// A Java regular expression.
    Regex,
    /// A comma-separated list of Java regular expressions; `\,` is a comma.
    Regexes,
    /// A pattern of Java's `SimpleDateFormat`.
    DatePattern,
    /// The name of a Java class.
    Class,
    /// A replication slot's name.
    SlotName,
    /// `topic.prefix`.
    TopicPrefix,
    /// `table.fields.additional.placement`.
    Placements,
    /// `key=value` pairs separated by semicolons.
    Pairs,
    /// `listeners`.
    Listeners,
}

impl Kind {
    /// Whether `text` is a value of this type.
    pub(super) fn check(self, text: &str) -> Result<(), String> {
        match self {
            Kind::Text | Kind::Secret | Kind::Path | Kind::List | Kind::Class => Ok(()),
            Kind::Flag => flag(text).map(drop),
            Kind::Number(min, max) => number(text, min, max).map(drop),
            Kind::Millis(min) => millis(text, min).map(drop),
            Kind::Ports => ports(text).map(drop),
            Kind::Choice(allowed) => choice(text, allowed).map(drop),
            Kind::Choices(allowed) => choices(&list(text), allowed),
            Kind::Regex => java::whole(text)
                .map(drop)
                .map_err(|error| format!("a Java regular expression is expected: {error}")),
            Kind::Regexes => patterns(text).map(drop),
            Kind::DatePattern => DatePattern::new(text).map(drop).map_err(|error| {
                format!("a pattern of Java's SimpleDateFormat is expected: {error}")
            }),
            Kind::SlotName => slot_name(text),
            Kind::TopicPrefix => topic_prefix(text),
            Kind::Placements => placements(text).map(drop),
            Kind::Pairs => pairs(text).map(drop),
            Kind::Listeners => listeners(text).map(drop),
        }
    }

    /// The type as the documentation writes it.
    pub fn describe(self) -> String {
        match self {
            Kind::Text => "text".to_owned(),
            Kind::Secret => "secret".to_owned(),
            Kind::Path => "path".to_owned(),
            Kind::Flag => "true or false".to_owned(),
            Kind::Number(min, max) => bounds(min, max),
            Kind::Millis(min) => format!("milliseconds, at least {min}"),
            Kind::Ports => "port, or list of ports".to_owned(),
            Kind::Choice(allowed) => format!("one of {}", allowed.join(", ")),
            Kind::List => "list".to_owned(),
            Kind::Choices(allowed) => format!("list of {}", allowed.join(", ")),
            Kind::Regex => "Java regular expression".to_owned(),
            Kind::Regexes => "list of Java regular expressions".to_owned(),
            Kind::DatePattern => "pattern of Java's `SimpleDateFormat`".to_owned(),
            Kind::Class => "class name".to_owned(),
            Kind::SlotName => "slot name".to_owned(),
            Kind::TopicPrefix => "letters, digits, `.`, `_`, `-`".to_owned(),
            Kind::Placements => "list of `column:place[:alias]`".to_owned(),
            Kind::Pairs => "`name=value` pairs separated by `;`".to_owned(),
            Kind::Listeners => "list of `http://host:port`".to_owned(),
        }
    }
}

fn bounds(min: i64, max: i64) -> String {
    match (min, max) {
        (i64::MIN, i64::MAX) => "a whole number".to_owned(),
        (min, i64::MAX | 0x7fff_ffff) => format!("a whole number, at least {min}"),
        (min, max) => format!("a whole number from {min} to {max}"),
    }
}

pub(super) fn flag(text: &str) -> Result<bool, String> {
    match text.trim() {
        word if word.eq_ignore_ascii_case("true") => Ok(true),
        word if word.eq_ignore_ascii_case("false") => Ok(false),
        _ => Err("true or false is expected".to_owned()),
    }
}

pub(super) fn number(text: &str, min: i64, max: i64) -> Result<i64, String> {
    let value: Option<i64> = text.trim().parse().ok();
    value
        .filter(|value| (min..=max).contains(value))
        .ok_or_else(|| format!("{} is expected", bounds(min, max)))
}

pub(super) fn millis(text: &str, min: i64) -> Result<Duration, String> {
    number(text, min, i64::MAX)
        .ok()
        .and_then(|value| u64::try_from(value).ok())
        .map(Duration::from_millis)
        .ok_or_else(|| format!("a number of milliseconds, at least {min}, is expected"))
}

pub(super) fn port(text: &str) -> Result<u16, String> {
    let port = number(text, 1, i64::from(u16::MAX))?;
    u16::try_from(port).map_err(|error| error.to_string())
}

pub(super) fn ports(text: &str) -> Result<Vec<u16>, String> {
    text.split(',').map(port).collect()
}

/// The allowed word that `text` is.
pub(super) fn choice(text: &str, allowed: &[&'static str]) -> Result<&'static str, String> {
    allowed
        .iter()
        .find(|word| word.eq_ignore_ascii_case(text.trim()))
        .copied()
        .ok_or_else(|| format!("one of {} is expected", allowed.join(", ")))
}

/// Whether all words are allowed; `none` must stand alone, and no word at all is a mistake.
fn choices(words: &[String], allowed: &[&'static str]) -> Result<(), String> {
    let alone = words.len() == 1;
    match words.iter().any(|word| word.eq_ignore_ascii_case("none")) {
        true if !alone => Err("none stands alone".to_owned()),
        _ if words.is_empty() => Err(format!("some of {} are expected", allowed.join(", "))),
        _ => words
            .iter()
            .try_for_each(|word| choice(word, allowed).map(drop)),
    }
}

/// The trimmed, non-empty elements of a comma-separated list.
pub(super) fn list(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|element| !element.is_empty())
        .map(str::to_owned)
        .collect()
}

/// A list of expressions; a comma inside one is written `\,`.
pub(super) fn expressions(text: &str) -> Vec<String> {
    let mut elements = vec![String::new()];
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if chars.peek() == Some(&',') => {
                chars.next();
                push_last(&mut elements, ',');
            }
            '\\' => {
                push_last(&mut elements, '\\');
                if let Some(escaped) = chars.next() {
                    push_last(&mut elements, escaped);
                }
            }
            ',' => elements.push(String::new()),
            c => push_last(&mut elements, c),
        }
    }
    elements
        .iter()
        .map(|element| element.trim().to_owned())
        .filter(|element| !element.is_empty())
        .collect()
}

fn push_last(elements: &mut [String], c: char) {
    if let Some(last) = elements.last_mut() {
        last.push(c);
    }
}

pub(super) fn patterns(text: &str) -> Result<Vec<Pattern>, String> {
    expressions(text)
        .iter()
        .map(|expression| Pattern::new(expression))
        .collect::<Result<_, _>>()
        .map_err(|error| format!("a list of Java regular expressions is expected: {error}"))
}

fn slot_name(text: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if (1..=63).contains(&text.len()) && text.chars().all(legal) {
        return Ok(());
    }
    Err("a slot name has 1 to 63 lower-case letters, digits and underscores".to_owned())
}

pub(super) fn topic_prefix(text: &str) -> Result<(), String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if !text.is_empty() && text.chars().all(legal) {
        return Ok(());
    }
    Err("only letters, digits, dots, hyphens and underscores are allowed".to_owned())
}

/// A name that Kafka accepts.
pub(super) fn topic_name(text: &str) -> Result<(), String> {
    if text.len() > 249 {
        return Err("it is too long".to_owned());
    }
    topic_prefix(text)
}

/// `column:place[:alias]`, as Debezium splits it: trailing empty parts and entries do not count.
pub(super) fn placements(text: &str) -> Result<Vec<Placement>, String> {
    let mut entries: Vec<&str> = text.split(',').collect();
    while entries.len() > 1 && entries.last().is_some_and(|entry| entry.is_empty()) {
        entries.pop();
    }
    entries.into_iter().map(placement).collect()
}

fn placement(entry: &str) -> Result<Placement, String> {
    let mut parts: Vec<&str> = entry.split(':').collect();
    while parts.last().is_some_and(|part| part.is_empty()) {
        parts.pop();
    }
    let (column, place, alias) = match parts[..] {
        [column, place] => (column, place, column),
        [column, place, alias] => (column, place, alias),
        _ => {
            return Err(format!(
                "entries of the form column:place or column:place:alias are expected, not {:?}",
                entry.trim()
            ));
        }
    };
    let place = match choice(place, &["header", "envelope", "partition"]) {
        Ok("header") => Place::Header,
        Ok("envelope") => Place::Envelope,
        Ok(_) => Place::Partition,
        Err(expected) => return Err(format!("in {:?} {expected}", entry.trim())),
    };
    Ok(Placement {
        column: column.trim().to_owned(),
        place,
        alias: alias.trim().to_owned(),
    })
}

pub(super) fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    text.split(';')
        .map(str::trim)
        .filter(|pair| !pair.is_empty())
        .map(|pair| match pair.split_once('=') {
            Some((name, value)) if !name.trim().is_empty() => {
                Ok((name.trim().to_owned(), value.trim().to_owned()))
            }
            _ => Err("name=value pairs separated by ; are expected".to_owned()),
        })
        .collect()
}

/// SQL statements separated by `;`; `;;` is a semicolon inside one.
pub(super) fn statements(text: &str) -> Vec<String> {
    text.split(";;")
        .map(|part| part.split(';').map(str::to_owned).collect::<Vec<_>>())
        .reduce(|mut statements, part| {
            let mut part = part.into_iter();
            if let (Some(last), Some(first)) = (statements.last_mut(), part.next()) {
                last.push(';');
                last.push_str(&first);
            }
            statements.extend(part);
            statements
        })
        .unwrap_or_default()
        .iter()
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect()
}

pub(super) fn listeners(text: &str) -> Result<Vec<Listener>, String> {
    list(text).iter().map(|address| listener(address)).collect()
}

fn listener(address: &str) -> Result<Listener, String> {
    let expected = || format!("http://host:port is expected, not {address:?}");
    let Some((scheme, rest)) = address.split_once("://") else {
        return Err(expected());
    };
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(format!(
            "only http:// is served, not {scheme}://; put a proxy in front for TLS"
        ));
    }
    let (host, port) = rest
        .trim_end_matches('/')
        .rsplit_once(':')
        .ok_or_else(expected)?;
    Ok(Listener {
        host: host.trim_matches(['[', ']']).to_owned(),
        port: port.parse().map_err(|_| expected())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_trimmed_and_case_does_not_matter() {
        assert_eq!(choice(" FATAL ", &["warn", "fatal"]), Ok("fatal"));
        assert_eq!(flag(" True "), Ok(true));
        assert!(flag("yes").is_err());
    }

    #[test]
    fn expressions_split_at_plain_commas_only() {
        assert_eq!(expressions(r"a.{1\,3}, b\.c"), ["a.{1,3}", r"b\.c"]);
        assert_eq!(expressions(r"a\\,b"), [r"a\\", "b"]);
    }

    #[test]
    fn placements_are_split_as_java_splits() {
        let aliases = |text: &str| -> Vec<String> {
            let all = placements(text).unwrap();
            all.into_iter().map(|placement| placement.alias).collect()
        };
        assert_eq!(
            aliases(" type : HEADER : eventType , a:header:,"),
            ["eventType", "a"]
        );
        for bad in [
            "",
            "type",
            "a:header:b:c",
            "a:trailer",
            "a:header,,b:header",
        ] {
            assert!(placements(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_doubled_semicolon_stays_inside_its_statement() {
        assert_eq!(
            statements("SET a=1; SELECT ';;' ;"),
            ["SET a=1", "SELECT ';'"]
        );
    }

    #[test]
    fn none_of_a_list_of_words_stands_alone() {
        let kind = Kind::Choices(&["c", "u", "none"]);
        assert_eq!(kind.check("c, U"), Ok(()));
        assert_eq!(kind.check("none"), Ok(()));
        for wrong in ["", " , ", "none,c", "x"] {
            assert!(kind.check(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn listeners_take_any_host_and_port_zero() {
        let all = listeners("http://:8083, http://[::1]:0").unwrap();
        assert_eq!((all[0].host.as_str(), all[0].port), ("", 8083));
        assert_eq!((all[1].host.as_str(), all[1].port), ("::1", 0));
        assert!(listeners("https://x:1").is_err());
        assert!(listeners("x:1").is_err());
    }

    #[test]
    fn numbers_keep_to_their_bounds() {
        assert_eq!(number(" 7 ", 0, 10), Ok(7));
        assert!(number("11", 0, 10).is_err());
        assert!(millis("-1", 0).is_err());
    }
}
