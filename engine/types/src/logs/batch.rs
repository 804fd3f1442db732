//! A batch of log rows in columns, filled directly from the wire format, with one entry per field and row.

use std::sync::Arc;

use crate::SeriesId;

/// Name of the message field.
pub const MSG: &str = "_msg";
/// Memory of a field besides its value: its name and its end.
pub const FIELD_BYTES: usize = 8;
/// Memory of a row besides its fields.
const ROW_BYTES: usize = 20;

/// A batch from a decoder, for `Store::write_logs`.
///
/// Row `i` has the fields `field_ends[i - 1]..field_ends[i]` (from 0 for the first); field `f` has the name
/// `names[field_names[f]]` and the bytes `value_ends[f - 1]..value_ends[f]` of `values`, valid UTF-8 and not empty.
/// Names of a row are unique; `_time`, `_stream`, `_stream_id` are not among them. Decoders check all of that.
#[derive(Debug, Default, Clone)]
pub struct LogsBatch {
    /// Time of each row, Unix nanoseconds.
    pub time: Vec<i64>,
    /// Stream of each row: index into `streams`.
    pub row_streams: Vec<u32>,
    /// Service of each row: index into `services`.
    pub row_services: Vec<u32>,
    /// OpenTelemetry severity number of each row, 0 for none. Empty if no row has one.
    pub severity: Vec<u8>,
    /// Observed time of each row in Unix nanoseconds, 0 for none. Empty if no row has one.
    pub observed: Vec<i64>,
    /// End of each row's fields.
    pub field_ends: Vec<u32>,
    /// Name of each field: index into `names`.
    pub field_names: Vec<u32>,
    /// End of each field's value.
    pub value_ends: Vec<u32>,
    /// The values, concatenated.
    pub values: Vec<u8>,
    /// Distinct names.
    pub names: Vec<Arc<str>>,
    /// Distinct services; the empty text stands for "none".
    pub services: Vec<Arc<str>>,
    /// Streams, possibly with duplicates.
    pub streams: Vec<BatchStream>,
    /// Canonical encodings of their labels ([`crate::LabelSet`]), concatenated.
    pub stream_bytes: Vec<u8>,
    /// Time of arrival in Unix nanoseconds, if there are rows that came without a time and so bear this one.
    pub arrival: Option<i64>,
}

/// Properties of an OpenTelemetry record besides its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordMarks {
    /// Severity number, 0 for none.
    pub severity: u8,
    /// Observed time in Unix nanoseconds, 0 for none.
    pub observed: i64,
}

/// A stream of a batch.
#[derive(Debug, Clone, Copy)]
pub struct BatchStream {
    /// First byte in `stream_bytes`.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
    /// Hash of these bytes: the stream's identifier (displayed as 32 hex digits).
    pub id: SeriesId,
}

impl LogsBatch {
    /// Number of rows.
    pub fn len(&self) -> usize {
        self.time.len()
    }

    /// Says whether there is nothing to store.
    pub fn is_empty(&self) -> bool {
        self.time.is_empty()
    }

    /// Gives the times that the sender gave, Unix nanoseconds, in the order of the rows.
    pub fn given_times(&self) -> impl Iterator<Item = i64> {
        self.time.iter().copied().filter(|&time| Some(time) != self.arrival)
    }

