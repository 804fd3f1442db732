//! Changes that nobody waits for and that could not be written yet: of each row the newest.

use std::collections::BTreeMap;

use super::{Change, RowKind};

/// Most bytes of changes that wait. A disk may be full for days, while alerts come and go.
const BYTES_MAX: usize = if cfg!(test) { 1000 } else { 16 << 20 };
/// Bytes of a change besides its texts.
const OWN_BYTES: usize = 150;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct UnwrittenChanges {
    rows: BTreeMap<(RowKind, Vec<u8>), Change>,
    bytes: usize,
}

fn bytes(change: &Change) -> usize {
    OWN_BYTES + 2 * change.key.len() + change.value.as_ref().map_or(0, String::len)
}

impl UnwrittenChanges {
    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All of them, each of another row.
    pub(super) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.rows.values()
    }

    /// Adds changes, which are newer than all others. Those for which there is no room are lost, and logged.
    pub(super) fn add(&mut self, changes: Vec<Change>) {
        let mut lost = 0;
        for change in changes {
            self.remove(change.kind, &change.key);
            if self.bytes + bytes(&change) > BYTES_MAX {
                lost += 1;
                continue;
            }
            self.bytes += bytes(&change);
            self.rows.insert((change.kind, change.key.clone()), change);
        }
        if lost > 0
            && let Some(left_out) = super::PACE.turn("lost")
        {
            tracing::error!(lost, left_out, "changes of the state of alerting are lost: too many wait to be written");
        }
    }

    fn remove(&mut self, kind: RowKind, key: &[u8]) {
        if let Some(older) = self.rows.remove(&(kind, key.to_vec())) {
            self.bytes -= bytes(&older);
        }
    }

    /// Forgets changes of rows that have changed again.
    pub(super) fn forget(&mut self, newer: &[&Change]) {
        for change in newer {
            self.remove(change.kind, &change.key);
        }
    }

    /// Forgets all: they are written.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_newest_of_each_row_waits_within_a_bound() {
        let mut waiting = UnwrittenChanges::default();
        let set = |key: &str, n: i64| Change::set(RowKind::Alert, key, &json!(n));
        waiting.add(vec![set("a", 1), set("b", 1), set("a", 2)]);
        waiting.add(vec![Change::remove(RowKind::Alert, "b"), Change::set(RowKind::Timer, "a", &json!(3))]);
        let values: Vec<_> = waiting.changes().map(|change| change.value.as_deref()).collect();
        assert_eq!(values, [Some("2"), None, Some("3")]);
        waiting.forget(&[&set("a", 4)]);
        assert_eq!(waiting.changes().count(), 2);
        waiting.add((0..100).map(|n| set(&n.to_string(), n)).collect());
        assert!(waiting.bytes <= BYTES_MAX && waiting.changes().count() < 10);
        waiting.clear();
        assert!(waiting.is_empty() && waiting.bytes == 0);
    }
}
