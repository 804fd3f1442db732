//! Makes sure that catalog and object store belong together. The installation id is written to the catalog first, then
//! to `_quiver.json` at the store's prefix, and the newest commit object must be one that the catalog knows. A store of
//! another installation, one with parts next to an empty catalog, or one that is ahead of the catalog is never touched.

use bytes::Bytes;
use quiver_types::Millis;
use uuid::Uuid;

use crate::catalog::{Catalog, CommitObject, NextObject};
use crate::epoch;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint;
use crate::layout::{CATALOG_PREFIX, IDENTITY_KEY, Identity, STORE_FORMAT, commit_key, parse_commit_key};
use crate::object::Storage;

/// Checks the two against each other, makes them one installation when both are new, and takes the store's next epoch.
///
/// # Errors
/// [`ErrorKind::Conflict`] when they do not belong together or another process starts on the store at the same time,
/// [`ErrorKind::Unavailable`] when the store does not answer.
pub(crate) async fn establish(catalog: &Catalog, storage: &Storage, now: Millis) -> Result<(Uuid, u64)> {
    let id = match catalog.installation().await? {
        Some(id) => {
            confirm(catalog, storage, id).await?;
            id
        }
        None => found(catalog, storage).await?,
    };
    Ok((id, epoch::take(storage, id, now).await?))
}

/// Checks that the store belongs to an installation that the catalog knows, and that the catalog is as new as the store.
pub(crate) async fn confirm(catalog: &Catalog, storage: &Storage, id: Uuid) -> Result<()> {
    match stored(storage).await? {
        Some(other) if other.installation == id => follows(catalog, storage).await,
        Some(other) => {
            let text = format!(
                "the store `{}` belongs to installation `{}`, the catalog to `{id}`; name the right data directory or store",
                storage.url(),
                other.installation
            );
            Err(Error::new(ErrorKind::Conflict, text))
        }
        None if catalog.last_commit().await? == 0 => write(storage, id).await,
        None => {
            let text = format!(
                "the store `{}` holds no `{IDENTITY_KEY}`, but the catalog has commits; name the right store",
                storage.url()
            );
            Err(Error::new(ErrorKind::Conflict, text))
        }
    }
}

async fn found(catalog: &Catalog, storage: &Storage) -> Result<Uuid> {
    let stored = stored(storage).await?;
    let objects = storage.list("").await?;
    if let Some((key, _)) = objects.iter().find(|(key, _)| key != IDENTITY_KEY) {
        let text = format!(
            "the catalog is empty, but the store `{}` holds objects (`{key}`, …); if another server uses it, name another \
             place, since a store has one server; if its data directory is lost, `quiver catalog rebuild` makes the \
             catalog anew from the store",
            storage.url()
        );
        return Err(Error::new(ErrorKind::Conflict, text));
    }
    // A store with nothing but an identity is one whose catalog got lost before it held anything.
    let id = stored.map_or_else(Uuid::now_v7, |s| s.installation);
    catalog.install(id).await?;
    failpoint::hit("open.after-installation");
    write(storage, id).await?;
    failpoint::hit("open.after-identity");
    Ok(id)
}

/// Reads the store's identity.
pub(crate) async fn stored(storage: &Storage) -> Result<Option<Identity>> {
    let advise = |mut error: Error| {
        if error.kind() == ErrorKind::Internal {
            let advice = format!(
                "; move it out of the store `{}`, then `quiver catalog rebuild` writes it anew from the commit objects",
                storage.url()
            );
            error.message.push_str(&advice);
        }
        error
    };
    storage.get(IDENTITY_KEY).await?.map(|body| Identity::parse(&body).map_err(advise)).transpose()
}

/// Writes the store's identity, which must not be there yet, or be this one.
///
/// # Errors
/// [`ErrorKind::Conflict`] when another installation took the store in the meantime.
pub(crate) async fn write(storage: &Storage, id: Uuid) -> Result<()> {
    let identity = Identity { format: STORE_FORMAT, installation: id };
    let Some(found) = storage.create(IDENTITY_KEY, Bytes::from(identity.to_json())).await? else { return Ok(()) };
    let other = Identity::parse(&found)?;
    if other == identity {
        return Ok(());
    }
    let text = format!(
        "the store `{}` was taken by another process, as installation `{}`, while this one (`{id}`) began; \
         one store belongs to one server",
        storage.url(),
        other.installation
    );
    Err(Error::new(ErrorKind::Conflict, text))
}

/// Checks that the newest commit object of the store is one that the catalog has, and the newest that it has written.
///
/// # Errors
/// [`ErrorKind::Conflict`] when the database is an old or copied one, or the store is.
pub(crate) async fn follows(catalog: &Catalog, storage: &Storage) -> Result<()> {
    let keys = storage.list(CATALOG_PREFIX).await?;
    let newest = keys.iter().filter_map(|(key, _)| parse_commit_key(key)).max();
    let (last, unwritten) = (catalog.last_commit().await?, catalog.first_unwritten().await?);
    let conflict = |text: String| {
        let text = format!(
            "{text}; name the right data directory, or let `quiver catalog rebuild` make the catalog anew from the store"
        );
        Err(Error::new(ErrorKind::Conflict, text))
    };
    let url = storage.url();
    let written = unwritten.map_or(Some(last), |first| first.checked_sub(1));
    if newest < written {
        let end = newest.map_or_else(|| "has no commit".to_owned(), |n| format!("ends with commit {n}"));
        return conflict(format!(
            "the store `{url}` {end}, the catalog has written commit {}: the store is an older copy",
            written.unwrap_or_default()
        ));
    }
    let Some(newest) = newest.filter(|_| newest > written) else { return Ok(()) };
    if newest > last {
        return conflict(format!(
            "the store `{url}` is at commit {newest}, the catalog (`quiver.db`) at {last}: it is an old copy, or another \
             server works on this store"
        ));
    }
    // This server wrote it and was killed before recording that; or another server continues from a copy of the catalog. A
    // damaged object says nothing about its writer, and is written again.
    // (Parts in the spool that were damaged did not hold it up.)
    let spooled = catalog.spooled_parts().await?.iter().map(|part| part.id).collect();
    if unwritten == Some(newest)
        && let NextObject::Ready(object) = catalog.next_object(&spooled).await?
        && let Some(found) = storage.get(&commit_key(newest)).await?
        && (object.is(&found) || CommitObject::is_damaged(&commit_key(newest), &found))
    {
        return Ok(());
    }
    conflict(format!(
        "the store `{url}` and the catalog (`quiver.db`) differ from commit {newest} on: another server has written to \
         this store with a copy of this catalog"
    ))
}
