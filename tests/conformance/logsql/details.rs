//! The parts into which filters are parsed.

use std::path::Path;

use quiver_logsql::ast::{CompareOp, FieldPattern, Filter, RangeBound, Test, TimeFilter, TimePoint, Values};
use quiver_logsql::{fuzz, parse_filter};
use serde_json::Value;

use super::{Suite, Verdict, read, text};

/// The suite of this file.
pub(crate) fn suite(folder: &Path) -> Suite<'static> {
    Suite { name: "parse_details", cases: read(&folder.join("upstream/parse_details.jsonl")), run: Box::new(run) }
}

fn run(case: &Value) -> Verdict {
    let test = text(case, "test");
    match check(test, &case["args"]) {
        Ok(true) => Verdict::Passed,
        Ok(false) => Verdict::Failed(format!("{test} is not known here")),
        Err(e) => Verdict::Failed(format!("{test} {}: {e}", case["args"])),
    }
}

/// `Ok(false)`: no such table is known.
fn check(test: &str, args: &Value) -> Result<bool, String> {
    let s = text(args, "s");
    let time = |start: &str| match filter(&format!("_time:{start}{s}"))? {
        Filter::Time(time) => Ok(time),
        other => Err(format!("`{other}` is no time filter")),
    };
    match test {
        "TestLexer" => {
            let found = fuzz::tokens(s).map_err(|e| e.to_string())?;
            same(&found, &texts(&args["tokensExpected"]))?;
        }
        "TestParseDayRange" => match time("day_range")? {
            TimeFilter::DayRange { start_ns, end_ns, offset_ns, .. } => {
                let wanted = ["startExpected", "endExpected", "offsetExpected"].map(|name| int(&args[name]));
                same(&[start_ns, end_ns, offset_ns], &wanted)?;
            }
            other => return Err(format!("read as {other:?}")),
        },
        "TestParseWeekRange" => match time("week_range")? {
            TimeFilter::WeekRange { first_day, last_day, offset_ns, .. } => {
                let wanted = ["startDayExpected", "endDayExpected", "offsetExpected"].map(|name| int(&args[name]));
                same(&[i64::from(first_day), i64::from(last_day), offset_ns], &wanted)?;
            }
            other => return Err(format!("read as {other:?}")),
        },
        "TestParseTimeDuration" => match time("")? {
            TimeFilter::Range { start: TimePoint::Now(start), end: TimePoint::Now(0), .. } => {
                same(&-start, &int(&args["durationExpected"]))?;
            }
            other => return Err(format!("read as {other:?}")),
        },
        "TestParseTimeRange" => match time("")? {
            TimeFilter::Range { start, end, offset_ns, .. } => {
                // An open side stays open, offset or not.
                let moved = |moment: TimePoint| match moment.at(0) {
                    ns @ (i64::MIN | i64::MAX) => i128::from(ns),
                    ns => i128::from(ns) - i128::from(offset_ns),
                };
                let wanted = |name: &str| {
                    let Some(ns) = args[name].as_i64().map(i128::from) else {
                        return i128::from(if float(&args[name]) < 0.0 { i64::MIN } else { i64::MAX });
                    };
                    let open = [i64::MIN, i64::MAX].map(i128::from);
                    open.into_iter().find(|end| *end - i128::from(offset_ns) == ns).unwrap_or(ns)
                };
                same(&[moved(start), moved(end)], &[wanted("minTimestampExpected"), wanted("maxTimestampExpected")])?;
            }
            other => return Err(format!("read as {other:?}")),
        },
        _ => return of_field(test, s, args),
    }
    Ok(true)
}

