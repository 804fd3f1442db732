//! What becomes of the spans of a trace that were found: fewer of them, groups, numbers that are compared.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::ast::{Aggregate, Scalar, Stage};
use super::evaluation::TraceView;
use super::expressions::Term;
use super::fields::Field;
use super::result::FoundSet;
use super::value::FieldValue;

/// Most attributes of a set: what its values are called is in memory once, the values are not.
const ATTRIBUTES_MAX: usize = 16;

impl Stage {
    /// Does it with each set; sets without spans go.
    pub(super) fn run(&self, looked: &TraceView<'_>, sets: Vec<FoundSet>) -> Vec<FoundSet> {
        match self {
            Self::Select(_) => sets,
            Self::Filter(expr) => {
                let kept = |mut set: FoundSet| {
                    set.spans.retain(|&i| looked.holds(expr, i));
                    (!set.spans.is_empty()).then_some(set)
                };
                sets.into_iter().filter_map(kept).collect()
            }
            Self::Within(spans) => {
                let kept = |mut set: FoundSet| {
                    let chosen = looked.chosen(spans, Some(&set.spans));
                    set.spans.retain(|&i| chosen[i]);
                    (!set.spans.is_empty()).then_some(set)
                };
                sets.into_iter().filter_map(kept).collect()
            }
            Self::Scalar(left, compare, right) => {
                let kept = |mut set: FoundSet| {
                    let mut seen = Vec::new();
                    let own = left.of(looked, &set.spans, &mut seen)?;
                    let other = right.of(looked, &set.spans, &mut seen)?;
                    if !compare.holds(own, other) {
                        return None;
                    }
                    for (name, value) in seen {
                        let is_new = set.attributes.iter().all(|(known, _)| *known != name);
                        if is_new && set.attributes.len() < ATTRIBUTES_MAX {
                            set.attributes.push((name, value));
                        }
                    }
                    Some(set)
                };
                sets.into_iter().filter_map(kept).collect()
            }
            Self::By(term, name) => {
                let value = |i: usize| looked.term_value(term, i).unwrap_or(FieldValue::Nil);
                sets.into_iter().flat_map(|set| grouped(&value, name, set)).collect()
            }
            Self::ByWhether(expr, name) => {
                let value = |i: usize| FieldValue::Bool(looked.holds(expr, i));
                sets.into_iter().flat_map(|set| grouped(&value, name, set)).collect()
            }
            Self::Coalesce => {
                let mut spans: Vec<usize> = sets.into_iter().flat_map(|set| set.spans).collect();
                spans.sort_unstable();
                spans.dedup();
                if spans.is_empty() { Vec::new() } else { vec![FoundSet { spans, attributes: Vec::new() }] }
            }
        }
    }
}

/// Makes a set of the spans of each value; those without one are a set, too.
fn grouped(value: &dyn Fn(usize) -> FieldValue, name: &Arc<str>, set: FoundSet) -> Vec<FoundSet> {
    let mut groups: BTreeMap<FieldValue, FoundSet> = BTreeMap::new();
    for i in set.spans {
        groups.entry(value(i)).or_default().spans.push(i);
    }
    let told = |(value, group): (FieldValue, FoundSet)| {
        let mut attributes = set.attributes.clone();
        attributes.push((Arc::clone(name), value));
        FoundSet { attributes, ..group }
    };
    groups.into_iter().map(told).collect()
}

impl Scalar {
    /// Works it out of some spans, and notes the aggregates that it is made of; none where one has no number.
    fn of(&self, looked: &TraceView<'_>, spans: &[usize], seen: &mut Vec<(Arc<str>, FieldValue)>) -> Option<f64> {
        match self {
            Self::Fixed(value) => value.number(),
            Self::Aggregate(function, term, name) => {
                let value = looked.aggregate(*function, term.as_ref(), spans)?;
                let shown = match term {
                    Some(Term::Field(Field::Intrinsic(intrinsic))) if intrinsic.is_duration() => {
                        FieldValue::Nanos(value as i64)
                    }
                    // What has a point keeps it, and an average has one.
                    Some(term) if *function == Aggregate::Avg || !looked.is_whole(term, spans) => {
                        FieldValue::Double(value)
                    }
                    _ => FieldValue::number(value),
                };
                seen.push((Arc::clone(name), shown));
                Some(value)
            }
            Self::Worked(left, sign, right) => {
                let (left, right) = (left.of(looked, spans, seen)?, right.of(looked, spans, seen)?);
                Some(sign.of(left, right)).filter(|value| value.is_finite())
            }
        }
    }

    pub(super) fn has_aggregate(&self) -> bool {
        match self {
            Self::Fixed(_) => false,
            Self::Aggregate(..) => true,
            Self::Worked(left, _, right) => left.has_aggregate() || right.has_aggregate(),
        }
    }
}

impl Aggregate {
    /// Its name in queries.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Avg => "avg",
            Self::Min => "min",
            Self::Max => "max",
            Self::Sum => "sum",
        }
    }
}
