//! Numbers, decimals, hash order and text as Java prints them, since consumers see that text.

mod float;

use std::borrow::Cow;
use std::fmt::Write as _;

pub(super) use float::{write_f32, write_f64};

use num_bigint::BigInt;

/// Appends what `value` displays.
pub(super) fn put(out: &mut String, value: impl std::fmt::Display) {
    // Writing to a String cannot fail.
    let _ = write!(out, "{value}");
}

/// `BigDecimal`: an unscaled integer and the number of digits behind the point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    unscaled: BigInt,
    scale: i32,
}

/// More than a `numeric` can have digits, of which 131,072 may stand before the point: a few bytes
/// must not ask for gigabytes of zeros.
const EXPONENT: u32 = 200_000;

impl Decimal {
    /// Reads a number as `new BigDecimal(String)` does: digits, a point, an exponent; `None` also
    /// beyond what Postgres could have meant.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (number, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
            None => (text, 0),
        };
        if exponent.unsigned_abs() > EXPONENT {
            return None;
        }
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = format!("{whole}{fraction}");
        let bare = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
        if bare.is_empty() || !bare.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let scale = i32::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
        Some(Self {
            unscaled: digits.parse().ok()?,
            scale,
        })
    }

    /// `setScale(scale)`: `None` when digits would be lost.
    pub(super) fn with_scale(&self, scale: i32) -> Option<Self> {
        if scale >= self.scale {
            return Some(self.widened(scale));
        }
        let divisor = BigInt::from(10).pow((self.scale - scale).unsigned_abs());
        let quotient = &self.unscaled / &divisor;
        (&quotient * &divisor == self.unscaled).then_some(Self {
            unscaled: quotient,
            scale,
        })
    }

    /// `setScale(scale, HALF_UP)`.
    pub(super) fn rounded_half_up(&self, scale: i32) -> Self {
        if scale >= self.scale {
            return self.widened(scale);
        }
        let divisor = BigInt::from(10).pow((self.scale - scale).unsigned_abs());
        let half: BigInt = &divisor / 2;
        let magnitude = (self.unscaled.magnitude() + half.magnitude()) / divisor.magnitude();
        Self {
            unscaled: BigInt::from_biguint(self.unscaled.sign(), magnitude),
            scale,
        }
    }

    fn widened(&self, scale: i32) -> Self {
        let factor = BigInt::from(10).pow((scale - self.scale).unsigned_abs());
        Self {
            unscaled: &self.unscaled * factor,
            scale,
        }
    }

    /// `stripTrailingZeros`, but never with a negative scale.
    pub(super) fn stripped(&self) -> Self {
        let mut stripped = self.clone();
        while stripped.scale > 0 {
            match stripped.with_scale(stripped.scale - 1) {
                Some(shorter) => stripped = shorter,
                None => break,
            }
        }
        if stripped.scale < 0 {
            stripped = stripped.widened(0);
        }
        stripped
    }

    /// Digits behind the point.
    pub(super) fn scale(&self) -> i32 {
        self.scale
    }

    /// The unscaled integer as Connect stores it: big-endian two's complement, shortest form.
    pub(super) fn unscaled_bytes(&self) -> Vec<u8> {
        self.unscaled.to_signed_bytes_be()
    }

    /// `doubleValue`.
    pub(super) fn to_f64(&self) -> f64 {
        format!("{}e{}", self.unscaled, -i64::from(self.scale))
            .parse()
            .unwrap_or(f64::NAN)
    }

    /// `toPlainString`.
    pub(super) fn plain(&self) -> String {
        let (sign, digits) = self.parts();
        let mut out = String::from(sign);
        match usize::try_from(self.scale) {
            Ok(0) => out.push_str(&digits),
            Ok(scale) => {
                let padded = format!("{digits:0>width$}", width = scale + 1);
                let point = padded.len() - scale;
                out.push_str(&padded[..point]);
                out.push('.');
                out.push_str(&padded[point..]);
            }
            Err(_) => {
                out.push_str(&digits);
                if digits != "0" {
                    out.extend(std::iter::repeat_n('0', self.scale.unsigned_abs() as usize));
                }
            }
        }
        out
    }

    fn parts(&self) -> (&'static str, String) {
        let text = self.unscaled.to_string();
        match text.strip_prefix('-') {
            Some(digits) => ("-", digits.to_owned()),
            None => ("", text),
        }
    }
}

/// `BigDecimal.toString`: scientific when the scale is negative or the number very small.
impl std::fmt::Display for Decimal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (sign, digits) = self.parts();
        let adjusted = i64::try_from(digits.len()).unwrap_or(i64::MAX) - 1 - i64::from(self.scale);
        if self.scale >= 0 && adjusted >= -6 {
            return f.write_str(&self.plain());
        }
        let (first, rest) = digits.split_at(1);
        f.write_str(sign)?;
        f.write_str(first)?;
        if !rest.is_empty() {
            write!(f, ".{rest}")?;
        }
        if adjusted != 0 {
            write!(f, "E{adjusted:+}")?;
        }
        Ok(())
    }
}

