//! The `walpost` binary.

fn main() {}
