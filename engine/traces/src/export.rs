//! The export formats: one file per format, one slice that lists them.

mod format;
pub mod internal;
pub mod otlp;
mod scopes;
pub mod spanarray;
pub mod tempo;
pub mod traceobject;
pub(crate) mod values;

pub use format::{ExportFormat, ExportOptions, NameCase};
pub use values::any_value;

use crate::assemble::Trace;
use crate::json_writer::JsonWriter;

/// All formats with a path of their own.
pub const FORMATS: &[ExportFormat] = &[otlp::FORMAT, spanarray::FORMAT, traceobject::FORMAT];

/// Finds a format by name.
pub fn find(name: &str) -> Option<&'static ExportFormat> {
    FORMATS.iter().find(|f| f.name == name)
}

/// Writes a trace as one piece.
pub fn to_json(trace: &Trace, format: &ExportFormat, options: ExportOptions) -> Vec<u8> {
    let mut writer = JsonWriter::default();
    (format.write)(trace, options, &mut writer);
    writer.finish().unwrap_or_default()
}

#[cfg(test)]
mod tests;
