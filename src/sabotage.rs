//! Ways to break the promises on purpose, for the test of the tests: `make torture-check` builds
//! with the feature `sabotage` and expects each of them to be found. No other build contains this.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex};

use crate::lsn::ResumePoint;
use crate::record::{Origin, Record};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Early,
    Reorder,
    Double,
    Lose,
}

/// What the environment asks for; without it this build is as honest as any.
static KIND: LazyLock<Option<Kind>> =
    LazyLock::new(|| match std::env::var("WALPOST_SABOTAGE").as_deref() {
        Ok("early") => Some(Kind::Early),
        Ok("reorder") => Some(Kind::Reorder),
        Ok("double") => Some(Kind::Double),
        Ok("lose") => Some(Kind::Lose),
        _ => None,
    });

/// Records from one strike to the next.
const INTERVAL: u64 = 40;

type Held = (Record<'static>, Origin);

/// A record that waits for a later one of its key to overtake it.
static HELD: Mutex<Option<Held>> = Mutex::new(None);

/// What to enqueue in place of `record`; `None` leaves it alone.
pub(crate) fn instead_of(record: &Record<'_>, origin: Origin) -> Option<Vec<Held>> {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let kind = (*KIND)?;
    let own = || (record.clone().into_owned(), origin);
    let strikes = SEEN.fetch_add(1, Ordering::Relaxed) % INTERVAL == INTERVAL - 1;
    match kind {
        Kind::Lose if strikes => Some(Vec::new()),
        Kind::Double if strikes => Some(vec![own(), own()]),
        Kind::Reorder => {
            let mut held = HELD.lock().ok()?;
            if held
                .as_ref()
                .is_some_and(|(held, _)| held.key == record.key)
            {
                return Some(vec![own(), held.take()?]);
            }
            (strikes && held.is_none()).then(|| {
                *held = Some(own());
                Vec::new()
            })
        }
        _ => None,
    }
}

/// A record that was not overtaken goes with its batch.
pub(crate) fn held() -> Option<Held> {
    HELD.lock().ok()?.take()
}

/// Gives out a position that Kafka has not acknowledged, each once.
pub(crate) fn early(end: Option<ResumePoint>) -> Option<ResumePoint> {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let end = end.filter(|_| *KIND == Some(Kind::Early))?;
    let lsn = end.lsn().as_u64();
    (LAST.fetch_max(lsn, Ordering::Relaxed) < lsn).then_some(end)
}
