//! Computes start and end of a span with several reports, some of which lack a start or a duration.

use quiver_types::spans::{FIRST, NO_DURATION, NO_START, Span};

/// The times in the reports of a span; independent of their order.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// Earliest start in a report.
    start: Option<i64>,
    /// Latest end of the reports that have start and duration.
    end: Option<i64>,
    /// Longest duration of the reports that have a duration but no start.
    duration: Option<i64>,
    /// Earliest of the substituted starts (times of arrival).
    arrival: Option<i64>,
}

impl Times {
    /// Takes the times of a report.
    pub(super) fn of(report: &Span) -> Self {
        let mut times = Self::default();
        times.add(report);
        times
    }

    /// Adds the times of a report.
    pub(super) fn add(&mut self, report: &Span) {
        let told = report.marks & NO_START == 0 && report.start != 0;
        let start = if told { &mut self.start } else { &mut self.arrival };
        *start = Some(start.map_or(report.start, |s| s.min(report.start)));
        if report.marks & NO_DURATION == 0 {
            let (longest, own) =
                if told { (&mut self.end, report.end) } else { (&mut self.duration, report.duration()) };
            *longest = Some(longest.map_or(own, |l| l.max(own)));
        }
    }

    /// Sets the times of the span. If no report has a start, it starts with its first event, or else when it arrived.
    pub(super) fn applied_to(self, mut span: Span) -> Span {
        let first_event = || span.events.iter().map(|e| e.time).filter(|t| *t > 0).min();
        let made_up = || first_event().or(self.arrival).unwrap_or(span.start);
        span.start = self.start.unwrap_or_else(made_up);
        let by_duration = self.duration.map(|d| span.start.saturating_add(d));
        span.end = self.end.max(by_duration).unwrap_or(span.start).max(span.start);
        span.marks &= !(NO_START | NO_DURATION | FIRST);
        span
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::spans::{Attributes, Event};

    use super::super::tests::span;
    use super::*;

    #[test]
    fn what_one_report_lacks_another_tells() {
        // Start, duration; `None`: not told. All came at 1000.
        let check = |reports: &[(Option<i64>, Option<i64>)], events: &[i64], expected: (i64, i64)| {
            let of = |&(start, duration): &(Option<i64>, Option<i64>)| {
                let begin = start.unwrap_or(1000);
                let mut report = span(1, 0, "a", 0, begin, begin + duration.unwrap_or(0));
                report.marks |= if start.is_none() { NO_START } else { 0 };
                report.marks |= if duration.is_none() { NO_DURATION } else { 0 };
                report
            };
            for turn in 0..reports.len() {
                let mut list: Vec<Span> = reports.iter().map(of).collect();
                list.rotate_left(turn);
                let mut times = Times::of(&list[0]);
                list[1..].iter().for_each(|r| times.add(r));
                let event =
                    |&time: &i64| Event { time, name: "e".into(), dropped: 0, attributes: Attributes::default() };
                list[0].events = events.iter().map(event).collect();
                let span = times.applied_to(list.remove(0));
                assert_eq!((span.start, span.end, span.marks), (expected.0, expected.1, 0), "{reports:?}");
            }
        };
        check(&[(Some(5), Some(10)), (None, None)], &[], (5, 15));
        check(&[(Some(5), None), (None, Some(10))], &[], (5, 15));
        check(&[(None, Some(10)), (Some(5), Some(3))], &[], (5, 15));
        check(&[(Some(5), Some(10)), (Some(20), None)], &[], (5, 15));
        check(&[(Some(5), Some(10)), (Some(7), Some(10))], &[], (5, 17));
        check(&[(Some(5), None), (Some(7), None)], &[], (5, 5));
        check(&[(Some(5), None), (Some(3), None), (None, Some(10))], &[], (3, 13));
        check(&[(None, None), (None, None)], &[], (1000, 1000));
        check(&[(None, None), (None, Some(4))], &[], (1000, 1004));
        check(&[(None, None), (None, Some(4))], &[70, 50], (50, 54));
        check(&[(Some(60), None), (None, Some(4))], &[50], (60, 64));
    }
}
