//! Reads the overflow map: the fields of a row group that have no column.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, BooleanBufferBuilder, MapArray, StringViewArray, make_view};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::filter;

use crate::error::{Context, Result};

/// The entries of a row.
pub(super) fn entries(map: &MapArray, row: usize) -> impl Iterator<Item = (&str, &str)> {
    let (names, values) = (map.keys().as_string::<i32>(), map.values().as_string::<i32>());
    (map.value_offsets()[row] as usize..map.value_offsets()[row + 1] as usize)
        .map(|i| (names.value(i), values.value(i)))
}

/// Extracts one field from a map, without copying values.
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

/// The entries of the selected rows.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::output::MapWriter;

    fn map(rows: &[&[(&str, &str)]]) -> MapArray {
        let mut writer = MapWriter::new(rows.len());
        for row in rows {
            for (name, value) in *row {
                writer.push(name, value);
            }
            writer.end_row();
        }
        writer.finish().unwrap()
    }

    const LONG: &str = "a value that no view holds in itself";

    fn sample() -> MapArray {
        map(&[&[("a", "1"), ("b", LONG)], &[], &[("b", "é")], &[("aa", "x"), ("b", ""), ("c", LONG)]])
    }

    fn all(map: &MapArray) -> Vec<Vec<(&str, &str)>> {
        (0..map.len()).map(|row| entries(map, row).collect()).collect()
    }

    #[test]
    fn a_field_has_its_values_where_they_stand() {
        let check = |map: &MapArray, name: &str, expected: &[Option<&str>]| {
            let column = field_of(map, name);
            column.to_data().validate_full().expect("a sound array");
            assert_eq!(column.iter().collect::<Vec<_>>(), expected, "{name}");
        };
        let map = sample();
        check(&map, "b", &[Some(LONG), None, Some("é"), Some("")]);
        check(&map, "a", &[Some("1"), None, None, None]);
        check(&map, "c", &[None, None, None, Some(LONG)]);
        check(&map, "", &[None; 4]);
        // Of some rows in the middle, whose entries begin behind those of others.
        check(&map.slice(1, 2), "b", &[None, Some("é")]);
        check(&map.slice(3, 1), "c", &[Some(LONG)]);
        check(&map.slice(4, 0), "b", &[]);
    }

    #[test]
    fn entries_of_chosen_rows_stay_together() {
        let map = sample();
        let of = |at: Option<&Arc<Vec<Range<u32>>>>, len: usize, rows: &[usize]| {
            let rows = BooleanBuffer::collect_bool(len, |row| rows.contains(&row));
            all(&chosen(&map, at, &rows).unwrap()).iter().map(Vec::len).collect::<Vec<_>>()
        };
        assert_eq!(of(None, 4, &[0, 1, 2, 3]), [2, 0, 1, 3]);
        assert_eq!(of(None, 4, &[3]), [3]);
        assert_eq!(of(None, 4, &[]), [0; 0]);
        // The map has rows 2, 3, 6 and 7 of ten.
        let ranges = Arc::new(vec![2..4, 6..8]);
        assert_eq!(of(Some(&ranges), 10, &[2, 3, 6, 7]), [2, 0, 1, 3]);
        assert_eq!(of(Some(&ranges), 10, &[0, 3, 6, 9]), [0, 1]);
        assert_eq!(of(Some(&ranges), 10, &[4, 5, 8]), [0; 0]);
        let rows = BooleanBuffer::collect_bool(4, |row| row != 0);
        let found = chosen(&map, None, &rows).unwrap();
        assert_eq!(all(&found), [vec![], vec![("b", "é")], vec![("aa", "x"), ("b", ""), ("c", LONG)]]);
    }
}
