//! Verified uploads: checks size, entity tag and tail of what arrived. Files above 16 MiB are uploaded in parts.

use std::path::Path;

use bytes::Bytes;
use object_store::path::Path as StorePath;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt};

use super::{Tail, damaged, local, same_size};

/// Files above this size are uploaded in parts.
pub(super) const MULTIPART_ABOVE: u64 = 16 << 20;
/// Size of an upload part (S3 requires at least 5 MiB).
const MULTIPART_BYTES: u64 = 8 << 20;

/// Checks what the store has after an upload. (S3 has verified the body itself, as the signature covers its SHA-256.)
pub(super) async fn verify(
    store: &dyn ObjectStore,
    path: &StorePath,
    length: u64,
    e_tag: Option<String>,
    tail: Option<Tail>,
) -> object_store::Result<()> {
    // Where names are told late, it is not the object that is missing.
    let arrived = |answer| match answer {
        Err(object_store::Error::NotFound { .. }) => Err(damaged(path, "it is not there after its upload".into())),
        answer => answer,
    };
    let head = arrived(store.head(path).await)?;
    same_size(path, length, head.size)?;
    if let (Some(sent), Some(found)) = (e_tag, head.e_tag)
        && sent.trim_matches('"') != found.trim_matches('"')
    {
        return Err(damaged(path, format!("entity tag `{found}` is not `{sent}`, the one of the upload")));
    }
    if let Some(tail) = tail {
        let bytes = store.get_range(path, length - tail.bytes.min(length)..length).await?;
        if crc32c::crc32c(&bytes) != tail.crc {
            return Err(damaged(path, "the tail has another checksum".into()));
        }
    }
    Ok(())
}

pub(super) async fn read_chunk(file: &Path, start: u64, length: u64) -> object_store::Result<Bytes> {
    let path = file.to_owned();
    let read = crate::threads::blocking(move || local::read_range(&path, start..start + length)).await?;
    read.map_err(|e| object_store::Error::NotSupported { source: Box::new(e) })
}

pub(super) async fn put_multipart(
    store: &dyn ObjectStore,
    path: &StorePath,
    file: &Path,
    length: u64,
) -> object_store::Result<Option<String>> {
    let mut upload = PendingUpload(Some(store.put_multipart(path).await?));
    let mut at = 0;
    while at < length {
        let chunk = read_chunk(file, at, MULTIPART_BYTES.min(length - at)).await?;
        at += chunk.len() as u64;
        upload.get().put_part(chunk.into()).await?;
    }
    let answer = upload.get().complete().await?;
    upload.0 = None;
    Ok(answer.e_tag)
}

/// A multipart upload that is aborted when dropped, because of an error or an outer timeout. Otherwise the store would
/// keep its parts, which cost money and appear in no listing.
struct PendingUpload(Option<Box<dyn MultipartUpload>>);

impl PendingUpload {
    fn get(&mut self) -> &mut dyn MultipartUpload {
        &mut **self.0.as_mut().expect("taken at the end only")
    }
}

impl Drop for PendingUpload {
    fn drop(&mut self) {
        let (Some(mut upload), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else { return };
        runtime.spawn(async move {
            if let Err(error) = upload.abort().await {
                tracing::debug!(%error, "an upload in parts that was given up stays; a bucket rule removes it");
            }
        });
    }
}
