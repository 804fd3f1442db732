//! Derives resources and relationships from distinct field values.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use quiver_config::families::joined_key;
use quiver_types::condition::{Captures, FieldName, Fields};
use serde_json::{Map, Value, json};

use super::probes::{Probe, Rule};

/// Most resources, and most relationships, per run.
const FOUND_MAX: usize = 20_000;
/// Longest key, in characters.
const KEY_CHARS_MAX: usize = 1000;
/// Longest value in bytes: a longer one is ignored, since it fits neither a key nor an attribute.
const VALUE_BYTES_MAX: usize = 4 * KEY_CHARS_MAX;
/// With this many services a resource belongs to no single one.
const SERVICES_MAX: usize = 2;

/// Identifies a resource: id of its type, and key.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) kind: String,
    pub(super) key: String,
}

/// A discovered resource.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) name: String,
    pub(super) attributes: Map<String, Value>,
    /// Some of the services that reported it; complete if there is one.
    pub(super) services: BTreeSet<String>,
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
}

impl Resource {
    /// The service that reported it, if it is the only one.
    pub(super) fn service(&self) -> Option<&String> {
        self.services.first().filter(|_| self.services.len() == 1)
    }
}

/// A relationship: key of its type, and both ends.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Link {
    pub(super) kind: &'static str,
    pub(super) from: Key,
    pub(super) to: Key,
}

/// The result of a run.
#[derive(Debug, Default)]
pub(super) struct DerivedResources {
    pub(super) resources: BTreeMap<Key, Resource>,
    pub(super) links: BTreeSet<Link>,
}

/// A row of a query's result.
pub(super) struct ResultRow<'a> {
    pub(super) fields: &'a [FieldName],
    pub(super) values: Vec<Option<String>>,
    pub(super) first_ms: i64,
    pub(super) last_ms: i64,
}

impl Fields for ResultRow<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let at = self.fields.iter().position(|field| field == name)?;
        self.values[at].as_deref().filter(|value| (1..=VALUE_BYTES_MAX).contains(&value.len())).map(Cow::Borrowed)
    }
}

/// Relationships between resources of one row, by keys of types: of several targets the first that exists is used.
const PLACES: [(&str, &str, &[&str]); 10] = [
    ("service_instance", "member_of", &["service"]),
    ("service_instance", "runs_on", &["container", "k8s_pod", "host"]),
    ("process", "runs_on", &["host"]),
    ("container", "runs_on", &["k8s_pod", "host"]),
    ("k8s_pod", "runs_on", &["host"]),
    ("service", "runs_on", &["host"]),
    ("k8s_cluster", "contains", &["k8s_namespace"]),
    ("k8s_namespace", "contains", &["k8s_workload"]),
    ("k8s_namespace", "contains", &["k8s_pod"]),
    ("k8s_workload", "contains", &["k8s_pod"]),
];

/// The relationship of a service to what it calls, by key of the callee's type.
const CALLED: [(&str, &str); 3] = [("database", "calls"), ("external_service", "calls"), ("queue", "connects_to")];

impl Rule {
    /// The resource that a row describes, if the rule matches.
    fn take(&self, told: &ResultRow<'_>) -> Option<(Key, Map<String, Value>, String)> {
        if self.condition.as_ref().is_some_and(|condition| !condition.matches(told)) {
            return None;
        }
        let mut attributes = Map::new();
        let mut parts = Vec::with_capacity(self.keys);
        for (n, (attribute, field)) in self.identity.iter().enumerate() {
            match told.get(field) {
                Some(value) => {
                    if n < self.keys {
                        parts.push(value.to_string());
                    }
                    attributes.insert(attribute.clone(), json!(value));
                }
                None if n < self.keys => return None,
                None => {}
            }
        }
        let key = Key { kind: self.type_id.clone(), key: joined_key(&parts) };
        let name = self.name.render(told, &Captures::new());
        (key.key.chars().count() <= KEY_CHARS_MAX).then_some((key, attributes, name))
    }
}

