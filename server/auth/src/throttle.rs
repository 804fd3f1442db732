//! Rate limits on guessing passwords, by account and by network; never a permanent lockout.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;

use parking_lot::Mutex;
use quiver_database::Database;
use quiver_types::{Error, ErrorKind, Result};

mod shared_failures;

/// Failures of an account that cost nothing, within [`ACCOUNT_MS`].
const FREE: u32 = 5;
const ACCOUNT_MS: i64 = 5 * 60_000;
/// Longest wait after failures, in seconds.
const WAIT_S_MAX: i64 = 300;
/// Failures of a network within a minute.
const NETWORK_FAILURES: u32 = 30;
const NETWORK_MS: i64 = 60_000;
/// Most accounts, and networks, that are remembered: some 10 MiB.
const REMEMBERED: usize = 50_000;

#[derive(Debug, Clone, Copy)]
struct Failures {
    count: u32,
    first_ms: i64,
    last_ms: i64,
}

/// What is remembered of failures.
#[derive(Debug, Default)]
pub(crate) struct Throttle {
    accounts: Mutex<HashMap<String, Failures>>,
    networks: Mutex<HashMap<[u8; 9], Failures>>,
    told: shared_failures::SharedFailures,
}

/// The network of an address: /24, /64.
fn network(ip: IpAddr) -> [u8; 9] {
    let mut key = [0; 9];
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            key[0] = 4;
            key[1..4].copy_from_slice(&ip.octets()[..3]);
        }
        IpAddr::V6(ip) => {
            key[0] = 6;
            key[1..].copy_from_slice(&ip.octets()[..8]);
        }
    }
    key
}

/// The name of a network among servers.
fn place(network: &[u8; 9]) -> String {
    format!("network:{}", quiver_types::hex(network))
}

fn sum(a: Failures, b: Failures) -> Failures {
    let count = a.count.saturating_add(b.count);
    Failures { count, first_ms: a.first_ms.min(b.first_ms), last_ms: a.last_ms.max(b.last_ms) }
}

/// What failed here and elsewhere together, as far as it counts yet.
fn together(own: Option<Failures>, others: Option<Failures>, counts: impl Fn(&Failures) -> bool) -> Option<Failures> {
    [own, others].into_iter().flatten().filter(counts).reduce(sum)
}

/// Whether something was less than so long ago. What lies as far in the future is over: somebody has set the clock since, and
/// nobody is to wait until it gets there again.
fn is_recent(at_ms: i64, now_ms: i64, within_ms: i64) -> bool {
    now_ms.abs_diff(at_ms) < within_ms.unsigned_abs()
}

/// Makes room: what is over goes first, then what failed longest ago.
fn make_room<K: Clone + Eq + Hash>(map: &mut HashMap<K, Failures>, now_ms: i64) {
    if map.len() < REMEMBERED {
        return;
    }
    map.retain(|_, f| is_recent(f.last_ms, now_ms, ACCOUNT_MS));
    if map.len() >= REMEMBERED {
        let mut times: Vec<i64> = map.values().map(|f| f.last_ms).collect();
        let (_, middle, _) = times.select_nth_unstable(REMEMBERED / 2);
        let middle = *middle;
        let mut left = REMEMBERED / 2;
        map.retain(|_, f| {
            let stays = f.last_ms >= middle && left > 0;
            left -= usize::from(stays);
            stays
        });
    }
}

impl Throttle {
    /// Says how many seconds to wait; none: go on.
    pub(crate) fn wait_s(&self, account: &str, ip: Option<IpAddr>, now_ms: i64) -> Option<u64> {
        let own = self.accounts.lock().get(account).copied();
        let failures = together(own, self.told.by_others(account), |f| is_recent(f.last_ms, now_ms, ACCOUNT_MS));
        let by_account = failures.and_then(|f| {
            let over = f.count.checked_sub(FREE)?;
            let wait_s = 1_i64.checked_shl(over).filter(|_| over < 9).unwrap_or(WAIT_S_MAX).min(WAIT_S_MAX);
            let left_ms = f.last_ms + wait_s * 1000 - now_ms;
            (left_ms > 0).then_some((left_ms as u64).div_ceil(1000))
        });
        let by_network = ip.and_then(|ip| {
            let network = network(ip);
            let own = self.networks.lock().get(&network).copied();
            let others = self.told.by_others(&place(&network));
            let failures = together(own, others, |f| is_recent(f.first_ms, now_ms, NETWORK_MS));
            let failures = failures.filter(|f| f.count >= NETWORK_FAILURES)?;
            let left_ms = failures.first_ms + NETWORK_MS - now_ms;
            (left_ms > 0).then_some((left_ms as u64).div_ceil(1000))
        });
        by_account.max(by_network)
    }

