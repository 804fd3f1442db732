//! Decompresses bodies that arrive in pieces and may be of any size: it holds a few buffers, and refuses bodies that
//! expand unreasonably.

use std::collections::VecDeque;
use std::fmt;
use std::io::{self, BufRead, ErrorKind, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes, BytesMut};
use parking_lot::Mutex;

use super::{Encoding, Room, decompress, fault, reader, too_large};
use crate::error::Result;

/// Feeds pieces to a decompressor, which runs dry between them.
#[derive(Debug, Default)]
struct Pipe {
    current: Bytes,
    queue: Arc<Mutex<Queue>>,
}

#[derive(Debug, Default)]
struct Queue {
    pieces: VecDeque<Bytes>,
    ended: bool,
}

impl BufRead for Pipe {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.current.is_empty() {
            let mut queue = self.queue.lock();
            match queue.pieces.pop_front() {
                Some(piece) => self.current = piece,
                None if queue.ended => {}
                None => return Err(ErrorKind::WouldBlock.into()),
            }
        }
        Ok(&self.current)
    }

    fn consume(&mut self, len: usize) {
        self.current.advance(len);
    }
}

impl Read for Pipe {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let len = self.fill_buf()?.len().min(out.len());
        out[..len].copy_from_slice(&self.current[..len]);
        self.consume(len);
        Ok(len)
    }
}

enum State {
    /// The first bytes decide how to decompress, or the encoding needs the whole body.
    Gathering(BytesMut),
    Running(Box<dyn Read + Send>),
    Done(Bytes),
}

/// A body that is being decompressed.
pub struct Inflate {
    encoding: Encoding,
    state: State,
    queue: Arc<Mutex<Queue>>,
    whole_bytes_max: usize,
}

impl fmt::Debug for Inflate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflate").field("encoding", &self.encoding).finish_non_exhaustive()
    }
}

impl Inflate {
    /// Begins a body. `whole_bytes_max` limits encodings that can only be decompressed as a whole: snappy.
    pub fn new(encoding: Encoding, whole_bytes_max: usize) -> Self {
        let state = State::Gathering(BytesMut::new());
        Self { encoding, state, queue: Arc::default(), whole_bytes_max }
    }

    /// Adds the next piece.
    ///
    /// # Errors
    ///
    /// TooLarge: a body that must be held as a whole.
    pub fn push(&mut self, piece: Bytes) -> Result<()> {
        let State::Gathering(first) = &mut self.state else {
            self.queue.lock().pieces.push_back(piece);
            return Ok(());
        };
        if self.encoding == Encoding::Snappy {
            if first.len() + piece.len() > self.whole_bytes_max {
                return Err(too_large(self.whole_bytes_max));
            }
            first.extend_from_slice(&piece);
            return Ok(());
        }
        first.extend_from_slice(&piece);
        if first.len() >= 2 { self.begin(&mut |_| true) } else { Ok(()) }
    }

    /// Bytes that are held until the body is complete, not counting those for which room has been reserved.
    pub fn kept_bytes(&self) -> usize {
        match &self.state {
            State::Gathering(first) => first.len(),
            State::Running(_) | State::Done(_) => 0,
        }
    }

    /// Marks the end of the body. Reserves room for what is decompressed as a whole.
    ///
    /// # Errors
    ///
    /// Those of decompression.
    pub fn end(&mut self, room: &mut Room<'_>) -> Result<()> {
        self.queue.lock().ended = true;
        if matches!(self.state, State::Gathering(_)) { self.begin(room) } else { Ok(()) }
    }

    fn begin(&mut self, room: &mut Room<'_>) -> Result<()> {
        let State::Gathering(first) = &mut self.state else { return Ok(()) };
        let first = std::mem::take(first).freeze();
        if self.encoding == Encoding::Snappy {
            let whole = if first.is_empty() {
                Bytes::new()
            } else {
                Bytes::from(decompress(Encoding::Snappy, &first, self.whole_bytes_max, room)?.into_owned())
            };
            self.state = State::Done(whole);
            return Ok(());
        }
        // An empty body is valid in any encoding: some clients send the header without a body.
        let encoding = if first.is_empty() { Encoding::Identity } else { self.encoding };
        self.queue.lock().pieces.push_back(first);
        let pipe = Pipe { current: Bytes::new(), queue: Arc::clone(&self.queue) };
        self.state = State::Running(reader(encoding, pipe)?);
        Ok(())
    }

