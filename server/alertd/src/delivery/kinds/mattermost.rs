//! Mattermost: messages to an incoming webhook.

use quiver_alerting::options::Options;
use quiver_alerting::receivers::Integration;
use serde_json::{Map, Value as Json};

use super::super::files::Files;
use super::super::http_call::Call;
use super::super::message::{Failure, Message};
use super::super::message_text::{Texts, cut_chars};
use super::message_fields::put;

/// Longest text, in characters.
const TEXT_MAX: usize = 16_383;

const ATTACHMENT: [&str; 12] = [
    "fallback",
    "color",
    "pretext",
    "text",
    "author_name",
    "author_link",
    "author_icon",
    "title",
    "title_link",
    "thumb_url",
    "footer",
    "footer_icon",
];

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let text = |name: &str| texts.text(options.text(name));
    let mut body = Map::new();
    let given = options.objects("attachments");
    // Without attachments of its own a message is one, made of what the configuration says at its top; its text is there.
    let attachments = if given.is_empty() {
        vec![attachment(options, &texts)?]
    } else {
        put(&mut body, "text", cut_chars(&text("text")?, TEXT_MAX));
        given.iter().map(|own| attachment(own, &texts)).collect::<Result<Vec<_>, Failure>>()?
    };
    for name in ["channel", "username", "icon_url", "icon_emoji", "type"] {
        put(&mut body, name, text(name)?);
    }
    body.insert("attachments".to_owned(), attachments.into());
    if let Some(props) = options.object("props").filter(|props| props.has("card")) {
        let mut shown = Map::new();
        put(&mut shown, "card", texts.text(props.text("card"))?);
        body.insert("props".to_owned(), shown.into());
    }
    if let Some(own) = options.object("priority").filter(|own| own.has("priority")) {
        body.insert("priority".to_owned(), priority(own, &texts)?);
    }
    let url = files.secret(options, "webhook_url").map_err(Failure::lasting)?;
    Ok(vec![Call::json(url, &body.into())])
}

fn attachment(options: &Options, texts: &Texts<'_>) -> Result<Json, Failure> {
    let mut out = Map::new();
    for name in ATTACHMENT.into_iter().chain(["image_url"]) {
        put(&mut out, name, texts.text(options.text(name))?);
    }
    let mut fields = Vec::new();
    for own in options.objects("fields") {
        let mut field = Map::new();
        for name in ["title", "value"] {
            put(&mut field, name, texts.text(own.text(name))?);
        }
        if own.is_given("short") {
            field.insert("short".to_owned(), own.truth("short").into());
        }
        fields.push(Json::Object(field));
    }
    if !fields.is_empty() {
        out.insert("fields".to_owned(), fields.into());
    }
    Ok(out.into())
}

/// Only urgent messages notify again and again, and only those above the standard ask to be acknowledged.
fn priority(options: &Options, texts: &Texts<'_>) -> Result<Json, Failure> {
    let word = texts.text(options.text("priority"))?.to_lowercase();
    let word = if matches!(word.as_str(), "urgent" | "important") { word } else { "standard".to_owned() };
    let mut out = Map::new();
    if options.truth("requested_ack") && word != "standard" {
        out.insert("requested_ack".to_owned(), true.into());
    }
    if options.truth("persistent_notifications") && word == "urgent" {
        out.insert("persistent_notifications".to_owned(), true.into());
    }
    out.insert("priority".to_owned(), word.into());
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::super::tests::{integration, told};
    use super::*;

    #[test]
    fn bodies() {
        let yaml = "{webhook_url: 'http://h/m', channel: c, text: '{{ .Status }}', priority: {priority: Important, \
            requested_ack: true, persistent_notifications: true}, attachments: [{title: '{{ .Status }}', \
            fields: [{title: a, value: b}, {title: c, value: '{{ .CommonLabels.none }}'}]}]}";
        let call = calls(&told(&[("a", true)]), &integration("mattermost", yaml), &Files::default()).unwrap().remove(0);
        let body: Json = serde_json::from_slice(&call.body).unwrap();
        let expected = json!({
            "text": "firing", "channel": "c", "username": "Alertmanager",
            "priority": {"priority": "important", "requested_ack": true},
            "attachments": [{"title": "firing", "fields": [{"title": "a", "value": "b"}, {"title": "c"}]}],
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn without_attachments_of_its_own() {
        let yaml = "{webhook_url: 'http://h/m', channel: c, text: '{{ .Status }}', color: red, footer: f, \
            fields: [{title: a, value: b, short: true}]}";
        let call = calls(&told(&[("a", true)]), &integration("mattermost", yaml), &Files::default()).unwrap().remove(0);
        let body: Json = serde_json::from_slice(&call.body).unwrap();
        assert_eq!((body.get("text"), &body["attachments"][1], &body["channel"]), (None, &Json::Null, &json!("c")));
        let one = &body["attachments"][0];
        assert_eq!((&one["text"], &one["color"], &one["footer"]), (&json!("firing"), &json!("red"), &json!("f")));
        assert_eq!(one["fields"], json!([{"title": "a", "value": "b", "short": true}]));
        let props = |card: &str| {
            let yaml = format!("{{webhook_url: 'http://h/m', props: {{card: '{card}'}}}}");
            let integration = integration("mattermost", &yaml);
            let call = calls(&told(&[("a", true)]), &integration, &Files::default()).unwrap().remove(0);
            serde_json::from_slice::<Json>(&call.body).unwrap()["props"].clone()
        };
        assert_eq!(props("{{ .Status }}"), json!({"card": "firing"}));
        assert_eq!(props("{{ .CommonLabels.none }}"), json!({}));
        assert!(one["title"].is_string() && one["fallback"].is_string() && one.get("username").is_none(), "{one}");
    }
}
