//! Parents and children of a trace, self times, the critical path. Nothing here recurses, since input may hold a chain
//! of a million spans, or spans that are each other's parents.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::{Segment, SpanId, critical_path};

use crate::assemble::Trace;

/// The tree of a trace; spans are named by their place in it.
#[derive(Debug)]
pub struct Tree {
    /// Parent of each span, where it is in the trace and does not lead back to the span itself.
    pub parent: Vec<Option<usize>>,
    /// Children of each span, in order.
    pub children: Vec<Vec<usize>>,
    /// Distance from its root.
    pub depth: Vec<usize>,
    /// Spans without a parent in the tree, in order.
    pub roots: Vec<usize>,
    /// Those of them that have one in the trace, below themselves, in order.
    rings: Vec<usize>,
}

impl Tree {
    /// Builds the tree.
    pub fn of(trace: &Trace) -> Self {
        let len = trace.spans.len();
        let by_id: HashMap<SpanId, usize, FixedState> =
            trace.spans.iter().enumerate().map(|(i, s)| (s.span_id, i)).collect();
        let mut parent: Vec<Option<usize>> =
            trace.spans.iter().map(|s| s.parent.and_then(|p| by_id.get(&p).copied())).collect();
        let mut children = vec![Vec::new(); len];
        for (i, p) in parent.iter().enumerate() {
            if let Some(p) = *p {
                children[p].push(i);
            }
        }
        let mut depth = vec![usize::MAX; len];
        let mut roots: Vec<usize> = (0..len).filter(|&i| parent[i].is_none()).collect();
        let mut stack: Vec<(usize, usize)> = roots.iter().rev().map(|&r| (r, 0)).collect();
        let (mut next, mut rings) = (0, Vec::new());
        loop {
            while let Some((i, d)) = stack.pop() {
                depth[i] = d;
                stack.extend(children[i].iter().rev().filter(|&&c| depth[c] == usize::MAX).map(|&c| (c, d + 1)));
            }
            // What is left hangs on a ring; its first span becomes a root.
            while next < len && depth[next] != usize::MAX {
                next += 1;
            }
            if next == len {
                break;
            }
            if let Some(p) = parent[next].take() {
                children[p].retain(|&c| c != next);
                rings.push(next);
            }
            roots.push(next);
            stack.push((next, 0));
        }
        roots.sort_unstable();
        Self { parent, children, depth, roots, rings }
    }

    /// Says whether a span names a parent that is not in the trace.
    pub fn is_orphan(&self, trace: &Trace, span: usize) -> bool {
        let has_none = trace.spans[span].parent.is_some() && self.parent[span].is_none();
        has_none && self.rings.binary_search(&span).is_err()
    }

    /// Gives the time that a span did not spend in its children, in nanoseconds.
    pub fn self_time(&self, trace: &Trace, span: usize) -> i64 {
        let own = &trace.spans[span];
        let mut covered = 0;
        let mut upto = own.start;
        // Children are in order of start.
        for &child in &self.children[span] {
            let c = &trace.spans[child];
            let (from, to) = (c.start.max(upto), c.end.min(own.end));
            if to > from {
                covered += to - from;
                upto = to;
            }
        }
        own.duration() - covered
    }

    /// Gives the span that stands for the trace: the first true root, else the first span.
    pub fn main_root(&self, trace: &Trace) -> Option<usize> {
        let true_root = self.roots.iter().copied().find(|&r| trace.spans[r].parent.is_none());
        true_root.or_else(|| self.roots.first().copied())
    }

