//! The schema and the codec of a column's type.

use std::sync::Arc;

use super::measure::{Measure, root};
use super::{Codec, Numeric, Precision};
use crate::config::{BinaryMode, DecimalMode, HstoreMode, IntervalMode, TimeMode, ValueOptions};
use crate::outbox::schema::{Field, Kind, Schema};
use crate::source::row::{PgType, PgTypeKind};

/// A required schema and how to read its values.
pub(in crate::outbox) type Described = (Schema, Codec);

/// Decides for a type of this measure; `None` when the router cannot see such columns.
pub(in crate::outbox) fn describe(
    pg_type: &PgType,
    measure: Measure,
    options: &ValueOptions,
) -> Option<Described> {
    let pg_type = root(pg_type);
    let known = match &pg_type.kind {
        PgTypeKind::Enum(labels) => Some(enumeration(labels)),
        PgTypeKind::Array(element) => return array(&pg_type.name, element, measure, options),
        PgTypeKind::Base | PgTypeKind::Range => base(pg_type, measure, options),
        PgTypeKind::Domain(..)
        | PgTypeKind::Composite
        | PgTypeKind::Multirange
        | PgTypeKind::Pseudo => None,
    };
    known.or_else(|| opaque(pg_type, options))
}

fn opaque(pg_type: &PgType, options: &ValueOptions) -> Option<Described> {
    if !options.include_unknown {
        return None;
    }
    let shape = pg_type.schema == "pg_catalog"
        && matches!(
            pg_type.name.as_str(),
            "box" | "circle" | "line" | "lseg" | "path" | "polygon"
        );
    let codec = if shape {
        Codec::OpaqueShape(options.binary)
    } else {
        Codec::Opaque(options.binary)
    };
    Some((binary_schema(options.binary), codec))
}

fn enumeration(labels: &[String]) -> Described {
    let schema =
        Schema::logical(Kind::String, "io.debezium.data.Enum").with("allowed", labels.join(","));
    (schema, Codec::Text)
}

fn base(pg_type: &PgType, measure: Measure, options: &ValueOptions) -> Option<Described> {
    if pg_type.schema == "pg_catalog" {
        built_in(&pg_type.name, measure, options)
    } else {
        extension(&pg_type.name, options)
    }
}

fn built_in(name: &str, measure: Measure, options: &ValueOptions) -> Option<Described> {
    let text = |name: &'static str| Some((Schema::logical(Kind::String, name), Codec::Text));
    let plain = |kind: Kind, codec: Codec| Some((Schema::new(kind), codec));
    match name {
        "bool" => plain(Kind::Boolean, Codec::Boolean),
        "int2" => plain(Kind::Int16, Codec::Int16),
        "int4" => plain(Kind::Int32, Codec::Int32),
        "int8" | "oid" => plain(Kind::Int64, Codec::Int64),
        "float4" => plain(Kind::Float32, Codec::Float32),
        "float8" => plain(Kind::Float64, Codec::Float64),
        "text" | "varchar" | "bpchar" | "char" | "inet" | "cidr" | "macaddr" | "macaddr8"
        | "int4range" | "int8range" | "numrange" | "tsrange" | "tstzrange" | "daterange" => {
            plain(Kind::String, Codec::Text)
        }
        // Debezium's stream has no reader for this type, though it has a schema.
        "name" if options.include_unknown => plain(Kind::String, Codec::Text),
        "name" => plain(Kind::String, Codec::Void),
        "uuid" => text("io.debezium.data.Uuid"),
        "json" | "jsonb" => text("io.debezium.data.Json"),
        "xml" => text("io.debezium.data.Xml"),
        "tsvector" => text("io.debezium.data.Tsvector"),
        "numeric" => Some(numeric(measure, options.decimal)),
        "money" => Some(money(options)),
        "bytea" => Some((binary_schema(options.binary), Codec::Bytea(options.binary))),
        "bit" | "varbit" if measure.length > 1 => Some((bits_schema(measure), Codec::Bits)),
        "bit" | "varbit" => plain(Kind::Boolean, Codec::Bit),
        "date" => Some((date_schema(options.time), Codec::Date(options.time))),
        "time" => Some(time(measure, options.time)),
        "timestamp" => Some(timestamp(measure, options.time)),
        "timetz" => Some((
            Schema::logical(Kind::String, "io.debezium.time.ZonedTime"),
            Codec::TimeZoned,
        )),
        "timestamptz" => Some((
            Schema::logical(Kind::String, "io.debezium.time.ZonedTimestamp"),
            Codec::TimestampZoned {
                digits: usize::try_from(measure.scale).unwrap_or(0),
            },
        )),
        "interval" => Some(interval(options.interval)),
        "point" => Some((point_schema(), Codec::Point)),
        _ => None,
    }
}

