//! `Double.toString` and `Float.toString` of Java 17, which the recorded Debezium ran on.
//!
//! Up to JDK 18 these do not always give the shortest digits that mean the number: 1e23 is
//! `9.999999999999999E22` and the float 123456789 is `1.23456792E8`. Which digits come out follows
//! from the width of the integers that Java computes with, overflow included, so the three widths
//! are kept apart here too.

use num_bigint::BigUint;

use super::put;

/// Bits behind the leading one of a double.
const FRACTION_BITS: i32 = 52;

/// A finite number above zero, as Java prepares it.
struct Parts {
    /// The leading one in bit 52, whatever the number's own precision.
    fraction: u64,
    exponent: i32,
    significant_bits: i32,
}

/// The number 0.d1d2d3… · 10^exponent.
struct Digits {
    digits: Vec<u8>,
    exponent: i32,
}

/// Appends `Double.toString`.
pub(in crate::outbox) fn write_f64(out: &mut String, value: f64) {
    if !write_special(out, value) {
        let bits = value.to_bits();
        let fraction = bits & ((1 << FRACTION_BITS) - 1);
        let exponent = i32::try_from(bits >> FRACTION_BITS & 0x7ff).unwrap_or(0);
        write(
            out,
            &digits(&parts(fraction, exponent, FRACTION_BITS, 1023)),
        );
    }
}

/// Appends `Float.toString`.
pub(in crate::outbox) fn write_f32(out: &mut String, value: f32) {
    if !write_special(out, value.into()) {
        let bits = value.to_bits();
        let exponent = i32::try_from(bits >> 23 & 0xff).unwrap_or(0);
        let fraction = u64::from(bits & ((1 << 23) - 1));
        write(out, &digits(&parts(fraction, exponent, 23, 127)));
    }
}

/// Writes the sign, and the whole of what has no digits to look for.
fn write_special(out: &mut String, value: f64) -> bool {
    if value.is_nan() {
        out.push_str("NaN");
        return true;
    }
    if value.is_sign_negative() {
        out.push('-');
    }
    if value.is_infinite() {
        out.push_str("Infinity");
    } else if value == 0.0 {
        out.push_str("0.0");
    } else {
        return false;
    }
    true
}

fn parts(fraction: u64, exponent: i32, width: i32, bias: i32) -> Parts {
    let (fraction, exponent, significant_bits) = if exponent == 0 {
        let length = i32::try_from(u64::BITS - fraction.leading_zeros()).unwrap_or(0);
        let shift = width + 1 - length;
        (fraction << shift, 1 - shift, length)
    } else {
        (fraction | 1 << width, exponent, width + 1)
    };
    Parts {
        fraction: fraction << (FRACTION_BITS - width),
        exponent: exponent - bias,
        significant_bits,
    }
}

fn digits(parts: &Parts) -> Digits {
    let &Parts {
        fraction, exponent, ..
    } = parts;
    let length = FRACTION_BITS + 1 - trailing_zeros(fraction);
    let tiny = (length - exponent - 1).max(0);
    if tiny == 0 && exponent < 63 {
        whole(parts)
    } else {
        Division::of(parts, length, tiny).run()
    }
}

fn trailing_zeros(value: u64) -> i32 {
    i32::try_from(value.trailing_zeros()).unwrap_or(0)
}

/// An integer below 2^63: its digits, less those that its precision cannot tell.
fn whole(parts: &Parts) -> Digits {
    let value = if parts.exponent >= FRACTION_BITS {
        parts.fraction << (parts.exponent - FRACTION_BITS)
    } else {
        parts.fraction >> (FRACTION_BITS - parts.exponent)
    };
    let spare = u32::try_from(parts.exponent - parts.significant_bits - 1).unwrap_or(0);
    let cut = 1_u64.checked_shl(spare).map_or(0, u64::ilog10);
    let power = 10_u64.pow(cut);
    let rounded = value / power + u64::from(cut > 0 && value % power >= power / 2);
    let text = rounded.to_string();
    Digits {
        exponent: i32::try_from(text.len()).unwrap_or(0) + i32::try_from(cut).unwrap_or(0),
        digits: text.trim_end_matches('0').as_bytes().to_vec(),
    }
}

/// Long division of `fraction · 5^fives.0 · 2^twos.0` by `5^fives.1 · 2^twos.1`, a digit at a
/// time, until what is left is within `5^fives.0 · 2^half_ulp`.
struct Division {
    fraction: u64,
    fives: (u32, u32),
    twos: (u32, u32),
    half_ulp: u32,
    /// Of the first digit; an estimate that may be one too high.
    exponent: i32,
}

