//! The largest groups by themselves, all others as one: what `hits` asks for.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, StringViewBuilder, TimestampNanosecondArray, UInt32Array};
use arrow::compute::take;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::{StreamExt, TryStreamExt};
use quiver_types::logs::TIME;
use serde::{Deserialize, Serialize};

use super::pipe::{At, PipeKind};
use super::syntax::names;
use crate::chunked_stream::Pieces;
use crate::kernels::values::parse_rfc3339;
use crate::ops::keys::Keys;
use crate::parser::PipeDef;
use crate::partial_plan::PartialPlan;
use crate::print::word;
use crate::required_fields::Needs;
use crate::rows::{Column, ColumnStorage, Shape, Texts, batch, missing, push_text, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// Keeps the groups with the greatest counts, adds up the others by time, and says which they are. Rows come group by
/// group, in each by time, with a count each; so they are given out, the others last.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Others {
    /// Fields whose values together make a group.
    pub by: Vec<String>,
    /// How many groups stay as they are; of equal ones those that come first.
    pub limit: u64,
    /// The column of counts.
    pub count: String,
    /// The column that is `1` in the rows of others.
    pub to: String,
}

/// It is no pipe by name: requests put it into queries.
pub(super) const DEFS: &[PipeDef] = &[];

const STEPS: &[StepReader] = &[StepReader::of::<LargestGroups>()];

impl Display for Others {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (count, to) = (word(&self.count), word(&self.to));
        write!(f, "others by ({}) of {count} limit {} as {to}", names(&self.by), self.limit)
    }
}

impl PipeKind for Others {
    fn before(&self, _: &Needs) -> Needs {
        let mut needs = Needs::default();
        needs.add_all(self.by.iter().map(String::as_str).chain([TIME, self.count.as_str()]));
        needs
    }

    fn mentions(&self) -> Vec<String> {
        self.by.iter().chain([&self.count, &self.to]).cloned().collect()
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        let names = crate::rows::unique(self.by.iter().chain([&self.count, &self.to]).cloned());
        let mut output = Shape::of_texts(names.into_iter().filter(|name| name != TIME));
        output.columns.push(Column { name: TIME.to_owned(), kind: ColumnStorage::Time });
        let input = rows.shape.clone();
        rows.then(LargestGroups { of: self.clone(), input, output: output.clone() }, output)
    }
}

/// Lacks in DataFusion: the rows of the largest groups and the sums of all others, found in one look at rows that come
/// group by group, of which only these are held.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct LargestGroups {
    of: Others,
    input: Shape,
    output: Shape,
}

impl StepKind for LargestGroups {
    const KIND: &'static str = "others.largest";
}

impl Step for LargestGroups {
    fn name(&self) -> &'static str {
        "LogsOthers"
    }

    fn detail(&self) -> String {
        self.of.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.output.schema()
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let memory = MemoryConsumer::new("LogsOthers").register(task.memory_pool());
        let mut pieces = Pieces::new(rows);
        let found = async move {
            let mut largest = Largest { limit: self.of.limit, ..Largest::default() };
            while let Some(piece) = pieces.next().await {
                let (piece, began) = (piece?, Instant::now());
                self.look_at(&piece, &mut largest)?;
                memory.try_resize(largest.bytes)?;
                pieces.took(piece.num_rows(), began.elapsed());
            }
            largest.end_group();
            let mut points = largest.into_points();
            let batches = std::iter::from_fn(move || {
                let _held = &memory;
                let some: Vec<Point> = points.by_ref().take(BATCH_ROWS).collect();
                (!some.is_empty()).then(|| self.rows_of(&some))
            });
            Ok::<_, DataFusionError>(futures::stream::iter(batches))
        };
        Ok(futures::stream::once(found).try_flatten().boxed())
    }
}

/// Rows of a batch of the result.
const BATCH_ROWS: usize = 8192;
/// What a group takes beside its points and the texts of its key, a text beside its bytes, a point of a list that grows,
/// and a point of the others.
const GROUP_BYTES: usize = 160;
const TEXT_BYTES: usize = 16;
const POINT_BYTES: usize = 32;
const OTHER_BYTES: usize = 48;

/// What is counted of one combination of values.
#[derive(Debug)]
struct Group {
    /// The values of its fields.
    key: Arc<[Box<str>]>,
    /// Times and counts.
    points: Vec<(i64, u64)>,
    total: u64,
}

impl Group {
    fn bytes(&self) -> usize {
        let texts: usize = self.key.iter().map(|text| text.len() + TEXT_BYTES).sum();
        GROUP_BYTES + texts + self.points.len() * POINT_BYTES
    }
}

/// A row of the result: the values of the fields (none for the others), the time, the count.
type Point = (Option<Arc<[Box<str>]>>, i64, u64);

