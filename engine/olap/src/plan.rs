//! From a checked query to a `LogicalPlan` of DataFusion nodes (`olap-api.md` 11).
//!
//! | File | What |
//! |---|---|
//! | `references`, `sources` | which members and models a query needs · their tables, in one snapshot |
//! | `join_tree`, `expressions` | joins of models · SQL texts of models as expressions |
//! | `rights`, `guarded_rows` | hides rows that the caller may not see · the same for SQL texts that read such rows again |
//! | `filters`, `ranges` | conditions · what a SQL text may use of the query's date range |
//! | `open_dimensions` | how attributes and labels are compared and ordered, whose type only their column says |
//! | `entities` | models that stand in joins as their entities |
//! | `fan_out`, `unjoined_measures` | aggregation such that joins count no row twice · measures of other models, in queries of their own |
//! | `windows`, `exemplars` | rolling windows · sample rows behind groups |
//! | `results`, `stages` | joins of partial results · puts it all together, with calculations over results |

mod entities;
pub mod exemplars;
mod expressions;
mod fan_out;
mod filters;
pub(crate) mod guarded_rows;
mod join_tree;
pub mod json_values;
mod open_dimensions;
mod ranges;
mod references;
mod results;
mod rights;
mod segments;
mod select_text;
pub mod sources;
mod stages;
mod unjoined_measures;
mod windows;

use std::collections::{BTreeMap, HashMap};

use datafusion::common::{Column, DFSchema, TableReference};
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use quiver_query::tables::DomainAccess;
use quiver_types::{Error, ErrorKind};

use crate::dates::granularity::{Buckets, Interval};
use crate::dates::range::WallRange;
use crate::error::{OlapError, OlapResult, QueryError, Reason};
use crate::model::MemberId;
use crate::model::catalog::{Catalog, MemberKind};
use crate::query::Query;
use crate::query::filter::Filter;
pub use join_tree::Tree;
pub use sources::Sources;
pub(crate) use stages::has_own_aggregate;

/// Members whose value or condition is an expression instead of a text. Its columns are dimensions; their relations are
/// named like models.
pub type MemberExprs = HashMap<MemberId, Expr>;

/// What planning needs.
#[derive(Debug, Clone, Copy)]
pub struct Planner<'a> {
    /// Where names of models and members are looked up.
    pub catalog: &'a Catalog,
    /// The session of the query engine, with its functions and the rules of its optimizer.
    pub state: &'a SessionState,
    /// Tables of the models.
    pub sources: &'a Sources,
    /// What the caller may see.
    pub access: &'a DomainAccess,
    /// Who he is, as tables of what callers did name him; empty: nobody in particular.
    pub caller: &'a str,
    /// Members that are expressions of a statement.
    pub given: &'a MemberExprs,
    /// Whether literals say that they are values of the query, for a plan that is printed.
    pub marks_values: bool,
}

/// A column that rows are grouped by.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// Its name in results.
    pub(crate) column: String,
    /// The dimension behind views.
    pub(crate) member: MemberId,
    /// Buckets of a time dimension.
    pub(crate) buckets: Option<Buckets>,
}

/// How columns begin that rows are only ordered by.
const ORDER_PREFIX: &str = "__order.";

impl Group {
    /// Whether rows are only ordered by it: the other groups say which value it has.
    pub(crate) fn is_for_order(&self) -> bool {
        self.column.starts_with(ORDER_PREFIX)
    }
}

/// A query or a stage of one: what all of its measures have in common.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) groups: Vec<Group>,
    /// Conditions on dimensions.
    pub(crate) filters: Vec<Filter>,
    pub(crate) segments: Vec<MemberId>,
    pub(crate) ranges: Vec<(MemberId, WallRange)>,
    /// Shifts of time dimensions; none: of all.
    pub(crate) shifts: Vec<(Option<MemberId>, Interval)>,
    pub(crate) hints: Vec<Vec<String>>,
    /// Measures that are filtered or sorted by, and not asked for.
    pub(crate) later: Vec<MemberId>,
    pub(crate) tz: chrono_tz::Tz,
    /// The time of the query, in ns.
    pub(crate) now_ns: i64,
}

impl Stage {
    /// How far a time dimension is moved.
    pub(crate) fn shift(&self, member: &MemberId) -> Interval {
        let own = self.shifts.iter().filter(|(of, _)| of.as_ref().is_none_or(|of| of == member));
        own.fold(Interval::default(), |sum, (_, i)| Interval {
            months: sum.months + i.months,
            nanos: sum.nanos.saturating_add(i.nanos),
        })
    }
}

