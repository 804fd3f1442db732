//! Business processes as statements over `spans` and `logs` (`config-api` 3.4): rows that match each step are grouped
//! by the correlation value of the instances, and followed through the steps. Nothing is stored, so a change of a
//! process applies to all history. Rows that a caller may not see do not count as steps.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::catalog::view::ViewTable;
use datafusion::catalog::{MemTable, TableProvider};
use futures::future::BoxFuture;
use quiver_types::condition::FieldName;
use quiver_types::query_configuration::{Process, ProcessStep, StepKind};
use quiver_types::{Domain, Result};
use serde_json::json;

use super::cells::{text, time};
use super::config_columns::when;
use super::logs::LogTable;
use super::named_table::{Ask, NamedTable};
use super::spans::SpanTable;
use super::spans::columns::SpanRowKind;
use crate::error::from_datafusion;
use crate::name_resolution::Names;
use crate::quoting;

/// What is asked about processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProcessRowKind {
    /// One row per instance.
    Instances,
    /// One row per step that an instance reached.
    Steps,
    /// One row per step of an instance, reached or not.
    Funnel,
}

/// A table over all enabled processes.
#[derive(Debug)]
pub(super) struct ProcessTable(pub(super) ProcessRowKind);

/// A statement, and the columns that it finds by name.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Statement {
    /// The statement as SQL.
    pub text: String,
    spans: BTreeSet<String>,
    logs: BTreeSet<String>,
}

impl Statement {
    fn of_spans(&mut self, column: &str) -> String {
        self.spans.insert(column.to_owned());
        quoting::name(column)
    }

    fn of_logs(&mut self, column: &str) -> String {
        self.logs.insert(column.to_owned());
        quoting::name(column)
    }

    /// SQL of the value of a span's field.
    fn span_value(&mut self, field: &str) -> String {
        match FieldName::parse(field) {
            FieldName::Intrinsic("service.name") => "service_name".to_owned(),
            FieldName::Intrinsic("span.name") => "name".to_owned(),
            FieldName::Bare(key) if matches!(key.as_str(), "trace_id" | "traceId") => "trace_id".to_owned(),
            FieldName::Resource(_) | FieldName::Attribute(_) => {
                format!("CAST({} AS VARCHAR)", self.of_spans(field))
            }
            FieldName::Intrinsic(key) => format!("CAST({} AS VARCHAR)", self.of_spans(&format!("attributes.{key}"))),
            FieldName::Bare(key) => {
                let own = self.of_spans(&format!("attributes.{key}"));
                let resource = self.of_spans(&format!("resource.{key}"));
                format!("COALESCE(CAST({own} AS VARCHAR), CAST({resource} AS VARCHAR))")
            }
        }
    }

    /// SQL of the value of a log record's field.
    fn log_value(&mut self, field: &str) -> String {
        match FieldName::parse(field) {
            FieldName::Intrinsic("service.name") => "service_name".to_owned(),
            FieldName::Intrinsic("_msg") => "message".to_owned(),
            FieldName::Bare(key) if matches!(key.as_str(), "trace_id" | "traceId") => "trace_id".to_owned(),
            FieldName::Intrinsic(key) => format!("CAST({} AS VARCHAR)", self.of_logs(key)),
            FieldName::Resource(key) | FieldName::Attribute(key) | FieldName::Bare(key) => {
                format!("CAST({} AS VARCHAR)", self.of_logs(&key))
            }
        }
    }

