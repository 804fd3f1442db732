//! Parses rule files of Prometheus and vmalert, and reports all errors in them.

use std::collections::{BTreeMap, HashSet};

use quiver_yaml::problem::{Code, Problems, UnknownFields};
use quiver_yaml::{Fields, Node, NodeKind, pointer};

use super::check::{Expressions, check_rule};
use super::documents::documents;
use super::model::{Language, Rule, RuleFile, RuleGroup, RuleKind};

/// Parses a file with all its documents.
///
/// # Errors
/// All errors, each with its place.
pub fn read(text: &str, expressions: &dyn Expressions) -> Result<RuleFile, Problems> {
    read_with(text, expressions, UnknownFields::Refused)
}

/// Parses a file; `unknown` says how unknown fields are treated.
///
/// # Errors
/// As [`read`].
pub fn read_with(text: &str, expressions: &dyn Expressions, unknown: UnknownFields) -> Result<RuleFile, Problems> {
    read_all(text, &RuleFileOptions { expressions, own: false, unknown })
}

/// Parses a file that may have fields unknown to Prometheus and vmalert: [`OWN_FIELDS`] of rules, and `description`
/// of groups.
///
/// # Errors
/// As [`read`].
pub fn read_own(text: &str, expressions: &dyn Expressions) -> Result<RuleFile, Problems> {
    read_all(text, &RuleFileOptions { expressions, own: true, unknown: UnknownFields::Refused })
}

/// Rule fields that only this server has.
pub const OWN_FIELDS: [&str; 6] = ["language", "severity", "service", "runbook_url", "enabled", "description"];

/// How a file is parsed.
struct RuleFileOptions<'e> {
    expressions: &'e dyn Expressions,
    /// Whether this server's own fields are known.
    own: bool,
    unknown: UnknownFields,
}

fn read_all(text: &str, reading: &RuleFileOptions<'_>) -> Result<RuleFile, Problems> {
    let documents = documents(text)?;
    let mut problems = Problems::with(reading.unknown);
    let mut file = RuleFile::default();
    let mut names = HashSet::new();
    let several = documents.len() > 1;
    for (i, document) in documents.iter().enumerate() {
        let base = if several { format!("/{i}") } else { String::new() };
        let Some(mut fields) = Fields::new(document, base, &mut problems) else { continue };
        let namespace = fields.text("namespace", &mut problems);
        let groups = fields.list("groups", &mut problems).unwrap_or_default();
        let path = fields.path_of("groups");
        fields.finish(&mut problems);
        // A null entry is ignored, as in Prometheus.
        for (k, node) in groups.iter().enumerate().filter(|(_, node)| !node.is_null()) {
            let group = group(node, &pointer(&path, k), reading, &mut file.warnings, &mut problems);
            let Some(mut group) = group else { continue };
            group.namespace.clone_from(&namespace);
            if !names.insert((namespace.clone(), group.name.clone())) {
                let message = format!("groupname: \"{}\" is repeated in the same file", group.name);
                problems.push(node.problem(&pointer(&path, k), Code::Duplicate, message));
            }
            file.groups.push(group);
        }
    }
    problems.or(file)
}

