//! What must never be missing.
