use super::*;

fn load(env: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<LoadedSettings, SettingsError> {
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let flags: Vec<_> = flags.iter().map(|(k, v)| (*k, (*v).to_owned())).collect();
    LoadedSettings::load(None, env, &flags)
}

#[test]
fn order_of_sources() {
    let loaded = load(&[], &[]).unwrap();
    assert_eq!(loaded.settings.http.listen, "127.0.0.1:8800");
    assert!(!loaded.is_given("http", "listen"));
    let loaded = load(&[("QUIVER_HTTP__LISTEN", "127.0.0.1:1"), ("QUIVER_QUERY__SAMPLES_MAX", "7")], &[]).unwrap();
    assert_eq!((loaded.settings.http.listen.as_str(), loaded.settings.query.samples_max), ("127.0.0.1:1", 7));
    let loaded = load(&[("QUIVER_HTTP__LISTEN", "a")], &[("http.listen", "127.0.0.1:2")]).unwrap();
    assert_eq!(loaded.settings.http.listen, "127.0.0.1:2");
    assert!(loaded.is_given("http", "listen"));
    assert_eq!(load(&[], &[("store.retention", "none")]).unwrap().settings.store.retention, Span(None));
    let own = load(&[("QUIVER_STORE__RETENTION_LOGS", "none"), ("QUIVER_STORE__RETENTION_TRACES", "2d")], &[]);
    let store = own.unwrap().settings.store;
    assert_eq!((store.retention_metrics, store.retention_logs), (OwnSpan(None), OwnSpan(Some(Span(None)))));
    assert_eq!(store.retention_traces.shown(), "2d");
}

#[test]
fn refusals_name_the_setting() {
    let check = |env: &[(&str, &str)], part: &str| {
        let text = load(env, &[]).unwrap_err().to_string();
        assert!(text.contains(part) && text.lines().count() == 1, "{text}");
    };
    check(&[("QUIVER_HTTP__LISTN", "x")], "listn");
    check(&[("QUIVER_HTP__LISTEN", "x")], "htp");
    check(&[("QUIVER_RBAC__MODE", "maybe")], "rbac.mode");
    check(&[("QUIVER_AUTH__PUBLIC_URL", "quiver.example")], "auth.public_url");
    check(&[("QUIVER_AUTH__KEY_BITS", "1024")], "auth.key_bits");
    check(&[("QUIVER_CONFIG__DATABASE_URL", "mysql://x")], "config.database_url");
    check(&[("QUIVER_HTTP__TRUSTED_PROXIES", "['10.0.0.0/33']")], "10.0.0.0/33");
    check(&[("QUIVER_TLS__KEY_FILE", "x")], "tls.certificate_file");
    check(&[("QUIVER_TLS__CLIENT_CA_FILE", "x")], "tls.client_ca_file");
    check(&[("QUIVER_TLS__CLIENT_REQUIRED", "true")], "tls.client_required");
    check(&[("QUIVER_TLS__RELOAD_INTERVAL", "0s")], "tls.reload_interval");
    check(&[("QUIVER_WAL__LEVEL", "object")], "wal.level");
    check(&[("QUIVER_MEMORY__LIMIT", "1 GB")], "1 GB");
    check(&[("QUIVER_QUERY__TIMEOUT", "none")], "query.timeout");
}

#[test]
fn files_that_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let told = |text: Option<&str>| {
        let path = dir.path().join("quiver.toml");
        if let Some(text) = text {
            std::fs::write(&path, text).unwrap();
        }
        let error = LoadedSettings::load(Some(&path), std::iter::empty(), &[]).unwrap_err();
        // Who prints it prints its cause as well.
        assert!(std::error::Error::source(&error).is_none(), "{error}");
        error.to_string()
    };
    let missing = told(None);
    assert!(missing.contains("quiver.toml`: No such file"), "{missing}");
    let endless = LoadedSettings::load(Some(Path::new("/dev/zero")), std::iter::empty(), &[]).unwrap_err().to_string();
    assert!(endless.ends_with("it is larger than 16777216 bytes"), "{endless}");
    let open = told(Some("[memory"));
    assert!(open.contains("quiver.toml`: line 1, column ") && !open.ends_with('\n'), "{open}");
    // A line may hold a password.
    for (text, place) in [
        ("[config]\n# ä\ndatabase_url = 'postgres://u:hunter2@h/d\n", "line 3, column "),
        ("[config]\ndatabase_url = postgres://u:hunter2@h/d\n", "line 2, column "),
        ("[config]\ndatabase_url = \"hunter2\\q\"\n", "line 2, column "),
        ("[config]\ndatabase_url = 'hunter2' x\n", "line 2, column "),
        ("[config]\ndatabase_url = 'a'\ndatabase_url = 'hunter2'\n", "line 3, column 1: "),
        ("[config]\ndatabase_url = ['hunter2']\n", "expected a text in quotes in `config.database_url`"),
        ("[config]\ndatabase_url = {hunter2 = 1}\n", "expected a text in quotes in `config.database_url`"),
    ] {
        let told = told(Some(text));
        assert!(told.contains(place) && !told.contains("hunter2") && told.lines().count() == 1, "{text}: {told}");
    }
}

