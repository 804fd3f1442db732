//! Times as PostgreSQL has them: literals without seconds, buckets that begin by the clock of a zone, intervals of numbers.

use datafusion::sql::sqlparser::ast::{
    DataType, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
};
use quiver_types::Result;

use super::{expr, quoted};
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

/// `2024-01-01 05:00`, maybe with a zone behind it, as `2024-01-01 05:00:00`.
fn with_seconds(text: &str) -> Option<String> {
    const FORM: &[u8] = b"0000-00-00 00:00";
    let (minutes, zone) = (text.get(..FORM.len())?, text.get(FORM.len()..)?);
    let fits = minutes.bytes().zip(FORM).all(|(byte, form)| match form {
        b'0' => byte.is_ascii_digit(),
        b' ' => matches!(byte, b' ' | b'T'),
        other => byte == *other,
    });
    let ends = zone.is_empty() || zone.starts_with(['Z', '+', '-', ' ']);
    (fits && ends).then(|| format!("{minutes}:00{zone}"))
}

/// What a function of times is for the planner; none: it knows the function, or there is none.
pub(super) fn function(name: &str, args: &[Expr]) -> Result<Option<Expr>> {
    Ok(Some(match (name, args) {
        ("localtimestamp", []) => expr("CAST(now() AS TIMESTAMP)")?,
        ("date_trunc", [unit, time, zone]) => {
            let moment = format!("CAST({time} AS TIMESTAMP WITH TIME ZONE)");
            expr(&format!("date_trunc({unit}, {moment} AT TIME ZONE {zone}) AT TIME ZONE 'UTC'"))?
        }
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

#[cfg(test)]
mod tests {
    use super::with_seconds;

    #[test]
    fn seconds_are_added_where_there_are_none() {
        for (text, expected) in [
            ("2024-01-01 05:00", Some("2024-01-01 05:00:00")),
            ("2024-01-01T05:00Z", Some("2024-01-01T05:00:00Z")),
            ("2024-01-01 05:00+02", Some("2024-01-01 05:00:00+02")),
            ("2024-01-01 05:00:10", None),
            ("2024-01-01", None),
            ("yesterday at 05:00", None),
        ] {
            assert_eq!(with_seconds(text).as_deref(), expected, "{text}");
        }
    }
}
