//! What each of librdkafka's error codes means for the connector: one table.

use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use super::ack::Place;
use crate::error::{Class, Failure};
use crate::record::TableIndex;

/// The class of a code and, where an operator can do something, what.
pub(crate) fn verdict(code: Code) -> (Class, Option<&'static str>) {
    use Class::{Config, Poison, Retriable};
    match code {
        // Rights and topics come after their first event often enough: waiting for them loses
        // nothing, and needs nobody to start us again.
        Code::TopicAuthorizationFailed => (
            Retriable,
            Some("grant the producer's principal WRITE and DESCRIBE on the topic"),
        ),
        Code::ClusterAuthorizationFailed => (
            Config,
            Some(
                "grant the producer's principal WRITE on the topics (before Kafka 2.8 also \
                 IDEMPOTENT_WRITE on the cluster)",
            ),
        ),
        Code::TransactionalIdAuthorizationFailed => (
            Config,
            Some("grant the producer's principal WRITE and DESCRIBE on its transactional id"),
        ),
        Code::InvalidTransactionTimeout => (
            Config,
            Some(
                "set producer.override.transaction.timeout.ms to at most the brokers' \
                 transaction.max.timeout.ms",
            ),
        ),
        Code::GroupAuthorizationFailed => (
            Config,
            Some("grant the client's principal READ on its consumer group"),
        ),
        Code::Authentication | Code::SaslAuthenticationFailed => (
            Config,
            Some("check sasl.mechanism and sasl.jaas.config, or the client certificate"),
        ),
        Code::UnsupportedSASLMechanism => (
            Config,
            Some("set sasl.mechanism to one the broker has enabled"),
        ),
        Code::SSL => (
            Config,
            Some("check security.protocol, ssl.truststore.* and the broker's certificate"),
        ),
        // A row that names a partition which is not there is refused before it is sent. So this is a
        // topic that was deleted after its first record.
        Code::UnknownTopic | Code::UnknownTopicOrPartition | Code::UnknownPartition => (
            Retriable,
            Some(
                "create the topic, set topic.creation.default.partitions and \
                 topic.creation.default.replication.factor, or let the broker create topics",
            ),
        ),
        Code::InvalidTopic => (Poison, Some("Kafka does not accept this topic name")),
        Code::MessageSizeTooLarge => (
            Poison,
            Some("raise max.message.bytes of the topic, or message.max.bytes of the broker"),
        ),
        Code::MessageBatchTooLarge => (
            Poison,
            Some("raise segment.bytes of the topic above the size of the record"),
        ),
        Code::InvalidRecord | Code::InvalidMessage => (
            Poison,
            Some("the broker refuses the record; a compacted topic needs a key on every record"),
        ),
        Code::InvalidTimestamp => (
            Poison,
            Some(
                "the timestamp lies outside message.timestamp.before.max.ms and \
                 message.timestamp.after.max.ms of the topic",
            ),
        ),
        Code::PolicyViolation => (Poison, Some("a policy of the broker refuses the record")),
        Code::InvalidMessageSize => (Poison, None),
        Code::UnsupportedFeature | Code::UnsupportedVersion => (
            Config,
            Some("the broker is too old for an idempotent producer with headers (needs 0.11)"),
        ),
        Code::UnsupportedCompressionType => (
            Config,
            Some("the broker does not know this compression.type"),
        ),
        Code::InvalidRequiredAcks | Code::InvalidConfig | Code::InvalidReplicationFactor => {
            (Config, None)
        }
        // Everything that passes by itself or with a fresh producer: transport, time-outs, a login
        // renewed too soon (illegal SASL state), leader changes, too few replicas, lost sequence
        // state, a fence, purged or sacrificed records.
        _ => (Retriable, None),
    }
}

/// Whether Kafka refuses us rather than a record: wrong from the start it is configuration, once
/// the same access has worked it is a rotation, and passes.
fn is_about_access(code: Code) -> bool {
    matches!(
        code,
        Code::Authentication
            | Code::SaslAuthenticationFailed
            | Code::UnsupportedSASLMechanism
            | Code::SSL
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
            | Code::GroupAuthorizationFailed
    )
}

fn of_code(code: Code, class: Class, message: String) -> Failure {
    let failure = Failure::new(class, message);
    match is_about_access(code) {
        true => failure.about_access(),
        false => failure,
    }
}

/// Whether a record was refused only because another one was, or because the sink gave up.
fn follows_another(code: Code) -> bool {
    matches!(
        code,
        Code::PurgeQueue
            | Code::PurgeInflight
            | Code::InvalidDifferentRecord
            | Code::OutOfOrderSequenceNumber
            | Code::Fatal
            | Code::GaplessGuarantee
            | Code::BrokerDestroy
    )
}

