use super::*;

#[test]
fn layouts() {
    let time = Time::from_nanos(1_136_214_245_000_123_000);
    let check = |layout: &str, expected: &str| assert_eq!(time.format(layout), expected, "{layout}");
    check("Mon Jan 2 15:04:05 2006", "Mon Jan 2 15:04:05 2006");
    check("Monday, 02-Jan-06 03:04:05PM MST", "Monday, 02-Jan-06 03:04:05PM UTC");
    check("2006-01-02T15:04:05.000Z07:00", "2006-01-02T15:04:05.000Z");
    check("05.999999999", "05.000123");
    check("_2 002 -0700 -07:00", " 2 002 +0000 +00:00");
    check("Month 3:4 pm", "Month 3:4 pm");
    assert_eq!(time.to_string(), "2006-01-02 15:04:05.000123 +0000 UTC");
    let there = time.in_zone("Europe/Paris").expect("a zone");
    assert_eq!(there.format("15:04 -0700 MST"), "16:04 +0100 CET");
    assert!(time.in_zone("Mars/Here").is_err());
    assert_eq!(time.in_zone("Local"), Ok(time.in_utc()));
    assert_eq!(Time::zero().to_string(), "0001-01-01 00:00:00 +0000 UTC");
    assert_eq!(Time::zero().rfc3339(), "0001-01-01T00:00:00Z");
}

/// A second has nine digits, however many the layout has; 70,000 of them ended the message.
#[test]
fn fractions() {
    let check = |nanos: i128, layout: &str, expected: &str| {
        assert_eq!(Time::from_nanos(nanos).format(layout), expected, "{layout}");
    };
    check(5_120_000_000, "05.0", "05.1");
    check(5_120_000_000, "05.000", "05.120");
    check(5_120_000_000, "05.999", "05.12");
    check(5_120_000_000, "05,000", "05,120");
    check(5_000_000_000, "05.999", "05");
    check(5_000_000_000, "05.00", "05.00");
    check(5_000_000_001, "05.000000000", "05.000000001");
    check(5_000_000_001, "05.000000000000", "05.000000001");
    check(5_000_000_001, &format!("05.{}", "0".repeat(70_000)), "05.000000001");
    check(5_100_000_000, &format!("05.{}", "9".repeat(70_000)), "05.1");
    // Digits behind them are no fraction.
    check(5_120_000_000, ".0005", ".0005");
    // Before 1970 a fraction goes up, too.
    check(-1_500_000_000, "2006-01-02 15:04:05.0", "1969-12-31 23:59:58.5");
}

#[test]
fn the_ends_of_the_calendar() {
    let (first, last) = (Time::from_nanos(i128::MIN), Time::from_nanos(i128::MAX));
    assert!(first.nanos() < Time::zero().nanos() && Time::zero().nanos() < last.nanos());
    assert_eq!((first.add(-1), last.add(1)), (first, last));
    assert_eq!((first.add_date(0, 0, -1), last.add_date(1, 0, 0)), (first, last));
    for nanos in [0, 1, -1, 1_709_210_096_123_456_789, i128::from(i64::MIN), i128::from(i64::MAX)] {
        assert_eq!(Time::from_nanos(nanos).nanos(), nanos);
    }
}

/// Each part of a layout, at a time at which none looks like another.
#[test]
fn parts_of_layouts() {
    let time = Time::from_nanos(1_709_500_025_006_000_000);
    let check = |layout: &str, expected: &str| assert_eq!(time.format(layout), expected, "{layout}");
    check("Mon Monday Jan January", "Sun Sunday Mar March");
    check("2 02 _2 002 __2", "3 03  3 063  63");
    check("1 01 06 2006 _2006", "3 03 24 2024 _2024");
    check("15 3 03 PM pm 4 04 5 05", "21 9 09 PM pm 7 07 5 05");
    check("MST Z07 Z07:00 -07", "UTC Z Z +00");
    check("Monkey Janus", "Monkey Janus");
    check("ä2ß", "ä3ß");
    check("", "");
    let there = time.in_zone("America/St_Johns").expect("a zone");
    assert_eq!(there.format("-0700 -07:00 -07 Z0700 15:04"), "-0330 -03:30 -03 -0330 17:37");
    let midnight = Time::from_nanos(1_709_510_400_000_000_000);
    assert_eq!(midnight.format("3:04PM 15 Mon"), "12:00AM 00 Mon");
}

