//! Converts a SELECT over models to a query: plain columns become dimensions, `date_trunc` of a time its buckets,
//! lower and upper bounds of a time the query's range, comparisons with constants filters. Any other row expression
//! becomes a dimension or segment of a temporary catalog for this query; the expressions are passed beside it.

use std::collections::BTreeMap;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, lit};
use quiver_query::tables::DomainAccess;
use quiver_query::tables::models::{ModelMember, ModelSelect};
use serde_json::Value;

use crate::dates::granularity::Granularity;
use crate::dates::range::WallRange;
use crate::error::{OlapResult, QueryError, Reason};
use crate::model::catalog::{Catalog, MemberKind, ResolvedMember};
use crate::model::{Common, Dimension, DimensionType, MemberId, Piece, Segment, Template};
use crate::plan::MemberExprs;
use crate::query::filter::Filter;
use crate::query::{Query, TimeEntry};
use crate::sql_text::marked;
use crate::visibility::may_name;

mod conditions;

use conditions::{Bounds, filter_of};

/// Prefix of members of the temporary catalog. No file can define such names, since members begin with a letter.
const OWN: &str = "__sql";

/// A column of the plan that the SELECT reads.
#[derive(Debug)]
pub(super) struct Output {
    /// Its name in the query's plan.
    pub(super) column: String,
    /// Its name in the SELECT.
    pub(super) name: String,
    /// Whether it is wall time in UTC, which the SELECT needs as instants.
    pub(super) is_wall: bool,
}

/// The query and what it needs.
#[derive(Debug)]
pub(super) struct ModelQuery {
    pub(super) catalog: Arc<Catalog>,
    pub(super) query: Query,
    /// Expressions of members of the temporary catalog.
    pub(super) given: MemberExprs,
    pub(super) outputs: Vec<Output>,
}

pub(super) fn unknown(what: &str, name: &str) -> QueryError {
    QueryError::new(Reason::UnknownMember, "", format!("there is no {what} `{name}`"))
}

impl ModelQuery {
    /// Makes the query for a SELECT.
    ///
    /// # Errors
    ///
    /// A model or member does not exist, or is not visible to the caller.
    pub(super) fn of(
        catalog: Arc<Catalog>,
        select: &ModelSelect,
        access: &DomainAccess,
        now_ns: i64,
    ) -> OlapResult<Self> {
        let hidden = select.models.iter().find(|model| !may_name(&catalog, model, access));
        if let Some(model) = hidden {
            return Err(unknown("table", &format!("olap.{model}")).into());
        }
        let names: Vec<Value> = spoken_of(select).iter().map(|id| Value::from(id.to_string())).collect();
        let catalog = catalog.with_open(&Value::from(names));
        let mut made = Self { catalog, query: Query::empty(now_ns), given: MemberExprs::new(), outputs: Vec::new() };
        made.query.ungrouped = select.measures.is_empty();
        for (name, expr) in &select.columns {
            made.column(select, name, expr)?;
        }
        for (name, ModelMember { model, member }) in &select.measures {
            let id = MemberId::new(model, member);
            if !matches!(made.found(&id)?.kind, MemberKind::Measure(_)) {
                return Err(QueryError::new(Reason::WrongKind, "", format!("`{id}` is no measure")).into());
            }
            made.output(id.to_string(), name, false);
            if !made.query.measures.contains(&id) {
                made.query.measures.push(id);
            }
        }
        if made.outputs.is_empty() {
            // The rows are only counted.
            made.computed(select, "__row", &lit(1_i64))?;
        }
        made.conditions(select)?;
        Ok(made)
    }

