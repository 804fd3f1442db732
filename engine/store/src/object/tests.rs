//! The wrapper around object stores: the same behaviour of both backends, retries, verified uploads.

use std::sync::atomic::Ordering::Relaxed;

use super::faulty::FaultyStore;
use super::*;
use crate::io::{LocalIo, PartIo as _};
use crate::part::Place;

fn settings() -> StoreSettings {
    StoreSettings { store_retry_budget: Duration::from_millis(1500), ..StoreSettings::default() }
}

async fn behaves(storage: &Storage) {
    let body = Bytes::from_static(b"0123456789");
    assert_eq!(storage.get("a/b.json").await.unwrap(), None);
    assert_eq!(storage.size("a/b.json").await.unwrap(), None);
    storage.put("a/b.json", body.clone()).await.unwrap();
    storage.put("a/b.json", body.clone()).await.unwrap();
    storage.put("c.json", Bytes::from_static(b"x")).await.unwrap();
    assert_eq!(storage.get("a/b.json").await.unwrap(), Some(body));
    assert_eq!(storage.size("a/b.json").await.unwrap(), Some(10));
    assert_eq!(storage.read_ranges("a/b.json", &[1..3, 9..10]).await.unwrap(), [&b"12"[..], b"9"]);
    assert!(storage.read_ranges("a/b.json", std::slice::from_ref(&(8..11))).await.is_err());
    let missing = storage.read_ranges("nope", std::slice::from_ref(&(0..1))).await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    assert_eq!(storage.list("").await.unwrap(), [("a/b.json".to_owned(), 10), ("c.json".to_owned(), 1)]);
    assert_eq!(storage.list("a").await.unwrap(), [("a/b.json".to_owned(), 10)]);
    let (mine, other) = (Bytes::from_static(b"mine"), Bytes::from_static(b"other"));
    assert_eq!(storage.create("d/once.json", mine.clone()).await.unwrap(), None);
    assert_eq!(storage.create("d/once.json", mine.clone()).await.unwrap(), None, "the same again is no other's");
    assert_eq!(storage.create("d/once.json", other).await.unwrap(), Some(mine.clone()));
    assert_eq!(storage.get("d/once.json").await.unwrap(), Some(mine));
    storage.delete(&["d/once.json".into()]).await.unwrap();
    storage.delete(&["a/b.json".into(), "never/there".into()]).await.unwrap();
    assert_eq!(storage.list("").await.unwrap(), [("c.json".to_owned(), 1)]);
}

#[tokio::test]
async fn both_backends_behave_alike() {
    let dir = tempfile::tempdir().unwrap();
    let local = Storage::local(&dir.path().join("store"), &settings());
    behaves(&local).await;
    assert!(!dir.path().join("store/a").exists(), "emptied folders go");
    let store = FaultyStore::default();
    behaves(&Storage::remote(Arc::new(store.clone()), "some/prefix", "s3://x/some/prefix", &settings())).await;
    behaves(&Storage::remote(Arc::new(FaultyStore::default()), "", "s3://x", &settings())).await;
    assert_eq!(store.inner.head(&StorePath::from("some/prefix/c.json")).await.unwrap().size, 1);
}

#[tokio::test]
async fn failures_are_repeated_and_cut_bodies_noticed() {
    let store = FaultyStore::default();
    // On a machine that stands still a repeat may come late.
    let patient = StoreSettings { store_retry_budget: Duration::from_mins(5), ..settings() };
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &patient);
    store.faults.fail_next.store(3, Relaxed);
    storage.put("a", Bytes::from_static(b"12345678")).await.unwrap();
    store.faults.cut_next.store(2, Relaxed);
    storage.put("b", Bytes::from_static(b"12345678")).await.unwrap();
    assert_eq!(storage.size("b").await.unwrap(), Some(8));
    store.faults.lose_answers.store(2, Relaxed);
    storage.put("c", Bytes::from_static(b"12345678")).await.unwrap();
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &settings());
    store.faults.down.store(true, Relaxed);
    let error = storage.put("d", Bytes::from_static(b"1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(storage.get("a").await.is_err(), "down is not the same as not there");
}

/// Breaks if credentials that have ended are taken for a fault of ours, or of what was asked for.
#[tokio::test]
async fn a_store_that_refuses_the_credentials_may_take_them_later() {
    let store = FaultyStore::default();
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &settings());
    let body = Bytes::from_static(b"12345678");
    storage.put("a", body.clone()).await.unwrap();
    let requests = || store.faults.requests.load(Relaxed);
    let before = requests();
    store.faults.denied.store(true, Relaxed);
    let told = [
        storage.get("a").await.unwrap_err(),
        storage.size("a").await.unwrap_err(),
        storage.read_ranges("a", std::slice::from_ref(&(0..1))).await.unwrap_err(),
        storage.put("b", body.clone()).await.unwrap_err(),
        storage.create("c", body).await.unwrap_err(),
        storage.delete(&["a".into()]).await.unwrap_err(),
        storage.list("").await.unwrap_err(),
    ];
    for error in &told {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().ends_with("refuses the credentials, or they have no right to"), "{error}");
    }
    assert!(told[6].message.starts_with("cannot list the objects of the store: "), "{}", told[6]);
    assert_eq!(requests() - before, told.len() as u64, "it is not asked again and again");
    store.faults.denied.store(false, Relaxed);
    assert!(storage.get("a").await.unwrap().is_some());
}

