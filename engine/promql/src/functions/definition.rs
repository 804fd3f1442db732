//! What a function is: its signature, its documentation and how it is computed. Each file of functions defines its own with
//! this, and the registry lists them.

use quiver_types::Result;

use super::call::{KernelContext, RangeCall};
use super::elementwise::ElementwiseKernel;
use crate::ast::ValueType;
use crate::kernel::{SeriesOut, SeriesSamples};

/// A function of the language.
#[derive(Debug, Clone, Copy)]
pub struct FunctionDef {
    /// Name as written.
    pub name: &'static str,
    /// What it gives, one sentence.
    pub doc: &'static str,
    /// Types of the arguments.
    pub args: &'static [ValueType],
    /// 0: exactly `args`. n > 0: the last of `args` may be left out or stand up to n times. -1: the last of `args`
    /// may be left out or stand any number of times.
    pub variadic: i32,
    /// Type of the result.
    pub returns: ValueType,
    /// Whether upstream hides it behind a feature flag (all are on here).
    pub experimental: bool,
    /// Whether the result depends on the time of the step even when all arguments are fixed by `@`.
    pub uses_step_time: bool,
    /// How it is computed.
    pub kernel: Kernel,
}

/// How a function is computed.
#[derive(Debug, Clone, Copy)]
pub enum Kernel {
    /// A function of a range vector.
    Range(RangeFunction),
    /// A function of each element of an instant vector.
    Elementwise(ElementwiseKernel),
    /// A function of two scalars.
    Scalar(ScalarKernel),
    /// No kernel of its own: the planner makes operators of it.
    Special(SpecialKind),
}

/// The kernel of a range function: fills the row of one series for all steps of the grid.
///
/// Samples hold no stale markers and cover at least the windows of all steps (for `anchored` also the look-back
/// before the first window, for `smoothed` before the first and after the last); more does no harm. `out` starts
/// with nothing present. Neither steps nor samples allocate; a kernel may use the buffers of the context.
///
/// # Errors
/// Kind `Execution` where the language says that the query fails (`double_exponential_smoothing` with a factor
/// outside of (0, 1)).
pub type RangeKernel = fn(&SeriesSamples<'_>, &RangeCall<'_>, &mut SeriesOut<'_>, &mut KernelContext<'_>) -> Result<()>;

/// The kernel of a function of two scalars.
pub type ScalarKernel = fn(f64, f64) -> f64;

/// What the planner has to know about a range function.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "what the planner asks of each function")]
pub struct RangeFunction {
    /// Which argument is the range vector.
    pub matrix_arg: usize,
    /// Whether the result keeps the name of the metric.
    pub keeps_name: bool,
    /// Whether the selector may be `anchored`.
    pub anchored: bool,
    /// Whether the selector may be `smoothed`.
    pub smoothed: bool,
    /// Whether start timestamps count (subqueries have none).
    pub start_timestamps: bool,
    /// Whether the values of the samples are never looked at (only times and presence).
    pub times_only: bool,
    /// Whether each window is gone over anew, however much it shares with the one before.
    pub rescans: bool,
    /// Fills the row of one series.
    pub run: RangeKernel,
}

/// What the planner has to do for a function that is not a kernel over values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SpecialKind {
    /// `absent(v)`: 1 at steps without any element; labels: those that occur in exactly one `=` matcher of the
    /// selector and in no other matcher, the name left out.
    Absent,
    /// `absent_over_time(m)`: as `absent`, at steps where no series has a sample in its window
    /// (`present_over_time` gives the windows).
    AbsentOverTime,
    /// `scalar(v)`: the float of the only element with a float, else NaN.
    Scalar,
    /// `vector(s)`: one element without labels.
    Vector,
    /// `time()`: the time of the step in seconds.
    Time,
    /// `pi()`
    Pi,
    /// `start()`: first step of the query in seconds.
    Start,
    /// `end()`: end of the query in seconds, as asked for; the last step may lie before it.
    End,
    /// `step()`: step of the query in seconds.
    Step,
    /// `range()`: end minus start in seconds.
    Range,
    /// `label_replace(v, dst, replacement, src, regex)`; the regex is anchored and `.` matches line ends.
    LabelReplace,
    /// `label_join(v, dst, separator, src...)`: the values of the labels `src` with the separator between
    LabelJoin,
    /// `sort(v)`: ascending, NaN last, histograms dropped; warns in range queries (`notes::sort_in_range_query`).
    Sort,
    /// `sort_desc(v)`: descending, NaN last, otherwise as `sort`.
    SortDesc,
    /// `sort_by_label(v, label...)`: natural order of label values, then of all labels.
    SortByLabel,
    /// `sort_by_label_desc(v, label...)`: the reverse.
    SortByLabelDesc,
    /// `histogram_quantile(q, v)`: rows grouped by labels without `le`; `quantile::bucket_quantile` for the floats of
    /// a group, `quantile::histogram_quantile` for histograms. Both at once: a warning and no result.
    HistogramQuantile,
    /// `histogram_quantiles(v, label, q...)`: `histogram_quantile` for each q, which becomes the value of `label`.
    HistogramQuantiles,
    /// `histogram_fraction(lower, upper, v)`: with `quantile::bucket_fraction`, `quantile::histogram_fraction`.
    HistogramFraction,
    /// `info(v, selector)`: adds the data labels of info series.
    Info,
    /// `timestamp(v)`: of a selector the time of the sample (`window::instant` with `InstantValue::Timestamp`), of
    /// anything else the time of the step.
    Timestamp,
    /// `start_timestamp(v)`: of a selector the start time of the sample (0 when unset), of anything else nothing.
    StartTimestamp,
}

impl RangeFunction {
    pub(crate) const fn new(run: RangeKernel) -> Self {
        Self {
            matrix_arg: 0,
            keeps_name: false,
            anchored: false,
            smoothed: false,
            start_timestamps: false,
            times_only: false,
            rescans: false,
            run,
        }
    }

    pub(crate) const fn rescanning(self) -> Self {
        Self { rescans: true, ..self }
    }
}

impl FunctionDef {
    pub(crate) const fn new(
        name: &'static str,
        args: &'static [ValueType],
        returns: ValueType,
        kernel: Kernel,
        doc: &'static str,
    ) -> Self {
        Self { name, doc, args, variadic: 0, returns, experimental: false, uses_step_time: false, kernel }
    }

    pub(crate) const fn range(
        name: &'static str,
        args: &'static [ValueType],
        function: RangeFunction,
        doc: &'static str,
    ) -> Self {
        Self::new(name, args, ValueType::Vector, Kernel::Range(function), doc)
    }

    pub(crate) const fn variadic(mut self, variadic: i32) -> Self {
        self.variadic = variadic;
        self
    }

    pub(crate) const fn experimental(mut self) -> Self {
        self.experimental = true;
        self
    }

    pub(crate) const fn with_step_time(mut self) -> Self {
        self.uses_step_time = true;
        self
    }
}

/// One range vector.
pub(crate) const MATRIX: &[ValueType] = &[ValueType::Matrix];
/// One instant vector.
pub(crate) const VECTOR: &[ValueType] = &[ValueType::Vector];
