//! Parts of addresses: `path_of(u)`, `host_of(u)`, `registered_domain(h)`, `fold_ids(p)`.

use super::text_functions::Texts;

/// Tokens of at least this length that contain a digit are taken for identifiers.
const TOKEN_BYTES_MIN: usize = 16;

/// The rest of a URL behind `scheme://`, if it has that.
fn behind_scheme(url: &str) -> Option<&str> {
    let (scheme, rest) = url.split_once("://")?;
    scheme.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.')).then_some(rest)
}

/// `path_of(u)`: the path of a URL, `/` if it has none.
pub(super) fn path_of(texts: &Texts<'_>) -> Option<String> {
    let url = texts[0]?;
    let path = match behind_scheme(url) {
        Some(rest) => rest.find(['/', '?', '#']).map_or("", |at| &rest[at..]),
        None => url,
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    Some(if path.is_empty() { "/".to_owned() } else { path.to_owned() })
}

/// `host_of(u)`: the host of a URL, without user and port.
pub(super) fn host_of(texts: &Texts<'_>) -> Option<String> {
    let rest = behind_scheme(texts[0]?)?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.split(']').next()?,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then(|| host.to_ascii_lowercase())
}

/// `registered_domain(h)`: the registered domain by the public suffix list; NULL for IP addresses.
pub(super) fn registered_domain(texts: &Texts<'_>) -> Option<String> {
    let host = texts[0]?.trim_end_matches('.').to_ascii_lowercase();
    if host.parse::<std::net::IpAddr>().is_ok() {
        return None;
    }
    let domain = psl::domain(host.as_bytes())?;
    // A suffix that is not on the list belongs to a private network.
    domain.suffix().is_known().then(|| String::from_utf8_lossy(domain.as_bytes()).into_owned())
}

/// `fold_ids(p)`: a path with numbers, UUIDs and long tokens replaced by `{}`.
pub(super) fn fold_ids(texts: &Texts<'_>) -> Option<String> {
    let folded = texts[0]?.split('/').map(|part| if is_id(part) { "{}" } else { part });
    Some(folded.collect::<Vec<_>>().join("/"))
}

fn is_id(part: &str) -> bool {
    let has_digit = part.bytes().any(|b| b.is_ascii_digit());
    let is_number = has_digit && part.bytes().all(|b| b.is_ascii_digit());
    let is_token = part.len() >= TOKEN_BYTES_MIN
        && has_digit
        && part.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'=' | b'.'));
    is_number || is_token
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(function: fn(&Texts<'_>) -> Option<String>, text: &str, expected: Option<&str>) {
        assert_eq!(function(&[Some(text)]).as_deref(), expected, "{text}");
        assert_eq!(function(&[None]), None);
    }

    #[test]
    fn parts() {
        check(path_of, "https://a.example/b/c?d=1", Some("/b/c"));
        check(path_of, "https://a.example", Some("/"));
        check(path_of, "/b/c#d", Some("/b/c"));
        check(host_of, "https://me:secret@A.example:8443/b", Some("a.example"));
        check(host_of, "http://[::1]:80/", Some("::1"));
        check(host_of, "/b", None);
        check(registered_domain, "api.shop.example.co.uk", Some("example.co.uk"));
        check(registered_domain, "10.0.0.1", None);
        check(registered_domain, "cart", None);
        check(registered_domain, "cart.internal", None);
    }

    #[test]
    fn identifiers_are_folded() {
        check(fold_ids, "/users/17/orders", Some("/users/{}/orders"));
        check(fold_ids, "/a/0af76519-16cd-43dd-8448-eb211c80319c", Some("/a/{}"));
        check(fold_ids, "/v1/items", Some("/v1/items"));
        check(fold_ids, "/a-long-name-without-digits", Some("/a-long-name-without-digits"));
    }
}
