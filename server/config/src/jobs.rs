//! Long operations (`config-api` 1.7): their stored state, from which they continue after a restart. Parameters and
//! checkpoints are opaque here; only the executor knows their meaning.

use futures::future::BoxFuture;
use quiver_database::{Row, statement};
use quiver_types::ChangeMode;
use serde_json::{Map, Value, json};

use crate::config::Config;
use crate::family::Caller;
use crate::json::time_text;
use crate::migrations;
use crate::problem::{Problem, Result};

/// How long jobs that ended are kept.
const KEPT_MS: i64 = 30 * 86_400_000;
/// Most jobs that wait.
const WAITING_MAX: i64 = 100;
/// For how long a server may be away before its jobs are over. So long it lets people in when the database is gone.
const AWAY_MS: i64 = 3_600_000;
/// Longest checkpoint, as text.
const CHECKPOINT_BYTES_MAX: usize = 16 << 20;

/// Parts in which progress is kept: the database layer knows whole numbers only.
const PPM: f64 = 1e6;

fn ppm(progress: f64) -> i64 {
    (progress * PPM).round() as i64
}

/// A long operation.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Its id, by which it is asked for and cancelled.
    pub id: String,
    /// What it does, as a word of whoever carries it out, like `bt-apply-to-all`.
    pub kind: String,
    /// The domain whose right it needs, as a word.
    pub domain: String,
    /// `queued`, `running`, `succeeded`, `failed`, `cancelled`.
    pub state: String,
    /// Subject of the caller who made it, like `user:<id>`.
    pub subject: String,
    /// What it was asked.
    pub params: Value,
    /// How far it is, for whoever goes on with it.
    pub checkpoint: Value,
    /// How much of it is done, from 0 to 1.
    pub progress: f64,
    /// What it did so far.
    pub counters: Map<String, Value>,
    created_by: String,
    created_ms: i64,
    started_ms: Option<i64>,
    finished_ms: Option<i64>,
    error: Option<String>,
}

/// What a job does, and for whom.
#[derive(Debug, Clone)]
pub struct NewJob {
    /// The kind of operation, by which its executor is found.
    pub kind: &'static str,
    /// The domain whose right it needs, as a word.
    pub domain: &'static str,
    /// The server that carries it out: what jobs are about is not shared.
    pub server: String,
    /// What it is asked.
    pub params: Value,
}

const COLUMNS: &str = "id, kind, domain, state, subject, created_by, created_ms, started_ms, finished_ms, progress_ppm, \
    counters, error, params, checkpoint";

impl Job {
    fn read(row: &Row) -> Result<Self> {
        let json = |text: String| serde_json::from_str::<Value>(&text).map_err(Problem::internal);
        let counters = json(row.try_get(10)?)?.as_object().cloned().unwrap_or_default();
        Ok(Self {
            id: row.try_get(0)?,
            kind: row.try_get(1)?,
            domain: row.try_get(2)?,
            state: row.try_get(3)?,
            subject: row.try_get(4)?,
            created_by: row.try_get(5)?,
            created_ms: row.try_get(6)?,
            started_ms: row.try_get(7)?,
            finished_ms: row.try_get(8)?,
            progress: row.try_get::<i64>(9)? as f64 / PPM,
            counters,
            error: row.try_get(11)?,
            params: json(row.try_get(12)?)?,
            checkpoint: json(row.try_get(13)?)?,
        })
    }

    /// As the API shows it.
    pub fn shown(&self) -> Value {
        let time = |ms: Option<i64>| ms.map(time_text);
        json!({
            "id": self.id, "kind": self.kind, "state": self.state, "progress": self.progress,
            "counters": self.counters, "error": self.error, "createdBy": self.created_by,
            "createdAt": time_text(self.created_ms), "startedAt": time(self.started_ms),
            "finishedAt": time(self.finished_ms),
        })
    }

    /// Says whether it is over.
    pub fn has_ended(&self) -> bool {
        !matches!(self.state.as_str(), "queued" | "running")
    }
}

