//! Decides which queries can be answered from cached time buckets, and what these consist of. Rows of a table of the
//! product have one time, and it is known in which ranges rows were written (`TableSnapshot::is_unchanged`), so the
//! groups of a bucket are valid until something is written into it. As with rollups, in doubt a query reads raw rows.

use std::collections::BTreeSet;

use chrono_tz::Tz;
use datafusion::execution::session_state::SessionState;
use datafusion::sql::parser::Statement;
use datafusion::sql::sqlparser::ast::{SelectItem, SetExpr, Statement as SqlStatement, TableFactor};
use quiver_query::tables::{DomainAccess, PUBLIC_SCHEMA, QUIVER_SCHEMA, TableRequest, TableSnapshot};

use super::matching::{
    StorableRollup, fits, is_kept_dimension, is_kept_measure, is_kept_segment, is_special, sketch_of,
};
use super::row_cache::rights;
use crate::dates::SECOND_NS;
use crate::dates::granularity::{Granularity, nests};
use crate::dates::range::WallRange;
use crate::model::catalog::{Catalog, MemberKind, ResolvedMember};
use crate::model::{
    Common, Dimension, DimensionType, Measure, MeasureType, MemberId, Model, PreAggregation, Source, Template,
};
use crate::query::filter::{Filter, Leaf, Test};
use crate::query::{CacheMode, Query};

/// Tables of the product, with the column of their time.
const TIMES: [(&str, &str); 3] = [("spans", "start_time"), ("logs", "time"), ("metric_samples", "time")];
const NO_TABLE: &str = "its rows are not those of one table of the product";
/// Units of buckets, longest first. A unit is used if the range has at least this many; the last is used in any case.
const UNITS: [&str; 3] = ["day", "hour", "minute"];
const BUCKETS_MIN: i64 = 12;
/// The most buckets of a range.
const BUCKETS_MAX: i64 = 20_000;
/// Parts of SELECTs that give other rows than those of their table with their times.
const NO_ROWS: [&str; 10] =
    [" over", "distinct", "group by", "join", "lateral", "limit", "offset", "fetch", "union", "qualify"];

/// A query split into buckets.
#[derive(Debug, Clone)]
pub(crate) struct BucketedQuery {
    /// What is cached of each bucket.
    pub(crate) held: StorableRollup,
    /// The query for the groups, without a range.
    pub(crate) inner: Query,
    /// The query over these groups.
    pub(crate) outer: Query,
    /// The length of a bucket.
    pub(crate) unit: Granularity,
    /// Start and end of the query, in ns.
    pub(crate) range: (i64, i64),
    /// The table that the model reads: `spans`, `logs` or `metric_samples`.
    pub(crate) table: &'static str,
    /// Columns that the rows may depend on, in addition to the table's own.
    pub(crate) columns: Vec<String>,
}

impl BucketedQuery {
    /// Splits a query; the error is the reason if that is impossible.
    pub(crate) fn of(
        catalog: &Catalog,
        query: &Query,
        state: &SessionState,
        tables: &dyn TableSnapshot,
    ) -> Result<Self, String> {
        if !query.rollups || query.cache == Some(CacheMode::NoCache) {
            return Err("the query asks for raw rows".to_owned());
        }
        if query.ungrouped || query.exemplars > 0 || !query.hints.is_empty() {
            return Err("the query is about single rows, or leads over joins".to_owned());
        }
        let find = |id: &MemberId| catalog.find(id).ok_or_else(|| format!("there is no member `{id}`"));
        let first = query.times.first().ok_or("it has no time dimension")?;
        let model = find(&first.member)?.model;
        let (table, column) = table_of(model, state, tables).ok_or(NO_TABLE)?;
        let (time, wall) = time_of(catalog, query, column)?;
        let range = wall.instants(query.tz);
        let mut made = model.clone();
        let mut rollup = PreAggregation {
            name: "buckets".to_owned(),
            kind: "rollup".to_owned(),
            measures: Vec::new(),
            dimensions: Vec::new(),
            segments: Vec::new(),
            time: None,
        };
        let unit = unit_of(query, range)?;
        rollup.time = Some((time, unit.name.clone()));
        for id in &query.dimensions {
            let found = find(id)?;
            if matches!(found.kind, MemberKind::Dimension(d) if d.ty == DimensionType::Time) {
                return Err(format!("`{id}` is a time, which zones change"));
            }
            rollup.dimensions.push(found.id());
        }
        for id in query.members() {
            if let MemberKind::Measure(measure) = find(&id)?.kind {
                add_measure(&mut made, measure, &mut rollup.measures)?;
            }
        }
        let mut held = StorableRollup::of(&made, &rollup)?;
        // A query without a range has no buckets.
        held.ranged = true;
        if held.query.times.iter().all(|entry| entry.granularity.as_ref() != Some(&unit)) {
            return Err("its time is not kept".to_owned());
        }
        let mut inner = Query { now_ns: query.now_ns, ..held.query.clone() };
        let mut outer = Query { filters: Vec::new(), segments: Vec::new(), ..query.clone() };
        // What is asked of results is asked once groups are merged: a bucket has only a part of each.
        for filter in &query.filters {
            let is_over_result = |leaf: &&Leaf| leaf.is_measure && leaf.test != Test::MeasureFilter;
            if filter.leaves().iter().all(is_over_result) {
                outer.filters.push(filter.clone());
            } else {
                inner.filters.push(own_filter(catalog, model, filter)?);
            }
        }
        for id in &query.segments {
            let found = find(id)?;
            match found.kind {
                MemberKind::Segment(segment) if is_own(&found, model) && is_kept_segment(model, segment) => {
                    inner.segments.push(found.id());
                }
                _ => return Err(format!("`{id}` is made of more than rows of its model")),
            }
        }
        outer.members().iter().try_for_each(|id| held.has(catalog, id, state))?;
        let columns = columns_of(model, &held, &inner)?;
        Ok(Self { held, inner, outer, unit, range, table, columns })
    }

