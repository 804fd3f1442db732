//! What alerting did: `alert_events`, `alert_actions`, `rule_evaluations`, `notifications`; what the server was asked
//! and stores, and the health of resources: `query_log`, `ingest_usage_1m`, `storage_stats`, `resource_health`.
//!
//! Callers who may view the whole system see all queries; others see their own, without numbers that reveal the size
//! of data.
//!
//! All rows are in memory before the first is emitted (`at_once`); only the columns that a statement names are read,
//! and only parts in its time range.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, Float64Array, MapArray, RecordBatch, StringViewArray, StringViewBuilder,
    TimestampMillisecondArray, new_null_array,
};
use arrow::compute::{filter_record_batch, nullif};
use arrow::datatypes::{DataType, Field, Float64Type, Schema, SchemaRef, TimeUnit, TimestampMillisecondType};
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result as DataFusionResult;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown};
use datafusion::physical_plan::ExecutionPlan;
use futures::future::BoxFuture;
use quiver_types::source::RowSnapshot;
use quiver_types::tables::TableDef;
use quiver_types::tables::history::{ALERT_ACTIONS, RULE_EVALUATIONS, SERVICE, SILENCE_SERVICES, services_in};
use quiver_types::tables::record_tables::numbered;
use quiver_types::tables::usage::{INGEST_USAGE, QUERY_LOG, RESOURCE_HEALTH, STORAGE_STATS};
use quiver_types::{Access, Domain, Error, MillisRange, Pins, ReadStats, Result};

use super::cells::{text, text_map, texts, time};
use super::convert::batch;
use super::encoding::{WrittenHistory, WrittenRows};
use super::filter_lowering::{Condition, Lower, LoweredFilter, lower_all, nanos_of, range_of, supported};
use super::materialized::{ReadAtOnce, at_once};
use super::named_table::{Ask, NamedTable};
use crate::encoding::context::{At, damaged, pinned};
use crate::table_provider::table_by_plan;

/// The column with the service of a row.
const SERVICE_NAME: &str = "service_name";
/// The column with the caller of a query, who may see its rows.
const SUBJECT: &str = "subject";
/// Columns that reveal something about rows that a caller may not see, in the rows of his own queries, of rules that
/// read more than he may, and of requests that carried more: how much data there is, and whether some was written
/// since an answer was cached.
const OF_ALL: [&str; 8] =
    ["cpu_ms", "scanned_bytes", "scanned_rows", "pruned_files", "total_files", "peak_memory", "kept", "latency_ms"];
/// The same for rows of rules, which read what their last editors may view.
const OF_RULES: [&str; 2] = ["result_series", "error"];
/// Columns of actions that describe a silence. A caller may see an alert, but not the silence that mutes it.
const OF_SILENCES: [&str; 3] = ["actor", "subject", "comment"];
/// Maps whose entries can be named as columns: `labels.team`.
const MAPS: [&str; 2] = ["labels", "annotations"];

