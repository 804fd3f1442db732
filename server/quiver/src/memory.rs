//! Keeps the process within its memory limit.
//!
//! A thread checks the resident memory many times a second. Near the limit, it makes the allocator return cached pages
//! to the system at once instead of half a second later. If nearly all of the limit is used nevertheless, it signals
//! [`MemoryPressure`]: writes wait, queries spill or fail, until there is room again. Above the limit it ends the
//! largest query.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use quiver_types::MemoryPressure;
use tikv_jemalloc_ctl::{Access, AsName};

use crate::process::{anonymous_bytes, cores, memory_total_bytes, resident_bytes};
use crate::settings::Settings;

/// How often memory is looked at: what is taken in so short a time must fit above the limit.
const INTERVAL: Duration = Duration::from_millis(4);
/// The same while little is used: at least, and at most where a lot more fits. A look takes a tenth of a millisecond, most
/// of what an idle server does.
const EASY_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// What a core takes in a second at most, about: the system has to clear each page.
const CORE_BYTES: u64 = 2 << 30;
/// Below this share of the limit nothing is done.
const EASY_PERCENT: u64 = 60;
/// Pages are given back when so much has been added since the last time.
const STEP_PERCENT: u64 = 4;
/// Above this share memory is short: what is under way goes on for a while, and takes some more.
const SHORT_PERCENT: u64 = 90;
/// Memory that was short is not short any more below this.
const RELAXED_PERCENT: u64 = 86;
/// Above this share of memory that no file backs somebody has to give some back: what runs takes more than it says.
const EXCESS_PERCENT: u64 = 103;
/// How long what was ended may take to give its memory back before somebody else is.
const RELIEF_WITHIN: Duration = Duration::from_millis(200);
/// So long pages that no allocation uses are kept for the next one. Flushes and compactions free as much as they take, at
/// full speed hundreds of megabytes within the ten seconds that are usual.
const DECAY_MS: isize = 500;
/// Code, threads and tables of the process take some memory before anything is stored; a limit below this is none that
/// could be kept by refusing work.
const LEAST_BYTES: u64 = 128 << 20;

/// Gives the memory budget of the process.
pub fn memory_limit_bytes(settings: &Settings) -> u64 {
    match settings.memory.limit.0 {
        0 => memory_total_bytes() / 10 * 6,
        given => given,
    }
}

/// Starts to watch the process; ends when nobody else holds `pressure` any more.
pub fn keep(limit_bytes: u64, pressure: &Arc<MemoryPressure>) {
    let watched = Arc::downgrade(pressure);
    let keeper = Keeper { limit: limit_bytes.max(LEAST_BYTES), left: 0, relieved: None };
    let started = thread::Builder::new().name("quiver-memory".into()).spawn(move || keeper.run(&watched));
    if let Err(error) = started {
        tracing::warn!(%error, "cannot start the thread that watches memory; only what is counted is bounded");
    }
}

struct Keeper {
    limit: u64,
    /// The least resident memory since pages were given back.
    left: u64,
    /// When memory was last asked back.
    relieved: Option<Instant>,
}

impl Keeper {
    fn run(mut self, watched: &Weak<MemoryPressure>) {
        let easy_interval = self.easy_interval(cores() as u64);
        while let Some(pressure) = watched.upgrade() {
            let Some(resident) = resident_bytes() else { return };
            let easy = resident < self.percent(EASY_PERCENT / 2);
            self.look(resident, &pressure);
            drop(pressure);
            thread::sleep(if easy { easy_interval } else { INTERVAL });
        }
    }

    /// How long nobody needs to look while less than half of what is easy is used: until the other half can be.
    fn easy_interval(&self, cores: u64) -> Duration {
        let [least, most] = EASY_INTERVALS;
        let millis = self.percent(EASY_PERCENT / 2).saturating_mul(1000) / (CORE_BYTES * cores);
        Duration::from_millis(millis).clamp(least, most)
    }

    fn percent(&self, percent: u64) -> u64 {
        self.limit / 100 * percent
    }

