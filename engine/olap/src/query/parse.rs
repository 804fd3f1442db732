//! Parses and validates queries in JSON; errors have a code and a position.

use std::collections::BTreeSet;

use chrono_tz::{TZ_VARIANTS, Tz};
use quiver_types::suggestions::did_you_mean;
use serde_json::{Map, Value};

use super::clock::Clock;
use super::error::{Read, err};
use super::filter::{Filter, Leaf, Test};
use super::member_lookup::Names;
use super::operator::{Operator, Type};
use super::{CacheMode, Format, LIMIT_DEFAULT, LIMIT_MAX, OrderKey, Query, TimeEntry, whole_number};
use crate::dates::granularity::{Granularity, STANDARD};
use crate::dates::range::Point;
use crate::error::{QueryError, Reason};
use crate::model::catalog::{MemberKind, ResolvedMember};
use crate::model::{DimensionType, MemberId, Source, Template};

/// The deepest nesting of filters, and the most conditions and values of all together.
const DEPTH_MAX: usize = 10;
const LEAVES_MAX: usize = 500;
const VALUES_MAX: usize = 50_000;
/// The most exemplars per row.
const EXEMPLARS_MAX: u64 = 3;
/// The most members of a list.
const MEMBERS_MAX: usize = 500;

const KEYS: [&str; 18] = [
    "measures",
    "dimensions",
    "segments",
    "timeDimensions",
    "filters",
    "order",
    "limit",
    "offset",
    "total",
    "timezone",
    "ungrouped",
    "responseFormat",
    "cache",
    "renewQuery",
    "rollups",
    "joinHints",
    "exemplars",
    "rowLimit",
];

/// Parses the query at a JSON pointer of the request.
pub(super) fn query(value: &Value, at: &str, names: Names<'_>, now_ns: i64) -> Read<Query> {
    let Value::Object(map) = value else { return err(Reason::BadType, at, "a query is an object") };
    if let Some(key) = map.keys().find(|k| !KEYS.contains(&k.as_str())) {
        let hint = did_you_mean(key, KEYS);
        return err(Reason::UnknownKey, format!("{at}/{key}"), format!("unknown key `{key}` of a query{hint}"));
    }
    if let Some((key, _)) = map.iter().find(|(_, value)| value.is_null()) {
        return err(Reason::BadType, format!("{at}/{key}"), format!("`{key}` is null; leave it out"));
    }
    let timezone = match map.get("timezone") {
        None => "UTC",
        Some(Value::String(text)) => text.as_str(),
        Some(_) => return err(Reason::BadType, format!("{at}/timezone"), "`timezone` is a text"),
    };
    let Some(tz) = zone(timezone) else {
        let text = format!("unknown time zone `{timezone}`; name one of IANA such as `Europe/Berlin`");
        return err(Reason::UnknownTimezone, format!("{at}/timezone"), text);
    };
    let reader = Reader { map, at, names, clock: Clock { tz, now_ns } };
    let mut query = reader.whole()?;
    query.filters = reader.filters()?;
    if query.measures.is_empty() && query.group_columns().is_empty() {
        let text = "a query needs a measure, a dimension, or a time dimension with a granularity";
        return err(Reason::EmptyQuery, at, text);
    }
    reader.order_is_known(&query)?;
    Ok(query)
}

/// Parses the name of a time zone, in capitals or not.
fn zone(text: &str) -> Option<Tz> {
    let named = || TZ_VARIANTS.iter().find(|tz| tz.name().eq_ignore_ascii_case(text)).copied();
    text.parse().ok().or_else(named)
}

/// The state of parsing one query.
struct Reader<'a> {
    map: &'a Map<String, Value>,
    at: &'a str,
    names: Names<'a>,
    clock: Clock,
}

