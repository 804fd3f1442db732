//! PromQL and LogsQL as table functions of SQL.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, RecordBatch, StringViewBuilder};
use arrow::array::{TimestampMillisecondArray, TimestampNanosecondArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use async_trait::async_trait;
use quiver_logsql::{LogsqlEngine, QueryScope, parse};
use quiver_promql::{PromqlEngine, PromqlError, QueryOptions, QueryTimes, QueryValue};
use quiver_query::QueryContext;
use quiver_query::tables::{DomainAccess, StoredData, TableSnapshot, TextMaps};
use quiver_sql::{Call, Languages};
use quiver_types::logs::{MSG, TIME};
use quiver_types::tables::columns::map;
use quiver_types::{Domain, Error, Result};

/// Rows per batch.
const BATCH_ROWS: usize = 8192;

/// Provides PromQL and LogsQL to SQL.
#[derive(Debug)]
pub(crate) struct SqlLanguages {
    pub(crate) promql: Arc<PromqlEngine>,
    pub(crate) logsql: Arc<LogsqlEngine>,
}

#[async_trait]
impl Languages for SqlLanguages {
    async fn call(
        &self,
        call: &Call,
        tables: &dyn TableSnapshot,
        access: &DomainAccess,
        ctx: &QueryContext,
    ) -> Result<Vec<RecordBatch>> {
        let stored =
            tables.stored().ok_or_else(|| Error::internal("tables of a statement without what they are of"))?;
        match call {
            Call::PromqlInstant { expr, time_ms } => {
                let own = ctx.another_run_as(access.get(Domain::Metrics));
                let found = self.promql.at(stored.series).instant(expr, *time_ms, &options(), &own).await;
                points(&found.map_err(promql_error)?.value, ctx)
            }
            Call::PromqlRange { expr, start_ms, end_ms, step_ms } => {
                let own = ctx.another_run_as(access.get(Domain::Metrics));
                let times = QueryTimes::range(*start_ms, *end_ms, *step_ms)?;
                let found = self.promql.at(stored.series).evaluate(expr, times, &options(), &own).await;
                points(&found.map_err(promql_error)?.value, ctx)
            }
            Call::Logsql { query } => self.logs(query, stored, access, ctx).await,
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
    async fn logs(
        &self,
        query: &str,
        stored: StoredData,
        access: &DomainAccess,
        ctx: &QueryContext,
    ) -> Result<Vec<RecordBatch>> {
        let parsed = parse(query)?;
        let now_ns = stored.now_ms.saturating_mul(1_000_000);
        let scope = QueryScope { now_ns, start_ns: None, end_ns: None, extra: Vec::new() };
        // A context of its own: the run ends everything in its context, while the rows are read later, by the
        // statement.
        let own = ctx.another_run_as(access.get(Domain::Logs));
        let logsql = self.logsql.at(stored.logs);
        let found = logsql.collect(&parsed, &scope, &own).await?;
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
    use std::time::Duration;

    use datafusion::catalog::TableProvider;
    use futures::future::BoxFuture;
    use quiver_ingest::logs::{FieldOptions, JsonLines, LogsContext, LogsLimits};
    use quiver_query::Limits;
    use quiver_query::tables::{TableEntry, TableRequest};
    use quiver_store::Store;
    use quiver_types::{Access, Clock as _, ErrorKind, LabelSet, MetricsBatch, SystemClock};

    use super::*;
    use crate::settings::LoadedSettings;
    use crate::wiring;

    /// Tables of one moment.
    #[derive(Debug)]
    struct Then(StoredData);

    impl TableSnapshot for Then {
        fn table<'a>(
            &'a self,
            _: &'a TableRequest<'a>,
            _: &'a QueryContext,
        ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
            Box::pin(async { Ok(None) })
        }

        fn list(&self, _: &DomainAccess) -> Vec<TableEntry> {
            Vec::new()
        }

        fn stored(&self) -> Option<StoredData> {
            Some(self.0.clone())
        }
    }

    /// Writes a series with one sample, and a log row.
    async fn write(store: &Store, name: &str) {
        let mut samples = MetricsBatch::default();
        let series = samples.push_series(LabelSet::from_pairs([("__name__", "up"), ("name", name)]).canonical());
        samples.push_sample(series, 1_000, 1.0, 0);
        store.write_metrics(samples).await.unwrap();
        let service: Arc<[String]> = Arc::new([]);
        let ctx = LogsContext {
            options: Arc::new(FieldOptions::read(|_| None, |_| None, &service).unwrap()),
            limits: LogsLimits::default(),
            now_ns: SystemClock.now_ms() * 1_000_000,
            future_max_ns: i64::MAX,
            sender: None,
        };
        let mut decoder = JsonLines::new(&ctx);
        decoder.feed(format!(r#"{{"_time":"1970-01-01T00:00:01Z","_msg":"{name}"}}"#).as_bytes());
        decoder.finish();
        for batch in decoder.rows.take_all() {
            store.write_logs(batch).await.unwrap();
        }
    }

    /// The number of rows of a call within a statement over these tables.
    async fn count(languages: &SqlLanguages, call: &Call, tables: &Then) -> usize {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let found = languages.call(call, tables, &DomainAccess::full(), &ctx).await.unwrap();
        found.iter().map(RecordBatch::num_rows).sum()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn calls_see_what_the_tables_of_their_statement_do() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().display().to_string();
        let flags = [("store.data", data), ("store.retention", "none".to_owned()), ("rbac.mode", "off".to_owned())];
        let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).unwrap();
        let app = wiring::build(&loaded.settings, Arc::new(SystemClock)).await.unwrap();
        let engines = &app.engines;
        let moment = || {
            let logs = quiver_store::logs_source(&engines.store).snapshot();
            Then(StoredData { series: engines.series.snapshot(), logs, now_ms: 10_000 })
        };
        let languages = SqlLanguages { promql: Arc::clone(&engines.promql), logsql: Arc::clone(&engines.logsql) };
        let none = moment();
        write(&engines.store, "a").await;
        let one = moment();
        write(&engines.store, "b").await;
        let two = moment();
        let calls = [
            Call::PromqlInstant { expr: "up".to_owned(), time_ms: 2_000 },
            Call::PromqlRange { expr: "up".to_owned(), start_ms: 2_000, end_ms: 3_000, step_ms: 1_000 },
            Call::Logsql { query: "*".to_owned() },
            // The beginning of the statement is what a duration is counted from.
            Call::Logsql { query: "_time:9500ms".to_owned() },
            Call::Logsql { query: "_time:8500ms".to_owned() },
        ];
        // The last moment is asked first, so that results of it are cached.
        for (tables, expected) in [(two, [2, 4, 2, 2, 0]), (one, [1, 2, 1, 1, 0]), (none, [0; 5])] {
            for (call, expected) in calls.iter().zip(expected) {
                assert_eq!(count(&languages, call, &tables).await, expected, "{call:?}");
            }
        }
        engines.store.close(Duration::ZERO).await;
    }

    #[test]
    fn scalars_are_a_row() {
        let ctx = QueryContext::new(Access::full(), Limits::default());
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
