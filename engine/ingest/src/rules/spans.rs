//! Data-extraction rules of spans: what they set are attributes of the span, of the type that the rule gives.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BinaryBuilder, RecordBatch};
use quiver_types::SpansBatch;
use quiver_types::condition::{FieldName, Fields};
use quiver_types::extraction::Record;
use quiver_types::spans::{Attributes, SpanRow, Value};

use super::{ExtractionRules, Running};
use crate::detect::each_row;

/// A span with what rules set.
struct SpanRecord<'a> {
    row: &'a SpanRow<'a>,
    /// Whether it is read as what happened in a browser.
    set: Vec<(String, serde_json::Value)>,
}

/// The attribute that a name means.
fn key_of(name: &FieldName) -> Option<&str> {
    match name {
        FieldName::Attribute(key) | FieldName::Bare(key) => Some(key),
        FieldName::Intrinsic(_) | FieldName::Resource(_) => None,
    }
}

impl Fields for SpanRecord<'_> {
    fn get(&self, name: &FieldName) -> Option<Cow<'_, str>> {
        let own = key_of(name).and_then(|key| self.set.iter().find(|(known, _)| known == key));
        match own {
            Some((_, serde_json::Value::Null)) => None,
            Some((_, serde_json::Value::String(text))) => Some(Cow::Borrowed(text)),
            Some((_, other)) => Some(Cow::Owned(other.to_string())),
            None => self.row.get(name),
        }
    }
}

impl Record for SpanRecord<'_> {
    fn set(&mut self, field: &str, value: &serde_json::Value) {
        let key = field.strip_prefix("attributes.").unwrap_or(field);
        match self.set.iter_mut().find(|(known, _)| known == key) {
            Some((_, old)) => *old = value.clone(),
            None => self.set.push((key.to_owned(), value.clone())),
        }
    }
}

fn value_of(value: &serde_json::Value) -> Option<Value<'_>> {
    match value {
        serde_json::Value::String(text) => Some(Value::Text(text)),
        serde_json::Value::Bool(truth) => Some(Value::Bool(*truth)),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(whole) => Some(Value::Int(whole)),
            None => number.as_f64().map(Value::Double),
        },
        _ => None,
    }
}

impl ExtractionRules {
    /// Applies the rules to spans: to those of browsers only, or to all. Gives what [`Self::over_budget`] does.
    pub fn apply_to_spans(&self, batch: &mut SpansBatch, of_browsers: bool, now_ms: i64) -> Vec<String> {
        if self.is_empty() || batch.is_empty() {
            return Vec::new();
        }
        let services = batch.contexts["service"].as_string::<i32>();
        let wanted: Vec<Vec<&Running>> = services.iter().map(|s| self.wanted(s.unwrap_or_default())).collect();
        if wanted.iter().all(Vec::is_empty) {
            return Vec::new();
        }
        let mut found: Vec<Vec<(String, serde_json::Value)>> = Vec::with_capacity(batch.len());
        each_row(batch, |row, context| {
            let mut record = SpanRecord { row, set: Vec::new() };
            if !of_browsers || is_of_browser(row) {
                super::run(&wanted[context], &mut record);
            }
            found.push(record.set);
        });
        if found.iter().any(|set| !set.is_empty()) {
            write(batch, &found);
        }
        self.over_budget(now_ms)
    }
}

fn is_of_browser(row: &SpanRow<'_>) -> bool {
    let language = row.get(&FieldName::Resource("telemetry.sdk.language".to_owned()));
    language.is_some_and(|language| language == "webjs")
}

fn write(batch: &mut SpansBatch, found: &[Vec<(String, serde_json::Value)>]) {
    let (place, _) = batch.spans.schema_ref().column_with_name("attributes").expect("a column of all spans");
    let old = batch.spans.column(place).as_binary::<i32>();
    let mut new = BinaryBuilder::with_capacity(old.len(), old.value_data().len() + found.len() * 32);
    for (row, set) in found.iter().enumerate() {
        if set.is_empty() {
            new.append_value(old.value(row));
            continue;
        }
        let others = Attributes::read(old.value(row)).filter(|(key, _)| set.iter().all(|(known, _)| known != key));
        let own = set.iter().filter_map(|(key, value)| Some((key.as_str(), value_of(value)?)));
        new.append_value(Attributes::of(others.chain(own)).bytes());
    }
    let mut columns = batch.spans.columns().to_vec();
    columns[place] = Arc::new(new.finish());
    batch.spans = RecordBatch::try_new(batch.spans.schema(), columns).expect("the same columns, one with other values");
}

#[cfg(test)]
mod tests {
    use quiver_types::extraction::ExtractionRule;
    use quiver_types::spans::{ContextFields, SpanFields, SpansBuilder, find_text};
    use serde_json::json;

    use super::*;

    fn spans() -> SpansBatch {
        let mut builder = SpansBuilder::default();
        let mut resource = vec![("telemetry.sdk.language", Value::Text("webjs"))];
        resource.sort_unstable_by_key(|(key, _)| *key);
        let resource = Attributes::of(resource);
        let cart = builder.context(&ContextFields { service: "cart", ..ContextFields::default() });
        let fields = ContextFields { service: "web", resource: resource.bytes(), ..ContextFields::default() };
        let web = builder.context(&fields);
        for (n, context) in [cart, web, cart].into_iter().enumerate() {
            builder.attributes(&mut vec![("url.path", Value::Text("/orders/17"))]);
            let fields = SpanFields {
                trace_id: [1; 16],
                span_id: [n as u8 + 1; 8],
                context,
                name: "GET",
                start: 1,
                end: 2,
                ..SpanFields::default()
            };
            builder.span(&fields);
        }
        builder.finish()
    }

    #[test]
    fn attributes_are_added_with_their_types() {
        let body = json!({"signal": "spans", "service": "cart", "source": "url.path", "method": "regex",
            "expression": "/orders/(?P<id>[0-9]+)", "targets": [{"field": "order.id", "from": "id", "type": "int"}]});
        let rule = ExtractionRule::of_json("r", body.as_object().unwrap()).unwrap();
        let rules = ExtractionRules::new(vec![(rule, 1)], &ExtractionRules::default());
        let mut batch = spans();
        assert!(rules.apply_to_spans(&mut batch, false, 1).is_empty());
        assert!(batch.is_sound());
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        assert_eq!(
            Attributes::read(attributes.value(0)).find(|(k, _)| *k == "order.id").map(|(_, v)| v),
            Some(Value::Int(17))
        );
        assert_eq!(find_text(attributes.value(1), "order.id"), None, "another service");
        assert_eq!(find_text(attributes.value(2), "url.path").as_deref(), Some("/orders/17"));
        assert_eq!(rules.figures("r").seen, 2);
    }

    #[test]
    fn those_of_browsers_alone() {
        let body = json!({"signal": "rum", "method": "constant", "expression": "x", "targets": [{"field": "y"}]});
        let rule = ExtractionRule::of_json("r", body.as_object().unwrap()).unwrap();
        let rules = ExtractionRules::new(vec![(rule, 1)], &ExtractionRules::default());
        let mut batch = spans();
        rules.apply_to_spans(&mut batch, true, 1);
        let attributes = batch.spans["attributes"].as_binary::<i32>();
        let found: Vec<bool> = (0..3).map(|row| find_text(attributes.value(row), "y").is_some()).collect();
        assert_eq!(found, [false, true, false]);
    }
}
