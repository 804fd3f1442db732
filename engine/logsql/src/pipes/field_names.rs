//! `field_names`: how many rows have each field.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, StringArray, UInt64Array};
use arrow::datatypes::{DataType, SchemaRef};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::functions::expr_fn::contains;
use datafusion::functions_aggregate::expr_fn::sum;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder, cast, ident, lit};
use futures::StreamExt;
use quiver_query::{from_datafusion, gathered};
use quiver_types::logs::{FIELD_NAME, LogFilter, LogRequest, ROW_COUNT};
use serde::{Deserialize, Serialize};

use super::pipe::{At, Pipe, PipeKind};
use super::syntax::{text_filter, text_filter_text};
use crate::chunked_stream::Pieces;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::print::word;
use crate::required_fields::Needs;
use crate::rows::{Rest, Shape, texts_of};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `field_names [filter s] [as x]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldNames {
    /// The column of the names.
    pub name: String,
    /// Only names that hold this text.
    pub filter: Option<String>,
}

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["field_names"],
    doc: "Gives the names of all fields, with the number of rows that have them.",
    parse,
}];

const STEPS: &[StepReader] = &[StepReader::of::<FieldNamesStep>()];

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    let before = text_filter(parser)?;
    let name = if parser.is("filter") { None } else { parser.as_name()? };
    let name = name.unwrap_or_else(|| "name".to_owned());
    let filter = if before.is_some() { before } else { text_filter(parser)? };
    Ok(FieldNames { name, filter }.into())
}

impl Display for FieldNames {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("field_names")?;
        if self.name != "name" {
            write!(f, " as {}", word(&self.name))?;
        }
        f.write_str(&text_filter_text(self.filter.as_deref()))
    }
}

impl PipeKind for FieldNames {
    fn before(&self, _: &Needs) -> Needs {
        Needs::all()
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn counted_by_scan(&self, filter: &LogFilter) -> Option<LogRequest> {
        Some(LogRequest::field_counts(filter.clone()))
    }

    /// DataFusion groups and sorts the names; the answer's columns are texts.
    fn add_counts(&self, counts: PartialPlan) -> quiver_types::Result<PartialPlan> {
        let hits = if self.name == "hits" { "hitss" } else { "hits" };
        let summed = self.summed(counts.plan, hits).map_err(from_datafusion)?;
        Ok(PartialPlan { plan: summed, shape: Shape::of_texts([self.name.as_str(), hits]), ..counts })
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        let counted = FieldNamesStep { input: rows.shape.clone() };
        self.add_counts(rows.then(counted, Shape::default())?)
    }
}

impl FieldNames {
    fn summed(&self, counts: LogicalPlan, hits: &str) -> Result<LogicalPlan> {
        let counts = gathered(counts).map_err(quiver_query::to_datafusion)?;
        let mut plan = LogicalPlanBuilder::from(counts);
        if let Some(text) = &self.filter {
            plan = plan.filter(contains(ident(FIELD_NAME), lit(text.as_str())))?;
        }
        plan.aggregate([ident(FIELD_NAME)], [sum(ident(ROW_COUNT)).alias(ROW_COUNT)])?
            .sort([ident(FIELD_NAME).sort(true, true)])?
            .project([
                cast(ident(FIELD_NAME), DataType::Utf8View).alias(&self.name),
                cast(cast(ident(ROW_COUNT), DataType::Utf8), DataType::Utf8View).alias(hits),
            ])?
            .build()
    }
}

/// Counts fields over the rows of a partition. Lacks in DataFusion: groups by the names of fields, whichever there are.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct FieldNamesStep {
    input: Shape,
}

impl StepKind for FieldNamesStep {
    const KIND: &'static str = "field_names";
}

impl Step for FieldNamesStep {
    fn name(&self) -> &'static str {
        "LogsFieldNames"
    }

    fn detail(&self) -> String {
        self.input.to_string()
    }

    fn schema(&self) -> SchemaRef {
        LogRequest::field_counts(LogFilter::All).schema()
    }

    fn open(self: Arc<Self>, rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let memory = MemoryConsumer::new("LogsFieldNames").register(task.memory_pool());
        let counted = async move {
            let (mut hits, mut rows) = (BTreeMap::new(), Pieces::new(rows));
            while let Some(piece) = rows.next().await {
                let (piece, began) = (piece?, Instant::now());
                self.count(&piece, &mut hits, &memory)?;
                rows.took(piece.num_rows(), began.elapsed());
            }
            hits.retain(|_, hits| *hits > 0);
            let names: ArrayRef = Arc::new(StringArray::from_iter_values(hits.keys()));
            let counts: ArrayRef = Arc::new(UInt64Array::from_iter_values(hits.into_values()));
            Ok(RecordBatch::try_new(self.schema(), vec![names, counts])?)
        };
        Ok(futures::stream::once(counted).boxed())
    }
}

impl FieldNamesStep {
    fn count(&self, rows: &RecordBatch, hits: &mut BTreeMap<String, u64>, memory: &MemoryReservation) -> Result<()> {
        for name in self.input.names() {
            let texts = texts_of(rows, &self.input, name)?;
            let filled = (0..rows.num_rows()).filter(|row| !texts.is_empty(*row)).count() as u64;
            add(hits, name, filled, memory)?;
        }
        if let Some(rest) = Rest::of(rows, &self.input) {
            for row in 0..rows.num_rows() {
                for (name, _) in rest.row(row) {
                    add(hits, name, 1, memory)?;
                }
            }
        }
        Ok(())
    }
}

/// Adds to the count of a name. A name is held in the map and in its array.
fn add(hits: &mut BTreeMap<String, u64>, name: &str, count: u64, memory: &MemoryReservation) -> Result<()> {
    if let Some(hits) = hits.get_mut(name) {
        *hits += count;
    } else {
        memory.try_grow(2 * name.len() + 128)?;
        hits.insert(name.to_owned(), count);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads, refuses};

    #[test]
    fn cases() {
        reads(&[
            ("field_names", "field_names"),
            ("field_names filter ab as x", "field_names as x filter ab"),
            ("field_names as x filter 'a b'", "field_names as x filter \"a b\""),
        ]);
        refuses(&[("field_names filter", "a text after `filter`")]);
        let rows = ["a=1 b=x", "a=2", "bc='' b=%"];
        gives("field_names", &rows, &["name=a hits=2", "name=b hits=2"]);
        gives("field_names filter b as hits", &rows, &["hits=b hitss=2"]);
        gives("field_names filter '%'", &rows, &[]);
    }
}
