//! A table bound to the chain: what is an event, the way it takes, and whom to blame.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use super::columns::{Row, Table};
use super::draft::{DraftHeader, Part};
use super::plain::Plain;
use super::problem::Problem;
use super::router::{Roles, RouterState};
use super::transform::{self, Raw, RawContent, Routed, Step};
use super::types::Origin;
use super::{Dropped, Poison};
use crate::config::{Connector, InvalidOp};
use crate::lsn::Lsn;
use crate::source::row::{Cell, Operation, Relation, TableFacts, Tuple};

/// A table as the stream last described it.
#[derive(Debug)]
pub(super) struct Bound {
    pub(super) oid: u32,
    pub(super) table: Table,
    /// For each router of the chain, where its columns are.
    roles: Vec<Roles>,
    /// The short way, where records are slices of rows.
    pub(super) plain: Option<Plain>,
}

/// Whether an operation is an event.
pub(super) enum Admitted<'a> {
    Row(AdmittedRow<'a>),
    Dropped(Dropped),
}

/// A row that is an event.
pub(super) struct AdmittedRow<'a> {
    pub(super) row: Row<'a>,
    /// The row is the second half of an UPDATE of its key.
    pub(super) key_changed: bool,
}

/// A problem and the row to find the event id in.
pub(super) type AdmissionProblem<'a> = (Problem, Option<Tuple<'a>>);

/// What came out of the chain, and the columns that are published otherwise than they stand.
pub(super) type Run<'a> = (Routed<'a>, Vec<(super::Replaced, Arc<str>)>);

impl Bound {
    /// Looks up, once, what every row will need.
    pub(super) fn new(
        relation: &Relation,
        facts: &TableFacts,
        connector: &Connector,
        chain: &[Step],
    ) -> Self {
        let table = Table::new(relation, facts, connector);
        let roles: Vec<Roles> = transform::routers(chain)
            .map(|options| Roles::resolve(options, |name| table.position(name)))
            .collect();
        let plain = transform::sole_router(chain, &table.topic)
            .zip(roles.first())
            .and_then(|(options, roles)| Plain::new(&table, options, roles, connector));
        Self {
            oid: relation.oid,
            table,
            roles,
            plain,
        }
    }

    /// Decides whether an operation is an event.
    pub(super) fn admit<'a>(
        &'a self,
        connector: &'a Connector,
        chain: &[Step],
        operation: &Operation<'a>,
    ) -> Result<Admitted<'a>, AdmissionProblem<'a>> {
        let row = |new: Tuple<'a>, old: Option<Tuple<'a>>, origin: Origin| {
            Admitted::Row(AdmittedRow {
                row: Row {
                    new,
                    old,
                    origin,
                    placeholder: &connector.values.unavailable_placeholder,
                    failure: connector.values.converting_failure,
                    replaced: RefCell::new(Vec::new()),
                },
                key_changed: old.is_some(),
            })
        };
        Ok(match *operation {
            Operation::Insert { .. } if !connector.insert_events => {
                Admitted::Dropped(Dropped::Skipped)
            }
            Operation::Insert { new } => row(new, None, Origin::Stream),
            Operation::Read { new } => row(new, None, Origin::Snapshot),
            // A deletion and an insertion, to Debezium.
            Operation::Update { old, new } if self.table.key_changed(old, new) => {
                if connector.insert_events {
                    row(new, old, Origin::Stream)
                } else {
                    Admitted::Dropped(Dropped::Skipped)
                }
            }
            Operation::Update { .. } if !connector.update_events => {
                Admitted::Dropped(Dropped::Skipped)
            }
            Operation::Update { new, .. } => match self.invalid_op(chain) {
                InvalidOp::Fatal => {
                    let problem = Problem::new(
                        "an UPDATE of an outbox row is not an event, and \
                         table.op.invalid.behavior=fatal stops at it",
                    );
                    return Err((problem, Some(new)));
                }
                level => Admitted::Dropped(Dropped::Update(level)),
            },
            Operation::Delete => Admitted::Dropped(Dropped::Delete),
            Operation::Truncate if !connector.truncate_events => {
                Admitted::Dropped(Dropped::Truncate)
            }
            Operation::Truncate => {
                let problem = Problem::new(
                    "a TRUNCATE of an outbox table is no event that the router could publish; \
                     leave t in skipped.operations",
                );
                return Err((problem, None));
            }
        })
    }

    /// The word of the first router that takes the table's changes.
    fn invalid_op(&self, chain: &[Step]) -> InvalidOp {
        transform::first_router(chain, &self.table.topic)
            .map_or(InvalidOp::Warn, |options| options.invalid_op)
    }

    /// The long way of an admitted row: through the chain, as Connect values.
    pub(super) fn run<'a>(
        &'a self,
        admitted: AdmittedRow<'a>,
        chain: &'a [Step],
        routers: &mut [RouterState],
        context: impl Iterator<Item = DraftHeader<'a>>,
        time_ms: i64,
    ) -> Result<Run<'a>, Problem> {
        let AdmittedRow { row, key_changed } = admitted;
        let mut headers = Vec::new();
        if let (true, Some(old)) = (key_changed, row.old) {
            let old_row = Row {
                new: old,
                old: None,
                replaced: RefCell::new(Vec::new()),
                ..row
            };
            let (schema, value) = self.table.key_of(&old_row)?;
            let schema = Some(schema);
            headers.push((Cow::Borrowed("__debezium.oldkey"), Part { schema, value }));
        }
        headers.extend(context);
        let raw = Raw {
            topic: Cow::Borrowed(&*self.table.topic),
            headers,
            content: RawContent::Row(&self.table, &row, &self.roles),
            time_ms,
        };
        let routed = transform::run(chain, routers, raw)?;
        Ok((routed, row.replaced.into_inner()))
    }

    /// The text of the first router's id column.
    pub(super) fn event_id(&self, row: Tuple<'_>) -> Option<String> {
        let at = self.roles.iter().find_map(|roles| roles.id)?;
        match row.cell(self.table.columns.get(at)?.index) {
            Cell::Text(text) => Some(String::from_utf8_lossy(text).into_owned()),
            Cell::Null | Cell::Unchanged => None,
        }
    }

    /// The text of the first router's key column.
    pub(super) fn aggregate(&self, row: Tuple<'_>) -> Option<Vec<u8>> {
        let at = self.roles.iter().find_map(|roles| roles.key)?;
        let index = self.table.columns.get(at)?.index;
        match row.cell(index) {
            Cell::Text(text) => self.table.shown(index, text).map(Cow::into_owned),
            Cell::Null | Cell::Unchanged => None,
        }
    }

    /// The verdict on a row.
    pub(super) fn poison(&self, problem: Problem, row: Option<Tuple<'_>>, lsn: Lsn) -> Poison {
        Poison {
            reason: problem.reason,
            event_id: row.and_then(|row| self.event_id(row)),
            table: Some(self.table.name.clone()),
            column: problem.column,
            lsn,
        }
    }
}
