//! Encodes the result of a query as `data` of the Prometheus envelope, directly from its columns, piece by piece: a
//! large response is never in memory as text, and a slow client holds the columns and one piece (promise L4).

use std::sync::Arc;

use quiver_promql::histogram;
use quiver_promql::{QueryValue, SampleSeries, StepResult, StepRow};
use quiver_query::QueryMemory;
use quiver_query::index::labels_json;
use quiver_types::text::push_json_text;
use quiver_types::{Histogram, SeriesTable};

use super::prometheus::{Notation, write_histogram, write_quoted, write_time};

/// Samples of a series that are written at once.
const SAMPLES_AT_A_TIME: usize = 8192;
/// Histograms of a series that are written at once: each may have kilobytes of text.
const HISTOGRAMS_AT_A_TIME: usize = 16;

/// Writes `{"resultType":…,"result":…}` in pieces.
#[derive(Debug)]
pub(crate) struct Outcome {
    value: Arc<QueryValue>,
    /// Held as long as the columns are.
    _memory: Arc<QueryMemory>,
    /// Most series that are written; 0: all.
    limit: usize,
    stats: Option<String>,
    /// The text before the value at each step of a matrix. Times repeat in each series, so they are formatted once.
    times: Times,
    cursor: Cursor,
}

/// Ends a value of a matrix before the next one.
const NEXT: &[u8] = b"\"],";

/// The texts before the value at each step, concatenated; each begins with the end of the previous value.
#[derive(Debug, Default)]
struct Times {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Times {
    /// Bytes of such a text with a present-day time in whole seconds.
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

/// A position in the output.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cursor {
    place: Place,
    shown: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Head,
    /// The next row, and what of it comes next: of samples their number, of a row of a matrix one more than the number of its
    /// histogram, where there is one.
    Row(usize, usize),
    Tail,
    End,
}

impl Outcome {
    /// Begins to write a value; `limit` 0: all series are written.
    pub(crate) fn new(value: Arc<QueryValue>, memory: Arc<QueryMemory>, limit: usize, stats: Option<String>) -> Self {
        Self { value, _memory: memory, limit, stats, times: Times::default(), cursor: Cursor::default() }
    }

    /// Whether the limit leaves series out.
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

    /// The current position.
    pub(crate) fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// Returns to a position.
    pub(crate) fn rewind(&mut self, cursor: Cursor) {
        self.cursor = cursor;
    }

