//! Authentication and authorization of a request: done before its body is read, and before routing answers 404
//! (`identity-and-access` 1.4).

use std::sync::Arc;

use axum::extract::MatchedPath;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use quiver_auth::{Identity, Request as Asking, RequestCredentials, TokenError};
use quiver_types::time::Clock;
use quiver_types::{Error, ErrorKind};
use serde_json::json;
use tonic::{Code, Status};

use crate::forbidden_records::{self, needs};
use crate::grpc_call::come_back;
use crate::guard::is_forwarded;
use crate::identity::anonymous::{ANYONE, NOBODY};
use crate::identity::{Identities, Meter, Refusal, RequestOrigin};
use crate::live_settings::LiveSettings;
use crate::otlp_form::OtlpForm;
use crate::request_context::RequestInfo;
use crate::rights::{RequiredRight, need};

/// The parts of a request that admission looks at.
pub(super) struct AdmissionRequest<'a> {
    pub(super) info: &'a RequestInfo,
    pub(super) live: &'a LiveSettings,
    pub(super) method: &'a Method,
    pub(super) uri: &'a Uri,
    pub(super) headers: &'a HeaderMap,
    pub(super) route: Option<&'a MatchedPath>,
    /// The name in the client certificate of its connection.
    pub(super) client: Option<&'a str>,
}

/// An admitted caller.
pub(super) struct AdmittedCaller {
    pub(super) identity: Arc<Identity>,
    /// Counts the telemetry that the caller sends, if that is limited.
    pub(super) meter: Option<Meter>,
}

impl AdmittedCaller {
    fn plain(identity: &Arc<Identity>) -> Self {
        Self { identity: Arc::clone(identity), meter: None }
    }
}

/// Why a request is not admitted.
enum NotAdmitted {
    Token(TokenError),
    /// The key is above its rate: seconds to wait, and what is told.
    Rate(u64, &'static str),
    /// The missing right, as a triple.
    Right(String),
}

impl NotAdmitted {
    /// The seconds after which the same request may be admitted, if that is all that it takes.
    fn wait_s(&self) -> Option<u64> {
        match self {
            Self::Token(TokenError::TooMany(after_s)) | Self::Rate(after_s, _) => Some(*after_s),
            _ => None,
        }
    }
}

/// What Basic credentials may be: who tries those of a user learns why they are not taken.
const BASIC_TAKES: &str = "the credentials are not valid: Basic takes a key as password, or a service account's id and \
    secret, and passwords of users only with `auth.basic_passwords`";
/// What analytics takes: who shows it a key that is good elsewhere learns why it is not taken.
const ANALYTICS_TAKES: &str = "the token is not valid: analytics takes access tokens, and keys or credentials of service \
    accounts only with `auth.olap_api_keys`";
/// Which settings say how much a key may ask, and how much it may send.
const ASKS_TOO_OFTEN: &str = "this key asks more often than `rbac.key_requests_per_second` allows";
const SENDS_TOO_MUCH: &str =
    "this key sends more than `rbac.key_ingest_bytes_per_second` or `rbac.key_ingest_records_per_second` allows";

impl AdmissionRequest<'_> {
    /// Identifies and authorizes the caller.
    ///
    /// # Errors
    /// The response that refuses the request.
    pub(super) async fn admit(
        &self,
        identities: Option<&Arc<Identities>>,
        clock: &Arc<dyn Clock>,
    ) -> Result<AdmittedCaller, Response> {
        let Some(identities) = identities.filter(|i| i.enforced) else { return Ok(AdmittedCaller::plain(&ANYONE)) };
        // A CORS preflight request has no credentials, and its response contains no data.
        if self.method == Method::OPTIONS {
            return Ok(AdmittedCaller::plain(&NOBODY));
        }
        // That a path does not exist is told only to callers who have identified themselves.
        let need = match self.route {
            Some(route) => need(self.method, route.as_str()),
            None => Some(need_of_nothing(self.uri.path())),
        };
        self.identify(identities, need, clock).await.map_err(|no| self.refusal(no, need))
    }

