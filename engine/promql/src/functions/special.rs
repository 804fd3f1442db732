//! Functions that are not a kernel over values: they look at labels, groups, the order or the query, so the planner
//! carries them out. Each kind says how, and which helper computes the numbers.

use super::{FunctionDef, Kernel, MATRIX, VECTOR};
use crate::ast::ValueType::{Scalar, String, Vector};

/// What the planner has to do.
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

const fn special(
    name: &'static str,
    args: &'static [crate::ast::ValueType],
    returns: crate::ast::ValueType,
    kind: SpecialKind,
    doc: &'static str,
) -> FunctionDef {
    FunctionDef::new(name, args, returns, Kernel::Special(kind), doc)
}

pub(super) const ABSENT: FunctionDef =
    special("absent", VECTOR, Vector, SpecialKind::Absent, "1 when the vector has no elements.");
pub(super) const ABSENT_OVER_TIME: FunctionDef = special(
    "absent_over_time",
    MATRIX,
    Vector,
    SpecialKind::AbsentOverTime,
    "1 when no series has samples in the range.",
);
pub(super) const SCALAR: FunctionDef =
    special("scalar", VECTOR, Scalar, SpecialKind::Scalar, "The value of the only element as a scalar, else NaN.");
pub(super) const VECTOR_: FunctionDef =
    special("vector", &[Scalar], Vector, SpecialKind::Vector, "The scalar as a vector without labels.");
pub(super) const TIME: FunctionDef =
    special("time", &[], Scalar, SpecialKind::Time, "The evaluation time in seconds since the epoch.").with_step_time();
pub(super) const PI: FunctionDef = special("pi", &[], Scalar, SpecialKind::Pi, "The number pi.");
pub(super) const START: FunctionDef =
    special("start", &[], Scalar, SpecialKind::Start, "The start of the query in seconds since the epoch.")
        .experimental()
        .with_step_time();
pub(super) const END: FunctionDef =
    special("end", &[], Scalar, SpecialKind::End, "The end of the query in seconds since the epoch.")
        .experimental()
        .with_step_time();
pub(super) const STEP: FunctionDef =
    special("step", &[], Scalar, SpecialKind::Step, "The step of the query in seconds.")
        .experimental()
        .with_step_time();
pub(super) const RANGE: FunctionDef =
    special("range", &[], Scalar, SpecialKind::Range, "The length of the query's time range in seconds.")
        .experimental()
        .with_step_time();
pub(super) const LABEL_REPLACE: FunctionDef = special(
    "label_replace",
    &[Vector, String, String, String, String],
    Vector,
    SpecialKind::LabelReplace,
    "Sets a label from a regular expression over another one.",
);
pub(super) const LABEL_JOIN: FunctionDef = special(
    "label_join",
    &[Vector, String, String, String],
    Vector,
    SpecialKind::LabelJoin,
    "Sets a label to the joined values of others.",
)
.variadic(-1);
pub(super) const SORT: FunctionDef = special("sort", VECTOR, Vector, SpecialKind::Sort, "Elements by ascending value.");
pub(super) const SORT_DESC: FunctionDef =
    special("sort_desc", VECTOR, Vector, SpecialKind::SortDesc, "Elements by descending value.");
pub(super) const SORT_BY_LABEL: FunctionDef = special(
    "sort_by_label",
    &[Vector, String],
    Vector,
    SpecialKind::SortByLabel,
    "Elements by the natural order of label values.",
)
.variadic(-1)
.experimental();
pub(super) const SORT_BY_LABEL_DESC: FunctionDef = special(
    "sort_by_label_desc",
    &[Vector, String],
    Vector,
    SpecialKind::SortByLabelDesc,
    "Elements by the reverse natural order of label values.",
)
.variadic(-1)
.experimental();
pub(super) const HISTOGRAM_QUANTILE: FunctionDef = special(
    "histogram_quantile",
    &[Scalar, Vector],
    Vector,
    SpecialKind::HistogramQuantile,
    "The quantile of classic or native histograms.",
);
pub(super) const HISTOGRAM_QUANTILES: FunctionDef = special(
    "histogram_quantiles",
    &[Vector, String, Scalar, Scalar],
    Vector,
    SpecialKind::HistogramQuantiles,
    "Several quantiles of classic or native histograms, told apart by a label.",
)
.variadic(9)
.experimental();
pub(super) const HISTOGRAM_FRACTION: FunctionDef = special(
    "histogram_fraction",
    &[Scalar, Scalar, Vector],
    Vector,
    SpecialKind::HistogramFraction,
    "The fraction of observations between two values.",
);
pub(super) const INFO: FunctionDef =
    special("info", &[Vector, Vector], Vector, SpecialKind::Info, "Adds labels of matching info series.")
        .variadic(1)
        .experimental();
pub(super) const TIMESTAMP: FunctionDef =
    special("timestamp", VECTOR, Vector, SpecialKind::Timestamp, "The time of each sample in seconds since the epoch.")
        .with_step_time();
pub(super) const START_TIMESTAMP: FunctionDef = special(
    "start_timestamp",
    VECTOR,
    Vector,
    SpecialKind::StartTimestamp,
    "The start time of each sample in seconds since the epoch.",
)
.experimental();
