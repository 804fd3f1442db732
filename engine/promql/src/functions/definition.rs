//! The definition of a function: signature, documentation and kernel. Each file of functions defines its own, and the
//! registry lists them.

use quiver_types::Result;

use super::call::{KernelContext, RangeCall};
use super::elementwise::ElementwiseKernel;
use crate::ast::ValueType;
use crate::kernel::{SeriesOut, SeriesSamples};
use crate::range_ends::RangeEnds;

/// A function of the language.
#[derive(Debug, Clone, Copy)]
pub struct FunctionDef {
    /// Name as written.
    pub name: &'static str,
    /// What it returns, in one sentence.
    pub doc: &'static str,
    /// Types of the arguments.
    pub args: &'static [ValueType],
    /// 0: exactly `args`. n > 0: the last of `args` may be omitted or repeated up to n times. -1: the last of `args`
    /// may be omitted or repeated any number of times.
    pub variadic: i32,
    /// Type of the result.
    pub returns: ValueType,
    /// Whether Prometheus requires a feature flag for it (here all functions are enabled).
    pub experimental: bool,
    /// Whether the result depends on the time of the step even if all arguments are fixed by `@`.
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
    /// No kernel: the planner implements it with operators.
    Special(SpecialKind),
}

/// The kernel of a range function: fills the row of one series for all steps of the grid.
///
/// Samples contain no stale markers and cover at least the windows of all steps (for `anchored` also the lookback
/// before the first window, for `smoothed` before the first and after the last); more does no harm. `out` starts empty.
/// Kernels do not allocate per step or sample; they may use the buffers of the context.
///
/// # Errors
/// Kind `Execution` if the query must fail according to the language (`double_exponential_smoothing` with a factor
/// outside (0, 1)).
pub type RangeKernel = fn(&SeriesSamples<'_>, &RangeCall<'_>, &mut SeriesOut<'_>, &mut KernelContext<'_>) -> Result<()>;

/// The kernel of a function of two scalars.
pub type ScalarKernel = fn(f64, f64) -> f64;

/// What the planner needs to know about a range function.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_excessive_bools, reason = "what the planner asks of each function")]
pub struct RangeFunction {
    /// Which argument is the range vector.
    pub matrix_arg: usize,
    /// Whether the result keeps the metric name.
    pub keeps_name: bool,
    /// Whether the selector may be `anchored`.
    pub anchored: bool,
    /// Whether the selector may be `smoothed`.
    pub smoothed: bool,
    /// Whether start timestamps are needed (subqueries have none).
    pub start_timestamps: bool,
    /// Whether only times and presence of samples matter, not their values.
    pub times_only: bool,
    /// Whether each window is rescanned, even where it overlaps the previous one.
    pub rescans: bool,
    /// Fills the row of one series.
    pub run: RangeKernel,
}

/// Functions that the planner implements, because they are not kernels over values.
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

    /// Whether its selector may have these ends.
    pub(crate) fn takes(&self, ends: RangeEnds) -> bool {
        match ends {
            RangeEnds::Samples => true,
            RangeEnds::Anchored => self.anchored,
            RangeEnds::Smoothed => self.smoothed,
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
