//! What the golden cases do not hold: arrays of times, values that are not there, foreign text.

use std::sync::Arc;

use super::{Codec, Measure, Origin, describe};
use crate::config::{
    BinaryMode, DecimalMode, FailureMode, HstoreMode, IntervalMode, NameAdjustment, TimeMode,
    ValueOptions,
};
use crate::outbox::schema::Schema;
use crate::outbox::value::{Value, fits};
use crate::source::row::{PgType, PgTypeKind};

fn options() -> ValueOptions {
    ValueOptions {
        binary: BinaryMode::Bytes,
        decimal: DecimalMode::Precise,
        time: TimeMode::Adaptive,
        interval: IntervalMode::Numeric,
        hstore: HstoreMode::Json,
        money_fraction_digits: 2,
        include_unknown: false,
        unavailable_placeholder: b"gone".to_vec(),
        converting_failure: FailureMode::Fail,
        schema_names: NameAdjustment::None,
        field_names: NameAdjustment::None,
    }
}

fn base(name: &str) -> PgType {
    PgType {
        oid: 0,
        schema: "pg_catalog".to_owned(),
        name: name.to_owned(),
        kind: PgTypeKind::Base,
    }
}

fn array(element: PgType) -> PgType {
    PgType {
        name: format!("_{}", element.name),
        kind: PgTypeKind::Array(Arc::new(element)),
        ..base("")
    }
}

fn described(pg_type: &PgType, modifier: i32) -> Option<(Arc<Schema>, Codec)> {
    let (schema, codec) = describe(pg_type, Measure::of(pg_type, modifier), &options())?;
    Some((Arc::new(schema), codec))
}

/// The value as a header of SimpleHeaderConverter.
fn read(pg_type: &PgType, text: &str) -> Option<String> {
    let (schema, codec) = described(pg_type, -1)?;
    let decoded = codec.decode(&schema, text, Origin::Stream).ok()?;
    let converter = crate::config::Converter::SimpleHeader;
    let bytes = crate::outbox::convert::convert(&converter, None, decoded.value).unwrap();
    bytes.map(|bytes| String::from_utf8(bytes.into_owned()).unwrap())
}

#[test]
fn arrays_lose_what_javas_old_classes_lose() {
    let item = |name, text| read(&array(base(name)), text).unwrap();
    assert_eq!(item("time", "{01:02:03.456789,24:00:00}"), "[3723456000,0]");
    assert_eq!(item("timetz", "{01:02:03.456+00}"), "[\"01:02:03Z\"]");
    assert_eq!(item("date", "{\"0044-03-15 BC\"}"), "[-703383]");
    assert_eq!(
        item("timestamp", "{\"1582-10-04 00:00:00\"}"),
        "[-12219379200000000]"
    );
    assert_eq!(
        item("timestamptz", "{\"0044-03-15 00:00:00+00 BC\"}"),
        "[\"0044-03-15T00:00:00.000000Z\"]"
    );
    assert_eq!(read(&array(base("numeric")), "{1,NaN}"), None);
}

#[test]
fn some_types_are_not_seen() {
    for pg_type in [
        base("box"),
        base("pg_lsn"),
        array(base("money")),
        array(base("interval")),
        array(PgType {
            kind: PgTypeKind::Domain(Arc::new(base("text")), -1),
            ..base("d")
        }),
    ] {
        assert!(described(&pg_type, -1).is_none(), "{}", pg_type.name);
    }
}

#[test]
fn a_list_does_not_fit_the_schema_of_a_bit_array() {
    let (schema, codec) = described(&array(base("bit")), 1).unwrap();
    assert!(codec.decode(&schema, "{0,1}", Origin::Stream).is_err());
}

#[test]
fn lengths_follow_the_driver() {
    let measure = |name: &str, modifier| {
        let measure = Measure::of(&base(name), modifier);
        (measure.length, measure.scale)
    };
    assert_eq!(measure("varchar", 259), (255, 0));
    assert_eq!(measure("jsonb", -1), (i32::MAX, 0));
    assert_eq!(measure("numeric", (8 << 16 | 2) + 4), (8, 2));
    assert_eq!(measure("numeric", -1), (131_089, 0));
    assert_eq!(measure("timestamp", -1), (29, 6));
    assert_eq!(measure("timestamp", 3), (26, 3));
    assert_eq!(measure("int4", -1), (10, 0));
}

const NAMES: [&str; 24] = [
    "bool",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "money",
    "text",
    "uuid",
    "bytea",
    "bit",
    "varbit",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "point",
    "jsonb",
    "inet",
    "tsvector",
    "name",
];

#[test]
fn stand_ins_for_null_fit_their_schema() {
    for name in NAMES {
        for pg_type in [base(name), array(base(name))] {
            let Some((schema, codec)) = described(&pg_type, -1) else {
                continue;
            };
            if pg_type.name == "_bit" {
                continue;
            }
            let value = codec.fallback(&schema);
            assert!(fits(&schema, &value), "{}: {value:?}", pg_type.name);
        }
    }
}

#[test]
fn a_value_not_sent_reads_as_the_placeholder_where_the_type_can_hold_it() {
    let unavailable = |pg_type: &PgType| {
        let (_, codec) = described(pg_type, -1).unwrap();
        codec
            .unavailable(&pg_type.name, b"gone")
            .ok()
            .map(Value::into_owned)
    };
    assert_eq!(
        unavailable(&base("jsonb")),
        Some(Value::String("gone".into()))
    );
    assert_eq!(
        unavailable(&array(base("text"))),
        Some(Value::List(vec![Value::String("gone".into())]))
    );
    assert_eq!(
        unavailable(&array(base("int4"))),
        Some(Value::List(
            b"gone".map(|byte| Value::Int32(i32::from(byte))).to_vec()
        ))
    );
    assert_eq!(unavailable(&base("numeric")), None);
    let (_, text) = described(&base("text"), -1).unwrap();
    assert_eq!(
        text.unavailable("text", &[b'a', 0xff]),
        Ok(Value::String("a\u{fffd}".into()))
    );
}

proptest::proptest! {
    #[test]
    fn no_text_panics_whatever_the_type(text in "\\PC{0,24}", at in 0..NAMES.len(), listed: bool) {
        let pg_type = if listed { array(base(NAMES[at])) } else { base(NAMES[at]) };
        if let Some((schema, codec)) = described(&pg_type, -1) {
            for origin in [Origin::Stream, Origin::Snapshot, Origin::Element] {
                let _ = codec.decode(&schema, &text, origin);
            }
        }
    }
}
