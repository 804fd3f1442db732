use proptest::prelude::*;
use serde_json::json;

use super::*;

fn leaf(members: &Value) -> Leaf {
    let map = members.as_object().expect("an object");
    Leaf::parse(map, "").unwrap_or_else(|e| panic!("{members}: {e:?}"))
}

/// Texts that pass, texts that do not, and whether a field that is not there does.
fn check(members: Value, yes: &[&str], no: &[&str], without: bool) {
    let mut members = members;
    members["field"] = json!("a");
    let leaf = leaf(&members);
    for text in yes {
        assert!(leaf.passes(Some(text)) && leaf.test.holds(text), "{members} of {text:?}");
    }
    for text in no {
        assert!(!leaf.passes(Some(text)) && !leaf.test.holds(text), "{members} of {text:?}");
    }
    assert_eq!(leaf.passes(None), without, "{members} of nothing");
}

#[test]
fn equality_knows_numbers() {
    check(json!({"op": "eq", "value": "250"}), &["250", "250.0", "2.5e2", "+250"], &["251", "250 ", "", "ab"], false);
    check(json!({"op": "eq", "value": 250}), &["250", "250.0"], &["0250x", ""], false);
    check(json!({"op": "eq", "value": 0}), &["0", "-0", "0.0", "-0.0"], &["", "null", "false"], false);
    check(json!({"op": "eq", "value": true}), &["true"], &["TRUE", "1", ""], false);
    check(json!({"op": "eq", "value": ""}), &[""], &[" ", "a"], false);
    // What is no number as JSON has numbers is compared as a text.
    check(json!({"op": "eq", "value": "NaN"}), &["NaN"], &["nan", "0"], false);
    check(json!({"op": "eq", "value": "inf"}), &["inf"], &["infinity", "Inf"], false);
    check(json!({"op": "eq", "value": "1e999"}), &["1e999"], &["inf", "2e999"], false);
    check(json!({"op": "ne", "value": "GET"}), &["get", "", "POST"], &["GET"], true);
    check(json!({"op": "ne", "value": 5}), &["6", "five", ""], &["5", "5.0"], true);
    check(json!({"op": "in", "value": ["a", 1, false]}), &["a", "1", "1.0", "false"], &["A", "", "2", "0"], false);
    check(json!({"op": "in", "value": []}), &[], &["", "a"], false);
}

#[test]
fn parts_of_texts() {
    check(json!({"op": "contains", "value": "é"}), &["café!", "é"], &["cafe", ""], false);
    check(json!({"op": "contains", "value": ""}), &["", "a"], &[], false);
    check(json!({"op": "startsWith", "value": "äb"}), &["äb", "äbc"], &["xäb", "ä", ""], false);
    check(json!({"op": "endsWith", "value": "bä"}), &["bä", "abä"], &["bäx", "ä", ""], false);
    check(json!({"op": "regex", "value": "^a.c$"}), &["abc", "aéc"], &["abcd", "a\nc", "ac"], false);
    check(json!({"op": "regex", "value": ""}), &["", "a"], &[], false);
    check(json!({"op": "regex", "value": "(?P<x>[0-9]{2,})"}), &["a42b"], &["a4b"], false);
    check(json!({"op": "glob", "value": "/a/*/c"}), &["/a/b/c"], &["/a//c", "/a/b/b/c", "/a/b/c/"], false);
    check(json!({"op": "glob", "value": "**"}), &["", "a/b", "a\nb"], &[], false);
    check(json!({"op": "glob", "value": "a*"}), &["a", "ab"], &["a/b", "ba", ""], false);
    check(json!({"op": "glob", "value": "/{x}/[y]"}), &["/a/[y]"], &["/a/y", "//[y]"], false);
}

