use arrow::array::{Float64Array, Int64Array, StringArray, UInt64Array};

use super::super::testing::{call, column, one, room, shown, text, texts};
use super::*;

#[test]
fn numbers_are_written_as_in_postgresql() {
    let check = |number: &str, pattern: &str, expected: &str| {
        let read = Pattern::read(pattern);
        let mut out = String::new();
        read.write(&rounded(number, read.behind), &mut out);
        assert_eq!(out, expected, "{number} {pattern}");
    };
    check("1234.5", "9,999.99", " 1,234.50");
    check("-12", "999", " -12");
    check("12", "00000", " 00012");
    check("0.5", "0.00", " 0.50");
    check("0.05", "9.99", "  .05");
    check("1234567.891", "FM9,999,999.00", "1,234,567.89");
    check("1.5", "FM999.999", "1.5");
    check("5", "FM990.00", "5.00");
    check("1234", "999", " ###");
    check("-5", "999PR", "  <5>");
    check("5", "999PR", "   5 ");
    check("-5", "999MI", "  5-");
    check("5", "SG999", "+  5");
    check("-0.5", "S9.9", " -.5");
    check("12.3", "999.9\"%\"", "  12.3%");
    check("0", "9.9", "  .0");
    check("1234", "FM9G999", "1,234");
    check("-123", "FM000", "-123");
    check("0.999", "FM9.9", "1.");
    check("7", "PL99", "+  7");
    check("12.345", "0999.9", " 0012.3");
    check("99.95", "99.9", " ##.#");
}

/// The examples of PostgreSQL's manual, where its locale is `C`.
#[test]
fn examples_of_the_manual() {
    for (number, pattern, expected) in [
        ("-0.1", "99.99", "  -.10"),
        ("-0.1", "FM9.99", "-.1"),
        ("-0.1", "FM90.99", "-0.1"),
        ("0.1", "0.9", " 0.1"),
        ("12", "9990999.9", "    0012.0"),
        ("12", "FM9990999.9", "0012."),
        ("485", "9 9 9", " 4 8 5"),
        ("148.5", "999.999", " 148.500"),
        ("148.5", "FM999.990", "148.500"),
        ("3148.5", "9G999D999", " 3,148.500"),
        ("-485", "999S", "485-"),
        ("485", "999S", "485+"),
        ("485", "999MI", "485 "),
        ("485", "FM999MI", "485"),
        ("485", "SG999", "+485"),
        ("-485", "9SG99", "4-85"),
        ("-485", "999PR", "<485>"),
        ("485", "\"Good number:\"999", "Good number: 485"),
        ("485.8", "\"Pre:\"999\" Post:\" .999", "Pre: 485 Post: .800"),
        ("-1234.56", "S9,999.99", "-1,234.56"),
        ("1234.56", "S9,999.99", "+1,234.56"),
        ("12345", "9,999", " #,###"),
        ("999.995", "FM999.99", "###.##"),
        ("-0.001", "9.99", "  .00"),
        ("0", "FM999", "0"),
        ("-1", "00", "-01"),
    ] {
        let number = StringArray::from(vec![number]);
        let number = cast(&number, &DataType::Decimal128(12, 4)).unwrap();
        let found = one(&to_char(&room()), &[ColumnarValue::Array(number), text(pattern)]).unwrap();
        assert_eq!(found.as_deref(), Some(expected), "{pattern}");
    }
}

#[test]
fn columns_have_numbers_of_all_types() {
    let written = |values: ColumnarValue, patterns: &ColumnarValue, rows: usize| {
        shown(&call(&to_char(&room()), &[values, patterns.clone()], rows).unwrap())
    };
    let expected = |texts: &[Option<&str>]| texts.iter().map(|text| text.map(str::to_owned)).collect::<Vec<_>>();
    let doubles = Float64Array::from(vec![Some(1.5), None, Some(f64::NAN), Some(-0.0)]);
    let found = written(column(doubles), &text("FM90.00"), 4);
    assert_eq!(found, expected(&[Some("1.50"), None, Some("##.##"), Some("0.00")]));
    // Each row has its pattern, and NULL is none.
    let patterns = texts(&[Some("999"), Some("FM000"), None, Some("")]);
    let numbers = Int64Array::from(vec![Some(7), Some(7), Some(7), Some(7)]);
    assert_eq!(written(column(numbers), &patterns, 4), expected(&[Some("   7"), Some("007"), None, Some("")]));
    // All digits of the largest numbers, which a double does not have.
    let most = UInt64Array::from(vec![u64::MAX]);
    let found = written(column(most), &text("FM99999999999999999999"), 1);
    assert_eq!(found, expected(&[Some("18446744073709551615")]));
}

