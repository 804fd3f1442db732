//! Definition of an export format, and its options.

use crate::assemble::Trace;
use crate::json_writer::JsonWriter;

/// Options for the shape of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// Whether values keep their original types (integer, boolean); otherwise they become strings or doubles.
    pub native: bool,
    /// Whether links to spans are also written as references.
    pub link_references: bool,
    /// Whether to add fields that the documented shape of a format lacks; on by default.
    pub extras: bool,
    /// How the flat form writes names of services and spans.
    pub names: NameCase,
}

/// How names are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NameCase {
    /// As they were sent.
    AsSent,
    /// In lower case, as Zipkin does.
    Lower,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { native: false, link_references: false, extras: true, names: NameCase::AsSent }
    }
}

/// A way to write a trace as JSON. Formats with a path of their own are listed in [`FORMATS`](super::FORMATS).
#[derive(Debug, Clone, Copy)]
pub struct ExportFormat {
    /// Name: the last segment of its path, and part of the file name.
    pub name: &'static str,
    /// Writes a trace.
    pub write: fn(&Trace, ExportOptions, &mut JsonWriter<'_>),
}
