//! Conditions of a WHERE that a query can express: bounds of times, and comparisons of members with constants. They
//! have SQL's meaning: NULL satisfies only `IS NULL`.

use datafusion::common::{DFSchema, ScalarValue};
use datafusion::logical_expr::expr::InList;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Operator};
use datafusion::optimizer::simplify_expressions::ExprSimplifier;

use super::member;
use crate::dates::range::WallRange;
use crate::functions::instant_type;
use crate::model::{DimensionType, MemberId};
use crate::query::filter::{Comparison, Leaf, Literal, Test};

/// Bounds of a time; the upper one is excluded.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    low: Option<i64>,
    high: Option<i64>,
    /// The conditions as written.
    pub(super) conditions: Vec<Expr>,
}

impl Bounds {
    /// Parses a bound; `is_time` tells which members are times.
    pub(super) fn of(condition: &Expr, is_time: &dyn Fn(&MemberId) -> bool) -> Option<(MemberId, Self)> {
        let (id, low, high) = match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (member(left), member(right)) {
                (Some(id), None) => (id, lower(*op, right), upper(*op, right)),
                (None, Some(id)) => {
                    let op = op.swap()?;
                    (id, lower(op, left), upper(op, left))
                }
                _ => return None,
            },
            Expr::Between(Between { expr, negated: false, low, high }) => {
                (member(expr)?, lower(Operator::GtEq, low), upper(Operator::LtEq, high))
            }
            _ => return None,
        };
        let is_whole = (low.is_some() || high.is_some())
            && (!matches!(condition, Expr::Between(_)) || (low.is_some() && high.is_some()));
        (is_whole && is_time(&id)).then_some((id, Self { low, high, conditions: Vec::new() }))
    }

    /// Adds another bound of the same time.
    pub(super) fn and(&mut self, other: Self, condition: Expr) {
        self.low = self.low.into_iter().chain(other.low).max();
        self.high = self.high.into_iter().chain(other.high).min();
        self.conditions.push(condition);
    }

    /// The range, if both bounds are known.
    pub(super) fn range(&self) -> Option<WallRange> {
        let (start_ns, end_ns) = (self.low?, self.high?);
        if start_ns == LOW_OF_NULL || end_ns <= HIGH_OF_NULL.saturating_add(1) {
            return Some(WallRange { start_ns: 0, end_ns: 0 });
        }
        Some(WallRange { start_ns, end_ns: end_ns.max(start_ns) })
    }

    /// The condition on a time that has one bound. As a filter, not as an expression of the statement, it moves with the
    /// time where a measure looks at another period.
    pub(super) fn open(&self, member: &MemberId) -> Option<Leaf> {
        let test = match (self.low, self.high) {
            (Some(low), None) if low != LOW_OF_NULL => Test::Compare(Comparison::Gte, Literal::Instant(low)),
            (None, Some(high)) if high > HIGH_OF_NULL.saturating_add(1) => {
                Test::Compare(Comparison::Lt, Literal::Instant(high))
            }
            _ => return None,
        };
        Some(leaf(member.clone(), test))
    }
}

/// A condition that no query wrote.
fn leaf(member: MemberId, test: Test) -> Leaf {
    Leaf { member, operator: String::new(), values: Vec::new(), is_measure: false, test }
}

/// Bounds that no time is within: no comparison with NULL is true.
const LOW_OF_NULL: i64 = i64::MAX;
const HIGH_OF_NULL: i64 = i64::MIN;

/// The first instant that a comparison accepts.
fn lower(op: Operator, value: &Expr) -> Option<i64> {
    match op {
        Operator::GtEq => instant(value, LOW_OF_NULL),
        Operator::Gt => Some(instant(value, LOW_OF_NULL)?.saturating_add(1)),
        _ => None,
    }
}

