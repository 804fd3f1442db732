//! What a kernel is called with: scalar arguments by step, the windows of a range function, and a context that collects
//! annotations and provides buffers.
//!
//! One [`KernelContext`] serves all series of an operator; only `metric_name` changes between them.

use quiver_query::Pace;
use quiver_types::Millis;

use super::annotations::{self, Notes};
use crate::annotation::{AnnotationPlace, Annotations};
use crate::kernel::{Grid, Window};
use crate::window::cursor::Cursor;

/// A scalar argument: one value per step, or a single value for all of them.
#[derive(Debug, Clone, Copy)]
pub struct ScalarSteps<'a> {
    values: &'a [f64],
}

impl<'a> ScalarSteps<'a> {
    /// Wraps values; the length is the number of steps of the grid, or 1.
    pub fn new(values: &'a [f64]) -> Self {
        Self { values }
    }

    /// Restricts the values to some steps.
    #[must_use]
    pub fn within(self, steps: &std::ops::Range<usize>) -> Self {
        if self.values.len() == 1 { self } else { Self { values: &self.values[steps.clone()] } }
    }

    /// The value at a step.
    pub fn at(&self, step: usize) -> f64 {
        if self.values.len() == 1 { self.values[0] } else { self.values[step] }
    }

    /// The value if it is the same for all steps.
    pub fn constant(&self) -> Option<f64> {
        (self.values.len() == 1).then(|| self.values[0])
    }

    /// Gives the values, one or one per step.
    pub fn values(&self) -> &'a [f64] {
        self.values
    }
}

/// A call of a range function, the same for all series.
#[derive(Debug, Clone, Copy)]
pub struct RangeCall<'a> {
    /// Steps of the result.
    pub grid: Grid,
    /// Range and offset of the windows, and whether the selector is `anchored` or `smoothed`.
    pub window: Window,
    /// A fixed `@`: all steps use the window that ends at this time (minus the offset). Only needed if the result still
    /// depends on the step (`predict_linear`); otherwise use a grid of one step.
    pub at: Option<Millis>,
    /// The scalar arguments in the order of the call, the range vector left out.
    pub params: &'a [ScalarSteps<'a>],
    /// The float samples in the window of each step, if already known: series that were sampled at the same times share
    /// them. Only for series without histograms.
    pub windows: Option<&'a [Cursor]>,
    /// Is told about work within the windows of one series; if it signals cancellation, the function stops early.
    pub pace: Option<&'a Pace>,
}

impl RangeCall<'_> {
    /// End of a step's window (inclusive).
    pub fn end(&self, step: usize) -> Millis {
        self.at.unwrap_or_else(|| self.grid.at(step)) - self.window.offset_ms
    }

    /// Gives start (exclusive) and end (inclusive) of the window of a step.
    pub fn bounds(&self, step: usize) -> (Millis, Millis) {
        let end = self.end(step);
        (end - self.window.range_ms, end)
    }

    /// Gives the length of the range in seconds.
    pub fn range_s(&self) -> f64 {
        self.window.range_ms as f64 / 1000.0
    }
}

/// Where a kernel reports annotations and borrows buffers.
#[derive(Debug)]
pub struct KernelContext<'a> {
    /// Where annotations go.
    pub annotations: &'a mut Annotations,
    /// The **first argument** of the call, whatever its type, which all annotations are about; all arguments are evaluated
    /// before.
    pub place: AnnotationPlace,
    /// Metric name of the current series, empty if it has none.
    pub metric_name: &'a str,
    /// Buffers that are reused for all series.
    pub scratch: &'a mut Scratch,
}

impl KernelContext<'_> {
    /// Adds the annotations that a kernel noted for the series.
    pub(crate) fn note(&mut self, notes: Notes) {
        if notes.is_empty() {
            return;
        }
        notes.write(self.annotations, self.place, self.metric_name);
    }

    /// Adds an annotation that a rate was computed of something that does not look like a counter.
    pub(crate) fn note_possible_non_counter(&mut self) {
        let name = self.metric_name;
        // Most series of an operator have the same name: build the text only once for it.
        if names_counter(name) || self.scratch.noted_non_counter == name {
            return;
        }
        name.clone_into(&mut self.scratch.noted_non_counter);
        self.annotations.info(self.place, annotations::possible_non_counter(name));
    }
}

