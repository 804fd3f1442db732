//! A plan is data (ARCHITECTURE.md, P4): operators keep no state between runs, and what the parts of a run share is
//! passed to them with the task (`types::RunShared`).

use std::collections::BTreeSet;

use crate::operators::PLACES;
use crate::sources::{Source, none, sources};

/// Types that keep state between calls, and closures from elsewhere.
const KEEPERS: &[&str] = &[
    "Mutex<",
    "RwLock<",
    "OnceLock<",
    "LazyLock<",
    "Cell<",
    "AtomicBool",
    "AtomicI",
    "AtomicU",
    "ArcSwap<",
    "Sender<",
    "Receiver<",
    "Notify",
    "Semaphore",
    "Arc<dyn Fn",
    "Box<dyn Fn(",
    "CancellationToken",
];

/// What a run brings along: its streams hold some, its plan does not.
const OF_A_RUN: &[&str] = &["dyn MemoryPool", "MemoryReservation", "QueryContext", "QueryReservation", "TaskContext"];

/// Lines that contain one although no plan keeps it: part of the line, reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("spent: Arc<AtomicU64>", "the time of one stream"),
    ("below: Arc<AtomicU64>", "the time of one stream"),
    ("let below = Arc::new(AtomicU64::new(0))", "the same"),
    ("struct LiveRollup(Mutex<LiveRollupState>)", "counts of live spans, which any scan of their store goes on with"),
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

/// A struct or an enum.
struct Definition<'a> {
    path: &'a str,
    name: &'a str,
    /// Its lines without comments and without its name.
    fields: String,
}

/// The structs and enums of the product in a file.
fn definitions(source: &Source) -> Vec<Definition<'_>> {
    let lines: Vec<&str> = source.code().map(|(_, line)| line).collect();
    let begins = |line: &str| {
        let line = line.strip_prefix("pub").map_or(line, |rest| rest.split_once(' ').map_or("", |(_, rest)| rest));
        line.starts_with("struct ") || line.starts_with("enum ")
    };
    let at = (0..lines.len()).filter(|&at| begins(lines[at]));
    let defined = at.filter_map(|at| {
        let (_, rest) = lines[at].split_once("struct ").or_else(|| lines[at].split_once("enum "))?;
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        // A definition of several lines ends with a line that is not indented.
        let whole = rest.ends_with([';', '}']);
        let more = lines[at + 1..].iter().take_while(|line| !whole && (line.is_empty() || line.starts_with(' ')));
        let more = more.filter(|line| !line.trim_start().starts_with("//")).copied();
        // A variant is not what it holds, and may be called as a type elsewhere.
        let is_name = |c: char| c.is_alphanumeric() || c == '_';
        let of_variant = |line| str::strip_prefix(line, "    ").map_or(line, |line| line.trim_start_matches(is_name));
        let is_enum = lines[at].contains("enum ");
        let more = more.map(|line| if is_enum { of_variant(line) } else { line });
        let fields = std::iter::once(&rest[end..]).chain(more).collect::<Vec<_>>().join("\n");
        Some(Definition { path: &source.path, name: &rest[..end], fields })
    });
    defined.collect()
}

/// What plans consist of: tables, operators, steps of LogsQL, functions.
const IN_PLANS: [&str; 10] = [
    "TableProvider for ",
    "ScanSource for ",
    "ExecutionPlan for ",
    "PlannedScan for ",
    "Operator for ",
    "PartitionStream for ",
    "UserDefinedLogicalNodeCore for ",
    " Step for ",
    "RowPipe for ",
    "UDFImpl for ",
];

/// The types for which a file implements one of some traits.
fn implements<'a>(source: &'a Source, traits: &'a [&str]) -> impl Iterator<Item = &'a str> {
    let lines = source.code().map(|(_, line)| line).filter(|line| line.starts_with("impl"));
    lines.filter_map(|line| {
        let (_, rest) = traits.iter().find_map(|of| line.split_once(*of))?;
        rest.split(|c: char| !c.is_alphanumeric() && c != '_').next().filter(|name| !name.is_empty())
    })
}

