//! Texts of alerting: templates, matchers, rule files, policies, unit tests of rules. Each is accepted or refused with a
//! valid position; templates end within their budget.

use quiver::rules::Languages;
use quiver_alerting::config::Config;
use quiver_alerting::matchers;
use quiver_alerting::template::{
    MESSAGE_FUNCTIONS, MapKind, Options, RULE_FUNCTIONS, Templates, Value, default_templates, expand,
};
use quiver_alerting::{rules, unit_tests};
use quiver_yaml::problem::Problems;
use rand::RngExt;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;

use crate::drive::Target;
use crate::expression::mutate;

const TEMPLATES: [&str; 8] = [
    "{{ range $k, $v := . }}{{ if eq $v \"1\" }}{{ $k | printf \"%-10s|%q\" $v }}{{ else }}{{ break }}{{ end }}{{ end }}",
    "{{define \"a\"}}{{template \"a\" .}}{{end}}{{block \"b\" .a}}{{.}}{{end}}{{template \"a\"}}",
    "{{- with $x := index . \"a\" -}} {{ $x = printf \"%s%s%*d\" $x $x 9 3 }}{{ len $x }} {{- end -}}",
    "{{ humanize 12345.6 }}{{ humanizeDuration \"1e9\" }}{{ (1.5 | toTime).Format \"Mon Jan _2 15:04:05.000 MST 2006 Z07:00\" }}",
    "{{ reReplaceAll \"(.*)a+(b|c)?\" \"$1$1\" .a }}{{ match \"[a-z]{2,5}\" .b }}{{ stripDomain \"[::1]:80\" }}",
    "{{ and 1 (or 0 (not .z)) }}{{ slice \"abc\" 1 2 }}{{ html \"<a>\" | js | urlquery }}{{/* c */}}",
    "{{ range 100000 }}{{ range 100000 }}x{{ end }}{{ end }}",
    "{{ $s := \"aaaaaaaaaaaaaaaa\" }}{{ range 60 }}{{ $s = print $s $s }}{{ end }}",
];

const MATCHERS: [&str; 5] = [
    "{foo=bar, \"b c\"!~\"x.*\", d=~`y`,}",
    "a=\"x\\ty\",b!=c",
    "{quote=\"She said: \\\"Hi, ladies!\\\"\"}",
    "🙂=\"\\U0001f642\"",
    "tricky=~~~",
];

const RULES: [&str; 2] = [
    "namespace: n\ngroups:\n- name: g\n  interval: 30s\n  labels: {a: b}\n  rules:\n  - alert: A\n    expr: up == 0\n    for: 5m\n    labels: {x: '{{ $labels.i }}'}\n    annotations: {s: '{{ $value | humanize }}'}\n  - record: a:b\n    expr: |\n      sum by (job) (rate(x[5m]))\n",
    "groups: &g [{name: g, type: vlogs, limit: 3, query_offset: 1m, rules: [{alert: B, expr: '* | stats count() c', keep_firing_for: 1h}]}]\n---\ngroups: []\n",
];

const POLICIES: [&str; 2] = [
    "global: {smtp_smarthost: 'h:25', smtp_from: a@b, http_config: {proxy_url: 'http://p:1'}}\nroute:\n  receiver: a\n  group_by: [x, y]\n  routes:\n  - matchers: ['a=\"b\"', '{c=~\"d.*\"}']\n    match_re: {e: 'f|g'}\n    continue: true\n    mute_time_intervals: [t]\nreceivers:\n- name: a\n  webhook_configs: [{url: 'http://h/{{ .Status }}', timeout: 5s}]\n  email_configs: [{to: x@y, headers: {Subject: z}}]\ntime_intervals:\n- name: t\n  time_intervals: [{weekdays: ['monday:friday'], days_of_month: ['-3:-1'], location: Europe/Paris}]\n",
    "route: {receiver: s}\nreceivers: [{name: s, slack_configs: [{api_url: 'https://h/x', channel: '#c', fields: [{title: a, value: b}]}], pagerduty_configs: [{routing_key: k}]}]\ninhibit_rules: [{source_matchers: ['a=1'], target_match: {b: c}, equal: [d]}]\n",
];

