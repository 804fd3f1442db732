//! Converts the settings for each component.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use quiver_api::live_settings::{LiveSettings, Token};
use quiver_api::logs_ingest::settings::LogsSettings;
use quiver_api::{ApiSettings, Proxies};
use quiver_ingest::logs::LogsLimits;
use quiver_ingest::otlp::{DeltaMode, PromotedAttributes};
use quiver_ingest::{Limits as DecodeLimits, OtlpOptions};
use quiver_promql::PromqlSettings;
use quiver_query::Limits;
use quiver_store::{CompactionSettings, StoreSettings, WalLevel};
use quiver_types::tables::{logs, metric_metadata, metrics, spans};
use quiver_types::{Error, Network, Result};

use crate::memory::memory_limit_bytes;
use crate::process_info::VERSION;
use crate::settings::{self, Settings, Span};

/// A duration that must be set.
pub(super) fn span(span: Span) -> Duration {
    span.0.expect("checked when settings were loaded")
}

/// The retention of tables whose signal has a retention of its own.
fn own_retentions(s: &settings::Store) -> BTreeMap<String, Option<Duration>> {
    let signals = [
        (s.retention_metrics, &[metrics::TABLE.name, metric_metadata::TABLE.name][..]),
        (s.retention_logs, &[logs::TABLE.name]),
        (s.retention_traces, &[spans::TABLE.name]),
    ];
    let given = signals.into_iter().filter_map(|(own, tables)| Some((own.0?.0, tables)));
    given.flat_map(|(retention, tables)| tables.iter().map(move |t| ((*t).to_owned(), retention))).collect()
}

/// The settings of the store.
pub fn store_settings(settings: &Settings) -> StoreSettings {
    let s = &settings.store;
    StoreSettings {
        data_dir: s.data.clone().into(),
        store_url: (!s.url.is_empty()).then(|| s.url.clone()),
        retention: s.retention.0,
        table_retention: own_retentions(s),
        size_max: Some(s.size_max.0).filter(|b| *b > 0),
        drop_grace: s.drop_grace.0.unwrap_or_default(),
        clock_confirm: span(s.clock_confirm),
        accept_past: settings.ingest.accept_past.0,
        accept_future: span(settings.ingest.accept_future),
        wal_level: if settings.wal.level == "os" { WalLevel::Os } else { WalLevel::Sync },
        memory_limit_bytes: memory_limit_bytes(settings),
        generation_bytes: Some(settings.memory.generation.0).filter(|b| *b > 0),
        decoded_cache: settings.memory.decoded_cache,
        wal_segment_bytes: settings.wal.segment.0,
        spool_limit_bytes: s.spool_limit.0,
        disk_reserve_bytes: s.disk_reserve.0,
        service_labels: settings.ingest.service_labels.clone(),
        service_new_series_per_hour: settings.ingest.service_new_series_per_hour,
        compaction: CompactionSettings {
            enabled: settings.compaction.enabled,
            interval: span(settings.compaction.interval),
            part_bytes: settings.compaction.part.0,
            ..CompactionSettings::default()
        },
        store_requests_max: s.requests_max,
        store_retry_budget: span(s.retry_budget),
        ..StoreSettings::default()
    }
}

/// The settings that may change while the server runs; `memory` is the limit of one query in bytes.
///
/// # Errors
/// Invalid: the file of the admin token cannot be read, or is empty.
pub fn live_settings(settings: &Settings, memory: u64) -> Result<LiveSettings> {
    let (q, h) = (&settings.query, &settings.http);
    Ok(LiveSettings {
        query_limits: Limits {
            timeout: span(q.timeout),
            samples_max: q.samples_max,
            series_max: q.series_max,
            bytes_max: q.bytes_max.0,
            rows_max: q.rows_max,
            memory_max: memory,
        },
        logs_timeout: span(q.logs_timeout),
        slow_query: span(q.slow),
        cors_origins: h.cors_origins.clone(),
        hosts: h.hosts.clone(),
        docs_public: h.docs_public,
        access_log: settings.log.access,
        admin_token: admin_token(settings)?.map(Token::new),
        listed: settings.listed(),
    })
}

