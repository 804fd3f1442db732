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
    assert!(of(1007, false, b"{1,x}").is_err() && of(1007, false, b"{{1}}").is_err() && of(1007, false, b"1").is_err());
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

/// Breaks where a list that PostgreSQL refuses is taken for another, or blanks between items become a part of them.
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
        ("{é,日}", some(&["é", "日"])),
        ("{ }", Vec::new()),
    ] {
        assert_eq!(items(1009, text).unwrap(), expected, "{text}");
    }
    for bad in ["", "{", "a", "{a", "a}", "{a,}", "{,a}", "{a,,b}", r#"{"a}"#, r"{a\}", "{{a}}", "{a}{b}"] {
        assert!(items(1009, bad).is_err(), "{bad}");
    }
    assert_eq!(items(1007, "{ 1 , -2 }").unwrap(), some(&["1", "-2"]));
    assert_eq!(items(1000, "{t,off,NULL}").unwrap(), [Some("true".to_owned()), Some("false".to_owned()), None]);
    assert!(items(1007, "{1,1.5}").is_err() && items(1005, "{40000}").is_err());
    let many = format!("{{{}}}", vec!["1"; ITEMS_MAX + 1].join(","));
    assert!(items(1007, &many).is_err_and(|fault| fault.code == "54000"));
}

/// Breaks where bytes that are no value of a type are read past their end, or give a value.
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
