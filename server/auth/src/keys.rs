//! The signing keys of tokens: generated, stored encrypted, published before they sign and as long as their tokens
//! live.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use quiver_database::{Database, Row, statement};
use quiver_types::{Clock, Error, ErrorKind, Random, Result, Vault};
use ring::digest::{SHA256, digest};
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, RSA_PKCS1_SHA256, RsaKeyPair, RsaPublicKeyComponents};
use serde_json::{Value, json};

use crate::failpoint;
use crate::rsa_key::{NewKey, public_key_info};

/// How long a key signs.
const SIGNS_MS: i64 = 90 * 86_400_000;
/// How long before that it is published.
const PUBLISHED_MS: i64 = 24 * 3_600_000;
/// How long after that it verifies: life of a token, and a minute.
pub(crate) const VERIFIES_MS: i64 = (300 + 60) * 1000;

/// A key pair (RSA) that signs tokens for a time, with its public half. Times are Unix milliseconds.
/// A key that signs tokens, and when it may.
pub(crate) struct SigningKey {
    kid: String,
    modulus: String,
    exponent: String,
    active_ms: i64,
    retired_ms: Option<i64>,
    private: RsaKeyPair,
    public: PublicKey,
}

/// A key that checks signatures: modulus and exponent, big-endian.
#[derive(Debug, Clone)]
pub(crate) struct PublicKey(Arc<RsaPublicKeyComponents<Vec<u8>>>);

impl PublicKey {
    /// Reads a key as JWKS writes it; none: it is no key, or too short or long a one.
    pub(crate) fn read(modulus: &str, exponent: &str) -> Option<Self> {
        let (n, e) = (URL_SAFE_NO_PAD.decode(modulus).ok()?, URL_SAFE_NO_PAD.decode(exponent).ok()?);
        let sane = (256..=1024).contains(&n.len()) && (1..=8).contains(&e.len());
        sane.then(|| Self(Arc::new(RsaPublicKeyComponents { n, e })))
    }

    /// Says whether a signature by RS256 is right.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        self.0.verify(&RSA_PKCS1_2048_8192_SHA256, message, signature).is_ok()
    }
}

/// All keys, as one state.
#[derive(Default)]
struct KeyRing {
    keys: Vec<Arc<SigningKey>>,
    by_kid: HashMap<String, Arc<SigningKey>>,
}

/// The keys that sign tokens and check them, rotated by time; see the module.
pub struct SigningKeys {
    pool: Database,
    vault: Arc<dyn Vault>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    /// Length of the modulus of new keys.
    bits: u32,
    ring: ArcSwap<KeyRing>,
    /// One rotation at a time.
    maintenance: tokio::sync::Mutex<()>,
}

impl std::fmt::Debug for SigningKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.ring.load().keys.iter().map(|k| &k.kid)).finish()
    }
}

/// What becomes of tokens of former keys when keys are rotated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldTokens {
    /// They are good until they expire.
    Expire,
    /// They are refused from now on.
    EndAtOnce,
}

/// What a rotation did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RotationOutcome {
    /// Id (`kid`) of the key that signs now.
    pub kid: String,
    /// Id of the key that will sign next and is published already.
    pub next_kid: String,
}

fn fault(what: &str, error: quiver_database::Error) -> Error {
    let kind = if quiver_database::is_passing(&error) { ErrorKind::Unavailable } else { ErrorKind::Internal };
    Error::new(kind, format!("signing keys cannot be {what}")).with_source(error)
}

