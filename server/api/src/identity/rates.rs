//! How often a key may ask: a bucket for each, so that one program that runs wild leaves the others their turn.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Most keys whose buckets are remembered; full ones are forgotten first.
const REMEMBERED: usize = 10_000;

/// Bounds of the requests of a key that are not ingest.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KeyRate {
    /// Requests per second; 0: any.
    pub per_second: u32,
    /// Requests at once.
    pub burst: u32,
}

impl Default for KeyRate {
    fn default() -> Self {
        Self { per_second: 100, burst: 200 }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at_ms: i64,
}

/// The buckets.
#[derive(Debug, Default)]
pub(super) struct Rates {
    rate: KeyRate,
    buckets: Mutex<HashMap<String, Bucket>>,
}

impl Rates {
    pub(super) fn new(rate: KeyRate) -> Self {
        Self { rate, buckets: Mutex::default() }
    }

    /// Takes a request of a key; or says how many seconds it has to wait.
    pub(super) fn take(&self, key: &str, now_ms: i64) -> Result<(), u64> {
        let KeyRate { per_second, burst } = self.rate;
        if per_second == 0 {
            return Ok(());
        }
        let (rate, most) = (f64::from(per_second), f64::from(burst.max(1)));
        let mut buckets = self.buckets.lock();
        if buckets.len() >= REMEMBERED && !buckets.contains_key(key) {
            let filled = |b: &Bucket| b.left + (now_ms - b.at_ms).max(0) as f64 / 1000.0 * rate >= most;
            buckets.retain(|_, bucket| !filled(bucket));
            if buckets.len() >= REMEMBERED {
                buckets.clear();
            }
        }
        let bucket = buckets.entry(key.to_owned()).or_insert(Bucket { left: most, at_ms: now_ms });
        let since_s = (now_ms - bucket.at_ms).max(0) as f64 / 1000.0;
        *bucket = Bucket { left: (bucket.left + since_s * rate).min(most), at_ms: now_ms };
        if bucket.left < 1.0 {
            return Err(((1.0 - bucket.left) / rate).ceil().max(1.0) as u64);
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_rests() {
        let rates = Rates::new(KeyRate { per_second: 10, burst: 3 });
        let taken = |key: &str, now_ms: i64| (0..5).filter(|_| rates.take(key, now_ms).is_ok()).count();
        assert_eq!((taken("a", 0), taken("b", 0), taken("a", 0)), (3, 3, 0));
        assert_eq!(rates.take("a", 0), Err(1));
        assert_eq!((taken("a", 100), taken("a", 199), taken("a", 400), taken("a", 60_000)), (1, 0, 3, 3));
        // A clock that goes back gives nothing away, and takes nothing.
        assert_eq!(taken("a", 1000), 0);
        let any = Rates::new(KeyRate { per_second: 0, burst: 0 });
        assert!((0..1000).all(|_| any.take("a", 0).is_ok()));
        for n in 0..2 * REMEMBERED {
            assert!(rates.take(&n.to_string(), 0).is_ok());
        }
        assert!(rates.buckets.lock().len() <= REMEMBERED);
    }
}
