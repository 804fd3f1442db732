//! Functions that are not kernels over values: they depend on labels, groups, the order or the query, so the planner
//! implements them. Each [`SpecialKind`] says how, and which helper computes the numbers.

use super::definition::{FunctionDef, Kernel, MATRIX, SpecialKind, VECTOR};
use crate::ast::ValueType::{Scalar, String, Vector};

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