/// Breaks if a bucket that is gone is taken for files that are: a query would go on without them.
#[tokio::test]
async fn a_bucket_that_is_not_there_says_nothing_of_its_objects() {
    let store = FaultyStore::default();
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &settings());
    storage.put("a", Bytes::from_static(b"12345678")).await.unwrap();
    store.faults.bucket_gone.store(true, Relaxed);
    let (range, dir) = (0..1, tempfile::tempdir().unwrap());
    let spool = Arc::new(LocalIo::new(dir.path(), dir.path()));
    let io = StoreIo::new(spool, storage.clone(), tokio::runtime::Handle::current());
    let told = [
        storage.get("a").await.unwrap_err(),
        storage.read_ranges("a", std::slice::from_ref(&range)).await.unwrap_err(),
        storage.delete(&["a".into()]).await.unwrap_err(),
        storage.list("").await.unwrap_err(),
        io.read("a", Place::Store, std::slice::from_ref(&range)).await.unwrap_err(),
    ];
    for error in told {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(error.to_string().ends_with("the store knows no such bucket"), "{error}");
    }
    store.faults.bucket_gone.store(false, Relaxed);
    assert_eq!(storage.get("never/there").await.unwrap(), None);
}

/// Breaks if an object that was cut short is asked for again and again, and then taken for a store that is down: no query
/// over its time could be answered, not even without it.
#[tokio::test]
async fn an_object_that_was_cut_short_is_damaged() {
    let store = FaultyStore::default();
    let patient = StoreSettings { store_retry_budget: Duration::from_mins(5), ..settings() };
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &patient);
    storage.put("a", Bytes::from_static(b"12345678")).await.unwrap();
    let dir = tempfile::tempdir().unwrap();
    let io = StoreIo::new(
        Arc::new(LocalIo::new(dir.path(), dir.path())),
        storage.clone(),
        tokio::runtime::Handle::current(),
    );
    let requests = || store.faults.requests.load(Relaxed);
    // It ends within the range, before it, or just where it begins.
    for range in [4..9, 12..14, 8..9] {
        let before = requests();
        let error = io.read("a", Place::Store, std::slice::from_ref(&range)).await.unwrap_err();
        let text = "file `a` is damaged: it is shorter than it was written";
        assert_eq!((error.kind(), &*error.message, requests() - before), (ErrorKind::Damaged, text, 2), "{range:?}");
    }
    assert_eq!(io.read("a", Place::Store, &[0..8, 7..8]).await.unwrap(), [&b"12345678"[..], b"8"]);
    // Other failures are retried until the read succeeds.
    store.faults.fail_next.store(3, Relaxed);
    assert_eq!(io.read("a", Place::Store, std::slice::from_ref(&(0..8))).await.unwrap(), [&b"12345678"[..]]);
}

/// Breaks if an object that was written a moment ago counts as one that never was.
#[tokio::test]
async fn an_object_may_be_found_late() {
    let dir = tempfile::tempdir().unwrap();
    let store = FaultyStore::default();
    let patient = StoreSettings { store_retry_budget: Duration::from_mins(5), ..settings() };
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &patient);
    let body = Bytes::from_static(b"12345678");
    let hide = || store.faults.hide_next.store(2, Relaxed);
    hide();
    storage.put("a", body.clone()).await.unwrap();
    hide();
    assert_eq!(storage.create("b", body.clone()).await.unwrap(), None);
    let file = dir.path().join("file");
    std::fs::write(&file, &body).unwrap();
    hide();
    storage.put_file("c", &file, 8, Tail { bytes: 8, crc: crc32c::crc32c(&body) }).await.unwrap();
    assert_eq!(store.faults.hide_next.load(Relaxed), 0);
    assert_eq!(storage.list("").await.unwrap().len(), 3);
}

