//! Business transactions at ingest: spans that begin one get `bt.id`, `bt.name` and `bt.rule` (`config-api` 3.1, 6).

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryBuilder, RecordBatch};
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type};
use quiver_types::SpansBatch;
use quiver_types::condition::{FieldName, Fields};
use quiver_types::detection::{BT_ID, BT_NAME, BT_RULE, Candidate, Detected, Detector};
use quiver_types::spans::{Attributes, Value, kind_name};

/// Kinds of spans that take a call in: server, consumer.
const TAKES: [u8; 2] = [2, 5];
/// OTLP's flags of a span: the sender says whether the parent is remote, and it is.
const REMOTE_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;
/// Words of a status, by number.
const STATUS: [&str; 3] = ["unset", "ok", "error"];

/// A span as conditions look at it.
#[derive(Debug, Clone, Copy)]
pub struct SpanRow<'a> {
    /// Its service; empty: none.
    pub service: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its kind.
    pub kind: u8,
    /// Its status.
    pub status: u8,
    /// How long it took, in nanoseconds.
    pub duration_ns: i64,
    /// Bytes of its attributes.
    pub attributes: &'a [u8],
    /// Bytes of the attributes of its resource.
    pub resource: &'a [u8],
}

fn find<'a>(bytes: &'a [u8], key: &str) -> Option<Cow<'a, str>> {
    Attributes::raw(bytes).find(|a| a.key == key.as_bytes())?.value().map(Value::text)
}

impl Fields for SpanRow<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let text = |text: &'static str| (!text.is_empty()).then_some(Cow::Borrowed(text));
        match name {
            FieldName::Intrinsic("span.name") => Some(Cow::Borrowed(self.name)),
            FieldName::Intrinsic("span.kind") => text(kind_name(self.kind)),
            FieldName::Intrinsic("span.status") => text(STATUS.get(usize::from(self.status)).copied().unwrap_or("")),
            FieldName::Intrinsic("span.durationMs") => Some(Cow::Owned((self.duration_ns as f64 / 1e6).to_string())),
            FieldName::Intrinsic("service.name") => (!self.service.is_empty()).then_some(Cow::Borrowed(self.service)),
            FieldName::Intrinsic(other) => find(self.attributes, other),
            FieldName::Resource(key) if key == "service.name" => self.get(&FieldName::Intrinsic("service.name")),
            FieldName::Resource(key) => find(self.resource, key),
            FieldName::Attribute(key) => find(self.attributes, key),
            FieldName::Bare(key) => find(self.attributes, key).or_else(|| find(self.resource, key)),
        }
    }
}

/// Says whether a span is the entry to its service: a root, or a server's or consumer's span whose parent is not known to
/// be of the same process.
pub fn is_entry(has_parent: bool, kind: u8, flags: u32) -> bool {
    let remote = flags & REMOTE_KNOWN == 0 || flags & REMOTE != 0;
    !has_parent || TAKES.contains(&kind) && remote
}

/// Puts the transaction that it begins on each span that begins one.
pub fn detect(batch: &mut SpansBatch, detector: &Detector) {
    if detector.is_empty() || batch.is_empty() {
        return;
    }
    let found = found(batch, detector);
    if found.iter().all(Option::is_none) {
        return;
    }
    let (place, field) = batch.spans.schema_ref().column_with_name("attributes").expect("a column of all spans");
    debug_assert_eq!(field.data_type(), &arrow::datatypes::DataType::Binary);
    let old = batch.spans.column(place).as_binary::<i32>();
    let mut new = BinaryBuilder::with_capacity(old.len(), old.value_data().len() + found.len() * 64);
    for (row, detected) in found.iter().enumerate() {
        match detected {
            None => new.append_value(old.value(row)),
            Some(detected) => {
                let own = [
                    (BT_ID, Value::Text(&detected.id)),
                    (BT_NAME, Value::Text(&detected.name)),
                    (BT_RULE, Value::Text(&detected.rule)),
                ];
                let united = Attributes::of(Attributes::read(old.value(row)).chain(own));
                new.append_value(united.bytes());
            }
        }
    }
    let mut columns = batch.spans.columns().to_vec();
    columns[place] = Arc::new(new.finish());
    batch.spans = RecordBatch::try_new(batch.spans.schema(), columns).expect("the same columns, one with other values");
}

