//! Selects the attributes that get columns of their own.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Field, UInt32Type};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use quiver_types::SpansBatch;
use quiver_types::spans::{Attributes, Place};

use super::{OwnType, column_name};

/// With more rows than this, only a sample is examined:
const SAMPLED_ROWS: usize = 128 * 1024;
/// one row in this many.
const SAMPLE_STEP: usize = 7;
/// Maximum number of attribute columns.
const OWN_MAX: usize = 250;

/// An attribute with a column of its own.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct OwnColumn {
    pub(crate) place: Place,
    pub(crate) key: String,
    pub(crate) kind: OwnType,
}

impl OwnColumn {
    pub(super) fn field(&self) -> Field {
        let kind = match self.kind {
            OwnType::Text => DataType::Utf8,
            OwnType::Int => DataType::Int64,
            OwnType::Double => DataType::Float64,
            OwnType::Bool => DataType::Boolean,
        };
        Field::new(column_name(self.place, &self.key), kind, true)
    }
}

/// Selects attributes present on at least 1 % of the rows, the most common first. A key has only one column, with its
/// most common type.
pub(crate) fn own_columns<'b>(batches: impl Iterator<Item = &'b SpansBatch>) -> Vec<OwnColumn> {
    // For each place and key, the count of each type.
    let mut counts: [HashMap<Vec<u8>, [u64; 4], FixedState>; 2] = Default::default();
    let mut rows = 0u64;
    let mut add = |place: usize, bytes: &[u8], n: u64| {
        for raw in Attributes::raw(bytes) {
            let Some(kind) = OwnType::of_letter(raw.letter) else { continue };
            match counts[place].get_mut(raw.key) {
                Some(of) => of[kind as usize] += n,
                None => counts[place].entry(raw.key.to_vec()).or_default()[kind as usize] += n,
            }
        }
    };
    let batches: Vec<&SpansBatch> = batches.collect();
    // With many rows a sample is enough to tell what is common.
    let total: usize = batches.iter().map(|batch| batch.len()).sum();
    let step = if total > SAMPLED_ROWS { SAMPLE_STEP } else { 1 };
    for batch in batches {
        rows += batch.len() as u64;
        let mut uses = vec![0u64; batch.contexts.num_rows()];
        batch.spans["context"].as_primitive::<UInt32Type>().values().iter().for_each(|&c| uses[c as usize] += 1);
        let resources = batch.contexts["resource"].as_binary::<i32>();
        for (i, n) in uses.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            add(1, resources.value(i), n);
        }
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        attributes.iter().step_by(step).flatten().for_each(|bytes| add(0, bytes, step as u64));
    }
    let mut all: Vec<((Place, String, OwnType), u64)> = Vec::new();
    for (place, counts) in [Place::Span, Place::Resource].into_iter().zip(counts) {
        for (key, of) in counts {
            let Ok(key) = String::from_utf8(key) else { continue };
            let common = OwnType::ALL.into_iter().zip(of).filter(|(_, n)| *n > 0 && n * 100 >= rows);
            all.extend(common.map(|(kind, n)| ((place, key.clone(), kind), n)));
        }
    }
    all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let mut seen: HashSet<(Place, String), FixedState> = HashSet::default();
    let mut own: Vec<OwnColumn> = Vec::new();
    for ((place, key, kind), _) in all {
        // Some readers ignore case in names; they must not see two columns of the same name.
        if own.len() < OWN_MAX && !key.starts_with("__q_") && seen.insert((place, key.to_lowercase())) {
            own.push(OwnColumn { place, key, kind });
        }
    }
    own.sort();
    own
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder, Value};

    use super::*;

    /// Spans by number with attributes of their own; a resource is shared by those that say so.
    fn batch<'v>(
        spans: std::ops::Range<u64>,
        resource: impl Fn(u64) -> Vec<(&'v str, Value<'v>)>,
        own: impl Fn(u64) -> Vec<(&'v str, Value<'v>)>,
    ) -> SpansBatch {
        let mut b = SpansBuilder::default();
        for n in spans {
            let mut shared = Vec::new();
            b.write_attributes(&mut resource(n), &mut shared);
            let context = b.context(&ContextFields { service: "s", resource: &shared, ..Default::default() });
            b.attributes(&mut own(n));
            let (trace_id, span_id) = (u128::from(n + 1).to_be_bytes(), (n + 1).to_be_bytes());
            b.span(&SpanFields { trace_id, span_id, context, name: "n", start: 1, end: 2, ..SpanFields::default() });
        }
        b.finish()
    }

    fn check(batches: &[SpansBatch], expected: &[(Place, &str, OwnType)]) {
        let found = own_columns(batches.iter());
        let found: Vec<_> = found.iter().map(|own| (own.place, own.key.as_str(), own.kind)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn what_one_in_a_hundred_has_gets_a_column() {
        let own = |n: u64| {
            let mut list = vec![("all", Value::Int(n as i64))];
            list.extend((n < 3).then_some(("enough", Value::Bool(true))));
            list.extend((n < 2).then_some(("too few", Value::Bool(true))));
            list
        };
        let common = [(Place::Span, "all", OwnType::Int), (Place::Span, "enough", OwnType::Bool)];
        check(&[batch(0..300, |_| vec![], own)], &common);
        // Rows of all batches count together.
        check(&[batch(0..100, |_| vec![], own), batch(100..300, |_| vec![], own)], &common);
        check(&[batch(0..301, |_| vec![], own)], &common[..1]);
        check(&[], &[]);
        check(&[batch(0..5, |_| vec![], |_| vec![])], &[]);
    }

    #[test]
    fn a_column_has_the_commonest_type_of_its_key() {
        let own = |n: u64| {
            let mixed = if n.is_multiple_of(3) { Value::Text("x") } else { Value::Double(0.5) };
            vec![
                ("bytes", Value::Bytes(&[1])),
                ("list", Value::Json(r#"{"arrayValue":{}}"#)),
                ("mixed", mixed),
                ("text", Value::Text("")),
            ]
        };
        let expected = [(Place::Span, "mixed", OwnType::Double), (Place::Span, "text", OwnType::Text)];
        check(&[batch(0..30, |_| vec![], own)], &expected);
        // As common as each other: the first of the types.
        let even = |n: u64| vec![("mixed", if n.is_multiple_of(2) { Value::Int(1) } else { Value::Text("1") })];
        check(&[batch(0..30, |_| vec![], even)], &[(Place::Span, "mixed", OwnType::Text)]);
    }

    #[test]
    fn resources_count_by_the_spans_that_have_them() {
        // One span in two hundred has the second resource, which is one of two contexts.
        let resource = |n: u64| {
            let own = if n == 0 { "rare" } else { "host" };
            vec![(own, Value::Text("x"))]
        };
        let host = [(Place::Resource, "host", OwnType::Text)];
        check(&[batch(0..200, resource, |_| vec![])], &host);
        let rare = [(Place::Resource, "host", OwnType::Text), (Place::Resource, "rare", OwnType::Text)];
        check(&[batch(0..100, resource, |_| vec![])], &rare);
        // On spans and on resources it is two columns.
        let both = |_: u64| vec![("host", Value::Int(1))];
        let two = [(Place::Span, "host", OwnType::Int), (Place::Resource, "host", OwnType::Text)];
        check(&[batch(1..50, resource, both)], &two);
    }

    #[test]
    fn names_are_told_apart_in_any_case_and_ours_are_ours() {
        let own = |n: u64| {
            let mut list = vec![("__q_marks", Value::Int(1)), ("user", Value::Int(1))];
            list.extend(n.is_multiple_of(2).then_some(("User", Value::Int(1))));
            list
        };
        check(&[batch(0..10, |_| vec![], own)], &[(Place::Span, "user", OwnType::Int)]);
        let texts: Vec<String> = (0..OWN_MAX + 20).map(|n| format!("key{n:03}")).collect();
        let mut b = SpansBuilder::default();
        let context = b.context(&ContextFields::default());
        b.attributes(&mut texts.iter().map(|key| (key.as_str(), Value::Int(1))).collect());
        b.span(&SpanFields { context, name: "n", start: 1, end: 2, ..SpanFields::default() });
        let many = own_columns(std::iter::once(&b.finish()));
        assert_eq!(many.len(), OWN_MAX);
        assert!(many.iter().map(|own| &own.key).eq(&texts[..OWN_MAX]), "of equally common ones the first by name");
    }
}
