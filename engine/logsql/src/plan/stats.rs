//! `stats` → grouping with the functions of `stats_fn`.

use quiver_types::Result;
use quiver_types::logs::{STREAM, STREAM_ID};

use super::filter::{TimeScope, lower};
use crate::ast::{FieldPattern, GroupBy, StatsCall, StatsFunc, TimeBucket};
use crate::kernels::bucket::{Bucket, Step};
use crate::kernels::columns::NumberRule;
use crate::ops::aggregate::{Aggregate, Call, Key};
use crate::pipes::stats::Stats;
use crate::rows::Shape;
use crate::stats_fn::{Arg, Function, NamePattern};

const DAY_S: f64 = 86_400.0;

/// Names that must have columns before the rows are grouped.
pub(crate) fn named(stats: &Stats) -> Vec<String> {
    let mut names: Vec<String> = stats.by.iter().map(|by| by.field.clone()).collect();
    for call in &stats.calls {
        let (own, patterns) = args(&call.func);
        names.extend(own);
        names.extend(patterns.iter().filter_map(FieldPattern::name).map(str::to_owned));
    }
    if !stream_keys(stats).is_empty() {
        names.push(STREAM.to_owned());
    }
    crate::rows::unique(names)
}

/// The fields of a stats function: those that come first by name, then the list.
pub(crate) fn args(func: &StatsFunc) -> (Vec<String>, Vec<FieldPattern>) {
    match func {
        StatsFunc::Count(fields)
        | StatsFunc::CountEmpty(fields)
        | StatsFunc::Sum(fields)
        | StatsFunc::Avg(fields)
        | StatsFunc::Stddev(fields)
        | StatsFunc::Min(fields)
        | StatsFunc::Max(fields)
        | StatsFunc::Median(fields)
        | StatsFunc::Quantile { fields, .. }
        | StatsFunc::RateSum(fields)
        | StatsFunc::UniqValues { fields, .. }
        | StatsFunc::Values { fields, .. }
        | StatsFunc::RowAny(fields)
        | StatsFunc::Any(fields)
        | StatsFunc::SumLen(fields) => (Vec::new(), fields.clone()),
        StatsFunc::JsonValues { fields, sort, .. } => {
            (sort.iter().map(|(name, _)| name.clone()).collect(), fields.clone())
        }
        StatsFunc::CountUniq { fields, .. } | StatsFunc::CountUniqHash { fields, .. } => (fields.clone(), Vec::new()),
        StatsFunc::RowMin { by, fields } | StatsFunc::RowMax { by, fields } => (vec![by.clone()], fields.clone()),
        StatsFunc::FieldMin { by, field } | StatsFunc::FieldMax { by, field } => {
            (vec![by.clone(), field.clone()], Vec::new())
        }
        StatsFunc::Histogram(field) => (vec![field.clone()], Vec::new()),
        StatsFunc::Rate => (Vec::new(), Vec::new()),
    }
}

/// Makes the operator. `seconds` is the length of the time range, if it has one.
pub(crate) fn aggregate(stats: &Stats, input: Shape, scope: TimeScope, seconds: Option<f64>) -> Result<Aggregate> {
    let seconds = stats.by.iter().find_map(bucket_seconds).or(seconds);
    let keys = stats.by.iter().map(|by| Key { field: by.field.clone(), bucket: bucket(by) }).collect();
    let grouped = !stats.by.iter().all(is_of_days);
    let stream_keys = stream_keys(stats);
    let calls = stats.calls.iter().map(|c| call(c, &input, scope, seconds, grouped)).collect::<Result<_>>()?;
    Ok(Aggregate { input, keys, calls, stream_keys, text: stats.to_string() })
}

/// What rows are grouped by that a stream may have as labels, if functions ask: of a stream on a day, rows that are
/// grouped by labels of it are all in one group too.
pub(crate) fn stream_keys(stats: &Stats) -> Vec<String> {
    let of_numbers = |call: &StatsCall| {
        matches!(call.func, StatsFunc::Sum(_) | StatsFunc::Avg(_) | StatsFunc::Stddev(_) | StatsFunc::RateSum(_))
    };
    if !stats.calls.iter().any(of_numbers) {
        return Vec::new();
    }
    stats.by.iter().filter(|by| !is_of_days(by)).map(|by| by.field.clone()).collect()
}

/// Whether all rows of a stream on a day are in one group, which the reference adds up as it does all rows.
fn is_of_days(by: &GroupBy) -> bool {
    let whole_days = || by.offset.is_none() && bucket_seconds(by).is_some_and(|seconds| seconds >= DAY_S);
    matches!(by.field.as_str(), STREAM | STREAM_ID) || whole_days()
}

fn bucket(by: &GroupBy) -> Option<Bucket> {
    let step = match by.bucket.as_ref()? {
        TimeBucket::Step(step) | TimeBucket::Named(step) => Step::Number(step.value),
        TimeBucket::Ipv4Mask(bits) => Step::Ipv4Mask(*bits),
        TimeBucket::Week => Step::Week,
        TimeBucket::Month => Step::Month,
        TimeBucket::Year => Step::Year,
    };
    Some(Bucket::new(step, by.offset.as_ref().map_or(0.0, |offset| offset.value)))
}

