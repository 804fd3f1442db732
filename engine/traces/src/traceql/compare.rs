//! `compare`: how many spans have each value of each attribute, inside of a selection and outside of it.

use std::collections::BTreeMap;

use quiver_query::QueryReservation;
use quiver_types::spans::Value;

use super::ast::Comparison;
use super::evaluation::TraceView;
use super::fields::{Field, Intrinsic};
use super::memory::{LABEL_BYTES, reserve};
use super::series::{MetricExemplar, MetricSeries};
use super::step_values::{Cell, Groups, group_bytes};
use super::value::FieldValue;
use crate::common_values::{middle_of, stays};
use crate::engine::{Reader, TraceError};

/// Most values of an attribute that are counted at once. One of more than one span in 5,000 is not missed.
const VALUES_COUNTED: usize = 10_000;
/// Sides, and the names of their sums over all values.
const BASELINE: [&str; 2] = ["baseline", "baseline_total"];
const SELECTION: [&str; 2] = ["selection", "selection_total"];
/// What every span is compared by beside its attributes.
const INTRINSICS: [Intrinsic; 9] = [
    Intrinsic::ChildCount,
    Intrinsic::Name,
    Intrinsic::Kind,
    Intrinsic::Status,
    Intrinsic::StatusMessage,
    Intrinsic::RootName,
    Intrinsic::RootService,
    Intrinsic::ScopeName,
    Intrinsic::ScopeVersion,
];

/// The values of an attribute on one side.
#[derive(Debug, Default)]
struct ValueCounts {
    /// How many are counted.
    values: usize,
    /// Others were seen at most so often.
    floor: u64,
}

impl ValueCounts {
    /// Lets go the half that was seen least; gives what that took.
    fn halve(&mut self, groups: &mut Groups, side: &str, key: &str) -> usize {
        let labels = |key: &str| vec![FieldValue::text(side), FieldValue::text(key)];
        // Up to the next text.
        let all = labels(key)..labels(&format!("{key}\0"));
        let at_most = |cells: &BTreeMap<i64, Cell>| cells.values().map(|cell| cell.count + cell.before).sum::<u64>();
        let (floor, mut ties) = middle_of(groups.range(all.clone()).map(|(_, cells)| at_most(cells)).collect());
        self.floor = floor;
        let gone = groups.extract_if(all, |_, cells| !stays(at_most(cells), floor, &mut ties));
        let bytes = gone.map(|(labels, cells)| {
            self.values -= 1;
            group_bytes(&labels, cells.len())
        });
        bytes.sum()
    }
}

