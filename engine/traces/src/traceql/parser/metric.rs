//! Functions of metrics, what they are told apart by, and hints.

use super::super::{Aggregate, Field, Intrinsic, Metric, MetricFunction};
use super::{Literal, Parser, Result};

/// Most quantiles of one query.
const QUANTILES_MAX: usize = 16;
/// Most fields that series are told apart by.
const BY_MAX: usize = 8;
/// Most series that `topk` and `bottomk` give.
const PICK_MAX: f64 = 10_000.0;

impl Parser<'_> {
    /// Reads a function of metrics behind its name.
    pub(super) fn metric(&mut self, name: &str) -> Result<Metric> {
        self.expect("(")?;
        let function = match name {
            "rate" => MetricFunction::Rate,
            "count_over_time" => MetricFunction::Count,
            "histogram_over_time" => MetricFunction::Histogram(self.number_field()?),
            "quantile_over_time" => {
                let field = self.number_field()?;
                MetricFunction::Quantiles(field, self.quantiles()?)
            }
            "min_over_time" => MetricFunction::Of(Aggregate::Min, self.number_field()?),
            "max_over_time" => MetricFunction::Of(Aggregate::Max, self.number_field()?),
            "sum_over_time" => MetricFunction::Of(Aggregate::Sum, self.number_field()?),
            _ => MetricFunction::Of(Aggregate::Avg, self.number_field()?),
        };
        self.expect(")")?;
        Ok(Metric { function, by: self.by()?, pick: None })
    }

    /// Reads `topk(n)` or `bottomk(n)` behind its name.
    pub(super) fn pick(&mut self, name: &str, begin: usize, metric: &mut Metric) -> Result<()> {
        if !matches!(name, "topk" | "bottomk") || metric.pick.is_some() {
            return Err(self.error_at(begin, "only one `topk` or `bottomk` can follow a function of metrics"));
        }
        self.expect("(")?;
        let at = self.at;
        match self.number()? {
            Literal::Number(n, _) if n.fract() == 0.0 && (1.0..=PICK_MAX).contains(&n) => {
                metric.pick = Some((name == "topk", n as usize));
            }
            _ => return Err(self.error_at(at, format!("expected a whole number from 1 to {PICK_MAX}"))),
        }
        self.blank();
        self.expect(")")
    }

    /// Whether hints come next.
    pub(super) fn is_hint(&self) -> bool {
        self.rest().strip_prefix("with").is_some_and(|rest| rest.trim_start().starts_with('('))
    }

    /// Reads hints at the end of a query: they change how it runs, not what it gives.
    pub(super) fn hints(&mut self) -> Result<()> {
        if self.is_hint() {
            self.eat("with");
            self.expect("(")?;
            self.take(|c| c != ')');
            self.expect(")")?;
        }
        Ok(())
    }

    /// Reads a field whose values are numbers, which one span alone tells.
    fn number_field(&mut self) -> Result<Field> {
        let begin = self.at;
        let field = self.field()?;
        match field {
            Field::Attribute(..) | Field::Intrinsic(Intrinsic::Duration) => Ok(field),
            Field::Intrinsic(_) => Err(self.error_at(begin, format!("`{field}` is no number of a span"))),
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
            0 => Err(self.error_at(self.at, "`quantile_over_time()` needs a quantile")),
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
        self.expect("(")?;
        loop {
            fields.push(self.field()?);
            if fields.len() > BY_MAX {
                return Err(self.error_at(self.at, format!("`by` with more than {BY_MAX} fields is not supported")));
            }
            if !self.eat(",") {
                break;
            }
        }
        self.expect(")")?;
        Ok(fields)
    }
}
