//! A resource of the graph: its fields are kept as text, since as objects those of many resources take most of a small
//! server's memory; what it is judged by while somebody walks stands beside it.

use serde_json::{Map, Value};

use crate::entity::Entity;
use crate::families::body::text;

/// By what resources are chosen and counted, and shown to whom.
const JUDGED: [&str; 4] = ["typeId", "service", "health", "state"];

/// See the module.
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

    /// The resource with nothing but what it is judged by.
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

    /// As the API shows it.
    pub(super) fn shown(&self) -> Map<String, Value> {
        serde_json::from_str(&self.shown).unwrap_or_default()
    }
}
