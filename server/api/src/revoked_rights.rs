//! Ends a running query when its caller loses the rights that it uses, whatever its rows are read for
//! (`identity-and-access` 1.2).

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quiver_auth::Identity;
use quiver_query::{Permit, WITHDRAWN};
use quiver_types::{Error, ErrorKind, Result};
use tokio_util::sync::CancellationToken;

use crate::state::AppState;

/// How often the callers of running queries are looked at. What is taken away is promised to act within 5 s.
const EVERY: Duration = Duration::from_secs(1);

/// Refuses the caller whose rights were taken away while he waited for what others asked for, too.
///
/// # Errors
/// Cancelled.
pub(crate) fn check(state: &AppState) -> Result<()> {
    match state.current_rights() {
        Some(held) if !held.holds() => Err(Error::new(ErrorKind::Cancelled, WITHDRAWN)),
        _ => Ok(()),
    }
}

/// Waits until an account, key or session is no more; for ever where nobody is asked who he is.
pub(crate) async fn account_removed(app: &AppState, identity: &Identity) {
    let Some(identities) = app.identities.as_ref().filter(|identities| identities.enforced) else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(EVERY).await;
        if identities.auth.renewed(identity).is_err() {
            return;
        }
    }
}

/// Ends queries with the rights that they began with, until the server stops.
pub fn follow(app: Arc<AppState>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if !app.is_enforced() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            let ended = app.engines.query.running().withdraw();
            if ended > 0 {
                tracing::info!(ended, "queries were ended because their callers lost rights");
            }
        }
    })
}
