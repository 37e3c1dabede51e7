//! The publication: what it contains, and creating it or keeping it in step with the tables.

use super::relation::TableName;
use super::sql::Session;
use super::{identifier, literal, qualified};
use crate::config::{Autocreate, Connector};
use crate::error::Failure;

/// What was done to the publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicationReport {
    /// It did not exist before.
    pub created: bool,
    /// The statements that were run; empty when it was left as it was.
    pub statements: Vec<String>,
}

/// A publication as the catalog describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PublicationState {
    pub(super) all_tables: bool,
    /// Our role may alter it.
    pub(super) owned: bool,
    pub(super) inserts: bool,
    pub(super) via_root: bool,
    /// Tables that it names itself.
    pub(super) tables: Vec<TableName>,
}

impl Session {
    /// Creates the publication if the connector's mode says so, for the outbox tables only; in
    /// mode `filtered`, adds and removes tables so that it holds exactly those. Call it before the
    /// slot is created: a slot cannot decode rows older than its publication.
    ///
    /// # Errors
    /// It is missing and may not be created, no table matches, or a right is missing; the text
    /// holds the statement to run.
    pub async fn ensure_publication(
        &self,
        connector: &Connector,
    ) -> Result<PublicationReport, Failure> {
        let name = &connector.publication.name;
        if let Some(state) = self.publication(name).await? {
            return self.keep_in_step(connector, &state).await;
        }
        let statement = create_statement(connector, &self.own_tables(connector).await?)?;
        if connector.publication.autocreate == Autocreate::Disabled {
            return Err(Failure::config(format!(
                "publication \"{name}\" does not exist and publication.autocreate.mode is \
                 disabled; run: {statement}"
            )));
        }
        if let Err(failure) = self.alter(&statement).await {
            // Another process may have been faster.
            return match self.publication(name).await? {
                Some(state) => self.keep_in_step(connector, &state).await,
                None => Err(failure),
            };
        }
        Ok(PublicationReport {
            created: true,
            statements: vec![statement],
        })
    }

    /// Adds and removes tables in mode `filtered`. What stays keeps its row filter and column list.
    async fn keep_in_step(
        &self,
        connector: &Connector,
        state: &PublicationState,
    ) -> Result<PublicationReport, Failure> {
        let wanted = match connector.publication.autocreate {
            Autocreate::Filtered => self.own_tables(connector).await?,
            _ => Vec::new(),
        };
        let statements = steps(connector, state, &wanted)?;
        for statement in &statements {
            self.alter(statement).await?;
        }
        Ok(PublicationReport {
            created: false,
            statements,
        })
    }

    async fn alter(&self, statement: &str) -> Result<(), Failure> {
        self.run(&format!("run: {statement}"), statement).await
    }

    /// The publication, or `None` when there is none of that name.
    pub(super) async fn publication(
        &self,
        name: &str,
    ) -> Result<Option<PublicationState>, Failure> {
        let attempt = format!("look up publication \"{name}\"");
        let sql = format!(
            "SELECT puballtables, pubinsert, pubviaroot, pg_has_role(pubowner, 'USAGE') \
             FROM pg_publication WHERE pubname = {}",
            literal(name)
        );
        let rows = self.rows(&attempt, &sql).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let sql = format!(
            "SELECT n.nspname, c.relname FROM pg_publication p \
             JOIN pg_publication_rel r ON r.prpubid = p.oid JOIN pg_class c ON c.oid = r.prrelid \
             JOIN pg_namespace n ON n.oid = c.relnamespace WHERE p.pubname = {} ORDER BY 1, 2",
            literal(name)
        );
        let tables = self.rows(&attempt, &sql).await?;
        Ok(Some(PublicationState {
            all_tables: row.get(0) == Some("t"),
            inserts: row.get(1) == Some("t"),
            via_root: row.get(2) == Some("t"),
            owned: row.get(3) == Some("t"),
            tables: tables
                .iter()
                .map(|row| {
                    let text = |index| row.get(index).unwrap_or_default().to_owned();
                    (text(0), text(1))
                })
                .collect(),
        }))
    }

