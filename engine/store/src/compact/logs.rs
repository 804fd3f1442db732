//! Merges parts of logs: each input is read from front to back in windows of rows, the rows of a stream are merged by
//! time, and outputs are written a row group at a time. Memory: one window of each input, and the rows of all outputs that
//! are in no row group yet; both are bounded in bytes.
//!
//! A column keeps its kind if all inputs agree on it, so that numbers are not converted to text and back.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, MapArray};
use arrow::compute::{concat, interleave};
use quiver_types::Millis;
use quiver_types::tables::logs::millis_of;

use super::output::{begin_output, same_rows};
use super::plan::Plan;
use crate::core::{Core, Job};
use crate::error::{Context, Error, Result};
use crate::failpoint;
use crate::logs::rewrite::{Window, WindowReader, WindowSize};
use crate::memtable::log_streams::LiveStream;
use crate::part::logs::{GROUP_ROWS, GroupColumns, LogColumns, LogPartWriter, Optional, PartLogs, merged_columns};
use crate::part::{Part, PartMeta};

/// Total rows of the windows of all inputs.
const WINDOW_ROWS: usize = 256 * 1024;
/// Least bytes of a window. A window reads whole pages of its columns, so a smaller one would read them many times.
const WINDOW_BYTES_MIN: u64 = 256 << 10;

/// The memory of the windows of all inputs, and of the rows of all outputs before they are written: a quarter and three
/// eighths of that of a compaction. The rest is for the row group that is being encoded.
fn shares(memory_bytes: u64) -> (u64, usize) {
    (memory_bytes / 4, usize::try_from(memory_bytes / 8 * 3).unwrap_or(usize::MAX))
}

/// Merges the inputs of a plan. Returns the new parts, with files synced and keys pending.
pub(super) async fn merge(core: &Core, job: &Job, plan: &Plan, inputs: &[Arc<Part>]) -> Result<Vec<PartMeta>> {
    let mut sources = Vec::with_capacity(inputs.len());
    let mut all = Vec::with_capacity(inputs.len());
    for part in inputs {
        all.push(Arc::new(part.logs_uncached().await?));
    }
    let rows: u64 = inputs.iter().map(|p| p.meta.rows).sum();
    let known: Vec<(&PartMeta, &PartLogs)> = inputs.iter().map(|p| &p.meta).zip(all.iter().map(|l| &**l)).collect();
    let columns = merged_columns(&known, GROUP_ROWS);
    let with = Optional {
        severity: all.iter().any(|l| l.has.severity),
        observed: all.iter().any(|l| l.has.observed),
        overflow: columns.overflow,
    };
    let columns = Arc::new(columns.plan);
    let (windows_bytes, _) = shares(core.settings.compaction_memory_bytes());
    let window = WindowSize {
        rows: (WINDOW_ROWS / inputs.len().max(1)).clamp(2048, 32 * 1024),
        bytes: (windows_bytes / inputs.len().max(1) as u64).max(WINDOW_BYTES_MIN),
    };
    for (part, logs) in inputs.iter().zip(&all) {
        same_rows(part, "rows", part.meta.rows, logs.footer_rows())?;
        let reader = WindowReader::new(Arc::clone(part), Arc::clone(logs), Arc::clone(&columns), with.overflow, window);
        sources.push(Source::open(reader).await?);
    }
    let shape = Shape { columns, with };
    let mut outputs = Outputs::new(core, job, plan, inputs, &shape);
    let mut read = 0;
    while let Some(stream) = next_stream(&sources) {
        core.may_compact()?;
        read += merge_stream(&mut sources, &stream, &mut outputs).await?;
        failpoint::hit("compact.in-merge");
    }
    let outputs = outputs.finish(&sources)?;
    let written: u64 = outputs.iter().map(|o| o.rows).sum();
    if read != rows || written != rows {
        return Err(Error::internal(format!("a compaction of {rows} rows read {read} and wrote {written}")));
    }
    Ok(outputs)
}

