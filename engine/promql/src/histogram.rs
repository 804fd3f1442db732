//! Arithmetic of native histograms on [`quiver_types::Histogram`].
//!
//! `bounds` and `buckets` say where buckets lie, `layout` rebuilds the lists of buckets, `reconcile` brings two histograms
//! to what they have in common, `arithmetic` and `kahan` add and scale (`compensation` is what a sum has lost), `reset`
//! compares neighbours in time, `trim` cuts, `stats` reduces to count and sum, `text` writes. Quantiles and fractions
//! are in `crate::quantile`.
//!
//! Invariants: buckets ascend by index; a result of arithmetic has no two spans without a gap; operands may differ in
//! schema, zero threshold and custom bounds and are brought to what they have in common. Input whose spans and counts
//! disagree never panics: what has no partner is not there.
//!
//! Semantics: Prometheus 3.14 `model/histogram/float_histogram.go`.

mod arithmetic;
mod bounds;
mod buckets;
mod compensation;
mod kahan;
mod layout;
mod reconcile;
mod reset;
mod stats;
mod text;
mod trim;

use quiver_types::{Histogram, Millis};

pub use arithmetic::{add, div, equals, has_overflow, mul, reduce_schema, sub};
pub use bounds::{SCHEMA_MAX, SCHEMA_MIN, bound, uses_custom_buckets};
pub use buckets::{Bucket, all, all_reverse, negative, positive};
pub use compensation::Compensation;
pub use kahan::add_compensated;
pub use layout::compact;
pub use reconcile::{IncompatibleBuckets, MergeOutcome, refuse_each_other};
pub use reset::detect_reset;
pub use stats::stats_only;
pub use text::text;
pub use trim::{trim_lower, trim_upper};

use crate::functions::annotations::{Note, Notes};

/// Gives the histogram at `t` on the line between two; over a counter reset the line starts at zero. Notes and
/// `None` when the two have different kinds of buckets.
pub(crate) fn interpolate(
    first: (Millis, &Histogram),
    second: (Millis, &Histogram),
    t: Millis,
    is_counter: bool,
    notes: &mut Notes,
) -> Option<Histogram> {
    if t == first.0 {
        return Some(first.1.clone());
    }
    let mut result = second.1.clone();
    if t == second.0 {
        return Some(result);
    }
    let fraction = (t - first.0) as f64 / (second.0 - first.0) as f64;
    if is_counter && detect_reset(second.1, first.1) {
        mul(&mut result, fraction);
        return Some(result);
    }
    sub_noting(&mut result, first.1, notes)?;
    mul(&mut result, fraction);
    add_noting(&mut result, first.1, notes)?;
    Some(result)
}

/// Adds, noting what there is to note; `None` when the two have different kinds of buckets.
pub(crate) fn add_noting(h: &mut Histogram, other: &Histogram, notes: &mut Notes) -> Option<()> {
    if let Ok(merged) = add(h, other) {
        if merged.reconciled {
            notes.set(Note::ReconciledAddition);
        }
        Some(())
    } else {
        notes.set(Note::MixedExponentialCustom);
        None
    }
}

/// Subtracts as [`add_noting`] adds.
pub(crate) fn sub_noting(h: &mut Histogram, other: &Histogram, notes: &mut Notes) -> Option<()> {
    if let Ok(merged) = sub(h, other) {
        if merged.reconciled {
            notes.set(Note::ReconciledSubtraction);
        }
        Some(())
    } else {
        notes.set(Note::MixedExponentialCustom);
        None
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Short ways to write histograms in tests.

    use quiver_types::histogram::CUSTOM_SCHEMA;
    use quiver_types::{Histogram, Span};

    /// An exponential histogram with one run of positive buckets; count and sum follow from them.
    pub(crate) fn exponential(schema: i32, offset: i32, counts: &[f64]) -> Histogram {
        Histogram {
            schema,
            count: total(counts),
            sum: total(counts) * 2.0,
            positive_spans: vec![Span { offset, length: counts.len() as u32 }],
            positive: counts.to_vec(),
            float: true,
            ..Histogram::default()
        }
    }

    /// A histogram with custom buckets.
    pub(crate) fn custom(bounds: &[f64], counts: &[f64]) -> Histogram {
        Histogram { custom_bounds: bounds.to_vec(), ..exponential(CUSTOM_SCHEMA, 0, counts) }
    }

    /// A zero bucket.
    pub(crate) fn with_zero(mut h: Histogram, threshold: f64, count: f64) -> Histogram {
        h.zero_threshold = threshold;
        h.zero_count = count;
        h.count += count;
        h
    }

    /// One run of negative buckets.
    pub(crate) fn with_negative(mut h: Histogram, offset: i32, counts: &[f64]) -> Histogram {
        h.negative_spans = vec![Span { offset, length: counts.len() as u32 }];
        h.negative = counts.to_vec();
        h.count += total(counts);
        h
    }

    /// Unlike `sum`, +0 of nothing.
    fn total(counts: &[f64]) -> f64 {
        counts.iter().fold(0.0, |a, b| a + b)
    }

    /// The populated positive buckets.
    pub(crate) fn populated(h: &Histogram) -> Vec<(i32, f64)> {
        super::positive(h).filter(|b| b.count != 0.0).map(|b| (b.index, b.count)).collect()
    }
}
