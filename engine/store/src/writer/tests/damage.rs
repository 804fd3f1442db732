//! Torn and damaged segments: a start always succeeds, nothing wrong is served, and damage is counted.

use std::fs;
use std::path::PathBuf;

use super::*;
use crate::wal::record::{self, SegmentEntry};
use crate::wal::replay::{QUARANTINE, ReplayedGeneration};
use crate::wal::segment;

/// Writes one segment: five writes of one sample, of which the last three have offsets in the result.
async fn five_writes(dir: &Path) -> (PathBuf, Vec<usize>) {
    let rig = open(dir);
    for n in 0..5 {
        let name = if n < 3 { "m" } else { "late" };
        rig.path.write_metrics(one(name, n, n as f64)).await.unwrap();
    }
    rig.path.shutdown().await;
    let path = segments(dir).remove(0);
    let bytes = fs::read(&path).unwrap();
    let mut starts = Vec::new();
    let mut at = segment::HEADER_BYTES;
    while at < bytes.len() {
        let SegmentEntry::Record(_, end) = record::read(&bytes, at) else { panic!("a good segment") };
        starts.push(at);
        at = end;
    }
    (path, starts)
}

fn replay_bytes(dir: &Path, path: &Path, bytes: &[u8]) -> Option<ReplayedGeneration> {
    fs::write(path, bytes).unwrap();
    let mut found = replay(&LocalDisk, dir, &Arc::new(Registry::default()), &|_| false).unwrap();
    assert!(found.len() <= 1);
    found.pop()
}

fn times(replayed: Option<&ReplayedGeneration>) -> Vec<i64> {
    let Some(replayed) = replayed else { return Vec::new() };
    let g = &replayed.generation;
    let mut times = Vec::new();
    for series in g.matching(&[], &Access::full(), MillisRange::ALL, u64::MAX) {
        let run = g.copy_floats(series.slot, MillisRange::ALL, u64::MAX);
        assert!(run.ts.iter().zip(&run.values).all(|(t, v)| *t as f64 == *v), "a wrong value");
        times.extend(run.ts);
    }
    times.sort_unstable();
    times
}

#[tokio::test]
async fn every_cut_of_the_tail_keeps_the_whole_writes_before() {
    let dir = TempDir::new().unwrap();
    let (path, starts) = five_writes(dir.path()).await;
    let good = fs::read(&path).unwrap();
    // Records: definitions, 0, 1, 2, definitions, 3, 4.
    assert_eq!(starts.len(), 7);
    for cut in starts[4]..good.len() {
        let replayed = replay_bytes(dir.path(), &path, &good[..cut]);
        let whole = 3 + starts[6..].iter().filter(|&&s| s <= cut).count() as i64;
        assert_eq!(times(replayed.as_ref()), (0..whole).collect::<Vec<_>>(), "cut at {cut}");
        let replayed = replayed.unwrap();
        assert_eq!((replayed.corrupt, replayed.damaged), (0, false), "cut at {cut}");
        // The tail is gone from the file: the next start finds nothing torn.
        let left = fs::read(&path).unwrap();
        assert!(starts.contains(&left.len()), "cut at {cut}");
        assert_eq!(left, good[..left.len()]);
    }
}

#[tokio::test]
async fn every_flip_in_the_tail_is_counted() {
    let dir = TempDir::new().unwrap();
    let (path, starts) = five_writes(dir.path()).await;
    let good = fs::read(&path).unwrap();
    for at in starts[4]..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        let replayed = replay_bytes(dir.path(), &path, &bad).unwrap();
        let expected: &[i64] = match starts.partition_point(|&s| s <= at) - 1 {
            // Both writes of the series whose definition is damaged.
            4 => &[0, 1, 2],
            5 => &[0, 1, 2, 4],
            _ => &[0, 1, 2, 3],
        };
        assert_eq!(times(Some(&replayed)), expected, "flip at {at}");
        assert_eq!((replayed.corrupt, replayed.damaged), (1, true), "flip at {at}");
    }
}

#[tokio::test]
async fn random_damage_never_stops_a_start() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    let dir = TempDir::new().unwrap();
    let (path, _) = five_writes(dir.path()).await;
    let good = fs::read(&path).unwrap();
    for seed in 0..400u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bad = good.clone();
        for _ in 0..rng.random_range(1..6) {
            match rng.random_range(0..4) {
                0 => bad.truncate(rng.random_range(0..=bad.len())),
                1 => {
                    let at = rng.random_range(0..=bad.len());
                    let more: Vec<u8> = (0..rng.random_range(0..100)).map(|_| rng.random()).collect();
                    bad.splice(at..at, more);
                }
                2 if !bad.is_empty() => {
                    let from = rng.random_range(0..bad.len());
                    let to = (from + rng.random_range(0..600)).min(bad.len());
                    bad[from..to].fill(0);
                }
                _ => {
                    if let Some(byte) = (!bad.is_empty()).then(|| rng.random_range(0..bad.len())) {
                        bad[byte] = rng.random();
                    }
                }
            }
        }
        let replayed = replay_bytes(dir.path(), &path, &bad);
        let found = times(replayed.as_ref());
        assert!(found.iter().all(|t| (0..5).contains(t)) && found.is_sorted(), "seed {seed}");
        if !path.exists() {
            // An empty generation goes at once.
            fs::write(&path, &good).unwrap();
        }
    }
}

