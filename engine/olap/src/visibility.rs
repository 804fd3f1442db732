//! Which models a caller may know of: those in a domain of which the caller may see something (`olap-api.md` 12.1, 8).
//! Others look as if they did not exist.

use quiver_query::tables::DomainAccess;
use quiver_types::Domain;

use crate::model::catalog::Catalog;
use crate::model::{Model, Reads};

/// Whether a caller may see rows of a model at all.
pub(crate) fn sees(model: &Model, access: &DomainAccess) -> bool {
    match &model.row_right {
        // What is made of the rows that a caller sees, he sees.
        Some(right) if right.services.is_empty() && right.own.is_none() && right.reads != Reads::Visible => {
            access.is_full(right.domain)
        }
        Some(right) => access.get(right.domain).sees_some(),
        None => access.is_full_everywhere(),
    }
}

/// Whether a caller sees nothing of any domain.
pub(crate) fn is_blind(access: &DomainAccess) -> bool {
    !Domain::ALL.iter().any(|(domain, ..)| access.get(*domain).sees_some())
}

/// Whether queries of a caller may name a model or view. Without the rows of each model whose members a view shows, the
/// view is not there, either.
pub(crate) fn may_name(catalog: &Catalog, name: &str, access: &DomainAccess) -> bool {
    if let Some(view) = catalog.views.get(name) {
        let seen = |model: &String| catalog.models.get(model).is_some_and(|model| sees(model, access));
        return view.common.public.unwrap_or(true) && view.members.iter().all(|m| seen(&m.target.model));
    }
    catalog.models.get(name).is_some_and(|model| model.is_public() && sees(model, access))
}
