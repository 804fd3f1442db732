//! Checks secrets of service accounts and passwords of users, as often as the throttle allows guesses.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;

use super::Auth;
use crate::directory::{Account, AccountKind};
use crate::error::TokenError;
use crate::{Secret, same, sha256_hex};

impl Auth {
    /// Checks the secret of a service account. Nobody can guess one, so whoever knows it need not wait: else strangers could
    /// keep senders out by wrong secrets under their names, or one sender with an old secret all others of its network.
    ///
    /// # Errors
    /// [`TokenError::Invalid`], [`TokenError::TooMany`].
    pub(crate) fn client(&self, name: &str, secret: &str, ip: Option<IpAddr>) -> Result<Arc<Account>, TokenError> {
        let now_ms = self.clock.now_ms();
        let throttled = format!("client:{}", bounded(name));
        let directory = self.directory.load();
        let account = directory.named(AccountKind::Service, name);
        let given = sha256_hex(secret.as_bytes());
        let right = account.is_some_and(|a| {
            let now = a.hash.as_ref().is_some_and(|hash| same(&given, hash.expose()));
            let old = a.old_hash.as_ref().is_some_and(|(hash, until)| now_ms < *until && same(&given, hash.expose()));
            (now || old) && a.enabled
        });
        if let Some(account) = account.filter(|_| right) {
            self.throttle.succeeded(&throttled, now_ms);
            Ok(Arc::clone(account))
        } else if let Some(wait_s) = self.throttle.wait_s(&throttled, ip, now_ms) {
            Err(TokenError::TooMany(wait_s))
        } else {
            // If users may authenticate with Basic as well, the name may be a user's, and the check of its password
            // counts.
            if account.is_some() || !self.settings.basic_passwords {
                self.throttle.failed(&throttled, ip, now_ms);
            }
            Err(TokenError::Invalid)
        }
    }

    /// Checks the password of a user, which may be a temporary one that must still be changed.
    ///
    /// # Errors
    /// [`TokenError::Invalid`], [`TokenError::TooMany`].
    pub fn person<'a>(
        &'a self,
        name: &'a str,
        password: &'a str,
        ip: Option<IpAddr>,
    ) -> BoxFuture<'a, Result<Arc<Account>, TokenError>> {
        Box::pin(async move {
            let throttled = format!("user:{}", bounded(name));
            let may_guess = || match self.throttle.wait_s(&throttled, ip, self.clock.now_ms()) {
                Some(wait_s) => Err(TokenError::TooMany(wait_s)),
                None => Ok(()),
            };
            may_guess()?;
            let turn = self.passwords.turn().await.ok_or(TokenError::TooMany(1))?;
            // Checked again: concurrent guesses have failed meanwhile, and otherwise as many as wait in the queue would
            // be free. The turn lasts until this guess is counted, too.
            may_guess()?;
            let account = self.directory.load().named(AccountKind::User, name).cloned();
            let stored = account.as_ref().and_then(|a| a.hash.as_ref()).map(Secret::expose);
            let checked = self.passwords.verify(password, stored, turn).await;
            let (right, _turn) = checked.ok_or(TokenError::TooMany(1))?;
            if let Some(account) = account.filter(|a| right && a.enabled) {
                self.throttle.succeeded(&throttled, self.clock.now_ms());
                Ok(account)
            } else {
                self.throttle.failed(&throttled, ip, self.clock.now_ms());
                Err(TokenError::Invalid)
            }
        })
    }
}

/// A name as a key of the throttle, limited in length.
fn bounded(name: &str) -> String {
    let lower: String = name.chars().take(100).flat_map(char::to_lowercase).collect();
    sha256_hex(lower.as_bytes())[..32].to_owned()
}