    fn found(&self, id: &MemberId) -> Result<ResolvedMember<'_>, QueryError> {
        let found = self.catalog.find(id).filter(|found| self.catalog.is_public(found));
        found.ok_or_else(|| unknown("column", &id.to_string()))
    }

    fn output(&mut self, column: String, name: &str, is_wall: bool) {
        self.outputs.push(Output { column, name: name.to_owned(), is_wall });
    }

    fn column(&mut self, select: &ModelSelect, name: &str, expr: &Expr) -> OlapResult<()> {
        if let Some(id) = member(expr) {
            let MemberKind::Dimension(dimension) = self.found(&id)?.kind else {
                return Err(QueryError::new(Reason::WrongKind, "", format!("`{id}` is no dimension")).into());
            };
            let is_time = dimension.ty == DimensionType::Time;
            self.output(id.to_string(), name, is_time);
            if !self.query.dimensions.contains(&id) {
                self.query.dimensions.push(id);
            }
            return Ok(());
        }
        if let Some((member, granularity)) = bucket(expr).filter(|_| !self.query.ungrouped)
            && matches!(self.found(&member)?.kind, MemberKind::Dimension(d) if d.ty == DimensionType::Time)
        {
            let entry = TimeEntry { member, granularity: Some(granularity), range: None, compare: Vec::new() };
            self.output(entry.column().unwrap_or_default(), name, true);
            if !self.query.times.contains(&entry) {
                self.query.times.push(entry);
            }
            return Ok(());
        }
        self.computed(select, name, expr)
    }

    /// Adds a dimension for an expression of the SELECT.
    fn computed(&mut self, select: &ModelSelect, name: &str, expr: &Expr) -> OlapResult<()> {
        let (model, sql) = self.text(select, expr)?;
        let id = MemberId::new(model, format!("{OWN}_{}", self.given.len()));
        let common = Common { name: id.member.clone(), ..Common::default() };
        let catalog = Arc::make_mut(&mut self.catalog);
        let own = catalog.models.get_mut(&id.model).ok_or_else(|| unknown("table", &id.model))?;
        own.dimensions.push(Dimension::of_text(common, sql));
        self.output(id.to_string(), name, false);
        self.query.dimensions.push(id.clone());
        self.given.insert(id, expr.clone());
        Ok(())
    }

    /// The model that an expression belongs to, and a text that refers to all its members, so that their models are
    /// joined.
    fn text(&mut self, select: &ModelSelect, expr: &Expr) -> OlapResult<(String, Template)> {
        let mut pieces = Vec::new();
        let mut owner = None;
        for id in members(expr) {
            let found = self.found(&id)?;
            if !matches!(found.kind, MemberKind::Dimension(_)) {
                return Err(QueryError::new(Reason::WrongKind, "", format!("`{id}` is no dimension")).into());
            }
            let (behind, path) = (found.id(), found.view.map(|(_, member)| member.path.clone()));
            owner.get_or_insert_with(|| behind.model.clone());
            pieces.push(Piece::Member(behind));
            self.lead_over(path);
        }
        let owner = match owner {
            Some(owner) => owner,
            None => self.first_model(select)?,
        };
        Ok((owner, Template { text: String::new(), pieces, place: quiver_yaml::problem::Place::default() }))
    }

    fn lead_over(&mut self, path: Option<Vec<String>>) {
        self.query.hints.extend(path.filter(|path| !self.query.hints.contains(path)));
    }

    /// The model whose rows are read if no member decides that.
    fn first_model(&mut self, select: &ModelSelect) -> OlapResult<String> {
        let name = select.models.first().ok_or_else(|| unknown("table", "olap"))?;
        let Some(view) = self.catalog.views.get(name) else { return Ok(name.clone()) };
        let path = view.members.first().map(|member| member.path.clone());
        let root = path.as_ref().and_then(|path| path.first().cloned());
        self.lead_over(path);
        Ok(root.ok_or_else(|| unknown("table", name))?)
    }

    /// Adds the conditions to the query as ranges, filters and segments.
    fn conditions(&mut self, select: &ModelSelect) -> OlapResult<()> {
        let mut bounds: BTreeMap<MemberId, Bounds> = BTreeMap::new();
        let mut rest = Vec::new();
        for condition in select.filters.iter().flat_map(|filter| split_conjunction_owned(filter.clone())) {
            let time = |id: &MemberId| self.is_range(id);
            match Bounds::of(&condition, &time) {
                Some((id, found)) => bounds.entry(id).or_default().and(found, condition),
                None => rest.push(condition),
            }
        }
        for (member, bounds) in bounds {
            match bounds.range() {
                Some(range) => self.range(member, range),
                None => match bounds.open(&member) {
                    Some(leaf) => self.query.filters.push(Filter::Leaf(leaf)),
                    None => rest.extend(bounds.conditions),
                },
            }
        }
        let mut own = Vec::new();
        for condition in rest {
            let kind = |id: &MemberId| match self.found(id).ok()?.kind {
                MemberKind::Dimension(dimension) => Some(dimension.ty),
                _ => None,
            };
            match filter_of(&condition, &kind) {
                Some(leaf) => self.query.filters.push(Filter::Leaf(leaf)),
                None => own.push(condition),
            }
        }
        let Some(all) = conjunction(own) else { return Ok(()) };
        let all = if select.marks_values { values_marked(all)? } else { all };
        let (model, sql) = self.text(select, &all)?;
        let id = MemberId::new(model, format!("{OWN}_where"));
        let common = Common { name: id.member.clone(), ..Common::default() };
        let catalog = Arc::make_mut(&mut self.catalog);
        let model = catalog.models.get_mut(&id.model).ok_or_else(|| unknown("table", &id.model))?;
        model.segments.push(Segment { common, sql, by: Vec::new() });
        self.query.segments.push(id.clone());
        self.given.insert(id, all);
        Ok(())
    }

    /// Whether bounds of a member may become the query's range. For single rows of a time with a lifetime they may
    /// not: the range would include all rows that existed within it.
    fn is_range(&self, id: &MemberId) -> bool {
        let Ok(ResolvedMember { kind: MemberKind::Dimension(dimension), .. }) = self.found(id) else { return false };
        dimension.ty == DimensionType::Time && (!self.query.ungrouped || dimension.since.is_none())
    }

    fn range(&mut self, member: MemberId, range: WallRange) {
        let mut own = self.query.times.iter_mut().filter(|time| time.member == member).peekable();
        if own.peek().is_none() {
            let entry = TimeEntry { member, granularity: None, range: Some(range), compare: Vec::new() };
            self.query.times.push(entry);
            return;
        }
        own.for_each(|time| time.range = Some(range));
    }
}

