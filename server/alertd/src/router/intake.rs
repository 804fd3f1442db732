//! Alerts as others post them: Alertmanager's flat array, and the envelope of its webhooks (`config-api` 2.8).

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, Utc};
use quiver_alerting::dispatch::Alert;
use quiver_alerting::text::quote;
use quiver_types::LabelSet;
use serde_json::Value;

/// In which form alerts are posted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertForm {
    /// `/api/v2/alerts`: an array.
    Flat,
    /// `/api/v2/alertprocess`: the array stands under `alerts`.
    Envelope,
}

/// What was posted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PostedAlerts {
    /// Alerts that are taken.
    pub alerts: Vec<Alert>,
    /// Why others are not taken, a text for each.
    pub refused: Vec<String>,
    /// What the envelope says of where it comes from.
    pub external_url: String,
    /// What of a flat array is not of the form that Alertmanager's description gives; it takes nothing of such a body.
    pub misfit: Option<String>,
}

/// Most alerts of one body.
const ALERTS_MAX: usize = 50_000;
/// Most bytes of the labels and annotations of an alert.
const ALERT_BYTES_MAX: usize = 64 << 10;
/// Longest URL of a page about an alert, in bytes.
const URL_BYTES_MAX: usize = 64 << 10;
/// Most characters of a text that is refused which are told.
const SHOWN_CHARS_MAX: usize = 100;
/// The year whose beginning stands for all later times, which 64 bits do not count in nanoseconds.
const FAR_YEAR: i32 = 2262;
/// Its beginning.
const FAR_NS: i64 = 9_214_646_400_000_000_000;
/// How long an envelope's alert fires without another word.
const ENVELOPE_NS: i64 = 24 * 3600 * 1_000_000_000;

/// Reads a body.
///
/// # Errors
/// It is no JSON, or has another shape.
pub fn posted(body: &[u8], form: AlertForm, resolve_timeout_ns: i64, now: i64) -> Result<PostedAlerts, String> {
    if form == AlertForm::Flat && body.is_empty() {
        let misfit = Some("alerts in body is required".to_owned());
        return Ok(PostedAlerts { misfit, ..PostedAlerts::default() });
    }
    let value: Value = serde_json::from_slice(body).map_err(|e| format!("parsing alerts body failed: {e}"))?;
    let none = Vec::new();
    let items = match form {
        // As in Alertmanager, which takes it for a list without alerts.
        AlertForm::Flat if value.is_null() => &none,
        AlertForm::Flat => value.as_array().ok_or("an array of alerts is wanted")?,
        AlertForm::Envelope => {
            let envelope = value.as_object().ok_or("a webhook envelope is wanted: an object")?;
            envelope.get("alerts").and_then(Value::as_array).ok_or("a webhook envelope has an array `alerts`")?
        }
    };
    if items.len() > ALERTS_MAX {
        return Err(format!("more than {ALERTS_MAX} alerts in one body"));
    }
    let status = text(&value, "status")?.unwrap_or("firing");
    let external_url = text(&value, "externalURL")?.unwrap_or_default().to_owned();
    let mut out = PostedAlerts { external_url, ..PostedAlerts::default() };
    for (i, item) in items.iter().enumerate() {
        if form == AlertForm::Flat && out.misfit.is_none() {
            out.misfit = misfit(item).map(|what| format!("{i}.{what}"));
        }
        let read = match form {
            AlertForm::Flat => read(item, now, None, now.saturating_add(resolve_timeout_ns)),
            AlertForm::Envelope => match text(item, "status").map(|own| own.unwrap_or(status)) {
                Ok("firing") => read(item, now, None, now.saturating_add(ENVELOPE_NS)),
                Ok("resolved") => read(item, now, Some(now), now),
                // The envelope's own is told for each of its alerts.
                Ok(other) => Err(format!("unknown status {:?}", beginning(other))),
                Err(e) => Err(e),
            },
        };
        match read {
            Ok(alert) => out.alerts.push(alert),
            Err(e) => out.refused.push(format!("alert {i}: {e}")),
        }
    }
    Ok(out)
}

/// Says what of an alert is not of the form that Alertmanager's description gives.
fn misfit(item: &Value) -> Option<String> {
    let url = item.get("generatorURL").and_then(Value::as_str).unwrap_or_default();
    if !url.is_empty() && !is_uri(url) {
        return Some(format!("generatorURL in body must be of type uri: {}", quote(url)));
    }
    let is_bare = item.as_object().is_some_and(|alert| alert.get("labels").is_none_or(Value::is_null));
    is_bare.then(|| "labels in body is required".to_owned())
}

