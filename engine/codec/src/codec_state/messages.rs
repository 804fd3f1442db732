//! Plans and expressions as messages: DataFusion's own, and extension messages for what these do not cover.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::{internal_err, not_impl_err};
use datafusion::error::Result;
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{AggregateUDF, ScalarUDF, WindowUDF};
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::window::WindowExpr;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::proto_decode::PhysicalExprDecodeCtx;
use datafusion::physical_expr_common::physical_expr::proto_encode::PhysicalExprEncodeCtx;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::from_proto::parse_physical_expr_with_converter;
use datafusion_proto::physical_plan::to_proto::serialize_physical_expr_with_converter;
use datafusion_proto::physical_plan::{
    PhysicalExtensionCodec, PhysicalPlanDecodeContext, PhysicalPlanNodeExt as _, PhysicalProtoConverterExtension,
};
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{
    self, PhysicalExprNode, PhysicalExtensionExprNode, PhysicalExtensionNode, PhysicalPlanNode,
};
use parking_lot::Mutex;
use prost::Message as _;
use quiver_query::Forms;

use super::Pass;
use crate::extension_messages::{Body, broken, of_bytes, to_bytes};
use crate::{functions, nodes, windows};

/// Removes the top of a stack when it is dropped.
struct OnTop<'t, T>(&'t Mutex<Vec<T>>);

impl<'t, T> OnTop<'t, T> {
    fn put(list: &'t Mutex<Vec<T>>, top: T) -> Self {
        list.lock().push(top);
        Self(list)
    }
}

impl<T> Drop for OnTop<'_, T> {
    fn drop(&mut self) {
        self.0.lock().pop();
    }
}

fn extension(body: &Body, inputs: Vec<PhysicalPlanNode>) -> Result<PhysicalPlanNode> {
    let node = PhysicalExtensionNode { node: to_bytes(body)?, inputs };
    Ok(PhysicalPlanNode { physical_plan_type: Some(PhysicalPlanType::Extension(node)) })
}

impl Pass {
    /// The context in which expressions are read.
    fn context(&self) -> PhysicalPlanDecodeContext<'_> {
        let context = PhysicalPlanDecodeContext::new(&self.task, self);
        match self.results.lock().last().cloned().flatten() {
            Some(results) => context.with_scalar_subquery_results(results),
            None => context,
        }
    }

    /// The message for a node of which DataFusion has no message, or one that loses information.
    fn own(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Option<PhysicalPlanNode>> {
        let mut body = nodes::write(self, plan.as_ref())?;
        for written in &self.shared.written {
            if body.is_some() {
                break;
            }
            let bytes = written.write(plan.as_ref(), self)?;
            body = bytes.map(|bytes| Body::Of { of: written.of().to_owned(), bytes });
        }
        let Some(body) = body else { return Ok(None) };
        let around = match &body {
            Body::Recursive { name, .. } => Some(OnTop::put(&self.recursive, (name.clone(), plan.schema()))),
            _ => None,
        };
        let inputs = match &body {
            // They are part of the body.
            Body::Rows { .. } => Vec::new(),
            _ => nodes::inputs(plan.as_ref()),
        };
        let inputs = inputs.iter().map(|child| self.execution_plan_to_proto(child, self));
        let inputs = inputs.collect::<Result<Vec<_>>>()?;
        drop(around);
        extension(&body, inputs).map(Some)
    }

    /// Restores the metadata of a call's field, such as that a text is JSON: the message loses it, so the function is
    /// asked again.
    fn noted(&self, read: Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        let Some(call) = read.downcast_ref::<ScalarFunctionExpr>() else { return Ok(read) };
        let (function, args) = (Arc::new(call.fun().clone()), call.args().to_vec());
        let options = Arc::clone(self.task.session_config().options());
        let again = ScalarFunctionExpr::try_new(Arc::clone(&function), args.clone(), schema, Arc::clone(&options));
        // Some calls were made with a given field, which their function does not return by itself.
        let Ok(asked) = again.and_then(|call| call.return_field(schema)) else { return Ok(read) };
        if asked.metadata().is_empty() || asked.data_type() != call.return_type() {
            return Ok(read);
        }
        let field = call.return_field(schema)?.as_ref().clone().with_metadata(asked.metadata().clone());
        Ok(Arc::new(ScalarFunctionExpr::new(call.name(), function, args, Arc::new(field), options)))
    }
}

