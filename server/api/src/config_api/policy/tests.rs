use std::cell::Cell;

use super::*;

const RECEIVERS_ABC: &str = "receivers: [{name: a}, {name: b}, {name: c}]";

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("no object: {value}") };
    map
}

fn part(family: &'static Family, id: &str, body: Value) -> ComponentEntity {
    ComponentEntity { family: family.name, id: id.to_owned(), body: map(body) }
}

/// What a fresh installation has: the root and the receiver that tells nobody.
fn fresh() -> Vec<ComponentEntity> {
    let root = part(&ROUTES, ROOT_ROUTE_ID, json!({"receiver": EMPTY_RECEIVER}));
    vec![root, part(&RECEIVERS, "nobody", json!({"name": EMPTY_RECEIVER}))]
}

fn planned(text: &str, present: &[ComponentEntity]) -> Result<Vec<(Place, Op)>> {
    let read = Read::load(text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
    let next = Cell::new(0);
    let new_id = || {
        next.set(next.get() + 1);
        format!("new-{}-{}", present.len(), next.get())
    };
    plan(&read, &config_json(text).unwrap(), present, &new_id)
}

/// Takes away a route and all below it, as deleting one does; of other families the one.
fn without(parts: &mut Vec<ComponentEntity>, id: &str) {
    parts.retain(|part| part.id != id);
    let below: Vec<String> = parts.iter().filter(|p| text(&p.body, "parentId") == id).map(|p| p.id.clone()).collect();
    for id in below {
        without(parts, &id);
    }
}

/// What is there after some changes, each done for itself.
fn after(mut parts: Vec<ComponentEntity>, ops: Vec<(Place, Op)>) -> Vec<ComponentEntity> {
    for (place, op) in ops {
        match op {
            Op::Create { id, body } => {
                let id = id.unwrap_or_else(|| format!("{} {}", place.family.name, text(&body, "name")));
                assert!(parts.iter().all(|p| p.id != id), "`{id}` is there twice");
                parts.push(ComponentEntity { family: place.family.name, id, body });
            }
            Op::Replace { id, body, .. } => {
                let known = parts.iter_mut().find(|p| p.id == id && p.family == place.family.name);
                known.unwrap_or_else(|| panic!("there is no `{id}`")).body = body;
            }
            Op::Delete { id, .. } => {
                assert!(parts.iter().any(|p| p.id == id), "there is no `{id}`");
                without(&mut parts, &id);
            }
            Op::Patch { .. } | Op::Restore { .. } => {}
        }
    }
    parts
}

/// A route and those below it as YAML.
fn tree(parts: &[ComponentEntity], id: &str) -> String {
    let route = parts.iter().find(|p| p.id == id).expect("a route that another one names");
    let mut below: Vec<(i64, &str)> = parts
        .iter()
        .filter(|p| p.family == ROUTES.name && text(&p.body, "parentId") == id)
        .map(|p| (p.body["position"].as_i64().unwrap(), p.id.as_str()))
        .collect();
    below.sort_unstable();
    let receiver = text(&route.body, "receiver");
    if below.is_empty() {
        return format!("{{receiver: {receiver}}}");
    }
    let routes: Vec<String> = below.into_iter().map(|(_, id)| tree(parts, id)).collect();
    format!("{{receiver: {receiver}, routes: [{}]}}", routes.join(", "))
}

const TREES: [&str; 6] = [
    "{receiver: a}",
    "{receiver: b, routes: [{receiver: a}]}",
    "{receiver: a, routes: [{receiver: c}, {receiver: b}]}",
    "{receiver: a, routes: [{receiver: b, routes: [{receiver: a}, {receiver: c}]}, {receiver: b}]}",
    "{receiver: c, routes: [{receiver: b}, {receiver: c, routes: [{receiver: a, routes: [{receiver: b}]}]}]}",
    "{receiver: a, routes: [{receiver: a}, {receiver: a}, {receiver: a}]}",
];

fn config(route: &str) -> String {
    format!("route: {route}\n{RECEIVERS_ABC}")
}

/// Breaks if a route is left over below one that goes, or takes the place of another.
#[test]
fn any_tree_becomes_any_other() {
    for from in TREES {
        let first = after(fresh(), planned(&config(from), &fresh()).unwrap());
        assert_eq!(tree(&first, ROOT_ROUTE_ID), from);
        for to in TREES {
            let second = after(first.clone(), planned(&config(to), &first).unwrap());
            assert_eq!(tree(&second, ROOT_ROUTE_ID), to, "after {from}");
            let routes = second.iter().filter(|p| p.family == ROUTES.name).count();
            assert_eq!(routes, to.matches("receiver").count(), "{from} leaves routes beside {to}");
        }
    }
}

/// A deployment that changes nothing must make and delete nothing: ids are what others name.
#[test]
fn the_same_configuration_keeps_all_ids() {
    for text in TREES {
        let text = format!(
            "{}\ninhibit_rules: [{{source_matchers: ['a=1'], target_matchers: ['b=2']}}]\n\
             time_intervals: [{{name: t, time_intervals: [{{months: ['1']}}]}}]",
            config(text)
        );
        let first = after(fresh(), planned(&text, &fresh()).unwrap());
        let again = planned(&text, &first).unwrap();
        let keeps = |op: &Op| matches!(op, Op::Replace { .. } | Op::Patch { .. });
        assert!(again.iter().all(|(_, op)| keeps(op)), "{text}: {again:?}");
        let ids = |parts: &[ComponentEntity]| parts.iter().map(|p| p.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&after(first.clone(), again)), ids(&first));
    }
}

