use super::*;

/// A caller's span and the call that it was counted as: of `db`, in minute 5.
fn caller(id: u8, service: &str) -> Relative {
    let remote = RollupRow {
        kind: RollupKind::EdgeMinute,
        minute: 5,
        service: service.to_owned(),
        peer: "db".to_owned(),
        sort: EdgeKind::Database as u8,
        counts: Counts { spans: 1, ..Counts::default() },
        ids: None,
    };
    Relative { kind: 3, remote: Some(remote), ..relative(id, 0, service) }
}

/// A span of kind server.
fn relative(id: u8, parent: u8, service: &str) -> Relative {
    Relative {
        id: [id; 8],
        parent: [parent; 8],
        service: service.to_owned(),
        kind: 2,
        shared: false,
        received: 0,
        remote: None,
    }
}

fn open(id: u8, parent: u8, service: &str, sort: u8) -> RollupRow {
    RollupRow {
        kind: RollupKind::Open,
        minute: 7,
        service: service.to_owned(),
        peer: String::new(),
        sort,
        counts: Counts { spans: 1, errors: 1, ..Counts::default() },
        ids: Some(([1; 16], [id; 8], [parent; 8])),
    }
}

/// The sums of one call of `web` that nobody seemed to answer, after what was open is known; those without calls left out.
fn corrected(open: &[RollupRow], spans: &[Relative], access: &Access) -> Vec<(String, String, u64)> {
    let mut sums = Sums::default();
    sums.add(caller(1, "web").remote.unwrap());
    correct(&mut sums, open, spans, (0, 9), access);
    let calls = sums.edges.into_iter().filter(|(_, counts)| counts.spans > 0);
    calls.map(|((source, target, _), counts)| (source, target, counts.spans)).collect()
}

fn check(open: &[RollupRow], spans: &[Relative], expected: &[(&str, &str, u64)]) {
    let found = corrected(open, spans, &Access::full());
    let found: Vec<(&str, &str, u64)> = found.iter().map(|(s, t, calls)| (s.as_str(), t.as_str(), *calls)).collect();
    assert_eq!(found, expected);
}

const UNANSWERED: &[(&str, &str, u64)] = &[("web", "db", 1)];
const ANSWERED: &[(&str, &str, u64)] = &[("web", "cart", 1)];

#[test]
fn an_answer_that_comes_late_takes_the_place_of_a_call_without_one() {
    check(&[], &[caller(1, "web")], UNANSWERED);
    let late = [open(2, 1, "cart", 2)];
    check(&late, &[caller(1, "web"), relative(2, 1, "cart")], ANSWERED);
    // The parent is nowhere, or there is none.
    check(&late, &[], UNANSWERED);
    check(&[open(2, 0, "cart", 2)], &[Relative { id: [0; 8], ..caller(1, "web") }], UNANSWERED);
}

#[test]
fn two_answers_take_one_call_out() {
    let spans = [caller(1, "web"), relative(2, 1, "cart"), relative(3, 1, "cart")];
    let both = [open(2, 1, "cart", 2), open(3, 1, "cart", 2)];
    check(&both, &spans, &[("web", "cart", 2)]);
    // One of them was in the roll-up of its parent: that one counted no call without an answer, the sum is of another.
    check(&both[..1], &spans, &[("web", "cart", 1), ("web", "db", 1)]);
}

#[test]
fn a_call_of_another_window_stays() {
    let spans = [
        Relative { remote: caller(1, "web").remote.map(|row| RollupRow { minute: 10, ..row }), ..caller(1, "web") },
        relative(2, 1, "cart"),
    ];
    check(&[open(2, 1, "cart", 2)], &spans, &[("web", "cart", 1), ("web", "db", 1)]);
}

/// Breaks if a service that calls itself shows as an edge, or its database stays though a part of it answered.
#[test]
fn spans_of_one_service_are_no_call() {
    let spans = [caller(1, "web"), relative(2, 1, "web")];
    // An internal span below the call says nothing of who answers.
    check(&[open(2, 1, "web", 1)], &spans, UNANSWERED);
    // Its server half does: then it was no database.
    check(&[open(2, 1, "web", 2)], &spans, &[]);
}

/// Zipkin's two halves of a call have one id; the called half is marked.
#[test]
fn halves_under_one_id_are_a_call() {
    let half = Relative { shared: true, ..relative(1, 0, "cart") };
    for sort in [2 | OPEN_SHARED, 2] {
        check(&[open(1, 0, "cart", sort)], &[caller(1, "web"), relative(9, 8, "x")], ANSWERED);
    }
    check(&[open(1, 0, "cart", 2 | OPEN_SHARED)], &[half, caller(1, "web")], ANSWERED);
}

/// Breaks if the last report of a span is taken for the one that was counted.
#[test]
fn of_several_reports_of_the_parent_the_first_was_counted() {
    let report = |peer: &str, received| {
        let remote = caller(1, "web").remote.map(|row| RollupRow { peer: peer.to_owned(), ..row });
        Relative { received, remote, ..caller(1, "web") }
    };
    let late = [open(2, 1, "cart", 2)];
    for spans in [[report("db", 1), report("other", 2)], [report("other", 2), report("db", 1)]] {
        check(&late, &spans, ANSWERED);
    }
}

#[test]
fn what_the_caller_may_not_see_is_hidden() {
    let seen = |services: &[&str]| {
        let spans = [caller(1, "web"), relative(2, 1, "cart")];
        corrected(&[open(2, 1, "cart", 2)], &spans, &Access::services(services.iter().copied()))
    };
    let edge = |source: &str, target: &str| (source.to_owned(), target.to_owned(), 1_u64);
    assert_eq!(seen(&["web", "cart"]), [edge("web", "cart")]);
    assert_eq!(seen(&["web"]), [edge("web", "(hidden)")]);
    // The sum that is there is not of this caller's making: nothing is taken out of it.
    assert_eq!(seen(&["cart"]), [edge("(hidden)", "cart"), edge("web", "db")]);
    assert_eq!(seen(&["x"]), [edge("web", "db")]);
}
