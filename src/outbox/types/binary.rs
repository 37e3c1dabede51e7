//! Bytes and bits.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};

use crate::config::BinaryMode;
use crate::outbox::value::Value;

/// Bytes as `binary.handling.mode` wants them.
pub(super) fn present(mode: BinaryMode, bytes: Cow<'_, [u8]>) -> Value<'_> {
    match mode {
        BinaryMode::Bytes => Value::Buffer(bytes),
        BinaryMode::Base64 => Value::String(STANDARD.encode(bytes).into()),
        BinaryMode::Base64UrlSafe => Value::String(URL_SAFE.encode(bytes).into()),
        BinaryMode::Hex => {
            const DIGITS: &[u8; 16] = b"0123456789abcdef";
            let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
            let text: String = bytes
                .iter()
                .flat_map(|&byte| [digit(byte >> 4), digit(byte)])
                .collect();
            Value::String(text.into())
        }
    }
}

/// Reads Postgres' `\x0aff`.
pub(super) fn parse_bytea(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("\\x")?.as_bytes();
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    digits
        .chunks(2)
        .map(|pair| match pair {
            &[high, low] => Some(nibble(high)? << 4 | nibble(low)?),
            _ => None,
        })
        .collect()
}

/// Reads `0101` into little-endian bytes; bytes without a bit set are left off at the end.
pub(super) fn parse_bits(text: &str) -> Option<Vec<u8>> {
    let mut bytes = vec![0_u8; text.len().div_ceil(8)];
    for (at, bit) in text.bytes().rev().enumerate() {
        match bit {
            b'1' => *bytes.get_mut(at / 8)? |= 1 << (at % 8),
            b'0' => {}
            _ => return None,
        }
    }
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    Some(bytes)
}

/// A point in well-known binary form, little-endian.
pub(super) fn point_wkb(x: f64, y: f64) -> Vec<u8> {
    let mut wkb = vec![1, 1, 0, 0, 0];
    wkb.extend(x.to_le_bytes());
    wkb.extend(y.to_le_bytes());
    wkb
}
