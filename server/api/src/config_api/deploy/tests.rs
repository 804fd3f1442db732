use super::*;

fn text_of(namespace: &str, content: &str) -> Text {
    Text { namespace: namespace.to_owned(), content: content.to_owned() }
}

#[test]
fn files_become_groups() {
    let mut warnings = Vec::new();
    let file = "groups:\n- name: g\n  interval: 30s\n  limit: 5\n  labels: {team: a}\n  rules:\n  - {alert: A, expr: 1, for: 5m, debug: true}\n---\nnamespace: other\ngroups:\n- {name: g, type: vlogs, rules: [{record: r, expr: '* | stats count() n'}]}\n";
    let found = wanted(&[text_of("mine", file)], &mut warnings).unwrap();
    let keys: Vec<String> = found.keys().map(|(n, g)| format!("{n}/{g}")).collect();
    assert_eq!((keys, warnings.len()), (vec!["mine/g".to_owned(), "other/g".to_owned()], 1));
    let (settings, rules) = &found[&("mine".to_owned(), "g".to_owned())];
    assert_eq!(json!(settings), json!({"interval": "30s", "limit": 5, "labels": {"team": "a"}}));
    assert_eq!(json!(rules), json!([{"alert": "A", "expr": "1", "for": "5m"}]));
    let (_, rules) = &found[&("other".to_owned(), "g".to_owned())];
    assert_eq!(rules[0]["language"], json!("logsql"));
    // Durations of vmalert are stored as others read them.
    let file = "groups: [{name: g, type: prometheus, interval: 1.5m, rules: [{alert: A, expr: 1, for: 90}]}]";
    let found = wanted(&[text_of("mine", file)], &mut warnings).unwrap();
    let (settings, rules) = &found[&("mine".to_owned(), "g".to_owned())];
    assert_eq!((&settings["interval"], &rules[0]["for"]), (&json!("1m30s"), &json!("1m30s")));
}

#[test]
fn errors_of_all_files_are_told() {
    let faulty = "groups:\n- name: g\n  rules: [{alert: A, expr: 'up =='}, {alert: B, expr: up, foo: 1}]\n";
    let fine = "groups:\n- name: h\n";
    let told = |texts: &[Text]| wanted(texts, &mut Vec::new()).map(drop).expect_err("a fault");
    let problem = told(&[text_of("a", faulty), text_of("a", fine), text_of("b", faulty), text_of("a", fine)]);
    assert_eq!((problem.code, problem.detail.as_str()), ("VALIDATION_FAILED", "the files have 5 errors"));
    let errors = problem.more["errors"].as_array().expect("a list");
    let files: Vec<_> = errors.iter().map(|e| (e["file"].as_u64(), e["code"].as_str().unwrap_or_default())).collect();
    let pair = |n| [(Some(n), "INVALID_EXPR"), (Some(n), "UNKNOWN_FIELD")];
    assert_eq!(files, [&pair(0)[..], &pair(2), &[(Some(3), "DUPLICATE")]].concat());
    // One that is no YAML counts before all that are not valid.
    let problem = told(&[text_of("a", faulty), text_of("a", "groups: [\n")]);
    assert_eq!((problem.code, &problem.more["file"]), ("MALFORMED_YAML", &json!(1)));
    let alone = told(&[text_of("a", faulty)]);
    assert_eq!((alone.detail.as_str(), alone.more["errors"][0].get("file")), ("the text has 2 errors", None));
}

#[test]
fn a_file_without_groups_is_about_its_namespace() {
    let texts = [text_of("a", "groups: []\n"), text_of("b", "namespace: c\ngroups:\n"), text_of("d", "# none\n")];
    assert_eq!(namespaces_of(&texts).into_iter().collect::<Vec<_>>(), ["a", "c"]);
}

#[test]
fn errors_of_changes_lie_in_the_text() {
    let file = "groups:\n- name: g\n  rules:\n  -\n  - alert: A\n    expr: up\n    runbook_url: x\n";
    let key = ("a".to_owned(), "g".to_owned());
    let origins = [(key.clone(), None), (key, Some(0))];
    let told = |field: &str| {
        let problem = Problem::invalid(vec![FieldError::new(field, "PATTERN", "must be an address")]);
        located(problem, &origins, &[text_of("a", file)]).more["errors"][0].clone()
    };
    let error = told("/1/runbook_url");
    let expected = (&json!("/groups/0/rules/1/runbook_url"), &json!(7), &json!("A"));
    assert_eq!((&error["field"], &error["line"], &error["rule"]), expected, "{error}");
    let error = told("/0/interval");
    let expected = (&json!("/groups/0/interval"), &json!(2), &json!("g"));
    assert_eq!((&error["field"], &error["line"], &error["group"]), expected, "{error}");
}

