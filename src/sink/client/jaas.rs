//! `sasl.jaas.config`, as Java's parser reads it.

use crate::config::Secret;

/// One login module with its options.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Login {
    /// Class name, without its package.
    pub(super) module: String,
    options: Vec<(String, Secret)>,
}

impl Login {
    /// The value of an option.
    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.options
            .iter()
            .rev()
            .find(|(option, _)| option == name)
            .map(|(_, value)| value.reveal())
    }

    /// Every option whose name starts with `prefix`, the prefix cut off.
    pub(super) fn options_under<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.options.iter().filter_map(move |(name, value)| {
            name.strip_prefix(prefix).map(|rest| (rest, value.reveal()))
        })
    }
}

/// Reads `Module flag name=value name="value" ... ;`. Errors never quote the text.
pub(super) fn parse(text: &str) -> Result<Login, &'static str> {
    let mut words = Words { rest: text };
    let module = match words.next()? {
        Some(Word::Plain(name)) => name,
        Some(_) => return Err("must start with the class of a login module"),
        None => return Err("is empty"),
    };
    match words.next()? {
        Some(Word::Plain(flag))
            if ["required", "requisite", "sufficient", "optional"]
                .iter()
                .any(|known| flag.eq_ignore_ascii_case(known)) => {}
        _ => {
            return Err("needs required, requisite, sufficient or optional after the login module");
        }
    }
    let mut options = Vec::new();
    loop {
        match words.next()? {
            Some(Word::End) => break,
            Some(Word::Plain(name)) => {
                if words.next()? != Some(Word::Equals) {
                    return Err("has an option without a value");
                }
                let value = match words.next()? {
                    Some(Word::Plain(value) | Word::Quoted(value)) => value,
                    _ => return Err("has an option without a value"),
                };
                options.push((name, Secret::new(value)));
            }
            Some(_) => return Err("must list options as name=\"value\""),
            None => return Err("must end with a semicolon"),
        }
    }
    if words.next()?.is_some() {
        return Err("must name one login module only");
    }
    let module = module.rsplit('.').next().unwrap_or_default().to_owned();
    Ok(Login { module, options })
}

#[derive(PartialEq, Eq)]
enum Word {
    Plain(String),
    Quoted(String),
    Equals,
    End,
}

struct Words<'a> {
    rest: &'a str,
}

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<Option<Word>, &'static str> {
        // A backslash before a line end is left over from a .properties file.
        self.rest = self
            .rest
            .trim_start_matches(|c: char| c.is_whitespace() || c == '\\');
        let Some(first) = self.rest.chars().next() else {
            return Ok(None);
        };
        let after = &self.rest[first.len_utf8()..];
        let word = match first {
            ';' => Word::End,
            '=' => Word::Equals,
            '"' | '\'' => return self.quoted(after, first).map(Some),
            _ => {
                let end = self
                    .rest
                    .find(|c: char| c.is_whitespace() || matches!(c, ';' | '=' | '"'))
                    .unwrap_or(self.rest.len());
                let (word, rest) = self.rest.split_at(end);
                self.rest = rest;
                return Ok(Some(Word::Plain(word.to_owned())));
            }
        };
        self.rest = after;
        Ok(Some(word))
    }

    fn quoted(&mut self, text: &'a str, quote: char) -> Result<Word, &'static str> {
        let mut value = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => match chars.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, 'r')) => value.push('\r'),
                    Some((_, escaped)) => value.push(escaped),
                    None => break,
                },
                c if c == quote => {
                    self.rest = &text[at + c.len_utf8()..];
                    return Ok(Word::Quoted(value));
                }
                c => value.push(c),
            }
        }
        Err("has a value whose quotation mark is never closed")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_what_people_write() {
        let login = parse(
            "org.apache.kafka.common.security.plain.PlainLoginModule required \\\n \
             username=\"alice\" password=\"a\\\"b\\\\c;= d\";",
        )
        .unwrap();
        assert_eq!(login.module, "PlainLoginModule");
        assert_eq!(login.option("username"), Some("alice"));
        assert_eq!(login.option("password"), Some("a\"b\\c;= d"));
        let login = parse("X REQUIRED user=bob tokenauth=true ;").unwrap();
        assert_eq!(login.option("user"), Some("bob"));
        assert_eq!(login.option("tokenauth"), Some("true"));
        assert_eq!(login.option("missing"), None);
    }

    #[test]
    fn refuses_what_java_refuses() {
        for text in [
            "",
            "X",
            "X sometimes a=b;",
            "X required a=b",
            "X required a;",
            "X required a=;",
            "X required a=\"b;",
            "X required =b;",
            "X required a=b; Y required;",
            "\"X\" required;",
        ] {
            assert!(parse(text).is_err(), "{text:?} was accepted");
        }
    }

    #[test]
    fn never_shows_a_value() {
        let login = parse("X required password=\"hunter2\";").unwrap();
        assert!(!format!("{login:?}").contains("hunter2"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = parse(&text);
        }

        #[test]
        fn any_value_survives_quoting(value in any::<String>()) {
            let quoted = value.replace('\\', "\\\\").replace('"', "\\\"");
            let login = parse(&format!("X required password=\"{quoted}\";")).unwrap();
            prop_assert_eq!(login.option("password"), Some(value.as_str()));
        }
    }
}
