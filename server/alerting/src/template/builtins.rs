//! The built-in functions of Go's templates.

use std::cmp::Ordering;

use super::escape::{html_escape, js_escape, query_escape};
use super::execution::Call;
use super::value::{ListKind, Value, sprint};
use super::{Function, Functions, Param, printf};

type Outcome = Result<Value, String>;

/// An entry of a table of functions.
pub(super) const fn function(
    name: &'static str,
    params: &'static [Param],
    call: fn(&mut Call<'_, '_>, &[Value]) -> Outcome,
) -> Function {
    Function { name, params, variadic: false, call }
}

/// An entry for a function whose last parameter may be there any number of times.
pub(super) const fn variadic(
    name: &'static str,
    params: &'static [Param],
    call: fn(&mut Call<'_, '_>, &[Value]) -> Outcome,
) -> Function {
    Function { name, params, variadic: true, call }
}

/// Go's own functions.
pub static BUILTINS: Functions = &[
    // Evaluated before their arguments are, so the entries are only for checks.
    variadic("and", &[Param::Any], |_, _| Ok(Value::Nil)),
    variadic("or", &[Param::Any], |_, _| Ok(Value::Nil)),
    function("not", &[Param::Any], |_, args| Ok(Value::Bool(!args[0].truth()))),
    variadic("call", &[Param::Any, Param::Any], |_, args| match &args[0] {
        Value::Nil => Err("call of nil".to_owned()),
        value => Err(format!("non-function of type {}", value.type_name())),
    }),
    function("len", &[Param::Any], |_, args| length(&args[0])),
    variadic("index", &[Param::Any, Param::Any], |_, args| index(args)),
    variadic("slice", &[Param::Any, Param::Any], |_, args| slice(args)),
    variadic("print", &[Param::Any], |call, args| {
        call.fits(args)?;
        made(call, args, sprint(args))
    }),
    variadic("println", &[Param::Any], |call, args| {
        call.fits(args)?;
        let texts: Vec<String> = args.chunks(1).map(sprint).collect();
        made(call, args, texts.join(" ") + "\n")
    }),
    variadic("printf", &[Param::Text, Param::Any], |call, args| {
        call.fits(args)?;
        let form = args[0].as_text().cloned().unwrap_or_default();
        printf::format(&form, &args[1..], |bytes| call.make(bytes)).map(Value::text)
    }),
    variadic("html", &[Param::Any], |call, args| {
        call.fits(args)?;
        let text = html_escape(&shown(args));
        made(call, args, text)
    }),
    variadic("js", &[Param::Any], |call, args| {
        call.fits(args)?;
        let text = js_escape(&shown(args));
        made(call, args, text)
    }),
    variadic("urlquery", &[Param::Any], |call, args| {
        call.fits(args)?;
        let text = query_escape(&shown(args));
        made(call, args, text)
    }),
    variadic("eq", &[Param::Any, Param::Any], |_, args| {
        let (first, rest) = args.split_first().ok_or("missing argument for comparison")?;
        if rest.is_empty() {
            return Err("missing argument for comparison".to_owned());
        }
        for other in rest {
            if equal(first, other)? {
                return Ok(Value::Bool(true));
            }
        }
        Ok(Value::Bool(false))
    }),
    function("ne", &[Param::Any, Param::Any], |_, args| Ok(Value::Bool(!equal(&args[0], &args[1])?))),
    function("lt", &[Param::Any, Param::Any], |_, args| Ok(Value::Bool(less(&args[0], &args[1])?))),
    function("le", &[Param::Any, Param::Any], |_, args| {
        Ok(Value::Bool(less(&args[0], &args[1])? || equal(&args[0], &args[1])?))
    }),
    function("gt", &[Param::Any, Param::Any], |_, args| {
        Ok(Value::Bool(!(less(&args[0], &args[1])? || equal(&args[0], &args[1])?)))
    }),
    function("ge", &[Param::Any, Param::Any], |_, args| Ok(Value::Bool(!less(&args[0], &args[1])?))),
];

