//! Regular expressions over texts of any length: the time for one text is linear, and the search ends with its query.
//!
//! The crate `regex` caches the states of its lazy automaton in a small table. A pattern with thousands of states that
//! keeps reaching new ones is run without that cache, some thousand times slower and without a way to stop it: a text of
//! a megabyte takes minutes. So if states times bytes are many, an automaton that is driven from here is used instead.
//! Its table is cleared when it is full, so patterns that settle on few states are fast again, and it checks regularly
//! whether the query still runs ([`crate::cancellation`]).

mod capture_groups;
mod match_positions;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use regex::Regex;
use regex_automata::Input;
use regex_automata::hybrid::dfa::DFA;
use regex_automata::nfa::thompson::{self, NFA};

use super::limits::REGEX_BYTES_MAX;
use super::lookaround::LookaroundRegex;
use crate::{Error, Result, cancellation};

pub use match_positions::Places;

/// States times bytes of a text that are left to the crate: below a tenth of a second where it is slowest.
const STEPS_AT_ONCE: usize = 1 << 23;
/// States times bytes of a piece of a text that is stepped through.
const STEPS_OF_PIECE: usize = 1 << 20;
/// Bytes of texts before it is worth while to count the states, which takes as long as to compile the pattern.
const BYTES_UNCOUNTED: usize = 4 << 10;
/// Table of the machine, in bytes, for as long as one text takes: a thread has at most one.
const TABLE_BYTES: usize = 2 << 20;

/// A regular expression that asks, while it looks at texts, whether its query goes on. Where it does not, the answer is
/// `false`, and whoever runs the query drops it.
#[derive(Clone)]
pub struct WatchedRegex {
    /// Of one that looks around: as many empty groups, with their names.
    regex: Regex,
    looking: Option<Arc<LookaroundRegex>>,
    machine: Arc<Machine>,
    has_flags: bool,
}

/// By what it asks, whatever it met so far: conditions are told apart by it.
impl fmt::Debug for WatchedRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WatchedRegex").field(&self.as_str()).field(&self.has_flags).finish()
    }
}

#[derive(Debug, Default)]
struct Machine {
    /// Bytes of texts before the states were counted.
    bytes: AtomicUsize,
    /// None: it cannot be made, or reads another pattern.
    dfa: OnceLock<Option<Box<DFA>>>,
    /// States for groups of long texts; none: they are too many.
    states: OnceLock<Option<NFA>>,
}

/// What is known of a text before the crate sees it.
enum PrecheckResult {
    /// Whether it matches.
    Said(bool),
    /// Nothing; the crate tells.
    Goes,
}

impl WatchedRegex {
    /// Takes a pattern whose text says all of it: made without flags, but perhaps with octal escapes.
    pub fn new(regex: Regex) -> Self {
        Self { regex, looking: None, machine: Arc::default(), has_flags: false }
    }

    /// Takes one that looks around or refers to its groups ([`super::looks_around`]); whoever runs it asks for its
    /// [`Self::outcome`].
    ///
    /// # Errors
    /// Invalid: it is none. LimitExceeded: it is too large, or nests too deeply.
    pub fn looking(pattern: &str) -> Result<Self> {
        let looking = LookaroundRegex::new(pattern)?;
        let group = |name: Option<&str>| name.map_or_else(|| "()".to_owned(), |name| format!("(?P<{name}>)"));
        let groups = looking.names.iter().map(|name| group(name.as_deref())).collect::<Vec<_>>().concat();
        let wrong = |e| Error::invalid(format!("`{pattern}` is no regular expression")).with_source(e);
        let regex = Regex::new(&groups).map_err(wrong)?;
        Ok(Self { looking: Some(Arc::new(looking)), ..Self::with_flags(regex) })
    }

    /// Whether what it said of all texts so far holds.
    ///
    /// # Errors
    /// LimitExceeded: it looks around, and a search took too many steps.
    pub fn outcome(&self) -> Result<()> {
        self.looking.as_ref().map_or(Ok(()), |looking| looking.outcome())
    }

