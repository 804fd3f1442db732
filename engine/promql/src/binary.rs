//! Binary operators on rows of values: float with float in dense loops, histograms where there are any.
//!
//! [`Operation::apply`] works on one pair of rows (or a row and a scalar); the planner decides which rows are pairs.
//! Comparisons without `bool` filter and keep the left value (the vector's, when the other side is a scalar).
//!
//! Semantics: Prometheus 3.14 `promql/engine.go`: `vectorElemBinop`, `VectorscalarBinop`, `scalarBinop`.

mod float;
mod histogram;

pub use float::scalar;

use quiver_types::Histogram;

use crate::annotation::Annotations;
use crate::ast::{BinaryOp, PosRange};
use crate::functions::ScalarSteps;
use crate::functions::annotations::{self, HistogramOperation};
use crate::kernel::SeriesOut;

/// An operand of a binary operator, as one series of the output meets it.
#[derive(Debug, Clone, Copy)]
pub enum Side<'a> {
    /// A row of a vector: values and presence of its floats by step, and its histograms by step, ascending.
    Row {
        /// One slot per step of the query; meaningless where not present.
        values: &'a [f64],
        /// Whether the slot holds a float.
        present: &'a [bool],
        /// Histograms by step.
        hists: &'a [(u32, Histogram)],
    },
    /// A scalar; never keeps its value in a filter.
    Scalar(ScalarSteps<'a>),
    /// The value that stands in for a missing row (`fill`): a vector's element with this float at all steps.
    Fill(f64),
}

impl<'a> Side<'a> {
    fn hists(&self) -> &'a [(u32, Histogram)] {
        match self {
            Self::Row { hists, .. } => hists,
            Self::Scalar(_) | Self::Fill(_) => &[],
        }
    }

    fn float(&self, step: usize) -> Option<f64> {
        match self {
            Self::Row { values, present, .. } => present[step].then(|| values[step]),
            Self::Scalar(s) => Some(s.at(step)),
            Self::Fill(v) => Some(*v),
        }
    }
}

/// What happened that is worth an annotation; the same for all rows of an operator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BinaryNotes {
    bits: u8,
}

const FLOAT_HISTOGRAM: u8 = 1;
const HISTOGRAM_FLOAT: u8 = 2;
const HISTOGRAM_HISTOGRAM: u8 = 4;
const FLOAT_FLOAT: u8 = 8;
const LAYOUT: u8 = 16;
const COLLISION: u8 = 32;
const RECONCILED: u8 = 64;

impl BinaryNotes {
    /// Says whether there is nothing to note.
    pub fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// Takes over what another one noted.
    pub fn merge(&mut self, other: Self) {
        self.bits |= other.bits;
    }

    fn set(&mut self, bit: u8) {
        self.bits |= bit;
    }

    /// Writes the annotations; `pos` is the position of the whole binary expression.
    pub fn write(&self, op: BinaryOp, pos: PosRange, annotations: &mut Annotations) {
        let has = |bit| self.bits & bit != 0;
        let types = [
            (FLOAT_HISTOGRAM, "float", "histogram"),
            (HISTOGRAM_FLOAT, "histogram", "float"),
            (HISTOGRAM_HISTOGRAM, "histogram", "histogram"),
            (FLOAT_FLOAT, "float", "float"),
        ];
        for (bit, lhs, rhs) in types {
            if has(bit) {
                annotations.info(pos, annotations::incompatible_types(lhs, op.as_str(), rhs));
            }
        }
        let operation =
            if op == BinaryOp::Sub { HistogramOperation::Subtraction } else { HistogramOperation::Addition };
        if has(LAYOUT) {
            annotations.warn(pos, annotations::incompatible_bucket_layout(op.as_str()));
        }
        if has(COLLISION) {
            annotations.warn(pos, annotations::counter_reset_collision(operation));
        }
        if has(RECONCILED) {
            annotations.info(pos, annotations::mismatched_custom_buckets(operation));
        }
    }
}

/// An operator other than `and`, `or` and `unless`, with its modifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// The operator.
    pub op: BinaryOp,
    /// Whether a comparison has the modifier `bool`: it gives 0 or 1, and nothing for what cannot be compared. Without
    /// it, comparisons keep the element of the left vector, or of the only vector.
    pub return_bool: bool,
}

impl Operation {
    /// Applies it to two operands, of which at least one is a row, and fills `out`, which starts with nothing present.
    pub fn apply(self, lhs: &Side<'_>, rhs: &Side<'_>, out: &mut SeriesOut<'_>, notes: &mut BinaryNotes) {
        if matches!(self.op, BinaryOp::TrimUpper | BinaryOp::TrimLower) {
            let both = |i: &usize| lhs.float(*i).is_some() && rhs.float(*i).is_some();
            if (0..out.values.len()).any(|i| both(&i)) {
                notes.set(FLOAT_FLOAT);
            }
        } else {
            float::apply(self, lhs, rhs, out);
        }
        if !(lhs.hists().is_empty() && rhs.hists().is_empty()) {
            histogram::apply(self, lhs, rhs, out, notes);
        }
    }
}

