//! Types of managed resources: their attributes, identity keys, and discovery rules (`config-api` 4).

use futures::future::BoxFuture;
use quiver_database::Connection;
use quiver_types::condition::NameTemplate;
use quiver_types::{Domain, Right};
use serde_json::{Map, Value, json};

use super::attributes::{ATTRIBUTE, ATTRIBUTES_MAX, Attributes, rules as attribute_rules};
use super::body::{conditions_bytes, id_link, text, texts};
use super::ci_ancestors::{line, no_clash};
use super::names;
use crate::entity::{DraftContent, find};
use crate::family::{ChangeContext, Family, OnDelete};
use crate::fields::{Field, FieldKind};
use crate::problem::{FieldError, Problem, Result};

/// Most discovery rules per type.
const DISCOVERY_MAX: usize = 20;

const DISCOVERY: &[Field] = &[
    Field::required("signal", FieldKind::Word(&["metrics", "logs", "spans"])),
    Field::open("condition", FieldKind::Condition, "null"),
    Field::required("identity", FieldKind::Labels),
    Field::required("name", FieldKind::Text { min: 1, max: 200 }),
];

/// Types of managed resources, and how resources are discovered in telemetry.
pub const RESOURCE_TYPES: Family = Family {
    name: names::RESOURCE_TYPES,
    path: "/platform-api/resource-types",
    domain: Domain::Resources,
    write: Right::Edit,
    fields: &[
        Field::required("key", FieldKind::Slug),
        Field::open("ciClassId", FieldKind::Id, "null"),
        Field::open("ciSubclassId", FieldKind::Id, "null"),
        Field::open("icon", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("category", FieldKind::Text { min: 0, max: 200 }, "\"\""),
        Field::open("attributes", FieldKind::List { of: ATTRIBUTE, max: ATTRIBUTES_MAX }, "[]"),
        Field::open("identityKeys", FieldKind::Texts { max: 10 }, "[]"),
        Field::open("discovery", FieldKind::List { of: DISCOVERY, max: DISCOVERY_MAX }, "[]"),
    ],
    unique: &[&["key"], &["name"]],
    links: |body| {
        let mut links = id_link(body, "ciClassId", &["ci-classes"], OnDelete::Refuse);
        links.extend(id_link(body, "ciSubclassId", &["ci-subclasses"], OnDelete::Refuse));
        links
    },
    rules,
    patterns_bytes: Some(|body| conditions_bytes(body, "discovery")),
    builtin,
    prepare: Some(prepare),
    ..Family::BASE
};

fn rules(body: &Map<String, Value>, errors: &mut Vec<FieldError>) {
    attribute_rules(body, errors);
    let discovery = body.get("discovery").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    for (n, rule) in discovery.iter().filter_map(Value::as_object).enumerate() {
        let mut put = |key: String, code, why: String| {
            errors.push(FieldError::new(format!("/discovery/{n}/{key}"), code, why));
        };
        if let Err(why) = NameTemplate::parse(text(rule, "name")) {
            put("name".to_owned(), "INVALID_TEMPLATE", why);
        }
        let identity = rule.get("identity").and_then(Value::as_object);
        for key in texts(body, "identityKeys").filter(|key| identity.is_none_or(|map| !map.contains_key(*key))) {
            put("identity".to_owned(), "REQUIRED", format!("must say where `{key}` comes from"));
        }
    }
    if !discovery.is_empty() && texts(body, "identityKeys").next().is_none() {
        errors.push(FieldError::new("/identityKeys", "REQUIRED", "what is discovered needs an identity"));
    }
}

/// The attributes of resources of a type: from type, subclass and class.
pub(super) async fn attributes_of(db: &mut Connection, body: &Map<String, Value>) -> Result<Attributes> {
    let mut all = Attributes::default();
    all.add(body);
    for other in above(db, body).await? {
        all.add(&other);
    }
    Ok(all)
}

async fn above(db: &mut Connection, body: &Map<String, Value>) -> Result<Vec<Map<String, Value>>> {
    let mut found = Vec::new();
    let mut class = text(body, "ciClassId").to_owned();
    if let Some(subclass) = find(db, "ci-subclasses", text(body, "ciSubclassId")).await? {
        if class.is_empty() {
            text(&subclass.body, "classId").clone_into(&mut class);
        }
        found.push(subclass.body);
    }
    found.extend(line(db, &class).await?.into_iter().map(|(_, body)| body));
    Ok(found)
}

/// Checks that the subclass belongs to the class, and that identity keys are attributes.
pub(super) async fn type_fits(db: &mut Connection, body: &Map<String, Value>) -> Result<()> {
    let class = text(body, "ciClassId");
    if let Some(subclass) = find(db, "ci-subclasses", text(body, "ciSubclassId")).await?
        && !class.is_empty()
        && text(&subclass.body, "classId") != class
    {
        return Err(Problem::field("/ciSubclassId", "INVALID_VALUE", "is a subclass of another class"));
    }
    no_clash(body, above(db, body).await?.iter())?;
    let known = attributes_of(db, body).await?;
    let unknown = texts(body, "identityKeys").enumerate().filter(|(_, key)| known.type_of(key).is_none());
    let errors: Vec<FieldError> = unknown
        .map(|(n, key)| {
            let why = format!("`{key}` is no attribute of the type");
            FieldError::new(format!("/identityKeys/{n}"), "UNKNOWN_REFERENCE", why)
        })
        .collect();
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(errors)) }
}

