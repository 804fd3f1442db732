//! Inhibition: alerts that silence others while they fire.

use std::collections::{BTreeSet, HashMap};

use quiver_types::{LabelSet, MatchOp, SeriesId};
use quiver_yaml::problem::{Code, Problems};
use quiver_yaml::{Fields, Node};

use crate::labels::fingerprint;
use crate::matcher_fields::{ReadContext, read_match, read_matchers};
use crate::matchers::Matchers;
use crate::matchers::equal_index::EqualIndex;

/// A rule: alerts that match the source mute those that match the target and have equal labels.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InhibitRule {
    /// Name, if it has one.
    pub name: String,
    /// What an alert must match to mute others while it fires.
    pub source: Matchers,
    /// What an alert must match to be muted.
    pub target: Matchers,
    /// Labels that must be equal; a missing one is the empty text.
    pub equal: BTreeSet<String>,
}

impl InhibitRule {
    /// Reads a rule.
    pub fn read(node: &Node, path: &str, reading: &mut ReadContext, problems: &mut Problems) -> Self {
        let Some(mut fields) = Fields::new(node, path, problems) else { return Self::default() };
        let name = fields.text("name", problems).unwrap_or_default();
        let mut side = |equal: &'static str, pattern: &'static str, all: &'static str| {
            let mut found = read_match(&mut fields, equal, MatchOp::Equal, reading, problems);
            found.extend(read_match(&mut fields, pattern, MatchOp::Regex, reading, problems));
            found.extend(read_matchers(&mut fields, all, reading, problems));
            Matchers::new(found)
        };
        let source = side("source_match", "source_match_re", "source_matchers");
        let target = side("target_match", "target_match_re", "target_matchers");
        let equal: BTreeSet<String> = fields.texts("equal", problems).unwrap_or_default().into_iter().collect();
        if equal.contains("") {
            fields.problem("equal", Code::InvalidValue, "invalid label name \"\" in equal list", problems);
        }
        fields.finish(problems);
        Self { name, source, target, equal }
    }

    /// A hash of the labels that must be equal, wide enough to be treated as unique.
    fn equal_labels(&self, labels: &LabelSet) -> SeriesId {
        LabelSet::from_pairs(self.equal.iter().map(|name| (name.as_str(), labels.get(name)))).id()
    }
}

/// Most sources that are held of all rules together. There may be as many as rules times alerts.
const SOURCES_MAX: usize = 1 << 18;

/// Sources of one rule under equal labels.
#[derive(Debug, Clone, Copy, Default)]
struct Sources {
    /// An alert that matches the source only.
    one_sided: Option<u64>,
    /// An alert that matches both sides; it mutes only what does not match the source itself.
    two_sided: Option<u64>,
}

impl Sources {
    fn add(&mut self, rule: &InhibitRule, labels: &LabelSet) {
        let slot = if rule.target.matches(labels) { &mut self.two_sided } else { &mut self.one_sided };
        // If several alerts mute it, the same one is named every time.
        let id = fingerprint(labels);
        *slot = Some(slot.map_or(id, |there| there.min(id)));
    }
}

/// The sources of a rule by the labels that must be equal.
type SourcesByLabels = HashMap<SeriesId, Sources>;

/// Which alerts fire, in a form that is asked quickly.
#[derive(Debug)]
pub struct Inhibitor<'a> {
    /// Rules with their indexed sources; `None` if there is no room for an index: then all alerts are searched.
    rules: Vec<(&'a InhibitRule, Option<SourcesByLabels>)>,
    /// Which rules may mute an alert.
    by_target: EqualIndex,
    firing: Vec<&'a LabelSet>,
}

impl<'a> Inhibitor<'a> {
    /// Takes the alerts that fire now.
    pub fn new(rules: &'a [InhibitRule], firing: impl IntoIterator<Item = &'a LabelSet>) -> Self {
        Self::holding(SOURCES_MAX, rules, firing)
    }

