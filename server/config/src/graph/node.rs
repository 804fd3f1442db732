//! A resource in the graph. Its fields are kept as JSON text, since as objects those of many resources would take
//! most of a small server's memory; the fields needed while the graph is walked are kept separately.

use serde_json::{Map, Value};

use crate::entity::Entity;
use crate::families::body::text;

/// The fields by which resources are filtered, counted and authorized.
const JUDGED: [&str; 4] = ["typeId", "service", "health", "state"];

/// A resource in the graph.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: String,
    judged: [Box<str>; JUDGED.len()],
    shown: Box<str>,
}

impl Node {
    pub(super) fn of(resource: &Entity) -> Self {
        let judged = JUDGED.map(|key| text(&resource.body, key).into());
        Self { id: resource.id.clone(), judged, shown: Value::Object(resource.shown()).to_string().into() }
    }

    /// The resource with only the fields for filtering.
    pub(super) fn judged(&self) -> Entity {
        let fields = JUDGED.iter().zip(&self.judged).filter(|(_, value)| !value.is_empty());
        let body = fields.map(|(key, value)| ((*key).to_owned(), Value::from(&**value))).collect();
        Entity {
            id: self.id.clone(),
            owner: String::new(),
            version: 0,
            created_ms: 0,
            updated_ms: 0,
            created_by: String::new(),
            updated_by: String::new(),
            managed_by: String::new(),
            body,
            sealed: Map::new(),
        }
    }

    /// The resource as the API shows it.
    pub(super) fn shown(&self) -> Map<String, Value> {
        serde_json::from_str(&self.shown).unwrap_or_default()
    }
}
