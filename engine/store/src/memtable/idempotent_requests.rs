//! Requests with an idempotency key: they stay with the generation of their rows until the flush passes them to the
//! catalog.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use super::Generation;
use crate::idempotency::AnsweredRequest;

impl Generation {
    /// The requests with a key, with their responses.
    pub(crate) fn requests(&self) -> Vec<Arc<AnsweredRequest>> {
        self.requests.read().clone()
    }

    /// Inserts a request. It counts as something to flush, like a row.
    pub(crate) fn insert_request(&self, seq: u64, request: Arc<AnsweredRequest>) {
        self.relative(seq);
        self.rows.fetch_add(1, Release);
        self.account(request.bytes());
        self.requests.write().push(request);
    }
}
