//! Resolves names across all files: extended models, and names in SQL texts and lists of members.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use quiver_types::suggestions::did_you_mean;
use quiver_yaml::problem::Place;

use super::added_groups::granularity_fault;
use super::problem::ModelProblem;
use super::template::{OPERATORS_MAX, Piece, Template};
use super::{Case, Hierarchy, Label, MemberId, Model, PreAggregation, Segment, Source};

/// The most bytes of members that models inherit from those that they extend.
const TAKEN_BYTES_MAX: usize = 64 << 20;
/// Bytes that a member counts in addition to its texts.
const MEMBER_BYTES: usize = 512;
/// The longest chain of members that refer to each other; planning follows no longer ones.
const DEPTH_MAX: usize = 64;
/// The most members that one member expands to when it is planned.
const PARTS_MAX: usize = 1_000;

/// Names of models with their members.
type Names = BTreeMap<String, BTreeSet<String>>;

/// A name that does not exist.
struct MissingName {
    place: Place,
    member: Option<String>,
    message: String,
}

/// Copies members of extended models, unless the model has its own of that name.
pub(super) fn extend(models: &mut [Model], problems: &mut Vec<ModelProblem>) {
    let mut done: HashSet<String> = HashSet::new();
    let mut taken_bytes = 0;
    loop {
        let ready = models
            .iter()
            .position(|m| !done.contains(&m.common.name) && m.extends.as_ref().is_none_or(|base| done.contains(base)));
        let Some(at) = ready else { break };
        if let Some(base) = models[at].extends.clone() {
            let base = models.iter().find(|m| m.common.name == base).expect("it is done, so it is there");
            // Counted before copying: each model of a chain has the members of all before it.
            taken_bytes += bytes(base);
            if taken_bytes > TAKEN_BYTES_MAX {
                let model = &models[at];
                let text = format!("models take over more than {TAKEN_BYTES_MAX} bytes of those that they extend");
                problems.push(ModelProblem::new(model, model.common.place, None, text));
                return;
            }
            let base = base.clone();
            take_over(&mut models[at], &base);
        }
        done.insert(models[at].common.name.clone());
    }
    for model in models.iter().filter(|m| !done.contains(&m.common.name)) {
        let base = model.extends.as_deref().unwrap_or_default();
        let text = format!("`{}` extends `{base}`, which is not there or extends it in turn", model.common.name);
        problems.push(ModelProblem::new(model, model.common.place, None, text));
    }
}

/// Approximate bytes of a model's members.
fn bytes(model: &Model) -> usize {
    let dimensions = model.dimensions.iter().flat_map(crate::model::Dimension::templates);
    let measures = model.measures.iter().flat_map(crate::model::Measure::templates);
    let others = model.segments.iter().map(|s| &s.sql).chain(model.joins.iter().map(|j| &j.sql));
    let texts: usize = dimensions.chain(measures).chain(others).map(|t| t.text.len()).sum();
    let source = model.source.as_ref().map_or(0, |source| match source {
        Source::Table(..) => 0,
        Source::Select(text) => text.len(),
    });
    let members = model.member_names().count() + model.joins.len() + model.hierarchies.len();
    members * MEMBER_BYTES + texts + source
}

