//! All models and views after they have been checked: name lookup and join paths.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Common, Dimension, Join, Measure, MemberId, Model, Segment, Template, View, ViewMember};

/// A member by kind.
#[derive(Debug, Clone, Copy)]
pub enum MemberKind<'a> {
    /// Rows are grouped and filtered by it.
    Dimension(&'a Dimension),
    /// It is computed over groups of rows.
    Measure(&'a Measure),
    /// It filters rows by its name.
    Segment(&'a Segment),
}

impl<'a> MemberKind<'a> {
    /// Its name and descriptive properties.
    pub fn common(self) -> &'a Common {
        match self {
            Self::Dimension(d) => &d.common,
            Self::Measure(m) => &m.common,
            Self::Segment(s) => &s.common,
        }
    }

    /// Whether queries may name it, as far as it says itself: a part of a key is public only where the model says so.
    pub fn is_public(self) -> bool {
        let is_key = matches!(self, Self::Dimension(d) if d.primary_key);
        self.common().public.unwrap_or(!is_key)
    }
}

/// A member that a query has named.
#[derive(Debug, Clone, Copy)]
pub struct ResolvedMember<'a> {
    /// The model that it belongs to; if it is named through a view, the model behind that.
    pub model: &'a Model,
    /// The member itself; if it is named through a view, the member behind that.
    pub kind: MemberKind<'a>,
    /// The view and its member, if it is named through one.
    pub view: Option<(&'a View, &'a ViewMember)>,
}

impl<'a> ResolvedMember<'a> {
    /// The name of the member in its model.
    pub fn id(&self) -> MemberId {
        MemberId::new(&self.model.common.name, &self.kind.common().name)
    }

    /// Descriptive properties: the view's take precedence over the model's.
    pub fn common(&self) -> &'a Common {
        self.view.map_or_else(|| self.kind.common(), |(_, member)| &member.common)
    }

    /// Title of the model or view before the dot.
    pub fn model_title(&self) -> String {
        self.view.map_or_else(|| self.model.title(), |(view, _)| view.common.short_title())
    }
}

/// The source of catalog versions.
static VERSIONS: AtomicU64 = AtomicU64::new(1);
/// The most open members of a request.
const OPEN_MAX: usize = 100;

/// All models and views, checked against each other.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// A unique number; models that are loaded again get another.
    pub version: u64,
    /// Cubes by name.
    pub models: BTreeMap<String, Model>,
    /// Views by name.
    pub views: BTreeMap<String, View>,
    /// For each model the number of its group of models that are connected by joins.
    pub components: HashMap<String, usize>,
    /// For each model the columns that queries can reach; computed on first use.
    readable: Arc<OnceLock<BTreeMap<String, BTreeSet<String>>>>,
}

impl Catalog {
    /// Makes a catalog of checked parts.
    pub(super) fn new(models: BTreeMap<String, Model>, views: BTreeMap<String, View>) -> Self {
        let components = components(&models);
        Self::of(VERSIONS.fetch_add(1, Ordering::Relaxed), models, views, components)
    }

    fn of(
        version: u64,
        models: BTreeMap<String, Model>,
        views: BTreeMap<String, View>,
        components: HashMap<String, usize>,
    ) -> Self {
        Self { version, models, views, components, readable: Arc::default() }
    }

    /// A catalog of one model.
    pub(crate) fn alone(model: &Model, version: u64) -> Self {
        let models = BTreeMap::from([(model.common.name.clone(), model.clone())]);
        Self::of(version, models, BTreeMap::new(), HashMap::new())
    }

    /// The columns of a model that queries can reach through members. `find` computes those of all models, and is
    /// called once.
    pub(crate) fn readable(
        &self,
        model: &str,
        find: fn(&Self) -> BTreeMap<String, BTreeSet<String>>,
    ) -> &BTreeSet<String> {
        static NONE: BTreeSet<String> = BTreeSet::new();
        self.readable.get_or_init(|| find(self)).get(model).unwrap_or(&NONE)
    }

    /// A catalog with the open members that a request names.
    pub fn with_open(self: &Arc<Self>, request: &Value) -> Arc<Self> {
        let mut names = BTreeSet::new();
        self.open_names(request, &mut names);
        if names.is_empty() {
            return Arc::clone(self);
        }
        let mut with = Self::clone(self);
        // In reverse order, so that for several names of a model the first one decides what is counted.
        for id in names.iter().rev() {
            if let Some(model) = with.models.get_mut(&id.model) {
                model.add_open(&id.member);
            }
        }
        Arc::new(with)
    }

    fn open_names(&self, value: &Value, out: &mut BTreeSet<MemberId>) {
        match value {
            Value::String(text) if out.len() < OPEN_MAX => {
                let id = MemberId::parse(text).filter(|id| self.find(id).is_none());
                let opened = |id: &MemberId| self.models.get(&id.model)?.open.as_ref()?.dimension(&id.member);
                out.extend(id.filter(|id| opened(id).is_some()));
            }
            Value::Array(list) => list.iter().for_each(|value| self.open_names(value, out)),
            Value::Object(map) => map.iter().for_each(|(key, value)| {
                self.open_names(&Value::from(key.as_str()), out);
                self.open_names(value, out);
            }),
            _ => {}
        }
    }

