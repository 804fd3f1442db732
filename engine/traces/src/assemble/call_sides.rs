//! Determines which side of a call each report with a span id belongs to.
//!
//! Client and server may share an id (Zipkin), and each may send several reports, some without kind or service.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::{Side, Span};

/// A service, and its side of the call.
pub(super) type Half = (String, Side);

/// The half of each report with one id.
///
/// A report without a side joins the half of its service. One without a service joins a half that has a service and the
/// same side, or else one whose side is unknown.
pub(super) fn of(reports: &[&Span]) -> Vec<Half> {
    // The side of each service, the caller's if it has both. A client may give thousands of spans the same id.
    let mut sides: HashMap<&str, Side, FixedState> = HashMap::default();
    for report in reports.iter().filter(|report| report.side() != Side::None) {
        let known = sides.entry(report.context.service.as_str()).or_insert(report.side());
        *known = report.side().min(*known);
    }
    let half = |report: &&Span| {
        let service = &report.context.service;
        let side = match report.side() {
            // Without a service, it is unknown which half it belongs to; the sides below decide.
            Side::None if !service.is_empty() => sides.get(service.as_str()).copied().unwrap_or(Side::None),
            side => side,
        };
        (service.clone(), side)
    };
    let mut halves: Vec<Half> = reports.iter().map(half).collect();
    let mut named: Vec<Half> = halves.iter().filter(|h| !h.0.is_empty()).cloned().collect();
    named.sort_unstable();
    named.dedup();
    let nameless = |side| halves.iter().any(|h| h.0.is_empty() && h.1 == side);
    let (has_caller, has_callee) = (nameless(Side::Caller), nameless(Side::Callee));
    let without_service = |side| {
        // Reports without a service are grouped by the same rule as those with one.
        let side = match side {
            Side::None if has_caller => Side::Caller,
            Side::None if has_callee => Side::Callee,
            side => side,
        };
        let joins: &[Side] = match side {
            Side::Caller => &[Side::Caller, Side::None],
            Side::Callee if has_caller => &[Side::Callee],
            Side::Callee => &[Side::Callee, Side::None],
            Side::None => &[Side::Caller, Side::None, Side::Callee],
        };
        let joined = joins.iter().find_map(|side| named.iter().find(|half| half.1 == *side)).cloned();
        joined.unwrap_or_else(|| (String::new(), side))
    };
    let [caller, callee, none] = [Side::Caller, Side::Callee, Side::None].map(without_service);
    for half in halves.iter_mut().filter(|half| half.0.is_empty()) {
        let joined = match half.1 {
            Side::Caller => &caller,
            Side::Callee => &callee,
            Side::None => &none,
        };
        half.clone_from(joined);
    }
    halves
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
