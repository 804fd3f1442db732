//! Sessions of users: refresh tokens, their rotation, and ended sessions.
//!
//! A refresh token is `qvr_<session>_<generation>.<payload>.<HMAC of the generation under the session's secret>`: 256
//! bits that nobody can guess, and a payload that is the same in all of them, since keycloak-js parses the token as if
//! it were a JWT. So the server stores one secret per session instead of a hash per token, can tell an old token of its
//! own from a forged one (only the former is a reuse and ends the session), and gives the same successor again if a
//! response was lost.

use std::collections::HashMap;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::RwLock;
use quiver_database::{Database, statement};
use quiver_types::{Clock, Error, ErrorKind, Random, Result, Vault, random_bytes};
use ring::hmac;

use crate::failpoint;

/// Prefix of refresh tokens.
const PREFIX: &str = "qvr_";
/// `{"typ":"Refresh"}` in base64.
const PAYLOAD: &str = "eyJ0eXAiOiJSZWZyZXNoIn0";
/// How long a session may be idle.
pub(crate) const IDLE_MS: i64 = 30 * 60_000;
/// Longest life of a session.
const LIFE_MS: i64 = 10 * 3_600_000;
/// The same with `offline_access`.
const OFFLINE_MS: i64 = 30 * 86_400_000;
/// How long a token is accepted again after it was replaced.
const GRACE_MS: i64 = 10_000;
/// Longest time that an access token may outlive its session.
const DENIED_MS: i64 = (300 + 10) * 1000;
/// Most sessions of a subject; beyond it the oldest is ended.
const PER_SUBJECT: i64 = 100;

/// What a refresh token stands for: one sign-in of a subject at a client.
#[derive(Debug, Clone)]
pub(crate) struct Session {
    pub(crate) id: String,
    pub(crate) subject: String,
    pub(crate) client: String,
    pub(crate) scope: String,
    pub(crate) started_ms: i64,
    /// Seconds until its refresh token expires.
    pub(crate) refresh_s: i64,
}

/// The outcome of using a refresh token.
#[derive(Debug)]
pub(crate) enum RefreshOutcome {
    /// It was valid; gives the next one.
    Next(Session, String),
    /// It was used before: the session has been ended.
    Reused(Session),
    /// It is not valid, or no longer.
    Not,
}

/// The sessions of all users, in the database.
#[derive(Debug)]
pub(crate) struct Sessions {
    pool: Database,
    vault: Arc<dyn Vault>,
    random: Arc<dyn Random>,
    clock: Arc<dyn Clock>,
    /// Ended sessions whose access tokens may not have expired yet: id → expiry.
    denied: RwLock<HashMap<String, i64>>,
}

fn fault(error: quiver_database::Error) -> Error {
    let kind = if quiver_database::is_passing(&error) { ErrorKind::Unavailable } else { ErrorKind::Internal };
    Error::new(kind, "sessions cannot be read or written").with_source(error)
}

fn place(id: &str) -> String {
    format!("session:{id}")
}

fn tag(secret: &[u8], generation: i64) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), &generation.to_be_bytes())
}

fn token(id: &str, secret: &[u8], generation: i64) -> String {
    format!("{PREFIX}{id}_{generation}.{PAYLOAD}.{}", URL_SAFE_NO_PAD.encode(tag(secret, generation)))
}

/// A parsed refresh token; nothing of it has been checked.
struct ParsedRefreshToken<'a> {
    id: &'a str,
    generation: i64,
    tag: Vec<u8>,
}

impl<'a> ParsedRefreshToken<'a> {
    fn read(token: &'a str) -> Option<Self> {
        let mut parts = token.strip_prefix(PREFIX).filter(|_| token.len() <= 200)?.splitn(3, '.');
        let (named, payload, tag) = (parts.next()?, parts.next()?, parts.next()?);
        let (id, generation) = named.split_once('_').filter(|_| payload == PAYLOAD)?;
        let generation = generation.parse().ok().filter(|g: &i64| *g >= 0 && !generation.starts_with('+'))?;
        Some(Self { id, generation, tag: URL_SAFE_NO_PAD.decode(tag).ok()? })
    }
}

