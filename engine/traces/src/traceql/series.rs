//! Series: numbers over time as answers have them, and which of them are given.

use std::collections::{BTreeMap, BTreeSet};

use quiver_types::spans::TraceId;

use super::expressions::{Compare, End};
use super::value::FieldValue;

/// Nanoseconds of a second.
pub(super) const SECOND_NS: f64 = 1e9;

/// Numbers of one series.
#[derive(Debug, Clone, Default)]
pub struct MetricSeries {
    /// Names and values.
    pub labels: Vec<(String, FieldValue)>,
    /// The time behind which the step begins in Unix nanoseconds (0 for a whole window), and its number; NaN is none, also
    /// where steps without spans have 0.
    pub points: Vec<(i64, f64)>,
    /// Spans that its numbers are made of, the first of each step.
    pub exemplars: Vec<MetricExemplar>,
}

/// What is asked of a query over time.
#[derive(Debug, Clone, Copy)]
pub struct MetricWindow {
    /// First and last time, Unix nanoseconds.
    pub range: (i64, i64),
    /// Length of a step in nanoseconds: a step holds the times behind a multiple of it, up to and including the next
    /// one. `None`: one number for the whole range.
    pub step: Option<i64>,
    /// Whether series have exemplars, for which spans must be read.
    pub exemplars: bool,
}

impl MetricWindow {
    /// Asks for the numbers of all steps that end at a time from `start` to `end` or hold `end`, and of the one that holds
    /// `start`: as Tempo does, whose first number stands at `start` rounded down, and whose last at `end` rounded up
    /// (`engine_metrics.go`: `AlignRequest`, `IntervalMapperQueryRange`).
    pub fn of_steps((start, end): (i64, i64), step: i64, exemplars: bool) -> Self {
        let step = step.max(1);
        let first = start.div_euclid(step).saturating_sub(1);
        let last = step_number(end, step).max(first);
        let range = (first.saturating_mul(step).saturating_add(1), last.saturating_add(1).saturating_mul(step));
        Self { range, step: Some(step), exemplars }
    }

    /// Leaves out steps that begin later than a time; the first stays. Tempo also leaves out the step that goes on
    /// (`metrics_query_range_handler.go`: `clampQueryEnd`), so that a panel with one long step shows nothing.
    #[must_use]
    pub fn begun_by(self, now: i64) -> Self {
        let Some(step) = self.step else { return self };
        let first_end = self.range.0.saturating_sub(1).saturating_add(step);
        let last_end = now.saturating_add((-now.rem_euclid(step)).rem_euclid(step)).max(first_end);
        Self { range: (self.range.0, self.range.1.min(last_end)), ..self }
    }

    /// Asks for one number of the whole range.
    pub fn whole(range: (i64, i64)) -> Self {
        Self { range, step: None, exemplars: false }
    }

    /// Numbers of its first and its last step, which begin behind so many times their length; none where it has no
    /// steps.
    pub fn steps(&self) -> Option<(i64, i64)> {
        let step = self.step?;
        Some((step_number(self.range.0, step), step_number(self.range.1, step)))
    }
}

/// The number of the step that holds a time.
fn step_number(time: i64, step: i64) -> i64 {
    time.saturating_sub(1).div_euclid(step)
}

/// The time behind which the step that holds a time begins; without steps all times have the same.
pub(super) fn step_start(time: i64, step: Option<i64>) -> i64 {
    step.map_or(0, |step| step_number(time, step).saturating_mul(step))
}

/// A span that a number is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricExemplar {
    /// The trace that the span is of.
    pub trace: TraceId,
    /// Its start in Unix nanoseconds.
    pub start: i64,
    /// The time behind which the step that shows it begins, Unix nanoseconds.
    pub at: i64,
    /// Its own value; none where spans are counted.
    pub value: Option<f64>,
}

