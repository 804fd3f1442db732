use std::borrow::Cow;

use arrow::array::AsArray as _;
use datafusion::execution::memory_pool::{GreedyMemoryPool, UnboundedMemoryPool};
use serde_json::Value;

use super::super::testing::{PathStep, call, document, draws, named, parts_of, room, shown, text, texts};
use super::*;

const DOCUMENT: &str =
    r#"{"a": [1, 2.5, "x", null, true], "b": {"c": [{"d": 1, "e": "one"}, {"d": 2}, {"e": "two"}]}, "n": 7}"#;

/// What a path leads to: all of it, or nothing if there is a fault.
fn found(path: &str, document: &str) -> Result<Vec<String>> {
    let (items, fault) = with_fault(path, document)?;
    fault.map_or(Ok(items), |fault| Err(DataFusionError::Execution(fault)))
}

fn with_fault(path: &str, document: &str) -> Result<(Vec<String>, Option<String>)> {
    let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
    let path = path::read(path).map_err(DataFusionError::Execution)?;
    let Found { items, fault } = Walk::new(OutputMemory::new("f", &room)).items(&path, document)?;
    Ok((items.into_iter().map(Cow::into_owned).collect(), fault))
}

fn check(path: &str, expected: &[&str]) {
    assert_eq!(found(path, DOCUMENT).unwrap(), expected, "{path}");
}

#[test]
fn methods_of_numbers() {
    let check = |path: &str, document: &str, expected: &[&str]| {
        assert_eq!(found(path, document).unwrap(), expected, "{path} of {document}");
    };
    check("$.floor()", "[1.5, -1.5, 12345678901234567890]", &["1", "-2", "12345678901234567890"]);
    check("$[*].ceiling()", "[1.5, -0.5]", &["2", "0"]);
    check("$.abs()", "-1.50", &["1.50"]);
    check("$.double()", "[\"1.50\", 2]", &["1.5", "2"]);
    check("$[*] ? (@.abs() > 2)", "[-3, 1, \"x\", null, 5]", &["-3", "5"]);
    for (path, document) in [("$.floor()", "\"1\""), ("$.abs()", "{}"), ("$.double()", "\"x\""), ("$.abs()", "null")] {
        let error = found(path, document).unwrap_err().to_string();
        assert!(error.contains("jsonpath item method ."), "{path} of {document}: {error}");
    }
}