#[derive(Debug)]
pub(super) struct HistoryTable(pub(super) &'static TableDef);

/// The map and the key that a column name refers to.
pub(super) fn entry_of(column: &str) -> Option<(&str, &str)> {
    column.split_once('.').filter(|(map, key)| MAPS.contains(map) && !key.is_empty())
}

/// The stored column that a column is computed from.
fn stored(column: &str) -> &str {
    match entry_of(column) {
        Some((map, _)) => map,
        None if column == SERVICE_NAME => SERVICE,
        None => column,
    }
}

fn shown(field: &Field) -> Field {
    let name = field.name().as_str();
    match field.data_type() {
        _ if name == SERVICE => text(SERVICE_NAME),
        DataType::Utf8 => text(name),
        DataType::Map(..) => text_map(name),
        DataType::Timestamp(..) => time(name, TimeUnit::Millisecond),
        other => Field::new(name, other.clone(), true),
    }
}

impl NamedTable for HistoryTable {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn domain(&self) -> Domain {
        match self.0.number {
            n if n == RULE_EVALUATIONS.number => Domain::Alerting,
            n if [&INGEST_USAGE, &QUERY_LOG, &STORAGE_STATS].iter().any(|table| table.number == n) => Domain::System,
            n if n == RESOURCE_HEALTH.number => Domain::Resources,
            _ => Domain::Alerts,
        }
    }

    fn columns(&self) -> SchemaRef {
        let stored = self.0.columns();
        let all = stored.fields().iter().filter(|field| field.name() != SILENCE_SERVICES);
        Arc::new(Schema::new(all.map(|field| shown(field)).collect::<Vec<_>>()))
    }

    fn finds(&self, column: &str) -> bool {
        entry_of(column).is_some_and(|(map, _)| self.columns().column_with_name(map).is_some())
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let mut fields: Vec<Field> = self.columns().fields().iter().map(|f| (**f).clone()).collect();
            fields.extend(ask.found.iter().map(text));
            let access = ask.access(self.domain());
            let caller = &ask.ctx.query().asked.caller;
            let is_own = self.0.number == QUERY_LOG.number && !access.is_full() && !caller.is_empty();
            Ok(Arc::new(HistoryProvider {
                table: self.0,
                schema: Arc::new(Schema::new(fields)),
                snapshot: Arc::clone(&ask.sources.rows),
                access,
                own: is_own.then(|| caller.clone()),
            }) as Arc<dyn TableProvider>)
        })
    }
}

/// The table for one statement.
#[derive(Debug)]
struct HistoryProvider {
    table: &'static TableDef,
    schema: SchemaRef,
    snapshot: Arc<dyn RowSnapshot>,
    access: Access,
    /// The caller whose rows are returned; `None` for all.
    own: Option<String>,
}

/// What a scan reads.
#[derive(Debug)]
pub(super) struct HistoryScan {
    table: &'static TableDef,
    schema: SchemaRef,
    snapshot: Arc<dyn RowSnapshot>,
    access: Access,
    own: Option<String>,
    range: MillisRange,
}

impl ReadAtOnce for HistoryScan {
    fn table(&self) -> &'static str {
        self.table.name
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn read<'a>(&'a self, _: &'a Arc<TaskContext>, stats: &'a ReadStats) -> BoxFuture<'a, Result<Vec<RecordBatch>>> {
        Box::pin(async move {
            let mut columns: Vec<&str> = self.schema.fields().iter().map(|field| stored(field.name())).collect();
            // A statement that only counts rows names no columns.
            columns.push("time");
            let full = Access::full();
            let mut access = &self.access;
            if self.own.is_some() {
                columns.push(SUBJECT);
                access = &full;
                stats.hide();
            }
            let of_actions = self.table.number == ALERT_ACTIONS.number && !self.access.is_full();
            if of_actions {
                columns.push(SILENCE_SERVICES);
            }
            columns.sort_unstable();
            columns.dedup();
            let rows = self.snapshot.rows(self.table, &columns, access, self.range, stats).await?;
            let of_rules = self.table.number == RULE_EVALUATIONS.number;
            let hides = |name: &str| OF_ALL.contains(&name) || of_rules && OF_RULES.contains(&name);
            let hides = |name: &str| !self.access.is_full() && hides(name);
            let shown = |one: &RecordBatch| match &self.own {
                Some(caller) => cells(&rows_of(one, caller)?, &self.schema, hides),
                None if of_actions => cells(&without_silences(one, &self.access)?, &self.schema, hides),
                None => cells(one, &self.schema, hides),
            };
            rows.iter().map(shown).collect()
        })
    }

    fn written(&self, at: &At<'_>) -> DataFusionResult<WrittenRows> {
        Ok(WrittenRows::History(WrittenHistory {
            table: self.table.number,
            schema: at.write_schema(&self.schema)?,
            snapshot: Pins::of_process().pin(&self.snapshot),
            access: self.access.clone(),
            own: self.own.clone(),
            range: self.range,
        }))
    }
}

