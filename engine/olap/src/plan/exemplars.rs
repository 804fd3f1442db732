//! Exemplars: the slowest spans of each group of a result (`olap-api.md` 12.3).

use std::collections::BTreeMap;

use datafusion::functions_window::row_number::row_number_udwf;
use datafusion::logical_expr::expr::WindowFunction;
use datafusion::logical_expr::{Expr, ExprFunctionExt as _, LogicalPlanBuilder, lit};

use super::{Planner, QueryPlans, column};
use crate::error::{OlapResult, QueryError, Reason};
use crate::model::MemberId;
use crate::model::catalog::Catalog;
use crate::query::Query;

/// Columns of an exemplar in addition to those of its group.
pub const COLUMNS: [&str; 4] = ["traceId", "spanId", "value", "time"];
/// Members that a model with exemplars has, in this order; the time is its first time dimension.
const MEMBERS: [&str; 3] = ["traceId", "spanId", "durationMs"];

/// The model whose rows are shown, if they are spans: that of the first measure, else of the first dimension.
fn model_of(catalog: &Catalog, query: &Query) -> Option<String> {
    let id = query.measures.first().or(query.dimensions.first())?;
    let model = catalog.find(id)?.model;
    let has = |name: &&str| model.dimension(name).is_some();
    MEMBERS.iter().all(has).then(|| model.common.name.clone())
}

impl Planner<'_> {
    /// Plans the exemplars of a query: columns of the groups, then [`COLUMNS`].
    ///
    /// # Errors
    /// `BAD_VALUE`: the rows of the model are no spans; those of planning.
    pub fn exemplars(&self, query: &Query) -> OlapResult<QueryPlans> {
        let Some(name) = model_of(self.catalog, query) else {
            let text = "there are exemplars of models over spans only";
            return Err(QueryError::new(Reason::BadValue, "/exemplars", text).into());
        };
        let stage = self.stage_of(query)?;
        let tree = self.tree_of_query(&stage, query)?;
        let [trace, span, value] = MEMBERS.map(|member| MemberId::new(&name, member));
        let time = super::ranges::time_of(self.catalog.model(&name)).map(|(time, _)| time);
        let time = time.ok_or_else(|| super::model_error(format!("model `{name}` has no time")))?;
        let rows = self.rows(&stage, &tree, &[], &[])?;
        let groups = self.group_exprs(&stage)?;
        let names: Vec<String> = stage.groups.iter().map(|group| group.column.clone()).collect();
        let mut out = groups;
        for (id, own) in [trace, span, value, time].iter().zip(COLUMNS) {
            out.push(self.dimension(&stage, id)?.alias(format!("__exemplar.{own}")));
        }
        let own = |name: &str| column(format!("__exemplar.{name}"));
        let rows = LogicalPlanBuilder::from(rows).project(out)?.filter(own("traceId").is_not_null())?;
        let partition: Vec<Expr> = names.iter().map(|name| column(name.clone())).collect();
        let order =
            vec![own("value").sort(false, false), own("traceId").sort(true, false), own("spanId").sort(true, false)];
        let place = Expr::from(WindowFunction::new(row_number_udwf(), Vec::new()));
        let place = place.partition_by(partition).order_by(order).build()?.alias("__exemplar.place");
        let rows = rows.window(vec![place])?.filter(own("place").lt_eq(lit(query.exemplars)))?;
        let shown = names.iter().map(|name| column(name.clone()));
        let shown = shown.chain(COLUMNS.map(|name| own(name).alias(name)));
        let sorted = rows.sort(vec![own("place").sort(true, false)])?.project(shown.collect::<Vec<_>>())?;
        let columns = names.iter().cloned().chain(COLUMNS.map(str::to_owned)).collect();
        let rows = sorted.build()?;
        Ok(QueryPlans { rows, total: None, columns, tree: Some(tree), selects: BTreeMap::new(), exemplars: None })
    }
}

/// The members that the exemplars of a query need in addition to its own.
pub(crate) fn members(catalog: &Catalog, query: &Query) -> Vec<MemberId> {
    let Some(name) = model_of(catalog, query).filter(|_| query.exemplars > 0) else { return Vec::new() };
    let time = super::ranges::time_of(catalog.model(&name)).map(|(time, _)| time);
    MEMBERS.map(|member| MemberId::new(&name, member)).into_iter().chain(time).collect()
}
