//! Converts stored entities into the configuration that queries use.

use quiver_config::families::{APDEX_THRESHOLDS, PROCESSES, RUM_TRANSACTIONS, TRANSACTIONS, steps};
use quiver_config::json::text;
use quiver_config::{Config, Entity, Result, duration_ms};
use quiver_types::query_configuration::{
    ApdexThreshold, KeyTransaction, NamePattern, PerformanceTargets, Process, ProcessStep, QueryConfiguration,
    StepKind, Vitals,
};
use serde_json::{Map, Value, json};

use super::is_enabled;

/// Reads all of it.
///
/// # Errors
/// When the database is unreachable.
pub(crate) async fn read(config: &Config) -> Result<QueryConfiguration> {
    let (services, pages) = (judging(config, false).await?, judging(config, true).await?);
    let transactions = Transactions::read(config).await?;
    let processes = config.all(&PROCESSES).await?;
    let enabled = processes.iter().filter(|e| is_enabled(&e.body));
    let processes = enabled.map(|e| transactions.process(&e.id, e.version, &e.body)).collect();
    Ok(QueryConfiguration { services, pages, processes })
}

/// Key transactions and thresholds of services, or of browser applications if `is_rum`.
///
/// # Errors
/// When the database is unreachable.
pub(crate) async fn judging(config: &Config, is_rum: bool) -> Result<PerformanceTargets> {
    let (family, owner) = if is_rum { (&RUM_TRANSACTIONS, "application") } else { (&TRANSACTIONS, "service") };
    let signal = if is_rum { "rum" } else { "service" };
    let keys = config.all(family).await?;
    let keys = keys.iter().filter(|e| is_enabled(&e.body)).map(|e| key_of(e, owner)).collect();
    let thresholds = config.all(&APDEX_THRESHOLDS).await?;
    let thresholds = thresholds.iter().filter(|e| text(&e.body, "signal") == signal);
    let threshold = |e: &Entity| ApdexThreshold {
        id: e.id.clone(),
        service: text(&e.body, "service").to_owned(),
        operation: Some(text(&e.body, "operation")).filter(|o| !o.is_empty()).map(NamePattern::new),
        threshold_ms: e.body.get("thresholdMs").and_then(Value::as_f64).unwrap_or_default(),
        errors_frustrate: e.body.get("errorsFrustrate") != Some(&Value::Bool(false)),
    };
    Ok(PerformanceTargets { keys, thresholds: thresholds.map(threshold).collect(), is_rum })
}

/// Converts a key transaction; `owner` is the member that names its service or application.
pub(crate) fn key_of(entity: &Entity, owner: &str) -> KeyTransaction {
    let number = |key: &str| entity.body.get(key).and_then(Value::as_f64);
    let vital = |key: &str| entity.body.get("vitals").and_then(|vitals| vitals.get(key)).and_then(Value::as_f64);
    KeyTransaction {
        id: entity.id.clone(),
        name: text(&entity.body, "name").to_owned(),
        service: text(&entity.body, owner).to_owned(),
        transaction: NamePattern::new(text(&entity.body, "transactionName")),
        owner: text(&entity.body, "owner").to_owned(),
        tier: text(&entity.body, "tier").to_owned(),
        threshold_ms: number("apdexThresholdMs"),
        latency_slo_ms: number("latencySloMs"),
        latency_percentile: number("latencyPercentile").unwrap_or(95.0),
        error_rate_slo_pct: number("errorRateSloPct"),
        vitals: Vitals { lcp_ms: vital("lcpMs"), inp_ms: vital("inpMs"), cls: vital("cls") },
        updated_ms: entity.updated_ms(),
    }
}

/// The key transactions that steps of processes may refer to.
#[derive(Debug)]
pub(crate) struct Transactions {
    services: Vec<Entity>,
    pages: Vec<Entity>,
}

impl Transactions {
    /// Reads all of them.
    ///
    /// # Errors
    /// When the database is unreachable.
    pub(crate) async fn read(config: &Config) -> Result<Self> {
        Ok(Self { services: config.all(&TRANSACTIONS).await?, pages: config.all(&RUM_TRANSACTIONS).await? })
    }

