//! PagerDuty: Events API version 2, or version 1 if a service key is configured.

use quiver_alerting::options::{OptionValue, Options};
use quiver_alerting::receivers::Integration;
use serde_json::{Map, Value as Json, json};

use super::super::files::Files;
use super::super::http_call::Call;
use super::super::message::{Failure, Message};
use super::super::message_text::{Texts, cut_chars};
use super::message_fields::{key_hash, put};

/// Longest summary, in characters.
const SUMMARY_MAX: usize = 1024;
/// Largest event, in bytes.
const EVENT_MAX: usize = 512_000;
/// Where events of version 1 go.
const V1_URL: &str = "https://events.pagerduty.com/generic/2010-04-15/create_event.json";

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let details = details(options, &texts)?;
    let action = if message.fires() { "trigger" } else { "resolve" };
    let v1 = options.has("service_key") || options.has("service_key_file");
    let event = Event { message, options, texts: &texts, action, files };
    let make = |details: Json| if v1 { event.v1(details) } else { event.v2(details) };
    let mut event = make(details)?;
    // It is followed by the end of a line.
    if event.to_string().len() >= EVENT_MAX {
        let why = "Custom details have been removed because the original event exceeds the maximum size of 512KB";
        event = make(json!({"error": why}))?;
    }
    let mut call = Call::json(if v1 { V1_URL } else { options.text("url") }, &event);
    if v1 {
        // Version 1 tells a limit of calls so.
        call.retried_statuses = &[403];
    }
    Ok(vec![call])
}

/// The texts that are there always; those of the configuration win.
const DETAILS: [(&str, &str); 4] = [
    ("firing", "{{ .Alerts.Firing | toJson }}"),
    ("resolved", "{{ .Alerts.Resolved | toJson }}"),
    ("num_firing", "{{ .Alerts.Firing | len }}"),
    ("num_resolved", "{{ .Alerts.Resolved | len }}"),
];

fn details(options: &Options, texts: &Texts<'_>) -> Result<Json, Failure> {
    let mut all: Map<String, Json> = DETAILS.iter().map(|(name, text)| ((*name).to_owned(), (*text).into())).collect();
    if let Some(OptionValue::Any(Json::Object(own))) = options.value("details") {
        all.extend(own.clone());
    }
    let shown = |(name, value): (String, Json)| Ok((name, texts.value(&value)?));
    Ok(Json::Object(all.into_iter().map(shown).collect::<Result<_, Failure>>()?))
}

/// Renders a key. One that its templates leave empty would tell nobody.
fn key(template: &str, texts: &Texts<'_>) -> Result<String, Failure> {
    let key = texts.text(template)?.trim().to_owned();
    if key.is_empty() { Err(Failure::lasting("the key is empty after templating")) } else { Ok(key) }
}

/// What both versions of an event are made of.
struct Event<'a> {
    message: &'a Message,
    options: &'a Options,
    texts: &'a Texts<'a>,
    /// `trigger` or `resolve`.
    action: &'a str,
    files: &'a Files,
}

