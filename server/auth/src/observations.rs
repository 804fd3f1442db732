//! What is worth recording about callers: when a key was used, and users of other issuers who are new here.
//!
//! Requests leave an observation and go on; the owner of the database collects and writes them. Only authenticated
//! callers leave any, so there are never more than keys and users of trusted issuers.

use std::collections::HashMap;
use std::net::IpAddr;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::directory::{AccountKind, Key};

/// How often the use of a key, or a user who could not be kept, is noted.
const MINUTE_MS: i64 = 60_000;
/// Most observations that wait.
const WAITING_MAX: usize = 1_000;
/// Most keys and users whose last observation is remembered.
const REMEMBERED: usize = 100_000;

/// Something to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Observation {
    /// A key was used.
    Key {
        /// Id of the key's entity in `rbac/keys`.
        entity_id: String,
        /// Whose it is.
        owner: (AccountKind, String),
        /// When, in Unix milliseconds.
        at_ms: i64,
        /// Address of the client; none: it is not known.
        ip: Option<IpAddr>,
    },
    /// A user of another issuer came for the first time.
    User {
        /// Under which id it is kept.
        id: String,
        /// Who vouches for it.
        issuer: String,
        /// Its name there.
        name: String,
        /// Where it can be written to, if that is told.
        email: Option<String>,
        /// How it is called, if that is told.
        display_name: Option<String>,
        /// Address of the client; none: it is not known.
        ip: Option<IpAddr>,
    },
}

/// Observations that wait to be written, and when each key and user was last observed.
#[derive(Debug, Default)]
pub(crate) struct Observations {
    last: Mutex<HashMap<String, i64>>,
    waiting: Mutex<Vec<Observation>>,
    wake: Notify,
}

impl Observations {
    /// Says whether something was not noted within the last minute, and that it is now.
    fn is_due(&self, id: &str, now_ms: i64) -> bool {
        let mut last = self.last.lock();
        if let Some(at) = last.get_mut(id) {
            let due = now_ms.saturating_sub(*at) >= MINUTE_MS;
            if due {
                *at = now_ms;
            }
            return due;
        }
        if last.len() >= REMEMBERED {
            last.clear();
        }
        last.insert(id.to_owned(), now_ms);
        true
    }

    /// Notes the use of a key, once a minute.
    pub(crate) fn key(&self, key: &Key, ip: Option<IpAddr>, now_ms: i64) {
        if self.is_due(&key.entity_id, now_ms) {
            let (entity_id, owner) = (key.entity_id.clone(), key.owner.clone());
            self.push(Observation::Key { entity_id, owner, at_ms: now_ms, ip });
        }
    }

    /// Notes a user who is not kept yet; once a minute, if that does not work.
    pub(crate) fn user(&self, id: &str, now_ms: i64, user: impl FnOnce() -> Observation) {
        if self.is_due(id, now_ms) {
            self.push(user());
        }
    }

    fn push(&self, seen: Observation) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < WAITING_MAX {
            waiting.push(seen);
        }
        drop(waiting);
        self.wake.notify_one();
    }

    /// Waits for observations and takes them.
    pub(crate) async fn take(&self) -> Vec<Observation> {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            if !waiting.is_empty() {
                return waiting;
            }
            self.wake.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;

    #[tokio::test]
    async fn once_a_minute() {
        let observations = Observations::default();
        let key = |id: &str| Key {
            entity_id: id.to_owned(),
            key_id: String::new(),
            hash: Secret::new(""),
            owner: (AccountKind::User, "u".to_owned()),
            rights: None,
            expires_ms: None,
            networks: vec![],
        };
        for now_ms in [0, 1, 59_999, 60_000, 60_001] {
            observations.key(&key("a"), None, now_ms);
        }
        observations.key(&key("b"), None, 5);
        let taken = observations.take().await;
        let at: Vec<i64> =
            taken.iter().map(|s| if let Observation::Key { at_ms, .. } = s { *at_ms } else { -1 }).collect();
        assert_eq!(at, [0, 60_000, 5]);
        for n in 0..2 * WAITING_MAX {
            observations.key(&key(&n.to_string()), None, 0);
        }
        assert_eq!(observations.take().await.len(), WAITING_MAX);
    }
}
