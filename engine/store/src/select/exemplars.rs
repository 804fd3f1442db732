//! Exemplars of selected series. As there are few, the whole result is held in memory at once.

use futures::{StreamExt, TryStreamExt};
use quiver_types::source::SeriesExemplars;
use quiver_types::{LabelSet, MillisRange, ReadStats, Result, SeriesTable};

use super::matcher_resolution::PARTS_OPENED_AT_ONCE;
use super::selection::{PartRows, Selection};
use crate::error::leave_out;
use crate::part::SeriesRows;
use crate::series_run::{RunExemplar, normalize_exemplars};

/// Estimated memory of an exemplar with its labels, while it is read and listed.
const EXEMPLAR_BYTES: usize = 384;

/// The exemplars within a range, by series in series order; series without any are left out.
pub(crate) async fn read(
    table: &SeriesTable,
    selection: &Selection,
    range: MillisRange,
    stats: &ReadStats,
) -> Result<Vec<SeriesExemplars>> {
    stats.take(table.len() * size_of::<Vec<RunExemplar>>())?;
    let mut by_row: Vec<Vec<RunExemplar>> = vec![Vec::new(); table.len()];
    let read_part = async |n: usize| {
        let source: &PartRows = &selection.parts[n];
        let places = source.rows.iter().zip(source.numbers.iter().map(|&number| source.series.exemplars(number)));
        let (rows, wanted): (Vec<u32>, Vec<SeriesRows>) = places.filter(|(_, wanted)| wanted.rows > 0).unzip();
        if wanted.is_empty() {
            return Ok((rows, Vec::new()));
        }
        stats.check()?;
        stats.take(wanted.iter().map(|rows| rows.rows as usize).sum::<usize>() * EXEMPLAR_BYTES)?;
        match source.part.read_exemplars(&wanted, range, stats).await {
            Ok(found) => Ok((rows, found)),
            Err(e) => leave_out(stats, e).map(|()| (Vec::new(), Vec::new())),
        }
    };
    let mut reads = futures::stream::iter(0..selection.parts.len()).map(read_part).buffered(PARTS_OPENED_AT_ONCE);
    while let Some((rows, found)) = reads.try_next().await? {
        for (row, exemplars) in rows.into_iter().zip(found) {
            by_row[row as usize].extend(exemplars);
        }
    }
    for live in &selection.live {
        for (&row, &slot) in live.rows.iter().zip(&live.slots) {
            let exemplars = live.generation.copy_exemplars(slot, range, selection.seq);
            stats.take(exemplars.len() * EXEMPLAR_BYTES)?;
            by_row[row as usize].extend(exemplars);
        }
    }
    let mut out = Vec::new();
    for (row, mut exemplars) in by_row.into_iter().enumerate().filter(|(_, exemplars)| !exemplars.is_empty()) {
        normalize_exemplars(&mut exemplars);
        let labels = LabelSet::from_pairs(table.labels(row));
        out.push(SeriesExemplars {
            labels,
            exemplars: exemplars.into_iter().map(|e| (e.ts, e.value, e.labels)).collect(),
        });
    }
    Ok(out)
}
