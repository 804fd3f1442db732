//! Decides which queries a rollup serves, and makes the model over its rows. In doubt it does not serve: results must
//! be the same with and without rollups.

use arrow::datatypes::{DataType, Schema};
use chrono_tz::Tz;
use datafusion::execution::session_state::SessionState;

use crate::dates::granularity::{Buckets, Granularity, nests};
use crate::dates::zone::offset_s;
use crate::dates::{DAY_NS, SECOND_NS};
use crate::model::catalog::{Catalog, MemberKind};
use crate::model::template::is_steady;
use crate::model::{
    Common, Dimension, DimensionType, Measure, MeasureType, MemberId, Model, Piece, PreAggregation, Segment, Source,
    Template,
};
use crate::plan::has_own_aggregate;
use crate::query::filter::{Comparison, Filter, Leaf, Literal, Test};
use crate::query::{Query, TimeEntry};

/// The period in which zones' clock changes are checked for queries without a range: 1972 to 2100.
const CLOCKS_S: (i64, i64) = (63_072_000, 4_102_444_800);
/// The step of these checks: no clock is changed and changed back within one.
const STEP_S: i64 = 2 * 86_400;

/// The part of a rollup that can be stored.
#[derive(Debug, Clone)]
pub(crate) struct StorableRollup {
    /// Name of the rollup as `Model.rollup`.
    pub(crate) id: String,
    /// `rollup` or `rollup_lambda`.
    pub(crate) kind: String,
    /// The model without joins, with a dimension for each stored segment.
    pub(crate) model: Model,
    /// The query that returns the rows.
    pub(crate) query: Query,
    /// The time dimension that is stored in buckets only.
    bucketed: Option<(MemberId, Granularity)>,
    /// Whether it only serves queries with a range: then measures may use the range in their texts, and the parts of
    /// the range between bucket boundaries are read.
    pub(super) ranged: bool,
}

/// How a measure is computed from what is stored.
enum MeasureSource {
    /// It is stored itself.
    Kept,
    /// As a mean, from a sum and a count.
    Mean(MemberId, MemberId),
    /// As a distinct count, from sketches.
    Sketch(MemberId),
    /// As an expression over other measures.
    Composite,
}

/// Refuses rollups whose rows would not be the same for every caller, and at every time.
fn check_storable(model: &Model, rollup: &PreAggregation) -> Result<(), String> {
    if !matches!(rollup.kind.as_str(), "rollup" | "rollup_lambda") {
        return Err(format!("rollups of type `{}` are not kept", rollup.kind));
    }
    if matches!(&model.source, Some(Source::Select(sql)) if !is_steady(sql))
        || model.rows.as_ref().is_some_and(|rows| !is_own(model, &rows.sql))
    {
        return Err("which rows its model has depends on more than its tables".to_owned());
    }
    if model.row_right.as_ref().is_some_and(|right| right.own.is_some()) {
        return Err("some rows of its model are a caller's own".to_owned());
    }
    Ok(())
}

