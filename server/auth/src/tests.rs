//! The token service as its clients meet it, on a clock that the tests move.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use quiver_database::Database;
use quiver_types::{Clock, Domain, Right, Rights, Services, Triple};
use serde_json::{Value, json};

use crate::*;

mod flows;
mod hostile;
mod outside;

const ISSUER: &str = "http://127.0.0.1:8800/realms/platform";
const NOW: i64 = 1_800_000_000_000;
const PASSWORD: &str = "correct horse battery";
const CLIENT_SECRET: &str = "a:b/c";

#[derive(Debug)]
struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> i64 {
        self.0.load(SeqCst)
    }
}

struct Fixture {
    auth: Auth,
    clock: Arc<TestClock>,
    pool: Database,
    key: String,
    accounts: Accounts,
    _dir: tempfile::TempDir,
}

/// All of this suite again: what holds of one database holds of the other.
#[test]
fn the_suite_holds_over_postgres() {
    quiver_testpg::run_again(&[], "the_suite_holds_over_postgres");
}

fn request() -> Request<'static> {
    Request { issuer: ISSUER, ip: Some(IpAddr::from([192, 0, 2, 7])) }
}

fn view(service: &str) -> Rights {
    [Triple::new(Right::View, None, Services::parse(service).unwrap())].into_iter().collect()
}

fn account(kind: AccountKind, id: &str, name: &str, hash: String) -> Account {
    Account {
        kind,
        id: id.to_owned(),
        name: name.to_owned(),
        email: Some(format!("{name}@example.org")),
        display_name: format!("The {name}"),
        enabled: true,
        must_change: false,
        hash: Some(Secret::new(hash)),
        old_hash: None,
    }
}

async fn open(pool: &Database, clock: &Arc<TestClock>, settings: AuthSettings, fetch: Option<Arc<dyn Fetch>>) -> Auth {
    let vault = Arc::new(MasterVault::new(&[7; 32], Arc::new(OsRandom)));
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Auth::open(settings, pool.clone(), vault, clock, Arc::new(OsRandom), fetch).await.unwrap()
}

async fn fixture() -> Fixture {
    fixture_with(AuthSettings::default(), None).await
}

async fn fixture_with(settings: AuthSettings, fetch: Option<Arc<dyn Fetch>>) -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let pool = Database::for_tests(&dir.path().join("auth.db"), quiver_testpg::given()).await.unwrap();
    let mut writing = pool.begin().await.unwrap();
    for (_, sql) in SCHEMA.steps {
        writing.apply(sql).await.unwrap();
    }
    writing.commit().await.unwrap();
    let clock = Arc::new(TestClock(AtomicI64::new(NOW)));
    let auth = open(&pool, &clock, settings, fetch).await;
    let hash = auth.passwords().hash(PASSWORD).await.unwrap();
    let key = api_key::make(&OsRandom);
    let user = |id: &str| (AccountKind::User, id.to_owned());
    let mut temporary = account(AccountKind::User, "u2", "newbie", hash.clone());
    temporary.must_change = true;
    let accounts = Accounts {
        accounts: vec![
            account(AccountKind::User, "u1", "ann", hash),
            temporary,
            account(AccountKind::Service, "s1", "agent", sha256_hex(CLIENT_SECRET.as_bytes())),
        ],
        keys: vec![Key {
            entity_id: "k1".to_owned(),
            key_id: api_key::id_of(&key).unwrap().to_owned(),
            hash: Secret::new(sha256_hex(key.as_bytes())),
            owner: user("u1"),
            rights: Some(view("cart*")),
            expires_ms: Some(NOW + 3_600_000),
            networks: vec!["192.0.2.0/24".to_owned()],
        }],
        grants: vec![
            Grant {
                to: BoundTo::Account(AccountKind::User, "u1".to_owned()),
                rights: view("cart"),
                role: "carts".to_owned(),
                expires_ms: None,
            },
            Grant {
                to: BoundTo::ExternalRole("ops".to_owned()),
                rights: view("ops"),
                role: "ops".to_owned(),
                expires_ms: None,
            },
        ],
    };
    let fx = Fixture { auth, clock, pool, key, accounts, _dir: dir };
    fx.publish();
    fx
}

impl Fixture {
    fn publish(&self) {
        self.auth.set_directory(Directory::new(self.accounts.clone()));
    }

    fn pass_s(&self, seconds: i64) {
        self.clock.0.fetch_add(seconds * 1000, SeqCst);
    }

    async fn token(&self, form: &str) -> Result<Value, OAuthError> {
        self.token_with(form, None).await
    }

    async fn token_with(&self, form: &str, authorization: Option<&str>) -> Result<Value, OAuthError> {
        let form = Form::parse(form.as_bytes())?;
        self.auth.token(&form, authorization.map(str::as_bytes), request()).await.map(|a| a.body)
    }

    async fn login(&self, more: &str) -> Value {
        let form = format!("grant_type=password&client_id=ui&username=ann&password=correct+horse+battery{more}");
        self.token(&form).await.unwrap()
    }

    async fn refresh(&self, token: &str, more: &str) -> Result<Value, OAuthError> {
        self.token(&format!("grant_type=refresh_token&client_id=ui&refresh_token={token}{more}")).await
    }

    async fn identify(&self, authorization: &str) -> Result<Identity, TokenError> {
        let shown = RequestCredentials::read([authorization.as_bytes()].into_iter(), None)?;
        self.auth.identify(&shown, request()).await
    }

    async fn bearer(&self, token: &Value) -> Result<Identity, TokenError> {
        self.identify(&format!("Bearer {}", token.as_str().unwrap())).await
    }
}

/// The claims of a token, unchecked.
fn claims(token: &Value) -> Value {
    use base64::Engine;
    let part = token.as_str().unwrap().split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

fn basic(text: &str) -> String {
    use base64::Engine;
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(text))
}
