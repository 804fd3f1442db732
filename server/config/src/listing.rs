//! A list that somebody asks for, and what it shows of an entity.

use quiver_database::Row;
use serde_json::{Map, Value};

use crate::derived_fields::DerivedFields;
use crate::entity::Entity;
use crate::entity_place::{Place, is_listed};
use crate::family::Caller;
use crate::problem::Result;
use crate::query::ListQuery;

/// Which entities a list has, for whom, and what is shown beside each.
#[derive(Clone, Copy)]
pub(crate) struct Listing<'a> {
    pub(crate) place: &'a Place,
    pub(crate) query: &'a ListQuery,
    pub(crate) caller: &'a Caller,
    pub(crate) beside: &'a DerivedFields,
}

impl Listing<'_> {
    /// Reads an entity, and what is shown of it, to which its fields go. `None`: the list does not have it.
    pub(crate) fn read(&self, row: &Row) -> Result<Option<(Entity, Map<String, Value>)>> {
        let mut entity = Entity::read(row)?;
        if !is_listed(self.place, &entity, self.caller) {
            return Ok(None);
        }
        let mut map = entity.take_shown();
        self.beside.add(&entity, &mut map);
        Ok(self.query.wants(self.place.family, &map).then_some((entity, map)))
    }
}
