//! Documents that the planner takes for texts: literals that are cast to `json` or `jsonb`, columns of functions that
//! give rows of documents, and what `CASE`, `coalesce` and subqueries make of documents. Functions that make JSON would
//! put them in quotes, and clients would see texts, so that they are marked where they are outputs, values of rows that
//! are written out, or arguments of such functions.

use datafusion::sql::sqlparser::ast::{
    BinaryOperator, CastKind, DataType, Expr, Function, Ident, Query, Select, SelectItem, SetExpr, TableFactor, Value,
};
use quiver_query::functions::is_document;

use super::columns::factors;
use super::expressions::{arguments, bare, call, literal, take};
use super::json_operators::is_binary_type;
use crate::names::{normal, parts};

/// The function that marks a text that holds JSON.
const KNOWN: &str = "json_known";
/// The function of a text that may hold JSON, or not.
const READ: &str = "json_value";

/// Functions that give documents, without `json_` or `jsonb_`.
const MAKERS: [&str; 17] = [
    "agg",
    "build_array",
    "build_object",
    "concat",
    "extract_path",
    "get",
    "get_path",
    "insert",
    "normal",
    "object",
    "object_agg",
    "path_query_array",
    "path_query_first",
    "set",
    "set_lax",
    "strip_nulls",
    "value",
];

pub(super) fn is_document_type(data_type: &DataType) -> bool {
    match data_type {
        DataType::JSON | DataType::JSONB => true,
        DataType::Custom(name, _) => matches!(parts(name).pop().as_deref(), Some("json" | "jsonb")),
        _ => false,
    }
}

/// Marks an expression, if it is such a document. It has not been translated yet.
pub(super) fn mark(value: &mut Expr) {
    if let Some(marker) = marker(value) {
        let document = take(value);
        *value = call(marker, vec![document]);
    }
}

/// What was marked; `None` if it is another expression.
pub(super) fn unmarked(value: &Expr) -> Option<Expr> {
    match value {
        Expr::Function(function) if bare(&function.name).as_deref() == Some(KNOWN) => arguments(&function.args)?.pop(),
        _ => None,
    }
}

fn marker(value: &Expr) -> Option<&'static str> {
    match value {
        Expr::Nested(inner) => marker(inner),
        Expr::Cast { expr, data_type, .. } if is_document_type(data_type) => match &**expr {
            Expr::Value(_) => Some(KNOWN),
            // It is put in the form of `jsonb`, which marks it.
            _ if is_binary_type(data_type) => None,
            known if is_shown(known) => Some(KNOWN),
            _ => Some(READ),
        },
        Expr::Case { .. } | Expr::Subquery(_) => is_shown(value).then_some(KNOWN),
        Expr::Function(function) if chooses(function) => is_shown(value).then_some(KNOWN),
        _ => None,
    }
}

/// Whether a function gives one of its arguments.
fn chooses(function: &Function) -> bool {
    bare(&function.name).is_some_and(|name| matches!(name.as_str(), "coalesce" | "nullif" | "greatest" | "least"))
}

/// Whether an expression shows that it is a document.
fn is_shown(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_shown(inner),
        Expr::Cast { data_type, .. } => is_document_type(data_type),
        Expr::TypedString(typed) => is_document_type(&typed.data_type),
        Expr::BinaryOp { op: BinaryOperator::Arrow | BinaryOperator::HashArrow, .. } => true,
        Expr::Function(function) if chooses(function) => {
            arguments(&function.args).is_some_and(|args| is_choice(args.iter()))
        }
        Expr::Function(function) => bare(&function.name).is_some_and(|name| makes(&name)),
        Expr::Case { conditions, else_result, .. } => {
            is_choice(conditions.iter().map(|when| &when.result).chain(else_result.as_deref()))
        }
        Expr::Subquery(query) => output_of(query).is_some_and(is_shown),
        _ => false,
    }
}

/// Whether one of several values shows that all are documents. A literal that is no JSON says that they are texts.
fn is_choice<'v>(values: impl Iterator<Item = &'v Expr>) -> bool {
    let mut is_any = false;
    for value in values {
        if literal(value).is_some_and(|written| !is_document(written)) {
            return false;
        }
        is_any |= is_shown(value);
    }
    is_any
}

fn makes(name: &str) -> bool {
    match name.strip_prefix("jsonb_").or_else(|| name.strip_prefix("json_")) {
        Some(rest) => MAKERS.contains(&rest),
        None => matches!(name, "to_json" | "to_jsonb" | "row_to_json" | "array_to_json"),
    }
}

/// The one output of a query; `None` if it has several.
fn output_of(query: &Query) -> Option<&Expr> {
    let SetExpr::Select(select) = &*query.body else { return None };
    match select.projection.as_slice() {
        [SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }] => Some(value),
        _ => None,
    }
}

/// Columns of documents: those of `json_array_elements` and `json_each`, by table and name.
pub(super) struct DocumentColumns(Vec<(String, String)>);

