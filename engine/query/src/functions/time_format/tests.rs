use super::*;

fn shown(value: &Shown, pattern: &str) -> Result<String> {
    let mut out = String::new();
    for part in parts_of(pattern) {
        match part {
            Part::Text(letter) => out.push(letter),
            Part::Word(word) => word.write(value, &mut out)?,
        }
    }
    Ok(out)
}

fn time(text: &str, offset: Option<i32>) -> Shown {
    Shown::of_clock(text.parse().unwrap(), offset)
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
        let value = Shown::of_length(value.0, value.1, value.2);
        assert_eq!(shown(&value, pattern).unwrap(), expected, "{pattern}");
    };
    check((0, 1, 7_384 * SECOND_NS), "HH24:MI:SS", "02:03:04");
    check((0, 0, 93_780 * SECOND_NS), "HH24:MI", "26:03");
    check((14, 3, 0), "YYYY-MM-DD", "0001-02-03");
    check((0, 0, 90_000 * SECOND_NS), "HH:MI AM", "01:00 AM");
    check((0, 0, -300 * SECOND_NS), "HH24:MI:SS", "00:-05:00");
    check((0, 3, 14_706_789 * 1_000_000), "DD \"days\" FMHH24\"h\" FMMI\"m\" SS.MS", "03 days 4h 5m 06.789");
    for wrong in ["Day", "Q", "WW", "Month", "TZ"] {
        assert!(shown(&Shown::of_length(0, 3, 0), wrong).is_err(), "{wrong}");
    }
}
