//! Queries that wait for their readers. Each keeps its place and its memory, but not for long while others wait for a
//! place: a few readers that take nothing would otherwise keep everybody waiting until their time limit.

use std::pin::pin;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use quiver_types::{Error, ErrorKind, Result};
use tokio::time::timeout;

use crate::used::QueryUse;

/// How long a reader may take nothing while others wait.
const STALLED_MAX: Duration = Duration::from_secs(10);
/// How often is looked whether others wait.
const LOOK: Duration = Duration::from_millis(500);
/// At so many looks in a row others must wait: for a moment, some often do.
const CROWDED_LOOKS: u32 = 4;

/// Waits until the reader of a query's rows takes some.
///
/// # Errors
/// Unavailable: it took none for long, and others wait for the place.
pub(crate) async fn taken<T>(used: &QueryUse, reader: impl Future<Output = T>) -> Result<T> {
    taken_within(used, reader, STALLED_MAX, LOOK).await
}

async fn taken_within<T>(
    used: &QueryUse,
    reader: impl Future<Output = T>,
    stalled_max: Duration,
    look: Duration,
) -> Result<T> {
    let mut reader = pin!(reader);
    let (began, mut crowded) = (Instant::now(), 0);
    loop {
        if let Ok(taken) = timeout(look, reader.as_mut()).await {
            return Ok(taken);
        }
        crowded = if used.waiting.load(Relaxed) == 0 { 0 } else { crowded + 1 };
        if crowded >= CROWDED_LOOKS && began.elapsed() >= stalled_max {
            let text = format!("no rows were taken for {} s, and other queries wait", stalled_max.as_secs());
            return Err(Error::new(ErrorKind::Unavailable, text));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_millis(60);
    const SHORT: Duration = Duration::from_millis(5);

    #[tokio::test]
    async fn readers_have_time_while_nobody_waits() {
        let used = QueryUse::default();
        let late = async {
            tokio::time::sleep(4 * LONG).await;
            7
        };
        assert_eq!(taken_within(&used, late, LONG, SHORT).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn readers_that_take_nothing_give_way_to_those_that_wait() {
        let used = QueryUse::default();
        used.waiting.store(1, Relaxed);
        let began = Instant::now();
        let error = taken_within(&used, std::future::pending::<()>(), LONG, SHORT).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unavailable);
        assert!(began.elapsed() >= LONG, "they have some time");
        assert_eq!(taken_within(&used, std::future::ready(7), Duration::ZERO, SHORT).await.unwrap(), 7, "not these");
    }
}
