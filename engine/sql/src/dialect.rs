//! What clients of PostgreSQL write and DataFusion's planner does not know, put as it does know: functions and types with
//! their schema, `OPERATOR(…)`, `COLLATE`, names of relations as numbers, what is asked about the session or the catalog.
//!
//! It works on the tree of a statement by what its nodes mean, never by its text: what one client sends is understood of
//! any other. Nothing here reads data; a fact about the catalog becomes a literal, a `CASE`, or a table of it.

mod around;
mod arrays;
mod binary;
mod bounds;
mod bytes;
mod casts;
mod columns;
mod common;
mod divisors;
mod documents;
mod empty;
mod excluded;
mod exists;
mod factors;
mod fields;
mod formats;
mod functions;
mod gathered;
mod groupings;
mod json;
mod keywords;
mod kinds;
mod laterals;
mod literals;
mod lookups;
mod merged;
mod naming;
mod natural;
mod operators;
mod orders;
mod others;
mod outer;
mod outputs;
mod patterns;
mod percentiles;
mod queries;
mod ranks;
mod records;
mod rows;
mod series;
mod sets;
mod stars;
mod sums;
mod ties;
mod times;
mod tuples;
mod types;
mod unnested;
mod untyped;
mod values;
mod windows;

use std::collections::HashSet;
use std::ops::ControlFlow;

pub(crate) use columns::{Common, Known};
pub(crate) use common::tell_apart;
pub(crate) use documents::is_aggregate as makes_documents;
pub(crate) use naming::{AGAIN, make_unique, name as output_name};
pub(crate) use outputs::translate as name_outputs;
pub(crate) use quiver_query::quoted::text as quoted;
pub(crate) use untyped::leave_open;

use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident, ObjectName, Query,
    Select, SelectItem, SetExpr, TableFactor, Value, VisitorMut,
};
use datafusion::sql::sqlparser::parser::{Parser, ParserError};
use quiver_query::durations::worded;
use quiver_types::{Error, ErrorKind, Result};

use crate::catalog::Catalog;
use crate::error::TOO_DEEP;
use crate::names::{Fixed, Named};
use crate::parse::{Patience, keep_texts, normal, parts, text_literal};
use crate::session::Session;
use crate::walk::{walk, walk_mut};

/// Most places of a statement that become an expression of the catalog: each may list all of its relations.
const PLACES_MAX: usize = 200;
/// Most expressions that a statement becomes longer by on the way down, where what is copied holds more that will be.
const ADDED_MAX: usize = 1 << 16;

/// Puts a query as the planner knows it. `aggregates` says whether a function is one.
///
/// # Errors
/// Invalid: a relation, type or setting that is named is not there. LimitExceeded: too much is asked of the catalog.
pub(crate) fn translate(
    query: &mut Query,
    catalog: &Catalog,
    session: &Session,
    aggregates: &dyn Fn(&str) -> bool,
) -> Result<()> {
    let mut names = factors::Names::default();
    let _ = walk(query, &mut names);
    let fixed = |named: &Named| catalog.fixed(named);
    stars::translate(query, &fixed);
    outer::translate(query, &fixed);
    let (reads_types, compared) = (kinds::reads_types(query), HashSet::new());
    let left = names.expressions + ADDED_MAX;
    let (names, common) = (names.columns, Vec::new());
    let mut translator = Translator {
        catalog,
        fixed: &fixed,
        session,
        aggregates,
        names,
        common,
        places: 0,
        left,
        compared,
        reads_types,
    };
    match walk_mut(query, &mut translator) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Translator<'t> {
    catalog: &'t Catalog,
    /// Fixed columns of its tables.
    fixed: Fixed<'t>,
    session: &'t Session,
    aggregates: &'t dyn Fn(&str) -> bool,
    /// Bare names of columns.
    names: HashSet<String>,
    /// Common tables of the queries that were seen.
    common: Vec<Common>,
    places: usize,
    /// How many expressions it still goes into.
    left: usize,
    /// Where subqueries are that stand for a set (`= ANY (SELECT …)`), and not for a value.
    compared: HashSet<*const Query>,
    /// Whether it asks the catalog about types.
    reads_types: bool,
}