/// Keeps numbers that compare so, divided by the time of rates. With `gaps` a step without spans has no number, else it
/// has 0, and one that is left out is told from it by NaN.
pub(super) fn keep(series: &mut Vec<MetricSeries>, (compare, number): (Compare, f64), by: f64, gaps: bool) {
    let is_kept = |value: f64| compare.holds(value / by, number);
    for one in &mut *series {
        let left_out: BTreeSet<i64> = one.points.iter().filter(|(_, v)| !is_kept(*v)).map(|(at, _)| *at).collect();
        one.exemplars.retain(|exemplar| !left_out.contains(&exemplar.at));
        if gaps {
            one.points.retain(|(_, value)| is_kept(*value));
        } else {
            one.points.iter_mut().filter(|(_, value)| !is_kept(*value)).for_each(|(_, value)| *value = f64::NAN);
        }
    }
    series.retain(|one| !one.points.is_empty());
}

/// Keeps of each step the greatest numbers, or the least; series without any go. Of equal numbers the greatest are those
/// of the first series, and the least those of the last ones.
pub(super) fn pick(series: &mut Vec<MetricSeries>, end: End, most: usize) {
    let mut steps: BTreeMap<i64, Vec<(f64, usize)>> = BTreeMap::new();
    for (n, one) in series.iter().enumerate() {
        one.points.iter().for_each(|(at, value)| steps.entry(*at).or_default().push((*value, n)));
    }
    let mut kept: BTreeSet<(i64, usize)> = BTreeSet::new();
    for (at, mut values) in steps {
        values.sort_by(|a, b| {
            let order = a.0.total_cmp(&b.0).then(b.1.cmp(&a.1));
            if end == End::Greatest { order.reverse() } else { order }
        });
        kept.extend(values.into_iter().take(most).map(|(_, n)| (at, n)));
    }
    for (n, one) in series.iter_mut().enumerate() {
        one.points.retain(|(at, _)| kept.contains(&(*at, n)));
        one.exemplars.retain(|exemplar| kept.contains(&(exemplar.at, n)));
    }
    series.retain(|one| !one.points.is_empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks if the first number or the last is missing, or one stands beside the time that it is of.
    #[test]
    fn windows_have_whole_steps() {
        let window = |start: i64, end: i64| MetricWindow::of_steps((start, end), 60, false);
        for (start, end, range, steps) in [
            (228, 528, (121, 540), (2, 8)),
            (240, 300, (181, 300), (3, 4)),
            (240, 301, (181, 360), (3, 5)),
            (0, 59, (-59, 60), (-1, 0)),
            (0, 0, (-59, 0), (-1, -1)),
            (-61, -60, (-179, -60), (-3, -2)),
        ] {
            let found = window(start, end);
            assert_eq!((found.range, found.steps()), (range, Some(steps)), "{start} to {end}");
        }
        assert_eq!(MetricWindow::whole((5, 9)).steps(), None);
        assert_eq!(MetricWindow::of_steps((i64::MIN, i64::MAX), i64::MAX, false).range.0, i64::MIN + 1);
    }

    /// Breaks if a step that has not begun has a sample, or one that has begun has none.
    #[test]
    fn steps_that_have_not_begun_are_left_out() {
        let window = |start: i64, end: i64| MetricWindow::of_steps((start, end), 60, false);
        for (start, end, now, last) in [
            (240, 528, 1000, 540),
            (240, 528, 540, 540),
            (240, 528, 539, 540),
            (240, 528, 480, 480),
            (240, 600, 541, 600),
            (240, 600, 540, 540),
            // Of a window behind all that was there stays its first step.
            (240, 528, 100, 240),
            (241, 528, 299, 300),
            (0, 0, -100, 0),
        ] {
            let found = window(start, end).begun_by(now);
            assert_eq!((found.range.0, found.range.1), (window(start, end).range.0, last), "{start} to {end} at {now}");
            assert_eq!(found.steps().map(|steps| (steps.1 + 1) * 60), Some(last));
        }
        assert_eq!(MetricWindow::whole((5, 9)).begun_by(7).range, (5, 9));
        let all = MetricWindow::of_steps((i64::MIN, i64::MAX), i64::MAX, false);
        assert!(all.begun_by(i64::MIN).range.1 <= all.range.1);
    }

    #[test]
    fn a_step_holds_its_end_and_not_its_beginning() {
        for (time, step, expected) in [
            (0, Some(60), -60),
            (1, Some(60), 0),
            (60, Some(60), 0),
            (61, Some(60), 60),
            (-1, Some(60), -60),
            (7, None, 0),
        ] {
            assert_eq!(step_start(time, step), expected, "{time}");
        }
        // At the ends of all times.
        let at = |time: i64| step_start(time, Some(1_000));
        assert_eq!((at(i64::MIN), at(i64::MAX)), (i64::MIN, i64::MAX - 807));
        assert_eq!(step_start(i64::MIN, None), 0);
    }

    #[test]
    fn numbers_that_are_left_out_are_told_from_steps_without_spans() {
        let all = || vec![MetricSeries { points: vec![(0, 1.0), (60, 9.0)], ..MetricSeries::default() }];
        let kept = |compare, number, gaps| {
            let mut series = all();
            keep(&mut series, (compare, number), 1.0, gaps);
            series.iter().map(|s| s.points.iter().map(|p| p.1.to_string()).collect()).collect::<Vec<Vec<String>>>()
        };
        assert_eq!(kept(Compare::Greater, 1.0, true), [["9"]]);
        assert_eq!(kept(Compare::Less, 9.0, false), [["1", "NaN"]]);
        assert!(kept(Compare::Greater, 9.0, true).is_empty());
        let mut rates = all();
        keep(&mut rates, (Compare::LessEqual, 0.1), 60.0, true);
        assert_eq!(rates[0].points, [(0, 1.0)]);
    }

    #[test]
    fn picks_are_of_each_step() {
        let one = |points: &[(i64, f64)]| MetricSeries { points: points.to_vec(), ..MetricSeries::default() };
        let all = [one(&[(0, 1.0), (60, 9.0)]), one(&[(0, 2.0), (60, 3.0)]), one(&[(0, 0.5)])];
        let picked = |end| {
            let mut series = all.to_vec();
            pick(&mut series, end, 1);
            series.iter().map(|s| s.points.iter().map(|p| p.0).collect()).collect::<Vec<Vec<i64>>>()
        };
        assert_eq!(picked(End::Greatest), [vec![60], vec![0]]);
        assert_eq!(picked(End::Least), [vec![60], vec![0]]);
    }

    #[test]
    fn of_equal_numbers_the_greatest_are_first_and_the_least_last() {
        let one = |points: &[(i64, f64)]| {
            let exemplar = |&(at, _): &(i64, f64)| MetricExemplar { trace: [1; 16], start: at, at, value: None };
            let exemplars = points.iter().map(exemplar).collect();
            MetricSeries { labels: Vec::new(), points: points.to_vec(), exemplars }
        };
        let all = [one(&[(0, 5.0), (60, 1.0)]), one(&[(0, 5.0), (60, 2.0)]), one(&[(0, 5.0)]), one(&[])];
        let picked = |end: End, most: usize| {
            let mut series = all.to_vec();
            pick(&mut series, end, most);
            let exemplars = |one: &MetricSeries| one.exemplars.iter().map(|e| e.at).collect::<Vec<_>>();
            for one in &series {
                // A span whose number is left out gives no exemplar either.
                assert_eq!(exemplars(one), one.points.iter().map(|p| p.0).collect::<Vec<_>>());
            }
            let shown = |one: &MetricSeries| {
                one.points.iter().map(|(at, value)| format!("{at}:{value}")).collect::<Vec<_>>().join(" ")
            };
            series.iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(picked(End::Greatest, 1), ["0:5", "60:2"]);
        assert_eq!(picked(End::Least, 1), ["60:1", "0:5"]);
        assert_eq!(picked(End::Greatest, 2), ["0:5 60:1", "0:5 60:2"]);
        assert_eq!(picked(End::Greatest, 100), ["0:5 60:1", "0:5 60:2", "0:5"]);
    }
}
