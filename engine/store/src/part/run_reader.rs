//! Reads the whole content of a part series by series, for compaction. Each file is read once from front to back, a few
//! MB at a time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use quiver_types::{LabelSet, MillisRange, ReadStats};

use super::byte_ranges::Purpose;
use super::float_samples::FloatChunks;
use super::reader::Part;
use super::series::page::PAGE_SERIES;
use super::{SeriesPage, SeriesRows, StartTimes};
use crate::error::Result;
use crate::series_run::{HistRun, RunExemplar, SeriesRun};

/// Rows of histograms or exemplars that are read at once.
const AHEAD_ROWS: u64 = 4096;

/// Streams the series of a part with their data, in series order; see [`Part::runs`].
#[derive(Debug)]
pub struct RunReader {
    part: Arc<Part>,
    stats: Arc<ReadStats>,
    open: Option<SeriesBuffer>,
    /// First series that has not been loaded yet.
    next: u32,
}

/// How many series have their row ranges loaded at once, per open part.
const SERIES_AT_ONCE: u32 = 2 * PAGE_SERIES;
/// Approximate bytes of labels that are loaded at once, as they stand in the part: a series may have many kilobytes.
pub(super) const LABEL_BYTES: u64 = 4 << 20;

/// The series that are loaded.
#[derive(Debug)]
struct SeriesBuffer {
    /// Loaded series that have not been returned yet.
    numbers: Range<u32>,
    pages: Vec<Arc<SeriesPage>>,
    /// Of the first of them.
    labels: VecDeque<LabelSet>,
    floats: FloatChunks,
    hists: VecDeque<HistRun>,
    exemplars: VecDeque<Vec<RunExemplar>>,
}

impl Part {
    /// Streams the whole content of the part by series, for compaction. Bypasses the caches.
    pub fn runs(self: &Arc<Self>) -> RunReader {
        RunReader::new(Arc::clone(self))
    }
}

impl RunReader {
    fn new(part: Arc<Part>) -> Self {
        Self { part, stats: Arc::new(ReadStats::default()), open: None, next: 0 }
    }

    /// Loads row ranges of the next series; `None` at the end.
    async fn step(&mut self) -> Result<Option<SeriesBuffer>> {
        let numbers = self.next..(self.next + SERIES_AT_ONCE).min(self.part.series_count());
        if numbers.is_empty() {
            return Ok(None);
        }
        self.next = numbers.end;
        let wanted: Vec<u32> = (numbers.start / PAGE_SERIES..numbers.end.div_ceil(PAGE_SERIES)).collect();
        let pages = self.part.pages(&wanted, Purpose::Job, &self.stats).await?;
        let all = pages.iter().flat_map(|page| page.numbers().map(|s| page.samples(s))).collect();
        let (part, stats) = (Arc::clone(&self.part), Arc::clone(&self.stats));
        let floats = FloatChunks::new(part, all, stats);
        let (labels, hists, exemplars) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        Ok(Some(SeriesBuffer { numbers, pages, labels, floats, hists, exemplars }))
    }

    /// The next series with all its samples, histograms and exemplars; `None` at the end.
    ///
    /// # Errors
    /// Damaged: a file is damaged (the message names it) or gone. Unavailable: the store does not answer.
    pub async fn next(&mut self) -> Result<Option<SeriesRun>> {
        if self.open.as_ref().is_none_or(|open| open.numbers.is_empty()) {
            self.open = None;
            self.open = self.step().await?;
        }
        let Some(open) = &mut self.open else { return Ok(None) };
        let Some(number) = open.numbers.next() else { return Ok(None) };
        if open.labels.is_empty() {
            let some = self.part.series_within(number..open.numbers.end, LABEL_BYTES, &self.stats).await?;
            open.labels = self.part.label_sets(some, Purpose::Job, &self.stats).await?.into();
        }
        let page = page_of(&open.pages, number);
        let Some(labels) = open.labels.pop_front() else { return Ok(None) };
        let mut run = SeriesRun::new(labels, Arc::clone(page.service(number)));
        if page.samples(number).rows > 0
            && let Some((_, samples)) = open.floats.next().await?
        {
            run.samples = samples;
            if run.samples.start_ts.iter().all(|&s| s == 0) {
                run.samples.start_ts = Vec::new();
            }
        }
        let rest = number..open.numbers.end;
        if open.hists.is_empty() && self.part.meta.file("histograms").is_some() {
            let wanted = ahead(&open.pages, rest.clone(), SeriesPage::hists);
            open.hists = self
                .part
                .hists_for(&wanted, MillisRange::ALL, StartTimes::Read, Purpose::Job, &self.stats)
                .await?
                .into();
        }
        run.hists = open.hists.pop_front().unwrap_or_default();
        if open.exemplars.is_empty() && self.part.meta.file("exemplars").is_some() {
            let wanted = ahead(&open.pages, rest, SeriesPage::exemplars);
            let read = self.part.exemplars_for(&wanted, MillisRange::ALL, Purpose::Job, &self.stats).await?;
            open.exemplars = read.into();
        }
        run.exemplars = open.exemplars.pop_front().unwrap_or_default();
        Ok(Some(run))
    }
}

fn page_of(pages: &[Arc<SeriesPage>], number: u32) -> &SeriesPage {
    &pages[pages.partition_point(|page| page.numbers().end <= number)]
}

/// Row ranges of the first few series, until they have enough rows; at least one series.
fn ahead(
    pages: &[Arc<SeriesPage>],
    numbers: Range<u32>,
    rows: impl Fn(&SeriesPage, u32) -> SeriesRows,
) -> Vec<SeriesRows> {
    let mut sum = 0;
    let mut out = Vec::new();
    for s in numbers {
        let next = rows(page_of(pages, s), s);
        sum += next.rows;
        if sum > AHEAD_ROWS && !out.is_empty() {
            break;
        }
        out.push(next);
    }
    out
}
