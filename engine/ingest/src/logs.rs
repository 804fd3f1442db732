//! Logs: seven wire formats into [`quiver_types::LogsBatch`].
//!
//! `options` holds the field-handling parameters, `rows` builds rows out of fields (`names`, `stream_numbers` find what was
//! seen before), `json` and `flatten` read objects, `time` reads times. Above them stands one file per format: `lines`
//! (JSON lines), `bulk`, `push` (an aggregator's push, two encodings), `saas`, `otlp`, `journal` (systemd's), `events`
//! (Splunk's collector); `shared_fields` has what rows share. A format gives batches and a [`Report`]; only what its
//! protocol calls a bad request is an error.

pub mod bulk;
pub mod events;
mod flatten;
mod journal;
mod json;
mod labels;
mod lines;
mod names;
mod options;
pub mod otlp;
pub mod push;
mod row_counts;
mod rows;
pub mod saas;
mod shared_fields;
mod stream_numbers;
pub mod time;

use std::borrow::Cow;
use std::sync::Arc;

use quiver_types::LogsBatch;

pub use journal::Journal;
pub use lines::JsonLines;
pub use options::{FieldOptions, KEEP_MESSAGES, MESSAGE_PREFIX, PARAMETERS, Parameter};
pub use row_counts::{DropReason, Report};
pub use rows::Rows;

use crate::decode_memory;
use crate::error::Error;
use crate::sender_rights::Sender;

/// Decodes UTF-8; invalid bytes become the replacement character.
fn lossy(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    // Computes the length first: the input may be a whole body, and a string that grows by doubling takes twice the
    // memory.
    let pieces = || bytes.utf8_chunks().map(|c| (c.valid(), if c.invalid().is_empty() { "" } else { REPLACEMENT }));
    let mut text = String::with_capacity(pieces().map(|(valid, other)| valid.len() + other.len()).sum());
    pieces().for_each(|(valid, other)| {
        text.push_str(valid);
        text.push_str(other);
    });
    Cow::Owned(text)
}

/// Likewise of a whole body. One that is not UTF-8 is copied, and its copy may be three times as long.
///
/// # Errors
/// NoRoom.
fn lossy_body(body: &[u8]) -> Result<Cow<'_, str>, Error> {
    if std::str::from_utf8(body).is_err() {
        let bytes = |c: std::str::Utf8Chunk<'_>| c.valid().len() + REPLACEMENT.len();
        decode_memory::hold_beside(body.utf8_chunks().map(bytes).sum())?;
    }
    Ok(lossy(body))
}

/// The replacement character, U+FFFD.
const REPLACEMENT: &str = "\u{fffd}";

/// Longest name of a field.
pub const NAME_BYTES_MAX: usize = 128;
/// Fields that name the service of a row where no setting says otherwise.
pub const SERVICE_FIELDS: [&str; 5] = ["service.name", "service_name", "service", "app", "kubernetes.labels.app"];

/// Bounds of rows and requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogsLimits {
    /// Longest line of the line formats, in bytes; longer ones are dropped.
    pub line_bytes_max: usize,
    /// Most fields of a row; rows with more are dropped.
    pub fields_max: usize,
    /// Most bytes of names and values of a row together; larger rows are dropped.
    pub row_bytes_max: usize,
    /// Bytes of values after which a batch is full.
    pub batch_bytes: usize,
    /// Largest decoded request of formats that are read as a whole before anything is stored.
    pub total_bytes_max: usize,
}

impl Default for LogsLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: 256 << 10,
            fields_max: 1000,
            row_bytes_max: 2 << 20,
            batch_bytes: 4 << 20,
            total_bytes_max: 128 << 20,
        }
    }
}

/// What a decoder needs besides the body.
#[derive(Debug, Clone)]
pub struct LogsContext {
    /// The parameters of the request.
    pub options: Arc<FieldOptions>,
    /// Bounds of rows and requests.
    pub limits: LogsLimits,
    /// Time of arrival, Unix nanoseconds.
    pub now_ns: i64,
    /// Latest time that is accepted, Unix nanoseconds.
    pub future_max_ns: i64,
    /// Limits whose rows are accepted; `None`: all.
    pub sender: Option<Arc<Sender>>,
}

/// A request that was read as a whole.
#[derive(Debug, Default)]
pub struct DecodedLogs {
    /// The accepted rows, in batches for the store.
    pub batches: Vec<LogsBatch>,
    /// What became of the rows.
    pub report: Report,
}

impl DecodedLogs {
    fn of(mut rows: Rows) -> Self {
        let batches = rows.take_all();
        Self { batches, report: rows.report }
    }
}

/// Cuts text into lines as the line formats do, for tests.
pub(crate) fn cut_lines(body: &[u8], ended: bool) -> Vec<String> {
    let (mut cutter, mut out) = (lines::Lines::new(LogsLimits::default().line_bytes_max), Vec::new());
    let mut each = |_, line: lines::Line<'_>| {
        if let lines::Line::Text(text) = line {
            out.push(text.to_owned());
        }
        Ok::<_, std::convert::Infallible>(())
    };
    let Ok(()) = cutter.feed(body, &mut each);
    if ended {
        let Ok(()) = cutter.finish(&mut each);
    }
    out
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::otlp::records as otlp_example;
