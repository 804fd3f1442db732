//! Microsoft Teams (workflows): an adaptive card.

use quiver_alerting::receivers::Integration;
use serde_json::{Value as Json, json};

use super::super::files::Files;
use super::super::http_call::Call;
use super::super::message::{Failure, Message};
use super::super::message_text::Texts;

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let (title, text) = (texts.text(options.text("title"))?, texts.text(options.text("text"))?);
    let color = if message.fires() { "Attention" } else { "Good" };
    let card = json!({
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.2",
        "body": [
            {"type": "TextBlock", "text": title, "weight": "Bolder", "size": "Medium", "wrap": true, "style": "heading",
             "color": color},
            {"type": "TextBlock", "text": text, "wrap": true},
        ],
        "msteams": {"width": "full"},
    });
    let content_type = "application/vnd.microsoft.card.adaptive";
    let body = json!({
        "type": "message",
        "attachments": [{"contentType": content_type, "contentUrl": Json::Null, "content": card}],
    });
    let url = files.secret(options, "webhook_url").map_err(Failure::lasting)?;
    Ok(vec![Call::json(url, &body)])
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{integration, told};
    use super::*;

    #[test]
    fn bodies() {
        let yaml = "{webhook_url: 'http://h/d', text: '{{ .Status }}'}";
        let call = calls(&told(&[("a", false)]), &integration("msteamsv2", yaml), &Files::default()).unwrap().remove(0);
        let body: Json = serde_json::from_slice(&call.body).unwrap();
        let card = &body["attachments"][0]["content"];
        assert_eq!((&card["body"][0]["color"], &card["body"][1]["text"]), (&json!("Good"), &json!("resolved")));
        assert_eq!(card["body"][0]["text"], "[RESOLVED] High (b)".replace('b', "a"));
    }
}
