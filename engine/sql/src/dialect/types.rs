//! Casts to types of PostgreSQL: names with a schema, and names of relations and types as OIDs.

use datafusion::sql::sqlparser::ast::{CastKind, DataType, ExactNumberInfo, Expr, UnaryOperator, Value};
use quiver_query::functions::without_exponent;
use quiver_query::quoting::text as quoted;
use quiver_query::tables::models::OLAP_SCHEMA;
use quiver_query::tables::{PUBLIC_SCHEMA, QUIVER_SCHEMA};
use quiver_types::{Error, Result};

use super::data_types::{check_letters, is_text, is_whole, letters_of, name_of, plain};
use super::expressions::{arguments, bare, calculates, call, expr, items_of_text, literal, number, take, text};
use super::patterns::folded;
use super::translator::Translator;
use super::{arrays, bytes, function_rewrites, json_operators, nested_lists, times, type_kinds};
use crate::catalog::Relation;
use crate::catalog::functions::known;
use crate::catalog::schemas::{INFORMATION_SCHEMA, SCHEMAS, schema_oid};
use crate::catalog::types::{OF_ARRAYS, PG_TYPES, type_named};

/// The meaning of a cast to a type of the catalog.
enum CatalogCast {
    Class,
    Type,
    Namespace,
    Function,
    Name,
    Number,
}

fn kind(name: &str) -> Option<CatalogCast> {
    Some(match name {
        "regclass" => CatalogCast::Class,
        "regtype" => CatalogCast::Type,
        "regnamespace" => CatalogCast::Namespace,
        "regproc" | "regprocedure" => CatalogCast::Function,
        "regoper" | "regrole" | "regconfig" => CatalogCast::Name,
        "oid" | "xid" | "cid" | "int8" | "bigint" => CatalogCast::Number,
        _ => return None,
    })
}

/// Whether a value may have a fraction. Texts and parameters get their type from the cast itself.
fn may_have_fraction(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Number(text, _) => !text.bytes().all(|byte| byte.is_ascii_digit()),
            _ => false,
        },
        Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => may_have_fraction(inner),
        _ => true,
    }
}

/// Whether a value is computed from literals alone, one of them with a fraction.
pub(super) fn is_fraction(expr: &Expr) -> bool {
    fn are_numbers(expr: &Expr) -> bool {
        match expr {
            Expr::Value(value) => matches!(value.value, Value::Number(..)),
            Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: inner } => {
                are_numbers(inner)
            }
            Expr::BinaryOp { left, op, right } => calculates(op) && are_numbers(left) && are_numbers(right),
            _ => false,
        }
    }
    fn has_fraction(expr: &Expr) -> bool {
        match expr {
            Expr::Nested(inner) | Expr::UnaryOp { expr: inner, .. } => has_fraction(inner),
            Expr::BinaryOp { left, right, .. } => has_fraction(left) || has_fraction(right),
            value => may_have_fraction(value),
        }
    }
    are_numbers(expr) && has_fraction(expr)
}

/// The function that rounds a value to an integer. PostgreSQL rounds halves of a `numeric` away from zero; the
/// planner has doubles for numeric literals and for averages of integers, which would round to even.
fn rounding(value: &Expr) -> &'static str {
    let is_mean = match value {
        Expr::Nested(inner) => return rounding(inner),
        Expr::Function(function) if bare(&function.name).as_deref() == Some("avg") => {
            arguments(&function.args).is_some_and(|args| !args.iter().any(function_rewrites::is_double))
        }
        _ => false,
    };
    if is_mean || is_fraction(value) { "round" } else { "to_whole" }
}

/// Rounds each item of a list that is written out like a single value.
fn round_items(list: &mut Expr) {
    let Expr::Array(list) = list else { return };
    for value in &mut list.elem {
        if matches!(value, Expr::Array(_)) {
            round_items(value);
        } else if may_have_fraction(value) {
            *value = call(rounding(value), vec![take(value)]);
        }
    }
}

