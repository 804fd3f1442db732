//! Allowed dependencies between crates (ARCHITECTURE.md, Layers): a crate uses only lower layers, and some must not
//! know DataFusion, tokio or each other.

use std::collections::BTreeMap;

use cargo_metadata::{DependencyKind, MetadataCommand, Package};

use crate::sources::{none, root};

/// Layers, the lowest one first.
const LAYERS: &[&[&str]] = &[
    &["quiver-types", "quiver-files", "quiver-database", "quiver-testpg"],
    &["quiver-yaml"],
    &["quiver-ingest", "quiver-store", "quiver-query", "quiver-config", "quiver-auth", "quiver-alerting"],
    &["quiver-promql", "quiver-logsql", "quiver-traces", "quiver-sql", "quiver-olap", "quiver-alertd", "quiver-codec"],
    &["quiver-api"],
    &["quiver"],
    &["quiver-tests", "quiver-benches"],
];

/// Not in any layer: it only selects features of third-party crates.
const FEATURES: &str = "quiver-features";

const LANGUAGES: &[&str] = &["quiver-promql", "quiver-logsql", "quiver-traces", "quiver-sql", "quiver-olap"];

/// Dependencies that are forbidden although layers would allow them: crates, dependency, reason.
const FORBIDDEN: &[(&[&str], &str, &str)] = &[
    (&["quiver-types"], "datafusion", "types knows no engine"),
    (&["quiver-types"], "tokio", "types does no I/O"),
    (&["quiver-ingest"], "tokio", "ingest never waits"),
    (&["quiver-ingest"], "datafusion", "ingest knows no engine"),
    (&["quiver-store"], "datafusion", "the store describes its scans in `types::scan`; the engine runs them"),
    (&["quiver-query"], "datafusion-proto", "who does not write plans does not build it"),
    (&["quiver-codec"], "quiver-store", "plans are written by whoever has nodes, wired by the binary"),
    (LANGUAGES, "quiver-store", "languages meet the store in traits, wired by the binary"),
    (LANGUAGES, "quiver-ingest", "languages read, they do not write"),
    (&["quiver-database", "quiver-config", "quiver-auth"], "datafusion", "administration knows no engine"),
    (&["quiver-alerting"], "tokio", "alerting is a state over a clock that is passed in"),
    (&["quiver-alerting", "quiver-alertd"], "datafusion", "rules evaluate through a trait"),
    (&["quiver-alertd"], "quiver-query", "rules evaluate through a trait"),
];

fn packages() -> BTreeMap<String, Package> {
    let metadata = MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .no_deps()
        .other_options(["--offline".to_owned()])
        .exec()
        .expect("cargo reads the manifests");
    metadata.packages.into_iter().map(|p| (p.name.to_string(), p)).collect()
}

/// A package's dependencies, without those of tests, which may use more.
fn uses(package: &Package) -> impl Iterator<Item = &str> {
    package.dependencies.iter().filter(|d| d.kind != DependencyKind::Development).map(|d| d.name.as_str())
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|names| names.contains(&name))
}

#[test]
fn crates_use_lower_layers_only() {
    let mut broken = Vec::new();
    for (name, package) in packages() {
        if name == FEATURES {
            continue;
        }
        let Some(own) = layer(&name) else {
            broken.push(format!("{name} has no layer"));
            continue;
        };
        for used in uses(&package).filter(|d| d.starts_with("quiver") && *d != FEATURES) {
            if layer(used).is_none_or(|other| other >= own) {
                broken.push(format!("{name} uses {used}"));
            }
        }
    }
    none("dependencies against the layers", &broken);
}

#[test]
fn invariants_of_layers() {
    let packages = packages();
    let each = FORBIDDEN.iter().flat_map(|(names, used, why)| names.iter().map(move |name| (*name, *used, *why)));
    let below_api = LAYERS[..layer("quiver-api").expect("a layer")].concat();
    let http = below_api.into_iter().map(|name| (name, "axum", "only the API knows HTTP"));
    let broken: Vec<String> = each
        .chain(http)
        .filter(|(name, used, _)| uses(&packages[*name]).any(|d| d == *used))
        .map(|(name, used, why)| format!("{name} uses {used}: {why}"))
        .collect();
    none("dependencies against the invariants", &broken);
}

#[test]
fn every_layer_exists() {
    let packages = packages();
    let missing = LAYERS.concat().into_iter().filter(|name| !packages.contains_key(*name)).map(str::to_owned);
    none("crates that are gone", &missing.collect::<Vec<_>>());
}
