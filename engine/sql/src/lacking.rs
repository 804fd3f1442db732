//! Rights that a statement lacks: a table or function of a domain in which the caller may see nothing.

use quiver_query::tables::models::{Models, OLAP_SCHEMA};
use quiver_query::tables::{DomainAccess, TableSnapshot};
use quiver_types::{Access, Domain, Error, ErrorKind, Result, Right, Triple};

use crate::calls::Call;

fn sees(access: &Access) -> bool {
    access.is_full() || !access.patterns().is_empty()
}

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
    if sees(&access.get(domain)) { Ok(()) } else { Err(forbidden(domain)) }
}

#[cfg(test)]
mod tests {
    use super::*;

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
