//! From the credentials of a request to the identity of its caller and its rights.
//!
//! `identity` is the result, `authentication` finds it from credentials, `secret_checks` checks secrets of accounts, `current_rights`
//! says whether an identity still holds later.

mod authentication;
mod current_rights;
mod identity;
mod secret_checks;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use quiver_database::Database;
use quiver_types::{Clock, Random, Result, Vault};

use crate::directory::Directory;
use crate::error::TokenError;
use crate::external::{ExternalIssuer, Externals, Fetch};
use crate::jwt::TokenCache;
use crate::keys::{OldTokens, RotationOutcome, SigningKeys};
use crate::observations::{Observation, Observations};
use crate::password::Passwords;
use crate::session::Sessions;
use crate::throttle::Throttle;
pub use identity::{AuthMethod, Identity, Subject, external_id};

/// The audience of our tokens.
pub(crate) const AUDIENCE: &str = "platform";

/// Settings of accounts and tokens.
#[derive(Debug, Clone)]
pub struct AuthSettings {
    /// Whether passwords of users are accepted as Basic credentials.
    pub basic_passwords: bool,
    /// Whether analytics accepts keys and secrets besides tokens.
    pub olap_api_keys: bool,
    /// Bits of signing keys.
    pub key_bits: u32,
    /// External issuers.
    pub external: Vec<ExternalIssuer>,
}

impl Default for AuthSettings {
    fn default() -> Self {
        Self { basic_passwords: false, olap_api_keys: false, key_bits: 2048, external: Vec::new() }
    }
}

/// What is known about a request besides its credentials.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The issuer of tokens under the address that the request used.
    pub issuer: &'a str,
    /// Address of the client.
    pub ip: Option<IpAddr>,
}

/// Accounts, tokens and rights.
#[derive(Debug)]
pub struct Auth {
    pub(crate) settings: AuthSettings,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) directory: ArcSwap<Directory>,
    pub(crate) keys: SigningKeys,
    pub(crate) sessions: Sessions,
    pub(crate) passwords: Arc<Passwords>,
    pub(crate) throttle: Throttle,
    database: Database,
    /// Identifies this server among others over the same database.
    server: String,
    checked: TokenCache,
    externals: Externals,
    observations: Observations,
}

impl Auth {
    /// Opens the token service.
    ///
    /// # Errors
    /// When the master key does not fit, or the database is gone.
    pub fn open(
        settings: AuthSettings,
        pool: Database,
        vault: Arc<dyn Vault>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        fetch: Option<Arc<dyn Fetch>>,
    ) -> BoxFuture<'static, Result<Self>> {
        Box::pin(async move {
            let (of_keys, drawn) = (Arc::clone(&vault), Arc::clone(&random));
            let keys = SigningKeys::open(pool.clone(), of_keys, Arc::clone(&clock), drawn, settings.key_bits).await?;
            let sessions = Sessions::open(pool.clone(), vault, Arc::clone(&random), Arc::clone(&clock)).await?;
            let server = quiver_types::hex(&quiver_types::random_bytes::<8>(&*random));
            Ok(Self {
                externals: Externals::new(settings.external.clone(), fetch),
                settings,
                passwords: Arc::new(Passwords::new(Arc::clone(&random))),
                directory: ArcSwap::default(),
                throttle: Throttle::default(),
                database: pool,
                server,
                checked: TokenCache::default(),
                observations: Observations::default(),
                clock,
                random,
                keys,
                sessions,
            })
        })
    }

    /// Replaces the directory; removed accounts and rights are gone from the next request on.
    pub fn set_directory(&self, directory: Directory) {
        self.directory.store(Arc::new(directory));
    }

    /// The current directory.
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.load_full()
    }

    /// Makes and checks hashes of passwords.
    pub fn passwords(&self) -> &Arc<Passwords> {
        &self.passwords
    }

    /// Checks that a caller used credentials that analytics accepts: a token, unless a setting allows the others.
    ///
    /// # Errors
    /// Invalid: the caller used an API key. Missing: Basic credentials or a certificate.
    pub fn may_ask_analytics(&self, identity: &Identity) -> Result<(), TokenError> {
        match identity.way {
            AuthMethod::Token | AuthMethod::Off => Ok(()),
            _ if self.settings.olap_api_keys => Ok(()),
            AuthMethod::ApiKey => Err(TokenError::Invalid),
            AuthMethod::Basic | AuthMethod::Certificate => Err(TokenError::Missing),
        }
    }

    /// The signing keys, made if this is the first that needs them.
    ///
    /// # Errors
    /// When the database is gone.
    pub fn signing_keys(&self) -> BoxFuture<'_, Result<&SigningKeys>> {
        Box::pin(self.keys.made())
    }

    /// Makes, publishes and retires signing keys as it is due; called now and then.
    ///
    /// # Errors
    /// When the database is gone.
    pub fn maintain_keys(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.keys.maintain())
    }

    /// Rotates to the next signing key.
    ///
    /// # Errors
    /// When the database is gone.
    pub fn rotate_keys(&self, old_tokens: OldTokens) -> BoxFuture<'_, Result<RotationOutcome>> {
        Box::pin(async move {
            let rotated = self.keys.rotate(old_tokens).await?;
            if old_tokens == OldTokens::EndAtOnce {
                self.checked.clear();
            }
            Ok(rotated)
        })
    }

    /// Reads what other servers over the same database have changed: signing keys, ended sessions, failed logins.
    ///
    /// # Errors
    /// When the database is gone.
    pub fn synchronize(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.keys.read_changed().await? {
                self.checked.clear();
            }
            self.sessions.read_ended().await?;
            self.throttle.exchange(&self.database, &self.server, self.clock.now_ms()).await
        })
    }

    /// Ends all sessions of a subject except one.
    ///
    /// # Errors
    /// When the database is gone.
    pub fn end_sessions<'a>(&'a self, subject: &'a Subject, but: Option<&'a str>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.sessions.end_all(&subject.text(), but).await })
    }

    /// Waits for observations about callers, and takes them.
    pub async fn observations(&self) -> Vec<Observation> {
        self.observations.take().await
    }
}
