//! Hostile requests to the token service and to configuration, over raw sockets (promise H6): paths, heads and bodies
//! that two parsers could read in two ways are refused with the documented error codes.

mod payloads;

use std::fmt::Write as _;

use quiver_tests::server::Server;
use quiver_tests::socket::{exchange, status};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, ingest_key, login, user, with_password};
use crate::olap::spans;

const TOKEN: &str = "/realms/platform/protocol/openid-connect/token";
const INTROSPECT: &str = "/realms/platform/protocol/openid-connect/token/introspect";
const REVOKE: &str = "/realms/platform/protocol/openid-connect/revoke";
const LOGOUT: &str = "/realms/platform/protocol/openid-connect/logout";
const FORM: &str = "application/x-www-form-urlencoded";
const JSON: &str = "application/json";

/// A request as it goes over the wire.
struct Raw {
    head: String,
    body: Vec<u8>,
}

impl Raw {
    fn new(method: &str, target: &str) -> Self {
        let head = format!("{method} {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        Self { head, body: Vec::new() }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        let _ = write!(self.head, "{name}: {value}\r\n");
        self
    }

    fn body(self, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let length = body.len().to_string();
        Self { body, ..self.header("Content-Type", kind).header("Content-Length", &length) }
    }

    async fn send(&self, server: &Server) -> (u16, Value, String) {
        let sent = [self.head.as_bytes(), b"\r\n", &self.body].concat();
        let answer = exchange(&server.http, &sent).await;
        let text = String::from_utf8_lossy(&answer).into_owned();
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        // A chunked body: the lines between are lengths.
        let json = body.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        (status(&answer), json, text)
    }
}

async fn start(dir: &std::path::Path) -> (Server, String) {
    let server = Server::start(dir, &with_password().env("QUIVER_LOG__FILTER", "error")).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    (server, admin)
}

/// Collects what was answered otherwise than it must be.
#[derive(Default)]
struct Wrong(Vec<String>);

impl Wrong {
    fn hold(&mut self, what: &str, got: &(u16, Value, String), want: (&[u16], &str)) {
        let (statuses, code) = want;
        let fits = statuses.contains(&got.0) && (code.is_empty() || got.1["code"] == code);
        if !fits {
            let shown: String = what.chars().take(200).collect();
            let text: String = got.2.chars().take(300).collect();
            self.0.push(format!("{shown:?}: {text:?} and not {statuses:?} {code}"));
        }
    }

