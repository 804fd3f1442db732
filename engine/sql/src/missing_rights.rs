//! Reports the rights that a statement lacks: for a table or function of a domain in which the caller may see nothing.

use quiver_query::tables::models::{Models, OLAP_SCHEMA};
use quiver_query::tables::{DomainAccess, TableSnapshot};
use quiver_types::{Access, Domain, Error, ErrorKind, Result, Right, Triple};

use crate::table_functions::Call;

fn forbidden(domain: Domain) -> Error {
    let triple = Triple::everywhere(Right::View, domain);
    Error::new(ErrorKind::Forbidden, format!("this needs the right {triple}"))
}

/// Says which right would give a table that the caller does not have; none: there is no such table.
pub(crate) fn for_table(name: &str, snapshot: &dyn TableSnapshot, models: &dyn Models) -> Option<Error> {
    let bare = name.rsplit('.').next().unwrap_or(name);
    let is_model = name.split('.').rev().nth(1) == Some(OLAP_SCHEMA);
    let alone = |domain: Domain| {
        let none = Access::services(Vec::<String>::new());
        DomainAccess::of(|other| if other == domain { Access::full() } else { none.clone() })
    };
    let gives = |domain: &Domain| {
        let access = alone(*domain);
        let listed = if is_model { models.list(&access) } else { snapshot.list(&access) };
        listed.iter().any(|entry| entry.name == bare)
    };
    Domain::ALL.iter().map(|(domain, ..)| *domain).find(|domain| gives(domain)).map(forbidden)
}

/// Refuses a function of a language in whose domain the caller may see nothing.
///
/// # Errors
/// Forbidden, naming the right.
pub(crate) fn for_call(call: &Call, access: &DomainAccess) -> Result<()> {
    let domain = match call {
        Call::PromqlInstant { .. } | Call::PromqlRange { .. } => Domain::Metrics,
        Call::Logsql { .. } => Domain::Logs,
    };
    if access.get(domain).sees_some() { Ok(()) } else { Err(forbidden(domain)) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::Schema;
    use quiver_query::tables::{QUIVER_SCHEMA, TableEntry};

    use super::*;
    use crate::testing::{EMPTY, Product};

    /// A table of logs and a model of traces, for those who may see all of these.
    const LITTLE: Product = Product {
        tables: |access| listed(access, Domain::Logs, QUIVER_SCHEMA, "logs"),
        models: |access| listed(access, Domain::Traces, OLAP_SCHEMA, "Spans"),
        ..EMPTY
    };

    fn listed(access: &DomainAccess, domain: Domain, schema: &'static str, name: &str) -> Vec<TableEntry> {
        let entry = TableEntry { schema, name: name.to_owned(), columns: Arc::new(Schema::empty()) };
        access.is_full(domain).then_some(entry).into_iter().collect()
    }

    #[test]
    fn tables_need_the_domain_that_gives_them() {
        let needs = |name: &str| for_table(name, &LITTLE, &LITTLE);
        for (name, domain) in
            [("logs", "logs"), ("quiver.logs", "logs"), ("public.logs", "logs"), ("olap.Spans", "traces")]
        {
            let error = needs(name).unwrap_or_else(|| panic!("nothing gives {name}"));
            assert_eq!(error.kind, ErrorKind::Forbidden, "{name}");
            assert_eq!(error.message, format!("this needs the right {{view, {domain}, *}}"));
        }
        // No right gives what is not there: models are in their schema alone, and have their case.
        for name in ["nosuch", "Logs", "Spans", "olap.logs", "olap.spans", "quiver.Spans", ""] {
            assert!(needs(name).is_none(), "{name}");
        }
    }

    #[test]
    fn who_sees_some_services_may_call() {
        let only = |domain: Domain, access: Access| {
            let none = Access::services(Vec::<String>::new());
            DomainAccess::of(move |other| if other == domain { access.clone() } else { none.clone() })
        };
        let logsql = Call::Logsql { query: "*".to_owned() };
        let promql = Call::PromqlRange { expr: "up".to_owned(), start_ms: 0, end_ms: 1, step_ms: 1 };
        for access in [Access::full(), Access::services(["a"])] {
            let (logs, metrics) = (only(Domain::Logs, access.clone()), only(Domain::Metrics, access));
            assert!(for_call(&logsql, &logs).is_ok() && for_call(&promql, &metrics).is_ok());
            let refused = [(&logsql, &metrics, "logs"), (&promql, &logs, "metrics")];
            for (call, access, domain) in refused {
                let error = for_call(call, access).unwrap_err();
                assert_eq!(error.message, format!("this needs the right {{view, {domain}, *}}"));
            }
        }
    }

    #[test]
    fn calls_need_their_domain() {
        let logs = DomainAccess::of(|domain| match domain {
            Domain::Logs => Access::services(["a"]),
            _ => Access::services(Vec::<String>::new()),
        });
        assert!(for_call(&Call::Logsql { query: String::new() }, &logs).is_ok());
        let refused = for_call(&Call::PromqlInstant { expr: String::new(), time_ms: 0 }, &logs).unwrap_err();
        assert_eq!(
            (refused.kind, refused.message.as_str()),
            (ErrorKind::Forbidden, "this needs the right {view, metrics, *}")
        );
    }
}