/// The instant before which all accepted ones lie.
fn upper(op: Operator, value: &Expr) -> Option<i64> {
    match op {
        Operator::Lt => instant(value, HIGH_OF_NULL),
        Operator::LtEq => Some(instant(value, HIGH_OF_NULL)?.saturating_add(1)),
        _ => None,
    }
}

/// The value of a constant expression.
fn constant(expr: &Expr) -> Option<ScalarValue> {
    if let Expr::Literal(value, _) = expr {
        return Some(value.clone());
    }
    let is_fixed = expr.column_refs().is_empty() && !expr.is_volatile();
    let now = Some(quiver_query::statement_time());
    let simplifier = ExprSimplifier::new(SimplifyContext::builder().with_query_execution_start_time(now).build());
    let coerced = is_fixed.then(|| simplifier.coerce(expr.clone(), &DFSchema::empty()).ok())??;
    match simplifier.simplify(coerced).ok()? {
        Expr::Literal(value, _) => Some(value),
        _ => None,
    }
}

/// A constant time in nanoseconds, or what stands for NULL.
fn instant(expr: &Expr, of_null: i64) -> Option<i64> {
    match constant(expr)?.cast_to(&instant_type()).ok()? {
        ScalarValue::TimestampNanosecond(ns, _) => Some(ns.unwrap_or(of_null)),
        _ => None,
    }
}

/// A condition on a member as a filter; `kind` returns the type of a dimension. `None` if a query cannot express it.
pub(super) fn filter_of(condition: &Expr, kind: &dyn Fn(&MemberId) -> Option<DimensionType>) -> Option<Leaf> {
    let (id, test) = match condition {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => match (member(left), member(right)) {
            (Some(id), None) => (id, compared(*op, right)?),
            (None, Some(id)) => (id, compared(op.swap()?, left)?),
            _ => return None,
        },
        Expr::InList(InList { expr, list, negated: false }) => {
            let values = list.iter().map(literal).collect::<Option<Vec<_>>>()?;
            (member(expr)?, Test::In { values, null: false, negated: false })
        }
        Expr::IsNull(inner) => (member(inner)?, Test::Set(false)),
        Expr::IsNotNull(inner) => (member(inner)?, Test::Set(true)),
        _ => return None,
    };
    // A filter compares values of the member's own type; conditions that need a conversion stay in SQL.
    let fits = |value: &Literal, ty: DimensionType| match value {
        Literal::Text(_) => matches!(ty, DimensionType::String | DimensionType::Geo | DimensionType::Switch),
        Literal::Integer(_) | Literal::Double(_) => ty == DimensionType::Number,
        Literal::Boolean(_) => ty == DimensionType::Boolean,
        Literal::Instant(_) => false,
    };
    let ty = kind(&id)?;
    let is_fit = match &test {
        Test::In { values, .. } => !values.is_empty() && values.iter().all(|value| fits(value, ty)),
        Test::Compare(_, value) => fits(value, ty),
        _ => true,
    };
    is_fit.then(|| leaf(id, test))
}

fn compared(op: Operator, value: &Expr) -> Option<Test> {
    let value = literal(value)?;
    Some(match op {
        Operator::Eq => Test::In { values: vec![value], null: false, negated: false },
        Operator::Gt => Test::Compare(Comparison::Gt, value),
        Operator::GtEq => Test::Compare(Comparison::Gte, value),
        Operator::Lt => Test::Compare(Comparison::Lt, value),
        Operator::LtEq => Test::Compare(Comparison::Lte, value),
        _ => return None,
    })
}

