//! Converts conditions to LogsQL filters, so that the logs engine evaluates them below the query.

use std::sync::Arc;

use quiver_types::condition::{Case, Condition, ConditionMatcher, FieldName, Test, Visitor};
use quiver_types::logs::{FieldPattern, LogFilter, quote_into};

/// Writes a condition as LogsQL text.
pub(crate) fn text_of(condition: &Condition) -> String {
    condition.visit(&mut Writer)
}

/// Converts a condition for scans without LogsQL above them.
pub(crate) fn rows_of(condition: &Condition) -> LogFilter {
    condition.visit(&mut Rows)
}

/// Fields with the severity of a record: the first existing one counts, as at ingestion.
const SEVERITY: [&str; 3] = ["severity", "severity_text", "level"];

/// The fields of a record that a name stands for.
fn names_of(field: &FieldName) -> Vec<&str> {
    match field {
        FieldName::Intrinsic("severity") => SEVERITY.to_vec(),
        FieldName::Intrinsic(name) => vec![*name],
        FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key) => vec![key.as_str()],
    }
}

/// The positive form of a test, and whether it is negated.
fn positive(test: &Test) -> (Test, bool) {
    match test {
        Test::NotIn(none, case) => (Test::In(none.clone(), *case), true),
        Test::Exists(there) => (Test::Exists(true), !there),
        other => (other.clone(), false),
    }
}

struct Rows;

impl Visitor<LogFilter> for Rows {
    fn all(&mut self, parts: Vec<LogFilter>) -> LogFilter {
        LogFilter::And(parts)
    }

    fn any(&mut self, parts: Vec<LogFilter>) -> LogFilter {
        LogFilter::Or(parts)
    }

    fn not(&mut self, part: LogFilter) -> LogFilter {
        LogFilter::Not(Box::new(part))
    }

    fn test(&mut self, field: &FieldName, test: &Test) -> LogFilter {
        let (asked, negative) = positive(test);
        let of = |name: &str, test: &Test| LogFilter::Value {
            field: FieldPattern::Name(name.to_owned()),
            matcher: Arc::new(ConditionMatcher(test.clone())),
        };
        let mut names = names_of(field).into_iter().rev();
        let last = names.next().map_or_else(|| LogFilter::Or(Vec::new()), |name| of(name, &asked));
        let filter = names.fold(last, |behind, name| {
            let lacks = LogFilter::Not(Box::new(of(name, &Test::Exists(true))));
            LogFilter::Or(vec![of(name, &asked), LogFilter::And(vec![lacks, behind])])
        });
        if negative { LogFilter::Not(Box::new(filter)) } else { filter }
    }
}

struct Writer;

fn quoted(text: &str) -> String {
    let mut out = String::new();
    quote_into(text, &mut out);
    out
}

fn found(field: &str, pattern: &str) -> String {
    // Requires the field to exist, since the pattern may match the empty string.
    format!("({field}:* {field}:~{})", quoted(pattern))
}

fn escaped(text: &str, case: Case) -> String {
    format!("{}{}", case.flag(), regex::escape(text))
}

impl Visitor<String> for Writer {
    fn all(&mut self, parts: Vec<String>) -> String {
        format!("({})", parts.join(" and "))
    }

    fn any(&mut self, parts: Vec<String>) -> String {
        format!("({})", parts.join(" or "))
    }

    fn not(&mut self, part: String) -> String {
        format!("!({part})")
    }

    fn test(&mut self, field: &FieldName, test: &Test) -> String {
        let (asked, negative) = positive(test);
        let mut names = names_of(field).into_iter().rev().map(quoted);
        let last = names.next().map_or_else(|| "!*".to_owned(), |name| asks(&name, &asked));
        let text = names.fold(last, |behind, name| format!("({} or (!({name}:*) and {behind}))", asks(&name, &asked)));
        if negative { format!("!({text})") } else { text }
    }
}

