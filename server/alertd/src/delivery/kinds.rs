//! Builds the requests for each kind of integration. One file per kind.

mod discord;
mod email;
mod mattermost;
mod message_fields;
mod msteamsv2;
mod opsgenie;
mod pagerduty;
mod slack;
mod telegram;
mod webhook;

use quiver_alerting::receivers::Integration;

use super::files::Files;
use super::http_call::Call;
use super::message::{Failure, Message};

pub(super) use email::{Mail, mail};

/// A kind: its name, and what makes its calls, which are made one after the other.
struct DeliveryKind {
    name: &'static str,
    calls: fn(&Message, &Integration, &Files) -> Result<Vec<Call>, Failure>,
}

/// All kinds that are told over HTTP.
const KINDS: &[DeliveryKind] = &[
    DeliveryKind { name: "webhook", calls: webhook::calls },
    DeliveryKind { name: "slack", calls: slack::calls },
    DeliveryKind { name: "pagerduty", calls: pagerduty::calls },
    DeliveryKind { name: "opsgenie", calls: opsgenie::calls },
    DeliveryKind { name: "telegram", calls: telegram::calls },
    DeliveryKind { name: "discord", calls: discord::calls },
    DeliveryKind { name: "msteamsv2", calls: msteamsv2::calls },
    DeliveryKind { name: "mattermost", calls: mattermost::calls },
];

/// The kind that is told by mail.
pub(super) const EMAIL: &str = "email";

/// Names of all kinds that are told.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name).chain([EMAIL])
}

/// Makes the calls that tell an integration over HTTP.
///
/// # Errors
/// A template or secret cannot be had.
pub(super) fn calls(message: &Message, integration: &Integration, files: &Files) -> Result<Vec<Call>, Failure> {
    let kind = KINDS.iter().find(|kind| kind.name == integration.kind.name).expect("it is told over HTTP");
    (kind.calls)(message, integration, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_that_is_delivered_has_its_calls() {
        for kind in quiver_alerting::receivers::KINDS {
            assert_eq!(names().any(|name| name == kind.name), kind.is_delivered, "{}", kind.name);
        }
    }
}
