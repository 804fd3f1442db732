//! Finds the value types of attributes from the schemas of parts, so that a table of spans knows its column types
//! before a row is read.

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

/// Number of parts that are examined, newest first. Older parts may hold other types; reading them reveals that.
const PARTS_MAX: usize = 64;
/// Number of live rows that are examined, newest first.
const LIVE_ROWS_MAX: usize = 4096;

/// The value types of attributes, as far as the files and the newest live rows reveal them and the caller may see them.
///
/// # Errors
/// Those of reading footers. Internal: the snapshot is from another source.
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
        // Nothing may be learnt of hidden rows, not even a type.
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

/// Examines some rows of a live batch and returns how many.
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

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder, Value};

    use super::*;
    use crate::memtable::spans::LiveSpans;

    #[test]
    fn a_column_of_its_own_has_one_type() {
        let field = |place: Place, key: &str, kind: DataType| Field::new(column_name(place, key), kind, true);
        let schema = Schema::new(vec![
            field(Place::Span, "int", DataType::Int64),
            field(Place::Span, "double", DataType::Float64),
            field(Place::Span, "text", DataType::Utf8),
            field(Place::Resource, "flag", DataType::Boolean),
        ]);
        let of = |place: Place, key: &str| of_schema(&schema, place, key);
        assert_eq!(of(Place::Span, "int"), KnownKind::All(AttributeKind::Int));
        assert_eq!(of(Place::Span, "double"), KnownKind::All(AttributeKind::Double));
        assert_eq!(of(Place::Span, "text"), KnownKind::All(AttributeKind::Text));
        assert_eq!(of(Place::Resource, "flag"), KnownKind::All(AttributeKind::Text));
        assert_eq!([of(Place::Resource, "int"), of(Place::Span, "flag")], [KnownKind::None; 2]);
    }

    /// Spans of `a` with integers and of `b` with texts and doubles, by turns; the newest are of `b`.
    fn spans() -> quiver_types::SpansBatch {
        let mut b = SpansBuilder::default();
        for n in 0..10u64 {
            let service = ["a", "b"][n as usize % 2];
            let mut resource = Vec::new();
            b.write_attributes(&mut vec![("host", Value::Text(service))], &mut resource);
            let context = b.context(&ContextFields { service, resource: &resource, ..Default::default() });
            let mixed = if n % 2 == 0 { Value::Int(1) } else { Value::Double(0.5) };
            let late = if n == 9 { Value::Text("x") } else { Value::Int(1) };
            b.attributes(&mut vec![("late", late), ("mixed", mixed), ("none", Value::Text(""))]);
            let (trace_id, span_id) = (u128::from(n + 1).to_be_bytes(), (n + 1).to_be_bytes());
            b.span(&SpanFields { trace_id, span_id, context, name: "n", start: 1, end: 2, ..SpanFields::default() });
        }
        b.finish()
    }

    #[test]
    fn the_newest_live_rows_tell_what_values_are() {
        let live = LiveSpans::default();
        live.insert(spans(), 1);
        let chunks = live.view(u32::MAX, (i64::MIN, i64::MAX));
        let [chunk] = &chunks[..] else { panic!("one write") };
        let asked = ["mixed", "late", "none", "other"].map(|key| (Place::Span, key.to_owned()));
        let asked: Vec<_> = asked.into_iter().chain([(Place::Resource, "host".to_owned())]).collect();
        let of = |access: &Access, rows: usize| {
            let mut kinds = vec![KnownKind::None; asked.len()];
            let looked_at = of_live(chunk, access, &asked, rows, &mut kinds);
            (looked_at, kinds)
        };
        let kinds = [AttributeKind::Int, AttributeKind::Double, AttributeKind::Text];
        let [int, double, text] = kinds.map(KnownKind::All);
        let none = KnownKind::None;
        let full = Access::full();
        assert_eq!(of(&full, 100), (10, vec![double, text, none, none, text]));
        assert_eq!(of(&full, 1), (1, vec![double, text, none, none, text]));
        assert_eq!(of(&full, 0), (0, vec![none; 5]));
        // Of hidden rows not even a type is learnt, though they are among those that were looked at.
        assert_eq!(of(&Access::services(["a"]), 100), (10, vec![int, int, none, none, text]));
        assert_eq!(of(&Access::services(["a"]), 1), (1, vec![none; 5]));
        assert_eq!(of(&Access::services(["nobody"]), 100), (10, vec![none; 5]));
    }
}
