//! Headers that keep browsers from misusing a response (`identity-and-access` section 7).

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Set on every response unless its handler set another value.
const ALWAYS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'self'; frame-ancestors 'none'; object-src 'none'; base-uri 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];
/// How long a browser connects only with TLS after it did so once (HSTS): a year.
const WITH_TLS_ONLY: &str = "max-age=31536000";

/// Adds the headers. `personal`: the response is for one caller, so caches must not store it.
pub(crate) fn guard(headers: &mut HeaderMap, encrypted: bool, personal: bool) {
    let mut add = |name: &HeaderName, value: &'static str| {
        if !headers.contains_key(name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    };
    for (name, value) in &ALWAYS {
        add(name, value);
    }
    if encrypted {
        add(&header::STRICT_TRANSPORT_SECURITY, WITH_TLS_ONLY);
    }
    if personal {
        add(&header::CACHE_CONTROL, "no-store");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added() {
        let check = |encrypted, personal, expected: usize| {
            let mut headers = HeaderMap::new();
            headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("origin"));
            guard(&mut headers, encrypted, personal);
            assert_eq!(headers.len(), expected);
            assert_eq!(headers[header::REFERRER_POLICY], "origin");
            assert_eq!(headers[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
            assert_eq!(headers.contains_key(header::STRICT_TRANSPORT_SECURITY), encrypted);
            assert_eq!(headers.contains_key(header::CACHE_CONTROL), personal);
        };
        check(false, false, 3);
        check(true, false, 4);
        check(false, true, 4);
        check(true, true, 5);
    }
}
