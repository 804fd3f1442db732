//! PromQL and LogsQL as table functions of SQL.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringViewBuilder};
use arrow::array::{TimestampMillisecondArray, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use quiver_logsql::{LogsqlEngine, QueryScope, parse};
use quiver_promql::{PromqlEngine, PromqlError, QueryOptions, QueryTimes, QueryValue};
use quiver_query::QueryContext;
use quiver_query::tables::{DomainAccess, TextMaps};
use quiver_sql::{Call, Languages};
use quiver_types::logs::{MSG, TIME};
use quiver_types::tables::columns::map;
use quiver_types::{Clock, Domain, Error, Result};

/// Rows per batch.
const BATCH_ROWS: usize = 8192;

/// Provides PromQL and LogsQL to SQL.
#[derive(Debug)]
pub(crate) struct SqlLanguages {
    pub(crate) promql: Arc<PromqlEngine>,
    pub(crate) logsql: Arc<LogsqlEngine>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Languages for SqlLanguages {
    async fn call(&self, call: &Call, access: &DomainAccess, ctx: &QueryContext) -> Result<Vec<RecordBatch>> {
        match call {
            Call::PromqlInstant { expr, time_ms } => {
                let own = ctx.again_as(access.get(Domain::Metrics));
                let found = self.promql.instant(expr, *time_ms, &options(), &own).await;
                points(&found.map_err(promql_error)?.value, ctx)
            }
            Call::PromqlRange { expr, start_ms, end_ms, step_ms } => {
                let own = ctx.again_as(access.get(Domain::Metrics));
                let times = QueryTimes::range(*start_ms, *end_ms, *step_ms)?;
                let found = self.promql.evaluate(expr, times, &options(), &own).await;
                points(&found.map_err(promql_error)?.value, ctx)
            }
            Call::Logsql { query } => self.logs(query, access, ctx).await,
        }
    }

    fn columns(&self, name: &str) -> SchemaRef {
        if name == "logsql" { log_schema() } else { point_schema() }
    }
}

fn options() -> QueryOptions {
    QueryOptions { lookback_ms: None, stats: false, no_cache: false }
}

fn promql_error(error: PromqlError) -> Error {
    match error {
        PromqlError::Parse(e) => Error::invalid(format!("PromQL: {e}")),
        PromqlError::Evaluation(e) => e,
    }
}

/// A nullable column.
fn column(name: &str, data_type: DataType) -> Field {
    Field::new(name, data_type, true)
}

fn point_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![column("time", time), column("value", DataType::Float64), column("labels", map())]))
}

/// Converts PromQL values to rows `time`, `value`, `labels`; histograms are not supported.
#[derive(Default)]
struct Points {
    times: Vec<i64>,
    values: Vec<f64>,
    labels: TextMaps,
    batches: Vec<RecordBatch>,
}

impl Points {
    fn push<'l>(&mut self, time_ms: i64, value: f64, labels: impl Iterator<Item = (&'l str, &'l str)>) -> Result<()> {
        self.times.push(time_ms);
        self.values.push(value);
        labels.for_each(|(name, value)| self.labels.push(name, value));
        self.labels.end();
        if self.times.len() == BATCH_ROWS { self.cut() } else { Ok(()) }
    }

    fn cut(&mut self) -> Result<()> {
        let times = TimestampMillisecondArray::from(std::mem::take(&mut self.times)).with_timezone("UTC");
        let values = Float64Array::from(std::mem::take(&mut self.values));
        let labels = std::mem::take(&mut self.labels).finish()?;
        let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(values), Arc::new(labels)];
        let batch = RecordBatch::try_new(point_schema(), columns);
        self.batches.push(batch.map_err(|e| Error::internal("cannot build rows of PromQL").with_source(e))?);
        Ok(())
    }
}

fn points(value: &QueryValue, ctx: &QueryContext) -> Result<Vec<RecordBatch>> {
    let mut points = Points::default();
    match value {
        QueryValue::Scalar { time_ms, value } => points.push(*time_ms, *value, std::iter::empty())?,
        QueryValue::String { .. } => return Err(Error::invalid("PromQL: a text is no table")),
        QueryValue::Vector(result) | QueryValue::Matrix(result) => {
            for row in result.rows() {
                for step in (0..row.values.len()).filter(|&step| row.present[step]) {
                    points.push(result.grid.at(step), row.values[step], result.table.labels(row.row as usize))?;
                }
                ctx.check("query execution")?;
            }
        }
        QueryValue::Samples(result) => {
            for series in &result.series {
                for (time, value) in series.ts.iter().zip(&series.values) {
                    points.push(*time, *value, result.table.labels(series.row as usize))?;
                }
                ctx.check("query execution")?;
            }
        }
    }
    points.cut()?;
    Ok(points.batches)
}

fn log_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![column("time", time), column("message", DataType::Utf8View), column("fields", map())]))
}

