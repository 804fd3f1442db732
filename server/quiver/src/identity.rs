//! Accounts in the binary: the location of their database and keys, and the source of the first password.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use quiver_api::alerting::stored_checks::AlertingChecks;
use quiver_api::configuration_backup::schemas;
use quiver_api::identity::{FirstPassword, Identities, KeyRates, PasswordSealer, Rate};
use quiver_auth::{Auth, AuthSettings, Fetch, MasterVault, OsRandom, Secret, api_key, forget_keys, sealed_keys};
use quiver_config::{
    AuditEvent, Caller, Config, KeyFit, Problem, ProblemKind, claim, forget_secrets, key_fit, migrate,
};
use quiver_database::{
    CHECKED_BYTES_MAX, Damage, Database, TABLES, damage, fault_of_file, is_empty, is_ours, statement,
};
use quiver_store::layout::DataDir;
use quiver_types::{Clock, Error, ErrorKind, Random, Result, SystemClock, Vault};

use crate::alerting::DATABASE as ALERTS_DATABASE;
use crate::issuers::IssuerClient;
use crate::memory::memory_limit_bytes;
use crate::settings::{OidcIssuer, Settings};

/// The database of accounts and configuration. Separate from the catalog, so that neither waits for the other.
const DATABASE: &str = "config.db";
/// The default file name of the master key.
const MASTER_KEY: &str = "master-key";

pub(crate) fn fault(problem: Problem) -> Error {
    let kind = match problem.kind {
        ProblemKind::Busy => ErrorKind::Unavailable,
        ProblemKind::Internal => ErrorKind::Internal,
        ProblemKind::NotFound => ErrorKind::NotFound,
        _ => ErrorKind::Invalid,
    };
    let text = if problem.errors.is_empty() { problem.detail.clone() } else { format!("accounts: {problem}") };
    Error::new(kind, text).with_source(std::io::Error::other(problem.cause.unwrap_or(problem.detail)))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|v| !v.is_empty())
}

/// The path of the master key, if one is given.
fn given_master_key(settings: &Settings) -> Option<PathBuf> {
    let given = Some(settings.auth.master_key_file.clone()).filter(|f| !f.is_empty());
    given.or_else(|| variable("QUIVER_MASTER_KEY_FILE")).map(PathBuf::from)
}

/// The path of the master key.
pub(crate) fn master_key(settings: &Settings) -> PathBuf {
    given_master_key(settings).unwrap_or_else(|| Path::new(&settings.store.data).join(MASTER_KEY))
}

/// Checks that the files with secrets exist, which a start would need.
///
/// # Errors
/// Invalid: which one.
pub(crate) fn check(settings: &Settings) -> Result<()> {
    database_url(settings)?;
    let Some(file) = given_master_key(settings) else { return Ok(()) };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() {
        return Ok(());
    }
    Err(Error::invalid(format!("there is no folder for the master key `{}` (`auth.master_key_file`)", file.display())))
}

fn first_password(settings: &Settings) -> FirstPassword {
    FirstPassword {
        file: variable("QUIVER_ADMIN_PASSWORD_FILE").map(PathBuf::from),
        text: variable("QUIVER_ADMIN_PASSWORD").map(Secret::new),
        data: PathBuf::from(&settings.store.data),
    }
}

/// The part of the URL before `/realms/platform`, as clients see it.
fn base_url(settings: &Settings, listen: &str) -> String {
    if !settings.auth.public_url.is_empty() {
        return settings.auth.public_url.clone();
    }
    let address = listen.parse::<std::net::SocketAddr>().map_or_else(
        |_| listen.to_owned(),
        |at| if at.ip().is_unspecified() { format!("127.0.0.1:{}", at.port()) } else { at.to_string() },
    );
    let scheme = if settings.tls.files().is_some() { "https" } else { "http" };
    format!("{scheme}://{address}")
}

/// The URL of PostgreSQL, if accounts and configuration are stored there.
fn database_url(settings: &Settings) -> Result<Option<String>> {
    let file = &settings.config.database_url_file;
    let url = if file.is_empty() {
        settings.config.database_url.0.clone()
    } else {
        let cannot = |e| Error::invalid(format!("`config.database_url_file`: cannot read `{file}`")).with_source(e);
        quiver_files::read_text(Path::new(file), quiver_files::SECRET_BYTES_MAX).map_err(cannot)?.trim().to_owned()
    };
    Ok(Some(url).filter(|url| !url.is_empty()))
}

