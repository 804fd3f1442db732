//! Who calls, and what they may do: accounts, the token service, API keys, rights (`identity-and-access` 1 to 4).
//!
//! `directory` is an in-memory copy of all accounts, replaced after each change, so that checking a request never waits
//! for a database. `credentials` extracts what a request presents, `jwt` and `api_key` check it, `service` combines them
//! and gives an [`Identity`]. `token_endpoint` answers token requests with `password`, `throttle` and `session`; `keys` are the
//! signing keys, which `rsa_key` makes.
//!
//! Invariants: no HTTP; clock and random source are passed in; secrets are compared in constant time, stored as hashes
//! or encrypted, and never logged (their types print nothing); what strangers can make the server remember is bounded.

pub mod api_key;
mod credentials;
mod directory;
mod error;
mod external;
pub mod failpoint;
mod form;
mod jwt;
mod keys;
mod observations;
mod password;
mod random;
mod rsa_key;
mod service;
mod session;
mod tables;
mod throttle;
mod token_endpoint;
mod vault;

pub use credentials::RequestCredentials;
pub use directory::{Account, AccountKind, Accounts, BoundTo, Directory, Grant, Key};
pub use error::{AuthEvent, OAuthError, TokenError};
pub use external::{ExternalIssuer, Fetch};
pub use form::Form;
pub use jwt::Claims;
pub use keys::{OldTokens, RotationOutcome, SigningKeys, forget_keys, sealed_keys};
pub use observations::Observation;
pub use password::{PasswordRule, Passwords, Turn};
pub use random::OsRandom;
pub use service::{Auth, AuthMethod, AuthSettings, Identity, Request, Subject, external_id};
pub use tables::SCHEMA;
pub use token_endpoint::{FORM_BYTES_MAX, TokenAnswer, base_url_is_sane};
pub use vault::MasterVault;

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Drop for Secret {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.0);
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("<secret>")
    }
}

impl Secret {
    /// Takes a text.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Gives the text, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// SHA-256 in hexadecimal digits: how secrets with enough bits of their own are stored.
pub fn sha256_hex(text: &[u8]) -> String {
    quiver_types::hex(ring::digest::digest(&ring::digest::SHA256, text).as_ref())
}

/// Compares in a time that does not tell how much of a guess was right.
pub(crate) fn same(a: &str, b: &str) -> bool {
    use subtle::ConstantTimeEq;
    a.as_bytes().ct_eq(b.as_bytes()).into()
}

#[cfg(test)]
mod tests;