#[test]
fn what_is_no_number_has_room() {
    for (number, pattern, expected) in [
        (f64::NAN, "99999", "   NaN"),
        (f64::NAN, "00000", " 00NaN"),
        (f64::NAN, "9", " #"),
        (f64::NAN, "9,999", "   NaN"),
        (f64::NAN, "FM990.00", "NaN"),
        (f64::NAN, "S999D99", "+NaN"),
        (f64::INFINITY, "FM999", "###"),
        (f64::INFINITY, "999D99", " ###.##"),
        (f64::NEG_INFINITY, "999PR", "<###>"),
        (f64::NEG_INFINITY, "9,999", "-#,###"),
    ] {
        let number = column(Float64Array::from(vec![number]));
        let found = one(&to_char(&room()), &[number, text(pattern)]).unwrap();
        assert_eq!(found.as_deref(), Some(expected), "{pattern}");
    }
}

#[test]
fn types_are_checked() {
    let [to_char, to_number]: [Arc<ScalarUDF>; 2] = functions(&room()).collect::<Vec<_>>().try_into().unwrap();
    for (function, types, said) in [
        (&to_char, vec![DataType::Utf8, DataType::Utf8], "is for a number, not for `Utf8`"),
        (&to_char, vec![DataType::Int64, DataType::Int64], "a pattern is a text, not `Int64`"),
        (&to_char, vec![DataType::Int64], "a value and a pattern"),
        (&to_number, vec![DataType::Int64, DataType::Utf8], "`to_number` reads a text, not `Int64`"),
    ] {
        let refused = function.coerce_types(&types).unwrap_err().to_string();
        assert!(refused.contains(said), "{types:?}: {refused}");
    }
    let null = [DataType::Null, DataType::Null];
    assert_eq!(to_char.coerce_types(&null).unwrap(), [DataType::Float64, DataType::Utf8View]);
    assert_eq!(to_number.coerce_types(&null).unwrap(), [DataType::Utf8View, DataType::Utf8View]);
}

/// Breaks if the digits of a pattern are the precision of `format!`, which ends the process beyond 65,535.
#[test]
fn patterns_may_be_longer_than_numbers() {
    let pattern = format!("FM0.{}", "0".repeat(70_000));
    let half = column(Float64Array::from(vec![0.5]));
    let found = one(&to_char(&room()), &[half, text(&pattern)]).unwrap().unwrap();
    assert_eq!(found, format!("0.5{}", "0".repeat(69_999)));
    let least = printed(5e-324, DIGITS_MAX);
    assert!(!least.ends_with('0'), "{least}");
    assert_eq!(printed(5e-324, DIGITS_MAX + 3), format!("{least}000"));
    assert_eq!((printed(-2.6, 0), printed(0.25, 4)), ("-3".to_owned(), "0.2500".to_owned()));
}

#[test]
fn halves_go_away_from_zero() {
    let check = |number: &str, behind: usize, expected: &str| assert_eq!(rounded(number, behind), expected);
    check("12.345", 2, "12.35");
    check("-9.96", 1, "-10.0");
    check("0.5", 0, "1");
    check("7", 2, "7.00");
    check("99.949", 1, "99.9");
}

#[test]
fn texts_hold_numbers() {
    let read = |text: &str| {
        let of = |text: &str| StringViewArray::from(vec![text]);
        let texts: ArrayRef = Arc::new(of(text));
        numbers(&texts, &of("9")).map(|numbers| numbers.as_primitive::<Float64Type>().value(0))
    };
    for (text, expected) in [("1,234.5", 1234.5), ("-12", -12.0), ("$ 5.10", 5.1), ("<7>", -7.0)] {
        assert_eq!(read(text).unwrap().to_string(), expected.to_string(), "{text}");
    }
    assert!(read("none").unwrap_err().to_string().contains("`none`"));
}

#[test]
fn doubles_keep_their_sign() {
    let numbers = || column(Float64Array::from(vec![-0.25, 0.25, -0.0, -0.6]));
    let written = shown(&call(&to_char(&room()), &[numbers(), text("999")], 4).unwrap());
    assert_eq!(written.iter().flatten().collect::<Vec<_>>(), ["  -0", "   0", "   0", "  -1"]);
    let blank = shown(&call(&to_char(&room()), &[numbers(), text("B9.9")], 4).unwrap());
    assert_eq!(blank.iter().flatten().collect::<Vec<_>>(), [" -.2", "  .2", "  .0", " -.6"]);
}
