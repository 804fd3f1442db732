//! Rewrites what PostgreSQL clients write to what DataFusion's planner knows: functions and types with a schema,
//! `OPERATOR(…)`, `COLLATE`, `regclass` casts, questions about the session or the catalog.
//!
//! It works on the syntax tree and never on the text, so it is not tied to the queries of particular clients. Nothing
//! here reads data: a fact about the catalog becomes a literal, a `CASE`, or a catalog table.

mod ambiguous_columns;
mod arrays;
mod binary_operators;
mod bytes;
mod casts;
mod collecting_aggregates;
mod columns;
mod common_tables;
mod computed_names;
mod data_types;
mod decimals;
mod divisors;
mod documents;
mod empty_queries;
mod encodings;
mod equality_lookups;
mod exists;
mod expressions;
mod function_rewrites;
mod functions;
mod groupings;
mod hidden_sort_keys;
mod hypothetical_sets;
mod inlined_tables;
mod interval_fields;
mod joined_calls;
mod json_functions;
mod json_operators;
mod json_path_variables;
mod json_records;
mod key_positions;
mod keywords;
mod laterals;
mod literals;
mod name_scope;
mod naming;
mod natural_joins;
mod nested_lists;
mod number_series;
mod operators;
mod outer_columns;
mod outputs;
mod patterns;
mod percentiles;
mod quantified_comparisons;
mod queries;
mod recursive_terms;
mod row_fields;
mod row_values;
mod rows_from;
mod set_returning_functions;
mod sort_keys;
mod star_fields;
mod subquery_limits;
mod sum_quotients;
mod table_factors;
mod time_patterns;
mod times;
mod translator;
mod type_kinds;
mod types;
mod untyped_literals;
mod using_columns;
mod values;
mod windows;
mod with_ties;

use std::collections::HashSet;
use std::ops::ControlFlow;

pub(crate) use columns::{ColumnSources, Common, constraint};
pub(crate) use common_tables::tell_apart;
pub(crate) use expressions::{arguments, bare};
pub(crate) use json_functions::is_aggregate as makes_documents;
pub(crate) use key_positions::look_up as look_places_up;
pub(crate) use naming::{AGAIN, make_unique, name as output_name};
pub(crate) use outputs::translate as name_outputs;
pub(crate) use untyped_literals::leave_open;

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Query, Select, SelectItem, SetExpr, TableFactor, UnaryOperator, Value, VisitorMut,
};
use quiver_query::durations::worded;
use quiver_types::{Error, ErrorKind, Result};

use crate::catalog::Catalog;
use crate::error::unsupported;
use crate::names::{TableName, normal};
use crate::session::Session;
use crate::statement_walk::{refused, walk, walk_mut};
use expressions::{boolean, call, expr, is_bare_function, number, take};
use translator::Translator;

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
    let _ = walk_mut(query, &mut table_factors::ParserRepairs);
    let mut names = table_factors::Names::default();
    let _ = walk(query, &mut names);
    let fixed = |named: &TableName| catalog.fixed(named);
    recursive_terms::well_formed(query, aggregates)?;
    ambiguous_columns::none(query, &fixed)?;
    star_fields::translate(query, &fixed);
    outer_columns::translate(query, &fixed);
    inlined_tables::translate(query);
    decimals::unsigned_zeros(query);
    let (reads_types, compared) = (type_kinds::reads_types(query), HashSet::new());
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

