//! The command line: start, signals, stop.

#![allow(clippy::doc_markdown, reason = "the docs of options are the text of `--help`")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line speaks on its terminal")]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::{Args, Parser, Subcommand};
use quiver::demo::alerts::DemoAlerts;
use quiver::reload::Reloading;
use quiver::rules::RulesCommand;
use quiver::server::{Addresses, Bound};
use quiver::settings::{Loaded, print_settings};
use quiver::{
    analytics, demo, identity, memory, notify, preflight, process, remote, saved, sql, stop, telemetry, wiring,
};
use quiver_api::AppState;
use quiver_api::sql_forms::Form;
use quiver_store::BackupRequest;
use quiver_store::backup::Detach;
use quiver_types::{Error, ErrorKind, SystemClock};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Where settings come from, and what signals do.
const SETTINGS_HELP: &str = "\
Settings: defaults < file (--config) < environment < flags. `quiver --print-settings` lists all of them.
Environment: QUIVER_SECTION__KEY for each setting (QUIVER_HTTP__LISTEN, QUIVER_LOG__FILTER), QUIVER_CONFIG for the file,
  RUST_LOG over log.filter, AWS_… for S3.
Signals: SIGTERM and SIGINT stop in order, SIGHUP reads settings anew.";

/// Quiver takes in metrics, logs and traces, keeps them as Parquet on object storage, and answers `PromQL`, `LogsQL`,
/// SQL, analytics and the trace APIs of Jaeger, Zipkin and Tempo over them.
#[derive(Debug, Parser)]
#[command(name = "quiver", version, arg_required_else_help = true, after_help = SETTINGS_HELP)]
struct Cli {
    /// Write all settings with their documentation and defaults, a file to start from.
    #[arg(long)]
    print_settings: bool,
    /// Arm what `QUIVER_FAILPOINT` says: the process aborts or waits there. For tests; without it the variable is nothing.
    #[arg(long, global = true, hide = true)]
    failpoints: bool,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    #[command(after_help = SETTINGS_HELP)]
    Serve(ServeArgs),
    /// Run the server with demo telemetry flowing in.
    Demo(ServeArgs),
    /// Read the settings and the files that they name, say whether a server would start with them.
    CheckConfig(ServeArgs),
    /// Copy the store into a folder or bucket of backups: of a running server with --server, else of a stopped one.
    Backup(BackupArgs),
    /// Make an empty data directory and store hold what a backup holds.
    Restore(RestoreArgs),
    /// Ask an SQL statement: of a running server with --server, else of a data directory that nobody serves.
    Sql(SqlArgs),
    /// Work on the catalog while the server is down.
    Catalog {
        #[command(subcommand)]
        command: CatalogCommand,
    },
    /// Work on the object store while the server is down.
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Work on accounts while the server is down.
    Admin {
        #[command(subcommand)]
        command: AdminCommand,
    },
    /// Check the models of analytics; no server is needed.
    Models {
        #[command(subcommand)]
        command: ModelsCommand,
    },
    /// Check rule files and run their unit tests; no server is needed.
    Rules {
        #[command(subcommand)]
        command: RulesCommand,
    },
}

#[derive(Debug, Subcommand)]
enum AdminCommand {
    /// Set the password of a user, from QUIVER_ADMIN_PASSWORD_FILE or QUIVER_ADMIN_PASSWORD, else a new one that is printed.
    ResetPassword(ResetArgs),
}