fn take_over(model: &mut Model, base: &Model) {
    let named = |names: Vec<&String>| names.into_iter().cloned().collect::<HashSet<String>>();
    let dimensions = named(model.dimensions.iter().map(|d| &d.common.name).collect());
    let measures = named(model.measures.iter().map(|m| &m.common.name).collect());
    let segments = named(model.segments.iter().map(|s| &s.common.name).collect());
    let joins = named(model.joins.iter().map(|j| &j.target).collect());
    let all = |name: &String| dimensions.contains(name) || measures.contains(name) || segments.contains(name);
    let own = &model.common.name;
    let rename = |ids: &[MemberId]| {
        let renamed =
            ids.iter().map(|id| if id.model == base.common.name { MemberId::new(own, &id.member) } else { id.clone() });
        renamed.collect::<Vec<_>>()
    };
    let (mut more_dimensions, mut more_measures, mut more_segments) = (Vec::new(), Vec::new(), Vec::new());
    more_dimensions.extend(base.dimensions.iter().filter(|d| !all(&d.common.name)).cloned());
    for segment in base.segments.iter().filter(|s| !all(&s.common.name)) {
        more_segments.push(Segment { by: rename(&segment.by), ..segment.clone() });
    }
    let hierarchies = named(model.hierarchies.iter().map(|h| &h.common.name).collect());
    let taken = |name: &String| all(name) || hierarchies.contains(name);
    let more_hierarchies = base.hierarchies.iter().filter(|h| !taken(&h.common.name));
    let more_hierarchies = more_hierarchies.map(|h| Hierarchy { levels: rename(&h.levels), ..h.clone() });
    let more_hierarchies: Vec<Hierarchy> = more_hierarchies.collect();
    for measure in base.measures.iter().filter(|m| !all(&m.common.name)) {
        let mut measure = measure.clone();
        measure.drill_members = rename(&measure.drill_members);
        measure.reduce_by = rename(&measure.reduce_by);
        for added in &mut measure.add_group_by {
            added.member = rename(std::slice::from_ref(&added.member)).remove(0);
        }
        for kept in measure.group_by.iter_mut().flatten() {
            kept.member = rename(std::slice::from_ref(&kept.member)).remove(0);
        }
        for shift in &mut measure.time_shift {
            shift.time_dimension = shift.time_dimension.take().map(|id| rename(&[id]).remove(0));
        }
        more_measures.push(measure);
    }
    model.dimensions.splice(0..0, more_dimensions);
    model.measures.splice(0..0, more_measures);
    model.segments.splice(0..0, more_segments);
    model.hierarchies.splice(0..0, more_hierarchies);
    model.joins.extend(base.joins.iter().filter(|j| !joins.contains(&j.target)).cloned());
    model.source = model.source.take().or_else(|| base.source.clone());
    model.rows = model.rows.take().or_else(|| base.rows.clone());
    model.entities |= base.entities;
    if model.whole.is_empty() {
        model.whole.clone_from(&base.whole);
    }
    let rollups = named(model.pre_aggregations.iter().map(|p| &p.name).collect());
    let more_rollups = base.pre_aggregations.iter().filter(|p| !rollups.contains(&p.name));
    let more_rollups = more_rollups.map(|p| PreAggregation {
        measures: rename(&p.measures),
        dimensions: rename(&p.dimensions),
        segments: rename(&p.segments),
        time: p
            .time
            .as_ref()
            .map(|(id, granularity)| (rename(std::slice::from_ref(id)).remove(0), granularity.clone())),
        ..p.clone()
    });
    let more_rollups: Vec<PreAggregation> = more_rollups.collect();
    model.pre_aggregations.splice(0..0, more_rollups);
    model.open = model.open.take().or_else(|| base.open.clone());
    model.refresh_key = model.refresh_key.take().or_else(|| base.refresh_key.clone());
    model.row_right = model.row_right.take().or_else(|| base.row_right.clone());
}

/// Resolves all names. In models that `lenient` lists, members that refer to missing ones are removed with a warning.
pub(super) fn resolve(
    models: &mut [Model],
    lenient: &HashSet<String>,
    problems: &mut Vec<ModelProblem>,
    warnings: &mut Vec<ModelProblem>,
) {
    loop {
        let names: Names =
            models.iter().map(|m| (m.common.name.clone(), m.member_names().map(str::to_owned).collect())).collect();
        let mut again = false;
        for model in models.iter_mut() {
            let is_lenient = lenient.contains(&model.common.name);
            let missing = resolve_model(model, &names, is_lenient);
            again |= is_lenient && !missing.is_empty();
            let told = if is_lenient { &mut *warnings } else { &mut *problems };
            told.extend(missing.into_iter().map(|m| ModelProblem::new(model, m.place, m.member.as_deref(), m.message)));
        }
        // Others may refer to a member that was removed.
        if !again {
            return;
        }
    }
}