#[test]
fn receivers_are_known_by_name_and_keep_their_descriptions() {
    let mut present = fresh();
    present.push(part(&RECEIVERS, "1", json!({"name": "a", "description": "on call", "webhook_configs": [{}]})));
    present.push(part(&RECEIVERS, "2", json!({"name": "old"})));
    let text = "route: {receiver: a}\nreceivers: [{name: empty}, {name: b}, {name: a}]";
    let parts = after(present.clone(), planned(text, &present).unwrap());
    let bodies = |name: &str| -> Vec<(&str, &Map<String, Value>)> {
        let named = parts.iter().filter(|p| p.family == RECEIVERS.name && text_of(p) == name);
        named.map(|p| (p.id.as_str(), &p.body)).collect()
    };
    assert_eq!(bodies("a"), [("1", &map(json!({"name": "a", "description": "on call"})))]);
    assert_eq!(bodies("b").len(), 1);
    // What the configuration lacks goes, what is built in stays as it is.
    assert!(bodies("old").is_empty());
    assert_eq!(bodies(EMPTY_RECEIVER), [("nobody", &map(json!({"name": EMPTY_RECEIVER})))]);
}

fn text_of(part: &ComponentEntity) -> &str {
    text(&part.body, "name")
}

#[test]
fn the_built_in_receiver_cannot_tell_anybody() {
    let text = "route: {receiver: empty}\nreceivers: [{name: empty, webhook_configs: [{url: 'http://x/'}]}]";
    let problem = planned(text, &fresh()).unwrap_err();
    assert_eq!((problem.errors[0].field.as_str(), problem.errors[0].code), ("/receivers", "MANAGED_ENTITY"));
}

/// A patch merges (RFC 7396): what a configuration does not say must be taken away by name.
#[test]
fn globals_that_a_configuration_lacks_are_taken_away() {
    let options = json!({"resolve_timeout": "1m", "smtp_from": "x"});
    let mut present = fresh();
    present.push(part(&POLICY_GLOBAL, GLOBAL_ID, json!({OPTIONS: options})));
    let patch = |head: &str| {
        let ops = planned(&format!("{head}\n{}", config("{receiver: a}")), &present).unwrap();
        let patches = ops.into_iter().filter_map(|(_, op)| match op {
            Op::Patch { id, patch, .. } => Some((id, Value::Object(patch))),
            _ => None,
        });
        patches.collect::<Vec<_>>()
    };
    let expected =
        |options: Value, files: Value| vec![(GLOBAL_ID.to_owned(), json!({OPTIONS: options, "template_files": files}))];
    let (all, none) = (json!({"resolve_timeout": null, "smtp_from": null}), json!([]));
    assert_eq!(patch(""), expected(all.clone(), none.clone()));
    let own = json!({"resolve_timeout": "2m", "smtp_from": null});
    assert_eq!(patch("global: {resolve_timeout: 2m}"), expected(own, none));
    assert_eq!(patch("templates: [b.tmpl, a.tmpl]"), expected(all, json!(["b.tmpl", "a.tmpl"])));
}

