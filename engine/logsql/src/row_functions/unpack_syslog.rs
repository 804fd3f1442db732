//! `unpack_syslog`: RFC 3164 (also with times of RFC 3339) and RFC 5424, with and without priority; messages in CEE (JSON)
//! and CEF.

use serde::{Deserialize, Serialize};

use super::fields::Fields;
use super::json::object_fields;
use super::unpack_logfmt::unpack_logfmt;
use crate::kernels::values::{parse_rfc3339, parse_u64, push_rfc3339, push_rfc3339_millis};

const SECOND_NS: i64 = 1_000_000_000;

const LEVELS: [&str; 8] = ["emerg", "alert", "critical", "error", "warning", "notice", "info", "debug"];

const FACILITIES: [&str; 24] = [
    "kern",
    "user",
    "mail",
    "daemon",
    "auth",
    "syslog",
    "lpr",
    "news",
    "uucp",
    "cron",
    "authpriv",
    "ftp",
    "ntp",
    "security",
    "console",
    "solaris-cron",
    "local0",
    "local1",
    "local2",
    "local3",
    "local4",
    "local5",
    "local6",
    "local7",
];

/// What a message does not say of its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SyslogContext {
    /// The time of the evaluation, Unix nanoseconds: a message without a year is of the last year that is not in the
    /// future.
    pub now_ns: i64,
    /// The zone of times without one, nanoseconds east of UTC.
    pub zone_ns: i64,
}

/// Appends the fields of a message. A text that is of neither form is a message of the older one; an empty text has no
/// fields.
pub fn unpack_syslog(value: &str, ctx: SyslogContext, out: &mut Fields) {
    let value = value.trim_start_matches([' ', '\t', '\n', '\r']);
    let Some(tail) = value.strip_prefix('<') else {
        after_priority(value, ctx, out);
        return;
    };
    let Some((priority_text, rest)) = tail.split_once('>') else { return };
    out.push("priority", priority_text);
    let Some(priority) = parse_u64(priority_text) else { return };
    let (facility, severity) = (priority / 8, priority % 8);
    let facility_name = usize::try_from(facility).ok().and_then(|i| FACILITIES.get(i)).copied();
    out.push("facility_keyword", facility_name.unwrap_or("unknown"));
    out.push("level", LEVELS[severity as usize]);
    out.push("facility", &facility.to_string());
    out.push("severity", &severity.to_string());
    after_priority(rest, ctx, out);
}

fn after_priority(text: &str, ctx: SyslogContext, out: &mut Fields) {
    if text.is_empty() {
        return;
    }
    match text.strip_prefix("1 ") {
        Some(rest) => rfc5424(rest, out),
        None => rfc3164(text, ctx, out),
    }
}

fn rfc5424(text: &str, out: &mut Fields) {
    out.push("format", "rfc5424");
    let mut rest = text;
    if rest.is_empty() {
        return;
    }
    for name in ["timestamp", "hostname", "app_name", "proc_id", "msg_id"] {
        let Some((value, tail)) = rest.split_once(' ') else {
            out.push(name, rest);
            return;
        };
        out.push(name, value);
        rest = tail;
    }
    if let Some(text) = structured_data(rest, out) {
        message(text, out);
    }
}

/// The message, or the fields that it holds.
fn message(text: &str, out: &mut Fields) {
    let known = out.len();
    let done = match text.split_once(':') {
        Some(("@cee", json)) => object_fields(json, &[], out),
        Some(("CEF", event)) => cef(event, out).is_some(),
        _ => false,
    };
    if !done {
        out.truncate(known);
        out.push("message", text);
    }
}

