//! Row values: `(a, b) < (c, d)`, `(a, b) IN (…)`, `(a, b) = (SELECT …)`. The planner compares only rows of columns
//! and literals, takes NULLs in them for equal, and supports only subqueries of one column.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, FunctionArguments, Ident, Query, Select, SelectItem, SetExpr,
    TableFactor, TableWithJoins, UnaryOperator, Value,
};
use quiver_types::{Error, ErrorKind, Result};

use super::columns::{ColumnSources, called, factors};
use super::data_types::is_text;
use super::expressions::{arguments, bare, call, copied, expr, is_bare_function, take, text, value_of};
use super::operators::{ITEMS_MAX, binary, halves, nested};
use super::{empty_queries, equality_lookups, outputs, quantified_comparisons, queries};
use crate::catalog::Catalog;
use crate::error::unsupported;
use crate::names::{normal, table_of_prefix};
use crate::parse::OPERATORS_MAX;
use crate::statement_walk::change_outside_subqueries;

/// The alias of a subquery in which rows are searched; no table of a statement has this name.
const AMONG: &str = "\"among rows\"";
/// The table that owns a name if several tables may have it.
const LOGS: &str = "logs";

/// The parts of a row constructor: `(a, b)` or `ROW(a, b)`.
fn parts_of(row: &Expr) -> Option<Vec<Expr>> {
    match row {
        Expr::Tuple(parts) => Some(parts.clone()),
        Expr::Function(row) if bare(&row.name).as_deref() == Some("row") => arguments(&row.args),
        _ => None,
    }
}

/// Whether an expression is a row constructor.
pub(super) fn is_row(value: &Expr) -> bool {
    match value {
        Expr::Tuple(_) => true,
        Expr::Function(row) => bare(&row.name).as_deref() == Some("row"),
        _ => false,
    }
}

/// Casts row constructors that are put together with texts to text (`row(1, 2) || 'x'`, `concat(row(1, 2), 'x')`): the
/// planner knows no text of a row there.
pub(super) fn joined(place: &mut Expr) {
    fn cast(value: &mut Expr) {
        let expr = Box::new(take(value));
        *value = Expr::Cast { kind: CastKind::Cast, expr, data_type: DataType::Text, array: false, format: None };
    }
    // A list takes a row as an item, and nothing puts rows behind each other.
    fn may_be_text(side: &Expr) -> bool {
        !is_row(side) && !matches!(side, Expr::Array(_))
    }
    match place {
        Expr::BinaryOp { left, op: BinaryOperator::StringConcat, right } => {
            if is_row(left) && may_be_text(right) {
                cast(left);
            } else if is_row(right) && may_be_text(left) {
                cast(right);
            }
        }
        Expr::Function(function)
            if bare(&function.name).is_some_and(|name| matches!(name.as_str(), "concat" | "concat_ws" | "format")) =>
        {
            let FunctionArguments::List(list) = &mut function.args else { return };
            list.args.iter_mut().filter_map(value_of).filter(|value| is_row(value)).for_each(cast);
        }
        _ => {}
    }
}

/// Makes a row constructor that is cast to text one of any values: the planner takes columns and literals alone.
pub(super) fn printed(place: &mut Expr) {
    fn make(row: &mut Expr) {
        match row {
            Expr::Nested(inner) => make(inner),
            Expr::Tuple(parts) => *row = call("struct", std::mem::take(parts)),
            _ if parts_of(row).is_some_and(|parts| parts.is_empty()) => *row = text("()"),
            _ => {}
        }
    }
    if let Expr::Cast { expr, data_type, .. } = place
        && is_text(data_type)
    {
        make(expr);
    }
}

fn unlike(left: usize, right: usize) -> Error {
    Error::invalid(format!("rows of {left} and of {right} parts cannot be compared"))
}

