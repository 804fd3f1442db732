//! Settings of a connection: those with an effect, and fixed ones that describe the server.

mod values;

use std::collections::BTreeMap;
use std::time::Duration;

use quiver_sql::Session;

use super::duration;
use crate::postgres::error::Fault;
pub(super) use values::zone_of_interval;
use values::{length, same, search_path, words_of, zone};

/// Settings that are reported to clients at the start, and when they change (`ParameterStatus`).
const TOLD: [&str; 12] = [
    "server_version",
    "server_encoding",
    "client_encoding",
    "DateStyle",
    "IntervalStyle",
    "TimeZone",
    "integer_datetimes",
    "standard_conforming_strings",
    "application_name",
    "is_superuser",
    "session_authorization",
    "default_transaction_read_only",
];
/// Most bytes of a value.
const VALUE_BYTES_MAX: usize = 1024;
/// Most custom settings (`my.setting`).
const OWN_MAX: usize = 64;

/// The settings of a connection: current and initial values.
#[derive(Debug, Clone)]
pub(in crate::postgres) struct Settings {
    pub(in crate::postgres) session: Session,
    began: Session,
    /// The transaction that goes on.
    transaction: Option<Transaction>,
}

/// Values by name.
type Values = BTreeMap<String, String>;

/// The settings of a transaction.
#[derive(Debug, Clone)]
struct Transaction {
    /// As they were before, which a rollback restores.
    before: Values,
    /// As a commit leaves them, without those that hold until its end (`SET LOCAL`).
    after: Values,
}

/// How long a setting keeps a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::postgres) enum SettingScope {
    /// As long as the connection, unless the transaction is rolled back.
    Connection,
    /// Until the transaction ends.
    Transaction,
}

fn invalid(name: &str, value: &str, known: &str) -> Fault {
    Fault::new("22023", format!("setting `{name}` cannot be `{}`: it is {known}", value.escape_debug()))
}

impl Settings {
    /// The settings for a user, on a port with or without TLS, of a server with this limit of connections.
    pub(in crate::postgres) fn new(mut session: Session, has_tls: bool, connections_max: usize) -> Self {
        let (user, most) = (session.user.clone(), connections_max.to_string());
        for (name, value) in [
            ("statement_timeout", "0"),
            ("lock_timeout", "0"),
            ("idle_in_transaction_session_timeout", "0"),
            ("idle_session_timeout", "0"),
            ("application_name", ""),
            ("extra_float_digits", "1"),
            ("bytea_output", "hex"),
            ("client_min_messages", "notice"),
            ("jit", "off"),
            ("row_security", "on"),
            ("is_superuser", "off"),
            ("session_authorization", user.as_str()),
            ("role", "none"),
            ("ssl", if has_tls { "on" } else { "off" }),
            ("max_connections", most.as_str()),
        ] {
            session.settings.insert(name.to_owned(), value.to_owned());
        }
        Self { began: session.clone(), session, transaction: None }
    }

    /// Applies the startup parameters of a client.
    ///
    /// # Errors
    /// As [`Self::set`].
    pub(in crate::postgres) fn begin(&mut self, given: &[(String, String)]) -> Result<(), Fault> {
        for (name, value) in given {
            match name.as_str() {
                "user" | "database" => {}
                "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
                "replication" => return Err(Fault::new("0A000", "nothing is replicated by this protocol")),
                "options" => self.options(value)?,
                name if name.starts_with("_pq_.") => {}
                name => self.set(name, Some(value), SettingScope::Connection)?,
            }
        }
        self.began = self.session.clone();
        Ok(())
    }

    /// Parses `-c name=value` and `--name=value`.
    fn options(&mut self, text: &str) -> Result<(), Fault> {
        let mut words = words_of(text).into_iter();
        while let Some(word) = words.next() {
            let given = match word.strip_prefix("--") {
                Some(given) => Some(given.to_owned()),
                None if word == "-c" => words.next(),
                None => word.strip_prefix("-c").map(str::to_owned),
            };
            let pair = given.as_deref().and_then(|given| given.split_once('='));
            let (name, value) =
                pair.ok_or_else(|| Fault::new("22023", format!("option `{}` is not known", word.escape_debug())))?;
            self.set(&name.replace('-', "_"), Some(value), SettingScope::Connection)?;
        }
        Ok(())
    }

    /// The settings that are reported to clients.
    pub(in crate::postgres) fn reported(&self) -> impl Iterator<Item = (&'static str, String)> {
        TOLD.into_iter()
            .map(|name| (name, self.session.settings.get(&name.to_lowercase()).cloned().unwrap_or_default()))
    }

