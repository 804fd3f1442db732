//! Canonical text of the `stats` pipe.

use std::fmt::{self, Display, Formatter};

use super::{list, literal, patterns, word};
use crate::ast::{FieldPattern, GroupBy, StatsCall, StatsFunc, TimeBucket};
use crate::normal_form;

impl Display for StatsCall {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} as {}", default_stats_name(self), word(&self.name))
    }
}

/// The name of a result that was given none: the function, and its condition in normal form.
pub(crate) fn default_stats_name(call: &StatsCall) -> String {
    match &call.condition {
        None => call.func.to_string(),
        Some(condition) => format!("{} if ({})", call.func, normal_form::condition(condition.clone())),
    }
}

impl Display for GroupBy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(&word(&self.field))?;
        match &self.bucket {
            None => return Ok(()),
            Some(TimeBucket::Step(step) | TimeBucket::Named(step)) => write!(f, ":{}", literal(&step.text))?,
            Some(TimeBucket::Ipv4Mask(bits)) => write!(f, ":/{bits}")?,
            Some(TimeBucket::Week) => f.write_str(":week")?,
            Some(TimeBucket::Month) => f.write_str(":month")?,
            Some(TimeBucket::Year) => f.write_str(":year")?,
        }
        match &self.offset {
            Some(offset) => write!(f, " offset {}", literal(&offset.text)),
            None => Ok(()),
        }
    }
}

fn limited(limit: Option<u64>) -> String {
    limit.map_or_else(String::new, |limit| format!(" limit {limit}"))
}

/// The fields behind a first argument; nothing for all fields.
fn more(fields: &[FieldPattern]) -> String {
    if fields.iter().any(FieldPattern::is_all) { String::new() } else { format!(", {}", patterns(fields)) }
}

impl Display for StatsFunc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = |names: &[String]| list(names, |name| word(name));
        match self {
            Self::Count(fields) => write!(f, "count({})", patterns(fields)),
            Self::CountEmpty(fields) => write!(f, "count_empty({})", patterns(fields)),
            Self::CountUniq { fields, limit } => write!(f, "count_uniq({}){}", names(fields), limited(*limit)),
            Self::CountUniqHash { fields, limit } => write!(f, "count_uniq_hash({}){}", names(fields), limited(*limit)),
            Self::Sum(fields) => write!(f, "sum({})", patterns(fields)),
            Self::Avg(fields) => write!(f, "avg({})", patterns(fields)),
            Self::Stddev(fields) => write!(f, "stddev({})", patterns(fields)),
            Self::Min(fields) => write!(f, "min({})", patterns(fields)),
            Self::Max(fields) => write!(f, "max({})", patterns(fields)),
            Self::Median(fields) => write!(f, "median({})", patterns(fields)),
            Self::Quantile { phi, fields } => write!(f, "quantile({}{})", literal(&phi.text), more(fields)),
            Self::Rate => f.write_str("rate()"),
            Self::RateSum(fields) => write!(f, "rate_sum({})", patterns(fields)),
            Self::UniqValues { fields, limit } => write!(f, "uniq_values({}){}", patterns(fields), limited(*limit)),
            Self::Values { fields, limit } => write!(f, "values({}){}", patterns(fields), limited(*limit)),
            Self::JsonValues { fields, sort, limit } => {
                write!(f, "json_values({})", patterns(fields))?;
                if !sort.is_empty() {
                    write!(f, " sort by ({})", super::sort_fields(sort))?;
                }
                f.write_str(&limited(*limit))
            }
            Self::RowAny(fields) => write!(f, "row_any({})", patterns(fields)),
            Self::RowMin { by, fields } => write!(f, "row_min({}{})", word(by), more(fields)),
            Self::RowMax { by, fields } => write!(f, "row_max({}{})", word(by), more(fields)),
            Self::Any(fields) => write!(f, "any({})", patterns(fields)),
            Self::FieldMin { by, field } => write!(f, "field_min({}, {})", word(by), word(field)),
            Self::FieldMax { by, field } => write!(f, "field_max({}, {})", word(by), word(field)),
            Self::SumLen(fields) => write!(f, "sum_len({})", patterns(fields)),
            Self::Histogram(field) => write!(f, "histogram({})", word(field)),
        }
    }
}