impl Event<'_> {
    /// Renders an option.
    fn text(&self, name: &str) -> Result<String, Failure> {
        self.texts.text(self.options.text(name))
    }

    /// The key of a service, from the configuration or its file.
    fn key(&self, name: &str) -> Result<String, Failure> {
        key(&self.files.secret(self.options, name).map_err(Failure::lasting)?, self.texts)
    }

    fn v1(&self, details: Json) -> Result<Json, Failure> {
        let key = self.key("service_key")?;
        let description = cut_chars(&self.text("description")?, SUMMARY_MAX);
        let mut out = Map::new();
        put(&mut out, "service_key", key);
        put(&mut out, "event_type", self.action.to_owned());
        // What version 2 would hold is there, and empty.
        out.insert("event_action".to_owned(), "".into());
        out.insert("payload".to_owned(), Json::Null);
        put(&mut out, "incident_key", key_hash(self.message));
        put(&mut out, "description", description);
        out.insert("details".to_owned(), details);
        if self.action == "trigger" {
            put(&mut out, "client", self.text("client")?);
            put(&mut out, "client_url", self.text("client_url")?);
        }
        Ok(out.into())
    }

    fn v2(&self, details: Json) -> Result<Json, Failure> {
        let Self { message, options, texts, action, .. } = *self;
        let text = |name: &str| self.text(name);
        let key = self.key("routing_key")?;
        // One that its template leaves empty stays so, for the service to judge.
        let severity = if options.has("severity") { text("severity")? } else { "error".to_owned() };
        let source = if options.has("source") { text("source")? } else { text("client")? };
        let mut payload = Map::new();
        payload.insert("summary".to_owned(), cut_chars(&text("description")?, SUMMARY_MAX).into());
        payload.insert("source".to_owned(), source.into());
        payload.insert("severity".to_owned(), severity.into());
        for name in ["class", "component", "group"] {
            put(&mut payload, name, text(name)?);
        }
        payload.insert("custom_details".to_owned(), details);
        let mut out = Map::new();
        put(&mut out, "routing_key", key);
        put(&mut out, "dedup_key", key_hash(message));
        put(&mut out, "event_action", action.to_owned());
        out.insert("payload".to_owned(), payload.into());
        put(&mut out, "client", text("client")?);
        put(&mut out, "client_url", text("client_url")?);
        for (list, needed, names) in
            [("images", "src", ["src", "alt", "href"].as_slice()), ("links", "href", &["href", "text"])]
        {
            let mut shown = Vec::new();
            for own in options.objects(list) {
                let mut one = Map::new();
                for name in names {
                    one.insert((*name).to_owned(), texts.text(own.text(name))?.into());
                }
                shown.extend((one[needed] != "").then_some(Json::Object(one)));
            }
            if !shown.is_empty() {
                out.insert(list.to_owned(), shown.into());
            }
        }
        Ok(out.into())
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{integration, told};
    use super::*;

    fn event(message: &Message, yaml: &str) -> (String, Json) {
        let call = calls(message, &integration("pagerduty", yaml), &Files::default()).unwrap().remove(0);
        (call.url, serde_json::from_slice(&call.body).unwrap())
    }

    #[test]
    fn events() {
        let (url, v2) = event(
            &told(&[("a", true)]),
            "{routing_key: k, details: {x: '{{ .Status }}'}, links: [{href: 'http://l'}, {text: t}]}",
        );
        assert_eq!(url, "https://events.pagerduty.com/v2/enqueue");
        assert_eq!((&v2["routing_key"], &v2["event_action"]), (&json!("k"), &json!("trigger")));
        assert_eq!(
            (&v2["payload"]["summary"], &v2["payload"]["severity"]),
            (&json!("[FIRING:1] High (a)"), &json!("error"))
        );
        assert_eq!((&v2["payload"]["source"], &v2["client"]), (&json!("Alertmanager"), &json!("Alertmanager")));
        let details = &v2["payload"]["custom_details"];
        assert_eq!((&details["x"], &details["num_firing"]), (&json!("firing"), &json!(1)));
        assert_eq!(details["firing"][0]["labels"], json!({"alertname": "High", "instance": "a"}));
        assert_eq!(details["resolved"], json!([]));
        assert_eq!(v2["links"], json!([{"href": "http://l", "text": ""}]));
        assert_eq!(v2["dedup_key"].as_str().map(str::len), Some(64));
        let severity = |given: &str| {
            let (_, event) = event(&told(&[("a", true)]), &format!("{{routing_key: k, severity: '{given}'}}"));
            event["payload"]["severity"].clone()
        };
        assert_eq!(["{{ .Status }}", "{{ .CommonLabels.none }}", ""].map(severity), ["firing", "", "error"]);
        let (url, v1) = event(&told(&[("a", false)]), "{service_key: k}");
        assert_eq!((url.as_str(), &v1["event_type"], &v1["client"]), (V1_URL, &json!("resolve"), &Json::Null));
        assert_eq!(v1["incident_key"], v2["dedup_key"]);
        assert_eq!((&v1["event_action"], v1.get("payload")), (&json!(""), Some(&Json::Null)));
        let empty = integration("pagerduty", "{routing_key: '{{ .CommonLabels.none }}'}");
        assert!(calls(&told(&[("a", true)]), &empty, &Files::default()).unwrap_err().text.contains("key is empty"));
        let (_, large) =
            event(&told(&[("a", true)]), &format!("{{routing_key: k, details: {{x: {}}}}}", "y".repeat(EVENT_MAX)));
        assert!(large["payload"]["custom_details"]["error"].is_string());
    }
}
