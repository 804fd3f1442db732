//! Splits long lists below `UnnestExec`, which emits all rows of a list at once, each with a copy of the other columns:
//! a list of 180,000 numbers beside a text of 10 KB becomes 1.8 GB. Such lists are cut into pieces, each a row of its
//! own; nested lists, which cannot be cut, are limited in size. What the next node makes of a piece takes memory of the
//! query until it asks for another one.

use std::fmt;
use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, AsArray as _, ListArray, RecordBatch, UInt32Array};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::take;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::unnest::{ListUnnest, UnnestExec};
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, ReplaceChildrenOptions,
};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use quiver_types::{Error, ErrorKind};

use super::batch_bytes::batch_bytes;
use crate::error::to_datafusion;
use crate::functions;
use crate::node_defaults::rows_of_input;
use crate::plan_walk::change_physical;
use crate::rows::batch_split::held_bytes;

/// The most unnested rows of a group of pieces.
const BATCH_ROWS: usize = 8192;
/// The most bytes of a row that is unnested without being cut.
const WHOLE_BYTES: usize = 64 << 20;
/// Bytes that a fixed-width value counts.
const VALUE_BYTES: usize = 8;
/// Bytes of a view, of which only itself is repeated.
const VIEW_BYTES: usize = 16;

/// Inserts the node below each `UnnestExec`.
///
/// # Errors
///
/// Those of making the nodes.
pub(crate) fn below_unnest(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let Some(unnest) = node.downcast_ref::<UnnestExec>() else { return Ok(Transformed::no(node)) };
        let lists = unnest.list_column_indices().to_vec();
        if lists.is_empty() {
            return Ok(Transformed::no(node));
        }
        let pieces: Arc<dyn ExecutionPlan> = Arc::new(ListPiecesExec { input: Arc::clone(unnest.input()), lists });
        let anew = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
        Ok(Transformed::yes(node.replace_children(vec![pieces], anew)?))
    })
}

/// Splits rows with long lists into several rows, and emits few at a time.
#[derive(Debug)]
pub(crate) struct ListPiecesExec {
    input: Arc<dyn ExecutionPlan>,
    lists: Vec<ListUnnest>,
}

impl ListPiecesExec {
    /// Splits the lists of the given columns: each has an index and a depth of nesting.
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, lists: Vec<(usize, usize)>) -> Self {
        let list = |(index_in_input_schema, depth)| ListUnnest { index_in_input_schema, depth };
        Self { input, lists: lists.into_iter().map(list).collect() }
    }

    /// The columns whose lists are split, with the number of levels that are unnested.
    pub(crate) fn lists(&self) -> &[ListUnnest] {
        &self.lists
    }

    fn over(&self, input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input, lists: self.lists.clone() }
    }
}

impl DisplayAs for ListPiecesExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ListPiecesExec")
    }
}

impl ExecutionPlan for ListPiecesExec {
    fn name(&self) -> &'static str {
        "ListPiecesExec"
    }

    rows_of_input!();

    fn execute(&self, partition: usize, context: Arc<TaskContext>) -> Result<SendableRecordBatchStream> {
        let lists = self.lists.clone();
        let bytes = batch_bytes(context.memory_pool().as_ref());
        let memory = MemoryConsumer::new("unnest").register(context.memory_pool());
        let batches = self.input.execute(partition, context)?;
        let pieces = batches.map(move |batch| -> Result<_> {
            Ok(stream::iter(Pieces::of(batch?, &lists, bytes, memory.new_empty())?))
        });
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), pieces.try_flatten())))
    }
}

/// A range of items of a row's lists.
#[derive(Debug, Clone, Copy)]
struct Piece {
    row: usize,
    from: usize,
    to: usize,
}

/// An iterator over the pieces of a batch.
struct Pieces {
    batch: RecordBatch,
    /// Indexes of the columns with lists.
    lists: Vec<usize>,
    /// Whether the lists may be split (they are not nested).
    is_cut: bool,
    /// The number of unnested rows for each row.
    counts: Vec<usize>,
    /// The bytes of each such unnested row.
    widths: Vec<usize>,
    /// The most bytes that the unnested rows of one group of pieces may take.
    batch_bytes: usize,
    /// What the batch takes, if it is long, and the unnested rows of the last group.
    memory: MemoryReservation,
    /// Bytes of a long batch, which is held until all of it is unnested: an aggregation that made it no longer counts it.
    held: usize,
    /// The next row, and the next item in it.
    next: (usize, usize),
}