#[test]
fn the_text_of_an_error_names_its_place() {
    let file = "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up\n";
    let origins = [(("a".to_owned(), "g".to_owned()), Some(0))];
    let problem = located(Problem::field("/0/alert", "TOO_LONG", "is long"), &origins, &[text_of("a", file)]);
    assert_eq!(problem.detail, "/groups/0/rules/0/alert: is long");
    assert_eq!(problem.more["errors"][0].get("file"), None);
    let texts = [text_of("b", file), text_of("a", file)];
    let problem = located(Problem::field("/0/alert", "TOO_LONG", "is long"), &origins, &texts);
    assert_eq!(problem.more["errors"][0]["file"], json!(1));
}

#[test]
fn errors_of_one_document_have_their_lines() {
    let file = "route:\n  receiver: a\nreceivers:\n- name: a\n- name: b\n  webhook_configs:\n  - url: x\n";
    for (field, line, column) in [
        ("/receivers/1/name", 5, 9),
        ("/receivers/1/webhook_configs/0/url", 7, 10),
        ("/route/receiver", 2, 13),
        // What is missing stands where what encloses it does.
        ("/receivers/1/email_configs/0/to", 5, 3),
    ] {
        let problem = with_lines(Problem::field(field, "TOO_LONG", "why"), file);
        let error = &problem.more["errors"][0];
        assert_eq!((&error["field"], &error["code"]), (&json!(field), &json!("TOO_LONG")));
        assert_eq!((&error["line"], &error["column"]), (&json!(line), &json!(column)), "{field}");
        assert!(problem.errors.is_empty() && problem.detail == format!("{field}: why"));
    }
    assert!(with_lines(Problem::new(ProblemKind::Busy, "STORE_BUSY", "why"), file).more.is_empty());
}

/// Breaks if one of many errors is told at the place of another, or in the group of another namespace.
#[test]
fn each_of_many_errors_has_its_own_place() {
    let rules: Vec<String> = (0..50).map(|n| format!("  - record: r{n}\n    expr: up\n")).collect();
    let file = |head: &str| format!("{head}  rules:\n{}", rules.concat());
    let files = [text_of("a", &file("groups:\n- name: g\n")), text_of("b", &file("groups:\n- name: f\n- name: g\n"))];
    let key = |namespace: &str| (namespace.to_owned(), "g".to_owned());
    let origins: Vec<ChangeOrigin> =
        ["a", "b"].iter().flat_map(|own| (0..50).map(move |n| (key(own), Some(n)))).collect();
    let error = |n: usize| FieldError::new(format!("/{n}/expr"), "INVALID_EXPR", "is wrong");
    let problem = located(Problem::invalid((0..100).map(error).collect()), &origins, &files);
    let told = problem.more["errors"].as_array().unwrap();
    assert_eq!(told.len(), 100);
    for (n, error) in told.iter().enumerate() {
        let (group, first, rule) = if n < 50 { (0, 5, n) } else { (1, 6, n - 50) };
        assert_eq!(error["field"], format!("/groups/{group}/rules/{rule}/expr"), "{n}");
        assert_eq!((&error["line"], &error["rule"]), (&json!(first + 2 * rule), &json!(format!("r{rule}"))), "{n}");
    }
    // What is of no change, of no group that is there, or of no rule of it, stays as it is.
    let gone = [(key("c"), Some(0)), (key("a"), Some(50))];
    for (field, expected) in [
        ("", ""),
        ("/x/expr", "/x/expr"),
        ("/9/expr", "/9/expr"),
        ("/0/expr", "/0/expr"),
        ("/1/expr", "/groups/0/expr"),
    ] {
        let problem = located(Problem::invalid(vec![FieldError::new(field, "REQUIRED", "why")]), &gone, &files);
        assert_eq!(problem.more["errors"][0]["field"], expected, "{field}");
    }
    let busy = located(Problem::new(ProblemKind::Busy, "STORE_BUSY", "why"), &gone, &files);
    assert!(busy.more.is_empty() && busy.code == "STORE_BUSY");
}

