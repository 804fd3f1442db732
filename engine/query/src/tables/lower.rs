//! Filters of SQL as filters of the store: the one walk over `Expr` that all named tables share (contract P8).
//!
//! A lowered filter takes every row for which the expression is true; it is *exact* when it takes no other. What is not
//! exact stays in DataFusion's `Filter` above the scan, which then sees fewer rows. NULL never makes an expression true,
//! so a test of an absent value takes no row.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Cast, InList};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator, TableProviderFilterPushDown};

/// A filter of a store, and whether it is all of the expression.
#[derive(Debug, Clone)]
pub(super) struct Lowered<F> {
    /// Takes at least the rows that the expression takes.
    pub(super) filter: F,
    /// Takes no others.
    pub(super) exact: bool,
}

impl<F> Lowered<F> {
    /// A filter that says all.
    pub(super) fn exact(filter: F) -> Self {
        Self { filter, exact: true }
    }

    /// A filter that says less.
    pub(super) fn wider(filter: F) -> Self {
        Self { filter, exact: false }
    }
}

/// A condition on one column.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Condition<'e> {
    /// `column op value`: `=`, `<`, `<=`, `>`, `>=`.
    Compare(Operator, &'e ScalarValue),
    /// `column <> value`, `column NOT IN (…)`.
    NotIn(Vec<&'e ScalarValue>),
    /// `column IN (…)`.
    In(Vec<&'e ScalarValue>),
    /// `column LIKE 'text%'`.
    Prefix(String),
    /// `column LIKE '%text%'`.
    Contains(String),
    /// `column IS NULL`.
    Null,
    /// `column IS NOT NULL`.
    NotNull,
}

/// A table's part of the lowering.
pub(super) trait Lower {
    /// The store's filter.
    type Filter;

    /// Lowers a condition on a column; `None`: the store cannot say it.
    fn condition(&self, column: &str, condition: &Condition<'_>) -> Option<Lowered<Self::Filter>>;

    /// All of some filters.
    fn all_of(filters: Vec<Self::Filter>) -> Self::Filter;

    /// Any of two filters; `None`: the store cannot say it.
    fn any_of(filters: [Self::Filter; 2]) -> Option<Self::Filter>;
}

/// Lowers an expression; `None`: nothing of it can be said to the store.
pub(super) fn lower<L: Lower>(table: &L, expr: &Expr) -> Option<Lowered<L::Filter>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (lower(table, left), lower(table, right)) {
                (Some(a), Some(b)) => {
                    let exact = a.exact && b.exact;
                    Some(Lowered { filter: L::all_of(vec![a.filter, b.filter]), exact })
                }
                (Some(one), None) | (None, Some(one)) => Some(Lowered::wider(one.filter)),
                (None, None) => None,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (a, b) = (lower(table, left)?, lower(table, right)?);
            Some(Lowered { filter: L::any_of([a.filter, b.filter])?, exact: a.exact && b.exact })
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let column = column(expr)?;
            let (low, high) = (literal(low)?, literal(high)?);
            let a = table.condition(column, &Condition::Compare(Operator::GtEq, low))?;
            let b = table.condition(column, &Condition::Compare(Operator::LtEq, high))?;
            Some(Lowered { filter: L::all_of(vec![a.filter, b.filter]), exact: a.exact && b.exact })
        }
        other => {
            let (column, condition) = condition(other)?;
            table.condition(column, &condition)
        }
    }
}

/// Lowers all of some filters: what the store is asked for.
pub(super) fn lower_all<L: Lower>(table: &L, filters: &[Expr]) -> Vec<L::Filter> {
    filters.iter().filter_map(|filter| lower(table, filter)).map(|lowered| lowered.filter).collect()
}

/// Says what of some filters the store does by itself.
pub(super) fn supported<L: Lower>(table: &L, filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
    let one = |filter: &&Expr| match lower(table, filter) {
        Some(Lowered { exact: true, .. }) => TableProviderFilterPushDown::Exact,
        Some(_) => TableProviderFilterPushDown::Inexact,
        None => TableProviderFilterPushDown::Unsupported,
    };
    filters.iter().map(one).collect()
}

/// Gives the column of one side. Coercion puts casts around it that change no order: to finer times, to another form of
/// text.
fn column(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(Cast { expr, field }) => match field.data_type() {
            DataType::Timestamp(TimeUnit::Nanosecond, _) | DataType::Utf8 | DataType::Utf8View => column(expr),
            _ => None,
        },
        _ => None,
    }
}

fn literal(expr: &Expr) -> Option<&ScalarValue> {
    match expr {
        Expr::Literal(value, _) if !value.is_null() => Some(value),
        _ => None,
    }
}

fn condition(expr: &Expr) -> Option<(&str, Condition<'_>)> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (column, op, value) = match (column(left), literal(right), column(right), literal(left)) {
                (Some(column), Some(value), ..) => (column, *op, value),
                (_, _, Some(column), Some(value)) => (column, op.swap()?, value),
                _ => return None,
            };
            let condition = match op {
                Operator::NotEq => Condition::NotIn(vec![value]),
                Operator::Eq | Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq => {
                    Condition::Compare(op, value)
                }
                _ => return None,
            };
            Some((column, condition))
        }
        Expr::InList(InList { expr, list, negated }) => {
            let values = list.iter().map(literal).collect::<Option<Vec<_>>>()?;
            Some((column(expr)?, if *negated { Condition::NotIn(values) } else { Condition::In(values) }))
        }
        Expr::Like(Like { negated: false, expr, pattern, escape_char: None, case_insensitive: false }) => {
            Some((column(expr)?, like(text_of(literal(pattern)?)?)?))
        }
        Expr::IsNull(inner) => Some((column(inner)?, Condition::Null)),
        Expr::IsNotNull(inner) => Some((column(inner)?, Condition::NotNull)),
        _ => None,
    }
}

