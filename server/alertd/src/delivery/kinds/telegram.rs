//! Telegram: a bot's message to a chat.

use quiver_alerting::dispatch::ReceiverData;
use quiver_alerting::receivers::Integration;
use serde_json::{Map, Value as Json};

use super::super::files::Files;
use super::super::http_call::{Answer, Call};
use super::super::message::{Failure, Message};
use super::super::message_text::{Texts, cut_chars};
use super::message_fields::put;

/// Longest message, in characters.
const TEXT_MAX: usize = 4096;

/// What is sent instead of a page that is too long: cut anywhere, it would be none any more.
const TOO_LONG: &str = "Alertmanager notification could not be sent: message length exceeds Telegram limits.\n\t\t\tPlease \
    check the template used for producing the message content.";

pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let options = &integration.options;
    let texts = Texts::new(message, 0);
    let mode = options.text("parse_mode");
    let template = options.text("message");
    let text = if mode == "HTML" {
        Some(texts.html(template)?).filter(|page| page.chars().count() <= TEXT_MAX).unwrap_or(TOO_LONG.to_owned())
    } else {
        cut_chars(&texts.text(template)?, TEXT_MAX)
    };
    let chat = match options.integer("chat_id") {
        0 => files.read(options.text("chat_id_file")).map_err(Failure::lasting)?,
        id => id.to_string(),
    };
    let mut body = Map::new();
    put(&mut body, "chat_id", chat);
    body.insert("text".to_owned(), text.into());
    put(&mut body, "parse_mode", mode.to_owned());
    put(&mut body, "disable_web_page_preview", "true".to_owned());
    if options.truth("disable_notifications") {
        put(&mut body, "disable_notification", "true".to_owned());
    }
    if options.integer("message_thread_id") != 0 {
        put(&mut body, "message_thread_id", options.integer("message_thread_id").to_string());
    }
    let token = files.secret(options, "bot_token").map_err(Failure::lasting)?;
    let url = format!("{}/bot{token}/sendMessage", options.text("api_url").trim_end_matches('/'));
    let mut call = Call::json(url, &Json::Object(body));
    call.judge = judge;
    // Alertmanager tries again whatever Telegram says: a bot that was put out of a chat is let in again.
    call.retried_statuses = &[400, 401, 403, 404, 409, 413];
    Ok(vec![call])
}

/// Telegram says in the body whether it took a message.
fn judge(answer: &Answer<'_>) -> Result<ReceiverData, Failure> {
    match serde_json::from_slice::<Json>(answer.body) {
        Ok(said) if said["ok"] == true => Ok(ReceiverData::new()),
        _ => Err(Failure { status: Some(answer.status), ..Failure::passing("Telegram did not take the message") }),
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{integration, told};
    use super::*;

    #[test]
    fn bodies() {
        let yaml =
            "{bot_token: t0k, chat_id: -5, message: '<b>{{ .Status }}</b>{{ \"<\" }}', disable_notifications: true}";
        let call = calls(&told(&[("a", true)]), &integration("telegram", yaml), &Files::default()).unwrap().remove(0);
        assert_eq!(call.url, "https://api.telegram.org/bott0k/sendMessage");
        let body: Json = serde_json::from_slice(&call.body).unwrap();
        let expected = serde_json::json!({
            "chat_id": "-5", "text": "<b>firing</b>&lt;", "parse_mode": "HTML", "disable_web_page_preview": "true",
            "disable_notification": "true",
        });
        assert_eq!(body, expected);
        let text_of = |yaml: &str| {
            let made = calls(&told(&[("a", true)]), &integration("telegram", yaml), &Files::default()).unwrap();
            serde_json::from_slice::<Json>(&made[0].body).unwrap()["text"].as_str().unwrap_or_default().to_owned()
        };
        let long = "bot_token: t, chat_id: 1, message: '{{ range 5000 }}x{{ end }}'";
        assert_eq!(text_of(&format!("{{{long}}}")), TOO_LONG);
        let cut = text_of(&format!("{{{long}, parse_mode: Markdown}}"));
        assert!(cut.chars().count() == TEXT_MAX && cut.ends_with("x…"), "{cut}");
        let judged = |body| (call.judge)(&Answer { status: 200, is_json: true, body });
        assert!(judged(b"{\"ok\":true}").is_ok());
        assert!(judged(b"{\"ok\":false}").is_err_and(|failure| failure.may_retry));
        assert!(call.retried_statuses.contains(&400), "as Alertmanager does");
    }
}
