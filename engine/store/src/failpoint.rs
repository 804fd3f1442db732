//! Fail points: named places between the steps of flush, upload, commit, compaction, retention, cleaner and replay,
//! where the crash tests end the process (promises D2, D4, D7).
//!
//! `QUIVER_FAILPOINT=<name>[:<n>]` aborts at the n-th hit (default the first), `QUIVER_FAILPOINT=<name>=sleep:<ms>`
//! sleeps at each hit. Without the variable a hit is one relaxed load.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// All fail points, for the tests that walk them. [`hit`] refuses others (in debug builds).
pub const NAMES: &[&str] = &[
    "open.after-installation",
    "open.after-identity",
    "replay.begin",
    "replay.after-segment",
    "replay.end",
    "wal.after-create",
    "wal.before-write",
    "wal.after-write",
    "wal.after-sync",
    "wal.after-insert",
    "wal.before-seal",
    "wal.after-seal",
    "wal.before-retire",
    "wal.after-retire",
    "flush.before-pending",
    "flush.after-pending",
    "flush.after-part",
    "flush.before-commit",
    "flush.after-commit",
    "flush.after-swap",
    "flush.after-retire",
    "commit.begin",
    "commit.after-insert",
    "commit.before-end",
    "commit.after-end",
    "outbox.before-put",
    "outbox.after-put",
    "outbox.after-forget",
    "outbox.before-prune",
    "outbox.after-prune-object",
    "outbox.after-prune",
    "object.after-temporary",
    "object.after-rename",
    "upload.before-file",
    "upload.after-file",
    "upload.before-placed",
    "upload.after-placed",
    "upload.after-swap",
    "spool.before-delete",
    "spool.after-delete",
    "spool.after-forget",
    "compact.before-pending",
    "compact.after-pending",
    "compact.in-merge",
    "compact.after-part",
    "compact.before-commit",
    "compact.after-commit",
    "compact.after-swap",
    "retention.before-commit",
    "retention.after-commit",
    "retention.after-swap",
    "cleaner.before-doom",
    "cleaner.after-doom",
    "cleaner.after-doomed-delete",
    "cleaner.after-doomed-forget",
    "cleaner.before-delete",
    "cleaner.in-delete",
    "cleaner.after-delete",
    "cleaner.after-forget",
    "close.after-seal",
];

/// The environment variable that arms one of them.
pub const VARIABLE: &str = "QUIVER_FAILPOINT";

const UNKNOWN: u8 = 0;
const OFF: u8 = 1;
const ARMED: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
static PLAN: OnceLock<Option<Plan>> = OnceLock::new();

#[derive(Debug, PartialEq)]
enum Action {
    AbortAt(u64),
    Sleep(Duration),
}

#[derive(Debug)]
struct Plan {
    name: String,
    action: Action,
    hits: AtomicU64,
}

/// Passes a fail point. Does nothing unless the environment variable names it.
#[inline]
pub fn hit(name: &'static str) {
    if STATE.load(Relaxed) != OFF {
        armed(name);
    }
}

#[cold]
fn armed(name: &'static str) {
    debug_assert!(NAMES.contains(&name), "fail point `{name}` is not in the list");
    let plan = PLAN.get_or_init(|| std::env::var(VARIABLE).ok().and_then(|text| parse(&text)));
    STATE.store(if plan.is_some() { ARMED } else { OFF }, Relaxed);
    let Some(plan) = plan.as_ref().filter(|p| p.name == name) else { return };
    match plan.action {
        Action::AbortAt(n) => {
            if plan.hits.fetch_add(1, Relaxed) + 1 == n {
                std::process::abort();
            }
        }
        Action::Sleep(time) => std::thread::sleep(time),
    }
}

fn parse(text: &str) -> Option<Plan> {
    let plan = |name: &str, action| Some(Plan { name: name.to_owned(), action, hits: AtomicU64::new(0) });
    if let Some((name, ms)) = text.split_once("=sleep:") {
        return plan(name, Action::Sleep(Duration::from_millis(ms.parse().ok()?)));
    }
    match text.split_once(':') {
        Some((name, n)) => plan(name, Action::AbortAt(n.parse().ok()?)),
        None => plan(text, Action::AbortAt(1)),
    }
    .filter(|p| !p.name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        let check = |text: &str, name: &str, action: Action| {
            let plan = parse(text).expect("a plan");
            assert_eq!((plan.name.as_str(), plan.action), (name, action));
        };
        check("flush.after-part", "flush.after-part", Action::AbortAt(1));
        check("flush.after-part:7", "flush.after-part", Action::AbortAt(7));
        check("a=sleep:20", "a", Action::Sleep(Duration::from_millis(20)));
        assert!(parse("").is_none());
        assert!(parse("a:b").is_none());
    }

    #[test]
    fn names_are_unique() {
        for (i, name) in NAMES.iter().enumerate() {
            assert!(!NAMES[i + 1..].contains(name), "{name}");
        }
    }
}
