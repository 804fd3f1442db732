//! Functions of PostgreSQL that return several rows: each becomes a function that returns a list, which is unnested.

use std::collections::HashSet;

use datafusion::sql::sqlparser::ast::{
    Array, CastKind, DataType, Expr, FunctionArg, FunctionArgExpr, GroupByExpr, Ident, JoinConstraint, JoinOperator,
    ObjectName, Query, Select, SelectItem, SetExpr, TableAlias, TableAliasColumnDef, TableFactor, TableFunctionArgs,
    TimezoneInfo, Value,
};
use quiver_query::durations::worded;
use quiver_query::quoting::text as quoted;

use super::expressions::{arguments, bare, call, expr, plain_arguments, take, value_of};
use super::{nested_lists, number_series, patterns, times};
use crate::member_functions::MEMBERS;
use crate::names::normal;
use crate::statement_walk::{change_outside_subqueries, has_expression};

pub(super) use crate::member_functions::{MEMBER, gives_members};

/// Names of the functions, of those that return lists, and of their column; `None` if the column is named after the
/// alias.
const ROWS: [(&str, &str, Option<&str>); 11] = [
    ("regexp_split_to_table", "regexp_split_to_array", None),
    ("regexp_matches", "regexp_groups", None),
    ("string_to_table", "string_to_array", None),
    ("generate_subscripts", "generate_subscripts", None),
    ("json_array_elements", "json_items", Some("value")),
    ("jsonb_array_elements", "json_items", Some("value")),
    ("json_array_elements_text", "json_items_text", Some("value")),
    ("jsonb_array_elements_text", "json_items_text", Some("value")),
    ("json_object_keys", "json_keys", None),
    ("jsonb_object_keys", "json_keys", None),
    ("jsonb_path_query", "jsonb_path_items", None),
];

fn of(name: &str) -> Option<(&'static str, Option<&'static str>)> {
    ROWS.iter().find(|(known, ..)| *known == name).map(|(_, list, column)| (*list, *column))
}

/// Whether a function returns several rows.
pub(super) fn gives_rows(name: &str) -> bool {
    matches!(name, "unnest" | "generate_series") || of(name).is_some()
}

/// Whether a function has a column `value` in PostgreSQL, too, which its alias does not rename.
pub(super) fn gives_value(name: &str) -> bool {
    gives_members(name) || of(name).is_some_and(|(_, column)| column.is_some())
}

/// A call among outputs as an unnested list; `None` if the function does not return rows.
pub(super) fn output(name: &str, args: &[Expr]) -> Option<Expr> {
    if name == "generate_series" && matches!(args.len(), 2 | 3) {
        if let Some(list) = number_series::of_fractions(args) {
            return Some(call("unnest", vec![list]));
        }
        let mut args = args.to_vec();
        bounds(&mut args.iter_mut().collect::<Vec<_>>());
        return Some(call("unnest", vec![call(name, args)]));
    }
    // The argument may be a function of rows, which has become an unnested list already.
    if name == "unnest" {
        let [inner] = args else { return None };
        if list_of(inner).is_some() {
            return Some(inner.clone());
        }
        return nested_lists::flattened(inner).map(|values| call("unnest", vec![values]));
    }
    let (list, _) = of(name)?;
    Some(call("unnest", vec![listed(list, in_normal_form(name, args.to_vec()))]))
}

/// The lists whose items a function returns side by side, with the names of their columns where these are not the
/// function's: one of one item, if it does not return rows.
pub(super) fn lists_of(name: &str, args: Vec<Expr>) -> Vec<(Option<&'static str>, Expr)> {
    if name == "unnest" {
        return args.into_iter().map(|list| (None, list)).collect();
    }
    if let Some((_, values)) = MEMBERS.iter().find(|(known, _)| *known == name)
        && let [object] = args.as_slice()
    {
        let read = object_of(name, object);
        return vec![(Some("key"), call("json_keys", vec![read.clone()])), (Some("value"), call(values, vec![read]))];
    }
    let column = of(name).and_then(|(_, column)| column);
    let list = output(name, &args).as_ref().and_then(list_of);
    vec![(column, list.unwrap_or_else(|| call("make_array", vec![call(name, args)])))]
}

