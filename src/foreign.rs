//! Calls into C that their crates offer no safe form of: all the `unsafe` code of walpost.

use std::ffi::CStr;
use std::ptr;

use rdkafka::ClientContext;
use rdkafka::bindings::{rd_kafka_brokers_add, rd_kafka_brokers_learned_ids, rd_kafka_mem_free};
use rdkafka::client::Client;

/// Keeps glibc from giving each thread a heap of its own, of which it returns little: every attempt
/// to connect starts a dozen threads, and memory would rise by tens of kilobytes with each.
/// `MALLOC_ARENA_MAX` still decides where it is set. To be called before any other thread exists.
pub fn share_arenas() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if std::env::var_os("MALLOC_ARENA_MAX").is_none() {
        #[expect(unsafe_code, reason = "a call into the C library without pointers")]
        // SAFETY: sets one number in the allocator.
        let accepted = unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
        debug_assert_eq!(accepted, 1, "glibc knows the setting");
    }
}

/// Whether a Kafka client knows a broker from the cluster itself, beyond those that it was
/// configured with.
pub fn knows_the_cluster<C: ClientContext>(client: &Client<C>) -> bool {
    let mut count = 0;
    #[expect(unsafe_code, reason = "rdkafka does not offer the call")]
    // SAFETY: the client lives as long as its borrow; `count` outlives the call; the list is ours,
    // not read, and freed once, by the library that made it, which asks for no client.
    unsafe {
        let ids = rd_kafka_brokers_learned_ids(client.native_ptr(), &raw mut count);
        rd_kafka_mem_free(ptr::null_mut(), ids.cast());
    }
    count > 0
}

/// Gives a Kafka client the addresses of brokers, comma-separated as in `bootstrap.servers`, beside
/// those that it has.
pub fn add_brokers<C: ClientContext>(client: &Client<C>, servers: &CStr) {
    #[expect(unsafe_code, reason = "rdkafka does not offer the call")]
    // SAFETY: the client lives as long as its borrow; the text ends with a zero and is copied.
    unsafe {
        rd_kafka_brokers_add(client.native_ptr(), servers.as_ptr());
    }
}
