//! SQL types by name: their kind, and the planner's type for each.

use datafusion::sql::sqlparser::ast::{ArrayElemTypeDef, CharacterLength, DataType, ExactNumberInfo, Expr};
use quiver_types::{Error, Result};

use crate::names::parts;

/// Whether a type is that of texts.
pub(super) fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Text | DataType::Varchar(None) | DataType::String(None))
}

/// The name of a type without its schema, if it has a name of its own.
pub(super) fn name_of(data_type: &DataType) -> Option<String> {
    match data_type {
        DataType::Regclass => Some("regclass".to_owned()),
        DataType::Custom(name, _) => parts(name).pop(),
        _ => None,
    }
}

/// The most characters that a text type holds, if it has a length: a cast truncates longer texts.
pub(super) fn letters_of(data_type: &DataType) -> Option<u64> {
    match data_type {
        DataType::Varchar(Some(CharacterLength::IntegerLength { length, .. }))
        | DataType::CharacterVarying(Some(CharacterLength::IntegerLength { length, .. }))
        | DataType::CharVarying(Some(CharacterLength::IntegerLength { length, .. }))
        | DataType::Char(Some(CharacterLength::IntegerLength { length, .. }))
        | DataType::Character(Some(CharacterLength::IntegerLength { length, .. })) => Some(*length),
        DataType::Char(None) | DataType::Character(None) => Some(1),
        _ => None,
    }
}

/// The most letters that a type of texts may be told to hold, as in PostgreSQL.
const LETTERS_MAX: u64 = 10_485_760;

/// Checks the length of a type of texts.
///
/// # Errors
///
/// Invalid: it holds nothing, or too much.
pub(super) fn check_letters(data_type: &DataType, letters: u64) -> Result<()> {
    let name = if matches!(data_type, DataType::Char(_) | DataType::Character(_)) { "char" } else { "varchar" };
    match letters {
        0 => Err(Error::invalid(format!("length for type {name} must be at least 1"))),
        1..=LETTERS_MAX => Ok(()),
        _ => Err(Error::invalid(format!("length for type {name} cannot exceed {LETTERS_MAX}"))),
    }
}

/// Whether a type is an integer type.
pub(super) fn is_whole(data_type: &DataType) -> bool {
    use DataType::{BigInt, Int, Int2, Int4, Int8, Integer, SmallInt, TinyInt};
    matches!(data_type, TinyInt(_) | Int2(_) | SmallInt(_) | Int(_) | Int4(_) | Integer(_) | Int8(_) | BigInt(_))
}

/// A type without its schema, as the planner knows it; `None` if it need not change.
pub(super) fn plain(data_type: &DataType) -> Option<DataType> {
    if let DataType::Array(items) = data_type {
        return plain_list(items).map(DataType::Array);
    }
    // Quiver stores these as texts.
    if let DataType::JSON | DataType::JSONB | DataType::Uuid = data_type {
        return Some(DataType::Text);
    }
    // The precision of `float(n)` is in binary digits. The planner takes every `float` for single precision.
    if let DataType::Float(digits) = data_type {
        let is_small = matches!(digits, ExactNumberInfo::Precision(digits) if *digits <= 24);
        return Some(if is_small { DataType::Real } else { DataType::DoublePrecision });
    }
    let name = name_of(data_type)?;
    let of_texts = || DataType::Array(ArrayElemTypeDef::SquareBracket(Box::new(DataType::Text), None));
    Some(match name.as_str() {
        "text" | "name" | "char" | "bpchar" | "varchar" | "citext" | "unknown" | "cstring" | "regproc" | "json"
        | "jsonb" | "jsonpath" | "aclitem" | "pg_node_tree" | "uuid" => DataType::Text,
        "int2" | "smallint" => DataType::SmallInt(None),
        "int4" | "int" | "integer" => DataType::Integer(None),
        "int8" | "bigint" | "oid" | "xid" => DataType::BigInt(None),
        "float4" | "real" => DataType::Real,
        "float8" => DataType::DoublePrecision,
        "bool" | "boolean" => DataType::Boolean,
        "numeric" | "decimal" => DataType::Numeric(ExactNumberInfo::None),
        "date" => DataType::Date,
        "_text" | "_name" | "_varchar" | "_char" => of_texts(),
        _ => return None,
    })
}

/// A type of lists as the planner knows it; `None` if it need not change. As in PostgreSQL, a length (`int[3]`) means nothing:
/// the planner would make room for so many items in each list, also in one that is NULL.
fn plain_list(items: &ArrayElemTypeDef) -> Option<ArrayElemTypeDef> {
    use ArrayElemTypeDef::{AngleBracket, None as Untyped, Parenthesis, SquareBracket};
    Some(match items {
        SquareBracket(item, length) => {
            let inner = plain(item);
            if inner.is_none() && length.is_none() {
                return None;
            }
            SquareBracket(Box::new(inner.unwrap_or_else(|| (**item).clone())), None)
        }
        AngleBracket(item) => AngleBracket(Box::new(plain(item)?)),
        Parenthesis(item) => Parenthesis(Box::new(plain(item)?)),
        Untyped => return None,
    })
}

/// Widens a small integer: a parameter gets the smallest type that holds it, which some functions do not take.
pub(super) fn widened(number: &mut Expr) {
    if let Expr::Cast { data_type, .. } = number
        && matches!(data_type, DataType::SmallInt(_) | DataType::Int2(_))
    {
        *data_type = DataType::BigInt(None);
    }
}
