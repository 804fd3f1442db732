//! Plans SQL texts of models as expressions, with the session's SQL planner.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, DFSchemaRef, JoinType, NullEquality, TableReference};
use datafusion::logical_expr::expr::{AggregateFunction, ScalarFunction};
use datafusion::logical_expr::{
    Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, binary_expr, cast, lit, when,
};
use datafusion::sql::sqlparser::keywords::ALL_KEYWORDS;

use super::ranges::{self, EvaluationInput};
use super::{Group, Planner, Stage, column, model_error, of_model};
use crate::dates::granularity::Interval;
use crate::dates::range::WallRange;
use crate::error::OlapResult;
use crate::functions::{WallBucket, WallEdge, exact_percentile, instant_type};
use crate::model::catalog::MemberKind;
use crate::model::{Case, Dimension, DimensionType, Join, Label, MemberId, Model, Piece, Template};
use crate::query::filter::Filter;

/// The column that holds the value of a sub-query.
const VALUE: &str = "value";
/// The deepest nesting of members; cycles are refused when models are loaded.
const DEPTH_MAX: usize = 64;

/// How a text reads the times that it refers to, in a stage that moves them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeReading {
    /// As the stage has them: what rows are grouped and selected by.
    Moved,
    /// As they are in the rows: what is computed of them, and how rows belong together.
    Stored,
}

/// A SQL text of a model, and what it is evaluated over.
#[derive(Debug, Clone, Copy)]
pub(super) struct ModelText<'t> {
    model: &'t str,
    template: &'t Template,
    over: EvaluationInput,
    times: TimeReading,
}

impl<'t> ModelText<'t> {
    pub(super) fn over_rows(model: &'t str, template: &'t Template) -> Self {
        Self { model, template, over: EvaluationInput::Rows, times: TimeReading::Stored }
    }

    pub(super) fn over_groups(model: &'t str, template: &'t Template) -> Self {
        Self { over: EvaluationInput::Groups, ..Self::over_rows(model, template) }
    }

    pub(super) fn over_aggregates(model: &'t str, template: &'t Template) -> Self {
        Self { over: EvaluationInput::Aggregates, ..Self::over_rows(model, template) }
    }

    fn reading(self, times: TimeReading) -> Self {
        Self { times, ..self }
    }
}

/// A text as the SQL planner takes it.
#[derive(Default)]
struct PlannerText {
    sql: String,
    /// The expressions that columns without a relation stand for, by the name of the column.
    places: HashMap<String, Expr>,
    /// Those that they stand for within aggregates instead.
    within: Vec<(&'static str, Expr)>,
    /// All columns that it may read.
    fields: Vec<(Option<TableReference>, FieldRef)>,
}

impl PlannerText {
    /// Adds a column that stands for an expression.
    fn put(&mut self, name: &str, expr: Expr, ty: DataType) {
        self.fields.push((None, Arc::new(Field::new(name, ty, true))));
        self.places.insert(name.to_owned(), expr);
    }
}

/// Returns the expression and the type of a measure that a text refers to.
pub(super) type OnMeasure<'m> = &'m mut dyn FnMut(&MemberId) -> OlapResult<(Expr, DataType)>;

/// Refuses measures where only row values are allowed.
pub(super) fn no_measure(id: &MemberId) -> OlapResult<(Expr, DataType)> {
    Err(model_error(format!("measure `{id}` stands where only values of a row may")))
}

impl Planner<'_> {
    /// A call of one of the session's scalar functions.
    pub(crate) fn scalar(&self, name: &str, args: Vec<Expr>) -> OlapResult<Expr> {
        let function = self.state.scalar_functions().get(name);
        let function = function.ok_or_else(|| model_error(format!("there is no function `{name}`")))?;
        Ok(Expr::ScalarFunction(ScalarFunction::new_udf(Arc::clone(function), args)))
    }

    /// A call of one of the session's aggregate functions.
    pub(crate) fn aggregate(&self, name: &str, args: Vec<Expr>) -> OlapResult<Expr> {
        self.aggregate_where(name, args, false, None)
    }

    /// Like [`Self::aggregate`], over distinct values or with a filter.
    pub(crate) fn aggregate_where(
        &self,
        name: &str,
        args: Vec<Expr>,
        distinct: bool,
        condition: Option<Expr>,
    ) -> OlapResult<Expr> {
        let function = self.state.aggregate_functions().get(name);
        let function = function.ok_or_else(|| model_error(format!("there is no aggregate `{name}`")))?;
        let condition = condition.map(Box::new);
        let call = AggregateFunction::new_udf(Arc::clone(function), args, distinct, condition, Vec::new(), None);
        Ok(Expr::AggregateFunction(call))
    }

