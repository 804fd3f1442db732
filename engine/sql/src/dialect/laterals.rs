//! Subqueries of a `FROM` that read the row at hand otherwise than by `=`, and those that take some rows of each:
//! `LATERAL (SELECT … WHERE r.time < t.time ORDER BY r.time DESC LIMIT 1)`, the latest row before. The planner does not take
//! them; what it does take is a join of the values that they read of the tables before (each once) with their own tables,
//! numbered by these values or grouped by them, and a join of that by the same values.

mod gathered;
mod look_ups;
mod names;
mod reading;
mod windowed;

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Ident, Join, JoinConstraint, JoinOperator, LimitClause, ObjectName, OrderByExpr, OrderByKind,
    Query, Select, SelectItem, SelectItemQualifiedWildcardKind, SetExpr, TableAlias, TableAliasColumnDef, TableFactor,
    TableWithJoins, Value, Visitor, VisitorMut, visit_expressions,
};
use quiver_types::{Error, ErrorKind, Result};

use super::columns::{Known, called, constraint, factors};
use super::expressions::{bare, expr};
use super::stars::factors_mut;
use super::{empty, lookups, queries, rows, windows};
use crate::catalog::schemas::INFORMATION_SCHEMA;
use crate::error::unsupported;
use crate::names::{normal, parts};
use crate::walk::{walk, walk_mut};
use reading::{gives_beside_table, reads_otherwise, reads_within};

/// Most bytes of a join that takes the place of a subquery: it has the tables before it once or twice.
const BYTES_MAX: usize = 64 << 10;
/// What the values are called that are read of the tables before.
const KEYS: &str = "of rows";

/// What a join in the place of a subquery is made with.
#[derive(Clone, Copy)]
pub(super) struct Making<'m> {
    pub(super) known: Known<'m>,
    pub(super) is_aggregate: &'m dyn Fn(&str) -> bool,
}

/// Puts joins in the place of such subqueries of a `FROM`, and of such look-ups.
pub(super) fn translate(select: &mut Select, making: Making<'_>) -> Result<()> {
    beside(select);
    for factor in select.from.iter_mut().flat_map(factors_mut) {
        names::of_row(factor);
        if let TableFactor::Derived { lateral: true, subquery, .. } = factor {
            lookups::unlimited(subquery, making.is_aggregate);
        }
    }
    let own = select.from.first().map_or(0, |from| from.joins.len());
    look_ups::translate(select, making)?;
    let mut made = Vec::new();
    let conditions = select.selection.clone();
    for (nth, from) in select.from.iter_mut().enumerate() {
        // A row that a condition drops needs no values.
        let conditions = conditions.as_ref().filter(|_| keeps_left(from));
        for at in 0..from.joins.len() {
            if !matches!(&from.joins[at].relation, TableFactor::Derived { lateral: true, .. }) {
                continue;
            }
            let before = TableWithJoins { relation: from.relation.clone(), joins: from.joins[..at].to_vec() };
            // What was looked up is no table of the statement.
            let is_own = nth > 0 || at < own;
            let Some(found) = Lateral::of(&from.joins[at], &before, making, is_own)? else { continue };
            let shown = if is_own { found.shown() } else { Vec::new() };
            made.push((found.name.clone(), shown));
            from.joins[at] = found.join(&before, conditions)?;
        }
    }
    if made.is_empty() { Ok(()) } else { without_keys(select, &made) }
}

/// Whether no join gives rows for which there are none of the tables before it.
fn keeps_left(from: &TableWithJoins) -> bool {
    let drops = |join: &Join| {
        matches!(&join.join_operator, JoinOperator::Right(_) | JoinOperator::RightOuter(_) | JoinOperator::FullOuter(_))
    };
    !from.joins.iter().any(drops)
}

/// `a, LATERAL (…)` as `a CROSS JOIN LATERAL (…)`.
fn beside(select: &mut Select) {
    let is_lateral = |from: &TableWithJoins| {
        from.joins.is_empty() && matches!(&from.relation, TableFactor::Derived { lateral: true, .. })
    };
    while select.from.get(1).is_some_and(is_lateral) {
        let relation = select.from.remove(1).relation;
        let join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
        select.from[0].joins.push(Join { relation, global: false, join_operator });
    }
}

