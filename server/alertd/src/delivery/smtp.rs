//! An SMTP session: connects to an address that `egress` allows, starts TLS, authenticates, and hands over the mail.

mod helo;

use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::{
    AsyncSmtpConnection, Certificate, CertificateStore, Identity, TlsParameters, TlsVersion,
};
use lettre::transport::smtp::commands::{Data, Ehlo};
use lettre::transport::smtp::extension::{ClientId, Extension};
use lettre::transport::smtp::response::Response;
use lettre::transport::smtp::{Error, extension::ServerInfo};
use md5::Md5;
use quiver_alerting::options::Options;
use tokio::net::TcpStream;
use tokio::time::timeout;

use self::helo::Helo;
use super::files::Files;
use super::kinds::Mail;
use super::message::Failure;
use crate::egress::Egress;

/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The port that is encrypted from the first byte on.
const IMPLICIT_TLS_PORT: u16 = 465;

/// Hands a mail to the server that `options` name.
pub(super) async fn send(mail: &Mail, options: &Options, files: &Files, egress: &Egress) -> Result<(), Failure> {
    let (host, port) = place(options.text("smarthost"))?;
    let hello =
        ClientId::Domain(Some(options.text("hello")).filter(|h| !h.is_empty()).unwrap_or("localhost").to_owned());
    let implicit = if options.is_given("force_implicit_tls") {
        options.truth("force_implicit_tls")
    } else {
        port == IMPLICIT_TLS_PORT
    };
    let tls = if implicit || options.truth("require_tls") { Some(tls(&host, options, files)?) } else { None };
    let addresses = egress.resolve(&host, port).await.map_err(|e| match e.kind() {
        std::io::ErrorKind::PermissionDenied => Failure::lasting(e.to_string()),
        _ => Failure::passing(format!("cannot resolve the mail server: {e}")),
    })?;
    let (mut connection, greeting) = connect(&addresses, &hello, tls.clone().filter(|_| implicit)).await?;
    let outcome = async {
        if let Some(tls) = tls.filter(|_| !implicit) {
            encrypt(&mut connection, tls, &hello).await?;
        }
        if greeting == Greeting::Ehlo {
            identify(&mut connection, options, files, &hello).await?;
        }
        hand_over(&mut connection, mail).await
    };
    let outcome = outcome.await;
    match &outcome {
        // The mail is taken, whatever the server says to our leaving.
        Ok(()) => drop(connection.quit().await),
        Err(_) => connection.abort().await,
    }
    outcome
}

fn place(smarthost: &str) -> Result<(String, u16), Failure> {
    let bad = || Failure::lasting(format!("`smarthost` {smarthost:?} is no host and port"));
    let (host, port) = smarthost.rsplit_once(':').ok_or_else(bad)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let port = match port {
        "smtp" => 25,
        "submission" => 587,
        "submissions" | "smtps" => IMPLICIT_TLS_PORT,
        number => number.parse().map_err(|_| bad())?,
    };
    Ok((if host.is_empty() { "localhost".to_owned() } else { host.to_owned() }, port))
}

/// Tells what went wrong without the words of the server.
fn refused(step: &str, error: &Error) -> Failure {
    let why = match error.status() {
        Some(code) => format!("status {code}"),
        None if error.is_timeout() => "no answer in time".to_owned(),
        None if error.is_tls() => format!("TLS: {}", cause(error)),
        None if error.is_response() => "not understood".to_owned(),
        None => cause(error),
    };
    Failure {
        status: error.status().and_then(|code| code.to_string().parse().ok()),
        ..Failure::passing(format!("{step}: {why}"))
    }
}

fn cause(error: &Error) -> String {
    let mut last: &dyn std::error::Error = error;
    while let Some(inner) = last.source() {
        last = inner;
    }
    last.to_string()
}

/// How a server was greeted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Greeting {
    /// With the question what it knows.
    Ehlo,
    /// As one that knows no extensions, and so no way to identify.
    Helo,
}