impl Pieces {
    fn of(batch: RecordBatch, lists: &[ListUnnest], batch_bytes: usize, memory: MemoryReservation) -> Result<Self> {
        let places: Vec<usize> = lists.iter().map(|list| list.index_in_input_schema).collect();
        let is_cut = lists.iter().all(|list| {
            list.depth == 1 && matches!(batch.column(list.index_in_input_schema).data_type(), DataType::List(_))
        });
        let (mut counts, mut widths) = (vec![1_usize; batch.num_rows()], vec![0_usize; batch.num_rows()]);
        for list in lists {
            let items = items(batch.column(list.index_in_input_schema), list.depth);
            for ((most, width), count) in counts.iter_mut().zip(&mut widths).zip(items) {
                *most = count.max(*most);
                *width += VALUE_BYTES;
            }
        }
        for (place, column) in batch.columns().iter().enumerate() {
            if places.contains(&place) {
                continue;
            }
            for (all, width) in widths.iter_mut().zip(widths_of(column)?) {
                *all += width;
            }
        }
        let most = counts.iter().zip(&widths).map(|(count, width)| count.saturating_mul(*width)).max().unwrap_or(0);
        if !is_cut && most > WHOLE_BYTES {
            let text = format!("`unnest` would give {most} bytes at once, at most {WHOLE_BYTES} are allowed");
            return Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)));
        }
        // Items are copied, too; few of them need not be looked at one by one.
        for place in places.iter().map(|place| batch.column(*place)) {
            if functions::bytes_of(place.as_ref())? > batch_bytes as i128 {
                for (row, (width, count)) in widths.iter_mut().zip(&counts).enumerate() {
                    let bytes = functions::bytes_of(place.slice(row, 1).as_ref())?.max(0) as usize;
                    *width += bytes / (*count).max(1);
                }
            }
        }
        let held = Some(held_bytes(&batch)).filter(|bytes| *bytes > batch_bytes).unwrap_or_default();
        memory.grow(held);
        Ok(Self { batch, lists: places, is_cut, counts, widths, batch_bytes, memory, held, next: (0, 0) })
    }

    /// The next pieces, as many as may be unnested at once, and the bytes that they become.
    fn group(&mut self) -> (Vec<Piece>, usize) {
        let (mut group, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while self.next.0 < self.batch.num_rows() {
            let (row, from) = self.next;
            let (count, width) = (self.counts[row], self.widths[row].max(1));
            let most = if self.is_cut { (self.batch_bytes / width).clamp(1, BATCH_ROWS) } else { count };
            let to = count.min(from + most);
            let made = to - from;
            if !group.is_empty() && (rows + made > BATCH_ROWS || bytes + made * width > self.batch_bytes) {
                break;
            }
            group.push(Piece { row, from, to });
            (rows, bytes) = (rows + made, bytes + made * width);
            self.next = if to < count { (row, to) } else { (row + 1, 0) };
        }
        (group, bytes)
    }

    /// Takes memory for unnested rows. Pieces are small, and rows before a sort must not fail because it has filled its
    /// memory; what is not cut may be as large as everything that a query has.
    fn reserve(&self, bytes: usize) -> Result<()> {
        if self.is_cut && bytes <= self.batch_bytes {
            self.memory.resize(self.held + bytes);
            return Ok(());
        }
        self.memory.try_resize(self.held + bytes)
    }

    fn rows(&self, group: &[Piece]) -> Result<RecordBatch> {
        let taken: UInt32Array = group.iter().map(|piece| piece.row as u32).collect::<Vec<_>>().into();
        let columns = self.batch.columns().iter().enumerate().map(|(place, column)| -> Result<ArrayRef> {
            match column.as_list_opt::<i32>() {
                Some(list) if self.is_cut && self.lists.contains(&place) => Ok(Arc::new(cut(list, group)?)),
                _ => Ok(take(column, &taken, None)?),
            }
        });
        Ok(RecordBatch::try_new(self.batch.schema(), columns.collect::<Result<_>>()?)?)
    }
}

impl Iterator for Pieces {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        let (group, bytes) = self.group();
        let (first, last) = (group.first()?, group.last()?);
        if let Err(refused) = self.reserve(bytes) {
            self.next.0 = self.batch.num_rows();
            return Some(Err(refused));
        }
        let is_whole = |piece: &Piece| piece.from == 0 && piece.to == self.counts[piece.row];
        // Rows that are emitted whole need no copy.
        Some(if group.iter().all(is_whole) {
            Ok(self.batch.slice(first.row, last.row - first.row + 1))
        } else {
            self.rows(&group)
        })
    }
}

