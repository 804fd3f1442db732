//! The forms of token requests, and client credentials in them.

use std::borrow::Cow;

use crate::error::OAuthError;

/// Most parameters of a form.
const PARAMETERS_MAX: usize = 100;

/// The parameters of a form, each of which stands once.
#[derive(Clone, Default)]
pub struct Form(Vec<(String, String)>);

impl std::fmt::Debug for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(key, _)| key)).finish()
    }
}

impl Form {
    /// Reads a form.
    ///
    /// # Errors
    /// `invalid_request` when it is no UTF-8, or a parameter stands twice.
    pub fn parse(body: &[u8]) -> Result<Self, OAuthError> {
        let text = std::str::from_utf8(body).map_err(|_| OAuthError::request("The form is not UTF-8"))?;
        if !escapes_are_whole(text) {
            return Err(OAuthError::request("The form has a broken escape"));
        }
        let mut all: Vec<(String, String)> = Vec::new();
        for (key, value) in url::form_urlencoded::parse(body) {
            if key.contains('\u{fffd}') || value.contains('\u{fffd}') {
                return Err(OAuthError::request("The form is not UTF-8"));
            }
            if all.iter().any(|(k, _)| *k == key) {
                return Err(OAuthError::request(format!("duplicated parameter: {}", shown(&key))));
            }
            if all.len() == PARAMETERS_MAX {
                return Err(OAuthError::request("The form has too many parameters"));
            }
            all.push((key.into_owned(), value.into_owned()));
        }
        Ok(Self(all))
    }

    /// Gives a parameter; the empty text is none.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(k, v)| k == key && !v.is_empty()).map(|(_, v)| v.as_str())
    }

    /// Adds a parameter that is not there, or is empty.
    pub fn put(&mut self, key: &str, value: &str) {
        self.0.retain(|(k, _)| k != key);
        self.0.push((key.to_owned(), value.to_owned()));
    }

    /// Gives a parameter that must be there.
    ///
    /// # Errors
    /// `invalid_request`.
    pub fn need(&self, key: &str) -> Result<&str, OAuthError> {
        self.get(key).ok_or_else(|| OAuthError::request(format!("Missing form parameter: {key}")))
    }
}

fn shown(key: &str) -> String {
    key.chars().filter(char::is_ascii_graphic).take(60).collect()
}

/// Each `%` must be followed by two hexadecimal digits; else parsers differ in what they read.
fn escapes_are_whole(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes
        .iter()
        .enumerate()
        .filter(|(_, b)| **b == b'%')
        .all(|(i, _)| bytes.get(i + 1..i + 3).is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)))
}

/// Undoes the form encoding of a part of Basic credentials (RFC 6749, 2.3.1). What does not decode stays as it is: many
/// clients do not encode.
pub(crate) fn form_decoded(text: &str) -> Cow<'_, str> {
    if !text.contains(['%', '+']) || !escapes_are_whole(text) {
        return Cow::Borrowed(text);
    }
    let pair = format!("x={}", text.replace('&', "%26").replace('=', "%3D"));
    let mut pairs = url::form_urlencoded::parse(pair.as_bytes());
    Cow::Owned(pairs.next().map(|(_, value)| value.into_owned()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let form = Form::parse(b"a=1&b=x+y%21&c=").unwrap();
        assert_eq!((form.get("a"), form.get("b"), form.get("c"), form.get("d")), (Some("1"), Some("x y!"), None, None));
        assert_eq!(form.need("c").unwrap_err().description, "Missing form parameter: c");
        assert_eq!(format!("{form:?}"), r#"["a", "b", "c"]"#);
        let check = |body: &[u8], part: &str| {
            let error = Form::parse(body).unwrap_err();
            assert!(error.error == "invalid_request" && error.description.contains(part), "{error}");
        };
        check(b"a=1&a=2", "duplicated parameter: a");
        check(b"a=%zz", "broken escape");
        check(b"a=%f", "broken escape");
        check(b"a=%ff", "UTF-8");
        check(&[0xff], "UTF-8");
        check("&x=1".repeat(2).as_bytes(), "duplicated");
        check(
            (0..200).flat_map(|i| ["k".to_owned(), i.to_string(), "=1&".to_owned()]).collect::<String>().as_bytes(),
            "too many",
        );
    }

    #[test]
    fn parts_of_basic() {
        assert_eq!(form_decoded("a%3Ab%2Fc"), "a:b/c");
        assert_eq!(form_decoded("a+b"), "a b");
        assert_eq!(form_decoded("100%"), "100%");
        assert_eq!(form_decoded("a&b%3D"), "a&b=");
    }
}
