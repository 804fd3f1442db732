//! Table functions and models in statements: what is asked of the languages and of the compiler, and rows of what they give.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use arrow::array::{
    ArrayRef, Float64Array, MapBuilder, RecordBatch, StringArray, StringBuilder, TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::catalog::{MemTable, TableProvider};
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, lit};
use futures::future::BoxFuture;
use quiver_query::tables::models::{ModelPlan, ModelRows, ModelSelect, Models, OLAP_SCHEMA, as_measure};
use quiver_query::tables::{DomainAccess, PUBLIC_SCHEMA, TableEntry, TableRequest, TableSnapshot, Tables};
use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine, from_datafusion};
use quiver_types::{Access, Domain, ErrorKind, Result};

use super::{LITTLE, asked, language, rows_of};
use crate::engine::{Request, SqlEngine};
use crate::parse::{Param, Params};
use crate::table_functions::{Call, CallRows, Languages};

/// A language whose rows say what was asked: the times of a range, and maps with the expression.
#[derive(Debug)]
struct Told;

fn told(times_ms: Vec<i64>, expression: &str, is_logs: bool) -> RecordBatch {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for _ in &times_ms {
        for (key, value) in [("asked", expression), ("Level", "warn"), ("empty", "")] {
            maps.keys().append_value(key);
            maps.values().append_value(value);
        }
        maps.append(true).expect("a map");
    }
    let maps: ArrayRef = Arc::new(maps.finish());
    let count = times_ms.len();
    let values: ArrayRef = if is_logs {
        Arc::new(StringArray::from(vec!["m"; count]))
    } else {
        Arc::new(Float64Array::from_iter_values((0..count).map(|at| at as f64)))
    };
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(times_ms).with_timezone("UTC"));
    let names = if is_logs { ["time", "message", "fields"] } else { ["time", "value", "labels"] };
    RecordBatch::try_from_iter(names.into_iter().zip([times, values, maps])).expect("rows")
}

#[async_trait]
impl Languages for Told {
    async fn call(
        &self,
        call: &Call,
        _: &dyn TableSnapshot,
        _: &DomainAccess,
        _: &QueryContext,
        rows: &mut CallRows,
    ) -> Result<()> {
        let told = match call {
            Call::PromqlInstant { expr, time_ms } => told(vec![*time_ms], expr, false),
            Call::PromqlRange { expr, start_ms, end_ms, step_ms } => {
                let times = std::iter::successors(Some(*start_ms), |time| Some(time + step_ms));
                told(times.take_while(|time| time <= end_ms).collect(), expr, false)
            }
            Call::Logsql { query } => told(vec![0], query, true),
        };
        rows.add(told)
    }

    fn columns(&self, name: &str) -> SchemaRef {
        told(Vec::new(), "", name == "logsql").schema()
    }
}

/// A model whose one row says what was asked: columns have the texts of their expressions, measures the number of conditions.
#[derive(Debug)]
struct Modelled;

impl Models for Modelled {
    fn list(&self, _: &DomainAccess) -> Vec<TableEntry> {
        let text = |name: &str| Field::new(name, DataType::Utf8, true);
        let measure = as_measure(Field::new("count", DataType::Int64, true));
        let columns = Arc::new(Schema::new(vec![text("role"), text("name"), measure]));
        vec![TableEntry { schema: OLAP_SCHEMA, name: "Hosts".to_owned(), columns }]
    }

    fn finds(&self, _: &str, member: &str) -> bool {
        member == "attr"
    }

