mod times;

use std::cmp::Ordering;

use proptest::prelude::*;

use super::*;

fn duration_text(ns: i64) -> String {
    let mut out = String::new();
    push_duration(&mut out, ns);
    out
}

fn time_text(ns: i64) -> String {
    let mut out = String::new();
    push_rfc3339(&mut out, ns);
    out
}

#[test]
fn integers() {
    let check = |text: &str, want: Option<u64>| assert_eq!(parse_u64(text), want, "{text}");
    check("0", Some(0));
    check("1_000", Some(1000));
    check("18446744073709551615", Some(u64::MAX));
    for bad in ["", "18446744073709551616", "foo", "1.2", "0123", "_", "+1", " 1"] {
        check(bad, None);
    }
    assert_eq!(parse_i64("-0"), Some(0));
    assert_eq!(parse_i64("-9223372036854775808"), Some(i64::MIN));
    assert_eq!(parse_i64("-9223372036854775809"), None);
    assert_eq!(parse_i64("9223372036854775808"), None);
    assert_eq!(parse_i64("--1"), None);
}

#[test]
fn decimals() {
    let check = |text: &str, want: Option<f64>| assert_eq!(parse_float(text), want, "{text}");
    check("0", Some(0.0));
    check("1_234_567_890", Some(1_234_567_890.0));
    check("-1.234_567", Some(-1.234_567));
    check("1.0234", Some(1.0234));
    check("0.1", Some(0.1));
    check("123456789.123456789123456789", Some(123_456_789.123_456_79));
    check("18446744073709551615", Some(18_446_744_073_709_551_615.0));
    for bad in ["", ".123", "123.", "123.434.55", ".", "12e5", "12-5", "01", "NaN", "inf", "-", "1._2"] {
        check(bad, None);
    }
    // Of many digits, and beyond what fits.
    check(&format!("1{}.5", "0".repeat(300)), Some(1e300));
    check(&format!("0.{}1", "0".repeat(400)), Some(0.0));
    check(&format!("1{}.5", "0".repeat(309)), None);
    assert_eq!(numeric(&format!("-1{}.5", "0".repeat(309))), None);
}

#[test]
fn numbers() {
    let check = |text: &str, want: Option<f64>| assert_eq!(numeric(text), want, "{text}");
    check("1.5", Some(1.5));
    check("1.5K", Some(1500.0));
    check("1h", Some(3600e9));
    check("10MiB", Some(10.0 * 1024.0 * 1024.0));
    check("0xff", Some(255.0));
    check("0b101", Some(5.0));
    check("0o17", Some(15.0));
    check("1e3", Some(1000.0));
    check("-1.5e-3", Some(-0.0015));
    check("+5", Some(5.0));
    check(".5", Some(0.5));
    check("007", Some(7.0));
    check("Inf", Some(f64::INFINITY));
    check("-inf", Some(f64::NEG_INFINITY));
    check("1.2.3.4", Some(f64::from(0x0102_0304)));
    check("1970-01-01T00:00:01Z", Some(1e9));
    for bad in ["", "foo", "1.2.3", "10:20", "2025-03-10", "1x", "0x", "1e", "infinity", "-", "+", "1e400", "1 "] {
        check(bad, None);
    }
}

#[test]
fn durations() {
    let check = |text: &str, want: Option<i64>| assert_eq!(parse_duration(text), want, "{text}");
    check("0s", Some(0));
    check("-0.0w0.00d0h0s0.0000ms", Some(0));
    check("1.5ms", Some(1_500_000));
    check("1µs", Some(1000));
    check("1us", None);
    check("516.06ms", Some(516_059_999));
    check("0.05h", Some(180_000_000_000));
    check("2.5y", Some(78_840_000_000_000_000));
    check("1.1h5m2.5s3_456ns", Some(4_262_500_003_456));
    check("9_223_372_036_854_775_807ns", Some(i64::MAX));
    check("-15_223_372_036_854_775_808ns", Some(-i64::MAX));
    for bad in ["2", "2.5", "foobar", "1soo", "3.43e", "3.43es", " 2s", "2s ", "2s 3ms", "", "-", "s"] {
        check(bad, None);
    }
    for (ns, want) in [
        (0, "0"),
        (-1, "-1ns"),
        (12_345, "12µs345ns"),
        (12_345_678_901, "12.345678901s"),
        (1_234_567_890_143, "20m34.567890143s"),
        (1_234_567_890_123_457, "2w6h56m7.890123457s"),
    ] {
        assert_eq!(duration_text(ns), want);
    }
}