/// The largest of the groups that came, and the others.
#[derive(Debug, Default)]
struct Largest {
    limit: u64,
    /// Groups by the order in which they came.
    kept: BTreeMap<u64, Group>,
    /// The same by total: on top is the smallest one, of equal ones the last.
    by_total: BinaryHeap<(Reverse<u64>, u64)>,
    others: BTreeMap<i64, u64>,
    /// The group that is coming, and its key as bytes.
    open: Option<Group>,
    open_key: Vec<u8>,
    came: u64,
    bytes: usize,
}

impl Largest {
    fn begin_group(&mut self, key_bytes: &[u8], key: Arc<[Box<str>]>) {
        self.end_group();
        self.open_key.clear();
        self.open_key.extend_from_slice(key_bytes);
        let group = Group { key, points: Vec::new(), total: 0 };
        self.bytes += group.bytes();
        self.open = Some(group);
    }

    fn push(&mut self, time: i64, count: u64) {
        if let Some(group) = &mut self.open {
            group.points.push((time, count));
            group.total = group.total.saturating_add(count);
            self.bytes += POINT_BYTES;
        }
    }

    /// Keeps the group that came, or makes it one of the others.
    fn end_group(&mut self) {
        let Some(group) = self.open.take() else { return };
        let place = self.came;
        self.came += 1;
        self.by_total.push((Reverse(group.total), place));
        self.kept.insert(place, group);
        if self.kept.len() as u64 <= self.limit {
            return;
        }
        let smallest = self.by_total.pop().and_then(|(_, place)| self.kept.remove(&place));
        if let Some(group) = smallest {
            self.bytes -= group.bytes();
            for (time, count) in group.points {
                let bytes = &mut self.bytes;
                let sum = self.others.entry(time).or_insert_with(|| {
                    *bytes += OTHER_BYTES;
                    0
                });
                *sum = sum.saturating_add(count);
            }
        }
    }

    fn into_points(self) -> Box<dyn Iterator<Item = Point> + Send> {
        let kept = self.kept.into_values().flat_map(|group| {
            let key = group.key;
            group.points.into_iter().map(move |(time, count)| (Some(Arc::clone(&key)), time, count))
        });
        Box::new(kept.chain(self.others.into_iter().map(|(time, count)| (None, time, count))))
    }
}

impl LargestGroups {
    fn look_at(&self, rows: &RecordBatch, largest: &mut Largest) -> Result<()> {
        let by = &self.of.by;
        let mut keys = Keys::new(rows, &self.input, by)?;
        let fields = by.iter().map(|name| texts_of(rows, &self.input, name)).collect::<Result<Vec<_>>>()?;
        let times = texts_of(rows, &self.input, TIME)?;
        let counts = texts_of(rows, &self.input, &self.of.count)?;
        let mut scratch = String::new();
        for row in 0..rows.num_rows() {
            let key = keys.of(row);
            if largest.open.is_none() || key != largest.open_key.as_slice() {
                let texts = fields.iter().map(|texts| Box::<str>::from(texts.get(row, &mut scratch))).collect();
                largest.begin_group(key, texts);
            }
            let time = match &times {
                Texts::Time(times) => times.value(row),
                times => parse_rfc3339(times.get(row, &mut scratch)).unwrap_or(0),
            };
            largest.push(time, counts.get(row, &mut scratch).parse().unwrap_or(0));
        }
        Ok(())
    }

    /// Makes a batch; a text stands once in it, however many points its group has.
    fn rows_of(&self, points: &[Point]) -> Result<RecordBatch> {
        let mut keys: Vec<&Arc<[Box<str>]>> = Vec::new();
        let mut key_of: Vec<Option<u32>> = Vec::new();
        for (key, _, _) in points {
            if let Some(key) = key
                && keys.last().is_none_or(|last| !Arc::ptr_eq(last, key))
            {
                keys.push(key);
            }
            key_of.push(key.as_ref().map(|_| keys.len() as u32 - 1));
        }
        let key_of = UInt32Array::from(key_of);
        let columns = self.output.names().map(|name| -> Result<ArrayRef> {
            if name == TIME {
                let times = points.iter().map(|(_, time, _)| *time);
                return Ok(Arc::new(TimestampNanosecondArray::from_iter_values(times).with_timezone("UTC")));
            }
            let mut texts = StringViewBuilder::with_capacity(points.len());
            if name == self.of.count {
                for (_, _, count) in points {
                    texts.append_value(count.to_string());
                }
                return Ok(Arc::new(texts.finish()));
            }
            if name == self.of.to {
                for (key, _, _) in points {
                    push_text(&mut texts, if key.is_none() { "1" } else { "" });
                }
                return Ok(Arc::new(texts.finish()));
            }
            let Some(place) = self.of.by.iter().position(|field| field == name) else {
                return Ok(missing(points.len()));
            };
            for key in &keys {
                push_text(&mut texts, &key[place]);
            }
            Ok(take(&texts.finish(), &key_of, None)?)
        });
        batch(&self.output, columns.collect::<Result<_>>()?, points.len())
    }
}

#[cfg(test)]
mod tests {
    use datafusion::physical_plan::displayable;

    use super::*;
    use crate::ast::{Pipe, Query};
    use crate::counting::hits;
    use crate::parse;
    use crate::pipes::rows::Rows;
    use crate::pipes::testing::{physical, run_pipes};