fn resolve_model(model: &mut Model, names: &Names, drop_missing: bool) -> Vec<MissingName> {
    let own = model.common.name.clone();
    let mut missing = Vec::new();
    let mut keep = |name: &str, found: Vec<MissingName>| {
        let fine = found.is_empty();
        missing.extend(found.into_iter().map(|m| MissingName { member: Some(name.to_owned()), ..m }));
        fine || !drop_missing
    };
    let r = Resolver { own: &own, names };
    model.dimensions.retain_mut(|d| {
        let mut found = Vec::new();
        d.sql.iter_mut().for_each(|t| found.extend(r.template(t)));
        d.case.iter_mut().for_each(|c| found.extend(r.case(c)));
        d.geo.iter_mut().for_each(|(a, b)| found.extend(r.template(a).into_iter().chain(r.template(b))));
        keep(&d.common.name, found)
    });
    model.measures.retain_mut(|m| {
        let mut found = Vec::new();
        m.sql.iter_mut().for_each(|t| found.extend(r.template(t)));
        m.case.iter_mut().for_each(|c| found.extend(r.case(c)));
        m.filters.iter_mut().for_each(|t| found.extend(r.template(t)));
        m.order_by.iter_mut().for_each(|(t, _)| found.extend(r.template(t)));
        let shifts = m.time_shift.iter().filter_map(|s| s.time_dimension.as_ref());
        let added = m.add_group_by.iter().map(|added| &added.member);
        let kept = m.group_by.iter().flatten().map(|kept| &kept.member);
        let lists = m.drill_members.iter().chain(&m.reduce_by).chain(added).chain(kept);
        found.extend(r.members(lists.chain(shifts), m.common.place));
        keep(&m.common.name, found)
    });
    model.segments.retain_mut(|s| {
        let mut found = r.template(&mut s.sql);
        found.extend(r.members(s.by.iter(), s.common.place));
        keep(&s.common.name, found)
    });
    model.joins.retain_mut(|j| {
        let mut found = r.template(&mut j.sql);
        if !names.contains_key(&j.target) {
            let message = r.unknown_model(&j.target);
            found.push(MissingName { place: j.place, member: None, message });
        }
        keep(&j.target, found)
    });
    model.hierarchies.retain(|h| keep(&h.common.name, r.members(h.levels.iter(), h.common.place)));
    let place = model.common.place;
    model.pre_aggregations.retain(|p| {
        let times = p.time.as_ref().map(|(id, _)| id);
        keep(&p.name, r.members(p.measures.iter().chain(&p.dimensions).chain(&p.segments).chain(times), place))
    });
    if let Some(rows) = &mut model.rows {
        missing.extend(r.template(&mut rows.sql));
        let segment = rows.unless.iter().map(|name| MemberId::new(&own, name)).collect::<Vec<_>>();
        missing.extend(r.members(segment.iter(), place));
    }
    if let Some(right) = &model.row_right {
        let ids: Vec<MemberId> = right.services.iter().chain(&right.own).map(|n| MemberId::new(&own, n)).collect();
        missing.extend(r.members(ids.iter(), place));
    }
    missing
}

struct Resolver<'a> {
    own: &'a str,
    names: &'a Names,
}