impl Config {
    /// Puts a job behind those that wait; a dry run gives the one that it would be.
    ///
    /// # Errors
    /// `LIMIT_EXCEEDED`, `STORE_BUSY`.
    pub fn queue_job<'a>(&'a self, job: NewJob, caller: &'a Caller, mode: ChangeMode) -> BoxFuture<'a, Result<Job>> {
        Box::pin(async move {
            let now_ms = self.clock.now_ms();
            let mut tx = migrations::begin(&self.pool).await?;
            let sql = "DELETE FROM job WHERE finished_ms < ?";
            statement(sql).bind(now_ms - KEPT_MS).execute(&mut *tx).await?;
            let sql = "SELECT count(*) FROM job WHERE state IN ('queued', 'running') AND server = ?";
            let waiting: i64 = statement(sql).bind(&job.server).fetch_one(&mut *tx).await?.try_get(0)?;
            if waiting >= WAITING_MAX {
                return Err(Problem::field("", "LIMIT_EXCEEDED", format!("{WAITING_MAX} jobs wait already")));
            }
            let made = Job {
                id: self.new_id(),
                kind: job.kind.to_owned(),
                domain: job.domain.to_owned(),
                state: "queued".to_owned(),
                subject: caller.subject.clone(),
                params: job.params,
                checkpoint: json!({}),
                progress: 0.0,
                counters: Map::new(),
                created_by: caller.name.clone(),
                created_ms: now_ms,
                started_ms: None,
                finished_ms: None,
                error: None,
            };
            if mode.is_dry_run() {
                tx.rollback().await?;
                return Ok(made);
            }
            let sql = "INSERT INTO job (id, kind, domain, state, subject, created_by, created_ms, progress_ppm, counters, \
                params, checkpoint, server, held_ms) VALUES (?, ?, ?, 'queued', ?, ?, ?, 0, '{}', ?, '{}', ?, ?)";
            let row = statement(sql).bind(&made.id).bind(&made.kind).bind(&made.domain).bind(&made.subject);
            let row = row.bind(&made.created_by).bind(made.created_ms).bind(made.params.to_string());
            row.bind(&job.server).bind(now_ms).execute(&mut *tx).await?;
            tx.commit().await?;
            self.jobs.notify_one();
            Ok(made)
        })
    }

    /// Finds a job.
    ///
    /// # Errors
    /// `STORE_BUSY`.
    pub fn job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Job>>> {
        Box::pin(async move {
            let sql = format!("SELECT {COLUMNS} FROM job WHERE id = ?");
            let row = statement(sql).bind(id).fetch_optional(&self.pool).await?;
            row.as_ref().map(Job::read).transpose()
        })
    }

    /// Gives the job that a server is to carry on, marked as running: one that a former process left, else the oldest that
    /// waits. Where others write to the same database theirs are left to them; a copy of a database brings those of another
    /// server along.
    ///
    /// # Errors
    /// `STORE_BUSY`.
    pub fn next_job<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<Option<Job>>> {
        Box::pin(async move {
            let mut tx = migrations::begin(&self.pool).await?;
            let own = if self.is_shared() { " AND server IN ('', ?)" } else { "" };
            let sql = format!(
                "SELECT {COLUMNS} FROM job WHERE state IN ('queued', 'running'){own} \
                ORDER BY state DESC, created_ms, id LIMIT 1"
            );
            let select = if self.is_shared() { statement(sql).bind(server) } else { statement(sql) };
            let row = select.fetch_optional(&mut *tx).await?;
            let Some(mut job) = row.as_ref().map(Job::read).transpose()? else { return Ok(None) };
            if job.state == "queued" {
                let now_ms = self.clock.now_ms();
                let sql = "UPDATE job SET state = 'running', started_ms = ? WHERE id = ?";
                statement(sql).bind(now_ms).bind(&job.id).execute(&mut *tx).await?;
                tx.commit().await?;
                "running".clone_into(&mut job.state);
                job.started_ms = Some(now_ms);
            }
            Ok(Some(job))
        })
    }