fn prepare<'a>(
    db: &'a mut Connection,
    _: &'a ChangeContext<'a>,
    draft: &'a mut DraftContent,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(type_fits(db, &draft.body))
}

/// Key, name, category, and the telemetry field of each identity key.
type BuiltinType = (&'static str, &'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The built-in types.
const BUILTIN: [BuiltinType; 13] = [
    ("service", "Service", "application", &[("service.name", "service.name")]),
    (
        "service_instance",
        "Service instance",
        "application",
        &[("service.name", "service.name"), ("service.instance.id", "resource.service.instance.id")],
    ),
    ("host", "Host", "infrastructure", &[("host.name", "resource.host.name")]),
    (
        "process",
        "Process",
        "infrastructure",
        &[("host.name", "resource.host.name"), ("process.pid", "resource.process.pid")],
    ),
    ("container", "Container", "infrastructure", &[("container.id", "resource.container.id")]),
    ("k8s_cluster", "Kubernetes cluster", "kubernetes", &[("k8s.cluster.name", "resource.k8s.cluster.name")]),
    ("k8s_namespace", "Kubernetes namespace", "kubernetes", &[("k8s.namespace.name", "resource.k8s.namespace.name")]),
    (
        "k8s_workload",
        "Kubernetes workload",
        "kubernetes",
        &[
            ("k8s.namespace.name", "resource.k8s.namespace.name"),
            ("k8s.deployment.name", "resource.k8s.deployment.name"),
        ],
    ),
    (
        "k8s_pod",
        "Kubernetes pod",
        "kubernetes",
        &[("k8s.namespace.name", "resource.k8s.namespace.name"), ("k8s.pod.name", "resource.k8s.pod.name")],
    ),
    (
        "database",
        "Database",
        "data",
        &[("db.system", "attributes.db.system"), ("server.address", "attributes.server.address")],
    ),
    (
        "queue",
        "Queue",
        "data",
        &[
            ("messaging.system", "attributes.messaging.system"),
            ("messaging.destination.name", "attributes.messaging.destination.name"),
        ],
    ),
    ("browser_app", "Browser application", "application", &[("application", "resource.browser.application")]),
    ("external_service", "External service", "application", &[("peer.service", "attributes.peer.service")]),
];

/// Attributes of built-in types besides their identity that users fill in; analytics shows those of services.
const SAID: [(&str, &[&str]); 1] = [("service", &["team", "service.criticality"])];

/// The id of the built-in type of services.
pub const SERVICE_TYPE_ID: &str = "00000000-0000-7000-8000-000000000101";

/// The id of a built-in type, by its index.
fn builtin_id(n: usize) -> &'static str {
    const IDS: [&str; 13] = [
        SERVICE_TYPE_ID,
        "00000000-0000-7000-8000-000000000102",
        "00000000-0000-7000-8000-000000000103",
        "00000000-0000-7000-8000-000000000104",
        "00000000-0000-7000-8000-000000000105",
        "00000000-0000-7000-8000-000000000106",
        "00000000-0000-7000-8000-000000000107",
        "00000000-0000-7000-8000-000000000108",
        "00000000-0000-7000-8000-000000000109",
        "00000000-0000-7000-8000-00000000010a",
        "00000000-0000-7000-8000-00000000010b",
        "00000000-0000-7000-8000-00000000010c",
        "00000000-0000-7000-8000-00000000010d",
    ];
    IDS[n]
}