/// A subquery with what it reads of the tables before.
struct Lateral {
    query: Query,
    name: Ident,
    /// Names of its outputs, and how they are called outside.
    columns: Vec<String>,
    given: Vec<String>,
    /// What it reads of the tables before.
    keys: Vec<Expr>,
    operator: JoinOperator,
    aggregates: bool,
}

impl Lateral {
    /// Looks at a join, which is the statement's own or takes the place of a subquery; none: it is another one, or the
    /// planner takes it.
    fn of(join: &Join, before: &TableWithJoins, making: Making<'_>, is_own: bool) -> Result<Option<Self>> {
        let TableFactor::Derived { lateral: true, subquery, alias: Some(alias), sample: None } = &join.relation else {
            return Ok(None);
        };
        let is_known = match &join.join_operator {
            JoinOperator::CrossJoin(JoinConstraint::None) => true,
            JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint) => matches!(constraint, JoinConstraint::On(_)),
            _ => false,
        };
        let mut query = (**subquery).clone();
        queries::translate(&mut query)?;
        lookups::unlimited(&mut query, making.is_aggregate);
        windows::written_out(&mut query)?;
        names::all(&mut query);
        let outer: HashSet<String> = factors(before).filter_map(called).collect();
        let Some(keys) = keys_of(&mut query, &outer) else { return Ok(None) };
        if !is_known || keys.is_empty() || !is_plain(&query) {
            return Ok(None);
        }
        let SetExpr::Select(select) = &*query.body else { return Ok(None) };
        let aggregates = empty::is_ungrouped(select) && empty::aggregates(select, making.is_aggregate);
        let takes_some = query.limit_clause.is_some();
        let has_windows = windowed::has(&select.projection) || windowed::has(&query.order_by);
        let is_planned = is_own
            && !takes_some
            && !has_windows
            && !reads_otherwise(select.selection.as_ref())
            && !gives_beside_table(select);
        let reads_deeper = select.from.iter().flat_map(factors).any(reads_within);
        if (is_planned && !reads_deeper) || (aggregates && (takes_some || has_windows)) {
            return Ok(None);
        }
        if aggregates && select.projection.iter().any(|item| !is_simple(item, making.is_aggregate)) {
            return Ok(None);
        }
        let Some(columns) = making.known.of_query(&query) else {
            if is_planned {
                return Ok(None);
            }
            return Err(unsupported(
                "`*` in a `LATERAL` subquery that takes some rows of each stands for columns that are not known here: \
                 name them",
            ));
        };
        let mut given = columns.clone();
        for (column, renamed) in given.iter_mut().zip(&alias.columns) {
            *column = normal(&renamed.name);
        }
        windowed::divide(&mut query, keys.len())?;
        if let SetExpr::Select(select) = &mut *query.body {
            select.from.iter_mut().flat_map(factors_mut).for_each(reading::of_table_before);
        }
        let (called, operator) = (alias.name.clone(), join.join_operator.clone());
        Ok(Some(Self { query, name: called, columns, given, keys, operator, aggregates }))
    }

    /// Its columns, as `*` gives them.
    fn shown(&self) -> Vec<SelectItem> {
        let column = |column: &String| {
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(vec![self.name.clone(), Ident::with_quote('"', column)]))
        };
        self.given.iter().map(column).collect()
    }

    /// The join that gives the same rows.
    fn join(self, before: &TableWithJoins, conditions: Option<&Expr>) -> Result<Join> {
        let values = self.values(&self.needed(before), conditions);
        let sql = if self.aggregates { self.grouped(&values)? } else { self.numbered(&values)? };
        if sql.len() > BYTES_MAX {
            let text =
                format!("a `LATERAL` subquery of {} bytes is too long, at most {BYTES_MAX} are allowed", sql.len());
            return Err(Error::new(ErrorKind::LimitExceeded, text));
        }
        let Expr::Subquery(subquery) = expr(&format!("({sql})"))? else {
            return Err(Error::internal("a join has no subquery"));
        };
        let keys = (1..=self.keys.len()).map(key);
        let column = |name: String| TableAliasColumnDef { name: Ident::with_quote('"', name), data_type: None };
        let columns = self.given.iter().cloned().chain(keys).map(column).collect();
        let alias = Some(TableAlias { explicit: true, name: self.name.clone(), columns, at: None });
        let mut on: Vec<String> = self.same(&self.name.to_string());
        let keeps_left = matches!(self.operator, JoinOperator::Left(_) | JoinOperator::LeftOuter(_));
        if let Some(JoinConstraint::On(other)) = constraint(&self.operator) {
            on.push(format!("({other})"));
        }
        let on = JoinConstraint::On(expr(&on.join(" AND "))?);
        let join_operator = if keeps_left { JoinOperator::LeftOuter(on) } else { JoinOperator::Inner(on) };
        let relation = TableFactor::Derived { lateral: false, subquery, alias, sample: None };
        Ok(Join { relation, global: false, join_operator })
    }

    /// The tables before up to the last one that it reads of. Others may drop rows, and more values than needed do no harm.
    fn needed(&self, before: &TableWithJoins) -> TableWithJoins {
        let read: HashSet<String> = self.keys.iter().filter_map(table_of).collect();
        let mut needed = before.clone();
        while keeps_left(before)
            && let Some(last) = needed.joins.pop()
        {
            if called(&last.relation).is_none_or(|name| read.contains(&name)) {
                needed.joins.push(last);
                break;
            }
        }
        needed
    }

    /// The values that it reads of the tables before, each once.
    fn values(&self, before: &TableWithJoins, conditions: Option<&Expr>) -> String {
        let outer: HashSet<String> = factors(before).filter_map(called).collect();
        let mut kept = Vec::new();
        let mut open: Vec<&Expr> = conditions.into_iter().collect();
        while let Some(condition) = open.pop() {
            match condition {
                Expr::BinaryOp { left, op: BinaryOperator::And, right } => open.extend([&**left, &**right]),
                other if is_about(other, &outer) => kept.push(format!("({other})")),
                _ => {}
            }
        }
        let condition = if kept.is_empty() { String::new() } else { format!(" WHERE {}", kept.join(" AND ")) };
        let keys = self.keys.iter().enumerate().map(|(at, value)| format!("{value} AS {}", quoted(&key(at + 1))));
        format!(
            "(SELECT DISTINCT {} FROM {before}{condition}) AS {}",
            keys.collect::<Vec<_>>().join(", "),
            quoted(KEYS)
        )
    }

    /// That the values of `table` are those of the row at hand. They may be NULL.
    fn same(&self, table: &str) -> Vec<String> {
        let same =
            |(at, value): (usize, &Expr)| format!("({table}.{} IS NOT DISTINCT FROM {value})", quoted(&key(at + 1)));
        self.keys.iter().enumerate().map(same).collect()
    }

    /// The values as columns of their table.
    fn key_columns(&self) -> Vec<String> {
        (1..=self.keys.len()).map(|at| format!("{}.{}", quoted(KEYS), quoted(&key(at)))).collect()
    }

    /// The outputs of the subquery by their names, and its tables beside the values.
    fn parts(&self) -> Result<(Vec<String>, String)> {
        let SetExpr::Select(select) = &*self.query.body else { return Err(Error::internal("no select")) };
        let mut items = Vec::new();
        for item in &select.projection {
            match item {
                SelectItem::Wildcard(_) => {
                    for factor in select.from.iter().flat_map(factors) {
                        let name = called(factor).ok_or_else(|| unsupported("`*` of a table without a name"))?;
                        items.push(format!("{}.*", quoted(&name)));
                    }
                }
                other => items.push(other.to_string()),
            }
        }
        let from: Vec<String> = select.from.iter().map(|from| format!(", {from}")).collect();
        let condition = select.selection.as_ref().map_or_else(String::new, |is| format!(" WHERE {is}"));
        Ok((items, from.concat() + &condition))
    }

    /// The subquery's first rows of each.
    fn numbered(&self, values: &str) -> Result<String> {
        let (mut limit, mut offset) = (None, None);
        if let Some(LimitClause::LimitOffset { limit: most, offset: from, .. }) = &self.query.limit_clause {
            limit = most.as_ref().map(|rows| format!("\"nth row\" <= {rows}"));
            if let Some(from) = from {
                limit = most.as_ref().map(|rows| format!("\"nth row\" <= {rows} + {}", from.value));
                offset = Some(format!("\"nth row\" > {}", from.value));
            }
        }
        let taken: Vec<String> = [limit, offset].into_iter().flatten().collect();
        let condition = if taken.is_empty() { String::new() } else { format!(" WHERE {}", taken.join(" AND ")) };
        let columns: Vec<String> = self.columns.iter().map(|column| quoted(column)).collect();
        let own_keys: Vec<String> = (1..=self.keys.len()).map(|at| quoted(&key(at))).collect();
        let (shown, own_keys) = ([columns.join(", "), own_keys.join(", ")].join(", "), own_keys.join(", "));
        let SetExpr::Select(select) = &*self.query.body else { return Err(Error::internal("no select")) };
        let is_gathered = gathered::is_one(select);
        let (keys, (items, tables), mut order) = (self.key_columns(), self.parts()?, self.order()?);
        let named = windowed::named(&mut order, is_gathered);
        let order = order.iter().map(OrderByExpr::to_string).collect::<Vec<_>>().join(", ");
        let order = if order.is_empty() { order } else { format!(" ORDER BY {order}") };
        let nth = |keys: &str| format!("row_number() OVER (PARTITION BY {keys}{order}) AS \"nth row\"");
        let rows = if named.is_empty() && !is_gathered {
            format!("SELECT {}, {}, {} FROM {values}{tables}", items.join(", "), keys.join(", "), nth(&keys.join(", ")))
        } else {
            let outputs = [items.as_slice(), keys.as_slice(), named.as_slice()].concat().join(", ");
            let (begins, groups) = (gathered::begins(select), gathered::groups(select, &keys));
            let inner = format!("{begins} {outputs} FROM {values}{tables}{groups}");
            format!("SELECT {shown}, {} FROM ({inner}) AS \"windowed\"", nth(&own_keys))
        };
        Ok(format!("SELECT {shown} FROM ({rows}) AS \"numbered\"{condition}"))
    }

    /// The keys of the subquery's order.
    fn order(&self) -> Result<Vec<OrderByExpr>> {
        let Some(order) = &self.query.order_by else { return Ok(Vec::new()) };
        let (OrderByKind::Expressions(keys), SetExpr::Select(select)) = (&order.kind, &*self.query.body) else {
            return Err(unsupported("`ORDER BY ALL` in a `LATERAL` subquery: name the columns"));
        };
        let mut written = Vec::new();
        for key in keys {
            let mut key = key.clone();
            let of_item = match &key.expr {
                Expr::Value(value) => match &value.value {
                    Value::Number(at, _) => {
                        at.parse::<usize>().ok().and_then(|at| select.projection.get(at.checked_sub(1)?))
                    }
                    _ => None,
                },
                Expr::Identifier(name) => select.projection.iter().find(|item| match item {
                    SelectItem::ExprWithAlias { alias, .. } => normal(alias) == normal(name),
                    _ => false,
                }),
                _ => None,
            };
            if let Some(SelectItem::ExprWithAlias { expr, .. } | SelectItem::UnnamedExpr(expr)) = of_item {
                key.expr = Expr::Nested(Box::new(expr.clone()));
            }
            written.push(key);
        }
        Ok(written)
    }

    /// A row of the subquery's aggregates for each of the values: without rows of its own, too.
    fn grouped(&self, values: &str) -> Result<String> {
        let keys = self.key_columns().join(", ");
        let (items, tables) = self.parts()?;
        let SetExpr::Select(select) = &*self.query.body else { return Err(Error::internal("no select")) };
        let columns = self.columns.iter().zip(&select.projection).map(|(column, item)| {
            let column = format!("\"grouped\".{}", quoted(column));
            if counts(item) { format!("coalesce({column}, 0)") } else { column }
        });
        let columns: Vec<String> = columns.collect();
        let same = (1..=self.keys.len()).map(|at| {
            let key = quoted(&key(at));
            format!("(\"grouped\".{key} IS NOT DISTINCT FROM {}.{key})", quoted(KEYS))
        });
        let same: Vec<String> = same.collect();
        Ok(format!(
            "SELECT {}, {keys} FROM {values} LEFT JOIN (SELECT {}, {keys} FROM {values}{tables} GROUP BY {keys}) \
             AS \"grouped\" ON {}",
            columns.join(", "),
            items.join(", "),
            same.join(" AND "),
        ))
    }
}

