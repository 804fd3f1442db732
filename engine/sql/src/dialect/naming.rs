//! Names of outputs: PostgreSQL's defaults where the statement gives none, and numbers for outputs of the same name.

use std::collections::{HashMap, HashSet};

use datafusion::sql::sqlparser::ast::{
    AccessExpr, ArrayElemTypeDef, BinaryOperator, DataType, Expr, Function, Ident, Query, SelectItem, SetExpr,
    TimezoneInfo, TrimWhereField,
};

use super::expressions::arguments;
use crate::models::members::is_measure_call;
use crate::names::{normal, parts};
use crate::parse::is_typed_param;

/// PostgreSQL's name for outputs without a better one.
const NONE: &str = "?column?";
/// Separates the name of an output from the number that distinguishes it from others of the same name. No statement
/// uses this character, so the number can be removed from names that clients see.
pub(crate) const AGAIN: char = '\u{2063}';
/// The separator in parts that are rewritten after names have been resolved.
const AGAIN_WITHIN: char = '_';

/// PostgreSQL's default name for an output.
pub(crate) fn name(expr: &Expr) -> Ident {
    let word = |word: &str| Ident::with_quote('"', word);
    match expr {
        Expr::Identifier(ident) => ident.clone(),
        Expr::CompoundIdentifier(idents) => idents.last().cloned().unwrap_or_else(|| word(NONE)),
        // A measure has its own name.
        Expr::Function(call) if is_measure_call(expr) => match arguments(&call.args).as_deref() {
            Some([measure]) => name(measure),
            _ => word(NONE),
        },
        Expr::Function(Function { name, .. }) => word(&parts(name).pop().unwrap_or_else(|| NONE.to_owned())),
        // A parameter has none, whatever its type.
        param if is_param(param) => word(NONE),
        Expr::Array(list) if list.elem.first().is_some_and(is_param) => word(NONE),
        // An expression without a name of its own has that of the outermost type that it is cast to.
        Expr::Cast { expr, data_type, .. } => {
            if is_weak(expr) {
                word(&type_of(data_type))
            } else {
                name(expr)
            }
        }
        Expr::TypedString(typed) => word(&type_of(&typed.data_type)),
        Expr::Nested(expr) | Expr::Collate { expr, .. } => name(expr),
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(AccessExpr::Dot(field)) => name(field),
            _ => name(root),
        },
        Expr::Subquery(query) => of_first(query).unwrap_or_else(|| word(NONE)),
        Expr::BinaryOp { op: BinaryOperator::Overlaps, .. } => word("overlaps"),
        Expr::Tuple(_) => word("row"),
        Expr::Case { else_result: Some(other), .. } if !is_weak(other) => name(other),
        Expr::Case { .. } => word("case"),
        Expr::Exists { negated: false, .. } => word("exists"),
        Expr::Array(_) => word("array"),
        Expr::Extract { .. } => word("extract"),
        Expr::Position { .. } => word("position"),
        Expr::Substring { shorthand: true, .. } => word("substr"),
        Expr::Substring { .. } => word("substring"),
        Expr::Overlay { .. } => word("overlay"),
        Expr::Trim { trim_where: Some(TrimWhereField::Leading), .. } => word("ltrim"),
        Expr::Trim { trim_where: Some(TrimWhereField::Trailing), .. } => word("rtrim"),
        Expr::Trim { .. } => word("btrim"),
        Expr::Ceil { .. } => word("ceil"),
        Expr::Floor { .. } => word("floor"),
        Expr::AtTimeZone { .. } => word("timezone"),
        Expr::Interval(_) => word("interval"),
        _ => word(NONE),
    }
}

/// Whether an expression has no name, or only one that an enclosing expression overrides, such as that of a type
/// (`FigureColnameInternal` of PostgreSQL).
fn is_weak(expr: &Expr) -> bool {
    match expr {
        Expr::Cast { expr, .. } | Expr::Nested(expr) | Expr::Collate { expr, .. } => is_weak(expr),
        Expr::Case { else_result, .. } => else_result.as_ref().is_none_or(|other| is_weak(other)),
        Expr::TypedString(_) | Expr::Interval(_) => true,
        other => name(other).value == NONE,
    }
}

fn is_param(value: &Expr) -> bool {
    matches!(value, Expr::Cast { expr, .. } if is_typed_param(expr))
}

/// The name of the first output of a subquery.
fn of_first(query: &Query) -> Option<Ident> {
    let SetExpr::Select(select) = &*query.body else { return None };
    match select.projection.first()? {
        SelectItem::UnnamedExpr(expr) => Some(name(expr)),
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.clone()),
        _ => None,
    }
}

