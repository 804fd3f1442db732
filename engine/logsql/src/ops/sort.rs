//! Order: key columns whose bytes compare as values do, DataFusion's sort over them (with spill, and only the best rows
//! under a limit), then offset, limit, partitions and rank.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::compute::{SortOptions, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryPool};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use quiver_query::Operator;

use crate::kernels::values::{push_plain_sort_key, push_sort_key};
use crate::nodes::{Open, StreamExec};
use crate::pieces::{BatchMap, map_batches};
use crate::rows::{Kind, Rest, Shape, Texts, batch, binary, texts_of};

/// Sorts rows.
#[derive(Debug)]
pub(crate) struct Sort {
    pub(crate) input: Shape,
    /// Field and whether descending; all fields when empty.
    pub(crate) by: Vec<(String, bool)>,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    /// Groups with an offset and limit of their own.
    pub(crate) partition_by: Vec<String>,
    /// The column of positions.
    pub(crate) rank: Option<String>,
    /// Descending order of all fields, when `by` is empty.
    pub(crate) descending: bool,
    /// As `top` orders: keys behind the first are compared as texts, of several the shorter one first.
    pub(crate) of_top: bool,
}

impl Sort {
    pub(crate) fn output(&self) -> Shape {
        self.input.with_texts(self.rank.iter().map(String::as_str))
    }

    /// Input columns, then the keys.
    fn keyed_schema(&self) -> SchemaRef {
        let mut fields: Vec<Arc<Field>> = self.input.schema().fields().iter().cloned().collect();
        for i in 0..self.by.len().max(1) {
            if self.time_column(i).is_none() {
                fields.push(Arc::new(Field::new(format!("__q_key{i}"), DataType::Binary, false)));
            }
        }
        Arc::new(Schema::new(fields))
    }

    /// The input column that is a key by itself: a time.
    fn time_column(&self, key: usize) -> Option<usize> {
        let index = self.input.index(&self.by.get(key)?.0)?;
        (self.input.columns[index].kind == Kind::Time).then_some(index)
    }

    fn ordering(&self) -> Result<LexOrdering> {
        let mut exprs = Vec::new();
        let mut next = self.input.schema().fields().len();
        for i in 0..self.by.len().max(1) {
            let index = self.time_column(i).unwrap_or_else(|| {
                next += 1;
                next - 1
            });
            let name = self.keyed_schema().field(index).name().clone();
            let descending = self.by.get(i).map_or(self.descending, |key| key.1);
            let options = SortOptions { descending, nulls_first: !descending };
            exprs.push(PhysicalSortExpr::new(Arc::new(ColumnExpr::new(&name, index)), options));
        }
        LexOrdering::new(exprs).ok_or_else(|| DataFusionError::Internal("an order has keys".into()))
    }

    fn fetch(&self) -> Option<usize> {
        if !self.partition_by.is_empty() {
            return None;
        }
        self.limit.and_then(|limit| usize::try_from(limit.saturating_add(self.offset)).ok())
    }

    fn add_keys(&self) -> BatchMap {
        let (input, by, schema) = (self.input.clone(), self.by.clone(), self.keyed_schema());
        let first: fn(&mut Vec<u8>, &str) = if self.limit.is_some() { push_sort_key } else { push_plain_sort_key };
        let others = match (self.of_top, self.by.len()) {
            (false, _) => first,
            (true, ..=2) => |key: &mut Vec<u8>, text: &str| key.extend_from_slice(text.as_bytes()),
            (true, _) => push_length_first,
        };
        let own: Vec<bool> = (0..self.by.len().max(1)).map(|i| self.time_column(i).is_some()).collect();
        Box::new(move |rows| {
            let mut columns = rows.columns().to_vec();
            for (i, _) in own.iter().enumerate().filter(|(_, own)| !**own) {
                columns.push(match by.get(i) {
                    Some((name, _)) => {
                        let push = if i == 0 { first } else { others };
                        field_key(&texts_of(&rows, &input, name)?, rows.num_rows(), push)
                    }
                    None => row_key(&rows, &input)?,
                });
            }
            let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
            Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?)
        })
    }
}

impl Operator for Sort {
    fn name(&self) -> &'static str {
        "LogsSort"
    }

    fn detail(&self) -> String {
        let by: Vec<String> =
            self.by.iter().map(|(name, desc)| format!("{name}{}", if *desc { " desc" } else { "" })).collect();
        format!(
            "by=[{}] offset={} limit={:?} partition_by={:?}",
            by.join(", "),
            self.offset,
            self.limit,
            self.partition_by
        )
    }

    fn schema(&self) -> SchemaRef {
        self.output().schema()
    }

    fn physical(
        self: Arc<Self>,
        mut inputs: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let own = Arc::clone(&self);
        let keyed = StreamExec::new(
            "LogsSortKeys",
            String::new(),
            self.keyed_schema(),
            inputs.swap_remove(0),
            map_batches(move || own.add_keys()),
        );
        let ordering = self.ordering()?;
        let sort = SortExec::new(ordering.clone(), Arc::new(keyed)).with_fetch(self.fetch());
        let mut plan: Arc<dyn ExecutionPlan> = Arc::new(sort.with_preserve_partitioning(true));
        if plan.output_partitioning().partition_count() > 1 {
            plan = Arc::new(SortPreservingMergeExec::new(ordering, plan).with_fetch(self.fetch()));
        }
        let own = Arc::clone(&self);
        Ok(StreamExec::each(&*self, plan, finish(own)))
    }
}

