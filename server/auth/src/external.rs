//! External issuers: their keys, fetched and cached, and what their tokens mean here (`identity-and-access` 1.5).

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::Value;

use crate::error::TokenError;
use crate::jwt::{Claims, Parts, TokenRequirements, verify};
use crate::keys::PublicKey;

/// How long good keys serve while their issuer is down.
const STALE_MS: i64 = 24 * 3_600_000;
/// How often an unknown name of a key makes us ask anew, and the longest that an issuer that did not answer is left alone.
const ASKED_AGAIN_MS: i64 = 60_000;
/// Most keys of an issuer.
const KEYS_MAX: usize = 100;
/// Most roles of a token.
const ROLES_MAX: usize = 1000;

/// Gets documents of issuers, over TLS, bounded in time and size.
#[async_trait]
pub trait Fetch: Send + Sync + std::fmt::Debug {
    /// Gets a document; none: it could not be had.
    async fn get(&self, url: &str) -> Option<Vec<u8>>;
}

/// An issuer whose tokens are taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalIssuer {
    /// Its address, as `iss` says it.
    pub issuer: String,
    /// One of these must be in `aud`.
    pub audiences: Vec<String>,
    /// Where a token says which client it was given to; used as the name of callers who have no other.
    pub client_id_claim: String,
    /// Where roles stand: a dotted path.
    pub roles_claim: String,
    /// Claim that holds the name of who calls; a token without it is named by `client_id_claim`.
    pub username_claim: String,
    /// How often keys are fetched anew.
    pub jwks_refresh_ms: i64,
}

#[derive(Default)]
struct IssuerKeys {
    keys: HashMap<String, PublicKey>,
    fetched_ms: Option<i64>,
    asked_ms: Option<i64>,
    /// When it was last asked for a key that was not among fresh ones.
    unknown_ms: Option<i64>,
}

struct External {
    issuer: ExternalIssuer,
    known: Mutex<IssuerKeys>,
    /// Held while keys are fetched, which takes as long as the issuer takes.
    fetching: Arc<tokio::sync::Mutex<()>>,
}

/// What is known of a key at a moment.
struct KeyLookup {
    key: Option<PublicKey>,
    /// Whether the issuer is to be asked.
    ask: bool,
    /// Whether the keys that are known are fresh, and this one is not among them.
    unknown: bool,
}

/// All external issuers, with their keys as far as they were fetched.
pub(crate) struct Externals {
    all: Vec<Arc<External>>,
    fetch: Option<Arc<dyn Fetch>>,
}

impl std::fmt::Debug for Externals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.all.iter().map(|e| &e.issuer)).finish()
    }
}

impl External {
    fn find(&self, kid: &str, now_ms: i64) -> KeyLookup {
        let (known, refresh_ms) = (self.known.lock(), self.issuer.jwks_refresh_ms);
        let age = known.fetched_ms.map(|at| now_ms - at);
        // Where somebody sets the clock back, what lies in the future is old.
        let fresh = age.is_some_and(|age| age.abs() < refresh_ms);
        let usable = age.is_some_and(|age| age < STALE_MS);
        let unknown = fresh && !known.keys.contains_key(kid);
        // An issuer may have made a new key a moment after it was asked; names that somebody makes up cost it little.
        let (last, wait_ms) =
            if unknown { (known.unknown_ms, ASKED_AGAIN_MS) } else { (known.asked_ms, refresh_ms.min(ASKED_AGAIN_MS)) };
        let ask = (unknown || !fresh) && last.is_none_or(|at| (now_ms - at).abs() >= wait_ms);
        KeyLookup { key: known.keys.get(kid).filter(|_| usable).cloned(), ask, unknown }
    }
}

impl Externals {
    pub(crate) fn new(issuers: Vec<ExternalIssuer>, fetch: Option<Arc<dyn Fetch>>) -> Self {
        let external = |issuer| Arc::new(External { issuer, known: Mutex::default(), fetching: Arc::default() });
        Self { all: issuers.into_iter().map(external).collect(), fetch }
    }

    fn of(&self, issuer: &str) -> Option<&Arc<External>> {
        self.all.iter().find(|e| e.issuer.issuer == issuer)
    }

