//! Plans conditions on rows and on groups.

use chrono_tz::Tz;
use datafusion::arrow::datatypes::DataType;
use datafusion::common::ScalarValue;
use datafusion::logical_expr::{Expr, cast, lit};

use super::{Planner, Stage, column};
use crate::dates::range::WallRange;
use crate::dates::zone::{Edge, utc_ns};
use crate::error::OlapResult;
use crate::model::MemberId;
use crate::model::catalog::MemberKind;
use crate::query::filter::{Comparison, Filter, Leaf, Literal, Occurs, Test};
use crate::sql_text::marked;

/// A literal instant.
pub(crate) fn instant(ns: i64) -> Expr {
    lit(ScalarValue::TimestampNanosecond(Some(ns), Some("UTC".into())))
}

/// Joins conditions as a balanced tree: a chain would nest as deeply as it is long, and planning recurses.
fn joined(mut all: Vec<Expr>, join: fn(Expr, Expr) -> Expr) -> Option<Expr> {
    while all.len() > 1 {
        let mut rest = all.into_iter();
        let mut pairs = Vec::new();
        while let Some(left) = rest.next() {
            pairs.push(match rest.next() {
                Some(right) => join(left, right),
                None => left,
            });
        }
        all = pairs;
    }
    all.pop()
}

/// Whether a number is out of range for decimals; it is then compared as double.
fn is_far(value: &Literal) -> bool {
    const FAR: std::ops::Range<f64> = 1e-15..1e15;
    matches!(value, Literal::Double(n) if *n != 0.0 && !FAR.contains(&n.abs()))
}

/// The member cast to the type in which it is compared with these values.
fn beside<'v>(member: Expr, values: impl IntoIterator<Item = &'v Literal>) -> Expr {
    if values.into_iter().any(is_far) { cast(member, DataType::Float64) } else { member }
}

fn literal(value: &Literal) -> Expr {
    match value {
        Literal::Text(text) => lit(text.as_str()),
        Literal::Integer(n) => lit(*n),
        Literal::Double(n) => lit(*n),
        Literal::Boolean(is) => lit(*is),
        Literal::Instant(ns) => instant(*ns),
    }
}