fn found(batch: &SpansBatch, detector: &Detector) -> Vec<Option<Detected>> {
    let (spans, contexts) = (&batch.spans, &batch.contexts);
    let numbers = |name: &str| spans[name].as_primitive::<UInt32Type>().values();
    let small = |name: &str| spans[name].as_primitive::<UInt8Type>().values();
    let times = |name: &str| spans[name].as_primitive::<Int64Type>().values();
    let (context, flags, kinds, statuses) = (numbers("context"), numbers("flags"), small("kind"), small("status"));
    let (starts, ends) = (times("start"), times("end"));
    let (names, attributes) = (spans["name"].as_string::<i32>(), spans["attributes"].as_binary::<i32>());
    let parents = spans["parent_span_id"].as_fixed_size_binary();
    let (services, resources) = (contexts["service"].as_string::<i32>(), contexts["resource"].as_binary::<i32>());
    let each = (0..batch.len()).map(|row| {
        let of = context[row] as usize;
        let fields = SpanRow {
            service: services.value(of),
            name: names.value(row),
            kind: kinds[row],
            status: statuses[row],
            duration_ns: ends[row].saturating_sub(starts[row]),
            attributes: attributes.value(row),
            resource: resources.value(of),
        };
        let has_parent = parents.value(row).iter().any(|b| *b != 0);
        let is_entry = is_entry(has_parent, kinds[row], flags[row]);
        detector.detect(&Candidate { service: fields.service, is_entry, fields: &fields })
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use quiver_types::detection::DetectionRule;
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder};
    use serde_json::json;

    use super::*;

    #[test]
    fn entries() {
        for (has_parent, kind, flags, expected) in [
            (false, 3, 0, true),
            (true, 3, 0, false),
            (true, 2, 0, true),
            (true, 5, REMOTE_KNOWN | REMOTE, true),
            (true, 2, REMOTE_KNOWN, false),
        ] {
            assert_eq!(is_entry(has_parent, kind, flags), expected, "{has_parent} {kind} {flags}");
        }
    }

    #[test]
    fn fields_of_spans() {
        let attributes = Attributes::of([("http.route", Value::Text("/a")), ("n", Value::Int(7))]);
        let resource = Attributes::of([("pod", Value::Text("p"))]);
        let row = SpanRow {
            service: "cart",
            name: "GET",
            kind: 2,
            status: 2,
            duration_ns: 1_500_000,
            attributes: attributes.bytes(),
            resource: resource.bytes(),
        };
        for (name, expected) in [
            ("span.name", Some("GET")),
            ("span.kind", Some("server")),
            ("span.status", Some("error")),
            ("span.durationMs", Some("1.5")),
            ("service.name", Some("cart")),
            ("resource.service.name", Some("cart")),
            ("http.route", Some("/a")),
            ("attributes.n", Some("7")),
            ("resource.pod", Some("p")),
            ("pod", Some("p")),
            ("attributes.pod", None),
            ("_msg", None),
        ] {
            assert_eq!(row.get(&FieldName::parse(name)).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn spans_are_marked() {
        let mut builder = SpansBuilder::default();
        let context = builder.context(&ContextFields { service: "cart", ..ContextFields::default() });
        for (n, (route, parent)) in [("/cart/1", 0), ("/health", 0), ("/cart/2", 9)].iter().enumerate() {
            let fields = SpanFields {
                trace_id: [1; 16],
                span_id: [n as u8 + 1; 8],
                parent: [*parent; 8],
                context,
                name: "GET",
                kind: 3,
                start: 1,
                end: 2,
                ..SpanFields::default()
            };
            builder.attributes(&mut vec![("http.route", Value::Text(route)), ("zz", Value::Int(1))]);
            builder.span(&fields);
        }
        let mut batch = builder.finish();
        let body = json!({"name": "cart", "service": "*", "nameTemplate": "{http.route}",
            "condition": {"field": "http.route", "op": "startsWith", "value": "/cart"}});
        let rule = DetectionRule::of_json("r1", body.as_object().unwrap(), "service").unwrap();
        detect(&mut batch, &Detector::new(vec![rule], HashSet::new()));
        assert!(batch.is_sound());
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        let of = |row: usize, key: &str| find(attributes.value(row), key).map(Cow::into_owned);
        assert_eq!(of(0, BT_NAME).as_deref(), Some("/cart/1"));
        assert_eq!((of(0, BT_RULE).as_deref(), of(0, "zz").as_deref()), (Some("r1"), Some("1")));
        assert_eq!(of(0, BT_ID), Some(quiver_types::detection::transaction_id("cart", "/cart/1")));
        assert_eq!((of(1, BT_NAME), of(2, BT_NAME)), (None, None), "no match, and no entry");
    }
}
