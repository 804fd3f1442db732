//! The kinds of integrations, and the entries of a receiver. Each kind is a table in a file of its own; `receivers`
//! lists them.

use quiver_yaml::Node;
use quiver_yaml::problem::{Code, Problems};

use crate::options::{OptionValue, Options, Schema};

/// A kind of integration.
#[derive(Debug)]
pub struct IntegrationKind {
    /// The name in group keys, metrics and history, such as `webhook`.
    pub name: &'static str,
    /// The field of a receiver that lists its integrations.
    pub field: &'static str,
    /// Whether resolved alerts are sent by default.
    pub sends_resolved: bool,
    /// Whether this server can deliver it; others are validated and stored only.
    pub is_delivered: bool,
    /// Whether an entry may be null, which means all defaults.
    pub(super) may_be_empty: bool,
    /// Fields of an entry, with their defaults.
    pub schema: &'static Schema,
    /// Applies the global options to an entry. Fails if a required one is missing.
    pub(super) inherit: fn(&mut Options, &Options) -> Result<(), String>,
}

/// One integration of a receiver.
#[derive(Debug, Clone)]
pub struct Integration {
    /// What it calls: a webhook, a mailbox, a chat.
    pub kind: &'static IntegrationKind,
    /// Its index among the integrations of its kind.
    pub idx: usize,
    /// Its options, including inherited ones.
    pub options: Options,
}

impl PartialEq for Integration {
    fn eq(&self, other: &Self) -> bool {
        (self.kind.name, self.idx, &self.options) == (other.kind.name, other.idx, &other.options)
    }
}

impl IntegrationKind {
    /// Reads the options of an entry and applies the global ones; `None`: it is empty, which this kind must not be.
    pub(crate) fn read(&self, node: &Node, path: &str, global: &Options, problems: &mut Problems) -> Option<Options> {
        let before = problems.len();
        let mut options = if node.is_null() {
            if !self.may_be_empty {
                problems.push(node.problem(path, Code::Required, format!("missing {} config", self.name)));
                return None;
            }
            self.schema.defaults()
        } else {
            self.schema.read(node, path, problems)
        };
        if problems.len() == before
            && let Err(e) = (self.inherit)(&mut options, global)
        {
            problems.push(node.problem(path, Code::Required, e));
        }
        Some(options)
    }

    /// Gives the options of an entry that has none of its own, as far as the globals tell them.
    pub(crate) fn inherited(&self, global: &Options) -> Options {
        let mut options = self.schema.defaults();
        // What the globals lack each entry must say itself.
        drop((self.inherit)(&mut options, global));
        options
    }
}

impl Integration {
    /// Whether it sends resolved alerts.
    pub fn send_resolved(&self) -> bool {
        match self.options.value("send_resolved") {
            Some(OptionValue::Truth(value)) => *value,
            _ => self.kind.sends_resolved,
        }
    }
}

/// What an entry inherits that needs no more than HTTP.
pub(super) fn inherit_http(options: &mut Options, global: &Options) -> Result<(), String> {
    options.inherit_value("http_config", global, "http_config");
    Ok(())
}

/// What an entry inherits that calls an interface with a key: the global ones are `<prefix>_api_url`, `_api_key` and
/// `_api_key_file`. Fails with one of the messages if there is no URL, or no key.
pub(super) fn inherit_api(
    options: &mut Options,
    global: &Options,
    prefix: &str,
    [no_url, no_key]: [&str; 2],
) -> Result<(), String> {
    inherit_http(options, global)?;
    for name in ["api_url", "api_key", "api_key_file"] {
        options.inherit(name, global, &format!("{prefix}_{name}"));
    }
    if !options.has("api_url") {
        return Err(no_url.to_owned());
    }
    if !options.has("api_key") && !options.has("api_key_file") {
        return Err(no_key.to_owned());
    }
    Ok(())
}