#[test]
fn case_counts_unless_it_is_said() {
    let folded = |op: &str, value: &str| json!({"op": op, "value": value, "caseSensitive": false});
    check(folded("eq", "ÄGet"), &["ÄGET", "äget"], &["get"], false);
    check(folded("ne", "GET"), &["POST"], &["get", "GET"], true);
    check(json!({"op": "in", "value": ["a", "B"], "caseSensitive": false}), &["A", "b"], &["c"], false);
    check(folded("contains", "ÖR"), &["hören", "HÖREN"], &["horen"], false);
    check(folded("startsWith", "Ab"), &["aBc", "AB"], &["cab"], false);
    check(folded("endsWith", "Ab"), &["cAB", "ab"], &["abc"], false);
    check(folded("regex", "^get$"), &["GET", "Get"], &["gets"], false);
    check(folded("glob", "/Cart/*"), &["/CART/1", "/cart/x"], &["/cart/"], false);
    check(json!({"op": "eq", "value": "a", "caseSensitive": true}), &["a"], &["A"], false);
    check(json!({"op": "eq", "value": "a", "caseSensitive": null}), &["a"], &["A"], false);
    check(json!({"op": "eq", "value": 250, "caseSensitive": false}), &["250.0"], &[], false);
}

#[test]
fn bounds_are_numbers_or_texts() {
    check(json!({"op": "gt", "value": 5}), &["5.1", "1e3"], &["5", "4", "abc", "", "-10"], false);
    check(json!({"op": "ge", "value": "5"}), &["5", "5.0", "50"], &["4.99", "x"], false);
    check(json!({"op": "lt", "value": -1}), &["-1.5", "-1e9"], &["-1", "0", "-x", ""], false);
    check(json!({"op": "le", "value": 0.5}), &["0.5", "0", "-3"], &["0.51", "half"], false);
    check(json!({"op": "between", "value": [1, 3]}), &["1", "2.5", "3"], &["0.9", "3.1", "x", ""], false);
    check(json!({"op": "between", "value": [2, 2]}), &["2", "2.0"], &["1", "3"], false);
    check(json!({"op": "ge", "value": "b"}), &["b", "ba", "c", "é"], &["a", "B", ""], false);
    check(json!({"op": "lt", "value": "b"}), &["a", "", "B", "9"], &["b", "ba"], false);
    check(json!({"op": "between", "value": ["a", "b"]}), &["a", "az", "b"], &["ba", "A", ""], false);
    check(json!({"op": "gt", "value": 5}), &[], &["NaN"], false);
}

#[test]
fn what_is_there_may_be_empty() {
    check(json!({"op": "exists"}), &["", "a"], &[], false);
    check(json!({"op": "exists", "value": true}), &["", "a"], &[], false);
    check(json!({"op": "exists", "value": false}), &[], &["", "a"], true);
}

#[test]
fn what_is_wrong_is_named() {
    let errors = |members: Value| {
        let map = members.as_object().expect("an object");
        let errors = Leaf::parse(map, "/all/1").expect_err("it is wrong");
        let mut errors: Vec<String> = errors.iter().map(|e| format!("{} {}", e.pointer, e.code)).collect();
        errors.sort();
        errors
    };
    let with = |op: &str, value: Value| errors(json!({"field": "a", "op": op, "value": value}));
    assert_eq!(errors(json!({})), ["/all/1/field REQUIRED", "/all/1/op REQUIRED"]);
    assert_eq!(errors(json!({"field": " ", "op": "exists"})), ["/all/1/field REQUIRED"]);
    assert_eq!(errors(json!({"field": 7, "op": "exists"})), ["/all/1/field INVALID_TYPE"]);
    assert_eq!(errors(json!({"field": "ä".repeat(129), "op": "exists"})), ["/all/1/field TOO_LONG"]);
    assert_eq!(errors(json!({"field": "a", "op": "exists", "x/~y": 1})), ["/all/1/x~1~0y UNKNOWN_FIELD"]);
    assert_eq!(errors(json!({"field": "a", "op": "like", "value": 1})), ["/all/1/op INVALID_VALUE"]);
    assert_eq!(errors(json!({"field": "a", "op": 1, "value": 1})), ["/all/1/op INVALID_TYPE"]);
    assert_eq!(errors(json!({"field": "a", "op": "eq"})), ["/all/1/value REQUIRED"]);
    assert_eq!(errors(json!({"field": "a", "op": "eq", "value": null})), ["/all/1/value REQUIRED"]);
    let case = json!({"field": "a", "op": "eq", "value": 1, "caseSensitive": "no"});
    assert_eq!(errors(case), ["/all/1/caseSensitive INVALID_TYPE"]);
    for (op, value, code) in [
        ("eq", json!([1]), "INVALID_TYPE"),
        ("eq", json!("x".repeat(4097)), "TOO_LONG"),
        ("contains", json!(1), "INVALID_TYPE"),
        ("contains", json!("x".repeat(4097)), "TOO_LONG"),
        ("in", json!("a"), "INVALID_TYPE"),
        ("in", json!([{"a": 1}]), "INVALID_TYPE"),
        ("in", json!(vec![0; 1001]), "LIMIT_EXCEEDED"),
        ("exists", json!("yes"), "INVALID_TYPE"),
        ("gt", json!(true), "INVALID_TYPE"),
        ("between", json!(1), "INVALID_TYPE"),
        ("between", json!([1]), "INVALID_VALUE"),
        ("between", json!([1, 2, 3]), "INVALID_VALUE"),
        ("between", json!([3, 1]), "INVALID_VALUE"),
        ("between", json!(["b", "a"]), "INVALID_VALUE"),
        ("regex", json!("("), "INVALID_REGEX"),
        ("regex", json!("x".repeat(1025)), "INVALID_REGEX"),
        ("regex", json!("(.{1000}){1000}"), "INVALID_REGEX"),
        ("glob", json!("{"), "PATTERN"),
        ("glob", json!(""), "PATTERN"),
    ] {
        assert_eq!(with(op, value.clone()), [format!("/all/1/value {code}")], "{op} {value}");
    }
    // What variables stand for is not known yet.
    assert!(
        Leaf::parse(json!({"field": "a", "op": "between", "value": ["$b", "$a"]}).as_object().unwrap(), "").is_ok()
    );
    let duration = |value: Value| errors(json!({"field": "span.durationMs", "op": "gt", "value": value}));
    assert_eq!(duration(json!("long")), ["/all/1/value INVALID_TYPE"]);
    assert!(
        Leaf::parse(json!({"field": "span.durationMs", "op": "gt", "value": "$x"}).as_object().unwrap(), "").is_ok()
    );
}

