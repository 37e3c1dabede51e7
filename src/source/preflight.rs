//! Everything that `run` needs of the server, tried before anything is changed, with all problems
//! reported at once and the statement that mends each.

mod columns;
mod publication;

use columns::{close_to, wanted_columns};

use super::relation::TableName;
use super::replication::Replication;
use super::slot::SlotState;
use super::sql::{ServerIdentity, Session, number};
use super::tables::{PublishedTable, TableState};
use super::{identifier, qualified};
use crate::config::{Autocreate, Connector, SnapshotMode};
use crate::error::Failure;

/// Tables with the columns that every outbox has.
const LOOKALIKES: &str = "SELECT n.nspname || '.' || c.relname FROM pg_class c \
    JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND (SELECT count(*) \
    FROM pg_attribute a WHERE a.attrelid = c.oid AND NOT a.attisdropped AND \
    replace(lower(a.attname), '_', '') IN ('id', 'aggregatetype', 'aggregateid', 'payload')) = 4 \
    ORDER BY 1 LIMIT 20";

/// What a server that is fit looks like.
#[derive(Debug)]
pub struct Preflight {
    /// The server.
    pub identity: ServerIdentity,
    /// The slot; `None` when it is still to be created.
    pub slot: Option<SlotState>,
    /// The outbox tables, `schema.table`.
    pub tables: Vec<String>,
    /// What `run` will do, and what an operator may want to know.
    pub notes: Vec<String>,
    /// Wanted tables and columns that the catalog no longer has, although the slot is there: rows
    /// that were written before they were renamed or dropped may still wait in it and are fit.
    pub outdated: Vec<Failure>,
}

impl Session {
    /// Checks the server against the connector's needs and changes nothing.
    ///
    /// # Errors
    /// All problems found.
    pub async fn preflight(&self, connector: &Connector) -> Result<Preflight, Vec<Failure>> {
        let mut check = Check::new(self, connector);
        match check.run().await {
            Ok((identity, slot, tables)) if check.problems.is_empty() => Ok(Preflight {
                identity,
                slot,
                tables,
                notes: check.notes,
                outdated: check.outdated,
            }),
            Ok(_) => {
                check.problems.append(&mut check.outdated);
                Err(check.problems)
            }
            // Whatever broke the check itself comes last: the problems before it may explain it.
            Err(failure) => {
                check.problems.push(failure);
                Err(check.problems)
            }
        }
    }

    /// What keeps the publication from delivering rows of our tables now; `None` when nothing does.
    /// Looked at from time to time, since anybody may alter a publication while we stream.
    ///
    /// # Errors
    /// The catalog cannot be read.
    pub async fn publication_trouble(
        &self,
        connector: &Connector,
    ) -> Result<Option<String>, Failure> {
        if connector.publication.tolerate_mismatch {
            return Ok(None);
        }
        let mut check = Check {
            streaming: true,
            ..Check::new(self, connector)
        };
        let version = self.identify().await?.version;
        let (names, tables) = check.tables().await?;
        check.publication(&names, &tables, version / 10_000).await?;
        let texts: Vec<String> = check.problems.iter().map(ToString::to_string).collect();
        Ok((!texts.is_empty()).then(|| texts.join("; ")))
    }
}

impl Preflight {
    /// One line for people.
    pub fn summary(&self) -> String {
        let mut parts = vec![format!("tables: {}", self.tables.join(", "))];
        parts.extend(self.notes.iter().cloned());
        parts.join("; ")
    }
}

struct Check<'a> {
    session: &'a Session,
    connector: &'a Connector,
    problems: Vec<Failure>,
    outdated: Vec<Failure>,
    notes: Vec<String>,
    /// Rows that were written under older names may wait in the slot.
    has_backlog: bool,
    /// The publication was brought into step before: what it lacks now, it lacks for good.
    streaming: bool,
}

type Found = (ServerIdentity, Option<SlotState>, Vec<String>);

impl<'a> Check<'a> {
    fn new(session: &'a Session, connector: &'a Connector) -> Self {
        Self {
            session,
            connector,
            problems: Vec::new(),
            outdated: Vec::new(),
            notes: Vec::new(),
            has_backlog: false,
            streaming: false,
        }
    }

