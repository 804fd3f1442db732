//! How many bytes our nodes put into one batch. A batch that exists can no longer be refused, and each of many clients
//! has several: being made, waiting, being written. So the less memory queries have in all, the smaller the batches.
//! The same limit is applied to the rows that DataFusion's exchanges merge, where only the number of rows can be set.

use arrow::datatypes::{DataType, Schema};
use datafusion::execution::memory_pool::{MemoryLimit, MemoryPool};

/// The most bytes of a batch.
const BYTES_MAX: usize = 4 << 20;
/// The least: shorter ones cost more time than they save memory.
const BYTES_MIN: usize = 256 << 10;
/// A batch takes this part (1/n) of the memory.
const MEMORY_PART: usize = 64;

/// The bytes of a batch where queries share this memory. A single row that has more is a batch, too.
pub(crate) fn batch_bytes(memory: &dyn MemoryPool) -> usize {
    match memory.memory_limit() {
        MemoryLimit::Finite(bytes) => (bytes / MEMORY_PART).clamp(BYTES_MIN, BYTES_MAX),
        MemoryLimit::Infinite | MemoryLimit::Unknown => BYTES_MAX,
    }
}

/// Rows that exchanges put together in little memory, and in much.
const MERGED_ROWS: [usize; 2] = [1024, 8192];
/// They may have about as many bytes each, some of which are there twice.
const MERGED_ROW_BYTES: usize = 64 << 10;

/// The rows that exchanges put together where queries share this memory.
pub(crate) fn merged_rows(memory: &dyn MemoryPool) -> usize {
    let [least, most] = MERGED_ROWS;
    match memory.memory_limit() {
        MemoryLimit::Finite(bytes) => (bytes / MERGED_ROW_BYTES).clamp(least, most),
        MemoryLimit::Infinite | MemoryLimit::Unknown => most,
    }
}

/// Whether rows may be long: values of one of their columns have any length.
pub(crate) fn may_be_long(schema: &Schema) -> bool {
    let is_short = |kind: &DataType| {
        kind.is_primitive() || matches!(kind, DataType::Boolean | DataType::Null | DataType::FixedSizeBinary(_))
    };
    schema.fields().iter().any(|field| !is_short(field.data_type()))
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::execution::memory_pool::{FairSpillPool, UnboundedMemoryPool};

    use super::*;

    #[test]
    fn rows_of_numbers_are_short() {
        let of = |kinds: &[DataType]| {
            let fields = kinds.iter().map(|kind| Field::new("x", kind.clone(), true));
            may_be_long(&Schema::new(fields.collect::<Vec<_>>()))
        };
        let short = [DataType::Int64, DataType::Boolean, DataType::Null, DataType::FixedSizeBinary(16)];
        assert!(!of(&short) && !of(&[]));
        let list = DataType::List(Field::new_list_field(DataType::Int64, true).into());
        for long in [DataType::Utf8, DataType::Utf8View, DataType::Binary, list] {
            assert!(of(&[DataType::Int64, long.clone()]), "{long}");
        }
    }

    #[test]
    fn little_memory_makes_small_batches() {
        for (memory, batch) in [(1 << 20, 256 << 10), (64 << 20, 1 << 20), (256 << 20, 4 << 20), (8 << 30, 4 << 20)] {
            assert_eq!(batch_bytes(&FairSpillPool::new(memory)), batch, "{memory} bytes");
        }
        assert_eq!(batch_bytes(&UnboundedMemoryPool::default()), 4 << 20);
        for (memory, rows) in [(1 << 20, 1024), (64 << 20, 1024), (256 << 20, 4096), (8 << 30, 8192)] {
            assert_eq!(merged_rows(&FairSpillPool::new(memory)), rows, "{memory} bytes");
        }
        assert_eq!(merged_rows(&UnboundedMemoryPool::default()), 8192);
    }
}
