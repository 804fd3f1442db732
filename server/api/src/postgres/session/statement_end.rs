//! Ends a statement while its rows are being sent. A client that does not read must not keep the memory of its query or
//! its place among the running ones, so sending waits no longer than the query lives.

use std::future::pending;
use std::time::Instant;

use quiver_query::QueryContext;
use quiver_types::{Error, ErrorKind};
use tokio_util::sync::CancellationToken;

use super::queries::statement_fault;
use super::{Connection, DisconnectReason, Trouble, cancelled};
use crate::postgres::portal::PortalRows;

/// Bytes of rows that may stay unsent after their statement has ended: a message cannot be cut. A connection with more of
/// them ends, since nothing counts them.
const UNSENT_MAX: usize = 1 << 20;

/// What ends a statement from outside.
pub(super) struct StatementCancellation {
    /// A cancel request.
    pub(super) running: CancellationToken,
    ctx: Option<QueryContext>,
    /// Its time limit, unless that passed before: what was found by then can be fetched later.
    deadline: Option<Instant>,
}

impl StatementCancellation {
    /// That of a statement whose rows begin to be sent.
    pub(super) fn of(run: &PortalRows) -> Self {
        let ctx = run.ctx().cloned();
        let deadline = ctx.as_ref().map(|ctx| ctx.deadline).filter(|deadline| *deadline > Instant::now());
        Self { running: CancellationToken::new(), ctx, deadline }
    }

    /// Waits until the statement is ended.
    async fn comes(&self, text: &str) -> Trouble {
        let stopped = async {
            match &self.ctx {
                Some(ctx) => ctx.query().stopped().await,
                None => pending().await,
            }
        };
        let late = async {
            match self.deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => pending().await,
            }
        };
        tokio::select! {
            () = self.running.cancelled() => cancelled().into(),
            () = stopped => {
                let error = self.ctx.as_ref().and_then(|ctx| ctx.check("sending rows").err());
                error.map_or_else(|| cancelled().into(), |error| statement_fault(&error, text).into())
            }
            () = late => statement_fault(&Error::new(ErrorKind::Timeout, "query timed out in sending rows"), text).into(),
        }
    }
}

impl Connection {
    /// Sends rows, unless their statement is ended before the client takes them.
    pub(super) async fn send(&mut self, ending: &StatementCancellation, text: &str) -> Result<(), Trouble> {
        let ended = tokio::select! {
            biased;
            sent = self.flush() => return Ok(sent?),
            ended = ending.comes(text) => ended,
        };
        // Whoever reads on is told; the rest of a large row is not kept for that.
        Err(if self.out.len() > UNSENT_MAX { DisconnectReason::Gone.into() } else { ended })
    }
}