#[derive(Debug, Args)]
struct ResetArgs {
    /// Name of the user.
    #[arg(default_value = "admin")]
    username: String,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
enum ModelsCommand {
    /// Say whether the YAML files of a folder are valid models.
    Check {
        /// Folder with `*.yml` and `*.yaml`.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
enum CatalogCommand {
    /// Make the catalog anew from the commit objects and parts in the object store.
    Rebuild(ServeArgs),
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Compare catalog and object store: missing, unknown and damaged objects.
    Check(ServeArgs),
    /// Bring back the days that retention dropped and whose files are still there (`store.drop_grace`).
    Undrop(ServeArgs),
}

#[derive(Debug, Args)]
struct BackupArgs {
    /// Folder, file:///… or s3://bucket/prefix; later backups into the same place copy only what is new.
    #[arg(long, value_name = "PLACE")]
    to: String,
    /// Most backups that stay there; older ones are deleted [default: all].
    #[arg(long, value_name = "N")]
    keep: Option<usize>,
    /// Main port of the running server, such as 127.0.0.1:8800 or https://quiver.example.
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// File with an API key or token that may administer the running server [default: http.admin_token_file].
    #[arg(long, value_name = "FILE", requires = "server")]
    key_file: Option<PathBuf>,
    /// File (PEM) with the authority of its certificate, where the system does not know it.
    #[arg(long, value_name = "FILE", requires = "server")]
    ca_file: Option<PathBuf>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Args)]
struct SqlArgs {
    /// The statement [default: what comes on standard input].
    #[arg(value_name = "STATEMENT")]
    statement: Option<String>,
    /// Main port of the running server, such as 127.0.0.1:8800 or https://quiver.example.
    #[arg(long, value_name = "ADDR")]
    server: Option<String>,
    /// File with an API key or access token for the running server.
    #[arg(long, value_name = "FILE", requires = "server")]
    key_file: Option<PathBuf>,
    /// File (PEM) with the authority of its certificate, where the system does not know it.
    #[arg(long, value_name = "FILE", requires = "server")]
    ca_file: Option<PathBuf>,
    /// How rows are written.
    #[arg(long, value_name = "FORM", default_value = "table",
          value_parser = ["table", "csv", "json", "ndjson", "arrow", "parquet"])]
    format: String,
    /// Values of $1, $2, … as a JSON list, or of $name as an object.
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
    /// Zone in which times are shown, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Args)]
struct RestoreArgs {
    /// Where the backups are.
    #[arg(long, value_name = "PLACE")]
    from: String,
    /// Name of the backup [default: the newest].
    #[arg(long, value_name = "NAME")]
    at: Option<String>,
    /// Write the names of the backups, oldest first, and change nothing.
    #[arg(long)]
    list: bool,
    /// Restore telemetry alone: accounts and configuration begin anew, or are in a PostgreSQL that is there.
    #[arg(long)]
    without_configuration: bool,
    /// The master key is lost: restore the configuration without what is encrypted under it.
    #[arg(long, conflicts_with = "without_configuration")]
    without_secrets: bool,
    #[command(flatten)]
    serve: ServeArgs,
}

#[derive(Debug, Args)]
struct ServeArgs {
    /// Settings file (TOML); see --print-settings.
    #[arg(long, value_name = "FILE", env = "QUIVER_CONFIG")]
    config: Option<PathBuf>,
    /// Data directory [default: ./quiver-data].
    #[arg(long, value_name = "DIR")]
    data: Option<String>,
    /// Object store: file:///… or s3://bucket/prefix [default: under the data directory].
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// Address of the main port [default: 127.0.0.1:8800]; port 0 picks one.
    #[arg(long, value_name = "ADDR")]
    http: Option<String>,
    /// Address of OTLP over HTTP [default: 127.0.0.1:4318].
    #[arg(long, value_name = "ADDR")]
    otlp_http: Option<String>,
    /// Address of OTLP over gRPC [default: 127.0.0.1:4317].
    #[arg(long, value_name = "ADDR")]
    otlp_grpc: Option<String>,
    /// Address of PostgreSQL's protocol, such as 127.0.0.1:5432 [default: off].
    #[arg(long, value_name = "ADDR")]
    postgres: Option<String>,
    /// How long data is kept [default: 30d]; none keeps all and lifts the limits on the age of samples.
    #[arg(long, value_name = "30d|none")]
    retention: Option<String>,
    /// Access control [default: on]; off: everybody who reaches the server may do everything. See docs/identity.md.
    #[arg(long, value_name = "on|off")]
    rbac: Option<String>,
    /// Certificate of TLS on every port (PEM), with those that lead to its authority.
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<String>,
    /// Private key of that certificate (PEM).
    #[arg(long, value_name = "FILE")]
    tls_key: Option<String>,
    /// Rule files of Prometheus or vmalert to evaluate; may be given more than once, with `*`.
    #[arg(long, value_name = "FILE")]
    rules: Vec<String>,
    /// Alertmanager configuration that says who is told of alerts.
    #[arg(long, value_name = "FILE")]
    alert_policy: Option<String>,
    /// Listen on other than loopback addresses without access control (containers).
    #[arg(long)]
    rbac_off_on_network: bool,
    /// Folder with models of analytics; may repeat.
    #[arg(long, value_name = "DIR")]
    olap_models: Vec<String>,
    /// Folder with tables for analytics and SQL (CSV, Parquet); may repeat.
    #[arg(long, value_name = "DIR")]
    olap_tables: Vec<String>,
    /// Whether the models of the product are there [default: on].
    #[arg(long, value_name = "on|off")]
    olap_builtin: Option<String>,
}

impl ServeArgs {
    fn load(&self) -> Result<Loaded, Failure> {
        let mut flags: Vec<(&str, String)> = [
            ("store.data", &self.data),
            ("store.url", &self.store),
            ("http.listen", &self.http),
            ("otlp.http_listen", &self.otlp_http),
            ("otlp.grpc_listen", &self.otlp_grpc),
            ("postgres.listen", &self.postgres),
            ("store.retention", &self.retention),
            ("rbac.mode", &self.rbac),
            ("tls.certificate_file", &self.tls_cert),
            ("tls.key_file", &self.tls_key),
            ("alerting.policy", &self.alert_policy),
            ("olap.builtin", &self.olap_builtin),
        ]
        .into_iter()
        .filter_map(|(name, value)| Some((name, value.clone()?)))
        .collect();
        let lists = [
            ("alerting.rules", &self.rules),
            ("olap.model_dirs", &self.olap_models),
            ("olap.table_dirs", &self.olap_tables),
        ];
        for (name, list) in lists.into_iter().filter(|(_, list)| !list.is_empty()) {
            // A list in the notation of the settings file.
            flags.push((name, serde_json::json!(list).to_string()));
        }
        let environment: Vec<_> = std::env::vars().filter(|(name, _)| name != "QUIVER_CONFIG").collect();
        if self.rbac_off_on_network {
            flags.push(("http.rbac_off_on_network", "true".to_owned()));
        }
        Ok(Loaded::load(self.config.as_deref(), environment.into_iter(), &flags)?)
    }
}

/// Stack of a thread: texts nest, and parsers call themselves for each level. Memory is taken only as far down as one goes.
const STACK_BYTES: usize = 16 << 20;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            eprintln!("quiver: {e}");
            let mut cause = e.source();
            while let Some(c) = cause {
                eprintln!("  because: {c}");
                cause = c.source();
            }
            ExitCode::FAILURE
        }
    }
}

