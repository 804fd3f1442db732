//! [`Sketch`] as an aggregate function for plans. DataFusion's own quantiles keep every value or are less accurate.
//!
//! The result is the sketch itself, as bytes, so that sketches of spans and of roll-ups can be merged and several
//! quantiles be taken from one.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BinaryArray, BinaryBuilder, BooleanArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{exec_err, not_impl_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, EmitTo, Expr, GroupsAccumulator, Signature, Volatility,
};

use super::Sketch;

/// The input of the function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum SketchInput {
    /// Durations of single spans in nanoseconds (`Int64`).
    Durations,
    /// Durations as roll-ups hold them.
    Buckets,
    /// Existing sketches.
    Sketches,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct SketchOf {
    of: SketchInput,
    signature: Signature,
}

static ALL: LazyLock<[Arc<AggregateUDF>; 3]> = LazyLock::new(|| {
    [
        (SketchInput::Durations, DataType::Int64),
        (SketchInput::Buckets, DataType::Binary),
        (SketchInput::Sketches, DataType::Binary),
    ]
    .map(|(of, argument)| {
        let signature = Signature::exact(vec![argument], Volatility::Immutable);
        Arc::new(AggregateUDF::new_from_impl(SketchOf { of, signature }))
    })
});

/// Aggregates durations in nanoseconds to a sketch.
pub(crate) fn durations(of: Expr) -> Expr {
    ALL[0].call(vec![of])
}

/// Aggregates the durations of roll-ups to a sketch.
pub(crate) fn buckets(of: Expr) -> Expr {
    ALL[1].call(vec![of])
}

/// Merges sketches.
pub(crate) fn sketches(of: Expr) -> Expr {
    ALL[2].call(vec![of])
}

/// All variants of the function.
pub(crate) fn all() -> &'static [Arc<AggregateUDF>] {
    &*ALL
}

impl AggregateUDFImpl for SketchOf {
    fn name(&self) -> &'static str {
        match self.of {
            SketchInput::Durations => "duration_sketch",
            SketchInput::Buckets => "bucket_sketch",
            SketchInput::Sketches => "merged_sketch",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Binary)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[sketch]", args.name), DataType::Binary, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        not_impl_err!("`{}` is of groups", self.name())
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(Sketches { of: self.of, groups: Vec::new(), bytes: 0 }))
    }
}

/// The sketches of all groups.
#[derive(Debug)]
struct Sketches {
    of: SketchInput,
    groups: Vec<Sketch>,
    bytes: usize,
}

impl Sketches {
    fn add(
        &mut self,
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
        mut each: impl FnMut(&mut Sketch, usize),
    ) {
        self.groups.resize_with(total, Sketch::default);
        for (row, &group) in groups.iter().enumerate() {
            if filter.is_some_and(|filter| !filter.is_valid(row) || !filter.value(row)) {
                continue;
            }
            let sketch = &mut self.groups[group];
            let before = sketch.heap_bytes();
            each(sketch, row);
            self.bytes += sketch.heap_bytes();
            self.bytes -= before;
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> ArrayRef {
        let mut out = BinaryBuilder::new();
        let mut bytes = Vec::new();
        for sketch in emit_to.take_needed(&mut self.groups) {
            self.bytes -= sketch.heap_bytes();
            bytes.clear();
            sketch.write(&mut bytes);
            out.append_value(&bytes);
        }
        Arc::new(out.finish())
    }
}

fn bytes_of(values: &[ArrayRef]) -> Result<&BinaryArray> {
    if let Some(values) = values.first().and_then(|v| v.as_binary_opt::<i32>()) {
        Ok(values)
    } else {
        exec_err!("sketches are bytes")
    }
}

impl GroupsAccumulator for Sketches {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        groups: &[usize],
        filter: Option<&BooleanArray>,
        total: usize,
    ) -> Result<()> {
        match self.of {
            SketchInput::Durations => {
                let Some(values) = values.first().and_then(|v| v.as_primitive_opt::<Int64Type>()) else {
                    return exec_err!("durations are whole numbers");
                };
                self.add(groups, filter, total, |sketch, row| sketch.add(values.value(row)));
            }
            SketchInput::Buckets => {
                let values = bytes_of(values)?;
                self.add(groups, filter, total, |sketch, row| sketch.merge_buckets(values.value(row)));
            }
            SketchInput::Sketches => {
                let values = bytes_of(values)?;
                self.add(groups, filter, total, |sketch, row| sketch.merge_bytes(values.value(row)));
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        Ok(self.take(emit_to))
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        Ok(vec![self.take(emit_to)])
    }

    fn merge_batch(&mut self, values: &[ArrayRef], groups: &[usize], total: usize) -> Result<()> {
        let values = bytes_of(values)?;
        self.add(groups, None, total, |sketch, row| sketch.merge_bytes(values.value(row)));
        Ok(())
    }

    fn convert_to_state(&self, values: &[ArrayRef], filter: Option<&BooleanArray>) -> Result<Vec<ArrayRef>> {
        let rows = values.first().map_or(0, Array::len);
        let mut each = Self { of: self.of, groups: Vec::new(), bytes: 0 };
        let groups: Vec<usize> = (0..rows).collect();
        each.update_batch(values, &groups, filter, rows)?;
        each.state(EmitTo::All)
    }

    fn size(&self) -> usize {
        self.bytes + self.groups.capacity() * size_of::<Sketch>()
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    fn sketches_of(of: SketchInput) -> Sketches {
        Sketches { of, groups: Vec::new(), bytes: 0 }
    }

    #[test]
    fn parts_give_what_the_whole_gives() {
        let values: Vec<i64> = (0..5_000).map(|i| (i * 7_919) % 104_729).collect();
        // Group 0 stays exact, group 1 does not.
        let groups: Vec<usize> = (0..values.len()).map(|i| usize::from(i % 8 > 0)).collect();
        let mut whole = [Sketch::default(), Sketch::default()];
        values.iter().zip(&groups).for_each(|(v, g)| whole[*g].add(*v));
        let mut merged = sketches_of(SketchInput::Durations);
        for (values, groups) in values.chunks(1_700).zip(groups.chunks(1_700)) {
            let mut part = sketches_of(SketchInput::Durations);
            part.update_batch(&[Arc::new(Int64Array::from(values.to_vec())) as ArrayRef], groups, None, 2).unwrap();
            assert!(part.size() > 0);
            let state = part.state(EmitTo::All).unwrap();
            assert_eq!(part.bytes, 0, "what is given away is not held");
            merged.merge_batch(&state, &[0, 1], 2).unwrap();
        }
        let bytes = merged.evaluate(EmitTo::All).unwrap();
        for (group, mut expected) in whole.into_iter().enumerate() {
            let mut sketch = Sketch::default();
            sketch.merge_bytes(bytes.as_binary::<i32>().value(group));
            assert_eq!((sketch.count(), sketch.mean()), (expected.count(), expected.mean()));
            for q in [0.0, 0.5, 0.95, 0.99, 1.0] {
                assert_eq!(sketch.quantile(q), expected.quantile(q), "{q} of {group}");
            }
        }
    }

    #[test]
    fn rows_that_are_filtered_do_not_count() {
        let mut one = sketches_of(SketchInput::Durations);
        let filter = BooleanArray::from(vec![Some(true), Some(false), None]);
        let values = Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef;
        one.update_batch(&[values], &[0, 0, 0], Some(&filter), 1).unwrap();
        assert_eq!(one.groups[0].count(), 1);
    }
}
