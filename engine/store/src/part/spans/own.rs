//! Chooses which attributes get columns of their own.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, UInt32Type};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::SpansBatch;
use quiver_types::spans::{Attributes, Place};

use super::{OwnType, column_name};

/// Of more rows than this only some are looked at.
const SAMPLED_ROWS: usize = 128 * 1024;
/// One of so many.
const SAMPLE_STEP: usize = 7;
/// Most columns of attributes.
const OWN_MAX: usize = 250;

/// An attribute with a column of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OwnColumn {
    pub(crate) place: Place,
    pub(crate) key: String,
    pub(crate) kind: OwnType,
}

impl OwnColumn {
    pub(super) fn field(&self) -> Field {
        let kind = match self.kind {
            OwnType::Text => DataType::Utf8,
            OwnType::Int => DataType::Int64,
            OwnType::Double => DataType::Float64,
            OwnType::Bool => DataType::Boolean,
        };
        Field::new(column_name(self.place, &self.key), kind, true)
    }
}

/// Chooses columns: what is on 1 % of the rows, the commonest first. A key has one column, of its commonest type.
pub(crate) fn own_columns<'b>(batches: impl Iterator<Item = &'b SpansBatch>) -> Vec<OwnColumn> {
    // Of each place and key how many have each type.
    let mut counts: [HashMap<Vec<u8>, [u64; 4], FixedState>; 2] = Default::default();
    let mut rows = 0u64;
    let mut add = |place: usize, bytes: &[u8], n: u64| {
        for raw in Attributes::raw(bytes) {
            let Some(kind) = OwnType::of_letter(raw.letter) else { continue };
            match counts[place].get_mut(raw.key) {
                Some(of) => of[kind as usize] += n,
                None => counts[place].entry(raw.key.to_vec()).or_default()[kind as usize] += n,
            }
        }
    };
    let batches: Vec<&SpansBatch> = batches.collect();
    // Of many rows some are enough to tell what is common.
    let total: usize = batches.iter().map(|batch| batch.len()).sum();
    let step = if total > SAMPLED_ROWS { SAMPLE_STEP } else { 1 };
    for batch in batches {
        rows += batch.len() as u64;
        let mut uses = vec![0u64; batch.contexts.num_rows()];
        batch.spans["context"].as_primitive::<UInt32Type>().values().iter().for_each(|&c| uses[c as usize] += 1);
        let resources = batch.contexts["resource"].as_binary::<i32>();
        for (i, n) in uses.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            add(1, resources.value(i), n);
        }
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        attributes.iter().step_by(step).flatten().for_each(|bytes| add(0, bytes, step as u64));
    }
    let mut all: Vec<((Place, String, OwnType), u64)> = Vec::new();
    for (place, counts) in [Place::Span, Place::Resource].into_iter().zip(counts) {
        for (key, of) in counts {
            let Ok(key) = String::from_utf8(key) else { continue };
            let common = OwnType::ALL.into_iter().zip(of).filter(|(_, n)| *n > 0 && n * 100 >= rows);
            all.extend(common.map(|(kind, n)| ((place, key.clone(), kind), n)));
        }
    }
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut seen: HashSet<(Place, String), FixedState> = HashSet::default();
    let mut own: Vec<OwnColumn> = Vec::new();
    for ((place, key, kind), _) in all {
        // Readers that do not tell cases apart must not find two columns of one name.
        if own.len() < OWN_MAX && !key.starts_with("__q_") && seen.insert((place, key.to_lowercase())) {
            own.push(OwnColumn { place, key, kind });
        }
    }
    own.sort();
    own
}
