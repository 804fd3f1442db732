//! `query_stats`: what the query read.

use std::fmt::{self, Display, Formatter};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewArray};
use arrow::datatypes::SchemaRef;
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use futures::StreamExt;
use quiver_types::ReadStats;
use serde::{Deserialize, Serialize};

use super::pipe::{At, PipeKind};
use crate::parser::PipeDef;
use crate::partial_plan::PartialPlan;
use crate::required_fields::Needs;
use crate::rows::{Shape, batch};
use crate::step::{Batches, Step, StepKind, StepReader};

/// `query_stats`: has no options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryStats;

pub(super) const DEFS: &[PipeDef] = &[PipeDef {
    names: &["query_stats"],
    doc: "Gives what the query read, in one row, in place of its rows.",
    parse: |_| Ok(QueryStats.into()),
}];

const STEPS: &[StepReader] = &[StepReader::of::<Read>()];

impl Display for QueryStats {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("query_stats")
    }
}

impl PipeKind for QueryStats {
    fn before(&self, _: &Needs) -> Needs {
        Needs::default()
    }

    fn is_barrier(&self) -> bool {
        true
    }

    fn steps() -> &'static [StepReader] {
        STEPS
    }

    fn plan(&self, rows: PartialPlan, _: At<'_>) -> quiver_types::Result<PartialPlan> {
        rows.then(Read, shape())
    }
}

fn shape() -> Shape {
    Shape::of_texts(ReadStats::default().list().into_iter().map(|(name, _)| name))
}

/// Lacks in DataFusion: counters of a query as rows.
#[derive(Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Read;

impl StepKind for Read {
    const KIND: &'static str = "query_stats";
}

impl Step for Read {
    fn name(&self) -> &'static str {
        "LogsQueryStats"
    }

    fn schema(&self) -> SchemaRef {
        shape().schema()
    }

    fn needs_all_rows(&self) -> bool {
        true
    }

    fn open(self: Arc<Self>, mut rows: SendableRecordBatchStream, task: Arc<TaskContext>) -> Result<Batches> {
        let stats = task.session_config().get_extension::<ReadStats>().unwrap_or_default();
        let all = async move {
            while let Some(batch) = rows.next().await {
                batch?;
            }
            let one = |n: u64| Arc::new(StringViewArray::from(vec![n.to_string()])) as ArrayRef;
            let columns = stats.told().into_iter().map(|(_, value)| one(value)).collect();
            batch(&shape(), columns, 1)
        };
        Ok(futures::stream::once(all).boxed())
    }
}

#[cfg(test)]
mod tests {
    use crate::pipes::testing::{gives, reads};

    #[test]
    fn cases() {
        reads(&[("query_stats", "query_stats")]);
        gives("query_stats | fields values, parts_read", &["a=1"], &["values=0 parts_read=0"]);
    }
}
