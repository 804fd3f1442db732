//! Regular expressions with lookaround (`a(?=b)`, `(?<!a)b`) or back-references (`(a)\1`), which the crate `regex` does
//! not support. A backtracking search tries one position after the other.
//!
//! Backtracking may take exponential time, so its work is limited. Every step counts, whatever it does; a pattern has
//! [`STEPS_MAX`] of them, the stack of alternatives is limited as well, and the search checks regularly whether the query
//! still runs ([`crate::cancellation`]). Similar crates count backtracks only: there, all work within a lookahead, or the
//! comparison of a long group, is one step that nobody can interrupt. As in PostgreSQL, groups within a lookaround do not
//! capture.

mod node;
mod parser;
mod program;

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use program::{Program, Step};
use regex_syntax::hir::Look;

use crate::cancellation;
use crate::{Error, ErrorKind, Result};

/// Steps over all texts that one compiled pattern looks at, such as those of a batch of rows: below a second.
const STEPS_MAX: usize = 1 << 26;
/// Steps between two checks for cancellation.
const STEPS_OF_PIECE: usize = 1 << 12;
/// Most alternatives on the backtracking stack, of 16 bytes each.
const WAYS_MAX: usize = 1 << 19;
/// A place that no group begins or ends at.
const NOWHERE: u32 = u32::MAX;

/// Whether the text of a pattern contains lookaround or back-references.
pub fn looks_around(pattern: &str) -> bool {
    let mut at = 0;
    let bytes = pattern.as_bytes();
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'\\' if bytes.get(at + 1).is_some_and(|next| (b'1'..=b'9').contains(next)) => return true,
            b'\\' => at += 2,
            b'[' => at = parser::behind_class(pattern, at),
            b'(' => {
                let behind = &bytes[at + 1..];
                if [&b"?="[..], b"?!", b"?<=", b"?<!"].iter().any(|sign| behind.starts_with(sign)) {
                    return true;
                }
                at += 1;
            }
            _ => at += 1,
        }
    }
    false
}

/// Such a pattern, compiled.
#[derive(Debug)]
pub(super) struct LookaroundRegex {
    pattern: String,
    program: Program,
    /// Names of its groups, from the second on: the first is all of it.
    pub(super) names: Vec<Option<String>>,
    left: AtomicUsize,
    /// Of what there was too much; 0: of nothing so far.
    exceeded: AtomicUsize,
}

/// Why a search ended before it was over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// Nobody waits any more.
    Ended,
    Steps,
    Ways,
}

impl LookaroundRegex {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Invalid: it is none. LimitExceeded: it is too large, or nests too deeply.
    pub(super) fn new(pattern: &str) -> Result<Self> {
        let read = parser::read(pattern)?;
        let program = Program::new(&read.node, read.names.len() + 1)?;
        Ok(Self {
            pattern: pattern.to_owned(),
            program,
            names: read.names,
            left: AtomicUsize::new(STEPS_MAX),
            exceeded: AtomicUsize::new(0),
        })
    }

    pub(super) fn as_str(&self) -> &str {
        &self.pattern
    }

    /// Whether all searches so far were over.
    ///
    /// # Errors
    /// LimitExceeded: one was not.
    pub(super) fn outcome(&self) -> Result<()> {
        let what = match self.exceeded.load(Relaxed) {
            0 => return Ok(()),
            1 => format!("takes more than {STEPS_MAX} steps over the texts of some rows"),
            _ => format!("has more than {WAYS_MAX} ways to go through a text"),
        };
        let text =
            format!("the regular expression `{}` {what}: it looks around, or refers to its groups", self.pattern);
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }

    /// Looks for the first match from a place on, and says where its groups begin and end, as many as there is room for. It
    /// gives none where the search was not over, which [`Self::outcome`] and the watch know.
    pub(super) fn find(&self, text: &str, from: usize, places: &mut [usize]) -> bool {
        if self.exceeded.load(Relaxed) > 0 {
            return false;
        }
        if u32::try_from(text.len()).is_err() {
            self.exceeded.store(2, Relaxed);
            return false;
        }
        let left = self.left.load(Relaxed);
        let slots = vec![NOWHERE; self.program.slots];
        let mut search = Search { program: &self.program, text, slots, ways: Vec::new(), left, unasked: 0 };
        let found = search.first(from);
        self.left.store(search.left, Relaxed);
        match found {
            Ok(true) => {
                for (place, slot) in places.iter_mut().zip(&search.slots) {
                    *place = if *slot == NOWHERE { usize::MAX } else { *slot as usize };
                }
                return true;
            }
            Ok(false) | Err(Stop::Ended) => {}
            Err(Stop::Steps) => self.exceeded.store(1, Relaxed),
            Err(Stop::Ways) => self.exceeded.store(2, Relaxed),
        }
        false
    }
}

