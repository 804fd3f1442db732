//! Finds the silences that match an alert. Silences are indexed by the label values that their matchers require: with
//! tens of thousands of alerts and silences, comparing every pair would take too long.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use quiver_types::{LabelSet, MatchOp};

use crate::silences::Silence;

/// Silences that mute at one time.
#[derive(Debug, Default)]
pub struct SilenceIndex {
    all: Vec<(Arc<str>, Arc<Silence>)>,
    /// Places of those that want a label to have one of some values, by name and value: of several labels by what fewest want.
    wanted: HashMap<String, HashMap<String, Vec<usize>>>,
    /// The others, by a label that each has a matcher for.
    others: Vec<Others>,
}

/// Silences with a matcher for the same label, whatever it says.
#[derive(Debug)]
struct Others {
    name: String,
    /// Places, each with the number of the matcher.
    silences: Vec<(usize, usize)>,
    /// Places of those whose matcher takes a value, for values that were asked for: many alerts share a few.
    known: RefCell<HashMap<String, Arc<[usize]>>>,
}

/// Most places that are known for the values of a label.
const KNOWN_MAX: usize = 1 << 20;
/// Most values of lists that silences are found by: each takes many times what it has in its pattern.
const LISTED_MAX: usize = 1 << 18;

/// What a silence wants labels to be.
fn pairs(silence: &Silence) -> impl Iterator<Item = (&str, &str)> {
    let equal = silence.matchers.iter().filter(|m| m.op == MatchOp::Equal && !m.value.is_empty());
    equal.map(|m| (m.name.as_str(), m.value.as_str()))
}

/// Gives a label that a silence wants to have one of some values, which its pattern lists.
fn listed(silence: &Silence) -> Option<(&str, BTreeSet<&str>)> {
    let is_plain = |value: &str| {
        !value.is_empty() && !value.contains(|c: char| c.is_ascii_punctuation() && !"-_:/,@ ".contains(c))
    };
    let list = silence.matchers.iter().find(|m| m.op == MatchOp::Regex && m.value.split('|').all(is_plain))?;
    Some((list.name.as_str(), list.value.split('|').collect()))
}

impl SilenceIndex {
    /// Takes silences that are active, in the order in which they are told.
    pub fn new(active: &[Arc<Silence>]) -> Self {
        Self::within(active, LISTED_MAX)
    }

    /// Finds by so many values of lists only; what lists more is matched as any other pattern.
    fn within(active: &[Arc<Silence>], listed_max: usize) -> Self {
        let mut listed_left = listed_max;
        let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
        for pair in active.iter().flat_map(|silence| pairs(silence)) {
            *counts.entry(pair).or_default() += 1;
        }
        let mut out = Self::default();
        let mut others: BTreeMap<&str, Vec<(usize, usize)>> = BTreeMap::new();
        for (place, silence) in active.iter().enumerate() {
            let pair = pairs(silence).min_by_key(|pair| counts.get(pair).copied());
            let list = || {
                let (name, values) = listed(silence)?;
                listed_left = listed_left.checked_sub(values.len())?;
                Some((name, values))
            };
            if let Some((name, values)) = pair.map(|(name, value)| (name, [value].into())).or_else(list) {
                let of_name = out.wanted.entry(name.to_owned()).or_default();
                for value in values {
                    of_name.entry(value.to_owned()).or_default().push(place);
                }
            } else {
                // One that a missing label does not match lets fewer pass.
                let n = silence.matchers.iter().position(|m| !m.matches_empty()).unwrap_or(0);
                let name = silence.matchers.iter().nth(n).map_or("", |m| m.name.as_str());
                others.entry(name).or_default().push((place, n));
            }
            out.all.push((Arc::from(silence.id.as_str()), Arc::clone(silence)));
        }
        let of_name =
            |(name, silences): (&str, _)| Others { name: name.to_owned(), silences, known: RefCell::default() };
        out.others = others.into_iter().map(of_name).collect();
        out
    }

    /// Gives places of those of one label that may cover an alert by its value.
    fn fitting(&self, others: &Others, value: &str) -> Arc<[usize]> {
        let mut known = others.known.borrow_mut();
        if let Some(found) = known.get(value) {
            return Arc::clone(found);
        }
        let fits = |(place, n): &&(usize, usize)| {
            let matcher = self.all[*place].1.matchers.iter().nth(*n);
            matcher.is_none_or(|m| m.matches(value))
        };
        let found: Arc<[usize]> = others.silences.iter().filter(fits).map(|(place, _)| *place).collect();
        if (known.len() + 1) * others.silences.len() <= KNOWN_MAX {
            known.insert(value.to_owned(), Arc::clone(&found));
        }
        found
    }

    /// Gives places of those that may cover labels, each once.
    fn candidates(&self, labels: &LabelSet) -> Vec<usize> {
        let wanted = labels.iter().filter_map(|(name, value)| self.wanted.get(name)?.get(value));
        let mut found: Vec<usize> = wanted.flatten().copied().collect();
        for others in &self.others {
            found.extend_from_slice(&self.fitting(others, labels.get(&others.name)));
        }
        found
    }

    fn is_by(&self, place: usize, labels: &LabelSet) -> bool {
        self.all[place].1.matchers.matches(labels)
    }

