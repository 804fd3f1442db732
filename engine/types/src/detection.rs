//! Detection of business transactions (`config-api` 3.1): which rule a span belongs to, and under which name. One compiled
//! form for ingest, jobs over stored spans, and test endpoints.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use serde_json::{Map, Value};
use xxhash_rust::xxh3::xxh3_128;

use crate::condition::{
    Captures, Case, Condition, ConditionError, Fields, Glob, NameTemplate, Screens, SharedCondition, SharedTests,
    glob_of_services,
};

mod pages;
mod sample;
mod span_batches;

pub use pages::PageRow;
pub use sample::Sample;
pub use span_batches::BatchDetector;

/// What further names of a rule count as.
pub const OTHER: &str = "(other)";
/// The attribute that holds the id of a transaction.
pub const BT_ID: &str = "bt.id";
/// The attribute that holds its name.
pub const BT_NAME: &str = "bt.name";
/// The attribute that holds the id of the rule.
pub const BT_RULE: &str = "bt.rule";
/// The attribute that holds what happened, for transactions of pages.
pub const BT_KIND: &str = "bt.kind";

/// A compiled rule.
#[derive(Debug, Clone)]
#[allow(clippy::struct_excessive_bools, reason = "the switches of a rule as it is configured")]
pub struct DetectionRule {
    /// The entity's id.
    pub id: String,
    /// Rules of a higher priority are asked first; 100 where nothing is said.
    pub priority: i64,
    /// Whether what matches belongs to no transaction.
    pub excludes: bool,
    /// Whether only entry spans are looked at.
    pub entries_only: bool,
    /// Most names; further ones count as [`OTHER`].
    pub names_max: usize,
    service: String,
    /// Of pages: what must have happened; empty: anything.
    kind: String,
    pages: bool,
    condition: Condition,
    template: NameTemplate,
    /// Whether the name has something that the condition captures.
    names_captured: bool,
}

/// A span, as rules look at it.
pub struct Candidate<'a> {
    /// Its service; empty: none.
    pub service: &'a str,
    /// Of pages: what happened (`pageLoad` …); empty for all other spans.
    pub kind: &'a str,
    /// Whether it is a root, or a server's or consumer's span whose parent is remote or absent.
    pub is_entry: bool,
    /// What conditions and name templates of rules read of it.
    pub fields: &'a dyn Fields,
}

impl std::fmt::Debug for Candidate<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Candidate").field("service", &self.service).finish_non_exhaustive()
    }
}

fn text<'a>(body: &'a Map<String, Value>, key: &str) -> &'a str {
    body.get(key).and_then(Value::as_str).unwrap_or_default()
}

impl DetectionRule {
    /// Compiles a rule whose fields have the right types already. `owner` is `service` or `application`.
    ///
    /// # Errors
    /// All that is wrong with it; places are JSON Pointers of the entity.
    pub fn of_json(id: &str, body: &Map<String, Value>, owner: &str) -> Result<Self, Vec<ConditionError>> {
        let mut errors = Vec::new();
        let condition = match Condition::parse(body.get("condition").unwrap_or(&Value::Null)) {
            Ok(condition) => Some(condition),
            Err(found) => {
                errors.extend(
                    found.into_iter().map(|e| ConditionError { pointer: format!("/condition{}", e.pointer), ..e }),
                );
                None
            }
        };
        let template = match text(body, "nameTemplate") {
            // The rule's own name is no template: braces in it are themselves.
            "" => NameTemplate::of_text(text(body, "name")),
            given => match NameTemplate::parse(given) {
                Ok(template) => template,
                Err(why) => {
                    errors.push(ConditionError::new("/nameTemplate", "INVALID_TEMPLATE", why));
                    NameTemplate::of_text("")
                }
            },
        };
        match condition {
            Some(condition) if errors.is_empty() => Ok(Self {
                names_captured: template.names_any(&condition.captured()),
                id: id.to_owned(),
                priority: body.get("priority").and_then(Value::as_i64).unwrap_or(100),
                excludes: text(body, "action") == "exclude",
                entries_only: text(body, "scope") != "any",
                names_max: body.get("maxNames").and_then(Value::as_u64).unwrap_or(500) as usize,
                service: text(body, owner).to_owned(),
                pages: owner == "application",
                kind: if owner == "application" { text(body, "kind").to_owned() } else { String::new() },
                condition,
                template,
            }),
            _ => Err(errors),
        }
    }

    /// Says whether it is about what happens in browsers.
    pub fn is_of_pages(&self) -> bool {
        self.pages
    }

    /// What its regular expressions take in memory, in bytes: see [`Condition::held_bytes`].
    pub fn held_bytes(&self) -> usize {
        self.condition.held_bytes()
    }

    /// Says whether the rule may be about spans of a service.
    pub fn is_for(&self, service: &str) -> bool {
        glob_of_services(if self.service.is_empty() { "*" } else { &self.service }, service)
    }

