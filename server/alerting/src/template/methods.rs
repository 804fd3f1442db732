//! Methods of values.

use chrono::{Datelike, Timelike};
use quiver_types::time::calendar::WEEKDAY_NAMES;
use quiver_types::time::duration::format_go;

use super::builtins::{joined, texts_of};
use super::execution::Call;
use super::time::Time;
use super::value::{ListKind, MapKind, Value, pairs};
use super::{Param, month_name};

type Outcome = Result<Value, String>;

/// A method of a value.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) params: &'static [Param],
    pub(super) call: fn(&mut Call<'_, '_>, &Value, &[Value]) -> Outcome,
}

const fn method(name: &'static str, call: fn(&mut Call<'_, '_>, &Value, &[Value]) -> Outcome) -> Method {
    Method { name, params: &[], call }
}

const fn method_of(
    name: &'static str,
    params: &'static [Param],
    call: fn(&mut Call<'_, '_>, &Value, &[Value]) -> Outcome,
) -> Method {
    Method { name, params, call }
}

/// Finds a method of a value by name.
pub(super) fn find(value: &Value, name: &str) -> Option<&'static Method> {
    let methods: &'static [Method] = match value {
        Value::Time(_) => TIME,
        Value::Duration(_) => DURATION,
        Value::Named(..) => NAMED,
        Value::Map(map) if map.kind == MapKind::Labels => LABELS,
        Value::List(list) => match list.kind {
            ListKind::Pairs => PAIRS,
            ListKind::Strings => STRINGS,
            ListKind::Alerts => ALERTS,
            _ => return None,
        },
        _ => return None,
    };
    methods.iter().find(|m| m.name == name)
}

fn pairs_of(value: &Value) -> Vec<Value> {
    match value {
        Value::Map(map) => pairs(map),
        Value::List(list) => list.items.clone(),
        _ => Vec::new(),
    }
}

/// The names (0) or values (1) of pairs.
fn column(value: &Value, idx: usize) -> Value {
    let items = pairs_of(value).into_iter().filter_map(|pair| match &pair {
        Value::Struct(fields) => fields.fields.get(idx).map(|f| f.2.clone()),
        _ => None,
    });
    Value::list(ListKind::Strings, items.collect())
}

static LABELS: &[Method] = &[
    method("SortedPairs", |_, value, _| Ok(Value::list(ListKind::Pairs, pairs_of(value)))),
    method("Names", |_, value, _| Ok(column(value, 0))),
    method("Values", |_, value, _| Ok(column(value, 1))),
    method("String", |_, value, _| Ok(Value::text(value.printed()))),
    method_of("Remove", &[Param::Texts], |_, value, args| {
        let gone = texts_of(&args[0]);
        let Value::Map(map) = value else { return Ok(Value::Nil) };
        let mut map = (**map).clone();
        map.entries.retain(|name, _| !gone.contains(name));
        Ok(Value::Map(map.into()))
    }),
];

static PAIRS: &[Method] = &[
    method("Names", |_, value, _| Ok(column(value, 0))),
    method("Values", |_, value, _| Ok(column(value, 1))),
    method("String", |_, value, _| Ok(Value::text(value.printed()))),
];

static STRINGS: &[Method] = &[method_of("Join", &[Param::Text], |call, value, args| {
    let separator = args[0].as_text().cloned().unwrap_or_default();
    joined(call, value, &separator)
})];

fn with_status(value: &Value, status: &str) -> Value {
    let Value::List(list) = value else { return Value::Nil };
    let is = |alert: &&Value| match alert {
        Value::Struct(fields) => fields.fields.iter().any(|f| f.0 == "Status" && f.2 == Value::text(status)),
        _ => false,
    };
    Value::list(ListKind::AlertSlice, list.items.iter().filter(is).cloned().collect())
}

static ALERTS: &[Method] = &[
    method("Firing", |_, value, _| Ok(with_status(value, "firing"))),
    method("Resolved", |_, value, _| Ok(with_status(value, "resolved"))),
];

fn nanos(value: &Value) -> i64 {
    match value {
        Value::Duration(nanos) => *nanos,
        _ => 0,
    }
}

static DURATION: &[Method] = &[
    method("String", |_, value, _| Ok(Value::text(format_go(nanos(value))))),
    method("Nanoseconds", |_, value, _| Ok(Value::Int(nanos(value)))),
    method("Microseconds", |_, value, _| Ok(Value::Int(nanos(value) / 1000))),
    method("Milliseconds", |_, value, _| Ok(Value::Int(nanos(value) / 1_000_000))),
    method("Seconds", |_, value, _| Ok(Value::Float(nanos(value) as f64 / 1e9))),
    method("Minutes", |_, value, _| Ok(Value::Float(nanos(value) as f64 / 60e9))),
    method("Hours", |_, value, _| Ok(Value::Float(nanos(value) as f64 / 3600e9))),
    method("Abs", |_, value, _| Ok(Value::Duration(nanos(value).saturating_abs()))),
    method_of("Round", &[Param::Any], |_, value, args| {
        let (unit, value) = (duration(args)?, nanos(value));
        if unit <= 0 {
            return Ok(Value::Duration(value));
        }
        let rest = value % unit;
        let down = value - rest;
        let away = if is_below_half(rest, unit) { 0 } else { unit * rest.signum() };
        Ok(Value::Duration(down.saturating_add(away)))
    }),
    method_of("Truncate", &[Param::Any], |_, value, args| {
        let (unit, value) = (duration(args)?, nanos(value));
        Ok(Value::Duration(if unit <= 0 { value } else { value - value % unit }))
    }),
];

