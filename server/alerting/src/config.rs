//! A whole Alertmanager configuration: globals, routes, receivers, inhibition, intervals, names of template files.
//!
//! Everything that Alertmanager checks when it loads is checked; files of secrets and templates are named, not opened.

mod patterns;
mod redaction;
mod secret_recipients;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use quiver_yaml::problem::{Code, Problem, Problems};
use quiver_yaml::{self as yaml, Fields, Node, NodeKind, pointer};

use crate::inhibition::InhibitRule;
use crate::intervals::{TimeInterval, read_list};
use crate::matcher_fields::ReadContext;
use crate::options::Options;
use crate::receivers::{self, Integration};
use crate::routes::{Route, RouteConfig};

pub use patterns::is_pattern;
pub use redaction::{config_json, global_secrets, integrations_json, json_of, receiver_secrets, shown};
pub use secret_recipients::{borrowed_secrets, moved_secrets};

/// A receiver: a name and the integrations that notify it.
#[derive(Debug, Clone, PartialEq)]
pub struct Receiver {
    /// Name by which routes call it; unlike that of any other receiver.
    pub name: String,
    /// Its labels, `name` included.
    pub labels: BTreeMap<String, String>,
    /// Its integrations, in the order of their kinds.
    pub integrations: Vec<Integration>,
}

/// A whole Alertmanager configuration, read and checked, in the order of its sections.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Globals, with their defaults.
    pub global: Options,
    /// The tree as it is written.
    pub route: RouteConfig,
    /// Receivers, in the order in which they are written.
    pub receivers: Vec<Receiver>,
    /// Rules by which alerts that fire mute others.
    pub inhibit_rules: Vec<InhibitRule>,
    /// Intervals by name.
    pub time_intervals: BTreeMap<String, Vec<TimeInterval>>,
    /// Patterns of template files.
    pub templates: Vec<String>,
    /// What is accepted and ignored, or may be meant otherwise.
    pub warnings: Vec<String>,
}

/// Longest configuration, in bytes.
pub const BYTES_MAX: usize = 16 << 20;
/// Most memory of its routes with what they inherit, in bytes.
const ROUTES_BYTES_MAX: usize = 32 << 20;
/// Most memory of what its integrations take over from the globals, in bytes.
const GLOBALS_BYTES_MAX: usize = 64 << 20;

/// Global options, which integrations copy, and how many bytes of copies are still allowed.
#[derive(Debug)]
struct Globals<'a> {
    options: &'a Options,
    bytes: usize,
    /// How much of them may still be taken over.
    bytes_left: usize,
}

impl<'a> Globals<'a> {
    fn new(options: &'a Options) -> Self {
        Self { options, bytes: options.text_bytes(), bytes_left: GLOBALS_BYTES_MAX }
    }

