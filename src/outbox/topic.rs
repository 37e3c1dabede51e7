//! From routing value to topic name: a Java regular expression and its replacement, run once for
//! each distinct value.

use std::collections::HashMap;

use fancy_regex::Regex;

use super::names;
use super::problem::Problem;
use crate::config::TopicPattern;

/// Distinct routing values whose topic is remembered. Beyond that many all are forgotten: memory
/// stays bounded, whatever the routing column holds.
const REMEMBERED_MAX: usize = 10_000;
/// Characters of a topic name that an error quotes.
const QUOTED_MAX: usize = 80;

/// `Matcher.matches` followed by `replaceFirst`, as Connect's RegexRouter does. The second looks
/// anew, from the start and not for the whole: of `order`, `(.*?)(-v1)?` replaces nothing at all.
#[derive(Debug)]
pub(super) struct Rewriter {
    pattern: TopicPattern,
    replacement: Result<Vec<Part>, String>,
}

/// A piece of a replacement in Java's syntax.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Literal(String),
    Group(usize),
    Named(String),
}

impl Rewriter {
    /// A replacement that Java would refuse is refused only where it would be used.
    pub(super) fn new(pattern: &TopicPattern, replacement: &str) -> Self {
        Self {
            pattern: pattern.clone(),
            replacement: parse(replacement, &pattern.first),
        }
    }

    /// The rewritten text, or `None` when the expression does not match the whole of it.
    pub(super) fn rewrite(&self, text: &str) -> Result<Option<String>, Problem> {
        let gave_up =
            |_| Problem::new("the topic's regular expression gave up on the routing value");
        if !self.pattern.whole.is_match(text).map_err(gave_up)? {
            return Ok(None);
        }
        let found = self.pattern.first.captures(text).map_err(gave_up)?;
        let Some(captures) = found else {
            return Ok(Some(text.to_owned()));
        };
        let place = captures.get(0).map_or(0..0, |all| all.range());
        let parts = self.replacement.as_ref().map_err(Problem::new)?;
        let mut out = text[..place.start].to_owned();
        for part in parts {
            let group = match part {
                Part::Literal(literal) => {
                    out.push_str(literal);
                    continue;
                }
                Part::Group(number) => captures.get(*number),
                Part::Named(name) => captures.name(name),
            };
            out.push_str(group.map_or("", |group| group.as_str()));
        }
        out.push_str(&text[place.end..]);
        Ok(Some(out))
    }
}

/// Java's replacement syntax: `$1`, `${name}`, `\` before a character taken literally.
fn parse(replacement: &str, regex: &Regex) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = replacement.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '\\' => literal.push(
                rest.next()
                    .ok_or("the topic replacement ends in a lone backslash")?,
            ),
            '$' => {
                if !literal.is_empty() {
                    parts.push(Part::Literal(std::mem::take(&mut literal)));
                }
                parts.push(group(&mut rest, regex)?);
            }
            _ => literal.push(character),
        }
    }
    if !literal.is_empty() {
        parts.push(Part::Literal(literal));
    }
    Ok(parts)
}

fn group(
    rest: &mut std::iter::Peekable<std::str::Chars<'_>>,
    regex: &Regex,
) -> Result<Part, String> {
    let groups = regex.captures_len().saturating_sub(1);
    match rest.next() {
        Some('{') => {
            let name: String = rest
                .by_ref()
                .take_while(|&character| character != '}')
                .collect();
            if !regex.capture_names().flatten().any(|known| known == name) {
                return Err(format!(
                    "the topic replacement names a group {name:?} that its expression does not have"
                ));
            }
            Ok(Part::Named(name))
        }
        Some(first) if first.is_ascii_digit() => {
            let digit = |character: char| character.to_digit(10).map(|digit| digit as usize);
            let mut number = digit(first).unwrap_or(0);
            if number > groups {
                return Err(format!(
                    "the topic replacement names group {number}, which its expression does not have"
                ));
            }
            // As many digits as there are groups for; what follows is text.
            while let Some(next) = rest.peek().copied().and_then(digit) {
                match number.checked_mul(10).map(|tens| tens + next) {
                    Some(longer) if longer <= groups => number = longer,
                    _ => break,
                }
                rest.next();
            }
            Ok(Part::Group(number))
        }
        _ => Err("the topic replacement has a $ without a group".to_owned()),
    }
}

/// Topics of routing values seen before.
#[derive(Debug)]
pub(super) struct Topics {
    rewriter: Rewriter,
    known: HashMap<Box<[u8]>, usize>,
    topics: Vec<Result<Topic, Problem>>,
}

#[derive(Debug)]
struct Topic {
    name: Box<str>,
    /// Whether Kafka would take the name; a later transform may still change it.
    legal: Result<(), Problem>,
}

impl Topics {
    /// For one router.
    pub(super) fn new(rewriter: Rewriter) -> Self {
        Self {
            rewriter,
            known: HashMap::new(),
            topics: Vec::new(),
        }
    }

