//! Attribute values of spans: the most common per key, and those that a selection has more often than the rest.
//!
//! Counted in our own loop: in a plan, each attribute of each span (about twenty) would become a row with its texts
//! before it is grouped, while the loop reads it in place. The loop limits keys and values, accounts its memory to the
//! query, and checks for cancellation with each batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use foldhash::fast::FixedState;
use futures::future::BoxFuture;
use hashbrown::HashMap;
use quiver_query::QueryContext;
use quiver_types::spans::{Place, STATUS_ERROR, SpanFilter, kind_name};

use crate::columns::{Columns, columns, each_attribute, place_columns};
use crate::engine::{Reader, TraceError, TracesEngine};
use crate::resource::shown;

/// Maximum number of values counted per key.
const VALUES_MAX: usize = 5_000;
/// Maximum number of keys counted.
const KEYS_MAX: usize = 2_000;

/// Estimated memory of a key, and of a value, besides its text.
const KEY_BYTES: usize = 256;
const VALUE_BYTES: usize = 96;

/// A key of attributes with its commonest values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facet {
    /// The key, behind its place unless that is the span: `resource.host.name`.
    pub key: String,
    /// Number of its values; counted up to a bound.
    pub cardinality: usize,
    /// Its values, the commonest first.
    pub values: Vec<FacetValue>,
}

/// A value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FacetValue {
    /// The value as a text.
    pub value: String,
    /// Number of spans that have it.
    pub count: u64,
    /// Those of them that failed (status `error`).
    pub errors: u64,
}

/// What distinguishes a selection of spans from the rest.
#[derive(Debug, Clone, PartialEq)]
pub struct Difference {
    /// Number of selected spans.
    pub selected: u64,
    /// Number of all others.
    pub rest: u64,
    /// Keys and values, the greatest difference first.
    pub values: Vec<ValueShares>,
}

/// A value of a key with its shares inside and outside of a selection, each from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueShares {
    /// The key, as [`Facet::key`].
    pub key: String,
    /// The value as a text.
    pub value: String,
    /// Its share of the selected spans.
    pub inside: f64,
    /// Its share of all others.
    pub outside: f64,
    /// How far apart these are.
    pub difference: f64,
}

/// For each value, the number of spans, and the number of special ones (failed, or inside the selection).
type Counts = HashMap<String, HashMap<String, (u64, u64), FixedState>, FixedState>;

/// Counts of all keys, and the bytes by which they have grown.
#[derive(Default)]
struct FacetCounts {
    all: Counts,
    grown: usize,
}

impl FacetCounts {
    /// Reserves memory for what was added since the last call.
    fn reserve(&mut self, reader: &Reader) -> Result<(), TraceError> {
        reader.collect(std::mem::take(&mut self.grown))
    }
}

fn count(counted: &mut FacetCounts, key: &str, value: &str, second: bool, only: &[String]) {
    if !only.is_empty() && !only.iter().any(|k| k == key) {
        return;
    }
    let FacetCounts { all, grown } = counted;
    if !all.contains_key(key) {
        if all.len() >= KEYS_MAX {
            return;
        }
        *grown += key.len() + KEY_BYTES;
        all.insert(key.to_owned(), HashMap::default());
    }
    let values = all.get_mut(key).expect("it was put there above");
    if !values.contains_key(value) {
        if values.len() >= VALUES_MAX {
            return;
        }
        *grown += value.len() + VALUE_BYTES;
    }
    let of = values.entry_ref(value).or_default();
    of.0 += 1;
    of.1 += u64::from(second);
}

/// Counts the values of a row. Attribute keys are prefixed with their place, unless that is the span.
fn count_row(
    all: &mut FacetCounts,
    c: &Columns<'_>,
    row: usize,
    second: bool,
    only: &[String],
) -> Result<(), TraceError> {
    count(all, "service", shown(c.view("service")?.value(row)), second, only);
    count(all, "operation", c.text("name")?.value(row), second, only);
    let kind = kind_name(c.small("kind")?.value(row));
    if !kind.is_empty() {
        count(all, "kind", kind, second, only);
    }
    each_attribute(c, row, |place, key, value| match place {
        Place::Span => count(all, key, &value.text(), second, only),
        Place::Resource if key == "service.name" => {}
        other => count(all, &format!("{}.{key}", other.name()), &value.text(), second, only),
    });
    Ok(())
}