    /// Gives the globals to one more integration, which may copy all of them; `None` if all copies together would take too
    /// much.
    fn for_one(&mut self) -> Option<&'a Options> {
        self.bytes_left = self.bytes_left.checked_sub(self.bytes)?;
        Some(self.options)
    }
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub fn load(text: &str) -> Result<Self, Problems> {
        let mut documents = yaml::read(text)?;
        let node = match documents.len() {
            0 => Node { place: quiver_yaml::problem::Place { line: 1, column: 1 }, kind: NodeKind::Null },
            _ => documents.remove(0),
        };
        if let Some(second) = documents.first() {
            return Err(second.problem("", Code::Malformed, "a configuration is one document").into());
        }
        Self::read(&node, None)
    }

    /// Reads a configuration that inherits globals where it has none of its own.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub fn load_with(text: &str, global: &Options) -> Result<Self, Problems> {
        let documents = yaml::read(text)?;
        let empty = Node { place: quiver_yaml::problem::Place { line: 1, column: 1 }, kind: NodeKind::Null };
        Self::read(documents.first().unwrap_or(&empty), Some(global))
    }

    /// Reads a configuration from its tree; `inherited` are the globals where it has none.
    ///
    /// # Errors
    /// Everything that is wrong, each with its place.
    pub fn read(node: &Node, inherited: Option<&Options>) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let mut reading = ReadContext::default();
        let Some(mut fields) = Fields::new(node, "", &mut problems) else { return Err(problems) };
        let global = match (fields.some("global"), inherited) {
            (None, Some(inherited)) => inherited.clone(),
            (own, _) => receivers::global(own, "/global", &mut problems),
        };
        let route_node = fields.some("route");
        let route = if let Some(node) = route_node {
            RouteConfig::read(node, "/route", &mut reading, &mut problems)
        } else {
            fields.problem("route", Code::Required, "no routes provided", &mut problems);
            RouteConfig::default()
        };
        let inhibit = fields.list("inhibit_rules", &mut problems).unwrap_or_default();
        let inhibit_rules = inhibit
            .iter()
            .enumerate()
            .map(|(i, n)| InhibitRule::read(n, &pointer("/inhibit_rules", i), &mut reading, &mut problems))
            .collect();
        let nodes = fields.list("receivers", &mut problems).unwrap_or_default();
        let mut globals = Globals::new(&global);
        let receivers: Vec<Receiver> = nodes
            .iter()
            .enumerate()
            .filter_map(|(i, n)| Receiver::read(n, &pointer("/receivers", i), &mut globals, &mut problems))
            .collect();
        check_unique(&receivers, nodes, &mut problems);
        let templates = fields.texts("templates", &mut problems).unwrap_or_default();
        if let Some(NodeKind::List(items)) = node.get("templates").map(|templates| &templates.kind) {
            patterns::check(items, &mut problems);
        }
        let mut time_intervals = BTreeMap::new();
        for (field, word) in [("mute_time_intervals", "mute time interval"), ("time_intervals", "time interval")] {
            let items = fields.list(field, &mut problems).unwrap_or_default();
            named_intervals(items, field, word, &mut time_intervals, &mut problems);
        }
        for name in ["tracing", "event_recorder"] {
            if fields.take(name).is_some() {
                reading.warnings.push(format!("`{name}` is ignored"));
            }
        }
        fields.finish(&mut problems);
        let names: BTreeSet<&str> = receivers.iter().map(|r| r.name.as_str()).collect();
        if route_node.is_some() {
            check_root(&route, &mut problems);
            check_references(&route, &names, &time_intervals, &mut problems);
            check_memory(&route, &mut problems);
        }
        let warnings = reading.warnings;
        problems.or(Self { global, route, receivers, inhibit_rules, time_intervals, templates, warnings })
    }

    /// Builds the tree of routes.
    pub fn routes(&self) -> Route {
        Route::new(&self.route)
    }

    /// Finds a receiver.
    pub fn receiver(&self, name: &str) -> Option<&Receiver> {
        self.receivers.iter().find(|r| r.name == name)
    }
}

impl Receiver {
    /// Reads a receiver with its integrations, and gives them what they inherit.
    fn read(node: &Node, path: &str, globals: &mut Globals<'_>, problems: &mut Problems) -> Option<Self> {
        let mut fields = Fields::new(node, path, problems)?;
        let name = fields.text("name", problems).unwrap_or_default();
        if name.is_empty() {
            fields.problem("name", Code::Required, "missing name in receiver", problems);
        }
        let mut labels = fields.text_map("labels", problems).unwrap_or_default();
        if let Some(other) = labels.get("name").filter(|other| **other != name) {
            let message = format!("receiver label \"name\" must match receiver name \"{name}\", got \"{other}\"");
            fields.problem("labels", Code::InvalidValue, message, problems);
        }
        labels.insert("name".to_owned(), name.clone());
        let mut integrations = Vec::new();
        for &kind in receivers::KINDS {
            let items = fields.list(kind.field, problems).unwrap_or_default();
            let path = fields.path_of(kind.field);
            for (i, item) in items.iter().enumerate() {
                let path = pointer(&path, i);
                let Some(global) = globals.for_one() else {
                    let message = format!("all receivers take over more than {GLOBALS_BYTES_MAX} bytes of the globals");
                    problems.push(item.problem(&path, Code::InvalidValue, message));
                    break;
                };
                let options = kind.read(item, &path, global, problems);
                integrations.extend(options.map(|options| Integration { kind, idx: i, options }));
            }
        }
        fields.finish(problems);
        Some(Self { name, labels, integrations })
    }
}