/// Each refusal is told at the place where the configuration says what is refused.
#[test]
fn places_are_where_the_changes_stand() {
    for route in TREES {
        let text = format!(
            "global: {{resolve_timeout: 2m}}\nroute: {route}\nreceivers: [{{name: c}}, {{name: a}}, {{name: b}}]\n\
             inhibit_rules: [{{source_matchers: ['a=1'], target_matchers: ['b=2'], equal: [x]}}, \
             {{source_matchers: ['a=1'], target_matchers: ['b=2'], equal: [y]}}]\n\
             time_intervals: [{{name: t, time_intervals: [{{months: ['1']}}]}}]\n\
             mute_time_intervals: [{{name: m, time_intervals: [{{months: ['2']}}]}}]"
        );
        let (read, value) = (Read::load(&text).unwrap(), config_json(&text).unwrap());
        let ops = planned(&text, &fresh()).unwrap();
        let places = places(&ops, &value, &read.route);
        assert_eq!(places.len(), ops.len());
        for ((_, op), place) in ops.iter().zip(&places) {
            let there = value.pointer(place).unwrap_or_else(|| panic!("nothing stands at `{place}`"));
            let (Op::Create { body, .. } | Op::Replace { body, .. }) = op else { continue };
            for field in ["name", "receiver", "equal"] {
                if let Some(own) = body.get(field).filter(|own| !own.is_null()) {
                    assert_eq!(there[field], *own, "`{field}` at `{place}`");
                }
            }
        }
        let distinct: std::collections::BTreeSet<&String> = places.iter().collect();
        assert_eq!(distinct.len(), places.len(), "{places:?}");
    }
    // What goes stands nowhere.
    let present = after(fresh(), planned(&config(TREES[3]), &fresh()).unwrap());
    let (read, value) = (Read::load(&config(TREES[0])).unwrap(), config_json(&config(TREES[0])).unwrap());
    let ops = planned(&config(TREES[0]), &present).unwrap();
    for ((_, op), place) in ops.iter().zip(places(&ops, &value, &read.route)) {
        assert_eq!(matches!(op, Op::Delete { .. }), place.is_empty(), "{op:?} at `{place}`");
    }
}

#[test]
fn a_route_has_what_is_above_it_unless_it_says_otherwise() {
    let parts = [
        part(&ROUTES, ROOT_ROUTE_ID, json!({"receiver": "a", "group_by": ["x"], "labels": {"team": "1", "k": "v"}})),
        part(
            &ROUTES,
            "low",
            json!({"parentId": ROOT_ROUTE_ID, "position": 1, "receiver": null, "group_by": [], "labels": {"team": "2"}}),
        ),
        part(
            &ROUTES,
            "high",
            json!({"parentId": ROOT_ROUTE_ID, "position": 0, "group_wait": "1s", "matchers": ["z=1"]}),
        ),
        part(&ROUTES, "deep", json!({"parentId": "low", "position": 0, "receiver": "b"})),
    ];
    let shown: BTreeMap<_, _> = parts.iter().map(|p| (p.id.clone(), map(json!({"id": p.id})))).collect();
    let above = map(json!({"group_by": [], "group_wait": "30s"}));
    let found = branch(&parts[0], &above, &children(&parts), &shown);
    let expected = json!({
        "id": ROOT_ROUTE_ID,
        "effective": {"receiver": "a", "group_by": ["x"], "group_wait": "30s", "labels": {"team": "1", "k": "v"}},
        "routes": [
            {
                "id": "high",
                "effective": {"receiver": "a", "group_by": ["x"], "group_wait": "1s", "labels": {"team": "1", "k": "v"}},
                "routes": [],
            },
            {
                "id": "low",
                // An empty list is said: it groups by nothing.
                "effective": {"receiver": "a", "group_by": [], "group_wait": "30s", "labels": {"team": "2", "k": "v"}},
                "routes": [{
                    "id": "deep",
                    "effective": {"receiver": "b", "group_by": [], "group_wait": "30s", "labels": {"team": "2", "k": "v"}},
                    "routes": [],
                }],
            },
        ],
    });
    assert_eq!(found, expected);
}

#[test]
fn globals_are_shown_beside_what_the_service_keeps() {
    let shown = |body: Value| shown_global(&Entity::for_tests(GLOBAL_ID, body));
    let found = shown(json!({OPTIONS: {"resolve_timeout": "1m", "smtp_from": "x"}, "template_files": ["a"]}));
    assert_eq!((&found["resolve_timeout"], &found["smtp_from"]), (&json!("1m"), &json!("x")));
    assert_eq!((&found["template_files"], found.get(OPTIONS)), (&json!(["a"]), None));
    assert_eq!((&found["id"], &found["version"]), (&json!(GLOBAL_ID), &json!(1)));
    for body in [json!({}), json!({OPTIONS: {}}), json!({OPTIONS: null})] {
        assert_eq!(shown(body.clone())["resolve_timeout"], "5m", "{body}: it is what holds where nothing is said");
    }
}

