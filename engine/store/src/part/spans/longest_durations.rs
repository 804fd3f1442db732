//! The longest duration of each service in each block of rows, so that a search for slow spans reads only pages that
//! have some, and a search for a rare service only pages where it occurs.

use std::ops::Range;

use arrow::array::{Array, StringArray};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::Access;
use quiver_types::spans::{SpanFilter, TextTest};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Result};

/// Footer key of `.index`: see [`Slowest`], as JSON.
pub(super) const SLOWEST: &str = "quiver.slowest";
/// Rows per block, the same as per page.
const BLOCK_ROWS: usize = 2048;
/// Blocks with more services than this are not recorded.
const SERVICES_MAX: usize = 64;
/// Maximum number of numbered services; more than a part may list. Blocks with others are not recorded.
const NUMBERS_MAX: usize = 2048;

/// First row, number of rows, and for each service its number and longest duration in nanoseconds.
type Block = (u64, u64, Vec<(u32, i64)>);

/// Services by number, and blocks in ascending order. Nothing is known about rows outside the blocks.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Slowest(Vec<String>, Vec<Block>);

impl Slowest {
    /// Parses the value of [`SLOWEST`]; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let read: Self = serde_json::from_str(text).ok()?;
        let known = |block: &Block| {
            block.0.checked_add(block.1).is_some() && block.2.iter().all(|(n, _)| (*n as usize) < read.0.len())
        };
        read.1.iter().all(known).then_some(read)
    }

    /// Approximate size in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        let blocks = self.1.iter().map(|b| size_of::<Block>() + b.2.len() * 16).sum::<usize>();
        blocks + self.0.iter().map(|name| name.len() + 24).sum::<usize>()
    }

    /// Ascending row ranges in which no row both matches a filter and may be seen by the user.
    pub(crate) fn excluded(
        &self,
        filter: &SpanFilter,
        services: Option<&[&TextTest]>,
        access: &Access,
    ) -> Vec<Range<u64>> {
        let min = duration_min(filter);
        if services.is_none() && min == i64::MIN && access.is_full() {
            return Vec::new();
        }
        let passes = |name: &String| {
            let shown = if name.is_empty() { "unknown_service" } else { name };
            access.allows(name) && services.is_none_or(|tests| tests.iter().any(|test| test.matches(shown)))
        };
        let wanted: Vec<bool> = self.0.iter().map(passes).collect();
        let out = |b: &&Block| !b.2.iter().any(|(n, longest)| *longest >= min && wanted[*n as usize]);
        self.1.iter().filter(out).map(|b| b.0..b.0 + b.1).collect()
    }
}

/// A lower bound for the duration of matching spans.
fn duration_min(filter: &SpanFilter) -> i64 {
    match filter {
        SpanFilter::Duration(min, _) => *min,
        SpanFilter::And(all) => all.iter().map(duration_min).max().unwrap_or(i64::MIN),
        _ => i64::MIN,
    }
}

/// Collects the durations of rows as they are written.
#[derive(Debug, Default)]
pub(super) struct SlowestWriter {
    numbers: HashMap<String, u32, FixedState>,
    found: Slowest,
}

impl SlowestWriter {
    /// The number of a service; `None` if there are too many.
    fn number(&mut self, service: &str) -> Option<u32> {
        if let Some(&known) = self.numbers.get(service) {
            return Some(known);
        }
        let next = self.found.0.len();
        (next < NUMBERS_MAX).then(|| {
            self.found.0.push(service.to_owned());
            self.numbers.insert(service.to_owned(), next as u32);
            next as u32
        })
    }

    /// Adds rows. `of` gives for each row the index of its service in `services`; `first` is the first row's number in
    /// the file.
    pub(super) fn note(&mut self, services: &StringArray, of: &[u32], durations: &[i64], first: u64) {
        // Numbers of the services, looked up when a row first has one.
        let mut numbers: Vec<Option<Option<u32>>> = vec![None; services.len()];
        let mut longest: Vec<i64> = Vec::new();
        for (n, (of, durations)) in of.chunks(BLOCK_ROWS).zip(durations.chunks(BLOCK_ROWS)).enumerate() {
            longest.fill(i64::MIN);
            let mut whole = true;
            for (&context, &duration) in of.iter().zip(durations) {
                let context = context as usize;
                let number = match numbers[context] {
                    Some(number) => number,
                    None => *numbers[context].insert(self.number(services.value(context))),
                };
                let Some(number) = number.map(|number| number as usize) else {
                    whole = false;
                    break;
                };
                if longest.len() <= number {
                    longest.resize(number + 1, i64::MIN);
                }
                longest[number] = longest[number].max(duration);
            }
            let there = longest.iter().zip(0..).filter(|(duration, _)| **duration > i64::MIN);
            let there: Vec<(u32, i64)> = there.map(|(duration, number)| (number, *duration)).collect();
            if whole && there.len() <= SERVICES_MAX {
                self.found.1.push((first + (n * BLOCK_ROWS) as u64, of.len() as u64, there));
            }
        }
    }

