//! A query's outcome as the `data` of the Prometheus envelope, straight from its columns, piece by piece: a large answer
//! is never in memory as text, and who reads it slowly holds the columns and one piece (promise L4).

use std::sync::Arc;

use quiver_promql::histogram;
use quiver_promql::{QueryValue, SampleSeries, StepResult, StepRow};
use quiver_query::QueryMemory;
use quiver_query::index::labels_json;
use quiver_types::{Histogram, SeriesTable};

use super::prometheus::{Notation, json_text, write_histogram, write_quoted, write_time};

/// Samples of a series that are written in one go.
const SAMPLES_AT_A_TIME: usize = 8192;

/// Writes `{"resultType":…,"result":…}` in pieces.
#[derive(Debug)]
pub(crate) struct Outcome {
    value: Arc<QueryValue>,
    /// Held as long as the columns are.
    _memory: Arc<QueryMemory>,
    /// Most series that are shown; 0: all.
    limit: usize,
    stats: Option<String>,
    /// What stands before the value at each step of a matrix: times repeat in each series, and are written once.
    times: Times,
    cursor: Cursor,
}

/// What ends a value of a matrix before the next one.
const NEXT: &[u8] = b"\"],";

/// What stands before the value at each step, one behind the other; each begins with the end of the value before.
#[derive(Debug, Default)]
struct Times {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Times {
    /// Bytes of a time of today in whole seconds.
    const USUAL_BYTES: usize = 13 + NEXT.len();

    fn of(result: &StepResult) -> Self {
        let steps = result.grid.steps;
        let mut times = Self { bytes: Vec::with_capacity(steps * Self::USUAL_BYTES), ends: Vec::with_capacity(steps) };
        for step in 0..steps {
            times.bytes.extend_from_slice(NEXT);
            times.bytes.push(b'[');
            write_time(&mut times.bytes, result.grid.at(step));
            times.bytes.extend_from_slice(b",\"");
            times.ends.push(times.bytes.len());
        }
        times
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut from = 0;
        self.ends.iter().map(move |end| &self.bytes[std::mem::replace(&mut from, *end)..*end])
    }
}

/// How far an outcome is written.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    place: Place,
    shown: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    /// The next row, and the next of its samples.
    Row(usize, usize),
    Tail,
    End,
}

impl Outcome {
    /// Begins.
    pub(crate) fn new(value: Arc<QueryValue>, memory: Arc<QueryMemory>, limit: usize, stats: Option<String>) -> Self {
        Self { value, _memory: memory, limit, stats, times: Times::default(), cursor: Cursor::default() }
    }

    /// Says whether the limit leaves series out.
    pub(crate) fn cut(&self) -> bool {
        if self.limit == 0 {
            return false;
        }
        let some = |row: &StepRow<'_>| !row.hists.is_empty() || row.present.contains(&true);
        let series = match &*self.value {
            QueryValue::Scalar { .. } | QueryValue::String { .. } => 0,
            QueryValue::Vector(result) | QueryValue::Matrix(result) => {
                result.rows().filter(some).take(self.limit + 1).count()
            }
            QueryValue::Samples(result) => result.series.len(),
        };
        series > self.limit
    }

    /// How far it is.
    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Goes back to where it was.
    pub(crate) fn rewind(&mut self, cursor: Cursor) {
        self.cursor = cursor;
    }

    /// Appends until `out` has so many bytes, a series more at most; says whether that was all.
    pub(crate) fn fill(&mut self, out: &mut Vec<u8>, bytes: usize) -> bool {
        while self.cursor.place != Place::End {
            if out.len() >= bytes {
                return false;
            }
            self.step(out);
        }
        true
    }

