//! Requests with an idempotency key that were answered, from flushed generations: inserted by the commit that takes
//! their generation out of the WAL, read at start, deleted when they are too old.

use std::sync::Arc;

use quiver_types::Millis;
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use super::{Catalog, Db, WriteTransaction};
use crate::error::{Context, Result};
use crate::idempotency::{Answer, AnsweredRequest, KEPT_MS, RequestId};

impl Catalog {
    /// Inserts requests, and deletes those that are too old.
    pub(super) async fn insert_answered(
        &self,
        tx: &mut WriteTransaction,
        answered: &[Arc<AnsweredRequest>],
    ) -> Result<()> {
        let oldest = self.clock.now_ms().saturating_sub(KEPT_MS);
        let expired = sqlx::query("DELETE FROM answered_request WHERE at_ms < ?").bind(oldest);
        expired.execute(&mut **tx).await.db("commit")?;
        for request in answered {
            let sql = "INSERT OR REPLACE INTO answered_request \
                (caller, path, key, body_hash, at_ms, status, content_type, answer) VALUES (?, ?, ?, ?, ?, ?, ?, ?)";
            sqlx::query(sql)
                .bind(&request.id.caller)
                .bind(&request.id.path)
                .bind(&request.id.key)
                .bind(request.body_hash.to_be_bytes().to_vec())
                .bind(request.at)
                .bind(request.answer.status)
                .bind(&request.answer.content_type)
                .bind(&request.answer.body)
                .execute(&mut **tx)
                .await
                .db("commit")?;
        }
        Ok(())
    }

    /// The requests that were answered after a time.
    ///
    /// # Errors
    /// [`crate::ErrorKind::Internal`] if the database cannot be read.
    pub async fn answered_since(&self, oldest: Millis) -> Result<Vec<AnsweredRequest>> {
        let sql = "SELECT caller, path, key, body_hash, at_ms, status, content_type, answer FROM answered_request \
            WHERE at_ms >= ? ORDER BY at_ms";
        let rows = sqlx::query(sql).bind(oldest).fetch_all(&self.pool).await.db("be read")?;
        rows.iter().map(request).collect()
    }
}

fn request(row: &SqliteRow) -> Result<AnsweredRequest> {
    let what = "be read";
    let id =
        RequestId { caller: row.try_get(0).db(what)?, path: row.try_get(1).db(what)?, key: row.try_get(2).db(what)? };
    let hash: Vec<u8> = row.try_get(3).db(what)?;
    let hash = <[u8; 16]>::try_from(&*hash).internal("the catalog holds a hash that is not 16 bytes")?;
    let answer = Answer {
        status: row.try_get(5).db(what)?,
        content_type: row.try_get(6).db(what)?,
        body: row.try_get(7).db(what)?,
    };
    Ok(AnsweredRequest { id, body_hash: u128::from_be_bytes(hash), at: row.try_get(4).db(what)?, answer })
}
