//! When resources were last seen, and their health. Telemetry updates this all the time, so it makes no version, no
//! history, no audit row and no revision (after which all servers would reload all configuration).

use std::collections::HashMap;
use std::sync::atomic::Ordering;

use futures::future::BoxFuture;
use quiver_database::{Row, Statement, statement};
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::entity::find;
use crate::families::RESOURCES;
use crate::json::time_text;
use crate::migrations;
use crate::problem::{Problem, Result};
use crate::value_index::keep_values;

/// What telemetry tells of a resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResourceSighting {
    /// Id of the resource.
    pub id: String,
    /// When it was last told of.
    pub last_ms: Option<i64>,
    /// `ok`, `warning`, `critical` or `unknown`.
    pub health: &'static str,
}

/// Resources that are written in one transaction.
const AT_ONCE: usize = 500;
/// Services that are written with one statement.
const SERVICES_AT_ONCE: usize = 100;
/// Longest name of a service that a resource may have.
const SERVICE_CHARS_MAX: usize = 200;

/// Services with alerts that fire: whether one of these is critical.
pub type ServiceAlerts = HashMap<String, bool>;

impl ResourceSighting {
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
    pub fn seen<'a>(&'a self, all: &'a [ResourceSighting]) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            for some in all.chunks(AT_ONCE) {
                let mut tx = migrations::begin(&self.pool).await?;
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
        })
    }

    /// Tells the other servers over the same database of the alerts that fire at one, and gives those of all: of each service
    /// the worst. What others told before `since_ms` counts no more.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn share_alerts<'a>(
        &'a self,
        server: &'a str,
        own: ServiceAlerts,
        since_ms: i64,
    ) -> BoxFuture<'a, Result<ServiceAlerts>> {
        Box::pin(async move {
            if !self.is_shared() {
                return Ok(own);
            }
            let now_ms = self.clock.now_ms();
            let mut tx = migrations::begin(&self.pool).await?;
            let sql = "DELETE FROM service_alert WHERE server = ? OR at_ms < ?";
            statement(sql).bind(server).bind(since_ms).execute(&mut *tx).await?;
            let named: Vec<_> = own.iter().filter(|(name, _)| name.chars().count() <= SERVICE_CHARS_MAX).collect();
            for some in named.chunks(SERVICES_AT_ONCE) {
                let rows = vec!["(?, ?, ?, ?)"; some.len()].join(", ");
                let insert =
                    statement(format!("INSERT INTO service_alert (server, service, critical, at_ms) VALUES {rows}"));
                let row = |insert: Statement, (name, critical): &(&String, &bool)| {
                    insert.bind(server).bind(*name).bind(i64::from(**critical)).bind(now_ms)
                };
                some.iter().fold(insert, row).execute(&mut *tx).await?;
            }
            let sql = "SELECT service, max(critical) FROM service_alert GROUP BY service";
            let rows = statement(sql).fetch_all(&mut *tx).await?;
            tx.commit().await?;
            let read = |row: &Row| -> Result<(String, bool)> { Ok((row.try_get(0)?, row.try_get::<i64>(1)? > 0)) };
            rows.iter().map(read).collect()
        })
    }
}
