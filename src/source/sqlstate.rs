//! What an error of the server means: one table from SQLSTATE to class and advice.
//!
//! The server's texts can quote row data ("Key (id)=(..)", "invalid input syntax .. \"..\""), so
//! DETAIL and CONTEXT are never read, and the message only where its SQLSTATE cannot quote values.

use crate::error::{Class, Failure};

/// What was being done when the server refused. The same SQLSTATE means different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Doing {
    /// Logging in, or an ordinary statement.
    Anything,
    /// CREATE_REPLICATION_SLOT.
    CreatingSlot,
    /// SET TRANSACTION SNAPSHOT.
    ImportingSnapshot,
    /// START_REPLICATION and all that follows.
    Streaming,
}

/// An error as the server sent it, without what may carry data.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message} (SQLSTATE {code})")]
pub(super) struct ServerError {
    pub(super) code: String,
    message: String,
}

impl ServerError {
    pub(super) fn new(code: &str, message: &str) -> Self {
        let quotes_values = ["21", "22", "23", "P0"]
            .iter()
            .any(|class| code.starts_with(class));
        Self {
            code: code.to_owned(),
            message: if quotes_values {
                "the server refused a value".to_owned()
            } else {
                message.to_owned()
            },
        }
    }

    /// The failure of `attempt`, classified.
    pub(super) fn into_failure(self, attempt: &str, doing: Doing) -> Failure {
        let rule = rule(&self.code, doing);
        let text = match rule.advice {
            "" => attempt.to_owned(),
            advice => format!("{attempt}: {advice}"),
        };
        let stopping = matches!(self.code.as_str(), "57P01" | "57P03");
        let failure = Failure::new(rule.class, text).caused_by(self);
        if stopping {
            failure.about_server_stopping()
        } else if rule.access {
            failure.about_access()
        } else {
            failure
        }
    }

    /// Whether it is the warning with which Postgres 18 and later passes over the rows of a
    /// publication that did not exist when they were written; before, that was an error.
    pub(super) fn skips(&self, publication: &str) -> bool {
        self.code == "55000" && self.message.contains(publication)
    }

    /// The failure that servers before 18 report instead.
    pub(super) fn of_missing_publication(self, attempt: &str) -> Failure {
        let rule = rule("42704", Doing::Streaming);
        Failure::new(rule.class, format!("{attempt}: {}", rule.advice)).caused_by(self)
    }
}

struct Rule {
    /// A whole SQLSTATE, or its first two characters.
    code: &'static str,
    doing: Doing,
    class: Class,
    /// Passes by itself once the same access has worked.
    access: bool,
    advice: &'static str,
}

const fn rule_of(code: &'static str, class: Class, advice: &'static str) -> Rule {
    Rule {
        code,
        doing: Doing::Anything,
        class,
        access: false,
        advice,
    }
}

const fn access(code: &'static str, advice: &'static str) -> Rule {
    Rule {
        access: true,
        ..rule_of(code, Class::Config, advice)
    }
}

const fn during(doing: Doing, code: &'static str, class: Class, advice: &'static str) -> Rule {
    Rule {
        doing,
        ..rule_of(code, class, advice)
    }
}

/// The first row that fits wins, so whole codes and special circumstances stand before classes.
static RULES: &[Rule] = &[
    during(
        Doing::Streaming,
        "42704",
        Class::Retriable,
        "the publication or the slot does not exist at the slot's position; a publication that is \
         newer than that position is unknown there although it exists now. Rows before it cannot \
         be decoded: drop the slot and take a new snapshot, or wait if the publication was just \
         created elsewhere",
    ),
    during(
        Doing::Streaming,
        "55000",
        Class::Gap,
        "the slot can no longer deliver changes; see wal_status and invalidation_reason in \
         pg_replication_slots, and max_slot_wal_keep_size",
    ),
    during(
        Doing::Streaming,
        "22021",
        Class::Config,
        "a row holds bytes that are no UTF-8, which a database with the encoding SQL_ASCII takes \
         and the server does not send; go on behind it with \"walpost offsets set\"",
    ),
    during(
        Doing::Streaming,
        "58P01",
        Class::Gap,
        "WAL that the slot needs was removed; see max_slot_wal_keep_size",
    ),
    during(
        Doing::ImportingSnapshot,
        "22023",
        Class::Retriable,
        "the exported snapshot has ended with the connection that exported it",
    ),
    during(
        Doing::ImportingSnapshot,
        "42704",
        Class::Retriable,
        "the exported snapshot has ended with the connection that exported it",
    ),
    during(
        Doing::CreatingSlot,
        "55000",
        Class::Config,
        "logical decoding needs wal_level = logical (on a standby: also on its primary, and \
         Postgres 16 or later)",
    ),
    during(
        Doing::CreatingSlot,
        "42710",
        Class::Retriable,
        "somebody else has just created the slot",
    ),
    rule_of(
        "08P01",
        Class::Config,
        "the server, or a connection pooler in front of it, does not \
         accept this connection; name the server's own address in database.hostname",
    ),
    rule_of("08", Class::Retriable, ""),
    access("28P01", "check database.user and database.password"),
    access(
        "28",
        "check database.user, database.sslmode and the server's pg_hba.conf",
    ),
    access("3D000", "check database.dbname"),
    access("42501", "a right is missing; grant it to database.user"),
    access("0P", "check database.user"),
    access("0L", "check the rights of database.user"),
    rule_of("40", Class::Retriable, ""),
    rule_of(
        "25006",
        Class::Config,
        "nothing may be written here: either the server is a standby, then name its primary in \
         database.hostname, or default_transaction_read_only is on for the role or the database",
    ),
    rule_of(
        "53400",
        Class::Config,
        "all replication slots are in use; raise \
         max_replication_slots or drop a slot that nobody needs",
    ),
    rule_of(
        "53300",
        Class::Retriable,
        "too many connections; see max_connections and \
         max_wal_senders",
    ),
    rule_of("53", Class::Retriable, "the server is short of resources"),
    rule_of("55006", Class::Retriable, "somebody else holds it"),
    rule_of("55P03", Class::Retriable, ""),
    rule_of("57014", Class::Retriable, "the statement was cancelled"),
    rule_of("57P01", Class::Retriable, "the server is shutting down"),
    rule_of("57P02", Class::Retriable, "the server has crashed"),
    rule_of(
        "57P03",
        Class::Retriable,
        "the server is starting up or shutting down",
    ),
    rule_of("57P04", Class::Config, "the database was dropped"),
    rule_of("57", Class::Retriable, ""),
    rule_of("0A", Class::Config, "the server does not support this"),
    rule_of("22", Class::Config, ""),
    rule_of("23", Class::Config, ""),
    rule_of("3F", Class::Config, ""),
    rule_of("42", Class::Config, ""),
    rule_of("P0", Class::Config, ""),
];

