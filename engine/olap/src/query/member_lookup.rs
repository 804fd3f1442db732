//! Looks up the members that a query names: they must be public, and their models visible to the caller. Models that
//! are not are reported as missing, and never suggested.

use quiver_query::tables::DomainAccess;
use quiver_types::suggestions::{did_you_mean, nearest};

use super::error::{Read, err};
use crate::error::Reason;
use crate::model::MemberId;
use crate::model::catalog::{Catalog, ResolvedMember};
use crate::visibility;

/// The models of a query with the rights of the caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) catalog: &'a Catalog,
    /// The caller's rights; `None` if the product itself asks.
    pub(super) access: Option<&'a DomainAccess>,
    /// Whether a caller who may see nothing at all gets an empty result instead of an error.
    pub(super) answers_blind: bool,
}

impl<'a> Names<'a> {
    fn shows(&self, model: &str) -> bool {
        self.access.is_none_or(|access| visibility::may_name(self.catalog, model, access))
    }

    /// Whether a join path may lead over a model.
    pub(super) fn leads_over(&self, model: &str) -> bool {
        let model = self.catalog.models.get(model);
        model.is_some_and(|model| self.access.is_none_or(|access| visibility::sees(model, access)))
    }

    /// Finds a member by name.
    pub(super) fn find(&self, text: &str, at: &str) -> Read<(MemberId, ResolvedMember<'a>)> {
        let Some(id) = MemberId::parse(text) else {
            return err(Reason::UnknownMember, at, format!("`{text}` is no member; write it as `Model.member`"));
        };
        let is_answered = self.answers_blind && self.access.is_some_and(visibility::is_blind);
        let found = self.catalog.find(&id).filter(|found| self.catalog.is_public(found));
        if let Some(found) = found.filter(|_| is_answered || self.shows(&id.model)) {
            return Ok((id, found));
        }
        let names: Vec<&str> = self.catalog.public_names().filter(|name| self.shows(name)).collect();
        if !names.contains(&id.model.as_str()) {
            let hint = did_you_mean(&id.model, names);
            return err(Reason::UnknownModel, at, format!("there is no model `{}`{hint}", id.model));
        }
        let members = self.members(&id.model);
        let near = nearest(&id.member, members.iter().map(String::as_str));
        let hint = near.map(|n| format!("; did you mean `{}.{n}`?", id.model)).unwrap_or_default();
        err(Reason::UnknownMember, at, format!("there is no member `{id}`{hint}"))
    }

    /// Members of a model or view that queries may name.
    fn members(&self, model: &str) -> Vec<String> {
        let of_model = self.catalog.models.get(model).into_iter().flat_map(|m| m.member_names().map(str::to_owned));
        let of_view =
            self.catalog.views.get(model).into_iter().flat_map(|v| v.members.iter().map(|m| m.common.name.clone()));
        let shown = |name: &String| {
            self.catalog.find(&MemberId::new(model, name)).is_some_and(|found| self.catalog.is_public(&found))
        };
        of_model.chain(of_view).filter(shown).collect()
    }
}
