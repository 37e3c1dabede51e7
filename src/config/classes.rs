//! The Java class names that people write, and what they stand for here.

use super::properties::{
    DECODE, DROP_HEADERS, EXTRACT_FIELD, FILTER, Family, HEADER_FROM, INSERT_HEADER, REGEX_ROUTER,
    REPLACE_FIELD, ROUTER, TIMESTAMP_ROUTER,
};
use super::validated::{Converter, JsonConverter};

const KAFKA_TRANSFORMS: &str = "org.apache.kafka.connect.transforms.";

/// A transform that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TransformClass {
    EventRouter,
    DecodeMessage,
    RegexRouter,
    InsertHeader,
    DropHeaders,
    HeaderFromValue,
    HeaderFromKey,
    Filter,
    ReplaceFieldValue,
    ReplaceFieldKey,
    ExtractFieldValue,
    ExtractFieldKey,
    TimestampRouter,
}

impl TransformClass {
    /// The transform of this class, or why there is none.
    pub(super) fn of(class: &str) -> Result<Self, String> {
        let class = class.trim();
        let debezium = [
            (
                "io.debezium.transforms.outbox.",
                "EventRouter",
                Self::EventRouter,
            ),
            (
                "io.debezium.connector.postgresql.transforms.",
                "DecodeLogicalDecodingMessageContent",
                Self::DecodeMessage,
            ),
        ];
        let kafka = [
            ("RegexRouter", Self::RegexRouter),
            ("InsertHeader", Self::InsertHeader),
            ("DropHeaders", Self::DropHeaders),
            ("HeaderFrom$Value", Self::HeaderFromValue),
            ("HeaderFrom$Key", Self::HeaderFromKey),
            ("Filter", Self::Filter),
            ("ReplaceField$Value", Self::ReplaceFieldValue),
            ("ReplaceField$Key", Self::ReplaceFieldKey),
            ("ExtractField$Value", Self::ExtractFieldValue),
            ("ExtractField$Key", Self::ExtractFieldKey),
            ("TimestampRouter", Self::TimestampRouter),
        ];
        let kafka = kafka.map(|(name, this)| (KAFKA_TRANSFORMS, name, this));
        debezium
            .iter()
            .chain(&kafka)
            .find(|(package, name, _)| class == *name || class.strip_prefix(package) == Some(name))
            .map(|(_, _, this)| *this)
            .ok_or_else(|| refusal_of_transform(class))
    }

    /// Its options.
    pub(super) fn family(self) -> &'static Family {
        match self {
            Self::EventRouter => &ROUTER,
            Self::DecodeMessage => &DECODE,
            Self::RegexRouter => &REGEX_ROUTER,
            Self::InsertHeader => &INSERT_HEADER,
            Self::DropHeaders => &DROP_HEADERS,
            Self::HeaderFromValue | Self::HeaderFromKey => &HEADER_FROM,
            Self::Filter => &FILTER,
            Self::ReplaceFieldValue | Self::ReplaceFieldKey => &REPLACE_FIELD,
            Self::ExtractFieldValue | Self::ExtractFieldKey => &EXTRACT_FIELD,
            Self::TimestampRouter => &TIMESTAMP_ROUTER,
        }
    }
}

