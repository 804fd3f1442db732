//! Where settings were given, for messages about values that are refused: a line of the file, or a variable.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::values::line_of;

/// Places by section and key, and of sections themselves under an empty key.
#[derive(Debug, Default)]
pub(super) struct Origins(BTreeMap<(String, String), String>);

impl Origins {
    /// The places of what is in a file; none if it is no TOML, which is told elsewhere.
    pub(super) fn of_file(file: &str, text: &str) -> Self {
        let mut origins = Self::default();
        let Ok(table) = DeTable::parse(text) else { return origins };
        let place = |at: usize| format!("line {} of `{file}`", line_of(text, at));
        for (section, values) in table.get_ref() {
            origins.put(section.get_ref(), "", place(section.span().start));
            let DeValue::Table(values) = values.get_ref() else { continue };
            for key in values.keys() {
                origins.put(section.get_ref(), key.get_ref(), place(key.span().start));
            }
        }
        origins
    }

    /// A variable of the environment takes the place of what the file says.
    pub(super) fn variable(&mut self, section: &str, key: &str, name: &str) {
        self.put(section, key, format!("variable `{name}`"));
    }

    /// Forgets the place of a setting that a flag overrides: whoever gave the flag has it in view.
    pub(super) fn flag(&mut self, section: &str, key: &str) {
        self.0.remove(&(section.to_owned(), key.to_owned()));
    }

    /// The text of an error, followed by the place of the first setting that it names.
    pub(super) fn located(&self, text: String) -> String {
        let named = |(section, key): &(String, String)| match key.as_str() {
            "" => text.find(&format!("unknown section `{section}`;")),
            key => {
                let is_unknown = text.starts_with(&format!("unknown setting `{key}`,"));
                let told = |end: char| text.find(&format!("`{section}.{key}{end}"));
                // Messages name a setting inside a list of tables with a dot after the list.
                told('`')
                    .or_else(|| told('.'))
                    .or_else(|| (is_unknown && text.ends_with(&format!(" in `{section}`"))).then_some(0))
            }
        };
        let first = self.0.iter().filter_map(|(name, place)| Some((named(name)?, place))).min_by_key(|(at, _)| *at);
        match first {
            Some((_, place)) => format!("{text} ({place})"),
            None => text,
        }
    }

    fn put(&mut self, section: &str, key: &str, place: String) {
        self.0.insert((section.to_owned(), key.to_owned()), place);
    }
}

#[cfg(test)]
mod tests {
    use super::super::LoadedSettings;

    /// The error for a file with this text, and for variables and flags beside it.
    fn told(text: &str, variables: &[(&str, &str)], flags: &[(&str, &str)]) -> String {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("q.toml");
        std::fs::write(&path, text).unwrap();
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags: Vec<_> = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let error = LoadedSettings::load(Some(&path), variables, &flags).unwrap_err().to_string();
        error.replace(&path.display().to_string(), "q.toml")
    }

    #[test]
    fn lines_of_a_file() {
        for (text, line) in [
            ("# ä\n[http]\nkeep_alive = '5m'\nbody_max = 'x'\n", 4),
            ("http.body_max = 'x'\n", 1),
            ("[http]\nbody_max = 0\n", 2),
            ("[rbac]\n\n\nmode = 'maybe'\n", 4),
            ("[log]\nformat = 5\n", 2),
            ("[log]\nfilter = 'info'\nformt = 'json'\n", 3),
            ("[log]\nformat = 'json'\n[htp]\nlisten = 'x'\n", 3),
            ("[http]\nhosts = ['a',\n 'b c']\n", 2),
            ("[config]\n\ndatabase_url = 'mysql://u:hunter2@h'\n", 3),
            ("[[auth.oidc]]\nissuer = 5\n", 1),
        ] {
            let told = told(text, &[], &[]);
            assert!(told.ends_with(&format!(" (line {line} of `q.toml`)")), "{text}: {told}");
            assert!(!told.contains("hunter2"), "{told}");
        }
        // Of two settings that do not go together, the one that was given is shown.
        let pair = told("[tls]\nkey_file = 'k'\n", &[], &[]);
        assert!(pair.ends_with("(line 2 of `q.toml`)"), "{pair}");
    }

    #[test]
    fn variables_and_flags_above_the_file() {
        let text = "[http]\nbody_max = 'x'\n";
        let of_variable = told(text, &[("QUIVER_HTTP__BODY_MAX", "y")], &[]);
        assert!(of_variable.contains("`y` is not a size"), "{of_variable}");
        assert!(of_variable.ends_with(" in `http.body_max` (variable `QUIVER_HTTP__BODY_MAX`)"), "{of_variable}");
        let unknown = told("", &[("QUIVER_HTTP__BODYMAX", "1")], &[]);
        assert!(unknown.ends_with(" in `http` (variable `QUIVER_HTTP__BODYMAX`)"), "{unknown}");
        let of_flag = told("[store]\nretention = '5d'\n", &[], &[("store.retention", "x")]);
        assert!(of_flag.ends_with(" in `store.retention`"), "{of_flag}");
    }
}