    /// Splits a query that a rollup serves into the rollup's buckets, if the rollup reads a table of the product.
    pub(crate) fn declared(
        catalog: &Catalog,
        query: &Query,
        held: StorableRollup,
        state: &SessionState,
        tables: &dyn TableSnapshot,
    ) -> Result<Self, String> {
        let (table, column) = table_of(&held.model, state, tables).ok_or(NO_TABLE)?;
        let (time, unit) =
            held.buckets().cloned().ok_or("it has no time dimension, by whose buckets it would be kept")?;
        let (asked, wall) = time_of(catalog, query, column)?;
        if asked != time {
            return Err(format!("its buckets are not those of `{asked}`"));
        }
        let inner = Query { now_ns: query.now_ns, ..held.query.clone() };
        let columns = columns_of(&held.model, &held, &inner)?;
        let range = wall.instants(query.tz);
        let made = Self { held, inner, outer: query.clone(), unit, range, table, columns };
        let most = usize::try_from(BUCKETS_MAX).unwrap_or(usize::MAX);
        if made.buckets().nth(most).is_some() {
            return Err("its range has too many buckets".to_owned());
        }
        Ok(made)
    }

    /// The cache key: models, the caller's rights, groups and filters.
    pub(crate) fn key(&self, catalog: &Catalog, access: &DomainAccess) -> String {
        let inner = &self.inner;
        let shape = (&inner.dimensions, &inner.measures, &inner.segments, &inner.filters, &self.unit);
        format!("{} {} {} {shape:?}", catalog.version, self.held.model.common.name, rights(access))
    }

    /// The starts of its buckets, each with the part of it that is asked for.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (i64, (i64, i64))> {
        let (buckets, (start, end)) = (self.unit.buckets, self.range);
        let first = buckets.floor(start);
        let borders = std::iter::successors(Some(first), move |&at| Some(buckets.next(at)));
        borders.take_while(move |&at| at < end).map(move |at| (at, (at.max(start), buckets.next(at).min(end))))
    }

    /// Whether a bucket is asked for as a whole.
    pub(crate) fn is_whole(&self, at: i64) -> bool {
        at >= self.range.0 && self.unit.buckets.next(at) <= self.range.1
    }

    /// The query for the rows of a part of the range.
    pub(crate) fn read(&self, (start_ns, end_ns): (i64, i64)) -> Query {
        let mut query = self.inner.clone();
        query.times.iter_mut().for_each(|entry| entry.range = Some(WallRange { start_ns, end_ns }));
        query
    }
}

fn is_own(found: &ResolvedMember<'_>, model: &Model) -> bool {
    let name = &model.common.name;
    found.model.common.name == *name && found.view.is_none_or(|(_, member)| member.path.iter().all(|step| step == name))
}

