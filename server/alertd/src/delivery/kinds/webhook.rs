//! A generic webhook: Alertmanager's JSON, version 4.

use quiver_alerting::options::OptionValue;
use quiver_alerting::receivers::Integration;

use super::super::files::Files;
use super::super::http_call::Call;
use super::super::message::{Failure, Message};
use super::super::message_text::Texts;

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let max = usize::try_from(options.integer("max_alerts")).unwrap_or(0);
    let texts = Texts::new(message, max);
    let url = files.secret(options, "url").map_err(Failure::lasting)?;
    let url = texts.text(&url)?;
    let body = match options.value("payload") {
        Some(OptionValue::Any(payload)) if !payload.is_null() => texts.value(payload)?.to_string(),
        _ => {
            let truncated = if max > 0 { message.alerts.len().saturating_sub(max) } else { 0 };
            envelope(&texts, &message.group_key, truncated)
        }
    };
    let mut call = Call::of(url, (body + "\n").into_bytes(), "application/json");
    call.headers.push(("x-quiver-instance", message.instance.clone()));
    Ok(vec![call])
}

fn envelope(texts: &Texts<'_>, group_key: &str, truncated: usize) -> String {
    let mut out = String::new();
    texts.data().json(&mut out);
    // The data is an object; the envelope has three fields more.
    out.pop();
    let key = serde_json::Value::from(group_key);
    out + &format!(",\"version\":\"4\",\"groupKey\":{key},\"truncatedAlerts\":{truncated}}}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::super::tests::{integration, told};
    use super::*;

    fn body(message: &Message, yaml: &str) -> Value {
        let call = calls(message, &integration("webhook", yaml), &Files::default()).unwrap().remove(0);
        serde_json::from_slice(&call.body).unwrap()
    }

    #[test]
    fn version_4() {
        let message = told(&[("a", true), ("b", false)]);
        let shown = body(&message, "{url: 'http://h/'}");
        let expected = json!({
            "version": "4", "groupKey": "{}:{alertname=\"High\"}", "truncatedAlerts": 0, "status": "firing",
            "receiver": "team\\.x", "groupLabels": {"alertname": "High"}, "commonLabels": {"alertname": "High"},
            "commonAnnotations": {"summary": "high"}, "routeLabels": {"tier": "1"},
            "notification_reason": "first notification", "externalURL": "http://quiver.example",
            "alerts": [
                {"status": "firing", "labels": {"alertname": "High", "instance": "a"}, "annotations": {"summary": "high"},
                 "startsAt": "1970-01-01T00:00:10Z", "endsAt": "0001-01-01T00:00:00Z", "generatorURL": "http://g/a",
                 "fingerprint": shown["alerts"][0]["fingerprint"]},
                {"status": "resolved", "labels": {"alertname": "High", "instance": "b"},
                 "annotations": {"summary": "high"}, "startsAt": "1970-01-01T00:00:10Z",
                 "endsAt": "1970-01-01T00:00:50Z", "generatorURL": "http://g/b",
                 "fingerprint": shown["alerts"][1]["fingerprint"]},
            ],
        });
        assert_eq!(shown, expected);
    }

    #[test]
    fn cut_and_other_bodies() {
        let message = told(&[("b", false), ("a", true)]);
        let shown = body(&message, "{url: 'http://h/', max_alerts: 1}");
        assert_eq!((&shown["truncatedAlerts"], &shown["status"]), (&json!(1), &json!("resolved")));
        let shown = body(&message, "{url: 'http://h/', payload: {text: '{{ .Status }}', n: '{{ len .Alerts }}'}}");
        assert_eq!(shown, json!({"text": "firing", "n": 2}));
        // Numbers and mappings as Go reads and writes them.
        let yaml = r#"{url: 'http://h/', payload: {a: '{{ "012" }}', b: 1.0, c: '{{ "x: 1\nx: 1e3\n7: y" }}', d: '{{ "_1" }}'}}"#;
        let call = calls(&message, &integration("webhook", yaml), &Files::default()).unwrap().remove(0);
        assert_eq!(String::from_utf8_lossy(&call.body), "{\"a\":10,\"b\":1,\"c\":{\"x\":1000},\"d\":\"_1\"}\n");
        let yaml = "{url: 'http://h/{{ .Status }}'}";
        let call = calls(&message, &integration("webhook", yaml), &Files::default()).unwrap().remove(0);
        assert_eq!(call.url, "http://h/firing");
    }
}
