use datafusion::execution::memory_pool::UnboundedMemoryPool;

use super::*;

const DOCUMENT: &str =
    r#"{"a": [1, 2.5, "x", null, true], "b": {"c": [{"d": 1, "e": "one"}, {"d": 2}, {"e": "two"}]}, "n": 7}"#;

fn found(path: &str, document: &str) -> Result<Vec<String>> {
    let room = Room::new(Arc::new(UnboundedMemoryPool::default()));
    let mut walk = Walk { making: Making::new("f", &room) };
    let path = path::read(path).map_err(DataFusionError::Execution)?;
    Ok(walk.items(&path, document)?.into_iter().map(Cow::into_owned).collect())
}

fn check(path: &str, expected: &[&str]) {
    assert_eq!(found(path, DOCUMENT).unwrap(), expected, "{path}");
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
fn truths_are_single() {
    let mut found = Found::new(Asked::Match);
    found.add(&[Cow::Borrowed("true")]).unwrap();
    found.add(&[Cow::Borrowed("null")]).unwrap();
    found.nothing();
    assert!(found.add(&[Cow::Borrowed("1")]).is_err() && found.add(&[]).is_err());
    let truths = found.finish();
    assert_eq!(truths.as_boolean().iter().collect::<Vec<_>>(), [Some(true), None, None]);
}
