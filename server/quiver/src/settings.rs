//! All settings, typed, with documented defaults: defaults < file < environment < flags.
//!
//! One list gives struct, defaults, `--print-settings` and `docs/settings.md`; to add a setting, add a line.

use std::fmt;
use std::io;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

mod bounds;
mod checks;
mod environment;
mod live;
mod oidc;
mod origins;
mod rendering;
mod tls;
mod values;

pub use environment::variables;
pub use live::is_live;
pub use oidc::OidcIssuer;
use origins::Origins;
pub use rendering::{print_settings, settings_document};
use values::SettingValue;
pub use values::{OwnSpan, RedactedText, Size, Span};

/// One documented setting.
#[derive(Debug, Clone, Copy)]
pub struct Doc {
    /// Name of the table in TOML, like `http`.
    pub section: &'static str,
    /// Key in the section.
    pub key: &'static str,
    /// What it does, with its unit.
    pub doc: &'static str,
    /// Default as TOML.
    pub default: &'static str,
}

macro_rules! settings {
    ($($(#[doc = $section_doc:literal])* $section:ident: $type:ident {
        $($(#[doc = $doc:literal])* $key:ident: $value:ty = $default:literal;)*
    })*) => {
        /// Everything that a user can tune.
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct Settings {
            $($(#[doc = $section_doc])* pub $section: $type,)*
        }

        $($(#[doc = $section_doc])*
        #[derive(Debug, Clone, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $type {
            $($(#[doc = $doc])* pub $key: $value,)*
        })*

        impl Settings {
            /// Gives all values in order: section, key, value as a user would write it.
            pub fn listed(&self) -> Vec<(&'static str, &'static str, serde_json::Value)> {
                vec![$($((stringify!($section), stringify!($key), self.$section.$key.shown()),)*)*]
            }
        }

        /// All settings in order.
        pub const DOCS: &[Doc] = &[
            $($(Doc { section: stringify!($section), key: stringify!($key), doc: concat!($($doc, "\n"),*), default: $default },)*)*
        ];

        /// Sections with their texts, in order.
        pub const SECTIONS: &[(&str, &str)] = &[$((stringify!($section), concat!($($section_doc, "\n"),*)),)*];
    };
}

settings! {
    /// The main HTTP port: queries, remote write, OTLP, health.
    http: Http {
        /// Address and port; port 0 picks a free one and prints it.
        listen: String = "\"127.0.0.1:8800\"";
        /// Largest request body as sent, before decompression.
        body_max: Size = "\"64MiB\"";
        /// Largest request body after decompression.
        decoded_body_max: Size = "\"64MiB\"";
        /// Largest form-encoded body of a query.
        form_max: Size = "\"10MiB\"";
        /// Largest response; a query, federation request or remote read (samples) whose response would be larger fails.
        answer_max: Size = "\"100MiB\"";
        /// Most open connections on all ports together; fewer if the limit of open files does not allow as many.
        /// Further connections get 503.
        connections_max: usize = "20000";
        /// Largest request head (request line and headers). An access token may take up to 16 KiB of it; everything
        /// else together at most half of it.
        head_max: Size = "\"32KiB\"";
        /// How long a client may take to send a request head; for the first one the time counts from when it connected.
        header_timeout: Span = "\"10s\"";
        /// How long a connection may stay open without a request.
        keep_alive: Span = "\"2m\"";
        /// Slowest rate, in bytes per second, at which a request body may arrive; a slower sender gets 408. 0: any
        /// rate, as long as something arrives. A response that is read more slowly is given up if others need what it
        /// holds.
        body_rate_min: Size = "\"1KiB\"";
        /// How long a sender may stay below `body_rate_min`, or send nothing, before it gets 408; and a reader, before
        /// its response is given up.
        body_grace: Span = "\"10s\"";
        /// How long a client may read nothing of its response before the connection is closed, or, over HTTP/2, that
        /// response is given up.
        send_timeout: Span = "\"1m\"";
        /// How long `/health/ready` answers 503 after SIGTERM before connections are closed. Behind a load balancer,
        /// set it to a little more than the balancer takes to notice; without one, leave it at 0.
        lame_duck: Span = "\"0s\"";
        /// How long running requests may take to finish after that.
        drain_timeout: Span = "\"10s\"";
        /// Origins that browsers may call from; `*` allows any, except for `/admin`, which needs the origin by name.
        cors_origins: Vec<String> = "[]";
        /// Host names (without port) under which browsers and operators reach this server, besides the loopback names;
        /// `*` for any.
        hosts: Vec<String> = "[]";
        /// Networks of trusted proxies: the server believes their `X-Forwarded-For` (who the client is) and, if
        /// `auth.public_url` is not set, their `X-Forwarded-Proto` and `X-Forwarded-Host` (under which address clients
        /// reach this server).
        trusted_proxies: Vec<String> = "[]";
        /// File with the secret that requests to `/admin` must show (`Authorization: Bearer …`), wherever they come
        /// from. Empty: `/admin` answers only requests from this machine that did not come through a proxy.
        admin_token_file: String = "\"\"";
        /// Whether anyone may see `/rulesapi/swagger`; `false`: only callers that are authenticated.
        docs_public: bool = "true";
        /// Whether the server may listen on addresses other than loopback while access control is off. For containers.
        rbac_off_on_network: bool = "false";
    }
    /// TLS on every port. Changed files are reloaded, also on SIGHUP and `POST /admin/reload`; open connections stay.
    tls: Tls {
        /// File (PEM) with the certificate of this server, followed by its intermediate certificates; empty: no TLS.
        certificate_file: String = "\"\"";
        /// File (PEM) with the private key of that certificate, without a passphrase.
        key_file: String = "\"\"";
        /// File (PEM) with the authorities that sign client certificates. A client that presents such a certificate
        /// acts as the service account whose `clientId` equals the common name of the certificate's subject. Empty:
        /// clients are not asked for certificates.
        client_ca_file: String = "\"\"";
        /// Whether clients without such a certificate are rejected.
        client_required: bool = "false";
        /// How often the files are checked for changes.
        reload_interval: Span = "\"10s\"";
        /// Whether the server refuses to listen on addresses other than loopback without TLS.
        required: bool = "false";
    }
    /// Ports of OTLP, and how OTLP metrics become series.
    otlp: Otlp {
        /// Address and port of OTLP over HTTP; empty switches it off.
        http_listen: String = "\"127.0.0.1:4318\"";
        /// Address and port of OTLP over gRPC; empty switches it off.
        grpc_listen: String = "\"127.0.0.1:4317\"";
        /// How metrics of delta temporality are stored: `accumulate` (summed up per series into cumulative values) or
        /// `raw` (as sent).
        delta: String = "\"accumulate\"";
        /// Memory for the running sums of delta series; at most an eighth of `memory.limit`.
        delta_memory: Size = "\"64MiB\"";
        /// A delta series that receives nothing for this long starts again from zero.
        delta_idle: Span = "\"1h\"";
        /// Whether histograms with explicit bounds are stored as native histograms with custom buckets.
        native_custom_buckets: bool = "false";
        /// Whether series get labels for their instrumentation scope (`otel_scope_name`, …).
        scope_labels: bool = "false";
        /// Resource attributes that become labels of each series, besides being in `target_info`; a `*` at the end
        /// stands for any rest of the name. `[]` gives the labels that Prometheus gives; resources without a service
        /// name then share their series.
        promoted_attributes: Vec<String> = "['service.name', 'service.namespace', 'service.version', \
            'deployment.environment.name', 'deployment.environment', \
            'host.name', 'host.id', 'host.type', 'host.arch', 'os.type', 'os.description', \
            'cloud.provider', 'cloud.account.id', 'cloud.region', 'cloud.availability_zone', \
            'k8s.cluster.name', 'k8s.namespace.name', 'k8s.node.name', 'k8s.node.uid', 'k8s.pod.name', 'k8s.pod.uid', \
            'k8s.container.name', 'k8s.deployment.name', 'k8s.replicaset.name', 'k8s.statefulset.name', \
            'k8s.daemonset.name', 'k8s.job.name', 'k8s.cronjob.name', 'k8s.volume.name', \
            'container.id', 'container.name', 'container.image.name', 'container.image.tag', 'container.image.tags', \
            'container.runtime', 'container.runtime.name', \
            'process.pid', 'process.executable.name', 'process.owner', 'process.runtime.name', \
            'server.address', 'server.port', \
            'postgresql.*', 'mysql.*', 'redis.*', 'mongodb.*', 'sqlserver.*', 'oracledb.*']";
    }
    /// Limits of traces, and the port of Zipkin.
    traces: Traces {
        /// Most spans of one trace in a response.
        export_spans_max: usize = "500000";
        /// Address and port of Zipkin's API (usually `127.0.0.1:9411`); empty switches it off. The main port serves the
        /// same API.
        zipkin_listen: String = "\"\"";
    }
    /// PostgreSQL's wire protocol, for `psql`, drivers and tools that speak it; see `docs/sql.md`.
    postgres: Postgres {
        /// Address and port (usually `127.0.0.1:5432`); empty switches it off.
        listen: String = "\"\"";
        /// How long a connection may stay open without a statement.
        idle_timeout: Span = "\"1h\"";
    }
    /// Where data is kept, and for how long.
    store: Store {
        /// Data directory: WAL, catalog database, local object store, spool, spill files.
        data: String = "\"./quiver-data\"";
        /// Object store: `file:///…` or `s3://bucket/prefix` (AWS variables, `AWS_ENDPOINT`); empty: under `data`.
        url: String = "\"\"";
        /// How long data is kept; `none` keeps everything and also lifts the limits on the age of samples.
        retention: Span = "\"30d\"";
        /// Retention of metrics, if it differs; empty: as `retention`.
        retention_metrics: OwnSpan = "\"\"";
        /// Retention of logs, if it differs; empty: as `retention`.
        retention_logs: OwnSpan = "\"\"";
        /// Retention of traces, if it differs; empty: as `retention`.
        retention_traces: OwnSpan = "\"\"";
        /// Most bytes of all parts together; above it the oldest days of all signals are dropped, but never the newest
        /// day. 0: no limit.
        size_max: Size = "\"0\"";
        /// How long the files of days that retention dropped are kept, so that `quiver store undrop` can bring them
        /// back.
        drop_grace: Span = "\"6h\"";
        /// After the clock has jumped by more than a day, retention follows the new time only once it has held for this
        /// long and samples of that time have arrived.
        clock_confirm: Span = "\"6h\"";
        /// Most bytes of parts that may wait locally for an object store that cannot be reached; beyond it writes get
        /// 503.
        spool_limit: Size = "\"20GiB\"";
        /// Writes get 503 while the disk has fewer free bytes than this.
        disk_reserve: Size = "\"64MiB\"";
        /// Most concurrent requests to the object store.
        requests_max: usize = "16";
        /// How long an operation on the object store is retried before it counts as failed.
        retry_budget: Span = "\"30s\"";
    }
    /// The write-ahead log.
    wal: Wal {
        /// When a write is acknowledged: `sync` (after fdatasync) or `os` (after the write call; synced once a second).
        level: String = "\"sync\"";
        /// Size at which a new segment file is started.
        segment: Size = "\"64MiB\"";
    }
    /// Memory of the process.
    memory: Memory {
        /// Memory budget of the whole process; 0 means 60 % of the memory of the machine or of its control group.
        limit: Size = "\"0\"";
        /// Size at which writes held in memory (a generation) are flushed to a part; 0 means 72 MiB, or a 16th of the
        /// limit if that is less.
        generation: Size = "\"0\"";
        /// Whether decoded columns of logs are cached for later queries, within the memory of the caches.
        decoded_cache: bool = "true";
    }
    /// What is accepted from senders.
    ingest: Ingest {
        /// How old a sample may be when it arrives; `none`: as old as the retention allows.
        accept_past: Span = "\"none\"";
        /// How far in the future a sample may be; no limit when `store.retention` is `none`.
        accept_future: Span = "\"10m\"";
        /// How far in the future a log row may be; `none`: no limit. Rows beyond are dropped and counted.
        logs_accept_future: Span = "\"2d\"";
        /// Most concurrent imports of exposition text, each with a thread and 8 MiB; further ones get 429.
        imports_max: usize = "16";
        /// Message of log rows that come without one; empty: they keep none.
        logs_default_message: String = "\"\"";
        /// Labels that name the service of a series; the first one that is not empty counts.
        service_labels: Vec<String> = "[\"service_name\", \"service\", \"job\"]";
        /// Most new series that one service may create within an hour. Samples of further new series are refused (400
        /// or partial success), existing series continue. 0: no limit.
        service_new_series_per_hour: u64 = "1000000";
    }
    /// Merging of parts in the background.
    compaction: Compaction {
        /// Whether it runs by itself; `POST /admin/compact` works in either case.
        enabled: bool = "true";
        /// How often it looks for work.
        interval: Span = "\"30s\"";
        /// Size at which a merged part is complete and the next one of the same day is begun.
        part: Size = "\"256MiB\"";
    }
    /// Limits of queries.
    query: Query {
        /// Longest time a query may run; its `timeout` parameter can only shorten it.
        timeout: Span = "\"2m\"";
        /// Most queries that run at once; others wait, and the wait counts towards their timeout.
        concurrent_max: usize = "20";
        /// Most queries that wait for their turn, or for the memory that they will probably take; further ones get 503.
        waiting_max: usize = "1000";
        /// Most remote reads at once; others wait.
        remote_reads_max: usize = "10";
        /// Longest time a query of logs may run; its `timeout` parameter can only shorten it.
        logs_timeout: Span = "\"30s\"";
        /// Most series of a matrix, elements of a vector, or collected log rows in one response.
        rows_max: u64 = "1000000";
        /// Most samples that one query or remote read may load, and that PromQL may hold (`peakSamples` in the
        /// statistics).
        samples_max: u64 = "50000000";
        /// Most series that one query may select.
        series_max: u64 = "2000000";
        /// Most bytes that one query may read from the store.
        bytes_max: Size = "\"10GiB\"";
        /// Threads that run queries; 0 means one per core.
        threads: usize = "0";
        /// Most bytes of spill files of all queries.
        spill_max: Size = "\"20GiB\"";
        /// Default lookback of PromQL, and how old the samples may be that `/federate` returns.
        lookback: Span = "\"5m\"";
        /// Whether experimental functions of PromQL are allowed, both where expressions run and where they are only
        /// parsed.
        experimental_functions: bool = "true";
        /// Memory for cached results of range queries; at most a sixteenth of `memory.limit`. 0: nothing is cached, nor
        /// are results of analytics.
        result_cache: Size = "\"256MiB\"";
        /// Whether a query continues without files that turn out to be damaged. Such a response is marked by the header
        /// `Quiver-Partial` and names the files in `warnings` (PromQL), `meta` (traces) or `errors` (Jaeger). `false`:
        /// the query fails.
        partial_answers: bool = "true";
        /// Queries of any language that take longer are logged with their text (cut to 4 KiB) and what they used.
        slow: Span = "\"5s\"";
        /// Whether each plan is serialized and read by a second engine before it runs. For tests; needs a binary that
        /// was built with the feature `codec`.
        through_codec: bool = "false";
    }
    /// Analytics: models and tables of the operator.
    olap: Olap {
        /// Folders with models (`*.yml`, `*.yaml`); reloaded when a file changes.
        model_dirs: Vec<String> = "[]";
        /// Folders with tables: `NAME.csv` (types in `NAME.types.json`) and `NAME.parquet` become `public.NAME`.
        table_dirs: Vec<String> = "[]";
        /// Whether the built-in models are available: `on` or `off`.
        builtin: String = "\"on\"";
    }
    /// Access control.
    rbac: Rbac {
        /// `on`: every request must be authenticated and sees only what its account may see; see `docs/identity.md`.
        /// `off`: anyone may do anything.
        mode: String = "\"on\"";
        /// Requests per second that one API key may send, not counting ingest; more get 429. 0: no limit.
        key_requests_per_second: usize = "100";
        /// Requests that an API key may send at once after a pause.
        key_requests_burst: usize = "200";
        /// Bytes of telemetry, as sent, that one API key may send per second, and twice as many in a burst; above it
        /// requests get 429 until the average is met again. 0: no limit.
        key_ingest_bytes_per_second: Size = "\"0\"";
        /// The same limit counted in records (samples, log rows, spans).
        key_ingest_records_per_second: usize = "0";
        /// Fields that name the service of a log row; the first one that is not empty counts.
        logs_service_fields: Vec<String> = "[\"service.name\", \"service_name\", \"service\", \"app\", \"kubernetes.labels.app\"]";
    }
    /// Where configuration and accounts are kept.
    config: Configuration {
        /// PostgreSQL database for them, which one server or several use:
        /// `postgres://user:password@host:5432/database`, with `?sslmode=verify-full` (and `&sslrootcert=…`) if the
        /// network is not trusted. Servers with the same database share its accounts and need the same master key.
        /// Empty: the SQLite file `config.db` in the data directory.
        database_url: RedactedText = "\"\"";
        /// File with that URL; takes precedence over `config.database_url`.
        database_url_file: String = "\"\"";
    }
    /// Accounts and tokens.
    auth: Auth {
        /// Address under which clients reach this server (`https://quiver.example`), which is the issuer that tokens
        /// name; empty: that of `http.listen`. A token is accepted only if it names this issuer.
        public_url: String = "\"\"";
        /// Whether users may authenticate by Basic credentials with their password on every path; `false`: only to
        /// change their password.
        basic_passwords: bool = "false";
        /// Whether analytics (`/olap-api`) accepts API keys and secrets of service accounts, besides access tokens.
        olap_api_keys: bool = "false";
        /// Bits of the RSA keys that sign tokens: 2048, 3072 or 4096.
        key_bits: usize = "2048";
        /// External issuers whose tokens are accepted, each as `[[auth.oidc]]`: `issuer`, `audiences`, and optionally
        /// `client_id_claim` (`azp`), `roles_claim` (`realm_access.roles`), `username_claim` (`preferred_username`),
        /// `jwks_refresh` (`5m`). Bindings to an `externalRole` say what their roles may do.
        oidc: Vec<OidcIssuer> = "[]";
        /// File with the 32 bytes with which private keys are encrypted; created if missing. Empty: `master-key` in the
        /// data directory. `QUIVER_MASTER_KEY_FILE` sets the same.
        master_key_file: String = "\"\"";
    }
    /// Rules and notifications.
    alerting: Alerting {
        /// Rule files of Prometheus or vmalert to evaluate; file names may hold `*`, `?` and `[a-z]`. Read again when
        /// settings are reloaded.
        rules: Vec<String> = "[]";
        /// Alertmanager configuration (YAML) that says who is notified; empty: nobody. Read again when settings are
        /// reloaded.
        policy: String = "\"\"";
        /// Evaluation interval of rule groups that set none.
        evaluation_interval: Span = "\"1m\"";
        /// Most rule groups that are evaluated at once; others wait. Rules of one group that run in parallel each
        /// count.
        concurrent_max: usize = "16";
        /// Most elements in the result of one rule; a rule with more fails.
        results_max: u64 = "100000";
        /// How often a rule reports a firing alert again to the router.
        resend_delay: Span = "\"1m\"";
        /// How long the alerts of a rule keep firing while its evaluation fails.
        error_hold: Span = "\"1h\"";
        /// Address of this server as people reach it, for messages and templates; empty: `auth.public_url`, else the
        /// address of `http.listen`.
        external_url: String = "\"\"";
        /// Labels added to every alert that does not have them, each as `name=value`.
        external_labels: Vec<String> = "[]";
        /// Directory in which secret files (`…_file`) and templates that the policy names must lie; empty: none are
        /// read.
        files_dir: String = "\"\"";
        /// Most alerts known at once; more are refused with 503, as are alerts that together take more than a sixteenth
        /// of `memory.limit`.
        alerts_max: usize = "100000";
    }
    /// Outgoing calls: notifications.
    egress: EgressSection {
        /// Networks that calls may go to even if they are closed by default (`127.0.0.0/8` for receivers on this
        /// machine). Closed are loopback, link-local and multicast addresses; the metadata address of a cloud must be
        /// listed as a single address.
        allow: Vec<String> = "[]";
        /// Networks that calls must not go to; takes precedence over `allow`.
        deny: Vec<String> = "[]";
        /// Whether calls may go to private networks.
        allow_private: bool = "true";
    }
    /// Managed resources.
    resources: Resources {
        /// How often resources and their relationships are discovered in incoming telemetry; `0s`: never.
        discovery_interval: Span = "\"30s\"";
    }
    /// Tables about the server itself: what it is asked and what it stores.
    usage: Usage {
        /// How often ended queries are written to `query_log` and received telemetry to `ingest_usage_1m`; `0s`: never,
        /// and then `storage_stats` and `resource_health` get no rows either.
        interval: Span = "\"60s\"";
    }
    /// The log of the service itself.
    log: Log {
        /// Filter by area and level (`info`, `quiver=debug,info`, `off`); the environment variable `RUST_LOG` overrides it.
        filter: String = "\"info,quiver=info\"";
        /// `text` or `json`.
        format: String = "\"text\"";
        /// Whether each finished request is logged (area `quiver::access`, level `info`): path, status, bytes, time,
        /// request id, peer; never parameters or bodies.
        access: bool = "false";
    }
}

/// Why settings are not valid.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read settings file `{path}`: {why}")]
    Read {
        /// The path as it was given.
        path: String,
        /// What the system says; part of the text, so that it is said once.
        why: io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong form.
    #[error("settings are not valid: {0}")]
    Invalid(String),
}

/// Settings and where they differ from the defaults.
pub struct LoadedSettings {
    /// The settings that hold: defaults with all that was given over them.
    pub settings: Settings,
    given: Table,
}

impl fmt::Debug for LoadedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was given may hold passwords.
        f.debug_struct("LoadedSettings").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl LoadedSettings {
    /// Merges defaults, file, environment (`QUIVER_SECTION__KEY`) and flags (`section.key` and a value).
    ///
    /// # Errors
    /// An unreadable file, an unknown key, a value of the wrong form: the text names it, and the line or variable.
    pub fn load(
        file: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
        flags: &[(&str, String)],
    ) -> Result<Self, SettingsError> {
        let (mut given, mut origins) = (Table::new(), Origins::default());
        if let Some(path) = file {
            let shown = path.display().to_string();
            let text = quiver_files::read_given_text(path, quiver_files::TEXT_BYTES_MAX)
                .map_err(|why| SettingsError::Read { path: shown.clone(), why })?;
            given = text.parse().map_err(|e: toml::de::Error| {
                SettingsError::Invalid(format!("`{shown}`: {}", values::place_and_reason(&e, &text)))
            })?;
            origins = Origins::of_file(&shown, &text);
        }
        for (name, text) in variables {
            if let Some((section, key, value)) = environment::read(&name, &text)? {
                origins.variable(&section, &key, &name);
                put(&mut given, &section, &key, value);
            }
        }
        for (name, text) in flags {
            let (section, key) = name.split_once('.').expect("flags are written section.key");
            origins.flag(section, key);
            put(
                &mut given,
                section,
                key,
                match text.as_str() {
                    "true" | "false" => Value::Boolean(text == "true"),
                    list if list.starts_with("[\"") => environment::literal(list),
                    _ => Value::String(text.clone()),
                },
            );
        }
        Self::of_given(given).map_err(|error| match error {
            SettingsError::Invalid(text) => SettingsError::Invalid(origins.located(text)),
            read @ SettingsError::Read { .. } => read,
        })
    }

    /// The defaults with what was given over them.
    fn of_given(given: Table) -> Result<Self, SettingsError> {
        let mut all: Table = rendering::defaults().parse().expect("the defaults are valid");
        for (section, values) in &given {
            match (all.get_mut(section), values) {
                (Some(Value::Table(into)), Value::Table(values)) => into.extend(values.clone()),
                (Some(_), _) => return Err(SettingsError::Invalid(format!("`{section}` is a section"))),
                (None, _) => return Err(unknown_section(section)),
            }
        }
        let wrong = |e: toml::de::Error| SettingsError::Invalid(values::in_words(&e.to_string()));
        let settings = Settings::deserialize(Value::Table(all)).map_err(wrong)?;
        let loaded = Self { settings, given };
        checks::check(&loaded.settings)?;
        Ok(loaded)
    }

    /// Says whether a setting was given anywhere.
    pub fn is_given(&self, section: &str, key: &str) -> bool {
        self.given.get(section).and_then(|s| s.get(key)).is_some()
    }
}

/// A setting without its section gets here, too, so what is a section is said.
fn unknown_section(name: &str) -> SettingsError {
    let known = SECTIONS.iter().map(|(section, _)| format!("`{section}`")).collect::<Vec<_>>().join(", ");
    SettingsError::Invalid(format!("unknown section `{name}`; sections are {known}"))
}

fn put(table: &mut Table, section: &str, key: &str, value: Value) {
    let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(values) = entry {
        values.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
