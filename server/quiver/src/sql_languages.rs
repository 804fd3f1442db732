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
use quiver_sql::{Call, CallRows, Languages};
use quiver_types::logs::{MSG, TIME};
use quiver_types::tables::columns::map;
use quiver_types::{Domain, Error, Result};

/// Most rows of a batch.
const BATCH_ROWS: usize = 8192;
/// Bytes of texts from which on a batch is complete: it counts once it is.
const BATCH_BYTES: usize = 1 << 20;

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
        rows: &mut CallRows,
    ) -> Result<()> {
        let stored =
            tables.stored().ok_or_else(|| Error::internal("tables of a statement without what they are of"))?;
        match call {
            Call::PromqlInstant { expr, time_ms } => {
                let own = ctx.another_run_as(access.get(Domain::Metrics));
                let found = self.promql.at(stored.series).instant(expr, *time_ms, &options(), &own).await;
                points(&found.map_err(promql_error)?.value, ctx, rows)
            }
            Call::PromqlRange { expr, start_ms, end_ms, step_ms } => {
                let own = ctx.another_run_as(access.get(Domain::Metrics));
                let times = QueryTimes::range(*start_ms, *end_ms, *step_ms)?;
                let found = self.promql.at(stored.series).evaluate(expr, times, &options(), &own).await;
                points(&found.map_err(promql_error)?.value, ctx, rows)
            }
            Call::Logsql { query } => self.logs(query, stored, access, ctx, rows).await,
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
struct Points<'r> {
    times: Vec<i64>,
    values: Vec<f64>,
    labels: TextMaps,
    text_bytes: usize,
    rows: &'r mut CallRows,
}

impl<'r> Points<'r> {
    fn new(rows: &'r mut CallRows) -> Self {
        Self { times: Vec::new(), values: Vec::new(), labels: TextMaps::default(), text_bytes: 0, rows }
    }

    fn push<'l>(&mut self, time_ms: i64, value: f64, labels: impl Iterator<Item = (&'l str, &'l str)>) -> Result<()> {
        self.times.push(time_ms);
        self.values.push(value);
        for (name, value) in labels {
            self.text_bytes += name.len() + value.len();
            self.labels.push(name, value);
        }
        self.labels.end();
        if self.times.len() == BATCH_ROWS || self.text_bytes >= BATCH_BYTES { self.cut() } else { Ok(()) }
    }

    fn cut(&mut self) -> Result<()> {
        self.text_bytes = 0;
        let times = TimestampMillisecondArray::from(std::mem::take(&mut self.times)).with_timezone("UTC");
        let values = Float64Array::from(std::mem::take(&mut self.values));
        let labels = std::mem::take(&mut self.labels).finish()?;
        let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(values), Arc::new(labels)];
        let batch = RecordBatch::try_new(point_schema(), columns);
        self.rows.add(batch.map_err(|e| Error::internal("cannot build rows of PromQL").with_source(e))?)
    }
}

fn points(value: &QueryValue, ctx: &QueryContext, rows: &mut CallRows) -> Result<()> {
    let mut points = Points::new(rows);
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
    points.cut()
}

fn log_schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
    Arc::new(Schema::new(vec![column("time", time), column("message", DataType::Utf8View), column("fields", map())]))
}

/// Converts log rows to rows `time`, `message`, `fields`.
struct Records<'r> {
    times: Vec<Option<i64>>,
    messages: StringViewBuilder,
    fields: TextMaps,
    text_bytes: usize,
    rows: &'r mut CallRows,
}

impl<'r> Records<'r> {
    fn new(rows: &'r mut CallRows) -> Self {
        let (messages, fields) = (StringViewBuilder::new(), TextMaps::default());
        Self { times: Vec::new(), messages, fields, text_bytes: 0, rows }
    }

    fn push(&mut self, fields: &mut dyn Iterator<Item = (&str, &str)>) -> Result<()> {
        let (mut time, mut message, mut others) = (None, None, Vec::new());
        for (name, value) in fields {
            match name {
                TIME => time = nanos(value),
                MSG => message = Some(value),
                _ => others.push((name, value)),
            }
        }
        others.sort_unstable();
        for (name, value) in others {
            self.text_bytes += name.len() + value.len();
            self.fields.push(name, value);
        }
        self.fields.end();
        self.times.push(time);
        self.text_bytes += message.map_or(0, str::len);
        self.messages.append_option(message);
        if self.times.len() == BATCH_ROWS || self.text_bytes >= BATCH_BYTES { self.cut() } else { Ok(()) }
    }

    fn cut(&mut self) -> Result<()> {
        self.text_bytes = 0;
        let times = TimestampNanosecondArray::from(std::mem::take(&mut self.times)).with_timezone("UTC");
        let (messages, fields) = (self.messages.finish(), std::mem::take(&mut self.fields).finish()?);
        let columns: Vec<ArrayRef> = vec![Arc::new(times), Arc::new(messages), Arc::new(fields)];
        let batch = RecordBatch::try_new(log_schema(), columns);
        self.rows.add(batch.map_err(|e| Error::internal("cannot build rows of LogsQL").with_source(e))?)
    }
}

