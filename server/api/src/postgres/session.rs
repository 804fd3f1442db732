//! An authenticated connection: receives messages and sends responses until either side ends it.
//!
//! While a statement runs the connection is still read, so that a disconnected client is noticed; a limited amount of
//! data is kept for later.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, BytesMut};
use pgwire::messages::Message as _;
use pgwire::messages::response::{ReadyForQuery, TransactionStatus};
use quiver_auth::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::With;
use super::cancel::Cancellable;
use super::client_messages::{self, AHEAD_BYTES_MAX, Bind, FRAME_BYTES_MAX, Message, Target};
use super::command::{self, Command, Settings};
use super::error::Fault;
use super::portal::Portal;
use super::statements::{PreparedStatement, SessionObjects};
use crate::body_memory::Share;
use crate::revoked_rights;
use crate::serve::Stream;
use crate::serve::minimum_rate::Pace;
use crate::state::AppState;

mod cursors;
mod queries;
mod results;
mod statement_end;

/// Bytes that are collected before they are sent.
const OUT_BYTES: usize = 64 << 10;

/// Why a connection ends without another message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DisconnectReason {
    /// The client disconnected, or does not read.
    Gone,
    /// The client terminated it.
    Said,
}

/// Why a step failed.
enum Trouble {
    /// Reported to the client; the connection continues.
    Fault(Fault),
    End(DisconnectReason),
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl From<DisconnectReason> for Trouble {
    fn from(ended: DisconnectReason) -> Self {
        Self::End(ended)
    }
}

/// An authenticated connection.
pub(super) struct Connection {
    stream: Stream,
    read: BytesMut,
    out: BytesMut,
    with: With,
    app: Arc<AppState>,
    identity: Arc<Identity>,
    peer: SocketAddr,
    settings: Settings,
    cancellable: Cancellable,
    kept: SessionObjects,
    /// Memory of what is kept, and of an incomplete message.
    share: Share,
    /// How long the rest of such a message is waited for.
    pace: Pace,
    transaction: TransactionStatus,
    /// Whether messages are skipped until the client sends `Sync`.
    skipping: bool,
}

/// A client that authenticated.
pub(super) struct Client {
    pub(super) stream: Stream,
    /// Messages that were not sent to it yet.
    pub(super) out: BytesMut,
    pub(super) identity: Arc<Identity>,
    pub(super) peer: SocketAddr,
    pub(super) settings: Settings,
    pub(super) cancellable: Cancellable,
}

impl Connection {
    /// Takes over the connection of a client.
    pub(super) fn new(with: With, app: Arc<AppState>, client: Client) -> Self {
        let Client { stream, out, identity, peer, settings, cancellable } = client;
        let (share, pace) = (with.kept.share(), pace_of(&with));
        Self {
            stream,
            read: BytesMut::new(),
            out,
            with,
            app,
            identity,
            peer,
            settings,
            cancellable,
            kept: SessionObjects::default(),
            share,
            pace,
            transaction: TransactionStatus::Idle,
            skipping: false,
        }
    }

    /// Serves it until it ends.
    pub(super) async fn run(mut self) {
        self.ready();
        let ended = self.serve().await;
        tracing::debug!(peer = %self.peer, ?ended, "connection of PostgreSQL's protocol ended");
        if ended == DisconnectReason::Said {
            let _ = timeout(self.with.settings.send_timeout, self.stream.shutdown()).await;
        }
    }

    async fn serve(&mut self) -> DisconnectReason {
        loop {
            let message = match client_messages::take(&mut self.read, FRAME_BYTES_MAX) {
                Ok(Some((kind, body))) => client_messages::read(kind, body),
                Ok(None) => {
                    if let Err(ended) = self.wait().await {
                        return ended;
                    }
                    continue;
                }
                Err(fault) => Err(fault),
            };
            let done = match message {
                Ok(message) => self.message(message).await,
                Err(fault) => Err(fault.into()),
            };
            match done {
                // Sent in pieces: many small queries at once must not build up a large response.
                Ok(()) if self.out.len() >= OUT_BYTES => {
                    if let Err(ended) = self.flush().await {
                        return ended;
                    }
                }
                Ok(()) => {}
                Err(Trouble::End(ended)) => return ended,
                Err(Trouble::Fault(fault)) => {
                    let fatal = fault.is_fatal();
                    self.fail(&fault);
                    if fatal {
                        let _ = self.flush().await;
                        return DisconnectReason::Said;
                    }
                    self.skipping = true;
                }
            }
        }
    }

