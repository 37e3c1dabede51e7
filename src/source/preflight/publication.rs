//! Whether the publication delivers what we need of it, or can be created.

use super::super::identifier;
use super::super::publication::{PublicationState, alter_statement, create_statement, steps};
use super::super::relation::TableName;
use super::super::tables::{PublishedTable, TableState};
use super::Check;
use crate::config::Autocreate;
use crate::error::Failure;

impl Check<'_> {
    pub(super) async fn publication(
        &mut self,
        names: &[TableName],
        tables: &[TableState],
        server_major: u32,
    ) -> Result<(), Failure> {
        let settings = &self.connector.publication;
        let Some(state) = self.session.publication(&settings.name).await? else {
            self.can_create(names, tables).await?;
            for table in tables {
                self.columns(table, None, server_major);
            }
            return Ok(());
        };
        if settings.autocreate == Autocreate::NoTables {
            return Ok(());
        }
        if !state.inserts {
            self.undeliverable(format!(
                "publication \"{}\" does not publish inserts, so nothing would ever arrive; run: \
                 ALTER PUBLICATION {} SET (publish = 'insert, update, delete, truncate')",
                settings.name,
                identifier(&settings.name)
            ));
        }
        if state.all_tables {
            self.notes.push(format!(
                "publication \"{}\" is FOR ALL TABLES: every change of the database is sent and \
                 all but the outbox thrown away",
                settings.name
            ));
        }
        if !self.streaming {
            self.can_alter(&state, names, tables);
        }
        let published = self.session.published(&settings.name).await?;
        for table in tables {
            self.published(table, &state, &published, server_major);
        }
        Ok(())
    }

    /// One table of ours in an existing publication.
    fn published(
        &mut self,
        table: &TableState,
        state: &PublicationState,
        published: &[PublishedTable],
        server_major: u32,
    ) {
        let publication = &self.connector.publication;
        let by_leaves = table.partitioned && !state.via_root;
        let leaves: Vec<TableName> = match &table.leaves {
            Some(leaves) if by_leaves => leaves.clone(),
            _ => vec![(table.schema.clone(), table.table.clone())],
        };
        let will_be_added =
            publication.autocreate == Autocreate::Filtered && !state.all_tables && !self.streaming;
        let own = (table.schema.clone(), table.table.clone());
        let entry_of =
            |(schema, name): &TableName| published.iter().find(|entry| entry.is(schema, name));
        let missing: Vec<String> = leaves
            .iter()
            .filter(|leaf| entry_of(leaf).is_none())
            .map(|(schema, name)| format!("{schema}.{name}"))
            .collect();
        // All leaves share the column list of their root.
        if let Some(entry) = leaves.iter().find_map(entry_of) {
            self.columns(table, Some(entry), server_major);
        }
        let add = alter_statement(&publication.name, "ADD", [&own]);
        if will_be_added {
            if !state.tables.contains(&own) {
                self.columns(table, None, server_major);
            }
        } else if !missing.is_empty() {
            let root = state.via_root && table.is_leaf_of(published);
            let text = if root {
                format!(
                    "publication \"{}\" publishes partitions under their root's name, so \
                     table.include.list must name the root of {}",
                    publication.name,
                    table.label()
                )
            } else {
                format!(
                    "publication \"{}\" does not contain {}; run: {add}",
                    publication.name,
                    missing.join(", ")
                )
            };
            self.undeliverable(text);
        }
        if by_leaves {
            self.by_name_only(table, &leaves);
        }
        if table.identity == "d" && !table.columns.iter().any(|column| column.key) {
            self.notes.push(format!(
                "{} has no primary key: if its publication publishes updates or deletes, Postgres \
                 refuses them to the application (give it a key, or publish only inserts)",
                table.label()
            ));
        }
    }

    /// Partitions count under their own names, and some are not taken by them.
    fn by_name_only(&mut self, table: &TableState, leaves: &[TableName]) {
        let takes = |(schema, name): &&TableName| self.connector.tables.takes_leaf(schema, name);
        let passed_over = leaves.iter().filter(|leaf| !takes(leaf)).count();
        if passed_over > 0 {
            self.notes.push(format!(
                "rows of {passed_over} partitions of {} are passed over, since the publication \
                 sends them under names that table.include.list does not take and \
                 include.partitions is false",
                table.label()
            ));
        }
    }

    /// What a start does to an existing publication, and whether it may.
    fn can_alter(&mut self, state: &PublicationState, names: &[TableName], tables: &[TableState]) {
        let statements = match steps(self.connector, state, names) {
            Ok(statements) => statements,
            Err(failure) => return self.problems.push(failure),
        };
        let new = |table: &&TableState| {
            let name = (table.schema.clone(), table.table.clone());
            !state.tables.contains(&name)
        };
        let may = state.owned && tables.iter().filter(new).all(|table| table.owned);
        for statement in statements {
            if may {
                self.notes.push(format!("will run: {statement}"));
            } else {
                self.problem(format!(
                    "publication \"{}\" is not in step with table.include.list and role {:?} may \
                     not alter it (it must own the publication and the tables); run as their \
                     owner: {statement}",
                    self.connector.publication.name, self.connector.database.user
                ));
            }
        }
    }

    /// Whether the publication can be created, as far as rights can be read.
    async fn can_create(
        &mut self,
        names: &[TableName],
        tables: &[TableState],
    ) -> Result<(), Failure> {
        if names.is_empty() && self.connector.publication.autocreate != Autocreate::NoTables {
            return Ok(()); // said already
        }
        let statement = create_statement(self.connector, names)?;
        let name = &self.connector.publication.name;
        if self.streaming {
            self.problem(format!("publication \"{name}\" is gone; run: {statement}"));
            return Ok(());
        }
        if self.connector.publication.autocreate == Autocreate::Disabled {
            self.problem(format!(
                "publication \"{name}\" does not exist and publication.autocreate.mode is \
                 disabled; run: {statement}"
            ));
            return Ok(());
        }
        let sql = "SELECT has_database_privilege(current_database(), 'CREATE')";
        let row = self.session.row("read the rights of the role", sql).await?;
        let foreign: Vec<String> = tables
            .iter()
            .filter(|table| !table.owned)
            .map(TableState::label)
            .collect();
        if row.get(0) == Some("t") && foreign.is_empty() {
            self.notes.push(format!("will run: {statement}"));
        } else {
            self.problem(format!(
                "publication \"{name}\" does not exist and role {:?} may not create it (it needs \
                 CREATE on the database and must own the tables); run as their owner: {statement}",
                self.connector.database.user
            ));
        }
        Ok(())
    }
}