    /// The rows of a model that the caller may see, with the values of some sub-queries.
    pub(crate) fn model_rows(
        &self,
        stage: &Stage,
        name: &str,
        sub_queries: &BTreeSet<MemberId>,
    ) -> OlapResult<LogicalPlan> {
        let model = self.catalog.model(name);
        let mut plan = self.sources.plan(name)?;
        if let Some(rows) = &model.rows {
            let all = rows.unless.as_ref().map(|segment| MemberId::new(name, segment));
            if all.is_none_or(|all| !stage.segments.contains(&all)) {
                plan = LogicalPlanBuilder::from(plan).filter(self.row_text(stage, name, &rows.sql)?)?.build()?;
            }
        }
        plan = self.visible(stage, plan, model)?;
        self.with_sub_queries(stage, plan, model, sub_queries)
    }

    /// Joins the measure of a sub-query, grouped by the key of the model.
    pub(super) fn with_sub_query(
        &self,
        stage: &Stage,
        plan: LogicalPlan,
        model: &Model,
        dimension: &Dimension,
    ) -> OlapResult<LogicalPlan> {
        let (right, keys) = self.sub_query(stage, model, dimension)?;
        // The sub-query uses unshifted times, even in a shifted stage.
        let unmoved = Stage { shifts: Vec::new(), ..stage.clone() };
        let mut left = plan;
        let mut left_keys = Vec::new();
        let mut out: Vec<Expr> = left.schema().columns().into_iter().map(Expr::Column).collect();
        let value = out.len();
        // Keys may be expressions, so they become temporary columns for the join.
        let mut with_keys = out.clone();
        for (i, group) in sub_query_groups(stage, model, dimension).iter().enumerate() {
            let name = format!("__key_{i}");
            with_keys.push(self.group_value(&unmoved, group)?.alias(name.clone()));
            left_keys.push(Column::new_unqualified(name));
        }
        left = LogicalPlanBuilder::from(left).project(with_keys)?.build()?;
        // NULL equals NULL in all keys but the first.
        let nulls = if keys.len() > 1 { NullEquality::NullEqualsNull } else { NullEquality::NullEqualsNothing };
        let on = (left_keys, keys);
        let joined = LogicalPlanBuilder::from(left).join_detailed(right, JoinType::Left, on, None, nulls)?;
        out.insert(value, of_model(&sub_query_alias(model, dimension), VALUE));
        Ok(joined.project(out)?.build()?)
    }

    /// The plan of a sub-query under an alias, with its key columns and `value`.
    fn sub_query(&self, stage: &Stage, model: &Model, dimension: &Dimension) -> OlapResult<(LogicalPlan, Vec<Column>)> {
        let name = format!("{}.{}", model.common.name, dimension.common.name);
        let measure = dimension.sql.as_ref().and_then(Template::only_member).cloned();
        let measure = measure.ok_or_else(|| model_error(format!("sub-query `{name}` is not a single measure")))?;
        let groups = sub_query_groups(stage, model, dimension);
        let alias = TableReference::bare(sub_query_alias(model, dimension));
        let keys = groups.iter().map(|g| Column::new(Some(alias.clone()), g.column.clone())).collect();
        let (filters, segments) =
            if dimension.propagate_filters { self.conditions_for(stage) } else { (Vec::new(), Vec::new()) };
        let inner = Stage {
            filters,
            ranges: self.ranges_for(stage, dimension, &measure),
            segments,
            hints: Vec::new(),
            later: Vec::new(),
            shifts: Vec::new(),
            groups: groups.clone(),
            tz: stage.tz,
            now_ns: stage.now_ns,
        };
        let mut plan = LogicalPlanBuilder::from(self.stage(&inner, std::slice::from_ref(&measure))?);
        let mut out: Vec<Expr> = groups.iter().map(|g| column(g.column.clone())).collect();
        out.push(column(measure.to_string()).alias(VALUE));
        if let [first, _, ..] = &groups[..] {
            plan = plan.filter(column(first.column.clone()).is_not_null())?;
        }
        Ok((plan.project(out)?.alias(alias)?.build()?, keys))
    }

