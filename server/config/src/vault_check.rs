//! Whether a master key is the one under which the secrets of a database are encrypted. A wrong one would open none of
//! them, and encrypt new ones beside them that the right one cannot open.
//!
//! The first server that uses a database leaves a text in it, encrypted under its key; later ones must be able to open it.
//! In databases from before that, one of the secrets must open.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::future::BoxFuture;
use quiver_database::{Database, Link, statement};
use quiver_types::Vault;
use serde_json::{Map, Value};

use crate::migrations::begin;
use crate::problem::{Problem, Result};
use crate::tables::{SCHEMA, SEALED, SECRETS};

/// The place to which the encryption of the check text is bound, and the text.
const PLACE: &str = "vault check";
const TEXT: &[u8] = b"quiver";

/// How a master key fits the secrets of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyFit {
    /// The key opens the check text that an earlier server left in the database.
    Known,
    /// The database has no check text, but the key opens one of its secrets.
    Opens,
    /// There are no secrets. `by_another`: there is a check text that the key does not open.
    Unused {
        /// Whether a server with another key left its text.
        by_another: bool,
    },
    /// The key does not open the secrets of the database.
    Wrong,
}

/// The members that nobody reads of the entities with secrets in one table, by family and id.
type SealedEntities = Vec<(String, String, Map<String, Value>)>;

/// Compares a master key with the secrets of a database, whose tables are up to date. `vault`: none where there is no key;
/// `others`: encrypted values of other parts of the server, with the places they are encrypted for.
///
/// # Errors
/// `STORE_BUSY`, `INTERNAL`.
pub fn key_fit<'a>(
    base: &'a Database,
    vault: Option<&'a dyn Vault>,
    others: &'a [(String, Vec<u8>)],
) -> BoxFuture<'a, Result<KeyFit>> {
    Box::pin(async move {
        let opens = |place: &str, sealed: &[u8]| vault.is_some_and(|vault| vault.open(place, sealed).is_some());
        let left = text_left(base).await?;
        if left.as_deref().is_some_and(|sealed| opens(PLACE, sealed)) {
            return Ok(KeyFit::Known);
        }
        let mut secrets = others.to_vec();
        for table in tables() {
            for (family, _, sealed) in sealed_entities(base, table).await? {
                secrets.extend(secrets_of(&family, &sealed));
            }
        }
        Ok(match left {
            by_another if secrets.is_empty() => KeyFit::Unused { by_another: by_another.is_some() },
            None if secrets.iter().any(|(place, sealed)| opens(place, sealed)) => KeyFit::Opens,
            _ => KeyFit::Wrong,
        })
    })
}

/// Stores a check text sealed with a key, unless there is one; with `anew`, replaces it. Returns whether the key opens the
/// stored text: if two servers start at once with different keys, only one of them may go on.
///
/// # Errors
/// `STORE_BUSY`, `INTERNAL`.
pub fn claim<'a>(base: &'a Database, vault: &'a dyn Vault, anew: bool) -> BoxFuture<'a, Result<bool>> {
    Box::pin(async move {
        let mut tx = begin(base).await?;
        if anew {
            statement("DELETE FROM vault_check").execute(&mut tx).await?;
        }
        let sql = "INSERT INTO vault_check (only_row, sealed) VALUES (1, ?) ON CONFLICT (only_row) DO NOTHING";
        statement(sql).bind(vault.seal(PLACE, TEXT)).execute(&mut tx).await?;
        let left = text_left(&mut tx).await?;
        tx.commit().await?;
        Ok(left.is_some_and(|sealed| vault.open(PLACE, &sealed).is_some()))
    })
}

