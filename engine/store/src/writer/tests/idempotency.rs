//! Writes with an idempotency key: stored once, still known after a replay, with refused rows in their response.

use quiver_types::LogsBatch;

use super::*;
use crate::idempotency::{Answer, KEPT_MS, KeyedWrite, RequestId};

/// The time of the clock.
const NOW: i64 = 1_700_000_000_000_000_000;

fn id(key: &str) -> RequestId {
    RequestId { caller: "c".into(), path: "/p".into(), key: key.into() }
}

/// Rows of two streams in two batches.
fn batches(times: &[i64]) -> Vec<LogsBatch> {
    let batch = |at: usize| {
        let mut batch = LogsBatch { services: vec!["".into(), "s".into()], ..Default::default() };
        batch.names = vec!["_msg".into(), format!("f{at}").into()];
        let labels = |n: usize| quiver_types::LabelSet::from_pairs([("app", ["a", "b"][n % 2])]);
        let streams: Vec<u32> = (at..at + 2).map(|n| batch.push_stream(labels(n).canonical())).collect();
        for (n, &time) in times.iter().enumerate() {
            batch.push_field(0, &format!("row {n} of {at}"));
            batch.push_field(1, "x");
            batch.end_row(time, streams[n % 2], 1, quiver_types::logs::RecordMarks::default());
        }
        batch
    };
    vec![batch(0), LogsBatch::default(), batch(1)]
}

async fn write(rig: &Rig, key: &str, hash: u128, times: &[i64]) -> Result<KeyedWrite> {
    let answer = |refused: &[(Refusal, u64)]| {
        let count: u64 = refused.iter().map(|r| r.1).sum();
        Ok(Answer { status: 200, content_type: "text/plain".into(), body: count.to_string().into_bytes() })
    };
    rig.path.write_logs_once(id(key), hash, batches(times), answer).await
}

/// Message and stream of all rows, by generation.
fn rows(rig: &Rig) -> Vec<String> {
    let snapshot = rig.shared.snapshot();
    let mut out = Vec::new();
    for generation in &snapshot.visible.generations {
        let view = generation.log_view((i64::MIN, i64::MAX), snapshot.seq);
        for (chunk, visible) in &view.chunks {
            for row in 0..*visible {
                let fields: Vec<_> = chunk.rows.fields(row).map(|f| chunk.rows.values.value(f)).collect();
                let stream = &view.streams[chunk.rows.slots[row] as usize];
                out.push(format!("{fields:?} {:?}", stream.labels));
            }
        }
    }
    out.sort();
    out
}

#[tokio::test]
async fn stored_once_and_known_after_a_replay() {
    let dir = TempDir::new().unwrap();
    let rig = open(dir.path());
    let KeyedWrite::Stored(first) = write(&rig, "a", 1, &[NOW + 5, NOW + 6, NOW + 7]).await.unwrap() else {
        panic!("it is new")
    };
    assert_eq!((first.answer.body.as_slice(), first.at), (&b"0"[..], 1_700_000_000_000));
    let stored = rows(&rig);
    assert_eq!(stored.len(), 6);
    assert!(stored[0].contains("row 0 of 0") && stored[0].contains("\"a\""), "{}", stored[0]);
    assert!(stored[1].contains("row 0 of 1") && stored[1].contains("\"b\""), "{}", stored[1]);
    assert!(matches!(write(&rig, "empty", 2, &[]).await, Ok(KeyedWrite::Stored(_))));
    // As a kill would leave it.
    let rig = open(dir.path());
    assert_eq!(rows(&rig), stored);
    for key in ["a", "empty"] {
        let hash = if key == "a" { 1 } else { 2 };
        let KeyedWrite::Repeated(known) = write(&rig, key, hash, &[NOW + 8]).await.unwrap() else {
            panic!("{key} is known")
        };
        assert_eq!(known.answer, first.answer);
    }
    let other = write(&rig, "a", 9, &[NOW + 8]).await.unwrap_err();
    assert_eq!(other.kind, ErrorKind::Execution);
    assert_eq!(rows(&rig), stored);
    assert!(matches!(write(&rig, "b", 1, &[NOW + 8]).await, Ok(KeyedWrite::Stored(_))));
    assert_eq!(rows(&rig).len(), 8);
}

#[tokio::test]
async fn a_generation_of_keys_alone_is_replayed_and_flushed() {
    let dir = TempDir::new().unwrap();
    let rig = open(dir.path());
    write(&rig, "empty", 1, &[]).await.unwrap();
    let sealed = rig.path.seal().await.unwrap().expect("it holds a key");
    assert_eq!(sealed.requests().len(), 1);
    assert_eq!(open(dir.path()).replayed.len(), 1);
}

#[tokio::test]
async fn what_is_refused_is_in_the_answer_and_what_fails_is_not_known() {
    let dir = TempDir::new().unwrap();
    let settings = WriteSettings { logs_past_ms: Some(1000), ..settings() };
    let rig = try_open(dir.path(), Arc::new(LocalDisk), settings).unwrap();
    let KeyedWrite::Stored(request) = write(&rig, "a", 1, &[NOW, 1]).await.unwrap() else { panic!("it is new") };
    assert_eq!((request.answer.body.as_slice(), rows(&rig).len()), (&b"2"[..], 2));
    let failed = rig.path.write_logs_once(id("b"), 1, batches(&[NOW]), |_| Err(Error::invalid("no"))).await;
    assert_eq!(failed.unwrap_err().message, "no");
    assert_eq!(rows(&rig).len(), 2);
    assert!(matches!(write(&rig, "b", 7, &[NOW]).await, Ok(KeyedWrite::Stored(_))));
    // As the catalog gives it at the start.
    let known = AnsweredRequest { id: id("c"), body_hash: 3, ..(*request).clone() };
    let old = AnsweredRequest { id: id("d"), at: request.at - KEPT_MS - 1, ..known.clone() };
    rig.path.load_requests(vec![Arc::new(known), Arc::new(old)]);
    assert!(matches!(write(&rig, "c", 3, &[NOW]).await, Ok(KeyedWrite::Repeated(_))));
    assert!(matches!(write(&rig, "d", 3, &[NOW]).await, Ok(KeyedWrite::Stored(_))));
}
