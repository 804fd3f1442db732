//! Evaluates matchers on the live series.
//!
//! A writer that waits for the index delays acknowledgements. So no pattern is tested under its lock, and no hold of
//! the lock takes time proportional to the number of values or series: values are copied out in batches as shared
//! bytes, tested, and the posting lists of the matching ones are united, again in batches.
//!
//! Series come and go between two holds of the lock. Those that the caller may see belong to generations it holds, so
//! they stay, with their pairs and numbers. Others may or may not be in the result; if a number is released and reused
//! in the meantime, it stands for a series newer than the caller's snapshot.

use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::RwLockReadGuard;
use quiver_types::label::Pairs;
use quiver_types::{MatchOp, Matcher};
use roaring::RoaringBitmap;

use super::postings::Union;
use super::{Index, Registry};

/// Pairs or series that are handled in one hold of the lock.
const PER_LOCK: usize = 1024;

/// A pair that was copied out.
struct CopiedPair {
    pair: u32,
    bytes: Arc<[u8]>,
}

fn value(bytes: &[u8]) -> &str {
    Pairs::new(bytes).next().map_or("", |(_, value)| value)
}

impl Registry {
    /// Numbers of all series that match, in any generation.
    pub fn matching(&self, matchers: &[Matcher]) -> RoaringBitmap {
        let mut order: Vec<&Matcher> = matchers.iter().collect();
        order.sort_by_key(|m| match m.op {
            MatchOp::Equal if !m.value.is_empty() => 0,
            MatchOp::Regex => 1,
            _ => 2,
        });
        let mut found: Option<RoaringBitmap> = None;
        for matcher in order {
            self.narrow(matcher, &mut found);
            if found.as_ref().is_some_and(RoaringBitmap::is_empty) {
                break;
            }
        }
        found.unwrap_or_else(|| self.all())
    }

    fn all(&self) -> RoaringBitmap {
        self.with_index(|index| index.all().clone())
    }

    /// Keeps those of `found` (`None` means all series) that match a matcher.
    fn narrow(&self, matcher: &Matcher, found: &mut Option<RoaringBitmap>) {
        let takes_empty = matcher.matches_empty();
        let known = self.with_index(|index| {
            let name = index.name(&matcher.name)?;
            Some((name, index.pairs_of_name(name).len()))
        });
        let Some((name, values)) = known else {
            if !takes_empty {
                *found = Some(RoaringBitmap::new());
            }
            return;
        };
        let few = found.as_ref().filter(|f| f.len() * 4 < values as u64 && matcher.single_value().is_none());
        if let Some(candidates) = few {
            *found = Some(self.narrow_few(matcher, name, candidates));
        } else if takes_empty {
            let misses = self.postings_where(matcher, name, false);
            let base = found.take().unwrap_or_else(|| self.all());
            *found = Some(if misses.is_empty() { base } else { base - misses });
        } else {
            let hits = self.postings_where(matcher, name, true);
            *found = Some(match found.take() {
                Some(base) => base & hits,
                None => hits,
            });
        }
    }

    /// Unites the posting lists of the values that match (`wanted`) or do not match.
    fn postings_where(&self, matcher: &Matcher, name: u32, wanted: bool) -> RoaringBitmap {
        if let Some(value) = matcher.single_value() {
            // `a="x"` needs the series with x; `a!="x"` also matches the empty value, and needs the same series to
            // exclude them.
            return self.with_index(|index| index.having(&matcher.name, value));
        }
        // Copied at once, because pairs move within the list when others are removed.
        let pairs = self.with_index(|index| index.pairs_of_name(name).to_vec());
        let mut union = Union::default();
        for pairs in pairs.chunks(PER_LOCK) {
            let mut handed: Vec<CopiedPair> = self.with_index(|index| {
                let of_name =
                    |&pair: &u32| index.pair_of(pair).filter(|(of, _)| *of == name).map(|(_, bytes)| (pair, bytes));
                pairs
                    .iter()
                    .filter_map(of_name)
                    .map(|(pair, bytes)| CopiedPair { pair, bytes: Arc::clone(bytes) })
                    .collect()
            });
            handed.retain(|handed| matcher.matches(value(&handed.bytes)) == wanted);
            self.with_index(|index| {
                for CopiedPair { pair, bytes } in &handed {
                    let same = index.pair_of(*pair).is_some_and(|(_, now)| Arc::ptr_eq(now, bytes));
                    if let Some(postings) = index.postings(*pair).filter(|_| same) {
                        union.add(postings);
                    }
                }
            });
        }
        union.finish()
    }

