//! Codes of the rows of a batch by one key: a dictionary has them, numbers get them by their bits, texts by their views
//! (short texts are their view); runs of equal values and buckets of time are found by looking at the row before.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ByteView, StringViewArray, TimestampNanosecondArray, make_view};
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use foldhash::fast::FixedState;
use hashbrown::HashTable;

use crate::kernels::bucket::Bucket;
use crate::ops::grouping::Key;
use crate::rows::{ColumnStorage, Texts};

/// Hashes keys of rows, the same in each table of a partition.
pub(super) const HASHER: FixedState = FixedState::with_seed(0x6b);

/// Values of one key: of each code of a batch, or of each group.
#[derive(Debug)]
pub(super) enum KeyValues {
    /// Texts as views: short ones are their view, long ones stand in the buffer.
    Text(Vec<u128>, Vec<u8>),
    /// Times; none where it is missing.
    Time(Vec<Option<i64>>),
}

/// Bytes of a text that a view holds.
const VIEW_BYTES: u32 = 12;
/// Rows after which it is known whether values come again.
const TRIED: usize = 1024;

impl KeyValues {
    pub(super) fn new(kind: ColumnStorage) -> Self {
        if kind == ColumnStorage::Time { Self::Time(Vec::new()) } else { Self::Text(Vec::new(), Vec::new()) }
    }

    pub(super) fn clear(&mut self) {
        match self {
            Self::Text(views, long) => {
                views.clear();
                long.clear();
            }
            Self::Time(times) => times.clear(),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Text(views, _) => views.len(),
            Self::Time(times) => times.len(),
        }
    }

    fn long(view: u128, bytes: &[u8]) -> &[u8] {
        let view = ByteView::from(view);
        &bytes[view.offset as usize..][..view.length as usize]
    }

    fn push_text(&mut self, value: &str) {
        if let Self::Text(views, long) = self {
            views.push(make_view(value.as_bytes(), 0, long.len() as u32));
            if value.len() > VIEW_BYTES as usize {
                long.extend_from_slice(value.as_bytes());
            }
        }
    }

    /// Appends a text by its view; a long one is given beside it. Gives its place.
    #[inline]
    fn push_view(&mut self, view: u128, long: &[u8]) -> u32 {
        let place = self.len() as u32;
        if let Self::Text(views, bytes) = self {
            if view as u32 <= VIEW_BYTES {
                views.push(view);
            } else {
                views.push(make_view(long, 0, bytes.len() as u32));
                bytes.extend_from_slice(long);
            }
        }
        place
    }

    /// The view of a text that is its view.
    #[inline]
    pub(super) fn short(&self, i: usize) -> Option<u128> {
        match self {
            Self::Text(views, _) => Some(views[i]).filter(|view| *view as u32 <= VIEW_BYTES),
            Self::Time(_) => None,
        }
    }

    pub(super) fn push_from(&mut self, other: &Self, i: usize) {
        match (self, other) {
            (Self::Time(own), Self::Time(times)) => own.push(times[i]),
            (Self::Text(own, own_long), Self::Text(views, long)) => {
                let view = views[i];
                if view as u32 <= VIEW_BYTES {
                    own.push(view);
                } else {
                    let text = Self::long(view, long);
                    own.push(make_view(text, 0, own_long.len() as u32));
                    own_long.extend_from_slice(text);
                }
            }
            _ => {}
        }
    }

    #[inline]
    pub(super) fn same(&self, i: usize, other: &Self, j: usize) -> bool {
        match (self, other) {
            (Self::Time(own), Self::Time(times)) => own[i] == times[j],
            (Self::Text(own, own_long), Self::Text(views, long)) => {
                let (own, view) = (own[i], views[j]);
                // Length and first bytes.
                own as u64 == view as u64
                    && (own == view && own as u32 <= VIEW_BYTES
                        || own as u32 > VIEW_BYTES && Self::long(own, own_long) == Self::long(view, long))
            }
            _ => false,
        }
    }

    /// Says whether a value is this text, of which `view` is the view.
    #[inline]
    fn is(&self, i: usize, view: u128, text: &[u8]) -> bool {
        let Self::Text(own, long) = self else { return false };
        let own = own[i];
        own as u64 == view as u64
            && (own == view && own as u32 <= VIEW_BYTES || own as u32 > VIEW_BYTES && Self::long(own, long) == text)
    }

