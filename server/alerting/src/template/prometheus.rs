//! Template functions of rules, as in Prometheus, with some names of vmalert.

use std::net::IpAddr;
use std::sync::Arc;

use quiver_types::LabelSet;
use quiver_types::time::duration;

use super::builtins::{function, joined, variadic};
use super::escape::{html_escape, path_escape, query_escape};
use super::execution::Call;
use super::humanize::{
    humanize, humanize_duration, humanize_percentage, humanize_timestamp, humanize1024, lower, title_as_is, to_float,
    to_time, upper,
};
use super::value::{ListKind, MapKind, Safe, Struct, Value};
use super::{Functions, Param};

/// A sample of a query result in templates.
#[derive(Debug, Clone, PartialEq)]
pub struct QueriedSample {
    /// Labels, including the name.
    pub labels: LabelSet,
    /// The value as templates print it: a float, or the text of a histogram.
    pub value: Value,
}

type Outcome = Result<Value, String>;

/// Gives a string argument.
pub(super) fn text(args: &[Value], idx: usize) -> Arc<str> {
    args.get(idx).and_then(Value::as_text).cloned().unwrap_or_default()
}

fn number(args: &[Value], show: fn(f64) -> String) -> Outcome {
    Ok(Value::text(show(to_float(&args[0])?)))
}

/// Functions of rules.
pub static RULE_FUNCTIONS: Functions = &[
    function("query", &[Param::Text], query),
    function("first", &[Param::Query], |_, args| match &args[0] {
        Value::List(list) => {
            list.items.first().cloned().ok_or_else(|| "first() called on vector with no elements".to_owned())
        }
        _ => Err("first() called on vector with no elements".to_owned()),
    }),
    function("label", &[Param::Text, Param::Sample], |_, args| Ok(label(&args[1], &text(args, 0)))),
    function("value", &[Param::Sample], |_, args| Ok(field(&args[0], "Value"))),
    function("strvalue", &[Param::Sample], |_, args| Ok(label(&args[0], "__value__"))),
    function("sortByLabel", &[Param::Text, Param::Query], |_, args| {
        let Value::List(list) = &args[1] else { return Ok(Value::list(ListKind::Query, Vec::new())) };
        let name = text(args, 0);
        let mut items = list.items.clone();
        items.sort_by_cached_key(|sample| label(sample, &name).printed());
        Ok(Value::list(ListKind::Query, items))
    }),
    variadic("args", &[Param::Any], |call, args| {
        let entries = args.iter().enumerate().map(|(i, arg)| (format!("arg{i}"), arg.clone()));
        call.held(Value::map(MapKind::Any, entries.collect()))
    }),
    function("reReplaceAll", &[Param::Text, Param::Text, Param::Text], re_replace_all),
    function("match", &[Param::Text, Param::Text], re_match),
    function("safeHtml", &[Param::Text], |_, args| Ok(Value::Safe(Safe::Html, text(args, 0)))),
    function("title", &[Param::Text], |_, args| Ok(Value::text(title_as_is(&text(args, 0))))),
    function("toUpper", &[Param::Text], |_, args| Ok(Value::text(upper(&text(args, 0))))),
    function("toLower", &[Param::Text], |_, args| Ok(Value::text(lower(&text(args, 0))))),
    function("graphLink", &[Param::Text], |_, args| Ok(link(&text(args, 0), 0))),
    function("tableLink", &[Param::Text], |_, args| Ok(link(&text(args, 0), 1))),
    function("stripPort", &[Param::Text], |_, args| {
        let whole = text(args, 0);
        Ok(Value::text(split_host_port(&whole).map_or(&*whole, |(host, _)| host)))
    }),
    function("stripDomain", &[Param::Text], |_, args| Ok(Value::text(strip_domain(&text(args, 0))))),
    function("humanize", &[Param::Any], |_, args| number(args, humanize)),
    function("humanize1024", &[Param::Any], |_, args| number(args, humanize1024)),
    function("humanizeDuration", &[Param::Any], |_, args| number(args, humanize_duration)),
    function("humanizePercentage", &[Param::Any], |_, args| number(args, humanize_percentage)),
    function("humanizeTimestamp", &[Param::Any], |_, args| humanize_timestamp(to_float(&args[0])?).map(Value::text)),
    function("toTime", &[Param::Any], |_, args| {
        to_time(to_float(&args[0])?)?.map(Value::Time).ok_or_else(|| "value is NaN or Inf".to_owned())
    }),
    function("toDuration", &[Param::Any], |_, args| Ok(Value::Duration((to_float(&args[0])? * 1e9) as i64))),
    function("now", &[], |call, _| {
        // Whole milliseconds, as in Prometheus.
        Ok(Value::Float(call.host().now_ns.div_euclid(1_000_000) as f64 / 1000.0))
    }),
    function("externalURL", &[], |call, _| Ok(Value::text(call.host().external_url))),
    function("pathPrefix", &[], |call, _| Ok(Value::text(path_of(call.host().external_url)))),
    function("parseDuration", &[Param::Text], |_, args| {
        duration::parse_signed(&text(args, 0)).map(|ms| Value::Float(ms as f64 / 1000.0))
    }),
    function("urlQueryEscape", &[Param::Text], |_, args| Ok(Value::text(query_escape(&text(args, 0))))),
    // From vmalert.
    function("queryEscape", &[Param::Text], |_, args| Ok(Value::text(query_escape(&text(args, 0))))),
    function("pathEscape", &[Param::Text], |_, args| Ok(Value::text(path_escape(&text(args, 0))))),
    function("htmlEscape", &[Param::Text], |_, args| Ok(Value::text(html_escape(&text(args, 0))))),
    function("jsonEscape", &[Param::Text], |_, args| {
        let mut out = String::new();
        Value::text(text(args, 0)).json(&mut out);
        Ok(Value::text(out))
    }),
    function("quotesEscape", &[Param::Text], |_, args| {
        let mut out = String::new();
        Value::text(text(args, 0)).json(&mut out);
        Ok(Value::text(&out[1..out.len() - 1]))
    }),
    function("crlfEscape", &[Param::Text], |_, args| {
        Ok(Value::text(text(args, 0).replace('\n', "\\n").replace('\r', "\\r")))
    }),
    function("join", &[Param::Text, Param::Texts], |call, args| joined(call, &args[1], &text(args, 0))),
    function("contains", &[Param::Text, Param::Text], |_, args| {
        Ok(Value::Bool(text(args, 0).contains(&*text(args, 1))))
    }),
    function("parseDurationTime", &[Param::Text], |_, args| {
        duration::parse_signed(&text(args, 0)).map(|ms| Value::Duration(ms.saturating_mul(1_000_000)))
    }),
    function("formatTime", &[Param::Text, Param::Any], |call, args| {
        let time = to_time(to_float(&args[1])?)?.ok_or_else(|| "value is NaN or Inf".to_owned())?;
        call.follow(&text(args, 0))?;
        let shown = time.format(&text(args, 0));
        call.make(shown.len())?;
        Ok(Value::text(shown))
    }),
];