    /// SQL of the rows that match a step.
    fn step(&mut self, process: &Process, at: usize, step: &ProcessStep, window: Option<(i64, i64)>) -> String {
        let field = step.correlation.as_deref().unwrap_or(&process.correlation);
        let is_log = matches!(step.kind, StepKind::Log | StepKind::Event);
        let condition = when(&step.condition);
        let (value, holds, time) = if is_log {
            (self.log_value(field), self.of_logs(&condition), "time")
        } else {
            (self.span_value(field), self.of_spans(&condition), "start_time")
        };
        let mut filters = vec![format!("{value} IS NOT NULL"), format!("{holds} = 1")];
        if let Some((start, end)) = window {
            filters.push(format!("{time} >= {}", quoting::time(start)));
            filters.push(format!("{time} < {}", quoting::time(end)));
        }
        if let Some(service) = &step.service {
            filters.push(format!("service_name = {}", quoting::text(service)));
        }
        match step.kind {
            StepKind::Event => {
                let (one, other) = (self.of_logs("event_name"), self.of_logs("event.name"));
                filters.push(format!("({one} IS NOT NULL OR {other} IS NOT NULL)"));
            }
            StepKind::Transaction => {
                let name = self.of_spans("attributes.bt.name");
                filters.push(format!("{name} IS NOT NULL"));
            }
            StepKind::Rum => {
                let language = self.of_spans("resource.telemetry.sdk.language");
                filters.push(format!("{language} = 'webjs'"));
            }
            StepKind::Span | StepKind::Log => {}
        }
        let [user, carried, session] = ["user.id", "extracted_value", "session.id"]
            .map(|key| if is_log { self.of_logs(key) } else { self.of_spans(&format!("@{key}")) });
        let error = if is_log { "severity_number >= 17" } else { "status_code = 'ERROR'" };
        let table = if is_log { "quiver.logs" } else { "quiver.spans" };
        format!(
            "SELECT {value} AS correlation_value, named_struct('time', CAST({time} AS BIGINT), 'step', CAST({at} AS BIGINT), \
            'trace_id', CAST(trace_id AS VARCHAR), 'service', CAST(service_name AS VARCHAR), 'is_error', COALESCE({error}, false), \
            'user_id', CAST({user} AS VARCHAR), 'value', TRY_CAST({carried} AS DOUBLE), \
            'session_id', CAST({session} AS VARCHAR)) AS event FROM {table} WHERE {}",
            filters.join(" AND ")
        )
    }

    /// SQL of the instances of a process, each with a list of its steps.
    fn runs(&mut self, process: &Process, now_ns: i64, window: Option<(i64, i64)>) -> String {
        let steps = process.steps.iter().enumerate().map(|(at, step)| self.step(process, at, step, window));
        let events = steps.collect::<Vec<_>>().join(" UNION ALL ");
        let asked = process
            .steps
            .iter()
            .map(|step| json!({"optional": step.optional, "outcome": step.outcome, "maxGapMs": step.max_gap_ms}));
        let definition = json!({"timeoutMs": process.timeout_ms, "steps": asked.collect::<Vec<_>>()}).to_string();
        format!(
            "SELECT {id} AS process_id, {name} AS process_name, CAST({version} AS BIGINT) AS process_version, \
            CAST({sla} AS DOUBLE) AS sla_ms, correlation_value, \
            concat({id}, ':', CAST(run['start'] AS VARCHAR), ':', correlation_value) AS instance_id, run FROM \
            (SELECT correlation_value, unnest(process_runs({definition}, CAST({now_ns} AS BIGINT), array_agg(event))) AS run \
            FROM ({events}) AS seen GROUP BY correlation_value) AS grouped",
            id = quoting::text(&process.id),
            name = quoting::text(&process.name),
            version = process.version,
            sla = process.sla_ms.map_or_else(|| "NULL".to_owned(), |ms| ms.to_string()),
            definition = quoting::text(&definition),
        )
    }

    /// Adds a process; statements over several processes are combined by `UNION ALL`.
    fn add(&mut self, about: ProcessRowKind, process: &Process, now_ns: i64, window: Option<(i64, i64)>) {
        let runs = self.runs(process, now_ns, window);
        let by_place = |place: &str, of: &dyn Fn(&ProcessStep) -> &str| {
            let cases =
                process.steps.iter().enumerate().map(|(n, step)| format!("WHEN {n} THEN {}", quoting::text(of(step))));
            format!("CASE {place} {} END", cases.collect::<Vec<_>>().join(" "))
        };
        let stamp = |ns: &str| format!("arrow_cast({ns}, 'Timestamp(Nanosecond, Some(\"UTC\"))')");
        let text = match about {
            ProcessRowKind::Instances => format!(
                "SELECT process_id, process_name, process_version, sla_ms, instance_id, correlation_value, \
                run['state'] AS state, {last} AS last_step, run['last_position'] AS last_position, \
                run['service'] AS service_name, run['user_id'] AS user_id, {start} AS start_time, {end} AS end_time, \
                (run['end'] - run['start']) / 1e6 AS duration_ms, run['value'] AS extracted_value, \
                run['session_id'] AS session_id FROM ({runs}) AS runs",
                last = by_place("run['last_position']", &|step| &step.name),
                start = stamp("run['start']"),
                end = stamp("run['end']"),
            ),
            ProcessRowKind::Steps => format!(
                "SELECT process_id, process_name, instance_id, {step_id} AS step_id, {name} AS step_name, \
                step['position'] AS step_position, {outcome} AS step_outcome, step['service'] AS service_name, \
                step['trace_id'] AS trace_id, step['is_error'] AS is_error, step['gap'] / 1e6 AS gap_ms, \
                {time} AS time, start_time FROM \
                (SELECT process_id, process_name, instance_id, {start} AS start_time, unnest(run['steps']) AS step \
                FROM ({runs}) AS runs) AS steps",
                step_id = by_place("step['position']", &|step| &step.id),
                name = by_place("step['position']", &|step| &step.name),
                outcome = by_place("step['position']", &|step| &step.outcome),
                time = stamp("step['time']"),
                start = stamp("run['start']"),
            ),
            ProcessRowKind::Funnel => funnel(process, &runs, &stamp),
        };
        let before = std::mem::take(&mut self.text);
        self.text = if before.is_empty() { text } else { format!("{before} UNION ALL {text}") };
    }

