//! Window frames with `EXCLUDE CURRENT ROW`, `EXCLUDE GROUP` or `EXCLUDE TIES`, which DataFusion does not have. Plans
//! encode the exclusion as a partition key, a call of a marker function, so that all rules see the original window
//! function. At the end the marker is removed, and the function is replaced by one of ours around an aggregate, which
//! is evaluated per frame.

mod blocks;
mod frames;

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::functions_aggregate::first_last::{first_value_udaf, last_value_udaf};
use datafusion::functions_aggregate::nth_value::nth_value_udaf;
use datafusion::logical_expr::expr::{WindowFunction, WindowFunctionParams};
use datafusion::logical_expr::function::{PartitionEvaluatorArgs, WindowUDFFieldArgs};
use datafusion::logical_expr::{
    AggregateUDF, ColumnarValue, Expr, PartitionEvaluator, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    TypeSignature, Volatility, WindowFunctionDefinition, WindowUDF, WindowUDFImpl, cast,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateExprBuilder;
use datafusion::physical_expr::expressions::{Column, Literal};
use serde::{Deserialize, Serialize};

pub(crate) use self::frames::Exclusion;
use self::frames::{Frames, State};

/// The marker functions, which are never evaluated.
pub(super) fn marks() -> impl Iterator<Item = Arc<ScalarUDF>> {
    [Exclusion::CurrentRow, Exclusion::Group, Exclusion::Ties].into_iter().map(|exclusion| {
        // Volatile, since a constant would be folded.
        let signature = Signature::nullary(Volatility::Volatile);
        Arc::new(ScalarUDF::from(Mark { exclusion, signature }))
    })
}

/// The exclusion of a window's frame; `None` if it has none.
pub(crate) fn exclusion(params: &WindowFunctionParams) -> Option<Exclusion> {
    params.partition_by.iter().find_map(marked)
}

/// Whether a partition key is such a marker.
pub(crate) fn is_mark(key: &Expr) -> bool {
    marked(key).is_some()
}

fn marked(key: &Expr) -> Option<Exclusion> {
    let Expr::ScalarFunction(call) = key else { return None };
    call.func.inner().downcast_ref::<Mark>().map(|mark| mark.exclusion)
}

/// A marker function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mark {
    exclusion: Exclusion,
    signature: Signature,
}

impl ScalarUDFImpl for Mark {
    fn name(&self) -> &'static str {
        match self.exclusion {
            Exclusion::CurrentRow => "exclude_current_row",
            Exclusion::Group => "exclude_group",
            Exclusion::Ties => "exclude_ties",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        exec_err!("`{}` stands in the partitions of a window alone", self.name())
    }
}

/// Replaces a call with an exclusion by one that implements it.
///
/// # Errors
///
/// Plan: `nth_value` with an invalid position.
pub(super) fn applied(expr: Expr) -> Result<Transformed<Expr>> {
    let Expr::WindowFunction(call) = expr else { return Ok(Transformed::no(expr)) };
    let Some(exclusion) = exclusion(&call.params) else { return Ok(Transformed::no(Expr::WindowFunction(call))) };
    let WindowFunction { fun, mut params } = *call;
    params.partition_by.retain(|key| !is_mark(key));
    let inner = match fun {
        WindowFunctionDefinition::AggregateUDF(inner) => inner,
        WindowFunctionDefinition::WindowUDF(of_rows) => match of_rows.name() {
            "first_value" => first_value_udaf(),
            "last_value" => last_value_udaf(),
            "nth_value" => {
                place(&mut params.args)?;
                nth_value_udaf()
            }
            // All other functions depend on the partition only, whatever the frame.
            _ => return Ok(Transformed::yes(Expr::from(WindowFunction { fun: of_rows.into(), params }))),
        },
    };
    let (is_distinct, condition) = (std::mem::take(&mut params.distinct), params.filter.take());
    let is_filtered = condition.is_some();
    if let Some(condition) = condition {
        // A bare NULL has no type.
        params.args.insert(0, cast(*condition, DataType::Boolean));
    }
    let function = function(Parts { exclusion, is_distinct, is_filtered, args: params.args.len() }, inner);
    Ok(Transformed::yes(Expr::from(WindowFunction { fun: function.into(), params })))
}