fn group(
    node: &Node,
    path: &str,
    reading: &RuleFileOptions<'_>,
    warnings: &mut Vec<String>,
    problems: &mut Problems,
) -> Option<RuleGroup> {
    let mut fields = Fields::new(node, path, problems)?;
    let name = fields.text("name", problems).unwrap_or_default();
    if name.is_empty() {
        fields.problem("name", Code::Required, "Groupname must not be empty", problems);
    }
    let own_namespace = fields.text("namespace", problems);
    if own_namespace.is_some() {
        fields.problem("namespace", Code::UnknownField, "unknown field `namespace` in a group", problems);
    }
    let kind = fields.text("type", problems).unwrap_or_default();
    let language = match kind.as_str() {
        "" => Language::default(),
        kind => Language::parse(kind).unwrap_or_else(|| {
            fields.problem("type", Code::InvalidValue, format!("unknown type `{kind}`"), problems);
            Language::default()
        }),
    };
    let interval_ms = fields.duration_ms("interval", problems).filter(|ms| *ms > 0);
    let query_offset = fields.duration_ms("query_offset", problems);
    let eval_delay = fields.duration_ms("eval_delay", problems);
    let eval_offset_ms = fields.offset_ms("eval_offset", problems);
    if let (Some(offset), Some(interval)) = (eval_offset_ms, interval_ms)
        && offset.abs() > interval
    {
        fields.problem("eval_offset", Code::OutOfRange, "eval_offset must be within the interval", problems);
    }
    if let (Some(offset), Some(delay)) = (query_offset, eval_delay)
        && offset != delay
    {
        fields.problem(
            "eval_delay",
            Code::InvalidValue,
            "query_offset and eval_delay are the same and differ",
            problems,
        );
    }
    let limit = fields.integer("limit", problems).unwrap_or(0);
    let concurrency = fields.integer("concurrency", problems);
    if concurrency.is_some_and(|c| c < 0) {
        fields.problem("concurrency", Code::OutOfRange, "concurrency must not be less than 0", problems);
    }
    let labels = fields.text_map("labels", problems).unwrap_or_default();
    super::check::check_labels(&fields, "labels", &labels, problems);
    let params = params(&mut fields, problems);
    for field in ["headers", "notifier_headers", "debug", "eval_alignment"] {
        if fields.take(field).is_some() {
            warnings.push(format!("group `{name}`: `{field}` has no effect"));
        }
    }
    if params.keys().any(|key| key != "extra_label") {
        warnings.push(format!("group `{name}`: of `params` only `extra_label` has an effect"));
    }
    if language != Language::Promql && params.contains_key("extra_label") {
        warnings.push(format!("group `{name}`: `extra_label` has an effect on PromQL only"));
    }
    if reading.own {
        fields.text("description", problems);
    }
    let nodes = fields.list("rules", problems).unwrap_or_default();
    let rules_path = fields.path_of("rules");
    fields.finish(problems);
    let mut group = RuleGroup {
        place: node.place,
        namespace: None,
        name,
        interval_ms,
        query_offset_ms: query_offset.or(eval_delay),
        eval_offset_ms,
        // In Prometheus a negative limit means none.
        limit: usize::try_from(limit).unwrap_or(0),
        concurrency: concurrency.and_then(|c| usize::try_from(c).ok()).filter(|c| *c > 0),
        language,
        labels,
        params,
        rules: Vec::with_capacity(nodes.len()),
    };
    for (i, node) in nodes.iter().enumerate().filter(|(_, node)| !node.is_null()) {
        if let Some(rule) = rule(node, &pointer(&rules_path, i), &group, reading, (&mut *warnings, &mut *problems)) {
            group.rules.push(rule);
        }
    }
    Some(group)
}

/// Parses `params`: each value is a string or a list of strings.
fn params(fields: &mut Fields<'_>, problems: &mut Problems) -> BTreeMap<String, Vec<String>> {
    let Some(node) = fields.some("params") else { return BTreeMap::new() };
    let path = fields.path_of("params");
    let NodeKind::Map(pairs) = &node.kind else {
        problems.push(node.problem(&path, Code::InvalidType, format!("wanted a mapping, got {}", node.kind_name())));
        return BTreeMap::new();
    };
    let values = |node: &Node| match &node.kind {
        NodeKind::List(items) => items.iter().filter_map(|i| i.text().map(str::to_owned)).collect(),
        _ => node.text().map(str::to_owned).into_iter().collect(),
    };
    let all: BTreeMap<String, Vec<String>> =
        pairs.iter().map(|(key, value)| (key.text.clone(), values(value))).collect();
    if let Some(bad) = all.get("extra_label").into_iter().flatten().find(|text| label_pair(text).is_none()) {
        let message = format!("extra_label `{bad}` is not of the form name=value");
        problems.push(node.problem(&pointer(&path, "extra_label"), Code::InvalidValue, message));
    }
    all
}

