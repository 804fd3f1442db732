//! A request: one query, one that compares ranges, or several that are blended (`olap-api.md` 6.4).

use quiver_query::tables::DomainAccess;
use serde_json::{Value, json};

use super::member_lookup::Names;
use super::{COMPARE_MAX, QUERIES_MAX, Query, TimeEntry, parse};
use crate::error::{QueryError, Reason};
use crate::model::catalog::Catalog;

/// How the queries of a request relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueryType {
    /// One query that compares no ranges.
    Regular,
    /// One query over several ranges.
    CompareDateRange,
    /// Several queries over one granularity.
    Blending,
}

impl QueryType {
    /// Its name in results (`queryType`).
    pub fn word(self) -> &'static str {
        ["regularQuery", "compareDateRangeQuery", "blendingQuery"][self as usize]
    }
}

/// A validated request.
#[derive(Debug, Clone)]
pub struct Request {
    /// What its queries are to each other.
    pub query_type: QueryType,
    /// The queries that run.
    pub queries: Vec<Query>,
    /// The index of the time dimension whose ranges are compared.
    pub compared: Option<usize>,
}

impl Request {
    /// Parses and validates the value of `query` without a caller's rights: the product itself asks. `now_ns` is the
    /// current time.
    ///
    /// # Errors
    ///
    /// What is wrong with the request.
    pub fn parse(value: &Value, catalog: &Catalog, now_ns: i64) -> Result<Self, QueryError> {
        Self::read(value, Names { catalog, access: None, answers_blind: false }, now_ns)
    }

    /// Like [`Self::parse`] for a caller, to whom models that he may not know of do not exist.
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn of_caller(value: &Value, catalog: &Catalog, access: &DomainAccess, now_ns: i64) -> Result<Self, QueryError> {
        Self::read(value, Names { catalog, access: Some(access), answers_blind: false }, now_ns)
    }

    /// Like [`Self::of_caller`] for reading rows: a caller who may see nothing at all gets no rows, and no error
    /// (`olap-api.md` 12.1).
    ///
    /// # Errors
    ///
    /// As [`Self::parse`].
    pub fn to_load(value: &Value, catalog: &Catalog, access: &DomainAccess, now_ns: i64) -> Result<Self, QueryError> {
        Self::read(value, Names { catalog, access: Some(access), answers_blind: true }, now_ns)
    }

    fn read(value: &Value, names: Names<'_>, now_ns: i64) -> Result<Self, QueryError> {
        let Value::Array(list) = value else {
            let query = parse::query(value, "", names, now_ns)?;
            return Ok(Self::compare(query));
        };
        if list.is_empty() || list.len() > QUERIES_MAX {
            let text = format!("a list has 1 to {QUERIES_MAX} queries, not {}", list.len());
            return Err(QueryError::new(Reason::BadValue, "", text));
        }
        let mut queries = Vec::new();
        for (i, one) in list.iter().enumerate() {
            let at = format!("/{i}");
            queries.extend(Self::compare(parse::query(one, &at, names, now_ns)?).queries);
            if queries.len() > QUERIES_MAX {
                let text =
                    format!("a list comes to at most {QUERIES_MAX} queries, each range of `compareDateRange` is one");
                return Err(QueryError::new(Reason::BadValue, at, text));
            }
        }
        Ok(Self { query_type: QueryType::Blending, queries, compared: None })
    }

    /// A request of one query.
    pub fn of(query: Query) -> Self {
        Self { query_type: QueryType::Regular, queries: vec![query], compared: None }
    }

    fn compare(query: Query) -> Self {
        let Some(at) = query.times.iter().position(|t| !t.compare.is_empty()) else {
            return Self::of(query);
        };
        let ranges = query.times[at].compare.iter().take(COMPARE_MAX);
        let queries = ranges.map(|range| {
            let mut one = query.clone();
            one.times[at] = TimeEntry { range: Some(*range), compare: Vec::new(), ..one.times[at].clone() };
            one
        });
        Self { query_type: QueryType::CompareDateRange, queries: queries.collect(), compared: Some(at) }
    }

    /// Checks the rules for several queries.
    ///
    /// # Errors
    ///
    /// `MULTI_REQUIRED`, `BLEND_GRANULARITY`.
    pub fn check(&self, is_multi: bool) -> Result<(), QueryError> {
        if self.query_type != QueryType::Regular && !is_multi {
            let text = "several queries or ranges need `queryType` = `multi`";
            return Err(QueryError::new(Reason::MultiRequired, "", text));
        }
        if self.query_type == QueryType::Blending {
            let names: Vec<Option<&str>> = self.queries.iter().map(blend_granularity).collect();
            if let Some(i) = names.iter().position(|name| name.is_none() || *name != names[0]) {
                let text = "queries that are blended need one time dimension with the same granularity";
                return Err(QueryError::new(Reason::BlendGranularity, format!("/{i}/timeDimensions"), text));
            }
        }
        Ok(())
    }

    /// The query that describes how all results are pivoted together.
    pub fn pivot_query(&self) -> Value {
        let mut pivot = self.queries[0].to_json();
        pivot["queryType"] = self.query_type.word().into();
        match self.query_type {
            QueryType::Regular => {}
            QueryType::CompareDateRange => {
                let own = pivot["dimensions"].as_array().cloned().unwrap_or_default();
                pivot["dimensions"] = std::iter::once(json!("compareDateRange")).chain(own).collect();
            }
            QueryType::Blending => {
                for key in ["measures", "dimensions"] {
                    let mut all: Vec<Value> = Vec::new();
                    for query in &self.queries {
                        for name in query.to_json()[key].as_array().into_iter().flatten() {
                            if !all.contains(name) {
                                all.push(name.clone());
                            }
                        }
                    }
                    pivot[key] = all.into();
                }
                let granularity = blend_granularity(&self.queries[0]);
                pivot["timeDimensions"] = json!([{"dimension": "time", "granularity": granularity}]);
            }
        }
        pivot
    }

    /// The additional column of rows of several queries: its name and, for comparisons, its value.
    pub fn extra_column(&self, query: &Query) -> Option<(String, Option<String>)> {
        match self.query_type {
            QueryType::Regular => None,
            QueryType::CompareDateRange => {
                let range = query.times.get(self.compared?)?.range?;
                let [from, to] = range.written();
                Some(("compareDateRange".to_owned(), Some(format!("{from} - {to}"))))
            }
            QueryType::Blending => Some((format!("time.{}", blend_granularity(query)?), None)),
        }
    }
}

fn blend_granularity(query: &Query) -> Option<&str> {
    query.times.iter().find_map(|t| t.granularity.as_ref()).map(|g| g.name.as_str())
}