/// Opens a part that was written, as a reader would; returns its number of rows.
pub(super) async fn confirm(part: &Part) -> Result<u64> {
    let logs = part.logs_uncached().await?;
    let of_streams: u64 = logs.streams.iter().flatten().map(|s| s.rows.end - s.rows.start).sum();
    same_rows(part, "rows of streams", logs.footer_rows(), of_streams)?;
    Ok(of_streams)
}

struct Shape {
    columns: Arc<LogColumns>,
    with: Optional,
}

/// An input: its current window, and the position of the next row in it.
struct Source {
    reader: WindowReader,
    window: Option<Window>,
    at: usize,
}

impl Source {
    async fn open(mut reader: WindowReader) -> Result<Self> {
        let window = reader.next().await?;
        Ok(Self { reader, window, at: 0 })
    }

    fn stream(&self) -> Option<&Arc<LiveStream>> {
        self.window.as_ref().map(|w| w.stream(self.at))
    }
}

fn next_stream(sources: &[Source]) -> Option<Arc<LiveStream>> {
    sources.iter().filter_map(Source::stream).min_by(|a, b| a.key().cmp(&b.key())).cloned()
}

/// Merges all rows of one stream.
async fn merge_stream(sources: &mut [Source], stream: &Arc<LiveStream>, outputs: &mut Outputs<'_>) -> Result<u64> {
    let mut merged = 0;
    loop {
        // Find the input with the earliest next row, and the time up to which it may continue before another input is
        // next.
        let mut first: Option<(i64, usize)> = None;
        let mut second = i64::MAX;
        for (at, source) in sources.iter().enumerate() {
            let Some(window) = source.window.as_ref().filter(|w| **w.stream(source.at) == **stream) else { continue };
            let time = window.time[source.at];
            match first {
                Some((best, _)) if time >= best => second = second.min(time),
                Some((best, _)) => {
                    second = second.min(best);
                    first = Some((time, at));
                }
                None => first = Some((time, at)),
            }
        }
        let Some((_, at)) = first else { return Ok(merged) };
        let source = &mut sources[at];
        let Some(window) = &source.window else { return Ok(merged) };
        let end = window.stream_end(source.at);
        let run = window.time[source.at..end].partition_point(|&t| t <= second).max(1);
        outputs.take(stream, at, window, source.at..source.at + run).await?;
        source.at += run;
        merged += run as u64;
        if source.at == window.len() {
            outputs.core.may_compact()?;
            outputs.copy_picked(sources)?;
            let source = &mut sources[at];
            // Before the next one is read.
            source.window = None;
            source.window = source.reader.next().await?;
            source.at = 0;
        }
    }
}

/// An output: rows picked from the current windows, and rows already copied from earlier ones.
struct Output {
    writer: LogPartWriter,
    picks: Vec<(u32, u32)>,
    time: Vec<i64>,
    streams: Vec<(Arc<LiveStream>, usize)>,
    severity: Vec<u8>,
    observed: Vec<i64>,
    /// For each column, then the overflow map: pieces to be concatenated.
    pieces: Vec<Vec<ArrayRef>>,
    bytes: usize,
}

/// The parts being written: one per time window, or one after the other.
struct Outputs<'a> {
    core: &'a Core,
    job: &'a Job,
    plan: &'a Plan,
    inputs: &'a [Arc<Part>],
    shape: &'a Shape,
    open: BTreeMap<Millis, Output>,
    rows_max: u64,
    /// Rows of all outputs are written when they take this much memory.
    pending_bytes: usize,
    done: Vec<PartMeta>,
}

impl<'a> Outputs<'a> {
    fn new(core: &'a Core, job: &'a Job, plan: &'a Plan, inputs: &'a [Arc<Part>], shape: &'a Shape) -> Self {
        let sum = |of: fn(&PartMeta) -> u64| inputs.iter().map(|p| of(&p.meta)).sum::<u64>().max(1);
        let most = plan.rows_max(core.settings.compaction.part_bytes, sum(|m| m.rows), sum(|m| m.bytes));
        let rows_max = most.max(GROUP_ROWS as u64);
        let (_, pending_bytes) = shares(core.settings.compaction_memory_bytes());
        Self { core, job, plan, inputs, shape, open: BTreeMap::new(), rows_max, pending_bytes, done: Vec::new() }
    }

