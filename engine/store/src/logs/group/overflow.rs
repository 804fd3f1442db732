//! What is read of the overflow map: the fields of a row group that have no column.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, BooleanBufferBuilder, MapArray, StringViewArray, make_view};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::filter;

use crate::error::{Context, Result};

/// Calls for each entry of a row.
pub(super) fn entries(map: &MapArray, row: usize) -> impl Iterator<Item = (&str, &str)> {
    let (names, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
    (map.value_offsets()[row] as usize..map.value_offsets()[row + 1] as usize)
        .map(|i| (names.value(i), values.value(i)))
}

/// Takes one field out of a map; values stay where they are.
pub(super) fn field_of(map: &MapArray, name: &str) -> StringViewArray {
    let (names, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
    let offsets = map.value_offsets();
    let mut views = vec![0u128; map.len()];
    let mut valid = vec![false; map.len()];
    for row in 0..map.len() {
        let found = (offsets[row] as usize..offsets[row + 1] as usize).find(|&i| names.value(i) == name);
        if let Some(i) = found {
            views[row] = make_view(values.value(i).as_bytes(), 0, values.value_offsets()[i] as u32);
            valid[row] = true;
        }
    }
    StringViewArray::new(views.into(), vec![values.values().clone()], Some(NullBuffer::from(valid)))
}

/// The entries of a map of the rows that are set.
pub(super) fn chosen(map: &MapArray, at: Option<&Arc<Vec<Range<u32>>>>, rows: &BooleanBuffer) -> Result<MapArray> {
    let mask = match at {
        None => rows.clone(),
        Some(ranges) => {
            let mut bits = BooleanBufferBuilder::new(map.len());
            ranges.iter().for_each(|r| bits.append_buffer(&rows.slice(r.start as usize, r.len())));
            bits.finish()
        }
    };
    let filtered = filter(map, &BooleanArray::new(mask, None)).internal("cannot filter the overflow map")?;
    Ok(filtered.as_map().clone())
}
