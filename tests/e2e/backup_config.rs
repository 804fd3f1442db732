//! Configuration in backups: saved while it changes, restored completely into SQLite and PostgreSQL from either, and
//! refused where a restore must not happen.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use quiver_testpg::Postgres;
use quiver_tests::server::{Options, Server, binary, run};
use serde_json::{Value, json};

use crate::configuration::{families, numbered};
use crate::identity::{PASSWORD, bearer, login, made, user, with_password};
use crate::json_calls::call;

const RBAC: [&str; 5] = ["users", "groups", "roles", "bindings", "service-accounts"];

/// One installation: where it is, and what it is told.
struct Place {
    data: PathBuf,
    options: Options,
}

impl Place {
    fn new(data: PathBuf, url: Option<&str>) -> Self {
        let options = with_password().env("QUIVER_RESOURCES__DISCOVERY_INTERVAL", "1h");
        let options = url.iter().fold(options, |options, url| options.env("QUIVER_CONFIG__DATABASE_URL", url));
        Self { data, options }
    }

    fn key(&self) -> PathBuf {
        self.data.join("master-key")
    }

    /// Brings the master key of another installation, as an operator does.
    fn with_key_of(self, other: &Self) -> Self {
        std::fs::create_dir_all(&self.data).expect("a folder");
        std::fs::copy(other.key(), self.key()).expect("a key");
        self
    }

    async fn start(&self) -> (Server, String) {
        let server = Server::start(&self.data, &self.options).await;
        let admin = bearer(&login(&server, "admin", PASSWORD).await);
        (server, admin)
    }

    fn quiver(&self, words: &[&str]) -> Result<String, String> {
        let mut command = Command::new(binary());
        command.args(words).arg("--data").arg(&self.data);
        command.envs(self.options.env.iter().map(|(name, value)| (name, value)));
        match run(&mut command) {
            (Some(0), out, _) => Ok(out),
            (_, out, errors) => Err(format!("{out}{errors}")),
        }
    }

    fn restore(&self, from: &Path, more: &[&str]) -> Result<String, String> {
        self.quiver(&[&["restore", "--from", &from.display().to_string()], more].concat())
    }
}

