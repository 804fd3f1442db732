//! Serialized forms of the functions of this crate; its plans have no nodes of their own.

use std::sync::Arc;

use datafusion::common::internal_datafusion_err;
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::{AggregateUDF, ScalarUDF};
use datafusion::physical_plan::ExecutionPlan;
use quiver_query::{Forms, NodeCodec};

use crate::lists::{sketch, tags};
use crate::plan::functions::{self, SpanFunctionKind};

/// The written forms of functions over spans.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlanForms;

fn damaged(error: impl std::fmt::Display) -> DataFusionError {
    internal_datafusion_err!("the written form of a function over spans is damaged: {error}")
}

/// The aggregate functions.
fn aggregates() -> impl Iterator<Item = &'static Arc<AggregateUDF>> {
    sketch::aggregate::all().iter().chain([tags::hashes::function()])
}

impl NodeCodec for PlanForms {
    fn of(&self) -> &'static str {
        "traces"
    }

    fn write(&self, _: &dyn ExecutionPlan, _: &dyn Forms) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn read(&self, _: &[u8], _: Vec<Arc<dyn ExecutionPlan>>, _: &dyn Forms) -> Result<Arc<dyn ExecutionPlan>> {
        Err(damaged("there are no nodes"))
    }

    fn write_function(&self, function: &ScalarUDF) -> Result<Option<Vec<u8>>> {
        functions::parts(function).map(|parts| postcard::to_allocvec(&parts).map_err(damaged)).transpose()
    }

    fn read_function(&self, _: &str, bytes: &[u8]) -> Result<Arc<ScalarUDF>> {
        let (what, arguments): (SpanFunctionKind, usize) = postcard::from_bytes(bytes).map_err(damaged)?;
        if matches!(what, SpanFunctionKind::Step { step, .. } if step < 1) {
            return Err(damaged("a step has a length"));
        }
        Ok(Arc::new(functions::function(what, arguments)))
    }

    fn write_aggregate_function(&self, function: &AggregateUDF) -> Result<Option<Vec<u8>>> {
        Ok(aggregates().any(|known| **known == *function).then(Vec::new))
    }

    fn read_aggregate_function(&self, name: &str, _: &[u8]) -> Result<Arc<AggregateUDF>> {
        let found = aggregates().find(|known| known.name() == name);
        found.cloned().ok_or_else(|| damaged(format_args!("there is no function `{name}`")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_come_back() {
        let attribute =
            SpanFunctionKind::Attribute { key: "http.route".to_owned(), columns: vec!["a".to_owned(), "b".to_owned()] };
        let all = [
            (SpanFunctionKind::Step { origin: -7, step: 60 }, 1),
            (SpanFunctionKind::Scale, 1),
            (SpanFunctionKind::Instance, 1),
            (SpanFunctionKind::InstancePart, 1),
            (SpanFunctionKind::Remote, 2),
            (SpanFunctionKind::Kind, 1),
            (SpanFunctionKind::EventNames, 1),
            (attribute, 2),
        ];
        for (what, arguments) in all {
            let function = functions::function(what, arguments);
            let bytes = PlanForms.write_function(&function).unwrap().expect("one of these");
            let read = PlanForms.read_function(function.name(), &bytes).unwrap();
            assert_eq!(*read, function);
            assert!(PlanForms.read_function(function.name(), &bytes[..bytes.len() - 1]).is_err(), "{function:?}");
        }
        for function in aggregates() {
            let bytes = PlanForms.write_aggregate_function(function).unwrap().expect("one of these");
            assert_eq!(PlanForms.read_aggregate_function(function.name(), &bytes).unwrap(), *function);
        }
        let other = datafusion::functions::math::abs();
        assert_eq!(PlanForms.write_function(&other).unwrap(), None);
        let other = datafusion::functions_aggregate::count::count_udaf();
        assert_eq!(PlanForms.write_aggregate_function(&other).unwrap(), None);
        assert!(PlanForms.read_aggregate_function("count", &[]).is_err());
    }
}