    /// Sets a value; `None`: the initial one. What holds until the end of a transaction does not last outside of one.
    ///
    /// # Errors
    /// The setting is unknown, or the value is invalid.
    pub(in crate::postgres) fn set(
        &mut self,
        name: &str,
        value: Option<&str>,
        holds: SettingScope,
    ) -> Result<(), Fault> {
        let name = name.to_lowercase();
        let value = match value {
            None => self.began.settings.get(&name).cloned(),
            Some(value) if value.len() > VALUE_BYTES_MAX => {
                return Err(Fault::new("22023", format!("the value of setting `{name}` is too long")));
            }
            Some(value) => Some(self.valid(&name, value.trim())?),
        };
        let put = |values: &mut Values| match &value {
            Some(value) => values.insert(name.clone(), value.clone()),
            None => values.remove(&name),
        };
        match (&mut self.transaction, holds) {
            (Some(transaction), SettingScope::Connection) => {
                put(&mut transaction.after);
                put(&mut self.session.settings);
            }
            (Some(_), SettingScope::Transaction) | (None, SettingScope::Connection) => {
                put(&mut self.session.settings);
            }
            (None, SettingScope::Transaction) => {}
        }
        Ok(())
    }

    /// Begins a transaction, unless one goes on.
    pub(in crate::postgres) fn begin_transaction(&mut self) {
        if self.transaction.is_none() {
            let now = self.session.settings.clone();
            self.transaction = Some(Transaction { before: now.clone(), after: now });
        }
    }

    /// Ends the transaction. Returns whether settings have other values than before its end.
    pub(in crate::postgres) fn end_transaction(&mut self, is_kept: bool) -> bool {
        let Some(Transaction { before, after }) = self.transaction.take() else { return false };
        let values = if is_kept { after } else { before };
        let is_other = values != self.session.settings;
        self.session.settings = values;
        is_other
    }

    /// The normalized value.
    fn valid(&self, name: &str, value: &str) -> Result<String, Fault> {
        let lower = value.to_lowercase();
        let only = |good: bool, known: &str| if good { Ok(value.to_owned()) } else { Err(invalid(name, value, known)) };
        match name {
            "timezone" => zone(value).ok_or_else(|| invalid(name, value, "the name of a time zone, or hours from UTC")),
            "statement_timeout" => {
                let known = "a number of milliseconds, or one with a unit such as `5s`; 0: none";
                duration(value).map(length).ok_or_else(|| invalid(name, value, known))
            }
            // There are no locks.
            "lock_timeout" => duration(value).map(length).ok_or_else(|| invalid(name, value, "a time")),
            "idle_in_transaction_session_timeout" | "idle_session_timeout" => {
                only(duration(value).is_some_and(|d| d.is_zero()), "0; `postgres.idle_timeout` of the server holds")
            }
            "client_encoding" => {
                // Only letters and digits distinguish encodings, as in PostgreSQL: asyncpg sends its own in quotes.
                let bare: String = lower.chars().filter(char::is_ascii_alphanumeric).collect();
                only(matches!(bare.as_str(), "utf8" | "unicode" | "default"), "UTF8").map(|_| "UTF8".to_owned())
            }
            "datestyle" => only(lower.contains("iso") || matches!(lower.as_str(), "mdy" | "dmy" | "ymd"), "ISO")
                .map(|_| "ISO, MDY".to_owned()),
            "intervalstyle" => only(lower == "postgres", "postgres"),
            "bytea_output" => only(lower == "hex", "hex"),
            "standard_conforming_strings" => {
                only(matches!(lower.as_str(), "on" | "true" | "1"), "on").map(|_| "on".to_owned())
            }
            "extra_float_digits" => {
                only(value.parse().is_ok_and(|n: i32| (-15..=3).contains(&n)), "a number from -15 to 3")
            }
            "default_transaction_read_only" | "transaction_read_only" => {
                if matches!(lower.as_str(), "on" | "true" | "1" | "yes") {
                    return Ok("on".to_owned());
                }
                Err(Fault::new("25006", format!("setting `{name}` is `on`: statements only read")))
            }
            "default_transaction_isolation" | "transaction_isolation" => Ok(lower),
            "search_path" => search_path(value).ok_or_else(|| {
                invalid(name, value, "a list of `public`, `quiver`, `olap`, `pg_catalog`, `information_schema`")
            }),
            "role" => only(lower == "none" || value == self.session.user, "none"),
            "application_name" | "client_min_messages" | "row_security" | "jit" => Ok(value.to_owned()),
            // The first of what `pg_dump` sets that no other client does.
            "synchronize_seqscans" => {
                let text = "there is nothing here for `pg_dump`; `COPY (SELECT …) TO STDOUT` gives rows, and `quiver backup` \
                            copies the server's data";
                Err(Fault::new("0A000", text))
            }
            _ if name.contains('.') => self.own(name, value),
            // Setting a fixed value to itself is allowed.
            _ if self.session.settings.get(name).is_some_and(|known| same(known, value)) => {
                Ok(self.session.settings[name].clone())
            }
            _ if self.session.settings.contains_key(name) => {
                Err(Fault::new("55P02", format!("setting `{name}` cannot be changed")))
            }
            _ => Err(Fault::new("42704", format!("there is no setting `{}`", name.escape_debug()))),
        }
    }

