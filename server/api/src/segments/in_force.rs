//! What the queries of the request at hand may see of each domain, within its segments.

use std::cell::RefCell;

use quiver_types::{Access, Domain, Within};

tokio::task_local! {
    /// What the queries of the request at hand are narrowed to.
    static WITHIN: RefCell<Vec<(Domain, Within)>>;
}

/// Serves a request whose queries may be narrowed.
pub(crate) async fn scope<T>(work: impl Future<Output = T>) -> T {
    WITHIN.scope(RefCell::default(), work).await
}

/// Narrows all queries of the request at hand further.
pub(super) fn add(all: Vec<(Domain, Within)>) {
    // Outside of a request there is nothing to narrow.
    let _ = WITHIN.try_with(|within| within.borrow_mut().extend(all));
}

/// What may be seen of a domain, within the segments of the request at hand.
pub(crate) fn narrow(access: Access, domain: Domain) -> Access {
    let within = WITHIN.try_with(|all| all.borrow().iter().find(|(of, _)| *of == domain).map(|(_, w)| w.clone()));
    match within.ok().flatten() {
        Some(within) => access.narrowed(within),
        None => access,
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::logs::LogFilter;

    use super::*;

    #[tokio::test]
    async fn a_request_without_segments_sees_what_it_may() {
        let access = Access::services(["cart"]);
        assert_eq!(narrow(access.clone(), Domain::Logs), access, "outside of a request");
        scope(async {
            assert_eq!(narrow(access.clone(), Domain::Logs), access);
            let rows = quiver_types::Narrowed::Logs(LogFilter::None);
            let within = Within { identity: "x".to_owned(), rows };
            WITHIN.with(|all| all.borrow_mut().push((Domain::Logs, within)));
            assert_ne!(narrow(access.clone(), Domain::Logs), access);
            assert_eq!(narrow(access.clone(), Domain::Traces), access, "other domains are not narrowed");
        })
        .await;
        assert_eq!(narrow(access.clone(), Domain::Logs), access, "the next request begins anew");
    }
}
