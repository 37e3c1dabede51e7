//! How values are written: by type, and by converter.

/// How column values become Connect values.
#[derive(Debug, Clone)]
pub struct ValueOptions {
    /// `binary.handling.mode`.
    pub binary: BinaryMode,
    /// `decimal.handling.mode`.
    pub decimal: DecimalMode,
    /// `time.precision.mode`.
    pub time: TimeMode,
    /// `interval.handling.mode`.
    pub interval: IntervalMode,
    /// `hstore.handling.mode`.
    pub hstore: HstoreMode,
    /// `money.fraction.digits`.
    pub money_fraction_digits: u16,
    /// `include.unknown.datatypes`.
    pub include_unknown: bool,
    /// `unavailable.value.placeholder`, the bytes behind `hex:` where it begins like that.
    pub unavailable_placeholder: Vec<u8>,
    /// `event.converting.failure.handling.mode`.
    pub converting_failure: FailureMode,
    /// `schema.name.adjustment.mode`.
    pub schema_names: NameAdjustment,
    /// `field.name.adjustment.mode` of the connector.
    pub field_names: NameAdjustment,
}

/// `binary.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum BinaryMode {
    Bytes,
    Base64,
    Base64UrlSafe,
    Hex,
}

/// `decimal.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum DecimalMode {
    Precise,
    Double,
    String,
}

/// `time.precision.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum TimeMode {
    Adaptive,
    AdaptiveTimeMicroseconds,
    Connect,
    IsoString,
    Microseconds,
    Nanoseconds,
}

/// `interval.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum IntervalMode {
    Numeric,
    String,
}

/// `hstore.handling.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum HstoreMode {
    Json,
    Map,
}

/// `event.converting.failure.handling.mode`: a value that does not fit its Connect type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureMode {
    /// The event is poison (our default).
    Fail,
    /// Warn and go on with NULL, as Debezium does.
    Warn,
    /// Go on with NULL in silence.
    Skip,
}

/// `*.name.adjustment.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the property's values")]
pub enum NameAdjustment {
    None,
    Avro,
    AvroUnicode,
}

/// Where the record timestamp comes from when `table.field.event.timestamp` is unset or NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordTime {
    /// The transaction's commit time (our default: the same after a restart).
    Commit,
    /// The wall clock when the row was processed, as Debezium does.
    Processing,
}

/// The three converters.
#[derive(Debug, Clone)]
pub struct Converters {
    /// `key.converter`.
    pub key: Converter,
    /// `value.converter`.
    pub value: Converter,
    /// `header.converter`.
    pub header: Converter,
}

/// A converter of Connect or Debezium.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Converter {
    /// `StringConverter`.
    String,
    /// `JsonConverter`.
    Json(JsonConverter),
    /// `ByteArrayConverter`.
    ByteArray,
    /// Debezium's `BinaryDataConverter` with its delegate.
    BinaryData(Option<Box<Converter>>),
    /// `SimpleHeaderConverter`.
    SimpleHeader,
    /// `BooleanConverter`.
    Boolean,
    /// `ShortConverter`.
    Short,
    /// `IntegerConverter`.
    Integer,
    /// `LongConverter`.
    Long,
    /// `FloatConverter`.
    Float,
    /// `DoubleConverter`.
    Double,
}

/// Options of `JsonConverter`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonConverter {
    /// `schemas.enable`.
    pub schemas: bool,
    /// `decimal.format` is `NUMERIC`.
    pub decimal_numeric: bool,
    /// `replace.null.with.default`.
    pub null_to_default: bool,
}