impl HistoryScan {
    /// Reads the form that [`ReadAtOnce::written`] returns.
    pub(super) fn read_from(rows: WrittenHistory, at: &At<'_>) -> DataFusionResult<Self> {
        Ok(Self {
            table: numbered(rows.table).ok_or_else(|| damaged("there is no such table"))?,
            schema: at.forms.read_schema(&rows.schema)?,
            snapshot: pinned::<dyn RowSnapshot>(rows.snapshot)?,
            access: rows.access,
            own: rows.own,
            range: rows.range,
        })
    }
}

/// Translates conditions on the time of rows; all others stay in the plan.
struct ByTime;

impl Lower for ByTime {
    type Filter = MillisRange;

    fn condition(&self, column: &str, condition: &Condition<'_>) -> Option<LoweredFilter<MillisRange>> {
        let Condition::Compare(op, value) = condition else { return None };
        let (nanos, _) = nanos_of(value).filter(|_| column == "time")?;
        let (min, max) = range_of(*op, nanos)?;
        Some(LoweredFilter::wider(MillisRange::new(min.div_euclid(1_000_000), max.div_euclid(1_000_000))))
    }

    fn all_of(filters: Vec<MillisRange>) -> MillisRange {
        let both = |a: MillisRange, b: MillisRange| MillisRange::new(a.min.max(b.min), a.max.min(b.max));
        filters.into_iter().fold(MillisRange::ALL, both)
    }

    fn any_of([a, b]: [MillisRange; 2]) -> Option<MillisRange> {
        Some(a.union(&b))
    }
}

impl TableProvider for HistoryProvider {
    table_by_plan!();

    fn supports_filters_pushdown(&self, filters: &[&Expr]) -> DataFusionResult<Vec<TableProviderFilterPushDown>> {
        Ok(supported(&ByTime, filters))
    }
}

impl HistoryProvider {
    fn plan<'a>(
        &'a self,
        _: &'a dyn Session,
        projection: Option<&'a Vec<usize>>,
        filters: &'a [Expr],
        limit: Option<usize>,
    ) -> BoxFuture<'a, DataFusionResult<Arc<dyn ExecutionPlan>>> {
        Box::pin(async move {
            let all: Vec<usize> = (0..self.schema.fields().len()).collect();
            let schema = Arc::new(self.schema.project(projection.unwrap_or(&all))?);
            let range = ByTime::all_of(lower_all(&ByTime, filters));
            let (snapshot, access, own) = (Arc::clone(&self.snapshot), self.access.clone(), self.own.clone());
            Ok(at_once(HistoryScan { table: self.table, schema, snapshot, access, own, range }, limit))
        })
    }
}

/// Keeps the rows of one caller.
fn rows_of(rows: &RecordBatch, caller: &str) -> Result<RecordBatch> {
    let subjects = rows.column_by_name(SUBJECT).and_then(|c| c.as_string_opt::<i32>()).ok_or_else(|| odd(SUBJECT))?;
    let keep: BooleanArray = subjects.iter().map(|subject| Some(subject == Some(caller))).collect();
    filter_record_batch(rows, &keep).map_err(|e| Error::internal("rows cannot be chosen").with_source(e))
}

