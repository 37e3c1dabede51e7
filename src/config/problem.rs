//! What the loader has to say: problems, which refuse the configuration, and notices, which do not.
//!
//! Neither ever carries a secret: callers quote values only through [`super::settings::Setting`].

use std::fmt;

/// One reason to refuse the configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// File, or `environment`.
    pub origin: String,
    /// The property, where one is to blame.
    pub property: Option<String>,
    /// What is wrong and what to do.
    pub text: String,
}

/// Something accepted that the operator should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notice {
    /// File, or `environment`.
    pub origin: String,
    /// The property, where one is meant.
    pub property: Option<String>,
    /// The remark.
    pub text: String,
}

fn write_line(
    f: &mut fmt::Formatter<'_>,
    origin: &str,
    property: Option<&str>,
    text: &str,
) -> fmt::Result {
    match property {
        Some(property) => write!(f, "{origin}: {property}: {text}"),
        None => write!(f, "{origin}: {text}"),
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.origin, self.property.as_deref(), &self.text)
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.origin, self.property.as_deref(), &self.text)
    }
}

/// Collects problems and notices while a configuration is read, so that all are told at once.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Problem>,
    pub(super) notices: Vec<Notice>,
}

impl Findings {
    /// Records a problem of `property`.
    pub(super) fn problem(&mut self, origin: &str, property: &str, text: impl Into<String>) {
        let problem = Problem {
            origin: origin.to_owned(),
            property: Some(property.to_owned()),
            text: text.into(),
        };
        if !self.problems.contains(&problem) {
            self.problems.push(problem);
        }
    }

    /// Records a problem of a whole file.
    pub(super) fn problem_of_file(&mut self, origin: &str, text: impl Into<String>) {
        self.problems.push(Problem {
            origin: origin.to_owned(),
            property: None,
            text: text.into(),
        });
    }

    /// Records a notice about `property`.
    pub(super) fn notice(&mut self, origin: &str, property: &str, text: impl Into<String>) {
        let notice = Notice {
            origin: origin.to_owned(),
            property: Some(property.to_owned()),
            text: text.into(),
        };
        if !self.notices.contains(&notice) {
            self.notices.push(notice);
        }
    }
}
