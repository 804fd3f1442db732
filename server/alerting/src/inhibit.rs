//! Inhibition: alerts that silence others while they fire.

use std::collections::{BTreeSet, HashMap};

use quiver_types::{LabelSet, MatchOp};
use quiver_yaml::problem::{Code, Problems};
use quiver_yaml::{Fields, Node};

use crate::labels::fingerprint;
use crate::matchers::Matchers;
use crate::routes::{read_match, read_matchers};

/// A rule: alerts that match the source mute those that match the target and have equal labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InhibitRule {
    /// Name, if it has one.
    pub name: String,
    /// What mutes.
    pub source: Matchers,
    /// What is muted.
    pub target: Matchers,
    /// Labels that must be equal; a missing one is the empty text.
    pub equal: BTreeSet<String>,
}

impl InhibitRule {
    /// Reads a rule.
    pub fn read(node: &Node, path: &str, warnings: &mut Vec<String>, problems: &mut Problems) -> Self {
        let Some(mut fields) = Fields::new(node, path, problems) else { return Self::default() };
        let name = fields.text("name", problems).unwrap_or_default();
        let (mut source, mut target) = (Vec::new(), Vec::new());
        read_match(&mut fields, "source_match", MatchOp::Equal, &mut source, problems);
        read_match(&mut fields, "source_match_re", MatchOp::Regex, &mut source, problems);
        read_matchers(&mut fields, "source_matchers", &mut source, warnings, problems);
        read_match(&mut fields, "target_match", MatchOp::Equal, &mut target, problems);
        read_match(&mut fields, "target_match_re", MatchOp::Regex, &mut target, problems);
        read_matchers(&mut fields, "target_matchers", &mut target, warnings, problems);
        let equal: BTreeSet<String> = fields.texts("equal", problems).unwrap_or_default().into_iter().collect();
        if equal.contains("") {
            fields.problem("equal", Code::InvalidValue, "invalid label name \"\" in equal list", problems);
        }
        fields.finish(problems);
        Self { name, source: Matchers::new(source), target: Matchers::new(target), equal }
    }

    fn equal_labels(&self, labels: &LabelSet) -> LabelSet {
        LabelSet::from_pairs(self.equal.iter().map(|name| (name.as_str(), labels.get(name))))
    }
}

/// Sources of one rule under equal labels.
#[derive(Debug, Default)]
struct Sources {
    /// An alert that matches the source only.
    one_sided: Option<u64>,
    /// An alert that matches both sides; it mutes only what does not match the source itself.
    two_sided: Option<u64>,
}

/// Which alerts fire, in a form that is asked quickly.
#[derive(Debug)]
pub struct Inhibitor<'a> {
    rules: Vec<(&'a InhibitRule, HashMap<LabelSet, Sources>)>,
}

impl<'a> Inhibitor<'a> {
    /// Takes the alerts that fire now.
    pub fn new<'l>(rules: &'a [InhibitRule], firing: impl IntoIterator<Item = &'l LabelSet>) -> Self {
        let mut out: Vec<_> = rules.iter().map(|rule| (rule, HashMap::<LabelSet, Sources>::new())).collect();
        for labels in firing {
            for (rule, sources) in out.iter_mut().filter(|(rule, _)| rule.source.matches(labels)) {
                let entry = sources.entry(rule.equal_labels(labels)).or_default();
                let slot = if rule.target.matches(labels) { &mut entry.two_sided } else { &mut entry.one_sided };
                // Of several the same one is told every time.
                let id = fingerprint(labels);
                *slot = Some(slot.map_or(id, |there| there.min(id)));
            }
        }
        Self { rules: out }
    }

    /// Finds an alert that mutes another; gives its fingerprint.
    pub fn inhibited_by(&self, labels: &LabelSet) -> Option<u64> {
        self.rules.iter().filter(|(rule, _)| rule.target.matches(labels)).find_map(|(rule, sources)| {
            let found = sources.get(&rule.equal_labels(labels))?;
            // Alerts that match both sides do not mute each other, nor themselves.
            let both = if rule.source.matches(labels) { None } else { found.two_sided };
            found.one_sided.or(both)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quiver_yaml as yaml;

    #[test]
    fn muted_or_not() {
        let text = "source_matchers: ['s=\"1\"']\ntarget_matchers: ['t=\"1\"']\nequal: [e]\n";
        let mut problems = Problems::default();
        let rule = InhibitRule::read(&yaml::read(text).expect("valid")[0], "", &mut Vec::new(), &mut problems);
        assert!(problems.is_empty(), "{problems}");
        let set = |pairs: &[(&str, &str)]| LabelSet::from_pairs(pairs.iter().copied());
        let check = |firing: &[LabelSet], target: &LabelSet, muted: bool| {
            let rules = [rule.clone()];
            assert_eq!(Inhibitor::new(&rules, firing).inhibited_by(target).is_some(), muted, "{target:?}");
        };
        let (source, both) = (set(&[("s", "1"), ("e", "x")]), set(&[("s", "1"), ("t", "1"), ("e", "x")]));
        check(std::slice::from_ref(&source), &set(&[("t", "1"), ("e", "x")]), true);
        check(std::slice::from_ref(&source), &set(&[("t", "1"), ("e", "y")]), false);
        check(&[set(&[("s", "1")])], &set(&[("t", "1")]), true);
        check(std::slice::from_ref(&source), &set(&[("t", "2"), ("e", "x")]), false);
        check(std::slice::from_ref(&both), &both, false);
        check(std::slice::from_ref(&both), &set(&[("t", "1"), ("e", "x")]), true);
        check(&[both.clone(), source], &both, true);
        check(&[], &both, false);
    }
}