/// Leaves out of actions what they tell of silences that a caller may not see.
fn without_silences(rows: &RecordBatch, access: &Access) -> Result<RecordBatch> {
    let about = rows.column_by_name(SILENCE_SERVICES).and_then(|c| c.as_string_opt::<i32>());
    let about = about.ok_or_else(|| odd(SILENCE_SERVICES))?;
    let is_hidden = |text: &str| !services_in(text).any(|service| access.allows(&service));
    let hidden: BooleanArray = about.iter().map(|text| Some(text.is_none_or(is_hidden))).collect();
    let column = |(field, stored): (&Arc<Field>, &ArrayRef)| {
        if !OF_SILENCES.contains(&field.name().as_str()) {
            return Ok((Arc::clone(field), Arc::clone(stored)));
        }
        let kept = nullif(stored, &hidden).map_err(|e| Error::internal("cells cannot be hidden").with_source(e))?;
        Ok((Arc::new(field.as_ref().clone().with_nullable(true)), kept))
    };
    let schema = rows.schema();
    let (fields, columns): (Vec<_>, Vec<_>) =
        schema.fields().iter().zip(rows.columns()).map(column).collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let rows = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns);
    rows.map_err(|e| Error::internal("cells cannot be hidden").with_source(e))
}

/// Computes a statement's columns from stored ones, without those that reveal rows which the caller may not see.
fn cells(rows: &RecordBatch, schema: &SchemaRef, hides: impl Fn(&str) -> bool) -> Result<RecordBatch> {
    let column = |field: &Arc<Field>| {
        let name = field.name().as_str();
        if hides(name) {
            return Ok(new_null_array(field.data_type(), rows.num_rows()));
        }
        let stored = rows.column_by_name(stored(name)).ok_or_else(|| odd(name))?;
        match entry_of(name) {
            Some((_, key)) => Ok(entry(stored.as_map_opt().ok_or_else(|| odd(name))?, key)),
            None => cell(stored, field),
        }
    };
    let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
    batch(schema, columns, rows.num_rows())
}

fn odd(name: &str) -> Error {
    Error::internal(format!("the stored column of `{name}` is missing, or is of another type"))
}

fn cell(stored: &ArrayRef, field: &Field) -> Result<ArrayRef> {
    let name = field.name();
    Ok(match stored.data_type() {
        DataType::Utf8 if name == SERVICE_NAME => Arc::new(services(stored).ok_or_else(|| odd(name))?),
        DataType::Utf8 => Arc::new(texts(stored).ok_or_else(|| odd(name))?),
        // A time of 0 means none, except for the time of the row itself.
        DataType::Timestamp(..) if name != "time" => {
            let times = stored.as_primitive_opt::<TimestampMillisecondType>().ok_or_else(|| odd(name))?;
            let some = times.values().iter().map(|t| Some(*t).filter(|t| *t != 0));
            Arc::new(some.collect::<TimestampMillisecondArray>().with_timezone("UTC"))
        }
        DataType::Float64 => {
            let numbers = stored.as_primitive_opt::<Float64Type>().ok_or_else(|| odd(name))?;
            let some = numbers.values().iter().map(|n| Some(*n).filter(|n| !n.is_nan()));
            Arc::new(some.collect::<Float64Array>())
        }
        _ => Arc::clone(stored),
    })
}

/// The services of rows by their names, one per line.
fn services(stored: &ArrayRef) -> Option<StringViewArray> {
    let written = texts(stored)?;
    if written.iter().flatten().all(|text| !text.contains('\\')) {
        return Some(written);
    }
    let named = |text: &str| services_in(text).collect::<Vec<_>>().join("\n");
    Some(written.iter().map(|text| text.map(named)).collect())
}