fn query(call: &mut Call<'_, '_>, args: &[Value]) -> Outcome {
    let Some(run) = call.host().query else { return Err("no queries here".to_owned()) };
    let samples = run(&text(args, 0))?;
    call.make(samples.len() * 256)?;
    let items = samples.into_iter().map(|sample| {
        let labels = Value::text_map(MapKind::Texts, sample.labels.iter());
        Value::Struct(Arc::new(Struct {
            type_name: "*template.sample",
            fields: vec![("Labels", "Labels", labels), ("Value", "Value", sample.value)],
        }))
    });
    Ok(Value::list(ListKind::Query, items.collect()))
}

fn field(sample: &Value, name: &str) -> Value {
    match sample {
        Value::Struct(fields) => {
            fields.fields.iter().find(|(field, ..)| *field == name).map_or(Value::Nil, |(_, _, value)| value.clone())
        }
        _ => Value::Nil,
    }
}

fn label(sample: &Value, name: &str) -> Value {
    match field(sample, "Labels") {
        Value::Map(map) => map.entries.get(name).cloned().unwrap_or_else(|| Value::text("")),
        _ => Value::text(""),
    }
}

pub(super) fn re_match(call: &mut Call<'_, '_>, args: &[Value]) -> Outcome {
    let (pattern, whole) = (text(args, 0), text(args, 1));
    call.search(&pattern, &whole)?;
    Ok(Value::Bool(call.exec.regex(&pattern)?.is_match(&whole)))
}

