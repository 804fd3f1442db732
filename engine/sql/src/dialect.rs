//! What clients of PostgreSQL write and DataFusion's planner does not know, put as it does know: functions and types with
//! their schema, `OPERATOR(…)`, `COLLATE`, names of relations as numbers, what is asked about the session or the catalog.
//!
//! It works on the tree of a statement by what its nodes mean, never by its text: what one client sends is understood of
//! any other. Nothing here reads data; a fact about the catalog becomes a literal, a `CASE`, or a table of it.

mod empty;
mod factors;
mod formats;
mod functions;
mod json;
mod keywords;
mod outputs;
mod patterns;
mod percentiles;
mod queries;
mod times;
mod types;

use std::collections::HashSet;
use std::ops::ControlFlow;

pub(crate) use outputs::{make_unique, name as output_name, translate as name_outputs};

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments, Ident,
    ObjectName, Query, Select, SelectItem, SetExpr, TableFactor, Value, VisitMut, VisitorMut,
};
use datafusion::sql::sqlparser::dialect::PostgreSqlDialect;
use datafusion::sql::sqlparser::parser::Parser;
use quiver_types::{Error, ErrorKind, Result};

use crate::catalog::Catalog;
use crate::parse::{normal, parts};
use crate::session::Session;

/// Most places of a statement that become an expression of the catalog: each may list all of its relations.
const PLACES_MAX: usize = 200;

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
    let _ = datafusion::sql::sqlparser::ast::Visit::visit(&*query, &mut names);
    let mut translator = Translator { catalog, session, aggregates, names: names.0, places: 0 };
    match query.visit(&mut translator) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct Translator<'t> {
    catalog: &'t Catalog,
    session: &'t Session,
    aggregates: &'t dyn Fn(&str) -> bool,
    /// Bare names of columns.
    names: HashSet<String>,
    places: usize,
}

/// A literal text.
fn text(value: &str) -> Expr {
    Expr::Value(Value::SingleQuotedString(value.to_owned()).into())
}

fn number(value: i64) -> Expr {
    Expr::Value(Value::Number(value.to_string(), false).into())
}

fn boolean(value: bool) -> Expr {
    Expr::Value(Value::Boolean(value).into())
}

/// An expression of ours, written as SQL.
fn expr(sql: &str) -> Result<Expr> {
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(sql)
        .map_err(|e| Error::internal("cannot read an expression of ours").with_source(e))?;
    parser.parse_expr().map_err(|e| Error::internal("cannot read an expression of ours").with_source(e))
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

/// A text as a literal of SQL.
pub(crate) fn quoted(value: &str) -> String {
    format!("'{}'", value.replace('\'', "''"))
}

/// Takes an expression out of its place.
fn take(place: &mut Expr) -> Expr {
    std::mem::replace(place, Expr::Value(Value::Null.into()))
}

/// The text of a literal, through brackets and casts to text.
fn literal(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            Value::Number(text, _) => Some(text),
            _ => None,
        },
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => literal(inner),
        Expr::Cast { expr: inner, data_type, .. } if types::is_text(data_type) => literal(inner),
        _ => None,
    }
}

fn refused(error: Error) -> ControlFlow<Box<Error>> {
    ControlFlow::Break(Box::new(error))
}

