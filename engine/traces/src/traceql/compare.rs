//! `compare`: how many spans have each value of each attribute, inside of a selection and outside of it.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use quiver_query::Collected;
use quiver_types::spans::Value;
use serde_json::json;

use super::eval::{Looked, any_json};
use super::memory::{LABEL_BYTES, reserve};
use super::metrics::{Cell, Groups, MetricExemplar, MetricSeries};
use super::{Comparison, Field, Intrinsic};
use crate::engine::{Reader, TraceError};

/// Most values of an attribute that are counted.
const VALUES_COUNTED: usize = 10_000;
/// Sides, and the names of their sums over all values.
const BASELINE: [&str; 2] = ["baseline", "baseline_total"];
const SELECTION: [&str; 2] = ["selection", "selection_total"];
/// What every span is compared by beside its attributes.
const INTRINSICS: [Intrinsic; 8] = [
    Intrinsic::Name,
    Intrinsic::Kind,
    Intrinsic::Status,
    Intrinsic::StatusMessage,
    Intrinsic::RootName,
    Intrinsic::RootService,
    Intrinsic::ScopeName,
    Intrinsic::ScopeVersion,
];

/// How many values of attributes were seen, by side.
#[derive(Debug, Default)]
pub(super) struct Compared(BTreeMap<(&'static str, String), usize>);

impl Compared {
    /// Counts a span of a trace in the cells of a step.
    pub(super) fn add(
        &mut self,
        reader: &Reader,
        comparison: &Comparison,
        (looked, i): (&Looked<'_>, usize),
        (groups, at): (&mut Groups, i64),
    ) -> Result<(), TraceError> {
        let span = looked.span(i);
        let is_within = comparison.window.is_none_or(|(from, to)| (from..to).contains(&span.start));
        let is_selected = is_within && looked.holds(&comparison.selection, i);
        let [side, total] = if is_selected { SELECTION } else { BASELINE };
        let nothing = any_json(Value::Text("nil")).to_string();
        for (key, value) in values(looked, i) {
            let labels = vec![total.to_owned(), key.clone(), nothing.clone()];
            let cell = reader.cell(groups, labels, at)?;
            cell.note(span);
            let labels = vec![side.to_owned(), key.clone(), value];
            if !groups.contains_key(&labels) {
                let seen = self.0.entry((side, key)).or_default();
                if *seen >= VALUES_COUNTED {
                    continue;
                }
                *seen += 1;
            }
            reader.cell(groups, labels, at)?.note(span);
        }
        Ok(())
    }
}

/// Gives names and values, in OTLP/JSON, of all that a span is compared by; each once.
fn values(looked: &Looked<'_>, i: usize) -> Vec<(String, String)> {
    let (span, mut out) = (looked.span(i), Vec::new());
    let mut add = |key: String, value: Value<'_>| out.push((key, any_json(value).to_string()));
    add("resource.service.name".to_owned(), Value::Text(span.service_shown()));
    span.context.resource.iter().for_each(|(key, value)| add(format!("resource.{key}"), value));
    span.context.scope_attributes.iter().for_each(|(key, value)| add(format!("instrumentation.{key}"), value));
    span.attributes.iter().for_each(|(key, value)| add(format!("span.{key}"), value));
    for event in &span.events {
        add("event:name".to_owned(), Value::Text(&event.name));
        event.attributes.iter().for_each(|(key, value)| add(format!("event.{key}"), value));
    }
    for field in INTRINSICS.map(Field::Intrinsic) {
        out.extend(looked.json(&field, i).map(|value| (field.to_string(), value.to_string())));
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// Makes series of what was counted: of each attribute and side the commonest values, and the sum of all.
pub(super) fn series(
    comparison: &Comparison,
    groups: &Groups,
    memory: &Collected,
) -> Result<Vec<MetricSeries>, TraceError> {
    let mut attributes: BTreeMap<(&str, &str), Vec<(&str, &BTreeMap<i64, Cell>)>> = BTreeMap::new();
    for (labels, cells) in groups {
        if let [side, key, value] = labels.as_slice() {
            attributes.entry((key.as_str(), side.as_str())).or_default().push((value.as_str(), cells));
        }
    }
    let text = |text: &str| json!({"stringValue": text});
    let mut out: Vec<MetricSeries> = Vec::new();
    let mut cut: Option<&str> = None;
    for ((key, side), mut values) in attributes {
        values.sort_by_key(|(value, cells)| (Reverse(cells.values().map(|cell| cell.count).sum::<u64>()), *value));
        if values.len() > comparison.values && cut != Some(key) {
            cut = Some(key);
            let labels = vec![("__meta_error".to_owned(), text("__too_many_values__")), (key.to_owned(), text("nil"))];
            out.push(MetricSeries { labels, ..MetricSeries::default() });
        }
        for (value, cells) in values.into_iter().take(comparison.values) {
            reserve(memory, 2 * LABEL_BYTES + key.len() + value.len(), cells.len(), cells.len())?;
            let value = serde_json::from_str(value).unwrap_or_default();
            let labels = vec![("__meta_type".to_owned(), text(side)), (key.to_owned(), value)];
            let points = cells.iter().map(|(at, cell)| (*at, cell.count as f64)).collect();
            let exemplar = |(at, cell): (&i64, &Cell)| {
                let (trace, start, _) = cell.first?;
                Some(MetricExemplar { trace, start, at: *at, value: None })
            };
            // Once is enough for all values.
            let exemplars =
                if side.ends_with("_total") { cells.iter().filter_map(exemplar).collect() } else { Vec::new() };
            out.push(MetricSeries { labels, points, exemplars });
        }
    }
    Ok(out)
}