/// Parses `name=value`; the value may be empty, the name must not.
fn label_pair(text: &str) -> Option<(&str, &str)> {
    text.split_once('=').filter(|(name, _)| !name.is_empty())
}

impl RuleGroup {
    /// Labels that all series read by queries of the group must have: `extra_label` in its parameters.
    pub fn extra_labels(&self) -> Vec<(String, String)> {
        let all = self.params.get("extra_label").into_iter().flatten().filter_map(|text| label_pair(text));
        all.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }
}

fn rule(
    node: &Node,
    path: &str,
    group: &RuleGroup,
    reading: &RuleFileOptions<'_>,
    (warnings, problems): (&mut Vec<String>, &mut Problems),
) -> Option<Rule> {
    let mut fields = Fields::new(node, path, problems)?;
    let record = fields.text("record", problems).unwrap_or_default();
    let alert = fields.text("alert", problems).unwrap_or_default();
    let expr_node = fields.take("expr");
    let expr = fields.text("expr", problems).unwrap_or_default();
    let for_ms = fields.duration_ms("for", problems).unwrap_or(0);
    let keep_firing_for_ms = fields.duration_ms("keep_firing_for", problems).unwrap_or(0);
    let labels = fields.text_map("labels", problems).unwrap_or_default();
    let annotations = fields.text_map("annotations", problems).unwrap_or_default();
    for field in ["debug", "update_entries_limit"] {
        if fields.some(field).is_some() {
            let name = if record.is_empty() { &alert } else { &record };
            warnings.push(format!("group `{}`, rule `{name}`: `{field}` has no effect", group.name));
        }
    }
    let (language, enabled) =
        if reading.own { own_fields(&mut fields, group, problems) } else { (group.language, true) };
    let kind = if record.is_empty() { RuleKind::Alert } else { RuleKind::Record };
    let own_labels = labels.clone();
    let mut all_labels = group.labels.clone();
    all_labels.extend(labels);
    let rule = Rule {
        place: node.place,
        kind,
        name: if record.is_empty() { alert.clone() } else { record.clone() },
        expr,
        expr_place: expr_node.map_or(node.place, |n| n.place),
        language,
        for_ms,
        keep_firing_for_ms,
        labels: all_labels,
        annotations,
        enabled,
        service_yields: false,
    };
    let where_ = format!("group \"{}\", rule {}, \"{}\": ", group.name, group.rules.len() + 1, rule.name);
    match (record.is_empty(), alert.is_empty()) {
        (false, false) => {
            let message = format!("{where_}only one of 'record' and 'alert' must be set");
            fields.problem("record", Code::InvalidValue, message, problems);
        }
        (true, true) => {
            let message = format!("{where_}one of 'record' or 'alert' must be set");
            fields.problem("alert", Code::Required, message, problems);
        }
        _ => {}
    }
    check_rule(&fields, &where_, &rule, &own_labels, reading.expressions, problems);
    fields.finish(problems);
    Some(rule)
}

/// Parses this server's own fields: the language of a rule, and whether it is enabled.
fn own_fields(fields: &mut Fields<'_>, group: &RuleGroup, problems: &mut Problems) -> (Language, bool) {
    for name in ["severity", "service", "runbook_url", "description"] {
        fields.text(name, problems);
    }
    let language = fields.text("language", problems).map_or(group.language, |word| {
        Language::parse(&word).unwrap_or_else(|| {
            fields.problem("language", Code::InvalidValue, format!("unknown language `{word}`"), problems);
            group.language
        })
    });
    (language, fields.truth("enabled", problems).unwrap_or(true))
}

