//! Which half of a call each report of one span id belongs to.
//!
//! Client and server may share an id (Zipkin), and each may report in pieces that lack the kind or the service.

use quiver_types::spans::{Side, Span};

/// A service, and its side of the call.
pub(super) type Half = (String, Side);

/// Gives the half of each report of one id.
///
/// A report without a side joins the half that its service has; one without a service joins a named half of its side,
/// or of one that did not tell its side.
pub(super) fn of(reports: &[&Span]) -> Vec<Half> {
    let mut halves: Vec<Half> = Vec::with_capacity(reports.len());
    for report in reports {
        let service = &report.context.service;
        let has = |side| reports.iter().any(|r| r.context.service == *service && r.side() == side);
        let side = match report.side() {
            // Without a service there is no telling whose half it would be: the sides below decide.
            Side::None if !service.is_empty() => {
                [Side::Caller, Side::Callee].into_iter().find(|&side| has(side)).unwrap_or(Side::None)
            }
            side => side,
        };
        halves.push((service.clone(), side));
    }
    let mut named: Vec<Half> = halves.iter().filter(|h| !h.0.is_empty()).cloned().collect();
    named.sort_unstable();
    let is_called = halves.iter().any(|h| h.0.is_empty() && h.1 == Side::Caller);
    let without_service = |side| {
        let joins: &[Side] = match side {
            Side::Caller => &[Side::Caller, Side::None],
            Side::Callee if is_called => &[Side::Callee],
            Side::Callee => &[Side::Callee, Side::None],
            Side::None => &[Side::Caller, Side::None, Side::Callee],
        };
        joins.iter().find_map(|side| named.iter().find(|half| half.1 == *side)).cloned()
    };
    // Among themselves those without a service go by the same rule as those with one.
    let nameless = |side| halves.iter().any(|h| h.0.is_empty() && h.1 == side);
    let own_side = |side| match side {
        Side::None if nameless(Side::Caller) => Side::Caller,
        Side::None if nameless(Side::Callee) => Side::Callee,
        side => side,
    };
    let join = |half: &Half| match &*half.0 {
        "" => without_service(own_side(half.1)).unwrap_or_else(|| (String::new(), own_side(half.1))),
        _ => half.clone(),
    };
    halves.iter().map(join).collect()
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::SHARED;

    use super::super::tests::span;
    use super::*;

    #[test]
    fn reports_find_their_half() {
        const CLIENT: u8 = 3;
        const SERVER: u8 = 2;
        let check = |reports: &[(&str, u8)], expected: &[(&str, Side)]| {
            let spans: Vec<Span> = reports.iter().map(|&(service, kind)| span(1, 0, service, kind, 1, 2)).collect();
            let found = of(&spans.iter().collect::<Vec<_>>());
            let found: Vec<(&str, Side)> = found.iter().map(|(service, side)| (service.as_str(), *side)).collect();
            assert_eq!(found, expected, "{reports:?}");
        };
        let (caller, callee, none) = (Side::Caller, Side::Callee, Side::None);
        check(&[("a", CLIENT), ("a", 0), ("b", SERVER)], &[("a", caller), ("a", caller), ("b", callee)]);
        check(&[("a", 0), ("a", SERVER), ("b", 0)], &[("a", callee), ("a", callee), ("b", none)]);
        check(&[("a", CLIENT), ("a", SERVER), ("a", 0)], &[("a", caller), ("a", callee), ("a", caller)]);
        // Without a service.
        check(
            &[("", CLIENT), ("a", 0), ("b", SERVER), ("", 0)],
            &[("a", none), ("a", none), ("b", callee), ("a", none)],
        );
        check(
            &[("", CLIENT), ("a", CLIENT), ("", SERVER), ("b", SERVER)],
            &[("a", caller), ("a", caller), ("b", callee), ("b", callee)],
        );
        check(&[("", 0), ("b", SERVER)], &[("b", callee), ("b", callee)]);
        check(&[("", 0), ("", CLIENT), ("", SERVER)], &[("", caller), ("", caller), ("", callee)]);
        check(&[("", 0), ("", 0)], &[("", none), ("", none)]);
        check(&[("", SERVER), ("", CLIENT), ("a", 0)], &[("", callee), ("a", none), ("a", none)]);
    }

    #[test]
    fn a_shared_half_is_the_callee_whatever_its_kind() {
        let client = span(1, 0, "a", 3, 1, 2);
        let mut shared = span(1, 0, "a", 0, 1, 2);
        shared.marks = SHARED;
        let late = span(1, 0, "a", 0, 1, 2);
        let found: Vec<Side> = of(&[&client, &shared, &late]).into_iter().map(|half| half.1).collect();
        assert_eq!(found, [Side::Caller, Side::Callee, Side::Caller]);
    }
}
