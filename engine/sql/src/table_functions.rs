//! Table functions: PromQL and LogsQL as tables, and the rows of a model of analytics.
//!
//! A call of a language is evaluated before the statement is planned, with the caller's rights in the domain of that
//! language. Its rows become a table of the plan and are charged to the query. Rows of a model are a subplan of the
//! statement.

use std::fmt::Debug;
use std::ops::ControlFlow;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, IntervalUnit, SchemaRef, TimeUnit};
use async_trait::async_trait;
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::sql::planner::{PlannerContext, SqlToRel};
use datafusion::sql::sqlparser::ast::{FunctionArg, FunctionArgExpr, Query, TableFactor, Visitor};
use quiver_query::durations::worded;
use quiver_query::tables::models::{MODEL_ROWS, ModelRows};
use quiver_query::tables::{DomainAccess, TableSnapshot};
use quiver_query::time_literals::{TimeLiteralKind, in_form};
use quiver_query::{Names, QueryContext, QueryReservation, statement_time};
use quiver_types::{Error, Result};

use crate::error::of_planner;
use crate::names::parts;
use crate::statement_walk::walk;

/// Names and forms of the table functions.
pub const CALLS: [(&str, &str); 4] = [
    ("promql_instant", "promql_instant('expression', time)"),
    ("promql_range", "promql_range('expression', start, end, step)"),
    ("logsql", "logsql('query')"),
    (MODEL_ROWS, "model_rows('model', from, to, 'column', …)"),
];

/// A call with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// PromQL at one time.
    PromqlInstant {
        /// The expression, in PromQL.
        expr: String,
        /// Time of the evaluation, Unix milliseconds.
        time_ms: i64,
    },
    /// PromQL over a range.
    PromqlRange {
        /// The expression, in PromQL.
        expr: String,
        /// Time of the first evaluation, Unix milliseconds.
        start_ms: i64,
        /// End of the range, Unix milliseconds, included.
        end_ms: i64,
        /// Time between two evaluations, in milliseconds.
        step_ms: i64,
    },
    /// A query in LogsQL.
    Logsql {
        /// The query, in LogsQL.
        query: String,
    },
}

/// The languages behind table functions; implemented by the binary.
#[async_trait]
pub trait Languages: Send + Sync + Debug {
    /// Evaluates a call over the data that the tables of its statement are read from, and adds its rows as they are made.
    /// PromQL gives `time`, `value`, `labels`; LogsQL `time`, `message`, `fields`. There is at least one batch, maybe
    /// without rows.
    ///
    /// # Errors
    /// Those of the language, and of adding rows.
    async fn call(
        &self,
        call: &Call,
        tables: &dyn TableSnapshot,
        access: &DomainAccess,
        ctx: &QueryContext,
        rows: &mut CallRows,
    ) -> Result<()>;

    /// Gives the result columns of a function of [`CALLS`], which do not depend on its arguments.
    fn columns(&self, name: &str) -> SchemaRef;
}

/// Rows of a call, which count in the memory of their query from the first batch on: a range of a language is small, while
/// each of its rows holds all labels.
#[derive(Debug)]
pub struct CallRows {
    memory: QueryReservation,
    batches: Vec<RecordBatch>,
}

impl CallRows {
    /// Makes it without rows.
    pub fn new(memory: QueryReservation) -> Self {
        Self { memory, batches: Vec::new() }
    }

    /// Adds a batch. One of a mebibyte or so is counted early enough.
    ///
    /// # Errors
    /// LimitExceeded: the query may not hold it as well. Unavailable: not beside others.
    pub fn add(&mut self, batch: RecordBatch) -> Result<()> {
        self.memory.add(batch.get_array_memory_size())?;
        self.batches.push(batch);
        Ok(())
    }

    /// Gives the batches, and what they count.
    pub fn into_parts(self) -> (Vec<RecordBatch>, QueryReservation) {
        (self.batches, self.memory)
    }
}

/// A call in a statement: the arguments as the planner will look it up, and its meaning.
#[derive(Debug, Clone)]
pub(crate) struct TableFunctionCall {
    pub(crate) name: String,
    pub(crate) args: Vec<Expr>,
    pub(crate) call: Call,
}

