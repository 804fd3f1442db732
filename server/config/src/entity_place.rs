//! Where entities are stored, and which of them a caller sees.

use crate::entity::Entity;
use crate::family::{Caller, Family};

/// Where entities are: a family, and the owner that the path names (`rbac/users/<id>`), empty where there is none.
#[derive(Debug, Clone)]
pub struct Place {
    /// The family of all entities there.
    pub family: &'static Family,
    /// Id of the entity that they belong to; empty: the family has no owners.
    pub owner: String,
}

impl Place {
    /// A family without owners.
    pub fn of(family: &'static Family) -> Self {
        Self { family, owner: String::new() }
    }
}

/// Says whether an entity is at the place that was named, and the caller may see it.
pub(crate) fn is_visible(place: &Place, entity: &Entity, caller: &Caller) -> bool {
    entity.owner == place.owner && place.family.is_visible(caller, entity)
}

/// Whether a list shows an entity to a caller.
pub(crate) fn is_listed(place: &Place, entity: &Entity, caller: &Caller) -> bool {
    is_visible(place, entity, caller) && place.family.lists(caller, entity)
}
