use quiver_query::Limits;

use super::*;
use crate::live_settings::Token;
use crate::request_families::family_of;

const HERE: &str = "127.0.0.1:40000";
const THERE: &str = "192.0.2.7:40000";

fn live(origins: &[&str], hosts: &[&str], token: Option<&str>) -> LiveSettings {
    let list = |texts: &[&str]| texts.iter().map(|t| (*t).to_owned()).collect();
    LiveSettings {
        query_limits: Limits::default(),
        logs_timeout: std::time::Duration::from_secs(1),
        slow_query: std::time::Duration::from_secs(1),
        cors_origins: list(origins),
        hosts: list(hosts),
        docs_public: true,
        access_log: false,
        admin_token: token.map(Token::new),
        listed: Vec::new(),
    }
}

fn status(live: &LiveSettings, peer: &str, request: &str, headers: &[(&'static str, &str)]) -> u16 {
    let (method, path) = request.split_once(' ').unwrap();
    let (method, uri): (Method, Uri) = (method.parse().unwrap(), path.parse().unwrap());
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| (header::HeaderName::from_static(name), HeaderValue::from_str(value).unwrap()))
        .collect();
    let peer = peer.parse().ok();
    let asking = GuardedRequest {
        live,
        by_rights: false,
        family: family_of(path),
        peer,
        method: &method,
        uri: &uri,
        headers: &headers,
    };
    refused(&asking).map_or(200, |response| response.status().as_u16())
}

#[test]
fn operators() {
    let plain = live(&[], &[], None);
    let check = |live: &LiveSettings, peer: &str, headers: &[(&'static str, &str)], expected: u16| {
        for request in ["POST /admin/flush", "GET /admin/queries", "DELETE /admin/queries/1"] {
            assert_eq!(status(live, peer, request, headers), expected, "{peer} {request} {headers:?}");
        }
    };
    check(&plain, HERE, &[("host", "127.0.0.1:8800")], 200);
    check(&plain, "[::1]:4", &[("host", "[::1]:8800")], 200);
    check(&plain, "[::ffff:127.0.0.1]:4", &[("host", "LocalHost")], 200);
    check(&plain, HERE, &[("host", "quiver.localhost:1")], 200);
    check(&plain, THERE, &[("host", "127.0.0.1:8800")], 403);
    check(&plain, HERE, &[("host", "evil.example:8800")], 403);
    check(&plain, HERE, &[("host", "localhost.evil.example")], 403);
    check(&plain, HERE, &[("host", "192.168.0.2:8800")], 403);
    check(&plain, HERE, &[("host", "a b")], 403);
    check(&plain, HERE, &[], 403);
    for name in FORWARDED {
        check(&plain, HERE, &[("host", "localhost"), (name, "192.0.2.7")], 403);
    }
    check(&plain, HERE, &[("host", "localhost:8800"), ("origin", "http://localhost:8800")], 200);
    check(&plain, HERE, &[("host", "localhost:8800"), ("origin", "http://localhost:3000")], 403);
    check(&plain, HERE, &[("host", "localhost:8800"), ("origin", "https://evil.example")], 403);
    check(&plain, HERE, &[("host", "localhost:8800"), ("origin", "null")], 403);
    check(&plain, HERE, &[("host", "localhost:8800"), ("sec-fetch-site", "cross-site")], 403);
    check(&plain, HERE, &[("host", "localhost:8800"), ("sec-fetch-site", "same-origin")], 200);
    let named = live(&["https://ops.example"], &["quiver.example"], None);
    check(&named, HERE, &[("host", "Quiver.example:8800")], 200);
    check(&named, HERE, &[("host", "localhost"), ("origin", "https://ops.example")], 200);
    let open = live(&["*"], &["*"], None);
    check(&open, HERE, &[("host", "evil.example")], 200);
    check(&open, HERE, &[("host", "evil.example"), ("origin", "https://other.example")], 403);
    let guarded = live(&[], &[], Some("s3cret"));
    check(&guarded, THERE, &[("authorization", "Bearer s3cret"), ("x-forwarded-for", "192.0.2.7")], 200);
    check(&guarded, THERE, &[("authorization", "bearer s3cret"), ("host", "quiver.example")], 200);
    check(&guarded, HERE, &[("host", "localhost")], 401);
    check(&guarded, HERE, &[("authorization", "Bearer s3cre"), ("host", "localhost")], 401);
    check(&guarded, HERE, &[("authorization", "Basic s3cret"), ("host", "localhost")], 401);
    check(&guarded, HERE, &[("authorization", "B"), ("host", "localhost")], 401);
}

#[test]
fn senders_and_readers() {
    let plain = live(&[], &[], None);
    let check = |live: &LiveSettings, peer: &str, request: &str, headers: &[(&'static str, &str)], expected: u16| {
        assert_eq!(status(live, peer, request, headers), expected, "{peer} {request} {headers:?}");
    };
    let write = "POST /insert/jsonline";
    // What is no browser has neither origin nor site, and comes by any name and through any proxy.
    check(&plain, HERE, write, &[("host", "x")], 200);
    check(&plain, THERE, write, &[("host", "quiver.example"), ("x-forwarded-for", "192.0.2.9")], 200);
    check(&plain, HERE, write, &[("host", "localhost:8800"), ("origin", "https://evil.example")], 403);
    check(&plain, HERE, write, &[("host", "evil.example:8800"), ("origin", "http://evil.example:8800")], 403);
    check(&plain, HERE, write, &[("host", "localhost:8800"), ("origin", "http://localhost:8800")], 200);
    check(&plain, THERE, write, &[("host", "quiver.example"), ("origin", "https://quiver.example")], 200);
    check(&plain, HERE, write, &[("host", "localhost:8800"), ("origin", "null")], 403);
    check(&plain, HERE, "POST /not/there", &[("host", "localhost"), ("origin", "https://evil.example")], 403);
    // Reading is what CORS is for: the page does not get to see the answer.
    check(&plain, HERE, "POST /metrics-api/api/v1/query", &[("host", "l"), ("origin", "https://evil.example")], 200);
    check(&plain, HERE, "GET /insert/ready", &[("host", "l"), ("origin", "https://evil.example")], 200);
    let named = live(&["https://app.example"], &["quiver.example"], None);
    check(&named, THERE, write, &[("host", "quiver.example"), ("origin", "https://app.example")], 200);
    check(&named, THERE, write, &[("host", "evil.example"), ("origin", "https://evil.example")], 403);
    let open = live(&["*"], &[], None);
    check(&open, HERE, write, &[("host", "localhost"), ("origin", "https://any.example")], 200);
}

/// Where rights are asked for, where a call of an operator comes from says nothing.
#[test]
fn rights_tell_operators() {
    let live = live(&[], &[], Some("s3cret"));
    let headers = HeaderMap::from_iter([(header::ORIGIN, HeaderValue::from_static("https://evil.example"))]);
    for path in ["/admin", "/admin/flush", "/debug/x", "/platform-api/rbac/keys/rotate"] {
        let (uri, peer): (Uri, _) = (path.parse().unwrap(), THERE.parse().ok());
        let asking = |by_rights: bool| {
            let (live, uri, headers) = (&live, &uri, &headers);
            let family = family_of(path);
            refused(&GuardedRequest { live, by_rights, family, peer, method: &Method::POST, uri, headers }).is_none()
        };
        assert!(asking(true) && !asking(false), "{path}");
    }
}

#[test]
fn operators_paths_are_taken_whole() {
    let plain = live(&[], &[], None);
    for (request, expected) in [
        ("GET /admin", 403),
        ("GET /admin/", 403),
        ("GET /debug/pprof", 403),
        ("POST /platform-api/rbac/keys/rotate", 403),
        ("GET /administrator", 200),
        ("GET /debug", 200),
        ("GET /x/admin/flush", 200),
        ("GET /platform-api/rbac/keys", 200),
    ] {
        assert_eq!(status(&plain, THERE, request, &[]), expected, "{request}");
    }
}

#[test]
fn pages_are_told_apart_by_what_browsers_say() {
    let plain = live(&[], &[], None);
    let write = "POST /insert/jsonline";
    for (site, expected) in [
        ("cross-site", 403),
        ("same-site", 403),
        ("same-origin", 200),
        // Somebody at the keyboard: no page asked for it.
        ("none", 200),
    ] {
        let headers = [("host", "localhost:8800"), ("sec-fetch-site", site)];
        assert_eq!(status(&plain, HERE, write, &headers), expected, "{site}");
    }
    for (host, origin, expected) in [
        ("localhost:8800", "http://LOCALHOST:8800", 200),
        ("[::1]:8800", "http://[::1]:8800", 200),
        ("localhost:8800", "http://localhost", 403),
        ("localhost", "http://localhost:8800", 403),
        ("localhost:8800", "localhost:8800", 403),
        ("localhost:8800", "", 403),
    ] {
        let headers = [("host", host), ("origin", origin)];
        assert_eq!(status(&plain, HERE, write, &headers), expected, "{host} {origin}");
    }
}
