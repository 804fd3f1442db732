//! `json_to_record(object) AS t(a int, b text)` and `json_to_recordset(list)`: members as columns, of the types that their
//! names come with.

use datafusion::sql::sqlparser::ast::{
    DataType, FunctionArg, FunctionArgExpr, Select, TableAlias, TableAliasColumnDef, TableFactor,
};

use super::{bare, factors, quoted, rows};
use crate::parse::normal;

/// Puts such calls in a `FROM` as queries of the members.
pub(super) fn translate(select: &mut Select) {
    for from in &mut select.from {
        apart(&mut from.relation);
        for join in &mut from.joins {
            apart(&mut join.relation);
        }
    }
}

fn apart(factor: &mut TableFactor) {
    let (name, alias, args) = match factor {
        TableFactor::Table { name, alias: Some(alias), args: Some(args), .. } => (&*name, &*alias, &args.args),
        TableFactor::Function { name, alias: Some(alias), args, .. } => (&*name, &*alias, &*args),
        _ => return,
    };
    let is_list = match bare(name).as_deref() {
        Some("json_to_record" | "jsonb_to_record") => false,
        Some("json_to_recordset" | "jsonb_to_recordset") => true,
        _ => return,
    };
    let [FunctionArg::Unnamed(FunctionArgExpr::Expr(document))] = args.as_slice() else { return };
    let (item, from) = if is_list {
        ("\"item\"".to_owned(), format!(" FROM json_array_elements({document}) AS \"items\"(\"item\")"))
    } else {
        (document.to_string(), String::new())
    };
    let column = |column: &TableAliasColumnDef| {
        let data_type = column.data_type.as_ref()?;
        let is_json = matches!(data_type, DataType::JSON | DataType::JSONB);
        let member = if is_json { "json_get" } else { "json_get_text" };
        let (key, name) = (quoted(&normal(&column.name)), &column.name);
        Some(format!("CAST({member}({item}, {key}) AS {data_type}) AS {name}"))
    };
    let columns = alias.columns.iter().map(column).collect::<Option<Vec<_>>>().unwrap_or_default();
    // Without types it is not known what is meant, and there is no such function.
    if columns.is_empty() {
        return;
    }
    let Some(subquery) = factors::query(&format!("SELECT {}{from}", columns.join(", "))) else { return };
    let alias = Some(TableAlias { columns: Vec::new(), ..alias.clone() });
    let lateral = rows::reads_columns(document);
    *factor = TableFactor::Derived { lateral, subquery: Box::new(subquery), alias, sample: None };
}
