//! Refuses values that leave a server of no use without saying so: limits of nothing, a retention that drops what
//! arrives, and names that nothing can ever equal.

use super::{OwnSpan, Settings, Span};

/// Says which value it is, and what to write instead.
pub(super) fn fault(s: &Settings) -> Option<String> {
    without_room(s)
        .or_else(|| without_unit(s))
        .or_else(|| without_end(s))
        .or_else(|| without_time(s))
        .or_else(|| without_meaning(s))
}

/// With less nothing can be accepted or queried.
const MEMORY_BYTES_MIN: u64 = 16 << 20;
/// With less all but the newest day would be gone at once, and nothing brings it back.
const STORE_BYTES_MIN: u64 = 1 << 20;

/// More than any machine can use; the semaphores have a limit of their own, beyond which they panic.
const THREADS_MAX: usize = 1024;
const AT_ONCE_MAX: usize = 1_000_000;

/// Numbers of things at once with which no server could start.
fn without_end(s: &Settings) -> Option<String> {
    let query = &s.query;
    let counts = [
        ("store.requests_max", s.store.requests_max, AT_ONCE_MAX),
        ("ingest.imports_max", s.ingest.imports_max, AT_ONCE_MAX),
        ("query.concurrent_max", query.concurrent_max, AT_ONCE_MAX),
        ("query.waiting_max", query.waiting_max, AT_ONCE_MAX),
        ("query.remote_reads_max", query.remote_reads_max, AT_ONCE_MAX),
        ("query.threads", query.threads, THREADS_MAX),
        ("alerting.concurrent_max", s.alerting.concurrent_max, AT_ONCE_MAX),
    ];
    let (name, value, most) = counts.iter().find(|(_, value, most)| value > most)?;
    Some(format!("`{name}` is {value}; it can be {most} at most"))
}

/// Refuses limits that are so low that the server would be useless, or do harm: most likely a unit was forgotten.
fn without_unit(s: &Settings) -> Option<String> {
    let limits = [
        ("memory.limit", s.memory.limit.0, MEMORY_BYTES_MIN, "`16MiB`, or 0 for 60 % of the memory that there is"),
        ("store.size_max", s.store.size_max.0, STORE_BYTES_MIN, "`1MiB`, or 0 for no limit"),
    ];
    let (name, bytes, _, least) = limits.iter().find(|(_, bytes, min, _)| *bytes != 0 && bytes < min)?;
    Some(format!("`{name}` is {bytes} bytes; it must be at least {least}"))
}

/// Limits in which zero does not stand for "none".
fn without_room(s: &Settings) -> Option<String> {
    let (http, query, alerting) = (&s.http, &s.query, &s.alerting);
    let zero = [
        ("http.body_max", http.body_max.0 == 0),
        ("http.decoded_body_max", http.decoded_body_max.0 == 0),
        ("http.form_max", http.form_max.0 == 0),
        ("http.answer_max", http.answer_max.0 == 0),
        ("http.connections_max", http.connections_max == 0),
        ("traces.export_spans_max", s.traces.export_spans_max == 0),
        ("store.spool_limit", s.store.spool_limit.0 == 0),
        ("store.requests_max", s.store.requests_max == 0),
        ("wal.segment", s.wal.segment.0 == 0),
        ("ingest.imports_max", s.ingest.imports_max == 0),
        ("compaction.part", s.compaction.part.0 == 0),
        ("query.concurrent_max", query.concurrent_max == 0),
        ("query.waiting_max", query.waiting_max == 0),
        ("query.remote_reads_max", query.remote_reads_max == 0),
        ("query.rows_max", query.rows_max == 0),
        ("query.samples_max", query.samples_max == 0),
        ("query.series_max", query.series_max == 0),
        ("query.bytes_max", query.bytes_max.0 == 0),
        ("alerting.concurrent_max", alerting.concurrent_max == 0),
        ("alerting.results_max", alerting.results_max == 0),
        ("alerting.alerts_max", alerting.alerts_max == 0),
    ];
    let (name, _) = zero.iter().find(|(_, zero)| *zero)?;
    Some(format!("`{name}` must be above zero"))
}

/// Elsewhere a retention of zero keeps everything; here it would drop everything, what is stored and what arrives.
fn without_time(s: &Settings) -> Option<String> {
    let own = |own: OwnSpan| own.0.unwrap_or(Span(None));
    let kept = [
        ("store.retention", s.store.retention),
        ("store.retention_metrics", own(s.store.retention_metrics)),
        ("store.retention_logs", own(s.store.retention_logs)),
        ("store.retention_traces", own(s.store.retention_traces)),
    ];
    let is_zero = |span: Span| span.0.is_some_and(|d| d.is_zero());
    if let Some((name, _)) = kept.iter().find(|(_, span)| is_zero(*span)) {
        return Some(format!("`{name}` must be above zero; `none` keeps everything"));
    }
    is_zero(s.ingest.accept_past)
        .then(|| "`ingest.accept_past` must be above zero; `none` accepts all that is kept".to_owned())
}