/// Runs a command; gives the exit code.
fn run(cli: Cli) -> Result<u8, Failure> {
    if let Some(Command::Models { command: ModelsCommand::Check { folder } }) = &cli.command {
        return Ok(match analytics::check(folder) {
            Ok((count, warnings)) => {
                for warning in &warnings {
                    eprintln!("left out: {warning}");
                }
                println!("{count} models and views are valid");
                0
            }
            Err(problems) => {
                for problem in &problems {
                    eprintln!("{problem}");
                }
                1
            }
        });
    }
    let Some(Command::Rules { command }) = &cli.command else { return run_server(cli).map(|()| 0) };
    command.run(runtime)
}

fn run_server(cli: Cli) -> Result<(), Failure> {
    if cli.print_settings {
        print!("{}", print_settings());
        return Ok(());
    }
    if cli.failpoints {
        process::arm_failpoints()?;
    }
    match cli.command {
        Some(Command::Rules { .. } | Command::Models { .. }) => Ok(()),
        None => Err("no command given; see --help".into()),
        Some(Command::Serve(args)) => serve(args, false),
        Some(Command::Demo(args)) => serve(args, true),
        Some(Command::CheckConfig(args)) => {
            preflight::check(&args.load()?)?;
            println!("settings are valid");
            Ok(())
        }
        Some(Command::Backup(args)) => backup(&args),
        Some(Command::Restore(args)) => restore(&args),
        Some(Command::Sql(args)) => ask(&args),
        Some(Command::Catalog { command: CatalogCommand::Rebuild(args) }) => {
            let settings = wiring::store_settings(&args.load()?.settings);
            let report = runtime()?.block_on(quiver_store::rebuild::rebuild(settings))?;
            println!("{report}");
            Ok(())
        }
        Some(Command::Admin { command: AdminCommand::ResetPassword(args) }) => {
            let settings = args.serve.load()?.settings;
            let made_up = runtime()?.block_on(identity::reset_password(&settings, &args.username))?;
            match made_up {
                Some(password) => println!("the password of `{}` is now {password}", args.username),
                None => println!("the password of `{}` is now the given one", args.username),
            }
            Ok(())
        }
        Some(Command::Store { command: StoreCommand::Check(args) }) => {
            let settings = wiring::store_settings(&args.load()?.settings);
            let report = runtime()?.block_on(quiver_store::check::check(settings))?;
            println!("{report}");
            if report.sound() { Ok(()) } else { Err("the store is not as the catalog says".into()) }
        }
        Some(Command::Store { command: StoreCommand::Undrop(args) }) => {
            let settings = wiring::store_settings(&args.load()?.settings);
            let parts = runtime()?.block_on(quiver_store::undrop::undrop(settings, Arc::new(SystemClock), None))?;
            println!("brought back {parts} parts; mend the clock or the retention before the server starts");
            Ok(())
        }
    }
}

