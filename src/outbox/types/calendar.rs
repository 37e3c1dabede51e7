//! Days, clock times and instants, read from Postgres' ISO text and printed as Java prints them.
//!
//! All arithmetic is on the proleptic Gregorian calendar, except where Java's old date classes bring
//! in the Julian one: see [`legacy_days`].

use crate::outbox::java::put;

const SECONDS_PER_DAY: i64 = 86_400;
const MILLIS_PER_DAY: i64 = 86_400_000;
/// First day of the Gregorian calendar, 1582-10-15.
const GREGORIAN_START: i64 = -141_427;

/// The values that stand for `infinity` and `-infinity` in pgjdbc, in the unit of the column.
const POSITIVE_INFINITY: i64 = 9_223_372_036_825_200_000;
const NEGATIVE_INFINITY: i64 = -9_223_372_036_832_400_000;

/// `LocalDate.MAX` and `MIN`, as days since 1970-01-01.
pub(super) const LAST_DAY: i64 = 365_241_780_471;
pub(super) const FIRST_DAY: i64 = -365_243_219_162;
/// `LocalDateTime.MAX` and `MIN`.
pub(super) const LAST_MOMENT: Moment = Moment {
    seconds: LAST_DAY * SECONDS_PER_DAY + SECONDS_PER_DAY - 1,
    micros: 999_999,
};
pub(super) const FIRST_MOMENT: Moment = Moment {
    seconds: FIRST_DAY * SECONDS_PER_DAY,
    micros: 0,
};
/// `LocalTime.MAX`.
pub(super) const LAST_MICROSECOND: i64 = SECONDS_PER_DAY * 1_000_000 - 1;

/// Days since 1970-01-01 of a proleptic Gregorian date; year 0 is 1 BC.
pub(in crate::outbox) fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of a day since 1970-01-01.
fn date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    from_march(year_of_era + era * 400, day_of_year)
}

/// Year, month and day of a day in a year that begins with March.
fn from_march(year: i64, day_of_year: i64) -> (i64, i64, i64) {
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    (year + i64::from(month <= 2), month, day)
}

/// Days since 1970-01-01 of a Julian date.
fn julian_days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    year * 365 + year.div_euclid(4) + day_of_year - 719_470
}

/// Year, month and day of a day since 1970-01-01 in the Julian calendar.
fn julian_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_470;
    let day_of_four_years = shifted.rem_euclid(1461);
    let year_of_four = (day_of_four_years - day_of_four_years / 1460) / 365;
    from_march(
        year_of_four + shifted.div_euclid(1461) * 4,
        day_of_four_years - 365 * year_of_four,
    )
}

/// A date as Postgres prints it, before it is given a meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Civil {
    year_of_era: i64,
    month: i64,
    day: i64,
    before_christ: bool,
}

impl Civil {
    fn year(self) -> i64 {
        if self.before_christ {
            1 - self.year_of_era
        } else {
            self.year_of_era
        }
    }

    fn days(self) -> i64 {
        days(self.year(), self.month, self.day)
    }
}

/// A moment: seconds since the epoch, rounded down, and the microseconds above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) seconds: i64,
    pub(super) micros: i64,
}

impl Moment {
    fn from_micros(micros: i64) -> Self {
        Self {
            seconds: micros.div_euclid(1_000_000),
            micros: micros.rem_euclid(1_000_000),
        }
    }

    /// Microseconds since the epoch; Java saturates the product and lets the sum overflow.
    pub(super) fn epoch_micros(self) -> i64 {
        self.seconds
            .saturating_mul(1_000_000)
            .wrapping_add(self.micros)
    }

    /// Milliseconds since the epoch, rounded down.
    pub(super) fn epoch_millis(self) -> i64 {
        self.seconds
            .saturating_mul(1000)
            .wrapping_add(self.micros / 1000)
    }