/// Deletes the secrets of entities that a key does not open. With `is_another`, also deletes the stored answers for
/// repeated requests, which are encrypted under the other key. Entities keep showing `<secret>`, and each change of one
/// asks for the secret again. Returns the number of secrets.
///
/// # Errors
/// `STORE_BUSY`, `INTERNAL`.
pub fn forget_secrets<'a>(base: &'a Database, vault: &'a dyn Vault, is_another: bool) -> BoxFuture<'a, Result<usize>> {
    Box::pin(async move {
        let (mut tx, mut lost) = (begin(base).await?, 0);
        for table in tables() {
            for (family, id, mut sealed) in sealed_entities(&mut tx, table).await? {
                let Some(Value::Object(secrets)) = sealed.get_mut(SECRETS) else { continue };
                let before = secrets.len();
                secrets.retain(|place, text| {
                    opened(&family, place, text).is_some_and(|(place, text)| vault.open(&place, &text).is_some())
                });
                if secrets.len() == before {
                    continue;
                }
                lost += before - secrets.len();
                let sql = format!("UPDATE {table} SET sealed = ? WHERE family = ? AND id = ?");
                let row = statement(sql).bind(Value::Object(sealed).to_string()).bind(family).bind(id);
                row.execute(&mut tx).await?;
            }
        }
        if is_another {
            statement("DELETE FROM answered").execute(&mut tx).await?;
        }
        tx.commit().await?;
        Ok(lost)
    })
}

/// The tables with sealed secrets, which no reader gets to see.
fn tables() -> impl Iterator<Item = &'static str> {
    SCHEMA.tables.iter().filter(|table| table.column(SEALED).is_some()).map(|table| table.name)
}

async fn text_left<'c>(on: impl Into<Link<'c>>) -> Result<Option<Vec<u8>>> {
    let row = statement("SELECT sealed FROM vault_check").fetch_optional(on).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

async fn sealed_entities<'c>(on: impl Into<Link<'c>>, table: &str) -> Result<SealedEntities> {
    let sql = format!("SELECT family, id, sealed FROM {table} WHERE instr(sealed, ?) > 0");
    let rows = statement(sql).bind(format!("\"{SECRETS}\"")).fetch_all(on).await?;
    let mut found = Vec::with_capacity(rows.len());
    for row in rows {
        let (family, id, text): (String, String, String) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let sealed = serde_json::from_str(&text).map_err(|e| Problem::internal(format!("entity {id}: {e}")))?;
        found.push((family, id, sealed));
    }
    Ok(found)
}

/// The secrets of an entity, with the places that they are encrypted for.
fn secrets_of(family: &str, sealed: &Map<String, Value>) -> Vec<(String, Vec<u8>)> {
    let secrets = sealed.get(SECRETS).and_then(Value::as_object);
    secrets.into_iter().flatten().filter_map(|(place, text)| opened(family, place, text)).collect()
}

