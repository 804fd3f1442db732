use std::sync::{Arc, Mutex};

use quiver_types::Network;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;

use super::super::kinds::mail;
use super::super::tests::{integration, told};
use super::*;

/// A mail server without encryption that answers `refuse` with 550; gives its address and what clients said.
async fn server(extensions: &'static str, refuse: &'static str) -> (u16, Arc<Mutex<Vec<String>>>) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = socket.local_addr().unwrap().port();
    let said = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&said);
    tokio::spawn(async move {
        loop {
            let Ok((peer, _)) = socket.accept().await else { return };
            let mut peer = BufReader::new(peer);
            peer.write_all(b"220 here\r\n").await.unwrap();
            let (mut line, mut in_data) = (String::new(), false);
            while peer.read_line(&mut line).await.is_ok_and(|n| n > 0) {
                let text = std::mem::take(&mut line);
                kept.lock().unwrap().push(text.trim_end().to_owned());
                let answer = match text.split_whitespace().next().unwrap_or("") {
                    _ if in_data && text != ".\r\n" => continue,
                    "." => "250 taken".to_owned(),
                    word if word == refuse => "550 s3cret words".to_owned(),
                    "EHLO" => format!("250-here\r\n{extensions}250 PIPELINING"),
                    "AUTH" if text.contains("CRAM-MD5") => format!("334 {}", BASE64_STANDARD.encode("<1@here>")),
                    "AUTH" if text.contains("LOGIN") => format!("334 {}", BASE64_STANDARD.encode("Username:")),
                    "bWU=" => format!("334 {}", BASE64_STANDARD.encode("Password:")),
                    "DATA" => "354 go on".to_owned(),
                    _ => "250 well".to_owned(),
                };
                in_data = text.starts_with("DATA") && answer.starts_with('3');
                if peer.write_all(format!("{answer}\r\n").as_bytes()).await.is_err() {
                    break;
                }
            }
        }
    });
    (port, said)
}

async fn try_send(port: u16, more: &str) -> Result<(), Failure> {
    let yaml = format!("{{to: 'a@b.example, c@d.example', from: q@b.example, smarthost: '127.0.0.1:{port}', {more}}}");
    let one = integration("email", &yaml);
    let egress = Egress { allow: vec![Network::parse("127.0.0.0/8").unwrap()], ..Egress::default() };
    send(&mail(&told(&[("a", true)]), &one)?, &one.options, &Files::default(), &egress).await
}

#[tokio::test]
async fn a_mail_is_taken() {
    let (port, said) = server("", "").await;
    try_send(port, "require_tls: false, hello: me.example, auth_username: u").await.unwrap();
    let said = said.lock().unwrap();
    assert_eq!(said[0], "EHLO me.example");
    let talk: Vec<&str> = said.iter().map(String::as_str).filter(|l| l.contains('<') && l.contains(":<")).collect();
    assert_eq!(talk, ["MAIL FROM:<q@b.example>", "RCPT TO:<a@b.example>", "RCPT TO:<c@d.example>"]);
    assert!(said.iter().any(|line| line == "To: a@b.example, c@d.example"));
    assert!(!said.iter().any(|line| line.starts_with("AUTH")), "the server asks for nothing");
}

#[tokio::test]
async fn a_server_of_old_is_greeted_as_such() {
    let (port, said) = server("", "EHLO").await;
    try_send(port, "require_tls: false, hello: me.example, auth_username: u, auth_password: p").await.unwrap();
    let talk: Vec<String> = said.lock().unwrap().drain(..).collect();
    assert_eq!(talk[..2], ["EHLO me.example", "QUIT"]);
    assert_eq!(talk[2..5], ["HELO me.example", "MAIL FROM:<q@b.example>", "RCPT TO:<a@b.example>"]);
    // It cannot encrypt, and gets nothing where that is asked for.
    let failure = try_send(port, "hello: me.example").await.unwrap_err();
    assert!(failure.text.contains("STARTTLS") && failure.may_retry, "{failure:?}");
}

#[tokio::test]
async fn ways_to_identify() {
    let check = async |extensions: &'static str, more: &str, expected: &str| {
        let (port, said) = server(extensions, "").await;
        try_send(port, &format!("require_tls: false, auth_username: me, {more}")).await.expect(more);
        let said = said.lock().unwrap().join("\n");
        assert!(said.contains(expected), "{expected} in {said}");
    };
    check("250-AUTH LOGIN PLAIN\r\n", "auth_password: p", "AUTH LOGIN\nbWU=\ncA==").await;
    check("250-AUTH PLAIN LOGIN\r\n", "auth_password: p, auth_identity: i", "AUTH PLAIN aQBtZQBw\n").await;
    // RFC 2195: HMAC-MD5 of the challenge under the secret.
    let answer = "AUTH CRAM-MD5\nbWUgNzBmNWQ2MTFkNGE0ZDdiZDFlYjViM2FjN2Q5ODU4NDg=\n";
    check("250-AUTH CRAM-MD5 PLAIN\r\n", "auth_secret: s", answer).await;
    let (port, _) = server("250-AUTH GSSAPI\r\n", "").await;
    let failure = try_send(port, "require_tls: false, auth_username: me, auth_password: p").await.unwrap_err();
    assert!(failure.text.contains("unknown auth mechanism: GSSAPI") && failure.reason == "authError", "{failure:?}");
    let (port, _) = server("250-AUTH PLAIN\r\n", "").await;
    let failure = try_send(port, "require_tls: false, auth_username: me").await.unwrap_err();
    assert!(failure.text.contains("missing password for PLAIN"), "{failure:?}");
}

#[tokio::test]
async fn what_goes_wrong_is_tried_again_without_words_of_the_server() {
    let (port, _) = server("", "RCPT").await;
    let failure = try_send(port, "require_tls: false").await.unwrap_err();
    assert_eq!((failure.status, failure.may_retry), (Some(550), true), "{failure:?}");
    assert!(failure.text.contains("RCPT: status 550") && !failure.text.contains("s3cret"), "{failure:?}");
    let (port, _) = server("250-AUTH PLAIN\r\n", "AUTH").await;
    let failure = try_send(port, "require_tls: false, auth_username: me, auth_password: p").await.unwrap_err();
    assert_eq!((failure.reason, failure.may_retry), ("authError", true));
    // A server that cannot encrypt gets nothing.
    let (port, said) = server("", "").await;
    let failure = try_send(port, "hello: x").await.unwrap_err();
    assert!(failure.text.contains("STARTTLS") && failure.may_retry, "{failure:?}");
    assert!(!said.lock().unwrap().iter().any(|line| line.starts_with("MAIL")));
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let failure = try_send(closed, "require_tls: false").await.unwrap_err();
    assert!(failure.may_retry && failure.text.contains("cannot connect"), "{failure:?}");
    // Not a byte goes where the guard is against it.
    let (port, said) = server("", "").await;
    let one = integration("email", &format!("{{to: a@b.example, from: q@b.example, smarthost: 'localhost:{port}'}}"));
    let mail = mail(&told(&[("a", true)]), &one).unwrap();
    let failure = send(&mail, &one.options, &Files::default(), &Egress::default()).await.unwrap_err();
    assert!(failure.text.contains("loopback") && !failure.may_retry, "{failure:?}");
    assert!(said.lock().unwrap().is_empty());
}
