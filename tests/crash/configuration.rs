//! Kills during changes of configuration and identity, over SQLite: entity, unique values, references, version and audit
//! row are stored together or not at all; acknowledged changes are there; sessions and signing keys are intact.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use quiver_database::{Database, statement};
use quiver_tests::load::{seed, soak};
use quiver_tests::server::{Answer, Options, Server};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Map, Value, json};

use crate::arena::{SIGABRT, SIGKILL};

const SERVICE: &str = "00000000-0000-7000-8000-000000000101";
const CALLS: &str = "00000000-0000-7000-8000-000000000202";
const PASSWORD: &str = "correct horse battery";
const TOKEN: &str = "/realms/platform/protocol/openid-connect/token";
const RESOURCES: &str = "/platform-api/resources";
const RELATIONSHIPS: &str = "/platform-api/resource-relationships";
const GROUPS: &str = "/platform-api/rbac/groups";
const ACCOUNTS: &str = "/platform-api/rbac/service-accounts";

fn options() -> Options {
    // Nothing but us changes configuration.
    Options::default().env("QUIVER_RESOURCES__DISCOVERY_INTERVAL", "1h").env("QUIVER_LOG__FILTER", "off")
}

/// What was answered: entities by path, as they were last; those that were deleted.
#[derive(Default)]
struct Told {
    there: BTreeMap<String, Value>,
    gone: Vec<String>,
    /// What was being deleted when nobody answered any more.
    doubt: Option<String>,
    count: usize,
}

impl Told {
    /// What goes along is no matter of the answer, so it is known no more; nor is who named it.
    fn deleted(&mut self, path: String) {
        self.there.remove(&path);
        let id = path.rsplit('/').next().unwrap_or_default().to_owned();
        self.there.retain(|_, entity| !entity.to_string().contains(&id));
        self.gone.push(path);
    }
}

struct Client<'a> {
    server: &'a Server,
    rng: &'a mut SmallRng,
    told: &'a mut Told,
}

async fn ask(server: &Server, method: &str, path: &str, body: &Value) -> Option<Answer> {
    static CLIENT: LazyLock<reqwest::Client> = LazyLock::new(reqwest::Client::new);
    let request = CLIENT.request(method.parse().expect("a method"), server.url(path));
    let request = request.header("content-type", "application/json").body(body.to_string());
    let response = request.send().await.ok()?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    Some(Answer { status, headers, body: response.bytes().await.ok()?.to_vec() })
}

impl Client<'_> {
    /// One of those that are there, below a path.
    fn any(&mut self, path: &str) -> Option<String> {
        let below: Vec<&String> = self.told.there.keys().filter(|one| one.starts_with(path)).collect();
        (!below.is_empty()).then(|| below[self.rng.random_range(0..below.len())].clone())
    }

    fn id(&mut self, path: &str) -> Option<Value> {
        let one = self.any(path)?;
        Some(self.told.there[&one]["id"].clone())
    }

    /// Makes a change; none: the server is gone.
    async fn step(&mut self) -> Option<()> {
        self.told.count += 1;
        let n = self.told.count;
        let create = |path: &str, body: Value| ("POST", path.to_owned(), body);
        let patch = json!({"description": format!("change {n}"), "labels": {"n": n.to_string()}});
        let dice = self.rng.random_range(0..10);
        let (method, path, body) = match dice {
            0..=3 => create(RESOURCES, json!({"typeId": SERVICE, "attributes": {"service.name": format!("s{n}")}})),
            4 | 5 => match (self.id(RESOURCES), self.id(RESOURCES)) {
                (Some(from), Some(to)) if from != to => {
                    create(RELATIONSHIPS, json!({"typeId": CALLS, "sourceId": from, "targetId": to}))
                }
                _ => return Some(()),
            },
            6 => create(ACCOUNTS, json!({"clientId": format!("agent-{n}")})),
            7 => {
                let members: Vec<Value> = self.id(ACCOUNTS).into_iter().collect();
                create(GROUPS, json!({"name": format!("group {n}"), "members": members}))
            }
            8 => match self.any("/") {
                Some(one) => ("PATCH", one, patch),
                None => return Some(()),
            },
            _ => match self.any(if n.is_multiple_of(2) { RESOURCES } else { ACCOUNTS }) {
                Some(one) => ("DELETE", one, Value::Null),
                None => return Some(()),
            },
        };
        self.told.doubt = (method == "DELETE").then(|| path.clone());
        let answer = ask(self.server, method, &path, &body).await?;
        self.told.doubt = None;
        match (method, answer.status) {
            ("POST", 201) => {
                let entity = answer.json();
                self.told.there.insert(format!("{path}/{}", entity["id"].as_str().expect("an id")), entity);
            }
            ("PATCH", 200) => {
                self.told.there.insert(path, answer.json());
            }
            ("DELETE", 204) => self.told.deleted(path),
            // The same relationship twice; one that went along with another.
            (_, 409 | 404) => {}
            (_, status) => panic!("{method} {path} {body}: {status} {}", answer.text()),
        }
        Some(())
    }
}

