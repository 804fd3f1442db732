//! Functions that make JSON. Aggregates become a list of the gathered rows that is converted to JSON, functions of
//! `jsonb` become those of `json`, and tables used as rows (`json_agg(t)`, `(t).x`, `SELECT t`) are replaced by their
//! columns.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    AccessExpr, BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause,
    FunctionArguments, Ident, JoinOperator, ObjectName, OrderBy, OrderByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, TableFactor, VisitorMut,
};

use super::collecting_aggregates::sorted;
use super::columns::{ColumnSources, called, factors};
use super::data_types::is_text;
use super::documents::{DocumentColumns, in_outputs, is_document_type, unmarked};
use super::expressions::{arguments, bare, boolean, call, expr, items_of_text, literal, take, text};
use super::json_operators::is_binary_type;
use super::naming::AGAIN;
use super::{empty_queries, nested_lists};
use crate::names::{alias_of, normal, parts};
use crate::statement_walk::{counts_depth, walk_mut};

/// Functions whose one argument may be a row.
const OF_ROWS: [&str; 6] = ["to_json", "to_jsonb", "row_to_json", "json_agg", "jsonb_agg", "array_to_json"];
/// Functions whose arguments may each be JSON.
const OF_VALUES: [&str; 6] = [
    "json_build_object",
    "jsonb_build_object",
    "json_build_array",
    "jsonb_build_array",
    "json_object_agg",
    "jsonb_object_agg",
];
/// The function that takes lists of texts.
const OF_TEXTS: &str = "json_object";
/// The function that makes a row, and the one that makes a row that an outer join may lack.
const ROW: &str = "json_row";
const OUTER_ROW: &str = "json_outer_row";

/// Whether a function aggregates all rows into one document.
pub(crate) fn is_aggregate(name: &str) -> bool {
    matches!(name, "json_agg" | "jsonb_agg" | "json_object_agg" | "jsonb_object_agg")
}

/// A call as the planner knows it; `None` if it needs no translation.
pub(super) fn translate(name: &str, function: &Function) -> Option<Expr> {
    let (plain, is_binary) = match name.strip_prefix("jsonb_") {
        Some(rest) => (format!("json_{rest}"), true),
        None if name == "to_jsonb" => ("to_json".to_owned(), true),
        None => (name.to_owned(), false),
    };
    if plain == OF_TEXTS {
        let made = call(OF_TEXTS, arguments(&function.args)?.into_iter().map(written_list).collect());
        return Some(if is_binary { call("json_normal", vec![made]) } else { made });
    }
    if !OF_ROWS.contains(&plain.as_str()) && !OF_VALUES.contains(&plain.as_str()) {
        return None;
    }
    let mut args = arguments(&function.args)?;
    if plain == "json_agg"
        && let [value] = args.as_slice()
        && let Some(made) = different(value, function)
    {
        return Some(call("json_normal", vec![made]));
    }
    let made = match (plain.as_str(), args.as_mut_slice()) {
        ("json_agg", [value]) if is_row(value) => call("json_rows", vec![gathered(function, take(value))]),
        ("json_agg", [value]) => {
            let item = call("to_json", vec![take(value)]);
            call("json_list", vec![gathered(function, item)])
        }
        ("json_object_agg", [key, value]) => {
            let member = call("json_member", vec![take(key), take(value)]);
            call("json_members", vec![gathered(function, member)])
        }
        ("to_json" | "row_to_json" | "array_to_json", [value]) if is_row(value) => take(value),
        ("to_json" | "array_to_json", [value]) if gathers_documents(value) => call("json_dense", vec![take(value)]),
        ("row_to_json" | "array_to_json", [value]) => call("to_json", vec![take(value)]),
        ("to_json" | "json_build_object" | "json_build_array", _) if is_binary => call(&plain, args),
        _ => return None,
    };
    Some(if is_binary { call("json_normal", vec![made]) } else { made })
}

/// A list that is written as a text is read as a list, and the pairs of a list of pairs side by side.
fn written_list(value: Expr) -> Expr {
    let lists = literal(&value).and_then(|written| nested_lists::of_text(written).ok().flatten());
    let value = lists.unwrap_or(value);
    if let Some(values) = nested_lists::flattened(&value) {
        return values;
    }
    match literal(&value).and_then(items_of_text) {
        Some(items) => call("make_array", items),
        None => value,
    }
}