    /// Checks a token of another issuer.
    pub(crate) async fn verify(&self, parts: Parts, token: &str, now_ms: i64) -> Result<Claims, TokenError> {
        let external = parts.issuer().and_then(|by| self.of(by)).ok_or(TokenError::Invalid)?;
        let key = self.key(external, &parts.kid, now_ms).await.ok_or(TokenError::Invalid)?;
        let (issuer, audiences) = (external.issuer.issuer.as_str(), &external.issuer.audiences[..]);
        verify(token, parts, &key, TokenRequirements { issuer, audiences, own: false }, now_ms)
    }

    /// Finds a key; asks the issuer when those that are known are old, and at most once a minute for one that is not known.
    /// While somebody asks, known keys serve everybody else: an issuer that does not answer holds up one request, not all.
    async fn key(&self, external: &Arc<External>, kid: &str, now_ms: i64) -> Option<PublicKey> {
        let Ok(asking) = Arc::clone(&external.fetching).try_lock_owned() else {
            let known = external.find(kid, now_ms).key;
            if known.is_some() {
                return known;
            }
            // It may be among those that come.
            drop(external.fetching.lock().await);
            return external.find(kid, now_ms).key;
        };
        let found = external.find(kid, now_ms);
        if !found.ask {
            return found.key;
        }
        {
            let mut known = external.known.lock();
            known.asked_ms = Some(now_ms);
            if found.unknown {
                known.unknown_ms = Some(now_ms);
            }
        }
        if let Some(fetch) = self.fetch.clone() {
            let of = Arc::clone(external);
            // In a task of its own: nobody asks again for a minute, so strangers who send a token and hang up at once would
            // keep everybody out.
            let fetching = tokio::spawn(async move {
                if let Some(keys) = fetch_keys(&*fetch, &of.issuer).await {
                    let mut known = of.known.lock();
                    (known.keys, known.fetched_ms) = (keys, Some(now_ms));
                }
                drop(asking);
            });
            fetching.await.ok();
        }
        external.find(kid, now_ms).key
    }

    /// The name and the roles in a token of another issuer.
    pub(crate) fn name_and_roles(&self, claims: &Claims) -> Option<(String, Vec<String>)> {
        let issuer = &self.of(&claims.issuer)?.issuer;
        let named = claims.text(&issuer.username_claim).or_else(|| claims.text(&issuer.client_id_claim));
        let name = named.unwrap_or(&claims.subject).chars().take(200).collect();
        let mut at = Some(&Value::Null);
        let mut map = Some(&claims.all);
        for part in issuer.roles_claim.split('.') {
            at = map.and_then(|m| m.get(part));
            map = at.and_then(Value::as_object);
        }
        let roles = at.and_then(Value::as_array).into_iter().flatten().take(ROLES_MAX);
        Some((name, roles.filter_map(|r| r.as_str().map(str::to_owned)).collect()))
    }
}

/// The keys of an issuer as it publishes them now.
async fn fetch_keys(fetch: &dyn Fetch, issuer: &ExternalIssuer) -> Option<HashMap<String, PublicKey>> {
    let base = issuer.issuer.trim_end_matches('/');
    let discovery = fetch.get(&format!("{base}/.well-known/openid-configuration")).await?;
    let discovery: Value = serde_json::from_slice(&discovery).ok()?;
    // The issuer is pinned: a document that speaks for another one is none.
    if discovery.get("issuer").and_then(Value::as_str) != Some(issuer.issuer.as_str()) {
        return None;
    }
    let jwks = fetch.get(discovery.get("jwks_uri")?.as_str()?).await?;
    let jwks: Value = serde_json::from_slice(&jwks).ok()?;
    Some(keys_of(&jwks))
}

/// Keys of a set that can sign by RS256.
fn keys_of(jwks: &Value) -> HashMap<String, PublicKey> {
    let all = jwks.get("keys").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let key = |key: &Value| {
        let text = |name: &str| key.get(name).and_then(Value::as_str);
        let signs = text("use").is_none_or(|u| u == "sig") && text("alg").is_none_or(|a| a == "RS256");
        let rsa = text("kty") == Some("RSA") && signs;
        let (kid, n, e) = (text("kid")?, text("n")?, text("e")?);
        PublicKey::read(n, e).filter(|_| rsa).map(|key| (kid.to_owned(), key))
    };
    all.iter().take(KEYS_MAX).filter_map(key).collect()
}
