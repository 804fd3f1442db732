//! The counts in a row of a roll-up.

use super::Durations;

/// Counts of spans or calls. The default counts none.
#[derive(Debug, Clone, PartialEq)]
pub struct Counts {
    /// How calls are made, by its number in [`super::PROTOCOLS`]; 0: not known.
    pub protocol: u8,
    /// How many spans there were; of an edge: how many calls.
    pub spans: u64,
    /// How many of them failed.
    pub errors: u64,
    /// First and last start, Unix nanoseconds.
    pub seen: (i64, i64),
    /// How long they took, in buckets whose bounds grow by [`super::RATIO`].
    pub durations: Durations,
}

impl Default for Counts {
    fn default() -> Self {
        Self { protocol: 0, spans: 0, errors: 0, seen: (i64::MAX, i64::MIN), durations: Durations::default() }
    }
}

impl Counts {
    /// Adds what was counted elsewhere.
    pub fn merge(&mut self, other: &Self) {
        self.spans += other.spans;
        self.errors += other.errors;
        self.seen = (self.seen.0.min(other.seen.0), self.seen.1.max(other.seen.1));
        self.durations.merge(&other.durations);
        self.speaks(other.protocol);
    }

    /// Takes others out that were added before. First and last start stay as they are.
    pub fn remove(&mut self, other: &Self) {
        self.spans = self.spans.saturating_sub(other.spans);
        self.errors = self.errors.saturating_sub(other.errors);
        other.durations.iter().for_each(|(bucket, count)| self.durations.remove(bucket, count));
    }

    /// Notes a protocol: of several the least, so that their order does not matter.
    pub(super) fn speaks(&mut self, protocol: u8) {
        if protocol != 0 && (self.protocol == 0 || protocol < self.protocol) {
            self.protocol = protocol;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(spans: u64, errors: u64, seen: (i64, i64), protocol: u8, bucket: u16) -> Counts {
        let mut durations = Durations::default();
        durations.add(bucket, spans);
        Counts { protocol, spans, errors, seen, durations }
    }

    #[test]
    fn parts_add_up_in_any_order() {
        let parts = [counts(2, 1, (5, 9), 0, 3), counts(3, 0, (-1, 4), 4, 7), counts(1, 1, (6, 20), 2, 3)];
        let whole = |order: [usize; 3]| {
            let mut whole = Counts::default();
            for at in order {
                whole.merge(&parts[at]);
            }
            whole
        };
        let sum = whole([0, 1, 2]);
        assert_eq!((sum.spans, sum.errors, sum.seen, sum.protocol), (6, 2, (-1, 20), 2), "the least protocol");
        assert_eq!(sum.durations.iter().collect::<Vec<_>>(), [(3, 3), (7, 3)]);
        for order in [[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
            assert_eq!(whole(order), sum, "{order:?}");
        }
        let mut same = sum.clone();
        same.merge(&Counts::default());
        assert_eq!(same, sum, "none changes nothing");
    }

    #[test]
    fn what_is_taken_out_leaves_the_times() {
        let mut sum = counts(3, 1, (1, 9), 4, 3);
        sum.remove(&counts(1, 1, (1, 2), 4, 3));
        assert_eq!(sum, counts(2, 0, (1, 9), 4, 3));
        sum.remove(&counts(7, 7, (0, 0), 0, 3));
        assert_eq!((sum.spans, sum.errors, sum.durations.count()), (0, 0, 0), "never less than none");
    }
}