/// Definitions that a name may refer to in a file: those of the file, else of its crate, else of all that it may use.
fn meant<'a>(all: &'a [Definition<'a>], path: &str, name: &str) -> Vec<&'a Definition<'a>> {
    let may_use = |other: &str| !(path.starts_with("engine/") && other.starts_with("server/"));
    let named: Vec<&'a Definition<'a>> = all.iter().filter(|d| d.name == name && may_use(d.path)).collect();
    let of_crate = |path: &str| path.splitn(3, '/').take(2).map(str::to_owned).collect::<Vec<_>>();
    let own: Vec<_> = named.iter().filter(|d| d.path == path).copied().collect();
    let near: Vec<_> = named.iter().filter(|d| of_crate(d.path) == of_crate(path)).copied().collect();
    [own, near, named].into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

/// A definition and what it contains: recursively within its file, and one level deep in other files.
fn held<'a>(all: &'a [Definition<'a>], node: &'a Definition<'a>) -> Vec<&'a Definition<'a>> {
    let (mut found, mut at) = (vec![node], 0);
    while let Some(&holder) = found.get(at) {
        at += 1;
        if holder.path != node.path {
            continue;
        }
        let words = holder.fields.split(|c: char| !c.is_alphanumeric() && c != '_');
        let types = words.filter(|word| word.starts_with(|c: char| c.is_ascii_uppercase()));
        for held in types.flat_map(|name| meant(all, holder.path, name)) {
            if !found.iter().any(|known| std::ptr::eq(*known, held)) {
                found.push(held);
            }
        }
    }
    found
}

/// Operators that implement some traits, and their number.
fn nodes<'a>(sources: &[Source], all: &'a [Definition<'a>], traits: &[&str]) -> Vec<&'a Definition<'a>> {
    let of = |source: &Source| {
        implements(source, traits).flat_map(|name| meant(all, &source.path, name)).collect::<Vec<_>>()
    };
    sources.iter().flat_map(of).collect()
}

/// Types with state that plans contain all the same: name, reason.
const CONTAINED: &[(&str, &str)] = &[
    ("LiveRollup", "counts of live spans, which any scan of their store goes on with"),
    (
        "Room",
        "the pool of a session's functions, for threads that work for no query; who reads a plan has its own functions",
    ),
];

#[test]
fn what_tables_and_nodes_hold_keeps_nothing() {
    let sources = sources();
    let all: Vec<Definition<'_>> = sources.iter().flat_map(definitions).collect();
    let nodes = nodes(&sources, &all, &IN_PLANS);
    assert!(nodes.len() > 120, "only {} tables and nodes were found", nodes.len());
    let mut found = BTreeSet::new();
    for node in nodes {
        let own = held(&all, node).into_iter().filter(|held| !CONTAINED.iter().any(|(name, _)| *name == held.name));
        for held in own {
            for keeper in KEEPERS.iter().chain(OF_A_RUN).filter(|keeper| held.fields.contains(**keeper)) {
                found.insert(format!("{}: `{}`, held by `{}`, has a `{keeper}`", held.path, held.name, node.name));
            }
        }
    }
    none("what plans hold keeps something between runs", &found.into_iter().collect::<Vec<_>>());
}

#[test]
fn nodes_count_for_the_run_that_they_are_in() {
    const COUNTERS: &str = "ReadStats";
    let sources = sources();
    let all: Vec<Definition<'_>> = sources.iter().flat_map(definitions).collect();
    let nodes = nodes(&sources, &all, &IN_PLANS[2..]);
    assert!(nodes.len() > 100, "only {} nodes were found", nodes.len());
    let mut found = BTreeSet::new();
    for node in nodes {
        for held in held(&all, node).into_iter().filter(|held| held.fields.contains(COUNTERS)) {
            found.insert(format!("{}: `{}`, held by `{}`", held.path, held.name, node.name));
        }
    }
    none("nodes keep counters, which come with the task of a run", &found.into_iter().collect::<Vec<_>>());
}

/// Files whose operators share state while a plan runs: path, and why that is not a partial result.
const MEETS: &[(&str, &str)] = &[
    ("engine/store/src/logs/planned_scan.rs", "the partitions of a scan take blocks from one queue, each block once"),
    (
        "engine/store/src/scan/planned_scan.rs",
        "the pages of a part are counted once, whichever partition reads it first",
    ),
    ("engine/store/src/spans/planned_scan.rs", "which parts may hold a trace is asked once for all partitions"),
    (
        "engine/query/src/leaf/task.rs",
        "what partitions of a scan share is apart for each node and round of a recursion",
    ),
];

#[test]
fn partial_results_travel_as_batches() {
    none("nodes hand something to each other beside their batches", &outside(&["of_node("], MEETS));
}

/// Files of the product that may use full access to a domain: path, reason.
const SEES_ALL: &[(&str, &str)] = &[
    ("server/api/src/state.rs", "while access control is off"),
    ("server/api/src/traces_compat/jaeger.rs", "decodes what the caller sent; nothing is stored or read"),
    ("server/quiver/src/rules/bench.rs", "a bench of rules over samples of its own"),
    ("engine/types/src/access.rs", "defines it"),
    ("engine/query/src/tables/snapshot.rs", "the same of all domains"),
    ("engine/query/src/tables/history.rs", "queries that ended, cut to the caller's own before anything is shown"),
    ("engine/sql/src/missing_rights.rs", "asks which tables there are, to name the right that a caller lacks"),
    (
        "server/api/src/discovery/probe_queries.rs",
        "resources are found for all; who may see one is asked where it is shown",
    ),
    ("server/quiver/src/sql.rs", "a directory at rest, which the caller can read as files"),
    ("server/quiver/src/warm_up.rs", "queries before anybody asks, of which nothing is shown"),
    ("engine/traces/src/engine.rs", "tells that a trace is there but hidden; gives no row of it"),
    ("engine/traces/src/lists/dependencies/late_calls.rs", "calls of hidden services are shown as hidden"),
    ("engine/promql/src/plan/memory.rs", "a context for tests"),
    ("engine/ingest/src/fuzz.rs", "a decoder alone"),
    ("engine/olap/src/engine/table_versions.rs", "asks whether tables of guarded models have changed, not for rows"),
    (
        "engine/olap/src/engine/cached_rows.rs",
        "plans over the rows of a rollup, which were read with the caller's rights",
    ),
    ("engine/olap/src/plan/sources.rs", "asks for columns of tables, not for rows"),
    ("engine/olap/src/rollup/buckets.rs", "asks whether the operator has a table of a name, not for rows"),
];

/// Files of the product that begin queries: path, reason.
const BEGINS: &[(&str, &str)] = &[
    ("server/api/src/state.rs", "the one door of requests"),
    ("server/quiver/src/alerting/engine.rs", "rules, with the rights of their owner"),
    ("server/quiver/src/rules/bench.rs", "a bench of rules over samples of its own"),
    ("engine/promql/src/plan/memory.rs", "a context for tests"),
    ("engine/query/src/context.rs", "defines them"),
    ("server/quiver/src/sql.rs", "a directory at rest: there is no request and no server"),
    ("server/quiver/src/warm_up.rs", "before the first request, so that it does not wait for what is made once"),
];

/// Lines of the product that contain one of some texts, outside of the allowed files.
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

#[test]
fn handlers_write_no_text_of_a_language() {
    let found = outside(&["parse(&format!("], &[("server/alertd/src/delivery/proxies.rs", "the address of a proxy")]);
    let found: Vec<String> = found.into_iter().filter(|line| line.starts_with("server/")).collect();
    none("writes the text of a query to have it read: a value in it may be more than a value", &found);
}

/// Files that create the tables of the store.
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
