//! Requests that named themselves: they stay with the generation of their rows until the flush hands them to the catalog.

use std::sync::Arc;
use std::sync::atomic::Ordering::Release;

use super::Generation;
use crate::requests::AnsweredRequest;

impl Generation {
    /// The requests that named themselves, with their answers.
    pub(crate) fn requests(&self) -> Vec<Arc<AnsweredRequest>> {
        self.requests.read().clone()
    }

    /// Inserts a request that named itself. It is something to flush, like a row.
    pub(crate) fn insert_request(&self, seq: u64, request: Arc<AnsweredRequest>) {
        self.relative(seq);
        self.rows.fetch_add(1, Release);
        self.account(request.bytes());
        self.requests.write().push(request);
    }
}
