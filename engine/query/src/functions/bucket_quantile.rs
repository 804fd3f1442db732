//! `bucket_quantile(q, le, increase)`: a quantile of a histogram whose buckets are series. Increases of buckets with
//! equal bounds are added up over all series, then the value is interpolated within its bucket, as PromQL's
//! `histogram_quantile` does. NULL if there is no `+Inf` bucket, or no observation.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, ListArray, StringViewArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef, Float64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

#[derive(Debug, PartialEq, Eq, Hash)]
struct BucketQuantile {
    signature: Signature,
}

pub(super) fn function() -> Arc<AggregateUDF> {
    let types = vec![DataType::Float64, DataType::Utf8View, DataType::Float64];
    Arc::new(AggregateUDF::new_from_impl(BucketQuantile { signature: Signature::exact(types, Volatility::Immutable) }))
}

fn list_of(kind: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(kind, true)))
}

impl AggregateUDFImpl for BucketQuantile {
    fn name(&self) -> &'static str {
        "bucket_quantile"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Float64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let field = |name: &str, kind| Arc::new(Field::new(format!("{}[{name}]", args.name), kind, true));
        Ok(vec![
            field("quantile", DataType::Float64),
            field("bounds", list_of(DataType::Utf8View)),
            field("counts", list_of(DataType::Float64)),
        ])
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Buckets::default()))
    }
}

/// The buckets of a group by the text of their bounds, with their cumulative counts.
#[derive(Debug, Default)]
struct Buckets {
    quantile: Option<f64>,
    counts: HashMap<String, f64>,
    bytes: usize,
}

impl Buckets {
    fn add(&mut self, bound: &str, count: f64) {
        if let Some(known) = self.counts.get_mut(bound) {
            *known += count;
        } else {
            self.bytes += bound.len() + 2 * size_of::<(String, f64)>();
            self.counts.insert(bound.to_owned(), count);
        }
    }

    /// Bounds and cumulative counts in order of the bounds; counts never fall.
    fn sorted(&self) -> Vec<(f64, f64)> {
        let parsed = self.counts.iter().filter_map(|(bound, count)| Some((bound.parse::<f64>().ok()?, *count)));
        let mut all: Vec<(f64, f64)> = parsed.filter(|(bound, _)| !bound.is_nan()).collect();
        all.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        all.dedup_by(|next, known| {
            let is_same = next.0.total_cmp(&known.0).is_eq();
            if is_same {
                known.1 += next.1;
            }
            is_same
        });
        let mut most = 0.0_f64;
        for (_, count) in &mut all {
            most = most.max(*count);
            *count = most;
        }
        all
    }

    fn value(&self) -> Option<f64> {
        let quantile = self.quantile.filter(|q| (0.0..=1.0).contains(q))?;
        let all = self.sorted();
        let ((bound, observed), finite) = all.split_last()?;
        if bound.is_finite() || finite.is_empty() || *observed <= 0.0 {
            return None;
        }
        let rank = quantile * observed;
        let Some(at) = finite.iter().position(|(_, count)| *count >= rank) else {
            return finite.last().map(|(bound, _)| *bound);
        };
        let (end, count) = finite[at];
        let (start, below) = match at.checked_sub(1) {
            Some(before) => finite[before],
            None if end <= 0.0 => return Some(end),
            None => (0.0, 0.0),
        };
        // If the minimum is asked for and the first bucket is empty, nothing lies in it.
        let share = if count > below { (rank - below) / (count - below) } else { 0.0 };
        Some(start + (end - start) * share)
    }
}

fn list(values: ArrayRef) -> ScalarValue {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    ScalarValue::List(Arc::new(ListArray::new(field, offsets, values, None)))
}

impl Accumulator for Buckets {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let (Some(quantiles), Some(bounds), Some(counts)) = (
            values[0].as_primitive_opt::<Float64Type>(),
            values[1].as_string_view_opt(),
            values[2].as_primitive_opt::<Float64Type>(),
        ) else {
            return exec_err!("a quantile is made of a number, bounds and counts");
        };
        if self.quantile.is_none() {
            self.quantile = quantiles.iter().flatten().next();
        }
        for row in (0..bounds.len()).filter(|row| bounds.is_valid(*row) && counts.is_valid(*row)) {
            self.add(bounds.value(row), counts.value(row));
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Float64(self.value()))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let bounds: ArrayRef = Arc::new(StringViewArray::from_iter_values(self.counts.keys()));
        let counts: ArrayRef = Arc::new(Float64Array::from_iter_values(self.counts.values().copied()));
        Ok(vec![ScalarValue::Float64(self.quantile), list(bounds), list(counts)])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (Some(quantiles), Some(bounds), Some(counts)) = (
            states[0].as_primitive_opt::<Float64Type>(),
            states[1].as_list_opt::<i32>(),
            states[2].as_list_opt::<i32>(),
        ) else {
            return exec_err!("a state of buckets is of another type");
        };
        if self.quantile.is_none() {
            self.quantile = quantiles.iter().flatten().next();
        }
        for row in (0..bounds.len()).filter(|row| bounds.is_valid(*row)) {
            let (bounds, counts) = (bounds.value(row), counts.value(row));
            for (bound, count) in bounds.as_string_view().iter().zip(counts.as_primitive::<Float64Type>().values()) {
                self.add(bound.unwrap_or_default(), *count);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Upper bounds of buckets with their counts.
    type Counted<'a> = &'a [(&'a str, f64)];

    fn group(q: f64, rows: &[(&str, f64)]) -> Buckets {
        let mut group = Buckets::default();
        let quantiles = Float64Array::from(vec![q; rows.len()]);
        let bounds = StringViewArray::from_iter_values(rows.iter().map(|r| r.0));
        let counts = Float64Array::from_iter_values(rows.iter().map(|r| r.1));
        group.update_batch(&[Arc::new(quantiles), Arc::new(bounds), Arc::new(counts)]).unwrap();
        group
    }

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let whole = [("0.1", 2.0), ("0.5", 6.0), ("1", 6.0), ("+Inf", 8.0), ("0.1", 2.0), ("0.5", 2.0), ("+Inf", 2.0)];
        let cases: [(f64, Counted<'_>, Option<f64>); 7] = [
            // Cumulative counts: 0.1: 4, 0.5: 8, 1: 8, +Inf: 10.
            (0.2, &whole, Some(0.05)),
            (0.6, &whole, Some(0.1 + 0.4 * 0.5)),
            (1.0, &whole, Some(1.0)),
            (0.5, &[("1", 3.0), ("2", 3.0)], None),
            (0.5, &[("1", 0.0), ("+Inf", 0.0)], None),
            (0.5, &[("-1", 2.0), ("+Inf", 2.0)], Some(-1.0)),
            (2.0, &whole, None),
        ];
        let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() < 1e-9,
            (a, b) => a.is_none() && b.is_none(),
        };
        for (q, rows, expected) in cases {
            let found = group(q, rows).value();
            assert!(near(found, expected), "{q} of {rows:?}: {found:?}");
            let (left, right) = rows.split_at(1);
            let states: Vec<ArrayRef> =
                group(q, right).state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
            let mut merged = group(q, left);
            merged.merge_batch(&states).unwrap();
            assert!(near(merged.value(), expected), "{q} of {rows:?} in parts");
        }
    }
}
