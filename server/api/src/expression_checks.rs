//! Checks the expressions of rules with their query language.

use quiver_alerting::rules::{Expressions, Language, ParsedExpr};
use quiver_logsql::QueryPlace;
use quiver_yaml::NodeKind;
use quiver_yaml::problem::Place;
use serde_json::Value;

use crate::olap_api::query_body;

/// The languages of this binary.
#[derive(Debug, Clone, Copy, Default)]
pub struct Languages;

impl Expressions for Languages {
    fn parse(&self, language: Language, expr: &str) -> Result<ParsedExpr, (Place, String)> {
        match language {
            Language::Promql => match quiver_promql::parser::parse(expr) {
                Ok(tree) => Ok(ParsedExpr { canonical: quiver_promql::print::print(&tree) }),
                Err(e) => Err((Place { line: e.line, column: e.column }, e.to_string())),
            },
            Language::Logsql => {
                let checked =
                    quiver_logsql::parse(expr).and_then(|query| quiver_logsql::stats_columns(&query).map(|_| query));
                checked.map(|_| ParsedExpr { canonical: expr.to_owned() }).map_err(|e| {
                    let place = QueryPlace::of(&e).map(|at| Place { line: at.line, column: at.column });
                    (place.unwrap_or(BEGINNING), e.to_string())
                })
            }
            Language::Olap => checked_olap(expr).map(|_| ParsedExpr { canonical: expr.to_owned() }),
        }
    }
}

/// Where an expression begins: the place of errors about all of it.
const BEGINNING: Place = Place { line: 1, column: 1 };

/// Reads the query of a rule over analytics: a JSON object with one measure, whose rows are the elements of the result.
/// Whether its members are there is known when it runs, since models are the operator's, too.
///
/// # Errors
/// What a rule cannot ask for.
pub fn olap_query(expr: &str) -> Result<Value, String> {
    checked_olap(expr).map_err(|(_, reason)| reason)
}

fn checked_olap(expr: &str) -> Result<Value, (Place, String)> {
    let query = query_body::read(expr.as_bytes())
        .map_err(|e| (place_of_json(&e, expr), format!("a JSON query is wanted: {e}")))?;
    let Some(object) = query.as_object() else {
        return Err((BEGINNING, "a JSON query is wanted: an object".to_owned()));
    };
    let fault = |path: &[&str], reason: String| Err((place_of_member(expr, path), reason));
    let measures = object.get("measures").and_then(Value::as_array).map_or(0, Vec::len);
    if measures != 1 {
        return fault(&["measures"], format!("a rule needs one measure, which is its value; there are {measures}"));
    }
    let times = object.get("timeDimensions").and_then(Value::as_array);
    for (index, time) in times.into_iter().flatten().enumerate() {
        for field in ["granularity", "compareDateRange"] {
            if time.get(field).is_some_and(|v| !v.is_null()) {
                let reason = format!("a rule has one value at a time: `timeDimensions` takes no `{field}` in it");
                return fault(&["timeDimensions", &index.to_string(), field], reason);
            }
        }
    }
    for field in ["ungrouped", "total"] {
        if object.get(field).is_some_and(|v| *v == true) {
            return fault(&[field], format!("`{field}` has no place in a rule"));
        }
    }
    Ok(query)
}

/// The place of an error of syntax, whose column counts bytes and may be 0.
fn place_of_json(error: &serde_json::Error, expr: &str) -> Place {
    let line = expr.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let before = error.column().saturating_sub(1).min(line.len());
    let column = String::from_utf8_lossy(&line.as_bytes()[..before]).chars().count() as u32 + 1;
    Place { line: error.line().max(1) as u32, column }
}

