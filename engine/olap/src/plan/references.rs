//! Finds what queries reach in a catalog: members, models, and the columns that their SQL texts name.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use regex::Regex;

use super::ranges::time_of;
use crate::model::catalog::{Catalog, MemberKind};
use crate::model::{DimensionType, MemberId, Piece, Source, Template};

/// The members and models that a query reaches.
#[derive(Default)]
pub(super) struct MemberReferences {
    pub(super) members: BTreeSet<MemberId>,
    pub(super) models: BTreeSet<String>,
}

impl MemberReferences {
    /// Everything that these members need, and joins between the models of hints.
    pub(super) fn of(catalog: &Catalog, members: &[MemberId], hints: &[Vec<String>]) -> Self {
        let mut reached = Self::default();
        for id in members {
            reached.add(catalog, id);
        }
        for name in hints.iter().flatten() {
            reached.add_model(catalog, name);
        }
        // A path between models leads over others, whose join conditions name more members.
        loop {
            let before = (reached.models.len(), reached.members.len());
            reached.add_joins(catalog);
            let names: Vec<String> = reached.models.iter().cloned().collect();
            for from in &names {
                for to in names.iter().filter(|to| *to != from) {
                    for name in catalog.path(from, to).unwrap_or_default() {
                        reached.add_model(catalog, &name);
                    }
                }
            }
            if (reached.models.len(), reached.members.len()) == before {
                return reached;
            }
        }
    }

    /// Adds the members in join conditions between reached models.
    pub(super) fn add_joins(&mut self, catalog: &Catalog) {
        for name in self.models.clone() {
            for join in &catalog.model(&name).joins {
                if self.models.contains(&join.target) {
                    join.sql.members().for_each(|id| self.add(catalog, id));
                }
            }
        }
    }

    /// Adds a model and what its rows need.
    pub(super) fn add_model(&mut self, catalog: &Catalog, name: &str) {
        let Some(model) = catalog.models.get(name) else { return };
        if !self.models.insert(name.to_owned()) {
            return;
        }
        for template in model.rows.iter().map(|rows| &rows.sql) {
            template.members().for_each(|id| self.add(catalog, id));
        }
        let right = model.row_right.iter().flat_map(|r| r.services.iter().chain(&r.own).cloned());
        let keys = model.key().map(|d| d.common.name.clone());
        // Joins need the time of an entity's records, to choose those within the query's range.
        let time = model.entities.then(|| time_of(model)).flatten().map(|(time, _)| time.member);
        for member in right.chain(keys).chain(time).collect::<Vec<_>>() {
            self.add(catalog, &MemberId::new(name, member));
        }
    }

    /// Adds a member and what it refers to.
    pub(super) fn add(&mut self, catalog: &Catalog, id: &MemberId) {
        let Some(found) = catalog.find(id) else { return };
        if let Some((_, member)) = found.view {
            member.path.iter().for_each(|name| self.add_model(catalog, name));
        }
        if !self.members.insert(found.id()) {
            return;
        }
        self.add_model(catalog, &found.model.common.name);
        let templates: Vec<_> = match found.kind {
            MemberKind::Dimension(d) => {
                let since = d.since.as_ref().map(|name| MemberId::new(&found.model.common.name, name));
                if let Some(id) = &since {
                    self.add(catalog, id);
                }
                d.templates().collect()
            }
            MemberKind::Measure(m) => {
                m.add_group_by.iter().for_each(|added| self.add(catalog, &added.member));
                m.templates().collect()
            }
            MemberKind::Segment(s) => {
                s.by.iter().for_each(|id| self.add(catalog, id));
                vec![&s.sql]
            }
        };
        // Texts that use a range need the first row if there is none; measures of segments use the model's own time.
        let is_segment = matches!(found.kind, MemberKind::Segment(_));
        if (is_segment || templates.iter().any(|t| t.text.contains("range_")))
            && let Some((time, first)) = time_of(found.model)
        {
            self.add(catalog, &time);
            self.add(catalog, &first);
        }
        for template in templates {
            template.models().for_each(|name| self.add_model(catalog, name));
            template.members().for_each(|id| self.add(catalog, id));
        }
        // A query's range applies within a sub-query, on the first time dimension of the other model.
        if let MemberKind::Dimension(d) = found.kind
            && d.propagate_range
            && let Some(measure) = d.sql.as_ref().and_then(|t| t.only_member())
            && let Some(model) = catalog.models.get(&measure.model)
            && let Some(time) = model.dimensions.iter().find(|d| d.ty == DimensionType::Time)
        {
            self.add(catalog, &MemberId::new(&model.common.name, &time.common.name));
        }
    }

    /// All names in SQL texts that may be columns.
    pub(super) fn identifiers(&self, catalog: &Catalog) -> Vec<String> {
        let mut names = self.spoken(catalog);
        for name in &self.models {
            if let Some(Source::Select(sql)) = &catalog.model(name).source {
                read_names(sql, &mut names);
            }
        }
        names.into_iter().collect()
    }

    /// Whether a column is read that is computed from all rows of its model.
    pub(super) fn reads_whole(&self, catalog: &Catalog) -> bool {
        let mut whole = self.models.iter().flat_map(|name| &catalog.model(name).whole).peekable();
        whole.peek().is_some() && {
            let names = self.spoken(catalog);
            whole.any(|column| names.contains(column))
        }
    }

    /// Names in SQL texts of members, joins and row conditions.
    fn spoken(&self, catalog: &Catalog) -> BTreeSet<String> {
        self.spoken_in(catalog, &|_, _| true)
    }

    /// Names that may be columns of one model: those in its own texts, and in texts that refer to it.
    pub(super) fn spoken_of(&self, catalog: &Catalog, model: &str) -> BTreeSet<String> {
        self.spoken_in(catalog, &|of, template| of == model || template.models().any(|named| named == model))
    }

    /// Names in those texts for which `holds` is true, given the model that the text belongs to.
    fn spoken_in(&self, catalog: &Catalog, holds: &dyn Fn(&str, &Template) -> bool) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        let mut read = |of: &str, template: &Template| {
            if holds(of, template) {
                template.pieces.iter().for_each(|p| {
                    if let Piece::Text(text) = p {
                        read_names(text, &mut names);
                    }
                });
            }
        };
        for id in &self.members {
            let Some(found) = catalog.find(id) else { continue };
            let of = found.model.common.name.as_str();
            match found.kind {
                MemberKind::Dimension(d) => d.templates().for_each(|t| read(of, t)),
                MemberKind::Measure(m) => m.templates().for_each(|t| read(of, t)),
                MemberKind::Segment(s) => read(of, &s.sql),
            }
        }
        for name in &self.models {
            let model = catalog.model(name);
            for join in model.joins.iter().filter(|join| self.models.contains(&join.target)) {
                read(name, &join.sql);
            }
            if let Some(rows) = &model.rows {
                read(name, &rows.sql);
            }
        }
        names
    }
}

/// Adds the words of a SQL text that may be columns.
pub(super) fn read_names(text: &str, names: &mut BTreeSet<String>) {
    static NAMES: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#"'(?:[^']|'')*'|"([^"]+)"|([A-Za-z_][A-Za-z0-9_]*)(\s*\()?"#).expect("it compiles")
    });
    for found in NAMES.captures_iter(text) {
        let bare = found.get(2).filter(|_| found.get(3).is_none()).map(|m| m.as_str());
        // Words in capitals are SQL key words.
        let bare = bare.filter(|word| word.contains(|c: char| c.is_lowercase()));
        names.extend(found.get(1).map(|m| m.as_str()).or(bare).map(str::to_owned));
    }
}
