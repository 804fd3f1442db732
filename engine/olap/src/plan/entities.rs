//! Models of which a row is a record of an entity (`entities: true`, `olap-models.md` 3.3): a sample of a host. In a join
//! such a model stands as its entities, one row for each key in the query's range, so that a join to it is to-one. Its
//! measures go over the records of these entities: the rest of the join only chooses which.

use std::collections::BTreeSet;
use std::sync::Arc;

use datafusion::common::{Column, JoinType, NullEquality, TableReference};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, SortExpr};

use super::fan_out::{Leaf, aggregated};
use super::ranges::time_of;
use super::{Group, Planner, Stage, Tree, column, model_error};
use crate::dates::range::WallRange;
use crate::error::{OlapResult, QueryError, Reason};
use crate::model::{Dimension, Measure, MemberId, Model};
use crate::query::filter::Filter;

/// The alias of the entities that a join chooses.
const CHOSEN: &str = "__chosen";

/// Measures of one model, with its name.
type OfModel = (String, Vec<MemberId>);

/// A stage split in two: what its measures read from the records of a model, and what chooses the entities.
struct Halves {
    records: Stage,
    chosen: Stage,
}

impl Planner<'_> {
    /// Whether measures go over records of the root of a tree, if its rows are such. Buckets of them may also group measures
    /// of models to which joins are to-one: what has a record in a bucket counts there.
    pub(super) fn shows_records(&self, stage: &Stage, tree: &Tree, measures: &[MemberId]) -> bool {
        let is_by_bucket = stage.groups.iter().any(|g| g.buckets.is_some() && g.member.model == tree.root);
        let is_to_one = |id: &MemberId| tree.is_multiplied(self.catalog, &id.model);
        measures.iter().any(|id| id.model == tree.root) || is_by_bucket && measures.iter().all(is_to_one)
    }

    /// The rows with which a model stands in a tree, with values of its sub-queries in `inner`. `is_of_records`: the root
    /// stands with its records.
    pub(super) fn joined_rows(
        &self,
        stage: &Stage,
        tree: &Tree,
        model: &str,
        (measures, inner, is_of_records): (&[MemberId], &BTreeSet<MemberId>, bool),
    ) -> OlapResult<LogicalPlan> {
        let is_alone = tree.edges.is_empty() || is_of_records && model == tree.root;
        if is_alone || !self.catalog.model(model).entities {
            return self.model_rows(stage, model, inner);
        }
        let refused = |text: String, pointer: &str| Err(QueryError::new(Reason::NoJoinPath, pointer, text).into());
        if let Some(id) = measures.iter().find(|id| id.model == model) {
            let text = format!("`{id}` goes over records of `{model}`, which a join shows as one row for each key");
            return refused(text, "/measures");
        }
        if let Some(group) = stage.groups.iter().find(|g| g.buckets.is_some() && g.member.model == model) {
            let text = format!(
                "a join shows `{model}` as one row for each key in the whole range, so buckets of `{}` go with measures of \
                 such models only: ask for buckets of the time of the measure's model, or without `granularity`",
                group.member
            );
            return refused(text, "/timeDimensions");
        }
        self.entity_rows(stage, self.catalog.model(model), inner)
    }

    /// One row for each key of a model in the query's range, with the last value of each column that is not NULL: not
    /// all records of an entity say the same of it.
    fn entity_rows(&self, stage: &Stage, model: &Model, inner: &BTreeSet<MemberId>) -> OlapResult<LogicalPlan> {
        let name = model.common.name.as_str();
        let time = record_time(model)?;
        let mut rows = self.model_rows(stage, name, &BTreeSet::new())?;
        if let Some(range) = range_of(stage, &time) {
            let within = self.in_range(stage, &time, &range)?;
            rows = LogicalPlanBuilder::from(rows).filter(within)?.build()?;
        }
        let at = self.dimension(stage, &time)?;
        let (mut last, mut out) = (Vec::new(), Vec::new());
        let texts = self.texts_over(model);
        let is_read = |name: &str| model.open.is_some() || texts.contains(&name.to_lowercase());
        for (i, (of, field)) in rows.schema().iter().enumerate().filter(|(_, (_, field))| is_read(field.name())) {
            // The largest value of the last time: with several records at one time, the order of rows would be chance.
            let value = Expr::Column(Column::new(of.cloned(), field.name()));
            let among = (!field.data_type().is_nested()).then(|| value.clone());
            let order = [at.clone()].into_iter().chain(among).map(|key| key.sort(true, true)).collect();
            last.push(self.last_value(value, order)?.alias(format!("__last_{i}")));
            // An alias of the model would stand for its own rows, where plans are printed.
            out.push(column(format!("__last_{i}")).alias_qualified(of.cloned(), field.name()));
        }
        let keys = self.key_exprs(stage, model, "__entity")?;
        let entities = LogicalPlanBuilder::from(rows).aggregate(keys, last)?.project(out)?;
        self.with_sub_queries(stage, entities.build()?, model, inner)
    }

    /// In lower case, the texts that may read columns of a model's entities: measures go over its records.
    fn texts_over(&self, model: &Model) -> String {
        let name = model.common.name.as_str();
        let mut all = String::new();
        for other in self.catalog.models.values() {
            let is_own = other.common.name == name;
            let dimensions = other.dimensions.iter().flat_map(Dimension::templates);
            let filters = other.measures.iter().flat_map(|measure| &measure.filters);
            let measures = other.measures.iter().filter(|_| !is_own).flat_map(Measure::templates);
            let others = other.segments.iter().map(|s| &s.sql).chain(other.joins.iter().map(|j| &j.sql));
            for template in dimensions.chain(filters).chain(measures).chain(others) {
                if is_own || template.models().any(|named| named == name) {
                    all.push_str(&template.text.to_lowercase());
                    all.push(' ');
                }
            }
        }
        all
    }

    /// Rows of a model with the values of some sub-queries.
    pub(super) fn with_sub_queries(
        &self,
        stage: &Stage,
        mut plan: LogicalPlan,
        model: &Model,
        sub_queries: &BTreeSet<MemberId>,
    ) -> OlapResult<LogicalPlan> {
        for dimension in model.dimensions.iter().filter(|d| d.sub_query) {
            if sub_queries.contains(&MemberId::new(&model.common.name, &dimension.common.name)) {
                plan = self.with_sub_query(stage, plan, model, dimension)?;
            }
        }
        Ok(plan)
    }

    /// The last value of a column that is not NULL.
    fn last_value(&self, value: Expr, order: Vec<SortExpr>) -> OlapResult<Expr> {
        let function = self.state.aggregate_functions().get("last_value");
        let function = function.ok_or_else(|| model_error("there is no aggregate `last_value`"))?;
        let is_there = Box::new(value.clone().is_not_null());
        let function = Arc::clone(function);
        let call = AggregateFunction::new_udf(function, vec![value], false, Some(is_there), order, None);
        Ok(Expr::AggregateFunction(call))
    }

    /// The parts of a model's key as columns of a name with their numbers.
    fn key_exprs(&self, stage: &Stage, model: &Model, name: &str) -> OlapResult<Vec<Expr>> {
        let id = |key: &str| MemberId::new(&model.common.name, key);
        let keys = model.key().enumerate();
        keys.map(|(i, key)| Ok(self.dimension(stage, &id(&key.common.name))?.alias(format!("{name}_{i}")))).collect()
    }

    /// Whether a member reads rows of its own model and of no other.
    fn is_of_records(&self, id: &MemberId, model: &str) -> OlapResult<bool> {
        let mut needed = Vec::new();
        self.needs(&self.behind(id)?, &mut needed)?;
        Ok(needed == [model])
    }

    /// Measures over records of models that a tree shows as entities, by model; the others.
    pub(super) fn measures_of_records(
        &self,
        tree: &Tree,
        measures: &[MemberId],
    ) -> OlapResult<(Vec<OfModel>, Vec<MemberId>)> {
        let (mut of_records, mut others): (Vec<OfModel>, Vec<MemberId>) = (Vec::new(), Vec::new());
        for id in measures {
            let is_joined = self.catalog.model(&id.model).entities && !tree.edges.is_empty();
            if !is_joined || !self.is_of_records(id, &id.model)? {
                others.push(id.clone());
            } else if let Some((_, same)) = of_records.iter_mut().find(|(model, _)| *model == id.model) {
                same.push(id.clone());
            } else {
                of_records.push((id.model.clone(), vec![id.clone()]));
            }
        }
        Ok((of_records, others))
    }

    /// Measures of one model over the records of the entities that a tree chooses, by the groups of the stage.
    pub(super) fn over_records(
        &self,
        stage: &Stage,
        tree: &Tree,
        name: &str,
        measures: &[MemberId],
    ) -> OlapResult<(LogicalPlan, Vec<Leaf>)> {
        let model = self.catalog.model(name);
        let Halves { records, chosen } = self.halves(stage, model)?;
        let mut needed = vec![name.to_owned()];
        self.stage_needs(&chosen, &mut needed)?;
        let tree = self.part_of(tree, needed);
        let own = |group: &Group| records.groups.iter().find(|own| own.column == group.column);
        // If no join multiplies the records, they can be joined directly.
        if tree.root == name && !tree.is_multiplied(self.catalog, name) {
            let groups = stage.groups.iter().map(|group| own(group).unwrap_or(group).clone()).collect();
            let others = chosen.ranges.iter().filter(|(of, _)| of.model != name);
            let ranges = records.ranges.iter().chain(others).cloned().collect();
            let whole = Stage { groups, ranges, hints: Vec::new(), later: Vec::new(), ..stage.clone() };
            let rows = self.rows_over(&whole, &tree, measures, (&[], true))?;
            let leaves = self.leaves(&whole, measures)?;
            return Ok((aggregated(rows, self.group_exprs(&whole)?, &leaves)?, leaves));
        }
        let alone = Tree { root: name.to_owned(), edges: Vec::new() };
        let rows = self.rows(&records, &alone, measures, &[])?;
        let rows = self.of_chosen(rows, &records, model, self.chosen(&chosen, &tree, model)?)?;
        let mut groups = Vec::new();
        for group in &stage.groups {
            let value = match own(group) {
                Some(own) => self.group_value(&records, own)?,
                None => Expr::Column(Column::new(Some(TableReference::bare(CHOSEN)), group.column.clone())),
            };
            groups.push(value.alias(group.column.clone()));
        }
        let leaves = self.leaves(&records, measures)?;
        Ok((aggregated(rows, groups, &leaves)?, leaves))
    }

    /// Measures as aggregates over rows of their model that are all there.
    fn leaves(&self, stage: &Stage, measures: &[MemberId]) -> OlapResult<Vec<Leaf>> {
        measures.iter().map(|id| self.leaf(stage, id, false, None)).collect()
    }

    /// Splits a stage: groups, filters and segments over records of the model, with buckets and range on its own time, and
    /// all others.
    fn halves(&self, stage: &Stage, model: &Model) -> OlapResult<Halves> {
        let name = model.common.name.as_str();
        let time = record_time(model)?;
        let mut records = Stage { groups: Vec::new(), hints: Vec::new(), later: Vec::new(), ..stage.clone() };
        let mut chosen = Stage { later: Vec::new(), ..records.clone() };
        for group in &stage.groups {
            // Buckets of one such model are those of the others: a row is an entity in a bucket.
            if group.buckets.is_some() && self.catalog.model(&group.member.model).entities {
                let is_own = group.member.model == name;
                let member = if is_own { group.member.clone() } else { time.clone() };
                records.groups.push(Group { member, ..group.clone() });
            } else if self.is_of_records(&group.member, name)? {
                records.groups.push(group.clone());
            } else {
                chosen.groups.push(group.clone());
            }
        }
        let is_own = |filter: &Filter| {
            let leaves = filter.leaves();
            leaves.iter().map(|leaf| self.is_of_records(&leaf.member, name)).collect::<OlapResult<Vec<_>>>()
        };
        (records.filters, chosen.filters) = (Vec::new(), Vec::new());
        for filter in &stage.filters {
            let half = if is_own(filter)?.iter().all(|own| *own) { &mut records } else { &mut chosen };
            half.filters.push(filter.clone());
        }
        (records.segments, chosen.segments) = (Vec::new(), Vec::new());
        for id in &stage.segments {
            let half = if self.is_of_records(id, name)? { &mut records } else { &mut chosen };
            half.segments.push(id.clone());
        }
        records.ranges.retain(|(of, _)| of.model == name && *of != time);
        if let Some(range) = range_of(stage, &time) {
            records.ranges.insert(0, (time, range));
        }
        Ok(Halves { records, chosen })
    }

    /// The keys of the entities that a tree chooses, with the groups that each is in.
    fn chosen(&self, stage: &Stage, tree: &Tree, model: &Model) -> OlapResult<LogicalPlan> {
        let rows = self.rows(stage, tree, &[], &[])?;
        let mut columns = self.group_exprs(stage)?;
        columns.extend(self.key_exprs(stage, model, "__key")?);
        let is_there = (0..model.key().count()).map(|i| column(format!("__key_{i}")).is_not_null()).reduce(Expr::or);
        let is_there = is_there.ok_or_else(|| model_error(format!("model `{}` has no key", model.common.name)))?;
        let names: Vec<Expr> = columns.iter().map(|e| column(e.qualified_name().1)).collect();
        let distinct = LogicalPlanBuilder::from(rows).aggregate(columns, Vec::<Expr>::new())?.project(names.clone())?;
        Ok(distinct.filter(is_there)?.project(names)?.alias(TableReference::bare(CHOSEN))?.build()?)
    }

    /// Joins the records of entities to these.
    fn of_chosen(
        &self,
        records: LogicalPlan,
        stage: &Stage,
        model: &Model,
        chosen: LogicalPlan,
    ) -> OlapResult<LogicalPlan> {
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for i in 0..model.key().count() {
            left.push(Column::new_unqualified(format!("__record_{i}")));
            right.push(Column::new(Some(TableReference::bare(CHOSEN)), format!("__key_{i}")));
        }
        let mut with_keys: Vec<Expr> = records.schema().columns().into_iter().map(Expr::Column).collect();
        with_keys.extend(self.key_exprs(stage, model, "__record")?);
        let records = LogicalPlanBuilder::from(records).project(with_keys)?.build()?;
        let on = (left, right);
        let joined = LogicalPlanBuilder::from(records).join_detailed(
            chosen,
            JoinType::Inner,
            on,
            None,
            NullEquality::NullEqualsNull,
        )?;
        Ok(joined.build()?)
    }
}

/// The query's range on the time of a model's records: its own, else the first.
fn range_of(stage: &Stage, time: &MemberId) -> Option<WallRange> {
    let own = stage.ranges.iter().find(|(of, _)| of == time);
    own.or_else(|| stage.ranges.first()).map(|(_, range)| *range)
}

/// The time of a model's records.
fn record_time(model: &Model) -> OlapResult<MemberId> {
    let found = time_of(model).map(|(time, _)| time);
    found.ok_or_else(|| model_error(format!("model `{}` has no time", model.common.name)))
}
