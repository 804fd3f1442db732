//! TLS on every port, with curl, OpenSSL and reqwest as clients: versions, plaintext, files that change, client certificates.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use quiver_tests::server::{Options, Server, command, run};
use quiver_tests::time_limits::until;
use serde_json::{Value, json};

use crate::identity::{PASSWORD, signed_in};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("certificates").join(name)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn with_tls() -> Options {
    Options::default().tls(&fixture("server.pem"), &fixture("server.key"), &fixture("ca.pem"))
}

/// Runs curl, which knows the authority; gives its exit code and what it printed.
fn curl(args: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("curl");
    command.args(["-sS", "--max-time", "20", "--cacert", &shown(&fixture("ca.pem"))]).args(args);
    let (code, out, errors) = run(&mut command);
    (code, out + &errors)
}

#[tokio::test(flavor = "multi_thread")]
async fn every_port_speaks_it() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_tls().env("QUIVER_TRACES__ZIPKIN_LISTEN", "127.0.0.1:0");
    let server = Server::start(dir.path(), &options).await;
    for at in [&server.http, &server.otlp_http, &server.zipkin] {
        let port = at.rsplit(':').next().expect("a port");
        for host in ["localhost", "127.0.0.1"] {
            let (code, said) = curl(&["-D-", &format!("https://{host}:{port}/health/ready")]);
            assert!(code == Some(0) && said.contains("HTTP/2 200") && said.contains("ready"), "{at}: {said}");
            assert!(said.contains("strict-transport-security: max-age="), "{said}");
        }
    }
    let url = server.url("/health/ready");
    assert!(curl(&["--http1.1", "-D-", &url]).1.contains("HTTP/1.1 200"));
    assert_eq!(curl(&["--tls-max", "1.2", &url]).0, Some(0), "TLS 1.2 is spoken");
    assert_ne!(curl(&["--tls-max", "1.1", "--ciphers", "DEFAULT:@SECLEVEL=0", &url]).0, Some(0), "TLS 1.1 is not");
    assert_eq!(curl(&["--cacert", &shown(&fixture("stranger.pem")), &url]).0, Some(60), "an authority unknown to us");
    // gRPC: h2 by ALPN, then a call with an empty request, whose answer is an empty message.
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", &server.otlp_grpc, "-alpn", "h2", "-verify_return_error", "-CAfile"]);
    let (code, said, errors) = run(openssl.arg(fixture("ca.pem")));
    assert!(code == Some(0) && said.contains("ALPN protocol: h2"), "{said}{errors}");
    let grpc = format!("https://{}/opentelemetry.proto.collector.logs.v1.LogsService/Export", server.otlp_grpc);
    let frame = dir.path().join("frame");
    std::fs::write(&frame, [0; 5]).expect("writable");
    let body = format!("@{}", shown(&frame));
    let call = ["-D-", "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", &body, &grpc];
    let (code, said) = curl(&call);
    assert!(code == Some(0) && said.contains("HTTP/2 200") && said.contains("content-length: 5"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn plaintext_is_told_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_tls()).await;
    for at in [&server.http, &server.otlp_http, &server.otlp_grpc] {
        let (code, said) = curl(&["-D-", &format!("http://{at}/health/ready")]);
        assert!(code == Some(0) && said.contains("400 Bad Request") && said.contains("use https://"), "{said}");
        let (_, said) = curl(&["--http2-prior-knowledge", &format!("http://{at}/health/ready")]);
        assert!(!said.contains("ready"), "{said}");
    }
    // What is neither ends, too, and none of it disturbs others.
    for bytes in [&b"\0\0\0\0"[..], b"\x16\x03\x01\xff\xff", b"\x16", b"\x16garbage and more of it"] {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let mut socket = tokio::net::TcpStream::connect(&server.http).await.expect("it listens");
        socket.write_all(bytes).await.expect("sent");
        socket.shutdown().await.expect("ended");
        let mut answer = Vec::new();
        let ended = tokio::time::timeout(Duration::from_mins(5), socket.read_to_end(&mut answer)).await;
        assert!(ended.is_ok(), "{bytes:?}: the connection stays");
    }
    assert_eq!(server.get("/health/ready").await.status, 200);
}

