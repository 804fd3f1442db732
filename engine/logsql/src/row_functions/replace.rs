//! `replace ("a", "b")`.

use memchr::memmem::Finder;

use super::output_limit::VALUE_LEN_MAX;

/// Replaces a text.
#[derive(Debug, Clone)]
pub struct Replace {
    finder: Finder<'static>,
    new: String,
    limit: usize,
}

impl Replace {
    /// Replaces all, or the first so many, occurrences. An empty text is never replaced.
    pub fn new(old: &str, new: impl Into<String>, limit: Option<u64>) -> Self {
        let limit = limit.filter(|&n| n > 0).map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
        Self { finder: Finder::new(old.as_bytes()).into_owned(), new: new.into(), limit }
    }

    /// Writes a value with what is replaced.
    pub fn apply(&self, value: &str, out: &mut String) {
        let old = self.finder.needle();
        let mut rest = value;
        if !old.is_empty() {
            for _ in 0..self.limit {
                let Some(at) = self.finder.find(rest.as_bytes()) else { break };
                if out.len() > VALUE_LEN_MAX {
                    return;
                }
                out.push_str(&rest[..at]);
                out.push_str(&self.new);
                rest = &rest[at + old.len()..];
            }
        }
        out.push_str(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values() {
        let check = |value: &str, old: &str, new: &str, limit: u64, want: &str| {
            let mut out = String::new();
            Replace::new(old, new, Some(limit)).apply(value, &mut out);
            assert_eq!(out, want, "{value}");
        };
        check("", "", "foo", 0, "");
        check("abc", "foo", "bar", 0, "abc");
        check("abc", "", "bar", 0, "abc");
        check("afoox", "foo", "bar", 0, "abarx");
        check("foo-bar-baz", "-", "_", 0, "foo_bar_baz");
        check("foo bar baz  ", " ", "", 1, "foobar baz  ");
        check("ЖЖЖ", "Ж", "z", 2, "zzЖ");
    }

    #[test]
    fn places_and_bounds() {
        let run = |value: &str, old: &str, new: &str, limit: Option<u64>| {
            let mut out = String::from(">");
            Replace::new(old, new, limit).apply(value, &mut out);
            out
        };
        assert_eq!(run("aaa", "aa", "b", None), ">ba");
        assert_eq!(run("a-a", "a", "aa", None), ">aa-aa");
        assert_eq!(run("a-a-a", "a", "", Some(2)), ">--a");
        assert_eq!(run("é€é", "é", "e", Some(u64::MAX)), ">e€e");
        assert_eq!(run("a", "a", "$0\\", None), ">$0\\");
        // What becomes too long is left before it takes all memory.
        let new = "y".repeat(100_000);
        let long = run(&"x".repeat(1000), "x", &new, None);
        assert!((VALUE_LEN_MAX..VALUE_LEN_MAX + 2 * new.len()).contains(&long.len()), "{}", long.len());
    }
}