/// Writes a test of a field; `field` is quoted already.
fn asks(field: &str, test: &Test) -> String {
    match test {
        Test::In(any, case) => one_of(field, any.iter().map(|o| o.text.as_str()), *case),
        Test::NotIn(none, case) => format!("!({})", one_of(field, none.iter().map(|o| o.text.as_str()), *case)),
        Test::Contains(part, case) => found(field, &escaped(part, *case)),
        Test::Starts(part, case) => found(field, &format!("^(?:{})", escaped(part, *case))),
        Test::Ends(part, case) => found(field, &format!("(?:{})$", escaped(part, *case))),
        Test::Glob(glob) => found(field, glob.regex().as_str()),
        Test::Regex(regex) => found(field, regex.as_str()),
        Test::Exists(true) => format!("{field}:*"),
        Test::Exists(false) => format!("!({field}:*)"),
        Test::Within(low, high) => {
            let bound = |sign: &str, (operand, itself): &(quiver_types::condition::Operand, bool)| {
                format!("{field}:{sign}{}{}", if *itself { "=" } else { "" }, quoted(&operand.text))
            };
            let parts: Vec<String> =
                low.iter().map(|b| bound(">", b)).chain(high.iter().map(|b| bound("<", b))).collect();
            format!("({field}:* {})", parts.join(" "))
        }
    }
}