/// `(a, b) < (c, d)` as comparisons of the parts: the first that differ decide. `None` if it is no comparison of two
/// rows.
pub(super) fn compared(left: &Expr, op: &BinaryOperator, right: &Expr) -> Result<Option<Expr>> {
    let (Some(left), Some(right)) = (parts_of(left), parts_of(right)) else { return Ok(None) };
    let outer = match op {
        BinaryOperator::Lt | BinaryOperator::LtEq => BinaryOperator::Lt,
        BinaryOperator::Gt | BinaryOperator::GtEq => BinaryOperator::Gt,
        BinaryOperator::Eq => BinaryOperator::And,
        BinaryOperator::NotEq => BinaryOperator::Or,
        _ => return Ok(None),
    };
    if left.len() != right.len() || left.len() > ITEMS_MAX {
        return Err(unlike(left.len(), right.len()));
    }
    let compared = |left: &Expr, op: &BinaryOperator, right: &Expr| -> Result<Expr> {
        copied(left, 2)?;
        copied(right, 2)?;
        Ok(binary(nested(left.clone()), op.clone(), nested(right.clone())))
    };
    let mut whole: Option<Expr> = None;
    for (left, right) in left.iter().zip(&right).rev() {
        whole = Some(match (whole, &outer) {
            (None, _) => compared(left, op, right)?,
            (Some(rest), BinaryOperator::And | BinaryOperator::Or) => {
                binary(compared(left, op, right)?, outer.clone(), rest)
            }
            (Some(rest), _) => {
                let same = binary(compared(left, &BinaryOperator::Eq, right)?, BinaryOperator::And, nested(rest));
                binary(compared(left, &outer, right)?, BinaryOperator::Or, nested(same))
            }
        });
    }
    Ok(whole.map(|whole| Expr::Nested(Box::new(whole))))
}

