//! Relations and types that a statement names by texts which it puts together: `(table_schema || '.' ||
//! table_name)::regclass`, as tools ask for the sizes and comments of what they list. They become the numbers of the
//! catalog, and names again as texts; NULL where nothing has such a name.

use datafusion::sql::sqlparser::ast::{BinaryOperator, DataType, Expr, Ident, ObjectName};
use quiver_query::quoting::text as quoted;
use quiver_query::tables::{PUBLIC_SCHEMA, QUIVER_SCHEMA};
use quiver_types::Result;

use super::data_types::{is_text, name_of};
use super::expressions::{bare, call, expr, literal, take, text};
use super::nested_lists;
use super::translator::Translator;
use super::types::type_names;
use crate::catalog::schemas::PG_CATALOG;
use crate::catalog::types::PG_TYPES;
use crate::names::normal;

/// Columns of the catalog that hold names.
const NAMES: [&str; 5] = ["relname", "table_name", "tablename", "typname", "udt_name"];

fn is_name(column: &Ident) -> bool {
    NAMES.contains(&normal(column).as_str())
}

/// Whether a value is a text that names something, and differs from row to row.
fn is_computed_text(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_computed_text(inner),
        Expr::Cast { expr: inner, data_type, .. } => is_text(data_type) && is_computed_text(inner),
        Expr::BinaryOp { op, .. } => *op == BinaryOperator::StringConcat,
        Expr::Function(function) => {
            matches!(bare(&function.name).as_deref(), Some("quote_ident" | "format" | "concat" | "concat_ws"))
        }
        Expr::Identifier(column) => is_name(column),
        Expr::CompoundIdentifier(column) => column.last().is_some_and(is_name),
        _ => false,
    }
}

fn unnested(mut value: &Expr) -> &Expr {
    while let Expr::Nested(inner) = value {
        value = &**inner;
    }
    value
}

/// Whether a cast makes a number of the catalog something that is shown by its name.
fn names(data_type: &DataType) -> bool {
    matches!(name_of(data_type).as_deref(), Some("regclass" | "regtype" | "regnamespace"))
}

/// Whether a value is a number of the catalog by its cast.
fn is_numbered(value: &Expr) -> bool {
    let Expr::Cast { data_type, .. } = unnested(value) else { return false };
    names(data_type) || name_of(data_type).as_deref() == Some("oid")
}

/// Leaves the number that a cast would name. What a literal or a text that is put together names becomes a number anyway.
fn numbered(value: &mut Expr) {
    match value {
        Expr::Nested(inner) => numbered(inner),
        Expr::Cast { expr: inner, data_type, .. }
            if names(data_type) && literal(inner).is_none() && !is_computed_text(inner) =>
        {
            *data_type = DataType::Custom(ObjectName::from(vec![Ident::new("oid")]), Vec::new());
        }
        _ => {}
    }
}

/// Compares what both sides name by number, as in `prorettype::regtype <> 'trigger'::regtype`: by itself, the cast of a
/// column gives names, and that of a literal a number.
pub(super) fn by_numbers(place: &mut Expr) {
    match place {
        Expr::BinaryOp { left, op: BinaryOperator::Eq | BinaryOperator::NotEq, right }
            if is_numbered(left) && is_numbered(right) =>
        {
            numbered(left);
            numbered(right);
        }
        Expr::InList { expr: value, list, .. } if is_numbered(value) && list.iter().all(is_numbered) => {
            numbered(value);
            list.iter_mut().for_each(numbered);
        }
        Expr::AnyOp { left, right, .. } | Expr::AllOp { left, right, .. } => {
            if let Expr::Array(list) = &mut **right
                && is_numbered(left)
                && list.elem.iter().all(is_numbered)
            {
                numbered(left);
                list.elem.iter_mut().for_each(numbered);
            }
        }
        _ => {}
    }
}

/// The names of types whose numbers are in a list: `proargtypes::regtype[]`. A list that is written out becomes numbers.
pub(super) fn named_list(data_type: &DataType, list: &mut Expr) -> Option<Expr> {
    let is_named = matches!(data_type, DataType::Array(_))
        && name_of(nested_lists::of_values(data_type)).as_deref() == Some("regtype");
    if !is_named || literal(list).is_some() {
        return None;
    }
    let names: Vec<String> = type_names().into_iter().map(|(oid, name)| format!("{oid}={name}")).collect();
    Some(call("named_items", vec![take(list), text(&names.join(";"))]))
}

