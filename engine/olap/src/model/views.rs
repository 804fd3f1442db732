//! Members of views: copied from the models that their parts lead to.

use std::collections::{BTreeMap, HashSet};

use quiver_types::meant::did_you_mean;

use super::load::ModelProblem;
use super::{Common, Include, MemberId, Model, View, ViewMember, ViewPart};

/// Finds the members of a view.
pub(super) fn fill(view: &mut View, models: &BTreeMap<String, Model>, problems: &mut Vec<ModelProblem>) {
    let mut members: Vec<ViewMember> = Vec::new();
    for part in &view.parts {
        match of_part(part, models) {
            Ok(found) => members.extend(found),
            Err(text) => problems.push(ModelProblem::of_view(view, part.place, None, text)),
        }
    }
    let mut seen = HashSet::new();
    for member in &members {
        if !seen.insert(member.common.name.clone()) {
            let text =
                format!("member `{}` is there twice; give one an alias, or the part a prefix", member.common.name);
            problems.push(ModelProblem::of_view(view, member.common.place, Some(&member.common.name), text));
        }
    }
    view.members = members;
}

fn of_part(part: &ViewPart, models: &BTreeMap<String, Model>) -> Result<Vec<ViewMember>, String> {
    for pair in part.path.windows(2) {
        let from = models.get(&pair[0]).ok_or_else(|| format!("there is no model `{}`", pair[0]))?;
        if !from.joins.iter().any(|j| j.target == pair[1]) {
            return Err(format!("model `{}` has no join to `{}`", pair[0], pair[1]));
        }
    }
    let last = part.path.last().expect("a split text has a part");
    let model = models.get(last).ok_or_else(|| {
        format!("there is no model `{last}`{}", did_you_mean(last, models.keys().map(String::as_str)))
    })?;
    let known: Vec<&str> = model.member_names().collect();
    let check = |name: &str| {
        if known.contains(&name) {
            return Ok(());
        }
        let hint = did_you_mean(name, known.iter().copied());
        Err(format!("model `{last}` has no member `{name}`{hint}"))
    };
    let all;
    let includes = if let Some(includes) = &part.includes {
        includes
    } else {
        let shown = known.iter().filter(|n| common(model, n).is_some_and(|c| c.public != Some(false)));
        let plain = |n: &&str| Include {
            name: (**n).to_owned(),
            own: Common { name: (**n).to_owned(), place: part.place, ..Common::default() },
        };
        all = shown.map(plain).collect::<Vec<_>>();
        &all
    };
    part.excludes.iter().try_for_each(|name| check(name))?;
    let mut members = Vec::new();
    for include in includes.iter().filter(|i| !part.excludes.contains(&i.name)) {
        check(&include.name)?;
        let of = common(model, &include.name).expect("it is known");
        let own = include.own.clone();
        let name = part.prefix.as_ref().map_or_else(|| own.name.clone(), |p| format!("{p}_{}", own.name));
        // Under its own name it keeps its title; under another one the title is made of that.
        let kept = (name == of.name).then(|| of.title.clone()).flatten();
        members.push(ViewMember {
            common: Common {
                title: own.title.or(kept).or_else(|| (name != of.name).then(|| of.title.clone()).flatten()),
                description: own.description.or_else(|| of.description.clone()),
                meta: own.meta.or_else(|| of.meta.clone()),
                format: own.format.or_else(|| of.format.clone()),
                currency: of.currency.clone(),
                public: own.public.or(of.public),
                place: own.place,
                name,
            },
            target: MemberId::new(last, &include.name),
            path: part.path.clone(),
        });
    }
    Ok(members)
}

fn common<'a>(model: &'a Model, name: &str) -> Option<&'a Common> {
    let dimension = model.dimension(name).map(|d| &d.common);
    dimension.or_else(|| model.measure(name).map(|m| &m.common)).or_else(|| model.segment(name).map(|s| &s.common))
}
