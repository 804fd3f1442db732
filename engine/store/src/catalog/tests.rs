//! The rules of the catalog: pending keys, conflicts, floors, order of the outbox, full lists.

use std::collections::HashSet;

use quiver_types::SystemClock;

use super::*;
use crate::idempotency::{Answer, AnsweredRequest, KEPT_MS, RequestId};
use crate::part::{FileMeta, NameFilter, PartOrigin, Place};

async fn catalog(dir: &tempfile::TempDir) -> Catalog {
    let catalog = Catalog::open(&dir.path().join("quiver.db"), Arc::new(SystemClock)).await.unwrap();
    if catalog.installation().await.unwrap().is_none() {
        catalog.install(Uuid::now_v7()).await.unwrap();
    }
    catalog
}

fn part(place: Place) -> PartMeta {
    let id = PartId::now_v7();
    let file = FileMeta {
        kind: "series".into(),
        key: format!("metrics/1970-01-01/{id}.series.parquet"),
        bytes: 10,
        rows: 1,
        tail_len: 4,
        tail_crc: 7,
    };
    PartMeta {
        id,
        table: "metrics".into(),
        day: 0,
        level: 0,
        place,
        min_ts: 1,
        max_ts: 2,
        rows: 1,
        bytes: 10,
        series: 1,
        services: vec!["a".into()],
        services_all: false,
        names: NameFilter::of(&["m"]),
        has_histograms: false,
        window: 0,
        origin: PartOrigin::Compacted { compaction_id: id, replaced: Vec::new() },
        files: vec![file],
    }
}

fn keys(part: &PartMeta) -> Vec<String> {
    part.files.iter().map(|f| f.key.clone()).collect()
}

/// Commits a part as a job does.
async fn add(catalog: &Catalog, part: &PartMeta) -> u64 {
    let job = Uuid::now_v7();
    catalog.add_pending(job, &keys(part)).await.unwrap();
    let change = Change { job: Some(job), added: vec![part.clone()], ..Change::default() };
    catalog.commit(&change).await.unwrap()
}

async fn drain(catalog: &Catalog) -> Vec<CommitObject> {
    let mut objects = Vec::new();
    while let NextObject::Ready(ready) = catalog.next_object(&HashSet::new()).await.unwrap() {
        let (old, body) = (ready.body(None), ready.body(Some(7)));
        assert!(ready.is(old.as_bytes()) && ready.is(body.as_bytes()) && !ready.is(&body.as_bytes()[1..]));
        assert_eq!(CommitObject::parse("test", old.as_bytes()).unwrap().epoch, None);
        let object = CommitObject::parse("test", body.as_bytes()).unwrap();
        assert_eq!((object.commit, object.epoch), (ready.commit, Some(7)));
        objects.push(object);
        catalog.object_written(ready.commit).await.unwrap();
    }
    objects
}

#[tokio::test]
async fn pages_are_kept_within_the_memory_of_the_process() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quiver.db");
    let catalog = Catalog::open_within(&path, Arc::new(SystemClock), 256 << 20).await.unwrap();
    let cache: i64 = sqlx::query_scalar("PRAGMA cache_size").fetch_one(&catalog.pool).await.unwrap();
    assert_eq!(cache, -1024);
}

#[tokio::test]
async fn a_commit_takes_all_its_pending_keys() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let (a, b) = (part(Place::Store), part(Place::Store));
    let job = Uuid::now_v7();
    let change = Change { job: Some(job), added: vec![a.clone(), b.clone()], ..Change::default() };
    catalog.add_pending(job, &keys(&a)).await.unwrap();
    assert_eq!(catalog.commit(&change).await.unwrap_err().kind(), ErrorKind::Conflict, "one key is not there");
    assert_eq!(catalog.last_commit().await.unwrap(), 0, "nothing was changed");
    assert_eq!(catalog.pending_keys().await.unwrap(), keys(&a));

    catalog.add_pending(job, &[keys(&b), vec!["unused".into()]].concat()).await.unwrap();
    assert_eq!(catalog.commit(&change).await.unwrap(), 1);
    assert!(catalog.pending_keys().await.unwrap().is_empty(), "unused keys go too");
    assert_eq!(catalog.commit(&change).await.unwrap(), 1, "a job commits once");
    assert_eq!(catalog.live_parts().await.unwrap().1.len(), 2);
}