impl Planner<'_> {
    /// A literal that is a value of the query, or derived from the caller.
    pub(crate) fn value(&self, literal: Expr) -> Expr {
        if self.marks_values { marked(literal) } else { literal }
    }

    /// A literal instant that is derived from the query.
    pub(super) fn instant(&self, ns: i64) -> Expr {
        self.value(instant(ns))
    }

    /// All conditions of a stage on rows of a tree, except ranges of `free` time dimensions.
    pub(crate) fn conditions(&self, stage: &Stage, root: &str, free: &[MemberId]) -> OlapResult<Vec<Expr>> {
        let mut all = Vec::new();
        for (member, range) in stage.ranges.iter().filter(|(member, _)| !free.contains(member)) {
            all.push(self.in_range(stage, member, range)?);
        }
        for filter in &stage.filters {
            all.push(self.filter(filter, &|leaf| self.row_value(stage, leaf), stage.tz, Some((stage, root)))?);
        }
        for id in stage.segments.iter().filter(|id| self.measures_of(id).is_none()) {
            all.push(self.segment(stage, id)?);
        }
        Ok(all)
    }

    /// The value that a condition on rows is about. A time is moved as ranges and buckets are: a shifted stage has other
    /// rows for the same condition.
    fn row_value(&self, stage: &Stage, leaf: &Leaf) -> OlapResult<Expr> {
        let member = self.behind(&leaf.member)?;
        let value = self.dimension(stage, &member)?;
        Ok(self.moved(stage, &member, value))
    }

    /// A condition that a time is within a range, shifted as the stage is.
    pub(super) fn in_range(&self, stage: &Stage, member: &MemberId, range: &WallRange) -> OlapResult<Expr> {
        let back = self.shift(stage, member).negated();
        let start = utc_ns(stage.tz, back.add_to(range.start_ns), Edge::Start);
        let end = utc_ns(stage.tz, back.add_to(range.end_ns), Edge::End);
        let time = self.dimension(stage, member)?;
        let since = match self.catalog.find(member).map(|f| (f.model, f.kind)) {
            Some((model, MemberKind::Dimension(d))) => d.since.as_ref().map(|s| MemberId::new(&model.common.name, s)),
            _ => None,
        };
        let first = since.map(|id| self.dimension(stage, &id)).transpose()?.unwrap_or_else(|| time.clone());
        Ok(time.gt_eq(self.instant(start)).and(first.lt(self.instant(end))))
    }

    /// A condition on groups, over the columns of measures.
    pub(crate) fn having(&self, filter: &Filter, tz: Tz) -> OlapResult<Expr> {
        self.filter(filter, &|leaf| Ok(column(self.behind(&leaf.member)?.to_string())), tz, None)
    }

    fn filter(
        &self,
        filter: &Filter,
        value: &dyn Fn(&Leaf) -> OlapResult<Expr>,
        tz: Tz,
        stage: Option<(&Stage, &str)>,
    ) -> OlapResult<Expr> {
        // As in the reference, a branch without conditions is ignored: in an OR it does not select all rows.
        let all = |inner: &[Filter]| {
            let branches = inner.iter().filter(|f| !f.leaves().is_empty());
            branches.map(|f| self.filter(f, value, tz, stage)).collect::<OlapResult<Vec<_>>>()
        };
        match filter {
            Filter::And(inner) => Ok(joined(all(inner)?, Expr::and).unwrap_or_else(|| lit(true))),
            // An empty OR would be false.
            Filter::Or(inner) => Ok(joined(all(inner)?, Expr::or).unwrap_or_else(|| lit(true))),
            Filter::Leaf(leaf) => match (&leaf.test, stage) {
                (Test::MeasureFilter, Some((stage, root))) => self.measure_filter(stage, root, &leaf.member),
                (Test::Range(range, negated), _) => {
                    let (start, end) = range.instants(tz);
                    let value = value(leaf)?;
                    let within = value.clone().gt_eq(self.instant(start)).and(value.lt(self.instant(end)));
                    Ok(if *negated { !within } else { within })
                }
                (test, Some((stage, _))) if self.is_opened(&leaf.member) => {
                    let (test, value) = self.opened(stage, test, value(leaf)?)?;
                    self.test(&test, value)
                }
                (test, _) => self.test(test, value(leaf)?),
            },
        }
    }

    fn test(&self, test: &Test, value: Expr) -> OlapResult<Expr> {
        Ok(match test {
            Test::In { values, null, negated } => {
                let list: Vec<Expr> = values.iter().map(|v| self.value(literal(v))).collect();
                let value = beside(value, values);
                let listed = (!list.is_empty()).then(|| value.clone().in_list(list, *negated));
                match (listed, *null, *negated) {
                    (Some(listed), true, false) | (Some(listed), false, true) => listed.or(value.is_null()),
                    (None, _, false) => value.is_null(),
                    (Some(listed), true, true) => listed.and(value.is_not_null()),
                    (None, _, true) => value.is_not_null(),
                    (Some(listed), false, false) => listed,
                }
            }
            Test::Text { occurs, values, null, negated } => {
                let lower = self.scalar("lower", vec![value.clone()])?;
                let one = |text: &String| -> OlapResult<Expr> {
                    let text = self.value(lit(text.to_lowercase()));
                    Ok(match occurs {
                        Occurs::Within => self.scalar("strpos", vec![lower.clone(), text])?.gt(lit(0_i64)),
                        Occurs::AtStart => self.scalar("starts_with", vec![lower.clone(), text])?,
                        Occurs::AtEnd => self.scalar("ends_with", vec![lower.clone(), text])?,
                    })
                };
                let any = values.iter().map(one).collect::<OlapResult<Vec<_>>>()?;
                match (joined(any, Expr::or), *null, *negated) {
                    (Some(any), false, false) => any,
                    (Some(any), true, false) => any.or(value.is_null()),
                    // What is NULL contains nothing, unless NULL is one of the values.
                    (Some(any), false, true) => (!any).or(value.is_null()),
                    (Some(any), true, true) => !any,
                    (None, _, false) => value.is_null(),
                    (None, _, true) => value.is_not_null(),
                }
            }
            Test::Compare(comparison, with) => {
                let value = beside(value, [with]);
                let with = self.value(literal(with));
                match comparison {
                    Comparison::Gt => value.gt(with),
                    Comparison::Gte => value.gt_eq(with),
                    Comparison::Lt => value.lt(with),
                    Comparison::Lte => value.lt_eq(with),
                }
            }
            Test::Set(true) => value.is_not_null(),
            Test::Set(false) => value.is_null(),
            Test::Range(..) | Test::MeasureFilter => lit(true),
        })
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{Operator, col};

    use super::*;

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryExpr(e) if e.op == Operator::Or => 1 + depth(&e.left).max(depth(&e.right)),
            _ => 0,
        }
    }

    #[test]
    fn many_conditions_are_no_chain() {
        assert_eq!(joined(vec![], Expr::or), None);
        let text = |names: &[&str]| joined(names.iter().map(|n| col(*n)).collect(), Expr::or).unwrap().to_string();
        assert_eq!(text(&["a"]), "a");
        assert_eq!(text(&["a", "b", "c"]), col("a").or(col("b")).or(col("c")).to_string());
        let many = joined((0..20_000).map(|n| col(format!("c{n}"))).collect(), Expr::or).unwrap();
        assert_eq!(depth(&many), 15);
    }

    #[test]
    fn numbers_beyond_decimals() {
        let check = |n: f64, far: bool| assert_eq!(is_far(&Literal::Double(n)), far, "{n}");
        for near in [0.0, 0.5, -0.5, 1e-15, 1e14, -1e14, 178.6] {
            check(near, false);
        }
        for far in [1e15, -1e15, 1e308, 1e-20, -1e-20] {
            check(far, true);
        }
        assert!(!is_far(&Literal::Integer(i64::MAX)) && !is_far(&Literal::Text("1e30".to_owned())));
        let one = |n: f64| beside(col("a"), &[Literal::Integer(1), Literal::Double(n)]);
        assert_eq!((one(1.5), one(1e30)), (col("a"), cast(col("a"), DataType::Float64)));
    }
}
