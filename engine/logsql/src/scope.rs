//! What a request lays upon a query and all its subqueries: a time range, further filters.

use quiver_types::{Error, ErrorKind, Result};

use crate::ast::{Filter, Moment, Pipe, Query, TimeFilter};
use crate::visit::each_subquery_mut;

/// Most bytes that filters of the request and of `global_filter` may come to, written out in all the queries that they
/// bind.
const COPIED_MAX: usize = 16 << 20;

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
    ///
    /// # Errors
    /// LimitExceeded: long filters in very many subqueries.
    pub fn bind(&self, query: &mut Query) -> Result<()> {
        // Subqueries of the request's own filters are bound by its time range, not by these filters again.
        let mut binding = Binding { scope: self, extra: Vec::new(), extra_len: 0, copied: 0 };
        let mut extra = self.extra.clone();
        for filter in &mut extra {
            each_subquery_mut(filter, &mut |inner| binding.query(inner, &[]));
        }
        binding.extra_len = len(&extra);
        binding.extra = extra;
        binding.query(query, &[]);
        if binding.copied > COPIED_MAX {
            let text = format!("filters that bind each subquery come to more than {COPIED_MAX} bytes in all");
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        Ok(())
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

/// The work of binding.
struct Binding<'a> {
    scope: &'a QueryScope,
    /// The request's filters, their own subqueries bound.
    extra: Vec<Filter>,
    extra_len: usize,
    /// Bytes of filters that were copied so far; beyond the bound nothing more is done.
    copied: usize,
}

impl Binding<'_> {
    /// Binds a query, by what `global_filter` of those around it says too.
    fn query(&mut self, query: &mut Query, outer: &[Filter]) {
        let mut global = outer.to_vec();
        if let Some(own) = query.options.global_filter.take() {
            // Its own subqueries are bound by those outside of it only: it cannot hold itself.
            let mut own = *own;
            each_subquery_mut(&mut own, &mut |inner| self.query(inner, outer));
            global.push(own);
        }
        self.copied = self.copied.saturating_add(self.extra_len).saturating_add(len(&global));
        if self.copied > COPIED_MAX {
            return;
        }
        each_subquery_mut(&mut query.filter, &mut |inner| self.query(inner, &global));
        for pipe in &mut query.pipes {
            self.pipe(pipe, &global);
        }
        let mut all = self.extra.clone();
        all.append(&mut global);
        if query.options.ignore_global_time_filter != Some(true) {
            all.extend(self.scope.time());
        }
        let own = std::mem::replace(&mut query.filter, Filter::All);
        all.push(own);
        query.filter = if all.len() == 1 { all.remove(0) } else { Filter::And(all) };
    }

    fn pipe(&mut self, pipe: &mut Pipe, global: &[Filter]) {
        if let Pipe::StreamContext(context) = pipe {
            context.within.clone_from(&self.extra);
        }
        for filter in pipe.kind_mut().filters_mut() {
            each_subquery_mut(filter, &mut |inner| self.query(inner, global));
        }
        pipe.kind_mut().queries_mut().into_iter().for_each(|inner| self.query(inner, global));
    }
}

/// Length of filters as text.
fn len(filters: &[Filter]) -> usize {
    filters.iter().map(|filter| filter.to_string().len()).sum()
}

fn edge(ns: Option<i64>) -> String {
    ns.map_or_else(|| "now".to_owned(), |ns| ns.to_string())
}