/// Whether a name is that of a table function that a language evaluates.
pub(crate) fn is_language(name: &str) -> bool {
    name != MODEL_ROWS && CALLS.iter().any(|(known, _)| *known == name)
}

struct Finder(Vec<(String, Vec<FunctionArg>)>);

impl Finder {
    fn of(query: &Query) -> Self {
        let mut finder = Self(Vec::new());
        // The visitor never breaks.
        let _ = walk(query, &mut finder);
        finder
    }

    /// Calls that a language evaluates.
    fn of_languages(query: &Query) -> impl Iterator<Item = (String, Vec<FunctionArg>)> {
        Self::of(query).0.into_iter().filter(|(name, _)| is_language(name))
    }
}

impl Visitor for Finder {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(args), .. } = factor {
            let name = parts(name).pop().unwrap_or_default();
            if CALLS.iter().any(|(known, _)| *known == name) {
                self.0.push((name, args.args.clone()));
            }
        }
        ControlFlow::Continue(())
    }
}

/// Finds the calls of a query and evaluates their arguments.
///
/// # Errors
/// Invalid: an argument is missing, is of another type, or no constant.
pub(crate) fn find(query: &Query, names: &Names<'_>) -> Result<Vec<TableFunctionCall>> {
    Finder::of_languages(query).map(|(name, args)| found(name, args, names)).collect()
}

/// Finds the calls of a query without evaluating their arguments; gives name and arguments of each.
///
/// # Errors
/// Invalid: an argument cannot be read.
pub(crate) fn shapes(query: &Query, names: &Names<'_>) -> Result<Vec<(String, Vec<Expr>)>> {
    let read = |(name, args): (String, _)| exprs(&name, args, names).map(|exprs| (name, exprs));
    Finder::of_languages(query).map(read).collect()
}

/// Finds the calls that give rows of models: the arguments as the planner reads them, and their meaning.
///
/// # Errors
/// Invalid: an argument is missing, is of another type, or no constant.
pub(crate) fn of_models(query: &Query, names: &Names<'_>) -> Result<Vec<(Vec<Expr>, ModelRows)>> {
    let calls = Finder::of(query).0.into_iter().filter(|(name, _)| name == MODEL_ROWS);
    let read = |(name, args): (String, _)| {
        let exprs = exprs(&name, args, names)?;
        let rows = model_rows(&constants(&name, &exprs)?)?;
        Ok((exprs, rows))
    };
    calls.map(read).collect()
}

fn form_of(name: &str) -> &'static str {
    CALLS.iter().find(|(known, _)| *known == name).map_or("", |(_, form)| form)
}

/// The arguments of a call as the planner reads them.
fn exprs(name: &str, args: Vec<FunctionArg>, names: &Names<'_>) -> Result<Vec<Expr>> {
    let planner = SqlToRel::new(names);
    let schema = DFSchema::empty();
    let mut exprs = Vec::new();
    for arg in args {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) = arg else {
            return Err(Error::invalid(format!("arguments of `{name}` have no names: `{}`", form_of(name))));
        };
        exprs.push(planner.sql_to_expr(expr, &schema, &mut PlannerContext::new()).map_err(of_planner)?);
    }
    Ok(exprs)
}

fn found(name: String, args: Vec<FunctionArg>, names: &Names<'_>) -> Result<TableFunctionCall> {
    let args = exprs(&name, args, names)?;
    let call = call(&name, &constants(&name, &args)?)?;
    Ok(TableFunctionCall { name, args, call })
}

/// Evaluates constant arguments.
fn constants(name: &str, exprs: &[Expr]) -> Result<Vec<ScalarValue>> {
    let schema = DFSchema::empty();
    let context = SimplifyContext::builder().with_query_execution_start_time(Some(statement_time())).build();
    let simplifier = ExprSimplifier::new(context);
    let mut values = Vec::new();
    for expr in exprs {
        let coerced = simplifier.coerce(expr.clone(), &schema).map_err(of_planner)?;
        match simplifier.simplify(coerced).map_err(of_planner)? {
            Expr::Literal(value, _) => values.push(value),
            other => return Err(Error::invalid(format!("argument `{other}` of `{name}` is no constant"))),
        }
    }
    Ok(values)
}