/// `(a, b) IS NULL` and `IS NOT NULL`, which test every part; the planner would test the row as a whole.
pub(super) fn null(place: &mut Expr) -> Result<()> {
    let (row, is_null) = match &*place {
        Expr::IsNull(row) => (row, true),
        Expr::IsNotNull(row) => (row, false),
        _ => return Ok(()),
    };
    let Some(parts) = parts_of(row) else { return Ok(()) };
    if parts.len() > ITEMS_MAX {
        let text = format!("a row of {} parts is too long, at most {ITEMS_MAX} are allowed", parts.len());
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let asked = |part: Expr| {
        let part = Box::new(nested(part));
        if is_null { Expr::IsNull(part) } else { Expr::IsNotNull(part) }
    };
    if let Some(whole) = parts.into_iter().map(asked).reduce(|before, next| binary(before, BinaryOperator::And, next)) {
        *place = nested(whole);
    }
    Ok(())
}

/// Whether the planner may search a row in a long list. It takes unknown for false, so no part may be NULL.
fn is_looked_up(row: &Expr, list: &[Expr]) -> bool {
    let is_plain = |part: &Expr| match part {
        Expr::Identifier(_) | Expr::CompoundIdentifier(_) => true,
        Expr::Value(value) => value.value != Value::Null,
        _ => false,
    };
    let is_known = |row: &Expr| matches!(row, Expr::Tuple(parts) if parts.iter().all(is_plain));
    list.len() > ITEMS_MAX && is_known(row) && list.iter().all(is_known)
}

/// `(a, b) IN ((c, d), …)` as comparisons with each row; `None` if the left side is no row.
pub(super) fn among_rows(row: &Expr, list: &[Expr], negated: bool) -> Result<Option<Expr>> {
    if !is_row(row) {
        return Ok(None);
    }
    copied(row, list.len())?;
    if list.len() > OPERATORS_MAX {
        let text = format!(
            "a list of {} rows is too long, at most {OPERATORS_MAX} are allowed but in `WHERE`, without a `NOT`",
            list.len()
        );
        return Err(Error::new(ErrorKind::LimitExceeded, text));
    }
    let (op, join) =
        if negated { (BinaryOperator::NotEq, BinaryOperator::And) } else { (BinaryOperator::Eq, BinaryOperator::Or) };
    let mut all = Vec::with_capacity(list.len());
    for item in list {
        let Some(next) = compared(row, &op, item)? else { return Ok(None) };
        all.push(next);
    }
    Ok(halves(all, &join).map(nested))
}

/// A row that is searched in a subquery: `(a, b) IN (SELECT …)`, `= ANY`, or the negations.
struct Among {
    parts: Vec<Expr>,
    query: Box<Query>,
    /// Whether the row must be found (`IN`), or must not (`NOT IN`).
    is_in: bool,
}

impl Among {
    fn of(place: &Expr) -> Result<Option<Self>> {
        let (row, query, is_in) = match place {
            Expr::InSubquery { expr, subquery, negated } => (expr, subquery, !negated),
            Expr::AnyOp { left, compare_op: BinaryOperator::Eq, right, .. } => match &**right {
                Expr::Subquery(query) => (left, query, true),
                _ => return Ok(None),
            },
            Expr::AllOp { left, compare_op: BinaryOperator::NotEq, right } => match &**right {
                Expr::Subquery(query) => (left, query, false),
                _ => return Ok(None),
            },
            _ => return Ok(None),
        };
        let Some(parts) = parts_of(row) else { return Ok(None) };
        as_wide(parts.len(), query)?;
        let mut query = query.clone();
        outputs::of_query(&mut query);
        Ok(Some(Self { parts, query, is_in }))
    }

    /// Qualifies columns of the row with their tables: as bare names they might be taken for columns of the subquery.
    /// Returns whether all could be qualified.
    fn of_table(&mut self, tables: Tables<'_>) -> Result<bool> {
        let mut is_whole = true;
        for part in &mut self.parts {
            is_whole &= with_tables(part, tables.from, tables.known)?;
        }
        Ok(is_whole)
    }

    /// Whether neither the row nor the subquery reads a column of the select.
    fn is_constant(&self) -> bool {
        !self.parts.iter().any(quantified_comparisons::names_columns) && !equality_lookups::reads_row(&self.query)
    }

    /// SQL of the subquery as a table.
    fn rows(&self) -> String {
        rows(&self.query, self.parts.len())
    }

    /// SQL of the condition that a row of that table is the searched one.
    fn equal(&self) -> String {
        let equal = (1..).zip(&self.parts).map(|(at, part)| format!("{AMONG}.{} = ({part})", column(at)));
        equal.collect::<Vec<_>>().join(" AND ")
    }

    /// Rewrites as an `EXISTS`, or among outputs as a count, where an unknown result may be replaced by `not_known`.
    fn exists(&self, not_known: bool, at: ConditionPlace) -> Result<Expr> {
        let (rows, equal) = (self.rows(), self.equal());
        let not = if self.is_in { "" } else { "NOT " };
        // If the row must be found and unknown means true, or must not be found and unknown means false, rows that may
        // be equal count, too.
        let equal = if self.is_in == not_known { format!("({equal}) IS NOT FALSE") } else { equal };
        let (exists, of_rows) = match at {
            ConditionPlace::Where => ("EXISTS ", "1"),
            ConditionPlace::Output => ("", "count(*) > 0"),
        };
        expr(&format!("{not}{exists}(SELECT {of_rows} FROM {rows} WHERE {equal})"))
    }

    /// Rewrites as a value, which is NULL where no row is equal and one may be.
    fn value(&self) -> Result<Expr> {
        let (rows, equal) = (self.rows(), self.equal());
        let any = |of: &str| format!("(SELECT count(*) > 0 FROM {rows} WHERE {of})");
        let (found, maybe) = (any(&equal), any(&format!("({equal}) IS NOT FALSE")));
        let is_in = self.is_in;
        expr(&format!("CASE WHEN {found} THEN {is_in} WHEN {maybe} THEN CAST(NULL AS BOOLEAN) ELSE {} END", !is_in))
    }
}

fn column(at: usize) -> String {
    format!("\"of row {at}\"")
}

/// Qualifies columns of an expression with their tables. Returns whether all could be qualified.
pub(super) fn with_tables(value: &mut Expr, from: &[TableWithJoins], known: ColumnSources<'_>) -> Result<bool> {
    let owners = Tables { from, known }.owners();
    let mut is_whole = true;
    change_outside_subqueries(value, |place| {
        if let Expr::Identifier(name) = &*place
            && !is_bare_function(name)
        {
            match owner(&owners, &normal(name)) {
                Some(table) => {
                    *place = Expr::CompoundIdentifier(vec![Ident::with_quote('"', table), name.clone()]);
                }
                None => is_whole = false,
            }
        }
        Ok(())
    })?;
    Ok(is_whole)
}

/// A subquery as a table whose columns have unique names.
fn rows(query: &Query, width: usize) -> String {
    let names = (1..=width).map(column).collect::<Vec<_>>().join(", ");
    format!("({query}) AS {AMONG} ({names})")
}

/// Refuses a subquery with another number of columns than the row, if they are listed.
fn as_wide(width: usize, query: &Query) -> Result<()> {
    match queries::names_of(&query.body) {
        Some(names) if names.len() != width => Err(unlike(width, names.len())),
        _ => Ok(()),
    }
}

/// The tables of a select, in which bare names of a row are looked up.
#[derive(Clone, Copy)]
struct Tables<'t> {
    from: &'t [TableWithJoins],
    known: ColumnSources<'t>,
}