/// Opens the database of accounts and configuration.
pub(crate) async fn open_database(settings: &Settings) -> Result<Database> {
    let Some(url) = database_url(settings)? else {
        return open_file(&Path::new(&settings.store.data).join(DATABASE), memory_limit_bytes(settings)).await;
    };
    // The URL is not shown, and neither are driver messages that contain it: it may contain a password.
    let text = "PostgreSQL (`config.database_url`) cannot be reached, or does not let this server in";
    let opened = Database::postgres(&url).await;
    opened.map_err(|e| Error::new(ErrorKind::Unavailable, text).with_source(std::io::Error::other(without(&e, &url))))
}

/// Says of a file which it is, what is wrong with it, and what to do.
fn unusable(path: &Path, damage: &Damage) -> Error {
    let instead = format!(
        "put it back from a backup (`quiver restore`), or move it and `{DATABASE}-wal` away to begin with new accounts and \
         without configuration"
    );
    let told = damage.advice(&instead);
    Error::invalid(format!("`{}`, the database of accounts and configuration, {told}", path.display()))
}

/// Opens the file of SQLite, if it is one that this server can go on with.
async fn open_file(path: &Path, memory_bytes: u64) -> Result<Database> {
    // Stands beside a file that is being made: a server that is killed then leaves an empty one, which has lost nothing.
    let mark = path.with_extension("db-new");
    let lost = || (is_empty(path) && !mark.exists()).then(|| Damage::lost("is empty"));
    if let Some(damage) = damage(path).or_else(lost) {
        return Err(unusable(path, &damage));
    }
    if !path.exists() {
        if path.with_file_name(ALERTS_DATABASE).exists() {
            tracing::warn!(
                path = %path.display(),
                "the database of accounts and configuration is missing, though a server has run here: beginning with new \
                 accounts and without configuration"
            );
        }
        // Without it, the file itself cannot be made either, which is told.
        let _ = quiver_files::refuse_irregular(&mark).and_then(|()| std::fs::write(&mark, []));
    }
    let base = Database::sqlite_within(path, memory_bytes).await.map_err(|error| told(path, error))?;
    match check_file(&base, path).await {
        Ok(()) => {
            let _ = std::fs::remove_file(&mark);
            Ok(base)
        }
        Err(error) => {
            // Nobody has the file open when it is moved away.
            base.close().await;
            Err(error)
        }
    }
}

fn told(path: &Path, error: quiver_database::Error) -> Error {
    match fault_of_file(&error) {
        Some(damage) => unusable(path, &damage).with_source(error),
        None => fault(error.into()),
    }
}

/// Checks that a file is whole, and that its tables are ours, if it has any.
async fn check_file(base: &Database, path: &Path) -> Result<()> {
    let told = |error| told(path, error);
    if std::fs::metadata(path).is_ok_and(|file| file.len() <= CHECKED_BYTES_MAX) {
        let row = statement("PRAGMA quick_check(1)").fetch_one(base).await.map_err(told)?;
        let outcome: String = row.try_get(0).map_err(told)?;
        if outcome != "ok" {
            let outcome = outcome.split_whitespace().collect::<Vec<_>>().join(" ");
            return Err(unusable(path, &Damage::lost(format!("is damaged ({outcome})"))));
        }
    }
    let row = statement(TABLES).fetch_one(base).await.map_err(told)?;
    let number = |at: usize| row.try_get::<i64>(at).map_err(told);
    let is_ours = is_ours([number(0)?, number(1)?, number(2)?], true);
    if is_ours { Ok(()) } else { Err(unusable(path, &Damage::lost("holds tables of something else"))) }
}

/// The text of an error without the URL and its password.
fn without(error: &quiver_database::Error, url: &str) -> String {
    let user = url.split_once("://").and_then(|(_, rest)| rest.rsplit_once('@')).map_or("", |(user, _)| user);
    let password = user.split_once(':').map_or("", |(_, password)| password);
    [url, password]
        .iter()
        .filter(|text| !text.is_empty())
        .fold(error.to_string(), |said, text| said.replace(*text, "…"))
}