/// The rows of an entity that must agree.
#[derive(Default)]
struct Rows {
    body: Option<(i64, Value)>,
    keys: Vec<(String, String)>,
    versions: Vec<(i64, String, Value)>,
    audit: Vec<Map<String, Value>>,
}

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

/// Reads all tables, and compares row with row.
async fn compare_rows(data: &Path, when: &str) {
    let base = Database::sqlite(&data.join("config.db")).await.expect("a database");
    let mut all: BTreeMap<(String, String), Rows> = BTreeMap::new();
    let read = async |sql: &'static str| statement(sql).fetch_all(&base).await.expect("rows");
    for row in read("SELECT family, id, version, body FROM entity").await {
        let text = |at| row.try_get::<String>(at).expect("a text");
        all.entry((text(0), text(1))).or_default().body = Some((row.try_get(2).expect("a number"), parsed(&text(3))));
    }
    for row in read("SELECT family, id, fields, value FROM entity_key").await {
        let text = |at| row.try_get::<String>(at).expect("a text");
        all.entry((text(0), text(1))).or_default().keys.push((text(2), text(3)));
    }
    for row in read("SELECT family, id, version, action, body FROM entity_version ORDER BY version").await {
        let text = |at| row.try_get::<String>(at).expect("a text");
        let version = (row.try_get(2).expect("a number"), text(3), parsed(&text(4)));
        all.entry((text(0), text(1))).or_default().versions.push(version);
    }
    for row in read("SELECT row FROM audit ORDER BY number").await {
        let Value::Object(map) = parsed(&row.try_get::<String>(0).expect("a text")) else { panic!("{when}: a row") };
        let of = |key: &str| map[key].as_str().unwrap_or_default().to_owned();
        let changed = ["CREATE", "UPDATE", "DELETE", "RESTORE"].contains(&of("action").as_str());
        if changed && of("outcome") == "ok" {
            all.entry((of("family"), of("entityId"))).or_default().audit.push(map);
        }
    }
    for ((family, id), rows) in &all {
        rows.agree(&format!("{when}: {family} {id}"));
    }
    let links = "SELECT l.family, l.id, l.to_family, l.to_id FROM entity_link l WHERE \
        NOT EXISTS (SELECT 1 FROM entity e WHERE e.family = l.family AND e.id = l.id) OR \
        NOT EXISTS (SELECT 1 FROM entity e WHERE e.family = l.to_family AND e.id = l.to_id)";
    assert_eq!(read(links).await.len(), 0, "{when}: references of and to what is there");
    let ends = "SELECT (SELECT number FROM audit_end) - (SELECT max(number) FROM audit)";
    assert_eq!(read(ends).await[0].try_get::<i64>(0).expect("a number"), 0, "{when}");
    base.close().await;
}

impl Rows {
    fn agree(&self, what: &str) {
        let changes: Vec<&str> = self.versions.iter().map(|(_, action, _)| action.as_str()).collect();
        let told: Vec<&str> = self.audit.iter().map(|row| row["action"].as_str().unwrap_or_default()).collect();
        assert_eq!(changes, told, "{what}: a version for each audit row");
        let (last, action, body) = self.versions.last().unwrap_or_else(|| panic!("{what}: it never was"));
        let after = &self.audit.last().expect("as many")["after"];
        if let Some((version, present)) = &self.body {
            assert_eq!((version, present), (last, body), "{what}: the last version is the present one");
            assert_eq!(after["version"], json!(version), "{what}: and that of the audit row");
            for (fields, value) in &self.keys {
                let values: Vec<&Value> = fields.split(',').map(|field| &present[field]).collect();
                assert_eq!(parsed(value), json!(values), "{what}: what it alone has");
            }
        } else {
            assert_eq!((action.as_str(), after), ("DELETE", &Value::Null), "{what}");
            assert!(self.keys.is_empty(), "{what}: what is gone has nothing");
        }
    }
}