async fn connect(
    addresses: &[SocketAddr],
    hello: &ClientId,
    tls: Option<TlsParameters>,
) -> Result<(AsyncSmtpConnection, Greeting), Failure> {
    let failed = |e: &Error| refused("cannot connect to the mail server", e);
    let is_plain = tls.is_none();
    match AsyncSmtpConnection::connect_tokio1(addresses, Some(CONNECT_TIMEOUT), hello, tls, None).await {
        Ok(connection) => Ok((connection, Greeting::Ehlo)),
        // RFC 5321 section 4.1.4: a server that refuses EHLO may be one of RFC 821.
        Err(e) if is_plain && e.is_permanent() => {
            let stream = match timeout(CONNECT_TIMEOUT, TcpStream::connect(addresses)).await {
                Ok(stream) => stream,
                Err(late) => Err(late.into()),
            };
            let stream = stream.map_err(|e| Failure::passing(format!("cannot connect to the mail server: {e}")))?;
            let greeted = AsyncSmtpConnection::connect_with_transport(Box::new(Helo::new(stream)), hello).await;
            Ok((greeted.map_err(|e| failed(&e))?, Greeting::Helo))
        }
        Err(e) => Err(failed(&e)),
    }
}

async fn encrypt(connection: &mut AsyncSmtpConnection, tls: TlsParameters, hello: &ClientId) -> Result<(), Failure> {
    if !connection.can_starttls() {
        let why = "`require_tls` is true (default) but the mail server does not advertise the STARTTLS extension";
        return Err(Failure::passing(why));
    }
    connection.starttls(tls, hello).await.map_err(|e| refused("STARTTLS", &e))
}

async fn hand_over(connection: &mut AsyncSmtpConnection, mail: &Mail) -> Result<(), Failure> {
    let is_ascii = mail.to.iter().chain([&mail.from]).all(|address| address.is_ascii());
    if !is_ascii && !supports(connection.server_info(), Extension::SmtpUtfEight) {
        return Err(Failure::lasting("the mail server takes no addresses beyond ASCII"));
    }
    let parameter = if is_ascii { "" } else { " SMTPUTF8" };
    let from = format!("MAIL FROM:<{}>{parameter}\r\n", mail.from);
    connection.command(from).await.map_err(|e| refused("MAIL", &e))?;
    for to in &mail.to {
        connection.command(format!("RCPT TO:<{to}>\r\n")).await.map_err(|e| refused("RCPT", &e))?;
    }
    connection.command(Data).await.map_err(|e| refused("DATA", &e))?;
    // The end of a mail brings a line end of its own.
    let data = mail.data.strip_suffix(b"\r\n").unwrap_or(&mail.data);
    connection.message(data).await.map_err(|e| refused("delivery failure", &e))?;
    Ok(())
}

fn supports(server: &ServerInfo, extension: Extension) -> bool {
    server.supports_feature(extension)
}

/// Says who we are, by the first of the server's ways that we know and have secrets for.
async fn identify(
    connection: &mut AsyncSmtpConnection,
    options: &Options,
    files: &Files,
    hello: &ClientId,
) -> Result<(), Failure> {
    let user = options.text("auth_username");
    if user.trim().is_empty() {
        return Ok(());
    }
    // Once more, for the order of the ways and those that the client library does not know.
    let answer = connection.command(Ehlo::new(hello.clone())).await.map_err(|e| refused("EHLO", &e))?;
    let Some(ways) = ways(&answer) else { return Ok(()) };
    let password = files.secret(options, "auth_password").map_err(Failure::lasting)?;
    let secret = files.secret(options, "auth_secret").map_err(Failure::lasting)?;
    let failed = |way: &str, e: &Error| Failure { reason: "authError", ..refused(&format!("{way} auth"), e) };
    let mut lacking = Vec::new();
    for way in ways.split_whitespace() {
        match way {
            "CRAM-MD5" if secret.is_empty() => lacking.push("missing secret for CRAM-MD5 auth mechanism"),
            "PLAIN" if password.is_empty() => lacking.push("missing password for PLAIN auth mechanism"),
            "LOGIN" if password.is_empty() => lacking.push("missing password for LOGIN auth mechanism"),
            "CRAM-MD5" => return cram_md5(connection, user, &secret).await.map_err(|e| failed(way, &e)),
            "PLAIN" => {
                if !connection.is_encrypted() && !is_local(options.text("smarthost")) {
                    return Err(Failure {
                        reason: "authError",
                        ..Failure::passing("PLAIN auth: unencrypted connection")
                    });
                }
                let text = format!("{}\u{0}{user}\u{0}{password}", options.text("auth_identity"));
                let line = format!("AUTH PLAIN {}\r\n", BASE64_STANDARD.encode(text));
                return connection.command(line).await.map(drop).map_err(|e| failed(way, &e));
            }
            "LOGIN" => {
                let credentials = Credentials::new(user.to_owned(), password);
                let said = connection.auth(&[Mechanism::Login], &credentials).await;
                return said.map(drop).map_err(|e| failed(way, &e));
            }
            _ => {}
        }
    }
    let why = if lacking.is_empty() { format!("unknown auth mechanism: {ways}") } else { lacking.join("; ") };
    Err(Failure { reason: "authError", ..Failure::passing(format!("find auth mechanism: {why}")) })
}

