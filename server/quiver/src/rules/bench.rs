//! An engine for unit tests: a store of its own in a temporary directory, with PromQL as the server runs it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use quiver_alerting::rules::{Element, Engine, Language, Room, RuleSample};
use quiver_alerting::unit_tests::Bench;
use quiver_promql::{PromqlEngine, PromqlSettings, QueryOptions, QueryValue};
use quiver_query::{Limits, QueryContext};
use quiver_store::Store;
use quiver_types::{Access, Millis, SystemClock};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::alerting::engine::{batch_of, elements_of};
use crate::memory::memory_limit_bytes;
use crate::settings::LoadedSettings;
use crate::wiring::engines::promql_alone;

/// A directory that is deleted on drop.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> std::io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        loop {
            let name = format!("quiver-rules-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(name);
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be deleted remains in the system's temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Memory limits of a component within a process that does other things as well, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct MemoryPart {
    /// Limit of the component itself.
    pub own: u64,
    /// Limit of the whole process.
    pub process: u64,
}

/// Limits of tests.
#[derive(Debug, Clone, Default)]
pub struct Bounds {
    /// Memory for the store and the engine of a test; `None`: as much as a server takes, without a limit on what rules hold.
    pub memory: Option<MemoryPart>,
    /// Most bytes of the outcome of a test; `None`: any number.
    pub told_bytes_max: Option<usize>,
    /// Cancels running evaluations once nobody waits for them.
    pub stop: CancellationToken,
}

/// An initially empty store with the engine above it.
#[derive(Debug)]
pub struct StoreBench {
    runtime: Handle,
    store: Arc<Store>,
    promql: PromqlEngine,
    stop: CancellationToken,
    room: Room,
    told_bytes_max: usize,
    _folder: Scratch,
}

impl StoreBench {
    /// Opens a store. `runtime` must not be driven by the calling thread; `subquery_step_ms` is the step of
    /// subqueries that have none.
    ///
    /// # Errors
    /// The error of the store or the system, as text.
    pub fn open(runtime: Handle, subquery_step_ms: Millis, bounds: &Bounds) -> Result<Self, String> {
        let folder = Scratch::new().map_err(|e| format!("cannot make a temporary folder: {e}"))?;
        let mut flags = vec![
            ("store.data", folder.0.display().to_string()),
            // Test times begin in 1970 and may reach any length.
            ("store.retention", "none".to_owned()),
            // Nothing has to survive the process.
            ("wal.level", "os".to_owned()),
            ("compaction.enabled", "false".to_owned()),
        ];
        flags.extend(bounds.memory.map(|memory| ("memory.limit", memory.own.to_string())));
        let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).map_err(|e| e.to_string())?;
        let process = bounds.memory.map_or_else(|| memory_limit_bytes(&loaded.settings), |memory| memory.process);
        let promql = PromqlSettings { subquery_step_ms, ..PromqlSettings::default() };
        let (store, promql) = runtime
            .block_on(promql_alone(&loaded.settings, process, promql, Arc::new(SystemClock)))
            .map_err(|e| e.to_string())?;
        // The same share of memory that the rules of a server may take.
        let room = bounds.memory.map_or_else(Room::default, |memory| Room::new((memory.own / 5) as usize));
        let told_bytes_max = bounds.told_bytes_max.unwrap_or(usize::MAX);
        Ok(Self { runtime, store, promql, stop: bounds.stop.clone(), room, told_bytes_max, _folder: folder })
    }
}

impl StoreBench {
    /// Evaluates a PromQL expression at a time.
    ///
    /// # Errors
    /// The text of the error.
    pub(super) fn ask(&self, expr: &str, at: Millis) -> Result<Arc<QueryValue>, String> {
        let limits = Limits { timeout: Duration::from_mins(2), ..Limits::default() };
        let mut ctx = QueryContext::new(Access::full(), limits);
        ctx.cancel = self.stop.child_token();
        let answer = self.runtime.block_on(self.promql.instant(expr, at, &QueryOptions::default(), &ctx));
        answer.map(|answer| answer.value).map_err(|e| e.to_string())
    }
}

impl Drop for StoreBench {
    fn drop(&mut self) {
        self.runtime.block_on(self.store.close(Duration::ZERO));
    }
}

impl Bench for StoreBench {
    fn room(&self) -> Room {
        self.room.clone()
    }

    fn told_bytes_max(&self) -> usize {
        self.told_bytes_max
    }
}

impl Engine for StoreBench {
    fn query(&self, _: usize, language: Language, expr: &str, at: Millis) -> Result<Vec<Element>, String> {
        if language != Language::Promql {
            return Err(format!("unit tests know PromQL only, not {}", language.as_str()));
        }
        let value = self.ask(expr, at)?;
        elements_of(&value)
    }

    fn write(&self, samples: &[RuleSample]) -> Result<(), String> {
        let outcome = self.runtime.block_on(self.store.write_metrics(batch_of(samples))).map_err(|e| e.to_string())?;
        if outcome.refused.is_empty() { Ok(()) } else { Err(format!("refused: {:?}", outcome.refused)) }
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::Runtime;

    use super::*;

    /// A server may use more memory than a test is allowed; that does not make memory short for the test.
    #[test]
    fn what_the_process_holds_beside_tests_is_not_theirs() {
        const OWN: u64 = 128 << 20;
        let others = vec![1_u8; OWN as usize + (32 << 20)];
        let runtime = Runtime::new().expect("a runtime");
        let bounds = Bounds { memory: Some(MemoryPart { own: OWN, process: 1 << 40 }), ..Bounds::default() };
        let bench = StoreBench::open(runtime.handle().clone(), 60_000, &bounds).expect("a store");
        // The result is larger than queries may use if memory is short.
        let found = bench.query(0, Language::Promql, "max_over_time(vector(1)[10s:1ms])", 60_000);
        assert_eq!(found.map(|elements| elements.len()), Ok(1));
        std::hint::black_box(others);
    }
}
