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

/// Breaks where one of many errors is told at the place of another, or in the group of another namespace.
#[test]
fn each_of_many_errors_has_its_own_place() {
    let rules: Vec<String> = (0..50).map(|n| format!("  - record: r{n}\n    expr: up\n")).collect();
    let file = |head: &str| format!("{head}  rules:\n{}", rules.concat());
    let files = [text_of("a", &file("groups:\n- name: g\n")), text_of("b", &file("groups:\n- name: f\n- name: g\n"))];
    let key = |namespace: &str| (namespace.to_owned(), "g".to_owned());
    let origins: Vec<Origin> = ["a", "b"].iter().flat_map(|own| (0..50).map(|n| (key(own), Some(n)))).collect();
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