/// What the table does not name is trouble of the server: repeating loses nothing, stopping might
/// cost a night.
static OTHERWISE: Rule = rule_of("", Class::Retriable, "");

fn rule(code: &str, doing: Doing) -> &'static Rule {
    RULES
        .iter()
        .find(|rule| {
            (rule.doing == Doing::Anything || rule.doing == doing) && code.starts_with(rule.code)
        })
        .unwrap_or(&OTHERWISE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_reached() {
        for expected in RULES {
            let code = format!("{:0<5}", expected.code);
            let found = rule(&code, expected.doing);
            assert!(
                std::ptr::eq(found, expected),
                "{code} is hidden by {}",
                found.code
            );
        }
    }

    #[test]
    fn classes_are_the_published_ones() {
        use Class::{Config, Gap, Retriable};
        use Doing::{Anything, CreatingSlot, ImportingSnapshot, Streaming};
        for (code, doing, class, is_access) in [
            ("28P01", Anything, Config, true),
            ("28000", Anything, Config, true),
            ("3D000", Anything, Config, true),
            ("42501", Anything, Config, true),
            ("0P000", Anything, Config, true),
            ("0LP01", Anything, Config, true),
            ("08006", Anything, Retriable, false),
            ("08P01", Anything, Config, false),
            ("40001", Anything, Retriable, false),
            ("25006", Anything, Config, false),
            ("53300", Anything, Retriable, false),
            ("53100", Anything, Retriable, false),
            ("53400", Anything, Config, false),
            ("55006", Streaming, Retriable, false),
            ("55P03", CreatingSlot, Retriable, false),
            ("55000", Streaming, Gap, false),
            ("55000", CreatingSlot, Config, false),
            ("58P01", Streaming, Gap, false),
            ("58P01", Anything, Retriable, false),
            ("57014", Anything, Retriable, false),
            ("57P01", Streaming, Retriable, false),
            ("57P02", Streaming, Retriable, false),
            ("57P03", Anything, Retriable, false),
            ("57P04", Anything, Config, false),
            ("57P05", Anything, Retriable, false),
            ("22023", ImportingSnapshot, Retriable, false),
            ("22023", Anything, Config, false),
            ("42704", ImportingSnapshot, Retriable, false),
            ("42704", Streaming, Retriable, false),
            ("42704", Anything, Config, false),
            ("42710", CreatingSlot, Retriable, false),
            ("42P01", Anything, Config, false),
            ("0A000", Anything, Config, false),
            ("22P02", Anything, Config, false),
            ("23505", Anything, Config, false),
            ("3F000", Anything, Config, false),
            ("P0001", Anything, Config, false),
            ("XX000", Streaming, Retriable, false),
            ("99999", Anything, Retriable, false),
        ] {
            let failure = ServerError::new(code, "m").into_failure("try", doing);
            assert_eq!(failure.class(), class, "{code} while {doing:?}");
            let later = failure.once_worked().class();
            assert_eq!(
                later != class,
                is_access,
                "{code} after the access has worked"
            );
        }
    }

    #[test]
    fn values_quoted_by_the_server_are_not_repeated() {
        let error = ServerError::new("22P02", "invalid input syntax for type uuid: \"secret\"");
        let text = error
            .into_failure("run the heartbeat query", Doing::Anything)
            .to_string();
        assert!(!text.contains("secret"), "{text}");
        let error = ServerError::new("3D000", "database \"shop\" does not exist");
        let text = error.into_failure("connect", Doing::Anything).to_string();
        assert!(text.contains("\"shop\""), "{text}");
    }
}
