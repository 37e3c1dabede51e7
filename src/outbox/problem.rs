//! Why one row cannot become a record, before it is known which row that is.

/// A reason, and the column it lies in. Never quotes a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Problem {
    pub(super) reason: String,
    pub(super) column: Option<String>,
}

impl Problem {
    /// A problem that no single column causes.
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            column: None,
        }
    }

    /// A problem with one column.
    pub(super) fn column(column: &str, reason: impl Into<String>) -> Self {
        Self {
            reason: reason.into(),
            column: Some(column.to_owned()),
        }
    }
}
