//! `stats` → grouping with the functions of `stats_functions`.

use quiver_types::Result;
use quiver_types::logs::{STREAM, STREAM_ID};

use super::filter::lower;
use crate::ast::{FieldPattern, GroupBy, StatsCall, StatsFunc, TimeBucket};
use crate::kernels::bucket::{Bucket, Step};
use crate::kernels::columns::NumberRule;
use crate::ops::grouping::{Aggregate, Call, Key};
use crate::reference_time::TimeScope;
use crate::rows::Shape;
use crate::stats_functions::{Arg, Function, NamePattern};

const DAY_S: f64 = 86_400.0;

/// What `stats` asks for: functions over groups of rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grouping<'a> {
    pub(crate) by: &'a [GroupBy],
    pub(crate) calls: &'a [StatsCall],
}

/// Names that must have columns before the rows are grouped.
pub(crate) fn named(stats: Grouping<'_>) -> Vec<String> {
    let mut names: Vec<String> = stats.by.iter().map(|by| by.field.clone()).collect();
    for call in stats.calls {
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
        StatsFunc::CountUniq { fields, .. }
        | StatsFunc::CountUniqHash { fields, .. }
        | StatsFunc::CountUniqHll(fields) => (fields.clone(), Vec::new()),
        StatsFunc::RowMin { by, fields } | StatsFunc::RowMax { by, fields } => (vec![by.clone()], fields.clone()),
        StatsFunc::FieldMin { by, field } | StatsFunc::FieldMax { by, field } => {
            (vec![by.clone(), field.clone()], Vec::new())
        }
        StatsFunc::Histogram(field) => (vec![field.clone()], Vec::new()),
        StatsFunc::Rate => (Vec::new(), Vec::new()),
    }
}

/// Makes the operator, which plans show by a text. `seconds` is the length of the time range, if it has one.
pub(crate) fn aggregate(
    stats: Grouping<'_>,
    text: String,
    input: Shape,
    scope: TimeScope,
    seconds: Option<f64>,
) -> Result<Aggregate> {
    let seconds = stats.by.iter().find_map(bucket_seconds).or(seconds);
    let keys = stats.by.iter().map(|by| Key { field: by.field.clone(), bucket: bucket(by) }).collect();
    let grouped = !stats.by.iter().all(is_of_days);
    let stream_keys = stream_keys(stats);
    let calls = stats.calls.iter().map(|c| call(c, &input, scope, seconds, grouped)).collect::<Result<_>>()?;
    Ok(Aggregate { input, keys, calls, stream_keys, text })
}