    /// Copies the records of rows that are copied from another part to the rows from `first` on.
    pub(super) fn copy(&mut self, other: &Slowest, rows: &Range<u64>, first: u64) {
        for (start, count, services) in &other.1 {
            if rows.start <= *start && start + count <= rows.end {
                let services =
                    services.iter().map(|(n, longest)| Some((self.number(&other.0[*n as usize])?, *longest)));
                let services: Option<_> = services.collect();
                self.found.1.extend(services.map(|services| (start - rows.start + first, *count, services)));
            }
        }
    }

    /// The services of the rows seen: all, or as many as can be numbered.
    pub(super) fn services(&self) -> &[String] {
        &self.found.0
    }

    /// The value of the footer key [`SLOWEST`].
    pub(super) fn finish(self) -> Result<String> {
        serde_json::to_string(&self.found).internal("cannot write the longest durations")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_without_what_is_looked_for_are_excluded() {
        let services = StringArray::from(vec!["a", "", "never"]);
        let rows = BLOCK_ROWS * 3 + 7;
        // The second service is in the last block only, and one span of the first is slow.
        let of: Vec<u32> = (0..rows).map(|i| u32::from(i >= BLOCK_ROWS * 3)).collect();
        let durations: Vec<i64> = (0..rows).map(|i| if i == BLOCK_ROWS { 1000 } else { 5 }).collect();
        let mut writer = SlowestWriter::default();
        writer.note(&services, &of, &durations, 64);
        assert_eq!(writer.services(), ["a", ""]);
        let read = Slowest::parse(&writer.finish().unwrap()).unwrap();
        let excluded = |min: i64, service: Option<&str>, access: &Access| {
            let tests: Option<Vec<TextTest>> = service.map(|name| vec![TextTest::of_pattern(name)]);
            let tests: Option<Vec<&TextTest>> = tests.as_ref().map(|tests| tests.iter().collect());
            let filter = SpanFilter::Starts(0, 9).and(SpanFilter::Duration(min, i64::MAX));
            let rows = read.excluded(&filter, tests.as_deref(), access);
            rows.into_iter().map(|r| (r.start - 64) / BLOCK_ROWS as u64).collect::<Vec<_>>()
        };
        let all = Access::full();
        assert_eq!(excluded(i64::MIN, None, &all), [0u64; 0]);
        assert_eq!(excluded(1000, None, &all), [0, 2, 3]);
        assert_eq!(excluded(1001, None, &all), [0, 1, 2, 3]);
        assert_eq!(excluded(5, Some("unknown*"), &all), [0, 1, 2]);
        assert_eq!(excluded(6, Some("a"), &all), [0, 2, 3]);
        assert_eq!(excluded(i64::MIN, Some("never"), &all), [0, 1, 2, 3]);
        let mut moved = SlowestWriter::default();
        moved.number("other");
        moved.copy(&read, &(64 + BLOCK_ROWS as u64..64 + rows as u64), 10);
        let moved = Slowest::parse(&moved.finish().unwrap()).unwrap();
        assert_eq!(moved.1.len(), 3);
        assert_eq!(moved.1[0], (10, BLOCK_ROWS as u64, vec![(1, 1000)]));
        assert_eq!(moved.1[2], (10 + 2 * BLOCK_ROWS as u64, 7, vec![(2, 5)]));
        assert_eq!(Slowest::parse(r#"[["a"],[[0,1,[[1,5]]]]]"#), None);
    }

    #[test]
    fn very_many_services_are_left_out() {
        let rows = BLOCK_ROWS * 100;
        let names = StringArray::from_iter_values((0..rows / 32).map(|i| format!("service {i}")));
        let of: Vec<u32> = (0..rows as u32).map(|row| row / 32).collect();
        let mut writer = SlowestWriter::default();
        writer.note(&names, &of, &vec![1; rows], 0);
        assert_eq!(writer.services().len(), NUMBERS_MAX);
        let read = Slowest::parse(&writer.finish().unwrap()).unwrap();
        assert_eq!(read.1.len(), NUMBERS_MAX * 32 / BLOCK_ROWS);
        let mut full = SlowestWriter::default();
        (0..NUMBERS_MAX).for_each(|i| assert!(full.number(&format!("other {i}")).is_some()));
        full.copy(&read, &(0..rows as u64), 0);
        assert_eq!(full.found.1, []);
    }
}
