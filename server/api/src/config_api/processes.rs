//! Metrics of business processes over stored telemetry (`config-api` 3.4): steps, instances, and a test of a process
//! before it is saved.

use std::sync::Arc;

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::PROCESSES;
use quiver_config::{Entity, Problem, Result, must_have};
use quiver_query::tables::processes::{ProcessRowKind, Statement};
use quiver_types::query_configuration::{Process, StepKind};
use quiver_types::{Domain, Right};
use serde_json::{Value, json};

use super::body_members::only_members;
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use super::telemetry_queries::{self, Row, count, number, quoted};
use super::time_range::Window;
use crate::effects::query_configuration::Transactions;
use crate::state::AppState;

/// States of instances.
const STATES: [&str; 4] = ["running", "completed", "failed", "abandoned"];

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = |rest: &str| format!("{}/{rest}", PROCESSES.path);
    Router::new()
        .route(&at("test"), special_at(&PROCESSES, MethodFilter::POST, test))
        .route(&at("{id}/stats"), special_at(&PROCESSES, MethodFilter::GET, stats))
        .route(&at("{id}/instances"), special_at(&PROCESSES, MethodFilter::GET, instances))
}

/// The domains of the telemetry that the steps of a process select.
fn domains(process: &Process) -> Vec<Domain> {
    let of = |kind: StepKind| match kind {
        StepKind::Log | StepKind::Event => Domain::Logs,
        StepKind::Span | StepKind::Transaction | StepKind::Rum => Domain::Traces,
    };
    let mut domains: Vec<Domain> = Vec::new();
    for step in &process.steps {
        if !domains.contains(&of(step.kind)) {
            domains.push(of(step.kind));
        }
    }
    domains
}

/// A process, and the window in which its instances begin.
struct Over<'a> {
    ask: &'a Ask,
    process: Process,
    window: Window,
}

impl Over<'_> {
    /// The SQL statement of the process. It reads telemetry beyond the window, as long as instances may go on.
    fn statement(&self, about: ProcessRowKind) -> String {
        let longest = self.process.timeout_ms.saturating_mul(1_000_000);
        let longest = longest.saturating_mul(self.process.steps.len() as i64);
        let seen = (self.window.start, self.window.end.saturating_add(longest));
        Statement::of(about, &self.process, self.ask.now_ns(), Some(seen)).text
    }

    /// The FROM clause over those rows whose instance begins in the window.
    fn from(&self, about: ProcessRowKind) -> String {
        format!("FROM ({}) AS runs WHERE {}", self.statement(about), self.begins())
    }

    fn begins(&self) -> String {
        let (start, end) = self.window.sql();
        format!("start_time >= {start} AND start_time < {end}")
    }

    async fn stats(&self) -> Result<Value> {
        let of = |state: &str| format!("count(*) FILTER (WHERE state = '{state}') AS {state}");
        let done = "FILTER (WHERE state = 'completed')";
        let totals = self
            .ask
            .row(format!(
                "SELECT count(*) AS instances, {}, quantile(duration_ms, 0.5) {done} AS p50, \
                quantile(duration_ms, 0.95) {done} AS p95, \
                count(*) FILTER (WHERE state = 'completed' AND duration_ms > sla_ms) AS late {}",
                STATES.map(of).join(", "),
                self.from(ProcessRowKind::Instances)
            ))
            .await?;
        let stopped = self
            .ask
            .rows(format!(
                "SELECT last_position, count(*) AS stopped {} AND state <> 'completed' GROUP BY last_position",
                self.from(ProcessRowKind::Instances)
            ))
            .await?;
        let reached = self
            .ask
            .rows(format!(
                "SELECT step_position, count(*) AS entered, quantile(gap_ms, 0.5) AS p50, \
                quantile(gap_ms, 0.95) AS p95 {} GROUP BY step_position",
                self.from(ProcessRowKind::Steps)
            ))
            .await?;
        let at = |rows: &[Row], key: &str, place: usize| -> Row {
            rows.iter()
                .find(|row| count(row, key) == place as u64 && row.contains_key(key))
                .cloned()
                .unwrap_or_default()
        };
        let steps = self.process.steps.iter().enumerate().map(|(n, step)| {
            let row = at(&reached, "step_position", n);
            let entered = count(&row, "entered");
            let converted = entered.saturating_sub(count(&at(&stopped, "last_position", n), "stopped"));
            let rate = if entered == 0 { Value::Null } else { json!(converted as f64 / entered as f64) };
            json!({
                "stepId": step.id, "name": step.name, "entered": entered, "converted": converted, "rate": rate,
                "gapMs": {"p50": number(&row, "p50"), "p95": number(&row, "p95")},
            })
        });
        let steps: Vec<Value> = steps.collect();
        let of = |key: &str| json!(count(&totals, key));
        let sla = match self.process.sla_ms {
            Some(ms) => json!({"slaMs": ms, "breached": count(&totals, "late")}),
            None => Value::Null,
        };
        Ok(json!({
            "instances": of("instances"), "completed": of("completed"), "failed": of("failed"),
            "abandoned": of("abandoned"), "running": of("running"),
            "durationMs": {"p50": number(&totals, "p50"), "p95": number(&totals, "p95")},
            "sla": sla, "steps": steps,
        }))
    }

    async fn instances(&self, state: Option<&str>, limit: u64) -> Result<Value> {
        let state = state.map(|state| format!(" AND state = {}", quoted(state))).unwrap_or_default();
        let rows = self
            .ask
            .rows(format!(
                "SELECT instance_id AS \"instanceId\", correlation_value AS \"correlationValue\", state, \
                last_step AS \"lastStep\", service_name AS service, start_time AS \"startTime\", \
                end_time AS \"endTime\", duration_ms AS \"durationMs\", user_id AS \"userId\", \
                duration_ms <= sla_ms AS \"slaMet\" {}{state} ORDER BY runs.start_time DESC, instance_id LIMIT {limit}",
                self.from(ProcessRowKind::Instances)
            ))
            .await?;
        Ok(json!(rows))
    }
}

