//! Connects accounts (`auth`) with their configuration (`config`): the directory that follows each change, the first
//! administrator, the password hashes of entities, and the caller of a request.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::BoxFuture;
use quiver_auth::{Auth, AuthEvent, Identity, PasswordRule, Passwords, Subject, external_id};
use quiver_config::families::BINDINGS;
use quiver_config::{AuditEvent, Caller, Config, Family, FieldError, KeyBounds, Problem, ProblemKind, Sealer};
use quiver_types::time::Clock;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::request_context::RequestInfo;

pub(crate) mod anonymous;
pub(crate) mod current_rights;
mod demo_account;
mod directory;
mod first_start;
mod observations;
pub(crate) mod rate_limits;
mod refused_requests;

pub use first_start::{FirstPassword, reset_password};
pub(crate) use rate_limits::Meter;
pub use rate_limits::{KeyRates, Rate};
pub(crate) use refused_requests::Refusal;

/// How often expired rows are deleted, and signing keys that are due are made.
const HOUSEKEEPING: Duration = Duration::from_hours(1);
/// How long the last directory is used while the database is unreachable.
const DIRECTORY_STALE: Duration = Duration::from_hours(1);

/// Accounts, their configuration, and how callers address this server.
#[derive(Debug)]
pub struct Identities {
    /// Tokens and rights.
    pub auth: Auth,
    /// Stored configuration, in which users, keys, roles and bindings are.
    pub config: Config,
    /// The `iss` of tokens: `{base_url}/realms/platform`.
    pub issuer: String,
    /// Whether callers must authenticate (`rbac.mode`). Accounts and the token service exist even if they need not.
    pub enforced: bool,
    /// The directory for the files with the first password and the demo's key.
    data: std::path::PathBuf,
    refusals: refused_requests::Refusals,
    rates: Arc<rate_limits::Rates>,
    /// What the directory was made from; the lock lets one task at a time make a new one.
    refreshing: tokio::sync::Mutex<AccountsSnapshot>,
}

/// What is known of accounts.
#[derive(Debug)]
struct AccountsSnapshot {
    /// The revision that it is from; `u64::MAX`: none.
    revision: u64,
    /// Whether the directory is to be made anew, whatever changes next.
    is_behind: bool,
    parts: directory::Parts,
}

/// Hashes passwords of users.
#[derive(Debug)]
pub struct PasswordSealer(
    /// Computes hashes of passwords.
    pub Arc<Passwords>,
);

#[async_trait]
impl Sealer for PasswordSealer {
    fn check(&self, _: &Family, field: &str, secret: &str, body: &Map<String, Value>) -> Option<FieldError> {
        let name = body.get("username").and_then(Value::as_str).unwrap_or_default();
        let (code, message) = Passwords::check(name, secret).map(PasswordRule::said)?;
        Some(FieldError::new(format!("/{field}"), code, message))
    }

    async fn seal(&self, _: &Family, _: &str, secret: &str) -> quiver_config::Result<String> {
        let busy = || Problem::new(ProblemKind::Limited, "RATE_LIMITED", "too many passwords are hashed at once");
        self.0.hash(secret).await.ok_or_else(busy)
    }
}

