//! Template functions of messages, and the default templates, as in Alertmanager.
//!
//! `default.tmpl` and `email.tmpl` are Alertmanager's own (Apache-2.0), since templates of migrating users refer to
//! their names.

use std::collections::BTreeMap;

use base64::alphabet::URL_SAFE;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::{DecodeError, Engine as _};

use super::builtins::{function, joined, variadic};
use super::escape::query_unescape;
use super::execution::Call;
use super::humanize::{humanize_duration, lower, title, to_float, upper};
use super::prometheus::{re_match, re_replace_all, text};
use super::time::{Time, parse};
use super::value::{ListKind, MapKind, Safe, Value};
use super::{Functions, Param, RouteLabels, Templates};

type Outcome = Result<Value, String>;

/// The default templates, which every message may use.
pub fn default_templates() -> Templates {
    let mut templates = Templates::new(MESSAGE_FUNCTIONS);
    for (name, text) in [("default.tmpl", include_str!("default.tmpl")), ("email.tmpl", include_str!("email.tmpl"))] {
        templates.add(name, text).expect("a test parses them");
    }
    templates
}

fn time_of(value: &Value) -> Time {
    match value {
        Value::Time(time) => *time,
        _ => Time::zero(),
    }
}

/// Functions of messages.
pub static MESSAGE_FUNCTIONS: Functions = &[
    function("toUpper", &[Param::Text], |_, args| Ok(Value::text(upper(&text(args, 0))))),
    function("toLower", &[Param::Text], |_, args| Ok(Value::text(lower(&text(args, 0))))),
    function("title", &[Param::Text], |_, args| Ok(Value::text(title(&text(args, 0))))),
    function("trimSpace", &[Param::Text], |_, args| Ok(Value::text(text(args, 0).trim()))),
    function("join", &[Param::Text, Param::Texts], |call, args| joined(call, &args[1], &text(args, 0))),
    function("match", &[Param::Text, Param::Text], re_match),
    function("reReplaceAll", &[Param::Text, Param::Text, Param::Text], re_replace_all),
    function("safeHtml", &[Param::Text], |_, args| Ok(Value::Safe(Safe::Html, text(args, 0)))),
    function("safeUrl", &[Param::Text], |_, args| Ok(Value::Safe(Safe::Url, text(args, 0)))),
    function("urlUnescape", &[Param::Text], |_, args| query_unescape(&text(args, 0)).map(Value::text)),
    variadic("stringSlice", &[Param::Text], |_, args| Ok(Value::list(ListKind::Texts, args.to_vec()))),
    variadic("list", &[Param::Any], |call, args| call.held(Value::list(ListKind::Any, args.to_vec()))),
    variadic("append", &[Param::List, Param::Any], |call, args| {
        let mut items = match &args[0] {
            Value::List(list) => list.items.clone(),
            _ => Vec::new(),
        };
        items.extend_from_slice(&args[1..]);
        call.held(Value::list(ListKind::Any, items))
    }),
    variadic("dict", &[Param::Any], dict),
    function("toJson", &[Param::Any], |call, args| {
        call.fits(args)?;
        let mut out = String::new();
        args[0].json(&mut out);
        call.make(out.len())?;
        Ok(Value::text(out))
    }),
    function("base64encode", &[Param::Text], |_, args| Ok(Value::text(BASE64.encode(text(args, 0).as_bytes())))),
    function("base64decode", &[Param::Text], |_, args| {
        let bytes = decode(&text(args, 0))?;
        String::from_utf8(bytes).map(Value::text).map_err(|_| "not UTF-8".to_owned())
    }),
    function("date", &[Param::Text, Param::Time], |call, args| {
        call.follow(&text(args, 0))?;
        let shown = time_of(&args[1]).format(&text(args, 0));
        call.make(shown.len())?;
        Ok(Value::text(shown))
    }),
    function("tz", &[Param::Text, Param::Time], |_, args| time_of(&args[1]).in_zone(&text(args, 0)).map(Value::Time)),
    function("now", &[], |call, _| Ok(Value::Time(Time::from_nanos(call.host().now_ns)))),
    function("since", &[Param::Time], |call, args| {
        let nanos = call.host().now_ns - time_of(&args[0]).nanos();
        Ok(Value::Duration(nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64))
    }),
    function("humanizeDuration", &[Param::Any], |_, args| Ok(Value::text(humanize_duration(to_float(&args[0])?)))),
    function("toDate", &[Param::Text, Param::Text], |call, args| {
        call.follow(&text(args, 0))?;
        Ok(Value::Time(parse(&text(args, 0), &text(args, 1)).unwrap_or_else(|_| Time::zero())))
    }),
    function("mustToDate", &[Param::Text, Param::Text], |call, args| {
        call.follow(&text(args, 0))?;
        parse(&text(args, 0), &text(args, 1)).map(Value::Time)
    }),
    function("routeLabels", &[Param::Text], route_label),
];

