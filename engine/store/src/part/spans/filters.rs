//! Filters of attribute values: they tell which values may occur in a block of rows of a column, so that a search for
//! one user, session or order reads only the pages that may hold it. Only columns with many distinct values have them.

use std::ops::Range;

use arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use hashbrown::HashMap;
use quiver_types::spans::{Place, SpanFilter};
use quiver_types::text::{from_base64, to_base64};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::column_name;
use super::dedicated_columns::OwnColumn;
use super::keys::SpanKeys;
use crate::error::{Context, Result};
use crate::part::bloom::{Words, hash, may_hold};

/// Footer key of `.index`: filters, as JSON `[[column, [[first row, rows, bits], …]], …]`.
pub(super) const FILTERS: &str = "quiver.filters";
/// Rows per filter.
const BLOCK_ROWS: usize = 2048;
/// A block of rows with fewer distinct values gets no filter.
const VALUES_MIN: usize = 64;
/// After a block with few values, this many blocks of the column are skipped without looking.
const SKIPPED: u8 = 15;
/// Filter bits per value: about one lookup in fifty is a false positive.
const BITS: usize = 8;
/// Hash seed for numbers, so that `5` and `5.0` have a common hash, separate from the hashes of texts.
const NUMBERS: u64 = 0x51;

/// Filters as they are serialized: first row, number of rows, bits.
type WrittenBlocks = Vec<(u64, u64, String)>;

/// A block of rows, with the filter of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    rows: Range<u64>,
    bits: Vec<u8>,
}

/// The filters of a part, by column; blocks ascending.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SpanFilters(HashMap<String, Vec<Block>>);

fn of_number(number: f64) -> u64 {
    // -0 and 0 must hash alike.
    xxh3_64_with_seed(&(number + 0.0).to_bits().to_le_bytes(), NUMBERS)
}

/// Adds a text, and the number it represents if it looks like one.
fn add_text(text: &str, words: &mut Words) {
    words.add_hash(hash(text));
    if text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'))
        && let Ok(number) = text.parse()
    {
        words.add_hash(of_number(number));
    }
}

fn add_number(number: f64, words: &mut Words) {
    if number.is_finite() {
        words.add_hash(of_number(number));
    } else {
        words.add_hash(hash(&quiver_types::spans::Value::Double(number).text()));
    }
}

fn add_values(column: &ArrayRef, rows: Range<usize>, words: &mut Words) {
    let there = rows.filter(|&row| column.is_valid(row));
    match column.data_type() {
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            let mut last = None;
            for text in there.map(|row| texts.value(row)) {
                if last != Some(text) {
                    add_text(text, words);
                }
                last = Some(text);
            }
        }
        DataType::Int64 => {
            let numbers = column.as_primitive::<Int64Type>().values();
            there.for_each(|row| add_number(numbers[row] as f64, words));
        }
        DataType::Float64 => {
            let numbers = column.as_primitive::<Float64Type>().values();
            there.for_each(|row| add_number(numbers[row], words));
        }
        _ => {}
    }
}

/// Builds the filters of rows as they are written.
#[derive(Debug, Default)]
pub(super) struct FilterWriter {
    filters: SpanFilters,
    /// For each attribute column, how many blocks are still to be skipped.
    skip: Vec<u8>,
    words: Words,
}

impl FilterWriter {
    /// Adds rows; `first` is the first row's number in the file.
    pub(super) fn note(&mut self, batch: &RecordBatch, own: &[OwnColumn], first: u64) {
        self.skip.resize(own.len(), 0);
        for start in (0..batch.num_rows()).step_by(BLOCK_ROWS) {
            let rows = start..(start + BLOCK_ROWS).min(batch.num_rows());
            for (column, skip) in own.iter().zip(&mut self.skip) {
                if *skip > 0 {
                    *skip -= 1;
                    continue;
                }
                let name = column_name(column.place, &column.key);
                let Some(values) = batch.column_by_name(&name) else { continue };
                add_values(values, rows.clone(), &mut self.words);
                if self.words.len() < VALUES_MIN {
                    *skip = SKIPPED;
                    self.words.clear();
                    continue;
                }
                let rows = first + rows.start as u64..first + rows.end as u64;
                let block = Block { rows, bits: self.words.finish_with(BITS) };
                self.filters.0.entry(name).or_default().push(block);
            }
        }
    }