    /// Gives the critical path of the main root.
    pub fn critical_path(&self, trace: &Trace) -> Vec<Segment> {
        let times = |span: usize| (trace.spans[span].start, trace.spans[span].end);
        self.main_root(trace).map_or_else(Vec::new, |root| critical_path(root, times, &self.children))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::assemble;
    use crate::assemble::tests::span;

    #[test]
    fn self_times_and_critical_path() {
        let spans = vec![
            span(1, 0, "a", 2, 0, 100),
            span(2, 1, "a", 3, 10, 40),
            span(3, 1, "a", 3, 30, 90),
            span(4, 3, "b", 2, 35, 80),
        ];
        let trace = assemble([1; 16], spans);
        let tree = Tree::of(&trace);
        assert_eq!((0..4).map(|i| tree.self_time(&trace, i)).collect::<Vec<_>>(), [20, 30, 15, 45]);
        let path: Vec<_> = tree.critical_path(&trace).iter().map(|s| (s.span, s.from, s.to)).collect();
        assert_eq!(path, [(0, 0, 10), (1, 10, 30), (2, 30, 35), (3, 35, 80), (2, 80, 90), (0, 90, 100)]);
        assert_eq!(tree.depth, [0, 1, 1, 2]);
    }

    #[test]
    fn rings_and_long_chains_end() {
        let ring = assemble([1; 16], vec![span(1, 2, "a", 0, 0, 9), span(2, 1, "a", 0, 1, 8)]);
        let tree = Tree::of(&ring);
        assert_eq!((tree.roots.as_slice(), tree.depth.as_slice()), (&[0][..], &[0, 1][..]));
        // Both parents are there, that of a third span is not.
        assert_eq!([0, 1].map(|i| tree.is_orphan(&ring, i)), [false, false]);
        let more = assemble([1; 16], [ring.spans, vec![span(3, 9, "a", 0, 2, 3)]].concat());
        assert_eq!([0, 1, 2].map(|i| Tree::of(&more).is_orphan(&more, i)), [false, false, true]);
        let chain: Vec<_> = (1..=100_000).map(|i| span(i, i - 1, "a", 0, i as i64, 200_000)).collect();
        let trace = assemble([1; 16], chain);
        let tree = Tree::of(&trace);
        assert_eq!(tree.depth[99_999], 99_999);
        assert_eq!(tree.critical_path(&trace).len(), 100_000);
    }
    /// Breaks if a span is reached from two roots or none, a time counts twice, or the path has a hole: for traces of any
    /// shape, rings and parents that are not there among them.
    #[test]
    fn trees_of_any_shape_hold_together() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for round in 0..300 {
            let count = 1 + next(12);
            let spans = (1..=count).map(|id| {
                let (parent, start, length) = (next(count + 3), next(100) as i64, next(60) as i64);
                span(id, parent, "s", 0, 1 + start, 1 + start + length)
            });
            let trace = assemble([1; 16], spans.collect());
            let tree = Tree::of(&trace);
            for i in 0..trace.spans.len() {
                let above = tree.parent[i].map(|parent| tree.depth[parent] + 1);
                assert_eq!(above.unwrap_or(0), tree.depth[i], "round {round}, span {i}");
                assert_eq!(tree.parent[i].is_none(), tree.roots.contains(&i), "round {round}, span {i}");
                assert!(tree.children[i].iter().all(|&child| tree.parent[child] == Some(i)), "round {round}, span {i}");
                let own = tree.self_time(&trace, i);
                assert!((0..=trace.spans[i].duration()).contains(&own), "round {round}, span {i}: {own}");
                // Moment by moment: what no child covers.
                let (from, to) = (trace.spans[i].start, trace.spans[i].end);
                let is_covered = |at: i64| {
                    tree.children[i].iter().any(|&c| (trace.spans[c].start..trace.spans[c].end).contains(&at))
                };
                assert_eq!(own, (from..to).filter(|&at| !is_covered(at)).count() as i64, "round {round}, span {i}");
            }
            let below: usize = tree.children.iter().map(Vec::len).sum();
            assert_eq!(below + tree.roots.len(), trace.spans.len(), "round {round}");
            let root = &trace.spans[tree.main_root(&trace).expect("there are spans")];
            let mut upto = root.start;
            for part in tree.critical_path(&trace) {
                assert!(part.from == upto && part.to > part.from, "round {round}: {part:?} behind {upto}");
                let own = &trace.spans[part.span];
                assert!(own.start <= part.from && part.to <= own.end, "round {round}: {part:?}");
                upto = part.to;
            }
            assert_eq!(upto, root.end, "round {round}");
        }
    }
}