#[cfg(test)]
mod tests {
    use super::super::ParsedExpr;
    use super::*;
    use quiver_yaml::problem::Place;

    struct Simple;

    impl Expressions for Simple {
        fn parse(&self, _: Language, expr: &str) -> Result<ParsedExpr, (Place, String)> {
            if expr.trim_end().ends_with('+') {
                let line = expr.matches('\n').count() as u32 + 1;
                let column = expr.rsplit('\n').next().unwrap_or_default().len() as u32 + 1;
                return Err((Place { line, column }, "unexpected end of input".to_owned()));
            }
            Ok(ParsedExpr { canonical: expr.to_owned() })
        }
    }

    fn errors(text: &str) -> Vec<String> {
        read(text, &Simple).expect_err(text).iter().map(|p| format!("{} {p}", p.path)).collect()
    }

    #[test]
    fn a_whole_file() {
        let text = "groups:\n- name: g\n  interval: 30s\n  labels: {team: a, x: y}\n  rules:\n  - alert: A\n    expr: up == 0\n    for: 5m\n    labels: {x: z}\n  - {record: 'a:b', expr: 1}\n";
        let file = read(text, &Simple).expect("valid");
        let group = &file.groups[0];
        assert_eq!((group.interval_ms, group.rules.len(), group.rules[0].for_ms), (Some(30_000), 2, 300_000));
        let labels: Vec<_> = group.rules[0].labels.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(labels, ["team=a", "x=z"]);
        assert_eq!(read("", &Simple).map(|f| f.rule_count()), Ok(0));
        let sparse = "groups:\n-\n- name: g\n  limit: 2.0\n  rules:\n  -\n  - {record: a, expr: 1}\n";
        let sparse = read(sparse, &Simple).expect("valid");
        assert_eq!((sparse.groups.len(), sparse.groups[0].rules.len(), sparse.groups[0].limit), (1, 1, 2));
        let several = "namespace: a\ngroups: [{name: g}]\n---\nnamespace: b\ngroups: [{name: g}]\n";
        assert_eq!(read(several, &Simple).map(|f| f.groups.len()), Ok(2));
        let young = "groups: [{name: g, type: vlogs, concurrency: 2, eval_offset: 10s, interval: 1m, headers: [x], rules: [{alert: A, expr: '* | stats count() c'}]}]";
        let file = read(young, &Simple).expect("valid");
        assert_eq!((file.groups[0].language, file.warnings.len()), (Language::Logsql, 1));
        let idle = "groups: [{name: g, type: vlogs, params: {extra_label: a=b}, rules: [{alert: A, expr: x, debug: true}, \
            {record: B, expr: x, update_entries_limit: 5}]}]";
        let told = read(idle, &Simple).expect("valid").warnings;
        assert!(told.len() == 3 && told[0].contains("PromQL only") && told[2].contains("`B`"), "{told:?}");
        let narrow = "groups: [{name: g, params: {extra_label: ['a=b=c', d=], x: y}}]";
        let file = read(narrow, &Simple).expect("valid");
        let labels: Vec<_> = file.groups[0].extra_labels().iter().map(|(n, v)| format!("{n} {v}")).collect();
        assert_eq!((labels, file.warnings.len()), (vec!["a b=c".to_owned(), "d ".to_owned()], 1));
        assert_eq!(errors("groups: [{name: g, params: {extra_label: =b}}]").len(), 1);
    }

    #[test]
    fn own_fields_where_they_are_wanted() {
        let text = "groups:\n- name: g\n  description: d\n  rules:\n  - {alert: A, expr: 1, severity: page, service: s, \
            enabled: false, language: logsql, runbook_url: 'http://r', description: x}\n";
        let rule = read_own(text, &Simple).expect("valid").groups.remove(0).rules.remove(0);
        assert_eq!((rule.language, rule.enabled), (Language::Logsql, false));
        assert_eq!(errors(text).len(), 7, "{:?}", errors(text));
        let told = read_own(&text.replace("logsql", "basic").replace("false", "maybe"), &Simple).expect_err("words");
        assert_eq!(told.iter().count(), 2, "{told}");
    }