    /// Takes rows from the current window of an input.
    async fn take(
        &mut self,
        stream: &Arc<LiveStream>,
        input: usize,
        window: &Window,
        rows: std::ops::Range<usize>,
    ) -> Result<()> {
        let mut at = rows.start;
        while at < rows.end {
            let (key, end) = match self.plan.window_ms {
                None => (0, rows.end),
                Some(length) => {
                    let key = millis_of(window.time[at]).div_euclid(length) * length;
                    let same = |t: &i64| millis_of(*t).div_euclid(length) * length == key;
                    (key, at + window.time[at..rows.end].iter().take_while(|t| same(t)).count())
                }
            };
            let output = self.output(key).await?;
            output.picks.extend((at..end).map(|row| (input as u32, row as u32)));
            output.time.extend_from_slice(&window.time[at..end]);
            match &window.severity {
                Some(severity) => output.severity.extend_from_slice(&severity[at..end]),
                None => output.severity.resize(output.time.len(), 0),
            }
            match &window.observed {
                Some(observed) => output.observed.extend_from_slice(&observed[at..end]),
                None => output.observed.resize(output.time.len(), 0),
            }
            match output.streams.last_mut() {
                Some(last) if *last.0 == **stream => last.1 += end - at,
                _ => output.streams.push((Arc::clone(stream), end - at)),
            }
            at = end;
        }
        Ok(())
    }

    async fn output(&mut self, window: Millis) -> Result<&mut Output> {
        if !self.open.contains_key(&window) {
            let spec = begin_output(self.core, self.job, self.plan, self.inputs, window).await?;
            let Shape { columns, with } = self.shape;
            let plan = LogColumns::clone(columns);
            let writer = LogPartWriter::new(&self.core.output.root, spec, plan, *with)?;
            let pieces = vec![Vec::new(); columns.columns.len() + usize::from(with.overflow)];
            let (picks, time, streams) = (Vec::new(), Vec::new(), Vec::new());
            let (severity, observed) = (Vec::new(), Vec::new());
            self.open.insert(window, Output { writer, picks, time, streams, severity, observed, pieces, bytes: 0 });
        }
        self.open.get_mut(&window).ok_or_else(|| Error::internal("an output that was just begun is gone"))
    }

    /// Copies the picked rows out of the windows before those are dropped, and writes full row groups.
    fn copy_picked(&mut self, sources: &[Source]) -> Result<()> {
        for output in self.open.values_mut() {
            output.copy_picked(sources)?;
            while output.copied() >= GROUP_ROWS {
                output.write(self.shape)?;
            }
        }
        while self.open.values().map(|output| output.bytes).sum::<usize>() >= self.pending_bytes {
            let Some(largest) = self.open.values_mut().max_by_key(|output| output.bytes) else { break };
            largest.write(self.shape)?;
        }
        if self.rows_max < u64::MAX && self.open.values().any(|o| o.writer.len() >= self.rows_max) {
            self.close()?;
        }
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        for (_, mut output) in std::mem::take(&mut self.open) {
            while output.copied() > 0 {
                output.write(self.shape)?;
            }
            self.done.push(output.writer.finish()?);
            failpoint::hit("compact.after-part");
        }
        Ok(())
    }

    fn finish(mut self, sources: &[Source]) -> Result<Vec<PartMeta>> {
        self.copy_picked(sources)?;
        self.close()?;
        Ok(self.done)
    }
}

impl Output {
    /// Number of rows that have been copied to `pieces`.
    fn copied(&self) -> usize {
        self.time.len() - self.picks.len()
    }

