//! Writes `.labels`: which streams have each value of each label, which have each service, and where each stream
//! identifier is.

use std::hash::BuildHasher;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, RecordBatch, StringBuilder, UInt8Array};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use quiver_types::SeriesId;
use quiver_types::tables::logs as table;

use super::super::FileMeta;
use super::super::file::{ColumnEncodings, Draft, PartFile, codec, properties};
use super::super::label_rows::{LabelDirectory, label_pages};
use super::stream_set::push_runs;
use super::streams_file::BLOCK_STREAMS;
use crate::error::{Context, Result};
use crate::memtable::log_streams::LiveStream;

/// Kind of the rows that list the streams with a value of a label.
pub(crate) const KIND_LABEL: u8 = 0;
/// Kind of the rows that list the streams of a service.
pub(crate) const KIND_SERVICE: u8 = 1;
/// Kind of the rows that locate identifiers: one row for each prefix.
pub(crate) const KIND_ID: u8 = 2;

/// Rows that are written at once.
const BATCH_ROWS: usize = 8192;
const HASHER: FixedState = FixedState::with_seed(0x1a);

/// Writes the file if there are too many streams to read all of them at once; else `None`.
pub(super) fn write(draft: &mut Draft, streams: &[Arc<LiveStream>], range: (i64, i64)) -> Result<Option<FileMeta>> {
    if streams.len() <= BLOCK_STREAMS {
        return Ok(None);
    }
    let p =
        label_pages(properties().set_compression(codec(draft.spec.compression)).delta(&["kind"]), "value", "streams");
    let mut rows = Rows {
        file: PartFile::create(draft, "labels", table::labels(), p.build())?,
        kind: KIND_LABEL,
        label: String::new(),
        values: StringBuilder::new(),
        payloads: BinaryBuilder::new(),
        len: 0,
        payload: Vec::new(),
    };
    let mut directory = LabelDirectory::default();
    for (label, values) in &by_label(streams) {
        rows.begin(KIND_LABEL, label);
        directory.push(KIND_LABEL, label, values.write(&mut rows)?);
    }
    rows.end()?;
    let mut services = Values::default();
    streams.iter().zip(0..).for_each(|(stream, number)| services.add(&stream.service, number));
    rows.begin(KIND_SERVICE, "");
    directory.push(KIND_SERVICE, "", services.write(&mut rows)?);
    rows.begin(KIND_ID, "");
    directory.push(KIND_ID, "", write_ids(streams, &mut rows)?);
    let mut file = rows.file;
    directory.put(&mut file)?;
    file.finish(&draft.spec, range, &["kind", "label", "value"]).map(Some)
}

/// Buffers rows for the file.
struct Rows {
    file: PartFile,
    kind: u8,
    label: String,
    values: StringBuilder,
    payloads: BinaryBuilder,
    len: usize,
    payload: Vec<u8>,
}

impl Rows {
    fn begin(&mut self, kind: u8, label: &str) {
        self.kind = kind;
        label.clone_into(&mut self.label);
    }

    fn push(&mut self, value: &str, payload: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        self.payload.clear();
        payload(&mut self.payload);
        self.values.append_value(value);
        self.payloads.append_value(&self.payload);
        self.len += 1;
        if self.len == BATCH_ROWS { self.end() } else { Ok(()) }
    }

    fn end(&mut self) -> Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        let mut labels = StringBuilder::new();
        (0..self.len).for_each(|_| labels.append_value(&self.label));
        let columns: Vec<ArrayRef> = vec![
            Arc::new(UInt8Array::from(vec![self.kind; self.len])),
            Arc::new(labels.finish()),
            Arc::new(self.values.finish()),
            Arc::new(self.payloads.finish()),
        ];
        self.len = 0;
        self.file.write(&RecordBatch::try_new(table::labels(), columns).internal("cannot build a batch of labels")?)
    }
}

/// The values of one label, with the streams that have them.
#[derive(Default)]
struct Values<'s> {
    known: HashTable<u32>,
    texts: Vec<&'s str>,
    /// Pairs of value and stream, ascending by stream.
    pairs: Vec<(u32, u32)>,
}

impl<'s> Values<'s> {
    fn add(&mut self, value: &'s str, stream: u32) {
        // Streams are sorted by their labels, so the value is mostly that of the previous one.
        let code = match self.pairs.last() {
            Some(&(code, _)) if self.texts[code as usize] == value => code,
            _ => {
                let hash = HASHER.hash_one(value);
                if let Some(&code) = self.known.find(hash, |&code| self.texts[code as usize] == value) {
                    code
                } else {
                    let code = self.texts.len() as u32;
                    self.texts.push(value);
                    let values = &self.texts;
                    self.known.insert_unique(hash, code, |&code| HASHER.hash_one(values[code as usize]));
                    code
                }
            }
        };
        self.pairs.push((code, stream));
    }