    /// Tests the candidates one by one, each distinct value once: cheaper if the label has far more values.
    fn narrow_few(&self, matcher: &Matcher, name: u32, candidates: &RoaringBitmap) -> RoaringBitmap {
        let candidates: Vec<u32> = candidates.iter().collect();
        let mut places: Vec<Option<u32>> = Vec::with_capacity(candidates.len());
        let mut known: HashMap<u32, u32, foldhash::fast::FixedState> = HashMap::default();
        let mut values: Vec<Arc<[u8]>> = Vec::new();
        let mut index = self.read_index();
        for (n, &number) in candidates.iter().enumerate() {
            if n % PER_LOCK == PER_LOCK - 1 {
                RwLockReadGuard::bump(&mut index);
            }
            places.push(pair_named(&index, number, name).map(|(pair, bytes)| {
                *known.entry(pair).or_insert_with(|| {
                    values.push(Arc::clone(bytes));
                    values.len() as u32 - 1
                })
            }));
        }
        drop(index);
        let liked: Vec<bool> = values.iter().map(|bytes| matcher.matches(value(bytes))).collect();
        let takes_empty = matcher.matches_empty();
        let keep = |place: &Option<u32>| place.map_or(takes_empty, |place| liked[place as usize]);
        let kept = candidates.iter().zip(&places).filter(|(_, place)| keep(place)).map(|(&number, _)| number);
        RoaringBitmap::from_sorted_iter(kept).expect("a subset in order")
    }
}

/// The pair of a series with a given name.
fn pair_named(index: &Index, number: u32, name: u32) -> Option<(u32, &Arc<[u8]>)> {
    let (_, pairs) = index.pairs_of(number)?;
    pairs.iter().find_map(|&pair| index.pair_of(pair).filter(|(of, _)| *of == name).map(|(_, bytes)| (pair, bytes)))
}

#[cfg(test)]
mod tests {
    use quiver_types::LabelSet;

    use super::*;

    fn registry(sets: &[&[(&str, &str)]]) -> Registry {
        let registry = Registry::default();
        let sets: Vec<_> = sets.iter().map(|set| LabelSet::from_pairs(set.iter().copied())).collect();
        registry.attach(1, 0, sets.iter().map(|l| (l.id(), l.canonical())), usize::MAX, |_| {});
        registry
    }

    const SETS: &[&[(&str, &str)]] = &[
        &[("__name__", "up"), ("job", "a"), ("i", "1")],
        &[("__name__", "up"), ("job", "b"), ("i", "2")],
        &[("__name__", "up"), ("job", "a")],
        &[("__name__", "down"), ("job", "c"), ("i", "1")],
    ];

    #[test]
    fn matchers() {
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};

