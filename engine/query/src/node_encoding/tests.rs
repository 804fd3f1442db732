//! Nodes of the engine come back from what is written of them. What DataFusion would write is kept in lists.

use std::collections::BTreeSet;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::internal_err;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_plan::empty::EmptyExec;
use datafusion::physical_plan::{ExecutionPlanProperties as _, collect, displayable};
use datafusion::prelude::SessionContext;
use parking_lot::Mutex;
use quiver_types::metrics::MetricMetadata;
use quiver_types::source::SeriesExemplars;
use quiver_types::{Error, MatchOp, Matcher, Millis, MillisRange, ReadStats, SelectedSeries, SeriesSelector, Version};

use super::*;

/// Writes places in lists.
#[derive(Default)]
pub(crate) struct Lists {
    exprs: Mutex<Vec<Arc<dyn PhysicalExpr>>>,
    aggregates: Mutex<Vec<Arc<AggregateFunctionExpr>>>,
    schemas: Mutex<Vec<SchemaRef>>,
}

fn put<T>(list: &Mutex<Vec<T>>, item: T) -> Result<Vec<u8>> {
    let mut list = list.lock();
    list.push(item);
    postcard::to_allocvec(&(list.len() - 1)).map_err(damaged)
}

fn got<T: Clone>(list: &Mutex<Vec<T>>, bytes: &[u8]) -> Result<T> {
    let place: usize = postcard::from_bytes(bytes).map_err(damaged)?;
    list.lock().get(place).cloned().ok_or_else(|| damaged("there is no such place"))
}

impl Forms for Lists {
    fn write_expr(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Vec<u8>> {
        put(&self.exprs, Arc::clone(expr))
    }

    fn read_expr(&self, bytes: &[u8], _: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        got(&self.exprs, bytes)
    }

    fn write_aggregate(&self, aggregate: &AggregateFunctionExpr) -> Result<Vec<u8>> {
        put(&self.aggregates, Arc::new(aggregate.clone()))
    }

    fn read_aggregate(&self, bytes: &[u8], _: &Schema) -> Result<Arc<AggregateFunctionExpr>> {
        got(&self.aggregates, bytes)
    }

    fn write_schema(&self, schema: &Schema) -> Result<Vec<u8>> {
        put(&self.schemas, Arc::new(schema.clone()))
    }

    fn read_schema(&self, bytes: &[u8]) -> Result<SchemaRef> {
        got(&self.schemas, bytes)
    }

    fn write_plan(&self, _: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        internal_err!("no node has a plan beside its children")
    }

    fn read_plan(&self, _: &[u8]) -> Result<Arc<dyn ExecutionPlan>> {
        internal_err!("no node has a plan beside its children")
    }
}

fn forms() -> PlanForms {
    PlanForms { functions: Vec::new() }
}

/// Writes a node and reads it over its children; `None`: it is not written here.
fn of_node(node: &Arc<dyn ExecutionPlan>) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let (plans, lists) = (forms(), Lists::default());
    let Some(bytes) = plans.write(node.as_ref(), &lists)? else { return Ok(None) };
    let inputs: Vec<Arc<dyn ExecutionPlan>> = node.children().into_iter().cloned().collect();
    let read = plans.read(&bytes, inputs.clone(), &lists)?;
    let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).indent(true).to_string();
    let partitions = |plan: &Arc<dyn ExecutionPlan>| plan.output_partitioning().partition_count();
    assert_eq!((shown(&read), read.schema()), (shown(node), node.schema()));
    assert_eq!((partitions(&read), read.children().len()), (partitions(node), inputs.len()), "{}", node.name());
    for end in 0..bytes.len() {
        assert!(plans.read(&bytes[..end], inputs.clone(), &lists).is_err(), "{}: {end} bytes", node.name());
    }
    let more = inputs.iter().chain([node]).cloned().collect();
    assert!(plans.read(&bytes, more, &lists).is_err(), "{} over other inputs", node.name());
    Ok(Some(read))
}

/// Gives a plan whose nodes of the engine were written and read, and the names of these nodes.
pub(crate) fn passed(plan: Arc<dyn ExecutionPlan>) -> (Arc<dyn ExecutionPlan>, BTreeSet<String>) {
    let mut names = BTreeSet::new();
    let passed = plan.transform_up(|node| {
        let Some(read) = of_node(&node)? else { return Ok(Transformed::no(node)) };
        names.insert(node.name().to_owned());
        Ok(Transformed::yes(read))
    });
    (passed.unwrap().data, names)
}

