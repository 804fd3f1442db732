//! A message for a receiver, and the result of its delivery.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use quiver_alerting::dispatch::{Alert, ReceiverData};
use quiver_alerting::receivers::Integration;
use quiver_alerting::template::Templates;
use quiver_types::LabelSet;

use crate::history::Attempt;

/// A message to one integration of a receiver.
#[derive(Debug, Clone)]
pub struct Message {
    /// Name of the receiver.
    pub receiver: String,
    /// Key of the group.
    pub group_key: String,
    /// Labels of `group_by` that all alerts of the group share.
    pub group_labels: LabelSet,
    /// Labels of the route, rendered.
    pub route_labels: BTreeMap<String, String>,
    /// Why the group is told now, like `new alerts added`.
    pub reason: String,
    /// The alerts, in order.
    pub alerts: Vec<Alert>,
    /// When the flush began, in Unix nanoseconds: states of alerts count at this time.
    pub now: i64,
    /// Where this service is seen from outside.
    pub external_url: String,
    /// Which service this is, in `X-Quiver-Instance`.
    pub instance: String,
    /// Templates that texts may name.
    pub templates: Templates,
    /// What the receiver said of the message before it.
    pub said: ReceiverData,
}

/// What came of a message that was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryReceipt {
    /// Status of the last answer, if there was one.
    pub status: Option<u16>,
    /// What the receiver said of the message.
    pub said: ReceiverData,
}

impl Message {
    /// What the history says of it, whatever becomes of it.
    pub(super) fn record(&self, integration: &Integration) -> Attempt {
        Attempt {
            at: 0,
            id: String::new(),
            receiver: self.receiver.clone(),
            integration: integration.kind.name,
            index: integration.idx,
            group_key: self.group_key.clone(),
            reason: self.reason.clone(),
            attempt: 0,
            failure: None,
            status: 0,
            alert_status: if self.fires() { "firing" } else { "resolved" },
            took: Duration::ZERO,
            first_alert_at: self.alerts.iter().map(|a| a.starts_at / 1_000_000).min().unwrap_or(0),
            alerts: self.alerts.iter().map(|a| a.labels.clone()).collect(),
        }
    }

    /// Says whether anything in it fires.
    pub fn fires(&self) -> bool {
        self.alerts.iter().any(|a| !a.is_resolved(self.now))
    }
}

/// Why a message was not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The reason as figures show it.
    pub reason: &'static str,
    /// What happened; never what the other side answered.
    pub text: String,
    /// Status of the answer, if there was one.
    pub status: Option<u16>,
    /// Whether it may be tried again in this flush.
    pub may_retry: bool,
    /// When the other side wants to hear of us again.
    pub after: Option<Duration>,
}

impl Failure {
    /// Makes a failure that trying again does not mend.
    pub fn lasting(text: impl Into<String>) -> Self {
        Self { reason: "other", text: text.into(), status: None, may_retry: false, after: None }
    }

    /// Makes a failure of the way to the receiver.
    pub fn passing(text: impl Into<String>) -> Self {
        Self { may_retry: true, ..Self::lasting(text) }
    }

    /// Makes the failure of an attempt that the end of the whole `budget` cut off. It also tells how the attempt
    /// `before` failed: a receiver that answers 503 until then has another fault than one that never answers.
    pub(crate) fn out_of_time(budget: Duration, before: Option<&Self>) -> Self {
        let before = before.map(|failure| format!("; the attempt before: {failure}")).unwrap_or_default();
        let text = format!("no answer within {budget:?}{before}");
        Self { reason: "contextDeadlineExceeded", ..Self::lasting(text) }
    }

    /// Makes the failure of a message that found no room within its whole budget; `bytes` are those of the others.
    pub(crate) fn no_room(budget: Duration, bytes: usize) -> Self {
        let text =
            format!("no room for the message within {budget:?}: those under way to receivers take {bytes} bytes");
        Self { reason: "contextDeadlineExceeded", ..Self::lasting(text) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Reasons of failures as figures show them.
pub(crate) const REASONS: [&str; 7] =
    ["clientError", "serverError", "authError", "rateLimited", "contextDeadlineExceeded", "contextCanceled", "other"];
