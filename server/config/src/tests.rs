//! The contract over all families, and the rules of access families.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::SeqCst};

use async_trait::async_trait;
use quiver_types::{Clock, Random, Rights, Triple, Vault};
use serde_json::{Map, Value, json};

use crate::families::{
    ADMIN_ROLE_ID, BINDINGS, CI_CLASSES, FAMILIES, GROUPS, KEYS, PROCESSES, ROLES, SAVED_VIEWS, SEGMENTS,
    SERVICE_ACCOUNTS, TRANSACTIONS, USERS,
};
use crate::*;

mod bulk_changes;
mod contract;
mod family_followers;
mod jobs;
mod large_families;
mod merge;
mod model;
mod pages;
mod patterns;
mod policy;
mod resources;
mod rights;
mod shared_database;

#[derive(Debug)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(SeqCst)
    }
}

#[derive(Debug)]
struct Counting(AtomicU64);

impl Random for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        let n = self.0.fetch_add(1, SeqCst).to_be_bytes();
        bytes.iter_mut().enumerate().for_each(|(i, b)| *b = n[i % 8]);
    }
}

/// Seals by turning bits around: enough to see that nothing rests as it was.
#[derive(Debug)]
struct Turned;

impl Vault for Turned {
    fn seal(&self, _place: &str, plain: &[u8]) -> Vec<u8> {
        plain.iter().map(|b| !b).collect()
    }

    fn open(&self, _place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
        Some(sealed.iter().map(|b| !b).collect())
    }
}

struct Hashing;

#[async_trait]
impl Sealer for Hashing {
    fn check(&self, _: &Family, field: &str, secret: &str, _: &Map<String, Value>) -> Option<FieldError> {
        (secret.len() < 3).then(|| FieldError::new(format!("/{field}"), "OUT_OF_RANGE", "too short"))
    }

    async fn seal(&self, _: &Family, _: &str, secret: &str) -> Result<String> {
        Ok(format!("hash of {}", secret.len()))
    }
}

struct Fixture {
    config: Config,
    clock: Arc<TestClock>,
    _dir: tempfile::TempDir,
}

const NOW: i64 = 1_800_000_000_000;

async fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(NOW)));
    let pool =
        quiver_database::Database::for_tests(&dir.path().join("config.db"), quiver_testpg::given()).await.unwrap();
    let random = Arc::new(Counting(AtomicU64::new(1)));
    let config = Config::open(pool, Arc::clone(&clock) as Arc<dyn Clock>, random, Arc::new(Turned), Arc::new(Hashing))
        .await
        .unwrap();
    Fixture { config, clock, _dir: dir }
}

/// All of this suite again: what holds of one database holds of the other.
#[test]
fn the_suite_holds_over_postgres() {
    quiver_testpg::run_again(&[], "the_suite_holds_over_postgres");
}

/// What is held in memory follows from what the process may have.
#[tokio::test]
async fn shares_of_memory() {
    let config = fixture().await.config;
    assert_eq!(config.share_of_memory(64 << 20), 64 << 20);
    assert_eq!(config.within(256 << 20).share_of_memory(64 << 20), 8 << 20);
}

fn map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        other => panic!("{other} is no object"),
    }
}

fn caller(triples: &[&str]) -> Caller {
    let rights: Rights = triples.iter().map(|t| Triple::of_json(&json!(t)).unwrap()).collect();
    Caller { rights, name: "tester".to_owned(), subject: "user:tester".to_owned(), kind: "user", ..Caller::system() }
}

impl Fixture {
    async fn op(&self, family: &'static Family, op: Op) -> Result<ChangeOutcome> {
        self.config.change(&Place::of(family), &Caller::system(), op, System::default(), ChangeMode::Apply).await
    }

    async fn create(&self, family: &'static Family, body: Value) -> Result<Entity> {
        let done = self.op(family, Op::Create { id: None, body: map(body) }).await?;
        Ok(done.after.expect("created"))
    }

    async fn list(&self, family: &'static Family, parameters: &[(&str, &str)]) -> Result<Page> {
        let parameters: Vec<(String, String)> =
            parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let query = ListQuery::parse(family, &parameters, &[])?;
        self.config.list(&Place::of(family), &query, &Caller::system()).await
    }

    async fn names(&self, family: &'static Family, parameters: &[(&str, &str)]) -> Vec<String> {
        let page = self.list(family, parameters).await.unwrap();
        page.items.iter().map(|i| i[family.title].as_str().unwrap().to_owned()).collect()
    }

    /// The items of an export.
    async fn exported(&self, place: &Place, query: &ListQuery, caller: &Caller) -> Vec<Value> {
        let mut form = Lines::default();
        let exported = self.config.export(place, query, caller, &mut form).await.unwrap();
        let items = items_of(&exported);
        assert_eq!(exported.entities(), items.len());
        items
    }

    /// An administrator, so that there is one that may stay.
    async fn admin(&self) -> Entity {
        let user = self.create(&USERS, json!({"username": "admin", "password": "secret"})).await.unwrap();
        let subject = json!({"type": "user", "id": user.id});
        self.create(&BINDINGS, json!({"subject": subject, "roleId": ADMIN_ROLE_ID})).await.unwrap();
        user
    }
}

/// Writes exports as lines of JSON.
struct Lines {
    /// Bytes that may be held, and most that were.
    room: usize,
    most: usize,
}

impl Default for Lines {
    fn default() -> Self {
        Self { room: usize::MAX, most: 0 }
    }
}

impl ExportWriter for Lines {
    fn write(&mut self, entity: Map<String, Value>, out: &mut String) {
        out.push_str(&Value::Object(entity).to_string());
        out.push('\n');
    }

    fn hold(&mut self, bytes: usize) -> Result<()> {
        self.most = self.most.max(bytes);
        if bytes > self.room { Err(Problem::new(ProblemKind::Busy, "STORE_BUSY", "no room")) } else { Ok(()) }
    }
}

/// The items that [`Lines`] wrote.
fn items_of(exported: &CompressedExport) -> Vec<Value> {
    let texts = (0..exported.pieces()).flat_map(|at| exported.piece(at).unwrap());
    let text = String::from_utf8(texts.collect()).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn delete(id: &str) -> Op {
    Op::Delete { id: id.to_owned(), condition: Condition::None }
}

fn patch(id: &str, patch: Value) -> Op {
    Op::Patch { id: id.to_owned(), patch: map(patch), condition: Condition::None }
}