    #[inline]
    pub(super) fn hash(&self, i: usize) -> u64 {
        match self {
            Self::Time(times) => HASHER.hash_one(times[i]),
            Self::Text(views, long) => {
                let view = views[i];
                hash_text(view, if view as u32 <= VIEW_BYTES { &[] } else { Self::long(view, long) })
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Text(views, long) => views.capacity() * size_of::<u128>() + long.capacity(),
            Self::Time(times) => times.capacity() * size_of::<Option<i64>>(),
        }
    }

    pub(super) fn array(&mut self) -> ArrayRef {
        match self {
            Self::Time(times) => Arc::new(TimestampNanosecondArray::from(std::mem::take(times)).with_timezone("UTC")),
            Self::Text(views, long) => {
                let views = std::mem::take(views);
                let nulls = BooleanBuffer::collect_bool(views.len(), |i| views[i] as u32 != 0);
                let nulls = Some(NullBuffer::new(nulls)).filter(|nulls| nulls.null_count() > 0);
                Arc::new(StringViewArray::new(views.into(), vec![std::mem::take(long).into()], nulls))
            }
        }
    }
}

/// The hash of a text; a long one is given beside its view.
#[inline]
fn hash_text(view: u128, long: &[u8]) -> u64 {
    if view as u32 <= VIEW_BYTES { HASHER.hash_one(view) } else { HASHER.hash_one(long) }
}

/// The rows of a batch by one key.
#[derive(Debug)]
pub(super) struct Codes {
    of_row: Vec<u32>,
    /// Codes of the rows in place of `of_row`, where a dictionary column has them.
    shared: Option<ScalarBuffer<u32>>,
    /// What the codes stand for.
    pub(super) values: KeyValues,
    /// Whether each code has a row, and codes are in the order of their first rows.
    of_rows: bool,
    /// Codes by their value.
    known: HashTable<u32>,
}

impl Codes {
    pub(super) fn new(kind: ColumnStorage) -> Self {
        Self { of_row: Vec::new(), shared: None, values: KeyValues::new(kind), of_rows: false, known: HashTable::new() }
    }

    /// The views of all codes, if each has a row, in the order of their first rows, and all are texts that are their views.
    pub(super) fn shorts_of_rows(&self) -> Option<&[u128]> {
        match &self.values {
            KeyValues::Text(views, long) if self.of_rows && long.is_empty() => Some(views),
            _ => None,
        }
    }

    /// The code of each row.
    #[inline]
    pub(super) fn of_row(&self) -> &[u32] {
        self.shared.as_deref().unwrap_or(&self.of_row)
    }