    /// Creates the inhibitor, with at most so many indexed sources.
    fn holding(most: usize, rules: &'a [InhibitRule], firing: impl IntoIterator<Item = &'a LabelSet>) -> Self {
        let firing: Vec<&LabelSet> = firing.into_iter().collect();
        let by_source = EqualIndex::new(rules.iter().map(|rule| &rule.source));
        let mut held: Vec<Option<SourcesByLabels>> = rules.iter().map(|_| Some(SourcesByLabels::new())).collect();
        let by_target = EqualIndex::new(rules.iter().map(|rule| &rule.target));
        let mut count = 0;
        // Alert by alert, so that each asks only the rules that it may be a source of.
        for labels in &firing {
            for at in by_source.candidates(labels) {
                let rule = &rules[at];
                let Some(sources) = held[at].as_mut().filter(|_| rule.source.matches(labels)) else { continue };
                let before = sources.len();
                sources.entry(rule.equal_labels(labels)).or_default().add(rule, labels);
                count += sources.len() - before;
                if count > most {
                    // Dropping the largest index first affects the fewest rules.
                    let largest = (0..held.len()).max_by_key(|at| held[*at].as_ref().map_or(0, HashMap::len));
                    count -= largest.and_then(|at| held[at].take()).map_or(0, |gone| gone.len());
                }
            }
        }
        let rules = rules.iter().zip(held).collect();
        Self { rules, by_target, firing }
    }

    /// Looks for the sources of a rule that are equal to something.
    fn sources_like(&self, rule: &InhibitRule, equal: SeriesId) -> Sources {
        let mut sources = Sources::default();
        let like =
            self.firing.iter().filter(|labels| rule.source.matches(labels) && rule.equal_labels(labels) == equal);
        like.for_each(|labels| sources.add(rule, labels));
        sources
    }

