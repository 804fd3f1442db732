//! A plan is data (ARCHITECTURE.md, Read path): nodes keep nothing between runs, and what the parts of a run share is handed
//! to them with the task (`types::RunShared`).

use crate::sources::{none, sources};

/// Where nodes of plans are defined.
const PLACES: &[&str] = &[
    "engine/promql/src/nodes",
    "engine/query/src/operator.rs",
    "engine/logsql/src/nodes",
    "engine/logsql/src/ops",
    "engine/logsql/src/pipes",
    "engine/logsql/src/plan",
    "engine/store/src/scan/exec.rs",
    "engine/store/src/logs/exec.rs",
    "engine/store/src/spans/exec.rs",
];

/// What keeps something from one call to the next, and closures that somebody else made.
const KEEPERS: &[&str] = &[
    "Mutex<",
    "RwLock<",
    "OnceLock<",
    "OnceCell<",
    "RefCell<",
    "AtomicBool",
    "AtomicU",
    "Sender<",
    "Arc<dyn Fn",
    "CancellationToken",
];

/// Lines that hold one although no plan keeps it: (part of the line, why).
const EXCEPTIONS: &[(&str, &str)] = &[
    ("struct Folded(Mutex<", "handed out by `RunShared`, so it belongs to one run"),
    ("spent: Arc<AtomicU64>", "the time of one stream"),
    ("below: Arc<AtomicU64>", "the time of one stream"),
    ("let below = Arc::new(AtomicU64::new(0))", "the same"),
];

#[test]
fn nodes_of_plans_keep_nothing() {
    let sources = sources();
    let mut found = Vec::new();
    for place in PLACES {
        let here: Vec<_> = sources.iter().filter(|s| s.path.starts_with(place)).collect();
        assert!(!here.is_empty(), "`{place}` has no sources: the check looks at nothing");
        for source in here {
            for (number, line) in source.code().filter(|(_, line)| !line.starts_with("use ")) {
                let keeps = KEEPERS.iter().any(|keeper| line.contains(keeper));
                if keeps && !EXCEPTIONS.iter().any(|(text, _)| line.contains(text)) {
                    found.push(format!("{}:{number}: {}", source.path, line.trim()));
                }
            }
        }
    }
    none("nodes of plans keep something between runs", &found);
}