/// The beginning of a text of any length, as messages show it.
fn beginning(text: &str) -> &str {
    let end = text.char_indices().nth(SHOWN_CHARS_MAX).map_or(text.len(), |(at, _)| at);
    &text[..end]
}

/// Whether a text is an absolute URI or path, as Go's `url.ParseRequestURI` takes them.
fn is_uri(text: &str) -> bool {
    if text.bytes().any(|b| b.is_ascii_control()) {
        return false;
    }
    let is_scheme = |scheme: &str| {
        let mut bytes = scheme.bytes();
        bytes.next().is_some_and(|b| b.is_ascii_alphabetic())
            && bytes.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'))
    };
    let (scheme, rest) = match text.split_once(':').filter(|(scheme, _)| is_scheme(scheme)) {
        Some((scheme, rest)) => (scheme, rest),
        None => ("", text),
    };
    let path = rest.split('?').next().unwrap_or_default();
    if !path.starts_with('/') {
        // What a scheme gives a meaning of its own, such as an address of mail.
        return text == "*" || !scheme.is_empty();
    }
    let is_escaped = |part: &str| {
        let mut after = part.split('%').skip(1);
        after.all(|after| after.len() > 1 && after.bytes().take(2).all(|b| b.is_ascii_hexdigit()))
    };
    let Some(rest) = path.strip_prefix("//").filter(|_| !scheme.is_empty()) else { return is_escaped(path) };
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    let port = host.rsplit(']').next().and_then(|behind| behind.rsplit_once(':')).map_or("", |(_, port)| port);
    let refused = |b: u8| matches!(b, b' ' | b'`' | b'{' | b'}' | b'|' | b'\\' | b'^' | b'#' | b'@');
    is_escaped(path)
        && is_escaped(user)
        && !host.contains('%')
        && !host.bytes().any(refused)
        && port.bytes().all(|b| b.is_ascii_digit())
}

