//! Entry points for fuzz targets: decoders of requests that are not ingest formats.

use quiver_types::{MillisRange, Result};

use crate::encode::remote_read::decode;

/// Decodes a decompressed request of remote read; gives the number of matchers and the time of each query.
///
/// # Errors
/// Invalid, LimitExceeded.
pub fn read_request(body: &[u8]) -> Result<Vec<(usize, MillisRange)>> {
    Ok(decode(body, None)?.queries.into_iter().map(|query| (query.matchers.len(), query.range)).collect())
}
