//! When keys were last used. That is no change of a key: its version stays the same, and no server reloads it.

use futures::future::BoxFuture;
use quiver_database::statement;
use serde_json::json;

use crate::audit::AuditEvent;
use crate::config::Config;
use crate::entity::find;
use crate::families::KEYS;
use crate::family::Caller;
use crate::json::time_text;
use crate::migrations;
use crate::problem::Result;
use crate::value_index::keep_values;

/// That a key was used.
#[derive(Debug, Clone)]
pub struct KeyUse {
    /// Id of the key's entity in `rbac/keys`.
    pub id: String,
    /// When, in Unix milliseconds.
    pub at_ms: i64,
    /// By whom, for the audit log.
    pub caller: Caller,
}

impl Config {
    /// Keeps when keys were used last, and notes the first use of each; keys that are gone are left out.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`; then nothing is kept.
    pub fn keys_used<'a>(&'a self, uses: &'a [KeyUse]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let mut tx = migrations::begin(&self.pool).await?;
            for used in uses {
                let Some(mut key) = find(&mut tx, KEYS.name, &used.id).await? else { continue };
                let unused = key.clone();
                let before = key.body.insert("lastUsedAt".to_owned(), json!(time_text(used.at_ms)));
                let body = serde_json::Value::Object(key.body.clone()).to_string();
                let sql = "UPDATE entity SET body = ? WHERE family = ? AND id = ?";
                statement(sql).bind(body).bind(KEYS.name).bind(&used.id).execute(&mut *tx).await?;
                keep_values(&mut tx, &KEYS, Some(&unused), Some(&key)).await?;
                if before.is_some_and(|at| !at.is_null()) {
                    continue;
                }
                let event = AuditEvent {
                    action: "KEY_FIRST_USE",
                    family: KEYS.name,
                    entity_id: Some(used.id.clone()),
                    entity_name: Some(KEYS.title_of(&key.body)),
                    outcome: "ok",
                    code: None,
                };
                self.audit_within(&mut tx, &used.caller, event).await?;
            }
            tx.commit().await?;
            Ok(())
        })
    }
}
