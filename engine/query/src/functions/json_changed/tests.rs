use datafusion::execution::memory_pool::UnboundedMemoryPool;

use super::*;

/// Arguments are texts, numbers and flags.
fn changed(name: &'static str, args: &[&str]) -> Result<Option<String>> {
    let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
    let Some((_, change)) = FUNCTIONS.into_iter().find(|(known, _)| *known == name) else { panic!("{name}") };
    let signature = Signature::user_defined(Volatility::Immutable);
    let function = JsonChanged { name, change, room: room.clone(), signature };
    let column = |arg: &&str| match (arg.parse::<i64>(), arg.parse::<bool>()) {
        (Ok(number), _) if change == Change::Less => Column::Number(vec![number].into()),
        (_, Ok(flag)) => Column::Flag(vec![flag].into()),
        _ => Column::Text(StringViewArray::from(vec![*arg])),
    };
    let (mut out, columns) = (String::new(), args.iter().map(column).collect::<Vec<_>>());
    let is_made = function.row(&columns, 0, &mut out, &mut Making::new(name, &room))?;
    Ok(is_made.then_some(out))
}

fn check(name: &'static str, args: &[&str], expected: &str) {
    assert_eq!(changed(name, args).unwrap().as_deref(), Some(expected), "{name} {args:?}");
}

#[test]
fn documents_are_put_together() {
    check("jsonb_concat", &[r#"{"b":1,"a":2}"#, r#"{"b":3}"#], r#"{"a": 2, "b": 3}"#);
    check("jsonb_concat", &[r#"{"a":1}"#, "2"], r#"[{"a": 1}, 2]"#);
    check("jsonb_concat", &["[]", "{}"], "[{}]");
    check("jsonb_concat", &["1", "[2]"], "[1, 2]");
    check("jsonb_concat", &["{}", "{}"], "{}");
    assert_eq!(changed("jsonb_concat", &["{", "1"]).unwrap(), None);
}

#[test]
fn parts_are_left_out() {
    check("jsonb_less", &[r#"{"a":1,"b":2}"#, "a"], r#"{"b": 2}"#);
    check("jsonb_less", &[r#"["a",1,"a"]"#, "a"], "[1]");
    check("jsonb_less", &["[1,2]", "-1"], "[1]");
    check("jsonb_less", &["[1,2]", "5"], "[1, 2]");
    check("jsonb_less_path", &["[1,[2,3]]", "{1,0}"], "[1, [3]]");
    check("jsonb_less_path", &[r#"{"a":1}"#, "{b,c}"], r#"{"a": 1}"#);
    check("jsonb_strip_nulls", &[r#"[null,{"a":null,"b":{"c":null}}]"#], r#"[null, {"b": {}}]"#);
    for (name, args) in [
        ("jsonb_less", [r#"{"a":1}"#, "0"]),
        ("jsonb_less", [r#""x""#, "a"]),
        ("jsonb_less_path", ["[1]", "{x}"]),
        ("jsonb_less_path", ["1", "{x}"]),
    ] {
        assert!(changed(name, &args).is_err(), "{name} {args:?}");
    }
}

#[test]
fn parts_are_set_and_inserted() {
    for (document, path, expected) in [
        ("[1,2]", "{-1}", "[1, 9]"),
        ("[1,2]", "{-5}", "[9, 1, 2]"),
        ("[1,2]", "{5}", "[1, 2, 9]"),
        (r#"{"a":1}"#, "{}", r#"{"a": 1}"#),
        (r#"{"a":1}"#, "{b,c}", r#"{"a": 1}"#),
        (r#"{"a":{"b":1}}"#, "{a,c}", r#"{"a": {"b": 1, "c": 9}}"#),
        (r#"{"a":[1,2,3]}"#, "{a,1}", r#"{"a": [1, 9, 3]}"#),
    ] {
        check("jsonb_set", &[document, path, "9"], expected);
    }
    check("jsonb_set", &["[1,2]", "{5}", "9", "false"], "[1, 2]");
    for (path, flag, expected) in [
        ("{0}", "false", "[9, 1, 2]"),
        ("{0}", "true", "[1, 9, 2]"),
        ("{-1}", "false", "[1, 9, 2]"),
        ("{-1}", "true", "[1, 2, 9]"),
        ("{7}", "false", "[1, 2, 9]"),
        ("{-7}", "false", "[9, 1, 2]"),
    ] {
        check("jsonb_insert", &["[1,2]", path, "9", flag], expected);
    }
    check("jsonb_insert", &[r#"{"a":1}"#, "{b}", "9"], r#"{"a": 1, "b": 9}"#);
    assert!(changed("jsonb_insert", &[r#"{"a":1}"#, "{a}", "9"]).is_err());
    assert!(changed("jsonb_set", &["1", "{x}", "9"]).is_err());
    assert!(changed("jsonb_set", &["[1]", "{x}", "9"]).is_err());
}

#[test]
fn lines_are_pretty() {
    check("jsonb_pretty", &["[]"], "[\n]");
    check(
        "jsonb_pretty",
        &[r#"{"b":[1,{"c":[]}],"a":"x"}"#],
        "{\n    \"a\": \"x\",\n    \"b\": [\n        1,\n        {\n            \"c\": [\n            ]\n        }\n    ]\n}",
    );
}