    /// Nanoseconds since the epoch, where 64 bits hold them; infinity is the end of the range.
    pub(super) fn epoch_nanos(self) -> Option<i64> {
        if self == Self::from_micros(POSITIVE_INFINITY) {
            return Some(i64::MAX);
        }
        if self == Self::from_micros(NEGATIVE_INFINITY) {
            return Some(i64::MIN);
        }
        let nanos = i128::from(self.seconds) * 1_000_000_000 + i128::from(self.micros) * 1000;
        i64::try_from(nanos).ok()
    }

    /// `2016-11-04T11:51:30.5Z`. `width` fixes the number of fraction digits; without it there are
    /// as many as needed.
    pub(super) fn iso(self, width: Option<usize>) -> String {
        let mut out = String::new();
        write_date(&mut out, self.seconds.div_euclid(SECONDS_PER_DAY));
        out.push('T');
        write_clock(
            &mut out,
            self.seconds.rem_euclid(SECONDS_PER_DAY),
            self.micros,
            width,
        );
        out.push('Z');
        out
    }
}

/// `2020-02-29Z`.
pub(super) fn iso_date(day: i64) -> String {
    let mut out = String::new();
    write_date(&mut out, day);
    out.push('Z');
    out
}

/// `01:02:03.4Z`, of a clock time in microseconds; a whole day wraps to midnight.
pub(super) fn iso_time(micros: i64) -> String {
    let mut out = String::new();
    let seconds = micros.div_euclid(1_000_000).rem_euclid(SECONDS_PER_DAY);
    write_clock(&mut out, seconds, micros.rem_euclid(1_000_000), None);
    out.push('Z');
    out
}
fn write_date(out: &mut String, day: i64) {
    let (year, month, day) = date(day);
    if year < 0 {
        put(out, format_args!("-{:04}", -year));
    } else if year > 9999 {
        put(out, format_args!("+{year}"));
    } else {
        put(out, format_args!("{year:04}"));
    }
    put(out, format_args!("-{month:02}-{day:02}"));
}

fn write_clock(out: &mut String, seconds: i64, micros: i64, width: Option<usize>) {
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    put(out, format_args!("{hour:02}:{minute:02}:{second:02}"));
    let nanos = format!("{micros:06}000");
    let fraction = match width {
        Some(width) => nanos.get(..width).unwrap_or(&nanos),
        None => nanos.trim_end_matches('0'),
    };
    if !fraction.is_empty() {
        out.push('.');
        out.push_str(fraction);
    }
}

/// The text SimpleHeaderConverter picks for a `java.util.Date` by looking at its value.
pub(in crate::outbox) fn header_date(millis: i64) -> String {
    let clock = |out: &mut String| {
        let of_day = millis.rem_euclid(MILLIS_PER_DAY);
        write_clock(out, of_day / 1000, of_day % 1000 * 1000, Some(3));
        out.push('Z');
    };
    let mut out = String::new();
    if millis < MILLIS_PER_DAY {
        clock(&mut out);
        return out;
    }
    let (year, month, day) = date(millis.div_euclid(MILLIS_PER_DAY));
    put(&mut out, format_args!("{year:04}-{month:02}-{day:02}"));
    if millis % MILLIS_PER_DAY != 0 {
        out.push('T');
        clock(&mut out);
    }
    out
}

/// `java.util.Date.toString` in UTC: `Sat Feb 29 01:02:03 UTC 2020`. Before the Gregorian calendar
/// it is a Julian date, and no era is shown.
pub(in crate::outbox) fn java_date(millis: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let epoch_day = millis.div_euclid(MILLIS_PER_DAY);
    let (year, month, day) = if epoch_day < GREGORIAN_START {
        julian_date(epoch_day)
    } else {
        date(epoch_day)
    };
    let year = if year > 0 { year } else { 1 - year };
    let name = |names: &[&'static str], at: i64| {
        usize::try_from(at)
            .ok()
            .and_then(|at| names.get(at).copied())
            .unwrap_or_default()
    };
    let mut out = format!(
        "{} {} {day:02} ",
        name(&DAYS, epoch_day.rem_euclid(7)),
        name(&MONTHS, month - 1)
    );
    write_clock(
        &mut out,
        millis.rem_euclid(MILLIS_PER_DAY) / 1000,
        0,
        Some(0),
    );
    put(&mut out, format_args!(" UTC {year}"));
    out
}

