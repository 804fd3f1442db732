//! What of a statement's filters the label phase and the scan of samples do by themselves.

use std::fmt;
use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use quiver_types::label::METRIC_NAME;
use quiver_types::{MatchOp, Matcher, MillisRange, SeriesTable};
use serde::{Deserialize, Serialize};

use super::label_of;
use crate::tables::lower::{Condition, Lower, Lowered, nanos_of, range_of, texts_of};

/// Lowers filters over samples and series.
#[derive(Debug)]
pub(super) struct MetricLower {
    pub(super) service_labels: Arc<[String]>,
}

/// A filter of samples.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::tables) enum MetricFilter {
    /// All of these.
    And(Vec<MetricFilter>),
    /// Any of these, none of which is about time.
    Or(Vec<MetricFilter>),
    /// A label matches, as in PromQL: a missing one is empty.
    Label(Matcher),
    /// The service matches.
    Service(Matcher),
    /// The time lies in this range.
    Time(MillisRange),
}

/// Gives the service of a series: the first of some labels that it has.
pub(super) fn service<'t>(table: &'t SeriesTable, row: usize, service_labels: &[String]) -> &'t str {
    service_labels.iter().map(|label| table.value(row, label)).find(|value| !value.is_empty()).unwrap_or("")
}

impl MetricFilter {
    /// The matchers that all series must pass.
    pub(super) fn matchers(&self) -> Vec<Matcher> {
        match self {
            Self::And(all) => all.iter().flat_map(Self::matchers).collect(),
            Self::Label(matcher) => vec![matcher.clone()],
            _ => Vec::new(),
        }
    }

    /// A range that holds the times of all samples that match.
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

    /// Says whether series have to be looked at one by one after [`Self::matchers`].
    pub(super) fn needs_rows(&self) -> bool {
        match self {
            Self::And(all) => all.iter().any(Self::needs_rows),
            Self::Or(_) | Self::Service(_) => true,
            Self::Label(_) | Self::Time(_) => false,
        }
    }

    /// Says whether a series matches; times are not asked.
    pub(super) fn takes(&self, table: &SeriesTable, row: usize, service_labels: &[String]) -> bool {
        match self {
            Self::And(all) => all.iter().all(|one| one.takes(table, row, service_labels)),
            Self::Or(any) => any.iter().any(|one| one.takes(table, row, service_labels)),
            Self::Label(matcher) => matcher.matches(table.value(row, &matcher.name)),
            Self::Service(matcher) => matcher.matches(service(table, row, service_labels)),
            Self::Time(_) => true,
        }
    }

    /// Adds the labels that it looks at.
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

type Found = Option<Lowered<MetricFilter>>;

impl Lower for MetricLower {
    type Filter = MetricFilter;

    fn condition(&self, column: &str, condition: &Condition<'_>) -> Found {
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

fn time(condition: &Condition<'_>) -> Found {
    let Condition::Compare(op, value) = condition else { return None };
    let (nanos, _) = nanos_of(value)?;
    // A sample has whole milliseconds: of a range in nanoseconds those that lie in it.
    let range = range_of(*op, nanos).map_or(NEVER, |(min, max)| {
        let up = |ns: i64| ns.div_euclid(1_000_000) + i64::from(ns.rem_euclid(1_000_000) != 0);
        let min = if min == i64::MIN { i64::MIN } else { up(min) };
        let max = if max == i64::MAX { i64::MAX } else { max.div_euclid(1_000_000) };
        MillisRange { min, max }
    });
    Some(Lowered::exact(MetricFilter::Time(range)))
}

fn matchers(label: &str, condition: &Condition<'_>, filter: fn(Matcher) -> MetricFilter) -> Found {
    let matcher = |op, value: String| Matcher::new(label, op, value).ok().map(filter);
    let escaped = |text: &str| regex_escape(text);
    let one_of = |values: &[&ScalarValue], (one, many): (MatchOp, MatchOp)| {
        let texts = texts_of(values)?;
        match texts.as_slice() {
            // No value equals none of none; a value that is there is not empty.
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
    // What takes nothing takes no time either.
    Some(Lowered::exact(taken.unwrap_or(MetricFilter::Time(NEVER))))
}

/// Writes a text as a pattern that matches it alone.
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

    use super::*;
    use crate::tables::lower::lower;

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
}
