//! Variables of JSON paths: `jsonb_path_exists(t, '$.a ? (@ > $least)', '{"least": 5}')`. Their values are written into the path.

use datafusion::sql::sqlparser::ast::{Expr, Value};
use quiver_types::{Error, Result};
use serde_json::{Map, Value as Json};

use super::data_types::is_text;
use super::expressions::{arguments, bare, literal, text};
use crate::error::unsupported;

/// Functions that take variables behind a path, and behind these whether errors are hidden.
const FUNCTIONS: [&str; 5] =
    ["jsonb_path_exists", "jsonb_path_match", "jsonb_path_query", "jsonb_path_query_array", "jsonb_path_query_first"];

/// Writes the variables of a call into its path. Returns whether there were any. Whether it is silent about faults of the path
/// is the argument behind these then.
///
/// # Errors
/// Invalid: a variable is not given. Unsupported: one of the arguments is not written out.
pub(super) fn write(name: &str, args: &mut Vec<Expr>) -> Result<bool> {
    if !FUNCTIONS.contains(&name)
        || !(3..=4).contains(&args.len())
        || matches!(args.as_slice(), [_, _, last] if is_truth(last))
    {
        return Ok(false);
    }
    if args.get(3).is_some_and(|silent| !is_truth(silent)) {
        return Err(unsupported(format!("`{name}` takes `true` or `false` that are written out as its last argument")));
    }
    let (Some(path), Some(variables)) = (written(&args[1]), written(&args[2])) else {
        return Err(unsupported(format!("`{name}` takes a path and variables that are written out")));
    };
    let Ok(Json::Object(variables)) = serde_json::from_str(&variables) else {
        return Err(Error::invalid("\"vars\" argument is not an object"));
    };
    args[1] = text(&with_values(&path, &variables)?);
    args.remove(2);
    Ok(true)
}

fn is_truth(value: &Expr) -> bool {
    matches!(value, Expr::Value(value) if matches!(value.value, Value::Boolean(_)))
}

/// The text of a literal, which may have been put in the form of a document.
fn written(value: &Expr) -> Option<String> {
    match value {
        Expr::Cast { expr, data_type, .. } if is_text(data_type) => written(expr),
        Expr::Function(call) if bare(&call.name).as_deref() == Some("json_normal") => {
            written(arguments(&call.args)?.first()?)
        }
        other => literal(other).map(str::to_owned),
    }
}

fn with_values(path: &str, variables: &Map<String, Json>) -> Result<String> {
    let (mut out, mut rest, mut in_text) = (String::with_capacity(path.len()), path, false);
    while let Some(letter) = rest.chars().next() {
        let behind = &rest[letter.len_utf8()..];
        if letter == '\\' && in_text {
            let end = behind.chars().next().map_or(0, char::len_utf8);
            out.push(letter);
            out.push_str(&behind[..end]);
            rest = &behind[end..];
            continue;
        }
        in_text ^= letter == '"';
        let end = behind.find(|next: char| !(next.is_alphanumeric() || next == '_')).unwrap_or(behind.len());
        let name = &behind[..end];
        if letter == '$' && !in_text && !name.is_empty() {
            out.push_str(&value_of(name, variables)?);
            rest = &behind[end..];
        } else {
            out.push(letter);
            rest = behind;
        }
    }
    Ok(out)
}

fn value_of(name: &str, variables: &Map<String, Json>) -> Result<String> {
    match variables.get(name) {
        None => Err(Error::invalid(format!("could not find jsonpath variable \"{name}\""))),
        Some(Json::Array(_) | Json::Object(_)) => {
            Err(unsupported(format!("the jsonpath variable `{name}` is a number, a text, a truth or null")))
        }
        Some(value) => Ok(value.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::expressions::expr;
    use super::*;

    #[test]
    fn variables_are_written_into_paths() {
        let of = |call: &[&str]| {
            let mut args: Vec<Expr> = call.iter().map(|arg| expr(arg).unwrap()).collect();
            write("jsonb_path_query", &mut args)
                .map(|has| (has, args.get(1).map(ToString::to_string).unwrap_or_default()))
        };
        let path = |text: &str| (true, format!("'{text}'"));
        let found = of(&["a", "'$.a ? (@ > $x && @.b == $y_2)'", r#"'{"x": -1.5, "y_2": "q\"r"}'"#]).unwrap();
        assert_eq!(found, path(r#"$.a ? (@ > -1.5 && @.b == "q\"r")"#));
        let found =
            of(&["a", r#"'$."$x" ? (@ == "\"$x" || @ == $x)'"#, r#"json_normal('{"x": null}')"#, "false"]).unwrap();
        assert_eq!(found, path(r#"$."$x" ? (@ == "\"$x" || @ == null)"#));
        assert!(!of(&["a", "'$.a'"]).unwrap().0);
        for (vars, said) in [
            ("'{}'", "could not find"),
            ("'[]'", "not an object"),
            (r#"'{"x": []}'"#, "is a number"),
            ("b", "written out"),
        ] {
            let error = of(&["a", "'$.a == $x'", vars]).unwrap_err();
            assert!(error.message.contains(said), "{vars}: {error}");
        }
        assert_eq!(of(&["a", "'$.a'", "'{}'", "true"]).unwrap(), path("$.a"));
        assert!(!of(&["a", "'$.a'", "true"]).unwrap().0, "they were written already");
        assert!(of(&["a", "'$.a'", "'{}'", "b"]).is_err());
    }
}
