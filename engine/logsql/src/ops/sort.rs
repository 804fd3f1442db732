//! Order: key columns whose bytes compare as values do, DataFusion's sort over them (with spill, and only the best rows
//! under a limit), then offset, limit, partitions and rank.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, BinaryBuilder, StringViewBuilder};
use arrow::compute::{SortOptions, filter_record_batch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::catalog::Session;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::expressions::Column as ColumnExpr;
use datafusion::physical_expr::{LexOrdering, PhysicalSortExpr};
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use quiver_query::{Operator, operator_plan, unpinned};
use quiver_types::logs::TIME;
use serde::{Deserialize, Serialize};

use super::keys::Keys;
use super::packed_columns::{PLAIN_MAX, PackingLayout};
use super::sparse_keys::{Push, SparseKey, sort_keys};
use crate::chunked_stream::map_batches;
use crate::kernels::values::{push_plain_sort_key, push_sort_key};
use crate::nodes::StepExec;
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::{ColumnStorage, Rest, Shape, Texts, batch, binary, texts};
use crate::step::{Batches, Step, StepKind, StepReader};

/// How its steps are read.
pub(crate) const STEPS: &[StepReader] = &[StepReader::of::<SortKeys>(), StepReader::of::<SortStep>()];

/// Sorts rows. Lacks in DataFusion: values that are compared as numbers, times or texts, as they look, for which they get
/// keys; offset, limit and positions of partitions in an order of their own, for which its window functions would sort
/// once more.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Sort {
    pub(crate) input: Shape,
    /// Field and whether descending; all fields when empty.
    pub(crate) by: Vec<(String, bool)>,
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
    /// Groups with an offset and limit of their own.
    pub(crate) partition_by: Vec<String>,
    /// The column that gets the position in the partition, from 1; `None`: there is none.
    pub(crate) rank: Option<String>,
    /// Descending order of all fields, when `by` is empty.
    pub(crate) descending: bool,
    pub(crate) compared: SortComparison,
    /// Names of columns that are not needed after the sort; if there are many columns, these are not held.
    pub(crate) unneeded: Vec<String>,
}

/// How values are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum SortComparison {
    /// As numbers, times or texts, as they look.
    Look,
    /// As `top` does: those behind the first as texts, of several the shorter one first.
    Top,
    /// As texts, byte by byte; columns of times as times.
    Texts,
    /// As they look; those that look alike, as texts: equal values come together.
    Apart,
}

impl Sort {
    /// Sorts all rows by these fields; `true`: descending.
    pub(crate) fn by(input: Shape, by: Vec<(String, bool)>) -> Self {
        Self {
            input,
            by,
            offset: 0,
            limit: None,
            partition_by: Vec::new(),
            rank: None,
            descending: false,
            compared: SortComparison::Look,
            unneeded: Vec::new(),
        }
    }

    /// Whether there are so many keys and columns that rows are held packed, with one key each.
    fn is_packed(&self) -> bool {
        self.input.columns.len().max(self.by.len()) > PLAIN_MAX
    }

    /// Drops columns that are not needed after the sort, if rows are held packed.
    pub(crate) fn with_needs(mut self, needs: &Needs) -> Self {
        if self.is_packed() {
            let is_unneeded = |name: &&str| !needs.has(name) && !self.partition_by.iter().any(|by| by == name);
            self.unneeded = self.input.names().filter(is_unneeded).map(str::to_owned).collect();
            self.unneeded.sort_unstable();
        }
        self
    }

    fn packing(&self) -> Option<PackingLayout> {
        self.is_packed().then(|| PackingLayout::of(&self.input, &self.unneeded))
    }

    /// Adds it to a plan.
    pub(crate) fn plan(self, rows: PartialPlan) -> quiver_types::Result<PartialPlan> {
        let shape = self.output();
        Ok(PartialPlan { plan: operator_plan(self, vec![rows.plan])?, shape, ..rows })
    }

    pub(crate) fn output(&self) -> Shape {
        self.input.with_texts(self.rank.iter().map(String::as_str))
    }

