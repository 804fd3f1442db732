//! Notifies receivers: what each kind sends (HTTP calls, e-mail over SMTP), through clients restricted by `egress`,
//! with retries within a budget.

mod addresses;
mod client;
mod files;
mod http_call;
mod kinds;
mod message;
mod message_memory;
mod message_text;
mod mime;
mod proxies;
mod smtp;
mod unsupported_options;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures::future::BoxFuture;
use quiver_alerting::dispatch::Alert;
use quiver_alerting::receivers::Integration;
use quiver_types::Clock;
use rand::RngExt as _;
use tokio::time::Instant;

pub use files::Files;
pub use http_call::{Answer, Call, ResponseCheck};
pub(crate) use kinds::names;
pub(crate) use message::REASONS;
pub use message::{DeliveryReceipt, Failure, Message};
pub use proxies::ProxyEnvironment;
pub(crate) use unsupported_options::unsupported;

use crate::delivery::client::Clients;
use crate::delivery::message_memory::{Place, Room};
use crate::egress::Egress;
use crate::history::{Attempt, Record};
use crate::metrics::AlertMetrics;

/// Tells receivers: writes the message of each kind and sends it, over HTTP or SMTP.
#[derive(Debug)]
pub struct Sender {
    clients: Clients,
    room: Arc<Room>,
    clock: Arc<dyn Clock>,
    metrics: Arc<AlertMetrics>,
}

/// A message as it goes to a receiver.
enum RenderedMessage {
    Mail(kinds::Mail),
    Calls(Vec<Call>),
}

impl RenderedMessage {
    fn of(message: &Message, integration: &Integration, files: &Files) -> Result<Self, Failure> {
        Ok(if integration.kind.name == kinds::EMAIL {
            Self::Mail(kinds::mail(message, integration)?)
        } else {
            Self::Calls(kinds::calls(message, integration, files)?)
        })
    }

    /// What it takes in memory while it is under way, in bytes.
    fn bytes(&self) -> usize {
        let bytes = match self {
            Self::Mail(mail) => mail.data.len(),
            Self::Calls(calls) => calls.iter().map(Call::bytes).sum(),
        };
        COPIES * bytes
    }
}

/// First wait between attempts.
const WAIT_FIRST: Duration = Duration::from_millis(500);
/// Longest wait between attempts.
const WAIT_MAX: Duration = Duration::from_mins(1);
/// How often a message that is under way is held: as it was rendered, and as it is sent.
const COPIES: usize = 2;
/// What a message is taken for beside its alerts before it is rendered.
const MESSAGE_BYTES: usize = 16 << 10;

impl Sender {
    /// Makes a sender that calls only where `egress` lets it. All messages that are under way take `room_bytes` at most.
    pub fn new(
        egress: Egress,
        proxies: ProxyEnvironment,
        room_bytes: usize,
        clock: Arc<dyn Clock>,
        metrics: Arc<AlertMetrics>,
    ) -> Self {
        let room = Room::new(room_bytes, Arc::clone(&metrics));
        Self { clients: Clients::new(egress, proxies), room, clock, metrics }
    }

    /// Takes room for a message that is about to be rendered.
    async fn place_for(&self, message: &Message) -> Place {
        let alerts: usize = message.alerts.iter().map(Alert::bytes).sum();
        self.room.take(&message.receiver, MESSAGE_BYTES + alerts).await
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
    ) -> Result<DeliveryReceipt, Failure> {
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
    ) -> Result<DeliveryReceipt, Failure> {
        let deadline = Instant::now() + budget;
        let mut wait = WAIT_FIRST;
        let id = uuid::Uuid::now_v7().to_string();
        let mut before = None;
        for number in 1.. {
            let (began, at) = (Instant::now(), self.clock.now_ms());
            let outcome = match tokio::time::timeout_at(deadline, self.place_for(message)).await {
                Ok(place) => {
                    let attempt = self.attempt_in(place, message, integration, files);
                    self.metrics.sending.fetch_add(1, Relaxed);
                    let attempt = tokio::time::timeout_at(deadline, attempt).await;
                    self.metrics.sending.fetch_sub(1, Relaxed);
                    attempt.unwrap_or_else(|_| Err(Failure::out_of_time(budget, before.as_ref())))
                }
                Err(_) => Err(Failure::no_room(budget, self.room.held_bytes())),
            };
            self.metrics.of(integration.kind.name, |figures| figures.latency.observe(began.elapsed()));
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
            if !failure.may_retry || pause >= deadline.saturating_duration_since(Instant::now()) {
                return Err(failure);
            }
            tracing::debug!(receiver = message.receiver, kind = integration.kind.name, error = %failure, "not told yet");
            tokio::time::sleep(pause).await;
            before = Some(failure);
            wait = wait.mul_f64(1.5).min(WAIT_MAX);
        }
        unreachable!("each way out of the loop returns")
    }

    /// Makes one attempt, as soon as there is room for the message.
    ///
    /// # Errors
    /// Why it was not taken.
    pub fn attempt<'a>(
        &'a self,
        message: &'a Message,
        integration: &'a Integration,
        files: &'a Files,
    ) -> BoxFuture<'a, Result<DeliveryReceipt, Failure>> {
        Box::pin(async move {
            let place = self.place_for(message).await;
            self.attempt_in(place, message, integration, files).await
        })
    }

    async fn attempt_in(
        &self,
        mut place: Place,
        message: &Message,
        integration: &Integration,
        files: &Files,
    ) -> Result<DeliveryReceipt, Failure> {
        let options = &integration.options;
        if let Some(why) = unsupported(integration).into_iter().next() {
            return Err(Failure::lasting(why));
        }
        if let Some(name) = options.masked() {
            let (field, idx) = (integration.kind.field, integration.idx);
            let text =
                format!("{field}/{idx}: the secret of `{name}` is not stored any more and has to be given again");
            return Err(Failure::lasting(text));
        }
        let mut rendered = RenderedMessage::of(message, integration, files)?;
        let bytes = rendered.bytes();
        if !place.fits(bytes) {
            // Nobody waits while he holds what others wait for.
            drop((rendered, place));
            place = self.room.take(&message.receiver, bytes).await;
            rendered = RenderedMessage::of(message, integration, files)?;
        }
        let sending = async {
            let mut taken = DeliveryReceipt::default();
            match &rendered {
                RenderedMessage::Mail(mail) => smtp::send(mail, options, files, self.clients.egress()).await?,
                RenderedMessage::Calls(calls) => {
                    for call in calls {
                        let (status, said) = self.clients.send(call, options.object("http_config"), files).await?;
                        taken.status = Some(status);
                        taken.said.extend(said);
                    }
                }
            }
            Ok::<_, Failure>(taken)
        };
        let outcome = match options.duration_ns("timeout").filter(|ns| *ns > 0) {
            None => sending.await,
            Some(ns) => {
                let within = Duration::from_nanos(ns.unsigned_abs());
                let late = |_| Failure {
                    reason: "contextDeadlineExceeded",
                    ..Failure::passing(format!("no answer within its `timeout` of {within:?}"))
                };
                tokio::time::timeout(within, sending).await.unwrap_or_else(|elapsed| Err(late(elapsed)))
            }
        };
        drop((rendered, place));
        outcome
    }
}

#[cfg(test)]
pub(crate) mod tests;