/// Reads a `date`; infinity comes out as the dates that pgjdbc's constants wrap to.
pub(super) fn parse_days(text: &str) -> Option<i64> {
    match text {
        "infinity" => Some(days(-5_877_611, 6, 21)),
        "-infinity" => Some(days(-5_877_611, 6, 22)),
        _ => parse_civil(text).map(Civil::days),
    }
}

/// Reads a `date` as it arrives through `java.sql.Date`: in a snapshot and inside an array. That
/// class forgets the era and has no 5th to 14th of October 1582.
pub(super) fn legacy_days(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(POSITIVE_INFINITY.div_euclid(MILLIS_PER_DAY)),
        // Long.MIN_VALUE milliseconds is in December of 292269055 BC, whose era is forgotten too.
        "-infinity" => return Some(days(292_269_055, 12, 2)),
        _ => {}
    }
    let civil = parse_civil(text)?;
    let day = days(civil.year_of_era, civil.month, civil.day);
    let skipped = !civil.before_christ && (GREGORIAN_START - 10..GREGORIAN_START).contains(&day);
    Some(if skipped { day + 10 } else { day })
}

/// Reads a `timestamp`, taken as UTC.
pub(super) fn parse_timestamp(text: &str) -> Option<Moment> {
    match text {
        "infinity" => return Some(Moment::from_micros(POSITIVE_INFINITY)),
        "-infinity" => return Some(Moment::from_micros(NEGATIVE_INFINITY)),
        _ => {}
    }
    let (civil, clock) = split_timestamp(text)?;
    let (of_day, rest) = parse_clock(clock)?;
    rest.is_empty()
        .then(|| moment(civil.days(), of_day))
        .flatten()
}

/// Reads a `timestamp` as it arrives through `java.sql.Timestamp`, inside an array: dates before
/// the Gregorian calendar are taken as Julian ones.
pub(super) fn legacy_timestamp(text: &str) -> Option<Moment> {
    let Some((civil, clock)) = split_timestamp(text) else {
        return parse_timestamp(text);
    };
    if civil.days() >= GREGORIAN_START {
        return parse_timestamp(text);
    }
    let day = julian_days(civil.year(), civil.month, civil.day);
    let (of_day, rest) = parse_clock(clock)?;
    rest.is_empty().then(|| moment(day, of_day)).flatten()
}

/// Reads a `timestamptz`, infinity excepted.
pub(super) fn parse_zoned(text: &str) -> Option<Moment> {
    let (civil, clock) = split_timestamp(text)?;
    zoned(civil.days(), clock)
}

/// Reads a `timestamptz` as it arrives through `java.sql.Timestamp`, inside an array: the era is
/// forgotten.
pub(super) fn legacy_zoned(text: &str) -> Option<Moment> {
    let (civil, clock) = split_timestamp(text)?;
    zoned(days(civil.year_of_era, civil.month, civil.day), clock)
}

fn zoned(day: i64, clock: &str) -> Option<Moment> {
    let (of_day, zone) = parse_clock(clock)?;
    let mut moment = moment(day, of_day)?;
    moment.seconds = moment.seconds.checked_sub(parse_offset(zone)?)?;
    Some(moment)
}

/// Reads a `time`: microseconds since midnight, up to and including 24:00.
pub(super) fn parse_time(text: &str) -> Option<i64> {
    let (micros, rest) = parse_clock(text)?;
    rest.is_empty().then_some(micros)
}

/// Reads a `timetz`: microseconds since midnight in UTC, where 24:00 is midnight. Like
/// `java.time.OffsetTime` it has no zone with seconds.
pub(super) fn parse_zoned_time(text: &str) -> Option<i64> {
    let (micros, zone) = parse_clock(text)?;
    if zone.len() > "+HH:MM".len() {
        return None;
    }
    let utc = micros - parse_offset(zone)? * 1_000_000;
    Some(utc.rem_euclid(SECONDS_PER_DAY * 1_000_000))
}