/// What rows are grouped by that a stream may have as labels, if functions ask: of a stream on a day, rows that are
/// grouped by labels of it are all in one group too.
pub(crate) fn stream_keys(stats: Grouping<'_>) -> Vec<String> {
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
        StatsFunc::CountUniqHll(_) => (Function::CountUniqHash { limit: None }, first),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ast::Pipe;
    use crate::pipes::stats::Stats;
    use crate::query_text::parse;

    const SCOPE: TimeScope = TimeScope { now_ns: 0, offset_ns: 0 };

    fn stats(text: &str) -> Stats {
        let query = parse(&format!("* | stats {text}")).unwrap_or_else(|fault| panic!("{text}: {fault}"));
        let first = query.pipes.first().and_then(Pipe::downcast_ref::<Stats>);
        first.unwrap_or_else(|| panic!("{text}: {query}")).clone()
    }

    fn made(text: &str, input: Shape, seconds: Option<f64>) -> Aggregate {
        let stats = stats(text);
        aggregate(stats.grouping(), stats.to_string(), input, SCOPE, seconds).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    /// The functions over some columns, and what they are called with.
    fn calls(text: &str, input: &Shape, seconds: Option<f64>) -> Vec<(Function, Vec<Arg>)> {
        made(text, input.clone(), seconds).calls.into_iter().map(|call| (call.function, call.args)).collect()
    }

    fn only(text: &str, seconds: Option<f64>) -> Function {
        calls(text, &Shape::of_texts(["a", "b"]), seconds).remove(0).0
    }

    #[test]
    fn names_get_columns_before_rows_are_grouped() {
        let names = |text: &str| named(stats(text).grouping()).join(" ");
        assert_eq!(names("count() n"), "");
        assert_eq!(names("by (a, b:5) count() n"), "a b");
        assert_eq!(names("by (a) count(a, b, c*) n, min(b) m"), "a b");
        assert_eq!(names("by (a) sum(b, c*) s"), "a b _stream");
        assert_eq!(names("by (_time:1d) sum(b) s"), "_time b");
        assert_eq!(names("by (_time:1h) sum(b) s"), "_time b _stream");
        assert_eq!(names("sum(b) s"), "b");
        assert_eq!(names("field_min(d, e) f, json_values(g) sort by (h desc, d) j"), "d e h g");
        assert_eq!(names("row_max(a, b, c*) r, histogram(x) h, count_uniq(y, z) u, quantile(0.5, q) p"), "a b x y z q");
        assert_eq!(names("rate() r, rate_sum(a) s, count_uniq_hash(b) h, uniq_values(c) v"), "a b c");
    }

    /// The reference adds up values with units only where all rows of a stream on a day are in one group.
    #[test]
    fn values_with_units_count_where_groups_are_of_whole_streams_and_days() {
        for (by, rule) in [
            ("", NumberRule::Units),
            ("by (_stream)", NumberRule::Units),
            ("by (_stream_id, _time:1d)", NumberRule::Units),
            ("by (_time:day)", NumberRule::Units),
            ("by (_time:2d)", NumberRule::Units),
            ("by (_time:week)", NumberRule::Units),
            ("by (_time:month)", NumberRule::Units),
            ("by (_time:year)", NumberRule::Units),
            ("by (_time:1h)", NumberRule::Plain),
            ("by (_time:1d offset 1h)", NumberRule::Plain),
            ("by (_time)", NumberRule::Plain),
            ("by (a:1d)", NumberRule::Plain),
            ("by (a)", NumberRule::Plain),
            ("by (_stream, a)", NumberRule::Plain),
        ] {
            assert_eq!(only(&format!("{by} sum(b) s"), None), Function::Sum(rule), "{by}");
            assert_eq!(only(&format!("{by} avg(b) s"), None), Function::Avg(rule), "{by}");
            assert_eq!(only(&format!("{by} stddev(b) s"), None), Function::Stddev(rule), "{by}");
            assert_eq!(only(&format!("{by} rate_sum(b) s"), None), Function::rate_sum(rule, bucket_of(by)), "{by}");
        }
    }

    /// The seconds of the buckets of time in the cases above.
    fn bucket_of(by: &str) -> Option<f64> {
        let days = |days: f64| Some(days * 86_400.0);
        match by {
            "by (_stream_id, _time:1d)" | "by (_time:day)" | "by (_time:1d offset 1h)" => days(1.0),
            "by (_time:2d)" => days(2.0),
            "by (_time:week)" => days(7.0),
            "by (_time:month)" => Some(365.25 / 12.0 * 86_400.0),
            "by (_time:year)" => days(365.25),
            "by (_time:1h)" => Some(3600.0),
            _ => None,
        }
    }

    #[test]
    fn rates_are_over_buckets_or_the_range_of_time() {
        assert_eq!(only("rate() r", None), Function::rate(None));
        assert_eq!(only("rate() r", Some(60.0)), Function::rate(Some(60.0)));
        assert_eq!(only("by (a) rate() r", Some(60.0)), Function::rate(Some(60.0)));
        assert_eq!(only("by (_time:5m) rate() r", Some(60.0)), Function::rate(Some(300.0)));
        assert_eq!(only("by (_time:1.5s) rate() r", None), Function::rate(Some(1.5)));
        assert_eq!(only("by (a:5m) rate() r", Some(60.0)), Function::rate(Some(60.0)));
        assert_eq!(only("by (_time:/24) rate() r", Some(60.0)), Function::rate(Some(60.0)));
    }

    #[test]
    fn keys_of_streams_are_asked_for_by_functions_of_numbers() {
        let keys = |text: &str| stream_keys(stats(text).grouping()).join(" ");
        assert_eq!(keys("by (a, b) count() n, max(c) m"), "");
        assert_eq!(keys("by (a, _time:1d, _stream, b:5) sum(c) s"), "a b");
        assert_eq!(keys("by (a, _time:1h) count() n, avg(c) s"), "a _time");
        assert_eq!(keys("by (_stream, _time:week) stddev(c) s"), "");
        assert_eq!(keys("rate_sum(c) s"), "");
    }

    #[test]
    fn columns_by_name_by_group_and_of_the_map() {
        let field = |name: &str| Arg::Field(name.to_owned());
        let matched = |name: &str| Arg::Matched(name.to_owned());
        let rest = |prefixes: &[&str]| {
            Arg::Rest(prefixes.iter().map(|prefix| NamePattern::Prefix((*prefix).to_owned())).collect())
        };
        let columns = ["a", "ab", "b"];
        let check = |text: &str, expected: &[Arg], of_map: &[&str]| {
            let narrow = calls(text, &Shape::of_texts(columns), None).remove(0).1;
            assert_eq!(narrow, expected, "{text}");
            let wide = calls(text, &Shape::of_texts(columns).with_rest(), None).remove(0).1;
            let more = if of_map.is_empty() { Vec::new() } else { vec![rest(of_map)] };
            // What a JSON list is sorted by stands last.
            let at = wide.iter().position(|arg| matches!(arg, Arg::Rest(_))).unwrap_or(wide.len());
            let without: Vec<Arg> = wide.iter().filter(|arg| !matches!(arg, Arg::Rest(_))).cloned().collect();
            assert_eq!((without.as_slice(), &wide[at..at + more.len()]), (expected, more.as_slice()), "{text}");
        };
        check("sum(b, a, b) s", &[field("b"), field("a")], &[]);
        check("sum(a*) s", &[matched("a"), matched("ab")], &["a"]);
        check("sum(a, a*, ab*) s", &[field("a"), matched("ab")], &["a", "ab"]);
        check("max(c, d*) m", &[field("c")], &["d"]);
        check("min(*) m", &[matched("a"), matched("ab"), matched("b")], &[""]);
        check("count(*) n", &[], &[]);
        check("count(a, c) n", &[field("a"), field("c")], &[]);
        check("rate() r", &[], &[]);
        check("count_uniq(b, a) u", &[field("b"), field("a")], &[]);
        check("row_min(b, a*) r", &[field("b"), matched("a"), matched("ab")], &["a"]);
        check("row_max(b, b) r", &[field("b"), field("b")], &[]);
        check("field_max(b, a) f", &[field("b"), field("a")], &[]);
        check("json_values(a) sort by (b) j", &[field("a"), field("b")], &[]);
        check("json_values(a*) sort by (b) j", &[matched("a"), matched("ab"), field("b")], &["a"]);
        check("histogram(b) h", &[field("b")], &[]);
    }

    #[test]
    fn functions_have_what_they_are_called_with() {
        assert_eq!(only("count() n", None), Function::CountRows);
        assert_eq!(only("count(a, *) n", None), Function::CountRows);
        assert_eq!(only("count(a) n", None), Function::Count);
        assert_eq!(only("count_empty(a) n", None), Function::CountEmpty);
        assert_eq!(only("median(a) m", None), Function::quantile(0.5));
        assert_eq!(only("quantile(0.25, a) m", None), Function::quantile(0.25));
        assert_eq!(only("count_uniq(a) limit 3 u", None), Function::CountUniq { limit: Some(3) });
        assert_eq!(only("count_uniq_hash(a) limit 0 u", None), Function::CountUniqHash { limit: None });
        assert_eq!(only("count_uniq_hll(a) u", None), Function::CountUniqHash { limit: None });
        assert_eq!(only("uniq_values(a) limit 2 u", None), Function::UniqValues { limit: Some(2) });
        assert_eq!(only("values(a) u", None), Function::Values { limit: None });
        let sorted = Function::JsonValues { sort: vec![true, false], limit: Some(4) };
        assert_eq!(only("json_values(a) sort by (b desc, a) limit 4 j", None), sorted);
        let of_buckets = made("by (a:5, b) count() if (c:d) n", Shape::of_texts(["a", "b", "c"]), None);
        assert_eq!(of_buckets.keys[0].bucket, Some(Bucket::new(Step::Number(5.0), 0.0)));
        assert_eq!(of_buckets.keys[1].bucket, None);
        assert_eq!(of_buckets.calls[0].condition.as_ref().map(ToString::to_string).as_deref(), Some("c:\"d\""));
        let keys = |text: &str| {
            let made = made(text, Shape::of_texts(["a"]), None);
            made.keys.into_iter().map(|key| key.bucket).collect::<Vec<_>>()
        };
        assert_eq!(keys("by (a:/24) count() n"), [Some(Bucket::new(Step::Ipv4Mask(24), 0.0))]);
        assert_eq!(keys("by (a:month offset 2h) count() n"), [Some(Bucket::new(Step::Month, 7200e9))]);
        assert_eq!(keys("by (a:hour) count() n"), [Some(Bucket::new(Step::Number(3600e9), 0.0))]);
        assert_eq!(keys("by (a:10 offset -3) count() n"), [Some(Bucket::new(Step::Number(10.0), -3.0))]);
    }
}
