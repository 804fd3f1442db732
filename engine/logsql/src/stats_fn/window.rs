//! Functions of `running_stats` and `total_stats`: rows are added one by one, and the result so far can be asked for
//! after each.

use std::cmp::Ordering;
use std::fmt::Write;

use super::min_max::Extreme;
use crate::kernels::columns::NumberRule;
use crate::kernels::values::{push_f64, rank};

/// A function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WindowFunction {
    /// `count()`: rows.
    CountRows,
    /// `count(a, b)`: rows with at least one of the fields.
    Count,
    /// `sum(...)`: NaN without numbers.
    Sum,
    /// `min(...)`: by the order of values.
    Min,
    /// `max(...)`
    Max,
    /// `first(...)`: the first value that is not empty.
    First,
    /// `last(...)`: the last value that is not empty.
    Last,
}

/// What a function keeps for one group.
#[derive(Debug)]
pub struct WindowState {
    function: WindowFunction,
    count: u64,
    sum: f64,
    best: Extreme,
    value: String,
}

impl WindowState {
    /// Begins a function.
    pub fn new(function: WindowFunction) -> Self {
        Self { function, count: 0, sum: f64::NAN, best: Extreme::default(), value: String::new() }
    }

    /// Adds a row by the values of the function's fields.
    pub fn add<'a>(&mut self, values: impl IntoIterator<Item = &'a str>) {
        let mut filled = values.into_iter().filter(|v| !v.is_empty());
        match self.function {
            WindowFunction::CountRows => self.count += 1,
            WindowFunction::Count => self.count += u64::from(filled.next().is_some()),
            WindowFunction::Sum => {
                for number in filled.map(|v| NumberRule::Units.read(v)).filter(|n| !n.is_nan()) {
                    self.sum = if self.sum.is_nan() { number } else { self.sum + number };
                }
            }
            WindowFunction::Min => filled.for_each(|v| {
                self.best.offer(Ordering::Less, rank(v), v);
            }),
            WindowFunction::Max => filled.for_each(|v| {
                self.best.offer(Ordering::Greater, rank(v), v);
            }),
            WindowFunction::First => {
                if self.value.is_empty() {
                    self.value.push_str(filled.next().unwrap_or(""));
                }
            }
            WindowFunction::Last => {
                if let Some(last) = filled.last() {
                    last.clone_into(&mut self.value);
                }
            }
        }
    }

    /// Writes the result over the rows so far.
    pub fn push_result(&self, out: &mut String) {
        match self.function {
            WindowFunction::CountRows | WindowFunction::Count => {
                write!(out, "{}", self.count).expect("writing to a text cannot fail");
            }
            WindowFunction::Sum => push_f64(out, self.sum),
            WindowFunction::Min | WindowFunction::Max => out.push_str(self.best.text()),
            WindowFunction::First | WindowFunction::Last => out.push_str(&self.value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_so_far() {
        let check = |function: WindowFunction, want: &[&str]| {
            let mut state = WindowState::new(function);
            for (row, want) in ["", "3", "x", "10", ""].iter().zip(want) {
                state.add([*row]);
                let mut got = String::new();
                state.push_result(&mut got);
                assert_eq!(got, *want, "{function:?} at {row:?}");
            }
        };
        check(WindowFunction::CountRows, &["1", "2", "3", "4", "5"]);
        check(WindowFunction::Count, &["0", "1", "2", "3", "3"]);
        check(WindowFunction::Sum, &["NaN", "3", "3", "13", "13"]);
        check(WindowFunction::Min, &["", "3", "3", "3", "3"]);
        check(WindowFunction::Max, &["", "3", "x", "x", "x"]);
        check(WindowFunction::First, &["", "3", "3", "3", "3"]);
        check(WindowFunction::Last, &["", "3", "x", "10", "10"]);
    }
}
