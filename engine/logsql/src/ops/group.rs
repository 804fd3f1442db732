//! Groups of one partition: rows are numbered by the values of their keys, and the functions of `stats_functions` add them up.
//!
//! A key column becomes codes of a batch first (`codes.rs`), so that a value is looked at once per code and not once per
//! row. What is kept is given out when it grows too large; whoever merges it can spill.

mod codes;
mod short_keys;
mod streams;

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, BooleanArray, UInt64Array};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use foldhash::fast::FixedState;
use futures::StreamExt;
use hashbrown::HashTable;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::filter::evaluate;
use super::grouping::{Aggregate, Call};
use crate::chunked_stream::Pieces;
use crate::rows::{rows_within, texts_of};
use crate::stats_functions::{GroupRows, StatsAccumulator};
use crate::step::{Batches, Step, StepKind, StepReader};
use codes::{Codes, HASHER, KeyValues};
use short_keys::Shorts;

/// How its step is read.
pub(super) const STEPS: &[StepReader] = &[StepReader::of::<GroupStep>()];

/// Bytes of keys and states that are kept before they are given out: at most, and of the memory of a query.
const KEPT_BYTES: usize = 64 << 20;
const KEPT_PART: usize = 16;
/// Bytes of texts that all functions together may keep before memory is looked at.
const TEXT_BYTES: usize = 4 << 20;
/// Combinations of codes for which a table by position is made.
const DENSE_MAX: usize = 1 << 16;
/// Runs are few when they have so many rows on average: a run takes the memory of three rows.
const RUN_ROWS: usize = 4;
/// A combination that has no group yet.
const UNKNOWN: u32 = u32::MAX;

/// Groups the rows of a partition; gives keys and states.
#[derive(Debug)]
pub(super) struct GroupStep {
    pub(super) aggregate: Arc<Aggregate>,
    pub(super) states: SchemaRef,
}

// The states follow from the functions.
impl Serialize for GroupStep {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.aggregate.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for GroupStep {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let aggregate = Arc::<Aggregate>::deserialize(deserializer)?;
        let states = aggregate.states().map_err(D::Error::custom)?;
        Ok(Self { aggregate, states })
    }
}

impl StepKind for GroupStep {
    const KIND: &'static str = "group";
}

impl Step for GroupStep {
    fn name(&self) -> &'static str {
        "LogsGroup"
    }

    fn detail(&self) -> String {
        self.aggregate.text.clone()
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.states)
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let (aggregate, pool) = (Arc::clone(&self.aggregate), task.memory_pool());
        let kept_bytes = match pool.memory_limit() {
            MemoryLimit::Finite(bytes) => KEPT_BYTES.min(bytes / KEPT_PART),
            _ => KEPT_BYTES,
        };
        let state = Partial {
            kept_bytes,
            text_bytes: text_bytes(&aggregate.calls),
            groups: Groups::new(&aggregate),
            calls: aggregate.accumulators(),
            aggregate,
            schema: Arc::clone(&self.states),
            memory: MemoryConsumer::new("LogsGroup").with_can_spill(true).register(pool),
            rows: Some(Pieces::new(rows)),
        };
        let batches =
            futures::stream::try_unfold(state, async |mut state| Ok(state.next().await?.map(|batch| (batch, state))));
        Ok(batches.boxed())
    }
}

struct Partial {
    kept_bytes: usize,
    /// Bytes of texts that are looked at at once; none: no function keeps them.
    text_bytes: Option<usize>,
    aggregate: Arc<Aggregate>,
    schema: SchemaRef,
    groups: Groups,
    calls: Vec<StatsAccumulator>,
    memory: MemoryReservation,
    /// None when all rows were read.
    rows: Option<Pieces>,
}

