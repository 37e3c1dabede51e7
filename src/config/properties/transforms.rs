//! What every transform has, and the options of those that may stand beside the router.

use super::{Family, Kind, Property, works};

/// Common to all transforms.
pub(in super::super) static TRANSFORM: Family = Family {
    title: "Transforms",
    intro: "Common to all entries of `transforms`. The classes that work are the Event Router, \
            `DecodeLogicalDecodingMessageContent`, `RegexRouter`, `TimestampRouter`, `Filter`, \
            `InsertHeader`, `DropHeaders`, and `HeaderFrom`, `ReplaceField` and `ExtractField` with \
            `$Value` and `$Key`; any other is refused by name. Those that read the key, the value or \
            the timestamp stand behind the router.",
    prefix: "transforms.<alias>.",
    properties: &[
        works(
            "type",
            Kind::Class,
            "",
            "Class of the transform, full or short.",
        ),
        works(
            "predicate",
            Kind::Text,
            "",
            "Apply it only to records for which this predicate holds.",
        ),
        works(
            "negate",
            Kind::Flag,
            "false",
            "Apply it where the predicate does not hold.",
        ),
    ],
};

/// `RegexRouter`.
pub(in super::super) static REGEX_ROUTER: Family = Family {
    title: "RegexRouter",
    intro: "Options of `org.apache.kafka.connect.transforms.RegexRouter`.",
    prefix: "transforms.<alias>.",
    properties: &[
        works(
            "regex",
            Kind::Regex,
            "",
            "Expression that the whole topic must match. Required.",
        ),
        works(
            "replacement",
            Kind::Text,
            "",
            "New topic, in the replacement syntax of Java. Required.",
        ),
    ],
};

/// `InsertHeader`.
pub(in super::super) static INSERT_HEADER: Family = Family {
    title: "InsertHeader",
    intro: "Options of `org.apache.kafka.connect.transforms.InsertHeader`.",
    prefix: "transforms.<alias>.",
    properties: &[
        works("header", Kind::Text, "", "Name of the header. Required."),
        works("value.literal", Kind::Text, "", "Its value. Required."),
    ],
};

/// `DropHeaders`.
pub(in super::super) static DROP_HEADERS: Family = Family {
    title: "DropHeaders",
    intro: "Options of `org.apache.kafka.connect.transforms.DropHeaders`.",
    prefix: "transforms.<alias>.",
    properties: &[works(
        "headers",
        Kind::List,
        "",
        "Names of the headers to drop. Required.",
    )],
};

/// `HeaderFrom$Value` and `HeaderFrom$Key`.
pub(in super::super) static HEADER_FROM: Family = Family {
    title: "HeaderFrom",
    intro: "Options of `org.apache.kafka.connect.transforms.HeaderFrom$Value` and `$Key`.",
    prefix: "transforms.<alias>.",
    properties: &[
        works("fields", Kind::List, "", "Fields to take. Required."),
        works(
            "headers",
            Kind::List,
            "",
            "Header names, one for each field. Required.",
        ),
        works(
            "operation",
            Kind::Choice(&["move", "copy"]),
            "",
            "Whether the field stays. Required.",
        ),
        NULL_TO_DEFAULT,
    ],
};

const NULL_TO_DEFAULT: Property = works(
    "replace.null.with.default",
    Kind::Flag,
    "true",
    "Take a column's default where the value is NULL.",
);

/// `Filter`.
pub(in super::super) static FILTER: Family = Family {
    title: "Filter",
    intro: "`org.apache.kafka.connect.transforms.Filter` drops every record that its predicate \
            holds for, and has no options of its own. Without a predicate it drops everything.",
    prefix: "transforms.<alias>.",
    properties: &[],
};

/// `ReplaceField$Value` and `ReplaceField$Key`.
pub(in super::super) static REPLACE_FIELD: Family = Family {
    title: "ReplaceField",
    intro: "Options of `org.apache.kafka.connect.transforms.ReplaceField$Value` and `$Key`, which \
            need a struct: an envelope, or an expanded payload.",
    prefix: "transforms.<alias>.",
    properties: &[
        works(
            "exclude",
            Kind::List,
            "",
            "Fields to leave out, also those that `include` names.",
        ),
        works(
            "include",
            Kind::List,
            "",
            "Fields to keep; without it, all.",
        ),
        works(
            "renames",
            Kind::List,
            "",
            "Fields to rename, as `old:new`. `exclude` and `include` mean the old names.",
        ),
        NULL_TO_DEFAULT,
    ],
};

/// `ExtractField$Value` and `ExtractField$Key`.
pub(in super::super) static EXTRACT_FIELD: Family = Family {
    title: "ExtractField",
    intro: "Options of `org.apache.kafka.connect.transforms.ExtractField$Value` and `$Key`, which \
            need a struct: an envelope, or an expanded payload.",
    prefix: "transforms.<alias>.",
    properties: &[
        works(
            "field",
            Kind::Text,
            "",
            "Field that becomes the whole value. Required.",
        ),
        works(
            "field.syntax.version",
            Kind::Choice(&["V1", "V2"]),
            "V1",
            "How `field` is read: `V1` is a plain name.",
        )
        .refusing(&[(
            "V2",
            "paths are not offered; extract one field after the other",
        )]),
        NULL_TO_DEFAULT,
    ],
};

/// `TimestampRouter`.
pub(in super::super) static TIMESTAMP_ROUTER: Family = Family {
    title: "TimestampRouter",
    intro: "Options of `org.apache.kafka.connect.transforms.TimestampRouter`, which puts the \
            record's timestamp into the topic.",
    prefix: "transforms.<alias>.",
    properties: &[
        works(
            "topic.format",
            Kind::Text,
            "${topic}-${timestamp}",
            "New topic; `${topic}` and `${timestamp}` are replaced.",
        ),
        works(
            "timestamp.format",
            Kind::DatePattern,
            "yyyyMMdd",
            "How the timestamp is written, in UTC: a pattern of Java's `SimpleDateFormat`. Letters \
             that depend on a country's weeks (`w`, `W`, `F`, `Y`) are refused.",
        ),
    ],
};

/// `DecodeLogicalDecodingMessageContent`.
pub(in super::super) static DECODE: Family = Family {
    title: "DecodeLogicalDecodingMessageContent",
    intro: "Options of `io.debezium.connector.postgresql.transforms.\
            DecodeLogicalDecodingMessageContent`, which stands before the router when events are \
            written with `pg_logical_emit_message` instead of a table.",
    prefix: "transforms.<alias>.",
    properties: &[works(
        "fields.null.include",
        Kind::Flag,
        "false",
        "Keep members of the message that are null.",
    )],
};
