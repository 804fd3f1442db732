//! Settings that can change while the server runs, and the way to read them anew.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

use quiver_query::Limits;
use quiver_types::Result;
use serde_json::Value;

/// What may change at any moment; a request sees one state of it.
#[derive(Debug, Clone)]
pub struct LiveSettings {
    /// Bounds of a query.
    pub query_limits: Limits,
    /// Longest run of a query of logs.
    pub logs_timeout: Duration,
    /// Queries that take longer are logged.
    pub slow_query: Duration,
    /// Origins that browsers may call from; `*` for all.
    pub cors_origins: Vec<String>,
    /// Names that this server is called by, besides those of loopback; `*` for any.
    pub hosts: Vec<String>,
    /// Whether the description of the API is shown to whoever asks.
    pub docs_public: bool,
    /// Whether each request is logged.
    pub access_log: bool,
    /// What `/admin` asks for; `None`: that the request comes from this machine.
    pub admin_token: Option<Token>,
    /// All settings of the process: section, key, value.
    pub listed: Vec<(&'static str, &'static str, Value)>,
}

/// A secret text, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

impl Token {
    /// Makes a token.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Compares in a time that does not tell how much of a guess was right.
    pub(crate) fn is(&self, guess: &[u8]) -> bool {
        let differ = self.0.bytes().zip(guess).fold(0, |differ, (a, b)| differ | (a ^ b));
        self.0.len() == guess.len() && differ == 0
    }
}

/// What a reload did, by names of settings (`section.key`).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reloaded {
    /// Changed, and in force.
    pub applied: Vec<String>,
    /// Changed, but read at the start only.
    pub needs_restart: Vec<String>,
}

/// Reads settings anew; given by the binary.
type Reload = Box<dyn Fn() -> Result<Reloaded> + Send + Sync>;

/// The way to read settings anew, once the binary has said it.
#[derive(Default)]
pub struct Reloader(OnceLock<Reload>);

impl fmt::Debug for Reloader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reloader")
    }
}

impl Reloader {
    /// Says how settings are read; only the first one counts.
    pub fn set(&self, reload: impl Fn() -> Result<Reloaded> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(reload));
    }

    /// Reads settings anew; `None`: nobody said how.
    pub fn reload(&self) -> Option<Result<Reloaded>> {
        self.0.get().map(|reload| reload())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens() {
        let token = Token::new("s3cret");
        assert!(token.is(b"s3cret"));
        assert!(!token.is(b"s3cre") && !token.is(b"s3crets") && !token.is(b"S3cret") && !token.is(b""));
        assert_eq!(format!("{token:?}"), "Token");
    }
}