    /// For each key the input column that is a key by itself: a time.
    fn time_columns(&self) -> Vec<Option<usize>> {
        // There may be a thousand keys, so each is looked for among the few times only.
        let columns = self.input.columns.iter().enumerate();
        let times: Vec<(usize, &str)> = columns
            .filter(|(_, column)| column.kind == ColumnStorage::Time)
            .map(|(index, column)| (index, column.name.as_str()))
            .collect();
        let own = |key: usize| {
            if self.compared == SortComparison::Top && key > 0 {
                return None;
            }
            let name = &self.by.get(key)?.0;
            times.iter().find(|(_, time)| time == name).map(|(index, _)| *index)
        };
        (0..self.by.len().max(1)).map(own).collect()
    }

    /// Input columns, then the keys; packed ones, then the one key.
    fn keyed_schema(&self) -> SchemaRef {
        if let Some(packing) = self.packing() {
            let key = Arc::new(Field::new("__q_key0", DataType::Binary, false));
            return Arc::new(Schema::new(packing.fields().into_iter().chain([key]).collect::<Vec<_>>()));
        }
        let mut fields: Vec<Arc<Field>> = self.input.schema().fields().iter().cloned().collect();
        for (i, _) in self.time_columns().iter().enumerate().filter(|(_, own)| own.is_none()) {
            fields.push(Arc::new(Field::new(format!("__q_key{i}"), DataType::Binary, false)));
        }
        Arc::new(Schema::new(fields))
    }

    fn ordering(&self) -> Result<LexOrdering> {
        let mut exprs = Vec::new();
        let (input, keyed) = (self.input.schema().fields().len(), self.keyed_schema());
        if self.is_packed() {
            // The directions of the fields are in the key.
            let descending = self.by.is_empty() && self.descending;
            let (index, options) = (keyed.fields().len() - 1, SortOptions { descending, nulls_first: !descending });
            let key = Arc::new(ColumnExpr::new(keyed.field(index).name(), index));
            exprs.push(PhysicalSortExpr::new(key, options));
            return LexOrdering::new(exprs).ok_or_else(|| DataFusionError::Internal("an order has keys".into()));
        }
        let mut keys = input..keyed.fields().len();
        for (i, own) in self.time_columns().into_iter().enumerate() {
            let index = own.or_else(|| keys.next()).unwrap_or(input);
            let descending = self.by.get(i).map_or(self.descending, |key| key.1);
            let options = SortOptions { descending, nulls_first: !descending };
            exprs.push(PhysicalSortExpr::new(Arc::new(ColumnExpr::new(keyed.field(index).name(), index)), options));
        }
        LexOrdering::new(exprs).ok_or_else(|| DataFusionError::Internal("an order has keys".into()))
    }

    fn fetch(&self) -> Option<usize> {
        if !self.partition_by.is_empty() {
            return None;
        }
        self.limit.and_then(|limit| usize::try_from(limit.saturating_add(self.offset)).ok())
    }

    /// How values of a key are written.
    fn push(&self, key: usize) -> Push {
        let as_they_look: Push = if self.limit.is_some() { push_sort_key } else { push_plain_sort_key };
        match self.compared {
            _ if self.pushes_bytes(key) => push_bytes,
            SortComparison::Top if key > 0 => push_length_first,
            SortComparison::Apart => push_apart,
            SortComparison::Look | SortComparison::Top | SortComparison::Texts => as_they_look,
        }
    }

    /// Whether values of a key are written as they are.
    fn pushes_bytes(&self, key: usize) -> bool {
        match self.compared {
            SortComparison::Top => key > 0 && self.by.len() <= 2,
            SortComparison::Texts => self.by.get(key).is_some_and(|(name, _)| name != TIME),
            SortComparison::Look | SortComparison::Apart => false,
        }
    }
}

/// The keys of rows that are held packed, and the rows.
fn packed(
    sort: &Sort,
    packing: &PackingLayout,
    own: &[bool],
    fields: &[Option<usize>],
    rows: &RecordBatch,
) -> Result<Vec<ArrayRef>> {
    let mut columns = packing.pack(rows)?;
    columns.push(if sort.by.is_empty() {
        row_key(rows, &sort.input)?
    } else {
        let part = |(i, (_, descending)): (usize, &(String, bool))| -> Result<SparseKey> {
            let texts = fields[i].map_or(Ok(Texts::Missing), |field| texts(rows.column(field)))?;
            let (push, is_open) = (sort.push(i), sort.pushes_bytes(i) || sort.compared == SortComparison::Apart);
            Ok(SparseKey { texts, descending: *descending, push, is_open, as_time: own[i] })
        };
        sort_keys(&sort.by.iter().enumerate().map(part).collect::<Result<Vec<_>>>()?, rows.num_rows())
    });
    Ok(columns)
}