impl StorableRollup {
    /// Finds what can be stored: members that depend on nothing but the model's own rows.
    pub(crate) fn of(model: &Model, rollup: &PreAggregation) -> Result<Self, String> {
        check_storable(model, rollup)?;
        let name = &model.common.name;
        let own = |id: &&MemberId| id.model == *name;
        let mut query = Query::empty(0);
        let mut made = model.clone();
        made.joins.clear();
        for id in rollup.dimensions.iter().filter(own) {
            let kept = model.dimension(&id.member).is_some_and(|dimension| is_kept_dimension(model, dimension));
            if kept && !query.dimensions.contains(id) {
                query.dimensions.push(id.clone());
            }
        }
        for id in rollup.segments.iter().filter(own) {
            let segment = model.segment(&id.member).filter(|segment| is_kept_segment(model, segment));
            let column = segment_column(id);
            if let Some(segment) = segment.filter(|_| !query.dimensions.contains(&column)) {
                let common = Common { name: column.member.clone(), place: segment.common.place, ..Common::default() };
                let of_text = Dimension::of_text(common, segment.sql.clone());
                made.dimensions.push(Dimension { ty: DimensionType::Boolean, ..of_text });
                query.dimensions.push(column);
            }
        }
        for id in rollup.measures.iter().filter(own) {
            let Some(measure) = model.measure(&id.member) else { continue };
            let sketch = sketch_of(model, measure);
            let kept = sketch.as_ref().map_or_else(|| id.clone(), |sketch| MemberId::new(name, &sketch.common.name));
            if (sketch.is_none() && !is_kept_measure(model, measure)) || query.measures.contains(&kept) {
                continue;
            }
            made.measures.extend(sketch);
            query.measures.push(kept);
        }
        let time = rollup.time.as_ref().filter(|(id, _)| own(&id) && !query.dimensions.contains(id));
        let bucketed = time.and_then(|(id, granularity)| {
            let dimension = model.dimension(&id.member).filter(|dimension| is_kept_dimension(model, dimension))?;
            let named = dimension.granularities.iter().find(|g| g.name == *granularity).cloned();
            let granularity = named.or_else(|| Granularity::standard(granularity))?;
            (dimension.ty == DimensionType::Time).then(|| (id.clone(), granularity))
        });
        if let Some((member, granularity)) = bucketed.clone() {
            query.times.push(TimeEntry { member, granularity: Some(granularity), range: None, compare: Vec::new() });
        }
        if query.columns().is_empty() {
            return Err("none of its members can be kept".to_owned());
        }
        Ok(Self {
            id: format!("{name}.{}", rollup.name),
            kind: rollup.kind.clone(),
            model: made,
            query,
            bucketed,
            ranged: false,
        })
    }

    /// The time dimension that is stored in buckets only, and its granularity.
    pub(super) fn buckets(&self) -> Option<&(MemberId, Granularity)> {
        self.bucketed.as_ref()
    }

    /// Whether it serves a query; the error is the reason if not.
    pub(crate) fn serves(&self, catalog: &Catalog, query: &Query, state: &SessionState) -> Result<(), String> {
        if query.ungrouped || query.exemplars > 0 {
            return Err("single rows are not in it".to_owned());
        }
        if !query.hints.is_empty() {
            return Err("the query leads over joins".to_owned());
        }
        query.members().iter().try_for_each(|id| self.has(catalog, id, state))?;
        let leaves: Vec<&Leaf> = query.filters.iter().flat_map(Filter::leaves).collect();
        if leaves.iter().any(|leaf| leaf.test == Test::MeasureFilter) {
            return Err("the rows that a measure counts are not in it".to_owned());
        }
        let Some((time, granularity)) = &self.bucketed else { return Ok(()) };
        let is_time = |id: &MemberId| catalog.find(id).is_some_and(|found| found.id() == *time);
        let in_buckets = |id: &MemberId| query.times.iter().any(|t| t.granularity.is_some() && t.member == *id);
        let order = query.order.iter().flatten().filter_map(|key| MemberId::parse(&key.id));
        let mut plain = query.dimensions.iter().cloned().chain(order.filter(|id| !in_buckets(id)));
        let within = |what: &str| Err(format!("{what}, and its rows are of one {} each", granularity.name));
        if let Some(id) = plain.find(is_time) {
            return within(&format!("`{id}` is asked for itself"));
        }
        let inner = &granularity.buckets;
        let times: Vec<&TimeEntry> = query.times.iter().filter(|entry| is_time(&entry.member)).collect();
        let ranges = times.iter().filter_map(|entry| entry.range).map(|range| range.instants(query.tz));
        let ranges: Vec<(i64, i64)> = ranges.collect();
        let on_borders = |(start, end): (i64, i64)| inner.floor(start) == start && inner.floor(end) == end;
        if !self.ranged && !ranges.iter().all(|range| on_borders(*range)) {
            return within("a range begins or ends between borders");
        }
        for asked in times.iter().filter_map(|entry| entry.granularity.as_ref()) {
            if !nests(&asked.buckets, inner) {
                return within(&format!("buckets `{}` are not made of whole ones", asked.name));
            }
            let seconds = |(start, end): &(i64, i64)| (start.div_euclid(SECOND_NS), end.div_euclid(SECOND_NS));
            if !fits(query.tz, inner, ranges.first().map_or(CLOCKS_S, seconds)) {
                return within(&format!("the clocks of `{}` divide them", query.timezone));
            }
        }
        let fine = |leaf: &&Leaf| match &leaf.test {
            Test::Set(_) => true,
            Test::Range(range, _) => on_borders(range.instants(query.tz)),
            Test::Compare(Comparison::Gte | Comparison::Lt, Literal::Instant(at)) => on_borders((*at, *at)),
            _ => false,
        };
        if leaves.iter().filter(|leaf| is_time(&leaf.member)).all(fine) {
            return Ok(());
        }
        within("a filter divides them")
    }

