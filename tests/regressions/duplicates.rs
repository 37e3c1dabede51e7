//! What comes twice, and in which order.