fn check_unique(receivers: &[Receiver], nodes: &[Node], problems: &mut Problems) {
    let mut seen = HashSet::new();
    for (i, receiver) in receivers.iter().enumerate() {
        if !receiver.name.is_empty() && !seen.insert(receiver.name.as_str()) {
            let message = format!("notification config name \"{}\" is not unique", receiver.name);
            let node = nodes.get(i).map(|n| n.place).unwrap_or_default();
            problems.push(Problem { place: node, path: pointer("/receivers", i), code: Code::Duplicate, message });
        }
    }
}

fn named_intervals(
    items: &[Node],
    field: &str,
    word: &str,
    out: &mut BTreeMap<String, Vec<TimeInterval>>,
    problems: &mut Problems,
) {
    for (i, item) in items.iter().enumerate() {
        let path = pointer(&pointer("", field), i);
        let Some(mut fields) = Fields::new(item, path.clone(), problems) else { continue };
        let name = fields.text("name", problems).unwrap_or_default();
        if name.is_empty() {
            fields.problem("name", Code::Required, format!("missing name in {word}"), problems);
        }
        let intervals = match fields.some("time_intervals") {
            Some(node) => read_list(node, &fields.path_of("time_intervals"), problems),
            None => Vec::new(),
        };
        fields.finish(problems);
        if out.insert(name.clone(), intervals).is_some() {
            problems.push(item.problem(&path, Code::Duplicate, format!("{word} \"{name}\" is not unique")));
        }
    }
}

fn check_root(route: &RouteConfig, problems: &mut Problems) {
    let checks = [
        (route.receiver.is_none(), "receiver", "root route must specify a default receiver"),
        (!route.matchers.is_empty(), "matchers", "root route must not have any matchers"),
        (
            !route.mute_time_intervals.is_empty(),
            "mute_time_intervals",
            "root route must not have any mute time intervals",
        ),
        (
            !route.active_time_intervals.is_empty(),
            "active_time_intervals",
            "root route must not have any active time intervals",
        ),
        (route.continues, "continue", "cannot have continue in root route"),
    ];
    for (_, field, message) in checks.into_iter().filter(|check| check.0) {
        let code = if field == "receiver" { Code::Required } else { Code::InvalidValue };
        problems.push(Problem {
            place: route.place,
            path: format!("/route/{field}"),
            code,
            message: message.to_owned(),
        });
    }
}

fn check_memory(route: &RouteConfig, problems: &mut Problems) {
    if route.tree_bytes() > ROUTES_BYTES_MAX {
        let message = format!("the routes take more than {ROUTES_BYTES_MAX} bytes of memory with what they inherit");
        let path = "/route".to_owned();
        problems.push(Problem { place: route.place, path, code: Code::InvalidValue, message });
    }
}

