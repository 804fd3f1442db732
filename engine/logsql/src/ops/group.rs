//! Groups of one partition: rows are numbered by the values of their keys, and the functions of `stats_fn` add them up.
//!
//! A key column becomes codes of a batch first (a dictionary has them, runs of equal texts and buckets of time are found
//! by looking at the row before), so that a text is looked at once per code and not once per row. What is kept is given
//! out when it grows too large; whoever merges it can spill.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, BooleanArray, StringViewBuilder, TimestampNanosecondArray};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::error::Result;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};
use foldhash::fast::FixedState;
use futures::StreamExt;
use hashbrown::HashTable;

use super::aggregate::{Aggregate, Call, Key};
use super::filter::evaluate;
use crate::kernels::bucket::Bucket;
use crate::nodes::Open;
use crate::rows::{Kind, Texts, push_text};
use crate::stats_fn::{GroupRows, StatsAccumulator};

/// Bytes of keys and states that are kept before they are given out.
const KEPT_BYTES: usize = 64 << 20;
/// Combinations of codes for which a table by position is made.
const DENSE_MAX: usize = 1 << 16;
/// A combination that has no group yet.
const UNKNOWN: u32 = u32::MAX;

const HASHER: FixedState = FixedState::with_seed(0x6b);

/// Groups the rows of a partition; gives keys and states (`schema`).
pub(super) fn partial(aggregate: Arc<Aggregate>, schema: SchemaRef) -> Open {
    Arc::new(move |rows, ctx| {
        let memory = MemoryConsumer::new("LogsGroup").with_can_spill(true).register(ctx.memory_pool());
        let state = Partial {
            groups: Groups::new(&aggregate),
            calls: aggregate.accumulators(),
            aggregate: Arc::clone(&aggregate),
            schema: Arc::clone(&schema),
            memory,
            rows: Some(rows),
        };
        futures::stream::try_unfold(state, async |mut state| Ok(state.next().await?.map(|batch| (batch, state))))
            .boxed()
    })
}

struct Partial {
    aggregate: Arc<Aggregate>,
    schema: SchemaRef,
    groups: Groups,
    calls: Vec<StatsAccumulator>,
    memory: MemoryReservation,
    /// None when all rows were read.
    rows: Option<SendableRecordBatchStream>,
}

impl Partial {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(rows) = &mut self.rows else { return Ok(None) };
        while let Some(batch) = rows.next().await {
            let batch = batch?;
            self.groups.number(&batch, &self.aggregate)?;
            if !self.aggregate.calls.iter().all(Call::counts_runs) {
                self.groups.expand();
            }
            for (call, accumulator) in self.aggregate.calls.iter().zip(&mut self.calls) {
                let mask = match &call.condition {
                    None => None,
                    Some(filter) => Some(BooleanArray::new(evaluate(filter, &batch, &self.aggregate.input)?, None)),
                };
                let values = self.aggregate.values(call, &batch);
                let rows = GroupRows { rows: batch.num_rows(), groups: &self.groups.of_row, runs: &self.groups.runs };
                accumulator.add(&values, &rows, mask.as_ref(), self.groups.len())?;
            }
            let bytes = self.groups.size() + self.calls.iter().map(GroupsAccumulator::size).sum::<usize>();
            let full = self.memory.try_resize(bytes);
            if self.groups.len() > 1 && (bytes > KEPT_BYTES || full.is_err()) {
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
        self.memory.free();
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        Ok(RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?)
    }
}

/// Values of one key: of each code of a batch, or of each group.
#[derive(Debug)]
enum KeyValues {
    /// Texts in one buffer, with the end of each.
    Text(String, Vec<usize>),
    /// Times; none where it is missing.
    Time(Vec<Option<i64>>),
}

impl KeyValues {
    fn new(kind: Kind) -> Self {
        if kind == Kind::Time { Self::Time(Vec::new()) } else { Self::Text(String::new(), Vec::new()) }
    }

    fn clear(&mut self) {
        match self {
            Self::Text(text, ends) => {
                text.clear();
                ends.clear();
            }
            Self::Time(times) => times.clear(),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Text(_, ends) => ends.len(),
            Self::Time(times) => times.len(),
        }
    }

    fn text(&self, i: usize) -> &str {
        match self {
            Self::Text(text, ends) => &text[i.checked_sub(1).map_or(0, |before| ends[before])..ends[i]],
            Self::Time(_) => "",
        }
    }

    fn push_text(&mut self, value: &str) {
        if let Self::Text(text, ends) = self {
            text.push_str(value);
            ends.push(text.len());
        }
    }

    fn push_from(&mut self, other: &Self, i: usize) {
        match (self, other) {
            (Self::Time(own), Self::Time(times)) => own.push(times[i]),
            (own, other) => own.push_text(other.text(i)),
        }
    }

