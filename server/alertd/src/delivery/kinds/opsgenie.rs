//! Opsgenie: creates and closes alerts. The hash of a group is the alias of its alert.

use std::collections::BTreeMap;

use quiver_alerting::options::Options;
use quiver_alerting::receivers::Integration;
use serde_json::{Map, Value as Json, json};

use super::super::files::Files;
use super::super::http_call::Call;
use super::super::message::{Failure, Message};
use super::super::message_text::{Texts, cut_chars};
use super::message_fields::{common_labels, key_hash, put};

/// Longest message, in characters.
const MESSAGE_MAX: usize = 130;

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let text = |name: &str| texts.text(options.text(name));
    let (alias, source) = (key_hash(message), text("source")?);
    let base = options.text("api_url").trim_end_matches('/');
    let key = texts.text(&files.secret(options, "api_key").map_err(Failure::lasting)?)?;
    let call = |method: &'static str, path: String, body: Json| {
        let mut call = Call::json(format!("{base}/v2/alerts{path}"), &body);
        call.method = method;
        call.headers.push(("authorization", format!("GenieKey {key}")));
        call
    };
    let by_alias = format!("/{alias}/");
    if !message.fires() {
        return Ok(vec![call("POST", format!("{by_alias}close?identifierType=alias"), json!({"source": source}))]);
    }
    let short = cut_chars(&text("message")?, MESSAGE_MAX);
    let description = text("description")?;
    let mut body = Map::new();
    body.insert("alias".to_owned(), alias.as_str().into());
    body.insert("message".to_owned(), short.as_str().into());
    put(&mut body, "description", description.clone());
    body.insert("details".to_owned(), json!(details(message, options, &texts)?));
    body.insert("source".to_owned(), source.into());
    let responders = responders(options, &texts)?;
    if !responders.is_empty() {
        body.insert("responders".to_owned(), responders.into());
    }
    for name in ["tags", "actions"] {
        let list = text(name)?;
        let words: Vec<&str> = words(&list).collect();
        if !words.is_empty() {
            body.insert(name.to_owned(), json!(words));
        }
    }
    for name in ["note", "priority", "entity"] {
        put(&mut body, name, text(name)?);
    }
    let mut calls = vec![call("POST", String::new(), body.into())];
    if options.truth("update_alerts") {
        let path = |what: &str| format!("{by_alias}{what}?identifierType=alias");
        for (name, text) in [("message", short), ("description", description)] {
            let mut body = Map::new();
            put(&mut body, name, text);
            calls.push(call("PUT", path(name), body.into()));
        }
    }
    Ok(calls)
}

fn details(message: &Message, options: &Options, texts: &Texts<'_>) -> Result<BTreeMap<String, String>, Failure> {
    let mut out = common_labels(message);
    out.extend(texts.map(options.text_map("details"))?);
    Ok(out)
}

/// Splits at commas; spaces within stay, as in Alertmanager.
fn words(list: &str) -> impl Iterator<Item = &str> {
    list.trim().split(',').filter(|word| !word.is_empty())
}

fn responders(options: &Options, texts: &Texts<'_>) -> Result<Vec<Json>, Failure> {
    let mut out = Vec::new();
    for own in options.objects("responders") {
        let mut one = Map::new();
        for name in ["id", "name", "username"] {
            put(&mut one, name, texts.text(own.text(name))?);
        }
        let kind = texts.text(own.text("type"))?;
        // A responder whose templates render to nothing is left out.
        if one.is_empty() && kind.is_empty() {
            continue;
        }
        if kind == "teams" {
            let names = one.get("name").and_then(Json::as_str).unwrap_or_default().to_owned();
            out.extend(words(&names).map(|name| json!({"name": name, "type": "team"})));
            continue;
        }
        one.insert("type".to_owned(), kind.into());
        out.push(one.into());
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{integration, told};
    use super::*;

    fn calls_of(message: &Message, yaml: &str) -> Vec<(&'static str, String, Json)> {
        let calls = calls(message, &integration("opsgenie", yaml), &Files::default()).unwrap();
        assert!(calls.iter().all(|c| c.headers == [("authorization", "GenieKey k".to_owned())]));
        calls.into_iter().map(|c| (c.method, c.url, serde_json::from_slice(&c.body).unwrap())).collect()
    }

    #[test]
    fn created_and_closed() {
        let yaml = "{api_key: k, tags: 'a, b', priority: P1, details: {x: '{{ .Status }}'}, update_alerts: true, \
            responders: [{name: 'r, s', type: teams}, {username: u, type: User}, {name: '{{ .CommonLabels.none }}', \
            type: team}, {name: '{{ .CommonLabels.none }}', type: '{{ .CommonLabels.none }}'}]}";
        let made = calls_of(&told(&[("a", true)]), yaml);
        assert_eq!((made.len(), made[0].0, made[0].1.as_str()), (3, "POST", "https://api.opsgenie.com/v2/alerts"));
        let body = &made[0].2;
        assert_eq!((&body["tags"], &body["priority"]), (&json!(["a", " b"]), &json!("P1")));
        assert_eq!(body["details"], json!({"alertname": "High", "instance": "a", "x": "firing"}));
        let teams = json!([
            {"name": "r", "type": "team"}, {"name": " s", "type": "team"}, {"username": "u", "type": "User"}, {"type": "team"},
        ]);
        assert_eq!(body["responders"], teams);
        assert_eq!(made[1].2["message"], body["message"]);
        let empty = "{api_key: k, update_alerts: true, description: '{{ .CommonLabels.none }}'}";
        assert_eq!(calls_of(&told(&[("a", true)]), empty)[2].2, json!({}));
        let closed = calls_of(&told(&[("a", false)]), yaml);
        assert!(closed[0].1.ends_with("/close?identifierType=alias"), "{closed:?}");
    }
}