const TESTS: [&str; 1] = [
    "rule_files: [a.yml]\nevaluation_interval: 1m\ntests:\n- interval: 1m\n  input_series: [{series: 'up{job=\"a\"}', values: '0 1x5 _ stale {{schema:1 count:2 buckets:[1 1]}}+{{count:1}}x3'}]\n  alert_rule_test: [{eval_time: 5m, alertname: A, exp_alerts: [{exp_labels: {i: 1}}]}]\n  promql_expr_test: [{expr: up, eval_time: 0, exp_samples: [{labels: 'up{a=\"b\"}', value: 1}]}]\n",
];

#[derive(Debug)]
enum Case {
    Template(String),
    Matchers(String),
    Rules(String),
    Policy(String),
    Tests(String),
}

fn text(case: &Case) -> &str {
    match case {
        Case::Template(text) | Case::Matchers(text) | Case::Rules(text) | Case::Policy(text) | Case::Tests(text) => {
            text
        }
    }
}

fn make(random: &mut StdRng) -> Case {
    let mut text = |texts: &[&str]| {
        let text = texts.choose(random).copied().unwrap_or_default();
        if random.random_bool(0.1) { text.to_owned() } else { mutate(text, random) }
    };
    let texts = [text(&TEMPLATES), text(&MATCHERS), text(&RULES), text(&POLICIES), text(&TESTS)];
    let [template, matchers, rules, policy, tests] = texts;
    match random.random_range(0..5) {
        0 => Case::Template(template),
        1 => Case::Matchers(matchers),
        2 => Case::Rules(rules),
        3 => Case::Policy(policy),
        _ => Case::Tests(tests),
    }
}

/// Says that each problem stands within the text.
fn placed(text: &str, problems: &Problems) {
    assert!(!problems.is_empty());
    let lines = text.matches(['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}']).count() as u32 + 2;
    for problem in problems {
        assert!((1..=lines).contains(&problem.place.line) && problem.place.column > 0, "no such place: {problem}");
        assert!(!problem.message.is_empty() && problem.message.len() < 4 * text.len() + 2000, "{problem}");
    }
}

fn check(case: &Case) {
    match case {
        Case::Template(text) => {
            let data = Value::text_map(MapKind::Texts, [("a", "1"), ("b", "two")]);
            let options = Options::default();
            if let Ok(shown) = expand("t", text, &data, RULE_FUNCTIONS, &options) {
                assert!(shown.len() <= options.budget.output_max);
            }
            let mut templates = Templates::new(MESSAGE_FUNCTIONS);
            match templates.add("t", text) {
                Ok(()) => drop(templates.run_html("t", &data, &options)),
                Err(e) => assert!(e.line as usize <= text.matches('\n').count() + 1 && e.column > 0, "{e}"),
            }
        }
        Case::Matchers(text) => {
            if let Ok(young) = matchers::parse_utf8(text) {
                let shown: Vec<String> = young.iter().map(matchers::show).collect();
                let again = matchers::parse_utf8(&shown.join(","));
                assert_eq!(again.as_ref(), Ok(&young), "written back as {shown:?}");
            }
            let _ = matchers::read(text);
        }
        Case::Rules(text) => match rules::read(text, &Languages) {
            Ok(file) => assert!(file.rule_count() < 100),
            Err(problems) => placed(text, &problems),
        },
        Case::Policy(text) => match Config::load(text) {
            Ok(config) => config.routes().walk(&mut |route| assert!(!route.options.receiver.is_empty())),
            Err(problems) => placed(text, &problems),
        },
        Case::Tests(text) => match unit_tests::read(text) {
            Ok(file) => {
                for (labels, values) in file.tests.iter().flat_map(|t| &t.input_series) {
                    let _ = unit_tests::series::labels(labels);
                    if values.len() < 200 && !values.contains('x') {
                        let _ = unit_tests::series::items(values);
                    }
                }
            }
            Err(problems) => placed(text, &problems),
        },
    }
}

#[test]
fn texts_of_alerting() {
    // What is read once is no part of any case.
    drop(default_templates());
    let target = Target {
        name: "alerting",
        make,
        size: |case| text(case).len(),
        bytes_max: |size| (64 << 20) + 20_000 * size as u64,
    };
    let cases = target.run(check);
    assert!(cases > 0);
}
