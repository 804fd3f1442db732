//! When resources were seen, and how they are: told by telemetry all the time, so that it makes no version, no history, no
//! audit row and no revision, after which all servers would read all configuration anew.

use std::sync::atomic::Ordering;

use quiver_database::statement;
use serde_json::{Map, Value, json};

use crate::db;
use crate::document::{Config, find};
use crate::families::RESOURCES;
use crate::json::time_text;
use crate::problem::{Problem, Result};
use crate::values::keep_values;

/// What telemetry tells of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Id of the resource.
    pub id: String,
    /// When it was last told of.
    pub last_ms: Option<i64>,
    /// Its health.
    pub health: &'static str,
}

/// Resources that are written in one transaction.
const AT_ONCE: usize = 500;

impl Seen {
    /// Puts it into a resource.
    pub fn put(&self, body: &mut Map<String, Value>) {
        if let Some(last_ms) = self.last_ms {
            body.insert("lastSeen".to_owned(), json!(time_text(last_ms)));
        }
        body.insert("health".to_owned(), json!(self.health));
    }
}

impl Config {
    /// Notes when resources were seen and how they are.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub async fn seen(&self, all: &[Seen]) -> Result<()> {
        for some in all.chunks(AT_ONCE) {
            let mut tx = db::begin(&self.pool).await?;
            for one in some {
                let Some(mut entity) = find(&mut tx, RESOURCES.name, &one.id).await? else { continue };
                let before = entity.clone();
                one.put(&mut entity.body);
                let body = serde_json::to_string(&entity.body).map_err(Problem::internal)?;
                let sql = "UPDATE entity SET body = ? WHERE family = ? AND id = ?";
                statement(sql).bind(body).bind(RESOURCES.name).bind(&one.id).execute(&mut *tx).await?;
                keep_values(&mut tx, &RESOURCES, Some(&before), Some(&entity)).await?;
            }
            let sql = "UPDATE revision SET seen = seen + 1 RETURNING seen";
            let noted: i64 = statement(sql).fetch_one(&mut *tx).await?.try_get(0)?;
            tx.commit().await?;
            self.noted.fetch_max(noted as u64, Ordering::Relaxed);
        }
        Ok(())
    }
}
