//! Data-extraction rules of alerts: applied to posted alerts before they are routed (`config-api` 3.7).

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use quiver_alerting::dispatch::Alert;
use quiver_types::LabelSet;
use quiver_types::condition::{FieldName, Fields};
use quiver_types::extraction::Record;
use serde_json::{Map, Value};

use crate::effects::{Signal, suspend};
use crate::state::AppState;

/// An alert as rules see it: fields are `labels.<name>`, `annotations.<name>`, or a plain name, which is looked up in
/// both.
#[derive(Debug, Default)]
pub(crate) struct AlertRecord {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    /// Labels that name the service of an alert.
    service_labels: Arc<[String]>,
}

impl AlertRecord {
    /// Makes the alert of a test: in the format in which alerts are posted, or with fields named `labels.<name>` and
    /// `annotations.<name>`.
    pub(crate) fn of_sample(sample: &Map<String, Value>, service_labels: &[String]) -> Self {
        let mut record = Self { service_labels: service_labels.into(), ..Self::default() };
        for (name, value) in sample {
            match (name.as_str(), value) {
                ("labels" | "annotations", Value::Object(all)) => {
                    all.iter().for_each(|(key, value)| record.set(&format!("{name}.{key}"), value));
                }
                _ if name.starts_with("labels.") || name.starts_with("annotations.") => record.set(name, value),
                // Rules do not see times and URLs.
                _ => {}
            }
        }
        record
    }

    /// The service of the alert.
    pub(crate) fn service(&self) -> String {
        self.label_set().service(&self.service_labels).to_owned()
    }

    fn label_set(&self) -> LabelSet {
        LabelSet::from_pairs(self.labels.iter().map(|(n, v)| (n.as_str(), v.as_str())))
    }
}

impl Fields for AlertRecord {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let name = match name {
            FieldName::Attribute(key) => key.clone(),
            other => other.to_string(),
        };
        let found = match name.split_once('.') {
            Some(("labels", key)) => self.labels.get(key),
            Some(("annotations", key)) => self.annotations.get(key),
            _ => self.labels.get(&name).or_else(|| self.annotations.get(&name)),
        };
        found.map(|text| Cow::Borrowed(text.as_str()))
    }
}

impl Record for AlertRecord {
    fn is_reserved(&self, field: &str) -> bool {
        field.strip_prefix("labels.").is_some_and(|label| self.service_labels.iter().any(|name| name == label))
    }

    /// Fields `labels.<name>` are labels, which identify an alert; all others become annotations.
    fn set(&mut self, field: &str, value: &Value) {
        let (into, key) = match field.split_once('.') {
            Some(("labels", key)) => (&mut self.labels, key),
            Some(("annotations", key)) => (&mut self.annotations, key),
            _ => (&mut self.annotations, field),
        };
        match value {
            Value::Null => {
                into.remove(key);
            }
            Value::String(text) => {
                into.insert(key.to_owned(), text.clone());
            }
            other => {
                into.insert(key.to_owned(), other.to_string());
            }
        }
    }
}

/// Applies the rules of alerts.
pub(super) fn extract(state: &AppState, alerts: Vec<Alert>) -> Vec<Alert> {
    let rules = state.effects.extraction(Signal::Alerts);
    if rules.is_empty() {
        return alerts;
    }
    let service_labels: Arc<[String]> = state.alertd.router.service_labels().into();
    let each = alerts.into_iter().map(|mut alert| {
        let labels = alert.labels.iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let annotations = Arc::unwrap_or_clone(alert.annotations);
        let mut record = AlertRecord { labels, annotations, service_labels: Arc::clone(&service_labels) };
        let service = record.service();
        rules.apply_to(&mut record, &service);
        alert.labels = record.label_set();
        alert.annotations = Arc::new(record.annotations);
        alert
    });
    let alerts = each.collect();
    suspend(&state.config, rules.over_budget(state.clock.now_ms()));
    alerts
}

#[cfg(test)]
mod tests {
    use quiver_types::extraction::ExtractionRule;
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_annotations() {
        let text = |k: &str, v: &str| (k.to_owned(), v.to_owned());
        let mut record = AlertRecord {
            labels: [text("instance", "db-1:9100")].into(),
            annotations: [text("summary", "disk full")].into(),
            ..AlertRecord::default()
        };
        let mut apply = |source: &str, field: &str| {
            let body = json!({"signal": "alerts", "source": source, "method": "regex", "expression": "(?P<x>[a-z]+)",
                "targets": [{"field": field, "from": "x"}]});
            ExtractionRule::of_json("r", body.as_object().unwrap()).unwrap().apply(&mut record);
        };
        apply("labels.instance", "labels.kind");
        apply("summary", "topic");
        assert_eq!(record.labels.get("kind").map(String::as_str), Some("db"));
        assert_eq!(record.annotations.get("topic").map(String::as_str), Some("disk"));
    }