/// An object whose members are read. Maps are read as objects.
fn object_of(function: &str, object: &Expr) -> Expr {
    let read = call("json_value", vec![object.clone()]);
    if function.starts_with("jsonb") { call("json_normal", vec![read]) } else { read }
}

/// Arguments of a function. A document that is a literal or a cast is normalized for functions of `jsonb`; maps have names of
/// members, too.
fn in_normal_form(function: &str, mut args: Vec<Expr>) -> Vec<Expr> {
    let Some(document) = args.first_mut() else { return args };
    let of_keys = function.ends_with("_object_keys");
    let is_known = patterns::is_written(document) || matches!(document, Expr::Cast { .. });
    if is_known && (function.starts_with("jsonb_array_elements") || function == "jsonb_object_keys") {
        *document = call("json_normal", vec![take(document)]);
    } else if !is_known && of_keys {
        *document = call("json_value", vec![take(document)]);
    }
    args
}

/// The list whose items a function returns.
fn listed(list: &str, args: Vec<Expr>) -> Expr {
    if list == "generate_subscripts"
        && let [of, dimension, order @ ..] = args.as_slice()
        && let Some(found) = subscripts(of, dimension, order)
    {
        return found;
    }
    call(list, args)
}

/// The subscripts of a list, from the last one on where a third argument says so.
fn subscripts(of: &Expr, dimension: &Expr, order: &[Expr]) -> Option<Expr> {
    let length = format!("coalesce(CAST(array_length({of}, {dimension}) AS BIGINT), 0)");
    let (forward, backward) = (format!("generate_series(1, {length})"), format!("generate_series({length}, 1, -1)"));
    let sql = match order {
        [] => forward,
        [Expr::Value(value)] if value.value == Value::Boolean(false) => forward,
        [Expr::Value(value)] if value.value == Value::Boolean(true) => backward,
        [turned] => format!("CASE WHEN {turned} THEN {backward} WHEN NOT ({turned}) THEN {forward} END"),
        _ => return None,
    };
    expr(&sql).ok()
}

/// Casts a step that is written as a text to an interval.
fn as_step(step: &mut Expr) {
    if let Expr::Value(value) = step
        && let Value::SingleQuotedString(text) = &value.value
        && text.trim().parse::<f64>().is_err()
    {
        let text = worded(text).unwrap_or_else(|| text.clone());
        if let Ok(interval) = expr(&format!("INTERVAL {}", quoted(&text))) {
            *step = interval;
        }
    }
}

/// Dates as bounds of a series become timestamps at midnight, with a time zone unless the other bound has none.
fn moments(first: &mut Expr, last: &mut Expr) {
    let zone = if times::is_reading(first) || times::is_reading(last) {
        TimezoneInfo::None
    } else {
        TimezoneInfo::WithTimeZone
    };
    for end in [first, last] {
        if times::is_date(end) {
            let (expr, data_type) = (Box::new(take(end)), DataType::Timestamp(None, zone));
            *end = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
        }
    }
}

/// Gives the bounds and the step of a series their types: a text gets the type of the other bound.
fn bounds(args: &mut [&mut Expr]) {
    if let [first, last, ..] = args {
        alike(first, last);
        alike(last, first);
    }
    if let [first, last, step] = args {
        moments(first, last);
        as_step(step);
    }
}

/// Like [`bounds`] for a call in a `FROM`.
pub(super) fn step_in(args: &mut [FunctionArg]) {
    let args = args.iter_mut().map(|arg| match arg {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr),
        _ => None,
    });
    if let Some(mut args) = args.collect::<Option<Vec<&mut Expr>>>() {
        bounds(&mut args);
    }
}

