//! The start of a connection: TLS, startup parameters, authentication.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf as _, Bytes, BytesMut};
use futures::future::BoxFuture;
use pgwire::messages::Message as _;
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, ParameterStatus, SecretKey};
use quiver_auth::{Identity, Request as Asking, RequestCredentials, TokenError};
use quiver_sql::{DATABASE, Session};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::With;
use super::client_messages::{self, Message, STARTUP_BYTES_MAX};
use super::command::Settings;
use super::error::Fault;
use super::session::{Client, Connection};
use crate::body_memory::Share;
use crate::identity::anonymous::ANYONE;
use crate::serve::{Stream, accept};
use crate::state::AppState;

/// The first byte of a TLS connection.
const HANDSHAKE: u8 = 22;
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;
/// The protocol version 3.0.
const VERSION: u32 = 3 << 16;
/// How often a client may ask for encryption that is not available.
const ASKED_MAX: usize = 4;

/// Serves a connection until it ends. Boxed, so that all that it does is compiled in this crate alone.
pub(super) fn run(stream: TcpStream, peer: SocketAddr, with: With) -> BoxFuture<'static, ()> {
    Box::pin(serve(stream, peer, with))
}

async fn serve(stream: TcpStream, peer: SocketAddr, with: With) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%peer, %error, "cannot switch off Nagle's algorithm");
    }
    let until = Instant::now() + with.settings.header_timeout;
    let begun = tokio::select! {
        begun = timeout_at(until, begin(stream, peer, &with)) => begun,
        () = with.stop.cancelled() => return,
    };
    match begun {
        Ok(Ok(Some(connection))) => connection.run().await,
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%peer, %error, "connection ended before it began"),
        Err(_) => tracing::debug!(%peer, "connection did not begin in time"),
    }
}

/// Reports a fatal error.
async fn refuse(mut stream: Stream, fault: Fault) -> std::io::Result<Option<Connection>> {
    let mut out = BytesMut::new();
    fault.write(&mut out);
    stream.write_all(&out).await?;
    stream.shutdown().await?;
    Ok(None)
}

async fn begin(stream: TcpStream, peer: SocketAddr, with: &With) -> std::io::Result<Option<Connection>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 0 {
        return Ok(None);
    }
    let heads = &with.settings.heads;
    let mut stream = match (&with.tls, first[0] == HANDSHAKE) {
        (Some(tls), true) => Stream::Tls(Box::new(accept(&tls.postgres_acceptor(), stream, heads).await?)),
        _ => Stream::Plain(stream),
    };
    let mut share = with.kept.share();
    for _ in 0..ASKED_MAX {
        let mut body = client_messages::untyped(&mut stream, &mut share).await?;
        let code = body.get_u32();
        match code {
            CANCEL => {
                if body.len() == 8 {
                    with.cancels.cancel(body.get_i32(), body.get_i32());
                }
                return Ok(None);
            }
            TLS => {
                stream = match (stream, &with.tls) {
                    (Stream::Plain(mut plain), Some(tls)) => {
                        plain.write_all(b"S").await?;
                        // Messages are read without a buffer, so no plaintext sent before TLS can be taken for data
                        // that came encrypted.
                        Stream::Tls(Box::new(accept(&tls.postgres_acceptor(), plain, heads).await?))
                    }
                    (mut other, _) => {
                        other.write_all(b"N").await?;
                        other
                    }
                };
            }
            GSS => stream.write_all(b"N").await?,
            _ if code >> 16 == 3 => return start((stream, &mut share), peer, with, code, body).await,
            _ => {
                let text =
                    format!("version {}.{} of the protocol is not spoken here, but 3.0", code >> 16, code & 0xffff);
                return refuse(stream, Fault::fatal("0A000", text)).await;
            }
        }
    }
    refuse(stream, Fault::protocol("a client asks for encryption again and again")).await
}

/// Startup parameters: names and values, each terminated by a NUL.
fn parameters(body: &Bytes) -> Option<Vec<(String, String)>> {
    let text = std::str::from_utf8(body).ok()?.strip_suffix('\0')?;
    let mut parts = text.split('\0');
    let mut found = Vec::new();
    loop {
        match parts.next()? {
            "" => return Some(found),
            name => found.push((name.to_owned(), parts.next()?.to_owned())),
        }
    }
}

