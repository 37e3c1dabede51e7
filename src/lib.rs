//! walpost moves committed outbox rows from Postgres to Kafka.
//!
//! A straight pipe: [`source`] turns one replication slot into committed rows; [`outbox`] turns a
//! row into a Kafka record or a poison verdict; [`sink`] produces records in order and says which
//! prefix Kafka has acknowledged; [`offset`] makes that prefix survive a restart; only then is the
//! slot told. [`pipeline`] alone knows all four.

pub mod config;
pub mod deadletter;
pub mod error;
pub mod foreign;
pub mod lsn;
pub mod observability;
pub mod offset;
pub mod outbox;
pub mod pipeline;
pub mod record;
#[cfg(feature = "sabotage")]
mod sabotage;
pub mod sink;
pub mod source;
