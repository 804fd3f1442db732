//! The live policy: a checked configuration with its templates, and its text as shown to users.

use quiver_alerting::config::{self, Config};
use quiver_alerting::template::{Templates, default_templates};
use quiver_types::brief;
use quiver_yaml as yaml;
use quiver_yaml::problem::PROBLEMS_MAX;

use crate::delivery::unsupported;

/// The policy that the router applies: a checked configuration with its templates.
#[derive(Debug, Clone)]
pub struct Policy {
    /// The configuration as it was read.
    pub config: Config,
    /// Built-in templates and those of its files.
    pub templates: Templates,
    /// The configuration as YAML, secrets hidden.
    pub shown: String,
    /// Texts of its templates beside the built-in ones, by name.
    pub texts: Vec<(String, String)>,
    /// Ids of the routes by their numbers, children before their parents; none where routes have no ids.
    pub route_ids: Vec<String>,
}

/// What there is where nobody gave a policy: everything goes to a receiver that sends nothing.
const EMPTY: &str = "route:\n  receiver: empty\nreceivers:\n- name: empty\n";

/// Gives names and texts of the template files that a pattern stands for; or what is wrong.
pub type ReadFiles<'f> = &'f dyn Fn(&str) -> Result<Vec<(String, String)>, String>;

impl Policy {
    /// Reads a configuration; `files` gives names and texts of the template files that a pattern stands for.
    ///
    /// # Errors
    /// Everything that is wrong, a line each.
    pub fn load(text: &str, files: ReadFiles<'_>) -> Result<Self, Vec<String>> {
        let config = Config::load(text).map_err(|p| p.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        let unsupported = undelivered(&config);
        if !unsupported.is_empty() {
            return Err(unsupported);
        }
        Self::with(text, config, files)
    }

    /// Makes a policy of a configuration that was read: integrations that are not delivered are kept, and each message to
    /// them fails.
    ///
    /// # Errors
    /// What is wrong with its template files, a line each.
    pub fn with(text: &str, config: Config, files: ReadFiles<'_>) -> Result<Self, Vec<String>> {
        let mut templates = default_templates();
        let (mut errors, mut texts) = (Vec::new(), Vec::new());
        for pattern in &config.templates {
            match files(pattern) {
                Ok(found) => {
                    if found.is_empty() {
                        tracing::warn!(pattern, "no template file is there");
                    }
                    for (name, text) in found {
                        errors.extend(templates.add(&name, &text).err().map(|e| e.to_string()));
                        texts.push((name, text));
                    }
                }
                Err(e) => errors.push(e),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let shown = config::shown(text).map_err(|e| vec![e.to_string()])?;
        Ok(Self { config, templates, shown: yaml::write(&shown), texts, route_ids: Vec::new() })
    }

    /// Adds a template.
    ///
    /// # Errors
    /// It does not parse; the text says where.
    pub fn add_template(&mut self, name: &str, text: &str) -> Result<(), String> {
        self.templates.add(name, text).map_err(|e| e.to_string())?;
        self.texts.push((name.to_owned(), text.to_owned()));
        Ok(())
    }

    /// Whether messages would be the same by both.
    pub fn is_like(&self, other: &Self) -> bool {
        self.config == other.config && self.texts == other.texts && self.route_ids == other.route_ids
    }

    /// Makes the policy that tells nobody.
    pub fn empty() -> Self {
        Self::load(EMPTY, &|_| Ok(Vec::new())).expect("a test reads it")
    }
}

/// Says which integrations are never delivered, as they are or by their options, a line each. Of very many the first are
/// told, and of a long name its beginning and end: each line names its receiver.
pub fn undelivered(config: &Config) -> Vec<String> {
    let all =
        config.receivers.iter().flat_map(|r| r.integrations.iter().flat_map(unsupported).map(move |why| (r, why)));
    all.take(PROBLEMS_MAX).map(|(r, why)| format!("receiver `{}`: {why}", brief(&r.name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies() {
        assert!(Policy::empty().config.receiver("empty").is_some());
        let load = |receiver: &str, template: &'static str| {
            let text = format!("route: {{receiver: a}}\ntemplates: ['*.tmpl']\nreceivers: [{{name: a, {receiver}}}]\n");
            Policy::load(&text, &|_| Ok(vec![("x.tmpl".to_owned(), template.to_owned())]))
        };
        let policy = load("webhook_configs: [{url: 'http://h/x?key=s3cret'}]", "{{ define \"x\" }}y{{ end }}").unwrap();
        assert!(policy.templates.names().any(|n| n == "x"));
        assert!(policy.shown.contains("<secret>") && !policy.shown.contains("s3cret"));
        let told = load("webhook_configs: [{url: 'http://h'}]", "{{ define").unwrap_err();
        assert!(told[0].contains("x.tmpl"), "{told:?}");
        let told = load("sns_configs: [{topic_arn: x, sigv4: {region: r}}]", "").unwrap_err();
        assert_eq!(told, ["receiver `a`: sns_configs is not supported"]);
        let (name, many) = ("x".repeat(10_000), "{topic_arn: x, sigv4: {region: r}},".repeat(200));
        let text = format!("route: {{receiver: {name}}}\nreceivers: [{{name: {name}, sns_configs: [{many}]}}]\n");
        let told = undelivered(&Config::load(&text).unwrap());
        assert!(told.len() == PROBLEMS_MAX && told.iter().all(|line| line.len() < 5000), "{}", told.len());
        let by_secret = "webhook_configs: [{url: 'http://h'}, {url: 'http://h', http_config: {authorization: {credentials_ref: c}}}]";
        let told = load(by_secret, "").unwrap_err();
        assert_eq!(
            told,
            ["receiver `a`: webhook_configs/1: `http_config.authorization.credentials_ref` is not supported"]
        );
    }
}