/// Where a secret is encrypted for, and its bytes.
fn opened(family: &str, place: &str, text: &Value) -> Option<(String, Vec<u8>)> {
    Some((format!("{family}{place}"), BASE64_STANDARD.decode(text.as_str()?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::migrations::migrate_own;

    /// A vault whose key is a single byte, which it writes before each text that it seals.
    #[derive(Debug)]
    struct Numbered(u8);

    impl Vault for Numbered {
        fn seal(&self, place: &str, plain: &[u8]) -> Vec<u8> {
            [&[self.0], place.as_bytes(), plain].concat()
        }

        fn open(&self, place: &str, sealed: &[u8]) -> Option<Vec<u8>> {
            sealed.strip_prefix(&[self.0])?.strip_prefix(place.as_bytes()).map(<[u8]>::to_vec)
        }
    }

    async fn base(dir: &tempfile::TempDir) -> Database {
        let path = dir.path().join("config.db");
        let base = Database::for_tests(&path, quiver_testpg::given()).await.unwrap();
        migrate_own(&base, 0).await.unwrap();
        base
    }

    /// Puts an entity with secrets, each under a key of its own, into both tables.
    async fn put(base: &Database, id: &str, secrets: &[(&str, u8)]) {
        let sealed = |(place, key): &(&str, u8)| {
            let sealed = Numbered(*key).seal(&format!("receivers{place}"), b"s3cret");
            ((*place).to_owned(), Value::String(BASE64_STANDARD.encode(sealed)))
        };
        let secrets: Map<String, Value> = secrets.iter().map(sealed).collect();
        let sealed = serde_json::json!({"password": "hash", SECRETS: secrets}).to_string();
        for table in ["entity", "deployed"] {
            let sql = format!(
                "INSERT INTO {table} (family, id, owner, version, created_ms, updated_ms, created_by, updated_by, \
                 managed_by, body, sealed) VALUES ('receivers', ?, '', 1, 0, 0, '', '', '', '{{}}', ?)"
            );
            statement(sql).bind(id).bind(&*sealed).execute(base).await.unwrap();
        }
    }

    async fn fit(base: &Database, key: Option<u8>, others: &[(String, Vec<u8>)]) -> KeyFit {
        let vault = key.map(Numbered);
        key_fit(base, vault.as_ref().map(|vault| vault as &dyn Vault), others).await.unwrap()
    }

    #[tokio::test]
    async fn the_first_key_is_the_only_one() {
        let dir = tempfile::tempdir().unwrap();
        let base = base(&dir).await;
        assert_eq!(fit(&base, None, &[]).await, KeyFit::Unused { by_another: false });
        assert!(claim(&base, &Numbered(1), false).await.unwrap());
        assert!(claim(&base, &Numbered(1), false).await.unwrap(), "once more is the same");
        assert!(!claim(&base, &Numbered(2), false).await.unwrap());
        assert_eq!(fit(&base, Some(1), &[]).await, KeyFit::Known);
        assert_eq!(fit(&base, Some(2), &[]).await, KeyFit::Unused { by_another: true });
        put(&base, "a", &[("/url", 1)]).await;
        assert_eq!(fit(&base, Some(1), &[]).await, KeyFit::Known);
        // A key that opens one secret is still wrong if it does not open the check text.
        put(&base, "b", &[("/url", 2)]).await;
        for wrong in [Some(2), Some(3), None] {
            assert_eq!(fit(&base, wrong, &[]).await, KeyFit::Wrong, "{wrong:?}");
        }
        assert!(claim(&base, &Numbered(2), true).await.unwrap());
        assert_eq!((fit(&base, Some(2), &[]).await, fit(&base, Some(1), &[]).await), (KeyFit::Known, KeyFit::Wrong));
    }

    /// Databases of earlier builds have secrets, but no check text.
    #[tokio::test]
    async fn one_secret_proves_a_key() {
        let dir = tempfile::tempdir().unwrap();
        let base = base(&dir).await;
        let signing = [("signing_key:k".to_owned(), Numbered(1).seal("signing_key:k", b"der"))];
        assert_eq!(fit(&base, Some(1), &signing).await, KeyFit::Opens);
        assert_eq!(
            (fit(&base, Some(2), &signing).await, fit(&base, None, &signing).await),
            (KeyFit::Wrong, KeyFit::Wrong)
        );
        put(&base, "a", &[("/url", 2)]).await;
        assert_eq!(fit(&base, Some(2), &[]).await, KeyFit::Opens);
        assert_eq!(fit(&base, Some(1), &[]).await, KeyFit::Wrong);
    }

    #[tokio::test]
    async fn only_what_a_key_does_not_open_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let base = base(&dir).await;
        put(&base, "a", &[("/url", 1), ("/password", 2)]).await;
        put(&base, "b", &[("/url", 2)]).await;
        assert_eq!(forget_secrets(&base, &Numbered(2), true).await.unwrap(), 2, "one in each table");
        for table in tables() {
            let sealed = sealed_entities(&base, table).await.unwrap();
            assert!(sealed.iter().all(|(_, _, sealed)| sealed["password"] == "hash"), "hashes stay");
            let places = |one: &(String, String, Map<String, Value>)| secrets_of(&one.0, &one.2).swap_remove(0).0;
            let mut left: Vec<String> = sealed.iter().map(places).collect();
            left.sort_unstable();
            assert_eq!(left, ["receivers/password", "receivers/url"], "{table}");
        }
        assert_eq!(forget_secrets(&base, &Numbered(2), true).await.unwrap(), 0);
        assert_eq!(fit(&base, Some(2), &[]).await, KeyFit::Opens);
    }
}