    /// A custom setting, which has no effect.
    fn own(&self, name: &str, value: &str) -> Result<String, Fault> {
        let count = self.session.settings.keys().filter(|known| known.contains('.') && *known != name).count();
        if count >= OWN_MAX || name.len() > VALUE_BYTES_MAX {
            return Err(Fault::new("54000", format!("a connection has at most {OWN_MAX} settings of its own")));
        }
        Ok(value.to_owned())
    }

    /// Resets everything to its initial value.
    pub(in crate::postgres) fn reset(&mut self) {
        self.session = Session { backend: self.session.backend, ..self.began.clone() };
        if let Some(transaction) = &mut self.transaction {
            transaction.after.clone_from(&self.session.settings);
        }
    }

    /// The value of a setting.
    ///
    /// # Errors
    /// There is no such setting.
    pub(in crate::postgres) fn show(&self, name: &str) -> Result<String, Fault> {
        let found = self.session.settings.get(&name.to_lowercase()).cloned();
        found.ok_or_else(|| Fault::new("42704", format!("there is no setting `{}`", name.escape_debug())))
    }

    /// The time limit of statements; `None`: the server's.
    pub(in crate::postgres) fn statement_timeout(&self) -> Option<Duration> {
        let value = self.session.settings.get("statement_timeout")?;
        duration(value).filter(|timeout| !timeout.is_zero())
    }

    /// The time zone for output.
    pub(in crate::postgres) fn time_zone(&self) -> Option<String> {
        let zone = self.session.settings.get("timezone").filter(|zone| *zone != "UTC")?;
        // Hours stand as `<+02>-02`, and those of POSIX count westwards.
        let hours = zone.strip_prefix('<').and_then(|rest| rest.split_once('>'));
        let east = match hours {
            Some((east, _)) => east.to_owned(),
            None => match zone.split_at_checked(1) {
                Some(("+", hours)) => format!("-{hours}"),
                Some(("-", hours)) => format!("+{hours}"),
                _ => return Some(zone.clone()),
            },
        };
        Some(if east.len() == "+02".len() { east + ":00" } else { east })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> Settings {
        Settings::new(Session::of("ann"), false, 7)
    }

    /// Sets a value. Returns the resulting value, or the code of the error.
    fn set(name: &str, value: &str) -> Result<String, &'static str> {
        let mut settings = settings();
        settings.set(name, Some(value), SettingScope::Connection).map_err(|fault| fault.code)?;
        Ok(settings.show(name).expect("it was set"))
    }

