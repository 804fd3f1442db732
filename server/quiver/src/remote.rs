//! What the command line asks a running server for.

use quiver_store::{BackupReport, BackupRequest};
use quiver_types::{Error, ErrorKind, Result};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Lets the server that listens at `address` make a backup, and waits for it. `token` is what its `/admin` asks for, if
/// anything.
///
/// # Errors
/// Unavailable: nobody answers there. Execution: what the server said.
pub async fn backup(address: &str, token: Option<&str>, request: &BackupRequest) -> Result<BackupReport> {
    let body = json!({"to": request.to, "keep": request.keep}).to_string();
    let answer = post(address, token, "/admin/backup", &body).await.map_err(|e| {
        Error::new(ErrorKind::Unavailable, format!("the server at `{address}` does not answer")).with_source(e)
    })?;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        return Err(Error::new(ErrorKind::Execution, format!("the server answered {status}: {}", body.trim())));
    }
    serde_json::from_str(body)
        .map_err(|e| Error::internal("the server's answer is no report of a backup").with_source(e))
}

/// One request of HTTP/1.0, whose answer ends with the connection: head and body as they came.
async fn post(address: &str, token: Option<&str>, path: &str, body: &str) -> std::io::Result<String> {
    let address = address.trim_start_matches("http://").trim_end_matches('/');
    let mut socket = TcpStream::connect(address).await?;
    let authorization = token.map(|token| format!("Authorization: Bearer {token}\r\n")).unwrap_or_default();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: {address}\r\n{authorization}Content-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    Ok(answer)
}