    /// Sends the output, and waits for more input.
    async fn wait(&mut self) -> Result<(), DisconnectReason> {
        self.flush().await?;
        if self.share.hold(self.read.len() + self.kept.bytes()).await.is_err() {
            let text = "the memory for what connections keep is used up: keep fewer statements, or connect again later";
            self.fail(&Fault::fatal("53200", text));
            let _ = self.flush().await;
            return Err(DisconnectReason::Said);
        }
        self.read.reserve(8 << 10);
        let (is_begun, since) = (!self.read.is_empty(), Instant::now());
        if !is_begun {
            self.pace = pace_of(&self.with);
        }
        let patience = if is_begun { self.pace.left() } else { self.with.idle };
        let read = tokio::select! {
            read = timeout(patience, self.stream.read_buf(&mut self.read)) => read,
            () = self.with.stop.cancelled() => {
                self.fail(&Fault::fatal("57P01", "the server stops"));
                let _ = self.flush().await;
                return Err(DisconnectReason::Said);
            }
            // The connection of a deleted account ends, even if it is idle.
            () = revoked_rights::account_removed(&self.app, &self.identity) => {
                self.fail(&Fault::of_ended_account());
                let _ = self.flush().await;
                return Err(DisconnectReason::Said);
            }
        };
        match read {
            Ok(Ok(0) | Err(_)) => Err(DisconnectReason::Gone),
            Ok(Ok(bytes)) => {
                self.pace.got(bytes, if is_begun { since.elapsed() } else { Duration::ZERO });
                Ok(())
            }
            Err(_) => {
                let text = if is_begun { "a message came too slowly" } else { "the connection was idle for too long" };
                self.fail(&Fault::fatal("57P05", text));
                let _ = self.flush().await;
                Err(DisconnectReason::Said)
            }
        }
    }

    /// Sends the output.
    async fn flush(&mut self) -> Result<(), DisconnectReason> {
        if self.out.is_empty() {
            return Ok(());
        }
        let (stream, out) = (&mut self.stream, &mut self.out);
        let sent = timeout(self.with.settings.send_timeout, async {
            stream.write_all_buf(out).await?;
            stream.flush().await
        });
        match sent.await {
            Ok(Ok(())) => {
                if self.out.capacity() > 4 * OUT_BYTES {
                    self.out = BytesMut::new();
                }
                Ok(())
            }
            Ok(Err(_)) | Err(_) => Err(DisconnectReason::Gone),
        }
    }

    fn fail(&mut self, fault: &Fault) {
        fault.write(&mut self.out);
        if self.transaction == TransactionStatus::Transaction {
            self.transaction = TransactionStatus::Error;
            self.kept.roll_back();
        }
    }

    fn ready(&mut self) {
        let _ = ReadyForQuery::new(self.transaction).encode(&mut self.out);
    }

    /// Writes a message without a body.
    fn say(&mut self, kind: u8) {
        self.out.put_u8(kind);
        self.out.put_i32(4);
    }

    async fn message(&mut self, message: Message) -> Result<(), Trouble> {
        match message {
            Message::Terminate => return Err(DisconnectReason::Said.into()),
            Message::Sync => {
                self.skipping = false;
                if self.transaction == TransactionStatus::Idle {
                    self.kept.commit();
                }
                self.ready();
                return Ok(self.flush().await?);
            }
            Message::Query(text) => {
                self.skipping = false;
                return self.simple(&text).await;
            }
            _ if self.skipping => return Ok(()),
            Message::Parse { name, query, types } => self.parse(name, query, types)?,
            Message::Bind(bind) => self.bind(bind).await?,
            Message::Describe(Target::Statement(name)) => self.describe_statement(&name).await?,
            Message::Describe(Target::Portal(name)) => {
                let mut portal = self.kept.take(&name)?;
                let described = self.describe_portal(&mut portal).await;
                self.kept.put(&name, portal);
                described?;
            }
            Message::Execute { portal: name, rows } => {
                let mut portal = self.kept.take(&name)?;
                let executed = self.execute(&mut portal, rows).await;
                // The command may have closed all portals.
                if executed.is_ok() && !self.ends_portals(&portal.command) {
                    self.kept.put(&name, portal);
                }
                executed?;
            }
            Message::Close(target) => {
                // A name that nothing has is no error here.
                match target {
                    Target::Statement(name) => self.kept.close_statement(&name),
                    Target::Portal(name) => self.kept.close_portal(&name),
                };
                self.say(b'3');
            }
            Message::Flush => self.flush().await?,
            Message::Password(_) => return Err(Fault::protocol("no password was asked for").into()),
            Message::Unasked(kind) => {
                let text = format!("messages of type `{}` are not spoken here", char::from(kind));
                return Err(Fault::new("0A000", text).into());
            }
        }
        Ok(())
    }