impl Operation {
    /// Says whether two elements cannot be operands of it, which leaves an annotation and no result: such a pair does
    /// not count as a match. `None` stands for a float.
    pub(crate) fn refuses(self, lhs: Option<&Histogram>, rhs: Option<&Histogram>) -> bool {
        use BinaryOp::{Div, Mul, TrimLower, TrimUpper};

        match (lhs, rhs) {
            (None, None) => matches!(self.op, TrimUpper | TrimLower),
            (None, Some(_)) => self.op != Mul,
            (Some(_), None) => !matches!(self.op, Mul | Div | TrimUpper | TrimLower),
            (Some(lhs), Some(rhs)) => histogram::refuses(self.op, lhs, rhs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation::Level;
    use crate::histogram::testing::{custom, exponential, populated};
    use quiver_types::ResetHint;

    struct Got {
        floats: Vec<Option<f64>>,
        hists: Vec<(u32, Histogram)>,
        texts: Vec<String>,
    }

    fn run(op: BinaryOp, return_bool: bool, lhs: &Side<'_>, rhs: &Side<'_>) -> Got {
        let steps =
            [lhs, rhs].iter().find_map(|s| if let Side::Row { values, .. } = s { Some(values.len()) } else { None });
        let steps = steps.unwrap();
        let (mut values, mut present) = (vec![0.0; steps], vec![false; steps]);
        let mut out = SeriesOut { values: &mut values, present: &mut present, hists: vec![] };
        let mut notes = BinaryNotes::default();
        Operation { op, return_bool }.apply(lhs, rhs, &mut out, &mut notes);
        let hists = out.hists;
        let mut annotations = Annotations::default();
        notes.write(op, PosRange::default(), &mut annotations);
        let mut texts = annotations.texts(Level::Warning, "");
        texts.extend(annotations.texts(Level::Info, ""));
        Got { floats: values.iter().zip(&present).map(|(&v, &p)| p.then_some(v)).collect(), hists, texts }
    }

    fn row<'a>(values: &'a [f64], hists: &'a [(u32, Histogram)]) -> Side<'a> {
        const ALL: [bool; 4] = [true; 4];
        const NONE: [bool; 4] = [false; 4];
        let present = if hists.is_empty() { &ALL[..values.len()] } else { &NONE[..values.len()] };
        Side::Row { values, present, hists }
    }

    #[test]
    fn filters_keep_the_vector() {
        let (a, b) = ([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]);
        let two = Side::Scalar(ScalarSteps::new(&[2.0]));
        assert_eq!(run(BinaryOp::Gtr, false, &row(&a, &[]), &row(&b, &[])).floats, [None, None, Some(3.0)]);
        assert_eq!(run(BinaryOp::Lss, false, &row(&a, &[]), &two).floats, [Some(1.0), None, None]);
        assert_eq!(run(BinaryOp::Lss, false, &two, &row(&a, &[])).floats, [None, None, Some(3.0)]);
        assert_eq!(run(BinaryOp::Lss, true, &two, &row(&a, &[])).floats, [Some(0.0), Some(0.0), Some(1.0)]);
        assert_eq!(run(BinaryOp::Gtr, false, &Side::Fill(2.0), &row(&a, &[])).floats, [Some(2.0), None, None]);
        assert_eq!(run(BinaryOp::Sub, false, &two, &row(&a, &[])).floats, [Some(1.0), Some(0.0), Some(-1.0)]);
    }

    #[test]
    fn missing_floats_give_nothing() {
        let a = Side::Row { values: &[1.0, 2.0], present: &[true, false], hists: &[] };
        assert_eq!(run(BinaryOp::Add, false, &a, &row(&[1.0, 1.0], &[])).floats, [Some(2.0), None]);
    }

    #[test]
    fn histograms_and_numbers() {
        let h = [(0, exponential(0, 1, &[4.0, 8.0]))];
        let two = Side::Scalar(ScalarSteps::new(&[2.0]));
        let half = run(BinaryOp::Div, false, &row(&[0.0], &h), &two);
        assert_eq!(populated(&half.hists[0].1), [(1, 2.0), (2, 4.0)]);
        assert_eq!(populated(&run(BinaryOp::Mul, false, &two, &row(&[0.0], &h)).hists[0].1), [(1, 8.0), (2, 16.0)]);
        assert_eq!(populated(&run(BinaryOp::TrimUpper, false, &row(&[0.0], &h), &two).hists[0].1), [(1, 4.0)]);
        let bad = run(BinaryOp::Add, false, &two, &row(&[0.0], &h));
        let text =
            "PromQL info: incompatible sample types encountered for binary operator \"+\": float + histogram (1:1)";
        assert_eq!(bad.texts, [text]);
        assert!(bad.hists.is_empty());
        assert_eq!(run(BinaryOp::TrimLower, false, &row(&[1.0], &[]), &two).texts.len(), 1);
    }

    #[test]
    fn histograms_and_histograms() {
        let a = [(0, exponential(0, 1, &[4.0, 8.0]))];
        let b = [(0, exponential(0, 1, &[4.0, 2.0]))];
        let difference = run(BinaryOp::Sub, false, &row(&[0.0], &a), &row(&[0.0], &b));
        assert_eq!(populated(&difference.hists[0].1), [(2, 6.0)]);
        assert_eq!(difference.hists[0].1.reset_hint, ResetHint::Gauge);
        assert!(run(BinaryOp::Eql, false, &row(&[0.0], &a), &row(&[0.0], &b)).hists.is_empty());
        assert_eq!(run(BinaryOp::Eql, true, &row(&[0.0], &a), &row(&[0.0], &b)).floats, [Some(0.0)]);
        assert_eq!(run(BinaryOp::Neq, false, &row(&[0.0], &a), &row(&[0.0], &b)).hists.len(), 1);
        let c = [(0, custom(&[1.0], &[1.0, 2.0]))];
        let texts = run(BinaryOp::Add, false, &row(&[0.0], &a), &row(&[0.0], &c)).texts;
        assert_eq!(texts, ["PromQL warning: incompatible bucket layout encountered for binary operator + (1:1)"]);
        let d = [(0, custom(&[1.0, 2.0], &[1.0, 2.0, 3.0]))];
        let sum = run(BinaryOp::Add, false, &row(&[0.0], &c), &row(&[0.0], &d));
        assert_eq!(populated(&sum.hists[0].1), [(0, 2.0), (1, 7.0)]);
        assert_eq!(sum.texts, ["PromQL info: mismatched custom buckets were reconciled during addition (1:1)"]);
    }

    #[test]
    fn operators_that_histograms_do_not_know() {
        use BinaryOp::{Add, Atan2, Div, Eql, Gtr, Lss, Mod, Mul, Neq, Pow, Sub, TrimLower, TrimUpper};

        let h = [(0, exponential(0, 1, &[4.0]))];
        let (histogram, float) = (row(&[0.0], &h), row(&[2.0], &[]));
        let two = Side::Scalar(ScalarSteps::new(&[2.0]));
        let text = |lhs: &str, op: BinaryOp, rhs: &str| {
            let op = op.as_str();
            format!(
                "PromQL info: incompatible sample types encountered for binary operator \"{op}\": {lhs} {op} {rhs} (1:1)"
            )
        };
        for op in [Add, Sub, Mod, Pow, Atan2, Eql, Neq, Lss, Gtr] {
            for rhs in [&two, &float, &Side::Fill(2.0)] {
                let got = run(op, false, &histogram, rhs);
                assert_eq!(
                    (got.floats, got.hists.len(), got.texts),
                    (vec![None], 0, vec![text("histogram", op, "float")])
                );
            }
        }
        for op in [Add, Sub, Div, Mod, Pow, Atan2, Eql, Neq, Lss, TrimLower, TrimUpper] {
            let got = run(op, op.is_comparison(), &two, &histogram);
            assert_eq!((got.floats, got.hists.len(), got.texts), (vec![None], 0, vec![text("float", op, "histogram")]));
        }
        for op in [Mul, Div, Mod, Pow, Atan2, Lss, Gtr, TrimLower] {
            let got = run(op, false, &histogram, &histogram);
            assert_eq!(
                (got.floats, got.hists.len(), got.texts),
                (vec![None], 0, vec![text("histogram", op, "histogram")])
            );
        }
        for op in [TrimLower, TrimUpper] {
            let got = run(op, false, &float, &two);
            assert_eq!((got.floats, got.texts), (vec![None], vec![text("float", op, "float")]));
            let missing = Side::Row { values: &[2.0], present: &[false], hists: &[] };
            assert!(run(op, false, &missing, &two).texts.is_empty(), "there was no float");
        }
    }

    /// Breaks if what counts as a match and what has a result come apart.
    #[test]
    fn what_is_refused_has_no_result_and_a_note() {
        use BinaryOp::{Add, Atan2, Div, Eql, Gtr, Lss, Mod, Mul, Neq, Pow, Sub, TrimLower, TrimUpper};

        let hinted = |reset_hint| Histogram { reset_hint, ..exponential(0, 1, &[4.0]) };
        let hists = [hinted(ResetHint::Reset), hinted(ResetHint::NotReset), custom(&[1.0], &[1.0, 2.0])];
        let elements = [None, Some(&hists[0]), Some(&hists[1]), Some(&hists[2])];
        let mut refused = 0;
        for op in [Add, Sub, Mul, Div, Mod, Pow, Atan2, Eql, Neq, Lss, Gtr, TrimLower, TrimUpper] {
            for (l, r) in elements.iter().flat_map(|l| elements.iter().map(move |r| (*l, *r))) {
                let [left, right] = [l, r].map(|h| h.map(|h| (0, h.clone())).into_iter().collect::<Vec<_>>());
                let got = run(op, op.is_comparison(), &row(&[2.0], &left), &row(&[2.0], &right));
                let nothing = got.floats == [None] && got.hists.is_empty();
                let refuses = Operation { op, return_bool: op.is_comparison() }.refuses(l, r);
                assert_eq!(refuses, nothing && !got.texts.is_empty(), "{op:?} {l:?} {r:?}: {:?}", got.texts);
                assert_eq!(refuses, nothing, "{op:?} {l:?} {r:?}");
                refused += usize::from(refuses);
            }
        }
        assert!(refused > 100, "{refused}");
    }

    #[test]
    fn steps_of_either_kind_in_one_row() {
        let hists = [(1, exponential(0, 1, &[4.0])), (3, exponential(0, 1, &[8.0]))];
        let mixed = Side::Row { values: &[1.0, 7.0, 3.0, 7.0], present: &[true, false, true, false], hists: &hists };
        let by_step = Side::Scalar(ScalarSteps::new(&[10.0, 0.5, 0.0, -1.0]));
        let got = run(BinaryOp::Mul, false, &mixed, &by_step);
        assert_eq!(got.floats, [Some(10.0), None, Some(0.0), None]);
        let counts: Vec<(u32, f64)> = got.hists.iter().map(|(step, h)| (*step, h.count)).collect();
        assert_eq!(counts, [(1, 2.0), (3, -8.0)]);
        assert_eq!(got.hists[1].1.reset_hint, ResetHint::Gauge);
        // Of two rows only the steps that both have count.
        let other_hists = [(0, exponential(0, 1, &[1.0])), (3, exponential(0, 1, &[8.0]))];
        let other =
            Side::Row { values: &[7.0, 2.0, 5.0, 7.0], present: &[false, true, true, false], hists: &other_hists };
        let got = run(BinaryOp::Eql, true, &mixed, &other);
        assert_eq!(got.floats, [None, None, Some(0.0), Some(1.0)]);
        assert_eq!(got.texts.len(), 2, "{:?}", got.texts);
        let got = run(BinaryOp::Neq, false, &mixed, &other);
        assert_eq!((got.floats, got.hists.len()), (vec![None, None, Some(3.0), None], 0));
    }

    #[test]
    fn hints_that_contradict_leave_nothing() {
        let hinted = |reset_hint| [(0, Histogram { reset_hint, ..exponential(0, 1, &[4.0]) })];
        let (reset, no_reset) = (hinted(ResetHint::Reset), hinted(ResetHint::NotReset));
        for (op, operation) in [(BinaryOp::Add, "addition"), (BinaryOp::Sub, "subtraction")] {
            let got = run(op, false, &row(&[0.0], &reset), &row(&[0.0], &no_reset));
            let text = format!("PromQL warning: conflicting counter resets during histogram {operation} (1:1)");
            assert_eq!((got.hists.len(), got.texts), (0, vec![text]));
        }
        let got = run(BinaryOp::Eql, false, &row(&[0.0], &reset), &row(&[0.0], &no_reset));
        assert_eq!((got.hists.len(), got.texts.len()), (1, 0), "hints are no data");
        assert_eq!(got.hists[0].1.reset_hint, ResetHint::Reset, "the left one stays");
    }

    #[test]
    fn notes_of_many_rows_are_one() {
        let mut notes = BinaryNotes::default();
        assert!(notes.is_empty());
        for bit in [FLOAT_HISTOGRAM, HISTOGRAM_FLOAT, HISTOGRAM_HISTOGRAM, FLOAT_FLOAT, LAYOUT, COLLISION, RECONCILED] {
            let mut other = BinaryNotes::default();
            other.set(bit);
            assert!(!other.is_empty());
            notes.merge(other);
            notes.merge(other);
        }
        let mut annotations = Annotations::default();
        notes.write(BinaryOp::Sub, PosRange { start: 4, end: 9 }, &mut annotations);
        let told = annotations.texts(Level::Warning, "a + b - c");
        assert_eq!(
            told,
            [
                "PromQL warning: conflicting counter resets during histogram subtraction (1:5)",
                "PromQL warning: incompatible bucket layout encountered for binary operator - (1:5)"
            ]
        );
        assert_eq!(annotations.texts(Level::Info, "").len(), 5);
    }
}
