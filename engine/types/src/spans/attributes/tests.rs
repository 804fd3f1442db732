use super::*;

#[test]
fn attributes_come_back() {
    let list = r#"{"arrayValue":{"values":[{"intValue":"1"},{"stringValue":"a"},{"doubleValue":"NaN"}]}}"#;
    let all = [
        ("z", Value::Text("first")),
        ("i", Value::Int(-5)),
        ("d", Value::Double(0.5)),
        ("b", Value::Bool(true)),
        ("x", Value::Bytes(&[1, 2, 255])),
        ("j", Value::Json(list)),
        ("z", Value::Text("last")),
    ];
    let attributes = Attributes::of(all);
    let got: Vec<_> = attributes.iter().collect();
    assert_eq!(got, [all[3], all[2], all[1], all[5], all[4], all[6]]);
    assert_eq!(attributes.get("j").unwrap().text(), r#"[1,"a","NaN"]"#);
    assert_eq!(attributes.get("x").unwrap().text(), "AQL/");
    assert_eq!(attributes.text("z"), Some("last"));
    let mut again = AttributeWriter::default();
    for (key, value) in &attributes {
        let mut typed = String::new();
        push_typed_text(value, &mut typed);
        push_typed(key, &typed, &mut again);
    }
    assert_eq!(again.finish(), attributes);
    for cut in 0..attributes.bytes().len() {
        assert!(Attributes::read(&attributes.bytes()[..cut]).count() <= 6);
    }
}

#[test]
fn others_in_their_place() {
    let old = Attributes::of([("b", Value::Int(1)), ("d", Value::Text("x")), ("f", Value::Bool(true))]);
    for chosen in 0..128_u32 {
        let all = ["a", "b", "c", "d", "e", "f", "g"].into_iter().enumerate();
        let others: Vec<(&str, Option<Value<'_>>)> = all
            .filter(|(n, _)| (chosen >> n) & 1 == 1)
            .map(|(n, key)| (key, (n % 3 > 0).then_some(Value::Text("new"))))
            .collect();
        let kept = old.iter().filter(|(key, _)| others.iter().all(|(other, _)| other != key));
        let expected = Attributes::of(kept.chain(others.iter().filter_map(|(key, value)| Some((*key, (*value)?)))));
        let mut out = b"before".to_vec();
        push_replaced(old.bytes(), &others, &mut out);
        assert_eq!(out.strip_prefix(b"before"), Some(expected.bytes()), "{others:?}");
    }
}

#[test]
fn numbers_as_text() {
    let check = |value: Value<'_>, text: &str, metric: Option<f64>| {
        assert_eq!((value.text().as_ref(), value.metric()), (text, metric));
    };
    check(Value::Double(200.0), "200", Some(200.0));
    check(Value::Double(1299.5), "1299.5", Some(1299.5));
    check(Value::Double(1e21), "1e+21", Some(1e21));
    check(Value::Double(f64::INFINITY), "+Inf", None);
    check(Value::Int(1 << 53), "9007199254740992", None);
    check(Value::Int(-(1 << 53) + 1), "-9007199254740991", Some(-9_007_199_254_740_991.0));
    check(Value::Bool(false), "false", None);
}

#[test]
fn maps_are_compact_and_sorted() {
    let map = r#"{"kvlistValue":{"values":[{"key":"b","value":{"boolValue":true}},{"key":"a","value":{}}]}}"#;
    assert_eq!(json_text(map), r#"{"a":null,"b":true}"#);
    assert_eq!(json_text(r#"{"arrayValue":{}}"#), "[]");
}

#[test]
fn types_before_texts_are_read() {
    let check = |typed: &str, expected: Value<'_>| {
        let mut writer = AttributeWriter::default();
        push_typed("k", typed, &mut writer);
        let read = writer.finish();
        assert_eq!(read.iter().collect::<Vec<_>>(), [("k", expected)], "{typed}");
    };
    check("i:-5", Value::Int(-5));
    check("i:9223372036854775807", Value::Int(i64::MAX));
    check("d:-0.0", Value::Double(-0.0));
    check("d:inf", Value::Double(f64::INFINITY));
    check("b:true", Value::Bool(true));
    check("b:1", Value::Bool(false));
    check("x:AQL/", Value::Bytes(&[1, 2, 255]));
    check("s:a:b", Value::Text("a:b"));
    check("j:{}", Value::Json("{}"));
    // What is no value of its type is a text.
    check("i:5.0", Value::Text("5.0"));
    check("i:9223372036854775808", Value::Text("9223372036854775808"));
    check("d:x", Value::Text("x"));
    check("x:A", Value::Text("A"));
    check("plain", Value::Text("plain"));
    check("", Value::Text(""));
}

#[test]
fn doubles_keep_their_bits() {
    for number in [0.1, -0.0, 1e300, 5e-324, f64::MAX, f64::NEG_INFINITY, 1.0] {
        let (mut typed, mut writer) = (String::new(), AttributeWriter::default());
        push_typed_text(Value::Double(number), &mut typed);
        push_typed("k", &typed, &mut writer);
        let read = writer.finish();
        let Some(Value::Double(found)) = read.get("k") else { panic!("{typed}") };
        assert_eq!(found.to_bits(), number.to_bits(), "{typed}");
    }
}

#[test]
fn values_as_numbers() {
    let check = |value: Value<'_>, number: Option<f64>, metric: Option<f64>| {
        assert_eq!((value.number(), value.metric()), (number, metric), "{value:?}");
    };
    check(Value::Int((1 << 53) - 1), Some(9_007_199_254_740_991.0), Some(9_007_199_254_740_991.0));
    check(Value::Int(-(1 << 53)), Some(-9_007_199_254_740_992.0), None);
    check(Value::Int(i64::MIN), Some(-9_223_372_036_854_775_808.0), None);
    check(Value::Text("1e3"), Some(1000.0), None);
    check(Value::Text("1e3 "), None, None);
    check(Value::Text(""), None, None);
    check(Value::Double(f64::INFINITY), Some(f64::INFINITY), None);
    check(Value::Bool(true), None, None);
    check(Value::Bytes(b"5"), None, None);
    check(Value::Json("5"), None, None);
}

#[test]
fn lists_and_maps_as_plain_json() {
    let check = |otlp: &str, expected: &str| assert_eq!(json_text(otlp), expected, "{otlp}");
    check(r#"{"arrayValue":{"values":[{"stringValue":"a\"b"},{"boolValue":false},{}]}}"#, r#"["a\"b",false,null]"#);
    check(
        r#"{"arrayValue":{"values":[{"doubleValue":1.0},{"doubleValue":1e21},{"intValue":"-7"},{"intValue":7}]}}"#,
        "[1,1e+21,-7,7]",
    );
    // Of a key that stands twice the last one counts.
    check(
        r#"{"kvlistValue":{"values":[{"key":"b","value":{"intValue":"1"}},{"key":"a"},{"key":"b","value":{"intValue":"2"}}]}}"#,
        r#"{"a":null,"b":2}"#,
    );
    let nested = r#"{"kvlistValue":{"values":[{"key":"l","value":{"arrayValue":{"values":[{"kvlistValue":{}}]}}}]}}"#;
    check(nested, r#"{"l":[{}]}"#);
    check("no json", "no json");
    check("7", "null");
}

#[test]
fn of_equal_keys_the_later_one_wins() {
    let one = Attributes::of([("a", Value::Int(1)), ("c", Value::Int(1))]);
    let two = Attributes::of([("b", Value::Int(2)), ("c", Value::Int(2))]);
    let both = [("a", Value::Int(1)), ("b", Value::Int(2)), ("c", Value::Int(2))];
    assert!(one.united(&two).iter().eq(both));
    assert!(two.united(&one).iter().eq([both[0], both[1], ("c", Value::Int(1))]));
    assert_eq!((one.united(&Attributes::default()), Attributes::default().united(&one)), (one.clone(), one.clone()));
    assert_eq!(one.united(&one), one);
    let texts = Attributes::of([("e", Value::Text("")), ("n", Value::Int(1)), ("t", Value::Text("x"))]);
    assert_eq!(["e", "n", "t", "u"].map(|key| texts.text(key)), [None, None, Some("x"), None]);
}

#[test]
fn bytes_that_are_no_attributes_end_the_walk() {
    let mut good = Vec::new();
    push_attribute(&mut good, "a", Value::Bool(true));
    let after = |more: &[u8]| Attributes::read(&[&good[..], more].concat()).count();
    assert_eq!(after(&[]), 1);
    for more in [
        // A length beyond all there is, one of more than 64 bits, no type, an unknown one, half a number.
        &[5, b'k'][..],
        &[0xff; 12],
        &[1, b'k'],
        &[1, b'k', b'?', 0],
        &[1, b'k', b'i', 0, 0, 0],
        &[1, b'k', b'b'],
        // Texts that are none.
        &[1, 0xff, b'b', 1],
        &[1, b'k', b's', 1, 0xff],
    ] {
        assert_eq!(after(more), 1, "{more:?}");
    }
    let mut varints = Vec::new();
    let numbers = [0, 127, 128, 16_383, 16_384, u64::from(u32::MAX), u64::MAX];
    for number in numbers {
        put_varint(&mut varints, number);
    }
    let mut rest = varints.as_slice();
    assert!(std::iter::from_fn(|| take_varint(&mut rest)).eq(numbers));
}
