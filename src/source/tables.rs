//! The outbox tables as the catalog has them now: columns, rights, partitions, and what of them is
//! published. The pre-flight check and the snapshot look at them the same way.

use serde::Deserialize;

use super::literal;
use super::relation::TableName;
use super::sql::Session;
use crate::error::Failure;

/// A table as the catalog describes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct TableState {
    pub(super) oid: u32,
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) partitioned: bool,
    /// `relreplident`.
    pub(super) identity: String,
    pub(super) may_select: bool,
    pub(super) owned: bool,
    /// The planner's estimate; negative when it has none.
    pub(super) rows: f64,
    pub(super) columns: Vec<ColumnState>,
    /// Tables that it is a partition of.
    pub(super) ancestors: Option<Vec<TableName>>,
    /// Its partitions that hold rows.
    pub(super) leaves: Option<Vec<TableName>>,
}

/// A column as the catalog describes it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ColumnState {
    pub(super) name: String,
    pub(super) generated: bool,
    /// Part of the replica identity.
    pub(super) key: bool,
}

/// A row of pg_publication_tables; the last two came with Postgres 15.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct PublishedTable {
    pub(super) schemaname: String,
    pub(super) tablename: String,
    attnames: Option<Vec<String>>,
    pub(super) rowfilter: Option<String>,
}

/// First version whose publications can hold generated columns; its list of columns is exact.
const GENERATED_SINCE: u32 = 18;

impl PublishedTable {
    /// Whether the stream of a server of this major version has the column.
    pub(super) fn has(&self, column: &ColumnState, server_major: u32) -> bool {
        let listed = self
            .attnames
            .as_ref()
            .is_none_or(|names| names.contains(&column.name));
        listed
            && (!column.generated || (server_major >= GENERATED_SINCE && self.attnames.is_some()))
    }

    pub(super) fn is(&self, schema: &str, table: &str) -> bool {
        self.schemaname == schema && self.tablename == table
    }
}

impl TableState {
    pub(super) fn label(&self) -> String {
        format!("{}.{}", self.schema, self.table)
    }

    /// Whether one of the published tables has it as a partition.
    pub(super) fn is_leaf_of(&self, published: &[PublishedTable]) -> bool {
        self.ancestors
            .iter()
            .flatten()
            .any(|(schema, table)| published.iter().any(|entry| entry.is(schema, table)))
    }
}

const TABLE: &str = "SELECT jsonb_build_object('oid', c.oid::bigint, 'schema', n.nspname, \
    'table', c.relname, 'partitioned', c.relkind = 'p', 'identity', c.relreplident, \
    'may_select', has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT'), \
    'owned', pg_has_role(c.relowner, 'USAGE'), \
    'rows', coalesce((SELECT sum(l.reltuples) FROM pg_partition_tree(c.oid) t \
    JOIN pg_class l ON l.oid = t.relid WHERE t.isleaf), c.reltuples), \
    'columns', coalesce((SELECT jsonb_agg(jsonb_build_object('name', a.attname, \
    'generated', a.attgenerated <> '', 'key', c.relreplident = 'f' OR EXISTS (\
    SELECT FROM pg_index i WHERE i.indrelid = c.oid AND a.attnum = ANY (i.indkey) AND \
    CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident END)) \
    ORDER BY a.attnum) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 \
    AND NOT a.attisdropped), '[]'), \
    'ancestors', (SELECT jsonb_agg(jsonb_build_array(an.nspname, p.relname)) \
    FROM pg_partition_ancestors(c.oid) t JOIN pg_class p ON p.oid = t.relid \
    JOIN pg_namespace an ON an.oid = p.relnamespace WHERE t.relid <> c.oid), \
    'leaves', (SELECT jsonb_agg(jsonb_build_array(ln.nspname, l.relname) ORDER BY 1) \
    FROM pg_partition_tree(c.oid) t JOIN pg_class l ON l.oid = t.relid \
    JOIN pg_namespace ln ON ln.oid = l.relnamespace WHERE t.isleaf AND t.relid <> c.oid))::text \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE ";

impl Session {
    /// The table, or `None` when it is gone.
    pub(super) async fn table(
        &self,
        (schema, table): &TableName,
    ) -> Result<Option<TableState>, Failure> {
        let attempt = format!("read the catalog about {schema}.{table}");
        let sql = format!(
            "{TABLE} n.nspname = {} AND c.relname = {}",
            literal(schema),
            literal(table)
        );
        let found = self.json(&attempt, &sql).await?;
        Ok(found.into_iter().next())
    }

    /// What the publication holds: leaves of partitioned tables, or roots if it publishes by root.
    pub(super) async fn published(
        &self,
        publication: &str,
    ) -> Result<Vec<PublishedTable>, Failure> {
        let sql = format!(
            "SELECT to_jsonb(t)::text FROM pg_publication_tables t WHERE pubname = {}",
            literal(publication)
        );
        self.json("read what the publication holds", &sql).await
    }

    /// Rows whose first column is JSON.
    async fn json<T: for<'de> Deserialize<'de>>(
        &self,
        attempt: &str,
        sql: &str,
    ) -> Result<Vec<T>, Failure> {
        let rows = self.rows(attempt, sql).await?;
        rows.iter()
            .map(|row| {
                serde_json::from_str(row.get(0).unwrap_or_default())
                    .map_err(|error| Failure::internal(attempt).caused_by(error))
            })
            .collect()
    }
}
