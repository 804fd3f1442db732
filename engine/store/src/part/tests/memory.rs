//! Reading parts within the memory limit of a query.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use quiver_types::read_stats::Gate;
use quiver_types::{Error, ErrorKind, ReadStats, Result};

/// How many bytes there are, and how many of them are taken.
#[derive(Debug)]
pub(in crate::part) struct Budget {
    most: i64,
    taken: AtomicI64,
}

impl Budget {
    /// A budget, and counters that ask it.
    pub(in crate::part) fn of(most: i64) -> (Arc<Self>, ReadStats) {
        let (budget, stats) = (Arc::new(Self { most, taken: AtomicI64::new(0) }), ReadStats::default());
        stats.set_gate(Arc::clone(&budget) as Arc<dyn Gate>);
        (budget, stats)
    }

    pub(in crate::part) fn taken(&self) -> i64 {
        self.taken.load(Relaxed)
    }
}

impl Gate for Budget {
    fn take(&self, bytes: usize) -> Result<()> {
        if self.taken() + bytes as i64 > self.most {
            return Err(Error::new(ErrorKind::LimitExceeded, "no more memory"));
        }
        self.taken.fetch_add(bytes as i64, Relaxed);
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes as i64, Relaxed);
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}
