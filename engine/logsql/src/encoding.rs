//! Serialized forms of the physical nodes and functions: for a step its kind, followed by its content (`step`).
//!
//! The lists of `ops`, of the pipes and of the planner give the reader for a kind.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_plan::ExecutionPlan;
use quiver_query::{Forms, NodeCodec};
use quiver_types::logs::read_matchers;

use crate::kernels::filters::MATCHERS;
use crate::nodes::StepExec;
use crate::stats_functions::{Arg, Function, StatsUdaf, stats_udaf};
use crate::step::{StepReader, from_bytes, to_bytes};
use crate::{ops, pipes, plan};

/// All kinds of steps.
fn readers() -> impl Iterator<Item = &'static StepReader> {
    ops::STEPS.iter().copied().flatten().chain(plan::STEPS).chain(pipes::steps().flatten())
}

/// Sees to it that the filters of the language are read.
pub(crate) fn hand_on_matchers() {
    read_matchers(MATCHERS);
}

/// How the nodes and functions of this language are written.
#[derive(Debug, Clone, Copy)]
pub struct PlanForms;

impl NodeCodec for PlanForms {
    fn of(&self) -> &'static str {
        "logsql"
    }

    fn write(&self, node: &dyn ExecutionPlan, _: &dyn Forms) -> Result<Option<Vec<u8>>> {
        let Some(node) = node.downcast_ref::<StepExec>() else { return Ok(None) };
        let step = node.step();
        let body = match step.body() {
            Ok(body) => body,
            Err(e) => return internal_err!("`{}: {}` has no written form: {e}", step.name(), step.detail()),
        };
        to_bytes(&(step.kind(), body.as_slice())).map(Some)
    }

    fn read(
        &self,
        bytes: &[u8],
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Forms,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        hand_on_matchers();
        let (kind, body): (&str, &[u8]) = from_bytes(bytes)?;
        let Some(reader) = readers().find(|reader| reader.kind == kind) else {
            return internal_err!("there is no step of kind `{kind}`");
        };
        let step = (reader.read)(body)?;
        let Ok([input]) = <[Arc<dyn ExecutionPlan>; 1]>::try_from(children) else {
            return internal_err!("a step of kind `{kind}` has one input");
        };
        StepExec::exactly_over(step, input)
    }

    fn write_aggregate_function(&self, function: &AggregateUDF) -> Result<Option<Vec<u8>>> {
        let Some(function) = function.inner().downcast_ref::<StatsUdaf>() else { return Ok(None) };
        to_bytes(&function.called()).map(Some)
    }

    fn read_aggregate_function(&self, name: &str, bytes: &[u8]) -> Result<Arc<AggregateUDF>> {
        let (function, args): (Function, Vec<Arg>) = from_bytes(bytes)?;
        let read = stats_udaf(function, args);
        if read.name() == name { Ok(Arc::new(read)) } else { internal_err!("`{name}` is written as `{}`", read.name()) }
    }
}

#[cfg(test)]
pub(crate) mod tests;
