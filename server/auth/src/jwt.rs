//! Access tokens: their claims, and the checks on them (`identity-and-access` 1.3).
//!
//! There is one algorithm, fixed before a key is chosen, and every check is written out here: token libraries accept
//! missing claims, claims of wrong types and unknown `crit` unless told otherwise.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::digest::SHA256;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::error::TokenError;
use crate::keys::PublicKey;

/// Longest token that is parsed, in bytes.
pub(crate) const TOKEN_BYTES_MAX: usize = 16 << 10;
/// How far clocks may differ, in seconds.
const LEEWAY_S: i64 = 5;
/// How far in the future a token may have been issued.
const ISSUED_AHEAD_S: i64 = 60;
/// Tokens that are cached as checked, and bytes of their texts: claims of one with hundreds of groups take many times more
/// than those of ours.
const REMEMBERED: usize = 10_000;
const REMEMBERED_BYTES: usize = if cfg!(test) { 64 << 10 } else { 8 << 20 };
/// Longest name of a key.
const KID_BYTES_MAX: usize = 200;
/// Longest text of a claim.
const CLAIM_BYTES_MAX: usize = 4096;

/// The claims of a checked token.
#[derive(Debug, Clone, PartialEq)]
pub struct Claims {
    /// Claim `iss`: who issued it.
    pub issuer: String,
    /// Claim `sub`: its subject.
    pub subject: String,
    /// When it expires, in Unix seconds.
    pub expires_s: i64,
    /// The session, if it belongs to one.
    pub session: Option<String>,
    /// The client that it was issued to.
    pub client: Option<String>,
    /// All claims of the token.
    pub all: Map<String, Value>,
}

impl Claims {
    /// A claim that is a text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.all.get(name).and_then(Value::as_str)
    }
}

/// What is required of a token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TokenRequirements<'a> {
    pub(crate) issuer: &'a str,
    /// One of these must be among its audiences.
    pub(crate) audiences: &'a [String],
    /// Whether it must be one of our own tokens, which have `typ: Bearer`.
    pub(crate) own: bool,
}

/// A token that has been split and decoded but not verified.
#[derive(Debug, Clone)]
pub(crate) struct Parts {
    pub(crate) kid: String,
    claims: Map<String, Value>,
}

/// An object without repeated names: of two equal names one parser takes the first, another the last.
struct Unique(Map<String, Value>);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Unique;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Unique, A::Error> {
                let mut map = Map::new();
                while let Some((name, value)) = members.next_entry::<String, Value>()? {
                    if map.insert(name, value).is_some() {
                        return Err(A::Error::custom("a name is given more than once"));
                    }
                }
                Ok(Unique(map))
            }
        }
        from.deserialize_map(Members)
    }
}

fn json_part(part: &str) -> Option<Map<String, Value>> {
    let bytes = URL_SAFE_NO_PAD.decode(part).ok()?;
    serde_json::from_slice(&bytes).ok().map(|Unique(map)| map)
}

impl Parts {
    /// Parses a token as far as possible without a key. Only RS256 is accepted, whatever key is used later.
    pub(crate) fn read(token: &str) -> Result<Self, TokenError> {
        let base64url = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_' || b == b'.';
        if token.len() > TOKEN_BYTES_MAX || !token.bytes().all(base64url) {
            return Err(TokenError::Invalid);
        }
        let parts: Vec<&str> = token.split('.').collect();
        let [header, claims, signature] = parts[..] else { return Err(TokenError::Invalid) };
        if signature.is_empty() {
            return Err(TokenError::Invalid);
        }
        let header = json_part(header).ok_or(TokenError::Invalid)?;
        let text = |key: &str| header.get(key).and_then(Value::as_str);
        let typ = header.get("typ").is_none_or(|t| {
            t.as_str().is_some_and(|t| t.eq_ignore_ascii_case("JWT") || t.eq_ignore_ascii_case("at+jwt"))
        });
        // `crit` lists extensions that a reader must understand, and we support none (RFC 7515, 4.1.11).
        if text("alg") != Some("RS256") || !typ || header.contains_key("crit") || header.contains_key("b64") {
            return Err(TokenError::Invalid);
        }
        let kid = text("kid").filter(|kid| (1..=KID_BYTES_MAX).contains(&kid.len())).ok_or(TokenError::Invalid)?;
        Ok(Self { kid: kid.to_owned(), claims: json_part(claims).ok_or(TokenError::Invalid)? })
    }

