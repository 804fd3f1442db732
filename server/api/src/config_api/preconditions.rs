//! Reads `If-Match` and `If-None-Match`.

use http::header;
use quiver_config::Condition;

use super::request::Ask;

impl Ask {
    /// The condition of both headers.
    pub(super) fn condition(&self) -> Condition {
        let wanted = self.wanted();
        if !self.headers.contains_key(header::IF_NONE_MATCH) {
            return wanted;
        }
        if self.none_match().any(|tag| tag == "*") {
            return Condition::Absent;
        }
        let others: Vec<i64> = self.none_match().take(100).filter_map(version_of).collect();
        match wanted {
            Condition::Versions(mut versions) => {
                versions.retain(|version| !others.contains(version));
                Condition::Versions(versions)
            }
            _ => Condition::Others(others),
        }
    }

    /// The condition of `If-Match`, which may list several tags in several header lines. Foreign tags and weak ones
    /// match nothing.
    fn wanted(&self) -> Condition {
        if !self.headers.contains_key(header::IF_MATCH) {
            return Condition::None;
        }
        let mut tags = self.tags(header::IF_MATCH);
        if tags.any(|tag| tag == "*") {
            return Condition::Exists;
        }
        Condition::Versions(self.tags(header::IF_MATCH).filter_map(version_of).collect())
    }

    /// Whether `If-None-Match` contains a tag.
    pub(super) fn knows(&self, etag: &str) -> bool {
        self.none_match().any(|tag| tag == "*" || tag == etag)
    }

    /// The tags of `If-None-Match`. Weak tags match too, since a proxy may have turned ours into them.
    pub(super) fn none_match(&self) -> impl Iterator<Item = &str> {
        self.tags(header::IF_NONE_MATCH).map(|tag| tag.strip_prefix("W/").unwrap_or(tag))
    }

    /// The tags that a header lists.
    pub(super) fn tags(&self, name: header::HeaderName) -> impl Iterator<Item = &str> {
        let values = self.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|tags| tags.split(',')).map(str::trim)
    }
}

/// The version in one of our tags; `None` for others.
fn version_of(tag: &str) -> Option<i64> {
    let digits = tag.strip_prefix('"')?.strip_suffix('"')?;
    digits.parse().ok().filter(|version: &i64| version.to_string() == digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_tags() {
        for (tag, expected) in [
            ("\"5\"", Some(5)),
            ("\"0\"", Some(0)),
            ("\"-1\"", Some(-1)),
            ("\"9223372036854775807\"", Some(i64::MAX)),
            ("\"9223372036854775808\"", None),
            // Only the exact form that we issue is ours.
            ("\"05\"", None),
            ("\"+5\"", None),
            ("\"-0\"", None),
            ("\" 5\"", None),
            ("\"5 \"", None),
            ("\"5.0\"", None),
            ("\"5\"\"", None),
            ("\"\"", None),
            ("\"", None),
            ("", None),
            ("5", None),
            ("\"5", None),
            ("5\"", None),
            ("'5'", None),
            ("*", None),
            ("W/\"5\"", None),
            ("\"abc\"", None),
        ] {
            assert_eq!(version_of(tag), expected, "{tag}");
        }
    }
}
