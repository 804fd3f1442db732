//! Parses metrics functions, their `by` labels, and hints.

use super::super::ast::{Aggregate, Choice, Comparison, Metric, MetricFunction};
use super::super::expressions::{Compare, End};
use super::super::fields::Field;
use super::super::series::SECOND_NS;
use super::{Literal, Op, Parser, Result};

/// Most quantiles of one query.
const QUANTILES_MAX: usize = 16;
/// Most fields in `by`.
const BY_MAX: usize = 8;
/// Most values of an attribute that `compare` gives, and how many it gives unless asked.
const VALUES_MAX: f64 = 1_000.0;
const VALUES: usize = 10;
/// Exemplars of an answer when a hint wants some.
const EXEMPLARS: usize = 100;
/// Most series that `topk` and `bottomk` give.
const PICK_MAX: f64 = 10_000.0;
/// What is wrong about choices among the series of `compare`, and arithmetic with them.
pub(super) const COMPARED_ALONE: &str = "`compare()` cannot be used with second stage functions";

/// The hints of a query.
#[derive(Debug, Default)]
pub(super) struct Hints {
    /// The number of exemplars to return.
    pub(super) exemplars: Option<usize>,
    /// Whether spans count as many times as they stand for.
    pub(super) extrapolates: bool,
}

