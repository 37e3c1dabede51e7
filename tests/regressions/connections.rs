//! Connections to Postgres and who may open them.