/// The table that a column has before it.
fn table_of(column: &Expr) -> Option<String> {
    match column {
        Expr::CompoundIdentifier(name) => name.iter().rev().nth(1).map(normal),
        _ => None,
    }
}

fn key(at: usize) -> String {
    format!("key {at}")
}

fn quoted(name: &str) -> String {
    Ident::with_quote('"', name).to_string()
}

/// Whether it is a count, which is 0 where there are no rows; others are NULL.
fn counts(item: &SelectItem) -> bool {
    let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else { return false };
    match value {
        Expr::Function(call) => bare(&call.name).is_some_and(|name| name.starts_with("count")),
        _ => false,
    }
}

/// Whether an output is one aggregate: its value without rows is known.
fn is_simple(item: &SelectItem, is_aggregate: &dyn Fn(&str) -> bool) -> bool {
    let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else { return false };
    matches!(value, Expr::Function(call) if bare(&call.name).is_some_and(|name| is_aggregate(&name)) && call.over.is_none())
}

/// Whether a query is one select without what stands for itself in each of the rows (sets, and those of keys of groups).
fn is_plain(query: &Query) -> bool {
    let SetExpr::Select(select) = &*query.body else { return false };
    // A parameter is a cast of its value by then.
    let number = |value: &Expr| match value {
        Expr::Value(value) => matches!(value.value, Value::Number(..) | Value::Placeholder(_)),
        Expr::Cast { expr, .. } => matches!(&**expr, Expr::Value(_)),
        _ => false,
    };
    let is_limited = match &query.limit_clause {
        None => true,
        Some(LimitClause::LimitOffset { limit, offset, limit_by }) => {
            limit_by.is_empty()
                && limit.as_ref().is_none_or(number)
                && offset.as_ref().is_none_or(|offset| number(&offset.value))
        }
        Some(LimitClause::OffsetCommaLimit { .. }) => false,
    };
    is_limited
        && query.with.is_none()
        && query.fetch.is_none()
        && select.qualify.is_none()
        && select.named_window.is_empty()
        && !select.from.is_empty()
        && gathered::is_plain(select)
        && gathered::is_ordered(select, query.order_by.as_ref())
        && visit_expressions(query, in_rows).is_continue()
        && !reads_catalog(query)
}

