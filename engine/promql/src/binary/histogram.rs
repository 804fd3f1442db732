//! Operators with a histogram on at least one side, applied step by step.

use quiver_types::{Histogram, ResetHint};

use super::{
    BinaryNotes, COLLISION, FLOAT_HISTOGRAM, HISTOGRAM_FLOAT, HISTOGRAM_HISTOGRAM, LAYOUT, Operation, RECONCILED, Side,
};
use crate::ast::BinaryOp;
use crate::histogram;
use crate::kernel::SeriesOut;

pub(super) fn apply(
    operation: Operation,
    lhs: &Side<'_>,
    rhs: &Side<'_>,
    out: &mut SeriesOut<'_>,
    notes: &mut BinaryNotes,
) {
    let Operation { op, return_bool } = operation;
    let (mut left, mut right) = (lhs.hists().iter().peekable(), rhs.hists().iter().peekable());
    loop {
        let step = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(l), Some(r)) => l.0.min(r.0),
            (Some(l), None) => l.0,
            (None, Some(r)) => r.0,
        };
        let l = left.next_if(|h| h.0 == step).map(|h| &h.1);
        let r = right.next_if(|h| h.0 == step).map(|h| &h.1);
        let i = step as usize;
        let result = match (l, r) {
            (Some(l), Some(r)) => both(op, l, r, notes),
            (Some(l), None) => rhs.float(i).and_then(|r| with_number(op, l, r, notes)),
            (None, Some(r)) => lhs.float(i).and_then(|l| number_with(op, l, r, notes)),
            (None, None) => None,
        };
        match result {
            None => {}
            Some(Outcome::Value(h)) => out.hists.push((step, *h)),
            Some(Outcome::Compared(holds)) if return_bool => {
                out.values[i] = f64::from(holds);
                out.present[i] = true;
            }
            Some(Outcome::Compared(holds)) => {
                if let Some(h) = l.filter(|_| holds) {
                    out.hists.push((step, h.clone()));
                }
            }
        }
    }
}

enum Outcome {
    Value(Box<Histogram>),
    Compared(bool),
}

fn with_number(op: BinaryOp, h: &Histogram, v: f64, notes: &mut BinaryNotes) -> Option<Outcome> {
    let mut h = h.clone();
    match op {
        BinaryOp::Mul => histogram::mul(&mut h, v),
        BinaryOp::Div => histogram::div(&mut h, v),
        BinaryOp::TrimUpper => histogram::trim_upper(&mut h, v),
        BinaryOp::TrimLower => histogram::trim_lower(&mut h, v),
        _ => {
            notes.set(HISTOGRAM_FLOAT);
            return None;
        }
    }
    if matches!(op, BinaryOp::Mul | BinaryOp::Div) {
        histogram::compact(&mut h);
    }
    Some(Outcome::Value(Box::new(h)))
}

fn number_with(op: BinaryOp, v: f64, h: &Histogram, notes: &mut BinaryNotes) -> Option<Outcome> {
    if op != BinaryOp::Mul {
        notes.set(FLOAT_HISTOGRAM);
        return None;
    }
    let mut h = h.clone();
    histogram::mul(&mut h, v);
    histogram::compact(&mut h);
    Some(Outcome::Value(Box::new(h)))
}

/// Says whether two histograms cannot be operands of an operator.
pub(super) fn refuses(op: BinaryOp, lhs: &Histogram, rhs: &Histogram) -> bool {
    match op {
        BinaryOp::Eql | BinaryOp::Neq => false,
        BinaryOp::Add | BinaryOp::Sub => histogram::refuse_each_other(lhs, rhs),
        _ => true,
    }
}

fn both(op: BinaryOp, lhs: &Histogram, rhs: &Histogram, notes: &mut BinaryNotes) -> Option<Outcome> {
    let mut h = match op {
        BinaryOp::Add | BinaryOp::Sub => lhs.clone(),
        BinaryOp::Eql => return Some(Outcome::Compared(histogram::equals(lhs, rhs))),
        BinaryOp::Neq => return Some(Outcome::Compared(!histogram::equals(lhs, rhs))),
        _ => {
            notes.set(HISTOGRAM_HISTOGRAM);
            return None;
        }
    };
    let merged = if op == BinaryOp::Add { histogram::add(&mut h, rhs) } else { histogram::sub(&mut h, rhs) };
    let Ok(merged) = merged else {
        notes.set(LAYOUT);
        return None;
    };
    if merged.collision {
        // As in Prometheus: contradicting hints give a warning and no result.
        notes.set(COLLISION);
        return None;
    }
    if merged.reconciled {
        notes.set(RECONCILED);
    }
    if op == BinaryOp::Sub {
        h.reset_hint = ResetHint::Gauge;
    }
    histogram::compact(&mut h);
    Some(Outcome::Value(Box::new(h)))
}
