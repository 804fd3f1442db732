//! Cancel requests: each connection has a number and a secret; another connection that knows both can cancel its
//! statement.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// All connections whose statements can be cancelled.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    known: Mutex<HashMap<i32, CancelTarget>>,
}

#[derive(Debug)]
struct CancelTarget {
    secret: i32,
    running: CancellationToken,
}

/// The entry of a connection, removed on drop.
#[derive(Debug)]
pub(super) struct Cancellable {
    cancels: Arc<Cancels>,
    pub(super) number: i32,
    pub(super) secret: i32,
}

impl Cancels {
    /// Adds a connection.
    pub(super) fn begin(self: &Arc<Self>) -> Cancellable {
        // The numbers are random, since consecutive ones would tell each client how many others connect. Their seed
        // comes from the system.
        let random = RandomState::new();
        let secret = random.hash_one("a key of cancelling") as i32;
        let mut known = self.known.lock();
        let mut numbers = (0_u64..).map(|n| (random.hash_one(n) as i32) & i32::MAX);
        let number = numbers.find(|number| *number != 0 && !known.contains_key(number)).unwrap_or_default();
        known.insert(number, CancelTarget { secret, running: CancellationToken::new() });
        drop(known);
        Cancellable { cancels: Arc::clone(self), number, secret }
    }

    /// Cancels the statement of a connection, if the secret is right.
    pub(super) fn cancel(&self, number: i32, secret: i32) {
        let known = self.known.lock();
        if let Some(found) = known.get(&number).filter(|known| known.secret == secret) {
            found.running.cancel();
        }
    }
}

impl Cancellable {
    /// Sets what a cancel request cancels from now on.
    pub(super) fn runs(&self, running: &CancellationToken) {
        if let Some(known) = self.cancels.known.lock().get_mut(&self.number) {
            known.running = running.clone();
        }
    }
}

impl Drop for Cancellable {
    fn drop(&mut self) {
        self.cancels.known.lock().remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_knows_the_secret_cancels() {
        let cancels = Arc::<Cancels>::default();
        let (one, two) = (cancels.begin(), cancels.begin());
        assert_ne!((one.number, one.secret), (two.number, two.secret));
        let running = CancellationToken::new();
        one.runs(&running);
        cancels.cancel(one.number, one.secret.wrapping_add(1));
        cancels.cancel(two.number, two.secret);
        assert!(!running.is_cancelled());
        cancels.cancel(one.number, one.secret);
        assert!(running.is_cancelled());
        drop(one);
        assert_eq!(cancels.known.lock().len(), 1);
        let numbers: Vec<i32> = (0..4).map(|_| cancels.begin().number).collect();
        assert!(numbers.iter().all(|number| *number > 0));
        assert!(numbers.windows(2).any(|pair| pair[1] != pair[0] + 1), "they count nobody: {numbers:?}");
    }
}