#[tokio::test]
async fn stale_keys_cannot_be_committed() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let (a, job) = (part(Place::Store), Uuid::now_v7());
    catalog.add_pending(job, &keys(&a)).await.unwrap();
    assert!(catalog.doom_pending(|j| j == job).await.unwrap().is_empty(), "the job runs");
    assert_eq!(catalog.doom_pending(|_| false).await.unwrap(), keys(&a));
    let change = Change { job: Some(job), added: vec![a.clone()], ..Change::default() };
    assert_eq!(catalog.commit(&change).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(catalog.doom_pending(|_| true).await.unwrap(), keys(&a), "until they are forgotten");
    catalog.forget_pending(&keys(&a)).await.unwrap();
    assert!(catalog.doom_pending(|_| false).await.unwrap().is_empty());
}

#[tokio::test]
async fn two_compactions_of_the_same_parts_cannot_both_land() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let (a, b) = (part(Place::Store), part(Place::Store));
    add(&catalog, &a).await;
    add(&catalog, &b).await;
    let merge = |inputs: Vec<PartId>| {
        let catalog = catalog.clone();
        async move {
            let (job, output) = (Uuid::now_v7(), part(Place::Store));
            catalog.add_pending(job, &keys(&output)).await.unwrap();
            let change = Change { job: Some(job), added: vec![output.clone()], removed: inputs, ..Change::default() };
            catalog.commit(&change).await.map(|_| output.id)
        }
    };
    let (one, two) = tokio::join!(merge(vec![a.id, b.id]), merge(vec![b.id]));
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    let live: Vec<_> = catalog.live_parts().await.unwrap().1.iter().map(|p| p.id).collect();
    match (one, two) {
        (Ok(output), _) => assert_eq!(live, [output]),
        (_, Ok(output)) => assert_eq!(live, [a.id, output]),
        _ => unreachable!(),
    }
    let spooled = part(Place::Spool);
    add(&catalog, &spooled).await;
    assert_eq!(merge(vec![spooled.id]).await.unwrap_err().kind(), ErrorKind::Conflict, "not from the spool");
}

