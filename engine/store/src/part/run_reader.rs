//! The whole content of a part by series, for compaction: reads each file once from front to back, a few MB at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use quiver_types::{MillisRange, ReadStats};

use super::fetch::Purpose;
use super::floats::FloatChunks;
use super::reader::Part;
use super::{PartSeries, SeriesRows};
use crate::error::Result;
use crate::run::{HistRun, RunExemplar, SeriesRun};

/// Histograms or exemplars read at once.
const AHEAD_ROWS: u64 = 4096;

/// Streams the runs of a part in series order; made by [`Part::runs`].
#[derive(Debug)]
pub struct RunReader {
    part: Arc<Part>,
    stats: Arc<ReadStats>,
    open: Option<Open>,
}

#[derive(Debug)]
struct Open {
    series: Arc<PartSeries>,
    next: u32,
    floats: FloatChunks,
    hists: VecDeque<HistRun>,
    exemplars: VecDeque<Vec<RunExemplar>>,
}

impl RunReader {
    pub(super) fn new(part: Arc<Part>) -> Self {
        Self { part, stats: Arc::new(ReadStats::default()), open: None }
    }

    /// Gives the next series with all its samples, histograms and exemplars.
    ///
    /// # Errors
    /// Internal: a damaged file, which the message names. NotFound: it is gone. Unavailable: the store does not answer.
    pub async fn next(&mut self) -> Result<Option<SeriesRun>> {
        if self.open.is_none() {
            let series = PartSeries::read(&self.part, Purpose::Job, &self.stats).await?;
            let all: Vec<SeriesRows> = (0..series.len() as u32).map(|s| series.samples(s)).collect();
            let part = Arc::clone(&self.part);
            let stats = Arc::clone(&self.stats);
            let floats = FloatChunks::new(part, all, MillisRange::ALL, true, Purpose::Job, stats);
            let (hists, exemplars) = (VecDeque::new(), VecDeque::new());
            self.open = Some(Open { series: Arc::new(series), next: 0, floats, hists, exemplars });
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let number = open.next;
        if number as usize == open.series.len() {
            return Ok(None);
        }
        open.next += 1;
        let mut run = SeriesRun::new(open.series.labels(number), Arc::clone(open.series.service(number)));
        if open.series.samples(number).rows > 0
            && let Some((_, samples)) = open.floats.next().await?
        {
            run.samples = samples;
            if run.samples.start_ts.iter().all(|&s| s == 0) {
                run.samples.start_ts = Vec::new();
            }
        }
        if open.hists.is_empty() && self.part.meta.file("histograms").is_some() {
            let wanted = ahead(&open.series, number, PartSeries::hists);
            open.hists = self.part.hists_for(&wanted, MillisRange::ALL, true, Purpose::Job, &self.stats).await?.into();
        }
        run.hists = open.hists.pop_front().unwrap_or_default();
        if open.exemplars.is_empty() && self.part.meta.file("exemplars").is_some() {
            let wanted = ahead(&open.series, number, PartSeries::exemplars);
            let read = self.part.exemplars_for(&wanted, MillisRange::ALL, Purpose::Job, &self.stats).await?;
            open.exemplars = read.into();
        }
        run.exemplars = open.exemplars.pop_front().unwrap_or_default();
        Ok(Some(run))
    }
}

/// Row ranges of the series from `number` on, until they have enough rows; at least one, at most 64 k.
fn ahead(series: &PartSeries, number: u32, rows: impl Fn(&PartSeries, u32) -> SeriesRows) -> Vec<SeriesRows> {
    let mut sum = 0;
    let mut out = Vec::new();
    for s in (number..series.len() as u32).take(1 << 16) {
        let next = rows(series, s);
        sum += next.rows;
        if sum > AHEAD_ROWS && !out.is_empty() {
            break;
        }
        out.push(next);
    }
    out
}
