//! Telling receivers: what a kind sends (calls over HTTP, e-mail over SMTP), over clients that go only where
//! `egress` lets them, again and again within a budget.

mod addresses;
mod call;
mod client;
mod files;
mod kinds;
mod mime;
mod proxies;
mod refused;
mod smtp;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use quiver_alerting::dispatch::{Alert, Said};
use quiver_alerting::receivers::Integration;
use quiver_alerting::template::Templates;
use quiver_types::{Clock, LabelSet};
use rand::RngExt as _;
use tokio::time::Instant;

pub use call::{Answer, Call, Judged};
pub use files::Files;
pub(crate) use kinds::names;
pub use proxies::ProxyEnvironment;
pub(crate) use refused::unsupported;

use crate::deliver::client::Clients;
use crate::egress::Egress;
use crate::history::{Attempt, Record};
use crate::metrics::AlertMetrics;

/// What a receiver is told.
#[derive(Debug, Clone)]
pub struct Message {
    /// Name of the receiver.
    pub receiver: String,
    /// Key of the group.
    pub group_key: String,
    /// Labels of `group_by` that all alerts of the group share.
    pub group_labels: LabelSet,
    /// Labels of the route.
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
    pub said: Said,
}

/// What came of a message that was taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Taken {
    /// Status of the last answer, if there was one.
    pub status: Option<u16>,
    /// What the receiver said of the message.
    pub said: Said,
}

impl Message {
    /// What the history says of it, whatever becomes of it.
    fn record(&self, integration: &Integration) -> Attempt {
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
    pub again: bool,
    /// When the other side wants to hear of us again.
    pub after: Option<Duration>,
}

impl Failure {
    /// Makes a failure that trying again does not mend.
    pub fn lasting(text: impl Into<String>) -> Self {
        Self { reason: "other", text: text.into(), status: None, again: false, after: None }
    }

    /// Makes a failure of the way to the receiver.
    pub fn passing(text: impl Into<String>) -> Self {
        Self { again: true, ..Self::lasting(text) }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Tells receivers: writes the message of each kind and sends it, over HTTP or SMTP.
#[derive(Debug)]
pub struct Sender {
    clients: Clients,
    clock: Arc<dyn Clock>,
    metrics: Arc<AlertMetrics>,
}

/// Reasons of failures as figures show them.
pub(crate) const REASONS: [&str; 7] =
    ["clientError", "serverError", "authError", "rateLimited", "contextDeadlineExceeded", "contextCanceled", "other"];

/// First wait between attempts.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// Longest wait between attempts.
const WAIT_MAX: Duration = Duration::from_mins(1);

impl Sender {
    /// Makes a sender that calls only where `egress` lets it.
    pub fn new(egress: Egress, proxies: ProxyEnvironment, clock: Arc<dyn Clock>, metrics: Arc<AlertMetrics>) -> Self {
        Self { clients: Clients::new(egress, proxies), clock, metrics }
    }

    /// Tells one integration of a receiver, within a budget of time.
    ///
    /// # Errors
    /// Why it was not taken, of the last attempt.
    pub async fn tell(
        &self,
        message: &Message,
        integration: &Integration,
        files: &Files,
        budget: Duration,
    ) -> Result<Taken, Failure> {
        let kind = integration.kind.name;
        let outcome = self.attempts(message, integration, files, budget).await;
        self.metrics.of(kind, |figures| {
            figures.sent += 1;
            if let Err(failure) = &outcome {
                *figures.failed.entry(failure.reason).or_default() += 1;
            }
        });
        outcome
    }

    async fn attempts(
        &self,
        message: &Message,
        integration: &Integration,
        files: &Files,
        budget: Duration,
    ) -> Result<Taken, Failure> {
        let deadline = Instant::now() + budget;
        let mut wait = WAIT_FIRST;
        let id = uuid::Uuid::now_v7().to_string();
        for number in 1.. {
            let (began, at) = (Instant::now(), self.clock.now_ms());
            let attempt = tokio::time::timeout_at(deadline, self.attempt(message, integration, files)).await;
            self.metrics.of(integration.kind.name, |figures| figures.latency.observe(began.elapsed()));
            let late = || Failure {
                reason: "contextDeadlineExceeded",
                ..Failure::lasting(format!("no answer within {}s", budget.as_secs()))
            };
            let outcome = attempt.unwrap_or_else(|_| Err(late()));
            let record = Attempt {
                at,
                id: id.clone(),
                attempt: number,
                took: began.elapsed(),
                status: outcome.as_ref().map_or_else(|failure| failure.status, |taken| taken.status).unwrap_or(0),
                failure: outcome.as_ref().err().map(|failure| (failure.reason, failure.text.clone())),
                ..message.record(integration)
            };
            self.metrics.history.note(vec![Record::Attempt(record)]);
            let failure = match outcome {
                Ok(taken) => return Ok(taken),
                Err(failure) => failure,
            };
            let spread = rand::rng().random_range(0.5..1.5);
            let pause = failure.after.unwrap_or(wait.mul_f64(spread));
            if !failure.again || Instant::now() + pause >= deadline {
                return Err(failure);
            }
            tracing::debug!(receiver = message.receiver, kind = integration.kind.name, error = %failure, "not told yet");
            tokio::time::sleep(pause).await;
            wait = wait.mul_f64(1.5).min(WAIT_MAX);
        }
        unreachable!("each way out of the loop returns")
    }

    /// Makes one attempt.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn attempt(&self, message: &Message, integration: &Integration, files: &Files) -> Result<Taken, Failure> {
        let options = &integration.options;
        if let Some(why) = unsupported(integration).into_iter().next() {
            return Err(Failure::lasting(why));
        }
        let sending = async {
            if integration.kind.name == kinds::EMAIL {
                let mail = kinds::mail(message, integration)?;
                smtp::send(&mail, options, files, self.clients.egress()).await?;
                return Ok(Taken::default());
            }
            let mut taken = Taken::default();
            for call in &kinds::calls(message, integration, files)? {
                let (status, said) = self.clients.send(call, options.object("http_config"), files).await?;
                taken.status = Some(status);
                taken.said.extend(said);
            }
            Ok::<_, Failure>(taken)
        };
        match options.duration_ns("timeout").filter(|ns| *ns > 0) {
            None => sending.await,
            Some(ns) => {
                let within = Duration::from_nanos(ns.unsigned_abs());
                let late = |_| Failure {
                    reason: "contextDeadlineExceeded",
                    ..Failure::passing(format!("no answer within its `timeout` of {within:?}"))
                };
                tokio::time::timeout(within, sending).await.map_err(late)?
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
