//! A function as an aggregate of DataFusion.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, GroupsAccumulator, Signature, Volatility};

use super::accumulator::StatsAccumulator;
use super::args::Arg;
use super::registry::Function;

/// A function over columns that are as its arguments say. The result is `Utf8View`; an empty text is null.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct StatsUdaf {
    /// Not the plain name: the engine gives `min` and `max` a meaning of its own.
    name: String,
    function: Function,
    args: Arc<[Arg]>,
    signature: Signature,
}

/// Makes the aggregate. Call it with the columns in the order of `args`; a function without arguments with any one
/// column or literal.
pub fn stats_udaf(function: Function, args: Vec<Arg>) -> AggregateUDF {
    let signature = Signature::variadic_any(Volatility::Immutable);
    let name = format!("logsql_{}", function.name());
    AggregateUDF::new_from_impl(StatsUdaf { name, function, args: args.into(), signature })
}

impl StatsUdaf {
    /// The function, and what its columns are.
    pub(crate) fn called(&self) -> (&Function, &[Arg]) {
        (&self.function, &self.args)
    }

    fn begin(&self) -> StatsAccumulator {
        StatsAccumulator::new(self.function.clone(), Arc::clone(&self.args))
    }
}

impl AggregateUDFImpl for StatsUdaf {
    fn name(&self) -> &str {
        &self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(self.begin()))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let types = self.function.state_types();
        let field = |(i, data_type)| Arc::new(Field::new(format!("{}[{i}]", args.name), data_type, true));
        Ok(types.into_iter().enumerate().map(field).collect())
    }

    fn groups_accumulator_supported(&self, _: AccumulatorArgs<'_>) -> bool {
        true
    }

    fn create_groups_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn GroupsAccumulator>> {
        Ok(Box::new(self.begin()))
    }
}