impl DerivedResources {
    /// Applies the rules of a query to a row of its result.
    pub(super) fn add(&mut self, probe: &Probe, told: &ResultRow<'_>) {
        let service = told.get(&FieldName::parse("service.name")).map(Cow::into_owned);
        let mut here: HashMap<&str, Key> = HashMap::new();
        for rule in &probe.rules {
            let Some((key, attributes, name)) = rule.take(told) else { continue };
            if self.resources.len() >= FOUND_MAX && !self.resources.contains_key(&key) {
                continue;
            }
            here.insert(&rule.type_key, key.clone());
            let (first_ms, last_ms) = (told.first_ms, told.last_ms);
            let one = self.resources.entry(key).or_insert_with(|| Resource {
                name,
                attributes: Map::new(),
                services: BTreeSet::new(),
                first_ms,
                last_ms,
            });
            one.attributes.extend(attributes);
            if one.services.len() < SERVICES_MAX {
                one.services.extend(service.clone());
            }
            one.first_ms = one.first_ms.min(first_ms);
            one.last_ms = one.last_ms.max(last_ms);
        }
        if probe.is_sender {
            for (from, kind, places) in PLACES {
                let to = places.iter().find_map(|place| here.get(place));
                if let (Some(from), Some(to)) = (here.get(from), to) {
                    self.link(kind, from.clone(), to.clone());
                }
            }
        } else if let Some(service) = service {
            for (called, kind) in CALLED {
                if let (Some(to), Some(from)) = (here.get(called), self.service(&service)) {
                    self.link(kind, from, to.clone());
                }
            }
        }
    }

    /// The resource of a service, if one was found.
    fn service(&self, name: &str) -> Option<Key> {
        let key = Key { kind: quiver_config::families::SERVICE_TYPE_ID.to_owned(), key: name.to_owned() };
        self.resources.contains_key(&key).then_some(key)
    }

    /// Adds a call between services.
    pub(super) fn call(&mut self, from: &str, to: &str) {
        if let (Some(from), Some(to)) = (self.service(from), self.service(to)) {
            self.link("calls", from, to);
        }
    }

    fn link(&mut self, kind: &'static str, from: Key, to: Key) {
        if self.links.len() < FOUND_MAX && from != to {
            self.links.insert(Link { kind, from, to });
        }
    }
}

#[cfg(test)]
mod tests {
    use quiver_config::families::{RESOURCE_TYPES, SERVICE_TYPE_ID};

    use super::super::probes::of_types;
    use super::*;

    fn probes() -> Vec<Probe> {
        let types: Vec<quiver_config::Entity> = (RESOURCE_TYPES.builtin)()
            .into_iter()
            .map(|(id, body)| quiver_config::Entity::for_tests(id, body))
            .collect();
        of_types(&types)
    }

