//! The critical path of a trace: what the end of its root waits for.

use std::cmp::Reverse;

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
}