    /// Gives the claims, if the signature is valid.
    pub(crate) fn signed_by(self, token: &str, key: &PublicKey) -> Option<Map<String, Value>> {
        let (message, signature) = token.rsplit_once('.')?;
        let signature = URL_SAFE_NO_PAD.decode(signature).ok()?;
        key.verifies(message.as_bytes(), &signature).then_some(self.claims)
    }

    /// The issuer that it claims to have.
    pub(crate) fn issuer(&self) -> Option<&str> {
        self.claims.get("iss").and_then(Value::as_str)
    }
}

/// Checks signature and claims.
pub(crate) fn verify(
    token: &str,
    parts: Parts,
    key: &PublicKey,
    expected: TokenRequirements<'_>,
    now_ms: i64,
) -> Result<Claims, TokenError> {
    let all = parts.signed_by(token, key).ok_or(TokenError::Invalid)?;
    claims_of(all, expected, now_ms)
}

/// Checks the claims.
fn claims_of(all: Map<String, Value>, expected: TokenRequirements<'_>, now_ms: i64) -> Result<Claims, TokenError> {
    let text = |key: &str| all.get(key).and_then(Value::as_str).filter(|t| t.len() <= CLAIM_BYTES_MAX);
    let whole = |key: &str| all.get(key).and_then(Value::as_i64);
    let issuer = text("iss").filter(|iss| *iss == expected.issuer).ok_or(TokenError::Invalid)?.to_owned();
    let is_ours = |v: &Value| v.as_str().is_some_and(|v| expected.audiences.iter().any(|a| a == v));
    let audience = match all.get("aud") {
        Some(Value::Array(items)) => items.iter().all(Value::is_string) && items.iter().any(is_ours),
        Some(one) => is_ours(one),
        None => false,
    };
    let subject = text("sub").filter(|s| !s.is_empty()).ok_or(TokenError::Invalid)?.to_owned();
    let kind = if expected.own {
        text("typ") == Some("Bearer")
    } else {
        all.get("typ").is_none() || text("typ") == Some("Bearer")
    };
    if !audience || !kind {
        return Err(TokenError::Invalid);
    }
    let (now_s, expires_s) = (now_ms.div_euclid(1000), whole("exp").ok_or(TokenError::Invalid)?);
    // These claims are optional, but must be times if present.
    for (key, ahead_s) in [("iat", ISSUED_AHEAD_S), ("nbf", LEEWAY_S)] {
        match all.get(key) {
            None if key == "iat" && expected.own => return Err(TokenError::Invalid),
            None => {}
            Some(value) => match value.as_i64() {
                Some(time) if time <= now_s.saturating_add(ahead_s) => {}
                _ => return Err(TokenError::Invalid),
            },
        }
    }
    if now_s >= expires_s.saturating_add(LEEWAY_S) {
        return Err(TokenError::Expired);
    }
    let session = text("sid").map(str::to_owned);
    let client = text("azp").map(str::to_owned);
    Ok(Claims { issuer, subject, expires_s, session, client, all })
}

/// A cache of checked tokens, by the hash of token and expected issuer.
#[derive(Debug, Default)]
pub(crate) struct TokenCache(Mutex<CheckedTokens>);

#[derive(Debug, Default)]
struct CheckedTokens {
    /// Claims, and the length of the token.
    by_key: HashMap<[u8; 32], (Arc<Claims>, usize)>,
    bytes: usize,
}

impl CheckedTokens {
    fn has_room(&self, bytes: usize) -> bool {
        self.by_key.len() < REMEMBERED && self.bytes + bytes <= REMEMBERED_BYTES
    }
}

