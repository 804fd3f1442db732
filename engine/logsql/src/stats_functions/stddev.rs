//! `stddev(...)`: of the population, by Welford's method.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, Float64Array};
use datafusion::common::Result;
use datafusion::logical_expr::EmitTo;

use super::args::Args;
use super::state::{Results, Rows, StatsState};
use super::sum::{each_number, floats};
use crate::kernels::columns::NumberRule;
use crate::kernels::values::push_f64;

/// Number, mean and sum of squared distances from it.
#[derive(Debug, Clone, Copy, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, number: f64) {
        self.count += 1.0;
        let distance = number - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (number - self.mean);
    }

    fn merge(&mut self, other: Self) {
        let count = self.count + other.count;
        if other.count > 0.0 {
            let distance = other.mean - self.mean;
            self.squares += other.squares + distance * distance * self.count * other.count / count;
            self.mean += distance * other.count / count;
            self.count = count;
        }
    }
}

/// Moments per group.
#[derive(Debug)]
pub(super) struct Stddev {
    rule: NumberRule,
    groups: Vec<Moments>,
}

impl Stddev {
    pub(super) fn new(rule: NumberRule) -> Self {
        Self { rule, groups: Vec::new() }
    }
}

impl StatsState for Stddev {
    fn resize(&mut self, groups: usize) {
        self.groups.resize(groups.max(self.groups.len()), Moments::default());
    }

    fn update(&mut self, args: &Args<'_>, rows: &Rows<'_>) {
        let groups = &mut self.groups;
        each_number(args, rows, self.rule, |group, number| groups[group].add(number));
    }

    fn merge(&mut self, states: &[ArrayRef], groups: &[usize]) -> Result<()> {
        let (counts, means, squares) = (floats(states, 0)?, floats(states, 1)?, floats(states, 2)?);
        for (row, &group) in groups.iter().enumerate() {
            if counts.is_valid(row) {
                let (count, mean, squares) = (counts.value(row), means.value(row), squares.value(row));
                self.groups[group].merge(Moments { count, mean, squares });
            }
        }
        Ok(())
    }

    fn state(&mut self, emit: EmitTo) -> Vec<ArrayRef> {
        let groups = emit.take_needed(&mut self.groups);
        let column =
            |f: fn(&Moments) -> f64| -> ArrayRef { Arc::new(groups.iter().map(f).map(Some).collect::<Float64Array>()) };
        vec![column(|m| m.count), column(|m| m.mean), column(|m| m.squares)]
    }

    fn finish(&mut self, emit: EmitTo, out: &mut Results) {
        for m in emit.take_needed(&mut self.groups) {
            out.push(|text| push_f64(text, (m.squares / m.count).sqrt()));
        }
    }

    fn size(&self) -> usize {
        self.groups.capacity() * size_of::<Moments>()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn of(numbers: &[f64]) -> Moments {
        let mut own = Moments::default();
        for number in numbers {
            own.add(*number);
        }
        own
    }

    #[test]
    fn parts_without_numbers_change_nothing() {
        let mut own = of(&[1.0, 3.0]);
        own.merge(Moments::default());
        let mut none = Moments::default();
        none.merge(of(&[1.0, 3.0]));
        for m in [own, none] {
            assert_eq!((m.count, m.mean, m.squares), (2.0, 2.0, 2.0));
        }
        let mut empty = Moments::default();
        empty.merge(Moments::default());
        assert_eq!((empty.count, empty.mean, empty.squares), (0.0, 0.0, 0.0));
    }

    proptest! {
        #[test]
        fn moments_are_those_of_the_definition(numbers in vec(-1e6..1e6_f64, 1..50), at in 0..50_usize) {
            let (left, right) = numbers.split_at(at.min(numbers.len()));
            let mut joined = of(left);
            joined.merge(of(right));
            let count = numbers.len() as f64;
            let mean = numbers.iter().sum::<f64>() / count;
            let squares: f64 = numbers.iter().map(|n| (n - mean) * (n - mean)).sum();
            for m in [of(&numbers), joined] {
                prop_assert_eq!(m.count, count);
                prop_assert!((m.mean - mean).abs() <= 1e-6 && (m.squares - squares).abs() <= 1e-9 * squares + 1e-3);
            }
        }
    }
}
