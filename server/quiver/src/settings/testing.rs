//! What tests of settings share.

use super::LoadedSettings;

/// The error for a value of a setting; empty if it is accepted.
pub(super) fn refusal(name: &str, value: &str) -> String {
    let variable = format!("QUIVER_{}", name.to_ascii_uppercase().replace('.', "__"));
    let given = [(variable, value.to_owned())];
    LoadedSettings::load(None, given.into_iter(), &[]).err().map(|error| error.to_string()).unwrap_or_default()
}