/// A record that Kafka refused.
#[derive(Debug, Clone)]
pub(super) struct Refusal {
    pub(super) code: Code,
    pub(super) place: Option<Place>,
    pub(super) topic: String,
    /// The record's `id` header.
    pub(super) event_id: Option<String>,
    /// Key, value and headers.
    pub(super) bytes: usize,
}

impl Refusal {
    /// Smaller comes first: a cause before its consequences, then the order of the batches.
    fn rank(&self) -> (bool, u64) {
        let batch = self.place.map_or(u64::MAX, |place| place.batch);
        (self.is_consequence(), batch)
    }

    /// See [`follows_another`].
    pub(super) fn is_consequence(&self) -> bool {
        follows_another(self.code)
    }

    /// Keeps in `first` whichever of the two is to be reported.
    pub(super) fn keep_first(self, first: &mut Option<Refusal>) {
        if first.as_ref().is_none_or(|held| self.rank() < held.rank()) {
            *first = Some(self);
        }
    }

    /// The failure to report.
    pub(super) fn into_failure(self) -> Failure {
        if self
            .place
            .is_some_and(|place| place.origin.table == TableIndex::POSITION)
        {
            let attempt = format!("store the position in topic {:?}", self.topic);
            return position_refused(&attempt, self.code);
        }
        let (class, remedy) = verdict(self.code);
        let event = match &self.event_id {
            Some(id) => format!("event {id}"),
            None => "an event".to_owned(),
        };
        let at = match self.place {
            Some(place) => format!(" at {}", place.origin.lsn),
            None => String::new(),
        };
        let remedy = remedy.map_or(String::new(), |text| format!("; {text}"));
        let failure = of_code(
            self.code,
            class,
            format!(
                "produce {event}{at} ({} bytes) to topic {:?}: {}{remedy}",
                self.bytes,
                self.topic,
                describe(self.code),
            ),
        );
        let failure = marked(failure.on_topic(&self.topic), self.code);
        match self.place {
            Some(place) => failure.at(place.origin).of_event(self.event_id),
            None => failure,
        }
    }
}

/// The code by name and in words, which never quote data.
pub(crate) fn describe(code: Code) -> String {
    code.to_string()
}

/// The code inside any of the wrappers. The crate's own accessor leaves some of them out.
pub(crate) fn code_of(error: &KafkaError) -> Code {
    match error {
        KafkaError::Transaction(inner) => inner.code(),
        KafkaError::AdminOp(code) | KafkaError::MockCluster(code) => *code,
        KafkaError::ClientConfig(..) | KafkaError::AdminOpCreation(_) => Code::InvalidArgument,
        KafkaError::PartitionEOF(_) => Code::PartitionEOF,
        other => other.rdkafka_error_code().unwrap_or(Code::Unknown),
    }
}

/// The record of a position was refused. It is not an event: nothing about it is poison.
pub(crate) fn position_refused(attempt: &str, code: Code) -> Failure {
    match verdict(code) {
        (Class::Poison, _) => Failure::config(format!(
            "{attempt}: {}; the topic needs cleanup.policy=compact and room for small records",
            describe(code)
        )),
        _ => failed_with(attempt, code),
    }
}

/// A failure of `attempt` with the class and the remedy of `error`.
pub(crate) fn failed(attempt: &str, error: &KafkaError) -> Failure {
    failed_with(attempt, code_of(error))
}

/// The same for a bare code.
pub(crate) fn failed_with(attempt: &str, code: Code) -> Failure {
    let (class, remedy) = verdict(code);
    let remedy = remedy.map_or(String::new(), |text| format!("; {text}"));
    let text = format!("{attempt}: {}{remedy}", describe(code));
    marked(of_code(code, class, text), code)
}