/// The value of a key in each map, NULL if it is missing.
fn entry(maps: &MapArray, key: &str) -> ArrayRef {
    let mut out = StringViewBuilder::new();
    for row in 0..maps.len() {
        let entries = maps.value(row);
        let (keys, values) = (entries.column(0).as_string::<i32>(), entries.column(1).as_string::<i32>());
        let found = (0..keys.len()).find(|&i| keys.value(i) == key).map(|i| values.value(i));
        out.append_option(found.filter(|text| !text.is_empty()));
    }
    Arc::new(out.finish())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use arrow::array::{Int64Array, StringArray};
    use async_trait::async_trait;
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{col, lit};
    use datafusion::physical_plan::collect;
    use datafusion::prelude::{SessionConfig, SessionContext};
    use parking_lot::Mutex;
    use quiver_types::ErrorKind;

    use super::*;
    use crate::node_encoding::tests::passed;
    use crate::tables::cells::TextMaps;
    use crate::tables::filter_lowering::lower;

    /// Counts how often its rows are read.
    #[derive(Debug, Default)]
    struct Asked(AtomicUsize);

    #[async_trait]
    impl RowSnapshot for Asked {
        async fn rows(
            &self,
            _: &'static TableDef,
            columns: &[&str],
            _: &Access,
            range: MillisRange,
            _: &ReadStats,
        ) -> Result<Vec<RecordBatch>> {
            assert_eq!((columns, range), (&["time"][..], MillisRange::ALL));
            self.0.fetch_add(1, Relaxed);
            Ok(Vec::new())
        }
    }

    #[tokio::test]
    async fn rows_are_read_when_a_plan_runs() {
        let asked = Arc::new(Asked::default());
        let table = HistoryTable(&RULE_EVALUATIONS);
        let snapshot: Arc<dyn RowSnapshot> = Arc::<Asked>::clone(&asked);
        let (schema, access) = (table.columns(), Access::full());
        let provider = HistoryProvider { table: table.0, schema, snapshot, access, own: None };
        let session = SessionContext::new();
        let plan = provider.scan(&session.state(), Some(&Vec::new()), &[], None).await.unwrap();
        assert_eq!(asked.0.load(Relaxed), 0, "it is only planned");
        let (read, names) = passed(Arc::clone(&plan));
        assert_eq!(names, BTreeSet::from(["AtOnceExec".to_owned()]));
        // The plan runs twice, and once after it was serialized and read.
        for (plan, runs) in [&plan, &plan, &read].into_iter().zip(1..) {
            assert!(collect(Arc::clone(plan), session.task_ctx()).await.unwrap().is_empty());
            assert_eq!(asked.0.load(Relaxed), runs);
        }
    }

    #[test]
    fn services_have_their_names() {
        let check = |stored: &[&str], shown: &[Option<&str>]| {
            let stored: ArrayRef = Arc::new(StringArray::from(stored.to_vec()));
            assert_eq!(services(&stored).unwrap().iter().collect::<Vec<_>>(), shown);
        };
        check(&["cart", "", "a\nb"], &[Some("cart"), None, Some("a\nb")]);
        check(&[r"a\nb", "", r"c\\d"], &[Some("a\nb"), None, Some(r"c\d")]);
    }

    #[test]
    fn who_sees_not_all_sees_his_own() {
        let said = |values: [&str; 3]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
        let read = Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
        let (who, path) = (said(["ann", "bob", "ann"]), said(["/a", "/b", "/c"]));
        let stored = [(SUBJECT, who), ("path", path), ("scanned_rows", read), ("kept", said(["hit", "miss", "hit"]))];
        let stored = RecordBatch::try_from_iter(stored).unwrap();
        let fields = vec![text("path"), Field::new("scanned_rows", DataType::Int64, true), text("kept")];
        let schema = Arc::new(Schema::new(fields));
        let shown = cells(&rows_of(&stored, "ann").unwrap(), &schema, |name| OF_ALL.contains(&name)).unwrap();
        let paths: Vec<_> = texts(shown.column(0)).unwrap().iter().flatten().map(str::to_owned).collect();
        let nulls = |rows: &RecordBatch| [1, 2].map(|column| rows.column(column).null_count());
        assert_eq!((paths, nulls(&shown)), (vec!["/a".to_owned(), "/c".to_owned()], [2, 2]));
        assert_eq!(nulls(&cells(&stored, &schema, |_| false).unwrap()), [0, 0]);
        assert_eq!(rows_of(&stored, "an").unwrap().num_rows(), 0);
    }

    #[test]
    fn who_does_not_see_a_silence_is_not_told_of_it() {
        let said = |values: [&str; 4]| Arc::new(StringArray::from(values.to_vec())) as ArrayRef;
        let stored = RecordBatch::try_from_iter([
            ("actor", said(["ann", "bob", "eve", ""])),
            ("action", said(["silence", "unsilence", "silence", "inhibit"])),
            (SILENCE_SERVICES, said(["cart", "pay\ncart", "pay", ""])),
        ]);
        let fields = vec![text("actor"), text("action")];
        let rows = without_silences(&stored.unwrap(), &Access::services(["cart"])).unwrap();
        let shown = cells(&rows, &Arc::new(Schema::new(fields)), |_| false).unwrap();
        let texts = |column: usize| texts(shown.column(column)).unwrap();
        assert_eq!(texts(0).iter().collect::<Vec<_>>(), [Some("ann"), Some("bob"), None, None]);
        assert_eq!(texts(1).null_count(), 0, "that it is held back is no secret");
    }

    /// Queries of two callers; records the rights with which they were read.
    #[derive(Debug, Default)]
    struct Queries(Mutex<Vec<bool>>);

    #[async_trait]
    impl RowSnapshot for Queries {
        async fn rows(
            &self,
            _: &'static TableDef,
            columns: &[&str],
            access: &Access,
            _: MillisRange,
            _: &ReadStats,
        ) -> Result<Vec<RecordBatch>> {
            self.0.lock().push(access.is_full());
            let column = |name: &&str| -> (String, ArrayRef) {
                let column: ArrayRef = match *name {
                    "time" => Arc::new(TimestampMillisecondArray::from(vec![1, 2]).with_timezone("UTC")),
                    "scanned_rows" => Arc::new(Int64Array::from(vec![70, 80])),
                    SUBJECT => Arc::new(StringArray::from(vec!["ann", "bob"])),
                    other => Arc::new(StringArray::from(vec![format!("{other} 1"), format!("{other} 2")])),
                };
                ((*name).to_owned(), column)
            };
            Ok(vec![RecordBatch::try_from_iter(columns.iter().map(column)).unwrap()])
        }
    }

    #[tokio::test]
    async fn own_queries_are_read_whatever_else_may_be_seen() {
        for (access, own, paths, scanned, is_hidden) in [
            (Access::full(), None, vec!["path 1", "path 2"], 0, false),
            (Access::services(["cart"]), Some("bob"), vec!["path 2"], 1, true),
            (Access::services(["cart"]), Some("eve"), vec![], 0, true),
        ] {
            let asked = Arc::new(Queries::default());
            let fields = vec![text("path"), Field::new("scanned_rows", DataType::Int64, true)];
            let provider = HistoryProvider {
                table: &QUERY_LOG,
                schema: Arc::new(Schema::new(fields)),
                snapshot: Arc::<Queries>::clone(&asked),
                access,
                own: own.map(str::to_owned),
            };
            let stats = Arc::new(ReadStats::default());
            let session = SessionContext::new_with_config(SessionConfig::new().with_extension(Arc::clone(&stats)));
            let plan = provider.scan(&session.state(), None, &[], None).await.unwrap();
            let rows = collect(plan, session.task_ctx()).await.unwrap();
            let found: Vec<&str> =
                rows.iter().flat_map(|rows| rows.column(0).as_string_view().iter().flatten()).collect();
            assert_eq!(found, paths);
            let nulls: usize = rows.iter().map(|rows| rows.column(1).null_count()).sum();
            assert_eq!((nulls, stats.is_hidden()), (scanned, is_hidden), "{own:?} is not told how much was read");
            assert_eq!(*asked.0.lock(), [true], "rows are cut to those of their caller here");
        }
    }

    #[test]
    fn times_are_read_out_of_conditions() {
        let at = |ns: i64| lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())));
        let range =
            |expr: &Expr| lower(&ByTime, expr).map(|lowered| (lowered.filter.min, lowered.filter.max, lowered.exact));
        let ms = 1_000_000;
        let last = i64::MAX.div_euclid(ms);
        let first = i64::MIN.div_euclid(ms);
        for (expr, expected) in [
            (col("time").gt_eq(at(5 * ms)), Some((5, last, false))),
            (col("time").gt_eq(at(-1)), Some((-1, last, false))),
            (col("time").lt(at(5 * ms)), Some((first, 4, false))),
            (col("time").eq(at(5 * ms + 1)), Some((5, 5, false))),
            (col("time").between(at(ms), at(3 * ms)), Some((1, 3, false))),
            (col("time").between(at(ms), at(3 * ms)).and(col("path").eq(lit("a"))), Some((1, 3, false))),
            (col("time").eq(at(ms)).or(col("time").eq(at(9 * ms))), Some((1, 9, false))),
            (col("time").eq(at(ms)).or(col("path").eq(lit("a"))), None),
            (col("starts_at").eq(at(ms)), None),
            (col("time").not_eq(at(ms)), None),
            (col("time").is_null(), None),
        ] {
            assert_eq!(range(&expr), expected, "{expr}");
        }
        let all = ByTime::all_of(Vec::new());
        assert_eq!((all.min, all.max), (i64::MIN, i64::MAX));
    }

    #[test]
    fn entries_of_maps_are_columns() {
        for (name, expected) in [
            ("labels.team", Some(("labels", "team"))),
            ("annotations.a.b", Some(("annotations", "a.b"))),
            ("labels.", None),
            ("labels", None),
            ("value.a", None),
            ("", None),
        ] {
            assert_eq!(entry_of(name), expected, "{name}");
        }
        let mut maps = TextMaps::default();
        for entries in [&[("a", "1"), ("b", "")][..], &[], &[("b", "2")]] {
            for (key, value) in entries {
                maps.push(key, value);
            }
            maps.end();
        }
        let maps = maps.finish().unwrap();
        for (key, expected) in [("a", [Some("1"), None, None]), ("b", [None, None, Some("2")]), ("c", [None; 3])] {
            assert_eq!(entry(&maps, key).as_string_view().iter().collect::<Vec<_>>(), expected, "{key}");
        }
    }

    #[test]
    fn what_stands_for_nothing_is_null() {
        let times = |values: [i64; 2]| Arc::new(TimestampMillisecondArray::from(values.to_vec()).with_timezone("UTC"));
        let stored = RecordBatch::try_from_iter([
            ("time", times([0, 5]) as ArrayRef),
            ("ends_at", times([0, 5]) as ArrayRef),
            ("value", Arc::new(Float64Array::from(vec![f64::NAN, f64::INFINITY])) as ArrayRef),
            (SERVICE, Arc::new(StringArray::from(vec!["", "cart"])) as ArrayRef),
        ]);
        let at = |name: &str| time(name, TimeUnit::Millisecond);
        let fields = vec![at("time"), at("ends_at"), Field::new("value", DataType::Float64, true), text(SERVICE_NAME)];
        let stored = stored.unwrap();
        let rows = cells(&stored, &Arc::new(Schema::new(fields)), |_| false).unwrap();
        let nulls: Vec<usize> = rows.columns().iter().map(Array::null_count).collect();
        assert_eq!(nulls, [0, 1, 1, 1], "a row was made at its time, be it 0");
        assert_eq!(rows.column(2).as_primitive::<Float64Type>().value(1), f64::INFINITY);
        let missing = cells(&stored, &Arc::new(Schema::new(vec![text("path")])), |_| false).unwrap_err();
        assert_eq!(missing.kind, ErrorKind::Internal);
        assert!(missing.message.contains("`path`"), "{missing}");
        let no_map = cells(&stored, &Arc::new(Schema::new(vec![text("labels.a")])), |_| false);
        assert_eq!(no_map.unwrap_err().kind, ErrorKind::Internal);
    }
}
