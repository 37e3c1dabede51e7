//! Dates as Java's `SimpleDateFormat` writes them, in UTC and English.

use std::fmt::Write as _;

const MILLIS_PER_DAY: i64 = 86_400_000;
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// Monday first, as the letter `u` counts.
const DAYS: [&str; 7] = [
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
    "Sunday",
];

/// A pattern of `SimpleDateFormat`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatePattern {
    pieces: Vec<Piece>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Literal(char),
    /// A letter and how often it stands there.
    Field(char, usize),
}

impl DatePattern {
    /// Reads a pattern.
    ///
    /// # Errors
    /// Java would refuse it, or its text depends on the country that the JVM believes to be in.
    pub fn new(text: &str) -> Result<Self, DatePatternError> {
        let mut pieces = Vec::new();
        let mut quoted = false;
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                // Two quotes are one, inside a quoted text and outside.
                '\'' if chars.next_if_eq(&'\'').is_some() => pieces.push(Piece::Literal('\'')),
                '\'' => quoted = !quoted,
                c if quoted || !c.is_ascii_alphabetic() => pieces.push(Piece::Literal(c)),
                letter => {
                    let mut count = 1;
                    while chars.next_if_eq(&letter).is_some() {
                        count += 1;
                    }
                    check(letter, count)?;
                    pieces.push(Piece::Field(letter, count));
                }
            }
        }
        if quoted {
            return Err(DatePatternError("a quote is not closed".to_owned()));
        }
        Ok(Self { pieces })
    }

    /// The moment so many milliseconds after the epoch.
    pub fn format(&self, epoch_ms: i64) -> String {
        let mut out = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Literal(c) => out.push(*c),
                Piece::Field(letter, count) => field(&mut out, *letter, *count, epoch_ms),
            }
        }
        out
    }
}

/// Why a pattern was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DatePatternError(String);

fn check(letter: char, count: usize) -> Result<(), DatePatternError> {
    let refusal = match letter {
        'y' | 'M' | 'L' | 'd' | 'D' | 'E' | 'u' | 'a' | 'H' | 'k' | 'K' | 'h' | 'm' | 's' | 'S'
        | 'z' | 'Z' => return Ok(()),
        'X' if count <= 3 => return Ok(()),
        'X' => "X stands at most three times".to_owned(),
        'w' | 'W' | 'F' | 'Y' | 'G' => {
            format!("{letter} depends on the country that the JVM believes to be in; leave it out")
        }
        _ => format!("{letter} means nothing in a date; put text between single quotes"),
    };
    Err(DatePatternError(refusal))
}

fn field(out: &mut String, letter: char, count: usize, epoch_ms: i64) {
    let day = epoch_ms.div_euclid(MILLIS_PER_DAY);
    let millis = epoch_ms.rem_euclid(MILLIS_PER_DAY);
    let (year, month, day_of_month) = civil(day);
    let hour = millis / 3_600_000;
    // 1970-01-01 was a Thursday.
    let weekday = (day + 3).rem_euclid(7);
    let number = match letter {
        'y' if count == 2 => year.rem_euclid(100),
        'y' => year,
        'M' | 'L' if count >= 3 => return name(out, &MONTHS, month - 1, count),
        'M' | 'L' => month,
        'd' => day_of_month,
        'D' => day - first_of_january(year) + 1,
        'E' => return name(out, &DAYS, weekday, count),
        'u' => weekday + 1,
        'a' => return out.push_str(if hour < 12 { "AM" } else { "PM" }),
        'H' => hour,
        'k' => (hour + 23) % 24 + 1,
        'K' => hour % 12,
        'h' => (hour + 11) % 12 + 1,
        'm' => millis / 60_000 % 60,
        's' => millis / 1000 % 60,
        'S' => millis % 1000,
        'z' if count >= 4 => return out.push_str("Coordinated Universal Time"),
        'z' => return out.push_str("UTC"),
        'Z' => return out.push_str("+0000"),
        // The one letter left that `check` lets pass.
        _ => return out.push('Z'),
    };
    // Writing to a String cannot fail.
    let _ = write!(out, "{number:0count$}");
}

fn name(out: &mut String, names: &[&str], at: i64, count: usize) {
    let name = usize::try_from(at).ok().and_then(|at| names.get(at));
    let name = name.copied().unwrap_or_default();
    // English names are abbreviated to three letters.
    out.push_str(if count >= 4 {
        name
    } else {
        name.get(..3).unwrap_or(name)
    });
}

/// Year, month and day of a day since 1970-01-01, on the Gregorian calendar.
fn civil(day: i64) -> (i64, i64, i64) {
    let shifted = day + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let month = (shifted_month + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, of_year - (153 * shifted_month + 2) / 5 + 1)
}

fn first_of_january(year: i64) -> i64 {
    let before = year - 1;
    before * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Texts of a real JVM.
    #[test]
    fn letters_mean_what_they_mean_in_java() {
        let moments = [
            1_583_298_367_007,
            1_609_459_199_999,
            -1,
            253_402_300_800_000,
        ];
        for (pattern, texts) in [
            ("yy", ["20", "20", "69", "00"]),
            ("yyy", ["2020", "2020", "1969", "10000"]),
            ("yyyyyy", ["002020", "002020", "001969", "010000"]),
            ("M", ["3", "12", "12", "1"]),
            ("MM", ["03", "12", "12", "01"]),
            ("LLL", ["Mar", "Dec", "Dec", "Jan"]),
            ("MMMMM", ["March", "December", "December", "January"]),
            ("ddd", ["004", "031", "031", "001"]),
            ("D", ["64", "366", "365", "1"]),
            ("E", ["Wed", "Thu", "Wed", "Sat"]),
            ("EEEE", ["Wednesday", "Thursday", "Wednesday", "Saturday"]),
            ("u", ["3", "4", "3", "6"]),
            ("aa", ["AM", "PM", "PM", "AM"]),
            (
                "HH k K h",
                ["05 5 5 5", "23 23 11 11", "23 23 11 11", "00 24 0 12"],
            ),
            ("mm:s", ["06:7", "59:59", "59:59", "00:0"]),
            (
                "S SSSSSS",
                ["7 000007", "999 000999", "999 000999", "0 000000"],
            ),
            ("z Z XXX", ["UTC +0000 Z"; 4]),
            ("zzzz", ["Coordinated Universal Time"; 4]),
            (
                "yyyy'T'HH''",
                ["2020T05'", "2020T23'", "1969T23'", "10000T00'"],
            ),
            ("'a''b' é", ["a'b é"; 4]),
            ("''''", ["''"; 4]),
            ("", [""; 4]),
        ] {
            let pattern = DatePattern::new(pattern).unwrap();
            assert_eq!(moments.map(|moment| pattern.format(moment)), texts);
        }
    }

    #[test]
    fn what_java_refuses_and_what_varies_with_the_country_is_refused() {
        for pattern in [
            "T", "QQ", "'a", "'", "y'", "XXXX", "ww", "YYYY", "F", "W", "G",
        ] {
            assert!(DatePattern::new(pattern).is_err(), "{pattern:?}");
        }
    }
}