    /// Gives the name under which an example belongs to the rule, if it does. It counts as a root span, and what it leaves
    /// out fits. No batch bounds the texts of examples: to be called [`in_one_go`](crate::cancellation::in_one_go).
    pub fn name_of_sample(&self, sample: &Sample) -> Option<String> {
        let fits = sample.service.as_deref().is_none_or(|service| self.is_for(service))
            && (self.kind.is_empty() || sample.is_of_kind(&self.kind));
        let mut captures = Captures::new();
        let matches = fits && self.condition.captures(sample, &mut captures);
        matches.then(|| self.template.render(sample, &captures))
    }

    /// Gives the name under which a span belongs to the rule, if it does.
    pub fn name_of(&self, span: &Candidate<'_>) -> Option<String> {
        let fits = self.is_about(span) && self.is_for(span.service) && self.condition.matches(span.fields);
        fits.then(|| self.rendered(span))
    }

    /// Says whether it may be about a span of a service that it is for.
    fn is_about(&self, span: &Candidate<'_>) -> bool {
        (span.is_entry || !self.entries_only) && (self.kind.is_empty() || self.kind == span.kind)
    }

    /// Gives the name of a span that fulfils the condition.
    fn rendered(&self, span: &Candidate<'_>) -> String {
        let mut captures = Captures::new();
        if self.names_captured {
            self.condition.captures(span.fields, &mut captures);
        }
        self.template.render(span.fields, &captures)
    }
}

/// What was found for a span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectedTransaction {
    /// Stable for service and name.
    pub id: String,
    /// The transaction's name.
    pub name: String,
    /// The rule's id.
    pub rule: String,
    /// Of pages: what happened; else empty.
    pub kind: String,
}

/// Gives the id of a transaction: it follows from its service and its name.
pub fn transaction_id(service: &str, name: &str) -> String {
    format!("{:032x}", xxh3_128(&[service, "\0", name].concat().into_bytes()))
}

/// All enabled rules in their order, and the names that they gave.
#[derive(Debug, Default)]
pub struct Detector {
    rules: Vec<DetectionRule>,
    /// What the rules ask, together and each.
    tests: SharedTests,
    /// What many tests of one field look for.
    screens: Screens,
    conditions: Vec<SharedCondition>,
    /// Names of key transactions by service: they are never folded.
    keys: HashMap<String, HashSet<String>>,
    /// Those that are patterns.
    key_patterns: Vec<(String, Glob)>,
    names: Mutex<HashMap<String, HashSet<String>>>,
}

impl Detector {
    /// Puts rules in order: higher priorities first, then older ones (the order in which they come).
    pub fn new(mut rules: Vec<DetectionRule>, keys: HashSet<(String, String)>) -> Self {
        rules.sort_by_key(|rule| -rule.priority);
        let patterns = keys.iter().filter(|(_, name)| name.contains(['*', '{']));
        let key_patterns = patterns
            .filter_map(|(service, name)| Some((service.clone(), Glob::parse(name, Case::Sensitive).ok()?)))
            .collect();
        let mut by_service: HashMap<String, HashSet<String>> = HashMap::new();
        for (service, name) in keys {
            by_service.entry(service).or_default().insert(name);
        }
        let mut tests = SharedTests::default();
        let conditions = rules.iter().map(|rule| tests.add(&rule.condition)).collect();
        let screens = Screens::of(
            (0..tests.len()).filter_map(|test| Some((tests.field(test).clone(), test, tests.sought(test)?))),
        );
        Self { rules, tests, screens, conditions, keys: by_service, key_patterns, names: Mutex::default() }
    }

    /// Takes note of names that were given elsewhere, as far as there is room for them.
    pub fn learn(&self, names: &HashMap<String, HashSet<String>>) {
        let Ok(mut known) = self.names.lock() else { return };
        for rule in &self.rules {
            let own = known.entry(rule.id.clone()).or_default();
            for name in names.get(&rule.id).into_iter().flatten() {
                if own.len() < rule.names_max {
                    own.insert(name.clone());
                }
            }
        }
    }

    /// Goes on counting the names that another one met.
    #[must_use]
    pub fn after(self, earlier: &Self) -> Self {
        let known = earlier.names.lock().map(|names| names.clone()).unwrap_or_default();
        let kept = known.into_iter().filter(|(rule, _)| self.rules.iter().any(|r| r.id == *rule)).collect();
        Self { names: Mutex::new(kept), ..self }
    }

    /// Says whether there is nothing to detect.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The rules in their order.
    pub fn rules(&self) -> &[DetectionRule] {
        &self.rules
    }

    /// Finds what a span belongs to: the first rule that matches decides.
    pub fn detect(&self, span: &Candidate<'_>) -> Option<DetectedTransaction> {
        self.decide(span)?.1
    }

