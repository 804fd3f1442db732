//! "Did you mean": suggestions for unknown names, the same in all languages.

/// Longest part of a name that is compared, in characters: requests may contain names of any length.
const LETTERS_MAX: usize = 64;

/// Gives the known name that is spelled most similarly, ignoring case, if any is similar enough; of several equally
/// similar ones the first in order of names.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let word: String = word.to_lowercase().chars().take(LETTERS_MAX).collect();
    let edits_max = 1 + word.chars().count() / 5;
    let measured = known.into_iter().map(|name| (strsim::osa_distance(&word, &name.to_lowercase()), name));
    // A name of which no letter is left is not alike.
    measured.filter(|(edits, name)| *edits <= edits_max && *edits < name.chars().count()).min().map(|(_, name)| name)
}

/// Says which known name may have been meant, as the end of a message: ``; did you mean `x`?``, or nothing.
pub fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_alike() {
        let check = |word: &str, known: &[&str], expected: Option<&str>| {
            assert_eq!(nearest(word, known.iter().copied()), expected, "{word}");
        };
        check("lmit", &["limit", "len"], Some("limit"));
        check("Sotr", &["sort", "stats"], Some("sort"));
        check("cuont", &["count", "errorCount"], Some("count"));
        check("errorcount", &["count", "errorCount"], Some("errorCount"));
        check("durationAverage", &["count", "durationAvg"], Some("durationAvg"));
        check("servicename", &["service_name", "severity_text"], Some("service_name"));
        check("hosts", &["host2", "host1"], Some("host1"));
        check("foo", &["limit", "len"], None);
        check("x", &["a", "stream"], None);
        check(&"x".repeat(1 << 20), &["limit"], None);
        assert_eq!(did_you_mean("lmit", ["limit"]), "; did you mean `limit`?");
        assert_eq!(did_you_mean("foo", ["limit"]), "");
    }
}