    fn look(&mut self, mut resident: u64, pressure: &MemoryPressure) {
        self.left = self.left.min(resident);
        if resident > self.percent(EASY_PERCENT) && resident > self.left + self.percent(STEP_PERCENT) {
            give_back();
            resident = resident_bytes().unwrap_or(resident);
            self.left = resident;
        }
        if resident > self.percent(SHORT_PERCENT) {
            pressure.tell(true);
        } else if resident < self.percent(RELAXED_PERCENT) {
            pressure.tell(false);
        }
        if resident > self.percent(EXCESS_PERCENT)
            && self.relieved.is_none_or(|at| at.elapsed() >= RELIEF_WITHIN)
            && anonymous_bytes().unwrap_or(0) > self.percent(EXCESS_PERCENT)
        {
            self.relieved = Some(Instant::now());
            pressure.relieve();
        }
    }
}

/// Lets the allocator give back pages that no allocation uses soon after they were freed. Where the allocator is another
/// one, nothing happens.
pub fn give_back_soon() {
    // Without waiting for the next allocation; only helps, so a refusal is no error.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
    // For arenas that are made later, then for those that are there.
    let _ = "arenas.dirty_decay_ms\0".name().write(DECAY_MS);
    set_decay(DECAY_MS);
}

/// Gives all pages that no allocation uses to the system: with a decay time of 0 they go at once.
fn give_back() {
    set_decay(0);
    set_decay(DECAY_MS);
}

fn set_decay(ms: isize) {
    let Ok(arenas) = tikv_jemalloc_ctl::arenas::narenas::read() else { return };
    let Ok(mut decay) = "arena.0.dirty_decay_ms\0".name().mib::<[usize; 3]>() else { return };
    for arena in 0..arenas {
        decay[1] = arena as usize;
        // An arena that was never used has no decay time.
        let _ = decay.write(ms);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use super::*;

    #[test]
    fn short_above_the_limit_until_well_below() {
        let pressure = MemoryPressure::default();
        let mut keeper = Keeper { limit: u64::MAX / 2, left: 0, relieved: None };
        keeper.look(1, &pressure);
        assert!(!pressure.is_short());
        // What this process really has is more than a limit of a few bytes, and less than one of exabytes.
        keeper.limit = 1000;
        keeper.look(1 << 40, &pressure);
        assert!(pressure.is_short());
        keeper.look(870, &pressure);
        assert!(pressure.is_short());
        keeper.look(850, &pressure);
        assert!(!pressure.is_short());
    }

    #[test]
    fn above_the_limit_somebody_gives_back_once_in_a_while() {
        let asked = Arc::new(AtomicUsize::new(0));
        let (pressure, counted) = (MemoryPressure::default(), Arc::clone(&asked));
        pressure.relieved_by(move || {
            counted.fetch_add(1, Relaxed);
        });
        let mut keeper = Keeper { limit: u64::MAX / 2, left: 0, relieved: None };
        keeper.look(1 << 40, &pressure);
        assert_eq!(asked.load(Relaxed), 0);
        keeper.limit = 1000;
        keeper.look(1 << 40, &pressure);
        keeper.look(1 << 40, &pressure);
        assert_eq!(asked.load(Relaxed), 1);
    }

    #[test]
    fn small_limits_are_looked_at_more_often() {
        let check = |limit: u64, cores: u64, millis: u64| {
            let keeper = Keeper { limit, left: 0, relieved: None };
            assert_eq!(keeper.easy_interval(cores), Duration::from_millis(millis), "{limit} bytes, {cores} cores");
        };
        check(128 << 20, 2, 50);
        check(1000 << 20, 2, 73);
        check(1000 << 20, 64, 50);
        check(16 << 30, 2, 250);
        check(1 << 50, 64, 250);
    }

    #[test]
    fn ends_with_the_last_holder() {
        let pressure = Arc::new(MemoryPressure::default());
        keep(1 << 40, &pressure);
        let weak = Arc::downgrade(&pressure);
        drop(pressure);
        while weak.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