    /// Appends until `out` has this many bytes, exceeding them by at most the floats of one series, or a few histograms. Returns whether that was all.
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
                    Some(row) if from > 0 => {
                        let all = row.hists.iter().map(|(_, step, h)| (result.grid.at(*step as usize), h));
                        match histograms(out, all, from - 1) {
                            Some(next) => Place::Row(at, next + 1),
                            None => Self::end_of(out, at),
                        }
                    }
                    Some(_) if full => Self::close(out),
                    Some(row) if row.hists.is_empty() && !row.present.contains(&true) => Place::Row(at + 1, 0),
                    Some(row) => {
                        begin(out, shown, &result.table, row.row);
                        self.cursor.shown += 1;
                        if matches!(*self.value, QueryValue::Vector(_)) {
                            element(out, &row, result.grid.start);
                            Self::end_of(out, at)
                        } else {
                            // Formatted for the first row, since a matrix may have none.
                            if self.times.ends.is_empty() {
                                self.times = Times::of(result);
                            }
                            floats(out, &row, &self.times);
                            if row.hists.is_empty() { Self::end_of(out, at) } else { Place::Row(at, 1) }
                        }
                    }
                    None => Self::close(out),
                },
                QueryValue::Samples(result) => match result.series.get(at) {
                    Some(_) if full && from == 0 => Self::close(out),
                    Some(series) => {
                        if from == 0 {
                            begin(out, shown, &result.table, series.row);
                        }
                        if let Some(next) = samples(out, series, from) {
                            Place::Row(at, next)
                        } else {
                            self.cursor.shown += 1;
                            Self::end_of(out, at)
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

    fn end_of(out: &mut Vec<u8>, row: usize) -> Place {
        out.push(b'}');
        Place::Row(row + 1, 0)
    }

    fn close(out: &mut Vec<u8>) -> Place {
        out.push(b']');
        Place::Tail
    }

    /// Writes a value that is not a list. Returns whether it was one.
    fn single(&self, out: &mut Vec<u8>) -> bool {
        match &*self.value {
            QueryValue::Scalar { time_ms, value } => {
                pair(out, *time_ms, |out| write_quoted(out, *value, Notation::Plain));
                true
            }
            QueryValue::String { time_ms, text } => {
                pair(out, *time_ms, |out| {
                    let mut quoted = String::new();
                    push_json_text(text, &mut quoted);
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

/// Writes some samples of a series. Returns the number of the next one, if there is one.
fn samples(out: &mut Vec<u8>, series: &SampleSeries, from: usize) -> Option<usize> {
    let count = series.ts.len();
    if from >= count {
        let all = series.hist_ts.iter().copied().zip(&series.hists);
        return histograms(out, all, from - count).map(|next| count + next);
    }
    let to = (from + SAMPLES_AT_A_TIME).min(count);
    for (i, (time_ms, v)) in series.ts[from..to].iter().zip(&series.values[from..to]).enumerate() {
        out.extend_from_slice(if from + i > 0 { b"," } else { b",\"values\":[" });
        pair(out, *time_ms, |out| write_quoted(out, *v, Notation::Sample));
    }
    if to == count {
        out.push(b']');
    }
    (to < count || !series.hists.is_empty()).then_some(to)
}

/// Writes some of the histograms of a series. Returns the number of the next one, if there is one.
fn histograms<'h>(
    out: &mut Vec<u8>,
    all: impl ExactSizeIterator<Item = (i64, &'h Histogram)>,
    from: usize,
) -> Option<usize> {
    let count = all.len();
    let to = (from + HISTOGRAMS_AT_A_TIME).min(count);
    for (i, (time_ms, h)) in all.enumerate().take(to).skip(from) {
        out.extend_from_slice(if i > 0 { b"," } else { b",\"histograms\":[" });
        pair(out, time_ms, |out| histogram(out, h));
    }
    if count > 0 && to == count {
        out.push(b']');
    }
    (to < count).then_some(to)
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

/// Writes the floats of a row of a matrix.
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
                // Again from the same position.
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

    /// The whole result as JSON.
    fn whole(value: QueryValue, limit: usize) -> serde_json::Value {
        let mut out = Vec::new();
        assert!(Outcome::new(Arc::new(value), Arc::default(), limit, None).fill(&mut out, usize::MAX));
        serde_json::from_slice(&out).expect("JSON")
    }

    /// Three rows of one block: floats at steps 0 and 2, nothing, a histogram at step 1.
    fn steps() -> StepResult {
        let mut table = quiver_types::series::SeriesTableBuilder::default();
        for (name, value) in [("a", "1"), ("b", "2\""), ("c", "3")] {
            table.push([(name, value)]);
        }
        let h = Histogram {
            schema: 0,
            count: 3.0,
            sum: 4.5,
            zero_threshold: 0.25,
            zero_count: 1.0,
            positive_spans: vec![quiver_types::histogram::Span { offset: 0, length: 1 }],
            positive: vec![2.0],
            ..Histogram::default()
        };
        let block = quiver_promql::kernel::Block {
            rows: vec![0, 1, 2],
            steps: 3,
            values: vec![1.5, 9.0, f64::INFINITY, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0],
            present: vec![true, false, true, false, false, false, false, false, false],
            hists: vec![(2, 1, h)],
        };
        let order = Arc::new((0..3).map(|n| (n, 0, n)).collect());
        let grid = Grid { start: 1000, step_ms: 500, steps: 3 };
        StepResult { table: Arc::new(table.finish()), grid, blocks: Arc::new(vec![block]), order }
    }

    fn histogram_of_steps() -> serde_json::Value {
        serde_json::json!({
            "count": "3", "sum": "4.5", "buckets": [[3, "-0.25", "0.25", "1"], [0, "0.5", "1", "2"]],
        })
    }

    #[test]
    fn numbers_and_texts_stand_alone() {
        for (value, expected) in [
            (QueryValue::Scalar { time_ms: 1500, value: 1e21 }, serde_json::json!([1.5, "1000000000000000000000"])),
            (QueryValue::Scalar { time_ms: -1, value: f64::NAN }, serde_json::json!([-0.001, "NaN"])),
            (QueryValue::Scalar { time_ms: 0, value: -0.0 }, serde_json::json!([0, "-0"])),
        ] {
            let expected = serde_json::json!({"resultType": "scalar", "result": expected});
            // The limit only applies to series.
            assert_eq!((whole(value.clone(), 0), whole(value, 1)), (expected.clone(), expected));
        }
        let text = "a \"b\"\n\u{1}é".to_owned();
        let shown = whole(QueryValue::String { time_ms: 2000, text: text.clone() }, 1);
        assert_eq!(shown, serde_json::json!({"resultType": "string", "result": [2, text]}));
    }

    #[test]
    fn rows_of_a_matrix_have_what_they_have() {
        let expected = serde_json::json!([
            {"metric": {"a": "1"}, "values": [[1, "1.5"], [2, "+Inf"]]},
            {"metric": {"c": "3"}, "histograms": [[1.5, histogram_of_steps()]]},
        ]);
        let shown = whole(QueryValue::Matrix(steps()), 0);
        assert_eq!(shown, serde_json::json!({"resultType": "matrix", "result": expected}));
        // A row without values is not a series, so the limit does not count it.
        for (limit, cut) in [(0, false), (1, true), (2, false), (3, false)] {
            let outcome = Outcome::new(Arc::new(QueryValue::Matrix(steps())), Arc::default(), limit, None);
            assert_eq!(outcome.cut(), cut, "{limit}");
            let series = whole(QueryValue::Matrix(steps()), limit)["result"].as_array().map(Vec::len);
            assert_eq!(series, Some(if limit == 1 { 1 } else { 2 }), "{limit}");
        }
    }

    #[test]
    fn elements_of_a_vector_have_one_value() {
        let mut one = steps();
        let block = quiver_promql::kernel::Block {
            rows: vec![0, 1, 2],
            steps: 1,
            values: vec![-2.5, 9.0, 9.0],
            present: vec![true, false, false],
            hists: vec![(2, 0, one.blocks[0].hists[0].2.clone())],
        };
        (one.grid.steps, one.blocks) = (1, Arc::new(vec![block]));
        // The order is that of the expression.
        one.order = Arc::new(vec![(2, 0, 2), (1, 0, 1), (0, 0, 0)]);
        let expected = serde_json::json!({"resultType": "vector", "result": [
            {"metric": {"c": "3"}, "histogram": [1, histogram_of_steps()]},
            {"metric": {"a": "1"}, "value": [1, "-2.5"]},
        ]});
        assert_eq!(whole(QueryValue::Vector(one), 0), expected);
    }

    #[test]
    fn nothing_is_an_empty_list() {
        let empty = || {
            let mut none = steps();
            none.order = Arc::default();
            none
        };
        for (value, kind) in
            [(QueryValue::Vector(empty()), "vector"), (QueryValue::Matrix(empty()), "matrix"), (raw(&[]), "matrix")]
        {
            let outcome = Outcome::new(Arc::new(value.clone()), Arc::default(), 1, None);
            assert!(!outcome.cut(), "{kind}");
            assert_eq!(whole(value, 1), serde_json::json!({"resultType": kind, "result": []}));
        }
        // A series without samples is written all the same, since it exists.
        let bare = serde_json::json!({"resultType": "matrix", "result": [{"metric": {}}]});
        assert_eq!(whole(raw(&[0]), 0), bare);
    }

    /// Breaks if a series is written whole, of which each histogram has kilobytes.
    #[test]
    fn few_histograms_are_written_at_a_time() {
        const COUNT: usize = 3 * HISTOGRAMS_AT_A_TIME + 1;
        let one = steps().blocks[0].hists[0].2.clone();
        let raw = |floats: usize, hists: usize| SampleSeries {
            row: 0,
            ts: (0..floats as i64).collect(),
            values: vec![0.5; floats],
            hist_ts: (100..100 + hists as i64).collect(),
            hists: vec![one.clone(); hists],
        };
        let table = Arc::new(SeriesTable::new(1, vec![]));
        let series = vec![raw(2, COUNT), raw(0, HISTOGRAMS_AT_A_TIME), raw(SAMPLES_AT_A_TIME, 1), raw(1, 0), raw(0, 0)];
        let raw = QueryValue::Samples(SampleResult { table, series });
        let mut result = steps();
        let block = &mut Arc::make_mut(&mut result.blocks)[0];
        let row = block.hists[0].0;
        block.hists = (0..COUNT as u32).map(|step| (row, step, one.clone())).collect();
        for (value, histograms) in [(raw, COUNT + HISTOGRAMS_AT_A_TIME + 1), (QueryValue::Matrix(result), COUNT)] {
            let value = Arc::new(value);
            let outcome = || Outcome::new(Arc::clone(&value), Arc::default(), 0, None);
            let (mut whole, mut pieces, mut in_pieces) = (Vec::new(), Vec::new(), outcome());
            assert!(outcome().fill(&mut whole, usize::MAX));
            let read: serde_json::Value = serde_json::from_slice(&whole).expect("JSON");
            let written = |text: &[u8]| String::from_utf8_lossy(text).matches("\"count\"").count();
            assert_eq!(written(&whole), histograms, "{read}");
            loop {
                let mut piece = Vec::new();
                let is_last = in_pieces.fill(&mut piece, 1);
                assert!(written(&piece) <= HISTOGRAMS_AT_A_TIME, "{}", written(&piece));
                pieces.extend(piece);
                if is_last {
                    break;
                }
            }
            assert!(pieces == whole, "the pieces are the whole");
        }
    }

    #[test]
    fn samples_may_be_of_both_kinds() {
        let both = SampleSeries {
            row: 0,
            ts: vec![1, 2],
            values: vec![1.0, f64::NEG_INFINITY],
            hist_ts: vec![3],
            hists: vec![steps().blocks[0].hists[0].2.clone()],
        };
        let table = Arc::new(SeriesTable::new(1, vec![]));
        let shown = whole(QueryValue::Samples(SampleResult { table, series: vec![both] }), 0);
        let expected = serde_json::json!([{
            "metric": {}, "values": [[0.001, "1"], [0.002, "-Inf"]], "histograms": [[0.003, histogram_of_steps()]],
        }]);
        assert_eq!(shown["result"], expected);
    }
}