impl Translator<'_> {
    /// Translates such a cast, and one of its value to a text. `oid::regclass::oid` is the number itself.
    pub(super) fn named_by_text(&mut self, place: &mut Expr) -> Result<()> {
        let Expr::Cast { expr: inner, data_type, .. } = &*place else { return Ok(()) };
        if let Some(number) = self.number_of(inner, data_type)? {
            *place = number;
            return Ok(());
        }
        let Expr::Cast { expr: value, data_type: named, .. } = unnested(inner) else { return Ok(()) };
        let kind = name_of(named);
        if is_text(data_type) {
            let Some(number) = self.number_of(value, named)? else { return Ok(()) };
            let is_type = kind.as_deref() == Some("regtype");
            *place = if is_type { self.type_name(&number)? } else { self.class_name(&number)? };
            return Ok(());
        }
        let is_number = names(named) && literal(value).is_none() && !is_computed_text(value);
        if is_number && name_of(data_type).as_deref() == Some("oid") {
            let value = value.clone();
            if let Expr::Cast { expr: inner, .. } = place {
                *inner = value;
            }
        }
        Ok(())
    }

    /// SQL of the number of what a text names; `None` if it is no such text, or names something else.
    fn number_of(&mut self, name: &Expr, data_type: &DataType) -> Result<Option<Expr>> {
        if !is_computed_text(name) {
            return Ok(None);
        }
        let known = match name_of(data_type).as_deref() {
            Some("regclass") => self.relations_by_name(),
            Some("regtype") => types_by_name(),
            _ => return Ok(None),
        };
        self.count()?;
        let whens: Vec<String> = known.iter().map(|(name, oid)| format!("WHEN {} THEN {oid}", quoted(name))).collect();
        // No name of the catalog holds a quote.
        expr(&format!("CASE replace({name}, '\"', '') {} END", whens.join(" "))).map(Some)
    }

    /// The numbers of relations by all names that mean them.
    fn relations_by_name(&self) -> Vec<(String, i64)> {
        let relations = self.catalog.relations();
        let mut known = Vec::new();
        for relation in &relations {
            let name = &relation.name;
            known.push((format!("{}.{name}", relation.schema), relation.oid));
            if !self.is_hidden(relation) {
                known.push((name.clone(), relation.oid));
            }
            let has_other = relations.iter().any(|other| other.schema == PUBLIC_SCHEMA && other.name == *name);
            if relation.schema == QUIVER_SCHEMA && !has_other {
                known.push((format!("{PUBLIC_SCHEMA}.{name}"), relation.oid));
            }
        }
        known
    }
}

fn types_by_name() -> Vec<(String, i64)> {
    let mut known = Vec::new();
    for of in &PG_TYPES {
        let (oid, array) = (i64::from(of.oid), i64::from(of.array));
        known.extend([(of.name.to_owned(), oid), (format!("{PG_CATALOG}.{}", of.name), oid), (of.sql.to_owned(), oid)]);
        if array != 0 {
            let names = [format!("_{}", of.name), format!("{PG_CATALOG}._{}", of.name), format!("{}[]", of.sql)];
            known.extend(names.map(|name| (name, array)));
        }
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_are_put_together_differ_from_row_to_row() {
        for (text, expected) in [
            ("a || 'b'", true),
            ("('a' || b)::text", true),
            ("quote_ident(a)", true),
            ("pg_catalog.format('%I', a)", true),
            ("table_name", true),
            ("c.RelName", true),
            ("\"RelName\"", false),
            ("other", false),
            ("'logs'", false),
            ("1 + 2", false),
            ("lower(a)", false),
            ("(a || b)::int", false),
        ] {
            assert_eq!(is_computed_text(&expr(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn types_have_several_names() {
        let known = types_by_name();
        let number = |name: &str| known.iter().find(|(own, _)| own == name).map(|(_, oid)| *oid);
        for (name, expected) in [
            ("int4", Some(23)),
            ("pg_catalog.text", Some(25)),
            ("_text", Some(1009)),
            ("pg_catalog._text", Some(1009)),
            ("text[]", Some(1009)),
            ("public.text", None),
            ("nothing", None),
        ] {
            assert_eq!(number(name), expected, "{name}");
        }
    }
}
