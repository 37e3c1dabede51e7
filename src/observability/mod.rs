//! Logs, metrics, health and status. It is told, never asked.