/// Whether a rest is less than half of a unit; from the half on it is rounded away from zero.
fn is_below_half(rest: i64, unit: i64) -> bool {
    rest.unsigned_abs() * 2 < unit.unsigned_abs()
}

static NAMED: &[Method] = &[method("String", |_, value, _| Ok(Value::text(value.printed())))];

fn time(value: &Value) -> Time {
    match value {
        Value::Time(time) => *time,
        _ => Time::zero(),
    }
}

fn whole(value: i128) -> Value {
    Value::Int(i64::try_from(value).unwrap_or(if value < 0 { i64::MIN } else { i64::MAX }))
}

fn duration(args: &[Value]) -> Result<i64, String> {
    match &args[0] {
        Value::Duration(nanos) | Value::Int(nanos) => Ok(*nanos),
        other => Err(format!("wrong type for value; expected time.Duration; got {}", other.type_name())),
    }
}

fn int(value: &Value) -> Result<i64, String> {
    match value {
        Value::Int(value) => Ok(*value),
        other => Err(format!("wrong type for value; expected int; got {}", other.type_name())),
    }
}

static TIME: &[Method] = &[
    method_of("Format", &[Param::Text], |call, value, args| {
        let layout = args[0].as_text().cloned().unwrap_or_default();
        call.follow(&layout)?;
        let text = time(value).format(&layout);
        call.make(text.len())?;
        Ok(Value::text(text))
    }),
    method("String", |_, value, _| Ok(Value::text(time(value).to_string()))),
    method("Unix", |_, value, _| Ok(whole(time(value).nanos().div_euclid(1_000_000_000)))),
    method("UnixMilli", |_, value, _| Ok(whole(time(value).nanos().div_euclid(1_000_000)))),
    method("UnixMicro", |_, value, _| Ok(whole(time(value).nanos().div_euclid(1000)))),
    method("UnixNano", |_, value, _| Ok(whole(time(value).nanos()))),
    method("UTC", |_, value, _| Ok(Value::Time(time(value).in_utc()))),
    method("Local", |_, value, _| Ok(Value::Time(time(value).in_utc()))),
    method("IsZero", |_, value, _| Ok(Value::Bool(time(value).is_zero()))),
    method("Year", |_, value, _| Ok(Value::Int(i64::from(time(value).local().year())))),
    method("Month", |_, value, _| {
        let month = time(value).local().month();
        Ok(Value::Named("time.Month", i64::from(month), month_name(month)))
    }),
    method("Day", |_, value, _| Ok(Value::Int(i64::from(time(value).local().day())))),
    method("Weekday", |_, value, _| {
        let day = time(value).local().weekday().num_days_from_sunday();
        Ok(Value::Named("time.Weekday", i64::from(day), WEEKDAY_NAMES[day as usize]))
    }),
    method("YearDay", |_, value, _| Ok(Value::Int(i64::from(time(value).local().ordinal())))),
    method("Hour", |_, value, _| Ok(Value::Int(i64::from(time(value).local().hour())))),
    method("Minute", |_, value, _| Ok(Value::Int(i64::from(time(value).local().minute())))),
    method("Second", |_, value, _| Ok(Value::Int(i64::from(time(value).local().second())))),
    method("Nanosecond", |_, value, _| Ok(Value::Int(i64::from(time(value).local().nanosecond())))),
    method_of("Add", &[Param::Any], |_, value, args| Ok(Value::Time(time(value).add(duration(args)?)))),
    method_of("Sub", &[Param::Time], |_, value, args| {
        let nanos = time(value).nanos() - time(&args[0]).nanos();
        let cut = nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        Ok(Value::Duration(cut as i64))
    }),
    method_of("AddDate", &[Param::Any, Param::Any, Param::Any], |_, value, args| {
        Ok(Value::Time(time(value).add_date(int(&args[0])?, int(&args[1])?, int(&args[2])?)))
    }),
    method_of("After", &[Param::Time], |_, value, args| Ok(Value::Bool(time(value).nanos() > time(&args[0]).nanos()))),
    method_of("Before", &[Param::Time], |_, value, args| Ok(Value::Bool(time(value).nanos() < time(&args[0]).nanos()))),
    method_of("Equal", &[Param::Time], |_, value, args| Ok(Value::Bool(time(value).nanos() == time(&args[0]).nanos()))),
    method_of("Truncate", &[Param::Any], |_, value, args| {
        let (time, unit) = (time(value), duration(args)?);
        Ok(Value::Time(time.add(-rest_of(time, unit))))
    }),
    method_of("Round", &[Param::Any], |_, value, args| {
        let (time, unit) = (time(value), duration(args)?);
        let rest = rest_of(time, unit);
        // Half of a unit is rounded up.
        let by = if unit <= 0 || is_below_half(rest, unit) { -rest } else { unit - rest };
        Ok(Value::Time(time.add(by)))
    }),
    method_of("Compare", &[Param::Time], |_, value, args| {
        Ok(Value::Int(time(value).nanos().cmp(&time(&args[0]).nanos()) as i64))
    }),
];

/// What a time is behind the last multiple of a unit since Go's zero time, in nanoseconds; 0 without a unit.
fn rest_of(time: Time, unit: i64) -> i64 {
    let since_zero = time.nanos() - Time::zero().nanos();
    if unit <= 0 { 0 } else { since_zero.rem_euclid(i128::from(unit)) as i64 }
}