fn model_rows(values: &[ScalarValue]) -> Result<ModelRows> {
    let wrong = || {
        let form = form_of(MODEL_ROWS);
        Error::invalid(format!("`{MODEL_ROWS}` is called as `{form}`, with times as texts of RFC 3339, or both NULL"))
    };
    let [model, from, to, columns @ ..] = values else { return Err(wrong()) };
    let range_ns = match (from.is_null(), to.is_null()) {
        (true, true) => None,
        _ => Some((nanos(from).ok_or_else(wrong)?, nanos(to).ok_or_else(wrong)?)),
    };
    let columns = columns.iter().map(|column| text(column).ok_or_else(wrong)).collect::<Result<_>>()?;
    Ok(ModelRows { model: text(model).ok_or_else(wrong)?, range_ns, columns })
}

/// Reads an RFC 3339 time; gives nanoseconds.
fn nanos(value: &ScalarValue) -> Option<i64> {
    let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    match ScalarValue::from(text(value)?).cast_to(&utc).ok()? {
        ScalarValue::TimestampNanosecond(n, _) => n,
        _ => None,
    }
}

/// Description of the last argument of `promql_range`, for errors.
const STEP: &str = "a step above 0: an interval without months, a duration such as '1m', or seconds";

fn call(name: &str, values: &[ScalarValue]) -> Result<Call> {
    let wrong = |what: &str, value: &ScalarValue, wanted: &str| {
        Error::invalid(format!("`{name}`: {what} `{value}` is not {wanted}; it is called as `{}`", form_of(name)))
    };
    let written = |what: &str, value: &ScalarValue| text(value).ok_or_else(|| wrong(what, value, "a text"));
    let time = |what: &str, value: &ScalarValue| {
        millis(value).ok_or_else(|| wrong(what, value, "a time: a timestamp, a text of RFC 3339 or Unix seconds"))
    };
    Ok(match (name, values) {
        ("promql_instant", [expr, at]) => {
            Call::PromqlInstant { expr: written("expression", expr)?, time_ms: time("time", at)? }
        }
        ("promql_range", [expr, start, end, step]) => {
            let expr = written("expression", expr)?;
            let (start_ms, end_ms) = (time("start", start)?, time("end", end)?);
            if end_ms < start_ms {
                return Err(Error::invalid(format!("`{name}`: the end `{end}` is before the start `{start}`")));
            }
            let step_ms = step_ms(step).ok_or_else(|| wrong("step", step, STEP))?;
            Call::PromqlRange { expr, start_ms, end_ms, step_ms }
        }
        ("logsql", [query]) => Call::Logsql { query: written("query", query)? },
        _ => return Err(Error::invalid(format!("`{name}` is called as `{}`", form_of(name)))),
    })
}

fn text(value: &ScalarValue) -> Option<String> {
    match value {
        ScalarValue::Utf8(text) | ScalarValue::Utf8View(text) | ScalarValue::LargeUtf8(text) => text.clone(),
        _ => None,
    }
}

/// Converts seconds to milliseconds; `None`: not a number, or out of range.
fn seconds(number: f64) -> Option<i64> {
    let ms = (number * 1_000.0).round();
    (ms.abs() < i64::MAX as f64).then_some(ms as i64)
}

/// A time: a timestamp, a date, a text of one, or Unix seconds.
fn millis(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Date32(days) => days.map(|days| i64::from(days) * 86_400_000),
        ScalarValue::TimestampNanosecond(n, _) => n.map(|n| n.div_euclid(1_000_000)),
        ScalarValue::TimestampMicrosecond(n, _) => n.map(|n| n.div_euclid(1_000)),
        ScalarValue::TimestampMillisecond(n, _) => *n,
        ScalarValue::TimestampSecond(n, _) => n.and_then(|n| n.checked_mul(1_000)),
        ScalarValue::Int64(n) => n.and_then(|n| n.checked_mul(1_000)),
        ScalarValue::Float64(number) => number.and_then(seconds),
        other => {
            let written = text(other)?;
            if let Ok(number) = written.parse() {
                return seconds(number);
            }
            let utc = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
            let written = in_form(&written, TimeLiteralKind::Zoned).unwrap_or(written);
            match ScalarValue::from(written).cast_to(&utc).ok()? {
                ScalarValue::TimestampMillisecond(n, _) => n,
                _ => None,
            }
        }
    }
}

