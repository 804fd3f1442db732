//! `facets`: the most frequent values of each field, out of counts of values: those of the scan, or of rows.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, StringViewBuilder};
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use quiver_query::to_datafusion;
use quiver_types::logs::{CountedField, LogFilter, LogRequest, ValueCounts, ValueLimits};
use serde::{Deserialize, Serialize};

use super::pipe::{At, Pipe, PipeKind};
use super::syntax::above_0;
use crate::chunked_stream::Pieces;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::{Rest, Shape, Texts, batch, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `facets [N] [max_values_per_field N] [max_value_len N] [keep_const_fields]`
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Facets {
    /// Most values of each field; 10 unless said.
    pub limit: u64,
    /// Fields with more distinct values are left out; 1000 unless said.
    pub max_values_per_field: u64,
    /// Values of more bytes are left out; 128 unless said.
    pub max_value_len: u64,
    /// Whether fields that have one value throughout are kept.
    pub keep_const_fields: bool,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["facets"], doc: "Gives the most frequent values of each field, with their counts.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<FacetCountStep>(), StepReader::of::<FacetMergeStep>()];

impl Default for Facets {
    fn default() -> Self {
        Self { limit: 10, max_values_per_field: 1000, max_value_len: 128, keep_const_fields: false }
    }
}

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    const OPTIONS: &[&str] = &["max_values_per_field", "max_value_len", "keep_const_fields"];
    let mut facets = Facets::default();
    if !parser.at_pipe_end() && !parser.is_any(OPTIONS) {
        facets.limit = above_0(parser)?;
    }
    while !parser.at_pipe_end() {
        if parser.skip("max_values_per_field") {
            facets.max_values_per_field = above_0(parser)?;
        } else if parser.skip("max_value_len") {
            facets.max_value_len = above_0(parser)?;
        } else if parser.skip("keep_const_fields") {
            facets.keep_const_fields = true;
        } else {
            return Err(parser.unexpected("`max_values_per_field`, `max_value_len` or `keep_const_fields`"));
        }
    }
    Ok(facets.into())
}

impl Display for Facets {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let defaults = Self::default();
        f.write_str("facets")?;
        if self.limit != defaults.limit {
            write!(f, " {}", self.limit)?;
        }
        if self.max_values_per_field != defaults.max_values_per_field {
            write!(f, " max_values_per_field {}", self.max_values_per_field)?;
        }
        if self.max_value_len != defaults.max_value_len {
            write!(f, " max_value_len {}", self.max_value_len)?;
        }
        if self.keep_const_fields { f.write_str(" keep_const_fields") } else { Ok(()) }
    }
}

impl Facets {
    /// Which values are counted.
    fn limits(&self) -> ValueLimits {
        ValueLimits { values: self.max_values_per_field, bytes: self.max_value_len }
    }
}

impl PipeKind for Facets {
    fn before(&self, _: &Needs) -> Needs {
        Needs::all()
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn counted_by_scan(&self, filter: &LogFilter) -> Option<LogRequest> {
        Some(LogRequest::value_counts(filter.clone(), self.limits()))
    }

    fn add_counts(&self, counts: PartialPlan) -> quiver_types::Result<PartialPlan> {
        counts.then(FacetMergeStep(self.clone()), shape())
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        let counted = FacetCountStep { limits: self.limits(), input: rows.shape.clone() };
        self.add_counts(rows.then(counted, Shape::default())?)
    }
}

/// The columns of the answer.
fn shape() -> Shape {
    Shape::of_texts(["field_name", "field_value", "hits"])
}

/// Counts the values of the rows of a partition; gives one batch. Lacks in DataFusion: groups by the values of all fields,
/// whichever there are, that are left behind once a field has too many of them.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct FacetCountStep {
    limits: ValueLimits,
    input: Shape,
}

impl StepKind for FacetCountStep {
    const KIND: &'static str = "facets.counts";
}

impl Step for FacetCountStep {
    fn name(&self) -> &'static str {
        "LogsValueCounts"
    }

    fn detail(&self) -> String {
        self.input.to_string()
    }

    fn schema(&self) -> SchemaRef {
        ValueCounts::schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let memory = MemoryConsumer::new("LogsValueCounts").register(task.memory_pool());
        let counted = async move {
            let (mut counts, mut rows) = (ValueCounts::new(self.limits), Pieces::new(rows));
            while let Some(piece) = rows.next().await {
                let (piece, began) = (piece?, Instant::now());
                add_rows(&mut counts, &piece, &self.input)?;
                memory.try_resize(counts.memory_bytes())?;
                rows.took(piece.num_rows(), began.elapsed());
            }
            counts.to_batch().map_err(to_datafusion)
        };
        Ok(futures::stream::once(counted).boxed())
    }
}

fn add_rows(counts: &mut ValueCounts, rows: &RecordBatch, shape: &Shape) -> Result<()> {
    counts.rows += rows.num_rows() as u64;
    for name in shape.names() {
        let texts = texts_of(rows, shape, name)?;
        let field = counts.field(name);
        add_column(counts, field, &texts, rows.num_rows());
    }
    if let Some(rest) = Rest::of(rows, shape) {
        for row in 0..rows.num_rows() {
            for (name, value) in rest.row(row) {
                let field = counts.field(name);
                counts.add(field, value, 1);
            }
        }
    }
    Ok(())
}