/// A literal text.
fn text(value: &str) -> Expr {
    Expr::Value(text_literal(value.to_owned()).into())
}

fn number(value: i64) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).into())
}

fn boolean(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// An expression of ours, written as SQL.
///
/// # Errors
/// LimitExceeded: what the statement says stands deeper in it than the parser goes. Internal: it cannot be read.
fn expr(sql: &str) -> Result<Expr> {
    // What the statement says stands in it.
    let dialect = Patience::for_words(sql.len());
    let mut parser = Parser::new(&dialect)
        .try_with_sql(sql)
        .map_err(|e| Error::internal("cannot read an expression of ours").with_source(e))?;
    let mut found = parser.parse_expr().map_err(|e| match e {
        ParserError::RecursionLimitExceeded => Error::new(ErrorKind::LimitExceeded, TOO_DEEP),
        e => Error::internal("cannot read an expression of ours").with_source(e),
    })?;
    if sql.contains("''") {
        keep_texts(&mut found);
    }
    Ok(found)
}

/// A call of a function of ours.
fn call(name: &str, args: Vec<Expr>) -> Expr {
    let args = args.into_iter().map(|arg| FunctionArg::Unnamed(FunctionArgExpr::Expr(arg))).collect();
    let list = FunctionArgumentList { duplicate_treatment: None, args, clauses: Vec::new() };
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(list),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: Vec::new(),
    })
}

/// Takes an expression out of its place.
fn take(place: &mut Expr) -> Expr {
    std::mem::replace(place, Expr::Value(Value::Null.into()))
}

/// The text of a literal, through brackets and casts to text.
fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) | Value::Number(text, _) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => literal(inner),
        Expr::Cast { expr: inner, data_type, .. } if types::is_text(data_type) => literal(inner),
        _ => None,
    }
}

/// Whether a name is a function that is called without brackets, which the parser takes for a column.
fn is_bare_function(name: &Ident) -> bool {
    name.quote_style.is_none() && matches!(normal(name).as_str(), "current_schema" | "current_role")
}

fn refused(error: Error) -> ControlFlow<Box<Error>> {
    ControlFlow::Break(Box::new(error))
}

