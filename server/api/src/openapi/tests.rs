use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{members, operation, whole};

/// Routes of a router with their methods; empty: whatever the method. Its debug form lists both.
fn routes_of(router: &impl std::fmt::Debug) -> BTreeMap<String, BTreeSet<String>> {
    let text = format!("{router:?}");
    let number = |text: &str| text.split_once(')').map(|(n, rest)| (n.trim().to_owned(), rest.to_owned()));
    let (mut methods, mut paths) = (BTreeMap::new(), BTreeMap::new());
    for piece in text.split("RouteId(").skip(1) {
        let Some((id, rest)) = number(piece) else { continue };
        if let Some(path) = rest.strip_prefix(": \"").and_then(|rest| rest.split('"').next()) {
            paths.insert(path.to_owned(), id);
        } else if rest.starts_with(": MethodRouter") {
            let allowed = rest.split("allow_header: Bytes(b\"").nth(1).and_then(|rest| rest.split('"').next());
            let allowed = allowed.unwrap_or_default().split(',').filter(|m| !m.is_empty()).map(str::to_lowercase);
            methods.insert(id, allowed.collect());
        }
    }
    let found = paths.into_iter().map(|(path, id)| (path, methods.get(&id).cloned().unwrap_or_default()));
    found.filter(|(path, _)| !path.contains("__private__axum") && path != "/").collect()
}

#[test]
fn every_route_is_described() {
    let document = whole();
    let mut described: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, item) in members(&document, "paths") {
        described.insert(path.clone(), item.as_object().expect("an item").keys().cloned().collect());
    }
    let (mut missing, mut routes) = (Vec::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for router in crate::router::all_routes() {
        for (path, methods) in routes_of(&router) {
            routes.entry(operation::template(&path)).or_default().extend(methods);
        }
    }
    assert!(routes.len() > 250, "only {} routes found: does a router still show its paths?", routes.len());
    assert!(routes.values().filter(|methods| !methods.is_empty()).count() > 200, "does a router show its methods?");
    for (path, methods) in &routes {
        // An empty parameter of a template that stands beside it.
        if path.contains("//") {
            continue;
        }
        let none = BTreeSet::new();
        let known = described.get(path).unwrap_or(&none);
        if known.is_empty() {
            missing.push(format!("{path} {methods:?}"));
        }
        let lacking = methods.iter().filter(|m| !known.contains(*m) && *m != "head");
        missing.extend(lacking.map(|m| format!("{path} {m}")));
    }
    for (path, known) in &described {
        match routes.get(path) {
            None => missing.push(format!("{path} is described and not there")),
            // Empty: any method.
            Some(methods) if methods.is_empty() => {}
            Some(methods) => {
                let idle = known.difference(methods);
                missing.extend(idle.map(|m| format!("{path} {m} is described and not there")));
            }
        }
    }
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

#[test]
fn references_lead_somewhere() {
    fn walk(value: &Value, document: &Value, seen: &mut usize) {
        match value {
            Value::Object(map) => {
                if let Some(Value::String(at)) = map.get("$ref") {
                    let place = at.strip_prefix('#').expect("a reference within the document");
                    assert!(document.pointer(place).is_some(), "{at} leads nowhere");
                    *seen += 1;
                }
                map.values().for_each(|v| walk(v, document, seen));
            }
            Value::Array(items) => items.iter().for_each(|v| walk(v, document, seen)),
            _ => {}
        }
    }
    let (document, mut seen) = (whole(), 0);
    walk(&document, &document, &mut seen);
    assert!(seen > 1000, "only {seen} references");
    assert!(document["openapi"].as_str().is_some_and(|v| v.starts_with("3.1")), "{}", document["openapi"]);
}

/// Clients are made of the document: they cannot send what it does not say.
#[test]
fn writes_take_the_headers_of_the_contract() {
    let document = whole();
    let below = |path: &str| quiver_config::families::FAMILIES.iter().any(|f| path.starts_with(f.path));
    let mut writes = 0;
    for (path, item) in members(&document, "paths") {
        for (method, operation) in item.as_object().expect("an item") {
            let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
            let names: BTreeSet<&str> = parameters.iter().filter_map(|p| p["name"].as_str()).collect();
            assert_eq!(names.len(), parameters.len(), "{method} {path} has a parameter twice");
            let changes = below(path) && ["put", "patch", "delete"].contains(&method.as_str());
            if !changes && !names.contains("dryRun") {
                continue;
            }
            writes += 1;
            assert!(names.contains("dryRun") && names.contains("X-Override-Managed"), "{method} {path}: {names:?}");
            assert_eq!(names.contains("Idempotency-Key"), method == "post", "{method} {path}: {names:?}");
        }
    }
    assert!(writes > 200, "only {writes} writes");
}

#[test]
fn candidates_are_asked_for_by_whose_they_are() {
    let document = whole();
    for (path, owner) in [("/transactions", "service"), ("/rum-key-business-transactions", "application")] {
        let parameters = &document["paths"][format!("{path}/candidates")]["get"]["parameters"];
        let names = parameters.as_array().expect("parameters").iter().filter_map(|p| p["name"].as_str());
        assert_eq!(names.collect::<Vec<_>>(), [owner, "start", "end", "sort", "limit"], "{path}");
    }
}

#[test]
fn operations_are_whole() {
    let (document, mut ids) = (whole(), BTreeSet::new());
    for (path, item) in members(&document, "paths") {
        for (method, operation) in item.as_object().expect("an item") {
            let id = operation["operationId"].as_str().expect("an id");
            assert!(ids.insert(id.to_owned()), "{id} stands twice");
            assert!(operation["summary"].is_string(), "{method} {path} says nothing");
            let statuses: Vec<&String> = members(operation, "responses").map(|(status, _)| status).collect();
            // What there is not (an archive of Jaeger's) answers 501 and never 2xx.
            let ends = statuses.iter().any(|s| s.starts_with('2') || *s == "501");
            assert!(ends && statuses.len() > 5, "{method} {path} {statuses:?}");
        }
    }
}

#[test]
fn schemas_come_from_families() {
    let document = whole();
    let schemas = &document["components"]["schemas"];
    for family in quiver_config::families::FAMILIES {
        let schema = &schemas[super::schemas::name_of(family)];
        for field in family.all_fields() {
            assert!(schema["properties"].get(field.name).is_some(), "{} lacks {}", family.name, field.name);
        }
    }
    let segments = &schemas["Segments"];
    assert_eq!(segments["properties"]["visibility"]["enum"], serde_json::json!(["private", "shared"]));
    assert_eq!(segments["properties"]["owner"]["readOnly"], true);
    assert_eq!(segments["properties"]["key"]["maxLength"], 100);
    let rule = &schemas["Rules"]["properties"];
    assert_eq!(rule["limit"]["type"], "integer");
    assert_eq!(rule["limit"]["readOnly"], true);
    assert_eq!(rule["interval"]["type"], serde_json::json!(["string", "null"]));
    assert!(segments["required"].as_array().is_some_and(|r| r.iter().any(|name| name == "key")));
}

#[test]
fn the_page_loads_nothing() {
    let page = super::page::page(&whole());
    for wrong in ["<script", "<link", "<img", "src=", "http://", "https://"] {
        assert!(!page.contains(wrong), "{wrong}");
    }
    assert!(page.contains("/rulesapi/rules/test"), "a path lacks");
}
