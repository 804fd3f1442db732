//! Rate limits per key as token buckets, so that one client that runs wild does not starve the others.
//!
//! A request costs one token, taken before it begins. The size of its telemetry is known only after it has arrived:
//! it is taken then, into debt if necessary, and the next request waits until the debt is paid.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use quiver_types::time::Clock;

/// Most keys whose buckets are remembered; full ones are forgotten first.
const REMEMBERED: usize = 10_000;
/// Largest debt, in seconds of the rate, so that a single large body does not block a key for hours.
const DEBT_S: f64 = 60.0;

/// A rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Tokens per second in the long run; 0: unlimited.
    pub per_second: u64,
    /// Tokens available at once after a pause.
    pub burst: u64,
}

impl Rate {
    /// This many tokens per second, and twice as many at once; 0: unlimited.
    pub fn per_second(per_second: u64) -> Self {
        Self { per_second, burst: per_second.saturating_mul(2) }
    }
}

/// Rate limits of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRates {
    /// Requests other than ingest.
    pub requests: Rate,
    /// Bytes of telemetry bodies on the wire.
    pub ingest_bytes: Rate,
    /// Samples, log rows, spans.
    pub ingest_records: Rate,
}

impl Default for KeyRates {
    fn default() -> Self {
        let any = Rate::per_second(0);
        Self { requests: Rate::per_second(100), ingest_bytes: any, ingest_records: any }
    }
}

#[derive(Debug, Clone, Copy)]
struct Bucket {
    left: f64,
    at_ms: i64,
}

/// A bucket for each key.
#[derive(Debug)]
struct Buckets {
    rate: Rate,
    of_keys: Mutex<HashMap<String, Bucket>>,
}

impl Buckets {
    fn new(rate: Rate) -> Self {
        Self { rate, of_keys: Mutex::default() }
    }

    /// Runs `work` with the tokens that a key has left and their rate. `None` if the rate is unlimited.
    fn with<T>(&self, key: &str, now_ms: i64, work: impl FnOnce(&mut f64, f64) -> T) -> Option<T> {
        if self.rate.per_second == 0 {
            return None;
        }
        let (rate, most) = (self.rate.per_second as f64, self.rate.burst.max(1) as f64);
        let mut buckets = self.of_keys.lock();
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
        Some(work(&mut bucket.left, rate))
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The seconds to wait, if there is none.
    fn take(&self, key: &str, now_ms: i64) -> Result<(), u64> {
        let taken = self.with(key, now_ms, |left, rate| {
            if *left < 1.0 {
                return Err(((1.0 - *left) / rate).ceil().max(1.0) as u64);
            }
            *left -= 1.0;
            Ok(())
        });
        taken.unwrap_or(Ok(()))
    }

    /// Checks that a key has no debt.
    ///
    /// # Errors
    /// The seconds until the debt is paid.
    fn solvent(&self, key: &str, now_ms: i64) -> Result<(), u64> {
        let wait = |left: &mut f64, rate: f64| {
            if *left < 0.0 { Err((-*left / rate).ceil().max(1.0) as u64) } else { Ok(()) }
        };
        self.with(key, now_ms, wait).unwrap_or(Ok(()))
    }

    /// Takes tokens afterwards, into debt if necessary.
    fn spend(&self, key: &str, amount: u64, now_ms: i64) {
        self.with(key, now_ms, |left, rate| *left = (*left - amount as f64).max(-DEBT_S * rate));
    }
}

/// The buckets of all keys: requests, bytes and records.
#[derive(Debug)]
pub(super) struct Rates {
    requests: Buckets,
    bytes: Buckets,
    records: Buckets,
}

impl Rates {
    pub(super) fn new(rates: KeyRates) -> Self {
        Self {
            requests: Buckets::new(rates.requests),
            bytes: Buckets::new(rates.ingest_bytes),
            records: Buckets::new(rates.ingest_records),
        }
    }

    /// Takes a token for a request that is not ingest.
    ///
    /// # Errors
    /// The seconds to wait, if there is none.
    pub(super) fn take(&self, key: &str, now_ms: i64) -> Result<(), u64> {
        self.requests.take(key, now_ms)
    }

    /// Checks whether a key may send telemetry.
    ///
    /// # Errors
    /// The seconds to wait, if it is in debt.
    pub(super) fn may_send(&self, key: &str, now_ms: i64) -> Result<(), u64> {
        let waits = [&self.bytes, &self.records].map(|buckets| buckets.solvent(key, now_ms).err().unwrap_or(0));
        let wait = waits.into_iter().max().unwrap_or(0);
        if wait > 0 { Err(wait) } else { Ok(()) }
    }

    fn measures_ingest(&self) -> bool {
        self.bytes.rate.per_second > 0 || self.records.rate.per_second > 0
    }
}

/// Counts the telemetry of a request against its key.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    rates: Arc<Rates>,
    key: Arc<str>,
    clock: Arc<dyn Clock>,
}

