//! Numbers of steps in which there are no spans.

use quiver_query::QueryReservation;

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

#[cfg(test)]
mod tests {
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
}
