//! Tables whose rows are all in memory before the first is emitted. They are read when a plan runs and are charged to
//! its query, so explaining a plan reads nothing. DataFusion's node for such rows contains a stream that cannot be
//! serialized.

use std::fmt::{self, Debug};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result as DataFusionResult};
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_expr::EquivalenceProperties;
use datafusion::physical_plan::execution_plan::{Boundedness, EmissionType};
use datafusion::physical_plan::metrics::{BaselineMetrics, ExecutionPlanMetricsSet, MetricsSet};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, Partitioning, PlanProperties};
use futures::future::BoxFuture;
use futures::{TryStreamExt as _, stream};
use quiver_types::{ReadStats, Result};

use super::encoding::WrittenRows;
use crate::encoding::context::At;
use crate::error::to_datafusion;
use crate::node_defaults::{no_expressions, no_input};

/// A source of rows that are read all at once.
pub(crate) trait ReadAtOnce: Debug + Send + Sync + 'static {
    /// The name of the table.
    fn table(&self) -> &'static str;

    /// Columns of the rows that [`Self::read`] gives.
    fn schema(&self) -> &SchemaRef;

    /// Reads the rows for one run of a plan, and charges their memory to `stats`.
    fn read<'a>(&'a self, task: &'a Arc<TaskContext>, stats: &'a ReadStats) -> BoxFuture<'a, Result<Vec<RecordBatch>>>;

    /// The serialized form.
    fn written(&self, at: &At<'_>) -> DataFusionResult<WrittenRows>;
}

/// The operator; see the module documentation.
#[derive(Debug)]
pub(crate) struct AtOnceExec {
    rows: Arc<dyn ReadAtOnce>,
    limit: Option<usize>,
    metrics: ExecutionPlanMetricsSet,
    properties: Arc<PlanProperties>,
}

impl AtOnceExec {
    /// Makes a node that reads the rows when it runs, and emits at most `limit` of them.
    pub(crate) fn new(rows: Arc<dyn ReadAtOnce>, limit: Option<usize>) -> Self {
        let properties = PlanProperties::new(
            EquivalenceProperties::new(Arc::clone(rows.schema())),
            Partitioning::UnknownPartitioning(1),
            EmissionType::Incremental,
            Boundedness::Bounded,
        );
        Self { rows, limit, metrics: ExecutionPlanMetricsSet::new(), properties: Arc::new(properties) }
    }

    /// The serialized form of the rows, and the limit.
    pub(crate) fn written(&self, at: &At<'_>) -> DataFusionResult<(WrittenRows, Option<usize>)> {
        Ok((self.rows.written(at)?, self.limit))
    }
}

impl DisplayAs for AtOnceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.rows.schema().fields().iter().map(|field| field.name().as_str()).collect();
        write!(f, "AtOnceExec: table={}, columns=[{}]", self.rows.table(), names.join(", "))?;
        self.limit.map_or(Ok(()), |limit| write!(f, ", limit={limit}"))
    }
}

impl ExecutionPlan for AtOnceExec {
    fn name(&self) -> &'static str {
        "AtOnceExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    no_input!();
    no_expressions!();

    fn fetch(&self) -> Option<usize> {
        self.limit
    }

    fn execute(&self, partition: usize, task: Arc<TaskContext>) -> DataFusionResult<SendableRecordBatchStream> {
        if partition > 0 {
            return internal_err!("rows that are read at once have one partition, not {}", partition + 1);
        }
        let baseline = BaselineMetrics::new(&self.metrics, partition);
        let (rows, mut left) = (Arc::clone(&self.rows), self.limit.unwrap_or(usize::MAX));
        let read = async move {
            let stats = task.session_config().get_extension::<ReadStats>().unwrap_or_default();
            let batches = rows.read(&task, &stats).await.map_err(to_datafusion)?;
            let batches = batches.into_iter().map(move |batch| {
                let batch = batch.slice(0, left.min(batch.num_rows()));
                left -= batch.num_rows();
                baseline.record_output(batch.num_rows());
                Ok::<_, DataFusionError>(batch)
            });
            Ok::<_, DataFusionError>(stream::iter(batches))
        };
        Ok(Box::pin(RecordBatchStreamAdapter::new(self.schema(), stream::once(read).try_flatten())))
    }

    /// Another run has metrics of its own.
    fn reset_state(self: Arc<Self>) -> DataFusionResult<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(Self::new(Arc::clone(&self.rows), self.limit)))
    }

    fn metrics(&self) -> Option<MetricsSet> {
        Some(self.metrics.clone_inner())
    }
}

