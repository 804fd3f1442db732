//! Detects business transactions at ingest: spans that begin one get `bt.id`, `bt.name` and `bt.rule` (`config-api`
//! 3.1, 6).

use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryBuilder, RecordBatch};
use arrow::datatypes::{Int64Type, UInt8Type, UInt32Type};
use quiver_types::SpansBatch;
use quiver_types::condition::glob_of_services;
use quiver_types::detection::{
    BT_ID, BT_KIND, BT_NAME, BT_RULE, BatchDetector, Candidate, DetectedTransaction, Detector, PageRow,
};
use quiver_types::spans::{SpanRow, Value, find_text as find, is_entry, push_replaced};

/// Puts the transaction that it begins on each span that begins one; of what happens in browsers the rules of pages decide
/// first.
pub fn detect(batch: &mut SpansBatch, detector: &Detector, pages: &Detector) {
    if detector.is_empty() && pages.is_empty() || batch.is_empty() {
        return;
    }
    let mut found = Vec::with_capacity(batch.len());
    let (mut of_services, mut of_pages) = (BatchDetector::new(detector), BatchDetector::new(pages));
    each(batch, |_, span, _| {
        let page = if pages.is_empty() { None } else { page_of(span) };
        let decided = match page.and_then(|page| of_pages.decide(&page.candidate(span.service))) {
            Some((_, of_page)) => of_page,
            None => of_services.decide(&span.candidate).and_then(|(_, found)| found),
        };
        found.push(decided.map_or(Mark::Keep, |found| Mark::To(Some(found))));
    });
    if found.iter().all(Mark::is_kept) {
        return;
    }
    mark(batch, &found);
}

/// What becomes of what a span belongs to.
#[derive(Debug)]
enum Mark {
    /// As it was.
    Keep,
    /// To this from now on, or to nothing.
    To(Option<DetectedTransaction>),
}

impl Mark {
    fn is_kept(&self) -> bool {
        matches!(self, Self::Keep)
    }
}

/// Writes what spans belong to from now on.
fn mark(batch: &mut SpansBatch, found: &[Mark]) {
    let (place, field) = batch.spans.schema_ref().column_with_name("attributes").expect("a column of all spans");
    debug_assert_eq!(field.data_type(), &arrow::datatypes::DataType::Binary);
    let old = batch.spans.column(place).as_binary::<i32>();
    let mut new = BinaryBuilder::with_capacity(old.len(), old.value_data().len() + found.len() * 64);
    let mut united = Vec::new();
    for (row, detected) in found.iter().enumerate() {
        match detected {
            Mark::Keep => new.append_value(old.value(row)),
            Mark::To(detected) => {
                let found = detected.as_ref();
                // In order of their keys.
                let own = [
                    (BT_ID, found.map(|found| Value::Text(&found.id))),
                    (BT_KIND, found.map(|found| Value::Text(&found.kind)).filter(|kind| *kind != Value::Text(""))),
                    (BT_NAME, found.map(|found| Value::Text(&found.name))),
                    (BT_RULE, found.map(|found| Value::Text(&found.rule))),
                ];
                united.clear();
                push_replaced(old.value(row), &own, &mut united);
                new.append_value(&united);
            }
        }
    }
    let mut columns = batch.spans.columns().to_vec();
    columns[place] = Arc::new(new.finish());
    batch.spans = RecordBatch::try_new(batch.spans.schema(), columns).expect("the same columns, one with other values");
}

/// Which membership of stored spans is replaced.
#[derive(Debug, Clone, Default)]
pub struct Redetect {
    /// Membership by these rules only, and by whatever rules spans of them belong to now; none: by all.
    pub rules: Option<Vec<String>>,
    /// Services, as names or globs; none: all.
    pub services: Vec<String>,
    /// First start of a span, Unix nanoseconds, and the first after the last.
    pub range: (i64, i64),
    /// Whether it is about what happens in browsers, by the rules of pages.
    pub pages: bool,
}

impl Redetect {
    /// Says whether spans of a service are looked at.
    pub fn is_for(&self, service: &str) -> bool {
        self.services.is_empty() || self.services.iter().any(|pattern| glob_of_services(pattern, service))
    }

    fn is_of(&self, rule: &str) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.iter().any(|known| known == rule))
    }
}

