//! Expansion of documents.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

fn options() -> Expand {
    Expand {
        keep_nulls: false,
        keep_empty_arrays: false,
        field_names: NameAdjustment::None,
    }
}

fn schema_text(options: &Expand, text: &str) -> String {
    match expand(options, "payload", &mut LastSchema::default(), text) {
        Expansion::Expanded(schema, _) => schema.json(false).to_owned(),
        other => panic!("{text} became {other:?}"),
    }
}

#[test]
fn structs_are_named_by_their_path() {
    let text = schema_text(&options(), "{\"a\": {\"b\": 1}, \"l\": [{\"c\": {}}]}");
    for name in ["payload", "payload.a", "payload.l", "payload.l.c"] {
        assert!(text.contains(&format!("\"name\":\"{name}\"")), "{text}");
    }
}

#[test]
fn nulls_and_empty_arrays_are_left_out_unless_kept() {
    let document = "{\"a\": null, \"b\": []}";
    assert!(schema_text(&options(), document).contains("\"fields\":[]"));
    let kept = Expand {
        keep_nulls: true,
        keep_empty_arrays: true,
        ..options()
    };
    let text = schema_text(&kept, document);
    assert!(text.contains("{\"type\":\"bytes\",\"optional\":true,\"field\":\"a\"}"));
    assert!(text.contains("\"items\":{\"type\":\"string\",\"optional\":true}"));
}

#[test]
fn a_kept_empty_array_takes_the_type_of_a_later_one() {
    let kept = Expand {
        keep_empty_arrays: true,
        ..options()
    };
    let document = "{\"rows\": [{\"tags\": []}, {\"tags\": [{\"k\": 1}]}, {\"tags\": []}]}";
    let text = schema_text(&kept, document);
    assert!(text.contains("\"name\":\"payload.rows.tags\""), "{text}");
}

#[test]
fn documents_without_one_schema_stay_text() {
    for text in [
        "\"str\"",
        "12",
        "",
        " {\"a\": 1}",
        "{bad",
        "{\"\": 3}",
        "{\"a\": [1, \"x\"]}",
        "{\"a\": [1, 2.5]}",
        "{\"a\": [1, 3000000000]}",
        "{\"a\": [null, null]}",
        "{\"a\": [[], [1]]}",
    ] {
        assert_eq!(
            expand(&options(), "payload", &mut LastSchema::default(), text),
            Expansion::Unchanged,
            "{text}"
        );
    }
}

#[test]
fn some_documents_change_their_schema_only() {
    for text in [
        "[1, 2]",
        "[{\"a\": 1}]",
        "{\"a\": 12345678901234567890}",
        "{\"a\": [[1], [\"x\"]]}",
    ] {
        assert!(
            matches!(
                expand(&options(), "payload", &mut LastSchema::default(), text),
                Expansion::SchemaOnly(Some(_))
            ),
            "{text}"
        );
    }
    assert_eq!(
        expand(&options(), "payload", &mut LastSchema::default(), "[]"),
        Expansion::SchemaOnly(None)
    );
}

#[test]
fn messages_must_be_objects() {
    assert!(decode(false, "{}").is_some());
    for text in ["", "hello", "[]", "[1]", "{\"a\": 1"] {
        assert!(decode(false, text).is_none(), "{text}");
    }
}

fn document() -> impl Strategy<Value = String> {
    let scalar = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        Just("1".to_owned()),
        Just("3000000000".to_owned()),
        Just("1.5".to_owned()),
        Just("\"text\"".to_owned()),
        Just("[]".to_owned()),
        Just("{}".to_owned()),
    ];
    scalar.prop_recursive(3, 12, 3, |inner| {
        let name = prop_oneof![Just("a"), Just("b"), Just("b-c"), Just("")];
        let member = (name, inner.clone()).prop_map(|(name, value)| format!("\"{name}\":{value}"));
        prop_oneof![
            vec(inner, 0..3).prop_map(|items| format!("[{}]", items.join(","))),
            vec(member, 0..4).prop_map(|members| format!("{{{}}}", members.join(","))),
        ]
    })
}

proptest! {
    #[test]
    fn documents_before_change_nothing(
        documents in vec(document(), 1..8),
        keep_nulls: bool,
        keep_empty_arrays: bool,
        avro: bool,
    ) {
        let field_names = if avro { NameAdjustment::Avro } else { NameAdjustment::None };
        let options = Expand { keep_nulls, keep_empty_arrays, field_names };
        let mut last = LastSchema::default();
        for text in &documents {
            let fresh = expand(&options, "payload", &mut LastSchema::default(), text);
            prop_assert_eq!(expand(&options, "payload", &mut last, text), fresh);
        }
    }
}

#[test]
fn the_same_layout_is_inferred_once() {
    let mut last = LastSchema::default();
    let mut schema = |text: &'static str| match expand(&options(), "payload", &mut last, text) {
        Expansion::Expanded(schema, _) => schema,
        other => panic!("{text} became {other:?}"),
    };
    let first = schema(r#"{"a": 1, "b": [{"c": "x"}], "d": null}"#);
    let second = schema(r#"{"a": 2, "b": [{"c": "y"}, {"c": ""}]}"#);
    assert!(Arc::ptr_eq(&first, &second));
    assert!(!Arc::ptr_eq(
        &first,
        &schema(r#"{"a": 2.5, "b": [{"c": "y"}]}"#)
    ));
}
