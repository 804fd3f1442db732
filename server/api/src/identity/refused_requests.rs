//! Requests refused for lack of a right, in the audit log: one entry per subject, route and minute, so that a client
//! that retries cannot fill the log.

use std::collections::HashSet;
use std::sync::Arc;

use http::Method;
use parking_lot::Mutex;
use quiver_auth::Identity;
use quiver_config::AuditEvent;

use super::{Identities, RequestOrigin, caller};

const MINUTE_MS: i64 = 60_000;
/// Most distinct refusals that are noted per minute.
const NOTED_MAX: usize = 1_000;

/// The refusals noted in the current minute.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    noted: Mutex<(i64, HashSet<(String, String)>)>,
}

impl Refusals {
    /// Whether this is the first such refusal of its minute.
    fn is_new(&self, subject: &str, route: &str, now_ms: i64) -> bool {
        let minute = now_ms.div_euclid(MINUTE_MS);
        let mut noted = self.noted.lock();
        if noted.0 != minute {
            *noted = (minute, HashSet::new());
        }
        noted.1.len() < NOTED_MAX && noted.1.insert((subject.to_owned(), route.to_owned()))
    }
}

/// A request that was refused for lack of a right, for the audit log.
#[derive(Debug)]
pub(crate) struct Refusal<'a> {
    pub(crate) identity: &'a Identity,
    /// Address of the client, and id of the request.
    pub(crate) origin: RequestOrigin,
    /// Method of the request.
    pub(crate) method: &'a Method,
    /// The matched route.
    pub(crate) route: &'a str,
    /// Whether it was an ingest request.
    pub(crate) ingest: bool,
    /// When, in Unix milliseconds.
    pub(crate) now_ms: i64,
}

impl Identities {
    /// Notes a refusal in the audit log, in a task of its own.
    pub(crate) fn note_refusal(self: &Arc<Self>, refusal: Refusal<'_>) {
        let subject = refusal.identity.subject.text();
        if !self.refusals.is_new(&subject, refusal.route, refusal.now_ms) {
            return;
        }
        let reads = refusal.method.is_safe() && !refusal.ingest;
        let event = AuditEvent {
            action: if reads { "READ" } else { "WRITE" },
            family: if refusal.ingest { "ingest" } else { "query" },
            entity_id: None,
            entity_name: Some(format!("{} {}", refusal.method, refusal.route)),
            outcome: "refused",
            code: Some("FORBIDDEN".to_owned()),
        };
        let (identities, caller) = (Arc::clone(self), caller(refusal.identity, refusal.origin));
        tokio::spawn(async move { identities.config.audit(&caller, event).await });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_kind_a_minute() {
        let refusals = Refusals::default();
        let check = |subject: &str, route: &str, now_ms: i64, new: bool| {
            assert_eq!(refusals.is_new(subject, route, now_ms), new, "{subject} {route} {now_ms}");
        };
        check("a", "/x", 0, true);
        check("a", "/x", 59_999, false);
        check("b", "/x", 59_999, true);
        check("a", "/y", 59_999, true);
        check("a", "/x", 60_000, true);
        for n in 0..2 * NOTED_MAX {
            refusals.is_new(&n.to_string(), "/x", 60_001);
        }
        check("c", "/x", 60_002, false);
        assert!(refusals.noted.lock().1.len() <= NOTED_MAX);
    }

    /// Subject and route are kept apart: the end of one cannot be taken for the beginning of the other.
    #[test]
    fn refusals_are_told_apart() {
        let refusals = Refusals::default();
        for (subject, route) in [("a", "b"), ("ab", ""), ("", "ab"), ("b", "a")] {
            assert!(refusals.is_new(subject, route, 0), "{subject} {route}");
            assert!(!refusals.is_new(subject, route, 1), "{subject} {route}");
        }
        // Minutes before 1970 work, too; a clock that goes back begins another minute.
        for (now_ms, expected) in [(-1, true), (-60_000, false), (-60_001, true), (-1, true)] {
            assert_eq!(refusals.is_new("a", "b", now_ms), expected, "{now_ms}");
        }
    }

    #[test]
    fn a_minute_has_room_for_so_many() {
        let refusals = Refusals::default();
        for n in 0..NOTED_MAX {
            assert!(refusals.is_new("a", &n.to_string(), 0), "{n}");
        }
        assert!(!refusals.is_new("a", "one more", 0));
        assert!(refusals.is_new("a", "one more", MINUTE_MS), "the next minute has room again");
    }
}