/// Gives the ways to identify that an answer to EHLO names, in its order.
fn ways(answer: &Response) -> Option<String> {
    answer.message().skip(1).find_map(|line| line.strip_prefix("AUTH ").map(str::to_owned))
}

fn is_local(smarthost: &str) -> bool {
    place(smarthost).is_ok_and(|(host, _)| matches!(host.as_str(), "localhost" | "127.0.0.1" | "::1"))
}

async fn cram_md5(connection: &mut AsyncSmtpConnection, user: &str, secret: &str) -> Result<(), Error> {
    let asked = connection.command("AUTH CRAM-MD5\r\n").await?;
    let challenge = asked.first_word().and_then(|text| BASE64_STANDARD.decode(text).ok()).unwrap_or_default();
    let mut mac = Hmac::<Md5>::new_from_slice(secret.as_bytes()).expect("any length will do");
    mac.update(&challenge);
    let digest = quiver_types::hex(&mac.finalize().into_bytes());
    connection.command(format!("{}\r\n", BASE64_STANDARD.encode(format!("{user} {digest}")))).await.map(drop)
}

fn tls(host: &str, options: &Options, files: &Files) -> Result<TlsParameters, Failure> {
    let unusable = |e: Error| Failure::lasting(format!("`tls_config`: {e}"));
    let Some(config) = options.object("tls_config") else {
        return TlsParameters::new(host.to_owned()).map_err(unusable);
    };
    let name = Some(config.text("server_name")).filter(|n| !n.is_empty()).unwrap_or(host);
    let mut builder = TlsParameters::builder(name.to_owned());
    let text = |field: &str| files.secret(config, field).map_err(Failure::lasting);
    let (ca, cert, key) = (text("ca")?, text("cert")?, text("key")?);
    if !ca.is_empty() {
        builder = builder.certificate_store(CertificateStore::None);
        builder = builder.add_root_certificate(Certificate::from_pem(ca.as_bytes()).map_err(unusable)?);
    }
    if !cert.is_empty() {
        let der = der_of(&cert).ok_or_else(|| Failure::lasting("`tls_config.cert` holds no certificate"))?;
        builder = builder.identify_with(Identity::from_pem(&der, key.as_bytes()).map_err(unusable)?);
    }
    if config.text("min_version") == "TLS13" {
        builder = builder.set_min_tls_version(TlsVersion::Tlsv13);
    }
    let skip = config.truth("insecure_skip_verify");
    builder = builder.dangerous_accept_invalid_certs(skip).dangerous_accept_invalid_hostnames(skip);
    builder.build().map_err(unusable)
}

/// Gives the first certificate of a text: the client library takes it as it stands on the wire.
fn der_of(pem: &str) -> Option<Vec<u8>> {
    let text = pem.split("-----BEGIN CERTIFICATE-----").nth(1)?.split("-----END CERTIFICATE-----").next()?;
    BASE64_STANDARD.decode(text.split_whitespace().collect::<String>()).ok()
}

#[cfg(test)]
mod tests;
