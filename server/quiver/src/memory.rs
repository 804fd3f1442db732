//! Keeps the process within its memory limit.
//!
//! A thread checks the resident memory many times a second. Near the limit, it makes the allocator return cached pages
//! to the system at once instead of half a second later. If nearly all of the limit is used nevertheless, it takes the
//! pages of the program's file that are not used at the moment out of the process, which nobody holds. If that does not
//! suffice, it signals [`MemoryPressure`]: writes wait, queries spill or fail, until there is room again. Above the limit it ends
//! the largest query.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use quiver_types::MemoryPressure;
use tikv_jemalloc_ctl::{Access, AsName};

use crate::process_info::{anonymous_bytes, cores, file_bytes, memory_total_bytes, resident_bytes};
use crate::program_pages;
use crate::settings::Settings;

/// How often memory is checked. What can be allocated in this time must fit above the limit.
const INTERVAL: Duration = Duration::from_millis(4);
/// Shortest and longest interval while little memory is used. A check takes a tenth of a millisecond, which is most of
/// what an idle server does.
const EASY_INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// Rough upper bound of the bytes that a core can allocate per second, since the system has to clear each page.
const CORE_BYTES: u64 = 2 << 30;
/// Below this percentage of the limit nothing is done.
const EASY_PERCENT: u64 = 60;
/// Cached pages are returned when this much has been added since the last time.
const STEP_PERCENT: u64 = 4;
/// Above this percentage memory counts as short. There must be room above it, since running work takes some more.
const SHORT_PERCENT: u64 = 90;
/// Below this percentage it no longer counts as short.
const RELAXED_PERCENT: u64 = 86;
/// If anonymous memory exceeds this percentage, running work uses more than it reserved, and some of it must be ended.
const EXCESS_PERCENT: u64 = 103;
/// How often cached pages are returned while memory is short: work that ended in the meantime left some.
const SHORT_STEP: Duration = Duration::from_millis(100);
/// Pages of code are taken out of the process if they have more than this percentage of the limit, and how often: what
/// runs is mapped again soon, in a millisecond for 40 MB.
const CODE_PERCENT: u64 = 4;
const CODE_STEP: Duration = Duration::from_millis(250);
/// How long ended work may take to free its memory before the next is ended.
const RELIEF_WITHIN: Duration = Duration::from_millis(200);
/// How long the allocator keeps unused pages for later allocations. Flushes and compactions free as much as they
/// allocate, hundreds of megabytes within jemalloc's default of ten seconds.
const DECAY_MS: isize = 500;
/// Smallest limit that is enforced: code, threads and tables of the process take some memory before anything is
/// stored, so a smaller limit could not be kept by refusing work.
const LEAST_BYTES: u64 = 128 << 20;

/// Gives the memory budget of the process.
pub fn memory_limit_bytes(settings: &Settings) -> u64 {
    match settings.memory.limit.0 {
        0 => memory_total_bytes() / 10 * 6,
        given => given,
    }
}

/// Starts a thread that watches the resident memory, and ends when all other owners of `pressure` have dropped it.
pub fn watch(limit_bytes: u64, pressure: &Arc<MemoryPressure>) {
    let there = memory_total_bytes();
    if limit_bytes > there {
        tracing::warn!(
            limit = limit_bytes,
            there,
            "`memory.limit` is more than this process may have by its machine or control group: before it is reached, the \
             system ends the process"
        );
    }
    let watched = Arc::downgrade(pressure);
    let keeper = Keeper::new(limit_bytes.max(LEAST_BYTES));
    let started = thread::Builder::new().name("quiver-memory".into()).spawn(move || keeper.run(&watched));
    if let Err(error) = started {
        tracing::warn!(%error, "cannot start the thread that watches memory; only what is counted is bounded");
    }
}

struct Keeper {
    limit: u64,
    /// Least resident memory since pages were last returned.
    left: u64,
    /// When pages were last returned.
    returned: Option<Instant>,
    /// When pages of code were last taken out of the process.
    unmapped: Option<Instant>,
    /// When work was last ended to free memory.
    relieved: Option<Instant>,
}