    /// The filters and segments of a query that apply within a sub-query: those without sub-queries, as in the
    /// format's reference, so that none depends on itself or on another.
    fn conditions_for(&self, stage: &Stage) -> (Vec<Filter>, Vec<MemberId>) {
        let waits = |id: &MemberId| {
            let mut inner = BTreeSet::new();
            self.sub_queries(id, &mut inner);
            !inner.is_empty()
        };
        let filters = stage.filters.iter().filter_map(|filter| filter.without(&waits)).collect();
        (filters, stage.segments.iter().filter(|id| !waits(id)).cloned().collect())
    }

    /// The ranges of a query that apply within a sub-query: with filters all of them, else the first one, on the
    /// first time dimension of the measure's model.
    fn ranges_for(&self, stage: &Stage, dimension: &Dimension, measure: &MemberId) -> Vec<(MemberId, WallRange)> {
        let moved = |(of, range): &(MemberId, WallRange)| {
            let back = stage.shift(of).negated();
            WallRange { start_ns: back.add_to(range.start_ns), end_ns: back.add_to(range.end_ns) }
        };
        if !dimension.propagate_range {
            let all = stage.ranges.iter().filter(|_| dimension.propagate_filters);
            return all.map(|entry| (entry.0.clone(), moved(entry))).collect();
        }
        let model = self.catalog.model(&measure.model);
        let time = model.dimensions.iter().find(|d| d.ty == DimensionType::Time);
        let id = time.map(|d| MemberId::new(&model.common.name, &d.common.name));
        stage.ranges.first().map(moved).zip(id).map(|(range, id)| (id, range)).into_iter().collect()
    }

    /// The value of a dimension in a row; times are instants.
    pub(crate) fn dimension(&self, stage: &Stage, id: &MemberId) -> OlapResult<Expr> {
        self.dimension_at(stage, id, 0, TimeReading::Moved)
    }

    /// How far a stage moves a dimension; one that is not a time, or a bucket of a time that moves, stays.
    pub(super) fn shift(&self, stage: &Stage, id: &MemberId) -> Interval {
        match self.catalog.find(id).map(|found| found.kind) {
            Some(MemberKind::Dimension(d)) if d.ty == DimensionType::Time && !is_bucket(d) => stage.shift(id),
            _ => Interval::default(),
        }
    }

    /// The value of a dimension as a stage that moves times has it.
    pub(super) fn moved(&self, stage: &Stage, id: &MemberId, value: Expr) -> Expr {
        let shift = self.shift(stage, id);
        if shift.is_zero() {
            return value;
        }
        WallEdge::call(WallBucket::call(value, stage.tz, None, shift), stage.tz, None, false)
    }

    fn dimension_at(&self, stage: &Stage, id: &MemberId, depth: usize, times: TimeReading) -> OlapResult<Expr> {
        if depth > DEPTH_MAX {
            return Err(model_error(format!("`{id}` stands {DEPTH_MAX} members deep")));
        }
        if let Some(expr) = self.given.get(id) {
            return self.placed(stage, expr, depth, times);
        }
        let found = self.catalog.find(id);
        let Some((model, MemberKind::Dimension(dimension))) = found.map(|f| (f.model, f.kind)) else {
            return Err(model_error(format!("`{id}` is no dimension")));
        };
        if dimension.sub_query {
            return Ok(of_model(&sub_query_alias(model, dimension), VALUE));
        }
        let name = &model.common.name;
        // What moves as a whole is not made of times that have been moved.
        let times = if self.shift(stage, id).is_zero() { times } else { TimeReading::Stored };
        let expr = if let Some(case) = &dimension.case {
            self.case(stage, name, case, depth, times)?
        } else if let Some((latitude, longitude)) = &dimension.geo {
            let part = |t: &Template| -> OlapResult<Expr> {
                let text = ModelText::over_rows(name, t).reading(times);
                Ok(cast(self.text(stage, text, depth, &mut no_measure)?, DataType::Utf8))
            };
            // A place that lacks a part is NULL, which `concat` would not make of it.
            let begun = binary_expr(part(latitude)?, Operator::StringConcat, lit(","));
            binary_expr(begun, Operator::StringConcat, part(longitude)?)
        } else if let Some(sql) = &dimension.sql {
            self.text(stage, ModelText::over_rows(name, sql).reading(times), depth, &mut no_measure)?
        } else {
            lit(datafusion::common::ScalarValue::Utf8(None))
        };
        if dimension.ty != DimensionType::Time {
            return Ok(expr);
        }
        let ty = expr.get_type(&self.schema(stage, &expr)?)?;
        if ty == instant_type() {
            return Ok(expr);
        }
        // A bucket is wall time of the query.
        Ok(if is_bucket(dimension) { WallEdge::call(expr, stage.tz, None, false) } else { cast(expr, instant_type()) })
    }