fn backup(args: &BackupArgs) -> Result<(), Failure> {
    // The server's own folder may be another than ours.
    let to =
        if args.to.contains("://") { args.to.clone() } else { std::path::absolute(&args.to)?.display().to_string() };
    let request = BackupRequest { to, keep: args.keep };
    let report = if let Some(server) = &args.server {
        let token = match &args.key_file {
            None => wiring::admin_token(&args.serve.load()?.settings)?,
            Some(path) => Some(wiring::secret_in(path, "--key-file")?),
        };
        let remote = remote::Remote { address: server, token: token.as_deref(), authority: args.ca_file.as_deref() };
        runtime()?.block_on(remote.backup(&request))?
    } else {
        let settings = args.serve.load()?.settings;
        let configuration = saved::AtRest(&settings);
        let store = wiring::store_settings(&settings);
        let report = quiver_store::backup::backup(store, Arc::new(SystemClock), &request, Some(&configuration));
        runtime()?.block_on(report).map_err(|e| match e.kind() {
            ErrorKind::Conflict => {
                Error::new(e.kind(), "a running server is backed up by `--server ADDR`").with_source(e)
            }
            _ => e,
        })?
    };
    println!("{report}");
    if report.damaged.is_empty() { Ok(()) } else { Err("parts are damaged and not in the backup".into()) }
}

/// Asks a statement, and writes what it gives.
fn ask(args: &SqlArgs) -> Result<(), Failure> {
    let statement = match &args.statement {
        Some(statement) => statement.clone(),
        None => std::io::read_to_string(std::io::stdin())?,
    };
    let params = args.params.as_deref().map(serde_json::from_str).transpose();
    let asked = sql::Asked {
        params: params.map_err(|e| format!("--params is no JSON: {e}"))?,
        time_zone: args.time_zone.clone(),
        form: Form::named(&args.format),
        statement,
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let done = match &args.server {
        Some(server) => {
            let token = args.key_file.as_deref().map(|path| wiring::secret_in(path, "--key-file")).transpose()?;
            let remote =
                remote::Remote { address: server, token: token.as_deref(), authority: args.ca_file.as_deref() };
            runtime()?.block_on(sql::ask_server(&asked, &remote, &mut out))
        }
        None => runtime()?.block_on(sql::ask_at_rest(&asked, &args.serve.load()?.settings, &mut out)).map_err(|e| {
            if e.kind == ErrorKind::Conflict {
                return Error::new(e.kind, "a running server is asked by `--server ADDR`").with_source(e);
            }
            e
        }),
    };
    let done =
        done.and_then(|()| std::io::Write::flush(&mut out).map_err(|e| Error::internal("cannot write").with_source(e)));
    match done {
        Ok(()) => Ok(()),
        // Nobody reads on, as `head` does not.
        Err(e) if e.kind == ErrorKind::Cancelled => Ok(()),
        Err(e) => {
            if let Some(place) = sql::place(&e, &asked.statement) {
                eprintln!("{place}");
            }
            Err(e.into())
        }
    }
}

fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let settings = args.serve.load()?.settings;
    let store = wiring::store_settings(&settings);
    if args.list {
        let names = runtime()?.block_on(quiver_store::backup::list(&store, &args.from))?;
        for name in &names {
            println!("{name}");
        }
        return Ok(());
    }
    let (clock, which) = (Arc::new(SystemClock), (args.from.as_str(), args.at.as_deref()));
    let returning = saved::Returning::new(&settings, args.without_secrets);
    let configuration = (!args.without_configuration).then_some(&returning as &dyn Detach);
    let report = runtime()?.block_on(quiver_store::backup::restore_with(store, clock, which, configuration))?;
    println!("{report}");
    if !args.without_configuration {
        println!("{returning}");
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread()
        .thread_name("quiver-io")
        .thread_keep_alive(quiver_query::THREAD_KEEP_ALIVE)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()?)
}

