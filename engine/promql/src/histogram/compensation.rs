//! The compensation terms of a histogram that is summed up: what rounding has lost of each of its numbers.

use quiver_types::Histogram;

/// What the numbers of a histogram have lost; the lists run parallel to the histogram's counts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Compensation {
    pub(super) zero_count: f64,
    pub(super) count: f64,
    pub(super) sum: f64,
    pub(super) positive: Vec<f64>,
    pub(super) negative: Vec<f64>,
}

impl Compensation {
    /// Makes one that has lost nothing yet.
    pub fn new(h: &Histogram) -> Self {
        Self { positive: vec![0.0; h.positive.len()], negative: vec![0.0; h.negative.len()], ..Self::default() }
    }

    /// Gives the numbers in the places of those that lost them, so that both travel in one form.
    pub fn into_histogram(self) -> Histogram {
        let Self { zero_count, count, sum, positive, negative } = self;
        Histogram { zero_count, count, sum, positive, negative, ..Histogram::default() }
    }

    /// Takes the numbers out of these places again.
    pub fn of_histogram(h: Histogram) -> Self {
        let Histogram { zero_count, count, sum, positive, negative, .. } = h;
        Self { zero_count, count, sum, positive, negative }
    }

    /// Scales along with the histogram.
    pub fn scale(&mut self, f: impl Fn(f64) -> f64) {
        for v in [&mut self.zero_count, &mut self.count, &mut self.sum] {
            *v = f(*v);
        }
        self.positive.iter_mut().chain(&mut self.negative).for_each(|v| *v = f(*v));
    }

    /// Adds what was lost to the histogram.
    pub fn restore_to(&self, h: &mut Histogram) {
        h.zero_count += self.zero_count;
        h.count += self.count;
        h.sum += self.sum;
        h.positive.iter_mut().zip(&self.positive).for_each(|(v, c)| *v += c);
        h.negative.iter_mut().zip(&self.negative).for_each(|(v, c)| *v += c);
    }
}