impl Translator<'_> {
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
            Expr::BinaryOp { left, op, right } if json::function(left, op).is_some() => {
                let name = json::function(left, op).unwrap_or_default();
                *place = call(name, vec![take(left), take(right)]);
            }
            // Clients see maps as `json`, and read them so.
            Expr::BinaryOp { left, op: BinaryOperator::LongArrow, right } => {
                let sql = format!("attr({left}, {right})");
                *place = expr(&sql)?;
            }
            Expr::BinaryOp { left, op: BinaryOperator::PGOverlap, right } => {
                *place = call("array_has_any", vec![take(left), take(right)]);
            }
            Expr::BinaryOp { op, .. } => operator(op),
            Expr::AtTimeZone { timestamp, time_zone } => {
                *place = call("at_time_zone", vec![take(timestamp), take(time_zone)]);
            }
            Expr::SimilarTo { .. } => patterns::similar(place)?,
            Expr::TypedString(typed) => {
                times::complete(&typed.data_type, &mut typed.value.value);
                if let Some(plain) = types::plain(&typed.data_type) {
                    typed.data_type = plain;
                }
            }
            Expr::Cast { expr, data_type, .. } => {
                if let Expr::Value(value) = &mut **expr {
                    times::complete(data_type, &mut value.value);
                }
                self.cast(place)?;
            }
            Expr::Identifier(name) if name.quote_style.is_none() => {
                if let "current_schema" | "current_role" = normal(name).as_str() {
                    let name = normal(name);
                    *place = self.about_session(&name, &[])?.unwrap_or_else(|| take(place));
                }
            }
            Expr::Function(_) => self.function(place)?,
            Expr::Like { .. } | Expr::ILike { .. } => patterns::translate(place)?,
            Expr::Interval(interval) => {
                if let Expr::Value(value) = &mut *interval.value
                    && interval.leading_field.is_none()
                    && let Value::SingleQuotedString(text) = &mut value.value
                    && let Some(whole) = times::worded(text)
                {
                    *text = whole;
                }
            }
            // `substring(text from 'pattern')`: the first group that is found, or all of it.
            Expr::Substring { expr: within, substring_from: Some(pattern), substring_for: None, .. }
                if patterns::is_written(pattern) =>
            {
                let found = call("regexp_match", vec![take(within), take(pattern)]);
                *place = call("array_element", vec![found, number(1)]);
            }
            Expr::Extract { field, expr, .. } => {
                if let Some(found) = times::extract(field, expr)? {
                    *place = found;
                }
            }
            Expr::InSubquery { expr, .. } if matches!(**expr, Expr::Tuple(_)) => queries::lone_rows()?,
            Expr::Exists { subquery, negated } if empty::is_empty(subquery) => *place = boolean(*negated),
            Expr::Subquery(query) => {
                if empty::is_empty(query) {
                    *place = Expr::Value(Value::Null.into());
                } else if self.is_look_up(query) {
                    // One row of the catalog at most has a key, so that the greatest value is the value.
                    aggregated(query, "max")?;
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

/// `OPERATOR(pg_catalog.~)` and the like.
fn operator(op: &mut BinaryOperator) {
    let BinaryOperator::PGCustomBinaryOperator(name) = op else { return };
    let known = match name.last().map(String::as_str) {
        Some("=") => BinaryOperator::Eq,
        Some("<>" | "!=") => BinaryOperator::NotEq,
        Some("<") => BinaryOperator::Lt,
        Some(">") => BinaryOperator::Gt,
        Some("<=") => BinaryOperator::LtEq,
        Some(">=") => BinaryOperator::GtEq,
        Some("~") => BinaryOperator::PGRegexMatch,
        Some("~*") => BinaryOperator::PGRegexIMatch,
        Some("!~") => BinaryOperator::PGRegexNotMatch,
        Some("!~*") => BinaryOperator::PGRegexNotIMatch,
        Some("~~") => BinaryOperator::PGLikeMatch,
        Some("~~*") => BinaryOperator::PGILikeMatch,
        Some("!~~") => BinaryOperator::PGNotLikeMatch,
        Some("!~~*") => BinaryOperator::PGNotILikeMatch,
        Some("||") => BinaryOperator::StringConcat,
        Some("+") => BinaryOperator::Plus,
        Some("-") => BinaryOperator::Minus,
        Some("*") => BinaryOperator::Multiply,
        Some("/") => BinaryOperator::Divide,
        _ => return,
    };
    *op = known;
}

impl VisitorMut for Translator<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        empty::fold(query, self.aggregates);
        queries::translate(query).map_or_else(refused, ControlFlow::Continue)
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        queries::ungroup(select, self.aggregates);
        queries::rows_in(select).map_or_else(refused, ControlFlow::Continue)
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        factors::translate(factor, &self.names);
        queries::plain(factor).map_or_else(refused, ControlFlow::Continue)
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
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
