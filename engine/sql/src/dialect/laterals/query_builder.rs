//! Builds the SQL of the rows of a correlated subquery, for all outer rows at once. Each row has the outer values
//! that it belongs to behind its outputs.

use datafusion::sql::sqlparser::ast::{
    Expr, Ident, LimitClause, OrderByExpr, OrderByKind, Query, Select, SelectItem, SetExpr, SetQuantifier, Value,
    Values,
};
use quiver_types::{Error, ErrorKind, Result};

use super::super::columns::{called, factors};
use super::super::expressions::expr;
use super::empty_groups::{GROUPED, Parts, groups_of_nothing};
use super::outer_references::{reads_keys, reads_within};
use super::{KEYS, Lateral, grouped_rows, keeps_left, key, quoted, window_partitions};
use crate::error::unsupported;
use crate::names::left_out;
use crate::statement_walk::change_outside_subqueries;

/// The most bytes of a join that replaces a subquery: it repeats the outer tables once or twice.
const BYTES_MAX: usize = 64 << 10;
/// The name of the row number.
const NTH: &str = "nth row";
/// The name of the rows with their numbers.
const NUMBERED: &str = "numbered";
/// Error text for `*` over columns that are not known.
pub(super) const STARS: &str = "`*` in a `LATERAL` subquery that takes some rows of each stands for columns that are not known \
                                here: name them";
/// Error text for `ORDER BY ALL`.
const ALL: &str = "`ORDER BY ALL` in a `LATERAL` subquery: name the columns";

