//! Keys of attributes and their values.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, RecordBatch};
use arrow::datatypes::{UInt8Type, UInt64Type};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_query::{QueryContext, from_datafusion};
use quiver_types::Error;
use quiver_types::spans::{
    Attributes, Place, SpanColumn, SpanFilter, TAG_BYTES, TAG_CARDINALITY_MAX, TAG_HASH_BYTES, TAG_VALUES_MAX,
    TagRequest, Value, events, kind_name, links, tag_kind_name,
};

use super::{Columns, TagRow, columns, shown};
use crate::engine::{Reader, TraceError, TracesEngine};
use crate::export::internal::STATUS;

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

#[derive(Debug, Default)]
struct Key {
    kinds: u8,
    spans: u64,
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
        let request = TagRequest { filter, place, key: None };
        self.read(ctx, move |reader| async move {
            let mut all: BTreeMap<(u8, String), Key> = BTreeMap::new();
            reader
                .tags(&request, |row| {
                    let keys = all.len();
                    let known = all.entry((row.place, row.text.to_owned())).or_default();
                    let hashes_before = known.values.len();
                    known.kinds |= row.kinds;
                    known.spans += row.spans;
                    let (hashes, _) = row.hashes.as_chunks::<8>();
                    for hash in hashes {
                        if known.values.len() < TAG_CARDINALITY_MAX {
                            known.values.insert(u64::from_le_bytes(*hash));
                        }
                    }
                    let hashes = (known.values.len() - hashes_before) * TAG_HASH_BYTES;
                    hashes + (all.len() - keys) * (row.text.len() + TAG_BYTES)
                })
                .await?;
            let row = |((place, key), of): ((u8, String), Key)| TagRow {
                key,
                scope: Place::ALL.get(usize::from(place)).map_or("", |place| place.name()),
                kind: tag_kind_name(of.kinds),
                spans: of.spans,
                cardinality: of.values.len() as u64,
            };
            let mut rows: Vec<TagRow> = all.into_iter().map(row).collect();
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
            let mut all: HashMap<String, u64, FixedState> = HashMap::default();
            let mut add = |value: &str, spans: u64| {
                if let Some(known) = all.get_mut(value) {
                    *known += spans;
                    return 0;
                }
                if all.len() >= TAG_VALUES_MAX {
                    return 0;
                }
                all.insert(value.to_owned(), spans);
                value.len() + TAG_BYTES
            };
            match key {
                KeyOf::Attribute(place, key) => {
                    let request = TagRequest { filter, place, key: Some(key) };
                    reader.tags(&request, |row| add(row.text, row.spans)).await?;
                }
                KeyOf::Intrinsic(name) => {
                    let memory = reader.reservation("values");
                    let each = |batch: &RecordBatch| {
                        let c = Columns(batch);
                        let mut bytes = 0;
                        for i in 0..batch.num_rows() {
                            if let Some(value) = intrinsic(&c, i, &name)? {
                                bytes += add(&value, 1);
                            }
                        }
                        memory.try_grow(bytes).map_err(from_datafusion)?;
                        Ok(true)
                    };
                    reader.scan(filter, intrinsic_columns(&name), each).await?;
                }
            }
            let mut rows: Vec<(String, u64)> = all.into_iter().collect();
            rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            Ok(rows)
        })
        .await
    }
}

/// A row of [`quiver_types::spans::tag_schema`].
struct TagCount<'b> {
    place: u8,
    text: &'b str,
    kinds: u8,
    spans: u64,
    hashes: &'b [u8],
}

impl Reader {
    /// Hands what is counted of attributes to a function, which says by how many bytes it grew.
    async fn tags(
        &self,
        request: &TagRequest,
        mut each: impl FnMut(TagCount<'_>) -> usize + Send,
    ) -> Result<(), TraceError> {
        let plan = self.tags_plan(request)?;
        let memory = self.reservation("attributes");
        self.run(&plan, |batch| {
            let column = |name: &str| -> Result<&ArrayRef, TraceError> {
                let column = batch.column_by_name(name);
                column.ok_or_else(|| Error::internal(format!("a list of attributes lacks `{name}`")).into())
            };
            let (places, texts) = (column("place")?.as_primitive::<UInt8Type>(), column("text")?.as_string::<i32>());
            let (kinds, spans) = (column("kinds")?.as_primitive::<UInt8Type>(), column("spans")?);
            let (spans, hashes) = (spans.as_primitive::<UInt64Type>(), column("hashes")?.as_binary::<i32>());
            let mut bytes = 0;
            for i in 0..batch.num_rows() {
                bytes += each(TagCount {
                    place: places.value(i),
                    text: texts.value(i),
                    kinds: kinds.value(i),
                    spans: spans.value(i),
                    hashes: hashes.value(i),
                });
            }
            memory.try_grow(bytes).map_err(from_datafusion)?;
            Ok(true)
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