fn extension(name: &str, options: &ValueOptions) -> Option<Described> {
    match name {
        "citext" | "isbn" => Some((Schema::new(Kind::String), Codec::Text)),
        "ltree" => Some((
            Schema::logical(Kind::String, "io.debezium.data.Ltree"),
            Codec::Text,
        )),
        "hstore" => Some((hstore_schema(options.hstore), Codec::Hstore(options.hstore))),
        _ => None,
    }
}

/// Arrays that Debezium knows by name have optional items; for all others it forgets to say so.
fn array(
    name: &str,
    element: &PgType,
    measure: Measure,
    options: &ValueOptions,
) -> Option<Described> {
    let built_in = element.schema == "pg_catalog";
    let (item, codec) = match &element.kind {
        PgTypeKind::Enum(labels) => enumeration(labels),
        PgTypeKind::Base | PgTypeKind::Range => match element.name.as_str() {
            "money" | "name" | "interval" | "varbit" | "xml" | "point" | "refcursor"
                if built_in =>
            {
                return None;
            }
            // Its schema is that of a single value, which no list fits.
            "bit" if built_in => {
                let schema = if measure.length > 1 {
                    bits_schema(measure)
                } else {
                    Schema::new(Kind::Boolean)
                };
                return Some((schema, Codec::Array(Box::new(Codec::Bit))));
            }
            "tsvector" | "isbn" => base(element, measure, options)?,
            _ if matches!(name, "int2vector" | "oidvector") => base(element, measure, options)?,
            _ => match base(element, measure, options) {
                Some((item, codec)) => (item.or_null(), codec),
                None => opaque(element, options)?,
            },
        },
        _ => opaque(element, options)?,
    };
    Some((
        Schema::new(Kind::Array(Arc::new(item))),
        Codec::Array(Box::new(codec)),
    ))
}

fn numeric(measure: Measure, mode: DecimalMode) -> Described {
    let variable = measure.is_variable();
    let schema = match mode {
        DecimalMode::Double => Schema::new(Kind::Float64),
        DecimalMode::String => Schema::new(Kind::String),
        DecimalMode::Precise if variable => variable_decimal_schema(),
        DecimalMode::Precise => decimal_schema(measure.scale)
            .with("connect.decimal.precision", measure.length.to_string()),
    };
    let numeric = Numeric {
        mode,
        variable,
        scale: measure.scale,
    };
    (schema, Codec::Numeric(numeric))
}

fn money(options: &ValueOptions) -> Described {
    let digits = i32::from(options.money_fraction_digits);
    let schema = match options.decimal {
        DecimalMode::Double => Schema::new(Kind::Float64),
        DecimalMode::String => Schema::new(Kind::String),
        DecimalMode::Precise => decimal_schema(digits),
    };
    (
        schema,
        Codec::Money {
            mode: options.decimal,
            digits,
        },
    )
}

fn decimal_schema(scale: i32) -> Schema {
    Schema::logical(Kind::Bytes, "org.apache.kafka.connect.data.Decimal")
        .with("scale", scale.to_string())
}

/// A struct of scale and unscaled bytes.
fn variable_decimal_schema() -> Schema {
    let fields = vec![
        field("scale", Schema::new(Kind::Int32)),
        field("value", Schema::new(Kind::Bytes)),
    ];
    let mut schema = Schema::logical(
        Kind::Struct(fields),
        "io.debezium.data.VariableScaleDecimal",
    );
    schema.doc = Some("Variable scaled decimal");
    schema
}

