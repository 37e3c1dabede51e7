//! The loop, and the only place where a position moves.