/// A list with one item for each row, with the order and the filter of the aggregate call.
fn gathered(function: &Function, item: Expr) -> Expr {
    let mut gathering = function.clone();
    gathering.name = ObjectName::from(vec![Ident::new("array_agg")]);
    if let FunctionArguments::List(list) = &mut gathering.args {
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(item))];
    }
    Expr::Function(gathering)
}

/// A document of the different values that are gathered, sorted; `None` if all are, or if they are rows.
fn different(value: &Expr, function: &Function) -> Option<Expr> {
    let is_document =
        |call: &Function| bare(&call.name).is_none_or(|name| name.starts_with("json") || name == "to_json");
    if is_row(value) {
        return None;
    }
    let mut gathering = function.clone();
    gathering.name = ObjectName::from(vec![Ident::new("array_agg")]);
    let is_made = matches!(value, Expr::Function(call) if is_document(call));
    if is_made && let FunctionArguments::List(list) = &mut gathering.args {
        let item = call("to_json", vec![value.clone()]);
        let unmarked = unmarked(value);
        for clause in &mut list.clauses {
            let FunctionArgumentClause::OrderBy(keys) = clause else { continue };
            for key in keys.iter_mut().filter(|key| key.expr == *value || Some(&key.expr) == unmarked.as_ref()) {
                key.expr = item.clone();
            }
        }
        list.args = vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(item))];
    }
    Some(call(if is_made { "json_list" } else { "to_json" }, vec![sorted("array_agg", &gathering)?]))
}

/// Whether a value is a list of documents that an aggregate has made.
fn gathers_documents(value: &Expr) -> bool {
    let Expr::Function(gathering) = value else { return false };
    let is_document = |item: &Expr| match item {
        Expr::Function(call) => bare(&call.name).is_some_and(|name| name == "to_json" || name.starts_with("json_")),
        _ => false,
    };
    bare(&gathering.name).as_deref() == Some("array_agg")
        && matches!(arguments(&gathering.args).as_deref(), Some([item]) if is_document(item))
}

fn is_row(value: &Expr) -> bool {
    matches!(value, Expr::Function(call) if matches!(bare(&call.name).as_deref(), Some(ROW | OUTER_ROW)))
}

/// Replaces tables that are used as rows by their columns, and marks texts that are cast to JSON as such.
pub(super) fn rows_in(select: &mut Select, known: &ColumnSources<'_>) {
    let mut rows = Rows::of(select, known);
    let _ = walk_mut(select, &mut rows);
    for item in &mut select.projection {
        match item {
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                if let Some(expr) = rows.of_table(&normal(name)) {
                    *item = SelectItem::ExprWithAlias { expr, alias: name.clone() };
                }
            }
            SelectItem::ExprWithAlias { expr: value, .. } => {
                if let Expr::Identifier(name) = &*value
                    && let Some(row) = rows.of_table(&normal(name))
                {
                    *value = row;
                }
            }
            _ => {}
        }
    }
    in_outputs(select);
}

/// Replaces a table that rows are sorted by by its columns: as a document it would be sorted by its text.
pub(super) fn rows_in_order(query: &mut Query, known: &ColumnSources<'_>) {
    let Query { body, order_by: Some(OrderBy { kind: OrderByKind::Expressions(keys), .. }), .. } = query else {
        return;
    };
    let SetExpr::Select(select) = &**body else { return };
    if select.distinct.is_some() || !empty_queries::is_ungrouped(select) {
        return;
    }
    let rows = Rows::of(select, known);
    // An output of that name takes precedence.
    let meant = |key: &Ident| {
        let named = select.projection.iter().find(|item| alias_of(item) == Some(normal(key)));
        match named {
            Some(SelectItem::ExprWithAlias { expr: Expr::Identifier(name), .. }) => Some(normal(name)),
            Some(_) => None,
            None => Some(normal(key)),
        }
    };
    for key in std::mem::take(keys) {
        let columns = match &key.expr {
            Expr::Identifier(name) => meant(name).and_then(|name| rows.columns_of(&name)),
            _ => None,
        };
        match columns {
            Some(columns) => {
                keys.extend(columns.into_iter().map(|(_, expr)| OrderByExpr { expr, ..key.clone() }));
            }
            None => keys.push(key),
        }
    }
}

