//! Times as PostgreSQL has them: literals without seconds, buckets that begin by the clock of a zone, intervals of numbers.

use datafusion::sql::sqlparser::ast::{
    DataType, DateTimeField, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
};
use quiver_query::with_seconds;
use quiver_types::Result;

use super::{expr, formats, literal, quoted};
use crate::parse::normal;

/// Arguments of `make_interval` in their order, each with its unit.
const PARTS: [(&str, &str); 7] = [
    ("years", "years"),
    ("months", "months"),
    ("weeks", "weeks"),
    ("days", "days"),
    ("hours", "hours"),
    ("mins", "minutes"),
    ("secs", "seconds"),
];

/// Gives the literal of a time the seconds that it goes without, and names the parts of an interval: it is cast to such a
/// type.
pub(super) fn complete(data_type: &DataType, value: &mut Value) {
    let Value::SingleQuotedString(text) = value else { return };
    let whole = match data_type {
        DataType::Timestamp(..) => with_seconds(text),
        DataType::Interval { .. } => worded(text),
        _ => None,
    };
    if let Some(whole) = whole {
        *text = whole;
    }
}

/// `1 day 02:03:04.5` as `1 day 2 hours 3 minutes 4.5 seconds`; none: it has no such part.
pub(super) fn worded(text: &str) -> Option<String> {
    let mut is_changed = false;
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| match clock(word) {
            Some(named) => {
                is_changed = true;
                named
            }
            None => word.to_owned(),
        })
        .collect();
    is_changed.then(|| words.join(" "))
}

/// Hours, minutes and maybe seconds, all of the sign before them.
fn clock(word: &str) -> Option<String> {
    let (sign, digits) = match word.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", word.strip_prefix('+').unwrap_or(word)),
    };
    let mut parts = digits.split(':');
    let (hours, minutes) = (parts.next()?, parts.next()?);
    let seconds = parts.next().unwrap_or("0");
    let is_whole = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = seconds.split_once('.').unwrap_or((seconds, "0"));
    let fits = parts.next().is_none() && [hours, minutes, whole, fraction].into_iter().all(is_whole);
    let below = |part: &str| part.parse::<u32>().is_ok_and(|number| number < 60);
    (fits && below(minutes) && below(whole))
        .then(|| format!("{sign}{hours} hours {sign}{minutes} minutes {sign}{seconds} seconds"))
}

/// Years of a part of times that the planner does not know, and how many years before 1 the first of them began: decades
/// count from the year 0, centuries from the year 1.
fn era(part: &str) -> Option<(i64, i64)> {
    Some(match part.to_lowercase().as_str() {
        "decade" | "decades" => (10, 0),
        "century" | "centuries" => (100, 99),
        "millennium" | "millenium" | "millennia" => (1000, 999),
        _ => return None,
    })
}

/// `EXTRACT(century FROM time)`; none: the planner knows the part.
pub(super) fn extract(field: &DateTimeField, time: &Expr) -> Result<Option<Expr>> {
    part_of(&field.to_string(), time)
}

/// A part of a time that is years of the calendar.
fn part_of(part: &str, time: &Expr) -> Result<Option<Expr>> {
    let Some((years, less)) = era(part) else { return Ok(None) };
    expr(&format!("((date_part('year', {time}) + {less}) / {years})")).map(Some)
}

/// The beginning of what `unit` names and a time lies in.
fn truncated(unit: &Expr, time: &str) -> String {
    match literal(unit).and_then(era) {
        Some((years, less)) => format!(
            "(date_trunc('year', {time}) - INTERVAL '1 year' * ((date_part('year', {time}) + {less}) % {years}))"
        ),
        None => format!("date_trunc({unit}, {time})"),
    }
}

/// What a function of times is for the planner; none: it knows the function, or there is none.
pub(super) fn function(name: &str, args: &[Expr]) -> Result<Option<Expr>> {
    Ok(Some(match (name, args) {
        ("localtimestamp", []) => expr("CAST(now() AS TIMESTAMP)")?,
        ("date_trunc", [unit, time, zone]) => {
            let moment = format!("CAST({time} AS TIMESTAMP WITH TIME ZONE)");
            let beginning = truncated(unit, &format!("{moment} AT TIME ZONE {zone}"));
            expr(&format!("{beginning} AT TIME ZONE 'UTC'"))?
        }
        ("date_trunc", [unit, time]) if literal(unit).is_some_and(|unit| era(unit).is_some()) => {
            expr(&truncated(unit, &format!("({time})")))?
        }
        ("date_part" | "datepart", [part, time]) => {
            let Some(part) = literal(part) else { return Ok(None) };
            return part_of(part, time);
        }
        ("make_timestamp", [year, month, day, hour, minute, second]) => expr(&format!(
            "CAST(make_date({year}, {month}, {day}) AS TIMESTAMP) + INTERVAL '1 hour' * ({hour}) \
             + INTERVAL '1 minute' * ({minute}) + INTERVAL '1 second' * ({second})"
        ))?,
        ("to_char" | "to_date" | "to_timestamp", _) => return formats::translate(name, args),
        ("age", [time]) => expr(&format!("age(CAST(current_date() AS TIMESTAMP), {time})"))?,
        _ => return Ok(None),
    }))
}

/// `make_interval(days => 3)` of constants as a literal.
pub(super) fn interval(args: &FunctionArguments) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = args else { return Ok(None) };
    let mut parts = Vec::new();
    for (at, arg) in list.args.iter().enumerate() {
        let (unit, value) = match arg {
            FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => (PARTS.get(at).map(|(_, unit)| *unit), value),
            FunctionArg::ExprNamed { name: Expr::Identifier(name), arg: FunctionArgExpr::Expr(value), .. }
            | FunctionArg::Named { name, arg: FunctionArgExpr::Expr(value), .. } => {
                let name = normal(name);
                (PARTS.iter().find(|(word, _)| *word == name).map(|(_, unit)| *unit), value)
            }
            _ => return Ok(None),
        };
        let (Some(unit), Some(number)) = (unit, constant(value)) else { return Ok(None) };
        parts.push(format!("{number} {unit}"));
    }
    if parts.is_empty() {
        parts.push("0 seconds".to_owned());
    }
    expr(&format!("INTERVAL {}", quoted(&parts.join(" ")))).map(Some)
}

/// A number as it is written.
fn constant(value: &Expr) -> Option<String> {
    match value {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => Some(number.clone()),
            _ => None,
        },
        Expr::Nested(inner) => constant(inner),
        Expr::UnaryOp { op: UnaryOperator::Minus, expr } => constant(expr).map(|number| format!("-{number}")),
        _ => None,
    }
}
