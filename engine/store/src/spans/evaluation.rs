//! Evaluates a filter on a set of rows, by columns where possible and cheap tests first.

use arrow::array::{BooleanArray, FixedSizeBinaryArray};
use arrow::buffer::{BooleanBuffer, Buffer};
use quiver_types::spans::{AttributeTest, Place, SpanFilter, TextTest};
use quiver_types::{Access, ReadStats};

use crate::error::Result;

/// How much is done between two checks whether the query goes on, in tests of a row: some hundredths of a second.
const WORK_MAX: usize = 1 << 20;

/// Text columns that filters examine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextColumn {
    /// Service; empty if there is none.
    Service,
    /// Name of the span.
    Name,
    /// Status message.
    Message,
    /// Name of the scope.
    ScopeName,
    /// Version of the scope.
    ScopeVersion,
}

/// Rows that a filter is evaluated on.
pub(crate) trait SpanSet {
    fn len(&self) -> usize;
    fn traces(&self) -> Option<&FixedSizeBinaryArray>;
    /// Start and end time.
    fn times(&self, row: usize) -> (i64, i64);
    fn duration(&self, row: usize) -> i64;
    /// The durations of all rows, if they are stored contiguously.
    fn durations(&self) -> Option<&[i64]> {
        None
    }
    fn received(&self, row: usize) -> i64;
    fn kind(&self, row: usize) -> u8;
    fn status(&self, row: usize) -> u8;
    fn is_root(&self, row: usize) -> bool;
    fn event_name(&self, row: usize, test: &TextTest) -> bool;
    /// Clears `keep` for rows whose text fails the test.
    fn text(&self, which: TextColumn, keep: &mut [bool], test: &dyn Fn(&str) -> bool);
    /// Quick check whether any row may have an attribute with this key.
    fn may_have(&self, _: Place, _: &str) -> bool {
        true
    }
    /// Clears `keep` for rows that have no attribute which passes the test.
    fn attribute(&self, place: Place, key: &str, test: &AttributeTest, keep: &mut [bool]);
}

/// The rows that match a filter and that the caller may see.
///
/// # Errors
/// Timeout, Cancelled: the query has ended.
pub(crate) fn matching(
    set: &impl SpanSet,
    filter: &SpanFilter,
    access: &Access,
    stats: &ReadStats,
) -> Result<Vec<bool>> {
    matching_of(vec![true; set.len()], set, filter, access, stats)
}

/// Whether each row passes a filter, of rows that the caller may see.
///
/// # Errors
/// Timeout, Cancelled: the query has ended.
pub(crate) fn passing(set: &impl SpanSet, filter: &SpanFilter, stats: &ReadStats) -> Result<BooleanArray> {
    let mut keep = vec![true; set.len()];
    narrow(set, filter, &mut keep, &mut Pace { stats, work: 0 })?;
    Ok(mask(&keep))
}

/// Like `matching`, starting from the rows in `keep`.
pub(crate) fn matching_of(
    mut keep: Vec<bool>,
    set: &impl SpanSet,
    filter: &SpanFilter,
    access: &Access,
    stats: &ReadStats,
) -> Result<Vec<bool>> {
    if !access.is_full() {
        set.text(TextColumn::Service, &mut keep, &|service| access.allows(service));
    }
    narrow(set, filter, &mut keep, &mut Pace { stats, work: 0 })?;
    Ok(keep)
}

/// Counts what is done for a filter of hundreds of conditions, which may take seconds for a batch.
struct Pace<'s> {
    stats: &'s ReadStats,
    /// Tests of a row since the last check.
    work: usize,
}

impl Pace<'_> {
    /// Counts a condition on some rows before it is tested.
    fn count(&mut self, filter: &SpanFilter, rows: usize) -> Result<()> {
        self.work = self.work.saturating_add(rows.saturating_mul(1 + usize::from(cost(filter))));
        if self.work < WORK_MAX {
            return Ok(());
        }
        self.work = 0;
        self.stats.check()
    }
}

/// Converts booleans to a bitmap, eight at a time.
pub(crate) fn mask(keep: &[bool]) -> BooleanArray {
    let (eights, rest) = keep.as_chunks::<8>();
    let mut bytes = Vec::with_capacity(keep.len().div_ceil(8));
    bytes.extend(eights.iter().map(|eight| bits_of(*eight)));
    if !rest.is_empty() {
        let mut last = [false; 8];
        last[..rest.len()].copy_from_slice(rest);
        bytes.push(bits_of(last));
    }
    BooleanArray::new(BooleanBuffer::new(Buffer::from_vec(bytes), 0, keep.len()), None)
}