    /// Whether it contains a member; the error is the reason if not.
    pub(super) fn has(&self, catalog: &Catalog, id: &MemberId, state: &SessionState) -> Result<(), String> {
        let found = catalog.find(id).ok_or_else(|| format!("there is no member `{id}`"))?;
        let name = &self.model.common.name;
        if found.view.is_some_and(|(_, member)| member.path.iter().any(|model| model != name)) {
            return Err(format!("`{id}` leads over joins"));
        }
        let own = found.id();
        let is_there = match found.kind {
            MemberKind::Dimension(_) => {
                let is_time = self.bucketed.as_ref().is_some_and(|(time, _)| *time == own);
                is_time || self.query.dimensions.contains(&own)
            }
            MemberKind::Segment(_) => self.query.dimensions.contains(&segment_column(&own)),
            MemberKind::Measure(measure) => own.model == *name && self.how(measure, state).is_some(),
        };
        if is_there { Ok(()) } else { Err(format!("`{id}` is not in it, and does not follow from what is")) }
    }

    fn how(&self, measure: &Measure, state: &SessionState) -> Option<MeasureSource> {
        let name = &self.model.common.name;
        if self.query.measures.contains(&MemberId::new(name, &measure.common.name)) {
            return Some(MeasureSource::Kept);
        }
        if is_special(measure) {
            return None;
        }
        let sql = measure.sql.as_ref()?;
        let sketch = MemberId::new(name, sketch_name(measure));
        if measure.ty == MeasureType::CountDistinctApprox && self.query.measures.contains(&sketch) {
            return Some(MeasureSource::Sketch(sketch));
        }
        if measure.ty == MeasureType::Avg {
            let pieces = |filters: &[Template]| filters.iter().map(|f| f.pieces.clone()).collect::<Vec<_>>();
            let is_same = |m: &Measure, ty: MeasureType| {
                let same_text = m.sql.as_ref().is_some_and(|text| text.pieces == sql.pieces);
                m.ty == ty && same_text && m.case.is_none() && pieces(&m.filters) == pieces(&measure.filters)
            };
            let find = |ty: MeasureType| {
                let kept = |id: &&MemberId| self.model.measure(&id.member).is_some_and(|m| is_same(m, ty));
                self.query.measures.iter().find(kept).cloned()
            };
            let (sum, count) = (find(MeasureType::Sum)?, find(MeasureType::Count)?);
            return measure.case.is_none().then_some(MeasureSource::Mean(sum, count));
        }
        let is_over_measures = measure.ty.is_expression()
            && (is_steady(&sql.text) || self.ranged && is_steady(&sql.text.replace("range_", "")))
            && sql.models().next().is_none()
            && sql.members().next().is_some()
            && !has_own_aggregate(measure, state);
        let is_there = |id: &MemberId| {
            let inner = self.model.measure(&id.member).filter(|_| id.model == *name);
            inner.is_some_and(|inner| self.how(inner, state).is_some())
        };
        (is_over_measures && sql.members().all(is_there)).then_some(MeasureSource::Composite)
    }

    /// The model over the stored rows, whose columns are those of the query in order.
    pub(crate) fn over(&self, schema: &Schema, state: &SessionState) -> Model {
        let name = &self.model.common.name;
        let dimension = |dimension: &Dimension| {
            let id = MemberId::new(name, &dimension.common.name);
            let bucket = self.query.times.iter().find(|t| t.member == id).and_then(TimeEntry::column);
            let at = self.position(&bucket.unwrap_or_else(|| id.to_string()))?;
            let sql = Some(self.text(&format!("{{CUBE}}.c{at}")));
            Some(Dimension { sql, case: None, geo: None, ..dimension.clone() })
        };
        let segment = |segment: &Segment| {
            let at = self.position(&segment_column(&MemberId::new(name, &segment.common.name)).to_string())?;
            Some(Segment { sql: self.text(&format!("{{CUBE}}.c{at}")), ..segment.clone() })
        };
        let model = &self.model;
        Model {
            rows: None,
            dimensions: model.dimensions.iter().filter_map(dimension).collect(),
            measures: model.measures.iter().filter_map(|m| self.measure_over(m, schema, state)).collect(),
            segments: model.segments.iter().filter_map(segment).collect(),
            ..model.clone()
        }
    }

