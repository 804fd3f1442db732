//! Silences: set, ended, listed; durable before anybody is told.

use quiver_alerting::silences::{SetError, Silence};
use quiver_types::Error;

use super::{Router, records};
use crate::kept::{Change, Kind};

/// Why a silence was not set.
#[derive(Debug)]
pub enum SilenceError {
    /// There is none with this id.
    NotFound,
    /// It cannot be one.
    Invalid(String),
    /// It cannot be stored.
    Failed(Error),
}

/// Most silences that are kept, expired ones included.
const SILENCES_MAX: usize = 20_000;

impl Router {
    /// Adds or changes a silence; gives its id, which is a new one where it cannot be changed in place.
    ///
    /// # Errors
    /// It cannot be one, its id is not known, or it cannot be stored.
    pub async fn set_silence(&self, silence: Silence) -> Result<String, SilenceError> {
        let now = self.now();
        let new_id = uuid::Uuid::now_v7().to_string();
        let (id, writing) = {
            let mut state = self.state.lock();
            if silence.id.is_empty() && state.silences.listed(now).len() >= SILENCES_MAX {
                return Err(SilenceError::Invalid(format!("there are {SILENCES_MAX} silences already")));
            }
            let former = silence.id.clone();
            let id = state.silences.set(silence, new_id, now).map_err(|e| match e {
                SetError::NotFound => SilenceError::NotFound,
                SetError::Invalid(text) => SilenceError::Invalid(text),
            })?;
            // Where a new one began, the former one has ended.
            let changed = [former, id.clone()].into_iter().filter_map(|id| state.silences.get(&id).cloned());
            let changes = changed.map(|s| Change::set(Kind::Silence, s.id.as_bytes(), &records::silence(&s))).collect();
            (id, self.kept.put(changes))
        };
        writing.durable().await.map_err(SilenceError::Failed)?;
        if let Some(silence) = self.silence(&id) {
            self.note_silence(&silence, "silence", &silence.created_by);
        }
        Ok(id)
    }

    /// Ends a silence, for somebody.
    ///
    /// # Errors
    /// There is none with this id, or that cannot be stored.
    pub async fn expire_silence(&self, id: &str, actor: &str) -> Result<(), SilenceError> {
        let now = self.now();
        let writing = {
            let mut state = self.state.lock();
            if !state.silences.expire(id, now) {
                return Err(SilenceError::NotFound);
            }
            let changed = state.silences.get(id).into_iter();
            self.kept.put(changed.map(|s| Change::set(Kind::Silence, id.as_bytes(), &records::silence(s))).collect())
        };
        writing.durable().await.map_err(SilenceError::Failed)?;
        if let Some(silence) = self.silence(id) {
            self.note_silence(&silence, "unsilence", actor);
        }
        Ok(())
    }

    /// Finds a silence.
    pub fn silence(&self, id: &str) -> Option<Silence> {
        self.state.lock().silences.get(id).cloned()
    }

    /// Gives all silences in the order of lists.
    pub fn silences(&self) -> Vec<Silence> {
        let now = self.now();
        self.state.lock().silences.listed(now).into_iter().cloned().collect()
    }
}
