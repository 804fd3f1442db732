//! Dates, times and intervals as PostgreSQL has them: special literals, `date_trunc` in a time zone, `EXTRACT`,
//! `make_interval`.

use arrow::compute::kernels::cast_utils::parse_interval_month_day_nano;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, BinaryOperator, CastKind, DataType, DateTimeField, Expr, FunctionArg, FunctionArgExpr,
    FunctionArguments, TimezoneInfo, UnaryOperator, Value,
};
use quiver_query::durations::worded;
use quiver_query::quoting::text as quoted;
use quiver_query::time_literals::{TimeLiteralKind, era, in_form, unit_name};
use quiver_query::zone_names::zone_name;
use quiver_types::{Error, ErrorKind, Result};

use super::expressions::{bare, call, expr, literal, take, text};
use super::time_patterns;
use crate::catalog::Catalog;
use crate::error::unsupported;
use crate::names::normal;

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

/// Completes the literal of a time or an interval that is cast to such a type, so that the planner can read it.
pub(super) fn complete(data_type: &DataType, value: &mut Value) {
    let Value::SingleQuotedString(text) = value else { return };
    let is_of_day = matches!(data_type, DataType::Date | DataType::Timestamp(..));
    if let Some(before) = text.trim_end().strip_suffix(" AD").filter(|_| is_of_day) {
        *text = before.to_owned();
    }
    let whole = match data_type {
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => in_form(text, TimeLiteralKind::Zoned),
        DataType::Timestamp(..) | DataType::Datetime(_) => in_form(text, TimeLiteralKind::Reading),
        DataType::Date => in_form(text, TimeLiteralKind::Date),
        DataType::Time(..) => in_form(text, TimeLiteralKind::Time),
        DataType::Interval { .. } => worded(text),
        _ => None,
    };
    if let Some(whole) = whole {
        *text = whole;
    }
}

/// A special value cast to a date or time type: `'today'::date`; `None` if it is none.
///
/// # Errors
///
/// Unsupported: a time before our era.
pub(super) fn special(data_type: &DataType, value: &Expr) -> Result<Option<Expr>> {
    let Expr::Value(value) = value else { return Ok(None) };
    let Value::SingleQuotedString(word) = &value.value else { return Ok(None) };
    let word = word.trim().to_lowercase();
    let to = match data_type {
        DataType::Date => "DATE",
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "TIMESTAMP WITH TIME ZONE",
        DataType::Timestamp(..) => "TIMESTAMP",
        DataType::Time(..) => {
            return match word.as_str() {
                "now" => expr("CAST(now() AS TIME)").map(Some),
                "allballs" => expr("CAST('00:00:00' AS TIME)").map(Some),
                _ => Ok(None),
            };
        }
        _ => return Ok(None),
    };
    if word.ends_with(" bc") {
        return Err(unsupported(format!("times before our era are not supported: \"{word}\"")));
    }
    let moment = match word.as_str() {
        "now" => "now()",
        "today" => "date_trunc('day', now())",
        "yesterday" => "(date_trunc('day', now()) - INTERVAL '1 day')",
        "tomorrow" => "(date_trunc('day', now()) + INTERVAL '1 day')",
        "epoch" => "to_timestamp(0)",
        _ => return Ok(None),
    };
    expr(&format!("CAST({moment} AS {to})")).map(Some)
}

/// Completes the items of a list that is written out and cast (`ARRAY['today', 'Jan 5, 2024']::date[]`).
///
/// # Errors
///
/// As [`special`].
pub(super) fn complete_items(data_type: &DataType, list: &mut Expr) -> Result<()> {
    let (DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)), Expr::Array(list)) = (data_type, list) else {
        return Ok(());
    };
    for value in &mut list.elem {
        if let Some(found) = special(item, value)? {
            *value = found;
        } else if let Expr::Value(value) = value {
            complete(item, &mut value.value);
        }
    }
    Ok(())
}