/// The member that a column refers to.
pub(crate) fn member(expr: &Expr) -> Option<MemberId> {
    match expr {
        Expr::Column(column) => Some(MemberId::new(column.relation.as_ref()?.table(), &column.name)),
        Expr::Alias(alias) => member(&alias.expr),
        _ => None,
    }
}

/// The members in an expression, sorted by name.
fn members(expr: &Expr) -> Vec<MemberId> {
    let mut found: Vec<MemberId> =
        expr.column_refs().into_iter().filter_map(|column| member(&Expr::Column(column.clone()))).collect();
    found.sort();
    found
}

fn spoken_of(select: &ModelSelect) -> Vec<MemberId> {
    let exprs = select.columns.iter().map(|(_, expr)| expr).chain(&select.filters);
    exprs.flat_map(members).collect()
}

/// The time and the granularity of `date_trunc('day', time)`.
fn bucket(expr: &Expr) -> Option<(MemberId, Granularity)> {
    let Expr::ScalarFunction(call) = expr else { return None };
    let [Expr::Literal(ScalarValue::Utf8(Some(unit)), _), time] = call.args.as_slice() else { return None };
    let granularity = Granularity::standard(&unit.to_lowercase()).filter(|_| call.func.name() == "date_trunc")?;
    Some((member(time)?, granularity))
}

/// Marks the caller's literals, which become parameters when a plan is printed.
fn values_marked(expr: Expr) -> OlapResult<Expr> {
    use datafusion::common::tree_node::{Transformed, TreeNode as _};
    let marked = expr.transform_up(|e| match e {
        literal @ Expr::Literal(..) => Ok(Transformed::yes(marked(literal))),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(marked.data)
}
