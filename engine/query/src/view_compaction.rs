//! Copies texts out of large shared buffers. A slice of a view array keeps all buffers of its column alive, so nodes
//! that keep rows (sorts, lists, joins) would be charged a whole block for each batch of it, and run out of memory at
//! once.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array as _, ArrayRef, AsArray as _, ByteView, GenericByteViewArray, RecordBatch, RecordBatchOptions,
    StringViewArray,
};
use arrow::buffer::Buffer;
use arrow::datatypes::ByteViewType;

/// Bytes of buffers from which on a column is looked at.
const PINNED_BYTES_MIN: usize = 256 << 10;
/// Texts that are less than this part of what they keep are copied.
const COPIED_PART: usize = 8;
/// Texts up to this length lie in their views.
const INLINE_BYTES: u32 = 12;

/// Gives texts buffers of their own where they are a small part of those that they keep, and leaves buffers out that none of
/// them lies in.
pub fn unpinned(batch: RecordBatch) -> RecordBatch {
    let pins = |column: &ArrayRef| column.as_string_view_opt().is_some_and(|texts| held(texts) > PINNED_BYTES_MIN);
    if !batch.columns().iter().any(pins) {
        return batch;
    }
    let own = |column: &ArrayRef| column.as_string_view_opt().and_then(own).unwrap_or_else(|| Arc::clone(column));
    let columns = batch.columns().iter().map(own).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    // Types and lengths are those that were there.
    RecordBatch::try_new_with_options(batch.schema(), columns, &options).unwrap_or(batch)
}

fn held(texts: &StringViewArray) -> usize {
    texts.data_buffers().iter().map(Buffer::capacity).sum()
}

/// The same texts; `None`: they are well as they are.
fn own(texts: &StringViewArray) -> Option<ArrayRef> {
    let all = held(texts);
    if all <= PINNED_BYTES_MIN {
        return None;
    }
    let mut places: Vec<Option<u32>> = vec![None; texts.data_buffers().len()];
    let (mut kept, mut kept_bytes, mut used) = (Vec::new(), 0, 0_usize);
    let mut views: Vec<u128> = Vec::with_capacity(texts.len());
    for (row, view) in texts.views().iter().enumerate() {
        let length = *view as u32;
        if length <= INLINE_BYTES || texts.is_null(row) {
            views.push(if texts.is_null(row) { 0 } else { *view });
            continue;
        }
        used += length as usize;
        let mut view = ByteView::from(*view);
        let (place, buffer) = (view.buffer_index as usize, texts.data_buffers().get(view.buffer_index as usize)?);
        view.buffer_index = *places.get_mut(place)?.get_or_insert_with(|| {
            kept_bytes += buffer.capacity();
            kept.push(buffer.clone());
            kept.len() as u32 - 1
        });
        views.push(view.as_u128());
    }
    if used.saturating_mul(COPIED_PART) < kept_bytes {
        return Some(Arc::new(texts.gc()));
    }
    if kept_bytes > all / 2 {
        return None;
    }
    let own = StringViewArray::try_new(views.into(), kept, texts.nulls().cloned()).ok()?;
    Some(Arc::new(own))
}

/// Bytes of buffers up to which a column of batches that are held together stays as it is.
const HELD_BYTES_MIN: usize = 16 << 10;

/// Texts and bytes of batches that are held until the last one has come. They keep the buffers that they lie in, mostly empty
/// ones where an exchange or a filter put short batches together (a MiB for each batch of 4,096 ids), and parts of those that
/// other partitions hold as well. Such values are copied, but no buffer more often than it is large: it is kept then, however
/// little of it each batch has. So all of them take twice what they must at most.
#[derive(Debug, Default)]
pub(crate) struct HeldTexts {
    /// Bytes that were copied out of the buffer at each address, all that there can be where it is kept.
    copied: HashMap<usize, usize>,
}

