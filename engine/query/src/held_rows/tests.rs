//! What batches hold once they have buffers of their own, and that they hold the same values.

use arrow::array::{
    BinaryViewBuilder, BooleanArray, DictionaryArray, Int32Array, Int64Array, ListBuilder, MapBuilder, NullArray,
    StringArray, StringBuilder, StringViewArray, StringViewBuilder, UInt32Array,
};
use arrow::datatypes::{Field, Int32Type};
use datafusion::common::utils::memory::get_record_batch_memory_size;

use super::*;
use crate::testing::{TEXT, texts};

const ROWS: usize = 100_000;

fn bytes_behind(texts: &StringViewArray) -> usize {
    texts.data_buffers().iter().map(Buffer::capacity).sum()
}

fn batch(column: ArrayRef) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable([("a", column, true)]).unwrap()
}

fn lists() -> ArrayRef {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for n in 0..ROWS {
        lists.values().append_value(format!("a text that lies in a buffer: {n}"));
        lists.append(n % 3 > 0);
    }
    Arc::new(lists.finish())
}

fn maps() -> ArrayRef {
    let mut maps = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
    for n in 0..ROWS {
        maps.keys().append_value("key");
        maps.values().append_value(n.to_string());
        maps.append(n % 5 > 0).unwrap();
    }
    Arc::new(maps.finish())
}

/// Columns of all groups of an aggregate, as each kind of value has them.
fn columns() -> Vec<ArrayRef> {
    let numbers: ArrayRef = Arc::new((0..ROWS).map(|n| (n % 7 > 0).then_some(n as i64)).collect::<Int64Array>());
    let texts: ArrayRef = Arc::new((0..ROWS).map(|n| Some(format!("text {n}"))).collect::<StringArray>());
    let field = |name: &str, column: &ArrayRef| Arc::new(Field::new(name, column.data_type().clone(), true));
    let fields =
        StructArray::from(vec![(field("n", &numbers), Arc::clone(&numbers)), (field("t", &texts), Arc::clone(&texts))]);
    let coded: DictionaryArray<Int32Type> = DictionaryArray::new(
        Int32Array::from_iter_values((0..ROWS).map(|n| n as i32 % 2)),
        Arc::new(StringArray::from(vec!["a", "b"])),
    );
    vec![
        numbers,
        texts,
        Arc::new((0..8 * ROWS).map(|n| Some(n % 3 > 0)).collect::<BooleanArray>()),
        Arc::new((0..ROWS).map(|n| Some(format!("{n}"))).collect::<StringViewArray>()),
        Arc::new((0..ROWS).map(|n| Some(format!("a text that lies in a buffer: {n}"))).collect::<StringViewArray>()),
        Arc::new(coded),
        Arc::new(fields),
        lists(),
        maps(),
    ]
}

#[test]
fn slices_take_what_their_rows_take() {
    for column in columns() {
        let kind = column.data_type().clone();
        let whole = batch(column);
        let (all, rows) = (get_record_batch_memory_size(&whole), whole.num_rows());
        assert!(all > 5 * SMALL_BYTES, "{all} bytes of {kind}");
        let (mut held, mut bytes) = (HeldRows::default(), 0);
        for from in (0..rows).step_by(rows / 20) {
            let slice = whole.slice(from, (rows / 20).min(rows - from));
            let own = held.held(slice.clone());
            assert_eq!(own, slice, "{kind}");
            bytes += get_record_batch_memory_size(&own);
        }
        assert!(bytes < 2 * all, "{bytes} bytes in slices of {all} of {kind}");
    }
}

#[test]
fn what_is_no_slice_stays() {
    let numbers: ArrayRef = Arc::new(Int64Array::from((0..ROWS as i64).collect::<Vec<_>>()));
    let own = HeldRows::default().held(batch(Arc::clone(&numbers)));
    assert!(Arc::ptr_eq(own.column(0), &numbers));
    // Most of a buffer.
    let most = numbers.slice(0, ROWS * 4 / 5);
    let own = HeldRows::default().held(batch(Arc::clone(&most)));
    assert!(Arc::ptr_eq(own.column(0), &most));
    for column in columns() {
        let whole = batch(column);
        assert_eq!(HeldRows::default().held(whole.clone()), whole);
    }
    let none = batch(Arc::new(NullArray::new(ROWS)));
    assert_eq!(HeldRows::default().held(none.clone()), none);
    let options = RecordBatchOptions::new().with_row_count(Some(7));
    let schema = Arc::new(arrow::datatypes::Schema::empty());
    let bare = RecordBatch::try_new_with_options(schema, Vec::new(), &options).unwrap();
    assert_eq!(HeldRows::default().held(bare).num_rows(), 7);
}