#[tokio::test]
async fn a_damaged_header_costs_nothing_but_a_count() {
    let dir = TempDir::new().unwrap();
    let (path, _) = five_writes(dir.path()).await;
    let mut bad = fs::read(&path).unwrap();
    bad[20] ^= 1;
    let replayed = replay_bytes(dir.path(), &path, &bad).unwrap();
    assert_eq!(times(Some(&replayed)), [0, 1, 2, 3, 4]);
    assert_eq!(replayed.corrupt, 1);
}

#[tokio::test]
async fn a_missing_segment_is_counted() {
    let dir = TempDir::new().unwrap();
    let rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { segment_bytes: 1, ..settings() }).unwrap();
    for n in 0..3 {
        rig.path.write_metrics(one("m", n, n as f64)).await.unwrap();
    }
    fs::remove_file(&segments(dir.path())[1]).unwrap();
    let found = replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|_| false).unwrap();
    assert_eq!((times(found.last()), found[0].corrupt), (vec![0, 2], 1));
}

/// Breaks if each number up to the last is looked at: a name is nothing that can be relied upon.
#[tokio::test]
async fn a_segment_of_any_number_is_read_at_once() {
    let dir = TempDir::new().unwrap();
    let (path, _) = five_writes(dir.path()).await;
    let (generation, _) = segment::parse_file_name(&path).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    fs::remove_file(&path).unwrap();
    bytes[20] ^= 1;
    fs::write(dir.path().join(segment::file_name(generation, u32::MAX)), &bytes).unwrap();
    let found = replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|_| false).unwrap();
    assert_eq!(times(found.last()), [0, 1, 2, 3, 4]);
    // All segments before it, and its header.
    assert_eq!((found[0].corrupt, found[0].damaged), (u64::from(u32::MAX) + 1, true));
}

/// Breaks if names alone say what files are: a copy would be stored twice, and a segment that was renamed would bring
/// back what a part already has.
#[tokio::test]
async fn a_header_says_which_segment_it_is() {
    let dir = TempDir::new().unwrap();
    let (path, _) = five_writes(dir.path()).await;
    let (generation, _) = segment::parse_file_name(&path).unwrap();
    let again = |flushed: bool| {
        replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|id| flushed && id == generation).unwrap()
    };
    let other = GenerationId { number: generation.number + 1, ..generation };
    for name in [segment::file_name(other, 0), segment::file_name(generation, 1)] {
        fs::copy(&path, dir.path().join(&name)).unwrap();
        let found = again(false);
        assert_eq!((found.len(), times(found.last())), (1, vec![0, 1, 2, 3, 4]), "{name}");
        assert_eq!((found[0].corrupt, found[0].damaged), (0, false), "{name}");
        assert!(dir.path().join(QUARANTINE).join(&name).exists(), "{name}");
    }
    let renamed = dir.path().join(segment::file_name(other, 7));
    fs::rename(&path, &renamed).unwrap();
    let found = again(false);
    assert_eq!((found[0].generation.id(), times(found.last())), (generation, vec![0, 1, 2, 3, 4]));
    assert_eq!(found[0].files, std::slice::from_ref(&renamed));
    assert_eq!(found[0].corrupt, 0);
    assert!(again(true).is_empty() && !renamed.exists(), "its generation is flushed");
}