fn check_references(
    route: &RouteConfig,
    receivers: &BTreeSet<&str>,
    intervals: &BTreeMap<String, Vec<TimeInterval>>,
    problems: &mut Problems,
) {
    route.walk("/route", &mut |route, path| {
        let mut unknown = |path: String, message: String| {
            problems.push(Problem { place: route.place, path, code: Code::UnknownReference, message });
        };
        if let Some(name) = route.receiver.as_ref().filter(|name| !receivers.contains(name.as_str())) {
            unknown(format!("{path}/receiver"), format!("undefined receiver \"{name}\" used in route"));
        }
        let named = [
            ("active_time_intervals", &route.active_time_intervals),
            ("mute_time_intervals", &route.mute_time_intervals),
        ];
        for (field, names) in named {
            for name in names.iter().filter(|name| !intervals.contains_key(*name)) {
                unknown(format!("{path}/{field}"), format!("undefined time interval \"{name}\" used in route"));
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Config::load(text).expect_err(text).to_string()
    }

    #[test]
    fn a_small_one() {
        let config =
            Config::load("route: {receiver: a}\nreceivers: [{name: a, webhook_configs: [{url: 'http://x'}]}]\n")
                .expect("valid");
        assert_eq!(config.receivers[0].integrations.len(), 1);
        assert_eq!(config.receiver("a").map(|r| r.labels["name"].clone()), Some("a".to_owned()));
        assert_eq!(config.global.text("smtp_hello"), "localhost");
        assert!(config.receivers[0].integrations[0].send_resolved());
    }

    /// What is inherited is copied: a text of 100 kB that 1000 others inherit is one of 100 MB.
    #[test]
    fn what_is_inherited_has_bounds() {
        let (long, receivers) = ("x".repeat(100_000), "receivers: [{name: a}]");
        let routes = |count: usize| {
            let children = "{continue: true},".repeat(count);
            format!("route: {{receiver: a, labels: {{l: {long}}}, routes: [{children}]}}\n{receivers}\n")
        };
        assert!(Config::load(&routes(100)).is_ok());
        assert!(error(&routes(1000)).contains("with what they inherit"));
        let integrations = |count: usize| {
            let hooks = "{url: 'http://x'},".repeat(count);
            let headers = format!("http_headers: {{X-Long: {{values: [{long}]}}}}");
            let receivers = format!("receivers: [{{name: a, webhook_configs: [{hooks}]}}]");
            format!("global: {{http_config: {{{headers}}}}}\nroute: {{receiver: a}}\n{receivers}\n")
        };
        assert!(Config::load(&integrations(100)).is_ok());
        assert!(error(&integrations(1000)).contains("of the globals"));
    }

    #[test]
    fn refused() {
        let check = |text: &str, expected: &str| assert!(error(text).contains(expected), "{text}: {}", error(text));
        check("", "no routes provided");
        check(
            "route: {receiver: a}\nreceivers: [{name: a}]\ntemplates: ['*.tmpl', '[']",
            "syntax error in pattern `[`",
        );
        check("route: {receiver: a}", "undefined receiver \"a\"");
        check("route: {receiver: a, continue: true}\nreceivers: [{name: a}]", "cannot have continue in root route");
        check(
            "route: {receiver: a}\nreceivers: [{name: a}, {name: a}]",
            "notification config name \"a\" is not unique",
        );
        check(
            "route: {receiver: a}\nreceivers: [{name: a}]\ntime_intervals: [{name: t}, {name: t}]",
            "time interval \"t\" is not unique",
        );
        check(
            "route: {receiver: a}\nreceivers: [{name: a, foo_configs: []}]",
            "3:1: unknown field".trim_start_matches("3:1: "),
        );
        check("foo: 1\nroute: {receiver: a}\nreceivers: [{name: a}]", "1:1: unknown field `foo`");
        check("BAD", "wanted a mapping");
        check(
            "route: {receiver: a}\nreceivers: [{name: a, webhook_configs: [{url: 'ftp://x'}]}]",
            "unsupported scheme \"ftp\"",
        );
        check("route: {receiver: a}\nreceivers: [{name: a, webhook_configs: [~]}]", "missing webhook config");
        check(
            "route: {receiver: a}\nreceivers: [{name: a, webhook_configs: [{url: 'http://x', timeout: 1}, {url: 'http://{{', max_alerts: -1}]}]",
            "invalid template syntax",
        );
    }
}