    fn step(&mut self, out: &mut Vec<u8>) {
        let Cursor { place, shown } = self.cursor;
        let full = self.limit > 0 && shown >= self.limit;
        self.cursor.place = match place {
            Place::Head => {
                let kind = match &*self.value {
                    QueryValue::Scalar { .. } => "scalar",
                    QueryValue::String { .. } => "string",
                    QueryValue::Vector(_) => "vector",
                    QueryValue::Matrix(_) | QueryValue::Samples(_) => "matrix",
                };
                out.extend_from_slice(format!("{{\"resultType\":\"{kind}\",\"result\":").as_bytes());
                if self.single(out) {
                    Place::Tail
                } else {
                    out.push(b'[');
                    Place::Row(0, 0)
                }
            }
            Place::Row(at, from) => match &*self.value {
                QueryValue::Vector(result) | QueryValue::Matrix(result) => match result.row(at) {
                    Some(_) if full => Self::close(out),
                    Some(row) => {
                        if row.present.contains(&true) || !row.hists.is_empty() {
                            begin(out, shown, &result.table, row.row);
                            self.cursor.shown += 1;
                            if matches!(*self.value, QueryValue::Vector(_)) {
                                element(out, &row, result.grid.start);
                            } else {
                                // Written for the first row that is shown: many a matrix has none.
                                if self.times.ends.is_empty() {
                                    self.times = Times::of(result);
                                }
                                matrix_row(out, &row, result, &self.times);
                            }
                            out.push(b'}');
                        }
                        Place::Row(at + 1, 0)
                    }
                    None => Self::close(out),
                },
                QueryValue::Samples(result) => match result.series.get(at) {
                    Some(_) if full && from == 0 => Self::close(out),
                    Some(series) => {
                        if from == 0 {
                            begin(out, shown, &result.table, series.row);
                        }
                        if samples(out, series, from) {
                            out.push(b'}');
                            self.cursor.shown += 1;
                            Place::Row(at + 1, 0)
                        } else {
                            Place::Row(at, from + SAMPLES_AT_A_TIME)
                        }
                    }
                    None => Self::close(out),
                },
                QueryValue::Scalar { .. } | QueryValue::String { .. } => Place::Tail,
            },
            Place::Tail => {
                if let Some(stats) = &self.stats {
                    out.extend_from_slice(b",\"stats\":");
                    out.extend_from_slice(stats.as_bytes());
                }
                out.push(b'}');
                Place::End
            }
            Place::End => Place::End,
        };
    }

    fn close(out: &mut Vec<u8>) -> Place {
        out.push(b']');
        Place::Tail
    }

    /// Writes what is no list; says whether it was none.
    fn single(&self, out: &mut Vec<u8>) -> bool {
        match &*self.value {
            QueryValue::Scalar { time_ms, value } => {
                pair(out, *time_ms, |out| write_quoted(out, *value, Notation::Plain));
                true
            }
            QueryValue::String { time_ms, text } => {
                pair(out, *time_ms, |out| {
                    let mut quoted = String::new();
                    json_text(&mut quoted, text);
                    out.extend_from_slice(quoted.as_bytes());
                });
                true
            }
            _ => false,
        }
    }
}

fn pair(out: &mut Vec<u8>, time_ms: i64, value: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'[');
    write_time(out, time_ms);
    out.push(b',');
    value(out);
    out.push(b']');
}

/// Begins an entry of a list with its labels.
fn begin(out: &mut Vec<u8>, shown: usize, table: &SeriesTable, row: u32) {
    if shown > 0 {
        out.push(b',');
    }
    out.extend_from_slice(b"{\"metric\":");
    out.extend_from_slice(labels_json(table.labels(row as usize)).as_bytes());
}

/// Writes some samples of a series; says whether these were the last ones.
fn samples(out: &mut Vec<u8>, series: &SampleSeries, from: usize) -> bool {
    let to = (from + SAMPLES_AT_A_TIME).min(series.ts.len());
    for (i, (time_ms, v)) in series.ts[from..to].iter().zip(&series.values[from..to]).enumerate() {
        out.extend_from_slice(if from + i > 0 { b"," } else { b",\"values\":[" });
        pair(out, *time_ms, |out| write_quoted(out, *v, Notation::Sample));
    }
    if to < series.ts.len() {
        return false;
    }
    if !series.ts.is_empty() {
        out.push(b']');
    }
    for (i, (time_ms, h)) in series.hist_ts.iter().zip(&series.hists).enumerate() {
        out.extend_from_slice(if i > 0 { b"," } else { b",\"histograms\":[" });
        pair(out, *time_ms, |out| histogram(out, h));
    }
    if !series.hists.is_empty() {
        out.push(b']');
    }
    true
}

/// Writes the value of an element of a vector.
fn element(out: &mut Vec<u8>, row: &StepRow<'_>, at: i64) {
    if let Some((_, _, h)) = row.hists.first() {
        out.extend_from_slice(b",\"histogram\":");
        pair(out, at, |out| histogram(out, h));
    } else {
        out.extend_from_slice(b",\"value\":");
        pair(out, at, |out| write_quoted(out, row.values[0], Notation::Sample));
    }
}

