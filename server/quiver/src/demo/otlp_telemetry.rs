//! Converts visits to OTLP/JSON spans and JSON lines of log rows, as senders have them.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::{Value, json};

use super::shop::{DEPLOYED, Step, checkout_version, visit};

/// Visits per second.
const VISITS: u64 = 2;

/// The telemetry of a time range.
#[derive(Debug, Default)]
pub(super) struct TelemetryBatch {
    /// An OTLP/JSON request.
    pub(super) spans: String,
    /// Log records as JSON lines, one object a record.
    pub(super) logs: String,
    /// Server spans, for exemplars: service, instance, start in milliseconds, duration in seconds, trace id.
    pub(super) served: Vec<(&'static str, String, i64, f64, String)>,
}

/// The name of the instance that serves a visit.
pub(super) fn instance(service: &str, second: i64, n: u64) -> String {
    format!("{service}-{}", (second as u64).wrapping_add(n) % 3)
}

fn version(service: &str, second: i64) -> String {
    if service == "checkout" { checkout_version(second) } else { "2.3.1".to_owned() }
}

/// A non-zero id derived from numbers.
fn id(second: i64, n: u64, step: u64) -> u64 {
    let mut z = (second as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 32) ^ (step + 1);
    z = (z ^ (z >> 31)).wrapping_mul(0x7fb5_d329_728e_a185);
    (z ^ (z >> 27)) | 1
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// Makes the telemetry of a range of seconds.
pub(super) fn telemetry_of(seconds: std::ops::Range<i64>) -> TelemetryBatch {
    let mut told = TelemetryBatch::default();
    let mut by_sender: BTreeMap<(&'static str, String, String), Vec<Value>> = BTreeMap::new();
    for second in seconds {
        if DEPLOYED.begins(second) {
            let text = format!("checkout {} deployed", checkout_version(second));
            let row = LogRow {
                time_ns: second * 1_000_000_000,
                level: "info",
                text: &text,
                service: "checkout",
                instance: "checkout-0",
                span: None,
            };
            row.write(&mut told.logs);
        }
        for n in 0..VISITS {
            let trace = format!("{:016x}{:016x}", id(second, n, 1 << 20), id(second, n, 1 << 21));
            let steps = visit(second, n);
            for (i, step) in steps.iter().enumerate() {
                let instance = instance(step.service, second, n);
                let span = format!("{:016x}", id(second, n, i as u64));
                let parent = step.parent.map(|p| format!("{:016x}", id(second, n, p as u64)));
                for note in &step.notes {
                    let row = LogRow {
                        time_ns: step.end,
                        level: note.level,
                        text: &note.text,
                        service: step.service,
                        instance: &instance,
                        span: Some((&trace, &span)),
                    };
                    row.write(&mut told.logs);
                }
                if step.kind == 2 {
                    let took = (step.end - step.start) as f64 / 1e9;
                    told.served.push((step.service, instance.clone(), step.start / 1_000_000, took, trace.clone()));
                }
                let sender = (step.service, instance, version(step.service, second));
                by_sender.entry(sender).or_default().push(span_json(step, &trace, &span, parent));
            }
        }
    }
    let blocks: Vec<Value> = by_sender
        .into_iter()
        .map(|((service, instance, version), spans)| {
            let mut resource = vec![
                attribute("service.name", service),
                attribute("service.instance.id", &instance),
                attribute("service.version", &version),
                attribute("deployment.environment.name", "demo"),
            ];
            if service == "web" {
                resource.push(attribute("browser.platform", "Linux"));
                resource.push(attribute("telemetry.sdk.language", "webjs"));
            } else {
                resource.push(attribute("host.name", &format!("node-{}", instance.len() % 3)));
                resource.push(attribute("k8s.pod.name", &instance));
            }
            json!({"resource": {"attributes": resource}, "scopeSpans": [{"scope": {"name": "shop"}, "spans": spans}]})
        })
        .collect();
    told.spans = json!({"resourceSpans": blocks}).to_string();
    told
}

fn span_json(step: &Step, trace: &str, span: &str, parent: Option<String>) -> Value {
    let mut attributes: Vec<Value> = step.tags.iter().map(|(k, v)| attribute(k, v)).collect();
    attributes.extend(step.numbers.iter().map(|(k, v)| json!({"key": k, "value": {"intValue": v.to_string()}})));
    let mut out = json!({
        "traceId": trace, "spanId": span, "name": step.name, "kind": step.kind,
        "startTimeUnixNano": step.start.to_string(), "endTimeUnixNano": step.end.to_string(),
        "attributes": attributes,
    });
    if let Some(parent) = parent {
        out["parentSpanId"] = parent.into();
    }
    if let Some(message) = step.error {
        out["status"] = json!({"code": 2, "message": message});
        if step.notes.iter().any(|n| n.level == "error") {
            out["events"] = json!([{"timeUnixNano": step.end.to_string(), "name": "exception",
                "attributes": [attribute("exception.type", "ShopError"), attribute("exception.message", message)]}]);
        }
    }
    out
}

/// A log row of the shop.
struct LogRow<'a> {
    time_ns: i64,
    level: &'a str,
    text: &'a str,
    service: &'a str,
    instance: &'a str,
    /// Ids of the trace and the span that logged it.
    span: Option<(&'a str, &'a str)>,
}

impl LogRow<'_> {
    /// Writes it as a line of JSON.
    fn write(&self, out: &mut String) {
        let mut row = json!({"_time": self.time_ns.to_string(), "_msg": self.text, "level": self.level,
            "service.name": self.service, "k8s.pod.name": self.instance});
        if let Some((trace, span)) = self.span {
            row["trace_id"] = trace.into();
            row["span_id"] = span.into();
        }
        let _ = writeln!(out, "{row}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_names_the_same_traces() {
        let told = telemetry_of(1_700_001_490..1_700_001_520);
        let spans: Value = serde_json::from_str(&told.spans).unwrap();
        let text = told.spans.as_str();
        assert!(spans["resourceSpans"].as_array().unwrap().len() > 12);
        for line in told.logs.lines() {
            let row: Value = serde_json::from_str(line).unwrap();
            assert!(row["trace_id"].as_str().is_none_or(|id| text.contains(id)), "{row}");
        }
        assert!(told.served.iter().all(|s| text.contains(&s.4)));
    }

    /// The telemetry of a range equals that of its seconds one by one.
    #[test]
    fn seconds_are_told_one_by_one() {
        let (first, second) = (telemetry_of(1_700_000_000..1_700_000_003), telemetry_of(1_700_000_003..1_700_000_006));
        let both = telemetry_of(1_700_000_000..1_700_000_006);
        assert_eq!(both.logs, first.logs + &second.logs);
        assert_eq!(both.served, [first.served, second.served].concat());
        let nothing = telemetry_of(5..5);
        assert_eq!((nothing.logs.as_str(), nothing.spans.as_str()), ("", "{\"resourceSpans\":[]}"));
    }

    #[test]
    fn each_span_has_an_id_and_a_parent_that_is_there() {
        let told = telemetry_of(1_700_000_000..1_700_000_020);
        let request: Value = serde_json::from_str(&told.spans).unwrap();
        let blocks = request["resourceSpans"].as_array().unwrap();
        let spans = || blocks.iter().flat_map(|block| block["scopeSpans"][0]["spans"].as_array().unwrap());
        let id = |span: &Value, name: &str| (span["traceId"].to_string(), span[name].to_string());
        let ids: std::collections::BTreeSet<_> = spans().map(|span| id(span, "spanId")).collect();
        assert_eq!(ids.len(), spans().count(), "no two are alike");
        for span in spans() {
            assert!(span.get("parentSpanId").is_none() || ids.contains(&id(span, "parentSpanId")), "{span}");
            let time = |name: &str| span[name].as_str().unwrap().parse::<i64>().unwrap();
            assert!(time("startTimeUnixNano") < time("endTimeUnixNano"), "{span}");
        }
        let roots = spans().filter(|span| span.get("parentSpanId").is_none()).count();
        assert_eq!(roots as u64, 20 * VISITS);
    }

    #[test]
    fn a_deployment_is_told() {
        let told = telemetry_of(1_500..1_501);
        let rows = told.logs.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let deployed: Vec<Value> = rows.filter(|row| row["_msg"].as_str().unwrap().ends_with("deployed")).collect();
        let expected = json!([{"_time": "1500000000000", "_msg": "checkout 1.0.0 deployed", "level": "info",
            "service.name": "checkout", "k8s.pod.name": "checkout-0"}]);
        assert_eq!(Value::from(deployed), expected);
        assert!(!telemetry_of(1_499..1_500).logs.contains("deployed"));
    }

    #[test]
    fn failures_have_events_where_somebody_noted_them() {
        let note = |level| super::super::shop::Note { level, text: "x".to_owned() };
        let step = |error, notes| Step {
            parent: None,
            service: "cart",
            name: "n",
            kind: 2,
            start: 5,
            end: 9,
            error,
            tags: vec![("a", "b".to_owned())],
            numbers: vec![("c", 3)],
            notes,
        };
        let told = |step: &Step| span_json(step, "t", "s", None);
        let fine = told(&step(None, vec![note("error")]));
        assert!(fine.get("status").is_none() && fine.get("events").is_none() && fine.get("parentSpanId").is_none());
        assert_eq!(fine["attributes"][1], json!({"key": "c", "value": {"intValue": "3"}}));
        let failed = told(&step(Some("why"), vec![note("info")]));
        assert_eq!(failed["status"], json!({"code": 2, "message": "why"}));
        assert!(failed.get("events").is_none());
        let noted = told(&step(Some("why"), vec![note("info"), note("error")]));
        assert_eq!(
            (&noted["events"][0]["timeUnixNano"], &noted["events"][0]["name"]),
            (&json!("9"), &json!("exception"))
        );
        let child = span_json(&step(None, Vec::new()), "t", "s", Some("p".to_owned()));
        assert_eq!(child["parentSpanId"], "p");
    }
}
