//! Operations of data-extraction rules beyond the contract: tests on records, and statistics of a rule (`config-api`
//! 3.7).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::MethodFilter;
use futures::future::BoxFuture;
use quiver_config::families::EXTRACTION_RULES;
use quiver_config::{Problem, Result};
use quiver_logsql::QueryScope;
use quiver_logsql::pipes::limit::Limit;
use quiver_query::tables::config_columns::when;
use quiver_types::condition::{Condition, FieldName, Fields};
use quiver_types::extraction::{ExtractionOutcome, ExtractionRule, Record};
use quiver_types::{Domain, Right, Services, Triple};
use serde_json::{Map, Value, json};

use super::body_members::{list, only_members};
use super::detection::invalid;
use super::operation::special_at;
use super::request::Ask;
use super::response::Answer;
use super::telemetry_queries::{self, name_of};
use super::time_range::Window;
use crate::alerting::alerts::AlertRecord;
use crate::effects::Signal;
use crate::metrics::phases::Language;
use crate::state::AppState;

/// Most records per test.
const SAMPLES_MAX: usize = 1000;
/// How long a rule may take over all records of a test, although each record alone may take half a second.
const TEST_MAX: Duration = Duration::from_secs(5);

pub(super) fn routes() -> Router<Arc<AppState>> {
    let at = |rest: &str| format!("{}{rest}", EXTRACTION_RULES.path);
    Router::new()
        .route(&at("/test"), special_at(&EXTRACTION_RULES, MethodFilter::POST, test))
        .route(&at("/{id}/stats"), special_at(&EXTRACTION_RULES, MethodFilter::GET, stats))
}

/// A test record, as rules see records at ingestion.
struct Sample {
    fields: Map<String, Value>,
    /// Whether `attributes.x` can also be addressed as `x`: true for spans, not for logs.
    is_span: bool,
}

impl Sample {
    fn of(sample: &Map<String, Value>, is_span: bool) -> Self {
        let mut record = Self { fields: Map::new(), is_span };
        record.take("", sample);
        record
    }

    /// Adds fields; those of nested objects are joined by dots.
    fn take(&mut self, above: &str, map: &Map<String, Value>) {
        for (key, value) in map {
            let name = format!("{above}{key}");
            match value {
                Value::Object(inner) if !inner.is_empty() => self.take(&format!("{name}."), inner),
                _ => {
                    let name = self.name(&name).to_owned();
                    self.fields.entry(name).or_insert_with(|| value.clone());
                }
            }
        }
    }

    fn name<'n>(&self, field: &'n str) -> &'n str {
        if self.is_span { field.strip_prefix("attributes.").unwrap_or(field) } else { field }
    }

    fn find(&self, names: &[&str]) -> Option<&Value> {
        names.iter().find_map(|name| self.fields.get(*name))
    }
}

impl Fields for Sample {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let whole = name.to_string();
        let found = match name {
            FieldName::Resource(key) | FieldName::Attribute(key) => self.find(&[whole.as_str(), key.as_str()]),
            FieldName::Bare(key) if self.is_span => self.find(&[key.as_str(), format!("resource.{key}").as_str()]),
            FieldName::Intrinsic("severity") => self.find(&["severity", "severity_text", "level"]),
            FieldName::Bare(_) | FieldName::Intrinsic(_) => self.find(&[whole.as_str()]),
        };
        match found? {
            Value::Null => None,
            Value::String(text) => Some(Cow::Borrowed(text)),
            other => Some(Cow::Owned(other.to_string())),
        }
    }
}

impl Record for Sample {
    fn set(&mut self, field: &str, value: &Value) {
        let name = self.name(field).to_owned();
        self.fields.insert(name, value.clone());
    }
}

/// Makes the test record of a rule, and its service.
fn sample_of(signal: &str, sample: &Map<String, Value>, state: &AppState) -> (Box<dyn Record>, String) {
    if signal == "alerts" {
        let record = AlertRecord::of_sample(sample, state.alertd.router.service_labels());
        let service = record.service();
        return (Box::new(record), service);
    }
    let record = Sample::of(sample, signal != "logs");
    let names = ["service.name", "resource.service.name", "service_name", "service"];
    let service = record.find(&names).and_then(Value::as_str).unwrap_or_default().to_owned();
    (Box::new(record), service)
}