    /// Rewrites an expression over dimensions as one over rows.
    fn placed(&self, stage: &Stage, expr: &Expr, depth: usize, times: TimeReading) -> OlapResult<Expr> {
        let mut places: HashMap<&Column, Expr> = HashMap::new();
        for named in expr.column_refs() {
            let model = named.relation.as_ref().map_or("", |relation| relation.table());
            let id = self.behind(&MemberId::new(model, &named.name))?;
            places.insert(named, self.referred(stage, &id, depth + 1, times)?);
        }
        let placed = expr.clone().transform_up(|e| match &e {
            Expr::Column(named) => {
                let place = places.get(named).cloned();
                Ok(place.map_or_else(|| Transformed::no(e), Transformed::yes))
            }
            _ => Ok(Transformed::no(e)),
        })?;
        Ok(placed.data)
    }

    /// The value of a dimension that a text refers to.
    fn referred(&self, stage: &Stage, id: &MemberId, depth: usize, times: TimeReading) -> OlapResult<Expr> {
        let value = self.dimension_at(stage, id, depth, times)?;
        Ok(if times == TimeReading::Moved { self.moved(stage, id, value) } else { value })
    }

    /// The bucket of a time that a text refers to: wall time of the query.
    fn bucket(
        &self,
        stage: &Stage,
        id: &MemberId,
        granularity: &str,
        depth: usize,
        times: TimeReading,
    ) -> OlapResult<Expr> {
        let found = match self.catalog.find(id).map(|found| found.kind) {
            Some(MemberKind::Dimension(dimension)) => dimension.granularity(granularity),
            _ => None,
        };
        let found = found.ok_or_else(|| model_error(format!("`{id}` has no granularity `{granularity}`")))?;
        let shift = if times == TimeReading::Moved { self.shift(stage, id) } else { Interval::default() };
        let time = self.dimension_at(stage, id, depth, times)?;
        Ok(WallBucket::call(time, stage.tz, Some(found.buckets), shift))
    }

    fn case(&self, stage: &Stage, model: &str, case: &Case, depth: usize, times: TimeReading) -> OlapResult<Expr> {
        let text =
            |sql: &Template| self.text(stage, ModelText::over_rows(model, sql).reading(times), depth, &mut no_measure);
        let label = |label: &Label| match label {
            Label::Text(text) => Ok(lit(text.as_str())),
            Label::Sql(sql) => text(sql),
        };
        let mut cases = case.when.iter();
        let (first, then) = cases.next().expect("cases without conditions are refused");
        let mut built = when(text(first)?, label(then)?);
        for (condition, then) in cases {
            built = built.when(text(condition)?, label(then)?);
        }
        Ok(match &case.otherwise {
            Some(otherwise) => built.otherwise(label(otherwise)?)?,
            None => built.end()?,
        })
    }

    /// A condition or value over single rows.
    pub(super) fn row_text(&self, stage: &Stage, model: &str, template: &Template) -> OlapResult<Expr> {
        self.text(stage, ModelText::over_rows(model, template), 0, &mut no_measure)
    }

    /// The argument of a measure: its text or its cases.
    pub(super) fn argument(
        &self,
        stage: &Stage,
        model: &str,
        sql: Option<&Template>,
        case: Option<&Case>,
    ) -> OlapResult<Option<Expr>> {
        match (case, sql) {
            (Some(case), _) => self.case(stage, model, case, 0, TimeReading::Stored).map(Some),
            (None, Some(sql)) => self.row_text(stage, model, sql).map(Some),
            (None, None) => Ok(None),
        }
    }

    pub(crate) fn join_condition(&self, stage: &Stage, from: &str, join: &Join) -> OlapResult<Expr> {
        self.row_text(stage, from, &join.sql)
    }

    /// A segment as a condition.
    pub(crate) fn segment(&self, stage: &Stage, id: &MemberId) -> OlapResult<Expr> {
        if let Some(expr) = self.given.get(id) {
            return self.placed(stage, expr, 0, TimeReading::Moved);
        }
        match self.catalog.find(id).map(|f| (f.model, f.kind)) {
            Some((model, MemberKind::Segment(segment))) => {
                let text = ModelText::over_rows(&model.common.name, &segment.sql).reading(TimeReading::Moved);
                self.text(stage, text, 0, &mut no_measure)
            }
            _ => Err(model_error(format!("`{id}` is no segment"))),
        }
    }

