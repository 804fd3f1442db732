//! Literals that are cast to `json`, `jsonb` or `uuid`: they are validated before planning, and put in the normal
//! form of their type. Columns are not validated: log messages may be anything, and one that is no JSON is NULL as `jsonb`.

use datafusion::sql::sqlparser::ast::{DataType, ExactNumberInfo, Expr, Select, UnaryOperator, Value};
use quiver_query::functions::{is_document, without_exponent};
use quiver_types::{Error, Result};

use super::expressions::{boolean, call, text};
use super::{data_types, times};
use crate::error::unsupported;
use crate::names::parts;

/// Normalizes a literal that is cast to such a type.
///
/// # Errors
///
/// Invalid: it is no value of the type. Unsupported: the type is one of bit strings.
pub(super) fn formed(data_type: &DataType, place: &mut Expr) -> Result<()> {
    if let DataType::Bit(_) | DataType::BitVarying(_) | DataType::VarBit(_) = data_type {
        return Err(bits(&data_type.to_string().to_lowercase()));
    }
    in_range(data_type, place)?;
    let Expr::Value(value) = &*place else { return Ok(()) };
    let (Value::SingleQuotedString(written) | Value::EscapedStringLiteral(written)) = &value.value else {
        return Ok(());
    };
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

/// Refuses a numeric literal that is too large for a double, which the planner would take for infinity, and a bit string.
///
/// # Errors
///
/// Invalid, Unsupported.
pub(super) fn finite(value: &Value) -> Result<()> {
    match value {
        Value::SingleQuotedByteStringLiteral(written) => Err(bits(&format!("B'{written}'"))),
        // The planner takes it for bytes.
        Value::HexStringLiteral(written) => Err(bits(&format!("X'{written}'"))),
        Value::Number(written, _) if written.parse::<f64>().is_ok_and(f64::is_infinite) => {
            Err(beyond(written, "double precision"))
        }
        _ => Ok(()),
    }
}

fn bits(written: &str) -> Error {
    unsupported(format!(
        "bit strings are not supported: write a number, or bytes such as `'\\x0a'::bytea`, instead of `{written}`"
    ))
}

/// Like [`finite`] for a number or a text that is cast to a floating-point type; numbers that are too small are out
/// of range, too.
fn in_range(data_type: &DataType, value: &Expr) -> Result<()> {
    let is_small = match data_type {
        DataType::Real | DataType::Float4 => true,
        DataType::Float(ExactNumberInfo::Precision(digits)) => *digits <= 24,
        DataType::DoublePrecision | DataType::Double(_) | DataType::Float8 | DataType::Float(_) => false,
        _ => return Ok(()),
    };
    let Some(written) = number_of(value) else { return Ok(()) };
    let number = if is_small { written.trim().parse::<f32>().map(f64::from) } else { written.trim().parse::<f64>() };
    let mut digits = written.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let is_fitting = match number {
        // The literal `Infinity` has no digits.
        Ok(number) if number.is_infinite() => !digits.any(|byte| byte.is_ascii_digit()),
        Ok(0.0) => !digits.any(|byte| matches!(byte, b'1'..=b'9')),
        _ => true,
    };
    if is_fitting { Ok(()) } else { Err(beyond(written, if is_small { "real" } else { "double precision" })) }
}

fn beyond(written: &str, name: &str) -> Error {
    Error::invalid(format!("\"{written}\" is out of range for type {name}"))
}

/// The text of a number, or of a text literal.
fn number_of(value: &Expr) -> Option<&str> {
    match value {
        Expr::Nested(inner) | Expr::UnaryOp { op: UnaryOperator::Minus | UnaryOperator::Plus, expr: inner } => {
            number_of(inner)
        }
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(written) | Value::EscapedStringLiteral(written) | Value::Number(written, _) => {
                Some(written)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Reads a text that stands as a condition: `WHERE 'true'`.
///
/// # Errors
///
/// Invalid: it is no truth value.
pub(super) fn truth(place: &mut Expr) -> Result<()> {
    let Expr::Value(value) = &*place else { return Ok(()) };
    let (Value::SingleQuotedString(written) | Value::EscapedStringLiteral(written)) = &value.value else {
        return Ok(());
    };
    let word = written.trim().to_lowercase();
    let begins = |whole: &str| !word.is_empty() && whole.starts_with(&word);
    // `o` begins both `on` and `off`.
    let is_true = begins("true") || begins("yes") || word == "on" || word == "1";
    let is_false = begins("false") || begins("no") || (begins("off") && word != "o") || word == "0";
    if !is_true && !is_false {
        return Err(Error::invalid(format!("invalid input syntax for type boolean: \"{written}\"")));
    }
    *place = boolean(is_true);
    Ok(())
}

/// Reads the texts that are all of a select's conditions.
///
/// # Errors
///
/// As [`truth`].
pub(super) fn conditions(select: &mut Select) -> Result<()> {
    [&mut select.selection, &mut select.having].into_iter().flatten().try_for_each(truth)
}

/// Rewrites a typed literal (`date '2024-01-01'`, `jsonb '{}'`) for the planner.
///
/// # Errors
///
/// Invalid: it is no value of the type.
pub(super) fn typed(place: &mut Expr) -> Result<()> {
    let Expr::TypedString(typed) = place else { return Ok(()) };
    if let Some(found) = times::special(&typed.data_type, &Expr::Value(typed.value.clone()))? {
        *place = found;
        return Ok(());
    }
    times::complete(&typed.data_type, &mut typed.value.value);
    if let (DataType::Numeric(_) | DataType::Decimal(_), Value::SingleQuotedString(written)) =
        (&typed.data_type, &mut typed.value.value)
        && let Some(digits) = without_exponent(written)
    {
        *written = digits;
    }
    let mut value = Expr::Value(typed.value.clone());
    if let Some(rounded) = times::rounded(&typed.data_type, &value)? {
        *place = rounded;
        return Ok(());
    }
    formed(&typed.data_type, &mut value)?;
    match value {
        Expr::Value(formed) => typed.value = formed,
        // It is no longer a text, which is all that could follow a type.
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

/// A UUID in its canonical form. As in PostgreSQL, there may be a hyphen behind any four digits, and braces around
/// all.
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
    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn numbers_are_in_the_range_of_their_type() {
        for (value, kind, name) in [
            ("'1e400'", DataType::Float8, Some("double precision")),
            ("' -1e400 '", DataType::DoublePrecision, Some("double precision")),
            ("(-1e-400)", DataType::Float8, Some("double precision")),
            ("1e39", DataType::Real, Some("real")),
            ("-1e-60", DataType::Float4, Some("real")),
            ("'1e39'", DataType::Float(ExactNumberInfo::Precision(24)), Some("real")),
            ("'1e39'", DataType::Float(ExactNumberInfo::Precision(25)), None),
            ("'Infinity'", DataType::Real, None),
            ("'0e5'", DataType::Real, None),
            ("0.000", DataType::Float8, None),
            ("'1e400'", DataType::Text, None),
            ("'x'", DataType::Float8, None),
            ("a", DataType::Float8, None),
        ] {
            let refused = in_range(&kind, &expr(value).unwrap()).err().map(|error| error.message);
            let ends = |name: &str| refused.as_ref().is_some_and(|said| said.ends_with(&format!("for type {name}")));
            assert!(name.map_or(refused.is_none(), ends), "{value}: {refused:?}");
        }
        let number = |written: &str| Value::Number(written.to_owned(), false);
        assert_eq!(
            finite(&number("1e400")).unwrap_err().message,
            "\"1e400\" is out of range for type double precision"
        );
        assert!(finite(&number("1e308")).is_ok() && finite(&number("1e-400")).is_ok());
        let bits = [Value::SingleQuotedByteStringLiteral("1010".to_owned()), Value::HexStringLiteral("1F".to_owned())];
        for refused in bits.map(|value| finite(&value).unwrap_err()) {
            assert_eq!(refused.kind, quiver_types::ErrorKind::Unsupported, "{refused}");
        }
        for kind in [DataType::Bit(None), DataType::BitVarying(Some(3)), DataType::VarBit(None)] {
            let refused = formed(&kind, &mut expr("'101'").unwrap()).unwrap_err();
            assert_eq!(refused.kind, quiver_types::ErrorKind::Unsupported, "{refused}");
        }
    }

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
