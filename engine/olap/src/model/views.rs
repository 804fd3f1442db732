//! Views: members and hierarchies included from joined models, and folders of these.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use quiver_types::suggestions::did_you_mean;
use quiver_yaml::problem::Place;

use super::problem::ModelProblem;
use super::{Common, Hierarchy, MemberId, Model};

/// The members that a view includes from a model.
#[derive(Debug, Clone)]
pub struct ViewPart {
    /// The path of joins from the root model.
    pub path: Vec<String>,
    /// The included members; `None` for all.
    pub includes: Option<Vec<Include>>,
    /// The excluded members.
    pub excludes: Vec<String>,
    /// The prefix of its members' names, joined by `_`: `Users_name`; `None` keeps the names of the model.
    pub prefix: Option<String>,
    /// Its position in the file.
    pub place: Place,
}

/// A member or hierarchy that a view includes, perhaps under another name.
#[derive(Debug, Clone)]
pub struct Include {
    /// Name in the model.
    pub name: String,
    /// Overrides: name, title, and so on.
    pub own: Common,
}

impl Include {
    /// An inclusion without overrides.
    pub(super) fn named(name: &str, place: Place) -> Self {
        Self { name: name.to_owned(), own: Common { name: name.to_owned(), place, ..Common::default() } }
    }
}

/// A member of a view.
#[derive(Debug, Clone)]
pub struct ViewMember {
    /// Its name and descriptive properties.
    pub common: Common,
    /// The member that it refers to.
    pub target: MemberId,
    /// The path of joins to its model.
    pub path: Vec<String>,
}

/// A hierarchy of a view.
#[derive(Debug, Clone)]
pub struct ViewHierarchy {
    /// Its name and descriptive properties.
    pub common: Common,
    /// The hierarchy that it refers to.
    pub target: MemberId,
    /// The view's members for the levels of the hierarchy.
    pub levels: Vec<String>,
}

/// A folder of a view.
#[derive(Debug, Clone)]
pub struct Folder {
    /// Its name in the view, shown to people.
    pub name: String,
    /// Its contents as written.
    pub includes: Vec<FolderItem>,
    /// Its position in the file.
    pub place: Place,
}

/// An item of a folder.
#[derive(Debug, Clone)]
pub enum FolderItem {
    /// A member or hierarchy.
    Member(String),
    /// All members of the view (`includes: "*"`).
    All,
    /// The members of the part with this path.
    Part(Vec<String>),
    /// A nested folder.
    Folder(Folder),
}

/// A selection of members of joined models under names of its own; queries use it like a model.
#[derive(Debug, Clone)]
pub struct View {
    /// Its name and descriptive properties.
    pub common: Common,
    /// The file that defines it.
    pub file: Arc<str>,
    /// What it includes.
    pub parts: Vec<ViewPart>,
    /// Folders in which `/meta` shows the members, in the order of the file.
    pub folders: Vec<Folder>,
    /// Its members, once resolved.
    pub members: Vec<ViewMember>,
    /// Its hierarchies, once resolved.
    pub hierarchies: Vec<ViewHierarchy>,
}

impl View {
    /// The names that an item of a folder contains; a nested folder contributes its own name.
    pub fn names_of<'v>(&'v self, item: &'v FolderItem) -> Vec<&'v str> {
        let members = |is_meant: &dyn Fn(&ViewMember) -> bool| -> Vec<&'v str> {
            self.members.iter().filter(|m| is_meant(m)).map(|m| m.common.name.as_str()).collect()
        };
        match item {
            FolderItem::Member(name) => vec![name.as_str()],
            FolderItem::All => members(&|_| true),
            FolderItem::Part(path) => members(&|member| member.path == *path),
            FolderItem::Folder(_) => Vec::new(),
        }
    }

    /// A problem with a member of the view, or with the view itself.
    fn problem(&self, place: Place, member: Option<&str>, message: String) -> ModelProblem {
        ModelProblem::of(&self.file, &self.common.name, place, member, message)
    }
}