#[test]
fn lists_without_items_keep_none_of_others() {
    let mut lists = ListBuilder::new(StringViewBuilder::new());
    for n in 0..ROWS {
        if n >= 100 {
            lists.values().append_value(format!("a text that lies in a buffer: {n}"));
        }
        lists.append(true);
    }
    let slice = batch(Arc::new(lists.finish())).slice(0, 100);
    assert!(get_record_batch_memory_size(&slice) > 1 << 20);
    let own = HeldRows::default().held(slice.clone());
    assert_eq!(own, slice);
    assert!(get_record_batch_memory_size(&own) < SMALL_BYTES);
}

/// Short texts beside long ones lie in views alone, and NULLs are bits of all rows.
#[test]
fn few_texts_keep_no_views_and_no_bits_of_others() {
    let long = |n: usize| format!("a text that lies in a buffer: {n}");
    let short =
        (0..ROWS).map(|n| Some(if n < 100 { "short".to_owned() } else { long(n) })).collect::<StringViewArray>();
    let nulls = (0..2 * ROWS).map(|n| (n % 3 > 0).then(|| long(n))).collect::<StringViewArray>();
    for texts in [short, nulls] {
        let slice = batch(Arc::new(texts)).slice(0, 100);
        assert!(get_record_batch_memory_size(&slice) > 1 << 20);
        let own = HeldRows::default().held(slice.clone());
        assert_eq!(own, slice);
        let bytes = get_record_batch_memory_size(&own);
        assert!(bytes < SMALL_BYTES, "{bytes} bytes");
    }
}

#[test]
fn what_nulls_hide_is_not_held() {
    let all = texts();
    let is_valid: NullBuffer = (0..all.len()).map(|n| all.is_valid(n) && n < 30).collect();
    let hidden = StringViewArray::new(all.views().clone(), all.data_buffers().to_vec(), Some(is_valid));
    let hidden = batch(Arc::new(hidden));
    let own = HeldRows::default().held(hidden.clone());
    assert_eq!(own, hidden);
    assert!(bytes_behind(own.column(0).as_string_view()) < 20 * TEXT);
}

#[test]
fn what_is_held_together_takes_what_its_texts_take() {
    let all = texts();
    let bytes = bytes_behind(&all);
    let column = |texts: StringViewArray| batch(Arc::new(texts));
    // Each tenth text, as an exchange gives it to each of ten partitions.
    let every = |nth: usize| -> StringViewArray {
        let taken = (0..1000).filter(|n| n % 10 == nth).map(|n| n as u32 * 3).collect::<Vec<_>>();
        let taken = UInt32Array::from(taken);
        arrow::compute::take(&all, &taken, None).unwrap().as_string_view().clone()
    };
    let part = every(3);
    assert!(bytes_behind(&part) >= bytes, "it keeps what all lie in");
    let mut texts_of = HeldRows::default();
    let own = texts_of.held(column(part.clone()));
    assert_eq!(own, column(part));
    assert!(bytes_behind(own.column(0).as_string_view()) < 200 * TEXT);
    // Most of the buffers: they are kept, and cost nothing more for others.
    for nth in 0..10 {
        let part = column(every(nth));
        let own = texts_of.held(part.clone());
        assert_eq!(own, part);
        let is_kept = Arc::ptr_eq(own.column(0), part.column(0));
        assert!(nth < 9 || is_kept, "what was copied is as much as all of it");
    }
    let own = HeldRows::default().held(column(all.clone()));
    let first = |texts: &StringViewArray| texts.data_buffers()[0].as_ptr();
    assert_eq!(first(own.column(0).as_string_view()), first(&all));
}

#[test]
fn bytes_are_held_like_texts() {
    let mut values = BinaryViewBuilder::new().with_fixed_block_size(1 << 20);
    for n in 0..100_u32 {
        values.append_value([n as u8; 40]);
    }
    let column: ArrayRef = Arc::new(values.finish());
    let batch = RecordBatch::try_from_iter([("n", Arc::clone(&column)), ("a", column.slice(0, 100))]).unwrap();
    let own = HeldRows::default().held(batch.clone());
    assert_eq!(own, batch);
    let buffers = own.column(0).as_binary_view().data_buffers();
    assert!(buffers.iter().map(Buffer::capacity).sum::<usize>() < 8000);
}