/// Reads a pattern of `LIKE` that is a beginning or a part.
fn like(pattern: &str) -> Option<Condition<'static>> {
    let plain = |text: &str| !text.is_empty() && !text.contains(['%', '_', '\\']);
    let beginning = pattern.strip_suffix('%')?;
    if plain(beginning) {
        return Some(Condition::Prefix(beginning.to_owned()));
    }
    let part = beginning.strip_prefix('%')?;
    plain(part).then(|| Condition::Contains(part.to_owned()))
}

/// Gives the text of a literal.
pub(super) fn text_of(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)) => {
            Some(text)
        }
        ScalarValue::Dictionary(_, inner) => text_of(inner),
        _ => None,
    }
}

/// Gives the texts of literals, empty ones left out: no text of a table equals them.
pub(super) fn texts_of<'e>(values: &[&'e ScalarValue]) -> Option<Vec<&'e str>> {
    let texts = values.iter().map(|value| text_of(value)).collect::<Option<Vec<_>>>()?;
    Some(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// Gives the whole number of a literal.
pub(super) fn int_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int64(Some(n)) => Some(*n),
        ScalarValue::Int32(Some(n)) => Some(i64::from(*n)),
        ScalarValue::UInt8(Some(n)) => Some(i64::from(*n)),
        _ => None,
    }
}

/// Gives the Unix nanoseconds of a literal time, and the length of its unit in nanoseconds.
pub(super) fn nanos_of(value: &ScalarValue) -> Option<(i64, i64)> {
    let (number, unit) = match value {
        ScalarValue::TimestampNanosecond(Some(n), _) => (*n, 1),
        ScalarValue::TimestampMicrosecond(Some(n), _) => (*n, 1_000),
        ScalarValue::TimestampMillisecond(Some(n), _) => (*n, 1_000_000),
        ScalarValue::TimestampSecond(Some(n), _) => (*n, 1_000_000_000),
        _ => return None,
    };
    Some((number.checked_mul(unit)?, unit))
}

/// Gives the closed range of whole numbers that a comparison takes; `None`: it takes nothing.
pub(super) fn range_of(op: Operator, value: i64) -> Option<(i64, i64)> {
    match op {
        Operator::Eq => Some((value, value)),
        Operator::Lt => value.checked_sub(1).map(|max| (i64::MIN, max)),
        Operator::LtEq => Some((i64::MIN, value)),
        Operator::Gt => value.checked_add(1).map(|min| (min, i64::MAX)),
        Operator::GtEq => Some((value, i64::MAX)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[derive(Debug)]
    struct Letters;

    impl Lower for Letters {
        type Filter = String;

        fn condition(&self, column: &str, condition: &Condition<'_>) -> Option<Lowered<String>> {
            match (column, condition) {
                ("a", condition) => Some(Lowered::exact(format!("{condition:?}"))),
                ("b", _) => Some(Lowered::wider("b".to_owned())),
                _ => None,
            }
        }

        fn all_of(filters: Vec<String>) -> String {
            format!("({})", filters.join("&"))
        }

        fn any_of(filters: [String; 2]) -> Option<String> {
            Some(format!("({})", filters.join("|")))
        }
    }

    #[test]
    fn what_is_said_and_how_exactly() {
        let check = |expr: Expr, expected: Option<(&str, bool)>| {
            let lowered = lower(&Letters, &expr);
            let found = lowered.as_ref().map(|l| (l.filter.as_str(), l.exact));
            assert_eq!(found, expected, "{expr}");
        };
        check(col("a").is_null(), Some(("Null", true)));
        check(col("a").like(lit("x%")), Some(("Prefix(\"x\")", true)));
        check(col("a").like(lit("%x%")), Some(("Contains(\"x\")", true)));
        check(col("a").like(lit("x_%")), None);
        check(col("a").like(lit("%")), None);
        check(col("a").not_like(lit("x%")), None);
        check(col("a").is_null().and(col("b").is_null()), Some(("(Null&b)", false)));
        check(col("a").is_null().and(col("c").is_null()), Some(("Null", false)));
        check(col("a").is_null().or(col("c").is_null()), None);
        check(col("a").is_null().or(col("a").is_not_null()), Some(("(Null|NotNull)", true)));
        check(lit(1i64).lt(col("a")), Some(("Compare(Gt, Int64(1))", true)));
        check(col("a").eq(lit(ScalarValue::Utf8(None))), None);
        check(col("a").in_list(vec![lit(1i64)], true), Some(("NotIn([Int64(1)])", true)));
        check(col("a").in_list(vec![lit(1i64), col("c")], false), None);
    }

    #[test]
    fn ranges() {
        assert_eq!(range_of(Operator::Lt, i64::MIN), None);
        assert_eq!(range_of(Operator::GtEq, 5), Some((5, i64::MAX)));
        assert_eq!(nanos_of(&ScalarValue::TimestampSecond(Some(i64::MAX), None)), None);
        assert_eq!(nanos_of(&ScalarValue::TimestampMillisecond(Some(2), None)), Some((2_000_000, 1_000_000)));
    }
}