/// Reads a text; absent and null stand for none.
fn text<'a>(item: &'a Value, name: &str) -> Result<Option<&'a str>, String> {
    match item.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` is no text")),
    }
}

/// Reads texts by name; null stands for the empty one.
fn texts(item: &Value, name: &str) -> Result<BTreeMap<String, String>, String> {
    let map = match item.get(name) {
        None | Some(Value::Null) => return Ok(BTreeMap::new()),
        Some(Value::Object(map)) => map,
        Some(_) => return Err(format!("`{name}` is no mapping")),
    };
    let pair = |(key, value): (&String, &Value)| match value {
        Value::String(text) => Ok((key.clone(), text.clone())),
        Value::Null => Ok((key.clone(), String::new())),
        _ => Err(format!("`{name}.{key}` is no text")),
    };
    map.iter().map(pair).collect()
}

/// Reads a time; absent, null and the year 1 stand for none.
fn time(item: &Value, name: &str) -> Result<Option<i64>, String> {
    let text = match item.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) if text.is_empty() => return Ok(None),
        Some(Value::String(text)) => text,
        Some(_) => return Err(format!("`{name}` is no time")),
    };
    let time = date_time(text).ok_or_else(|| format!("`{name}` is no time as RFC 3339 has it"))?;
    if chrono::Datelike::year(&time) <= 1 {
        return Ok(None);
    }
    nanoseconds(time).map(Some).ok_or_else(|| format!("`{name}` is out of range"))
}

/// Reads a time in the forms that Alertmanager takes: RFC 3339; without a zone, which is UTC then, and without seconds; with
/// fractions of seconds and a zone without a colon.
pub fn date_time(text: &str) -> Option<DateTime<Utc>> {
    if let Ok(time) = DateTime::parse_from_rfc3339(text) {
        return Some(time.to_utc());
    }
    if text.contains('.')
        && let Ok(time) = DateTime::parse_from_str(text, "%Y-%m-%dT%H:%M:%S%.f%z")
    {
        return Some(time.to_utc());
    }
    let forms = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%MZ"];
    let time = forms.iter().find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())?;
    Some(time.and_utc())
}

/// Gives a time in nanoseconds since 1970; `None`: it is before 1677. All that is after the beginning of 2262 counts as that.
pub fn nanoseconds(time: DateTime<Utc>) -> Option<i64> {
    let is_far = chrono::Datelike::year(&time) >= FAR_YEAR;
    if is_far { Some(FAR_NS) } else { time.timestamp_nanos_opt() }
}

/// Reads one alert. `ended`: when it ended, if no end is given; `timeout`: when it ends without another word.
fn read(item: &Value, now: i64, ended: Option<i64>, timeout: i64) -> Result<Alert, String> {
    if !item.is_object() {
        return Err("an object is wanted".to_owned());
    }
    let mut labels = texts(item, "labels")?;
    labels.retain(|_, value| !value.is_empty());
    let annotations = texts(item, "annotations")?;
    let generator_url = text(item, "generatorURL")?.unwrap_or_default();
    let bytes: usize = labels.iter().chain(&annotations).map(|(n, v)| n.len() + v.len()).sum();
    if bytes > ALERT_BYTES_MAX {
        return Err(format!("its labels and annotations have more than {ALERT_BYTES_MAX} bytes"));
    }
    if generator_url.len() > URL_BYTES_MAX {
        return Err(format!("its `generatorURL` has more than {URL_BYTES_MAX} bytes"));
    }
    if labels.is_empty() {
        return Err("at least one label pair required".to_owned());
    }
    if labels.contains_key("") {
        return Err("invalid label set: a label has no name".to_owned());
    }
    if annotations.contains_key("") {
        return Err("invalid annotations: invalid name \"\"".to_owned());
    }
    let (starts, ends) = (time(item, "startsAt")?, time(item, "endsAt")?);
    let starts_at = starts.or(ends).unwrap_or(now);
    let (ends_at, is_timeout) = match (ends, ended) {
        (Some(at), _) => (at, false),
        (None, Some(at)) => (at.max(starts_at), false),
        (None, None) => (timeout, true),
    };
    if starts_at > ends_at {
        return Err("start time must be before end time".to_owned());
    }
    Ok(Alert {
        labels: LabelSet::from_pairs(labels.iter().map(|(n, v)| (n.as_str(), v.as_str()))),
        annotations: Arc::new(annotations),
        starts_at,
        ends_at,
        is_timeout,
        updated_at: now,
        generator_url: generator_url.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// Gives start, end and whether that is a time-out, in seconds.
    fn read_one(form: AlertForm, alert: &str) -> Result<(i64, i64, bool), String> {
        let body = match form {
            AlertForm::Flat => format!("[{alert}]"),
            AlertForm::Envelope => format!("{{\"status\":\"firing\",\"alerts\":[{alert}]}}"),
        };
        let mut posted = posted(body.as_bytes(), form, 300 * S, 1000 * S)?;
        match posted.refused.pop() {
            Some(refused) => Err(refused),
            None => posted.alerts.pop().map(|a| (a.starts_at / S, a.ends_at / S, a.is_timeout)).ok_or_default(),
        }
    }

    trait OrDefault<T> {
        fn ok_or_default(self) -> Result<T, String>;
    }

    impl<T> OrDefault<T> for Option<T> {
        fn ok_or_default(self) -> Result<T, String> {
            self.ok_or_else(|| "nothing".to_owned())
        }
    }

    #[test]
    fn times() {
        let check = |form, alert: &str, expected| assert_eq!(read_one(form, alert), Ok(expected), "{alert}");
        let at = |s: i64| DateTime::from_timestamp(s, 0).unwrap().to_rfc3339();
        let labels = "\"labels\":{\"a\":\"1\",\"b\":\"\"}";
        check(AlertForm::Flat, &format!("{{{labels}}}"), (1000, 1300, true));
        check(AlertForm::Flat, &format!("{{{labels},\"endsAt\":\"0001-01-01T00:00:00Z\"}}"), (1000, 1300, true));
        check(AlertForm::Flat, &format!("{{{labels},\"endsAt\":\"{}\"}}", at(500)), (500, 500, false));
        let both = format!("\"startsAt\":\"{}\",\"endsAt\":\"{}\"", at(400), at(2000));
        check(AlertForm::Flat, &format!("{{{labels},{both}}}"), (400, 2000, false));
        // Without a zone, as Alertmanager takes them.
        for text in ["1970-01-01T00:08:20", "1970-01-01T00:08:20.000", "1970-01-01 00:08:20"] {
            check(AlertForm::Flat, &format!("{{{labels},\"endsAt\":\"{text}\"}}"), (500, 500, false));
        }
        for text in ["1970-01-01T00:08", "1970-01-01T00:08Z"] {
            check(AlertForm::Flat, &format!("{{{labels},\"endsAt\":\"{text}\"}}"), (480, 480, false));
        }
        for text in ["1970-01-01T00:08:20.500Z", "1970-01-01T01:08:20.500+0100"] {
            check(AlertForm::Flat, &format!("{{{labels},\"endsAt\":\"{text}\"}}"), (500, 500, false));
        }
        for text in ["2262-01-01T00:00:00Z", "2262-12-31T00:00:00Z", "9999-12-31T23:59:59Z"] {
            let (end, start) = (FAR_NS / S, at(400));
            check(AlertForm::Flat, &format!("{{{labels},\"endsAt\":\"{text}\"}}"), (end, end, false));
            let both = format!("\"startsAt\":\"{start}\",\"endsAt\":\"{text}\"");
            check(AlertForm::Flat, &format!("{{{labels},{both}}}"), (400, end, false));
        }
        check(AlertForm::Envelope, &format!("{{{labels}}}"), (1000, 1000 + 86_400, true));
        check(AlertForm::Envelope, &format!("{{{labels},\"status\":\"resolved\"}}"), (1000, 1000, false));
        check(
            AlertForm::Envelope,
            &format!("{{{labels},\"status\":\"resolved\",\"endsAt\":\"{}\"}}", at(900)),
            (900, 900, false),
        );
    }

    #[test]
    fn uris() {
        for fine in [
            "/x y",
            "*",
            "http://a",
            "http://a:9090/graph?g0.expr=a%zz#b",
            "mailto:a",
            "x:",
            "//a b",
            "http://[::1]:80/",
            "http://user@a/%20",
            "http:///x",
            "http://a:/",
        ] {
            assert!(is_uri(fine), "{fine}");
        }
        for wrong in
            ["::bad", "foo", "foo/bar", "1x:/a", "/%zz", "http://a b/", "http://a:x/", "http://a/%2", "/\n", "?a"]
        {
            assert!(!is_uri(wrong), "{wrong}");
        }
    }

    /// A body of megabytes must not become gigabytes of refusals.
    #[test]
    fn what_is_refused_is_told_in_short() {
        let alerts = vec!["{}"; 10_000].join(",");
        let body = format!("{{\"status\":\"{}\",\"alerts\":[{alerts}]}}", "é".repeat(100_000));
        let posted = posted(body.as_bytes(), AlertForm::Envelope, 300 * S, 1000 * S).unwrap();
        assert_eq!((posted.refused.len(), posted.alerts.len()), (10_000, 0));
        let expected = format!("alert 0: unknown status {:?}", "é".repeat(SHOWN_CHARS_MAX));
        assert_eq!(posted.refused[0], expected);
        assert!(posted.refused.iter().all(|told| told.len() < 300));
    }

    #[test]
    fn refused() {
        let check = |alert: &str, part: &str| {
            let told = read_one(AlertForm::Flat, alert).unwrap_err();
            assert!(told.contains(part), "{alert}: {told}");
        };
        check("{}", "at least one label");
        check("{\"labels\":{\"a\":\"\"}}", "at least one label");
        check("{\"labels\":{\"a\":1}}", "`labels.a` is no text");
        check("{\"labels\":{\"a\":null}}", "at least one label");
        check("{\"labels\":{\"a\":\"1\"},\"annotations\":{\"\":\"x\"}}", "invalid annotations");
        assert!(
            read_one(AlertForm::Flat, "{\"labels\":{\"a\":\"1\",\"b\":null},\"annotations\":{\"c\":null}}").is_ok()
        );
        for time in ["soon", "2026-11-26", "1500-01-01T00:00:00Z", "2026-11-26T09:00:00+0100", "2026-11-26T09:00:00 x"]
        {
            check(&format!("{{\"labels\":{{\"a\":\"1\"}},\"startsAt\":\"{time}\"}}"), "`startsAt`");
        }
        check("{\"labels\":{\"a\":\"1\"},\"generatorURL\":5}", "`generatorURL` is no text");
        let odd = b"[{\"labels\":{\"a\":\"1\"}},{\"generatorURL\":\"::bad\"}]";
        let misfit = posted(odd, AlertForm::Flat, 1, 1).unwrap().misfit;
        assert_eq!(misfit.as_deref(), Some("1.generatorURL in body must be of type uri: \"::bad\""));
        for bare in ["{}", "{\"labels\":null}"] {
            let odd = format!("[{{\"labels\":{{\"a\":\"1\"}}}},{bare}]");
            let misfit = posted(odd.as_bytes(), AlertForm::Flat, 1, 1).unwrap().misfit;
            assert_eq!(misfit.as_deref(), Some("1.labels in body is required"), "{bare}");
        }
        let envelope = b"{\"alerts\":[{\"labels\":{\"a\":\"1\"},\"generatorURL\":\"::bad\"}]}";
        assert_eq!(posted(envelope, AlertForm::Envelope, 1, 1).unwrap().misfit, None);
        let nothing = posted(b"", AlertForm::Flat, 1, 1).unwrap().misfit;
        assert_eq!(nothing.as_deref(), Some("alerts in body is required"));
        assert!(posted(b"", AlertForm::Envelope, 1, 1).is_err(), "this form is not Alertmanager's");
        let odd = read_one(AlertForm::Envelope, "{\"labels\":{\"a\":\"1\"},\"status\":5}").unwrap_err();
        assert!(odd.contains("`status` is no text"), "{odd}");
        check(
            "{\"labels\":{\"a\":\"1\"},\"startsAt\":\"2000-01-02T00:00:00Z\",\"endsAt\":\"2000-01-01T00:00:00Z\"}",
            "before end",
        );
        check(&format!("{{\"labels\":{{\"a\":\"{}\"}}}}", "x".repeat(70_000)), "bytes");
        assert!(posted(b"null", AlertForm::Flat, 1, 1).is_ok_and(|p| p.alerts.is_empty() && p.refused.is_empty()));
        for (form, body) in [(AlertForm::Flat, "{}"), (AlertForm::Flat, "["), (AlertForm::Envelope, "null")] {
            assert!(posted(body.as_bytes(), form, 1, 1).is_err(), "{body}");
        }
        // Good ones are taken all the same.
        let some = posted(b"[{\"labels\":{\"a\":\"1\"}},{\"labels\":{}}]", AlertForm::Flat, 1, 1).unwrap();
        assert_eq!((some.alerts.len(), some.refused.len(), some.misfit), (1, 1, None));
    }

    #[test]
    fn states_of_envelopes() {
        let read = |status: &str, own: &str| {
            let body =
                format!("{{{status}\"externalURL\":\"http://am\",\"alerts\":[{{{own}\"labels\":{{\"a\":\"1\"}}}}]}}");
            let posted = posted(body.as_bytes(), AlertForm::Envelope, 1, 1000 * S).unwrap();
            assert_eq!(posted.external_url, "http://am");
            match posted.alerts.first() {
                Some(alert) => if alert.is_timeout { "firing" } else { "resolved" }.to_owned(),
                None => posted.refused.join("; "),
            }
        };
        for (status, own, expected) in [
            ("", "", "firing"),
            ("\"status\":\"resolved\",", "", "resolved"),
            ("\"status\":\"resolved\",", "\"status\":\"firing\",", "firing"),
            ("\"status\":\"firing\",", "\"status\":\"resolved\",", "resolved"),
            ("\"status\":null,", "\"status\":null,", "firing"),
            ("\"status\":\"Firing\",", "", "alert 0: unknown status \"Firing\""),
            ("", "\"status\":\"\",", "alert 0: unknown status \"\""),
        ] {
            assert_eq!(read(status, own), expected, "{status} {own}");
        }
        let told = posted(b"{\"status\":1,\"alerts\":[]}", AlertForm::Envelope, 1, 1).unwrap_err();
        assert_eq!(told, "`status` is no text");
    }

    #[test]
    fn bodies_and_texts_have_an_end() {
        let many = format!("[{}]", vec!["{}"; ALERTS_MAX + 1].join(","));
        let told = posted(many.as_bytes(), AlertForm::Flat, 1, 1).unwrap_err();
        assert_eq!(told, "more than 50000 alerts in one body");
        // Names count as values do, and those of annotations as those of labels.
        let sized = |bytes: usize| {
            let alert =
                format!("[{{\"labels\":{{\"a\":\"1\"}},\"annotations\":{{\"n\":\"{}\"}}}}]", "x".repeat(bytes - 3));
            posted(alert.as_bytes(), AlertForm::Flat, 1, 1).unwrap().alerts.len()
        };
        assert_eq!((sized(ALERT_BYTES_MAX), sized(ALERT_BYTES_MAX + 1)), (1, 0));
        let linked = |bytes: usize| {
            let alert = format!("[{{\"labels\":{{\"a\":\"1\"}},\"generatorURL\":\"/{}\"}}]", "x".repeat(bytes - 1));
            posted(alert.as_bytes(), AlertForm::Flat, 1, 1).unwrap().alerts.len()
        };
        assert_eq!((linked(URL_BYTES_MAX), linked(URL_BYTES_MAX + 1)), (1, 0));
        // A time-out beyond all times is the last of them.
        let last = posted(b"[{\"labels\":{\"a\":\"1\"}}]", AlertForm::Flat, i64::MAX, S).unwrap();
        assert_eq!((last.alerts[0].ends_at, last.alerts[0].is_timeout), (i64::MAX, true));
    }
}
