//! Join trees: how the models of a query are joined, and whose rows joins multiply (`olap-api.md` 11.1).

use std::collections::{BTreeSet, HashMap, HashSet};

use datafusion::common::JoinType;
use datafusion::logical_expr::{LogicalPlan, LogicalPlanBuilder};

use super::{Planner, Stage};
use crate::error::{OlapError, OlapResult, QueryError, Reason};
use crate::model::catalog::{Catalog, MemberKind};
use crate::model::{MemberId, Relationship};
use crate::query::Query;
use crate::query::filter::Filter;
use crate::visibility::may_name;

/// Models joined to a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The model of which all rows are kept.
    pub root: String,
    /// Joins in order, each from a model that is part of the tree already.
    pub edges: Vec<(String, String)>,
}

/// What trees are made of.
struct JoinGraph<'a> {
    catalog: &'a Catalog,
    /// The models, other than the joined two, that the condition of a join reads. They must be joined before.
    beside: &'a dyn Fn(&str, &str) -> Vec<String>,
}

impl Tree {
    /// Builds the tree with the fewest joins; models are tried as root in `order`.
    fn find(order: &[String], hints: &[Vec<String>], graph: &JoinGraph<'_>) -> Option<Self> {
        let heads: Vec<&String> = hints.iter().filter_map(|h| h.first()).collect();
        let roots: Vec<&String> = if heads.is_empty() { order.iter().collect() } else { heads };
        let mut best: Option<Self> = None;
        for root in roots {
            let Some(tree) = Self::from_root(root, order, hints, graph) else { continue };
            if best.as_ref().is_none_or(|b| tree.edges.len() < b.edges.len()) {
                best = Some(tree);
            }
        }
        best
    }

    fn from_root(root: &str, order: &[String], hints: &[Vec<String>], graph: &JoinGraph<'_>) -> Option<Self> {
        let mut tree = Self { root: root.to_owned(), edges: Vec::new() };
        for hint in hints {
            let from = hint.first()?;
            if !tree.has(from) {
                let way = graph.catalog.path(root, from)?;
                tree.add(root, &way, graph);
            }
            tree.add(from, &hint[1..], graph);
        }
        for target in order {
            if !tree.has(target) {
                let way = graph.catalog.path(root, target)?;
                tree.add(root, &way, graph);
            }
        }
        Some(tree)
    }

    fn has(&self, model: &str) -> bool {
        self.root == model || self.edges.iter().any(|(_, to)| to == model)
    }

    fn add(&mut self, from: &str, way: &[String], graph: &JoinGraph<'_>) {
        let mut at = from;
        for to in way {
            if !self.has(to) {
                for model in (graph.beside)(at, to) {
                    let before = graph.catalog.path(at, &model).filter(|before| !before.contains(to));
                    if let Some(before) = before.filter(|_| !self.has(&model)) {
                        self.add(at, &before, graph);
                    }
                }
                self.edges.push((at.to_owned(), to.clone()));
            }
            at = to;
        }
    }

    /// Whether joins multiply the rows of a model: a join on the way from it is one-to-many.
    pub fn is_multiplied(&self, catalog: &Catalog, model: &str) -> bool {
        let mut seen = HashSet::from([model]);
        let mut queue = vec![model];
        while let Some(at) = queue.pop() {
            for (from, to) in &self.edges {
                let relationship = catalog.join(from, to).map(|j| j.relationship);
                let (next, many) = if from == at {
                    (to, relationship == Some(Relationship::OneToMany))
                } else if to == at {
                    (from, relationship == Some(Relationship::ManyToOne))
                } else {
                    continue;
                };
                if seen.insert(next) {
                    if many {
                        return true;
                    }
                    queue.push(next);
                }
            }
        }
        false
    }

    /// The part of the tree that leads to some of its models.
    fn leading_to(&self, models: &[String]) -> Self {
        let mut kept: HashSet<&str> = models.iter().map(String::as_str).collect();
        let mut edges = Vec::new();
        // Each join stands after the one that leads to its model.
        for (from, to) in self.edges.iter().rev() {
            if kept.contains(to.as_str()) {
                kept.insert(from);
                edges.push((from.clone(), to.clone()));
            }
        }
        edges.reverse();
        Self { root: self.root.clone(), edges }
    }

    /// All models of the tree.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.root.as_str()).chain(self.edges.iter().map(|(_, to)| to.as_str()))
    }
}

/// A model that hints reach over two joins. A tree has each model once, so members of one way would be those of the other.
fn reached_twice(hints: &[Vec<String>]) -> Option<&str> {
    let mut came: HashMap<&str, &str> = HashMap::new();
    for step in hints.iter().flat_map(|way| way.windows(2)) {
        let [from, to] = step else { continue };
        if came.insert(to.as_str(), from.as_str()).is_some_and(|before| before != from.as_str()) {
            return Some(to.as_str());
        }
    }
    None
}

