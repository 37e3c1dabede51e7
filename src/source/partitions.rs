//! Which table a relation of the stream is a partition of.

use std::pin::Pin;

use super::relation::TableName;
use super::row::Relation;
use super::sql::Session;
use crate::config::Database;
use crate::error::Failure;

type Lookup = Pin<Box<dyn Future<Output = Result<(Session, Vec<TableName>), Failure>> + Send>>;

/// Asks the catalog which table a relation is a partition of, over a session of its own that is
/// opened when it is first needed.
pub(super) struct Partitions {
    database: Database,
    session: Option<Session>,
    asking: Option<Asking>,
    answer: Option<(u32, Vec<TableName>)>,
}

struct Asking {
    oid: u32,
    /// Kept while a fill is cancelled, so that the question is asked once.
    lookup: Lookup,
}

impl Partitions {
    pub(super) fn new(database: Database) -> Self {
        Self {
            database,
            session: None,
            asking: None,
            answer: None,
        }
    }

    pub(super) fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    pub(super) fn ask(&mut self, relation: Relation) {
        let session = self.session.take().filter(|session| !session.is_closed());
        let database = self.database.clone();
        let oid = relation.oid;
        let lookup = Box::pin(async move {
            let session = match session {
                Some(session) => session,
                None => Session::connect(&database, "partitions").await?,
            };
            let ancestors = session.ancestors(&relation).await?;
            Ok((session, ancestors))
        });
        self.asking = Some(Asking { oid, lookup });
    }

    /// Waits for the answer. Cancel-safe.
    pub(super) async fn answer(&mut self) -> Result<(), Failure> {
        if let Some(asking) = &mut self.asking {
            let outcome = asking.lookup.as_mut().await;
            let oid = asking.oid;
            self.asking = None;
            let (session, ancestors) = outcome?;
            self.session = Some(session);
            self.answer = Some((oid, ancestors));
        }
        Ok(())
    }

    pub(super) fn take(&mut self, oid: u32) -> Option<Vec<TableName>> {
        match self.answer.take() {
            Some((answered, ancestors)) if answered == oid => Some(ancestors),
            _ => None,
        }
    }
}
