//! The query of rows beside a trace.

use quiver_types::spans::{TraceId, hex};

use crate::ast::{FieldPattern, Filter, Options, Query, Test};
use crate::pipes::sort::Sort;

/// Fields in which senders put the id of a trace.
const ID_FIELDS: [&str; 4] = ["trace_id", "traceId", "traceID", "trace.id"];
/// The field of the service that logged a row.
const SERVICE: &str = "service.name";

/// Rows that name a trace, or that one of these services logged, the oldest first and no more than `limit`. An empty name
/// is no service.
#[must_use]
pub fn of_trace<'a>(id: &TraceId, services: impl IntoIterator<Item = &'a str>, limit: u64) -> Query {
    let is = |field: &str, value: &str| Filter::Field {
        field: FieldPattern::Name(field.to_owned()),
        test: Test::Exact(value.to_owned()),
    };
    let id = hex(id);
    let mut any: Vec<Filter> = ID_FIELDS.iter().map(|field| is(field, &id)).collect();
    any.extend(services.into_iter().filter(|service| !service.is_empty()).map(|service| is(SERVICE, service)));
    let oldest = Sort { limit: Some(limit), ..Sort::oldest_first() };
    Query { options: Options::default(), filter: Filter::Or(any), pipes: vec![oldest.into()] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query_text::parse;

    /// Breaks if the query is not the one of its text, or a name of a service is more than a value.
    #[test]
    fn rows_name_the_trace_or_come_from_its_services() {
        let id = format!("{:032x}", 7);
        let ids = format!("trace_id:={id} or traceId:={id} or traceID:={id} or trace.id:={id}");
        let check = |services: &[&str], expected: &str| {
            let query = of_trace(&7_u128.to_be_bytes(), services.iter().copied(), 3);
            assert_eq!(query, parse(&format!("{expected} | sort by (_time) | limit 3")).expect(expected));
        };
        check(&[], &ids);
        check(&["", "cart"], &format!("{ids} or service.name:=cart"));
        check(&["a\" | limit 0 # \u{1}"], &format!("{ids} or service.name:=\"a\\\" | limit 0 # \\u0001\""));
    }
}
