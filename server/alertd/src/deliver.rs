//! Notifies receivers: what each kind sends (HTTP calls, e-mail over SMTP), through clients restricted by `egress`,
//! with retries within a budget.

mod addresses;
mod call;
mod client;
mod files;
mod kinds;
mod message;
mod mime;
mod proxies;
mod refused;
mod smtp;
mod text;

use std::sync::Arc;
use std::time::Duration;

use quiver_alerting::receivers::Integration;
use quiver_types::Clock;
use rand::RngExt as _;
use tokio::time::Instant;

pub use call::{Answer, Call, Judged};
pub use files::Files;
pub(crate) use kinds::names;
pub(crate) use message::REASONS;
pub use message::{Failure, Message, Taken};
pub use proxies::ProxyEnvironment;
pub(crate) use refused::unsupported;

use crate::deliver::client::Clients;
use crate::egress::Egress;
use crate::history::{Attempt, Record};
use crate::metrics::AlertMetrics;

/// Tells receivers: writes the message of each kind and sends it, over HTTP or SMTP.
#[derive(Debug)]
pub struct Sender {
    clients: Clients,
    clock: Arc<dyn Clock>,
    metrics: Arc<AlertMetrics>,
}

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
        let mut before = None;
        for number in 1.. {
            let (began, at) = (Instant::now(), self.clock.now_ms());
            let attempt = tokio::time::timeout_at(deadline, self.attempt(message, integration, files)).await;
            self.metrics.of(integration.kind.name, |figures| figures.latency.observe(began.elapsed()));
            let outcome = attempt.unwrap_or_else(|_| Err(Failure::out_of_time(budget, before.as_ref())));
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
            // What a receiver asks for may be more than a clock holds.
            if !failure.again || pause >= deadline.saturating_duration_since(Instant::now()) {
                return Err(failure);
            }
            tracing::debug!(receiver = message.receiver, kind = integration.kind.name, error = %failure, "not told yet");
            tokio::time::sleep(pause).await;
            before = Some(failure);
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
