//! Migrations of the database: each part of the server numbers its own steps.

use futures::future::BoxFuture;
use quiver_database::{Database, WriteTransaction, statement};

use crate::problem::{Problem, Result};

/// Migrations in order; their numbers are their positions from 1.
pub(crate) const MIGRATIONS: &[(&str, &str)] = &[
    ("0001_entities", include_str!("../../../schemas/entities/0001_entities.sql")),
    ("0002_audit_end", include_str!("../../../schemas/entities/0002_audit_end.sql")),
    ("0003_jobs", include_str!("../../../schemas/entities/0003_jobs.sql")),
    ("0004_deployed", include_str!("../../../schemas/entities/0004_deployed.sql")),
    ("0005_entity_count", include_str!("../../../schemas/entities/0005_entity_count.sql")),
    ("0006_entity_order", include_str!("../../../schemas/entities/0006_entity_order.sql")),
    ("0007_entity_values", include_str!("../../../schemas/entities/0007_entity_values.sql")),
    ("0008_entity_texts", include_str!("../../../schemas/entities/0008_entity_texts.sql")),
    ("0009_seen", include_str!("../../../schemas/entities/0009_seen.sql")),
    ("0010_job_server", include_str!("../../../schemas/entities/0010_job_server.sql")),
    ("0011_routes_in_order", include_str!("../../../schemas/entities/0011_routes_in_order.sql")),
    ("0012_job_held", include_str!("../../../schemas/entities/0012_job_held.sql")),
    ("0013_service_alerts", include_str!("../../../schemas/entities/0013_service_alerts.sql")),
    ("0014_pattern_bytes", include_str!("../../../schemas/entities/0014_pattern_bytes.sql")),
    ("0015_vault_check", include_str!("../../../schemas/entities/0015_vault_check.sql")),
];

/// Brings the tables of a part of the server up to date. Where several servers start at once, one does.
///
/// # Errors
/// `STORE_BUSY`; `INTERNAL` when a newer build made them.
pub fn migrate<'a>(
    base: &'a Database,
    part: &'a str,
    steps: &'a [(&'a str, &'static str)],
    now_ms: i64,
) -> BoxFuture<'a, Result<()>> {
    Box::pin(async move {
        let mut tx = base.begin().await?;
        migrate_within(&mut tx, part, steps, now_ms).await?;
        tx.commit().await?;
        Ok(())
    })
}

/// The table in which each part counts its steps.
pub(crate) const MIGRATION: &str = "CREATE TABLE IF NOT EXISTS migration (part TEXT NOT NULL, number INTEGER NOT NULL, \
    name TEXT NOT NULL, applied_ms INTEGER NOT NULL, PRIMARY KEY (part, number)) STRICT";

/// The same within a transaction.
pub(crate) async fn migrate_within(
    tx: &mut WriteTransaction,
    part: &str,
    steps: &[(&str, &'static str)],
    now_ms: i64,
) -> Result<()> {
    tx.apply(MIGRATION).await?;
    let done = statement("SELECT coalesce(max(number), 0) FROM migration WHERE part = ?").bind(part);
    let done: i64 = done.fetch_one(&mut *tx).await?.try_get(0)?;
    if done > steps.len() as i64 {
        let known = steps.len();
        let text = format!("tables `{part}` have version {done}, this build knows up to {known}; start a newer build");
        return Err(Problem::internal(text));
    }
    for (i, (name, sql)) in steps.iter().enumerate().skip(done as usize) {
        tx.apply(sql).await?;
        let insert = "INSERT INTO migration (part, number, name, applied_ms) VALUES (?, ?, ?, ?)";
        statement(insert).bind(part).bind(i as i64 + 1).bind(*name).bind(now_ms).execute(&mut *tx).await?;
    }
    Ok(())
}

/// Brings the tables of this crate up to date.
pub(crate) async fn migrate_own(base: &Database, now_ms: i64) -> Result<()> {
    migrate(base, "entities", MIGRATIONS, now_ms).await
}

/// Begins to write.
pub(crate) async fn begin(base: &Database) -> Result<WriteTransaction> {
    Ok(base.begin().await?)
}