/// Puts keys beside rows.
#[derive(Debug, Serialize, Deserialize)]
struct SortKeys(Arc<Sort>);

impl StepKind for SortKeys {
    const KIND: &'static str = "sort.keys";
}

impl Step for SortKeys {
    fn name(&self) -> &'static str {
        "LogsSortKeys"
    }

    fn schema(&self) -> SchemaRef {
        self.0.keyed_schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let schema = self.0.keyed_schema();
        let own: Vec<bool> = self.0.time_columns().iter().map(Option::is_some).collect();
        // Looked up once: there may be a thousand keys, and batches of few rows.
        let fields: Vec<Option<usize>> = self.0.by.iter().map(|(name, _)| self.0.input.index(name)).collect();
        let packing = self.0.packing();
        let map = move |rows: RecordBatch| {
            let input = &self.0.input;
            if let Some(packing) = &packing {
                let columns = packed(&self.0, packing, &own, &fields, &rows)?;
                let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
                return Ok(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?);
            }
            let mut columns = rows.columns().to_vec();
            for (i, _) in own.iter().enumerate().filter(|(_, own)| !**own) {
                columns.push(match fields.get(i) {
                    Some(field) => {
                        let texts = field.map_or(Ok(Texts::Missing), |field| texts(rows.column(field)))?;
                        field_key(&texts, rows.num_rows(), self.0.push(i))
                    }
                    None => row_key(&rows, input)?,
                });
            }
            let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
            Ok(unpinned(RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)?))
        };
        Ok(map_batches(rows, &task, Box::new(map)))
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
        let keyed = StepExec::plan(Arc::new(SortKeys(Arc::clone(&self))), inputs.swap_remove(0));
        let ordering = self.ordering()?;
        let sort = SortExec::new(ordering.clone(), keyed).with_fetch(self.fetch());
        let mut plan: Arc<dyn ExecutionPlan> = Arc::new(sort.with_preserve_partitioning(true));
        if plan.output_partitioning().partition_count() > 1 {
            plan = Arc::new(SortPreservingMergeExec::new(ordering, plan).with_fetch(self.fetch()));
        }
        Ok(StepExec::plan(Arc::new(SortStep(self)), plan))
    }
}

/// No such key begins with another, so what follows it decides between equal ones only.
fn push_apart(key: &mut Vec<u8>, text: &str) {
    push_plain_sort_key(key, text);
    push_bytes(key, text);
}