fn no_steps() -> Problem {
    Problem::field("/steps", "REQUIRED", "a process without steps has no instances")
}

impl Ask {
    async fn process(&self, entity: &Entity) -> Result<Process> {
        Ok(Transactions::read(&self.config).await?.process(&entity.id, entity.version, &entity.body))
    }
}

fn stats<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["start", "end"])?;
        let entity = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let (process, window) = (ask.process(&entity).await?, ask.window()?);
        // Without the right to see the telemetry of all steps there are no figures.
        if process.steps.is_empty() || !domains(&process).into_iter().all(|domain| ask.sees(domain)) {
            let step = |step: &quiver_types::query_configuration::ProcessStep| {
                json!({"stepId": step.id, "name": step.name, "entered": null, "converted": null, "rate": null,
                    "gapMs": {"p50": null, "p95": null}})
            };
            let steps: Vec<Value> = process.steps.iter().map(step).collect();
            return Ok(Answer::ok(json!({
                "instances": null, "completed": null, "failed": null, "abandoned": null, "running": null,
                "durationMs": {"p50": null, "p95": null}, "sla": null, "steps": steps,
            })));
        }
        Ok(Answer::ok(Over { ask, process, window }.stats().await?))
    })
}

fn instances<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&["start", "end", "state", "limit"])?;
        let entity = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let (process, window) = (ask.process(&entity).await?, ask.window()?);
        for domain in domains(&process) {
            ask.must_see(domain)?;
        }
        let state = ask.parameter("state")?;
        if state.is_some_and(|state| !STATES.contains(&state)) {
            return Err(Problem::parameter(format!("`state` must be one of {}", STATES.join(", "))));
        }
        let limit = ask.limit_parameter(100)?;
        if process.steps.is_empty() {
            return Ok(Answer::ok(json!({"items": []})));
        }
        let items = Over { ask, process, window }.instances(state, limit).await?;
        Ok(Answer::ok(json!({"items": items})))
    })
}

/// Runs a process that need not be saved.
fn test<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["process", "start", "end", "limit"])?;
        let given = match body.get("process") {
            Some(Value::Object(given)) => given.clone(),
            None | Some(Value::Null) => return Err(Problem::field("/process", "REQUIRED", "is required")),
            Some(_) => return Err(Problem::field("/process", "INVALID_TYPE", "must be an object")),
        };
        let checked = ask.config.read_as_new(&PROCESSES, given).map_err(|p| p.below("/process"))?;
        let process = Transactions::read(&ask.config).await?.process("test", 0, &checked);
        if process.steps.is_empty() {
            return Err(no_steps().below("/process"));
        }
        for service in &process.services {
            must_have(&ask.caller, Right::View, Domain::Processes, service)?;
        }
        for domain in domains(&process) {
            ask.must_see(domain)?;
        }
        let (window, limit) = (ask.window_of(&body)?, telemetry_queries::limit(body.get("limit"), 20)?);
        let over = Over { ask, process, window };
        let (stats, instances) = (over.stats().await?, over.instances(None, limit).await?);
        Ok(Answer::ok(json!({"stats": stats, "instances": instances})))
    })
}

#[cfg(test)]
mod tests {
    use quiver_types::query_configuration::ProcessStep;

    use super::*;

    #[test]
    fn steps_are_seen_by_the_rights_of_their_domains() {
        let step = |kind| ProcessStep {
            id: String::new(),
            name: String::new(),
            kind,
            condition: Value::Null,
            service: None,
            correlation: None,
            optional: false,
            outcome: "none".to_owned(),
            max_gap_ms: None,
        };
        for (kinds, expected) in [
            (vec![], vec![]),
            (vec![StepKind::Log, StepKind::Event], vec![Domain::Logs]),
            (vec![StepKind::Rum, StepKind::Span, StepKind::Transaction], vec![Domain::Traces]),
            (vec![StepKind::Span, StepKind::Event, StepKind::Span], vec![Domain::Traces, Domain::Logs]),
        ] {
            let process = Process {
                id: String::new(),
                name: String::new(),
                version: 1,
                correlation: String::new(),
                timeout_ms: 1,
                sla_ms: None,
                services: Vec::new(),
                steps: kinds.iter().copied().map(step).collect(),
            };
            assert_eq!(domains(&process), expected, "{kinds:?}");
        }
    }
}