impl Resolver<'_> {
    fn unknown_model(&self, name: &str) -> String {
        format!("there is no model `{name}`{}", did_you_mean(name, self.names.keys().map(String::as_str)))
    }

    fn member(&self, id: &MemberId) -> Option<String> {
        let Some(members) = self.names.get(&id.model) else { return Some(self.unknown_model(&id.model)) };
        if members.contains(&id.member) {
            return None;
        }
        let hint = did_you_mean(&id.member, members.iter().map(String::as_str));
        Some(format!("model `{}` has no member `{}`{hint}", id.model, id.member))
    }

    fn members<'m>(&self, ids: impl Iterator<Item = &'m MemberId>, place: Place) -> Vec<MissingName> {
        let missing = ids.filter_map(|id| self.member(id));
        missing.map(|message| MissingName { place, member: None, message }).collect()
    }

    fn case(&self, case: &mut Case) -> Vec<MissingName> {
        let mut found = Vec::new();
        let label = |l: &mut Label, found: &mut Vec<MissingName>| {
            if let Label::Sql(t) = l {
                found.extend(self.template(t));
            }
        };
        for (when, then) in &mut case.when {
            found.extend(self.template(when));
            label(then, &mut found);
        }
        case.otherwise.iter_mut().for_each(|l| label(l, &mut found));
        found
    }

    fn template(&self, template: &mut Template) -> Vec<MissingName> {
        let mut missing = Vec::new();
        for piece in &mut template.pieces {
            let found = match piece {
                Piece::Raw(names) => self.piece(names),
                // Visited again after a member was removed.
                Piece::Member(id) | Piece::Bucket(id, _) => self.member(id).map_or(Ok(piece.clone()), Err),
                Piece::Model(name) if !self.names.contains_key(name) => Err(self.unknown_model(name)),
                Piece::Model(_) | Piece::Text(_) => continue,
            };
            match found {
                Ok(resolved) => *piece = resolved,
                Err(message) => missing.push(MissingName { place: template.place, member: None, message }),
            }
        }
        missing
    }

    fn piece(&self, names: &[String]) -> Result<Piece, String> {
        let own = |member: &str| MemberId::new(self.own, member);
        let cut = |id: MemberId, to: &String| self.member(&id).map_or(Ok(Piece::Bucket(id, to.clone())), Err);
        let id = match names {
            [one] if one == "CUBE" => return Ok(Piece::Model(self.own.to_owned())),
            [one] if self.names.get(self.own).is_some_and(|m| m.contains(one)) => own(one),
            [one] if self.names.contains_key(one) => return Ok(Piece::Model(one.clone())),
            [one] => own(one),
            [time, granularity]
                if !self.names.contains_key(time) && self.names.get(self.own).is_some_and(|m| m.contains(time)) =>
            {
                return cut(own(time), granularity);
            }
            [model, member] if model == "CUBE" => own(member),
            [model, member] => MemberId::new(model, member),
            [model, time, granularity] if model == "CUBE" => return cut(own(time), granularity),
            [model, time, granularity] => return cut(MemberId::new(model, time), granularity),
            _ => return Err("a reference has one to three names".to_owned()),
        };
        self.member(&id).map_or(Ok(Piece::Member(id)), Err)
    }
}

/// Reports levels of hierarchies that are no dimensions.
pub(super) fn levels(models: &[Model], problems: &mut Vec<ModelProblem>) {
    let is_other = |id: &MemberId| {
        // Missing members have been reported already.
        let of = models.iter().find(|m| m.common.name == id.model && m.member_names().any(|name| name == id.member));
        of.is_some_and(|model| model.dimension(&id.member).is_none())
    };
    for model in models {
        for hierarchy in &model.hierarchies {
            if let Some(level) = hierarchy.levels.iter().find(|level| is_other(level)) {
                let text = format!("`{level}` is no dimension, and only dimensions are levels of a hierarchy");
                let (place, name) = (hierarchy.common.place, hierarchy.common.name.as_str());
                problems.push(ModelProblem::new(model, place, Some(name), text));
            }
        }
    }
}

/// Reports granularities in SQL texts that their dimensions do not have.
pub(super) fn buckets(models: &[Model], problems: &mut Vec<ModelProblem>) {
    for model in models {
        for template in model.templates() {
            let faults = template.buckets().filter_map(|(id, name)| granularity_fault(models, id, name));
            problems.extend(faults.map(|text| ModelProblem::new(model, template.place, None, text)));
        }
    }
}