    /// Approximate memory in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.values.len() + FIELD_BYTES * self.value_ends.len() + ROW_BYTES * self.len() + self.stream_bytes.len()
    }

    /// Appends a stream, given its canonical label bytes; returns its index.
    pub fn push_stream(&mut self, canonical: &[u8]) -> u32 {
        let start = self.stream_bytes.len() as u32;
        self.stream_bytes.extend_from_slice(canonical);
        let stream = BatchStream { start, end: self.stream_bytes.len() as u32, id: SeriesId::of(canonical) };
        self.streams.push(stream);
        (self.streams.len() - 1) as u32
    }

    /// Appends a field to the row being built; [`LogsBatch::end_row`] completes it. `name` is an index into `names`.
    pub fn push_field(&mut self, name: u32, value: &str) {
        self.values.extend_from_slice(value.as_bytes());
        self.field_names.push(name);
        self.value_ends.push(self.values.len() as u32);
    }

    /// Completes the row. Severities and observed times are stored from the first that is not 0.
    pub fn end_row(&mut self, time: i64, stream: u32, service: u32, marks: RecordMarks) {
        push_mark(&mut self.severity, self.time.len(), marks.severity);
        push_mark(&mut self.observed, self.time.len(), marks.observed);
        self.time.push(time);
        self.row_streams.push(stream);
        self.row_services.push(service);
        self.field_ends.push(self.field_names.len() as u32);
    }

    /// Keeps the rows whose time passes a test.
    pub fn retain(&mut self, keep: impl Fn(i64) -> bool) {
        if self.time.iter().all(|&t| keep(t)) {
            return;
        }
        let (names, services) = (std::mem::take(&mut self.names), std::mem::take(&mut self.services));
        let (streams, stream_bytes) = (std::mem::take(&mut self.streams), std::mem::take(&mut self.stream_bytes));
        let mut out = Self { names, services, streams, stream_bytes, arrival: self.arrival, ..Self::default() };
        for row in (0..self.len()).filter(|&row| keep(self.time[row])) {
            let first = if row == 0 { 0 } else { self.field_ends[row - 1] as usize };
            for field in first..self.field_ends[row] as usize {
                out.push_field(self.field_names[field], self.value(field));
            }
            let marks = RecordMarks {
                severity: self.severity.get(row).copied().unwrap_or(0),
                observed: self.observed.get(row).copied().unwrap_or(0),
            };
            out.end_row(self.time[row], self.row_streams[row], self.row_services[row], marks);
        }
        *self = out;
    }

    /// Gives the fields of a row.
    pub fn row(&self, row: usize) -> RowFields<'_> {
        let start = if row == 0 { 0 } else { self.field_ends[row - 1] as usize };
        RowFields { batch: self, next: start, end: self.field_ends[row] as usize }
    }

    /// Size of a row's content: time, stream, names and values. It is independent of other rows of the batch.
    pub fn row_bytes(&self, row: usize) -> u64 {
        let begin = |ends: &[u32], n: usize| if n == 0 { 0 } else { ends[n - 1] as usize };
        let (first, end) = (begin(&self.field_ends, row), begin(&self.field_ends, row + 1));
        let names = self.field_names[first..end].iter().map(|&name| self.names[name as usize].len());
        let values = begin(&self.value_ends, end) - begin(&self.value_ends, first);
        (size_of::<i64>() + self.labels(self.row_streams[row]).len() + names.sum::<usize>() + values) as u64
    }

    /// Gives the value of a field by its number.
    pub fn value(&self, field: usize) -> &str {
        let start = if field == 0 { 0 } else { self.value_ends[field - 1] as usize };
        // Decoders have validated it; invalid UTF-8 reads as missing instead of causing a panic.
        std::str::from_utf8(&self.values[start..self.value_ends[field] as usize]).unwrap_or("")
    }

    /// Gives the canonical label bytes of a stream.
    pub fn labels(&self, stream: u32) -> &[u8] {
        let s = &self.streams[stream as usize];
        &self.stream_bytes[s.start as usize..s.end as usize]
    }
}

/// Appends a property of a row; the list stays empty while all are 0.
fn push_mark<T: Copy + PartialEq + Default>(marks: &mut Vec<T>, rows: usize, mark: T) {
    let none = T::default();
    if mark != none && marks.is_empty() {
        marks.resize(rows, none);
    }
    if mark != none || !marks.is_empty() {
        marks.push(mark);
    }
}

/// Names and values of the fields of a row.
#[derive(Debug, Clone)]
pub struct RowFields<'a> {
    batch: &'a LogsBatch,
    next: usize,
    end: usize,
}