/// Casts texts among `VALUES` to the date or time type that another row gives their column.
pub(super) fn typed(query: &mut Query) {
    let SetExpr::Values(values) = &mut *query.body else { return };
    let width = values.rows.first().map_or(0, |row| row.len());
    let is_cast = |item: &&Expr| matches!(item, Expr::Cast { .. } | Expr::TypedString(_));
    for column in 0..width {
        let mut items = values.rows.iter().filter_map(|row| row.get(column));
        let Some(cast) = items.find(is_cast).cloned() else { continue };
        for row in &mut values.rows {
            if let Some(item) = row.get_mut(column) {
                alike(&cast, item);
            }
        }
    }
}

/// Casts a text to the date or time type that a cast gives another value.
fn alike(cast: &Expr, other: &mut Expr) {
    let data_type = match cast {
        Expr::Cast { data_type, .. } => data_type,
        Expr::TypedString(typed) => &typed.data_type,
        _ => return,
    };
    if patterns::is_written(other) && matches!(data_type, DataType::Timestamp(..) | DataType::Date) {
        let (data_type, mut expr) = (data_type.clone(), Box::new(take(other)));
        if let Expr::Value(value) = &mut *expr {
            times::complete(&data_type, &mut value.value);
        }
        *other = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
    }
}

/// The list whose items a query without tables returns: `ARRAY(SELECT generate_series(1, 3))` needs no aggregate.
pub(super) fn items_of(query: &Query) -> Option<Expr> {
    let SetExpr::Select(select) = &*query.body else { return None };
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && select.from.is_empty()
        && select.selection.is_none()
        && select.distinct.is_none()
        && select.having.is_none()
        && matches!(&select.group_by, GroupByExpr::Expressions(keys, _) if keys.is_empty());
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(items) | SelectItem::ExprWithAlias { expr: items, .. }] if is_plain => list_of(items),
        _ => None,
    }
}

/// The list that a call unnests; `None` if it is another call.
fn list_of(items: &Expr) -> Option<Expr> {
    let Expr::Function(call) = items else { return None };
    if bare(&call.name).as_deref() != Some("unnest") {
        return None;
    }
    match arguments(&call.args)?.as_slice() {
        [list] => Some(list.clone()),
        _ => None,
    }
}

/// Lists in a `FROM` are unnested there: lists that were already unnested as outputs become plain lists again.
pub(super) fn undo_unnesting(lists: &mut [Expr]) {
    for list in lists {
        if let Some(whole) = list_of(list) {
            *list = whole;
        }
    }
}

/// Rewrites `ARRAY[…]` in a `FROM`, in which the planner does not resolve columns of earlier tables.
pub(super) fn arrays_as_calls(lists: &mut [Expr]) {
    for list in lists.iter_mut().filter(|list| reads_columns(list)) {
        // The closure never fails.
        let _ = change_outside_subqueries(list, |part| {
            if let Expr::Array(Array { elem, .. }) = part {
                let items = std::mem::take(elem);
                *part = call("make_array", items);
            }
            Ok(())
        });
    }
}

/// Lists that are unnested side by side in a `FROM`.
pub(super) fn unnest(alias: Option<TableAlias>, array_exprs: Vec<Expr>, with_ordinality: bool) -> TableFactor {
    TableFactor::UNNEST { alias, array_exprs, with_offset: false, with_offset_alias: None, with_ordinality }
}

/// A function in a `FROM`.
pub(super) fn table_function(
    name: ObjectName,
    args: Vec<FunctionArg>,
    alias: Option<TableAlias>,
    with_ordinality: bool,
) -> TableFactor {
    TableFactor::Table {
        name,
        alias,
        args: Some(TableFunctionArgs { args, settings: None }),
        with_hints: Vec::new(),
        version: None,
        with_ordinality,
        partitions: Vec::new(),
        json_path: None,
        sample: None,
        index_hints: Vec::new(),
    }
}