/// A column without a qualifier, by its exact name.
pub(crate) fn column(name: impl Into<String>) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

/// A column of a model.
pub(crate) fn of_model(model: &str, name: &str) -> Expr {
    Expr::Column(Column::new(Some(TableReference::bare(model)), name))
}

/// Fails a plan for a reason that lies in the model.
pub(crate) fn model_error(text: impl Into<String>) -> OlapError {
    OlapError::Engine(Error::new(ErrorKind::Execution, text))
}

/// What runs for a query: its rows, and what else was asked of them.
#[derive(Debug, Clone)]
pub struct QueryPlans {
    /// Gives the rows: columns in the order of [`QueryPlans::columns`].
    pub rows: LogicalPlan,
    /// Gives one row with the number of groups.
    pub total: Option<LogicalPlan>,
    /// Names of the columns as answers have them, like `Model.member`.
    pub columns: Vec<String>,
    /// How models are joined.
    pub tree: Option<Tree>,
    /// Texts of the models whose rows are a SELECT.
    pub selects: BTreeMap<String, String>,
    /// Gives the exemplars of the rows, where they are asked for.
    pub exemplars: Option<Box<QueryPlans>>,
}

/// The first time dimension that queries may name of the model or view of a member.
pub fn time_of(catalog: &Catalog, member: &str) -> Option<String> {
    let id = MemberId::parse(member)?;
    let is_time = |name: &str| {
        let id = MemberId::new(&id.model, name);
        let found = catalog.find(&id).filter(|found| catalog.is_public(found))?;
        matches!(found.kind, MemberKind::Dimension(d) if d.ty == crate::model::DimensionType::Time)
            .then(|| id.to_string())
    };
    match catalog.views.get(&id.model) {
        Some(view) => view.members.iter().find_map(|m| is_time(&m.common.name)),
        None => catalog.models.get(&id.model)?.dimensions.iter().find_map(|d| is_time(&d.common.name)),
    }
}

impl QueryPlans {
    /// Keeps some of the columns.
    ///
    /// # Errors
    /// Those of planning.
    pub fn keep(&mut self, is_kept: impl Fn(&str) -> bool) -> OlapResult<()> {
        self.columns.retain(|name| is_kept(name));
        let out: Vec<Expr> = self.columns.iter().map(|name| column(name.clone())).collect();
        self.rows = LogicalPlanBuilder::from(self.rows.clone()).project(out)?.build()?;
        Ok(())
    }
}

