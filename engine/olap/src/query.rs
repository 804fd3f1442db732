//! A query: read from JSON, checked against the catalog, with dates resolved at the time of the request.

mod clock;
mod error;
pub mod filter;
mod json;
mod member_lookup;
mod operator;
mod parse;
pub mod request;

use chrono_tz::Tz;
use quiver_types::text::EXACT_INTEGERS_MAX;
use serde_json::Value;

use crate::dates::granularity::Granularity;
use crate::dates::range::WallRange;
use crate::model::MemberId;
pub use filter::Filter;

/// Most rows of an answer whose query has no `limit`.
pub const LIMIT_DEFAULT: u64 = 10_000;
/// Most rows of an answer in JSON.
pub const LIMIT_MAX: u64 = 50_000;
/// Most queries of one request.
pub const QUERIES_MAX: usize = 64;
/// Most ranges that are compared.
pub const COMPARE_MAX: usize = 16;

/// Reads a whole number from 0 on, as clients write it: some have `5.0` for 5.
pub fn whole_number(value: &Value) -> Option<u64> {
    let is_whole = |n: &f64| n.fract() == 0.0 && (0.0..=EXACT_INTEGERS_MAX as f64).contains(n);
    value.as_u64().or_else(|| value.as_f64().filter(is_whole).map(|n| n as u64))
}

/// Form of rows in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// A list of objects.
    Default,
    /// Members once, then lists of values.
    Compact,
    /// Members once, then a list for each.
    Columnar,
}

impl Format {
    /// All forms with their words.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::Default, "default"), (Self::Compact, "compact"), (Self::Columnar, "columnar")];

    /// Its word in requests.
    pub fn word(self) -> &'static str {
        Self::ALL[self as usize].1
    }
}

/// How fresh an answer must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheMode {
    /// Fresh if that is quick, else an older one.
    StaleIfSlow,
    /// An older one at once.
    StaleWhileRevalidate,
    /// Fresh, however long that takes.
    MustRevalidate,
    /// Fresh, and not kept.
    NoCache,
}

impl CacheMode {
    /// All modes with their words.
    pub const ALL: [(Self, &'static str); 4] = [
        (Self::StaleIfSlow, "stale-if-slow"),
        (Self::StaleWhileRevalidate, "stale-while-revalidate"),
        (Self::MustRevalidate, "must-revalidate"),
        (Self::NoCache, "no-cache"),
    ];

    /// Reads a word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, word)| *word == text).map(|(mode, _)| *mode)
    }
}

/// A time dimension of a query.
#[derive(Debug, Clone, PartialEq)]
pub struct TimeEntry {
    /// The dimension, of type `time`.
    pub member: MemberId,
    /// Buckets, where rows fall into some.
    pub granularity: Option<Granularity>,
    /// Range, where there is one.
    pub range: Option<WallRange>,
    /// Ranges that are compared.
    pub compare: Vec<WallRange>,
}

impl TimeEntry {
    /// Name of its column.
    pub fn column(&self) -> Option<String> {
        self.granularity.as_ref().map(|g| format!("{}.{}", self.member, g.name))
    }
}

/// A key of an order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderKey {
    /// Name of the member or column, as the query gives it.
    pub id: String,
    /// Whether it descends.
    pub descends: bool,
}

/// A checked query.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    /// Measures; empty: the groups alone.
    pub measures: Vec<MemberId>,
    /// Dimensions by which rows are grouped; empty, and without granularities: one group of all rows.
    pub dimensions: Vec<MemberId>,
    /// Segments, all of which must hold.
    pub segments: Vec<MemberId>,
    /// Time dimensions, with the buckets and ranges that are asked for.
    pub times: Vec<TimeEntry>,
    /// Conditions, all of which must hold.
    pub filters: Vec<Filter>,
    /// Order; none: the default one.
    pub order: Option<Vec<OrderKey>>,
    /// Most rows; none: as many as there are (for streams).
    pub limit: Option<u64>,
    /// Rows that are left out before.
    pub offset: u64,
    /// Whether the groups are counted.
    pub total: bool,
    /// Zone of buckets and rendered times.
    pub tz: Tz,
    /// Name of that zone as the query gives it.
    pub timezone: String,
    /// Whether rows are not grouped.
    pub ungrouped: bool,
    /// Form of rows; none: not asked for.
    pub format: Option<Format>,
    /// How fresh the answer must be, unless `cache` of the request says; none: `stale-if-slow`.
    pub cache: Option<CacheMode>,
    /// Models over which joins are to lead where there are several ways (`joinHints`).
    pub hints: Vec<Vec<String>>,
    /// How many spans each row shows that are behind it.
    pub exemplars: u64,
    /// Whether the answer may come from a rollup.
    pub rollups: bool,
    /// The time at which it is asked, in ns.
    pub now_ns: i64,
}

impl Query {
    /// A query that asks nothing yet: all raw rows, in no order.
    pub(crate) fn empty(now_ns: i64) -> Self {
        Self {
            measures: Vec::new(),
            dimensions: Vec::new(),
            segments: Vec::new(),
            times: Vec::new(),
            filters: Vec::new(),
            order: Some(Vec::new()),
            limit: None,
            offset: 0,
            total: false,
            tz: Tz::UTC,
            timezone: "UTC".to_owned(),
            ungrouped: false,
            format: None,
            cache: None,
            hints: Vec::new(),
            exemplars: 0,
            rollups: false,
            now_ns,
        }
    }

    /// All members that it names.
    pub(crate) fn members(&self) -> Vec<MemberId> {
        let filters = self.filters.iter().flat_map(Filter::leaves).map(|l| l.member.clone());
        let order = self.order.iter().flatten().filter_map(|k| MemberId::parse(&k.id));
        let times = self.times.iter().map(|t| t.member.clone());
        let named = self.measures.iter().chain(&self.dimensions).chain(&self.segments).cloned();
        named.chain(times).chain(filters).chain(order).collect()
    }

    /// The time at which it is asked, in ms.
    pub(crate) fn now_ms(&self) -> i64 {
        self.now_ns.div_euclid(1_000_000)
    }

    /// Columns that rows are grouped by, in the order of answers.
    pub fn group_columns(&self) -> Vec<String> {
        let mut columns: Vec<String> = self.dimensions.iter().map(ToString::to_string).collect();
        for column in self.times.iter().filter_map(TimeEntry::column) {
            // A time dimension with one granularity may have two ranges.
            if !columns.contains(&column) {
                columns.push(column);
            }
        }
        columns
    }

    /// All columns of its rows.
    pub fn columns(&self) -> Vec<String> {
        let mut columns = self.group_columns();
        columns.extend(self.measures.iter().map(ToString::to_string));
        columns
    }

    /// The order that holds: the given one, or the default.
    pub fn effective_order(&self) -> Vec<OrderKey> {
        if let Some(order) = &self.order {
            return order.clone();
        }
        let key = |id: String, descends| vec![OrderKey { id, descends }];
        if let Some(time) = self.times.iter().find(|t| t.granularity.is_some()) {
            key(time.member.to_string(), false)
        } else if let (Some(measure), false) = (self.measures.first(), self.dimensions.is_empty()) {
            key(measure.to_string(), true)
        } else if let Some(dimension) = self.dimensions.first() {
            key(dimension.to_string(), false)
        } else {
            Vec::new()
        }
    }
}

#[cfg(test)]
mod tests;
