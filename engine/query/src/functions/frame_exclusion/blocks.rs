//! Rows of a partition with precomputed aggregates of blocks: a long frame merges whole blocks, and adds only rows at
//! its ends. Values are never removed from an aggregate, which would lose digits.

use std::ops::Range;

use arrow::array::{Array, ArrayRef};
use arrow::datatypes::DataType;
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::Accumulator;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use quiver_types::cancellation;

/// Rows of a block, and blocks of a block of the next level.
const WIDTH: usize = 32;
/// Steps that adding a piece of rows takes at least.
const PIECE: usize = 64;

/// The lowest level is the rows; each level above holds the states of whole blocks.
#[derive(Debug)]
pub(super) struct Blocks(Vec<Vec<ArrayRef>>);

impl Blocks {
    /// Prepares the arguments of all rows.
    ///
    /// # Errors
    ///
    /// Those of the aggregate; the query has ended.
    pub(super) fn new(aggregate: &AggregateFunctionExpr, rows: Vec<ArrayRef>) -> Result<Self> {
        let mut blocks = Self(vec![rows]);
        if is_short(aggregate)? {
            // The sum of a block may overflow although no frame contains all of it, so errors are ignored here.
            while let Ok(Some(next)) = blocks.next_level(aggregate) {
                blocks.0.push(next);
            }
        }
        Ok(blocks)
    }

    /// The states of the next level's blocks; `None` if there is no whole block.
    fn next_level(&self, aggregate: &AggregateFunctionExpr) -> Result<Option<Vec<ArrayRef>>> {
        let level = self.0.len() - 1;
        let blocks = self.0[level].first().map_or(0, Array::len) / WIDTH;
        if blocks == 0 {
            return Ok(None);
        }
        let mut columns = vec![Vec::new(); aggregate.state_fields()?.len()];
        for block in 0..blocks {
            let mut accumulator = aggregate.create_accumulator()?;
            self.put(level, block * WIDTH..(block + 1) * WIDTH, &mut *accumulator)?;
            for (column, value) in columns.iter_mut().zip(accumulator.state()?) {
                column.push(value);
            }
        }
        columns.into_iter().map(ScalarValue::iter_to_array).collect::<Result<_>>().map(Some)
    }

    /// Adds a range of rows to an accumulator, in order.
    ///
    /// # Errors
    ///
    /// Those of the aggregate; the query has ended.
    pub(super) fn add(&self, rows: Range<usize>, to: &mut dyn Accumulator) -> Result<()> {
        self.add_of(0, rows, to)
    }

    fn add_of(&self, level: usize, rows: Range<usize>, to: &mut dyn Accumulator) -> Result<()> {
        let (first, last) = (rows.start.div_ceil(WIDTH), rows.end / WIDTH);
        if first >= last || level + 1 == self.0.len() {
            return self.put(level, rows, to);
        }
        self.put(level, rows.start..first * WIDTH, to)?;
        self.add_of(level + 1, first..last, to)?;
        self.put(level, last * WIDTH..rows.end, to)
    }

    fn put(&self, level: usize, rows: Range<usize>, to: &mut dyn Accumulator) -> Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        if !cancellation::goes_on(PIECE + rows.len()) {
            return exec_err!("the query has ended");
        }
        let values: Vec<ArrayRef> = self.0[level].iter().map(|column| column.slice(rows.start, rows.len())).collect();
        if level == 0 { to.update_batch(&values) } else { to.merge_batch(&values) }
    }
}

/// Whether the states of an aggregate are small; those of others grow with their rows.
fn is_short(aggregate: &AggregateFunctionExpr) -> Result<bool> {
    if aggregate.is_distinct() {
        return Ok(false);
    }
    let is_fixed = |kind: &DataType| kind.is_primitive() || *kind == DataType::Boolean;
    let is_extreme = matches!(aggregate.fun().name(), "min" | "max");
    Ok(is_extreme || aggregate.state_fields()?.iter().all(|field| is_fixed(field.data_type())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::Int64Array;
    use arrow::datatypes::{Field, Schema};
    use datafusion::functions_aggregate::array_agg::array_agg_udaf;
    use datafusion::functions_aggregate::count::count_udaf;
    use datafusion::logical_expr::AggregateUDF;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_expr::expressions::Column;

    use super::*;
    use crate::functions::sum;

    fn aggregate(function: Arc<AggregateUDF>) -> AggregateFunctionExpr {
        let schema = Arc::new(Schema::new(vec![Field::new("x", DataType::Int64, true)]));
        let args = AggregateExprBuilder::new(function, vec![Arc::new(Column::new("x", 0))]);
        args.schema(schema).alias("a").build().unwrap()
    }

    fn blocks(aggregate: &AggregateFunctionExpr, rows: impl IntoIterator<Item = i64>) -> Blocks {
        let rows: ArrayRef = Arc::new(rows.into_iter().collect::<Int64Array>());
        Blocks::new(aggregate, vec![rows]).unwrap()
    }

    fn of(blocks: &Blocks, aggregate: &AggregateFunctionExpr, rows: Range<usize>) -> ScalarValue {
        let mut accumulator = aggregate.create_accumulator().unwrap();
        blocks.add(rows, &mut *accumulator).unwrap();
        accumulator.evaluate().unwrap()
    }

    #[test]
    fn rows_are_added_once_each() {
        const ROWS: usize = 3 * WIDTH * WIDTH + 5;
        let (sum, count) = (aggregate(sum()), aggregate(count_udaf()));
        let of_sum = blocks(&sum, 0..ROWS as i64);
        let of_count = blocks(&count, 0..ROWS as i64);
        assert_eq!(of_sum.0.len(), 3, "rows, blocks and blocks of blocks");
        let ends = [0, 1, WIDTH - 1, WIDTH, 2 * WIDTH + 3, WIDTH * WIDTH, 2 * WIDTH * WIDTH + WIDTH, ROWS - 1, ROWS];
        for (at, from) in ends.into_iter().enumerate() {
            for to in ends[at..].iter().copied() {
                let expected = (from < to).then(|| (from as i64..to as i64).sum());
                assert_eq!(of(&of_sum, &sum, from..to), ScalarValue::Int64(expected), "{from}..{to}");
                let rows = ScalarValue::Int64(Some((to - from) as i64));
                assert_eq!(of(&of_count, &count, from..to), rows, "{from}..{to}");
            }
        }
    }

    #[test]
    fn states_that_grow_are_not_kept() {
        let lists = aggregate(array_agg_udaf());
        let of_lists = blocks(&lists, 0..100);
        assert_eq!(of_lists.0.len(), 1);
        let ScalarValue::List(list) = of(&of_lists, &lists, 3..70) else { panic!("no list") };
        assert_eq!(list.value(0).len(), 67);
    }

    #[test]
    fn blocks_beyond_a_type_are_none() {
        let sum = aggregate(sum());
        let wide = blocks(&sum, std::iter::repeat_n(i64::MAX / 4, 4 * WIDTH));
        assert_eq!(wide.0.len(), 1);
        assert_eq!(of(&wide, &sum, 30..34), ScalarValue::Int64(Some(i64::MAX / 4 * 4)));
    }
}