/// Resolves the members and hierarchies of a view.
pub(super) fn fill(view: &mut View, models: &BTreeMap<String, Model>, problems: &mut Vec<ModelProblem>) {
    let mut taken: Vec<ViewInclusion<'_>> = Vec::new();
    for part in &view.parts {
        match ViewInclusion::of(part, models) {
            Ok(found) => taken.push(found),
            Err(text) => problems.push(view.problem(part.place, None, text)),
        }
    }
    take_levels(&mut taken);
    let members: Vec<ViewMember> = taken.iter().flat_map(ViewInclusion::members).collect();
    let hierarchies: Vec<ViewHierarchy> = taken.iter().flat_map(|taken| taken.hierarchies(&members)).collect();
    let mut seen = HashSet::new();
    for common in members.iter().map(|m| &m.common).chain(hierarchies.iter().map(|h| &h.common)) {
        if !seen.insert(common.name.clone()) {
            let text =
                format!("member `{}` is given more than once; give one an alias, or the part a prefix", common.name);
            problems.push(view.problem(common.place, Some(&common.name), text));
        }
    }
    (view.members, view.hierarchies) = (members, hierarchies);
    let mut names = HashSet::new();
    for folder in &view.folders {
        if !names.insert(folder.name.as_str()) {
            let text = format!("there are two folders `{}`", folder.name);
            problems.push(view.problem(folder.place, None, text));
        }
        check(view, folder, problems);
    }
}

/// What a part of a view includes from its model.
struct ViewInclusion<'m> {
    part: &'m ViewPart,
    model: &'m Model,
    includes: Vec<Include>,
}

impl<'m> ViewInclusion<'m> {
    fn of(part: &'m ViewPart, models: &'m BTreeMap<String, Model>) -> Result<Self, String> {
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
        let hierarchies = model.hierarchies.iter().map(|h| h.common.name.as_str());
        let known: Vec<&str> = model.member_names().chain(hierarchies).collect();
        let check = |name: &str| {
            if known.contains(&name) {
                return Ok(());
            }
            let hint = did_you_mean(name, known.iter().copied());
            Err(format!("model `{last}` has no member `{name}`{hint}"))
        };
        part.excludes.iter().try_for_each(|name| check(name))?;
        let mut includes = if let Some(includes) = &part.includes {
            includes.clone()
        } else {
            let shown = known.iter().filter(|n| common(model, n).is_some_and(|c| c.public != Some(false)));
            shown.map(|name| Include::named(name, part.place)).collect()
        };
        includes.retain(|include| !part.excludes.contains(&include.name));
        includes.iter().try_for_each(|include| check(&include.name))?;
        Ok(Self { part, model, includes })
    }

    /// The included hierarchies with those of the model.
    fn of_model(&self) -> impl Iterator<Item = (&Include, &'m Hierarchy)> {
        self.includes.iter().filter_map(move |include| Some((include, hierarchy(self.model, &include.name)?)))
    }

    fn members(&self) -> Vec<ViewMember> {
        let members = self.includes.iter().filter(|include| hierarchy(self.model, &include.name).is_none());
        let member = |include: &Include| ViewMember {
            common: self.shown(include, common(self.model, &include.name).expect("it is known")),
            target: MemberId::new(&self.model.common.name, &include.name),
            path: self.part.path.clone(),
        };
        members.map(member).collect()
    }

    /// The hierarchies of which the view has at least one level.
    fn hierarchies(&self, members: &[ViewMember]) -> Vec<ViewHierarchy> {
        let level = |id: &MemberId| {
            let own = members.iter().find(|member| member.target == *id && member.path == self.part.path);
            own.or_else(|| members.iter().find(|member| member.target == *id)).map(|member| member.common.name.clone())
        };
        let all = self.of_model().map(|(include, of)| ViewHierarchy {
            common: self.shown(include, &of.common),
            target: MemberId::new(&self.model.common.name, &include.name),
            levels: of.levels.iter().filter_map(level).collect(),
        });
        all.filter(|hierarchy| !hierarchy.levels.is_empty()).collect()
    }