#[test]
fn read_by_layouts() {
    let check = |layout: &str, text: &str, expected: &str| {
        assert_eq!(parse(layout, text).map(|t| t.rfc3339()), Ok(expected.to_owned()), "{layout} {text}");
    };
    check("2006-01-02 15:04:05", "2024-03-01 10:00:00.25", "2024-03-01T10:00:00.25Z");
    check("2006-01-02 15:04:05.000", "2024-03-01 10:00:00.250", "2024-03-01T10:00:00.25Z");
    check("2006 002", "2024 366", "2024-12-31T00:00:00Z");
    check("2 Jan 06", "3 mar 68", "2068-03-03T00:00:00Z");
    check("2 Jan 06", "13 DEC 69", "1969-12-13T00:00:00Z");
    check("Monday, 2006-01-02", "sunday, 2024-03-03", "2024-03-03T00:00:00Z");
    check("2006-01-02 3PM", "2024-03-01 12AM", "2024-03-01T00:00:00Z");
    check("2006-01-02 3PM", "2024-03-01 12PM", "2024-03-01T12:00:00Z");
    check("2006-01-02 15 MST", "2024-03-01 10 GMT", "2024-03-01T10:00:00Z");
    check("2006-01-02T15:04Z0700", "2024-03-01T10:00-0330", "2024-03-01T10:00:00-03:30");
    for (layout, text) in [
        ("2006-01-02", "2023-02-29"),
        ("2006-01-02", "2024-13-01"),
        ("2006-01-02", "20240101"),
        ("2006-01-02", ""),
        ("2006 002", "2023 366"),
        ("15:04", "24:00"),
        ("15:04", "10:60"),
        ("15:04", "10:4"),
        ("15:04:05", "10:00:60.5x"),
        ("3PM", "3XM"),
        ("Jan", "Ja"),
        ("Jan", "äb"),
        ("-0700", "0100"),
        ("-0700", "+01:00"),
        ("-07:00", "+2400"),
        ("-07", "+24"),
        ("MST", "ABCDE"),
        ("05.000", "05"),
    ] {
        assert!(parse(layout, text).is_err(), "{layout} {text}");
    }
    let told = parse("2006", "2024x").expect_err("more than a year");
    assert_eq!(told, "parsing time \"2024x\" as \"2006\": extra text: \"x\"");
}

#[test]
fn calendar() {
    let time = |text: &str| parse("2006-01-02T15:04:05", text).expect(text);
    let check = |text: &str, (years, months, days): (i64, i64, i64), expected: &str| {
        let moved = time(text).add_date(years, months, days);
        assert_eq!(moved.format("2006-01-02T15:04:05"), expected, "{text} {years} {months} {days}");
    };
    check("2024-03-01T10:00:00", (0, 0, -1), "2024-02-29T10:00:00");
    check("2024-01-31T10:00:00", (0, 1, 0), "2024-03-02T10:00:00");
    check("2024-02-29T10:00:00", (1, -14, 400), "2025-02-01T10:00:00");
    check("2024-01-31T10:00:00", (i64::MAX, 0, 0), "2024-01-31T10:00:00");
    // Over the change to summer time: the clock is kept.
    let there = time("2024-03-30T11:00:00").in_zone("Europe/Paris").expect("a zone").add_date(0, 0, 1);
    assert_eq!(there.format("2006-01-02T15:04:05Z07:00"), "2024-03-31T12:00:00+02:00");
}

#[test]
fn read_back() {
    let check = |layout: &str, text: &str, expected: &str| {
        assert_eq!(parse(layout, text).map(|t| t.rfc3339()), Ok(expected.to_owned()), "{layout} {text}");
    };
    check("2006-01-02T15:04:05Z07:00", "2024-03-01T10:00:00.5+02:00", "2024-03-01T10:00:00.5+02:00");
    check("2006-01-02", "2024-02-29", "2024-02-29T00:00:00Z");
    check("Jan 2, 2006 at 3:04pm (MST)", "Feb 3, 2013 at 7:54pm (UTC)", "2013-02-03T19:54:00Z");
    check("02 Jan 06 15:04 -0700", "06 Apr 21 13:00 +1000", "2021-04-06T13:00:00+10:00");
    for t in ["2024-02-30", "2024-2-3", "x", "2024-01-01 "] {
        assert!(parse("2006-01-02", t).is_err(), "{t}");
    }
}