    /// A query of some hours and values.
    fn asked(rows: &[(u32, &str)], fields: &[&str], limit: u64) -> Vec<Pipe> {
        let row = |(hour, app): &(u32, &str)| {
            let time = format!("2025-01-01T{hour:02}:30:00Z");
            vec![(TIME.to_owned(), time), ("app".to_owned(), (*app).to_owned())]
        };
        let mut pipes: Vec<Pipe> = vec![Rows(rows.iter().map(row).collect()).into()];
        let fields: Vec<String> = fields.iter().map(|&name| name.to_owned()).collect();
        let query = parse("*").expect("a query");
        pipes.extend(hits(query, (3_600_000_000_000, "1h"), None, &fields, limit).pipes);
        pipes
    }

    fn counted(rows: &[(u32, &str)], fields: &[&str], limit: u64) -> Vec<String> {
        let found = run_pipes(asked(rows, fields, limit));
        found.into_iter().map(|row| row.replace("2025-01-01T", "").replace("__q_", "")).collect()
    }

    #[test]
    fn the_largest_groups_stay() {
        let rows = [(0, "x"), (1, "w"), (0, "x"), (0, "z"), (1, "x"), (1, "y"), (1, "y"), (0, "")];
        let all = [
            "hits=1 _time=00:00:00Z",
            "hits=1 _time=01:00:00Z app=w",
            "hits=2 _time=00:00:00Z app=x",
            "hits=1 _time=01:00:00Z app=x",
            "hits=2 _time=01:00:00Z app=y",
            "hits=1 _time=00:00:00Z app=z",
        ];
        assert_eq!(counted(&rows, &["app"], 5), all);
        let two = [
            "hits=2 _time=00:00:00Z app=x",
            "hits=1 _time=01:00:00Z app=x",
            "hits=2 _time=01:00:00Z app=y",
            "hits=2 other=1 _time=00:00:00Z",
            "hits=1 other=1 _time=01:00:00Z",
        ];
        assert_eq!(counted(&rows, &["app"], 2), two);
        let three = ["hits=1 _time=00:00:00Z", two[0], two[1], two[2], "hits=1 other=1 _time=00:00:00Z", two[4]];
        assert_eq!(counted(&rows, &["app"], 3), three, "of equal groups the first");
        assert_eq!(counted(&rows, &[], 1), ["hits=4 _time=00:00:00Z", "hits=4 _time=01:00:00Z"]);
    }

    #[test]
    fn values_that_are_equal_as_numbers_are_groups_of_their_own() {
        let rows = [(0, "1000"), (0, "1e3"), (1, "1000"), (1, "1e3"), (2, "1000")];
        let expected = [
            "hits=1 _time=00:00:00Z app=1000",
            "hits=1 _time=01:00:00Z app=1000",
            "hits=1 _time=02:00:00Z app=1000",
            "hits=1 other=1 _time=00:00:00Z",
            "hits=1 other=1 _time=01:00:00Z",
        ];
        assert_eq!(counted(&rows, &["app"], 1), expected);
    }

    /// What sorts may spill; nothing but the answer is held beside it.
    #[test]
    fn groups_are_sorted_once_and_looked_at_as_they_come() {
        let query = Query { pipes: asked(&[(0, "x")], &["app"], 2), ..parse("*").expect("a query") };
        let plan = displayable(physical(&query).expect("a plan").as_ref()).indent(false).to_string();
        assert_eq!(plan.matches("SortExec").count(), 1, "{plan}");
        assert_eq!(plan.matches("AggregateExec").count(), 1, "{plan}");
        assert!(plan.contains("LogsOthers") && !plan.contains("LogsWindowStats"), "{plan}");
    }

    #[test]
    fn only_what_is_answered_is_held() {
        let mut largest = Largest { limit: 3, ..Largest::default() };
        let mut most = 0;
        for group in 0..10_000_u64 {
            let text = group.to_string();
            largest.begin_group(text.as_bytes(), Arc::from(vec![Box::<str>::from(text.as_str())]));
            for time in 0..4 {
                largest.push(time, 1 + group % 7);
            }
            most = most.max(largest.bytes);
        }
        largest.end_group();
        let group = GROUP_BYTES + TEXT_BYTES + 4 + 4 * POINT_BYTES;
        assert!(most <= 4 * group + 4 * OTHER_BYTES, "{most} bytes");
        let points: Vec<Point> = largest.into_points().collect();
        let keys: Vec<Option<&str>> =
            points.iter().step_by(4).map(|(key, ..)| key.as_deref().map(|k| &*k[0])).collect();
        assert_eq!(keys, [Some("6"), Some("13"), Some("20"), None]);
        let all: u64 = (0..10_000).map(|group| 1 + group % 7).sum();
        assert_eq!((points.len(), points[12..].iter().all(|point| point.2 == all - 21)), (16, true));
        assert_eq!(Largest::default().into_points().count(), 0);
    }
}
