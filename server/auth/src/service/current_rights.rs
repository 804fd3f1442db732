//! What has become of somebody since it was let in: rights, roles, accounts that are gone.

use std::sync::Arc;

use quiver_types::{Domain, Rights};

use super::{Auth, Identity, Subject, external_id};
use crate::directory::AccountKind;
use crate::error::TokenError;

impl Auth {
    /// Says who somebody is by now, for work that goes on after it was let in: with what it may do at this moment. That a
    /// token ends meanwhile does not matter; that its session was ended does.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]: the account, key or session is gone.
    pub fn renewed(&self, identity: &Identity) -> Result<Identity, TokenError> {
        if identity.session.as_deref().is_some_and(|id| self.sessions.is_denied(id)) {
            return Err(TokenError::Invalid);
        }
        let directory = self.directory.load();
        let now = match (&identity.subject, identity.key()) {
            (Subject::Anyone, _) => return Ok(identity.clone()),
            (Subject::External(issuer, subject), _) => {
                let rights = self.external_rights(&external_id(issuer, subject), &identity.roles)?;
                return Ok(Identity { rights: Arc::new(rights), ..identity.clone() });
            }
            (_, Some(id)) => self.of_known_key(directory.key(id).ok_or(TokenError::Invalid)?)?,
            (Subject::Account(kind, id), None) => self.of_account(*kind, id)?,
        };
        Ok(Identity { rights: now.rights, ..identity.clone() })
    }

    /// Names of the roles that somebody has: by bindings of the account, and of roles at another issuer.
    pub fn roles_of(&self, identity: &Identity) -> Vec<String> {
        let (directory, now_ms) = (self.directory.load(), self.clock.now_ms());
        let mut roles = match &identity.subject {
            Subject::Account(kind, id) => directory.roles(*kind, id, now_ms),
            Subject::External(issuer, subject) => {
                let own = directory.roles(AccountKind::User, &external_id(issuer, subject), now_ms);
                [own, directory.roles_by_roles(&identity.roles, now_ms)].concat()
            }
            Subject::Anyone => Vec::new(),
        };
        roles.sort_unstable();
        roles.dedup();
        roles
    }

    /// Whether the user of another issuer, of whom only the subject is known, is disabled here.
    fn is_disabled_external(&self, subject: &str) -> bool {
        let Some(named) = subject.strip_prefix("oidc:") else { return false };
        let mut issuers = self.settings.external.iter().map(|external| external.issuer.as_str());
        let id = issuers.find_map(|issuer| Some(external_id(issuer, named.strip_prefix(issuer)?.strip_prefix(':')?)));
        let directory = self.directory.load();
        id.is_some_and(|id| directory.account(AccountKind::User, &id).is_some_and(|account| !account.enabled))
    }

    /// Says whether somebody may by now still view all that he once could, in some domain or in all: of work that goes on
    /// in his name. Nobody is said to have lost what cannot be looked up: roles that another issuer gives, and accounts of
    /// a database that is gone.
    pub fn still_shows(&self, subject: &str, rights: &Rights, domain: Option<Domain>) -> bool {
        let directory = self.directory.load();
        let account = subject.split_once(':').and_then(|(word, id)| {
            let kinds = [AccountKind::User, AccountKind::Service];
            kinds.into_iter().find(|kind| kind.word() == word).map(|kind| (kind, id))
        });
        let Some((kind, id)) = account.filter(|_| directory.has_users()) else {
            return !self.is_disabled_external(subject);
        };
        if directory.account(kind, id).is_none_or(|account| !account.enabled) {
            return false;
        }
        directory.rights(kind, id, self.clock.now_ms()).show_all_of(rights, domain)
    }
}