/// A text after its length, as a LEB128 number.
fn push_length_first(key: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    while length > 0x7f {
        key.push(length as u8 | 0x80);
        length >>= 7;
    }
    key.push(length as u8);
    key.extend_from_slice(text.as_bytes());
}

/// Keys of the values of one field.
fn field_key(texts: &Texts, rows: usize, push: fn(&mut Vec<u8>, &str)) -> ArrayRef {
    let mut scratch = String::new();
    let mut keys = Vec::with_capacity(rows);
    for row in 0..rows {
        let mut key = Vec::new();
        push(&mut key, texts.get(row, &mut scratch));
        keys.push(key);
    }
    binary(keys)
}

/// Keys of whole rows: fields in the order of their names.
fn row_key(rows: &RecordBatch, shape: &Shape) -> Result<ArrayRef> {
    let mut columns: Vec<(&str, Texts)> =
        shape.names().map(|name| Ok((name, texts_of(rows, shape, name)?))).collect::<Result<_>>()?;
    columns.sort_by(|a, b| a.0.cmp(b.0));
    let rest = Rest::of(rows, shape);
    let mut keys = Vec::with_capacity(rows.num_rows());
    let mut scratch = vec![String::new(); columns.len()];
    for row in 0..rows.num_rows() {
        let mut fields: Vec<(&str, &str)> =
            columns.iter().zip(&mut scratch).map(|((name, texts), s)| (*name, texts.get(row, s))).collect();
        fields.extend(rest.iter().flat_map(|rest| rest.row(row)));
        fields.retain(|(_, value)| !value.is_empty());
        fields.sort_unstable();
        let mut key = Vec::new();
        for (name, value) in fields {
            key.extend_from_slice(name.as_bytes());
            key.push(0);
            push_plain_sort_key(&mut key, value);
        }
        keys.push(key);
    }
    Ok(binary(keys))
}

/// What a partition takes beside its values.
const PARTITION_BYTES: usize = 64;
/// What a value of it takes beside its bytes.
const VALUE_BYTES: usize = 32;

/// Drops the keys; leaves out what offset and limit say, of each partition; numbers the rows.
fn finish(sort: Arc<Sort>) -> Open {
    Arc::new(move |rows, task| {
        let (sort, pool) = (Arc::clone(&sort), Arc::clone(task.memory_pool()));
        map_batches(move || finish_batches(Arc::clone(&sort), &pool))(rows, task)
    })
}

fn finish_batches(sort: Arc<Sort>, pool: &Arc<dyn MemoryPool>) -> BatchMap {
    let output = sort.output();
    let rank = sort.rank.as_ref().and_then(|name| output.index(name));
    let mut seen: HashMap<Vec<String>, u64> = HashMap::new();
    let (reservation, mut bytes) = (MemoryConsumer::new("partitions of a sort").register(pool), 0);
    Box::new(move |keyed| {
        let rows = keyed.num_rows();
        let input: Vec<usize> = (0..sort.input.schema().fields().len()).collect();
        let own = keyed.project(&input)?;
        let partitions =
            sort.partition_by.iter().map(|name| texts_of(&own, &sort.input, name)).collect::<Result<Vec<_>>>()?;
        let (mut kept, mut ranks) = (Vec::with_capacity(rows), StringViewBuilder::with_capacity(rows));
        let mut scratch = String::new();
        for row in 0..rows {
            let partition = partitions.iter().map(|texts| texts.get(row, &mut scratch).to_owned()).collect();
            let count = seen.entry(partition).or_insert_with_key(|values: &Vec<String>| {
                bytes += PARTITION_BYTES + values.iter().map(|v| v.len() + VALUE_BYTES).sum::<usize>();
                0
            });
            *count += 1;
            let last = sort.limit.map(|limit| limit.saturating_add(sort.offset));
            kept.push(*count > sort.offset && last.is_none_or(|last| *count <= last));
            if rank.is_some() {
                ranks.append_value(count.to_string());
            }
        }
        reservation.try_resize(bytes)?;
        let mut columns: Vec<ArrayRef> = own.columns().to_vec();
        if let Some(index) = rank {
            let ranks: ArrayRef = Arc::new(ranks.finish());
            if index < sort.input.columns.len() { columns[index] = ranks } else { columns.insert(index, ranks) }
        }
        let rows = batch(&output, columns, rows)?;
        if kept.iter().all(|kept| *kept) {
            return Ok(rows);
        }
        Ok(filter_record_batch(&rows, &kept.into())?)
    })
}
