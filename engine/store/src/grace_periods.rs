//! How long dropped parts stay before their files are deleted.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::part::PartId;

/// Since when dropped parts wait for their deletion, by the monotonic clock: a jump of the other one that dropped them
/// must not end the wait as well. A restart begins it anew.
#[derive(Debug, Default)]
pub(crate) struct Graces(Mutex<HashMap<PartId, Option<Duration>>>);

impl Graces {
    /// Lets parts go at once.
    pub(crate) fn none(&self, ids: impl Iterator<Item = PartId>) {
        self.0.lock().extend(ids.map(|id| (id, None)));
    }

    /// Says whether a part must wait still; it does from the first such question on.
    pub(crate) fn wait(&self, id: PartId, now: Duration, grace: Duration) -> bool {
        let since = *self.0.lock().entry(id).or_insert(Some(now));
        since.is_some_and(|since| now.saturating_sub(since) < grace)
    }

    /// Forgets parts that are deleted.
    pub(crate) fn forget(&self, ids: &[PartId]) {
        let mut waiting = self.0.lock();
        waiting.retain(|id, _| !ids.contains(id));
    }
}