/// Reads the master key. `makes`: where there is none, it is made; else that is `None`.
async fn key_of(path: &Path, makes: bool) -> Result<Option<MasterVault>> {
    let path = path.to_owned();
    let read = move || {
        let random: Arc<dyn Random> = Arc::new(OsRandom);
        if makes { MasterVault::open_file(&path, random).map(Some) } else { MasterVault::of_file(&path, random) }
    };
    let cannot = |e| Error::internal("the master key cannot be read").with_source(e);
    tokio::task::spawn_blocking(read).await.map_err(cannot)?
}

/// Says that the secrets of the database are encrypted under another key than the one at a path, and what to do.
fn wrong_key(path: &Path, is_there: bool) -> Error {
    let is = if is_there { "is not the one" } else { "is missing, the one" };
    Error::invalid(format!(
        "the master key `{}` {is} under which the secrets of the database of accounts and configuration are encrypted: put \
         that one there or name it (`auth.master_key_file`); if it is lost, `quiver admin forget-secrets` gives these \
         secrets up",
        path.display()
    ))
}

/// Compares a master key, if there is one, with what is encrypted in the database.
async fn fit_of(pool: &Database, found: Option<&MasterVault>) -> Result<KeyFit> {
    let signing = sealed_keys(pool).await?;
    key_fit(pool, found.map(|vault| vault as &dyn Vault), &signing).await.map_err(fault)
}

/// Gives the master key that was found at a path, or a new one, if it is the one of the database.
///
/// # Errors
/// Invalid: something is encrypted under another one.
async fn fitting(path: &Path, found: Option<MasterVault>, pool: &Database) -> Result<MasterVault> {
    let (fit, is_there) = (fit_of(pool, found.as_ref()).await?, found.is_some());
    let replaces = match fit {
        KeyFit::Known | KeyFit::Opens => false,
        // A server that shares the database would encrypt the first secret under its own key, so it must not be replaced.
        KeyFit::Unused { by_another } if !(by_another && pool.is_shared()) => by_another,
        KeyFit::Unused { .. } | KeyFit::Wrong => return Err(wrong_key(path, is_there)),
    };
    if replaces {
        let path = path.display();
        let (was, now) =
            if is_there { ("another one than before", "using it") } else { ("missing", "making a new one") };
        let which = format!("the master key is {was}: {now}, as no secret of the configuration is encrypted");
        tracing::warn!(%path, "{which}; former policies (`revisions`) cannot be opened with it");
    }
    let vault = match found {
        Some(vault) => vault,
        None => key_of(path, true).await?.ok_or_else(|| Error::internal("the master key cannot be made"))?,
    };
    if fit != KeyFit::Known && !claim(pool, &vault, replaces).await.map_err(fault)? {
        return Err(wrong_key(path, is_there));
    }
    Ok(vault)
}

