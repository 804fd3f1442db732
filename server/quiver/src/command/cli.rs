//! The command line: commands and options.

use std::os::unix::fs::FileTypeExt as _;
use std::path::PathBuf;

use crate::rules::RulesCommand;
use crate::settings::{LoadedSettings, variables};
use clap::{Args, Parser, Subcommand};

use super::Failure;

/// Where settings come from, and what signals do.
const SETTINGS_HELP: &str = "\
Settings: defaults < file (--config) < environment < flags (later wins). `quiver --print-settings` lists them all.
Environment: QUIVER_SECTION__KEY for each setting (QUIVER_HTTP__LISTEN, QUIVER_LOG__FILTER), QUIVER_CONFIG for the file,
  RUST_LOG in place of log.filter, AWS_… for S3.
Signals: SIGTERM and SIGINT stop the server gracefully, SIGHUP reloads the settings.";

const ABOUT: &str = "Quiver stores metrics, logs and traces as Parquet on object storage and answers PromQL, LogsQL, SQL, \
                     analytics and the trace APIs of Jaeger, Zipkin and Tempo over them";

/// The command line.
#[derive(Debug, Parser)]
#[command(name = "quiver", version, about = ABOUT, arg_required_else_help = true, after_help = SETTINGS_HELP)]
pub(super) struct Cli {
    /// Print all settings with their documentation and defaults, as a settings file to start from.
    #[arg(long)]
    pub(super) print_settings: bool,
    /// Arm the fail points that `QUIVER_FAILPOINT` names: the process aborts or waits there. For tests; without this flag
    /// the variable is ignored.
    #[arg(long, global = true, hide = true)]
    pub(super) failpoints: bool,
    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Run the server.
    #[command(after_help = SETTINGS_HELP)]
    Serve(ServeArgs),
    /// Run the server with a built-in generator of demo telemetry.
    #[command(after_help = SETTINGS_HELP)]
    Demo(ServeArgs),
    /// Check the settings and the files that they name, without starting a server.
    CheckConfig(ServeArgs),
    /// Back up the store to a folder or bucket: from a running server with --server, else from a stopped one.
    Backup(BackupArgs),
    /// Restore a backup into an empty data directory and object store.
    Restore(RestoreArgs),
    /// Run an SQL query: on a running server with --server, else on the data directory of a stopped one.
    Sql(SqlArgs),
    /// Repair the catalog while the server is down.
    Catalog {
        #[command(subcommand)]
        command: CatalogCommand,
    },
    /// Check or repair the object store while the server is down.
    Store {
        #[command(subcommand)]
        command: StoreCommand,
    },
    /// Manage accounts while the server is down.
    Admin {
        #[command(subcommand)]
        command: AdminCommand,
    },
    /// Check analytics models; no server is needed.
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
pub(super) enum AdminCommand {
    /// Set a user's password: from QUIVER_ADMIN_PASSWORD_FILE or QUIVER_ADMIN_PASSWORD, else a random one, printed.
    ResetPassword(ResetArgs),
    /// Delete the stored secrets that the present master key does not open, after the old key was lost.
    ForgetSecrets(ServeArgs),
}

#[derive(Debug, Args)]
pub(super) struct ResetArgs {
    /// Name of the user.
    #[arg(default_value = "admin")]
    pub(super) username: String,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum ModelsCommand {
    /// Check that the YAML files of a folder are valid models.
    Check {
        /// Folder with `*.yml` and `*.yaml`.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum CatalogCommand {
    /// Rebuild the catalog from the commit objects and parts in the object store.
    Rebuild(ServeArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Compare catalog and object store; list missing, unknown and damaged objects.
    Check(ServeArgs),
    /// Bring back days that retention dropped, as long as their files are kept (`store.drop_grace`).
    Undrop(ServeArgs),
}

#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    /// Folder, file:///… or s3://bucket/prefix; later backups into the same place copy only what is new.
    #[arg(long, value_name = "PLACE")]
    pub(super) to: String,
    /// Number of backups to keep there; older ones are deleted [default: all].
    #[arg(long, value_name = "N")]
    pub(super) keep: Option<usize>,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
}

// The running server that a command asks instead of opening the data itself.
#[derive(Debug, Args)]
pub(super) struct RemoteArgs {
    /// Main port of the running server, such as 127.0.0.1:8800 or https://quiver.example.
    #[arg(long, value_name = "ADDR")]
    pub(super) server: Option<String>,
    /// File with an API key or access token for the running server [default of `backup`: http.admin_token_file].
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(super) key_file: Option<PathBuf>,
    /// File (PEM) with the authority that signed its certificate, if the system does not trust it.
    #[arg(long, value_name = "FILE", requires = "server")]
    pub(super) ca_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(super) struct SqlArgs {
    /// The query [default: read from standard input].
    #[arg(value_name = "STATEMENT")]
    pub(super) statement: Option<String>,
    #[command(flatten)]
    pub(super) remote: RemoteArgs,
    /// Output format.
    #[arg(long, value_name = "FORM", default_value = "table",
          value_parser = ["table", "csv", "json", "ndjson", "arrow", "parquet"])]
    pub(super) format: String,
    /// Values of $1, $2, … as a JSON list, or of $name as an object.
    #[arg(long, value_name = "JSON")]
    pub(super) params: Option<String>,
    /// Time zone in which times are shown, such as Europe/Berlin [default: UTC].
    #[arg(long, value_name = "ZONE")]
    pub(super) time_zone: Option<String>,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
}

#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    /// Where the backups are.
    #[arg(long, value_name = "PLACE")]
    pub(super) from: String,
    /// Name of the backup [default: the newest].
    #[arg(long, value_name = "NAME")]
    pub(super) at: Option<String>,
    /// List the backups, oldest first, and change nothing.
    #[arg(long)]
    pub(super) list: bool,
    /// Restore telemetry only: accounts and configuration start empty, or are in a PostgreSQL that still exists.
    #[arg(long)]
    pub(super) without_configuration: bool,
    /// Restore the configuration without its secrets, which cannot be decrypted if the master key is lost.
    #[arg(long, conflicts_with = "without_configuration")]
    pub(super) without_secrets: bool,
    #[command(flatten)]
    pub(super) serve: ServeArgs,
}

// Flags that override settings. Every command takes all of them, since each reads the settings of the server whose data
// it works on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings (override those of the file and the environment)")]
pub(super) struct ServeArgs {
    /// Settings file (TOML); see --print-settings.
    #[arg(long, value_name = "FILE", env = "QUIVER_CONFIG")]
    pub(super) config: Option<PathBuf>,
    /// Data directory [default: ./quiver-data].
    #[arg(long, value_name = "DIR")]
    pub(super) data: Option<String>,
    /// Object store: file:///… or s3://bucket/prefix [default: under the data directory].
    #[arg(long, value_name = "URL")]
    pub(super) store: Option<String>,
    /// Address of the main port [default: 127.0.0.1:8800]; port 0 picks one.
    #[arg(long, value_name = "ADDR")]
    pub(super) http: Option<String>,
    /// Address of OTLP over HTTP [default: 127.0.0.1:4318].
    #[arg(long, value_name = "ADDR")]
    pub(super) otlp_http: Option<String>,
    /// Address of OTLP over gRPC [default: 127.0.0.1:4317].
    #[arg(long, value_name = "ADDR")]
    pub(super) otlp_grpc: Option<String>,
    /// Address of PostgreSQL's protocol, such as 127.0.0.1:5432 [default: off].
    #[arg(long, value_name = "ADDR")]
    pub(super) postgres: Option<String>,
    /// How long data is kept [default: 30d]; none keeps everything and lifts the limits on the age of samples.
    #[arg(long, value_name = "30d|none")]
    pub(super) retention: Option<String>,
    /// Access control [default: on]; off: anyone who reaches the server may do anything. See docs/identity.md.
    #[arg(long, value_name = "on|off")]
    pub(super) rbac: Option<String>,
    /// TLS certificate for all ports (PEM), followed by its intermediate certificates.
    #[arg(long, value_name = "FILE")]
    pub(super) tls_cert: Option<String>,
    /// Private key of that certificate (PEM).
    #[arg(long, value_name = "FILE")]
    pub(super) tls_key: Option<String>,
    /// Rule files of Prometheus or vmalert to evaluate; may contain `*`, may be repeated.
    #[arg(long, value_name = "FILE")]
    pub(super) rules: Vec<String>,
    /// Alertmanager configuration: routes and receivers of alerts.
    #[arg(long, value_name = "FILE")]
    pub(super) alert_policy: Option<String>,
    /// Allow listening on addresses other than loopback while access control is off (for containers).
    #[arg(long)]
    pub(super) rbac_off_on_network: bool,
    /// Folder with analytics models; may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(super) olap_models: Vec<String>,
    /// Folder with tables for analytics and SQL (CSV, Parquet); may be repeated.
    #[arg(long, value_name = "DIR")]
    pub(super) olap_tables: Vec<String>,
    /// Whether the built-in analytics models are available [default: on].
    #[arg(long, value_name = "on|off")]
    pub(super) olap_builtin: Option<String>,
}

impl ServeArgs {
    /// Reads the settings: defaults, file, environment, then these flags.
    pub(super) fn load(&self) -> Result<LoadedSettings, Failure> {
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
        if self.rbac_off_on_network {
            flags.push(("http.rbac_off_on_network", "true".to_owned()));
        }
        let environment = variables(std::env::vars_os())?;
        Ok(LoadedSettings::load(self.config.as_deref(), environment.into_iter(), &flags)?)
    }