    fn same(&self, i: usize, other: &Self, j: usize) -> bool {
        match (self, other) {
            (Self::Time(own), Self::Time(times)) => own[i] == times[j],
            _ => self.text(i) == other.text(j),
        }
    }

    fn hash(&self, i: usize) -> u64 {
        match self {
            Self::Time(times) => HASHER.hash_one(times[i]),
            Self::Text(..) => HASHER.hash_one(self.text(i)),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Text(text, ends) => text.capacity() + ends.capacity() * size_of::<usize>(),
            Self::Time(times) => times.capacity() * size_of::<Option<i64>>(),
        }
    }

    fn array(&self) -> ArrayRef {
        match self {
            Self::Time(times) => Arc::new(TimestampNanosecondArray::from(times.clone()).with_timezone("UTC")),
            Self::Text(..) => {
                let mut builder = StringViewBuilder::with_capacity(self.len());
                (0..self.len()).for_each(|i| push_text(&mut builder, self.text(i)));
                Arc::new(builder.finish())
            }
        }
    }
}

/// The rows of a batch by one key.
#[derive(Debug)]
struct Codes {
    of_row: Vec<u32>,
    /// What the codes stand for.
    values: KeyValues,
}

/// Numbers rows by their keys.
#[derive(Debug)]
struct Groups {
    /// Of each key, its value in each group.
    keys: Vec<KeyValues>,
    table: HashTable<u32>,
    count: usize,
    /// Of each key, the batch at hand.
    codes: Vec<Codes>,
    /// Group of each combination of codes of the batch at hand.
    dense: Vec<u32>,
    sparse: HashMap<u64, u32, FixedState>,
    /// Group of each row of the batch at hand.
    of_row: Vec<usize>,
    /// The same as runs, if they are few.
    runs: Vec<(usize, Range<usize>)>,
}

impl Groups {
    fn new(aggregate: &Aggregate) -> Self {
        let values = |i| KeyValues::new(aggregate.key_kind(i));
        let keys: Vec<KeyValues> = (0..aggregate.keys.len()).map(values).collect();
        let codes = (0..keys.len()).map(|i| Codes { of_row: Vec::new(), values: values(i) }).collect();
        Self {
            keys,
            table: HashTable::new(),
            count: 0,
            codes,
            dense: Vec::new(),
            sparse: HashMap::default(),
            of_row: Vec::new(),
            runs: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.count
    }

    fn size(&self) -> usize {
        self.keys.iter().map(KeyValues::bytes).sum::<usize>() + self.table.capacity() * 8
    }

    /// Takes the keys of all groups out.
    fn take(&mut self) -> Vec<ArrayRef> {
        let columns = self.keys.iter().map(KeyValues::array).collect();
        self.keys.iter_mut().for_each(KeyValues::clear);
        self.table.clear();
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
            codes.fill(&Texts::column(batch, &aggregate.input, &key.field)?, key, rows);
        }
        let all: Option<usize> =
            self.codes.iter().try_fold(1usize, |n, c| n.checked_mul(c.values.len().max(1)).filter(|n| *n <= DENSE_MAX));
        self.dense.clear();
        self.sparse.clear();
        self.dense.resize(all.unwrap_or(0), UNKNOWN);
        let most_runs = rows / 32 + 1;
        let mut row = 0;
        while row < rows {
            let mut code = u64::from(self.codes[0].of_row[row]);
            for codes in &self.codes[1..] {
                code = code * codes.values.len() as u64 + u64::from(codes.of_row[row]);
            }
            let group = self.group_of(code, row);
            let end = self.codes.iter().fold(rows, |end, codes| codes.run_end(row, end));
            if self.of_row.is_empty() && self.runs.len() < most_runs {
                self.runs.push((group, row..end));
            } else {
                self.expand();
                self.runs.clear();
                self.of_row.resize(end, group);
            }
            row = end;
        }
        Ok(())
    }