fn test<'a>(ask: &'a Ask, _: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let body = ask.object()?;
        only_members(&body, &["rule", "ruleId", "samples", "query"])?;
        let tested = ask.tested(&body).await?;
        let rule = ExtractionRule::of_json("", &tested).map_err(|found| invalid("/rule", found))?;
        let samples = match body.get("query") {
            Some(_) if body.contains_key("samples") => {
                return Err(Problem::field("/query", "INVALID_VALUE", "`samples` or a `query`, not both"));
            }
            Some(Value::Object(query)) => ask.stored(&tested, query).await.map_err(|p| p.below("/query"))?,
            Some(Value::Null) | None => list(&body, "samples", SAMPLES_MAX)?.to_vec(),
            Some(_) => return Err(Problem::field("/query", "INVALID_TYPE", "must be an object")),
        };
        let signal = tested.get("signal").and_then(Value::as_str).unwrap_or_default();
        let (mut results, mut taken) = (Vec::new(), Duration::ZERO);
        for (n, sample) in samples.iter().enumerate() {
            let Value::Object(map) = sample else {
                return Err(Problem::field(format!("/samples/{n}"), "INVALID_TYPE", "must be an object"));
            };
            let (result, elapsed) = tried(&rule, signal, map, &ask.state);
            results.push(result);
            taken += elapsed;
            if taken > TEST_MAX {
                let (ran, all, most) = (n + 1, samples.len(), TEST_MAX.as_secs());
                let why = format!("the rule took more than {most} s over {ran} of {all} records: test it with fewer");
                return Err(Problem::field("/samples", "LIMIT_EXCEEDED", why));
            }
            // Lets other tasks run, and lets a client that disconnected cancel its test.
            tokio::task::yield_now().await;
        }
        Ok(Answer::ok(json!({"results": results})))
    })
}

/// The result of a rule on a record, and how long it took.
fn tried(rule: &ExtractionRule, signal: &str, sample: &Map<String, Value>, state: &AppState) -> (Value, Duration) {
    let (mut record, service) = sample_of(signal, sample, state);
    let began = Instant::now();
    let applied = if rule.is_for(&service) { rule.apply(&mut *record) } else { ExtractionOutcome::default() };
    let elapsed = began.elapsed();
    let fields: Map<String, Value> = applied.fields.into_iter().collect();
    let errors: Vec<Value> =
        applied.errors.into_iter().map(|(field, why)| json!({"field": field, "message": why})).collect();
    let result = json!({
        "input": sample, "matched": applied.matched, "fields": fields, "errors": errors,
        "elapsedUs": elapsed.as_secs_f64() * 1e6,
    });
    (result, elapsed)
}

impl Ask {
    /// Stored records for a test, each with all its fields.
    async fn stored(&self, rule: &Map<String, Value>, query: &Map<String, Value>) -> Result<Vec<Value>> {
        only_members(query, &["start", "end", "filter", "limit"])?;
        let (window, limit) = (self.window_of(query)?, telemetry_queries::limit(query.get("limit"), 100)?);
        match rule.get("signal").and_then(Value::as_str) {
            Some("logs") => {
                self.must_see(Domain::Logs)?;
                let filter = match query.get("filter") {
                    None | Some(Value::Null) => "*",
                    Some(Value::String(text)) => text,
                    Some(_) => return Err(Problem::field("/filter", "INVALID_TYPE", "must be a query of logs")),
                };
                self.stored_logs(filter, window, limit).await
            }
            Some("alerts") => Err(Problem::field("", "UNSUPPORTED", "alerts are no stored records; send `samples`")),
            signal => {
                self.must_see(Domain::Traces)?;
                let filter = query.get("filter").filter(|f| !f.is_null());
                if let Some(filter) = filter {
                    Condition::parse(filter).map_err(|found| invalid("/filter", found))?;
                }
                self.stored_spans(filter, signal == Some("rum"), window, limit).await
            }
        }
    }

    async fn stored_logs(&self, filter: &str, window: Window, limit: u64) -> Result<Vec<Value>> {
        let wrong = |e: quiver_types::Error| Problem::field("/filter", "INVALID_EXPR", e.message);
        let mut parsed = quiver_logsql::parse(filter).map_err(wrong)?;
        parsed.pipes.push(Limit(limit).into());
        let scope = QueryScope {
            now_ns: self.now_ns(),
            start_ns: Some(window.start),
            end_ns: Some(window.end),
            extra: Vec::new(),
        };
        let ctx = self.state.begin(self.state.asked(Language::Logsql, filter), self.state.limits());
        let found = self.state.engines.logsql.collect(&parsed, &scope, &ctx).await.map_err(wrong)?;
        let mut records = Vec::new();
        for rows in &found {
            rows.each_row(|fields| {
                let record = fields.map(|(name, value)| (name.to_owned(), json!(value)));
                records.push(Value::Object(record.collect()));
            })
            .map_err(Problem::internal)?;
        }
        Ok(records)
    }