    /// Codes a column. Different codes may stand for the same value. `told_apart`: hardly any value comes twice.
    pub(super) fn fill(&mut self, texts: &Texts, key: &Key, rows: usize, told_apart: bool) {
        let Self { of_row, shared, values, of_rows, known } = self;
        of_row.clear();
        *shared = None;
        *of_rows = !matches!(texts, Texts::Dictionary(..) | Texts::Missing);
        values.clear();
        known.clear();
        let bucket = key.bucket.as_ref();
        match (texts, &mut *values) {
            (Texts::Time(times), KeyValues::Time(found)) => return time_codes(times, bucket, found, of_row),
            (Texts::Missing, _) => {
                values.push_text("");
                of_row.resize(rows, 0);
            }
            (Texts::Dictionary(keys, entries), _) if entries.len() <= rows => {
                for i in 0..entries.len() {
                    values.push_text(if entries.is_null(i) { "" } else { entries.value(i) });
                }
                if keys.null_count() == 0 {
                    *shared = Some(keys.values().clone());
                } else {
                    values.push_text("");
                    let missing = entries.len() as u32;
                    of_row.extend(keys.iter().map(|k| k.unwrap_or(missing)));
                }
            }
            (Texts::Int(array), _) => {
                number_codes(rows, |i| array.is_valid(i).then(|| array.value(i) as u64), texts, values, of_row);
            }
            (Texts::Float(array), _) => {
                number_codes(rows, |i| array.is_valid(i).then(|| array.value(i).to_bits()), texts, values, of_row);
            }
            (Texts::View(array), _) => {
                let (views, buffers) = (array.views(), array.data_buffers());
                let text = |view: u128| {
                    let view = ByteView::from(view);
                    &buffers[view.buffer_index as usize][view.offset as usize..][..view.length as usize]
                };
                let mut told_apart = told_apart;
                for (row, view) in views.iter().enumerate() {
                    let view = if array.is_null(row) { 0 } else { *view };
                    let long = if view as u32 <= VIEW_BYTES { &[][..] } else { text(view) };
                    // Where next to nothing comes again, the table of groups is enough.
                    told_apart = told_apart || row == TRIED && known.len() > TRIED / 4 * 3;
                    let code = if told_apart {
                        values.push_view(view, long)
                    } else {
                        text_code(view, long, of_row.last(), known, values)
                    };
                    of_row.push(code);
                }
            }
            _ => {
                let mut buffer = String::new();
                for row in 0..rows {
                    let text = texts.get(row, &mut buffer).as_bytes();
                    let code = text_code(make_view(text, 0, 0), text, of_row.last(), known, values);
                    of_row.push(code);
                }
            }
        }
        if bucket.is_some() {
            let plain = std::mem::replace(values, KeyValues::new(ColumnStorage::Text));
            let KeyValues::Text(views, long) = &plain else { return };
            let mut out = String::new();
            for view in views {
                let mut short = [0; 16];
                short.copy_from_slice(&view.to_le_bytes());
                let length = *view as u32;
                let text =
                    if length <= VIEW_BYTES { &short[4..4 + length as usize] } else { KeyValues::long(*view, long) };
                // Only whole texts were put in.
                values.push_text(bucketed(bucket, std::str::from_utf8(text).unwrap_or_default(), &mut out));
            }
        }
    }
}

/// The code of a text; that of the row before is looked at first.
#[inline]
fn text_code(view: u128, long: &[u8], before: Option<&u32>, known: &mut HashTable<u32>, values: &mut KeyValues) -> u32 {
    if let Some(&code) = before
        && values.is(code as usize, view, long)
    {
        return code;
    }
    let hash = hash_text(view, long);
    if let Some(&code) = known.find(hash, |&code| values.is(code as usize, view, long)) {
        return code;
    }
    let code = values.push_view(view, long);
    let values = &*values;
    known.insert_unique(hash, code, |&code| values.hash(code as usize));
    code
}

/// Codes numbers by their bits; only what is new becomes text.
fn number_codes(
    rows: usize,
    bits: impl Fn(usize) -> Option<u64>,
    texts: &Texts,
    values: &mut KeyValues,
    of_row: &mut Vec<u32>,
) {
    let mut known: HashMap<Option<u64>, u32, FixedState> = HashMap::default();
    let mut before = None;
    let mut buffer = String::new();
    for row in 0..rows {
        let bits = bits(row);
        if let Some((own, code)) = before
            && own == bits
        {
            of_row.push(code);
            continue;
        }
        let code = *known.entry(bits).or_insert_with(|| {
            values.push_text(texts.get(row, &mut buffer));
            values.len() as u32 - 1
        });
        before = Some((bits, code));
        of_row.push(code);
    }
}

fn bucketed<'a>(bucket: Option<&Bucket>, text: &'a str, out: &'a mut String) -> &'a str {
    let Some(bucket) = bucket else { return text };
    out.clear();
    bucket.push(out, text);
    out
}

/// Codes times by their buckets: rows that follow each other are mostly in the same one, and get its code together.
fn time_codes(
    times: &TimestampNanosecondArray,
    bucket: Option<&Bucket>,
    found: &mut Vec<Option<i64>>,
    of_row: &mut Vec<u32>,
) {
    let mut known: HashMap<Option<i64>, u32, FixedState> = HashMap::default();
    let (values, nulls) = (times.values(), times.nulls().filter(|nulls| nulls.null_count() > 0));
    let is_null = |row: usize| nulls.is_some_and(|nulls| nulls.is_null(row));
    let width = bucket.map_or(1, Bucket::time_width);
    of_row.reserve(values.len());
    while let Some(&ns) = values.get(of_row.len()) {
        let row = of_row.len();
        let start = (!is_null(row)).then(|| bucket.map_or(ns, |bucket| bucket.of_time(ns)));
        let code = *known.entry(start).or_insert_with(|| {
            found.push(start);
            found.len() as u32 - 1
        });
        let within = start.map_or(0..0, |start| start..start.saturating_add(width));
        let same = |row: &usize| within.contains(&values[*row]) && !is_null(*row);
        let more = (row + 1..values.len()).take_while(same).count();
        of_row.resize(row + 1 + more, code);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::bucket::Step;

    #[test]
    fn times_are_coded_by_their_buckets() {
        let minute = 60_000_000_000i64;
        let times: Vec<Option<i64>> = (0..2000i64)
            .map(|i| match i {
                // Once more from the beginning, as where another stream begins.
                _ if i % 97 == 13 => None,
                1990 => Some(i64::MAX),
                _ => Some((i % 700) * 7_000_000_000 - 300 * minute),
            })
            .collect();
        let array: TimestampNanosecondArray = times.iter().copied().collect();
        let buckets = [None, Some(Step::Number(5.0 * minute as f64)), Some(Step::Week), Some(Step::Month)];
        for bucket in buckets.map(|step| step.map(|step| Bucket::new(step, 0.0))) {
            let (mut found, mut of_row) = (Vec::new(), Vec::new());
            time_codes(&array, bucket.as_ref(), &mut found, &mut of_row);
            let own: Vec<Option<i64>> = of_row.iter().map(|&code| found[code as usize]).collect();
            let expected = |ns: &Option<i64>| ns.map(|ns| bucket.map_or(ns, |bucket| bucket.of_time(ns)));
            assert_eq!(own, times.iter().map(expected).collect::<Vec<_>>(), "{bucket:?}");
            found.sort_unstable();
            assert!(found.is_sorted_by(|a, b| a < b), "a code for each bucket: {bucket:?}");
        }
    }
}