/// Packs booleans into a byte, the first one in the lowest bit. Each bit of the factor moves the lowest bit of one byte
/// to its position in the highest byte; no two of them collide.
fn bits_of(eight: [bool; 8]) -> u8 {
    (u64::from_le_bytes(eight.map(u8::from)).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}

/// Relative cost of a filter; cheap ones are evaluated first.
fn cost(filter: &SpanFilter) -> u8 {
    match filter {
        SpanFilter::Attribute { place: None, .. } => 4,
        SpanFilter::Attribute { .. } | SpanFilter::EventName(_) => 3,
        SpanFilter::And(_) | SpanFilter::Or(_) | SpanFilter::Not(_) => 2,
        SpanFilter::Service(_) | SpanFilter::Name(_) | SpanFilter::Message(_) => 1,
        _ => 0,
    }
}

/// Applies a more expensive test, only to rows that are still kept.
fn by_row(keep: &mut [bool], test: impl Fn(usize) -> bool) {
    for (i, keep) in keep.iter_mut().enumerate().filter(|(_, k)| **k) {
        *keep = test(i);
    }
}

/// Applies a cheap test to all rows: a branch on whether each row is still kept would be mispredicted more often than
/// it helps.
fn at_once(keep: &mut [bool], test: impl Fn(usize) -> bool) {
    for (i, keep) in keep.iter_mut().enumerate() {
        *keep &= test(i);
    }
}

fn narrow(set: &impl SpanSet, filter: &SpanFilter, keep: &mut [bool], pace: &mut Pace<'_>) -> Result<()> {
    pace.count(filter, keep.len())?;
    match filter {
        SpanFilter::All | SpanFilter::WithoutRepeats => {}
        SpanFilter::None => keep.fill(false),
        SpanFilter::And(all) => {
            let mut all: Vec<&SpanFilter> = all.iter().collect();
            all.sort_by_key(|f| cost(f));
            for one in all {
                if !keep.contains(&true) {
                    return Ok(());
                }
                narrow(set, one, keep, pace)?;
            }
        }
        SpanFilter::Or(any) => either(any.len(), keep, |n, keep| narrow(set, &any[n], keep, pace))?,
        SpanFilter::Not(one) => {
            let mut not = keep.to_vec();
            narrow(set, one, &mut not, pace)?;
            keep.iter_mut().zip(not).for_each(|(keep, not)| *keep &= !not);
        }
        SpanFilter::Traces(ids) => match set.traces() {
            Some(traces) => by_row(keep, |i| {
                let id = traces.value(i);
                ids.binary_search_by(|known| known.as_slice().cmp(id)).is_ok()
            }),
            None => keep.fill(false),
        },
        SpanFilter::Starts(min, max) => at_once(keep, |i| (*min..=*max).contains(&set.times(i).0)),
        SpanFilter::Overlaps(min, max) => at_once(keep, |i| {
            let (start, end) = set.times(i);
            start <= *max && end >= *min
        }),
        SpanFilter::Duration(min, max) => match set.durations() {
            // This loop is vectorized.
            Some(durations) => {
                for (keep, duration) in keep.iter_mut().zip(durations) {
                    *keep &= (*min..=*max).contains(duration);
                }
            }
            None => at_once(keep, |i| (*min..=*max).contains(&set.duration(i))),
        },
        SpanFilter::Kinds(kinds) => {
            // A lookup table, because searching the list would cost more than everything else.
            let mut wanted = [false; 256];
            for kind in kinds {
                wanted[usize::from(*kind)] = true;
            }
            at_once(keep, |i| wanted[usize::from(set.kind(i))]);
        }
        SpanFilter::Status(status) => at_once(keep, |i| set.status(i) == *status),
        SpanFilter::Root => by_row(keep, |i| set.is_root(i)),
        SpanFilter::Received(max) => at_once(keep, |i| set.received(i) <= *max),
        SpanFilter::EventName(test) => by_row(keep, |i| set.event_name(i, test)),
        SpanFilter::Service(test) => {
            let shown = |text: &str| test.matches(if text.is_empty() { "unknown_service" } else { text });
            set.text(TextColumn::Service, keep, &shown);
        }
        SpanFilter::Name(test) => set.text(TextColumn::Name, keep, &|text| test.matches(text)),
        SpanFilter::Message(test) => set.text(TextColumn::Message, keep, &|text| test.matches(text)),
        SpanFilter::ScopeName(test) => set.text(TextColumn::ScopeName, keep, &|text| test.matches(text)),
        SpanFilter::ScopeVersion(test) => set.text(TextColumn::ScopeVersion, keep, &|text| test.matches(text)),
        SpanFilter::Attribute { place: Some(place), key, test } => set.attribute(*place, key, test, keep),
        SpanFilter::Attribute { place: None, key, test } => {
            // Skip places that have nothing: going over all rows once more for each would cost more than the test.
            let places: Vec<Place> = Place::ALL.into_iter().filter(|place| set.may_have(*place, key)).collect();
            match places.as_slice() {
                [one] => set.attribute(*one, key, test, keep),
                places => either(places.len(), keep, |n, keep| {
                    set.attribute(places[n], key, test, keep);
                    Ok(())
                })?,
            }
        }
    }
    Ok(())
}

/// Keeps the rows that pass any of several tests; each test only sees rows that the previous ones rejected.
fn either(tests: usize, keep: &mut [bool], mut narrow: impl FnMut(usize, &mut [bool]) -> Result<()>) -> Result<()> {
    let mut taken = vec![false; keep.len()];
    for n in 0..tests {
        let mut open: Vec<bool> = keep.iter().zip(&taken).map(|(k, t)| *k && !t).collect();
        narrow(n, &mut open)?;
        taken.iter_mut().zip(open).for_each(|(t, o)| *t |= o);
    }
    keep.copy_from_slice(&taken);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_stand_where_their_rows_do() {
        for rows in [0, 1, 7, 8, 9, 64, 77] {
            let keep: Vec<bool> = (0..rows).map(|row| row * row % 5 == 1).collect();
            assert_eq!(mask(&keep).values().iter().collect::<Vec<_>>(), keep);
        }
        for byte in 0..=u8::MAX {
            assert_eq!(bits_of(std::array::from_fn(|at| (byte >> at) & 1 == 1)), byte);
        }
    }
}
