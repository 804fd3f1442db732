//! Translates the filters of a statement that the label index and the scan of samples can apply.

use std::fmt;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use quiver_types::label::METRIC_NAME;
use quiver_types::{MatchOp, Matcher, MillisRange, SeriesTable};
use serde::{Deserialize, Serialize};

use super::columns::label_of;
use crate::tables::filter_lowering::{Condition, Lower, LoweredFilter, nanos_of, range_of, texts_of};

/// Translates filters over samples and series.
#[derive(Debug)]
pub(super) struct MetricLower {
    pub(super) service_labels: Arc<[String]>,
}

/// A filter of samples.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::tables) enum MetricFilter {
    /// All of these hold.
    And(Vec<MetricFilter>),
    /// Any of these holds; none of them is about time.
    Or(Vec<MetricFilter>),
    /// A label matches as in PromQL: a missing label is empty.
    Label(Matcher),
    /// The service matches.
    Service(Matcher),
    /// The time lies in this range.
    Time(MillisRange),
}

/// The service of a series: the value of the first of these labels that it has.
pub(super) fn service<'t>(table: &'t SeriesTable, row: usize, service_labels: &[String]) -> &'t str {
    service_labels.iter().map(|label| table.value(row, label)).find(|value| !value.is_empty()).unwrap_or("")
}

impl MetricFilter {
    /// The matchers that every accepted series must pass.
    pub(super) fn matchers(&self) -> Vec<Matcher> {
        match self {
            Self::And(all) => all.iter().flat_map(Self::matchers).collect(),
            Self::Label(matcher) => vec![matcher.clone()],
            _ => Vec::new(),
        }
    }

    /// A range that contains the times of all accepted samples.
    pub(super) fn range(&self) -> MillisRange {
        match self {
            Self::Time(range) => *range,
            Self::And(all) => all
                .iter()
                .map(Self::range)
                .fold(MillisRange::ALL, |a, b| MillisRange::new(a.min.max(b.min), a.max.min(b.max))),
            _ => MillisRange::ALL,
        }
    }

    /// Whether series must be tested one by one after [`Self::matchers`].
    pub(super) fn needs_rows(&self) -> bool {
        match self {
            Self::And(all) => all.iter().any(Self::needs_rows),
            Self::Or(_) | Self::Service(_) => true,
            Self::Label(_) | Self::Time(_) => false,
        }
    }

    /// Whether a series matches; conditions on time are ignored.
    pub(super) fn takes(&self, table: &SeriesTable, row: usize, service_labels: &[String]) -> bool {
        match self {
            Self::And(all) => all.iter().all(|one| one.takes(table, row, service_labels)),
            Self::Or(any) => any.iter().any(|one| one.takes(table, row, service_labels)),
            Self::Label(matcher) => matcher.matches(table.value(row, &matcher.name)),
            Self::Service(matcher) => matcher.matches(service(table, row, service_labels)),
            Self::Time(_) => true,
        }
    }

    /// Adds the labels that the filter reads to `out`.
    pub(super) fn labels(&self, service_labels: &[String], out: &mut Vec<String>) {
        match self {
            Self::And(some) | Self::Or(some) => some.iter().for_each(|one| one.labels(service_labels, out)),
            Self::Label(matcher) => out.push(matcher.name.clone()),
            Self::Service(_) => out.extend(service_labels.iter().cloned()),
            Self::Time(_) => {}
        }
    }

    fn is_timeless(&self) -> bool {
        match self {
            Self::And(some) | Self::Or(some) => some.iter().all(Self::is_timeless),
            Self::Label(_) | Self::Service(_) => true,
            Self::Time(_) => false,
        }
    }
}

impl fmt::Display for MetricFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, some: &[Self], by: &str| {
            for (at, one) in some.iter().enumerate() {
                write!(f, "{}{one}", if at == 0 { "" } else { by })?;
            }
            Ok(())
        };
        match self {
            Self::And(all) => list(f, all, ", "),
            Self::Or(any) => {
                f.write_str("(")?;
                list(f, any, " or ")?;
                f.write_str(")")
            }
            Self::Label(matcher) => write!(f, "{matcher:?}"),
            Self::Service(matcher) => write!(f, "service {}{:?}", matcher.op.as_str(), matcher.value),
            Self::Time(range) => write!(f, "time in [{}, {}]", range.min, range.max),
        }
    }
}

