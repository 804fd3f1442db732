//! The data that message templates can use.

use std::collections::BTreeMap;

use quiver_types::LabelSet;

use super::Alert;
use crate::labels::{fingerprint, fingerprint_text};
use crate::template::{Budget, ListKind, MapKind, Options, RouteLabels, TemplateEnvironment, Templates, Time, Value};

/// What the templates of route labels are told as the reason: they are rendered before there is one.
const NO_REASON: &str = "unknown";
/// Most route labels of one message that are templates.
const ROUTE_TEMPLATES_MAX: usize = 2000;
/// What all of them may come to, in bytes.
const ROUTE_TEXTS_MAX: usize = 1 << 20;

/// Escapes special characters of regular expressions, as Go's `regexp.QuoteMeta` does.
fn quote_meta(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if "\\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn labels(pairs: &LabelSet) -> Value {
    Value::text_map(MapKind::Labels, pairs.iter())
}

fn map(pairs: &BTreeMap<String, String>) -> Value {
    Value::text_map(MapKind::Labels, pairs.iter().map(|(n, v)| (n.as_str(), v.as_str())))
}

fn alert(alert: &Alert, now: i64) -> Value {
    let resolved = alert.is_resolved(now);
    let ends_at = if resolved { Time::from_nanos(alert.ends_at.into()) } else { Time::zero() };
    Value::fields(
        "template.Alert",
        vec![
            ("Status", "status", Value::text(if resolved { "resolved" } else { "firing" })),
            ("Labels", "labels", labels(&alert.labels)),
            ("Annotations", "annotations", map(&alert.annotations)),
            ("StartsAt", "startsAt", Value::Time(Time::from_nanos(alert.starts_at.into()))),
            ("EndsAt", "endsAt", Value::Time(ends_at)),
            ("GeneratorURL", "generatorURL", Value::text(&alert.generator_url)),
            ("Fingerprint", "fingerprint", Value::text(fingerprint_text(fingerprint(&alert.labels)))),
        ],
    )
}

/// A message about alerts, as its templates see it: Go's `template.Data`.
#[derive(Debug)]
pub struct MessageData<'a> {
    /// Name of the receiver.
    pub receiver: &'a str,
    /// The alerts, in order.
    pub alerts: &'a [Alert],
    /// Labels of `group_by` that all alerts share.
    pub group_labels: &'a LabelSet,
    /// Labels of the route: texts for a message, templates where they are yet to be rendered.
    pub route_labels: &'a BTreeMap<String, String>,
    /// Why the group is notified now.
    pub reason: &'a str,
    /// Where this service is seen from outside.
    pub external_url: &'a str,
    /// Unix nanoseconds at which states of alerts count.
    pub now_ns: i64,
}

/// Whether labels of a route are anything but plain texts.
pub fn are_templates(route_labels: &BTreeMap<String, String>) -> bool {
    route_labels.values().any(|text| is_template(text))
}

fn is_template(text: &str) -> bool {
    text.contains("{{")
}