    /// A measure over the stored rows; `None` if it would not have the type that it has over raw rows.
    fn measure_over(&self, measure: &Measure, schema: &Schema, state: &SessionState) -> Option<Measure> {
        let column = |id: &MemberId| self.position(&id.to_string());
        let id = MemberId::new(&self.model.common.name, &measure.common.name);
        let (ty, sql) = match self.how(measure, state)? {
            MeasureSource::Composite => return Some(measure.clone()),
            MeasureSource::Mean(sum, count) => {
                let (sum, count) = (column(&sum)?, column(&count)?);
                if !matches!(schema.field(sum).data_type(), DataType::Int64 | DataType::UInt64 | DataType::Float64) {
                    return None;
                }
                let counted = format!("CAST(NULLIF(SUM({{CUBE}}.c{count}), 0) AS DOUBLE)");
                (MeasureType::Number, format!("CAST(SUM({{CUBE}}.c{sum}) AS DOUBLE) / {counted}"))
            }
            MeasureSource::Sketch(sketch) => {
                (MeasureType::Number, format!("distinct_of_sketches({{CUBE}}.c{})", column(&sketch)?))
            }
            MeasureSource::Kept => {
                let at = column(&id)?;
                match (measure.ty, schema.field(at).data_type()) {
                    // A count of no rows is 0, while a sum is NULL.
                    (MeasureType::Count, _) => (MeasureType::Number, format!("COALESCE(SUM({{CUBE}}.c{at}), 0)")),
                    (MeasureType::Sum, DataType::Int64 | DataType::UInt64 | DataType::Float64) => {
                        (MeasureType::Sum, format!("{{CUBE}}.c{at}"))
                    }
                    // A sum of sums has a longer type than a sum.
                    (MeasureType::Sum, ty) if matches!(ty, DataType::Decimal128(..)) => {
                        (MeasureType::Number, format!("arrow_cast(SUM({{CUBE}}.c{at}), '{ty}')"))
                    }
                    (ty @ (MeasureType::Min | MeasureType::Max), _) => (ty, format!("{{CUBE}}.c{at}")),
                    _ => return None,
                }
            }
        };
        Some(Measure { ty, sql: Some(self.text(&sql)), case: None, filters: Vec::new(), ..measure.clone() })
    }

    /// The index of a column of the query.
    fn position(&self, name: &str) -> Option<usize> {
        self.query.columns().iter().position(|column| column == name)
    }

    /// A text over the stored rows.
    fn text(&self, sql: &str) -> Template {
        let mut template = Template::parse(sql, self.model.common.place);
        for piece in &mut template.pieces {
            if matches!(piece, Piece::Raw(_)) {
                *piece = Piece::Model(self.model.common.name.clone());
            }
        }
        template
    }
}

/// The dimension that represents a segment.
fn segment_column(id: &MemberId) -> MemberId {
    MemberId::new(&id.model, format!("__segment_{}", id.member))
}

/// Whether a text uses only columns of a model, and dimensions that do so.
pub(super) fn is_own(model: &Model, template: &Template) -> bool {
    let name = &model.common.name;
    let is_own_member = |id: &MemberId| {
        let dimension = model.dimension(&id.member).filter(|_| id.model == *name);
        dimension.is_some_and(|dimension| is_kept_dimension(model, dimension))
    };
    // Buckets are those of the zone of a query.
    is_steady(&template.text)
        && template.buckets().next().is_none()
        && template.models().all(|m| m == name)
        && template.members().all(is_own_member)
}