#[test]
fn errors_say_where() {
    let told = |texts: &[Text]| wanted(texts, &mut Vec::new()).map(drop).expect_err("refused");
    let bad = told(&[text_of("a", "groups:\n- name: g\n  rules:\n  - alert: A\n    expr: up ==\n")]);
    let error = &bad.more["errors"][0];
    assert_eq!((bad.code, &error["line"], &error["code"]), ("VALIDATION_FAILED", &json!(5), &json!("INVALID_EXPR")));
    assert_eq!((&error["group"], &error["rule"]), (&json!("g"), &json!("A")));
    assert_eq!(told(&[text_of("a", "groups: [")]).code, "MALFORMED_YAML");
    let twice = told(&[text_of("a", "groups: [{name: g}]"), text_of("a", "groups: [{name: g}]")]);
    assert_eq!(twice.more["errors"][0]["code"], json!("DUPLICATE"));
    let params = wanted(&[text_of("a", "groups: [{name: g, params: {extra_label: a=b}}]")], &mut Vec::new());
    let settings = &params.unwrap()[&("a".to_owned(), "g".to_owned())].0;
    assert_eq!(settings["params"], json!({"extra_label": ["a=b"]}));
    assert_eq!(told(&[text_of("a", "groups: [{name: g, params: {extra_label: [y]}}]")]).code, "VALIDATION_FAILED");
}

fn node(text: &str) -> Node {
    yaml::read(text).unwrap().remove(0)
}

fn map(value: Value) -> Map<String, Value> {
    let Value::Object(map) = value else { panic!("no object: {value}") };
    map
}

#[test]
fn settings_of_groups_have_their_types() {
    for (text, expected) in [
        ("{name: g, rules: [], namespace: n}", json!({})),
        ("{interval: 1m, limit: 5, concurrency: 2}", json!({"interval": "1m", "limit": 5, "concurrency": 2})),
        // Below none is none, and none at once is the default.
        ("{limit: -5, concurrency: 0}", json!({"limit": 0})),
        ("{limit: many}", json!({"limit": 0})),
        ("{eval_delay: 5s}", json!({"query_offset": "5s"})),
        ("{query_offset: 1s, eval_delay: 5s}", json!({"query_offset": "1s"})),
        ("{eval_delay: 5s, query_offset: 1s}", json!({"query_offset": "5s"})),
        ("{debug: true, eval_alignment: no}", json!({"debug": true, "eval_alignment": false})),
        ("{type: vlogs}", json!({"type": "vlogs"})),
        ("{type: logsql}", json!({"type": "vlogs"})),
        ("{type: nothing}", json!({"type": "prometheus"})),
        (
            "{labels: {a: 1, b: ~}, headers: ['A: b', 7]}",
            json!({"labels": {"a": "1", "b": ""}, "headers": ["A: b", "7"]}),
        ),
        ("{params: {a: x, b: [y, 2]}}", json!({"params": {"a": ["x"], "b": ["y", "2"]}})),
        ("{interval: ~, labels: ~}", json!({})),
    ] {
        assert_eq!(Value::Object(settings_of(&node(text))), expected, "{text}");
    }
    assert!(settings_of(&node("- a")).is_empty() && settings_of(&node("a")).is_empty());
}

#[test]
fn rules_of_files_are_texts_but_for_what_switches_them_on() {
    for (text, kind, expected) in [
        ("{alert: A, expr: 1, for: 5m}", "prometheus", json!({"alert": "A", "expr": "1", "for": "5m"})),
        ("{record: 012, enabled: false}", "prometheus", json!({"record": "012", "enabled": false})),
        ("{record: r, labels: {a: yes}}", "prometheus", json!({"record": "r", "labels": {"a": "yes"}})),
        ("{alert: A, debug: true, update_entries_limit: 5}", "prometheus", json!({"alert": "A"})),
        ("{alert: A, for: ~}", "", json!({"alert": "A"})),
        ("{alert: A}", "vlogs", json!({"alert": "A", "language": "logsql"})),
        ("{alert: A, language: promql}", "vlogs", json!({"alert": "A", "language": "promql"})),
        ("[1]", "vlogs", json!({})),
    ] {
        assert_eq!(Value::Object(rule_of(&node(text), kind)), expected, "{text}");
    }
}