/// Breaks if what was acknowledged is passed over because its file is called something else.
#[tokio::test]
async fn a_segment_may_be_called_anything() {
    let dir = TempDir::new().unwrap();
    let (path, _) = five_writes(dir.path()).await;
    let (generation, _) = segment::parse_file_name(&path).unwrap();
    let again = |flushed: bool| {
        replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|id| flushed && id == generation)
    };
    let (copy, renamed) = (dir.path().join("copy.wal"), dir.path().join("saved.wal"));
    fs::copy(&path, &copy).unwrap();
    assert_eq!(times(again(false).unwrap().last()), [0, 1, 2, 3, 4]);
    assert!(!copy.exists() && dir.path().join(QUARANTINE).join("copy.wal").exists(), "it is there twice");
    fs::rename(&path, &renamed).unwrap();
    let found = again(false).unwrap();
    assert_eq!((found[0].generation.id(), times(found.last())), (generation, vec![0, 1, 2, 3, 4]));
    assert_eq!((found[0].corrupt, found[0].files.as_slice()), (0, std::slice::from_ref(&renamed)));
    // What says that it is no segment is left alone: by its name, or by what is in it.
    let (other, foreign) = (dir.path().join("saved.wal.bak"), dir.path().join("notes.wal"));
    fs::copy(&renamed, &other).unwrap();
    fs::write(&foreign, "x".repeat(1000)).unwrap();
    assert_eq!(times(again(false).unwrap().last()), [0, 1, 2, 3, 4]);
    // One whose rows are in parts is moved, not deleted: its name is somebody's.
    assert!(again(true).unwrap().is_empty() && !renamed.exists());
    assert!(dir.path().join(QUARANTINE).join("saved.wal").exists() && other.exists() && foreign.exists());
    fs::copy(&other, &renamed).unwrap();
    assert!(again(true).unwrap().is_empty() && !renamed.exists());
    assert!(dir.path().join(QUARANTINE).join("saved.wal").exists(), "what was kept is not written over");
    assert!(dir.path().join(QUARANTINE).join("saved.wal.1").exists());
    // Nor is one of a newer format passed over.
    let mut newer = fs::read(&other).unwrap();
    newer[8] = 2;
    let crc = crc32c::crc32c(&newer[..60]);
    newer[60..64].copy_from_slice(&crc.to_le_bytes());
    fs::write(&renamed, &newer).unwrap();
    let told = again(false).unwrap_err().message;
    assert!(told.contains("saved.wal` has format version 2"), "{told}");
}

#[tokio::test]
async fn a_segment_that_ends_before_its_promised_length_is_damaged() {
    let dir = TempDir::new().unwrap();
    let rig = try_open(dir.path(), Arc::new(LocalDisk), WriteSettings { segment_bytes: 1, ..settings() }).unwrap();
    for n in 0..2 {
        rig.path.write_metrics(one("m", n, n as f64)).await.unwrap();
    }
    let first = &segments(dir.path())[0];
    let bytes = fs::read(first).unwrap();
    fs::write(first, &bytes[..bytes.len() - 9]).unwrap();
    let found = replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|_| false).unwrap();
    assert_eq!(times(found.last()), [1]);
    assert!(found[0].corrupt >= 1);
}

#[tokio::test]
async fn damaged_segments_are_kept_aside() {
    let dir = TempDir::new().unwrap();
    let (path, starts) = five_writes(dir.path()).await;
    let mut bad = fs::read(&path).unwrap();
    bad[starts[2] + 40] ^= 1;
    fs::write(&path, &bad).unwrap();
    let rig = open(dir.path());
    rig.path.retire(rig.replayed[0].id());
    assert!(!path.exists());
    let kept = dir.path().join(QUARANTINE).join(path.file_name().unwrap());
    assert_eq!(fs::read(kept).unwrap(), bad);
    assert!(open(dir.path()).replayed.is_empty());
}

#[tokio::test]
async fn newer_records_are_refused() {
    let dir = TempDir::new().unwrap();
    let (path, starts) = five_writes(dir.path()).await;
    let good = fs::read(&path).unwrap();
    let check = |change: &dyn Fn(&mut record::Header), text: &str| {
        let SegmentEntry::Record(mut header, end) = record::read(&good, starts[1]) else { panic!() };
        change(&mut header);
        let mut bytes = good[..end].to_vec();
        record::finish(&mut bytes, starts[1], header);
        fs::write(&path, &bytes).unwrap();
        let error = replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|_| false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message.contains(text) && error.message.contains("newer build"), "{error}");
    };
    check(&|h| h.version = 9, "table 1 version 9");
    check(&|h| h.table = 77, "table 77");
    check(&|h| h.kind = 8, "kind 8");
}

#[tokio::test]
async fn bodies_with_a_right_checksum_and_wrong_content_are_counted() {
    use rand::{RngExt, SeedableRng, rngs::StdRng};
    let dir = TempDir::new().unwrap();
    let (path, starts) = five_writes(dir.path()).await;
    let good = fs::read(&path).unwrap();
    for seed in 0..2000u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut bytes = good.clone();
        let which = rng.random_range(0..starts.len());
        let SegmentEntry::Record(header, end) = record::read(&bytes, starts[which]) else { panic!() };
        let body = starts[which] + record::HEADER_BYTES..end;
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(body.clone());
            bytes[at] = if rng.random() { rng.random() } else { 0xff };
        }
        record::finish(&mut bytes[..end], starts[which], header);
        fs::write(&path, &bytes).unwrap();
        // No panic; what is read may differ, since the checksum vouches for it.
        let _ = replay(&LocalDisk, dir.path(), &Arc::new(Registry::default()), &|_| false).unwrap();
    }
}
