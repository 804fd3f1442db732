//! Parents and children of a trace, self times, the critical path. Nothing here recurses: a chain of a million spans and
//! spans that are each other's parents are inputs like any other.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use quiver_types::spans::SpanId;

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
}

/// A stretch of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Which span.
    pub span: usize,
    /// Unix nanoseconds.
    pub from: i64,
    /// Unix nanoseconds.
    pub to: i64,
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
        let mut next = 0;
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
            }
            roots.push(next);
            stack.push((next, 0));
        }
        roots.sort_unstable();
        Self { parent, children, depth, roots }
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

    /// Gives the critical path: from the end of the main root backwards, always the child that ended last.
    pub fn critical_path(&self, trace: &Trace) -> Vec<Segment> {
        struct Frame {
            span: usize,
            by_end: Vec<usize>,
            next: usize,
            upto: i64,
        }
        let Some(root) = self.main_root(trace) else { return Vec::new() };
        let frame = |span: usize, upto: i64| {
            let mut by_end = self.children[span].clone();
            by_end.sort_by_key(|&c| std::cmp::Reverse((trace.spans[c].end, c)));
            Frame { span, by_end, next: 0, upto: upto.min(trace.spans[span].end) }
        };
        let mut path = Vec::new();
        let mut stack = vec![frame(root, i64::MAX)];
        while let Some(top) = stack.last_mut() {
            let own = &trace.spans[top.span];
            let mut into = None;
            while let Some(&child) = top.by_end.get(top.next) {
                top.next += 1;
                let c = &trace.spans[child];
                let ends = c.end.min(top.upto);
                if c.start >= top.upto || ends <= own.start || c.start < own.start && c.end <= own.start {
                    continue;
                }
                if ends < top.upto {
                    path.push(Segment { span: top.span, from: ends, to: top.upto });
                }
                top.upto = c.start.max(own.start);
                into = Some((child, ends));
                break;
            }
            if let Some((child, ends)) = into {
                stack.push(frame(child, ends));
                continue;
            }
            if own.start < top.upto {
                path.push(Segment { span: top.span, from: own.start, to: top.upto });
            }
            stack.pop();
        }
        path.reverse();
        path
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
        let chain: Vec<_> = (1..=100_000).map(|i| span(i, i - 1, "a", 0, i as i64, 200_000)).collect();
        let trace = assemble([1; 16], chain);
        let tree = Tree::of(&trace);
        assert_eq!(tree.depth[99_999], 99_999);
        assert_eq!(tree.critical_path(&trace).len(), 100_000);
    }
}
