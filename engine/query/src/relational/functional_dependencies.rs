//! Corrects functional dependencies. DataFusion knows that the columns of a GROUP BY determine all other columns of its
//! rows, and removes redundant keys from groups, orders, DISTINCT and joins above it. It still does so where that no
//! longer holds: `unnest` makes many rows of one, and a group by such a key and other columns repeats the key.
//!
//! Until the plan is optimized, a node below such a place hides the functional dependencies of its input. The items of
//! a `FROM` have none while a statement is planned, or the planner would group by more columns than are written. Only
//! statements that are not valid otherwise are planned with them.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode as _};
use datafusion::common::{DFSchema, DFSchemaRef, FunctionalDependencies, Result};
use datafusion::logical_expr::planner::{PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning};
use datafusion::logical_expr::{Distinct, Expr, Extension, LogicalPlan, UserDefinedLogicalNodeCore};
use datafusion::optimizer::replace_distinct_aggregate::ReplaceDistinctWithAggregate;
use datafusion::optimizer::{AnalyzerRule, OptimizerContext, OptimizerRule as _};
use datafusion::sql::sqlparser::ast::TableFactor;

use crate::plan_walk::change_nodes;

/// The node: the rows of its input without functional dependencies.
#[derive(Debug, Clone)]
struct UnkeyedNode {
    input: LogicalPlan,
    schema: DFSchemaRef,
}

impl UnkeyedNode {
    fn over(input: LogicalPlan) -> Result<Self> {
        let schema = DFSchema::clone(input.schema()).with_functional_dependencies(FunctionalDependencies::empty())?;
        Ok(Self { input, schema: Arc::new(schema) })
    }

    fn plan(input: LogicalPlan) -> Result<LogicalPlan> {
        Ok(LogicalPlan::Extension(Extension { node: Arc::new(Self::over(input)?) }))
    }
}

impl PartialEq for UnkeyedNode {
    fn eq(&self, other: &Self) -> bool {
        self.input == other.input
    }
}

impl Eq for UnkeyedNode {}

impl PartialOrd for UnkeyedNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.input.partial_cmp(&other.input)
    }
}

impl Hash for UnkeyedNode {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.input.hash(state);
    }
}

impl UserDefinedLogicalNodeCore for UnkeyedNode {
    fn name(&self) -> &'static str {
        "Unkeyed"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        vec![]
    }

    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        HashSet::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Unkeyed")
    }

    fn with_exprs_and_inputs(&self, _: Vec<Expr>, mut inputs: Vec<LogicalPlan>) -> Result<Self> {
        Self::over(inputs.swap_remove(0))
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        Some(vec![output_columns.to_vec()])
    }

    fn supports_limit_pushdown(&self) -> bool {
        true
    }
}

/// Removes the nodes from a plan, since they have no physical counterpart.
pub(crate) fn removed(plan: LogicalPlan) -> Result<LogicalPlan> {
    change_nodes(plan, &mut |node| {
        let input = match &node {
            LogicalPlan::Extension(found) => found.node.as_any().downcast_ref::<UnkeyedNode>().map(|u| u.input.clone()),
            _ => None,
        };
        Ok(match input {
            Some(input) => Transformed::yes(input),
            None => Transformed::no(node),
        })
    })
}

/// Plans the relations of a `FROM`.
#[derive(Debug)]
pub(crate) enum Relations {
    /// Without keys; every statement is planned this way first.
    Bare,
    /// With the keys that hold: for statements that select columns which are not grouped by, but depend on a key.
    Keyed,
}

impl RelationPlanner for Relations {
    fn plan_relation(
        &self,
        mut relation: TableFactor,
        context: &mut dyn RelationPlannerContext,
    ) -> Result<RelationPlanning> {
        // The context calls this planner again for the relation. An alias with a marker tells that it has been here.
        let alias = match &mut relation {
            TableFactor::Derived { lateral, alias, .. } if !*lateral => {
                *lateral = true;
                alias.take()
            }
            TableFactor::Table { with_ordinality, alias, args: None, .. } if !*with_ordinality => {
                *with_ordinality = true;
                alias.take()
            }
            _ => return Ok(RelationPlanning::Original(Box::new(relation))),
        };
        let plan = context.plan(relation)?;
        let plan = match self {
            Self::Bare if has_keys(&plan) => UnkeyedNode::plan(plan)?,
            Self::Bare => plan,
            Self::Keyed => held(plan)?,
        };
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias))))
    }
}

