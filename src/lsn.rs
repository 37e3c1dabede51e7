//! Positions in the write-ahead log.
//!
//! [`Lsn`] is any byte position; [`ResumePoint`] is one of the few positions at which a restart
//! loses nothing. Only the latter may be stored or confirmed, so the two are different types.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

/// A byte position in the write-ahead log. Never zero: "no position" is `Option<Lsn>`.
///
/// Prints as Postgres does, `X/Y` in upper-case hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lsn(NonZeroU64);

impl Lsn {
    /// The first position there could be.
    pub const MIN: Self = Self(NonZeroU64::MIN);

    /// The position at byte `raw`, or `None` for Postgres' invalid position 0.
    pub fn new(raw: u64) -> Option<Self> {
        NonZeroU64::new(raw).map(Self)
    }

    /// The position as Postgres sends it.
    pub fn as_u64(self) -> u64 {
        self.0.get()
    }

    /// Bytes from `earlier` to `self`; 0 when `earlier` is not earlier.
    pub fn bytes_since(self, earlier: Lsn) -> u64 {
        self.as_u64().saturating_sub(earlier.as_u64())
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let raw = self.as_u64();
        write!(f, "{:X}/{:X}", raw >> 32, raw & 0xFFFF_FFFF)
    }
}

impl fmt::Debug for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not an LSN.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a log position as Postgres prints it, two hexadecimal numbers like 16/B374D848, greater than 0/0"
)]
pub struct ParseLsnError;

impl FromStr for Lsn {
    type Err = ParseLsnError;

    /// Strict: each half has 1 to 8 hexadecimal digits, no sign, no blanks, and is not 0/0.
    fn from_str(text: &str) -> Result<Self, ParseLsnError> {
        let half = |digits: &str| {
            let plain = (1..=8).contains(&digits.len())
                && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            if plain {
                u64::from_str_radix(digits, 16).ok()
            } else {
                None
            }
        };
        let (high, low) = text.split_once('/').ok_or(ParseLsnError)?;
        let raw = half(high).ok_or(ParseLsnError)? << 32 | half(low).ok_or(ParseLsnError)?;
        Lsn::new(raw).ok_or(ParseLsnError)
    }
}

/// The commit a [`ResumePoint`] stands behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CommitInfo {
    /// Transaction id.
    pub xid: u32,
    /// Commit time in microseconds since the Unix epoch.
    pub time_us: i64,
}

/// A position from which a restart loses nothing and skips nothing: the end of a commit, a slot's
/// consistent point, an idle server's `wal_end`, or one of these read back from the offset store.
///
/// There is no conversion from [`Lsn`]; each constructor names the reason and has one caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResumePoint {
    lsn: Lsn,
    commit: Option<CommitInfo>,
}

impl ResumePoint {
    /// The end LSN of a commit. Postgres resends a transaction whose commit record starts at or
    /// after the start point, so the *end* is the first position that does not repeat it.
    pub fn after_commit(end_lsn: Lsn, commit: CommitInfo) -> Self {
        Self {
            lsn: end_lsn,
            commit: Some(commit),
        }
    }

    /// The consistent point of a slot just created, or the confirmed position of one adopted.
    pub fn slot_start(consistent_point: Lsn) -> Self {
        Self {
            lsn: consistent_point,
            commit: None,
        }
    }

    /// `wal_end` of a keepalive that arrived outside any transaction: all that committed before it
    /// has been received.
    pub fn idle(wal_end: Lsn) -> Self {
        Self {
            lsn: wal_end,
            commit: None,
        }
    }

    /// Just after a logical message outside of transactions: the server sends such a message again
    /// only to who starts at it or before.
    pub fn after_message(lsn: Lsn) -> Self {
        Self {
            lsn: Lsn(lsn.0.saturating_add(1)),
            commit: None,
        }
    }

    /// Read back from the offset store.
    pub fn restored(lsn: Lsn, commit: Option<CommitInfo>) -> Self {
        Self { lsn, commit }
    }

    /// The position itself.
    pub fn lsn(self) -> Lsn {
        self.lsn
    }

    /// The commit that ends here; `None` for a slot's start and for an idle position.
    pub fn commit(self) -> Option<CommitInfo> {
        self.commit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses_as_postgres_does() {
        for text in ["16/B374D848", "0/1", "FFFFFFFF/FFFFFFFF"] {
            assert_eq!(text.parse::<Lsn>().unwrap().to_string(), text);
        }
        assert_eq!(
            "16/b374d848".parse::<Lsn>().unwrap().as_u64(),
            0x16_B374_D848
        );
    }

    #[test]
    fn refuses_what_is_not_a_position() {
        for text in [
            "",
            "0/0",
            "1",
            "1/",
            "/1",
            "123456789/0",
            "0/123456789",
            "+1/1",
            "1/ 1",
            "g/1",
        ] {
            assert!(text.parse::<Lsn>().is_err(), "{text:?} was accepted");
        }
    }

    proptest::proptest! {
        #[test]
        fn every_position_survives_its_text(raw in 1u64..) {
            let lsn = Lsn::new(raw).unwrap();
            proptest::prop_assert_eq!(lsn.to_string().parse::<Lsn>().unwrap(), lsn);
        }
    }
}
