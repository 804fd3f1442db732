//! Headers that keep browsers from doing with an answer what it is not for (`identity-and-access` section 7).

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// On every answer, unless its handler said something else.
const ALWAYS: [(HeaderName, &str); 3] = [
    (header::CONTENT_SECURITY_POLICY, "default-src 'self'; frame-ancestors 'none'; object-src 'none'; base-uri 'none'"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
];
/// How long a browser asks with TLS only once it did: a year.
const WITH_TLS_ONLY: &str = "max-age=31536000";

/// Adds them. `personal`: the answer is for one caller, so nobody keeps it for others.
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