    fn ends_portals(&self, command: &Command) -> bool {
        matches!(command, Command::Commit { .. } | Command::Rollback { .. } | Command::Discard(_))
            || self.transaction == TransactionStatus::Error
    }

    /// Runs statements one after the other, until one fails.
    async fn simple(&mut self, text: &str) -> Result<(), Trouble> {
        match self.run_statements(text).await {
            Ok(()) => {}
            Err(Trouble::Fault(fault)) if !fault.is_fatal() => self.fail(&fault),
            Err(other) => return Err(other),
        }
        self.ready();
        Ok(self.flush().await?)
    }

    async fn run_statements(&mut self, text: &str) -> Result<(), Trouble> {
        self.kept.close_portal("");
        let statements = command::split(text)?;
        if statements.is_empty() {
            self.say(b'I');
        }
        for statement in statements {
            let command = command::read(&statement)?;
            let mut portal = Portal::new(statement, command);
            if Self::gives_rows(&portal.command) {
                self.describe_portal(&mut portal).await?;
            }
            self.execute(&mut portal, 0).await?;
            if self.out.len() >= OUT_BYTES {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Whether a statement returns rows.
    fn gives_rows(command: &Command) -> bool {
        matches!(command, Command::Query | Command::Show(_) | Command::Fetch(..) | Command::Execute(..))
    }

    fn parse(&mut self, name: String, text: String, declared: Vec<u32>) -> Result<(), Trouble> {
        let mut statements = command::split(&text)?;
        if statements.len() > 1 {
            return Err(Fault::new("42601", "a prepared statement is one statement").into());
        }
        let text = statements.pop().unwrap_or_default();
        let command = command::read(&text)?;
        self.kept.prepare(name, PreparedStatement { text, command, declared, described: None })?;
        self.say(b'1');
        Ok(())
    }

    async fn bind(&mut self, bind: Bind) -> Result<(), Trouble> {
        let portal = self.bound(&bind).await?;
        self.kept.open(bind.portal, portal)?;
        self.say(b'2');
        Ok(())
    }

    /// Makes a portal of a prepared statement and values.
    async fn bound(&mut self, bind: &Bind) -> Result<Portal, Trouble> {
        let params = self.params_of(bind).await?;
        let statement = self.kept.statement(&bind.statement)?;
        let bytes = bind.values.iter().flatten().map(bytes::Bytes::len).sum();
        let mut portal = Portal::new(statement.text.clone(), statement.command.clone()).with_params(params, bytes);
        portal.results.clone_from(&bind.results);
        portal.promised = statement.described.as_ref().map(|described| Arc::clone(&described.columns));
        Ok(portal)
    }
}

/// How long a message may take to arrive.
fn pace_of(with: &With) -> Pace {
    Pace::new(with.settings.body_rate_min, with.settings.body_grace)
}

fn cancelled() -> Fault {
    Fault::new("57014", "the statement was cancelled, as its client asked")
}

/// Runs work while the connection is watched: it is cancelled with the client's disconnect, or by a cancel request.
async fn attended<T>(
    stream: &mut Stream,
    read: &mut BytesMut,
    running: &CancellationToken,
    work: impl Future<Output = T>,
) -> Result<T, Trouble> {
    let mut work = std::pin::pin!(work);
    // Rows that come as fast as they are sent never wait.
    if running.is_cancelled() {
        return Err(cancelled().into());
    }
    while read.len() < AHEAD_BYTES_MAX {
        read.reserve(4 << 10);
        tokio::select! {
            biased;
            done = &mut work => return Ok(done),
            () = running.cancelled() => return Err(cancelled().into()),
            more = stream.read_buf(read) => match more {
                Ok(0) | Err(_) => return Err(DisconnectReason::Gone.into()),
                Ok(_) => {}
            },
        }
    }
    // No more is kept, but a client that goes away is still to be seen.
    tokio::select! {
        biased;
        done = &mut work => Ok(done),
        () = running.cancelled() => Err(cancelled().into()),
        () = stream.closed() => Err(DisconnectReason::Gone.into()),
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    #[tokio::test]
    async fn work_that_never_waits_is_cancelled_too() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut stream = Stream::Plain(listener.accept().await.unwrap().0);
        let (mut read, running) = (BytesMut::new(), CancellationToken::new());
        let done = attended(&mut stream, &mut read, &running, std::future::ready(7)).await;
        assert!(matches!(done, Ok(7)));
        running.cancel();
        let done = attended(&mut stream, &mut read, &running, std::future::ready(7)).await;
        assert!(matches!(done, Err(Trouble::Fault(fault)) if fault.code == "57014"));
    }
}
