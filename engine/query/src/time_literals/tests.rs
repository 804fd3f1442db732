use super::*;

fn check(kind: TimeLiteralKind, cases: &[(&str, Option<&str>)]) {
    for (text, expected) in cases {
        assert_eq!(in_form(text, kind).as_deref(), *expected, "{text}");
    }
}

#[test]
fn dates_are_read_as_people_write_them() {
    check(
        TimeLiteralKind::Date,
        &[
            ("2024/01/05", Some("2024-01-05")),
            ("1/8/1999", Some("1999-01-08")),
            ("01-08-99", Some("1999-01-08")),
            ("1999-Jan-08", Some("1999-01-08")),
            ("08-Jan-1999", Some("1999-01-08")),
            ("Jan-08-1999", Some("1999-01-08")),
            ("January 8, 1999", Some("1999-01-08")),
            ("8 Jan 1999", Some("1999-01-08")),
            ("8 Jan 99", Some("1999-01-08")),
            ("Jan 8, 24", Some("2024-01-08")),
            ("Fri 8 January 69", Some("2069-01-08")),
            ("Fri, 8 January 1999", Some("1999-01-08")),
            ("2024-01-05 10:00:00+02", Some("2024-01-05")),
            ("2024-01-05 24:00", Some("2024-01-05")),
            ("2024-01-05T10:00", Some("2024-01-05")),
            ("2024-01-05Z", Some("2024-01-05")),
            ("2024-01-05-08", Some("2024-01-05")),
            ("2024-01-05", None),
            ("2024-02-30", None),
            ("13/01/2024", None),
            ("January", None),
            ("10:00", None),
            ("abc", None),
            ("infinity", None),
            ("", None),
        ],
    );
}

#[test]
fn times_are_read_with_zones() {
    check(
        TimeLiteralKind::Zoned,
        &[
            ("2024-01-05Z", Some("2024-01-05 00:00:00+00:00")),
            ("2024-01-05 05:00", Some("2024-01-05 05:00:00")),
            ("2024-01-05T05:00Z", Some("2024-01-05 05:00:00+00:00")),
            ("2024-01-05 05:00+02", Some("2024-01-05 05:00:00+02:00")),
            ("2024-01-05 10:00 PM", Some("2024-01-05 22:00:00")),
            ("2024-01-05 12:30am", Some("2024-01-05 00:30:00")),
            ("2024-01-05 10:00 Europe/Berlin", Some("2024-01-05 10:00:00 Europe/Berlin")),
            ("2024-01-05 10:00:00 PST", Some("2024-01-05 10:00:00-08:00")),
            ("2024-01-05 10:00:00cet", Some("2024-01-05 10:00:00+01:00")),
            // No hour of summer, which the zone of that name has.
            ("2024-07-05 10:00:00 CET", Some("2024-07-05 10:00:00+01:00")),
            ("2024-07-05 10:00:00WET", Some("2024-07-05 10:00:00+00:00")),
            ("2024-07-05 10:00:00 EST5EDT", None),
            ("20240105T101112.25Z", Some("2024-01-05 10:11:12.25+00:00")),
            ("Jan 5 2024 10:11", Some("2024-01-05 10:11:00")),
            ("10:11 Jan 5 2024", Some("2024-01-05 10:11:00")),
            ("Fri Jan 05 10:11:12 2024 UTC", Some("2024-01-05 10:11:12+00:00")),
            ("2024-01-05", None),
            ("2024-01-05T10:11:12.5Z", None),
            ("2024-01-05 10:11:12", None),
            ("2024-01-05 25:00", None),
            ("2024-01-05 13:00 PM", None),
            ("2024-01-05 05:00 Nowhere", None),
            ("05:00", None),
            ("yesterday at 05:00", None),
        ],
    );
    check(
        TimeLiteralKind::Reading,
        &[
            ("2024-01-05T10:00:00+02:00", Some("2024-01-05 10:00:00")),
            ("2024-01-05 10:11:12.123456789Z", Some("2024-01-05 10:11:12.123456789")),
            ("2024-01-05 10:11:12", None),
        ],
    );
    check(
        TimeLiteralKind::Time,
        &[
            ("040506.789", Some("04:05:06.789")),
            ("04:05 PM", None),
            ("4:05pm", Some("16:05:00")),
            ("2024-01-05 04:05:06+02", Some("04:05:06")),
            ("04:05:06", None),
            ("2024-01-05", None),
        ],
    );
}

#[test]
fn days_are_those_of_the_calendar() {
    check(
        TimeLiteralKind::Date,
        &[
            ("29 Feb 2024", Some("2024-02-29")),
            ("29 Feb 2023", None),
            ("Feb 29, 1900", None),
            ("Feb 29, 2000", Some("2000-02-29")),
            ("31 April 2024", None),
            ("0 Jan 2024", None),
            ("1/2/69", Some("2069-01-02")),
            ("1/2/70", Some("1970-01-02")),
            ("1/2/024", None),
            ("jan. 5 2024", Some("2024-01-05")),
            ("Sept 5 2024", Some("2024-09-05")),
            ("Septem 5 2024", None),
            ("Jan Feb 5 2024", None),
            ("1 2 3", None),
            ("2024/1/5/7", None),
            ("5 März 2024", None),
            ("\u{ff12}/1/2024", None),
        ],
    );
}