/// The rule that removes what [`Relations`] inserted. It precedes all rules that match the shape of plans.
#[derive(Debug)]
pub(crate) struct UnkeyedRemoval;

impl AnalyzerRule for UnkeyedRemoval {
    fn name(&self) -> &'static str {
        "planned_relations"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        removed(plan)
    }
}

/// The rule that inserts the nodes where keys would mislead. It comes last.
#[derive(Debug)]
pub(crate) struct Keys;

impl AnalyzerRule for Keys {
    fn name(&self) -> &'static str {
        "keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        held(plan)
    }
}

/// The plan with the functional dependencies that hold.
fn held(plan: LogicalPlan) -> Result<LogicalPlan> {
    change_nodes(plan, &mut |node| {
        let Transformed { data: node, transformed, .. } = grouped(node)?;
        // A node's dependencies follow from those of its input, which may have become fewer.
        if !has_keys(&node) && !node.inputs().into_iter().any(has_keys) {
            return Ok(Transformed::new_transformed(node, transformed));
        }
        // DataFusion decorrelates nodes by their kind, so a correlated node must not be wrapped.
        let misleads = node.inputs().into_iter().any(has_keys) && mislead(&node);
        if !misleads || !node.all_out_ref_exprs().is_empty() {
            return node.recompute_schema().map(Transformed::yes);
        }
        let unkeyed = node.map_children(|input| UnkeyedNode::plan(input).map(Transformed::yes))?;
        unkeyed.data.recompute_schema().map(Transformed::yes)
    })
}

/// A DISTINCT as the GROUP BY that the optimizer will make of it: only that one shows its keys to the nodes above, where
/// they may mislead. The keys of a DISTINCT ON are hidden. One that reads outer rows stays, since decorrelation
/// distinguishes nodes by their kind.
fn grouped(node: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let LogicalPlan::Distinct(distinct) = &node else { return Ok(Transformed::no(node)) };
    if node.exists(|part| Ok(part.contains_outer_reference()))? {
        return Ok(Transformed::no(node));
    }
    match distinct {
        Distinct::All(_) => ReplaceDistinctWithAggregate::new().rewrite(node, &OptimizerContext::new()),
        Distinct::On(_) => UnkeyedNode::plan(node).map(Transformed::yes),
    }
}

fn has_keys(plan: &LogicalPlan) -> bool {
    !plan.schema().functional_dependencies().is_empty()
}

/// Whether a node would keep dependencies of its input that no longer hold.
fn mislead(node: &LogicalPlan) -> bool {
    let named = |exprs: &[Expr]| exprs.iter().map(|e| e.schema_name().to_string()).collect::<Vec<_>>();
    match node {
        LogicalPlan::Unnest(_) => true,
        LogicalPlan::Aggregate(node) => outgrow(node.input.schema(), &named(&node.group_expr)),
        LogicalPlan::Distinct(Distinct::All(input)) => outgrow(input.schema(), &input.schema().field_names()),
        LogicalPlan::Distinct(Distinct::On(node)) => outgrow(node.input.schema(), &named(&node.on_expr)),
        _ => false,
    }
}

