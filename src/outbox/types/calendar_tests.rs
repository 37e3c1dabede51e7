use super::*;

#[test]
fn dates_of_every_era() {
    for (text, expected) in [
        ("1970-01-01", 0),
        ("2024-02-29", 19_782),
        ("0001-01-01", -719_162),
        ("0044-03-15 BC", -735_160),
        ("10000-01-01", 2_932_897),
        ("1582-10-10", -141_432),
    ] {
        assert_eq!(parse_days(text), Some(expected), "{text}");
    }
    let wrapped = |text| parse_days(text).map(|day| day as i32);
    assert_eq!(wrapped("infinity"), Some(-2_147_472_692));
    assert_eq!(wrapped("-infinity"), Some(-2_147_472_691));
    assert_eq!(legacy_days("0044-03-15 BC"), Some(-703_383));
}

#[test]
fn timestamps_to_the_end_of_the_range() {
    let micros = |text| parse_timestamp(text).unwrap().epoch_micros();
    assert_eq!(micros("2016-11-04 13:51:30.123456"), 1_478_267_490_123_456);
    assert_eq!(micros("1969-12-31 23:59:59.999999"), -1);
    assert_eq!(micros("0044-03-15 00:00:00 BC"), -63_517_824_000_000_000);
    assert_eq!(micros("infinity"), POSITIVE_INFINITY);
    assert_eq!(micros("-infinity"), NEGATIVE_INFINITY);
    assert_eq!(
        micros("294276-12-31 23:59:59.999999"),
        -9_223_372_036_853_775_810
    );
}

#[test]
fn zones_are_shifted_to_utc() {
    let iso = |text, width| parse_zoned(text).unwrap().iso(width);
    assert_eq!(
        iso("2016-11-04 13:51:30+02", Some(6)),
        "2016-11-04T11:51:30.000000Z"
    );
    assert_eq!(
        iso("0044-03-15 00:00:00+00 BC", Some(6)),
        "-0043-03-15T00:00:00.000000Z"
    );
    assert_eq!(
        iso("20000-01-01 00:00:00-00:00:30", None),
        "+20000-01-01T00:00:30Z"
    );
    assert_eq!(
        parse_zoned_time("12:00:00.5+05:30").map(iso_time).unwrap(),
        "06:30:00.5Z"
    );
    assert_eq!(parse_zoned_time("24:00:00+00"), Some(0));
    assert_eq!(parse_zoned_time("12:00:00+00:00:30"), None);
}

#[test]
fn header_text_depends_on_the_value() {
    assert_eq!(header_date(0), "00:00:00.000Z");
    assert_eq!(header_date(-1), "23:59:59.999Z");
    assert_eq!(header_date(86_400_000), "1970-01-02");
    assert_eq!(header_date(1_582_938_123_456), "2020-02-29T01:02:03.456Z");
    for (millis, text) in [
        (1_582_938_123_456, "Sat Feb 29 01:02:03 UTC 2020"),
        (-12_219_292_800_000, "Fri Oct 15 00:00:00 UTC 1582"),
        (-12_219_292_800_001, "Thu Oct 04 23:59:59 UTC 1582"),
        (-62_135_769_600_000, "Sat Jan 01 00:00:00 UTC 1"),
        (-62_162_035_200_000, "Wed Mar 03 00:00:00 UTC 1"),
        (-63_517_824_000_000, "Fri Mar 17 00:00:00 UTC 44"),
        (-210_866_803_200_000, "Mon Jan 01 00:00:00 UTC 4713"),
        (i64::MIN, "Sun Dec 02 16:47:04 UTC 292269055"),
    ] {
        assert_eq!(java_date(millis), text);
    }
}

proptest::proptest! {
    #[test]
    fn every_day_has_one_date(day in -4_000_000_000_i64..4_000_000_000) {
        let (year, month, day_of_month) = date(day);
        proptest::prop_assert_eq!(days(year, month, day_of_month), day);
    }

    #[test]
    fn no_text_panics(text in "\\PC{0,30}") {
        let _ = (parse_days(&text), legacy_days(&text), parse_timestamp(&text));
        let _ = (legacy_timestamp(&text), parse_zoned(&text), legacy_zoned(&text));
        let _ = (parse_time(&text), parse_zoned_time(&text));
    }
}