    fn copy_picked(&mut self, sources: &[Source]) -> Result<()> {
        if self.picks.is_empty() {
            return Ok(());
        }
        let mut used: Vec<u32> = self.picks.iter().map(|p| p.0).collect();
        used.sort_unstable();
        used.dedup();
        let windows: Vec<&Window> = used.iter().filter_map(|&s| sources[s as usize].window.as_ref()).collect();
        if windows.len() != used.len() {
            return Err(Error::internal("rows of a window that is gone"));
        }
        let place = |&(source, row): &(u32, u32)| (used.partition_point(|&s| s < source), row as usize);
        let places: Vec<(usize, usize)> = self.picks.iter().map(place).collect();
        for (at, pieces) in self.pieces.iter_mut().enumerate() {
            let arrays: Vec<&dyn Array> = windows.iter().map(|w| w.columns[at].as_ref()).collect();
            let (first, last) = (places[0], places[places.len() - 1]);
            let piece = if arrays.len() == 1 && last.1 - first.1 + 1 == places.len() {
                arrays[0].slice(first.1, places.len())
            } else {
                interleave(&arrays, &places).internal("cannot merge a column of logs")?
            };
            self.bytes += bytes_of(&piece);
            pieces.push(piece);
        }
        self.picks.clear();
        Ok(())
    }

    /// Writes one row group of the copied rows.
    fn write(&mut self, shape: &Shape) -> Result<()> {
        let all = self.copied();
        let rows = all.min(GROUP_ROWS);
        let mut columns = Vec::with_capacity(self.pieces.len());
        for pieces in &mut self.pieces {
            let now = cut(pieces, rows);
            let arrays: Vec<&dyn Array> = now.iter().map(AsRef::as_ref).collect();
            columns.push(match &now[..] {
                [only] => Arc::clone(only),
                _ => concat(&arrays).internal("cannot join a column of logs")?,
            });
        }
        let overflow: Option<MapArray> = if shape.with.overflow {
            let array = columns.pop().ok_or_else(|| Error::internal("the overflow map is gone"))?;
            Some(array.as_map().clone())
        } else {
            None
        };
        let later = self.time.split_off(rows);
        let time = std::mem::replace(&mut self.time, later);
        let later = self.severity.split_off(rows);
        let severity = std::mem::replace(&mut self.severity, later);
        let later = self.observed.split_off(rows);
        let observed = std::mem::replace(&mut self.observed, later);
        let mut streams = Vec::new();
        let mut left = rows;
        while left > 0 {
            let Some(first) = self.streams.first_mut() else { break };
            let now = first.1.min(left);
            streams.push((Arc::clone(&first.0), now));
            first.1 -= now;
            left -= now;
            if first.1 == 0 {
                self.streams.remove(0);
            }
        }
        self.bytes = if rows < all { self.bytes * (all - rows) / all } else { 0 };
        let severity = if shape.with.severity { severity } else { Vec::new() };
        let observed = if shape.with.observed { observed } else { Vec::new() };
        self.writer.write(GroupColumns { time, streams, severity, observed, columns, overflow })
    }
}

/// Takes rows off the front of the pieces. The rest must not be a slice of all pieces concatenated, as that would keep
/// the text of everything ever written in memory.
fn cut(pieces: &mut Vec<ArrayRef>, rows: usize) -> Vec<ArrayRef> {
    let mut left = rows;
    let mut now = Vec::new();
    let mut later = Vec::new();
    for piece in pieces.drain(..) {
        let taken = piece.len().min(left);
        left -= taken;
        if taken == piece.len() {
            now.push(piece);
        } else {
            if taken > 0 {
                now.push(piece.slice(0, taken));
            }
            later.push(piece.slice(taken, piece.len() - taken));
        }
    }
    *pieces = later;
    now
}

/// Memory of an array's values, without buffers it shares with others.
fn bytes_of(array: &ArrayRef) -> usize {
    match array.as_string_view_opt() {
        Some(texts) => texts.total_buffer_bytes_used() + 16 * texts.len(),
        None => array.to_data().get_slice_memory_size().unwrap_or(0),
    }
}

/// Number of rows according to the footer.
impl PartLogs {
    fn footer_rows(&self) -> u64 {
        self.group_rows(self.groups().saturating_sub(1)).end
    }
}
