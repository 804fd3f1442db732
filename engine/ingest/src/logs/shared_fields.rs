//! Fields that many rows of a request have in common: stream labels, attributes of a resource and its scopes.

use super::labels;
use super::row_counts::DropReason;
use super::rows::Rows;

/// The most shared fields; a row may have a fourth of that. An entry of two bytes takes fifty here.
const FIELDS_MAX: usize = 4096;
/// The most bytes of their names and values, as for a row.
const BYTES_MAX: usize = 2 << 20;

/// Shared fields in the order in which they are added to rows.
#[derive(Debug, Default)]
pub(super) struct SharedFields {
    pairs: Vec<(String, String)>,
    /// Bytes of names and values together, and of values.
    bytes: [usize; 2],
    /// Why rows with these fields are dropped.
    fault: Option<DropReason>,
    names: Vec<u32>,
    /// The generation of the numbers of names.
    generation: u32,
}

/// A state that can be restored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mark {
    fields: usize,
    bytes: [usize; 2],
    fault: Option<DropReason>,
}

impl SharedFields {
    /// Removes all fields.
    pub(super) fn clear(&mut self) {
        self.take_back(Mark { fields: 0, bytes: [0; 2], fault: None });
    }

    pub(super) fn mark(&self) -> Mark {
        Mark { fields: self.pairs.len(), bytes: self.bytes, fault: self.fault }
    }

    /// Removes the fields that were added since a mark.
    pub(super) fn take_back(&mut self, mark: Mark) {
        self.pairs.truncate(mark.fields);
        (self.bytes, self.fault) = (mark.bytes, mark.fault);
        self.generation = 0;
    }

    /// Adds a field.
    pub(super) fn push(&mut self, name: String, value: String) {
        let [all, values] = self.bytes;
        self.bytes = [all.saturating_add(name.len() + value.len()), values.saturating_add(value.len())];
        let fault = if self.pairs.len() >= FIELDS_MAX {
            DropReason::TooManyFields
        } else if self.bytes[0] > BYTES_MAX {
            DropReason::LargeRow
        } else {
            self.pairs.push((name, value));
            self.generation = 0;
            return;
        };
        self.lose(fault);
    }

    /// Makes all rows with these fields be dropped.
    pub(super) fn lose(&mut self, why: DropReason) {
        self.fault.get_or_insert(why);
    }

    /// Makes these fields the stream labels of the following rows, unless a parameter names stream fields.
    pub(super) fn set_stream(&self, rows: &mut Rows) {
        // There may be any number of streams without rows.
        rows.bound_batch();
        if rows.names_stream_fields() {
            return;
        }
        let labels = self.pairs.iter().filter_map(|(name, value)| Some((rows.label(name)?, value)));
        let mut canonical = Vec::new();
        labels::canonical(labels.collect(), &mut canonical);
        rows.set_stream(&canonical);
    }

    /// Adds all of them to a row; one of them may become its message.
    pub(super) fn add(&mut self, rows: &mut Rows) {
        self.add_each(rows, Rows::add);
    }

    /// Adds all of them to a row; none is its time or its message, whatever its name.
    pub(super) fn add_plain(&mut self, rows: &mut Rows) {
        self.add_each(rows, Rows::add_plain);
    }

    fn add_each(&mut self, rows: &mut Rows, add: impl Fn(&mut Rows, u32, &str)) {
        if let Some(fault) = self.fault {
            rows.lose(fault);
        }
        if rows.is_lost() {
            return;
        }
        if self.generation != rows.names.generation {
            self.names.clear();
            self.names.extend(self.pairs.iter().map(|(name, _)| rows.field_name(name)));
            self.generation = rows.names.generation;
        }
        rows.spend(self.pairs.len(), self.bytes[1]);
        for (name, (_, value)) in self.names.iter().zip(&self.pairs) {
            add(rows, *name, value);
        }
    }
}