impl Keeper {
    fn new(limit: u64) -> Self {
        Self { limit, left: 0, returned: None, unmapped: None, relieved: None }
    }

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

    /// The interval while less than half of the easy share is used: the time in which the other half could be
    /// allocated.
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
        let grown = resident > self.percent(EASY_PERCENT) && resident > self.left + self.percent(STEP_PERCENT);
        let waited = pressure.is_short() && self.returned.is_none_or(|at| at.elapsed() >= SHORT_STEP);
        if grown || waited {
            give_back();
            self.returned = Some(Instant::now());
            resident = resident_bytes().unwrap_or(resident);
            self.left = resident;
        }
        if resident > self.percent(SHORT_PERCENT) && self.unmapped_code() {
            resident = resident_bytes().unwrap_or(resident);
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

    /// Takes code out of the process that does not run, unless it is little or was done just now; says whether it did.
    fn unmapped_code(&mut self) -> bool {
        let is_due = self.unmapped.is_none_or(|at| at.elapsed() >= CODE_STEP)
            && file_bytes().is_some_and(|bytes| bytes > self.percent(CODE_PERCENT));
        if is_due {
            program_pages::release();
            self.unmapped = Some(Instant::now());
        }
        is_due
    }
}

/// Makes the allocator return unused pages soon after they were freed. Does nothing if the allocator is not jemalloc.
pub fn give_back_soon() {
    // Returns them without waiting for the next allocation. Only an improvement, so a failure is ignored.
    let _ = tikv_jemalloc_ctl::background_thread::write(true);
    // For arenas made later, then for existing ones.
    let _ = "arenas.dirty_decay_ms\0".name().write(DECAY_MS);
    set_decay(DECAY_MS);
}

/// Returns all unused pages to the system now, by setting the decay time to 0 for a moment.
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
        let mut keeper = Keeper::new(u64::MAX / 2);
        keeper.look(1, &pressure);
        assert!(!pressure.is_short());
        // What this process really has is more than a limit of a few bytes, and less than one of exabytes.
        keeper.limit = 1000;
        keeper.look(1 << 40, &pressure);
        assert!(pressure.is_short());
        // It would measure again when it returns pages.
        keeper.returned = Some(Instant::now() + Duration::from_hours(1));
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
        let mut keeper = Keeper::new(u64::MAX / 2);
        keeper.look(1 << 40, &pressure);
        assert_eq!(asked.load(Relaxed), 0);
        keeper.limit = 1000;
        keeper.look(1 << 40, &pressure);
        keeper.look(1 << 40, &pressure);
        assert_eq!(asked.load(Relaxed), 1);
    }

    #[test]
    fn code_that_does_not_run_is_no_lack_of_memory() {
        let pressure = MemoryPressure::default();
        // The process has less than it was told of. Cached pages were returned just now.
        let (held, code) = (resident_bytes().unwrap(), file_bytes().unwrap());
        let mut keeper = Keeper::new(2 * held);
        keeper.returned = Some(Instant::now() + Duration::from_hours(1));
        keeper.left = 2 * held;
        assert!(code > keeper.percent(CODE_PERCENT), "{code} of {held} bytes are pages of files");
        keeper.look(2 * held, &pressure);
        assert!(!pressure.is_short() && keeper.unmapped.is_some(), "it is measured again without code");
        // Not time and again.
        keeper.look(2 * held, &pressure);
        assert!(pressure.is_short());
        // Nor where code is a small part of what there is.
        let mut large = Keeper { left: 1 << 60, returned: keeper.returned, ..Keeper::new(1 << 60) };
        large.look(1 << 60, &pressure);
        assert!(pressure.is_short() && large.unmapped.is_none());
    }

    #[test]
    fn small_limits_are_looked_at_more_often() {
        let check = |limit: u64, cores: u64, millis: u64| {
            let keeper = Keeper::new(limit);
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
        watch(1 << 40, &pressure);
        let weak = Arc::downgrade(&pressure);
        drop(pressure);
        while weak.strong_count() > 0 {
            thread::yield_now();
        }
    }
}