impl Lateral<'_> {
    /// SQL of the rows of a query.
    pub(super) fn of_query(&self, query: &Query, values: &str) -> Result<String> {
        let conditions = taken(query.limit_clause.as_ref())?;
        if conditions.is_empty() {
            return match &*query.body {
                SetExpr::Select(select) => self.of_select(select, &[], &order_of(select, query)?, values),
                set => short(format!("SELECT * FROM ({}) AS \"sides\"", self.of_set(set, values)?)),
            };
        }
        let columns = self.making.known.of_query(query).ok_or_else(|| unsupported(STARS))?;
        let own_keys: Vec<String> = (1..=self.keys.len()).map(|at| quoted(&key(at))).collect();
        let shown: Vec<String> = columns.iter().map(|column| quoted(column)).chain(own_keys.iter().cloned()).collect();
        let (shown, own_keys) = (shown.join(", "), own_keys.join(", "));
        let rows = match &*query.body {
            SetExpr::Select(select) => {
                let written = order_of(select, query)?;
                let mut order = written.clone();
                let is_gathered =
                    grouped_rows::is_one(select) || groups_of_nothing(select, self.making.is_aggregate) > 0;
                let named = window_partitions::named(&mut order, is_gathered);
                if named.is_empty() && !is_gathered {
                    let number = expr(&number(&self.key_columns().join(", "), &order))?;
                    let nth = SelectItem::ExprWithAlias { expr: number, alias: Ident::with_quote('"', NTH) };
                    self.of_select(select, &[nth], &written, values)?
                } else {
                    numbered(&self.of_select(select, &named, &written, values)?, &shown, &own_keys, &order)
                }
            }
            set => numbered(&self.of_set(set, values)?, &shown, &own_keys, &order_by_columns(query, &columns)?),
        };
        short(format!("SELECT {shown} FROM ({rows}) AS {} WHERE {}", quoted(NUMBERED), conditions.join(" AND ")))
    }

    /// SQL of the rows of a query body: a select, a set operation or `VALUES`.
    fn of_set(&self, set: &SetExpr, values: &str) -> Result<String> {
        match set {
            SetExpr::Select(select) => self.of_select(select, &[], &[], values),
            SetExpr::Query(query) => self.of_query(query, values),
            SetExpr::SetOperation { op, set_quantifier, left, right } => {
                let all = if *set_quantifier == SetQuantifier::All { " ALL" } else { "" };
                short(format!("({}) {op}{all} ({})", self.of_set(left, values)?, self.of_set(right, values)?))
            }
            SetExpr::Values(rows) => self.of_values(rows, values),
            _ => Err(Error::internal("a set of what has no rows")),
        }
    }

    /// SQL of the rows of `VALUES`.
    fn of_values(&self, rows: &Values, values: &str) -> Result<String> {
        let keys = self.key_columns().join(", ");
        let mut written = String::new();
        for row in &rows.rows {
            let items = row.iter().zip(1..).map(|(item, at)| format!("{item} AS \"column{at}\""));
            let items = items.collect::<Vec<_>>().join(", ");
            let and = if written.is_empty() { "" } else { " UNION ALL " };
            written = short(format!("{written}{and}SELECT {items}, {keys} FROM {values}"))?;
        }
        Ok(written)
    }

    /// SQL of the rows of a select, with `more` outputs behind the outer values, and the order in which a `DISTINCT
    /// ON` chooses rows.
    fn of_select(&self, select: &Select, more: &[SelectItem], order: &[OrderByExpr], values: &str) -> Result<String> {
        let keys = self.key_columns();
        let (begin, end) = grouped_rows::begins(select, &keys, order);
        let tables = tables(select);
        if groups_of_nothing(select, self.making.is_aggregate) == 0 {
            let more = more.iter().map(ToString::to_string);
            let outputs: Vec<String> = items(select)?.into_iter().chain(keys.iter().cloned()).chain(more).collect();
            let groups = grouped_rows::groups(select, &keys);
            return short(format!("{begin} {} FROM {values}{tables}{groups}{end}", outputs.join(", ")));
        }
        let parts = Parts::of(select, more, self.making.is_aggregate)
            .ok_or_else(|| unsupported("an order of what is not gathered, in a `LATERAL` subquery of groups"))?;
        let (own, more) = parts.outputs.split_at(select.projection.len());
        let own = own.iter().map(ToString::to_string);
        let more = more.iter().map(ToString::to_string);
        let outputs: Vec<String> = own.chain(keys.iter().cloned()).chain(more).collect();
        let below = [parts.gathered.as_slice(), &keys].concat().join(", ");
        let groups = [keys.as_slice(), &parts.groups].concat().join(", ");
        let same = (1..=self.keys.len()).map(|at| {
            let key = quoted(&key(at));
            format!("(\"{GROUPED}\".{key} IS NOT DISTINCT FROM {}.{key})", quoted(KEYS))
        });
        let same = same.collect::<Vec<_>>().join(" AND ");
        let having = parts.having.map_or_else(String::new, |is| format!(" WHERE {is}"));
        short(format!(
            "{begin} {} FROM {values} LEFT JOIN (SELECT {below} FROM {values}{tables} GROUP BY {groups}) AS \"{GROUPED}\" \
             ON {same}{having}{end}",
            outputs.join(", ")
        ))
    }

    /// The outer values as columns of their table.
    fn key_columns(&self) -> Vec<String> {
        (1..=self.keys.len()).map(|at| format!("{}.{}", quoted(KEYS), quoted(&key(at)))).collect()
    }
}

/// Refuses SQL that has become too long.
fn short(sql: String) -> Result<String> {
    if sql.len() <= BYTES_MAX {
        return Ok(sql);
    }
    let text = format!("a `LATERAL` subquery of {} bytes is too long, at most {BYTES_MAX} are allowed", sql.len());
    Err(Error::new(ErrorKind::LimitExceeded, text))
}

/// The row number among the rows of the same outer values.
fn number(keys: &str, order: &[OrderByExpr]) -> String {
    let order = order.iter().map(OrderByExpr::to_string).collect::<Vec<_>>().join(", ");
    let order = if order.is_empty() { order } else { format!(" ORDER BY {order}") };
    format!("row_number() OVER (PARTITION BY {keys}{order})")
}

/// SQL of the rows with their numbers.
fn numbered(rows: &str, shown: &str, keys: &str, order: &[OrderByExpr]) -> String {
    format!("SELECT {shown}, {} AS \"{NTH}\" FROM ({rows}) AS \"windowed\"", number(keys, order))
}