impl Translator<'_> {
    /// Marks a text that is cast to a list to be read as one.
    fn listed(&self, value: &mut Expr) {
        if let Some(items) = literal(value).and_then(items_of_text) {
            *value = call("make_array", items);
        } else if literal(value).is_none() && !is_untyped(value) && !arrays::is_list(value, self.catalog) {
            let inner = take(value);
            *value = call("as_list", vec![inner]);
        }
    }

    /// Replaces `'name'::regclass::text` and its like by the name (the inner cast becomes a number, and would be shown as
    /// one), and lists of names by lists of numbers.
    pub(super) fn name_of_literal(&mut self, place: &mut Expr) -> Result<()> {
        let Expr::Cast { expr: inner, data_type, .. } = &*place else { return Ok(()) };
        if matches!(data_type, DataType::Array(_)) {
            if let Some(list) = self.numbers_of_names(inner, data_type)? {
                *place = list;
            }
            return Ok(());
        }
        let mut inner = &**inner;
        while let Expr::Nested(nested) = inner {
            inner = &**nested;
        }
        let Expr::Cast { expr: value, data_type: named, .. } = inner else { return Ok(()) };
        let kind = name_of(named).as_deref().and_then(kind);
        let (Some(kind), Some(name), true) = (kind, literal(value), is_text(data_type)) else { return Ok(()) };
        let found = match kind {
            CatalogCast::Class => {
                let oid = self.class_of(name)?;
                self.class_name(&number(oid))?
            }
            CatalogCast::Type => self.type_name(&number(type_of(name)?))?,
            CatalogCast::Namespace => {
                let oid = namespace_of(name)?;
                self.namespace_name(&number(oid))?
            }
            _ => return Ok(()),
        };
        *place = found;
        Ok(())
    }

    /// The list of numbers that `'{int4,text}'::regtype[]` and its like mean; `None` if it is no such cast.
    fn numbers_of_names(&self, list: &Expr, data_type: &DataType) -> Result<Option<Expr>> {
        let kind = name_of(nested_lists::of_values(data_type)).as_deref().and_then(kind);
        let number_of = |name: &str| match kind {
            Some(CatalogCast::Class) => self.class_of(name).map(Some),
            Some(CatalogCast::Type) => type_of(name).map(Some),
            Some(CatalogCast::Namespace) => namespace_of(name).map(Some),
            _ => Ok(None),
        };
        let Some(items) = literal(list).and_then(items_of_text) else { return Ok(None) };
        let mut numbers = Vec::with_capacity(items.len());
        for item in items {
            match literal(&item).map(number_of).transpose()? {
                Some(Some(oid)) => numbers.push(number(oid)),
                Some(None) => return Ok(None),
                None => numbers.push(item),
            }
        }
        Ok((!numbers.is_empty()).then(|| call("make_array", numbers)))
    }

    /// SQL of the name of the schema with an OID.
    fn namespace_name(&mut self, oid: &Expr) -> Result<Expr> {
        let names = SCHEMAS.map(|schema| (schema_oid(schema), schema.to_owned()));
        self.names(oid, &names)
    }

    /// Translates a cast.
    pub(super) fn cast(&mut self, place: &mut Expr) -> Result<()> {
        let Expr::Cast { expr: inner, data_type, .. } = place else { return Ok(()) };
        if let Some(rounded) = times::rounded(data_type, inner)? {
            *place = rounded;
            return Ok(());
        }
        if matches!(data_type, DataType::Array(_)) {
            if let Some(list) = literal(inner).map(nested_lists::of_text).transpose()?.flatten() {
                **inner = list;
            }
            if is_whole(nested_lists::of_values(data_type)) {
                round_items(inner);
            }
            self.listed(inner);
            nested_lists::deepen(data_type, nested_lists::depth(inner));
        }
        if let DataType::Numeric(_) | DataType::Decimal(_) = data_type
            && let Some(digits) = literal(inner).and_then(without_exponent)
        {
            **inner = text(&digits);
        }
        if *data_type == DataType::Bytea
            && let Some(bytes) = bytes::written(inner)?
        {
            *place = bytes;
            return Ok(());
        }
        if is_text(data_type) && bytes::is_bytes(inner) {
            let value = take(inner);
            *place = expr(&format!("('\\x' || encode({value}, 'hex'))"))?;
            return Ok(());
        }
        let is_name = is_text(data_type) || name_of(data_type).as_deref() == Some("regproc");
        if is_name && self.reads_types && type_kinds::is_receiver(inner) {
            let oid = take(inner);
            *place = self.receiver_name(&oid)?;
            return Ok(());
        }
        if let Some(letters) = letters_of(data_type) {
            check_letters(data_type, letters)?;
            let value = take(inner);
            let cut = format!("left(CAST({value} AS TEXT), {letters})");
            // Blanks that fill a `char` up are no part of it.
            let is_filled = matches!(data_type, DataType::Char(_) | DataType::Character(_));
            *place = expr(&if is_filled { format!("rtrim({cut}, ' ')") } else { cut })?;
            return Ok(());
        }
        let Some(kind) = name_of(data_type).as_deref().and_then(kind) else {
            if let Some(plain) = plain(data_type) {
                *data_type = plain;
            }
            if is_whole(data_type) && may_have_fraction(inner) {
                // A number of a document may have a fraction, which a text may not.
                if json_operators::is_document(inner) {
                    let (expr, data_type) = (Box::new(take(inner)), DataType::Numeric(ExactNumberInfo::None));
                    **inner = Expr::Cast { kind: CastKind::Cast, expr, data_type, array: false, format: None };
                }
                let rounds = rounding(inner);
                let value = take(inner);
                **inner = call(rounds, vec![value]);
            }
            return Ok(());
        };
        if let Some(name) = literal(inner) {
            let is_oid = name_of(data_type).as_deref() == Some("oid");
            *place = match kind {
                CatalogCast::Class => number(self.class_of(name)?),
                CatalogCast::Type => number(type_of(name)?),
                CatalogCast::Number if is_oid && name.parse::<i64>().is_err() => number(function_of(name)?),
                CatalogCast::Namespace => number(namespace_of(name)?),
                CatalogCast::Function => text(&split(name).pop().unwrap_or_default()),
                CatalogCast::Name => text(name),
                CatalogCast::Number => expr(&format!("CAST({} AS BIGINT)", quoted(name)))?,
            };
            return Ok(());
        }
        let inner = take(inner);
        if matches!(kind, CatalogCast::Class | CatalogCast::Type | CatalogCast::Namespace)
            && matches!(folded(&inner), Some(None))
        {
            *place = expr("CAST(NULL AS BIGINT)")?;
            return Ok(());
        }
        *place = match kind {
            CatalogCast::Class => self.class_name(&inner)?,
            CatalogCast::Type => self.type_name(&inner)?,
            CatalogCast::Namespace => self.namespace_name(&inner)?,
            CatalogCast::Function | CatalogCast::Name => expr(&format!("CAST({inner} AS TEXT)"))?,
            CatalogCast::Number => expr(&format!("CAST({inner} AS BIGINT)"))?,
        };
        Ok(())
    }

    /// The OID of a relation, given by name or as a number.
    fn class_of(&self, name: &str) -> Result<i64> {
        if let Ok(oid) = name.parse::<i64>() {
            return Ok(oid);
        }
        let mut parts = split(name);
        let table = parts.pop().unwrap_or_default();
        let schema = parts.pop();
        let relations = self.catalog.relations();
        let of = |schema: &str| relations.iter().find(|r| r.schema == schema && r.name == table);
        let found = match schema.as_deref() {
            // As statements name them, the product's tables stand in `public`, too.
            Some(PUBLIC_SCHEMA) => of(PUBLIC_SCHEMA).or_else(|| of(QUIVER_SCHEMA)),
            Some(schema) => of(schema),
            None => SCHEMAS.iter().filter(|schema| !is_apart(schema)).find_map(|s| of(s)),
        };
        found.map(|relation| relation.oid).ok_or_else(|| self.catalog.unknown(name))
    }

    /// Whether the bare name of a relation means another one, which comes first in the search path.
    pub(super) fn is_hidden(&self, relation: &Relation) -> bool {
        let first = |schema: &str| self.catalog.entries.iter().any(|e| e.schema == schema && e.name == relation.name);
        is_apart(relation.schema) || (relation.schema == QUIVER_SCHEMA && first(PUBLIC_SCHEMA))
    }

    /// SQL of the name of the relation with an OID, quoted if necessary.
    pub(super) fn class_name(&mut self, oid: &Expr) -> Result<Expr> {
        let shown = |r: &Relation| {
            let visible = !self.is_hidden(r);
            let name = as_written(&r.name);
            (r.oid, if visible { name } else { format!("{}.{name}", r.schema) })
        };
        let names: Vec<(i64, String)> = self.catalog.relations().iter().map(shown).collect();
        self.names(oid, &names)
    }

    /// SQL of the name of the type with an OID.
    pub(super) fn type_name(&mut self, oid: &Expr) -> Result<Expr> {
        self.names(oid, &type_names())
    }

    /// SQL of the name of the function with an OID that reads the binary form of a type.
    fn receiver_name(&mut self, oid: &Expr) -> Result<Expr> {
        let functions = PG_TYPES.iter().map(|known| (known.stem, known.receive)).chain([OF_ARRAYS]);
        let names: Vec<(i64, String)> =
            functions.map(|(stem, receive)| (i64::from(receive), format!("{stem}recv"))).collect();
        self.names(oid, &names)
    }

    /// SQL of the name for a number, or of the number as text if there is none.
    pub(super) fn names(&mut self, oid: &Expr, names: &[(i64, String)]) -> Result<Expr> {
        self.count()?;
        let whens: Vec<String> = names.iter().map(|(oid, name)| format!("WHEN {oid} THEN {}", quoted(name))).collect();
        expr(&format!("CASE CAST({oid} AS BIGINT) {} END", whens.join(" ")))
    }
}

