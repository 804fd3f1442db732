//! Runs the command that the command line names; for `serve` also start, signals and stop of the server.

#![allow(clippy::doc_markdown, reason = "doc comments of options are the text of `--help`")]

mod cli;

use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use clap::Parser as _;
use quiver_api::AppState;
use quiver_api::sql_forms::Form;
use quiver_store::BackupRequest;
use quiver_store::backup::Detach;
use quiver_store::layout::DataDir;
use quiver_types::{Error, ErrorKind, SystemClock};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::cli::{
    AdminCommand, BackupArgs, CatalogCommand, Cli, Command, ModelsCommand, RestoreArgs, ServeArgs, SqlArgs,
    StoreCommand,
};
use crate::demo::alerts::DemoAlerts;
use crate::reload::SettingsReloader;
use crate::server::{Addresses, BoundServer};
use crate::settings::{Settings, print_settings};
use crate::terminal::{complain, say};
use crate::{
    analytics, configuration_backup, demo, identity, memory, preflight, process_info, server_client, shutdown, sql,
    systemd, telemetry, wiring,
};

/// Stack size of a thread. Large, because parsers recurse once per level of nesting in their input; the system commits
/// memory only for the depth that is reached.
const STACK_BYTES: usize = 16 << 20;

/// For error messages, how to name the data to work on: for commands that can also ask a running server, and for those
/// that cannot.
const ANY: &str = "by `--data`, or a running server by `--server`";
const STOPPED: &str = "by `--data`";

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Runs the command line; prints what went wrong, with all its causes, to standard error.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            // If the message cannot be written, the exit code still tells.
            let mut out = std::io::stderr().lock();
            let _ = writeln!(out, "quiver: {e}");
            for cause in causes(&*e) {
                let _ = writeln!(out, "  because: {cause}");
            }
            ExitCode::FAILURE
        }
    }
}