/// What is left after a digit: how it compares with half the gap to the next number.
#[derive(Clone, Copy)]
struct Rest {
    low: bool,
    high: bool,
}

impl Division {
    fn of(parts: &Parts, length: i32, tiny: i32) -> Self {
        let exponent = estimate(parts);
        let fives = ((-exponent).max(0), exponent.max(0));
        let power = fives.0 + tiny + parts.exponent;
        let divisor_power = fives.1 + tiny;
        let numerator_power = power - (length - 1);
        let shared = numerator_power.min(divisor_power);
        let mut half_ulp = power - parts.significant_bits - shared;
        // Below a power of two the next number is only half as far away.
        if length == 1 {
            half_ulp -= 1;
        }
        let lift = (-half_ulp).max(0);
        let unsigned = |value: i32| u32::try_from(value).unwrap_or(0);
        Self {
            fraction: parts.fraction >> trailing_zeros(parts.fraction),
            fives: (unsigned(fives.0), unsigned(fives.1)),
            twos: (
                unsigned(numerator_power - shared + lift),
                unsigned(divisor_power - shared + lift),
            ),
            half_ulp: unsigned(half_ulp + lift),
            exponent,
        }
    }

    /// Divides in 32 bits where Java would, else in 64, else in as many as it takes.
    fn run(self) -> Digits {
        let length = u64::BITS - self.fraction.leading_zeros();
        let numerator = length + self.twos.0 + bits_of_five(self.fives.0);
        let divisor = self.twos.1 + 1 + bits_of_five(self.fives.1 + 1);
        match numerator.max(divisor) {
            0..32 => self.narrow(|value| i128::from(value as i32)),
            32..64 => self.narrow(|value| i128::from(value as i64)),
            _ => self.wide(),
        }
    }

    /// In machine integers, which `wrap` cuts to their width.
    fn narrow(self, wrap: impl Fn(i128) -> i128) -> Digits {
        let power = |fives: u32, twos: u32| 5_i128.pow(fives) << twos;
        let mut rest =
            wrap(wrap(i128::from(self.fraction) * 5_i128.pow(self.fives.0)) << self.twos.0);
        let divisor = wrap(power(self.fives.1, self.twos.1));
        let mut margin = wrap(power(self.fives.0, self.half_ulp));
        let tens = wrap(divisor * 10);
        let mut next = || {
            let digit = rest / divisor;
            rest = wrap(10 * (rest % divisor));
            margin = wrap(margin * 10);
            let state = Rest {
                low: margin <= 0 || rest < margin,
                high: margin <= 0 || wrap(rest + margin) > tens,
            };
            let up = wrap(wrap(rest << 1) - tens).cmp(&0);
            (u8::try_from(digit).unwrap_or(0), state, up)
        };
        collect(self.exponent, &mut next)
    }

    fn wide(self) -> Digits {
        let power = |fives: u32, twos: u32| BigUint::from(5_u8).pow(fives) << twos;
        let mut rest = power(self.fives.0, self.twos.0) * self.fraction;
        let divisor = power(self.fives.1, self.twos.1);
        let mut margin = power(self.fives.0, self.half_ulp);
        let tens = &divisor * 10_u8;
        let mut next = || {
            let digit = &rest / &divisor;
            rest = (&rest % &divisor) * 10_u8;
            margin *= 10_u8;
            let state = Rest {
                low: rest < margin,
                high: tens <= &rest + &margin,
            };
            let up = (&rest * 2_u8).cmp(&tens);
            (u8::try_from(digit).unwrap_or(0), state, up)
        };
        collect(self.exponent, &mut next)
    }
}

/// Takes digits until the rest is small enough, and rounds the last.
fn collect(mut exponent: i32, mut next: impl FnMut() -> (u8, Rest, std::cmp::Ordering)) -> Digits {
    let mut digits = Vec::new();
    let (first, mut state, mut up) = next();
    if first == 0 && !state.high {
        exponent -= 1;
    } else {
        digits.push(b'0' + first);
    }
    let mut go_on = !state.low && !state.high;
    // With an exponent to print, Java asks for a second digit before it looks at the rest.
    if !(-3..8).contains(&exponent) {
        go_on = true;
    }
    while go_on {
        let (digit, after, order) = next();
        digits.push(b'0' + digit);
        (state, up) = (after, order);
        go_on = !state.low && !state.high;
    }
    let odd = digits.last().is_some_and(|digit| digit % 2 == 1);
    let round = state.high && (!state.low || up.is_gt() || up.is_eq() && odd);
    let mut result = Digits {
        digits,
        exponent: exponent + 1,
    };
    if round {
        result.round_up();
    }
    result
}

