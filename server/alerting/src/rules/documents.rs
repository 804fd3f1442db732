//! The documents of a rule file. Those of vmalert are recognized by fields that only vmalert has. Their durations may
//! be written `1.5h` or `90`, which Prometheus refuses.

use quiver_types::time::duration;
use quiver_yaml::problem::Problem;
use quiver_yaml::{self as yaml, Node, NodeKind};

/// Group fields that only vmalert has.
const GROUP_FIELDS: [&str; 9] = [
    "type",
    "eval_offset",
    "eval_delay",
    "concurrency",
    "params",
    "headers",
    "notifier_headers",
    "eval_alignment",
    "debug",
];
/// Rule fields that only vmalert has.
const RULE_FIELDS: [&str; 2] = ["debug", "update_entries_limit"];
/// Group fields with durations.
const GROUP_DURATIONS: [&str; 3] = ["interval", "eval_offset", "eval_delay"];
/// Rule fields with durations.
const RULE_DURATIONS: [&str; 2] = ["for", "keep_firing_for"];

/// Parses the documents; durations of vmalert are converted to Prometheus's notation.
///
/// # Errors
/// The text is not valid YAML.
pub fn documents(text: &str) -> Result<Vec<Node>, Problem> {
    let mut documents = yaml::read(text)?;
    if !documents.iter().any(is_of_vmalert) {
        return Ok(documents);
    }
    for document in &mut documents {
        for group in items_mut(document, "groups") {
            rewrite(group, &GROUP_DURATIONS);
            for rule in items_mut(group, "rules") {
                rewrite(rule, &RULE_DURATIONS);
            }
        }
    }
    Ok(documents)
}

fn is_of_vmalert(document: &Node) -> bool {
    let has = |node: &Node, fields: &[&str]| fields.iter().any(|field| node.get(field).is_some());
    items(document, "groups")
        .iter()
        .any(|group| has(group, &GROUP_FIELDS) || items(group, "rules").iter().any(|rule| has(rule, &RULE_FIELDS)))
}

fn items<'n>(node: &'n Node, key: &str) -> &'n [Node] {
    match node.get(key).map(|list| &list.kind) {
        Some(NodeKind::List(items)) => items,
        _ => &[],
    }
}

fn items_mut<'n>(node: &'n mut Node, key: &str) -> &'n mut [Node] {
    let NodeKind::Map(pairs) = &mut node.kind else { return &mut [] };
    match pairs.iter_mut().find(|(own, _)| own.text == key).map(|(_, list)| &mut list.kind) {
        Some(NodeKind::List(items)) => items,
        _ => &mut [],
    }
}

fn rewrite(node: &mut Node, fields: &[&str]) {
    let NodeKind::Map(pairs) = &mut node.kind else { return };
    for (key, value) in pairs {
        if fields.contains(&key.text.as_str())
            && let NodeKind::Scalar { text, .. } = &mut value.kind
            && duration::parse_signed(text).is_err()
            && let Some(ms) = duration::parse_vmalert(text)
        {
            *text = duration::format(ms);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_vmalert() {
        let told = |group: &str, rule: &str| {
            let text = format!(
                "groups: [{{name: g, interval: 1.5m, {group} rules: [{{alert: A, for: 90, {rule} expr: 1}}]}}]"
            );
            let document = documents(&text).expect(&text).remove(0);
            let group = &items(&document, "groups")[0];
            let rule = &items(group, "rules")[0];
            let text = |node: &Node, name: &str| node.get(name).and_then(Node::text).unwrap_or_default().to_owned();
            (text(group, "interval"), text(group, "eval_offset"), text(rule, "for"))
        };
        let check = |group: &str, rule: &str, expected: (&str, &str, &str)| {
            let (interval, offset, wait) = told(group, rule);
            assert_eq!((&*interval, &*offset, &*wait), expected, "{group} {rule}");
        };
        check("", "", ("1.5m", "", "90"));
        check("type: vlogs,", "", ("1m30s", "", "1m30s"));
        check("", "debug: true,", ("1m30s", "", "1m30s"));
        check("eval_offset: -0.5m,", "", ("1m30s", "-30s", "1m30s"));
        // Durations valid in both are not changed.
        check("eval_offset: 60s,", "", ("1m30s", "60s", "1m30s"));
        check("eval_offset: 5x,", "", ("1m30s", "5x", "1m30s"));
    }
}