    fn told<'a>(probe: &'a Probe, values: &[(&str, &str)]) -> ResultRow<'a> {
        let value = |field: &FieldName| {
            values.iter().find(|(name, _)| FieldName::parse(name) == *field).map(|(_, v)| (*v).to_owned())
        };
        ResultRow { fields: &probe.fields, values: probe.fields.iter().map(value).collect(), first_ms: 5, last_ms: 9 }
    }

    #[test]
    fn built_in_types_share_a_question() {
        let probes = probes();
        assert_eq!(probes.iter().filter(|p| p.is_sender).count(), 1);
        assert_eq!(probes.len(), 4, "one for senders, one each for databases, queues and peers");
    }

    #[test]
    fn resources_and_what_they_stand_on() {
        let probes = probes();
        let mut found = DerivedResources::default();
        let sender = probes.iter().find(|p| p.is_sender).unwrap();
        let pod = [
            ("service.name", "cart"),
            ("resource.service.instance.id", "i1"),
            ("resource.k8s.namespace.name", "shop"),
            ("resource.k8s.pod.name", "cart-1"),
            ("resource.host.name", "h1"),
        ];
        found.add(sender, &told(sender, &pod));
        found.add(sender, &told(sender, &[("service.name", "web"), ("resource.host.name", "h1")]));
        let named = |key: &str| found.resources.iter().find(|(k, _)| k.key == key).map(|(_, r)| r).unwrap();
        assert_eq!(named("cart").service().unwrap(), "cart");
        assert_eq!(named("shop/cart-1").name, "cart-1");
        assert_eq!(named("h1").service(), None, "two services tell of it");
        let links: Vec<(&str, &str, &str)> =
            found.links.iter().map(|l| (l.from.key.as_str(), l.kind, l.to.key.as_str())).collect();
        for one in [
            ("cart/i1", "member_of", "cart"),
            ("cart/i1", "runs_on", "shop/cart-1"),
            ("shop/cart-1", "runs_on", "h1"),
            ("shop", "contains", "shop/cart-1"),
            ("web", "runs_on", "h1"),
        ] {
            assert!(links.contains(&one), "{one:?} in {links:?}");
        }
        let database = probes.iter().find(|p| p.rules[0].type_key == "database").unwrap();
        let call =
            [("service.name", "cart"), ("attributes.db.system", "redis"), ("attributes.server.address", "cache")];
        found.add(database, &told(database, &call));
        found.add(database, &told(database, &[("service.name", "cart"), ("attributes.db.system", "redis")]));
        found.call("web", "cart");
        found.call("web", "nobody");
        let calls: Vec<_> = found.links.iter().filter(|l| l.kind == "calls").map(|l| l.to.key.as_str()).collect();
        assert_eq!(calls.len(), 2, "{calls:?}");
        assert!(calls.contains(&"redis/cache") && calls.contains(&"cart"));
        assert!(found.resources.keys().any(|k| k.kind == SERVICE_TYPE_ID));
    }

    /// Many services or long values cannot make a resource exceed its limits.
    #[test]
    fn what_is_found_is_bounded() {
        let identity = json!({"id": "resource.host.id", "name": "resource.host.name"});
        let rule = json!({"signal": "spans", "identity": identity, "name": "a host"});
        let host = json!({"key": "host", "identityKeys": ["id"], "discovery": [rule]});
        let probes = of_types(&[quiver_config::Entity::for_tests("t", host)]);
        let (probe, mut found) = (&probes[0], DerivedResources::default());
        let long = "x".repeat(VALUE_BYTES_MAX + 1);
        for service in ["a", "b", "c", long.as_str()] {
            let row = [("service.name", service), ("resource.host.id", "h1"), ("resource.host.name", long.as_str())];
            found.add(probe, &told(probe, &row));
        }
        let host = found.resources.values().next().unwrap();
        assert_eq!(host.attributes, json!({"id": "h1"}).as_object().cloned().unwrap());
        assert_eq!((host.services.len(), host.service()), (SERVICES_MAX, None));
    }

    /// A host type whose rules read spans.
    fn hosts(identity: &Value, keys: &Value, more: &Value) -> Vec<Probe> {
        let mut rule = json!({"signal": "spans", "identity": identity, "name": "host"});
        for (name, value) in more.as_object().into_iter().flatten() {
            rule[name] = value.clone();
        }
        of_types(&[quiver_config::Entity::for_tests(
            "t",
            json!({"key": "host", "identityKeys": keys, "discovery": [rule]}),
        )])
    }

    #[test]
    fn keys_are_all_there() {
        let identity = json!({"a": "resource.a", "b": "resource.b", "c": "resource.c"});
        let probes = hosts(&identity, &json!(["b", "a"]), &json!({}));
        let found = |values: &[(&str, &str)]| -> Vec<(String, Value)> {
            let mut found = DerivedResources::default();
            found.add(&probes[0], &told(&probes[0], values));
            found.resources.into_iter().map(|(key, one)| (key.key, Value::Object(one.attributes))).collect()
        };
        let all = [("resource.a", "1"), ("resource.b", "2"), ("resource.c", "3")];
        assert_eq!(found(&all), [("2/1".to_owned(), json!({"a": "1", "b": "2", "c": "3"}))]);
        // The separator within values must not yield the key of another resource.
        assert_eq!(found(&[("resource.a", "1/x"), ("resource.b", "2/y")])[0].0, "2~1y/1/x");
        // Attributes outside of the key may be missing.
        assert_eq!(found(&all[..2]), [("2/1".to_owned(), json!({"a": "1", "b": "2"}))]);
        assert!(found(&all[..1]).is_empty() && found(&all[1..]).is_empty() && found(&[]).is_empty());
        assert!(found(&[("resource.a", "1"), ("resource.b", "")]).is_empty(), "an empty value is none");
        let long = "é".repeat(KEY_CHARS_MAX / 2);
        assert_eq!(
            found(&[("resource.a", long.as_str()), ("resource.b", &long[2..])]).len(),
            1,
            "as long as a key may be"
        );
        assert!(found(&[("resource.a", long.as_str()), ("resource.b", long.as_str())]).is_empty(), "a letter longer");
    }

    #[test]
    fn conditions_choose_rows() {
        let condition = json!({"condition": {"field": "resource.os", "op": "eq", "value": "linux"}});
        let probes = hosts(&json!({"id": "resource.id"}), &json!(["id"]), &condition);
        let count = |values: &[(&str, &str)]| {
            let mut found = DerivedResources::default();
            found.add(&probes[0], &told(&probes[0], values));
            found.resources.len()
        };
        assert_eq!(count(&[("resource.id", "1"), ("resource.os", "linux")]), 1);
        assert_eq!(count(&[("resource.id", "1"), ("resource.os", "other")]), 0);
        assert_eq!(count(&[("resource.id", "1")]), 0);
    }

    #[test]
    fn what_is_told_again_is_one_resource() {
        let probes = hosts(&json!({"id": "resource.id", "os": "resource.os"}), &json!(["id"]), &json!({}));
        let mut found = DerivedResources::default();
        let mut tell = |values: &[(&str, &str)], first_ms: i64, last_ms: i64| {
            found.add(&probes[0], &ResultRow { first_ms, last_ms, ..told(&probes[0], values) });
        };
        tell(&[("resource.id", "1"), ("service.name", "cart")], 10, 20);
        tell(&[("resource.id", "1"), ("resource.os", "linux"), ("service.name", "cart")], 5, 15);
        tell(&[("resource.id", "1")], 12, 30);
        let one = found.resources.values().next().unwrap();
        assert_eq!((found.resources.len(), one.first_ms, one.last_ms), (1, 5, 30));
        assert_eq!(one.attributes, json!({"id": "1", "os": "linux"}).as_object().cloned().unwrap());
        assert_eq!(one.service().map(String::as_str), Some("cart"), "who names none is no second one");
    }

    #[test]
    fn links_have_two_ends() {
        let mut found = DerivedResources::default();
        let key = |key: &str| Key { kind: SERVICE_TYPE_ID.to_owned(), key: key.to_owned() };
        for name in ["a", "b"] {
            let (attributes, services) = (Map::new(), BTreeSet::new());
            let one = Resource { name: name.to_owned(), attributes, services, first_ms: 0, last_ms: 0 };
            found.resources.insert(key(name), one);
        }
        for (from, to) in [("a", "b"), ("a", "b"), ("b", "a"), ("a", "a"), ("a", "none"), ("none", "b")] {
            found.call(from, to);
        }
        let links: Vec<(&str, &str)> = found.links.iter().map(|l| (l.from.key.as_str(), l.to.key.as_str())).collect();
        assert_eq!(links, [("a", "b"), ("b", "a")]);
        assert!(found.links.iter().all(|link| link.kind == "calls"));
    }
}
