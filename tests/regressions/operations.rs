//! What whoever runs it sees.