    /// Notes a wrong password or secret.
    pub(crate) fn failed(&self, account: &str, ip: Option<IpAddr>, now_ms: i64) {
        let fresh = Failures { count: 0, first_ms: now_ms, last_ms: now_ms };
        let mut accounts = self.accounts.lock();
        make_room(&mut accounts, now_ms);
        let of = accounts.entry(account.to_owned()).or_insert(fresh);
        if !is_recent(of.last_ms, now_ms, ACCOUNT_MS) {
            *of = fresh;
        }
        let seen = Failures { count: of.count.saturating_add(1), last_ms: now_ms, ..*of };
        *of = seen;
        drop(accounts);
        self.told.failed(account, seen);
        let Some(ip) = ip else { return };
        let mut networks = self.networks.lock();
        make_room(&mut networks, now_ms);
        let network = network(ip);
        let of = networks.entry(network).or_insert(fresh);
        if !is_recent(of.first_ms, now_ms, NETWORK_MS) {
            *of = fresh;
        }
        let seen = Failures { count: of.count.saturating_add(1), last_ms: now_ms, ..*of };
        *of = seen;
        drop(networks);
        self.told.failed(&place(&network), seen);
    }

    /// Notes a right one.
    pub(crate) fn succeeded(&self, account: &str, now_ms: i64) {
        let failed = self.accounts.lock().remove(account).is_some();
        self.told.succeeded(account, failed, now_ms);
    }

    /// Tells other servers over the same database what failed here, and hears what failed there.
    ///
    /// # Errors
    /// When the database is gone.
    pub(crate) async fn exchange(&self, database: &Database, server: &str, now_ms: i64) -> Result<()> {
        let gone = |e| Error::new(ErrorKind::Unavailable, "failures of other servers cannot be read").with_source(e);
        let succeeded = self.told.exchange(database, server, now_ms).await.map_err(gone)?;
        let mut accounts = self.accounts.lock();
        for (account, at) in succeeded {
            if accounts.get(&account).is_some_and(|f| f.last_ms <= at) {
                accounts.remove(&account);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_wait_longer_and_longer() {
        let throttle = Throttle::default();
        let mut now = 1_000_000;
        let mut waits = Vec::new();
        for _ in 0..18 {
            while let Some(wait) = throttle.wait_s("ann", None, now) {
                waits.push(wait);
                now += wait as i64 * 1000;
            }
            throttle.failed("ann", None, now);
        }
        assert_eq!(waits[..], [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]);
        // Nobody is locked for good: after five quiet minutes all is as before.
        now += 2 * ACCOUNT_MS;
        assert_eq!(throttle.wait_s("ann", None, now), None);
        throttle.failed("ann", None, now);
        assert_eq!(throttle.wait_s("ann", None, now), None);
        assert_eq!(throttle.wait_s("bob", None, now), None);
    }

    #[test]
    fn success_forgets() {
        let throttle = Throttle::default();
        (0..9).for_each(|_| throttle.failed("ann", None, 0));
        assert_eq!(throttle.wait_s("ann", None, 0), Some(16));
        throttle.succeeded("ann", 0);
        assert_eq!(throttle.wait_s("ann", None, 0), None);
    }

    #[test]
    fn networks() {
        let throttle = Throttle::default();
        let ip = |text: &str| Some(text.parse().unwrap());
        (0..30).for_each(|i| throttle.failed(&format!("u{i}"), ip("192.0.2.7"), i * 10));
        assert_eq!(throttle.wait_s("new", ip("192.0.2.200"), 1000), Some(59));
        assert_eq!(throttle.wait_s("new", ip("::ffff:192.0.2.1"), 1000), Some(59));
        assert_eq!(throttle.wait_s("new", ip("192.0.3.7"), 1000), None);
        assert_eq!(throttle.wait_s("new", ip("192.0.2.7"), 60_000), None);
    }

    /// A clock that was wrong and is set back does not keep anybody out until it gets there again.
    #[test]
    fn clocks_are_set_back() {
        const DAYS_40: i64 = 40 * 86_400_000;
        let throttle = Throttle::default();
        let ip = Some("192.0.2.7".parse().unwrap());
        (0..40).for_each(|_| throttle.failed("ann", ip, DAYS_40));
        assert!(throttle.wait_s("ann", ip, DAYS_40).is_some() && throttle.wait_s("bob", ip, DAYS_40).is_some());
        assert_eq!(throttle.wait_s("ann", ip, 1000), None);
        throttle.failed("ann", ip, 1000);
        assert_eq!(throttle.wait_s("ann", ip, 1000), None, "the first one");
        (0..5).for_each(|_| throttle.failed("ann", ip, 1000));
        assert_eq!(throttle.wait_s("ann", ip, 1000), Some(2));
    }

    #[test]
    fn memory_is_bounded() {
        let throttle = Throttle::default();
        (0..2 * REMEMBERED as i64).for_each(|i| throttle.failed(&format!("u{i}"), None, i / 1000));
        assert!(throttle.accounts.lock().len() <= REMEMBERED);
    }
}