/// The unit of the last digit of seconds by number of digits, and half of it. More digits are not rounded.
const DIGITS: [(&str, &str); 6] = [
    ("1", "0.5"),
    ("0.1", "0.05"),
    ("0.01", "0.005"),
    ("0.001", "0.0005"),
    ("0.0001", "0.00005"),
    ("0.00001", "0.000005"),
];

/// A cast to a time type with a precision (`timestamp(0)`); `None` if the type has none.
pub(super) fn rounded(data_type: &DataType, value: &Expr) -> Result<Option<Expr>> {
    let (digits, plain) = match data_type {
        DataType::Timestamp(Some(digits), zone) => (*digits, DataType::Timestamp(None, *zone)),
        DataType::Time(Some(digits), zone) => (*digits, DataType::Time(None, *zone)),
        _ => return Ok(None),
    };
    let cast = format!("CAST({value} AS {plain})");
    let Some((_, (unit, half))) = (0..).zip(DIGITS).find(|(known, _)| *known == digits) else {
        return expr(&cast).map(Some);
    };
    let (unit, half) = (format!("INTERVAL '{unit} seconds'"), format!("INTERVAL '{half} seconds'"));
    // Only timestamps can be put in buckets.
    let sql = if matches!(plain, DataType::Time(..)) {
        format!("CAST(date_bin({unit}, DATE '1970-01-01' + {cast} + {half}) AS {plain})")
    } else {
        format!("date_bin({unit}, {cast} + {half})")
    };
    expr(&sql).map(Some)
}

/// `EXTRACT(century FROM time)`; `None` if the planner knows the field.
pub(super) fn extract(field: &DateTimeField, time: &Expr) -> Result<Option<Expr>> {
    part_of(&field.to_string(), time)
}

/// Fields of the calendar that the planner does not know, and seconds and milliseconds, which have a fraction.
fn part_of(part: &str, time: &Expr) -> Result<Option<Expr>> {
    let part = part.to_lowercase();
    if is_length(time) && (part == "julian" || part.starts_with("timezone")) {
        let text = format!("unit \"{part}\" not supported for type interval");
        return Err(Error::new(ErrorKind::Unsupported, text));
    }
    match unit_name(&part).unwrap_or(part.as_str()) {
        "second" => return expr(&format!("(date_part('microsecond', {time}) / 1000000.0)")).map(Some),
        "millisecond" => return expr(&format!("(date_part('microsecond', {time}) / 1000.0)")).map(Some),
        "microsecond" => return expr(&format!("date_part('microsecond', {time})")).map(Some),
        // Timestamps are shown in UTC.
        "timezone" | "timezone_hour" | "timezone_minute" => {
            return expr(&format!("CASE WHEN ({time}) IS NOT NULL THEN 0 END")).map(Some);
        }
        "julian" => return expr(&format!("(date_part('epoch', {time}) / 86400 + 2440588)")).map(Some),
        _ => {}
    }
    if era(&part).is_none() {
        return Ok(None);
    }
    // What it is depends on the type of the value, which the plan says.
    expr(&format!("date_part('{part}', {time})")).map(Some)
}

/// A time or an interval truncated to a unit.
fn truncated(unit: &Expr, value: Expr) -> Expr {
    let unit = literal(unit).and_then(unit_name).map_or_else(|| unit.clone(), text);
    call("date_trunc", vec![unit, value])
}

/// Casts columns to dates that are dates in every table that has them.
pub(super) fn dated(args: &mut [Expr], catalog: &Catalog) {
    for arg in args.iter_mut().skip(1) {
        if catalog.is_column_of(arg, |kind| matches!(kind, arrow::datatypes::DataType::Date32)) {
            let expr = Box::new(take(arg));
            *arg = Expr::Cast { kind: CastKind::Cast, expr, data_type: DataType::Date, array: false, format: None };
        }
    }
}