/// The values of attributes, by side.
#[derive(Debug, Default)]
pub(super) struct AttributeCounts(BTreeMap<(&'static str, String), ValueCounts>);

impl AttributeCounts {
    /// Makes room for one more value; says how many spans may have had it before, and what others took that made room.
    fn make_room(&mut self, groups: &mut Groups, side: &'static str, key: String) -> (u64, usize) {
        let counts = self.0.entry((side, key.clone())).or_default();
        let bytes = if counts.values < VALUES_COUNTED { 0 } else { counts.halve(groups, side, &key) };
        counts.values += 1;
        (counts.floor, bytes)
    }

    /// Counts a span of a trace in the cells of a step.
    pub(super) fn add(
        &mut self,
        reader: &Reader,
        comparison: &Comparison,
        (looked, i): (&TraceView<'_>, usize),
        (groups, at, weight): (&mut Groups, i64, f64),
    ) -> Result<(), TraceError> {
        let span = looked.span(i);
        let is_selected = comparison.has_time(span.start) && looked.holds(&comparison.selection, i);
        let [side, total] = if is_selected { SELECTION } else { BASELINE };
        for (key, value) in values(looked, i) {
            let labels = vec![FieldValue::text(total), FieldValue::text(key.as_str()), FieldValue::Nil];
            let cell = reader.cell(groups, labels, at)?;
            cell.note(span, weight);
            let labels = vec![FieldValue::text(side), FieldValue::text(key.as_str()), value];
            let mut before = 0;
            if !groups.contains_key(&labels) {
                let (floor, bytes) = self.make_room(groups, side, key);
                before = floor;
                if bytes > 0 {
                    reader.give_back(bytes);
                }
            }
            let cell = reader.cell(groups, labels, at)?;
            cell.before += before;
            cell.note(span, weight);
        }
        Ok(())
    }
}

/// Gives names and values of all that a span is compared by; each once. Links are none of it, as in Tempo
/// (`block_traceql_test.go`: `TestBackendBlockSelectAll`).
fn values(looked: &TraceView<'_>, i: usize) -> Vec<(String, FieldValue)> {
    let (span, mut out) = (looked.span(i), Vec::new());
    let mut add = |key: String, value: Value<'_>| out.push((key, FieldValue::of(value)));
    add("resource.service.name".to_owned(), Value::Text(span.service_shown()));
    span.context.resource.iter().for_each(|(key, value)| add(format!("resource.{key}"), value));
    span.context.scope_attributes.iter().for_each(|(key, value)| add(format!("instrumentation.{key}"), value));
    span.attributes.iter().for_each(|(key, value)| add(format!("span.{key}"), value));
    for event in &span.events {
        add("event:name".to_owned(), Value::Text(&event.name));
        event.attributes.iter().for_each(|(key, value)| add(format!("event.{key}"), value));
    }
    for field in INTRINSICS.map(Field::Intrinsic) {
        out.extend(looked.field_value(&field, i).map(|value| (field.to_string(), value)));
    }
    out.sort_unstable();
    out.dedup();
    out
}

/// Values of an attribute with what was counted of each.
type CellsByValue<'c> = Vec<(&'c FieldValue, &'c BTreeMap<i64, Cell>)>;

/// Makes series of what was counted: of each attribute and side the commonest values, and the sum of all.
pub(super) fn series(
    comparison: &Comparison,
    groups: &Groups,
    memory: &QueryReservation,
) -> Result<Vec<MetricSeries>, TraceError> {
    let mut attributes: BTreeMap<(&str, &str), CellsByValue<'_>> = BTreeMap::new();
    for (labels, cells) in groups {
        if let [FieldValue::Text(side), FieldValue::Text(key), value] = labels.as_slice() {
            attributes.entry((key.as_str(), side.as_str())).or_default().push((value, cells));
        }
    }
    let mut out: Vec<MetricSeries> = Vec::new();
    let mut cut: Option<&str> = None;
    for ((key, side), mut values) in attributes {
        let weight = |cells: &BTreeMap<i64, Cell>| cells.values().map(|cell| cell.weight).sum::<f64>();
        values.sort_by(|a, b| weight(b.1).total_cmp(&weight(a.1)).then_with(|| a.0.cmp(b.0)));
        if values.len() > comparison.values && cut != Some(key) {
            cut = Some(key);
            let error = FieldValue::text("__too_many_values__");
            let labels = vec![("__meta_error".to_owned(), error), (key.to_owned(), FieldValue::Nil)];
            out.push(MetricSeries { labels, ..MetricSeries::default() });
        }
        for (value, cells) in values.into_iter().take(comparison.values) {
            reserve(memory, 2 * LABEL_BYTES + key.len() + value.held_bytes(), cells.len(), cells.len())?;
            let labels = vec![("__meta_type".to_owned(), FieldValue::text(side)), (key.to_owned(), value.clone())];
            let points = cells.iter().map(|(at, cell)| (*at, cell.weight)).collect();
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use quiver_types::spans::{Attributes, Event, Link, SpanContext};

    use super::super::ast::Expr;
    use super::*;
    use crate::assemble::assemble;
    use crate::assemble::tests::span;
    use crate::testing::memory;

    /// Cells of so many spans by side, attribute, value and start of the step.
    fn groups(counts: &[(&str, &str, &str, i64, u8)]) -> Groups {
        let mut groups = Groups::new();
        for &(side, key, value, at, count) in counts {
            let value = if value == "nil" { FieldValue::Nil } else { FieldValue::text(value) };
            let labels = vec![FieldValue::text(side), FieldValue::text(key), value];
            let cell = groups.entry(labels).or_default().entry(at).or_default();
            for n in 0..count {
                cell.note(&span(1, 0, "s", 2, at + i64::from(n), at + 900), 1.0);
            }
        }
        groups
    }

    /// Series as texts: labels but for their types, then times and counts.
    fn shown(counts: &[(&str, &str, &str, i64, u8)], values: usize, memory: &QueryReservation) -> Vec<String> {
        let comparison = Comparison { selection: Expr::True, window: None, values };
        let one = |one: &MetricSeries| {
            let labels = one.labels.iter().map(|(name, value)| format!("{name}={}", value.as_text().unwrap_or("nil")));
            labels.chain(one.points.iter().map(|(at, count)| format!("{at}:{count}"))).collect::<Vec<_>>().join(" ")
        };
        series(&comparison, &groups(counts), memory).expect("series").iter().map(one).collect()
    }

    /// Breaks if only the values that come first are counted.
    #[test]
    fn a_common_value_is_found_whenever_it_comes() {
        let (mut groups, mut counts, mut bytes) = (Groups::new(), AttributeCounts::default(), 0);
        let one = span(1, 0, "s", 2, 0, 9);
        let labels = |value: String| ["selection", "span.a", &value].map(FieldValue::text).to_vec();
        let other = ["selection", "span.a2", "x"].map(FieldValue::text).to_vec();
        groups.entry(other.clone()).or_default().entry(0).or_default().note(&one, 1.0);
        let mut note = |value: String| {
            let labels = labels(value);
            let mut before = 0;
            if !groups.contains_key(&labels) {
                let room = counts.make_room(&mut groups, "selection", "span.a".to_owned());
                before = room.0;
                bytes += room.1;
            }
            let cell = groups.entry(labels).or_default().entry(0).or_default();
            cell.before += before;
            cell.note(&one, 1.0);
        };
        for n in 0..3 * VALUES_COUNTED {
            note(n.to_string());
            if n > 2 * VALUES_COUNTED && n % 100 == 0 {
                note("common".to_owned());
            }
        }
        assert_eq!(counts.0[&("selection", "span.a".to_owned())].values, groups.len() - 1);
        assert!(groups.len() <= VALUES_COUNTED + 1 && bytes > VALUES_COUNTED * size_of::<Cell>());
        assert_eq!(groups[&other][&0].count, 1, "another attribute");
        let found = groups[&labels("common".to_owned())][&0].count;
        assert!(found >= VALUES_COUNTED as u64 / 100 - 2, "{found}");
        assert!(groups.values().filter(|cells| cells[&0].count > 1).count() == 1);
    }

    /// Breaks if other values are given than the commonest, or nothing says that some are left out.
    #[test]
    fn the_commonest_values_of_each_side_are_given() {
        let memory = memory(4 << 20);
        let counts = [
            ("baseline", "span.a", "x", 0, 3),
            ("baseline", "span.a", "y", 0, 1),
            ("baseline", "span.a", "y", 60, 4),
            ("baseline", "span.a", "z", 0, 1),
            ("baseline", "span.a", "w", 0, 3),
            ("baseline_total", "span.a", "nil", 0, 8),
            ("baseline_total", "span.a", "nil", 60, 4),
            ("selection", "span.a", "x", 0, 1),
        ];
        let (baseline, selection) = ("__meta_type=baseline span.a=", "__meta_type=selection span.a=");
        let total = "__meta_type=baseline_total span.a=nil 0:8 60:4".to_owned();
        assert_eq!(
            shown(&counts, 2, &memory),
            [
                "__meta_error=__too_many_values__ span.a=nil".to_owned(),
                format!("{baseline}y 0:1 60:4"),
                // Of equal ones the first in order.
                format!("{baseline}w 0:3"),
                total.clone(),
                format!("{selection}x 0:1"),
            ]
        );
        assert_eq!(
            shown(&counts, 4, &memory),
            [
                format!("{baseline}y 0:1 60:4"),
                format!("{baseline}w 0:3"),
                format!("{baseline}x 0:3"),
                format!("{baseline}z 0:1"),
                total,
                format!("{selection}x 0:1"),
            ]
        );
        assert_eq!(shown(&[], 1, &memory), [""; 0]);
    }

    /// Both sides of one attribute may have too many values; that is said once, and of each attribute.
    #[test]
    fn that_values_are_left_out_is_said_once() {
        let sides = ["baseline", "selection"];
        let counts: Vec<(&str, &str, &str, i64, u8)> = sides
            .iter()
            .flat_map(|side| ["span.a", "span.b", "span.c"].map(|key| (*side, key)))
            .flat_map(|(side, key)| ["x", "y"].map(|value| (side, key, value, 0, 1)))
            .filter(|one| one.1 != "span.c" || one.2 == "x")
            .collect();
        let found = shown(&counts, 1, &memory(4 << 20));
        let said: Vec<&String> = found.iter().filter(|one| one.starts_with("__meta_error")).collect();
        let of = |key: &str| format!("__meta_error=__too_many_values__ {key}=nil");
        assert_eq!(said, [&of("span.a"), &of("span.b")]);
        assert_eq!(found.len(), 2 + 6);
    }

    #[test]
    fn sums_have_the_first_span_of_each_step() {
        let groups = groups(&[
            ("selection", "name", "x", 0, 2),
            ("selection_total", "name", "nil", 0, 2),
            ("selection_total", "name", "nil", 60, 1),
        ]);
        let comparison = Comparison { selection: Expr::True, window: None, values: 10 };
        let found = series(&comparison, &groups, &memory(4 << 20)).expect("series");
        let at = |start: i64| MetricExemplar { trace: [1; 16], start, at: start, value: None };
        assert_eq!(found.iter().map(|one| one.exemplars.clone()).collect::<Vec<_>>(), [vec![], vec![at(0), at(60)]]);
        let long = "x".repeat(2 << 20);
        let groups = self::groups(&[("selection", "name", &long, 0, 1)]);
        assert!(series(&comparison, &groups, &memory(1 << 20)).is_err(), "there is no memory for them");
    }

    /// As in Tempo (`engine_metrics_compare.go`: `isSelection`).
    #[test]
    fn a_selection_holds_the_end_of_its_window() {
        let times = |window: Option<(i64, i64)>| {
            let comparison = Comparison { selection: Expr::True, window, values: 1 };
            [4, 5, 6, 9, 10].map(|time| comparison.has_time(time))
        };
        assert_eq!(times(Some((5, 9))), [false, false, true, true, false]);
        assert_eq!(times(None), [true; 5]);
    }

    /// Breaks if a value is counted twice for its span, or what all spans have is left out.
    #[test]
    fn a_span_is_compared_by_all_that_it_has() {
        let mut one = span(1, 0, "", 3, 100, 200);
        one.context = Arc::new(SpanContext {
            service: "web".to_owned(),
            resource: Attributes::of([("host", Value::Text("h1"))]),
            scope_name: "http".to_owned(),
            scope_version: String::new(),
            scope_attributes: Attributes::of([("safe", Value::Bool(true))]),
        });
        one.attributes = Attributes::of([("n", Value::Int(7))]);
        let event = |kind: &str| {
            let attributes = Attributes::of([("type", Value::Text(kind))]);
            Event { time: 150, name: "exception".to_owned(), dropped: 0, attributes }
        };
        one.events = vec![event("A"), event("B"), event("A")];
        one.links = vec![Link {
            trace_id: [2; 16],
            span_id: [3; 8],
            trace_state: String::new(),
            flags: 0,
            dropped: 0,
            attributes: Attributes::of([("why", Value::Text("retry"))]),
        }];
        let trace = assemble([1; 16], vec![one]);
        let found = values(&TraceView::at(&trace), 0);
        let of = |name: &str, text: &str| (name.to_owned(), FieldValue::text(text));
        assert_eq!(
            found,
            [
                of("event.type", "A"),
                of("event.type", "B"),
                of("event:name", "exception"),
                ("instrumentation.safe".to_owned(), FieldValue::Bool(true)),
                of("instrumentation:name", "http"),
                of("instrumentation:version", ""),
                of("kind", "client"),
                of("name", "op1"),
                of("resource.host", "h1"),
                of("resource.service.name", "web"),
                of("rootName", "op1"),
                of("rootServiceName", "web"),
                ("span.n".to_owned(), FieldValue::Int(7)),
                ("span:childCount".to_owned(), FieldValue::Int(0)),
                of("status", "unset"),
                of("statusMessage", ""),
            ]
        );
    }
}
