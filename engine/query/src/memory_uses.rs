//! Names what a query uses its memory for, in words that its author understands: if memory is refused, the error names
//! the largest use.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A kind of work that holds memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Work {
    Grouping,
    Sorting,
    Joining,
    Windows,
    Recursion,
    Functions,
    Reading,
    HandingOn,
    Answer,
    /// Small things, and steps of PromQL.
    Other,
}

const KINDS: usize = Work::Other as usize + 1;

/// How names of consumers begin, by kind. What is not here and is no step of a plan is collected for an answer.
const BEGINNINGS: [(&str, Work); 38] = [
    // Of DataFusion.
    ("GroupedHashAggregate", Work::Grouping),
    ("FinalHashAggregate", Work::Grouping),
    ("PartialHashAggregate", Work::Grouping),
    ("PartialReduceHashAggregate", Work::Grouping),
    ("SingleHashAggregate", Work::Grouping),
    ("OrderedFinalAggregate", Work::Grouping),
    ("OrderedPartialAggregate", Work::Grouping),
    ("AggregateStream", Work::Grouping),
    ("ExternalSorter", Work::Sorting),
    ("TopK", Work::Sorting),
    ("PartitionedTopK", Work::Sorting),
    ("SortPreservingMerge", Work::Sorting),
    ("HashJoin", Work::Joining),
    ("NestedLoopJoin", Work::Joining),
    ("CrossJoin", Work::Joining),
    ("SMJStream", Work::Joining),
    ("SymmetricHashJoin", Work::Joining),
    ("PiecewiseMergeJoin", Work::Joining),
    ("RecursiveQuery", Work::Recursion),
    ("RepartitionExec", Work::HandingOn),
    ("BufferExec", Work::HandingOn),
    // Our own.
    ("CodedGroupExec", Work::Grouping),
    ("LogsGroup", Work::Grouping),
    ("LogsValueCounts", Work::Grouping),
    ("LogsOthers", Work::Grouping),
    ("LogsDeduplicate", Work::Grouping),
    ("aggregation", Work::Grouping),
    ("partitions of a sort", Work::Sorting),
    ("sort", Work::Sorting),
    ("join", Work::Joining),
    ("window functions", Work::Windows),
    ("results of window functions", Work::Windows),
    ("values of functions", Work::Functions),
    ("unnest", Work::Functions),
    ("IndexExec", Work::Reading),
    ("LogsExec", Work::Reading),
    ("SamplesExec", Work::Reading),
    ("SpansExec", Work::Reading),
];

/// Names of what answers are collected in.
const ANSWERS: [&str; 9] =
    ["rows", "answer", "list", "message", "chunks", "remote read", "federation", "exemplars", "text of a tail"];

impl Work {
    /// The kind of a consumer's work.
    fn of(consumer: &str) -> Self {
        let known = BEGINNINGS.iter().find(|(beginning, _)| consumer.starts_with(beginning));
        let is_answer = || ANSWERS.iter().any(|beginning| consumer.starts_with(beginning));
        known.map_or_else(|| if is_answer() { Self::Answer } else { Self::Other }, |(_, work)| *work)
    }

    /// Its name in messages; `None`: none that says something.
    fn words(self) -> Option<&'static str> {
        Some(match self {
            Self::Grouping => "grouping",
            Self::Sorting => "sorting",
            Self::Joining => "joining",
            Self::Windows => "evaluating window functions",
            Self::Recursion => "recursion",
            Self::Functions => "evaluating functions",
            Self::Reading => "reading",
            Self::HandingOn => "handing rows on",
            Self::Answer => "the answer",
            Self::Other => return None,
        })
    }
}

/// Bytes by kind of work.
#[derive(Debug, Default)]
pub(crate) struct MemoryUses([AtomicUsize; KINDS]);

impl MemoryUses {
    /// Counts bytes of a consumer.
    pub(crate) fn add(&self, consumer: &str, bytes: usize) {
        self.0[Work::of(consumer) as usize].fetch_add(bytes, Relaxed);
    }

    /// Counts bytes that it gave back.
    pub(crate) fn sub(&self, consumer: &str, bytes: usize) {
        self.0[Work::of(consumer) as usize].fetch_sub(bytes, Relaxed);
    }

    /// Names the work that holds most; `None`: it has no name.
    pub(crate) fn most(&self) -> Option<&'static str> {
        let kinds = BEGINNINGS.iter().map(|(_, work)| *work).chain([Work::Answer, Work::Other]);
        kinds.max_by_key(|work| self.0[*work as usize].load(Relaxed))?.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_is_named() {
        let uses = MemoryUses::default();
        uses.add("ExternalSorter[0]", 10);
        assert_eq!(uses.most(), Some("sorting"));
        uses.add("HashJoinInput[1]", 20);
        assert_eq!(uses.most(), Some("joining"));
        uses.add("ExternalSorterMerge[3]", 15);
        assert_eq!(uses.most(), Some("sorting"), "kinds count together");
        uses.add("GroupedHashAggregateStream[0] (max(sort))", 30);
        assert_eq!(uses.most(), Some("grouping"));
        uses.sub("GroupedHashAggregateStream[0] (max(sort))", 30);
        uses.add("rows that wait", 26);
        assert_eq!(uses.most(), Some("the answer"));
        uses.add("matrix", 27);
        assert_eq!(uses.most(), None, "a step that says nothing to who asks");
    }

    #[test]
    fn each_kind_has_consumers_and_words() {
        for kind in 0..KINDS - 1 {
            let of = BEGINNINGS.iter().find(|(_, work)| *work as usize == kind);
            let consumer = of.map_or(ANSWERS[0], |(beginning, _)| *beginning);
            assert_eq!(Work::of(consumer) as usize, kind);
            assert!(Work::of(consumer).words().is_some(), "{consumer}");
        }
    }

    #[test]
    fn no_beginning_hides_another_kind() {
        for (at, (beginning, work)) in BEGINNINGS.iter().enumerate() {
            let first = BEGINNINGS.iter().position(|(other, _)| beginning.starts_with(other));
            assert!(first == Some(at) || Work::of(beginning) == *work, "{beginning}");
        }
    }
}