/// Whether the statement itself shows that a value is a date.
pub(super) fn is_date(time: &Expr) -> bool {
    match time {
        // A date plus or minus days.
        Expr::BinaryOp { left, op: BinaryOperator::Plus | BinaryOperator::Minus, right } => {
            is_date(left) && constant(right).is_some()
        }
        Expr::Nested(inner) => is_date(inner),
        Expr::Cast { data_type, .. } => *data_type == DataType::Date,
        Expr::TypedString(typed) => typed.data_type == DataType::Date,
        Expr::Function(call) => bare(&call.name).is_some_and(|name| name == "current_date"),
        _ => false,
    }
}

/// Whether the statement itself shows that a value is an interval.
fn is_length(value: &Expr) -> bool {
    let is_interval = |data_type: &DataType| matches!(data_type, DataType::Interval { .. });
    match value {
        Expr::Nested(inner) => is_length(inner),
        Expr::Interval(_) => true,
        Expr::Cast { data_type, .. } => is_interval(data_type),
        Expr::TypedString(typed) => is_interval(&typed.data_type),
        _ => false,
    }
}

/// Whether the statement itself shows that a value is a timestamp without time zone, such as a date plus an interval.
pub(super) fn is_reading(time: &Expr) -> bool {
    let is_plain = |data_type: &DataType| {
        matches!(data_type, DataType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone))
    };
    match time {
        Expr::BinaryOp { left, op: BinaryOperator::Plus | BinaryOperator::Minus, right } => {
            is_reading(left) || (is_date(left) && constant(right).is_none())
        }
        Expr::Nested(inner) => is_reading(inner),
        Expr::Cast { data_type, .. } => is_plain(data_type),
        Expr::TypedString(typed) => is_plain(&typed.data_type),
        _ => false,
    }
}

/// A call of a function of times for the planner; `None` if it knows the function, or there is no such function.
pub(super) fn function(name: &str, args: &[Expr]) -> Result<Option<Expr>> {
    Ok(Some(match (name, args) {
        ("localtime", []) => expr("CAST(now() AS TIME)")?,
        ("localtimestamp", []) => expr("CAST(now() AS TIMESTAMP)")?,
        ("current_timestamp" | "localtime" | "localtimestamp", [digits]) => {
            let Some(digits) = constant(digits).and_then(|digits| digits.parse().ok()) else { return Ok(None) };
            let data_type = match name {
                "current_timestamp" => DataType::Timestamp(Some(digits), TimezoneInfo::WithTimeZone),
                "localtime" => DataType::Time(Some(digits), TimezoneInfo::None),
                _ => DataType::Timestamp(Some(digits), TimezoneInfo::None),
            };
            return rounded(&data_type, &expr("now()")?);
        }
        ("clock_timestamp" | "statement_timestamp" | "transaction_timestamp", []) => expr("now()")?,
        // There are no infinite times here.
        ("isfinite", [time]) => expr(&format!("CASE WHEN ({time}) IS NOT NULL THEN true END"))?,
        ("timezone", [zone, time]) => call("at_time_zone", vec![time.clone(), zone.clone()]),
        ("date_trunc", [unit, time, zone]) => {
            let zone = literal(zone).and_then(zone_name).map_or_else(|| zone.clone(), |known| text(&known));
            let shown = expr(&format!("CAST({time} AS TIMESTAMP WITH TIME ZONE) AT TIME ZONE {zone}"))?;
            expr(&format!("{} AT TIME ZONE 'UTC'", truncated(unit, shown)))?
        }
        ("date_bin", [stride, ..]) => return stride_fault(stride).map_or(Ok(None), Err),
        // `date_trunc` of a date is a timestamp.
        ("date_trunc", [unit, time]) if is_date(time) => {
            truncated(unit, expr(&format!("CAST({time} AS TIMESTAMP WITH TIME ZONE)"))?)
        }
        ("date_trunc", [unit, value]) if literal(unit).is_some_and(|unit| unit_name(unit).is_some()) => {
            truncated(unit, value.clone())
        }
        ("date_part" | "datepart", [part, time]) => {
            // Each row may ask for another field.
            let Some(part) = literal(part) else { return Ok(Some(call("time_part", args.to_vec()))) };
            // The planner expects the field as an untyped literal; a parameter is a cast.
            part_of(part, time)?.unwrap_or_else(|| call("date_part", vec![text(part), time.clone()]))
        }
        ("make_timestamp" | "make_timestamptz", [year, month, day, hour, minute, second, zone @ ..]) => {
            let time = format!(
                "(CAST(make_date({year}, {month}, {day}) AS TIMESTAMP) + time_of_day({hour}, {minute}, {second}))"
            );
            match (name, zone) {
                ("make_timestamp", []) => expr(&time)?,
                ("make_timestamptz", []) => expr(&format!("CAST({time} AS TIMESTAMP WITH TIME ZONE)"))?,
                ("make_timestamptz", [zone]) => call("at_time_zone", vec![expr(&time)?, zone.clone()]),
                _ => return Ok(None),
            }
        }
        ("to_timestamp", [seconds]) if !is_exact(seconds) => {
            call("to_timestamp", vec![call("exact_seconds", vec![seconds.clone()])])
        }
        ("to_char" | "to_date" | "to_number" | "to_timestamp", _) => return time_patterns::translate(name, args),
        // Base 10: with one argument, the planner would divide two logarithms.
        ("log", [number]) => call("log10", vec![number.clone()]),
        // A cast written as a function call.
        ("date", [time]) => expr(&format!("CAST({time} AS DATE)"))?,
        ("age", [time]) => expr(&format!("age(CAST(current_date() AS TIMESTAMP), {time})"))?,
        _ => return Ok(None),
    }))
}