/// A list array of the given pieces of its lists, which must be consecutive.
fn cut(list: &ListArray, group: &[Piece]) -> Result<ListArray> {
    let DataType::List(field) = list.data_type() else { return internal_err!("a list has items") };
    let mut offsets = Vec::with_capacity(group.len() + 1);
    let mut nulls = Vec::with_capacity(group.len());
    for piece in group {
        let (start, end) = (list.value_offsets()[piece.row], list.value_offsets()[piece.row + 1]);
        let is_valid = list.is_valid(piece.row);
        // A list shorter than its neighbour has no items in the last pieces. Items behind a NULL list go to the first
        // piece.
        let place = |item: usize| if is_valid { start + (item as i32).min(end - start) } else { end };
        if offsets.is_empty() {
            offsets.push(if piece.from == 0 { start } else { place(piece.from) });
        }
        offsets.push(place(piece.to));
        nulls.push(is_valid);
    }
    let nulls = list.nulls().map(|_| NullBuffer::from(nulls));
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    Ok(ListArray::try_new(Arc::clone(field), offsets, Arc::clone(list.values()), nulls)?)
}

/// The number of items of each row, down to a depth of nesting.
fn items(array: &ArrayRef, depth: usize) -> Vec<usize> {
    let ends = ends(array, depth);
    ends.windows(2).map(|of| of[1] - of[0]).collect()
}

/// The offsets at which each row's items begin, and the end of the last.
fn ends(array: &ArrayRef, depth: usize) -> Vec<usize> {
    if depth == 0 {
        return (0..=array.len()).collect();
    }
    let (offsets, values): (Vec<usize>, _) = if let Some(list) = array.as_list_opt::<i32>() {
        (list.value_offsets().iter().map(|at| *at as usize).collect(), list.values())
    } else if let Some(list) = array.as_list_opt::<i64>() {
        (list.value_offsets().iter().map(|at| *at as usize).collect(), list.values())
    } else if let Some(list) = array.as_fixed_size_list_opt() {
        let size = list.value_length() as usize;
        ((0..=list.len()).map(|at| at * size).collect(), list.values())
    } else {
        return (0..=array.len()).collect();
    };
    let below = ends(values, depth - 1);
    offsets.into_iter().map(|at| below[at]).collect()
}

/// The bytes of a column's value in each row.
fn widths_of(column: &ArrayRef) -> Result<Vec<usize>> {
    let kind = column.data_type();
    if kind.is_primitive() || matches!(kind, DataType::Boolean | DataType::Null) {
        return Ok(vec![VALUE_BYTES; column.len()]);
    }
    if matches!(kind, DataType::Utf8View | DataType::BinaryView) {
        return Ok(vec![VIEW_BYTES; column.len()]);
    }
    if kind.is_string() {
        return Ok(functions::widths(column.as_ref())?.into_iter().map(|width| width as usize + VALUE_BYTES).collect());
    }
    let width = |row| -> Result<usize> { Ok(functions::bytes_of(column.slice(row, 1).as_ref())?.max(0) as usize) };
    (0..column.len()).map(width).collect()
}

#[cfg(test)]
mod tests {
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{Field, Int64Type, Schema};
    use datafusion::execution::memory_pool::{GreedyMemoryPool, MemoryPool};

    use super::*;

    fn memory(bytes: usize) -> (Arc<dyn MemoryPool>, MemoryReservation) {
        let pool: Arc<dyn MemoryPool> = Arc::new(GreedyMemoryPool::new(bytes));
        let memory = MemoryConsumer::new("unnest").register(&pool);
        (pool, memory)
    }