    /// Says that a server is there, which holds its jobs. Where others write to the same database this is to be called every
    /// minute or so.
    ///
    /// # Errors
    /// `STORE_BUSY`.
    pub fn hold_jobs<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let sql = "UPDATE job SET held_ms = ? WHERE state IN ('queued', 'running') AND server = ?";
            statement(sql).bind(self.clock.now_ms()).bind(server).execute(&self.pool).await?;
            Ok(())
        })
    }

    /// Ends the jobs of other servers that have been away for an hour, and gives their number: what these are about is stored
    /// there alone, so nobody else can do them, and who waits for one is to be told. A server that comes back later finds its
    /// jobs ended, at whatever step they were, as those that were cancelled.
    ///
    /// # Errors
    /// `STORE_BUSY`.
    pub fn end_jobs_of_others<'a>(&'a self, server: &'a str) -> BoxFuture<'a, Result<u64>> {
        Box::pin(async move {
            // One alone takes all jobs.
            if !self.is_shared() {
                return Ok(0);
            }
            let now_ms = self.clock.now_ms();
            let why =
                "the server that was asked has been away for an hour; ask a server that stores what this is about";
            let sql = "UPDATE job SET state = 'failed', error = ?, finished_ms = ?, checkpoint = '{}' \
                WHERE state IN ('queued', 'running') AND server NOT IN ('', ?) AND held_ms < ?";
            let ended = statement(sql).bind(why).bind(now_ms).bind(server).bind(now_ms - AWAY_MS);
            Ok(ended.execute(&self.pool).await?)
        })
    }

    /// Waits until a job may have been queued.
    pub async fn job_queued(&self) {
        self.jobs.notified().await;
    }

    /// Notes how far a job is. False: it was cancelled.
    ///
    /// # Errors
    /// `STORE_BUSY`; `INTERNAL` when the checkpoint is too long.
    pub fn advance_job<'a>(&'a self, job: &'a Job) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let checkpoint = job.checkpoint.to_string();
            if checkpoint.len() > CHECKPOINT_BYTES_MAX {
                return Err(Problem::internal("what a job notes of itself is too long"));
            }
            let sql =
                "UPDATE job SET progress_ppm = ?, counters = ?, checkpoint = ? WHERE id = ? AND state = 'running'";
            let counters = Value::Object(job.counters.clone()).to_string();
            let row = statement(sql).bind(ppm(job.progress)).bind(counters).bind(checkpoint).bind(&job.id);
            Ok(row.execute(&self.pool).await? > 0)
        })
    }

    /// Ends a job that runs: `succeeded`, or `failed` with the reason.
    ///
    /// # Errors
    /// `STORE_BUSY`.
    pub fn end_job<'a>(&'a self, job: &'a Job, error: Option<&'a str>) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            let (state, progress) = if error.is_some() { ("failed", job.progress) } else { ("succeeded", 1.0) };
            let sql = "UPDATE job SET state = ?, progress_ppm = ?, error = nullif(?, ''), finished_ms = ?, counters = ?, checkpoint = '{}' \
                WHERE id = ? AND state = 'running'";
            let counters = Value::Object(job.counters.clone()).to_string();
            let row = statement(sql)
                .bind(state)
                .bind(ppm(progress))
                .bind(error.unwrap_or_default())
                .bind(self.clock.now_ms());
            row.bind(counters).bind(&job.id).execute(&self.pool).await?;
            Ok(())
        })
    }

    /// Cancels a job; one that ended stays as it is.
    ///
    /// # Errors
    /// `STORE_BUSY`.
    pub fn cancel_job<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<Option<Job>>> {
        Box::pin(async move {
            let sql = "UPDATE job SET state = 'cancelled', finished_ms = ?, checkpoint = '{}' \
                WHERE id = ? AND state IN ('queued', 'running')";
            statement(sql).bind(self.clock.now_ms()).bind(id).execute(&self.pool).await?;
            self.job(id).await
        })
    }
}
