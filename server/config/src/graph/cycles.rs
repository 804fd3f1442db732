//! Finds simple cycles of a directed graph with Johnson's algorithm (1975), up to a limit.

use std::collections::VecDeque;

/// Most cycles that are reported.
const CYCLES_MAX: usize = 10;

/// Returns cycles as lists of nodes along the edges, each cycle once. Empty only if there is none.
pub(super) fn simple_cycles(out: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut left = vec![true; out.len()];
    peel(out, &mut left);
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); out.len()];
    for (from, far) in out.iter().enumerate() {
        for &to in far {
            into[to].push(from);
        }
    }
    let mut found = Vec::new();
    for start in 0..out.len() {
        if !left[start] {
            continue;
        }
        let (ahead, behind) = (reached(start, out, &left), reached(start, &into, &left));
        let within: Vec<bool> = ahead.iter().zip(&behind).map(|(a, b)| *a && *b).collect();
        circuits(start, out, &within, &mut found);
        if found.len() >= CYCLES_MAX {
            break;
        }
        // All cycles through it are found, so it is removed, with nodes that were only connected through it.
        left[start] = false;
        peel(out, &mut left);
    }
    found
}

/// Repeatedly removes nodes without incoming or outgoing edges.
fn peel(out: &[Vec<usize>], left: &mut [bool]) {
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); out.len()];
    for (from, far) in out.iter().enumerate() {
        for &to in far {
            into[to].push(from);
        }
    }
    for (ahead, behind) in [(out, &into[..]), (&into[..], out)] {
        let mut ways: Vec<usize> = behind.iter().map(|b| b.iter().filter(|&&n| left[n]).count()).collect();
        let mut open: Vec<usize> = (0..out.len()).filter(|&n| left[n] && ways[n] == 0).collect();
        while let Some(node) = open.pop() {
            left[node] = false;
            for &far in ahead[node].iter().filter(|&&far| left[far]) {
                ways[far] -= 1;
                if ways[far] == 0 {
                    open.push(far);
                }
            }
        }
    }
}

fn reached(start: usize, edges: &[Vec<usize>], left: &[bool]) -> Vec<bool> {
    let mut seen = vec![false; edges.len()];
    let mut open = VecDeque::from([start]);
    seen[start] = true;
    while let Some(node) = open.pop_front() {
        for &far in &edges[node] {
            if left[far] && !seen[far] {
                seen[far] = true;
                open.push_back(far);
            }
        }
    }
    seen
}

/// Finds cycles through a node within some nodes. Iterative with an explicit stack, since a path may have as many
/// nodes as the graph.
fn circuits(start: usize, out: &[Vec<usize>], within: &[bool], found: &mut Vec<Vec<usize>>) {
    let count = out.len();
    let (mut blocked, mut closed) = (vec![false; count], vec![false; count]);
    let mut waiting: Vec<Vec<usize>> = vec![Vec::new(); count];
    let mut stack = vec![(start, 0_usize)];
    blocked[start] = true;
    while let Some((node, at)) = stack.last_mut() {
        let node = *node;
        if let Some(&far) = out[node].get(*at) {
            *at += 1;
            if far == start {
                found.push(stack.iter().map(|(n, _)| *n).collect());
                for (n, _) in &stack {
                    closed[*n] = true;
                }
                if found.len() >= CYCLES_MAX {
                    return;
                }
            } else if within[far] && !blocked[far] {
                stack.push((far, 0));
                closed[far] = false;
                blocked[far] = true;
            }
            continue;
        }
        if closed[node] {
            let mut open = vec![node];
            while let Some(free) = open.pop() {
                if std::mem::take(&mut blocked[free]) {
                    open.append(&mut waiting[free]);
                }
            }
        } else {
            for &far in out[node].iter().filter(|&&far| within[far]) {
                if !waiting[far].contains(&node) {
                    waiting[far].push(node);
                }
            }
        }
        stack.pop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(out: &[&[usize]], expected: &[&[usize]]) {
        let out: Vec<Vec<usize>> = out.iter().map(|far| far.to_vec()).collect();
        let mut found = simple_cycles(&out);
        found.sort();
        assert_eq!(found, expected, "{out:?}");
    }

    #[test]
    fn small_graphs() {
        check(&[], &[]);
        check(&[&[1], &[2], &[]], &[]);
        check(&[&[1], &[2], &[0]], &[&[0, 1, 2]]);
        check(&[&[1], &[0, 2], &[1]], &[&[0, 1], &[1, 2]]);
        check(&[&[1, 2], &[2], &[0]], &[&[0, 1, 2], &[0, 2]]);
        check(&[&[1], &[2], &[3], &[2]], &[&[2, 3]]);
    }

    /// One long cycle, which recursion could not handle.
    #[test]
    fn long() {
        let out: Vec<Vec<usize>> = (0..100_000).map(|n| vec![(n + 1) % 100_000]).collect();
        assert_eq!(simple_cycles(&out).len(), 1);
    }

    #[test]
    fn bounded() {
        let out: Vec<Vec<usize>> = (0..40).map(|n| (0..40).filter(|m| *m != n).collect()).collect();
        assert_eq!(simple_cycles(&out).len(), CYCLES_MAX);
    }
}