/// Tells what it is asked for.
#[derive(Debug)]
struct Told;

fn nothing<T>() -> quiver_types::Result<T> {
    Err(Error::internal("nobody asks for that"))
}

#[async_trait]
impl SeriesSnapshot for Told {
    fn version(&self) -> Version {
        Version { written: 0, dropped: 0 }
    }

    fn first_change(&self, _: Version, _: MillisRange) -> Option<Millis> {
        None
    }

    async fn select(&self, _: &Access, _: &SeriesSelector, _: &ReadStats) -> quiver_types::Result<SelectedSeries> {
        nothing()
    }

    async fn label_names(
        &self,
        access: &Access,
        selectors: &[Vec<Matcher>],
        range: MillisRange,
        _: &ReadStats,
    ) -> quiver_types::Result<Vec<String>> {
        Ok(vec![format!("{access:?} {selectors:?} {range:?}"), "second".to_owned()])
    }

    async fn label_values(
        &self,
        _: &Access,
        _: &str,
        _: &[Vec<Matcher>],
        _: MillisRange,
        _: &ReadStats,
    ) -> quiver_types::Result<Vec<String>> {
        nothing()
    }

    async fn metadata(&self, _: &Access, _: Option<&str>, _: &ReadStats) -> quiver_types::Result<Vec<MetricMetadata>> {
        nothing()
    }

    async fn exemplars(
        &self,
        _: &Access,
        _: &[Vec<Matcher>],
        _: MillisRange,
        _: &ReadStats,
    ) -> quiver_types::Result<Vec<SeriesExemplars>> {
        nothing()
    }
}

#[tokio::test]
async fn look_ups_come_back_over_their_snapshot() {
    let snapshot: Arc<dyn SeriesSnapshot> = Arc::new(Told);
    let selector = vec![Matcher::equal("a", "\""), Matcher::new("b", MatchOp::NotRegex, "x.*").unwrap()];
    let look_up = LookUp::Names(vec![selector, Vec::new()], MillisRange::new(-1, 7));
    let access = Access::services(["s"]);
    let node = IndexExec::new(look_up, Arc::clone(&snapshot), access, Some(vec![0]), Some(1)).unwrap();
    let node: Arc<dyn ExecutionPlan> = Arc::new(node);
    let (read, names) = passed(Arc::clone(&node));
    assert_eq!(names, BTreeSet::from(["IndexExec".to_owned()]));
    let rows = async |plan: &Arc<dyn ExecutionPlan>| -> Vec<RecordBatch> {
        collect(Arc::clone(plan), SessionContext::new().task_ctx()).await.unwrap()
    };
    let expected = rows(&node).await;
    assert_eq!(expected.iter().map(RecordBatch::num_rows).sum::<usize>(), 1);
    assert_eq!(rows(&read).await, expected);
    let (plans, lists) = (forms(), Lists::default());
    let bytes = plans.write(node.as_ref(), &lists).unwrap().unwrap();
    drop((node, read, snapshot));
    let gone = plans.read(&bytes, Vec::new(), &lists).unwrap_err().to_string();
    assert!(gone.contains("not held any more"), "{gone}");
}

#[test]
fn nodes_of_others_are_left_to_them() {
    let node = EmptyExec::new(Arc::new(Schema::empty()));
    assert!(forms().write(&node, &Lists::default()).unwrap().is_none());
}

#[test]
fn aggregates_of_one_name_are_told_apart() {
    let plans = forms();
    for name in ["sum", "avg"] {
        let exact = exact_doubles(name).unwrap();
        let bytes = plans.write_aggregate_function(&exact).unwrap().unwrap();
        assert_eq!(plans.read_aggregate_function(name, &bytes).unwrap(), exact);
        assert!(plans.read_aggregate_function("min", &bytes).is_err());
    }
    let whole = sum_by_name("sum").unwrap();
    let bytes = plans.write_aggregate_function(&whole).unwrap().unwrap();
    assert_eq!(plans.read_aggregate_function("sum", &bytes).unwrap(), whole);
}
