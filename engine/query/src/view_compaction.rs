//! Copies texts out of large shared buffers. A slice of a view array keeps all buffers of its column alive, so nodes
//! that keep rows would be charged a whole block for each batch of it, and run out of memory at once.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ByteView, RecordBatch, RecordBatchOptions, StringViewArray};
use arrow::buffer::Buffer;

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TEXT, texts};

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