/// Entries of lists that nothing equals, and a folder without a name, as a variable has that was not filled in.
fn without_meaning(s: &Settings) -> Option<String> {
    if s.store.data.is_empty() {
        return Some("`store.data` is empty; it must name a folder, such as `/var/lib/quiver`".to_owned());
    }
    let first = |list: &[String], is_good: fn(&str) -> bool| list.iter().find(|one| !is_good(one)).cloned();
    if let Some(one) = first(&s.http.cors_origins, is_origin) {
        return Some(format!(
            "`http.cors_origins` holds `{}`; an origin as browsers send it is wanted, such as \
             `https://grafana.example` or `http://127.0.0.1:3000`, or `*` for any",
            one.escape_debug()
        ));
    }
    if let Some(one) = first(&s.http.hosts, is_host) {
        return Some(format!(
            "`http.hosts` holds `{}`; a name such as `quiver.example` is wanted, without scheme and port, or `*` \
             for any",
            one.escape_debug()
        ));
    }
    let one = first(&s.otlp.promoted_attributes, is_attribute)?;
    let one = one.escape_debug();
    Some(format!("`otlp.promoted_attributes` holds `{one}`; a name is wanted, in which `*` stands at the end only"))
}

/// Whether browsers send it as `Origin`: without a path, in small letters, and without the usual port of its scheme. Names
/// beyond ASCII they send as Punycode.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return matches!(text, "*" | "null") };
    let usual = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => "/",
    };
    let is_strange =
        |c: char| !c.is_ascii_graphic() || c.is_ascii_uppercase() || matches!(c, '/' | '@' | '?' | '#' | '*' | ',');
    let is_good = |part: &str| !part.is_empty() && !part.contains(is_strange);
    is_good(scheme) && is_good(authority) && !authority.ends_with(usual)
}

/// Whether it is what a `Host` names, without port; addresses of IPv6 are in brackets there.
fn is_host(text: &str) -> bool {
    let is_bracketed = text.starts_with('[') && text.ends_with(']');
    let is_strange =
        |c: char| !c.is_ascii_graphic() || matches!(c, '/' | '@' | '*' | ',') || (c == ':' && !is_bracketed);
    text == "*" || !(text.is_empty() || text.contains(is_strange))
}

fn is_attribute(text: &str) -> bool {
    !text.is_empty() && !text.strip_suffix('*').unwrap_or(text).contains('*')
}

#[cfg(test)]
mod tests {
    use crate::settings::testing::{refusal, variable};

    #[test]
    fn numbers_at_once_have_an_end() {
        for (name, most) in [
            ("store.requests_max", 1_000_000u64),
            ("ingest.imports_max", 1_000_000),
            ("query.concurrent_max", 1_000_000),
            ("query.waiting_max", 1_000_000),
            ("query.remote_reads_max", 1_000_000),
            ("query.threads", 1024),
            ("alerting.concurrent_max", 1_000_000),
        ] {
            assert_eq!(refusal(name, &most.to_string()), "", "{name}");
            let told = refusal(name, &(most + 1).to_string());
            assert!(told.contains(&format!("`{name}` is {}; it can be {most} at most", most + 1)), "{told}");
        }
    }

    #[test]
    fn memory_in_which_something_fits() {
        for enough in ["0", "16MiB", "16777216", "1TiB"] {
            assert_eq!(refusal("memory.limit", enough), "", "{enough}");
        }
        for little in ["1", "4", "16777215", "15MiB"] {
            let told = refusal("memory.limit", little);
            assert!(told.contains("`memory.limit`") && told.contains("`16MiB`"), "{little}: {told}");
        }
    }

    /// Breaks if `size_max = 500` deletes all days but the last.
    #[test]
    fn a_store_in_which_something_stays() {
        for enough in ["0", "1MiB", "1048576", "500GiB"] {
            assert_eq!(refusal("store.size_max", enough), "", "{enough}");
        }
        for little in ["1", "500", "1048575", "1023KiB"] {
            let told = refusal("store.size_max", little);
            assert!(told.contains("`store.size_max`") && told.contains("`1MiB`, or 0"), "{little}: {told}");
        }
    }