    async fn identify(
        &self,
        identities: &Arc<Identities>,
        need: Option<RequiredRight>,
        clock: &Arc<dyn Clock>,
    ) -> Result<AdmittedCaller, NotAdmitted> {
        let is_local = self.info.peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback());
        match need {
            Some(RequiredRight::Public) => return Ok(AdmittedCaller::plain(&NOBODY)),
            Some(RequiredRight::Docs) if self.live.docs_public => return Ok(AdmittedCaller::plain(&NOBODY)),
            Some(RequiredRight::OwnMetrics) if is_local && !is_forwarded(self.headers) => {
                return Ok(AdmittedCaller::plain(&NOBODY));
            }
            _ => {}
        }
        if let Some(operator) = self.operator() {
            return Ok(AdmittedCaller { identity: operator, meter: None });
        }
        let values = self.headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
        // The matched route and not the path: below other intakes the sender chooses a part of the path, which may
        // look like one of the SaaS intake.
        let place = self.route.map_or(self.uri.path(), MatchedPath::as_str);
        let mut keys = self.headers.get_all("dd-api-key").iter().filter(|_| is_saas(place)).map(HeaderValue::as_bytes);
        let (saas, another) = (keys.next(), keys.next());
        let issuer = identities.issuer_of(self.info);
        let asking = Asking { issuer: &issuer, ip: self.info.peer.map(|peer| peer.ip()) };
        let shown = if another.is_none() { RequestCredentials::read(values, saas) } else { Err(TokenError::Invalid) };
        let shown = shown.map_err(NotAdmitted::Token)?;
        let identity = match (&shown, self.client) {
            // Credentials in the request take precedence over the certificate of the connection.
            (RequestCredentials::Nothing, Some(name)) => identities.auth.identify_certificate(name),
            _ => identities.auth.identify(&shown, asking).await,
        };
        let identity = identity.map_err(NotAdmitted::Token)?;
        if self.route.is_some_and(|route| route.as_str().starts_with("/olap-api/")) {
            identities.auth.may_ask_analytics(&identity).map_err(NotAdmitted::Token)?;
        }
        let Some(need) = need else {
            tracing::error!(route = self.route.map(MatchedPath::as_str), "a route has no row in the table of rights");
            return Err(NotAdmitted::Right("{admin, system, *}".to_owned()));
        };
        let now_ms = clock.now_ms();
        let meter = if need.is_ingest() {
            identities.take_ingest_turn(&identity, clock).map_err(|wait_s| NotAdmitted::Rate(wait_s, SENDS_TOO_MUCH))?
        } else {
            identities.take_turn(&identity, now_ms).map_err(|wait_s| NotAdmitted::Rate(wait_s, ASKS_TOO_OFTEN))?;
            None
        };
        match need.missing(&identity.rights) {
            None => Ok(AdmittedCaller { identity: Arc::new(identity), meter }),
            Some(triple) => {
                identities.note_refusal(Refusal {
                    identity: &identity,
                    origin: RequestOrigin::of(self.info),
                    method: self.method,
                    route: self.route.map_or("", MatchedPath::as_str),
                    ingest: need.is_ingest(),
                    now_ms,
                });
                Err(NotAdmitted::Right(triple.to_string()))
            }
        }
    }

    /// The identity of the operator's secret for `/admin`, if the request carries it.
    fn operator(&self) -> Option<Arc<Identity>> {
        let token = self.live.admin_token.as_ref().filter(|_| self.uri.path().starts_with("/admin/"))?;
        let mut values = self.headers.get_all(header::AUTHORIZATION).iter();
        let given = values.next()?.as_bytes().split_at_checked(7)?;
        let right = given.0.eq_ignore_ascii_case(b"bearer ") && token.is(given.1) && values.next().is_none();
        right.then(|| Arc::new(Identity::operator()))
    }

    /// Makes the response to a refused request, in the form that clients of the path expect.
    fn refusal(&self, no: NotAdmitted, need: Option<RequiredRight>) -> Response {
        let (status, code, detail) = match &no {
            NotAdmitted::Token(error @ TokenError::TooMany(_)) => {
                (StatusCode::TOO_MANY_REQUESTS, error.code(), error.to_string())
            }
            NotAdmitted::Rate(_, text) => (StatusCode::TOO_MANY_REQUESTS, "RATE_LIMITED", (*text).to_owned()),
            NotAdmitted::Token(error @ TokenError::Invalid)
                if self.uri.path().starts_with("/olap-api/") && !self.is_jwt() =>
            {
                (StatusCode::UNAUTHORIZED, error.code(), ANALYTICS_TAKES.to_owned())
            }
            NotAdmitted::Token(error @ TokenError::Invalid) if self.is_basic() => {
                (StatusCode::UNAUTHORIZED, error.code(), BASIC_TAKES.to_owned())
            }
            NotAdmitted::Token(error) => (StatusCode::UNAUTHORIZED, error.code(), error.to_string()),
            NotAdmitted::Right(triple) => (StatusCode::FORBIDDEN, "FORBIDDEN", needs(triple)),
        };
        let path = self.uri.path();
        let mut response = self.body(status, code, &detail, &no);
        let headers = response.headers_mut();
        if let Some(after_s) = no.wait_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(after_s));
            return response;
        }
        if let Some(bearer) = forbidden_records::challenge(code) {
            headers.append(header::WWW_AUTHENTICATE, bearer);
        }
        let basic =
            need.is_some_and(|need| need.asks_for_basic(path)) && matches!(no, NotAdmitted::Token(TokenError::Missing));
        if basic {
            headers.append(header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Basic realm="platform""#));
        }
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        response
    }

    /// Whether what is shown looks like an access token: those begin with `{"` in base64.
    fn is_jwt(&self) -> bool {
        let token = self.headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().get("Bearer ".len()..));
        token.is_some_and(|token| token.starts_with(b"eyJ"))
    }

    fn is_basic(&self) -> bool {
        let scheme = self.headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().get(..6));
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"basic "))
    }

    fn body(&self, status: StatusCode, code: &'static str, detail: &str, no: &NotAdmitted) -> Response {
        let path = self.uri.path();
        let of_type = |kind: &'static str| [(header::CONTENT_TYPE, HeaderValue::from_static(kind))];
        let content_type = self.headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let named = format!("{code}: {detail}");
        if content_type.starts_with(b"application/grpc") || path.starts_with("/opentelemetry.proto.") {
            return grpc_status(no, &named).into_http::<axum::body::Body>();
        }
        let otlp = path.starts_with("/v1/") || path.starts_with("/insert/opentelemetry/");
        if otlp || path.starts_with("/metrics-api/api/v1/otlp/") {
            let is_json = content_type.starts_with(b"application/json");
            let form = if is_json { OtlpForm::Json } else { OtlpForm::Protobuf };
            return (status, of_type(form.content_type()), form.status(&refused_as(no, named))).into_response();
        }
        if path.starts_with("/metrics-api/") {
            let kind = match status {
                StatusCode::FORBIDDEN => "forbidden",
                StatusCode::TOO_MANY_REQUESTS => "unavailable",
                _ => "unauthorized",
            };
            let body = json!({"status": "error", "errorType": kind, "error": detail, "code": code});
            return (status, of_type("application/json"), body.to_string()).into_response();
        }
        if path.starts_with("/realms/") {
            let error = match status {
                StatusCode::FORBIDDEN => "insufficient_scope",
                StatusCode::TOO_MANY_REQUESTS => "slow_down",
                _ => "invalid_token",
            };
            let body = json!({"error": error, "error_description": detail, "code": code});
            return (status, of_type("application/json"), body.to_string()).into_response();
        }
        if is_search_engine(path) {
            return crate::logs_ingest::search_engine_refusal(status, code, detail, self.info.id());
        }
        let body = forbidden_records::body(status, code, detail, self.info.id());
        (status, of_type(forbidden_records::problem_type(path)), body).into_response()
    }
}

