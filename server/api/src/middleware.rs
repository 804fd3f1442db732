//! What happens around every request: id and span, refusals, tenancy, CORS, counting, the access log.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use axum::body::{Body, Bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::BodyExt;
use quiver_auth::Subject;
use quiver_ingest::logs::{KEEP_MESSAGES, MESSAGE_PREFIX, PARAMETERS};
use tracing::Instrument;

use crate::access_log::Entry;
use crate::forbidden_records::challenged;
use crate::guard::{GuardedRequest, refused};
use crate::identity::Meter;
use crate::live_settings::LiveSettings;
use crate::request_context::{ID_HEADER, RequestInfo};
use crate::request_families::family_of;
use crate::segments::active_segments;
use crate::serve::Transport;
use crate::state::AppState;
use crate::usage::RequestIntake;
use crate::{partial_responses, tenancy, unknown_parameters};

pub(crate) mod admission;
mod forbidden_records;
pub(crate) mod proxy;
pub(crate) mod security_headers;

use forbidden_records::IngestRequest;
pub use proxy::Proxies;

/// Serves a request, with everything that happens around it.
pub(crate) async fn around(State(state): State<Arc<AppState>>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let mut info = RequestInfo::of(&state.process.request_ids, &request);
    let passed = state.settings.proxies.passed(info.peer, request.headers());
    if let Some(passed) = &passed {
        // From here on the request counts as the client's: its address decides what is local, throttled, allowed and
        // logged.
        info.peer = Some(SocketAddr::new(passed.client, 0));
        info.base_url = passed.base_url.as_deref().map(Arc::from);
    }
    let live = state.live.load_full();
    let family = family_of(request.uri().path());
    let origin = request.headers().get(header::ORIGIN).cloned();
    let transport = request.extensions().get::<Transport>().cloned().unwrap_or_default();
    // Begun before anything may refuse the request: refusals are logged, too.
    let (mut entry, mut request) = if live.access_log {
        let (entry, request) = Entry::begin(&info, request);
        (Some(entry), request)
    } else {
        (None, request)
    };
    let asking = GuardedRequest {
        live: &live,
        by_rights: state.is_enforced(),
        family,
        peer: info.peer,
        method: request.method(),
        uri: request.uri(),
        headers: request.headers(),
    };
    let id = info.id_header();
    let mut refusal = refused(&asking);
    if refusal.is_none() {
        let coming = admission::AdmissionRequest {
            info: &info,
            live: &live,
            method: request.method(),
            uri: request.uri(),
            headers: request.headers(),
            route: request.extensions().get::<MatchedPath>(),
            client: transport.client.as_deref(),
        };
        match coming.admit(state.identities.as_ref(), &state.clock).await {
            Ok(admitted) => (info.identity, info.meter) = (admitted.identity, admitted.meter),
            Err(response) => refusal = Some(response),
        }
    }
    if let Some(entry) = &mut entry {
        entry.caller = info.identity.subject.text();
    }
    if let Some(meter) = info.meter.clone() {
        request = request.map(|body| metered(body, meter));
    }
    let taken = (state.metrics.usage.is_on() && !request.method().is_safe()).then(Arc::<RequestIntake>::default);
    if let Some(taken) = taken.clone() {
        info.taken = Some(Arc::clone(&taken));
        request = request.map(|body| counted(body, taken));
    }
    let path = taken.as_ref().map(|_| request.uri().path().to_owned());
    let sent = IngestRequest::of(&info, &request);
    // An answer by the rights of its caller must not be kept for others on its way.
    let caller_has_data = state.is_enforced() && info.identity.subject != Subject::Anyone;
    let mut response = match refusal.or_else(|| tenancy_refusal(request.method(), request.headers())) {
        Some(response) => response,
        None if request.method() == Method::OPTIONS => options_status(request.uri().path()).into_response(),
        None => {
            let span = info.span();
            let answer = active_segments::scope(partial_responses::tell(served(request, next)));
            let response = info.scope(answer).instrument(span).await;
            if state.is_enforced() { challenged(response) } else { response }
        }
    };
    sent.tell_refused(&state, &mut response);
    if let Some(origin) = origin {
        allow(&live, origin, response.headers_mut());
    }
    let encrypted = transport.encrypted || passed.is_some_and(|passed| passed.encrypted);
    security_headers::guard(response.headers_mut(), encrypted, caller_has_data);
    response.headers_mut().insert(ID_HEADER, id);
    state.metrics.count(family, response.status().as_u16(), began.elapsed());
    if let (Some(taken), Some(path)) = (taken, path) {
        state.metrics.usage.took(&path, &taken, state.clock.now_ms(), began.elapsed());
    }
    match entry {
        Some(entry) => entry.follow(response),
        None => response,
    }
}

/// Answers a request, or refuses it if it has a parameter that its route does not know, or a path that is no text.
async fn served(request: Request, next: Next) -> Response {
    let refusal = unknown_parameters::refusal::unreadable(&request);
    if let Some(refusal) = refusal.or_else(|| unknown_parameters::refusal::refusal(&request)) {
        return refusal;
    }
    next.run(request).await
}

