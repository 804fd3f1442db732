//! How many values a key has, out of the hashes of them that the store counts with: an aggregate function over runs of
//! hashes, which DataFusion lacks. It counts up to [`TAG_CARDINALITY_MAX`], so that a group never takes more than that.

use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Expr, Signature, Volatility};
use foldhash::fast::FixedState;
use hashbrown::HashSet;
use quiver_types::spans::{TAG_CARDINALITY_MAX, TAG_HASH_BYTES};

#[derive(Debug, PartialEq, Eq, Hash)]
struct CountHashes {
    signature: Signature,
}

static FUNCTION: LazyLock<Arc<AggregateUDF>> = LazyLock::new(|| {
    let signature = Signature::exact(vec![DataType::Binary], Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(CountHashes { signature }))
});

/// The number of different hashes (`UInt64`) in runs of them.
pub(super) fn count_hashes(of: Expr) -> Expr {
    FUNCTION.call(vec![of])
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
        size_of::<Self>() + self.0.capacity() * TAG_HASH_BYTES
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
