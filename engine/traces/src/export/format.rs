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
    /// Whose flat form is written.
    pub flat: FlatForm,
}

/// Ways to write the flat form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlatForm {
    /// As it is documented: names as they were sent, and the other side of outgoing calls.
    Documented,
    /// As Zipkin does: names in lower case, and the other side of any span that says it.
    Zipkin,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self { native: false, link_references: false, extras: true, flat: FlatForm::Documented }
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
