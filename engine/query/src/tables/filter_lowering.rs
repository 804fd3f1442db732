//! Filters of SQL as filters of the store: the one walk over `Expr` that all named tables share (contract P8).
//!
//! A lowered filter takes every row for which the expression is true; it is *exact* when it takes no other. What is not
//! exact stays in DataFusion's `Filter` above the scan, which then sees fewer rows. NULL never makes an expression true,
//! so a test of an absent value takes no row.

use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::ScalarValue;
use datafusion::logical_expr::expr::{Cast, InList};
use datafusion::logical_expr::{Between, BinaryExpr, Expr, Like, Operator, TableProviderFilterPushDown};

/// So many alternatives are not tested one by one, as each test goes over all rows: texts are looked up in a list, and of
/// numbers the store takes all between the least and the largest.
pub(super) const MANY: usize = 16;

/// A filter in the store's form, and whether it is equivalent to the expression.
#[derive(Debug, Clone)]
pub(super) struct LoweredFilter<F> {
    /// Accepts at least the rows that the expression accepts.
    pub(super) filter: F,
    /// Whether it accepts no other rows.
    pub(super) exact: bool,
}

impl<F> LoweredFilter<F> {
    /// A filter that is equivalent to the expression.
    pub(super) fn exact(filter: F) -> Self {
        Self { filter, exact: true }
    }

    /// A filter that accepts more rows than the expression.
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

/// What a table contributes to the translation of filters.
pub(super) trait Lower {
    /// The store's filter.
    type Filter;

    /// Translates a condition on a column; `None` if the store has no such filter.
    fn condition(&self, column: &str, condition: &Condition<'_>) -> Option<LoweredFilter<Self::Filter>>;

    /// Combines filters by AND.
    fn all_of(filters: Vec<Self::Filter>) -> Self::Filter;

    /// Combines two filters by OR; `None` if the store has no such filter.
    fn any_of(filters: [Self::Filter; 2]) -> Option<Self::Filter>;
}

/// Translates an expression; `None` if no part of it can be translated.
pub(super) fn lower<L: Lower>(table: &L, expr: &Expr) -> Option<LoweredFilter<L::Filter>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            match (lower(table, left), lower(table, right)) {
                (Some(a), Some(b)) => {
                    let exact = a.exact && b.exact;
                    Some(LoweredFilter { filter: L::all_of(vec![a.filter, b.filter]), exact })
                }
                (Some(one), None) | (None, Some(one)) => Some(LoweredFilter::wider(one.filter)),
                (None, None) => None,
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::Or, right }) => {
            let (a, b) = (lower(table, left)?, lower(table, right)?);
            Some(LoweredFilter { filter: L::any_of([a.filter, b.filter])?, exact: a.exact && b.exact })
        }
        Expr::Between(Between { expr, negated: false, low, high }) => {
            let column = column(expr)?;
            let (low, high) = (literal(low)?, literal(high)?);
            let a = table.condition(column, &Condition::Compare(Operator::GtEq, low))?;
            let b = table.condition(column, &Condition::Compare(Operator::LtEq, high))?;
            Some(LoweredFilter { filter: L::all_of(vec![a.filter, b.filter]), exact: a.exact && b.exact })
        }
        other => {
            let (column, condition) = condition(other)?;
            table.condition(column, &condition)
        }
    }
}

/// Translates filters for a scan, leaving out those that cannot be translated.
pub(super) fn lower_all<L: Lower>(table: &L, filters: &[Expr]) -> Vec<L::Filter> {
    filters.iter().filter_map(|filter| lower(table, filter)).map(|lowered| lowered.filter).collect()
}

/// Says for each filter whether the store applies it exactly, approximately or not at all.
pub(super) fn supported<L: Lower>(table: &L, filters: &[&Expr]) -> Vec<TableProviderFilterPushDown> {
    let one = |filter: &&Expr| match lower(table, filter) {
        Some(LoweredFilter { exact: true, .. }) => TableProviderFilterPushDown::Exact,
        Some(_) => TableProviderFilterPushDown::Inexact,
        None => TableProviderFilterPushDown::Unsupported,
    };
    filters.iter().map(one).collect()
}

/// The column on one side of a comparison. Ignores casts that keep the order, which type coercion adds: to finer
/// times, to another text type.
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

/// Parses a `LIKE` pattern that means a prefix or a substring; `None` for other patterns.
fn like(pattern: &str) -> Option<Condition<'static>> {
    let plain = |text: &str| !text.is_empty() && !text.contains(['%', '_', '\\']);
    let beginning = pattern.strip_suffix('%')?;
    if plain(beginning) {
        return Some(Condition::Prefix(beginning.to_owned()));
    }
    let part = beginning.strip_prefix('%')?;
    plain(part).then(|| Condition::Contains(part.to_owned()))
}