/// The only time dimension of a query, which must be the time of its table, and its only range.
fn time_of(catalog: &Catalog, query: &Query, column: &str) -> Result<(MemberId, WallRange), String> {
    let mut ranges = query.times.iter().filter_map(|entry| entry.range);
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return Err("it has not one range of time".to_owned());
    };
    let found: Vec<ResolvedMember<'_>> = query.times.iter().filter_map(|entry| catalog.find(&entry.member)).collect();
    let first = found.first().ok_or("it has no time dimension")?;
    if found.iter().any(|other| other.id() != first.id()) {
        return Err("it has several time dimensions".to_owned());
    }
    let is_time = |text: &str| {
        let bare = ["{CUBE}.", "${CUBE}."].iter().find_map(|own| text.strip_prefix(own)).unwrap_or(text);
        bare == column
    };
    let is_plain = matches!(first.kind, MemberKind::Dimension(d) if d.case.is_none()
        && d.sql.as_ref().is_some_and(|sql| is_time(sql.text.trim())));
    if !is_plain {
        return Err(format!("`{}` is not the time of its table", first.id()));
    }
    let in_buckets = |id: &MemberId| query.times.iter().any(|t| t.granularity.is_some() && t.member == *id);
    let order = query.order.iter().flatten().filter_map(|key| MemberId::parse(&key.id));
    for id in order.filter(|id| !in_buckets(id)) {
        if catalog.find(&id).is_some_and(|other| other.id() == first.id()) {
            return Err(format!("it is ordered by `{id}`, of which only buckets are kept"));
        }
    }
    Ok((first.id(), range))
}

/// The longest unit that divides the query's buckets, and of which the range has enough.
fn unit_of(query: &Query, (start, end): (i64, i64)) -> Result<Granularity, String> {
    let asked: Vec<&Granularity> = query.times.iter().filter_map(|entry| entry.granularity.as_ref()).collect();
    let seconds = (start.div_euclid(SECOND_NS), end.div_euclid(SECOND_NS));
    for name in UNITS {
        let Some(unit) = Granularity::standard(name) else { continue };
        let count = end.saturating_sub(start) / unit.buckets.length.nanos.max(1);
        let is_whole = |outer: &&Granularity| nests(&outer.buckets, &unit.buckets);
        let zone = if asked.is_empty() { Tz::UTC } else { query.tz };
        if count < BUCKETS_MIN || !asked.iter().all(is_whole) {
            continue;
        }
        if count > BUCKETS_MAX {
            break;
        }
        if fits(zone, &unit.buckets, seconds) {
            return Ok(unit);
        }
    }
    Err("its range has too few buckets, or too many".to_owned())
}

/// Adds what a measure is computed from: itself, a sum and a count for a mean, the parts of an expression.
fn add_measure(made: &mut Model, measure: &Measure, into: &mut Vec<MemberId>) -> Result<(), String> {
    let name = made.common.name.clone();
    let mut add = |id: MemberId| {
        if !into.contains(&id) {
            into.push(id);
        }
    };
    if is_kept_measure(made, measure) || sketch_of(made, measure).is_some() {
        add(MemberId::new(&name, &measure.common.name));
        return Ok(());
    }
    let sql = measure.sql.as_ref().filter(|_| !is_special(measure));
    let Some(sql) = sql else { return Err(format!("`{}` is made of more than its group", measure.common.name)) };
    if measure.ty == MeasureType::Avg {
        for (word, ty) in [("sum", MeasureType::Sum), ("count", MeasureType::Count)] {
            let own = format!("__{word}_{}", measure.common.name);
            let common = Common { name: own.clone(), place: measure.common.place, ..Common::default() };
            made.measures.push(Measure { common, ty, ..measure.clone() });
            add(MemberId::new(&name, own));
        }
        return Ok(());
    }
    if !measure.ty.is_expression() || sql.members().next().is_none() {
        return Err(format!("`{}` of a range does not follow from that of its parts", measure.common.name));
    }
    for id in sql.members() {
        let inner = made.measure(&id.member).filter(|_| id.model == name).cloned();
        let inner = inner.ok_or_else(|| format!("`{id}` is no measure of the same model"))?;
        add_measure(made, &inner, into)?;
    }
    Ok(())
}

