//! Joins by nested loops: the join tree of a query, and its rows.

use super::evaluate::{Oracle, Refusal, Row};
use super::measures::Body;
use super::question::{Cond, Member};
use super::value::Val;
use super::world::{COLUMNS, Kind, World};

/// A root, and joins from models that are there already.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tree {
    pub(crate) root: usize,
    pub(crate) edges: Vec<(usize, usize)>,
}

/// The shortest way over declared joins, those declared first before others.
fn way(world: &World, from: usize, to: usize) -> Option<Vec<usize>> {
    let mut ways = vec![vec![from]];
    let mut seen = vec![from];
    while !ways.is_empty() {
        if let Some(found) = ways.iter().find(|w| w.last() == Some(&to)) {
            return Some(found.clone());
        }
        let mut longer = Vec::new();
        for way in &ways {
            for join in &world.models[*way.last().unwrap()].joins {
                if !seen.contains(&join.to) {
                    seen.push(join.to);
                    longer.push([&way[..], &[join.to]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

impl Tree {
    /// The tree with the fewest joins over some models, that of the first root of equals.
    pub(crate) fn of(world: &World, models: &[usize]) -> Option<Self> {
        let mut best: Option<Self> = None;
        for root in models {
            let mut tree = Self { root: *root, edges: Vec::new() };
            let ways: Option<Vec<Vec<usize>>> = models.iter().map(|to| way(world, *root, *to)).collect();
            let Some(ways) = ways else { continue };
            for pair in ways.iter().flat_map(|way| way.windows(2)) {
                if !tree.models().contains(&pair[1]) {
                    tree.edges.push((pair[0], pair[1]));
                }
            }
            if best.as_ref().is_none_or(|best| tree.edges.len() < best.edges.len()) {
                best = Some(tree);
            }
        }
        best
    }

    pub(crate) fn models(&self) -> Vec<usize> {
        std::iter::once(self.root).chain(self.edges.iter().map(|(_, to)| *to)).collect()
    }

    /// Whether a row of one model says which row of another there is.
    fn determines(&self, world: &World, from: usize, to: usize) -> bool {
        let kind = |a: usize, b: usize| world.models[a].joins.iter().find(|j| j.to == b).unwrap().kind;
        let mut found = vec![from];
        let mut at = 0;
        while at < found.len() {
            for (a, b) in &self.edges {
                let next = if *a == found[at] && kind(*a, *b) != Kind::OneToMany {
                    *b
                } else if *b == found[at] && kind(*a, *b) != Kind::ManyToOne {
                    *a
                } else {
                    continue;
                };
                if !found.contains(&next) {
                    found.push(next);
                }
            }
            at += 1;
        }
        found.contains(&to)
    }
}

impl Oracle<'_> {
    pub(crate) fn column(&self, model: usize, name: &str, row: &Row) -> Val {
        let at = COLUMNS.iter().position(|(column, _)| *column == name).unwrap();
        row[model].map_or(Val::Null, |i| self.world.models[model].rows[i][at].clone())
    }

    /// Rows of a model that the caller sees.
    fn visible(&self, model: usize) -> Vec<usize> {
        let rows = &self.world.models[model].rows;
        let seen = |i: &usize| match (self.services, &rows[*i][2]) {
            (None, _) => true,
            (Some(services), Val::Text(service)) => services.contains(&service.as_str()),
            (Some(_), _) => false,
        };
        (0..rows.len()).filter(seen).collect()
    }

    /// All rows of a tree: each of the root, with those that are joined to it.
    pub(crate) fn joined(&self, tree: &Tree) -> Vec<Row> {
        let empty = vec![None; self.world.models.len()];
        let one = |model: usize, i: usize, row: &Row| {
            let mut row = row.clone();
            row[model] = Some(i);
            row
        };
        let mut rows: Vec<Row> = self.visible(tree.root).into_iter().map(|i| one(tree.root, i, &empty)).collect();
        for (from, to) in &tree.edges {
            let join = self.world.models[*from].joins.iter().find(|j| j.to == *to).unwrap();
            let candidates = self.visible(*to);
            let mut longer = Vec::new();
            for row in &rows {
                let left = self.column(*from, &join.left, row);
                let before = longer.len();
                for i in &candidates {
                    let with = one(*to, *i, row);
                    if !left.is_null() && self.column(*to, &join.right, &with) == left {
                        longer.push(with);
                    }
                }
                if longer.len() == before {
                    longer.push(row.clone());
                }
            }
            rows = longer;
        }
        rows
    }

    fn add(model: usize, out: &mut Vec<usize>) {
        if !out.contains(&model) {
            out.push(model);
        }
    }

    fn of_ex(&self, ex: &super::value::Ex, out: &mut Vec<usize>) {
        ex.each(&mut |model, member| match member {
            None => Self::add(model, out),
            Some(name) => self.of_dim(&(model, name.to_owned()), out),
        });
    }

    /// Models of a dimension, its own first.
    pub(crate) fn of_dim(&self, of: &Member, out: &mut Vec<usize>) {
        Self::add(of.0, out);
        let dim = self.world.dim(of.0, &of.1);
        if dim.sub.is_none() {
            self.of_ex(&dim.ex, out);
        }
    }

    /// Models of a measure, its own first.
    pub(crate) fn of_measure(&self, of: &Member, out: &mut Vec<usize>) {
        Self::add(of.0, out);
        match &self.world.measure(of).body {
            Body::Rows { arg, filters, .. } => {
                arg.iter().chain(filters).for_each(|ex| self.of_ex(ex, out));
            }
            Body::Ratio(a, b) | Body::Sum(a, b) => {
                for name in [a, b] {
                    self.of_measure(&(of.0, name.clone()), out);
                }
            }
            Body::Inner { .. } | Body::Shifted { .. } => {}
            Body::Rank { over, .. } => self.of_measure(&(of.0, over.clone()), out),
        }
    }

    pub(crate) fn of_segment(&self, (model, name): &Member, out: &mut Vec<usize>) {
        Self::add(*model, out);
        let (_, ex) = self.world.models[*model].segments.iter().find(|(n, _)| n == name).unwrap();
        self.of_ex(ex, out);
    }

    pub(crate) fn of_filter(&self, filter: &Cond, out: &mut Vec<usize>) {
        for leaf in filter.leaves() {
            let Cond::Leaf { of, is_measure, .. } = leaf else { continue };
            if *is_measure { self.of_measure(of, out) } else { self.of_dim(of, out) }
        }
    }

    /// What a measure reads of other models must follow from its own row, or there is no telling what it is.
    pub(crate) fn is_clear(&self, tree: &Tree, measure: &Member) -> Result<(), Refusal> {
        let mut models = Vec::new();
        self.of_measure(measure, &mut models);
        let clear = models.iter().all(|to| tree.determines(self.world, measure.0, *to));
        if clear { Ok(()) } else { Err(Refusal::Unclear) }
    }
}