    /// Converts the entity of a business process.
    pub(crate) fn process(&self, id: &str, version: i64, body: &Map<String, Value>) -> Process {
        let all = steps(body).iter().filter_map(Value::as_object).map(|step| self.step(step));
        let steps: Vec<ProcessStep> = all.collect();
        let mut services: Vec<String> = steps.iter().map(|s| s.service.clone().unwrap_or_default()).collect();
        services.sort_unstable();
        services.dedup();
        Process {
            id: id.to_owned(),
            name: text(body, "name").to_owned(),
            version,
            correlation: text(body, "correlationField").to_owned(),
            timeout_ms: duration_ms(text(body, "timeout")).and_then(|ms| i64::try_from(ms).ok()).unwrap_or(86_400_000),
            sla_ms: body.get("slaMs").and_then(Value::as_f64),
            services,
            steps,
        }
    }

    fn step(&self, step: &Map<String, Value>) -> ProcessStep {
        let word = text(step, "kind");
        let id = text(step, "transactionId");
        let (all, owner) = if word == "rum" { (&self.pages, "application") } else { (&self.services, "service") };
        let key = all.iter().find(|e| !id.is_empty() && e.id == id).map(|e| key_of(e, owner));
        let given = |key: &str| Some(text(step, key)).filter(|t| !t.is_empty()).map(str::to_owned);
        let condition = key.as_ref().map_or_else(
            || step.get("condition").cloned().unwrap_or(Value::Null),
            |key| transaction_condition(&key.transaction),
        );
        ProcessStep {
            id: text(step, "id").to_owned(),
            name: text(step, "name").trim().to_owned(),
            kind: match word {
                "transaction" => StepKind::Transaction,
                "log" => StepKind::Log,
                "event" => StepKind::Event,
                "rum" => StepKind::Rum,
                _ => StepKind::Span,
            },
            condition,
            service: given("service").or_else(|| key.map(|key| key.service)),
            correlation: given("correlationField"),
            optional: step.get("optional") == Some(&Value::Bool(true)),
            outcome: given("outcome").unwrap_or_else(|| "none".to_owned()),
            max_gap_ms: step.get("maxGapMs").and_then(Value::as_i64),
        }
    }
}