impl Meter {
    /// The meter of a key; `None` if telemetry is unlimited.
    pub(super) fn of(rates: &Arc<Rates>, key: &str, clock: &Arc<dyn Clock>) -> Option<Self> {
        let meter = || Self { rates: Arc::clone(rates), key: key.into(), clock: Arc::clone(clock) };
        rates.measures_ingest().then(meter)
    }

    /// Counts bytes of a body.
    pub(crate) fn bytes(&self, count: usize) {
        self.rates.bytes.spend(&self.key, count as u64, self.clock.now_ms());
    }

    /// Counts samples, rows or spans.
    pub(crate) fn records(&self, count: u64) {
        self.rates.records.spend(&self.key, count, self.clock.now_ms());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_and_rests() {
        let rates = Buckets::new(Rate { per_second: 10, burst: 3 });
        let taken = |key: &str, now_ms: i64| (0..5).filter(|_| rates.take(key, now_ms).is_ok()).count();
        assert_eq!((taken("a", 0), taken("b", 0), taken("a", 0)), (3, 3, 0));
        assert_eq!(rates.take("a", 0), Err(1));
        assert_eq!((taken("a", 100), taken("a", 199), taken("a", 400), taken("a", 60_000)), (1, 0, 3, 3));
        // A clock that goes back neither gives nor takes tokens.
        assert_eq!(taken("a", 1000), 0);
        let any = Buckets::new(Rate::per_second(0));
        assert!((0..1000).all(|_| any.take("a", 0).is_ok()));
        for n in 0..2 * REMEMBERED {
            assert!(rates.take(&n.to_string(), 0).is_ok());
        }
        assert!(rates.of_keys.lock().len() <= REMEMBERED);
    }

    #[test]
    fn what_was_sent_is_paid_for_afterwards() {
        let rates = Rates::new(KeyRates { ingest_bytes: Rate::per_second(1000), ..KeyRates::default() });
        assert_eq!(rates.may_send("a", 0), Ok(()));
        // Twice the rate is available at first; the rest is a debt.
        rates.bytes.spend("a", 4500, 0);
        assert_eq!((rates.may_send("a", 0), rates.may_send("b", 0)), (Err(3), Ok(())));
        assert_eq!((rates.may_send("a", 2400), rates.may_send("a", 2500)), (Err(1), Ok(())));
        rates.bytes.spend("a", u64::MAX, 2500);
        assert_eq!(rates.may_send("a", 2500), Err(60));
        // Records have a bucket of their own, here unlimited.
        rates.records.spend("c", u64::MAX, 0);
        assert_eq!(rates.may_send("c", 0), Ok(()));
    }

    #[test]
    fn a_key_waits_as_long_as_one_takes() {
        for (rate, expected) in [
            (Rate { per_second: 1, burst: 1 }, 1),
            (Rate { per_second: 100, burst: 1 }, 1),
            // At least one request is possible at once, even with a burst of 0.
            (Rate { per_second: 1, burst: 0 }, 1),
        ] {
            let buckets = Buckets::new(rate);
            assert_eq!((buckets.take("a", 0), buckets.take("a", 0)), (Ok(()), Err(expected)), "{rate:?}");
            assert_eq!(buckets.take("b", 0), Ok(()), "others have their own");
        }
        let slow = Buckets::new(Rate { per_second: 1, burst: 1 });
        assert_eq!(slow.take("a", 0), Ok(()));
        assert_eq!((slow.take("a", 999), slow.take("a", 1000), slow.take("a", 1000)), (Err(1), Ok(()), Err(1)));
    }

    #[test]
    fn what_is_granted_at_once_is_twice_the_rate() {
        assert_eq!(Rate::per_second(50), Rate { per_second: 50, burst: 100 });
        assert_eq!(Rate::per_second(0).burst, 0);
        assert_eq!(Rate::per_second(u64::MAX).burst, u64::MAX);
    }

    #[test]
    fn the_longer_of_two_debts_counts() {
        let rates = Rates::new(KeyRates {
            ingest_bytes: Rate { per_second: 1000, burst: 1000 },
            ingest_records: Rate { per_second: 10, burst: 10 },
            ..KeyRates::default()
        });
        rates.bytes.spend("a", 3000, 0);
        rates.records.spend("a", 60, 0);
        assert_eq!(rates.may_send("a", 0), Err(5));
        rates.bytes.spend("a", 7000, 0);
        assert_eq!(rates.may_send("a", 0), Err(9));
        // Using the last token is not a debt yet.
        rates.records.spend("b", 10, 0);
        assert_eq!(rates.may_send("b", 0), Ok(()));
        rates.records.spend("b", 1, 0);
        assert_eq!(rates.may_send("b", 0), Err(1));
    }

    #[test]
    fn ingest_is_measured_where_something_bounds_it() {
        let any = Rate::per_second(0);
        let of = |ingest_bytes, ingest_records| {
            Rates::new(KeyRates { ingest_bytes, ingest_records, ..KeyRates::default() }).measures_ingest()
        };
        let some = Rate::per_second(5);
        assert_eq!((of(any, any), of(some, any), of(any, some), of(some, some)), (false, true, true, true));
    }
}
