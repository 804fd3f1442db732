//! The critical path of a trace: the spans that determine when its root ends.

use std::cmp::Reverse;

/// A stretch of the critical path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Place of the span whose time it is: what `times` and `children` are asked by.
    pub span: usize,
    /// Where the stretch begins, Unix nanoseconds.
    pub from: i64,
    /// Where it ends, Unix nanoseconds; the next one begins there.
    pub to: i64,
}

struct Frame {
    span: usize,
    by_end: Vec<usize>,
    next: usize,
    from: i64,
    upto: i64,
}

/// Gives the critical path of a root in order: from its end backwards, always through the child that ended last, which
/// counts as long as its parent runs and until the one behind it begins; between children it is the span's own time. `times`
/// are the start and the end of a span; `children` do not lead back to their parents.
pub fn critical_path(root: usize, times: impl Fn(usize) -> (i64, i64), children: &[Vec<usize>]) -> Vec<Segment> {
    let frame = |span: usize, (from, upto): (i64, i64)| {
        let mut by_end = children[span].clone();
        by_end.sort_by_key(|&child| Reverse((times(child).1, child)));
        let (start, end) = times(span);
        Frame { span, by_end, next: 0, from: from.max(start), upto: upto.min(end) }
    };
    let mut path = Vec::new();
    let mut stack = vec![frame(root, (i64::MIN, i64::MAX))];
    while let Some(top) = stack.last_mut() {
        let mut into = None;
        while let Some(&child) = top.by_end.get(top.next) {
            top.next += 1;
            let (start, end) = times(child);
            let ends = end.min(top.upto);
            if start >= top.upto || ends <= top.from {
                continue;
            }
            if ends < top.upto {
                path.push(Segment { span: top.span, from: ends, to: top.upto });
            }
            top.upto = start.max(top.from);
            into = Some((child, (top.from, ends)));
            break;
        }
        if let Some((child, within)) = into {
            stack.push(frame(child, within));
            continue;
        }
        if top.from < top.upto {
            path.push(Segment { span: top.span, from: top.from, to: top.upto });
        }
        stack.pop();
    }
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_end_waits_for() {
        // A root, a child that began before it, one that outlasts it, and one that begins after its end.
        let times = [(0, 100), (-50, 40), (60, 150), (120, 130)];
        let path = critical_path(0, |span| times[span], &[vec![1, 2, 3], vec![], vec![], vec![]]);
        let found: Vec<_> = path.iter().map(|part| (part.span, part.from, part.to)).collect();
        assert_eq!(found, [(1, 0, 40), (0, 40, 60), (2, 60, 100)]);
    }

    fn path(times: &[(i64, i64)], children: &[Vec<usize>]) -> Vec<(usize, i64, i64)> {
        critical_path(0, |span| times[span], children).iter().map(|part| (part.span, part.from, part.to)).collect()
    }

    #[test]
    fn spans_without_children_and_without_length() {
        assert_eq!(path(&[(3, 9)], &[vec![]]), [(0, 3, 9)]);
        assert_eq!(path(&[(3, 3)], &[vec![]]), []);
        // One that takes no time, and one as long as its parent.
        assert_eq!(path(&[(0, 10), (5, 5), (0, 10)], &[vec![1, 2], vec![], vec![]]), [(2, 0, 10)]);
        assert_eq!(path(&[(0, 10), (5, 5)], &[vec![1], vec![]]).iter().map(|part| part.2 - part.1).sum::<i64>(), 10);
    }

    #[test]
    fn children_of_children_and_those_that_overlap() {
        let times = [(0, 100), (10, 90), (20, 80), (50, 95)];
        // The last one to end counts from its start on, the one before it up to there.
        assert_eq!(
            path(&times, &[vec![1, 3], vec![2], vec![], vec![]]),
            [(0, 0, 10), (1, 10, 20), (2, 20, 50), (3, 50, 95), (0, 95, 100)]
        );
    }

    /// Whatever the times are, the path is without gaps from the start of the root to its end.
    #[test]
    fn the_path_is_as_long_as_its_root() {
        let mut random = 7_u64;
        let mut next = |below: i64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as i64 % below
        };
        for _ in 0..500 {
            let count = 1 + next(12) as usize;
            let mut times = vec![(100, 200)];
            let mut children = vec![Vec::new(); count];
            for span in 1..count {
                let start = 60 + next(160);
                times.push((start, start + next(100)));
                children[next(span as i64) as usize].push(span);
            }
            let found = path(&times, &children);
            let mut at = 100;
            for (span, from, to) in found {
                assert_eq!(from, at, "{times:?} {children:?}");
                assert!(from < to && times[span].0 <= from && to <= times[span].1, "{times:?} {children:?}");
                at = to;
            }
            assert_eq!(at, 200, "{times:?} {children:?}");
        }
    }
}
