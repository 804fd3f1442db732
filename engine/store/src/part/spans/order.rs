//! The order of the rows of a part of spans: by minute, then trace, then start. Rows of several parts that are merged a piece
//! at a time are cut where no span lies on both sides.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, AsArray, FixedSizeBinaryArray};
use arrow::datatypes::TimestampNanosecondType;
use quiver_types::ReadStats;
use quiver_types::tables::spans::minute_of;

use super::reader::{SpanRead, Texts};
use crate::error::{Error, Result};
use crate::part::byte_ranges::Purpose;
use crate::part::reader::Part;

/// What rows are ordered by. Equal ones may be reports of the same span, so that no cut goes between them.
type OrderKey = (i64, [u8; 16], i64);

/// The keys of consecutive rows of a part.
#[derive(Debug)]
pub(crate) struct SpanOrder {
    /// The first row.
    first: u64,
    traces: Vec<[u8; 16]>,
    starts: Vec<i64>,
}

impl SpanOrder {
    fn key(&self, row: u64) -> OrderKey {
        let at = (row - self.first) as usize;
        (minute_of(self.starts[at]), self.traces[at], self.starts[at])
    }

    /// The first of the rows whose key is not below (or, with `above`, is above) this one.
    fn place(&self, rows: &Range<u64>, key: &OrderKey, above: bool) -> u64 {
        let (mut low, mut high) = (rows.start, rows.end);
        while low < high {
            let middle = low + (high - low) / 2;
            let own = self.key(middle);
            if own < *key || (above && own == *key) { low = middle + 1 } else { high = middle }
        }
        low
    }

    /// Cuts rows of several parts in two, near the middle of the longest range; `None`: all have the same key.
    pub(crate) fn cut(orders: &[Self], rows: &[Range<u64>]) -> Option<[Vec<Range<u64>>; 2]> {
        let (longest, range) =
            rows.iter().enumerate().max_by_key(|(_, range)| range.end.saturating_sub(range.start))?;
        if range.is_empty() {
            return None;
        }
        let key = orders[longest].key(range.start + (range.end - range.start) / 2);
        [false, true].into_iter().find_map(|above| {
            let cut = |(order, rows): (&Self, &Range<u64>)| order.place(rows, &key, above);
            let cuts: Vec<u64> = orders.iter().zip(rows).map(cut).collect();
            let before: Vec<Range<u64>> = rows.iter().zip(&cuts).map(|(rows, cut)| rows.start..*cut).collect();
            let behind: Vec<Range<u64>> = rows.iter().zip(&cuts).map(|(rows, cut)| *cut..rows.end).collect();
            let any = |ranges: &[Range<u64>]| ranges.iter().any(|range| !range.is_empty());
            (any(&before) && any(&behind)).then_some([before, behind])
        })
    }
}

impl Part {
    /// Reads what a range of rows of the table `spans` is ordered by.
    pub(crate) async fn span_order(&self, rows: &Range<u64>, stats: &ReadStats) -> Result<SpanOrder> {
        let count = (rows.end - rows.start) as usize;
        let (mut traces, mut starts) = (Vec::with_capacity(count), Vec::with_capacity(count));
        if count > 0 {
            let (rows, columns) = (std::slice::from_ref(rows), ["trace_id", "start_time"]);
            for read in self
                .span_rows_as(rows, &columns, SpanRead { purpose: Purpose::Job, texts: Texts::Plain }, stats)
                .await?
            {
                let column = |name: &str| read.0.column_by_name(name).map(Arc::clone);
                let (Some(ids), Some(times)) = (column("trace_id"), column("start_time")) else {
                    return Err(Error::internal("a part of spans lacks its ids or times"));
                };
                let ids: &FixedSizeBinaryArray = ids.as_fixed_size_binary();
                traces.extend((0..ids.len()).map(|row| <[u8; 16]>::try_from(ids.value(row)).unwrap_or_default()));
                starts.extend_from_slice(times.as_primitive::<TimestampNanosecondType>().values());
            }
        }
        if traces.len() != count || starts.len() != count {
            return Err(Error::internal(format!("part `{}` gave other rows than it was asked for", self.meta.id)));
        }
        Ok(SpanOrder { first: rows.start, traces, starts })
    }

    /// Estimates the bytes of a range of rows of the table `spans` once they are read.
    pub(crate) async fn span_bytes(&self, rows: &Range<u64>, stats: &ReadStats) -> Result<u64> {
        let file = self.meta.file("rows").ok_or_else(|| Error::internal("a part of spans lacks its rows"))?;
        Ok(self.footer(file, stats).await?.whole_bytes(rows))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows from a number on, by minute, trace and nanosecond of the minute.
    fn order(first: u64, rows: &[(i64, u8, i64)]) -> SpanOrder {
        let start = |(minute, _, nanos): &(i64, u8, i64)| minute * 60_000_000_000 + nanos;
        SpanOrder {
            first,
            traces: rows.iter().map(|row| [row.1; 16]).collect(),
            starts: rows.iter().map(start).collect(),
        }
    }

    #[test]
    fn rows_of_parts_are_cut_at_the_same_span() {
        let orders = [
            order(100, &[(1, 1, 5), (1, 2, 1), (1, 2, 3), (1, 9, 0), (2, 0, 0)]),
            order(7, &[(1, 2, 1), (1, 2, 2), (1, 2, 3)]),
        ];
        let cut = |rows: [Range<u64>; 2]| SpanOrder::cut(&orders, &rows);
        assert_eq!(cut([100..105, 7..10]), Some([vec![100..102, 7..9], vec![102..105, 9..10]]));
        assert_eq!(cut([102..105, 9..10]), Some([vec![102..103, 9..10], vec![103..105, 10..10]]));
        assert_eq!(cut([101..103, 7..8]), Some([vec![101..102, 7..8], vec![102..103, 8..8]]));
        // The middle one is the first of all: cut behind it.
        assert_eq!(cut([102..103, 8..9]), Some([vec![102..102, 8..9], vec![102..103, 9..9]]));
        assert_eq!(cut([102..103, 9..10]), None, "the same span");
        assert_eq!(cut([102..102, 9..9]), None);
        assert_eq!(cut([104..105, 10..10]), None, "a single row");
    }
}
