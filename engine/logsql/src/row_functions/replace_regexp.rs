//! `replace_regexp ("re", "b")`: `$1`, `${1}` and `${name}` stand for groups.

use quiver_types::matcher::{Places, WatchedRegex, few_groups};

use super::output_limit::VALUE_LEN_MAX;
use crate::kernels::golang_regex;

/// Replaces what an expression matches.
#[derive(Debug, Clone)]
pub struct ReplaceRegexp {
    regex: WatchedRegex,
    new: String,
    has_groups: bool,
    places: Places,
    limit: usize,
}

impl ReplaceRegexp {
    /// Compiles an expression; all, or the first so many, matches are replaced.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn new(pattern: &str, new: impl Into<String>, limit: Option<u64>) -> Result<Self, String> {
        let limit = limit.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
        let limit = if limit == 0 { usize::MAX } else { limit };
        let (regex, new) = (golang_regex::compile(pattern)?, new.into());
        let has_groups = new.contains('$');
        if has_groups {
            few_groups(&regex).map_err(|e| e.message)?;
        }
        let regex = WatchedRegex::new(regex);
        let places = if has_groups { regex.group_places() } else { regex.match_places() };
        Ok(Self { regex, new, has_groups, places, limit })
    }

    /// Writes a value with what is replaced. Of an empty value nothing is.
    pub fn apply(&mut self, value: &str, out: &mut String) {
        if value.is_empty() {
            return;
        }
        let Self { regex, new, has_groups, places, limit } = self;
        let (mut place, mut left, mut fits) = (0, *limit, true);
        if regex.may_match(value) {
            regex.each(value, places, |found| {
                let Some((from, to)) = found.get(0) else { return false };
                out.push_str(&value[place..from]);
                place = to;
                fits = out.len() <= VALUE_LEN_MAX;
                if !fits {
                    return false;
                }
                if *has_groups {
                    regex.expand(value, found, new, out);
                } else {
                    out.push_str(new);
                }
                left -= 1;
                left > 0
            });
        }
        if fits {
            out.push_str(&value[place..]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, pattern: &str, new: &str, limit: u64, want: &str| {
            let mut out = String::new();
            ReplaceRegexp::new(pattern, new, Some(limit)).unwrap().apply(value, &mut out);
            assert_eq!(out, want, "{value} {pattern}");
        };
        check("abc", "foo", "bar", 0, "abc");
        check("foox", "fo+", "bar", 0, "barx");
        check("foo-bar/baz", "[-/]", "_", 0, "foo_bar_baz");
        check("foo bar/ baz  ", "[ /]", "", 2, "foobar baz  ");
        check("hello", "^|$", "X", 0, "XhelloX");
        check("afoo abc barz", "a([^ ]+)", "b${1}x", 0, "bfoox bbcx bbrzx");
        check("ab", "(?P<x>a)(b)", "$2${x}$3$$", 0, "ba$");
        check("", "^", "x", 0, "");
        check("a\nb\nc", "a.*b", "x", 0, "x\nc");
        check("a\nb", "(?-s).", "x", 0, "x\nx");
    }

    #[test]
    fn places_and_bounds() {
        let run = |value: &str, pattern: &str, new: &str, limit: Option<u64>| {
            let mut out = String::from(">");
            let mut replace = ReplaceRegexp::new(pattern, new, limit).unwrap();
            // Buffers are those of the value before.
            replace.apply("aé-1", &mut String::new());
            replace.apply(value, &mut out);
            out
        };
        assert_eq!(run("é", "", "-", None), ">-é-");
        assert_eq!(run("é", "", "-", Some(1)), ">-é");
        assert_eq!(run("baac", "a*", "-", None), ">-b-c-");
        assert_eq!(run("a1b2", r"(\w)(\d)", "$2$1", None), ">1a2b");
        assert_eq!(run("ab", "(a)", "$1x", None), ">b");
        assert_eq!(run("ab", "(a)", "${1}x", None), ">axb");
        assert_eq!(run("ab", "(?P<n>a)|(?P<m>b)", "[$n|$m]", None), ">[a|][|b]");
        assert_eq!(run("ab", "a", r"\1$$", None), r">\1$b");
        assert_eq!(run("ab", "c", "$1", None), ">ab");
        assert_eq!(run("éa", "(?i)É", "e", Some(u64::MAX)), ">ea");
        let new = "y".repeat(100_000);
        for new in [new.clone(), format!("${{0}}{new}")] {
            let long = run(&"x".repeat(1000), "x", &new, None);
            assert!((VALUE_LEN_MAX..VALUE_LEN_MAX + 2 * new.len()).contains(&long.len()), "{}", long.len());
        }
        assert!(ReplaceRegexp::new("(", "", None).is_err());
    }
}