impl SqlLanguages {
    async fn logs(&self, query: &str, access: &DomainAccess, ctx: &QueryContext) -> Result<Vec<RecordBatch>> {
        let parsed = parse(query)?;
        let now_ns = self.clock.now_ms().saturating_mul(1_000_000);
        let scope = QueryScope { now_ns, start_ns: None, end_ns: None, extra: Vec::new() };
        // A context of its own: the run ends everything in its context, while the rows are read later, by the
        // statement.
        let own = ctx.again_as(access.get(Domain::Logs));
        let found = self.logsql.collect(&parsed, &scope, &own).await?;
        let mut batches = Vec::new();
        for rows in &found {
            let (mut times, mut messages, mut maps) = (Vec::new(), StringViewBuilder::new(), TextMaps::default());
            rows.each_row(|fields| {
                let (mut time, mut message, mut others) = (None, None, Vec::new());
                for (name, value) in fields {
                    match name {
                        TIME => time = nanos(value),
                        MSG => message = Some(value.to_owned()),
                        _ => others.push((name.to_owned(), value.to_owned())),
                    }
                }
                others.sort_unstable();
                for (name, value) in &others {
                    maps.push(name, value);
                }
                maps.end();
                times.push(time);
                messages.append_option(message);
            })?;
            let times = TimestampNanosecondArray::from(times).with_timezone("UTC");
            let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(messages.finish()), Arc::new(maps.finish()?)];
            let batch = RecordBatch::try_new(log_schema(), columns);
            batches.push(batch.map_err(|e| Error::internal("cannot build rows of LogsQL").with_source(e))?);
            ctx.check("query execution")?;
        }
        if batches.is_empty() {
            batches.push(RecordBatch::new_empty(log_schema()));
        }
        Ok(batches)
    }
}

/// Parses a time in the format of LogsQL.
fn nanos(text: &str) -> Option<i64> {
    arrow::compute::kernels::cast_utils::string_to_timestamp_nanos(text).ok()
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;

    #[test]
    fn scalars_are_a_row() {
        let ctx = QueryContext::new(quiver_types::Access::full(), quiver_query::Limits::default());
        let rows = points(&QueryValue::Scalar { time_ms: 5, value: 0.5 }, &ctx).unwrap();
        assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
        let text = QueryValue::String { time_ms: 5, text: String::new() };
        assert_eq!(points(&text, &ctx).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(nanos("1970-01-01T00:00:00.000000005Z"), Some(5));
        assert_eq!(nanos("no time"), None);
    }

    /// Rows of many values come in batches of limited size, all with the announced columns.
    #[test]
    fn batches_of_points() {
        let mut points = Points::default();
        for n in 0..BATCH_ROWS + 3 {
            let labels = [("a", "1"), ("b", "2")];
            points.push(n as i64, 0.5, labels.into_iter().take(n % 3)).unwrap();
        }
        points.cut().unwrap();
        assert_eq!(points.batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH_ROWS, 3]);
        let times = |batch: &RecordBatch| {
            let times = batch.column(0).as_any().downcast_ref::<TimestampMillisecondArray>().unwrap();
            times.values().to_vec()
        };
        assert!(points.batches.iter().all(|batch| batch.schema() == point_schema()));
        let last = BATCH_ROWS as i64;
        assert_eq!(times(&points.batches[0])[BATCH_ROWS - 1], last - 1);
        assert_eq!(times(&points.batches[1]), [last, last + 1, last + 2]);
        let shown = |row| arrow::util::display::array_value_to_string(points.batches[0].column(2), row).unwrap();
        assert_eq!([0, 1, 2].map(shown), ["{}", "{a: 1}", "{a: 1, b: 2}"]);
    }

    #[test]
    fn faults_of_promql_say_whose_they_are() {
        let parse = quiver_promql::parser::parse("up ==").unwrap_err();
        let told = promql_error(PromqlError::Parse(parse));
        assert_eq!(told.kind, ErrorKind::Invalid);
        assert!(told.message.starts_with("PromQL: "), "{told}");
        let own = promql_error(PromqlError::Evaluation(Error::new(ErrorKind::Timeout, "too long")));
        assert_eq!((own.kind, own.message.as_str()), (ErrorKind::Timeout, "too long"));
    }

    #[test]
    fn times_of_logs() {
        for (text, expected) in [
            ("2024-02-29T12:34:56Z", Some(1_709_210_096_000_000_000)),
            ("2024-02-29T12:34:56.123456789Z", Some(1_709_210_096_123_456_789)),
            ("2024-02-29T12:34:56+02:00", Some(1_709_202_896_000_000_000)),
            ("1969-12-31T23:59:59.5Z", Some(-500_000_000)),
            ("9999-01-01T00:00:00Z", None),
            ("2023-02-29T00:00:00Z", None),
            ("", None),
        ] {
            assert_eq!(nanos(text), expected, "{text}");
        }
    }
}