#[test]
fn pointers_lead_to_names() {
    let documents = yaml::read(
        "groups: [{name: g, rules: [{alert: A}, {record: r}, {alert: ''}]}, {rules: [{expr: 1}]}]\n---\ngroups: [{name: h}]\n",
    )
    .unwrap();
    for (pointer, group, rule) in [
        ("/groups/0/interval", Some("g"), None),
        ("/groups/0/rules/0/expr", Some("g"), Some("A")),
        ("/groups/0/rules/1", Some("g"), Some("r")),
        ("/groups/0/rules/2", Some("g"), None),
        ("/groups/0/rules/3", Some("g"), None),
        ("/groups/1/rules/0", None, None),
        ("/0/groups/0/rules/1", Some("g"), Some("r")),
        ("/1/groups/0", Some("h"), None),
        ("/2/groups/0", None, None),
        ("/groups/9", None, None),
        ("/groups/x", None, None),
        ("/groups", None, None),
        ("", None, None),
        ("/", None, None),
    ] {
        let found = names_at(&documents, pointer);
        assert_eq!((found.0.as_deref(), found.1.as_deref()), (group, rule), "{pointer}");
    }
    assert_eq!(names_at(&[], "/groups/0"), (None, None));
}

/// A file says as labels what a stored rule says in fields of its own: the same file again must change nothing.
#[test]
fn rules_that_say_the_same_keep_their_fields() {
    let known = json!({"alert": "A", "expr": "1", "severity": "page", "service": "cart", "labels": {"a": "b"}});
    let stored = StoredGroup { settings: None, rules: vec![Entity::for_tests("1", known)] };
    let kept = |stored: Option<&StoredGroup>, rule: Value| {
        let mut rule = map(rule);
        keep_own_fields(stored, &mut rule);
        Value::Object(rule)
    };
    let labels = json!({"a": "b", "severity": "page", "service": "cart"});
    let file = json!({"alert": "A", "expr": "1", "labels": labels});
    let own = json!({"alert": "A", "expr": "1", "severity": "page", "service": "cart", "labels": {"a": "b"}});
    assert_eq!(kept(Some(&stored), file.clone()), own);
    assert_eq!(kept(None, file.clone()), file);
    for other in [
        json!({"alert": "A", "expr": "2", "labels": labels}),
        json!({"alert": "B", "expr": "1", "labels": labels}),
        json!({"alert": "A", "expr": "1", "labels": {"severity": "page", "service": "cart"}}),
        json!({"alert": "A", "expr": "1", "for": "1m", "labels": labels}),
        // One that has fields of its own says what it means.
        json!({"alert": "A", "expr": "1", "severity": "page", "labels": {"a": "b", "service": "cart"}}),
    ] {
        assert_eq!(kept(Some(&stored), other.clone()), other);
    }
}

#[test]
fn what_became_of_each_is_counted_and_told() {
    let entity = |id: &str, body: Value| Some(Entity::for_tests(id, body));
    let done = |before: Option<Entity>, after: Option<Entity>, changed: bool| ChangeOutcome {
        action: "UPDATE",
        before,
        after,
        changed,
        family: "rules",
        given: Vec::new(),
    };
    let rule = |expr: &str| json!({"group": "g", "namespace": "n", "name": "r", "expr": expr});
    let all = [
        done(None, entity("1", rule("1")), true),
        done(entity("2", rule("1")), entity("2", rule("2")), true),
        done(entity("3", rule("1")), None, true),
        done(entity("4", rule("1")), entity("4", rule("1")), false),
        // A group is told, and not counted.
        done(None, entity("5", json!({"namespace": "n", "name": "g"})), true),
        done(None, None, true),
    ];
    let told = outcome(Some(7), ChangeMode::DryRun, &all, &["w".to_owned()], (is_rule, shown_change));
    let change = |op: &str, group: &str, rule: Value, diff: Value| -> Value {
        json!({"op": op, "namespace": "n", "group": group, "rule": rule, "diff": diff})
    };
    let expected = json!({
        "revision": 7, "dryRun": true, "warnings": ["w"],
        "summary": {"created": 1, "updated": 1, "deleted": 1, "unchanged": 1},
        "changes": [
            change("create", "g", json!("r"), json!([])),
            change("update", "g", json!("r"), json!([{"path": "expr", "from": "1", "to": "2"}])),
            change("delete", "g", json!("r"), json!([])),
            change("create", "g", json!(null), json!([])),
        ],
    });
    assert_eq!(told, expected);
    let nothing = outcome(None, ChangeMode::Apply, &[], &[], (is_rule, shown_change));
    assert_eq!(
        (&nothing["revision"], &nothing["changes"], &nothing["dryRun"]),
        (&json!(null), &json!([]), &json!(false))
    );
}