/// Answers of PostgreSQL.
#[test]
fn numbers_are_calculated() {
    let check = |path: &str, document: &str, expected: &str| {
        let items = found(path, document).unwrap();
        assert_eq!(items.join(", "), expected, "{path} of {document}");
    };
    check("$[*] + 1", "[1]", "2");
    check("$.a * 2 + 1", r#"{"a": 2}"#, "5");
    check("2 * 3 + 4 * 5 - 6 / 4", "null", "24.5000000000000000");
    check("1 - 2 - 3", "null", "-4");
    check("-(1 + 2)", "null", "-3");
    check("-$[*]", "[1, -2.50]", "-1, 2.50");
    check("$.a / 3", r#"{"a": 1}"#, "0.33333333333333333333");
    check("7 % $", "4", "3");
    check("$[*] ? (@.a + @.b == 4)", r#"[{"a": 1, "b": 3}, {"a": 3, "b": 2}]"#, r#"{"a": 1, "b": 3}"#);
    check("$.a.double() + 1", r#"{"a": "1.5"}"#, "2.5");
    check("($[*] + 1).type()", "[1]", "\"number\"");
    check("1e2", "null", "100");
    // In a condition a fault is not known to be so.
    check("$ ? (@ + 1 > \"a\")", "1", "");
    check("$ ? ((@ + \"a\" > 1) is unknown)", "1", "1");
    for (path, document, fault) in [
        ("$[*] + 1", "[1, 2]", "left operand of jsonpath operator + is not a single numeric value"),
        ("$.a - $.b", r#"{"a": 1}"#, "right operand of jsonpath operator - is not a single numeric value"),
        ("-$", "\"x\"", "operand of unary jsonpath operator - is not a numeric value"),
        ("$ / 0", "1", "division by zero"),
        ("$ % 0.00", "1", "division by zero"),
    ] {
        assert_eq!(with_fault(path, document).unwrap(), (vec![], Some(fault.to_owned())), "{path} of {document}");
    }
    assert!(found("$ * $", &"9".repeat(60)).unwrap_err().to_string().contains("is out of range"));
}

/// Answers of PostgreSQL.
#[test]
fn values_are_compared_with_each_other() {
    for (path, document, expected) in [
        ("$.a < $.b", r#"{"a": 2, "b": 3}"#, "true"),
        ("$.a == $.b", r#"{"a": [1, 2], "b": [3, 2]}"#, "true"),
        ("$.a > $.b", r#"{"a": [1, 2], "b": []}"#, "false"),
        ("$.a == $.b", r#"{"a": {}, "b": {}}"#, "null"),
        ("$.a == null", r#"{"a": {}}"#, "false"),
        ("$.a == 1", r#"{"a": [[1]]}"#, "null"),
        ("1 == 1.0", "null", "true"),
        ("1 == \"1\"", "null", "null"),
        ("($[0] > 0) is unknown", "[\"a\"]", "true"),
        ("$[*] ? ((@ > 0) is unknown)", "[1, \"a\", null]", "\"a\""),
        ("($.a == 1).type()", r#"{"a": 1}"#, "\"boolean\""),
        ("\"abc\" starts with \"a\"", "1", "true"),
    ] {
        assert_eq!(found(path, document).unwrap(), [expected], "{path} of {document}");
    }
}

/// Answers of PostgreSQL.
#[test]
fn strict_paths_have_faults() {
    for (path, document, expected) in [
        ("strict $.a[*]", r#"{"a": [1, 2]}"#, "1, 2"),
        ("strict $[*] ? (@.a == 1)", r#"[{"a": 1}, {"b": 1}]"#, r#"{"a": 1}"#),
        ("strict $[*] ? ((@.a == 1) is unknown)", r#"[{"a": 1}, {"b": 1}]"#, r#"{"b": 1}"#),
        ("strict exists($.x)", r#"{"a": 1}"#, "null"),
        ("strict $[*] > 1", "[2, \"a\"]", "null"),
        ("strict $.**.a", r#"{"a": 1, "b": {"a": 2}}"#, "1, 2"),
        ("strict $ ? (@[*] > 1)", "[1, 2]", "[1, 2]"),
    ] {
        assert_eq!(found(path, document).unwrap().join(", "), expected, "{path} of {document}");
    }
    for (path, document, fault) in [
        ("strict $.b", r#"{"a": 1}"#, "JSON object does not contain key \"b\""),
        ("strict $.a", "[]", "jsonpath member accessor can only be applied to an object"),
        ("strict $.*", "[1]", "jsonpath wildcard member accessor can only be applied to an object"),
        ("strict $[*]", "{}", "jsonpath wildcard array accessor can only be applied to an array"),
        ("strict $[0]", "{}", "jsonpath array accessor can only be applied to an array"),
        ("strict $[0 to 5]", "[1]", "jsonpath array subscript is out of bounds"),
        ("strict $.size()", "1", "jsonpath item method .size() can only be applied to an array"),
        ("$[\"a\"]", "[1]", "jsonpath array subscript is not a single numeric value"),
        ("$[99999999999]", "[1]", "jsonpath array subscript is out of integer range"),
        ("$.keyvalue()", "1", "jsonpath item method .keyvalue() can only be applied to an object"),
    ] {
        assert_eq!(with_fault(path, document).unwrap().1.as_deref(), Some(fault), "{path} of {document}");
    }
    // What stands before a fault is kept.
    let kept = with_fault("$[*].floor()", "[1.5, \"x\", 2.5]").unwrap();
    assert!(kept.0 == ["1"] && kept.1.is_some(), "{kept:?}");
}

#[test]
fn places_and_members_are_calculated() {
    let check = |path: &str, document: &str, expected: &[&str]| {
        assert_eq!(found(path, document).unwrap(), expected, "{path} of {document}");
    };
    check("$[last, 0 to last - 1]", "[1, 2, 3]", &["3", "1", "2"]);
    check("$[2 to 2]", "[1, 2, 3]", &["3"]);
    check("$[$[0]]", "[1, 2, 3]", &["2"]);
    check("$[1.9]", "[1, 2, 3]", &["2"]);
    check("$[$.size() - 1]", "[1, 2, 3]", &["3"]);
    check("$.keyvalue().key", r#"{"x": 1, "y": [2]}"#, &["\"x\"", "\"y\""]);
    check("$.keyvalue()", r#"{"x": 1}"#, &[r#"{"id": 0, "key": "x", "value": 1}"#]);
    check("$.keyvalue() ? (@.value > 1).key", r#"{"x": 1, "y": 2}"#, &["\"y\""]);
    check("$.a.floor().abs() ? (@ > 1)", r#"{"a": -1.5}"#, &["2"]);
}

#[test]
fn steps_lead_to_items() {
    check("$.n", &["7"]);
    check("$.a[*]", &["1", "2.5", "\"x\"", "null", "true"]);
    check("$.a[0, last, 1 to 2]", &["1", "true", "2.5", "\"x\""]);
    check("$.a[last - 1 to 99]", &["null", "true"]);
    check("$.a[-1]", &[]);
    check("$.a[3 to 1]", &[]);
    check("$.b.c.d", &["1", "2"]);
    check("$.b.*[1].d", &["2"]);
    check("$.x.y", &[]);
    // What is no array is the only item of one.
    check("$.n[0][last][*]", &["7"]);
    check("$.a.size()", &["5"]);
    check("$.n.size()", &["1"]);
    check("$.*.type()", &["\"array\"", "\"object\"", "\"number\""]);
    check("$.**.n", &["7"]);
    check("$.b.**{3}", &["1", "\"one\"", "2", "\"two\""]);
    check("$.b.c[1].**", &["{\"d\": 2}", "2"]);
    check("$.b.c[1].**{1 to last}", &["2"]);
    check("$.**{5}", &[]);
    check("$.b.**{last}", &["1", "\"one\"", "2", "\"two\""]);
    check("$.n.**{last}", &[]);
}

#[test]
fn filters_keep_items() {
    check("$.a ? (@ > 1)", &["2.5"]);
    check("$.a ? (@ == null || @ == \"x\")", &["\"x\"", "null"]);
    check("$.a ? (@ != null)", &["1", "2.5", "\"x\"", "true"]);
    check("$.b.c ? (@.d >= 1 && exists(@.e)).e", &["\"one\""]);
    check("$.b.c[*] ? (!(@.d == 1)).e", &["\"two\""]);
    check("$.b.c ? (@.e starts with \"t\")", &["{\"e\": \"two\"}"]);
    check("$.b.c ? ($.n == 7 && 2 == @.d)", &["{\"d\": 2}"]);
    check("$.b.c ? (@.e like_regex \"^t.o$\").e", &["\"two\""]);
    check("$.b.c.e ? (@ like_regex \"O\" flag \"i\")", &["\"one\"", "\"two\""]);
    check("$.b.c.e ? (@ like_regex \"t.o\" flag \"q\")", &[]);
    // Of a text it is not known whether it is above a number, nor whether it is not; null is not above it.
    check("$.a ? (!(@ > 1))", &["1", "null"]);
}

#[test]
fn conditions_are_truths() {
    check("$.n == 7", &["true"]);
    check("$.a == 1", &["true"]);
    check("$.n > 7 || $.x == 1", &["false"]);
    check("$.n > \"a\"", &["null"]);
    check("$.n > \"a\" && $.n == 8", &["false"]);
    check("exists($.a ? (@ == true))", &["true"]);
    assert_eq!(found("$ == 9007199254740993", "9007199254740992").unwrap(), ["false"]);
    assert_eq!(found("$ == 1", "1.0").unwrap(), ["true"]);
}

#[test]
fn what_is_looked_at_is_bounded() {
    let path = format!("${}", "[0, 0, 0, 0, 0, 0, 0, 0]".repeat(30));
    let refused = found(&path, "1").unwrap_err();
    assert!(refused.to_string().contains("more than"), "{refused}");
}

#[test]
fn only_items_that_are_held_count() {
    let room = Room::new(Arc::new(GreedyMemoryPool::new(4 << 20)));
    let numbers = (0..100).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    let document = format!("[{}]", vec![format!(r#"{{"b": [{numbers}]}}"#); 2000].join(", "));
    // Six megabytes of items, of which a condition looks at 200 at once.
    for condition in ["exists(@.b[*] ? (@ > 98))", "@.b[*] * 1 < 0 || @.b.size() == 100", "@.b[@.b.size() - 1] == 99"] {
        let path = path::read(&format!("$[*] ? ({condition})")).unwrap();
        let found = Walk::new(OutputMemory::new("f", &room)).items(&path, &document).unwrap();
        assert_eq!((found.items.len(), found.fault), (2000, None), "{condition}");
    }
    // All of them at once are too many.
    let path = path::read("$[*].b[*]").unwrap();
    assert!(Walk::new(OutputMemory::new("f", &room)).items(&path, &document).is_err());
}

#[test]
fn of_truths_no_items_are_kept() {
    let room = Room::new(Arc::new(GreedyMemoryPool::new(4 << 20)));
    let long = format!("[{}]", vec![format!(r#""{}""#, "x".repeat(10_000)); 50].join(", "));
    let args = [texts(&[Some(long.as_str()); 20]), text("$[*]")];
    let of = |name: &str| call(&named(functions(&room), name), &args, 20);
    assert_eq!(shown(&of("jsonb_path_exists").unwrap()), vec![Some("true".to_owned()); 20]);
    assert_eq!(of("jsonb_path_query_first").unwrap().len(), 20);
    assert!(of("jsonb_path_query_array").is_err(), "these are ten megabytes");
}

#[test]
fn truths_are_single() {
    let mut found = JsonPathResults::new(JsonPathOperation::Match);
    let of = |items: &[&'static str]| Found { items: items.iter().copied().map(Cow::Borrowed).collect(), fault: None };
    found.add(&of(&["true"]), false, false).unwrap();
    found.add(&of(&["null"]), false, false).unwrap();
    found.nothing();
    found.add(&of(&["1"]), false, true).unwrap();
    for items in [&["1"] as &[&str], &[]] {
        assert!(found.add(&of(items), false, false).is_err(), "{items:?}");
    }
    let truths = found.finish();
    assert_eq!(truths.as_boolean().iter().collect::<Vec<_>>(), [Some(true), None, None, None]);
}

#[test]
fn faults_are_told_unless_they_are_silent() {
    let faulty = |items: &[&'static str]| {
        let items = items.iter().copied().map(Cow::Borrowed).collect();
        Found { items, fault: Some("a fault".to_owned()) }
    };
    let of = |asked: JsonPathOperation, items: &[&'static str], is_strict: bool, is_silent: bool| {
        let mut found = JsonPathResults::new(asked);
        found.add(&faulty(items), is_strict, is_silent).ok()?;
        Some(shown(&found.finish()).remove(0))
    };
    let some = |text: &str| Some(Some(text.to_owned()));
    assert_eq!(of(JsonPathOperation::Exists, &["1"], false, false), some("true"), "it is known before the fault");
    assert_eq!(of(JsonPathOperation::Exists, &["1"], true, false), None);
    assert_eq!(of(JsonPathOperation::Exists, &["1"], true, true), Some(None));
    assert_eq!(of(JsonPathOperation::Exists, &[], false, true), Some(None));
    assert_eq!(of(JsonPathOperation::Match, &["true"], false, true), Some(None));
    assert_eq!(of(JsonPathOperation::First, &["1"], false, false), None);
    assert_eq!(of(JsonPathOperation::First, &["1"], false, true), some("1"));
    assert_eq!(of(JsonPathOperation::Array, &["1"], false, true), some("[1]"));
}

/// The way to a part as a path.
fn written(way: &[PathStep<'_>]) -> String {
    let step = |step: &PathStep<'_>| match step {
        Ok(name) => format!(".{}", Value::from(*name)),
        Err(at) => format!("[{at}]"),
    };
    format!("${}", way.iter().map(step).collect::<String>())
}

fn normal(value: &Value) -> String {
    let (room, mut out) = (room(), String::new());
    assert!(push_normal(&value.to_string(), 0, &mut out, &mut OutputMemory::new("f", &room)).unwrap());
    out
}

/// Each part of many documents is what its path leads to, and `**` leads to all of them.
#[test]
fn paths_lead_to_all_parts() {
    let mut draw = draws(31);
    for _ in 0..100 {
        let value = document(&mut draw, 3);
        let document = normal(&value);
        let mut parts = Vec::new();
        parts_of(&value, &[], &mut parts);
        for (way, part) in &parts {
            let path = written(way);
            assert_eq!(found(&path, &document).unwrap(), [normal(part)], "{path} of {document}");
            let kind = match part {
                Value::Null => "null",
                Value::Bool(_) => "boolean",
                Value::Number(_) => "number",
                Value::String(_) => "string",
                Value::Array(_) => "array",
                Value::Object(_) => "object",
            };
            assert_eq!(found(&format!("{path}.type()"), &document).unwrap(), [format!("\"{kind}\"")], "{path}");
            let size = part.as_array().map_or(1, Vec::len).to_string();
            assert_eq!(found(&format!("{path}.size()"), &document).unwrap(), [size], "{path}");
        }
        let mut all = found("$.**", &document).unwrap();
        let mut expected: Vec<String> = parts.iter().map(|(_, part)| normal(part)).collect();
        all.sort_unstable();
        expected.sort_unstable();
        assert_eq!(all, expected, "{document}");
    }
}

#[test]
fn numbers_compare_by_size() {
    let numbers = ["-1", "0", "0.5", "0.50", "1", "1.0", "10", "1e1", "-0.0", "9007199254740993"];
    for (left, right) in numbers.iter().flat_map(|left| numbers.iter().map(move |right| (*left, *right))) {
        let sizes = (left.parse::<f64>().unwrap(), right.parse::<f64>().unwrap());
        for (operator, turned, holds) in [
            ("==", "==", sizes.0 == sizes.1),
            ("!=", "!=", sizes.0 != sizes.1),
            ("<", ">", sizes.0 < sizes.1),
            ("<=", ">=", sizes.0 <= sizes.1),
            (">", "<", sizes.0 > sizes.1),
            (">=", "<=", sizes.0 >= sizes.1),
        ] {
            for path in [format!("$ {operator} {right}"), format!("{right} {turned} $")] {
                assert_eq!(found(&path, left).unwrap(), [holds.to_string()], "{path} of {left}");
            }
        }
    }
}

#[test]
fn values_of_other_types_are_not_compared() {
    for (path, document, expected) in [
        ("$ == null", "null", "true"),
        ("$ != null", "null", "false"),
        ("$ < null", "null", "false"),
        ("$ <= null", "null", "true"),
        ("$ != null", "1", "true"),
        ("$ < null", "1", "false"),
        ("$ == 1", "null", "false"),
        ("$ != 1", "null", "true"),
        ("$ > 1", "true", "null"),
        ("$ == \"1\"", "1", "null"),
        ("$ != \"1\"", "1", "null"),
        ("$ == 1", "\"1\"", "null"),
        ("$ == 1", "{}", "null"),
        ("$ == true", "false", "false"),
        ("$ < true", "false", "true"),
        ("$ < \"b\"", "\"a\"", "true"),
        ("$ < \"ä\"", "\"z\"", "true"),
        ("$ == \"a\"", r#""\u0061""#, "true"),
        // Of what is not there nothing is so.
        ("$.x == 1", "{}", "false"),
        ("!($.x == 1)", "{}", "true"),
        ("!($ > \"a\")", "1", "null"),
        // What one side knows decides.
        ("$ > \"a\" || $ == 1", "1", "true"),
        ("$ == 1 || $ > \"a\"", "1", "true"),
        ("$ > \"a\" || $ == 2", "1", "null"),
        ("$ > \"a\" && $ == 1", "1", "null"),
        ("$ > \"a\" && $ == 2", "1", "false"),
        ("exists($.a)", "{}", "false"),
        ("exists($.a)", r#"{"a": null}"#, "true"),
        ("$ starts with \"\"", "\"\"", "true"),
        ("$ starts with \"a\"", "1", "null"),
    ] {
        assert_eq!(found(path, document).unwrap(), [expected], "{path} of {document}");
    }
}

#[test]
fn patterns_have_flags() {
    for (pattern, flags, text, expected) in [
        ("^a.c$", "", r#""abc""#, "true"),
        ("^a.c$", "", r#""a\nc""#, "false"),
        ("^a.c$", "s", r#""a\nc""#, "true"),
        ("^c$", "", r#""a\nc""#, "false"),
        ("^c$", "m", r#""a\nc""#, "true"),
        ("A", "", r#""abc""#, "false"),
        ("A", "i", r#""abc""#, "true"),
        ("a b", "x", r#""ab""#, "true"),
        ("a.c", "q", r#""abc""#, "false"),
        ("A.C", "qi", r#""xa.c""#, "true"),
        ("a b", "qx", r#""a b""#, "true"),
        ("1", "", "1", "null"),
        ("Ä", "i", r#""\u00e4""#, "true"),
    ] {
        let path = format!("$ like_regex \"{pattern}\" flag \"{flags}\"");
        assert_eq!(found(&path, text).unwrap(), [expected], "{path} of {text}");
    }
}

#[test]
fn columns_have_documents_and_paths() {
    let room = room();
    let of = |name: &str, args: &[ColumnarValue]| call(&named(functions(&room), name), args, 4);
    let documents = texts(&[Some(r#"{"b":2,"a":[1,{"c":null}]}"#), None, Some("[main]"), Some("{}")]);
    let with = |path: &ColumnarValue| [documents.clone(), path.clone()];
    let some = |text: &str| Some(text.to_owned());
    let (a, own) = (text("$.a"), texts(&[Some("$.a[*]"), Some("$"), Some("$"), None]));
    assert_eq!(shown(&of("jsonb_path_exists", &with(&a)).unwrap()), [some("true"), None, None, some("false")]);
    let first = shown(&of("jsonb_path_query_first", &with(&a)).unwrap());
    assert_eq!(first, [some(r#"[1, {"c": null}]"#), None, None, None]);
    let all = shown(&of("jsonb_path_query_array", &with(&own)).unwrap());
    assert_eq!(all, [some(r#"[1, {"c": null}]"#), None, None, None]);
    let none = shown(&of("jsonb_path_query_array", &with(&a)).unwrap());
    assert_eq!(none[3], some("[]"), "without items it is an array all the same");
    let items = of("jsonb_path_items", &with(&own)).unwrap();
    let lists = items.as_list::<i32>();
    assert_eq!(lists.value(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["1", r#"{"c": null}"#]);
    assert_eq!(lists.iter().map(|list| list.is_some()).collect::<Vec<_>>(), [true, false, false, false]);
    let truths = shown(&of("jsonb_path_match", &with(&text("$.b == 2"))).unwrap());
    assert_eq!(truths, [some("true"), None, None, some("false")]);
    for (name, path, said) in [
        ("jsonb_path_match", "$.b", "takes a path that gives one truth"),
        ("jsonb_path_exists", "$.b[", "cannot read the JSON path at character 5"),
        ("jsonb_path_exists", "strict $.x", "JSON object does not contain key"),
    ] {
        let refused = of(name, &with(&text(path))).unwrap_err().to_string();
        assert!(refused.contains(said), "{path}: {refused}");
    }
    let silent = [documents.clone(), text("strict $.x"), ColumnarValue::Scalar(ScalarValue::Boolean(Some(true)))];
    assert_eq!(shown(&of("jsonb_path_exists", &silent).unwrap()), [None, None, None, None]);
    for (types, said) in [
        (vec![DataType::Utf8], "takes a document and a path"),
        (vec![DataType::Utf8; 3], "write values of variables into the path"),
        (vec![DataType::Int64, DataType::Utf8], "not `Int64`"),
    ] {
        let refused = named(functions(&room), "jsonb_path_exists").coerce_types(&types).unwrap_err().to_string();
        assert!(refused.contains(said), "{types:?}: {refused}");
    }
}