impl HeldTexts {
    /// Gives a batch for holding, with the values that came.
    pub(crate) fn held(&mut self, batch: RecordBatch) -> RecordBatch {
        let mut copies: Vec<(usize, ArrayRef)> = Vec::new();
        for (at, column) in batch.columns().iter().enumerate() {
            let copy = if let Some(texts) = column.as_string_view_opt() {
                self.copy(texts)
            } else {
                column.as_binary_view_opt().and_then(|values| self.copy(values))
            };
            copies.extend(copy.map(|copy| (at, copy)));
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

    /// The same values in a buffer of their own; `None`: they are well as they are.
    fn copy<T: ByteViewType>(&mut self, values: &GenericByteViewArray<T>) -> Option<ArrayRef> {
        let buffers = values.data_buffers();
        if buffers.iter().map(Buffer::capacity).sum::<usize>() <= HELD_BYTES_MIN {
            return None;
        }
        let mut used = vec![0_usize; buffers.len()];
        for (row, view) in values.views().iter().enumerate() {
            let length = *view as u32;
            if length > INLINE_BYTES && values.is_valid(row) {
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
            return Some(Arc::new(values.gc()));
        }
        self.copied.extend(whole.into_iter().map(|(at, _)| (at, usize::MAX)));
        None
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewBuilder;

    use super::*;

    const TEXT: usize = 1000;

    /// A thousand texts in blocks of a hundred, NULL and short ones between them.
    fn texts() -> StringViewArray {
        let mut texts = StringViewBuilder::new().with_fixed_block_size(100 * TEXT as u32);
        for n in 0..1000 {
            texts.append_value(format!("{n:0>TEXT$}"));
            texts.append_null();
            texts.append_value("short");
        }
        texts.finish()
    }

    fn checked(slice: &StringViewArray) -> usize {
        let column: ArrayRef = Arc::new(slice.clone());
        let batch = RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap();
        let own = unpinned(batch.clone());
        assert_eq!(own, batch);
        held(own.column(0).as_string_view())
    }

    #[test]
    fn texts_keep_the_buffers_that_they_lie_in() {
        let all = texts();
        let held = held(&all);
        assert!(held >= 1000 * TEXT);
        assert_eq!(checked(&all), held);
        // The first 200 long ones, in two blocks or three.
        let few = checked(&all.slice(0, 600));
        assert!((200 * TEXT..400 * TEXT).contains(&few), "{few}");
        // Ten of a block: copies.
        let copies = checked(&all.slice(30, 30));
        assert!((10 * TEXT..20 * TEXT).contains(&copies), "{copies}");
        assert_eq!(checked(&all.slice(1, 2)), 0);
    }

    #[test]
    fn other_columns_and_rows_without_columns_stay() {
        let numbers: ArrayRef = Arc::new(arrow::array::Int64Array::from_iter_values(0..30));
        let few: ArrayRef = Arc::new(texts().slice(30, 30));
        let batch =
            RecordBatch::try_from_iter_with_nullable([("n", Arc::clone(&numbers), false), ("t", few, true)]).unwrap();
        let own = unpinned(batch.clone());
        assert_eq!((own.schema(), &own), (batch.schema(), &batch));
        assert!(Arc::ptr_eq(own.column(0), &numbers), "numbers are no texts");
        assert!(!Arc::ptr_eq(own.column(1), batch.column(1)), "texts were copied");
        let options = RecordBatchOptions::new().with_row_count(Some(7));
        let schema = Arc::new(arrow::datatypes::Schema::empty());
        let none = RecordBatch::try_new_with_options(schema, Vec::new(), &options).unwrap();
        assert_eq!(unpinned(none).num_rows(), 7);
    }

    #[test]
    fn what_is_held_together_takes_what_its_texts_take() {
        let all = texts();
        let bytes = held(&all);
        let column = |texts: StringViewArray| {
            let column: ArrayRef = Arc::new(texts);
            RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
        };
        // Each tenth text, as an exchange gives it to each of ten partitions.
        let every = |nth: usize| -> StringViewArray {
            let taken = (0..1000).filter(|n| n % 10 == nth).map(|n| n as u32 * 3).collect::<Vec<_>>();
            let taken = arrow::array::UInt32Array::from(taken);
            arrow::compute::take(&all, &taken, None).unwrap().as_string_view().clone()
        };
        let part = every(3);
        assert!(held(&part) >= bytes, "it keeps what all lie in");
        let mut texts_of = HeldTexts::default();
        let own = texts_of.held(column(part.clone()));
        assert_eq!(own, column(part));
        assert!(held(own.column(0).as_string_view()) < 200 * TEXT);
        // Most of the buffers: they are kept, and cost nothing more for others.
        for nth in 0..10 {
            let part = column(every(nth));
            let own = texts_of.held(part.clone());
            assert_eq!(own, part);
            let is_kept = Arc::ptr_eq(own.column(0), part.column(0));
            assert!(nth < 9 || is_kept, "what was copied is as much as all of it");
        }
        let whole = column(all.clone());
        assert!(Arc::ptr_eq(HeldTexts::default().held(whole.clone()).column(0), whole.column(0)));
    }

    #[test]
    fn bytes_are_held_like_texts() {
        let mut values = arrow::array::BinaryViewBuilder::new().with_fixed_block_size(1 << 20);
        for n in 0..100_u32 {
            values.append_value([n as u8; 40]);
        }
        let column: ArrayRef = Arc::new(values.finish());
        let batch = RecordBatch::try_from_iter([("n", Arc::clone(&column)), ("a", column.slice(0, 100))]).unwrap();
        let own = HeldTexts::default().held(batch.clone());
        assert_eq!(own, batch);
        let buffers = own.column(0).as_binary_view().data_buffers();
        assert!(buffers.iter().map(Buffer::capacity).sum::<usize>() < 8000);
    }

    #[test]
    fn what_is_null_pins_nothing() {
        let all = texts();
        let nulls = arrow::buffer::NullBuffer::new_null(all.len());
        let absent = StringViewArray::new(all.views().clone(), all.data_buffers().to_vec(), Some(nulls));
        assert_eq!(checked(&absent), 0, "no text lies in these buffers");
        let small = all.slice(0, 3);
        let short = StringViewArray::from(vec!["a text of its own buffer", "short"]);
        assert_eq!(checked(&short), held(&short), "a small buffer stays as it is");
        assert!((TEXT..2 * TEXT).contains(&checked(&small)), "one long text is copied alone");
    }
}