/// Capacity of an empty Java `HashMap`; it doubles.
const MAP_CAPACITY: usize = 16;
/// Below this capacity, a bucket with more than `BUCKET_MAX` entries doubles it.
const CROWDED_CAPACITY: usize = 64;
const BUCKET_MAX: usize = 8;

/// Puts the entries of a map into the order in which a Java `HashMap` with string keys is walked,
/// if they were put into it one after the other. Keys must be distinct. (Of more than eight keys
/// that collide in a large map Java would make a tree, which is walked in yet another order.)
pub(super) fn sort_like_hash_map<V>(entries: &mut [(String, V)]) {
    let hashes: Vec<usize> = entries.iter().map(|(key, _)| hash(key)).collect();
    let mut capacity = MAP_CAPACITY;
    let mut buckets = vec![0_usize; capacity];
    for (at, hash) in hashes.iter().enumerate() {
        let before = capacity;
        let bucket = buckets.get_mut(hash & (capacity - 1));
        let filled = bucket.map_or(0, |count| {
            *count += 1;
            *count
        });
        if filled > BUCKET_MAX && capacity < CROWDED_CAPACITY {
            capacity *= 2;
        }
        if (at + 1) * 4 > capacity * 3 {
            capacity *= 2;
        }
        if capacity > before {
            buckets = vec![0; capacity];
            for hash in hashes.iter().take(at + 1) {
                if let Some(count) = buckets.get_mut(hash & (capacity - 1)) {
                    *count += 1;
                }
            }
        }
    }
    entries.sort_by_key(|(key, _)| hash(key) & (capacity - 1));
}

/// `String.hashCode`, its halves mixed as `HashMap` does.
fn hash(key: &str) -> usize {
    let hash = key.encode_utf16().fold(0_u32, |hash, unit| {
        hash.wrapping_mul(31).wrapping_add(u32::from(unit))
    });
    (hash ^ (hash >> 16)) as usize
}

/// The first `units` UTF-16 units of `text`, as `substring(0, units)`; half a pair is left out,
/// since it has no UTF-8 form.
pub(super) fn truncate_utf16(text: Cow<'_, str>, units: usize) -> Cow<'_, str> {
    let mut seen = 0;
    let cut = text.char_indices().find_map(|(at, character)| {
        seen += character.len_utf16();
        (seen > units).then_some(at)
    });
    match (cut, text) {
        (None, text) => text,
        (Some(at), Cow::Borrowed(text)) => Cow::Borrowed(&text[..at]),
        (Some(at), Cow::Owned(mut text)) => {
            text.truncate(at);
            Cow::Owned(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_print_as_in_java() {
        let parse = |text: &str| Decimal::parse(text).unwrap();
        assert_eq!(parse("0.00000001").to_string(), "1E-8");
        assert_eq!(parse("0.000001").to_string(), "0.000001");
        assert_eq!(parse("12.30").to_string(), "12.30");
        assert_eq!(parse("-0.01").to_string(), "-0.01");
        assert_eq!(parse("1e3").to_string(), "1E+3");
        assert_eq!(parse("1.25e3").to_string(), "1.25E+3");
        assert_eq!(parse("1e20").plain(), "100000000000000000000");
        assert_eq!(parse("1000.500").stripped().to_string(), "1000.5");
        assert_eq!(parse("1.255").rounded_half_up(2).to_string(), "1.26");
        assert_eq!(parse("-1.255").rounded_half_up(2).to_string(), "-1.26");
        assert_eq!(parse("1.2").with_scale(0), None);
        assert!(Decimal::parse("(1 + 1)").is_none());
        assert!(Decimal::parse("").is_none());
        assert!(Decimal::parse("1e200000").is_some());
        assert!(Decimal::parse("-4e9088818").is_none());
        assert!(Decimal::parse("1e-2147483648").is_none());
    }

    #[test]
    fn maps_are_walked_in_hash_order() {
        let mut entries = vec![
            ("b c".to_owned(), 1),
            ("a".to_owned(), 2),
            ("c".to_owned(), 3),
        ];
        sort_like_hash_map(&mut entries);
        let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["a", "c", "b c"]);
        // All fall into one bucket of 16 and of 32.
        let mut entries: Vec<(String, ())> = ('a'..='n')
            .map(|letter| (format!("{letter}{letter}"), ()))
            .collect();
        sort_like_hash_map(&mut entries);
        let keys: Vec<&str> = entries.iter().map(|(key, _)| key.as_str()).collect();
        let expected = "bb dd ff hh jj ll nn aa cc ee gg ii kk mm";
        assert_eq!(keys.join(" "), expected);
    }

    #[test]
    fn truncation_counts_utf16_units() {
        assert_eq!(truncate_utf16("ééééééé".into(), 5), "ééééé");
        assert_eq!(truncate_utf16("abc".into(), 5), "abc");
        assert_eq!(truncate_utf16("a😀b".into(), 2), "a");
        assert_eq!(truncate_utf16("a😀b".to_owned().into(), 3), "a😀");
    }

    proptest::proptest! {
        #[test]
        fn decimals_read_back(unscaled: i128, scale in -20_i32..40) {
            let decimal = Decimal { unscaled: unscaled.into(), scale };
            proptest::prop_assert_eq!(Decimal::parse(&decimal.to_string()).unwrap(), decimal);
        }
    }
}