impl Identities {
    /// Puts both together, reads all accounts, and makes the first administrator if there is no user. If `enforced`
    /// is false nobody needs to authenticate.
    ///
    /// # Errors
    /// When the database is unreachable, or the first password cannot be read.
    pub fn open(
        auth: Auth,
        config: Config,
        (issuer, enforced, key_rates): (String, bool, KeyRates),
        first: &FirstPassword,
    ) -> BoxFuture<'_, quiver_config::Result<Arc<Self>>> {
        Box::pin(async move {
            let data = first.data.clone();
            let known = AccountsSnapshot { revision: u64::MAX, is_behind: true, parts: directory::Parts::default() };
            let refreshing = tokio::sync::Mutex::new(known);
            let refusals = refused_requests::Refusals::default();
            let rates = Arc::new(rate_limits::Rates::new(key_rates));
            let identities = Arc::new(Self { auth, config, issuer, enforced, data, refusals, rates, refreshing });
            identities.refresh().await?;
            if identities.config.all(&BINDINGS).await?.is_empty() {
                first_start::make_administrator(&identities, first).await?;
                identities.refresh().await?;
            }
            if !enforced {
                let event = AuditEvent {
                    action: "RBAC_OFF",
                    family: "rbac/sessions",
                    entity_id: None,
                    entity_name: None,
                    outcome: "ok",
                    code: None,
                };
                identities.config.audit(&Caller::system(), event).await;
            }
            Ok(identities)
        })
    }

    /// The issuer for a request: our own, or the one that follows from the headers of a trusted proxy.
    pub(crate) fn issuer_of(&self, request: &RequestInfo) -> Cow<'_, str> {
        match &request.base_url {
            Some(base) => Cow::Owned(format!("{base}/realms/platform")),
            None => Cow::Borrowed(&self.issuer),
        }
    }

    /// Like [`Self::issuer_of`], for the request of the current task.
    pub(crate) fn issuer_here(&self) -> Cow<'_, str> {
        let current = RequestInfo::current();
        current.map_or(Cow::Borrowed(&self.issuer[..]), |request| self.issuer_of(&request))
    }

    /// Makes the directory of accounts anew if one of them changed since the last one. Of accounts, only those are read.
    ///
    /// # Errors
    /// When the database is unreachable: the last directory stays in force.
    pub async fn refresh(&self) -> quiver_config::Result<()> {
        let mut known = self.refreshing.lock().await;
        let revision = self.config.revision();
        if known.revision == revision {
            return Ok(());
        }
        // If this fails half-way, what was read already is not seen to change once more.
        let was_behind = std::mem::replace(&mut known.is_behind, true);
        if known.parts.follow(&self.config).await? || was_behind {
            self.auth.set_directory(known.parts.picture());
        }
        (known.revision, known.is_behind) = (revision, false);
        Ok(())
    }

    /// The file with the first password, as long as it was generated here and has not been changed.
    pub fn first_password_file(&self) -> Option<std::path::PathBuf> {
        Some(first_start::file(&self.data)).filter(|path| path.exists())
    }

    /// Takes a request from the rate of a key.
    ///
    /// # Errors
    /// The seconds to wait, if nothing is left.
    pub(crate) fn take_turn(&self, identity: &Identity, now_ms: i64) -> Result<(), u64> {
        identity.key().map_or(Ok(()), |key| self.rates.take(key, now_ms))
    }

    /// Checks whether a key may send telemetry. Returns a meter for what it sends, if that is limited.
    ///
    /// # Errors
    /// The seconds to wait, if it has sent too much.
    pub(crate) fn take_ingest_turn(&self, identity: &Identity, clock: &Arc<dyn Clock>) -> Result<Option<Meter>, u64> {
        let Some(key) = identity.key() else { return Ok(None) };
        self.rates.may_send(key, clock.now_ms())?;
        Ok(Meter::of(&self.rates, key, clock))
    }

    /// Deletes the file with the first password: the password was changed.
    pub(crate) fn forget_first_password(&self) {
        first_start::forget_file(&self.data);
    }

    /// Follows changes until the server stops, and runs the periodic housekeeping.
    pub fn follow(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut changes = self.config.watch();
            let mut due = tokio::time::interval(HOUSEKEEPING);
            let mut failing_since: Option<tokio::time::Instant> = None;
            loop {
                tokio::select! {
                    () = stop.cancelled() => return,
                    changed = changes.changed() => if changed.is_err() { return },
                    _ = due.tick() => self.keep_house().await,
                    // Retries after a failure. With a shared database it also polls, since nothing notifies us when its
                    // server is gone.
                    () = tokio::time::sleep(Duration::from_secs(1)), if failing_since.is_some() || self.config.is_shared() => {}
                }
                match self.refresh().await {
                    Ok(()) => {
                        if failing_since.take().is_some() {
                            tracing::info!("accounts can be read again");
                        }
                    }
                    Err(problem) => {
                        // It is tried each second, and nothing is new but that it goes on.
                        if failing_since.is_none() {
                            tracing::warn!(
                                cause = problem.cause,
                                "accounts cannot be read; going on with what is known"
                            );
                        }
                        failing_since.get_or_insert_with(tokio::time::Instant::now);
                    }
                }
                let lost = Duration::from_millis(self.config.lost_for_ms().unsigned_abs());
                if failing_since.map_or(lost, |since| since.elapsed().max(lost)) > DIRECTORY_STALE {
                    self.let_nobody_in().await;
                }
            }
        })
    }

    /// Empties the directory because it is too old, so that nobody is admitted.
    async fn let_nobody_in(&self) {
        let mut known = self.refreshing.lock().await;
        if known.revision != u64::MAX {
            tracing::error!(
                "accounts could not be read for an hour: all requests are refused until the database answers again"
            );
        }
        (known.revision, known.is_behind) = (u64::MAX, true);
        self.auth.set_directory(quiver_auth::Directory::default());
    }

    async fn keep_house(&self) {
        if self.enforced
            && let Err(error) = self.auth.maintain_keys().await
        {
            tracing::error!(cause = error.source.as_ref().map(ToString::to_string), "{error}");
        }
        if let Err(problem) = self.config.expire().await {
            tracing::warn!(cause = problem.cause, "old audit rows cannot be forgotten");
        }
    }

    /// Notes a login, a logout or the reuse of a token in the audit log.
    pub(crate) async fn note(&self, happened: AuthEvent, from: &RequestOrigin) {
        let outcome = if happened.reason.is_some() { "failed" } else { "ok" };
        let kind = match happened.subject.as_deref().and_then(|s| s.split_once(':')) {
            Some(("user", _)) => "user",
            Some(("serviceAccount", _)) => "serviceAccount",
            _ => "anonymous",
        };
        let caller = Caller {
            subject: happened.subject.clone().unwrap_or_default(),
            name: happened.name.clone(),
            kind,
            ip: from.ip,
            request_id: from.request_id.clone(),
            ..Caller::system()
        };
        let event = AuditEvent {
            action: happened.action,
            family: "rbac/sessions",
            entity_id: None,
            entity_name: Some(happened.name),
            outcome,
            code: happened.reason.map(str::to_owned),
        };
        self.config.audit(&caller, event).await;
    }
}

