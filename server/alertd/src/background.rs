//! Tasks that run as long as the server does.
//!
//! One that met a fault of ours begins anew and is told of. Otherwise alerts would not be sent any more, or rights that were
//! withdrawn would hold, while everything looks well.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long a task rests after a fault: one that comes again at once fills no log.
pub(crate) const REST: Duration = if cfg!(test) { Duration::from_millis(10) } else { Duration::from_secs(5) };
/// How long operators are told of a fault.
const TOLD: Duration = Duration::from_hours(1);

/// The faults that background tasks met, by the name of the task.
#[derive(Debug, Default)]
pub struct BackgroundTasks(Mutex<BTreeMap<&'static str, Faults>>);

#[derive(Debug)]
struct Faults {
    count: u64,
    last: Instant,
}

impl BackgroundTasks {
    /// Spawns a task that `make` makes, and makes it again after a panic, until it returns or `stop`.
    pub fn spawn(
        self: &Arc<Self>,
        name: &'static str,
        stop: &CancellationToken,
        make: impl Fn() -> BoxFuture<'static, ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (tasks, stop) = (Arc::clone(self), stop.clone());
        tokio::spawn(async move {
            loop {
                // A task of its own: its panic ends nothing else.
                let task = tokio::spawn(make());
                match task.await {
                    Err(error) if error.is_panic() => {
                        tracing::error!(%error, "the {name} met a fault of ours, and begins anew");
                        tasks.failed(name);
                    }
                    _ => return,
                }
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(REST) => {}
                }
            }
        })
    }

    /// Notes that a task met a fault.
    pub(crate) fn failed(&self, name: &'static str) {
        let (mut all, now) = (self.0.lock(), Instant::now());
        let faults = all.entry(name).or_insert(Faults { count: 0, last: now });
        (faults.count, faults.last) = (faults.count + 1, now);
    }

    /// Messages for operators: which tasks met faults in the last hour.
    pub fn notes(&self) -> Vec<String> {
        let all = self.0.lock();
        let late = all.iter().filter(|(_, faults)| faults.last.elapsed() < TOLD);
        let text =
            |(name, faults): (&&str, &Faults)| format!("faults of ours in the {name}: {}; see the log", faults.count);
        late.map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use super::*;

    /// Breaks where a task that panicked is gone for good, or where nobody is told.
    #[tokio::test]
    async fn a_task_begins_anew_after_a_fault() {
        let (tasks, stop) = (Arc::<BackgroundTasks>::default(), CancellationToken::new());
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let make = move || -> BoxFuture<'static, ()> {
            let run = counted.fetch_add(1, SeqCst);
            Box::pin(async move { assert!(run >= 2, "a fault") })
        };
        tasks.spawn("test", &stop, make).await.unwrap();
        assert_eq!(runs.load(SeqCst), 3, "one that returns is done");
        assert_eq!(tasks.notes(), ["faults of ours in the test: 2; see the log"]);
    }

    #[tokio::test]
    async fn the_end_of_the_server_ends_them() {
        let (tasks, stop) = (Arc::<BackgroundTasks>::default(), CancellationToken::new());
        stop.cancel();
        let is_sound = tasks.notes().len() > 1;
        let make = move || -> BoxFuture<'static, ()> { Box::pin(async move { assert!(is_sound, "a fault") }) };
        tasks.spawn("test", &stop, make).await.unwrap();
        assert_eq!(tasks.notes().len(), 1);
        assert!(BackgroundTasks::default().notes().is_empty());
    }
}
