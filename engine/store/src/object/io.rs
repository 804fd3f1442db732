//! Reads files of parts: from the spool or a local store on the calling thread, from a remote store over the network.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Handle;

use super::Storage;
use crate::error::{Context, Error, ErrorKind, Result};
use crate::io::{LocalIo, PartIo};
use crate::part::Place;

/// Reads from a remote store with a local spool.
#[derive(Debug)]
pub struct StoreIo {
    spool: Arc<LocalIo>,
    storage: Storage,
    runtime: Handle,
}

impl StoreIo {
    /// Reads `storage` on the runtime for I/O; `spool` reads what has not been uploaded yet.
    pub fn new(spool: Arc<LocalIo>, storage: Storage, runtime: Handle) -> Self {
        Self { spool, storage, runtime }
    }
}

#[async_trait]
impl PartIo for StoreIo {
    async fn read(&self, key: &str, place: Place, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if place == Place::Spool {
            return self.spool.read(key, place, ranges).await;
        }
        // The caller may be on a thread for CPU work, which must not own connections.
        let (storage, key, ranges) = (self.storage.clone(), key.to_owned(), ranges.to_vec());
        let read = self.runtime.spawn(async move {
            let gone = |e: Error| match e.kind {
                ErrorKind::NotFound => {
                    Error { kind: ErrorKind::Damaged, message: format!("file `{key}` is gone"), ..e }
                }
                _ => e,
            };
            storage.read_ranges(&key, &ranges).await.map_err(gone)
        });
        read.await.internal("a read of the object store stopped")?
    }

    fn read_here(&self, key: &str, place: Place, range: Range<u64>) -> Option<Result<Bytes>> {
        if place == Place::Spool { self.spool.read_here(key, place, range) } else { None }
    }

    fn remote(&self, place: Place) -> bool {
        place == Place::Store
    }
}
