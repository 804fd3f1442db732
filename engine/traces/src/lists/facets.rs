//! Attribute values of spans: the most common per key, and those that a selection has more often than the rest.
//!
//! Counted in our own loop: in a plan, each attribute of each span (about twenty) would become a row with its texts
//! before it is grouped, while the loop reads it in place. The loop limits keys and values without missing the common ones
//! (`counting`), accounts its memory to the query, and checks for cancellation with each batch.

mod counting;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use quiver_query::QueryContext;
use quiver_types::spans::{Place, STATUS_ERROR, SpanFilter, kind_name};

use self::counting::{FacetCounts, KeyCounts, Seen};
use crate::columns::{Columns, columns, each_attribute, place_columns};
use crate::engine::{TraceError, TracesEngine};
use crate::resource::shown;

/// What a value takes while it is compared.
const ROW_BYTES: usize = 48;

/// A key of attributes with its commonest values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facet {
    /// The key, behind its place unless that is the span: `resource.host.name`.
    pub key: String,
    /// Number of its values.
    pub cardinality: usize,
    /// Whether there were too many keys or values to count all: the numbers of spans may then be too small, and that of
    /// values is an estimate.
    pub is_approximate: bool,
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

impl Facet {
    /// Bytes that it takes.
    fn bytes(&self) -> usize {
        let values: usize = self.values.iter().map(|one| size_of::<FacetValue>() + one.value.len()).sum();
        size_of::<Self>() + self.key.len() + values
    }
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

/// Keys that stand for what every span has. An attribute of a span with such a name has its place before it.
const OWN_KEYS: [&str; 3] = ["service", "operation", "kind"];

/// What an attribute of a span is called. Its place stands before the key where that is not the span.
fn key_of(place: Place, key: &str) -> Cow<'_, str> {
    if place == Place::Span && !OWN_KEYS.contains(&key) {
        return Cow::Borrowed(key);
    }
    Cow::Owned(format!("{}.{key}", place.name()))
}

/// A key that is asked for, as [`key_of`] has it: the place may be told where it goes without saying.
fn asked_key(key: String) -> String {
    match key.strip_prefix("span.") {
        Some(own) if !OWN_KEYS.contains(&own) => own.to_owned(),
        _ => key,
    }
}

/// Counts the values of a row; only those of some keys, if any are named.
fn count_row(
    all: &mut FacetCounts,
    c: &Columns<'_>,
    row: usize,
    failed: bool,
    only: &[String],
) -> Result<(), TraceError> {
    all.begin_span();
    let mut count = |key: &str, value: &str| {
        if only.is_empty() || only.iter().any(|k| k == key) {
            all.count(key, value, failed);
        }
    };
    count("service", shown(c.view("service")?.value(row)));
    count("operation", c.text("name")?.value(row));
    let kind = kind_name(c.small("kind")?.value(row));
    if !kind.is_empty() {
        count("kind", kind);
    }
    each_attribute(c, row, |place, key, value| {
        if (place, key) != (Place::Resource, "service.name") {
            count(&key_of(place, key), &value.text());
        }
    });
    Ok(())
}

fn facet_of(key: String, counts: KeyCounts, limit: usize) -> Facet {
    let (cardinality, is_approximate) = (counts.cardinality(), counts.is_approximate());
    let mut values: Vec<(String, Seen)> = counts.values.into_iter().collect();
    values.sort_by(|a, b| b.1.spans.cmp(&a.1.spans).then_with(|| a.0.cmp(&b.0)));
    values.truncate(limit);
    // The list goes on in the same place.
    values.shrink_to_fit();
    let values = values.into_iter();
    let values = values.map(|(value, seen)| FacetValue { value, count: seen.spans, errors: seen.errors }).collect();
    Facet { key, cardinality, is_approximate, values }
}

