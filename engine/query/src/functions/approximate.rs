//! `approx_distinct` for more types: DataFusion does not support floating-point numbers, which are hashed by their
//! shortest text here. It also counts small integers exactly, which does not fit sketches of parts.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{ScalarValue, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_distinct::approx_distinct_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Documentation, GroupsAccumulator, Signature,
};

#[derive(Debug, PartialEq, Eq, Hash)]
struct Approximate {
    inner: Arc<AggregateUDF>,
    signature: Signature,
}

/// The type as which values of a type are hashed.
pub(super) fn hashed(kind: &DataType) -> DataType {
    match kind {
        kind if kind.is_floating() => DataType::Utf8View,
        DataType::Boolean | DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 => DataType::Int32,
        kind => kind.clone(),
    }
}

pub(super) fn function() -> Arc<AggregateUDF> {
    let inner = approx_distinct_udaf();
    let signature = Signature::user_defined(inner.signature().volatility);
    let function = AggregateUDF::new_from_impl(Approximate { inner, signature });
    Arc::new(function.with_aliases(["count_distinct_approx"]))
}

impl AggregateUDFImpl for Approximate {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [kind] => Ok(vec![hashed(kind)]),
            types => plan_err!("`{}` takes one value, not {}", self.name(), types.len()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn default_value(&self, kind: &DataType) -> Result<ScalarValue> {
        self.inner.default_value(kind)
    }

    fn is_nullable(&self) -> bool {
        self.inner.is_nullable()
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.inner.accumulator(args)
    }

    fn groups_accumulator_supported(&self, args: AccumulatorArgs<'_>) -> bool {
        self.inner.groups_accumulator_supported(args)
    }

    fn create_groups_accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        self.inner.create_groups_accumulator(args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}
