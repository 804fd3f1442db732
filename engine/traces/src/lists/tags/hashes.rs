//! Counts the distinct values of a key from the hashes that the store collects: an aggregate function over lists of
//! hashes, which DataFusion lacks. It counts up to [`TAG_CARDINALITY_MAX`], which limits the memory of a group.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use quiver_types::spans::TAG_CARDINALITY_MAX;

/// A group's share of DataFusion's group table when that doubles: two slots of a hash, a number and a mark, with a load
/// factor of 7/8. DataFusion reserves memory for the table only after it was allocated, old and new at once; accounting
/// it with each group reserves it before.
const NEXT_TABLE_BYTES: usize = 2 * 17 * 8 / 7 + 1;

#[derive(Debug, PartialEq, Eq, Hash)]
struct CountHashes {
    signature: Signature,
}

static FUNCTION: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
    let signature = Signature::exact(vec![DataType::Binary], Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(CountHashes { signature }))
});

/// Number of distinct hashes (`UInt64`) in lists of them.
pub(super) fn count_hashes(of: Expr) -> Expr {
    FUNCTION.call(vec![of])
}

/// The aggregate function `count_hashes`, for the engine's registry.
pub(crate) fn function() -> &'static Arc<AggregateUDF> {
    &FUNCTION
}

impl AggregateUDFImpl for CountHashes {
    fn name(&self) -> &'static str {
        "count_hashes"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::UInt64)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(format!("{}[hashes]", args.name), DataType::Binary, true))])
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Hashes::default()))
    }
}

#[derive(Debug, Default)]
struct Hashes(HashSet<u64, FixedState>);

impl Accumulator for Hashes {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(runs) = values.first().and_then(|v| v.as_binary_opt::<i32>()) else {
            return exec_err!("hashes are bytes");
        };
        for run in runs.iter().flatten() {
            let (hashes, _) = run.as_chunks::<8>();
            for hash in hashes {
                if self.0.len() < TAG_CARDINALITY_MAX {
                    self.0.insert(u64::from_le_bytes(*hash));
                }
            }
        }
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::UInt64(Some(self.0.len() as u64)))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.0.allocation_size() + NEXT_TABLE_BYTES
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let run = self.0.iter().flat_map(|hash| hash.to_le_bytes()).collect();
        Ok(vec![ScalarValue::Binary(Some(run))])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::BinaryArray;

    use super::*;

    fn run(hashes: std::ops::Range<u64>) -> ArrayRef {
        let bytes: Vec<u8> = hashes.flat_map(u64::to_le_bytes).collect();
        Arc::new(BinaryArray::from_vec(vec![&bytes]))
    }

    #[test]
    fn a_group_counts_what_it_takes() {
        let mut one = Hashes::default();
        one.update_batch(&[run(0..1)]).unwrap();
        assert!(one.0.allocation_size() > 0);
        assert!(one.size() >= size_of::<Hashes>() + one.0.allocation_size() + 2 * 17);
    }

    #[test]
    fn hashes_count_once_and_up_to_a_bound() {
        let mut one = Hashes::default();
        one.update_batch(&[run(0..10)]).unwrap();
        let mut other = Hashes::default();
        other.update_batch(&[run(5..15)]).unwrap();
        let state = other.state().unwrap().remove(0).to_array().unwrap();
        one.merge_batch(&[state]).unwrap();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::UInt64(Some(15)));
        one.update_batch(&[run(0..TAG_CARDINALITY_MAX as u64 + 5)]).unwrap();
        assert_eq!(one.evaluate().unwrap(), ScalarValue::UInt64(Some(TAG_CARDINALITY_MAX as u64)));
    }
}
