//! The two clocks that lag and stalls are measured with.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// For durations.
    pub(super) monotonic: Instant,
    /// For comparison with commit times.
    pub(super) unix_us: i64,
}

impl Now {
    /// A clock before 1970 reads as 1970.
    pub(super) fn read() -> Self {
        let since_epoch = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            monotonic: Instant::now(),
            unix_us: i64::try_from(since_epoch.as_micros()).unwrap_or(i64::MAX),
        }
    }

    pub(super) fn since(self, earlier: Instant) -> Duration {
        self.monotonic.saturating_duration_since(earlier)
    }
}

/// As a difference of times.
pub(super) fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

/// Never negative: clocks may disagree by a little.
#[allow(
    clippy::cast_precision_loss,
    reason = "a lag of 285 years is off by a microsecond"
)]
pub(super) fn seconds(us: i64) -> f64 {
    us.max(0) as f64 / 1e6
}
