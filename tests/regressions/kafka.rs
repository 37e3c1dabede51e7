//! The side of Kafka.
