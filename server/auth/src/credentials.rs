//! The credentials in a request: tokens, keys, names and passwords, in every form that clients use.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};

use crate::Secret;
use crate::api_key;
use crate::error::TokenError;
use crate::form::form_decoded;
use crate::jwt::TOKEN_BYTES_MAX;

/// The credentials of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestCredentials {
    /// None, or of an unknown scheme.
    Nothing,
    /// An access token.
    Token(Secret),
    /// A well-formed API key.
    ApiKey(Secret),
    /// A name and a password or secret.
    Basic {
        /// User name or client id from `Authorization: Basic`; not checked yet.
        name: String,
        /// Password or client secret, as it was sent.
        password: Secret,
    },
}

impl RequestCredentials {
    /// Reads the values of `Authorization`, and of `DD-API-KEY` where that is accepted.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]: ambiguous or malformed.
    pub fn read<'a>(
        authorization: impl Iterator<Item = &'a [u8]>,
        saas_key: Option<&'a [u8]>,
    ) -> Result<Self, TokenError> {
        let values: Vec<&[u8]> = authorization.take(2).collect();
        let value = match (&values[..], saas_key) {
            ([], None) => return Ok(Self::Nothing),
            ([], Some(key)) => {
                return Self::of_bearer(key).and_then(|shown| match shown {
                    Self::ApiKey(_) => Ok(shown),
                    _ => Err(TokenError::Invalid),
                });
            }
            ([one], None) => *one,
            // Two credentials: whichever we used, a proxy before us may have checked the other.
            _ => return Err(TokenError::Invalid),
        };
        if value.len() > TOKEN_BYTES_MAX + 16 {
            return Err(TokenError::Invalid);
        }
        let (scheme, rest) = value.split_at(value.iter().position(|b| *b == b' ').unwrap_or(value.len()));
        let rest = rest.trim_ascii();
        // Clients of Splunk's collector show their keys as `Splunk KEY`.
        if scheme.eq_ignore_ascii_case(b"bearer") || scheme.eq_ignore_ascii_case(b"splunk") {
            return Self::of_bearer(rest);
        }
        if scheme.eq_ignore_ascii_case(b"apikey") {
            return Self::of_api_key(rest);
        }
        if scheme.eq_ignore_ascii_case(b"basic") {
            return Self::of_basic(rest);
        }
        Ok(Self::Nothing)
    }

    fn of_bearer(text: &[u8]) -> Result<Self, TokenError> {
        let text = std::str::from_utf8(text).ok().filter(|t| t.is_ascii() && !t.is_empty());
        let text = text.ok_or(TokenError::Invalid)?;
        if text.starts_with("qvk_") {
            return if api_key::id_of(text).is_some() {
                Ok(Self::ApiKey(Secret::new(text)))
            } else {
                Err(TokenError::Invalid)
            };
        }
        Ok(Self::Token(Secret::new(text)))
    }

    /// Base64 of `id:secret`, or the key itself.
    fn of_api_key(text: &[u8]) -> Result<Self, TokenError> {
        if text.starts_with(b"qvk_") {
            return Self::of_bearer(text);
        }
        let decoded = decoded(text).ok_or(TokenError::Invalid)?;
        let (id, secret) = decoded.split_once(':').ok_or(TokenError::Invalid)?;
        api_key::of_parts(id, secret).map(|key| Self::ApiKey(Secret::new(key))).ok_or(TokenError::Invalid)
    }

    /// A password that is an API key counts as one, whatever the name.
    fn of_basic(text: &[u8]) -> Result<Self, TokenError> {
        let decoded = decoded(text).ok_or(TokenError::Invalid)?;
        let (name, password) = decoded.split_once(':').ok_or(TokenError::Invalid)?;
        if password.starts_with("qvk_") {
            return Self::of_bearer(password.as_bytes());
        }
        if name.is_empty() || password.is_empty() {
            return Err(TokenError::Invalid);
        }
        Ok(Self::Basic { name: name.to_owned(), password: Secret::new(password) })
    }

    /// Reads the credentials of a client of the token service. RFC 6749 (2.3.1) requires form encoding, but many
    /// clients send them unencoded: `is_known` decides which of the two readings is meant.
    pub(crate) fn client_basic(value: &[u8], is_known: impl Fn(&str) -> bool) -> Option<(String, Secret)> {
        let (scheme, rest) = value.split_at_checked(6).filter(|_| value.len() <= TOKEN_BYTES_MAX)?;
        let text = scheme.eq_ignore_ascii_case(b"basic ").then(|| decoded(rest.trim_ascii()))??;
        let (name, secret) = text.split_once(':')?;
        let plain = form_decoded(name);
        if !is_known(&plain) && is_known(name) {
            return Some((name.to_owned(), Secret::new(secret)));
        }
        Some((plain.into_owned(), Secret::new(form_decoded(secret).into_owned())))
    }
}