async fn open_parts(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<(Auth, Config)> {
    let random = Arc::new(OsRandom);
    let key = master_key(settings);
    // One that is missing is made when it is known that nothing is lost with it.
    let found = key_of(&key, false).await?;
    let pool = open_database(settings).await?;
    let of_tables = |problem: Problem| {
        let error = fault(problem);
        let place = match database_url(settings) {
            Ok(None) => format!("`{}`", Path::new(&settings.store.data).join(DATABASE).display()),
            _ => "PostgreSQL (`config.database_url`)".to_owned(),
        };
        let text = format!("{place}, the database of accounts and configuration, cannot be used: {}", error.message);
        Error { message: text, ..error }
    };
    for schema in schemas() {
        migrate(&pool, schema.part, schema.steps, clock.now_ms()).await.map_err(&of_tables)?;
    }
    let vault: Arc<dyn Vault> = Arc::new(fitting(&key, found, &pool).await?);
    let own = AuthSettings {
        basic_passwords: settings.auth.basic_passwords,
        olap_api_keys: settings.auth.olap_api_keys,
        key_bits: settings.auth.key_bits as u32,
        external: settings.auth.oidc.iter().map(OidcIssuer::external).collect(),
    };
    let fetch = match &own.external[..] {
        [] => None,
        _ => Some(IssuerClient::new()? as Arc<dyn Fetch>),
    };
    let (own_vault, own_clock) = (Arc::clone(&vault), Arc::clone(clock));
    let auth = Auth::open(own, pool.clone(), own_vault, own_clock, Arc::<OsRandom>::clone(&random), fetch).await?;
    let sealer = Arc::new(PasswordSealer(Arc::clone(auth.passwords())));
    let config = Config::open(pool, Arc::clone(clock), random, vault, sealer).await.map_err(&of_tables)?;
    let interval_ms = crate::alerting::millis(settings.alerting.evaluation_interval);
    let config = config.with_checks(Arc::new(AlertingChecks { interval_ms })).within(memory_limit_bytes(settings));
    Ok((auth, config))
}

/// Opens the configuration without accounts, for use without access control.
///
/// # Errors
/// When the database or the master key cannot be used.
pub async fn open_config(settings: &Settings, clock: &Arc<dyn Clock>) -> Result<Config> {
    Ok(open_parts(settings, clock).await?.1)
}

/// Opens accounts, their configuration and the token service; `listen` is the address of this server.
///
/// # Errors
/// When the database or the master key cannot be used, or the first password is not acceptable.
pub async fn open(settings: &Settings, listen: &str, clock: Arc<dyn Clock>) -> Result<Arc<Identities>> {
    let (auth, config) = open_parts(settings, &clock).await?;
    let issuer = format!("{}/realms/platform", base_url(settings, listen));
    let enforced = settings.rbac.mode == "on";
    let rbac = &settings.rbac;
    let rates = KeyRates {
        requests: Rate { per_second: rbac.key_requests_per_second as u64, burst: rbac.key_requests_burst as u64 },
        ingest_bytes: Rate::per_second(rbac.key_ingest_bytes_per_second.0),
        ingest_records: Rate::per_second(rbac.key_ingest_records_per_second as u64),
    };
    Identities::open(auth, config, (issuer, enforced, rates), &first_password(settings)).await.map_err(fault)
}

/// Locks a data directory with accounts, so that no server starts on it; `runs` is the error if one is running.
fn stopped(settings: &Settings, runs: &str) -> Result<DataDir> {
    let data = Path::new(&settings.store.data);
    if database_url(settings)?.is_none() && !data.join(DATABASE).exists() {
        return Err(Error::new(ErrorKind::NotFound, format!("there are no accounts in `{}`", data.display())));
    }
    DataDir::open(data).map_err(|e| match e {
        e if e.kind() == ErrorKind::Conflict => Error::new(e.kind(), runs).with_source(e),
        e => e,
    })
}

/// Deletes what is encrypted under a lost master key: everything that the present key does not open or, if there is no
/// key, that a new one does not. Returns the numbers of deleted secrets and signing keys.
///
/// # Errors
/// When a server runs, or the database cannot be used.
pub async fn forget_lost_secrets(settings: &Settings) -> Result<(usize, usize)> {
    let _lock = stopped(settings, "the server runs: stop it first")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let key = master_key(settings);
    let pool = open_database(settings).await?;
    for schema in schemas() {
        migrate(&pool, schema.part, schema.steps, clock.now_ms()).await.map_err(fault)?;
    }
    let vault = key_of(&key, true).await?.ok_or_else(|| Error::internal("the master key cannot be made"))?;
    let is_another = matches!(fit_of(&pool, Some(&vault)).await?, KeyFit::Wrong | KeyFit::Unused { by_another: true });
    let keys = forget_keys(&pool, &vault).await?;
    let secrets = forget_secrets(&pool, &vault, is_another).await.map_err(fault)?;
    let is_ours = claim(&pool, &vault, is_another).await.map_err(fault)?;
    pool.close().await;
    if !is_ours {
        return Err(wrong_key(&key, true));
    }
    if is_another || keys + secrets > 0 {
        let (_, config) = open_parts(settings, &clock).await?;
        let event = AuditEvent {
            action: "SECRETS_FORGOTTEN",
            family: "rbac/keys",
            entity_id: None,
            entity_name: Some(format!("{secrets} secrets, {keys} signing keys")),
            outcome: "ok",
            code: None,
        };
        config.audit(&Caller { name: "quiver admin".to_owned(), ..Caller::system() }, event).await;
    }
    Ok((secrets, keys))
}

/// Sets the password of a user directly in the database; returns the new one if it was generated.
///
/// # Errors
/// When there is no such user, or the store cannot be used.
pub async fn reset_password(settings: &Settings, username: &str) -> Result<Option<String>> {
    // A running server would not notice the change for a while, and its caches would still accept the old password.
    let _lock = stopped(settings, "the server runs: stop it first, or ask another administrator")?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (_, config) = open_parts(settings, &clock).await?;
    let first = first_password(settings);
    let given = match (&first.file, &first.text) {
        (Some(path), _) => {
            let cannot = |e| Error::invalid(format!("cannot read `{}`", path.display())).with_source(e);
            let text = quiver_files::read_given_text(path, quiver_files::SECRET_BYTES_MAX).map_err(cannot)?;
            Some(text.trim_end_matches(['\r', '\n']).to_owned())
        }
        (None, Some(secret)) => Some(secret.expose().to_owned()),
        (None, None) => None,
    };
    let password = given.clone().unwrap_or_else(|| api_key::make_secret(&OsRandom)[..24].to_owned());
    quiver_api::identity::reset_password(&config, username, &password).await.map_err(fault)?;
    Ok(given.is_none().then_some(password))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LoadedSettings;

    fn settings(given: &[(&str, &str)]) -> Settings {
        let given = given.iter().map(|(name, value)| (format!("QUIVER_{name}"), (*value).to_owned()));
        LoadedSettings::load(None, given, &[]).unwrap().settings
    }

    #[test]
    fn faults_of_accounts_keep_their_kind() {
        for (kind, expected) in [
            (ProblemKind::Busy, ErrorKind::Unavailable),
            (ProblemKind::Internal, ErrorKind::Internal),
            (ProblemKind::NotFound, ErrorKind::NotFound),
            (ProblemKind::Conflict, ErrorKind::Invalid),
        ] {
            let error = fault(Problem::new(kind, "CODE", "what is said"));
            assert_eq!((error.kind, error.message.as_str()), (expected, "what is said"), "{kind:?}");
        }
        // The field alone means nothing to whoever starts the server, so the text names its context.
        assert_eq!(fault(Problem::field("/password", "REQUIRED", "lacks")).message, "accounts: /password: lacks");
    }

    /// Breaks if a start says no more than a code, begins new accounts in place of those that were lost, or takes the
    /// file of something else for its own.
    #[tokio::test]
    async fn files_that_are_no_database_of_accounts() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(DATABASE);
        // What a server leaves that was killed while it made the file.
        let mark = dir.path().join("config.db-new");
        for file in [&path, &mark] {
            std::fs::write(file, []).unwrap();
        }
        let base = open_file(&path, u64::MAX).await.unwrap();
        assert!(!mark.exists());
        migrate(&base, quiver_auth::SCHEMA.part, quiver_auth::SCHEMA.steps, 0).await.unwrap();
        base.close().await;
        let base = open_file(&path, u64::MAX).await.expect("its own");
        base.close().await;
        let whole = std::fs::read(&path).unwrap();
        let shown = path.display();
        let check = async |bytes: &[u8], what: &str| {
            std::fs::write(&path, bytes).unwrap();
            let error = open_file(&path, u64::MAX).await.unwrap_err();
            let expected = format!("`{shown}`, the database of accounts and configuration, {what}");
            assert!(error.message.starts_with(&expected), "{error}");
            assert!(error.kind == ErrorKind::Invalid && error.message.contains("quiver restore"), "{error}");
        };
        check(b"", "is empty").await;
        check(b"not a database, but a text that somebody saved under its name", "is no SQLite database").await;
        let cut = whole.len() / 2;
        check(&whole[..cut], &format!("is cut short: there are {cut} of its {} bytes", whole.len())).await;
        std::fs::remove_file(&path).unwrap();
        // A catalog counts its migrations, too, but not by part.
        let base = Database::sqlite(&path).await.unwrap();
        let mut writing = base.begin().await.unwrap();
        writing.apply("CREATE TABLE migration (number INTEGER, name TEXT, applied_ms INTEGER) STRICT").await.unwrap();
        writing.commit().await.unwrap();
        base.close().await;
        let catalog = std::fs::read(&path).unwrap();
        check(&catalog, "holds tables of something else").await;
        std::fs::remove_file(&path).unwrap();
        std::fs::create_dir(&path).unwrap();
        let error = open_file(&path, u64::MAX).await.unwrap_err();
        assert!(error.message.contains("is a directory;"), "{error}");
    }

    #[test]
    fn tokens_name_where_clients_reach_the_server() {
        let plain = settings(&[]);
        for (listen, expected) in [
            ("127.0.0.1:8800", "http://127.0.0.1:8800"),
            ("0.0.0.0:1", "http://127.0.0.1:1"),
            ("[::]:2", "http://127.0.0.1:2"),
            ("[::1]:3", "http://[::1]:3"),
            ("quiver:4", "http://quiver:4"),
        ] {
            assert_eq!(base_url(&plain, listen), expected, "{listen}");
        }
        let encrypted = settings(&[("TLS__CERTIFICATE_FILE", "c"), ("TLS__KEY_FILE", "k")]);
        assert_eq!(base_url(&encrypted, "10.0.0.1:5"), "https://10.0.0.1:5");
        let named = settings(&[("AUTH__PUBLIC_URL", "https://quiver.example")]);
        assert_eq!(base_url(&named, "0.0.0.0:1"), "https://quiver.example");
    }

    #[test]
    fn the_database_is_named_by_a_setting_or_a_file() {
        const URL: &str = "postgres://me:hunter2@db/quiver";
        assert_eq!(database_url(&settings(&[])).unwrap(), None);
        assert_eq!(database_url(&settings(&[("CONFIG__DATABASE_URL", URL)])).unwrap().as_deref(), Some(URL));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("url").display().to_string();
        let by_file = settings(&[("CONFIG__DATABASE_URL", "postgres://other/x"), ("CONFIG__DATABASE_URL_FILE", &path)]);
        assert!(database_url(&by_file).unwrap_err().message.contains(&path));
        std::fs::write(&path, format!("{URL}\n")).unwrap();
        assert_eq!(database_url(&by_file).unwrap().as_deref(), Some(URL));
    }

    #[test]
    fn passwords_of_databases_are_not_told() {
        let said = quiver_database::Error::Protocol("no `hunter2` at postgres://me:hunter2@db/quiver".to_owned());
        for (url, hidden, kept) in [
            ("postgres://me:hunter2@db/quiver", "hunter2", "no `…` at …"),
            ("postgres://me:hunter2@db/other", "hunter2", "postgres://me:…@db/quiver"),
            ("postgres://db/quiver", "", "no `hunter2` at postgres://me:hunter2@db/quiver"),
        ] {
            let text = without(&said, url);
            assert!(text.contains(kept) && (hidden.is_empty() || !text.contains(hidden)), "{url}: {text}");
        }
    }

    #[test]
    fn where_the_master_key_is() {
        assert_eq!(master_key(&settings(&[("AUTH__MASTER_KEY_FILE", "/k")])), Path::new("/k"));
        if variable("QUIVER_MASTER_KEY_FILE").is_none() {
            assert_eq!(master_key(&settings(&[("STORE__DATA", "/d")])), Path::new("/d/master-key"));
        }
        assert_eq!(first_password(&settings(&[("STORE__DATA", "/d")])).data, Path::new("/d"));
    }

    #[test]
    fn passwords_with_odd_letters_are_not_told_either() {
        let told = |said: &str, url: &str| without(&quiver_database::Error::Protocol(said.to_owned()), url);
        for (said, url, hidden) in [
            ("no p@ss", "postgres://me:p@ss@db/x", "p@ss"),
            ("no a:b", "postgres://me:a:b@db", "a:b"),
            ("s3 s3 s3", "postgres://me:s3@db", "s3"),
        ] {
            let told = told(said, url);
            assert!(!told.contains(hidden) && told.contains('…'), "{url}: {told}");
        }
        // Without a password nothing is masked.
        for url in ["postgres://me:@db/x", "postgres://me@db/x", "host=db", ""] {
            assert!(told("as it is", url).contains("as it is"), "{url}");
        }
    }
}
