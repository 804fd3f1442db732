//! What an export format is, and what a caller chooses of it.

use crate::assemble::Trace;
use crate::writer::JsonWriter;

/// What a caller chose about the shape of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportOptions {
    /// Whether values keep the types that they came with (integer, boolean); otherwise they are texts, or doubles.
    pub native: bool,
    /// Whether links to spans are written as references, too.
    pub link_references: bool,
    /// Whether fields are added that the documented shape of a format does not have; on unless switched off.
    pub extras: bool,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { native: false, link_references: false, extras: true }
    }
}

/// One way to write a trace as JSON. Those with a path of their own stand in [`FORMATS`](super::FORMATS).
#[derive(Debug, Clone, Copy)]
pub struct ExportFormat {
    /// Name: last segment of its path, and part of the file's name.
    pub name: &'static str,
    /// Writes a trace.
    pub write: fn(&Trace, ExportOptions, &mut JsonWriter<'_>),
}