/// The text of a literal.
pub(super) fn text_of(value: &ScalarValue) -> Option<&str> {
    match value {
        ScalarValue::Utf8(Some(text)) | ScalarValue::Utf8View(Some(text)) | ScalarValue::LargeUtf8(Some(text)) => {
            Some(text)
        }
        ScalarValue::Dictionary(_, inner) => text_of(inner),
        _ => None,
    }
}

/// The texts of literals, without empty ones, which no text of a table equals.
pub(super) fn texts_of<'e>(values: &[&'e ScalarValue]) -> Option<Vec<&'e str>> {
    let texts = values.iter().map(|value| text_of(value)).collect::<Option<Vec<_>>>()?;
    Some(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

/// The value of an integer literal.
pub(super) fn int_of(value: &ScalarValue) -> Option<i64> {
    match value {
        ScalarValue::Int64(Some(n)) => Some(*n),
        ScalarValue::Int32(Some(n)) => Some(i64::from(*n)),
        ScalarValue::UInt8(Some(n)) => Some(i64::from(*n)),
        _ => None,
    }
}

/// The Unix nanoseconds of a time literal, and its unit in nanoseconds.
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

/// The inclusive range of integers that a comparison accepts; `None` if it accepts none.
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
    use datafusion::logical_expr::{cast, col, lit};

    use super::*;

    #[derive(Debug)]
    struct Letters;

    impl Lower for Letters {
        type Filter = String;

        fn condition(&self, column: &str, condition: &Condition<'_>) -> Option<LoweredFilter<String>> {
            match (column, condition) {
                ("a", condition) => Some(LoweredFilter::exact(format!("{condition:?}"))),
                ("b", _) => Some(LoweredFilter::wider("b".to_owned())),
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

    #[test]
    fn what_cannot_be_said_stays_above() {
        let check = |expr: Expr, expected: Option<(&str, bool)>| {
            let lowered = lower(&Letters, &expr);
            let found = lowered.as_ref().map(|l| (l.filter.as_str(), l.exact));
            assert_eq!(found, expected, "{expr}");
        };
        let none = || lit(ScalarValue::Int64(None));
        let both = "(Compare(GtEq, Int64(1))&Compare(LtEq, Int64(5)))";
        check(col("a").between(lit(1i64), lit(5i64)), Some((both, true)));
        check(col("b").between(lit(1i64), lit(5i64)), Some(("(b&b)", false)));
        check(col("a").not_between(lit(1i64), lit(5i64)), None);
        check(col("a").between(lit(1i64), none()), None);
        check(col("a").between(lit(1i64), col("b")), None);
        check(col("a").in_list(vec![lit(1i64), none()], false), None);
        check(col("a").eq(col("b")), None);
        check(lit(1i64).eq(lit(1i64)), None);
        check(lit(1i64).not_eq(col("a")), Some(("NotIn([Int64(1)])", true)));
        check(lit(1i64).gt_eq(col("a")), Some(("Compare(LtEq, Int64(1))", true)));
        check((col("a") + lit(1i64)).eq(lit(1i64)), None);
        check(Expr::Not(Box::new(col("a").is_null())), None);
        check(col("a").is_null().or(col("b").is_null()), Some(("(Null|b)", false)));
        check(col("a").ilike(lit("x%")), None);
        let escaped = Like::new(false, Box::new(col("a")), Box::new(lit("x%")), Some('!'), false);
        check(Expr::Like(escaped), None);
        let utc = DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into()));
        for (to, expected) in [
            (DataType::Utf8View, Some(("Null", true))),
            (DataType::Utf8, Some(("Null", true))),
            (utc, Some(("Null", true))),
            (DataType::Timestamp(TimeUnit::Second, None), None),
            (DataType::Int32, None),
            (DataType::Date32, None),
        ] {
            check(cast(col("a"), to).is_null(), expected);
        }
        let filters = [col("a").is_null(), col("b").is_null(), col("c").is_null()];
        assert_eq!(lower_all(&Letters, &filters), ["Null", "b"]);
        let of: Vec<&Expr> = filters.iter().collect();
        let expected = [
            TableProviderFilterPushDown::Exact,
            TableProviderFilterPushDown::Inexact,
            TableProviderFilterPushDown::Unsupported,
        ];
        assert_eq!(supported(&Letters, &of), expected);
    }

    #[test]
    fn patterns_are_beginnings_and_parts() {
        let prefix = |text: &str| Some(Condition::Prefix(text.to_owned()));
        let part = |text: &str| Some(Condition::Contains(text.to_owned()));
        for (pattern, expected) in [
            ("x%", prefix("x")),
            ("é %", prefix("é ")),
            ("%x%", part("x")),
            ("%*.*%", part("*.*")),
            ("x", None),
            ("%x", None),
            ("%", None),
            ("%%", None),
            ("", None),
            ("%x%y%", None),
            ("x\\%", None),
            ("%a_b%", None),
            ("a_%", None),
        ] {
            assert_eq!(like(pattern), expected, "{pattern}");
        }
    }

    #[test]
    fn values_of_literals() {
        let coded = |value| ScalarValue::Dictionary(Box::new(DataType::Int32), Box::new(value));
        let text = |text: &str| ScalarValue::Utf8View(Some(text.to_owned()));
        assert_eq!(text_of(&coded(text("a"))), Some("a"));
        assert_eq!(text_of(&ScalarValue::LargeUtf8(Some("ü".to_owned()))), Some("ü"));
        assert_eq!((text_of(&ScalarValue::Utf8(None)), text_of(&ScalarValue::Int64(Some(1)))), (None, None));
        let (empty, a, one) = (text(""), text("a"), ScalarValue::Int64(Some(1)));
        assert_eq!(texts_of(&[&empty, &a, &empty]), Some(vec!["a"]), "no text of a table is empty");
        assert_eq!(texts_of(&[&a, &one]), None);
        assert_eq!(texts_of(&[]), Some(Vec::new()));
        for (value, expected) in [
            (ScalarValue::Int64(Some(i64::MIN)), Some(i64::MIN)),
            (ScalarValue::Int32(Some(-1)), Some(-1)),
            (ScalarValue::UInt8(Some(255)), Some(255)),
            (ScalarValue::Int64(None), None),
            (ScalarValue::UInt64(Some(1)), None),
            (ScalarValue::Float64(Some(1.0)), None),
        ] {
            assert_eq!(int_of(&value), expected, "{value:?}");
        }
        let utc = || Some("UTC".into());
        for (value, expected) in [
            (ScalarValue::TimestampNanosecond(Some(i64::MIN), utc()), Some((i64::MIN, 1))),
            (ScalarValue::TimestampMicrosecond(Some(-5), None), Some((-5_000, 1_000))),
            (ScalarValue::TimestampMillisecond(Some(i64::MIN), utc()), None),
            (ScalarValue::TimestampSecond(Some(3), utc()), Some((3_000_000_000, 1_000_000_000))),
            (ScalarValue::TimestampSecond(None, utc()), None),
            (ScalarValue::Int64(Some(3)), None),
        ] {
            assert_eq!(nanos_of(&value), expected, "{value:?}");
        }
    }

    #[test]
    fn ranges_hold_what_a_comparison_takes() {
        let numbers = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        for bound in numbers {
            for number in numbers {
                for (op, expected) in [
                    (Operator::Eq, number == bound),
                    (Operator::Lt, number < bound),
                    (Operator::LtEq, number <= bound),
                    (Operator::Gt, number > bound),
                    (Operator::GtEq, number >= bound),
                ] {
                    let held = range_of(op, bound).is_some_and(|(min, max)| min <= number && number <= max);
                    assert_eq!(held, expected, "{number} {op} {bound}");
                }
            }
        }
        assert_eq!((range_of(Operator::NotEq, 0), range_of(Operator::Gt, i64::MAX)), (None, None));
    }

    /// The values of a row's columns.
    type Row = [Option<i64>; 2];

    /// A filter that lists the rows it accepts. Conditions on `a` are exact, those on `b` are wider, and those on `c`
    /// (a copy of `a`) cannot be translated.
    #[derive(Debug)]
    struct Rows(Vec<Row>);

    impl Rows {
        fn all() -> Self {
            let values = [None, Some(0), Some(1), Some(2)];
            Self(values.iter().flat_map(|a| values.iter().map(|b| [*a, *b])).collect())
        }
    }

    impl Lower for Rows {
        type Filter = Vec<bool>;

        fn condition(&self, column: &str, condition: &Condition<'_>) -> Option<LoweredFilter<Vec<bool>>> {
            if column == "c" {
                return None;
            }
            let holds = |row: &Row| match (condition, row[usize::from(column == "b")]) {
                (Condition::Null, value) => value.is_none(),
                (_, None) => false,
                (Condition::NotNull, _) => true,
                (Condition::Compare(op, bound), Some(value)) => {
                    range_of(*op, int_of(bound).unwrap()).is_some_and(|(min, max)| min <= value && value <= max)
                }
                (Condition::In(values), Some(value)) => values.iter().any(|one| int_of(one) == Some(value)),
                (Condition::NotIn(values), Some(value)) => values.iter().all(|one| int_of(one) != Some(value)),
                (Condition::Prefix(_) | Condition::Contains(_), _) => unreachable!("there are no texts"),
            };
            let mut taken: Vec<bool> = self.0.iter().map(holds).collect();
            if column == "a" {
                return Some(LoweredFilter::exact(taken));
            }
            taken.iter_mut().step_by(5).for_each(|takes| *takes = true);
            Some(LoweredFilter::wider(taken))
        }

        fn all_of(filters: Vec<Vec<bool>>) -> Vec<bool> {
            (0..16).map(|row| filters.iter().all(|filter| filter[row])).collect()
        }

        fn any_of([a, b]: [Vec<bool>; 2]) -> Option<Vec<bool>> {
            Some(a.into_iter().zip(b).map(|(a, b)| a || b).collect())
        }
    }

    struct Random(u64);

    impl Random {
        fn below(&mut self, n: u64) -> u64 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            self.0 % n
        }
    }

    /// A random expression, and its value for each row: true, false or unknown.
    fn expression(random: &mut Random, rows: &[Row], depth: u32) -> (Expr, Vec<Option<bool>>) {
        if depth > 0 && random.below(3) > 0 {
            let (left, a) = expression(random, rows, depth - 1);
            let (right, b) = expression(random, rows, depth - 1);
            let is_and = random.below(2) == 0;
            // One false operand decides an AND, one true operand an OR.
            let decided = Some(!is_and);
            let both = a.into_iter().zip(b).map(|(a, b)| match (a, b) {
                (a, b) if a == decided || b == decided => decided,
                (Some(_), Some(_)) => Some(is_and),
                _ => None,
            });
            return (if is_and { left.and(right) } else { left.or(right) }, both.collect());
        }
        let (name, n) = (["a", "b", "c"][random.below(3) as usize], random.below(3) as i64);
        let column = col(name);
        let (expr, holds): (Expr, Box<dyn Fn(i64) -> Option<bool>>) = match random.below(9) {
            0 => (column.is_null(), Box::new(|_: i64| Some(false))),
            1 => (column.is_not_null(), Box::new(|_: i64| Some(true))),
            2 => (column.eq(lit(n)), Box::new(move |v: i64| Some(v == n))),
            3 => (column.not_eq(lit(n)), Box::new(move |v: i64| Some(v != n))),
            4 => (lit(n).lt(column), Box::new(move |v: i64| Some(n < v))),
            5 => (column.in_list(vec![lit(n), lit(2i64)], false), Box::new(move |v: i64| Some(v == n || v == 2))),
            6 => (column.in_list(vec![lit(n), lit(2i64)], true), Box::new(move |v: i64| Some(v != n && v != 2))),
            7 => (column.between(lit(n), lit(1i64)), Box::new(move |v: i64| Some(n <= v && v <= 1))),
            _ => (column.gt_eq(lit(ScalarValue::Int64(None))), Box::new(|_: i64| None)),
        };
        let of_null = match expr {
            Expr::IsNull(_) => Some(true),
            Expr::IsNotNull(_) => Some(false),
            _ => None,
        };
        let of_row = |row: &Row| row[usize::from(name == "b")].map_or(of_null, &holds);
        (expr, rows.iter().map(of_row).collect())
    }

    #[test]
    fn what_is_lowered_takes_each_row_that_passes() {
        let (table, mut random) = (Rows::all(), Random(0x9e37_79b9_7f4a_7c15));
        let (mut exact, mut wider, mut above) = (0, 0, 0);
        for _ in 0..600 {
            let (expr, holds) = expression(&mut random, &table.0, 3);
            let Some(lowered) = lower(&table, &expr) else {
                above += 1;
                continue;
            };
            for (row, (taken, holds)) in table.0.iter().zip(lowered.filter.iter().zip(holds)) {
                let holds = holds == Some(true);
                assert!(*taken || !holds, "{expr} leaves out {row:?}");
                assert!(!lowered.exact || *taken == holds, "{expr} is not exact of {row:?}");
            }
            *(if lowered.exact { &mut exact } else { &mut wider }) += 1;
        }
        assert!(exact > 30 && wider > 30 && above > 30, "{exact} {wider} {above}");
    }
}