/// Whether groups have a key of the rows and also a column that does not depend on it.
fn outgrow(rows: &DFSchema, groups: &[String]) -> bool {
    let fields = rows.field_names();
    rows.functional_dependencies().iter().any(|known| {
        let follows = |group: &String| known.target_indices.iter().any(|at| fields[*at] == *group);
        known.source_indices.iter().all(|at| groups.contains(&fields[*at])) && !groups.iter().all(follows)
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::answered as rows;

    const LISTS: &str = "(select a, array_agg(b) as l from (values (1, 3), (1, 2), (2, 1), (null, 5), (null, 4)) \
        as t(a, b) group by a) as g";
    const JOINED: &str = "(select g.a, u.y, count(*) as n from (select a, max(b) as c from (values (1, 3), (1, 2), \
        (2, 1)) as t(a, b) group by a) as g join (values (1, 9), (1, 8), (1, 10), (2, 7)) as u(a, y) on g.a = u.a \
        group by g.a, u.y) as q";

    #[tokio::test]
    async fn rows_of_lists_have_no_keys_of_the_lists() {
        let unnested = format!("(select a, unnest(l) as y from {LISTS}) as h");
        for (statement, expected) in [
            (format!("select a, y from {unnested} order by a, y"), vec!["1|2", "1|3", "2|1", "NULL|4", "NULL|5"]),
            (
                format!("select a, unnest(l) as y from {LISTS} order by a, y desc"),
                vec!["1|3", "1|2", "2|1", "NULL|5", "NULL|4"],
            ),
            (format!("select count(*) from (select a from {unnested} group by a, y) as q"), vec!["5"]),
            (format!("select distinct a from {unnested} order by a"), vec!["1", "2", "NULL"]),
            (format!("select a, sum(y) from {unnested} group by a order by a"), vec!["1|5", "2|1", "NULL|9"]),
            (
                format!("with h as (select a, unnest(l) y from {LISTS}) select a, sum(y) from h group by 1 order by 1"),
                vec!["1|5", "2|1", "NULL|9"],
            ),
            (
                format!("select j.a from (values (1), (2)) as j(a) join {unnested} on h.a = j.a order by j.a"),
                vec!["1", "1", "2"],
            ),
            (
                format!("select g.a, u.y from {LISTS}, unnest(g.l) as u(y) order by g.a, u.y"),
                vec!["1|2", "1|3", "2|1", "NULL|4", "NULL|5"],
            ),
            (
                "select a, unnest(array_agg(b)) as y from (values (1, 3), (1, 2)) as t(a, b) group by a order by a, y"
                    .to_owned(),
                vec!["1|2", "1|3"],
            ),
            (
                format!(
                    "select a from (values (1), (3)) as o(a) where exists (select 1 from {unnested} where y = o.a) \
                     order by a"
                ),
                vec!["1", "3"],
            ),
        ] {
            assert_eq!(rows(&statement).await.unwrap(), expected, "{statement}");
        }
        rows(&format!("select a, y from {unnested} group by a")).await.expect_err("`y` is no group");
    }

    #[tokio::test]
    async fn groups_by_more_than_a_key_have_the_key_many_times() {
        for (statement, expected) in [
            (format!("select a, y from {JOINED} order by a, y"), vec!["1|8", "1|9", "1|10", "2|7"]),
            (format!("select count(*) from (select a from {JOINED} group by a, y) as z"), vec!["4"]),
            (format!("select distinct a from {JOINED} order by a"), vec!["1", "2"]),
            (format!("select a, sum(y) from {JOINED} group by a order by a"), vec!["1|27", "2|7"]),
            (format!("select w.a from (values (1)) as w(a) join {JOINED} on q.a = w.a"), vec!["1", "1", "1"]),
            (
                "select g.a, g.c, count(*) from (select a, max(b) as c from (values (1, 3), (2, 1)) as t(a, b) \
                 group by a) as g join (values (1), (1)) as u(a) on g.a = u.a group by g.a"
                    .to_owned(),
                vec!["1|3|2"],
            ),
            (
                "select o.a, count(*) from (select distinct a from (values (1), (2), (2)) as t(a)) as o join (select \
                 distinct y, i.a from (select distinct a from (values (1), (2), (2)) as t(a)) as i, (values (1, 'x'), \
                 (2, 'y'), (1, 'z'), (1, 'z')) as u(n, y) where u.n <= i.a) as q on q.a = o.a group by o.a order by o.a"
                    .to_owned(),
                vec!["1|2", "2|3"],
            ),
            (
                "select q.a, q.y from (select distinct g.a, u.y from (select a, max(b) as c from (values (1, 3)) \
                 as t(a, b) group by a) as g join (values (1, 9), (1, 8), (1, 8)) as u(a, y) on g.a = u.a) as q \
                 order by q.a, q.y"
                    .to_owned(),
                vec!["1|8", "1|9"],
            ),
        ] {
            assert_eq!(rows(&statement).await.unwrap(), expected, "{statement}");
        }
    }
}
