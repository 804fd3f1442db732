//! Idempotency keys (`Idempotency-Key`): a repeated request gets the response of the first and has no further effect.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::future::BoxFuture;
use ring::digest::{SHA256, digest};

use crate::config::Config;
use crate::migrations;
use crate::problem::{Problem, ProblemKind, Result};
use quiver_database::{Connection, Database, statement};

/// How long answers are kept.
const KEPT_MS: i64 = 24 * 3_600_000;
/// How long a request may be under way before its name is free again: its process ended.
const UNDER_WAY_MS: i64 = 10 * 60_000;
/// Longest answer that is kept, as it is or packed.
const ANSWER_BYTES_MAX: usize = 4 << 20;
/// What packed answers begin with: the others are texts.
const PACKED: [u8; 4] = 0xFD2F_B528_u32.to_le_bytes();
/// Most answers that are kept of a subject.
const KEPT_MAX: i64 = 10_000;
/// Most bytes of them.
const KEPT_BYTES_MAX: i64 = 256 << 20;

/// A request that names itself.
#[derive(Debug, Clone)]
pub struct IdempotentRequest {
    subject: String,
    path: String,
    name: String,
    body_hash: String,
}

/// What is known of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplayStatus {
    /// Nothing: it may go on.
    Fresh,
    /// It was answered so.
    Answered(Vec<u8>),
}

impl IdempotentRequest {
    /// Names a request.
    ///
    /// # Errors
    /// `INVALID_PARAMETER` when the name is not 1 to 255 visible ASCII characters.
    pub fn new(subject: &str, path: &str, name: &[u8], body: &[u8]) -> Result<Self> {
        let sane = (1..=255).contains(&name.len()) && name.iter().all(u8::is_ascii_graphic);
        if !sane {
            return Err(Problem::parameter("`Idempotency-Key` must be 1 to 255 visible ASCII characters"));
        }
        Ok(Self {
            subject: subject.to_owned(),
            path: path.to_owned(),
            name: String::from_utf8_lossy(name).into_owned(),
            body_hash: STANDARD.encode(digest(&SHA256, body)),
        })
    }

    fn place(&self) -> String {
        format!("answered:{}:{}:{}", self.subject, self.path, self.name)
    }
}

/// An answer as it is kept: one that is too long is packed; none: it is too long all the same.
fn kept(answer: &[u8]) -> Result<Option<Cow<'_, [u8]>>> {
    let kept = if answer.len() <= ANSWER_BYTES_MAX {
        Cow::Borrowed(answer)
    } else {
        Cow::Owned(zstd::encode_all(answer, 1).map_err(Problem::internal)?)
    };
    Ok(Some(kept).filter(|kept| kept.len() <= ANSWER_BYTES_MAX))
}

/// An answer that was kept.
fn unpacked(kept: Vec<u8>) -> Result<Vec<u8>> {
    if kept.starts_with(&PACKED) { zstd::decode_all(&kept[..]).map_err(Problem::internal) } else { Ok(kept) }
}

/// Forgets answers that are too old.
pub(crate) async fn forget_old(db: &mut Connection, now_ms: i64) -> Result<()> {
    let sql = "DELETE FROM answered WHERE at_ms < ? OR (answer IS NULL AND at_ms < ?)";
    statement(sql).bind(now_ms - KEPT_MS).bind(now_ms - UNDER_WAY_MS).execute(db).await?;
    Ok(())
}

/// Forgets requests that were under way when the server ended: nobody answers them any more, so who asks once more is not to
/// wait. Where other servers write to the same database it may be theirs.
pub(crate) async fn forget_lost(pool: &Database) -> Result<()> {
    if !pool.is_shared() {
        statement("DELETE FROM answered WHERE answer IS NULL").execute(pool).await?;
    }
    Ok(())
}