/// A name, quoted if SQL needs it.
fn as_written(name: &str) -> String {
    let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if is_plain { name.to_owned() } else { format!("\"{name}\"") }
}

/// Whether a schema is not in the search path.
fn is_apart(schema: &str) -> bool {
    matches!(schema, INFORMATION_SCHEMA | OLAP_SCHEMA)
}

/// The names of types in SQL, by their OIDs.
pub(super) fn type_names() -> Vec<(i64, String)> {
    let plain = PG_TYPES.iter().map(|known| (i64::from(known.oid), known.sql.to_owned()));
    let arrays = PG_TYPES.iter().filter(|known| known.array != 0);
    let arrays = arrays.map(|known| (i64::from(known.array), format!("{}[]", known.sql)));
    plain.chain(arrays).collect()
}

/// Types that no column has, by which clients look for functions and the like.
const OTHERS: [(&str, i64); 14] = [
    ("any", 2276),
    ("anyarray", 2277),
    ("anyelement", 2283),
    ("bit", 1560),
    ("cstring", 2275),
    ("event_trigger", 3838),
    ("inet", 869),
    ("internal", 2281),
    ("oidvector", 30),
    ("regproc", 24),
    ("trigger", 2279),
    ("varbit", 1562),
    ("void", 2278),
    ("xml", 142),
];

