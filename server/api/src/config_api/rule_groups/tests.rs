//! Groups of rules: ids, tags, and the changes from a stored group to the requested one.

use super::*;

#[test]
fn ids_of_groups() {
    let id = |namespace: &str, name: &str| group_id(&(namespace.to_owned(), name.to_owned()));
    let one = id("default", "g");
    let parts: Vec<usize> = one.split('-').map(str::len).collect();
    assert_eq!(parts, [8, 4, 4, 4, 12], "{one}");
    assert!(one.as_bytes()[14] == b'8' && matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{one}");
    assert_eq!(one, id("default", "g"));
    assert!(id("a", "bc") != id("ab", "c"));
}

fn entity(id: &str, version: i64, body: Value) -> Entity {
    Entity::from(quiver_config::ExternalEntity {
        id: id.to_owned(),
        version,
        times_ms: (0, 0),
        by: (String::new(), String::new()),
        body: map(body),
    })
}

fn map(body: Value) -> Map<String, Value> {
    body.as_object().expect("an object").clone()
}

fn key() -> GroupKey {
    ("default".to_owned(), "g".to_owned())
}

fn stored(settings: Option<Entity>, rules: Vec<Entity>) -> StoredGroup {
    StoredGroup { settings, rules }
}

/// Changes in words: what is done, to what.
fn told(ops: &[(Place, Op)]) -> Vec<String> {
    let one = |(place, op): &(Place, Op)| {
        let what = match op {
            Op::Create { id, .. } if id.is_some() => "create it".to_owned(),
            Op::Create { .. } => "create".to_owned(),
            Op::Replace { id, .. } => format!("replace {id}"),
            Op::Delete { id, .. } => format!("delete {id}"),
            _ => "another".to_owned(),
        };
        format!("{}: {what}", if place.family.name == RULES.name { "rule" } else { "group" })
    };
    ops.iter().map(one).collect()
}

#[test]
fn settings_that_differ_from_those_of_none() {
    for (settings, expected) in [
        (json!({}), false),
        (json!({"interval": null, "labels": {}, "limit": 0, "query_offset": "0s"}), false),
        (json!({"concurrency": 1}), false),
        (json!({"type": "prometheus", "description": ""}), false),
        (json!({"interval": "30s"}), true),
        (json!({"limit": 5}), true),
        (json!({"concurrency": 2}), true),
        (json!({"labels": {"a": "b"}}), true),
        (json!({"description": "why"}), true),
        (json!({"type": "vlogs"}), true),
        (json!({"name": "g", "namespace": "n"}), false),
        (json!({"id": "x", "version": 3, "eval_alignment": null}), false),
        // What cannot be a setting is left to the check, which names it.
        (json!({"intervall": "5m"}), true),
        (json!({"intervall": null}), true),
        (json!({"enabled": true}), true),
        (json!({"description": 5}), true),
        (json!({"type": 5}), true),
    ] {
        assert_eq!(has_own(&map(settings.clone())), expected, "{settings}");
    }
}

#[test]
fn rules_go_on_under_their_ids() {
    let rule = |id: &str, body: Value| entity(id, 1, body);
    let known = stored(
        None,
        vec![
            rule("1", json!({"alert": "a", "expr": "x > 1", "language": "promql", "labels": {}})),
            rule("2", json!({"alert": "a", "expr": "x > 2", "language": "promql", "labels": {}})),
            rule("3", json!({"record": "r", "expr": "y", "language": "promql", "labels": {}})),
        ],
    );
    let check = |rules: Value, expected: &[&str]| {
        let rules = rules.as_array().expect("a list").iter().cloned().map(map).collect();
        assert_eq!(told(&rule_ops(&key(), Some(&known), None, rules)), expected);
    };
    let (one, two, three) = (
        json!({"alert": "a", "expr": "x > 1"}),
        json!({"alert": "a", "expr": "x > 2"}),
        json!({"record": "r", "expr": "y"}),
    );
    check(json!([one, two, three]), &["rule: replace 1", "rule: replace 2", "rule: replace 3"]);
    // In whatever order.
    check(json!([three, two, one]), &["rule: replace 3", "rule: replace 2", "rule: replace 1"]);
    check(json!([two]), &["rule: delete 1", "rule: delete 3", "rule: replace 2"]);
    check(json!([]), &["rule: delete 1", "rule: delete 2", "rule: delete 3"]);
    // One of the same name goes on where nothing else is alike; of another name it is a new one.
    let changed = json!({"record": "r", "expr": "z"});
    check(json!([one, two, changed]), &["rule: replace 1", "rule: replace 2", "rule: replace 3"]);
    let new = json!({"record": "s", "expr": "y"});
    check(json!([one, two, new]), &["rule: delete 3", "rule: replace 1", "rule: replace 2", "rule: create"]);
    // An id says it, whatever the rule is called.
    let renamed = json!({"id": "3", "record": "s", "expr": "q"});
    check(json!([one, two, renamed]), &["rule: replace 1", "rule: replace 2", "rule: replace 3"]);
    let strange = json!({"id": "9", "record": "s", "expr": "q"});
    check(json!([strange]), &["rule: delete 1", "rule: delete 2", "rule: delete 3", "rule: create"]);
}

#[test]
fn rules_know_their_group_and_place() {
    let rules = vec![map(json!({"alert": "a"})), map(json!({"alert": "b", "language": "promql"}))];
    let bodies: Vec<Map<String, Value>> = rule_ops(&key(), None, Some("logsql"), rules)
        .into_iter()
        .filter_map(|(_, op)| if let Op::Create { body, .. } = op { Some(body) } else { None })
        .collect();
    assert_eq!(
        json!(bodies),
        json!([
            {"alert": "a", "namespace": "default", "group": "g", "position": 0, "language": "logsql"},
            {"alert": "b", "namespace": "default", "group": "g", "position": 1, "language": "promql"},
        ])
    );
}

#[test]
fn groups_get_settings_where_they_have_some() {
    use SettingsEntity::{Always, IfNeeded};

    let plan = |known: Option<&StoredGroup>, entity: SettingsEntity, settings: Value| {
        told(&plan(&key(), known, entity, map(settings), Vec::new()))
    };
    assert!(plan(None, IfNeeded, json!({})).is_empty());
    assert_eq!(plan(None, Always, json!({})), ["group: create it"]);
    assert_eq!(plan(None, IfNeeded, json!({"interval": "30s"})), ["group: create it"]);
    let with = stored(Some(entity("s", 1, json!({"interval": "30s"}))), Vec::new());
    // Those that are there are replaced, also by none.
    assert_eq!(plan(Some(&with), IfNeeded, json!({})), ["group: replace s"]);
    let without = stored(None, vec![entity("1", 1, json!({"alert": "a"}))]);
    assert_eq!(plan(Some(&without), IfNeeded, json!({})), ["rule: delete 1"]);
}

#[test]
fn what_of_a_group_waits() {
    let group = |rules: &[(&str, i64)]| {
        stored(None, rules.iter().map(|(id, version)| entity(id, *version, json!({}))).collect())
    };
    let check = |before: Option<&[(&str, i64)]>, now: &[(&str, i64)], ids: &[&str], any: bool| {
        let running: BTreeMap<GroupKey, StoredGroup> = before.map(|rules| (key(), group(rules))).into_iter().collect();
        let (waits, found) = waiting(&running, &key(), &group(now));
        let expected: HashSet<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        assert_eq!((waits, found), (expected, any), "{before:?} {now:?}");
    };
    check(Some(&[("1", 1)]), &[("1", 1)], &[], false);
    check(Some(&[("1", 1)]), &[("1", 2)], &["1"], true);
    check(Some(&[("1", 1)]), &[("1", 1), ("2", 1)], &["2"], true);
    // What was deleted waits, too, and has no id among those that are there.
    check(Some(&[("1", 1), ("2", 1)]), &[("1", 1)], &[], true);
    check(None, &[("1", 1)], &["1"], true);
    check(None, &[], &[], false);
}

#[test]
fn tags_of_groups() {
    let one = |id: &str, version: i64| entity(id, version, json!({}));
    let id = "0191d0a0-7c3e-7abc-8def-0123456789ab";
    let group = |settings: Option<Entity>, rules: Vec<Entity>| etag(&stored(settings, rules));
    let tag = group(None, vec![one(id, 1)]);
    assert!(tag.len() == 18 && tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    assert_eq!(tag, group(None, vec![one(id, 1)]));
    for other in [
        group(None, vec![]),
        group(None, vec![one(id, 2)]),
        group(None, vec![one(id, 1), one(id, 1)]),
        group(Some(one(id, 1)), vec![one(id, 1)]),
    ] {
        assert_ne!(tag, other);
    }
}

#[test]
fn what_is_hidden_is_not_lost() {
    let group = |count: usize| stored(None, (0..count).map(|n| entity(&n.to_string(), 1, json!({}))).collect());
    let may = |all: Option<usize>, seen: Option<usize>| {
        nothing_hidden(all.map(group).as_ref(), seen.map(group).as_ref()).is_ok()
    };
    assert!(may(None, None) && may(Some(2), Some(2)) && may(Some(0), None) && may(Some(0), Some(0)));
    assert!(!may(Some(2), Some(1)) && !may(Some(1), None));
}

#[test]
fn headers_keep_their_names_only() {
    let body = json!({"name": "g", "headers": ["Authorization: Bearer a:b", "odd", 7], "notifier_headers": null});
    let mut group = stored(Some(entity("s", 1, body)), Vec::new());
    hide_headers(&mut group);
    let settings = group.settings.expect("settings");
    assert_eq!(settings.body["headers"], json!(["Authorization: <secret>", "<secret>", "<secret>"]));
    assert_eq!((&settings.body["notifier_headers"], &settings.body["name"]), (&Value::Null, &json!("g")));
    let mut bare = stored(None, Vec::new());
    hide_headers(&mut bare);
    assert!(bare.settings.is_none());
}

#[test]
fn languages_of_groups() {
    for (settings, expected) in [
        (json!({}), None),
        (json!({"type": "prometheus"}), None),
        (json!({"type": "promql"}), None),
        (json!({"type": "nothing"}), None),
        (json!({"type": null}), None),
        (json!({"type": "LogsQL"}), None),
        (json!({"type": "logsql"}), Some("logsql")),
        (json!({"type": "vlogs"}), Some("logsql")),
        (json!({"type": "olap"}), Some("olap")),
    ] {
        assert_eq!(language_of(&map(settings.clone())), expected, "{settings}");
    }
}

#[test]
fn bodies_of_groups() {
    let read = |body: Value| {
        settings(map(body), &key()).map(Value::Object).map_err(|problem| {
            let error = &problem.errors[0];
            (error.field.clone(), error.code)
        })
    };
    for (body, expected) in [
        (json!({}), json!({})),
        (json!({"namespace": "default", "name": "g", "interval": "1m"}), json!({"interval": "1m"})),
        // What only an answer has is sent back by those who read and write.
        (
            json!({"staged": true, "ruleCount": 7, "lastEvaluation": "now", "evaluationTime": 1, "missedIterations": 0}),
            json!({}),
        ),
        (json!({"eval_delay": "5s"}), json!({"query_offset": "5s"})),
        (json!({"eval_delay": "5s", "query_offset": "5s"}), json!({"query_offset": "5s"})),
        (json!({"eval_delay": null, "query_offset": "5s"}), json!({"query_offset": "5s"})),
        (json!({"eval_delay": null}), json!({"query_offset": null})),
        (json!({"no_such": 1}), json!({"no_such": 1})),
    ] {
        assert_eq!(read(body.clone()), Ok(expected), "{body}");
    }
    for (body, field) in [
        (json!({"namespace": "other"}), "/namespace"),
        (json!({"name": "G"}), "/name"),
        (json!({"name": null}), "/name"),
        (json!({"eval_delay": "5s", "query_offset": "6s"}), "/eval_delay"),
        (json!({"eval_delay": "5s", "query_offset": null}), "/eval_delay"),
    ] {
        assert_eq!(read(body.clone()), Err((field.to_owned(), "INVALID_VALUE")), "{body}");
    }
}

#[test]
fn rules_are_taken_out_of_bodies() {
    let take = |body: Value| {
        let mut body = map(body);
        let rules = rules_in(&mut body).map_err(|problem| problem.errors[0].field.clone());
        assert!(!body.contains_key("rules"));
        rules.map(|rules| rules.map(|rules| json!(rules)))
    };
    assert_eq!(take(json!({"interval": "1m"})), Ok(None), "it says nothing of them");
    assert_eq!(take(json!({"rules": null})), Ok(Some(json!([]))));
    assert_eq!(take(json!({"rules": []})), Ok(Some(json!([]))));
    assert_eq!(take(json!({"rules": [{"alert": "a"}, {}]})), Ok(Some(json!([{"alert": "a"}, {}]))));
    for (rules, field) in [
        (json!({"alert": "a"}), "/rules"),
        (json!("a"), "/rules"),
        (json!([{}, "a"]), "/rules/1"),
        (json!([null]), "/rules/0"),
        (json!([[{}]]), "/rules/0"),
    ] {
        assert_eq!(take(json!({ "rules": rules })), Err(field.to_owned()), "{rules}");
    }
}

/// Breaks if a patch of one thing changes another.
#[test]
fn patches_change_what_they_name() {
    let with = stored(Some(entity("s", 1, json!({"type": "vlogs"}))), vec![entity("1", 1, json!({"alert": "a"}))]);
    let without = stored(None, vec![entity("1", 1, json!({"alert": "a"}))]);
    let rules = |names: &[&str]| Some(names.iter().map(|name| map(json!({ "alert": name }))).collect());
    let patch = |stored: &StoredGroup, patch: Value, rules: Option<Vec<Map<String, Value>>>| {
        told(&patched(&key(), stored, map(patch), rules))
    };
    assert_eq!(patch(&with, json!({"interval": "1m"}), None), ["group: another"]);
    assert_eq!(patch(&with, json!({}), None), ["group: another"], "it is there already");
    assert_eq!(patch(&without, json!({"interval": "1m"}), None), ["group: create it"]);
    assert_eq!(patch(&without, json!({}), rules(&["a"])), ["rule: replace 1"], "rules alone make no settings");
    assert_eq!(patch(&with, json!({}), rules(&[])), ["group: another", "rule: delete 1"]);
    assert_eq!(patch(&without, json!({}), rules(&[])), ["group: create it", "rule: delete 1"], "the group stays");
    assert_eq!(
        patch(&without, json!({"interval": "1m"}), rules(&["a", "b"])),
        ["group: create it", "rule: replace 1", "rule: create"]
    );
    // New rules have the language of the group, as it is after the patch.
    let language = |body: Value| {
        let ops = patched(&key(), &with, map(body), rules(&["new"]));
        ops.into_iter().find_map(|(_, op)| match op {
            Op::Create { body, .. } => Some(body.get("language").cloned()),
            _ => None,
        })
    };
    assert_eq!(language(json!({})), Some(Some(json!("logsql"))));
    assert_eq!(language(json!({"type": "prometheus"})), Some(None));
}

#[test]
fn errors_of_groups_stand_in_their_bodies() {
    let known = stored(Some(entity("s", 1, json!({}))), vec![entity("1", 1, json!({"alert": "gone"}))]);
    let rules = vec![map(json!({"alert": "a"})), map(json!({"alert": "b"}))];
    let ops = plan(&key(), Some(&known), SettingsEntity::IfNeeded, map(json!({"interval": "1m"})), rules);
    assert_eq!(told(&ops), ["group: replace s", "rule: delete 1", "rule: create", "rule: create"]);
    let places = places(&ops);
    assert_eq!(places, ["", "", "/rules/0", "/rules/1"]);
    let moved = |field: &str| {
        let problem = moved_to_places(Problem::field(field, "REQUIRED", "is required"), &places);
        let field = problem.errors[0].field.clone();
        let text = if field.is_empty() { "is required".to_owned() } else { format!("{field}: is required") };
        assert_eq!(problem.detail, text, "the text says the same place");
        field
    };
    for (field, expected) in [
        ("/0/interval", "/interval"),
        ("/0", ""),
        ("/2/expr", "/rules/0/expr"),
        ("/3", "/rules/1"),
        ("/3/labels/a~1b", "/rules/1/labels/a~1b"),
        // What is of no change stays where it is.
        ("/4/expr", "/4/expr"),
        ("/name", "/name"),
        ("", ""),
    ] {
        assert_eq!(moved(field), expected, "{field}");
    }
}

/// What a dry run answers: nothing of it can be read again.
#[test]
fn groups_as_changes_leave_them() {
    let rule = |id: &str, version: i64, position: i64| {
        let body = json!({"namespace": "default", "group": "g", "alert": id, "position": position});
        entity(id, version, body)
    };
    let settings = |interval: &str| {
        let body = json!({"namespace": "default", "name": "g", "interval": interval});
        entity("s", 1, body)
    };
    let done = |before: Option<Entity>, after: Option<Entity>| ChangeOutcome {
        action: "UPDATE",
        before,
        after,
        changed: true,
        family: "rules",
        given: Vec::new(),
    };
    let all = [
        (RULE_GROUPS.name, done(None, Some(settings("3m")))),
        (RULES.name, done(Some(rule("1", 1, 0)), None)),
        (RULES.name, done(Some(rule("2", 1, 1)), Some(rule("2", 2, 1)))),
        (RULES.name, done(None, Some(rule("0", 1, 0)))),
    ];
    let known = stored(None, vec![rule("1", 1, 0), rule("2", 1, 1), rule("3", 1, 2)]);
    let left = left_by(all.into_iter(), known, &key());
    let rules: Vec<(&str, i64)> = left.rules.iter().map(|e| (e.id.as_str(), e.version)).collect();
    assert_eq!(rules, [("0", 1), ("2", 2), ("3", 1)]);
    assert_eq!(left.settings.map(|e| e.body["interval"].clone()), Some(json!("3m")));
    // A group that is new, and one of which nothing is left.
    let made = [(RULES.name, done(None, Some(rule("1", 1, 0))))];
    assert_eq!(left_by(made.into_iter(), StoredGroup::default(), &key()).rules.len(), 1);
    let gone = [(RULES.name, done(Some(rule("1", 1, 0)), None))];
    let left = left_by(gone.into_iter(), stored(None, vec![rule("1", 1, 0)]), &key());
    assert!(left.settings.is_none() && left.rules.is_empty());
}
