//! The memory that a record batch holds.

use std::collections::HashSet;

use arrow::array::{Array, ArrayData, RecordBatch};
use arrow::buffer::Buffer;

/// Gives the bytes of the buffers of a batch, each once and whole: a slice keeps all of what it is cut from.
pub fn batch_bytes(batch: &RecordBatch) -> usize {
    let mut seen = HashSet::new();
    batch.columns().iter().map(|column| array_bytes(&column.to_data(), &mut seen)).sum()
}

fn array_bytes(data: &ArrayData, seen: &mut HashSet<usize>) -> usize {
    let mut bytes = 0;
    let mut count = |buffer: &Buffer| {
        if seen.insert(buffer.data_ptr().addr().get()) {
            bytes += buffer.capacity();
        }
    };
    data.buffers().iter().for_each(&mut count);
    if let Some(nulls) = data.nulls() {
        count(nulls.inner().inner());
    }
    bytes + data.child_data().iter().map(|child| array_bytes(child, seen)).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, ListArray, StringArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn buffers_count_once_and_whole() {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
        let batch = RecordBatch::try_from_iter([("a", Arc::clone(&numbers)), ("b", numbers.slice(10, 1000 - 10))]);
        assert!(batch.is_err(), "columns are as long as each other");
        let twice = RecordBatch::try_from_iter([("a", numbers.slice(0, 500)), ("b", numbers.slice(500, 500))]).unwrap();
        assert_eq!(batch_bytes(&twice), numbers.to_data().buffers()[0].capacity());
        assert_eq!(batch_bytes(&twice.slice(0, 1)), batch_bytes(&twice));
    }

    #[test]
    fn nulls_and_children_count() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("one"), None]));
        let lists: ArrayRef =
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None]));
        for array in [texts, lists] {
            let data = array.to_data();
            let own: usize = data.buffers().iter().map(Buffer::capacity).sum();
            let nulls = data.nulls().unwrap().inner().inner().capacity();
            let batch = RecordBatch::try_from_iter_with_nullable([("a", array, true)]).unwrap();
            let children = data.child_data().len();
            assert!(batch_bytes(&batch) >= own + nulls + children, "{}", batch_bytes(&batch));
            assert_eq!(batch_bytes(&batch) > own + nulls, children > 0);
        }
    }
}
