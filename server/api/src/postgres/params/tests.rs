use super::lists::ITEMS_MAX;
use super::*;

fn of(oid: u32, binary: bool, value: &[u8]) -> Result<Param, Fault> {
    read(oid, binary, Some(&Bytes::copy_from_slice(value)))
}

fn text(oid: u32, binary: bool, value: &[u8]) -> String {
    match of(oid, binary, value).unwrap() {
        Param::Typed(Some(text), pg_type) => {
            assert_eq!(pg_type.oid, oid);
            text
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn texts_and_bytes() {
    assert_eq!(text(23, false, b" 42 "), "42");
    assert_eq!(text(16, false, b"t"), "true");
    assert_eq!(text(20, true, &(-5_i64).to_be_bytes()), "-5");
    assert_eq!(text(701, true, &0.1_f64.to_be_bytes()), "0.1");
    assert_eq!(text(1184, true, &0_i64.to_be_bytes()), "2000-01-01T00:00:00.000000Z");
    assert_eq!(text(1082, true, &(-1_i32).to_be_bytes()), "1999-12-31");
    assert_eq!(text(1700, true, &[0, 2, 0, 0, 0x40, 0, 0, 2, 0, 12, 0x0d, 0x48]), "-12.34");
    assert!(of(23, false, b"4x").is_err_and(|fault| fault.code == "22P02"));
    assert!(of(23, true, b"123").is_err() && of(600, false, b"1").is_err());
    assert!(of(1184, true, &i64::MAX.to_be_bytes()).is_err());
    assert!(matches!(read(23, false, None), Ok(Param::Typed(None, _))));
}

#[test]
fn lists() {
    let Param::List(items) = of(1009, false, br#"{a,"b, \"c\"",NULL,""}"#).unwrap() else { panic!("no list") };
    let texts: Vec<Option<String>> = items
        .into_iter()
        .map(|item| match item {
            Param::Typed(text, _) => text,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(texts, [Some("a".into()), Some("b, \"c\"".into()), None, Some(String::new())]);
    assert!(matches!(of(1007, false, b"{}"), Ok(Param::List(items)) if items.is_empty()));
    assert!(of(1007, false, b"{1,x}").is_err() && of(1007, false, b"{{x}}").is_err() && of(1007, false, b"1").is_err());
    let bytes = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 23, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 9];
    assert!(matches!(of(1007, true, &bytes), Ok(Param::List(items)) if items.len() == 1));
    for len in 0..bytes.len() {
        assert!(of(1007, true, &bytes[..len]).is_err(), "{len}");
    }
}

#[test]
fn bytes() {
    let check = |binary: bool, value: &[u8], expected: Option<&str>| {
        let found = match of(17, binary, value) {
            Ok(Param::Typed(text, _)) => text,
            Ok(other) => panic!("{other:?}"),
            Err(_) => None,
        };
        assert_eq!(found.as_deref(), expected, "{value:?}");
    };
    check(false, br"\x00fFa", None);
    check(false, br"\x00fFaA", Some(r"\x00ffaa"));
    check(false, br"a\\\001\377", Some(r"\x615c01ff"));
    check(false, br"\400", None);
    check(false, br"\1", None);
    check(true, &[0, 255], Some(r"\x00ff"));
    check(true, &[], Some(r"\x"));
}

/// Breaks if a list that PostgreSQL refuses is taken for another, or blanks between items become a part of them.
#[test]
fn lists_as_they_are_written() {
    let items = |oid: u32, text: &str| -> Result<Vec<Option<String>>, Fault> {
        let Param::List(items) = of(oid, false, text.as_bytes())? else { panic!("{text}: no list") };
        let text = |item| match item {
            Param::Typed(text, _) => text,
            other => panic!("{other:?}"),
        };
        Ok(items.into_iter().map(text).collect())
    };
    let some = |texts: &[&str]| -> Vec<Option<String>> { texts.iter().map(|text| Some((*text).to_owned())).collect() };
    for (text, expected) in [
        (r#"{a, "b" , c d }"#, some(&["a", "b", "c d"])),
        (" { \"x\" } ", some(&["x"])),
        (r#"{" a "}"#, some(&[" a "])),
        (r"{a\,b,\{\}}", some(&["a,b", "{}"])),
        (r#"{"NULL",null}"#, vec![Some("NULL".to_owned()), None]),
        (r"{\NULL,nul\l, NULL }", vec![Some("NULL".to_owned()), Some("null".to_owned()), None]),
        (r"{\ a\ , b c }", some(&[" a ", "b c"])),
        ("{é,日}", some(&["é", "日"])),
        ("{ }", Vec::new()),
    ] {
        assert_eq!(items(1009, text).unwrap(), expected, "{text}");
    }
    for bad in [
        "",
        "{",
        "a",
        "{a",
        "a}",
        "{a,}",
        "{,a}",
        "{a,,b}",
        r#"{"a}"#,
        r"{a\}",
        "{{a}",
        "{a}{b}",
        r#"{a"b"}"#,
        r#"{"a"b}"#,
    ] {
        assert!(items(1009, bad).is_err(), "{bad}");
    }
    assert_eq!(items(1007, "{ 1 , -2 }").unwrap(), some(&["1", "-2"]));
    assert_eq!(items(1000, "{t,off,NULL}").unwrap(), [Some("true".to_owned()), Some("false".to_owned()), None]);
    assert!(items(1007, "{1,1.5}").is_err() && items(1005, "{40000}").is_err());
    let many = format!("{{{}}}", vec!["1"; ITEMS_MAX + 1].join(","));
    assert!(items(1007, &many).is_err_and(|fault| fault.code == "54000"));
}

/// Breaks if bytes that are no value of a type are read past their end, or give a value.
#[test]
fn bytes_of_every_type_are_read_with_care() {
    for known in PG_TYPES {
        for len in 0..40_usize {
            for fill in [0_u8, 1, 0x7f, 0xff] {
                // Whatever it says, it does not fall over.
                let _ = of(known.oid, true, &vec![fill; len]);
                let _ = of(known.array, true, &vec![fill; len]);
            }
        }
    }
    assert_eq!(text(1083, true, &86_399_999_999_i64.to_be_bytes()), "23:59:59.999999");
    assert!(of(1083, true, &(-1_i64).to_be_bytes()).is_err());
    assert!(of(1082, true, &i32::MAX.to_be_bytes()).is_err(), "infinity is no day");
    assert_eq!(text(1114, true, &(-1_i64).to_be_bytes()), "1999-12-31T23:59:59.999999");
    assert_eq!(text(2950, true, &[0x12; 16]), "12121212-1212-1212-1212-121212121212");
    let interval = [&(-5_i64).to_be_bytes()[..], &2_i32.to_be_bytes(), &(-13_i32).to_be_bytes()].concat();
    assert_eq!(text(1186, true, &interval), "-13 months 2 days -5 microseconds");
    assert_eq!(text(3802, true, b"\x01{}"), "{}");
    assert!(of(3802, true, b"\x02{}").is_err() && of(3802, true, b"").is_err());
    assert!(of(25, true, b"\xff").is_err() && of(25, false, b"\xff").is_err_and(|fault| fault.code == "22021"));
    // A group of four digits has no fifth.
    assert!(of(1700, true, &[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x10]).is_err());
    assert_eq!(text(1700, true, &[0, 1, 0, 0, 0, 0, 0, 0, 0x27, 0x0f]), "9999");
    assert_eq!(text(1700, true, &[0, 0, 0, 0, 0xc0, 0, 0, 0]), "NaN");
}

/// Truths are any beginning of their words that stands for one of them (PostgreSQL's `boolin`).
#[test]
fn truths_are_written_as_one_likes() {
    for (words, expected) in [(["true", "yes"], "true"), (["false", "no"], "false")] {
        for word in words {
            for end in 1..=word.len() {
                for text in [word[..end].to_owned(), word[..end].to_uppercase(), format!(" {} ", &word[..end])] {
                    assert_eq!(self::text(16, false, text.as_bytes()), expected, "{text:?}");
                }
            }
        }
    }
    for (text, expected) in [("on", "true"), ("1", "true"), ("of", "false"), ("oFF", "false"), ("0", "false")] {
        assert_eq!(self::text(16, false, text.as_bytes()), expected, "{text}");
    }
    for bad in ["", "o", "tt", "truee", "yess", "offf", "2", "01", "null", "t f"] {
        assert!(of(16, false, bad.as_bytes()).is_err_and(|fault| fault.code == "22P02"), "{bad}");
    }
}

/// A list of one level in PostgreSQL's own bytes.
fn packed(oid: u32, items: &[Option<&[u8]>]) -> Vec<u8> {
    let mut out = Vec::new();
    for number in [1, i32::from(items.contains(&None)), oid as i32, items.len() as i32, 1] {
        out.extend(number.to_be_bytes());
    }
    for item in items {
        out.extend(item.map_or(-1, |item| item.len() as i32).to_be_bytes());
        out.extend(item.unwrap_or_default());
    }
    out
}

/// Breaks if bytes behind a list are passed over, or one that says more than it holds is read past its end.
#[test]
fn lists_of_bytes_are_as_long_as_they_say() {
    let texts = |value: &[u8]| -> Result<Vec<Option<String>>, &'static str> {
        match of(1007, true, value).map_err(|fault| fault.code)? {
            Param::List(items) => Ok(items
                .into_iter()
                .map(|item| match item {
                    Param::Typed(text, pg_type) if pg_type.oid == 23 => text,
                    other => panic!("{other:?}"),
                })
                .collect()),
            other => panic!("{other:?}"),
        }
    };
    let (one, two) = (1_i32.to_be_bytes(), (-2_i32).to_be_bytes());
    let list = packed(23, &[Some(&one), None, Some(&two)]);
    assert_eq!(texts(&list), Ok(vec![Some("1".to_owned()), None, Some("-2".to_owned())]));
    assert_eq!(texts(&packed(23, &[])), Ok(Vec::new()));
    for len in 0..list.len() {
        assert_eq!(texts(&list[..len]), Err("22P02"), "{len}");
    }
    assert_eq!(texts(&[&list[..], &[0]].concat()), Err("22P02"), "a byte is left over");
    // An item of another length is none of its type.
    assert_eq!(texts(&packed(23, &[Some(&[1])])), Err("22P02"));
    let head = |dimensions: i32, more: &[i32]| -> Vec<u8> {
        [dimensions, 0, 23].iter().chain(more).flat_map(|number| number.to_be_bytes()).collect()
    };
    for (value, expected) in [
        (head(0, &[]), Ok(Vec::new())),
        (head(0, &[7]), Err("22P02")),
        (head(1, &[]), Err("22P02")),
        (head(1, &[0]), Err("22P02")),
        (head(1, &[-1, 1]), Err("22P02")),
        (head(1, &[i32::MAX, 1]), Err("54000")),
        (head(1, &[ITEMS_MAX as i32, 1]), Err("22P02")),
        (head(2, &[1, 1, 1]), Err("22P02")),
        (head(7, &[]), Err("54000")),
        (head(-1, &[]), Err("22P02")),
    ] {
        assert_eq!(texts(&value), expected, "{value:?}");
    }
}

#[test]
fn texts_are_values_of_their_types() {
    for (oid, value, expected) in [
        (20, "9223372036854775807", Some("9223372036854775807")),
        (20, " -0 ", Some("-0")),
        (20, "9223372036854775808", None),
        (20, "1.0", None),
        (20, "", None),
        (21, "-32768", Some("-32768")),
        (21, "32768", None),
        (23, "+7", Some("+7")),
        (23, "2147483648", None),
        (23, "0x10", None),
        (701, "\t-1.5e-3\n", Some("-1.5e-3")),
        (701, "NaN", Some("NaN")),
        (701, "-Infinity", Some("-Infinity")),
        (701, "1_000", None),
        (701, "1,5", None),
        (1700, "123456789012345678901234567890.5", Some("123456789012345678901234567890.5")),
        (1700, "one", None),
        // Of others the engine says what they are; blanks are a part of them.
        (25, " a ", Some(" a ")),
        (25, "", Some("")),
        (1082, "tomorrow", Some("tomorrow")),
        (3802, "{", Some("{")),
    ] {
        let found = match of(oid, false, value.as_bytes()) {
            Ok(Param::Typed(text, known)) => text.filter(|_| known.oid == oid),
            Ok(other) => panic!("{other:?}"),
            Err(fault) => {
                assert_eq!(fault.code, "22P02", "{value}");
                None
            }
        };
        assert_eq!(found.as_deref(), expected, "{oid}: {value:?}");
    }
    for unread in [0, 1, 600, 2277, u32::MAX] {
        assert!(of(unread, false, b"1").is_err_and(|fault| fault.code == "0A000"), "{unread}");
    }
    // NULL is one of each type, and of each type of lists.
    for known in PG_TYPES {
        let null = read(known.oid, true, None);
        assert!(matches!(null, Ok(Param::Typed(None, found)) if found.oid == known.oid), "{}", known.name);
        if known.array != 0 {
            assert_eq!(read(known.array, true, None), Ok(Param::Null), "{}", known.name);
        }
    }
}

/// Digits by four: the places of the point, of zeros that are not written, and of digits beyond what is asked for.
#[test]
fn decimals_as_bytes() {
    let decimal = |count: u16, weight: i16, sign: u16, scale: u16, fours: &[u16]| -> Vec<u8> {
        let head = [count, weight as u16, sign, scale];
        head.iter().chain(fours).flat_map(|number| number.to_be_bytes()).collect()
    };
    for (bytes, expected) in [
        (decimal(0, 0, 0, 0, &[]), "0"),
        (decimal(0, 0, 0, 3, &[]), "0.000"),
        (decimal(2, 0, 0, 2, &[1, 2345]), "1.23"),
        (decimal(2, 0, 0, 6, &[1, 2345]), "1.234500"),
        (decimal(1, -1, 0, 4, &[5]), "0.0005"),
        (decimal(1, -2, 0x4000, 8, &[12]), "-0.00000012"),
        (decimal(1, 2, 0, 0, &[7]), "700000000"),
        (decimal(3, 2, 0, 0, &[7, 0, 1]), "700000001"),
        (decimal(0, 0, 0xC000, 0, &[]), "NaN"),
    ] {
        assert_eq!(text(1700, true, &bytes), expected, "{bytes:?}");
    }
    for bytes in [
        decimal(1, 0, 0, 0, &[]),
        decimal(0, 0, 0, 0, &[1]),
        decimal(1, 0, 0x8000, 0, &[1]),
        decimal(0, 1001, 0, 0, &[]),
        decimal(0, i16::MIN, 0, 0, &[]),
        decimal(0, 0, 0, 1001, &[]),
        decimal(1, 0, 0, 0, &[u16::MAX]),
    ] {
        assert!(of(1700, true, &bytes).is_err_and(|fault| fault.code == "22P02"), "{bytes:?}");
    }
}

#[test]
fn numbers_and_times_as_bytes() {
    for (oid, bytes, expected) in [
        (16, vec![0], "false"),
        (16, vec![7], "true"),
        (21, i16::MIN.to_be_bytes().to_vec(), "-32768"),
        (26, u32::MAX.to_be_bytes().to_vec(), "4294967295"),
        (700, 0.1_f32.to_be_bytes().to_vec(), "0.1"),
        (701, (-0.0_f64).to_be_bytes().to_vec(), "-0"),
        (701, f64::NAN.to_be_bytes().to_vec(), "NaN"),
        (1082, (-730_119_i32).to_be_bytes().to_vec(), "0001-01-01"),
        (1083, vec![0; 8], "00:00:00"),
        (1114, 86_400_000_001_i64.to_be_bytes().to_vec(), "2000-01-02T00:00:00.000001"),
        (1186, [&[0; 8][..], &0_i32.to_be_bytes(), &14_i32.to_be_bytes()].concat(), "14 months 0 days 0 microseconds"),
        (18, b"x".to_vec(), "x"),
        (19, b"a name".to_vec(), "a name"),
        (1043, Vec::new(), ""),
        (114, b"{} ".to_vec(), "{} "),
    ] {
        assert_eq!(text(oid, true, &bytes), expected, "{oid}: {bytes:?}");
    }
    // What is not read in this form is told so, and not taken for a text.
    for oid in [2205, 2206, 2249] {
        let len = usize::try_from(pg_type(oid).map_or(0, |known| known.len)).unwrap_or(0);
        assert!(of(oid, true, &vec![0; len]).is_err_and(|fault| fault.code == "0A000"), "{oid}");
    }
}
