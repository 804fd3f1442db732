//! Reports records that a sender has no right to write: to the sender in the response, and in the audit log.

use std::sync::atomic::Ordering::Relaxed;

use axum::extract::{MatchedPath, Request};
use axum::response::Response;
use http::{HeaderName, HeaderValue, Method};

use crate::forbidden_records::HEADER;
use crate::identity::{Refusal, RequestOrigin};
use crate::request_context::RequestInfo;
use crate::state::AppState;

/// Header with the numbers of records that were not taken for other reasons than rights, by reason.
const DROPPED: HeaderName = HeaderName::from_static("x-quiver-dropped");

/// An ingest request while it is served.
pub(super) struct IngestRequest {
    info: RequestInfo,
    method: Method,
    route: Option<MatchedPath>,
}

impl IngestRequest {
    pub(super) fn of(info: &RequestInfo, request: &Request) -> Self {
        let route = request.extensions().get::<MatchedPath>().cloned();
        Self { info: info.clone(), method: request.method().clone(), route }
    }

    /// Adds the numbers of dropped and of refused records to the response, and notes the latter in the audit log.
    pub(super) fn tell_refused(self, state: &AppState, response: &mut Response) {
        if let Some(dropped) = self.info.dropped() {
            response.headers_mut().insert(DROPPED, dropped.clone());
        }
        let refused = self.info.refused().load(Relaxed);
        if refused == 0 {
            return;
        }
        response.headers_mut().insert(HEADER, HeaderValue::from(refused));
        if let Some(identities) = &state.identities {
            identities.note_refusal(Refusal {
                identity: &self.info.identity,
                origin: RequestOrigin::of(&self.info),
                method: &self.method,
                route: self.route.as_ref().map_or("", MatchedPath::as_str),
                ingest: true,
                now_ms: state.clock.now_ms(),
            });
        }
    }
}
