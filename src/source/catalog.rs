//! What the stream does not say of a table, read from the catalog: types, nullability, defaults,
//! and which table a partition belongs to.

use std::collections::HashMap;
use std::sync::Arc;

use super::relation::TableName;
use super::row::{ColumnFacts, PgType, PgTypeKind, Relation, TableFacts};
use super::sql::{Session, number};
use crate::error::Failure;

/// Domains and arrays nest; a catalog that nests deeper than this is broken.
const DEEPEST: u32 = 32;

impl Session {
    /// The facts of a relation's columns, from the catalog as it is now.
    ///
    /// # Errors
    /// A query fails.
    pub async fn facts(&self, relation: &Relation) -> Result<TableFacts, Failure> {
        let attempt = format!(
            "read the catalog about {}.{}",
            relation.schema, relation.table
        );
        let types = self.types(&attempt, relation).await?;
        let mut attributes = HashMap::new();
        for row in self.rows(&attempt, &attributes_query(relation.oid)).await? {
            let name = row.get(0).unwrap_or_default().to_owned();
            let default = row.get(2).map(str::to_owned);
            attributes.insert(
                name,
                (
                    row.get(1) == Some("t"),
                    row.get(3).and_then(|place| place.parse().ok()),
                    default,
                ),
            );
        }
        let columns = relation
            .columns
            .iter()
            .map(|column| {
                let (not_null, key, default) = attributes.remove(&column.name).unwrap_or_default();
                Ok(ColumnFacts {
                    pg_type: resolve(&types, column.type_oid, DEEPEST)?,
                    not_null,
                    key,
                    default,
                })
            })
            .collect::<Result<_, Failure>>()?;
        Ok(TableFacts { columns })
    }

    /// All types that the relation's columns are made of.
    async fn types(
        &self,
        attempt: &str,
        relation: &Relation,
    ) -> Result<HashMap<u32, TypeRow>, Failure> {
        let oids: Vec<String> = relation
            .columns
            .iter()
            .map(|column| column.type_oid.to_string())
            .collect();
        if oids.is_empty() {
            return Ok(HashMap::new());
        }
        let sql = TYPES.replace("$1", &oids.join(","));
        let mut types = HashMap::new();
        for row in self.rows(attempt, &sql).await? {
            let text = |index| row.get(index).unwrap_or_default();
            let labels = serde_json::from_str(row.get(7).unwrap_or("[]"))
                .map_err(|error| Failure::internal(attempt).caused_by(error))?;
            types.insert(
                number(attempt, text(0))?,
                TypeRow {
                    schema: text(1).to_owned(),
                    name: text(2).to_owned(),
                    class: text(3).bytes().next().unwrap_or(b'p'),
                    base: number(attempt, text(4))?,
                    modifier: number(attempt, text(5))?,
                    element: number(attempt, text(6))?,
                    labels,
                },
            );
        }
        Ok(types)
    }

    /// The tables that a relation of the stream is a partition of, and the relation itself under
    /// its present name, which may be another than when its rows were written.
    ///
    /// A partition that is gone from the catalog while its rows still wait cannot be asked; then
    /// every partitioned table with exactly its columns counts, since losing rows is worse.
    pub(super) async fn ancestors(&self, relation: &Relation) -> Result<Vec<TableName>, Failure> {
        let attempt = format!(
            "look up what {}.{} is a partition of",
            relation.schema, relation.table
        );
        let exists = format!("SELECT FROM pg_class WHERE oid = {}", relation.oid);
        if !self.rows(&attempt, &exists).await?.is_empty() {
            let sql = ANCESTORS.replace("$1", &relation.oid.to_string());
            let rows = self.rows(&attempt, &sql).await?;
            return Ok(rows
                .iter()
                .map(|row| name(row.get(0), row.get(1)))
                .collect());
        }
        let mut wanted: Vec<&str> = relation.columns.iter().map(|c| c.name.as_str()).collect();
        wanted.sort_unstable();
        let mut found = Vec::new();
        for row in self.rows(&attempt, PARTITIONED).await? {
            let mut columns: Vec<String> = serde_json::from_str(row.get(2).unwrap_or("[]"))
                .map_err(|error| Failure::internal(attempt.as_str()).caused_by(error))?;
            columns.sort_unstable();
            if columns == wanted {
                found.push(name(row.get(0), row.get(1)));
            }
        }
        if !found.is_empty() {
            tracing::info!(
                schema = relation.schema,
                table = relation.table,
                "rows of a table that was dropped since are taken as those of the partitioned \
                 table with the same columns"
            );
        }
        Ok(found)
    }
}

