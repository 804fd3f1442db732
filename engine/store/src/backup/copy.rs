//! Copies files between stores in pieces, and computes checksums.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use tokio::io::AsyncWriteExt;

use crate::error::{Context, Error, Result, io_error};
use crate::object::Storage;

/// Bytes that are in memory at a time.
const PIECE: u64 = 8 << 20;

/// Downloads an object to a local file.
pub(super) async fn fetch(from: &Storage, key: &str, length: u64, to: &Path) -> Result<()> {
    let error = |e| io_error(format!("cannot write `{}`", to.display()), e);
    if let Some(parent) = to.parent() {
        tokio::fs::create_dir_all(parent).await.map_err(error)?;
    }
    let mut file = tokio::fs::File::create(to).await.map_err(error)?;
    let mut at = 0;
    while at < length {
        let end = (at + PIECE).min(length);
        for piece in from.read_ranges(key, std::slice::from_ref(&(at..end))).await? {
            file.write_all(&piece).await.map_err(error)?;
        }
        at = end;
    }
    file.flush().await.map_err(error)
}

/// CRC32C of a whole file.
pub(super) async fn checksum(path: PathBuf) -> Result<u32> {
    let shown = path.display().to_string();
    let sum = move || {
        let mut file = File::open(&path)?;
        let mut piece = vec![0; 1 << 20];
        let mut sum = 0;
        loop {
            match file.read(&mut piece)? {
                0 => return Ok::<u32, std::io::Error>(sum),
                n => sum = crc32c::crc32c_append(sum, &piece[..n]),
            }
        }
    };
    let sum = tokio::task::spawn_blocking(sum).await.internal("the disk's thread stopped")?;
    sum.map_err(|e| Error::internal(format!("cannot read `{shown}`")).with_source(e))
}
