//! Functions of PostgreSQL that are expressed by other functions.

use datafusion::sql::sqlparser::ast::{DataType, Expr, Value};
use quiver_types::{Error, Result};

use super::expressions::{calculates, call, copied, expr, is_null, literal, number, text};
use super::{bytes, decimals};
use crate::error::unsupported;

/// A call for the planner; `None` if it knows the function, or there is no such function.
pub(super) fn written(name: &str, args: &[Expr]) -> Result<Option<Expr>> {
    Ok(Some(match (name, args) {
        ("quote_nullable", [value]) => expr(&format!("coalesce(quote_literal({value}), 'NULL')"))?,
        // The planner's `make_time` takes only whole seconds.
        ("make_time", [hour, minute, second]) => expr(&format!(
            "CAST(CAST(make_date(2000, 1, 1) AS TIMESTAMP) + time_of_day({hour}, {minute}, {second}, true) AS TIME)"
        ))?,
        ("jsonb_set_lax", [document, path, value, others @ ..]) if others.len() <= 2 => {
            set_or_without(document, path, value, others)?
        }
        ("regexp_instr", [text, pattern, from, which, end, others @ ..]) if is_end(end) => {
            place_found(&[text, pattern, from, which], end, others)?
        }
        ("unistr", [value]) => {
            let written = literal(value);
            let written = written.ok_or_else(|| unsupported("`unistr` reads texts that are written out"))?;
            text(&unescaped(written).ok_or_else(|| Error::invalid(format!("invalid Unicode escape: \"{written}\"")))?)
        }
        ("trim_array", [list, count]) => {
            let left = format!("items_left(CAST(cardinality({list}) AS BIGINT), CAST({count} AS BIGINT))");
            expr(&format!("CASE WHEN ({count}) IS NOT NULL THEN array_slice({list}, 1, {left}) END"))?
        }
        ("chr", [code]) => call("chr", vec![call("letter_code", vec![code.clone()])]),
        ("array_dims", [list]) => {
            copied(list, 2)?;
            let ends = format!("array_to_string(array_dims({list}), '][1:')");
            expr(&format!("CASE WHEN cardinality({list}) > 0 THEN '[1:' || {ends} || ']' END"))?
        }
        // An empty list has no dimensions.
        ("array_ndims", [list]) => {
            copied(list, 2)?;
            expr(&format!("CASE WHEN cardinality({list}) > 0 THEN array_ndims({list}) END"))?
        }
        ("justify_hours" | "justify_days" | "justify_interval", [value]) if literal(value).is_some() => {
            expr(&format!("{name}(CAST({value} AS INTERVAL))"))?
        }
        ("scale" | "min_scale" | "trim_scale", [value]) => {
            let Some(exact) = literal(value).map_or_else(|| decimals::exact(value), decimals::decimal) else {
                return Ok(None);
            };
            call(name, vec![exact])
        }
        // Halves of a double are rounded to even. Other numbers round away from zero, as the planner does.
        ("round", [value]) if is_double(value) => call("to_whole", vec![value.clone()]),
        // As a double, 1.005 is a little less.
        ("round", [value, digits]) => {
            let places = literal(digits).and_then(|digits| digits.parse().ok()).unwrap_or(0);
            let Some(exact) = decimals::of_places(value, places) else { return Ok(None) };
            call("round", vec![exact, digits.clone()])
        }
        // 32-bit integers: the planner would print negative ones with 64 bits.
        ("to_hex", [value]) if is_integer(value) => expr(&format!("to_hex(CAST({value} AS BIGINT) & 4294967295)"))?,
        // A literal without a type is read as bytes, as in a cast to `bytea`.
        ("sha224" | "sha256" | "sha384" | "sha512", [bytes]) => {
            let Some(bytes) = bytes::written(bytes)? else { return Ok(None) };
            call(name, vec![bytes])
        }
        ("convert_from" | "encode" | "get_byte" | "set_byte", [bytes, others @ ..])
            if literal(bytes).is_some_and(|letters| letters.contains('\\')) =>
        {
            let Some(bytes) = bytes::written(bytes)? else { return Ok(None) };
            let args: Vec<Expr> = [bytes].into_iter().chain(others.iter().cloned()).collect();
            // It is no literal any more.
            return Ok(Some(written(name, &args)?.unwrap_or_else(|| call(name, args))));
        }
        ("btrim" | "ltrim" | "rtrim", [within, other]) if bytes::is_bytes(within) && literal(other).is_some() => {
            let (mut within, mut other) = (within.clone(), other.clone());
            bytes::read_text_operand(&mut within, &mut other)?;
            call(name, vec![within, other])
        }
        ("encode", [bytes, form]) if is_word(form, "escape") => call("bytes_escaped", vec![bytes.clone()]),
        ("decode", [text, form]) if is_word(form, "escape") => call("bytes_unescaped", vec![text.clone()]),
        // The planner omits the padding unless it is asked for.
        ("encode", [bytes, form]) if is_word(form, "base64") => call("encode", vec![bytes.clone(), text("base64pad")]),
        ("regexp_match", [_, pattern, ..]) if literal(pattern).is_some_and(may_lack) => matched(args.to_vec()),
        _ => return Ok(None),
    }))
}