/// Whether a query reads the catalog: what clients ask of that is answered otherwise, and much of it has no rows.
fn reads_catalog(query: &Query) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
            let name = parts(name);
            let is_own = name.last().is_some_and(|table| table.starts_with("pg_"));
            if is_own || name.iter().any(|part| part == INFORMATION_SCHEMA) {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        }
    }
    walk(query, &mut Finder).is_break()
}

/// Looks for what gives more values of a row than one: functions of rows.
fn in_rows(part: &Expr) -> ControlFlow<()> {
    match part {
        Expr::Function(call) if bare(&call.name).is_some_and(|name| rows::gives_rows(&name)) => ControlFlow::Break(()),
        _ => ControlFlow::Continue(()),
    }
}

/// Whether a condition reads columns of these tables alone, all with their table before them.
fn is_about(condition: &Expr, tables: &HashSet<String>) -> bool {
    struct About<'a> {
        tables: &'a HashSet<String>,
        reads: bool,
    }
    impl Visitor for About<'_> {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let is_fine = match expr {
                Expr::CompoundIdentifier(name) => {
                    self.reads = true;
                    matches!(name.as_slice(), [.., table, _] if self.tables.contains(&normal(table)))
                }
                Expr::Function(call) => bare(&call.name).is_some_and(|name| name != "random"),
                Expr::Identifier(_) => false,
                _ => true,
            };
            if is_fine { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        }
    }
    let mut about = About { tables, reads: false };
    walk(condition, &mut about).is_continue() && about.reads
}