impl Planner<'_> {
    /// Adds the models whose rows a member needs, its own first.
    pub(crate) fn needs(&self, id: &MemberId, out: &mut Vec<String>) -> OlapResult<()> {
        let Some(found) = self.catalog.find(id) else {
            return Err(super::model_error(format!("there is no member `{id}`")));
        };
        let add = |name: &str, out: &mut Vec<String>| {
            if !out.iter().any(|n| n == name) {
                out.push(name.to_owned());
            }
        };
        add(&found.model.common.name, out);
        let templates: Vec<_> = match found.kind {
            MemberKind::Dimension(d) if d.sub_query => Vec::new(),
            MemberKind::Dimension(d) => d.templates().collect(),
            MemberKind::Measure(m) if m.multi_stage => Vec::new(),
            MemberKind::Measure(m) => m.templates().collect(),
            MemberKind::Segment(s) => vec![&s.sql],
        };
        for template in templates {
            for model in template.models() {
                add(model, out);
            }
            let is_apart = |member: &&MemberId| {
                let elsewhere = member.model != found.model.common.name;
                elsewhere && matches!(found.kind, MemberKind::Measure(m) if m.apart)
            };
            for member in template.members().filter(|m| !is_apart(m)) {
                self.needs(member, out)?;
            }
        }
        Ok(())
    }

    /// The models, other than the joined two, that the condition of a join reads.
    fn beside(&self, from: &str, to: &str) -> Vec<String> {
        let mut models = Vec::new();
        for id in self.catalog.join(from, to).into_iter().flat_map(|join| join.sql.members()) {
            // A member that does not exist is found where the condition is planned.
            let _ = self.needs(id, &mut models);
        }
        models.retain(|model| model != from && model != to);
        models
    }

    /// Adds the sub-query dimensions that a member refers to.
    pub(super) fn sub_queries(&self, id: &MemberId, out: &mut BTreeSet<MemberId>) {
        let Some(found) = self.catalog.find(id) else { return };
        let templates: Vec<_> = match found.kind {
            MemberKind::Dimension(d) if d.sub_query => {
                out.insert(found.id());
                return;
            }
            MemberKind::Dimension(d) => d.templates().collect(),
            MemberKind::Measure(m) => m.templates().collect(),
            MemberKind::Segment(s) => vec![&s.sql],
        };
        templates.into_iter().flat_map(crate::model::Template::members).for_each(|id| self.sub_queries(id, out));
    }

    /// Adds the models of groups, segments, filters and ranges.
    pub(super) fn stage_needs(&self, stage: &Stage, out: &mut Vec<String>) -> OlapResult<()> {
        let (times, plain): (Vec<_>, Vec<_>) = stage.groups.iter().partition(|g| g.buckets.is_some());
        let filters = stage.filters.iter().flat_map(Filter::leaves).map(|l| &l.member);
        let ranges = stage.ranges.iter().map(|(id, _)| id);
        let all = plain.iter().map(|g| &g.member).chain(&stage.segments).chain(filters).chain(&stage.later);
        for id in all.chain(times.iter().map(|g| &g.member)).chain(ranges) {
            self.needs(id, out)?;
        }
        Ok(())
    }

    /// The tree for some measures of a stage.
    pub(crate) fn tree(&self, stage: &Stage, measures: &[MemberId]) -> OlapResult<Tree> {
        let mut order = Vec::new();
        for id in measures {
            self.needs(id, &mut order)?;
        }
        self.stage_needs(stage, &mut order)?;
        if let Some(model) = reached_twice(&stage.hints) {
            let named = may_name(self.catalog, model, self.access).then(|| format!("`{model}`"));
            let text = format!(
                "members of the query reach {} over different joins, and a query has one way to each model",
                named.as_deref().unwrap_or("a model")
            );
            return Err(QueryError::new(Reason::NoJoinPath, "", text).into());
        }
        let graph = JoinGraph { catalog: self.catalog, beside: &|from, to| self.beside(from, to) };
        Tree::find(&order, &stage.hints, &graph).ok_or_else(|| {
            // Members may refer to models that the caller may not know of; errors omit these.
            let known: Vec<String> =
                order.iter().filter(|name| may_name(self.catalog, name, self.access)).cloned().collect();
            let text = match known.len() {
                0 | 1 => "no joins lead from one model to all that the query needs".to_owned(),
                _ => format!("no joins lead from one model to all of `{}`", known.join("`, `")),
            };
            OlapError::Query(QueryError::new(Reason::NoJoinPath, "", text))
        })
    }

    /// Measures with the part of a tree that each needs. Where joins multiply rows of some model, rows of models that
    /// nothing asks for would be multiplied with each other, only to be told apart again. All parts have the same
    /// groups, as joins keep all rows of the root; where nothing is multiplied, one part reads all.
    pub(super) fn own_trees(
        &self,
        stage: &Stage,
        tree: &Tree,
        measures: &[MemberId],
    ) -> OlapResult<Vec<(Tree, Vec<MemberId>)>> {
        if measures.is_empty() {
            return Ok(Vec::new());
        }
        if !measures.iter().any(|id| tree.is_multiplied(self.catalog, &id.model)) {
            return Ok(vec![(tree.clone(), measures.to_vec())]);
        }
        let mut apart: Vec<(Tree, Vec<MemberId>)> = Vec::new();
        for id in measures {
            let mut needed = Vec::new();
            self.needs(id, &mut needed)?;
            self.stage_needs(stage, &mut needed)?;
            let own = self.part_of(tree, needed);
            match apart.iter_mut().find(|(of, _)| *of == own) {
                Some((_, same)) => same.push(id.clone()),
                None => apart.push((own, vec![id.clone()])),
            }
        }
        Ok(apart)
    }

    /// The part of a tree that leads to some of its models, with those that conditions of its joins read.
    pub(super) fn part_of(&self, tree: &Tree, mut needed: Vec<String>) -> Tree {
        loop {
            let part = tree.leading_to(&needed);
            let beside = part.edges.iter().flat_map(|(from, to)| self.beside(from, to));
            let more: Vec<String> = beside.filter(|model| !needed.contains(model)).collect();
            if more.is_empty() {
                return part;
            }
            needed.extend(more);
        }
    }

    /// The tree of a whole query.
    pub(crate) fn tree_of_query(&self, stage: &Stage, query: &Query) -> OlapResult<Tree> {
        let measures: Vec<MemberId> = query.measures.iter().map(|id| self.behind(id)).collect::<OlapResult<_>>()?;
        self.tree(stage, &measures)
    }

    /// The rows of a tree, with all conditions except those on `free` time dimensions.
    pub(crate) fn rows(
        &self,
        stage: &Stage,
        tree: &Tree,
        measures: &[MemberId],
        free: &[MemberId],
    ) -> OlapResult<LogicalPlan> {
        self.rows_over(stage, tree, measures, (free, self.shows_records(stage, tree, measures)))
    }

    /// Rows as [`Self::rows`] gives them. `is_of_records`: a root whose rows are records of entities stands with these.
    pub(crate) fn rows_over(
        &self,
        stage: &Stage,
        tree: &Tree,
        measures: &[MemberId],
        (free, is_of_records): (&[MemberId], bool),
    ) -> OlapResult<LogicalPlan> {
        let mut inner = BTreeSet::new();
        let filters = stage.filters.iter().flat_map(Filter::leaves).map(|l| &l.member);
        let ranges = stage.ranges.iter().map(|(id, _)| id);
        let all = stage.groups.iter().map(|g| &g.member).chain(&stage.segments).chain(filters).chain(ranges);
        all.chain(measures).for_each(|id| self.sub_queries(id, &mut inner));
        let mut plan = self.joined_rows(stage, tree, &tree.root, (measures, &inner, is_of_records))?;
        for (from, to) in &tree.edges {
            let join = self.catalog.join(from, to).expect("trees go over joins");
            let on = self.join_condition(stage, from, join)?;
            let right = self.joined_rows(stage, tree, to, (measures, &inner, is_of_records))?;
            plan = LogicalPlanBuilder::from(plan).join_on(right, JoinType::Left, [on])?.build()?;
        }
        let conditions = self.conditions(stage, &tree.root, free)?;
        if let Some(all) = conditions.into_iter().reduce(datafusion::logical_expr::and) {
            plan = LogicalPlanBuilder::from(plan).filter(all)?.build()?;
        }
        for id in &stage.segments {
            plan = self.kept_by(stage, plan, id)?;
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_trees_lead_to_what_is_needed() {
        let edge = |(from, to): &(&str, &str)| ((*from).to_owned(), (*to).to_owned());
        let tree = |edges: &[(&str, &str)]| Tree { root: "A".to_owned(), edges: edges.iter().map(edge).collect() };
        let all = tree(&[("A", "B"), ("A", "C"), ("B", "D"), ("D", "E")]);
        let check = |models: &[&str], expected: &[(&str, &str)]| {
            let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
            assert_eq!(all.leading_to(&models), tree(expected), "{models:?}");
        };
        check(&[], &[]);
        check(&["A"], &[]);
        check(&["C", "A"], &[("A", "C")]);
        check(&["D"], &[("A", "B"), ("B", "D")]);
        check(&["E", "C"], &[("A", "B"), ("A", "C"), ("B", "D"), ("D", "E")]);
    }

    #[test]
    fn ways_that_meet_in_a_model() {
        let check = |ways: &[&[&str]], expected: Option<&str>| {
            let hints: Vec<Vec<String>> =
                ways.iter().map(|way| way.iter().map(|name| (*name).to_owned()).collect()).collect();
            assert_eq!(reached_twice(&hints), expected, "{ways:?}");
        };
        check(&[], None);
        check(&[&["A"], &["A", "B"], &["A", "B", "D"], &["A", "C"]], None);
        check(&[&["A", "B"], &["B", "D"], &["A", "B", "D"]], None);
        check(&[&["A", "B", "D"], &["A", "C", "D"]], Some("D"));
        check(&[&["A", "B", "D"], &["A", "D"]], Some("D"));
    }
}
