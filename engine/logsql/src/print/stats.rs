//! Canonical text of the `stats` pipe.

use std::fmt::{self, Display, Formatter};

use super::{ArgumentName, list, literal, word};
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

fn argument(name: &str) -> String {
    ArgumentName(name).to_string()
}

/// The fields of a function: `a, b*`.
pub(crate) fn arguments(fields: &[FieldPattern]) -> String {
    list(fields, |field| match field {
        FieldPattern::Name(name) => argument(name),
        FieldPattern::Prefix(prefix) if prefix.is_empty() => "*".to_owned(),
        FieldPattern::Prefix(prefix) => format!("{}*", argument(prefix)),
    })
}

/// The fields behind a first argument; nothing for all fields.
fn more(fields: &[FieldPattern]) -> String {
    if fields.iter().any(FieldPattern::is_all) { String::new() } else { format!(", {}", arguments(fields)) }
}

impl Display for StatsFunc {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let names = |names: &[String]| list(names, |name| argument(name));
        match self {
            Self::Count(fields) => write!(f, "count({})", arguments(fields)),
            Self::CountEmpty(fields) => write!(f, "count_empty({})", arguments(fields)),
            Self::CountUniq { fields, limit } => write!(f, "count_uniq({}){}", names(fields), limited(*limit)),
            Self::CountUniqHash { fields, limit } => write!(f, "count_uniq_hash({}){}", names(fields), limited(*limit)),
            Self::CountUniqHll(fields) => write!(f, "count_uniq_hll({})", names(fields)),
            Self::Sum(fields) => write!(f, "sum({})", arguments(fields)),
            Self::Avg(fields) => write!(f, "avg({})", arguments(fields)),
            Self::Stddev(fields) => write!(f, "stddev({})", arguments(fields)),
            Self::Min(fields) => write!(f, "min({})", arguments(fields)),
            Self::Max(fields) => write!(f, "max({})", arguments(fields)),
            Self::Median(fields) => write!(f, "median({})", arguments(fields)),
            Self::Quantile { phi, fields } => write!(f, "quantile({}{})", literal(&phi.text), more(fields)),
            Self::Rate => f.write_str("rate()"),
            Self::RateSum(fields) => write!(f, "rate_sum({})", arguments(fields)),
            Self::UniqValues { fields, limit } => write!(f, "uniq_values({}){}", arguments(fields), limited(*limit)),
            Self::Values { fields, limit } => write!(f, "values({}){}", arguments(fields), limited(*limit)),
            Self::JsonValues { fields, sort, limit } => {
                write!(f, "json_values({})", arguments(fields))?;
                if !sort.is_empty() {
                    write!(f, " sort by ({})", super::sort_fields(sort))?;
                }
                f.write_str(&limited(*limit))
            }
            Self::RowAny(fields) => write!(f, "row_any({})", arguments(fields)),
            Self::RowMin { by, fields } => write!(f, "row_min({}{})", argument(by), more(fields)),
            Self::RowMax { by, fields } => write!(f, "row_max({}{})", argument(by), more(fields)),
            Self::Any(fields) => write!(f, "any({})", arguments(fields)),
            Self::FieldMin { by, field } => write!(f, "field_min({}, {})", argument(by), argument(field)),
            Self::FieldMax { by, field } => write!(f, "field_max({}, {})", argument(by), argument(field)),
            Self::SumLen(fields) => write!(f, "sum_len({})", arguments(fields)),
            Self::Histogram(field) => write!(f, "histogram({})", argument(field)),
        }
    }
}