#[tokio::test]
async fn floors_only_move_up() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let writer = Uuid::now_v7();
    let flushed = |generation| Change { floors: vec![Floor { writer, generation }], ..Change::default() };
    catalog.commit(&flushed(1)).await.unwrap();
    catalog.commit(&flushed(3)).await.unwrap();
    assert_eq!(catalog.commit(&flushed(3)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(catalog.commit(&flushed(2)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(catalog.floors().await.unwrap(), [WriterFloor { writer, floor: 4 }]);
    assert_eq!(drain(&catalog).await.last().unwrap().writers, [WriterFloor { writer, floor: 4 }]);
    catalog.forget_writers(&HashSet::from([writer])).await.unwrap();
    assert_eq!(catalog.floors().await.unwrap().len(), 1);
    catalog.forget_writers(&HashSet::new()).await.unwrap();
    assert!(catalog.floors().await.unwrap().is_empty());
}

#[tokio::test]
async fn objects_wait_for_uploads_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let (spooled, stored) = (part(Place::Spool), part(Place::Store));
    add(&catalog, &stored).await;
    let waits = add(&catalog, &spooled).await;
    let removal = catalog.commit(&Change { removed: vec![stored.id], ..Change::default() }).await.unwrap();
    let written = drain(&catalog).await;
    assert_eq!(written.iter().map(|o| o.commit).collect::<Vec<_>>(), [0, 1]);
    assert!(written[0].full && !written[1].full);
    assert_eq!(written[1].added, std::slice::from_ref(&stored), "as it was, though it is removed now");
    match catalog.next_object(&HashSet::new()).await.unwrap() {
        NextObject::Waiting { commit, parts } => assert_eq!((commit, parts), (waits, 1)),
        other => panic!("{other:?}"),
    }
    assert!(catalog.removed_parts().await.unwrap().is_empty(), "nothing is deleted before its object is there");
    let placed = catalog.placed(std::slice::from_ref(&spooled)).await.unwrap();
    assert_eq!(placed[0].place, Place::Store);
    assert!(catalog.placed(&placed).await.unwrap().is_empty(), "once");
    let written = drain(&catalog).await;
    assert_eq!(written.iter().map(|o| o.commit).collect::<Vec<_>>(), [waits, removal]);
    assert_eq!(written[0].added[0].place, Place::Store);
    assert_eq!(written[1].removed, [stored.id]);
    assert_eq!(catalog.removed_parts().await.unwrap().len(), 1);
    assert_eq!(catalog.spool_leftovers().await.unwrap().len(), 1);
    catalog.spool_cleared(spooled.id).await.unwrap();
    assert!(catalog.spool_leftovers().await.unwrap().is_empty());
    catalog.forget_parts(&[stored.id]).await.unwrap();
    assert_eq!(catalog.removed_count().await.unwrap(), 0);
}

/// Whatever became of the part that took its place: brought back, its rows would be there twice.
#[tokio::test]
async fn what_was_replaced_is_not_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let [a, b, c, d] = std::array::from_fn(|_| part(Place::Store));
    add(&catalog, &a).await;
    add(&catalog, &d).await;
    for (old, new) in [(&a, &b), (&b, &c)] {
        let job = Uuid::now_v7();
        catalog.add_pending(job, &keys(new)).await.unwrap();
        let change = Change { job: Some(job), added: vec![new.clone()], removed: vec![old.id], ..Change::default() };
        catalog.commit(&change).await.unwrap();
    }
    catalog.commit(&Change { removed: vec![d.id], ..Change::default() }).await.unwrap();
    drain(&catalog).await;
    // A query holds the first still.
    catalog.forget_parts(&[b.id]).await.unwrap();
    let removed = catalog.removed_parts().await.unwrap();
    let removed: Vec<_> = removed.iter().map(|p| (p.meta.id, p.dropped)).collect();
    assert_eq!(removed, [(a.id, false), (d.id, true)]);
    assert_eq!(catalog.dropped_parts().await.unwrap(), std::slice::from_ref(&d));
    catalog.undrop(&[d.id]).await.unwrap();
    assert!(catalog.dropped_parts().await.unwrap().is_empty());
    assert_eq!(catalog.removed_count().await.unwrap(), 1);
}

#[tokio::test]
async fn full_lists_and_what_they_outdate() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let (kept, gone) = (part(Place::Store), part(Place::Store));
    add(&catalog, &kept).await;
    add(&catalog, &gone).await;
    let writer = Uuid::now_v7();
    let empty = |n| Change { floors: vec![Floor { writer, generation: n }], ..Change::default() };
    for n in 3..FULL_LIST_EVERY {
        catalog.commit(&empty(n)).await.unwrap();
    }
    let full = catalog.commit(&Change { removed: vec![gone.id], ..Change::default() }).await.unwrap();
    assert_eq!(full, FULL_LIST_EVERY);
    let object = drain(&catalog).await.pop().unwrap();
    assert!(object.full);
    assert_eq!(object.added, std::slice::from_ref(&kept));
    assert_eq!(object.removed, [gone.id]);
    assert_eq!(object.writers, [WriterFloor { writer, floor: FULL_LIST_EVERY }]);
    assert!(catalog.outdated_objects().await.unwrap().is_empty(), "the last two full lists stay");
    for n in 0..FULL_LIST_EVERY {
        catalog.commit(&empty(FULL_LIST_EVERY + n)).await.unwrap();
    }
    assert!(catalog.outdated_objects().await.unwrap().is_empty(), "not before the third is written");
    drain(&catalog).await;
    let outdated = catalog.outdated_objects().await.unwrap();
    assert_eq!(outdated, (0..FULL_LIST_EVERY).collect::<Vec<_>>());
    catalog.forget_commits(FULL_LIST_EVERY).await.unwrap();
    assert!(catalog.outdated_objects().await.unwrap().is_empty());
    assert_eq!(catalog.last_commit().await.unwrap(), 2 * FULL_LIST_EVERY);
    assert_eq!(catalog.written_commits().await.unwrap().len(), FULL_LIST_EVERY as usize + 1);
}

#[tokio::test]
async fn a_newer_catalog_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let first = catalog(&dir).await;
    let sql = "INSERT INTO migration (number, name, applied_ms) VALUES (99, 'later', 0)";
    sqlx::query(sql).execute(&first.pool).await.unwrap();
    first.close().await;
    let error = Catalog::open(&dir.path().join("quiver.db"), Arc::new(SystemClock)).await.unwrap_err();
    assert!(error.to_string().contains("version 99"), "{error}");
    assert!(error.to_string().contains(&dir.path().join("quiver.db").display().to_string()), "{error}");
}

