//! Slack, by webhook or bot token; also for services that accept Slack's webhook format.

use quiver_alerting::dispatch::ReceiverData;
use quiver_alerting::options::{OptionValue, Options};
use quiver_alerting::receivers::Integration;
use serde_json::{Map, Value as Json, json};

use super::super::files::Files;
use super::super::http_call::{Answer, Call};
use super::super::message::{Failure, Message};
use super::super::message_text::{Texts, cut_chars};
use super::message_fields::put;

/// Where a message that was sent is changed.
const UPDATE: &str = "https://slack.com/api/chat.update";
/// What Slack names a message by.
const NAMES: [&str; 2] = ["ts", "channel"];

/// Longest title, in characters.
const TITLE_MAX: usize = 1024;

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let text = |name: &str| texts.text(options.text(name));
    let mut body = Map::new();
    for name in ["channel", "username", "icon_emoji", "icon_url"] {
        put(&mut body, name, text(name)?);
    }
    if options.truth("link_names") {
        body.insert("link_names".to_owned(), true.into());
    }
    put(&mut body, "text", text("message_text")?);
    body.insert("attachments".to_owned(), json!([attachment(options, &texts)?]));
    let mut url = files.secret(options, "api_url").map_err(Failure::lasting)?;
    let updates = options.truth("update_message");
    // One that is shown is changed.
    if updates && NAMES.iter().all(|name| message.said.contains_key(*name)) {
        UPDATE.clone_into(&mut url);
        body.extend(message.said.iter().map(|(name, text)| (name.clone(), text.as_str().into())));
    }
    let mut call = Call::json(url, &body.into());
    call.judge = if updates { judge_named } else { judge };
    let token = files.secret(options, "app_token").map_err(Failure::lasting)?;
    if !token.is_empty() {
        call.headers.push(("authorization", format!("Bearer {token}")));
    }
    Ok(vec![call])
}

fn attachment(options: &Options, texts: &Texts<'_>) -> Result<Json, Failure> {
    let text = |name: &str| texts.text(options.text(name));
    let mut out = Map::new();
    put(&mut out, "title", cut_chars(&text("title")?, TITLE_MAX));
    for name in ["title_link", "pretext", "image_url", "thumb_url", "color"] {
        put(&mut out, name, text(name)?);
    }
    for name in ["text", "fallback", "callback_id", "footer"] {
        out.insert(name.to_owned(), text(name)?.into());
    }
    let marked = match options.value("mrkdwn_in") {
        Some(OptionValue::Texts(names)) if !names.is_empty() => json!(names),
        _ => json!(["fallback", "pretext", "text"]),
    };
    out.insert("mrkdwn_in".to_owned(), marked);
    let fields = options.objects("fields").iter().map(|field| {
        let short = if field.is_given("short") { field.truth("short") } else { options.truth("short_fields") };
        let mut out = Map::new();
        for name in ["title", "value"] {
            put(&mut out, name, texts.text(field.text(name))?);
        }
        out.insert("short".to_owned(), short.into());
        Ok::<Json, Failure>(out.into())
    });
    let fields = fields.collect::<Result<Vec<_>, Failure>>()?;
    if !fields.is_empty() {
        out.insert("fields".to_owned(), fields.into());
    }
    let actions = options.objects("actions").iter().map(|one| action(one, texts));
    let actions = actions.collect::<Result<Vec<_>, Failure>>()?;
    if !actions.is_empty() {
        out.insert("actions".to_owned(), actions.into());
    }
    Ok(out.into())
}

fn action(options: &Options, texts: &Texts<'_>) -> Result<Json, Failure> {
    let mut out = Map::new();
    // With an address it is a link, which has nothing that a message of its own would have.
    let is_link = options.has("url");
    let names: &[&str] =
        if is_link { &["type", "text", "url", "style"] } else { &["type", "text", "style", "name", "value"] };
    for name in names {
        put(&mut out, name, texts.text(options.text(name))?);
    }
    if let Some(own) = options.object("confirm").filter(|_| !is_link) {
        let mut confirm = Map::new();
        for name in ["text", "title", "ok_text", "dismiss_text"] {
            put(&mut confirm, name, texts.text(own.text(name))?);
        }
        out.insert("confirm".to_owned(), confirm.into());
    }
    Ok(out.into())
}

/// Slack answers 200 to much that it does not take, and says so in the body: its API as JSON, its webhooks as text.
fn judge(answer: &Answer<'_>) -> Result<ReceiverData, Failure> {
    judge_named(answer).map(|_| ReceiverData::new())
}

