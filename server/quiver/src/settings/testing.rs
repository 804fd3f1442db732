//! What tests of settings share.

use super::LoadedSettings;

/// The error for a value of a setting; empty if it is accepted.
pub(super) fn refusal(name: &str, value: &str) -> String {
    let given = [(variable(name), value.to_owned())];
    LoadedSettings::load(None, given.into_iter(), &[]).err().map(|error| error.to_string()).unwrap_or_default()
}

/// The variable of the environment for a setting.
pub(super) fn variable(name: &str) -> String {
    format!("QUIVER_{}", name.to_ascii_uppercase().replace('.', "__"))
}
