//! Checks nested objects and values of simple types.

use serde_json::{Map, Value, json};

use super::{CheckResult, Field, LABEL_CHARS_MAX, Mode, text, wrong_type};
use crate::problem::{FieldError, shown};

/// Longest free-form JSON, as text, in bytes.
const JSON_BYTES_MAX: usize = 64 << 10;
/// Longest slug, in characters.
const SLUG_CHARS_MAX: usize = 100;

/// Units of durations in milliseconds, greatest first.
const UNITS: [(&str, u64); 7] = [
    ("y", 31_536_000_000),
    ("w", 604_800_000),
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];

/// Checks an object, adds defaults for missing members, and refuses unknown ones.
pub(super) fn object(fields: &'static [Field], value: &Value, place: &str, errors: &mut Vec<FieldError>) -> Value {
    let Value::Object(map) = value else {
        errors.push(FieldError::new(place, "INVALID_TYPE", "must be an object"));
        return Value::Null;
    };
    for key in map.keys().filter(|key| fields.iter().all(|f| f.name != **key)) {
        let at = format!("{place}/{}", shown(key).replace('~', "~0").replace('/', "~1"));
        errors.push(FieldError::new(at, "UNKNOWN_FIELD", "there is no such field"));
    }
    let mut made = Map::new();
    for field in fields {
        let at = format!("{place}/{}", field.name);
        let value = if let Some(value) = map.get(field.name).filter(|v| !v.is_null()) {
            field.kind.check(value, &at, errors)
        } else {
            if field.mode == Mode::Required {
                errors.push(FieldError::new(at, "REQUIRED", "is required"));
            }
            field.default_value()
        };
        made.insert(field.name.to_owned(), value);
    }
    Value::Object(made)
}

pub(super) fn word(value: &Value, words: &[&str]) -> CheckResult {
    match value.as_str() {
        Some(word) if words.contains(&word) => Ok(json!(word)),
        Some(_) => Err(("INVALID_VALUE", format!("must be one of {}", words.join(", ")))),
        None => wrong_type("a text"),
    }
}

pub(super) fn int(value: &Value, min: i64, max: i64) -> CheckResult {
    let out = || Err(("OUT_OF_RANGE", format!("must be from {min} to {max}")));
    match value {
        Value::Number(number) => match number.as_i64() {
            Some(n) if (min..=max).contains(&n) => Ok(json!(n)),
            Some(_) => out(),
            // `7.0` is an integer; anything beyond 64 bits is out of range.
            None => match number.as_f64() {
                Some(n) if n.fract() == 0.0 && n.abs() < 9e15 => int(&json!(n as i64), min, max),
                Some(n) if n.fract() == 0.0 => out(),
                _ => wrong_type("a whole number"),
            },
        },
        _ => wrong_type("a whole number"),
    }
}

pub(super) fn number(value: &Value, min: f64, max: f64) -> CheckResult {
    match value.as_f64() {
        Some(n) if n.is_finite() && (min..=max).contains(&n) => Ok(value.clone()),
        Some(_) => Err(("OUT_OF_RANGE", format!("must be from {min} to {max}"))),
        None => wrong_type("a number"),
    }
}

pub(super) fn slug(value: &Value) -> CheckResult {
    let key = text(value, 1, SLUG_CHARS_MAX)?;
    let first = key.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "_-.".contains(c);
    if first && key.chars().all(plain) {
        return Ok(Value::String(key));
    }
    Err((
        "PATTERN",
        "must be of lower-case letters, digits, `_`, `-` and `.`, and begin with one of the first two".to_owned(),
    ))
}

