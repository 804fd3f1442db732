//! The serialized form of nodes: number of inputs, kind and content of the operator, and a checksum, so that damage in
//! transit causes an error and not missing rows.
//!
//! An operator names its kind and is serialized in its own file (see `operator_encoding`); it is read through its entry in
//! [`KINDS`].

use std::sync::Arc;

use datafusion::common::{internal_datafusion_err, internal_err};
use datafusion::error::{DataFusionError, Result};
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};
use quiver_query::{Forms, NodeCodec};
use quiver_types::encoding::{sealed, unsealed};

use super::operator_encoding::{Form, unwritten};
use super::{Spread, StepExec, StepOperator};

/// All operators by kind.
const KINDS: &[OperatorDecoder] = &[
    kind::<super::absent::Absent>(),
    kind::<super::broadcast::Broadcast>(),
    kind::<super::aggregate::FoldFinal>(),
    kind::<super::aggregate::FoldPartial>(),
    kind::<super::literal::Literal>(),
    kind::<super::map::Map>(),
    kind::<super::rows::MapRows>(),
    kind::<super::newest::Newest>(),
    kind::<super::rollup::Rollup>(),
    kind::<super::chunks::SampleChunks>(),
    kind::<super::sort::Sort>(),
    kind::<super::histogram::StepHistogram>(),
    kind::<super::join::StepJoin>(),
    kind::<super::select::StepSelect>(),
    kind::<super::set::StepSet>(),
    kind::<super::union::StepUnion>(),
    kind::<super::scalar::ToScalar>(),
];

/// How operators of a kind are read.
#[derive(Debug)]
struct OperatorDecoder {
    name: &'static str,
    read: fn(&[u8]) -> Result<Arc<dyn StepOperator>>,
}

const fn kind<T: Form>() -> OperatorDecoder {
    OperatorDecoder { name: T::KIND, read: operator::<T> }
}

/// Reads an operator.
fn operator<T: Form>(bytes: &[u8]) -> Result<Arc<dyn StepOperator>> {
    match postcard::take_from_bytes::<T>(bytes).map_err(unread)? {
        (operator, []) => Ok(Arc::new(operator)),
        (_, rest) => internal_err!("{} bytes too many in operator {}", rest.len(), T::KIND),
    }
}

fn read_operator(bytes: &[u8]) -> Result<Arc<dyn StepOperator>> {
    let (name, body) = postcard::take_from_bytes::<&str>(bytes).map_err(unread)?;
    let Some(kind) = KINDS.iter().find(|kind| kind.name == name) else {
        return internal_err!("there is no operator of steps {name}");
    };
    (kind.read)(body)
}

fn write_node(node: &StepExec) -> Result<Vec<u8>> {
    let mut bytes = postcard::to_allocvec(&node.inputs.len()).map_err(unwritten)?;
    bytes.extend(node.operator.written()?);
    Ok(sealed(bytes))
}

/// Reads a node and connects its inputs unchanged. No node is inserted: if the partitions of an input would have to be
/// merged first, that is an error.
fn read_node(bytes: &[u8], inputs: Vec<Arc<dyn ExecutionPlan>>) -> Result<StepExec> {
    let bytes = unsealed(bytes).ok_or_else(|| internal_datafusion_err!("an operator of steps is damaged"))?;
    let (count, bytes) = postcard::take_from_bytes::<usize>(bytes).map_err(unread)?;
    let operator = read_operator(bytes)?;
    if inputs.len() != count {
        return internal_err!("operator {} has {} of {count} inputs", operator.name(), inputs.len());
    }
    let spread = usize::from(operator.spread() == Spread::Each);
    if inputs.iter().skip(spread).any(|input| input.output_partitioning().partition_count() > 1) {
        return internal_err!("operator {} does not see all partitions of its inputs", operator.name());
    }
    Ok(StepExec::over(operator, inputs))
}

fn unread(error: postcard::Error) -> DataFusionError {
    internal_datafusion_err!("an operator of steps cannot be read: {error}")
}

/// Serialization of PromQL plan nodes.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanForms;

impl NodeCodec for PlanForms {
    fn of(&self) -> &'static str {
        "promql"
    }

    fn write(&self, node: &dyn ExecutionPlan, _: &dyn Forms) -> Result<Option<Vec<u8>>> {
        node.downcast_ref::<StepExec>().map(write_node).transpose()
    }

    fn read(
        &self,
        bytes: &[u8],
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: &dyn Forms,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(Arc::new(read_node(bytes, children)?))
    }
}

#[cfg(test)]
mod tests;