fn builtin() -> Vec<(&'static str, Value)> {
    let one = |(n, (key, name, category, identity)): (usize, &BuiltinType)| {
        let said = SAID.iter().filter(|(of, _)| of == key).flat_map(|(_, keys)| *keys);
        let identities = identity.iter().map(|(key, _)| json!({"key": key, "required": true}));
        let attributes: Vec<Value> = identities.chain(said.map(|key| json!({"key": key}))).collect();
        let keys: Vec<&str> = identity.iter().map(|(key, _)| *key).collect();
        let fields: Map<String, Value> =
            identity.iter().map(|(key, field)| ((*key).to_owned(), json!(field))).collect();
        let exist: Vec<Value> = identity.iter().map(|(_, field)| json!({"field": field, "op": "exists"})).collect();
        let (_, last) = identity[identity.len() - 1];
        let discovery = json!([{"signal": "spans", "condition": {"all": exist}, "identity": fields,
            "name": format!("{{{last}}}")}]);
        (
            builtin_id(n),
            json!({"key": key, "name": name, "description": "built in", "category": category, "icon": key,
                "attributes": attributes, "identityKeys": keys, "discovery": discovery}),
        )
    };
    BUILTIN.iter().enumerate().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wrong(body: &Value) -> Vec<String> {
        let mut errors = Vec::new();
        rules(body.as_object().expect("an object"), &mut errors);
        errors.into_iter().map(|e| format!("{} {}", e.field, e.code)).collect()
    }

    #[test]
    fn what_is_discovered_has_an_identity() {
        let check = |keys: Value, discovery: Value, expected: &[&str]| {
            assert_eq!(wrong(&json!({"identityKeys": keys, "discovery": discovery})), expected, "{keys} {discovery}");
        };
        let by = |identity: Value| json!([{"name": "{x}", "identity": identity}]);
        check(json!([]), json!([]), &[]);
        check(json!(["a"]), json!([]), &[]);
        check(json!(["a"]), by(json!({"a": "f", "more": "g"})), &[]);
        check(json!([]), by(json!({"a": "f"})), &["/identityKeys REQUIRED"]);
        check(json!(["a", "b"]), by(json!({"b": "f"})), &["/discovery/0/identity REQUIRED"]);
        check(json!(["a", "b"]), by(json!({})), &["/discovery/0/identity REQUIRED", "/discovery/0/identity REQUIRED"]);
        let two = json!([{"name": "{x", "identity": {"a": "f"}}, {"name": "}", "identity": null}]);
        let expected = [
            "/discovery/0/name INVALID_TEMPLATE",
            "/discovery/1/name INVALID_TEMPLATE",
            "/discovery/1/identity REQUIRED",
        ];
        check(json!(["a"]), two, &expected);
    }

    #[test]
    fn what_is_built_in_holds_together() {
        let all = builtin();
        assert_eq!((all[0].0, &all[0].1["key"]), (SERVICE_TYPE_ID, &json!("service")));
        let mut ids: Vec<&str> = all.iter().map(|(id, _)| *id).collect();
        ids.dedup();
        assert_eq!(ids.len(), BUILTIN.len(), "each has an id of its own");
        assert!(ids.is_sorted());
        for (id, body) in &all {
            assert!(wrong(body).is_empty(), "{id}");
            let required: Vec<&str> = body["attributes"]
                .as_array()
                .expect("attributes")
                .iter()
                .filter(|attribute| attribute["required"] == json!(true))
                .filter_map(|attribute| attribute["key"].as_str())
                .collect();
            let keys: Vec<&str> = texts(body.as_object().expect("an object"), "identityKeys").collect();
            assert_eq!(required, keys, "{id}: what makes identity is there");
            let mut errors = Vec::new();
            for field in RESOURCE_TYPES.all_fields().filter(|field| body.get(field.name).is_some()) {
                field.kind.check(&body[field.name], field.name, &mut errors);
            }
            assert!(errors.is_empty(), "{id} {errors:?}");
        }
    }
}