impl<'a> Iterator for RowFields<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let field = self.next;
        (field < self.end).then(|| {
            self.next += 1;
            (&*self.batch.names[self.batch.field_names[field] as usize], self.batch.value(field))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let mut batch =
            LogsBatch { names: vec![MSG.into(), "a".into()], services: vec!["".into()], ..Default::default() };
        let stream = batch.push_stream(&[]);
        batch.push_field(0, "hello");
        batch.push_field(1, "1");
        batch.end_row(5, stream, 0, RecordMarks::default());
        batch.end_row(6, stream, 0, RecordMarks { severity: 9, observed: 0 });
        assert_eq!(batch.row(0).collect::<Vec<_>>(), [(MSG, "hello"), ("a", "1")]);
        assert_eq!(batch.row(1).count(), 0);
        assert_eq!((batch.len(), batch.severity.as_slice()), (2, &[0, 9][..]));
        let labeled = batch.push_stream(b"three");
        batch.push_field(1, "xyz");
        batch.end_row(7, labeled, 0, RecordMarks::default());
        let own = [8 + MSG.len() + 5 + 1 + 1, 8, 8 + 5 + 1 + 3].map(|bytes| bytes as u64);
        assert_eq!([0, 1, 2].map(|row| batch.row_bytes(row)), own);
    }

    #[test]
    fn times_of_arrival_are_no_times_of_the_sender() {
        let mut batch = numbered(&[5, 9, 7, 9]);
        assert!(batch.given_times().eq([5, 9, 7, 9]));
        batch.arrival = Some(9);
        batch.retain(|time| time > 5);
        assert_eq!(batch.time, [9, 7, 9]);
        assert!(batch.given_times().eq([7]));
    }

    /// Rows with a field `n` of their number and, in each third, a mark.
    fn numbered(times: &[i64]) -> LogsBatch {
        let mut batch =
            LogsBatch { names: vec!["n".into(), "é".into()], services: vec!["".into()], ..Default::default() };
        let streams = [batch.push_stream(b"one"), batch.push_stream(b""), batch.push_stream(b"one")];
        for (row, time) in times.iter().enumerate() {
            batch.push_field(0, &row.to_string());
            if row % 2 == 1 {
                batch.push_field(1, "日本");
            }
            let mark = if row % 3 == 2 { row as u8 } else { 0 };
            batch.end_row(*time, streams[row % 3], 0, RecordMarks { severity: mark, observed: i64::from(mark) * 10 });
        }
        batch
    }

    type Row = (i64, u32, u8, i64, Vec<(String, String)>);

    fn rows(batch: &LogsBatch) -> Vec<Row> {
        let row = |row: usize| {
            let text = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
            let fields: Vec<(String, String)> = batch.row(row).map(text).collect();
            let severity = batch.severity.get(row).copied().unwrap_or(0);
            let observed = batch.observed.get(row).copied().unwrap_or(0);
            (batch.time[row], batch.row_streams[row], severity, observed, fields)
        };
        (0..batch.len()).map(row).collect()
    }

    #[test]
    fn rows_that_are_kept_stay_as_they_are() {
        let times = [5, -1, 7, i64::MAX, 0, 7, i64::MIN];
        let conditions: [fn(i64) -> bool; 5] = [|_| true, |_| false, |t| t > 0, |t| t < 0, |t| t == 7];
        for keep in conditions {
            let mut batch = numbered(&times);
            let expected: Vec<Row> = rows(&batch).into_iter().filter(|row| keep(row.0)).collect();
            batch.retain(keep);
            assert_eq!(rows(&batch), expected);
            let marks = expected.iter().any(|row| row.2 != 0);
            assert_eq!(
                (batch.severity.len(), batch.observed.len()),
                if marks { (batch.len(), batch.len()) } else { (0, 0) }
            );
            assert_eq!((batch.is_empty(), batch.streams.len()), (expected.is_empty(), 3), "streams keep their numbers");
            // It goes on from there.
            batch.push_field(1, "x");
            batch.end_row(1, 0, 0, RecordMarks::default());
            let last = rows(&batch).pop().expect("a row");
            assert_eq!(last, (1, 0, 0, 0, vec![("é".to_owned(), "x".to_owned())]));
        }
    }

    #[test]
    fn streams_of_equal_labels_have_one_identifier() {
        let batch = numbered(&[]);
        let ids: Vec<SeriesId> = batch.streams.iter().map(|stream| stream.id).collect();
        assert!(ids[0] == ids[2] && ids[0] != ids[1] && ids[1] == SeriesId::of(b""));
        assert_eq!([0, 1, 2].map(|stream| batch.labels(stream)), [&b"one"[..], b"", b"one"]);
    }

    #[test]
    fn what_is_no_text_reads_as_missing() {
        let mut batch = numbered(&[1, 2]);
        batch.values[0] = 0xff;
        assert_eq!(batch.value(0), "");
        assert_eq!(batch.row(1).collect::<Vec<_>>(), [("n", "1"), ("é", "日本")], "others stay");
    }
}
