//! What a request lays upon a query and all its subqueries: a time range, further filters.

use crate::ast::{Filter, Moment, Pipe, Query, TimeFilter};
use crate::visit::{each_filter_mut, each_query_mut, each_subquery_mut};

/// The surroundings of a query.
#[derive(Debug, Clone, Default)]
pub struct QueryScope {
    /// What `now` means; Unix nanoseconds.
    pub now_ns: i64,
    /// First moment of the request.
    pub start_ns: Option<i64>,
    /// Last moment of the request, included.
    pub end_ns: Option<i64>,
    /// Filters that each part of the query is bound by, subqueries included.
    pub extra: Vec<Filter>,
}

impl QueryScope {
    /// Binds a query: what it asks for beyond its scope it does not get.
    pub(crate) fn bind(&self, query: &mut Query) {
        self.bind_with(query, &[]);
    }

    fn bind_with(&self, query: &mut Query, outer: &[Filter]) {
        let mut global = outer.to_vec();
        global.extend(query.options.global_filter.take().map(|filter| *filter));
        let mut all = self.extra.clone();
        all.extend(global.iter().cloned());
        if query.options.ignore_global_time_filter != Some(true) {
            all.extend(self.time());
        }
        let own = std::mem::replace(&mut query.filter, Filter::All);
        all.push(own);
        query.filter = if all.len() == 1 { all.remove(0) } else { Filter::And(all) };
        each_subquery_mut(&mut query.filter, &mut |inner| self.bind_with(inner, &global));
        for pipe in &mut query.pipes {
            self.bind_pipe(pipe, &global);
        }
    }

    fn bind_pipe(&self, pipe: &mut Pipe, global: &[Filter]) {
        each_filter_mut(pipe, &mut |filter| {
            each_subquery_mut(filter, &mut |inner| self.bind_with(inner, global));
        });
        each_query_mut(pipe, &mut |inner| self.bind_with(inner, global));
    }

    /// The time range. It is lowered with the other filters, so `time_offset` moves it with them.
    fn time(&self) -> Option<Filter> {
        if self.start_ns.is_none() && self.end_ns.is_none() {
            return None;
        }
        Some(Filter::Time(TimeFilter::Range {
            start: Moment::At(self.start_ns.unwrap_or(i64::MIN)),
            end: Moment::At(self.end_ns.unwrap_or(i64::MAX)),
            offset_ns: 0,
            text: format!("[{},{}]", edge(self.start_ns), edge(self.end_ns)),
        }))
    }
}

fn edge(ns: Option<i64>) -> String {
    ns.map_or_else(|| "now".to_owned(), |ns| ns.to_string())
}
