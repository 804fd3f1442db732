//! Discord: a message with one embed.

use quiver_alerting::receivers::Integration;
use serde_json::{Map, json};

use super::super::files::Files;
use super::super::http_call::Call;
use super::super::message::{Failure, Message};
use super::super::message_text::{Texts, cut_chars};
use super::message_fields::put;

/// Longest texts, in characters.
const TITLE_MAX: usize = 256;
const DESCRIPTION_MAX: usize = 4096;
const CONTENT_MAX: usize = 2000;

const RED: u32 = 0x99_2d_22;
const GREEN: u32 = 0x2e_cc_71;

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let cut = |name: &str, max: usize| texts.text(options.text(name)).map(|text| cut_chars(&text, max));
    let mut body = Map::new();
    body.insert("content".to_owned(), cut("content", CONTENT_MAX)?.into());
    let embed = json!({
        "title": cut("title", TITLE_MAX)?, "description": cut("message", DESCRIPTION_MAX)?,
        "color": if message.fires() { RED } else { GREEN },
    });
    body.insert("embeds".to_owned(), json!([embed]));
    // These two are no templates, in Alertmanager neither.
    for name in ["username", "avatar_url"] {
        put(&mut body, name, options.text(name).to_owned());
    }
    let url = files.secret(options, "webhook_url").map_err(Failure::lasting)?;
    Ok(vec![Call::json(url, &body.into())])
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{integration, told};
    use super::*;

    #[test]
    fn bodies() {
        let yaml = "{webhook_url: 'http://h/d', message: '{{ .Status }}', username: 'me {{ .Status }}'}";
        let call = calls(&told(&[("a", true)]), &integration("discord", yaml), &Files::default()).unwrap().remove(0);
        let body: serde_json::Value = serde_json::from_slice(&call.body).unwrap();
        let embed = json!({"title": "[FIRING:1] High (a)", "description": "firing", "color": RED});
        assert_eq!(body, json!({"content": "", "embeds": [embed], "username": "me {{ .Status }}"}));
    }
}