    /// Reads the settings anew while the server runs.
    ///
    /// A pipe is read once: opened again, it would block this reload and all later ones until somebody writes to it, or
    /// hold nothing, which would set everything back to its default.
    pub(super) fn load_anew(&self) -> Result<LoadedSettings, Failure> {
        let is_pipe = |path: &&PathBuf| std::fs::metadata(path).is_ok_and(|file| file.file_type().is_fifo());
        if let Some(path) = self.config.as_ref().filter(is_pipe) {
            return Err(format!("settings file `{}` is a pipe, which is only read at the start", path.display()).into());
        }
        self.load()
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use clap::error::ErrorKind;
    use serde_json::{Value, json};

    use super::*;

    fn parsed(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once("quiver").chain(args.iter().copied()))
    }

    /// Breaks if a reload waits for a writer, and all later ones for it.
    #[test]
    fn a_pipe_is_not_read_anew() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("quiver.toml");
        let made = std::process::Command::new("mkfifo").arg(&file).status().unwrap();
        assert!(made.success());
        let shown = file.display().to_string();
        let Ok(Cli { command: Some(Command::Serve(serve)), .. }) = parsed(&["serve", "--config", &shown]) else {
            panic!("{shown}")
        };
        let told = serve.load_anew().err().map(|error| error.to_string());
        assert_eq!(told, Some(format!("settings file `{shown}` is a pipe, which is only read at the start")));
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, "[query]\nslow = \"3s\"\n").unwrap();
        assert!(serve.load_anew().is_ok());
    }

    /// The value of a setting where the server is started with some flags.
    fn setting(flags: &[&str], name: &str) -> Value {
        let args: Vec<&str> = std::iter::once("serve").chain(flags.iter().copied()).collect();
        let Ok(Cli { command: Some(Command::Serve(serve)), .. }) = parsed(&args) else { panic!("{args:?}") };
        let listed = serve.load().unwrap().settings.listed();
        let found = listed.into_iter().find(|(section, key, _)| format!("{section}.{key}") == name);
        found.map(|(.., value)| value).expect("a setting of this name")
    }

    #[test]
    fn commands_and_flags_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_go_over_settings() {
        for (flags, name, expected) in [
            (&["--data", "/d"][..], "store.data", json!("/d")),
            (&["--store", "s3://bucket/prefix"][..], "store.url", json!("s3://bucket/prefix")),
            (&["--http", "127.0.0.1:0"][..], "http.listen", json!("127.0.0.1:0")),
            (&["--otlp-http", "127.0.0.1:1"][..], "otlp.http_listen", json!("127.0.0.1:1")),
            (&["--otlp-grpc", "127.0.0.1:2"][..], "otlp.grpc_listen", json!("127.0.0.1:2")),
            (&["--postgres", "127.0.0.1:3"][..], "postgres.listen", json!("127.0.0.1:3")),
            (&["--retention", "7d"][..], "store.retention", json!("7d")),
            (&["--retention", "none"][..], "store.retention", json!("none")),
            (&["--rbac", "off"][..], "rbac.mode", json!("off")),
            (&["--tls-cert", "c", "--tls-key", "k"][..], "tls.certificate_file", json!("c")),
            (&["--tls-cert", "c", "--tls-key", "k"][..], "tls.key_file", json!("k")),
            (&["--alert-policy", "p.yml"][..], "alerting.policy", json!("p.yml")),
            (&["--rules", "a.yml", "--rules", "b*.yml"][..], "alerting.rules", json!(["a.yml", "b*.yml"])),
            (&["--rules", "a \"b\", c.yml"][..], "alerting.rules", json!(["a \"b\", c.yml"])),
            (&["--olap-models", "m"][..], "olap.model_dirs", json!(["m"])),
            (&["--olap-tables", "t"][..], "olap.table_dirs", json!(["t"])),
            (&["--olap-builtin", "off"][..], "olap.builtin", json!("off")),
            (&["--rbac-off-on-network"][..], "http.rbac_off_on_network", json!(true)),
            (&[][..], "http.rbac_off_on_network", json!(false)),
        ] {
            assert_eq!(setting(flags, name), expected, "{flags:?}");
        }
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (args, kind) in [
            (&[][..], ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand),
            (&["nothing"][..], ErrorKind::InvalidSubcommand),
            (&["serve", "--no-such-flag"][..], ErrorKind::UnknownArgument),
            (&["backup"][..], ErrorKind::MissingRequiredArgument),
            (&["restore"][..], ErrorKind::MissingRequiredArgument),
            (&["models", "check"][..], ErrorKind::MissingRequiredArgument),
            (&["rules", "test"][..], ErrorKind::MissingRequiredArgument),
            // What is for a running server alone.
            (&["sql", "--key-file", "k"][..], ErrorKind::MissingRequiredArgument),
            (&["backup", "--to", "b", "--ca-file", "c"][..], ErrorKind::MissingRequiredArgument),
            (&["sql", "--format", "xml"][..], ErrorKind::InvalidValue),
            (&["rules", "check", "--lint", "some"][..], ErrorKind::InvalidValue),
            (&["rules", "test", "f", "--run", "("][..], ErrorKind::ValueValidation),
            (&["backup", "--to", "b", "--keep", "few"][..], ErrorKind::ValueValidation),
            (
                &["restore", "--from", "b", "--without-configuration", "--without-secrets"][..],
                ErrorKind::ArgumentConflict,
            ),
        ] {
            assert_eq!(parsed(args).err().map(|error| error.kind()), Some(kind), "{args:?}");
        }
    }

    #[test]
    fn what_is_not_said_is_what_is_mostly_meant() {
        let Ok(Cli { command: Some(Command::Sql(sql)), failpoints: false, .. }) = parsed(&["sql"]) else { panic!() };
        assert_eq!((sql.format.as_str(), sql.statement, sql.remote.server), ("table", None, None));
        let admin = parsed(&["admin", "reset-password"]);
        let Ok(Cli { command: Some(Command::Admin { command: AdminCommand::ResetPassword(reset) }), .. }) = admin
        else {
            panic!()
        };
        assert_eq!(reset.username, "admin");
        let forget = parsed(&["admin", "forget-secrets", "--data", "d"]);
        let Ok(Cli { command: Some(Command::Admin { command: AdminCommand::ForgetSecrets(serve) }), .. }) = forget
        else {
            panic!()
        };
        assert_eq!(serve.data.as_deref(), Some("d"));
        // The flag is one of every command.
        assert!(parsed(&["check-config", "--failpoints"]).is_ok_and(|cli| cli.failpoints));
    }

    #[test]
    fn options_of_rules() {
        let rules = |args: &[&str]| {
            let all: Vec<&str> = std::iter::once("rules").chain(args.iter().copied()).collect();
            let Ok(Cli { command: Some(Command::Rules { command }), .. }) = parsed(&all) else { panic!("{args:?}") };
            command
        };
        let RulesCommand::Check { files, lint, lint_fatal, ignore_unknown_fields } = rules(&["check"]) else {
            panic!()
        };
        assert_eq!(
            (files.len(), lint, lint_fatal, ignore_unknown_fields),
            (0, crate::rules::LintMode::DuplicateRules, false, false)
        );
        let all = rules(&["check", "--lint", "none", "--lint-fatal", "--ignore-unknown-fields", "a.yml", "b.yml"]);
        let RulesCommand::Check { files, lint, lint_fatal, ignore_unknown_fields } = all else { panic!() };
        assert_eq!(
            (files.len(), lint, lint_fatal, ignore_unknown_fields),
            (2, crate::rules::LintMode::None, true, true)
        );
        let all = rules(&["test", "a.yml", "--run", "^x", "--run", "y$", "--diff", "--debug", "--junit", "o.xml"]);
        let RulesCommand::Test { files, run, diff, debug, junit, ignore_unknown_fields } = all else { panic!() };
        assert_eq!(run.iter().map(regex::Regex::as_str).collect::<Vec<_>>(), ["^x", "y$"]);
        assert_eq!((files, junit), (vec![PathBuf::from("a.yml")], Some(PathBuf::from("o.xml"))));
        assert_eq!((diff, debug, ignore_unknown_fields), (true, true, false));
    }

    #[test]
    fn options_of_backups_and_statements() {
        let line = [
            "backup",
            "--to",
            "b",
            "--keep",
            "3",
            "--server",
            "h:1",
            "--key-file",
            "k",
            "--ca-file",
            "c",
            "--data",
            "d",
        ];
        let Ok(Cli { command: Some(Command::Backup(backup)), .. }) = parsed(&line) else { panic!() };
        assert_eq!((backup.to.as_str(), backup.keep, backup.remote.server.as_deref()), ("b", Some(3), Some("h:1")));
        assert_eq!(
            (backup.remote.key_file, backup.remote.ca_file),
            (Some(PathBuf::from("k")), Some(PathBuf::from("c")))
        );
        let line = ["sql", "select 1", "--format", "ndjson", "--params", "[1]", "--time-zone", "Europe/Berlin"];
        let Ok(Cli { command: Some(Command::Sql(sql)), .. }) = parsed(&line) else { panic!() };
        assert_eq!((sql.statement.as_deref(), sql.format.as_str()), (Some("select 1"), "ndjson"));
        assert_eq!((sql.params.as_deref(), sql.time_zone.as_deref()), (Some("[1]"), Some("Europe/Berlin")));
        let line = ["restore", "--from", "b", "--at", "x", "--list", "--without-secrets"];
        let Ok(Cli { command: Some(Command::Restore(restore)), .. }) = parsed(&line) else { panic!() };
        assert_eq!((restore.at.as_deref(), restore.list, restore.without_secrets), (Some("x"), true, true));
        assert!(!restore.without_configuration);
    }
}