    /// The connector's tables, by name and as the catalog has them; having none is a problem.
    async fn tables(&mut self) -> Result<(Vec<TableName>, Vec<TableState>), Failure> {
        let names = self.session.own_tables(self.connector).await?;
        let mut tables = Vec::new();
        for name in &names {
            tables.extend(self.session.table(name).await?);
        }
        if tables.is_empty() {
            self.no_tables().await?;
        }
        Ok((names, tables))
    }

    async fn run(&mut self) -> Result<Found, Failure> {
        let identity = self.session.identify().await?;
        let slot = self.session.slot(&self.connector.slot.name).await?;
        self.server(&identity).await?;
        self.slot(slot.as_ref()).await?;
        self.has_backlog = slot.is_some();
        self.replication().await;
        let (names, tables) = self.tables().await?;
        if slot.is_none() {
            self.may_snapshot(&tables);
        }
        self.publication(&names, &tables, identity.version / 10_000)
            .await?;
        let labels = tables.iter().map(TableState::label).collect();
        Ok((identity, slot, labels))
    }

    /// A problem with a table, which is none where events come as logical messages.
    fn unless_messages(&mut self, text: String) {
        if self.connector.wants_messages() {
            self.notes.push(text);
        } else {
            self.problem(text);
        }
    }

    /// What keeps the publication from delivering, unless the operator wants it so.
    fn undeliverable(&mut self, text: String) {
        if self.connector.publication.tolerate_mismatch {
            tracing::warn!("{text}; going on, as publication.mismatch.strategy=warn asks");
            self.notes.push(text);
        } else {
            self.unless_messages(text);
        }
    }

    fn problem(&mut self, text: String) {
        self.problems.push(Failure::config(text));
    }

    /// A problem with what is gone from the catalog.
    fn gone(&mut self, text: String) {
        if self.has_backlog {
            self.outdated.push(Failure::config(text));
        } else {
            self.problem(text);
        }
    }

    async fn server(&mut self, identity: &ServerIdentity) -> Result<(), Failure> {
        const ATTEMPT: &str = "read wal_level";
        const OLDEST: u32 = 14;
        if identity.version / 10_000 < OLDEST {
            self.notes.push(format!(
                "the server is older than Postgres {OLDEST}, the oldest version that is tested"
            ));
        }
        let row = self
            .session
            .row(ATTEMPT, "SELECT current_setting('wal_level')")
            .await?;
        let level = row.get(0).unwrap_or_default();
        if level != "logical" {
            self.problem(format!(
                "wal_level is {level}, but logical decoding needs logical; run: \
                 ALTER SYSTEM SET wal_level = logical, and restart the server (a managed service \
                 has its own switch, such as rds.logical_replication)"
            ));
        }
        Ok(())
    }

    async fn slot(&mut self, slot: Option<&SlotState>) -> Result<(), Failure> {
        const ATTEMPT: &str = "count replication slots";
        let name = &self.connector.slot.name;
        if let Some(slot) = slot {
            // That it belongs to this database is part of the start-up decision.
            if slot.plugin.as_deref() != Some("pgoutput") {
                let plugin = slot.plugin.as_deref().unwrap_or("none, it is physical");
                self.problem(format!(
                    "slot \"{name}\" exists with another output plugin ({plugin}); give slot.name \
                     another value, or drop the slot"
                ));
            } else if slot.two_phase {
                self.problem(format!(
                    "slot \"{name}\" was created with two_phase, so it sends the rows of a prepared \
                     transaction before they are committed; give slot.name another value, or drop \
                     the slot and create it without two_phase"
                ));
            }
            return Ok(());
        }
        let sql = "SELECT count(*), current_setting('max_replication_slots') \
                   FROM pg_replication_slots";
        let row = self.session.row(ATTEMPT, sql).await?;
        let used: u64 = number(ATTEMPT, row.get(0).unwrap_or_default())?;
        let most: u64 = number(ATTEMPT, row.get(1).unwrap_or_default())?;
        if used >= most {
            self.problem(format!(
                "slot \"{name}\" does not exist and cannot be created: all {most} replication \
                 slots are in use; raise max_replication_slots or drop a slot that nobody needs"
            ));
        } else {
            self.notes.push(format!(
                "slot \"{name}\" does not exist and will be created"
            ));
        }
        Ok(())
    }

