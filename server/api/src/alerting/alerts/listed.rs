//! Lists of alerts and silences. There may be so many of both that a list takes long and much: each has a thread of its own
//! and ends with its client and the time of queries, few are made at once, and none is larger than an answer may be.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::response::Response;
use quiver_alertd::router::{Asked, GroupPiece, Shown};
use quiver_alerting::matchers::Matchers;
use quiver_alerting::silences::SilenceState;
use quiver_types::{Access, Domain, Error, ErrorKind, LabelSet, Result};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::rows::{self, Sight};
use super::silences::{is_within, matches_filter, shown};
use super::{Filter, allows, params_of, read_filters, truth, written};
use crate::state::AppState;

/// Most bytes of alerts that a preview lists: it is made as a tree of values.
const PREVIEW_BYTES_MAX: usize = 16 << 20;

/// Says whether a list goes on.
type GoOn<'a> = &'a dyn Fn() -> Result<()>;

fn late() -> Error {
    Error::new(ErrorKind::Timeout, "the list would take longer than `query.timeout`")
}

fn too_large(bytes_max: usize) -> Error {
    let text = format!("the list would have more than {bytes_max} bytes: name fewer by `filter`");
    Error::new(ErrorKind::LimitExceeded, text)
}

/// Makes a list on a thread of its own.
async fn made<T: Send + 'static>(
    state: &Arc<AppState>,
    make: impl FnOnce(&AppState, GoOn<'_>) -> Result<T> + Send + 'static,
) -> Result<T> {
    let timeout = state.limits().timeout;
    let until = Instant::now() + timeout;
    let place = tokio::time::timeout(timeout, Arc::clone(&state.places.alerts).acquire_owned()).await;
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
    work.await.map_err(|e| Error::internal("the list of alerts was not made").with_source(e))?
}

/// A JSON list as it is written.
#[derive(Debug)]
struct Text {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Text {
    fn push(&mut self, text: &str) {
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// Writes an item, behind a comma unless it is the first one.
    fn item(&mut self, item: &Value) -> Result<()> {
        if self.bytes.last().is_some_and(|last| *last != b'[') {
            self.push(",");
        }
        serde_json::to_writer(&mut self.bytes, item)
            .map_err(|e| Error::internal("an alert is no JSON").with_source(e))?;
        if self.bytes.len() > self.bytes_max { Err(too_large(self.bytes_max)) } else { Ok(()) }
    }

    /// Leaves an object that was written open for a list of alerts.
    fn open_alerts(&mut self) {
        self.bytes.pop();
        self.push(",\"alerts\":[");
    }
}

/// Lists alerts, or groups with theirs, as JSON.
pub(super) async fn listed(state: &Arc<AppState>, access: Access, filter: Filter, by_group: bool) -> Result<Vec<u8>> {
    made(state, move |state, go_on| {
        let labels = |labels: &LabelSet| allows(state, &access, labels) && filter.matchers.matches(labels);
        let receiver = |name: &str| filter.receiver(state, name);
        let asked = Asked { shown: filter.shown, labels: &labels, receiver: &receiver, go_on };
        let sight = Sight::new(state, &access);
        let mut text = Text { bytes: b"[".to_vec(), bytes_max: state.settings.answer_bytes_max };
        if by_group {
            let mut is_open = false;
            state.alertd.router.each_group(&asked, &mut |piece| match piece {
                GroupPiece::Group(group) => {
                    if std::mem::replace(&mut is_open, true) {
                        text.push("]}");
                    }
                    text.item(&rows::group(&group))?;
                    text.open_alerts();
                    Ok(())
                }
                GroupPiece::Alert(row) => text.item(&rows::alert(&row, &sight)),
            })?;
            if is_open {
                text.push("]}");
            }
        } else {
            state.alertd.router.each_alert(&asked, &mut |row| text.item(&rows::alert(&row, &sight)))?;
        }
        text.push("]\n");
        Ok(text.bytes)
    })
    .await
}

async fn silences_asked(state: &Arc<AppState>, request: Request) -> Result<Vec<u8>> {
    let params = params_of(state, request).await?;
    let filter = read_filters(params.all("filter"))?;
    let wanted = [
        (SilenceState::Active, truth(&params, "active")),
        (SilenceState::Pending, truth(&params, "pending")),
        (SilenceState::Expired, truth(&params, "expired")),
    ];
    let (access, now) = (state.access(Domain::Alerts), state.alertd.router.now());
    made(state, move |state, go_on| {
        let mut text = Text { bytes: b"[".to_vec(), bytes_max: state.settings.answer_bytes_max };
        for silence in state.alertd.router.silences() {
            go_on()?;
            let is_wanted = wanted.contains(&(silence.state(now), true));
            if is_wanted && matches_filter(&silence, &filter) && is_within(state, &access, &silence) {
                text.item(&shown(&silence, now))?;
            }
        }
        text.push("]\n");
        Ok(text.bytes)
    })
    .await
}

/// Lists silences.
pub(super) async fn silences(State(state): State<Arc<AppState>>, request: Request) -> Response {
    written(silences_asked(&state, request).await)
}

/// Gives the alerts that matchers fit as rows, as far as the caller sees them and what mutes them.
///
/// # Errors
/// LimitExceeded: they are too many. Timeout: they take too long.
pub(crate) async fn preview(state: &Arc<AppState>, access: Access, matchers: Matchers) -> Result<Vec<Value>> {
    made(state, move |state, go_on| {
        let labels = |labels: &LabelSet| matchers.matches(labels) && allows(state, &access, labels);
        let shown = Shown { active: true, silenced: true, inhibited: true, muted: true };
        let asked = Asked { shown, labels: &labels, receiver: &|_| true, go_on };
        let sight = Sight::new(state, &access);
        let (mut found, mut bytes) = (Vec::new(), 0);
        state.alertd.router.each_alert(&asked, &mut |row| {
            let shown = rows::alert(&row, &sight);
            bytes += row.alert.bytes() + shown["status"]["silencedBy"].as_array().map_or(0, |ids| 64 * ids.len());
            if bytes > PREVIEW_BYTES_MAX {
                return Err(Error::new(ErrorKind::LimitExceeded, "the matchers fit more alerts than can be shown"));
            }
            found.push(shown);
            Ok(())
        })?;
        Ok(found)
    })
    .await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lists_are_json_and_end_with_what_an_answer_may_have() {
        let mut text = Text { bytes: b"[".to_vec(), bytes_max: 60 };
        for name in ["a", "b"] {
            text.item(&json!({"name": name})).expect("room");
            text.open_alerts();
            text.item(&json!(1)).expect("room");
            text.item(&json!(2)).expect("room");
            text.push("]}");
        }
        assert_eq!(text.item(&json!("x".repeat(30))).map_err(|e| e.kind), Err(ErrorKind::LimitExceeded));
        let whole = String::from_utf8(text.bytes).expect("UTF-8");
        assert!(whole.starts_with(r#"[{"name":"a","alerts":[1,2]},{"name":"b","alerts":[1,2]}"#), "{whole}");
    }
}