/// Whether a join can give rows in which one of the tables has none (an outer join).
fn leaves_out(operator: &JoinOperator) -> bool {
    matches!(
        operator,
        JoinOperator::Left(_)
            | JoinOperator::LeftOuter(_)
            | JoinOperator::Right(_)
            | JoinOperator::RightOuter(_)
            | JoinOperator::FullOuter(_)
    )
}

/// Whether any of these columns is not NULL; `None` if there are none.
fn is_any(columns: &[Expr]) -> Option<Expr> {
    let is_there = |column: &Expr| Expr::IsNotNull(Box::new(column.clone()));
    let either = |left, right| Expr::BinaryOp { left: Box::new(left), op: BinaryOperator::Or, right: Box::new(right) };
    columns.iter().map(is_there).reduce(either)
}

/// A table, with its columns where they are known.
struct Table {
    name: String,
    columns: Option<Vec<String>>,
}

/// Visits calls, except in subqueries, which have tables of their own.
struct Rows {
    tables: Vec<Table>,
    documents: DocumentColumns,
    /// Whether a row may lack one of the tables.
    is_outer: bool,
    depth: usize,
}

impl Rows {
    /// The tables of a select.
    fn of(select: &Select, known: &ColumnSources<'_>) -> Self {
        let table = |factor: &TableFactor| Some(Table { name: called(factor)?, columns: known.of_factor(factor) });
        let tables = select.from.iter().flat_map(factors).filter_map(table).collect();
        let mut joins = select.from.iter().flat_map(|from| &from.joins);
        let is_outer = joins.any(|join| leaves_out(&join.join_operator));
        Self { tables, documents: DocumentColumns::of(select), is_outer, depth: 0 }
    }

    /// The columns of the table of that name, and how each is called; `None` if there is none.
    fn columns_of(&self, name: &str) -> Option<Vec<(&str, Expr)>> {
        let has = |table: &Table| table.columns.as_ref().is_some_and(|columns| columns.iter().any(|c| c == name));
        // A column of that name takes precedence.
        if self.tables.iter().any(has) {
            return None;
        }
        let table = self.tables.iter().find(|table| table.name == name)?;
        let quoted = |name: &str| Ident::with_quote('"', name);
        let mut columns = Vec::new();
        for column in table.columns.as_ref()? {
            let shown = column.split_once(AGAIN).map_or(column.as_str(), |(name, _)| name);
            columns.push((shown, Expr::CompoundIdentifier(vec![quoted(&table.name), quoted(column)])));
        }
        Some(columns)
    }

    /// The row of the table of that name; `None` if there is none.
    fn of_table(&self, name: &str) -> Option<Expr> {
        let members = self.columns_of(name)?.into_iter().flat_map(|(name, mut value)| {
            self.documents.mark(&mut value);
            [text(name), value]
        });
        Some(call(if self.is_outer { OUTER_ROW } else { ROW }, members.collect()))
    }

    /// What is cast to text in the place of `t` in `t::text`: its row, NULL where there is none; `None` if it is no table.
    fn cast_to_text(&self, value: &Expr) -> Option<Expr> {
        let name = match value {
            Expr::Nested(inner) => return self.cast_to_text(inner),
            Expr::Identifier(name) => normal(name),
            _ => return None,
        };
        let columns: Vec<Expr> = self.columns_of(&name)?.into_iter().map(|(_, column)| column).collect();
        let is_there = is_any(&columns)?;
        let row = call("struct", columns);
        if self.is_outer { expr(&format!("CASE WHEN {is_there} THEN {row} END")).ok() } else { Some(row) }
    }

    /// The argument in the place of `t` in `count(t)`: all rows, or those in which the table has one.
    fn counted(&self, arg: &FunctionArgExpr) -> Option<FunctionArgExpr> {
        let name = match arg {
            FunctionArgExpr::Expr(Expr::Identifier(name)) => normal(name),
            FunctionArgExpr::QualifiedWildcard(name) => parts(name).pop()?,
            _ => return None,
        };
        self.of_table(&name)?;
        if !self.is_outer {
            return Some(FunctionArgExpr::Wildcard);
        }
        let columns: Vec<Expr> = self.columns_of(&name)?.into_iter().map(|(_, column)| column).collect();
        let is_any = is_any(&columns)?;
        Some(FunctionArgExpr::Expr(call("nullif", vec![is_any, boolean(false)])))
    }

