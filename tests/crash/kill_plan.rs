//! Where the kill loop kills: sequences of rounds, each at a fail point or a random moment, with the load that gets there
//! and the part of the promise that it tests.

use std::collections::BTreeMap;

use quiver_store::failpoint::NAMES;
use rand::RngExt;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;

/// What a kill counts for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Class {
    /// While writes are logged and acknowledged.
    Write,
    /// Between the first file of a flush, its upload, and the end of its commit.
    Commit,
    /// In a compaction, before what it replaces is deleted.
    Compaction,
    /// In the replay of the WAL.
    Replay,
    /// Anywhere else.
    Other,
}

/// What goes on while the kill is awaited. Writers always write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Load {
    /// Nothing else.
    Writes,
    /// Flushes.
    Flushes,
    /// Flushes and forced compactions.
    Compactions,
    /// Nothing at all: the point is passed at the start.
    Nothing,
    /// SIGTERM after a while.
    Stop,
}

/// One round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Round {
    /// Name of a fail point; `None`: SIGKILL at a moment of chance.
    pub(crate) point: Option<&'static str>,
    /// Which hit of it.
    pub(crate) hit: u64,
    /// What goes on meanwhile.
    pub(crate) load: Load,
}

/// Gives what a kill at a fail point counts for.
pub(crate) fn class_of(point: Option<&str>) -> Class {
    let Some(point) = point else { return Class::Write };
    if matches!(point, "flush.before-pending" | "flush.after-pending" | "flush.after-retire" | "wal.before-retire") {
        return Class::Other;
    }
    match point.split('.').next().unwrap_or_default() {
        "wal" => Class::Write,
        "flush" | "commit" | "outbox" | "object" | "upload" => Class::Commit,
        "compact" => Class::Compaction,
        "cleaner" if matches!(point, "cleaner.before-delete" | "cleaner.in-delete") => Class::Compaction,
        "replay" => Class::Replay,
        _ => Class::Other,
    }
}

/// SIGKILL at a moment of chance.
pub(crate) fn random_kill(rng: &mut SmallRng) -> Round {
    let load = [Load::Writes, Load::Flushes, Load::Compactions][rng.random_range(0..3)];
    Round { point: None, hit: 0, load }
}

/// A round at a fail point, at one of the first hits that it surely gets.
pub(crate) fn at(point: &'static str, rng: &mut SmallRng) -> Round {
    let (family, _) = point.split_once('.').expect("area and place");
    let (hits, load) = match family {
        "wal" if matches!(point, "wal.before-seal" | "wal.after-seal" | "wal.before-retire" | "wal.after-retire") => {
            (2, Load::Flushes)
        }
        "wal" if point == "wal.after-create" => (2, Load::Flushes),
        "wal" => (60, Load::Writes),
        "flush" | "commit" | "outbox" | "object" | "upload" | "spool" => (3, Load::Flushes),
        "compact" if point == "compact.in-merge" => (12, Load::Compactions),
        // What a dead job left, and what a compaction replaced.
        "cleaner" if point.contains("doom") => (1, Load::Nothing),
        "compact" | "cleaner" => (2, Load::Compactions),
        "close" => (1, Load::Stop),
        _ => (1, Load::Nothing),
    };
    Round { point: Some(point), hit: rng.random_range(1..=hits), load }
}

/// Gives the fail points of some areas: what stands before the dot of a name.
pub(crate) fn of_areas(areas: &[&str]) -> Vec<&'static str> {
    NAMES.iter().copied().filter(|name| areas.contains(&name.split('.').next().unwrap_or_default())).collect()
}

/// Points that are passed in every life of a server, over a local store; twice what is between much work.
fn of_every_life() -> Vec<&'static str> {
    let mut points = of_areas(&["wal", "flush", "commit", "outbox", "object", "compact", "cleaner", "close"]);
    points.retain(|point| !point.contains("prune") && DOOMED.iter().all(|(_, after)| after != point));
    points.extend(["compact.in-merge", "compact.after-part", "compact.before-commit"]);
    points
}

/// Points that are passed only when a job died before its commit, after a point where it does.
const DOOMED: &[(&str, &str)] = &[
    ("flush.after-part", "cleaner.after-doom"),
    ("flush.before-commit", "cleaner.after-doomed-delete"),
    ("compact.before-commit", "cleaner.after-doomed-forget"),
];

/// The first round of a new installation: each of its points is passed once in its life.
pub(crate) fn birth(number: usize, rng: &mut SmallRng) -> Round {
    let points = of_areas(&["open"]);
    at(points[number % points.len()], rng)
}

/// Gives the chains of rounds over a local store, in an order of chance: each point once, `replays` times as many
/// deaths in replay, `randoms` kills of chance.
pub(crate) fn local(rng: &mut SmallRng, replays: usize, randoms: usize) -> Vec<Vec<Round>> {
    let mut chains: Vec<Vec<Round>> = of_every_life().into_iter().map(|p| vec![at(p, rng)]).collect();
    let deaths = of_areas(&["replay"]);
    for point in deaths.iter().cycle().take(replays * deaths.len()) {
        // Without flushes there is something to replay.
        let kill = Round { point: None, hit: 0, load: Load::Writes };
        chains.push(vec![kill, at(point, rng)]);
    }
    chains.extend(DOOMED.iter().map(|(death, after)| vec![Round { hit: 1, ..at(death, rng) }, at(after, rng)]));
    chains.extend((0..randoms).map(|_| vec![random_kill(rng)]));
    chains.shuffle(rng);
    chains
}

/// The same over a remote store.
pub(crate) fn remote(rng: &mut SmallRng, times: usize) -> Vec<Vec<Round>> {
    let points = of_areas(&["upload", "spool"]);
    let mut chains: Vec<Vec<Round>> =
        points.iter().cycle().take(times * points.len()).map(|p| vec![at(p, rng)]).collect();
    chains.shuffle(rng);
    chains
}

/// Kills so far, and what was seen.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// By class.
    pub(crate) kills: BTreeMap<Class, usize>,
    /// By fail point.
    pub(crate) hits: BTreeMap<&'static str, usize>,
    /// Fail points that were armed and not passed.
    pub(crate) missed: BTreeMap<&'static str, usize>,
    /// Comparisons of everything.
    pub(crate) checks: usize,
    /// Samples in the last of them, of all installations.
    pub(crate) samples: usize,
}

impl Tally {
    /// Adds another one.
    pub(crate) fn add(&mut self, other: &Self) {
        other.kills.iter().for_each(|(class, n)| *self.kills.entry(*class).or_default() += n);
        other.hits.iter().for_each(|(point, n)| *self.hits.entry(point).or_default() += n);
        other.missed.iter().for_each(|(point, n)| *self.missed.entry(point).or_default() += n);
        self.checks += other.checks;
        self.samples += other.samples;
    }

    /// Counts a death at a fail point, or by our hand.
    pub(crate) fn killed(&mut self, point: Option<&'static str>) {
        *self.kills.entry(class_of(point)).or_default() += 1;
        if let Some(point) = point {
            *self.hits.entry(point).or_default() += 1;
        }
    }

    /// Counts all kills.
    pub(crate) fn total(&self) -> usize {
        self.kills.values().sum()
    }
}
