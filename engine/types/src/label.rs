//! Label sets in one canonical byte form: what is hashed to a series id, compared, logged and stored.

mod encoding;

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use crate::SeriesId;

/// The label that holds the metric name.
pub const METRIC_NAME: &str = "__name__";

/// A set of labels: pairs sorted by name (bytewise), names unique, values not empty.
///
/// Canonical bytes: for each pair the name, then the value, each as LEB128 length and UTF-8 bytes. Two equal sets
/// have equal bytes. Cloning shares the bytes.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct LabelSet(Arc<[u8]>);

impl Default for LabelSet {
    fn default() -> Self {
        Self(Arc::from(&[][..]))
    }
}

impl LabelSet {
    /// Builds a set from pairs in any order; pairs with an empty value are left out, of equal names the last wins.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        let mut pairs: Vec<_> = pairs.into_iter().collect();
        pairs.sort_by(|a, b| a.0.cmp(b.0));
        let mut out = Vec::with_capacity(64);
        for (i, (name, value)) in pairs.iter().enumerate() {
            if value.is_empty() || pairs.get(i + 1).is_some_and(|next| next.0 == *name) {
                continue;
            }
            push_pair(&mut out, name, value);
        }
        Self(out.into())
    }

    /// Takes bytes that are known to be canonical (made by [`push_pair`] in sorted order).
    pub fn from_canonical(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }

    /// Gives the canonical bytes.
    pub fn canonical(&self) -> &[u8] {
        &self.0
    }

    /// Hashes the set.
    pub fn id(&self) -> SeriesId {
        SeriesId::of(&self.0)
    }

    /// Walks the pairs in name order.
    #[allow(clippy::iter_without_into_iter, reason = "`for` over a set reads better with the word")]
    pub fn iter(&self) -> Pairs<'_> {
        Pairs(&self.0)
    }

    /// Finds a value; the empty text when there is none.
    pub fn get(&self, name: &str) -> &str {
        self.iter().find(|(n, _)| *n == name).map_or("", |(_, v)| v)
    }

    /// Gives the metric name, or the empty text.
    pub fn metric(&self) -> &str {
        self.get(METRIC_NAME)
    }

    /// Gives the service: the first non-empty of the named labels (`identity-and-access` 4.1).
    pub fn service(&self, service_labels: &[String]) -> &str {
        service_labels.iter().map(|l| self.get(l)).find(|v| !v.is_empty()).unwrap_or("")
    }

    /// Compares in *series order*: metric name first, then the other labels as Prometheus compares them (pairwise
    /// name then value, the shorter set first). The same in every part and in the registry, so merges stream.
    pub fn cmp_series(&self, other: &Self) -> Ordering {
        if self.0 == other.0 {
            return Ordering::Equal;
        }
        self.metric().cmp(other.metric()).then_with(|| {
            let mut a = self.iter().filter(|(n, _)| *n != METRIC_NAME);
            let mut b = other.iter().filter(|(n, _)| *n != METRIC_NAME);
            loop {
                match (a.next(), b.next()) {
                    (Some(x), Some(y)) => match x.cmp(&y) {
                        Ordering::Equal => {}
                        unequal => return unequal,
                    },
                    (None, Some(_)) => return Ordering::Less,
                    (Some(_), None) => return Ordering::Greater,
                    (None, None) => return Ordering::Equal,
                }
            }
        })
    }
}

impl fmt::Debug for LabelSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// Walks the pairs of canonical bytes. Stops at the first byte that is not canonical.
#[derive(Debug, Clone)]
pub struct Pairs<'a>(&'a [u8]);

impl<'a> Pairs<'a> {
    /// Walks canonical bytes.
    pub fn new(canonical: &'a [u8]) -> Self {
        Self(canonical)
    }

    fn text(&mut self) -> Option<&'a str> {
        let (mut len, mut shift) = (0usize, 0);
        loop {
            let (&byte, rest) = self.0.split_first()?;
            self.0 = rest;
            len |= usize::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                break;
            }
            shift += 7;
            if shift > 28 {
                return None;
            }
        }
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        std::str::from_utf8(text).ok()
    }
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        Some((self.text()?, self.text()?))
    }
}