    /// Copies the filters of rows that are copied from another part to the rows from `first` on.
    pub(super) fn copy(&mut self, other: &SpanFilters, rows: &Range<u64>, first: u64) {
        for (column, blocks) in &other.0 {
            let moved = |r: &Range<u64>| r.start - rows.start + first..r.end - rows.start + first;
            let inside = blocks.iter().filter(|b| rows.start <= b.rows.start && b.rows.end <= rows.end);
            let copies = inside.map(|b| Block { rows: moved(&b.rows), bits: b.bits.clone() });
            self.filters.0.entry(column.clone()).or_default().extend(copies);
        }
    }

    /// The value of the footer key [`FILTERS`].
    pub(super) fn finish(self) -> Result<String> {
        let mut columns: Vec<(String, Vec<Block>)> = self.filters.0.into_iter().collect();
        columns.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let blocks = |blocks: Vec<Block>| -> WrittenBlocks {
            let one = |b: Block| (b.rows.start, b.rows.end - b.rows.start, to_base64(&b.bits));
            blocks.into_iter().map(one).collect()
        };
        let all: Vec<(String, WrittenBlocks)> = columns.into_iter().map(|(name, of)| (name, blocks(of))).collect();
        serde_json::to_string(&all).internal("cannot write filters of attributes")
    }
}

impl SpanFilters {
    /// Parses the value of [`FILTERS`]; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let all: Vec<(String, WrittenBlocks)> = serde_json::from_str(text).ok()?;
        let block = |(first, rows, bits): (u64, u64, String)| {
            Some(Block { rows: first..first.checked_add(rows)?, bits: from_base64(&bits)? })
        };
        let column =
            |(name, blocks): (String, Vec<_>)| Some((name, blocks.into_iter().map(block).collect::<Option<_>>()?));
        all.into_iter().map(column).collect::<Option<_>>().map(Self)
    }

    /// Approximate size in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.0.values().flatten().map(|b| b.bits.len() + size_of::<Block>()).sum()
    }

    /// Ascending row ranges that certainly do not match a filter.
    pub(crate) fn excluded(&self, filter: &SpanFilter, keys: &SpanKeys, has: &dyn Fn(&str) -> bool) -> Vec<Range<u64>> {
        match filter {
            SpanFilter::And(all) => {
                let mut out: Vec<Range<u64>> = all.iter().flat_map(|one| self.excluded(one, keys, has)).collect();
                out.sort_unstable_by_key(|r| r.start);
                out
            }
            SpanFilter::Attribute { place, key, test } if key != "service.name" => {
                let Some((texts, numbers)) = test.wanted() else { return Vec::new() };
                // Attributes with lists as values count as keys without a column.
                let places = place.map_or_else(|| Place::ALL.to_vec(), |place| vec![place]);
                if places.iter().any(|place| keys.may_have(*place, key)) {
                    return Vec::new();
                }
                let own = places.iter().filter(|place| matches!(place, Place::Span | Place::Resource));
                let columns: Vec<String> = own.map(|place| column_name(*place, key)).filter(|name| has(name)).collect();
                // With two columns, both would have to be searched; that is not supported.
                let [column] = &columns[..] else { return Vec::new() };
                let texts = texts.into_iter().map(hash);
                let hashes: Vec<u64> = texts.chain(numbers.into_iter().map(of_number)).collect();
                let may = |block: &Block| hashes.iter().any(|hash| may_hold(&block.bits, *hash));
                let blocks = self.0.get(column).map_or(&[][..], Vec::as_slice);
                blocks.iter().filter(|block| !may(block)).map(|block| block.rows.clone()).collect()
            }
            _ => Vec::new(),
        }
    }
}