fn serve(args: ServeArgs, with_demo: bool) -> Result<(), Failure> {
    let mut loaded = args.load()?;
    if with_demo {
        demo::open_doors(&mut loaded.settings);
    }
    let filter = telemetry::start(&loaded.settings.log)?;
    memory::give_back_soon();
    stop::with_panics_of_this_thread();
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let (stop, serves) = (CancellationToken::new(), Arc::<AtomicBool>::default());
        stop::on_signal(stop.clone(), Arc::clone(&serves))?;
        // From the start on, as its default is to end the process.
        let hangup = signal(SignalKind::hangup())?;
        let alerts = if with_demo { DemoAlerts::prepare(&loaded.settings).await? } else { None };
        let paths = alerts.as_ref().map(DemoAlerts::paths);
        if let Some(paths) = &paths {
            paths.apply(&mut loaded.settings);
        }
        let bound = Bound::bind(&loaded).await?;
        let (addresses, tls) = (bound.addresses, bound.tls.clone());
        println!("{}", listening(&addresses));
        let demo_stop = stop.clone();
        let load = move || {
            let mut loaded = args.load().map_err(|e| Error::invalid(e.to_string()))?;
            if with_demo {
                demo::open_doors(&mut loaded.settings);
            }
            if let Some(paths) = &paths {
                paths.apply(&mut loaded.settings);
            }
            Ok(loaded)
        };
        bound
            .prepared(move |app| {
                let reloading = Reloading::new(load, Arc::clone(&app.live), filter, (tls, Arc::clone(&app.alertd)));
                app.reloader.set(move || reloading.reload());
            })
            .run(Arc::new(SystemClock), stop, |app| {
                serves.store(true, Relaxed);
                tracing::info!("ready");
                notify::tell(notify::State::Ready);
                tokio::spawn(reload_on_signal(hangup, Arc::clone(app)));
                if with_demo {
                    if let Some(alerts) = alerts {
                        tokio::spawn(alerts.print(demo_stop.clone()));
                    }
                    let scheme = if loaded.settings.tls.files().is_some() { "https" } else { "http" };
                    let base = format!("{scheme}://{}", addresses.http);
                    tokio::spawn(demo::run(Arc::clone(app), base, addresses, demo_stop));
                }
            })
            .await?;
        Ok::<(), Failure>(())
    });
    runtime.shutdown_timeout(std::time::Duration::from_secs(2));
    served
}

fn listening(a: &Addresses) -> String {
    let extra = |name: &str, address: Option<std::net::SocketAddr>| {
        address.map_or_else(|| format!("{name} off"), |a| format!("{name} {a}"))
    };
    let otlp = format!("{}, {}", extra("otlp-http", a.otlp_http), extra("otlp-grpc", a.otlp_grpc));
    let zipkin = a.zipkin.map(|at| format!(", zipkin {at}")).unwrap_or_default();
    let postgres = a.postgres.map(|at| format!(", postgres {at}")).unwrap_or_default();
    format!("quiver listens: http {}, {otlp}{zipkin}{postgres}", a.http)
}

/// Reads settings anew at each SIGHUP; one that came before the store was open counts, too.
async fn reload_on_signal(mut hangup: Signal, app: Arc<AppState>) {
    while hangup.recv().await.is_some() {
        let app = Arc::clone(&app);
        // Reads files. What came of it is in the log.
        let _ = tokio::task::spawn_blocking(move || app.reloader.reload()).await;
    }
}