#[tokio::test]
async fn uploads_of_files_are_verified() {
    let dir = tempfile::tempdir().unwrap();
    let store = FaultyStore::default();
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &settings());
    let check = async |length: usize| {
        let body: Vec<u8> = (0..length).map(|i| (i / 7) as u8).collect();
        let file = dir.path().join("file");
        std::fs::write(&file, &body).unwrap();
        let tail = Tail { bytes: 100, crc: crc32c::crc32c(&body[length - 100..]) };
        storage.put_file("k", &file, length as u64, tail).await.unwrap();
        assert_eq!(storage.get("k").await.unwrap().unwrap(), body);
        let wrong = Tail { bytes: 100, crc: tail.crc ^ 1 };
        assert!(storage.put_file("w", &file, length as u64, wrong).await.is_err());
        assert!(storage.put_file("w", &file, length as u64 + 1, tail).await.is_err());
    };
    check(1000).await;
    check(MULTIPART_ABOVE as usize + 12_345).await;
}

#[tokio::test]
async fn an_object_is_created_once_whatever_happens_to_the_answers() {
    let store = FaultyStore::default();
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &settings());
    let body = |text: &'static str| Bytes::from_static(text.as_bytes());
    store.faults.lose_answers.store(2, Relaxed);
    assert_eq!(storage.create("lost", body("12345678")).await.unwrap(), None, "its own object is found");
    store.faults.cut_next.store(1, Relaxed);
    assert_eq!(storage.create("cut", body("12345678")).await.unwrap(), None);
    assert_eq!(storage.get("cut").await.unwrap(), Some(body("12345678")), "mended by who made it");
    let dir = tempfile::tempdir().unwrap();
    let local = Storage::local(dir.path(), &settings());
    for storage in [storage, local] {
        let both: Vec<String> = (0..20).map(|i| format!("race {i}")).collect();
        let tries = both.iter().map(|text| storage.create("k", Bytes::from(text.clone())));
        let found = futures::future::join_all(tries).await;
        let kept = storage.get("k").await.unwrap().unwrap();
        let won: Vec<_> = both.iter().zip(&found).filter(|(_, f)| matches!(f, Ok(None))).collect();
        assert_eq!(won.len(), 1, "{found:?}");
        assert_eq!(won[0].0.as_bytes(), kept);
        assert_eq!(found.iter().filter(|f| matches!(f, Ok(Some(other)) if *other == kept)).count(), 19, "{found:?}");
        assert_eq!(storage.list("").await.unwrap().iter().filter(|(key, _)| key.contains("tmp")).count(), 0);
    }
}

#[tokio::test]
async fn an_upload_that_is_cut_off_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let (store, path) = (FaultyStore::default(), StorePath::from("k"));
    let file = dir.path().join("file");
    std::fs::write(&file, vec![1; MULTIPART_ABOVE as usize + 1]).unwrap();
    store.faults.hang_parts.store(true, Relaxed);
    let begun = async {
        while store.faults.hung_parts.load(Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        _ = put_multipart(&store, &path, &file, MULTIPART_ABOVE + 1) => panic!("no part hangs"),
        () = begun => {}
    }
    while store.faults.aborted.load(Relaxed) == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    store.faults.hang_parts.store(false, Relaxed);
    put_multipart(&store, &path, &file, MULTIPART_ABOVE + 1).await.unwrap();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert_eq!(store.faults.aborted.load(Relaxed), 1, "one that is complete is not");
}

#[tokio::test]
async fn a_read_that_hangs_is_repeated_within_its_budget() {
    let store = FaultyStore::default();
    let storage = Storage::remote(Arc::new(store.clone()), "p", "s3://x/p", &settings());
    storage.put("a", Bytes::from_static(b"12345678")).await.unwrap();
    store.faults.hang_next.store(1, Relaxed);
    assert_eq!(storage.get("a").await.unwrap().unwrap(), &b"12345678"[..]);
}

#[test]
fn urls() {
    let check = |url: &str, expected: Result<Option<&str>, &str>| {
        let settings = StoreSettings { store_url: Some(url.to_owned()), ..StoreSettings::default() };
        match (Storage::open(&settings, Path::new("/default")), expected) {
            (Ok(storage), Ok(root)) => assert_eq!(storage.local_root(), root.map(Path::new), "{url}"),
            (Err(e), Err(text)) => assert!(e.to_string().contains(text), "{url}: {e}"),
            (found, _) => panic!("{url}: {found:?}"),
        }
    };
    check("file:///var/x", Ok(Some("/var/x")));
    check("s3://bucket/some/prefix", Ok(None));
    check("gs://bucket", Err("`gs` is not supported"));
    check("no url", Err("is not a URL such as `file:///"));
    check("/var/x", Err("is not a URL such as `file:///"));
    for url in ["s3://bucket/p?region=eu", "s3://bucket/p#x", "s3://key:secret@bucket/p", "s3://bucket:9000/p"] {
        check(url, Err("holds more than place and prefix"));
    }
    let default = Storage::open(&StoreSettings::default(), Path::new("/default")).unwrap();
    assert_eq!(default.local_root(), Some(Path::new("/default")));
}
