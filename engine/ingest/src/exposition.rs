//! Exposition text (Prometheus 0.0.4 and OpenMetrics 1.0), decoded line by line as chunks arrive.
//!
//! Invalid lines are skipped and counted, and the first one is reported with its number. Nothing is allocated per line.
//! The caller may take the decoded batch at any time, so only lines have a size limit, not the body.

use std::borrow::Cow;
use std::sync::Arc;

use memchr::memchr;
use quiver_types::Millis;
use quiver_types::metrics::MetricMetadata;

use crate::decoded::{DecodedMetrics, Sink};
use crate::error::Result;
use crate::labels::{LabelBuilder, TEXT_MAX_BYTES};
use crate::rejection::Reason;
use crate::sender_rights::Sender;

/// Options of the decoder.
#[derive(Debug, Clone, Default)]
pub struct ExpositionOptions {
    /// OpenMetrics: times are in seconds, exemplars are read.
    pub open_metrics: bool,
    /// Time of arrival, which samples without a time get if the request gives none, either.
    pub now_ms: Millis,
    /// Time that the request gives to samples without one.
    pub given_ms: Option<Millis>,
    /// Labels that each series gets; they win over labels of the same name.
    pub extra_labels: Vec<(String, String)>,
    /// The sender, if it may not write all series.
    pub sender: Option<Arc<Sender>>,
}

/// Reads exposition text in chunks.
#[derive(Debug)]
pub struct ExpositionDecoder {
    options: ExpositionOptions,
    sink: Sink,
    /// An incomplete line, whose end has not arrived yet.
    partial: Vec<u8>,
    /// Whether the rest of the current line is skipped, because it is too long.
    skipping: bool,
    line: u64,
    family: MetricMetadata,
    /// Whether a series of the family was taken.
    family_taken: bool,
    scratch: Scratch,
    pairs: LabelBuilder<'static>,
    exemplar_pairs: LabelBuilder<'static>,
}

/// A piece of text: of the line, or unescaped in the scratch text.
#[derive(Debug, Clone, Copy)]
enum Piece {
    Line(usize, usize),
    Text(usize, usize),
}

#[derive(Debug, Default)]
struct Scratch {
    text: Vec<u8>,
    labels: Vec<(Piece, Piece)>,
    exemplar: Vec<(Piece, Piece)>,
}

impl Scratch {
    fn get<'s>(&'s self, line: &'s [u8], piece: Piece) -> &'s [u8] {
        match piece {
            Piece::Line(start, end) => &line[start..end],
            Piece::Text(start, end) => &self.text[start..end],
        }
    }
}

/// Name of the metric as a label.
const NAME: &[u8] = b"__name__";
/// What `NaN` becomes: the bits that Prometheus writes for it.
const NORMAL_NAN: u64 = 0x7ff8_0000_0000_0001;
/// Bytes that a decoder may gather before `take` must be called.
const GATHER_MAX_BYTES: usize = 256 << 20;

impl ExpositionDecoder {
    /// Makes a decoder.
    pub fn new(options: ExpositionOptions) -> Self {
        Self {
            sink: Sink::new(0, GATHER_MAX_BYTES).of_sender(options.sender.as_ref()),
            options,
            partial: Vec::new(),
            skipping: false,
            line: 0,
            family: empty_metadata(),
            family_taken: false,
            scratch: Scratch::default(),
            pairs: LabelBuilder::default(),
            exemplar_pairs: LabelBuilder::default(),
        }
    }

    /// Reads the next chunk; lines may be cut anywhere.
    ///
    /// # Errors
    /// TooLarge: more than 256 MiB have gathered since the last [`ExpositionDecoder::take`].
    pub fn feed(&mut self, chunk: &[u8]) -> Result<()> {
        self.feed_until(chunk, usize::MAX).map(|_| ())
    }

    /// Reads the next chunk, but no further line once so many bytes have gathered: with labels of the request a short
    /// line becomes a long series. Gives how much of the chunk was read.
    ///
    /// # Errors
    /// As [`ExpositionDecoder::feed`].
    pub fn feed_until(&mut self, chunk: &[u8], bytes_max: usize) -> Result<usize> {
        let mut read = 0;
        while let Some(len) = memchr(b'\n', &chunk[read..]) {
            let line = &chunk[read..read + len];
            read += len + 1;
            if self.partial.is_empty() && !self.skipping {
                self.read_line(line)?;
            } else {
                self.hold(line);
                self.end_of_line()?;
            }
            if self.bytes() >= bytes_max {
                return Ok(read);
            }
        }
        self.hold(&chunk[read..]);
        Ok(chunk.len())
    }

