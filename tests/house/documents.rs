//! Generated documents: compared with what the registries yield; `UPDATE=1` rewrites them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use datafusion::execution::SessionStateDefaults;
use datafusion::logical_expr::Documentation;
use quiver::settings::LoadedSettings;
use quiver::wiring;
use quiver_promql::functions::{FUNCTIONS, FunctionDef};
use quiver_types::SystemClock;

use crate::sources::root;

/// Compares a document with the generated text, or writes it.
fn document(path: &str, text: &str) {
    let file = root().join(path);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&file, text).expect("writable");
    }
    let stored = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(stored == text, "{path} is stale: run `make docs`");
}

fn signature(f: &FunctionDef) -> String {
    let mut args: Vec<String> = f.args.iter().map(|a| a.as_str().to_owned()).collect();
    if f.variadic != 0 {
        let last = args.pop().expect("what varies is the last argument");
        args.push(if f.variadic == 1 { format!("{last}?") } else { format!("{last}…") });
    }
    format!("{}({}) → {}", f.name, args.join(", "), f.returns.as_str())
}

#[test]
fn functions_document() {
    let mut out = String::from(
        "# PromQL functions\n\nGenerated from the registry in `engine/promql/src/functions.rs`. `vector` is an instant \
         vector, `matrix` a range vector; `?` marks an argument that may be left out, `…` one that may be left out or \
         stand several times. Experimental functions are those that Prometheus hides behind a feature flag; they are on \
         unless `query.experimental_functions` is off.\n\n| Function | Gives | Experimental |\n|---|---|---|\n",
    );
    for f in FUNCTIONS {
        let experimental = if f.experimental { "yes" } else { "" };
        let doc = f.doc.replace('|', "\\|");
        writeln!(out, "| `{}` | {doc} | {experimental} |", signature(f)).expect("a text");
    }
    document("docs/functions.md", &out);
}

#[test]
fn pipes_document() {
    let mut out = String::from(
        "# Pipes and functions of LogsQL\n\nGenerated from the registries in `engine/logsql/src/pipes.rs` and \
         `engine/logsql/src/parser/stats.rs`.\n\n## Pipes\n\n| Pipe | Other names | What it does |\n|---|---|---|\n",
    );
    for (names, doc) in quiver_logsql::pipes::documents() {
        let others: Vec<String> = names[1..].iter().map(|name| format!("`{name}`")).collect();
        writeln!(out, "| `{}` | {} | {doc} |", names[0], others.join(", ")).expect("a text");
    }
    out.push_str("\n## Functions of `stats`\n\n| Function | What it gives |\n|---|---|\n");
    for (name, doc) in quiver_logsql::pipes::function_documents() {
        writeln!(out, "| `{name}` | {doc} |").expect("a text");
    }
    document("docs/logsql-pipes.md", &out);
}

/// DataFusion's texts link to other pages of its documentation: sentences about these are left out, and links become
/// plain names.
fn without_links(text: &str) -> String {
    let sentences = text.split_inclusive(". ").filter(|sentence| !sentence.contains(".md#"));
    let mut out: String = sentences.collect();
    while let Some(from) = out.find("](") {
        let Some(length) = out[from..].find(')') else { break };
        out.replace_range(from..=from + length, "");
        if let Some(open) = out[..from].rfind('[') {
            out.remove(open);
        }
    }
    out.trim_end().to_owned()
}

/// A table row for an SQL function: how it is called, what it returns.
fn sql_row(out: &mut String, form: &str, gives: &str) {
    let line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    writeln!(out, "| `{}` | {} |", line(form), line(gives)).expect("a text");
}

/// The section of DataFusion's functions, by name.
fn sql_section(out: &mut String, title: &str, functions: Vec<(String, Vec<String>, Option<&Documentation>)>) {
    writeln!(out, "\n## {title}\n\n| Function | Gives |\n|---|---|").expect("a text");
    let mut functions = functions;
    functions.sort_by(|a, b| a.0.cmp(&b.0));
    for (name, aliases, doc) in functions {
        let form = doc.map_or_else(|| format!("{name}(…)"), |doc| doc.syntax_example.clone());
        let mut gives = doc.map_or_else(String::new, |doc| without_links(&doc.description));
        if !aliases.is_empty() {
            let aliases: Vec<String> = aliases.iter().map(|alias| format!("`{alias}`")).collect();
            write!(gives, " Also {}.", aliases.join(", ")).expect("a text");
        }
        sql_row(out, &form, &gives);
    }
}

