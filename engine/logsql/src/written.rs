//! Written forms of the physical nodes: a step is its kind, and all that it says as plain data behind it.
//!
//! A step is written by what is derived of its type; a kind finds its reader in the lists of `ops`, of the pipes and of the
//! planner. Nothing of a run is written: a step has nothing of it.

use std::sync::Arc;

use datafusion::common::internal_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::AggregateUDF;
use datafusion::physical_plan::ExecutionPlan;
use quiver_query::{Forms, Written};
use quiver_types::logs::read_matchers;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::kernels::filters::MATCHERS;
use crate::nodes::{Step, StepExec};
use crate::stats_fn::{Arg, Function, StatsUdaf, stats_udaf};
use crate::{ops, pipes, plan};

/// A type of steps.
pub(crate) trait StepKind: Serialize + DeserializeOwned {
    /// Tells it from all others in a plan that is written; never used again for another.
    const KIND: &'static str;
}

/// What a step gives of itself when its plan is written.
pub(crate) trait WrittenStep {
    /// The kind, by which its reader is found.
    fn kind(&self) -> &'static str;

    /// The step as bytes.
    ///
    /// # Errors
    /// Internal: a matcher of a filter in it has no written form.
    fn body(&self) -> Result<Vec<u8>>;
}

impl<S: StepKind> WrittenStep for S {
    fn kind(&self) -> &'static str {
        S::KIND
    }

    fn body(&self) -> Result<Vec<u8>> {
        to_bytes(self)
    }
}

/// How the steps of a kind are read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepReader {
    kind: &'static str,
    read: fn(&[u8]) -> Result<Arc<dyn Step>>,
}

impl StepReader {
    /// The reader of a type of steps.
    pub(crate) const fn of<S: Step + StepKind>() -> Self {
        Self { kind: S::KIND, read: read_step::<S> }
    }
}

fn read_step<S: Step + StepKind>(body: &[u8]) -> Result<Arc<dyn Step>> {
    Ok(Arc::new(from_bytes::<S>(body)?))
}

/// All kinds of steps.
fn readers() -> impl Iterator<Item = &'static StepReader> {
    ops::STEPS.iter().copied().flatten().chain(plan::STEPS).chain(pipes::steps().flatten())
}

fn to_bytes(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_allocvec(value).map_err(|e| DataFusionError::External(Box::new(e)))
}

fn from_bytes<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    let (value, rest) = postcard::take_from_bytes(bytes).map_err(|e| DataFusionError::External(Box::new(e)))?;
    if rest.is_empty() { Ok(value) } else { internal_err!("{} bytes are left of a written form", rest.len()) }
}

/// Sees to it that the filters of the language are read.
pub(crate) fn hand_on_matchers() {
    read_matchers(MATCHERS);
}

/// How the nodes and functions of this language are written.
#[derive(Debug, Clone, Copy)]
pub struct PlanForms;

impl Written for PlanForms {
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
