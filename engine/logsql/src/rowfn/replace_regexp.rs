//! `replace_regexp ("re", "b")`: `$1`, `${1}` and `${name}` stand for groups.

use regex::Regex;

use super::VALUE_LEN_MAX;
use crate::kernels::golang_regex;

/// Replaces what an expression matches.
#[derive(Debug, Clone)]
pub struct ReplaceRegexp {
    regex: Regex,
    new: String,
    limit: usize,
}

impl ReplaceRegexp {
    /// Compiles an expression; all, or the first so many, matches are replaced.
    ///
    /// # Errors
    /// The reason why it is none.
    pub fn new(pattern: &str, new: impl Into<String>, limit: Option<u64>) -> Result<Self, String> {
        let limit = limit.map_or(0, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Ok(Self { regex: golang_regex::compile(pattern)?, new: new.into(), limit })
    }

    /// Writes a value with what is replaced. Of an empty value nothing is.
    pub fn apply(&self, value: &str, out: &mut String) {
        if value.is_empty() {
            return;
        }
        let groups = self.new.contains('$');
        let mut place = 0;
        let mut put = |from: usize, to: usize, out: &mut String| {
            out.push_str(&value[place..from]);
            place = to;
            out.len() <= VALUE_LEN_MAX
        };
        let limit = if self.limit == 0 { usize::MAX } else { self.limit };
        if groups {
            for found in self.regex.captures_iter(value).take(limit) {
                let whole = found.get_match();
                if !put(whole.start(), whole.end(), out) {
                    return;
                }
                found.expand(&self.new, out);
            }
        } else {
            for found in self.regex.find_iter(value).take(limit) {
                if !put(found.start(), found.end(), out) {
                    return;
                }
                out.push_str(&self.new);
            }
        }
        out.push_str(&value[place..]);
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
    }
}
