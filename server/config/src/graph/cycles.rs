//! Finds simple cycles of a directed graph with Johnson's algorithm (1975), up to a limit.

/// Most cycles that are reported.
const CYCLES_MAX: usize = 10;

/// Returns cycles as lists of nodes along the edges, each cycle once. Empty only if there is none.
pub(super) fn simple_cycles(out: &[Vec<usize>]) -> Vec<Vec<usize>> {
    let mut left = vec![true; out.len()];
    let mut into: Vec<Vec<usize>> = vec![Vec::new(); out.len()];
    for (from, far) in out.iter().enumerate() {
        for &to in far {
            into[to].push(from);
        }
    }
    let mut found = Vec::new();
    // Each round finds at least one, so there are few, however many nodes lie between cycles without being on one.
    while found.len() < CYCLES_MAX {
        let of = components(out, &into, &left);
        let mut sizes = vec![0_usize; out.len()];
        of.iter().flatten().for_each(|&component| sizes[component] += 1);
        let is_on_one = |node: usize| of[node].is_some_and(|c| sizes[c] > 1 || out[node].contains(&node));
        let Some(start) = (0..out.len()).find(|&node| is_on_one(node)) else { break };
        let within: Vec<bool> = of.iter().map(|component| component.is_some() && *component == of[start]).collect();
        circuits(start, out, &within, &mut found);
        // All cycles through it are found.
        left[start] = false;
    }
    found
}

/// The strongly connected component of each node that is left, named by one of its nodes; Kosaraju's algorithm.
fn components(out: &[Vec<usize>], into: &[Vec<usize>], left: &[bool]) -> Vec<Option<usize>> {
    let mut seen = vec![false; out.len()];
    let mut done = Vec::new();
    for root in (0..out.len()).filter(|&node| left[node]) {
        if std::mem::replace(&mut seen[root], true) {
            continue;
        }
        let mut stack = vec![(root, 0_usize)];
        while let Some((node, at)) = stack.last_mut() {
            let node = *node;
            if let Some(&far) = out[node].get(*at) {
                *at += 1;
                if left[far] && !std::mem::replace(&mut seen[far], true) {
                    stack.push((far, 0));
                }
            } else {
                done.push(node);
                stack.pop();
            }
        }
    }
    let mut of = vec![None; out.len()];
    for &root in done.iter().rev() {
        if of[root].is_some() {
            continue;
        }
        of[root] = Some(root);
        let mut open = vec![root];
        while let Some(node) = open.pop() {
            for &far in into[node].iter().filter(|&&far| left[far]) {
                if of[far].is_none() {
                    of[far] = Some(root);
                    open.push(far);
                }
            }
        }
    }
    of
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
        check(&[&[0, 1], &[], &[2]], &[&[0], &[2]]);
        check(&[&[2], &[0], &[1, 3], &[4], &[3, 5], &[]], &[&[0, 2, 1], &[3, 4]]);
    }

    /// Nodes between two cycles are on none, and cost nothing each: a search from each of them took minutes.
    #[test]
    fn many_nodes_between_cycles() {
        const LAYERS: usize = 250;
        let mut out: Vec<Vec<usize>> = vec![vec![1], vec![0]];
        out[1].extend(2..22);
        for layer in 1..LAYERS {
            let next = 2 + layer * 20;
            out.extend((0..20).map(|_| (next..next + 20).collect::<Vec<_>>()));
        }
        let last = out.len() + 20;
        out.extend((0..20).map(|_| vec![last]));
        out.extend([vec![last + 1], vec![last]]);
        assert_eq!(out.len(), LAYERS * 20 + 4);
        assert_eq!(simple_cycles(&out), [vec![0, 1], vec![last, last + 1]]);
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
