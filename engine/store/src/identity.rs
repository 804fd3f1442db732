//! Whether catalog and store belong together: the installation id goes into the catalog first, then into
//! `_quiver.json` at the store's prefix. A store of another installation, or one with parts beside an empty catalog,
//! is never touched.

use bytes::Bytes;
use uuid::Uuid;

use crate::catalog::Catalog;
use crate::error::{Error, ErrorKind, Result};
use crate::failpoint;
use crate::layout::{IDENTITY_KEY, Identity, STORE_FORMAT};
use crate::object::Storage;

/// Checks the two against each other, and makes them one installation when both are new.
///
/// # Errors
/// [`ErrorKind::Conflict`] when they do not belong together, [`ErrorKind::Unavailable`] when the store does not answer.
pub(crate) async fn establish(catalog: &Catalog, storage: &Storage) -> Result<Uuid> {
    match catalog.installation().await? {
        Some(id) => {
            confirm(catalog, storage, id).await?;
            Ok(id)
        }
        None => found(catalog, storage).await,
    }
}

/// Checks that the store belongs to an installation that the catalog knows.
pub(crate) async fn confirm(catalog: &Catalog, storage: &Storage, id: Uuid) -> Result<()> {
    match stored(storage).await? {
        Some(other) if other.installation == id => Ok(()),
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
            "the catalog is empty, but the store `{}` holds objects (`{key}`, …); \
             `quiver catalog rebuild` makes the catalog anew from the store",
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
    storage.get(IDENTITY_KEY).await?.map(|body| Identity::parse(&body)).transpose()
}

/// Writes the store's identity.
pub(crate) async fn write(storage: &Storage, id: Uuid) -> Result<()> {
    let identity = Identity { format: STORE_FORMAT, installation: id };
    storage.put(IDENTITY_KEY, Bytes::from(identity.to_json())).await
}
