//! Applies the changes that rules make to log records, in place in their batch.

use std::sync::Arc;

use quiver_types::LogsBatch;

use super::columns::{Plan, Set, end_of};

/// What rules set of the records of a batch: record by record, each in the order of the rules, a field once.
#[derive(Debug, Default)]
pub(super) struct Changes {
    sets: Vec<Set>,
    texts: String,
}

impl Changes {
    /// Takes in those of records from `first` on, which count their records and texts from there.
    pub(super) fn extend(&mut self, first: usize, sets: impl Iterator<Item = Set>, texts: &str) {
        let moved = self.texts.len();
        self.texts.push_str(texts);
        self.sets.extend(sets.map(|set| Set {
            row: first + set.row,
            value: set.value.map(|(from, to)| (from + moved, to + moved)),
            ..set
        }));
    }

    /// Puts them into their batch; `known` is what [`Plan::known`] gave.
    pub(super) fn put_into(self, batch: &mut LogsBatch, plan: &Plan, known: &[Option<usize>]) {
        // Fields that rules know, as the batch numbers them.
        let mut names = vec![None; plan.fields.len()];
        for (name, number) in known.iter().enumerate() {
            if let Some(number) = number {
                names[*number] = Some(name as u32);
            }
        }
        // What no record of the batch had is written over nothing.
        let over: Vec<(usize, u32)> = self.sets.iter().filter_map(|set| Some((set.row, names[set.field]?))).collect();
        take_away(batch, &over);
        let mut added = Vec::with_capacity(self.sets.len());
        for set in &self.sets {
            // An empty value counts as missing.
            if let Some((from, to)) = set.value.filter(|(from, to)| from < to) {
                let next = batch.names.len() as u32;
                let name = *names[set.field].get_or_insert(next);
                if name == next {
                    batch.names.push(Arc::from(plan.fields[set.field].as_str()));
                }
                added.push((set.row, name, &self.texts[from..to]));
            }
        }
        add(batch, &added);
    }
}

/// Takes fields away, which are named by record and name, in the order of the records.
fn take_away(batch: &mut LogsBatch, over: &[(usize, u32)]) {
    let Some((first, _)) = over.first() else { return };
    let mut own = over.chunk_by(|one, next| one.0 == next.0).peekable();
    // The next field that is looked at, where its value begins, and where both go.
    let mut field = first.checked_sub(1).map_or(0, |before| batch.field_ends[before] as usize);
    let mut from = end_of(batch, field) as usize;
    let (mut to_field, mut to) = (field, from);
    for row in *first..batch.len() {
        let own = own.next_if(|own| own[0].0 == row).unwrap_or_default();
        let end = batch.field_ends[row] as usize;
        for at in field..end {
            let (name, value_end) = (batch.field_names[at], batch.value_ends[at] as usize);
            if own.iter().all(|(_, over)| *over != name) {
                batch.values.copy_within(from..value_end, to);
                to += value_end - from;
                batch.field_names[to_field] = name;
                batch.value_ends[to_field] = to as u32;
                to_field += 1;
            }
            from = value_end;
        }
        field = end;
        batch.field_ends[row] = to_field as u32;
    }
    batch.field_names.truncate(to_field);
    batch.value_ends.truncate(to_field);
    batch.values.truncate(to);
}

/// Appends fields to records: record, name and value, in the order of the records. The last ones move first, so that nothing
/// is written over that has still to move.
fn add(batch: &mut LogsBatch, added: &[(usize, u32, &str)]) {
    // Fields and bytes that have still to move, and where they end then.
    let (mut fields, mut bytes) = (batch.field_names.len(), batch.values.len());
    let mut to = fields + added.len();
    let mut bytes_to = bytes + added.iter().map(|(.., value)| value.len()).sum::<usize>();
    // Exactly: the store takes what has little room left over as it is.
    batch.field_names.reserve_exact(to - fields);
    batch.value_ends.reserve_exact(to - fields);
    batch.values.reserve_exact(bytes_to - bytes);
    batch.field_names.resize(to, 0);
    batch.value_ends.resize(to, 0);
    batch.values.resize(bytes_to, 0);
    let mut rows = batch.len();
    for own in added.chunk_by(|one, next| one.0 == next.0).rev() {
        let row = own[0].0;
        // What stands behind the record.
        let end = batch.field_ends[row] as usize;
        let bytes_end = end_of(batch, end) as usize;
        let (moved, bytes_moved) = (to - fields, bytes_to - bytes);
        batch.field_names.copy_within(end..fields, end + moved);
        batch.value_ends.copy_within(end..fields, end + moved);
        batch.values.copy_within(bytes_end..bytes, bytes_end + bytes_moved);
        for value_end in &mut batch.value_ends[end + moved..to] {
            *value_end += bytes_moved as u32;
        }
        for field_end in &mut batch.field_ends[row..rows] {
            *field_end += moved as u32;
        }
        (fields, bytes, rows) = (end, bytes_end, row);
        (to, bytes_to) = (end + moved, bytes_end + bytes_moved);
        for (_, name, value) in own.iter().rev() {
            to -= 1;
            batch.field_names[to] = *name;
            batch.value_ends[to] = bytes_to as u32;
            let begin = bytes_to - value.len();
            batch.values[begin..bytes_to].copy_from_slice(value.as_bytes());
            bytes_to = begin;
        }
    }
}
