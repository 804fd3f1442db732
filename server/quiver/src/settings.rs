//! All settings, typed, with documented defaults: defaults < file < environment < flags.
//!
//! One list gives struct, defaults, `--print-settings` and `docs/settings.md`; to add a setting, add a line.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

mod checks;
mod environment;
mod live;
mod oidc;
mod printed;
mod tls;
mod values;

pub use live::is_live;
pub use oidc::OidcIssuer;
pub use printed::{print_settings, settings_document};
use values::Shown;
pub use values::{Hidden, OwnSpan, Size, Span};

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
        /// Largest body as it comes over the wire.
        body_max: Size = "\"64MiB\"";
        /// Largest body after decompression.
        decoded_body_max: Size = "\"64MiB\"";
        /// Largest form body of a query.
        form_max: Size = "\"10MiB\"";
        /// Largest answer; a query, federation or remote read (samples) whose answer is larger fails.
        answer_max: Size = "\"100MiB\"";
        /// Connections at once, of all ports together; fewer where the limit of open files leaves no room for them. Those
        /// beyond get 503.
        connections_max: usize = "20000";
        /// Largest head of a request: request line, names and values of headers. A token has up to 16 KiB of it; all else
        /// has half of it at most.
        head_max: Size = "\"32KiB\"";
        /// How long a client may take to send a head; the first one counts from when it connected.
        header_timeout: Span = "\"10s\"";
        /// How long a connection may stay without a request.
        keep_alive: Span = "\"2m\"";
        /// Bytes per second that the sender of a body must keep up, else it gets 408; 0: any, unless it falls silent.
        body_rate_min: Size = "\"1KiB\"";
        /// How long the sender of a body may be slower than that, or silent.
        body_grace: Span = "\"10s\"";
        /// How long a reader may take nothing of its answer before the connection is closed.
        send_timeout: Span = "\"1m\"";
        /// How long `/health/ready` answers 503 after SIGTERM before connections are closed. Behind a load balancer: a
        /// little more than it takes to notice; without one a stop need not wait.
        lame_duck: Span = "\"0s\"";
        /// How long requests may go on after that.
        drain_timeout: Span = "\"10s\"";
        /// Origins that browsers may call from; `*` for all, which is not enough for `/admin`.
        cors_origins: Vec<String> = "[]";
        /// Names (without port) by which browsers and operators call this server, besides those of loopback; `*` for any.
        hosts: Vec<String> = "[]";
        /// Networks of proxies that are believed: whom a request comes from (`X-Forwarded-For`), and, without
        /// `auth.public_url`, by which address clients reach this server (`X-Forwarded-Proto`, `X-Forwarded-Host`).
        trusted_proxies: Vec<String> = "[]";
        /// File with a secret that `/admin` asks for (`Authorization: Bearer …`), from anywhere and through proxies; empty:
        /// `/admin` answers whoever is on this machine and comes through no proxy.
        admin_token_file: String = "\"\"";
        /// Whether `/rulesapi/swagger` is shown to whoever asks; `false`: to those who are let in.
        docs_public: bool = "true";
        /// Whether to listen on other than loopback addresses while there is no access control. For containers.
        rbac_off_on_network: bool = "false";
    }
    /// TLS on every port. Files that change are read anew, also on SIGHUP and `POST /admin/reload`; open connections stay.
    tls: Tls {
        /// File (PEM) with the certificate of this server, then those that lead to its authority; empty: no TLS.
        certificate_file: String = "\"\"";
        /// File (PEM) with its private key, without a passphrase.
        key_file: String = "\"\"";
        /// File (PEM) with authorities. A client with a certificate that one of them signed is the service account whose
        /// `clientId` is the common name of its subject. Empty: clients are not asked for certificates.
        client_ca_file: String = "\"\"";
        /// Whether clients without such a certificate are turned away.
        client_required: bool = "false";
        /// How often the files are looked at.
        reload_interval: Span = "\"10s\"";
        /// Whether the server refuses to listen on other than loopback addresses without TLS.
        required: bool = "false";
    }
    /// Ports of OTLP, and how its metrics become series.
    otlp: Otlp {
        /// Address and port of OTLP over HTTP; empty switches it off.
        http_listen: String = "\"127.0.0.1:4318\"";
        /// Address and port of OTLP over gRPC; empty switches it off.
        grpc_listen: String = "\"127.0.0.1:4317\"";
        /// What becomes of delta temporality: `accumulate` (added up per series) or `raw` (stored as sent).
        delta: String = "\"accumulate\"";
        /// Memory for the sums of delta series.
        delta_memory: Size = "\"64MiB\"";
        /// A delta series that is idle for so long begins anew.
        delta_idle: Span = "\"1h\"";
        /// Whether histograms with explicit bounds become native ones with custom buckets.
        native_custom_buckets: bool = "false";
        /// Whether series get labels of their instrumentation scope (`otel_scope_name`, …).
        scope_labels: bool = "false";
        /// Resource attributes that become labels of each series, besides `target_info`; a last `*` stands for the rest
        /// of a name. `[]` gives the label sets of Prometheus, where series of resources without a service are one.
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
    /// Bounds of traces, and the port of Zipkin.
    traces: Traces {
        /// Most spans that one trace may have in an answer.
        export_spans_max: usize = "500000";
        /// Address and port of Zipkin's API (usually `127.0.0.1:9411`); empty switches it off. It is on the main port too.
        zipkin_listen: String = "\"\"";
    }
    /// PostgreSQL's wire protocol, for `psql`, drivers and tools that speak it; see `docs/sql.md`.
    postgres: Postgres {
        /// Address and port (usually `127.0.0.1:5432`); empty switches it off.
        listen: String = "\"\"";
        /// How long a connection may stay without a statement.
        idle_timeout: Span = "\"1h\"";
    }
    /// Where and how long data is kept.
    store: Store {
        /// Data directory: WAL, catalog database, local object store, spool, spill files.
        data: String = "\"./quiver-data\"";
        /// Object store: `file:///…` or `s3://bucket/prefix` (AWS variables, `AWS_ENDPOINT`); empty: under `data`.
        url: String = "\"\"";
        /// How long data is kept; `none` keeps all and lifts the limits on the age of samples.
        retention: Span = "\"30d\"";
        /// Retention of metrics, where it differs; empty: that of `retention`.
        retention_metrics: OwnSpan = "\"\"";
        /// The same of logs.
        retention_logs: OwnSpan = "\"\"";
        /// The same of traces.
        retention_traces: OwnSpan = "\"\"";
        /// Most bytes of all parts together; above it the oldest days of all signals are dropped, the newest never. 0: no limit.
        size_max: Size = "\"0\"";
        /// How long the files of days that retention dropped stay, for `quiver store undrop`.
        drop_grace: Span = "\"6h\"";
        /// How long a clock that jumped by more than a day must hold, with samples of its time, before retention goes by it.
        clock_confirm: Span = "\"6h\"";
        /// Most bytes of parts that wait for an object store that is down; then writes get 503.
        spool_limit: Size = "\"20GiB\"";
        /// Free bytes on the disk below which writes get 503.
        disk_reserve: Size = "\"64MiB\"";
        /// Requests to the object store at once.
        requests_max: usize = "16";
        /// How long one operation of the object store is repeated before it counts as failed.
        retry_budget: Span = "\"30s\"";
    }
    /// The write-ahead log.
    wal: Wal {
        /// When a write is acknowledged: `sync` (after fdatasync) or `os` (after write, synced each second).
        level: String = "\"sync\"";
        /// Size of a segment.
        segment: Size = "\"64MiB\"";
    }
    /// Memory of the process.
    memory: Memory {
        /// Budget of the whole process; 0 means 60 % of the machine or of its control group.
        limit: Size = "\"0\"";
        /// Live data of one generation; 0 means the smaller of 72MiB and a 16th of the limit.
        generation: Size = "\"0\"";
        /// Whether columns of logs are kept decoded for queries that use them again, within the memory of caches.
        decoded_cache: bool = "true";
    }
    /// What is accepted from senders.
    ingest: Ingest {
        /// How old a sample may be when it arrives; `none`: as old as the retention allows.
        accept_past: Span = "\"none\"";
        /// How far in the future a sample may be; lifted by retention `none`.
        accept_future: Span = "\"10m\"";
        /// How far in the future a log row may be; `none`: any time. Rows beyond are dropped and counted.
        logs_accept_future: Span = "\"2d\"";
        /// Imports of exposition text at once, each with a thread and 8 MiB; others get 429.
        imports_max: usize = "16";
        /// The message of log rows that come without one; empty: they stay without.
        logs_default_message: String = "\"\"";
        /// Labels that name the service of a series; the first non-empty one counts.
        service_labels: Vec<String> = "[\"service_name\", \"service\", \"job\"]";
        /// Series new to the live data that one service may bring within an hour; more of them are refused (400 or partial
        /// success), what is there already goes on; 0: no limit.
        service_new_series_per_hour: u64 = "1000000";
    }
    /// Merging of parts in the background.
    compaction: Compaction {
        /// Whether it runs by itself; `POST /admin/compact` works without.
        enabled: bool = "true";
        /// How often it looks for work.
        interval: Span = "\"30s\"";
        /// Size at which a part of a day is cut.
        part: Size = "\"256MiB\"";
    }
    /// Bounds of queries.
    query: Query {
        /// Longest run; the `timeout` parameter can only shorten it.
        timeout: Span = "\"2m\"";
        /// Queries that run at once; others queue within their time.
        concurrent_max: usize = "20";
        /// Remote reads at once; others wait.
        remote_reads_max: usize = "10";
        /// Longest run of a query of logs; its `timeout` parameter can only shorten it.
        logs_timeout: Span = "\"30s\"";
        /// Series of a matrix, elements of a vector, or collected rows of logs that one answer may have.
        rows_max: u64 = "1000000";
        /// Samples that one query or remote read may load; `peakSamples` in its statistics is held against it.
        samples_max: u64 = "50000000";
        /// Series that one query may select.
        series_max: u64 = "2000000";
        /// Bytes that one query may fetch.
        bytes_max: Size = "\"10GiB\"";
        /// Threads for queries; 0 means one per core.
        threads: usize = "0";
        /// Most bytes of spill files.
        spill_max: Size = "\"20GiB\"";
        /// Default look-back of PromQL, and how old samples may be that `/federate` gives.
        lookback: Span = "\"5m\"";
        /// Whether experimental functions of PromQL are allowed, in queries and where expressions are only parsed.
        experimental_functions: bool = "true";
        /// Most bytes of results of range queries that are kept; at most a sixteenth of `memory.limit`. 0: none are, of
        /// analytics neither.
        result_cache: Size = "\"256MiB\"";
        /// Whether queries go on without files that are damaged. Such an answer says so: in the header
        /// `Quiver-Partial`, and by name in `warnings` (PromQL), `meta` (traces), `errors` (Jaeger). Otherwise they fail.
        partial_answers: bool = "true";
        /// Queries of any language that take longer are logged with their text (cut to 4 KiB) and what they used.
        slow: Span = "\"5s\"";
        /// Whether each plan is written and read by a second engine before it runs. For tests: only a binary that was built
        /// with the feature `codec` can.
        through_codec: bool = "false";
    }
    /// Analytics: models and tables of the operator.
    olap: Olap {
        /// Folders with models (`*.yml`, `*.yaml`), read anew when a file changes.
        model_dirs: Vec<String> = "[]";
        /// Folders with tables: `NAME.csv` (types in `NAME.types.json`) and `NAME.parquet` become `public.NAME`.
        table_dirs: Vec<String> = "[]";
        /// Whether the models of the product are there: `on` or `off`.
        builtin: String = "\"on\"";
    }
    /// Access control.
    rbac: Rbac {
        /// `on`: every request shows who sends it, and sees what that account may see; see `docs/identity.md`. `off`:
        /// everybody may do everything.
        mode: String = "\"on\"";
        /// Requests per second that one API key may send, ingest apart; more get 429. 0: any number.
        key_requests_per_second: usize = "100";
        /// Requests that it may send at once after it was quiet.
        key_requests_burst: usize = "200";
        /// Bytes of telemetry per second that one API key may send, as they are on the wire, and twice that at once; who sent
        /// more gets 429 until it is made up for. 0: any number.
        key_ingest_bytes_per_second: Size = "\"0\"";
        /// The same of records: samples, log rows, spans.
        key_ingest_records_per_second: usize = "0";
        /// Fields that name the service of a log row; the first non-empty one counts.
        logs_service_fields: Vec<String> = "[\"service.name\", \"service_name\", \"service\", \"app\", \"kubernetes.labels.app\"]";
    }
    /// Where configuration and accounts are kept.
    config: Configuration {
        /// PostgreSQL that keeps them, for one server or several: `postgres://user:password@host:5432/database`, with
        /// `?sslmode=verify-full` (and `&sslrootcert=…`) where the network is not trusted. Servers that share a database
        /// share its accounts, and need the same master key. Empty: `config.db`, a file of SQLite in the data directory.
        database_url: Hidden = "\"\"";
        /// File with that URL; wins over `config.database_url`.
        database_url_file: String = "\"\"";
    }
    /// Accounts and tokens.
    auth: Auth {
        /// Address by which clients reach this server (`https://quiver.example`), which tokens name as their issuer; empty:
        /// that of `http.listen`. A token is good only where it names the issuer that the server stands for.
        public_url: String = "\"\"";
        /// Whether people's passwords are taken as Basic credentials on every path, not just to change them.
        basic_passwords: bool = "false";
        /// Whether analytics (`/olap-api`) takes API keys and secrets of service accounts, too, not only access tokens.
        olap_api_keys: bool = "false";
        /// Bits of the RSA keys that sign tokens: 2048, 3072 or 4096.
        key_bits: usize = "2048";
        /// Issuers whose tokens are taken, too, each as `[[auth.oidc]]`: `issuer`, `audiences`, and by default
        /// `client_id_claim` (`azp`), `roles_claim` (`realm_access.roles`), `username_claim` (`preferred_username`),
        /// `jwks_refresh` (`5m`). What their roles may do is said by bindings to an `externalRole`.
        oidc: Vec<OidcIssuer> = "[]";
        /// File with the 32 bytes under which private keys are encrypted; made when it is not there. Empty:
        /// `master-key` in the data directory. `QUIVER_MASTER_KEY_FILE` says the same.
        master_key_file: String = "\"\"";
    }
    /// Rules and notifications.
    alerting: Alerting {
        /// Rule files of Prometheus or vmalert that are evaluated; names with `*`, `?` and `[a-z]`. Read anew with the
        /// settings.
        rules: Vec<String> = "[]";
        /// Alertmanager configuration (YAML) that says who is told; empty: nobody. Read anew with the settings.
        policy: String = "\"\"";
        /// Interval of rule groups that name none.
        evaluation_interval: Span = "\"1m\"";
        /// Rule groups that are evaluated at once; others wait. Rules of a group that run beside its first one count, too.
        concurrent_max: usize = "16";
        /// Elements that one rule may have in its result; a rule with more fails.
        results_max: u64 = "100000";
        /// Time between two reports of a rule's alert to the router.
        resend_delay: Span = "\"1m\"";
        /// How long alerts of a rule that fails are taken as firing.
        error_hold: Span = "\"1h\"";
        /// Address of this server as people reach it, in messages and templates; empty: that of `auth.public_url`, else of
        /// `http.listen`.
        external_url: String = "\"\"";
        /// Labels of all alerts that do not have them, each as `name=value`.
        external_labels: Vec<String> = "[]";
        /// Directory below which files of secrets (`…_file`) and templates of the policy are read; empty: none is.
        files_dir: String = "\"\"";
        /// Alerts that are known at once; more are refused with 503, as is what takes more than a sixteenth of `memory.limit`.
        alerts_max: usize = "100000";
    }
    /// Calls to the outside: notifications.
    egress: EgressSection {
        /// Networks that calls may go to, whatever they are (`127.0.0.0/8` for receivers on this machine); a metadata
        /// address of a cloud must be named alone. Loopback, link-local and multicast addresses are closed otherwise.
        allow: Vec<String> = "[]";
        /// Networks that calls may not go to; wins over `allow`.
        deny: Vec<String> = "[]";
        /// Whether calls may go to private networks.
        allow_private: bool = "true";
    }
    /// Managed resources.
    resources: Resources {
        /// How often resources and their relationships are looked for in what came in; `0s`: never.
        discovery_interval: Span = "\"30s\"";
    }
    /// Tables of what the server is asked and of what it keeps.
    usage: Usage {
        /// How often queries that ended get rows in `query_log`, and what came in in `ingest_usage_1m`; `0s`: never,
        /// and none in `storage_stats` and `resource_health` either.
        interval: Span = "\"60s\"";
    }
    /// The log of the service itself.
    log: Log {
        /// Filter by area and level (`info`, `quiver=debug,info`, `off`); the environment variable `RUST_LOG` overrides it.
        filter: String = "\"info,quiver=info\"";
        /// `text` or `json`.
        format: String = "\"text\"";
        /// Whether each request is logged when it is over (area `quiver::access`, level `info`): path, status, bytes, time,
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
        why: std::io::Error,
    },
    /// Not TOML, an unknown key, or a value of the wrong form.
    #[error("settings are not valid: {0}")]
    Invalid(String),
}

