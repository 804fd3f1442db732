use datafusion::execution::memory_pool::UnboundedMemoryPool;
use serde_json::Value;

use super::super::testing::{PathStep, call, column, document, draws, named, one, parts_of, room, shown, text, texts};
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
    let is_made = function.row(&columns, 0, &mut out, &mut OutputMemory::new(name, &room))?;
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
    check(
        "json_strip_nulls",
        &[r#" {"b" : 1.0, "a": [null, {"c" :null}], "b":2} "#],
        r#"{"b":1.0,"a":[null,{}],"b":2}"#,
    );
    check("json_strip_nulls", &["null"], "null");
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

/// The text of a path, each step of it in quotes.
fn place(way: &[PathStep<'_>]) -> String {
    let step = |step: &PathStep<'_>| match step {
        Ok(name) => format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"")),
        Err(at) => at.to_string(),
    };
    format!("{{{}}}", way.iter().map(step).collect::<Vec<_>>().join(","))
}

/// The part of a document that a way leads to.
fn part_at<'v>(value: &'v mut Value, way: &[PathStep<'_>]) -> &'v mut Value {
    way.iter().fold(value, |value, step| match step {
        Ok(name) => &mut value[*name],
        Err(at) => &mut value[*at],
    })
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Each part of many documents is set, and left out, and what comes of it is what another reader makes.
#[test]
fn parts_are_changed_where_they_are() {
    let mut draw = draws(21);
    for _ in 0..60 {
        let value = document(&mut draw, 3);
        let text = value.to_string();
        let mut parts = Vec::new();
        parts_of(&value, &[], &mut parts);
        for (way, _) in parts.iter().filter(|(way, _)| !way.is_empty()) {
            let place = place(way);
            let mut expected = value.clone();
            *part_at(&mut expected, way) = Value::from("new");
            let found = changed("jsonb_set", &[&text, &place, "\"new\""]).unwrap().unwrap();
            assert_eq!(read(&found), expected, "{text} {place}");
            let mut expected = value.clone();
            let (last, before) = way.split_last().unwrap();
            match (part_at(&mut expected, before), last) {
                (Value::Object(members), Ok(name)) => assert!(members.remove(*name).is_some()),
                (Value::Array(items), Err(at)) => _ = items.remove(*at),
                (other, _) => panic!("{other} has no parts"),
            }
            let found = changed("jsonb_less_path", &[&text, &place]).unwrap().unwrap();
            assert_eq!(read(&found), expected, "{text} {place}");
        }
    }
}

#[test]
fn nulls_of_members_are_stripped_and_lines_say_the_same() {
    fn stripped(value: &Value) -> Value {
        match value {
            Value::Array(items) => items.iter().map(stripped).collect(),
            Value::Object(members) => members
                .iter()
                .filter(|(_, value)| !value.is_null())
                .map(|(name, value)| (name.clone(), stripped(value)))
                .collect(),
            other => other.clone(),
        }
    }
    let mut draw = draws(22);
    for _ in 0..200 {
        let value = document(&mut draw, 3);
        // A truth alone would be a flag.
        if value.is_boolean() {
            continue;
        }
        let text = value.to_string();
        let found = changed("jsonb_strip_nulls", &[&text]).unwrap().unwrap();
        assert_eq!(read(&found), stripped(&value), "{text}");
        let pretty = changed("jsonb_pretty", &[&text]).unwrap().unwrap();
        assert_eq!(read(&pretty), value, "{text}");
        // No line begins in the middle of a level.
        let blanks = |line: &str| line.len() - line.trim_start_matches(' ').len();
        assert!(pretty.lines().all(|line| blanks(line) % 4 == 0), "{pretty}");
    }
}

/// Breaks if a comma within quotes parts two steps, or a step that is NULL is one of that name.
#[test]
fn paths_are_lists_of_texts() {
    check("jsonb_less_path", &[r#"{"a,b":1,"a":2}"#, r#"{"a,b"}"#], r#"{"a": 2}"#);
    check("jsonb_less_path", &[r#"{"q\"":1,"a":2}"#, r#"{"q\""}"#], r#"{"a": 2}"#);
    check("jsonb_set", &[r#"{"null":1}"#, r#"{"null"}"#, "9"], r#"{"null": 9}"#);
    for wrong in ["{null}", "{a,}", "a", "{a", ""] {
        assert_eq!(changed("jsonb_set", &[r#"{"null":1}"#, wrong, "9"]).unwrap(), None, "{wrong}");
    }
    let lists = |steps: Vec<Option<&str>>| {
        let mut lists = arrow::array::ListBuilder::new(StringBuilder::new());
        lists.append_value(steps);
        column(lists.finish())
    };
    let room = room();
    let less = |name: &str, document: &str, steps: Vec<Option<&str>>| {
        one(&named(functions(&room), name), &[text(document), lists(steps)]).unwrap()
    };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(less("jsonb_less_path", r#"{"a":[1,2]}"#, vec![Some("a"), Some("0")]), some(r#"{"a": [2]}"#));
    assert_eq!(less("jsonb_less", r#"{"a":1,"b":2,"c":3}"#, vec![Some("a"), Some("c")]), some(r#"{"b": 2}"#));
    assert_eq!(less("jsonb_less", r#"["a",1,"b"]"#, vec![Some("a"), Some("b")]), some("[1]"));
    assert_eq!(less("jsonb_less", r#"{"a":1}"#, vec![None]), None);
    assert_eq!(less("jsonb_less", r#"{"a":1}"#, vec![]), some(r#"{"a": 1}"#));
}

#[test]
fn what_only_looks_like_json_is_null() {
    for text in ["[main]", "{a}", "[1,]", "{\"a\":}", "", "[1 2]"] {
        for (name, args) in [
            ("jsonb_concat", vec![text, "1"]),
            ("jsonb_concat", vec!["1", text]),
            ("jsonb_less", vec![text, "a"]),
            ("jsonb_less_path", vec![text, "{a}"]),
            ("jsonb_set", vec![text, "{a}", "1"]),
            ("jsonb_set", vec!["{}", "{a}", text]),
            ("jsonb_strip_nulls", vec![text]),
            ("json_strip_nulls", vec![text]),
            ("jsonb_pretty", vec![text]),
        ] {
            assert_eq!(changed(name, &args).unwrap(), None, "{name} {args:?}");
        }
    }
}

#[test]
fn types_are_checked() {
    let room = room();
    let types = |name: &str, types: &[DataType]| named(functions(&room), name).coerce_types(types);
    let (text, list) = (DataType::Utf8, DataType::new_list(DataType::Utf8, true));
    let views = DataType::new_list(DataType::Utf8View, true);
    assert_eq!(types("jsonb_less", &[text.clone(), DataType::Int32]).unwrap(), [DataType::Utf8View, DataType::Int64]);
    assert_eq!(types("jsonb_less", &[text.clone(), list]).unwrap(), [DataType::Utf8View, views]);
    for (name, wrong, said) in [
        ("jsonb_concat", vec![text.clone(), DataType::Int64], "reads texts that hold JSON, not `Int64`"),
        ("jsonb_less_path", vec![text.clone(), DataType::Int64], "not `Int64`"),
        ("jsonb_set", vec![text.clone(), text.clone()], "`jsonb_set` does not take"),
        ("jsonb_set", vec![text.clone(), text.clone(), text.clone(), text.clone()], "`jsonb_set` does not take"),
        ("jsonb_pretty", vec![], "`jsonb_pretty` does not take"),
    ] {
        let refused = types(name, &wrong).unwrap_err().to_string();
        assert!(refused.contains(said), "{name}: {refused}");
    }
    let texts = texts(&[Some("[1]"), None, Some("no"), Some("{}")]);
    let found = call(&named(functions(&room), "jsonb_pretty"), &[texts], 4).unwrap();
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(shown(&found), [some("[\n    1\n]"), None, None, some("{\n}")]);
}
