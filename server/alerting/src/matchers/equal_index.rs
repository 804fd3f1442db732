//! Finds which of many lists of matchers may match labels without asking each.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use quiver_types::{LabelSet, MatchOp};

use super::Matchers;

/// Up to this many lists are simply checked one by one.
const FEW: usize = 16;

/// An index of lists of matchers, which finds those that may match given labels. Most lists of a policy require one value
/// of a label, and are found by it; the rest may match anything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct EqualIndex {
    /// By the hash of a name and a value. On a collision a list is checked that does not match, which costs time only.
    by_pair: HashMap<u64, Vec<usize>>,
    rest: Vec<usize>,
}

fn hash(name: &str, value: &str) -> u64 {
    // The same in each tree, so that equal trees have equal indexes.
    let mut hasher = DefaultHasher::new();
    (name, value).hash(&mut hasher);
    hasher.finish()
}

/// Hashes of the pairs of name and value that labels must have for these matchers to match.
fn pairs(matchers: &Matchers) -> impl Iterator<Item = u64> {
    // A missing label has the empty value, so such a matcher requires no label.
    let needed = matchers.iter().filter(|matcher| matcher.op == MatchOp::Equal && !matcher.value.is_empty());
    needed.map(|matcher| hash(&matcher.name, &matcher.value))
}

impl EqualIndex {
    /// Takes lists in their order.
    pub(crate) fn new<'m>(all: impl Iterator<Item = &'m Matchers> + Clone) -> Self {
        if all.clone().nth(FEW).is_none() {
            return Self { rest: (0..all.count()).collect(), by_pair: HashMap::new() };
        }
        let mut often: HashMap<u64, usize> = HashMap::new();
        for pair in all.clone().flat_map(pairs) {
            *often.entry(pair).or_default() += 1;
        }
        let mut out = Self::default();
        for (at, matchers) in all.enumerate() {
            // The rarest pair narrows the candidates the most.
            let rarest = pairs(matchers).min_by_key(|pair| often.get(pair).copied());
            if let Some(pair) = rarest {
                out.by_pair.entry(pair).or_default().push(at);
            } else {
                out.rest.push(at);
            }
        }
        out
    }

    /// The numbers of the lists that may match, ascending.
    pub(crate) fn candidates(&self, labels: &LabelSet) -> Vec<usize> {
        let mut out = self.rest.clone();
        if !self.by_pair.is_empty() {
            let found = labels.iter().filter_map(|(name, value)| self.by_pair.get(&hash(name, value)));
            out.extend(found.flatten());
            out.sort_unstable();
            // A list is found twice if two labels have the same hash.
            out.dedup();
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matchers::read;

    fn set(text: &str) -> LabelSet {
        LabelSet::from_pairs(text.split(' ').filter(|t| !t.is_empty()).map(|t| t.split_once('=').expect(t)))
    }

    fn lists(texts: &[String]) -> Vec<Matchers> {
        texts.iter().map(|text| Matchers::new(read(text).expect(text).matchers)).collect()
    }

    /// Breaks if a matching list is not among the candidates, or their order changes.
    #[test]
    fn what_matches_is_among_the_candidates() {
        let mut texts: Vec<String> = (0..40).map(|n| format!("team=\"t{}\",job=\"j{}\"", n % 3, n % 7)).collect();
        texts.extend(["team=\"\"", "team!=\"t1\"", "job=~\"j.*\"", "job=\"j1\",team!~\"t0\""].map(str::to_owned));
        for count in [0, 1, FEW - 1, FEW, texts.len()] {
            let mut lists = lists(&texts[..count]);
            lists.push(Matchers::default());
            let index = EqualIndex::new(lists.iter());
            for labels in ["", "team=t0", "team=t1 job=j1", "team=t2 job=j6 x=y", "job=j1", "team=j1 job=t1"].map(set) {
                let candidates = index.candidates(&labels);
                let matching: Vec<usize> = (0..=count).filter(|at| lists[*at].matches(&labels)).collect();
                let found: Vec<usize> = candidates.into_iter().filter(|at| lists[*at].matches(&labels)).collect();
                assert_eq!(found, matching, "{count} {labels:?}");
            }
        }
    }

    #[test]
    fn few_of_many_are_asked() {
        let texts: Vec<String> = (0..1000).map(|n| format!("all=\"x\",service=\"s{n}\"")).collect();
        let lists = lists(&texts);
        let index = EqualIndex::new(lists.iter());
        assert_eq!(index.candidates(&set("all=x service=s500")), [500]);
        assert!(index.candidates(&set("all=x service=t")).is_empty());
        assert_eq!(index, EqualIndex::new(lists.iter()));
    }
}