/// Breaks if a start says no more than a code, or takes the file of something else for its own.
#[tokio::test]
async fn files_that_are_no_catalog() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("quiver.db");
    let told = async || Catalog::open(&path, Arc::new(SystemClock)).await.unwrap_err();
    let first = catalog(&dir).await;
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000) \
        INSERT INTO pending (key, job) SELECT 'k' || i, 'j' FROM n";
    sqlx::query(many).execute(&first.pool).await.unwrap();
    first.close().await;
    let whole = std::fs::read(&path).unwrap();
    let cut = whole.len() / 2;
    let shown = path.display();
    let check = async |bytes: &[u8], what: &str| {
        std::fs::write(&path, bytes).unwrap();
        let error = told().await;
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("`{shown}`, the catalog, {what}")), "{text}");
        assert!(text.contains("quiver catalog rebuild"), "{text}");
    };
    check(b"not a database, but a text that somebody saved under its name", "is no SQLite database").await;
    check(&[0x5a; 10_000], "is no SQLite database").await;
    check(&whole[..cut], &format!("is cut short: there are {cut} of its {} bytes", whole.len())).await;
    // A page of garbage in the middle.
    let mut garbled = whole.clone();
    garbled[whole.len() / 4096 / 2 * 4096..][..4096].fill(0xa5);
    check(&garbled, "is damaged").await;
    std::fs::remove_file(&path).unwrap();
    let other = SqlitePool::connect(&format!("sqlite://{shown}?mode=rwc")).await.unwrap();
    sqlx::query("CREATE TABLE cookies (name TEXT)").execute(&other).await.unwrap();
    other.close().await;
    let foreign = std::fs::read(&path).unwrap();
    check(&foreign, "holds tables of something else").await;
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let text = told().await.to_string();
    assert!(text.contains("the catalog, is a directory;"), "{text}");
}

#[tokio::test]
async fn answered_requests_come_with_their_commit_and_go_when_they_are_old() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let now = Clock::now_ms(&SystemClock);
    let request = |key: &str, body_hash, at| {
        let id = RequestId { caller: String::new(), path: "/p".into(), key: key.into() };
        let answer = Answer { status: 204, content_type: "text/plain".into(), body: vec![0, 255] };
        Arc::new(AnsweredRequest { id, body_hash, at, answer })
    };
    let (old, a, b) = (request("old", 1, now - 2 * KEPT_MS), request("a", u128::MAX, now - 1), request("b", 3, now));
    let writer = Uuid::now_v7();
    let change = |generation, answered: &[&Arc<AnsweredRequest>]| Change {
        floors: vec![Floor { writer, generation }],
        answered: answered.iter().map(|a| Arc::clone(a)).collect(),
        ..Change::default()
    };
    catalog.commit(&change(1, &[&old, &a])).await.unwrap();
    assert_eq!(catalog.answered_since(0).await.unwrap(), [(*old).clone(), (*a).clone()]);
    // A commit that fails leaves nothing.
    catalog.commit(&change(1, &[&b])).await.unwrap_err();
    assert_eq!(catalog.answered_since(0).await.unwrap().len(), 2);
    let again = request("a", 5, now);
    catalog.commit(&change(2, &[&b, &again])).await.unwrap();
    assert_eq!(catalog.answered_since(now - KEPT_MS).await.unwrap(), [(*again).clone(), (*b).clone()]);
    assert_eq!(catalog.answered_since(0).await.unwrap().len(), 2);
}

/// SQLite ends the transaction itself, as it does at an I/O error or a full disk.
#[tokio::test]
async fn a_transaction_that_the_database_ended_is_the_last_of_its_connection_only() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let mut tx = catalog.begin("end").await.unwrap();
    let again = "INSERT OR ROLLBACK INTO migration (number, name, applied_ms) VALUES (1, 'again', 0)";
    sqlx::query(again).execute(&mut *tx).await.unwrap_err();
    drop(tx);
    catalog.add_pending(Uuid::now_v7(), &["key".to_owned()]).await.unwrap();
    assert_eq!(catalog.pending_keys().await.unwrap(), ["key"]);
}

/// Breaks if parts are committed to a file that the next start cannot find.
#[tokio::test]
async fn a_file_that_was_taken_away_takes_no_commits() {
    let dir = tempfile::tempdir().unwrap();
    let catalog = catalog(&dir).await;
    let (path, aside) = (dir.path().join("quiver.db"), dir.path().join("aside.db"));
    let refused = async |what: &str| {
        let error = catalog.add_pending(Uuid::now_v7(), &["lost".to_owned()]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(crate::error::chain(&error).contains(what), "{}", crate::error::chain(&error));
    };
    std::fs::rename(&path, &aside).unwrap();
    refused("quiver.db` is gone").await;
    assert!(!path.exists());
    std::fs::write(&path, "").unwrap();
    refused("is another file than the one in use").await;
    std::fs::rename(&aside, &path).unwrap();
    catalog.add_pending(Uuid::now_v7(), &["key".to_owned()]).await.unwrap();
    assert_eq!(catalog.pending_keys().await.unwrap(), ["key"]);
}