    /// The grouping keys as named columns.
    pub(crate) fn group_exprs(&self, stage: &Stage) -> OlapResult<Vec<Expr>> {
        let one = |group: &Group| Ok(self.group_value(stage, group)?.alias(group.column.clone()));
        stage.groups.iter().map(one).collect()
    }

    /// The value that a row is grouped by.
    pub(super) fn group_value(&self, stage: &Stage, group: &Group) -> OlapResult<Expr> {
        let value = self.dimension(stage, &group.member)?;
        let shift = self.shift(stage, &group.member);
        let is_time = matches!(
            self.catalog.find(&group.member).map(|f| f.kind),
            Some(MemberKind::Dimension(d)) if d.ty == DimensionType::Time
        );
        Ok(match group.buckets {
            Some(_) => WallBucket::call(value, stage.tz, group.buckets, shift),
            None if is_time => WallBucket::call(value, stage.tz, None, shift),
            None => value,
        })
    }

    /// The column that a text consists of, if it is nothing else: most texts are, and need no parser.
    fn only_column(&self, own: &str, template: &Template) -> Option<Expr> {
        let text = match &template.pieces[..] {
            [Piece::Text(text)] => text.trim(),
            [Piece::Model(model), Piece::Text(text)] if model == own => text.trim().strip_prefix('.')?,
            _ => return None,
        };
        let name = match text.strip_prefix('"') {
            Some(quoted) => quoted.strip_suffix('"').filter(|name| !name.contains('"'))?,
            None if is_identifier(text) => text,
            None => return None,
        };
        let schema = self.sources.schema(own).ok()?;
        let (model, field) = schema.qualified_field_with_unqualified_name(name).ok()?;
        Some(Expr::Column(Column::new(model.cloned(), field.name())))
    }

    /// Plans a SQL text of a model, with references replaced by the members' expressions.
    pub(super) fn text(
        &self,
        stage: &Stage,
        text: ModelText<'_>,
        depth: usize,
        on_measure: OnMeasure<'_>,
    ) -> OlapResult<Expr> {
        let (own, template) = (text.model, text.template);
        if let Some(column) = self.only_column(own, template) {
            return Ok(column);
        }
        let PlannerText { sql, places, within, fields } = self.planner_text(stage, text, depth, on_measure)?;
        let schema = DFSchema::new_with_metadata(fields, HashMap::new())?;
        let wrong = |e: datafusion::error::DataFusionError| {
            model_error(format!("`{}` of model `{own}` cannot be planned: {}", template.text, e.strip_backtrace()))
        };
        let expr = self.state.create_logical_expr(&sql, &schema).map_err(wrong)?;
        let placed = ranges::within_aggregates(expr, &within)?.transform_up(|e| {
            let place = match e {
                Expr::AggregateFunction(call) => return Ok(Transformed::yes(exact_percentile(call))),
                Expr::Column(ref c) if c.relation.is_none() => places.get(&c.name).cloned(),
                // `now()` is the same everywhere in a query.
                Expr::ScalarFunction(ref call) if call.func.name() == "now" => Some(self.instant(stage.now_ns)),
                _ => None,
            };
            Ok(place.map_or_else(|| Transformed::no(e), Transformed::yes))
        })?;
        Ok(placed.data)
    }

