//! Random names and choices, all from one printed seed.

use std::sync::LazyLock;

/// The run's seed: `WALPOST_TEST_SEED`, or a new one. It fixes what tests draw with [`generator`];
/// names stay random, so that two runs never meet.
static SEED: LazyLock<u64> = LazyLock::new(|| {
    let seed = std::env::var("WALPOST_TEST_SEED")
        .ok()
        .map_or_else(|| fastrand::u64(..1 << 32), |text| text.parse().unwrap());
    eprintln!("seed {seed}; run again with WALPOST_TEST_SEED={seed}");
    seed
});

/// A generator for one test: the run's seed and the test's name.
pub(crate) fn generator(test: &str) -> fastrand::Rng {
    let salt = test.bytes().fold(0_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    fastrand::Rng::with_seed(*SEED ^ salt)
}

/// `stem` with a random tail, fit for a database, slot, topic or folder.
pub(crate) fn name(stem: &str) -> String {
    format!("{stem}_{:08x}", fastrand::u32(..))
}