impl DocumentColumns {
    /// Those of the tables of a select.
    pub(super) fn of(select: &Select) -> Self {
        let mut found = Vec::new();
        for factor in select.from.iter().flat_map(factors) {
            let (name, alias) = match factor {
                TableFactor::Table { name, alias, args: Some(_), .. } | TableFactor::Function { name, alias, .. } => {
                    (name, alias.as_ref())
                }
                _ => continue,
            };
            let Some(function) = bare(name) else { continue };
            let place = match function.as_str() {
                "json_array_elements" | "jsonb_array_elements" => 0,
                "json_each" | "jsonb_each" => 1,
                _ => continue,
            };
            let table = alias.map_or_else(|| function.clone(), |alias| normal(&alias.name));
            let named = alias.and_then(|alias| alias.columns.get(place)).map(|column| normal(&column.name));
            // The only column of a function is also called as the function is.
            if place == 0 && named.is_none() {
                found.push((table.clone(), table.clone()));
            }
            found.push((table, named.unwrap_or_else(|| "value".to_owned())));
        }
        Self(found)
    }

    /// Whether an expression is one of them.
    pub(super) fn has(&self, value: &Expr) -> bool {
        match value {
            Expr::Nested(inner) => self.has(inner),
            Expr::Identifier(name) => self.0.iter().any(|(_, column)| *column == normal(name)),
            Expr::CompoundIdentifier(names) => match names.as_slice() {
                [table, name] => self.0.contains(&(normal(table), normal(name))),
                _ => false,
            },
            _ => false,
        }
    }

    /// Marks an expression, if it is one of them, or a document otherwise.
    pub(super) fn mark(&self, value: &mut Expr) {
        if self.has(value) {
            let document = take(value);
            *value = call(KNOWN, vec![document]);
        } else {
            mark(value);
        }
    }
}

/// Marks the documents among the outputs of a select.
pub(super) fn in_outputs(select: &mut Select) {
    let columns = DocumentColumns::of(select);
    // A `DISTINCT` is sorted by its outputs as they are written.
    let is_distinct = select.distinct.is_some();
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(value) = item
            && columns.has(value)
            && let Some(name) = last_name(value)
            && !is_distinct
        {
            *item = SelectItem::ExprWithAlias { expr: call(KNOWN, vec![take(value)]), alias: name };
            continue;
        }
        let (SelectItem::UnnamedExpr(value) | SelectItem::ExprWithAlias { expr: value, .. }) = item else { continue };
        if !is_distinct || matches!(&*value, Expr::Cast { expr, .. } if matches!(&**expr, Expr::Value(_))) {
            columns.mark(value);
        }
    }
}

/// The name of a column.
fn last_name(value: &Expr) -> Option<Ident> {
    match value {
        Expr::Nested(inner) => last_name(inner),
        Expr::Identifier(name) => Some(name.clone()),
        Expr::CompoundIdentifier(names) => names.last().cloned(),
        _ => None,
    }
}

/// Marks the documents among rows that are written out, and reads the literals of their columns as documents, too: for the
/// planner all values of a column are marked, or none.
pub(super) fn in_values(query: &mut Query) {
    let SetExpr::Values(values) = &mut *query.body else { return };
    let width = values.rows.first().map_or(0, |row| row.len());
    for column in 0..width {
        let mut items = values.rows.iter().filter_map(|row| row.get(column));
        let data_type = match items.find(|item| is_shown(item)) {
            Some(Expr::Cast { data_type, .. }) => data_type.clone(),
            Some(_) => DataType::JSONB,
            None => continue,
        };
        for item in values.rows.iter_mut().filter_map(|row| row.get_mut(column)) {
            if is_open(item) {
                let (expr, data_type) = (Box::new(take(item)), data_type.clone());
                *item = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
            }
            mark(item);
        }
    }
}

/// Whether a literal takes the type of the values beside it.
fn is_open(item: &Expr) -> bool {
    matches!(item, Expr::Value(value) if !matches!(value.value, Value::Number(..) | Value::Boolean(_)))
}

#[cfg(test)]
mod tests {
    use super::super::expressions::expr;
    use super::*;

    fn marked(written: &str) -> String {
        let mut value = expr(written).unwrap();
        mark(&mut value);
        value.to_string()
    }

    #[test]
    fn documents_are_marked() {
        for (written, marker) in [
            ("'{}'::jsonb", KNOWN),
            ("NULL::JSON", KNOWN),
            ("(a::JSON)", READ),
            ("a::pg_catalog.json", READ),
            ("(a -> 'b')::JSON", KNOWN),
            ("coalesce(a -> 'b', '{}')", KNOWN),
            ("nullif(to_jsonb(a), '1')", KNOWN),
            ("CASE WHEN a THEN '{}'::JSONB END", KNOWN),
            ("CASE WHEN a THEN b ELSE json_build_object('a', 1) END", KNOWN),
            ("(SELECT json_agg(x) FROM t)", KNOWN),
            ("(SELECT (a #> '{b}') AS b FROM t)", KNOWN),
        ] {
            assert_eq!(marked(written).to_lowercase(), format!("{marker}({written})").to_lowercase());
        }
    }

    #[test]
    fn texts_and_what_marks_itself_stay() {
        for same in [
            "a",
            "a::JSONB",
            "a::TEXT",
            "'{}'",
            "to_jsonb(a)",
            "coalesce(a, '{}')",
            "coalesce(a -> 'b', 'none')",
            "coalesce(a ->> 'b', '{}')",
            "jsonb_typeof(a)",
            "(SELECT jsonb_pretty(a) FROM t)",
            "(SELECT a -> 'b', c FROM t)",
            "CASE WHEN a -> 'b' = '1' THEN 'x' END",
        ] {
            assert_eq!(marked(same), same);
        }
    }
}