fn moment(day: i64, micros_of_day: i64) -> Option<Moment> {
    Some(Moment {
        seconds: day
            .checked_mul(SECONDS_PER_DAY)?
            .checked_add(micros_of_day / 1_000_000)?,
        micros: micros_of_day % 1_000_000,
    })
}

/// `y-mm-dd[ BC]`.
fn parse_civil(text: &str) -> Option<Civil> {
    let (text, before_christ) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !(4..=10).contains(&year.len()) {
        return None;
    }
    Some(Civil {
        year_of_era: number(year)?,
        month: number(month).filter(|month| (1..=12).contains(month))?,
        day: number(day).filter(|day| (1..=31).contains(day))?,
        before_christ,
    })
}

/// Splits `date clock[ BC]`.
fn split_timestamp(text: &str) -> Option<(Civil, &str)> {
    let (text, before_christ) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let (date, clock) = text.split_once(' ')?;
    let civil = parse_civil(date)?;
    Some((
        Civil {
            before_christ,
            ..civil
        },
        clock,
    ))
}

/// `hh:mm:ss[.ffffff]`: microseconds, and what follows.
fn parse_clock(text: &str) -> Option<(i64, &str)> {
    let field = |from: usize| number(text.get(from..from + 2)?);
    if text.as_bytes().get(2) != Some(&b':') || text.as_bytes().get(5) != Some(&b':') {
        return None;
    }
    let seconds = field(0)? * 3600 + field(3)? * 60 + field(6)?;
    let rest = text.get(8..)?;
    let Some(fraction) = rest.strip_prefix('.') else {
        return Some((seconds * 1_000_000, rest));
    };
    let end = fraction
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(fraction.len());
    let digits = fraction.get(..end).filter(|digits| digits.len() <= 6)?;
    let scale = 10_i64.pow(u32::try_from(6 - digits.len()).ok()?);
    let micros = number(digits)? * scale;
    Some((seconds * 1_000_000 + micros, fraction.get(end..)?))
}

/// `+hh[:mm[:ss]]` in seconds.
fn parse_offset(text: &str) -> Option<i64> {
    let sign = match text.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let mut seconds = 0;
    let mut unit = 3600;
    for part in text.get(1..)?.split(':') {
        if part.len() != 2 || unit == 0 {
            return None;
        }
        seconds += number(part)? * unit;
        unit /= 60;
    }
    Some(sign * seconds)
}

/// Milliseconds of `yyyy-MM-dd` as `SimpleDateFormat` reads it: the 30th of February is a day of
/// March, and what follows the day does not matter.
pub(in crate::outbox) fn lenient_date(text: &str) -> Option<i64> {
    let (year, rest) = leading_number(text)?;
    let (month, rest) = leading_number(rest.strip_prefix('-')?)?;
    let (day, _) = leading_number(rest.strip_prefix('-')?)?;
    let months = year.checked_mul(12)?.checked_add(month - 1)?;
    let first = days(months.div_euclid(12), months.rem_euclid(12) + 1, 1);
    (first + day - 1).checked_mul(MILLIS_PER_DAY)
}

/// Milliseconds of `HH:mm:ss.SSS'Z'` as `SimpleDateFormat` reads it.
pub(in crate::outbox) fn lenient_clock(text: &str) -> Option<i64> {
    let (hour, rest) = leading_number(text)?;
    let (minute, rest) = leading_number(rest.strip_prefix(':')?)?;
    let (second, rest) = leading_number(rest.strip_prefix(':')?)?;
    let (millis, rest) = leading_number(rest.strip_prefix('.')?)?;
    rest.strip_prefix('Z')?;
    Some(((hour * 60 + minute) * 60 + second) * 1000 + millis)
}

/// At most as many digits as a date of 24 characters may have.
fn leading_number(text: &str) -> Option<(i64, &str)> {
    let end = text
        .find(|character: char| !character.is_ascii_digit())
        .unwrap_or(text.len());
    let digits = text.get(..end).filter(|digits| digits.len() <= 10)?;
    Some((number(digits)?, &text[end..]))
}

fn number(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

#[cfg(test)]
#[path = "calendar_tests.rs"]
mod tests;
