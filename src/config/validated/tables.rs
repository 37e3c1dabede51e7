//! Which tables and columns, by Java's expressions.

use crate::config::java::{self, RegexError};

/// A Java regular expression list, matched against whole names without regard to case.
#[derive(Debug, Clone, Default)]
pub struct NameFilter {
    /// Names to take; empty means all.
    pub include: Vec<Pattern>,
    /// Names to leave.
    pub exclude: Vec<Pattern>,
}

impl NameFilter {
    /// Whether `name` is taken.
    pub fn takes(&self, name: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(name));
        (self.include.is_empty() || any(&self.include)) && !any(&self.exclude)
    }
}

/// One anchored, case-insensitive expression.
#[derive(Debug, Clone)]
pub struct Pattern {
    text: String,
    regex: fancy_regex::Regex,
}

impl Pattern {
    /// Compiles `text`, as Debezium does for its include and exclude lists.
    ///
    /// # Errors
    /// The expression is not valid.
    pub fn new(text: &str) -> Result<Self, RegexError> {
        Ok(Self {
            text: text.to_owned(),
            regex: java::whole_ignoring_case(text)?,
        })
    }

    /// The expression as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole of `name` matches. An expression that runs out of its backtracking budget
    /// does not match.
    pub fn matches(&self, name: &str) -> bool {
        self.regex.is_match(name).unwrap_or(false)
    }
}

/// Which tables are outbox tables: `schema.*.list` on schema names, `table.*.list` on
/// `schema.table`.
#[derive(Debug, Clone, Default)]
pub struct TableFilter {
    /// `schema.include.list` and `schema.exclude.list`.
    pub schemas: NameFilter,
    /// `table.include.list` and `table.exclude.list`.
    pub tables: NameFilter,
    /// `include.partitions`: a partition is ours when its root is.
    pub partitions: bool,
}

impl TableFilter {
    /// Whether `schema.table` is one of ours.
    pub fn takes(&self, schema: &str, table: &str) -> bool {
        self.schemas.takes(schema) && self.tables.takes(&format!("{schema}.{table}"))
    }

    /// Whether a partition of a table that is ours is ours as well.
    pub fn takes_leaf(&self, schema: &str, partition: &str) -> bool {
        self.partitions || self.takes(schema, partition)
    }
}

/// `column.*` rules, on `schema.table.column`.
#[derive(Debug, Clone, Default)]
pub struct ColumnRules {
    /// `column.include.list` and `column.exclude.list`.
    pub filter: NameFilter,
    /// `column.mask.with.N.chars`: length and columns.
    pub mask: Vec<(usize, Vec<Pattern>)>,
    /// `column.truncate.to.N.chars`: length and columns.
    pub truncate: Vec<(usize, Vec<Pattern>)>,
    /// `column.propagate.source.type`: columns whose schema carries `__debezium.source.column.*`.
    pub propagate_source_type: Vec<Pattern>,
}