    #[test]
    fn refused() {
        let check = |text: &str, expected: &[&str]| assert_eq!(errors(text), expected, "{text}");
        check("groups: [{name: y}, {name: y}]", &["/groups/1 1:21: groupname: \"y\" is repeated in the same file"]);
        let twice = |delay: &str| format!("groups: [{{name: g, query_offset: 1m, eval_delay: {delay}}}]");
        assert_eq!((errors(&twice("10s")).len(), read(&twice("60s"), &Simple).is_ok()), (1, true));
        assert!(errors("groups: [{name: g, concurrency: -1}]")[0].contains("less than 0"));
        let phase =
            |offset: &str| read(&format!("groups: [{{name: g, interval: 1m, eval_offset: {offset}}}]"), &Simple);
        assert_eq!(phase("-60s").map(|file| file.groups[0].eval_offset_ms), Ok(Some(-60_000)));
        assert!(phase("-61s").is_err() && phase("61s").is_err() && phase("--1s").is_err());
        check("groups: [{rules: []}]", &["/groups/0/name 1:10: Groupname must not be empty"]);
        let rule = |body: &str| format!("groups:\n- name: g\n  rules:\n  - {{{body}}}\n");
        let at = "group \"g\", rule 1, ";
        check(
            &rule("expr: 1"),
            &[&format!("/groups/0/rules/0/alert 4:5: {at}\"\": one of 'record' or 'alert' must be set")],
        );
        check(
            &rule("record: a"),
            &[&format!("/groups/0/rules/0/expr 4:5: {at}\"a\": field 'expr' must be set in rule")],
        );
        check(
            &rule("record: a, expr: 1, for: 1m"),
            &[&format!("/groups/0/rules/0/for 4:31: {at}\"a\": invalid field 'for' in recording rule")],
        );
        check(
            &rule("alert: a, expr: 'test +'"),
            &[&format!("/groups/0/rules/0/expr 4:29: {at}\"a\": could not parse expression: unexpected end of input")],
        );
        let lies = |expr: &str, place: &str| {
            let told = errors(&format!("groups:\n- name: g\n  rules:\n  - alert: a\n    expr: {expr}"));
            assert!(told[0].starts_with(&format!("/groups/0/rules/0/expr {place}: ")), "{expr}: {told:?}");
        };
        lies("test +", "5:17");
        lies("\"test +\"", "5:18");
        lies("|\n      test +", "6:13");
        lies("|-\n\n      test +\n", "7:13");
        lies(">-\n      test\n      +\n", "6:7");
        lies("'te''t +'", "5:11");
        check(&rule("alert: a, expr: 1, foo: 1"), &["/groups/0/rules/0/foo 4:25: unknown field `foo`"]);
        check(&rule("alert: a, expr: 1, for: 1"), &["/groups/0/rules/0/for 4:30: not a valid duration string: \"1\""]);
        let told = errors(&rule("alert: a, expr: 1, annotations: {s: '{{$label.x}}'}"));
        assert!(
            told[0].starts_with("/groups/0/rules/0/annotations/s 4:")
                && told[0].contains("undefined variable \"$label\"")
                && told[0].contains("template: __alert_a:1: "),
            "{told:?}"
        );
        let told = errors(&rule("record: 's{a=\"b\"}', expr: 1"));
        assert!(told[0].contains("braces present in the recording rule name"), "{told:?}");
        let told = errors(&rule("alert: a, expr: 1, labels: {__name__: x, '': y}"));
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(errors("groups: [").len() == 1);
        assert!(errors("- a")[0].contains("wanted a mapping"));
    }
}