/// Converts the position argument of `nth_value` for the aggregate of that name.
fn place(args: &mut [Expr]) -> Result<()> {
    if let Some(Expr::Literal(place, _)) = args.get_mut(1) {
        *place = place.cast_to(&DataType::Int64)?;
        if matches!(place, ScalarValue::Int64(Some(0 | i64::MIN))) {
            return plan_err!("`nth_value` counts values from 1, or from -1 backwards");
        }
    }
    Ok(())
}

/// The settings of a function over frames with an exclusion, without the aggregate.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Parts {
    exclusion: Exclusion,
    is_distinct: bool,
    is_filtered: bool,
    args: usize,
}

/// The settings and the aggregate of such a function; `None` if it is another function.
pub(super) fn parts(function: &WindowUDF) -> Option<(Parts, Arc<AggregateUDF>)> {
    let of: &FrameExclusionFunction = function.inner().downcast_ref()?;
    let TypeSignature::Any(args) = of.signature.type_signature else { return None };
    let (exclusion, is_distinct, is_filtered) = (of.exclusion, of.is_distinct, of.is_filtered);
    Some((Parts { exclusion, is_distinct, is_filtered, args }, Arc::clone(&of.inner)))
}

/// Builds such a function.
pub(super) fn function(parts: Parts, inner: Arc<AggregateUDF>) -> Arc<WindowUDF> {
    let Parts { exclusion, is_distinct, is_filtered, args } = parts;
    let signature = Signature::any(args, inner.signature().volatility);
    Arc::new(WindowUDF::new_from_impl(FrameExclusionFunction { inner, exclusion, is_distinct, is_filtered, signature }))
}

/// An aggregate over frames with an exclusion.
#[derive(Debug, PartialEq, Eq, Hash)]
struct FrameExclusionFunction {
    inner: Arc<AggregateUDF>,
    exclusion: Exclusion,
    /// Whether duplicate values count once (`DISTINCT`).
    is_distinct: bool,
    /// Whether the first argument is a `FILTER` condition.
    is_filtered: bool,
    signature: Signature,
}

impl FrameExclusionFunction {
    /// The aggregate's own arguments, or what belongs to them.
    fn own<'a, T>(&self, of: &'a [T]) -> &'a [T] {
        if self.is_filtered { of.get(1..).unwrap_or_default() } else { of }
    }
}

impl WindowUDFImpl for FrameExclusionFunction {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn partition_evaluator(&self, args: PartitionEvaluatorArgs<'_>) -> Result<Box<dyn PartitionEvaluator>> {
        if args.is_reversed() {
            return internal_err!("frames that leave rows out are in their order");
        }
        let fields = self.own(args.input_fields());
        // Some aggregates need constants as arguments.
        let arg = |(at, expr): (usize, &Arc<dyn PhysicalExpr>)| -> Arc<dyn PhysicalExpr> {
            match fields.get(at) {
                Some(field) if expr.downcast_ref::<Literal>().is_none() => Arc::new(Column::new(field.name(), at)),
                _ => Arc::clone(expr),
            }
        };
        let exprs = self.own(args.input_exprs()).iter().enumerate().map(arg).collect();
        let aggregate = AggregateExprBuilder::new(Arc::clone(&self.inner), exprs)
            .schema(Arc::new(Schema::new(fields.to_vec())))
            .alias(self.inner.name())
            .with_distinct(self.is_distinct)
            .build()?;
        // Unsupported arguments have been refused during planning.
        aggregate.create_accumulator()?;
        Ok(Box::new(Frames {
            aggregate,
            exclusion: self.exclusion,
            args: args.input_exprs().len(),
            is_filtered: self.is_filtered,
            ignores_nulls: args.ignore_nulls(),
            state: State::default(),
        }))
    }

    fn field(&self, args: WindowUDFFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.inner.return_field(self.own(args.input_fields()))?;
        Ok(Arc::new(field.as_ref().clone().with_name(args.name())))
    }
}

#[cfg(test)]
mod tests;
