//! What `quiver check-config` checks besides the values of settings: everything that would make a start fail before it
//! serves.

use std::path::Path;

use quiver_store::object::Storage;
use quiver_types::Result;

use crate::settings::LoadedSettings;
use crate::{alerting, analytics, identity, server, telemetry, wiring};

/// Checks whether a server would start with these settings, as far as that can be told without data directory,
/// network and other processes.
///
/// # Errors
/// Invalid: an address, a file or its contents, the log filter, or the URL of the store.
pub fn check(loaded: &LoadedSettings) -> Result<()> {
    let settings = &loaded.settings;
    telemetry::check(&settings.log)?;
    server::check(loaded)?;
    wiring::admin_token(settings)?;
    identity::check(settings)?;
    alerting::check(settings)?;
    analytics::check_folders(settings)?;
    Storage::open(&wiring::store_settings(settings), Path::new(&settings.store.data)).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_start_refuses() {
        let check = |flags: &[(&str, &str)], said: &str| {
            let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
            let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).unwrap();
            match check(&loaded) {
                Ok(()) => assert_eq!(said, "", "{flags:?}"),
                Err(e) => assert!(!said.is_empty() && e.message.contains(said), "{flags:?}: {e}"),
            }
        };
        check(&[], "");
        check(&[("http.listen", "x")], "`http.listen` is `x`");
        check(&[("http.listen", "0.0.0.0:1"), ("rbac.mode", "off")], "without access control");
        check(&[("http.listen", "0.0.0.0:1")], "");
        check(&[("traces.zipkin_listen", "x")], "traces.zipkin_listen");
        check(&[("store.url", "gopher://x")], "gopher");
        check(&[("http.admin_token_file", "/nothing")], "/nothing");
        check(&[("config.database_url_file", "/nothing")], "`config.database_url_file`: cannot read `/nothing`");
        check(&[("auth.master_key_file", "/nothing/key")], "no folder for the master key `/nothing/key`");
        check(&[("auth.master_key_file", "key")], "");
        let same = [("http.listen", "127.0.0.1:29"), ("otlp.http_listen", "127.0.0.1:29")];
        check(&same, "`otlp.http_listen` is `127.0.0.1:29`, and so is `http.listen`");
        check(&[("http.listen", "127.0.0.1:0"), ("otlp.http_listen", "127.0.0.1:0")], "");
        check(&[("alerting.rules", "[\"/nothing.yml\"]")], "/nothing.yml");
        check(&[("alerting.policy", "/nothing.yml")], "/nothing.yml");
        check(&[("alerting.external_labels", "[\"x\"]")], "name=value");
        check(&[("egress.deny", "[\"10.0.0.0/99\"]")], "egress.deny");
        check(&[("tls.certificate_file", "/nothing"), ("tls.key_file", "/nothing")], "/nothing");
        check(&[("olap.model_dirs", "[\"/nothing\"]")], "`/nothing` (`olap.model_dirs`) is no folder");
        check(&[("olap.table_dirs", "[\"/nothing\"]")], "`/nothing` (`olap.table_dirs`) is no folder");
    }

    /// What the files say is read, too: a server would not start with it.
    #[test]
    fn models_and_tables_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let list = format!("[\"{}\"]", folder.path().display());
        let told = |setting: &'static str| {
            let loaded = LoadedSettings::load(None, std::iter::empty(), &[(setting, list.clone())]).unwrap();
            check(&loaded).map_err(|e| e.message)
        };
        assert_eq!((told("olap.model_dirs"), told("olap.table_dirs")), (Ok(()), Ok(())));
        std::fs::write(folder.path().join("m.yml"), "cubes: [{name: A, sql_tabel: t}]\n").unwrap();
        assert!(told("olap.model_dirs").unwrap_err().contains("did you mean `sql_table`?"));
        std::fs::write(folder.path().join("Prices.csv"), "a\n1\n").unwrap();
        assert!(told("olap.table_dirs").unwrap_err().contains("`Prices` cannot name a table"));
    }
}
