//! DataFusion's nodes for which it has no message, or one that loses information.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::datasource::source::DataSourceExec;
use datafusion::error::Result;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::common::project_plan_to_schema;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::limit::{GlobalLimitExec, LocalLimitExec};
use datafusion::physical_plan::memory::LazyMemoryExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::union::{InterleaveExec, UnionExec};
use datafusion::physical_plan::windows::{BoundedWindowAggExec, WindowAggExec};
use datafusion::physical_plan::work_table::WorkTableExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, InputOrderMode, ReplaceChildrenOptions, displayable,
};
use datafusion_proto::physical_plan::PhysicalPlanNodeExt as _;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{self, PhysicalPlanNode};
use prost::Message as _;
use quiver_query::Forms as _;

use crate::codec_state::Pass;
use crate::extension_messages::{Body, Mode, broken};
use crate::windows;

/// Serializes a node; `None` if it is none of these.
pub(crate) fn write(pass: &Pass, node: &dyn ExecutionPlan) -> Result<Option<Body>> {
    if let Some(recursive) = node.downcast_ref::<RecursiveQueryExec>() {
        let schema = pass.write_schema(&node.schema())?;
        let (name, is_distinct) = (recursive.name().to_owned(), recursive.is_distinct());
        return Ok(Some(Body::Recursive { name, schema, is_distinct }));
    }
    if let Some(found) = node.downcast_ref::<WorkTableExec>() {
        return work_table(pass, found).map(Some);
    }
    if let Some(series) = node.downcast_ref::<LazyMemoryExec>() {
        return write_series(pass, series).map(Some);
    }
    if let Some(window) = node.downcast_ref::<BoundedWindowAggExec>() {
        let mode = match &window.input_order_mode {
            InputOrderMode::Sorted => Mode::Sorted,
            InputOrderMode::PartiallySorted(keys) => Mode::PartiallySorted(keys.clone()),
            InputOrderMode::Linear => Mode::Linear,
        };
        return write_windows(pass, window.window_expr(), mode, !window.partition_keys().is_empty()).map(Some);
    }
    if let Some(window) = node.downcast_ref::<WindowAggExec>() {
        let is_divided = !window.partition_keys().is_empty();
        return write_windows(pass, window.window_expr(), Mode::Whole, is_divided).map(Some);
    }
    if node.is::<UnionExec>() || node.is::<InterleaveExec>() {
        return Ok(Some(Body::Union { is_interleaved: node.is::<InterleaveExec>() }));
    }
    let rows = rows_of(node);
    if u32::try_from(rows).is_ok() {
        return Ok(None);
    }
    let unknown = || pass.refuse(format!("node `{}` of {rows} rows", node.name()));
    let few = with_rows(node, 1).ok_or_else(unknown)?;
    Ok(Some(Body::Rows { bytes: pass.write_plan(&few)?, rows }))
}

/// The inputs from which a node is rebuilt. Constructing a recursive query adds casts to its terms; these are removed
/// here, so that they are not added twice.
pub(crate) fn inputs(node: &dyn ExecutionPlan) -> Vec<Arc<dyn ExecutionPlan>> {
    let is_recursive = node.is::<RecursiveQueryExec>();
    let uncast = |child: &Arc<dyn ExecutionPlan>| {
        let cast = child.downcast_ref::<ProjectionExec>().filter(|_| is_recursive)?;
        let again = project_plan_to_schema(Arc::clone(cast.input()), &node.schema()).ok()?;
        let shown = |plan: &Arc<dyn ExecutionPlan>| displayable(plan.as_ref()).one_line().to_string();
        (shown(&again) == shown(child)).then(|| Arc::clone(cast.input()))
    };
    node.children().into_iter().map(|child| uncast(child).unwrap_or_else(|| Arc::clone(child))).collect()
}

/// A row count that the message stores with 32 bits.
fn rows_of(node: &dyn ExecutionPlan) -> usize {
    if let Some(limit) = node.downcast_ref::<GlobalLimitExec>() {
        return limit.skip();
    }
    let is_counted = node.is::<LocalLimitExec>()
        || node.is::<FilterExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<DataSourceExec>();
    if is_counted { node.fetch().unwrap_or(0) } else { 0 }
}

/// The same node with another such row count.
fn with_rows(node: &dyn ExecutionPlan, rows: usize) -> Option<Arc<dyn ExecutionPlan>> {
    if let Some(limit) = node.downcast_ref::<GlobalLimitExec>() {
        let mut other = GlobalLimitExec::new(Arc::clone(limit.input()), rows, limit.fetch());
        other.set_required_ordering(limit.required_ordering().clone());
        return Some(Arc::new(other));
    }
    if let Some(limit) = node.downcast_ref::<LocalLimitExec>() {
        let mut other = LocalLimitExec::new(Arc::clone(limit.input()), rows);
        other.set_required_ordering(limit.required_ordering().clone());
        return Some(Arc::new(other));
    }
    node.with_fetch(Some(rows))
}