    fn select<'a>(
        &'a self,
        select: &'a ModelSelect,
        _: &'a Arc<dyn TableSnapshot>,
        _: &'a DomainAccess,
        _: &'a QueryContext,
    ) -> BoxFuture<'a, Result<ModelPlan>> {
        let columns = select.columns.iter().map(|(name, expr)| lit(expr.to_string()).alias(name.as_str()));
        let filters = i64::try_from(select.filters.len()).expect("a number");
        let measures = select.measures.iter().map(|(name, _)| lit(filters).alias(name.as_str()));
        let plan = LogicalPlanBuilder::empty(true)
            .project(columns.chain(measures).collect::<Vec<_>>())
            .and_then(LogicalPlanBuilder::build)
            .map_err(from_datafusion);
        Box::pin(async move { Ok(ModelPlan { plan: plan?, texts: [("m".to_owned(), "SELECT 1".to_owned())].into() }) })
    }

    fn rows<'a>(
        &'a self,
        rows: &'a ModelRows,
        _: &'a Arc<dyn TableSnapshot>,
        _: &'a DomainAccess,
        _: &'a QueryContext,
    ) -> BoxFuture<'a, Result<LogicalPlan>> {
        let range = rows.range_ns.map_or(-1, |(from, to)| to - from);
        let values = [
            lit(rows.model.as_str()).alias("who"),
            lit(range).alias("ns"),
            lit(rows.columns.join("+")).alias("listed"),
        ];
        let plan = LogicalPlanBuilder::empty(true).project(values).and_then(LogicalPlanBuilder::build);
        Box::pin(async move { plan.map_err(from_datafusion) })
    }
}

fn sql() -> &'static SqlEngine {
    static SQL: OnceLock<SqlEngine> = OnceLock::new();
    SQL.get_or_init(|| {
        let engine = Arc::clone(&language().1.engine);
        SqlEngine::new(engine, Arc::new(LITTLE), Arc::new(Modelled), Arc::new(Told))
    })
}

/// Names and rows, as [`super::shown`] has them.
fn check(request: Request, names: &str, expected: &[&str]) {
    let text = request.text.clone();
    let (found, rows) = rows_of(sql(), request, &DomainAccess::full()).unwrap_or_else(|e| panic!("{text}: {e}"));
    assert_eq!(found.join("|"), names, "{text}");
    let row = |row: Vec<Option<String>>| {
        row.into_iter().map(|value| value.unwrap_or_else(|| "-".to_owned())).collect::<Vec<_>>().join("|")
    };
    assert_eq!(rows.into_iter().map(row).collect::<Vec<_>>(), expected, "{text}");
}

fn refused(text: &str, access: &DomainAccess) -> (ErrorKind, String) {
    let error = rows_of(sql(), asked(text), access).expect_err(text);
    (error.kind, error.message)
}

#[test]
fn languages_are_tables() {
    check(asked("select value, asked from promql_instant('up', 5)"), "value|asked", &["0.0|up"]);
    check(asked("select count(*) as n, max(value) as m from promql_range('up', 0, 60, '20s')"), "n|m", &["4|3.0"]);
    // Labels are names as they are, and an empty one is none.
    check(
        asked("select message, \"Level\", level, empty from logsql('*')"),
        "message|Level|level|empty",
        &["m|warn|-|-"],
    );
    check(asked("select asked from logsql('a' || 'b')"), "asked", &["ab"]);
    check(asked("select asked from promql_instant('up', case when true then '5' else 6 end)"), "asked", &["up"]);
    let params = Params::positional(vec![Param::Text("level:'x'".to_owned())]);
    check(Request { params, ..asked("select asked from logsql($1)") }, "asked", &["level:'x'"]);
    check(
        asked("select h.name, p.asked, p.value from hosts h join promql_instant('b', 5) p on p.asked = h.name"),
        "name|asked|value",
        &["b|b|0.0"],
    );
    check(asked("select h.name from (promql_instant('c', 5) p join hosts h on p.asked = h.name)"), "name", &["c"]);
}

/// Tables each moment of which is a number: the only table has it, and the language gives it as a time.
#[derive(Debug, Default)]
struct Moments(AtomicU64);

#[derive(Debug)]
struct Moment(u64);

impl Tables for Moments {
    fn snapshot(&self) -> Arc<dyn TableSnapshot> {
        Arc::new(Moment(self.0.fetch_add(1, Relaxed)))
    }
}

