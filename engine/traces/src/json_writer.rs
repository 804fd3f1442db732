//! Writes JSON piece by piece: builds no tree, and passes each full buffer on.

use std::fmt::{self, Write};

use quiver_types::text::push_json_text;

/// The reader went away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReaderClosed;

/// Hands pieces on; an error ends the writing.
type Emit<'e> = dyn FnMut(Vec<u8>) -> Result<(), ReaderClosed> + Send + 'e;

/// Bytes after which a piece is handed on.
const PIECE_BYTES: usize = 64 << 10;
/// Room of a piece: it is full after the value that made it so.
const PIECE_ROOM: usize = PIECE_BYTES + (4 << 10);
/// Room of the first one, which may be the only one.
const FIRST_ROOM: usize = 8 << 10;

/// Writes one JSON document.
#[derive(Default)]
pub struct JsonWriter<'e> {
    out: String,
    comma: bool,
    emit: Option<Box<Emit<'e>>>,
    closed: bool,
}

impl fmt::Debug for JsonWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonWriter").field("held", &self.out.len()).finish_non_exhaustive()
    }
}

impl<'e> JsonWriter<'e> {
    /// Writes to pieces of about 64 KiB.
    pub fn pieces(emit: impl FnMut(Vec<u8>) -> Result<(), ReaderClosed> + Send + 'e) -> Self {
        Self { out: String::with_capacity(FIRST_ROOM), emit: Some(Box::new(emit)), ..Self::default() }
    }

    fn before(&mut self) {
        if self.comma {
            self.out.push(',');
        }
        self.comma = true;
        if self.out.len() >= PIECE_BYTES
            && let Some(emit) = &mut self.emit
        {
            // What has filled one piece goes on: with its room from the start the next one is not copied as it grows.
            let piece = std::mem::replace(&mut self.out, String::with_capacity(PIECE_ROOM)).into_bytes();
            self.closed = self.closed || emit(piece).is_err();
        }
    }

    /// Says whether the reader went away, so that the rest is not worth writing.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Writes `{`, what `f` writes, and `}`.
    pub fn object(&mut self, f: impl FnOnce(&mut Self)) {
        self.before();
        self.out.push('{');
        self.comma = false;
        f(self);
        self.out.push('}');
        self.comma = true;
    }

    /// Writes `[`, what `f` writes, and `]`.
    pub fn array(&mut self, f: impl FnOnce(&mut Self)) {
        self.before();
        self.out.push('[');
        self.comma = false;
        f(self);
        self.out.push(']');
        self.comma = true;
    }

    /// Writes a key; its value follows.
    pub fn key(&mut self, key: &str) -> &mut Self {
        self.before();
        push_json_text(key, &mut self.out);
        self.out.push(':');
        self.comma = false;
        self
    }

    /// Writes a text.
    pub fn text(&mut self, text: &str) {
        self.before();
        push_json_text(text, &mut self.out);
    }

    /// Writes a number, or anything else that is JSON when displayed.
    pub fn raw(&mut self, value: impl fmt::Display) {
        self.before();
        // A `String` takes whatever is written.
        let _ = write!(self.out, "{value}");
    }

    /// Writes a number as a text.
    pub fn quoted(&mut self, value: impl fmt::Display) {
        self.before();
        let _ = write!(self.out, "\"{value}\"");
    }

    /// Writes an id in hex.
    pub fn id(&mut self, id: &[u8]) {
        self.before();
        push_id(id, &mut self.out);
    }

    /// Writes a value that a function appends.
    pub(crate) fn value(&mut self, push: impl FnOnce(&mut String)) {
        self.before();
        push(&mut self.out);
    }

    /// Writes the beginning of an object, or of what follows in it, that a function appends up to a colon: the value of that
    /// key comes next.
    pub(crate) fn up_to_value(&mut self, push: impl FnOnce(&mut String)) {
        self.value(push);
        self.comma = false;
    }

    /// Writes the end of such an object.
    pub(crate) fn end(&mut self, push: impl FnOnce(&mut String)) {
        push(&mut self.out);
        self.comma = true;
    }

    /// Hands the rest on; gives it when there is nobody to hand it to.
    ///
    /// # Errors
    /// The reader went away.
    pub fn finish(mut self) -> Result<Vec<u8>, ReaderClosed> {
        let rest = std::mem::take(&mut self.out).into_bytes();
        match &mut self.emit {
            None => Ok(rest),
            Some(_) if self.closed => Err(ReaderClosed),
            Some(emit) => emit(rest).map(|()| Vec::new()),
        }
    }
}

