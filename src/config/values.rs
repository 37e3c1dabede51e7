//! How column values become Connect values: the `*.handling.mode` properties and their kin.

use super::settings::View;
use super::transforms::adjustment;
use super::validated::{
    BinaryMode, DecimalMode, FailureMode, HstoreMode, IntervalMode, TimeMode, ValueOptions,
};

/// Reads the handling modes.
pub(super) fn read(view: &View<'_>) -> ValueOptions {
    ValueOptions {
        binary: match view.choice("binary.handling.mode") {
            "base64" => BinaryMode::Base64,
            "base64-url-safe" => BinaryMode::Base64UrlSafe,
            "hex" => BinaryMode::Hex,
            _ => BinaryMode::Bytes,
        },
        decimal: match view.choice("decimal.handling.mode") {
            "double" => DecimalMode::Double,
            "string" => DecimalMode::String,
            _ => DecimalMode::Precise,
        },
        time: match view.choice("time.precision.mode") {
            "adaptive_time_microseconds" => TimeMode::AdaptiveTimeMicroseconds,
            "connect" => TimeMode::Connect,
            "isostring" => TimeMode::IsoString,
            "microseconds" => TimeMode::Microseconds,
            "nanoseconds" => TimeMode::Nanoseconds,
            _ => TimeMode::Adaptive,
        },
        interval: match view.choice("interval.handling.mode") {
            "string" => IntervalMode::String,
            _ => IntervalMode::Numeric,
        },
        hstore: match view.choice("hstore.handling.mode") {
            "map" => HstoreMode::Map,
            _ => HstoreMode::Json,
        },
        money_fraction_digits: view.number("money.fraction.digits"),
        include_unknown: view.flag("include.unknown.datatypes"),
        unavailable_placeholder: bytes(view.text("unavailable.value.placeholder")),
        converting_failure: match view.choice("event.converting.failure.handling.mode") {
            "warn" => FailureMode::Warn,
            "skip" => FailureMode::Skip,
            _ => FailureMode::Fail,
        },
        schema_names: adjustment(view.choice("schema.name.adjustment.mode")),
        field_names: adjustment(view.choice("field.name.adjustment.mode")),
    }
}

/// What follows `hex:`, digits in pairs; any other text as it is.
fn bytes(text: String) -> Vec<u8> {
    let pairs = |digits: &str| -> Option<Vec<u8>> {
        let digit = |byte: &u8| {
            char::from(*byte)
                .to_digit(16)
                .and_then(|digit| u8::try_from(digit).ok())
        };
        digits
            .as_bytes()
            .chunks(2)
            .map(|pair| match pair {
                [high, low] => Some(digit(high)? << 4 | digit(low)?),
                _ => None,
            })
            .collect()
    };
    match text.strip_prefix("hex:").and_then(pairs) {
        Some(bytes) => bytes,
        None => text.into_bytes(),
    }
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn a_placeholder_may_be_given_in_hexadecimal() {
        assert_eq!(bytes("hex:0aFF".to_owned()), [0x0a, 0xff]);
        assert_eq!(bytes("hex:0".to_owned()), b"hex:0");
        assert_eq!(bytes("gone".to_owned()), b"gone");
    }
}
