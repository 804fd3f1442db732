//! Who may act as an operator, over raw sockets: requests as browsers, proxies and strangers would send them.

use std::io::{Read, Write};
use std::net::TcpStream;

use quiver_tests::server::{Options, Server};

/// Sends a request as it is; gives the status and the text of the answer.
fn send(server: &Server, request: &str, headers: &[&str]) -> (u16, String) {
    let mut stream = TcpStream::connect(&server.http).expect("it listens");
    let headers: String = headers.iter().map(|h| format!("{h}\r\n")).collect();
    let text = format!("{request} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: 0\r\n\r\n");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let status = answer.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
    (status, answer)
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_and_proxies_are_no_operators() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = Options::default().env("QUIVER_HTTP__CORS_ORIGINS", "[\"https://ops.example\"]");
    let server = Server::start(dir.path(), &options).await;
    let port = server.http.rsplit(':').next().expect("a port").to_owned();
    let (own, rebound) = (format!("Host: localhost:{port}"), format!("Host: evil.example:{port}"));
    let own_page = format!("Origin: http://localhost:{port}");
    let rebound_page = format!("Origin: http://evil.example:{port}");
    let check = |request: &str, headers: &[&str], expected: u16| {
        let (status, answer) = send(&server, request, headers);
        assert_eq!(status, expected, "{request} {headers:?}: {answer}");
        assert!(answer.to_ascii_lowercase().contains("x-request-id: "), "{answer}");
    };
    for request in ["POST /admin/flush", "GET /admin/queries", "POST /admin/reload"] {
        check(request, &[&format!("Host: {}", server.http)], 200);
        check(request, &[&own], 200);
        check(request, &[&own, &own_page], 200);
        check(request, &[&own, "Origin: https://ops.example"], 200);
        check(request, &[&own, "Origin: https://evil.example"], 403);
        check(request, &[&own, "Origin: null"], 403);
        check(request, &[&own, "Sec-Fetch-Site: cross-site"], 403);
        check(request, &[&rebound], 403);
        check(request, &[&rebound, &rebound_page], 403);
        check(request, &[&own, "X-Forwarded-For: 192.0.2.7"], 403);
        check(request, &[&own, "Forwarded: for=192.0.2.7"], 403);
    }
    // What is no browser writes under any name; a page writes only where it may.
    let write = "POST /insert/jsonline";
    check(write, &["Host: x"], 200);
    check(write, &["Host: x", "X-Forwarded-For: 192.0.2.7"], 200);
    check(write, &[&own, "Origin: https://ops.example"], 200);
    check(write, &[&own, "Origin: https://evil.example"], 403);
    check(write, &[&rebound, &rebound_page], 403);
    check("POST /metrics-api/api/v1/query?query=1", &[&own, "Origin: https://evil.example"], 200);
    let (_, answer) = send(&server, "GET /admin/queries", &[&rebound]);
    assert!(answer.contains("`http.hosts`"), "it says what to set: {answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_lets_operators_in_through_proxies() {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("token");
    std::fs::write(&file, "s3cret-token\n").expect("writable");
    let options = Options::default().env("QUIVER_HTTP__ADMIN_TOKEN_FILE", file.display());
    let server = Server::start(&dir.path().join("data"), &options).await;
    let list = |headers: &[&str]| send(&server, "GET /admin/queries", headers).0;
    let proxied = ["Host: quiver.example", "X-Forwarded-For: 192.0.2.7"];
    assert_eq!(list(&[&proxied[..], &["Authorization: Bearer s3cret-token"]].concat()), 200);
    assert_eq!(list(&proxied), 401);
    assert_eq!(list(&["Host: localhost"]), 401);
    assert_eq!(list(&["Host: localhost", "Authorization: Bearer s3cret-tokem"]), 401);
    let settings = server.get("/metrics-api/api/v1/status/flags").await.text();
    assert!(!settings.contains("s3cret"), "{settings}");
    std::fs::remove_file(&file).expect("there");
    let refused = server.send("POST", "/admin/reload", &[("authorization", "Bearer s3cret-token")], vec![]).await;
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert_eq!(list(&["Host: localhost", "Authorization: Bearer s3cret-token"]), 200, "the old one stays");
}
