//! Exports stored rules as files (`config-api` 2.3) in the format of Prometheus, of vmalert, or our own, which loses
//! nothing.

use std::collections::BTreeMap;

use quiver_alerting::rules::{Language, OWN_FIELDS};
use quiver_config::json::text;
use quiver_config::{Problem, Result};
use quiver_yaml as yaml;
use serde_json::{Map, Value, json};

use super::request::Ask;
use super::response::Answer;
use super::rule_groups::visible_groups;
use crate::alerting::stored_rules::{GroupKey, StoredGroup, file_group, file_rule, is_default, own_rule};

/// A format of rule files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Format {
    /// Only what Prometheus reads.
    Prometheus,
    /// Also what only vmalert reads.
    Vmalert,
    /// Everything that a stored rule may contain.
    Quiver,
}

/// Group fields that only vmalert reads.
const OF_VMALERT: [&str; 7] =
    ["eval_offset", "concurrency", "params", "headers", "notifier_headers", "debug", "eval_alignment"];

impl Format {
    fn parse(word: &str) -> Option<Self> {
        match word {
            "prometheus" => Some(Self::Prometheus),
            "vmalert" => Some(Self::Vmalert),
            "quiver" => Some(Self::Quiver),
            _ => None,
        }
    }

    /// Whether the format can express a group without loss.
    fn holds(self, stored: &StoredGroup) -> bool {
        let none = Map::new();
        let settings = stored.settings.as_ref().map_or(&none, |e| &e.body);
        let languages: Vec<Language> = stored.rules.iter().map(|e| language_of(&e.body)).collect();
        let own = |body: &Map<String, Value>| {
            let says = |field: &&str| body.get(*field).is_some_and(|v| !v.is_null() && *v != json!(""));
            body.get("enabled") == Some(&json!(false))
                || OWN_FIELDS.iter().filter(|f| !matches!(**f, "enabled" | "language")).any(says)
        };
        let plain = text(settings, "description").is_empty() && !stored.rules.iter().any(|e| own(&e.body));
        let kind = Language::parse(text(settings, "type")).unwrap_or_default();
        let one = languages.windows(2).all(|pair| pair[0] == pair[1])
            && languages.first().is_none_or(|first| *first == kind || kind == Language::Promql);
        match self {
            Self::Quiver => true,
            Self::Vmalert => plain && one && !languages.contains(&Language::Olap) && kind != Language::Olap,
            Self::Prometheus => {
                let says = |field: &&str| {
                    let value = settings.get(*field).filter(|v| !is_default(v));
                    value.is_some_and(|v| *field != "concurrency" || v.as_i64() != Some(1))
                };
                let only = kind == Language::Promql && languages.iter().all(|l| *l == Language::Promql);
                plain && only && !OF_VMALERT.iter().any(says)
            }
        }
    }

    /// Makes the groups of a file from a stored group; adds the number of rules that the format cannot express to
    /// `left_out`.
    fn groups(self, name: &str, stored: &StoredGroup, left_out: &mut usize) -> Result<Vec<Value>> {
        let none = Map::new();
        let settings = stored.settings.as_ref().map_or(&none, |e| &e.body);
        let kind = Language::parse(text(settings, "type")).unwrap_or_default();
        if self == Self::Quiver {
            let rules = stored.rules.iter().map(|e| Value::Object(own_rule(&e.body, kind))).collect();
            let mut group = file_group(name, kind.group_type(), settings, rules);
            if let (Some(map), about) = (group.as_object_mut(), text(settings, "description"))
                && !about.is_empty()
            {
                map.insert("description".to_owned(), json!(about));
            }
            return Ok(vec![group]);
        }
        // A group in a file has one language: rules in other languages form further groups after it.
        let mut of_language: BTreeMap<Language, Vec<Value>> = BTreeMap::new();
        for rule in &stored.rules {
            let language = language_of(&rule.body);
            let is_readable = language == Language::Promql || self != Self::Prometheus;
            if rule.body.get("enabled") == Some(&json!(false)) || !is_readable {
                *left_out += 1;
                continue;
            }
            let rule = Value::Object(file_rule(&rule.body).map_err(|p| Problem::internal(p.detail))?);
            of_language.entry(language).or_default().push(rule);
        }
        if of_language.is_empty() {
            let kind = if self == Self::Prometheus { Language::Promql } else { kind };
            of_language.insert(kind, Vec::new());
        }
        let mut out = Vec::with_capacity(of_language.len());
        for (n, (language, rules)) in of_language.into_iter().enumerate() {
            let name = if n > 0 { format!("{name} ({})", language.as_str()) } else { name.to_owned() };
            let mut group = file_group(&name, language.group_type(), settings, rules);
            if let (Self::Prometheus, Some(map)) = (self, group.as_object_mut()) {
                for field in &OF_VMALERT {
                    drop(map.remove(*field));
                }
            }
            if let (Self::Vmalert, Some(map)) = (self, group.as_object_mut())
                && let Some(offset) = map.remove("query_offset")
            {
                // vmalert rejects Prometheus's name for this field.
                map.insert("eval_delay".to_owned(), offset);
            }
            out.push(group);
        }
        Ok(out)
    }
}

fn language_of(rule: &Map<String, Value>) -> Language {
    Language::parse(text(rule, "language")).unwrap_or_default()
}

