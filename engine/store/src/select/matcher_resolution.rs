//! Resolves matchers to series: which parts may contain any, which of their series match, and which live ones.
//!
//! Access rights are applied where a source lists its series, so code above never sees a series that the caller may not
//! see.

use std::sync::Arc;

use quiver_types::read_stats::add;
use quiver_types::tables::metrics;
use quiver_types::{Access, Matcher, MillisRange, ReadStats, Result};
use roaring::RoaringBitmap;

use super::matching::matching;
use super::pruning::{PruningResult, literal_names, prune};
use crate::part::{Part, SeriesPage};
use crate::snapshot::Snapshot;

/// Number of parts that are opened concurrently.
pub(crate) const PARTS_OPENED_AT_ONCE: usize = 16;

/// A request for the series that match one of the selectors (all series if there are none) and may have samples in the
/// range.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SelectorQuery<'a> {
    pub(crate) access: &'a Access,
    pub(crate) selectors: &'a [Vec<Matcher>],
    pub(crate) range: MillisRange,
    /// Labels that the result table needs; `None` means all.
    pub(crate) labels: Option<&'a Arc<[String]>>,
}

impl SelectorQuery<'_> {
    /// Tells whether no series can match, whatever is stored.
    pub(crate) fn is_void(&self) -> bool {
        let void = |matchers: &Vec<Matcher>| literal_names(matchers).is_some_and(|names| names.is_empty());
        self.range.min > self.range.max || (!self.selectors.is_empty() && self.selectors.iter().all(void))
    }

    /// The parts that may contain matching series.
    pub(crate) fn parts(&self, snapshot: &Snapshot, stats: &ReadStats) -> (Vec<Arc<Part>>, PruningResult) {
        let parts = snapshot.visible.table(metrics::TABLE.name);
        let (kept, pruned) = if self.is_void() {
            (Vec::new(), PruningResult { total: parts.len(), name: parts.len(), ..PruningResult::default() })
        } else {
            prune(parts, self.selectors, self.access, self.range)
        };
        add(&stats.parts_total, pruned.total as u64);
        add(&stats.parts_read, kept.len() as u64);
        if self.access.is_full() {
            add(&stats.series_considered, kept.iter().map(|part| part.meta.series).sum());
        }
        (kept, pruned)
    }

    /// Numbers of the matching series of a part, regardless of access rights and of their times.
    pub(crate) async fn of_part(&self, part: &Part, stats: &ReadStats) -> Result<Vec<u32>> {
        let series = part.series_count();
        if self.selectors.iter().all(Vec::is_empty) {
            stats.take(series as usize * size_of::<u32>())?;
            return Ok((0..series).collect());
        }
        part.warm(stats).await;
        let index = part.label_index(stats).await?;
        let mut found: Option<RoaringBitmap> = None;
        for matchers in self.selectors {
            let own = matching(part, &index, matchers, stats).await?;
            found = Some(found.map_or_else(|| own.clone(), |found| found | &own));
        }
        let found = found.unwrap_or_default();
        stats.take(found.len() as usize * size_of::<u32>())?;
        Ok(found.into_iter().collect())
    }

    /// Keeps the series that the caller may see; `numbers` must be ascending and lie in the pages.
    pub(crate) fn keep_allowed(&self, pages: &[Arc<SeriesPage>], numbers: &mut Vec<u32>) {
        if self.access.is_full() {
            return;
        }
        let allowed: Vec<Vec<bool>> =
            pages.iter().map(|page| page.services().iter().map(|s| self.access.allows(s)).collect()).collect();
        let mut at = 0;
        numbers.retain(|&number| {
            while pages[at].numbers().end <= number {
                at += 1;
            }
            allowed[at][pages[at].service_code(number)]
        });
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use quiver_types::MatchOp;

    use super::super::testing::{Item, World, labels, wait};
    use super::*;
    use crate::snapshot::SnapshotPublisher;

    fn matcher(name: &str, op: MatchOp, value: &str) -> Matcher {
        Matcher::new(name, op, value).unwrap()
    }

    #[test]
    fn questions_that_nothing_can_answer_are_void() {
        let access = Access::full();
        let check = |selectors: &[Vec<Matcher>], range: (i64, i64), expected: bool| {
            let range = MillisRange::new(range.0, range.1);
            let question = SelectorQuery { access: &access, selectors, range, labels: None };
            assert_eq!(question.is_void(), expected, "{selectors:?} {range:?}");
        };
        let name = |op: MatchOp, value: &str| matcher("__name__", op, value);
        let none = vec![name(MatchOp::Equal, "a"), name(MatchOp::NotEqual, "a")];
        let some = vec![name(MatchOp::Regex, "a|b"), name(MatchOp::NotEqual, "a")];
        check(&[], (0, 9), false);
        check(&[], (9, 9), false);
        check(&[], (9, 8), true);
        check(&[vec![]], (0, 9), false);
        check(std::slice::from_ref(&none), (0, 9), true);
        check(std::slice::from_ref(&some), (0, 9), false);
        check(&[none.clone(), none.clone()], (0, 9), true);
        check(&[none, some], (0, 9), false);
        // Whether other labels can match is known where they are looked up.
        check(&[vec![matcher("job", MatchOp::Equal, "x"), matcher("job", MatchOp::Equal, "y")]], (0, 9), false);
    }

    #[test]
    fn series_of_a_part_are_those_of_any_selector() {
        let set = |n: usize| {
            let own = n.to_string();
            labels(&[("__name__", ["a", "b"][n % 2]), ("n", &own), ("job", ["x", "y", ""][n % 3])])
        };
        let sets: Vec<_> = (0..12).map(set).collect();
        let mut world = World::new();
        let items: Vec<_> = sets.iter().map(|set| (set.clone(), 5, Item::Float(1.0, 0))).collect();
        world.add_part(&items);
        let snapshot = SnapshotPublisher::new(world.visible.clone(), world.seq).snapshot();
        let access = Access::full();
        let find = |selectors: &[Vec<Matcher>]| {
            let stats = ReadStats::default();
            let question = SelectorQuery { access: &access, selectors, range: MillisRange::ALL, labels: None };
            let (parts, _) = question.parts(&snapshot, &stats);
            let numbers = parts.iter().map(|part| wait(question.of_part(part, &stats)).unwrap());
            let mut sorted = sets.clone();
            sorted.sort_by(quiver_types::LabelSet::cmp_series);
            numbers.flatten().map(|number| sorted[number as usize].get("n").to_owned()).collect::<BTreeSet<_>>()
        };
        let expected =
            |like: &dyn Fn(usize) -> bool| (0..12).filter(|&n| like(n)).map(|n| n.to_string()).collect::<BTreeSet<_>>();
        let a = || vec![Matcher::equal("__name__", "a")];
        let x = || vec![Matcher::equal("job", "x")];
        assert_eq!(find(&[]), expected(&|_| true));
        assert_eq!(find(&[a()]), expected(&|n| n % 2 == 0));
        assert_eq!(find(&[a(), x()]), expected(&|n| n % 2 == 0 || n % 3 == 0));
        assert_eq!(find(&[[a(), x()].concat()]), expected(&|n| n % 6 == 0));
        assert_eq!(find(&[a(), vec![]]), expected(&|_| true), "one of them takes everything");
        assert_eq!(find(&[vec![matcher("job", MatchOp::Equal, "")]]), expected(&|n| n % 3 == 2));
        assert_eq!(find(&[vec![matcher("job", MatchOp::NotEqual, "")]]), expected(&|n| n % 3 < 2));
        assert_eq!(find(&[vec![matcher("n", MatchOp::Regex, "1[&&01]?")]]), expected(&|n| [1, 10, 11].contains(&n)));
        assert_eq!(find(&[vec![matcher("zone", MatchOp::NotRegex, "z.+")], a()]), expected(&|_| true));
        assert_eq!(find(&[vec![matcher("zone", MatchOp::Regex, ".+")]]), expected(&|_| false));
    }

    #[test]
    fn only_series_of_services_that_are_seen_are_left() {
        let mut world = World::new();
        let item = |job: &str, n: u32| {
            let own = n.to_string();
            (labels(&[("__name__", "m"), ("job", job), ("n", &own)]), 5, Item::Float(1.0, 0))
        };
        world.add_part(&[item("x", 1), item("y", 2), item("", 3), item("x", 4)]);
        let part = Arc::clone(&world.visible.table(metrics::TABLE.name)[0]);
        let stats = ReadStats::default();
        let pages = vec![wait(part.series_page(0, &stats)).unwrap()];
        let left = |access: &Access, numbers: &[u32]| {
            let question = SelectorQuery { access, selectors: &[], range: MillisRange::ALL, labels: None };
            let mut numbers = numbers.to_vec();
            question.keep_allowed(&pages, &mut numbers);
            numbers
        };
        let service = |number: u32| pages[0].service(number).to_string();
        let of = |name: &str| (0..4).filter(|&n| service(n) == name).collect::<Vec<u32>>();
        assert_eq!((of("").len(), of("x").len(), of("y").len()), (1, 2, 1));
        assert_eq!(left(&Access::full(), &[0, 1, 2, 3]), [0, 1, 2, 3]);
        assert_eq!(left(&Access::services(["x"]), &[0, 1, 2, 3]), of("x"));
        assert!(left(&Access::services(["y"]), &of("x")).is_empty());
        assert!(left(&Access::services(["nobody"]), &[0, 1, 2, 3]).is_empty());
    }
}