/// Reads the admin token; `None` if there is none.
///
/// # Errors
/// Invalid: the file cannot be read, is empty, or contains what a header cannot.
pub fn admin_token(settings: &Settings) -> Result<Option<String>> {
    let path = &settings.http.admin_token_file;
    if path.is_empty() { Ok(None) } else { secret_in(Path::new(path), "http.admin_token_file").map(Some) }
}

/// Reads a secret that is sent in a header; `name` is the setting that names the file.
///
/// # Errors
/// Invalid: the file cannot be read, is empty, or contains what a header cannot.
pub fn secret_in(path: &Path, name: &str) -> Result<String> {
    let shown = path.display();
    let text = quiver_files::read_text(path, quiver_files::SECRET_BYTES_MAX)
        .map_err(|e| Error::invalid(format!("cannot read `{shown}` (`{name}`): {e}")))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Error::invalid(format!("`{shown}` (`{name}`) is empty")));
    }
    if token.contains(|c: char| c.is_control()) {
        return Err(Error::invalid(format!("`{shown}` (`{name}`) holds more than one line")));
    }
    Ok(token.to_owned())
}

/// What the running sums of delta series may take: no budget counts them.
pub(super) fn delta_bytes(settings: &Settings) -> usize {
    settings.otlp.delta_memory.0.min(memory_limit_bytes(settings) / 8) as usize
}

/// What one request may be decoded to: no more than there is for all of them, or nothing would count the rest.
fn decode_limits(settings: &Settings) -> DecodeLimits {
    let memory = memory_limit_bytes(settings);
    let all = (memory / 8).max(settings.http.body_max.0) as usize;
    let most = DecodeLimits::default();
    DecodeLimits {
        body_bytes_max: settings.http.decoded_body_max.0 as usize,
        batch_bytes_max: most.batch_bytes_max.min(all),
        known_labels_bytes_max: most.known_labels_bytes_max.min((memory / 16) as usize),
        ..most
    }
}

pub(super) fn api_settings(settings: &Settings) -> ApiSettings {
    let h = &settings.http;
    ApiSettings {
        decode_limits: decode_limits(settings),
        body_bytes_max: h.body_max.0 as usize,
        form_bytes_max: h.form_max.0 as usize,
        answer_bytes_max: h.answer_max.0 as usize,
        partial_answers: settings.query.partial_answers,
        otlp: OtlpOptions {
            delta: if settings.otlp.delta == "raw" { DeltaMode::Raw } else { DeltaMode::Accumulate },
            native_custom_buckets: settings.otlp.native_custom_buckets,
            scope_labels: settings.otlp.scope_labels,
            promoted: PromotedAttributes::of(&settings.otlp.promoted_attributes),
        },
        logs: LogsSettings {
            limits: LogsLimits { total_bytes_max: 2 * h.decoded_body_max.0 as usize, ..LogsLimits::default() },
            service_fields: settings.rbac.logs_service_fields.clone().into(),
            accept_future_ns: settings
                .ingest
                .logs_accept_future
                .0
                .map(|d| i64::try_from(d.as_nanos()).unwrap_or(i64::MAX)),
            default_message: settings.ingest.logs_default_message.as_str().into(),
        },
        proxies: Proxies {
            // They were validated when the settings were loaded.
            trusted: h.trusted_proxies.iter().filter_map(|text| Network::parse(text).ok()).collect(),
            name_us: settings.auth.public_url.is_empty(),
        },
        retry_after_s: quiver_api::error::RETRY_AFTER_S,
        version: VERSION,
    }
}

