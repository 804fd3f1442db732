//! The kill loop (promises D1, D2, D4, D7, D10): writers record what was acknowledged, the server is killed at fail
//! points and at random moments, and after each kill all data is compared: nothing lost, nothing that was never sent,
//! nothing duplicated.

use quiver_store::failpoint::NAMES;
use quiver_tests::load::{seed, soak};
use quiver_tests::s3::S3Server;
use rand::RngExt;

use crate::arena::Arena;
use crate::kill_plan::{self, Class, Round, Tally};
use crate::retention;

/// Rounds after which a soak goes on with a new installation.
const SOAK_ROUNDS: usize = 100;
/// Rounds of a soak over a local store.
const SOAK_TOTAL: usize = 1000;
/// Commits after which objects of old ones are deleted for sure (two full lists, each 256).
const COMMITS_TO_PRUNE: usize = 800;

async fn rounds(mut arena: Arena, rounds: Vec<Round>) -> Tally {
    for round in &rounds {
        arena.round(round).await;
    }
    arena.finish().await;
    arena.tally
}

/// One installation over a local store; `share` of `shares` of all points.
async fn local(seed: u64, share: usize, shares: usize) -> Tally {
    let mut arena = Arena::new(&format!("local {share}"), seed.wrapping_add(share as u64), None);
    let mut order = vec![kill_plan::birth(share, arena.rng())];
    // The same shuffle in all shares, so that together they have all points.
    let mut dice = rand::SeedableRng::seed_from_u64(seed);
    let chains = kill_plan::local(&mut dice, 4, 6);
    order.extend(chains.into_iter().skip(share).step_by(shares).flatten());
    rounds(arena, order).await
}

async fn remote(seed: u64, times: usize) -> Tally {
    let mut arena = Arena::new("s3", seed.wrapping_add(99), Some(S3Server::start().await));
    let order = kill_plan::remote(arena.rng(), times).into_iter().flatten().collect();
    rounds(arena, order).await
}

fn report(tally: &Tally, seed: u64) -> String {
    let Tally { kills, hits, missed, checks, samples } = tally;
    format!(
        "seed {seed}: {} kills {kills:?}, {checks} comparisons, {samples} samples; points hit: {hits:?}; armed and not passed: {missed:?}",
        tally.total()
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[allow(clippy::print_stdout, reason = "the figures are the outcome")]
async fn kill_loop() {
    let seed = seed("kill_loop");
    let mut tally = Tally::default();
    if soak() {
        soak_rounds(seed, &mut tally).await;
    } else {
        // Together: most of the time is waiting for the disk and for the moment of the kill.
        let tasks = [
            tokio::spawn(local(seed, 0, 2)),
            tokio::spawn(local(seed, 1, 2)),
            tokio::spawn(remote(seed, 1)),
            tokio::spawn(retention::kills(seed)),
        ];
        for task in tasks {
            tally.add(&task.await.expect("an arena holds"));
        }
    }
    let report = report(&tally, seed);
    println!("{report}");
    assert!(tally.total() >= 50, "{report}");
    for class in [Class::Write, Class::Commit, Class::Compaction, Class::Replay] {
        assert!(tally.kills.get(&class).is_some_and(|n| *n >= 10), "fewer than 10 kills in {class:?}: {report}");
    }
    if soak() {
        // Those of backups have a test of their own.
        let ours = |name: &&&str| !name.starts_with("backup.") && !name.starts_with("restore.");
        let never: Vec<_> = NAMES.iter().filter(ours).filter(|name| !tally.hits.contains_key(*name)).collect();
        assert!(never.is_empty(), "never passed: {never:?}; {report}");
    }
}

#[allow(clippy::print_stdout, reason = "a soak runs for long, and says how far it is")]
async fn soak_rounds(seed: u64, tally: &mut Tally) {
    for episode in 0_usize.. {
        if tally.total() >= SOAK_TOTAL {
            break;
        }
        let mut arena = Arena::new(&format!("local {episode}"), seed.wrapping_add(episode as u64), None);
        let mut order = vec![kill_plan::birth(episode, arena.rng())];
        while order.len() < SOAK_ROUNDS {
            let (replays, randoms) = (arena.rng().random_range(2..6), arena.rng().random_range(5..20));
            order.extend(kill_plan::local(arena.rng(), replays, randoms).into_iter().flatten());
        }
        tally.add(&rounds(arena, order).await);
        println!("{}", report(tally, seed));
    }
    tally.add(&remote(seed, 12).await);
    tally.add(&retention::kills(seed).await);
    let mut arena = Arena::new("old", seed, None);
    for point in ["outbox.before-prune", "outbox.after-prune-object", "outbox.after-prune"] {
        arena.age(point, COMMITS_TO_PRUNE).await;
    }
    arena.finish().await;
    tally.add(&arena.tally);
}