#[test]
fn words_of_spans_are_asked_for_in_lower_case_too() {
    let shown = |field: &str, value: Value| {
        let leaf = leaf(&json!({"field": field, "op": "in", "value": value}));
        let Test::In(any, _) = leaf.test else { panic!("{field}") };
        any.into_iter().map(|one| one.text).collect::<Vec<_>>()
    };
    assert_eq!(shown("span.kind", json!(["SERVER"])), ["SERVER", "server"]);
    assert_eq!(shown("span.kind", json!(["server"])), ["server"]);
    assert_eq!(shown("span.status", json!(["ERROR", "error"])), ["ERROR", "error"]);
    assert_eq!(shown("span.status", json!(["$X"])), ["$X"]);
    assert_eq!(shown("http.method", json!(["GET"])), ["GET"]);
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof!["[abAB/]{0,6}", "-?[0-9]{1,3}(\\.[0-9])?", "[aäÄé ]{0,4}"]
}

proptest! {
    /// Both ways to ask agree; what must be in a text is in each that passes.
    #[test]
    fn what_is_sought_is_there(value in any_text(), text in any_text(), folded in any::<bool>(), op in 0..6_usize) {
        let op = ["eq", "ne", "contains", "startsWith", "endsWith", "glob"][op];
        let members = json!({"field": "a", "op": op, "value": value, "caseSensitive": !folded});
        let Ok(leaf) = Leaf::parse(members.as_object().unwrap(), "") else { return Ok(()) };
        let passes = leaf.passes(Some(&text));
        prop_assert_eq!(passes, leaf.test.holds(&text), "{} of {:?}", members, text);
        // A text passes exactly if its opposite does not.
        if op == "eq" {
            let opposite = json!({"field": "a", "op": "ne", "value": value, "caseSensitive": !folded});
            let opposite = Leaf::parse(opposite.as_object().unwrap(), "").expect("a leaf");
            prop_assert_ne!(passes, opposite.passes(Some(&text)));
        }
        if let (true, Some(RequiredText::Wholes(wholes))) = (passes, leaf.sought()) {
            prop_assert!(wholes.contains(&text), "{} of {:?}: {:?}", members, text, wholes);
        }
        if leaf.is_told() && let Some(RequiredText::Wholes(wholes)) = leaf.sought() {
            prop_assert!(!wholes.contains(&text) || passes, "{} of {:?}", members, text);
        }
    }
}
