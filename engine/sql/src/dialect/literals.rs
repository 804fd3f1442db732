//! Texts that are written out and cast to `json`, `jsonb` or `uuid`: they are looked at while a statement is read, and come
//! in the form of their type. Columns are not: messages of logs are of all kinds, and one that is no JSON is NULL for
//! whoever reads in it.

use datafusion::sql::sqlparser::ast::{DataType, Expr, Value};
use quiver_query::functions::is_document;
use quiver_types::{Error, Result};

use super::expressions::{call, text};
use super::{data_types, times};
use crate::names::parts;

/// Puts a text that is cast to such a type in its form.
///
/// # Errors
/// Invalid: it is none of the type.
pub(super) fn formed(data_type: &DataType, place: &mut Expr) -> Result<()> {
    let Expr::Value(value) = &*place else { return Ok(()) };
    let (Value::SingleQuotedString(written) | Value::EscapedStringLiteral(written)) = &value.value else {
        return Ok(());
    };
    if matches!(data_type, DataType::DoublePrecision | DataType::Double(_) | DataType::Float8 | DataType::Float(_)) {
        // `Infinity` has no digit.
        let is_number = written.bytes().any(|byte| byte.is_ascii_digit());
        return if is_number && written.trim().parse::<f64>().is_ok_and(f64::is_infinite) {
            Err(Error::invalid(format!("\"{written}\" is out of range for type double precision")))
        } else {
            Ok(())
        };
    }
    let name = match data_type {
        DataType::JSON => "json".to_owned(),
        DataType::JSONB => "jsonb".to_owned(),
        DataType::Uuid => "uuid".to_owned(),
        DataType::Custom(name, _) => parts(name).pop().unwrap_or_default(),
        _ => return Ok(()),
    };
    let wrong = || Error::invalid(format!("invalid input syntax for type {name}: \"{written}\""));
    let formed = match name.as_str() {
        "json" | "jsonb" if !is_document(written) => return Err(wrong()),
        "jsonb" => call("json_normal", vec![text(written)]),
        "uuid" => text(&uuid(written).ok_or_else(wrong)?),
        _ => return Ok(()),
    };
    *place = formed;
    Ok(())
}

/// A text with its type before it (`date '2024-01-01'`, `jsonb '{}'`) as the planner knows it.
///
/// # Errors
/// Invalid: it is none of the type.
pub(super) fn typed(place: &mut Expr) -> Result<()> {
    let Expr::TypedString(typed) = place else { return Ok(()) };
    if let Some(found) = times::special(&typed.data_type, &Expr::Value(typed.value.clone()))? {
        *place = found;
        return Ok(());
    }
    times::complete(&typed.data_type, &mut typed.value.value);
    let mut value = Expr::Value(typed.value.clone());
    if let Some(rounded) = times::rounded(&typed.data_type, &value)? {
        *place = rounded;
        return Ok(());
    }
    formed(&typed.data_type, &mut value)?;
    match value {
        Expr::Value(formed) => typed.value = formed,
        // No text any more that could stand behind a type.
        other => {
            *place = other;
            return Ok(());
        }
    }
    if let Some(plain) = data_types::plain(&typed.data_type) {
        typed.data_type = plain;
    }
    Ok(())
}

/// The 32 digits of a UUID in their usual groups; they may be written with a hyphen behind any four, and in braces.
fn uuid(written: &str) -> Option<String> {
    let written = written.trim();
    let inner = written.strip_prefix('{').map_or(Some(written), |rest| rest.strip_suffix('}'))?;
    let (mut digits, mut is_parted) = (String::with_capacity(32), false);
    for letter in inner.chars() {
        match letter {
            '-' if !is_parted && digits.len().is_multiple_of(4) && !digits.is_empty() => is_parted = true,
            digit if digit.is_ascii_hexdigit() && digits.len() < 32 => {
                is_parted = false;
                digits.push(digit.to_ascii_lowercase());
            }
            _ => return None,
        }
    }
    if is_parted || digits.len() != 32 {
        return None;
    }
    let groups = [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| digits.get(group).unwrap_or_default());
    Some(groups.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_one_form() {
        let form = "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11";
        for written in [
            form,
            " A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0eebc999c0b4ef8bb6d6bb9bd380a11",
        ] {
            assert_eq!(uuid(written).as_deref(), Some(form), "{written}");
        }
        for wrong in ["", "x", "a0eebc99", "{a0eebc999c0b4ef8bb6d6bb9bd380a11", "a0eebc99--9c0b-4ef8-bb6d-6bb9bd380a11"]
        {
            assert_eq!(uuid(wrong), None, "{wrong}");
        }
        assert_eq!(uuid(&format!("{form}1")), None);
        assert_eq!(uuid(&format!("{form}-")), None);
    }
}