    /// Makes the group of each row of the runs, if that was not done yet.
    fn expand(&mut self) {
        if self.of_row.is_empty() {
            self.runs.iter().for_each(|(group, rows)| self.of_row.resize(rows.end, *group));
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
        let Self { keys, table, count, codes, .. } = self;
        let mix = |hash: u64, more: u64| hash.rotate_left(23) ^ more;
        let hash = codes.iter().fold(0, |hash, c| mix(hash, c.values.hash(c.of_row[row] as usize)));
        let same = |group: &u32| {
            let group = *group as usize;
            keys.iter().zip(codes.iter()).all(|(own, c)| own.same(group, &c.values, c.of_row[row] as usize))
        };
        let found = table.find(hash, same).copied();
        let group = found.unwrap_or_else(|| {
            let group = *count as u32;
            *count += 1;
            for (own, c) in keys.iter_mut().zip(codes.iter()) {
                own.push_from(&c.values, c.of_row[row] as usize);
            }
            let keys = &*keys;
            table.insert_unique(hash, group, |group| {
                keys.iter().fold(0, |hash, own| mix(hash, own.hash(*group as usize)))
            });
            group
        });
        match self.dense.get_mut(code as usize) {
            Some(place) => *place = group,
            None => _ = self.sparse.insert(code, group),
        }
        group as usize
    }
}

impl Codes {
    /// Where the run of equal codes ends that begins at a row; at most `most`.
    #[inline]
    fn run_end(&self, row: usize, most: usize) -> usize {
        let code = self.of_row[row];
        let rest = &self.of_row[row + 1..most];
        let whole = rest.chunks_exact(16).take_while(|codes| codes.iter().fold(0, |odd, c| odd | (*c ^ code)) == 0);
        let whole = whole.count() * 16;
        row + 1 + whole + rest[whole..].iter().take_while(|c| **c == code).count()
    }

    /// Codes a column. Different codes may stand for the same value.
    fn fill(&mut self, texts: &Texts, key: &Key, rows: usize) {
        let Self { of_row, values } = self;
        of_row.clear();
        values.clear();
        let bucket = key.bucket.as_ref();
        match (texts, &mut *values) {
            (Texts::Time(times), KeyValues::Time(found)) => time_codes(times, bucket, found, of_row),
            (Texts::Missing, _) => {
                values.push_text("");
                of_row.resize(rows, 0);
            }
            (Texts::Dictionary(keys, entries), _) if entries.len() <= rows => {
                let mut out = String::new();
                for i in 0..entries.len() {
                    let entry = if entries.is_null(i) { "" } else { entries.value(i) };
                    values.push_text(bucketed(bucket, entry, &mut out));
                }
                if keys.null_count() == 0 {
                    of_row.extend_from_slice(keys.values());
                } else {
                    values.push_text("");
                    let missing = entries.len() as u32;
                    of_row.extend(keys.iter().map(|k| k.unwrap_or(missing)));
                }
            }
            _ => {
                let mut known: HashTable<u32> = HashTable::new();
                let (mut scratch, mut out) = (String::new(), String::new());
                let mut before: Option<u32> = None;
                // Texts as they came; what they are grouped by is made of them at the end.
                let mut plain = KeyValues::new(Kind::Text);
                for row in 0..rows {
                    let text = texts.get(row, &mut scratch);
                    if let Some(code) = before
                        && plain.text(code as usize) == text
                    {
                        of_row.push(code);
                        continue;
                    }
                    let hash = HASHER.hash_one(text);
                    let found = known.find(hash, |&code| plain.text(code as usize) == text).copied();
                    let code = found.unwrap_or_else(|| {
                        let code = plain.len() as u32;
                        plain.push_text(text);
                        known.insert_unique(hash, code, |&code| plain.hash(code as usize));
                        code
                    });
                    before = Some(code);
                    of_row.push(code);
                }
                if bucket.is_some() {
                    (0..plain.len()).for_each(|i| values.push_text(bucketed(bucket, plain.text(i), &mut out)));
                } else {
                    *values = plain;
                }
            }
        }
    }
}

fn bucketed<'a>(bucket: Option<&Bucket>, text: &'a str, out: &'a mut String) -> &'a str {
    let Some(bucket) = bucket else { return text };
    out.clear();
    bucket.push(out, text);
    out
}

/// Codes times by their buckets: rows that follow each other are mostly in the same one.
fn time_codes(
    times: &TimestampNanosecondArray,
    bucket: Option<&Bucket>,
    found: &mut Vec<Option<i64>>,
    of_row: &mut Vec<u32>,
) {
    let mut known: HashMap<i64, u32, FixedState> = HashMap::default();
    let mut missing: Option<u32> = None;
    let mut within: Option<(Range<i64>, u32)> = None;
    for row in 0..times.len() {
        if times.is_null(row) {
            let code = *missing.get_or_insert_with(|| {
                found.push(None);
                found.len() as u32 - 1
            });
            of_row.push(code);
            continue;
        }
        let ns = times.value(row);
        if let Some((range, code)) = &within
            && range.contains(&ns)
        {
            of_row.push(*code);
            continue;
        }
        let start = bucket.map_or(ns, |bucket| bucket.of_time(ns));
        let code = *known.entry(start).or_insert_with(|| {
            found.push(Some(start));
            found.len() as u32 - 1
        });
        let width = bucket.map_or(1, Bucket::time_width);
        within = Some((start..start.saturating_add(width).max(ns.saturating_add(1)), code));
        of_row.push(code);
    }
}