/// Writes the points of a row of a matrix.
fn matrix_row(out: &mut Vec<u8>, row: &StepRow<'_>, result: &StepResult, times: &Times) {
    floats(out, row, times);
    let mut any = false;
    for (_, step, h) in row.hists {
        out.extend_from_slice(if any { b"," } else { b",\"histograms\":[" });
        any = true;
        pair(out, result.grid.at(*step as usize), |out| histogram(out, h));
    }
    if any {
        out.push(b']');
    }
}

fn floats(out: &mut Vec<u8>, row: &StepRow<'_>, times: &Times) {
    let mut any = false;
    for ((v, _), time) in row.values.iter().zip(row.present).zip(times.iter()).filter(|((_, p), _)| **p) {
        if any {
            out.extend_from_slice(time);
        } else {
            out.extend_from_slice(b",\"values\":[");
            out.extend_from_slice(&time[NEXT.len()..]);
            any = true;
        }
        super::prometheus::write_value(out, *v, Notation::Sample);
    }
    if any {
        out.extend_from_slice(b"\"]]");
    }
}

fn histogram(out: &mut Vec<u8>, h: &Histogram) {
    let buckets: Vec<(u8, f64, f64, f64)> = histogram::all(h)
        .map(|b| {
            let bounds = match (b.lower_inclusive, b.upper_inclusive) {
                (false, true) => 0,
                (true, false) => 1,
                (false, false) => 2,
                (true, true) => 3,
            };
            (bounds, b.lower, b.upper, b.count)
        })
        .collect();
    write_histogram(out, h, &buckets);
}

#[cfg(test)]
mod tests {
    use quiver_promql::SampleResult;
    use quiver_promql::kernel::Grid;

    use super::*;

    fn raw(lengths: &[usize]) -> QueryValue {
        let series = |(row, &n): (usize, &usize)| SampleSeries {
            row: row as u32,
            ts: (0..n as i64).collect(),
            values: (0..n).map(|v| v as f64).collect(),
            ..SampleSeries::default()
        };
        let table = Arc::new(SeriesTable::new(lengths.len(), vec![]));
        QueryValue::Samples(SampleResult { table, series: lengths.iter().enumerate().map(series).collect() })
    }

    #[test]
    fn pieces_are_the_whole() {
        let lengths = [3, SAMPLES_AT_A_TIME, SAMPLES_AT_A_TIME + 1, 40_000, 1];
        for limit in [0, 2, 5] {
            let outcome = || Outcome::new(Arc::new(raw(&lengths)), Arc::default(), limit, Some("{}".into()));
            assert_eq!(outcome().cut(), limit == 2);
            let mut whole = Vec::new();
            assert!(outcome().fill(&mut whole, usize::MAX));
            let (mut pieces, mut in_pieces) = (Vec::new(), outcome());
            loop {
                let mut piece = Vec::new();
                let (before, done) = (in_pieces.cursor(), in_pieces.fill(&mut piece, 1000));
                // Once more from the same place.
                in_pieces.rewind(before);
                let mut again = Vec::new();
                assert_eq!((in_pieces.fill(&mut again, 1000), &again), (done, &piece));
                pieces.extend(piece);
                if done {
                    break;
                }
            }
            assert_eq!(pieces, whole);
            let shown: serde_json::Value = serde_json::from_slice(&whole).expect("valid JSON");
            let series = shown["result"].as_array().expect("a list");
            assert_eq!(series.len(), if limit == 2 { 2 } else { 5 });
            assert_eq!(series[1]["values"].as_array().map(Vec::len), Some(SAMPLES_AT_A_TIME));
        }
    }

    #[test]
    fn times_stand_before_values() {
        let grid = Grid { start: -500, step_ms: 250, steps: 4 };
        let (table, blocks, order) = (Arc::new(SeriesTable::new(0, vec![])), Arc::default(), Arc::default());
        let times = Times::of(&StepResult { table, grid, blocks, order });
        let expected: [&[u8]; 4] = [b"\"],[-0.5,\"", b"\"],[-0.25,\"", b"\"],[0,\"", b"\"],[0.25,\""];
        assert_eq!(times.iter().collect::<Vec<_>>(), expected);
    }
}