#[test]
fn sizes() {
    let check = |text: &str, want: Option<i64>| assert_eq!(parse_size(text), want, "{text}");
    check("1.5M", Some(1_500_000));
    check("1.5KB", Some(1500));
    check("1.5Mi", Some(1_572_864));
    check("1.5TiB", Some(1_649_267_441_664));
    check("1MiB500KiB200B", Some(1_560_776));
    check("9_223_372_036_854_775_807", Some(i64::MAX));
    check("-9223372036854775808B", Some(-i64::MAX));
    check("15_223_372_036_854_775_808", Some(i64::MAX));
    check("-15_223_372_036_854_775_808", Some(-i64::MAX));
    for bad in ["", "123qs", "1b", "1m", "1kb", "1ki", "1KIB", "123.456", "K", "-"] {
        check(bad, None);
    }
}

#[test]
fn addresses() {
    assert_eq!(parse_ipv4("127.0.0.1"), Some(0x7f00_0001));
    for bad in ["", "foo", "127.0.0.x", "127.256.127.127", "127.127.127.-1", "1.2.3", "1.2.3.4.5", "1.2.3.1234", "..."]
    {
        assert_eq!(parse_ipv4(bad), None, "{bad}");
    }
    assert_eq!(parse_ipv6("::1"), Some(1));
    assert_eq!(parse_ipv6("1.2.3.4"), Some(0xffff_0102_0304));
    assert_eq!(parse_ipv6("::ffff:1.2.3.4"), Some(0xffff_0102_0304));
    assert_eq!(parse_ipv6("2001:db8::3f"), Some(0x2001_0db8_0000_0000_0000_0000_0000_003f));
    assert_eq!(parse_ipv6("2001:db8"), None);
    assert_eq!((parse_ipv4_mask("/0"), parse_ipv4_mask("/24"), parse_ipv4_mask("/33")), (Some(0), Some(24), None));
    assert_eq!((parse_ipv4_mask(""), parse_ipv4_mask("foo"), parse_ipv4_mask("/-1")), (None, None, None));
}

#[test]
fn results() {
    for (value, want) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (1.234, "1.234"),
        (-12_345_678.0, "-12345678"),
        (f64::NAN, "NaN"),
        (f64::INFINITY, "+Inf"),
        (f64::NEG_INFINITY, "-Inf"),
        (234_219_066_488_471_940.0, "234219066488471940"),
        (1e21, "1000000000000000000000"),
        (1e-7, "0.0000001"),
    ] {
        assert_eq!(float_text(value), want);
    }
    let mut out = String::new();
    push_json_string(&mut out, "a\"\\\n\u{1b}<o'neil>é");
    assert_eq!(out, r#""a\"\\\n\u001b\u003co\u0027neil>é""#);
}

#[test]
fn texts_of_any_length_are_escaped_wherever_it_is_needed() {
    for len in 0..70 {
        for at in 0..=len {
            let (before, behind) = ("é".repeat(at / 2) + &"x".repeat(at % 2), "y".repeat(len - at));
            for (raw, escaped) in
                [("", ""), ("\"", "\\\""), ("\\", "\\\\"), ("\u{1f}", "\\u001f"), ("'<", "\\u0027\\u003c")]
            {
                let mut out = String::new();
                push_json_string(&mut out, &format!("{before}{raw}{behind}"));
                assert_eq!(out, format!("\"{before}{escaped}{behind}\""));
            }
        }
    }
}

