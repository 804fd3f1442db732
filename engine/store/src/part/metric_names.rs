//! Tells which metric names a part may contain: a sorted list while it is short, else a Bloom filter. It is stored in
//! the catalog, so that a query for an unknown name opens no part.

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

/// Maximum size of the list in bytes; above that a filter of 10 bits per name is smaller.
const LIST_BYTES_MAX: usize = 4096;
const BITS_PER_NAME: usize = 10;
const PROBES: u64 = 7;

/// The metric names of a part.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NameFilter {
    /// All of them, sorted.
    List(Vec<String>),
    /// A Bloom filter with 7 probes at bits `h1 + i * h2`, where h1 and h2 are the halves of XXH3-64. Serialized as
    /// base64.
    #[serde(with = "bloom_text")]
    Bloom(Vec<u8>),
}

impl Default for NameFilter {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

impl NameFilter {
    /// Builds the filter from sorted, unique names.
    pub fn of(names: &[&str]) -> Self {
        if names.iter().map(|n| n.len() + 3).sum::<usize>() <= LIST_BYTES_MAX {
            return Self::List(names.iter().map(|&n| n.to_owned()).collect());
        }
        let mut bytes = vec![0u8; (names.len() * BITS_PER_NAME).div_ceil(8)];
        for name in names {
            for bit in probes(name, bytes.len()) {
                bytes[bit / 8] |= 1 << (bit % 8);
            }
        }
        Self::Bloom(bytes)
    }

    /// Tells whether a name may be in the part. The list is exact; the filter has about 1 % false positives.
    pub fn may_contain(&self, name: &str) -> bool {
        match self {
            Self::List(names) => names.binary_search_by(|n| n.as_str().cmp(name)).is_ok(),
            Self::Bloom(bytes) => probes(name, bytes.len()).all(|bit| bytes[bit / 8] & (1 << (bit % 8)) != 0),
        }
    }

    /// All names if they are known exactly; `None` for a filter.
    pub fn list(&self) -> Option<&[String]> {
        match self {
            Self::List(names) => Some(names),
            Self::Bloom(_) => None,
        }
    }
}

fn probes(name: &str, bytes: usize) -> impl Iterator<Item = usize> {
    let hash = xxh3_64(name.as_bytes());
    let (h1, h2) = (hash >> 32, (hash & 0xffff_ffff) | 1);
    let bits = (bytes as u64 * 8).max(1);
    let probes = if bytes == 0 { 0 } else { PROBES };
    (0..probes).map(move |i| ((h1 + i * h2) % bits) as usize)
}

mod bloom_text {
    use serde::{Deserialize, Deserializer, Serializer};

    use quiver_types::text::{from_base64, to_base64};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&to_base64(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(from)?;
        from_base64(&text).ok_or_else(|| serde::de::Error::custom("not base64"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_then_bloom() {
        let few = NameFilter::of(&["a", "b"]);
        assert!(few.may_contain("a") && !few.may_contain("c"));
        let names: Vec<String> = (0..5000).map(|i| format!("metric_{i:05}_total")).collect();
        let many = NameFilter::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(many.list(), None);
        assert!(names.iter().all(|n| many.may_contain(n)));
        let wrong = (0..5000).filter(|i| many.may_contain(&format!("other_{i}"))).count();
        assert!(wrong < 150, "{wrong}");
        for filter in [few, many, NameFilter::default()] {
            let text = serde_json::to_string(&filter).expect("plain data");
            assert_eq!(serde_json::from_str::<NameFilter>(&text).expect("same form"), filter);
        }
    }
    #[test]
    fn names_are_listed_up_to_four_kilobytes() {
        // Each takes its own bytes and three more.
        let names = |last: usize| -> Vec<String> {
            (0..40).map(|n| format!("{n:0>97}")).chain([format!("x{}", "0".repeat(last))]).collect()
        };
        let of = |names: &[String]| NameFilter::of(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let (fits, more) = (names(92), names(93));
        assert_eq!(of(&fits).list().map(<[String]>::len), Some(41));
        assert_eq!(of(&more).list(), None);
        assert!(more.iter().all(|name| of(&more).may_contain(name)));
        assert!(NameFilter::default().list().is_some_and(<[String]>::is_empty));
        assert!(!NameFilter::default().may_contain(""));
        assert!(NameFilter::of(&["", "ä"]).may_contain(""), "an empty text is one like others");
    }

    /// A filter without any bit stands for names that were not listed.
    #[test]
    fn an_empty_filter_may_hold_all_names() {
        let all = NameFilter::Bloom(Vec::new());
        assert!(all.may_contain("a") && all.may_contain("") && all.list().is_none());
        let none = NameFilter::Bloom(vec![0; 100]);
        assert!(!none.may_contain("a") && !none.may_contain(""));
    }

    #[test]
    fn what_is_no_filter_is_not_read() {
        let read = |text: &str| serde_json::from_str::<NameFilter>(text);
        assert_eq!(read(r#"{"list":["a"]}"#).unwrap(), NameFilter::of(&["a"]));
        assert_eq!(read(r#"{"bloom":"AAE="}"#).unwrap(), NameFilter::Bloom(vec![0, 1]));
        for text in [r#"{"bloom":"?"}"#, r#"{"bloom":[0]}"#, r#"{"list":"a"}"#, r#"{"other":[]}"#, "[]"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