    /// Number of samples that have gathered.
    pub fn samples(&self) -> usize {
        self.sink.batch.ts.len()
    }

    /// Bytes that have gathered, about.
    pub fn bytes(&self) -> usize {
        self.sink.used()
    }

    /// Takes what has gathered. Counts of bad lines start anew with each call; line numbers go on.
    pub fn take(&mut self) -> DecodedMetrics {
        let next = Sink::new(0, GATHER_MAX_BYTES).of_sender(self.options.sender.as_ref());
        std::mem::replace(&mut self.sink, next).finish()
    }

    /// Reads a last line without line break, and gives what has gathered.
    ///
    /// # Errors
    /// As [`ExpositionDecoder::feed`].
    pub fn finish(mut self) -> Result<DecodedMetrics> {
        if !self.partial.is_empty() || self.skipping {
            self.end_of_line()?;
        }
        self.end_family()?;
        Ok(self.take())
    }

    fn hold(&mut self, part: &[u8]) {
        if self.skipping {
            return;
        }
        if self.partial.len() + part.len() > TEXT_MAX_BYTES {
            self.partial = Vec::new();
            self.skipping = true;
            return;
        }
        self.partial.extend_from_slice(part);
    }

    fn end_of_line(&mut self) -> Result<()> {
        if std::mem::take(&mut self.skipping) {
            self.line += 1;
            self.reject("longer than 2 MiB", b"");
            return Ok(());
        }
        let mut line = std::mem::take(&mut self.partial);
        let result = self.read_line(&line);
        line.clear();
        self.partial = line;
        result
    }

    fn reject(&mut self, what: &str, line: &[u8]) {
        let number = self.line;
        self.sink.reject(Reason::BadLine, 1, || {
            let text = String::from_utf8_lossy(&line[..line.len().min(256)]);
            format!("line {number}: {what}: {text}")
        });
    }

    fn read_line(&mut self, line: &[u8]) -> Result<()> {
        // A line that came whole in a chunk has not been through `hold`.
        if line.len() > TEXT_MAX_BYTES {
            self.skipping = true;
            return self.end_of_line();
        }
        self.line += 1;
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        match line.trim_ascii_start().first() {
            None => Ok(()),
            Some(b'#') => self.comment(line),
            Some(_) => match self.sample(line) {
                Ok(()) => Ok(()),
                Err(Bad::Line(what)) => {
                    self.reject(what, line);
                    Ok(())
                }
                Err(Bad::Fatal(e)) => Err(e),
            },
        }
    }

    /// Reads `# HELP`, `# TYPE` and `# UNIT`; other comments say nothing.
    fn comment(&mut self, line: &[u8]) -> Result<()> {
        let Ok(text) = std::str::from_utf8(line) else {
            self.reject("invalid UTF-8", line);
            return Ok(());
        };
        let mut words = text.trim_start()[1..].trim_start().splitn(2, [' ', '\t']);
        let kind = words.next().unwrap_or_default();
        if !matches!(kind, "HELP" | "TYPE" | "UNIT") {
            return Ok(());
        }
        let rest = words.next().unwrap_or_default().trim_start();
        let (name, value) = if let Some(quoted) = rest.strip_prefix('"') {
            let Some(read) = quoted_name(quoted) else {
                self.reject("unclosed name", line);
                return Ok(());
            };
            read
        } else {
            let (name, value) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
            (Cow::Borrowed(name), value)
        };
        if name.is_empty() {
            self.reject("comment without a metric name", line);
            return Ok(());
        }
        if self.family.metric != name {
            self.end_family()?;
            self.family.metric = name.into_owned();
        }
        let value = value.trim();
        match kind {
            "HELP" => self.family.help = unescape(value, self.options.open_metrics),
            "UNIT" => value.clone_into(&mut self.family.unit),
            _ => {
                let known = ["counter", "gauge", "histogram", "gaugehistogram", "summary", "info", "stateset"];
                let found = known.iter().find(|known| known.eq_ignore_ascii_case(value));
                (*found.unwrap_or(&"unknown")).clone_into(&mut self.family.metric_type);
            }
        }
        Ok(())
    }

    fn end_family(&mut self) -> Result<()> {
        let family = std::mem::replace(&mut self.family, empty_metadata());
        let taken = std::mem::take(&mut self.family_taken);
        // A sender that may write none of a family's series may not write its metadata either.
        let told = !family.metric.is_empty() && (taken || !self.sink.is_gated());
        if told { self.sink.push_metadata(family) } else { Ok(()) }
    }