/// A row of a session, with its secret.
struct StoredSession {
    session: Session,
    secret: Vec<u8>,
    generation: i64,
    rotated_ms: i64,
    idle_ms: i64,
    end_ms: i64,
    ended: bool,
}

impl StoredSession {
    fn is_over(&self, now_ms: i64) -> bool {
        self.ended || now_ms >= self.end_ms || now_ms >= self.rotated_ms + self.idle_ms
    }
}

impl Sessions {
    /// Reads the sessions that have ended recently.
    pub(crate) async fn open(
        pool: Database,
        vault: Arc<dyn Vault>,
        random: Arc<dyn Random>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let sessions = Self { pool, vault, random, clock, denied: RwLock::default() };
        sessions.read_ended().await?;
        Ok(sessions)
    }

    /// Reads the sessions that have ended recently, here or on another server.
    pub(crate) async fn read_ended(&self) -> Result<()> {
        let since = self.clock.now_ms() - DENIED_MS;
        let sql = "SELECT id, ended_ms FROM session WHERE ended_ms > ?";
        let rows = statement(sql).bind(since).fetch_all(&self.pool).await.map_err(fault)?;
        let read = |row: &quiver_database::Row| Ok((row.try_get(0)?, row.try_get::<i64>(1)? + DENIED_MS));
        let ended: Vec<(String, i64)> = rows.iter().map(read).collect::<Result<_, _>>().map_err(fault)?;
        let mut denied = self.denied.write();
        denied.retain(|_, until| *until > since + DENIED_MS);
        denied.extend(ended);
        Ok(())
    }

    /// Says whether a session has ended whose access tokens may not have expired.
    pub(crate) fn is_denied(&self, id: &str) -> bool {
        self.denied.read().contains_key(id)
    }

    fn deny(&self, id: &str) {
        let now_ms = self.clock.now_ms();
        let mut denied = self.denied.write();
        denied.retain(|_, until| *until > now_ms);
        denied.insert(id.to_owned(), now_ms + DENIED_MS);
    }

    /// Begins a session; gives it with its first refresh token.
    pub(crate) async fn begin(&self, subject: &str, client: &str, scope: &str) -> Result<(Session, String)> {
        let now_ms = self.clock.now_ms();
        let id = quiver_types::hex(&random_bytes::<16>(&*self.random));
        let secret = random_bytes::<32>(&*self.random);
        let offline = scope.split(' ').any(|s| s == "offline_access");
        let (idle_ms, life_ms) = if offline { (OFFLINE_MS, OFFLINE_MS) } else { (IDLE_MS, LIFE_MS) };
        self.forget_old(now_ms).await?;
        let many =
            "SELECT id FROM session WHERE subject = ? AND ended_ms IS NULL ORDER BY rotated_ms DESC LIMIT ? OFFSET ?";
        let many = statement(many)
            .bind(subject)
            .bind(i64::MAX)
            .bind(PER_SUBJECT - 1)
            .fetch_all(&self.pool)
            .await
            .map_err(fault)?;
        for row in many {
            self.end(&row.try_get::<String>(0).map_err(fault)?).await?;
        }
        failpoint::hit("auth.before-session");
        let sql = "INSERT INTO session (id, subject, client, scope, sealed, generation, started_ms, rotated_ms, idle_ms, \
            end_ms) VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?)";
        let row = statement(sql).bind(&id).bind(subject).bind(client).bind(scope);
        let row = row.bind(self.vault.seal(&place(&id), &secret)).bind(now_ms).bind(now_ms).bind(idle_ms);
        row.bind(now_ms + life_ms).execute(&self.pool).await.map_err(fault)?;
        failpoint::hit("auth.after-session");
        let session = Session {
            subject: subject.to_owned(),
            client: client.to_owned(),
            scope: scope.to_owned(),
            started_ms: now_ms,
            refresh_s: idle_ms / 1000,
            id: id.clone(),
        };
        Ok((session, token(&id, &secret, 0)))
    }