/// Everything that was answered is there.
async fn compare_told(server: &Server, told: &mut Told, when: &str) {
    if let Some(path) = told.doubt.take()
        && server.get(&path).await.status == 404
    {
        told.deleted(path);
    }
    for (path, entity) in &told.there {
        let answer = server.get(path).await;
        assert_eq!(answer.status, 200, "{when}: {path}: {}", answer.text());
        let (have, want) = (answer.json()["version"].as_i64(), entity["version"].as_i64());
        assert!(have >= want, "{when}: {path}: {have:?} after {want:?}");
    }
    for path in &told.gone {
        assert_eq!(server.get(path).await.status, 404, "{when}: {path}");
    }
    let verified = server.get("/platform-api/rbac/audit/verify").await.json();
    assert_eq!(verified["sound"], json!(true), "{when}: {verified}");
}

/// Lets the server die at a point, or by a signal after a while; gives how.
async fn die(data: &Path, point: Option<&str>, rng: &mut SmallRng, told: &mut Told) -> Option<i32> {
    let rare = point == Some("config.in-cascade");
    let hit = rng.random_range(1..if rare { 3 } else { 25 });
    let when = format!("{point:?} {hit}");
    let options = point.iter().fold(options(), |o, point| o.env("QUIVER_FAILPOINT", format!("{point}:{hit}")));
    let patience = Duration::from_millis(if point.is_some() { 30_000 } else { rng.random_range(50..400) });
    let Some(mut server) = Server::spawn(data, &options) else { return Some(SIGABRT) };
    let began = Instant::now();
    while ask(&server, "GET", "/health/ready", &Value::Null).await.is_none_or(|answer| answer.status != 200) {
        // At its start it puts in what is built in, and may die there.
        if !server.runs() {
            return server.ended().signal();
        }
        assert!(began.elapsed() < Duration::from_mins(5), "{when}: it does not start");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let killer = tokio::spawn({
        let pid = server.pid();
        async move {
            tokio::time::sleep(patience).await;
            let _ = std::process::Command::new("kill").args(["-KILL", &pid.to_string()]).status();
        }
    });
    while (Client { server: &server, rng, told }).step().await.is_some() {}
    let died = server.ended().signal();
    killer.abort();
    died
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_whole_or_not_there() {
    let seed = seed("a_change_is_whole_or_not_there");
    let mut rng = SmallRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().expect("a folder");
    let mut told = Told::default();
    // First of all, so that the points of the next starts lie in changes and not in what is built in.
    assert_eq!(Server::start(dir.path(), &options()).await.stop(), Some(0));
    let points = quiver_config::failpoint::NAMES.iter().map(|point| Some(*point)).chain([None, None]);
    let mut aborted = 0;
    for round in 0..if soak() { 20 } else { 1 } {
        for point in points.clone() {
            let signal = die(dir.path(), point, &mut rng, &mut told).await;
            let when = format!("seed {seed}, round {round}, {point:?}");
            assert!(matches!(signal, Some(SIGABRT | SIGKILL)), "{when}: {signal:?}");
            aborted += usize::from(signal == Some(SIGABRT));
            compare_rows(dir.path(), &when).await;
            let server = Server::start(dir.path(), &options()).await;
            compare_told(&server, &mut told, &when).await;
            server.kill();
        }
    }
    assert!(aborted >= quiver_config::failpoint::NAMES.len() - 1, "{aborted} kills at points");
    assert!(told.there.len() > 10, "{} entities", told.there.len());
}

fn with_accounts() -> Options {
    // The address of the next start is another one; tokens are good for both.
    let options = options().args(&["--rbac", "on"]).env("QUIVER_AUTH__PUBLIC_URL", "http://quiver.example");
    options.env("QUIVER_ADMIN_PASSWORD", PASSWORD)
}

/// Asks for tokens; none: the server is gone.
async fn tokens(server: &Server, form: &str) -> Option<(u16, Value)> {
    let kind = [("content-type", "application/x-www-form-urlencoded")];
    let answer = server.try_post(TOKEN, &kind, form.as_bytes().to_vec()).await.ok()?;
    Some((answer.status, serde_json::from_slice(&answer.body).unwrap_or_default()))
}

fn login() -> String {
    format!("grant_type=password&client_id=ui&username=admin&password={}", PASSWORD.replace(' ', "+"))
}

async fn keys(server: &Server) -> Vec<Value> {
    let jwks = server.get("/realms/platform/protocol/openid-connect/certs").await.json();
    let mut kids: Vec<Value> = jwks["keys"].as_array().expect("keys").iter().map(|key| key["kid"].clone()).collect();
    kids.sort_by_key(Value::to_string);
    kids
}

/// Logs in, refreshes, logs out until the server dies; gives the last refresh token that was answered.
async fn use_sessions(server: &Server) -> Option<String> {
    let mut last = None;
    loop {
        let Some((status, token)) = tokens(server, &login()).await else { return last };
        assert_eq!(status, 200, "{token}");
        last = token["refresh_token"].as_str().map(str::to_owned);
        for _ in 0..3 {
            let refresh = format!("grant_type=refresh_token&client_id=ui&refresh_token={}", last.clone()?);
            let Some((status, token)) = tokens(server, &refresh).await else { return last };
            assert_eq!(status, 200, "{token}");
            last = token["refresh_token"].as_str().map(str::to_owned);
        }
        let kind = [("content-type", "application/x-www-form-urlencoded")];
        let form = format!("client_id=ui&refresh_token={}", last.clone()?).into_bytes();
        let logout = "/realms/platform/protocol/openid-connect/logout";
        // What is being ended when the server dies is either.
        if server.try_post(logout, &kind, form).await.is_err() {
            return None;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_keys_are_whole() {
    let dir = tempfile::tempdir().expect("a folder");
    for point in ["auth.before-session:2", "auth.after-session:2", "auth.after-refresh:5", "auth.after-end:1"] {
        let armed = with_accounts().env("QUIVER_FAILPOINT", point);
        let mut server = Server::start(dir.path(), &armed).await;
        let last = use_sessions(&server).await;
        assert_eq!(server.ended().signal(), Some(SIGABRT), "{point}");
        let server = Server::start(dir.path(), &with_accounts()).await;
        if let Some(last) = last {
            // The one that was answered is good, or its successor is and it is taken once more.
            let refresh = format!("grant_type=refresh_token&client_id=ui&refresh_token={last}");
            let (status, token) = tokens(&server, &refresh).await.expect("it lives");
            let over = point.starts_with("auth.before-session") || point.starts_with("auth.after-session");
            assert_eq!(status, if over { 400 } else { 200 }, "{point}: {token}");
        }
        let (status, token) = tokens(&server, &login()).await.expect("it lives");
        assert_eq!(status, 200, "{point}: {token}");
        server.kill();
    }
    for (point, turned) in [("auth.in-rotation", false), ("auth.after-rotation", true)] {
        let mut server = Server::start(dir.path(), &with_accounts().env("QUIVER_FAILPOINT", point)).await;
        let before = keys(&server).await;
        let (_, token) = tokens(&server, &login()).await.expect("it lives");
        let bearer = format!("Bearer {}", token["access_token"].as_str().expect("a token"));
        let rotate = "/platform-api/rbac/keys/rotate?revokeOld=true";
        assert!(server.try_post(rotate, &[("authorization", &bearer)], Vec::new()).await.is_err(), "{point}");
        assert_eq!(server.ended().signal(), Some(SIGABRT), "{point}");
        let server = Server::start(dir.path(), &with_accounts()).await;
        let me = server.get_as("/platform-api/rbac/me", &[("authorization", &bearer)]).await;
        assert_eq!((me.status == 401, keys(&server).await == before), (turned, !turned), "{point}: {}", me.text());
        server.kill();
    }
}
