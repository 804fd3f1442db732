//! The file `.rollup` of a part of spans: counts per hour and minute, so that lists and the service graph need not read
//! the rows.

use std::ops::Range;

use arrow::array::RecordBatch;
use quiver_types::ReadStats;
use quiver_types::scan::ScanMemory;
use quiver_types::spans::{RollupKind, RollupRequest, RollupRow, rollup_batch, rollup_schema};

use crate::error::{Context, Error, Result};
use crate::part::FileMeta;
use crate::part::byte_ranges::{Purpose, Selection};
use crate::part::file::{ColumnEncodings, Draft, PartFile, codec, properties};
use crate::part::footer::damaged;
use crate::part::reader::Part;

/// Kind of the file, and its extension.
pub(super) const FILE: &str = "rollup";
/// Footer key: first row of each kind and hour, as JSON `[[kind, hour, row], …]`; hours since 1970.
const HOURS: &str = "quiver.hours";
/// Rows per page: few, because the ends of a time window need only some minutes of an hour.
const PAGE_ROWS: usize = 1024;
/// Estimated memory of a row when it is read.
const READ_ROW_BYTES: usize = 192;
/// Rows that are converted to columns at once.
const CHUNK_ROWS: usize = 16 * 1024;

/// Row group of a kind: kinds that are read together share one, and have equal numbers here.
fn group(kind: RollupKind) -> u8 {
    match kind {
        RollupKind::NodeHour | RollupKind::EdgeHour => 0,
        RollupKind::NodeMinute | RollupKind::EdgeMinute => 1,
        RollupKind::Open => 2,
        RollupKind::Operation => 3,
        RollupKind::Instance => 4,
    }
}

/// Writes the file; `rows` must be sorted as by [`quiver_types::spans::RollupBuilder::rows`].
pub(super) fn write(draft: &mut Draft, rows: &[RollupRow], range: (i64, i64)) -> Result<FileMeta> {
    let p = properties()
        .set_compression(codec(crate::part::PartCompression::Compacted))
        .set_data_page_row_count_limit(PAGE_ROWS)
        .set_write_batch_size(PAGE_ROWS)
        .delta(&["minute"])
        .delta(&["spans"])
        .delta(&["errors"])
        .delta(&["first"])
        .delta(&["last"]);
    let mut file = PartFile::create(draft, FILE, rollup_schema(), p.build())?;
    let mut hours: Vec<(u8, i64, u64)> = Vec::new();
    for of_group in rows.chunk_by(|a, b| group(a.kind) == group(b.kind)) {
        for chunk in of_group.chunks(CHUNK_ROWS) {
            for (row, at) in chunk.iter().zip(file.rows()..) {
                let place = (row.kind as u8, row.minute.div_euclid(60));
                if hours.last().is_none_or(|last| (last.0, last.1) != place) {
                    hours.push((place.0, place.1, at));
                }
            }
            file.write(&rollup_batch(chunk.iter())?)?;
        }
        file.end_group()?;
    }
    file.put(HOURS, serde_json::to_string(&hours).internal("cannot write the hours of a roll-up")?);
    file.finish(&draft.spec, range, &["what", "minute", "service", "peer"])
}

/// The rows of a kind whose hours lie in a closed range.
fn rows_of(hours: &[(u8, i64, u64)], total: u64, kind: RollupKind, range: (i64, i64)) -> Range<u64> {
    let from = hours.partition_point(|h| (h.0, h.1) < (kind as u8, range.0));
    let to = hours.partition_point(|h| (h.0, h.1) <= (kind as u8, range.1));
    let row = |at: usize| hours.get(at).map_or(total, |h| h.2);
    row(from)..row(to).max(row(from))
}

