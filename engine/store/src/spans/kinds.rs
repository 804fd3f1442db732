//! What values of attributes are, out of the schemas of parts: a table of spans types its columns by it before it reads a
//! row.

use std::cmp::Reverse;
use std::sync::Arc;

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Schema, UInt32Type};
use quiver_types::spans::{AttributeKind, Attributes, KnownKind, Place, RawAttribute, SpanSnapshot};
use quiver_types::{Access, ReadStats, Result};

use super::stream::live_chunks;
use super::table::pinned;
use crate::memtable::spans::SpanChunk;
use crate::part::Part;
use crate::part::spans::column_name;

/// Parts that are looked at, the newest first: older ones may hold another type, and reading them says so.
const PARTS_MAX: usize = 64;
/// Live rows that are looked at, the newest first.
const LIVE_ROWS_MAX: usize = 4096;

/// Says of attributes what their values are, as far as files and the newest live rows tell it and the caller may see it.
///
/// # Errors
/// Those of reading footers; internal: the snapshot is of another source.
pub async fn attribute_kinds(
    snapshot: &Arc<dyn SpanSnapshot>,
    access: &Access,
    attributes: &[(Place, String)],
    stats: &ReadStats,
) -> Result<Vec<KnownKind>> {
    let snapshot = &pinned(snapshot)?.snapshot;
    let mut kinds = vec![KnownKind::None; attributes.len()];
    let mut left = LIVE_ROWS_MAX;
    for (_, chunk) in live_chunks(snapshot, (i64::MIN, i64::MAX)).iter().rev() {
        if left == 0 {
            break;
        }
        left -= of_live(chunk, access, attributes, left, &mut kinds);
    }
    let mut parts: Vec<&Arc<Part>> = snapshot.visible.table(quiver_types::tables::spans::TABLE.name).iter().collect();
    parts.sort_by_key(|part| Reverse(part.meta.max_ts));
    for part in parts.into_iter().take(PARTS_MAX) {
        let services = &part.meta.services;
        // Of hidden rows not even a type may be learnt.
        let all_seen = access.is_full() || !part.meta.services_all && services.iter().all(|s| access.allows(s));
        if !all_seen {
            if part.meta.services_all || services.iter().any(|s| access.allows(s)) {
                return Ok(vec![KnownKind::Unknown; attributes.len()]);
            }
            continue;
        }
        let schema = part.span_columns(stats).await?;
        let index = part.span_index(stats).await?;
        for ((place, key), kind) in attributes.iter().zip(&mut kinds) {
            let own = of_schema(&schema, *place, key);
            let here = if index.keys.may_have(*place, key) { KnownKind::Unknown } else { own };
            *kind = kind.and(here);
        }
        stats.check()?;
    }
    Ok(kinds)
}

fn of_schema(schema: &Schema, place: Place, key: &str) -> KnownKind {
    let Some((_, field)) = schema.column_with_name(&column_name(place, key)) else { return KnownKind::None };
    KnownKind::All(match field.data_type() {
        DataType::Int64 => AttributeKind::Int,
        DataType::Float64 => AttributeKind::Double,
        _ => AttributeKind::Text,
    })
}

/// Looks at some rows of a live batch, and says at how many.
fn of_live(
    chunk: &SpanChunk,
    access: &Access,
    attributes: &[(Place, String)],
    rows: usize,
    kinds: &mut [KnownKind],
) -> usize {
    let batch = &chunk.batch;
    let contexts = batch.spans["context"].as_primitive::<UInt32Type>().values();
    let services = batch.contexts["service"].as_string::<i32>();
    let own = batch.spans["attributes"].as_binary::<i32>();
    let resources = batch.contexts["resource"].as_binary::<i32>();
    let seen: Vec<bool> = services.iter().map(|service| access.allows(service.unwrap_or_default())).collect();
    let rows = rows.min(batch.len());
    for row in (batch.len() - rows)..batch.len() {
        let context = contexts[row] as usize;
        if !seen[context] {
            continue;
        }
        for ((place, key), kind) in attributes.iter().zip(kinds.iter_mut()) {
            let bytes = if *place == Place::Resource { resources.value(context) } else { own.value(row) };
            let found = Attributes::raw(bytes).find(|a| a.key == key.as_bytes()).and_then(RawAttribute::value);
            if let Some(found) = found.and_then(AttributeKind::of) {
                *kind = kind.and(KnownKind::All(found));
            }
        }
    }
    rows
}