#[test]
fn order() {
    let ascending = [
        "",
        "-inf",
        "-3",
        "0",
        "1",
        "1.5",
        "100ms",
        "1.23s",
        "1.5s",
        "9007199254740992",
        "9007199254740993",
        "9223372036854775807",
        "18446744073709551615",
        "inf",
        "2025-01-15T10:20:30.09Z",
        "2025-01-15T10:20:30.1Z",
        "1.2.3.4",
        "1.2.10.4",
        "DELETE",
        "GET",
        "abc",
        "v1.23.4",
        "v1.23.10",
        "v1.23.010",
        "zoë",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(compare(a, b), i.cmp(&j), "{a} {b}");
        }
    }
    assert_eq!(compare("1000", "1K"), Ordering::Equal);
    assert_eq!(compare("0", "-0"), Ordering::Equal);
}

fn values() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c0-2.:]{0,6}",
        "-?[0-9]{1,20}",
        "-?[0-9]{1,4}\\.[0-9]{1,4}",
        "[0-9]{1,3}(ms|s|h|KB|MiB)",
        "20[0-9]{2}-0[1-9]-1[0-9]T0[0-9]:1[0-9]:00(\\.[0-9]{1,9})?Z",
        ".{0,8}",
        "[\\x00-\\x03a0]{0,6}",
    ]
}

fn key(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    push_sort_key(&mut out, value);
    out
}

#[test]
fn plain_order_takes_units_for_text() {
    let mut all = ["100", "12KB", "", "7MB", "b", "1.5MiB", "-3", "1KiB", "0", "1.7", "3GB", "2025-03-10T00:00:00Z"];
    all.sort_by_key(|value| {
        let mut key = Vec::new();
        push_plain_sort_key(&mut key, value);
        key
    });
    let want = ["", "-3", "0", "1.7", "1.5MiB", "1KiB", "3GB", "7MB", "12KB", "100", "2025-03-10T00:00:00Z", "b"];
    assert_eq!(all, want);
}

proptest! {
    #[test]
    fn keys_order_as_values(a in values(), b in values()) {
        prop_assert_eq!(key(&a).cmp(&key(&b)), compare(&a, &b));
    }

    #[test]
    fn order_is_transitive(a in values(), b in values(), c in values()) {
        let mut all = [a, b, c];
        all.sort_by(|x, y| compare(x, y));
        prop_assert_ne!(compare(&all[0], &all[2]), Ordering::Greater);
    }

    #[test]
    fn decimals_are_rounded_correctly(text in "-?(0|[1-9][0-9]{0,18})\\.[0-9]{1,24}") {
        prop_assert_eq!(parse_float(&text), text.parse::<f64>().ok());
    }

    #[test]
    fn floats_read_back(bits in any::<u64>()) {
        let value = f64::from_bits(bits);
        prop_assume!(value.is_finite());
        prop_assert_eq!(float_text(value).parse::<f64>().unwrap(), value);
    }

    #[test]
    fn durations_read_back(ns in -(1_i64 << 52)..1_i64 << 52) {
        prop_assume!(ns != 0);
        // Seconds are written as a fraction, and a fraction is cut off at the nanosecond.
        prop_assert!(parse_duration(&duration_text(ns)).is_some_and(|read| read.abs_diff(ns) <= 1));
    }

    #[test]
    fn times_read_back(ns in -9_000_000_000_000_000_000_i64..9_000_000_000_000_000_000) {
        prop_assert_eq!(parse_rfc3339(&time_text(ns)), Some(ns));
    }

    #[test]
    fn no_text_stops_them(text in ".{0,40}") {
        let _ = (numeric(&text), parse_unix(&text), parse_ipv6(&text), parse_rfc3339(&text));
    }
}