/// Reads `version|vendor|product|version|class|name|severity|key=value key=value`.
fn cef(text: &str, out: &mut Fields) -> Option<()> {
    const HEAD: [&str; 7] = [
        "cef.version",
        "cef.device_vendor",
        "cef.device_product",
        "cef.device_version",
        "cef.device_event_class_id",
        "cef.name",
        "cef.severity",
    ];
    let mut rest = text;
    for name in HEAD {
        let end = find_unescaped(rest, b'|')?;
        out.push(name, &unescape_cef(&rest[..end]));
        rest = &rest[end + 1..];
    }
    while !rest.is_empty() {
        let end = find_unescaped(rest, b'=')?;
        let name = format!("cef.extension.{}", unescape_cef(&rest[..end]));
        rest = &rest[end + 1..];
        // A value may hold blanks: it ends before the key of the next one.
        let Some(next) = find_unescaped(rest, b'=') else {
            out.push(&name, rest);
            break;
        };
        let end = rest[..next].rfind(' ')?;
        out.push(&name, &unescape_cef(&rest[..end]));
        rest = &rest[end + 1..];
    }
    Some(())
}

/// Where a sign stands that has no odd number of backslashes before it.
fn find_unescaped(text: &str, sign: u8) -> Option<usize> {
    let bytes = text.as_bytes();
    memchr::memchr_iter(sign, bytes).find(|&at| bytes[..at].iter().rev().take_while(|&&b| b == b'\\').count() % 2 == 0)
}

fn unescape_cef(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        out.push(match c {
            '\\' => match chars.next() {
                Some('n') => '\n',
                Some('r') => '\r',
                Some(other) => other,
                None => '\\',
            },
            c => c,
        });
    }
    out
}

/// `-`, or elements in brackets; gives the message after them.
fn structured_data<'a>(text: &'a str, out: &mut Fields) -> Option<&'a str> {
    if let Some(message) = text.strip_prefix("- ") {
        return Some(message);
    }
    if text.starts_with("@cee:") {
        return Some(text);
    }
    let mut rest = text;
    loop {
        rest = element(rest, out)?;
        if let Some(message) = rest.strip_prefix(' ') {
            return Some(message);
        }
    }
}

/// One element: `[id name="value" ..]`; its fields are `id.name`.
fn element<'a>(text: &'a str, out: &mut Fields) -> Option<&'a str> {
    let text = text.strip_prefix('[')?;
    let id_end = text.find([' ', ']'])?;
    let (mut id, params) = (&text[..id_end], &text[id_end..]);
    let length = params_length(params)?;
    if let Some((name, value)) = id.split_once('=') {
        out.push(name, value);
        id = "";
    }
    let mut fields = Fields::default();
    unpack_logfmt(&params[..length].trim().replace("\\]", "]"), &mut fields);
    if fields.is_empty() && !id.is_empty() {
        out.push(id, "");
    }
    for (name, value) in fields.iter() {
        if id.is_empty() {
            out.push(name, value);
        } else {
            out.push(&format!("{id}.{name}"), value);
        }
    }
    Some(&params[length + 1..])
}

/// The length of the parameters up to the bracket that closes the element.
fn params_length(params: &str) -> Option<usize> {
    let bytes = params.as_bytes();
    let mut at = 0;
    loop {
        match bytes.get(at)? {
            b']' if at == 0 || bytes[at - 1] != b'\\' => return Some(at),
            b' ' => at += 1,
            _ => {
                at += memchr::memchr(b'=', &bytes[at..])? + 1;
                if *bytes.get(at)? == b'"' {
                    at += 1;
                    while *bytes.get(at)? != b'"' {
                        // What is escaped ends nothing, and a backslash that is escaped escapes nothing.
                        at += if bytes[at] == b'\\' { 2 } else { 1 };
                    }
                    at += 1;
                } else {
                    at += memchr::memchr2(b' ', b']', &bytes[at..])?;
                }
            }
        }
    }
}