fn literal(expr: &Expr) -> Option<Literal> {
    let Expr::Literal(value, _) = expr else { return None };
    Some(match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) => Literal::Text(text.clone()),
        ScalarValue::Int64(Some(n)) => Literal::Integer(*n),
        ScalarValue::Float64(Some(n)) => Literal::Double(*n),
        ScalarValue::Boolean(Some(is)) => Literal::Boolean(*is),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use datafusion::common::{Column, TableReference};
    use datafusion::logical_expr::{cast, lit};

    use super::*;

    fn time() -> Expr {
        Expr::Column(Column::new(Some(TableReference::bare("M")), "t"))
    }

    #[test]
    fn bounds_of_times() {
        let check = |conditions: &[Expr], expected: Option<(i64, i64)>| {
            let mut all = Bounds::default();
            for condition in conditions {
                let (_, found) = Bounds::of(condition, &|_| true).expect("a bound");
                all.and(found, condition.clone());
            }
            assert_eq!(all.range().map(|r| (r.start_ns, r.end_ns)), expected, "{conditions:?}");
        };
        let second = lit("1970-01-01T00:00:01Z");
        check(&[time().gt_eq(lit("1970-01-01"))], None);
        check(&[time().gt_eq(lit("1970-01-01")), time().lt(second.clone())], Some((0, 1_000_000_000)));
        check(&[time().gt(lit("1970-01-01")), second.clone().gt_eq(time())], Some((1, 1_000_000_001)));
        check(&[time().between(cast(lit("1970-01-01"), instant_type()), second.clone())], Some((0, 1_000_000_001)));
        check(&[time().gt_eq(second.clone()), time().lt(lit("1970-01-01"))], Some((1_000_000_000, 1_000_000_000)));
        let null = || lit(ScalarValue::Null);
        check(&[time().gt_eq(null()), time().lt(second.clone())], Some((0, 0)));
        check(&[time().gt(null()), time().lt_eq(second.clone())], Some((0, 0)));
        check(&[time().gt_eq(lit("1960-01-01")), time().lt_eq(null())], Some((0, 0)));
        check(&[time().between(null(), second)], Some((0, 0)));
        assert!(Bounds::of(&time().gt(time()), &|_| true).is_none());
        assert!(Bounds::of(&time().gt(lit("no time")), &|_| true).is_none());
        assert!(Bounds::of(&time().eq(lit("1970-01-01")), &|_| true).is_none());
    }

    #[test]
    fn single_bounds_are_filters() {
        let check = |condition: &Expr, expected: Option<Test>| {
            let (id, found) = Bounds::of(condition, &|_| true).expect("a bound");
            assert_eq!(found.open(&id).map(|leaf| leaf.test), expected, "{condition}");
        };
        let compare = |comparison, ns| Some(Test::Compare(comparison, Literal::Instant(ns)));
        check(&time().gt_eq(lit("1970-01-01")), compare(Comparison::Gte, 0));
        check(&time().gt(lit("1970-01-01")), compare(Comparison::Gte, 1));
        check(&lit("1970-01-01").gt(time()), compare(Comparison::Lt, 0));
        check(&time().lt_eq(lit("1970-01-01")), compare(Comparison::Lt, 1));
        check(&time().between(lit("1970-01-01"), lit("1970-01-02")), None);
        for null in [time().gt(lit(ScalarValue::Null)), time().lt_eq(lit(ScalarValue::Null))] {
            check(&null, None);
        }
    }

    #[test]
    fn comparisons_with_constants() {
        let check = |condition: &Expr, ty, expected: Option<Test>| {
            assert_eq!(filter_of(condition, &|_| Some(ty)).map(|leaf| leaf.test), expected, "{condition}");
        };
        let one = || Test::In { values: vec![Literal::Text("a".to_owned())], null: false, negated: false };
        check(&time().eq(lit("a")), DimensionType::String, Some(one()));
        check(&time().in_list(vec![lit("a")], false), DimensionType::String, Some(one()));
        check(&time().eq(lit("a")), DimensionType::Number, None);
        check(&time().not_eq(lit("a")), DimensionType::String, None);
        let more = Test::Compare(Comparison::Lt, Literal::Integer(5));
        check(&lit(5_i64).gt(time()), DimensionType::Number, Some(more));
        check(&time().is_null(), DimensionType::Time, Some(Test::Set(false)));
        check(&time().in_list(vec![lit("a")], true), DimensionType::String, None);
    }
}
