//! Other servers over the same configuration database: applies their changes here, too.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use quiver_config::Config;
use tokio_util::sync::CancellationToken;

use crate::identity::Identities;

/// How often the database is asked. A change acts within twice that, and 5 s is what is promised.
const EVERY: Duration = Duration::from_secs(1);

/// Looks what others changed until the server stops; nothing is to be done where there are none.
pub fn follow(config: Config, identities: Option<Arc<Identities>>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        if !config.is_shared() {
            return;
        }
        let mut lost = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(EVERY) => {}
            }
            match (config.synchronize().await, lost) {
                (Ok(()), false) | (Err(_), true) => {}
                (Ok(()), true) => tracing::info!("the database of configuration is there again"),
                (Err(problem), false) => {
                    let cause = problem.cause;
                    tracing::warn!(cause, "the database of configuration is out of reach; going on with what is known");
                }
            }
            lost = config.lost_for_ms() > 0;
            let Some(identities) = identities.as_ref().filter(|_| !lost) else { continue };
            if let Err(error) = identities.auth.synchronize().await {
                tracing::warn!(%error, "sessions and signing keys of other servers cannot be read");
            }
        }
    })
}
