//! The export formats: one file per format, one slice that lists them.

mod format;
pub mod internal;
pub mod otlp;
mod scopes;
pub mod spanarray;
pub mod tempo;
pub mod traceobject;
pub(crate) mod values;

pub use format::{ExportFormat, ExportOptions, FlatForm};
pub use values::any_value;

/// All formats with a path of their own.
pub const FORMATS: &[ExportFormat] = &[otlp::FORMAT, spanarray::FORMAT, traceobject::FORMAT];

/// Finds a format by name.
pub fn find(name: &str) -> Option<&'static ExportFormat> {
    FORMATS.iter().find(|f| f.name == name)
}

#[cfg(test)]
mod tests;