/// Tells whether a metric with this name may be a counter; true for an empty name.
pub(crate) fn names_counter(name: &str) -> bool {
    name.is_empty() || ["_total", "_sum", "_count", "_bucket"].iter().any(|s| name.ends_with(s))
}

/// Buffers that kernels reuse from series to series. Make one per operator and thread.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) floats: Vec<f64>,
    pub(crate) pairs: Vec<(f64, f64)>,
    pub(crate) events: Vec<(u32, f64)>,
    pub(crate) marks: Vec<u32>,
    pub(crate) deque: std::collections::VecDeque<u32>,
    noted_non_counter: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::Level;
    use crate::ast::PosRange;
    use crate::functions::annotations::Note;
    use crate::range_ends::RangeEnds;

    #[test]
    fn scalars_are_one_value_or_one_for_each_step() {
        let (one, many) = (ScalarSteps::new(&[7.0]), ScalarSteps::new(&[1.0, 2.0, 3.0, 4.0]));
        assert_eq!((one.at(0), one.at(99), many.at(3)), (7.0, 7.0, 4.0));
        assert_eq!((one.constant(), many.constant()), (Some(7.0), None));
        let part = many.within(&(1..3));
        assert_eq!((part.values(), part.at(0)), (&[2.0, 3.0][..], 2.0));
        assert_eq!(one.within(&(5..9)).at(3), 7.0, "what is the same everywhere is so in each part");
        // One step that is left of many has one value, which is then that of all.
        assert_eq!(many.within(&(2..3)).constant(), Some(3.0));
    }

    #[test]
    fn windows_end_at_their_step_or_where_at_says() {
        let grid = Grid { start: 1000, step_ms: 50, steps: 3 };
        let window = Window { range_ms: 300, offset_ms: 20, ends: RangeEnds::Samples, lookback_ms: 1 };
        let call = RangeCall { grid, window, at: None, params: &[], windows: None, pace: None };
        assert_eq!((call.bounds(0), call.bounds(2)), ((680, 980), (780, 1080)));
        let fixed = RangeCall { at: Some(500), ..call };
        assert_eq!((fixed.bounds(0), fixed.bounds(2)), ((180, 480), (180, 480)));
        let ahead = RangeCall { window: Window { offset_ms: -20, ..window }, ..call };
        assert_eq!((ahead.end(0), ahead.range_s()), (1020, 0.3));
    }

    /// A text per name, and none for names of counters.
    #[test]
    fn names_that_are_not_those_of_counters() {
        let (mut annotations, mut scratch) = (Annotations::default(), Scratch::default());
        for metric_name in ["a", "a", "b_total", "", "c", "a", "d_sum", "e_count", "f_bucket", "total", "g_Total"] {
            let place = PosRange { start: 2, end: 3 }.into();
            let mut ctx = KernelContext { annotations: &mut annotations, place, metric_name, scratch: &mut scratch };
            ctx.note_possible_non_counter();
            ctx.note(Notes::default());
        }
        let text = "metric might not be a counter, name does not end in _total/_sum/_count/_bucket:";
        let expected: Vec<String> =
            ["a", "c", "g_Total", "total"].iter().map(|name| format!("PromQL info: {text} \"{name}\" (1:3)")).collect();
        assert_eq!(annotations.texts(Level::Info, "rate(a[1m])"), expected);
        assert!(annotations.texts(Level::Warning, "").is_empty());
    }

    #[test]
    fn notes_are_about_the_series_at_hand() {
        let (mut annotations, mut scratch) = (Annotations::default(), Scratch::default());
        let mut notes = Notes::default();
        notes.set(Note::NotCounter);
        for metric_name in ["a", "b"] {
            let place = PosRange::default().into();
            KernelContext { annotations: &mut annotations, place, metric_name, scratch: &mut scratch }.note(notes);
        }
        let told = annotations.texts(Level::Warning, "");
        assert_eq!(told.len(), 2);
        assert!(told[0].contains("not a counter: \"a\"") && told[1].contains("not a counter: \"b\""), "{told:?}");
    }
}