/// The causes of an error, without those that only repeat what it or a cause before them says.
fn causes(error: &(dyn std::error::Error + 'static)) -> Vec<String> {
    let mut told = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(c) = cause {
        let text = c.to_string();
        if !told.iter().any(|said| said.contains(&text)) {
            told.push(text);
        }
        cause = c.source();
    }
    told.split_off(1)
}

/// Runs a command; gives the exit code.
fn run(cli: Cli) -> Result<u8, Failure> {
    if cli.print_settings {
        say(print_settings().trim_end())?;
        return Ok(0);
    }
    if cli.failpoints {
        process_info::arm_failpoints()?;
    }
    if matches!(
        cli.command,
        Some(
            Command::Backup(_)
                | Command::Restore(_)
                | Command::Catalog { .. }
                | Command::Store { .. }
                | Command::Admin { .. }
        )
    ) {
        telemetry::start_for_command();
    }
    match cli.command {
        None => return Err("no command given; see --help".into()),
        // These commands report their findings by their exit code.
        Some(Command::Models { command: ModelsCommand::Check { folder } }) => return Ok(check_models(&folder)),
        Some(Command::Rules { command }) => return command.run(runtime),
        Some(Command::Serve(args)) => serve(args, false)?,
        Some(Command::Demo(args)) => serve(args, true)?,
        Some(Command::CheckConfig(args)) => {
            preflight::check(&args.load()?)?;
            say("settings are valid")?;
        }
        Some(Command::Backup(args)) => backup(&args)?,
        Some(Command::Restore(args)) => restore(&args)?,
        Some(Command::Sql(args)) => ask(&args)?,
        Some(Command::Catalog { command: CatalogCommand::Rebuild(args) }) => {
            let settings = wiring::store_settings(&written(&args)?);
            let report = runtime()?.block_on(quiver_store::rebuild::rebuild(settings))?;
            say(&report)?;
        }
        Some(Command::Admin { command: AdminCommand::ResetPassword(args) }) => {
            let settings = args.serve.load()?.settings;
            let made_up = runtime()?.block_on(identity::reset_password(&settings, &args.username))?;
            match made_up {
                Some(password) => say(format!("the password of `{}` is now {password}", args.username))?,
                None => say(format!("the password of `{}` is now the given one", args.username))?,
            }
        }
        Some(Command::Admin { command: AdminCommand::ForgetSecrets(args) }) => {
            let settings = args.load()?.settings;
            let (secrets, keys) = runtime()?.block_on(identity::forget_lost_secrets(&settings))?;
            say(format!("gave up {secrets} secrets and {keys} signing keys that the master key does not open"))?;
        }
        Some(Command::Store { command: StoreCommand::Check(args) }) => {
            let settings = wiring::store_settings(&installed(&args, STOPPED)?);
            let report = runtime()?.block_on(quiver_store::consistency_check::check(settings))?;
            say(&report)?;
            if !report.sound() {
                return Err("the store is not as the catalog says".into());
            }
        }
        Some(Command::Store { command: StoreCommand::Undrop(args) }) => {
            let settings = wiring::store_settings(&installed(&args, STOPPED)?);
            let parts = runtime()?.block_on(quiver_store::undrop::undrop(settings, Arc::new(SystemClock), None))?;
            if parts == 0 {
                say("there is nothing to bring back")?;
            } else {
                say(format!("brought back {parts} parts; mend the clock or the retention before the server starts"))?;
            }
        }
    }
    Ok(0)
}

/// Checks the models of a folder; gives the exit code.
fn check_models(folder: &Path) -> u8 {
    match analytics::check(folder) {
        Ok((count, warnings)) => {
            for warning in &warnings {
                complain(format!("left out: {warning}"));
            }
            // The exit code says it, too.
            let _ = say(format!("{count} models and views are valid"));
            0
        }
        Err(problems) => {
            for problem in &problems {
                complain(problem);
            }
            1
        }
    }
}

/// Loads the settings of a server that has run before. Without this check a misspelt path would create an empty data
/// directory. `by` tells the user how to name the right one.
fn installed(args: &ServeArgs, by: &str) -> Result<Settings, Failure> {
    let settings = args.load()?.settings;
    let data = &settings.store.data;
    if DataDir::is_known(Path::new(data)) {
        return Ok(settings);
    }
    let lost = "if only its catalog is lost, `quiver catalog rebuild` restores it";
    Err(format!("no server has run over the data directory `{data}`; name another one {by}; {lost}").into())
}

/// Loads the settings of a server whose catalog may be lost. Its data lies in the data directory or in a separate
/// object store; in the latter case the data directory may be a new one.
fn written(args: &ServeArgs) -> Result<Settings, Failure> {
    let settings = args.load()?.settings;
    let data = &settings.store.data;
    if !settings.store.url.is_empty() || DataDir::is_written(Path::new(data)) {
        return Ok(settings);
    }
    let lost = "if only the directory is lost, name its object store by `store.url`";
    Err(format!("no server has run over the data directory `{data}`; name another one {STOPPED}; {lost}").into())
}

fn backup(args: &BackupArgs) -> Result<(), Failure> {
    // A running server resolves a relative path against its own working directory, so send an absolute one.
    let to =
        if args.to.contains("://") { args.to.clone() } else { std::path::absolute(&args.to)?.display().to_string() };
    let request = BackupRequest { to, keep: args.keep };
    let report = if let Some(server) = &args.remote.server {
        let token = match &args.remote.key_file {
            None => wiring::admin_token(&args.serve.load()?.settings)?,
            Some(path) => Some(wiring::secret_in(path, "--key-file")?),
        };
        let remote = server_client::Remote {
            address: server,
            token: token.as_deref(),
            authority: args.remote.ca_file.as_deref(),
        };
        runtime()?.block_on(remote.backup(&request))?
    } else {
        let settings = installed(&args.serve, ANY)?;
        let configuration = configuration_backup::StoppedServer(&settings);
        let store = wiring::store_settings(&settings);
        let report = quiver_store::backup::backup(store, Arc::new(SystemClock), &request, Some(&configuration));
        runtime()?.block_on(report).map_err(|e| match e.kind() {
            ErrorKind::Conflict => {
                Error::new(e.kind(), "a running server is backed up by `--server ADDR`").with_source(e)
            }
            _ => e,
        })?
    };
    say(&report)?;
    if report.damaged.is_empty() { Ok(()) } else { Err("parts are damaged and not in the backup".into()) }
}

/// Runs a query and writes its rows to standard output.
fn ask(args: &SqlArgs) -> Result<(), Failure> {
    let statement = match &args.statement {
        Some(statement) => statement.clone(),
        None => std::io::read_to_string(std::io::stdin())?,
    };
    let params = args.params.as_deref().map(serde_json::from_str).transpose();
    let asked = sql::QueryRequest {
        params: params.map_err(|e| format!("--params is no JSON: {e}"))?,
        time_zone: args.time_zone.clone(),
        form: Form::named(&args.format),
        statement,
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let done = match &args.remote.server {
        Some(server) => {
            let token =
                args.remote.key_file.as_deref().map(|path| wiring::secret_in(path, "--key-file")).transpose()?;
            let remote = server_client::Remote {
                address: server,
                token: token.as_deref(),
                authority: args.remote.ca_file.as_deref(),
            };
            runtime()?.block_on(sql::ask_server(&asked, &remote, &mut out))
        }
        None => runtime()?.block_on(sql::ask_at_rest(&asked, &installed(&args.serve, ANY)?, &mut out)).map_err(|e| {
            if e.kind == ErrorKind::Conflict {
                return Error::new(e.kind, "a running server is asked by `--server ADDR`").with_source(e);
            }
            e
        }),
    };
    let done = done.and_then(|()| std::io::Write::flush(&mut out).map_err(sql::unwritten));
    match done {
        Ok(()) => Ok(()),
        // The reader of our output has closed it, as `head` does: no failure.
        Err(e) if e.kind == ErrorKind::Cancelled => Ok(()),
        Err(e) => {
            let Some(place) = sql::place(&e, &asked.statement) else { return Err(e.into()) };
            complain(place);
            // The text says it all; the causes are the planner's words for the same.
            Err(Error::new(e.kind, e.message).into())
        }
    }
}

fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let settings = args.serve.load()?.settings;
    let store = wiring::store_settings(&settings);
    if args.list {
        let names = runtime()?.block_on(quiver_store::backup::list(&store, &args.from))?;
        for name in &names {
            say(name)?;
        }
        return Ok(());
    }
    let (clock, which) = (Arc::new(SystemClock), (args.from.as_str(), args.at.as_deref()));
    let returning = configuration_backup::ConfigurationRestore::new(&settings, args.without_secrets);
    let configuration = (!args.without_configuration).then_some(&returning as &dyn Detach);
    let report = runtime()?.block_on(quiver_store::backup::restore_with(store, clock, which, configuration))?;
    say(&report)?;
    if !args.without_configuration {
        say(&returning)?;
    }
    Ok(())
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_name("quiver-io")
        .thread_keep_alive(quiver_query::THREAD_KEEP_ALIVE)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build()?;
    {
        let _within = runtime.enter();
        shutdown::survive_file_limits()?;
    }
    Ok(runtime)
}

fn serve(args: ServeArgs, with_demo: bool) -> Result<(), Failure> {
    let mut loaded = args.load()?;
    if with_demo {
        demo::open_doors(&mut loaded.settings);
    }
    let filter = telemetry::start(&loaded.settings.log)?;
    memory::give_back_soon();
    shutdown::with_panics_of_this_thread();
    let runtime = runtime()?;
    let served = runtime.block_on(async {
        let (stop, serves) = (CancellationToken::new(), Arc::<AtomicBool>::default());
        shutdown::on_signal(stop.clone(), Arc::clone(&serves))?;
        // Before anything else: until a handler is set, SIGHUP ends the process.
        let hangup = signal(SignalKind::hangup())?;
        let alerts = if with_demo { DemoAlerts::prepare(&loaded.settings).await? } else { None };
        let paths = alerts.as_ref().map(DemoAlerts::paths);
        if let Some(paths) = &paths {
            paths.apply(&mut loaded.settings);
        }
        let bound = BoundServer::bind(&loaded).await?;
        let (addresses, tls) = (bound.addresses, bound.tls.clone());
        // What nobody can read ends no server.
        let _ = writeln!(std::io::stdout(), "{}", listening(&addresses));
        let demo_stop = stop.clone();
        let load = move || {
            let mut loaded = args.load_anew().map_err(|e| Error::invalid(e.to_string()))?;
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
                let reloading =
                    SettingsReloader::new(load, Arc::clone(&app.live), filter, (tls, Arc::clone(&app.alertd)));
                app.reloader.set(move || reloading.reload());
            })
            .run(Arc::new(SystemClock), stop, |app| {
                serves.store(true, Relaxed);
                tracing::info!("ready");
                systemd::notify(systemd::State::Ready);
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

/// Reloads the settings at each SIGHUP, also for one that came before the store was open.
async fn reload_on_signal(mut hangup: Signal, app: Arc<AppState>) {
    while hangup.recv().await.is_some() {
        let app = Arc::clone(&app);
        // On a blocking thread, since it reads files. It logs its outcome itself.
        let _ = tokio::task::spawn_blocking(move || app.reloader.reload()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_say_something_new() {
        let deepest = std::io::Error::other("it is full");
        let inner = Error::invalid("cannot write").with_source(deepest);
        let error = Error::invalid("the backup failed: cannot write").with_source(inner);
        assert_eq!(causes(&error), ["it is full"]);
        let again = Error::invalid("a").with_source(Error::invalid("no b").with_source(Error::invalid("b")));
        assert_eq!(causes(&again), ["no b"]);
        assert!(causes(&Error::invalid("x")).is_empty());
    }

    #[test]
    fn ports_that_are_off_are_told_where_one_expects_them() {
        let at = |port: u16| std::net::SocketAddr::from(([127, 0, 0, 1], port));
        let most = Addresses {
            http: at(1),
            otlp_http: Some(at(2)),
            otlp_grpc: Some(at(3)),
            zipkin: Some(at(4)),
            postgres: Some(at(5)),
        };
        let expected = "quiver listens: http 127.0.0.1:1, otlp-http 127.0.0.1:2, otlp-grpc 127.0.0.1:3, \
                        zipkin 127.0.0.1:4, postgres 127.0.0.1:5";
        assert_eq!(listening(&most), expected);
        let least = Addresses { http: at(1), otlp_http: None, otlp_grpc: None, zipkin: None, postgres: None };
        assert_eq!(listening(&least), "quiver listens: http 127.0.0.1:1, otlp-http off, otlp-grpc off");
    }

    /// The arguments of a command that works on a data directory.
    fn on(data: &Path, more: &[&str]) -> ServeArgs {
        let data = data.display().to_string();
        let args = ["quiver", "check-config", "--data", &data].into_iter().chain(more.iter().copied());
        let Cli { command: Some(Command::CheckConfig(args)), .. } = Cli::try_parse_from(args).unwrap() else {
            panic!("another command")
        };
        args
    }

    /// A misspelt directory is reported, and not created.
    #[test]
    fn directories_over_which_no_server_has_run() {
        let dir = tempfile::tempdir().unwrap();
        let data = dir.path().join("data");
        let told = |outcome: Result<Settings, Failure>| outcome.map(|s| s.store.data).map_err(|e| e.to_string());
        let shown = data.display().to_string();
        let lacks = format!("no server has run over the data directory `{shown}`; name another one by ");
        let by = |more: &[&str], expected: &str| {
            let error = told(installed(&on(&data, more), ANY)).unwrap_err();
            assert!(error.starts_with(&lacks) && error.contains(expected), "{error}");
        };
        by(&[], "`--server`");
        by(&["--store", "file:///elsewhere"], "quiver catalog rebuild");
        assert!(told(written(&on(&data, &[]))).unwrap_err().contains("`store.url`"));
        assert_eq!(told(written(&on(&data, &["--store", "file:///elsewhere"]))), Ok(shown.clone()));
        assert!(!data.exists());
        // The WAL alone shows that a server has written there, but only the catalog shows what it stored.
        std::fs::create_dir_all(data.join("wal")).unwrap();
        assert_eq!(told(written(&on(&data, &[]))), Ok(shown));
        by(&[], "`--data`");
    }
}