    /// The column that `(t).x` refers to; `None` if it is none of a table.
    fn column(&self, field: &Expr) -> Option<Expr> {
        let Expr::CompoundFieldAccess { root, access_chain } = field else { return None };
        let (Expr::Nested(row), [AccessExpr::Dot(Expr::Identifier(name))]) = (&**root, access_chain.as_slice()) else {
            return None;
        };
        let Expr::Identifier(table) = &**row else { return None };
        self.of_table(&normal(table))?;
        Some(Expr::CompoundIdentifier(vec![table.clone(), name.clone()]))
    }

    /// The row that an argument refers to; `None` if it is no table.
    fn of_arg(&self, arg: &FunctionArgExpr) -> Option<Expr> {
        let of_items = |items: &[Expr]| {
            let member = |(at, item): (usize, &Expr)| [text(&format!("f{}", at + 1)), item.clone()];
            call(ROW, items.iter().enumerate().flat_map(member).collect())
        };
        match arg {
            FunctionArgExpr::Expr(Expr::Identifier(name)) => self.of_table(&normal(name)),
            FunctionArgExpr::QualifiedWildcard(name) => self.of_table(&parts(name).pop()?),
            FunctionArgExpr::Expr(Expr::Tuple(items)) => Some(of_items(items)),
            FunctionArgExpr::Expr(Expr::Function(row)) if bare(&row.name).as_deref() == Some("row") => {
                Some(of_items(&arguments(&row.args)?))
            }
            _ => None,
        }
    }
}

impl VisitorMut for Rows {
    type Break = ();

    counts_depth!();

    fn pre_visit_expr(&mut self, place: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Some(column) = self.column(place)
        {
            *place = column;
            return ControlFlow::Continue(());
        }
        if let Expr::IsNull(row) | Expr::IsNotNull(row) = &mut *place
            && self.depth == 0
            && let Expr::Identifier(name) = &**row
            && let Some(columns) = self.columns_of(&normal(name)).filter(|columns| !columns.is_empty())
        {
            **row = Expr::Tuple(columns.into_iter().map(|(_, column)| column).collect());
            return ControlFlow::Continue(());
        }
        if let Expr::Cast { expr: value, data_type, .. } = &mut *place
            && self.depth == 0
            && is_text(data_type)
            && let Some(row) = self.cast_to_text(value)
        {
            **value = row;
            return ControlFlow::Continue(());
        }
        let Expr::Function(function) = place else { return ControlFlow::Continue(()) };
        let Some(name) = bare(&function.name).filter(|_| self.depth == 0) else { return ControlFlow::Continue(()) };
        if let ("count", FunctionArguments::List(list)) = (name.as_str(), &mut function.args) {
            if list.duplicate_treatment.is_none()
                && let [FunctionArg::Unnamed(arg)] = list.args.as_mut_slice()
                && let Some(counted) = self.counted(arg)
            {
                *arg = counted;
            }
            return ControlFlow::Continue(());
        }
        let (takes_rows, takes_values) = (OF_ROWS.contains(&name.as_str()), OF_VALUES.contains(&name.as_str()));
        if !takes_rows && !takes_values {
            return ControlFlow::Continue(());
        }
        let FunctionArguments::List(list) = &mut function.args else { return ControlFlow::Continue(()) };
        for arg in &mut list.args {
            let FunctionArg::Unnamed(arg) = arg else { continue };
            if let Some(row) = self.of_arg(arg) {
                *arg = FunctionArgExpr::Expr(row);
            } else if let FunctionArgExpr::Expr(Expr::Cast { expr, data_type, .. }) = arg
                && is_document_type(data_type)
            {
                let value = call("json_value", vec![take(expr)]);
                let is_binary = is_binary_type(data_type);
                *arg = FunctionArgExpr::Expr(if is_binary { call("json_normal", vec![value]) } else { value });
            } else if let FunctionArgExpr::Expr(value) = arg {
                self.documents.mark(value);
            }
        }
        ControlFlow::Continue(())
    }
}