/// Decodes base64 to text, padded or not.
fn decoded(text: &[u8]) -> Option<String> {
    let bytes =
        STANDARD.decode(text).or_else(|_| STANDARD_NO_PAD.decode(text)).or_else(|_| URL_SAFE.decode(text)).ok()?;
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OsRandom;

    fn read(values: &[&str]) -> Result<RequestCredentials, TokenError> {
        RequestCredentials::read(values.iter().map(|v| v.as_bytes()), None)
    }

    fn basic(text: &str) -> String {
        format!("Basic {}", STANDARD.encode(text))
    }

    #[test]
    fn ways() {
        let key = api_key::make(&OsRandom);
        let (id, secret) = (&key[4..16], &key[17..]);
        let is_key = |shown: Result<RequestCredentials, TokenError>| {
            assert_eq!(shown, Ok(RequestCredentials::ApiKey(Secret::new(key.clone()))));
        };
        is_key(read(&[&format!("Bearer {key}")]));
        is_key(read(&[&format!("bearer  {key}")]));
        is_key(read(&[&format!("Splunk {key}")]));
        is_key(read(&[&format!("ApiKey {}", STANDARD.encode(format!("{id}:{secret}")))]));
        is_key(read(&[&format!("ApiKey {}", STANDARD.encode(format!("{id}:{key}")))]));
        is_key(read(&[&format!("ApiKey {key}")]));
        is_key(read(&[&basic(&format!("apikey:{key}"))]));
        is_key(RequestCredentials::read([].into_iter(), Some(key.as_bytes())));
        assert_eq!(read(&[]), Ok(RequestCredentials::Nothing));
        assert_eq!(read(&["Digest x"]), Ok(RequestCredentials::Nothing));
        assert_eq!(read(&["Bearer a.b.c"]), Ok(RequestCredentials::Token(Secret::new("a.b.c"))));
        let shown = RequestCredentials::Basic { name: "ann".to_owned(), password: Secret::new("a:b") };
        assert_eq!(read(&[&basic("ann:a:b")]), Ok(shown));
    }

    #[test]
    fn what_says_nothing_certain() {
        let key = api_key::make(&OsRandom);
        let check = |values: &[&str]| assert_eq!(read(values), Err(TokenError::Invalid), "{values:?}");
        check(&["Bearer a", "Bearer b"]);
        check(&["Bearer "]);
        check(&["Bearer"]);
        check(&["Bearer ä"]);
        check(&["Basic x"]);
        check(&[&basic("no colon")]);
        check(&[&basic(":x")]);
        check(&[&basic("x:")]);
        let another = if key.ends_with('x') { 'y' } else { 'x' };
        check(&[&format!("Bearer {}{another}", &key[..65])]);
        check(&[&format!("ApiKey {}", STANDARD.encode(format!("000000000000:{key}")))]);
        check(&[&format!("Bearer {}", "x".repeat(20_000))]);
        let both = RequestCredentials::read([&b"Bearer a"[..]].into_iter(), Some(key.as_bytes()));
        assert_eq!(both, Err(TokenError::Invalid));
        assert_eq!(RequestCredentials::read([].into_iter(), Some(b"a.b.c")), Err(TokenError::Invalid));
    }
}
