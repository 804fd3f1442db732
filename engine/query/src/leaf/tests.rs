//! The leaf over a table of its own.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};
use async_trait::async_trait;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::{collect, collect_partitioned, displayable};
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_types::read_stats::{add, get};
use quiver_types::scan::{PlannedScan, ScanBatches, ScanForms, ScanOrder, ScanTask, ScanText, ScanTimer};
use quiver_types::{Error, ErrorKind, ReadStats, Result, RunShared};

use super::*;
use crate::encoding::NodeCodec as _;
use crate::error::from_datafusion;
use crate::node_encoding::tests::Lists;

/// Bytes that a partition takes before it reads.
const BYTES: usize = 1000;

/// Two columns of numbers, those of a partition ten times its own.
#[derive(Debug)]
struct Numbers;

#[derive(Debug)]
struct Planned {
    shape: ScanShape,
    schema: SchemaRef,
}

struct Rows {
    task: ScanTask,
    left: Vec<RecordBatch>,
}

impl ScanSource for Numbers {
    fn schema(&self) -> SchemaRef {
        Arc::new(Schema::new(["a", "b"].map(|name| Field::new(name, DataType::Int64, false)).to_vec()))
    }

    fn rows_about(&self) -> Option<usize> {
        Some(20)
    }

    fn scan(&self, shape: &ScanShape) -> Result<Arc<dyn PlannedScan>> {
        let schema = match &shape.projection {
            Some(columns) => Arc::new(self.schema().project(columns).map_err(|_| Error::internal("no such column"))?),
            None => self.schema(),
        };
        Ok(Arc::new(Planned { shape: shape.clone(), schema }))
    }
}

impl PlannedScan for Planned {
    fn name(&self) -> &'static str {
        "NumbersExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn order(&self) -> Option<ScanOrder> {
        Some(ScanOrder { column: 0, descending: true })
    }

    fn partitions(&self) -> usize {
        self.shape.partitions.min(2)
    }

    fn explain(&self, text: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if text == ScanText::Drawn { writeln!(f, "numbers") } else { write!(f, "NumbersExec: {:?}", self.shape.limit) }
    }

    fn known(&self) -> Vec<(Cow<'static, str>, usize)> {
        vec![("parts_total".into(), 7), (format!("pruned_by_{}", "time").into(), 3)]
    }

    fn counters(&self) -> Vec<&'static str> {
        vec!["samples"]
    }

    fn open(&self, partition: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>> {
        let numbers = |from: i64| -> ArrayRef { Arc::new(Int64Array::from_iter_values((from..from + 5).rev())) };
        let of = |half: i64| {
            let columns = vec![numbers(10 * partition as i64 + half); self.schema.fields().len()];
            RecordBatch::try_new(Arc::clone(&self.schema), columns).map_err(|_| Error::internal("no batch"))
        };
        Ok(Box::new(Rows { task, left: vec![of(0)?, of(5)?] }))
    }
}

#[async_trait]
impl ScanBatches for Rows {
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        let _timer = ScanTimer::start(&self.task.counters);
        self.task.memory.free();
        self.task.memory.try_grow(BYTES / 2)?;
        self.task.memory.try_resize(BYTES)?;
        let own = ReadStats::default();
        add(&own.samples, 5);
        add(&own.series, 1);
        self.task.counters.add(&own.drain_into(&self.task.stats));
        Ok(self.left.pop())
    }
}

async fn planned(partitions: usize) -> Arc<dyn ExecutionPlan> {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(partitions));
    let table = scan_table(Arc::new(Numbers));
    let rows = table.statistics().expect("it knows").num_rows;
    assert_eq!(rows, Precision::Inexact(20));
    table.scan(&session.state(), Some(&vec![1]), &[], Some(50)).await.expect("a plan")
}

#[tokio::test]
async fn a_scan_runs_within_its_query() {
    let plan = planned(4).await;
    assert_eq!(plan.name(), "NumbersExec");
    assert_eq!(displayable(&*plan).one_line().to_string().trim(), "NumbersExec: Some(50)");
    assert_eq!(plan.properties().partitioning.partition_count(), 2);
    let order = plan.properties().output_ordering().expect("an order").to_string();
    assert_eq!(order, "b@0 DESC");
    for plan in [Arc::clone(&plan), reset_plan_states(plan).expect("ready for another run")] {
        let (stats, shared) = (Arc::new(ReadStats::default()), Arc::new(RunShared::default()));
        let config = SessionConfig::new().with_extension(Arc::clone(&stats)).with_extension(shared);
        let task = SessionContext::new_with_config(config).task_ctx();
        let read = collect_partitioned(Arc::clone(&plan), Arc::clone(&task)).await.expect("batches");
        let rows: Vec<usize> = read.iter().map(|batches| batches.iter().map(RecordBatch::num_rows).sum()).collect();
        assert_eq!(rows, [10, 10]);
        assert_eq!((get(&stats.samples), get(&stats.series)), (30, 6), "both halves and the end, of two partitions");
        let metrics = plan.metrics().expect("metrics");
        let counted = |name: &str| metrics.sum_by_name(name).map(|value| value.as_usize());
        assert_eq!((counted("samples"), counted("series")), (Some(30), None), "others are the query's");
        assert_eq!((counted("parts_total"), counted("pruned_by_time")), (Some(7), Some(3)));
        assert_eq!(metrics.output_rows(), Some(20));
        assert!(metrics.elapsed_compute().is_some_and(|time| time > 0));
        assert_eq!(task.memory_pool().reserved(), 0, "it is given back");
    }
    assert!(planned(1).await.execute(1, SessionContext::new().task_ctx()).is_err(), "there is no such partition");
}

