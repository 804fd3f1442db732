//! Compacts batches that a node holds until its input ends (sorts, and one side of joins). Such a node is charged for
//! the whole buffers behind each batch, but its rows are often a small part of them: groups come as slices of one large
//! batch, exchanges and filters that merge short batches leave mostly empty buffers of strings (a MiB for each batch of
//! 4,096 ids), and other partitions hold parts of the same buffers. Without compaction, queries would be refused for
//! memory that they do not use.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray as _, ByteView, GenericByteViewArray, GenericListArray, MapArray, MutableArrayData,
    OffsetSizeTrait, RecordBatch, RecordBatchOptions, StructArray, make_array, new_empty_array,
};
use arrow::buffer::{Buffer, NullBuffer, OffsetBuffer};
use arrow::datatypes::{ByteViewType, DataType, FieldRef};

/// Bytes of buffers up to which a column stays as it is.
const SMALL_BYTES: usize = 16 << 10;
/// Texts up to this length lie in their views.
const INLINE_BYTES: u32 = 12;
const VIEW_BYTES: usize = size_of::<u128>();

/// Gives batches that are held together buffers of their own.
///
/// What a batch has of buffers with fixed places is copied if it is not most of them: slices of a buffer are copied once
/// each, so all of them take what it takes. Views may share buffers in any way. They are copied, too, but out of no buffer more
/// often than it is large: it is kept then, however little of it each batch has. So all of them take twice what they must at
/// most.
#[derive(Debug, Default)]
pub(crate) struct HeldRows {
    /// Bytes that were copied out of the buffer of views at each address, all that there can be where it is kept.
    copied: HashMap<usize, usize>,
}