#[test]
fn sql_functions_document() {
    let mut out = String::from(
        "# SQL functions\n\nGenerated from the registries: `engine/query/src/functions.rs`, `engine/sql/src/table_functions.rs`, and \
         DataFusion's.\n\n## Of the product\n\n| Function | Gives |\n|---|---|\n",
    );
    for (form, gives) in quiver_query::functions::FUNCTIONS {
        sql_row(&mut out, form, gives);
    }
    out.push_str("\n## Table functions of the product\n\n| Function | Gives |\n|---|---|\n");
    for (name, form) in quiver_sql::CALLS {
        let of = match name {
            "logsql" => "LogsQL",
            "model_rows" => "a model of analytics",
            _ => "PromQL",
        };
        sql_row(&mut out, form, &format!("rows of {of}; see `docs/sql.md`"));
    }
    let scalar = SessionStateDefaults::default_scalar_functions();
    let scalar = scalar.iter().map(|f| (f.name().to_owned(), f.aliases().to_vec(), f.documentation()));
    sql_section(&mut out, "Scalar functions of DataFusion", scalar.collect());
    let aggregate = SessionStateDefaults::default_aggregate_functions();
    let aggregate = aggregate.iter().map(|f| (f.name().to_owned(), f.aliases().to_vec(), f.documentation()));
    sql_section(&mut out, "Aggregates of DataFusion", aggregate.collect());
    let window = SessionStateDefaults::default_window_functions();
    let window = window.iter().map(|f| (f.name().to_owned(), f.aliases().to_vec(), f.documentation()));
    sql_section(&mut out, "Window functions of DataFusion", window.collect());
    document("docs/sql-functions.md", &out);
}

/// Parses exposition text: type, help and label names by metric.
fn metrics(exposition: &str) -> BTreeMap<String, (String, String, Vec<String>)> {
    let mut found: BTreeMap<String, (String, String, Vec<String>)> = BTreeMap::new();
    for line in exposition.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            help.clone_into(&mut found.entry(name.to_owned()).or_default().1);
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            kind.clone_into(&mut found.entry(name.to_owned()).or_default().0);
        } else if let Some((name, labels)) = line.split_once('{') {
            let labels = labels.split('}').next().unwrap_or_default();
            let names = labels.split(',').filter_map(|l| l.split_once('=')).map(|(n, _)| n.to_owned());
            // The lines of a histogram have a suffix after its name.
            let mut bases = ["_bucket", "_sum", "_count"].into_iter().filter_map(|end| name.strip_suffix(end));
            let base = bases.find(|base| found.get(*base).is_some_and(|f| f.0 == "histogram"));
            let names: Vec<String> = names.filter(|n| base.is_none() || n != "le").collect();
            found.entry(base.unwrap_or(name).to_owned()).or_default().2 = names;
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_document() {
    let dir = tempfile::tempdir().expect("a folder");
    let flags = [("store.data", dir.path().display().to_string()), ("rbac.mode", "off".to_owned())];
    let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).expect("valid settings");
    let app = wiring::build(&loaded.settings, Arc::new(SystemClock)).await.expect("a store");
    let exposition = quiver_api::metrics::exposition::text(&app);
    app.engines.store.close(Duration::from_secs(5)).await;
    let mut out = String::from(
        "# Own metrics\n\nGenerated from what `/metrics` gives. Names are `quiver_<area>_<what>_<unit>` in base units; \
         counters end in `_total`; those without the prefix are named as every exporter names them.\n\n\
         | Metric | Type | Labels | Help |\n|---|---|---|---|\n",
    );
    let mut broken = Vec::new();
    for (name, (kind, help, labels)) in metrics(&exposition) {
        let labels = labels.iter().map(|l| format!("`{l}`")).collect::<Vec<_>>().join(", ");
        writeln!(out, "| `{name}` | {kind} | {labels} | {} |", help.replace('|', "\\|")).expect("a text");
        if help.is_empty() || (kind == "counter") != name.ends_with("_total") || kind.is_empty() {
            broken.push(format!("{name} ({kind}): {help}"));
        }
    }
    crate::sources::none("metrics against the naming rule", &broken);
    document("docs/metrics.md", &out);
}
