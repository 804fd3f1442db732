//! Functions over time that compute one number from the floats of a window and ignore histograms.

use super::annotations::{Note, Notes};
use super::call::{KernelContext, RangeCall};
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::window::each;

/// Calls a function with the floats of each window that has any; ignored histograms are annotated.
pub(super) fn of_floats(
    samples: &SeriesSamples<'_>,
    call: &RangeCall<'_>,
    out: &mut SeriesOut<'_>,
    ctx: &mut KernelContext<'_>,
    f: impl Fn(&[f64]) -> f64,
) {
    let mut notes = Notes::default();
    each(samples, call, (0, 0), |w| {
        if w.floats.is_empty() {
            return;
        }
        if !w.hists.is_empty() {
            notes.set(Note::HistogramsIgnored);
        }
        out.values[w.step] = f(&samples.values[w.floats.lo..w.floats.hi]);
        out.present[w.step] = true;
    });
    ctx.note(notes);
}