/// The gRPC status of a refusal. A caller above its rate is told when to come back, as OTLP senders want it, and not
/// that its credentials are the problem: a sender drops data that is refused for that.
fn grpc_status(no: &NotAdmitted, text: &str) -> Status {
    match no {
        NotAdmitted::Token(TokenError::TooMany(after_s)) | NotAdmitted::Rate(after_s, _) => come_back(text, *after_s),
        NotAdmitted::Token(_) => Status::new(Code::Unauthenticated, text),
        NotAdmitted::Right(_) => Status::new(Code::PermissionDenied, text),
    }
}

fn refused_as(no: &NotAdmitted, text: String) -> Error {
    let kind = match no {
        NotAdmitted::Token(TokenError::TooMany(_)) | NotAdmitted::Rate(..) => ErrorKind::LimitExceeded,
        NotAdmitted::Token(_) => ErrorKind::Unauthenticated,
        NotAdmitted::Right(_) => ErrorKind::Forbidden,
    };
    Error::new(kind, text)
}

/// Who may learn that a path does not exist: anybody, below what is public (web pages too, if there were any). Paths of
/// the token service are, except where its routes require something.
fn need_of_nothing(path: &str) -> RequiredRight {
    let below = ["/ui/", "/realms/", "/health/", "/-/", "/metrics-api/-/"];
    match path {
        "/" | "/ui" => RequiredRight::Public,
        path if below.iter().any(|base| path.starts_with(*base)) => RequiredRight::Public,
        path if path.starts_with("/rulesapi/swagger/") => RequiredRight::Docs,
        _ => RequiredRight::Anyone,
    }
}