pub(super) fn is_kept_dimension(model: &Model, dimension: &Dimension) -> bool {
    // A range over rows with a lifetime keeps those that existed within it.
    !dimension.sub_query && dimension.since.is_none() && dimension.templates().all(|t| is_own(model, t))
}

pub(super) fn is_kept_segment(model: &Model, segment: &Segment) -> bool {
    let unless = model.rows.as_ref().and_then(|rows| rows.unless.as_ref());
    unless != Some(&segment.common.name) && is_own(model, &segment.sql)
}

/// Whether a measure's value follows from those of smaller groups, and depends on the model's rows only.
pub(super) fn is_kept_measure(model: &Model, measure: &Measure) -> bool {
    let is_additive = matches!(measure.ty, MeasureType::Count | MeasureType::Sum | MeasureType::Min | MeasureType::Max);
    is_additive && !is_special(measure) && measure.templates().all(|t| is_own(model, t))
}

/// The name of the measure that stores the sketch of another one.
fn sketch_name(measure: &Measure) -> String {
    format!("__sketch_{}", measure.common.name)
}

/// The sketch of an approximate distinct count, from which the count of larger groups follows.
pub(super) fn sketch_of(model: &Model, measure: &Measure) -> Option<Measure> {
    let is_counted = measure.ty == MeasureType::CountDistinctApprox && measure.case.is_none() && !is_special(measure);
    if !is_counted || !measure.templates().all(|t| is_own(model, t)) {
        return None;
    }
    let mut sql = measure.sql.clone()?;
    sql.text = format!("distinct_sketch({})", sql.text);
    sql.pieces.insert(0, Piece::Text("distinct_sketch(".to_owned()));
    sql.pieces.push(Piece::Text(")".to_owned()));
    let common = Common { name: sketch_name(measure), place: measure.common.place, ..Common::default() };
    Some(Measure { common, ty: MeasureType::Number, sql: Some(sql), ..measure.clone() })
}

/// Whether a measure uses rows other than those of its group.
pub(super) fn is_special(measure: &Measure) -> bool {
    let is_moved = measure.group_by.is_some() || !measure.reduce_by.is_empty() || !measure.add_group_by.is_empty();
    let is_windowed = measure.rolling_window.is_some() || !measure.time_shift.is_empty();
    measure.multi_stage || measure.apart || is_moved || is_windowed
}

/// Whether buckets in UTC are also buckets in the wall time of a zone: its offset is a multiple of their length, and
/// clock changes happen on boundaries.
pub(super) fn fits(tz: Tz, buckets: &Buckets, (from, to): (i64, i64)) -> bool {
    if tz == Tz::UTC {
        return true;
    }
    // Months and weeks only match without any offset.
    let length = if buckets.length.months > 0 { DAY_NS } else { buckets.length.nanos };
    let is_whole = |offset: i64| (offset * SECOND_NS) % length == 0;
    let (mut at, mut offset) = (from, offset_s(tz, from));
    if !is_whole(offset) {
        return false;
    }
    while at < to {
        let next = (at + STEP_S).min(to);
        let then = offset_s(tz, next);
        if then != offset {
            let (mut before, mut after) = (at, next);
            while after - before > 1 {
                let middle = before + (after - before) / 2;
                if offset_s(tz, middle) == offset {
                    before = middle;
                } else {
                    after = middle;
                }
            }
            let change = after.saturating_mul(SECOND_NS);
            if !is_whole(then) || buckets.floor(change) != change {
                return false;
            }
        }
        (at, offset) = (next, then);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(name: &str) -> Buckets {
        Granularity::standard(name).unwrap().buckets
    }

    #[test]
    fn clocks_of_zones_divide_buckets() {
        let check =
            |tz: Tz, name: &str, expected: bool| assert_eq!(fits(tz, &of(name), CLOCKS_S), expected, "{tz} {name}");
        check(Tz::UTC, "year", true);
        check(Tz::Etc__UTC, "month", true);
        check(Tz::Europe__Berlin, "hour", true);
        check(Tz::Europe__Berlin, "day", false);
        check(Tz::Asia__Kolkata, "hour", false);
        check(Tz::Asia__Kolkata, "minute", true);
        check(Tz::Australia__Lord_Howe, "hour", false);
        check(Tz::Australia__Lord_Howe, "minute", true);
    }
}