    #[test]
    fn values_that_settings_take() {
        for (name, value, expected) in [
            ("TimeZone", "Europe/Berlin", "Europe/Berlin"),
            ("timezone", "europe/BERLIN", "Europe/Berlin"),
            ("timezone", "america/port-au-prince", "America/Port-au-Prince"),
            ("timezone", "est5edt", "EST5EDT"),
            ("timezone", "utc", "UTC"),
            ("timezone", "default", "UTC"),
            ("timezone", "2", "<+02>-02"),
            ("timezone", "-3.5", "<-03:30>+03:30"),
            ("timezone", "+05:30", "+05:30"),
            ("timezone", "<-03:30>+03:30", "<-03:30>+03:30"),
            ("timezone", "<+00>-00", "<+00>-00"),
            ("statement_timeout", "5s", "5s"),
            ("statement_timeout", " 250 ", "250ms"),
            ("statement_timeout", "5000", "5s"),
            ("statement_timeout", "90 s", "90s"),
            ("statement_timeout", "60min", "1h"),
            ("statement_timeout", "24h", "1d"),
            ("statement_timeout", "1.5s", "1500ms"),
            ("statement_timeout", "1500us", "2ms"),
            ("statement_timeout", "400us", "0"),
            ("lock_timeout", "1min", "1min"),
            ("idle_session_timeout", "0", "0"),
            ("client_encoding", "'utf-8'", "UTF8"),
            ("client_encoding", "UNICODE", "UTF8"),
            ("DateStyle", "ISO, DMY", "ISO, MDY"),
            ("datestyle", "ymd", "ISO, MDY"),
            ("intervalstyle", "postgres", "postgres"),
            ("standard_conforming_strings", "1", "on"),
            ("extra_float_digits", "-15", "-15"),
            ("default_transaction_read_only", "true", "on"),
            ("transaction_isolation", "SERIALIZABLE", "serializable"),
            ("search_path", "\"$user\", public", "public"),
            ("search_path", "quiver,pg_catalog", "quiver, pg_catalog"),
            ("search_path", "\"$user\"", ""),
            ("search_path", " ", ""),
            ("search_path", "\"\"", ""),
            ("role", "none", "none"),
            ("role", "ann", "ann"),
            ("application_name", "a b", "a b"),
            ("my.own", "x", "x"),
            // A fixed setting can be set to its value.
            ("server_encoding", "utf8", "UTF8"),
            ("ssl", "false", "off"),
            ("is_superuser", "no", "off"),
        ] {
            assert_eq!(set(name, value), Ok(expected.to_owned()), "{name} = {value}");
        }
    }

    #[test]
    fn values_that_they_do_not_take() {
        for (name, value, code) in [
            ("timezone", "Nowhere/None", "22023"),
            ("timezone", "15", "22023"),
            ("timezone", "-14.5", "22023"),
            ("timezone", "nan", "22023"),
            ("timezone", "inf", "22023"),
            ("statement_timeout", "-1", "22023"),
            ("statement_timeout", "5 weeks", "22023"),
            ("statement_timeout", "99999999999999999999", "22023"),
            ("statement_timeout", "18446744073709551615d", "22023"),
            ("statement_timeout", "2147483648", "22023"),
            ("statement_timeout", "1.2.3", "22023"),
            ("idle_session_timeout", "5s", "22023"),
            ("client_encoding", "latin1", "22023"),
            ("datestyle", "german", "22023"),
            ("intervalstyle", "iso_8601", "22023"),
            ("bytea_output", "escape", "22023"),
            ("standard_conforming_strings", "off", "22023"),
            ("extra_float_digits", "4", "22023"),
            ("default_transaction_read_only", "off", "25006"),
            ("search_path", "public, mine", "22023"),
            ("search_path", "public,", "22023"),
            ("search_path", ",", "22023"),
            ("role", "bob", "22023"),
            ("server_version", "16", "55P02"),
            ("ssl", "on", "55P02"),
            ("synchronize_seqscans", "off", "0A000"),
            ("nosuch", "1", "42704"),
        ] {
            assert_eq!(set(name, value), Err(code), "{name} = {value}");
        }
        assert_eq!(set("application_name", &"x".repeat(VALUE_BYTES_MAX + 1)), Err("22023"));
        assert_eq!(settings().show("nosuch").map_err(|fault| fault.code), Err("42704"));
    }

    #[test]
    fn applications_have_some_settings_of_their_own() {
        let mut settings = settings();
        for at in 0..OWN_MAX {
            assert_eq!(settings.set(&format!("my.s{at}"), Some("1"), SettingScope::Connection), Ok(()));
        }
        assert_eq!(
            settings.set("my.more", Some("1"), SettingScope::Connection).map_err(|fault| fault.code),
            Err("54000")
        );
        // Changing an existing one does not add to the number.
        assert_eq!(settings.set("MY.S0", Some("2"), SettingScope::Connection), Ok(()));
        assert_eq!(settings.show("my.s0"), Ok("2".to_owned()));
        settings.set("my.s0", None, SettingScope::Connection).expect("it goes");
        assert_eq!(settings.set("my.more", Some("1"), SettingScope::Connection), Ok(()));
        assert!(settings.show("MY.MORE").is_ok() && settings.show("my.s0").is_err());
    }