impl TableSnapshot for Moment {
    fn table<'a>(
        &'a self,
        _: &'a TableRequest<'a>,
        _: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn TableProvider>>>> {
        let rows = told(vec![self.0 as i64], "", false);
        let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).expect("a table");
        Box::pin(async move { Ok(Some(Arc::new(table) as Arc<dyn TableProvider>)) })
    }

    fn list(&self, _: &DomainAccess) -> Vec<TableEntry> {
        let columns = told(Vec::new(), "", false).schema();
        vec![TableEntry { schema: PUBLIC_SCHEMA, name: "moment".to_owned(), columns }]
    }

    fn version(&self, _: &TableRequest<'_>) -> Option<u64> {
        Some(self.0)
    }
}

#[async_trait]
impl Languages for Moments {
    async fn call(
        &self,
        _: &Call,
        tables: &dyn TableSnapshot,
        access: &DomainAccess,
        _: &QueryContext,
        rows: &mut CallRows,
    ) -> Result<()> {
        let request = TableRequest { schema: None, name: "moment", columns: &[], access, typed_by: access };
        rows.add(told(vec![tables.version(&request).map_or(-1, |number| number as i64)], "", false))
    }

    fn columns(&self, _: &str) -> SchemaRef {
        told(Vec::new(), "", false).schema()
    }
}

#[test]
fn a_statement_and_its_calls_have_one_moment() {
    let engine = Arc::clone(&language().1.engine);
    let sql = SqlEngine::new(engine, Arc::new(Moments::default()), Arc::new(LITTLE), Arc::new(Moments::default()));
    let text = "select m.time = a.time and a.time = b.time, extract(epoch from a.time) * 1000 \
                from moment m, promql_instant('a', 5) a, promql_range('b', 0, 1, 1) b";
    for moment in ["0.0", "1.0"] {
        let (_, rows) = rows_of(&sql, asked(text), &DomainAccess::full()).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(rows, [["true", moment].map(|value| Some(value.to_owned()))]);
    }
}

/// A language that never ends, unless its rows become too many.
#[derive(Debug, Default)]
struct Endless(AtomicU64);

#[async_trait]
impl Languages for Endless {
    async fn call(
        &self,
        _: &Call,
        _: &dyn TableSnapshot,
        _: &DomainAccess,
        _: &QueryContext,
        rows: &mut CallRows,
    ) -> Result<()> {
        let batch = told((0..8192).collect(), "up", false);
        while self.0.fetch_add(1, Relaxed) < 1000 {
            rows.add(batch.clone())?;
        }
        Ok(())
    }

    fn columns(&self, _: &str) -> SchemaRef {
        told(Vec::new(), "", false).schema()
    }
}

#[test]
fn rows_of_calls_count_as_they_are_made() {
    let engine = QueryEngine::new(&EngineSettings::small(16 << 20)).expect("an engine");
    let endless = Arc::new(Endless::default());
    let sql = SqlEngine::new(engine, Arc::new(LITTLE), Arc::new(LITTLE), Arc::clone(&endless) as Arc<dyn Languages>);
    let found = rows_of(&sql, asked("select count(*) from promql_instant('up', 5)"), &DomainAccess::full());
    assert_eq!(found.unwrap_err().kind, ErrorKind::LimitExceeded);
    let (made, bytes) = (endless.0.load(Relaxed), told((0..8192).collect(), "up", false).get_array_memory_size());
    assert!(made < (16 << 20) / bytes as u64 + 1, "{made} batches of {bytes} bytes were made");
}

#[test]
fn times_of_calls_are_those_of_their_statement() {
    let text = "select time = date_trunc('milliseconds', now()) from promql_instant('up', now())";
    check(asked(text), "?column?", &["true"]);
}