/// The certificate that a server shows.
fn certificate_of(server: &Server) -> String {
    let mut openssl = Command::new("openssl");
    let (_, said, errors) = run(openssl.args(["s_client", "-connect", &server.http]));
    let from = said.find("-----BEGIN").unwrap_or_else(|| panic!("no certificate: {said}{errors}"));
    let end = said.find("-----END").expect("its end");
    said[from..end].to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_read_anew() {
    let dir = tempfile::tempdir().expect("a folder");
    let (certificate, key, log) = (dir.path().join("c.pem"), dir.path().join("k.pem"), dir.path().join("log"));
    let put = |from: &str| {
        std::fs::copy(fixture(&format!("{from}.pem")), &certificate).expect("copied");
        std::fs::copy(fixture(&format!("{from}.key")), &key).expect("copied");
    };
    put("server");
    let options = Options::default().tls(&certificate, &key, &fixture("ca.pem")).log_to(&log);
    let server = Server::start(&dir.path().join("data"), &options.env("QUIVER_TLS__RELOAD_INTERVAL", "1h")).await;
    let reload = || server.post("/admin/reload", &[], vec![]);
    let first = certificate_of(&server);
    assert_eq!(reload().await.json()["applied"], json!([]));
    put("server2");
    assert_eq!(certificate_of(&server), first, "nothing asked for it yet");
    assert_eq!(reload().await.json()["applied"], json!(["tls"]));
    let second = certificate_of(&server);
    assert_ne!(second, first);
    // A key that does not fit changes nothing, and says why.
    std::fs::copy(fixture("server.key"), &key).expect("copied");
    let refused = reload().await;
    assert!(refused.status == 400 && refused.text().contains("tls.key_file"), "{}", refused.text());
    assert_eq!(certificate_of(&server), second);
    put("server");
    server.hangup();
    until("SIGHUP has the file read", async || certificate_of(&server) == first).await;
    drop(server);
    // By itself.
    let options = Options::default().tls(&certificate, &key, &fixture("ca.pem")).log_to(&log);
    let server = Server::start(&dir.path().join("data"), &options.env("QUIVER_TLS__RELOAD_INTERVAL", "50ms")).await;
    std::fs::write(&certificate, "half").expect("writable");
    until("a broken file is told of", async || {
        std::fs::read_to_string(&log).unwrap_or_default().contains("the old ones stay")
    })
    .await;
    assert_eq!(certificate_of(&server), first);
    put("server2");
    until("a change is seen", async || certificate_of(&server) == second).await;
    assert_eq!(server.get("/health/ready").await.status, 200);
}

#[test]
fn a_start_says_what_is_wrong() {
    let dir = tempfile::tempdir().expect("a folder");
    let check = |args: &[&str], expected: &[&str]| {
        let (code, _, errors) = run(&mut command(dir.path(), &Options::default().args(args)));
        assert_eq!(code, Some(1), "{args:?}: {errors}");
        for part in expected {
            assert!(errors.contains(part), "{args:?}: no `{part}` in {errors}");
        }
    };
    let file = |name: &str| shown(&fixture(name));
    let (certificate, key, text) = (file("server.pem"), file("server.key"), file("README.md"));
    check(&["--tls-cert", &certificate], &["tls.certificate_file", "tls.key_file", "together"]);
    check(&["--tls-cert", "no-such.pem", "--tls-key", &key], &["no-such.pem", "tls.certificate_file", "No such file"]);
    check(&["--tls-cert", &text, "--tls-key", &key], &["README.md", "tls.certificate_file", "no certificate"]);
    check(&["--tls-cert", &certificate, "--tls-key", &certificate], &["server.pem", "tls.key_file", "private key"]);
    check(&["--tls-cert", &certificate, "--tls-key", &file("server2.key")], &["server2.key", "cannot be used with"]);
    let required = Options::default().args(&["--rbac", "on"]).env("QUIVER_TLS__REQUIRED", "true");
    let required = required.env("QUIVER_TRACES__ZIPKIN_LISTEN", "0.0.0.0:0");
    let (code, _, errors) = run(&mut command(dir.path(), &required));
    assert!(code == Some(1) && errors.contains("tls.required"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_clients() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_tls()
        .args(&["--rbac", "on"])
        .env("QUIVER_ADMIN_PASSWORD", PASSWORD)
        .env("QUIVER_TLS__CLIENT_CA_FILE", fixture("ca.pem").display());
    let server = Server::start(dir.path(), &options).await;
    let discovery = server.get("/realms/platform/.well-known/openid-configuration").await.json();
    assert_eq!(discovery["issuer"], json!(format!("https://{}/realms/platform", server.http)));
    let admin = signed_in(&server, "admin").await;
    let call = async |method: &str, path: &str, body: Value| {
        let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
        server.send(method, &format!("/platform-api/rbac/{path}"), &headers, body.to_string().into_bytes()).await
    };
    let account = call("POST", "service-accounts", json!({"clientId": "edge-agent"})).await;
    assert_eq!(account.status, 201, "{}", account.text());
    let id = account.json()["id"].as_str().expect("an id").to_owned();
    let roles = server.get_as("/platform-api/rbac/roles?name=viewer", &[("authorization", &admin)]).await.json();
    let subject = json!({"type": "serviceAccount", "id": id});
    let binding = json!({"subject": subject, "roleId": roles["items"][0]["id"], "services": ["cart"]});
    assert_eq!(call("POST", "bindings", binding).await.status, 201);

    let me = server.url("/platform-api/rbac/me");
    let with = |name: &str, more: &[&str]| {
        let (certificate, key) = (shown(&fixture(&format!("{name}.pem"))), shown(&fixture(&format!("{name}.key"))));
        let args = [&["-w", " %{http_code}", "--cert", &certificate, "--key", &key, &me][..], more].concat();
        curl(&args)
    };
    let (_, said) = with("client", &[]);
    let body: Value = serde_json::from_str(said.trim_end_matches(" 200")).unwrap_or_else(|e| panic!("{e}: {said}"));
    assert_eq!(
        (&body["subject"], &body["services"]),
        (&json!({"type": "serviceAccount", "id": id, "name": "edge-agent"}), &json!(["cart"]))
    );
    // What the request says comes first, even where it is wrong.
    assert!(with("client", &["-H", "Authorization: Bearer a.b.c"]).1.ends_with(" 401"));
    assert!(with("client", &["-H", &format!("Authorization: {admin}")]).1.contains("\"admin\""));
    for name in ["nameless", "two-names"] {
        assert!(with(name, &[]).1.ends_with(" 401"), "{name}");
    }
    assert_ne!(with("stranger", &[]).0, Some(0), "an authority of its own");
    assert!(curl(&["-w", " %{http_code}", &me]).1.ends_with(" 401"), "none is needed for public paths, but for this");
    assert_eq!(call("PATCH", &format!("service-accounts/{id}"), json!({"enabled": false})).await.status, 200);
    assert!(with("client", &[]).1.ends_with(" 401"), "a disabled account");
}

/// A refusal comes before the body is read: who sends one over HTTP/2 is told so all the same.
#[tokio::test(flavor = "multi_thread")]
async fn refusals_reach_who_is_still_sending() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_tls().args(&["--rbac", "on"]).env("QUIVER_ADMIN_PASSWORD", PASSWORD);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let file = dir.path().join("body");
    // As much as may come unasked by a server with little memory.
    for bytes in [20, 60_000] {
        std::fs::write(&file, " ".repeat(bytes)).expect("writable");
        let body = format!("@{}", shown(&file));
        for path in ["/olap-api/v1/load", "/v1/logs"] {
            let url = server.url(path);
            for _ in 0..10 {
                let (code, said) = curl(&["-H", "content-type: application/json", "--data-binary", &body, &url]);
                assert!(code == Some(0) && said.contains("TOKEN_MISSING"), "{bytes} bytes to {path}: {code:?} {said}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_of_a_server_with_tls() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_tls().args(&["--rbac", "on"]).env("QUIVER_ADMIN_PASSWORD", PASSWORD);
    let server = Server::start(&dir.path().join("data"), &options).await;
    let admin = signed_in(&server, "admin").await;
    let me = server.get_as("/platform-api/rbac/me", &[("authorization", &admin)]).await.json();
    let path = format!("/platform-api/rbac/users/{}/keys", me["subject"]["id"].as_str().expect("an id"));
    let headers = [("authorization", admin.as_str()), ("content-type", "application/json")];
    let key = server.post(&path, &headers, json!({"name": "backup"}).to_string().into_bytes()).await.json();
    let (file, place) = (dir.path().join("key"), shown(&dir.path().join("backups")));
    std::fs::write(&file, key["key"].as_str().expect("a key")).expect("writable");
    let authority = shown(&fixture("ca.pem"));
    let url = format!("https://{}", server.http);
    let backup = |more: &[&str]| {
        let mut quiver = Command::new(quiver_tests::server::binary());
        run(quiver.args(["backup", "--to", &place, "--server", &url, "--data", "none"]).args(more))
    };
    let (code, out, errors) = backup(&["--ca-file", &authority, "--key-file", &shown(&file)]);
    assert!(code == Some(0) && Path::new(&place).is_dir(), "{out}{errors}");
    let (code, _, errors) = backup(&["--ca-file", &authority]);
    assert!(code == Some(1) && errors.contains("401") && errors.contains("--key-file"), "{errors}");
    let (code, _, errors) = backup(&["--key-file", &shown(&file)]);
    assert!(code == Some(1) && errors.contains("does not answer"), "{errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_of_clients_may_be_required() {
    let dir = tempfile::tempdir().expect("a folder");
    let options = with_tls()
        .env("QUIVER_TLS__CLIENT_CA_FILE", fixture("ca.pem").display())
        .env("QUIVER_TLS__CLIENT_REQUIRED", "true");
    let server = Server::spawn(dir.path(), &options).expect("it listens");
    let url = server.url("/health/live");
    let (certificate, key) = (shown(&fixture("client.pem")), shown(&fixture("client.key")));
    until("who has a certificate is let in", async || {
        curl(&["--cert", &certificate, "--key", &key, &url]) == (Some(0), "live\n".to_owned())
    })
    .await;
    assert_ne!(curl(&[&url]).0, Some(0));
}