    async fn stored_spans(
        &self,
        filter: Option<&Value>,
        of_browsers: bool,
        window: Window,
        limit: u64,
    ) -> Result<Vec<Value>> {
        let (start, end) = window.sql();
        let filter = filter.map(|f| format!(" AND {} = 1", name_of(&when(f)))).unwrap_or_default();
        let browsers = format!(" AND {} = 'webjs'", name_of("resource.telemetry.sdk.language"));
        let rows = self
            .rows(format!(
                "SELECT service_name, name, lower(kind) AS kind, lower(status_code) AS status, duration / 1e6 AS ms, \
                attributes, resource FROM quiver.spans WHERE start_time >= {start} AND start_time < {end}{filter}{} LIMIT {limit}",
                if of_browsers { &browsers } else { "" }
            ))
            .await?;
        let record = |row: telemetry_queries::Row| {
            let mut record = Map::new();
            for (key, value) in row.get("resource").and_then(Value::as_object).into_iter().flatten() {
                record.insert(key.clone(), value.clone());
                record.insert(format!("resource.{key}"), value.clone());
            }
            record.extend(row.get("attributes").and_then(Value::as_object).cloned().unwrap_or_default());
            let own = [
                ("service.name", "service_name"),
                ("span.name", "name"),
                ("span.kind", "kind"),
                ("span.status", "status"),
                ("span.durationMs", "ms"),
            ];
            for (field, column) in own {
                record.extend(row.get(column).map(|value| (field.to_owned(), value.clone())));
            }
            Value::Object(record)
        };
        Ok(rows.into_iter().map(record).collect())
    }
}

/// The domains of the records that rules of a signal see.
fn domains(signal: Signal) -> &'static [Domain] {
    match signal {
        Signal::Logs => &[Domain::Logs],
        Signal::Spans => &[Domain::Traces],
        Signal::Rum => &[Domain::Traces, Domain::Logs],
        Signal::Alerts => &[Domain::Alerts],
    }
}

/// Statistics of a rule on this node since the server started or the rule changed.
fn stats<'a>(ask: &'a Ask, ids: &'a [String]) -> BoxFuture<'a, Result<Answer>> {
    Box::pin(async move {
        ask.only_parameters(&[])?;
        let entity = ask.config.get(&ask.place, &ids[0], &ask.caller).await?;
        let text = |key: &str| entity.body.get(key).and_then(Value::as_str);
        let word = text("signal");
        let signal = Signal::ALL.into_iter().find(|signal| Some(signal.word()) == word).unwrap_or(Signal::Logs);
        // The counts cover all services of the rule: callers who may not see all of those get no figures.
        let services = text("service").and_then(Services::parse).unwrap_or_else(Services::all);
        let viewed = |domain: &Domain| Triple::new(Right::View, Some(*domain), services.clone());
        let sees = domains(signal).iter().all(|domain| ask.caller.rights.covers(&viewed(domain)));
        let figures = ask.state.effects.extraction(signal).figures(&entity.id);
        let shown = |figure: Value| if sees { figure } else { Value::Null };
        Ok(Answer::ok(json!({
            "seen": shown(json!(figures.seen)), "matched": shown(json!(figures.matched)),
            "failed": shown(json!(figures.failed)), "meanUs": shown(json!(figures.mean_us())),
            "health": entity.body.get("health"),
        })))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test record has the same fields as at ingestion.
    #[test]
    fn samples_are_records() {
        let check = |sample: &dyn Record, name: &str, expected: Option<&str>| {
            assert_eq!(sample.get(&FieldName::parse(name)).as_deref(), expected, "{name}");
        };
        let map = |value: Value| value.as_object().cloned().unwrap_or_default();
        let log = Sample::of(&map(json!({"_msg": "m", "user": {"id": 7}, "level": "warn", "none": null})), false);
        check(&log, "_msg", Some("m"));
        check(&log, "user.id", Some("7"));
        check(&log, "severity", Some("warn"));
        check(&log, "none", None);
        let span = map(json!({"attributes": {"http.route": "/a"}, "resource": {"zone": "eu"}, "span.name": "GET"}));
        let mut span = Sample::of(&span, true);
        check(&span, "http.route", Some("/a"));
        check(&span, "attributes.http.route", Some("/a"));
        check(&span, "zone", Some("eu"));
        span.set("attributes.http.route", &json!("/b"));
        check(&span, "http.route", Some("/b"));
        let alert = map(json!({"labels": {"instance": "db:1"}, "annotations.summary": "full", "startsAt": "now"}));
        let alert = AlertRecord::of_sample(&alert, &[]);
        check(&alert, "labels.instance", Some("db:1"));
        check(&alert, "summary", Some("full"));
        check(&alert, "startsAt", None);
    }
}
