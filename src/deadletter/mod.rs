//! Dead letters: events that could not be published, kept with all that it takes to publish them
//! later.
//!
//! Owns: the form of a dead letter and of an audit record, the account of which letters wait, the
//! two topics. Never: a slot, a position, a routing decision.
//!
//! The dead-letter topic only grows. What became of a letter is said in a topic beside it, the audit
//! topic, by naming the letter; a letter *waits* until it is named there. So the two topics together
//! are the whole state, whatever order they are read in, and a restart rebuilds it from them.

mod audit;
mod json;
mod letter;
mod log;
mod waiting;

pub use audit::{Action, Audit};
pub use json::Unreadable;
pub use letter::{Body, Cause, Kept, Letter, LetterId, RowOperation, Stage};
pub use log::{Found, Log, News, Tail};
pub use waiting::{Admission, Full, Waiting};