fn made(call: &mut Call<'_, '_>, args: &[Value], text: String) -> Outcome {
    call.make(args.len())?;
    Ok(Value::text(text))
}

/// Joins arguments to one string; nil is printed as in a template.
fn shown(args: &[Value]) -> String {
    let printable = |arg: &Value| if *arg == Value::Nil { Value::text("<no value>") } else { arg.clone() };
    sprint(&args.iter().map(printable).collect::<Vec<_>>())
}

fn length(value: &Value) -> Outcome {
    let length = match value {
        Value::Text(text) | Value::Safe(_, text) => text.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => map.entries.len(),
        Value::Nil => return Err("len of nil pointer".to_owned()),
        other => return Err(format!("len of type {}", other.type_name())),
    };
    Ok(Value::Int(length as i64))
}

/// An index within `length`. As in Go, `length` itself passes, and is left to the caller to check.
fn place(index: &Value, length: usize) -> Result<usize, String> {
    let wanted = match index {
        Value::Int(i) => i128::from(*i),
        Value::Uint(u) => i128::from(*u),
        Value::Nil => return Err("cannot index slice/array with nil".to_owned()),
        other => return Err(format!("cannot index slice/array with type {}", other.type_name())),
    };
    usize::try_from(wanted).ok().filter(|i| *i <= length).ok_or_else(|| format!("index out of range: {wanted}"))
}

fn index(args: &[Value]) -> Outcome {
    let (first, rest) = args.split_first().ok_or("missing argument")?;
    let mut value = first.clone();
    if value == Value::Nil {
        return Err("index of untyped nil".to_owned());
    }
    for key in rest {
        value = match &value {
            Value::List(list) => {
                let at = place(key, list.items.len())?;
                list.items.get(at).cloned().ok_or("reflect: slice index out of range")?
            }
            Value::Text(text) => {
                let at = place(key, text.len())?;
                let byte = text.as_bytes().get(at).ok_or("reflect: string index out of range")?;
                Value::Uint(u64::from(*byte))
            }
            Value::Map(map) => {
                let name = match key {
                    Value::Text(name) => name,
                    Value::Nil => return Err("value is nil; should be of type string".to_owned()),
                    other => return Err(format!("value has type {}; should be string", other.type_name())),
                };
                map.entries.get(&**name).cloned().unwrap_or_else(|| map.kind.zero())
            }
            other => return Err(format!("can't index item of type {}", other.type_name())),
        };
    }
    Ok(value)
}

fn slice(args: &[Value]) -> Outcome {
    let (value, bounds) = args.split_first().ok_or("missing argument")?;
    if bounds.len() > 3 {
        return Err(format!("too many slice indexes: {}", bounds.len()));
    }
    let length = match value {
        Value::Text(_) if bounds.len() == 3 => return Err("cannot 3-index slice a string".to_owned()),
        Value::Text(text) => text.len(),
        Value::List(list) => list.items.len(),
        Value::Nil => return Err("slice of untyped nil".to_owned()),
        other => return Err(format!("can't slice item of type {}", other.type_name())),
    };
    let mut places = [0, length, length];
    for (slot, bound) in places.iter_mut().zip(bounds) {
        *slot = place(bound, length)?;
    }
    let [from, to, cap] = places;
    if from > to {
        return Err(format!("invalid slice index: {from} > {to}"));
    }
    if to > cap {
        return Err(format!("invalid slice index: {to} > {cap}"));
    }
    match value {
        // A cut within a character leaves invalid UTF-8, which is shown as when printed.
        Value::Text(text) => Ok(Value::text(String::from_utf8_lossy(&text.as_bytes()[from..to]))),
        Value::List(list) => Ok(Value::list(list.kind, list.items[from..to].to_vec())),
        _ => Ok(Value::Nil),
    }
}