/// The OID of a type: what `'name'::regtype` becomes.
pub(super) fn type_of(name: &str) -> Result<i64> {
    if let Ok(oid) = name.parse::<i64>() {
        return Ok(oid);
    }
    let bare = name.rsplit('.').next().unwrap_or(name);
    let array = bare.strip_suffix("[]").or_else(|| bare.strip_prefix('_'));
    let found = match array {
        Some(item) => type_named(item).map(|known| known.array).filter(|array| *array != 0),
        None => type_named(bare).map(|known| known.oid),
    };
    let other = || OTHERS.iter().find(|(known, _)| known.eq_ignore_ascii_case(bare)).map(|(_, oid)| *oid);
    found.map(i64::from).or_else(other).ok_or_else(|| Error::invalid(format!("there is no type `{name}`")))
}

/// The OID of a function: what `'name'::regproc` becomes.
fn function_of(name: &str) -> Result<i64> {
    let bare = split(name).pop().unwrap_or_default();
    let found = known().into_iter().find(|function| function.name == bare);
    let unknown = || Error::invalid(format!("there is no function `{name}` of the product"));
    found.map(|function| function.oid).ok_or_else(unknown)
}

fn namespace_of(name: &str) -> Result<i64> {
    let known = SCHEMAS.iter().find(|schema| **schema == name).map(|schema| schema_oid(schema));
    known.or_else(|| name.parse().ok()).ok_or_else(|| Error::invalid(format!("there is no schema `{name}`")))
}

/// Whether a value gets its type from the cast: NULL, and parameters.
fn is_untyped(value: &Expr) -> bool {
    match value {
        Expr::Value(value) => matches!(value.value, Value::Null | Value::Placeholder(_)),
        Expr::Nested(inner) => is_untyped(inner),
        _ => false,
    }
}

/// The parts of a qualified name: `a."B.c"`.
pub(super) fn split(name: &str) -> Vec<String> {
    let (mut parts, mut part, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = name.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => {
                letters.next();
                part.push('"');
            }
            '"' => quoted = !quoted,
            '.' if !quoted => parts.push(std::mem::take(&mut part)),
            other if quoted => part.push(other),
            other => part.extend(other.to_lowercase()),
        }
    }
    parts.push(part);
    parts
}