impl MessageData<'_> {
    /// Renders the labels of the route, which are templates over all alerts of a group. One that fails is left out, as
    /// in Alertmanager, and given to `failed` with its name and what is wrong.
    pub fn route_texts(&self, templates: &Templates, failed: &mut dyn FnMut(&str, &str)) -> BTreeMap<String, String> {
        if !are_templates(self.route_labels) {
            return self.route_labels.clone();
        }
        let data = MessageData { reason: NO_REASON, ..*self }.to_value();
        let (mut out, mut count, mut bytes) = (BTreeMap::new(), 0, 0);
        for (name, text) in self.route_labels {
            let outcome = if !is_template(text) {
                Ok(text.clone())
            } else if count < ROUTE_TEMPLATES_MAX && bytes < ROUTE_TEXTS_MAX {
                count += 1;
                self.route_text(text, &data, templates)
            } else {
                Err(format!(
                    "a route has more than {ROUTE_TEMPLATES_MAX} templates or {ROUTE_TEXTS_MAX} bytes of labels"
                ))
            };
            match outcome {
                Ok(shown) => {
                    bytes += shown.len();
                    out.insert(name.clone(), shown);
                }
                Err(error) => failed(name, &error),
            }
        }
        out
    }

    fn route_text(&self, text: &str, data: &Value, templates: &Templates) -> Result<String, String> {
        let mut templates = templates.clone();
        templates.add("", text).map_err(|e| e.to_string())?;
        let host = TemplateEnvironment {
            query: None,
            now_ns: i128::from(self.now_ns),
            external_url: self.external_url,
            route_labels: Some(RouteLabels::Templates(self.route_labels)),
        };
        let options = Options { host, budget: Budget::of_message(self.alerts.len()), ..Options::default() };
        templates.run("", data, &options).map_err(|e| e.to_string())
    }

    /// Makes the value that templates are run over.
    pub fn to_value(&self) -> Value {
        let alerts = self.alerts;
        let common = |pairs: &dyn Fn(&Alert) -> BTreeMap<String, String>| {
            let mut all = alerts.iter().map(pairs);
            let mut out = all.next().unwrap_or_default();
            all.for_each(|other| out.retain(|name, value| other.get(name) == Some(value)));
            out
        };
        let own_labels = |a: &Alert| a.labels.iter().map(|(n, v)| (n.to_owned(), v.to_owned())).collect();
        let firing = alerts.iter().any(|a| !a.is_resolved(self.now_ns));
        let items = alerts.iter().map(|a| alert(a, self.now_ns)).collect();
        Value::fields(
            "template.Data",
            vec![
                ("Receiver", "receiver", Value::text(quote_meta(self.receiver))),
                ("Status", "status", Value::text(if firing { "firing" } else { "resolved" })),
                ("Alerts", "alerts", Value::list(ListKind::Alerts, items)),
                ("NotificationReason", "notification_reason", Value::text(self.reason)),
                ("GroupLabels", "groupLabels", labels(self.group_labels)),
                ("CommonLabels", "commonLabels", map(&common(&own_labels))),
                ("CommonAnnotations", "commonAnnotations", map(&common(&|a: &Alert| (*a.annotations).clone()))),
                ("RouteLabels", "routeLabels", map(self.route_labels)),
                ("ExternalURL", "externalURL", Value::text(self.external_url)),
            ],
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::template::default_templates;

    #[test]
    fn what_templates_see() {
        let alert = |i: &str, ends_at| Alert {
            labels: LabelSet::from_pairs([("alertname", "High"), ("i", i)]),
            annotations: Arc::new([("s".to_owned(), "x".to_owned())].into()),
            starts_at: 0,
            ends_at,
            is_timeout: false,
            updated_at: 0,
            generator_url: "http://g".into(),
        };
        let alerts = [alert("1", 100), alert("2", 10)];
        let group = LabelSet::from_pairs([("alertname", "High")]);
        let data = MessageData {
            receiver: "team.x",
            alerts: &alerts,
            group_labels: &group,
            route_labels: &BTreeMap::new(),
            reason: "first notification",
            external_url: "http://am",
            now_ns: 50,
        };
        let data = data.to_value();
        let mut templates = default_templates();
        let text = "{{.Receiver}} {{.Status}} {{.CommonLabels}} {{.CommonAnnotations.s}} {{len .Alerts.Resolved}} {{(index .Alerts 0).EndsAt.IsZero}} {{.NotificationReason}}";
        templates.add("m", text).expect("valid");
        let shown = templates.run("m", &data, &Options::default());
        assert_eq!(shown.as_deref(), Ok("team\\.x firing alertname=High x 1 true first notification"));
    }

    fn alert(pairs: &[(&str, &str)], annotations: &[(&str, &str)], ends_at: i64) -> Alert {
        Alert {
            labels: LabelSet::from_pairs(pairs.iter().copied()),
            annotations: Arc::new(annotations.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect()),
            starts_at: 1,
            ends_at,
            is_timeout: false,
            updated_at: 0,
            generator_url: "http://g?a=1&b".into(),
        }
    }

    fn shown(text: &str, alerts: &[Alert]) -> String {
        let route = BTreeMap::from([("team".to_owned(), "x".to_owned())]);
        let group = LabelSet::default();
        let data = MessageData {
            receiver: "a.b",
            alerts,
            group_labels: &group,
            route_labels: &route,
            reason: "r",
            external_url: "u",
            now_ns: 50,
        };
        let data = data.to_value();
        let mut templates = default_templates();
        templates.add("m", text).expect(text);
        templates.run("m", &data, &Options::default()).expect(text)
    }

    /// Common labels are those with the same value in all alerts.
    #[test]
    fn what_is_common() {
        let common = |alerts: &[Alert]| shown("{{.CommonLabels}}|{{.CommonAnnotations}}|{{.Status}}", alerts);
        let one = alert(&[("a", "1"), ("b", "2")], &[("s", "x")], 100);
        assert_eq!(common(std::slice::from_ref(&one)), "a=1, b=2|s=x|firing");
        let ended = alert(&[("b", "2"), ("a", "3"), ("c", "4")], &[("s", "x"), ("t", "y")], 50);
        assert_eq!(common(&[one.clone(), ended.clone()]), "b=2|s=x|firing");
        assert_eq!(common(&[ended.clone(), one.clone()]), "b=2|s=x|firing");
        assert_eq!(common(&[one, ended.clone(), alert(&[("c", "4")], &[("s", "")], 1)]), "||firing");
        assert_eq!(common(&[ended]), "a=3, b=2, c=4|s=x, t=y|resolved");
        assert_eq!(common(&[]), "||resolved");
    }

    #[test]
    fn alerts_as_json() {
        let labels = LabelSet::from_pairs([("i", "<1>")]);
        let json = shown(
            "{{range .Alerts}}{{toJson .}};{{end}}",
            &[alert(&[("i", "<1>")], &[], 100), alert(&[("i", "<1>")], &[("s", "x")], 50)],
        );
        let id = fingerprint_text(fingerprint(&labels));
        let one = |status: &str, annotations: &str, ends_at: &str| {
            format!(
                "{{\"status\":\"{status}\",\"labels\":{{\"i\":\"\\u003c1\\u003e\"}},\"annotations\":{annotations},\
                \"startsAt\":\"1970-01-01T00:00:00.000000001Z\",\"endsAt\":\"{ends_at}\",\
                \"generatorURL\":\"http://g?a=1\\u0026b\",\"fingerprint\":\"{id}\"}};"
            )
        };
        let firing = one("firing", "{}", "0001-01-01T00:00:00Z");
        let resolved = one("resolved", "{\"s\":\"x\"}", "1970-01-01T00:00:00.00000005Z");
        assert_eq!(json, firing + &resolved);
        assert_eq!(shown("{{.RouteLabels.team}} {{.Receiver}}", &[]), "x a\\.b");
    }

    /// Each sees the others as they are written, and by `routeLabels` what they yield; one that fails is not there.
    #[test]
    fn labels_of_routes_are_rendered() {
        let labels = [
            ("team", "{{ .GroupLabels.job }}-{{ .Status }}"),
            ("tier", "1 }}"),
            ("who", "{{ routeLabels \"team\" }}/{{ .RouteLabels.tier }}/{{ len .Alerts }}/{{ .NotificationReason }}"),
            ("wrong", "{{ .Nothing }}"),
            ("loop", "{{ routeLabels \"loop\" }}"),
            ("open", "{{ if"),
        ];
        let labels: BTreeMap<String, String> = labels.map(|(n, v)| (n.to_owned(), v.to_owned())).into();
        let alerts = [alert(&[("a", "1")], &[], 100), alert(&[("a", "2")], &[], 10)];
        let group = LabelSet::from_pairs([("job", "cart")]);
        let data = MessageData {
            receiver: "r",
            alerts: &alerts,
            group_labels: &group,
            route_labels: &labels,
            reason: "new alerts added",
            external_url: "u",
            now_ns: 50,
        };
        let mut failed = Vec::new();
        let texts = data.route_texts(&default_templates(), &mut |name, error| {
            assert!(!error.is_empty());
            failed.push(name.to_owned());
        });
        let texts: Vec<(&str, &str)> = texts.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        assert_eq!(texts, [("team", "cart-firing"), ("tier", "1 }}"), ("who", "cart-firing/1 }}/2/unknown")]);
        assert_eq!(failed, ["loop", "open", "wrong"]);
        assert!(are_templates(&labels) && !are_templates(&BTreeMap::from([("a".to_owned(), "x }}".to_owned())])));
    }

    #[test]
    fn names_of_receivers_as_patterns() {
        for (name, expected) in [
            ("", ""),
            ("team-x_1 ä/", "team-x_1 ä/"),
            ("a.b", "a\\.b"),
            ("\\.+*?()|[]{}^$", "\\\\\\.\\+\\*\\?\\(\\)\\|\\[\\]\\{\\}\\^\\$"),
        ] {
            assert_eq!(quote_meta(name), expected);
        }
    }
}