    /// Finds a member of a model or view, including hidden ones.
    pub fn find(&self, id: &MemberId) -> Option<ResolvedMember<'_>> {
        if let Some(view) = self.views.get(&id.model) {
            let member = view.members.iter().find(|m| m.common.name == id.member)?;
            let found = self.find(&member.target)?;
            return Some(ResolvedMember { view: Some((view, member)), ..found });
        }
        let model = self.models.get(&id.model)?;
        let kind = model
            .dimension(&id.member)
            .map(MemberKind::Dimension)
            .or_else(|| model.measure(&id.member).map(MemberKind::Measure))
            .or_else(|| model.segment(&id.member).map(MemberKind::Segment))?;
        Some(ResolvedMember { model, kind, view: None })
    }

    /// A model that is known to exist after checks.
    pub fn model(&self, name: &str) -> &Model {
        self.models.get(name).expect("names in a catalog are checked")
    }

    /// Whether queries may name a member.
    pub fn is_public(&self, found: &ResolvedMember<'_>) -> bool {
        match found.view {
            Some((view, member)) => view.common.public.unwrap_or(true) && member.common.public.unwrap_or(true),
            None => found.model.is_public() && found.kind.is_public(),
        }
    }

    /// Names that a query may use before the dot.
    pub fn public_names(&self) -> impl Iterator<Item = &str> {
        let models = self.models.values().filter(|m| m.is_public()).map(|m| m.common.name.as_str());
        models.chain(self.views.values().filter(|v| v.common.public.unwrap_or(true)).map(|v| v.common.name.as_str()))
    }

    /// The join from one model to another; `None` if there is none.
    pub fn join(&self, from: &str, to: &str) -> Option<&Join> {
        self.models.get(from)?.joins.iter().find(|j| j.target == to)
    }

    /// The models on the shortest path of joins, without `from`; of equal paths, the one whose joins are declared
    /// first.
    pub fn path(&self, from: &str, to: &str) -> Option<Vec<String>> {
        let mut came: HashMap<&str, &str> = HashMap::new();
        let mut queue: VecDeque<&str> = VecDeque::from([from]);
        while let Some(at) = queue.pop_front() {
            if at == to {
                let mut path = vec![at.to_owned()];
                let mut back = at;
                while let Some(before) = came.get(back) {
                    path.push((*before).to_owned());
                    back = before;
                }
                path.pop();
                path.reverse();
                return Some(path);
            }
            for join in self.models.get(at).map(|m| m.joins.as_slice()).unwrap_or_default() {
                if join.target != from && !came.contains_key(join.target.as_str()) {
                    came.insert(&join.target, at);
                    queue.push_back(&join.target);
                }
            }
        }
        None
    }
}

fn components(models: &BTreeMap<String, Model>) -> HashMap<String, usize> {
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let mut near: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (name, model) in models {
        near.entry(name).or_default();
        for join in &model.joins {
            near.entry(name).or_default().insert(&join.target);
            near.entry(&join.target).or_default().insert(name);
        }
    }
    let mut next = 0;
    for start in near.keys() {
        if numbers.contains_key(*start) {
            continue;
        }
        next += 1;
        let mut queue = vec![*start];
        while let Some(at) = queue.pop() {
            if numbers.insert(at.to_owned(), next).is_none() {
                queue.extend(near[at].iter().copied());
            }
        }
    }
    numbers
}

impl Dimension {
    /// All SQL texts of it.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let case = self.case.iter().flat_map(super::Case::templates);
        self.sql.iter().chain(case).chain(self.geo.iter().flat_map(|(a, b)| [a, b]))
    }
}

impl Measure {
    /// All SQL texts of it.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let case = self.case.iter().flat_map(super::Case::templates);
        self.sql.iter().chain(case).chain(&self.filters).chain(self.order_by.iter().map(|(t, _)| t))
    }
}

impl Model {
    /// All SQL texts of it, apart from its SELECT.
    pub(super) fn templates(&self) -> impl Iterator<Item = &Template> {
        let dimensions = self.dimensions.iter().flat_map(Dimension::templates);
        let measures = self.measures.iter().flat_map(Measure::templates);
        let segments = self.segments.iter().map(|segment| &segment.sql);
        let joins = self.joins.iter().map(|join| &join.sql);
        let rows = self.rows.iter().map(|rows| &rows.sql);
        dimensions.chain(measures).chain(segments).chain(joins).chain(rows)
    }
}

impl super::Case {
    /// All SQL texts of it.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let labels = self.when.iter().map(|(_, label)| label).chain(&self.otherwise);
        let sqls = labels.filter_map(|l| if let super::Label::Sql(t) = l { Some(t) } else { None });
        self.when.iter().map(|(t, _)| t).chain(sqls)
    }
}
