//! Cuts the rows of a step into pieces that fit into the memory of a compaction. Steps are counted in rows and do not cut a
//! minute, but a row may have megabytes of attributes, and a minute any number of rows.

use std::ops::Range;
use std::sync::Arc;

use quiver_types::ReadStats;

use crate::error::Result;
use crate::part::Part;
use crate::part::spans::SpanOrder;

/// Most bytes of the rows that are merged at once, of the memory of a compaction. They are there several times: as columns
/// of the parts and of the output, and encoded.
pub(in crate::compact) fn piece_bytes(memory_bytes: u64) -> u64 {
    memory_bytes / 8
}

/// Bytes at which a row group is ended, given the largest piece.
pub(in crate::compact) fn group_bytes(piece_bytes: u64) -> usize {
    usize::try_from(piece_bytes.saturating_mul(2)).unwrap_or(usize::MAX)
}

/// The ranges of rows of the parts, cut so that those of a piece have few bytes, unless they are reports of one span. No span
/// is in two pieces, and pieces follow each other in the order of rows.
pub(crate) async fn pieces(
    parts: &[Arc<Part>],
    rows: Vec<Range<u64>>,
    bytes_max: u64,
    stats: &ReadStats,
) -> Result<Vec<Vec<Range<u64>>>> {
    if bytes_of(parts, &rows, stats).await? <= bytes_max {
        return Ok(vec![rows]);
    }
    let mut orders = Vec::with_capacity(parts.len());
    for (part, rows) in parts.iter().zip(&rows) {
        orders.push(part.span_order(rows, stats).await?);
    }
    let (mut out, mut rest) = (Vec::new(), vec![rows]);
    while let Some(rows) = rest.pop() {
        if bytes_of(parts, &rows, stats).await? > bytes_max
            && let Some([before, behind]) = SpanOrder::cut(&orders, &rows)
        {
            rest.extend([behind, before]);
        } else {
            out.push(rows);
        }
    }
    Ok(out)
}

async fn bytes_of(parts: &[Arc<Part>], rows: &[Range<u64>], stats: &ReadStats) -> Result<u64> {
    let mut sum = 0;
    for (part, rows) in parts.iter().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
        sum += part.span_bytes(rows, stats).await?;
    }
    Ok(sum)
}
