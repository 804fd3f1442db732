//! What it costs to say who asks: by a token that was seen before (goal: 5 µs) and one that was not (goal: 80 µs), by a
//! key, and once more while a query runs; and what it may see of a domain. What all of it adds to whole requests is in
//! `platform.py`.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use quiver_auth::{
    Account, AccountKind, Accounts, Auth, AuthSettings, BoundTo, Directory, Form, Grant, Identity, Key, MasterVault,
    OsRandom, Request, RequestCredentials, SCHEMA, Secret, api_key, sha256_hex,
};
use quiver_benches::cpu;
use quiver_database::Database;
use quiver_types::{Domain, Random, Right, Rights, Services, SystemClock, Triple};
use tokio::runtime::Runtime;

const ISSUER: &str = "http://127.0.0.1:8800/realms/platform";
const REQUEST: Request<'static> = Request { issuer: ISSUER, ip: None };
const SECRET: &str = "a secret";
/// Tokens that are checked at once, each for the first time.
const TOKENS: usize = 200;
/// Services that the account may see, each by a triple of its own.
const SERVICES: usize = 50;

struct World {
    runtime: Runtime,
    database: Database,
    accounts: Accounts,
    key: String,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let dir = tempfile::tempdir().expect("a folder");
        let database = runtime.block_on(async {
            let database = Database::sqlite(&dir.path().join("auth.db")).await.expect("a database");
            let mut writing = database.begin().await.expect("a transaction");
            for (_, sql) in SCHEMA.steps {
                writing.apply(sql).await.expect("a table");
            }
            writing.commit().await.expect("committed");
            database
        });
        let key = api_key::make(&OsRandom);
        let accounts = accounts(&key);
        Self { runtime, database, accounts, key, _dir: dir }
    }

    /// A token service that has seen no token yet; all of them sign with the same keys.
    fn auth(&self) -> Auth {
        let random: Arc<dyn Random> = Arc::new(OsRandom);
        let vault = Arc::new(MasterVault::new(&[7; 32], Arc::clone(&random)));
        let settings = AuthSettings::default();
        let opened = Auth::open(settings, self.database.clone(), vault, Arc::new(SystemClock), random, None);
        let auth = self.runtime.block_on(opened).expect("a token service");
        auth.set_directory(Directory::new(self.accounts.clone()));
        auth
    }

    fn token(&self, auth: &Auth) -> RequestCredentials {
        let text = format!("grant_type=client_credentials&client_id=agent&client_secret={}", SECRET.replace(' ', "+"));
        let form = Form::parse(text.as_bytes()).expect("a form");
        let answer = self.runtime.block_on(auth.token(&form, None, REQUEST)).expect("a token");
        let token = answer.body["access_token"].as_str().expect("a text").to_owned();
        shown(&format!("Bearer {token}"))
    }

    fn identify(&self, auth: &Auth, shown: &RequestCredentials) -> Identity {
        self.runtime.block_on(auth.identify(shown, REQUEST)).expect("let in")
    }
}

fn shown(authorization: &str) -> RequestCredentials {
    RequestCredentials::read([authorization.as_bytes()].into_iter(), None).expect("one header")
}

/// One account that may see some services in each domain, and its key.
fn accounts(key: &str) -> Accounts {
    let services = (0..SERVICES).filter_map(|n| Services::parse(&format!("service-{n}")));
    let rights: Rights = services.map(|service| Triple::new(Right::View, None, service)).collect();
    let owner = (AccountKind::Service, "s1".to_owned());
    let grant =
        Grant { to: BoundTo::Account(owner.0, owner.1.clone()), rights, role: "viewer".to_owned(), expires_ms: None };
    let account = Account {
        kind: owner.0,
        id: owner.1.clone(),
        name: "agent".to_owned(),
        email: None,
        display_name: String::new(),
        enabled: true,
        must_change: false,
        hash: Some(Secret::new(sha256_hex(SECRET.as_bytes()))),
        old_hash: None,
    };
    let key = Key {
        entity_id: "k1".to_owned(),
        key_id: api_key::id_of(key).expect("a key").to_owned(),
        hash: Secret::new(sha256_hex(key.as_bytes())),
        owner,
        rights: None,
        expires_ms: None,
        networks: Vec::new(),
    };
    Accounts { accounts: vec![account], keys: vec![key], grants: vec![grant] }
}

fn bench(c: &mut Criterion) {
    let world = World::new();
    let auth = world.auth();
    let tokens: Vec<RequestCredentials> = (0..TOKENS).map(|_| world.token(&auth)).collect();
    let all = |auth: Auth| {
        for token in &tokens {
            drop(black_box(world.identify(&auth, token)));
        }
        auth
    };
    let mut group = c.benchmark_group("access");
    group.throughput(Throughput::Elements(TOKENS as u64));
    group.bench_function("tokens_unseen", |b| b.iter_batched(|| world.auth(), all, BatchSize::PerIteration));
    group.throughput(Throughput::Elements(1));
    let (token, key) = (&tokens[0], shown(&format!("Bearer {}", world.key)));
    group.bench_function("token_seen", |b| b.iter(|| world.identify(&auth, token)));
    group.bench_function("key", |b| b.iter(|| world.identify(&auth, &key)));
    let identity = world.identify(&auth, token);
    group.bench_function("renewed", |b| b.iter(|| auth.renewed(&identity)));
    group.bench_function("rights_of_a_domain", |b| b.iter(|| identity.access(Domain::Logs)));
    group.finish();
    cpu::report("check of a token that was seen, a thousand times", 200, || {
        (0..1_000).for_each(|_| drop(black_box(world.identify(&auth, token))));
    });
    let fresh: Vec<Auth> = (0..20).map(|_| world.auth()).collect();
    let mut fresh = fresh.into_iter();
    cpu::report("check of two hundred tokens that were not", 20, || {
        let auth = fresh.next().expect("one for each run");
        drop(black_box(all(auth)));
    });
}

criterion_group!(benches, bench);
criterion_main!(benches);