    /// Deletes sessions that are over and of which no access token can be valid any more. One that was ended is not kept until
    /// the end that it would have had, else whoever signs in all the time could leave millions.
    async fn forget_old(&self, now_ms: i64) -> Result<()> {
        let sql = "DELETE FROM session WHERE end_ms < ? OR ended_ms < ?";
        let since = now_ms - DENIED_MS;
        statement(sql).bind(since).bind(since).execute(&self.pool).await.map_err(fault)?;
        Ok(())
    }

    async fn find(&self, id: &str) -> Result<Option<StoredSession>> {
        let sql = "SELECT subject, client, scope, sealed, generation, started_ms, rotated_ms, idle_ms, end_ms, ended_ms \
            FROM session WHERE id = ?";
        let row = statement(sql).bind(id).fetch_optional(&self.pool).await.map_err(fault)?;
        let Some(row) = row else { return Ok(None) };
        let (idle_ms, end_ms): (i64, i64) = (row.try_get(7).map_err(fault)?, row.try_get(8).map_err(fault)?);
        let left_ms = (end_ms - self.clock.now_ms()).clamp(0, idle_ms);
        let session = Session {
            id: id.to_owned(),
            subject: row.try_get(0).map_err(fault)?,
            client: row.try_get(1).map_err(fault)?,
            scope: row.try_get(2).map_err(fault)?,
            started_ms: row.try_get(5).map_err(fault)?,
            refresh_s: left_ms / 1000,
        };
        let sealed: Vec<u8> = row.try_get(3).map_err(fault)?;
        let Some(secret) = self.vault.open(&place(id), &sealed) else { return Ok(None) };
        Ok(Some(StoredSession {
            session,
            secret,
            generation: row.try_get(4).map_err(fault)?,
            rotated_ms: row.try_get(6).map_err(fault)?,
            idle_ms,
            end_ms,
            ended: row.try_get::<Option<i64>>(9).map_err(fault)?.is_some(),
        }))
    }

    /// Finds the session of a genuine refresh token, even if that is no longer valid.
    async fn genuine(&self, presented: &ParsedRefreshToken<'_>) -> Result<Option<StoredSession>> {
        let Some(stored) = self.find(presented.id).await? else { return Ok(None) };
        let key = hmac::Key::new(hmac::HMAC_SHA256, &stored.secret);
        // Compares in constant time.
        let right = hmac::verify(&key, &presented.generation.to_be_bytes(), &presented.tag).is_ok();
        Ok(Some(stored).filter(|_| right))
    }

    /// Finds the session of a valid refresh token, without using the token up.
    pub(crate) async fn of_token(&self, token: &str) -> Result<Option<Session>> {
        let Some(presented) = ParsedRefreshToken::read(token) else { return Ok(None) };
        let now_ms = self.clock.now_ms();
        let found = self.genuine(&presented).await?;
        Ok(found.filter(|s| !s.is_over(now_ms) && s.generation == presented.generation).map(|s| s.session))
    }