    /// Writes one row for each value and returns their number.
    fn write(&self, rows: &mut Rows) -> Result<u64> {
        let mut ends = vec![0usize; self.texts.len()];
        self.pairs.iter().for_each(|pair| ends[pair.0 as usize] += 1);
        let mut sum = 0;
        for end in &mut ends {
            sum += std::mem::replace(end, sum);
        }
        let mut streams = vec![0u32; self.pairs.len()];
        for &(code, stream) in &self.pairs {
            let at = &mut ends[code as usize];
            streams[*at] = stream;
            *at += 1;
        }
        let own = |code: usize| code.checked_sub(1).map_or(0, |before| ends[before])..ends[code];
        let mut order: Vec<u32> = (0..self.texts.len() as u32).collect();
        order.sort_unstable_by_key(|&code| self.texts[code as usize]);
        for code in order {
            let code = code as usize;
            rows.push(self.texts[code], |payload| push_runs(&streams[own(code)], payload))?;
        }
        rows.end()?;
        Ok(self.texts.len() as u64)
    }
}

/// The values of all labels, by label name.
fn by_label(streams: &[Arc<LiveStream>]) -> std::collections::BTreeMap<&str, Values<'_>> {
    let mut out: std::collections::BTreeMap<&str, Values<'_>> = std::collections::BTreeMap::new();
    for (stream, number) in streams.iter().zip(0..) {
        for (name, value) in stream.labels.iter() {
            out.entry(name).or_default().add(value, number);
        }
    }
    out
}

/// How many leading bits of an identifier select its row: enough that a row holds about as many streams as a block.
fn id_bits(streams: usize) -> u32 {
    streams.div_ceil(BLOCK_STREAMS).next_power_of_two().trailing_zeros()
}

/// The row of an identifier among this number of rows, and the 32 bits that are compared within it. `None` if the
/// number is not a power of two, which it is in all valid files.
pub(super) fn place_of_id(id: SeriesId, rows: u64) -> Option<(u64, u32)> {
    if !rows.is_power_of_two() {
        return None;
    }
    let bytes = id.to_bytes();
    let high = u64::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]]);
    let bits = rows.trailing_zeros();
    let row = if bits == 0 { 0 } else { high >> (64 - bits) };
    Some((row, (high << bits >> 32) as u32))
}

/// Writes the rows that locate identifiers. A row covers a prefix; its payload has the next 32 bits of each identifier
/// and then the streams, both sorted by these bits. Returns the number of rows.
fn write_ids(streams: &[Arc<LiveStream>], rows: &mut Rows) -> Result<u64> {
    let count = 1u64 << id_bits(streams.len());
    let mut places: Vec<(u64, u32, u32)> = Vec::with_capacity(streams.len());
    for (stream, number) in streams.iter().zip(0..) {
        let (row, key) = place_of_id(stream.id, count).expect("a power of two");
        places.push((row, key, number));
    }
    places.sort_unstable();
    let mut rest = &places[..];
    for row in 0..count {
        let (own, later) = rest.split_at(rest.partition_point(|place| place.0 <= row));
        rest = later;
        rows.push("", |payload| {
            for (_, key, _) in own {
                payload.extend_from_slice(&key.to_le_bytes());
            }
            for (.., number) in own {
                payload.extend_from_slice(&number.to_le_bytes());
            }
        })?;
    }
    rows.end()?;
    Ok(count)
}

/// The streams in an identifier row whose identifier may be the one looked for; `None` if the payload is malformed.
pub(super) fn streams_of_id(payload: &[u8], key: u32) -> Option<Vec<u32>> {
    let numbers = |bytes: &[u8]| -> Vec<u32> {
        let (words, _) = bytes.as_chunks::<4>();
        words.iter().map(|word| u32::from_le_bytes(*word)).collect()
    };
    if !payload.len().is_multiple_of(8) {
        return None;
    }
    let (keys, streams) = payload.split_at(payload.len() / 2);
    let (keys, streams) = (numbers(keys), numbers(streams));
    let first = keys.partition_point(|&k| k < key);
    let last = keys.partition_point(|&k| k <= key);
    streams.get(first..last).map(<[u32]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_found_by_their_beginning() {
        assert_eq!([1025, 2048, 2049, 1_000_000].map(id_bits), [1, 1, 2, 10]);
        let id = SeriesId::from_bytes([0xff, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(place_of_id(id, 1), Some((0, 0xff12_3456)));
        assert_eq!(place_of_id(id, 256), Some((0xff, 0x1234_5678)));
        // No file has these; a directory that is damaged may.
        assert_eq!([0, 3, u64::MAX].map(|rows| place_of_id(id, rows)), [None; 3]);
        let mut row = Vec::new();
        [1u32, 5, 5, 9].iter().chain(&[70, 71, 72, 73]).for_each(|n| row.extend_from_slice(&n.to_le_bytes()));
        assert_eq!(streams_of_id(&row, 5), Some(vec![71, 72]));
        assert_eq!(streams_of_id(&row, 6), Some(vec![]));
        assert_eq!(streams_of_id(&row[..12], 6), None);
    }
}