/// What a query reads of the tables before, in whose place there are [`KEYS`]; none: it reads of others, too.
fn keys_of(query: &mut Query, outer: &HashSet<String>) -> Option<Vec<Expr>> {
    struct Own(HashSet<String>);
    impl Visitor for Own {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
            self.0.extend(called(factor));
            ControlFlow::Continue(())
        }
    }
    struct Reader<'r> {
        own: &'r HashSet<String>,
        outer: &'r HashSet<String>,
        found: Vec<(String, Expr)>,
    }
    impl VisitorMut for Reader<'_> {
        type Break = ();

        fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
            let Expr::CompoundIdentifier(name) = &*place else { return ControlFlow::Continue(()) };
            let [.., table, column] = name.as_slice() else { return ControlFlow::Continue(()) };
            let table = normal(table);
            if self.own.contains(&table) {
                return ControlFlow::Continue(());
            }
            if !self.outer.contains(&table) {
                return ControlFlow::Break(());
            }
            let called = format!("{table}.{}", normal(column));
            let at = self.found.iter().position(|(known, _)| *known == called);
            let at = at.unwrap_or(self.found.len());
            let words = vec![Ident::with_quote('"', KEYS), Ident::with_quote('"', key(at + 1))];
            let value = std::mem::replace(place, Expr::CompoundIdentifier(words));
            if at == self.found.len() {
                self.found.push((called, value));
            }
            ControlFlow::Continue(())
        }
    }
    let mut own = Own(HashSet::new());
    let _ = walk(&*query, &mut own);
    let mut reader = Reader { own: &own.0, outer, found: Vec::new() };
    if walk_mut(query, &mut reader).is_break() {
        return None;
    }
    Some(reader.found.into_iter().map(|(_, value)| value).collect())
}