/// Rewrites `pg_catalog.unnest(…)` in a `FROM` as `unnest(…)`: with a schema, the parser takes it for any function.
pub(super) fn unqualified(factor: &mut TableFactor) {
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } = factor else { return };
    if bare(name).as_deref() != Some("unnest") {
        return;
    }
    let Some(array_exprs) = args.args.iter_mut().map(|arg| value_of(arg).cloned()).collect() else { return };
    *factor = unnest(alias.take(), array_exprs, *with_ordinality);
}

/// Removes `LATERAL` before `unnest(…)`: for the planner a list in a `FROM` may always read earlier tables.
pub(super) fn lateral(factor: &mut TableFactor) {
    let TableFactor::Function { lateral: true, name, args, with_ordinality, alias } = factor else { return };
    let Some(function) = bare(name) else { return };
    let (args, alias, with_ordinality) = (std::mem::take(args), alias.take(), *with_ordinality);
    let lists = match (function.as_str(), plain_arguments(&args)) {
        ("unnest", Some(lists)) => lists,
        // As a table function, the series would take only constants.
        ("generate_series", Some(mut args)) => {
            bounds(&mut args.iter_mut().collect::<Vec<_>>());
            vec![call("generate_series", args)]
        }
        _ => {
            *factor = table_function(name.clone(), args, alias, with_ordinality);
            return;
        }
    };
    let name = || Ident::with_quote('"', function.clone());
    let named = || TableAlias { explicit: true, name: name(), columns: Vec::new(), at: None };
    *factor = unnest(Some(alias.unwrap_or_else(named)), lists, with_ordinality);
}

/// `generate_series(1, t.n)` in a `FROM` as an unnested list: the table function takes only constants, and cannot
/// number its rows.
pub(super) fn series(factor: &mut TableFactor) {
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } = factor else { return };
    if bare(name).as_deref() != Some("generate_series") {
        return;
    }
    step_in(&mut args.args);
    let Some(bounds) = plain_arguments(&args.args) else { return };
    let fractions = number_series::of_fractions(&bounds);
    if fractions.is_none() && !*with_ordinality && !bounds.iter().any(reads_columns) {
        return;
    }
    let word = || Ident::with_quote('"', "generate_series");
    let named = || TableAlias { explicit: true, name: word(), columns: Vec::new(), at: None };
    let list = fractions.unwrap_or_else(|| call("generate_series", bounds));
    *factor = unnest(Some(alias.take().unwrap_or_else(named)), vec![list], *with_ordinality);
}

pub(super) fn reads_columns(value: &Expr) -> bool {
    has_expression(value, |part| matches!(part, Expr::Identifier(_) | Expr::CompoundIdentifier(_)))
}

/// Names the columns of lists that are unnested side by side, and implements `WITH ORDINALITY` as one more list of
/// the numbers from 1.
pub(super) fn numbered(factor: &mut TableFactor) {
    let TableFactor::UNNEST { alias, array_exprs, with_ordinality, .. } = factor else { return };
    let (count, is_numbered) = (array_exprs.len(), *with_ordinality);
    if count == 1 && !is_numbered {
        return;
    }
    let word = |word: &str| Ident::with_quote('"', word);
    let named = || TableAlias { explicit: true, name: word("unnest"), columns: Vec::new(), at: None };
    let alias = alias.get_or_insert_with(named);
    let column = |name: Ident| TableAliasColumnDef { name, data_type: None };
    if count == 1 && alias.columns.is_empty() {
        alias.columns.push(column(alias.name.clone()));
    }
    for at in alias.columns.len()..count {
        let name = if at == 0 { word("unnest") } else { word(&format!("unnest_{}", at + 1)) };
        alias.columns.push(column(name));
    }
    if !is_numbered {
        return;
    }
    if alias.columns.len() == count {
        alias.columns.push(column(word("ordinality")));
    }
    let lengths: Vec<String> = array_exprs.iter().map(|list| format!("array_length({list})")).collect();
    let longest = if count == 1 { lengths.concat() } else { format!("greatest({})", lengths.join(", ")) };
    // If the lists cannot be numbered, the clause stays and the planner refuses it.
    if let Ok(numbers) = expr(&format!("generate_series(1, CAST({longest} AS BIGINT))")) {
        array_exprs.push(numbers);
        *with_ordinality = false;
    }
}