impl Part {
    /// Reads the whole roll-up of the part, for a compaction.
    pub(crate) async fn whole_rollup(&self, stats: &ReadStats) -> Result<Vec<RecordBatch>> {
        let file = self.meta.file(FILE).ok_or_else(|| Error::internal("a part of spans lacks its roll-up"))?;
        let footer = self.footer(file, stats).await?;
        let all = 0..footer.rows();
        self.read_batches(file, &footer, Selection::of(std::slice::from_ref(&all), CHUNK_ROWS), Purpose::Job, stats)
            .await
    }

    /// Reads at least the rows of the roll-up that a request needs. Their estimated memory is reserved before they are
    /// read.
    pub(crate) async fn rollup(
        &self,
        request: &RollupRequest,
        memory: &dyn ScanMemory,
        stats: &ReadStats,
    ) -> Result<Vec<RecordBatch>> {
        let file = self.meta.file(FILE).ok_or_else(|| Error::internal("a part of spans lacks its roll-up"))?;
        let footer = self.footer(file, stats).await?;
        let hours = footer.value(HOURS).and_then(|text| serde_json::from_str::<Vec<(u8, i64, u64)>>(text).ok());
        let hours = hours.ok_or_else(|| damaged(&file.key, "its hours cannot be read"))?;
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for (kind, minutes) in request.ranges() {
            let range = rows_of(&hours, footer.rows(), kind, (minutes.0.div_euclid(60), minutes.1.div_euclid(60)));
            if !range.is_empty() {
                ranges.push(range);
            }
        }
        ranges.sort_unstable_by_key(|r| r.start);
        ranges.dedup();
        if ranges.is_empty() {
            return Ok(Vec::new());
        }
        let rows: u64 = ranges.iter().map(|range| range.end - range.start).sum();
        memory.try_resize(rows as usize * READ_ROW_BYTES)?;
        self.read_batches(file, &footer, Selection::of(&ranges, CHUNK_ROWS), Purpose::Query, stats).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_kind_are_found_by_hours() {
        let (node, edge, minute) =
            (RollupKind::NodeHour as u8, RollupKind::EdgeHour as u8, RollupKind::NodeMinute as u8);
        let hours = [(node, -1, 0), (node, 3, 4), (node, 5, 6), (edge, 3, 10), (minute, 3, 11), (minute, 4, 20)];
        let check = |kind: RollupKind, range: (i64, i64), expected: Range<u64>| {
            assert_eq!(rows_of(&hours, 30, kind, range), expected, "{kind:?} {range:?}");
        };
        check(RollupKind::NodeHour, (-1, 5), 0..10);
        check(RollupKind::NodeHour, (3, 3), 4..6);
        check(RollupKind::NodeHour, (3, 4), 4..6);
        check(RollupKind::NodeHour, (i64::MIN, i64::MAX), 0..10);
        check(RollupKind::EdgeHour, (i64::MIN, i64::MAX), 10..11);
        check(RollupKind::NodeMinute, (4, 9), 20..30);
        for (kind, range) in [
            (RollupKind::NodeHour, (0, 2)),
            (RollupKind::NodeHour, (6, 9)),
            (RollupKind::NodeHour, (5, 3)),
            (RollupKind::EdgeHour, (4, 9)),
            (RollupKind::EdgeMinute, (i64::MIN, i64::MAX)),
            (RollupKind::Instance, (3, 3)),
        ] {
            assert!(rows_of(&hours, 30, kind, range).is_empty(), "{kind:?} {range:?}");
        }
        assert_eq!(rows_of(&[], 0, RollupKind::Open, (0, 9)), 0..0);
    }

    /// Breaks if kinds are not written in order: hours are found by binary search.
    #[test]
    fn kinds_that_are_read_together_lie_together() {
        let groups = RollupKind::ALL.map(group);
        assert!(groups.is_sorted(), "{groups:?}");
        assert!(RollupKind::ALL.map(|kind| kind as u8).is_sorted());
        assert_eq!(group(RollupKind::NodeHour), group(RollupKind::EdgeHour));
        assert_ne!(group(RollupKind::EdgeHour), group(RollupKind::NodeMinute));
    }
}