impl PhysicalProtoConverterExtension for Pass {
    fn execution_plan_to_proto(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalPlanNode> {
        let level = self.plans.enter()?;
        let node = match self.own(plan)? {
            Some(node) => node,
            None => PhysicalPlanNode::try_from_physical_plan_with_converter(Arc::clone(plan), codec, self)?,
        };
        if level.is_deep() { extension(&Body::Plan(node.encode_to_vec()), Vec::new()) } else { Ok(node) }
    }

    fn proto_to_execution_plan(
        &self,
        proto: &PhysicalPlanNode,
        ctx: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let _level = self.plans.enter()?;
        let _around = OnTop::put(&self.results, ctx.scalar_subquery_results().cloned());
        proto.try_into_physical_plan_with_context(ctx, self)
    }

    fn physical_expr_to_proto(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
        codec: &dyn PhysicalExtensionCodec,
    ) -> Result<PhysicalExprNode> {
        let level = self.exprs.enter()?;
        let node = serialize_physical_expr_with_converter(expr, codec, self)?;
        if !level.is_deep() {
            return Ok(node);
        }
        let deep = PhysicalExtensionExprNode { expr: node.encode_to_vec(), inputs: Vec::new() };
        Ok(PhysicalExprNode { expr_id: None, expr_type: Some(ExprType::Extension(deep)) })
    }

    /// Nodes that share an expression (a filter that one fills and the other reads) share it again.
    fn proto_to_physical_expr(
        &self,
        proto: &PhysicalExprNode,
        input_schema: &Schema,
        ctx: &PhysicalPlanDecodeContext<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        let _level = self.exprs.enter()?;
        let read = self.noted(parse_physical_expr_with_converter(proto, input_schema, ctx, self)?, input_schema)?;
        let Some(id) = proto.expr_id else { return Ok(read) };
        let known = self.known.lock().get(&id).cloned();
        if let Some(known) = known {
            let children = read.children().into_iter().cloned().collect();
            known.with_new_children(children)
        } else {
            self.known.lock().insert(id, Arc::clone(&read));
            Ok(read)
        }
    }
}

impl PhysicalExtensionCodec for Pass {
    fn try_decode(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match of_bytes(buf)? {
            Body::Plan(bytes) => self.read_plan(&bytes),
            Body::Of { of, bytes } => match self.shared.written.iter().find(|written| written.of() == of) {
                Some(written) => written.read(&bytes, inputs.to_vec(), self),
                None => Err(broken(format_args!("nobody reads nodes of `{of}`"))),
            },
            body => nodes::read(self, body, inputs),
        }
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        _: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        Err(self.refuse(format!("node `{}`", node.name())))
    }

    fn try_encode_expr(
        &self,
        node: &Arc<dyn PhysicalExpr>,
        _: &mut Vec<u8>,
        _: &PhysicalExprEncodeCtx<'_>,
    ) -> Result<()> {
        Err(self.refuse(format!("expression `{node}`")))
    }

    fn try_decode_expr(
        &self,
        buf: &[u8],
        inputs: &[Arc<dyn PhysicalExpr>],
        ctx: &PhysicalExprDecodeCtx<'_>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        if !inputs.is_empty() {
            return not_impl_err!("an expression of others has no written form");
        }
        ctx.decode(&PhysicalExprNode::decode(buf).map_err(broken)?)
    }

    fn try_encode_udf(&self, node: &ScalarUDF, buf: &mut Vec<u8>) -> Result<()> {
        *buf = functions::write(self, node)?;
        Ok(())
    }

    fn try_decode_udf(&self, _: &str, buf: &[u8]) -> Result<Arc<ScalarUDF>> {
        functions::read(self, buf)
    }

    fn try_encode_udaf(&self, node: &AggregateUDF, buf: &mut Vec<u8>) -> Result<()> {
        *buf = functions::write(self, node)?;
        Ok(())
    }

    fn try_decode_udaf(&self, _: &str, buf: &[u8]) -> Result<Arc<AggregateUDF>> {
        functions::read(self, buf)
    }

    fn try_encode_udwf(&self, node: &WindowUDF, buf: &mut Vec<u8>) -> Result<()> {
        *buf = functions::write(self, node)?;
        Ok(())
    }

    fn try_decode_udwf(&self, _: &str, buf: &[u8]) -> Result<Arc<WindowUDF>> {
        functions::read(self, buf)
    }
}

impl Forms for Pass {
    fn write_expr(&self, expr: &Arc<dyn PhysicalExpr>) -> Result<Vec<u8>> {
        Ok(self.physical_expr_to_proto(expr, self)?.encode_to_vec())
    }

    fn read_expr(&self, bytes: &[u8], schema: &Schema) -> Result<Arc<dyn PhysicalExpr>> {
        let node = PhysicalExprNode::decode(bytes).map_err(broken)?;
        self.proto_to_physical_expr(&node, schema, &self.context())
    }

    fn write_aggregate(&self, aggregate: &AggregateFunctionExpr) -> Result<Vec<u8>> {
        functions::write_aggregate(self, aggregate)
    }

    fn read_aggregate(&self, bytes: &[u8], schema: &Schema) -> Result<Arc<AggregateFunctionExpr>> {
        functions::read_aggregate(self, bytes, schema)
    }

    fn write_window(&self, call: &Arc<dyn WindowExpr>) -> Result<Vec<u8>> {
        to_bytes(&windows::write(self, call)?)
    }

    fn read_window(&self, bytes: &[u8], schema: &Schema) -> Result<Arc<dyn WindowExpr>> {
        windows::read(self, &of_bytes(bytes)?, schema)
    }

    fn write_schema(&self, schema: &Schema) -> Result<Vec<u8>> {
        Ok(protobuf::Schema::try_from(schema)?.encode_to_vec())
    }

    fn read_schema(&self, bytes: &[u8]) -> Result<SchemaRef> {
        let schema = protobuf::Schema::decode(bytes).map_err(broken)?;
        Ok(Arc::new(Schema::try_from(&schema)?))
    }

    fn write_plan(&self, plan: &Arc<dyn ExecutionPlan>) -> Result<Vec<u8>> {
        Ok(self.execution_plan_to_proto(plan, self)?.encode_to_vec())
    }

    fn read_plan(&self, bytes: &[u8]) -> Result<Arc<dyn ExecutionPlan>> {
        if bytes.is_empty() {
            return internal_err!("a written plan has no bytes");
        }
        let node = PhysicalPlanNode::decode(bytes).map_err(broken)?;
        self.proto_to_execution_plan(&node, &self.context())
    }
}
