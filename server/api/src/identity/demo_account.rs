//! The account of the demo: a service account that reads and writes telemetry, with its API key in a file for whoever
//! tries the demo. It is authenticated like any other caller.

use std::io::Write;
use std::path::{Path, PathBuf};

use futures::future::BoxFuture;
use quiver_auth::{OsRandom, Request, RequestCredentials, Secret, api_key, sha256_hex};
use quiver_config::families::{BINDINGS, INGEST_ROLE_ID, KEYS, SERVICE_ACCOUNTS, VIEWER_ROLE_ID};
use quiver_config::{Caller, ChangeMode, Condition, ListQuery, Op, Place, Problem, Result, System};
use serde_json::{Map, Value, json};

use super::Identities;

/// Its `clientId`, and the name of its key.
const NAME: &str = "demo";
/// The file in the data directory.
const FILE: &str = "demo-key";

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

impl Identities {
    /// Gives the demo's API key and the file that holds it; creates account, role bindings and key if they are
    /// missing.
    ///
    /// # Errors
    /// When the database is unreachable, or the file cannot be written.
    pub fn demo_key(&self) -> BoxFuture<'_, Result<(Secret, PathBuf)>> {
        Box::pin(async move {
            let path = self.data.join(FILE);
            if let Ok(text) = quiver_files::read_text(&path, quiver_files::SECRET_BYTES_MAX) {
                let shown = RequestCredentials::read([format!("Bearer {}", text.trim()).as_bytes()].into_iter(), None);
                let request = Request { issuer: &self.issuer, ip: None };
                if let Ok(shown @ RequestCredentials::ApiKey(_)) = shown
                    && self.auth.identify(&shown, request).await.is_ok()
                {
                    return Ok((Secret::new(text.trim()), path));
                }
            }
            let account = self.demo_account().await?;
            let key = self.new_key(&account).await?;
            write_key(&path, key.expose()).map_err(|e| Problem::internal(format!("`{}`: {e}", path.display())))?;
            self.refresh().await?;
            Ok((key, path))
        })
    }

    /// The id of the first entity whose field has this value.
    async fn id_of(&self, place: &Place, field: &str, value: &str) -> Result<Option<String>> {
        let query = ListQuery::parse(place.family, &[(field.to_owned(), value.to_owned())], &[])?;
        let found = self.config.list(place, &query, &Caller::system()).await?;
        Ok(found.items.first().and_then(|item| item.get("id")).and_then(Value::as_str).map(str::to_owned))
    }

    async fn demo_account(&self) -> Result<String> {
        let place = Place::of(&SERVICE_ACCOUNTS);
        let id = if let Some(id) = self.id_of(&place, "clientId", NAME).await? {
            id
        } else {
            // A random secret that nobody learns: the account only authenticates with its key.
            let secret = api_key::make_secret(&OsRandom);
            let mut system = System::default();
            system.sealed.insert("secret".to_owned(), json!(sha256_hex(secret.as_bytes())));
            let op = Op::Create { id: None, body: map(json!({"clientId": NAME, "description": "quiver demo"})) };
            let made = self.config.change(&place, &Caller::system(), op, system, ChangeMode::Apply).await?;
            made.after.map(|entity| entity.id).unwrap_or_default()
        };
        for role in [VIEWER_ROLE_ID, INGEST_ROLE_ID] {
            let body = map(json!({"subject": {"type": "serviceAccount", "id": id}, "roleId": role}));
            let op = Op::Create { id: None, body };
            let bound = self
                .config
                .change(&Place::of(&BINDINGS), &Caller::system(), op, System::default(), ChangeMode::Apply)
                .await;
            match bound {
                Err(problem) if problem.code == "DUPLICATE" => {}
                bound => drop(bound?),
            }
        }
        Ok(id)
    }

    /// Makes a key that replaces the former one, whose file is lost.
    async fn new_key(&self, account: &str) -> Result<Secret> {
        let place = Place { family: &KEYS, owner: format!("rbac/service-accounts/{account}") };
        if let Some(id) = self.id_of(&place, "name", NAME).await? {
            let op = Op::Delete { id, condition: Condition::None };
            self.config.change(&place, &Caller::system(), op, System::default(), ChangeMode::Apply).await?;
        }
        let key = api_key::make(&OsRandom);
        let mut system = System::default();
        system.body.insert("keyId".to_owned(), json!(api_key::id_of(&key).unwrap_or_default()));
        system.sealed.insert("key".to_owned(), json!(sha256_hex(key.as_bytes())));
        let op = Op::Create { id: None, body: map(json!({"name": NAME})) };
        self.config.change(&place, &Caller::system(), op, system, ChangeMode::Apply).await?;
        Ok(Secret::new(key))
    }
}

fn write_key(path: &Path, key: &str) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt;
    let _ = std::fs::remove_file(path);
    let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{key}")?;
    file.sync_all()
}
