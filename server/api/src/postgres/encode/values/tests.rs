use quiver_sql::Param;

use super::*;
use crate::postgres::params::read;

fn written(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).unwrap()
}

#[test]
fn floats_are_written_as_in_postgresql() {
    for (value, expected) in [
        (1e15, "1e+15"),
        (-1.234_567_890_123_456_8e17, "-1.2345678901234568e+17"),
        (1e-5, "1e-05"),
        (2.5e-300, "2.5e-300"),
        (1e14, "100000000000000"),
        (0.0001, "0.0001"),
        (0.000_12, "0.00012"),
        (-0.0, "-0"),
        (f64::NEG_INFINITY, "-Infinity"),
        (f64::NAN, "NaN"),
    ] {
        assert_eq!(written(|out| push_float(value, FLOAT8_PLAIN, out)), expected);
    }
    // Those of four bytes have fewer digits, and an exponent sooner.
    for (value, expected) in [
        (0.1_f32, "0.1"),
        (0.0001, "0.0001"),
        (0.000_01, "1e-05"),
        (999_999.0, "999999"),
        (1e6, "1e+06"),
        (123_456_792.0, "1.2345679e+08"),
        (f32::INFINITY, "Infinity"),
    ] {
        assert_eq!(written(|out| push_float(value, FLOAT4_PLAIN, out)), expected);
    }
}

#[test]
fn days_of_any_time() {
    for (days, expected) in [
        (0, "1970-01-01"),
        (-719_162, "0001-01-01"),
        (-719_163, "0001-12-31 BC"),
        (2_932_897, "10000-01-01"),
        (i32::MAX, "infinity"),
        (i32::MIN, "-infinity"),
    ] {
        assert_eq!(written(|out| push_date(days, out)), expected, "{days}");
    }
}

/// Breaks if a moment and its offset do not go together: the text is then another moment.
#[test]
fn moments_have_their_offset() {
    for (us, zone, expected) in [
        (-1, None, "1969-12-31 23:59:59.999999"),
        (1_500_000, None, "1970-01-01 00:00:01.5"),
        (0, Some("+00:00"), "1970-01-01 00:00:00+00"),
        (0, Some("+05:30"), "1970-01-01 05:30:00+05:30"),
        (0, Some("-03:30"), "1969-12-31 20:30:00-03:30"),
        (1_720_000_000_000_000, Some("Europe/Berlin"), "2024-07-03 11:46:40+02"),
        (-2_524_521_600_000_000, Some("Europe/Berlin"), "1890-01-01 00:53:28+00:53:28"),
        (i64::MAX, Some("Europe/Berlin"), "infinity"),
        (i64::MIN, None, "-infinity"),
    ] {
        let zone: Option<Tz> = zone.map(|zone| zone.parse().unwrap());
        assert_eq!(written(|out| push_stamp(us, zone, out)), expected, "{us} {zone:?}");
    }
}

#[test]
fn intervals_as_in_postgresql() {
    const HOUR: i64 = 3_600_000_000_000;
    for (months, days, ns, expected) in [
        (0, 0, 0, "00:00:00"),
        (14, 3, 4_500_000_000, "1 year 2 mons 3 days 00:00:04.5"),
        (-13, 0, 0, "-1 years -1 mons"),
        (-1, 2, -HOUR, "-1 mons +2 days -01:00:00"),
        (0, -1, HOUR, "-1 days +01:00:00"),
        (0, 0, 100 * HOUR, "100:00:00"),
        (0, 1, 999, "1 day"),
        (0, 0, -1_000, "-00:00:00.000001"),
    ] {
        let interval = IntervalMonthDayNano::new(months, days, ns);
        assert_eq!(written(|out| push_interval(interval, out)), expected);
    }
    assert_eq!(written(|out| push_time(86_399_999_999, out)), "23:59:59.999999");
}

/// Breaks if a client takes an item of a list for several, or for NULL.
#[test]
fn items_are_in_quotes_where_they_need_them() {
    for (text, expected) in [
        ("a", "a"),
        ("é", "é"),
        ("", r#""""#),
        ("Null", r#""Null""#),
        ("nulls", "nulls"),
        ("a b", r#""a b""#),
        ("a\u{b}b", "\"a\u{b}b\""),
        ("{x}", r#""{x}""#),
        (r#"a"b\"#, r#""a\"b\\""#),
    ] {
        assert_eq!(written(|out| push_item(text.as_bytes(), out)), expected);
    }
}

/// Breaks if a decimal comes back as another: what is written here is read as a parameter is.
#[test]
fn decimals_come_back() {
    let check = |text: &str, expected: &str| {
        let mut out = BytesMut::new();
        push_numeric(text, &mut out).unwrap();
        match read(1700, true, Some(&out.freeze())) {
            Ok(Param::Typed(Some(found), _)) => assert_eq!(found, expected, "{text}"),
            other => panic!("{text}: {other:?}"),
        }
    };
    for text in ["0", "-0.5", "1", "9999", "10000", "10000.0001", "0.0001", "0.00000001", "100000000", "0.00", "1.10"] {
        check(text, text);
    }
    check("-0.00", "0.00");
    check("-99999999999999999999999999999999999999", "-99999999999999999999999999999999999999");
    let mut seed = 17_u64;
    let mut next = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..2_000 {
        let sign = if next(2) == 0 { "" } else { "-" };
        let (mut whole, scale) = (String::new(), next(13));
        for at in 0..=next(25) {
            // The first digit is none of zero, others often are.
            whole.extend(char::from_digit(
                if at == 0 { 1 + next(9) as u32 } else { next(20).saturating_sub(10) as u32 },
                10,
            ));
        }
        let fraction: String =
            (0..scale).filter_map(|_| char::from_digit(next(20).saturating_sub(10) as u32, 10)).collect();
        let text = if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") };
        check(&text, &text);
    }
    for bad in ["1e5", "1.2.3", "--1", "x"] {
        assert!(push_numeric(bad, &mut BytesMut::new()).is_err(), "{bad}");
    }
}