impl Translator<'_> {
    fn expression(&mut self, place: &mut Expr) -> Result<()> {
        match place {
            Expr::Value(value) => literals::finite(&value.value)?,
            Expr::Collate { expr, .. } => *place = take(expr),
            Expr::BinaryOp { left, op, right } => {
                if matches!(op, BinaryOperator::And | BinaryOperator::Or) {
                    literals::truth(left)?;
                    literals::truth(right)?;
                }
                row_values::beside_query(left, right, self.aggregates)?;
                arrays::concatenated(place, self.catalog)?;
                binary_operators::translate(place)?;
            }
            Expr::InList { expr, list, negated } => match row_values::among_rows(expr, list, *negated)? {
                Some(found) => *place = found,
                None => operators::known_items(place)?,
            },
            Expr::CompoundFieldAccess { .. } => row_fields::translate(place),
            Expr::UnaryOp { op: UnaryOperator::Not, expr } => literals::truth(expr)?,
            Expr::UnaryOp { .. } => operators::unary(place),
            Expr::IsNull(_) | Expr::IsNotNull(_) => row_values::null(place)?,
            Expr::AtTimeZone { timestamp, time_zone } => {
                *place = call("at_time_zone", vec![take(timestamp), take(time_zone)]);
            }
            Expr::SimilarTo { .. } => patterns::similar(place)?,
            Expr::IsNormalized { .. } => return Err(unsupported(functions::NORMAL_FORMS)),
            Expr::IsDistinctFrom(..) | Expr::IsNotDistinctFrom(..) => operators::unlike(place),
            Expr::TypedString(_) => literals::typed(place)?,
            Expr::Cast { .. } => self.typed_cast(place)?,
            Expr::Identifier(name) if is_bare_function(name) => {
                *place = self.about_session(&normal(name), &[])?.unwrap_or_else(|| take(place));
            }
            Expr::Function(_) => self.function(place)?,
            Expr::Like { .. } | Expr::ILike { .. } => like(place)?,
            Expr::Interval(interval) => {
                if let Some(found) = interval_fields::of_literal(interval)? {
                    *place = found;
                } else if let Expr::Value(value) = &mut *interval.value
                    && interval.leading_field.is_none()
                    && let Value::SingleQuotedString(text) = &mut value.value
                    && let Some(whole) = worded(text)
                {
                    *text = whole;
                }
            }
            Expr::Position { .. } => bytes::translate(place)?,
            Expr::Trim { expr, trim_what: Some(what), .. } => bytes::read_text_operand(expr, what)?,
            Expr::Overlay { .. } => bytes::overlaid(place)?,
            Expr::Substring { .. } => substring(place)?,
            Expr::Extract { field, expr, .. } => {
                if let Some(found) = times::extract(field, expr)? {
                    *place = found;
                }
            }
            Expr::AnyOp { .. } | Expr::AllOp { .. } => {
                row_values::lone(place)?;
                quantified_comparisons::apart(place)?;
            }
            Expr::Between { .. } => operators::symmetric(place)?,
            Expr::InSubquery { .. } => {
                row_values::lone(place)?;
                quantified_comparisons::behind_name(place)?;
            }
            Expr::Exists { subquery, negated } if empty_queries::is_empty(subquery) => *place = boolean(*negated),
            Expr::Exists { subquery, .. } => exists::whole(subquery)?,
            Expr::Subquery(query) => {
                equality_lookups::unlimited(query, self.aggregates);
                if empty_queries::is_empty(query) {
                    *place = Expr::Value(Value::Null.into());
                } else if self.is_look_up(query) {
                    // One row of the catalog at most has a key, so that the greatest value is the value.
                    aggregated(query, "max")?;
                } else if !self.compared.remove(&std::ptr::from_ref(&**query)) {
                    match equality_lookups::translate(query, self.aggregates)? {
                        Some(equality_lookups::LookUp::List) => *place = call("sole", vec![take(place)]),
                        Some(equality_lookups::LookUp::Value) => {}
                        None => equality_lookups::may_be_null(query, self.aggregates),
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Translates a cast: what is written out gets the form of the type first.
    fn typed_cast(&mut self, place: &mut Expr) -> Result<()> {
        let Expr::Cast { expr, data_type, .. } = place else { return Ok(()) };
        times::complete_items(data_type, expr)?;
        let found = match times::special(data_type, expr)? {
            None => interval_fields::of_cast(data_type, expr)?,
            found => found,
        };
        if let Some(found) = found {
            *place = found;
            return Ok(());
        }
        if let Expr::Value(value) = &mut **expr {
            times::complete(data_type, &mut value.value);
        }
        let is_document = json_operators::is_of_column(data_type, expr);
        literals::formed(data_type, expr)?;
        if let Some(names) = computed_names::named_list(data_type, expr) {
            *place = names;
            return Ok(());
        }
        self.cast(place)?;
        if is_document {
            *place = call("json_normal", vec![take(place)]);
        }
        Ok(())
    }

    /// Whether a scalar subquery looks a row of the catalog up: DataFusion wants it to aggregate.
    fn is_look_up(&self, query: &Query) -> bool {
        let SetExpr::Select(select) = &*query.body else { return false };
        let about = |factor: &TableFactor| match factor {
            TableFactor::Table { name, args: None, .. } => Catalog::is_about(&empty_queries::named(name)),
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
            && empty_queries::is_ungrouped(select);
        plain && from.peek().is_some() && from.all(about) && !empty_queries::aggregates(select, self.aggregates)
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

/// `substring` by places, by a regular expression, or by a pattern of `SIMILAR TO`.
fn substring(place: &mut Expr) -> Result<()> {
    match place {
        // `substring(text from 'pattern')`: the first group that is found, or all of it.
        Expr::Substring { expr: within, substring_from: Some(pattern), substring_for: None, .. }
            if patterns::is_text(pattern) =>
        {
            patterns::regular(pattern)?;
            let found = function_rewrites::matched(vec![take(within), take(pattern)]);
            *place = call("array_element", vec![found, number(1)]);
        }
        Expr::Substring { expr: within, substring_from: Some(from), substring_for: None, shorthand: false, .. }
            if patterns::may_be_text(from) =>
        {
            *place = call("substring_from", vec![take(within), take(from)]);
        }
        Expr::Substring { expr: within, substring_from: Some(pattern), substring_for: Some(escape), .. }
            if patterns::is_text(pattern) && patterns::is_text(escape) =>
        {
            *place = patterns::similar_part(take(within), pattern, escape)?;
        }
        Expr::Substring { substring_from, substring_for, .. } => {
            for place in [substring_from, substring_for].into_iter().flatten() {
                data_types::widened(place);
            }
            bytes::translate(place)?;
        }
        _ => {}
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
        let typed = recursive_terms::type_nulls(query);
        empty_queries::fold(query, self.aggregates);
        hidden_sort_keys::ordered(query, self.aggregates);
        set_returning_functions::typed(query);
        let cast = casts::translate(query, self.aggregates);
        self.add_common(query);
        let done = typed.and(cast).and_then(|()| natural_joins::translate(query, &self.columns()));
        json_functions::rows_in_order(query, &self.columns());
        let done = done.and_then(|()| windows::written_out(query)).and_then(|()| with_ties::translate(query));
        let done = done.and_then(|()| values::translate(query));
        documents::in_values(query);
        let done = done.and_then(|()| queries::translate(query)).and_then(|()| subquery_limits::translate(query));
        let done = done.and_then(|()| using_columns::translate(query));
        let making = laterals::LateralContext { known: self.columns(), is_aggregate: self.aggregates };
        let done = done.and_then(|()| laterals::translate_groups(query, making));
        done.map_or_else(refused, ControlFlow::Continue)
    }

    fn post_visit_query(&mut self, query: &mut Query) -> ControlFlow<Self::Break> {
        recursive_terms::mark_outputs(query);
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        let making = laterals::LateralContext { known: self.columns(), is_aggregate: self.aggregates };
        let done = literals::conditions(select).and_then(|()| windows::none_in_where(select));
        let done = done.and_then(|()| outputs::no_texts(select));
        let done = done.and_then(|()| json_records::translate(select));
        // What rows are searched in may read the row at hand, which becomes a join.
        let done = done.and_then(|()| row_values::in_conditions(select, self.columns(), self.aggregates));
        let done = done.and_then(|()| laterals::translate(select, making));
        if let Err(error) = done.and_then(|()| groupings::translate(select)) {
            return refused(error);
        }
        queries::ungroup(select, self.aggregates);
        if let Err(error) = collecting_aggregates::apart(select) {
            return refused(error);
        }
        json_functions::rows_in(select, &self.columns());
        ControlFlow::Continue(())
    }

    fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<Self::Break> {
        set_returning_functions::joined(select);
        joined_calls::first_alone(select);
        divisors::checked(select);
        let done = quantified_comparisons::elsewhere(select).and_then(|()| exists::in_outputs(select, self.aggregates));
        done.map_or_else(refused, ControlFlow::Continue)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        table_factors::all_named(factor, self.columns());
        if let TableFactor::Table { name, args: Some(_), .. } = &*factor
            && let Some(name) = bare(name)
            && let Err(error) = functions::none_of_records(&name)
        {
            return refused(error);
        }
        ControlFlow::Continue(())
    }

    fn post_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<Self::Break> {
        let is_call = matches!(factor, TableFactor::Table { args: Some(_), .. });
        table_factors::translate(factor, &self.names);
        let done = if is_call { self.about_session_in_from(factor) } else { Ok(()) };
        done.and_then(|()| queries::plain(factor)).map_or_else(refused, ControlFlow::Continue)
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
            type_kinds::fold(place);
        }
        json_operators::changed(place);
        row_values::joined(place);
        row_values::printed(place);
        quantified_comparisons::listed(place);
        computed_names::by_numbers(place);
        if let Expr::Subquery(query) = &*place
            && !self.compared.contains(&std::ptr::from_ref(&**query))
        {
            equality_lookups::unwrapped(place, self.aggregates);
        }
        let done = self.name_of_literal(place);
        let done = done
            .and_then(|()| self.named_by_text(place))
            .and_then(|()| quantified_comparisons::plain(place))
            .and_then(|()| row_values::constant(place))
            .and_then(|()| quantified_comparisons::without(place));
        if let Err(error) = done {
            return refused(error);
        }
        exists::always(place, self.aggregates);
        equality_lookups::compared(place, self.aggregates);
        if let Expr::AnyOp { right, .. } | Expr::AllOp { right, .. } = place
            && let Expr::Subquery(query) = &**right
        {
            self.compared.insert(std::ptr::from_ref(&**query));
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<Self::Break> {
        match self.expression(place) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => refused(error),
        }
    }
}

#[cfg(test)]
mod tests;