/// A table that a bare name may belong to.
struct Owner {
    name: Option<String>,
    /// Its columns; `None` if they are not known.
    columns: Option<Vec<String>>,
    /// The table of telemetry that it is, if it is one: the data may give it more columns.
    data: Option<String>,
}

impl Tables<'_> {
    fn owners(self) -> Vec<Owner> {
        let of = |factor: &TableFactor| {
            let data = match factor {
                TableFactor::Table { name, args: None, .. } => {
                    let named = empty_queries::named(name);
                    let is_common = self.known.common_table(&named).is_some();
                    let is_data = !is_common && !Catalog::has(&named) && (self.known.fixed)(&named).is_some();
                    is_data.then_some(named.1)
                }
                _ => None,
            };
            Owner { name: called(factor), columns: self.known.of_factor(factor), data }
        };
        self.from.iter().flat_map(factors).map(of).collect()
    }
}

/// The table that owns a bare name. `None` if it belongs to an outer query, or to several tables, which the planner
/// reports.
fn owner<'o>(owners: &'o [Owner], column: &str) -> Option<&'o str> {
    if let [only] = owners
        && (only.columns.is_none() || only.data.is_some())
    {
        return only.name.as_deref();
    }
    if owners.iter().any(|owner| owner.columns.is_none()) {
        return None;
    }
    let has = |owner: &&Owner| owner.columns.iter().flatten().any(|known| known == column);
    let one = |mut found: Vec<&'o Owner>| if found.len() == 1 { found.pop() } else { None };
    let fixed: Vec<&Owner> = owners.iter().filter(has).collect();
    if !fixed.is_empty() {
        return one(fixed)?.name.as_deref();
    }
    // A field belongs to the table that its prefix names, or to the only table with fields, or to logs.
    let of = |table: &str| owners.iter().filter(|owner| owner.data.as_deref() == Some(table)).collect();
    let by_prefix = table_of_prefix(column).and_then(|table| one(of(table)));
    let open = owners.iter().filter(|owner| owner.data.is_some()).collect();
    by_prefix.or_else(|| one(open)).or_else(|| one(of(LOGS)))?.name.as_deref()
}

/// Rewrites rows that are searched in a subquery as `EXISTS` within conditions: those of a `WHERE`, or of a `CASE`
/// among the outputs. There an unknown result counts as false, or below a `NOT` as true. Other outputs of a select
/// without groups become values. Long lists are left to the planner where NULL makes no difference.
pub(super) fn in_conditions(
    select: &mut Select,
    known: ColumnSources<'_>,
    is_aggregate: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let is_grouped = !empty_queries::is_ungrouped(select)
        || select.having.is_some()
        || empty_queries::aggregates(select, is_aggregate);
    let Select { from, selection, projection, .. } = select;
    let tables = Tables { from: from.as_slice(), known };
    if let Some(condition) = selection {
        of_condition(condition, tables, ConditionPlace::Where)?;
    }
    change_outside_subqueries(projection, |place| {
        if let Expr::Case { operand: None, conditions, .. } = place {
            for when in conditions {
                of_condition(&mut when.condition, tables, ConditionPlace::Output)?;
            }
        }
        Ok(())
    })?;
    if is_grouped {
        return Ok(());
    }
    change_outside_subqueries(projection, |place| {
        quantified_comparisons::listed(place);
        if let Some(mut among) = Among::of(place)?
            && !among.is_constant()
            && among.of_table(tables)?
        {
            *place = among.value()?;
        }
        Ok(())
    })
}