    /// The topic of a routing value, whatever Kafka thinks of it.
    pub(super) fn any(&mut self, value: &[u8]) -> Result<&str, Problem> {
        self.topic(value).map(|topic| &*topic.name)
    }

    /// The topic of a routing value, checked against Kafka's rules.
    pub(super) fn legal(&mut self, value: &[u8]) -> Result<&str, Problem> {
        let topic = self.topic(value)?;
        topic.legal.clone().map(|()| &*topic.name)
    }

    fn topic(&mut self, value: &[u8]) -> Result<&Topic, Problem> {
        let position = match self.known.get(value) {
            Some(&position) => position,
            None => self.remember(value),
        };
        match self.topics.get(position) {
            Some(topic) => topic.as_ref().map_err(Problem::clone),
            // `remember` has just put it there.
            None => Err(Problem::new(
                "the topic was forgotten while it was looked up",
            )),
        }
    }

    fn remember(&mut self, value: &[u8]) -> usize {
        if self.topics.len() >= REMEMBERED_MAX {
            self.known.clear();
            self.topics.clear();
        }
        let topic = std::str::from_utf8(value)
            .map_err(|_| Problem::new("the routing value is not valid UTF-8"))
            .and_then(|text| {
                let rewritten = self.rewriter.rewrite(text)?;
                Ok(rewritten.unwrap_or_else(|| text.to_owned()))
            })
            .map(|name| Topic {
                legal: check(&name),
                name: name.into_boxed_str(),
            });
        self.topics.push(topic);
        let position = self.topics.len() - 1;
        self.known.insert(value.into(), position);
        position
    }
}

/// Refuses what Kafka would refuse.
pub(super) fn check(topic: &str) -> Result<(), Problem> {
    if names::is_topic(topic) {
        return Ok(());
    }
    let shown: String = topic.chars().take(QUOTED_MAX).collect();
    let more = if topic.chars().count() > QUOTED_MAX {
        "..."
    } else {
        ""
    };
    Err(Problem::new(format!(
        "{shown:?}{more} is no legal topic name: Kafka takes 1 to 249 characters of a-z, A-Z, 0-9, \
         dot, underscore and dash"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rewriter(regex: &str, replacement: &str) -> Rewriter {
        let pattern = TopicPattern {
            whole: Regex::new(&format!("\\A(?:{regex})\\z")).unwrap(),
            first: Regex::new(regex).unwrap(),
        };
        Rewriter::new(&pattern, replacement)
    }

    fn rewrite(regex: &str, replacement: &str, text: &str) -> Option<String> {
        rewriter(regex, replacement).rewrite(text).unwrap()
    }

    #[test]
    fn groups_escapes_and_digits() {
        assert_eq!(
            rewrite("(.*)-(.*)", "$2.$1", "order-x-paid").unwrap(),
            "paid.order-x"
        );
        assert_eq!(
            rewrite(
                "(?<ctx>[a-z]+)\\.(?<agg>\\w+)",
                "${agg}_${ctx}",
                "sales.Order"
            )
            .unwrap(),
            "Order_sales"
        );
        assert_eq!(rewrite("(.*)", "$10", "Order").unwrap(), "Order0");
        assert_eq!(rewrite("(.*)", "a\\$1\\.x", "Order").unwrap(), "a$1.x");
        assert_eq!(
            rewrite("(Order|Item)(-\\d+)?", "$1$2", "Order").unwrap(),
            "Order"
        );
        assert_eq!(rewrite("X(.*)", "$1", "Order"), None);
        // What matches as a whole need not be what is found first.
        assert_eq!(
            rewrite("(.*?)(-v1)?", "x.$1", "order-v1").unwrap(),
            "x.order-v1"
        );
        assert_eq!(rewrite("ord|order", "x", "order").unwrap(), "xer");
        assert_eq!(rewrite("(.*)", "$1", "a\nb"), None);
    }

    #[test]
    fn a_wrong_replacement_fails_only_where_it_would_be_used() {
        for replacement in ["x$", "x\\", "${nope}", "$9", "$x"] {
            let rewriter = rewriter("a(.*)", replacement);
            assert!(rewriter.rewrite("ab").is_err(), "{replacement:?}");
            assert_eq!(rewriter.rewrite("b"), Ok(None));
        }
    }

    #[test]
    fn the_same_value_has_the_same_topic_after_the_memory_was_emptied() {
        let mut topics = Topics::new(rewriter("(.*)", "t.$1"));
        for value in 0..REMEMBERED_MAX + 10 {
            let value = value.to_string();
            let expected = format!("t.{value}");
            assert_eq!(topics.legal(value.as_bytes()), Ok(expected.as_str()));
        }
        assert!(topics.topics.len() <= REMEMBERED_MAX);
        assert_eq!(topics.legal(b"5"), Ok("t.5"));
    }

    #[test]
    fn an_illegal_topic_is_a_problem() {
        let mut topics = Topics::new(rewriter("(.*)", "t.$1"));
        assert!(topics.legal(b"a b").is_err());
        assert!(topics.legal(b"a b").is_err());
        assert!(topics.legal(&[0xff]).is_err());
    }
}