type LoweredMetricFilter = Option<LoweredFilter<MetricFilter>>;

impl Lower for MetricLower {
    type Filter = MetricFilter;

    fn condition(&self, column: &str, condition: &Condition<'_>) -> LoweredMetricFilter {
        match column {
            "time" => time(condition),
            "name" => matchers(METRIC_NAME, condition, MetricFilter::Label),
            "service_name" => matchers("service_name", condition, MetricFilter::Service),
            other => matchers(label_of(other)?, condition, MetricFilter::Label),
        }
    }

    fn all_of(filters: Vec<MetricFilter>) -> MetricFilter {
        MetricFilter::And(filters)
    }

    fn any_of(filters: [MetricFilter; 2]) -> Option<MetricFilter> {
        filters.iter().all(MetricFilter::is_timeless).then(|| MetricFilter::Or(filters.into()))
    }
}

/// The empty range of times.
const NEVER: MillisRange = MillisRange { min: i64::MAX, max: i64::MIN };

fn time(condition: &Condition<'_>) -> LoweredMetricFilter {
    let Condition::Compare(op, value) = condition else { return None };
    let (nanos, _) = nanos_of(value)?;
    // Times are whole milliseconds: those within the range of nanoseconds.
    let range = range_of(*op, nanos).map_or(NEVER, |(min, max)| {
        let up = |ns: i64| ns.div_euclid(1_000_000) + i64::from(ns.rem_euclid(1_000_000) != 0);
        let min = if min == i64::MIN { i64::MIN } else { up(min) };
        let max = if max == i64::MAX { i64::MAX } else { max.div_euclid(1_000_000) };
        MillisRange { min, max }
    });
    Some(LoweredFilter::exact(MetricFilter::Time(range)))
}

fn matchers(label: &str, condition: &Condition<'_>, filter: fn(Matcher) -> MetricFilter) -> LoweredMetricFilter {
    let matcher = |op, value: String| Matcher::new(label, op, value).ok().map(filter);
    let escaped = |text: &str| regex_escape(text);
    let one_of = |values: &[&ScalarValue], (one, many): (MatchOp, MatchOp)| {
        let texts = texts_of(values)?;
        match texts.as_slice() {
            // All literals were empty texts, which no value equals.
            [] => Some(None),
            [text] => Some(Some(matcher(one, (*text).to_owned())?)),
            texts => {
                let texts: Vec<String> = texts.iter().map(|text| escaped(text)).collect();
                Some(Some(matcher(many, texts.join("|"))?))
            }
        }
    };
    let there = || matcher(MatchOp::NotEqual, String::new());
    let taken = match condition {
        Condition::Compare(Operator::Eq, value) => one_of(&[value], (MatchOp::Equal, MatchOp::Regex))?,
        Condition::In(values) => one_of(values, (MatchOp::Equal, MatchOp::Regex))?,
        Condition::NotIn(values) => {
            let mut both = vec![there()?];
            both.extend(one_of(values, (MatchOp::NotEqual, MatchOp::NotRegex))?);
            Some(MetricFilter::And(both))
        }
        Condition::Prefix(prefix) => Some(matcher(MatchOp::Regex, format!("{}.*", escaped(prefix)))?),
        Condition::Contains(part) => Some(matcher(MatchOp::Regex, format!(".*{}.*", escaped(part)))?),
        Condition::Null => Some(matcher(MatchOp::Equal, String::new())?),
        Condition::NotNull => Some(there()?),
        Condition::Compare(..) => return None,
    };
    // An empty set of values is expressed as an empty time range.
    Some(LoweredFilter::exact(taken.unwrap_or(MetricFilter::Time(NEVER))))
}

