use super::*;

const HOUR: i64 = 60 * MINUTE_NS;

type Times = (i64, i64);

/// What is read of a window: times that roll-ups stand for, and those of spans; ends included.
fn read(range: Times) -> (Option<Times>, Vec<Times>) {
    let sources = Sources::split(range, &[], RollupRequest::Operations);
    let minutes = sources.rollup.map(|request| request.bounds().expect("a request without hours is none"));
    let spans = sources.spans.iter().map(|filter| match filter {
        SpanFilter::Starts(from, to) => (*from, *to),
        SpanFilter::All => ALWAYS,
        other => panic!("{other:?}"),
    });
    (minutes.map(|(from, to)| (from * MINUTE_NS, (to + 1) * MINUTE_NS - 1)), spans.collect())
}

#[test]
fn whole_hours_come_from_roll_ups() {
    let check = |range, hours: Option<(i64, i64)>, spans: &[(i64, i64)]| {
        assert_eq!(read(range), (hours, spans.to_vec()), "{range:?}");
    };
    check((0, HOUR - 1), Some((0, HOUR - 1)), &[]);
    check((-HOUR, -1), Some((-HOUR, -1)), &[]);
    check((1, 2 * HOUR), Some((HOUR, 2 * HOUR - 1)), &[(1, HOUR - 1), (2 * HOUR, 2 * HOUR)]);
    check((-1, HOUR - 1), Some((0, HOUR - 1)), &[(-1, -1)]);
    check((0, HOUR), Some((0, HOUR - 1)), &[(HOUR, HOUR)]);
    // A nanosecond lacks of the only hour.
    for range in [(0, HOUR - 2), (1, HOUR - 1), (1, 2 * HOUR - 2), (5, 5), (7, 6)] {
        check(range, None, &[range]);
    }
}

/// Breaks if a span is counted in a roll-up and read as well, or neither.
#[test]
fn each_time_of_a_window_is_read_once() {
    let near = |time: i64| [-MINUTE_NS, -1, 0, 1, MINUTE_NS].map(|by| time.saturating_add(by));
    let mut times: Vec<i64> = (-2..3).flat_map(|hour| near(hour * HOUR)).collect();
    times.extend(near(i64::MIN / 2).into_iter().chain(near(i64::MAX / 2)));
    times.extend([i64::MIN, i64::MAX]);
    for &from in &times {
        for &to in times.iter().filter(|to| from <= **to) {
            let (hours, spans) = read((from, to));
            for &time in &times {
                let read = hours.iter().chain(&spans).filter(|part| (part.0..=part.1).contains(&time)).count();
                assert_eq!(read, usize::from((from..=to).contains(&time)), "{time} of {from}..={to}");
            }
        }
    }
}

/// Conditions on single spans cannot be answered from roll-ups.
#[test]
fn conditions_are_asked_of_spans() {
    let condition = SpanFilter::Starts(3, 9);
    let sources = Sources::split((0, 10 * HOUR), std::slice::from_ref(&condition), RollupRequest::Operations);
    assert!(sources.rollup.is_none());
    assert_eq!(sources.spans.len(), 1);
    let always = Sources::split(ALWAYS, std::slice::from_ref(&condition), RollupRequest::Instances);
    assert_eq!(format!("{:?}", always.spans), format!("{:?}", [condition]));
}