/// Wraps a body to count its bytes as they arrive.
fn metered(body: Body, meter: Meter) -> Body {
    Body::new(body.map_frame(move |frame| {
        meter.bytes(frame.data_ref().map_or(0, Bytes::len));
        frame
    }))
}

/// Like [`metered`], for the statistics of received telemetry.
fn counted(body: Body, taken: Arc<RequestIntake>) -> Body {
    Body::new(body.map_frame(move |frame| {
        taken.add_bytes(frame.data_ref().map_or(0, Bytes::len));
        frame
    }))
}

/// Refuses a request for another tenant. CORS preflights carry no tenant and pass.
fn tenancy_refusal(method: &Method, headers: &HeaderMap) -> Option<Response> {
    if method == Method::OPTIONS { None } else { tenancy::refusal(headers) }
}

/// The status of an answer to `OPTIONS`. Docker's driver for Splunk asks so whether a collector is there, and takes no other
/// than 200 for a yes.
fn options_status(path: &str) -> StatusCode {
    if path.contains("/services/collector") { StatusCode::OK } else { StatusCode::NO_CONTENT }
}

/// Headers that pages of other origins may send: those of the protocols, and the parameters of log endpoints in header
/// form.
static ALLOWED_HEADERS: LazyLock<HeaderValue> = LazyLock::new(|| {
    let own = "Accept, Authorization, Content-Encoding, Content-Type, Origin, Traceparent, X-Request-Id, AccountID, \
               ProjectID, Idempotency-Key, If-Match, If-None-Match, X-Override-Managed, X-Timeout, X-Wait";
    let parameters = PARAMETERS.iter().chain([&KEEP_MESSAGES, &MESSAGE_PREFIX]).flat_map(|(_, headers)| headers);
    let all = parameters.fold(own.to_owned(), |list, header| list + ", " + header);
    HeaderValue::from_str(&all).expect("names of headers")
});

/// Headers that such pages may read.
const EXPOSED_HEADERS: &str = "Date, ETag, Idempotency-Replayed, Idempotent-Replayed, Location, Quiver-Partial, \
    Retry-After, VL-Request-Duration-Seconds, WWW-Authenticate, X-Config-Revision, X-Dry-Run, X-Quiver-Dropped, \
    X-Quiver-Refused, X-Request-Id";

/// Methods that such pages may use; writing configuration needs all of them.
const ALLOWED_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

/// Adds the CORS headers, if the origin is allowed.
fn allow(live: &LiveSettings, origin: HeaderValue, headers: &mut HeaderMap) {
    if !live.cors_origins.iter().any(|o| o == "*" || o.as_bytes() == origin.as_bytes()) {
        return;
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    // Appended, since the response may also vary by other headers, such as the encoding.
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(ALLOWED_METHODS));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS.clone());
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderName;
    use quiver_query::Limits;

    use super::*;

    /// Headers of an answer to a page of an origin, where pages of these origins may read answers.
    fn allowed(origins: &[&str], origin: &'static str) -> HeaderMap {
        let live = LiveSettings {
            query_limits: Limits::default(),
            logs_timeout: Duration::from_secs(1),
            slow_query: Duration::from_secs(1),
            cors_origins: origins.iter().map(|origin| (*origin).to_owned()).collect(),
            hosts: Vec::new(),
            docs_public: false,
            access_log: false,
            admin_token: None,
            listed: Vec::new(),
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
        allow(&live, HeaderValue::from_static(origin), &mut headers);
        headers
    }

    #[test]
    fn pages_of_named_origins_read_answers() {
        const PAGE: &str = "https://grafana.example";
        for origins in [&[PAGE][..], &["https://other.example", PAGE][..], &["*"][..]] {
            let headers = allowed(origins, PAGE);
            // The origin itself: what names a caller is sent with it.
            assert_eq!(headers[header::ACCESS_CONTROL_ALLOW_ORIGIN], PAGE, "{origins:?}");
            let vary: Vec<_> = headers.get_all(header::VARY).into_iter().collect();
            assert_eq!(vary, ["Accept-Encoding", "Origin"], "{origins:?}");
        }
        assert_eq!(allowed(&[], PAGE).len(), 1, "no page may");
        for other in ["https://grafana", "https://grafana.example:3000", "http://grafana.example", "https://*"] {
            assert_eq!(allowed(&[other], PAGE).len(), 1, "{other}");
        }
    }

    #[test]
    fn lists_for_pages_are_of_headers_and_methods() {
        let headers = allowed(&["*"], "https://a.example");
        for list in [header::ACCESS_CONTROL_ALLOW_HEADERS, header::ACCESS_CONTROL_EXPOSE_HEADERS] {
            let names: Vec<&str> = headers[&list].to_str().unwrap().split(", ").collect();
            assert!(names.len() > 10, "{list}: {names:?}");
            for name in names {
                assert!(HeaderName::try_from(name).is_ok(), "{list}: `{name}`");
            }
        }
        for method in headers[header::ACCESS_CONTROL_ALLOW_METHODS].to_str().unwrap().split(", ") {
            let known = [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
            assert!(known.iter().any(|m| m.as_str() == method) || method == "OPTIONS", "`{method}`");
        }
    }
}
