//! Requests of the command line to a running server.

use std::path::Path;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamDecoder;
use quiver_store::{BackupReport, BackupRequest};
use quiver_types::{Error, ErrorKind, Result};
use reqwest::{Certificate, Client, Response, StatusCode, header};
use serde_json::Value;

/// Time limit for the connection. There is none for the work itself, such as a backup.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// A running server, and the credentials for it.
#[derive(Debug, Clone, Copy)]
pub struct Remote<'a> {
    /// `127.0.0.1:8800`, or a URL; `https://` for TLS.
    pub address: &'a str,
    /// Credentials for `/admin`: its own secret, an API key, or an access token.
    pub token: Option<&'a str>,
    /// PEM file with the authority of the server's certificate, if the system does not know it.
    pub authority: Option<&'a Path>,
}

impl Remote<'_> {
    /// Makes the server create a backup, and waits for it.
    ///
    /// # Errors
    /// Unavailable: the server cannot be reached. Execution: the error that the server returned. Invalid: the file of
    /// the authority.
    pub async fn backup(&self, request: &BackupRequest) -> Result<BackupReport> {
        let unreached = |e| self.unreached(e);
        let body = serde_json::json!({"to": request.to, "keep": request.keep});
        let mut asking = self.client()?.post(self.url("/admin/backup")).json(&body);
        if let Some(token) = self.token {
            asking = asking.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = asking.send().await.map_err(unreached)?;
        let (status, text) = (answer.status(), answer.text().await.map_err(unreached)?);
        if status != StatusCode::OK {
            let said = said(status, &text);
            return Err(Error::new(ErrorKind::Execution, format!("the server answered {status}: {said}")));
        }
        serde_json::from_str(&text)
            .map_err(|e| Error::internal("the server's answer is no report of a backup").with_source(e))
    }

    /// Runs a statement; `body` is that of `POST /sql-api/v1/query`.
    ///
    /// # Errors
    /// Unavailable: the server cannot be reached. Execution: the error that the server returned. Invalid: the file of
    /// the authority.
    pub async fn sql(&self, body: &Value) -> Result<RemoteRows> {
        let mut asking = self.client()?.post(self.url("/sql-api/v1/query?format=arrow")).json(body);
        if let Some(token) = self.token {
            asking = asking.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        let answer = asking.send().await.map_err(|e| self.unreached(e))?;
        let status = answer.status();
        let kind = answer.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let (is_rows, is_plan) = (kind == "application/vnd.apache.arrow.stream", kind == "application/json");
        if status == StatusCode::OK && is_rows {
            let (decoder, schema) = (StreamDecoder::new(), None);
            return Ok(RemoteRows::Rows(Box::new(Rows { answer, decoder, left: Buffer::default(), schema })));
        }
        let text = answer.text().await.map_err(|e| self.unreached(e))?;
        if status == StatusCode::OK
            && is_plan
            && let Ok(plan) = serde_json::from_str(&text)
        {
            return Ok(RemoteRows::Plan(plan));
        }
        if status == StatusCode::OK {
            let text = format!("what answers at `{}` is not the main port of a server", self.address);
            return Err(Error::new(ErrorKind::Execution, text));
        }
        Err(Error::new(ErrorKind::Execution, said(status, &text)))
    }

    fn unreached(&self, error: reqwest::Error) -> Error {
        let mut text = format!("the server at `{}` does not answer", self.address);
        if let Some(hint) = tls_hint(&error) {
            text = format!("{text}: {hint}");
        }
        Error::new(ErrorKind::Unavailable, text).with_source(error.without_url())
    }

    fn url(&self, path: &str) -> String {
        let base = self.address.trim_end_matches('/');
        if base.contains("://") { format!("{base}{path}") } else { format!("http://{base}{path}") }
    }

    fn client(&self) -> Result<Client> {
        // The token is a secret that must go to this address only: no redirects, no proxies.
        let client =
            Client::builder().connect_timeout(CONNECT_WITHIN).redirect(reqwest::redirect::Policy::none()).no_proxy();
        let client = match self.authority {
            None => client,
            Some(path) => {
                let wrong = |why: String| Error::invalid(format!("`{}` (--ca-file): {why}", path.display()));
                let pem =
                    quiver_files::read_given(path, quiver_files::TEXT_BYTES_MAX).map_err(|e| wrong(e.to_string()))?;
                let all = Certificate::from_pem_bundle(&pem).map_err(|e| wrong(e.to_string()))?;
                if all.is_empty() {
                    return Err(wrong("it holds no certificate in PEM".to_owned()));
                }
                all.into_iter().fold(client, reqwest::ClientBuilder::add_root_certificate)
            }
        };
        client.build().map_err(|e| Error::internal("there is no TLS").with_source(e))
    }
}

/// What a server says of a request that it refused, and which flag helps.
fn said(status: StatusCode, text: &str) -> String {
    let problem: Value = serde_json::from_str(text).unwrap_or_default();
    let is_no_path = || ["404 page not found", "nothing is at this path"].iter().any(|told| text.contains(told));
    let hint = match status {
        StatusCode::UNAUTHORIZED => "; see --key-file",
        StatusCode::NOT_FOUND if is_no_path() => "; --server names the main port alone",
        _ => "",
    };
    format!("{}{hint}", problem["detail"].as_str().unwrap_or(text.trim()))
}

/// A hint for a failed handshake that another command line would avoid. The causes have no public types, so their texts
/// are compared.
fn tls_hint(error: &(dyn std::error::Error + 'static)) -> Option<&'static str> {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.map(ToString::to_string).find_map(|cause| match cause.as_str() {
        text if text.contains("InvalidContentType") => Some("it does not speak TLS; write `http://`"),
        text if text.contains("UnknownIssuer") => Some("name the authority of its certificate by --ca-file"),
        _ => None,
    })
}

/// The response of a server to a statement.
#[derive(Debug)]
pub enum RemoteRows {
    /// Rows, which are streamed.
    Rows(Box<Rows>),
    /// The plan of `EXPLAIN` as JSON.
    Plan(Value),
}

/// Streamed rows, as an Arrow IPC stream.
#[derive(Debug)]
pub struct Rows {
    answer: Response,
    decoder: StreamDecoder,
    left: Buffer,
    schema: Option<SchemaRef>,
}

impl Rows {
    /// The columns, once they are known.
    pub fn schema(&self) -> Option<SchemaRef> {
        self.schema.clone()
    }

    /// The next rows; `None` at the end.
    ///
    /// # Errors
    /// Execution: the response is truncated, which happens if the statement fails after rows were sent.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let broken = |e: &dyn std::fmt::Display| Error::new(ErrorKind::Execution, format!("the answer broke off: {e}"));
        loop {
            while !self.left.is_empty() {
                let batch = self.decoder.decode(&mut self.left).map_err(|e| broken(&e))?;
                if self.schema.is_none() {
                    self.schema = self.decoder.schema();
                }
                if batch.is_some() {
                    return Ok(batch);
                }
            }
            if let Some(piece) = self.answer.chunk().await.map_err(|e| broken(&e.without_url()))? {
                self.left = Buffer::from_vec(piece.to_vec());
            } else {
                self.decoder.finish().map_err(|e| broken(&e))?;
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |address, url: &str| {
            assert_eq!(Remote { address, token: None, authority: None }.url("/x"), url);
        };
        check("127.0.0.1:8800", "http://127.0.0.1:8800/x");
        check("http://h:1/", "http://h:1/x");
        check("https://h", "https://h/x");
    }

    #[test]
    fn authorities() {
        let client = |name: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/certificates").join(name);
            Remote { address: "h", token: None, authority: Some(&path) }.client()
        };
        assert!(client("ca.pem").is_ok());
        for bad in ["no-such.pem", "README.md"] {
            let error = client(bad).unwrap_err().to_string();
            assert!(error.contains("--ca-file") && error.contains(bad), "{error}");
        }
    }

    #[tokio::test]
    async fn nobody_there() {
        let remote = Remote { address: "127.0.0.1:1", token: None, authority: None };
        let request = BackupRequest { to: "x".to_owned(), keep: None };
        assert_eq!(remote.backup(&request).await.unwrap_err().kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn addresses_with_paths() {
        for (address, url) in [
            ("h", "http://h/x"),
            ("h///", "http://h/x"),
            ("[::1]:8800", "http://[::1]:8800/x"),
            ("https://h/quiver", "https://h/quiver/x"),
            ("https://h:1/quiver/", "https://h:1/quiver/x"),
        ] {
            assert_eq!(Remote { address, token: None, authority: None }.url("/x"), url, "{address}");
        }
    }

    /// Starts a server that answers each connection with these bytes; returns its address and the first request.
    async fn answering(answer: String) -> (String, tokio::sync::oneshot::Receiver<String>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let (tell, asked) = tokio::sync::oneshot::channel();
        tokio::spawn(async move {
            let Ok((mut stream, _)) = socket.accept().await else { return };
            let (mut asked, mut buffer) = (String::new(), [0; 4096]);
            // Unread data would reset the connection when it is closed.
            let is_whole = |asked: &str| {
                let (head, body) = asked.split_once("\r\n\r\n")?;
                let (_, length) = head.split_once("content-length: ")?;
                Some(body.len() >= length.split("\r\n").next()?.parse::<usize>().ok()?)
            };
            while is_whole(&asked) != Some(true) {
                let length = stream.read(&mut buffer).await.unwrap_or(0);
                if length == 0 {
                    break;
                }
                asked.push_str(&String::from_utf8_lossy(&buffer[..length]));
            }
            let _ = tell.send(asked);
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
        });
        (address, asked)
    }

    fn answer(status: &str, kind: &str, body: &str) -> String {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        )
    }

    #[tokio::test]
    async fn what_a_server_says_of_a_statement() {
        let ask = async |status: &str, kind: &str, body: &str| {
            let (address, asked) = answering(answer(status, kind, body)).await;
            let remote = Remote { address: &address, token: Some("s3cret"), authority: None };
            let found = remote.sql(&serde_json::json!({"query": "select 1"})).await;
            let asked = asked.await.unwrap().to_ascii_lowercase();
            assert!(asked.starts_with("post /sql-api/v1/query?format=arrow http/1.1\r\n"), "{asked}");
            assert!(asked.contains("authorization: bearer s3cret\r\n"), "{asked}");
            found
        };
        let json = "application/json";
        match ask("200 OK", json, "{\"plan\":[]}").await.unwrap() {
            RemoteRows::Plan(plan) => assert_eq!(plan, serde_json::json!({"plan": []})),
            RemoteRows::Rows(rows) => panic!("{rows:?}"),
        }
        for (status, body, expected) in [
            ("400 Bad Request", "{\"detail\":\"no column `x`\"}", "no column `x`"),
            ("401 Unauthorized", "{\"detail\":\"who are you\"}", "who are you; see --key-file"),
            ("404 Not Found", "404 page not found\n", "404 page not found; --server names the main port alone"),
            ("404 Not Found", "{\"detail\":\"there is no bucket\"}", "there is no bucket"),
            ("500 Internal Server Error", " out of order\n", "out of order"),
            ("503 Service Unavailable", "{\"title\":\"busy\"}", "{\"title\":\"busy\"}"),
        ] {
            let error = ask(status, json, body).await.unwrap_err();
            assert_eq!((error.kind, error.message.as_str()), (ErrorKind::Execution, expected), "{status}");
        }
    }

    /// Other ports may answer with 200, too, such as that of gRPC, whose errors are in headers.
    #[tokio::test]
    async fn ports_for_something_else() {
        for (kind, body) in [("application/grpc", ""), ("application/json", "<html>")] {
            let (address, _asked) = answering(answer("200 OK", kind, body)).await;
            let remote = Remote { address: &address, token: None, authority: None };
            let error = remote.sql(&Value::Null).await.unwrap_err();
            let expected = format!("what answers at `{address}` is not the main port of a server");
            assert_eq!((error.kind, error.message), (ErrorKind::Execution, expected), "{kind}");
        }
    }

    #[test]
    fn handshakes_that_a_flag_helps() {
        #[derive(Debug)]
        struct Outer(std::io::Error);
        impl std::fmt::Display for Outer {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("error sending request")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        for (cause, flag) in [
            ("received corrupt message of type InvalidContentType", Some("`http://`")),
            ("invalid peer certificate: UnknownIssuer", Some("--ca-file")),
            ("Connection refused", None),
        ] {
            let hint = tls_hint(&Outer(std::io::Error::other(cause)));
            assert!(hint.is_some() == flag.is_some() && hint.unwrap_or_default().contains(flag.unwrap_or_default()));
        }
    }

    /// A server without TLS answers a handshake in words, which are no handshake.
    #[tokio::test]
    async fn https_to_a_port_without_tls() {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("https://{}", socket.local_addr().unwrap());
        tokio::spawn(async move {
            use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
            let Ok((mut stream, _)) = socket.accept().await else { return };
            let _ = stream.read(&mut [0; 4096]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
            let _ = stream.shutdown().await;
        });
        let remote = Remote { address: &address, token: None, authority: None };
        let error = remote.sql(&Value::Null).await.unwrap_err();
        let expected = format!("the server at `{address}` does not answer: it does not speak TLS; write `http://`");
        assert_eq!((error.kind, error.message), (ErrorKind::Unavailable, expected));
    }

    /// A statement that fails after rows were sent truncates the response; one without rows has no columns.
    #[tokio::test]
    async fn answers_that_break_off() {
        for (body, is_whole) in [("", true), ("\u{7f}\u{0}\u{0}", false), ("no arrow at all", false)] {
            let (address, _asked) = answering(answer("200 OK", "application/vnd.apache.arrow.stream", body)).await;
            let remote = Remote { address: &address, token: None, authority: None };
            let RemoteRows::Rows(mut rows) = remote.sql(&Value::Null).await.unwrap() else { panic!("no rows") };
            match rows.next().await {
                Ok(batch) => assert!(is_whole && batch.is_none(), "{body:?}"),
                Err(error) => {
                    assert!(!is_whole && error.message.starts_with("the answer broke off: "), "{body:?}: {error}");
                    assert_eq!(error.kind, ErrorKind::Execution);
                }
            }
            assert!(rows.schema().is_none());
        }
    }

    #[tokio::test]
    async fn what_a_server_says_of_a_backup() {
        let ask = async |status: &str, body: &str| {
            let (address, asked) = answering(answer(status, "application/json", body)).await;
            let remote = Remote { address: &address, token: None, authority: None };
            let made = remote.backup(&BackupRequest { to: "x".to_owned(), keep: Some(2) }).await;
            assert!(!asked.await.unwrap().to_ascii_lowercase().contains("authorization"));
            made
        };
        let report =
            serde_json::to_string(&BackupReport { name: "b1".to_owned(), parts: 7, ..BackupReport::default() });
        let made = ask("200 OK", &report.unwrap()).await.unwrap();
        assert_eq!((made.name.as_str(), made.parts), ("b1", 7));
        let refused = ask("401 Unauthorized", "no\n").await.unwrap_err();
        assert_eq!(refused.message, "the server answered 401 Unauthorized: no; see --key-file");
        let detail = ask("403 Forbidden", "{\"detail\":\"this needs a right\"}").await.unwrap_err();
        assert_eq!(detail.message, "the server answered 403 Forbidden: this needs a right");
        let busy = ask("409 Conflict", "one runs").await.unwrap_err();
        assert_eq!(
            (busy.kind, busy.message.as_str()),
            (ErrorKind::Execution, "the server answered 409 Conflict: one runs")
        );
        assert_eq!(ask("200 OK", "[]").await.unwrap_err().kind, ErrorKind::Internal);
    }
}
