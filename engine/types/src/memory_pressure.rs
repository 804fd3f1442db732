//! Whether the process is short of memory: set by a watcher, checked by code that is about to take more.
//!
//! The budgets of the parts (live data, queries, caches) count memory where it is taken. What no budget counts (request
//! bodies, batches between operators, what the allocator keeps) shows only in the size of the process. When that is above
//! the limit, new work waits or is refused until it has fallen. If that does not suffice, because running work uses more
//! than it reserved, a callback may end some of it.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A callback that frees memory at once.
type Relief = Box<dyn Fn() + Send + Sync>;

/// Tells whether memory is short. It is not until [`Self::tell`] says so.
#[derive(Default)]
pub struct MemoryPressure {
    short: AtomicBool,
    relief: OnceLock<Relief>,
}

impl fmt::Debug for MemoryPressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MemoryPressure").field(&self.short).finish()
    }
}

impl MemoryPressure {
    /// Sets whether memory is short.
    pub fn tell(&self, short: bool) {
        self.short.store(short, Relaxed);
    }

    /// Whether memory is short now.
    pub fn is_short(&self) -> bool {
        self.short.load(Relaxed)
    }

    /// Registers a callback that frees memory when the process exceeds its limit; only the first one is kept.
    pub fn relieved_by(&self, relief: impl Fn() + Send + Sync + 'static) {
        let _ = self.relief.set(Box::new(relief));
    }

    /// Calls the callback, if there is one.
    pub fn relieve(&self) {
        if let Some(relief) = self.relief.get() {
            relief();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn the_first_who_gives_memory_back_is_asked() {
        let pressure = MemoryPressure::default();
        assert!(!pressure.is_short());
        pressure.relieve();
        let asked = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        for who in 0..2 {
            let asked = Arc::clone(&asked);
            pressure.relieved_by(move || {
                asked[who].fetch_add(1, Relaxed);
            });
        }
        pressure.tell(true);
        assert!(pressure.is_short(), "nobody is asked for that alone");
        pressure.relieve();
        pressure.relieve();
        assert_eq!([0, 1].map(|who| asked[who].load(Relaxed)), [2, 0]);
        pressure.tell(false);
        assert_eq!((pressure.is_short(), format!("{pressure:?}")), (false, "MemoryPressure(false)".to_owned()));
    }
}
