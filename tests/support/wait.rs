//! Waiting for a condition, with a deadline and without guessing how long it takes.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
pub(crate) const POLL: Duration = Duration::from_millis(15);

/// Long enough for anything that ought to happen at once, on two cores that are busy with much else.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// Polls until `probe` gives a value; panics with `what` after `limit`.
pub(crate) fn value<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(
            Instant::now() < deadline,
            "waited {} s in vain: {what}",
            limit.as_secs_f32()
        );
        std::thread::sleep(POLL);
    }
}

/// Polls until `probe` is true; panics with `what` after `limit`.
pub(crate) fn until(what: &str, limit: Duration, mut probe: impl FnMut() -> bool) {
    value(what, limit, || probe().then_some(()));
}

/// Checks for the whole of `time` that `probe` stays true.
pub(crate) fn throughout(what: &str, time: Duration, mut probe: impl FnMut() -> bool) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        assert!(probe(), "{what}");
        std::thread::sleep(POLL);
    }
}