/// Where a request came from, for the audit log.
#[derive(Debug, Clone, Default)]
pub(crate) struct RequestOrigin {
    pub(crate) ip: Option<std::net::IpAddr>,
    pub(crate) request_id: String,
}

impl RequestOrigin {
    /// The origin of a request.
    pub(crate) fn of(request: &RequestInfo) -> Self {
        Self { ip: request.peer.map(|peer| peer.ip()), request_id: request.id().to_owned() }
    }

    /// The origin of the request of the current task.
    pub(crate) fn current() -> Self {
        RequestInfo::current().as_ref().map_or_else(Self::default, Self::of)
    }
}

/// The caller as the configuration store records it.
pub(crate) fn caller(identity: &Identity, from: RequestOrigin) -> Caller {
    let kind = match &identity.subject {
        Subject::Account(kind, _) => kind.word(),
        Subject::External(..) => "user",
        Subject::Anyone => "anonymous",
    };
    let external_id = match &identity.subject {
        Subject::External(issuer, subject) => Some(external_id(issuer, subject)),
        Subject::Account(..) | Subject::Anyone => None,
    };
    Caller {
        subject: identity.subject.text(),
        external_id,
        name: identity.name.clone(),
        kind,
        ip: from.ip,
        request_id: from.request_id,
        rights: (*identity.rights).clone(),
        key: identity.key_bounds().map(|(expires_ms, networks)| KeyBounds { expires_ms, networks: networks.to_vec() }),
        manager: "api".to_owned(),
        override_managed: false,
    }
}

#[cfg(test)]
mod tests {
    use quiver_auth::AccountKind;

    use super::*;

    fn called(subject: Subject) -> Caller {
        let from = RequestOrigin { ip: None, request_id: "r".to_owned() };
        let mut identity = Identity::anyone();
        (identity.subject, identity.name) = (subject, "Ann".to_owned());
        caller(&identity, from)
    }

    #[test]
    fn callers_are_named_by_their_account() {
        for (subject, text, kind, account) in [
            (Subject::Account(AccountKind::User, "1".to_owned()), "user:1", "user", Some(("rbac/users", "1"))),
            (
                Subject::Account(AccountKind::Service, "1".to_owned()),
                "serviceAccount:1",
                "serviceAccount",
                Some(("rbac/service-accounts", "1")),
            ),
            // An id may contain the separator that precedes it.
            (Subject::Account(AccountKind::User, "a:b".to_owned()), "user:a:b", "user", Some(("rbac/users", "a:b"))),
        ] {
            let caller = called(subject);
            assert_eq!((caller.subject.as_str(), caller.kind, caller.account()), (text, kind, account));
            assert_eq!((caller.external_id.as_deref(), caller.name.as_str()), (None, "Ann"), "{text}");
            assert_eq!((caller.request_id.as_str(), caller.manager.as_str()), ("r", "api"), "{text}");
            assert!(!caller.override_managed, "{text}: a header asks for that, not who it is");
        }
    }

    #[test]
    fn whom_another_issuer_knows_has_an_id_of_ours() {
        let of = |issuer: &str, subject: &str| called(Subject::External(issuer.to_owned(), subject.to_owned()));
        let (one, same) = (of("https://a", "x"), of("https://a", "x"));
        assert_eq!((one.subject.as_str(), one.kind), ("oidc:https://a:x", "user"));
        assert_eq!(one.external_id, same.external_id);
        assert_eq!(one.account().map(|(family, _)| family), Some("rbac/users"));
        // Where issuer ends and subject begins matters.
        let ids = [one, of("https://a:x", ""), of("https://", "a:x"), of("https://b", "x")].map(|c| c.external_id);
        let different: std::collections::BTreeSet<_> = ids.iter().flatten().collect();
        assert_eq!(different.len(), 4, "{ids:?}");
    }

    #[test]
    fn whoever_calls_has_no_account() {
        let caller = called(Subject::Anyone);
        assert_eq!((caller.kind, caller.account(), caller.external_id.clone()), ("anonymous", None, None));
    }
}