    /// Says whether one of them covers labels.
    pub fn covers(&self, labels: &LabelSet) -> bool {
        self.candidates(labels).into_iter().any(|place| self.is_by(place, labels))
    }

    /// Gives the places of those that cover labels, in their order.
    pub fn places(&self, labels: &LabelSet) -> Vec<usize> {
        let mut found = self.candidates(labels);
        found.retain(|place| self.is_by(*place, labels));
        found.sort_unstable();
        found
    }

    /// Gives the ids of those that cover labels, in their order.
    pub fn by(&self, labels: &LabelSet) -> Vec<Arc<str>> {
        self.places(labels).into_iter().map(|place| Arc::clone(&self.all[place].0)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matchers::{Matchers, read};
    use crate::silences::Silences;

    fn silences<'a>(matchers: impl Iterator<Item = (String, &'a str)>) -> Silences {
        let mut all = Silences::default();
        for (id, text) in matchers {
            let matchers = Matchers::in_order(read(text).expect(text).matchers);
            all.load(Silence { id, matchers, starts_at: 0, ends_at: 100, ..Silence::default() });
        }
        all
    }

    /// The same ones in the same order as when each is asked.
    #[test]
    fn found_as_if_each_were_asked() {
        let texts = [
            "a=1",
            "a=1,b=2",
            "b=2,c!=3",
            "a=~\"1|2\"",
            "b!=2",
            "a=\"\",b=2",
            "c=\"\"",
            "a=2",
            "c=~\".+\",a=1",
            "z=1",
            "a=~\"1|1\"",
            "a=~\"1|\"",
            "a=~\"(1|2)\",c!=4",
            "a!~\"1|2\"",
            "c=~\"3|4\",b=~\".*\"",
            "b=~\"2.*\"",
            "d=~\".+\"",
        ];
        let all = silences((0..68).map(|n| (format!("s{n:02}"), texts[n % texts.len()])));
        for listed_max in [LISTED_MAX, 3, 0] {
            let silenced = SilenceIndex::within(&all.active(50), listed_max);
            let mut found = 0;
            for text in ["", "a=1", "a=2", "b=2", "a=1 b=2", "a=1 b=2 c=3", "c=3", "a=1 c=4", "z=2", "z=1 a=2"] {
                let pairs = text.split(' ').filter_map(|pair| pair.split_once('='));
                let labels = LabelSet::from_pairs(pairs);
                let by = silenced.by(&labels);
                assert_eq!(by.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), all.silenced_by(&labels, 50), "{text}");
                assert_eq!(silenced.covers(&labels), !by.is_empty(), "{text}");
                found += by.len();
            }
            assert!(found > 100, "{found}");
            let by_values = silenced.wanted.values().map(HashMap::len).sum::<usize>();
            assert!(listed_max > 0 || by_values <= 4, "{by_values}: what `a`, `b` and `z` must be equal to");
        }
        assert!(
            SilenceIndex::new(&all.active(100)).by(&LabelSet::from_pairs([("a", "1")])).is_empty(),
            "they are over"
        );
    }

    /// Held each against each, these would take minutes.
    #[test]
    fn many_of_many() {
        const MANY: usize = 20_000;
        let texts: Vec<String> = (0..MANY).map(|n| format!("alertname=A,i=\"{n}\",j!=1")).collect();
        let all = silences(texts.iter().enumerate().map(|(n, text)| (format!("s{n:05}"), text.as_str())));
        let silenced = SilenceIndex::new(&all.active(50));
        for n in 0..MANY {
            let i = n.to_string();
            let labels = LabelSet::from_pairs([("alertname", "A"), ("i", &i)]);
            assert_eq!(silenced.candidates(&labels).len(), 1, "{n}: of all silences one is matched");
            assert_eq!(silenced.by(&labels).len(), 1, "{n}");
        }
    }

    /// Without a label that must be equal to something: values are looked up where a pattern lists them, and each other
    /// pattern is held against a value of its label once.
    #[test]
    fn many_patterns_of_many() {
        const MANY: usize = 5_000;
        let text = |n: usize| match n % 3 {
            0 => format!("i=~\"x{n}|y{n}\""),
            1 => format!("job=~\"j{n}.*\",i!=\"z\""),
            _ => format!("job!~\"j.*\",i=~\".*{n}\""),
        };
        let all = silences(
            (0..MANY)
                .map(|n| (format!("s{n:04}"), text(n)))
                .collect::<Vec<_>>()
                .iter()
                .map(|(id, text)| (id.clone(), text.as_str())),
        );
        let silenced = SilenceIndex::new(&all.active(50));
        assert_eq!(silenced.others.iter().map(|others| others.name.as_str()).collect::<Vec<_>>(), ["i", "job"]);
        let mut found = 0;
        for n in 0..MANY {
            let (i, job) = (format!("x{n}"), format!("j{}", n % 10));
            found += silenced.by(&LabelSet::from_pairs([("i", i.as_str()), ("job", job.as_str())])).len();
        }
        // Those whose number is a multiple of three by their `i`; of the others by their `job` those of one digit.
        assert_eq!(found, MANY.div_ceil(3) + 3 * MANY / 10);
        let by_job = silenced.others.iter().find(|others| others.name == "job").expect("some name it");
        assert_eq!(by_job.known.borrow().len(), 10, "as many as there are values");
    }
}