/// Units of durations, in milliseconds.
const UNITS: [(&str, i64); 7] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
    ("w", 604_800_000),
    ("y", 31_536_000_000),
];

/// Reads a duration as in PromQL (`1h30m`), or a number of seconds.
fn duration_ms(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse() {
        return seconds(number);
    }
    let (mut rest, mut sum) = (text, 0_i64);
    while !rest.is_empty() {
        let (count, behind) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (word, behind) = behind.split_at(behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len()));
        let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == word)?;
        sum = sum.checked_add(count.parse::<i64>().ok()?.checked_mul(*unit)?)?;
        rest = behind;
    }
    Some(sum)
}

/// Reads an interval.
fn interval(written: String) -> Option<ScalarValue> {
    let kind = DataType::Interval(IntervalUnit::MonthDayNano);
    ScalarValue::from(worded(&written).unwrap_or(written)).cast_to(&kind).ok()
}

/// A step: an interval without months, a duration or an interval as text, or seconds.
fn step_ms(value: &ScalarValue) -> Option<i64> {
    let ms = match value {
        ScalarValue::IntervalMonthDayNano(Some(i)) if i.months == 0 => {
            i64::from(i.days).checked_mul(86_400_000)?.checked_add(i.nanoseconds / 1_000_000)?
        }
        ScalarValue::IntervalDayTime(Some(i)) => i64::from(i.days) * 86_400_000 + i64::from(i.milliseconds),
        ScalarValue::Int64(Some(n)) => n.checked_mul(1_000)?,
        ScalarValue::Float64(Some(n)) => seconds(*n)?,
        other => {
            let written = text(other)?;
            match duration_ms(&written) {
                Some(ms) => ms,
                None => return step_ms(&interval(written)?),
            }
        }
    };
    (ms > 0).then_some(ms)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{IntervalDayTime, IntervalMonthDayNano};

    use super::*;

    #[test]
    fn times_are_of_many_kinds() {
        let day = 86_400_000;
        for (value, expected) in [
            (ScalarValue::Date32(Some(-1)), Some(-day)),
            (ScalarValue::Date32(Some(i32::MAX)), Some(i64::from(i32::MAX) * day)),
            (ScalarValue::Date32(None), None),
            // What is before a millisecond is in the one before it, on both sides of the first moment.
            (ScalarValue::TimestampNanosecond(Some(1_999_999), None), Some(1)),
            (ScalarValue::TimestampNanosecond(Some(-1), None), Some(-1)),
            (ScalarValue::TimestampNanosecond(Some(-1_000_000), Some("UTC".into())), Some(-1)),
            (ScalarValue::TimestampMicrosecond(Some(-1_001), None), Some(-2)),
            (ScalarValue::TimestampMillisecond(Some(i64::MIN), None), Some(i64::MIN)),
            (ScalarValue::TimestampMillisecond(None, None), None),
            (ScalarValue::TimestampSecond(Some(2), None), Some(2_000)),
            (ScalarValue::TimestampSecond(Some(i64::MAX), None), None),
            (ScalarValue::Int64(Some(-3)), Some(-3_000)),
            (ScalarValue::Int64(Some(i64::MAX / 1_000)), Some(i64::MAX / 1_000 * 1_000)),
            (ScalarValue::Int64(Some(i64::MAX / 1_000 + 1)), None),
            (ScalarValue::Int64(Some(i64::MIN)), None),
            (ScalarValue::Float64(Some(1.5)), Some(1_500)),
            (ScalarValue::Float64(Some(-0.0004)), Some(0)),
            (ScalarValue::Float64(Some(9.2e15)), Some(9_200_000_000_000_000_000)),
            (ScalarValue::Float64(Some(9.3e15)), None),
            (ScalarValue::Float64(Some(-1e300)), None),
            (ScalarValue::Float64(Some(f64::INFINITY)), None),
            (ScalarValue::Float64(Some(f64::NAN)), None),
            (ScalarValue::Boolean(Some(true)), None),
            (ScalarValue::Null, None),
            ("1.5".into(), Some(1_500)),
            ("-2".into(), Some(-2_000)),
            ("1e300".into(), None),
            ("inf".into(), None),
            ("nan".into(), None),
            ("".into(), None),
            ("soon".into(), None),
            ("2025-03-10T01:00:00+01:00".into(), Some(1_741_564_800_000)),
            ("1969-12-31T23:59:59.999Z".into(), Some(-1)),
            (ScalarValue::Utf8View(Some("5".to_owned())), Some(5_000)),
            (ScalarValue::LargeUtf8(Some("5".to_owned())), Some(5_000)),
            (ScalarValue::Utf8(None), None),
        ] {
            assert_eq!(millis(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn durations_are_numbers_with_units() {
        for (text, expected) in [
            ("1w2d3h4m5s6ms", Some(788_645_006)),
            ("1y", Some(31_536_000_000)),
            ("5m5m", Some(600_000)),
            ("0s", Some(0)),
            ("0.5", Some(500)),
            ("-1", Some(-1_000)),
            ("1e3", Some(1_000_000)),
            ("1e300", None),
            // Each number has a unit, each unit a number without a fraction, and all of them are known.
            ("1h30", None),
            ("h", None),
            ("1.5h", None),
            ("-1h", None),
            ("1M", None),
            ("1 h", None),
            ("1h 5m", None),
            ("1µs", None),
            ("٣s", None),
            // None is longer than a number of milliseconds says.
            ("9223372036854775807ms", Some(i64::MAX)),
            ("9223372036854775807ms1ms", None),
            ("9223372036854775807s", None),
            ("99999999999999999999ms", None),
            ("292277024y", Some(292_277_024 * 31_536_000_000)),
            ("292277024y292277024y", None),
        ] {
            assert_eq!(duration_ms(text), expected, "{text}");
        }
    }

    #[test]
    fn steps_are_above_zero() {
        let interval = |months, days, nanoseconds| {
            ScalarValue::IntervalMonthDayNano(Some(IntervalMonthDayNano::new(months, days, nanoseconds)))
        };
        let days = |days, milliseconds| ScalarValue::IntervalDayTime(Some(IntervalDayTime::new(days, milliseconds)));
        for (value, expected) in [
            (interval(0, 1, 500_000_000), Some(86_400_500)),
            (interval(0, 1, -86_400_000_000_000), None),
            (interval(0, 0, 999_999), None),
            (interval(0, i32::MAX, i64::MAX), Some(i64::from(i32::MAX) * 86_400_000 + i64::MAX / 1_000_000)),
            // Months are of no one length.
            (interval(1, 0, 0), None),
            (ScalarValue::IntervalMonthDayNano(None), None),
            (days(2, 250), Some(172_800_250)),
            (days(0, -1), None),
            (ScalarValue::Int64(Some(i64::MAX)), None),
            (ScalarValue::Int64(Some(-1)), None),
            (ScalarValue::Float64(Some(0.0006)), Some(1)),
            (ScalarValue::Float64(Some(0.0004)), None),
            (ScalarValue::Float64(Some(f64::NAN)), None),
            (ScalarValue::Date32(Some(1)), None),
            (ScalarValue::Null, None),
            ("1 day".into(), Some(86_400_000)),
            ("00:00:15".into(), Some(15_000)),
            ("1 month".into(), None),
            ("-5m".into(), None),
            ("0s".into(), None),
        ] {
            assert_eq!(step_ms(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn what_is_wrong_with_an_argument_is_said() {
        let said = |name: &str, values: &[ScalarValue]| call(name, values).unwrap_err().message;
        assert_eq!(
            said("promql_instant", &["up".into(), ScalarValue::Boolean(Some(true))]),
            "`promql_instant`: time `true` is not a time: a timestamp, a text of RFC 3339 or Unix seconds; \
             it is called as `promql_instant('expression', time)`"
        );
        let number = |seconds| ScalarValue::Int64(Some(seconds));
        for (name, values, part) in [
            ("promql_range", vec!["up".into(), ScalarValue::Null, number(9), number(1)], "start `NULL` is not a time"),
            ("promql_range", vec!["up".into(), number(5), "then".into(), number(1)], "end `then` is not a time"),
            ("promql_range", vec!["up".into(), number(5), number(9)], "is called as `promql_range('expression', start"),
            ("promql_instant", vec![ScalarValue::Utf8(None), number(5)], "expression `NULL` is not a text"),
            ("logsql", vec![number(5)], "`logsql`: query `5` is not a text; it is called as `logsql('query')`"),
            ("logsql", vec!["*".into(), "*".into()], "`logsql` is called as `logsql('query')`"),
        ] {
            let message = said(name, &values);
            assert!(message.contains(part), "{message}");
        }
        // A range of one moment is one.
        let at_once = call("promql_range", &["up".into(), number(5), number(5), number(1)]).unwrap();
        assert_eq!(
            at_once,
            Call::PromqlRange { expr: "up".to_owned(), start_ms: 5_000, end_ms: 5_000, step_ms: 1_000 }
        );
    }

    #[test]
    fn arguments() {
        let (from, to) = (ScalarValue::Int64(Some(5)), ScalarValue::from("2025-03-10T00:00:00Z"));
        let range = |start: &ScalarValue, end: &ScalarValue, step: ScalarValue| {
            call("promql_range", &["up".into(), start.clone(), end.clone(), step]).map_err(|e| e.message)
        };
        let expected =
            |step_ms| Ok(Call::PromqlRange { expr: "up".into(), start_ms: 5_000, end_ms: 1_741_564_800_000, step_ms });
        assert_eq!(range(&from, &to, ScalarValue::Int64(Some(60))), expected(60_000));
        let steps = [("1m", 60_000), ("1h30m", 5_400_000), ("500ms", 500), ("15", 15_000), ("5 minutes", 300_000)];
        for (step, ms) in steps {
            assert_eq!(range(&from, &to, step.into()), expected(ms), "{step}");
        }
        let minute = || ScalarValue::Int64(Some(60));
        for to in ["2025-03-10", "2025-03-10 00:00", "Mar 10, 2025 1:00 CET", "1741564800"] {
            assert_eq!(range(&"5".into(), &to.into(), minute()), expected(60_000), "{to}");
        }
        assert_eq!(range(&from, &ScalarValue::Date32(Some(20_157)), minute()), expected(60_000));
        for step in [ScalarValue::Int64(Some(0)), "m".into(), "1 parsec".into(), "".into()] {
            assert!(range(&from, &to, step).unwrap_err().contains("a step above 0"));
        }
        assert!(range(&to, &from, ScalarValue::Int64(Some(60))).unwrap_err().contains("is before the start"));
        let error = call("promql_instant", &[from, to]).unwrap_err();
        assert!(error.message.contains("expression `5` is not a text"), "{error}");
        assert_eq!(call("logsql", &["*".into()]).ok(), Some(Call::Logsql { query: "*".into() }));
        assert!(call("logsql", &[]).unwrap_err().message.contains("logsql('query')"));
    }

    #[test]
    fn rows_of_models() {
        let (from, to) =
            (ScalarValue::from("2025-03-10T00:00:00.000000001Z"), ScalarValue::from("2025-03-11T00:00:00Z"));
        let midnight = 1_741_564_800_000_000_000;
        let rows = model_rows(&["Calls".into(), from.clone(), to, "a".into(), "@b.c".into()]).unwrap();
        let expected = ModelRows {
            model: "Calls".to_owned(),
            range_ns: Some((midnight + 1, midnight + 86_400_000_000_000)),
            columns: vec!["a".to_owned(), "@b.c".to_owned()],
        };
        assert_eq!(rows, expected);
        let open = [ScalarValue::from("Calls"), ScalarValue::Null, ScalarValue::Null];
        assert_eq!(model_rows(&open).unwrap(), ModelRows { range_ns: None, columns: Vec::new(), ..expected });
        let half = [ScalarValue::from("Calls"), from, ScalarValue::Null];
        let numbers = [ScalarValue::from("Calls"), ScalarValue::Int64(Some(5)), ScalarValue::Int64(Some(6))];
        for wrong in [&open[..2], &half[..], &numbers[..]] {
            let message = model_rows(wrong).unwrap_err().message;
            assert!(message.contains("model_rows('model', from, to, 'column', …)"), "{message}");
        }
        assert!(is_language("logsql") && !is_language(MODEL_ROWS) && !is_language("upper"));
    }
}