async fn asked(server: &Server, who: &str, path: &str) -> Value {
    let answer = call(server, who, "GET", path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

/// Everything that can be seen of the configuration: entities with their versions, histories, and the audit log so far.
async fn seen(server: &Server, admin: &str, audit_until: Option<&str>) -> (Value, Vec<Value>) {
    let mut all = serde_json::Map::new();
    let paths = families().into_iter().map(|(path, _)| path.to_owned());
    for path in paths.chain(RBAC.map(|name| format!("/platform-api/rbac/{name}"))) {
        let list = asked(server, admin, &format!("{path}?limit=1000&sort=createdAt")).await;
        for entity in list["items"].as_array().expect("a list") {
            let Some(id) = entity["id"].as_str() else { continue };
            let one = call(server, admin, "GET", &format!("{path}/{id}"), &Value::Null).await;
            let etag = one.headers["etag"].to_str().expect("a text").to_owned();
            let history = asked(server, admin, &format!("{path}/{id}/history")).await;
            // The segments of whoever writes meanwhile are looked at elsewhere.
            if entity["key"].as_str().is_none_or(|key| !key.starts_with("moving")) {
                all.insert(format!("{path}/{id}"), json!([one.json(), etag, history]));
            }
        }
    }
    (Value::Object(all), audit(server, admin, audit_until).await)
}

/// All audit rows, oldest first, up to one of them.
async fn audit(server: &Server, admin: &str, until: Option<&str>) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = asked(server, admin, &format!("/platform-api/rbac/audit?limit=1000{cursor}")).await;
        rows.extend(page["items"].as_array().expect("a list").iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    rows.reverse();
    let end = until.and_then(|hash| rows.iter().position(|row| row["hash"] == hash));
    assert_eq!(end.is_some(), until.is_some(), "the last row that was saved is there");
    rows.truncate(end.map_or(rows.len(), |end| end + 1));
    rows
}

/// Fills a configuration with something of everything; gives an API key and the receiver with a secret.
async fn fill(server: &Server, admin: &str) -> (String, String) {
    for (path, body) in families() {
        for n in 0..2 {
            let answer = call(server, admin, "POST", path, &numbered(&body, n)).await;
            assert_eq!(answer.status, 201, "{path}: {}", answer.text());
            if n == 0 {
                let one = format!("{path}/{}", answer.json()["id"].as_str().expect("an id"));
                let patch = json!({"description": "changed", "labels": {"team": "shop"}});
                assert_eq!(call(server, admin, "PATCH", &one, &patch).await.status, 200, "{path}");
            }
        }
    }
    let hook = json!({"name": "pager", "webhook_configs": [{"url": "http://user:pass@192.0.2.1/x"}]});
    let receiver = call(server, admin, "POST", "/rulesapi/rulepolicy/receivers", &hook).await;
    assert_eq!(receiver.status, 201, "{}", receiver.text());
    let receiver = receiver.json()["id"].as_str().expect("an id").to_owned();
    let carol = user(server, admin, "carol", "viewer", json!(["cart"])).await;
    made(server, admin, "groups", json!({"name": "shop", "members": [carol["id"]]})).await;
    let agent = made(server, admin, "service-accounts", json!({"clientId": "agent"})).await;
    crate::identity::bind(server, admin, "serviceAccount", &agent["id"], "viewer", json!(["*"])).await;
    let keys = format!("service-accounts/{}/keys", agent["id"].as_str().expect("an id"));
    let key = made(server, admin, &keys, json!({"name": "k"})).await;
    (key["key"].as_str().expect("a key").to_owned(), receiver)
}

/// Changes the configuration until it is told to stop: segments with numbers, one after the other.
async fn change_on(server: &Server, admin: &str, stop: &AtomicBool, done: &AtomicUsize) {
    while !stop.load(SeqCst) {
        let n = done.load(SeqCst);
        let body = json!({"key": format!("moving{n}"), "name": format!("moving {n}"), "conditions": {}});
        let answer = call(server, admin, "POST", "/platform-api/segments", &body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        done.store(n + 1, SeqCst);
    }
}

/// What of the segments that were made meanwhile is there: the first ones, each whole.
async fn moving(server: &Server, admin: &str, least: usize, most: usize) {
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let path = format!("/platform-api/segments?limit=1000&sort=createdAt&filter=key%20sw%20%22moving%22{cursor}");
        let page = asked(server, admin, &path).await;
        for item in page["items"].as_array().expect("a list") {
            assert_eq!(item["key"], json!(format!("moving{count}")), "none lacks");
            count += 1;
        }
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert!((least..=most).contains(&count), "{count} of {least} to {most}");
    let rows = audit(server, admin, None).await;
    let told = rows.iter().filter(|row| row["entityName"].as_str().is_some_and(|name| name.starts_with("moving ")));
    assert_eq!(told.count(), count, "each with its audit row");
}

async fn round(dir: &Path, from: Option<&str>, to: Option<&str>) {
    let source = Place::new(dir.join("source"), from);
    let (server, admin) = source.start().await;
    let (key, receiver) = fill(&server, &admin).await;
    let rows = b"{\"_msg\":\"a\",\"service.name\":\"cart\"}\n".to_vec();
    let kind = [("content-type", "application/stream+json"), ("authorization", admin.as_str())];
    assert_eq!(server.post("/insert/jsonline?_stream_fields=service.name", &kind, rows).await.status, 200);
    let token = dir.join("token");
    std::fs::write(&token, admin.trim_start_matches("Bearer ")).expect("writable");
    let backups = dir.join("backups");
    let (stop, done) = (AtomicBool::new(false), AtomicUsize::new(0));
    let (least, most, out) = {
        let take = async {
            while done.load(SeqCst) < 5 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            let least = done.load(SeqCst);
            let (to, token) = (backups.display().to_string(), token.display().to_string());
            let words = ["backup", "--to", &to, "--server", &server.http, "--key-file", &token];
            let out = source.quiver(&words).expect("a backup");
            let most = done.load(SeqCst) + 1;
            stop.store(true, SeqCst);
            (least, most, out)
        };
        tokio::join!(take, change_on(&server, &admin, &stop, &done)).0
    };
    assert!(out.contains("configuration: "), "{out}");
    let copy = Place::new(dir.join("copy"), to).with_key_of(&source);
    let out = copy.restore(&backups, &[]).expect("restored");
    assert!(out.contains("configuration: ") && out.contains(" rows"), "{out}");
    let (restored, copied_admin) = copy.start().await;
    moving(&restored, &copied_admin, least, most).await;
    let (have, rows) = seen(&restored, &copied_admin, None).await;
    // What the login just now added is no part of the backup.
    let saved = rows.iter().rposition(|row| row["action"] != "LOGIN").expect("changes");
    let last = rows[saved]["hash"].as_str().expect("a hash").to_owned();
    let (want, wanted) = seen(&server, &admin, Some(&last)).await;
    assert_eq!(rows[..=saved], wanted[..], "the same audit log");
    assert_eq!(have, want);
    let verified = asked(&restored, &copied_admin, "/platform-api/rbac/audit/verify").await;
    assert_eq!(verified["sound"], true, "{verified}");
    // Passwords, keys and secrets are what they were.
    login(&restored, "carol", PASSWORD).await;
    let me = asked(&restored, &format!("Bearer {key}"), "/platform-api/rbac/me").await;
    assert_eq!(me["subject"]["type"], "serviceAccount", "{me}");
    let path = format!("/rulesapi/rulepolicy/receivers/{receiver}");
    let same = json!({"webhook_configs": [{"url": "http://user:pass@192.0.2.1/x"}]});
    let patched = call(&restored, &copied_admin, "PATCH", &path, &same).await;
    assert_eq!(patched.json()["version"], asked(&server, &admin, &path).await["version"], "{}", patched.text());
    assert_eq!(restored.stop(), Some(0));
    assert_eq!(server.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn comes_back_as_it_was_in_either_database() {
    let postgres = Postgres::start();
    let urls = [postgres.create("one"), postgres.create("two"), postgres.create("three"), postgres.create("four")];
    let pairs = [
        (None, None),
        (None, Some(urls[0].as_str())),
        (Some(urls[1].as_str()), Some(urls[2].as_str())),
        (Some(urls[3].as_str()), None),
    ];
    for (from, to) in pairs {
        let dir = tempfile::tempdir().expect("a folder");
        round(dir.path(), from, to).await;
    }
}

/// A stopped server with a configuration, and a backup of it.
async fn backed_up(dir: &Path) -> (Place, PathBuf, String) {
    let source = Place::new(dir.join("source"), None);
    let (server, admin) = source.start().await;
    let (_, receiver) = fill(&server, &admin).await;
    assert_eq!(server.stop(), Some(0));
    let backups = dir.join("backups");
    let out = source.quiver(&["backup", "--to", &backups.display().to_string()]).expect("a backup");
    assert!(out.contains("configuration: "), "{out}");
    (source, backups, receiver)
}

#[tokio::test(flavor = "multi_thread")]
async fn needs_the_master_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let (source, backups, receiver) = backed_up(dir.path()).await;
    let copy = Place::new(dir.path().join("copy"), None);
    let out = copy.restore(&backups, &[]).expect_err("no key");
    assert!(out.contains("--without-secrets") && out.contains("copy/master-key"), "{out}");
    std::fs::write(copy.key(), [7; 32]).expect("a key");
    let out = copy.restore(&backups, &[]).expect_err("another key");
    assert!(out.contains("the master key is another one"), "{out}");
    std::fs::remove_file(copy.key()).expect("a key");
    // Nothing of what was refused is there.
    let out = copy.restore(&backups, &["--without-secrets"]).expect("restored");
    assert!(out.contains("without what is encrypted"), "{out}");
    let (server, admin) = copy.start().await;
    login(&server, "carol", PASSWORD).await;
    let path = format!("/rulesapi/rulepolicy/receivers/{receiver}");
    let kept = asked(&server, &admin, &path).await;
    let body = json!({"name": "pager", "webhook_configs": kept["webhook_configs"]});
    let refused = call(&server, &admin, "PUT", &path, &body).await;
    assert_eq!((refused.status, &refused.json()["errors"][0]["code"]), (422, &json!("REQUIRED")), "{}", refused.text());
    let body = json!({"name": "pager", "webhook_configs": [{"url": "http://user:new@192.0.2.1/x"}]});
    assert_eq!(call(&server, &admin, "PUT", &path, &body).await.status, 200);
    assert_eq!(server.stop(), Some(0));
    // Telemetry alone: accounts begin anew.
    let alone = Place::new(dir.path().join("alone"), None);
    let out = alone.restore(&backups, &["--without-configuration"]).expect("restored");
    assert!(!out.contains("configuration"), "{out}");
    let (server, admin) = alone.start().await;
    assert_eq!(asked(&server, &admin, "/platform-api/rbac/users").await["items"].as_array().map(Vec::len), Some(1));
    assert_eq!(server.stop(), Some(0));
    drop(source);
}

#[tokio::test(flavor = "multi_thread")]
async fn goes_only_where_there_is_none_and_only_as_it_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let (source, backups, _) = backed_up(dir.path()).await;
    let folder = backups.join("_backup");
    let mut files = std::fs::read_dir(&folder).expect("a folder").map(|e| e.expect("an entry").path());
    let file = files.find(|path| path.extension().is_some_and(|e| e == "configuration")).expect("a file");
    let whole = std::fs::read(&file).expect("readable");
    let copy = Place::new(dir.path().join("copy"), None).with_key_of(&source);
    let mut bent = whole.clone();
    let middle = bent.len() / 2;
    bent[middle] ^= 1;
    std::fs::write(&file, &bent).expect("writable");
    let out = copy.restore(&backups, &[]).expect_err("a flipped bit");
    assert!(out.contains("is damaged"), "{out}");
    std::fs::write(&file, &whole).expect("writable");
    // Who could write to the backups, and made the checksum fit: the seal does not.
    let manifest = file.with_extension("json");
    let text = std::fs::read_to_string(&manifest).expect("readable");
    let forged = forged(&whole);
    std::fs::write(&file, &forged).expect("writable");
    let mut json: Value = serde_json::from_str(&text).expect("JSON");
    json["attached"]["configuration"]["bytes"] = json!(forged.len());
    json["attached"]["configuration"]["crc"] = json!(crc32c::crc32c(&forged));
    std::fs::write(&manifest, json.to_string()).expect("writable");
    let out = copy.restore(&backups, &[]).expect_err("a forged row");
    assert!(out.contains("its end does not fit"), "{out}");
    std::fs::write(&file, &whole).expect("writable");
    std::fs::write(&manifest, text).expect("writable");
    copy.restore(&backups, &[]).expect("restored after all that");
    // A database in which something is stays as it is.
    let postgres = Postgres::start();
    let url = postgres.create("used");
    let used = Place::new(dir.path().join("used"), Some(&url));
    let (server, _) = used.start().await;
    assert_eq!(server.stop(), Some(0));
    let other = Place::new(dir.path().join("other"), Some(&url)).with_key_of(&source);
    let out = other.restore(&backups, &[]).expect_err("a used database");
    assert!(out.contains("there is a configuration already"), "{out}");
    other.restore(&backups, &["--without-configuration"]).expect("beside it");
}

/// The file with another name in one of its rows.
fn forged(whole: &[u8]) -> Vec<u8> {
    let text = String::from_utf8(zstd::decode_all(whole).expect("zstd")).expect("text");
    let changed = text.replacen("carol", "mallo", 1);
    assert_ne!(changed, text);
    zstd::encode_all(changed.as_bytes(), 3).expect("memory")
}
