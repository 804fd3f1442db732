//! Times as PostgreSQL has them: literals without seconds, buckets that begin by the clock of a zone, intervals of numbers.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
};
use quiver_query::with_seconds;
use quiver_types::Result;

use super::{expr, formats, quoted};
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

/// Gives the literal of a time the seconds that it goes without: it is cast to a type of times.
pub(super) fn complete(data_type: &DataType, value: &mut Value) {
    if let (DataType::Timestamp(..), Value::SingleQuotedString(text)) = (data_type, value)
        && let Some(whole) = with_seconds(text)
    {
        *text = whole;
    }
}

/// What a function of times is for the planner; none: it knows the function, or there is none.
pub(super) fn function(name: &str, args: &[Expr]) -> Result<Option<Expr>> {
    Ok(Some(match (name, args) {
        ("localtimestamp", []) => expr("CAST(now() AS TIMESTAMP)")?,
        ("date_trunc", [unit, time, zone]) => {
            let moment = format!("CAST({time} AS TIMESTAMP WITH TIME ZONE)");
            expr(&format!("date_trunc({unit}, {moment} AT TIME ZONE {zone}) AT TIME ZONE 'UTC'"))?
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