/// Writes `*` out: the values by which is joined are no columns of the statement.
fn without_keys(select: &mut Select, made: &[(Ident, Vec<SelectItem>)]) -> Result<()> {
    let of = |table: &str| made.iter().find(|(name, _)| normal(name) == table).map(|(_, columns)| columns.clone());
    let mut items = Vec::new();
    for item in std::mem::take(&mut select.projection) {
        match &item {
            SelectItem::Wildcard(options) => {
                let merges = |join: &Join| {
                    matches!(constraint(&join.join_operator), Some(JoinConstraint::Using(_) | JoinConstraint::Natural))
                };
                let names: Option<Vec<String>> = select.from.iter().flat_map(factors).map(called).collect();
                let is_merged = select.from.iter().flat_map(|from| &from.joins).any(merges);
                let Some(names) = names.filter(|_| !is_merged && options.opt_replace.is_none()) else {
                    return Err(unsupported("`*` beside such a `LATERAL` subquery: name the columns"));
                };
                for name in names {
                    let all =
                        || SelectItemQualifiedWildcardKind::ObjectName(vec![Ident::with_quote('"', &name)].into());
                    let own = || vec![SelectItem::QualifiedWildcard(all(), options.clone())];
                    items.extend(of(&name).unwrap_or_else(own));
                }
            }
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                match bare(name).and_then(|name| of(&name)) {
                    Some(columns) => items.extend(columns),
                    None => items.push(item),
                }
            }
            _ => items.push(item),
        }
    }
    select.projection = items;
    Ok(())
}