/// Whether a path belongs to the search engine API.
fn is_search_engine(path: &str) -> bool {
    ["/searchengine", "/elasticsearch"].iter().any(|name| path.contains(name)) && path.contains("insert/")
}

/// Whether a path belongs to the SaaS intake, whose agents send their key in a header of their own.
fn is_saas(path: &str) -> bool {
    let bare = matches!(path, "/api/v2/logs" | "/api/v1/validate");
    bare || ["/saas/", "/datadog/"].iter().any(|name| path.contains(name)) && path.contains("insert/")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An unidentified caller learns nothing about the data below other paths.
    #[test]
    fn pages_and_the_token_service_are_public() {
        for path in ["/", "/ui", "/ui/x", "/realms/x", "/health/x", "/metrics-api/-/x", "/-/x"] {
            assert_eq!(need_of_nothing(path), RequiredRight::Public, "{path}");
        }
        assert_eq!(need_of_nothing("/rulesapi/swagger/x"), RequiredRight::Docs);
        for path in
            ["", "/uix", "/realms", "/api/v2/alerts", "/config", "//", "/x/ui/", "/metrics-api/realms/", "/healthz"]
        {
            assert_eq!(need_of_nothing(path), RequiredRight::Anyone, "{path}");
        }
    }

    /// Each intake answers in the form that its agents read, and takes the key from the header that they send.
    #[test]
    fn intakes_are_told_apart_by_their_paths() {
        for (path, search_engine, saas) in [
            ("/insert/elasticsearch/_bulk", true, false),
            ("/logs-api/insert/searchengine/_bulk", true, false),
            ("/insert/saas/api/v2/logs", false, true),
            ("/logs-api/insert/datadog/api/v2/logs", false, true),
            ("/api/v2/logs", false, true),
            ("/api/v1/validate", false, true),
            ("/api/v2/spans", false, false),
            ("/insert/jsonline", false, false),
            ("/insert/aggregator/api/v1/push", false, false),
            ("/insert/saas", false, false),
            ("/searchengine/_search", false, false),
            ("/logs-api/datadog/", false, false),
        ] {
            assert_eq!((is_search_engine(path), is_saas(path)), (search_engine, saas), "{path}");
        }
    }

    fn live() -> LiveSettings {
        LiveSettings {
            query_limits: quiver_query::Limits::default(),
            logs_timeout: std::time::Duration::from_secs(1),
            slow_query: std::time::Duration::from_secs(1),
            cors_origins: Vec::new(),
            hosts: Vec::new(),
            docs_public: false,
            access_log: false,
            admin_token: Some(crate::live_settings::Token::new("s3cret")),
            listed: Vec::new(),
        }
    }

    /// Runs a check on a request with this path and these headers.
    fn with<T>(path: &str, headers: &[(&'static str, &str)], work: impl FnOnce(&AdmissionRequest<'_>) -> T) -> T {
        let mut request = http::Request::post(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (head, ()) = request.body(()).unwrap().into_parts();
        let info = RequestInfo::of(
            &crate::request_context::RequestIds::default(),
            &http::Request::from_parts(head.clone(), ()),
        );
        let live = live();
        work(&AdmissionRequest {
            info: &info,
            live: &live,
            method: &head.method,
            uri: &head.uri,
            headers: &head.headers,
            route: None,
            client: None,
        })
    }

    /// Returns status, content type, challenges and body of a refusal.
    async fn refused(
        path: &str,
        headers: &[(&'static str, &str)],
        no: NotAdmitted,
        need: Option<RequiredRight>,
    ) -> (u16, String, Vec<String>, String) {
        let response = with(path, headers, |coming| coming.refusal(no, need));
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let kind = response.headers().get(header::CONTENT_TYPE).map(text).unwrap_or_default();
        let asked = response.headers().get_all(header::WWW_AUTHENTICATE).iter().map(text).collect();
        let (status, after) = (response.status().as_u16(), response.headers().contains_key(header::RETRY_AFTER));
        assert_eq!(after, status == 429, "{path}");
        assert!(after || response.headers()[header::CACHE_CONTROL] == "no-store", "{path}");
        let body = http_body_util::BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        (status, kind, asked, String::from_utf8_lossy(&body).into_owned())
    }

    #[tokio::test]
    async fn refusals_have_the_form_of_their_path() {
        for (path, kind, at, code) in [
            ("/logs-api/select/logsql/query", "application/problem+json", "/code", "TOKEN_INVALID"),
            ("/platform-api/rbac/users", "application/problem+json", "/code", "TOKEN_INVALID"),
            ("/api/v2/alerts", "application/json", "/code", "TOKEN_INVALID"),
            ("/metrics-api/api/v1/query", "application/json", "/errorType", "unauthorized"),
            ("/realms/platform/userinfo", "application/json", "/error", "invalid_token"),
        ] {
            let (status, found, asked, body) = refused(path, &[], NotAdmitted::Token(TokenError::Invalid), None).await;
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, found.as_str(), body.pointer(at)), (401, kind, Some(&json!(code))), "{path}");
            assert_eq!(asked, [r#"Bearer realm="platform", error="invalid_token""#], "{path}");
        }
        let right = || NotAdmitted::Right("{view, logs, *}".to_owned());
        for (path, at, code) in [
            ("/logs-api/select/logsql/query", "/required", "{view, logs, *}"),
            ("/metrics-api/api/v1/query", "/errorType", "forbidden"),
            ("/realms/platform/userinfo", "/error", "insufficient_scope"),
        ] {
            let (status, _, asked, body) = refused(path, &[], right(), None).await;
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, body.pointer(at)), (403, Some(&json!(code))), "{path}");
            assert_eq!(asked, [r#"Bearer realm="platform", error="insufficient_scope""#], "{path}");
        }
        for (path, at, code) in [
            ("/logs-api/select/logsql/query", "/code", "RATE_LIMITED"),
            ("/metrics-api/api/v1/query", "/errorType", "unavailable"),
            ("/realms/platform/userinfo", "/error", "slow_down"),
        ] {
            let (status, _, asked, body) = refused(path, &[], NotAdmitted::Token(TokenError::TooMany(7)), None).await;
            let body: serde_json::Value = serde_json::from_str(&body).unwrap();
            assert_eq!((status, body.pointer(at), asked.len()), (429, Some(&json!(code)), 0), "{path}");
            // Of a key: which setting it is that bounds it, and not attempts, as there are of passwords.
            let (status, _, asked, body) = refused(path, &[], NotAdmitted::Rate(7, ASKS_TOO_OFTEN), None).await;
            assert!(body.contains("`rbac.key_requests_per_second`") && body.contains("RATE_LIMITED"), "{path}: {body}");
            assert_eq!((status, asked.len()), (429, 0), "{path}");
        }
    }

    #[tokio::test]
    async fn what_basic_credentials_may_be_is_told() {
        let told = async |value: &'static str| {
            let headers = [("authorization", value)];
            refused("/metrics-api/api/v1/query", &headers, NotAdmitted::Token(TokenError::Invalid), None).await.3
        };
        assert!(told("Basic YWRtaW46bm8=").await.contains("only with `auth.basic_passwords`"));
        assert!(told("basic YWRtaW46bm8=").await.contains("a key as password"));
        assert!(told("Bearer qvk_x").await.contains("the token is not valid"));
    }

    #[tokio::test]
    async fn who_shows_analytics_a_key_learns_what_it_takes() {
        let told = async |path: &'static str, value: &'static str| {
            let headers = [("authorization", value)];
            refused(path, &headers, NotAdmitted::Token(TokenError::Invalid), None).await.3
        };
        for value in ["Bearer qvk_x", "Basic YWRtaW46bm8=", "ApiKey YTpi"] {
            assert!(told("/olap-api/v1/load", value).await.contains("`auth.olap_api_keys`"), "{value}");
        }
        for (path, value) in [("/olap-api/v1/load", "Bearer eyJhbGciOiJSUzI1NiJ9.x.y"), ("/traces", "Bearer qvk_x")] {
            assert!(!told(path, value).await.contains("auth.olap_api_keys"), "{path}");
        }
    }

    #[tokio::test]
    async fn senders_of_otlp_are_told_in_their_form() {
        for (path, headers, kind) in [
            ("/v1/logs", &[][..], "application/x-protobuf"),
            ("/v1/traces", &[("content-type", "application/json; charset=utf-8")], "application/json"),
            ("/insert/opentelemetry/v1/logs", &[("content-type", "application/x-protobuf")], "application/x-protobuf"),
            ("/metrics-api/api/v1/otlp/v1/metrics", &[], "application/x-protobuf"),
            ("/metrics-api/api/v1/otlp/v1/metrics", &[("content-type", "application/json")], "application/json"),
        ] {
            let (status, found, _, body) = refused(path, headers, NotAdmitted::Token(TokenError::Missing), None).await;
            assert_eq!((status, found.as_str()), (401, kind), "{path}");
            assert!(body.contains("TOKEN_MISSING: this needs a token"), "{path}: {body}");
        }
        for (path, headers) in [
            ("/opentelemetry.proto.collector.logs.v1.LogsService/Export", &[][..]),
            ("/anything", &[("content-type", "application/grpc+proto")]),
        ] {
            let response = with(path, headers, |coming| coming.refusal(NotAdmitted::Token(TokenError::Expired), None));
            // gRPC reports an error in the trailers; here they are part of the head.
            assert_eq!(response.status().as_u16(), 200, "{path}");
            assert_eq!(response.headers()["grpc-status"], "16", "{path}");
            let response = with(path, headers, |coming| coming.refusal(NotAdmitted::Right("{x}".to_owned()), None));
            assert_eq!(response.headers()["grpc-status"], "7", "{path}");
            let response =
                with(path, headers, |coming| coming.refusal(NotAdmitted::Token(TokenError::TooMany(3)), None));
            assert_eq!(response.headers()["grpc-status"], "14", "{path}");
            assert_eq!(response.headers()["retry-after"], "3", "{path}");
            let response = with(path, headers, |coming| coming.refusal(NotAdmitted::Rate(3, SENDS_TOO_MUCH), None));
            assert_eq!(response.headers()["grpc-status"], "14", "{path}");
            assert_eq!(response.headers()["retry-after"], "3", "{path}");
        }
    }

    /// Clients that only know Basic are challenged for it if they sent no credentials; for others a browser would
    /// open a login window.
    #[tokio::test]
    async fn basic_is_asked_for_where_it_helps() {
        let ingest = RequiredRight::Has(quiver_types::Right::Ingest, quiver_types::Domain::Logs);
        let view = RequiredRight::Has(quiver_types::Right::View, quiver_types::Domain::Metrics);
        for (path, need, error, expected) in [
            ("/insert/jsonline", Some(ingest), TokenError::Missing, true),
            ("/metrics-api/api/v1/query", Some(view), TokenError::Missing, true),
            ("/metrics-api/api/v1/query", Some(view), TokenError::Invalid, false),
            ("/metrics-api/api/v1/query", Some(view), TokenError::Expired, false),
            ("/metrics-api/api/v1/query", None, TokenError::Missing, false),
            ("/olap-api/v1/load", Some(view), TokenError::Missing, false),
        ] {
            let (_, _, asked, _) = refused(path, &[], NotAdmitted::Token(error), need).await;
            assert!(asked[0].starts_with("Bearer "), "{asked:?}");
            assert_eq!(
                asked.get(1).map(String::as_str),
                expected.then_some(r#"Basic realm="platform""#),
                "{path} {error}"
            );
        }
    }

    #[test]
    fn the_operator_shows_one_secret_below_admin() {
        let is_operator = |path: &str, values: &[&str]| {
            let headers: Vec<(&'static str, &str)> = values.iter().map(|value| ("authorization", *value)).collect();
            with(path, &headers, |coming| coming.operator().is_some())
        };
        for value in ["Bearer s3cret", "bearer s3cret", "BEARER s3cret"] {
            assert!(is_operator("/admin/reload", &[value]), "{value}");
        }
        for value in ["Bearer s3cre", "Bearer s3crets", "Bearer  s3cret", "Basic s3cret", "s3cret", "Bearer", ""] {
            assert!(!is_operator("/admin/reload", &[value]), "{value}");
        }
        assert!(!is_operator("/admin/reload", &[]));
        assert!(
            !is_operator("/admin/reload", &["Bearer s3cret", "Bearer s3cret"]),
            "which one counts would be a guess"
        );
        for path in ["/admin", "/administer/x", "/metrics", "/x/admin/reload"] {
            assert!(!is_operator(path, &["Bearer s3cret"]), "{path}");
        }
    }
}
