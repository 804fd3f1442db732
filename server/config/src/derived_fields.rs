//! What the API shows of an entity besides its stored content: whether changes wait for a deploy, and what follows from
//! other entities.

use std::collections::HashMap;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use crate::area::STAGED;
use crate::config::Config;
use crate::entity::Entity;
use crate::families::body::text;
use crate::families::{RULE_GROUPS, RULES, of_group};
use crate::family::Family;
use crate::problem::Result;

/// What the derived fields of a family's entities are computed from.
pub(crate) struct DerivedFields {
    /// Versions that run, where changes wait.
    running: Option<HashMap<String, i64>>,
    /// Groups by namespace and name, where rules are shown.
    groups: Option<HashMap<(String, String), Map<String, Value>>>,
    interval: String,
}

impl DerivedFields {
    /// Adds to an entity as it is shown, to which its fields may have gone.
    pub(crate) fn add(&self, entity: &Entity, shown: &mut Map<String, Value>) {
        if let Some(running) = &self.running {
            shown.insert(STAGED.to_owned(), json!(running.get(&entity.id) != Some(&entity.version)));
        }
        if let Some(groups) = &self.groups {
            let key = (text(shown, "namespace").to_owned(), text(shown, "group").to_owned());
            let fields = of_group(groups.get(&key), &self.interval);
            shown.extend(fields.map(|(name, value)| (name.to_owned(), value)));
        }
    }
}

impl Config {
    /// Reads what is shown beside entities of a family.
    pub(crate) async fn beside(&self, family: &Family) -> Result<DerivedFields> {
        let running = self.versions_running(family).await?;
        let mut groups = None;
        if family.name == RULES.name {
            let key = |e: &Entity| (text(&e.body, "namespace").to_owned(), text(&e.body, "name").to_owned());
            groups = Some(self.all(&RULE_GROUPS).await?.into_iter().map(|e| (key(&e), e.body)).collect());
        }
        Ok(DerivedFields { running, groups, interval: self.checks.group_interval() })
    }

    /// An entity as the API shows it.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn shown<'a>(&'a self, family: &'a Family, entity: &'a Entity) -> BoxFuture<'a, Result<Map<String, Value>>> {
        Box::pin(async move {
            let mut map = entity.shown();
            self.beside(family).await?.add(entity, &mut map);
            Ok(map)
        })
    }

    /// The interval of groups that name none.
    pub fn group_interval(&self) -> String {
        self.checks.group_interval()
    }
}