    /// The descriptive properties of an included member, with overrides applied.
    fn shown(&self, include: &Include, of: &Common) -> Common {
        let own = include.own.clone();
        let name = self.part.prefix.as_ref().map_or_else(|| own.name.clone(), |p| format!("{p}_{}", own.name));
        Common {
            title: own.title.or_else(|| of.title.clone()),
            description: own.description.or_else(|| of.description.clone()),
            meta: own.meta.or_else(|| of.meta.clone()),
            format: own.format.or_else(|| of.format.clone()),
            currency: own.currency.or_else(|| of.currency.clone()),
            public: own.public.or(of.public),
            place: own.place,
            name,
        }
    }
}

/// Including a hierarchy includes its levels, of all models in the view.
fn take_levels(taken: &mut [ViewInclusion<'_>]) {
    let levels: Vec<&MemberId> =
        taken.iter().flat_map(ViewInclusion::of_model).flat_map(|(_, of)| &of.levels).collect();
    for of in taken.iter_mut().filter(|of| of.part.includes.is_some()) {
        let model = of.model;
        for level in levels.iter().filter(|level| level.model == model.common.name) {
            let is_named = of.includes.iter().any(|include| include.name == level.member);
            if !is_named && !of.part.excludes.contains(&level.member) {
                of.includes.push(Include::named(&level.member, of.part.place));
            }
        }
    }
}

/// Reports items of a folder that do not exist.
fn check(view: &View, folder: &Folder, problems: &mut Vec<ModelProblem>) {
    let members = view.members.iter().map(|m| m.common.name.as_str());
    let known: Vec<&str> = members.chain(view.hierarchies.iter().map(|h| h.common.name.as_str())).collect();
    for item in &folder.includes {
        let text = match item {
            FolderItem::Member(name) if !known.contains(&name.as_str()) => {
                let hint = did_you_mean(name, known.iter().copied());
                format!("folder `{}` names `{name}`, which the view does not have{hint}", folder.name)
            }
            FolderItem::Part(path) if !view.parts.iter().any(|part| part.path == *path) => {
                format!("folder `{}` names the part `{}`, which the view does not have", folder.name, path.join("."))
            }
            FolderItem::Folder(inner) => {
                check(view, inner, problems);
                continue;
            }
            FolderItem::Member(_) | FolderItem::Part(_) | FolderItem::All => continue,
        };
        problems.push(view.problem(folder.place, None, text));
    }
}

fn hierarchy<'m>(model: &'m Model, name: &str) -> Option<&'m Hierarchy> {
    model.hierarchies.iter().find(|h| h.common.name == name)
}

fn common<'m>(model: &'m Model, name: &str) -> Option<&'m Common> {
    let dimension = model.dimension(name).map(|d| &d.common);
    let member = dimension.or_else(|| model.measure(name).map(|m| &m.common));
    let member = member.or_else(|| model.segment(name).map(|s| &s.common));
    member.or_else(|| hierarchy(model, name).map(|h| &h.common))
}

#[cfg(test)]
mod tests {
    use crate::model::View;
    use crate::model::catalog::Catalog;
    use crate::model::load::{SourceFile, load};
    use crate::model::problem::ModelProblem;

    const MODELS: &str = "cubes:
  - name: Orders
    sql_table: public.orders
    joins: [{name: Users, relationship: many_to_one, sql: '{CUBE}.user_id = {Users.id}'}]
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: false}
      - {name: number, sql: number, type: number}
      - {name: status, sql: status, type: string}
    measures: [{name: count, type: count}]
    hierarchies:
      - {name: route, title: On its way, levels: ['{CUBE}.status', number, Users.city]}
      - {name: people, levels: [Users.state, Users.city]}
  - name: Users
    sql_table: public.users
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: false}
      - {name: state, sql: state, type: string}
      - {name: city, sql: city, type: string}
    hierarchies: [{name: place, levels: [state, city]}]
  - {name: Returns, extends: Orders}
views:
  - name: V