#[test]
fn calls_are_refused_with_what_they_want() {
    for (text, part) in [
        ("select * from logsql(query => '*')", "arguments of `logsql` have no names: `logsql('query')`"),
        ("select * from logsql(random()::text)", "of `logsql` is no constant"),
        ("select * from logsql()", "`logsql` is called as `logsql('query')`"),
        ("select * from logsql(level)", "there is no column `level`"),
        ("select p.job from promql_instant('up', p.at) as p", "there is no column `p.at`"),
        ("select * from promql_range('up', 5, 1e300, '1m')", "is not a time"),
        ("select * from model_rows('Hosts')", "`model_rows` is called as `model_rows('model', from, to, 'column', …)`"),
    ] {
        let (kind, message) = refused(text, &DomainAccess::full());
        assert_eq!(kind, ErrorKind::Invalid, "{text}: {message}");
        assert!(message.contains(part), "{text}: {message}");
    }
    let logs_alone = DomainAccess::of(|domain| match domain {
        Domain::Logs => Access::full(),
        _ => Access::services(Vec::<String>::new()),
    });
    assert!(rows_of(sql(), asked("select asked from logsql('*')"), &logs_alone).is_ok());
    let (kind, message) = refused("select 1 where 5 in (select value from promql_instant('up', 5))", &logs_alone);
    assert_eq!((kind, message.as_str()), (ErrorKind::Forbidden, "this needs the right {view, metrics, *}"));
}

#[test]
fn models_are_asked_for_what_a_statement_speaks_of() {
    let of_model = |text: &str, names: &str, expected: &str| {
        let (found, rows) =
            rows_of(sql(), asked(text), &DomainAccess::full()).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(found.join("|"), names, "{text}");
        let shown: Vec<String> = rows.into_iter().flatten().map(Option::unwrap_or_default).collect();
        // No statement has the letter before names of members.
        assert_eq!(shown.join("|").replace('\u{1}', ""), expected, "{text}");
    };
    of_model(
        r#"select "role", measure("count") as n from olap."Hosts" where "name" = 'a' and "role" > 'b' group by 1"#,
        "role|n",
        "dimension.Hosts.role|2",
    );
    of_model(r#"select "attr" as a from olap."Hosts" where "name" is null"#, "a", "dimension.Hosts.attr");
    of_model(
        r#"select 2 * measure("count") as n from olap."Hosts" group by "role" having measure("count") < 1"#,
        "n",
        "0",
    );
    let day = "'2025-03-10T00:00:00Z', '2025-03-11T00:00:00Z'";
    check(
        asked(format!("select who, ns, listed from model_rows('Hosts', {day}, 'a', 'b.c')")),
        "who|ns|listed",
        &["Hosts|86400000000000|a+b.c"],
    );
    check(asked("select who, ns from model_rows('Hosts', null, null)"), "who|ns", &["Hosts|-1"]);
}

#[test]
fn statements_over_models_are_printed() {
    let plan = |text: &str| {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let access = DomainAccess::full();
        language().0.block_on(async { Box::pin(sql().plan_of_models(asked(text), &access, &ctx)).await })
    };
    let made = plan(r#"select "role", measure("count") as n from olap."Hosts" group by 1"#).unwrap();
    let names: Vec<&str> = made.plan.schema().fields().iter().map(|field| field.name().as_str()).collect();
    assert_eq!(names, ["role", "n"]);
    assert_eq!(made.texts.into_iter().collect::<Vec<_>>(), [("m".to_owned(), "SELECT 1".to_owned())]);
    for (text, part) in [
        ("select name from hosts", "`hosts` is no model, and a statement over models reads these alone"),
        ("explain select measure(\"count\") from olap.\"Hosts\"", "a statement that is printed is no `EXPLAIN`"),
    ] {
        let message = plan(text).expect_err(text).message;
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn calls_are_described_without_being_made() {
    let described = |text: &str| {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let access = DomainAccess::full();
        let found = language().0.block_on(async { Box::pin(sql().describe(asked(text), &[], &access, &ctx)).await });
        let found = found.unwrap_or_else(|e| panic!("{text}: {e}"));
        found.columns.fields().iter().map(|field| field.name().clone()).collect::<Vec<_>>()
    };
    assert_eq!(described("select value, asked from promql_instant('up', 5)"), ["value", "asked"]);
    assert_eq!(described("select time, message from logsql('*')"), ["time", "message"]);
    assert_eq!(described("select measure(\"count\") as n, \"role\" from olap.\"Hosts\" group by 2"), ["n", "role"]);
}