impl TracesEngine {
    /// The most common values per key, with counts and errors.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn facets(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        keys: Vec<String>,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Facet>, TraceError>> {
        self.read(ctx, move |reader| async move {
            let mut all = FacetCounts::default();
            let mut wanted = columns(&["name", "kind", "status"], &[]);
            wanted.extend(place_columns(None));
            reader
                .scan(filter, wanted, |batch| {
                    let c = Columns(batch);
                    let statuses = c.small("status")?;
                    for i in 0..batch.num_rows() {
                        count_row(&mut all, &c, i, statuses.value(i) == STATUS_ERROR, &keys)?;
                    }
                    all.reserve(&reader)?;
                    Ok(true)
                })
                .await?;
            let sorted: BTreeMap<_, _> = all.all.into_iter().collect();
            let rows = sorted.into_iter().map(|(key, values)| {
                let cardinality = values.len();
                let mut values: Vec<(String, (u64, u64))> = values.into_iter().collect();
                values.sort_by(|a, b| b.1.0.cmp(&a.1.0).then_with(|| a.0.cmp(&b.0)));
                values.truncate(limit);
                let values = values.into_iter().map(|(value, (count, errors))| FacetValue { value, count, errors });
                Facet { key, cardinality, values: values.collect() }
            });
            Ok(rows.collect())
        })
    }

    /// What distinguishes a selection: for each key and value its share inside and outside, greatest difference first.
    ///
    /// # Errors
    /// Those of the engine.
    pub fn difference(
        self: &Arc<Self>,
        ctx: &QueryContext,
        filter: SpanFilter,
        selected: SpanFilter,
        limit: usize,
    ) -> BoxFuture<'_, Result<Difference, TraceError>> {
        self.read(ctx, move |reader| async move {
            let mut wanted = columns(&["name", "kind"], &[]);
            wanted.extend(place_columns(None));
            let mut all = FacetCounts::default();
            let mut totals = [0u64; 2];
            let outside = filter.clone().and(SpanFilter::Not(Box::new(selected.clone())));
            for (inside, filter) in [(true, filter.and(selected)), (false, outside)] {
                reader
                    .scan(filter, wanted.clone(), |batch| {
                        let c = Columns(batch);
                        totals[usize::from(!inside)] += batch.num_rows() as u64;
                        for i in 0..batch.num_rows() {
                            count_row(&mut all, &c, i, inside, &[])?;
                        }
                        all.reserve(&reader)?;
                        Ok(true)
                    })
                    .await?;
            }
            let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
            let mut rows: Vec<ValueShares> = Vec::new();
            for (key, values) in all.all {
                for (value, (count, inside)) in values {
                    let (inside, outside) = (share(inside, totals[0]), share(count - inside, totals[1]));
                    let difference = (inside - outside).abs();
                    rows.push(ValueShares { key: key.clone(), value, inside, outside, difference });
                }
            }
            let by_name = |a: &ValueShares, b: &ValueShares| (&a.key, &a.value).cmp(&(&b.key, &b.value));
            rows.sort_by(|a, b| b.difference.total_cmp(&a.difference).then_with(|| by_name(a, b)));
            rows.truncate(limit);
            Ok(Difference { selected: totals[0], rest: totals[1], values: rows })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_are_bounded() {
        let mut counted = FacetCounts::default();
        for n in 0..=VALUES_MAX {
            count(&mut counted, "a", &n.to_string(), n % 2 == 0, &[]);
        }
        count(&mut counted, "a", "0", false, &[]);
        let values = &counted.all["a"];
        assert_eq!((values.len(), values["0"], values["1"]), (VALUES_MAX, (2, 1), (1, 0)));
        assert!(!values.contains_key(VALUES_MAX.to_string().as_str()), "the one too many");
        for n in 0..KEYS_MAX {
            count(&mut counted, &format!("k{n}"), "v", true, &[]);
        }
        assert_eq!(counted.all.len(), KEYS_MAX);
        assert!(!counted.all.contains_key(format!("k{}", KEYS_MAX - 1).as_str()), "the one too many");
        // What is there goes on.
        count(&mut counted, "k0", "v", false, &[]);
        assert_eq!(counted.all["k0"]["v"], (2, 1));
    }

    #[test]
    fn memory_is_taken_for_what_is_new() {
        let mut counted = FacetCounts::default();
        let only = ["key".to_owned()];
        count(&mut counted, "other", "value", true, &only);
        assert_eq!((counted.grown, counted.all.len()), (0, 0), "nobody asks for it");
        count(&mut counted, "key", "value", true, &only);
        let one = 3 + KEY_BYTES + 5 + VALUE_BYTES;
        assert_eq!(counted.grown, one);
        count(&mut counted, "key", "value", false, &only);
        assert_eq!(counted.grown, one);
        count(&mut counted, "key", "", false, &only);
        assert_eq!((counted.grown, counted.all["key"].len()), (one + VALUE_BYTES, 2));
    }
}
