//! How rows are cut, so that what is made of one part is small: by the bytes of their texts, not by those of their
//! buffers. Many columns may share a buffer, and the text of each is written.

use std::sync::Arc;

use arrow::array::{Array, ArrayData, ArrayRef, AsArray as _, RecordBatch, RecordBatchOptions};
use arrow::buffer::Buffer;
use arrow::datatypes::DataType;
use datafusion::common::utils::memory::get_record_batch_memory_size;

/// Bytes of rows that are given out at once, about.
pub(super) const GIVEN_BYTES: usize = 1 << 20;
/// What a value takes at least where it is written: a number, `false`, `null`, what stands between two.
const VALUE_BYTES: usize = 8;

/// The bytes of the rows of a batch: those of buffers that columns share are there once.
pub(crate) fn held_bytes(batch: &RecordBatch) -> usize {
    let columns: usize = batch.columns().iter().map(slice_bytes).sum();
    columns.min(get_record_batch_memory_size(batch))
}

/// The bytes of the values of a column, of which it may be a slice: what views share counts for each of them.
pub fn slice_bytes(column: &ArrayRef) -> usize {
    let data = column.to_data();
    let own = data.get_slice_memory_size().unwrap_or_else(|_| column.get_array_memory_size());
    // What views show is not among it.
    own + match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_bytes_len(),
        DataType::BinaryView => column.as_binary_view().total_bytes_len(),
        _ => data.child_data().iter().map(shown_bytes).sum(),
    }
}

/// The bytes behind views in lists, fields and dictionaries.
fn shown_bytes(data: &ArrayData) -> usize {
    let is_view = matches!(data.data_type(), DataType::Utf8View | DataType::BinaryView);
    let own: usize = if is_view { data.buffers().iter().skip(1).map(Buffer::len).sum() } else { 0 };
    own + data.child_data().iter().map(shown_bytes).sum::<usize>()
}

/// About how many bytes rows take where they are written, each perhaps under its name.
pub(super) fn written_bytes(batch: &RecordBatch) -> usize {
    let fields = batch.schema_ref().fields().iter();
    fields.zip(batch.columns()).map(|(field, column)| column.len() * field.name().len() + text_bytes(column)).sum()
}

/// The bytes of all values of a column, written one by one.
fn text_bytes(column: &ArrayRef) -> usize {
    let texts = match column.data_type() {
        DataType::Utf8View => column.as_string_view().total_bytes_len(),
        DataType::BinaryView => 2 * column.as_binary_view().total_bytes_len(),
        DataType::Dictionary(..) => {
            let dictionary = column.as_any_dictionary();
            chosen_bytes(dictionary.values(), || dictionary.normalized_keys())
        }
        _ => slice_bytes(column),
    };
    texts + column.len() * VALUE_BYTES
}

/// The bytes of the values of a dictionary that rows choose.
fn chosen_bytes(values: &ArrayRef, keys: impl FnOnce() -> Vec<usize>) -> usize {
    if values.is_empty() {
        return 0;
    }
    match values.data_type() {
        DataType::Utf8 => {
            let texts = values.as_string::<i32>();
            keys().into_iter().map(|key| texts.value_length(key) as usize).sum()
        }
        DataType::Utf8View => {
            let views = values.as_string_view().views();
            keys().into_iter().map(|key| views[key] as u32 as usize).sum()
        }
        _ => 0,
    }
}

/// Cuts a batch of which so many bytes are written where it is large.
pub(super) fn parts(batch: &RecordBatch, written: usize) -> impl Iterator<Item = RecordBatch> + Send + '_ {
    let rows = batch.num_rows();
    // Views are copied where they are cut: not for a few bytes.
    let most = if batch.columns().iter().any(is_view) { 2 * GIVEN_BYTES } else { GIVEN_BYTES };
    let each = if written <= most { rows } else { (rows as u128 * GIVEN_BYTES as u128 / written as u128) as usize };
    let each = each.max(1);
    (0..rows).step_by(each).map(move |from| {
        let part = batch.slice(from, each.min(rows - from));
        if each < rows { with_own_views(part) } else { part }
    })
}