pub(super) fn re_replace_all(call: &mut Call<'_, '_>, args: &[Value]) -> Outcome {
    let (with, whole) = (text(args, 1), text(args, 2));
    call.search(&text(args, 0), &whole)?;
    let pattern = call.exec.regex(&text(args, 0))?;
    // The replacement may contain the whole match many times.
    call.make(
        whole.len().saturating_mul(1 + with.matches('$').count()).saturating_add(with.len() * (whole.len() + 1)),
    )?;
    Ok(Value::text(pattern.replace_all(&whole, &*with)))
}

fn link(expr: &str, tab: u8) -> Value {
    Value::text(format!("/graph?g0.expr={}&g0.tab={tab}", query_escape(expr)))
}

/// The path of a URL, without a trailing slash.
fn path_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let path = rest.find('/').map_or("", |i| &rest[i..]);
    path.split(['?', '#']).next().unwrap_or("")
}

/// Splits `host:port` as Go's `net.SplitHostPort` does.
pub(crate) fn split_host_port(text: &str) -> Option<(&str, &str)> {
    let colon = text.rfind(':')?;
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let end = rest.find(']')?;
        let after = &rest[end + 1..];
        (&rest[..end], after.strip_prefix(':')?)
    } else {
        let host = &text[..colon];
        if host.contains(':') {
            return None;
        }
        (host, &text[colon + 1..])
    };
    if host.contains(['[', ']']) || port.contains(['[', ']', ':']) { None } else { Some((host, port)) }
}

fn strip_domain(whole: &str) -> String {
    let (host, port) = split_host_port(whole).unwrap_or((whole, ""));
    if host.parse::<IpAddr>().is_ok() {
        return whole.to_owned();
    }
    let name = host.split('.').next().unwrap_or(host);
    match port {
        "" => name.to_owned(),
        port if name.contains(':') => format!("[{name}]:{port}"),
        port => format!("{name}:{port}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        let check = |text: &str, expected: &str| assert_eq!(strip_domain(text), expected);
        check("foo.example.com", "foo");
        check("foo.example.com:12345", "foo:12345");
        check("192.0.2.1:12345", "192.0.2.1:12345");
        check("2001:0DB8::1", "2001:0DB8::1");
        check("[2001:0DB8::1]:12345", "[2001:0DB8::1]:12345");
        check("[2001:0DB8::1]::12345", "[2001:0DB8::1]::12345");
        assert_eq!(path_of("http://testhost:9090/path/prefix"), "/path/prefix");
        assert_eq!(path_of("http://testhost:9090"), "");
    }

    /// As Go's `net.SplitHostPort` cuts them.
    #[test]
    fn hosts_and_ports() {
        for (text, expected) in [
            ("h:80", Some(("h", "80"))),
            (":80", Some(("", "80"))),
            ("h:", Some(("h", ""))),
            (":", Some(("", ""))),
            ("[::1]:80", Some(("::1", "80"))),
            ("[fe80::1%eth0]:80", Some(("fe80::1%eth0", "80"))),
            ("[]:80", Some(("", "80"))),
            ("h:http", Some(("h", "http"))),
            ("", None),
            ("h", None),
            ("::1", None),
            ("a:b:80", None),
            ("[::1]", None),
            ("[::1]80", None),
            ("[::1", None),
            ("h]:80", None),
            ("[a]b:80", None),
            ("[[::1]]:80", None),
        ] {
            assert_eq!(split_host_port(text), expected, "{text}");
        }
    }

    #[test]
    fn domains() {
        for (text, expected) in [
            ("", ""),
            ("foo", "foo"),
            ("foo.", "foo"),
            (".foo", ""),
            ("foo:80", "foo:80"),
            ("foo.bar:", "foo"),
            ("127.0.0.1", "127.0.0.1"),
            ("127.0.0.1.nip.io", "127"),
            ("256.0.0.1:80", "256:80"),
            ("::1", "::1"),
            ("[::1]", "[::1]"),
        ] {
            assert_eq!(strip_domain(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_of_urls() {
        for (url, expected) in [
            ("http://h", ""),
            ("http://h/a/b", "/a/b"),
            ("http://h/a?q=/x", "/a"),
            ("http://h/a#f", "/a"),
            ("h/a", "/a"),
            ("", ""),
        ] {
            assert_eq!(path_of(url), expected, "{url}");
        }
        assert_eq!(link("a+b", 1), Value::text("/graph?g0.expr=a%2Bb&g0.tab=1"));
    }
}
