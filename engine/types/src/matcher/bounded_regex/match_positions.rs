//! Positions of matches and capture groups in texts of any length.

use regex::CaptureLocations;
use regex_automata::nfa::thompson::NFA;
use regex_automata::util::interpolate;

use super::capture_groups::{self, NOWHERE, Scratch};
use super::{STEPS_AT_ONCE, WatchedRegex};
use crate::cancellation;

/// Where groups of a match lie; it serves any number of texts, one after the other.
#[derive(Debug, Clone)]
pub struct Places {
    /// As the crate gives them; `None`: the whole match alone is wanted.
    locations: Option<CaptureLocations>,
    /// As they were found step by step, or the whole match.
    own: Vec<usize>,
    is_own: bool,
    scratch: Option<Box<Scratch>>,
}

impl Places {
    /// Gives where a group begins and ends, the whole match for 0; `None`: it has no part in the match.
    pub fn get(&self, group: usize) -> Option<(usize, usize)> {
        match &self.locations {
            Some(locations) if !self.is_own => locations.get(group),
            _ => match self.own.chunks_exact(2).nth(group) {
                Some([from, to]) if *from != NOWHERE && *to != NOWHERE => Some((*from, *to)),
                _ => None,
            },
        }
    }
}

impl WatchedRegex {
    /// Gives room for the places of all groups.
    pub fn group_places(&self) -> Places {
        let own = vec![NOWHERE; 2 * self.regex.captures_len()];
        Places { locations: Some(self.regex.capture_locations()), own, is_own: false, scratch: None }
    }

    /// Gives room for the places of whole matches.
    pub fn match_places(&self) -> Places {
        Places { locations: None, own: vec![NOWHERE; 2], is_own: false, scratch: None }
    }

    /// Looks for the first match from a place on. What lies before is seen by `^` and borders of words alone.
    pub fn find(&self, text: &str, from: usize, places: &mut Places) -> bool {
        if let Some(looking) = &self.looking {
            places.is_own = true;
            return looking.find(text, from, &mut places.own);
        }
        if let Some(dfa) = self.dfa(text.len()) {
            let states = dfa.get_nfa().states().len().saturating_mul(1 + places.own.len() / 16);
            let steps = states.saturating_mul(text.len().saturating_sub(from));
            if !cancellation::goes_on(steps.min(STEPS_AT_ONCE)) {
                return false;
            }
            if steps > STEPS_AT_ONCE
                && let Some(nfa) = self.states()
            {
                places.is_own = true;
                let width = places.own.len();
                let scratch = places.scratch.get_or_insert_with(|| Box::new(Scratch::new(nfa, width)));
                return capture_groups::search(nfa, scratch, text, from, &mut places.own).unwrap_or(false);
            }
        }
        match &mut places.locations {
            Some(locations) => {
                places.is_own = false;
                self.regex.captures_read_at(locations, text, from).is_some()
            }
            None => match self.regex.find_at(text, from) {
                Some(found) => {
                    places.own.copy_from_slice(&[found.start(), found.end()]);
                    true
                }
                None => false,
            },
        }
    }

    /// Goes through all matches, as long as the function says so. An empty one right behind another is none, as in Go.
    pub fn each(&self, text: &str, places: &mut Places, mut f: impl FnMut(&Places) -> bool) {
        let mut last = None;
        self.each_from(text, 0, places, |places| {
            let Some((start, end)) = places.get(0) else { return false };
            let is_behind = start == end && last == Some(end);
            last = Some(end);
            is_behind || f(places)
        });
    }

    /// The same from a place on, with empty matches right behind others, as in PostgreSQL. What lies before is seen as by
    /// [`Self::find`].
    pub fn each_from(&self, text: &str, from: usize, places: &mut Places, mut f: impl FnMut(&Places) -> bool) {
        let mut from = from;
        while from <= text.len() && self.find(text, from, places) {
            let Some((start, end)) = places.get(0) else { return };
            if !f(places) {
                return;
            }
            let letter = || text[end..].chars().next().map_or(1, char::len_utf8);
            from = if start == end { end + letter() } else { end };
        }
    }

    /// Writes a text with groups of a match in the place of `$1`, `${1}` and `${name}`.
    pub fn expand(&self, text: &str, places: &Places, template: &str, out: &mut String) {
        let append = |group: usize, out: &mut String| {
            if let Some((from, to)) = places.get(group) {
                out.push_str(&text[from..to]);
            }
        };
        let number = |name: &str| self.regex.capture_names().position(|known| known == Some(name));
        interpolate::string(template, append, number, out);
    }

    /// The states of the pattern with its groups.
    fn states(&self) -> Option<&NFA> {
        self.machine.states.get_or_init(|| capture_groups::states(self.regex.as_str())).as_ref()
    }
}