fn one_of<'a>(field: &str, values: impl Iterator<Item = &'a str>, case: Case) -> String {
    let each = values.map(|value| match case {
        Case::Insensitive => found(field, &format!("(?i)^(?:{})$", regex::escape(value))),
        Case::Sensitive => format!("{field}:={}", quoted(value)),
    });
    let parts: Vec<String> = each.collect();
    if parts.is_empty() { "!*".to_owned() } else { format!("({})", parts.join(" or ")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn filters() {
        let check = |condition: serde_json::Value, expected: &str| {
            let text = text_of(&Condition::parse(&condition).unwrap());
            assert_eq!(text, expected, "{condition}");
            quiver_logsql::request_params::extra_filter(&text, &mut quiver_logsql::Regexps::default())
                .unwrap_or_else(|e| panic!("{text}: {e}"));
        };
        let leaf = |op: &str, value: serde_json::Value| json!({"field": "a.b", "op": op, "value": value});
        check(leaf("eq", json!("x \"y\"")), r#"("a.b":="x \"y\"")"#);
        check(leaf("ne", json!("x")), r#"!(("a.b":="x"))"#);
        check(leaf("in", json!(["x", 1])), r#"("a.b":="x" or "a.b":="1")"#);
        check(leaf("contains", json!("x.y")), r#"("a.b":* "a.b":~"x\\.y")"#);
        check(leaf("between", json!([1, 2])), r#"("a.b":* "a.b":>="1" "a.b":<="2")"#);
        check(leaf("exists", json!(false)), r#"!("a.b":*)"#);
        let folded = |op: &str| json!({"field": "a", "op": op, "value": "x", "caseSensitive": false});
        check(folded("regex"), r#"("a":* "a":~"(?i)x")"#);
        check(folded("glob"), r#"("a":* "a":~"(?is)^x$")"#);
        check(
            json!({"any": [leaf("eq", json!("x")), {"not": leaf("regex", json!("y"))}]}),
            r#"(("a.b":="x") or !(("a.b":* "a.b":~"y")))"#,
        );
        let severity = |op: &str| json!({"field": "severity", "op": op, "value": "error"});
        let first = r#"(("severity":="error") or (!("severity":*) and (("severity_text":="error") or (!("severity_text":*) and ("level":="error")))))"#;
        check(severity("eq"), first);
        check(severity("ne"), &format!("!({first})"));
        for op in ["startsWith", "endsWith", "glob", "gt", "lt"] {
            let text = text_of(&Condition::parse(&leaf(op, json!("7"))).unwrap());
            quiver_logsql::request_params::extra_filter(&text, &mut quiver_logsql::Regexps::default())
                .unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }

    /// Evaluates a filter on one row according to its definition.
    fn holds(filter: &LogFilter, row: &[(&str, &str)]) -> bool {
        match filter {
            LogFilter::And(all) => all.iter().all(|one| holds(one, row)),
            LogFilter::Or(any) => any.iter().any(|one| holds(one, row)),
            LogFilter::Not(one) => !holds(one, row),
            LogFilter::Value { field: FieldPattern::Name(name), matcher } => {
                matcher.matches(row.iter().find(|(own, _)| own == name).map_or("", |(_, value)| *value))
            }
            other => panic!("{other:?}"),
        }
    }

    struct Record<'a>(&'a [(&'a str, &'a str)]);

    impl quiver_types::condition::Fields for Record<'_> {
        fn get(&self, name: &FieldName) -> Option<std::borrow::Cow<'_, str>> {
            let value = |name: &str| self.0.iter().find(|(own, value)| *own == name && !value.is_empty());
            // An empty field counts as missing.
            let found = names_of(name).into_iter().find_map(value);
            found.map(|(_, value)| (*value).into())
        }
    }

    /// Scans without LogsQL return the rows that the condition selects.
    #[test]
    fn rows_are_those_of_the_condition() {
        let leaf = |field: &str, op: &str, value: serde_json::Value| json!({"field": field, "op": op, "value": value});
        let leaves = [
            leaf("a", "eq", json!("x")),
            leaf("a", "ne", json!("x")),
            leaf("a", "in", json!(["x", 5])),
            leaf("a", "contains", json!("y")),
            leaf("a", "startsWith", json!("x")),
            leaf("a", "endsWith", json!("y")),
            leaf("a", "regex", json!("^x.?$")),
            leaf("a", "glob", json!("x*")),
            leaf("a", "exists", json!(true)),
            leaf("a", "exists", json!(false)),
            leaf("a", "between", json!([1, 5])),
            leaf("a", "gt", json!(5)),
            leaf("severity", "eq", json!("error")),
            leaf("severity", "ne", json!("error")),
            leaf("severity", "exists", json!(false)),
            json!({"field": "a", "op": "contains", "value": "Y", "caseSensitive": false}),
        ];
        let mut conditions = leaves.to_vec();
        for (one, other) in leaves.iter().zip(leaves.iter().rev()) {
            conditions.push(json!({"all": [one, {"not": other}]}));
            conditions.push(json!({"any": [{"not": one}, other]}));
            conditions.push(json!({"not": {"any": [one, other]}}));
        }
        let rows: [&[(&str, &str)]; 10] = [
            &[],
            &[("a", "")],
            &[("a", "x")],
            &[("a", "xy"), ("level", "error")],
            &[("a", "5"), ("severity", "info"), ("level", "error")],
            &[("a", "5.0"), ("severity_text", "error")],
            &[("a", "6"), ("severity", ""), ("severity_text", "warn"), ("level", "error")],
            &[("a", "zY"), ("severity", "error")],
            &[("A", "x")],
            &[("a", "x\ny"), ("level", "warn")],
        ];
        for condition in conditions {
            let compiled = Condition::parse(&condition).unwrap();
            let filter = rows_of(&compiled);
            for row in rows {
                assert_eq!(holds(&filter, row), compiled.matches(&Record(row)), "{condition} over {row:?}");
            }
            // Its text can be parsed.
            let text = text_of(&compiled);
            quiver_logsql::request_params::extra_filter(&text, &mut quiver_logsql::Regexps::default())
                .unwrap_or_else(|e| panic!("{text}: {e}"));
        }
    }

    #[test]
    fn names_in_quotes() {
        for (name, expected) in [("a", "\"a\""), ("a.b-c", "\"a.b-c\""), ("a \"b\"", r#""a \"b\"""#), ("ä", "\"ä\"")]
        {
            assert_eq!(quoted(name), expected);
        }
        let shown =
            |field: &str| text_of(&Condition::parse(&json!({"field": field, "op": "exists", "value": true})).unwrap());
        // Wherever a key is in telemetry, a log record has it as one field.
        assert_eq!(shown("resource.host"), "\"host\":*");
        assert_eq!(shown("attributes.host"), "\"host\":*");
        assert_eq!(shown("host"), "\"host\":*");
        assert_eq!(shown("_msg"), "\"_msg\":*");
        assert_eq!(one_of("\"a\"", std::iter::empty(), Case::Sensitive), "!*");
    }
}
