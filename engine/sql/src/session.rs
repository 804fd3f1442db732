//! What a statement may ask about its connection.

use std::collections::BTreeMap;

/// Name of the one database that clients of PostgreSQL see.
pub const DATABASE: &str = "quiver";
/// The PostgreSQL release whose dialect, catalog and protocol are implemented; clients choose their queries by it.
pub const SERVER_VERSION: &str = "15.0";

/// The user and settings of a connection. Each HTTP request has a new session; a connection of the PostgreSQL protocol
/// keeps one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    /// The value of `current_user`.
    pub user: String,
    /// Number of the connection; 0 for HTTP.
    pub backend: i32,
    /// The settings that `current_setting` and `SHOW` read, by lower-case name.
    pub settings: BTreeMap<String, String>,
}

/// Read-only settings that describe this server, with their values.
const FIXED: [(&str, &str); 30] = [
    ("server_version", SERVER_VERSION),
    ("server_version_num", "150000"),
    ("server_encoding", "UTF8"),
    ("client_encoding", "UTF8"),
    ("standard_conforming_strings", "on"),
    ("integer_datetimes", "on"),
    ("datestyle", "ISO, MDY"),
    ("intervalstyle", "postgres"),
    ("timezone", "UTC"),
    ("transaction_isolation", "repeatable read"),
    ("default_transaction_isolation", "repeatable read"),
    ("transaction_deferrable", "off"),
    ("default_transaction_deferrable", "off"),
    ("lc_collate", "C"),
    ("lc_ctype", "C"),
    ("lc_messages", "C"),
    ("lc_monetary", "C"),
    ("lc_numeric", "C"),
    ("lc_time", "C"),
    ("array_nulls", "on"),
    ("in_hot_standby", "off"),
    ("max_prepared_transactions", "0"),
    ("session_replication_role", "origin"),
    ("transaction_read_only", "on"),
    ("default_transaction_read_only", "on"),
    ("search_path", "public, quiver"),
    ("max_identifier_length", "63"),
    ("max_index_keys", "32"),
    ("default_table_access_method", "heap"),
    ("default_tablespace", ""),
];

impl Default for Session {
    fn default() -> Self {
        Self {
            user: "anonymous".to_owned(),
            backend: 0,
            settings: FIXED.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        }
    }
}

impl Session {
    /// Makes a session of a user; an empty name means `anonymous`.
    pub fn of(user: &str) -> Self {
        let user = if user.is_empty() { "anonymous" } else { user };
        Self { user: user.to_owned(), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_begins_with_what_the_server_is() {
        let session = Session::of("ann");
        // Each setting once, by the name that clients are looked up by.
        assert_eq!(session.settings.len(), FIXED.len());
        assert!(session.settings.keys().all(|name| *name == name.to_lowercase()));
        // Clients compare the two, and set the path by what it is.
        let major = |setting: &str| session.settings[setting].chars().take(2).collect::<String>();
        assert_eq!(major("server_version"), major("server_version_num"));
        assert_eq!((session.user.as_str(), session.backend), ("ann", 0));
        assert_eq!(Session::of(""), Session::default());
    }
}