    fn lists(of: &[Option<usize>]) -> ArrayRef {
        let items = |count: usize| (0..count).map(|item| Some(item as i64)).collect::<Vec<_>>();
        let lists = of.iter().map(|count| count.map(items));
        Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>(lists))
    }

    #[test]
    fn long_lists_come_in_pieces() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["a", "b", "c", "d"]));
        let long = lists(&[Some(3), Some(20_000), None, Some(0)]);
        let short = lists(&[Some(1), Some(9000), Some(2), None]);
        let fields = [("t", &texts), ("x", &long), ("y", &short)]
            .map(|(name, column)| Field::new(name, column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.to_vec()));
        let batch = RecordBatch::try_new(schema, vec![texts, Arc::clone(&long), Arc::clone(&short)]).unwrap();
        let list = |index_in_input_schema| ListUnnest { index_in_input_schema, depth: 1 };
        let pieces: Vec<RecordBatch> =
            Pieces::of(batch, &[list(1), list(2)], 4 << 20, memory(1 << 30).1).unwrap().collect::<Result<_>>().unwrap();
        let (mut of_texts, mut of_long, mut of_short) = (String::new(), 0, 0);
        for piece in &pieces {
            of_texts.extend(piece.column(0).as_string::<i32>().iter().flatten());
            let (long, short) = (piece.column(1).as_list::<i32>(), piece.column(2).as_list::<i32>());
            for row in 0..piece.num_rows() {
                assert!(long.value_length(row) <= 8192 && short.value_length(row) <= 8192);
                if piece.column(0).as_string::<i32>().value(row) == "b" {
                    let items: Int64Array = long.value(row).as_primitive::<Int64Type>().clone();
                    assert!(items.iter().flatten().eq((of_long..).take(items.len())));
                    of_long += items.len() as i64;
                    of_short += short.value(row).len();
                }
            }
        }
        assert_eq!((of_texts.as_str(), of_long, of_short), ("abbbcd", 20_000, 9000));
        let last = pieces.last().unwrap();
        assert!(last.column(1).is_null(last.num_rows() - 2) && last.column(2).is_null(last.num_rows() - 1));
    }

    #[test]
    fn a_row_is_repeated_few_times_at_once_where_it_is_long() {
        let texts: ArrayRef = Arc::new(StringArray::from_iter_values(["x".repeat(1 << 20)]));
        let long = lists(&[Some(100)]);
        let fields = [("t", &texts), ("x", &long)];
        let fields = fields.map(|(name, column)| Field::new(name, column.data_type().clone(), true));
        let batch = RecordBatch::try_new(Arc::new(Schema::new(fields.to_vec())), vec![texts, long]).unwrap();
        let list = |depth| [ListUnnest { index_in_input_schema: 1, depth }];
        let (pool, held) = memory(1 << 30);
        for piece in Pieces::of(batch.clone(), &list(1), 4 << 20, held).unwrap() {
            assert!((1 << 20..5 << 20).contains(&pool.reserved()), "{} bytes", pool.reserved());
            assert!(piece.unwrap().column(1).as_list::<i32>().value_length(0) < 4);
        }
        // However long it is, it is a row.
        assert_eq!(Pieces::of(batch.clone(), &list(1), 1 << 10, memory(1 << 30).1).unwrap().count(), 100);
        assert_eq!(pool.reserved(), 0);
        // Nested lists are not split.
        assert!(Pieces::of(batch, &list(2), 4 << 20, memory(1 << 30).1).is_err());
    }

    /// Breaks if lists are unnested by their number of items, whatever their size.
    #[test]
    fn long_items_come_few_at_once_and_count() {
        let texts = StringArray::from_iter_values(vec!["x".repeat(100_000); 200]);
        let field = Arc::new(Field::new_list_field(DataType::Utf8, true));
        let long = ListArray::new(field, OffsetBuffer::from_lengths([200]), Arc::new(texts), None);
        let long: ArrayRef = Arc::new(long);
        let schema = Arc::new(Schema::new(vec![Field::new("x", long.data_type().clone(), true)]));
        let batch = RecordBatch::try_new(schema, vec![long]).unwrap();
        let list = |depth| [ListUnnest { index_in_input_schema: 0, depth }];
        let (pool, held) = memory(4 << 20);
        let mut count = 0;
        for piece in Pieces::of(batch.clone(), &list(1), 1 << 20, held).unwrap() {
            let items = piece.unwrap().column(0).as_list::<i32>().value_length(0);
            assert!(
                items <= 10 && pool.reserved() >= (200 + items as usize) * 100_000,
                "{items} in {}",
                pool.reserved()
            );
            count += items;
        }
        assert_eq!((count, pool.reserved()), (200, 0));
        // What is not cut is there as a whole, or not at all.
        let mut whole = Pieces::of(batch, &list(2), 1 << 20, memory(4 << 20).1).unwrap();
        assert!(matches!(whole.next(), Some(Err(_))));
        assert!(whole.next().is_none());
    }
}