/// Says of a failure that a right is missing, if that is what the code says.
fn marked(failure: Failure, code: Code) -> Failure {
    match code {
        Code::TopicAuthorizationFailed
        | Code::ClusterAuthorizationFailed
        | Code::GroupAuthorizationFailed
        | Code::TransactionalIdAuthorizationFailed => failure.about_rights(),
        _ => failure,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lsn::Lsn;
    use crate::record::Origin;

    #[test]
    fn each_code_has_its_class() {
        use Class::{Config, Poison, Retriable};
        let table = [
            (Code::BrokerTransportFailure, Retriable),
            (Code::AllBrokersDown, Retriable),
            (Code::Resolve, Retriable),
            (Code::OperationTimedOut, Retriable),
            (Code::MessageTimedOut, Retriable),
            (Code::RequestTimedOut, Retriable),
            (Code::LeaderNotAvailable, Retriable),
            (Code::NotLeaderForPartition, Retriable),
            (Code::NotEnoughReplicas, Retriable),
            (Code::NotEnoughReplicasAfterAppend, Retriable),
            (Code::KafkaStorageError, Retriable),
            (Code::OutOfOrderSequenceNumber, Retriable),
            (Code::UnknownProducerId, Retriable),
            (Code::InvalidProducerEpoch, Retriable),
            (Code::Fenced, Retriable),
            (Code::Fatal, Retriable),
            (Code::PurgeQueue, Retriable),
            (Code::PurgeInflight, Retriable),
            (Code::InvalidDifferentRecord, Retriable),
            (Code::Unknown, Retriable),
            (Code::TopicAuthorizationFailed, Retriable),
            (Code::ClusterAuthorizationFailed, Config),
            (Code::TransactionalIdAuthorizationFailed, Config),
            (Code::InvalidTransactionTimeout, Config),
            (Code::GroupAuthorizationFailed, Config),
            (Code::Authentication, Config),
            (Code::SaslAuthenticationFailed, Config),
            (Code::UnsupportedSASLMechanism, Config),
            (Code::IllegalSASLState, Retriable),
            (Code::SSL, Config),
            (Code::UnknownTopic, Retriable),
            (Code::UnknownTopicOrPartition, Retriable),
            (Code::UnsupportedFeature, Config),
            (Code::UnsupportedVersion, Config),
            (Code::UnsupportedCompressionType, Config),
            (Code::InvalidRequiredAcks, Config),
            (Code::InvalidReplicationFactor, Config),
            (Code::InvalidConfig, Config),
            (Code::UnknownPartition, Retriable),
            (Code::InvalidTopic, Poison),
            (Code::MessageSizeTooLarge, Poison),
            (Code::MessageBatchTooLarge, Poison),
            (Code::InvalidMessageSize, Poison),
            (Code::InvalidRecord, Poison),
            (Code::InvalidMessage, Poison),
            (Code::InvalidTimestamp, Poison),
            (Code::PolicyViolation, Poison),
        ];
        for (code, class) in table {
            assert_eq!(verdict(code).0, class, "{code:?}");
            // What refuses us, and not a record or a setting, passes once we were let in before.
            let later = failed_with("connect", code).once_worked().class();
            let settings = matches!(
                code,
                Code::UnsupportedFeature
                    | Code::UnsupportedVersion
                    | Code::UnsupportedCompressionType
                    | Code::InvalidRequiredAcks
                    | Code::InvalidReplicationFactor
                    | Code::InvalidConfig
                    | Code::InvalidTransactionTimeout
            );
            let expected = match class {
                Config if !settings => Retriable,
                same => same,
            };
            assert_eq!(later, expected, "{code:?} once we were let in");
            for wrapped in [
                KafkaError::MessageProduction(code),
                KafkaError::MetadataFetch(code),
                KafkaError::Global(code),
                KafkaError::AdminOp(code),
                KafkaError::Flush(code),
                KafkaError::MessageConsumption(code),
                KafkaError::MessageConsumptionFatal(code),
                KafkaError::OffsetFetch(code),
                KafkaError::SetPartitionOffset(code),
            ] {
                assert_eq!(code_of(&wrapped), code, "{wrapped:?}");
            }
        }
    }

    fn refusal(code: Code, batch: u64) -> Refusal {
        Refusal {
            code,
            place: Some(Place {
                batch,
                origin: Origin {
                    lsn: Lsn::new(0x16_B374_D848).unwrap(),
                    table: TableIndex(2),
                },
            }),
            topic: "outbox.event.order".to_owned(),
            event_id: Some("4711".to_owned()),
            bytes: 123,
        }
    }

    #[test]
    fn the_cause_is_reported_not_its_consequences() {
        let mut first = None;
        for (code, batch) in [
            (Code::InvalidDifferentRecord, 1),
            (Code::PurgeQueue, 0),
            (Code::InvalidRecord, 3),
            (Code::InvalidTimestamp, 2),
        ] {
            refusal(code, batch).keep_first(&mut first);
        }
        assert_eq!(first.unwrap().code, Code::InvalidTimestamp);
    }

    #[test]
    fn a_refusal_names_row_topic_size_and_remedy() {
        let failure = refusal(Code::MessageSizeTooLarge, 1).into_failure();
        let text = failure.to_string();
        for part in [
            "event 4711",
            "16/B374D848",
            "123 bytes",
            "\"outbox.event.order\"",
            "MessageSizeTooLarge",
            "max.message.bytes",
        ] {
            assert!(text.contains(part), "{part} is missing in: {text}");
        }
        assert_eq!(failure.origin().unwrap().table, TableIndex(2));
    }
}
