//! Records what was sent and what was acknowledged, and checks responses against it: nothing lost, nothing that was never
//! sent, nothing duplicated. It is outside of the server's process and does not use the server's own counters.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Samples by series (the value of their label `series`): time in Unix ms, value.
pub type Found = BTreeMap<String, Vec<(i64, f64)>>;

/// How many examples of each fault a verdict names.
const EXAMPLES: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Sent; no answer yet, or none that came through.
    Doubtful,
    /// Acknowledged, or seen after a restart: must stay.
    Kept,
    /// Was doubtful and did not survive a restart: must not come back.
    Gone,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    bits: u64,
    state: State,
}

/// The record of all samples of one metric.
#[derive(Debug, Default)]
pub struct History {
    series: Mutex<BTreeMap<String, BTreeMap<i64, Entry>>>,
}

/// What is wrong with an answer.
#[derive(Debug, Default, Clone)]
pub struct Verdict {
    /// Acknowledged samples that are not there.
    pub lost: usize,
    /// Samples that nobody sent, that have another value, or that came back.
    pub phantom: usize,
    /// Samples that are there more than once.
    pub duplicate: usize,
    /// Samples that are there.
    pub found: usize,
    examples: Vec<String>,
}

impl Verdict {
    /// Says whether nothing is wrong.
    pub fn clean(&self) -> bool {
        self.lost + self.phantom + self.duplicate == 0
    }

    fn note(&mut self, example: impl FnOnce() -> String) {
        if self.examples.len() < 3 * EXAMPLES {
            self.examples.push(example());
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lost, phantom, duplicate, found, .. } = self;
        write!(f, "{found} found, {lost} lost, {phantom} phantom, {duplicate} duplicate: {}", self.examples.join("; "))
    }
}

/// Equal as a query shows it: bit by bit, but there is one NaN in JSON.
fn same(bits: u64, shown: f64) -> bool {
    bits == shown.to_bits() || (f64::from_bits(bits).is_nan() && shown.is_nan())
}

impl History {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, BTreeMap<i64, Entry>>> {
        self.series.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes samples before they are sent. What is known already stays as it is.
    pub fn sent(&self, series: &str, samples: &[(i64, f64)]) {
        let mut all = self.lock();
        let known = all.entry(series.to_owned()).or_default();
        for (ts, value) in samples {
            let entry = Entry { bits: value.to_bits(), state: State::Doubtful };
            let known = known.entry(*ts).or_insert(entry);
            assert_eq!(known.bits, entry.bits, "a writer sends one value per time");
        }
    }

    /// Notes that they were acknowledged.
    pub fn acknowledged(&self, series: &str, samples: &[(i64, f64)]) {
        let mut all = self.lock();
        let known = all.get_mut(series).expect("sent before it is acknowledged");
        for (ts, _) in samples {
            known.get_mut(ts).expect("sent before it is acknowledged").state = State::Kept;
        }
    }

    /// Judges an answer that should hold everything, while nobody writes. With `settle`, the process that doubtful
    /// requests went to is dead: what is there has to stay from now on, what is not must never come.
    pub fn judge(&self, found: &Found, settle: bool) -> Verdict {
        let mut all = self.lock();
        let mut verdict = Verdict::default();
        for (series, samples) in found {
            let known = all.get(series);
            let mut before = None;
            for (ts, value) in samples {
                verdict.found += 1;
                match known.and_then(|k| k.get(ts)) {
                    None => {
                        verdict.phantom += 1;
                        verdict.note(|| format!("phantom {series} {ts} {value}"));
                    }
                    Some(e) if !same(e.bits, *value) || e.state == State::Gone => {
                        verdict.phantom += 1;
                        let sent = f64::from_bits(e.bits);
                        verdict.note(|| format!("phantom {series} {ts} {value}, sent {sent}, {:?}", e.state));
                    }
                    Some(_) => {}
                }
                if before >= Some(*ts) {
                    verdict.duplicate += 1;
                    verdict.note(|| format!("duplicate {series} {ts} {value}"));
                }
                before = Some(*ts);
            }
        }
        for (series, known) in all.iter_mut() {
            let mut here = found.get(series).into_iter().flatten().map(|(ts, _)| *ts).peekable();
            for (ts, entry) in known {
                while here.next_if(|t| t < ts).is_some() {}
                match (here.peek() == Some(ts), entry.state) {
                    (false, State::Kept) => {
                        verdict.lost += 1;
                        verdict.note(|| format!("lost {series} {ts} {}", f64::from_bits(entry.bits)));
                    }
                    (true, State::Doubtful) if settle => entry.state = State::Kept,
                    (false, State::Doubtful) if settle => entry.state = State::Gone,
                    _ => {}
                }
            }
        }
        verdict
    }

    /// Forgets samples of a time range that a retention has dropped; they must not come back.
    pub fn dropped(&self, start_ms: i64, end_ms: i64) {
        for known in self.lock().values_mut() {
            known.range_mut(start_ms..end_ms).for_each(|(_, entry)| entry.state = State::Gone);
        }
    }

    /// Forgets samples of a request whose record was damaged on purpose.
    pub fn forget(&self, series: &str, samples: &[(i64, f64)]) {
        if let Some(known) = self.lock().get_mut(series) {
            for (ts, _) in samples {
                known.remove(ts);
            }
        }
    }

    /// Gives the record as it stands now.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self { series: Mutex::new(self.lock().clone()) }
    }

    /// Counts samples that must be there.
    pub fn kept(&self) -> usize {
        self.lock().values().flat_map(BTreeMap::values).filter(|e| e.state == State::Kept).count()
    }

    /// First and last time.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        let all = self.lock();
        let first = all.values().filter_map(|k| k.keys().next()).min()?;
        let last = all.values().filter_map(|k| k.keys().next_back()).max()?;
        Some((*first, *last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(samples: &[(i64, f64)]) -> Found {
        Found::from([("a".to_owned(), samples.to_vec())])
    }

    #[test]
    fn faults_are_counted() {
        let history = History::default();
        history.sent("a", &[(1, 1.0), (2, -0.0), (3, f64::NAN), (4, 4.0)]);
        history.acknowledged("a", &[(1, 1.0), (2, -0.0), (3, f64::NAN)]);
        let check = |samples: &[(i64, f64)], expected: (usize, usize, usize)| {
            let v = history.judge(&found(samples), false);
            assert_eq!((v.lost, v.phantom, v.duplicate), expected, "{v}");
        };
        check(&[(1, 1.0), (2, -0.0), (3, f64::NAN)], (0, 0, 0));
        check(&[(1, 1.0), (2, -0.0), (3, f64::NAN), (4, 4.0)], (0, 0, 0));
        check(&[(1, 1.0), (2, 0.0), (3, f64::NAN)], (0, 1, 0));
        check(&[(1, 1.0), (1, 1.0), (2, -0.0), (3, f64::NAN)], (0, 0, 1));
        check(&[(1, 1.0), (3, f64::NAN), (5, 5.0)], (1, 1, 0));
        assert_eq!(history.judge(&Found::new(), false).lost, 3);
    }

    #[test]
    fn what_was_doubtful_is_settled_by_a_restart() {
        let history = History::default();
        history.sent("a", &[(1, 1.0), (2, 2.0)]);
        assert!(history.judge(&found(&[(1, 1.0)]), true).clean());
        assert_eq!(history.judge(&found(&[]), false).lost, 1);
        assert_eq!(history.judge(&found(&[(1, 1.0), (2, 2.0)]), false).phantom, 1);
        assert_eq!(history.kept(), 1);
    }
}
