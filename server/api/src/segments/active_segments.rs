//! Restrictions of the current request's queries by its segments.

use std::cell::RefCell;

use quiver_types::{Access, AccessSegment, Domain};

tokio::task_local! {
    /// The restrictions by domain.
    static WITHIN: RefCell<Vec<(Domain, AccessSegment)>>;
}

/// Serves a request whose queries may be restricted.
pub(crate) async fn scope<T>(work: impl Future<Output = T>) -> T {
    WITHIN.scope(RefCell::default(), work).await
}

/// Adds restrictions for all queries of the current request.
pub(super) fn add(all: Vec<(Domain, AccessSegment)>) {
    // Outside of a request there is nothing to restrict.
    let _ = WITHIN.try_with(|within| within.borrow_mut().extend(all));
}

/// The access to a domain, restricted by the segments of the current request.
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
            let rows = quiver_types::SegmentRows::Logs(LogFilter::None);
            let within = AccessSegment { identity: "x".to_owned(), rows };
            WITHIN.with(|all| all.borrow_mut().push((Domain::Logs, within)));
            assert_ne!(narrow(access.clone(), Domain::Logs), access);
            assert_eq!(narrow(access.clone(), Domain::Traces), access, "other domains are not narrowed");
        })
        .await;
        assert_eq!(narrow(access.clone(), Domain::Logs), access, "the next request begins anew");
    }
}