    /// Writes a text with columns for its references, which the SQL planner knows nothing of.
    fn planner_text(
        &self,
        stage: &Stage,
        text: ModelText<'_>,
        depth: usize,
        on_measure: OnMeasure<'_>,
    ) -> OlapResult<PlannerText> {
        let own = text.model;
        let mut out = PlannerText::default();
        let mut models = vec![own.to_owned()];
        for piece in &text.template.pieces {
            match piece {
                Piece::Text(literal) => out.sql.push_str(&ranges::named(literal)),
                Piece::Raw(names) => return Err(model_error(format!("`{{{}}}` is not resolved", names.join(".")))),
                Piece::Model(name) => {
                    let _ = write!(out.sql, "\"{name}\"");
                    if !models.contains(name) {
                        models.push(name.clone());
                    }
                }
                Piece::Bucket(id, granularity) => {
                    let name = format!("__member_{}", out.places.len());
                    let expr = self.bucket(stage, id, granularity, depth + 1, text.times)?;
                    let ty = expr.get_type(&self.schema(stage, &expr)?)?;
                    let _ = write!(out.sql, "\"{name}\"");
                    out.put(&name, expr, ty);
                }
                Piece::Member(id) => {
                    let name = format!("__member_{}", out.places.len());
                    let is_measure = matches!(self.catalog.find(id).map(|f| f.kind), Some(MemberKind::Measure(_)));
                    let (expr, ty) = if is_measure {
                        on_measure(id)?
                    } else {
                        let expr = self.referred(stage, id, depth + 1, text.times)?;
                        let ty = expr.get_type(&self.schema(stage, &expr)?)?;
                        (expr, ty)
                    };
                    let _ = write!(out.sql, "\"{name}\"");
                    out.put(&name, expr, ty);
                }
            }
        }
        for (name, expr) in self.range_calls(stage, own, &out.sql, text.over)? {
            out.put(name, expr, if name.ends_with("seconds") { DataType::Float64 } else { instant_type() });
        }
        if text.over == EvaluationInput::Aggregates {
            out.within = self.range_calls(stage, own, &out.sql, EvaluationInput::Rows)?;
        }
        for model in &models {
            let schema = self.sources.schema(model)?;
            out.fields.extend(schema.iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))));
        }
        Ok(out)
    }

    /// The schema of the columns that an expression reads, to find its type.
    pub(super) fn schema(&self, stage: &Stage, expr: &Expr) -> OlapResult<DFSchemaRef> {
        let mut found: Vec<DFSchemaRef> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for c in expr.column_refs() {
            let Some(relation) = c.relation.as_ref().filter(|r| seen.insert(r.table().to_owned())) else { continue };
            match relation.table().split_once("__") {
                Some((model, name)) if self.catalog.find(&MemberId::new(model, name)).is_some() => {
                    let id = MemberId::new(model, name);
                    let member = self.catalog.find(&id).map(|f| (f.model, f.kind));
                    if let Some((model, MemberKind::Dimension(dimension))) = member {
                        let (plan, _) = self.sub_query(stage, model, dimension)?;
                        found.push(Arc::clone(plan.schema()));
                    }
                }
                _ => found.push(self.sources.schema(relation.table())?),
            }
        }
        // Most expressions read one model.
        if let [one] = &found[..] {
            return Ok(Arc::clone(one));
        }
        let fields = found.iter().flat_map(|schema| schema.iter().map(|(q, f)| (q.cloned(), Arc::clone(f))));
        Ok(Arc::new(DFSchema::new_with_metadata(fields.collect(), HashMap::new())?))
    }
}

/// Whether a text is an identifier that SQL reads unchanged, without quotes.
fn is_identifier(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| c.is_ascii_lowercase() || c == '_')
        && chars.all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && ALL_KEYWORDS.binary_search(&text.to_ascii_uppercase().as_str()).is_err()
}

/// The grouping keys of a sub-query: the key of its model and, if its value depends on the bucket, the query's
/// buckets.
fn sub_query_groups(stage: &Stage, model: &Model, dimension: &Dimension) -> Vec<Group> {
    let keys = model.key().map(|key| Group {
        column: format!("__key.{}", key.common.name),
        member: MemberId::new(&model.common.name, &key.common.name),
        buckets: None,
    });
    let buckets = stage.groups.iter().filter(|group| group.buckets.is_some());
    let buckets = buckets.filter(|group| dimension.per_bucket && group.member.model == model.common.name);
    let buckets = buckets.enumerate().map(|(i, group)| Group { column: format!("__bucket.{i}"), ..group.clone() });
    keys.chain(buckets).collect()
}

/// Whether a dimension is a time cut to a granularity, and nothing else.
fn is_bucket(dimension: &Dimension) -> bool {
    dimension.sql.as_ref().is_some_and(Template::is_bucket)
}

fn sub_query_alias(model: &Model, dimension: &Dimension) -> String {
    format!("{}__{}", model.common.name, dimension.common.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_sql_reads_as_they_are() {
        for name in ["duration", "service_name", "_x1"] {
            assert!(is_identifier(name), "{name}");
        }
        for other in ["", "1", "1x", "Duration", "a b", "a.b", "a()", "null", "true", "case", "current_date", "ä"] {
            assert!(!is_identifier(other), "{other}");
        }
    }
}