fn refusal_of_transform(class: &str) -> String {
    let simple = class.rsplit('.').next().unwrap_or(class);
    let instead = match simple.split('$').next().unwrap_or(simple) {
        "Filter" => {
            "use org.apache.kafka.connect.transforms.Filter with a predicate, or a row filter of \
             the publication"
        }
        "ReplaceField" | "ExtractField" | "HeaderFrom" => "its class names end in $Value or $Key",
        "HoistField" | "Flatten" => {
            "choose what the value holds with table.fields.additional.placement"
        }
        "ValueToKey" => "choose the key column with table.field.event.key",
        "Cast" => "cast in the table or in a generated column",
        "InsertField" => {
            "use InsertHeader, or a column placed with table.fields.additional.placement"
        }
        "MaskField" => "use column.mask.with.<n>.chars",
        "SetSchemaMetadata" => "schema names are those of Debezium; leave it out",
        "MongoEventRouter" => "use io.debezium.transforms.outbox.EventRouter",
        "ExtractNewRecordState" | "ByLogicalTableRouter" | "ContentBasedRouter" => {
            "the Event Router already unwraps and routes; leave it out"
        }
        "" => return "a class is required".to_owned(),
        _ => "do it in the consumer, or keep this connector on Kafka Connect",
    };
    format!(
        "the transform {class} is not offered (EventRouter, DecodeLogicalDecodingMessageContent, \
         RegexRouter, TimestampRouter, Filter, InsertHeader, DropHeaders, and HeaderFrom, \
         ReplaceField and ExtractField with $Value and $Key are); {instead}"
    )
}

/// A predicate that works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PredicateClass {
    TopicNameMatches,
    HasHeaderKey,
    RecordIsTombstone,
}

impl PredicateClass {
    /// The predicate of this class, or why there is none.
    pub(super) fn of(class: &str) -> Result<Self, String> {
        let class = class.trim();
        let name = class
            .strip_prefix("org.apache.kafka.connect.transforms.predicates.")
            .unwrap_or(class);
        match name {
            "TopicNameMatches" => Ok(Self::TopicNameMatches),
            "HasHeaderKey" => Ok(Self::HasHeaderKey),
            "RecordIsTombstone" => Ok(Self::RecordIsTombstone),
            "" => Err("a class is required".to_owned()),
            _ => Err(format!(
                "the predicate {class} is not offered; use TopicNameMatches, HasHeaderKey or \
                 RecordIsTombstone"
            )),
        }
    }
}

/// The converter of this class with its options still at their defaults, or why there is none.
pub(super) fn converter(class: &str) -> Result<Converter, String> {
    let class = class.trim();
    let simple = class.rsplit('.').next().unwrap_or(class);
    let package = class.strip_suffix(simple).unwrap_or_default();
    let known = match (package, simple) {
        ("org.apache.kafka.connect.storage." | "", "StringConverter") => Converter::String,
        ("org.apache.kafka.connect.json." | "", "JsonConverter") => {
            Converter::Json(JsonConverter {
                schemas: true,
                decimal_numeric: false,
                null_to_default: true,
            })
        }
        ("org.apache.kafka.connect.storage." | "", "SimpleHeaderConverter") => {
            Converter::SimpleHeader
        }
        ("io.debezium.converters." | "", "BinaryDataConverter" | "ByteBufferConverter")
        | ("io.debezium.converters.", "ByteArrayConverter") => Converter::BinaryData(None),
        ("org.apache.kafka.connect.converters." | "", simple) => match simple {
            "ByteArrayConverter" => Converter::ByteArray,
            "BooleanConverter" => Converter::Boolean,
            "ShortConverter" => Converter::Short,
            "IntegerConverter" => Converter::Integer,
            "LongConverter" => Converter::Long,
            "FloatConverter" => Converter::Float,
            "DoubleConverter" => Converter::Double,
            "" => return Err("a class is required".to_owned()),
            _ => return Err(refusal_of_converter(class, simple)),
        },
        _ => return Err(refusal_of_converter(class, simple)),
    };
    Ok(known)
}

fn refusal_of_converter(class: &str, simple: &str) -> String {
    match simple {
        "AvroConverter" | "ProtobufConverter" | "JsonSchemaConverter" | "ExtJsonConverter" => {
            format!(
                "{class} needs a schema registry, which is not offered yet; let the application \
                 write framed bytes into a bytea column and use \
                 io.debezium.converters.BinaryDataConverter"
            )
        }
        "CloudEventsConverter" => {
            format!("{class} is not offered; it writes tombstones for routed outbox events anyway")
        }
        _ => format!(
            "the converter {class} is not offered; use StringConverter, JsonConverter, \
             ByteArrayConverter, BinaryDataConverter or one of the number converters"
        ),
    }
}
