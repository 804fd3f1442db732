//! HTTP over raw sockets, for requests that no client library sends and responses that none shows.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_mins(5);
/// What a client of HTTP/2 says first, with empty settings.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Connects.
pub async fn connect(address: &str) -> TcpStream {
    TcpStream::connect(address).await.expect("it listens")
}

/// Sends bytes on a connection of their own; gives all that comes until the server closes it.
pub async fn exchange(address: &str, sent: &[u8]) -> Vec<u8> {
    let mut socket = connect(address).await;
    // It may be closed before all is sent.
    let _ = socket.write_all(sent).await;
    rest(&mut socket).await
}

/// Reads until the server closes the connection.
pub async fn rest(socket: &mut TcpStream) -> Vec<u8> {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(PATIENCE, socket.read_to_end(&mut answer)).await;
    let _ = read.expect("the server closes the connection");
    answer
}

/// The status of an answer of HTTP/1; 0: there is none.
pub fn status(answer: &[u8]) -> u16 {
    let line = answer.split(|b| *b == b'\r').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line).into_owned();
    text.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok()).unwrap_or(0)
}

/// A frame of HTTP/2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// 0 data, 1 headers, 3 reset, 4 settings, 6 ping, 7 leave.
    pub kind: u8,
    /// 1 the end of the stream (or an acknowledgement), 4 the end of headers.
    pub flags: u8,
    /// 0 is the connection.
    pub stream: u32,
    /// What it carries.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Makes a frame.
    pub fn new(kind: u8, flags: u8, stream: u32, payload: impl Into<Vec<u8>>) -> Self {
        Self { kind, flags, stream, payload: payload.into() }
    }

    /// Makes a frame of headers, each written out.
    pub fn headers(stream: u32, flags: u8, fields: &[(&str, &str)]) -> Self {
        let mut payload = Vec::new();
        let text = |out: &mut Vec<u8>, text: &str| {
            // A length of HPACK with a prefix of 7 bits.
            let mut len = text.len();
            if len < 127 {
                out.push(len as u8);
            } else {
                out.push(127);
                len -= 127;
                while len >= 128 {
                    out.push((len % 128) as u8 | 128);
                    len /= 128;
                }
                out.push(len as u8);
            }
            out.extend_from_slice(text.as_bytes());
        };
        for (name, value) in fields {
            payload.push(0);
            text(&mut payload, name);
            text(&mut payload, value);
        }
        Self::new(1, flags | 4, stream, payload)
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.payload.len() as u32).to_be_bytes()[1..]);
        out.extend_from_slice(&[self.kind, self.flags]);
        out.extend_from_slice(&self.stream.to_be_bytes());
        out.extend_from_slice(&self.payload);
    }
}

/// A connection that speaks HTTP/2.
#[derive(Debug)]
pub struct Http2(TcpStream);

impl Http2 {
    /// Connects and says hello.
    pub async fn connect(address: &str) -> Self {
        let mut socket = connect(address).await;
        socket.write_all(PREFACE).await.expect("sent");
        Self(socket)
    }

    /// Sends frames.
    pub async fn send(&mut self, frames: &[Frame]) {
        let mut out = Vec::new();
        for frame in frames {
            frame.write(&mut out);
        }
        let _ = self.0.write_all(&out).await;
    }

    /// The next frame; none when the connection is closed.
    pub async fn next(&mut self) -> Option<Frame> {
        let read = async {
            let mut head = [0; 9];
            self.0.read_exact(&mut head).await.ok()?;
            let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
            self.0.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            Some(Frame { kind: head[3], flags: head[4], stream, payload })
        };
        tokio::time::timeout(PATIENCE, read).await.expect("a frame, or the end")
    }

    /// Frames of a stream until one ends it; settings are acknowledged. Fewer when the connection is closed.
    pub async fn answer(&mut self, stream: u32) -> Vec<Frame> {
        let mut frames = Vec::new();
        while let Some(frame) = self.next().await {
            match frame.kind {
                4 if frame.flags & 1 == 0 => self.send(&[Frame::new(4, 1, 0, [])]).await,
                6 if frame.flags & 1 == 0 => self.send(&[Frame::new(6, 1, 0, frame.payload)]).await,
                _ if frame.stream == stream => {
                    let ended = frame.kind == 3 || frame.kind <= 1 && frame.flags & 1 == 1;
                    frames.push(frame);
                    if ended {
                        break;
                    }
                }
                7 => break,
                _ => {}
            }
        }
        frames
    }
}

/// The head of a call of OTLP over gRPC.
pub fn grpc_head<'a>(path: &'a str, encoding: &'a str) -> Vec<(&'a str, &'a str)> {
    vec![
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "x"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
        ("grpc-encoding", encoding),
    ]
}

/// A message of gRPC.
pub fn grpc_message(packed: bool, message: &[u8]) -> Vec<u8> {
    let mut out = vec![u8::from(packed)];
    out.extend_from_slice(&(message.len() as u32).to_be_bytes());
    out.extend_from_slice(message);
    out
}
