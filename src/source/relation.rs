//! Which tables of the stream are ours, and what they look like right now.

use std::collections::HashMap;
use std::sync::Arc;

use super::row::Relation;
use crate::config::TableFilter;
use crate::error::Failure;

/// A table's name: schema and table.
pub(super) type TableName = (String, String);

/// The tables that the stream has described in this session.
#[derive(Debug)]
pub(super) struct Relations {
    filter: TableFilter,
    known: HashMap<u32, Known>,
}

#[derive(Debug)]
enum Known {
    Ours(Arc<Relation>),
    Foreign,
}

/// What a description leads to.
#[derive(Debug)]
pub(super) enum Described {
    /// A table of ours, with its new layout.
    Ours(Arc<Relation>),
    /// Somebody else's table; its changes are passed over.
    Foreign,
    /// Its name is not ours, but it may be a partition of a table that is.
    AskCatalog(Relation),
}

impl Relations {
    pub(super) fn new(filter: TableFilter) -> Self {
        Self {
            filter,
            known: HashMap::new(),
        }
    }

    /// Takes a description. `ancestors` are the tables that this one is a partition of, and its
    /// own present name, once the catalog was asked.
    pub(super) fn describe(
        &mut self,
        relation: Relation,
        ancestors: Option<&[TableName]>,
    ) -> Described {
        let named = self.filter.takes(&relation.schema, &relation.table);
        let by_root = self.filter.partitions;
        let inherited = by_root
            && ancestors
                .unwrap_or_default()
                .iter()
                .any(|(schema, table)| self.filter.takes(schema, table));
        if !named && !inherited {
            if let Some(Known::Ours(before)) = self.known.get(&relation.oid) {
                // Still the same table and still published: losing its rows would be silent.
                if (&before.schema, &before.table) != (&relation.schema, &relation.table) {
                    tracing::warn!(
                        before = %format_args!("{}.{}", before.schema, before.table),
                        now = %format_args!("{}.{}", relation.schema, relation.table),
                        "an outbox table was renamed; its rows are still taken, but \
                         table.include.list must name it before the next start"
                    );
                }
            } else if by_root && ancestors.is_none() {
                return Described::AskCatalog(relation);
            } else {
                self.known.insert(relation.oid, Known::Foreign);
                return Described::Foreign;
            }
        }
        let oid = relation.oid;
        let relation = Arc::new(relation);
        self.known.insert(oid, Known::Ours(Arc::clone(&relation)));
        Described::Ours(relation)
    }

    /// The layout of a table of ours; `None` for somebody else's.
    pub(super) fn ours(&self, oid: u32) -> Result<Option<&Arc<Relation>>, Failure> {
        match self.known.get(&oid) {
            Some(Known::Ours(relation)) => Ok(Some(relation)),
            Some(Known::Foreign) => Ok(None),
            None => Err(Failure::internal(format!(
                "the stream has a change of table {oid} without its description"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{NameFilter, Pattern};

    fn relations(include: &str) -> Relations {
        Relations::new(filter(include))
    }

    fn filter(include: &str) -> TableFilter {
        TableFilter {
            schemas: NameFilter::default(),
            tables: NameFilter {
                include: vec![Pattern::new(include).unwrap()],
                exclude: Vec::new(),
            },
            partitions: true,
        }
    }

    fn relation(oid: u32, table: &str) -> Relation {
        Relation {
            oid,
            schema: "public".to_owned(),
            table: table.to_owned(),
            replica_identity: b'd',
            columns: Vec::new(),
        }
    }

    #[test]
    fn a_table_is_ours_by_its_name() {
        let mut relations = relations("public.outbox");
        assert!(matches!(
            relations.describe(relation(1, "outbox"), None),
            Described::Ours(_)
        ));
        assert!(relations.ours(1).unwrap().is_some());
        assert!(relations.ours(2).is_err());
    }

    #[test]
    fn a_partition_is_ours_by_its_root() {
        let mut relations = relations("public.outbox");
        let Described::AskCatalog(leaf) = relations.describe(relation(1, "outbox_2020"), None)
        else {
            panic!("the catalog was not asked")
        };
        let root = ("public".to_owned(), "outbox".to_owned());
        assert!(matches!(
            relations.describe(leaf, Some(&[root])),
            Described::Ours(_)
        ));
        let other = relations.describe(relation(2, "orders"), Some(&[]));
        assert!(matches!(other, Described::Foreign));
        assert!(relations.ours(2).unwrap().is_none());
    }

    #[test]
    fn without_partitions_only_the_name_that_is_sent_counts() {
        let mut relations = Relations::new(TableFilter {
            partitions: false,
            ..filter("public.outbox")
        });
        let leaf = relations.describe(relation(1, "outbox_2020"), None);
        assert!(matches!(leaf, Described::Foreign));
        let root = relations.describe(relation(2, "outbox"), None);
        assert!(matches!(root, Described::Ours(_)));
    }

    #[test]
    fn a_renamed_table_is_followed() {
        let mut relations = relations("public.outbox");
        relations.describe(relation(1, "outbox"), None);
        let Described::Ours(now) = relations.describe(relation(1, "outbox_v2"), None) else {
            panic!("rows of a renamed table would be lost")
        };
        assert_eq!(now.table, "outbox_v2");
    }
}