/// A pattern that matches exactly this text.
fn regex_escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_ascii_punctuation() && c != '_' && c != '-' && c != '/' && c != ':' {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use datafusion::common::ScalarValue;
    use datafusion::logical_expr::{Expr, col, ident, lit};
    use quiver_types::series::SeriesTableBuilder;

    use super::*;
    use crate::tables::filter_lowering::lower;

    /// An operator, a comparison with a time, and the same comparison of integers.
    type Comparison = (&'static str, Expr, fn(i64, i64) -> bool);

    fn lowered(expr: &Expr) -> Option<MetricFilter> {
        let table = MetricLower { service_labels: ["service_name", "job"].map(str::to_owned).to_vec().into() };
        lower(&table, expr).inspect(|lowered| assert!(lowered.exact, "{expr}")).map(|lowered| lowered.filter)
    }

    fn series<'a>(all: impl IntoIterator<Item = Vec<(&'a str, &'a str)>>) -> SeriesTable {
        let mut table = SeriesTableBuilder::default();
        for labels in all {
            table.push(labels);
        }
        table.finish()
    }

    /// For each series, whether a filter accepts it.
    fn taken(filter: &MetricFilter, table: &SeriesTable) -> Vec<bool> {
        let services = ["service_name", "job"].map(str::to_owned);
        (0..table.len()).map(|row| filter.takes(table, row, &services)).collect()
    }

    fn at(ns: i64) -> Expr {
        lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())))
    }

    #[test]
    fn filters_of_samples() {
        let table = MetricLower { service_labels: vec!["service_name".to_owned()].into() };
        let check = |expr: Expr, expected: &str| {
            let lowered = lower(&table, &expr).expect("the store can say it");
            assert_eq!((lowered.filter.to_string().as_str(), lowered.exact), (expected, true), "{expr}");
        };
        check(col("name").eq(lit("up")), "__name__=\"up\"");
        check(ident("labels.mode").is_null(), "mode=\"\"");
        check(ident("labels.mode").not_eq(lit("idle")), "mode!=\"\", mode!=\"idle\"");
        check(col("service_name").eq(lit("cart")), "service =\"cart\"");
        check(col("name").like(lit("node.%")), "__name__=~\"node\\\\..*\"");
        let at = |ns| lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())));
        check(col("time").gt(at(1_000_000)), "time in [2, 9223372036854775807]");
        check(col("time").gt_eq(at(1_000_001)), "time in [2, 9223372036854775807]");
        check(col("time").lt(at(2_000_000)), "time in [-9223372036854775808, 1]");
        assert!(lower(&table, &col("time").lt(at(1)).or(col("name").eq(lit("up")))).is_none());
        assert!(lower(&table, &col("value").gt(lit(1.0))).is_none());
    }

    #[test]
    fn texts_are_themselves_whatever_they_hold() {
        for mark in (b' '..=b'~').map(char::from).filter(char::is_ascii_punctuation).chain(['\n', 'é', '\u{1f600}']) {
            let name = format!("a{mark}b");
            let others = ["axb", "ab", "other", "aab"].map(|name| vec![("__name__", name)]);
            let table = series([vec![("__name__", name.as_str())]].into_iter().chain(others));
            let check = |expr: Expr, expected: [bool; 5]| {
                let filter = lowered(&expr).unwrap_or_else(|| panic!("{expr}"));
                assert_eq!(taken(&filter, &table), expected, "{expr}");
            };
            check(col("name").eq(lit(name.as_str())), [true, false, false, false, false]);
            let list = || vec![lit(name.as_str()), lit("other")];
            check(col("name").in_list(list(), false), [true, false, false, true, false]);
            check(col("name").in_list(list(), true), [false, true, true, false, true]);
            if !['%', '_', '\\'].contains(&mark) {
                check(col("name").like(lit(format!("a{mark}%"))), [true, false, false, false, false]);
                check(col("name").like(lit(format!("%{mark}%"))), [true, false, false, false, false]);
            }
        }
    }

    #[test]
    fn labels_that_are_not_there_equal_nothing() {
        let table = series([vec![("mode", "idle")], vec![("mode", "user")], vec![("other", "idle")]]);
        let mode = || ident("labels.mode");
        for (expr, expected) in [
            (mode().is_null(), [false, false, true]),
            (mode().is_not_null(), [true, true, false]),
            (mode().eq(lit("idle")), [true, false, false]),
            (mode().not_eq(lit("idle")), [false, true, false]),
            (mode().not_eq(lit("")), [true, true, false]),
            (mode().in_list(vec![lit("idle"), lit("user"), lit("")], true), [false, false, false]),
            (mode().in_list(vec![lit("idle"), lit("")], false), [true, false, false]),
            (mode().is_null().or(mode().eq(lit("user"))), [false, true, true]),
        ] {
            let filter = lowered(&expr).unwrap_or_else(|| panic!("{expr}"));
            assert_eq!(taken(&filter, &table), expected, "{expr}");
        }
        let nothing = lowered(&mode().eq(lit(""))).unwrap();
        assert!(nothing.range().min > nothing.range().max, "no label is the empty text");
        for expr in [mode().gt(lit("a")), mode().eq(lit(1i64)), ident("labels.").is_null(), col("value").is_null()] {
            assert_eq!(lowered(&expr).map(|f| f.to_string()), None, "{expr}");
        }
    }

    #[test]
    fn services_are_the_first_label_that_names_one() {
        let table = series([
            vec![("job", "x"), ("service_name", "cart")],
            vec![("job", "api")],
            vec![("service_name", "api")],
            vec![("mode", "idle")],
        ]);
        let check = |expr: Expr, expected: [bool; 4]| {
            let filter = lowered(&expr).unwrap_or_else(|| panic!("{expr}"));
            assert_eq!(taken(&filter, &table), expected, "{expr}");
            assert!(filter.needs_rows() && filter.matchers().is_empty(), "{expr}");
        };
        check(col("service_name").eq(lit("api")), [false, true, true, false]);
        check(col("service_name").eq(lit("x")), [false; 4]);
        check(col("service_name").not_eq(lit("api")), [true, false, false, false]);
        check(col("service_name").is_null(), [false, false, false, true]);
        let mixed = col("name").eq(lit("up")).and(col("service_name").eq(lit("api"))).and(ident("labels.a").is_null());
        let filter = lowered(&mixed).unwrap();
        let matchers: Vec<String> = filter.matchers().iter().map(|m| format!("{m:?}")).collect();
        assert_eq!(matchers, ["__name__=\"up\"", "a=\"\""], "the index answers these");
        assert!(filter.needs_rows());
        let mut labels = Vec::new();
        filter.labels(&["service_name", "job"].map(str::to_owned), &mut labels);
        labels.sort_unstable();
        assert_eq!(labels, ["__name__", "a", "job", "service_name"]);
        let plain = lowered(&col("name").eq(lit("up")).and(col("time").gt(at(0)))).unwrap();
        assert!(!plain.needs_rows(), "nothing is left for rows");
    }

    #[test]
    fn times_are_those_of_whole_milliseconds() {
        for ns in [-1_000_001, -1_000_000, -999_999, -1, 0, 1, 999_999, 1_000_000, 1_000_001, i64::MIN, i64::MAX] {
            let comparisons: [Comparison; 5] = [
                ("=", col("time").eq(at(ns)), |a, b| a == b),
                ("<", col("time").lt(at(ns)), |a, b| a < b),
                ("<=", col("time").lt_eq(at(ns)), |a, b| a <= b),
                (">", col("time").gt(at(ns)), |a, b| a > b),
                (">=", col("time").gt_eq(at(ns)), |a, b| a >= b),
            ];
            for (name, expr, holds) in comparisons {
                let range = lowered(&expr).unwrap().range();
                for ms in -3..=3 {
                    assert_eq!(range.contains(ms), holds(ms * 1_000_000, ns), "{ms} ms {name} {ns} ns");
                }
            }
        }
    }

    #[test]
    fn ranges_of_all_conditions_meet() {
        let between = |from: i64, to: i64| col("time").between(at(from * 1_000_000), at(to * 1_000_000));
        let range = |expr: Expr| {
            let range = lowered(&expr).unwrap().range();
            (range.min, range.max)
        };
        assert_eq!(range(between(1, 5)), (1, 5));
        assert_eq!(range(between(1, 5).and(between(3, 9)).and(col("name").eq(lit("up")))), (3, 5));
        let apart = range(between(1, 2).and(between(3, 4)));
        assert!(apart.0 > apart.1, "{apart:?}");
        let names = col("name").eq(lit("a")).or(col("name").eq(lit("b")));
        assert_eq!(range(names), (i64::MIN, i64::MAX));
        let timed = between(1, 2).and(col("name").eq(lit("a"))).or(col("name").eq(lit("b")));
        assert!(lowered(&timed).is_none(), "a range within an alternative is no range of the scan");
        assert!(lowered(&col("time").not_eq(at(0))).is_none());
    }
}