impl HeldRows {
    /// Gives a batch for holding, with the values that came.
    pub(crate) fn held(&mut self, batch: RecordBatch) -> RecordBatch {
        let mut copies: Vec<(usize, ArrayRef)> = Vec::new();
        for (at, column) in batch.columns().iter().enumerate() {
            copies.extend(self.column(column).map(|copy| (at, copy)));
        }
        if copies.is_empty() {
            return batch;
        }
        let mut columns = batch.columns().to_vec();
        for (at, copy) in copies {
            columns[at] = copy;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        // Types and lengths are those that were there.
        RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap_or(batch)
    }

    /// The same values in buffers of their own; `None`: they are well as they are.
    fn column(&mut self, column: &ArrayRef) -> Option<ArrayRef> {
        if column.is_empty() {
            let keeps = column.get_array_memory_size() > SMALL_BYTES;
            return keeps.then(|| new_empty_array(column.data_type()));
        }
        match column.data_type() {
            DataType::Utf8View => self.values_of_views(column, column.as_string_view()),
            DataType::BinaryView => self.values_of_views(column, column.as_binary_view()),
            DataType::List(item) => self.list(column.as_list::<i32>(), item),
            DataType::LargeList(item) => self.list(column.as_list::<i64>(), item),
            DataType::Map(entries, is_ordered) => self.map(column.as_map(), entries, *is_ordered),
            DataType::Struct(_) => self.fields(column.as_struct()).map(|fields| Arc::new(fields) as ArrayRef),
            kind if kind.is_nested() => None,
            _ => is_slice(&**column).then(|| copy_of(column)).flatten(),
        }
    }

    fn values_of_views<T: ByteViewType>(
        &mut self,
        column: &ArrayRef,
        values: &GenericByteViewArray<T>,
    ) -> Option<ArrayRef> {
        let own: Option<ArrayRef> = self.behind_views(values).map(|own| Arc::new(own) as ArrayRef);
        let column = own.as_ref().unwrap_or(column);
        // Bits, and views of short texts, are shared with other slices still.
        let values = column.as_byte_view::<T>();
        let bits = values.nulls().map_or(0, |nulls| nulls.buffer().capacity());
        let there = values.views().inner().capacity() + bits;
        let copy = is_part(values.len() * VIEW_BYTES, there).then(|| copy_of(column)).flatten();
        copy.or(own)
    }

    /// Values of views in a buffer of their own; `None`: the buffers are kept.
    fn behind_views<T: ByteViewType>(&mut self, values: &GenericByteViewArray<T>) -> Option<GenericByteViewArray<T>> {
        let buffers = values.data_buffers();
        if buffers.iter().map(Buffer::capacity).sum::<usize>() <= SMALL_BYTES {
            return None;
        }
        let (mut used, mut hides) = (vec![0_usize; buffers.len()], false);
        for (row, view) in values.views().iter().enumerate() {
            let length = *view as u32;
            if length <= INLINE_BYTES {
                continue;
            }
            if values.is_null(row) {
                hides = true;
            } else {
                *used.get_mut(ByteView::from(*view).buffer_index as usize)? += length as usize;
            }
        }
        let address = |buffer: &Buffer| buffer.data_ptr().addr().get();
        let mut whole: Vec<(usize, usize)> = buffers.iter().map(|b| (address(b), b.capacity())).collect();
        whole.sort_unstable();
        whole.dedup();
        let left = |(at, bytes): &(usize, usize)| bytes.saturating_sub(self.copied.get(at).copied().unwrap_or(0));
        let kept: usize = whole.iter().map(left).sum();
        if used.iter().sum::<usize>() < kept / 4 * 3 {
            for (buffer, used) in buffers.iter().zip(used) {
                let copied = self.copied.entry(address(buffer)).or_default();
                *copied = copied.saturating_add(used);
            }
            // It copies what is behind NULLs, too.
            return Some(if hides { shown(values)?.gc() } else { values.gc() });
        }
        self.copied.extend(whole.into_iter().map(|(at, _)| (at, usize::MAX)));
        None
    }

    /// Lists with their items alone: slices of lists keep all items.
    fn list<O: OffsetSizeTrait>(&mut self, list: &GenericListArray<O>, item: &FieldRef) -> Option<ArrayRef> {
        let (items, offsets) = items_of(list.offsets(), list.values());
        let own = self.column(&items);
        if own.is_none() && !is_list_part(list.offsets(), list.nulls()) {
            return None;
        }
        let nulls = list.nulls().map(own_bits);
        let list = GenericListArray::try_new(Arc::clone(item), offsets, own.unwrap_or(items), nulls);
        Some(Arc::new(list.ok()?))
    }

    fn map(&mut self, map: &MapArray, entries: &FieldRef, is_ordered: bool) -> Option<ArrayRef> {
        let whole: ArrayRef = Arc::new(map.entries().clone());
        let (items, offsets) = items_of(map.offsets(), &whole);
        let own = self.column(&items);
        if own.is_none() && !is_list_part(map.offsets(), map.nulls()) {
            return None;
        }
        let items = own.unwrap_or(items).as_struct().clone();
        let map = MapArray::try_new(Arc::clone(entries), offsets, items, map.nulls().map(own_bits), is_ordered);
        Some(Arc::new(map.ok()?))
    }

    fn fields(&mut self, row: &StructArray) -> Option<StructArray> {
        let own: Vec<Option<ArrayRef>> = row.columns().iter().map(|column| self.column(column)).collect();
        let bits = row.nulls().map_or(0, |nulls| nulls.buffer().capacity());
        if own.iter().all(Option::is_none) && !is_part(row.len().div_ceil(8), bits) {
            return None;
        }
        let columns = own.into_iter().zip(row.columns()).map(|(own, column)| own.unwrap_or_else(|| Arc::clone(column)));
        StructArray::try_new(row.fields().clone(), columns.collect(), row.nulls().map(own_bits)).ok()
    }
}

/// The same values with nothing behind NULLs.
fn shown<T: ByteViewType>(values: &GenericByteViewArray<T>) -> Option<GenericByteViewArray<T>> {
    let views = values.views().iter().enumerate();
    let views: Vec<u128> = views.map(|(row, view)| if values.is_null(row) { 0 } else { *view }).collect();
    let buffers = values.data_buffers().to_vec();
    GenericByteViewArray::try_new(views.into(), buffers, values.nulls().cloned()).ok()
}

/// Whether so many bytes are so little of those that are there that they are worth a copy.
fn is_part(used: usize, there: usize) -> bool {
    there > SMALL_BYTES && used < there / 4 * 3
}

/// Whether a column without others in it keeps much beside its own values.
fn is_slice(column: &dyn Array) -> bool {
    let bytes = |array: &dyn Array| {
        let there = array.get_buffer_memory_size();
        is_part(array.to_data().get_slice_memory_size().unwrap_or(there), there)
    };
    // The values of a dictionary are for all of its slices.
    column.as_any_dictionary_opt().map_or_else(|| bytes(column), |coded| bytes(coded.keys()))
}

/// A copy of a column, with the buffers behind its views and the values of its dictionary; `None`: its kind has none.
fn copy_of(column: &ArrayRef) -> Option<ArrayRef> {
    let data = column.to_data();
    let mut copy = MutableArrayData::new(vec![&data], false, data.len());
    copy.try_extend(0, 0, data.len()).ok()?;
    let mut copy = make_array(copy.freeze());
    // Buffers of texts grow by doubling.
    copy.shrink_to_fit();
    Some(copy)
}

/// The items between the first and the last offset, and the offsets in them.
fn items_of<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, items: &ArrayRef) -> (ArrayRef, OffsetBuffer<O>) {
    let first = offsets.first().map_or(0, |at| at.as_usize());
    let last = offsets.last().map_or(first, |at| at.as_usize());
    (items.slice(first, last - first), OffsetBuffer::from_lengths(offsets.lengths()))
}

/// Whether the offsets and the bits of lists are little of what is there.
fn is_list_part<O: OffsetSizeTrait>(offsets: &OffsetBuffer<O>, nulls: Option<&NullBuffer>) -> bool {
    let bits = nulls.map_or(0, |nulls| nulls.buffer().capacity());
    is_part(size_of::<O>() * offsets.len(), offsets.inner().inner().capacity() + bits)
}

fn own_bits(nulls: &NullBuffer) -> NullBuffer {
    nulls.iter().collect()
}

#[cfg(test)]
mod tests;