/// Where a condition is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConditionPlace {
    Where,
    /// In a `CASE` among the outputs.
    Output,
}

fn of_condition(condition: &mut Expr, tables: Tables<'_>, at: ConditionPlace) -> Result<()> {
    let mut open = vec![(condition, false)];
    while let Some((place, is_negated)) = open.pop() {
        match place {
            Expr::BinaryOp { left, op: BinaryOperator::And | BinaryOperator::Or, right } => {
                open.extend([(&mut **left, is_negated), (&mut **right, is_negated)]);
            }
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => open.push((&mut **expr, !is_negated)),
            Expr::Nested(inner) => open.push((&mut **inner, is_negated)),
            Expr::InList { expr: row, list, negated: false } if !is_negated && is_looked_up(row, list) => {
                // The planner's own form of a row. A tuple would be rewritten as a comparison with each item.
                if let Some(parts) = parts_of(row) {
                    **row = call("struct", parts);
                }
            }
            other => {
                if let Some(mut among) = Among::of(other)? {
                    among.of_table(tables)?;
                    *other = among.exists(is_negated, at)?;
                }
            }
        }
    }
    Ok(())
}

/// Rewrites a constant row that is searched in an uncorrelated subquery as counts of the subquery's rows.
pub(super) fn constant(place: &mut Expr) -> Result<()> {
    let Some(among) = Among::of(place)? else { return Ok(()) };
    if !among.is_constant() {
        return Ok(());
    }
    *place = quantified_comparisons::counted(&among.equal(), &among.rows(), among.is_in)?;
    Ok(())
}

/// Refuses rows that are searched in a subquery anywhere else.
pub(super) fn lone(place: &Expr) -> Result<()> {
    if Among::of(place)?.is_none() {
        return Ok(());
    }
    Err(unsupported(
        "`(a, b) IN (SELECT …)` of columns is a condition of `WHERE`, or an output of a select without groups: elsewhere write \
         `CASE WHEN (a, b) IN (SELECT …) THEN true ELSE false END`",
    ))
}

/// `(a, b) < (SELECT …)`: the subquery returns one record, whose members the row is compared with. The subquery
/// appears several times but runs once: the planner recognizes equal subqueries.
pub(super) fn beside_query(left: &mut Expr, right: &mut Expr, is_aggregate: &dyn Fn(&str) -> bool) -> Result<()> {
    let (Some(parts), Expr::Subquery(query)) = (parts_of(left), &*right) else { return Ok(()) };
    as_wide(parts.len(), query)?;
    let record = if equality_lookups::reads_row(query) {
        looked_up(query.clone(), is_aggregate)?
    } else {
        alone(query, parts.len())?
    };
    copied(&record, parts.len() * 2)?;
    let member = |at: usize| call("get_field", vec![record.clone(), text(&member_name(at))]);
    *right = Expr::Tuple((1..=parts.len()).map(member).collect());
    *left = Expr::Tuple(parts);
    Ok(())
}

fn member_name(at: usize) -> String {
    format!("f{at}")
}

/// SQL of a record of values.
fn record(values: impl Iterator<Item = Expr>) -> Expr {
    let members = (1..).zip(values).flat_map(|(at, value)| [text(&member_name(at)), value]);
    call("named_struct", members.collect())
}

/// The record of an uncorrelated query.
fn alone(query: &Query, width: usize) -> Result<Expr> {
    let mut query = query.clone();
    outputs::of_query(&mut query);
    let values = (1..=width).map(|at| expr(&column(at))).collect::<Result<Vec<_>>>()?;
    expr(&format!("(SELECT {} FROM {})", record(values.into_iter()), rows(&query, width)))
}

