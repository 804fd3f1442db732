//! Settings that can change while the server runs, and how they are reloaded.

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
pub struct ReloadOutcome {
    /// Settings that changed and are in force.
    pub applied: Vec<String>,
    /// Settings that changed but are read at the start only.
    pub needs_restart: Vec<String>,
}

/// Reads settings anew; given by the binary.
type Reload = Box<dyn Fn() -> Result<ReloadOutcome> + Send + Sync>;

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
    pub fn set(&self, reload: impl Fn() -> Result<ReloadOutcome> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(reload));
    }

    /// Reads settings anew; `None`: nobody said how.
    pub fn reload(&self) -> Option<Result<ReloadOutcome>> {
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

    #[test]
    fn guesses_of_any_length() {
        let token = Token::new("größe");
        assert!(token.is("größe".as_bytes()));
        for guess in ["", "g", "gr", "größ", "größee", "größegröße", "GRÖSSE", "grösse"] {
            assert!(!token.is(guess.as_bytes()), "{guess}");
        }
        assert!(!token.is(&[0; 7]) && !token.is(&[0xff; 1000]));
        assert!(Token::new("").is(b"") && !Token::new("").is(b"a"));
    }

    #[test]
    fn settings_are_read_anew_in_the_way_that_was_said_first() {
        let reloader = Reloader::default();
        assert!(reloader.reload().is_none(), "nobody said how");
        let named = |name: &str| ReloadOutcome { applied: vec![name.to_owned()], needs_restart: Vec::new() };
        let (first, second) = (named("a.b"), named("c.d"));
        let expected = first.clone();
        reloader.set(move || Ok(first.clone()));
        reloader.set(move || Ok(second.clone()));
        for _ in 0..2 {
            assert_eq!(reloader.reload().map(|done| done.expect("it works")), Some(expected.clone()));
        }
        let failing = Reloader::default();
        failing.set(|| Err(quiver_types::Error::invalid("wrong")));
        assert_eq!(failing.reload().and_then(std::result::Result::err).map(|e| e.message), Some("wrong".to_owned()));
    }
}
