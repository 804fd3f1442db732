//! The token endpoint and its neighbours: token, refresh, introspection, revocation, logout, userinfo, discovery
//! (`identity-and-access` 1 and 1.1).

use futures::future::BoxFuture;
use quiver_types::Error;
use serde_json::{Map, Value, json};

use crate::credentials::RequestCredentials;
use crate::directory::{Account, AccountKind};
use crate::error::{AuthEvent, OAuthError, TokenError};
use crate::form::Form;
use crate::keys::SigningKeys;
use crate::service::{AUDIENCE, Auth, Identity, Request, Subject};
use crate::session::{RefreshOutcome, Session};

/// Largest form of a token request, in bytes.
pub const FORM_BYTES_MAX: usize = 16 << 10;
/// Life of an access token, in seconds.
const LIFE_S: i64 = 300;
/// The public client of people.
const UI: &str = "ui";
/// Scopes that mean something; others are left out.
const SCOPES: [&str; 4] = ["profile", "email", "openid", "offline_access"];

/// What is answered to a token request.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenAnswer {
    /// The JSON body, tokens included.
    pub body: Value,
    /// For the audit log.
    pub happened: Option<AuthEvent>,
}

/// Says whether a text can be the address of this service in front of `/realms/…`.
pub fn base_url_is_sane(text: &str) -> bool {
    let parsed = url::Url::parse(text);
    parsed.is_ok_and(|u| {
        matches!(u.scheme(), "http" | "https")
            && u.has_host()
            && u.query().is_none()
            && u.fragment().is_none()
            && !text.ends_with('/')
    })
}

fn unavailable(error: &Error) -> OAuthError {
    tracing::error!(cause = error.source.as_ref().map(ToString::to_string), "{error}");
    OAuthError::unavailable()
}

/// Scopes that are granted of those that are asked for.
fn granted(asked: Option<&str>) -> String {
    let mut scopes = vec!["profile", "email"];
    for scope in asked.unwrap_or_default().split(' ') {
        if let Some(known) = SCOPES.iter().find(|s| **s == scope && !scopes.contains(s)) {
            scopes.push(known);
        }
    }
    scopes.sort_unstable_by_key(|s| SCOPES.iter().position(|known| known == s));
    scopes.join(" ")
}

/// Scopes of a refresh: those that were granted, or fewer.
fn shrunk(granted: &str, asked: Option<&str>) -> Result<String, OAuthError> {
    let Some(asked) = asked else { return Ok(granted.to_owned()) };
    let known = |scope: &&str| granted.split(' ').any(|g| g == *scope);
    match asked.split(' ').find(|scope| !scope.is_empty() && !known(scope)) {
        Some(more) => Err(OAuthError::scope(more)),
        None => Ok(asked.split(' ').filter(|s| !s.is_empty()).collect::<Vec<_>>().join(" ")),
    }
}

