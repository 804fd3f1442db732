//! Builds every component, top to bottom, and lets store and languages meet.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;
use async_trait::async_trait;
use datafusion::catalog::TableProvider;
use quiver_api::alerting::stored_policy;
use quiver_api::answers::AnswerBudget;
use quiver_api::bodies::BodyBudget;
use quiver_api::effects::Effects;
use quiver_api::live::{LiveSettings, Reloader, Token};
use quiver_api::logs_ingest::LogsSettings;
use quiver_api::metrics::ApiMetrics;
use quiver_api::olap_api::waiting::Waiting;
use quiver_api::state::Places;
use quiver_api::{ApiSettings, AppState, Proxies, QueryWatch, RequestIds};
use quiver_ingest::logs::LogsLimits;
use quiver_ingest::{DeltaState, Limits as DecodeLimits, OtlpOptions};
use quiver_logsql::LogsqlEngine;
use quiver_olap::ModelTables;
use quiver_promql::{PromqlEngine, PromqlSettings};
use quiver_query::tables::{TableSources, Tables};
use quiver_query::{
    EngineSettings, Limits, LogTables, QueryEngine, SampleRequest, SampleTables, SpanTables, scan_table,
};
use quiver_sql::SqlEngine;
use quiver_store::{CompactionSettings, Store, StoreSettings, WalLevel};
use quiver_traces::TracesEngine;
use quiver_types::configured::{ConfiguredSource, NothingConfigured};
use quiver_types::logs::{LogRequest, LogSnapshot};
use quiver_types::spans::{KnownKind, Place, RollupRequest, SpanRequest, SpanSnapshot, TagRequest};
use quiver_types::tables::{logs, metric_metadata, metrics, spans};
use quiver_types::{Access, Clock, Error, MemoryPressure, ReadStats, Result, SelectedSeries, SeriesSource};
use tokio::runtime::Handle;

use crate::rules::{MemoryPart, ServerBench};
use crate::settings::{self, Settings, Span};
use crate::sql_languages::SqlLanguages;
use crate::{alerting, analytics, identity, memory, process, through, warm};

/// Version of the product.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Memory of unit tests that a server runs, in bytes, however little it has itself.
const BENCH_MEMORY_MIN: u64 = 128 << 20;

/// The store's samples as tables: the one place where languages and store meet.
struct StoreTables;

impl fmt::Debug for StoreTables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StoreTables")
    }
}

impl SampleTables for StoreTables {
    fn samples(
        &self,
        series: &SelectedSeries,
        request: &SampleRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>> {
        let request = quiver_store::SampleRequest {
            range: request.range,
            floats: request.floats,
            histograms: request.histograms,
            start_times: request.start_times,
            again: request.again,
        };
        Ok(scan_table(quiver_store::samples_table(series, request, stats)?))
    }
}

impl LogTables for StoreTables {
    fn logs(
        &self,
        snapshot: &Arc<dyn LogSnapshot>,
        access: &Access,
        request: LogRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::logs_table(&**snapshot, access, request, stats)?))
    }
}

/// The store's spans as tables.
#[derive(Debug)]
struct StoreSpans;

#[async_trait]
impl SpanTables for StoreSpans {
    fn spans(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &SpanRequest,
        stats: &ReadStats,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::spans_table(snapshot, access, request, stats)?))
    }

    async fn kinds(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        attributes: &[(Place, String)],
        stats: &ReadStats,
    ) -> Result<Vec<KnownKind>> {
        quiver_store::attribute_kinds(snapshot, access, attributes, stats).await
    }

    fn rollups(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &RollupRequest,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::rollups_table(snapshot, access, request.clone())?))
    }

    fn tags(
        &self,
        snapshot: &Arc<dyn SpanSnapshot>,
        access: &Access,
        request: &TagRequest,
    ) -> Result<Arc<dyn TableProvider>> {
        Ok(scan_table(quiver_store::tags_table(snapshot, access, request)?))
    }
}

