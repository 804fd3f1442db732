//! Who asks: a token, a key, a name with its secret, or a certificate.

use std::net::IpAddr;
use std::sync::Arc;

use futures::future::BoxFuture;
use quiver_types::{Network, Rights};

use super::{AUDIENCE, Auth, AuthMethod, Identity, Request, Subject, external_id};
use crate::credentials::RequestCredentials;
use crate::directory::{AccountKind, Key};
use crate::error::TokenError;
use crate::jwt::{Claims, Parts, TokenRequirements, verify};
use crate::observations::Observation;
use crate::{Secret, same, sha256_hex};

impl Auth {
    /// Says who asks.
    ///
    /// # Errors
    /// See [`TokenError`].
    pub fn identify<'a>(
        &'a self,
        shown: &'a RequestCredentials,
        request: Request<'a>,
    ) -> BoxFuture<'a, Result<Identity, TokenError>> {
        Box::pin(async move {
            match shown {
                RequestCredentials::Nothing => Err(TokenError::Missing),
                RequestCredentials::Token(token) => self.of_token(token.expose(), request).await,
                RequestCredentials::ApiKey(key) => self.of_key(key.expose(), request.ip),
                RequestCredentials::Basic { name, password } => self.of_basic(name, password, request.ip).await,
            }
        })
    }

    /// Identifies a caller by a certificate that one of our authorities has signed: the service account of that name.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]: there is none, or it may not act.
    pub fn identify_certificate(&self, name: &str) -> Result<Identity, TokenError> {
        let account = self.directory.load().named(AccountKind::Service, name).cloned().ok_or(TokenError::Invalid)?;
        Ok(Identity { way: AuthMethod::Certificate, ..self.of_account(AccountKind::Service, &account.id)? })
    }

    /// An identity of an account of ours that may act.
    pub(super) fn of_account(&self, kind: AccountKind, id: &str) -> Result<Identity, TokenError> {
        let directory = self.directory.load();
        let account = directory.account(kind, id).filter(|a| a.enabled).ok_or(TokenError::Invalid)?;
        Ok(Identity {
            subject: Subject::Account(kind, id.to_owned()),
            name: account.name.clone(),
            rights: directory.rights(kind, id, self.clock.now_ms()),
            way: AuthMethod::Token,
            session: None,
            shown_key: None,
            roles: Arc::default(),
        })
    }

    async fn of_token(&self, token: &str, request: Request<'_>) -> Result<Identity, TokenError> {
        let claims = self.claims(token, request.issuer).await?;
        if claims.issuer != request.issuer {
            return self.of_external(&claims, request.ip);
        }
        let session = claims.session.as_deref().or_else(|| claims.text("jti"));
        if session.is_some_and(|id| self.sessions.is_denied(id)) {
            return Err(TokenError::Invalid);
        }
        // `sub` is the id; which kind stands beside it, in a claim that only clients have.
        let kind = if claims.text("clientId").is_some() { AccountKind::Service } else { AccountKind::User };
        let identity = self.of_account(kind, &claims.subject)?;
        Ok(Identity { session: session.map(str::to_owned), ..identity })
    }

    /// Checks a token; remembers those that are good.
    pub(crate) async fn claims(&self, token: &str, issuer: &str) -> Result<Arc<Claims>, TokenError> {
        let now_ms = self.clock.now_ms();
        if let Some(claims) = self.checked.get(token, issuer, now_ms) {
            return Ok(claims);
        }
        let parts = Parts::read(token)?;
        let claims = match parts.issuer() {
            Some(by) if by == issuer => {
                let key = self.keys.verifier(&parts.kid, now_ms).ok_or(TokenError::Invalid)?;
                let audiences = [AUDIENCE.to_owned()];
                verify(token, parts, &key, TokenRequirements { issuer, audiences: &audiences, own: true }, now_ms)?
            }
            Some(_) => self.externals.verify(parts, token, now_ms).await?,
            None => return Err(TokenError::Invalid),
        };
        let claims = Arc::new(claims);
        self.checked.put(token, issuer, &claims, now_ms);
        Ok(claims)
    }

    /// The session in an id token of ours, however old, and whose it is.
    pub(crate) fn session_of_hint(&self, token: &str, issuer: &str) -> Option<(String, String)> {
        let parts = Parts::read(token).ok()?;
        let key = self.keys.verifier(&parts.kid, self.clock.now_ms())?;
        let said = parts.signed_by(token, &key)?;
        let text = |name: &str| said.get(name).and_then(serde_json::Value::as_str);
        let ours = text("iss") == Some(issuer) && text("typ") == Some("ID");
        Some((text("sid").filter(|_| ours)?.to_owned(), text("sub")?.to_owned()))
    }

    /// Somebody whom another issuer knows: what its roles there give, and what is bound to the user that it is here.
    fn of_external(&self, claims: &Claims, ip: Option<IpAddr>) -> Result<Identity, TokenError> {
        let (name, roles) = self.externals.name_and_roles(claims).ok_or(TokenError::Invalid)?;
        let subject = Subject::External(claims.issuer.clone(), claims.subject.clone());
        let id = external_id(&claims.issuer, &claims.subject);
        let rights = self.external_rights(&id, &roles)?;
        if self.directory.load().account(AccountKind::User, &id).is_none() {
            let text = |claim: &str| claims.text(claim).map(str::to_owned);
            self.observations.user(&id, self.clock.now_ms(), || Observation::User {
                id: id.clone(),
                issuer: claims.issuer.clone(),
                name: name.clone(),
                email: text("email"),
                display_name: text("name"),
                ip,
            });
        }
        Ok(Identity {
            subject,
            name,
            rights: Arc::new(rights),
            way: AuthMethod::Token,
            session: None,
            shown_key: None,
            roles: roles.into(),
        })
    }

    /// # Errors
    /// [`TokenError::Invalid`]: the user is disabled here.
    pub(super) fn external_rights(&self, id: &str, roles: &[String]) -> Result<Rights, TokenError> {
        let (directory, now_ms) = (self.directory.load(), self.clock.now_ms());
        let by_roles = directory.rights_of_roles(roles, now_ms);
        match directory.account(AccountKind::User, id) {
            None => Ok(by_roles),
            Some(account) if !account.enabled => Err(TokenError::Invalid),
            Some(_) => {
                let own = directory.rights(AccountKind::User, id, now_ms);
                Ok(by_roles.triples().iter().chain(own.triples()).cloned().collect())
            }
        }
    }

    fn of_key(&self, text: &str, ip: Option<IpAddr>) -> Result<Identity, TokenError> {
        let directory = self.directory.load();
        let key = crate::api_key::id_of(text).and_then(|id| directory.key(id)).ok_or(TokenError::Invalid)?;
        let right = same(&sha256_hex(text.as_bytes()), key.hash.expose());
        let is_here =
            |ip| key.networks.iter().any(|text| Network::parse(text).is_ok_and(|network| network.contains(ip)));
        let from_here = key.networks.is_empty() || ip.is_some_and(is_here);
        if !right || !from_here {
            return Err(TokenError::Invalid);
        }
        let identity = self.of_known_key(key)?;
        self.observations.key(key, ip, self.clock.now_ms());
        Ok(identity)
    }

    pub(super) fn of_known_key(&self, key: &Arc<Key>) -> Result<Identity, TokenError> {
        if key.expires_ms.is_some_and(|end| self.clock.now_ms() >= end) {
            return Err(TokenError::Invalid);
        }
        let owner = self.of_account(key.owner.0, &key.owner.1)?;
        // What the owner lost meanwhile the key lost, too.
        let rights =
            key.rights.as_ref().map_or_else(|| Arc::clone(&owner.rights), |own| Arc::new(own.meet(&owner.rights)));
        Ok(Identity { rights, way: AuthMethod::ApiKey, shown_key: Some(Arc::clone(key)), ..owner })
    }

    async fn of_basic(&self, name: &str, password: &Secret, ip: Option<IpAddr>) -> Result<Identity, TokenError> {
        let client = self.client(name, password.expose(), ip);
        match client {
            Err(TokenError::Invalid) if self.settings.basic_passwords => {}
            Err(error) => return Err(error),
            Ok(account) => {
                let identity = self.of_account(AccountKind::Service, &account.id)?;
                return Ok(Identity { way: AuthMethod::Basic, ..identity });
            }
        }
        let account = self.person(name, password.expose(), ip).await?;
        if account.must_change {
            return Err(TokenError::Invalid);
        }
        let identity = self.of_account(AccountKind::User, &account.id)?;
        Ok(Identity { way: AuthMethod::Basic, ..identity })
    }
}