impl Digits {
    fn round_up(&mut self) {
        for digit in self.digits.iter_mut().rev() {
            if *digit < b'9' {
                *digit += 1;
                return;
            }
            *digit = b'0';
        }
        if let Some(first) = self.digits.first_mut() {
            *first = b'1';
        }
        self.exponent += 1;
    }
}

/// The exponent of the first digit, or one more.
#[expect(
    clippy::cast_possible_truncation,
    clippy::approx_constant,
    reason = "it lies between -325 and 308, and the constants are Java's"
)]
fn estimate(parts: &Parts) -> i32 {
    let mantissa =
        f64::from_bits(1023 << FRACTION_BITS | parts.fraction & ((1 << FRACTION_BITS) - 1));
    let log = (mantissa - 1.5) * 0.289_529_654
        + 0.176_091_259
        + f64::from(parts.exponent) * 0.301_029_995_663_981;
    log.floor() as i32
}

/// Bits of 5^power, as Java counts them.
fn bits_of_five(power: u32) -> u32 {
    match power {
        0 => 0,
        1..=26 => u64::BITS - 5_u64.pow(power).leading_zeros(),
        _ => power * 3,
    }
}

/// Plain between 10^-3 and 10^7, otherwise with `E`, always with a digit after the point.
fn write(out: &mut String, number: &Digits) {
    let text = String::from_utf8_lossy(&number.digits);
    let exponent = number.exponent;
    match usize::try_from(exponent) {
        Ok(whole @ 1..=7) if text.len() > whole => {
            out.push_str(&text[..whole]);
            out.push('.');
            out.push_str(&text[whole..]);
        }
        Ok(whole @ 1..=7) => put(out, format_args!("{text:0<whole$}.0")),
        _ if (-2..=0).contains(&exponent) => {
            out.push_str("0.");
            out.extend(std::iter::repeat_n('0', exponent.unsigned_abs() as usize));
            out.push_str(&text);
        }
        _ => {
            let (first, rest) = text.split_at(1);
            let rest = if rest.is_empty() { "0" } else { rest };
            put(out, format_args!("{first}.{rest}E{}", exponent - 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn f64_text(value: f64) -> String {
        let mut out = String::new();
        write_f64(&mut out, value);
        out
    }

    fn f32_text(value: f32) -> String {
        let mut out = String::new();
        write_f32(&mut out, value);
        out
    }

    #[test]
    fn doubles_print_as_in_java_17() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (-100.0, "-100.0"),
            (9_999_999.5, "9999999.5"),
            (1e7, "1.0E7"),
            (12_345_678.9, "1.23456789E7"),
            (0.001, "0.001"),
            (0.00099, "9.9E-4"),
            (1.5e-5, "1.5E-5"),
            (1e21, "1.0E21"),
            (1e23, "9.999999999999999E22"),
            (2e23, "1.9999999999999998E23"),
            (8.41e21, "8.409999999999999E21"),
            (9_007_199_254_740_993.0, "9.007199254740992E15"),
            (123_456_789_012_345_680.0, "1.2345678901234568E17"),
            (f64::MAX, "1.7976931348623157E308"),
            (f64::MIN_POSITIVE, "2.2250738585072014E-308"),
            (5e-324, "4.9E-324"),
            (1e-323, "1.0E-323"),
            (f64::NAN, "NaN"),
            (f64::NEG_INFINITY, "-Infinity"),
        ] {
            assert_eq!(f64_text(value), text);
        }
    }

    #[test]
    fn floats_print_as_in_java_17() {
        for (value, text) in [
            (3.402_823_5e38, "3.4028235E38"),
            (0.1, "0.1"),
            (1_234_567.9, "1234567.9"),
            (12_345_678.0, "1.2345678E7"),
            (123_456_789.0, "1.23456792E8"),
            (f32::MIN_POSITIVE, "1.17549435E-38"),
            (f32::from_bits(1), "1.4E-45"),
            (f32::from_bits(7), "9.8E-45"),
        ] {
            assert_eq!(f32_text(value), text);
        }
    }

    proptest::proptest! {
        #[test]
        fn every_double_reads_back(bits: u64) {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                proptest::prop_assert_eq!(f64_text(value).parse::<f64>().unwrap().to_bits(), bits);
            }
        }

        #[test]
        fn every_float_reads_back(bits: u32) {
            let value = f32::from_bits(bits);
            if value.is_finite() {
                proptest::prop_assert_eq!(f32_text(value).parse::<f32>().unwrap().to_bits(), bits);
            }
        }
    }
}