/// Subtracts ascending ranges, which may overlap, from a range.
pub(crate) fn without(range: Range<u64>, excluded: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut out = Vec::new();
    let mut at = range.start;
    for gap in excluded.iter().filter(|gap| gap.end > range.start && gap.start < range.end) {
        if gap.start > at {
            out.push(at..gap.start);
        }
        at = at.max(gap.end);
    }
    if at < range.end {
        out.push(at..range.end);
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of which hold one")]

    use std::sync::Arc;

    use arrow::array::{Int64Array, StringArray};

    use quiver_types::spans::AttributeTest;

    use super::super::OwnType;
    use super::*;

    #[test]
    fn what_is_looked_for_is_never_excluded() {
        let rows = 3 * BLOCK_ROWS + 5;
        let users = StringArray::from_iter_values((0..rows).map(|i| format!("u{i}")));
        let orders: Int64Array = (0..rows).map(|i| (i % 3 != 0).then_some(i as i64)).collect();
        let kinds = StringArray::from_iter_values((0..rows).map(|i| ["a", "b"][i % 2]));
        let columns: [(&str, ArrayRef); 3] =
            [("user", Arc::new(users)), ("order", Arc::new(orders)), ("kind", Arc::new(kinds))];
        let own = |(key, values): &(&str, ArrayRef)| {
            let kind = if *values.data_type() == DataType::Int64 { OwnType::Int } else { OwnType::Text };
            OwnColumn { place: Place::Span, key: (*key).to_owned(), kind }
        };
        let own: Vec<OwnColumn> = columns.iter().map(own).collect();
        let named = columns.map(|(key, values)| (column_name(Place::Span, key), values, true));
        let batch = RecordBatch::try_from_iter_with_nullable(named).unwrap();
        let mut writer = FilterWriter::default();
        writer.note(&batch, &own, 100);
        let filters = SpanFilters::parse(&writer.finish().unwrap()).unwrap();
        let excluded = |key: &str, value: &str| {
            let test = AttributeTest::equals(value);
            let filter = SpanFilter::Attribute { place: None, key: key.to_owned(), test };
            filters.excluded(&filter, &SpanKeys::none(), &|name| name.starts_with("attributes."))
        };
        for i in (0..rows).step_by(7) {
            let at = 100 + i as u64;
            assert!(!excluded("user", &format!("u{i}")).iter().any(|r| r.contains(&at)), "{i}");
            if i % 3 != 0 {
                assert!(!excluded("order", &format!("{i}.0")).iter().any(|r| r.contains(&at)), "{i}");
            }
        }
        let any = AttributeTest::any_of(["u5", "u6"].map(AttributeTest::equals));
        let any = SpanFilter::Attribute { place: None, key: "user".to_owned(), test: any };
        let two = filters.excluded(&any, &SpanKeys::none(), &|name| name.starts_with("attributes."));
        assert!(!two.is_empty() && !two.iter().any(|r| r.contains(&105) || r.contains(&106)), "{two:?}");
        assert!(excluded("user", "u5").len() >= 2 && excluded("order", "7").len() >= 2);
        assert!(excluded("kind", "c").is_empty() && excluded("other", "u5").is_empty());
        let mut moved = FilterWriter::default();
        moved.copy(&filters, &(100..100 + BLOCK_ROWS as u64), 7);
        let moved = SpanFilters::parse(&moved.finish().unwrap()).unwrap();
        assert_eq!(moved.0["attributes.user"][0].rows, 7..7 + BLOCK_ROWS as u64);
        assert_eq!(moved.0["attributes.user"].len(), 1);
    }

    #[test]
    fn ranges_are_cut() {
        let cut = |excluded: &[Range<u64>]| without(10..20, excluded);
        assert_eq!(cut(&[]), [10..20]);
        assert_eq!(cut(&[0..5, 0..12, 11..13, 15..16, 19..30]), [13..15, 16..19]);
        assert!(cut(&[0..100]).is_empty());
    }
}