fn dict(call: &mut Call<'_, '_>, args: &[Value]) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err("dict requires an even number of arguments".to_owned());
    }
    let mut entries = BTreeMap::new();
    for pair in args.chunks_exact(2) {
        let Value::Text(name) = &pair[0] else { return Err("dict keys must be strings".to_owned()) };
        entries.insert(name.to_string(), pair[1].clone());
    }
    call.held(Value::map(MapKind::Any, entries))
}

/// Gives a label of the route; renders it, if that is yet to be done, and it may refer to others.
fn route_label(call: &mut Call<'_, '_>, args: &[Value]) -> Outcome {
    let name = text(args, 0);
    let raw = match call.host().route_labels {
        None => None,
        Some(RouteLabels::Texts(labels)) => return Ok(Value::text(labels.get(&*name).map_or("", String::as_str))),
        Some(RouteLabels::Templates(labels)) => labels.get(&*name).cloned(),
    };
    let Some(raw) = raw else { return Ok(Value::text("")) };
    if let Some(done) = call.exec.kept.rendered.get(&*name) {
        return Ok(Value::text(done));
    }
    if call.exec.kept.rendering.iter().any(|busy| **busy == *name) {
        let cycle = [call.exec.kept.rendering.join(" -> "), name.to_string()].join(" -> ");
        return Err(format!("route label cycle detected: {cycle}"));
    }
    call.exec.kept.rendering.push(name.to_string());
    let mut templates = call.exec.templates.clone();
    let data = call.exec.data.clone();
    let outcome = match templates.add("", &raw) {
        Ok(()) => call.exec.nested(&templates, "", &data),
        Err(e) => Err(e.to_string()),
    };
    call.exec.kept.rendering.pop();
    let done = outcome?;
    call.exec.kept.rendered.insert(name.to_string(), done.clone());
    Ok(Value::text(done))
}

/// Base64 of URLs as Go has it: padded, and without looking at the bits behind the last byte.
static BASE64: GeneralPurpose =
    GeneralPurpose::new(&URL_SAFE, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

fn decode(text: &str) -> Result<Vec<u8>, String> {
    // Go passes over line breaks.
    let text = text.replace(['\r', '\n'], "");
    BASE64.decode(&text).map_err(|e| {
        let at = match e {
            DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _) => at,
            DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len(),
        };
        format!("illegal base64 data at input byte {at}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_of_urls() {
        for text in ["", "a", "ab", "abc", "häß?>"] {
            assert_eq!(decode(&BASE64.encode(text)).as_deref(), Ok(text.as_bytes()), "{text}");
        }
        assert_eq!(BASE64.encode(b"ab?>"), "YWI_Pg==");
        for (text, expected) in [("YWI_Pg==", &b"ab?>"[..]), ("YW\r\nI=\n", b"ab"), ("YWJ=", b"ab"), ("", b"")] {
            assert_eq!(decode(text).as_deref(), Ok(expected), "{text}");
        }
        for wrong in ["a", "YWI", "YQ", "YQ=", "YQ===", "YW=I", "!!!!", "a+/=", "=", "===="] {
            let told = decode(wrong).unwrap_err();
            assert!(told.starts_with("illegal base64 data at input byte "), "{wrong}: {told}");
        }
        assert!(decode("ab!d").unwrap_err().ends_with("byte 2"));
    }

    #[test]
    fn defaults_parse() {
        let templates = default_templates();
        assert!(templates.names().any(|n| n == "email.default.html"));
    }
}
