//! Limits how often a message is logged that could come with every request, for example when a disk is full, since the
//! log is often on that disk.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two messages with the same key.
const INTERVAL: Duration = Duration::from_secs(1);
/// Most keys that are remembered. If there are more, all are forgotten: some messages are then logged sooner.
const KEYS_MAX: usize = 256;

/// Lets a message through once in a second and counts those in between, for each key.
#[derive(Debug, Default)]
pub struct LogPace(Mutex<BTreeMap<String, Logged>>);

#[derive(Debug)]
struct Logged {
    at: Instant,
    left_out: u64,
}

impl LogPace {
    /// Makes one that has logged nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Says whether a message with this key is to be logged now, and how many were left out since the last one. `None`: it
    /// is left out, too.
    pub fn turn(&self, key: &str) -> Option<u64> {
        self.turn_at(key, Instant::now())
    }

    fn turn_at(&self, key: &str, now: Instant) -> Option<u64> {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(logged) = keys.get_mut(key) {
            if now.saturating_duration_since(logged.at) < INTERVAL {
                logged.left_out += 1;
                return None;
            }
            logged.at = now;
            return Some(std::mem::take(&mut logged.left_out));
        }
        if keys.len() >= KEYS_MAX {
            keys.clear();
        }
        keys.insert(key.to_owned(), Logged { at: now, left_out: 0 });
        Some(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_once_in_a_second() {
        let (pace, start) = (LogPace::new(), Instant::now());
        let at = |key: &str, ms: u64| pace.turn_at(key, start + Duration::from_millis(ms));
        assert_eq!((at("a", 0), at("b", 0)), (Some(0), Some(0)));
        assert_eq!((at("a", 1), at("a", 999), at("b", 500)), (None, None, None));
        assert_eq!((at("a", 1000), at("b", 1500)), (Some(2), Some(1)));
        assert_eq!((at("a", 1999), at("a", 2000)), (None, Some(1)));
        // Messages of several threads may come in another order than their times.
        assert_eq!(at("a", 0), None);
    }

    #[test]
    fn keys_are_bounded() {
        let (pace, now) = (LogPace::default(), Instant::now());
        for key in 0..10 * KEYS_MAX {
            assert_eq!(pace.turn_at(&key.to_string(), now), Some(0));
        }
        assert!(pace.0.lock().unwrap().len() <= KEYS_MAX);
        assert!(pace.turn("another").is_some());
    }
}