/// Parses a duration in the notation of Prometheus; `None` if it is invalid.
pub fn duration_ms(text: &str) -> Option<u64> {
    if text == "0" {
        return Some(0);
    }
    let (mut rest, mut total, mut below) = (text, 0_u64, UNITS.len() + 1);
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let number: u64 = rest[..digits].parse().ok()?;
        let behind = &rest[digits..];
        let end = behind.find(|c: char| c.is_ascii_digit()).unwrap_or(behind.len());
        let place = UNITS.iter().position(|(unit, _)| *unit == &behind[..end])?;
        // Each unit at most once, in descending order.
        if below <= UNITS.len() && place <= below {
            return None;
        }
        below = place;
        total = total.checked_add(number.checked_mul(UNITS[place].1)?)?;
        rest = &behind[end..];
    }
    Some(total)
}

pub(super) fn duration(value: &Value) -> CheckResult {
    length_of_time(value, value.as_str())
}

/// Checks a duration that may be negative.
pub(super) fn offset(value: &Value) -> CheckResult {
    length_of_time(value, value.as_str().map(|text| text.strip_prefix('-').unwrap_or(text)))
}

fn length_of_time(value: &Value, length: Option<&str>) -> CheckResult {
    match length.map(duration_ms) {
        Some(Some(_)) => Ok(value.clone()),
        Some(None) => Err(("INVALID_DURATION", "must be a length of time like `24h` or `1d12h`".to_owned())),
        None => wrong_type("a text"),
    }
}

pub(super) fn json(value: &Value) -> CheckResult {
    if value.to_string().len() > JSON_BYTES_MAX {
        return Err(("TOO_LONG", format!("must have at most {JSON_BYTES_MAX} bytes")));
    }
    Ok(value.clone())
}

pub(super) fn map(value: &Value, max: usize) -> CheckResult {
    let Value::Object(map) = value else { return wrong_type("an object") };
    if map.len() > max {
        return Err(("LIMIT_EXCEEDED", format!("must have at most {max} entries, has {}", map.len())));
    }
    if let Some(key) = map.keys().find(|key| key.is_empty() || key.chars().count() > LABEL_CHARS_MAX) {
        return Err(("INVALID_VALUE", format!("`{}` is no name", shown(key))));
    }
    json(value)
}

#[cfg(test)]
mod tests {
    use super::super::FieldKind;
    use super::super::tests::check;
    use super::*;

    #[test]
    fn plain_kinds() {
        check(FieldKind::Word(&["a", "b"]), json!("a"), Ok(json!("a")));
        check(FieldKind::Word(&["a", "b"]), json!("c"), Err(("/f", "INVALID_VALUE")));
        let int = FieldKind::Int { min: 0, max: 10 };
        check(int, json!(7.0), Ok(json!(7)));
        check(int, json!(11), Err(("/f", "OUT_OF_RANGE")));
        check(int, json!(1e300), Err(("/f", "OUT_OF_RANGE")));
        check(int, json!(1.5), Err(("/f", "INVALID_TYPE")));
        check(int, json!("7"), Err(("/f", "INVALID_TYPE")));
        check(FieldKind::Number { min: 0.0, max: 1.0 }, json!(1.5), Err(("/f", "OUT_OF_RANGE")));
        check(FieldKind::Slug, json!("a-b_c.1"), Ok(json!("a-b_c.1")));
        for wrong in ["A", "-a", "a b", "é"] {
            check(FieldKind::Slug, json!(wrong), Err(("/f", "PATTERN")));
        }
        check(FieldKind::Map { max: 1 }, json!({"a": 1, "b": 2}), Err(("/f", "LIMIT_EXCEEDED")));
        check(FieldKind::Json, json!("x".repeat(70_000)), Err(("/f", "TOO_LONG")));
        check(FieldKind::Condition, json!({"any": []}), Err(("/f/any", "REQUIRED")));
    }