/// Comparable types.
#[derive(Debug, Clone, Copy)]
enum Basic<'a> {
    Bool(bool),
    Int(i64),
    Uint(u64),
    Float(f64),
    Text(&'a str),
}

fn basic(value: &Value) -> Option<Basic<'_>> {
    Some(match value {
        Value::Bool(value) => Basic::Bool(*value),
        Value::Int(value) | Value::Duration(value) | Value::Named(_, value, _) => Basic::Int(*value),
        Value::Uint(value) => Basic::Uint(*value),
        Value::Float(value) => Basic::Float(*value),
        Value::Text(text) | Value::Safe(_, text) => Basic::Text(text),
        _ => return None,
    })
}

fn incompatible(a: &Value, b: &Value) -> String {
    format!("incompatible types for comparison: {} and {}", a.type_name(), b.type_name())
}

fn equal(a: &Value, b: &Value) -> Result<bool, String> {
    match (basic(a), basic(b)) {
        (Some(Basic::Bool(a)), Some(Basic::Bool(b))) => Ok(a == b),
        (Some(Basic::Int(a)), Some(Basic::Int(b))) => Ok(a == b),
        (Some(Basic::Uint(a)), Some(Basic::Uint(b))) => Ok(a == b),
        (Some(Basic::Float(a)), Some(Basic::Float(b))) => Ok(a == b),
        (Some(Basic::Text(a)), Some(Basic::Text(b))) => Ok(a == b),
        (Some(Basic::Int(a)), Some(Basic::Uint(b))) | (Some(Basic::Uint(b)), Some(Basic::Int(a))) => {
            Ok(u64::try_from(a) == Ok(b))
        }
        _ if *a == Value::Nil || *b == Value::Nil => Ok(a == b),
        (Some(_), _) | (_, Some(_)) => Err(incompatible(a, b)),
        (None, None) => match (a, b) {
            (Value::List(_) | Value::Map(_), _) | (_, Value::List(_) | Value::Map(_)) => {
                Err(format!("non-comparable type {}: {}", b.printed(), b.type_name()))
            }
            _ => Ok(a == b),
        },
    }
}

fn less(a: &Value, b: &Value) -> Result<bool, String> {
    const INVALID: &str = "invalid type for comparison";
    let (x, y) = (basic(a).ok_or(INVALID)?, basic(b).ok_or(INVALID)?);
    match (x, y) {
        (Basic::Int(x), Basic::Int(y)) => Ok(x < y),
        (Basic::Uint(x), Basic::Uint(y)) => Ok(x < y),
        (Basic::Float(x), Basic::Float(y)) => Ok(x.partial_cmp(&y) == Some(Ordering::Less)),
        (Basic::Text(x), Basic::Text(y)) => Ok(x < y),
        (Basic::Int(x), Basic::Uint(y)) => Ok(x < 0 || (x as u64) < y),
        (Basic::Uint(x), Basic::Int(y)) => Ok(y >= 0 && x < y as u64),
        (Basic::Bool(_), Basic::Bool(_)) => Err(INVALID.to_owned()),
        _ => Err(incompatible(a, b)),
    }
}

/// Joins the strings of a list. The size of the result is charged first, because a long separator is repeated many times.
pub(super) fn joined(call: &mut Call<'_, '_>, list: &Value, separator: &str) -> Outcome {
    let texts = texts_of(list);
    let separators = separator.len().saturating_mul(texts.len().saturating_sub(1));
    call.make(texts.iter().map(String::len).fold(separators, usize::saturating_add))?;
    Ok(Value::text(texts.join(separator)))
}

/// The strings of a list.
pub(super) fn texts_of(value: &Value) -> Vec<String> {
    match value {
        Value::List(list) if matches!(list.kind, ListKind::Texts | ListKind::Strings) => {
            list.items.iter().filter_map(|item| item.as_text().map(ToString::to_string)).collect()
        }
        _ => Vec::new(),
    }
}
