//! Settings in environment variables: `QUIVER_SECTION__KEY`.

use std::ffi::OsString;

use toml::{Table, Value};

use super::{DOCS, Doc, SettingsError};

/// Quiver's environment variables, except the one that names the settings file. Only these must be UTF-8.
///
/// # Errors
/// Invalid: one of them is not UTF-8.
pub fn variables(all: impl Iterator<Item = (OsString, OsString)>) -> Result<Vec<(String, String)>, SettingsError> {
    let is_ours = |name: &String| name.starts_with("QUIVER_") && name != "QUIVER_CONFIG";
    let ours = all.filter_map(|(name, text)| Some((name.into_string().ok().filter(is_ours)?, text)));
    let in_text = |(name, text): (String, OsString)| match text.into_string() {
        Ok(text) => Ok((name, text)),
        Err(_) => Err(SettingsError::Invalid(format!("the variable `{name}` is not UTF-8"))),
    };
    ours.map(in_text).collect()
}

/// Section, key and value of a variable; `None` if it is not a setting.
///
/// # Errors
/// A name that looks like a setting but is none.
pub(super) fn read(name: &str, text: &str) -> Result<Option<(String, String, Value)>, SettingsError> {
    let Some(path) = name.strip_prefix("QUIVER_").map(str::to_ascii_lowercase) else { return Ok(None) };
    if let Some((section, key)) = path.split_once("__") {
        return Ok(Some((section.to_owned(), key.to_owned(), literal(text))));
    }
    // Other names may be anything, such as the variables that Kubernetes sets for a service (`QUIVER_SERVICE_HOST`).
    let is_meant = |doc: &&Doc| path.strip_prefix(doc.section).and_then(|rest| rest.strip_prefix('_')) == Some(doc.key);
    let Some(doc) = DOCS.iter().find(is_meant) else { return Ok(None) };
    let meant = format!("QUIVER_{}__{}", doc.section, doc.key).to_ascii_uppercase();
    Err(SettingsError::Invalid(format!("`{name}` is no setting; write `{meant}`")))
}

/// Parses a value as TOML; otherwise it is a string.
pub(super) fn literal(text: &str) -> Value {
    let parsed = format!("v = {text}").parse::<Table>().ok();
    parsed.and_then(|mut t| t.remove("v")).unwrap_or_else(|| Value::String(text.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks if another program's environment variable, in Latin-1, prevents the start.
    #[test]
    fn variables_of_others_may_hold_any_bytes() {
        use std::os::unix::ffi::OsStringExt as _;

        let pair = |name: &[u8], text: &[u8]| (OsString::from_vec(name.to_vec()), OsString::from_vec(text.to_vec()));
        let others = [
            pair(b"USER", b"M\xfcller"),
            pair(b"M\xfcll", b"x"),
            pair(b"QUIVER_M\xfcll", b"x"),
            pair(b"QUIVER_CONFIG", b"/etc/M\xfcller.toml"),
        ];
        assert!(variables(others.clone().into_iter()).unwrap().is_empty());
        let ours = pair(b"QUIVER_STORE__DATA", "/srv/Müller".as_bytes());
        let expected = ("QUIVER_STORE__DATA".to_owned(), "/srv/Müller".to_owned());
        assert_eq!(variables(others.into_iter().chain([ours])).unwrap(), [expected]);
        for name in ["QUIVER_STORE__DATA", "QUIVER_ADMIN_PASSWORD", "QUIVER_MASTER_KEY_FILE"] {
            let told = variables(std::iter::once(pair(name.as_bytes(), b"M\xfcller"))).unwrap_err().to_string();
            assert!(told.ends_with(&format!("the variable `{name}` is not UTF-8")), "{told}");
        }
    }

    #[test]
    fn names() {
        let check = |name: &str, expected: Option<(&str, &str)>| {
            let found = read(name, "1").unwrap();
            assert!(found.as_ref().is_none_or(|(.., value)| *value == Value::Integer(1)), "{name}");
            let found = found.as_ref().map(|(section, key, _)| (section.as_str(), key.as_str()));
            assert_eq!(found, expected, "{name}");
        };
        check("QUIVER_MEMORY__LIMIT", Some(("memory", "limit")));
        check("QUIVER_HTP__BODY_MAX", Some(("htp", "body_max")));
        for of_others in
            ["QUIVER_SERVICE_HOST", "QUIVER_PORT_8800_TCP", "QUIVER_ADMIN_PASSWORD", "QUIVER_", "MEMORY__LIMIT"]
        {
            check(of_others, None);
        }
        for (name, meant) in
            [("QUIVER_MEMORY_LIMIT", "QUIVER_MEMORY__LIMIT"), ("QUIVER_AUTH_PUBLIC_URL", "QUIVER_AUTH__PUBLIC_URL")]
        {
            let told = read(name, "1").unwrap_err().to_string();
            assert!(told.contains(&format!("`{name}` is no setting; write `{meant}`")), "{told}");
        }
    }

    /// A value that is valid TOML is parsed; any other is a string.
    #[test]
    fn values() {
        let text = |text: &str| Value::String(text.to_owned());
        for (given, expected) in [
            ("1", Value::Integer(1)),
            ("-5", Value::Integer(-5)),
            ("1.5", Value::Float(1.5)),
            ("true", Value::Boolean(true)),
            ("'x'", text("x")),
            ("\"a b\"", text("a b")),
            ("['a', 'b']", Value::Array(vec![text("a"), text("b")])),
            ("[]", Value::Array(Vec::new())),
            ("", text("")),
            ("x", text("x")),
            ("True", text("True")),
            ("15s", text("15s")),
            ("127.0.0.1:8800", text("127.0.0.1:8800")),
            ("/a/b c", text("/a/b c")),
            ("'x", text("'x")),
            ("[a", text("[a")),
            ("quiver=debug,info", text("quiver=debug,info")),
            ("postgres://u:p@h/d", text("postgres://u:p@h/d")),
        ] {
            assert_eq!(literal(given), expected, "{given}");
        }
    }

    #[test]
    fn names_in_any_case_behind_the_prefix() {
        let found = |name: &str| read(name, "x").ok().flatten().map(|(section, key, _)| format!("{section}.{key}"));
        assert_eq!(found("QUIVER_Http__Listen").as_deref(), Some("http.listen"));
        assert_eq!(found("QUIVER_OTLP__HTTP_LISTEN").as_deref(), Some("otlp.http_listen"));
        // Only the first double underscore separates.
        assert_eq!(found("QUIVER_A__B__C").as_deref(), Some("a.b__c"));
        assert_eq!(found("quiver_http__listen"), None);
    }
}