#[test]
fn siblings_get_their_places() {
    let ids = ["b".to_owned(), "a".to_owned()];
    let told: Vec<(&str, String, Value)> = placed("p", &ids)
        .into_iter()
        .map(|(place, op)| match op {
            Op::Patch { id, patch, condition: Condition::None } => (place.family.name, id, Value::Object(patch)),
            other => panic!("{other:?}"),
        })
        .collect();
    let patch = |n: usize| json!({"parentId": "p", "position": n});
    let expected = [(ROUTES.name, "b".to_owned(), patch(0)), (ROUTES.name, "a".to_owned(), patch(1))];
    assert_eq!(told, expected);
    assert!(placed("p", &[]).is_empty());
}

/// A configuration that says nothing of an option leaves it to the route above: it must not become an empty one.
#[test]
fn routes_say_what_their_configuration_says() {
    let body = |route: &str| {
        let text = format!("route: {{receiver: a, routes: [{route}]}}\n{RECEIVERS_ABC}");
        let read = Read::load(&text).unwrap_or_else(|e| panic!("{text}: {e:?}"));
        route_body(&read.route.routes[0], Some("p"), 3)
    };
    let bare = body("{}");
    assert_eq!((&bare["parentId"], &bare["position"]), (&json!("p"), &json!(3)));
    for name in ["receiver", "group_by", "group_wait", "group_interval", "repeat_interval"] {
        assert_eq!(bare[name], Value::Null, "{name}");
    }
    assert_eq!((&bare["matchers"], &bare["continue"]), (&json!([]), &json!(false)));
    let whole = body(
        "{receiver: b, group_by: [x, y], group_wait: 90s, group_interval: 1h, repeat_interval: 1d, continue: true, \
         matchers: ['a=1', 'b=~\"c|d\"', 'e!=f']}",
    );
    for (name, expected) in [
        ("receiver", json!("b")),
        ("group_by", json!(["x", "y"])),
        ("group_wait", json!("1m30s")),
        ("group_interval", json!("1h")),
        ("repeat_interval", json!("1d")),
        ("continue", json!(true)),
        ("matchers", json!(["a=\"1\"", "b=~\"c|d\"", "e!=\"f\""])),
    ] {
        assert_eq!(whole[name], expected, "{name}");
    }
    assert_eq!(body("{group_by: ['...']}")["group_by"], json!(["..."]));
    assert_eq!(body("{group_by: []}")["group_by"], json!([]), "it groups by nothing, whatever is above it");
}

#[test]
fn routes_have_their_places_in_the_order_in_which_they_are_made() {
    let text = config("{receiver: a, routes: [{receiver: b, routes: [{receiver: c}, {receiver: a}]}, {receiver: c}]}");
    let mut places = Vec::new();
    route_places(&Read::load(&text).unwrap().route, "/route".to_owned(), &mut places);
    let expected =
        ["/route", "/route/routes/0", "/route/routes/0/routes/0", "/route/routes/0/routes/1", "/route/routes/1"];
    assert_eq!(places, expected);
}

#[test]
fn what_inhibits_is_the_same_whatever_its_place() {
    let rules = |list: &str| planned(&format!("{}\ninhibit_rules: [{list}]", config("{receiver: a}")), &fresh());
    let (one, two) = (
        "{name: one, source_matchers: ['a=1'], target_matchers: ['b=2'], equal: [x, y]}",
        "{name: two, source_matchers: ['c=3'], target_matchers: ['d=4']}",
    );
    let first = after(fresh(), rules(&format!("{one}, {two}")).unwrap());
    let of = |parts: &[ComponentEntity]| -> Vec<(String, Value)> {
        let own = parts.iter().filter(|part| part.family == INHIBIT_RULES.name);
        own.map(|part| (part.id.clone(), part.body["source_matchers"].clone())).collect()
    };
    let swapped = format!("{}\ninhibit_rules: [{two}, {one}]", config("{receiver: a}"));
    let again = planned(&swapped, &first).unwrap();
    let replaced: Vec<&String> = again
        .iter()
        .filter(|(place, _)| place.family.name == INHIBIT_RULES.name)
        .map(|(_, op)| match op {
            Op::Replace { id, .. } => id,
            other => panic!("{other:?}"),
        })
        .collect();
    let before = of(&first);
    assert_eq!(replaced, [&before[1].0, &before[0].0], "each goes on in its own place");
    // One that says something else is another one.
    let changed = format!("{}\ninhibit_rules: [{one}]", config("{receiver: a}")).replace("equal: [x, y]", "equal: [x]");
    let ops = planned(&changed, &first).unwrap();
    let count = |wanted: fn(&Op) -> bool| {
        ops.iter().filter(|(place, op)| place.family.name == INHIBIT_RULES.name && wanted(op)).count()
    };
    assert_eq!(count(|op| matches!(op, Op::Create { .. })), 1);
    assert_eq!(count(|op| matches!(op, Op::Delete { .. })), 2);
}
