//! Indents compact JSON by two spaces per level while it is written.

use std::io::{self, Write};

/// A writer that indents JSON and passes it on.
#[derive(Debug)]
pub(crate) struct JsonIndenter<W> {
    to: W,
    out: Vec<u8>,
    depth: usize,
    in_text: bool,
    /// Whether the previous byte was a backslash within a string.
    escaped: bool,
    /// Whether an object or list was opened and is empty so far.
    opened: bool,
}

impl<W: Write> JsonIndenter<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, out: Vec::new(), depth: 0, in_text: false, escaped: false, opened: false }
    }

    /// Returns the inner writer.
    pub(crate) fn into_inner(self) -> W {
        self.to
    }

    fn line(&mut self) {
        self.out.push(b'\n');
        self.out.resize(self.out.len() + 2 * self.depth, b' ');
    }

    fn byte(&mut self, byte: u8) {
        if self.in_text {
            self.in_text = byte != b'"' || self.escaped;
            self.escaped = byte == b'\\' && !self.escaped;
            return self.out.push(byte);
        }
        if matches!(byte, b'}' | b']') {
            self.depth -= 1;
            if !std::mem::take(&mut self.opened) {
                self.line();
            }
            return self.out.push(byte);
        }
        if std::mem::take(&mut self.opened) {
            self.line();
        }
        self.out.push(byte);
        match byte {
            b'{' | b'[' => {
                self.depth += 1;
                self.opened = true;
            }
            b',' => self.line(),
            b':' => self.out.push(b' '),
            b'"' => self.in_text = true,
            _ => {}
        }
    }
}

impl<W: Write> Write for JsonIndenter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for byte in bytes {
            self.byte(*byte);
        }
        self.to.write_all(&self.out)?;
        self.out.clear();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_those_of_others() {
        let value = json!({"a": [], "b": {}, "c": [1, {"d": "x\"y\\", "e": "{[,:]}"}, [null, true]], "f": -1.5});
        for step in [1, 3, 1000] {
            let mut indented = JsonIndenter::new(Vec::new());
            value.to_string().as_bytes().chunks(step).for_each(|piece| indented.write_all(piece).expect("a list"));
            let text = String::from_utf8(indented.into_inner()).expect("text");
            assert_eq!(text, serde_json::to_string_pretty(&value).expect("JSON"));
        }
    }

    fn indented(pieces: &[&[u8]]) -> String {
        let mut indented = JsonIndenter::new(Vec::new());
        for piece in pieces {
            assert_eq!(indented.write(piece).expect("a list takes all"), piece.len());
        }
        indented.flush().expect("a list");
        String::from_utf8(indented.into_inner()).expect("text")
    }

    /// A random value.
    fn value(next: &mut dyn FnMut(usize) -> usize, texts: &[&str], depth: usize) -> serde_json::Value {
        match next(if depth == 0 { 5 } else { 7 }) {
            0 => json!(null),
            1 => json!(next(2) == 0),
            2 => json!(next(1_000_000) as f64 / 7.0 - 5_000.0),
            3 => json!(next(1000)),
            4 => json!(texts[next(texts.len())]),
            5 => (0..next(4)).map(|_| value(next, texts, depth - 1)).collect(),
            _ => {
                let pairs = (0..next(4)).map(|n| {
                    let key = format!("{n}{}", texts[next(texts.len())]);
                    (key, value(next, texts, depth - 1))
                });
                serde_json::Value::Object(pairs.collect())
            }
        }
    }

    /// Random values with strings that look like JSON syntax.
    #[test]
    fn any_value_is_written_as_others_write_it() {
        let texts = ["", "\\", "\"", "\\\"", "{", "}", "[1,2]", "a:b", "größe", "\n\t", "\u{1}", "\u{1f600}"];
        let mut state = 11_u64;
        let mut next = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        for round in 0..200 {
            let value = value(&mut next, &texts, 4);
            let (text, expected) = (value.to_string(), serde_json::to_string_pretty(&value).expect("JSON"));
            assert_eq!(indented(&[text.as_bytes()]), expected, "{round}");
            let bytes: Vec<&[u8]> = text.as_bytes().chunks(1 + round % 5).collect();
            assert_eq!(indented(&bytes), expected, "{round} in pieces");
        }
    }

    #[test]
    fn the_smallest_texts() {
        for (text, expected) in [
            ("", ""),
            ("1", "1"),
            ("\"a\\\\\"", "\"a\\\\\""),
            ("[]", "[]"),
            ("{}", "{}"),
            ("[[]]", "[\n  []\n]"),
            ("[[],{}]", "[\n  [],\n  {}\n]"),
            ("{\"\":[0]}", "{\n  \"\": [\n    0\n  ]\n}"),
        ] {
            assert_eq!(indented(&[text.as_bytes()]), expected, "{text}");
        }
    }

    /// An error of the inner writer ends it.
    #[test]
    fn faults_of_what_is_written_to_are_told() {
        struct Full(usize);
        impl Write for Full {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                let taken = bytes.len().min(self.0);
                self.0 -= taken;
                if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
            }

            fn flush(&mut self) -> io::Result<()> {
                Err(io::ErrorKind::StorageFull.into())
            }
        }
        let mut small = JsonIndenter::new(Full(4));
        assert_eq!(small.write(b"123").expect("room"), 3);
        assert_eq!(small.write(b"[45]").expect_err("no room").kind(), io::ErrorKind::StorageFull);
        assert_eq!(small.flush().expect_err("no room").kind(), io::ErrorKind::StorageFull);
    }
}