/// Makes the operator for rows.
pub(super) fn at_once(rows: impl ReadAtOnce, limit: Option<usize>) -> Arc<dyn ExecutionPlan> {
    Arc::new(AtOnceExec::new(Arc::new(rows), limit))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use arrow::array::{ArrayRef, Int64Array};
    use arrow::datatypes::{DataType, Field, Schema};
    use datafusion::physical_plan::{collect, displayable};
    use datafusion::prelude::{SessionConfig, SessionContext};
    use quiver_types::read_stats::{add, get};
    use quiver_types::{Error, ErrorKind};

    use super::*;
    use crate::error::from_datafusion;

    /// Rows in batches of given sizes; `None` if reading them fails.
    #[derive(Debug)]
    struct Fixed {
        schema: SchemaRef,
        sizes: Option<Vec<usize>>,
        reads: Arc<AtomicUsize>,
    }

    impl ReadAtOnce for Fixed {
        fn table(&self) -> &'static str {
            "fixed"
        }

        fn schema(&self) -> &SchemaRef {
            &self.schema
        }

        fn read<'a>(
            &'a self,
            _: &'a Arc<TaskContext>,
            stats: &'a ReadStats,
        ) -> BoxFuture<'a, Result<Vec<RecordBatch>>> {
            Box::pin(async move {
                self.reads.fetch_add(1, Relaxed);
                let sizes = self.sizes.as_ref().ok_or_else(|| Error::new(ErrorKind::NotFound, "it is gone"))?;
                add(&stats.series, sizes.len() as u64);
                let numbers = |rows: usize| Arc::new(Int64Array::from_iter_values(0..rows as i64)) as ArrayRef;
                let of = |rows: &usize| RecordBatch::try_new(Arc::clone(&self.schema), vec![numbers(*rows)]).unwrap();
                Ok(sizes.iter().map(of).collect())
            })
        }

        fn written(&self, _: &At<'_>) -> DataFusionResult<WrittenRows> {
            internal_err!("nobody writes it")
        }
    }

    fn node(sizes: Option<&[usize]>, limit: Option<usize>) -> (Arc<dyn ExecutionPlan>, Arc<AtomicUsize>) {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, false)]));
        let reads = Arc::<AtomicUsize>::default();
        let rows = Fixed { schema, sizes: sizes.map(<[usize]>::to_vec), reads: Arc::clone(&reads) };
        (at_once(rows, limit), reads)
    }

    #[tokio::test]
    async fn rows_are_cut_at_the_limit() {
        for (limit, expected) in [(None, 9), (Some(0), 0), (Some(2), 2), (Some(3), 3), (Some(4), 4), (Some(10), 9)] {
            let (plan, reads) = node(Some(&[3, 0, 3, 3]), limit);
            assert_eq!(plan.fetch(), limit);
            let stats = Arc::new(ReadStats::default());
            let config = SessionConfig::new().with_extension(Arc::clone(&stats));
            let task = SessionContext::new_with_config(config).task_ctx();
            for runs in 1..=2 {
                let rows = collect(Arc::clone(&plan), Arc::clone(&task)).await.unwrap();
                assert_eq!(rows.iter().map(RecordBatch::num_rows).sum::<usize>(), expected, "{limit:?}");
                assert_eq!((reads.load(Relaxed), get(&stats.series)), (runs, 4 * runs as u64), "each run reads anew");
            }
            let anew = Arc::clone(&plan).reset_state().unwrap();
            assert_eq!(anew.metrics().unwrap().output_rows(), None, "another run counts anew");
            assert_eq!(plan.metrics().unwrap().output_rows(), Some(2 * expected));
        }
    }

    #[tokio::test]
    async fn errors_come_when_it_runs() {
        let (plan, reads) = node(None, Some(1));
        assert_eq!(
            displayable(plan.as_ref()).one_line().to_string().trim(),
            "AtOnceExec: table=fixed, columns=[n], limit=1"
        );
        let task = SessionContext::new().task_ctx();
        assert!(plan.execute(1, Arc::clone(&task)).is_err(), "there is one partition");
        let stream = plan.execute(0, Arc::clone(&task)).unwrap();
        assert_eq!(reads.load(Relaxed), 0, "nobody has asked for a row");
        drop(stream);
        let error = from_datafusion(collect(plan, task).await.unwrap_err());
        assert_eq!((error.kind, error.message.as_str()), (ErrorKind::NotFound, "it is gone"));
        assert_eq!(reads.load(Relaxed), 1);
    }
}
