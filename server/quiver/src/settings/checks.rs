//! Checks of settings beyond their types.

use quiver_types::Network;

use super::{Settings, SettingsError, bounds, oidc};

/// Checks settings that were parsed.
///
/// # Errors
/// Invalid, with the setting's name.
pub(super) fn check(s: &Settings) -> Result<(), SettingsError> {
    let refuse = |text: &str| Err(SettingsError::Invalid(text.to_owned()));
    if let Some(fault) = unknown_word(s) {
        return refuse(&fault);
    }
    if let Some(fault) = s.http.trusted_proxies.iter().find_map(|network| Network::parse(network).err()) {
        return refuse(&format!("`http.trusted_proxies`: {fault}"));
    }
    if let Some(wrong) = s.tls.wrong() {
        return refuse(wrong);
    }
    if !s.auth.public_url.is_empty() && !quiver_auth::base_url_is_sane(&s.auth.public_url) {
        return refuse("`auth.public_url` must be like `https://quiver.example`, without a slash at its end");
    }
    if let Some(fault) = oidc::fault(&s.auth.oidc) {
        return refuse(&fault);
    }
    let url = &s.config.database_url.0;
    if !url.is_empty() && !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
        return refuse("`config.database_url` must begin with `postgres://`");
    }
    if !matches!(s.auth.key_bits, 2048 | 3072 | 4096) {
        return refuse("`auth.key_bits` must be 2048, 3072 or 4096");
    }
    if s.http.lame_duck.0.is_none() {
        return refuse("`http.lame_duck` must be a span of time");
    }
    if s.http.head_max.0 < 1024 {
        return refuse("`http.head_max` must be at least 1KiB");
    }
    if let Some(name) = unbounded_span(s) {
        return refuse(&format!("`{name}` must be a span of time above zero"));
    }
    bounds::fault(s).map_or(Ok(()), |fault| refuse(&fault))
}

/// Tells a setting that is one of two words and has another.
fn unknown_word(s: &Settings) -> Option<String> {
    let words = [
        ("rbac.mode", &s.rbac.mode, ["on", "off"]),
        ("olap.builtin", &s.olap.builtin, ["on", "off"]),
        ("wal.level", &s.wal.level, ["sync", "os"]),
        ("otlp.delta", &s.otlp.delta, ["accumulate", "raw"]),
        ("log.format", &s.log.format, ["text", "json"]),
    ];
    let (name, word, [one, other]) = words.into_iter().find(|(_, word, known)| !known.contains(&word.as_str()))?;
    Some(format!("`{name}` is `{word}`; it can be `{one}` or `{other}`"))
}

/// Names a setting that bounds a time and is zero or `none`.
fn unbounded_span(s: &Settings) -> Option<&'static str> {
    let spans = [
        ("http.header_timeout", s.http.header_timeout),
        ("http.keep_alive", s.http.keep_alive),
        ("http.body_grace", s.http.body_grace),
        ("http.send_timeout", s.http.send_timeout),
        ("http.drain_timeout", s.http.drain_timeout),
        ("otlp.delta_idle", s.otlp.delta_idle),
        ("tls.reload_interval", s.tls.reload_interval),
        ("store.retry_budget", s.store.retry_budget),
        ("store.clock_confirm", s.store.clock_confirm),
        ("ingest.accept_future", s.ingest.accept_future),
        ("compaction.interval", s.compaction.interval),
        ("query.timeout", s.query.timeout),
        ("query.logs_timeout", s.query.logs_timeout),
        ("query.lookback", s.query.lookback),
        ("query.slow", s.query.slow),
        ("alerting.evaluation_interval", s.alerting.evaluation_interval),
        ("alerting.resend_delay", s.alerting.resend_delay),
        ("alerting.error_hold", s.alerting.error_hold),
    ];
    spans.into_iter().find(|(_, span)| span.0.is_none_or(|d| d.is_zero())).map(|(name, _)| name)
}

#[cfg(test)]
mod tests {
    use crate::settings::testing::refusal;

    #[test]
    fn words_are_those_that_are_known() {
        for (name, known, unknown) in [
            ("rbac.mode", &["on", "off"][..], "On"),
            ("olap.builtin", &["on", "off"][..], "no"),
            ("wal.level", &["sync", "os"][..], "fsync"),
            ("otlp.delta", &["accumulate", "raw"][..], "drop"),
            ("log.format", &["text", "json"][..], "logfmt"),
            ("auth.key_bits", &["2048", "3072", "4096"][..], "2047"),
            ("auth.public_url", &["https://quiver.example"][..], "https://quiver.example/"),
            ("config.database_url", &["postgres://h/d", "postgresql://h/d"][..], "sqlite://x"),
            ("http.trusted_proxies", &["['10.0.0.0/8', '::1/128']", "[]"][..], "['10.0.0.0/8', '10.0.0.0/33']"),
        ] {
            for value in known {
                assert_eq!(refusal(name, value), "", "{name} = {value}");
            }
            assert!(refusal(name, unknown).contains(&format!("`{name}`")), "{name} = {unknown}");
        }
        // For a list the text names the invalid entry.
        assert!(refusal("http.trusted_proxies", "['10.0.0.0/8', '10.0.0.0/33']").contains("`10.0.0.0/33`"));
    }

    /// `none` would make a request wait forever, and zero would end each at once.
    #[test]
    fn times_that_bound_something_are_above_zero() {
        for name in [
            "http.header_timeout",
            "http.keep_alive",
            "http.body_grace",
            "http.send_timeout",
            "http.drain_timeout",
            "otlp.delta_idle",
            "tls.reload_interval",
            "store.retry_budget",
            "store.clock_confirm",
            "ingest.accept_future",
            "compaction.interval",
            "query.timeout",
            "query.logs_timeout",
            "query.lookback",
            "query.slow",
            "alerting.evaluation_interval",
            "alerting.resend_delay",
            "alerting.error_hold",
        ] {
            assert_eq!(refusal(name, "1s"), "", "{name}");
            for value in ["0s", "none"] {
                assert!(refusal(name, value).contains(&format!("`{name}`")), "{name} = {value}");
            }
        }
        // The delay of a stop may be zero.
        assert_eq!(refusal("http.lame_duck", "0s"), "");
        assert!(refusal("http.lame_duck", "none").contains("`http.lame_duck`"));
    }

    #[test]
    fn heads_have_room_for_a_request_line() {
        for value in ["1024", "1KiB", "1MiB"] {
            assert_eq!(refusal("http.head_max", value), "", "{value}");
        }
        for value in ["0", "1023", "1023B"] {
            assert!(refusal("http.head_max", value).contains("`http.head_max`"), "{value}");
        }
    }
}