impl Partial {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        // A caller that asks for more has dropped the previous batch, or accounts for it itself.
        self.memory.free();
        let Some(rows) = &mut self.rows else { return Ok(None) };
        while let Some(batch) = rows.next().await {
            let (mut batch, began) = (batch?, Instant::now());
            let fitting = self.text_bytes.map_or(batch.num_rows(), |bytes| rows_within(&batch, bytes));
            if fitting < batch.num_rows() {
                let first = batch.slice(0, fitting);
                rows.leave(std::mem::replace(&mut batch, first), fitting);
            }
            self.groups.number(&batch, &self.aggregate)?;
            if let Some(counts) = self.aggregate.row_counts(&batch) {
                self.groups.weigh(counts);
            }
            if !self.aggregate.calls.iter().all(Call::counts_runs) {
                self.groups.expand();
            }
            let with_units = streams::whole(&batch, &self.aggregate.input, &self.aggregate.stream_keys)?;
            for (call, accumulator) in self.aggregate.calls.iter().zip(&mut self.calls) {
                let mask = match &call.condition {
                    None => None,
                    Some(filter) => Some(BooleanArray::new(evaluate(filter, &batch, &self.aggregate.input)?, None)),
                };
                let values = self.aggregate.values(call, &batch);
                let rows = GroupRows {
                    rows: batch.num_rows(),
                    groups: &self.groups.of_row,
                    runs: &self.groups.runs,
                    with_units: with_units.as_ref(),
                };
                accumulator.add(&values, &rows, mask.as_ref(), self.groups.len())?;
            }
            rows.took(batch.num_rows(), began.elapsed());
            let bytes = self.groups.size() + self.calls.iter().map(GroupsAccumulator::size).sum::<usize>();
            let full = self.memory.try_resize(bytes);
            if self.groups.len() > 1 && (bytes > self.kept_bytes || full.is_err()) {
                return self.emit().map(Some);
            }
            full?;
        }
        self.rows = None;
        // Without keys there is always one group.
        if self.aggregate.keys.is_empty() {
            self.groups.count = 1;
            for accumulator in &mut self.calls {
                accumulator.resize(1);
            }
        }
        if self.groups.len() == 0 { Ok(None) } else { self.emit().map(Some) }
    }

    fn emit(&mut self) -> Result<RecordBatch> {
        let count = self.groups.len();
        let mut columns = self.groups.take();
        for accumulator in &mut self.calls {
            accumulator.resize(count);
            columns.extend(GroupsAccumulator::state(accumulator, EmitTo::All)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Bytes of texts that calls may look at before memory is: each keeps its own copy of every argument. `None`: none keeps texts.
fn text_bytes(calls: &[Call]) -> Option<usize> {
    let keeping = calls.iter().filter(|call| call.function.keeps_texts());
    TEXT_BYTES.checked_div(keeping.map(|call| call.args.len().max(1)).sum())
}

/// Finds runs of rows with equal codes, each with its code; `false`: there are too many of them.
fn runs_of<C: Copy + Eq + TryInto<usize>>(codes: &[C], runs: &mut Vec<(usize, Range<usize>)>) -> bool {
    let Some((_, others)) = codes.split_first() else { return true };
    let changes = |own: &[C], next: &[C]| own.iter().zip(next).map(|(a, b)| u32::from(a != b)).sum::<u32>();
    let all = changes(codes, others) as usize;
    if all > codes.len() / RUN_ROWS {
        return false;
    }
    runs.reserve(all + 1);
    let (mut start, code) = (0, |row: usize| codes[row].try_into().unwrap_or(usize::MAX));
    for (first, (own, next)) in (0..).step_by(64).zip(codes.chunks(64).zip(others.chunks(64))) {
        // Many at once, without a look at each result.
        if changes(own, next) == 0 {
            continue;
        }
        let mut ends =
            (0u32..).zip(own.iter().zip(next)).fold(0u64, |bits, (i, (a, b))| bits | (u64::from(a != b) << i));
        while ends != 0 {
            let end = first + ends.trailing_zeros() as usize + 1;
            runs.push((code(start), start..end));
            start = end;
            ends &= ends - 1;
        }
    }
    runs.push((code(start), start..codes.len()));
    true
}

/// Numbers rows by their keys.
#[derive(Debug)]
struct Groups {
    /// Of each key, its value in each group.
    keys: Vec<KeyValues>,
    /// Groups by their keys.
    table: HashTable<u32>,
    /// Groups by the one key, where that is a short text.
    shorts: Shorts,
    count: usize,
    /// Of each key, the batch at hand.
    codes: Vec<Codes>,
    /// Group of each combination of codes of the batch at hand.
    dense: Vec<u32>,
    sparse: HashMap<u64, u32, FixedState>,
    /// Combination of codes of each row of the batch at hand.
    combined: Vec<u64>,
    /// Group of each row of the batch at hand.
    of_row: Vec<usize>,
    /// The groups as runs of rows of one group, if they are few.
    runs: Vec<(usize, Range<usize>)>,
}

impl Groups {
    fn new(aggregate: &Aggregate) -> Self {
        let kinds = || (0..aggregate.keys.len()).map(|i| aggregate.key_kind(i));
        Self {
            keys: kinds().map(KeyValues::new).collect(),
            table: HashTable::new(),
            shorts: Shorts::default(),
            count: 0,
            codes: kinds().map(Codes::new).collect(),
            dense: Vec::new(),
            sparse: HashMap::default(),
            combined: Vec::new(),
            of_row: Vec::new(),
            runs: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.count
    }

    fn size(&self) -> usize {
        self.keys.iter().map(KeyValues::bytes).sum::<usize>() + self.table.capacity() * 8 + self.shorts.bytes()
    }

    /// Takes the keys of all groups out.
    fn take(&mut self) -> Vec<ArrayRef> {
        let columns = self.keys.iter_mut().map(KeyValues::array).collect();
        self.keys.iter_mut().for_each(KeyValues::clear);
        self.table.clear();
        self.shorts.clear();
        self.count = 0;
        columns
    }

    /// Finds the group of each row of a batch.
    fn number(&mut self, batch: &RecordBatch, aggregate: &Aggregate) -> Result<()> {
        let rows = batch.num_rows();
        self.of_row.clear();
        self.runs.clear();
        if aggregate.keys.is_empty() {
            self.count = 1;
            self.runs.push((0, 0..rows));
            return Ok(());
        }
        for (key, codes) in aggregate.keys.iter().zip(&mut self.codes) {
            // Rows that stand for several were told apart before.
            let told_apart = aggregate.row_counts(batch).is_some();
            codes.fill(&texts_of(batch, &aggregate.input, &key.field)?, key, rows, told_apart);
        }
        let single = self.codes.len() == 1;
        self.sparse.clear();
        self.dense.clear();
        let at_once = self.number_shorts();
        if !at_once {
            let within = |n: usize, c: &Codes| n.checked_mul(c.values.len().max(1)).filter(|n| *n <= DENSE_MAX);
            let all = if single { Some(self.codes[0].values.len()) } else { self.codes.iter().try_fold(1, within) };
            self.dense.resize(all.unwrap_or(0), UNKNOWN);
        }
        let few = if single {
            runs_of(self.codes[0].of_row(), &mut self.runs)
        } else {
            self.combine();
            runs_of(&self.combined, &mut self.runs)
        };
        if few {
            // Of each run its code stands where its group comes.
            for at in 0..self.runs.len() {
                let (code, rows) = &self.runs[at];
                let group = self.group_of(*code as u64, rows.start);
                self.runs[at].0 = group;
            }
            return Ok(());
        }
        self.of_row.reserve(rows);
        if at_once {
            let Self { of_row, codes, dense, .. } = self;
            of_row.extend(codes[0].of_row().iter().map(|code| dense[*code as usize] as usize));
            return Ok(());
        }
        let mut before = None;
        for row in 0..rows {
            let code = if single { u64::from(self.codes[0].of_row()[row]) } else { self.combined[row] };
            let group = match before {
                Some((own, group)) if own == code => group,
                _ => self.group_of(code, row),
            };
            before = Some((code, group));
            self.of_row.push(group);
        }
        Ok(())
    }

    /// Finds the groups of all codes at once, where the only key is a short text and each code has a row; `false`: it is not.
    fn number_shorts(&mut self) -> bool {
        let Self { keys, shorts, count, codes, dense, .. } = self;
        let ([KeyValues::Text(known, _)], [codes]) = (keys.as_mut_slice(), codes.as_slice()) else { return false };
        let Some(views) = codes.shorts_of_rows() else { return false };
        shorts.number(views, |view| HASHER.hash_one(view), known, dense);
        *count = known.len();
        true
    }

    /// Makes one code of each row for all keys together.
    fn combine(&mut self) {
        let Self { codes, combined, .. } = self;
        combined.clear();
        let Some((first, others)) = codes.split_first() else { return };
        combined.extend(first.of_row().iter().map(|&code| u64::from(code)));
        let mut all = first.values.len() as u64;
        for codes in others {
            let count = codes.values.len() as u64;
            all = all.checked_mul(count).unwrap_or_else(|| {
                // Too many for a number: only those that occur count.
                let mut known: HashMap<u64, u64, FixedState> = HashMap::default();
                for code in combined.iter_mut() {
                    let next = known.len() as u64;
                    *code = *known.entry(*code).or_insert(next);
                }
                known.len() as u64 * count
            });
            combined.iter_mut().zip(codes.of_row()).for_each(|(c, &code)| *c = *c * count + u64::from(code));
        }
    }

    /// Makes the group of each row of the runs, if that was not done yet.
    fn expand(&mut self) {
        if self.of_row.is_empty() {
            self.runs.iter().for_each(|(group, rows)| self.of_row.resize(rows.end, *group));
        }
    }

    /// Lets each row of the batch stand for so many (none: one): the runs of groups become as long.
    fn weigh(&mut self, counts: &UInt64Array) {
        self.expand();
        self.runs.clear();
        let mut end = 0;
        for (group, count) in self.of_row.iter().zip(counts) {
            let start = end;
            end += count.unwrap_or(1) as usize;
            self.runs.push((*group, start..end));
        }
    }

    /// The group of a combination of codes, which a row has.
    fn group_of(&mut self, code: u64, row: usize) -> usize {
        let known = match self.dense.get(code as usize) {
            Some(known) => *known,
            None => self.sparse.get(&code).copied().unwrap_or(UNKNOWN),
        };
        if known != UNKNOWN {
            return known as usize;
        }
        let group = self.find(row);
        match self.dense.get_mut(code as usize) {
            Some(place) => *place = group,
            None => _ = self.sparse.insert(code, group),
        }
        group as usize
    }

    /// Looks the keys of a row up among all groups.
    fn find(&mut self, row: usize) -> u32 {
        let Self { keys, shorts, table, count, codes, .. } = self;
        if let ([KeyValues::Text(known, _)], [c]) = (keys.as_mut_slice(), codes.as_slice())
            && let Some(view) = c.values.short(c.of_row()[row] as usize)
        {
            let group = shorts.one(view, &|view| HASHER.hash_one(view), known);
            *count = known.len();
            return group;
        }
        let mix = |hash: u64, more: u64| hash.rotate_left(23) ^ more;
        let hash = codes.iter().fold(0, |hash, c| mix(hash, c.values.hash(c.of_row()[row] as usize)));
        let same = |group: &u32| {
            let group = *group as usize;
            keys.iter().zip(codes.iter()).all(|(own, c)| own.same(group, &c.values, c.of_row()[row] as usize))
        };
        if let Some(group) = table.find(hash, same) {
            return *group;
        }
        let group = *count as u32;
        *count += 1;
        for (own, c) in keys.iter_mut().zip(codes.iter()) {
            own.push_from(&c.values, c.of_row()[row] as usize);
        }
        let keys = &*keys;
        table.insert_unique(hash, group, |group| keys.iter().fold(0, |hash, own| mix(hash, own.hash(*group as usize))));
        group
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use arrow::array::{Array, AsArray, StringViewArray};
    use quiver_types::logs::StoredField;

    use super::*;
    use crate::ops::grouping::Key;
    use crate::rows::{Column, ColumnStorage, Shape, batch};
    use crate::stats_functions::{Arg, Function};

    /// Breaks if a batch is looked at by its texts alone: a hundred functions made a hundred copies of 4 MiB at once.
    #[test]
    fn many_functions_look_at_few_texts_at_once() {
        let values = |args: usize| Call {
            function: Function::Values { limit: None },
            args: vec![Arg::Field("a".to_owned()); args],
            condition: None,
            name: "v".to_owned(),
        };
        assert_eq!(text_bytes(&[Call::count_rows("n")]), None);
        assert_eq!(text_bytes(&[Call::count_rows("n"), values(1)]), Some(TEXT_BYTES));
        let many: Vec<Call> = (0..32).map(|_| values(2)).collect();
        assert_eq!(text_bytes(&many), Some(TEXT_BYTES / 64));
    }

    /// Columns of as many texts as there are keys, in every form that holds them.
    fn columns(texts: &[Vec<String>], kind: ColumnStorage) -> Vec<ArrayRef> {
        let column = |texts: &Vec<String>| -> ArrayRef {
            let options = || texts.iter().map(|t| (!t.is_empty()).then_some(t.as_str()));
            match kind {
                ColumnStorage::Stored => StoredField::Coded(options().collect()).into_array(texts.len()),
                _ => Arc::new(options().collect::<StringViewArray>()),
            }
        };
        texts.iter().map(column).collect()
    }

    #[test]
    fn groups_are_those_of_a_plain_map() {
        let value = |row: usize, key: usize| match (row * (key + 3)) % 41 {
            0 => String::new(),
            n if n % 5 == 0 => format!("a text that is longer than a view {}", n % 11),
            n => format!("v{}", n % (key + 7)),
        };
        for keys in [1, 2, 3, 9] {
            // Values that are all different make more combinations than a number holds.
            let texts = |from: usize, run: usize| -> Vec<Vec<String>> {
                // Runs of no rows: every value is another.
                let text = move |row: usize, key| row.checked_div(run).map_or(row.to_string(), |row| value(row, key));
                let one = |key: usize| move |row: usize| text(row, key);
                (0..keys).map(|key| (from..from + 2000).map(one(key)).collect()).collect()
            };
            let names: Vec<String> = (0..keys).map(|i| format!("k{i}")).collect();
            for kind in [ColumnStorage::Text, ColumnStorage::Stored] {
                let shape_columns = names.iter().map(|name| Column { name: name.clone(), kind }).collect();
                let input = Shape { columns: shape_columns, rest: false };
                let by = names.iter().map(|field| Key { field: field.clone(), bucket: None }).collect();
                let aggregate = Aggregate {
                    input: input.clone(),
                    keys: by,
                    calls: Vec::new(),
                    stream_keys: Vec::new(),
                    text: String::new(),
                };
                let mut groups = Groups::new(&aggregate);
                let (mut own, mut expected) = (Vec::new(), Vec::new());
                let mut known: BTreeMap<Vec<String>, usize> = BTreeMap::new();
                for (from, run) in [(0, 1), (1000, 0), (500, 1), (700, 300), (0, 65), (1, 3), (30, 5), (64, 64)] {
                    let texts = texts(from, run);
                    let rows = batch(&input, columns(&texts, kind), 2000).expect("a batch");
                    groups.number(&rows, &aggregate).expect("numbered");
                    groups.expand();
                    own.extend_from_slice(&groups.of_row);
                    for row in 0..2000 {
                        let key: Vec<String> = texts.iter().map(|column| column[row].clone()).collect();
                        let next = known.len();
                        expected.push(*known.entry(key).or_insert(next));
                    }
                }
                assert_eq!(own, expected, "{keys} keys, {kind:?}");
                let arrays = groups.take();
                for (key, group) in &known {
                    for (text, array) in key.iter().zip(&arrays) {
                        let array = array.as_string_view();
                        assert_eq!(if array.is_null(*group) { "" } else { array.value(*group) }, text);
                    }
                }
            }
        }
    }
}