#[test]
fn durations_at_their_ends() {
    for (ns, want) in [
        (999, "999ns"),
        (1000, "1µs"),
        (1_001_001, "1ms1µs1ns"),
        (999_999_999, "999ms999µs999ns"),
        (1_000_000_000, "1s"),
        (59_999_999_999, "59.999999999s"),
        (60_000_000_000, "1m"),
        (60_000_000_001, "1m1ns"),
        (-90_000_000_000, "-1m30s"),
        (86_400_000_000_000, "1d"),
        (604_800_000_000_000, "1w"),
        (i64::MAX, "15250w1d23h47m16.854775807s"),
        (i64::MIN, "-15250w1d23h47m16.854775808s"),
    ] {
        assert_eq!(duration_text(ns), want);
    }
    for (text, want) in [
        ("1w", 604_800_000_000_000),
        ("1y", 365 * 86_400_000_000_000),
        ("1m1ms", 60_001_000_000),
        ("1μs", 1000),
        ("-1h30m", -5_400_000_000_000),
        ("100000y", i64::MAX),
        ("-100000y", -i64::MAX),
        ("1000y1ns", i64::MAX),
    ] {
        assert_eq!(parse_duration(text), Some(want), "{text}");
    }
    for bad in ["1.s", ".5s", "1 s", "1S", "1ms5", "-", "--1s", "-.5s", "1x", "0"] {
        assert_eq!(parse_duration(bad), None, "{bad}");
    }
}

#[test]
fn numbers_with_units_and_in_other_bases() {
    for (text, want) in [
        ("1m", 60e9),
        ("1M", 1e6),
        ("1K", 1000.0),
        ("-1.5KiB", -1536.0),
        ("1.5B", 1.0),
        ("1KB1", 1001.0),
        ("1TiB", 1_099_511_627_776.0),
        ("1E-2", 0.01),
        ("-0x10", -16.0),
        ("0x_f", 15.0),
        ("0xFFFFFFFFFFFFFFFF", 18_446_744_073_709_551_615.0),
        ("1_000.5", 1000.5),
        ("18446744073709551616", 18_446_744_073_709_551_616.0),
        ("+inf", f64::INFINITY),
    ] {
        assert_eq!(number(text), Some(want), "{text}");
    }
    for bad in [
        "+1K",
        "1Kb",
        "1KB1.5",
        "0x",
        "0x10000000000000000",
        "0b2",
        "0o8",
        "1.2.3.4",
        "2025-03-10T00:00:00Z",
        "nan",
        "i",
        ".",
        "1e5.5",
        "--1",
        "+-1",
        "1..2",
        "infinit",
        "٣",
        "1e",
    ] {
        assert_eq!(number(bad), None, "{bad}");
    }
    let underscores = |count: usize| format!("1{}", "_".repeat(count));
    assert_eq!((parse_u64(&underscores(39)), parse_u64(&underscores(40))), (Some(1), None));
}

#[test]
fn addresses_at_their_ends() {
    for (text, want) in [("0.0.0.0", 0), ("255.255.255.255", u32::MAX), ("10.0.0.1", 0x0a00_0001)] {
        assert_eq!(parse_ipv4(text), Some(want), "{text}");
    }
    for bad in ["1.2.3.", ".1.2.3", "1..2.3", "1.2.3.4 ", " 1.2.3.4", "+1.2.3.4", "1.2.3.256", "1.2.3.4/24"] {
        assert_eq!(parse_ipv4(bad), None, "{bad}");
    }
    for (text, want) in
        [("::", 0), ("1::", 1 << 112), ("::ffff:0.0.0.1", 0xffff_0000_0001), ("0.0.0.0", 0xffff_0000_0000)]
    {
        assert_eq!(parse_ipv6(text), Some(want), "{text}");
    }
    for bad in ["", ":", "12345::", "::ffff:1.2.3.256", "fe80::1%eth0", "1.2.3", "::1 ", "1:2:3:4:5:6:7:8:9"] {
        assert_eq!(parse_ipv6(bad), None, "{bad}");
    }
    for (text, want) in [("/32", Some(32)), ("/8", Some(8)), ("/", None), ("/032", None), ("24", None), ("/2a", None)] {
        assert_eq!(parse_ipv4_mask(text), want, "{text}");
    }
}