#[test]
fn printed_settings_are_settings() {
    let printed: Table = print_settings().parse().unwrap();
    assert_eq!(printed, rendering::defaults().parse::<Table>().unwrap());
    assert!(print_settings().contains("# Address and port; port 0"));
}

#[test]
fn document_is_fresh() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, settings_document()).unwrap();
    }
    let stored = std::fs::read_to_string(path).unwrap_or_default();
    assert!(stored == settings_document(), "docs/settings.md is stale: run the tests with UPDATE=1");
}

/// What is listed can be given again, by the environment, and means the same.
#[test]
fn what_is_listed_is_what_was_given() {
    let first = load(&[], &[]).unwrap().settings.listed();
    let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let name = |section: &str, key: &str| format!("QUIVER_{section}__{key}").to_ascii_uppercase();
    let all = first.iter().map(|(section, key, value)| (name(section, key), text(value)));
    let again = LoadedSettings::load(None, all, &[]).unwrap();
    assert_eq!(again.settings.listed(), first);
    assert!(first.iter().all(|(section, key, _)| again.is_given(section, key)));
    assert_eq!(first.len(), DOCS.len());
}

#[test]
fn each_setting_is_there_once_and_has_a_text() {
    let mut seen = std::collections::BTreeSet::new();
    for doc in DOCS {
        assert!(seen.insert((doc.section, doc.key)), "`{}.{}` is there twice", doc.section, doc.key);
        assert!(SECTIONS.iter().any(|(section, _)| *section == doc.section), "{}", doc.section);
        assert!(!doc.doc.trim().is_empty(), "`{}.{}`", doc.section, doc.key);
        // Variables of the environment are in capitals; two pairs of lines would separate.
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        assert!(doc.key.chars().all(is_plain) && !doc.key.contains("__"), "`{}`", doc.key);
    }
    for (section, text) in SECTIONS {
        assert!(DOCS.iter().any(|doc| doc.section == *section) && !text.trim().is_empty(), "{section}");
    }
}

/// The file is under the environment, and that under the flags; each changes what it names alone.
#[test]
fn a_file_below_the_environment() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quiver.toml");
    let text = "[http]\nlisten = '127.0.0.1:1'\nbody_max = '1MiB'\n\n[ingest]\nservice_labels = ['a', 'b']\n\n\
                [query]\nsamples_max = 5\n";
    std::fs::write(&path, text).unwrap();
    let variables = [("QUIVER_HTTP__LISTEN", "127.0.0.1:2"), ("QUIVER_INGEST__SERVICE_LABELS", "['c']")];
    let load = |flags: &[(&str, &str)]| {
        let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        LoadedSettings::load(Some(&path), variables, &flags).unwrap()
    };
    let loaded = load(&[]);
    let (http, labels) = (&loaded.settings.http, loaded.settings.ingest.service_labels.join(" "));
    assert_eq!((http.listen.as_str(), http.body_max, labels.as_str()), ("127.0.0.1:2", Size(1 << 20), "c"));
    assert_eq!((loaded.settings.query.samples_max, loaded.is_given("query", "samples_max")), (5, true));
    assert!(!loaded.is_given("query", "series_max") && !loaded.is_given("log", "filter") && !loaded.is_given("x", "y"));
    let flags =
        [("http.listen", "127.0.0.1:3"), ("ingest.service_labels", "[\"d\", \"e, f\"]"), ("log.access", "true")];
    let loaded = load(&flags);
    assert_eq!((loaded.settings.http.listen.as_str(), loaded.settings.log.access), ("127.0.0.1:3", true));
    assert_eq!(loaded.settings.ingest.service_labels, ["d", "e, f"]);
    assert_eq!(loaded.settings.http.body_max, Size(1 << 20), "what nobody names stays");
}

/// Text of a flag is text, whatever it looks like.
#[test]
fn flags_are_texts() {
    for text in ["5", "[a]", "'x'", "a = 1", "", "False"] {
        let loaded = load(&[], &[("log.filter", text)]).unwrap();
        assert_eq!(loaded.settings.log.filter, text);
    }
    for (name, text) in [("log.filter", "true"), ("log.access", "yes"), ("http.cors_origins", "a")] {
        assert!(load(&[], &[(name, text)]).is_err(), "{name} = {text}");
    }
}