/// Replaces what spans belong to by what the rules say now; gives how many were looked at, and how many changed.
pub fn redetect(batch: &mut SpansBatch, detector: &Detector, scope: &Redetect) -> (u64, u64) {
    let attributes = batch.spans["attributes"].as_binary::<i32>();
    let mut detecting = BatchDetector::new(detector);
    let mut scanned = 0;
    let mut changed: Vec<Mark> = Vec::with_capacity(batch.len());
    each(batch, |row, span, start| {
        if start < scope.range.0 || start >= scope.range.1 || !scope.is_for(span.service) {
            return changed.push(Mark::Keep);
        }
        let own = attributes.value(row);
        let old = [BT_ID, BT_NAME, BT_RULE].map(|key| find(own, key));
        let of_page = find(own, BT_KIND).is_some();
        let page = page_of(span).filter(|_| scope.pages);
        // What rules of the other kind said stays.
        if if scope.pages { page.is_none() } else { of_page } {
            return changed.push(Mark::Keep);
        }
        scanned += 1;
        let old_rule = if scope.pages && !of_page { "" } else { old[2].as_deref().unwrap_or_default() };
        let decided = match &page {
            Some(page) => detecting.decide(&page.candidate(span.service)),
            None => detecting.decide(&span.candidate),
        };
        if detecting.gave_up() || scope.pages && !of_page && decided.is_none() {
            return changed.push(Mark::Keep);
        }
        let ours = scope.is_of(old_rule) || decided.as_ref().is_some_and(|(rule, _)| scope.is_of(rule));
        let new = decided.and_then(|(_, found)| found);
        let same = match &new {
            None => old.iter().all(Option::is_none),
            Some(new) => {
                let [id, name, rule] = old.each_ref().map(Option::as_deref);
                (id, name, rule) == (Some(new.id.as_str()), Some(new.name.as_str()), Some(new.rule.as_str()))
            }
        };
        changed.push(if ours && !same { Mark::To(new) } else { Mark::Keep });
    });
    let count = changed.iter().filter(|mark| !mark.is_kept()).count() as u64;
    if count > 0 {
        mark(batch, &changed);
    }
    (scanned, count)
}

/// A span that is looked at.
struct SpanView<'a> {
    candidate: Candidate<'a>,
    service: &'a str,
    row: &'a SpanRow<'a>,
}

fn page_of<'a>(span: &'a SpanView<'_>) -> Option<PageRow<'a>> {
    PageRow::of(span.row)
}

/// Calls a function with each span and the number of its context.
pub(crate) fn each_row<'a>(batch: &'a SpansBatch, mut f: impl FnMut(SpanRow<'a>, usize)) {
    let (spans, contexts) = (&batch.spans, &batch.contexts);
    let small = |name: &str| spans[name].as_primitive::<UInt8Type>().values();
    let times = |name: &str| spans[name].as_primitive::<Int64Type>().values();
    let (kinds, statuses, starts, ends) = (small("kind"), small("status"), times("start"), times("end"));
    let (names, attributes) = (spans["name"].as_string::<i32>(), spans["attributes"].as_binary::<i32>());
    let (services, resources) = (contexts["service"].as_string::<i32>(), contexts["resource"].as_binary::<i32>());
    for (row, context) in spans["context"].as_primitive::<UInt32Type>().values().iter().enumerate() {
        let of = *context as usize;
        let fields = SpanRow {
            service: services.value(of),
            name: names.value(row),
            kind: kinds[row],
            status: statuses[row],
            duration_ns: ends[row].saturating_sub(starts[row]),
            attributes: attributes.value(row),
            resource: resources.value(of),
        };
        f(fields, of);
    }
}

/// Calls a function with each span and its start.
fn each(batch: &SpansBatch, mut f: impl FnMut(usize, &SpanView<'_>, i64)) {
    let spans = &batch.spans;
    let (flags, starts) = (spans["flags"].as_primitive::<UInt32Type>(), spans["start"].as_primitive::<Int64Type>());
    let parents = spans["parent_span_id"].as_fixed_size_binary();
    let mut row = 0;
    each_row(batch, |fields, _| {
        let has_parent = parents.value(row).iter().any(|b| *b != 0);
        let is_entry = is_entry(has_parent, fields.kind, flags.value(row));
        let candidate = Candidate { service: fields.service, kind: "", is_entry, fields: &fields };
        f(row, &SpanView { candidate, service: fields.service, row: &fields }, starts.value(row));
        row += 1;
    });
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::collections::HashSet;

    use quiver_types::detection::DetectionRule;
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder};
    use serde_json::json;

    use super::*;

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
        let detector = Detector::new(vec![rule], HashSet::new());
        detect(&mut batch, &detector, &Detector::default());
        assert!(batch.is_sound());
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        let of = |row: usize, key: &str| find(attributes.value(row), key).map(Cow::into_owned);
        assert_eq!(of(0, BT_NAME).as_deref(), Some("/cart/1"));
        assert_eq!((of(0, BT_RULE).as_deref(), of(0, "zz").as_deref()), (Some("r1"), Some("1")));
        assert_eq!(of(0, BT_ID), Some(quiver_types::detection::transaction_id("cart", "/cart/1")));
        assert_eq!((of(1, BT_NAME), of(2, BT_NAME)), (None, None), "no match, and no entry");
        let all = Redetect { range: (i64::MIN, i64::MAX), ..Redetect::default() };
        assert_eq!(redetect(&mut batch, &detector, &all), (3, 0), "nothing is new");
        let none = Detector::default();
        let other = Redetect { rules: Some(vec!["r2".to_owned()]), ..all.clone() };
        assert_eq!(redetect(&mut batch, &none, &other), (3, 0), "another rule's membership stays");
        assert_eq!(redetect(&mut batch, &none, &Redetect { services: vec!["x*".into()], ..all.clone() }), (0, 0));
        assert_eq!(redetect(&mut batch, &none, &Redetect { range: (2, 9), ..all.clone() }), (0, 0));
        assert_eq!(redetect(&mut batch, &none, &all), (3, 1));
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        assert_eq!((find(attributes.value(0), BT_ID), find(attributes.value(0), "zz").is_some()), (None, true));
        assert_eq!(redetect(&mut batch, &detector, &all), (3, 1), "and back");
    }
}
