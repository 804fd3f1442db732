//! An HTTP request as data, and how its response is interpreted: delivered, try again, or failed.

use std::time::Duration;

use quiver_alerting::dispatch::ReceiverData;
use serde_json::Value as Json;

use super::message::Failure;

/// An answer with status 2xx.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// HTTP status, 200 to 299.
    pub status: u16,
    /// Whether its `Content-Type` is JSON.
    pub is_json: bool,
    /// The body; empty if there was none.
    pub body: &'a [u8],
}

/// Interprets a successful response of a service that reports errors in the body, and extracts data about the message.
pub type ResponseCheck = fn(&Answer<'_>) -> Result<ReceiverData, Failure>;

/// An HTTP request to a receiver, not yet sent.
#[derive(Debug, Clone)]
pub struct Call {
    /// `POST` unless a kind says otherwise.
    pub method: &'static str,
    /// The address; a secret.
    pub url: String,
    /// Headers besides those that every call has.
    pub headers: Vec<(&'static str, String)>,
    /// The body as it is sent.
    pub body: Vec<u8>,
    /// Value of its `Content-Type`.
    pub content_type: &'static str,
    /// Interprets a response with status 2xx.
    pub judge: ResponseCheck,
    /// Statuses, besides 5xx and 429, after which the call is retried.
    pub retried_statuses: &'static [u16],
}

impl Call {
    /// Makes a call with a JSON body.
    pub fn json(url: impl Into<String>, body: &Json) -> Self {
        let mut text = body.to_string();
        text.push('\n');
        Self::of(url, text.into_bytes(), "application/json")
    }

    /// Makes a call with a body.
    pub fn of(url: impl Into<String>, body: Vec<u8>, content_type: &'static str) -> Self {
        Self {
            method: "POST",
            url: url.into(),
            headers: Vec::new(),
            body,
            content_type,
            judge: |_| Ok(ReceiverData::new()),
            retried_statuses: &[],
        }
    }

    /// Bytes of its texts.
    pub(super) fn bytes(&self) -> usize {
        self.url.len()
            + self.body.len()
            + self.headers.iter().map(|(name, value)| name.len() + value.len()).sum::<usize>()
    }
}

/// Judges an answer by its status.
///
/// # Errors
/// All but 2xx.
pub(super) fn judge_status(status: u16, after: Option<Duration>, retried_statuses: &[u16]) -> Result<(), Failure> {
    let reason = match status {
        200..=299 => return Ok(()),
        401 | 403 => "authError",
        429 => "rateLimited",
        400..=499 => "clientError",
        500..=599 => "serverError",
        _ => "other",
    };
    let may_retry = status == 429 || (500..=599).contains(&status) || retried_statuses.contains(&status);
    Err(Failure {
        reason,
        text: format!("unexpected status code {status}"),
        status: Some(status),
        may_retry,
        after: after.filter(|_| may_retry),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        let check = |status: u16, reason: &str, may_retry: bool| {
            let failure = judge_status(status, Some(Duration::from_secs(1)), &[408]).unwrap_err();
            assert_eq!(
                (failure.reason, failure.may_retry, failure.after.is_some()),
                (reason, may_retry, may_retry),
                "{status}"
            );
        };
        assert!(judge_status(204, None, &[]).is_ok());
        check(302, "other", false);
        check(400, "clientError", false);
        check(403, "authError", false);
        check(408, "clientError", true);
        check(429, "rateLimited", true);
        check(503, "serverError", true);
    }

    /// What is said of a later time counts only where it is tried again.
    #[test]
    fn every_status_has_a_reason() {
        let wait = Duration::from_secs(7);
        for status in 100..=600_u16 {
            let Err(failure) = judge_status(status, Some(wait), &[404]) else {
                assert!((200..300).contains(&status), "{status}");
                continue;
            };
            let (reason, may_retry) = match status {
                401 | 403 => ("authError", false),
                404 => ("clientError", true),
                429 => ("rateLimited", true),
                400..=499 => ("clientError", false),
                500..=599 => ("serverError", true),
                _ => ("other", false),
            };
            assert_eq!(
                (failure.reason, failure.may_retry, failure.after),
                (reason, may_retry, may_retry.then_some(wait)),
                "{status}"
            );
            assert_eq!((failure.status, failure.text), (Some(status), format!("unexpected status code {status}")));
        }
    }

    #[test]
    fn bodies_end_their_line() {
        let call = Call::json("http://h", &serde_json::json!({"a": "ä\n"}));
        assert_eq!(String::from_utf8(call.body).unwrap(), "{\"a\":\"ä\\n\"}\n");
        assert_eq!((call.method, call.content_type, call.url.as_str()), ("POST", "application/json", "http://h"));
        assert!((call.judge)(&Answer { status: 200, is_json: false, body: b"whatever" }).is_ok());
    }
}