";

    fn read(view: &str) -> Result<Catalog, Vec<ModelProblem>> {
        let text = format!("{MODELS}{view}");
        load(&[SourceFile { name: "m.yml".to_owned(), text, builtin: false }]).map(|(catalog, _)| catalog)
    }

    fn shown(view: &View) -> String {
        let hierarchies = view.hierarchies.iter().map(|h| format!("{}={}", h.common.name, h.levels.join(",")));
        let members = view.members.iter().map(|m| m.common.name.clone());
        format!("{} | {}", members.collect::<Vec<_>>().join(" "), hierarchies.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn hierarchies_come_with_their_levels() {
        let check = |cubes: &str, expected: &str| {
            let catalog = read(&format!("    cubes: [{cubes}]\n")).unwrap_or_else(|e| panic!("{cubes}: {e:?}"));
            assert_eq!(shown(&catalog.views["V"]), expected, "{cubes}");
        };
        let users = "{join_path: Orders.Users, prefix: true, includes: '*'}";
        // Levels of models that are not in the view are omitted, and hierarchies without levels.
        check("{join_path: Orders, includes: '*'}", "number status count | route=status,number");
        check(
            &format!("{{join_path: Orders, includes: '*'}}, {users}"),
            "number status count Users_state Users_city | route=status,number,Users_city people=Users_state,Users_city \
             Users_place=Users_state,Users_city",
        );
        check("{join_path: Orders, includes: [count, status]}", "count status | ");
        // Including a hierarchy includes its levels, also from other parts.
        check("{join_path: Orders, includes: [route]}", "status number | route=status,number");
        check(
            "{join_path: Orders, includes: [{name: route, alias: way}]}, {join_path: Orders.Users, includes: [state]}",
            "status number state city | way=status,number,city",
        );
        check("{join_path: Orders, includes: [route, count], excludes: [number]}", "count status | route=status");
        check("{join_path: Orders, includes: '*', excludes: [route]}", "number status count | ");
        check("{join_path: Returns, includes: [route]}", "status number | route=status,number");
    }

    #[test]
    fn members_are_shown_as_the_view_says() {
        let part =
            "{join_path: Orders, includes: [{name: number, title: No., format: currency, currency: eur}, status]}";
        let catalog = read(&format!("    cubes: [{part}]\n")).unwrap();
        let number = &catalog.views["V"].members[0].common;
        assert_eq!((number.title.as_deref(), number.currency.as_deref()), (Some("No."), Some("eur")));
        assert_eq!(number.format, Some("currency".into()));
    }

    #[test]
    fn folders_name_what_is_there() {
        let check = |view: &str, expected: &str| {
            let problems = read(&format!("    cubes: [{{join_path: Orders, includes: [status, people]}}]\n{view}"));
            let told: Vec<String> = problems.err().into_iter().flatten().map(|p| p.message).collect();
            assert_eq!(told.join("; "), expected, "{view}");
        };
        check("    folders: [{name: f, includes: [status]}, {name: g, includes: '*'}]\n", "");
        check("    folders: [{name: f, includes: [{join_path: Orders}, {name: g, includes: [status]}]}]\n", "");
        check(
            "    folders: [{name: f, includes: [{name: g, includes: [statsu]}]}]\n",
            "folder `g` names `statsu`, which the view does not have; did you mean `status`?",
        );
        check(
            "    folders: [{name: f, includes: [{join_path: Users}]}]\n",
            "folder `f` names the part `Users`, which the view does not have",
        );
        check("    folders: [{name: f, includes: '*'}, {name: f, includes: '*'}]\n", "there are two folders `f`");
        check("    folders: [{includes: '*'}]\n", "a folder needs a `name`");
    }

    #[test]
    fn levels_are_dimensions_and_names_are_given_once() {
        let check = |from: &str, to: &str, expected: &str| {
            let text = MODELS.replace("views:\n  - name: V\n", "").replace(from, to);
            let file = SourceFile { name: "m.yml".to_owned(), text, builtin: false };
            let problems = load(&[file]).map(|_| ()).unwrap_err();
            assert!(problems.iter().any(|p| p.message == expected), "{problems:?}");
        };
        check(
            "number, Users.city",
            "count",
            "`Orders.count` is no dimension, and only dimensions are levels of a hierarchy",
        );
        check("name: people", "name: status", "there are two members `status`");
    }
}