fn span(span: Span) -> Duration {
    span.0.expect("checked when settings were loaded")
}

/// Gives the memory budget of the process.
pub fn memory_limit_bytes(settings: &Settings) -> u64 {
    match settings.memory.limit.0 {
        0 => process::memory_total_bytes() / 10 * 6,
        given => given,
    }
}

/// Gives the retention of the tables whose signal has one of its own.
fn own_retentions(s: &settings::Store) -> BTreeMap<String, Option<Duration>> {
    let signals = [
        (s.retention_metrics, &[metrics::TABLE.name, metric_metadata::TABLE.name][..]),
        (s.retention_logs, &[logs::TABLE.name]),
        (s.retention_traces, &[spans::TABLE.name]),
    ];
    let given = signals.into_iter().filter_map(|(own, tables)| Some((own.0?.0, tables)));
    given.flat_map(|(retention, tables)| tables.iter().map(move |t| ((*t).to_owned(), retention))).collect()
}

/// Gives the store's part of the settings.
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

/// Gives what may change while the server runs; `memory` is the most that one query may hold.
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

/// Reads what `/admin` asks for; `None`: nothing.
///
/// # Errors
/// Invalid: the file cannot be read, is empty, or holds what no header can.
pub fn admin_token(settings: &Settings) -> Result<Option<String>> {
    let path = &settings.http.admin_token_file;
    if path.is_empty() { Ok(None) } else { secret_in(Path::new(path), "http.admin_token_file").map(Some) }
}

/// Reads a secret that a request can bear; `name` is what named the file.
///
/// # Errors
/// Invalid: the file cannot be read, is empty, or holds what no header can.
pub fn secret_in(path: &Path, name: &str) -> Result<String> {
    let shown = path.display();
    let text =
        std::fs::read_to_string(path).map_err(|e| Error::invalid(format!("cannot read `{shown}` (`{name}`): {e}")))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(Error::invalid(format!("`{shown}` (`{name}`) is empty")));
    }
    if token.contains(|c: char| c.is_control()) {
        return Err(Error::invalid(format!("`{shown}` (`{name}`) holds more than one line")));
    }
    Ok(token.to_owned())
}

