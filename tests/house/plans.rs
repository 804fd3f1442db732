//! A plan is data (ARCHITECTURE.md, Read path): nodes keep nothing between runs, and what the parts of a run share is handed
//! to them with the task (`types::RunShared`).

use crate::sources::{none, sources};

/// Where nodes of plans are defined.
const PLACES: &[&str] = &[
    "engine/promql/src/nodes",
    "engine/query/src/grouping/node.rs",
    "engine/query/src/index.rs",
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

/// Files of the product that may see everything of a domain: (path, why).
const SEES_ALL: &[(&str, &str)] = &[
    ("server/api/src/state.rs", "while access control is off"),
    ("server/api/src/traces_compat/jaeger.rs", "decodes what the caller sent; nothing is stored or read"),
    ("server/quiver/src/rules/bench.rs", "a bench of rules over samples of its own"),
    ("engine/types/src/access.rs", "defines it"),
    ("engine/query/src/tables.rs", "the same of all domains"),
    ("engine/sql/src/lacking.rs", "asks which tables there are, to name the right that a caller lacks"),
    ("server/api/src/discovery/look.rs", "resources are found for all; who may see one is asked where it is shown"),
    ("server/quiver/src/sql.rs", "a directory at rest, which the caller can read as files"),
    ("engine/traces/src/engine.rs", "tells that a trace is there but hidden; gives no row of it"),
    ("engine/traces/src/lists/dependencies/late.rs", "calls of hidden services are shown as hidden"),
    ("engine/promql/src/plan/room.rs", "a context for tests"),
    ("engine/ingest/src/fuzz.rs", "a decoder alone"),
    ("engine/olap/src/engine/basis.rs", "asks whether tables of guarded models have changed, not for rows"),
    ("engine/olap/src/engine/rolled.rs", "plans over the rows of a rollup, which were read with the caller's rights"),
    ("engine/olap/src/plan/sources.rs", "asks for columns of tables, not for rows"),
];

/// Files of the product that begin queries: (path, why).
const BEGINS: &[(&str, &str)] = &[
    ("server/api/src/state.rs", "the one door of requests"),
    ("server/quiver/src/alerting/engine.rs", "rules, with the rights of their owner"),
    ("server/quiver/src/rules/bench.rs", "a bench of rules over samples of its own"),
    ("engine/promql/src/plan/room.rs", "a context for tests"),
    ("engine/query/src/context.rs", "defines them"),
    ("server/quiver/src/sql.rs", "a directory at rest: there is no request and no server"),
];

/// Lines of the product that hold one of some texts, outside of files that may.
fn outside(texts: &[&str], may: &[(&str, &str)]) -> Vec<String> {
    let all = sources();
    for (path, _) in may {
        assert!(all.iter().any(|s| s.path == *path), "`{path}` is gone: take it off the list");
    }
    let others = all.iter().filter(|s| !may.iter().any(|(path, _)| *path == s.path));
    let lines = others.flat_map(|source| source.code().map(move |(number, line)| (source, number, line)));
    let found = lines.filter(|(.., line)| texts.iter().any(|text| line.contains(text)));
    found.map(|(source, number, line)| format!("{}:{number}: {}", source.path, line.trim())).collect()
}

#[test]
fn scans_are_made_with_the_rights_of_their_caller() {
    none("sees everything without being asked who looks", &outside(&["Access::full()"], SEES_ALL));
}

#[test]
fn queries_begin_at_one_door() {
    let found = outside(&["QueryContext::new(", "QueryContext::asked("], BEGINS);
    none("makes the context of a query beside the door", &found);
}

/// Doors through which tables of the store are made.
const DOORS: &[&str] = &["engine/query/src/spans.rs", "engine/query/src/logs.rs"];

#[test]
fn tables_of_the_store_ask_for_access() {
    for door in DOORS {
        let all = sources();
        let source = all.iter().find(|s| s.path == *door).unwrap_or_else(|| panic!("no `{door}`"));
        let functions: Vec<&str> =
            source.text.split(" fn ").skip(1).filter(|f| f.contains("Arc<dyn TableProvider>")).collect();
        assert!(!functions.is_empty(), "`{door}` makes no table: the check looks at nothing");
        let without: Vec<String> = functions
            .iter()
            .filter(|f| !f.split("->").next().unwrap_or_default().contains("Access"))
            .map(|f| format!("{door}: {}", f.lines().next().unwrap_or_default()))
            .collect();
        none("makes a table without asking who looks", &without);
    }
}
