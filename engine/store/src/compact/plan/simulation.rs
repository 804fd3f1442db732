//! Runs all kinds of days through the planner, part by part, and checks how often a byte is written and how many parts
//! remain.

use super::*;
use crate::part::testing::part_meta;

const HOUR: Millis = 3_600_000;
const MIB: u64 = 1 << 20;

struct Day {
    parts: Vec<PartMeta>,
    now_ms: Millis,
    next: u128,
    flushed: u64,
    written: u64,
    most: usize,
}

impl Day {
    fn new() -> Self {
        Self { parts: Vec::new(), now_ms: HOUR, next: 0, flushed: 0, written: 0, most: 0 }
    }

    fn add(&mut self, level: u8, bytes: u64, compaction: u128, (min_ts, max_ts): (Millis, Millis)) {
        self.next += 1;
        self.written += bytes;
        self.parts.push(PartMeta {
            level,
            min_ts,
            max_ts,
            rows: bytes,
            bytes,
            origin: PartOrigin::Compacted { compaction_id: PartId::from_u128(compaction), replaced: Vec::new() },
            ..part_meta(self.next, "metrics")
        });
    }

    /// A flush with rows of some hours, and the compactions that follow from it.
    fn flush(&mut self, bytes: u64, times: (Millis, Millis)) {
        self.flushed += bytes;
        self.add(0, bytes, self.next + 1, times);
        self.compact();
    }

    fn compact(&mut self) {
        let settings = CompactionSettings::default();
        for round in 0.. {
            assert!(round < 10_000, "it never ends");
            let ctx = Context { now_ms: self.now_ms, settings: &settings, force: false, spare_bytes: 0 };
            let Some(plan) = plan(&self.parts, &ctx).into_iter().next() else { break };
            let (inputs, rest): (Vec<_>, Vec<_>) =
                std::mem::take(&mut self.parts).into_iter().partition(|p| plan.inputs.contains(&p.id));
            assert!(inputs.len() > 1 || plan.level == 2, "{plan:?}");
            self.parts = rest;
            let bytes: u64 = inputs.iter().map(|p| p.bytes).sum();
            let times = (inputs.iter().map(|p| p.min_ts).min(), inputs.iter().map(|p| p.max_ts).max());
            let times = (times.0.unwrap_or(0), times.1.unwrap_or(0));
            let largest = if plan.level >= 2 { settings.part_bytes } else { LEVEL1_BYTES_MAX };
            let (count, compaction) = (bytes.div_ceil(largest).max(1), self.next + 1);
            (0..count).for_each(|_| self.add(plan.level, bytes / count, compaction, times));
        }
        self.most = self.most.max(self.parts.iter().filter(|p| p.level < 2).count());
    }

    fn amplification(&self) -> f64 {
        self.written as f64 / self.flushed as f64
    }
}

/// A day that arrived in time: a flush every ten minutes.
fn usual(bytes: u64) -> Day {
    let mut day = Day::new();
    for n in 0..144 {
        let from = n * HOUR / 6;
        day.now_ms = from + HOUR / 6;
        day.flush(bytes, (from, from + HOUR / 6 - 1));
    }
    day.now_ms = 26 * HOUR;
    day.compact();
    day
}

#[test]
fn a_usual_day_is_written_three_times() {
    let day = usual(16 * MIB);
    assert!(day.amplification() <= 3.05, "{}", day.amplification());
    assert!(day.parts.iter().all(|p| p.level == 2));
}

#[test]
fn trickling_late_data_is_not_rewritten_again_and_again() {
    for (base, late, count) in [(MIB, MIB, 3000), (16 * MIB, 10_000, 3000), (4 * MIB, 300_000, 5000), (1, MIB, 2000)] {
        let mut day = usual(base);
        for n in 0..count {
            // Sizes vary, as in practice.
            day.flush(late / 2 + late * (n * 7919 % 100) / 100, (0, 24 * HOUR - 1));
        }
        let found = day.amplification();
        assert!(found <= 5.0, "{base} {late} {count}: {found}");
        assert!(day.most <= 6 * LATE_PARTS_MAX, "{base} {late} {count}: {} parts", day.most);
    }
}

#[test]
fn huge_days_are_merged_in_few_steps() {
    for (count, bytes) in [(65, 8 * MIB), (10_000, 8 * MIB), (5_000, 256 * MIB), (300, 4096 * MIB)] {
        let mut day = Day::new();
        // A backfill: all data arrives after its day.
        day.now_ms = HOUR;
        for n in 0..count {
            day.flushed += bytes;
            day.add(0, bytes, n + 1, (0, 24 * HOUR - 1));
        }
        day.now_ms = 48 * HOUR;
        day.compact();
        let found = day.amplification();
        assert!(found <= 4.0, "{count} of {bytes}: {found}");
        assert!(day.parts.iter().all(|p| p.level == 2), "{count} of {bytes}");
    }
}