    /// The tables that the connector's filter takes, without partitions of a table that it takes
    /// as well: the root stands for them.
    pub(super) async fn own_tables(
        &self,
        connector: &Connector,
    ) -> Result<Vec<TableName>, Failure> {
        const ATTEMPT: &str = "list the tables that table.include.list takes";
        let takes = |schema: &str, table: &str| connector.tables.takes(schema, table);
        let mut own = Vec::new();
        for row in self.rows(ATTEMPT, TABLES).await? {
            let text = |index| row.get(index).unwrap_or_default();
            let ancestors: Vec<(String, String)> = serde_json::from_str(row.get(2).unwrap_or("[]"))
                .map_err(|error| Failure::internal(ATTEMPT).caused_by(error))?;
            let covered = ancestors.iter().any(|(schema, table)| takes(schema, table));
            if takes(text(0), text(1)) && !covered {
                own.push((text(0).to_owned(), text(1).to_owned()));
            }
        }
        Ok(own)
    }
}

/// Every table that could be published, with the tables it is a partition of.
const TABLES: &str = "SELECT n.nspname, c.relname, \
    (SELECT json_agg(json_build_array(an.nspname, ac.relname)) \
    FROM pg_partition_ancestors(c.oid) a JOIN pg_class ac ON ac.oid = a.relid \
    JOIN pg_namespace an ON an.oid = ac.relnamespace WHERE a.relid <> c.oid) \
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' \
    AND n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_toast%' \
    ORDER BY 1, 2";

fn list<'a>(tables: impl IntoIterator<Item = &'a TableName>) -> String {
    let names: Vec<String> = tables
        .into_iter()
        .map(|(schema, table)| qualified(schema, table))
        .collect();
    names.join(", ")
}

/// The statements after which the publication holds exactly the `wanted` tables; none outside mode
/// `filtered`.
pub(super) fn steps(
    connector: &Connector,
    state: &PublicationState,
    wanted: &[TableName],
) -> Result<Vec<String>, Failure> {
    let name = &connector.publication.name;
    if connector.publication.autocreate != Autocreate::Filtered {
        return Ok(Vec::new());
    }
    if state.all_tables {
        return Err(Failure::config(format!(
            "publication \"{name}\" is FOR ALL TABLES, so publication.autocreate.mode = filtered \
             cannot narrow it; drop it or use the mode disabled"
        )));
    }
    // Nothing matches: a typing error must not empty a publication that others may use.
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let beside = |tables: &[TableName], others: &[TableName]| -> Vec<TableName> {
        let missing = tables.iter().filter(|table| !others.contains(table));
        missing.cloned().collect()
    };
    let (missing, surplus) = (beside(wanted, &state.tables), beside(&state.tables, wanted));
    Ok([("ADD", missing), ("DROP", surplus)]
        .into_iter()
        .filter(|(_, tables)| !tables.is_empty())
        .map(|(verb, tables)| alter_statement(name, verb, &tables))
        .collect())
}

pub(super) fn create_statement(
    connector: &Connector,
    tables: &[TableName],
) -> Result<String, Failure> {
    let name = identifier(&connector.publication.name);
    let with = if connector.publication.via_partition_root {
        " WITH (publish_via_partition_root = true)"
    } else {
        ""
    };
    if connector.publication.autocreate == Autocreate::NoTables {
        return Ok(format!("CREATE PUBLICATION {name}{with}"));
    }
    if tables.is_empty() {
        return Err(Failure::config(format!(
            "publication {name} does not exist and cannot be created, since no table of database \
             {:?} matches table.include.list",
            connector.database.dbname
        )));
    }
    Ok(format!(
        "CREATE PUBLICATION {name} FOR TABLE {}{with}",
        list(tables)
    ))
}

/// `verb` is ADD or DROP.
pub(super) fn alter_statement<'a>(
    publication: &str,
    verb: &str,
    tables: impl IntoIterator<Item = &'a TableName>,
) -> String {
    format!(
        "ALTER PUBLICATION {} {verb} TABLE {}",
        identifier(publication),
        list(tables)
    )
}