pub(super) fn promql_settings(settings: &Settings, cache_bytes: usize) -> PromqlSettings {
    PromqlSettings {
        lookback_ms: span(settings.query.lookback).as_millis() as i64,
        experimental_functions: settings.query.experimental_functions,
        result_cache_bytes: cache_bytes,
        ..PromqlSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: &[(&str, &str)]) -> Settings {
        let given = given.iter().map(|(name, value)| (format!("QUIVER_{name}"), (*value).to_owned()));
        settings::LoadedSettings::load(None, given, &[]).unwrap().settings
    }

    #[test]
    fn secrets_are_one_line_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            secret_in(&path, "--key-file")
        };
        assert_eq!(read(" a token \n").unwrap(), "a token");
        for (text, why) in [("", "is empty"), (" \n", "is empty"), ("a\nb", "more than one line")] {
            let message = read(text).unwrap_err().message;
            assert!(message.contains(why) && message.contains("`--key-file`"), "{message}");
            assert!(!message.contains("a\nb"), "{message}");
        }
        let message = secret_in(&dir.path().join("none"), "--key-file").unwrap_err().message;
        assert!(message.contains("cannot read") && message.contains("none"), "{message}");
    }

    #[test]
    fn bounds_of_queries_are_those_of_the_settings() {
        let given = [
            ("QUERY__TIMEOUT", "3s"),
            ("QUERY__SAMPLES_MAX", "7"),
            ("QUERY__ROWS_MAX", "8"),
            ("HTTP__CORS_ORIGINS", "['https://a.example']"),
            ("LOG__ACCESS", "true"),
        ];
        let live = live_settings(&settings(&given), 9).unwrap();
        let limits = &live.query_limits;
        assert_eq!((limits.timeout, limits.samples_max, limits.rows_max), (Duration::from_secs(3), 7, 8));
        assert_eq!((limits.memory_max, live.access_log), (9, true));
        assert_eq!((live.cors_origins, live.admin_token.is_none()), (vec!["https://a.example".to_owned()], true));
        assert!(live_settings(&settings(&[("HTTP__ADMIN_TOKEN_FILE", "/no/such/file")]), 9).is_err());
    }

    #[test]
    fn what_handlers_know_follows_from_the_settings() {
        let plain = api_settings(&settings(&[]));
        assert_eq!(plain.otlp.delta, DeltaMode::Accumulate);
        assert!(plain.proxies.name_us && plain.partial_answers);
        let given = [
            ("OTLP__DELTA", "raw"),
            ("AUTH__PUBLIC_URL", "https://quiver.example"),
            ("HTTP__BODY_MAX", "1MiB"),
            ("HTTP__DECODED_BODY_MAX", "2MiB"),
            ("INGEST__LOGS_ACCEPT_FUTURE", "1m"),
        ];
        let given = api_settings(&settings(&given));
        assert_eq!(given.otlp.delta, DeltaMode::Raw);
        // A configured URL takes precedence over the headers of a proxy.
        assert!(!given.proxies.name_us);
        assert_eq!((given.body_bytes_max, given.decode_limits.body_bytes_max), (1 << 20, 2 << 20));
        assert_eq!(given.logs.accept_future_ns, Some(60_000_000_000));
    }

    #[test]
    fn a_batch_takes_no_more_than_there_is_for_all() {
        let most = |limit: &str, body: &str| {
            let given = [("MEMORY__LIMIT", limit), ("HTTP__BODY_MAX", body)];
            api_settings(&settings(&given)).decode_limits.batch_bytes_max
        };
        assert_eq!(most("8GiB", "64MiB"), 128 << 20);
        assert_eq!(most("640MiB", "64MiB"), 80 << 20);
        assert_eq!(most("256MiB", "64MiB"), 64 << 20, "a body has a batch of its size");
        assert_eq!(most("256MiB", "1MiB"), 32 << 20);
    }

    #[test]
    fn label_sets_are_remembered_within_the_memory_limit() {
        let most =
            |limit: &str| api_settings(&settings(&[("MEMORY__LIMIT", limit)])).decode_limits.known_labels_bytes_max;
        assert_eq!((most("256MiB"), most("8GiB")), (16 << 20, 64 << 20));
    }

    #[test]
    fn delta_sums_stay_within_the_memory_limit() {
        let most = |limit: &str| delta_bytes(&settings(&[("MEMORY__LIMIT", limit)]));
        assert_eq!((most("256MiB"), most("8GiB")), (32 << 20, 64 << 20));
    }
}