impl Planner<'_> {
    /// Plans the values of the dimension of a query with the number of rows that have each (`count`).
    ///
    /// # Errors
    /// `NO_JOIN_PATH`; faults of models.
    pub fn values(&self, query: &Query) -> OlapResult<QueryPlans> {
        let stage = self.stage_of(query)?;
        let tree = self.tree_of_query(&stage, query)?;
        let rows = self.rows_over(&stage, &tree, &[], (&[], true))?;
        let groups = self.group_exprs(&stage)?;
        let columns = query.group_columns();
        let count = self.aggregate("count", vec![datafusion::logical_expr::lit(1_i64)])?.alias("count");
        let mut order = vec![column("count").sort(false, false)];
        order.extend(columns.iter().map(|name| column(name.clone()).sort(true, false)));
        let rows = LogicalPlanBuilder::from(rows).aggregate(groups, vec![count])?.sort(order)?;
        let rows = rows.limit(query.offset as usize, query.limit.map(|n| n as usize))?.build()?;
        let columns = columns.into_iter().chain(["count".to_owned()]).collect();
        Ok(QueryPlans { rows, total: None, columns, tree: Some(tree), selects: BTreeMap::new(), exemplars: None })
    }

    /// Plans a query.
    ///
    /// # Errors
    /// `NO_JOIN_PATH`, `RANGE_REQUIRED`; faults of models.
    pub fn plan(&self, query: &Query) -> OlapResult<QueryPlans> {
        let mut stage = self.stage_of(query)?;
        let tree = self.tree_of_query(&stage, query).ok();
        self.add_order(query, &mut stage)?;
        if query.ungrouped && query.exemplars > 0 {
            let text = "rows that are not grouped are no groups that could have exemplars";
            return Err(QueryError::new(Reason::BadValue, "/exemplars", text).into());
        }
        if query.ungrouped {
            return self.ungrouped(query, stage);
        }
        let measures: Vec<MemberId> = query.measures.iter().map(|id| self.behind(id)).collect::<OlapResult<_>>()?;
        let (_, having): (Vec<_>, Vec<_>) = query.filters.iter().partition(|f| !f.is_about_measures());
        let filtered_by = having.iter().flat_map(|f| f.leaves()).map(|leaf| leaf.member.clone());
        for id in filtered_by.chain(self.ordered_by(query)) {
            let id = self.behind(&id)?;
            if !measures.contains(&id) && !stage.later.contains(&id) {
                stage.later.push(id);
            }
        }
        let exemplars = (query.exemplars > 0).then(|| self.exemplars(query)).transpose()?.map(Box::new);
        let mut plan = self.stage(&stage, &measures)?;
        for filter in having {
            let condition = self.having(filter, query.tz)?;
            plan = LogicalPlanBuilder::from(plan).filter(condition)?.build()?;
        }
        Ok(QueryPlans { exemplars, ..self.finish(query, plan, tree)? })
    }

    /// Measures that rows are ordered by.
    fn ordered_by(&self, query: &Query) -> impl Iterator<Item = MemberId> {
        let members = query.order.iter().flatten().filter_map(|key| MemberId::parse(&key.id));
        members
            .filter(move |id| self.catalog.find(id).is_some_and(|found| matches!(found.kind, MemberKind::Measure(_))))
    }

    /// Adds the dimensions that rows are ordered by without being grouped by them. The groups stay as they are, for such a
    /// dimension follows from them.
    fn add_order(&self, query: &Query, stage: &mut Stage) -> OlapResult<()> {
        let shown = query.group_columns();
        for key in query.order.iter().flatten().filter(|key| !shown.contains(&key.id)) {
            let Some(id) = MemberId::parse(&key.id) else { continue };
            let is_bucket = query.times.iter().any(|t| t.granularity.is_some() && t.member == id);
            let found = self.catalog.find(&id).filter(|_| !is_bucket);
            if found.is_some_and(|found| matches!(found.kind, MemberKind::Dimension(_))) {
                let column = format!("{ORDER_PREFIX}{id}");
                stage.groups.push(Group { column, member: self.behind(&id)?, buckets: None });
            }
        }
        Ok(())
    }

    /// Total, order, limit, and the columns of the answer.
    fn finish(&self, query: &Query, plan: LogicalPlan, tree: Option<Tree>) -> OlapResult<QueryPlans> {
        let total = query.total.then(|| self.count_of(plan.clone())).transpose()?;
        let order = self.sort(query, plan.schema())?;
        let mut builder = LogicalPlanBuilder::from(plan);
        if !order.is_empty() {
            builder = builder.sort(order)?;
        }
        builder = builder.limit(query.offset as usize, query.limit.map(|n| n as usize))?;
        let mut columns = query.group_columns();
        let mut out: Vec<Expr> = columns.iter().map(|name| column(name.clone())).collect();
        for id in &query.measures {
            out.push(column(self.behind(id)?.to_string()).alias(id.to_string()));
            columns.push(id.to_string());
        }
        let rows = builder.project(out)?.build()?;
        Ok(QueryPlans { rows, total, columns, tree, selects: BTreeMap::new(), exemplars: None })
    }

    fn count_of(&self, plan: LogicalPlan) -> OlapResult<LogicalPlan> {
        let count = self.aggregate("count", vec![datafusion::logical_expr::lit(1_i64)])?;
        Ok(LogicalPlanBuilder::from(plan).aggregate(Vec::<Expr>::new(), vec![count.alias("total")])?.build()?)
    }

    /// The order with ties broken by all dimensions, so that pages are stable; `schema`: the columns of the rows.
    fn sort(&self, query: &Query, schema: &DFSchema) -> OlapResult<Vec<datafusion::logical_expr::SortExpr>> {
        let groups = query.group_columns();
        let keys = query.effective_order();
        let mut sorts = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        for key in &keys {
            // Rows are sorted by buckets unless the query also has the plain time as a column.
            let is_plain = query.order.is_some() && groups.contains(&key.id);
            let time = query.times.iter().filter(|t| t.member.to_string() == key.id && !is_plain);
            let finest = time
                .filter(|t| t.granularity.is_some())
                .min_by_key(|t| t.granularity.as_ref().map_or(i64::MAX, |g| g.buckets.about_ns()));
            let name = match finest.and_then(crate::query::TimeEntry::column) {
                Some(column) => column,
                None if groups.contains(&key.id) => key.id.clone(),
                None => {
                    let id = MemberId::parse(&key.id).ok_or_else(|| {
                        QueryError::new(Reason::BadOrder, "/order", format!("`{}` is no member", key.id))
                    })?;
                    match self.catalog.find(&id).map(|found| found.kind) {
                        Some(MemberKind::Dimension(_)) => format!("{ORDER_PREFIX}{id}"),
                        _ => self.behind(&id)?.to_string(),
                    }
                }
            };
            if MemberId::parse(&key.id).is_some_and(|id| self.is_opened(&id)) {
                let number = self.opened_order(&name, schema)?;
                sorts.extend(number.map(|number| number.sort(!key.descends, key.descends)));
            }
            sorts.push(column(name.clone()).sort(!key.descends, key.descends));
            seen.push(name);
        }
        if !keys.is_empty() {
            sorts.extend(groups.iter().filter(|g| !seen.contains(g)).map(|g| column(g.clone()).sort(true, false)));
        }
        Ok(sorts)
    }

    /// The member that a name stands for, behind views.
    pub(crate) fn behind(&self, id: &MemberId) -> OlapResult<MemberId> {
        let found = self.catalog.find(id).map(|found| found.id());
        found.ok_or_else(|| model_error(format!("there is no member `{id}`")))
    }

    fn stage_of(&self, query: &Query) -> OlapResult<Stage> {
        let mut groups = Vec::new();
        for id in &query.dimensions {
            groups.push(Group { column: id.to_string(), member: self.behind(id)?, buckets: None });
        }
        let mut ranges = Vec::new();
        for time in &query.times {
            let member = self.behind(&time.member)?;
            if let (Some(column), Some(granularity)) = (time.column(), &time.granularity)
                && !groups.iter().any(|group: &Group| group.column == column)
            {
                groups.push(Group { column, member: member.clone(), buckets: Some(granularity.buckets) });
            }
            ranges.extend(time.range.map(|range| (member, range)));
        }
        let mut hints = query.hints.clone();
        let filters = query.filters.iter().flat_map(Filter::leaves).map(|l| &l.member);
        let times = query.times.iter().map(|t| &t.member);
        for id in query.measures.iter().chain(&query.dimensions).chain(&query.segments).chain(filters).chain(times) {
            if let Some((_, member)) = self.catalog.find(id).and_then(|f| f.view)
                && !hints.contains(&member.path)
            {
                hints.push(member.path.clone());
            }
        }
        let filters = query.filters.iter().filter(|f| !f.is_about_measures()).cloned().collect();
        let segments = query.segments.iter().map(|id| self.behind(id)).collect::<OlapResult<_>>()?;
        let (shifts, later, tz, now_ns) = (Vec::new(), Vec::new(), query.tz, query.now_ns);
        Ok(Stage { groups, filters, segments, ranges, shifts, hints, later, tz, now_ns })
    }

    /// Rows as they are: measures give their expression over a row.
    fn ungrouped(&self, query: &Query, mut stage: Stage) -> OlapResult<QueryPlans> {
        let mut measures: Vec<MemberId> = query.measures.iter().map(|id| self.behind(id)).collect::<OlapResult<_>>()?;
        if query.filters.iter().any(Filter::is_about_measures) {
            let text = "rows that are not grouped have no measures to filter by";
            return Err(QueryError::new(Reason::BadValue, "/filters", text).into());
        }
        // They are ordered by measures that are not shown, too.
        for id in self.ordered_by(query) {
            let id = self.behind(&id)?;
            if !measures.contains(&id) && !stage.later.contains(&id) {
                stage.later.push(id);
            }
        }
        let tree = self.tree_of_query(&stage, query)?;
        measures.extend(stage.later.iter().cloned());
        let rows = self.rows_over(&stage, &tree, &measures, (&[], true))?;
        let mut out = self.group_exprs(&stage)?;
        for id in &measures {
            out.push(self.row_value_of(&stage, id, &tree.root)?.alias(id.to_string()));
        }
        let mut seen = std::collections::HashSet::new();
        out.retain(|e| seen.insert(e.schema_name().to_string()));
        let plan = LogicalPlanBuilder::from(rows).project(out)?.build()?;
        self.finish(query, plan, Some(tree))
    }
}