/// Deserializes a node.
pub(crate) fn read(pass: &Pass, body: Body, inputs: &[Arc<dyn ExecutionPlan>]) -> Result<Arc<dyn ExecutionPlan>> {
    match (body, inputs) {
        (Body::Recursive { name, schema, is_distinct }, [first, next]) => {
            let schema = pass.read_schema(&schema)?;
            let (first, next) = (Arc::clone(first), Arc::clone(next));
            Ok(Arc::new(RecursiveQueryExec::try_new(name, schema, first, next, is_distinct)?))
        }
        (Body::WorkTable { name, schema, projection }, []) => {
            let schema = pass.read_schema(&schema)?;
            Ok(Arc::new(WorkTableExec::new(name, schema, Some(projection))?))
        }
        (Body::Series { bytes, is_counted, orders }, []) => {
            let read = pass.read_plan(&bytes)?;
            let series = read.downcast_ref::<LazyMemoryExec>().ok_or_else(|| broken("this is no series"))?;
            let (schema, generators) = (read.schema(), series.generators().clone());
            let projection = is_counted.then(Vec::new);
            let mut series = LazyMemoryExec::try_new(Arc::clone(&schema), generators)?.with_projection(projection);
            for order in &orders {
                series.add_ordering(pass.read_keys(order, &schema)?);
            }
            Ok(Arc::new(series))
        }
        (Body::Union { is_interleaved }, [_, _, ..]) => {
            let union: Arc<dyn ExecutionPlan> = if is_interleaved {
                Arc::new(InterleaveExec::try_new(inputs.to_vec())?)
            } else {
                UnionExec::try_new(inputs.to_vec())?
            };
            union.replace_children(inputs.to_vec(), ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep))
        }
        (Body::Rows { bytes, rows }, []) => {
            let few = pass.read_plan(&bytes)?;
            with_rows(few.as_ref(), rows).ok_or_else(|| broken(format_args!("`{}` counts no rows", few.name())))
        }
        (Body::Windows { calls, mode, is_divided }, [input]) => {
            let (input, schema) = (Arc::clone(input), input.schema());
            let calls = calls.iter().map(|call| windows::read(pass, call, &schema)).collect::<Result<Vec<_>>>()?;
            if calls.is_empty() {
                return Err(broken("windows without a call"));
            }
            let mode = match mode {
                Mode::Whole => return Ok(Arc::new(WindowAggExec::try_new(calls, input, is_divided)?)),
                Mode::Sorted => InputOrderMode::Sorted,
                Mode::PartiallySorted(keys) => InputOrderMode::PartiallySorted(keys),
                Mode::Linear => InputOrderMode::Linear,
            };
            Ok(Arc::new(BoundedWindowAggExec::try_new(calls, input, mode, is_divided)?))
        }
        _ => Err(broken("a node has other inputs")),
    }
}

fn write_windows(pass: &Pass, calls: &[Arc<dyn WindowExpr>], mode: Mode, is_divided: bool) -> Result<Body> {
    let calls = calls.iter().map(|call| windows::write(pass, call)).collect::<Result<Vec<_>>>()?;
    Ok(Body::Windows { calls, mode, is_divided })
}

/// The node does not tell its columns; the enclosing recursive query has them, each name once.
fn work_table(pass: &Pass, table: &WorkTableExec) -> Result<Body> {
    let all = {
        let around = pass.recursive.lock();
        around.iter().rev().find(|(name, _)| name == table.name()).map(|(_, schema)| Arc::clone(schema))
    };
    let unknown = || pass.refuse(format!("the columns of recursive query `{}`", table.name()));
    let all: SchemaRef = all.ok_or_else(unknown)?;
    let place = |field: &Arc<Field>| {
        let mut places = all.fields().iter().enumerate().filter(|(_, other)| other.name() == field.name());
        places.next().map(|(at, _)| at).filter(|_| places.next().is_none())
    };
    let projection: Option<Vec<usize>> = table.schema().fields().iter().map(place).collect();
    let projection = projection.ok_or_else(unknown)?;
    Ok(Body::WorkTable { name: table.name().to_owned(), schema: pass.write_schema(&all)?, projection })
}

fn write_series(pass: &Pass, series: &LazyMemoryExec) -> Result<Body> {
    let unknown = || pass.refuse("rows that are made as they are asked for".to_owned());
    let mut node = PhysicalPlanNode::try_from_lazy_memory_exec(series)?.ok_or_else(unknown)?;
    let schema = series.schema();
    let is_counted = schema.fields().is_empty();
    if is_counted {
        // Without columns the type of the values is not in the schema, but the message needs it.
        let [generator] = series.generators().as_slice() else { return Err(unknown()) };
        let begun = generator.read().reset_state();
        let first = begun.write().generate_next_batch()?;
        let none = || Arc::new(Schema::new(vec![Field::new("value", DataType::Int64, true)]));
        let schema = first.map_or_else(none, |batch| batch.schema());
        match &mut node.physical_plan_type {
            Some(PhysicalPlanType::GenerateSeries(of)) => of.schema = Some(protobuf::Schema::try_from(&*schema)?),
            _ => return Err(unknown()),
        }
    }
    let orders = series.properties().equivalence_properties().oeq_class().iter().map(|order| pass.write_keys(order));
    Ok(Body::Series { bytes: node.encode_to_vec(), is_counted, orders: orders.collect::<Result<_>>()? })
}