/// `jsonb_set_lax(document, path, value, create, treatment)`: `jsonb_set`, and what a text says of a value that is NULL.
fn set_or_without(document: &Expr, path: &Expr, value: &Expr, others: &[Expr]) -> Result<Expr> {
    let (create, treatment) = match others {
        [create, treatment] => {
            let written = literal(treatment).filter(|word| TREATMENTS.contains(word));
            (Some(create), written.ok_or_else(|| Error::invalid(NO_TREATMENT))?)
        }
        others => (others.first(), "use_json_null"),
    };
    let set = |value: Expr| {
        let args = [document.clone(), path.clone(), value].into_iter().chain(create.cloned());
        call("jsonb_set", args.collect())
    };
    let is_missing = is_null(value) || matches!(value, Expr::Cast { expr, .. } if is_null(expr));
    if literal(value).is_some() {
        return Ok(set(value.clone()));
    }
    let other = match treatment {
        "use_json_null" if is_missing => return Ok(set(text("null"))),
        "use_json_null" => return Ok(set(call("coalesce", vec![value.clone(), text("null")]))),
        "delete_key" => call("jsonb_less_path", vec![document.clone(), path.clone()]),
        "return_target" => call("json_normal", vec![document.clone()]),
        _ if is_missing => return Err(Error::invalid("JSON value must not be null")),
        _ => return Err(unsupported("`raise_exception` of `jsonb_set_lax` is about values that are written out here")),
    };
    if is_missing {
        return Ok(other);
    }
    copied(value, 3)?;
    copied(document, 2)?;
    let kept = set(value.clone());
    Ok(call("json_normal", vec![expr(&format!("CASE WHEN ({value}) IS NULL THEN {other} ELSE {kept} END"))?]))
}

/// What `jsonb_set_lax` may do with a value that is NULL.
const TREATMENTS: [&str; 4] = ["use_json_null", "delete_key", "return_target", "raise_exception"];
const NO_TREATMENT: &str = "null_value_treatment must be \"delete_key\", \"return_target\", \"use_json_null\", or \
                            \"raise_exception\"";

/// Whether a fifth argument of `regexp_instr` says which end of a place is asked for; the planner has flags there.
fn is_end(value: &Expr) -> bool {
    matches!(value, Expr::Value(value) if matches!(value.value, Value::Number(..)))
}

/// `regexp_instr(text, pattern, from, which, end, flags, group)`: the planner knows it without the end.
fn place_found(args: &[&Expr; 4], end: &Expr, others: &[Expr]) -> Result<Expr> {
    let mut args: Vec<Expr> = args.iter().map(|arg| (*arg).clone()).collect();
    args.extend(others.iter().cloned());
    // The planner's function has groups of the first place alone.
    let is_plain = |number: Option<&Expr>, word: &str| number.is_none_or(|number| literal(number) == Some(word));
    if !is_plain(args.get(5), "0") && !is_plain(args.get(3), "1") {
        return Err(unsupported("`regexp_instr` finds groups of the first place only"));
    }
    let place = call("regexp_instr", args.clone());
    match literal(end) {
        Some("0") => Ok(place),
        Some("1") => {
            copied(&place, 3)?;
            let found = call("regexp_substr", args);
            expr(&format!("CASE WHEN {place} > 0 THEN {place} + length({found}) ELSE {place} END"))
        }
        _ => Err(Error::invalid(format!("invalid value for parameter \"endoption\": {end}"))),
    }
}