    /// The statement about one process. With a window (Unix nanoseconds, end excluded), only rows within it count.
    pub fn of(about: ProcessRowKind, process: &Process, now_ns: i64, window: Option<(i64, i64)>) -> Self {
        let mut statement = Self::default();
        statement.add(about, process, now_ns, window);
        statement
    }
}

/// SQL of a row for each step of each instance.
fn funnel(process: &Process, runs: &str, stamp: &dyn Fn(&str) -> String) -> String {
    let places = process.steps.iter().enumerate().map(|(n, step)| {
        let is_last = n + 1 == process.steps.len();
        format!("({n}, {}, {}, {is_last})", quoting::text(&step.id), quoting::text(&step.name))
    });
    format!(
        "SELECT process_id AS funnel_id, process_name AS funnel_name, 'process' AS scope, instance_id AS scope_id, \
        step_id, step_name, step_position, service_name, reached, \
        COALESCE(lag(reached) OVER (PARTITION BY instance_id ORDER BY step_position), true) AS reached_previous, \
        reached AND step_position = last_position AND state IN ('failed', 'abandoned') AS dropped, \
        is_error, gap_ms, reached_time, is_last, start_time AS first_step_time FROM \
        (SELECT i.process_id, i.process_name, i.instance_id, d.step_id, d.step_name, d.step_position, i.service_name, \
        i.state, i.last_position, s.time IS NOT NULL AS reached, s.is_error, s.gap / 1e6 AS gap_ms, \
        {reached} AS reached_time, d.is_last, i.start_time FROM \
        (SELECT process_id, process_name, instance_id, run['service'] AS service_name, run['state'] AS state, \
        run['last_position'] AS last_position, {start} AS start_time FROM ({runs}) AS runs) AS i \
        CROSS JOIN (VALUES {places}) AS d(step_position, step_id, step_name, is_last) \
        LEFT JOIN (SELECT instance_id, step['position'] AS position, step['time'] AS time, step['gap'] AS gap, \
        step['is_error'] AS is_error FROM (SELECT instance_id, unnest(run['steps']) AS step FROM ({runs}) AS runs) AS taken) AS s \
        ON s.instance_id = i.instance_id AND s.position = d.step_position) AS placed",
        places = places.collect::<Vec<_>>().join(", "),
        start = stamp("run['start']"),
        reached = stamp("s.time"),
    )
}

fn number(name: &str) -> Field {
    Field::new(name, DataType::Float64, true)
}

fn whole(name: &str) -> Field {
    Field::new(name, DataType::Int64, true)
}

fn truth(name: &str) -> Field {
    Field::new(name, DataType::Boolean, true)
}

fn stamp(name: &str) -> Field {
    time(name, TimeUnit::Nanosecond)
}

