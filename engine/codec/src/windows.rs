//! Serialized forms of window function calls. DataFusion's lose IGNORE NULLS, and whether a call is reversed.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::error::Result;
use datafusion::logical_expr::{ReversedUDWF, WindowFrame, WindowUDF};
use datafusion::physical_expr::window::{
    PlainAggregateWindowExpr, SlidingAggregateWindowExpr, StandardWindowExpr, StandardWindowFunctionExpr, WindowExpr,
};
use datafusion::physical_plan::windows::{WindowUDFExpr, create_udwf_window_expr};
use datafusion_proto::protobuf;
use prost::Message as _;
use quiver_query::Forms as _;

use crate::codec_state::Pass;
use crate::extension_messages::{Call, WindowFunctionMessage, broken};
use crate::functions;

/// The end of a call's debug text, which is the only way to find these flags.
const FLAGS: [(bool, bool, &str); 4] = [
    (false, false, "is_reversed: false, ignore_nulls: false }"),
    (false, true, "is_reversed: false, ignore_nulls: true }"),
    (true, false, "is_reversed: true, ignore_nulls: false }"),
    (true, true, "is_reversed: true, ignore_nulls: true }"),
];

/// The end of an aggregate's debug text if it has no `FILTER`, which is the only way to find that.
const WITHOUT_CONDITION: &str = "filter: None }";

/// Serializes a call.
pub(crate) fn write(pass: &Pass, call: &Arc<dyn WindowExpr>) -> Result<Call> {
    let unknown = || pass.refuse(format!("window function `{}`", call.name()));
    let any = call.as_any();
    let is_plain = || format!("{call:?}").ends_with(WITHOUT_CONDITION);
    let conditional = || pass.refuse(format!("the condition (FILTER) of window function `{}`", call.name()));
    let of = if let Some(growing) = any.downcast_ref::<PlainAggregateWindowExpr>() {
        if !is_plain() {
            return Err(conditional());
        }
        WindowFunctionMessage::Growing(pass.write_aggregate(growing.get_aggregate_expr())?)
    } else if let Some(sliding) = any.downcast_ref::<SlidingAggregateWindowExpr>() {
        if !is_plain() {
            return Err(conditional());
        }
        WindowFunctionMessage::Sliding(pass.write_aggregate(sliding.get_aggregate_expr())?)
    } else {
        let rows = any.downcast_ref::<StandardWindowExpr>().ok_or_else(unknown)?.get_standard_func_expr();
        let rows: &WindowUDFExpr = rows.as_any().downcast_ref().ok_or_else(unknown)?;
        let shown = format!("{rows:?}");
        let flags = FLAGS.iter().find(|(.., end)| shown.ends_with(*end)).ok_or_else(unknown)?;
        WindowFunctionMessage::Rows {
            function: functions::write(pass, &**rows.fun())?,
            name: call.name().to_owned(),
            args: pass.write_exprs(rows.args())?,
            ignores_nulls: flags.1,
            is_reversed: flags.0,
        }
    };
    Ok(Call {
        of,
        partition_by: pass.write_exprs(call.partition_by())?,
        order_by: pass.write_keys(call.order_by())?,
        frame: protobuf::WindowFrame::try_from(&**call.get_window_frame())?.encode_to_vec(),
    })
}

/// Deserializes a call over columns of a schema.
pub(crate) fn read(pass: &Pass, call: &Call, schema: &Schema) -> Result<Arc<dyn WindowExpr>> {
    let partition_by = pass.read_exprs(&call.partition_by, schema)?;
    let order_by = pass.read_keys(&call.order_by, schema)?;
    let frame = protobuf::WindowFrame::decode(call.frame.as_slice()).map_err(broken)?;
    let frame = Arc::new(WindowFrame::try_from(frame)?);
    Ok(match &call.of {
        WindowFunctionMessage::Growing(aggregate) => {
            let aggregate = pass.read_aggregate(aggregate, schema)?;
            Arc::new(PlainAggregateWindowExpr::new(aggregate, &partition_by, &order_by, frame, None))
        }
        WindowFunctionMessage::Sliding(aggregate) => {
            let aggregate = pass.read_aggregate(aggregate, schema)?;
            Arc::new(SlidingAggregateWindowExpr::new(aggregate, &partition_by, &order_by, frame, None))
        }
        WindowFunctionMessage::Rows { function, name, args, ignores_nulls, is_reversed } => {
            let (function, args) = (functions::read::<WindowUDF>(pass, function)?, pass.read_exprs(args, schema)?);
            let make = |function: &Arc<WindowUDF>| {
                create_udwf_window_expr(function, &args, schema, name.clone(), *ignores_nulls)
            };
            let rows = if *is_reversed { reversed(&function, make)? } else { make(&function)? };
            Arc::new(StandardWindowExpr::new(rows, &partition_by, &order_by, frame))
        }
    })
}

/// A reversed call, which is made as the reverse of the function's reverse.
fn reversed(
    function: &Arc<WindowUDF>,
    make: impl Fn(&Arc<WindowUDF>) -> Result<Arc<dyn StandardWindowFunctionExpr>>,
) -> Result<Arc<dyn StandardWindowFunctionExpr>> {
    let ReversedUDWF::Reversed(forward) = function.reverse_expr() else {
        return Err(broken(format_args!("`{}` has no other way round", function.name())));
    };
    let reversed = make(&forward)?.reverse_expr();
    reversed.ok_or_else(|| broken(format_args!("`{}` has no other way round", forward.name())))
}