    fn sample(&mut self, line: &[u8]) -> Result<(), Bad> {
        let scratch = &mut self.scratch;
        scratch.text.clear();
        scratch.labels.clear();
        scratch.exemplar.clear();
        let mut p = Parser { line, pos: 0, text: &mut scratch.text };
        p.space();
        if let Some(name) = p.name(true) {
            scratch.labels.push((Piece::Line(0, 0), name));
        }
        p.space();
        if p.take(b'{') {
            p.labels(&mut scratch.labels)?;
        }
        let value = p.number()?;
        let open_metrics = self.options.open_metrics;
        let ts = match (p.peek(), self.options.given_ms) {
            (None | Some(b'#'), Some(given)) => given,
            (None | Some(b'#'), None) => {
                self.sink.note_arrival(self.options.now_ms);
                self.options.now_ms
            }
            _ => p.time(open_metrics)?,
        };
        let mut exemplar = None;
        if open_metrics && p.peek() == Some(b'#') {
            p.pos += 1;
            p.space();
            if !p.take(b'{') {
                return Err(Bad::Line("expected the labels of an exemplar"));
            }
            p.labels(&mut scratch.exemplar)?;
            let value = p.number()?;
            let ts = if p.peek().is_none() { ts } else { p.time(true)? };
            exemplar = Some((ts, value));
        }
        if p.peek().is_some() {
            return Err(Bad::Line("unexpected text at the end"));
        }
        self.push(line, value, ts, exemplar)
    }

    fn push(&mut self, line: &[u8], value: f64, ts: Millis, exemplar: Option<(Millis, f64)>) -> Result<(), Bad> {
        let scratch = &self.scratch;
        let extra = &self.options.extra_labels;
        let mut pairs = std::mem::take(&mut self.pairs).reuse();
        for (name, text) in &scratch.labels {
            let name = match name {
                Piece::Line(0, 0) => NAME,
                name => scratch.get(line, *name),
            };
            if extra.iter().all(|(extra, _)| extra.as_bytes() != name) {
                pairs.push(name, scratch.get(line, *text));
            }
        }
        for (name, value) in extra {
            pairs.push(name.as_bytes(), value.as_bytes());
        }
        let pushed = self.sink.push_series(|out| pairs.write_series(out));
        self.pairs = pairs.reuse();
        let series = match pushed.map_err(Bad::Fatal)? {
            Ok(series) => series,
            Err(Reason::Service) => {
                self.sink.reject(Reason::Service, 1, String::new);
                return Ok(());
            }
            Err(reason) => return Err(Bad::Line(reason.message())),
        };
        self.family_taken |= match scratch.labels.first() {
            Some((Piece::Line(0, 0), name)) => scratch.get(line, *name).starts_with(self.family.metric.as_bytes()),
            _ => false,
        };
        self.sink.push_sample(series, ts, value, 0).map_err(Bad::Fatal)?;
        if let Some((ts, value)) = exemplar {
            let mut pairs = std::mem::take(&mut self.exemplar_pairs).reuse();
            for (name, text) in &scratch.exemplar {
                pairs.push(scratch.get(line, *name), scratch.get(line, *text));
            }
            let pushed = self.sink.push_exemplar(series, ts, value, &mut pairs);
            self.exemplar_pairs = pairs.reuse();
            pushed.map_err(Bad::Fatal)?;
        }
        Ok(())
    }
}

fn empty_metadata() -> MetricMetadata {
    let unknown = "unknown".to_owned();
    MetricMetadata { metric: String::new(), metric_type: unknown, help: String::new(), unit: String::new() }
}

fn unescape(text: &str, quotes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, chars.clone().next()) {
            ('\\', Some('n')) => out.push('\n'),
            ('\\', Some('\\')) => out.push('\\'),
            ('\\', Some('"')) if quotes => out.push('"'),
            _ => {
                out.push(c);
                continue;
            }
        }
        chars.next();
    }
    out
}

/// Reads a name behind its opening quote, with the escapes of labels; gives what follows it, too.
fn quoted_name(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let mut end = 0;
    loop {
        end += memchr::memchr2(b'"', b'\\', text.as_bytes().get(end..)?)?;
        if text.as_bytes()[end] == b'"' {
            return Some((Cow::Owned(unescape(&text[..end], true)), &text[end + 1..]));
        }
        end += 2;
    }
}

