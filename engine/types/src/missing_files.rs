//! What an answer lacks because files could not be read.
//!
//! A damaged file fails the query, unless the endpoint can tell its client that the answer is incomplete. Then the
//! content of the file is left out, and the file is named. No client gets a partial sum without being told.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Error, ErrorKind, Result};

/// Most files that are named for one query; more are only counted.
const NAMED_MAX: usize = 100;

#[derive(Debug, Default)]
struct State {
    may: bool,
    /// By the text of the error, which names the file.
    texts: BTreeMap<String, u64>,
    more: u64,
}

/// Files that one query could not read and went on without.
#[derive(Debug, Default)]
pub struct LeftOut(Mutex<State>);

impl LeftOut {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an empty list for another run of the same query, which may leave out files if this one may.
    #[must_use]
    pub fn for_another_run(&self) -> Self {
        Self(Mutex::new(State { may: self.state().may, ..State::default() }))
    }

    /// Allows files to be left out: the response can still say what it lacks.
    pub fn allow(&self) {
        self.state().may = true;
    }

    /// Ends that, since the response has begun: gives what has been left out so far; the next unreadable file is an
    /// error.
    pub fn close(&self) -> Vec<String> {
        self.state().may = false;
        self.texts()
    }

    /// Leaves out a file that could not be read; says whether it is the first error about this file in the query.
    ///
    /// # Errors
    /// The error itself, when it is not about a file, or the answer has to be whole.
    pub fn note(&self, error: Error) -> Result<bool> {
        let mut state = self.state();
        if !state.may || !matches!(error.kind, ErrorKind::Damaged) {
            return Err(error);
        }
        if let Some(count) = state.texts.get_mut(&error.message) {
            *count += 1;
            return Ok(false);
        }
        if state.texts.len() >= NAMED_MAX {
            state.more += 1;
        } else {
            state.texts.insert(error.message, 1);
        }
        Ok(true)
    }

    /// Adds what another query had left out, whose result is used for this one.
    ///
    /// # Errors
    /// Damaged: the answer has to be whole.
    pub fn take_over(&self, texts: &[String]) -> Result<()> {
        texts.iter().try_for_each(|text| self.note(Error::new(ErrorKind::Damaged, text.clone())).map(drop))
    }

    /// Says whether nothing has been left out so far.
    pub fn is_empty(&self) -> bool {
        self.state().texts.is_empty()
    }

    /// Gives the error message of each file that was left out.
    pub fn texts(&self) -> Vec<String> {
        let state = self.state();
        let mut texts: Vec<String> = state.texts.keys().cloned().collect();
        if state.more > 0 {
            texts.push(format!("{} more files cannot be read", state.more));
        }
        texts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn damaged(name: &str) -> Error {
        Error::new(ErrorKind::Damaged, format!("file `{name}` is damaged"))
    }

    #[test]
    fn only_who_can_tell_may_leave_out() {
        let left_out = LeftOut::default();
        assert_eq!(left_out.note(damaged("a")).unwrap_err().kind, ErrorKind::Damaged);
        left_out.allow();
        assert!(left_out.note(damaged("a")).unwrap());
        assert!(!left_out.note(damaged("a")).unwrap());
        assert!(left_out.note(damaged("b")).unwrap());
        assert_eq!(left_out.note(Error::internal("other")).unwrap_err().message, "other");
        let told = vec!["file `a` is damaged".to_owned(), "file `b` is damaged".to_owned()];
        assert_eq!(left_out.close(), told);
        assert!(left_out.note(damaged("c")).is_err(), "too late to tell");
        let other = LeftOut::default();
        assert!(other.take_over(&told).is_err());
        other.allow();
        other.take_over(&told).unwrap();
        assert_eq!(other.texts(), told);
    }

    #[test]
    fn names_are_bounded() {
        let left_out = LeftOut::default();
        left_out.allow();
        for i in 0..NAMED_MAX + 5 {
            left_out.note(damaged(&i.to_string())).unwrap();
        }
        let texts = left_out.texts();
        assert_eq!((texts.len(), texts.last().unwrap().as_str()), (NAMED_MAX + 1, "5 more files cannot be read"));
    }
}
