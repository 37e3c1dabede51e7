//! How long to wait before the next attempt.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

const FIRST: Duration = Duration::from_millis(200);

/// Exponential waits with jitter, starting over after success.
#[derive(Debug)]
pub(super) struct Backoff {
    longest: Duration,
    waits: ExponentialBackoff,
    attempts: u32,
}

impl Backoff {
    /// Waits between 0.2 s and `longest`.
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            longest,
            waits: Self::waits(longest),
            attempts: 0,
        }
    }

    /// The next wait, never longer than `longest`.
    pub(super) fn next(&mut self) -> Duration {
        self.attempts = self.attempts.saturating_add(1);
        self.waits.next().unwrap_or(self.longest).min(self.longest)
    }

    /// Attempts that failed since the last success.
    pub(super) fn attempts(&self) -> u32 {
        self.attempts
    }

    /// The connector works again.
    pub(super) fn reset(&mut self) {
        *self = Self::new(self.longest);
    }

    fn waits(longest: Duration) -> ExponentialBackoff {
        ExponentialBuilder::default()
            .with_jitter()
            .with_min_delay(FIRST.min(longest))
            .with_max_delay(longest)
            .without_max_times()
            .build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_longest_and_start_over_after_success() {
        let longest = Duration::from_secs(10);
        let mut backoff = Backoff::new(longest);
        let first = backoff.next();
        assert!(first >= FIRST && first <= FIRST * 2, "{first:?}");
        for _ in 0..100 {
            assert!(backoff.next() <= longest);
        }
        assert_eq!(backoff.next(), longest);
        backoff.reset();
        assert_eq!(backoff.attempts(), 0);
        assert!(backoff.next() <= FIRST * 2);
    }
}
