//! A resource in the graph. Its fields are kept as JSON text, since as objects those of many resources would take
//! most of a small server's memory, and only as long as there is room for the text; the fields needed while the graph is
//! walked are kept separately.

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
    /// The length of its text.
    pub(super) bytes: usize,
    /// None: there was no room for it.
    shown: Option<Box<str>>,
}

impl Node {
    /// `room`: bytes that there are for its text.
    pub(super) fn of(resource: &Entity, room: usize) -> Self {
        let judged = JUDGED.map(|key| text(&resource.body, key).into());
        let shown = Value::Object(resource.shown()).to_string();
        let bytes = shown.len();
        Self { id: resource.id.clone(), judged, bytes, shown: (bytes <= room).then(|| shown.into()) }
    }

    /// The bytes that its text takes here.
    pub(super) fn held(&self) -> usize {
        self.shown.as_ref().map_or(0, |text| text.len())
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

    /// The resource as the API shows it; none: its text is not here.
    pub(super) fn shown(&self) -> Option<Map<String, Value>> {
        self.shown.as_ref().map(|text| serde_json::from_str(text).unwrap_or_default())
    }
}
