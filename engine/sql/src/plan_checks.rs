//! Rejects plans that PostgreSQL rejects but DataFusion's planner accepts: window functions and aggregates in clauses
//! that are evaluated before them, window functions in correlated subqueries, which decorrelation would compute over the
//! rows of all outer rows together, the smallest and largest of records, and rows of a common table that reads itself which
//! would be cut to the types of its first rows.

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{TreeNode as _, TreeNodeRecursion};
use datafusion::logical_expr::{Expr, ExprSchemable as _, LogicalPlan, RecursiveQuery};
use quiver_query::functions::RECURSIVE_VALUE;
use quiver_types::{Error, Result};

use crate::catalog::types::{pg_type, type_oid};
use crate::error::unsupported;

/// Looks at a plan before anything is done with it.
///
/// # Errors
/// Invalid: groups are made of windows, or a join has a condition about windows or aggregates. Unsupported: a window of a
/// subquery that reads the row at hand.
pub(crate) fn check(plan: &LogicalPlan) -> Result<()> {
    let mut said = None;
    // Looking never fails.
    let _ = plan.apply_with_subqueries(|node| {
        said = refused(node);
        Ok(if said.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    said.map_or(Ok(()), Err)
}

fn refused(node: &LogicalPlan) -> Option<Error> {
    match node {
        LogicalPlan::Aggregate(aggregate) if aggregate.group_expr.iter().any(|key| holds(key, is_window)) => {
            Some(misplaced("window functions", "`GROUP BY`"))
        }
        LogicalPlan::Aggregate(aggregate) => {
            let input = aggregate.input.schema();
            aggregate.aggr_expr.iter().find_map(|value| unordered_extreme(value, input))
        }
        LogicalPlan::Join(join) => {
            let keys = join.on.iter().flat_map(|(left, right)| [left, right]);
            let mut conditions = keys.chain(&join.filter);
            let what = conditions.find_map(|condition| {
                let window = holds(condition, is_window).then_some("window functions");
                window.or_else(|| holds(condition, is_aggregate).then_some("Aggregate functions"))
            });
            what.map(|what| misplaced(what, "conditions of joins"))
        }
        LogicalPlan::Window(window) if reads_row(&window.input) => Some(unsupported(
            "a window in a subquery that reads the row at hand is supported in a `LATERAL` of one select alone, whose columns \
             have their table before them: compute it in a subquery that reads no other row, or join",
        )),
        LogicalPlan::Window(window) => {
            let input = window.input.schema();
            window.window_expr.iter().find_map(|value| unordered_extreme(value, input))
        }
        LogicalPlan::RecursiveQuery(query) => cut(query),
        _ => None,
    }
}

/// Says which column of the recursive term does not fit the type of the first rows, to which the planner casts it: `select 1
/// union all select n / 2.0` would give whole numbers.
fn cut(query: &RecursiveQuery) -> Option<Error> {
    let LogicalPlan::Projection(term) = &*query.recursive_term else { return None };
    let input: &DFSchema = term.input.schema();
    let mut columns = query.static_term.schema().fields().iter().zip(&term.expr).zip(1_usize..);
    columns.find_map(|((first, mut value), at)| {
        while let Expr::Alias(alias) = value {
            value = &*alias.expr;
        }
        let Expr::Cast(cast) = value else { return None };
        // Columns by themselves are those of a `*`, and those of a term with `DISTINCT` or of several selects.
        let given = match &*cast.expr {
            Expr::ScalarFunction(mark) => mark.args.first().filter(|_| mark.name() == RECURSIVE_VALUE)?,
            column @ Expr::Column(_) => column,
            _ => return None,
        };
        let given = given.get_type(input).ok()?;
        let (own, other) = (TypeGroup::of(first.data_type())?, TypeGroup::of(&given)?);
        let names = [first.data_type(), &given].map(|kind| pg_type(type_oid(kind)).map_or("text", |known| known.sql));
        let [own_name, other_name] = names;
        let name = &query.name;
        match own.holds(other) {
            Fit::Held => None,
            Fit::Wider => Some(Error::invalid(format!(
                "recursive query \"{name}\" column {at} has type {own_name} in non-recursive term but type {other_name} \
                 overall: cast the output of the recursive term, or that of the first one"
            ))),
            Fit::Other => {
                Some(Error::invalid(format!("UNION types {own_name} and {other_name} cannot be matched: cast one of them")))
            }
        }
    })
}

/// Types that PostgreSQL makes one type of in a `UNION`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TypeGroup {
    Truth,
    Whole,
    /// Decimals, too: what PostgreSQL has as `numeric` is often a double here.
    Fraction,
    /// Fractions of half the digits.
    Real,
    Day,
    Moment,
    Time,
    Length,
    Text,
}

enum Fit {
    Held,
    Wider,
    Other,
}

impl TypeGroup {
    fn of(kind: &DataType) -> Option<Self> {
        Some(match kind {
            DataType::Boolean => Self::Truth,
            kind if kind.is_integer() => Self::Whole,
            DataType::Decimal128(_, scale) | DataType::Decimal256(_, scale) if *scale <= 0 => Self::Whole,
            DataType::Float64 | DataType::Decimal128(..) | DataType::Decimal256(..) => Self::Fraction,
            DataType::Float32 => Self::Real,
            DataType::Date32 | DataType::Date64 => Self::Day,
            DataType::Timestamp(..) => Self::Moment,
            DataType::Time32(_) | DataType::Time64(_) => Self::Time,
            DataType::Interval(_) | DataType::Duration(_) => Self::Length,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Dictionary(_, values) => return Self::of(values),
            _ => return None,
        })
    }

    fn holds(self, other: Self) -> Fit {
        match (self, other) {
            (own, other) if own == other => Fit::Held,
            (Self::Fraction, Self::Whole | Self::Real) | (Self::Real, Self::Whole) | (Self::Moment, Self::Day) => {
                Fit::Held
            }
            (Self::Whole, Self::Fraction | Self::Real) | (Self::Real, Self::Fraction) | (Self::Day, Self::Moment) => {
                Fit::Wider
            }
            _ => Fit::Other,
        }
    }
}

/// What is wrong with `min` or `max` of a record or a map. PostgreSQL 15 has neither of records, and DataFusion keeps the
/// buffers of all earlier records with each group: memory that grows with the square of their number and that no pool
/// counts. Of maps it has none, and says so when it runs.
fn unordered_extreme(value: &Expr, input: &DFSchema) -> Option<Error> {
    let mut found = None;
    // Looking never fails; what has no type has its error from the planner.
    let _ = value.apply(|part| {
        let (name, args, is_window) = match part {
            Expr::AggregateFunction(call) => (call.func.name(), &call.params.args, false),
            Expr::WindowFunction(call) => (call.fun.name(), &call.params.args, true),
            _ => return Ok(TreeNodeRecursion::Continue),
        };
        if matches!(name, "min" | "max") {
            let what = args.iter().find_map(|arg| match arg.get_type(input) {
                Ok(DataType::Struct(_)) if !is_window => Some("records, such as `row(a, b)`: order by their fields"),
                Ok(DataType::Map(..)) => Some("maps: name a key, such as `fields['a']`"),
                _ => None,
            });
            found = what.map(|what| Error::invalid(format!("No function matches: `{name}` takes no {what}")));
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

fn misplaced(what: &str, place: &str) -> Error {
    Error::invalid(format!("{what} are not allowed in {place}: compute them in a subquery"))
}

fn holds(expr: &Expr, is_one: impl Fn(&Expr) -> bool) -> bool {
    expr.exists(|part| Ok(is_one(part))).unwrap_or_default()
}

fn is_window(expr: &Expr) -> bool {
    matches!(expr, Expr::WindowFunction(_))
}

fn is_aggregate(expr: &Expr) -> bool {
    matches!(expr, Expr::AggregateFunction(_))
}

/// Whether a plan reads columns of a row around it. What subqueries in it read is its own.
fn reads_row(plan: &LogicalPlan) -> bool {
    let mut reads = false;
    let _ = plan.apply(|node| {
        if matches!(node, LogicalPlan::Subquery(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        reads |= node.contains_outer_reference();
        Ok(if reads { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    reads
}