impl TokenCache {
    fn key(token: &str, issuer: &str) -> [u8; 32] {
        let mut context = ring::digest::Context::new(&SHA256);
        // The length separates the two parts of the hashed text.
        context.update(&(token.len() as u64).to_le_bytes());
        context.update(token.as_bytes());
        context.update(issuer.as_bytes());
        let mut key = [0; 32];
        key.copy_from_slice(context.finish().as_ref());
        key
    }

    /// Gives the claims of a token that was checked and has not expired.
    pub(crate) fn get(&self, token: &str, issuer: &str, now_ms: i64) -> Option<Arc<Claims>> {
        let found = self.0.lock().by_key.get(&Self::key(token, issuer)).map(|(claims, _)| Arc::clone(claims));
        found.filter(|claims| now_ms.div_euclid(1000) < claims.expires_s)
    }

    /// Remembers a token.
    pub(crate) fn put(&self, token: &str, issuer: &str, claims: &Arc<Claims>, now_ms: i64) {
        let (mut all, bytes) = (self.0.lock(), token.len());
        if !all.has_room(bytes) {
            all.by_key.retain(|_, (claims, _)| now_ms.div_euclid(1000) < claims.expires_s);
            all.bytes = all.by_key.values().map(|(_, bytes)| bytes).sum();
        }
        if !all.has_room(bytes) {
            *all = CheckedTokens::default();
        }
        let before = all.by_key.insert(Self::key(token, issuer), (Arc::clone(claims), bytes));
        all.bytes = all.bytes + bytes - before.map_or(0, |(_, bytes)| bytes);
    }

