//! Numbers of steps in which there are no spans.

use quiver_query::QueryReservation;

use super::ast::Choice;
use super::expressions::End;
use super::memory::reserve;
use super::series::{MetricSeries, MetricWindow};
use crate::engine::TraceError;

/// Gives each series a number in every step of a window: 0 where it has none.
pub(super) fn fill(
    series: &mut [MetricSeries],
    window: MetricWindow,
    memory: &QueryReservation,
) -> Result<(), TraceError> {
    let (Some(step), Some((first, last))) = (window.step, window.steps()) else { return Ok(()) };
    for one in series {
        reserve(memory, 0, usize::try_from(last - first).unwrap_or_default() + 1, 0)?;
        let mut known = std::mem::take(&mut one.points).into_iter().peekable();
        let number = |at: i64| (at, known.next_if(|point| point.0 == at).map_or(0.0, |point| point.1));
        one.points = (first..=last).map(|n| n.saturating_mul(step)).map(number).collect();
    }
    Ok(())
}

/// Gives series 0 in steps where they have no number, as far as choices may pick it.
pub(super) fn fill_for(
    choices: &[Choice],
    series: &mut [MetricSeries],
    window: MetricWindow,
    memory: &QueryReservation,
) -> Result<(), TraceError> {
    match choices.first() {
        Some(&Choice::Picked(end, most)) => fill_picked(series, window, (end, most), memory),
        _ if choices.iter().any(|choice| matches!(choice, Choice::Picked(..))) => fill(series, window, memory),
        _ => Ok(()),
    }
}

/// Gives 0 to the first series that have no number in a step, as many as may be picked; for the least, to the last. No
/// number is below 0, and of equal ones these are picked.
fn fill_picked(
    series: &mut [MetricSeries],
    window: MetricWindow,
    (end, most): (End, usize),
    memory: &QueryReservation,
) -> Result<(), TraceError> {
    let (Some(step), Some((first, last))) = (window.step, window.steps()) else { return Ok(()) };
    let steps = usize::try_from(last - first).unwrap_or_default() + 1;
    memory.add(steps * size_of::<usize>())?;
    // How many may still be given in each step, and in how many steps any may.
    let (mut left, mut open) = (vec![most; steps], if most > 0 { steps } else { 0 });
    let ordered: Box<dyn Iterator<Item = &mut MetricSeries>> = match end {
        End::Greatest => Box::new(series.iter_mut()),
        End::Least => Box::new(series.iter_mut().rev()),
    };
    for one in ordered {
        if open == 0 {
            return Ok(());
        }
        let has = |n: i64| one.points.binary_search_by_key(&n.saturating_mul(step), |point| point.0).is_ok();
        let given = (first..=last).zip(&left).filter(|(n, left)| **left > 0 && !has(*n)).count();
        if given == 0 {
            continue;
        }
        reserve(memory, 0, one.points.len() + given, 0)?;
        let known = std::mem::take(&mut one.points);
        one.points.reserve_exact(known.len() + given);
        let mut known = known.into_iter().peekable();
        for (n, left) in (first..=last).zip(&mut left) {
            let at = n.saturating_mul(step);
            if let Some(point) = known.next_if(|point| point.0 == at) {
                one.points.push(point);
            } else if *left > 0 {
                *left -= 1;
                open -= usize::from(*left == 0);
                one.points.push((at, 0.0));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::expressions::Compare;
    use super::super::series::pick;
    use super::*;
    use crate::testing::memory;

    #[test]
    fn steps_without_spans_are_filled() {
        let one = |points: &[(i64, f64)]| MetricSeries { points: points.to_vec(), ..MetricSeries::default() };
        let mut all = [one(&[(60, 4.0)]), one(&[])];
        fill(&mut all, MetricWindow::of_steps((60, 180), 60, false), &memory(1 << 20)).expect("memory");
        assert_eq!(all[0].points, [(0, 0.0), (60, 4.0), (120, 0.0)]);
        assert_eq!(all[1].points, [(0, 0.0), (60, 0.0), (120, 0.0)]);
        fill(&mut all, MetricWindow::whole((0, 900)), &memory(1 << 20)).expect("memory");
        assert_eq!(all[0].points.len(), 3);
        let window = MetricWindow::of_steps((0, 10_000), 1, false);
        assert!(fill(&mut all, window, &memory(1 << 10)).is_err(), "there is no memory for so many");
    }

    /// Breaks if something else is picked than of series that have a number in each step.
    #[test]
    fn what_may_be_picked_is_filled() {
        let one = |points: &[(i64, f64)]| MetricSeries { points: points.to_vec(), ..MetricSeries::default() };
        let all = || {
            [one(&[(0, 3.0)]), one(&[]), one(&[(0, 5.0), (120, 2.0)]), one(&[(60, 0.0)]), one(&[(120, 2.0)])].to_vec()
        };
        let window = MetricWindow::of_steps((60, 180), 60, false);
        let points = |series: &[MetricSeries]| series.iter().map(|one| one.points.clone()).collect::<Vec<_>>();
        for end in [End::Greatest, End::Least] {
            for most in 0..6 {
                let (mut few, mut whole) = (all(), all());
                fill_for(&[Choice::Picked(end, most)], &mut few, window, &memory(1 << 20)).expect("memory");
                let given: usize = few.iter().map(|one| one.points.len()).sum();
                assert!(given <= 6 + 3 * most, "{given} for {most}");
                pick(&mut few, end, most);
                fill(&mut whole, window, &memory(1 << 20)).expect("memory");
                pick(&mut whole, end, most);
                assert_eq!(points(&few), points(&whole), "{end:?} {most}");
            }
        }
    }

    /// Breaks if every series of very many gets numbers of which few are picked.
    #[test]
    fn picks_of_very_many_series_need_little() {
        let mut all: Vec<MetricSeries> = (0..100_000)
            .map(|n| MetricSeries { points: vec![(n % 1000 * 60, 1.0)], ..MetricSeries::default() })
            .collect();
        let window = MetricWindow::of_steps((60, 60_000), 60, false);
        fill_for(&[Choice::Picked(End::Greatest, 2)], &mut all, window, &memory(4 << 20)).expect("memory");
        assert_eq!(all.iter().map(|one| one.points.len()).sum::<usize>(), 102_000);
    }

    #[test]
    fn choices_say_what_is_filled() {
        let points = |choices: &[Choice]| {
            let mut all = vec![MetricSeries::default(); 3];
            let window = MetricWindow::of_steps((60, 180), 60, false);
            fill_for(choices, &mut all, window, &memory(1 << 20)).expect("memory");
            all.iter().map(|one| one.points.len()).collect::<Vec<_>>()
        };
        let (kept, picked) = (Choice::Kept(Compare::Less, 5.0), Choice::Picked(End::Least, 1));
        assert_eq!(points(&[]), [0, 0, 0]);
        assert_eq!(points(std::slice::from_ref(&kept)), [0, 0, 0]);
        assert_eq!(points(std::slice::from_ref(&picked)), [0, 0, 3]);
        assert_eq!(points(&[kept, picked]), [3, 3, 3]);
    }
}