fn rfc3164(text: &str, ctx: SyslogContext, out: &mut Fields) {
    out.push("format", "rfc3164");
    let Some(rest) = time(text, ctx, out) else {
        message(text, out);
        return;
    };
    let Some(rest) = rest.strip_prefix(' ') else {
        if !rest.is_empty() {
            message(rest, out);
        }
        return;
    };
    // A host has neither sign: where one is, it is missing, and this is the tag already.
    let (first, after) = rest.split_once(' ').map_or((rest, None), |(host, rest)| (host, Some(rest)));
    let rest = if first.contains([':', '[']) {
        rest
    } else {
        out.push("hostname", first);
        let Some(after) = after else { return };
        after
    };
    let Some(end) = rest.find(['[', ':', ' ']) else {
        out.push("app_name", rest);
        return;
    };
    let app_name = &rest[..end];
    out.push("app_name", app_name);
    let mut rest = &rest[end..];
    if let Some(tail) = rest.strip_prefix('[') {
        let Some((id, tail)) = tail.split_once(']') else { return };
        out.push("proc_id", id);
        rest = tail;
    }
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    let known = out.len();
    if rest.is_empty() || app_name == "CEF" && cef(rest, out).is_some() {
        return;
    }
    out.truncate(known);
    message(rest, out);
}

/// The time at the beginning; gives what follows it.
fn time<'a>(text: &'a str, ctx: SyslogContext, out: &mut Fields) -> Option<&'a str> {
    if text.len() >= 15 && text.as_bytes()[10] == b'T' {
        let end = text.find(' ')?;
        let ns = parse_rfc3339(&text[..end])?;
        out.push_with("timestamp", |value| push_rfc3339(value, ns));
        return Some(&text[end..]);
    }
    let ns = text.get(..15).and_then(|t| time_without_year(t, ctx))?;
    out.push_with("timestamp", |value| push_rfc3339_millis(value, ns));
    Some(&text[15..])
}