fn name(schema: Option<&str>, table: Option<&str>) -> TableName {
    let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
    (text(schema), text(table))
}

fn attributes_query(oid: u32) -> String {
    ATTRIBUTES.replace("$1", &oid.to_string())
}

/// A domain can forbid NULL for its columns. A generated column's expression is no default.
const ATTRIBUTES: &str = "SELECT a.attname, \
    a.attnotnull OR (t.typtype = 'd' AND t.typnotnull) OR EXISTS (SELECT FROM pg_index i \
    WHERE i.indrelid = a.attrelid AND i.indisprimary AND a.attnum = ANY (i.indkey)), \
    CASE WHEN a.attgenerated = '' THEN pg_get_expr(d.adbin, d.adrelid) END, \
    array_position((SELECT i.indkey::int2[] FROM pg_index i \
    WHERE i.indrelid = a.attrelid AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL \
    ORDER BY i.indisprimary DESC, i.indexrelid LIMIT 1), a.attnum) \
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid \
    LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum \
    WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped";

/// A true array is what its element names as its array: `name` and `point` have elements too. The
/// vectors (22 and 30) pass for arrays, as they do in Debezium.
const TYPES: &str = "WITH RECURSIVE wanted (oid) AS (\
    SELECT unnest(ARRAY[$1]::oid[]) UNION \
    SELECT CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.typelem END \
    FROM wanted JOIN pg_type t USING (oid) LEFT JOIN pg_type e ON e.oid = t.typelem \
    WHERE t.typtype = 'd' OR e.typarray = t.oid OR t.oid IN (22, 30)) \
    SELECT t.oid, n.nspname, t.typname, t.typtype, t.typbasetype, t.typtypmod, \
    CASE WHEN e.typarray = t.oid OR t.oid IN (22, 30) THEN t.typelem ELSE 0 END, \
    (SELECT json_agg(l.enumlabel ORDER BY l.enumsortorder) FROM pg_enum l \
    WHERE l.enumtypid = t.oid) \
    FROM wanted JOIN pg_type t USING (oid) JOIN pg_namespace n ON n.oid = t.typnamespace \
    LEFT JOIN pg_type e ON e.oid = t.typelem";

const ANCESTORS: &str = "SELECT n.nspname, c.relname \
    FROM (SELECT $1::oid AS oid UNION SELECT relid FROM pg_partition_ancestors($1)) a \
    JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace";

const PARTITIONED: &str = "SELECT n.nspname, c.relname, (SELECT json_agg(a.attname) \
    FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped \
    AND a.attgenerated = '') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind = 'p'";

#[derive(Debug)]
struct TypeRow {
    schema: String,
    name: String,
    class: u8,
    base: u32,
    modifier: i32,
    element: u32,
    labels: Vec<String>,
}

fn resolve(types: &HashMap<u32, TypeRow>, oid: u32, depth: u32) -> Result<Arc<PgType>, Failure> {
    let Some(row) = types.get(&oid) else {
        // Dropped since the row was written; its text is all that is left.
        return Ok(Arc::new(PgType {
            oid,
            schema: "pg_catalog".to_owned(),
            name: "unknown".to_owned(),
            kind: PgTypeKind::Pseudo,
        }));
    };
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Failure::internal(format!(
            "type {}.{} contains itself",
            row.schema, row.name
        )));
    };
    let kind = match row.class {
        b'd' => PgTypeKind::Domain(resolve(types, row.base, depth)?, row.modifier),
        b'e' => PgTypeKind::Enum(row.labels.clone()),
        b'c' => PgTypeKind::Composite,
        b'r' => PgTypeKind::Range,
        b'm' => PgTypeKind::Multirange,
        b'p' => PgTypeKind::Pseudo,
        _ if row.element != 0 => PgTypeKind::Array(resolve(types, row.element, depth)?),
        _ => PgTypeKind::Base,
    };
    Ok(Arc::new(PgType {
        oid,
        schema: row.schema.clone(),
        name: row.name.clone(),
        kind,
    }))
}