/// A text in which `\0061`, `\u0061`, `\+000061` and `\U00000061` are letters, in pairs of surrogates, too; `None` if one of
/// them is no letter.
fn unescaped(text: &str) -> Option<String> {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    let mut high: Option<u32> = None;
    while let Some((before, escaped)) = rest.split_once('\\') {
        if high.is_some() && !before.is_empty() {
            return None;
        }
        out.push_str(before);
        if let Some(behind) = escaped.strip_prefix('\\').filter(|_| high.is_none()) {
            out.push('\\');
            rest = behind;
            continue;
        }
        let (begin, digits) = match escaped.chars().next()? {
            'u' => (1, 4),
            '+' => (1, 6),
            'U' => (1, 8),
            _ => (0, 4),
        };
        let code = escaped.get(begin..begin + digits)?;
        rest = escaped.get(begin + digits..)?;
        let code: u32 =
            if code.bytes().all(|digit| digit.is_ascii_hexdigit()) { u32::from_str_radix(code, 16).ok()? } else { 0 };
        let code = match high.take() {
            Some(high) if (0xDC00..0xE000).contains(&code) => 0x1_0000 + ((high - 0xD800) << 10) + (code - 0xDC00),
            Some(_) => return None,
            None if (0xD800..0xDC00).contains(&code) => {
                high = Some(code);
                continue;
            }
            None => code,
        };
        out.push(char::from_u32(code).filter(|letter| *letter != '\0')?);
    }
    out.push_str(rest);
    high.is_none().then_some(out)
}

/// The groups of the first match of a pattern. The planner's function omits groups that did not match, which shifts
/// the others.
pub(super) fn matched(args: Vec<Expr>) -> Expr {
    if args.get(1).and_then(literal).is_some_and(may_lack) {
        call("array_element", vec![call("regexp_groups", args), number(1)])
    } else {
        call("regexp_match", args)
    }
}

/// Whether a pattern has groups that may not take part in a match, because they or groups around them are optional.
fn may_lack(pattern: &str) -> bool {
    pattern.contains('(') && [")?", ")*", "){", "|"].into_iter().any(|sign| pattern.contains(sign))
}

fn is_word(value: &Expr, word: &str) -> bool {
    literal(value).is_some_and(|text| text.eq_ignore_ascii_case(word))
}

/// Whether the statement itself shows that a value is a double.
pub(super) fn is_double(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_double(inner),
        Expr::Cast { data_type, .. } => matches!(
            data_type,
            DataType::DoublePrecision | DataType::Double(_) | DataType::Float8 | DataType::Real | DataType::Float4
        ),
        Expr::UnaryOp { expr, .. } => is_double(expr),
        Expr::BinaryOp { left, op, right } if calculates(op) => is_double(left) || is_double(right),
        _ => false,
    }
}

/// Whether the statement itself shows that a value is an integer of at most 32 bits.
fn is_integer(value: &Expr) -> bool {
    match value {
        Expr::Nested(inner) => is_integer(inner),
        // The least one has one more digit than the greatest.
        Expr::UnaryOp { expr: inner, .. } => is_integer(inner) || literal(inner) == Some("2147483648"),
        Expr::Value(value) => {
            matches!(&value.value, Value::Number(digits, _) if digits.parse::<i32>().is_ok())
        }
        Expr::Cast { data_type, .. } => matches!(
            data_type,
            DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) | DataType::SmallInt(_) | DataType::Int2(_)
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_written_by_their_numbers() {
        for (written, expected) in [
            (r"d\0061t\+000061", Some("data")),
            (r"\u0441\U0000043B", Some("сл")),
            (r"\d83d\de00 \\ ä", Some("😀 \\ ä")),
            ("", Some("")),
            (r"\006", None),
            (r"\0000", None),
            (r"\00é1", None),
            (r"\+0000-1", None),
            (r"\d83d", None),
            (r"\d83dx\de00", None),
            (r"\de00", None),
            (r"a\", None),
        ] {
            assert_eq!(unescaped(written).as_deref(), expected, "{written}");
        }
    }
}