        let registry = registry(SETS);
        let check = |matchers: &[(&str, MatchOp, &str)], expected: &[u32]| {
            let matchers: Vec<_> = matchers.iter().map(|(n, o, v)| Matcher::new(*n, *o, *v).expect("valid")).collect();
            assert_eq!(registry.matching(&matchers).iter().collect::<Vec<_>>(), expected, "{matchers:?}");
        };
        check(&[], &[0, 1, 2, 3]);
        check(&[("__name__", Equal, "up")], &[0, 1, 2]);
        check(&[("__name__", Equal, "up"), ("job", Equal, "a")], &[0, 2]);
        check(&[("__name__", Equal, "none")], &[]);
        check(&[("i", Equal, "")], &[2]);
        check(&[("i", NotEqual, "")], &[0, 1, 3]);
        check(&[("i", NotEqual, "1")], &[1, 2]);
        check(&[("i", Regex, "1|")], &[0, 2, 3]);
        check(&[("i", Regex, ".*")], &[0, 1, 2, 3]);
        check(&[("i", Regex, ".+")], &[0, 1, 3]);
        check(&[("i", NotRegex, ".+")], &[2]);
        check(&[("i", NotRegex, "1")], &[1, 2]);
        check(&[("i", NotRegex, "1|")], &[1]);
        check(&[("job", Regex, "a|c"), ("i", Equal, "1")], &[0, 3]);
        check(&[("unknown", Equal, "")], &[0, 1, 2, 3]);
        check(&[("unknown", NotEqual, "x")], &[0, 1, 2, 3]);
        check(&[("unknown", Equal, "x")], &[]);
        check(&[("unknown", NotRegex, ".*")], &[]);
    }

    #[test]
    fn few_candidates_are_judged_one_by_one() {
        let registry = registry(SETS);
        for n in 4..200u32 {
            let value = format!("v{n}");
            let labels = LabelSet::from_pairs([("__name__", "many"), ("i", value.as_str())]);
            let series = std::iter::once((labels.id(), labels.canonical()));
            registry.attach(1, n, series, usize::MAX, |attached| {
                assert_eq!(attached, crate::registry::AttachOutcome::New(n));
            });
        }
        let check = |op, pattern: &str, expected: &[u32]| {
            let m = [Matcher::equal("__name__", "up"), Matcher::new("i", op, pattern).expect("valid")];
            assert_eq!(registry.matching(&m).iter().collect::<Vec<_>>(), expected, "{pattern}");
        };
        check(MatchOp::Regex, "1|v.*", &[0]);
        check(MatchOp::Regex, "1|", &[0, 2]);
        check(MatchOp::NotRegex, "1", &[1, 2]);
        check(MatchOp::NotEqual, "1", &[1, 2]);
        check(MatchOp::NotEqual, "", &[0, 1]);
        check(MatchOp::Equal, "", &[2]);
    }

    #[test]
    fn a_pattern_holds_no_lock() {
        use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
        // Many values, and a pattern that takes its time with each.
        let registry = Registry::default();
        let sets: Vec<_> = (0..20_000)
            .map(|n| LabelSet::from_pairs([("__name__", "m"), ("i", format!("{n:0>200}").as_str())]))
            .collect();
        registry.attach(1, 0, sets.iter().map(|l| (l.id(), l.canonical())), usize::MAX, |_| {});
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let matcher = Matcher::new("i", MatchOp::Regex, "(0*[1-4]*)*9.*[05]").expect("valid");
                let found = registry.matching(&[matcher]);
                done.store(true, SeqCst);
                found
            });
            let mut between = 0;
            let mut n = 0u32;
            while !done.load(SeqCst) {
                let labels = LabelSet::from_pairs([("__name__", "new"), ("j", n.to_string().as_str())]);
                registry.attach(2, n, std::iter::once((labels.id(), labels.canonical())), usize::MAX, |_| {});
                n += 1;
                between += u32::from(!done.load(SeqCst));
            }
            let found = reader.join().expect("no panic");
            assert!(!found.is_empty());
            assert!(between > 5, "writers had the lock {between} times while the pattern was judged");
        });
    }

    /// Series come and go under numbers of others; matchers find those that a look at each of them finds.
    #[test]
    fn matchers_find_what_a_look_at_each_series_finds() {
        use MatchOp::{Equal, NotEqual, NotRegex, Regex};

        let mut seed = 5u64;
        let mut random = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let registry = Registry::default();
        let mut live: std::collections::BTreeMap<u32, LabelSet> = std::collections::BTreeMap::new();
        let ops = [Equal, NotEqual, Regex, NotRegex];
        let patterns = ["", "1", "7", ".*", ".+", "[0-4]", "1|", "nothing", "1.*|3"];
        for round in 0..30u32 {
            // Each name may be missing; values of `b` are many.
            let sets: Vec<LabelSet> = (0..40)
                .map(|_| {
                    let (a, b, c) = (random(4).to_string(), random(60).to_string(), random(10).to_string());
                    let pairs = [("__name__", "m"), ("a", &*a), ("b", &*b), ("c", &*c)];
                    let kept = pairs.into_iter().filter(|(name, _)| *name != "c" || random(3) > 0);
                    LabelSet::from_pairs(kept.collect::<Vec<_>>())
                })
                .collect();
            let ordinal = registry.next_ordinal();
            let mut taken = Vec::new();
            let series = sets.iter().map(|labels| (labels.id(), labels.canonical()));
            registry.attach(ordinal, 0, series, usize::MAX, |attached| taken.push(attached));
            for (labels, attached) in sets.iter().zip(taken) {
                if let crate::registry::AttachOutcome::New(number) = attached {
                    // One that an earlier round holds has its number already; a reference is enough here.
                    if live.insert(number, labels.clone()).is_some() {
                        registry.release(&[number]);
                    }
                }
            }
            let gone: Vec<u32> = live.keys().copied().filter(|_| random(4) == 0).collect();
            registry.release(&gone);
            live.retain(|number, _| !gone.contains(number));
            assert_eq!(registry.len(), live.len());
            for _ in 0..20 {
                let matcher = |random: &mut dyn FnMut(u64) -> u64| {
                    let name = ["__name__", "a", "b", "c", "absent"][random(5) as usize];
                    let pattern = if name == "__name__" { "m" } else { patterns[random(9) as usize] };
                    Matcher::new(name, ops[random(4) as usize], pattern).expect("valid")
                };
                let matchers: Vec<Matcher> = (0..=random(3)).map(|_| matcher(&mut random)).collect();
                let matches = |labels: &LabelSet| matchers.iter().all(|m| m.matches(labels.get(&m.name)));
                let expected = live.iter().filter(|(_, labels)| matches(labels)).map(|(&number, _)| number);
                let found = registry.matching(&matchers);
                assert!(found.iter().eq(expected), "round {round}: {found:?} by {matchers:?}");
            }
        }
    }
}
