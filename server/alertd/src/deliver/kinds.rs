//! What each kind of integration sends. One file per kind.

mod webhook;

use quiver_alerting::receivers::Integration;

use super::{Call, Failure, Files, Message};

/// A kind: its name, and what makes its call.
struct Kind {
    name: &'static str,
    call: fn(&Message, &Integration, &Files) -> Result<Call, Failure>,
}

/// All kinds that are told over HTTP.
const KINDS: &[Kind] = &[Kind { name: "webhook", call: webhook::call }];

/// Makes the call that tells an integration.
///
/// # Errors
/// A template or secret cannot be had; nobody knows how to tell this kind.
pub(super) fn call(message: &Message, integration: &Integration, files: &Files) -> Result<Call, Failure> {
    let name = integration.kind.name;
    match KINDS.iter().find(|kind| kind.name == name) {
        Some(kind) => (kind.call)(message, integration, files),
        None => Err(Failure::lasting(format!("{name} is not supported"))),
    }
}