    /// Clears the cache, because keys were revoked.
    pub(crate) fn clear(&self) {
        *self.0.lock() = CheckedTokens::default();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The claims of a token of ours, some of them changed; null: it is not there.
    fn claims(change: &Value) -> Map<String, Value> {
        let base = json!({"iss": "i", "aud": ["a"], "sub": "s", "typ": "Bearer", "exp": 1000, "iat": 900});
        let (Value::Object(mut all), Value::Object(change)) = (base, change.clone()) else { panic!("no objects") };
        for (name, value) in change {
            all.remove(&name);
            if !value.is_null() {
                all.insert(name, value);
            }
        }
        all
    }

    /// What becomes of claims at second 950: `+` good, `-` refused, `x` expired; for a token of ours and for one of others.
    fn judged(change: &Value) -> String {
        let audiences = ["a".to_owned(), "b".to_owned()];
        let judge = |own: bool| {
            let expected = TokenRequirements { issuer: "i", audiences: &audiences, own };
            match claims_of(claims(change), expected, 950_999) {
                Ok(_) => '+',
                Err(TokenError::Expired) => 'x',
                Err(_) => '-',
            }
        };
        [true, false].map(judge).into_iter().collect()
    }

    #[test]
    fn claims_that_are_checked() {
        for (change, expected) in [
            (json!({}), "++"),
            (json!({"iss": "x"}), "--"),
            (json!({"iss": ["i"]}), "--"),
            (json!({"iss": null}), "--"),
            (json!({"aud": "a"}), "++"),
            (json!({"aud": ["x", "b"]}), "++"),
            (json!({"aud": ["x"]}), "--"),
            (json!({"aud": []}), "--"),
            (json!({"aud": ["a", 1]}), "--"),
            (json!({"aud": null}), "--"),
            (json!({"sub": ""}), "--"),
            (json!({"sub": 5}), "--"),
            (json!({"sub": "s".repeat(CLAIM_BYTES_MAX)}), "++"),
            (json!({"sub": "s".repeat(CLAIM_BYTES_MAX + 1)}), "--"),
            (json!({"typ": null}), "-+"),
            (json!({"typ": "bearer"}), "--"),
            (json!({"typ": 5}), "--"),
            (json!({"exp": 946}), "++"),
            (json!({"exp": 945}), "xx"),
            (json!({"exp": i64::MAX}), "++"),
            (json!({"exp": i64::MIN}), "xx"),
            (json!({"exp": "1000"}), "--"),
            (json!({"exp": 1000.5}), "--"),
            (json!({"exp": null}), "--"),
            (json!({"iat": 1010}), "++"),
            (json!({"iat": 1011}), "--"),
            (json!({"iat": null}), "-+"),
            (json!({"iat": "900"}), "--"),
            (json!({"nbf": 955}), "++"),
            (json!({"nbf": 956}), "--"),
            (json!({"nbf": true}), "--"),
            // What cannot be one is refused, though it has expired, too.
            (json!({"exp": 1, "iat": "x"}), "--"),
        ] {
            assert_eq!(judged(&change), expected, "{change}");
        }
    }

    #[test]
    fn heads_that_are_read() {
        let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let is_read = |head: &str| Parts::read(&format!("{}.{}.c2ln", encode(head), encode("{}"))).is_ok();
        let kid = |length: usize| format!(r#"{{"alg":"RS256","kid":"{}"}}"#, "k".repeat(length));
        for head in [kid(1), kid(200), r#"{"alg":"RS256","kid":"k","typ":"at+JWT"}"#.to_owned()] {
            assert!(is_read(&head), "{head}");
        }
        for head in [
            kid(0).as_str(),
            kid(201).as_str(),
            r#"{"alg":"RS256"}"#,
            r#"{"alg":"rs256","kid":"k"}"#,
            r#"{"alg":"none","kid":"k"}"#,
            r#"{"alg":"HS256","kid":"k"}"#,
            r#"{"alg":"RS256","kid":"k","typ":"JOSE"}"#,
            r#"{"alg":"RS256","kid":"k","typ":null}"#,
            r#"{"alg":"RS256","kid":"k","crit":[]}"#,
            r#"{"alg":"RS256","kid":"k","b64":true}"#,
            r#"{"alg":"none","alg":"RS256","kid":"k"}"#,
            "[]",
            "",
        ] {
            assert!(!is_read(head), "{head}");
        }
        let good = format!("{}.{}.c2ln", encode(&kid(1)), encode("{}"));
        assert!(Parts::read(&good).is_ok());
        let odd = [good.replace(".c2ln", "."), format!("{good}="), format!("{good}.x"), good.replace('.', " ")];
        for bad in odd.iter().map(String::as_str).chain(["..", ""]) {
            assert!(matches!(Parts::read(bad), Err(TokenError::Invalid)), "{bad}");
        }
        assert!(Parts::read(&format!("{good}{}", "A".repeat(TOKEN_BYTES_MAX))).is_err());
    }

    #[test]
    fn tokens_that_were_checked() {
        let expected = TokenRequirements { issuer: "i", audiences: &["a".to_owned()], own: true };
        let known = Arc::new(claims_of(claims(&json!({"sid": "s1", "azp": "c"})), expected, 950_000).unwrap());
        assert_eq!(
            (known.session.as_deref(), known.client.as_deref(), known.text("sub")),
            (Some("s1"), Some("c"), Some("s"))
        );
        let checked = TokenCache::default();
        checked.put("ab", "c", &known, 950_000);
        assert!(checked.get("ab", "c", 999_999).is_some());
        assert!(checked.get("ab", "c", 1_000_000).is_none(), "it has expired");
        assert!(checked.get("a", "bc", 950_000).is_none() && checked.get("ab", "d", 950_000).is_none());
        checked.clear();
        assert!(checked.get("ab", "c", 950_000).is_none());
    }

    /// Breaks where ten thousand tokens with hundreds of groups each are kept.
    #[test]
    fn checked_tokens_stay_within_their_memory() {
        let expected = TokenRequirements { issuer: "i", audiences: &["a".to_owned()], own: true };
        let known = Arc::new(claims_of(claims(&json!({})), expected, 950_000).unwrap());
        let checked = TokenCache::default();
        for n in 0..200 {
            let token = format!("{n:01000}");
            checked.put(&token, "i", &known, 950_000);
            checked.put(&token, "i", &known, 950_000);
            assert!(checked.get(&token, "i", 950_000).is_some());
            let all = checked.0.lock();
            assert_eq!(all.bytes, 1000 * all.by_key.len(), "each counts once");
            assert!(all.bytes <= REMEMBERED_BYTES);
        }
    }
}
