//! Rows of a query that runs.

use quiver_types::Result;
use tokio::sync::mpsc;

use super::Rows;

/// Rows as they are found. Dropping the stream ends the query.
#[derive(Debug)]
pub struct RowStream {
    pub(super) rows: mpsc::Receiver<Result<Rows>>,
    pub(super) task: tokio::task::JoinHandle<()>,
}

impl RowStream {
    /// Gives the next rows; `None` after the last, or after an error.
    pub async fn next(&mut self) -> Option<Result<Rows>> {
        self.rows.recv().await
    }
}

impl Drop for RowStream {
    fn drop(&mut self) {
        self.task.abort();
    }
}
