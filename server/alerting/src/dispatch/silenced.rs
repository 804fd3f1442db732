//! Which silences cover an alert. Each is looked for by what it wants a label to be: of tens of thousands on both sides, not
//! each can be held against each.

use std::collections::HashMap;
use std::sync::Arc;

use quiver_types::{LabelSet, MatchOp};

use crate::silences::Silence;

/// Silences that mute at one time.
#[derive(Debug, Default)]
pub struct Silenced {
    all: Vec<(Arc<str>, Arc<Silence>)>,
    /// Places of those that want a label to have a value, by name and value: of several labels by what fewest want.
    wanted: HashMap<String, HashMap<String, Vec<usize>>>,
    /// Places of the others, which each alert is held against.
    others: Vec<usize>,
}

/// What a silence wants labels to be.
fn pairs(silence: &Silence) -> impl Iterator<Item = (&str, &str)> {
    let equal = silence.matchers.iter().filter(|m| m.op == MatchOp::Equal && !m.value.is_empty());
    equal.map(|m| (m.name.as_str(), m.value.as_str()))
}

impl Silenced {
    /// Takes silences that are active, in the order in which they are told.
    pub fn new(active: &[Arc<Silence>]) -> Self {
        let mut counts: HashMap<(&str, &str), usize> = HashMap::new();
        for pair in active.iter().flat_map(|silence| pairs(silence)) {
            *counts.entry(pair).or_default() += 1;
        }
        let mut out = Self::default();
        for (place, silence) in active.iter().enumerate() {
            match pairs(silence).min_by_key(|pair| counts.get(pair).copied()) {
                Some((name, value)) => {
                    let of_name = out.wanted.entry(name.to_owned()).or_default();
                    of_name.entry(value.to_owned()).or_default().push(place);
                }
                None => out.others.push(place),
            }
            out.all.push((Arc::from(silence.id.as_str()), Arc::clone(silence)));
        }
        out
    }

    /// Gives places of those that may cover labels, each once.
    fn candidates<'a>(&'a self, labels: &'a LabelSet) -> impl Iterator<Item = usize> + 'a {
        let wanted = labels.iter().filter_map(move |(name, value)| self.wanted.get(name)?.get(value));
        wanted.flatten().chain(&self.others).copied()
    }

    fn is_by(&self, place: usize, labels: &LabelSet) -> bool {
        self.all[place].1.matchers.matches(labels)
    }

    /// Says whether one of them covers labels.
    pub fn covers(&self, labels: &LabelSet) -> bool {
        self.candidates(labels).any(|place| self.is_by(place, labels))
    }

    /// Gives the places of those that cover labels, in their order.
    pub fn places(&self, labels: &LabelSet) -> Vec<usize> {
        let mut found: Vec<usize> = self.candidates(labels).filter(|place| self.is_by(*place, labels)).collect();
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
        let texts =
            ["a=1", "a=1,b=2", "b=2,c!=3", "a=~\"1|2\"", "b!=2", "a=\"\",b=2", "c=\"\"", "a=2", "c=~\".+\",a=1", "z=1"];
        let all = silences((0..40).map(|n| (format!("s{n:02}"), texts[n % texts.len()])));
        let silenced = Silenced::new(&all.active(50));
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
        assert!(Silenced::new(&all.active(100)).by(&LabelSet::from_pairs([("a", "1")])).is_empty(), "they are over");
    }

    /// Held each against each, these would take minutes.
    #[test]
    fn many_of_many() {
        const MANY: usize = 20_000;
        let texts: Vec<String> = (0..MANY).map(|n| format!("alertname=A,i=\"{n}\",j!=1")).collect();
        let all = silences(texts.iter().enumerate().map(|(n, text)| (format!("s{n:05}"), text.as_str())));
        let silenced = Silenced::new(&all.active(50));
        for n in 0..MANY {
            let i = n.to_string();
            let labels = LabelSet::from_pairs([("alertname", "A"), ("i", &i)]);
            assert_eq!(silenced.candidates(&labels).count(), 1, "{n}: of all silences one is matched");
            assert_eq!(silenced.by(&labels).len(), 1, "{n}");
        }
    }
}