/// A struct of coordinates, their WKB form and an SRID that Postgres' own type never has.
fn point_schema() -> Schema {
    let fields = vec![
        field("x", Schema::new(Kind::Float64)),
        field("y", Schema::new(Kind::Float64)),
        field("wkb", Schema::optional(Kind::Bytes)),
        field("srid", Schema::optional(Kind::Int32)),
    ];
    let mut schema = Schema::logical(Kind::Struct(fields), "io.debezium.data.geometry.Point");
    schema.doc = Some("Geometry (POINT)");
    schema
}

fn field(name: &'static str, schema: Schema) -> Field {
    Field {
        name: name.into(),
        schema: Arc::new(schema),
    }
}

fn binary_schema(mode: BinaryMode) -> Schema {
    Schema::new(match mode {
        BinaryMode::Bytes => Kind::Bytes,
        BinaryMode::Base64 | BinaryMode::Base64UrlSafe | BinaryMode::Hex => Kind::String,
    })
}

fn bits_schema(measure: Measure) -> Schema {
    Schema::logical(Kind::Bytes, "io.debezium.data.Bits").with("length", measure.length.to_string())
}

fn date_schema(mode: TimeMode) -> Schema {
    match mode {
        TimeMode::IsoString => Schema::logical(Kind::String, "io.debezium.time.IsoDate"),
        TimeMode::Connect => Schema::logical(Kind::Int32, "org.apache.kafka.connect.data.Date"),
        TimeMode::Adaptive
        | TimeMode::AdaptiveTimeMicroseconds
        | TimeMode::Microseconds
        | TimeMode::Nanoseconds => Schema::logical(Kind::Int32, "io.debezium.time.Date"),
    }
}

fn precision(measure: Measure) -> Precision {
    if measure.scale <= 3 {
        Precision::Millis
    } else {
        Precision::Micros
    }
}

fn time(measure: Measure, mode: TimeMode) -> Described {
    let precision = precision(measure);
    let (kind, name) = match (mode, precision) {
        (TimeMode::Adaptive, Precision::Millis) => (Kind::Int32, "io.debezium.time.Time"),
        (TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds, _) => {
            (Kind::Int64, "io.debezium.time.MicroTime")
        }
        (TimeMode::Nanoseconds, _) => (Kind::Int64, "io.debezium.time.NanoTime"),
        (TimeMode::IsoString, _) => (Kind::String, "io.debezium.time.IsoTime"),
        (TimeMode::Connect, _) => (Kind::Int32, "org.apache.kafka.connect.data.Time"),
    };
    (Schema::logical(kind, name), Codec::Time(mode, precision))
}

fn timestamp(measure: Measure, mode: TimeMode) -> Described {
    let precision = precision(measure);
    let (kind, name) = match (mode, precision) {
        (TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds, Precision::Millis) => {
            (Kind::Int64, "io.debezium.time.Timestamp")
        }
        (TimeMode::Adaptive | TimeMode::AdaptiveTimeMicroseconds | TimeMode::Microseconds, _) => {
            (Kind::Int64, "io.debezium.time.MicroTimestamp")
        }
        (TimeMode::Nanoseconds, _) => (Kind::Int64, "io.debezium.time.NanoTimestamp"),
        (TimeMode::IsoString, _) => (Kind::String, "io.debezium.time.IsoTimestamp"),
        (TimeMode::Connect, _) => (Kind::Int64, "org.apache.kafka.connect.data.Timestamp"),
    };
    (
        Schema::logical(kind, name),
        Codec::Timestamp(mode, precision),
    )
}

fn interval(mode: IntervalMode) -> Described {
    let schema = match mode {
        IntervalMode::Numeric => Schema::logical(Kind::Int64, "io.debezium.time.MicroDuration"),
        IntervalMode::String => Schema::logical(Kind::String, "io.debezium.time.Interval"),
    };
    (schema, Codec::Interval(mode))
}

fn hstore_schema(mode: HstoreMode) -> Schema {
    match mode {
        HstoreMode::Json => Schema::logical(Kind::String, "io.debezium.data.Json"),
        HstoreMode::Map => Schema::new(Kind::Map(
            Arc::new(Schema::new(Kind::String)),
            Arc::new(Schema::optional(Kind::String)),
        )),
    }
}