/// Where a search goes on when a way leads nowhere.
#[derive(Debug, Clone, Copy)]
enum BacktrackPoint {
    /// At another step.
    Branch { step: u32, at: u32 },
    /// With a letter less, down to so many of them.
    Fewer { step: u32, least: u32, at: u32 },
    /// A slot is as it was.
    Slot { slot: u32, before: u32 },
}

struct Search<'s> {
    program: &'s Program,
    text: &'s str,
    /// Where groups begin and end, and rounds of loops began.
    slots: Vec<u32>,
    ways: Vec<BacktrackPoint>,
    left: usize,
    unasked: usize,
}

/// What groups hold once a run has ended well.
#[derive(Debug, Clone, Copy)]
enum GroupsAfter {
    AsFound,
    /// A look around finds no groups.
    AsBefore,
}

impl Search<'_> {
    /// Tries one place after the other.
    fn first(&mut self, from: usize) -> std::result::Result<bool, Stop> {
        let mut from = from;
        loop {
            if let Some(letter) = self.program.first {
                // All that is passed over counts, too.
                let Some(found) = self.text.get(from..).and_then(|rest| rest.find(letter)) else { return Ok(false) };
                self.count(1 + found / 16)?;
                from += found;
            }
            if self.run(0, from, None, GroupsAfter::AsFound)?.is_some() {
                return Ok(true);
            }
            match self.letter(from) {
                Some(letter) if !self.program.is_anchored => from += letter.len_utf8(),
                _ => return Ok(false),
            }
        }
    }

    fn letter(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    fn count(&mut self, steps: usize) -> std::result::Result<(), Stop> {
        self.left = self.left.checked_sub(steps).ok_or(Stop::Steps)?;
        self.unasked += steps;
        if self.unasked >= STEPS_OF_PIECE {
            // A step is some of those that others count.
            if !cancellation::goes_on(self.unasked.saturating_mul(8)) {
                return Err(Stop::Ended);
            }
            self.unasked = 0;
        }
        Ok(())
    }

    fn push(&mut self, way: BacktrackPoint) -> std::result::Result<(), Stop> {
        if self.ways.len() >= WAYS_MAX {
            return Err(Stop::Ways);
        }
        self.ways.push(way);
        Ok(())
    }

    fn set(&mut self, slot: usize, at: usize) -> std::result::Result<(), Stop> {
        self.push(BacktrackPoint::Slot { slot: slot as u32, before: self.slots[slot] })?;
        self.slots[slot] = at as u32;
        Ok(())
    }

    /// Goes from a step and a place on; gives where it ends. `to`: it must end there.
    fn run(
        &mut self,
        step: usize,
        from: usize,
        to: Option<usize>,
        groups: GroupsAfter,
    ) -> std::result::Result<Option<usize>, Stop> {
        let (base, program) = (self.ways.len(), self.program);
        let (mut step, mut at) = (step, from);
        loop {
            self.count(1)?;
            let next = match &program.steps[step] {
                Step::Accept => {
                    if to.is_none_or(|to| to == at) {
                        match groups {
                            GroupsAfter::AsFound => self.ways.truncate(base),
                            GroupsAfter::AsBefore => self.undo(base),
                        }
                        return Ok(Some(at));
                    }
                    None
                }
                Step::Letters(letters) => self
                    .letter(at)
                    .filter(|letter| letters.has(*letter))
                    .map(|letter| (step + 1, at + letter.len_utf8())),
                Step::Run { letters, min, max } => {
                    let (mut end, mut least, mut count) = (at, at, 0);
                    while count < *max
                        && let Some(letter) = self.letter(end).filter(|letter| letters.has(*letter))
                    {
                        end += letter.len_utf8();
                        count += 1;
                        if count <= *min {
                            least = end;
                        }
                    }
                    self.count(count / 2)?;
                    if count < *min {
                        None
                    } else {
                        if end > least {
                            let (step, least, at) = (step as u32 + 1, least as u32, end as u32);
                            self.push(BacktrackPoint::Fewer { step, least, at })?;
                        }
                        Some((step + 1, end))
                    }
                }
                Step::Look(look) => holds(*look, self.text, at).then_some((step + 1, at)),
                Step::Split { first, second } => {
                    self.push(BacktrackPoint::Branch { step: *second as u32, at: at as u32 })?;
                    Some((*first, at))
                }
                Step::Jump(to) => Some((*to, at)),
                Step::Slot(slot) => {
                    self.set(*slot, at)?;
                    Some((step + 1, at))
                }
                Step::Again { slot, top } => (self.slots[*slot] as usize != at).then_some((*top, at)),
                Step::Back { group, folds } => self.match_backreference(*group, *folds, at)?.map(|end| (step + 1, end)),
                Step::Around { is_ahead, is_negated, least, most, next } => {
                    let found = if *is_ahead {
                        self.run(step + 1, at, None, GroupsAfter::AsBefore)?.is_some()
                    } else {
                        self.ends_here(step + 1, at, *least, *most)?
                    };
                    (found != *is_negated).then_some((*next, at))
                }
            };
            match next.or_else(|| self.other_way(base)) {
                Some(next) => (step, at) = next,
                None => return Ok(None),
            }
        }
    }

    /// The next way back; none: there are no more of this run.
    fn other_way(&mut self, base: usize) -> Option<(usize, usize)> {
        while self.ways.len() > base {
            match self.ways.pop()? {
                BacktrackPoint::Slot { slot, before } => self.slots[slot as usize] = before,
                BacktrackPoint::Branch { step, at } => return Some((step as usize, at as usize)),
                BacktrackPoint::Fewer { step, least, at } => {
                    let letter = self.text[..at as usize].chars().next_back()?;
                    let at = at - letter.len_utf8() as u32;
                    if at > least {
                        self.ways.push(BacktrackPoint::Fewer { step, least, at });
                    }
                    return Some((step as usize, at as usize));
                }
            }
        }
        None
    }

    /// Puts slots as they were before a run, whose ways are given up.
    fn undo(&mut self, base: usize) {
        for way in self.ways.drain(base..).rev() {
            if let BacktrackPoint::Slot { slot, before } = way {
                self.slots[slot as usize] = before;
            }
        }
    }

    /// Matches a back reference: the text that the group matched must follow at `at`. Returns where it ends.
    fn match_backreference(
        &mut self,
        group: usize,
        folds: bool,
        at: usize,
    ) -> std::result::Result<Option<usize>, Stop> {
        let (from, to) = (self.slots[2 * group], self.slots[2 * group + 1]);
        if from == NOWHERE || to == NOWHERE {
            return Ok(None);
        }
        let text = self.text;
        let (found, rest) = (&text[from as usize..to as usize], &text[at..]);
        if !folds {
            let is_there = rest.starts_with(found);
            self.count(found.len() / 16)?;
            return Ok(is_there.then_some(at + found.len()));
        }
        let (mut end, mut letters) = (at, rest.chars());
        for letter in found.chars() {
            match letters.next() {
                Some(other) if other == letter || other.to_lowercase().eq(letter.to_lowercase()) => {
                    end += other.len_utf8();
                }
                _ => return Ok(None),
            }
        }
        self.count(found.len())?;
        Ok(Some(end))
    }

    /// Whether a step leads to this place from one before it, by so many letters at least and at most.
    fn ends_here(
        &mut self,
        step: usize,
        at: usize,
        least: usize,
        most: Option<usize>,
    ) -> std::result::Result<bool, Stop> {
        let (mut from, mut letters) = (at, 0);
        loop {
            if letters >= least && self.run(step, from, Some(at), GroupsAfter::AsBefore)?.is_some() {
                return Ok(true);
            }
            if most.is_some_and(|most| letters >= most) {
                return Ok(false);
            }
            let Some(letter) = self.text[..from].chars().next_back() else { return Ok(false) };
            self.count(1)?;
            from -= letter.len_utf8();
            letters += 1;
        }
    }
}

/// Whether a place is such a one.
fn holds(look: Look, text: &str, at: usize) -> bool {
    let (before, behind) = (text[..at].chars().next_back(), text[at..].chars().next());
    let is_word = |letter: Option<char>| {
        letter.is_some_and(|letter| regex_syntax::try_is_word_character(letter).unwrap_or(false))
    };
    let (left, right) = (is_word(before), is_word(behind));
    match look {
        Look::Start => at == 0,
        Look::End => at == text.len(),
        Look::StartLF | Look::StartCRLF => before.is_none_or(|letter| letter == '\n'),
        Look::EndLF | Look::EndCRLF => behind.is_none_or(|letter| letter == '\n'),
        Look::WordAscii | Look::WordUnicode => left != right,
        Look::WordAsciiNegate | Look::WordUnicodeNegate => left == right,
        Look::WordStartAscii | Look::WordStartUnicode => !left && right,
        Look::WordEndAscii | Look::WordEndUnicode => left && !right,
        Look::WordStartHalfAscii | Look::WordStartHalfUnicode => !left,
        Look::WordEndHalfAscii | Look::WordEndHalfUnicode => !right,
    }
}

#[cfg(test)]
mod tests;
