//! `json_to_record(object) AS t(a int, b text)` and `json_to_recordset(list)`: members of JSON objects as columns of
//! the types in the alias.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, DataType, Expr, FunctionArg, FunctionArgExpr, Query, Select, TableAlias, TableAliasColumnDef,
    TableFactor, TableWithJoins, Value, Visitor,
};
use quiver_query::quoting::text as quoted;
use quiver_types::Result;
use serde_json::Value as Json;

use super::expressions::{bare, copied, literal, query};
use super::{nested_lists, set_returning_functions};
use crate::names::normal;
use crate::statement_walk::walk;

/// Rewrites such calls in a `FROM` as queries of the members.
///
/// # Errors
///
/// Limit exceeded: the statement would contain too many copies of the document.
pub(super) fn translate(select: &mut Select) -> Result<()> {
    select.from.iter_mut().try_for_each(all_of)
}

fn all_of(from: &mut TableWithJoins) -> Result<()> {
    apart(&mut from.relation)?;
    from.joins.iter_mut().try_for_each(|join| apart(&mut join.relation))
}

fn apart(factor: &mut TableFactor) -> Result<()> {
    if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
        return all_of(table_with_joins);
    }
    let (name, alias, args) = match factor {
        TableFactor::Table { name, alias: Some(alias), args: Some(args), .. } => (&*name, &*alias, &args.args),
        TableFactor::Function { name, alias: Some(alias), args, .. } => (&*name, &*alias, &*args),
        _ => return Ok(()),
    };
    let is_list = match bare(name).as_deref() {
        Some("json_to_record" | "jsonb_to_record") => false,
        Some("json_to_recordset" | "jsonb_to_recordset") => true,
        _ => return Ok(()),
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(document))] = args.as_slice() else {
        return Ok(());
    };
    let named = |items: &str| ("\"item\"".to_owned(), format!(" FROM {items} AS \"items\"(\"item\")"));
    let (item, from) = if is_list {
        named(&format!("json_array_elements({document})"))
    } else if has_query(document) {
        // A document with a subquery is evaluated once: nested calls of this kind would otherwise grow with the
        // columns of all calls around them.
        named(&format!("(SELECT {document})"))
    } else {
        copied(document, alias.columns.len())?;
        (document.to_string(), String::new())
    };
    let written: Option<Json> = written(document).and_then(|text| serde_json::from_str(text).ok());
    let column = |column: &TableAliasColumnDef| {
        let mut data_type = column.data_type.clone()?;
        let is_json = |data_type: &DataType| matches!(data_type, DataType::JSON | DataType::JSONB);
        let (key, name) = (quoted(&normal(&column.name)), &column.name);
        let member = match &data_type {
            DataType::Array(ArrayElemTypeDef::SquareBracket(of, _)) if is_json(of) => {
                format!("json_items(json_get({item}, {key}))")
            }
            DataType::Array(_) => {
                let depth = written.as_ref().map_or(0, |written| depth_of(written, is_list, &normal(&column.name)));
                nested_lists::deepen(&mut data_type, depth);
                format!("json_lists(json_get({item}, {key}), {})", levels_of(&data_type))
            }
            json if is_json(json) => format!("json_get({item}, {key})"),
            _ => format!("json_get_text({item}, {key})"),
        };
        Some(format!("CAST({member} AS {data_type}) AS {name}"))
    };
    let columns = alias.columns.iter().map(column).collect::<Option<Vec<_>>>().unwrap_or_default();
    // Without a column list such a call means nothing, and the planner refuses the function.
    if columns.is_empty() {
        return Ok(());
    }
    let Some(subquery) = query(&format!("SELECT {}{from}", columns.join(", "))) else { return Ok(()) };
    let alias = Some(TableAlias { columns: Vec::new(), ..alias.clone() });
    let lateral = set_returning_functions::reads_columns(document);
    *factor = TableFactor::Derived { lateral, subquery: Box::new(subquery), alias, sample: None };
    Ok(())
}

/// A document that is written out.
fn written(document: &Expr) -> Option<&str> {
    match document {
        Expr::Nested(inner) | Expr::Cast { expr: inner, .. } => written(inner),
        Expr::TypedString(typed) => match &typed.value.value {
            Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text) => Some(text),
            _ => None,
        },
        other => literal(other),
    }
}

/// How deep the arrays of a member are in a document. PostgreSQL's lists are as deep as what they are made of, whatever their
/// type says.
fn depth_of(document: &Json, is_list: bool, name: &str) -> usize {
    fn depth(value: &Json) -> usize {
        match value {
            Json::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }
    let of = |object: &Json| object.get(name).map_or(0, depth);
    match document {
        Json::Array(objects) if is_list => objects.iter().map(of).max().unwrap_or(0),
        object => of(object),
    }
}

/// How many levels of lists a type has.
fn levels_of(data_type: &DataType) -> usize {
    match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => 1 + levels_of(item),
        _ => 0,
    }
}

/// Whether an expression contains a subquery.
fn has_query(value: &Expr) -> bool {
    struct Queries;

    impl Visitor for Queries {
        type Break = ();

        fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }

    walk(value, &mut Queries).is_break()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn members_are_as_deep_as_what_is_written() {
        let record = json!({"a": [[1], [2]], "b": [], "c": 5});
        let depths = ["a", "b", "c", "d"].map(|name| depth_of(&record, false, name));
        assert_eq!(depths, [2, 1, 0, 0]);
        assert_eq!(depth_of(&json!([{"a": [1]}, {"a": [[[2]]]}, 5]), true, "a"), 3);
        for (document, expected) in [
            ("'[]'", Some("[]")),
            ("('{}'::json)", Some("{}")),
            ("json '5'", Some("5")),
            ("doc", None),
            ("doc::json", None),
        ] {
            assert_eq!(written(&expr(document).unwrap()), expected, "{document}");
        }
        let levels = |cast: &str| match expr(cast).unwrap() {
            Expr::Cast { data_type, .. } => levels_of(&data_type),
            _ => 0,
        };
        assert_eq!((levels("a::int"), levels("a::int[]"), levels("a::text[][]")), (0, 1, 2));
    }
}