fn push_bytes(key: &mut Vec<u8>, text: &str) {
    key.extend_from_slice(text.as_bytes());
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

const KEY_BYTES: usize = 11;

/// Keys of the values of one field.
fn field_key(texts: &Texts, rows: usize, push: Push) -> ArrayRef {
    let (mut scratch, mut key) = (String::new(), Vec::new());
    let mut keys = BinaryBuilder::with_capacity(rows, rows * KEY_BYTES);
    for row in 0..rows {
        key.clear();
        push(&mut key, texts.get(row, &mut scratch));
        keys.append_value(&key);
    }
    Arc::new(keys.finish())
}

/// Keys of whole rows: the time, then the other fields in the order of their names.
pub(super) fn row_key(rows: &RecordBatch, shape: &Shape) -> Result<ArrayRef> {
    let mut columns: Vec<(&str, Texts)> =
        shape.names().zip(rows.columns()).map(|(name, column)| Ok((name, texts(column)?))).collect::<Result<_>>()?;
    columns.retain(|(_, texts)| !texts.is_absent());
    columns.sort_by(|a, b| a.0.cmp(b.0));
    let rest = Rest::of(rows, shape);
    let mut keys = Vec::with_capacity(rows.num_rows());
    let mut scratch = vec![String::new(); columns.len()];
    for row in 0..rows.num_rows() {
        let mut fields: Vec<(&str, &str)> =
            columns.iter().zip(&mut scratch).map(|((name, texts), s)| (*name, texts.get(row, s))).collect();
        fields.extend(rest.iter().flat_map(|rest| rest.row(row)));
        fields.retain(|(_, value)| !value.is_empty());
        fields.sort_unstable_by_key(|(name, value)| (*name != TIME, *name, *value));
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

/// Drops the keys; leaves out what offset and limit say, of each partition; numbers the rows.
#[derive(Debug, Serialize, Deserialize)]
struct SortStep(Arc<Sort>);

impl StepKind for SortStep {
    const KIND: &'static str = "sort";
}

impl Step for SortStep {
    fn name(&self) -> &'static str {
        "LogsSort"
    }

    fn detail(&self) -> String {
        self.0.detail()
    }

    fn schema(&self) -> SchemaRef {
        self.0.output().schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let memory = MemoryConsumer::new("partitions of a sort").register(task.memory_pool());
        let mut finish = Finish {
            input: (0..self.0.input.schema().fields().len()).collect(),
            packing: self.0.packing(),
            output: self.0.output(),
            sort: Arc::clone(&self.0),
            seen: HashMap::new(),
            memory,
            bytes: 0,
        };
        Ok(map_batches(rows, &task, Box::new(move |keyed| finish.map(&keyed))))
    }
}

/// The end of a sort while it runs.
struct Finish {
    sort: Arc<Sort>,
    input: Vec<usize>,
    packing: Option<PackingLayout>,
    output: Shape,
    /// How many rows of each partition came.
    seen: HashMap<Box<[u8]>, u64>,
    memory: MemoryReservation,
    bytes: usize,
}

impl Finish {
    fn map(&mut self, keyed: &RecordBatch) -> Result<RecordBatch> {
        let (sort, rows) = (&*self.sort, keyed.num_rows());
        let own = match &self.packing {
            Some(packing) => packing.unpack(keyed)?,
            None => keyed.project(&self.input)?,
        };
        let mut partitions = Keys::new(&own, &sort.input, &sort.partition_by)?;
        let rank = sort.rank.as_ref().and_then(|name| self.output.index(name));
        let last = sort.limit.map(|limit| limit.saturating_add(sort.offset));
        let (mut kept, mut ranks) = (Vec::with_capacity(rows), StringViewBuilder::with_capacity(rows));
        for row in 0..rows {
            let key = partitions.of(row);
            let count = if let Some(count) = self.seen.get_mut(key) {
                count
            } else {
                self.bytes += PARTITION_BYTES + key.len();
                self.seen.entry(key.into()).or_default()
            };
            *count += 1;
            kept.push(*count > sort.offset && last.is_none_or(|last| *count <= last));
            if rank.is_some() {
                ranks.append_value(count.to_string());
            }
        }
        self.memory.try_resize(self.bytes)?;
        let mut columns: Vec<ArrayRef> = own.columns().to_vec();
        if let Some(index) = rank {
            let ranks: ArrayRef = Arc::new(ranks.finish());
            if index < sort.input.columns.len() { columns[index] = ranks } else { columns.insert(index, ranks) }
        }
        let rows = batch(&self.output, columns, rows)?;
        if kept.iter().all(|kept| *kept) {
            return Ok(rows);
        }
        Ok(filter_record_batch(&rows, &kept.into())?)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringViewArray};

    use super::*;
    use crate::rows::{Column, RestBuilder};

    fn sort(by: &[&str]) -> Sort {
        let column = |name: &str, kind| Column { name: name.to_owned(), kind };
        let input =
            Shape { columns: vec![column("t", ColumnStorage::Time), column("a", ColumnStorage::Text)], rest: false };
        Sort::by(input, by.iter().map(|name| ((*name).to_owned(), false)).collect())
    }

    #[test]
    fn rows_that_are_looked_for() {
        let fetch = |offset: u64, limit: Option<u64>, partition_by: &[&str]| {
            let partition_by = partition_by.iter().map(|name| (*name).to_owned()).collect();
            Sort { offset, limit, partition_by, ..sort(&["a"]) }.fetch()
        };
        assert_eq!((fetch(0, None, &[]), fetch(7, None, &[])), (None, None));
        assert_eq!((fetch(0, Some(2), &[]), fetch(3, Some(2), &[])), (Some(2), Some(5)));
        assert_eq!(fetch(1, Some(u64::MAX), &[]), Some(usize::MAX));
        // Each partition has rows of its own.
        assert_eq!(fetch(0, Some(2), &["g"]), None);
    }

    #[test]
    fn columns_of_keys() {
        let names = |sort: Sort| -> Vec<String> {
            sort.keyed_schema().fields().iter().skip(2).map(|field| field.name().clone()).collect()
        };
        // A time is a key by itself.
        assert_eq!(names(sort(&["t", "a"])), ["__q_key1"]);
        assert_eq!(names(sort(&["a", "t"])), ["__q_key0"]);
        assert_eq!(names(sort(&["t"])), [""; 0]);
        assert_eq!(names(Sort { compared: SortComparison::Top, ..sort(&["t", "t"]) }), ["__q_key1"]);
        assert_eq!(names(sort(&["none"])), ["__q_key0"]);
        assert_eq!(names(sort(&[])), ["__q_key0"]);
        let ranked = |name: &str| Sort { rank: Some(name.to_owned()), ..sort(&["a"]) }.output().to_string();
        assert_eq!((ranked("r"), ranked("a")), ("t, a, r".to_owned(), "t, a".to_owned()));
    }

    #[test]
    fn a_thousand_keys_are_put_in_order() {
        let names: Vec<String> = (0..1000).map(|n| format!("f{n}")).collect();
        let column = |name: &String| Column { name: name.clone(), kind: ColumnStorage::Text };
        let time = Column { name: "t".to_owned(), kind: ColumnStorage::Time };
        let input = Shape { columns: names.iter().map(column).chain([time]).collect(), rest: false };
        let by: Vec<(String, bool)> = names.iter().chain([&"t".to_owned()]).map(|n| (n.clone(), false)).collect();
        let mut sort = Sort::by(input, by).with_needs(&Needs::of(["t", "f7"]));
        let columns = |sort: &Sort| {
            let schema = sort.keyed_schema();
            let names: Vec<String> = schema.fields().iter().map(|field| field.name().clone()).collect();
            let ordering = sort.ordering().expect("an order");
            let keys: Vec<String> =
                ordering.iter().map(|key| format!("{} {}", key.expr, key.options.descending)).collect();
            (names.join(" "), keys.join(" "))
        };
        assert_eq!(columns(&sort), ("t __q_packed __q_key0".to_owned(), "__q_key0@2 false".to_owned()));
        assert_eq!((sort.unneeded.len(), sort.unneeded.contains(&"f7".to_owned())), (999, false));
        (sort.by, sort.descending) = (Vec::new(), true);
        assert_eq!(columns(&sort).1, "__q_key0@2 true");
    }

    #[test]
    fn texts_after_their_length() {
        let key = |text: &str| {
            let mut key = Vec::new();
            push_length_first(&mut key, text);
            key
        };
        let mut texts = ["ab", "b", "", "aaa", "a", "ä"];
        texts.sort_by_key(|text| key(text));
        assert_eq!(texts, ["", "a", "b", "ab", "ä", "aaa"]);
        assert_eq!(key(&"x".repeat(300))[..3], [0xac, 0x02, b'x']);
        assert_eq!(key(&"x".repeat(127))[..2], [0x7f, b'x']);
    }

    #[test]
    fn rows_have_one_key_wherever_their_fields_stand() {
        let column = |values: [&str; 3]| -> ArrayRef {
            Arc::new(values.iter().map(|value| Some(*value).filter(|v| !v.is_empty())).collect::<StringViewArray>())
        };
        let (a, b) = (["x", "", "x"], ["2", "10", ""]);
        let columns = Shape::of_texts(["b", "a"]);
        let of_columns = batch(&columns, vec![column(b), column(a)], 3).expect("rows");
        let mut maps = RestBuilder::new(3);
        for value in b {
            maps.push("b", value);
            maps.end_row();
        }
        let with_map = Shape::of_texts(["a"]).with_rest();
        let of_map = batch(&with_map, vec![column(a), maps.finish().expect("a map")], 3).expect("rows");
        let keys = row_key(&of_columns, &columns).expect("keys");
        assert_eq!(&keys, &row_key(&of_map, &with_map).expect("keys"));
        // Names are compared first: a row without `a` sorts behind those that have it. Then values; of equal ones the shorter
        // row sorts first.
        let keys = keys.as_binary::<i32>();
        let mut order = [0, 1, 2];
        order.sort_by_key(|row| keys.value(*row));
        assert_eq!(order, [2, 0, 1]);
    }
}
