//! A cache of compiled short patterns. A dashboard sends the same ones with each of its queries, and compiling a pattern
//! takes longer than most of the look-ups that it is for.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use regex::Regex;

use crate::Result;

/// Most that all of them take, in bytes.
const BYTES_MAX: usize = 1 << 20;
/// What each letter of a pattern is taken for: a `.` that stands for any character has some ten states, for either
/// direction.
const LETTER_BYTES: usize = 1 << 10;
/// Longest of them, in bytes.
const TEXT_BYTES_MAX: usize = 64;
/// What makes a short pattern large: classes of Unicode, counts, flags such as that of any case.
const LARGE: [&str; 3] = ["\\", "{", "(?"];

/// The patterns of all queries.
pub(super) static KEPT: PatternCache = PatternCache(Mutex::new(Held { regexes: BTreeMap::new(), bytes: 0 }));

/// Compiled patterns by their texts. They are never matched themselves: a copy has tables of its own for the states that it
/// meets, so what is held is what a pattern compiles to.
#[derive(Debug)]
pub(super) struct PatternCache(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    regexes: BTreeMap<String, Regex>,
    /// What they take, more or less.
    bytes: usize,
}

impl PatternCache {
    /// Gives a pattern, which is compiled unless it is kept.
    ///
    /// # Errors
    /// Those of compiling it.
    pub(super) fn regex(&self, pattern: &str, compile: impl FnOnce() -> Result<Regex>) -> Result<Regex> {
        let is_small = pattern.len() <= TEXT_BYTES_MAX && pattern.is_ascii();
        if !is_small || LARGE.iter().any(|sign| pattern.contains(sign)) {
            return compile();
        }
        let known = self.lock().regexes.get(pattern).cloned();
        if let Some(regex) = known {
            return Ok(regex);
        }
        let regex = compile()?;
        let bytes = LETTER_BYTES * (1 + pattern.len());
        let mut held = self.lock();
        // Those that are in use come back at once; to know which they are would cost each of them more.
        if held.bytes + bytes > BYTES_MAX {
            *held = Held::default();
        }
        if held.regexes.insert(pattern.to_owned(), regex.clone()).is_none() {
            held.bytes += bytes;
        }
        Ok(regex)
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn anew(kept: &PatternCache, pattern: &str) -> bool {
        let mut is_new = false;
        let compile = || {
            is_new = true;
            Regex::new(pattern).map_err(|e| Error::invalid(e.to_string()))
        };
        assert!(kept.regex(pattern, compile).expect("a pattern").is_match("host_1"), "{pattern}");
        is_new
    }

    #[test]
    fn short_patterns_are_compiled_once_and_few_are_kept() {
        let kept = PatternCache(Mutex::default());
        assert!(anew(&kept, "host_[0-7]") && !anew(&kept, "host_[0-7]"));
        let long = format!("host_1|{}", "a".repeat(TEXT_BYTES_MAX));
        for large in [r"host_\d", "host_1{1}", "(?i)HOST_1", "host_1|ä", long.as_str()] {
            assert!(anew(&kept, large) && anew(&kept, large), "{large}");
        }
        assert_eq!(kept.lock().regexes.len(), 1);
        // Long ones take the room of many short ones, and none is beyond it.
        for i in 0..2 * BYTES_MAX / LETTER_BYTES / TEXT_BYTES_MAX {
            assert!(anew(&kept, &format!("host_1|{i:056}")));
            let held = kept.lock();
            assert!(held.bytes <= BYTES_MAX && held.regexes.len() <= BYTES_MAX / LETTER_BYTES / 8);
        }
        assert!(anew(&kept, "host_[0-7]"), "as if it had never been");
    }

    #[test]
    fn what_is_no_pattern_is_not_kept() {
        let kept = PatternCache(Mutex::default());
        for _ in 0..2 {
            assert!(kept.regex("(", || Err(Error::invalid("no pattern"))).is_err());
        }
        assert!(kept.lock().regexes.is_empty());
    }
}
