//! The loop that all targets share: generates a case from its seed, runs it within a memory limit, and prints how to
//! reproduce a failure.
//!
//! The number of a case is its seed, so a run can start with any case.

use std::fmt::Debug;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;
use tikv_jemalloc_ctl::thread::allocatedp;

/// Longest part of an input that a failure shows.
const SHOWN_CHARS: usize = 4000;

/// Most processor time of a case (H11), and how long it may take before it is called a hang.
const CPU_MAX: Duration = Duration::from_secs(1);
const HANG: Duration = Duration::from_secs(30);

/// Processor time that this thread spent so far.
fn thread_cpu() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0))
}

/// Ends the process when a case does not end: there is no other way to fail for a thread that hangs.
struct Watch {
    /// The case at hand.
    case: Arc<AtomicU64>,
    done: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    fn over(name: &'static str) -> Self {
        let (done, ended) = mpsc::channel::<()>();
        let case = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&case);
        let watch = move || {
            let mut last = u64::MAX;
            while ended.recv_timeout(HANG) == Err(mpsc::RecvTimeoutError::Timeout) {
                let now = seen.load(Relaxed);
                if now == last {
                    say(&format!("{name} hangs: QUIVER_SEED={now} shows it again"));
                    std::process::abort();
                }
                last = now;
            }
        };
        Self { case, done: Some(done), thread: Some(std::thread::spawn(watch)) }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.done.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Gives a number from the environment.
fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

pub(crate) fn soak() -> bool {
    std::env::var_os("QUIVER_SOAK").is_some_and(|v| v == "1")
}

fn seconds() -> u64 {
    given("QUIVER_FUZZ_SECONDS").unwrap_or(if soak() { 200 } else { 20 })
}

/// The first seed: the given one, the same one in each run of CI, a new one in each soak.
fn first_seed() -> u64 {
    given("QUIVER_SEED").unwrap_or_else(|| if soak() { rand::random::<u32>().into() } else { 1 })
}

/// Writes past the capture of the test harness: a stack overflow ends the process with nothing else shown.
pub(crate) fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").expect("standard error is open");
}

/// Bytes that this thread ever allocated.
pub(crate) fn allocated_bytes() -> u64 {
    allocatedp::read().expect("jemalloc counts").get()
}

/// Runs something; gives the bytes that it allocated in this thread, freed ones included.
pub(crate) fn allocated_by(work: impl FnOnce()) -> u64 {
    let before = allocated_bytes();
    work();
    allocated_bytes() - before
}

/// A fuzz target.
pub(crate) struct Target<I> {
    /// Name for messages.
    pub(crate) name: &'static str,
    /// Makes the input of a case.
    pub(crate) make: fn(&mut StdRng) -> I,
    /// Size of an input in bytes.
    pub(crate) size: fn(&I) -> usize,
    /// Most bytes that a case may allocate, by the size of its input.
    pub(crate) bytes_max: fn(usize) -> u64,
}

impl<I: Debug> Target<I> {
    /// Runs cases until the time is over; gives how many.
    ///
    /// # Panics
    /// When a case panics or allocates too much.
    pub(crate) fn run(&self, mut check: impl FnMut(&I)) -> u64 {
        let (seed, began) = (first_seed(), Instant::now());
        say(&format!("{}: seed {seed}", self.name));
        let (mut cases, mut largest) = (0, 0);
        let watch = Watch::over(self.name);
        while cases == 0 || began.elapsed() < Duration::from_secs(seconds()) {
            let case = seed.wrapping_add(cases);
            let input = (self.make)(&mut StdRng::seed_from_u64(case));
            let (mut bytes, begins) = (0, Instant::now());
            watch.case.store(case, Relaxed);
            let outcome = catch_unwind(AssertUnwindSafe(|| bytes = allocated_by(|| check(&input))));
            if outcome.is_ok() && begins.elapsed() > CPU_MAX {
                // The machine may have been busy with others: what counts is its processor time, once more.
                let before = thread_cpu();
                check(&input);
                let spent = thread_cpu().saturating_sub(before);
                if spent > CPU_MAX {
                    self.show(case, &input);
                    panic!("{}: case {case} took {spent:?} of processor time, {CPU_MAX:?} are allowed", self.name);
                }
            }
            if let Err(panic) = outcome {
                self.show(case, &input);
                resume_unwind(panic);
            }
            let allowed = (self.bytes_max)((self.size)(&input));
            if bytes > allowed {
                self.show(case, &input);
                panic!("{}: case {case} allocated {bytes} bytes, {allowed} are allowed", self.name);
            }
            largest = largest.max(bytes);
            cases += 1;
        }
        let kib = largest / 1024;
        say(&format!("{}: {cases} cases in {:.1} s, at most {kib} KiB each", self.name, began.elapsed().as_secs_f64()));
        cases
    }

    fn show(&self, case: u64, input: &I) {
        let shown: String = format!("{input:?}").chars().take(SHOWN_CHARS).collect();
        say(&format!("{} failed: QUIVER_SEED={case} shows it again; input: {shown}", self.name));
    }
}
