//! A query's outcome as the `data` of the Prometheus envelope, straight from its columns.

use quiver_promql::histogram;
use quiver_promql::{QueryValue, StepResult, StepRow};
use quiver_types::{Histogram, SeriesTable};

use super::prometheus::{Notation, json_text, write_histogram, write_quoted, write_time};
use crate::labels_api::labels_json;

/// Appends `{"resultType":…,"result":…}`; says whether `limit` (0 = none) cut it.
///
/// # Errors
/// The answer grows beyond `bytes_max`.
pub(crate) fn write_outcome(
    out: &mut Vec<u8>,
    value: &QueryValue,
    limit: usize,
    stats: Option<&str>,
    bytes_max: usize,
) -> Result<bool, ()> {
    let kind = match value {
        QueryValue::Scalar { .. } => "scalar",
        QueryValue::String { .. } => "string",
        QueryValue::Vector(_) => "vector",
        QueryValue::Matrix(_) | QueryValue::Samples(_) => "matrix",
    };
    out.extend_from_slice(format!("{{\"resultType\":\"{kind}\",\"result\":").as_bytes());
    let mut list = List { out, first: true, limit, shown: 0, bytes_max };
    let cut = match value {
        QueryValue::Scalar { time_ms, value } => {
            pair(list.out, *time_ms, |out| write_quoted(out, *value, Notation::Plain));
            false
        }
        QueryValue::String { time_ms, text } => {
            pair(list.out, *time_ms, |out| {
                let mut quoted = String::new();
                json_text(&mut quoted, text);
                out.extend_from_slice(quoted.as_bytes());
            });
            false
        }
        QueryValue::Vector(result) => vector(&mut list, result)?,
        QueryValue::Matrix(result) => matrix(&mut list, result)?,
        QueryValue::Samples(result) => {
            list.out.push(b'[');
            for s in &result.series {
                let floats = s.ts.iter().copied().zip(s.values.iter().copied());
                let hists = s.hist_ts.iter().copied().zip(&s.hists);
                if !list.series(&result.table, s.row, floats, hists)? {
                    break;
                }
            }
            list.out.push(b']');
            list.shown < result.series.len()
        }
    };
    if let Some(stats) = stats {
        out.extend_from_slice(b",\"stats\":");
        out.extend_from_slice(stats.as_bytes());
    }
    out.push(b'}');
    Ok(cut)
}

fn pair(out: &mut Vec<u8>, time_ms: i64, value: impl FnOnce(&mut Vec<u8>)) {
    out.push(b'[');
    write_time(out, time_ms);
    out.push(b',');
    value(out);
    out.push(b']');
}

/// A list of series that is being written.
struct List<'a> {
    out: &'a mut Vec<u8>,
    first: bool,
    limit: usize,
    shown: usize,
    bytes_max: usize,
}

impl List<'_> {
    /// Begins an entry with its labels; `false`: the limit is reached.
    fn begin(&mut self, table: &SeriesTable, row: u32) -> Result<bool, ()> {
        if self.limit > 0 && self.shown >= self.limit {
            return Ok(false);
        }
        if self.out.len() > self.bytes_max {
            return Err(());
        }
        if !std::mem::take(&mut self.first) {
            self.out.push(b',');
        }
        self.shown += 1;
        self.out.extend_from_slice(b"{\"metric\":");
        self.out.extend_from_slice(labels_json(table.labels(row as usize)).as_bytes());
        Ok(true)
    }

    fn series<'h>(
        &mut self,
        table: &SeriesTable,
        row: u32,
        floats: impl Iterator<Item = (i64, f64)>,
        hists: impl Iterator<Item = (i64, &'h Histogram)>,
    ) -> Result<bool, ()> {
        if !self.begin(table, row)? {
            return Ok(false);
        }
        let mut any = false;
        for (time_ms, v) in floats {
            self.out.extend_from_slice(if any { b"," } else { b",\"values\":[" });
            any = true;
            pair(self.out, time_ms, |out| write_quoted(out, v, Notation::Sample));
        }
        if any {
            self.out.push(b']');
        }
        let mut any = false;
        for (time_ms, h) in hists {
            self.out.extend_from_slice(if any { b"," } else { b",\"histograms\":[" });
            any = true;
            pair(self.out, time_ms, |out| histogram(out, h));
        }
        if any {
            self.out.push(b']');
        }
        self.out.push(b'}');
        Ok(true)
    }
}

fn vector(list: &mut List<'_>, result: &StepResult) -> Result<bool, ()> {
    list.out.push(b'[');
    let (at, mut rows) = (result.grid.start, 0);
    for row in result.rows().filter(|r| r.present[0] || !r.hists.is_empty()) {
        rows += 1;
        if !list.begin(&result.table, row.row)? {
            break;
        }
        if let Some((_, _, h)) = row.hists.first() {
            list.out.extend_from_slice(b",\"histogram\":");
            pair(list.out, at, |out| histogram(out, h));
        } else {
            list.out.extend_from_slice(b",\"value\":");
            pair(list.out, at, |out| write_quoted(out, row.values[0], Notation::Sample));
        }
        list.out.push(b'}');
    }
    list.out.push(b']');
    Ok(list.shown < rows)
}

fn matrix(list: &mut List<'_>, result: &StepResult) -> Result<bool, ()> {
    // Times repeat in each series: written once.
    let times: Vec<Vec<u8>> = (0..result.grid.steps)
        .map(|step| {
            let mut text = vec![b'['];
            write_time(&mut text, result.grid.at(step));
            text.extend_from_slice(b",\"");
            text
        })
        .collect();
    list.out.push(b'[');
    let mut rows = 0;
    for row in result.rows().filter(|r| !r.hists.is_empty() || r.present.contains(&true)) {
        rows += 1;
        if !list.begin(&result.table, row.row)? {
            break;
        }
        floats(list.out, &row, &times);
        let mut any = false;
        for (_, step, h) in row.hists {
            list.out.extend_from_slice(if any { b"," } else { b",\"histograms\":[" });
            any = true;
            pair(list.out, result.grid.at(*step as usize), |out| histogram(out, h));
        }
        if any {
            list.out.push(b']');
        }
        list.out.push(b'}');
    }
    list.out.push(b']');
    Ok(list.shown < rows)
}

fn floats(out: &mut Vec<u8>, row: &StepRow<'_>, times: &[Vec<u8>]) {
    let mut any = false;
    for ((v, _), time) in row.values.iter().zip(row.present).zip(times).filter(|((_, p), _)| **p) {
        out.extend_from_slice(if any { b"," } else { b",\"values\":[" });
        any = true;
        out.extend_from_slice(time);
        super::prometheus::write_value(out, *v, Notation::Sample);
        out.extend_from_slice(b"\"]");
    }
    if any {
        out.push(b']');
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