/// The values of both sides that differ most in how many of the spans have them, at most so many.
fn most_different(inside: &FacetCounts, outside: &FacetCounts, limit: usize) -> Vec<ValueShares> {
    let share = |n: u64, of: u64| if of == 0 { 0.0 } else { n as f64 / of as f64 };
    let row = |key: &str, value: &str| {
        (share(inside.spans_with(key, value), inside.spans), share(outside.spans_with(key, value), outside.spans))
    };
    let of_inside = inside.keys.iter().flat_map(|(key, of)| of.values.keys().map(move |value| (key, value)));
    let of_outside = outside.keys.iter().flat_map(|(key, of)| of.values.keys().map(move |value| (key, value)));
    let alone = of_outside.filter(|(key, value)| inside.spans_with(key, value) == 0);
    let mut rows: Vec<_> = of_inside.chain(alone).map(|(key, value)| (key, value, row(key, value))).collect();
    let by = |(inside, outside): (f64, f64)| (inside - outside).abs();
    rows.sort_by(|a, b| by(b.2).total_cmp(&by(a.2)).then_with(|| (a.0, a.1).cmp(&(b.0, b.1))));
    rows.truncate(limit);
    let shares = |(key, value, (inside, outside)): (&String, &String, (f64, f64))| ValueShares {
        key: key.clone(),
        value: value.clone(),
        inside,
        outside,
        difference: by((inside, outside)),
    };
    rows.into_iter().map(shares).collect()
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
        let keys: Vec<String> = keys.into_iter().map(asked_key).collect();
        self.read(ctx, (filter, keys, limit), |reader, (filter, keys, limit)| async move {
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
                    reader.collect(all.grown())?;
                    Ok(true)
                })
                .await?;
            let sorted: BTreeMap<_, _> = all.keys.into_iter().collect();
            // The counts are given back with the read, while the facets wait for their reader.
            let memory = reader.collected("facets");
            let mut facets = Vec::with_capacity(sorted.len());
            for (key, counts) in sorted {
                let facet = facet_of(key, counts, limit);
                memory.add(facet.bytes())?;
                facets.push(facet);
            }
            reader.ctx.keep(memory);
            Ok(facets)
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
        self.read(ctx, (filter, selected, limit), |reader, (filter, selected, limit)| async move {
            let mut wanted = columns(&["name", "kind"], &[]);
            wanted.extend(place_columns(None));
            // Counted per side: values that are common in the smaller side could be dropped among those of the larger one.
            let mut sides = [FacetCounts::default(), FacetCounts::default()];
            let outside = filter.clone().and(SpanFilter::Not(Box::new(selected.clone())));
            for (all, filter) in sides.iter_mut().zip([filter.and(selected), outside]) {
                reader
                    .scan(filter, wanted.clone(), |batch| {
                        let c = Columns(batch);
                        for i in 0..batch.num_rows() {
                            count_row(all, &c, i, false, &[])?;
                        }
                        reader.collect(all.grown())?;
                        Ok(true)
                    })
                    .await?;
            }
            let [inside, outside] = &sides;
            reader.collect((inside.values() + outside.values()) * ROW_BYTES)?;
            let values = most_different(inside, outside, limit);
            Ok(Difference { selected: inside.spans, rest: outside.spans, values })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_say_where_they_stand_unless_it_is_the_span() {
        for (place, key, expected) in [
            (Place::Span, "http.route", "http.route"),
            (Place::Resource, "host.name", "resource.host.name"),
            (Place::Event, "k", "event.k"),
            // The names of what every span has mean that.
            (Place::Span, "operation", "span.operation"),
            (Place::Resource, "service", "resource.service"),
        ] {
            let named = key_of(place, key);
            assert_eq!(named, expected);
            assert_eq!(asked_key(format!("{}.{key}", place.name())), expected, "it may be told");
            assert_eq!(asked_key(named.clone().into_owned()), named);
        }
        assert_eq!(asked_key("kind".to_owned()), "kind");
    }

    fn counts(spans: usize, of: impl Fn(usize) -> Vec<(&'static str, String)>) -> FacetCounts {
        let mut counts = FacetCounts::default();
        for n in 0..spans {
            counts.begin_span();
            for (key, value) in of(n) {
                counts.count(key, &value, n % 2 == 0);
            }
        }
        counts
    }

    #[test]
    fn values_come_with_the_commonest_first() {
        let mut all = counts(7, |n| vec![("k", format!("v{}", n % 3))]);
        let facet = facet_of("k".to_owned(), all.keys.remove("k").unwrap(), 2);
        let value = |value: &str, count, errors| FacetValue { value: value.to_owned(), count, errors };
        let values = vec![value("v0", 3, 2), value("v1", 2, 1)];
        assert_eq!(facet, Facet { key: "k".to_owned(), cardinality: 3, is_approximate: false, values });
        // Breaks where many long values are held beside what is counted.
        let texts = "k".len() + "v0".len() + "v1".len();
        assert_eq!(facet.bytes(), size_of::<Facet>() + 2 * size_of::<FacetValue>() + texts);
    }

    /// Breaks if the many values of one side push out those of the other.
    #[test]
    fn what_is_common_on_one_side_is_the_difference() {
        let inside = counts(10, |n| vec![("user", "eve".to_owned()), ("id", n.to_string())]);
        let outside =
            counts(4 * counting::VALUES_MAX, |n| vec![("user", n.to_string()), ("half", (n % 2).to_string())]);
        let found = most_different(&inside, &outside, 3);
        let row = |key: &str, value: &str, inside: f64, outside: f64| {
            let (key, value, difference) = (key.to_owned(), value.to_owned(), (inside - outside).abs());
            ValueShares { key, value, inside, outside, difference }
        };
        assert_eq!(found, [row("user", "eve", 1.0, 0.0), row("half", "0", 0.0, 0.5), row("half", "1", 0.0, 0.5)]);
        let same = counts(4, |n| vec![("k", (n % 2).to_string())]);
        let found = most_different(&same, &same, 9);
        assert_eq!(found, [row("k", "0", 0.5, 0.5), row("k", "1", 0.5, 0.5)]);
        assert!(most_different(&FacetCounts::default(), &FacetCounts::default(), 9).is_empty());
    }
}