fn is_view(column: &ArrayRef) -> bool {
    matches!(column.data_type(), DataType::Utf8View | DataType::BinaryView)
}

/// Forms that send buffers as they are would send those of views with each part.
fn with_own_views(part: RecordBatch) -> RecordBatch {
    let own = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Utf8View => Arc::new(column.as_string_view().gc()),
            DataType::BinaryView => Arc::new(column.as_binary_view().gc()),
            _ => Arc::clone(column),
        }
    };
    let columns = part.columns().iter().map(own).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(part.num_rows()));
    // Types and lengths are those that were there.
    RecordBatch::try_new_with_options(part.schema(), columns, &options).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use arrow::array::{BooleanArray, DictionaryArray, Int32Array, NullArray, StringViewArray};
    use arrow::datatypes::{Field, Int32Type, Schema};

    use super::*;

    fn wide(column: &ArrayRef, times: usize) -> RecordBatch {
        let fields = (0..times).map(|n| Field::new(format!("c{n}"), column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        RecordBatch::try_new(schema, vec![Arc::clone(column); times]).expect("a batch")
    }

    /// Columns that share what they hold are each written in full.
    #[test]
    fn many_columns_come_in_small_parts() {
        const ROWS: usize = 8192;
        let text = "a text of some length, as messages are ".repeat(3);
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str(); ROWS]));
        let coded: DictionaryArray<Int32Type> = (0..ROWS).map(|_| Some(text.as_str())).collect();
        let columns: [ArrayRef; 4] =
            [texts, Arc::new(coded), Arc::new(NullArray::new(ROWS)), Arc::new(BooleanArray::from(vec![false; ROWS]))];
        for column in &columns {
            let batch = wide(column, 1000);
            assert!(held_bytes(&batch) <= 1000 * ROWS * 8, "{} bytes are there", held_bytes(&batch));
            let (mut rows, mut values) = (0, 0);
            for part in parts(&batch, written_bytes(&batch)) {
                assert!(part.num_rows() <= 220, "{} rows of {:?} at once", part.num_rows(), column.data_type());
                rows += part.num_rows();
                values += part.column(999).len();
            }
            assert_eq!((rows, values), (ROWS, ROWS));
        }
    }

    /// Breaks if rows with long texts that wait for a slow reader are not counted.
    #[test]
    fn texts_that_views_show_are_held() {
        const ROWS: usize = 8192;
        let text = "x".repeat(1000);
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![text.as_str(); ROWS]));
        let whole = wide(&texts, 1);
        let held = held_bytes(&whole);
        assert!((ROWS * 1000..ROWS * 1100).contains(&held), "{held} bytes of the whole");
        let some = held_bytes(&whole.slice(100, 800));
        assert!((800 * 1000..800 * 1100).contains(&some), "{some} bytes of a part");
        let keys = Int32Array::from(vec![0; 10]);
        let coded: ArrayRef = Arc::new(DictionaryArray::new(keys, texts));
        assert!(held_bytes(&wide(&coded, 1)) >= ROWS * 1000, "of a dictionary");
    }

    #[test]
    fn few_rows_are_one_part_that_shares_its_buffers() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec!["a text that is no part of its view"; 100]));
        let batch = wide(&texts, 3);
        let all: Vec<_> = parts(&batch, written_bytes(&batch)).collect();
        assert_eq!(all, [batch]);
    }

    #[test]
    fn parts_of_views_have_what_they_show() {
        let texts: Vec<String> = (0..64).map(|n| format!("{n:02}").repeat(1 << 16)).collect();
        let column: ArrayRef = Arc::new(StringViewArray::from_iter_values(&texts));
        let batch = wide(&column, 1);
        let mut found = Vec::new();
        for part in parts(&batch, written_bytes(&batch)) {
            assert!(part.get_array_memory_size() < 2 * GIVEN_BYTES, "{} bytes", part.get_array_memory_size());
            found.extend(part.column(0).as_string_view().iter().flatten().map(str::to_owned));
        }
        assert!(found == texts, "other rows, or in another order");
    }
}