/// A condition on dimensions of a model, by the model's own names; times are refused, since they depend on the zone.
fn own_filter(catalog: &Catalog, model: &Model, filter: &Filter) -> Result<Filter, String> {
    let all = |list: &[Filter]| list.iter().map(|f| own_filter(catalog, model, f)).collect::<Result<Vec<_>, _>>();
    match filter {
        Filter::And(list) => all(list).map(Filter::And),
        Filter::Or(list) => all(list).map(Filter::Or),
        Filter::Leaf(leaf) => {
            let found = catalog.find(&leaf.member).ok_or_else(|| format!("there is no member `{}`", leaf.member))?;
            let is_kept = matches!(found.kind, MemberKind::Dimension(d) if d.ty != DimensionType::Time
                && is_own(&found, model) && is_kept_dimension(model, d));
            if !is_kept || leaf.test == Test::MeasureFilter {
                return Err(format!("the condition on `{}` is about more than rows of the model", leaf.member));
            }
            let mut leaf = leaf.clone();
            leaf.member = found.id();
            Ok(Filter::Leaf(leaf))
        }
    }
}

/// The table of a model, and its time, if each row of the model is a row of the table.
pub(super) fn table_of(
    model: &Model,
    state: &SessionState,
    tables: &dyn TableSnapshot,
) -> Option<(&'static str, &'static str)> {
    let known = |schema: Option<&str>, name: &str| {
        let full = DomainAccess::full();
        let of_operator =
            TableRequest { schema: Some(PUBLIC_SCHEMA), name, columns: &[], access: &full, typed_by: &full };
        // A table of the operator takes precedence over one of the product.
        let is_product =
            schema.map_or_else(|| tables.version(&of_operator).is_none(), |s| s.eq_ignore_ascii_case(QUIVER_SCHEMA));
        TIMES.iter().find(|(table, _)| is_product && *table == name).copied()
    };
    let sql = match model.source.as_ref()? {
        Source::Table(schema, name) => return known(schema.as_deref(), name),
        Source::Select(sql) => sql,
    };
    let lower = sql.to_lowercase();
    if lower.matches("select").count() != 1 || NO_ROWS.iter().any(|word| lower.contains(word)) {
        return None;
    }
    let dialect = state.config().options().sql_parser.dialect;
    let Statement::Statement(statement) = state.sql_to_statement(sql, &dialect).ok()? else { return None };
    let SqlStatement::Query(query) = &*statement else { return None };
    let SetExpr::Select(select) = &*query.body else { return None };
    let [from] = &select.from[..] else { return None };
    let TableFactor::Table { name, .. } = &from.relation else { return None };
    let parts: Vec<String> = name.0.iter().filter_map(|part| part.as_ident()).map(|i| i.value.clone()).collect();
    let (table, time) = match &parts[..] {
        [table] => known(None, table)?,
        [schema, table] => known(Some(schema.as_str()), table)?,
        _ => return None,
    };
    // The time must be the table's own column, under its own name.
    let is_other = |item: &SelectItem| match item {
        SelectItem::ExprWithAlias { alias, .. } => alias.value.eq_ignore_ascii_case(time),
        SelectItem::UnnamedExpr(_) => true,
        _ => false,
    };
    let has_all = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    (has_all && !select.projection.iter().any(is_other)).then_some((table, time))
}

/// Columns whose values may change although the rows do not.
fn columns_of(model: &Model, held: &StorableRollup, inner: &Query) -> Result<Vec<String>, String> {
    let dimensions = inner.filters.iter().flat_map(Filter::leaves).map(|leaf| &leaf.member).chain(&inner.dimensions);
    let dimensions = dimensions.filter_map(|id| held.model.dimension(&id.member));
    let measures = inner.measures.iter().filter_map(|id| held.model.measure(&id.member));
    let segments = inner.segments.iter().filter_map(|id| held.model.segment(&id.member));
    let mut texts: Vec<&Template> = dimensions.flat_map(Dimension::templates).collect();
    texts.extend(measures.flat_map(Measure::templates));
    texts.extend(segments.map(|s| &s.sql));
    texts.extend(model.rows.iter().map(|rows| &rows.sql));
    let (mut all, mut seen) = (String::new(), BTreeSet::new());
    if let Some(Source::Select(sql)) = &model.source {
        all += &sql.to_lowercase().replacen("select", "", 1);
    }
    while let Some(text) = texts.pop() {
        all += &text.text.to_lowercase();
        let behind = text.members().filter(|id| seen.insert((*id).clone()));
        texts.extend(behind.filter_map(|id| held.model.dimension(&id.member)).flat_map(Dimension::templates));
    }
    let says = |word: &str| all.contains(word);
    if says("__q_row") || says("select") {
        return Err("its members are made of more than columns".to_owned());
    }
    Ok(if says("increase") { vec!["increase".to_owned()] } else { Vec::new() })
}
