//! Times as values: what is read as one, how it is written, and where it is cut.

use super::*;

#[test]
fn times() {
    let check = |text: &str, want: Option<&str>| {
        assert_eq!(parse_rfc3339(text).map(time_text).as_deref(), want, "{text}");
    };
    check("2023-01-15T23:45:51Z", Some("2023-01-15T23:45:51Z"));
    check("2023-01-15T23:45:51.120Z", Some("2023-01-15T23:45:51.12Z"));
    check("2023-01-15T23:45:51.12345678Z", Some("2023-01-15T23:45:51.12345678Z"));
    check("2023-01-16 00:45:51+01:00", Some("2023-01-15T23:45:51Z"));
    check("2023-01-15T23:45:51", Some("2023-01-15T23:45:51Z"));
    check("1969-12-31T23:59:59.5Z", Some("1969-12-31T23:59:59.5Z"));
    check("2024-02-29T00:00:00Z", Some("2024-02-29T00:00:00Z"));
    for bad in [
        "",
        "foobar",
        "2023-01-15T22:15:51.Z",
        "1676-09-21T00:12:43Z",
        "2263-04-11T23:47:17Z",
        "1677-09-21T00:12:43.999999999Z",
        "2262-04-11T23:47:16Z",
        "2023-MM-11T23:47:17Z",
        "2023-01-23Thh:47:17Z",
        "2023-01-23T23:33:ssZ",
        "2023-02-30T00:00:00Z",
        "2023-01-01T00:00:00Zx",
        "2023-01-01T00:00:00+1:00",
    ] {
        check(bad, None);
    }
    let unix = |text: &str| parse_unix(text).map(time_text);
    assert_eq!(unix("1741600001").as_deref(), Some("2025-03-10T09:46:41Z"));
    assert_eq!(unix("1741600001.5").as_deref(), Some("2025-03-10T09:46:41.5Z"));
    assert_eq!(unix("1741600001500").as_deref(), Some("2025-03-10T09:46:41.5Z"));
    assert_eq!(unix("1741600001500000").as_deref(), Some("2025-03-10T09:46:41.5Z"));
    assert_eq!(unix("1741600001500000001").as_deref(), Some("2025-03-10T09:46:41.500000001Z"));
    assert_eq!(unix("1.7416000015e9").as_deref(), Some("2025-03-10T09:46:41.5Z"));
    assert_eq!(unix("17416E8").as_deref(), Some("2025-03-10T09:46:40Z"));
    assert_eq!(unix("-5").as_deref(), Some("1969-12-31T23:59:55Z"));
    assert_eq!(unix("-0.5").as_deref(), Some("1969-12-31T23:59:59.5Z"));
    assert_eq!(unix("9007199254740993").as_deref(), Some("2255-06-05T23:47:34.740993Z"));
    assert_eq!(unix("1741600001.5000000019").as_deref(), Some("2025-03-10T09:46:41.500000001Z"));
    for bad in ["foo", "", ".5", "1e-3", "1e19", "1.2.3", "99999999999999999999", "5s"] {
        assert_eq!(unix(bad), None, "{bad}");
    }
    let day = parse_rfc3339("2024-03-31T23:20:30Z").unwrap();
    assert_eq!(time_text(truncate_to_month(day)), "2024-03-01T00:00:00Z");
    assert_eq!(time_text(truncate_to_year(day)), "2024-01-01T00:00:00Z");
    assert_eq!(time_text(truncate_to_month(-1)), "1969-12-01T00:00:00Z");
}

#[test]
fn unix_times_by_their_magnitude() {
    const NS: i64 = 1_000_000_000;
    for (n, unit) in [
        (1, NS),
        (9_223_372_036, NS),
        (9_223_372_037, 1_000_000),
        (9_223_372_036_854, 1_000_000),
        (9_223_372_036_855, 1000),
        (9_223_372_036_854_775, 1000),
        (9_223_372_036_854_776, 1),
        (i64::MAX, 1),
        (-9_223_372_036, NS),
        (-9_223_372_037, 1_000_000),
        (i64::MIN, 1),
    ] {
        assert_eq!(unix_to_ns(n), n * unit, "{n}");
    }
    for (text, want) in [
        ("0", 0),
        ("-0", 0),
        ("+5", 5 * NS),
        ("1e9", NS * NS),
        ("1.5e1", 15 * NS),
        ("1.55e1", 15_500_000_000),
        ("1e18", NS * NS),
        ("0.0000000019", 1),
        ("-1.25", -1_250_000_000),
        ("9223372037.5", 9_223_372_037_500_000),
    ] {
        assert_eq!(parse_unix(text), Some(want), "{text}");
    }
    for bad in ["-", "--1", "1e", "1_000", " 1", "1 ", "1e-1", "1.5.2", "٣", "9223372036854775808", "1e99"] {
        assert_eq!(parse_unix(bad), None, "{bad}");
    }
}

#[test]
fn times_are_cut_to_months_and_years() {
    let check = |text: &str, month: &str, year: &str| {
        let ns = parse_rfc3339(text).expect("a time");
        assert_eq!([time_text(truncate_to_month(ns)), time_text(truncate_to_year(ns))], [month, year]);
    };
    check("2024-02-29T23:59:59.999999999Z", "2024-02-01T00:00:00Z", "2024-01-01T00:00:00Z");
    check("2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z", "2024-01-01T00:00:00Z");
    check("1969-12-31T23:59:59Z", "1969-12-01T00:00:00Z", "1969-01-01T00:00:00Z");
    check("2024-01-01T00:30:00+01:00", "2023-12-01T00:00:00Z", "2023-01-01T00:00:00Z");
    assert_eq!((truncate_to_month(i64::MIN), truncate_to_year(i64::MIN)), (i64::MIN, i64::MIN));
    for (ns, want) in
        [(1_999_999, "1970-01-01T00:00:00.001Z"), (-1, "1969-12-31T23:59:59.999Z"), (0, "1970-01-01T00:00:00.000Z")]
    {
        let mut out = String::new();
        push_rfc3339_millis(&mut out, ns);
        assert_eq!(out, want);
    }
    for bad in [
        "2024-03-01T00:00:00z",
        "2024-03-01t00:00:00Z",
        "2024-03-01T00:00:00+0100",
        "2024-03-01T00:00:00,5Z",
        "2024-03-01T00:00:00.1234567890Z",
    ] {
        assert_eq!(parse_rfc3339(bad), None, "{bad}");
    }
}