fn of_field(test: &str, s: &str, args: &Value) -> Result<bool, String> {
    let written = if test == "TestParseFilterRegexp" { format!("~{s}") } else { s.to_owned() };
    let (field, found) = match filter(&written)? {
        Filter::Field { field, test } => (field, test),
        // Every row: what a prefix of nothing over no field in particular is in the reference.
        Filter::All => (FieldPattern::Name(String::new()), Test::Prefix(String::new())),
        other => return Err(format!("`{other}` is no test of a field")),
    };
    if let Some(name) = args["fieldNameExpected"].as_str() {
        same(&field.name(), &Some(name))?;
    }
    let unlike = |found: &Test| Err(format!("read as {found:?}"));
    let one = |found: &str, name: &str| same(&found, &text(args, name));
    match (test, &found) {
        ("TestParseFilterSequence", Test::Sequence(phrases)) => same(phrases, &texts(&args["phrasesExpected"]))?,
        ("TestParseFilterIn", Test::In(values))
        | ("TestParseFilterContainsAll", Test::ContainsAll(values))
        | ("TestParseFilterContainsAny", Test::ContainsAny(values)) => match values {
            Values::List(values) => same(values, &texts(&args["valuesExpected"]))?,
            Values::Subquery(_) => same(&Value::Null, &args["valuesExpected"])?,
        },
        ("TestParseFilterIPv4Range", Test::Ipv4Range { min, max }) => {
            let wanted = ["minValueExpected", "maxValueExpected"].map(|name| int(&args[name]));
            same(&[i64::from(*min), i64::from(*max)], &wanted)?;
        }
        ("TestParseFilterStringRange", Test::TextCompare { op: CompareOp::Lt, value }) => {
            one("", "minValueExpected")?;
            one(value, "maxValueExpected")?;
        }
        ("TestParseFilterStringRange", Test::TextCompare { op: CompareOp::Le, value }) => {
            one("", "minValueExpected")?;
            one(&format!("{value}\0"), "maxValueExpected")?;
        }
        ("TestParseFilterStringRange", Test::TextCompare { op: CompareOp::Ge, value }) => {
            one(value, "minValueExpected")?;
        }
        ("TestParseFilterStringRange", Test::TextCompare { op: CompareOp::Gt, value }) => {
            one(&format!("{value}\0"), "minValueExpected")?;
        }
        ("TestParseFilterStringRange", Test::StringRange { min, max }) => {
            one(min, "minValueExpected")?;
            one(max, "maxValueExpected")?;
        }
        ("TestParseFilterValueType", Test::ValueType(name)) => one(name, "valueTypeExpected")?,
        ("TestParseFilterRegexp", Test::Regexp(expression)) => one(expression, "reExpected")?,
        ("TestParseAnyCaseFilterPhrase", Test::AnyCasePhrase(phrase))
        | ("TestParseFilterPhrase", Test::Phrase(phrase)) => {
            one(phrase, "phraseExpected")?;
        }
        ("TestParseAnyCaseFilterPrefix", Test::AnyCasePrefix(prefix))
        | ("TestParseFilterPrefix", Test::Prefix(prefix)) => {
            one(prefix, "prefixExpected")?;
        }
        ("TestParseRangeFilter", Test::Range { min, max, .. }) => {
            let bounds = [
                match *min {
                    RangeBound::Included(value) => value,
                    RangeBound::Excluded(value) => value.next_up(),
                },
                match *max {
                    RangeBound::Included(value) => value,
                    RangeBound::Excluded(value) => value.next_down(),
                },
            ];
            let wanted = ["minValueExpected", "maxValueExpected"].map(|name| float(&args[name]));
            // Numbers of the tables are read to the last digit but one.
            let near = |a: f64, b: f64| a == b || a.next_up() == b || a.next_down() == b;
            if !near(bounds[0], wanted[0]) || !near(bounds[1], wanted[1]) {
                return Err(format!("{bounds:?} instead of {wanted:?}"));
            }
        }
        (
            "TestParseFilterSequence"
            | "TestParseFilterIn"
            | "TestParseFilterContainsAll"
            | "TestParseFilterContainsAny"
            | "TestParseFilterIPv4Range"
            | "TestParseFilterStringRange"
            | "TestParseFilterValueType"
            | "TestParseFilterRegexp"
            | "TestParseAnyCaseFilterPhrase"
            | "TestParseFilterPhrase"
            | "TestParseAnyCaseFilterPrefix"
            | "TestParseFilterPrefix"
            | "TestParseRangeFilter",
            found,
        ) => return unlike(found),
        _ => return Ok(false),
    }
    Ok(true)
}

fn filter(text: &str) -> Result<Filter, String> {
    parse_filter(text).map_err(|e| e.to_string())?.ok_or_else(|| "read as no filter".to_owned())
}

fn same<T: PartialEq + std::fmt::Debug>(found: &T, wanted: &T) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{found:?} instead of {wanted:?}")) }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(|v| v.as_str().unwrap_or_default().to_owned()).collect()
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn float(value: &Value) -> f64 {
    value.as_f64().or_else(|| value.as_str()?.parse().ok()).unwrap_or(f64::NAN)
}