    /// Finds the rule that decides about a span, by its id, and what the span belongs to by it; nothing where the rule
    /// excludes it.
    pub fn decide(&self, span: &Candidate<'_>) -> Option<(&str, Option<DetectedTransaction>)> {
        let (rule, name) = self.rules.iter().find_map(|rule| rule.name_of(span).map(|name| (rule, name)))?;
        Some((&rule.id, self.found(rule, span, name)))
    }

    /// Puts a span that belongs to a rule under its name; nothing where the rule excludes it.
    fn found(&self, rule: &DetectionRule, span: &Candidate<'_>, name: String) -> Option<DetectedTransaction> {
        if rule.excludes {
            return None;
        }
        let name = self.folded(rule, span.service, name);
        let (id, rule) = (transaction_id(span.service, &name), rule.id.clone());
        Some(DetectedTransaction { id, name, rule, kind: span.kind.to_owned() })
    }

    /// The names that rules gave so far, by rule: what another one goes on from ([`Self::knowing`]).
    pub fn names(&self) -> HashMap<String, HashSet<String>> {
        self.names.lock().map(|names| names.clone()).unwrap_or_default()
    }

    /// Goes on counting names that were given before.
    #[must_use]
    pub fn knowing(self, names: HashMap<String, HashSet<String>>) -> Self {
        Self { names: Mutex::new(names), ..self }
    }

    fn folded(&self, rule: &DetectionRule, service: &str, name: String) -> String {
        let is_key = self.keys.get(service).is_some_and(|names| names.contains(&name))
            || self.key_patterns.iter().any(|(of, glob)| of == service && glob.matches(&name));
        if is_key {
            return name;
        }
        let Ok(mut names) = self.names.lock() else { return name };
        if names.get(&rule.id).is_some_and(|known| known.contains(&name)) {
            return name;
        }
        let known = names.entry(rule.id.clone()).or_default();
        if known.len() >= rule.names_max {
            return OTHER.to_owned();
        }
        known.insert(name.clone());
        name
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::*;
    use crate::condition::FieldName;

    struct Route(&'static str);

    impl Fields for Route {
        fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
            (name.to_string() == "http.route").then_some(Cow::Borrowed(self.0))
        }
    }

    fn rule(id: &str, more: Value) -> DetectionRule {
        let mut body = json!({"name": id, "service": "*", "priority": 100,
            "condition": {"field": "http.route", "op": "glob", "value": "/{area}/**"}, "nameTemplate": "{area}"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        DetectionRule::of_json(id, body.as_object().unwrap(), "service").unwrap()
    }

    fn found(detector: &Detector, service: &str, route: &'static str, is_entry: bool) -> Option<(String, String)> {
        let span = Candidate { service, kind: "", is_entry, fields: &Route(route) };
        detector.detect(&span).map(|d| (d.rule, d.name))
    }

    fn pair(rule: &str, name: &str) -> (String, String) {
        (rule.to_owned(), name.to_owned())
    }

    #[test]
    fn the_first_rule_decides() {
        let rules = vec![
            rule("old", json!({})),
            rule("new", json!({})),
            rule(
                "health",
                json!({"priority": 200, "action": "exclude",
                "condition": {"field": "http.route", "op": "startsWith", "value": "/health"}}),
            ),
            rule("cart", json!({"priority": 150, "service": "cart*", "nameTemplate": ""})),
        ];
        let detector = Detector::new(rules, HashSet::new());
        assert_eq!(found(&detector, "front", "/shop/x", true), Some(pair("old", "shop")));
        assert_eq!(found(&detector, "cart-db", "/shop/x", true), Some(pair("cart", "cart")));
        assert_eq!(found(&detector, "front", "/health/x", true), None);
        assert_eq!(found(&detector, "front", "/shop/x", false), None);
        assert_eq!(found(&detector, "front", "shop", true), None);
    }

    #[test]
    fn names_are_bounded() {
        let keys = HashSet::from([("front".to_owned(), "key".to_owned())]);
        let detector = Detector::new(vec![rule("r", json!({"maxNames": 2}))], keys);
        for (route, name) in [("/a/", "a"), ("/b/", "b"), ("/c/", OTHER), ("/a/", "a"), ("/key/", "key")] {
            assert_eq!(found(&detector, "front", route, true), Some(pair("r", name)), "{route}");
        }
        let after = Detector::new(vec![rule("r", json!({"maxNames": 2}))], HashSet::new()).after(&detector);
        assert_eq!(found(&after, "front", "/c/", true), Some(pair("r", OTHER)), "names are known to the next one");
    }

    #[test]
    fn any_span() {
        let detector = Detector::new(vec![rule("r", json!({"scope": "any"}))], HashSet::new());
        assert_eq!(found(&detector, "", "/a/x", false), Some(pair("r", "a")));
    }
}