/// What is wrong with a length of buckets that is written out: those of months have no length, and there is none of nothing.
fn stride_fault(stride: &Expr) -> Option<Error> {
    let written = match stride {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => return stride_fault(inner),
        Expr::Interval(interval) => literal(&interval.value)?.to_owned(),
        Expr::TypedString(typed) => literal(&Expr::Value(typed.value.clone()))?.to_owned(),
        other => literal(other)?.to_owned(),
    };
    let read = parse_interval_month_day_nano(&worded(&written).unwrap_or(written)).ok()?;
    if read.months != 0 {
        return Some(unsupported("timestamps cannot be binned into intervals containing months or years"));
    }
    let length = i128::from(read.days) * 86_400_000_000_000 + i128::from(read.nanoseconds);
    (length <= 0).then(|| Error::invalid("DATE_BIN stride must be greater than zero"))
}

/// Whether seconds are exact: an integer, or a text.
fn is_exact(seconds: &Expr) -> bool {
    let Expr::Value(value) = seconds else { return false };
    match &value.value {
        Value::Number(text, _) => text.bytes().all(|byte| byte.is_ascii_digit()),
        _ => true,
    }
}

/// `make_interval(days => 3)` of constants as a literal, of other values as a sum of multiples of unit intervals.
pub(super) fn interval(args: &FunctionArguments) -> Result<Option<Expr>> {
    let FunctionArguments::List(list) = args else { return Ok(None) };
    let (mut parts, mut others) = (Vec::new(), Vec::new());
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
        let Some(unit) = unit else { return Ok(None) };
        match constant(value) {
            Some(number) => parts.push(format!("{number} {unit}")),
            None => others.push(format!("INTERVAL '1 {unit}' * ({value})")),
        }
    }
    if !others.is_empty() {
        others.extend(parts.iter().map(|part| format!("INTERVAL {}", quoted(part))));
        return expr(&format!("({})", others.join(" + "))).map(Some);
    }
    if parts.is_empty() {
        parts.push("0 seconds".to_owned());
    }
    expr(&format!("INTERVAL {}", quoted(&parts.join(" ")))).map(Some)
}

/// The text of a numeric literal.
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