/// The condition that spans of a transaction meet.
pub(crate) fn transaction_condition(name: &NamePattern) -> Value {
    let leaf = |op: &str| json!({"field": "attributes.bt.name", "op": op, "value": name.text()});
    if name.is_pattern() { json!({"any": [leaf("eq"), leaf("glob")]}) } else { leaf("eq") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(value: &Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap_or_default()
    }

    fn transactions() -> Transactions {
        let key = |id: &str, body: Value| vec![Entity::for_tests(id, body)];
        Transactions {
            services: key("k1", json!({"name": "Order", "service": "shop", "transactionName": "checkout*"})),
            pages: key("k2", json!({"name": "Pay", "application": "web", "transactionName": "Pay"})),
        }
    }

    #[test]
    fn steps_take_what_their_transactions_say() {
        let body = map(&json!({
            "name": "Sale", "correlationField": "order_id", "timeout": "1h", "slaMs": 250.5,
            "steps": [
                {"id": "a", "name": " Start ", "kind": "transaction", "transactionId": "k1"},
                {"id": "b", "name": "Pay", "kind": "rum", "transactionId": "k2", "optional": true, "maxGapMs": 5},
                {"id": "c", "kind": "log", "condition": {"field": "x"}, "service": "shop", "outcome": "success",
                    "correlationField": "oid"},
                {"id": "d", "kind": "span", "transactionId": "k9"},
                "no step",
            ],
        }));
        let process = transactions().process("p", 3, &body);
        assert_eq!((process.id.as_str(), process.version, process.timeout_ms), ("p", 3, 3_600_000));
        assert_eq!((process.correlation.as_str(), process.sla_ms), ("order_id", Some(250.5)));
        // A step without a service reads all of them, which an empty name stands for.
        assert_eq!(process.services, ["", "shop", "web"]);
        let [start, pay, log, span] = &process.steps[..] else { panic!("{:?}", process.steps) };
        assert_eq!(
            (start.name.as_str(), start.kind, start.service.as_deref()),
            ("Start", StepKind::Transaction, Some("shop"))
        );
        let leaf = |op: &str, value: &str| json!({"field": "attributes.bt.name", "op": op, "value": value});
        assert_eq!(start.condition, json!({"any": [leaf("eq", "checkout*"), leaf("glob", "checkout*")]}));
        assert_eq!((pay.kind, pay.service.as_deref(), pay.optional), (StepKind::Rum, Some("web"), true));
        assert_eq!((&pay.condition, pay.max_gap_ms, pay.outcome.as_str()), (&leaf("eq", "Pay"), Some(5), "none"));
        assert_eq!(
            (log.kind, log.correlation.as_deref(), log.outcome.as_str()),
            (StepKind::Log, Some("oid"), "success")
        );
        assert_eq!(log.condition, json!({"field": "x"}));
        assert_eq!((span.kind, &span.condition, span.service.as_deref()), (StepKind::Span, &Value::Null, None));
    }

    #[test]
    fn a_process_lasts_a_day_unless_it_says_how_long() {
        for (body, expected) in
            [(json!({}), 86_400_000), (json!({"timeout": "a while"}), 86_400_000), (json!({"timeout": "90s"}), 90_000)]
        {
            let process = transactions().process("p", 1, &map(&body));
            assert_eq!((process.timeout_ms, process.steps.len(), process.sla_ms), (expected, 0, None), "{body}");
        }
    }

    #[test]
    fn key_transactions_have_the_limits_that_are_set() {
        let bare = key_of(&transactions().services[0], "service");
        assert_eq!((bare.service.as_str(), bare.latency_percentile, bare.threshold_ms), ("shop", 95.0, None));
        assert!(bare.transaction.matches("checkout now") && !bare.transaction.matches("cart"));
        let body = json!({
            "application": "web", "transactionName": "Pay", "latencyPercentile": 99.9, "apdexThresholdMs": 500,
            "errorRateSloPct": 0, "vitals": {"lcpMs": 2500, "cls": 0.1},
        });
        let whole = key_of(&Entity::for_tests("k", body), "application");
        assert_eq!((whole.service.as_str(), whole.latency_percentile), ("web", 99.9));
        assert_eq!((whole.threshold_ms, whole.error_rate_slo_pct), (Some(500.0), Some(0.0)));
        assert_eq!(whole.vitals, Vitals { lcp_ms: Some(2500.0), inp_ms: None, cls: Some(0.1) });
    }

    #[test]
    fn conditions_of_transactions() {
        let leaf = |op: &str, value: &str| json!({"field": "attributes.bt.name", "op": op, "value": value});
        for name in ["checkout", "a b", "a?b", ""] {
            let condition = transaction_condition(&NamePattern::new(name));
            if NamePattern::new(name).is_pattern() {
                assert_eq!(condition, json!({"any": [leaf("eq", name), leaf("glob", name)]}), "{name}");
            } else {
                assert_eq!(condition, leaf("eq", name), "{name}");
            }
        }
        let both = json!({"any": [leaf("eq", "pay*"), leaf("glob", "pay*")]});
        assert_eq!(transaction_condition(&NamePattern::new("pay*")), both);
    }

    #[test]
    fn kinds_of_steps() {
        for (word, kind) in [
            ("transaction", StepKind::Transaction),
            ("log", StepKind::Log),
            ("event", StepKind::Event),
            ("rum", StepKind::Rum),
            ("span", StepKind::Span),
            ("", StepKind::Span),
            ("Log", StepKind::Span),
        ] {
            let step = transactions().step(&map(&json!({"kind": word})));
            assert_eq!(step.kind, kind, "{word}");
            assert_eq!((step.condition, step.service, step.optional), (Value::Null, None, false), "{word}");
        }
        // A transaction of pages is unknown to services; a deleted one is ignored.
        for (word, id) in [("transaction", "k2"), ("rum", "k1"), ("span", "none"), ("span", "")] {
            let body = json!({"kind": word, "transactionId": id, "condition": {"field": "x"}});
            let step = transactions().step(&map(&body));
            assert_eq!((step.condition, step.service), (json!({"field": "x"}), None), "{word} {id}");
        }
        // The step's own service takes precedence; the condition is that of the transaction.
        let body = json!({"kind": "span", "transactionId": "k1", "condition": {"field": "x"}, "service": "other"});
        let step = transactions().step(&map(&body));
        assert_eq!((step.service.as_deref(), step.condition.get("any").is_some()), (Some("other"), true));
    }

    #[test]
    fn services_of_processes() {
        let step = |service: &str| json!({"service": service});
        let body = json!({"name": "p", "steps": [step("b"), step("a"), 5, step("b"), {}]});
        let process = transactions().process("p", 7, &map(&body));
        assert_eq!((process.version, process.name.as_str(), process.steps.len()), (7, "p", 4));
        // A step without a service reads the spans of all.
        assert_eq!(process.services, ["", "a", "b"]);
    }
}