/// The place of the value of a member; if that is not in the text, of what would hold it.
fn place_of_member(expr: &str, path: &[&str]) -> Place {
    // JSON is YAML, whose reader knows the place of each value; what it refuses in JSON has the place of all.
    let Ok(Some(root)) = quiver_yaml::read_first(expr) else { return BEGINNING };
    let mut node = &root;
    for part in path {
        let inner = match &node.kind {
            NodeKind::List(items) => part.parse::<usize>().ok().and_then(|index| items.get(index)),
            _ => node.get(part),
        };
        let Some(inner) = inner else { break };
        node = inner;
    }
    node.place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsed_or_told() {
        let parse = |language, text: &str| Languages.parse(language, text).map(|p| p.canonical);
        assert_eq!(parse(Language::Promql, "sum( up )").as_deref(), Ok("sum(up)"));
        let told = parse(Language::Promql, "test +").expect_err("unfinished");
        assert_eq!((told.0, told.1.contains("unexpected end of input")), (Place { line: 1, column: 7 }, true));
        assert!(parse(Language::Logsql, "error | stats by (app) count() n").is_ok());
        assert!(parse(Language::Logsql, "error").is_err_and(|e| e.1.contains("stats")));
        assert!(
            parse(Language::Olap, r#"{"measures": ["Services.errorRate"], "dimensions": ["Services.name"]}"#).is_ok()
        );
        let check = |text: &str, part: &str| {
            let told = parse(Language::Olap, text).expect_err(text).1;
            assert!(told.contains(part), "{told}");
        };
        check("{}", "one measure");
        check("[1]", "an object");
        check("{", "JSON");
        check(r#"{"measures": ["a.b", "a.c"]}"#, "there are 2");
        check(
            r#"{"measures": ["a.b"], "timeDimensions": [{"dimension": "a.t", "granularity": "hour"}]}"#,
            "granularity",
        );
        check(r#"{"measures": ["a.b"], "ungrouped": true}"#, "ungrouped");
    }

    #[test]
    fn errors_tell_where_they_are() {
        let check = |language, text: &str, line: u32, column: u32| {
            let told = Languages.parse(language, text).expect_err(text);
            assert_eq!(told.0, Place { line, column }, "{text}: {}", told.1);
        };
        check(Language::Logsql, "error |\n  stats cuont() n", 2, 9);
        check(Language::Logsql, "error |", 1, 8);
        check(Language::Logsql, "error | limit 5", 1, 1);
        check(Language::Olap, "{\"measures\": [\"a.b\"],\n \"\u{e9}\": x}", 2, 7);
        check(Language::Olap, "{\"measures\": [\"a.b\"]\n", 2, 1);
        check(Language::Olap, "[1]", 1, 1);
        check(Language::Olap, "", 1, 1);
        check(Language::Olap, " {\"dimensions\": []}", 1, 2);
        check(Language::Olap, "{\n  \"measures\": [\"a.b\", \"a.c\"]}", 2, 15);
        let compared = "{\"measures\": [\"a.b\"],\n\"timeDimensions\": [{}, {\"granularity\": \"hour\"}]}";
        check(Language::Olap, compared, 2, 40);
        check(Language::Olap, "{\"measures\": [\"a.b\"], \"total\": true}", 1, 32);
    }

    #[test]
    fn queries_of_rules_have_one_value() {
        let check = |text: &str, expected: Result<(), &str>| {
            let read = olap_query(text);
            match expected {
                Ok(()) => assert!(read.is_ok(), "{text}: {read:?}"),
                Err(part) => assert!(read.as_ref().is_err_and(|told| told.contains(part)), "{text}: {read:?}"),
            }
        };
        check(r#"{"measures": ["a.b"]}"#, Ok(()));
        check(r#"{"measures": ["a.b"], "timeDimensions": []}"#, Ok(()));
        check(r#"{"measures": ["a.b"], "timeDimensions": [{"dimension": "a.t", "granularity": null}]}"#, Ok(()));
        check(r#"{"measures": ["a.b"], "ungrouped": false, "total": null}"#, Ok(()));
        check(r#"{"measures": []}"#, Err("there are 0"));
        check(r#"{"measures": "a.b"}"#, Err("there are 0"));
        check(r#"{"measures": ["a.b", "a.b"]}"#, Err("there are 2"));
        check(r#"{"measures": ["a.b"], "total": true}"#, Err("`total` has no place in a rule"));
        let compared = r#"{"measures": ["a.b"], "timeDimensions": [{}, {"compareDateRange": ["today", "yesterday"]}]}"#;
        check(compared, Err("`timeDimensions` takes no `compareDateRange`"));
        for text in ["", "null", "5", "\"a\"", "[]", "{\"measures\": [\"a.b\"]} x", "{measures: []}"] {
            check(text, Err("a JSON query is wanted"));
        }
    }

    #[test]
    fn expressions_are_written_in_one_way() {
        let of = |language, text: &str| Languages.parse(language, text).map(|parsed| parsed.canonical);
        for (text, canonical) in
            [("up", "up"), (" sum by (job)( rate( m[5m] ) )", "sum by (job) (rate(m[5m]))"), ("a+b", "a + b")]
        {
            let written = of(Language::Promql, text).expect(text);
            assert_eq!(of(Language::Promql, &written).as_deref(), Ok(written.as_str()), "{text}");
            assert_eq!(written, canonical, "{text}");
        }
        // Of the other languages the text is kept as it is.
        let logs = " *  | stats  count()  n ";
        assert_eq!(of(Language::Logsql, logs).as_deref(), Ok(logs));
        let olap = r#"{ "measures":["a.b"] }"#;
        assert_eq!(of(Language::Olap, olap).as_deref(), Ok(olap));
    }
}