    /// Who sees an alert follows from these labels, so that a rule that moves alerts elsewhere needs more than the right to
    /// edit rules of their service.
    #[test]
    fn labels_that_name_the_service_are_reserved() {
        let names = ["service_name", "job"].map(str::to_owned);
        let sample = json!({"labels": {"job": "pay", "to": "cart"}});
        for (allows, label, written) in [
            (false, "service_name", None),
            (false, "job", Some("pay")),
            (false, "service", Some("cart")),
            (true, "service_name", Some("cart")),
            (true, "job", Some("cart")),
        ] {
            let mut record = AlertRecord::of_sample(sample.as_object().unwrap(), &names);
            let target = json!({"field": format!("labels.{label}"), "from": "x", "overwrite": true});
            let body = json!({"signal": "alerts", "service": "pay", "source": "labels.to", "method": "regex",
                "expression": "(?P<x>.+)", "targets": [target], "allowReserved": allows});
            let rule = ExtractionRule::of_json("r", body.as_object().unwrap()).unwrap();
            let applied = rule.apply(&mut record);
            assert_eq!(record.labels.get(label).map(String::as_str), written, "{allows} {label}");
            assert_eq!(applied.errors.is_empty(), written == Some("cart"), "{applied:?}");
        }
    }

    fn record(sample: &Value) -> AlertRecord {
        AlertRecord::of_sample(sample.as_object().expect("an object"), &[])
    }

    #[test]
    fn samples_name_fields_in_two_ways() {
        let check = |sample: Value, labels: &[(&str, &str)], annotations: &[(&str, &str)]| {
            let of = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
            };
            let found = record(&sample);
            assert_eq!((found.labels, found.annotations), (of(labels), of(annotations)), "{sample}");
        };
        check(json!({}), &[], &[]);
        check(json!({"labels": {"a": "1"}}), &[("a", "1")], &[]);
        check(json!({"labels.a": "1", "annotations.b": "2"}), &[("a", "1")], &[("b", "2")]);
        // A name may contain dots itself.
        check(json!({"labels": {"a.b": "1"}, "annotations.c.d": "2"}), &[("a.b", "1")], &[("c.d", "2")]);
        check(json!({"labels": {"annotations.x": "1"}}), &[("annotations.x", "1")], &[]);
        // Other types are converted to strings; null is left out.
        check(json!({"labels": {"a": 1, "b": true, "c": null}}), &[("a", "1"), ("b", "true")], &[]);
        // Rules do not see anything else of an alert.
        check(json!({"startsAt": "2026-01-01T00:00:00Z", "generatorURL": "http://h", "summary": "s"}), &[], &[]);
        check(json!({"labels": "a=1", "annotations": ["x"]}), &[], &[]);
    }

    #[test]
    fn names_are_looked_for_in_labels_first() {
        let record =
            record(&json!({"labels": {"a": "label", "service.name": "cart"}, "annotations": {"a": "note", "b": "x"}}));
        let check = |name: &str, expected: Option<&str>| {
            assert_eq!(record.get(&FieldName::parse(name)).as_deref(), expected, "{name}");
        };
        check("a", Some("label"));
        check("b", Some("x"));
        check("c", None);
        check("labels.a", Some("label"));
        check("annotations.a", Some("note"));
        check("labels.b", None);
        check("attributes.a", Some("label"));
        check("attributes.b", Some("x"));
        check("service.name", Some("cart"));
        check("resource.a", None);
        check("A", None);
        check("", None);
    }

    #[test]
    fn what_rules_write() {
        let mut record = record(&json!({"labels": {"a": "1"}, "annotations": {"a": "2"}}));
        // A plain name is written as an annotation, although it is read from labels, too: it must not change an
        // alert's identity.
        record.set("a", &json!("3"));
        assert_eq!((record.labels["a"].as_str(), record.annotations["a"].as_str()), ("1", "3"));
        record.set("labels.a", &json!(5));
        record.set("attributes.x", &json!([1]));
        assert_eq!((record.labels["a"].as_str(), record.annotations["attributes.x"].as_str()), ("5", "[1]"));
        record.set("labels.a", &Value::Null);
        record.set("labels.none", &Value::Null);
        assert!(record.labels.is_empty() && record.annotations.contains_key("a"));
        // An empty value removes a label.
        record.set("labels.b", &json!(""));
        assert_eq!(record.label_set(), LabelSet::from_pairs([]));
    }
}
