//! `unpack_syslog`: RFC 3164 and RFC 5424, with and without priority.

use super::Fields;
use super::unpack_logfmt::unpack_logfmt;
use crate::kernels::values::{parse_u64, push_rfc3339_millis};

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
#[derive(Debug, Clone, Copy)]
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
    if let Some(message) = structured_data(rest, out) {
        out.push("message", message);
    }
}

/// `-`, or elements in brackets; gives the message after them.
fn structured_data<'a>(text: &'a str, out: &mut Fields) -> Option<&'a str> {
    if let Some(message) = text.strip_prefix("- ") {
        return Some(message);
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
                    while bytes.get(at).is_some_and(|&b| b != b'"' || bytes[at - 1] == b'\\') {
                        at += 1;
                    }
                    bytes.get(at)?;
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
    let Some(ns) = text.get(..15).and_then(|t| time_without_year(t, ctx)) else {
        out.push("message", text);
        return;
    };
    out.push_with("timestamp", |value| push_rfc3339_millis(value, ns));
    let Some(rest) = text[15..].strip_prefix(' ') else {
        if text.len() > 15 {
            out.push("message", &text[15..]);
        }
        return;
    };
    let Some((host, rest)) = rest.split_once(' ') else {
        out.push("hostname", rest);
        return;
    };
    out.push("hostname", host);
    let Some(end) = rest.find(['[', ':', ' ']) else {
        out.push("app_name", rest);
        return;
    };
    out.push("app_name", &rest[..end]);
    let mut rest = &rest[end..];
    if let Some(tail) = rest.strip_prefix('[') {
        let Some((id, tail)) = tail.split_once(']') else { return };
        out.push("proc_id", id);
        rest = tail;
    }
    let rest = rest.strip_prefix(':').unwrap_or(rest);
    let rest = rest.strip_prefix(' ').unwrap_or(rest);
    if !rest.is_empty() {
        out.push("message", rest);
    }
}

/// `Jun  3 12:08:33`
fn time_without_year(text: &str, ctx: SyslogContext) -> Option<i64> {
    use crate::kernels::values::calendar::{civil_from_days, days_from_civil};
    let b = text.as_bytes();
    let month = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
        .iter()
        .position(|m| m.as_bytes().eq_ignore_ascii_case(&b[..3]))?;
    let digit = |i: usize| b[i].is_ascii_digit().then(|| i64::from(b[i] - b'0'));
    let two = |i: usize| Some(digit(i)? * 10 + digit(i + 1)?);
    let day = if b[4] == b' ' { digit(5)? } else { two(4)? };
    let (hour, minute, second) = (two(7)?, two(10)?, two(13)?);
    let marks = b[3] == b' ' && b[6] == b' ' && b[9] == b':' && b[12] == b':';
    if !marks || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let now = ctx.now_ns.div_euclid(SECOND_NS);
    let (year, ..) = civil_from_days(now.div_euclid(86_400));
    let of_year = |year: i64| {
        let days = days_from_civil(year, month as u32 + 1, 1) + day - 1;
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
    use crate::rowfn::pack::pack_logfmt;

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
