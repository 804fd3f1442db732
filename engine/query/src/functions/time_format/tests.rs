use arrow::array::{
    Date32Array, DurationSecondArray, Time64MicrosecondArray, TimestampMillisecondArray, TimestampSecondArray,
};

use super::super::testing::{call, column, draws, room, shown as printed, text, texts};
use super::*;

fn shown(value: &TimeParts, pattern: &str) -> Result<String> {
    let mut out = String::new();
    for part in parts_of(pattern) {
        match part {
            FormatPart::Text(letter) => out.push(letter),
            FormatPart::Word(word) => word.write(value, &mut out)?,
        }
    }
    Ok(out)
}

fn time(text: &str, offset: Option<i32>) -> TimeParts {
    TimeParts::of_clock(text.parse().unwrap(), offset)
}

#[test]
fn words_of_times() {
    let check = |pattern: &str, expected: &str| {
        let value = time("2024-03-05T14:05:06.789", None);
        assert_eq!(shown(&value, pattern).unwrap(), expected, "{pattern}");
    };
    check("Day, DD Month YYYY", "Tuesday  , 05 March     2024");
    check("FMDay, FMDD FMMonth YYYY", "Tuesday, 5 March 2024");
    check("Q WW IW DDD D ID J CC W", "1 10 10 065 3 2 2460375 21 1");
    check("FMDDth FMMM DDTH HH24th Yth YYYYTH FMTH", "5th 3 05TH 14th 4th 2024TH TH");
    check("MS US SSSS AM am A.M. p.m.", "789 789000 50706 PM pm P.M. p.m.");
    check(
        "DAY day DY Dy dy MONTH month|MON mon Mon",
        "TUESDAY   tuesday   TUE Tue tue MARCH     march    |MAR mar Mar",
    );
    check("YYY YY Y Y,YYY IYYY IYY IY I RM rm", "024 24 4 2,024 2024 024 24 4 III  iii ");
    check("\"Week\" WW \"of\" YYYY\\YYYY \"a\\\"b\" x \\\"", "Week 10 of 2024\\2024 a\"b x \"");
    check("FF1 FF3 FF6 AD BC b.c.", "7 789 789000 AD AD a.d.");
    check("TZ|OF|TZH:TZM", "|+00|+00:00");
    check("FX FXYYYY TMMonth Lo week", " 2024 March Lo 1eek");
    check("FMQ|FMDDD|FMWW|FMJ|y,yyy|SP", "1|65|10|2460375|2,024|SP");
}

#[test]
fn other_times() {
    let check = |text: &str, pattern: &str, expected: &str| {
        assert_eq!(shown(&time(text, Some(7_200)), pattern).unwrap(), expected, "{text} {pattern}");
    };
    check("2024-12-30T00:05:00.00012", "IYYY IW ID IDDD WW W D", "2025 01 1 001 53 5 2");
    check("2024-12-30T00:05:00.00012", "HH HH12 US MS FF4 SSSSS", "12 12 000120 000 0001 300");
    check("0950-03-05T00:00:00", "YYYY YYY Y,YYY CC", "0950 950 0,950 10");
    check("2024-05-01T00:00:00", "FMDDth|FMRM|RM|TZH:TZM|OF", "1st|V|V   |+02:00|+02");
    for (day, expected) in [("02", "2nd"), ("03", "3rd"), ("11", "11th"), ("22", "22nd")] {
        check(&format!("2024-03-{day}T00:00:00"), "FMDDth", expected);
    }
}

#[test]
fn words_of_intervals() {
    let check = |value: (i32, i32, i64), pattern: &str, expected: &str| {
        let value = TimeParts::of_length(value.0, value.1, value.2);
        assert_eq!(shown(&value, pattern).unwrap(), expected, "{pattern}");
    };
    check((0, 1, 7_384 * SECOND_NS), "HH24:MI:SS", "02:03:04");
    check((0, 0, 93_780 * SECOND_NS), "HH24:MI", "26:03");
    check((14, 3, 0), "YYYY-MM-DD", "0001-02-03");
    check((0, 0, 90_000 * SECOND_NS), "HH:MI AM", "01:00 AM");
    check((0, 0, -300 * SECOND_NS), "HH24:MI:SS", "00:-05:00");
    check((0, 3, 14_706_789 * 1_000_000), "DD \"days\" FMHH24\"h\" FMMI\"m\" SS.MS", "03 days 4h 5m 06.789");
    check((7, 0, 0), "Q MM", "3 07");
    check((-3, -1, 0), "Q MM DD", "0 -03 -1");
    check((12, 3, 0), "[Q]", "[]");
    for wrong in ["Day", "WW", "Month", "TZ"] {
        assert!(shown(&TimeParts::of_length(0, 3, 0), wrong).is_err(), "{wrong}");
    }
}

#[test]
fn months_of_intervals_are_roman() {
    for (months, expected) in
        [(0, ""), (1, "I"), (-1, "XII"), (-11, "II"), (12, "XII"), (-12, "I"), (13, "I"), (-13, "XII")]
    {
        assert_eq!(shown(&TimeParts::of_length(months, 0, 0), "FMRM").unwrap(), expected, "{months}");
        assert_eq!(shown(&TimeParts::of_length(months, 0, 0), "FMrm").unwrap(), expected.to_lowercase(), "{months}");
    }
}