    /// Takes a pattern that was made with flags beside its text: only the crate can run it.
    pub fn with_flags(regex: Regex) -> Self {
        let machine = Machine { dfa: OnceLock::from(None), ..Machine::default() };
        Self { regex, looking: None, machine: Arc::new(machine), has_flags: true }
    }

    /// Says whether flags beside its text belong to it.
    pub fn has_flags(&self) -> bool {
        self.has_flags
    }

    /// Gives the text of the pattern.
    pub fn as_str(&self) -> &str {
        self.looking.as_ref().map_or_else(|| self.regex.as_str(), |looking| looking.as_str())
    }

    /// Gives the pattern, for what is no match: names of groups, and how many there are.
    pub fn regex(&self) -> &Regex {
        &self.regex
    }

    /// Says whether it matches somewhere in a text.
    pub fn is_match(&self, text: &str) -> bool {
        if let Some(looking) = &self.looking {
            return looking.find(text, 0, &mut []);
        }
        match self.looked(text) {
            PrecheckResult::Said(found) => found,
            PrecheckResult::Goes => self.regex.is_match(text),
        }
    }

    /// Says that it does not match, where the pattern itself would take long to find that.
    pub fn may_match(&self, text: &str) -> bool {
        match self.looked(text) {
            PrecheckResult::Said(found) => found,
            PrecheckResult::Goes => true,
        }
    }

    fn looked(&self, text: &str) -> PrecheckResult {
        let Some(dfa) = self.dfa(text.len()) else { return PrecheckResult::Goes };
        let states = dfa.get_nfa().states().len();
        let steps = states.saturating_mul(text.len());
        if steps <= STEPS_AT_ONCE {
            return if cancellation::goes_on(steps) { PrecheckResult::Goes } else { PrecheckResult::Said(false) };
        }
        let piece = (STEPS_OF_PIECE / states.max(1)).max(1);
        search(dfa, text, piece).map_or(PrecheckResult::Goes, PrecheckResult::Said)
    }

    /// The machine, once there were texts enough.
    fn dfa(&self, bytes: usize) -> Option<&DFA> {
        let made = if let Some(made) = self.machine.dfa.get() {
            made
        } else {
            let before = self.machine.bytes.fetch_add(bytes, Relaxed);
            if before.saturating_add(bytes) <= BYTES_UNCOUNTED {
                return None;
            }
            self.machine.dfa.get_or_init(|| machine(self.regex.as_str()))
        };
        made.as_deref()
    }
}

/// Makes the machine of a pattern.
fn machine(pattern: &str) -> Option<Box<DFA>> {
    let config = DFA::config()
        .cache_capacity(TABLE_BYTES)
        .skip_cache_capacity_check(true)
        .minimum_cache_clear_count(None)
        .unicode_word_boundary(true);
    let states = thompson::Config::new().nfa_size_limit(Some(2 * REGEX_BYTES_MAX));
    DFA::builder().configure(config).thompson(states).build(pattern).ok().map(Box::new)
}

/// Steps through a text, piece by piece; none where the machine cannot tell, which are borders of words that are not
/// ASCII.
fn search(dfa: &DFA, text: &str, piece: usize) -> Option<bool> {
    let mut cache = dfa.create_cache();
    let mut state = dfa.start_state_forward(&mut cache, &Input::new(text)).ok()?;
    for piece in text.as_bytes().chunks(piece) {
        if !cancellation::goes_on(STEPS_OF_PIECE) {
            return Some(false);
        }
        for &byte in piece {
            state = dfa.next_state(&mut cache, state, byte).ok()?;
            if !state.is_tagged() {
                continue;
            }
            if state.is_match() {
                return Some(true);
            }
            if state.is_dead() {
                return Some(false);
            }
            if state.is_quit() {
                return None;
            }
        }
    }
    let end = dfa.next_eoi_state(&mut cache, state).ok()?;
    Some(end.is_match())
}

#[cfg(test)]
mod tests;
