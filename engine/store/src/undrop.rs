//! `quiver store undrop`: brings back what retention dropped by a wrong clock or setting, as long as the files are there.

use std::sync::Arc;

use futures::future::LocalBoxFuture;
use quiver_types::Clock;

use crate::catalog::NextObject;
use crate::error::Result;
use crate::identity;
use crate::layout::commit_key;
use crate::object::Storage;
use crate::offline::Offline;
use crate::settings::StoreSettings;

/// Makes dropped parts live again whose files are all there; gives their number. The server must not run.
///
/// # Errors
/// [`crate::ErrorKind::Conflict`] when the server runs or store and catalog do not belong together,
/// [`crate::ErrorKind::Unavailable`] when the store does not answer.
pub fn undrop(
    settings: StoreSettings,
    clock: Arc<dyn Clock>,
    storage: Option<Storage>,
) -> LocalBoxFuture<'static, Result<usize>> {
    Box::pin(async move {
        let offline = Offline::open(&settings, clock, storage).await?;
        let done = run(&offline).await;
        offline.catalog.close().await;
        done
    })
}

async fn run(offline: &Offline) -> Result<usize> {
    let Some(installation) = offline.catalog.installation().await? else { return Ok(0) };
    identity::confirm(&offline.catalog, &offline.storage, installation).await?;
    note_written(offline).await?;
    let mut whole = Vec::new();
    for part in offline.catalog.dropped_parts().await? {
        let mut there = true;
        for file in &part.files {
            there &= offline.storage.size(&file.key).await? == Some(file.bytes);
        }
        if there {
            whole.push(part.id);
        }
    }
    if !whole.is_empty() {
        offline.catalog.undrop(&whole).await?;
    }
    Ok(whole.len())
}

/// Notes the commit object that a server wrote just before it was killed: it tells what was dropped, and once that is back
/// in the catalog it would be taken for another server's.
async fn note_written(offline: &Offline) -> Result<()> {
    let spooled = offline.catalog.spooled_parts().await?.iter().map(|part| part.id).collect();
    while let NextObject::Ready(object) = offline.catalog.next_object(&spooled).await? {
        let key = commit_key(object.commit);
        let Some(found) = offline.storage.get(&key).await? else { break };
        // Creating it again makes it last, should the server have died before that.
        if !object.is(&found) || offline.storage.create(&key, found).await?.is_some() {
            break;
        }
        offline.catalog.object_written(object.commit).await?;
    }
    Ok(())
}
