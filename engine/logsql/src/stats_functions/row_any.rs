//! `row_any(..)`: one row as a JSON object.

use datafusion::common::Result;

use super::args::{Args, Column};
use super::grouped::GroupState;
use super::state_bytes::{Reader, put_text};
use crate::row_functions::pack_json;

/// The row that was taken.
#[derive(Debug, Default)]
pub(super) struct RowAny {
    object: Option<String>,
}

/// Writes fields of a row as an object: by name, or in the order of the arguments; a field once.
pub(super) fn push_object(columns: &[Column<'_>], row: usize, buffer: &mut String, by_name: bool, out: &mut String) {
    let mut fields: Vec<(String, String)> = Vec::with_capacity(columns.len());
    let mut by_name = by_name;
    let mut push = |name: &str, value: &str| {
        if !value.is_empty() && !fields.iter().any(|(own, _)| own == name) {
            fields.push((name.to_owned(), value.to_owned()));
        }
    };
    for column in columns {
        match column {
            Column::Field { name, text, .. } => push(name, text.text(row, buffer)),
            Column::Rest(rest) => {
                by_name = true;
                rest.each(row, &mut push);
            }
        }
    }
    if by_name {
        fields.sort();
    }
    pack_json(fields.iter().map(|(name, value)| (name.as_str(), value.as_str())), out);
}

impl GroupState for RowAny {
    type Config = ();

    fn add(&mut self, (): &(), args: &Args<'_>, row: usize, buffer: &mut String) -> usize {
        if self.object.is_some() {
            return 0;
        }
        let mut object = String::new();
        push_object(&args.columns, row, buffer, true, &mut object);
        let grown = object.len();
        self.object = Some(object);
        grown
    }

    fn encode(&self, out: &mut Vec<u8>) {
        if let Some(object) = &self.object {
            put_text(out, object);
        }
    }

    fn merge(&mut self, (): &(), from: &mut Reader<'_>) -> Result<usize> {
        if from.is_empty() || self.object.is_some() {
            return Ok(0);
        }
        self.object = Some(from.text()?.to_owned());
        Ok(self.object.as_ref().map_or(0, String::len))
    }

    fn finish(self, (): &(), out: &mut String) {
        out.push_str(self.object.as_deref().unwrap_or("{}"));
    }
}