/// PostgreSQL's internal name of a type: `int4`.
pub(super) fn type_of(data_type: &DataType) -> String {
    let name = match data_type {
        DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) => return type_of(item),
        DataType::Custom(name, _) => return parts(name).pop().unwrap_or_else(|| NONE.to_owned()),
        DataType::SmallInt(_) | DataType::Int2(_) => "int2",
        DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => "int4",
        DataType::BigInt(_) | DataType::Int8(_) => "int8",
        DataType::Real | DataType::Float4 => "float4",
        DataType::Double(_) | DataType::DoublePrecision | DataType::Float(_) | DataType::Float8 => "float8",
        DataType::Numeric(_) | DataType::Decimal(_) => "numeric",
        DataType::Boolean | DataType::Bool => "bool",
        DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => "varchar",
        DataType::Char(_) | DataType::Character(_) => "bpchar",
        DataType::Timestamp(_, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => "timestamptz",
        DataType::Timestamp(..) => "timestamp",
        DataType::Time(..) => "time",
        DataType::Interval { .. } => "interval",
        other => return other.to_string().to_lowercase(),
    };
    name.to_owned()
}

/// Numbers outputs of the same name: PostgreSQL allows them, DataFusion does only for columns of different tables.
pub(crate) fn make_unique(items: &mut [SelectItem]) {
    number(items, AGAIN_WITHIN, OutputUse::Result);
}

/// What the outputs of a query are used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputUse {
    /// They are shown: columns of different tables may have the same name.
    Result,
    /// Another query reads them as columns of one table, so all names must differ.
    Table,
}

/// Adds a number to outputs of the same name, separated by `again`.
pub(super) fn number(items: &mut [SelectItem], again: char, usage: OutputUse) {
    let mut seen = HashMap::<String, usize>::new();
    let mut aliases = HashSet::new();
    for item in items {
        match item {
            SelectItem::ExprWithAlias { alias, .. } => {
                let times = seen.entry(normal(alias)).or_default();
                *times += 1;
                if *times > 1 {
                    *alias = Ident::with_quote('"', format!("{}{again}{times}", normal(alias)));
                }
                aliases.insert(normal(alias));
            }
            SelectItem::UnnamedExpr(expr @ (Expr::Identifier(_) | Expr::CompoundIdentifier(_))) => {
                let own = normal(&name(expr));
                let times = seen.entry(own.clone()).or_default();
                *times += 1;
                if aliases.contains(&own) || (usage == OutputUse::Table && *times > 1) {
                    let alias = Ident::with_quote('"', format!("{own}{again}{times}"));
                    *item = SelectItem::ExprWithAlias { expr: expr.clone(), alias };
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn names_are_those_of_postgresql() {
        for (text, expected) in [
            ("a", "a"),
            ("t.b", "b"),
            ("(t.b)", "b"),
            ("lower(a)", "lower"),
            ("a + 1", "?column?"),
            ("CASE WHEN a THEN 1 END", "case"),
            ("CASE WHEN a THEN 1 ELSE b END", "b"),
            ("EXISTS (SELECT 1)", "exists"),
            ("(SELECT b FROM t)", "b"),
            ("(SELECT 1 AS c)", "c"),
        ] {
            assert_eq!(name(&expr(text).unwrap()).value, expected, "{text}");
        }
    }

    /// Outputs with numbers; ` AS ` separates an output from its alias.
    fn numbered(items: &[&str], usage: OutputUse) -> Vec<String> {
        let item = |text: &&str| match text.split_once(" AS ") {
            Some((value, alias)) => SelectItem::ExprWithAlias { expr: expr(value).unwrap(), alias: Ident::new(alias) },
            None => SelectItem::UnnamedExpr(expr(text).unwrap()),
        };
        let mut items: Vec<SelectItem> = items.iter().map(item).collect();
        number(&mut items, '#', usage);
        items.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn outputs_of_one_name_are_numbered() {
        let result = |items: &[&str]| numbered(items, OutputUse::Result);
        let table = |items: &[&str]| numbered(items, OutputUse::Table);
        let aliases = ["1 AS x", "2 AS x", "3 AS X"];
        assert_eq!(result(&aliases), ["1 AS x", "2 AS \"x#2\"", "3 AS \"x#3\""]);
        // Columns of different tables may have the same name where nobody refers to them.
        assert_eq!(result(&["a.x", "b.x"]), ["a.x", "b.x"]);
        assert_eq!(table(&["a.x", "b.x", "y"]), ["a.x", "b.x AS \"x#2\"", "y"]);
        for usage in [OutputUse::Result, OutputUse::Table] {
            assert_eq!(numbered(&["1 AS x", "a.x"], usage), ["1 AS x", "a.x AS \"x#2\""]);
            assert_eq!(numbered(&["a.x", "1 AS x"], usage), ["a.x", "1 AS \"x#2\""]);
            assert_eq!(numbered(&["f(x)", "f(x)"], usage), ["f(x)", "f(x)"]);
        }
    }
}