async fn start(
    (mut stream, share): (Stream, &mut Share),
    peer: SocketAddr,
    with: &With,
    code: u32,
    body: Bytes,
) -> std::io::Result<Option<Connection>> {
    let Some(given) = parameters(&body) else {
        return refuse(stream, Fault::protocol("the first message cannot be read")).await;
    };
    if with.tls.is_some() && !stream.transport().encrypted {
        return refuse(stream, Fault::fatal("28000", "this port speaks TLS: connect with `sslmode=require`")).await;
    }
    let Some(app) = with.app.get() else {
        return refuse(stream, Fault::fatal("57P03", "the server is starting up")).await;
    };
    let value = |wanted: &str| given.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_str());
    let user = value("user").unwrap_or_default();
    let database = value("database").unwrap_or(user);
    if database != DATABASE && database != user {
        let text = format!("there is no database `{}`: the one here is `{DATABASE}`", database.escape_debug());
        return refuse(stream, Fault::fatal("3D000", text)).await;
    }
    let unknown: Vec<String> =
        given.iter().filter(|(name, _)| name.starts_with("_pq_.")).map(|(name, _)| name.clone()).collect();
    if code != VERSION || !unknown.is_empty() {
        let mut out = BytesMut::new();
        let _ = NegotiateProtocolVersion::new(VERSION as i32, unknown).encode(&mut out);
        stream.write_all(&out).await?;
    }
    let identity = match who((&mut stream, share), app, peer).await? {
        Ok(identity) => identity,
        Err(fault) => return refuse(stream, fault).await,
    };
    let name = if app.is_enforced() { identity.name.as_str() } else { user };
    let mut settings = Settings::new(Session::of(name), with.tls.is_some(), with.settings.connections_max);
    if let Err(fault) = settings.begin(&given) {
        return refuse(stream, Fault::fatal(fault.code, fault.message)).await;
    }
    let cancellable = with.cancels.begin();
    settings.session.backend = cancellable.number;
    let mut out = BytesMut::new();
    greet(&settings, &mut out);
    let key = BackendKeyData::new(cancellable.number, SecretKey::I32(cancellable.secret));
    let _ = key.encode(&mut out);
    let client = Client { stream, out, identity, peer, settings, cancellable };
    Ok(Some(Connection::new(with.clone(), Arc::clone(app), client)))
}

/// Authenticates the client by its certificate, or else by a token or key sent as the password.
async fn who(
    (stream, share): (&mut Stream, &mut Share),
    app: &Arc<AppState>,
    peer: SocketAddr,
) -> std::io::Result<Result<Arc<Identity>, Fault>> {
    let Some(identities) = app.identities.as_ref().filter(|identities| identities.enforced) else {
        return Ok(Ok(Arc::clone(&ANYONE)));
    };
    let identity = if let Some(name) = stream.transport().client {
        identities.auth.identify_certificate(&name)
    } else {
        let mut out = BytesMut::new();
        let _ = Authentication::CleartextPassword.encode(&mut out);
        stream.write_all(&out).await?;
        stream.flush().await?;
        let password = match password(stream, share).await? {
            Ok(password) => password,
            Err(fault) => return Ok(Err(fault)),
        };
        let asking = Asking { issuer: &identities.issuer, ip: Some(peer.ip()) };
        match RequestCredentials::read(std::iter::once(format!("Bearer {password}").as_bytes()), None) {
            Ok(shown) => identities.auth.identify(&shown, asking).await,
            Err(error) => Err(error),
        }
    };
    Ok(identity.map(Arc::new).map_err(|error| refused(&error)))
}

fn refused(error: &TokenError) -> Fault {
    let text = match error {
        TokenError::TooMany(_) => error.to_string(),
        _ => format!("the password must be an access token or an API key: {error}"),
    };
    Fault::fatal("28P01", text)
}

async fn password(stream: &mut Stream, share: &mut Share) -> std::io::Result<Result<String, Fault>> {
    let mut read = BytesMut::new();
    let before = share.held_bytes();
    loop {
        match client_messages::take(&mut read, STARTUP_BYTES_MAX).and_then(|taken| match taken {
            Some((kind, body)) => client_messages::read(kind, body).map(Some),
            None => Ok(None),
        }) {
            Err(fault) => return Ok(Err(fault)),
            Ok(Some(Message::Password(password))) if read.is_empty() => return Ok(Ok(password)),
            Ok(Some(_)) => return Ok(Err(Fault::protocol("a password was asked for"))),
            Ok(None) => {}
        }
        if !share.try_hold(before + read.capacity()) {
            let text = "the memory for what connections keep is used up: connect again later";
            return Ok(Err(Fault::fatal("53200", text)));
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Reports successful authentication and the settings.
fn greet(settings: &Settings, out: &mut BytesMut) {
    let _ = Authentication::Ok.encode(out);
    for (name, value) in settings.reported() {
        let _ = ParameterStatus::new(name.to_owned(), value).encode(out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_of_itself() {
        let of = |text: &'static [u8]| parameters(&Bytes::from_static(text));
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of(b"user\0ann\0database\0\0\0"), Some(vec![pair("user", "ann"), pair("database", "")]));
        assert_eq!(of(b"\0"), Some(Vec::new()));
        for bad in [&b""[..], b"user", b"user\0", b"user\0ann", b"user\0ann\0x", b"\xff\0\0"] {
            assert_eq!(parameters(&Bytes::copy_from_slice(bad)), None, "{bad:?}");
        }
    }
}