    /// Reads decompressed bytes; `None` if more pieces are needed, 0 at the end.
    ///
    /// # Errors
    ///
    /// Invalid: not of this encoding, or cut short. TooLarge: it expands far more than allowed.
    pub fn read(&mut self, out: &mut [u8]) -> Result<Option<usize>> {
        let read = match &mut self.state {
            State::Gathering(_) => return Ok(None),
            State::Done(whole) => {
                let len = whole.len().min(out.len());
                whole.copy_to_slice(&mut out[..len]);
                return Ok(Some(len));
            }
            State::Running(decoder) => loop {
                match decoder.read(out) {
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    other => break other,
                }
            },
        };
        match read {
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            other => Ok(Some(other.map_err(|e| fault(self.encoding, e))?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use quiver_types::ErrorKind as Kind;

    fn inflate(encoding: Encoding, body: &[u8], piece: usize) -> Result<Vec<u8>> {
        let mut inflate = Inflate::new(encoding, 64 << 20);
        let (mut out, mut buffer) = (Vec::new(), vec![0; 4096]);
        let mut drain = |inflate: &mut Inflate, out: &mut Vec<u8>| -> Result<bool> {
            while let Some(len) = inflate.read(&mut buffer)? {
                if len == 0 {
                    return Ok(true);
                }
                out.extend_from_slice(&buffer[..len]);
            }
            Ok(false)
        };
        for piece in body.chunks(piece) {
            inflate.push(Bytes::copy_from_slice(piece))?;
            drain(&mut inflate, &mut out)?;
        }
        inflate.end(&mut |_| true)?;
        assert!(drain(&mut inflate, &mut out)?, "the end is seen");
        Ok(out)
    }

    fn bodies(data: &[u8]) -> Vec<(Encoding, Vec<u8>)> {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        gzip.write_all(data).unwrap();
        let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        zlib.write_all(data).unwrap();
        let mut raw = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
        raw.write_all(data).unwrap();
        let gzip = gzip.finish().unwrap();
        vec![
            (Encoding::Identity, data.to_vec()),
            (Encoding::Gzip, [gzip.clone(), gzip].concat()),
            (Encoding::Deflate, zlib.finish().unwrap()),
            (Encoding::Deflate, raw.finish().unwrap()),
            (Encoding::Zstd, zstd::stream::encode_all(data, 1).unwrap()),
            (Encoding::Snappy, snap::raw::Encoder::new().compress_vec(data).unwrap()),
        ]
    }

    #[test]
    fn pieces_of_any_size() {
        let data: Vec<u8> = (0..20_000u32).flat_map(|i| (i % 977).to_le_bytes()).collect();
        for (encoding, body) in bodies(&data) {
            let expected = if encoding == Encoding::Gzip { data.repeat(2) } else { data.clone() };
            for piece in [1, 13, 5000, usize::MAX] {
                assert!(inflate(encoding, &body, piece).unwrap() == expected, "{encoding:?} {piece}");
            }
            if encoding != Encoding::Identity {
                for len in [1, 5, 20, body.len() / 2 + 7, body.len() - 1] {
                    let kind = inflate(encoding, &body[..len], 100).map(|_| ()).map_err(|e| e.kind());
                    // A snappy block that states a far larger size than its input is refused by that size.
                    let expected = [Err(Kind::Invalid), Err(Kind::TooLarge)];
                    assert!(expected.contains(&kind), "{encoding:?} cut at {len}: {kind:?}");
                }
            }
            assert!(inflate(encoding, b"", 1).unwrap().is_empty(), "{encoding:?}");
        }
    }

    #[test]
    fn bombs() {
        let zeros = vec![0u8; 64 << 20];
        for (encoding, body) in bodies(&zeros).into_iter().skip(1) {
            let outcome = inflate(encoding, &body, 1000).map(|out| out.len());
            // Snappy cannot expand that much.
            let expected = if encoding == Encoding::Snappy { Ok(zeros.len()) } else { Err(Kind::TooLarge) };
            assert_eq!(outcome.map_err(|e| e.kind()), expected, "{encoding:?}");
        }
    }
}