impl<'a> Reader<'a> {
    fn get(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key)
    }

    fn list(&self, key: &str) -> Read<&'a [Value]> {
        match self.get(key) {
            None => Ok(&[]),
            Some(Value::Array(list)) if list.len() <= MEMBERS_MAX => Ok(list),
            Some(Value::Array(_)) => err(
                Reason::BadValue,
                format!("{}/{key}", self.at),
                format!("`{key}` has more than {MEMBERS_MAX} entries"),
            ),
            Some(_) => err(Reason::BadType, format!("{}/{key}", self.at), format!("`{key}` is a list")),
        }
    }

    fn truth(&self, key: &str) -> Read<bool> {
        match self.get(key) {
            None => Ok(false),
            Some(Value::Bool(is)) => Ok(*is),
            Some(_) => err(Reason::BadType, format!("{}/{key}", self.at), format!("`{key}` is true or false")),
        }
    }

    fn word<T: Copy>(&self, key: &str, words: &[(T, &'static str)]) -> Read<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let found = words.iter().find(|(_, word)| value.as_str() == Some(word)).map(|(value, _)| *value);
        let known = words.iter().map(|(_, word)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        match found {
            Some(found) => Ok(Some(found)),
            None => err(Reason::BadValue, format!("{}/{key}", self.at), format!("`{key}` is one of {known}")),
        }
    }

    fn number(&self, key: &str, max: u64) -> Read<Option<u64>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        match whole_number(value) {
            Some(n) if n <= max => Ok(Some(n)),
            _ => {
                let text = format!("`{key}` is a whole number from 0 to {max}, not `{value}`");
                err(Reason::BadLimit, format!("{}/{key}", self.at), text)
            }
        }
    }

    fn whole(&self) -> Read<Query> {
        let limit = self.number("limit", LIMIT_MAX)?.or(self.number("rowLimit", LIMIT_MAX)?);
        let measures = self.members("measures", "a measure", |k| matches!(k, MemberKind::Measure(_)))?;
        let segments = self.members("segments", "a segment", |k| matches!(k, MemberKind::Segment(_)))?;
        let (dimensions, mut times) = self.dimensions()?;
        for (i, entry) in self.list("timeDimensions")?.iter().enumerate() {
            let entry = self.time(entry, &format!("{}/timeDimensions/{i}", self.at))?;
            let same = |t: &TimeEntry| t.column().is_some() && t.column() == entry.column() && t.range.is_none();
            times.retain(|t| !same(t));
            if !times.contains(&entry) {
                times.push(entry);
            }
        }
        if times.iter().filter(|t| !t.compare.is_empty()).count() > 1 {
            let text = "`compareDateRange` stands in one time dimension only";
            return err(Reason::BadDateRange, format!("{}/timeDimensions", self.at), text);
        }
        let renew = self.truth("renewQuery")?.then_some(CacheMode::MustRevalidate);
        Ok(Query {
            measures,
            dimensions,
            segments,
            times,
            filters: Vec::new(),
            order: self.order()?,
            limit: Some(limit.unwrap_or(LIMIT_DEFAULT)),
            offset: self.number("offset", u64::from(u32::MAX))?.unwrap_or(0),
            total: self.truth("total")?,
            tz: self.clock.tz,
            timezone: self.clock.tz.name().to_owned(),
            ungrouped: self.truth("ungrouped")?,
            format: self.word("responseFormat", &Format::ALL)?,
            cache: self.word("cache", &CacheMode::ALL)?.or(renew),
            hints: self.hints()?,
            exemplars: self.exemplars()?,
            rollups: self.get("rollups").is_none() || self.truth("rollups")?,
            now_ns: self.clock.now_ns,
        })
    }

    fn exemplars(&self) -> Read<u64> {
        let Some(value) = self.get("exemplars") else { return Ok(0) };
        match whole_number(value) {
            Some(n) if n <= EXEMPLARS_MAX => Ok(n),
            _ => {
                let text = format!("`exemplars` is a whole number from 0 to {EXEMPLARS_MAX}, not `{value}`");
                err(Reason::BadValue, format!("{}/exemplars", self.at), text)
            }
        }
    }

    fn hints(&self) -> Read<Vec<Vec<String>>> {
        let mut hints = Vec::new();
        for (i, path) in self.list("joinHints")?.iter().enumerate() {
            let at = format!("{}/joinHints/{i}", self.at);
            let names: Option<Vec<String>> =
                path.as_array().and_then(|p| p.iter().map(|n| n.as_str().map(str::to_owned)).collect());
            let Some(names) = names else { return err(Reason::BadType, at, "a hint is a list of models") };
            if let Some(name) = names.iter().find(|n| !self.names.leads_over(n)) {
                return err(Reason::UnknownModel, at, format!("there is no model `{name}`"));
            }
            let mut pairs = names.iter().zip(names.iter().skip(1));
            if let Some((from, to)) = pairs.find(|(from, to)| self.names.catalog.join(from, to).is_none()) {
                return err(Reason::NoJoinPath, at, format!("model `{from}` has no join to `{to}`"));
            }
            if !names.is_empty() {
                hints.push(names);
            }
        }
        Ok(hints)
    }

    fn find(&self, text: &str, at: &str) -> Read<(MemberId, ResolvedMember<'a>)> {
        self.names.find(text, at)
    }

    fn members(&self, key: &str, what: &str, fits: fn(MemberKind<'_>) -> bool) -> Read<Vec<MemberId>> {
        let mut members = Vec::new();
        for (i, value) in self.list(key)?.iter().enumerate() {
            let at = format!("{}/{key}/{i}", self.at);
            let (id, found) = self.find(text_at(value, &at)?, &at)?;
            if !fits(found.kind) {
                return err(Reason::WrongKind, at, format!("`{id}` is not {what}"));
            }
            if !members.contains(&id) {
                members.push(id);
            }
        }
        Ok(members)
    }

    fn dimensions(&self) -> Read<(Vec<MemberId>, Vec<TimeEntry>)> {
        let (mut plain, mut times) = (Vec::new(), Vec::new());
        for (i, value) in self.list("dimensions")?.iter().enumerate() {
            let at = format!("{}/dimensions/{i}", self.at);
            let text = text_at(value, &at)?;
            let parts: Vec<&str> = text.split('.').collect();
            if let [model, member, granularity] = parts[..] {
                let (id, dimension) = self.time_member(&format!("{model}.{member}"), &at)?;
                let granularity = Some(granularity_of(granularity, &id, dimension, &at)?);
                let entry = TimeEntry { member: id, granularity, range: None, compare: Vec::new() };
                if !times.contains(&entry) {
                    times.push(entry);
                }
                continue;
            }
            let (id, found) = self.find(text, &at)?;
            if !matches!(found.kind, MemberKind::Dimension(_)) {
                return err(Reason::WrongKind, at, format!("`{id}` is not a dimension"));
            }
            if !plain.contains(&id) {
                plain.push(id);
            }
        }
        Ok((plain, times))
    }

    fn time_member(&self, text: &str, at: &str) -> Read<(MemberId, &'a crate::model::Dimension)> {
        let (id, found) = self.find(text, at)?;
        match found.kind {
            MemberKind::Dimension(d) if d.ty == DimensionType::Time => Ok((id, d)),
            _ => err(Reason::NotTime, at, format!("`{id}` is not a time dimension")),
        }
    }

    fn time(&self, value: &'a Value, at: &str) -> Read<TimeEntry> {
        const KNOWN: [&str; 4] = ["dimension", "granularity", "dateRange", "compareDateRange"];
        let Value::Object(map) = value else { return err(Reason::BadType, at, "a time dimension is an object") };
        if let Some(key) = map.keys().find(|k| !KNOWN.contains(&k.as_str())) {
            return err(Reason::UnknownKey, format!("{at}/{key}"), format!("unknown key `{key}` of a time dimension"));
        }
        let get = |key: &str| map.get(key).filter(|v| !v.is_null());
        let Some(name) = get("dimension").and_then(Value::as_str) else {
            return err(Reason::BadType, format!("{at}/dimension"), "`dimension` names a time dimension");
        };
        let (member, dimension) = self.time_member(name, &format!("{at}/dimension"))?;
        let granularity = match get("granularity") {
            None => None,
            Some(Value::String(name)) => Some(granularity_of(name, &member, dimension, &format!("{at}/granularity"))?),
            Some(_) => return err(Reason::BadType, format!("{at}/granularity"), "`granularity` is a text"),
        };
        let range = get("dateRange").map(|v| self.clock.range(v, &format!("{at}/dateRange"))).transpose()?;
        let compare = match get("compareDateRange") {
            None => Vec::new(),
            Some(_) if range.is_some() => {
                return err(Reason::BadDateRange, at, "`dateRange` and `compareDateRange` exclude each other");
            }
            Some(Value::Array(list)) if (1..=super::COMPARE_MAX).contains(&list.len()) => {
                let read = |(i, v): (usize, &'a Value)| self.clock.range(v, &format!("{at}/compareDateRange/{i}"));
                list.iter().enumerate().map(read).collect::<Read<Vec<_>>>()?
            }
            Some(other) => {
                let text = format!("`compareDateRange` is a list of 1 to {} ranges", super::COMPARE_MAX);
                let reason = if other.is_array() { Reason::BadDateRange } else { Reason::BadType };
                return err(reason, format!("{at}/compareDateRange"), text);
            }
        };
        Ok(TimeEntry { member, granularity, range, compare })
    }

    fn order(&self) -> Read<Option<Vec<OrderKey>>> {
        let at = format!("{}/order", self.at);
        let pairs: Vec<(&str, Option<&str>)> = match self.get("order") {
            None => return Ok(None),
            Some(Value::Object(map)) => map.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect(),
            Some(Value::Array(list)) => {
                let mut pairs = Vec::new();
                for one in list {
                    match one {
                        Value::Array(pair) if pair.len() == 2 => {
                            pairs.push((pair[0].as_str().unwrap_or_default(), pair[1].as_str()));
                        }
                        Value::Object(o) if o.contains_key("id") => {
                            let direction = match o.get("desc") {
                                None | Some(Value::Bool(false)) => Some("asc"),
                                Some(Value::Bool(true)) => Some("desc"),
                                Some(_) => None,
                            };
                            pairs.push((o["id"].as_str().unwrap_or_default(), direction));
                        }
                        _ => return err(Reason::BadOrder, at, "an order is a list of pairs `[member, \"asc\"]`"),
                    }
                }
                pairs
            }
            Some(_) => return err(Reason::BadOrder, at, "an order is an object or a list of pairs"),
        };
        let mut keys = Vec::new();
        for (id, direction) in pairs {
            let descends = match direction {
                Some("asc") => false,
                Some("desc") => true,
                _ => return err(Reason::BadOrder, at, format!("`{id}` is ordered by `asc` or `desc`")),
            };
            if !keys.iter().any(|k: &OrderKey| k.id == id) {
                keys.push(OrderKey { id: id.to_owned(), descends });
            }
        }
        Ok(Some(keys))
    }

    /// Checks that sort keys are selected members, measures, or dimensions that depend on the groups.
    fn order_is_known(&self, query: &Query) -> Read<()> {
        let groups = query.group_columns();
        for (i, key) in query.order.iter().flatten().enumerate() {
            let time = query.times.iter().any(|t| t.granularity.is_some() && t.member.to_string() == key.id);
            if groups.contains(&key.id) || time {
                continue;
            }
            let at = format!("{}/order/{i}", self.at);
            let found = self.find(&key.id, &at).map_err(|e| QueryError { reason: Reason::BadOrder, ..e })?;
            if !matches!(found.1.kind, MemberKind::Measure(_)) && !self.follows_from_groups(query, &found.1) {
                return err(
                    Reason::BadOrder,
                    at,
                    format!("`{}` is ordered by, but rows are not grouped by it", key.id),
                );
            }
        }
        Ok(())
    }

    /// Whether the groups determine the value of a dimension, because they contain the whole key of its model.
    /// Without grouping, each row has one value per model.
    fn follows_from_groups(&self, query: &Query, found: &ResolvedMember<'_>) -> bool {
        let MemberKind::Dimension(dimension) = found.kind else { return false };
        let model = &found.model.common.name;
        let own = |t: &Template| t.models().all(|m| m == model) && t.members().all(|m| m.model == *model);
        if !dimension.sub_query && !dimension.templates().all(own) {
            return false;
        }
        let behind = |id: &MemberId| self.names.catalog.find(id).map(|found| found.id());
        let groups: Vec<MemberId> = query.dimensions.iter().filter_map(behind).collect();
        if query.ungrouped {
            return query.measures.iter().filter_map(behind).chain(groups).any(|id| id.model == *model);
        }
        // Rows of a model that filters or generates them (an entity per bucket) may share a key.
        if found.model.rows.is_some() || !matches!(found.model.source, Some(Source::Table(..))) {
            return false;
        }
        let mut key = found.model.key().peekable();
        key.peek().is_some() && key.all(|part| groups.contains(&MemberId::new(model.as_str(), &part.common.name)))
    }

    fn filters(&self) -> Read<Vec<Filter>> {
        let mut leaves = 0;
        let list = self.list("filters")?.iter().enumerate();
        let filters = list.map(|(i, f)| self.filter(f, &format!("{}/filters/{i}", self.at), 1, &mut leaves));
        let filters = filters.collect::<Read<Vec<_>>>()?;
        let values: usize = filters.iter().flat_map(Filter::leaves).map(|leaf| leaf.values.len()).sum();
        if values > VALUES_MAX {
            let text = format!("filters have more than {VALUES_MAX} values");
            return err(Reason::BadValue, format!("{}/filters", self.at), text);
        }
        Ok(filters)
    }

    fn filter(&self, value: &'a Value, at: &str, depth: usize, leaves: &mut usize) -> Read<Filter> {
        let Value::Object(map) = value else { return err(Reason::BadType, at, "a filter is an object") };
        if depth > DEPTH_MAX {
            return err(Reason::BadValue, at, format!("filters are nested deeper than {DEPTH_MAX}"));
        }
        let branches: Vec<&str> = ["and", "or"].into_iter().filter(|k| map.contains_key(*k)).collect();
        let [key] = branches[..] else {
            if branches.len() == 2 {
                return err(Reason::BadValue, at, "a filter has `and` or `or`, not both");
            }
            let leaf = self.leaf(map, at)?;
            *leaves += leaf.test.conditions();
            if *leaves > LEAVES_MAX {
                let text = format!("there are more than {LEAVES_MAX} conditions, each text to look for counted");
                return err(Reason::BadValue, at, text);
            }
            return Ok(Filter::Leaf(leaf));
        };
        if map.len() > 1 {
            return err(Reason::UnknownKey, at, format!("nothing stands beside `{key}` in a filter"));
        }
        let Value::Array(inner) = &map[key] else {
            return err(Reason::BadType, format!("{at}/{key}"), format!("`{key}` is a list of filters"));
        };
        let inner =
            inner.iter().enumerate().map(|(i, f)| self.filter(f, &format!("{at}/{key}/{i}"), depth + 1, leaves));
        let inner = inner.collect::<Read<Vec<_>>>()?;
        let filter = if key == "and" { Filter::And(inner) } else { Filter::Or(inner) };
        let kinds: BTreeSet<bool> =
            filter.leaves().iter().map(|l| l.is_measure && l.test != Test::MeasureFilter).collect();
        if kinds.len() > 1 {
            return err(Reason::MixedCondition, at, "measures and dimensions do not stand in one branch of a filter");
        }
        Ok(filter)
    }

    fn leaf(&self, map: &'a Map<String, Value>, at: &str) -> Read<Leaf> {
        if let Some(key) = map.keys().find(|k| !["member", "dimension", "operator", "values"].contains(&k.as_str())) {
            return err(Reason::UnknownKey, format!("{at}/{key}"), format!("unknown key `{key}` of a filter"));
        }
        let name = match (map.get("member"), map.get("dimension")) {
            (Some(_), Some(_)) => return err(Reason::BadValue, at, "a filter has `member` or `dimension`, not both"),
            (Some(name), None) | (None, Some(name)) => text_at(name, &format!("{at}/member"))?,
            (None, None) => return err(Reason::BadType, at, "a filter needs a `member`"),
        };
        let (member, found) = self.find(name, &format!("{at}/member"))?;
        let ty = match found.kind {
            MemberKind::Dimension(d) => Type::of_dimension(d),
            MemberKind::Measure(m) => Type::of_measure(m.ty),
            MemberKind::Segment(_) => {
                return err(Reason::WrongKind, format!("{at}/member"), format!("`{member}` is a segment"));
            }
        };
        let Some(operator) = map.get("operator").and_then(Value::as_str) else {
            return err(Reason::UnknownOperator, format!("{at}/operator"), "a filter needs an `operator`");
        };
        let values = match map.get("values") {
            None | Some(Value::Null) => &[][..],
            Some(Value::Array(values)) => values,
            Some(_) => return err(Reason::BadType, format!("{at}/values"), "`values` is a list"),
        };
        let is_measure = matches!(found.kind, MemberKind::Measure(_));
        let test =
            Operator { clock: self.clock, at, name: operator, ty, values, member: &member, is_measure }.test()?;
        let text = |v: &Value| match v {
            Value::Null => None,
            Value::String(s) => Some(s.clone()),
            other => Some(other.to_string()),
        };
        // A date or phrase is echoed as the range that it resolves to.
        let texts = match &test {
            Test::Range(range, _) if values.len() == 1 => range.written().map(Some).to_vec(),
            _ => match self.moment(operator, values, at)? {
                Some(moment) => vec![Some(moment)],
                None => values.iter().map(text).collect(),
            },
        };
        Ok(Leaf { member, operator: operator.to_owned(), values: texts, is_measure, test })
    }

    /// The resolved form of a phrase of which only one end matters. Results are cached by their echoed query, and a
    /// phrase changes its meaning over time.
    fn moment(&self, operator: &str, values: &[Value], at: &str) -> Read<Option<String>> {
        let is_end = match operator {
            "beforeDate" | "afterOrOnDate" => false,
            "beforeOrOnDate" | "afterDate" => true,
            _ => return Ok(None),
        };
        let is_phrase = |value: &Value| value.as_str().is_some_and(|text| Point::parse(text, self.clock.tz).is_none());
        let Some(phrase) = values.first().filter(|value| is_phrase(value)) else { return Ok(None) };
        let [start, end] = self.clock.range(&Value::Array(vec![phrase.clone()]), &format!("{at}/values"))?.written();
        Ok(Some(if is_end { end } else { start }))
    }
}

fn text_at<'a>(value: &'a Value, at: &str) -> Read<&'a str> {
    value.as_str().map_or_else(|| err(Reason::BadType, at, "a member is named by a text"), Ok)
}

fn granularity_of(name: &str, id: &MemberId, dimension: &crate::model::Dimension, at: &str) -> Read<Granularity> {
    let unknown = || {
        let own = dimension.granularities.iter().map(|g| g.name.as_str());
        let hint = did_you_mean(name, own.chain(STANDARD));
        err(Reason::UnknownGranularity, at, format!("`{id}` has no granularity `{name}`{hint}"))
    };
    dimension.granularity(name).map_or_else(unknown, Ok)
}