/// The record of a correlated query, in a form of one value that the planner can join.
fn looked_up(mut query: Box<Query>, is_aggregate: &dyn Fn(&str) -> bool) -> Result<Expr> {
    let refused = || {
        unsupported(
            "a subquery that a row of values is compared with, and that reads the row at hand, is one select of listed \
             outputs without `LIMIT`: join with it",
        )
    };
    let is_limited = query.limit_clause.is_some() || query.fetch.is_some();
    let SetExpr::Select(select) = &mut *query.body else { return Err(refused()) };
    let value = |item: &SelectItem| match item {
        SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. } => Some(value.clone()),
        _ => None,
    };
    let values = select.projection.iter().map(value).collect::<Option<Vec<_>>>();
    let Some(values) = values.filter(|_| !is_limited) else { return Err(refused()) };
    select.projection = vec![SelectItem::UnnamedExpr(record(values.into_iter()))];
    query.order_by = None;
    let is_list = equality_lookups::translate(&mut query, is_aggregate)? == Some(equality_lookups::LookUp::List);
    let value = Expr::Subquery(query);
    Ok(if is_list { call("sole", vec![value]) } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bare_names_have_owners() {
        let table = |name: &str, columns: Option<&[&str]>, data: Option<&str>| Owner {
            name: Some(name.to_owned()),
            columns: columns.map(|columns| columns.iter().map(|column| (*column).to_owned()).collect()),
            data: data.map(str::to_owned),
        };
        let logs = || table("l", Some(&["time", "message", "trace_id"]), Some("logs"));
        let spans = || table("s", Some(&["name", "trace_id"]), Some("spans"));
        let listed = || table("v", Some(&["x", "message"]), None);
        let unknown = || table("u", None, None);
        for (owners, column, expected) in [
            // A table without others owns every field.
            (vec![logs()], "level", Some("l")),
            (vec![unknown()], "level", Some("u")),
            (vec![listed()], "x", Some("v")),
            (vec![listed()], "level", None),
            (vec![listed(), unknown()], "x", None),
            // A column of several tables belongs to none.
            (vec![logs(), spans()], "trace_id", None),
            (vec![logs(), listed()], "message", None),
            (vec![logs(), spans()], "name", Some("s")),
            // Fields, attributes and labels belong to their tables.
            (vec![logs(), listed()], "level", Some("l")),
            (vec![logs(), spans()], "level", Some("l")),
            (vec![logs(), spans()], "attributes.x", Some("s")),
            (vec![logs(), listed()], "attributes.x", Some("l")),
            (vec![logs(), spans()], "labels.x", Some("l")),
            (vec![spans(), spans()], "level", None),
            (vec![logs(), logs()], "level", None),
            (Vec::new(), "level", None),
        ] {
            let names: Vec<Option<&str>> = owners.iter().map(|owner| owner.name.as_deref()).collect();
            assert_eq!(owner(&owners, column), expected, "{column} of {names:?}");
        }
    }

    #[test]
    fn what_is_looked_up_is_plain_and_long() {
        let parsed = |sql: &str| expr(sql).unwrap();
        let check = |row: &str, item: &str, count: usize| {
            let mut list = vec![parsed("(1, 'x')"); count - 1];
            list.push(parsed(item));
            is_looked_up(&parsed(row), &list)
        };
        assert!(check("(a, t.b)", "(2, 'y')", ITEMS_MAX + 1));
        assert!(check("(a, 5)", "(c, 'y')", ITEMS_MAX + 1));
        for (row, item, count) in [
            ("(a, b)", "(2, 'y')", ITEMS_MAX),
            ("(a, b)", "(2, NULL)", ITEMS_MAX + 1),
            ("(a, b)", "(2, -1)", ITEMS_MAX + 1),
            ("(a, NULL)", "(2, 'y')", ITEMS_MAX + 1),
            ("(a, upper(b))", "(2, 'y')", ITEMS_MAX + 1),
            ("a", "(2, 'y')", ITEMS_MAX + 1),
            ("(a, b)", "c", ITEMS_MAX + 1),
        ] {
            assert!(!check(row, item, count), "{row} among {count} and {item}");
        }
    }
}