impl Parser<'_> {
    /// Reads a function of metrics behind its name.
    pub(super) fn metric(&mut self, name: &str) -> Result<Metric> {
        self.expect_only("(")?;
        let function = match name {
            "rate" => MetricFunction::Rate,
            "count_over_time" => MetricFunction::Count,
            "histogram_over_time" => MetricFunction::Histogram(self.number_field()?),
            "quantile_over_time" => {
                let field = self.number_field()?;
                MetricFunction::Quantiles(field, self.quantiles()?)
            }
            "min_over_time" => MetricFunction::Of(Aggregate::Min, self.number_field()?),
            "compare" => MetricFunction::Compare(self.comparison()?),
            "max_over_time" => MetricFunction::Of(Aggregate::Max, self.number_field()?),
            "sum_over_time" => MetricFunction::Of(Aggregate::Sum, self.number_field()?),
            _ => MetricFunction::Of(Aggregate::Avg, self.number_field()?),
        };
        let is_list = matches!(function, MetricFunction::Quantiles(..) | MetricFunction::Compare(_));
        self.expect_of(")", if is_list { ") or ," } else { ")" })?;
        // It tells series apart by all that there is.
        let by = if name == "compare" { Vec::new() } else { self.by()? };
        let mut metric = Metric { function, by, choices: Vec::new(), extrapolates: false };
        self.comparisons(&mut metric)?;
        Ok(metric)
    }

    /// Reads the comparisons behind numbers.
    fn comparisons(&mut self, metric: &mut Metric) -> Result<()> {
        loop {
            let begin = self.at;
            let Some((compare, number)) = self.kept()? else { return Ok(()) };
            if metric.is_comparison() {
                return Err(self.error_at(begin, COMPARED_ALONE));
            }
            self.count_part(begin)?;
            metric.choices.push(Choice::Kept(compare, number));
        }
    }

    /// Reads what numbers are compared with, behind the function that gives them.
    pub(super) fn kept(&mut self) -> Result<Option<(Compare, f64)>> {
        let begin = self.at;
        let compare = match self.op() {
            None => return Ok(None),
            Some(Op::Number(compare)) => compare,
            Some(Op::Matches | Op::MatchesNot) => return Err(self.error_at(begin, "numbers are compared by order")),
        };
        let at = self.at;
        // A duration, which is read as nanoseconds, stands for seconds; it stands alone.
        if let Ok(Literal::Nanos(nanos)) = self.number() {
            self.blank();
            return Ok(Some((compare, nanos as f64 / SECOND_NS)));
        }
        self.at = at;
        Ok(Some((compare, self.constant()?)))
    }

    /// Reads the selection of `compare`, and behind it how many values are given and when it lies, in nanoseconds.
    fn comparison(&mut self) -> Result<Comparison> {
        if !self.rest().starts_with('{') {
            return Err(self.unexpected_for("{"));
        }
        let selection = self.filter()?;
        let mut numbers = Vec::new();
        let begin = self.at;
        while self.eat(",") {
            let at = self.at;
            let digits = self.take(|c| c.is_ascii_digit());
            let number = digits.parse::<i64>().ok().filter(|n| *n >= 0);
            numbers.push(number.ok_or_else(|| self.error_at(at, "expected a whole number"))?);
            self.blank();
        }
        let (values, window) = match numbers.as_slice() {
            [] => (VALUES as i64, None),
            [values] | [values, 0, 0] => (*values, None),
            [values, from, to] if from < to => (*values, Some((*from, *to))),
            [_, _, _] => return Err(self.error_at(begin, "the end of the selection is not after its start")),
            _ => return Err(self.error_at(begin, "`compare` takes a number of values, then a start and an end")),
        };
        if !(1.0..=VALUES_MAX).contains(&(values as f64)) {
            return Err(self.error_at(begin, format!("`compare` gives 1 to {VALUES_MAX} values of an attribute")));
        }
        Ok(Comparison { selection, values: values as usize, window })
    }

    /// Reads `topk(n)` or `bottomk(n)` behind its name, and comparisons behind it.
    pub(super) fn pick(&mut self, name: &str, begin: usize, metric: &mut Metric) -> Result<()> {
        let Some(end) = End::of_function(name) else {
            self.at = begin;
            return Err(self.unexpected_for("topk or bottomk"));
        };
        if metric.is_comparison() {
            return Err(self.error_at(begin, COMPARED_ALONE));
        }
        self.count_part(begin)?;
        metric.choices.push(Choice::Picked(end, self.pick_most()?));
        self.comparisons(metric)
    }

    /// Reads how many series are picked.
    pub(super) fn pick_most(&mut self) -> Result<usize> {
        self.expect_only("(")?;
        let at = self.at;
        if !self.is_integer() {
            return Err(self.unexpected_for("INTEGER"));
        }
        let most = match self.number()? {
            Literal::Number(n, _) if n.fract() == 0.0 && (1.0..=PICK_MAX).contains(&n) => n as usize,
            _ => return Err(self.error_at(at, format!("expected a whole number from 1 to {PICK_MAX}"))),
        };
        self.blank();
        self.expect_only(")")?;
        Ok(most)
    }

    /// Whether hints come next.
    pub(super) fn is_hint(&self) -> bool {
        self.rest().strip_prefix("with").is_some_and(|rest| rest.trim_start().starts_with('('))
    }

    /// Reads hints at the end of a query: most change how Tempo runs it, not what it gives. The first of a name counts.
    pub(super) fn hints(&mut self) -> Result<Hints> {
        if !self.is_hint() {
            return Ok(Hints::default());
        }
        self.eat("with");
        self.expect("(")?;
        let begin = self.at;
        let text = self.take(|c| c != ')');
        self.expect(")")?;
        let pairs: Vec<(&str, &str)> = text.split(',').filter_map(|pair| pair.split_once('=')).collect();
        let first = |name: &str| pairs.iter().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
        let extrapolates = first("extrapolate") == Some("true");
        let exemplars = match first("exemplars") {
            None => None,
            Some("true") => Some(EXEMPLARS),
            Some("false") => Some(0),
            Some(number) => match number.parse() {
                Ok(number) => Some(number),
                Err(_) => return Err(self.error_at(begin, "`exemplars` is a number, or `true` or `false`")),
            },
        };
        Ok(Hints { exemplars, extrapolates })
    }

    /// Reads a field whose values are numbers.
    fn number_field(&mut self) -> Result<Field> {
        let begin = self.at;
        let field = self.field()?;
        match field {
            Field::Intrinsic(intrinsic) if !intrinsic.is_number() => {
                Err(self.error_at(begin, format!("`{field}` is no number of a span")))
            }
            field => Ok(field),
        }
    }

    fn quantiles(&mut self) -> Result<Vec<f64>> {
        let mut list = Vec::new();
        while self.eat(",") {
            let at = self.at;
            match self.number()? {
                Literal::Number(q, _) if (0.0..=1.0).contains(&q) => list.push(q),
                _ => return Err(self.error_at(at, "a quantile is a number from 0 to 1")),
            }
            self.blank();
        }
        match list.len() {
            0 => Err(self.unexpected_for(",")),
            1..=QUANTILES_MAX => Ok(list),
            _ => Err(self.error_at(self.at, format!("more than {QUANTILES_MAX} quantiles"))),
        }
    }

    fn by(&mut self) -> Result<Vec<Field>> {
        let mut fields = Vec::new();
        if !self.rest().starts_with("by") {
            return Ok(fields);
        }
        self.at += 2;
        self.blank();
        self.expect_only("(")?;
        loop {
            fields.push(self.field()?);
            if fields.len() > BY_MAX {
                return Err(self.error_at(self.at, format!("`by` with more than {BY_MAX} fields is not supported")));
            }
            if !self.eat(",") {
                break;
            }
        }
        self.expect_of(")", ") or ,")?;
        Ok(fields)
    }
}