    /// Uses a refresh token of a client.
    pub(crate) async fn refresh(&self, token_text: &str, client: &str) -> Result<RefreshOutcome> {
        let Some(presented) = ParsedRefreshToken::read(token_text) else { return Ok(RefreshOutcome::Not) };
        let now_ms = self.clock.now_ms();
        let Some(stored) = self.genuine(&presented).await? else { return Ok(RefreshOutcome::Not) };
        if stored.is_over(now_ms) || stored.session.client != client {
            return Ok(RefreshOutcome::Not);
        }
        let id = stored.session.id.clone();
        if presented.generation == stored.generation {
            let sql = "UPDATE session SET generation = generation + 1, rotated_ms = ? WHERE id = ? AND generation = ? \
                AND ended_ms IS NULL";
            let row = statement(sql).bind(now_ms).bind(&id).bind(stored.generation);
            let done = row.execute(&self.pool).await.map_err(fault)?;
            if done == 1 {
                failpoint::hit("auth.after-refresh");
                let next = token(&id, &stored.secret, stored.generation + 1);
                return Ok(RefreshOutcome::Next(stored.session, next));
            }
            // Another request used the token first: treat this one as if it came later.
            let Some(later) = self.find(&id).await?.filter(|s| !s.ended) else { return Ok(RefreshOutcome::Not) };
            return self.late(&presented, later, now_ms).await;
        }
        self.late(&presented, stored, now_ms).await
    }

    /// Handles a token that was replaced: the latest one is accepted again for a short time, any other is a reuse.
    async fn late(
        &self,
        presented: &ParsedRefreshToken<'_>,
        stored: StoredSession,
        now_ms: i64,
    ) -> Result<RefreshOutcome> {
        // A clock that was set back makes no moment of weeks.
        let is_recent = now_ms.abs_diff(stored.rotated_ms) <= GRACE_MS.unsigned_abs();
        let just_now = presented.generation + 1 == stored.generation && is_recent;
        if just_now {
            let same = token(&stored.session.id, &stored.secret, stored.generation);
            return Ok(RefreshOutcome::Next(stored.session, same));
        }
        self.end(&stored.session.id).await?;
        Ok(RefreshOutcome::Reused(stored.session))
    }

    /// Ends a session.
    pub(crate) async fn end(&self, id: &str) -> Result<()> {
        self.deny(id);
        let sql = "UPDATE session SET ended_ms = ? WHERE id = ? AND ended_ms IS NULL";
        statement(sql).bind(self.clock.now_ms()).bind(id).execute(&self.pool).await.map_err(fault)?;
        failpoint::hit("auth.after-end");
        Ok(())
    }

    /// Revokes a token without a session, as if it had one of its own.
    pub(crate) async fn end_alone(&self, id: &str, subject: &str, client: &str) -> Result<()> {
        self.deny(id);
        let now_ms = self.clock.now_ms();
        self.forget_old(now_ms).await?;
        let sql = "INSERT INTO session (id, subject, client, scope, sealed, generation, started_ms, rotated_ms, idle_ms, \
            end_ms, ended_ms) VALUES (?, ?, ?, '', ?, 0, ?, ?, 0, ?, ?) ON CONFLICT (id) DO NOTHING";
        let secret = random_bytes::<32>(&*self.random);
        let row = statement(sql).bind(id).bind(subject).bind(client).bind(self.vault.seal(&place(id), &secret));
        let row = row.bind(now_ms).bind(now_ms).bind(now_ms).bind(now_ms);
        row.execute(&self.pool).await.map_err(fault)?;
        Ok(())
    }

    /// Ends the session of a refresh token, if it is genuine.
    pub(crate) async fn end_of_token(&self, token: &str) -> Result<Option<Session>> {
        let Some(presented) = ParsedRefreshToken::read(token) else { return Ok(None) };
        let Some(stored) = self.genuine(&presented).await? else { return Ok(None) };
        self.end(&stored.session.id).await?;
        Ok(Some(stored.session))
    }

    /// Ends all sessions of a subject except one.
    pub(crate) async fn end_all(&self, subject: &str, but: Option<&str>) -> Result<()> {
        let sql = "SELECT id FROM session WHERE subject = ? AND ended_ms IS NULL";
        let rows = statement(sql).bind(subject).fetch_all(&self.pool).await.map_err(fault)?;
        for row in rows {
            let id: String = row.try_get(0).map_err(fault)?;
            if but != Some(id.as_str()) {
                self.end(&id).await?;
            }
        }
        Ok(())
    }
}