    #[test]
    fn durations() {
        for (text, ms) in [("24h", 86_400_000), ("1d12h", 129_600_000), ("500ms", 500), ("0", 0), ("0s", 0)] {
            assert_eq!(duration_ms(text), Some(ms), "{text}");
        }
        for wrong in ["", "h", "1", "1h1d", "1h1h", "-1h", "1.5h", "99999999999999999999h", "9999999999999999999y"] {
            assert_eq!(duration_ms(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn offsets() {
        check(FieldKind::Offset, json!("-1m30s"), Ok(json!("-1m30s")));
        check(FieldKind::Offset, json!("1m30s"), Ok(json!("1m30s")));
        check(FieldKind::Offset, json!("--1s"), Err(("/f", "INVALID_DURATION")));
        check(FieldKind::Duration, json!("-1s"), Err(("/f", "INVALID_DURATION")));
    }

    #[test]
    fn objects() {
        const FIELDS: &[Field] = &[
            Field::required("a", FieldKind::Int { min: 0, max: 9 }),
            Field::open("b", FieldKind::Word(&["x", "y"]), "\"x\""),
        ];
        let list = FieldKind::List { of: FIELDS, max: 2 };
        check(FieldKind::Object(FIELDS), json!({"a": 1}), Ok(json!({"a": 1, "b": "x"})));
        check(FieldKind::Object(FIELDS), json!({"b": null}), Err(("/f/a", "REQUIRED")));
        check(FieldKind::Object(FIELDS), json!({"a": 1, "c/d": 1}), Err(("/f/c~1d", "UNKNOWN_FIELD")));
        check(list, json!([{"a": 1}, {"a": 2, "b": "z"}]), Err(("/f/1/b", "INVALID_VALUE")));
        check(list, json!([{"a": 1}, {"a": 1}, {"a": 1}]), Err(("/f", "LIMIT_EXCEEDED")));
        check(list, json!([7]), Err(("/f/0", "INVALID_TYPE")));
    }

    /// The limit itself is accepted, one more is refused.
    #[test]
    fn bounds() {
        let int = FieldKind::Int { min: -5, max: 5 };
        for (value, is_good) in
            [(json!(-5), true), (json!(5), true), (json!(-6), false), (json!(6), false), (json!(-0.0), true)]
        {
            let mut errors = Vec::new();
            int.check(&value, "/f", &mut errors);
            assert_eq!(errors.is_empty(), is_good, "{value}");
        }
        let wide = FieldKind::Int { min: i64::MIN, max: i64::MAX };
        check(wide, json!(i64::MIN), Ok(json!(i64::MIN)));
        check(wide, json!(i64::MAX), Ok(json!(i64::MAX)));
        check(wide, json!(u64::MAX), Err(("/f", "OUT_OF_RANGE")));
        check(wide, json!(-1e300), Err(("/f", "OUT_OF_RANGE")));
        check(wide, json!(null), Err(("/f", "INVALID_TYPE")));
        let number = FieldKind::Number { min: 0.001, max: 100.0 };
        check(number, json!(0.001), Ok(json!(0.001)));
        check(number, json!(100), Ok(json!(100)));
        check(number, json!(0), Err(("/f", "OUT_OF_RANGE")));
        check(number, json!(100.001), Err(("/f", "OUT_OF_RANGE")));
        check(number, json!("1"), Err(("/f", "INVALID_TYPE")));
        check(FieldKind::Slug, json!("a".repeat(SLUG_CHARS_MAX)), Ok(json!("a".repeat(SLUG_CHARS_MAX))));
        check(FieldKind::Slug, json!("a".repeat(SLUG_CHARS_MAX + 1)), Err(("/f", "TOO_LONG")));
        check(FieldKind::Slug, json!(""), Err(("/f", "REQUIRED")));
        check(FieldKind::Slug, json!(5), Err(("/f", "INVALID_TYPE")));
        check(FieldKind::Slug, json!("0.a-b_c"), Ok(json!("0.a-b_c")));
        check(FieldKind::Slug, json!(".a"), Err(("/f", "PATTERN")));
        let of_bytes = |bytes: usize| json!("x".repeat(bytes - 2));
        check(FieldKind::Json, of_bytes(JSON_BYTES_MAX), Ok(of_bytes(JSON_BYTES_MAX)));
        check(FieldKind::Json, of_bytes(JSON_BYTES_MAX + 1), Err(("/f", "TOO_LONG")));
    }

    #[test]
    fn maps() {
        let map = FieldKind::Map { max: 2 };
        check(map, json!({}), Ok(json!({})));
        check(map, json!({"a": [1], "b": null}), Ok(json!({"a": [1], "b": null})));
        check(map, json!({"a": 1, "b": 2, "c": 3}), Err(("/f", "LIMIT_EXCEEDED")));
        check(map, json!({"": 1}), Err(("/f", "INVALID_VALUE")));
        check(map, json!({"x".repeat(LABEL_CHARS_MAX): 1}), Ok(json!({"x".repeat(LABEL_CHARS_MAX): 1})));
        check(map, json!({"x".repeat(LABEL_CHARS_MAX + 1): 1}), Err(("/f", "INVALID_VALUE")));
        check(map, json!([]), Err(("/f", "INVALID_TYPE")));
        check(map, json!({"a": "x".repeat(JSON_BYTES_MAX)}), Err(("/f", "TOO_LONG")));
    }

    #[test]
    fn lengths_of_time() {
        for (text, ms) in [
            ("1ms", Some(1)),
            ("1y2w3d4h5m6s7ms", Some(33_019_506_007)),
            ("1h0m", Some(3_600_000)),
            ("007s", Some(7000)),
            ("584542046y", Some(18_434_117_962_656_000_000)),
            ("584942418y", None),
            ("18446744073709551615ms", Some(u64::MAX)),
            ("18446744073709551616ms", None),
            ("1ms1s", None),
            ("1H", None),
            ("1 h", None),
            ("h1", None),
            ("1hh", None),
            ("00", None),
            ("+1h", None),
        ] {
            assert_eq!(duration_ms(text), ms, "{text}");
        }
    }

    /// Errors are reported for each object, with its place.
    #[test]
    fn objects_within_objects() {
        const INNER: &[Field] = &[Field::required("n", FieldKind::Int { min: 0, max: 9 })];
        const OUTER: &[Field] = &[
            Field::open("one", FieldKind::Object(INNER), "null"),
            Field::open("many", FieldKind::List { of: INNER, max: 3 }, "[]"),
        ];
        let object = FieldKind::Object(OUTER);
        check(object, json!({}), Ok(json!({"one": null, "many": []})));
        check(object, json!({"one": null, "many": null}), Ok(json!({"one": null, "many": []})));
        check(object, json!({"one": {"n": 1}, "many": [{"n": 2}]}), Ok(json!({"one": {"n": 1}, "many": [{"n": 2}]})));
        for (value, expected) in [
            (json!({"one": {}}), &["/f/one/n REQUIRED"][..]),
            (json!({"one": {"n": 10}}), &["/f/one/n OUT_OF_RANGE"][..]),
            (json!({"one": []}), &["/f/one INVALID_TYPE"][..]),
            (json!({"many": {}}), &["/f/many INVALID_TYPE"][..]),
            (json!({"many": [{"n": 1}, {"m": 1}]}), &["/f/many/1/m UNKNOWN_FIELD", "/f/many/1/n REQUIRED"][..]),
            (json!({"One": {"n": 1}}), &["/f/One UNKNOWN_FIELD"][..]),
            (json!({"a~/b": 1}), &["/f/a~0~1b UNKNOWN_FIELD"][..]),
            (json!("x"), &["/f INVALID_TYPE"][..]),
        ] {
            let mut errors = Vec::new();
            object.check(&value, "/f", &mut errors);
            let found: Vec<String> = errors.iter().map(|e| format!("{} {}", e.field, e.code)).collect();
            assert_eq!(found, expected, "{value}");
        }
    }
}
