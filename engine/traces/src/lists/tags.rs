//! Keys of attributes and their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_query::QueryContext;
use quiver_types::spans::{Attributes, Place, SpanColumn, SpanFilter, Value, events, kind_name, links};

use super::{Columns, TagRow, columns, shown};
use crate::engine::{TraceError, TracesEngine};
use crate::export::internal::STATUS;

/// Values of a key are counted up to here.
const CARDINALITY_MAX: usize = 10_000;
/// Distinct values that are counted of one key.
const VALUES_MAX: usize = 200_000;

/// Names of what every span has.
pub const INTRINSICS: [&str; 7] =
    ["name", "service", "kind", "status", "statusMessage", "instrumentation:name", "instrumentation:version"];

/// Gives the columns in which attributes of a place stand.
pub(crate) fn place_columns(place: Option<Place>) -> Vec<SpanColumn> {
    match place {
        Some(Place::Span) => columns(&["attributes"], &[]),
        Some(Place::Resource) => columns(&[], &["resource", "service"]),
        Some(Place::Event) => columns(&["events"], &[]),
        Some(Place::Link) => columns(&["links"], &[]),
        Some(Place::Scope) => columns(&[], &["scope_attributes"]),
        None => columns(&["attributes", "events", "links"], &["resource", "service", "scope_attributes"]),
    }
}

/// Hands each attribute of a row with its place to a function. Columns that were not asked for have none.
pub(crate) fn each_attribute(c: &Columns<'_>, row: usize, mut f: impl FnMut(Place, &str, Value<'_>)) {
    let mut list = |place: Place, bytes: &[u8]| Attributes::read(bytes).for_each(|(key, value)| f(place, key, value));
    if let Ok(bytes) = c.bytes("attributes") {
        list(Place::Span, bytes.value(row));
    }
    if let Ok(bytes) = c.bytes_view("resource") {
        list(Place::Resource, bytes.value(row));
    }
    if let Ok(bytes) = c.bytes("events") {
        events(bytes.value(row)).for_each(|e| list(Place::Event, e.attributes));
    }
    if let Ok(bytes) = c.bytes("links") {
        links(bytes.value(row)).for_each(|l| list(Place::Link, l.attributes));
    }
    if let Ok(bytes) = c.bytes_view("scope_attributes") {
        list(Place::Scope, bytes.value(row));
    }
    if c.0.column_by_name("resource").is_some()
        && let Ok(services) = c.view("service")
        && !services.value(row).is_empty()
    {
        f(Place::Resource, "service.name", Value::Text(services.value(row)));
    }
}

fn type_name(value: Value<'_>) -> &'static str {
    match value {
        Value::Text(_) => "string",
        Value::Int(_) | Value::Double(_) => "number",
        Value::Bool(_) => "bool",
        Value::Bytes(_) => "bytes",
        Value::Json(json) if json.starts_with("{\"kvlistValue\"") => "map",
        Value::Json(_) => "list",
    }
}

#[derive(Debug)]
struct Key {
    kind: &'static str,
    spans: u64,
    last_row: u64,
    values: HashSet<u64, FixedState>,
}

/// How values of a key are looked for.
#[derive(Debug, Clone)]
pub enum KeyOf {
    /// An attribute, at one place or at any.
    Attribute(Option<Place>, String),
    /// One of [`INTRINSICS`].
    Intrinsic(String),
}

impl TracesEngine {
    /// Lists keys of attributes, the commonest first.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn tags(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        place: Option<Place>,
    ) -> Result<Vec<TagRow>, TraceError> {
        self.read(ctx, move |reader| async move {
            let mut all: HashMap<(Place, String), Key, FixedState> = HashMap::default();
            let mut row = 0u64;
            reader
                .scan(filter, place_columns(place), |batch| {
                    let c = Columns(batch);
                    for i in 0..batch.num_rows() {
                        row += 1;
                        each_attribute(&c, i, |at, key, value| {
                            let kind = type_name(value);
                            let known = all.entry((at, key.to_owned())).or_insert_with(|| Key {
                                kind,
                                spans: 0,
                                last_row: 0,
                                values: HashSet::default(),
                            });
                            if known.kind != kind {
                                known.kind = "mixed";
                            }
                            // A key of several events counts its span once.
                            known.spans += u64::from(known.last_row != row);
                            known.last_row = row;
                            if known.values.len() < CARDINALITY_MAX {
                                known.values.insert(xxhash_rust::xxh3::xxh3_64(value.text().as_bytes()));
                            }
                        });
                    }
                    Ok(true)
                })
                .await?;
            let mut rows: Vec<TagRow> = all
                .into_iter()
                .map(|((at, key), of)| TagRow {
                    key,
                    scope: at.name(),
                    kind: of.kind,
                    spans: of.spans,
                    cardinality: of.values.len() as u64,
                })
                .collect();
            rows.sort_by(|a, b| b.spans.cmp(&a.spans).then_with(|| (a.scope, &a.key).cmp(&(b.scope, &b.key))));
            Ok(rows)
        })
        .await
    }

    /// Lists the values of a key with their counts, the commonest first.
    ///
    /// # Errors
    /// Those of the engine.
    pub async fn values(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        key: KeyOf,
    ) -> Result<Vec<(String, u64)>, TraceError> {
        self.read(ctx, move |reader| async move {
            let mut all: BTreeMap<String, u64> = BTreeMap::new();
            let wanted = match &key {
                KeyOf::Attribute(place, _) => place_columns(*place),
                KeyOf::Intrinsic(name) => intrinsic_columns(name),
            };
            reader
                .scan(filter, wanted, |batch| {
                    let c = Columns(batch);
                    for i in 0..batch.num_rows() {
                        let mut found: Vec<String> = Vec::new();
                        match &key {
                            KeyOf::Attribute(_, key) => each_attribute(&c, i, |_, k, value| {
                                if k == key {
                                    found.push(value.text().into_owned());
                                }
                            }),
                            KeyOf::Intrinsic(name) => found.extend(intrinsic(&c, i, name)?),
                        }
                        found.sort_unstable();
                        found.dedup();
                        for value in found {
                            if all.len() < VALUES_MAX || all.contains_key(&value) {
                                *all.entry(value).or_default() += 1;
                            }
                        }
                    }
                    Ok(true)
                })
                .await?;
            let mut rows: Vec<(String, u64)> = all.into_iter().collect();
            rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            Ok(rows)
        })
        .await
    }
}

fn intrinsic_columns(name: &str) -> Vec<SpanColumn> {
    match name {
        "service" => columns(&[], &["service"]),
        "kind" => columns(&["kind"], &[]),
        "status" => columns(&["status"], &[]),
        "statusMessage" => columns(&["status_message"], &[]),
        "instrumentation:name" => columns(&[], &["scope_name"]),
        "instrumentation:version" => columns(&[], &["scope_version"]),
        _ => columns(&["name"], &[]),
    }
}

/// Gives an intrinsic of a row; none when it is empty.
fn intrinsic(c: &Columns<'_>, row: usize, name: &str) -> Result<Option<String>, TraceError> {
    let text = match name {
        "service" => shown(c.view("service")?.value(row)),
        "kind" => kind_name(c.small("kind")?.value(row)),
        "status" => STATUS[usize::from(c.small("status")?.value(row)).min(2)],
        "statusMessage" => c.text("status_message")?.value(row),
        "instrumentation:name" => c.view("scope_name")?.value(row),
        "instrumentation:version" => c.view("scope_version")?.value(row),
        _ => c.text("name")?.value(row),
    };
    Ok((!text.is_empty()).then(|| text.to_owned()))
}