impl Config {
    /// Begins a request that names itself.
    ///
    /// # Errors
    /// `IDEMPOTENCY_KEY_REUSED`, `IDEMPOTENCY_IN_PROGRESS`, `STORE_BUSY`.
    pub fn begin_named<'a>(&'a self, named: &'a IdempotentRequest) -> BoxFuture<'a, Result<ReplayStatus>> {
        Box::pin(async move {
            let now_ms = self.clock.now_ms();
            let mut tx = migrations::begin(&self.pool).await?;
            forget_old(&mut tx, now_ms).await?;
            let sql = "SELECT body_hash, answer FROM answered WHERE subject = ? AND path = ? AND name = ?";
            let row = statement(sql).bind(&named.subject).bind(&named.path).bind(&named.name);
            if let Some(row) = row.fetch_optional(&mut *tx).await? {
                if row.try_get::<String>(0)? != named.body_hash {
                    let text = "this `Idempotency-Key` came with another body";
                    return Err(Problem::new(ProblemKind::Invalid, "IDEMPOTENCY_KEY_REUSED", text));
                }
                let Some(sealed) = row.try_get::<Option<Vec<u8>>>(1)? else {
                    let text = "the request of this name is still under way";
                    return Err(Problem::new(ProblemKind::Conflict, "IDEMPOTENCY_IN_PROGRESS", text));
                };
                let answer = self.vault.open(&named.place(), &sealed);
                let answer = answer.ok_or_else(|| Problem::internal("an answer that no key opens"))?;
                return unpacked(answer).map(ReplayStatus::Answered);
            }
            let sql = "SELECT count(*), coalesce(sum(length(answer)), 0) FROM answered WHERE subject = ?";
            let row = statement(sql).bind(&named.subject).fetch_one(&mut *tx).await?;
            let (kept, bytes): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            if kept >= KEPT_MAX || bytes >= KEPT_BYTES_MAX {
                let text = format!(
                    "{KEPT_MAX} requests of the last day have a name already, or their answers {KEPT_BYTES_MAX} bytes"
                );
                return Err(Problem::new(ProblemKind::Limited, "RATE_LIMITED", text));
            }
            let sql = "INSERT INTO answered (subject, path, name, body_hash, at_ms) VALUES (?, ?, ?, ?, ?)";
            let row = statement(sql).bind(&named.subject).bind(&named.path).bind(&named.name);
            row.bind(&named.body_hash).bind(now_ms).execute(&mut *tx).await?;
            tx.commit().await?;
            Ok(ReplayStatus::Fresh)
        })
    }

    /// Keeps the answer; none: it was a fault of ours, and the name is free again. `false`: the answer is too long, and the
    /// name waits for a shorter one.
    ///
    /// # Errors
    /// `STORE_BUSY`, `INTERNAL`.
    pub fn end_named<'a>(
        &'a self,
        named: &'a IdempotentRequest,
        answer: Option<&'a [u8]>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let sealed = match answer.map(kept).transpose()? {
                Some(None) => return Ok(false),
                Some(Some(kept)) => Some(self.vault.seal(&named.place(), &kept)),
                None => None,
            };
            let mut tx = migrations::begin(&self.pool).await?;
            if let Some(sealed) = sealed {
                let sql = "UPDATE answered SET answer = ? WHERE subject = ? AND path = ? AND name = ?";
                let row = statement(sql).bind(sealed).bind(&named.subject).bind(&named.path).bind(&named.name);
                row.execute(&mut *tx).await?;
            } else {
                let sql = "DELETE FROM answered WHERE subject = ? AND path = ? AND name = ?";
                let row = statement(sql).bind(&named.subject).bind(&named.path).bind(&named.name);
                row.execute(&mut *tx).await?;
            }
            tx.commit().await?;
            Ok(true)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_visible_letters() {
        let longest = [b'a'; 255];
        for fine in [&b"a"[..], b"!", b"~", b"8e03978e-40d5-43e8-bc93-6894a57f9324", &longest] {
            assert!(IdempotentRequest::new("user:1", "/p", fine, b"").is_ok(), "{fine:?}");
        }
        let longer = [b'a'; 256];
        for wrong in [&b""[..], b" ", b"a b", b"a\tb", b"a\n", b"\x7f", "ä".as_bytes(), b"\xff", &longer] {
            let problem = IdempotentRequest::new("user:1", "/p", wrong, b"").unwrap_err();
            assert_eq!((problem.kind, problem.code), (ProblemKind::Malformed, "INVALID_PARAMETER"), "{wrong:?}");
        }
    }

    #[test]
    fn the_same_request_has_the_same_body() {
        let hash = |body: &[u8]| IdempotentRequest::new("user:1", "/p", b"n", body).expect("a name").body_hash;
        assert_eq!(hash(b"{}"), hash(b"{}"));
        assert_ne!(hash(b"{}"), hash(b"{ }"), "it is compared as it was sent");
        assert_ne!(hash(b""), hash(b"\0"));
        // The hash of nothing, as everybody has it.
        assert_eq!(hash(b""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        let place =
            |subject: &str, path: &str| IdempotentRequest::new(subject, path, b"n", b"").expect("a name").place();
        assert_eq!(place("user:1", "/p"), "answered:user:1:/p:n");
        assert_ne!(place("user:1", "/p"), place("user:2", "/p"));
        assert_ne!(place("user:1", "/p"), place("user:1", "/q"));
    }

    #[test]
    fn long_answers_are_packed() {
        let check = |answer: Vec<u8>, packed: bool| {
            let held = kept(&answer).expect("it can be packed").expect("it is short enough").into_owned();
            assert_eq!(held.starts_with(&PACKED), packed);
            assert!(held.len() <= ANSWER_BYTES_MAX);
            assert!(unpacked(held).expect("it was kept") == answer);
        };
        check(Vec::new(), false);
        check(b"{}".to_vec(), false);
        check(vec![b'x'; ANSWER_BYTES_MAX], false);
        check(vec![b'x'; ANSWER_BYTES_MAX + 1], true);
        assert!(unpacked([&PACKED[..], b"no"].concat()).is_err());
    }
}