/// The thumbprint of RFC 7638.
fn thumbprint(modulus: &str, exponent: &str) -> String {
    let text = format!(r#"{{"e":"{exponent}","kty":"RSA","n":"{modulus}"}}"#);
    URL_SAFE_NO_PAD.encode(digest(&SHA256, text.as_bytes()))
}

impl SigningKey {
    /// Makes a token of a header and of claims, whatever they say.
    pub(crate) fn sign(&self, header: &str, claims: &str) -> Result<String> {
        let message = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let mut signature = vec![0; self.private.public().modulus_len()];
        self.private
            .sign(&RSA_PKCS1_SHA256, &ring::rand::SystemRandom::new(), message.as_bytes(), &mut signature)
            .map_err(|e| Error::internal("a token cannot be signed").with_source(e))?;
        Ok(format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    fn read(row: &Row, vault: &dyn Vault) -> Result<Self> {
        let broken = |e| fault("read", e);
        let kid: String = row.try_get(0).map_err(broken)?;
        let (modulus, exponent): (String, String) = (row.try_get(1).map_err(broken)?, row.try_get(2).map_err(broken)?);
        let sealed: Vec<u8> = row.try_get(3).map_err(broken)?;
        let text = "the master key does not open the signing keys: put the one back that they were made with, or, if it is \
            lost, call `quiver admin forget-secrets`";
        let der = zeroize::Zeroizing::new(vault.open(&place(&kid), &sealed).ok_or_else(|| Error::invalid(text))?);
        Ok(Self {
            private: RsaKeyPair::from_pkcs8(&der)
                .map_err(|e| Error::internal("a signing key is no key").with_source(e))?,
            public: PublicKey::read(&modulus, &exponent).ok_or_else(|| Error::internal("a signing key is no key"))?,
            active_ms: row.try_get(4).map_err(broken)?,
            retired_ms: row.try_get(5).map_err(broken)?,
            kid,
            modulus,
            exponent,
        })
    }

    /// Whether its tokens are good at a time.
    fn verifies(&self, now_ms: i64) -> bool {
        self.retired_ms.is_none_or(|end| now_ms < end)
    }
}

fn place(kid: &str) -> String {
    format!("signing_key:{kid}")
}

/// Returns the encrypted private keys of a database, each with the name of the place that its encryption is bound to.
///
/// # Errors
/// When the database is gone.
pub async fn sealed_keys(base: &Database) -> Result<Vec<(String, Vec<u8>)>> {
    let rows = statement("SELECT kid, sealed FROM signing_key").fetch_all(base).await.map_err(|e| fault("read", e))?;
    let read = |row: &Row| Ok((place(&row.try_get::<String>(0)?), row.try_get(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(|e| fault("read", e))
}

/// Removes the keys that a vault does not open: tokens that they signed end, and new ones are made when they are needed.
/// Gives their number.
///
/// # Errors
/// When the database is gone.
pub async fn forget_keys(base: &Database, vault: &dyn Vault) -> Result<usize> {
    let mut lost = 0;
    for (at, sealed) in sealed_keys(base).await? {
        if vault.open(&at, &sealed).is_some() {
            continue;
        }
        let row = statement("DELETE FROM signing_key WHERE sealed = ?").bind(sealed);
        lost += row.execute(base).await.map_err(|e| fault("removed", e))? as usize;
    }
    Ok(lost)
}

impl SigningKeys {
    /// Reads the keys. Those that lack are made when they are first needed ([`SigningKeys::made`]): primes take longer than
    /// all else of a first start, and where access control is off nobody asks for a token.
    ///
    /// # Errors
    /// When the master key does not fit, or the database is gone.
    pub async fn open(
        pool: Database,
        vault: Arc<dyn Vault>,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        bits: u32,
    ) -> Result<Self> {
        if !matches!(bits, 2048 | 3072 | 4096) {
            return Err(Error::invalid(format!("keys have 2048, 3072 or 4096 bits, not {bits}")));
        }
        let (ring, maintenance) = (ArcSwap::default(), tokio::sync::Mutex::new(()));
        let keys = Self { pool, vault, clock, random, bits, ring, maintenance };
        keys.load().await?;
        Ok(keys)
    }

    async fn load(&self) -> Result<()> {
        let sql =
            "SELECT kid, modulus, exponent, sealed, active_ms, retired_ms FROM signing_key ORDER BY active_ms, kid";
        let rows = statement(sql).fetch_all(&self.pool).await.map_err(|e| fault("read", e))?;
        let keys =
            rows.iter().map(|row| SigningKey::read(row, &*self.vault).map(Arc::new)).collect::<Result<Vec<_>>>()?;
        let by_kid = keys.iter().map(|k| (k.kid.clone(), Arc::clone(k))).collect();
        self.ring.store(Arc::new(KeyRing { keys, by_kid }));
        Ok(())
    }

    /// Reads the keys anew if another server changed them; says whether one did.
    pub(crate) async fn read_changed(&self) -> Result<bool> {
        let sql = "SELECT kid, active_ms, retired_ms FROM signing_key ORDER BY active_ms, kid";
        let rows = statement(sql).fetch_all(&self.pool).await.map_err(|e| fault("read", e))?;
        let read = |row: &Row| Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
        let there: Vec<(String, i64, Option<i64>)> =
            rows.iter().map(read).collect::<Result<_, _>>().map_err(|e| fault("read", e))?;
        let known = self.ring.load();
        if known.keys.iter().map(|k| (k.kid.clone(), k.active_ms, k.retired_ms)).eq(there) {
            return Ok(false);
        }
        let _one = self.maintenance.lock().await;
        self.load().await?;
        Ok(true)
    }

    /// Makes a key that signs from a time on.
    async fn make(&self, active_ms: i64) -> Result<()> {
        let (bits, random) = (self.bits, Arc::clone(&self.random));
        let made = tokio::task::spawn_blocking(move || NewKey::make(bits, &*random));
        let lost = || Error::internal("an RSA key cannot be made");
        let key = made.await.map_err(|e| lost().with_source(e))?.ok_or_else(lost)?;
        let (modulus, exponent) = (URL_SAFE_NO_PAD.encode(&key.modulus), URL_SAFE_NO_PAD.encode(&key.exponent));
        let kid = thumbprint(&modulus, &exponent);
        let sql =
            "INSERT INTO signing_key (kid, modulus, exponent, sealed, created_ms, active_ms) VALUES (?, ?, ?, ?, ?, ?)";
        let row =
            statement(sql).bind(&kid).bind(&modulus).bind(&exponent).bind(self.vault.seal(&place(&kid), &key.pkcs8));
        row.bind(self.clock.now_ms()).bind(active_ms).execute(&self.pool).await.map_err(|e| fault("written", e))?;
        self.load().await
    }

    /// The key that signs at a time: the youngest that may.
    pub(crate) fn signer(&self, now_ms: i64) -> Option<Arc<SigningKey>> {
        let ring = self.ring.load();
        ring.keys.iter().rfind(|k| k.active_ms <= now_ms && k.retired_ms.is_none()).cloned()
    }

    fn next(&self, now_ms: i64) -> Option<Arc<SigningKey>> {
        self.ring.load().keys.iter().find(|k| k.active_ms > now_ms && k.retired_ms.is_none()).cloned()
    }

    /// Names the key that signs after this one.
    pub fn next_kid(&self) -> Option<String> {
        self.next(self.clock.now_ms()).map(|key| key.kid.clone())
    }

    /// Gives the keys with one that signs and one that follows it.
    ///
    /// # Errors
    /// When they had to be made and the database is gone.
    pub async fn made(&self) -> Result<&Self> {
        let now_ms = self.clock.now_ms();
        if self.signer(now_ms).is_none() || self.next(now_ms).is_none() {
            self.maintain().await?;
        }
        Ok(self)
    }

    /// Does what is due: a first key, the next one, retiring those that others follow. Called now and then.
    ///
    /// # Errors
    /// When the database is gone.
    pub async fn maintain(&self) -> Result<()> {
        let _one = self.maintenance.lock().await;
        let now_ms = self.clock.now_ms();
        if self.signer(now_ms).is_none() {
            self.make(now_ms).await?;
        }
        if self.next(now_ms).is_none() {
            let since = self.signer(now_ms).map_or(now_ms, |k| k.active_ms);
            self.make((since + SIGNS_MS).max(now_ms + PUBLISHED_MS)).await?;
        }
        let Some(signer) = self.signer(now_ms) else { return Ok(()) };
        let old = "UPDATE signing_key SET retired_ms = ? WHERE active_ms < ? AND kid <> ? AND retired_ms IS NULL";
        let old = statement(old).bind(now_ms + VERIFIES_MS).bind(signer.active_ms).bind(&signer.kid);
        let retired = old.execute(&self.pool).await.map_err(|e| fault("written", e))?;
        let gone = statement("DELETE FROM signing_key WHERE retired_ms < ?").bind(now_ms);
        let gone = gone.execute(&self.pool).await.map_err(|e| fault("written", e))?;
        if retired + gone > 0 { self.load().await } else { Ok(()) }
    }

    /// Lets the next key sign from now on.
    ///
    /// # Errors
    /// When the database is gone.
    pub async fn rotate(&self, old_tokens: OldTokens) -> Result<RotationOutcome> {
        let now_ms = self.clock.now_ms();
        self.made().await?;
        {
            let _one = self.maintenance.lock().await;
            let Some(next) = self.next(now_ms) else { return Err(Error::internal("there is no next key")) };
            // As one: a kill between both would leave keys good that were to be revoked.
            let mut tx = self.pool.begin().await.map_err(|e| fault("written", e))?;
            let sql = "UPDATE signing_key SET active_ms = ? WHERE kid = ?";
            let row = statement(sql).bind(now_ms).bind(&next.kid);
            row.execute(&mut tx).await.map_err(|e| fault("written", e))?;
            failpoint::hit("auth.in-rotation");
            let until = match old_tokens {
                OldTokens::EndAtOnce => now_ms,
                OldTokens::Expire => now_ms + VERIFIES_MS,
            };
            let sql = "UPDATE signing_key SET retired_ms = CASE WHEN retired_ms < ? THEN retired_ms ELSE ? END WHERE kid <> ?";
            let row = statement(sql).bind(until).bind(until).bind(&next.kid);
            row.execute(&mut tx).await.map_err(|e| fault("written", e))?;
            tx.commit().await.map_err(|e| fault("written", e))?;
            failpoint::hit("auth.after-rotation");
            self.load().await?;
        }
        self.maintain().await?;
        let kid = |key: Option<Arc<SigningKey>>| key.map(|k| k.kid.clone()).unwrap_or_default();
        Ok(RotationOutcome { kid: kid(self.signer(now_ms)), next_kid: kid(self.next(now_ms)) })
    }

    /// Signs claims.
    ///
    /// # Errors
    /// When no key may sign.
    pub(crate) fn sign(&self, claims: &Value) -> Result<String> {
        let key = self.signer(self.clock.now_ms()).ok_or_else(|| Error::internal("there is no signing key"))?;
        let header = json!({"alg": "RS256", "typ": "JWT", "kid": key.kid});
        key.sign(&header.to_string(), &claims.to_string())
    }

    /// The key that a token names, if its tokens are good.
    pub(crate) fn verifier(&self, kid: &str, now_ms: i64) -> Option<PublicKey> {
        self.ring.load().by_kid.get(kid).filter(|k| k.verifies(now_ms)).map(|k| k.public.clone())
    }

    /// The public keys, the next one included.
    pub fn jwks(&self) -> Value {
        let now_ms = self.clock.now_ms();
        let ring = self.ring.load();
        let keys = ring.keys.iter().filter(|k| k.verifies(now_ms)).map(
            |k| json!({"kty": "RSA", "kid": k.kid, "use": "sig", "alg": "RS256", "n": k.modulus, "e": k.exponent}),
        );
        json!({"keys": keys.collect::<Vec<_>>()})
    }

    /// The public key that signs, as Keycloak's clients expect it: `SubjectPublicKeyInfo` in base64.
    pub fn public_key(&self) -> String {
        let Some(key) = self.signer(self.clock.now_ms()) else { return String::new() };
        let part = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap_or_default();
        let info = public_key_info(&part(&key.modulus), &part(&key.exponent));
        base64::engine::general_purpose::STANDARD.encode(info)
    }
}
