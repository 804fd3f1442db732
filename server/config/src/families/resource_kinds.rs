//! What resources of a type have, for imports that parse texts and match resources by type and key.

use std::collections::HashSet;

use futures::future::BoxFuture;
use serde_json::{Map, Value};

use super::attributes::Attributes;
use super::body::text;
use super::resource_types::{RESOURCE_TYPES, attributes_of};
use super::resources::identity;
use crate::config::Config;
use crate::entity::all_of;
use crate::problem::Result;

/// A resource type, with the attributes from type, subclass and class.
#[derive(Debug)]
pub struct ResourceKind {
    /// Id of the resource type.
    pub id: String,
    /// Its slug, such as `host`.
    pub key: String,
    identity_keys: Vec<String>,
    attributes: Attributes,
}

impl ResourceKind {
    /// The type of an attribute: `string`, `int`, `double`, `bool` or `timestamp`; `None`: there is no such
    /// attribute.
    pub fn type_of(&self, attribute: &str) -> Option<&str> {
        self.attributes.type_of(attribute)
    }

    /// The key derived from the attributes of a resource; `None` if it is not derived, or a value is missing.
    pub fn key_of(&self, resource: &Map<String, Value>) -> Option<String> {
        let keys: Vec<&str> = self.identity_keys.iter().map(String::as_str).collect();
        (!keys.is_empty()).then(|| identity(&keys, resource, &mut Vec::new())).flatten()
    }
}

impl Config {
    /// Reads the types with these ids or keys.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn resource_kinds<'a>(&'a self, named: &'a HashSet<String>) -> BoxFuture<'a, Result<Vec<ResourceKind>>> {
        Box::pin(async move {
            let mut db = self.pool.acquire().await?;
            let mut kinds = Vec::new();
            for of in all_of(&mut db, RESOURCE_TYPES.name).await? {
                let key = text(&of.body, "key").to_owned();
                if !named.contains(&of.id) && !named.contains(&key) {
                    continue;
                }
                let keys = of.body.get("identityKeys").and_then(Value::as_array).into_iter().flatten();
                let identity_keys = keys.filter_map(Value::as_str).map(str::to_owned).collect();
                let attributes = attributes_of(&mut db, &of.body).await?;
                kinds.push(ResourceKind { id: of.id, key, identity_keys, attributes });
            }
            Ok(kinds)
        })
    }
}