#[tokio::test]
async fn memory_is_of_the_querys_pool() {
    let run = async |bytes: usize| {
        let pool = Arc::new(GreedyMemoryPool::new(bytes));
        let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().expect("a runtime");
        let session = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
        collect(planned(1).await, session.task_ctx()).await.map_err(from_datafusion)
    };
    assert_eq!(run(BYTES).await.expect("enough").len(), 2);
    for bytes in [BYTES - 1, 10] {
        let error = run(bytes).await.expect_err("too little");
        assert_eq!(error.kind, ErrorKind::LimitExceeded);
        assert!(error.message.contains("memory.limit"), "{error}");
    }
}

/// A scan whose partitions take what there is from one another, as those of logs do.
#[derive(Debug)]
struct Shared {
    numbers: Planned,
    queue: Arc<()>,
}

impl PlannedScan for Shared {
    fn name(&self) -> &'static str {
        "SharedExec"
    }

    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.numbers.schema)
    }

    fn partitions(&self) -> usize {
        1
    }

    fn explain(&self, text: ScanText, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.numbers.explain(text, f)
    }

    fn open(&self, partition: usize, task: ScanTask) -> Result<Box<dyn ScanBatches>> {
        let is_first = task.shared.as_ref().is_some_and(|shared| shared.is_first(&self.queue));
        if is_first { self.numbers.open(partition, task) } else { Ok(Box::new(Rows { task, left: Vec::new() })) }
    }
}

/// Breaks if the second round of a recursion finds a table of logs empty.
#[tokio::test]
async fn each_round_of_a_recursion_reads_anew() {
    let source = Numbers;
    let numbers = Planned { shape: ScanShape::default(), schema: source.schema() };
    let plan: Arc<dyn ExecutionPlan> = Arc::new(ScanExec::new(Arc::new(Shared { numbers, queue: Arc::new(()) })));
    let config = SessionConfig::new().with_extension(Arc::new(RunShared::default()));
    let task = SessionContext::new_with_config(config).task_ctx();
    let mut rows = Vec::new();
    for plan in [Arc::clone(&plan), reset_plan_states(Arc::clone(&plan)).expect("for a round"), plan] {
        let batches = collect(plan, Arc::clone(&task)).await.expect("batches");
        rows.push(batches.iter().map(RecordBatch::num_rows).sum::<usize>());
    }
    assert_eq!(rows, [10, 10, 0], "and the same node only once");
}

/// Writes the shape of a scan.
#[derive(Debug)]
struct Shapes;

impl ScanForms for Shapes {
    fn write(&self, scan: &dyn PlannedScan) -> Result<Option<Vec<u8>>> {
        let scan: &dyn Any = scan;
        let shape = scan.downcast_ref::<Planned>().map(|scan| postcard::to_allocvec(&scan.shape));
        shape.transpose().map_err(|_| Error::internal("a shape is not written"))
    }

    fn read(&self, bytes: &[u8]) -> Result<Arc<dyn PlannedScan>> {
        let shape = postcard::from_bytes(bytes).map_err(|_| Error::internal("this is no shape"))?;
        Numbers.scan(&shape)
    }
}

#[tokio::test]
async fn a_scan_comes_back_as_its_store_says() {
    let (plan, forms, lists) = (planned(4).await, LeafForms::new(Arc::new(Shapes)), Lists::default());
    let bytes = forms.write(plan.as_ref(), &lists).expect("written").expect("a scan");
    let read = forms.read(&bytes, Vec::new(), &lists).expect("read");
    let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).one_line().to_string();
    assert_eq!((read.schema(), shown(&read)), (plan.schema(), shown(&plan)));
    let order = |plan: &Arc<dyn ExecutionPlan>| plan.properties().output_ordering().map(ToString::to_string);
    assert_eq!((order(&read), order(&plan).is_some()), (order(&plan), true));
    let task = SessionContext::new().task_ctx();
    let rows = collect_partitioned(Arc::clone(&plan), Arc::clone(&task)).await.expect("batches");
    assert_eq!(collect_partitioned(Arc::clone(&read), task).await.expect("batches"), rows);
    assert!(forms.read(&bytes, vec![plan], &lists).is_err(), "a scan has no children");
    assert!(forms.read(&bytes[..1], Vec::new(), &lists).is_err());
    let other = EmptyExec::new(read.schema());
    assert!(forms.write(&other, &lists).expect("it is looked at").is_none(), "it is no scan");
}
