//! Errors about tokens and token requests (RFC 6749, section 5.2).

use serde_json::{Value, json};

/// Why a request was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It shows nothing.
    #[error("this needs a token or a key (`Authorization: Bearer …`)")]
    Missing,
    /// What it shows is not valid.
    #[error("the token is not valid")]
    Invalid,
    /// It was valid.
    #[error("the access token expired")]
    Expired,
    /// Too many attempts; come back after so many seconds.
    #[error("too many attempts")]
    TooMany(u64),
}

impl TokenError {
    /// The error code of RFC 6749, which never changes.
    pub fn code(self) -> &'static str {
        match self {
            Self::Missing => "TOKEN_MISSING",
            Self::Invalid => "TOKEN_INVALID",
            Self::Expired => "TOKEN_EXPIRED",
            Self::TooMany(_) => "RATE_LIMITED",
        }
    }
}

/// Something that belongs into the audit log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthEvent {
    /// `LOGIN`, `LOGOUT`, `REFRESH_REUSE`.
    pub action: &'static str,
    /// Who, by name.
    pub name: String,
    /// Who, if known: `user:<id>`.
    pub subject: Option<String>,
    /// Why it failed; none: it did not.
    pub reason: Option<&'static str>,
}

/// A token request that is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}: {description}")]
pub struct OAuthError {
    /// HTTP status of the answer.
    pub status: u16,
    /// Value of `error` as RFC 6749 defines it, like `invalid_grant`.
    pub error: &'static str,
    /// Value of `error_description`: what is wrong, for people.
    pub description: String,
    /// Seconds after which to come back.
    pub retry_after_s: Option<u64>,
    /// For the audit log.
    pub happened: Option<Box<AuthEvent>>,
}

impl OAuthError {
    fn new(status: u16, error: &'static str, description: impl Into<String>) -> Self {
        Self { status, error, description: description.into(), retry_after_s: None, happened: None }
    }

    /// 400: a parameter lacks, stands twice, or cannot be read.
    pub fn request(description: impl Into<String>) -> Self {
        Self::new(400, "invalid_request", description)
    }

    /// 401: unknown client or wrong secret.
    pub fn client() -> Self {
        Self::new(401, "invalid_client", "Invalid client or Invalid client credentials")
    }

    /// 400: the client may not do that.
    pub fn unauthorized_client() -> Self {
        Self::new(400, "unauthorized_client", "Client not allowed for this grant")
    }

    /// 400: a kind of grant that is not known.
    pub fn grant_type() -> Self {
        Self::new(400, "unsupported_grant_type", "Unsupported grant_type")
    }

    /// 401: wrong user or password, whichever.
    pub fn user() -> Self {
        Self::new(401, "invalid_grant", "Invalid user credentials")
    }

    /// 400: the password must be changed first.
    pub fn not_set_up() -> Self {
        Self::new(400, "invalid_grant", "Account is not fully set up")
    }

    /// 400: the refresh token is not, or no longer, good.
    pub fn not_active() -> Self {
        Self::new(400, "invalid_grant", "Token is not active")
    }

    /// 400: a scope that was not granted.
    pub fn scope(scope: &str) -> Self {
        let shown: String = scope.chars().filter(char::is_ascii_graphic).take(100).collect();
        Self::new(400, "invalid_scope", format!("Invalid scopes: {shown}"))
    }

    /// 429: too many attempts; another makes sense after so many seconds, at least one.
    pub fn slow_down(after_s: u64) -> Self {
        Self { retry_after_s: Some(after_s.max(1)), ..Self::new(429, "slow_down", "Too many attempts") }
    }

    /// 413: the form is larger than [`FORM_BYTES_MAX`](crate::FORM_BYTES_MAX).
    pub fn too_large() -> Self {
        Self::new(413, "invalid_request", "The body is too large")
    }

    /// 503: the database does not answer.
    pub fn unavailable() -> Self {
        Self { retry_after_s: Some(1), ..Self::new(503, "temporarily_unavailable", "The account store is busy") }
    }

    /// Adds what belongs into the audit log.
    #[must_use]
    pub fn noting(mut self, happened: AuthEvent) -> Self {
        self.happened = Some(Box::new(happened));
        self
    }

    /// The JSON body: `error` and `error_description` of RFC 6749, and `code` as other APIs of the server have it.
    pub fn body(&self) -> Value {
        let code = match self.status {
            429 => "RATE_LIMITED".to_owned(),
            503 => "STORE_BUSY".to_owned(),
            _ => self.error.to_uppercase(),
        };
        json!({"error": self.error, "error_description": self.description, "code": code})
    }
}