#[test]
fn each_form_of_a_day_is_the_same_day() {
    let first = chrono::NaiveDate::from_ymd_opt(1970, 1, 1).unwrap();
    // A hundred years, of which the years of two digits are those.
    for days in (0..36_524).step_by(97) {
        let day = first + chrono::Days::new(days);
        let expected = day.format("%Y-%m-%d").to_string();
        for form in
            ["%-m/%-d/%Y", "%m-%d-%y", "%Y.%-m.%-d", "%d-%b-%Y", "%Y-%b-%d", "%B %-d, %Y", "%-d %b %Y", "%a %b %-d %y"]
        {
            let text = day.format(form).to_string();
            assert_eq!(in_form(&text, TimeLiteralKind::Date).as_ref(), Some(&expected), "{text}");
            assert!(has_date(&text), "{text}");
        }
    }
    for text in ["10:00", "noon", "", "13 Jan"] {
        assert!(!has_date(text), "{text}");
    }
}

#[test]
fn clocks_and_zones_have_bounds() {
    check(
        TimeLiteralKind::Zoned,
        &[
            ("2024-01-05 10:00 +0530", Some("2024-01-05 10:00:00+05:30")),
            ("2024-01-05 10:00 -15:59", Some("2024-01-05 10:00:00-15:59")),
            ("2024-01-05 10:00 +16", None),
            ("2024-01-05 10:00 +05:60", None),
            ("2024-01-05 10:00 +", None),
            ("2024-01-05 10:00 UTC UTC", None),
            ("2024-01-05 10:00 EDT", Some("2024-01-05 10:00:00-04:00")),
            ("2024-01-05 10:00 jst", Some("2024-01-05 10:00:00+09:00")),
            ("2024-01-05 12:00 PM", Some("2024-01-05 12:00:00")),
            ("2024-01-05 12:00 AM", Some("2024-01-05 00:00:00")),
            ("PM 10:00 2024-01-05", Some("2024-01-05 22:00:00")),
            ("2024-01-05 10:00 PM AM", None),
            ("2024-01-05 PM", None),
            ("2024-01-05 10:60", None),
            ("2024-01-05 10:00 11:00", None),
            ("2024-01-05 2024-01-06", None),
            ("Jan 5 2024 10:11:12.1234567891", Some("2024-01-05 10:11:12.123456789")),
            ("Jan 5 2024 10:11.5", None),
            // The end of a day is where the next one begins.
            ("2024-01-05 24:00", Some("2024-01-06 00:00:00")),
            ("2024-02-29T24:00:00Z", Some("2024-03-01 00:00:00+00:00")),
            ("2023-12-31 23:59:60.0", Some("2024-01-01 00:00:00")),
            ("2024-01-05 10:59:60.5", Some("2024-01-05 11:00:00.5")),
            ("2024-01-05 24:00:00.1", None),
            ("2024-01-05 24:00 PM", None),
        ],
    );
    check(
        TimeLiteralKind::Reading,
        &[("2024-01-05 10:00 PST", Some("2024-01-05 10:00:00")), ("2024-01-05T10:11:12", None)],
    );
    check(
        TimeLiteralKind::Time,
        &[
            ("1:2", Some("01:02:00")),
            ("23:59:59.5 UTC", Some("23:59:59.5")),
            ("10:59:60", Some("11:00:00")),
            ("24:00", None),
            ("10", None),
        ],
    );
    for text in ["24:00", "24:00:00.000", "23:59:60", "2024-01-05 24:00 UTC"] {
        assert!(is_end_of_day(text) && is_beyond(text), "{text}");
    }
    for text in ["00:00", "23:59:59", "24:00:01", "25:00", "2024-01-05", "x"] {
        assert!(!is_end_of_day(text), "{text}");
    }
}

#[test]
fn eras_begin_where_they_are_counted_from() {
    for (part, expected) in [
        ("decade", Some((10, 0))),
        ("CENTURIES", Some((100, 99))),
        ("millenium", Some((1000, 999))),
        ("Millennia", Some((1000, 999))),
        ("year", None),
        ("", None),
    ] {
        assert_eq!(era(part), expected, "{part}");
    }
}

#[test]
fn fields_are_out_of_their_range() {
    for text in [
        "2024-02-30",
        "2024-13-01",
        "2024-01-00",
        "13/01/2024",
        "20241301",
        "31 April 2024",
        "0 Jan 2024",
        "12345-01-01",
        "2024-02-30T10:00:00Z",
        "2024-01-05 25:00",
        "2024-01-05 10:60:00+02",
        "25:00",
        "10:00:75",
        "13:00 PM",
    ] {
        assert!(is_beyond(text), "{text}");
    }
    for text in ["", "x", "2024-02-29", "2024-02-30 x", "10:00", "250:00", "January", "2024-1-1-1", "1-2", "infinity"] {
        assert!(!is_beyond(text), "{text}");
    }
}

#[test]
fn units_have_several_names() {
    for (written, expected) in
        [("MS", Some("millisecond")), ("hrs", Some("hour")), ("Months", Some("month")), ("year", None), ("x", None)]
    {
        assert_eq!(unit_name(written), expected, "{written}");
    }
}
