//! Walks over the parts of pipes and filters that hold filters and queries.

use crate::ast::{Filter, Pipe, Query, Test, Values};

/// Calls back for the filters that a pipe holds itself (not those of subqueries).
pub(crate) fn each_filter_mut(pipe: &mut Pipe, call: &mut dyn FnMut(&mut Filter)) {
    match pipe {
        Pipe::Filter(filter) => call(filter),
        Pipe::Row { condition, .. } | Pipe::SetStreamFields { condition, .. } => {
            condition.iter_mut().for_each(call);
        }
        Pipe::Stats(stats) => {
            stats.calls.iter_mut().filter_map(|c| c.condition.as_mut()).for_each(call);
        }
        _ => {}
    }
}

/// Calls back for the queries that a pipe runs beside its own rows.
pub(crate) fn each_query_mut(pipe: &mut Pipe, call: &mut dyn FnMut(&mut Query)) {
    match pipe {
        Pipe::Join(join) => call(&mut join.query),
        Pipe::Union(query) => call(query),
        _ => {}
    }
}

/// Calls back for the subqueries inside a filter.
pub(crate) fn each_subquery_mut(filter: &mut Filter, call: &mut dyn FnMut(&mut Query)) {
    match filter {
        Filter::And(inner) | Filter::Or(inner) => inner.iter_mut().for_each(|f| each_subquery_mut(f, call)),
        Filter::Not(inner) => each_subquery_mut(inner, call),
        Filter::StreamId(Values::Subquery(query))
        | Filter::Field {
            test:
                Test::In(Values::Subquery(query))
                | Test::ContainsAll(Values::Subquery(query))
                | Test::ContainsAny(Values::Subquery(query)),
            ..
        } => call(query),
        _ => {}
    }
}