/// The length of the buckets of time.
fn bucket_seconds(by: &GroupBy) -> Option<f64> {
    if by.field != quiver_types::logs::TIME {
        return None;
    }
    Some(match by.bucket.as_ref()? {
        TimeBucket::Step(step) | TimeBucket::Named(step) => step.value / 1e9,
        TimeBucket::Week => 7.0 * DAY_S,
        // Months and years differ in length; their mean is what a rate over them can mean.
        TimeBucket::Month => 365.25 / 12.0 * DAY_S,
        TimeBucket::Year => 365.25 * DAY_S,
        TimeBucket::Ipv4Mask(_) => return None,
    })
}

fn call(call: &StatsCall, input: &Shape, scope: TimeScope, seconds: Option<f64>, grouped: bool) -> Result<Call> {
    let (first, patterns) = args(&call.func);
    let list = of_patterns(&patterns, input);
    let first: Vec<Arg> = first.into_iter().map(Arg::Field).collect();
    let seconds_bits = seconds.map(f64::to_bits);
    // In groups of single rows the reference reads plain numbers only; over all rows, and over those of whole streams,
    // those with units too.
    let rule = if grouped { NumberRule::Plain } else { NumberRule::Units };
    let (function, args) = match &call.func {
        StatsFunc::Count(fields) if fields.iter().any(FieldPattern::is_all) => (Function::CountRows, Vec::new()),
        StatsFunc::Count(_) => (Function::Count, list),
        StatsFunc::CountEmpty(_) => (Function::CountEmpty, list),
        StatsFunc::CountUniq { limit, .. } => (Function::CountUniq { limit: *limit }, first),
        StatsFunc::CountUniqHash { limit, .. } => (Function::CountUniqHash { limit: *limit }, first),
        StatsFunc::Sum(_) => (Function::Sum(rule), list),
        StatsFunc::Avg(_) => (Function::Avg(rule), list),
        StatsFunc::Stddev(_) => (Function::Stddev(rule), list),
        StatsFunc::Min(_) => (Function::Min, list),
        StatsFunc::Max(_) => (Function::Max, list),
        StatsFunc::Median(_) => (Function::Quantile { phi_bits: 0.5f64.to_bits() }, list),
        StatsFunc::Quantile { phi, .. } => (Function::Quantile { phi_bits: phi.value.to_bits() }, list),
        StatsFunc::Rate => (Function::Rate { seconds_bits }, Vec::new()),
        StatsFunc::RateSum(_) => (Function::RateSum { rule, seconds_bits }, list),
        StatsFunc::UniqValues { limit, .. } => (Function::UniqValues { limit: *limit }, list),
        StatsFunc::Values { limit, .. } => (Function::Values { limit: *limit }, list),
        StatsFunc::JsonValues { sort, limit, .. } => {
            let function = Function::JsonValues { sort: sort.iter().map(|(_, desc)| *desc).collect(), limit: *limit };
            (function, list.into_iter().chain(first).collect())
        }
        StatsFunc::RowAny(_) => (Function::RowAny, list),
        StatsFunc::RowMin { .. } => (Function::RowMin, first.into_iter().chain(list).collect()),
        StatsFunc::RowMax { .. } => (Function::RowMax, first.into_iter().chain(list).collect()),
        StatsFunc::Any(_) => (Function::Any, list),
        StatsFunc::FieldMin { .. } => (Function::FieldMin, first),
        StatsFunc::FieldMax { .. } => (Function::FieldMax, first),
        StatsFunc::SumLen(_) => (Function::SumLen, list),
        StatsFunc::Histogram(_) => (Function::Histogram, first),
    };
    let condition = call.condition.as_ref().map(|filter| lower(filter, scope)).transpose()?;
    Ok(Call { function, args, condition, name: call.name.clone() })
}

/// Columns by name and by group; the map for what groups hold beside them.
fn of_patterns(patterns: &[FieldPattern], input: &Shape) -> Vec<Arg> {
    let (mut names, mut matched) = (Vec::new(), Vec::new());
    let mut rest = Vec::new();
    for pattern in patterns {
        match pattern {
            FieldPattern::Name(name) => names.push(name.clone()),
            FieldPattern::Prefix(prefix) => {
                matched.extend(input.names().filter(|name| name.starts_with(prefix.as_str())).map(str::to_owned));
                rest.push(NamePattern::Prefix(prefix.clone()));
            }
        }
    }
    matched.retain(|name| !names.contains(name));
    let mut args: Vec<Arg> = crate::rows::unique(names).into_iter().map(Arg::Field).collect();
    args.extend(crate::rows::unique(matched).into_iter().map(Arg::Matched));
    if input.rest && !rest.is_empty() {
        args.push(Arg::Rest(rest));
    }
    args
}