    /// Finds an alert that mutes another; gives its fingerprint.
    pub fn inhibited_by(&self, labels: &LabelSet) -> Option<u64> {
        let rules = self.by_target.candidates(labels).into_iter().filter_map(|at| self.rules.get(at));
        rules.filter(|(rule, _)| rule.target.matches(labels)).find_map(|(rule, sources)| {
            let equal = rule.equal_labels(labels);
            let found = match sources {
                Some(sources) => *sources.get(&equal)?,
                None => self.sources_like(rule, equal),
            };
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
        let rule =
            InhibitRule::read(&yaml::read(text).expect("valid")[0], "", &mut ReadContext::default(), &mut problems);
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

    fn rule(text: &str) -> InhibitRule {
        let mut problems = Problems::default();
        let rule = InhibitRule::read(&yaml::read(text).expect(text)[0], "", &mut ReadContext::default(), &mut problems);
        assert!(problems.is_empty(), "{text}: {problems}");
        rule
    }

    fn set(text: &str) -> LabelSet {
        LabelSet::from_pairs(text.split(' ').filter(|t| !t.is_empty()).map(|t| t.split_once('=').expect(t)))
    }

    #[test]
    fn what_must_be_equal() {
        let check = |equal: &str, source: &str, target: &str, is_muted: bool| {
            let rules = [rule(&format!("{{source_match: {{s: x}}, target_match: {{t: y}}, equal: {equal}}}"))];
            let muted = Inhibitor::new(&rules, [&set(source)]).inhibited_by(&set(target));
            assert_eq!(muted.is_some(), is_muted, "{equal}: {source} | {target}");
        };
        check("[]", "s=x", "t=y", true);
        check("[]", "s=x a=1", "t=y a=2", true);
        check("[a]", "s=x a=1", "t=y a=1", true);
        check("[a]", "s=x a=1", "t=y a=2", false);
        // Missing on both sides is equal, on one side it is not.
        check("[a]", "s=x", "t=y", true);
        check("[a]", "s=x a=1", "t=y", false);
        check("[a]", "s=x", "t=y a=1", false);
        check("[a, b]", "s=x a=1 b=2", "t=y a=1 b=2", true);
        check("[a, b]", "s=x a=1 b=2", "t=y a=1 b=3", false);
        check("[b, a, a]", "s=x a=1", "t=y a=1", true);
        check("[]", "s=x", "t=z", false);
        check("[]", "s=z", "t=y", false);
        check("[]", "s=x", "s=x", false);
    }

    /// Breaks if a rule or source is skipped, or another alert is named each time.
    #[test]
    fn who_mutes() {
        let rules = [
            rule("{source_matchers: ['sev=critical'], target_matchers: ['sev=~\"warning|info\"'], equal: [job]}"),
            rule("{source_match_re: {alertname: 'Down|Gone'}, target_matchers: ['alertname!~\"Down|Gone\"']}"),
        ];
        let firing = [set("sev=critical job=a i=1"), set("sev=critical job=a i=2"), set("alertname=Gone job=z")];
        let ids: Vec<u64> = firing.iter().map(fingerprint).collect();
        let first = ids[0].min(ids[1]);
        let forth = Inhibitor::new(&rules, &firing);
        let back = Inhibitor::new(&rules, firing.iter().rev());
        // The result is the same if there is no room for the sources of some rules, or of all.
        let few = Inhibitor::holding(1, &rules, &firing);
        let none = Inhibitor::holding(0, &rules, &firing);
        let held =
            |inhibitor: &Inhibitor<'_>| inhibitor.rules.iter().map(|(_, held)| held.is_some()).collect::<Vec<_>>();
        assert_eq!([&forth, &few, &none].map(held), [[true, true], [true, false], [false, false]]);
        for (target, expected) in [
            ("sev=warning job=a", Some(first)),
            ("sev=info job=a x=1", Some(first)),
            ("sev=warning job=b alertname=Slow", Some(ids[2])),
            ("alertname=Slow", Some(ids[2])),
            // A label that is missing is not one of the names, so it is muted, too.
            ("x=1", Some(ids[2])),
            ("alertname=Down", None),
        ] {
            for inhibitor in [&forth, &back, &few, &none] {
                assert_eq!(inhibitor.inhibited_by(&set(target)), expected, "{target}");
            }
        }
        assert_eq!(Inhibitor::new(&[], &firing).inhibited_by(&set("sev=warning job=a")), None);
    }

    #[test]
    fn of_many_rules_each_alert_asks_those_of_its_labels() {
        let texts = (0..300).map(|n| {
            format!("{{source_match: {{service: s{n}, level: high}}, target_match: {{service: s{n}, level: low}}}}")
        });
        let rules: Vec<InhibitRule> = texts.map(|text| rule(&text)).collect();
        let of = |n: usize, level: &str| set(&format!("service=s{n} level={level}"));
        let firing: Vec<LabelSet> = (0..300).step_by(2).map(|n| of(n, "high")).collect();
        for inhibitor in [Inhibitor::new(&rules, &firing), Inhibitor::holding(20, &rules, &firing)] {
            for n in 0..300 {
                let source = (n % 2 == 0).then(|| fingerprint(&of(n, "high")));
                assert_eq!(inhibitor.inhibited_by(&of(n, "low")), source, "{n}");
            }
            let held = inhibitor.rules.iter().filter_map(|(_, sources)| sources.as_ref());
            let sources: usize = held.map(HashMap::len).sum();
            assert!(sources == 150 || sources == 20, "{sources}");
        }
    }

    /// Those that match both sides mute what matches the target alone, and never each other.
    #[test]
    fn both_sides_of_a_rule() {
        let rules = [rule("{source_matchers: ['a=1'], target_matchers: ['b=1'], equal: [e]}")];
        let both = |e: &str| set(&format!("a=1 b=1 e={e}"));
        let firing = [both("x"), set("a=1 b=1 e=x n=2"), set("a=1 e=y"), both("y")];
        let inhibitor = Inhibitor::new(&rules, &firing);
        let check = |target: &LabelSet, expected: bool| {
            assert_eq!(inhibitor.inhibited_by(target).is_some(), expected, "{target:?}");
        };
        check(&both("x"), false);
        check(&firing[1], false);
        check(&set("b=1 e=x"), true);
        check(&both("y"), true);
        check(&firing[2], false);
        check(&set("b=1 e=z"), false);
    }

    #[test]
    fn refused() {
        let told = |text: &str| {
            let mut problems = Problems::default();
            InhibitRule::read(&yaml::read(text).expect(text)[0], "/r", &mut ReadContext::default(), &mut problems);
            problems.iter().map(|p| format!("{} {}", p.path, p.message)).collect::<Vec<_>>().join("; ")
        };
        for (text, expected) in [
            ("{equal: ['']}", "/r/equal invalid label name \"\" in equal list"),
            ("{equal: a}", "/r/equal `a` is not a list"),
            ("{source_match: x}", "/r/source_match wanted a mapping, got a scalar"),
            ("{source_matchers: [x]}", "/r/source_matchers/0 bad matcher format: x"),
            ("{target_match: {a: {}}}", "/r/target_match/a wanted a text, got a mapping"),
            ("{sources: []}", "/r/sources unknown field `sources`"),
            ("[]", "/r wanted a mapping, got a list"),
            ("{name: n, source_match: {a: b}, source_match_re: {c: d}, target_match: {}}", ""),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
        assert_eq!(rule("{name: n}").name, "n");
    }
}