impl Auth {
    /// Answers a request for a token. `authorization` is the header's value, if there is one.
    ///
    /// # Errors
    /// As RFC 6749 words them.
    pub fn token<'a>(
        &'a self,
        form: &'a Form,
        authorization: Option<&'a [u8]>,
        request: Request<'a>,
    ) -> BoxFuture<'a, Result<TokenAnswer, OAuthError>> {
        Box::pin(async move {
            self.keys.made().await.map_err(|e| unavailable(&e))?;
            match form.need("grant_type")? {
                "password" => self.password_grant(form, authorization, request).await,
                "refresh_token" => self.refresh_grant(form, authorization, request).await,
                "client_credentials" => self.client_grant(form, authorization, request),
                _ => Err(OAuthError::grant_type()),
            }
        })
    }

    async fn password_grant(
        &self,
        form: &Form,
        authorization: Option<&[u8]>,
        request: Request<'_>,
    ) -> Result<TokenAnswer, OAuthError> {
        let client = match authorization {
            Some(_) => self.confidential(form, authorization, request).map(|a| a.name.clone())?,
            None => form.need("client_id")?.to_owned(),
        };
        if client != UI {
            // Only callers who know its secret learn whether a client exists.
            if authorization.is_none() {
                form.get("client_secret").ok_or_else(OAuthError::client)?;
                self.confidential(form, None, request)?;
            }
            return Err(OAuthError::unauthorized_client());
        }
        let (name, password) = (form.need("username")?, form.need("password")?);
        let failed = |reason, subject: Option<String>| AuthEvent {
            action: "LOGIN",
            name: name.chars().filter(|c| !c.is_control()).take(64).collect(),
            subject,
            reason: Some(reason),
        };
        let account = match self.person(name, password, request.ip).await {
            Ok(account) => account,
            Err(TokenError::TooMany(after_s)) => {
                return Err(OAuthError::slow_down(after_s).noting(failed("RATE_LIMITED", None)));
            }
            Err(_) => return Err(OAuthError::user().noting(failed("INVALID_CREDENTIALS", None))),
        };
        let subject = Subject::Account(AccountKind::User, account.id.clone()).text();
        if account.must_change {
            return Err(OAuthError::not_set_up().noting(failed("PASSWORD_TEMPORARY", Some(subject))));
        }
        let scope = granted(form.get("scope"));
        let (session, refresh) = self.sessions.begin(&subject, UI, &scope).await.map_err(|e| unavailable(&e))?;
        let body = self.answer(&account, &session, &scope, Some(refresh), request.issuer)?;
        let happened = AuthEvent { action: "LOGIN", name: account.name.clone(), subject: Some(subject), reason: None };
        Ok(TokenAnswer { body, happened: Some(happened) })
    }

    async fn refresh_grant(
        &self,
        form: &Form,
        authorization: Option<&[u8]>,
        request: Request<'_>,
    ) -> Result<TokenAnswer, OAuthError> {
        let client = form.get("client_id");
        if client != Some(UI) && (client.is_some() || authorization.is_some()) {
            // Service accounts are given no refresh tokens: whichever one sends is another client's.
            self.confidential(form, authorization, request)?;
            form.need("refresh_token")?;
            return Err(OAuthError::not_active());
        }
        let (client, token) = (form.need("client_id")?, form.need("refresh_token")?);
        // A scope that was not granted is told before the token is used up.
        let held = self.sessions.of_token(token).await.map_err(|e| unavailable(&e))?;
        if let Some(session) = &held {
            shrunk(&session.scope, form.get("scope"))?;
        }
        let refreshed = self.sessions.refresh(token, client).await.map_err(|e| unavailable(&e))?;
        let (session, refresh) = match refreshed {
            RefreshOutcome::Next(session, refresh) => (session, refresh),
            RefreshOutcome::Reused(session) => {
                let happened = AuthEvent {
                    action: "REFRESH_REUSE",
                    name: self.name_of(&session.subject),
                    subject: Some(session.subject),
                    reason: Some("REFRESH_REUSE"),
                };
                return Err(OAuthError::not_active().noting(happened));
            }
            RefreshOutcome::Not => return Err(OAuthError::not_active()),
        };
        let id = session.subject.strip_prefix("user:").unwrap_or_default();
        let account = self.directory.load().account(AccountKind::User, id).filter(|a| a.enabled).cloned();
        let account = account.filter(|a| !a.must_change).ok_or_else(OAuthError::not_active)?;
        let scope = shrunk(&session.scope, form.get("scope"))?;
        let body = self.answer(&account, &session, &scope, Some(refresh), request.issuer)?;
        Ok(TokenAnswer { body, happened: None })
    }

    fn client_grant(
        &self,
        form: &Form,
        authorization: Option<&[u8]>,
        request: Request<'_>,
    ) -> Result<TokenAnswer, OAuthError> {
        if authorization.is_none() && form.get("client_id") == Some(UI) {
            return Err(OAuthError::unauthorized_client());
        }
        let account = self.confidential(form, authorization, request)?;
        let scope = granted(form.get("scope"));
        let mut claims = self.claims_of(&account, &scope, request.issuer, &account.name);
        claims.insert("clientId".to_owned(), json!(account.name));
        let access = self.keys.sign(&Value::Object(claims)).map_err(|e| unavailable(&e))?;
        let body = json!({
            "access_token": access, "expires_in": LIFE_S, "refresh_expires_in": 0, "token_type": "Bearer",
            "not-before-policy": 0, "scope": scope,
        });
        let subject = Subject::Account(AccountKind::Service, account.id.clone()).text();
        let happened = AuthEvent { action: "LOGIN", name: account.name.clone(), subject: Some(subject), reason: None };
        Ok(TokenAnswer { body, happened: Some(happened) })
    }

    /// Checks a service account: by Basic, or in the form, but not both.
    fn confidential(
        &self,
        form: &Form,
        authorization: Option<&[u8]>,
        request: Request<'_>,
    ) -> Result<std::sync::Arc<Account>, OAuthError> {
        let (name, secret) = if let Some(value) = authorization {
            if form.get("client_secret").is_some() {
                return Err(OAuthError::request("Client credentials in two places"));
            }
            let directory = self.directory.load();
            let is_known = |name: &str| directory.named(AccountKind::Service, name).is_some();
            RequestCredentials::client_basic(value, is_known).ok_or_else(OAuthError::client)?
        } else {
            let name = form.need("client_id")?.to_owned();
            let secret = form.get("client_secret").ok_or_else(OAuthError::client)?;
            (name, crate::Secret::new(secret))
        };
        let account = self.client(&name, secret.expose(), request.ip).map_err(|error| match error {
            TokenError::TooMany(after_s) => OAuthError::slow_down(after_s),
            _ => OAuthError::client().noting(AuthEvent {
                action: "LOGIN",
                name: name.chars().filter(|c| !c.is_control()).take(64).collect(),
                subject: None,
                reason: Some("INVALID_CREDENTIALS"),
            }),
        })?;
        // Whoever stands before us may have looked at the one that we do not.
        if form.get("client_id").is_some_and(|id| id.to_lowercase() != account.name.to_lowercase()) {
            return Err(OAuthError::request("client_id names another client than the credentials"));
        }
        Ok(account)
    }

    fn claims_of(&self, account: &Account, scope: &str, issuer: &str, client: &str) -> Map<String, Value> {
        let now_s = self.clock.now_ms().div_euclid(1000);
        let roles = self.directory.load().roles(account.kind, &account.id, self.clock.now_ms());
        let jti = quiver_types::hex(&quiver_types::random_bytes::<16>(&*self.random));
        let mut claims = Map::new();
        let mut put = |key: &str, value: Value| claims.insert(key.to_owned(), value);
        put("iss", json!(issuer));
        put("sub", json!(account.id));
        put("aud", json!([AUDIENCE]));
        put("azp", json!(client));
        put("iat", json!(now_s));
        put("exp", json!(now_s + LIFE_S));
        put("auth_time", json!(now_s));
        put("jti", json!(jti));
        put("typ", json!("Bearer"));
        put("scope", json!(scope));
        put("preferred_username", json!(account.name));
        put("realm_access", json!({"roles": roles}));
        for (key, value) in personal(account, scope) {
            put(&key, value);
        }
        claims
    }

    /// The answer to a user's request.
    fn answer(
        &self,
        account: &Account,
        session: &Session,
        scope: &str,
        refresh: Option<String>,
        issuer: &str,
    ) -> Result<Value, OAuthError> {
        let mut claims = self.claims_of(account, scope, issuer, &session.client);
        claims.insert("sid".to_owned(), json!(session.id));
        claims.insert("session_state".to_owned(), json!(session.id));
        claims.insert("auth_time".to_owned(), json!(session.started_ms.div_euclid(1000)));
        let access = self.keys.sign(&Value::Object(claims.clone())).map_err(|e| unavailable(&e))?;
        let mut body = json!({
            "access_token": access, "expires_in": LIFE_S, "refresh_expires_in": session.refresh_s,
            "refresh_token": refresh, "token_type": "Bearer", "not-before-policy": 0,
            "session_state": session.id, "scope": scope,
        });
        if scope.split(' ').any(|s| s == "openid") {
            // An id token is for the client, and no access token.
            claims.insert("typ".to_owned(), json!("ID"));
            claims.insert("aud".to_owned(), json!(session.client));
            let hash = ring::digest::digest(&ring::digest::SHA256, access.as_bytes());
            let half = base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, &hash.as_ref()[..16]);
            claims.insert("at_hash".to_owned(), json!(half));
            claims.remove("realm_access");
            body["id_token"] = json!(self.keys.sign(&Value::Object(claims)).map_err(|e| unavailable(&e))?);
        }
        Ok(body)
    }

    /// Answers who a token is about (RFC 7662); for service accounts only.
    ///
    /// # Errors
    /// As RFC 6749 words them.
    pub fn introspect<'a>(
        &'a self,
        form: &'a Form,
        authorization: Option<&'a [u8]>,
        request: Request<'a>,
    ) -> BoxFuture<'a, Result<Value, OAuthError>> {
        Box::pin(async move {
            // Who is no client at all is told so before anything is said of what it sent (RFC 7662, 2.3).
            if authorization.is_none() && form.get("client_id").is_none() {
                return Err(OAuthError::client());
            }
            self.confidential(form, authorization, request)?;
            let token = form.need("token")?;
            let inactive = json!({"active": false});
            if let Some(session) = self.sessions.of_token(token).await.map_err(|e| unavailable(&e))? {
                return Ok(json!({
                    "active": true, "token_type": "refresh_token", "sub": session.subject.trim_start_matches("user:"),
                    "client_id": session.client, "scope": session.scope, "sid": session.id, "iss": request.issuer,
                }));
            }
            let shown = RequestCredentials::Token(crate::Secret::new(token));
            let Ok(identity) = self.identify(&shown, request).await else { return Ok(inactive) };
            let Ok(claims) = self.claims(token, request.issuer).await else { return Ok(inactive) };
            let mut all = claims.all.clone();
            all.insert("active".to_owned(), json!(true));
            all.insert("username".to_owned(), json!(identity.name));
            all.insert("client_id".to_owned(), json!(claims.client));
            all.insert("token_type".to_owned(), json!("Bearer"));
            Ok(Value::Object(all))
        })
    }

    /// Takes a token back (RFC 7009): that of a session ends it, one without a session ends alone. Unknown ones, and
    /// those of other issuers, are no error.
    ///
    /// # Errors
    /// When the database is gone, or the form says no token.
    pub fn revoke<'a>(
        &'a self,
        form: &'a Form,
        request: Request<'a>,
    ) -> BoxFuture<'a, Result<Option<AuthEvent>, OAuthError>> {
        Box::pin(async move {
            let token = form.need("token")?;
            if let Some(session) = self.sessions.end_of_token(token).await.map_err(|e| unavailable(&e))? {
                return Ok(Some(logout(session.subject.clone(), self.name_of(&session.subject))));
            }
            let Ok(claims) = self.claims(token, request.issuer).await else { return Ok(None) };
            let id = claims.session.as_deref().or_else(|| claims.text("jti"));
            let over = id.is_none_or(|id| self.sessions.is_denied(id));
            if claims.issuer != request.issuer || over {
                return Ok(None);
            }
            let ended = match (&claims.session, claims.text("jti")) {
                (Some(session), _) => self.sessions.end(session).await,
                (None, Some(id)) => {
                    let client = claims.client.as_deref().unwrap_or_default();
                    self.sessions.end_alone(id, &claims.subject, client).await
                }
                (None, None) => Ok(()),
            };
            ended.map_err(|e| unavailable(&e))?;
            let kind = if claims.text("clientId").is_some() { AccountKind::Service } else { AccountKind::User };
            let subject = Subject::Account(kind, claims.subject.clone()).text();
            let name = claims.text("preferred_username").unwrap_or_default();
            Ok(Some(logout(subject, name.to_owned())))
        })
    }

    /// Ends the session of a refresh token.
    ///
    /// # Errors
    /// As RFC 6749 words them.
    pub fn logout<'a>(&'a self, form: &'a Form) -> BoxFuture<'a, Result<Option<AuthEvent>, OAuthError>> {
        Box::pin(async move {
            let (client, token) = (form.need("client_id")?, form.need("refresh_token")?);
            if client != UI {
                return Err(OAuthError::client());
            }
            let ended = self.sessions.end_of_token(token).await.map_err(|e| unavailable(&e))?;
            Ok(ended.map(|session| logout(session.subject.clone(), self.name_of(&session.subject))))
        })
    }

    /// Ends the session that an id token names; one that expired names it as well.
    ///
    /// # Errors
    /// As RFC 6749 words them.
    pub fn end_of_hint<'a>(
        &'a self,
        token: &'a str,
        issuer: &'a str,
    ) -> BoxFuture<'a, Result<Option<AuthEvent>, OAuthError>> {
        Box::pin(async move {
            let bad = || OAuthError::request("Invalid id_token_hint");
            let (session, user) = self.session_of_hint(token, issuer).ok_or_else(bad)?;
            if self.sessions.is_denied(&session) {
                return Ok(None);
            }
            self.sessions.end(&session).await.map_err(|e| unavailable(&e))?;
            let subject = Subject::Account(AccountKind::User, user).text();
            let name = self.name_of(&subject);
            Ok(Some(logout(subject, name)))
        })
    }

    /// By which name a user goes, for the audit log.
    fn name_of(&self, subject: &str) -> String {
        let id = subject.strip_prefix("user:").unwrap_or_default();
        self.directory.load().account(AccountKind::User, id).map(|a| a.name.clone()).unwrap_or_default()
    }

    /// Says who a token is about (OpenID Connect).
    pub fn userinfo(&self, identity: &Identity) -> Value {
        let mut info = Map::new();
        info.insert("preferred_username".to_owned(), json!(identity.name));
        let subject = match &identity.subject {
            Subject::Account(kind, id) => {
                if let Some(account) = self.directory.load().account(*kind, id) {
                    info.extend(personal(account, "profile email"));
                }
                id.clone()
            }
            Subject::External(_, subject) => subject.clone(),
            Subject::Anyone => String::new(),
        };
        info.insert("sub".to_owned(), json!(subject));
        Value::Object(info)
    }

    /// The discovery document.
    pub fn discovery(issuer: &str) -> Value {
        let at = |path: &str| format!("{issuer}/protocol/openid-connect/{path}");
        json!({
            "issuer": issuer,
            "token_endpoint": at("token"),
            "jwks_uri": at("certs"),
            "userinfo_endpoint": at("userinfo"),
            "introspection_endpoint": at("token/introspect"),
            "revocation_endpoint": at("revoke"),
            "end_session_endpoint": at("logout"),
            "grant_types_supported": ["password", "refresh_token", "client_credentials"],
            "response_types_supported": [],
            "subject_types_supported": ["public"],
            "scopes_supported": ["openid", "profile", "email", "offline_access"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post", "none"],
            "introspection_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
            "id_token_signing_alg_values_supported": ["RS256"],
            "claims_supported": ["sub", "iss", "aud", "exp", "iat", "auth_time", "azp", "sid", "preferred_username",
                "name", "email"],
        })
    }

    /// What Keycloak's clients ask of a realm.
    pub fn realm(keys: &SigningKeys, issuer: &str) -> Value {
        json!({
            "realm": "platform",
            "public_key": keys.public_key(),
            "token-service": format!("{issuer}/protocol/openid-connect"),
            "account-service": format!("{issuer}/account"),
            "tokens-not-before": 0,
        })
    }
}

fn logout(subject: String, name: String) -> AuthEvent {
    AuthEvent { action: "LOGOUT", name, subject: Some(subject), reason: None }
}

/// What a token or userinfo says of a person.
fn personal(account: &Account, scope: &str) -> Vec<(String, Value)> {
    let has = |wanted: &str| scope.split(' ').any(|s| s == wanted);
    let name = Some(&account.display_name).filter(|n| !n.is_empty() && has("profile"));
    let email = account.email.as_ref().filter(|_| has("email"));
    let pair = |key: &str, text: &String| (key.to_owned(), json!(text));
    name.map(|n| pair("name", n)).into_iter().chain(email.map(|e| pair("email", e))).collect()
}