    /// Tries the replication connection itself: managed services have roles of their own for it,
    /// and a pooler in between shows here.
    async fn replication(&mut self) {
        match Replication::connect(&self.connector.database).await {
            Ok(replication) => replication.close().await,
            Err(failure) => self.problems.push(failure.within(&format!(
                "open a replication connection (the role needs LOGIN and REPLICATION: \
                 ALTER ROLE {} LOGIN REPLICATION, or GRANT rds_replication and its like; \
                 max_wal_senders and pg_hba.conf must allow it)",
                identifier(&self.connector.database.user)
            ))),
        }
    }

    /// No table matches: show those that look as if they were meant.
    async fn no_tables(&mut self) -> Result<(), Failure> {
        let rows = self
            .session
            .rows("look for tables like an outbox", LOOKALIKES)
            .await?;
        let found: Vec<&str> = rows.iter().filter_map(|row| row.get(0)).collect();
        let hint = if found.is_empty() {
            "no table of it has the columns of an outbox".to_owned()
        } else {
            format!("these look like an outbox: {}", found.join(", "))
        };
        let text = format!(
            "no table of database {:?} matches table.include.list; {hint}",
            self.connector.database.dbname
        );
        let needless = self.connector.publication.autocreate == Autocreate::NoTables
            || self.connector.wants_messages();
        if needless {
            self.notes.push(text);
        } else {
            self.gone(text);
        }
        Ok(())
    }

    fn may_snapshot(&mut self, tables: &[TableState]) {
        if self.connector.snapshot.mode == SnapshotMode::NoData {
            return;
        }
        let user = identifier(&self.connector.database.user);
        for table in tables.iter().filter(|table| !table.may_select) {
            self.problem(format!(
                "the snapshot may not read {}; run: GRANT USAGE ON SCHEMA {} TO {user}; \
                 GRANT SELECT ON {} TO {user} (or set snapshot.mode=no_data)",
                table.label(),
                identifier(&table.schema),
                qualified(&table.schema, &table.table)
            ));
        }
    }

    /// Whether the columns that the routers want are in the stream.
    fn columns(&mut self, table: &TableState, entry: Option<&PublishedTable>, server_major: u32) {
        if let Some(filter) = entry.and_then(|entry| entry.rowfilter.as_ref()) {
            // The expression is the operator's own text, from the catalog.
            self.notes.push(format!(
                "the publication has a row filter on {}: rows outside of {filter} never arrive",
                table.label()
            ));
        }
        for (property, wanted) in wanted_columns(self.connector) {
            let column = table.columns.iter().find(|column| column.name == wanted);
            let problem = match column {
                None => Some(format!(
                    "it does not exist{}",
                    close_to(&wanted, &table.columns)
                )),
                Some(column) if entry.is_some_and(|e| e.has(column, server_major)) => None,
                Some(column) if column.generated => Some(
                    "it is a generated column, which Postgres does not publish; use a plain \
                     column filled by the application or a trigger, or on Postgres 18 and later \
                     the publication's option publish_generated_columns = stored"
                        .to_owned(),
                ),
                Some(_) if entry.is_some() => Some(format!(
                    "the publication's column list leaves it out; run: ALTER PUBLICATION {} SET \
                     TABLE with the column added, for every table it holds",
                    identifier(&self.connector.publication.name)
                )),
                Some(_) => None,
            };
            let problem = problem.or_else(|| {
                let qualified = format!("{}.{wanted}", table.label());
                (!self.connector.columns.filter.takes(&qualified))
                    .then(|| "column.include.list or column.exclude.list leaves it out".to_owned())
            });
            if let Some(problem) = problem {
                let text = format!(
                    "{property} wants column \"{wanted}\" of {}, but {problem}",
                    table.label()
                );
                match column {
                    None => self.gone(text),
                    Some(_) => self.problem(text),
                }
            }
        }
    }
}