/// What is wrong with a line, or with all.
enum Bad {
    Line(&'static str),
    Fatal(crate::Error),
}

/// Reads one line.
struct Parser<'l, 's> {
    line: &'l [u8],
    pos: usize,
    text: &'s mut Vec<u8>,
}

impl Parser<'_, '_> {
    fn at(&self) -> Option<u8> {
        self.line.get(self.pos).copied()
    }

    fn space(&mut self) {
        while matches!(self.at(), Some(b' ' | b'\t')) {
            self.pos += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.space();
        self.at()
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.at() == Some(byte);
        self.pos += usize::from(found);
        found
    }

    /// Reads an unquoted name; metric names may hold colons.
    fn name(&mut self, colons: bool) -> Option<Piece> {
        let start = self.pos;
        while let Some(byte) = self.at() {
            let digit = byte.is_ascii_digit() && self.pos > start;
            if !(digit || byte.is_ascii_alphabetic() || byte == b'_' || (colons && byte == b':')) {
                break;
            }
            self.pos += 1;
        }
        (self.pos > start).then_some(Piece::Line(start, self.pos))
    }

    /// Reads a quoted text; the quote comes next.
    fn quoted(&mut self) -> Result<Piece, Bad> {
        self.pos += 1;
        let start = self.pos;
        let len = memchr::memchr2(b'"', b'\\', &self.line[start..]).ok_or(Bad::Line("unclosed quote"))?;
        self.pos += len;
        if self.take(b'"') {
            return Ok(Piece::Line(start, start + len));
        }
        let text_start = self.text.len();
        self.text.extend_from_slice(&self.line[start..self.pos]);
        loop {
            let byte = self.at().ok_or(Bad::Line("unclosed quote"))?;
            self.pos += 1;
            match byte {
                b'"' => return Ok(Piece::Text(text_start, self.text.len())),
                b'\\' => {
                    let escaped = self.at().ok_or(Bad::Line("unclosed quote"))?;
                    self.pos += 1;
                    match escaped {
                        b'n' => self.text.push(b'\n'),
                        b'"' | b'\\' => self.text.push(escaped),
                        other => self.text.extend([b'\\', other]),
                    }
                }
                byte => self.text.push(byte),
            }
        }
    }

    /// Reads labels up to the closing brace. A quoted text without a value is the metric's name.
    fn labels(&mut self, out: &mut Vec<(Piece, Piece)>) -> Result<(), Bad> {
        loop {
            let next = self.peek();
            if self.take(b'}') {
                return Ok(());
            }
            let name = if next == Some(b'"') { Some(self.quoted()?) } else { self.name(false) };
            let name = name.ok_or(Bad::Line("expected a label name"))?;
            self.space();
            if self.take(b'=') {
                if self.peek() != Some(b'"') {
                    return Err(Bad::Line("expected a quoted label value"));
                }
                let value = self.quoted()?;
                // An empty name would be taken for the metric's name.
                if matches!(name, Piece::Line(start, end) | Piece::Text(start, end) if start == end) {
                    return Err(Bad::Line("empty label name"));
                }
                out.push((name, value));
            } else if next == Some(b'"') {
                out.push((Piece::Line(0, 0), name));
            } else {
                return Err(Bad::Line("expected `=`"));
            }
            self.space();
            if !self.take(b',') && self.at() != Some(b'}') {
                return Err(Bad::Line("expected `,` or `}`"));
            }
        }
    }

    fn word(&mut self) -> Result<&str, Bad> {
        self.space();
        let start = self.pos;
        while self.at().is_some_and(|b| !matches!(b, b' ' | b'\t')) {
            self.pos += 1;
        }
        std::str::from_utf8(&self.line[start..self.pos]).map_err(|_| Bad::Line("invalid UTF-8"))
    }

    fn number(&mut self) -> Result<f64, Bad> {
        let word = self.word()?;
        let value: f64 = word.parse().map_err(|_| Bad::Line("expected a number"))?;
        // Only a word says that it is infinite; digits say more than there is room for, which Go refuses, too.
        if value.is_infinite() && word.bytes().any(|b| b.is_ascii_digit()) {
            return Err(Bad::Line("a number out of range"));
        }
        Ok(if value.is_nan() { f64::from_bits(NORMAL_NAN) } else { value })
    }

    /// Reads a time: milliseconds, or seconds with a fraction.
    fn time(&mut self, seconds: bool) -> Result<Millis, Bad> {
        let bad = || Bad::Line("expected a time");
        let word = self.word()?;
        if !seconds {
            return word.parse().map_err(|_| bad());
        }
        let ms = word.parse::<f64>().map_err(|_| bad())? * 1000.0;
        if ms.abs() < 9.0e18 { Ok(ms.round() as i64) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests;