    fn none(self) {
        assert!(self.0.is_empty(), "{} wrong:\n{}", self.0.len(), self.0.join("\n"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn paths_that_are_not_what_they_seem() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin) = start(dir.path()).await;
    let mut wrong = Wrong::default();
    // Segments that stand for others, in either spelling: refused before anything looks at them.
    for path in [
        "/realms/platform/../platform",
        "/realms/%2e%2e/realms/platform",
        "/realms/platform/protocol/openid-connect/../openid-connect/certs",
        "/realms/platform/protocol/openid-connect/%2E%2e/certs",
        "/realms/platform/./protocol/openid-connect/certs",
        "/platform-api/segments/../rbac/users",
        "/platform-api/segments/%2e%2e/rbac/users",
        "/platform-api/rbac/..%2fusers",
        "/platform-api/./rbac/users",
        "/platform-api/rbac/users/%2e",
        "/rulesapi/../platform-api/rbac/users",
    ] {
        let got = Raw::new("GET", path).header("Authorization", &admin).send(&server).await;
        wrong.hold(path, &got, (&[400, 404], ""));
        assert!(got.2.to_ascii_lowercase().contains("\r\nx-content-type-options: nosniff\r\n"), "{path}: {}", got.2);
        let got = Raw::new("GET", path).send(&server).await;
        wrong.hold(path, &got, (&[400, 401, 404], ""));
    }
    // What is nowhere is told so in the form of the interface.
    for path in [
        "/platform-api//rbac/users",
        "/platform-api/rbac//users",
        "/platform-api/rbac/users/",
        "/platform-api/rbac/users%2f",
        "/platform-api/rbac/users;a=b",
        "/platform-api/rbac/users%3flimit=1",
        "/platform-api/rbac/users%20",
        "/platform-api/RBAC/users",
        "/platform-api/rbac/user%73/x/y",
        "/platform-api/rbac/%c0%ae%c0%ae/users",
        "/platform-api/rbac/users%252e%252e",
        "/platform-api/nothing",
        "/rulesapi/nothing",
        "/transactions/a/b/c",
    ] {
        let got = Raw::new("GET", path).header("Authorization", &admin).send(&server).await;
        wrong.hold(path, &got, (&[404], "NOT_FOUND"));
        let got = Raw::new("GET", path).send(&server).await;
        wrong.hold(&format!("{path} of nobody"), &got, (&[401], "TOKEN_MISSING"));
    }
    for path in [
        "/realms/nothing",
        "/realms/platform/",
        "/realms/platform//protocol/openid-connect/certs",
        "/realms/PLATFORM",
        "/realms/platform/protocol/openid-connect/certs/",
        "/realms/platform%2fprotocol",
    ] {
        let got = Raw::new("GET", path).send(&server).await;
        wrong.hold(path, &got, (&[404], "NOT_FOUND"));
    }
    // Ids are looked up as they are, and found nowhere.
    for id in ["%00", "..%5c..", "%27%20OR%201=1--", "%F0%9F%92%A9", "%ff", "0", "*", "null", "%25"] {
        for family in ["/platform-api/segments", "/platform-api/rbac/users", "/transactions", "/rulesapi/rules"] {
            let path = format!("{family}/{id}");
            let got = Raw::new("GET", &path).header("Authorization", &admin).send(&server).await;
            wrong.hold(&path, &got, (&[400, 404], ""));
        }
    }
    // Methods that are not used.
    for (method, path, code) in [
        ("GET", TOKEN, "METHOD_NOT_ALLOWED"),
        ("PUT", TOKEN, "METHOD_NOT_ALLOWED"),
        ("DELETE", "/realms/platform/protocol/openid-connect/certs", "METHOD_NOT_ALLOWED"),
        ("POST", "/platform-api/rbac/audit", "METHOD_NOT_ALLOWED"),
        ("DELETE", "/platform-api/rbac/audit", "METHOD_NOT_ALLOWED"),
        ("PATCH", "/platform-api/rbac/permissions", "METHOD_NOT_ALLOWED"),
        ("GET", "/platform-api/segments/bulk-delete", "METHOD_NOT_ALLOWED"),
        ("TRACE", "/platform-api/segments", "METHOD_NOT_ALLOWED"),
        ("BREW", "/platform-api/segments", "METHOD_NOT_ALLOWED"),
    ] {
        let got =
            Raw::new(method, path).header("Authorization", &admin).header("Content-Length", "0").send(&server).await;
        wrong.hold(&format!("{method} {path}"), &got, (&[405], code));
        assert!(got.2.to_ascii_lowercase().contains("\r\nallow: "), "{method} {path}: {}", got.2);
    }
    wrong.none();
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_that_two_parsers_read_in_two_ways() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin) = start(dir.path()).await;
    let mut wrong = Wrong::default();
    let user = json!({"username": "smuggled", "password": PASSWORD}).to_string();
    let form = format!("grant_type=password&client_id=ui&username=admin&password={}", PASSWORD.replace(' ', "+"));
    let (big, many) = ("x".repeat(100_000), (0..10_000).map(|n| format!("X{n}: y\r\n")).collect::<String>());
    for (target, kind, body) in [("/platform-api/rbac/users", JSON, &user), (TOKEN, FORM, &form)] {
        let head = format!(
            "POST {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: {admin}\r\nContent-Type: {kind}\r\n"
        );
        let length = body.len();
        let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
        for (more, body, statuses) in [
            (format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n"), &chunked, &[400][..]),
            (format!("Transfer-Encoding: chunked\r\nContent-Length: {length}\r\n"), &chunked, &[400]),
            ("Transfer-Encoding: identity, chunked, x\r\n".to_owned(), &chunked, &[400]),
            ("Transfer-Encoding: x\r\n".to_owned(), body, &[400]),
            ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n".to_owned(), &chunked, &[400]),
            (format!("Content-Length: {length}\r\nContent-Length: {length}\r\n"), body, &[400]),
            (format!("Content-Length: {length}\r\nContent-Length: 1\r\n"), body, &[400]),
            (format!("Content-Length: {length}, {length}\r\n"), body, &[400]),
            (format!("Content-Length: +{length}\r\n"), body, &[400]),
            ("Content-Length: -1\r\n".to_owned(), body, &[400]),
            ("Content-Length: 0x10\r\n".to_owned(), body, &[400]),
            ("Content-Length: 99999999999999999999\r\n".to_owned(), body, &[400, 413]),
            (format!("Content-Length : {length}\r\n"), body, &[400]),
            (format!("Content-Length: {length}\r\nX: a\r\n b\r\n"), body, &[400]),
            (format!("Content-Length: {length}\r\nX: a\rb\r\n"), body, &[400]),
            (format!("Content-Length: {length}\r\nX: a\0b\r\n"), body, &[400]),
            (format!("Content-Length: {length}\r\nX y: a\r\n"), body, &[400]),
            (format!("Content-Length: {length}\r\n: a\r\n"), body, &[400]),
            (format!("Content-Length: {length}\r\nX: {big}\r\n"), body, &[431]),
            (format!("Content-Length: {length}\r\n{many}"), body, &[431]),
            (format!("Content-Length: {length}\r\nHost: y\r\n"), body, &[400]),
            // Two fields are one list, and a list is more than one coding.
            (
                format!("Content-Length: {length}\r\nContent-Encoding: identity\r\nContent-Encoding: gzip\r\n"),
                body,
                &[400, 415],
            ),
            ("Transfer-Encoding: chunked\r\n".to_owned(), &format!("xyz\r\n{body}\r\n0\r\n\r\n"), &[400]),
            ("Transfer-Encoding: chunked\r\n".to_owned(), &format!("-{length:x}\r\n{body}\r\n0\r\n\r\n"), &[400]),
            ("Transfer-Encoding: chunked\r\n".to_owned(), &format!("fffffffffffffffff\r\n{body}\r\n0\r\n\r\n"), &[400]),
        ] {
            let answer = exchange(&server.http, format!("{head}{more}\r\n{body}").as_bytes()).await;
            let text = String::from_utf8_lossy(&answer).into_owned();
            wrong.hold(&format!("{target} {more}"), &(status(&answer), Value::Null, text), (statuses, ""));
        }
        // A target of another host, with which a cache would remember the answer.
        let elsewhere = head.replacen(target, &format!("http://elsewhere{target}"), 1);
        let answer =
            exchange(&server.http, format!("{elsewhere}Content-Length: {length}\r\n\r\n{body}").as_bytes()).await;
        let text = String::from_utf8_lossy(&answer).into_owned();
        wrong.hold("absolute form", &(status(&answer), Value::Null, text), (&[400], ""));
    }
    wrong.none();
    let users = server.get_as("/platform-api/rbac/users?count=true", &[("authorization", &admin)]).await.json();
    assert_eq!(users["total"], json!(1), "nobody was smuggled in: {users}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin) = start(dir.path()).await;
    let token = admin.trim_start_matches("Bearer ").to_owned();
    let parts: Vec<&str> = token.split('.').collect();
    let [head, claims, signature] = parts[..] else { panic!("three parts") };
    let mut wrong = Wrong::default();
    let get = |path: &str| Raw::new("GET", path);
    for path in
        ["/platform-api/rbac/users", "/platform-api/segments", "/realms/platform/protocol/openid-connect/userinfo"]
    {
        let invalid = (&[401][..], "TOKEN_INVALID");
        for (what, value) in [
            ("nothing behind it", "Bearer ".to_owned()),
            ("two tokens", format!("{admin}, {admin}")),
            ("another beside it", format!("{admin} {token}")),
            ("padding", format!("{admin}=")),
            ("two parts", format!("Bearer {}", token.rsplit_once('.').expect("three parts").0)),
            ("four parts", format!("{admin}.x")),
            ("cut", admin[..admin.len() - 1].to_owned()),
            ("long", format!("Bearer {}", "a".repeat(15_000))),
            ("too long", format!("Bearer {}", "a".repeat((16 << 10) + 1))),
            ("much too long", format!("Bearer {head}.{}.{signature}", "a".repeat(30_000))),
            ("too long a password", format!("Basic {}", "YTph".repeat(5000))),
            ("too long a key", format!("Bearer qvk_{}", "0".repeat(20_000))),
            ("a key that is none", format!("Bearer qvk_{}", "0".repeat(62))),
            ("no ASCII", "Bearer \u{fc}".to_owned()),
            ("in quotes", format!("Bearer \"{token}\"")),
            ("a comma behind it", format!("{admin},")),
            ("a parameter behind it", format!("{admin};v=1")),
            ("parameters before it", format!("Bearer realm=\"x\", {token}")),
            ("named", format!("Bearer token={token}")),
            ("encoded for a URL", format!("Bearer {}", token.replace('.', "%2E"))),
            ("parts in another order", format!("Bearer {claims}.{head}.{signature}")),
            ("claims elsewhere", format!("Bearer {head}..{signature}")),
            ("no signature", format!("Bearer {head}.{claims}.")),
            ("a token in a token", format!("Bearer {head}.{token}")),
            ("as JSON", format!("Bearer {{\"protected\":\"{head}\",\"payload\":\"{claims}\"}}")),
            ("a key of nothing", "Bearer qvk_".to_owned()),
            ("a key that is no base64", "ApiKey ???".to_owned()),
            ("a key that is a token", format!("ApiKey {token}")),
            ("Basic of nothing", "Basic ".to_owned()),
            ("Basic that is no base64", "Basic !!!!".to_owned()),
            ("Basic without a password", "Basic YWRtaW4=".to_owned()),
            ("Basic that is no text", "Basic //46/w==".to_owned()),
        ] {
            let got = get(path).header("Authorization", &value).send(&server).await;
            wrong.hold(&format!("{path}: {what}"), &got, invalid);
        }
        let twice = get(path).header("Authorization", &admin).header("authorization", &admin).send(&server).await;
        wrong.hold(&format!("{path}: two headers"), &twice, invalid);
        for (what, raw) in [
            ("none", get(path)),
            ("in the query", get(&format!("{path}?access_token={token}"))),
            ("another scheme", get(path).header("Authorization", &format!("Digest {token}"))),
            ("no scheme", get(path).header("Authorization", &token)),
            ("a tab", get(path).header("Authorization", &format!("Bearer\t{token}"))),
            ("a colon", get(path).header("Authorization", &format!("Bearer: {token}"))),
            ("a scheme of others", get(path).header("Authorization", &format!("Token {token}"))),
            ("a proof of possession", get(path).header("Authorization", &format!("DPoP {token}"))),
            ("a ticket", get(path).header("Authorization", "Negotiate YII=")),
            ("a key of another API", get(path).header("X-Api-Key", &token)),
            ("a key of the intake", get(path).header("DD-API-KEY", &token)),
            ("in a cookie", get(path).header("Cookie", &format!("token={token}; __Host-qv_rt={token}"))),
            ("in a header of a proxy", get(path).header("Proxy-Authorization", &admin)),
        ] {
            wrong.hold(&format!("{path}: {what}"), &raw.send(&server).await, (&[401], "TOKEN_MISSING"));
        }
    }
    wrong.none();
}

/// Credentials with a place of their own are read there alone, and beside no others.
#[tokio::test(flavor = "multi_thread")]
async fn credentials_with_a_place_of_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("token");
    std::fs::write(&file, "s3cret-token\n").expect("writable");
    let options = with_password().env("QUIVER_HTTP__ADMIN_TOKEN_FILE", file.display());
    let server = Server::start(&dir.path().join("data"), &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let sender = ingest_key(&server, &admin, "agent").await;
    let key = sender.trim_start_matches("Bearer ");
    let post = |path: &str| Raw::new("POST", path).header("DD-API-KEY", key).body(JSON, "[]");
    let (missing, invalid) = ((&[401][..], "TOKEN_MISSING"), (&[401][..], "TOKEN_INVALID"));
    let mut wrong = Wrong::default();
    let intake = "/insert/saas/api/v2/logs";
    wrong.hold("the intake", &post(intake).send(&server).await, (&[200, 202], ""));
    // What an index of a search engine is called is its sender's choice.
    for path in ["/insert/jsonline", "/insert/searchengine/saas/_bulk", "/insert/elasticsearch/datadog/_bulk"] {
        let got = post(path).send(&server).await;
        assert!(got.1["instance"].as_str().is_some_and(|at| at.len() > "/requests/".len()), "{path}: {}", got.2);
        wrong.hold(path, &got, missing);
    }
    wrong.hold("two keys", &post(intake).header("DD-API-KEY", key).send(&server).await, invalid);
    let operator = || Raw::new("GET", "/admin/queries").header("Authorization", "Bearer s3cret-token");
    wrong.hold("the operator", &operator().send(&server).await, (&[200], ""));
    wrong.hold("not alone", &operator().header("Authorization", &admin).send(&server).await, invalid);
    wrong.none();
}

/// Refusals that a handler finds say what they lack as those at the door do.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_behind_the_door_challenge_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin) = start(dir.path()).await;
    let path = "/platform-api/rbac/me/password";
    let body = json!({"currentPassword": "x", "newPassword": PASSWORD}).to_string();
    let change = async |who: &str| {
        let headers = [("authorization", who), ("content-type", JSON)];
        let answer = server.send("PUT", path, &headers, body.clone().into_bytes()).await;
        let text = |name: &str| answer.headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
        (answer.status, answer.json()["code"].clone(), text("www-authenticate"), text("retry-after"))
    };
    let realm = "Bearer realm=\"platform\"";
    let invalid = format!("{realm}, error=\"invalid_token\"");
    // The last one is `admin:no`.
    for (who, code, challenge) in [
        ("", "TOKEN_MISSING", realm),
        ("Bearer x", "TOKEN_INVALID", &*invalid),
        ("Basic YWRtaW46bm8=", "TOKEN_INVALID", &*invalid),
    ] {
        let (status, said, asked, _) = change(who).await;
        assert_eq!((status, &said, &*asked), (401, &json!(code), challenge), "{who}");
    }
    // A key is admitted, but lacks the right, and so does a caller who sees nothing of a trace.
    let key = ingest_key(&server, &admin, "agent").await;
    let lacks = format!("{realm}, error=\"insufficient_scope\"");
    let (status, said, asked, _) = change(&key).await;
    assert_eq!((status, &said, &asked), (403, &json!("FORBIDDEN"), &lacks));
    spans::fill(&server, &[("authorization", &key)]).await;
    user(&server, &admin, "stranger", "viewer", json!(["elsewhere"])).await;
    let stranger = bearer(&login(&server, "stranger", PASSWORD).await);
    let path = format!("/platform-api/traces/{}/otlp", "a".repeat(32));
    let hidden = server.get_as(&path, &[("authorization", &stranger)]).await;
    let asked = hidden.headers.get("www-authenticate").and_then(|v| v.to_str().ok());
    assert_eq!((hidden.status, asked), (403, Some(&*lacks)), "{}", hidden.text());
    // What no right would change does not ask for one.
    let me = server.get_as("/platform-api/rbac/me", &[("authorization", &admin)]).await.json();
    let own = format!("/platform-api/rbac/users/{}", me["subject"]["id"].as_str().expect("an id"));
    let last = server.send("DELETE", &own, &[("authorization", &admin)], Vec::new()).await;
    assert_eq!((last.status, &last.json()["code"]), (403, &json!("LAST_ADMIN")));
    assert!(!last.headers.contains_key("www-authenticate"));
    // Who guesses hears how long to wait.
    let mut last = change("Basic YWRtaW46bm8=").await;
    for _ in 0..40 {
        // On a slow machine the first waits are over before the next guess.
        if last.0 == 429 {
            break;
        }
        last = change("Basic YWRtaW46bm8=").await;
    }
    assert_eq!((last.0, &last.1), (429, &json!("RATE_LIMITED")));
    assert!(last.3.parse::<u64>().is_ok_and(|after_s| after_s >= 1), "{last:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_none() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, admin) = start(dir.path()).await;
    let mut wrong = Wrong::default();
    let good = format!("grant_type=password&client_id=ui&username=admin&password={}", PASSWORD.replace(' ', "+"));
    for (what, kind, body, statuses, code) in [
        ("nothing", FORM, String::new(), &[400][..], "INVALID_REQUEST"),
        ("no grant", FORM, "client_id=ui".to_owned(), &[400], "INVALID_REQUEST"),
        ("twice", FORM, format!("{good}&username=root"), &[400], "INVALID_REQUEST"),
        ("twice, empty", FORM, format!("{good}&password="), &[400], "INVALID_REQUEST"),
        ("another grant", FORM, good.replace("=password&", "=implicit&"), &[400], "UNSUPPORTED_GRANT_TYPE"),
        ("no client", FORM, good.replace("client_id=ui&", ""), &[400, 401], ""),
        ("another client", FORM, good.replace("=ui&", "=x'--&"), &[401], "INVALID_CLIENT"),
        ("JSON", JSON, "{}".to_owned(), &[400, 415], ""),
        ("of no kind", "multipart/form-data", good.clone(), &[400, 415], ""),
        ("too long", FORM, format!("{good}&x={}", "x".repeat(17 << 10)), &[413], "INVALID_REQUEST"),
        ("half an escape", FORM, good.replace("admin", "admin%2"), &[400, 401], ""),
        ("no UTF-8", FORM, good.replace("admin", "%ff%fe"), &[400], "INVALID_REQUEST"),
        ("NUL in a name", FORM, good.replace("admin", "admin%00"), &[400, 401], ""),
        ("code as a name", FORM, good.replace("admin", "admin'--"), &[401], "INVALID_GRANT"),
        ("a pattern as a name", FORM, good.replace("admin", "%25"), &[401], "INVALID_GRANT"),
    ] {
        let got = Raw::new("POST", TOKEN).body(kind, body).send(&server).await;
        wrong.hold(&format!("token: {what}"), &got, (statuses, code));
    }
    for path in [INTROSPECT, REVOKE, LOGOUT] {
        for (what, kind, body) in [
            ("JSON", JSON, "{\"token\":\"x\"}".to_owned()),
            ("twice", FORM, "token=a&token=b&client_id=ui&client_id=ui".to_owned()),
            ("too long", FORM, format!("token={}", "x".repeat(17 << 10))),
        ] {
            let got = Raw::new("POST", path).body(kind, body).send(&server).await;
            wrong.hold(&format!("{path}: {what}"), &got, (&[400, 401, 413, 415], ""));
            assert!(got.1["code"].is_string(), "{path} {what}: {}", got.2);
        }
    }
    let none = Raw::new("POST", INTROSPECT).body(FORM, "token=x").send(&server).await;
    wrong.hold("introspection by nobody", &none, (&[401], "INVALID_CLIENT"));
    for query in
        ["", "?id_token_hint=a&id_token_hint=b", "?id_token_hint=%zz", "?id_token_hint=%ff", "?id_token_hint=x"]
    {
        let got = Raw::new("GET", &format!("{LOGOUT}{query}")).send(&server).await;
        wrong.hold(&format!("logout{query}"), &got, (&[400], "INVALID_REQUEST"));
    }
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let nested =
        |depth: usize| format!("{{\"name\":\"a\",\"labels\":{}1{}}}", "{\"a\":".repeat(depth), "}".repeat(depth));
    for path in ["/platform-api/segments", "/platform-api/rbac/groups", "/transactions", "/rulesapi/rules"] {
        for (what, kind, body, statuses, code) in [
            ("nothing", JSON, Vec::new(), &[400][..], "MALFORMED_JSON"),
            ("a half", JSON, b"{\"name\":".to_vec(), &[400], "MALFORMED_JSON"),
            ("more behind it", JSON, b"{} {}".to_vec(), &[400], "MALFORMED_JSON"),
            ("twice", JSON, b"{\"name\":\"a\",\"name\":\"b\"}".to_vec(), &[400], "MALFORMED_JSON"),
            ("twice within", JSON, b"{\"labels\":{\"a\":\"b\",\"a\":\"c\"}}".to_vec(), &[400], "MALFORMED_JSON"),
            ("twice, escaped", JSON, b"{\"name\":\"a\",\"n\\u0061me\":\"b\"}".to_vec(), &[400], "MALFORMED_JSON"),
            ("half a surrogate", JSON, b"{\"name\":\"\\ud800\"}".to_vec(), &[400], "MALFORMED_JSON"),
            ("no UTF-8", JSON, b"{\"name\":\"\xff\"}".to_vec(), &[400], "MALFORMED_JSON"),
            ("a comment", JSON, b"{/**/}".to_vec(), &[400], "MALFORMED_JSON"),
            ("NaN", JSON, b"{\"name\":NaN}".to_vec(), &[400], "MALFORMED_JSON"),
            ("too deep", JSON, deep.clone().into_bytes(), &[400], "MALFORMED_JSON"),
            ("deeper than 64", JSON, nested(70).into_bytes(), &[400], "MALFORMED_JSON"),
            ("a list", JSON, b"[]".to_vec(), &[400, 422], ""),
            ("NUL", JSON, b"{\"name\":\"a\\u0000b\"}".to_vec(), &[422], "VALIDATION_FAILED"),
            (
                "too long a text",
                JSON,
                format!("{{\"description\":\"{}\"}}", "x".repeat(5000)).into_bytes(),
                &[422],
                "VALIDATION_FAILED",
            ),
            ("too long", JSON, vec![b' '; 5 << 20], &[413], "BODY_TOO_LARGE"),
            ("XML", "text/xml", b"<a/>".to_vec(), &[415], "UNSUPPORTED_MEDIA_TYPE"),
            ("a form", FORM, b"name=a".to_vec(), &[415], "UNSUPPORTED_MEDIA_TYPE"),
        ] {
            let got = Raw::new("POST", path).header("Authorization", &admin).body(kind, body).send(&server).await;
            wrong.hold(&format!("{path}: {what}"), &got, (statuses, code));
        }
    }
    wrong.none();
    login(&server, "admin", PASSWORD).await;
}