/// The same; gives the names of a message that was taken.
fn judge_named(answer: &Answer<'_>) -> Result<ReceiverData, Failure> {
    let said = serde_json::from_slice::<Json>(answer.body).ok().filter(Json::is_object);
    let failure = match said {
        _ if !answer.is_json && answer.body == b"ok" => return Ok(ReceiverData::new()),
        Some(said) if answer.is_json && said["ok"] == true => {
            let name = |name: &str| {
                said[name].as_str().filter(|text| !text.is_empty()).map(|text| (name.to_owned(), text.to_owned()))
            };
            // One of them alone names nothing.
            let names: Option<ReceiverData> = NAMES.into_iter().map(name).collect();
            return Ok(names.unwrap_or_default());
        }
        // Whether it was taken is not known.
        None if answer.is_json => Failure::passing("Slack answered JSON that nobody can read"),
        _ => Failure::lasting("Slack did not take the message"),
    };
    Err(Failure { reason: "clientError", status: Some(answer.status), ..failure })
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{integration, told};
    use super::*;

    #[test]
    fn bodies() {
        let message = told(&[("a", true)]);
        let yaml = "{api_url: 'http://h/s', channel: '#c', fields: [{title: t, value: '{{ .Status }}'}], \
            short_fields: true, actions: [{type: button, text: x, url: 'http://u'}]}";
        let calls = calls(&message, &integration("slack", yaml), &Files::default()).unwrap();
        let body: Json = serde_json::from_slice(&calls[0].body).unwrap();
        assert_eq!(
            (&body["channel"], &body["username"], &body["text"]),
            (&json!("#c"), &json!("Alertmanager"), &Json::Null)
        );
        let shown = &body["attachments"][0];
        assert_eq!(shown["color"], "danger");
        let marked = |given: &str| {
            let call = calls_of(&message, &format!("{{api_url: 'http://h/s', mrkdwn_in: {given}}}"));
            serde_json::from_slice::<Json>(&call.body).unwrap()["attachments"][0]["mrkdwn_in"].clone()
        };
        assert_eq!([&marked("[]"), &marked("[text]")], [&shown["mrkdwn_in"], &json!(["text"])], "none is the default");
        assert_eq!(shown["title"], "[FIRING:1] High (a)");
        assert_eq!(shown["fields"], json!([{"title": "t", "value": "firing", "short": true}]));
        assert_eq!(shown["actions"], json!([{"type": "button", "text": "x", "url": "http://u"}]));
        assert_eq!((&shown["text"], &shown["footer"], &shown["pretext"]), (&json!(""), &json!(""), &Json::Null));
        let action = |given: &str| {
            let yaml = format!("{{api_url: 'http://h/s', actions: [{{type: button, text: x, {given}}}]}}");
            let call = calls_of(&message, &yaml);
            serde_json::from_slice::<Json>(&call.body).unwrap()["attachments"][0]["actions"][0].clone()
        };
        let own = "name: n, value: v, confirm: {text: sure}";
        let expected = json!({"type": "button", "text": "x", "name": "n", "value": "v", "confirm": {"text": "sure"}});
        assert_eq!(action(own), expected);
        assert_eq!(action(&format!("url: 'http://u', {own}")), shown["actions"][0]);
        // What its template leaves empty is left out.
        let none = "{{ .CommonLabels.none }}";
        let empty = format!("type: '{none}', text: '{none}', confirm: {{text: '{none}', title: t}}, name: n");
        let yaml =
            format!("{{api_url: 'http://h/s', fields: [{{title: t, value: '{none}'}}], actions: [{{{empty}}}]}}");
        let body: Json = serde_json::from_slice(&calls_of(&message, &yaml).body).unwrap();
        assert_eq!(body["attachments"][0]["fields"], json!([{"title": "t", "short": false}]));
        assert_eq!(body["attachments"][0]["actions"], json!([{"name": "n", "confirm": {"title": "t"}}]));
        let app = "{app_token: t0k, channel: c}";
        let call = calls_of(&message, app);
        assert_eq!(call.url, "https://slack.com/api/chat.postMessage");
        assert!(call.headers.contains(&("authorization", "Bearer t0k".to_owned())));
    }

    fn calls_of(message: &Message, yaml: &str) -> Call {
        calls(message, &integration("slack", yaml), &Files::default()).unwrap().remove(0)
    }

    #[test]
    fn a_message_that_is_shown_is_changed() {
        let yaml = "{api_url: 'https://slack.com/api/chat.postMessage', channel: '#c', update_message: true}";
        let mut message = told(&[("a", true)]);
        let first = calls_of(&message, yaml);
        assert_eq!(first.url, "https://slack.com/api/chat.postMessage");
        let answer = |body: &'static str| Answer { status: 200, is_json: true, body: body.as_bytes() };
        let said = |text: &'static str| (first.judge)(&answer(text)).unwrap();
        assert!(said("{\"ok\":true,\"ts\":\"1.5\"}").is_empty() && said("{\"ok\":true}").is_empty());
        message.said = said("{\"ok\":true,\"ts\":\"1.5\",\"channel\":\"C7\"}");
        let next = calls_of(&message, yaml);
        let body: Json = serde_json::from_slice(&next.body).unwrap();
        assert_eq!((next.url.as_str(), &body["ts"], &body["channel"]), (UPDATE, &json!("1.5"), &json!("C7")));
        // Only if it is requested.
        let other = calls_of(&message, "{app_token: t, channel: '#c'}");
        let body: Json = serde_json::from_slice(&other.body).unwrap();
        assert_eq!((&other.url, &body["ts"], &body["channel"]), (&first.url, &Json::Null, &json!("#c")));
        assert!((other.judge)(&answer("{\"ok\":true,\"ts\":\"1.5\",\"channel\":\"C7\"}")).unwrap().is_empty());
    }

    #[test]
    fn answers() {
        let judged = |is_json, body: &str| judge(&Answer { status: 200, is_json, body: body.as_bytes() });
        assert!(judged(false, "ok").is_ok() && judged(true, "{\"ok\":true}").is_ok());
        // Each is what it says it is, and a text is `ok` or it is not.
        let refused = |is_json, body: &str| judged(is_json, body).expect_err(body).may_retry;
        for text in ["no_service", "ok\n", "{\"ok\":true}"] {
            assert!(!refused(false, text), "{text}");
        }
        assert!(!refused(true, "{\"ok\":false,\"error\":\"x\"}") && !refused(true, "{}"));
        assert!(refused(true, "ok") && refused(true, "{\"ok\":") && refused(true, "[1]"));
    }
}
