//! JSON with line breaks and two spaces for each level, made of JSON without, as it comes.

use std::io::{self, Write};

/// Indents what is written to it; gives it on.
#[derive(Debug)]
pub(crate) struct Indented<W> {
    to: W,
    out: Vec<u8>,
    depth: usize,
    in_text: bool,
    /// The byte before was a backslash within a text.
    escaped: bool,
    /// An object or list was opened, and nothing of it came yet.
    opened: bool,
}

impl<W: Write> Indented<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, out: Vec::new(), depth: 0, in_text: false, escaped: false, opened: false }
    }

    /// Gives back what it wrote to.
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

impl<W: Write> Write for Indented<W> {
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
            let mut indented = Indented::new(Vec::new());
            value.to_string().as_bytes().chunks(step).for_each(|piece| indented.write_all(piece).expect("a list"));
            let text = String::from_utf8(indented.into_inner()).expect("text");
            assert_eq!(text, serde_json::to_string_pretty(&value).expect("JSON"));
        }
    }
}