/// Appends an id in hex as a JSON text.
pub(crate) fn push_id(id: &[u8], out: &mut String) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    out.push('"');
    for eight in id.chunks(8) {
        let mut hex = [0; 16];
        for (pair, byte) in hex.chunks_exact_mut(2).zip(eight) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        out.push_str(std::str::from_utf8(&hex[..2 * eight.len()]).unwrap_or_default());
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::hex;

    use super::*;

    #[test]
    fn documents() {
        let mut w = JsonWriter::default();
        w.object(|w| {
            w.key("a\"b").text("x\n\u{1}é\\");
            w.key("l").array(|w| {
                w.raw(1);
                w.quoted(2);
                w.object(|_| {});
            });
            w.key("id").id(&[0, 255]);
            w.key("o");
            w.up_to_value(|out| out.push_str("{\"a\":"));
            w.array(|w| w.raw(1));
            w.up_to_value(|out| out.push_str("\"b\":"));
            w.raw(2);
            w.end(|out| out.push('}'));
            w.key("z").raw(3);
        });
        let text = String::from_utf8(w.finish().unwrap()).unwrap();
        let of_pieces = "\"o\":{\"a\":[1],\"b\":2},\"z\":3}";
        assert_eq!(text, format!("{{\"a\\\"b\":\"x\\n\\u0001é\\\\\",\"l\":[1,\"2\",{{}}],\"id\":\"00ff\",{of_pieces}"));
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }

    #[test]
    fn pieces_are_the_whole() {
        let mut got = Vec::new();
        let mut w = JsonWriter::pieces(|piece| {
            got.extend(piece);
            Ok(())
        });
        w.array(|w| (0..50_000).for_each(|i| w.raw(i)));
        w.finish().unwrap();
        let list: Vec<u32> = serde_json::from_slice(&got).unwrap();
        assert_eq!(list.len(), 50_000);
    }
    /// Breaks if a piece is much longer than it should be, or what is cut in pieces is not what one piece has.
    #[test]
    fn pieces_have_a_length() {
        let write = |w: &mut JsonWriter<'_>| {
            w.object(|w| {
                w.key("list").array(|w| (0..40_000).for_each(|i| w.quoted(i)));
                w.key("end").raw(true);
            });
        };
        let mut whole = JsonWriter::default();
        write(&mut whole);
        let whole = whole.finish().unwrap();
        let mut pieces: Vec<Vec<u8>> = Vec::new();
        let mut w = JsonWriter::pieces(|piece| {
            pieces.push(piece);
            Ok(())
        });
        write(&mut w);
        assert_eq!(w.finish(), Ok(Vec::new()));
        assert_eq!(pieces.concat(), whole);
        let (_, full) = pieces.split_last().unwrap();
        assert!(full.len() > 3, "{}", full.len());
        assert!(full.iter().all(|piece| (PIECE_BYTES..PIECE_BYTES + 16).contains(&piece.len())));
    }

    /// Breaks if writing goes on for a reader that has left, or it is recorded as one that got everything.
    #[test]
    fn nothing_is_written_for_a_reader_that_went_away() {
        let (mut handed, mut written) = (0, 0);
        let mut w = JsonWriter::pieces(|_| {
            handed += 1;
            Err(ReaderClosed)
        });
        assert!(!w.is_closed());
        w.array(|w| {
            while !w.is_closed() {
                w.text("some text");
                written += 1;
            }
            // Those who do not look are not handed on either.
            (0..20_000).for_each(|i| w.raw(i));
        });
        assert_eq!(w.finish(), Err(ReaderClosed));
        assert_eq!(handed, 1);
        assert!((5_000..6_000).contains(&written), "{written}");
        // At the end he is missed, too.
        let mut w = JsonWriter::pieces(|_| Err(ReaderClosed));
        w.raw(1);
        assert!(!w.is_closed());
        assert_eq!(w.finish(), Err(ReaderClosed));
    }

    #[test]
    fn texts_are_read_back_as_they_were() {
        let chars = (0..=u32::from(char::MAX)).step_by(997).filter_map(char::from_u32);
        let mut texts: Vec<String> = chars.map(String::from).collect();
        texts.extend((0..0x100).filter_map(char::from_u32).map(|c| format!("a{c}b{c}")));
        texts.extend(["", "\"", "\\", "\\\"\\", "\u{7f}\u{80}", "\0"].map(str::to_owned));
        let all: String = texts.concat();
        let mut out = String::new();
        for text in texts.iter().chain([&all]) {
            out.clear();
            push_json_text(text, &mut out);
            assert!(!out.bytes().any(|byte| byte < 0x20), "{out}");
            assert_eq!(serde_json::from_str::<String>(&out).ok().as_ref(), Some(text), "{out}");
        }
    }

    #[test]
    fn ids_have_two_digits_for_each_byte() {
        let bytes: Vec<u8> = (0..20).map(|n| n * 13).collect();
        for len in 0..=bytes.len() {
            let mut out = String::new();
            push_id(&bytes[..len], &mut out);
            assert_eq!(out, format!("\"{}\"", hex(&bytes[..len])), "{len}");
        }
    }
}