    #[test]
    fn limits_leave_room() {
        for name in [
            "http.body_max",
            "http.decoded_body_max",
            "http.form_max",
            "http.answer_max",
            "http.connections_max",
            "traces.export_spans_max",
            "store.spool_limit",
            "store.requests_max",
            "wal.segment",
            "ingest.imports_max",
            "compaction.part",
            "query.concurrent_max",
            "query.waiting_max",
            "query.remote_reads_max",
            "query.rows_max",
            "query.samples_max",
            "query.series_max",
            "query.bytes_max",
            "alerting.concurrent_max",
            "alerting.results_max",
            "alerting.alerts_max",
        ] {
            assert_eq!(refusal(name, "1"), "", "{name}");
            let told = refusal(name, "0");
            let expected = format!("`{name}` must be above zero (variable `{}`)", variable(name));
            assert!(told.ends_with(&expected), "{name}: {told}");
        }
        // In these zero has a meaning of its own.
        for name in ["store.size_max", "store.disk_reserve", "memory.limit", "query.threads", "query.result_cache"] {
            assert_eq!(refusal(name, "0"), "", "{name}");
        }
    }

    #[test]
    fn a_retention_of_nothing_is_refused() {
        for name in ["store.retention", "store.retention_metrics", "store.retention_logs", "store.retention_traces"] {
            for value in ["0", "0s", "0d"] {
                let told = refusal(name, value);
                let expected =
                    format!("`{name}` must be above zero; `none` keeps everything (variable `{}`)", variable(name));
                assert!(told.ends_with(&expected), "{name} = {value}: {told}");
            }
            for value in ["1s", "30d", "none"] {
                assert_eq!(refusal(name, value), "", "{name} = {value}");
            }
        }
        assert!(refusal("ingest.accept_past", "0s").contains("`none` accepts all that is kept"));
        assert_eq!(refusal("ingest.accept_past", "1h"), "");
    }

    #[test]
    fn the_data_directory_has_a_name() {
        for name in [".", "quiver-data", "/var/lib/quiver"] {
            assert_eq!(refusal("store.data", name), "", "{name}");
        }
        let told = refusal("store.data", "");
        assert!(told.contains("`store.data` is empty; it must name a folder"), "{told}");
    }

    #[test]
    fn entries_that_nothing_equals_are_named() {
        for (name, good, bad) in [
            (
                "http.cors_origins",
                &[
                    "*",
                    "null",
                    "https://a.example",
                    "http://127.0.0.1:3000",
                    "http://[::1]:3000",
                    "http://a.example:443",
                    "app://obsidian.md",
                ][..],
                &[
                    "",
                    "a.example",
                    "https://",
                    "://a",
                    "https://a.example/",
                    "https://a.example/app",
                    "https://A.example",
                    "HTTPS://a.example",
                    "https://a.example:443",
                    "http://a.example:80",
                    "https://*.a.example",
                    "https://a, https://b",
                    "https://ä.example",
                ][..],
            ),
            (
                "http.hosts",
                &["*", "quiver.example", "Quiver", "10.0.0.7", "[fd00::7]"],
                &[
                    "",
                    "https://quiver.example",
                    "quiver.example:8800",
                    "fd00::7",
                    "*.example",
                    "a, b",
                    "a b",
                    "ä.example",
                ],
            ),
            ("otlp.promoted_attributes", &["*", "a", "postgresql.*"], &["", "a*b", "*.a", "a.**"]),
        ] {
            for one in good {
                assert_eq!(refusal(name, &format!("['{one}']")), "", "{name}: {one}");
            }
            for one in bad {
                let told = refusal(name, &format!("['{one}']"));
                assert!(told.contains(&format!("`{name}` holds `{one}`; ")), "{one}: {told}");
            }
        }
    }

    /// In double quotes TOML has escapes for characters that no browser sends; they do not get to a terminal as they are.
    #[test]
    fn entries_with_control_characters_are_refused() {
        for (given, shown) in [
            ("https://a\\u0000.example", "https://a\\0.example"),
            ("https://a\\u007f", "https://a\\u{7f}"),
            ("https://\\u001b[31ma", "https://\\u{1b}[31ma"),
            ("ap\\u0001p://a", "ap\\u{1}p://a"),
            ("https://a\\n", "https://a\\n"),
        ] {
            let told = refusal("http.cors_origins", &format!("[\"{given}\"]"));
            assert!(told.contains(&format!("`http.cors_origins` holds `{shown}`; ")), "{given}: {told:?}");
        }
        let told = refusal("http.hosts", "[\"a\\u0000\"]");
        assert!(told.contains("`http.hosts` holds `a\\0`; "), "{told:?}");
    }
}