/// Days of the months, in a year that has all of them.
const MONTH_DAYS: [i64; 12] = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/// `Jun  3 12:08:33`
fn time_without_year(text: &str, ctx: SyslogContext) -> Option<i64> {
    use quiver_types::time::calendar::{date_of, days_of};
    let b = text.as_bytes();
    let month = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        .iter()
        .position(|m| m.as_bytes().eq_ignore_ascii_case(&b[..3]))?;
    let digit = |i: usize| b[i].is_ascii_digit().then(|| i64::from(b[i] - b'0'));
    let two = |i: usize| Some(digit(i)? * 10 + digit(i + 1)?);
    let day = if b[4] == b' ' { digit(5)? } else { two(4)? };
    let (hour, minute, second) = (two(7)?, two(10)?, two(13)?);
    let marks = b[3] == b' ' && b[6] == b' ' && b[9] == b':' && b[12] == b':';
    if !marks || !(1..=MONTH_DAYS[month]).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let now = ctx.now_ns.div_euclid(SECOND_NS);
    let (year, ..) = date_of(now.div_euclid(86_400));
    let of_year = |year: i64| {
        let days = days_of(year, month as u32 + 1, 1) + day - 1;
        days * 86_400 + hour * 3600 + minute * 60 + second - ctx.zone_ns.div_euclid(SECOND_NS)
    };
    // A day ahead is a clock that is wrong or another zone; more is a message of last year.
    let this_year = of_year(year);
    let seconds = if this_year - 86_400 > now { of_year(year - 1) } else { this_year };
    seconds.checked_mul(SECOND_NS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::values::parse_rfc3339;
    use crate::row_functions::pack::pack_logfmt;

    fn check(value: &str, want: &str) {
        let now_ns = parse_rfc3339("2024-12-20T00:00:00Z").unwrap();
        let mut fields = Fields::default();
        unpack_syslog(value, SyslogContext { now_ns, zone_ns: 0 }, &mut fields);
        let mut out = String::new();
        pack_logfmt(fields.iter(), &mut out);
        assert_eq!(out, want, "{value}");
    }

    #[test]
    fn older_form() {
        let priority = "priority=165 facility_keyword=local4 level=notice facility=20 severity=5";
        let time = "timestamp=2024-06-03T12:08:33.000Z";
        check(
            "<165>Jun  3 12:08:33 abcd systemd[1]: Starting Update",
            &format!(
                "{priority} format=rfc3164 {time} hostname=abcd app_name=systemd proc_id=1 message=\"Starting Update\""
            ),
        );
        check("Jun  3 12:08:33 - - Starting", &format!("format=rfc3164 {time} hostname=- app_name=- message=Starting"));
        check("Foo  3 12:08:33", "format=rfc3164 message=\"Foo  3 12:08:33\"");
        check("Jun  3 12:08:33 abcd sudo", &format!("format=rfc3164 {time} hostname=abcd app_name=sudo"));
        check(
            "Jun  3 12:08:33 abcd sudo[123]",
            &format!("format=rfc3164 {time} hostname=abcd app_name=sudo proc_id=123"),
        );
        check("Dec 31 12:08:33", "format=rfc3164 timestamp=2023-12-31T12:08:33.000Z");
        check("", "");
        check("<abc", "");
        check("<999>", "priority=999 facility_keyword=unknown level=debug facility=124 severity=7");
        check("foobar", "format=rfc3164 message=foobar");
        check(" \t foobar", "format=rfc3164 message=foobar");
        let time = "timestamp=2023-06-03T15:42:32.5Z";
        check(
            "2023-06-03T17:42:32.5+02:00 host app[7]: hi there",
            &format!("format=rfc3164 {time} hostname=host app_name=app proc_id=7 message=\"hi there\""),
        );
        check("2023-06-03T17:42:32.5+02:00", "format=rfc3164 message=2023-06-03T17:42:32.5+02:00");
        let time = "timestamp=2024-06-03T12:08:33.000Z";
        check("Jun  3 12:08:33 app[7]: hi", &format!("format=rfc3164 {time} app_name=app proc_id=7 message=hi"));
        check("Jun  3 12:08:33 app: hi", &format!("format=rfc3164 {time} app_name=app message=hi"));
        check("Jun  3 12:08:33 app:", &format!("format=rfc3164 {time} app_name=app"));
        check(
            "Jun  3 12:08:33 h app: @cee: {\"a\":{\"b\":1}}",
            &format!("format=rfc3164 {time} hostname=h app_name=app a.b=1"),
        );
        check("@cee: {", "format=rfc3164 message=\"@cee: {\"");
        check(
            "Jun  3 12:08:33 h CEF:0|v\\|w|p|1.0|100|n|10|src=1.2.3.4 msg=a b\\=c dst=2",
            &format!(
                "format=rfc3164 {time} hostname=h app_name=CEF cef.version=0 cef.device_vendor=v|w cef.device_product=p \
                 cef.device_version=1.0 cef.device_event_class_id=100 cef.name=n cef.severity=10 \
                 cef.extension.src=1.2.3.4 cef.extension.msg=\"a b=c\" cef.extension.dst=2"
            ),
        );
        check("CEF:0|no", "format=rfc3164 message=CEF:0|no");
    }

    #[test]
    fn times_without_a_year() {
        let check = |now: &str, zone_hours: i64, time: &str, want: Option<&str>| {
            let ctx =
                SyslogContext { now_ns: parse_rfc3339(now).expect("a time"), zone_ns: zone_hours * 3600 * SECOND_NS };
            let mut fields = Fields::default();
            unpack_syslog(time, ctx, &mut fields);
            assert_eq!(fields.get("timestamp"), want, "{time} at {now}");
            // What is no time is a message as a whole.
            assert_eq!(fields.get("message"), if want.is_some() { None } else { Some(time) }, "{time}");
        };
        let now = "2024-12-20T00:00:00Z";
        check(now, 0, "Dec 20 00:00:00", Some("2024-12-20T00:00:00.000Z"));
        // A day ahead is of this year yet.
        check(now, 0, "Dec 21 00:00:00", Some("2024-12-21T00:00:00.000Z"));
        check(now, 0, "Dec 21 00:00:01", Some("2023-12-21T00:00:01.000Z"));
        check(now, 0, "feb 29 23:59:59", Some("2024-02-29T23:59:59.000Z"));
        check(now, 0, "JAN 01 00:00:00", Some("2024-01-01T00:00:00.000Z"));
        check(now, 2, "Jun  3 01:00:00", Some("2024-06-02T23:00:00.000Z"));
        check(now, -5, "Jun  3 20:00:00", Some("2024-06-04T01:00:00.000Z"));
        check("2024-01-01T00:00:00Z", 2, "Jan  1 01:00:00", Some("2023-12-31T23:00:00.000Z"));
        check("1970-01-01T00:00:00Z", 0, "Jan  3 00:00:00", Some("1969-01-03T00:00:00.000Z"));
        for none in [
            "Feb 30 00:00:00",
            "Apr 31 00:00:00",
            "Jan 32 00:00:00",
            "Jan  0 00:00:00",
            "Jan 00 00:00:00",
            "Jun  3 24:00:00",
            "Jun  3 00:60:00",
            "Jun  3 00:00:60",
            "Jun  3 00-00:00",
            "Jun  3  0:00:00",
            "Jun 3 00:00:00",
            "Jün  3 00:00:00",
            "Jun  ٣ 00:00:00",
        ] {
            check(now, 0, none, None);
        }
    }

    #[test]
    fn priorities() {
        let of = |priority: &str| format!("priority={priority} ");
        check(
            "<0>x",
            &format!("{}facility_keyword=kern level=emerg facility=0 severity=0 format=rfc3164 message=x", of("0")),
        );
        check("<191>", &format!("{}facility_keyword=local7 level=debug facility=23 severity=7", of("191")));
        check("<192>", &format!("{}facility_keyword=unknown level=emerg facility=24 severity=0", of("192")));
        let most = "18446744073709551615";
        let facility = "facility=2305843009213693951 severity=7";
        check(&format!("<{most}>"), &format!("{}facility_keyword=unknown level=debug {facility}", of(most)));
        // What is no number ends it.
        check("<01>x", "priority=01");
        check("<-1>x", "priority=-1");
        check("<>x", "");
        check("<1", "");
    }

    #[test]
    fn parts_that_are_missing() {
        check("1 ", "format=rfc5424");
        check("1 t h", "format=rfc5424 timestamp=t hostname=h");
        let head = "format=rfc5424 timestamp=- hostname=- app_name=- proc_id=- msg_id=-";
        check("1 - - - - - -", head);
        check("1 - - - - - - ", head);
        check("1 - - - - - - x", &format!("{head} message=x"));
        check("1 - - - - - x", head);
        check("1 - - - - - [a] x", &format!("{head} message=x"));
        check("1 - - - - - [a=b] x", &format!("{head} a=b message=x"));
        check("1 - - - - - [a=b c=\"d\"][e f=g] x", &format!("{head} a=b c=d e.f=g message=x"));
        check("1 - - - - - [a b=\"c\"]x", &format!("{head} a.b=c"));
        check("1 - - - - - @cee: {\"a\":\"b\"}", &format!("{head} a=b"));
        check("1 - - - - - - CEF:0|v|p|1|c|n|s|", &format!("{head} {CEF}"));
        let time = "timestamp=2024-06-03T12:08:33.000Z";
        check("Jun  3 12:08:33", &format!("format=rfc3164 {time}"));
        check("Jun  3 12:08:33x y", &format!("format=rfc3164 {time} message=\"x y\""));
        check("Jun  3 12:08:33 ", &format!("format=rfc3164 {time}"));
        check("Jun  3 12:08:33 h app[7", &format!("format=rfc3164 {time} hostname=h app_name=app"));
        check("Jun  3 12:08:33 h app[]:x", &format!("format=rfc3164 {time} hostname=h app_name=app message=x"));
    }

    const CEF: &str = "cef.version=0 cef.device_vendor=v cef.device_product=p cef.device_version=1 \
                       cef.device_event_class_id=c cef.name=n cef.severity=s";

    #[test]
    fn events_of_security_devices() {
        check("CEF:0|v|p|1|c|n|s|", &format!("format=rfc3164 {CEF}"));
        check("CEF:0|v|p|1|c|n|s|a=b", &format!("format=rfc3164 {CEF} cef.extension.a=b"));
        check(
            "CEF:0|v|p|1|c|n|s|a=b c d=e",
            &format!("format=rfc3164 {CEF} cef.extension.a=\"b c\" cef.extension.d=e"),
        );
        check("CEF:0|v|p|1|c|n|s|a= d=e", &format!("format=rfc3164 {CEF} cef.extension.d=e"));
        check(
            r"CEF:0|v|p|1|c|n|s|a=x\ny\\ d=e",
            &format!(r#"format=rfc3164 {CEF} cef.extension.a="x\ny\\" cef.extension.d=e"#),
        );
        // Text that is not a valid event becomes a message, with everything that was read of it.
        for none in
            ["CEF:0|v|p|1|c|n|s", "CEF:0|v|p|1|c|n|s|a", "CEF:0|v|p|1|c|n|s|a=b=c", r"CEF:0\|v|p|1|c|n|s|", "CEF:"]
        {
            let mut fields = Fields::default();
            unpack_syslog(none, SyslogContext { now_ns: 0, zone_ns: 0 }, &mut fields);
            assert_eq!(fields.iter().collect::<Vec<_>>(), [("format", "rfc3164"), ("message", none)]);
        }
    }

    #[test]
    fn values_end_with_their_quotes() {
        let fields = |elements: &str| {
            let mut fields = Fields::default();
            let line = format!("1 2023-06-03T17:42:32Z h app 1 ID {elements} msg");
            unpack_syslog(&line, SyslogContext { now_ns: 0, zone_ns: 0 }, &mut fields);
            fields.iter().skip(6).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(fields(r#"[a b="C:\\" c="d"]"#), [r"a.b=C:\", "a.c=d", "message=msg"]);
        assert_eq!(fields(r#"[a b="x\\\"]"][c d="e"]"#), [r#"a.b=x\"]"#, "c.d=e", "message=msg"]);
        assert_eq!(fields(r#"[a b="\""]"#), [r#"a.b=""#, "message=msg"]);
        assert_eq!(fields(r#"[a b=""]"#), ["a.b=", "message=msg"]);
        // One that does not end is no element, nor is what follows it.
        assert_eq!(fields(r#"[a b="C:\"]"#), Vec::<String>::new());
        assert_eq!(fields(r#"[a b="c\\\"#), Vec::<String>::new());
    }

    #[test]
    fn newer_form() {
        let head = "format=rfc5424 timestamp=2023-06-03T17:42:32.123456789Z hostname=m.example.com app_name=app proc_id=12345 msg_id=ID47";
        let line = "1 2023-06-03T17:42:32.123456789Z m.example.com app 12345 ID47";
        check(&format!("{line} - A message."), &format!("{head} message=\"A message.\""));
        check(line, head);
        check(&format!("{line} [foo@123]"), head);
        check(
            &format!("{line} [ex@1 iut=\"3\" src=\"App 1 = ] 5\\]6\" id=\"1\"][b c=\"d\"] msg"),
            &format!("{head} ex@1.iut=3 ex@1.src=\"App 1 = ] 5]6\" ex@1.id=1 b.c=d message=msg"),
        );
        check(
            &format!("{line} [sd@51059 project=\"secret\" ] x"),
            &format!("{head} sd@51059.project=secret message=x"),
        );
        check("1 2023-06-03T17:42:32.123456789Z", "format=rfc5424 timestamp=2023-06-03T17:42:32.123456789Z");
    }
}