/// Reports SQL texts that are nested too deeply to be planned.
pub(super) fn deep_texts(models: &[Model], problems: &mut Vec<ModelProblem>) {
    for model in models {
        if let Some(deep) = model.templates().find(|template| template.is_too_deep()) {
            let text = format!("a text has at most {OPERATORS_MAX} operators; `IN (…)` takes long lists");
            problems.push(ModelProblem::new(model, deep.place, None, text));
        }
    }
}

/// Reports members that refer to themselves, or expand to more than can be planned.
pub(super) fn cycles(models: &[Model], problems: &mut Vec<ModelProblem>) {
    let mut edges: BTreeMap<MemberId, Vec<&MemberId>> = BTreeMap::new();
    let mut places = BTreeMap::new();
    for model in models {
        let dimensions = model.dimensions.iter().map(|d| (&d.common, d.templates().collect::<Vec<_>>()));
        let measures = model.measures.iter().map(|m| (&m.common, m.templates().collect::<Vec<_>>()));
        let segments = model.segments.iter().map(|s| (&s.common, vec![&s.sql]));
        for (common, templates) in dimensions.chain(measures).chain(segments) {
            let id = MemberId::new(&model.common.name, &common.name);
            places.insert(id.clone(), (model, common.place));
            edges.insert(id, templates.into_iter().flat_map(Template::members).collect());
        }
    }
    let mut done: HashSet<&MemberId> = HashSet::new();
    for start in edges.keys() {
        let mut path: Vec<(&MemberId, usize)> = vec![(start, 0)];
        while let Some((id, next)) = path.pop() {
            let targets = edges.get(id).map(Vec::as_slice).unwrap_or_default();
            let Some(target) = targets.get(next) else {
                done.insert(id);
                continue;
            };
            path.push((id, next + 1));
            if path.iter().any(|(on, _)| on == target) {
                let (model, place) = places[id];
                let text = format!("`{id}` is made of itself, through `{target}`");
                problems.push(ModelProblem::new(model, place, Some(&id.member), text));
                return;
            }
            if !done.contains(*target) {
                path.push((*target, 0));
            }
        }
    }
    for (id, text) in too_large(&edges) {
        let (model, place) = places[id];
        problems.push(ModelProblem::new(model, place, Some(&id.member), text));
    }
}

/// The size of a member when it is expanded.
#[derive(Clone, Copy)]
struct Size {
    depth: usize,
    parts: usize,
}

/// Members that are too large, except those that are only because they refer to such. There must be no cycles.
fn too_large<'m>(edges: &'m BTreeMap<MemberId, Vec<&'m MemberId>>) -> Vec<(&'m MemberId, String)> {
    let is_large = |size: &Size| size.depth > DEPTH_MAX || size.parts > PARTS_MAX;
    let mut sizes: HashMap<&MemberId, Size> = HashMap::new();
    let mut found = Vec::new();
    for start in edges.keys() {
        let mut path: Vec<(&MemberId, usize)> = vec![(start, 0)];
        while let Some((id, next)) = path.pop() {
            let targets = edges.get(id).map(Vec::as_slice).unwrap_or_default();
            if let Some(target) = targets.get(next) {
                path.push((id, next + 1));
                if !sizes.contains_key(*target) {
                    path.push((*target, 0));
                }
                continue;
            }
            let (mut size, mut inner_is_large) = (Size { depth: 0, parts: 1 }, false);
            for inner in targets.iter().filter_map(|target| sizes.get(*target)) {
                size.depth = size.depth.max(inner.depth + 1);
                size.parts = size.parts.saturating_add(inner.parts);
                inner_is_large |= is_large(inner);
            }
            if sizes.insert(id, size).is_none() && is_large(&size) && !inner_is_large {
                let text = if size.depth > DEPTH_MAX {
                    format!("`{id}` stands on more than {DEPTH_MAX} members, one made of the other")
                } else {
                    format!("`{id}` comes to more than {PARTS_MAX} members, all that it is made of written out")
                };
                found.push((id, text));
            }
        }
    }
    found
}
