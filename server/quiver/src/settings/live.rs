//! Which settings can change while the server runs; `reload` puts them into force.

/// Settings that can change: section and key.
const LIVE: &[(&str, &str)] = &[
    ("http", "cors_origins"),
    ("http", "hosts"),
    ("http", "docs_public"),
    ("http", "admin_token_file"),
    ("query", "timeout"),
    ("query", "logs_timeout"),
    ("query", "rows_max"),
    ("query", "samples_max"),
    ("query", "series_max"),
    ("query", "bytes_max"),
    ("query", "slow"),
    ("alerting", "rules"),
    ("alerting", "policy"),
    ("log", "filter"),
    ("log", "access"),
];

/// Whether a setting can change while the server runs.
pub fn is_live(section: &str, key: &str) -> bool {
    LIVE.contains(&(section, key))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::settings::DOCS;

    #[test]
    fn what_can_change_is_a_setting() {
        for (section, key) in LIVE {
            assert!(DOCS.iter().any(|doc| (doc.section, doc.key) == (*section, *key)), "`{section}.{key}`");
            assert!(is_live(section, key));
        }
        assert_eq!(LIVE.iter().collect::<BTreeSet<_>>().len(), LIVE.len());
        // Addresses and storage are fixed at the start.
        for (section, key) in [("http", "listen"), ("store", "data"), ("rbac", "mode"), ("query", "listen")] {
            assert!(!is_live(section, key), "`{section}.{key}`");
        }
    }
}