/// Settings and where they differ from the defaults.
pub struct Loaded {
    /// The settings that hold: defaults with all that was given over them.
    pub settings: Settings,
    given: Table,
}

impl fmt::Debug for Loaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What was given may hold passwords.
        f.debug_struct("Loaded").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Loaded {
    /// Merges defaults, file, environment (`QUIVER_SECTION__KEY`) and flags (`section.key` and a value).
    ///
    /// # Errors
    /// An unreadable file, an unknown key, a value of the wrong form: the text names it.
    pub fn load(
        file: Option<&Path>,
        variables: impl Iterator<Item = (String, String)>,
        flags: &[(&str, String)],
    ) -> Result<Self, SettingsError> {
        let mut given = Table::new();
        if let Some(path) = file {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(path).map_err(|why| SettingsError::Read { path: shown.clone(), why })?;
            given = text.parse().map_err(|e: toml::de::Error| {
                SettingsError::Invalid(format!("`{shown}`: {}", e.to_string().trim_end()))
            })?;
        }
        for (name, text) in variables {
            if let Some((section, key, value)) = environment::read(&name, &text)? {
                put(&mut given, &section, &key, value);
            }
        }
        for (name, text) in flags {
            let (section, key) = name.split_once('.').expect("flags are written section.key");
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
        let mut all: Table = printed::defaults().parse().expect("the defaults are valid");
        for (section, values) in &given {
            match (all.get_mut(section), values) {
                (Some(Value::Table(into)), Value::Table(values)) => into.extend(values.clone()),
                (Some(_), _) => return Err(SettingsError::Invalid(format!("`{section}` is a section"))),
                (None, _) => return Err(SettingsError::Invalid(format!("unknown section `{section}`"))),
            }
        }
        // TOML says in a line of its own in which section it is.
        let wrong = |e: toml::de::Error| SettingsError::Invalid(e.to_string().trim_end().replace('\n', " "));
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

fn put(table: &mut Table, section: &str, key: &str, value: Value) {
    let entry = table.entry(section).or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(values) = entry {
        values.insert(key.to_owned(), value);
    }
}

#[cfg(test)]
mod tests;
