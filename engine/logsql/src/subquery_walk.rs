//! Walks over the parts of filters that hold queries.

use crate::ast::{Filter, Query, Test, Values};

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
