//! Aggregates over joined rows such that no join makes a row count more than once (`olap-api.md` 11.2). Measures of
//! models whose rows are multiplied aggregate distinct rows of (groups, key, arguments) instead of all rows.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{AggregateFunction, AggregateFunctionParams};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, cast, lit};
use quiver_query::functions::exact_doubles;

use super::expressions::ModelText;
use super::{Planner, Stage, Tree, column, model_error};
use crate::error::{OlapError, OlapResult, QueryError, Reason};
use crate::model::catalog::MemberKind;
use crate::model::{Measure, MeasureType, MemberId, Model};

/// Rows of a tree, and what they are grouped by.
#[derive(Debug, Clone)]
pub(super) struct GroupedRows {
    pub(super) rows: LogicalPlan,
    /// Named columns.
    pub(super) groups: Vec<Expr>,
    /// A condition for the rows that count, besides those of the measures; `None`: all do.
    pub(super) there: Option<Expr>,
}

/// A measure as an aggregate over rows.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub(super) id: MemberId,
    pub(super) expr: Expr,
    pub(super) is_count: bool,
}

impl Planner<'_> {
    /// A measure by name.
    pub(super) fn measure(&self, id: &MemberId) -> OlapResult<(&Model, &Measure)> {
        match self.catalog.find(id).map(|f| (f.model, f.kind)) {
            Some((model, MemberKind::Measure(measure))) => Ok((model, measure)),
            _ => Err(model_error(format!("`{id}` is no measure"))),
        }
    }

    /// A condition that a row of a model exists, for outer joins; `None` if it always does.
    fn is_there(&self, stage: &Stage, model: &Model) -> OlapResult<Option<Expr>> {
        let keys = model.key().map(|d| self.dimension(stage, &MemberId::new(&model.common.name, &d.common.name)));
        let keys = keys.collect::<OlapResult<Vec<_>>>()?;
        Ok(keys.into_iter().map(Expr::is_not_null).reduce(Expr::or))
    }

    /// A measure as an aggregate over the rows of a tree. `optional`: an outer join may lack rows of its model.
    pub(super) fn leaf(&self, stage: &Stage, id: &MemberId, optional: bool, there: Option<&Expr>) -> OlapResult<Leaf> {
        let (model, measure) = self.measure(id)?;
        let name = &model.common.name;
        let mut condition: Option<Expr> = None;
        let mut must = |e: Expr| condition = Some(condition.take().map_or_else(|| e.clone(), |c| c.and(e.clone())));
        if optional && let Some(there) = self.is_there(stage, model)? {
            must(there);
        }
        there.cloned().map(&mut must);
        for filter in &measure.filters {
            must(self.row_text(stage, name, filter)?);
        }
        if measure.ty.is_expression() {
            let sql = measure.sql.as_ref().ok_or_else(|| model_error(format!("measure `{id}` has no `sql`")))?;
            let mut inline = |inner: &MemberId| {
                let leaf = self.leaf(stage, inner, optional, there)?;
                let schema = self.schema(stage, &leaf.expr)?;
                let ty = leaf.expr.get_type(&schema).map_err(|_| unfit(inner, &leaf.expr, &schema))?;
                Ok((leaf.expr, ty))
            };
            let expr = self.text(stage, ModelText::over_aggregates(name, sql), 0, &mut inline)?;
            let own = measure.filters.is_empty();
            let expr = if own && there.is_none() { expr } else { conditioned(expr, condition.as_ref())? };
            return Ok(Leaf { id: id.clone(), expr, is_count: false });
        }
        let argument = self.argument(stage, name, measure.sql.as_ref(), measure.case.as_ref())?;
        let value = || argument.clone().ok_or_else(|| model_error(format!("measure `{id}` has no `sql`")));
        let (function, args, distinct) = match measure.ty {
            MeasureType::Count => ("count", vec![argument.clone().unwrap_or_else(|| lit(1_i64))], false),
            MeasureType::CountDistinct => ("count", vec![value()?], true),
            MeasureType::CountDistinctApprox => ("approx_distinct", vec![value()?], false),
            MeasureType::Sum | MeasureType::RunningTotal => ("sum", vec![value()?], false),
            MeasureType::Avg => ("avg", vec![self.averaged(stage, value()?)?], false),
            MeasureType::Min => ("min", vec![value()?], false),
            MeasureType::Max => ("max", vec![value()?], false),
            _ => return Err(model_error(format!("measure `{id}` is no aggregate"))),
        };
        let is_count =
            matches!(measure.ty, MeasureType::Count | MeasureType::CountDistinct | MeasureType::CountDistinctApprox);
        Ok(Leaf { id: id.clone(), expr: self.aggregate_where(function, args, distinct, condition)?, is_count })
    }

    fn averaged(&self, stage: &Stage, value: Expr) -> OlapResult<Expr> {
        let ty = self.type_of(stage, &value)?;
        Ok(with_digits(value, &ty))
    }

    /// The type of an expression over rows.
    pub(super) fn type_of(&self, stage: &Stage, expr: &Expr) -> OlapResult<DataType> {
        Ok(expr.get_type(&self.schema(stage, expr)?)?)
    }

    /// The value of a measure for a row that is not grouped; NULL if its model has no row.
    pub(super) fn row_value_of(&self, stage: &Stage, id: &MemberId, root: &str) -> OlapResult<Expr> {
        let value = self.row_measure(stage, id)?;
        match self.is_there(stage, self.measure(id)?.0)? {
            Some(there) if id.model != root => Ok(datafusion::logical_expr::when(there, value).end()?),
            _ => Ok(value),
        }
    }

    /// The value of a measure for a single row, without grouping.
    fn row_measure(&self, stage: &Stage, id: &MemberId) -> OlapResult<Expr> {
        let (model, measure) = self.measure(id)?;
        let name = &model.common.name;
        if measure.multi_stage || measure.rolling_window.is_some() {
            let text = format!("measure `{id}` needs groups, and rows that are not grouped have none");
            return Err(QueryError::new(Reason::BadValue, "/ungrouped", text).into());
        }
        let value = match measure.ty {
            ty if ty.is_expression() => self.row_expression(stage, id)?,
            // A single row counts as one, or as nothing if the counted value is NULL.
            MeasureType::Count | MeasureType::CountDistinct | MeasureType::CountDistinctApprox => {
                match self.argument(stage, name, measure.sql.as_ref(), measure.case.as_ref())? {
                    Some(value) => datafusion::logical_expr::when(value.is_not_null(), lit(1_i64)).end()?,
                    None => lit(1_i64),
                }
            }
            _ => {
                let value = self.argument(stage, name, measure.sql.as_ref(), measure.case.as_ref())?;
                value.ok_or_else(|| model_error(format!("measure `{id}` has no `sql`")))?
            }
        };
        let filters = measure.filters.iter().map(|f| self.row_text(stage, name, f)).collect::<OlapResult<Vec<_>>>()?;
        match filters.into_iter().reduce(Expr::and) {
            Some(all) => Ok(datafusion::logical_expr::when(all, value).end()?),
            None => Ok(value),
        }
    }

    /// The text of a measure for a single row: the arguments of its aggregates.
    fn row_expression(&self, stage: &Stage, id: &MemberId) -> OlapResult<Expr> {
        let (model, measure) = self.measure(id)?;
        let sql = measure.sql.as_ref().ok_or_else(|| model_error(format!("measure `{id}` has no `sql`")))?;
        let mut inner = |id: &MemberId| {
            let expr = self.row_measure(stage, id)?;
            let ty = self.type_of(stage, &expr)?;
            Ok((expr, ty))
        };
        let expr = self.text(stage, ModelText::over_rows(&model.common.name, sql), 0, &mut inner)?;
        let of_row = expr.transform_up(|e| match e {
            Expr::AggregateFunction(call) => {
                let first = call.params.args.into_iter().next().unwrap_or_else(|| lit(1_i64));
                Ok(Transformed::yes(match call.params.filter {
                    Some(filter) => datafusion::logical_expr::when(*filter, first).end()?,
                    None => first,
                }))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(of_row.data)
    }

    /// A condition for the rows that a measure counts: those of its model that exist, that its own filters accept
    /// and, for counts of values, whose value is not NULL.
    pub(super) fn measure_filter(&self, stage: &Stage, root: &str, id: &MemberId) -> OlapResult<Expr> {
        let id = self.behind(id)?;
        let (model, measure) = self.measure(&id)?;
        let name = &model.common.name;
        let mut all = Vec::new();
        if name != root {
            all.extend(self.is_there(stage, model)?);
        }
        for filter in &measure.filters {
            all.push(self.row_text(stage, name, filter)?);
        }
        if measure.ty == MeasureType::Count {
            let value = self.argument(stage, name, measure.sql.as_ref(), measure.case.as_ref())?;
            all.extend(value.map(Expr::is_not_null));
        }
        Ok(all.into_iter().reduce(Expr::and).unwrap_or_else(|| lit(true)))
    }

    /// Aggregates the rows of a tree: one plan for models that no join multiplies, and one for each model that is
    /// multiplied.
    pub(super) fn parts(
        &self,
        stage: &Stage,
        input: GroupedRows,
        tree: &Tree,
        measures: &[MemberId],
    ) -> OlapResult<Vec<(LogicalPlan, Vec<Leaf>)>> {
        let GroupedRows { rows, groups, there } = input;
        let mut plain = Vec::new();
        let mut multiplied: Vec<(String, Vec<Leaf>)> = Vec::new();
        for id in measures {
            let (model, measure) = self.measure(id)?;
            let name = &model.common.name;
            let leaf = self.leaf(stage, id, *name != tree.root, there.as_ref())?;
            let any = matches!(
                measure.ty,
                MeasureType::Min | MeasureType::Max | MeasureType::CountDistinct | MeasureType::CountDistinctApprox
            );
            if any || !tree.is_multiplied(self.catalog, name) {
                plain.push(leaf);
            } else {
                match multiplied.iter_mut().find(|(of, _)| of == name) {
                    Some((_, leaves)) => leaves.push(leaf),
                    None => multiplied.push((name.clone(), vec![leaf])),
                }
            }
        }
        let mut parts = Vec::new();
        if !plain.is_empty() {
            parts.push((aggregated(rows.clone(), groups.clone(), &plain)?, plain));
        }
        for (name, leaves) in multiplied {
            let model = self.catalog.model(&name);
            let mut keys = groups.clone();
            for (i, key) in model.key().enumerate() {
                let id = MemberId::new(&name, &key.common.name);
                keys.push(self.dimension(stage, &id)?.alias(format!("__key_{i}")));
            }
            let mut arguments = Vec::new();
            let leaves: Vec<Leaf> = leaves
                .into_iter()
                .map(|leaf| Ok(Leaf { expr: kept(leaf.expr, &mut arguments)?, ..leaf }))
                .collect::<OlapResult<_>>()?;
            keys.extend(arguments.iter().enumerate().map(|(i, e)| e.clone().alias(format!("__argument_{i}"))));
            let distinct = LogicalPlanBuilder::from(rows.clone()).aggregate(keys, Vec::<Expr>::new())?.build()?;
            let names = stage.groups.iter().map(|g| column(g.column.clone())).collect();
            parts.push((aggregated(distinct, names, &leaves)?, leaves));
        }
        Ok(parts)
    }
}

/// Groups rows: columns of the groups, then one column per measure.
pub(super) fn aggregated(rows: LogicalPlan, groups: Vec<Expr>, leaves: &[Leaf]) -> OlapResult<LogicalPlan> {
    let mut calls: Vec<Expr> = Vec::new();
    let mut out: Vec<Expr> = Vec::new();
    for group in &groups {
        out.push(column(group.qualified_name().1));
    }
    for leaf in leaves {
        let expr = leaf.expr.clone().transform_down(|e| {
            let Expr::AggregateFunction(call) = e else { return Ok(Transformed::no(e)) };
            let e = Expr::AggregateFunction(in_any_order(call, rows.schema()));
            let at = calls.iter().position(|c| *c == e).unwrap_or_else(|| {
                calls.push(e);
                calls.len() - 1
            });
            Ok(Transformed::new(column(format!("__aggregate_{at}")), true, TreeNodeRecursion::Jump))
        })?;
        out.push(expr.data.alias(leaf.id.to_string()));
    }
    let calls: Vec<Expr> = calls.into_iter().enumerate().map(|(i, c)| c.alias(format!("__aggregate_{i}"))).collect();
    if groups.is_empty() && calls.is_empty() {
        return Err(model_error("a query without groups and aggregates has no rows"));
    }
    let types = Arc::clone(rows.schema());
    let made = LogicalPlanBuilder::from(rows).aggregate(groups, calls).and_then(|made| made.project(out)?.build());
    made.map_err(|error| match leaves.iter().find(|leaf| leaf.expr.get_type(&types).is_err()) {
        Some(leaf) => unfit(&leaf.id, &leaf.expr, &types),
        None => error.into(),
    })
}

/// Replaces sums and means of doubles by those whose last digit does not depend on the order of rows.
fn in_any_order(mut call: AggregateFunction, schema: &DFSchema) -> AggregateFunction {
    if let [argument] = &call.params.args[..]
        && !call.params.distinct
        && argument.get_type(schema).is_ok_and(|ty| ty == DataType::Float64)
        && let Some(exact) = exact_doubles(call.func.name())
    {
        call.func = exact;
    }
    call
}

/// The error for a measure whose aggregate does not accept the type of its text.
fn unfit(id: &MemberId, expr: &Expr, schema: &DFSchema) -> OlapError {
    let mut found = None;
    let _ = expr.apply(|e| {
        if let Expr::AggregateFunction(call) = e
            && e.get_type(schema).is_err()
            && let Some(Ok(ty)) = call.params.args.first().map(|argument| argument.get_type(schema))
        {
            found = Some((call.func.name().to_owned(), ty));
            return Ok(TreeNodeRecursion::Stop);
        }
        Ok(TreeNodeRecursion::Continue)
    });
    model_error(match found {
        Some((function, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)) => format!(
            "measure `{id}`: `{function}` takes no texts; cast them in its `sql`, or give the column of the table a type"
        ),
        Some((function, ty)) => format!("measure `{id}`: `{function}` takes no values of type {ty}"),
        None => format!("measure `{id}`: its `sql` gives no value"),
    })
}

/// Casts a value such that its average has enough digits: DataFusion's average of decimals has only four more than
/// they have.
pub(super) fn with_digits(value: Expr, ty: &DataType) -> Expr {
    let DataType::Decimal128(precision, scale) = *ty else { return value };
    // Leaves room for the digits before the point, and for a sum that is ten digits longer.
    let room = 28 - (i16::from(precision) - i16::from(scale));
    let more = (i16::from(scale) + 12).min(room);
    match i8::try_from(more) {
        Ok(more) if more > scale => cast(value, DataType::Decimal128(38, more)),
        _ => value,
    }
}

/// Adds a filter to all aggregates in an expression.
fn conditioned(expr: Expr, condition: Option<&Expr>) -> OlapResult<Expr> {
    let Some(condition) = condition else { return Ok(expr) };
    let changed = expr.transform_down(|e| match e {
        Expr::AggregateFunction(mut call) => {
            let own = call.params.filter.take().map_or_else(|| condition.clone(), |own| own.and(condition.clone()));
            call.params.filter = Some(Box::new(own));
            Ok(Transformed::new(Expr::AggregateFunction(call), true, TreeNodeRecursion::Jump))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}

/// Replaces the arguments of aggregates by columns that are kept with the key.
fn kept(expr: Expr, arguments: &mut Vec<Expr>) -> OlapResult<Expr> {
    let mut keep = |e: Expr| {
        if matches!(e, Expr::Literal(..)) {
            return e;
        }
        let at = arguments.iter().position(|a| *a == e).unwrap_or_else(|| {
            arguments.push(e);
            arguments.len() - 1
        });
        column(format!("__argument_{at}"))
    };
    let changed = expr.transform_down(|e| match e {
        Expr::AggregateFunction(AggregateFunction { func, params }) => {
            let params = AggregateFunctionParams {
                args: params.args.into_iter().map(&mut keep).collect(),
                filter: params.filter.map(|f| Box::new(keep(*f))),
                order_by: params
                    .order_by
                    .into_iter()
                    .map(|s| datafusion::logical_expr::SortExpr { expr: keep(s.expr), ..s })
                    .collect(),
                ..params
            };
            let call = Expr::AggregateFunction(AggregateFunction { func, params });
            Ok(Transformed::new(call, true, TreeNodeRecursion::Jump))
        }
        other => Ok(Transformed::no(other)),
    })?;
    Ok(changed.data)
}
