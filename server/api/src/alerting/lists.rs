//! Lists of alerts, silences and rules. A list may be long and slow to make, so it is made on a separate thread, ends
//! with its client or with the time limit of queries, and is limited in size. Only a few are made at once.

use std::sync::Arc;
use std::time::Instant;

use quiver_types::{Error, ErrorKind, Result};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::state::AppState;

/// Fails if a list must not be continued: its client is gone, or its time is up.
pub(super) type ContinueCheck<'a> = &'a dyn Fn() -> Result<()>;

fn late() -> Error {
    Error::new(ErrorKind::Timeout, "the list would take longer than `query.timeout`")
}

/// Makes a list on a thread of its own.
///
/// # Errors
/// Timeout: it takes too long. Those of whom it calls.
pub(super) async fn made<T: Send + 'static>(
    state: &Arc<AppState>,
    make: impl FnOnce(&AppState, ContinueCheck<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let timeout = state.limits().timeout;
    let until = Instant::now() + timeout;
    let place = tokio::time::timeout(timeout, Arc::clone(&state.capacity.places.alerts).acquire_owned()).await;
    let place = place.map_err(|_| late())?.map_err(|e| Error::internal("no list is made any more").with_source(e))?;
    let stop = CancellationToken::new();
    let _stop_on_drop = stop.clone().drop_guard();
    let state = Arc::clone(state);
    let work = tokio::task::spawn_blocking(move || {
        let _place = place;
        let go_on = || {
            if stop.is_cancelled() {
                return Err(Error::new(ErrorKind::Cancelled, "nobody waits for the list"));
            }
            if Instant::now() < until { Ok(()) } else { Err(late()) }
        };
        make(&state, &go_on)
    });
    work.await.map_err(|e| Error::internal("the list was not made").with_source(e))?
}

/// JSON of lists as it is written.
#[derive(Debug)]
pub(super) struct Text {
    bytes: Vec<u8>,
    bytes_max: usize,
    /// What there is to do about one that is too large.
    fewer: &'static str,
}

impl Text {
    /// Begins a text of at most so many bytes.
    pub(super) fn new(start: &str, bytes_max: usize, fewer: &'static str) -> Self {
        Self { bytes: start.as_bytes().to_vec(), bytes_max, fewer }
    }

    /// Writes a text as it is.
    pub(super) fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes an item, behind a comma unless it is the first one.
    ///
    /// # Errors
    /// LimitExceeded: the text gets too large.
    pub(super) fn item(&mut self, item: &Value) -> Result<()> {
        if self.bytes.last().is_some_and(|last| *last != b'[') {
            self.push(",");
        }
        serde_json::to_writer(&mut self.bytes, item)
            .map_err(|e| Error::internal("an item of a list is no JSON").with_source(e))?;
        if self.bytes.len() <= self.bytes_max {
            return Ok(());
        }
        let text = format!("the list would have more than {} bytes: {}", self.bytes_max, self.fewer);
        Err(Error::new(ErrorKind::LimitExceeded, text))
    }

    /// Leaves an object that was written open for a list within it.
    pub(super) fn open(&mut self, name: &str) {
        self.bytes.pop();
        self.push(&format!(",\"{name}\":["));
    }

    /// Gives what was written.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_json_and_end_with_what_an_answer_may_have() {
        let mut text = Text::new("[", 60, "name fewer");
        for name in ["a", "b"] {
            text.item(&json!({"name": name})).expect("room");
            text.open("alerts");
            text.item(&json!(1)).expect("room");
            text.item(&json!(2)).expect("room");
            text.push("]}");
        }
        let told = text.item(&json!("x".repeat(30))).expect_err("no room");
        assert_eq!(told.kind, ErrorKind::LimitExceeded);
        assert_eq!(told.message, "the list would have more than 60 bytes: name fewer");
        let whole = String::from_utf8(text.into_bytes()).expect("UTF-8");
        assert!(whole.starts_with(r#"[{"name":"a","alerts":[1,2]},{"name":"b","alerts":[1,2]}"#), "{whole}");
    }
}