impl SqlLanguages {
    async fn logs(
        &self,
        query: &str,
        stored: StoredData,
        access: &DomainAccess,
        ctx: &QueryContext,
        rows: &mut CallRows,
    ) -> Result<()> {
        let parsed = parse(query)?;
        let now_ns = stored.now_ms.saturating_mul(1_000_000);
        let scope = QueryScope { now_ns, start_ns: None, end_ns: None, extra: Vec::new() };
        // A context of its own: the run ends everything in its context, while the rows are read later, by the
        // statement.
        let own = ctx.another_run_as(access.get(Domain::Logs));
        let logsql = self.logsql.at(stored.logs);
        let mut records = Records::new(rows);
        logsql.each_row(&parsed, &scope, &own, |fields| records.push(fields)).await?;
        records.cut()
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
    use quiver_query::tables::{TableEntry, TableRequest};
    use quiver_query::{EngineSettings, Limits, QueryEngine};
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

    /// No rows yet, of a query in an engine of so much memory.
    fn none_of(memory_bytes: usize) -> CallRows {
        let engine = QueryEngine::new(&EngineSettings::small(memory_bytes)).unwrap();
        CallRows::new(engine.collected("rows", &QueryContext::new(Access::full(), Limits::default())))
    }

    /// Rows of each batch.
    fn counts(rows: CallRows) -> Vec<usize> {
        rows.into_parts().0.iter().map(RecordBatch::num_rows).collect()
    }

    /// The number of rows of a call within a statement over these tables.
    async fn count(languages: &SqlLanguages, call: &Call, tables: &Then) -> usize {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let mut rows = none_of(64 << 20);
        languages.call(call, tables, &DomainAccess::full(), &ctx, &mut rows).await.unwrap();
        counts(rows).iter().sum()
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
        let mut rows = none_of(1 << 20);
        points(&QueryValue::Scalar { time_ms: 5, value: 0.5 }, &ctx, &mut rows).unwrap();
        let text = QueryValue::String { time_ms: 5, text: String::new() };
        assert_eq!(points(&text, &ctx, &mut rows).unwrap_err().kind, ErrorKind::Invalid);
        assert_eq!(counts(rows), [1]);
        assert_eq!(nanos("1970-01-01T00:00:00.000000005Z"), Some(5));
        assert_eq!(nanos("no time"), None);
    }

    /// Rows of many values come in batches of limited size, all with the announced columns.
    #[test]
    fn batches_of_points() {
        let mut rows = none_of(64 << 20);
        let mut points = Points::new(&mut rows);
        for n in 0..BATCH_ROWS + 3 {
            let labels = [("a", "1"), ("b", "2")];
            points.push(n as i64, 0.5, labels.into_iter().take(n % 3)).unwrap();
        }
        points.cut().unwrap();
        let (batches, _memory) = rows.into_parts();
        assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH_ROWS, 3]);
        let times = |batch: &RecordBatch| {
            let times = batch.column(0).as_any().downcast_ref::<TimestampMillisecondArray>().unwrap();
            times.values().to_vec()
        };
        assert!(batches.iter().all(|batch| batch.schema() == point_schema()));
        let last = BATCH_ROWS as i64;
        assert_eq!(times(&batches[0])[BATCH_ROWS - 1], last - 1);
        assert_eq!(times(&batches[1]), [last, last + 1, last + 2]);
        let shown = |row| arrow::util::display::array_value_to_string(batches[0].column(2), row).unwrap();
        assert_eq!([0, 1, 2].map(shown), ["{}", "{a: 1}", "{a: 1, b: 2}"]);
    }

    /// A range of 10,000 steps is small; its rows repeat long labels.
    #[test]
    fn rows_with_long_texts_count_as_they_are_made() {
        let long = "x".repeat(100 << 10);
        let mut rows = none_of(16 << 20);
        let mut points = Points::new(&mut rows);
        let refused = (0..10_000).find_map(|n| points.push(n, 0.5, [("a", long.as_str())].into_iter()).err());
        assert_eq!(refused.map(|e| e.kind), Some(ErrorKind::LimitExceeded));
        let (batches, _memory) = rows.into_parts();
        assert!(batches.iter().all(|batch| batch.num_rows() == 11), "of a mebibyte");
        assert!(batches.len() < 16, "{}", batches.len());
        let mut rows = none_of(16 << 20);
        let mut records = Records::new(&mut rows);
        let fields = [(TIME, "1970-01-01T00:00:01Z"), (MSG, long.as_str()), ("b", ""), ("a", "1")];
        let refused = (0..10_000).find_map(|_| records.push(&mut fields.into_iter()).err());
        assert_eq!(refused.map(|e| e.kind), Some(ErrorKind::LimitExceeded));
        let shown = arrow::util::display::array_value_to_string(rows.into_parts().0[0].column(2), 10).unwrap();
        assert_eq!(shown, "{a: 1, b: }");
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
