//! Kernels that map each element of an instant vector, in place on a block: one call for all rows and steps.
//!
//! Functions of floats drop histograms, functions of histograms drop floats. All drop metric names.

use quiver_types::Histogram;

use super::call::ScalarSteps;
use crate::kernel::Block;

/// How a function of an instant vector treats each element.
#[derive(Debug, Clone, Copy)]
pub enum ElementwiseKernel {
    /// A function of the float; histograms are dropped.
    Float(fn(f64) -> f64),
    /// A function of a row's floats and the scalar arguments of the call. Takes values and presence of one row.
    WithScalars(fn(&mut [f64], &mut [bool], &[ScalarSteps<'_>])),
    /// A function of the float as Unix time in seconds. If the call has no arguments, its input is `vector(time())`.
    Date(fn(i64) -> f64),
    /// A function of the native histogram that gives a float; floats are dropped.
    Histogram(fn(&Histogram) -> f64),
}

impl ElementwiseKernel {
    /// Applies the function to all elements of a block; `params` are the scalar arguments of the call.
    pub fn apply(&self, block: &mut Block, params: &[ScalarSteps<'_>]) {
        if let Self::Histogram(f) = self {
            block.present.fill(false);
            for (row, step, histogram) in std::mem::take(&mut block.hists) {
                let i = row as usize * block.steps + step as usize;
                block.values[i] = f(&histogram);
                block.present[i] = true;
            }
            return;
        }
        block.hists.clear();
        match self {
            // Slots without a value are computed as well, which is cheaper than checking; they are never read.
            Self::Float(f) => block.values.iter_mut().for_each(|v| *v = f(*v)),
            Self::Date(f) => block.values.iter_mut().for_each(|v| *v = f(unix_seconds(*v))),
            Self::WithScalars(f) => {
                let steps = block.steps.max(1);
                let rows = block.values.chunks_exact_mut(steps).zip(block.present.chunks_exact_mut(steps));
                rows.for_each(|(values, present)| f(values, present, params));
            }
            Self::Histogram(_) => {}
        }
    }
}

/// Converts like Go on amd64: truncates, and out-of-range values become the smallest number.
fn unix_seconds(v: f64) -> i64 {
    if (-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&v) { v as i64 } else { i64::MIN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block {
        Block {
            rows: vec![0, 1],
            steps: 2,
            values: vec![-1.0, 4.0, 9.0, 0.0],
            present: vec![true, true, true, false],
            hists: vec![(1, 1, Histogram { count: 7.0, ..Histogram::default() })],
        }
    }

    #[test]
    fn floats_drop_histograms() {
        let mut b = block();
        ElementwiseKernel::Float(f64::abs).apply(&mut b, &[]);
        assert_eq!(b.values[..3], [1.0, 4.0, 9.0]);
        assert_eq!(b.present, [true, true, true, false]);
        assert!(b.hists.is_empty());
    }

    #[test]
    fn histograms_drop_floats() {
        let mut b = block();
        ElementwiseKernel::Histogram(|h| h.count).apply(&mut b, &[]);
        assert_eq!(b.present, [false, false, false, true]);
        assert_eq!(b.values[3], 7.0);
    }

    #[test]
    fn times_that_do_not_fit_are_the_smallest() {
        for (value, seconds) in [
            (1.9, 1),
            (-1.9, -1),
            (-0.0, 0),
            (9_223_372_036_854_774_784.0, 9_223_372_036_854_774_784),
            (9_223_372_036_854_775_808.0, i64::MIN),
            (-9_223_372_036_854_775_808.0, i64::MIN),
            (-1e19, i64::MIN),
            (f64::INFINITY, i64::MIN),
            (f64::NEG_INFINITY, i64::MIN),
            (f64::NAN, i64::MIN),
        ] {
            assert_eq!(unix_seconds(value), seconds, "{value}");
        }
    }

    #[test]
    fn rows_have_the_parameters_of_their_steps() {
        fn add(values: &mut [f64], present: &mut [bool], params: &[ScalarSteps<'_>]) {
            for (step, (value, present)) in values.iter_mut().zip(present).enumerate() {
                *value += params[0].at(step) * params[1].at(step);
                *present &= *value < 100.0;
            }
        }
        let mut b = block();
        let params = [ScalarSteps::new(&[1.0, 10.0]), ScalarSteps::new(&[10.0])];
        ElementwiseKernel::WithScalars(add).apply(&mut b, &params);
        assert_eq!(b.values, [9.0, 104.0, 19.0, 100.0]);
        assert_eq!(b.present, [true, false, true, false]);
        assert!(b.hists.is_empty());
        let mut nothing = Block::new(2);
        ElementwiseKernel::WithScalars(add).apply(&mut nothing, &params);
        ElementwiseKernel::Histogram(|h| h.sum).apply(&mut nothing, &[]);
        assert!(nothing.values.is_empty() && nothing.present.is_empty());
        let mut dates = block();
        ElementwiseKernel::Date(|t| t as f64 * 2.0).apply(&mut dates, &[]);
        assert_eq!(dates.values, [-2.0, 8.0, 18.0, 0.0]);
    }
}