#[test]
fn equal_values_and_neighbours() {
    for (a, b) in [("1.0", "1"), ("0x10", "16"), ("1KiB", "1024"), ("1ms", "1000000"), ("-0", "0.0"), ("1e3", "1K")] {
        assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
    }
    for (less, more) in [
        ("9007199254740992.0", "9007199254740993"),
        ("-9223372036854775808", "-9223372036854775807"),
        ("18446744073709551614", "18446744073709551615"),
        ("18446744073709551616", "inf"),
        ("a1", "a01"),
        ("a1b", "a01a"),
        ("a1a", "a1b"),
        ("a2", "a10"),
        ("a99999999999999999999", "a100000000000000000000"),
        ("a", "a1"),
        ("a1", "aa"),
        ("Z", "a"),
        ("z", "ä"),
        ("2024-01-01T00:00:00Z", "2024-01-01"),
        ("99", "2024-01-01T00:00:00+01:00"),
    ] {
        assert_eq!((compare(less, more), compare(more, less)), (Ordering::Less, Ordering::Greater), "{less} {more}");
    }
    assert_eq!(compare("2024-01-01T00:00:00Z", "2024-01-01T01:00:00+01:00"), Ordering::Equal);
}

#[test]
fn signs_in_json() {
    for (text, want) in [
        ("\u{8}\u{c}\r\t", r"\b\f\r\t"),
        ("\u{0}\u{1f}", r"\u0000\u001f"),
        ("\u{7f}\u{2028}&>/", "\u{7f}\u{2028}&>/"),
        ("'", r"\u0027"),
    ] {
        let mut out = String::new();
        push_json_string(&mut out, text);
        assert_eq!(out, format!("\"{want}\""));
    }
    for (value, want) in
        [(9e15, "9000000000000000"), (-0.0, "-0"), (0.1 + 0.2, "0.30000000000000004"), (-1.5e-7, "-0.00000015")]
    {
        assert_eq!(float_text(value), want);
    }
}

proptest! {
    #[test]
    fn addresses_read_back(address in any::<u32>(), long in any::<u128>()) {
        let mut out = String::new();
        push_ipv4(&mut out, address);
        prop_assert_eq!(parse_ipv4(&out), Some(address));
        prop_assert_eq!(parse_ipv6(&out), Some(0xffff_0000_0000 | u128::from(address)));
        prop_assert_eq!(parse_ipv6(&std::net::Ipv6Addr::from(long).to_string()), Some(long));
    }

    #[test]
    fn ranks_of_numbers_are_those_of_their_texts(a in any::<i64>(), b in any::<i64>(), near in -3..3_i64) {
        let ranked = |a: i64, b: i64| compare_ranked((rank_of_int(a), ""), (rank_of_int(b), ""));
        for b in [b, a.saturating_add(near)] {
            prop_assert_eq!(ranked(a, b), a.cmp(&b));
            prop_assert_eq!(compare(&a.to_string(), &b.to_string()), a.cmp(&b));
        }
        let (x, y) = (a as f64 / 1024.0, b as f64 / 1024.0);
        let floats = compare_ranked((rank_of_float(x), ""), (rank_of_float(y), ""));
        prop_assert_eq!(Some(floats), x.partial_cmp(&y));
    }

    #[test]
    fn no_key_is_the_beginning_of_another(a in values(), b in values()) {
        let (a, b) = (key(&a), key(&b));
        prop_assert!(a == b || !(a.starts_with(&b) || b.starts_with(&a)));
    }

    #[test]
    fn integers_read_back(n in any::<i64>(), m in any::<u64>()) {
        prop_assert_eq!((parse_i64(&n.to_string()), parse_u64(&m.to_string())), (Some(n), Some(m)));
        prop_assert_eq!((parse_size(&n.to_string()), parse_float(&m.to_string())), (Some(float_cut(n)), Some(m as f64)));
    }
}

/// An integer as it is after a double: sizes are read as decimals with a unit.
fn float_cut(n: i64) -> i64 {
    let cut = n.unsigned_abs() as f64 as i64;
    if n < 0 { -cut } else { cut }
}
