//! Capture groups of a match, found by simulating the NFA: a set of threads over the states of a pattern, like the
//! `PikeVM` of `regex`, but it checks regularly whether its query still runs.

use regex_automata::nfa::thompson::{Compiler, Config, NFA, State};
use regex_automata::util::primitives::StateID;

use super::super::limits::REGEX_BYTES_MAX;
use crate::cancellation;

/// A place that no group begins or ends at.
pub(super) const NOWHERE: usize = usize::MAX;
/// Steps between two checks for cancellation.
const STEPS_OF_PIECE: usize = 1 << 18;

/// Makes the states of a pattern, with its groups; `None`: they are too many.
pub(super) fn states(pattern: &str) -> Option<NFA> {
    let config = Config::new().nfa_size_limit(Some(2 * REGEX_BYTES_MAX));
    Compiler::new().configure(config).build(pattern).ok()
}

/// Looks for the first match from a place on, and says where its groups begin and end (as many as there is room for);
/// `None`: it was told to stop. The scratch is one of these states and of as much room.
pub(super) fn search(nfa: &NFA, scratch: &mut Scratch, text: &str, from: usize, places: &mut [usize]) -> Option<bool> {
    let Scratch { now, next, stack, places: at_hand } = scratch;
    now.clear();
    next.clear();
    let width = places.len();
    let mut run = CaptureSearch { nfa, text: text.as_bytes(), stack, places: at_hand, steps: 0 };
    let mut is_found = false;
    for at in from..=text.len() {
        if now.order.is_empty() && (is_found || (at > from && nfa.is_always_start_anchored())) {
            break;
        }
        if !is_found && text.is_char_boundary(at) {
            run.places.fill(NOWHERE);
            run.add(now, nfa.start_anchored(), at);
        }
        for &id in &now.order {
            let to = match nfa.state(id) {
                State::ByteRange { trans } => trans.matches(run.text, at).then_some(trans.next),
                State::Sparse(transitions) => transitions.matches(run.text, at),
                State::Dense(transitions) => transitions.matches(run.text, at),
                State::Match { .. } => {
                    places.copy_from_slice(now.places(id, width));
                    is_found = true;
                    // Those behind it are of a lower rank.
                    break;
                }
                _ => None,
            };
            if let Some(to) = to {
                run.places.copy_from_slice(now.places(id, width));
                run.add(next, to, at + 1);
            }
        }
        run.steps += now.order.len() + 1;
        if run.steps >= STEPS_OF_PIECE {
            // A step copies all places.
            if !cancellation::goes_on(run.steps.saturating_mul(4 + width / 2)) {
                return None;
            }
            run.steps = 0;
        }
        std::mem::swap(now, next);
        next.clear();
    }
    Some(is_found)
}

/// What a search works with; it serves any number of them, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Scratch {
    now: Threads,
    next: Threads,
    stack: Vec<Left>,
    /// Places of the thread at hand.
    places: Vec<usize>,
}

impl Scratch {
    /// For the states of a pattern and so many places.
    pub(super) fn new(nfa: &NFA, width: usize) -> Self {
        let threads = Threads::new(nfa.states().len(), width);
        Self { now: threads.clone(), next: threads, stack: Vec::new(), places: vec![NOWHERE; width] }
    }
}

/// States that a text may be in, the first in rank first, each with the places of groups on the way to it.
#[derive(Debug, Clone)]
struct Threads {
    order: Vec<StateID>,
    /// The round in which each state was met.
    met: Vec<u64>,
    round: u64,
    places: Vec<usize>,
}

impl Threads {
    fn new(states: usize, width: usize) -> Self {
        let places = vec![NOWHERE; states.saturating_mul(width)];
        Self { order: Vec::new(), met: vec![0; states], round: 1, places }
    }

    fn places(&self, id: StateID, width: usize) -> &[usize] {
        &self.places[id.as_usize() * width..][..width]
    }

    fn clear(&mut self) {
        self.order.clear();
        self.round += 1;
    }

    /// Whether a state is met for the first time.
    fn meets(&mut self, id: StateID) -> bool {
        let met = &mut self.met[id.as_usize()];
        let is_new = *met != self.round;
        *met = self.round;
        is_new
    }
}

/// What is still to be looked at behind a state.
#[derive(Debug, Clone)]
enum Left {
    State(StateID),
    /// A place is to be as it was.
    Place(usize, usize),
}

/// A search that goes on.
struct CaptureSearch<'r> {
    nfa: &'r NFA,
    text: &'r [u8],
    stack: &'r mut Vec<Left>,
    /// Places of the thread at hand.
    places: &'r mut [usize],
    steps: usize,
}

impl CaptureSearch<'_> {
    /// Adds a state and all that follow from it without a byte.
    fn add(&mut self, to: &mut Threads, id: StateID, at: usize) {
        self.stack.push(Left::State(id));
        while let Some(left) = self.stack.pop() {
            match left {
                Left::Place(place, before) => self.places[place] = before,
                Left::State(id) => self.follow(to, id, at),
            }
        }
    }

    fn follow(&mut self, to: &mut Threads, mut id: StateID, at: usize) {
        let (nfa, width) = (self.nfa, self.places.len());
        while to.meets(id) {
            self.steps += 1;
            match nfa.state(id) {
                State::Fail => return,
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) | State::Match { .. } => {
                    to.places[id.as_usize() * width..][..width].copy_from_slice(self.places);
                    to.order.push(id);
                    return;
                }
                State::Look { look, next } => {
                    if !nfa.look_matcher().matches(*look, self.text, at) {
                        return;
                    }
                    id = *next;
                }
                State::Union { alternates } => {
                    let Some((first, others)) = alternates.split_first() else { return };
                    self.stack.extend(others.iter().rev().map(|other| Left::State(*other)));
                    id = *first;
                }
                State::BinaryUnion { alt1, alt2 } => {
                    self.stack.push(Left::State(*alt2));
                    id = *alt1;
                }
                State::Capture { next, slot, .. } => {
                    if let Some(place) = self.places.get_mut(slot.as_usize()) {
                        self.stack.push(Left::Place(slot.as_usize(), *place));
                        *place = at;
                    }
                    id = *next;
                }
            }
        }
    }
}