pub(super) async fn export(ask: &Ask) -> Result<Answer> {
    for name in ["source", "prune"] {
        if ask.parameter(name)?.is_some() {
            return Err(Problem::parameter(format!("`{name}` does not go with an export")));
        }
    }
    let wrong = || Problem::parameter("`format` must be prometheus, vmalert or quiver");
    let format = ask.parameter("format")?.map(|word| Format::parse(word).ok_or_else(wrong)).transpose()?;
    let named: Vec<&str> = ask.parameters.iter().filter(|(k, _)| k == "namespace").map(|(_, v)| v.as_str()).collect();
    // The groups are trees until they are written, and nothing counts them.
    let _place = ask.state.capacity.places.exports.acquire().await.map_err(Problem::internal)?;
    let mut groups: Vec<(GroupKey, StoredGroup)> = visible_groups(ask).await?;
    groups.retain(|(key, _)| named.is_empty() || named.contains(&key.0.as_str()));
    let (yaml, left_out) = written(&groups, format)?;
    let warning = (left_out > 0).then(|| format!("{left_out} rules are left out: disabled, or of another language"));
    Ok(Answer { yaml: Some(yaml), warning, ..Answer::ok(Value::Null) })
}

/// Writes groups in this format, or else in the first one that loses nothing. Returns the text and the number of
/// rules left out.
fn written(groups: &[(GroupKey, StoredGroup)], format: Option<Format>) -> Result<(String, usize)> {
    let all = [Format::Prometheus, Format::Vmalert, Format::Quiver];
    let whole = all.into_iter().find(|format| groups.iter().all(|(_, stored)| format.holds(stored)));
    let format = format.or(whole).unwrap_or(Format::Quiver);
    let (mut by_namespace, mut left_out) = (BTreeMap::<&str, Vec<Value>>::new(), 0);
    for (key, stored) in groups {
        let made = format.groups(&key.1, stored, &mut left_out)?;
        by_namespace.entry(&key.0).or_default().extend(made);
    }
    let several = by_namespace.len() > 1;
    let document = |(namespace, groups): (&str, Vec<Value>)| {
        let text = yaml::write(&json!({"groups": groups}));
        // If there are several, each document states its namespace.
        if several { yaml::write(&json!({"namespace": namespace})) + &text } else { text }
    };
    let documents: Vec<String> = by_namespace.into_iter().map(document).collect();
    Ok((if documents.is_empty() { "groups: []\n".to_owned() } else { documents.join("---\n") }, left_out))
}

#[cfg(test)]
mod tests {
    use quiver_config::Entity;

    use super::*;

    fn group(settings: Option<Value>, rules: &[Value]) -> Vec<(GroupKey, StoredGroup)> {
        let rules =
            rules.iter().enumerate().map(|(n, rule)| Entity::for_tests(&format!("r{n}"), rule.clone())).collect();
        let settings = settings.map(|body| Entity::for_tests("g", body));
        vec![(("default".to_owned(), "g".to_owned()), StoredGroup { settings, rules })]
    }

    #[test]
    fn the_first_form_that_loses_nothing() {
        let check = |settings: Option<Value>, rules: &[Value], format: Format| {
            let groups = group(settings, rules);
            let expected = written(&groups, Some(format)).unwrap();
            assert_eq!(written(&groups, None).unwrap(), expected);
            let all = [Format::Prometheus, Format::Vmalert, Format::Quiver];
            let before = all.iter().take_while(|f| **f != format);
            for other in before {
                assert!(!other.holds(&groups[0].1), "{other:?}");
            }
        };
        let plain = json!({"alert": "A", "expr": "up == 0", "language": "promql", "labels": {"a": "b"}});
        check(None, std::slice::from_ref(&plain), Format::Prometheus);
        check(Some(json!({"concurrency": 2})), std::slice::from_ref(&plain), Format::Vmalert);
        let logs = json!({"alert": "L", "expr": "* | stats count() n", "language": "logsql"});
        check(None, std::slice::from_ref(&logs), Format::Vmalert);
        check(None, &[plain.clone(), logs], Format::Quiver);
        check(None, &[json!({"alert": "A", "expr": "1", "severity": "page"})], Format::Quiver);
        check(None, &[json!({"alert": "A", "expr": "1", "enabled": false})], Format::Quiver);
        check(Some(json!({"description": "d"})), &[plain], Format::Quiver);
    }

    #[test]
    fn our_own_form_says_all() {
        let rules = [
            json!({"alert": "A", "expr": "1", "language": "promql", "severity": "page", "service": "cart",
                "enabled": false, "description": "d", "for": "0s", "labels": {}}),
            json!({"record": "r", "expr": "* | stats count() n", "language": "logsql", "enabled": true}),
        ];
        let (text, left_out) = written(&group(Some(json!({"type": "vlogs"})), &rules), Some(Format::Quiver)).unwrap();
        let read = quiver_alerting::rules::read_own(&text, &crate::expression_checks::Languages).unwrap();
        let rules = &read.groups[0].rules;
        assert_eq!((left_out, rules.len(), rules[0].enabled, rules[0].language), (0, 2, false, Language::Promql));
        assert_eq!((rules[1].enabled, rules[1].language), (true, Language::Logsql));
        assert!(text.contains("service: cart") && !text.contains("language: logsql"), "{text}");
        let waits = group(Some(json!({"concurrency": 2, "query_offset": "5s"})), &[json!({"alert": "A", "expr": "1"})]);
        let (text, _) = written(&waits, Some(Format::Vmalert)).unwrap();
        assert!(text.contains("eval_delay: \"5s\"") && !text.contains("query_offset"), "{text}");
        // The formats of others lose rules, and the number says so.
        let (text, left_out) =
            written(&group(None, &[json!({"alert": "A", "expr": "1", "enabled": false})]), Some(Format::Prometheus))
                .unwrap();
        assert!(left_out == 1 && text.contains("rules: []"), "{text}");
    }
}
