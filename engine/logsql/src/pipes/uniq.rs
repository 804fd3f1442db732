//! `uniq`: each combination of values once.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::StringViewBuilder;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::RecordBatch;
use datafusion::common::utils::memory::RecordBatchMemoryCounter;
use datafusion::error::{DataFusionError, Result};
use datafusion::execution::memory_pool::MemoryConsumer;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::{StreamExt, TryStreamExt};
use serde::{Deserialize, Serialize};

use super::limit::cut;
use super::pipe::{At, Output, Pipe, PipeKind, PipeMerge, RowSlice};
use super::syntax::{by_fields, hits_name, limited, names, text_filter_text};
use crate::ast::{FieldPattern, Filter, Test};
use crate::ops::filter::FilterStep;
use crate::ops::grouping::{Aggregate, Call, Key};
use crate::ops::project::ReshapeStep;
use crate::parser::{Parser, PipeDef};
use crate::partial_plan::PartialPlan;
use crate::plan::filter::lower;
use crate::required_fields::Needs;
use crate::rows::{Shape, batch};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `uniq by (...) [with hits] [filter s] [limit N]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uniq {
    /// The fields whose values make a combination.
    pub by: Vec<String>,
    /// `with hits`: the column of the counts of rows; `None`: they are not given.
    pub hits: Option<String>,
    /// `limit N`: at most so many rows; `None`: all.
    pub limit: Option<u64>,
    /// Only values that hold this text.
    pub filter: Option<String>,
}

pub(super) const DEFS: &[PipeDef] =
    &[PipeDef { names: &["uniq"], doc: "Gives each combination of the values of some fields once.", parse }];

const STEPS: &[StepReader] = &[StepReader::of::<LimitHits>()];

fn parse(parser: &mut Parser<'_>) -> crate::error::Result<Pipe> {
    let by = by_fields(parser)?;
    let mut uniq = Uniq { by, hits: None, limit: None, filter: None };
    while !parser.at_pipe_end() {
        if parser.is("with") || parser.is("hits") {
            if parser.skip("with") && !parser.is("hits") {
                return Err(parser.unexpected("`hits`"));
            }
            parser.advance();
            uniq.hits = Some(hits_name(&uniq.by));
        } else if uniq.limit.is_none() && parser.is("limit") {
            uniq.limit = parser.limit()?;
        } else if uniq.filter.is_none() && parser.skip("filter") {
            uniq.filter = Some(parser.argument("a text after `filter`")?);
        } else {
            return Err(parser.unexpected("`with hits`, `limit` or the end of the pipe"));
        }
    }
    Ok(uniq.into())
}

impl Display for Uniq {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let hits = if self.hits.is_some() { " with hits" } else { "" };
        let (filter, limit) = (text_filter_text(self.filter.as_deref()), limited(self.limit));
        write!(f, "uniq by ({}){hits}{filter}{limit}", names(&self.by))
    }
}

impl PipeKind for Uniq {
    fn before(&self, _: &Needs) -> Needs {
        Needs::of(&self.by)
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn output(&self) -> Output<'_> {
        match (self.by.as_slice(), &self.hits) {
            ([name], None) => Output::One(name),
            _ => Output::Others,
        }
    }

    fn take_over(&mut self, next: &mut Pipe) -> PipeMerge {
        let Some(RowSlice::Limit(limit @ 1..)) = next.kind().cut() else { return PipeMerge::Apart };
        self.limit = Some(self.limit.map_or(limit, |own| own.min(limit)));
        PipeMerge::One
    }

    fn stored(&self) -> Vec<String> {
        self.by.clone()
    }

    fn counts_rows(&self) -> bool {
        self.filter.is_none()
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, at: At<'_>) -> quiver_types::Result<PartialPlan> {
        self.grouped(rows, self.to_string(), at)
    }
}

impl Uniq {
    /// Groups rows, for a pipe whose text is given.
    pub(super) fn grouped(&self, rows: PartialPlan, text: String, at: At<'_>) -> quiver_types::Result<PartialPlan> {
        let mut rows = ReshapeStep::with_columns(rows, &self.by)?;
        if let Some(part) = &self.filter {
            let any = self.by.iter().map(|name| Filter::Field {
                field: FieldPattern::Name(name.clone()),
                test: Test::Substring(part.clone()),
            });
            let filter = lower(&Filter::Or(any.collect()), at.scope)?;
            rows = FilterStep { filter, shape: rows.shape.clone() }.plan(rows)?;
        }
        let keys = self.by.iter().map(|field| Key { field: field.clone(), bucket: None }).collect();
        let calls = self.hits.iter().map(|name| Call::count_rows(name)).collect();
        let rows = Aggregate { input: rows.shape.clone(), keys, calls, stream_keys: Vec::new(), text }.plan(rows)?;
        match (self.limit, &self.hits) {
            (None, _) => Ok(rows),
            (Some(limit), None) => cut(rows, 0, Some(limit)),
            (Some(limit), Some(hits)) => {
                let shape = rows.shape.clone();
                rows.then(LimitHits { limit, hits: hits.clone(), shape: shape.clone() }, shape)
            }
        }
    }
}

/// Lets a number of rows through; when there are more, nobody knows which these are, and their hits say 0. Lacks in
/// DataFusion: a limit that says whether it was met.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct LimitHits {
    limit: u64,
    hits: String,
    shape: Shape,
}

impl StepKind for LimitHits {
    const KIND: &'static str = "uniq.limit";
}

impl Step for LimitHits {
    fn name(&self) -> &'static str {
        "LogsLimitHits"
    }

    fn detail(&self) -> String {
        self.limit.to_string()
    }

    fn schema(&self) -> SchemaRef {
        self.shape.schema()
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, mut rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let memory = MemoryConsumer::new("LogsLimitHits").register(task.memory_pool());
        let all = async move {
            let mut kept: Vec<RecordBatch> = Vec::new();
            // Groups come as slices of one batch: what they share is held once.
            let mut held = RecordBatchMemoryCounter::new();
            let mut left = usize::try_from(self.limit).unwrap_or(usize::MAX);
            let mut over = false;
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                memory.try_grow(held.count_batch(&batch))?;
                over = batch.num_rows() > left;
                kept.push(batch.slice(0, batch.num_rows().min(left)));
                left -= kept.last().map_or(0, RecordBatch::num_rows);
                if over {
                    break;
                }
            }
            if over && let Some(index) = self.shape.index(&self.hits) {
                for rows in &mut kept {
                    let mut columns = rows.columns().to_vec();
                    let mut zeros = StringViewBuilder::with_capacity(rows.num_rows());
                    (0..rows.num_rows()).for_each(|_| zeros.append_value("0"));
                    columns[index] = Arc::new(zeros.finish());
                    *rows = batch(&self.shape, columns, rows.num_rows())?;
                }
            }
            let kept = kept.into_iter().map(move |rows| {
                let _held = &memory;
                Ok::<_, DataFusionError>(rows)
            });
            Ok::<_, DataFusionError>(futures::stream::iter(kept))
        };
        Ok(futures::stream::once(all).try_flatten().boxed())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, StringViewArray};
    use datafusion::execution::memory_pool::GreedyMemoryPool;
    use datafusion::execution::runtime_env::RuntimeEnvBuilder;
    use datafusion::physical_plan::stream::RecordBatchStreamAdapter;

    use super::*;
    use crate::pipes::testing::{gives, reads, refuses};

    /// Whether there are too many rows is known when all of them wait.
    #[test]
    fn rows_that_wait_are_counted() {
        let shape = Shape::of_texts(["a", "hits"]);
        let column = || -> ArrayRef { Arc::new(StringViewArray::from_iter_values(vec!["1"; 1000])) };
        let rows = || batch(&shape, vec![column(), column()], 1000).expect("rows");
        let run = |memory: usize, limit: u64, rows: [RecordBatch; 2]| {
            let pool = Arc::new(GreedyMemoryPool::new(memory));
            let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().expect("a runtime");
            let task = Arc::new(TaskContext::default().with_runtime(runtime));
            let input = futures::stream::iter(rows.map(Ok::<_, DataFusionError>));
            let input = Box::pin(RecordBatchStreamAdapter::new(shape.schema(), input));
            let step = Arc::new(LimitHits { limit, hits: "hits".to_owned(), shape: shape.clone() });
            let batches = step.open(input, task).expect("begun");
            let found: Result<Vec<RecordBatch>> = futures::executor::block_on(batches.try_collect());
            found.map(|found| found.iter().map(RecordBatch::num_rows).sum::<usize>())
        };
        let two = || [rows(), rows()];
        assert_eq!((run(1 << 20, 1500, two()).ok(), run(1 << 20, 5000, two()).ok()), (Some(1500), Some(2000)));
        assert!(run(40_000, 1500, two()).is_err(), "two batches of two columns take more");
        let one = rows();
        let halves = [one.slice(0, 500), one.slice(500, 500)];
        assert_eq!(run(40_000, 1500, halves).ok(), Some(1000), "what two share is there once");
    }

    #[test]
    fn cases() {
        reads(&[
            ("uniq a, b", "uniq by (a, b)"),
            ("uniq by (a) hits limit 5 filter x", "uniq by (a) with hits filter x limit 5"),
            ("uniq by (a) | limit 3", "uniq by (a) limit 3"),
            ("uniq by (hits) with hits", "uniq by (hits) with hits"),
        ]);
        refuses(&[
            ("uniq", "fields expected"),
            ("uniq by (a) with", "`hits` expected"),
            ("uniq by ()", "at least one"),
        ]);
        let rows = ["a=1 b=x", "a=1 b=y", "a=2", "a=1 b=x"];
        gives("uniq by (a) | sort by (a)", &rows, &["a=1", "a=2"]);
        gives("uniq by (a, b) with hits | sort by (a, b)", &rows, &["a=1 b=x hits=2", "a=1 b=y hits=1", "a=2 hits=1"]);
        gives("uniq by (a) with hits limit 1 | fields hits", &rows, &["hits=0"]);
        gives("uniq by (b) filter y", &rows, &["b=y"]);
    }
}