/// Conditions on the row number for `LIMIT` and `OFFSET`. NULL keeps all rows.
fn taken(clause: Option<&LimitClause>) -> Result<Vec<String>> {
    let Some(LimitClause::LimitOffset { limit, offset, .. }) = clause else { return Ok(Vec::new()) };
    let is_written = |rows: &Expr| matches!(rows, Expr::Value(value) if matches!(value.value, Value::Number(..)));
    let first = match offset.as_ref().map(|offset| &offset.value) {
        Some(rows) if is_written(rows) => Some(rows.to_string()),
        Some(rows) => Some(format!("coalesce({}, 0)", of_numbered(rows)?)),
        None => None,
    };
    let mut conditions = Vec::new();
    if let Some(rows) = limit {
        let limit = of_numbered(rows)?;
        let last = first.as_ref().map_or_else(|| limit.clone(), |first| format!("{limit} + {first}"));
        let condition = format!("\"{NTH}\" <= {last}");
        conditions.push(if is_written(rows) { condition } else { format!("({condition}) IS NOT FALSE") });
    }
    conditions.extend(first.map(|first| format!("\"{NTH}\" > {first}")));
    Ok(conditions)
}

/// A number of rows. If it is calculated from the outer row, that is read from the numbered rows.
fn of_numbered(rows: &Expr) -> Result<String> {
    if !reads_keys(rows) {
        return Ok(rows.to_string());
    }
    let mut rows = rows.clone();
    change_outside_subqueries(&mut rows, |place| {
        if let Expr::CompoundIdentifier(name) = place
            && let [table, _] = name.as_mut_slice()
            && table.value == KEYS
        {
            *table = Ident::with_quote('"', NUMBERED);
        }
        Ok(())
    })?;
    Ok(format!("CAST({rows} AS BIGINT)"))
}

/// The outputs of a select by name.
fn items(select: &Select) -> Result<Vec<String>> {
    let mut items = Vec::new();
    for item in &select.projection {
        match item {
            SelectItem::Wildcard(options) => {
                if !left_out(options).is_empty() && select.from.iter().flat_map(factors).count() > 1 {
                    return Err(unsupported("`*` of several tables that leaves columns out: name the others"));
                }
                for factor in select.from.iter().flat_map(factors) {
                    let name = called(factor).ok_or_else(|| unsupported("`*` of a table without a name"))?;
                    items.push(format!("{}.*{options}", quoted(&name)));
                }
            }
            other => items.push(other.to_string()),
        }
    }
    Ok(items)
}

/// The tables of a select beside the outer values, and its condition. If the `FROM` reads the values, it is joined with
/// them by `CROSS JOIN`.
fn tables(select: &Select) -> String {
    let is_joined = reads_within(select) && select.from.iter().all(|from| keeps_left(&from.joins));
    let beside = if is_joined { " CROSS JOIN" } else { "," };
    let from: Vec<String> = select.from.iter().map(|from| format!("{beside} {from}")).collect();
    let condition = select.selection.as_ref().map_or_else(String::new, |is| format!(" WHERE {is}"));
    from.concat() + &condition
}

/// The sort keys of a select.
fn order_of(select: &Select, query: &Query) -> Result<Vec<OrderByExpr>> {
    let Some(order) = &query.order_by else { return Ok(Vec::new()) };
    let OrderByKind::Expressions(keys) = &order.kind else { return Err(unsupported(ALL)) };
    let by_value = |key: &OrderByExpr| {
        let mut key = key.clone();
        if let Some(value) = grouped_rows::output_at(&key.expr, &select.projection) {
            key.expr = Expr::Nested(Box::new(value.clone()));
        }
        key
    };
    Ok(keys.iter().map(by_value).collect())
}

/// The sort keys of a set operation, which are its columns.
fn order_by_columns(query: &Query, columns: &[String]) -> Result<Vec<OrderByExpr>> {
    let Some(order) = &query.order_by else { return Ok(Vec::new()) };
    let OrderByKind::Expressions(keys) = &order.kind else { return Err(unsupported(ALL)) };
    let by_name = |key: &OrderByExpr| {
        let mut key = key.clone();
        if let Expr::Value(value) = &key.expr
            && let Value::Number(place, _) = &value.value
            && let Some(column) = place.parse::<usize>().ok().and_then(|at| columns.get(at.checked_sub(1)?))
        {
            key.expr = Expr::Identifier(Ident::with_quote('"', column));
        }
        key
    };
    Ok(keys.iter().map(by_name).collect())
}
