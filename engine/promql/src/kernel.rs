//! The shapes that kernels work on: samples of one series, the grid of steps, a matrix of results.
//!
//! Between operators values travel as record batches (`docs` in `nodes`); inside, a [`Block`] is the same memory.

use quiver_types::{Histogram, Millis};
use serde::{Deserialize, Serialize};

use crate::range_ends::RangeEnds;

/// The steps of a query: `start + i * step_ms` for `i < steps`. An instant query has one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grid {
    /// Time of the first step.
    pub start: Millis,
    /// Distance of steps in milliseconds, at least 1.
    pub step_ms: i64,
    /// Number of steps, at least 1.
    pub steps: usize,
}

impl Grid {
    /// Gives the time of a step.
    pub fn at(&self, step: usize) -> Millis {
        self.start + step as i64 * self.step_ms
    }

    /// Gives the time of the last step.
    pub fn end(&self) -> Millis {
        self.at(self.steps - 1)
    }
}

/// Samples of one series in time order, stale markers included where the caller of the kernel has not removed them
/// (window functions never see them; look-back does). No time occurs twice, neither within nor across the two lists.
#[derive(Debug, Clone, Copy, Default)]
pub struct SeriesSamples<'a> {
    /// Times of the float samples.
    pub ts: &'a [Millis],
    /// Values of the float samples.
    pub values: &'a [f64],
    /// Start times of the float samples (0 = unset); empty when none has one.
    pub start_ts: &'a [Millis],
    /// Times of the histograms.
    pub hist_ts: &'a [Millis],
    /// The histograms, one per time of `hist_ts`.
    pub hists: &'a [Histogram],
    /// Start times of the histograms (0 = unset); empty when none has one.
    pub hist_start_ts: &'a [Millis],
}

/// How a range selector looks at time: at step time `t` its window is `(t - offset_ms - range_ms, t - offset_ms]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Length of the window in milliseconds.
    pub range_ms: i64,
    /// `offset`; positive looks into the past. A fixed `@` is expressed by a grid of one step.
    pub offset_ms: i64,
    /// Whether the selector is `anchored` or `smoothed`, which gives both ends of the window values of their own.
    pub ends: RangeEnds,
    /// Look-back delta, which bounds the search of `anchored` and `smoothed` for samples outside of the window.
    pub lookback_ms: i64,
}

/// Results of one series: a float or a histogram or nothing per step.
#[derive(Debug, Default)]
pub struct SeriesOut<'a> {
    /// One slot per step.
    pub values: &'a mut [f64],
    /// Whether the slot holds a float.
    pub present: &'a mut [bool],
    /// Histograms by step, ascending; a step has a float or a histogram, not both.
    pub hists: Vec<(u32, Histogram)>,
}

impl SeriesOut<'_> {
    /// Gives a step a float.
    #[inline]
    pub fn set(&mut self, step: usize, value: f64) {
        self.values[step] = value;
        self.present[step] = true;
    }
}

/// A few rows of a step matrix.
#[derive(Debug, Clone, Default)]
pub struct Block {
    /// Row numbers in the operator's `SeriesTable`.
    pub rows: Vec<u32>,
    /// Steps per row.
    pub steps: usize,
    /// `rows.len() * steps` values, row by row; meaningless where not present.
    pub values: Vec<f64>,
    /// Which values are there.
    pub present: Vec<bool>,
    /// Histograms: (index into `rows`, step), ascending. Not present as floats.
    pub hists: Vec<(u32, u32, Histogram)>,
}

impl Block {
    /// Makes a block without rows.
    pub fn new(steps: usize) -> Self {
        Self { steps, ..Self::default() }
    }

    /// About how much memory it takes.
    pub fn memory_bytes(&self) -> usize {
        let hists: usize = self.hists.iter().map(|h| h.2.memory_bytes() + 8).sum();
        self.rows.len() * size_of::<u32>() + self.values.len() * size_of::<f64>() + self.present.len() + hists
    }

    /// Gives values and presence of a row.
    pub fn row(&self, idx: usize) -> (&[f64], &[bool]) {
        let range = idx * self.steps..(idx + 1) * self.steps;
        (&self.values[range.clone()], &self.present[range])
    }
}
