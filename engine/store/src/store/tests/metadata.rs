//! Metadata of metrics is limited when it is stored and when it is read, since senders may send it for any number of
//! metrics.

use std::sync::atomic::AtomicUsize;

use quiver_types::read_stats::Gate;
use quiver_types::{Error, ErrorKind, ReadStats, Result};

use super::*;

/// Counts what is taken, and has no more than this.
#[derive(Debug)]
struct Counted {
    taken: AtomicUsize,
    bytes_max: usize,
}

impl Gate for Counted {
    fn take(&self, bytes: usize) -> Result<()> {
        if self.taken.fetch_add(bytes, Relaxed) + bytes > self.bytes_max {
            return Err(Error::new(ErrorKind::LimitExceeded, "no more memory"));
        }
        Ok(())
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Relaxed);
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }
}

fn stats(bytes_max: usize) -> (ReadStats, Arc<Counted>) {
    let gate = Arc::new(Counted { taken: AtomicUsize::new(0), bytes_max });
    let stats = ReadStats::default();
    stats.set_gate(Arc::clone(&gate) as Arc<dyn Gate>);
    (stats, gate)
}

async fn tell(store: &Store, prefix: &str, metrics: usize) {
    let mut batch = MetricsBatch::default();
    for n in 0..metrics {
        let (metric, text) = (format!("{prefix}{n:06}"), str::to_owned);
        let (metric_type, help, unit) = (text("gauge"), text("some help"), String::new());
        batch.metadata.push(MetricMetadata { metric, metric_type, help, unit });
    }
    store.write_metrics(batch).await.unwrap();
}

/// Names of metrics that are known, or the kind of the error.
async fn known(store: &Arc<Store>, stats: &ReadStats) -> std::result::Result<usize, ErrorKind> {
    let snapshot = store.source().snapshot();
    snapshot.metadata(&Access::full(), None, stats).await.map(|all| all.len()).map_err(|e| e.kind)
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_asked_for_before_it_is_read() {
    const METRICS: usize = 2000;
    let bench = Bench::new(false);
    let store = bench.open().await;
    tell(&store, "live", METRICS).await;
    let refused = |found: std::result::Result<usize, ErrorKind>| assert_eq!(found, Err(ErrorKind::LimitExceeded));
    refused(known(&store, &stats(METRICS * 50).0).await);
    store.flush_all().await.unwrap();
    refused(known(&store, &stats(METRICS * 50).0).await);
    let (enough, gate) = stats(METRICS * 2000);
    assert_eq!(known(&store, &enough).await, Ok(METRICS));
    let taken = gate.taken.load(Relaxed);
    assert!((METRICS * 50..METRICS * 1000).contains(&taken), "{taken} bytes");
    // Of what is kept no more is asked for than the answer; new parts are read beside it.
    tell(&store, "more", METRICS).await;
    store.flush_all().await.unwrap();
    assert_eq!(known(&store, &stats(METRICS * 4000).0).await, Ok(2 * METRICS));
    store.close(CLOSE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_metadata_is_kept_than_there_is_room_for() {
    let mut bench = Bench::new(false);
    bench.tune = |settings| settings.memory_limit_bytes = 16 << 20;
    let store = bench.open().await;
    for round in 0..10 {
        tell(&store, &format!("round{round}_"), 1000).await;
    }
    // A 32nd of the limit: 512 KiB, some 200 bytes each.
    let of_a_day = known(&store, &ReadStats::default()).await.unwrap();
    assert!((2000..4000).contains(&of_a_day), "{of_a_day} of 10,000");
    store.flush_all().await.unwrap();
    assert_eq!(known(&store, &ReadStats::default()).await, Ok(of_a_day));
    bench.clock.pass(DAY_MS);
    tell(&store, "tomorrow", 1000).await;
    assert_eq!(known(&store, &ReadStats::default()).await, Ok(of_a_day + 1000));
    store.close(CLOSE).await;
}