/// Appends one pair in canonical form. The caller keeps names sorted and unique and values not empty.
pub fn push_pair(out: &mut Vec<u8>, name: &str, value: &str) {
    for text in [name, value] {
        let mut len = text.len();
        while len >= 0x80 {
            out.push((len as u8 & 0x7f) | 0x80);
            len >>= 7;
        }
        out.push(len as u8);
        out.extend_from_slice(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_form() {
        let a = LabelSet::from_pairs([("b", "2"), ("__name__", "m"), ("a", "1"), ("c", "")]);
        assert_eq!(a.iter().collect::<Vec<_>>(), [("__name__", "m"), ("a", "1"), ("b", "2")]);
        assert_eq!(a.metric(), "m");
        assert_eq!(a.get("c"), "");
        assert_eq!(a.id(), LabelSet::from_pairs([("a", "1"), ("b", "2"), ("__name__", "m")]).id());
        let long = "x".repeat(300);
        assert_eq!(LabelSet::from_pairs([("n", long.as_str())]).get("n"), long);
    }

    #[test]
    fn series_order() {
        let set = |pairs: &[(&str, &str)]| LabelSet::from_pairs(pairs.iter().copied());
        let check = |a: &[(&str, &str)], b: &[(&str, &str)]| assert_eq!(set(a).cmp_series(&set(b)), Ordering::Less);
        check(&[("__name__", "a"), ("Z", "9")], &[("__name__", "b"), ("A", "1")]);
        check(&[("__name__", "a")], &[("__name__", "a"), ("A", "1")]);
        check(&[("__name__", "a"), ("A", "1")], &[("__name__", "a"), ("A", "2")]);
        check(&[("__name__", "a"), ("A", "2")], &[("__name__", "a"), ("B", "1")]);
    }

    #[test]
    fn pairs_of_equal_names_and_without_a_value() {
        let shown = |pairs: &[(&str, &str)]| {
            let set = LabelSet::from_pairs(pairs.iter().copied());
            set.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(",")
        };
        assert_eq!(shown(&[("a", "1"), ("a", "2"), ("b", "x"), ("a", "3")]), "a=3,b=x", "the last one wins");
        assert_eq!(shown(&[("a", "1"), ("a", "")]), "", "also where it is none");
        assert_eq!(shown(&[("a", ""), ("a", "1")]), "a=1");
        assert_eq!(shown(&[("", "x"), ("é", "ü"), ("z", "\0")]), "=x,z=\0,é=ü", "by bytes");
        let set = LabelSet::from_pairs([("job", ""), ("service", "cart"), ("app", "shop")]);
        let service =
            |labels: &[&str]| set.service(&labels.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>()).to_owned();
        assert_eq!(service(&["job", "service", "app"]), "cart");
        assert_eq!(
            (service(&["app", "service"]), service(&["host"]), service(&[])),
            ("shop".to_owned(), String::new(), String::new())
        );
    }

    /// Breaks if bytes that are cut off or damaged are read beyond their end.
    #[test]
    fn bytes_that_are_not_canonical_end_the_walk() {
        let long = "v".repeat(20_000);
        let set = LabelSet::from_pairs([("a", "1"), ("b", long.as_str()), ("c", "3")]);
        assert_eq!(set.get("b"), long);
        let bytes = set.canonical();
        for cut in [0, 1, 2, 3, 4, 5, 6, 7, 100, bytes.len() - 5, bytes.len() - 1] {
            let found = Pairs::new(&bytes[..cut]).count();
            assert!(found < 3 && found <= cut / 4, "{cut}: {found}");
        }
        assert_eq!(Pairs::new(bytes).count(), 3);
        for wrong in [
            &[1, 0xff, 1, b'x'][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0xff, 0xff, 0xff, 0xff, 0x0f, 1],
            &[1, b'a'],
        ] {
            assert_eq!(Pairs::new(wrong).count(), 0, "{wrong:?}");
        }
    }

    #[test]
    fn series_order_is_one() {
        let mut random = 13_u64;
        let mut next = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % below
        };
        let mut set = || {
            let names = [METRIC_NAME, "a", "B", "aa"];
            let pairs: Vec<_> = names.iter().map(|name| (*name, ["", "x", "y", "xy"][next(4)])).collect();
            LabelSet::from_pairs(pairs)
        };
        let mut sets: Vec<LabelSet> = (0..60).map(|_| set()).collect();
        for a in &sets {
            for b in &sets {
                assert_eq!(a.cmp_series(b), b.cmp_series(a).reverse(), "{a:?} {b:?}");
                assert_eq!(a.cmp_series(b) == Ordering::Equal, a == b, "{a:?} {b:?}");
            }
        }
        sets.sort_by(LabelSet::cmp_series);
        assert!(sets.is_sorted_by_key(|set| set.metric().to_owned()), "metrics lie together");
        let orders =
            (0..sets.len()).all(|i| (i..sets.len()).all(|j| sets[i].cmp_series(&sets[j]) != Ordering::Greater));
        assert!(orders, "it is transitive");
    }
}