/// Rewrites `JOIN unnest(list) ON true` as a cross join. In a left join, an empty list gets one item that is NULL.
pub(super) fn joined(select: &mut Select) {
    for join in select.from.iter_mut().flat_map(|from| &mut from.joins) {
        let TableFactor::UNNEST { array_exprs, .. } = &mut join.relation else { continue };
        let (constraint, keeps_left) = match &join.join_operator {
            JoinOperator::Join(constraint) | JoinOperator::Inner(constraint) => (constraint, false),
            JoinOperator::Left(constraint) | JoinOperator::LeftOuter(constraint) => (constraint, true),
            _ => continue,
        };
        if !matches!(constraint, JoinConstraint::On(Expr::Value(value)) if value.value == Value::Boolean(true)) {
            continue;
        }
        if keeps_left {
            // Shorter lists are padded, so it is enough that one list has an item.
            let Some(list) = array_exprs.first_mut() else { continue };
            let whole = take(list);
            let sql = format!("CASE WHEN cardinality({whole}) > 0 THEN {whole} ELSE make_array(NULL) END");
            *list = expr(&sql).unwrap_or(whole);
        }
        join.join_operator = JoinOperator::CrossJoin(JoinConstraint::None);
    }
}

/// `json_each(object)` in a `FROM` as two lists that are unnested side by side. Returns whether it was one.
pub(super) fn members(factor: &mut TableFactor) -> bool {
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } = factor else { return false };
    let Some(function) = bare(name) else { return false };
    let Some((_, values)) = MEMBERS.iter().find(|(known, _)| *known == function) else { return false };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(object))] = args.args.as_slice() else { return false };
    let read = object_of(&function, object);
    let word = |word: &str| Ident::with_quote('"', word);
    let named = || TableAlias { explicit: true, name: word(&function), columns: Vec::new(), at: None };
    let mut alias = alias.take().unwrap_or_else(named);
    let column = |name: &str| TableAliasColumnDef { name: word(name), data_type: None };
    let given = alias.columns.len();
    alias.columns.extend(MEMBER.into_iter().skip(given).map(column));
    *factor =
        unnest(Some(alias), vec![call("json_keys", vec![read.clone()]), call(values, vec![read])], *with_ordinality);
    true
}

/// Replaces a call in a `FROM` by its unnested list. Returns whether the function returns rows. `names` are the
/// column names that the statement uses: an alias among them names the column.
pub(super) fn table(factor: &mut TableFactor, names: &HashSet<String>) -> bool {
    let TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } = factor else { return false };
    let Some(function) = bare(name) else { return false };
    let Some((list, column)) = of(&function) else { return false };
    let Some(args) = plain_arguments(&args.args) else { return false };
    let word = |word: &str| Ident::with_quote('"', word);
    let named = || TableAlias { explicit: true, name: word(&function), columns: Vec::new(), at: None };
    let mut alias = alias.take().unwrap_or_else(named);
    if alias.columns.is_empty() {
        let is_spoken_of = |column: &str| !names.contains(&normal(&alias.name)) || names.contains(column);
        let column = column.filter(|column| is_spoken_of(column));
        let name = column.map_or_else(|| alias.name.clone(), word);
        alias.columns.push(TableAliasColumnDef { name, data_type: None });
    }
    *factor = unnest(Some(alias), vec![listed(list, in_normal_form(&function, args))], *with_ordinality);
    true
}
