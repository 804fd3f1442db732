//! Series: numbers over time as answers have them, and which of them are given.

use std::collections::{BTreeMap, BTreeSet};

use quiver_types::spans::TraceId;
use serde_json::Value as Json;

use super::expressions::{Compare, End};

/// Nanoseconds of a second.
pub(super) const SECOND_NS: f64 = 1e9;

/// Numbers of one series.
#[derive(Debug, Clone, Default)]
pub struct MetricSeries {
    /// Names and values, values in OTLP/JSON.
    pub labels: Vec<(String, Json)>,
    /// Start of the step in Unix nanoseconds (0 for a whole window), and its number; NaN is none, also where steps
    /// without spans have 0.
    pub points: Vec<(i64, f64)>,
    /// Spans that its numbers are made of, the first of each step.
    pub exemplars: Vec<MetricExemplar>,
}

/// What is asked of a query over time.
#[derive(Debug, Clone, Copy)]
pub struct MetricWindow {
    /// First and last time, Unix nanoseconds.
    pub range: (i64, i64),
    /// Length of a step in nanoseconds; steps begin at multiples of it. `None`: one number for the whole range.
    pub step: Option<i64>,
    /// Whether series have exemplars, for which spans must be read.
    pub exemplars: bool,
}

/// A span that a number is made of.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MetricExemplar {
    /// The trace that the span is of.
    pub trace: TraceId,
    /// Its start in Unix nanoseconds.
    pub start: i64,
    /// Start of the step that shows it, Unix nanoseconds.
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

/// Keeps of each step the greatest numbers, or the least; series without any go.
pub(super) fn pick(series: &mut Vec<MetricSeries>, end: End, most: usize) {
    let mut steps: BTreeMap<i64, Vec<(f64, usize)>> = BTreeMap::new();
    for (n, one) in series.iter().enumerate() {
        one.points.iter().for_each(|(at, value)| steps.entry(*at).or_default().push((*value, n)));
    }
    let mut kept: BTreeSet<(i64, usize)> = BTreeSet::new();
    for (at, mut values) in steps {
        values.sort_by(|a, b| {
            let order = a.0.total_cmp(&b.0);
            (if end == End::Greatest { order.reverse() } else { order }).then(a.1.cmp(&b.1))
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
    fn of_equal_numbers_the_first_series_are_picked() {
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
                // A span of a number that is not given is none of its series either.
                assert_eq!(exemplars(one), one.points.iter().map(|p| p.0).collect::<Vec<_>>());
            }
            let shown = |one: &MetricSeries| {
                one.points.iter().map(|(at, value)| format!("{at}:{value}")).collect::<Vec<_>>().join(" ")
            };
            series.iter().map(shown).collect::<Vec<_>>()
        };
        assert_eq!(picked(End::Greatest, 1), ["0:5", "60:2"]);
        assert_eq!(picked(End::Least, 1), ["0:5 60:1"]);
        assert_eq!(picked(End::Greatest, 2), ["0:5 60:1", "0:5 60:2"]);
        assert_eq!(picked(End::Greatest, 100), ["0:5 60:1", "0:5 60:2", "0:5"]);
    }
}
