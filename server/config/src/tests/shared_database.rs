//! Several servers over one database, as two openings of the same configuration.

use quiver_database::Database;

use super::*;
use crate::families::{RESOURCES, SERVICE_TYPE_ID};

async fn open(url: &str, clock: &Arc<TestClock>, seed: u64) -> Config {
    let base = Database::postgres(url).await.expect("a database");
    let random = Arc::new(Counting(AtomicU64::new(seed)));
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Config::open(base, clock, random, Arc::new(Turned), Arc::new(Hashing)).await.expect("opened")
}

async fn create(config: &Config, family: &'static Family, body: Value) -> Result<Entity> {
    let op = Op::Create { id: None, body: map(body) };
    let done = config.change(&Place::of(family), &Caller::system(), op, System::default(), ChangeMode::Apply).await?;
    Ok(done.after.expect("an entity"))
}

/// Whether the suite runs again over PostgreSQL. These tests have servers of their own either way.
fn is_repeated() -> bool {
    quiver_testpg::given().is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_servers_over_one_database() {
    if is_repeated() {
        return;
    }
    let server = quiver_testpg::Postgres::start();
    let url = server.create("shared");
    let clock = Arc::new(TestClock(AtomicI64::new(NOW)));
    // Both start at once: the tables are made by one.
    let (a, b) = tokio::join!(open(&url, &clock, 1), open(&url, &clock, 1 << 40));
    let body = json!({"key": "s", "name": "s", "visibility": "shared", "conditions": {}});
    let segment = create(&a, &SEGMENTS, body).await.unwrap();
    let mut changes = b.watch();
    b.synchronize().await.unwrap();
    assert!(changes.has_changed().unwrap());
    assert_eq!((b.revision(), *changes.borrow_and_update()), (a.revision(), a.revision()));
    // What one notes of resources the other knows, too, and takes for no change.
    let seen = b.state();
    a.seen(&[ResourceSighting { id: segment.id.clone(), last_ms: None, health: "ok" }]).await.unwrap();
    b.synchronize().await.unwrap();
    assert!(b.state() != seen && b.state() == a.state() && !changes.has_changed().unwrap());
    for round in 1..=30_i64 {
        let patch = |config: Config, n: i64| {
            let patch = map(json!({"description": format!("{round} {n}")}));
            let op = Op::Patch { id: segment.id.clone(), patch, condition: Condition::Versions(vec![round]) };
            async move {
                config.change(&Place::of(&SEGMENTS), &Caller::system(), op, System::default(), ChangeMode::Apply).await
            }
        };
        let (one, two) = tokio::join!(tokio::spawn(patch(a.clone(), 1)), tokio::spawn(patch(b.clone(), 2)));
        let (one, two) = (one.unwrap(), two.unwrap());
        let lost = [&one, &two].into_iter().filter_map(|done| done.as_ref().err()).collect::<Vec<_>>();
        assert_eq!(lost.len(), 1, "round {round}: {one:?} {two:?}");
        assert_eq!(lost[0].code, "VERSION_CONFLICT");
    }
    // Unique over both, and rows of all tables agree.
    let service = |n: usize| json!({"typeId": SERVICE_TYPE_ID, "attributes": {"service.name": format!("s{n}")}});
    for n in 0..20 {
        let both = tokio::join!(create(&a, &RESOURCES, service(n)), create(&b, &RESOURCES, service(n)));
        assert_eq!([both.0, both.1].iter().filter(|r| matches!(r, Err(p) if p.code == "DUPLICATE")).count(), 1);
    }
    let verified = b.audit_verify().await.unwrap();
    assert_eq!(verified.broken_at, None);
    let history = b.history(&Place::of(&SEGMENTS), &segment.id, &Caller::system()).await.unwrap();
    assert_eq!(history["items"].as_array().unwrap().len(), 31);
    let query = ListQuery::parse(&RESOURCES, &[("sort".to_owned(), "-key".to_owned())], &[]).unwrap();
    let page = b.list(&Place::of(&RESOURCES), &query, &Caller::system()).await.unwrap();
    assert_eq!((page.items.len(), &page.items[0]["key"]), (20, &json!("s9")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_gone_is_busy() {
    if is_repeated() {
        return;
    }
    let mut server = quiver_testpg::Postgres::start();
    let clock = Arc::new(TestClock(AtomicI64::new(NOW)));
    let config = open(&server.create("gone"), &clock, 1).await;
    let body = |n: usize| json!({"key": format!("s{n}"), "name": format!("s{n}"), "conditions": {}});
    create(&config, &SEGMENTS, body(1)).await.unwrap();
    server.kill();
    assert_eq!(create(&config, &SEGMENTS, body(2)).await.unwrap_err().code, "STORE_BUSY");
    assert_eq!(config.all(&SEGMENTS).await.unwrap_err().code, "STORE_BUSY");
    assert_eq!(config.synchronize().await.unwrap_err().code, "STORE_BUSY");
    clock.0.fetch_add(3_600_001, SeqCst);
    assert_eq!(config.lost_for_ms(), 3_600_001);
    server.resume();
    let mut back = config.synchronize().await;
    for _ in 0..20 {
        back = config.synchronize().await;
    }
    back.unwrap();
    assert_eq!(config.lost_for_ms(), 0);
    create(&config, &SEGMENTS, body(2)).await.unwrap();
    let all: Vec<String> = config.all(&SEGMENTS).await.unwrap().into_iter().map(|entity| entity.id).collect();
    let mut each = Vec::new();
    config.for_each(&SEGMENTS, |entity| each.push(entity.id)).await.unwrap();
    assert_eq!((all.len(), &each), (2, &all));
}