fn add_column(counts: &mut ValueCounts, field: CountedField, texts: &Texts, rows: usize) {
    if let Texts::Dictionary(keys, values) = texts {
        let mut of_codes = vec![0; values.len()];
        keys.iter().flatten().for_each(|key| of_codes[key as usize] += 1);
        for (code, n) in of_codes.into_iter().enumerate().filter(|&(code, n)| n > 0 && values.is_valid(code)) {
            counts.add(field, values.value(code), n);
        }
        return;
    }
    let mut scratch = String::new();
    for row in 0..rows {
        if counts.is_out(field) {
            return;
        }
        counts.add(field, texts.get(row, &mut scratch), 1);
    }
}

/// Adds counts up, and chooses. Lacks in DataFusion: what partitions left behind stays left behind, and a field whose
/// values come to too many in all is left out with all of them.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct FacetMergeStep(Facets);

impl StepKind for FacetMergeStep {
    const KIND: &'static str = "facets";
}

impl Step for FacetMergeStep {
    fn name(&self) -> &'static str {
        "LogsFacets"
    }

    fn detail(&self) -> String {
        self.0.to_string()
    }

    fn schema(&self) -> SchemaRef {
        shape().schema()
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, mut rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let memory: MemoryReservation = MemoryConsumer::new("LogsFacets").register(task.memory_pool());
        let answer = async move {
            let mut counts = ValueCounts::new(self.0.limits());
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                // A batch has all that was counted in a block, which may be all new.
                for from in (0..batch.num_rows()).step_by(PIECE_ROWS) {
                    let piece = batch.slice(from, PIECE_ROWS.min(batch.num_rows() - from));
                    counts.add_batch(&piece).map_err(to_datafusion)?;
                    memory.try_resize(counts.memory_bytes())?;
                }
            }
            memory.try_grow(self.answer_bytes(&counts))?;
            self.answer(&counts)
        };
        Ok(futures::stream::once(answer).boxed())
    }
}

/// Counts that are added before their memory is reserved.
const PIECE_ROWS: usize = 8192;
/// What a value takes where all are put in order by field, where those of a field are put in order by count, and in the
/// answer beside its text.
const PLACE_BYTES: usize = 8;
const SORTED_BYTES: usize = 24;
const ROW_BYTES: usize = 3 * 16 + 24;

impl FacetMergeStep {
    /// Bytes that the answer takes beside what was counted. Values are as long as they may be at most.
    fn answer_bytes(&self, counts: &ValueCounts) -> usize {
        let (mut all, mut most, mut rows) = (0, 0, 0);
        for values in counts.values_of_fields() {
            all += values as usize;
            most = most.max(values as usize);
            rows += values.min(self.0.limit) as usize;
        }
        let texts = rows.saturating_mul(self.0.max_value_len as usize).min(counts.memory_bytes());
        all * PLACE_BYTES + most * SORTED_BYTES + rows * ROW_BYTES + texts
    }

    fn answer(&self, counts: &ValueCounts) -> Result<RecordBatch> {
        let mut builders = [StringViewBuilder::new(), StringViewBuilder::new(), StringViewBuilder::new()];
        let mut count = 0;
        for (name, mut values) in counts.by_name() {
            let constant = values.len() == 1 && values[0].1 == counts.rows;
            if constant && !self.0.keep_const_fields {
                continue;
            }
            values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
            values.truncate(usize::try_from(self.0.limit).unwrap_or(usize::MAX));
            for (value, hits) in values {
                builders[0].append_value(name);
                builders[1].append_value(value);
                builders[2].append_value(hits.to_string());
                count += 1;
            }
        }
        let columns: Vec<ArrayRef> = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect();
        batch(&shape(), columns, count)
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("facets", "facets"),
            (
                "facets 5 keep_const_fields max_value_len 3 max_values_per_field 7",
                "facets 5 max_values_per_field 7 max_value_len 3 keep_const_fields",
            ),
        ]);
        refuses(&[
            ("facets x", "a number greater than 0 expected"),
            ("facets 0", "a number greater than 0 expected"),
            ("facets max_value_len 0", "a number greater than 0 expected"),
            ("facets 5 x", "`max_values_per_field`"),
        ]);
        let rows = ["a=1 b=x", "a=2 b=x", "a=2"];
        let of = |name, value, hits| format!("field_name={name} field_value={value} hits={hits}");
        gives("facets", &rows, &[&of("a", 2, 2), &of("a", 1, 1), "field_name=b field_value=x hits=2"]);
        gives("facets 1", &rows, &[&of("a", 2, 2), "field_name=b field_value=x hits=2"]);
        gives("facets max_values_per_field 1", &rows, &["field_name=b field_value=x hits=2"]);
        gives("fields a | limit 1 | facets", &rows, &[]);
        gives("fields a | limit 1 | facets keep_const_fields", &rows, &[&of("a", 1, 1)]);
    }
}