impl NamedTable for ProcessTable {
    fn name(&self) -> &'static str {
        match self.0 {
            ProcessRowKind::Instances => "process_instances",
            ProcessRowKind::Steps => "process_instance_steps",
            ProcessRowKind::Funnel => "funnel_steps",
        }
    }

    fn domain(&self) -> Domain {
        Domain::Processes
    }

    fn columns(&self) -> SchemaRef {
        Arc::new(Schema::new(match self.0 {
            ProcessRowKind::Instances => vec![
                text("process_id"),
                text("process_name"),
                whole("process_version"),
                number("sla_ms"),
                text("instance_id"),
                text("correlation_value"),
                text("state"),
                text("last_step"),
                whole("last_position"),
                text("service_name"),
                text("user_id"),
                stamp("start_time"),
                stamp("end_time"),
                number("duration_ms"),
                number("extracted_value"),
                text("session_id"),
            ],
            ProcessRowKind::Steps => vec![
                text("process_id"),
                text("process_name"),
                text("instance_id"),
                text("step_id"),
                text("step_name"),
                whole("step_position"),
                text("step_outcome"),
                text("service_name"),
                text("trace_id"),
                truth("is_error"),
                number("gap_ms"),
                stamp("time"),
                stamp("start_time"),
            ],
            ProcessRowKind::Funnel => vec![
                text("funnel_id"),
                text("funnel_name"),
                text("scope"),
                text("scope_id"),
                text("step_id"),
                text("step_name"),
                whole("step_position"),
                text("service_name"),
                truth("reached"),
                truth("reached_previous"),
                truth("dropped"),
                truth("is_error"),
                number("gap_ms"),
                stamp("reached_time"),
                truth("is_last"),
                stamp("first_step_time"),
            ],
        }))
    }

    fn finds(&self, _column: &str) -> bool {
        false
    }

    fn open<'a>(&'a self, ask: &'a Ask<'a>) -> BoxFuture<'a, Result<Arc<dyn TableProvider>>> {
        Box::pin(async move {
            let sources = ask.sources;
            let access = ask.access(Domain::Processes);
            let sees = |process: &&Process| process.services.iter().all(|service| access.allows(service));
            let mut statement = Statement::default();
            for process in sources.configured.processes.iter().filter(sees) {
                statement.add(self.0, process, sources.now_ms.saturating_mul(1_000_000), None);
            }
            let schema = self.columns();
            if statement.text.is_empty() {
                let empty = RecordBatch::new_empty(Arc::clone(&schema));
                let table = MemTable::try_new(schema, vec![vec![empty]]).map_err(from_datafusion)?;
                return Ok(Arc::new(table) as Arc<dyn TableProvider>);
            }
            let below = |found: &BTreeSet<String>, fixed: &SchemaRef| -> Vec<String> {
                found.iter().filter(|name| fixed.column_with_name(name).is_none()).cloned().collect()
            };
            let (spans, logs) = (SpanTable(SpanRowKind::Span), LogTable);
            let (of_spans, of_logs) =
                (below(&statement.spans, &spans.columns()), below(&statement.logs, &logs.columns()));
            let ask_for =
                |found| Ask { sources, found, by_domain: ask.by_domain, typed_by: ask.typed_by, ctx: ask.ctx };
            let mut names = Names::new(sources.engine.relational());
            names.add(Some("quiver"), "spans", spans.open(&ask_for(&of_spans)).await?);
            names.add(Some("quiver"), "logs", logs.open(&ask_for(&of_logs)).await?);
            // Types of the columns are fixed, whatever DataFusion infers from literals and unions.
            let of_type = |field: &Arc<Field>| match field.data_type() {
                DataType::Utf8View => format!("arrow_cast({0}, 'Utf8View') AS {0}", field.name()),
                _ => field.name().clone(),
            };
            let columns = schema.fields().iter().map(of_type).collect::<Vec<_>>().join(", ");
            let text = format!("SELECT {columns} FROM ({}) AS processes", statement.text);
            let plan = names.plan(&text)?;
            Ok(Arc::new(ViewTable::new(plan, Some(text))) as Arc<dyn TableProvider>)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_quote_what_they_hold() {
        let step = ProcessStep {
            id: "s".into(),
            name: "it's".into(),
            kind: StepKind::Log,
            condition: json!({"field": "a", "op": "exists"}),
            service: Some("o'neil".into()),
            correlation: Some("attributes.order\"id".into()),
            optional: false,
            outcome: "none".into(),
            max_gap_ms: None,
        };
        let process = Process {
            id: "p".into(),
            name: "n".into(),
            version: 1,
            correlation: "trace_id".into(),
            timeout_ms: 1,
            sla_ms: None,
            services: Vec::new(),
            steps: vec![step.clone(), ProcessStep { kind: StepKind::Rum, correlation: None, ..step }],
        };
        let statement = Statement::of(ProcessRowKind::Instances, &process, 5, Some((1, 9)));
        for part in ["'o''neil'", "\"order\"\"id\"", "'it''s'", "quiver.logs", "'webjs'", "trace_id IS NOT NULL"] {
            assert!(statement.text.contains(part), "{part} {}", statement.text);
        }
    }

    fn step(kind: StepKind, text: &str) -> ProcessStep {
        ProcessStep {
            id: text.to_owned(),
            name: text.to_owned(),
            kind,
            condition: json!({"field": text, "op": "eq", "value": text}),
            service: Some(text.to_owned()),
            correlation: None,
            optional: false,
            outcome: text.to_owned(),
            max_gap_ms: Some(5),
        }
    }

    fn process(kinds: &[StepKind], text: &str) -> Process {
        Process {
            id: text.to_owned(),
            name: text.to_owned(),
            version: 1,
            correlation: text.to_owned(),
            timeout_ms: 1,
            sla_ms: None,
            services: Vec::new(),
            steps: kinds.iter().map(|kind| step(*kind, text)).collect(),
        }
    }

    #[test]
    fn fields_are_columns_of_their_signal() {
        for (field, of_spans, of_logs) in [
            ("service.name", "service_name", "service_name"),
            ("trace_id", "trace_id", "trace_id"),
            ("traceId", "trace_id", "trace_id"),
            ("span.name", "name", r#"CAST("span.name" AS VARCHAR)"#),
            ("_msg", r#"CAST("attributes._msg" AS VARCHAR)"#, "message"),
            ("resource.host.name", r#"CAST("resource.host.name" AS VARCHAR)"#, r#"CAST("host.name" AS VARCHAR)"#),
            ("attributes.a\"b", r#"CAST("attributes.a""b" AS VARCHAR)"#, r#"CAST("a""b" AS VARCHAR)"#),
            (
                "order.id",
                r#"COALESCE(CAST("attributes.order.id" AS VARCHAR), CAST("resource.order.id" AS VARCHAR))"#,
                r#"CAST("order.id" AS VARCHAR)"#,
            ),
        ] {
            let mut statement = Statement::default();
            assert_eq!(
                (statement.span_value(field).as_str(), statement.log_value(field).as_str()),
                (of_spans, of_logs)
            );
        }
        let mut statement = Statement::default();
        statement.span_value("order.id");
        statement.log_value("resource.host");
        let spans = ["attributes.order.id", "resource.order.id"].map(str::to_owned);
        assert_eq!((statement.spans, statement.logs), (spans.into(), ["host".to_owned()].into()));
    }

    #[test]
    fn no_text_of_a_process_is_read_as_sql() {
        use datafusion::sql::parser::DFParser;
        use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
        let kinds = [StepKind::Span, StepKind::Log, StepKind::Event, StepKind::Transaction, StepKind::Rum];
        for text in ["plain", "it's", "a\"b", "'); DROP TABLE x; --", "$1 @ {} /*", "\\'", "ü\n", "%s"] {
            for about in [ProcessRowKind::Instances, ProcessRowKind::Steps, ProcessRowKind::Funnel] {
                let statement = Statement::of(about, &process(&kinds, text), 5, Some((1, 9)));
                let parsed = DFParser::parse_sql_with_dialect(&statement.text, &PostgreSqlDialect {});
                let parsed = parsed.unwrap_or_else(|e| panic!("{text} {about:?}: {e}\n{}", statement.text));
                assert_eq!(parsed.len(), 1, "{text} {about:?}");
            }
        }
    }

    #[test]
    fn a_window_bounds_each_step() {
        let of = process(&[StepKind::Span, StepKind::Log], "a");
        let bounded = Statement::of(ProcessRowKind::Steps, &of, 5, Some((-1, 9))).text;
        for (part, times) in [
            ("start_time >= arrow_cast(CAST(-1 AS BIGINT), 'Timestamp(Nanosecond, Some(\"UTC\"))')", 1),
            ("start_time < arrow_cast(CAST(9 AS BIGINT), 'Timestamp(Nanosecond, Some(\"UTC\"))')", 1),
            (" time >= arrow_cast(CAST(-1 AS BIGINT)", 1),
            (" time < arrow_cast(CAST(9 AS BIGINT)", 1),
        ] {
            assert_eq!(bounded.matches(part).count(), times, "{part}: {bounded}");
        }
        let free = Statement::of(ProcessRowKind::Steps, &of, 5, None).text;
        assert!(!free.contains(" >= arrow_cast(") && free.contains("quiver.logs") && free.contains("quiver.spans"));
        let mut both = Statement::of(ProcessRowKind::Steps, &of, 5, None);
        both.add(ProcessRowKind::Steps, &of, 5, None);
        assert_eq!(both.text, format!("{free} UNION ALL {free}"));
    }
}
