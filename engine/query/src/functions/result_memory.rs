//! Charges the results of functions to their query for as long as they exist: the reservation is attached to the
//! largest buffer of an array, and released when the last reference to that buffer goes. Plan nodes need not know of
//! it.

#![allow(unsafe_code, reason = "the checks read every text once more; see the SAFETY comment")]

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::buffer::Buffer;
use bytes::Bytes;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool, MemoryReservation};
use datafusion::logical_expr::ColumnarValue;
use quiver_types::cancellation::Watch;

use crate::pool::QueryPool;

/// Bytes from which on a value is counted by itself; a call over constants gives one value for all rows up to here.
pub(crate) const COUNTED: usize = 128 << 10;
/// Bytes at most of what a call gives for a batch.
pub(super) const BYTES_MAX: i128 = 64 << 20;

/// Where functions take memory from: of the query that the thread works for ([`quiver_types::cancellation`]), else of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Room(Arc<dyn MemoryPool>);

/// Sessions have one each: functions of one session are equal by what they do.
impl PartialEq for Room {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Room {}

impl Hash for Room {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Room {
    /// Takes from a pool where no query is known.
    pub(crate) fn new(pool: Arc<dyn MemoryPool>) -> Self {
        Self(pool)
    }

    /// Takes memory for a value.
    ///
    /// # Errors
    /// The pool has not enough memory.
    pub(super) fn take(&self, bytes: usize) -> Result<MemoryReservation> {
        let own = Watch::current().and_then(|watch| watch.gate().values());
        let own = own.and_then(|own| own.downcast::<QueryPool>().ok()).map(|own| own as Arc<dyn MemoryPool>);
        let memory = MemoryConsumer::new("values of functions").register(own.as_ref().unwrap_or(&self.0));
        memory.try_grow(bytes)?;
        Ok(memory)
    }
}

/// A buffer together with the memory that is reserved for it.
struct CountedBuffer {
    buffer: Buffer,
    _memory: MemoryReservation,
}

impl AsRef<[u8]> for CountedBuffer {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice()
    }
}

/// Charges an array to the query for as long as it, or a slice of it, exists. Small arrays are not charged.
///
/// # Errors
/// The pool has not enough memory.
pub(super) fn counted(array: ArrayRef, room: &Room) -> Result<ArrayRef> {
    let bytes = array.get_buffer_memory_size();
    if bytes <= COUNTED {
        return Ok(array);
    }
    let memory = room.take(bytes)?;
    Ok(with_memory(&array, memory))
}

/// The addresses of the buffers of arguments.
pub(super) fn addresses(values: &[ColumnarValue]) -> Vec<usize> {
    let mut found = Vec::new();
    for value in values {
        if let ColumnarValue::Array(array) = value {
            collect(&array.to_data(), &mut found);
        }
    }
    found
}

fn collect(data: &ArrayData, found: &mut Vec<usize>) {
    found.extend(data.buffers().iter().map(|buffer| buffer.data_ptr().addr().get()));
    for child in data.child_data() {
        collect(child, found);
    }
}

/// Bytes of an array that do not lie in buffers of others: texts that are cut out of others, and items of lists, share them.
pub(super) fn fresh(array: &ArrayRef, others: &[usize]) -> usize {
    let all = array.get_buffer_memory_size();
    if others.is_empty() || all <= COUNTED { all } else { all.saturating_sub(shared(&array.to_data(), others)) }
}

fn shared(data: &ArrayData, others: &[usize]) -> usize {
    let own = data.buffers().iter().filter(|buffer| others.contains(&buffer.data_ptr().addr().get()));
    own.map(Buffer::capacity).sum::<usize>()
        + data.child_data().iter().map(|child| shared(child, others)).sum::<usize>()
}

/// Gives an array that holds its memory as long as it, or a slice of it, is there.
pub(super) fn with_memory(array: &ArrayRef, memory: MemoryReservation) -> ArrayRef {
    let data = array.to_data();
    let largest = largest(&data);
    let mut memory = Some(memory);
    make_array(holding(&data, largest, &mut memory))
}

/// Bytes of the largest buffer.
fn largest(data: &ArrayData) -> usize {
    let own = data.buffers().iter().map(Buffer::len);
    own.chain(data.child_data().iter().map(largest)).max().unwrap_or(0)
}

/// The same values, the first buffer of that size with the memory.
fn holding(data: &ArrayData, largest: usize, memory: &mut Option<MemoryReservation>) -> ArrayData {
    let mut buffers = data.buffers().to_vec();
    for buffer in &mut buffers {
        if buffer.len() == largest
            && let Some(taken) = memory.take()
        {
            *buffer = Buffer::from(Bytes::from_owner(CountedBuffer { buffer: buffer.clone(), _memory: taken }));
        }
    }
    let children = data.child_data().iter().map(|child| holding(child, largest, memory)).collect();
    // SAFETY: all of it comes from an array of this type and shape, and the one buffer that is another has the same bytes at
    // the same place.
    unsafe { data.clone().into_builder().buffers(buffers).child_data(children).build_unchecked() }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _, Int64Array, ListArray, StringArray, StringViewArray};
    use arrow::datatypes::Int64Type;
    use datafusion::execution::memory_pool::GreedyMemoryPool;

    use super::*;

    #[test]
    fn memory_is_held_as_long_as_a_slice_is_there() {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(1000));
        let room = Room::new(Arc::clone(&pool));
        let texts = ["a text that is longer than a view", "b"];
        let arrays: [ArrayRef; 4] = [
            Arc::new(StringArray::from_iter_values(texts)),
            Arc::new(StringViewArray::from_iter_values(texts)),
            Arc::new(Int64Array::from_iter([Some(1), None, Some(3)])),
            Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some(vec![Some(1), None]), None])),
        ];
        for array in arrays {
            let held = with_memory(&array, room.take(600).unwrap());
            assert_eq!(&held, &array);
            assert_eq!(pool.reserved(), 600, "{}", array.data_type());
            room.take(600).unwrap_err();
            let slice = held.slice(1, 1);
            drop(held);
            assert_eq!(pool.reserved(), 600, "{}", array.data_type());
            assert_eq!(&slice, &array.slice(1, 1));
            drop(slice);
            assert_eq!(pool.reserved(), 0, "{}", array.data_type());
        }
        let held =
            with_memory(&(Arc::new(StringViewArray::from_iter_values(texts)) as ArrayRef), room.take(1).unwrap());
        assert_eq!(held.as_string_view().value(0), texts[0]);
    }
}
