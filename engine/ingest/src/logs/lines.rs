//! JSON lines: one object per line, in pieces of any size. An invalid line is dropped alone.

use std::borrow::Cow;

use memchr::memchr;
use quiver_types::logs::RecordMarks;

use super::LogsContext;
use super::json::Cursor;
use super::options::Defaults;
use super::row_counts::DropReason;
use super::rows::Rows;
use super::time::Stamp;

/// Splits a stream of bytes into lines; a line that is too long is skipped.
#[derive(Debug)]
pub(crate) struct Lines {
    tail: Vec<u8>,
    skipping: bool,
    line_bytes_max: usize,
    /// Number of the current line, from 1.
    pub(crate) number: u64,
}

/// A line, or a notice that it was too long.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line<'a> {
    Text(&'a str),
    TooLong,
}

impl Lines {
    pub(crate) fn new(line_bytes_max: usize) -> Self {
        Self { tail: Vec::new(), skipping: false, line_bytes_max, number: 0 }
    }

    /// Passes on all lines that end in these bytes, and keeps what follows the last of them.
    pub(crate) fn feed<E>(
        &mut self,
        mut data: &[u8],
        each: &mut impl FnMut(u64, Line<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.skipping || !self.tail.is_empty() {
            let Some(end) = memchr(b'\n', data) else {
                self.keep(data);
                return Ok(());
            };
            self.keep(&data[..end]);
            data = &data[end + 1..];
            self.end_tail(each)?;
        }
        let Some(end) = memchr::memrchr(b'\n', data) else {
            self.keep(data);
            return Ok(());
        };
        // The encoding of all lines is checked at once, and only if that fails line by line.
        let (whole, rest) = (&data[..end], &data[end + 1..]);
        let valid = std::str::from_utf8(whole).ok();
        let mut start = 0;
        while start <= whole.len() {
            let len = memchr(b'\n', &whole[start..]).unwrap_or(whole.len() - start);
            self.number += 1;
            if len > self.line_bytes_max {
                each(self.number, Line::TooLong)?;
            } else {
                let text = match valid {
                    Some(text) => Cow::Borrowed(&text[start..start + len]),
                    None => String::from_utf8_lossy(&whole[start..start + len]),
                };
                each(self.number, Line::Text(&text))?;
            }
            start += len + 1;
        }
        self.keep(rest);
        Ok(())
    }

    /// Passes on the last line if it does not end in a line break.
    pub(crate) fn finish<E>(&mut self, each: &mut impl FnMut(u64, Line<'_>) -> Result<(), E>) -> Result<(), E> {
        if self.skipping || !self.tail.is_empty() { self.end_tail(each) } else { Ok(()) }
    }

    fn keep(&mut self, data: &[u8]) {
        if self.skipping || self.tail.len() + data.len() > self.line_bytes_max {
            self.skipping = true;
            self.tail.clear();
        } else {
            self.tail.extend_from_slice(data);
        }
    }

    fn end_tail<E>(&mut self, each: &mut impl FnMut(u64, Line<'_>) -> Result<(), E>) -> Result<(), E> {
        let tail = std::mem::take(&mut self.tail);
        self.number += 1;
        if std::mem::take(&mut self.skipping) {
            return each(self.number, Line::TooLong);
        }
        each(self.number, Line::Text(&String::from_utf8_lossy(&tail)))?;
        self.tail = tail;
        self.tail.clear();
        Ok(())
    }
}

/// Decodes JSON lines.
#[derive(Debug)]
pub struct JsonLines {
    lines: Lines,
    /// The rows so far.
    pub rows: Rows,
}

impl JsonLines {
    /// Begins a request.
    pub fn new(ctx: &LogsContext) -> Self {
        Self { lines: Lines::new(ctx.limits.line_bytes_max), rows: Rows::new(ctx, Defaults::LINES) }
    }

    /// Reads a piece of the body.
    pub fn feed(&mut self, data: &[u8]) {
        let Self { lines, rows } = self;
        let Ok(()) = lines.feed(data, &mut |number, line| {
            read_line(rows, number, line);
            Ok::<_, std::convert::Infallible>(())
        });
    }

    /// Reads the last line, which need not end in a line break.
    pub fn finish(&mut self) {
        let Self { lines, rows } = self;
        let Ok(()) = lines.finish(&mut |number, line| {
            read_line(rows, number, line);
            Ok::<_, std::convert::Infallible>(())
        });
    }
}

fn read_line(rows: &mut Rows, number: u64, line: Line<'_>) {
    let fault = match line {
        Line::TooLong => {
            rows.report.drop_row(DropReason::LongLine);
            Some(DropReason::LongLine.text().to_owned())
        }
        Line::Text(text) => {
            let mut json = Cursor::new(text);
            if json.at_end() {
                return;
            }
            let is_list = json.peek() == b'[';
            match document(rows, &mut json) {
                Ok(outcome) => outcome.err().map(|why| why.text().to_owned()),
                Err(fault) => {
                    rows.report.drop_row(DropReason::Unreadable);
                    // Senders whose format is JSON, and not JSON lines, send one list of all records.
                    Some(if is_list { format!("{fault}; send each of a list on a line of its own") } else { fault })
                }
            }
        }
    };
    if let Some(fault) = fault
        && rows.report.first_fault.is_none()
    {
        rows.report.first_fault = Some(format!("line {number}: {fault}"));
    }
}

/// Reads the object on a line as a row.
///
/// # Errors
///
/// The line is no object, which is not counted yet. The inner error: why the row was dropped, which is counted.
pub(crate) fn document(rows: &mut Rows, json: &mut Cursor<'_>) -> Result<Result<(), DropReason>, String> {
    let read = rows
        .object(json)
        .and_then(|()| if json.at_end() { Ok(()) } else { Err(json.fault("unexpected text after the object")) });
    match read {
        Ok(()) => Ok(rows.end(Stamp::Arrival, RecordMarks::default())),
        Err(fault) => {
            rows.abandon();
            Err(format!("invalid JSON at offset {}: {}", fault.offset, fault.what))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};

    use super::*;

    const MAX: usize = 5;

    /// The number and the text of each line; `None` for one that is too long.
    fn cut<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<(u64, Option<String>)> {
        let (mut lines, mut out) = (Lines::new(MAX), Vec::new());
        let mut each = |number: u64, line: Line<'_>| {
            out.push((number, matches!(line, Line::Text(_)).then_some(line).map(|line| text(line).to_owned())));
            Ok::<_, Infallible>(())
        };
        for piece in pieces {
            let Ok(()) = lines.feed(piece, &mut each);
        }
        let Ok(()) = lines.finish(&mut each);
        out
    }

    fn text(line: Line<'_>) -> &str {
        match line {
            Line::Text(text) => text,
            Line::TooLong => "",
        }
    }

    fn model(body: &[u8]) -> Vec<(u64, Option<String>)> {
        let mut lines: Vec<&[u8]> = body.split(|b| *b == b'\n').collect();
        // What follows the last line break is a line unless it is empty.
        lines.pop_if(|last| last.is_empty());
        let texts = lines.iter().map(|l| (l.len() <= MAX).then(|| String::from_utf8_lossy(l).into_owned()));
        (1..).zip(texts).collect()
    }

    #[test]
    fn lines_in_any_pieces() {
        let mut rng = StdRng::seed_from_u64(5);
        for _ in 0..2000 {
            let parts: [&[u8]; 6] = [b"\n", b"\n", b"a", "é".as_bytes(), b"\r", b"\xff"];
            let body: Vec<u8> =
                (0..rng.random_range(0..30)).flat_map(|_| parts[rng.random_range(0..6)]).copied().collect();
            let expected = model(&body);
            assert_eq!(cut(std::iter::once(&body[..])), expected, "{body:x?}");
            let size = rng.random_range(1..8);
            assert_eq!(cut(body.chunks(size)), expected, "{body:x?} by {size}");
        }
    }

    #[test]
    fn borders() {
        let check = |body: &str, expected: &[Option<&str>]| {
            let found = cut(std::iter::once(body.as_bytes()));
            let found: Vec<Option<&str>> = found.iter().map(|(_, text)| text.as_deref()).collect();
            assert_eq!(found, expected, "{body:?}");
        };
        check("", &[]);
        check("\n", &[Some("")]);
        check("12345\n", &[Some("12345")]);
        check("123456\n1", &[None, Some("1")]);
        check("1\n123456", &[Some("1"), None]);
        check("12345\r\n", &[None]);
    }

    /// The rest of a piece is not read after an error.
    #[test]
    fn faults_end_reading() {
        let mut lines = Lines::new(MAX);
        let mut seen = Vec::new();
        let mut each = |number: u64, line: Line<'_>| {
            seen.push(text(line).to_owned());
            if number == 2 { Err("no") } else { Ok(()) }
        };
        assert_eq!(lines.feed(b"a\nb\nc\n", &mut each), Err("no"));
        assert_eq!(seen, ["a", "b"]);
    }
}