#[test]
fn years_before_christ() {
    let at = |year: i32| {
        let date = NaiveDate::from_ymd_opt(year, 3, 15).unwrap();
        TimeParts::of_clock(date.and_hms_opt(0, 0, 0).unwrap(), None)
    };
    for (year, pattern, expected) in [
        (-43, "YYYY BC CC", "0044 BC -01"),
        (0, "FMYYYY b.c.", "1 b.c."),
        (1, "YYYY AD CC", "0001 AD 01"),
        (100, "CC", "01"),
        (101, "CC", "02"),
        (2000, "CC", "20"),
        (-99, "FMYYYY FMCC", "100 -1"),
        (12_345, "YYYY Y,YYY YY", "12345 12,345 45"),
    ] {
        assert_eq!(shown(&at(year), pattern).unwrap(), expected, "{year} {pattern}");
    }
}

/// Days of some centuries, of which another calendar says the same.
#[test]
fn days_are_those_of_another_calendar() {
    let mut draw = draws(131);
    for _ in 0..2_000 {
        let days = draw(200_000) as i32 - 50_000;
        let date = NaiveDate::from_ymd_opt(1970, 1, 1).unwrap() + chrono::TimeDelta::days(i64::from(days));
        let value = TimeParts::of_clock(date.and_hms_opt(0, 0, 0).unwrap(), None);
        let expected = date.format("%Y-%m-%d %G-%V-%u %j %b %A").to_string();
        assert_eq!(shown(&value, "YYYY-MM-DD IYYY-IW-ID DDD Mon FMDay").unwrap(), expected);
        assert_eq!(shown(&value, "J").unwrap(), (2_440_588 + days).to_string(), "{date}");
        let (day, month) = (date.day(), date.month());
        let parts =
            format!("{} {} {}", (day - 1) / 7 + 1, (month - 1) / 3 + 1, date.weekday().num_days_from_sunday() + 1);
        assert_eq!(shown(&value, "W Q D").unwrap(), parts, "{date}");
    }
}

#[test]
fn numbers_have_endings() {
    for (day, expected) in [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (13, "13th")] {
        let value = TimeParts::of_length(0, day, 0);
        assert_eq!(shown(&value, "FMDDth").unwrap(), expected);
        assert_eq!(shown(&value, "FMDDTH").unwrap(), expected.to_uppercase());
        let value = TimeParts::of_length(0, 100 + day, 0);
        assert_eq!(shown(&value, "FMDDth").unwrap(), format!("1{expected:0>4}"));
    }
}

#[test]
fn columns_of_times_are_written() {
    let function = function(&room());
    let of = |values: ColumnarValue, pattern: &str| {
        printed(&call(&function, &[values, text(pattern)], 1).unwrap()).remove(0).unwrap_or_else(|| "-".to_owned())
    };
    let zoned = |zone: &str| column(TimestampMillisecondArray::from(vec![1_704_067_200_250]).with_timezone(zone));
    assert_eq!(
        of(zoned("Asia/Kolkata"), "YYYY-MM-DD HH24:MI:SS.MS TZH:TZM OF TZ"),
        "2024-01-01 05:30:00.250 +05:30 +05:30 +05:30"
    );
    assert_eq!(of(zoned("-03:30"), "DD HH24:MI OF TZH TZM"), "31 20:30 -03:30 -03 30");
    assert_eq!(of(zoned("UTC"), "TZ tz OF"), "UTC utc +00");
    assert_eq!(of(column(TimestampSecondArray::from(vec![-1])), "YYYY SSSS US"), "1969 86399 000000");
    assert_eq!(of(column(Date32Array::from(vec![19_782])), "DD Mon YYYY"), "29 Feb 2024");
    assert_eq!(
        of(column(Time64MicrosecondArray::from(vec![86_399_999_999])), "HH24:MI:SS.US AM"),
        "23:59:59.999999 PM"
    );
    assert_eq!(of(column(DurationSecondArray::from(vec![93_784])), "DD HH24:MI:SS"), "01 02:03:04");
    assert_eq!(of(column(Date32Array::from(vec![0])), ""), "-", "an empty pattern gives nothing");
    let patterns = texts(&[Some("YYYY"), None, Some("MM"), Some("\u{e4} \\\"Q\\\"")]);
    let days = column(Date32Array::from(vec![Some(0), Some(0), None, Some(0)]));
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        printed(&call(&function, &[days, patterns], 4).unwrap()),
        [some("1970"), None, None, some("\u{e4} \"1\"")]
    );
    let far = call(&function, &[column(TimestampSecondArray::from(vec![i64::MAX])), text("YYYY")], 1).unwrap_err();
    assert!(far.to_string().contains("a time is too far away to be shown"), "{far}");
    let length = call(&function, &[column(DurationSecondArray::from(vec![1])), text("Day")], 1).unwrap_err();
    assert!(length.to_string().contains("intervals are on no day of a calendar"), "{length}");
    for (types, said) in [
        (vec![DataType::Int64, DataType::Utf8], "is for a time or an interval, not for `Int64`"),
        (vec![DataType::Date32, DataType::Int64], "a pattern is a text, not `Int64`"),
    ] {
        let refused = function.coerce_types(&types).unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
}