    #[test]
    fn transactions_take_settings_along() {
        let mut settings = settings();
        let shown = |settings: &Settings| settings.show("statement_timeout").expect("it is known");
        let put = |settings: &mut Settings, value: &str, holds| {
            settings.set("statement_timeout", Some(value), holds).expect("a value");
        };
        // Outside of a transaction nothing ends.
        put(&mut settings, "9s", SettingScope::Transaction);
        assert_eq!(shown(&settings), "0");
        put(&mut settings, "1s", SettingScope::Connection);
        for (is_kept, after) in [(true, "2s"), (false, "1s")] {
            settings.begin_transaction();
            put(&mut settings, "2s", SettingScope::Connection);
            put(&mut settings, "3s", SettingScope::Transaction);
            // Another `BEGIN` begins nothing.
            settings.begin_transaction();
            assert_eq!(shown(&settings), "3s");
            assert!(settings.end_transaction(is_kept));
            assert_eq!(shown(&settings), after);
            put(&mut settings, "1s", SettingScope::Connection);
        }
        settings.begin_transaction();
        put(&mut settings, "3s", SettingScope::Transaction);
        put(&mut settings, "4s", SettingScope::Connection);
        assert!(!settings.end_transaction(true));
        assert_eq!(shown(&settings), "4s");
        settings.begin_transaction();
        settings.reset();
        assert_eq!(shown(&settings), "0");
        assert!(!settings.clone().end_transaction(true));
        assert!(settings.end_transaction(false) && !settings.end_transaction(false));
        assert_eq!(shown(&settings), "4s");
    }

    #[test]
    fn hours_of_zones_count_eastwards_and_those_of_posix_westwards() {
        for (value, expected) in [
            ("2", "+02:00"),
            ("-3.5", "-03:30"),
            ("+02", "+02:00"),
            ("+05:30", "-05:30"),
            ("-03:00", "+03:00"),
            ("Europe/Berlin", "Europe/Berlin"),
        ] {
            let mut settings = settings();
            settings.set("timezone", Some(value), SettingScope::Connection).expect("a zone");
            assert_eq!(settings.time_zone().as_deref(), Some(expected), "{value}");
        }
        assert_eq!(settings().time_zone(), None);
    }

    #[test]
    fn options_are_settings() {
        let mut settings = settings();
        let options = r"-c application_name=my\ app --my.own=a\\b\ c -csearch_path=quiver,\ public";
        settings.begin(&[("options".to_owned(), options.to_owned())]).expect("a beginning");
        let shown = ["application_name", "my.own", "search_path"].map(|name| settings.show(name).expect("it was set"));
        assert_eq!(shown, ["my app", r"a\b c", "quiver, public"]);
    }

    #[test]
    fn a_connection_begins_with_what_its_client_says() {
        let begun = |pairs: &[(&str, &str)]| {
            let mut settings = settings();
            let given: Vec<_> = pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            settings.begin(&given).map(|()| settings).map_err(|fault| fault.code)
        };
        let mut settings = begun(&[
            ("user", "ann"),
            ("database", "any"),
            ("replication", "off"),
            ("_pq_.extension", "1"),
            ("application_name", "psql"),
            ("options", "-c statement_timeout=5s --lock-timeout=1s -ctimezone=3 --my.own=a"),
        ])
        .expect("a beginning");
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(5)));
        assert_eq!(settings.time_zone().as_deref(), Some("+03:00"));
        // A reset restores the initial value, and not the server's.
        for (name, value) in [("application_name", "other"), ("statement_timeout", "0"), ("timezone", "utc")] {
            settings.set(name, Some(value), SettingScope::Connection).expect("a value");
        }
        assert_eq!((settings.statement_timeout(), settings.time_zone()), (None, None));
        settings.set("application_name", None, SettingScope::Connection).expect("it is known");
        assert_eq!(settings.show("application_name"), Ok("psql".to_owned()));
        settings.reset();
        assert_eq!(settings.statement_timeout(), Some(Duration::from_secs(5)));
        let told: Vec<_> = settings.reported().collect();
        assert!(told.contains(&("application_name", "psql".to_owned())), "{told:?}");
        assert!(told.contains(&("session_authorization", "ann".to_owned())), "{told:?}");
        for (name, value, code) in [
            ("replication", "database", "0A000"),
            ("options", "-d", "22023"),
            ("options", "-c", "22023"),
            ("options", "-c jit", "22023"),
            ("options", "--nosuch=1", "42704"),
            ("nosuch", "1", "42704"),
        ] {
            assert_eq!(begun(&[(name, value)]).map(drop), Err(code), "{name}={value}");
        }
    }
}