impl Translator<'_> {
    fn columns(&self) -> Known<'_> {
        Known { fixed: self.fixed, common: &self.common }
    }

    /// Notes the common tables of a query.
    fn add_common(&mut self, query: &Query) {
        for table in query.with.iter().flat_map(|with| &with.cte_tables) {
            let columns = self.columns().of_common(table);
            self.common.push((normal(&table.alias.name), columns));
        }
    }

    /// Counts an expression of the catalog.
    fn count(&mut self) -> Result<()> {
        self.places += 1;
        if self.places <= PLACES_MAX {
            return Ok(());
        }
        let text = format!("a statement asks the catalog at more than {PLACES_MAX} places");
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }

    fn expression(&mut self, place: &mut Expr) -> Result<()> {
        match place {
            Expr::Collate { expr, .. } => *place = take(expr),
            Expr::BinaryOp { left, right, .. } => {
                tuples::beside_query(left, right, self.aggregates)?;
                binary::translate(place)?;
            }
            Expr::InList { expr, list, negated } => {
                if let Some(found) = tuples::among_rows(expr, list, *negated)? {
                    *place = found;
                }
            }
            Expr::CompoundFieldAccess { .. } => fields::translate(place),
            Expr::UnaryOp { .. } => operators::unary(place),
            Expr::IsNull(_) | Expr::IsNotNull(_) => tuples::null(place)?,
            Expr::AtTimeZone { timestamp, time_zone } => {
                *place = call("at_time_zone", vec![take(timestamp), take(time_zone)]);
            }
            Expr::SimilarTo { .. } => patterns::similar(place)?,
            Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => operators::unlike(place),
            Expr::TypedString(_) => literals::typed(place)?,
            Expr::Cast { expr, data_type, .. } => {
                if let Some(found) = times::special(data_type, expr)? {
                    *place = found;
                    return Ok(());
                }
                if let Expr::Value(value) = &mut **expr {
                    times::complete(data_type, &mut value.value);
                }
                literals::formed(data_type, expr)?;
                self.cast(place)?;
            }
            Expr::Identifier(name) if is_bare_function(name) => {
                *place = self.about_session(&normal(name), &[])?.unwrap_or_else(|| take(place));
            }
            Expr::Function(_) => self.function(place)?,
            Expr::Like { .. } | Expr::ILike { .. } => like(place)?,
            Expr::Interval(interval) => {
                if let Expr::Value(value) = &mut *interval.value
                    && interval.leading_field.is_none()
                    && let Value::SingleQuotedString(text) = &mut value.value
                    && let Some(whole) = worded(text)
                {
                    *text = whole;
                }
            }
            Expr::Position { .. } => bytes::translate(place),
            // `substring(text from 'pattern')`: the first group that is found, or all of it.
            Expr::Substring { expr: within, substring_from: Some(pattern), substring_for: None, .. }
                if patterns::is_constant(pattern) =>
            {
                patterns::regular(pattern)?;
                let found = others::matched(vec![take(within), take(pattern)]);
                *place = call("array_element", vec![found, number(1)]);
            }
            Expr::Substring { substring_from, substring_for, .. } => {
                for place in [substring_from, substring_for].into_iter().flatten() {
                    types::widened(place);
                }
                bytes::translate(place);
            }
            Expr::Extract { field, expr, .. } => {
                if let Some(found) = times::extract(field, expr)? {
                    *place = found;
                }
            }
            Expr::AnyOp { .. } | Expr::AllOp { .. } => {
                tuples::lone(place)?;
                sets::apart(place)?;
            }
            Expr::Between { .. } => operators::symmetric(place)?,
            Expr::InSubquery { .. } => {
                tuples::lone(place)?;
                sets::behind_name(place)?;
            }
            Expr::Exists { subquery, negated } if empty::is_empty(subquery) => *place = boolean(*negated),
            Expr::Subquery(query) => {
                lookups::unlimited(query, self.aggregates);
                if empty::is_empty(query) {
                    *place = Expr::Value(Value::Null.into());
                } else if self.is_look_up(query) {
                    // One row of the catalog at most has a key, so that the greatest value is the value.
                    aggregated(query, "max")?;
                } else if !self.compared.remove(&std::ptr::from_ref(&**query)) {
                    match lookups::translate(query, self.aggregates)? {
                        Some(lookups::LookUp::List) => *place = call("sole", vec![take(place)]),
                        Some(lookups::LookUp::Value) => {}
                        None => lookups::may_be_null(query, self.aggregates),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Whether a scalar subquery looks a row of the catalog up: DataFusion wants it to aggregate.
    fn is_look_up(&self, query: &Query) -> bool {
        let SetExpr::Select(select) = &*query.body else { return false };
        let about = |factor: &TableFactor| match factor {
            TableFactor::Table { name, args: None, .. } => Catalog::is_about(&empty::named(name)),
            _ => false,
        };
        let from = select
            .from
            .iter()
            .flat_map(|from| std::iter::once(&from.relation).chain(from.joins.iter().map(|join| &join.relation)));
        let mut from = from.peekable();
        let plain = query.limit_clause.is_none()
            && query.fetch.is_none()
            && query.with.is_none()
            && select.distinct.is_none()
            && select.having.is_none()
            && empty::is_ungrouped(select);
        plain && from.peek().is_some() && from.all(about) && !empty::aggregates(select, self.aggregates)
    }
}

/// Puts an aggregate around the one output of a query.
fn aggregated(query: &mut Query, function: &str) -> Result<()> {
    query.order_by = None;
    let SetExpr::Select(select) = &mut *query.body else { return Ok(()) };
    if let [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] =
        select.projection.as_mut_slice()
    {
        let inner = take(value);
        *value = expr(&format!("{function}({inner})"))?;
    }
    Ok(())
}

/// `LIKE` of one pattern, or of several (`ANY`, `ALL`).
fn like(place: &mut Expr) -> Result<()> {
    if operators::like_several(place)? { Ok(()) } else { patterns::translate(place) }
}

impl VisitorMut for Translator<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        empty::fold(query, self.aggregates);
        unnested::ordered(query);
        rows::typed(query);
        let cast = casts::translate(query, self.aggregates);
        self.add_common(query);
        natural::translate(query, &self.columns());
        let done = cast.and_then(|()| windows::written_out(query)).and_then(|()| ties::translate(query));
        let done = done.and_then(|()| values::translate(query));
        let done = done.and_then(|()| queries::translate(query)).and_then(|()| bounds::translate(query));
        let done = done.and_then(|()| merged::translate(query));
        done.map_or_else(refused, ControlFlow::Continue)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let making = laterals::Making { known: self.columns(), is_aggregate: self.aggregates };
        let done = windows::none_in_where(select).and_then(|()| outputs::no_texts(select));
        let done = done.and_then(|()| records::translate(select));
        let done = done.and_then(|()| laterals::translate(select, making));
        if let Err(error) = done.and_then(|()| groupings::translate(select)) {
            return refused(error);
        }
        queries::ungroup(select, self.aggregates);
        if let Err(error) = gathered::apart(select) {
            return refused(error);
        }
        documents::rows_in(select, &self.columns());
        tuples::in_conditions(select, self.columns()).map_or_else(refused, ControlFlow::Continue)
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        rows::joined(select);
        divisors::checked(select);
        let done = sets::in_outputs(select).and_then(|()| exists::in_outputs(select, self.aggregates));
        done.map_or_else(refused, ControlFlow::Continue)
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        factors::translate(factor, &self.names);
        queries::plain(factor).map_or_else(refused, ControlFlow::Continue)
    }

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
        let Some(left) = self.left.checked_sub(1) else {
            let text = format!(
                "a statement becomes longer by at most {ADDED_MAX} expressions where it is written in other words, such as \
                 `x < ANY ('{{1,2}}')` with a comparison for each item"
            );
            return refused(Error::new(ErrorKind::LimitExceeded, text));
        };
        self.left = left;
        if self.reads_types {
            kinds::fold(place);
        }
        json::changed(place);
        sets::listed(place);
        let done = sets::plain(place).and_then(|()| tuples::constant(place)).and_then(|()| sets::without(place));
        if let Err(error) = done {
            return refused(error);
        }
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = place
            && let Expr::Subquery(query) = &**right
        {
            self.compared.insert(std::ptr::from_ref(&**query));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
        operators::distinct(place);
        match self.expression(place) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => refused(error),
        }
    }
}

/// The last part of a function's name, if the rest is a schema of ours.
pub(crate) fn bare(name: &ObjectName) -> Option<String> {
    let mut parts = parts(name);
    let last = parts.pop()?;
    let known = |schema: &String| matches!(schema.as_str(), "pg_catalog" | "quiver" | "public" | "information_schema");
    parts.iter().all(known).then_some(last)
}

/// The arguments of a call, where each is a plain expression.
pub(crate) fn arguments(args: &FunctionArguments) -> Option<Vec<Expr>> {
    match args {
        FunctionArguments::None => Some(Vec::new()),
        FunctionArguments::Subquery(_) => None,
        FunctionArguments::List(list) => list
            .args
            .iter()
            .map(|arg| match arg {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                _ => None,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