fn api_settings(settings: &Settings) -> ApiSettings {
    let h = &settings.http;
    ApiSettings {
        decode_limits: DecodeLimits { body_bytes_max: h.decoded_body_max.0 as usize, ..DecodeLimits::default() },
        body_bytes_max: h.body_max.0 as usize,
        form_bytes_max: h.form_max.0 as usize,
        answer_bytes_max: h.answer_max.0 as usize,
        partial_answers: settings.query.partial_answers,
        otlp: OtlpOptions {
            delta: if settings.otlp.delta == "raw" {
                quiver_ingest::otlp::DeltaMode::Raw
            } else {
                quiver_ingest::otlp::DeltaMode::Accumulate
            },
            native_custom_buckets: settings.otlp.native_custom_buckets,
            scope_labels: settings.otlp.scope_labels,
            promoted: quiver_ingest::otlp::Promoted::of(&settings.otlp.promoted_attributes),
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
        proxies: Proxies { trusted: h.trusted_proxies.clone(), name_us: settings.auth.public_url.is_empty() },
        retry_after_s: quiver_api::error::RETRY_AFTER_S,
        version: VERSION,
    }
}

/// Makes an engine of the language beside the server's own, with other settings.
pub fn promql_beside(app: &AppState, settings: PromqlSettings) -> PromqlEngine {
    PromqlEngine::new(Arc::clone(&app.source), Arc::new(StoreTables), Arc::clone(&app.engine), settings)
}

/// Opens the store and builds what stands above it; accounts only where access control is on.
///
/// # Errors
/// Those of the store (locked directory, newer formats, other installation, …), of the engine and of accounts.
pub async fn build(settings: &Settings, clock: Arc<dyn Clock>) -> Result<Arc<AppState>> {
    assemble(settings, clock, (accounts_at(settings), None), memory_limit_bytes(settings)).await
}

/// The same in a process that does other things, too, and may have so many bytes for all of them: it is short of memory by
/// that, and not by what is there for these settings.
///
/// # Errors
/// As [`build`].
pub async fn build_within(settings: &Settings, process_bytes: u64, clock: Arc<dyn Clock>) -> Result<Arc<AppState>> {
    assemble(settings, clock, (accounts_at(settings), None), process_bytes).await
}

/// The address that tokens name, where access control is on.
fn accounts_at(settings: &Settings) -> Option<&str> {
    Some(settings.http.listen.as_str()).filter(|_| settings.rbac.mode == "on")
}

/// The same for a server, whose token service and administration are there without access control, too. Tokens and links
/// in messages name the address that was bound, also where another one was asked for (port 0).
///
/// # Errors
/// As [`build`].
pub async fn build_server(settings: &Settings, http: SocketAddr, clock: Arc<dyn Clock>) -> Result<Arc<AppState>> {
    assemble(settings, clock, (Some(&http.to_string()), Some(http)), memory_limit_bytes(settings)).await
}

fn start_engine(settings: &Settings, memory: u64, pressure: Arc<MemoryPressure>) -> Result<Arc<QueryEngine>> {
    let spill_dir = Path::new(&settings.store.data).join("spill");
    quiver_query::spill_folder(&spill_dir)?;
    let threads = if settings.query.threads == 0 { process::cores() } else { settings.query.threads };
    let through_codec = settings.query.through_codec;
    let settings = EngineSettings {
        memory_bytes: (memory / 4) as usize,
        spill_dir,
        spill_bytes: settings.query.spill_max.0,
        threads,
        concurrent_max: settings.query.concurrent_max,
        pressure,
    };
    let start = || QueryEngine::with_functions(&settings, quiver_olap::session_functions());
    let engine = start()?;
    if through_codec {
        through::send(&engine, start()?)?;
    }
    Ok(engine)
}

/// The tables that statements and models name.
fn product_tables(
    settings: &Settings,
    store: &Arc<Store>,
    engine: &Arc<QueryEngine>,
    configured: Arc<dyn ConfiguredSource>,
    clock: &Arc<dyn Clock>,
) -> Arc<TableSources> {
    Arc::new(TableSources {
        engine: Arc::clone(engine),
        series: store.source(),
        samples: Arc::new(StoreTables),
        logs: quiver_store::logs_source(store),
        log_tables: Arc::new(StoreTables),
        spans: store.span_source(),
        span_tables: Arc::new(StoreSpans),
        rows: store.row_source(),
        service_labels: settings.ingest.service_labels.clone().into(),
        configured,
        clock: Arc::clone(clock),
    })
}

/// What statements over a directory at rest need.
#[derive(Debug)]
pub struct AtRest {
    /// The language.
    pub sql: SqlEngine,
    /// Bounds of a statement.
    pub limits: Limits,
}

/// Opens a store that nobody serves, to look at it: nothing of what it holds is changed.
///
/// # Errors
/// Those of the store (a server has it, newer formats, …) and of the engine.
pub async fn at_rest(settings: &Settings, clock: Arc<dyn Clock>) -> Result<AtRest> {
    let store_settings = store_settings(settings);
    let compaction = CompactionSettings { enabled: false, ..store_settings.compaction.clone() };
    let store_settings = StoreSettings { look_only: true, compaction, ..store_settings };
    let (memory, pressure) = (store_settings.memory_limit_bytes, Arc::clone(&store_settings.pressure));
    let limits = live_settings(settings, memory / 4)?.query_limits;
    memory::keep(memory, &pressure);
    let store = Store::open(store_settings, Arc::clone(&clock)).await?;
    let engine = start_engine(settings, memory, pressure)?;
    let promql =
        PromqlEngine::new(store.source(), Arc::new(StoreTables), Arc::clone(&engine), promql_settings(settings, 0));
    let logsql = LogsqlEngine::new(quiver_store::logs_source(&store), Arc::new(StoreTables), Arc::clone(&engine));
    // Configuration stands in a database of its own, which belongs to its server.
    let tables = product_tables(settings, &store, &engine, Arc::new(NothingConfigured), &clock);
    let analytics = analytics::open(settings, Arc::clone(&engine), tables)?;
    let models = ModelTables::new(Arc::clone(&analytics.engine), Arc::clone(&clock));
    let languages = SqlLanguages { promql: Arc::new(promql), logsql: Arc::new(logsql), clock };
    let tables = Arc::clone(&analytics.tables) as Arc<dyn Tables>;
    let sql = SqlEngine::new(engine, tables, Arc::new(models), Arc::new(languages));
    Ok(AtRest { sql, limits })
}

fn promql_settings(settings: &Settings, cache_bytes: usize) -> PromqlSettings {
    PromqlSettings {
        lookback_ms: span(settings.query.lookback).as_millis() as i64,
        experimental_functions: settings.query.experimental_functions,
        result_cache_bytes: cache_bytes,
        ..PromqlSettings::default()
    }
}

/// `listen`: the address that tokens name; none: without accounts. `address`: where links lead. `process_bytes`: what the
/// process may take.
async fn assemble(
    settings: &Settings,
    clock: Arc<dyn Clock>,
    (listen, address): (Option<&str>, Option<SocketAddr>),
    process_bytes: u64,
) -> Result<Arc<AppState>> {
    let store_settings = store_settings(settings);
    let live = live_settings(settings, store_settings.memory_limit_bytes / 4)?;
    let (memory, pressure) = (store_settings.memory_limit_bytes, Arc::clone(&store_settings.pressure));
    memory::keep(process_bytes, &pressure);
    let store = Store::open(store_settings, Arc::clone(&clock)).await?;
    let engine = start_engine(settings, memory, pressure)?;
    let (live, metrics) = (Arc::new(ArcSwap::from_pointee(live)), Arc::<ApiMetrics>::default());
    let source: Arc<dyn SeriesSource> = store.source();
    let promql_settings = promql_settings(settings, settings.query.result_cache.0.min(memory / 16) as usize);
    let tables: Arc<dyn SampleTables> = Arc::new(StoreTables);
    let promql = PromqlEngine::new(Arc::clone(&source), tables, Arc::clone(&engine), promql_settings);
    let logsql = LogsqlEngine::new(quiver_store::logs_source(&store), Arc::new(StoreTables), Arc::clone(&engine));
    let traces = TracesEngine::new(
        store.span_source(),
        Arc::new(StoreSpans),
        Arc::clone(&engine),
        settings.traces.export_spans_max,
    );
    let (promql, logsql) = (Arc::new(promql), Arc::new(logsql));
    if address.is_some() {
        // Before queries are watched: these are nobody's.
        Box::pin(warm::up(&promql, &logsql, &traces)).await;
    }
    engine.running().observe(Arc::new(QueryWatch { metrics: Arc::clone(&metrics), live: Arc::clone(&live) }));
    let effects = Arc::<Effects>::default();
    let tables = product_tables(settings, &store, &engine, Arc::clone(&effects) as _, &clock);
    let analytics = analytics::open(settings, Arc::clone(&engine), tables)?;
    let sql = SqlEngine::new(
        Arc::clone(&engine),
        Arc::clone(&analytics.tables) as Arc<dyn Tables>,
        Arc::new(ModelTables::new(Arc::clone(&analytics.engine), Arc::clone(&clock))),
        Arc::new(SqlLanguages { promql: Arc::clone(&promql), logsql: Arc::clone(&logsql), clock: Arc::clone(&clock) }),
    );
    let identities = match listen {
        Some(listen) => Some(identity::open(settings, listen, Arc::clone(&clock)).await?),
        None => None,
    };
    let config = match &identities {
        Some(identities) => identities.config.clone(),
        None => identity::open_config(settings, &clock).await?,
    };
    let engines = alerting::StoreEngines {
        promql: Arc::clone(&promql),
        logsql: Arc::clone(&logsql),
        olap: Arc::clone(&analytics.engine),
        engine: Arc::clone(&engine),
        store: Arc::clone(&store),
        live: Arc::clone(&live),
        clock: Arc::clone(&clock),
        results_max: settings.alerting.results_max,
        service_labels: settings.ingest.service_labels.clone().into(),
        identities: identities.clone().filter(|identities| identities.enforced),
    };
    let files = alerting::template_reader(settings);
    let stored = stored_policy::policy(&config, &files).await.map_err(identity::fault)?;
    let alertd = alerting::open(settings, address, (engines, stored), Arc::clone(&clock)).await?;
    effects.bind(&alertd, files, &config).await.map_err(identity::fault)?;
    let delta_idle_ms = span(settings.otlp.delta_idle).as_millis() as i64;
    Ok(Arc::new(AppState {
        store,
        source,
        engine,
        traces,
        promql,
        logsql,
        sql: Arc::new(sql),
        olap: analytics.engine,
        olap_waiting: Waiting::default(),
        started_ms: clock.now_ms(),
        clock,
        delta: Mutex::new(DeltaState::new(settings.otlp.delta_memory.0 as usize, delta_idle_ms)),
        settings: api_settings(settings),
        live,
        reloader: Reloader::default(),
        request_ids: RequestIds::default(),
        bodies: BodyBudget::new((memory / 16) as usize, settings.http.body_max.0 as usize),
        answers: AnswerBudget::new(memory / 16),
        places: Places::new(settings.ingest.imports_max, settings.query.remote_reads_max),
        metrics,
        config,
        effects,
        identities,
        alertd,
        rule_bench: Arc::new(ServerBench {
            runtime: Handle::current(),
            memory: MemoryPart { own: (memory / 8).max(BENCH_MEMORY_MIN), process: process_bytes },
        }),
        stopping: false.into(),
        process_metrics: process::write_metrics,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(given: &[(&str, &str)]) -> Settings {
        let given = given.iter().map(|(name, value)| (format!("QUIVER_{name}"), (*value).to_owned()));
        settings::Loaded::load(None, given, &[]).unwrap().settings
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
        assert_eq!(plain.otlp.delta, quiver_ingest::otlp::DeltaMode::Accumulate);
        assert!(plain.proxies.name_us && plain.partial_answers);
        let given = [
            ("OTLP__DELTA", "raw"),
            ("AUTH__PUBLIC_URL", "https://quiver.example"),
            ("HTTP__BODY_MAX", "1MiB"),
            ("HTTP__DECODED_BODY_MAX", "2MiB"),
            ("INGEST__LOGS_ACCEPT_FUTURE", "1m"),
        ];
        let given = api_settings(&settings(&given));
        assert_eq!(given.otlp.delta, quiver_ingest::otlp::DeltaMode::Raw);
        // A name that is set is not that which a proxy says.
        assert!(!given.proxies.name_us);
        assert_eq!((given.body_bytes_max, given.decode_limits.body_bytes_max), (1 << 20, 2 << 20));
        assert_eq!(given.logs.accept_future_ns, Some(60_000_000_000));
    }

    #[test]
    fn accounts_are_where_access_control_is() {
        assert_eq!(accounts_at(&settings(&[("HTTP__LISTEN", "127.0.0.1:5")])), Some("127.0.0.1:5"));
        assert_eq!(accounts_at(&settings(&[("RBAC__MODE", "off")])), None);
    }
}
