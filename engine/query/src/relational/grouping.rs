//! Grouping by dictionary codes: the rule that replaces DataFusion's partial aggregation by [`node::CodedGroupExec`] if
//! the rows come from a table that gives texts as codes ([`ConvertExec::coded`]).
//!
//! DataFusion groups by values: it hashes and compares the text of each row. A part stores each distinct text once for
//! thousands of rows, so here conditions, functions and keys of texts are evaluated once per text, and rows are grouped
//! by small numbers. Filters and projections between the table and the aggregation become part of the node.

mod columns;
mod expressions;
mod keys;
pub(crate) mod node;
mod single_group;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use datafusion::common::tree_node::Transformed;
use datafusion::error::Result;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties as _, Partitioning};

use self::expressions::{AggregationExprs, Exprs};
use self::node::CodedGroupExec;
use crate::plan_walk::change_physical;
use crate::tables::convert::ConvertExec;

/// Replaces partial aggregations over tables that give texts as codes.
///
/// # Errors
///
/// Those of making the nodes.
pub(crate) fn by_codes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    change_physical(plan, &mut |node| {
        let aggregate = node.downcast_ref::<AggregateExec>();
        Ok(match aggregate.map(grouped).transpose()?.flatten() {
            Some(coded) => Transformed::yes(coded),
            None => Transformed::no(node),
        })
    })
}

/// The node that replaces an aggregation; `None` if the rows do not come from a table with codes, or the node does
/// not support something that the aggregation uses.
fn grouped(aggregate: &AggregateExec) -> Result<Option<Arc<dyn ExecutionPlan>>> {
    let is_partial = *aggregate.mode() == AggregateMode::Partial;
    let group = aggregate.group_expr();
    let grouping_sets = group.has_grouping_set() || group.groups().len() > 1;
    let orders = aggregate.aggr_expr().iter().any(|e| !e.order_bys().is_empty());
    let known = is_partial || *aggregate.mode() == AggregateMode::Single;
    if !known || grouping_sets || orders || aggregate.limit_options().is_some() {
        return Ok(None);
    }
    let mut asked = AggregationExprs {
        groups: group.expr().iter().map(|(expr, _)| Arc::clone(expr)).collect(),
        args: aggregate.aggr_expr().iter().map(|e| e.expressions()).collect(),
        filters: aggregate.filter_expr().to_vec(),
        predicate: None,
    };
    let (mut below, mut spread) = (Arc::clone(aggregate.input()), None);
    let rows = loop {
        let next = if let Some(project) = below.downcast_ref::<ProjectionExec>() {
            let columns: Exprs = project.expr().iter().map(|e| Arc::clone(&e.expr)).collect();
            asked.over(&columns)?;
            Arc::clone(project.input())
        } else if let Some(filter) = below.downcast_ref::<FilterExec>() {
            if filter.fetch().is_some() {
                return Ok(None);
            }
            if let Some(kept) = filter.projection() {
                let schema = filter.input().schema();
                let column =
                    |at: &usize| -> Arc<dyn PhysicalExpr> { Arc::new(Column::new(schema.field(*at).name(), *at)) };
                asked.over(&kept.iter().map(column).collect::<Exprs>())?;
            }
            let own = Arc::clone(filter.predicate());
            asked.predicate = Some(match asked.predicate.take() {
                Some(above) => Arc::new(BinaryExpr::new(own, Operator::And, above)),
                None => own,
            });
            Arc::clone(filter.input())
        } else if let Some(repartition) = below.downcast_ref::<RepartitionExec>() {
            let Partitioning::RoundRobinBatch(partitions) = repartition.partitioning() else { return Ok(None) };
            spread = Some(*partitions);
            Arc::clone(repartition.input())
        } else if let Some(convert) = below.downcast_ref::<ConvertExec>() {
            match convert.coded() {
                Some(coded) => break coded,
                None => return Ok(None),
            }
        } else if below.downcast_ref::<CooperativeExec>().is_some() {
            match below.children().as_slice() {
                [one] => Arc::clone(one),
                _ => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        below = next;
    };
    let plain = below.schema();
    let mut input: Arc<dyn ExecutionPlan> = Arc::new(rows);
    if let Some(partitions) = spread {
        input = Arc::new(RepartitionExec::try_new(input, Partitioning::RoundRobinBatch(partitions))?);
    }
    if !is_partial && input.output_partitioning().partition_count() != 1 {
        return Ok(None);
    }
    CodedGroupExec::of(aggregate, asked, input, &plain)
}
