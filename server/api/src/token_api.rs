//! The token service (`identity-and-access` section 1), with the paths and responses that clients of Keycloak expect.

use std::sync::Arc;

use axum::Router;
use axum::extract::{RawQuery, Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use quiver_auth::{
    Auth, AuthEvent, FORM_BYTES_MAX, Form, OAuthError, Request as Asking, RequestCredentials, SigningKeys,
};
use serde_json::{Value, json};

use crate::body_memory::read_unpacked;
use crate::error::plain;
use crate::handlers::boxed;
use crate::identity::{Identities, RequestOrigin};
use crate::request_context::RequestInfo;
use crate::state::AppState;

mod cookie;

use cookie::Ui;

const REALM: &str = "/realms/platform";

/// Routes of this family.
pub(crate) fn routes() -> Router<Arc<AppState>> {
    let at = |path: &str| format!("{REALM}/protocol/openid-connect/{path}");
    Router::new()
        .route(REALM, get(boxed(realm)))
        .route(&format!("{REALM}/.well-known/openid-configuration"), get(boxed(discovery)))
        .route(&at("certs"), get(boxed(certs)))
        .route(&at("token"), post(boxed(token)))
        .route(&at("userinfo"), get(boxed(userinfo)).post(boxed(userinfo)))
        .route(&at("token/introspect"), post(boxed(introspect)))
        .route(&at("revoke"), post(boxed(revoke)))
        .route(&at("logout"), post(boxed(logout)).get(boxed(logout_by_link)))
}

fn answer(status: u16, body: &Value) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers =
        [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "no-store"), (header::PRAGMA, "no-cache")];
    (status, headers, body.to_string()).into_response()
}

fn refused(refused: &OAuthError) -> Response {
    let mut response = answer(refused.status, &refused.body());
    let headers = response.headers_mut();
    if refused.error == "invalid_client" {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(r#"Basic realm="platform""#));
    }
    if let Some(after_s) = refused.retry_after_s {
        headers.insert(header::RETRY_AFTER, HeaderValue::from(after_s));
    }
    response
}

/// Access control is off, and accounts could not be opened.
fn off() -> Response {
    plain(StatusCode::NOT_FOUND, "access control is off, and there are no accounts")
}

fn public(state: &AppState, body: impl FnOnce(&Identities) -> Value) -> Response {
    let Some(identities) = &state.identities else { return off() };
    let headers = [(header::CONTENT_TYPE, "application/json"), (header::CACHE_CONTROL, "public, max-age=300")];
    (headers, body(identities).to_string()).into_response()
}

/// Answers with what needs the signing keys; 503 while they cannot be made.
async fn with_keys(state: &AppState, body: impl FnOnce(&Identities, &SigningKeys) -> Value) -> Response {
    let Some(identities) = &state.identities else { return off() };
    match identities.auth.signing_keys().await {
        Ok(keys) => public(state, |identities| body(identities, keys)),
        Err(error) => {
            tracing::error!(cause = error.source.as_ref().map(ToString::to_string), "{error}");
            plain(StatusCode::SERVICE_UNAVAILABLE, "the signing keys cannot be made: the database does not answer")
        }
    }
}

async fn realm(State(state): State<Arc<AppState>>) -> Response {
    with_keys(&state, |i, keys| Auth::realm(keys, &i.issuer_here())).await
}

async fn discovery(State(state): State<Arc<AppState>>) -> Response {
    public(&state, |i| Auth::discovery(&i.issuer_here()))
}

async fn certs(State(state): State<Arc<AppState>>) -> Response {
    with_keys(&state, |_, keys| keys.jwks()).await
}

async fn userinfo(State(state): State<Arc<AppState>>, headers: HeaderMap) -> Response {
    let Some(identities) = &state.identities else { return off() };
    if identities.enforced {
        return answer(200, &identities.auth.userinfo(&state.identity()));
    }
    // Nobody asked at the door: the token is for this path then.
    let values = headers.get_all(header::AUTHORIZATION).iter().map(HeaderValue::as_bytes);
    let ip = RequestInfo::current().and_then(|info| info.peer).map(|peer| peer.ip());
    let who = match RequestCredentials::read(values, None) {
        Ok(shown) => identities.auth.identify(&shown, Asking { issuer: &identities.issuer_here(), ip }).await,
        Err(error) => Err(error),
    };
    match who {
        Ok(identity) => answer(200, &identities.auth.userinfo(&identity)),
        Err(error) => {
            let body = json!({"error": "invalid_token", "error_description": error.to_string(), "code": error.code()});
            let mut response = answer(401, &body);
            let challenge = HeaderValue::from_static(r#"Bearer realm="platform", error="invalid_token""#);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
            response
        }
    }
}

/// A form of a client, and what stands around it.
struct TokenRequest {
    identities: Arc<Identities>,
    form: Form,
    authorization: Option<Vec<u8>>,
    origin: RequestOrigin,
    issuer: String,
    /// Where it is the web interface that asks.
    ui: Option<Ui>,
}

impl TokenRequest {
    async fn read(state: &Arc<AppState>, request: Request) -> Result<Self, Response> {
        let Some(identities) = state.identities.clone() else { return Err(off()) };
        let no = |text: &str| refused(&OAuthError::request(text));
        let (head, body) = request.into_parts();
        let kind = head.headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            return Err(no("Send application/x-www-form-urlencoded"));
        }
        let body = read_unpacked(&state.capacity.bodies, &head.headers, body, FORM_BYTES_MAX).await;
        let body = body.map_err(|error| match error.kind {
            quiver_types::ErrorKind::TooLarge => refused(&OAuthError::too_large()),
            quiver_types::ErrorKind::Unavailable => refused(&OAuthError::unavailable()),
            _ => no("The body cannot be read"),
        })?;
        let mut form = Form::parse(&body).map_err(|no| refused(&no))?;
        let authorization = one_authorization(&head.headers).map_err(|()| no("Two Authorization headers"))?;
        let origin = RequestInfo::current().as_ref().map(RequestOrigin::of).unwrap_or_default();
        let issuer = identities.issuer_here().into_owned();
        let ui = Ui::of(&head.headers, &issuer);
        let reads_cookie = head.uri.path().ends_with("/logout") || form.get("grant_type") == Some("refresh_token");
        if let Some(ui) = ui.as_ref().filter(|_| reads_cookie) {
            ui.complete(&mut form);
        }
        Ok(Self { identities, form, authorization, origin, issuer, ui })
    }

    fn asking(&self) -> Asking<'_> {
        Asking { issuer: &self.issuer, ip: self.origin.ip }
    }

    async fn note(&self, happened: Option<AuthEvent>) {
        if let Some(happened) = happened {
            self.identities.note(happened, &self.origin).await;
        }
    }

    /// The answer to what was refused, noted where it belongs into the audit log.
    async fn no(&self, no: OAuthError) -> Response {
        // Floods of guesses must not flood the log: those that are answered 429 are counted by their status.
        if no.status != 429 {
            self.note(no.happened.as_deref().cloned()).await;
        }
        refused(&no)
    }
}

fn one_authorization(headers: &HeaderMap) -> Result<Option<Vec<u8>>, ()> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let first = values.next().map(|v| v.as_bytes().to_vec());
    if values.next().is_some() { Err(()) } else { Ok(first) }
}

async fn token(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let sent = match TokenRequest::read(&state, request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    match sent.identities.auth.token(&sent.form, sent.authorization.as_deref(), sent.asking()).await {
        Ok(mut given) => {
            sent.note(given.happened).await;
            let cookie = sent.ui.as_ref().and_then(|_| Ui::keep(&mut given.body));
            let mut response = answer(200, &given.body);
            response.headers_mut().extend(cookie.map(|value| (header::SET_COOKIE, value)));
            response
        }
        Err(no) => sent.no(no).await,
    }
}

async fn introspect(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let sent = match TokenRequest::read(&state, request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    match sent.identities.auth.introspect(&sent.form, sent.authorization.as_deref(), sent.asking()).await {
        Ok(body) => answer(200, &body),
        Err(no) => sent.no(no).await,
    }
}

async fn revoke(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let sent = match TokenRequest::read(&state, request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    match sent.identities.auth.revoke(&sent.form, sent.asking()).await {
        Ok(happened) => {
            sent.note(happened).await;
            answer(200, &json!({}))
        }
        Err(no) => sent.no(no).await,
    }
}

async fn logout(State(state): State<Arc<AppState>>, request: Request) -> Response {
    let sent = match TokenRequest::read(&state, request).await {
        Ok(sent) => sent,
        Err(response) => return response,
    };
    match sent.identities.auth.logout(&sent.form).await {
        Ok(happened) => {
            sent.note(happened).await;
            let mut response = StatusCode::NO_CONTENT.into_response();
            if sent.ui.is_some() {
                Ui::forget(&mut response);
            }
            response
        }
        Err(no) => sent.no(no).await,
    }
}

/// A browser follows a link: the id token says which session ends.
async fn logout_by_link(State(state): State<Arc<AppState>>, RawQuery(query): RawQuery) -> Response {
    let Some(identities) = &state.identities else { return off() };
    let link = match Form::parse(query.unwrap_or_default().as_bytes()) {
        Ok(link) => link,
        Err(no) => return refused(&no),
    };
    let Some(hint) = link.get("id_token_hint") else {
        return refused(&OAuthError::request("Missing parameter: id_token_hint"));
    };
    match identities.auth.end_of_hint(hint, &identities.issuer_here()).await {
        Ok(happened) => {
            if let Some(happened) = happened {
                let origin = RequestInfo::current().as_ref().map(RequestOrigin::of).unwrap_or_default();
                identities.note(happened, &origin).await;
            }
            StatusCode::NO_CONTENT.into_response()
        }
        Err(no) => refused(&no),
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    #[tokio::test]
    async fn refusals_say_how_to_ask_again() {
        for (no, status, challenge, retry) in [
            (OAuthError::client(), 401, Some(r#"Basic realm="platform""#), None),
            // Not the client is wrong: no other credentials of it help.
            (OAuthError::user(), 401, None, None),
            (OAuthError::request("why"), 400, None, None),
            (OAuthError::slow_down(7), 429, None, Some("7")),
        ] {
            let response = refused(&no);
            let shown =
                |name: header::HeaderName| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
            assert_eq!(response.status().as_u16(), status, "{no:?}");
            assert_eq!(shown(header::WWW_AUTHENTICATE).as_deref(), challenge, "{no:?}");
            assert_eq!(shown(header::RETRY_AFTER).as_deref(), retry, "{no:?}");
            assert_eq!(shown(header::CACHE_CONTROL).as_deref(), Some("no-store"), "{no:?}");
            let body = response.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(serde_json::from_slice::<Value>(&body).unwrap(), no.body());
        }
        assert_eq!(answer(0, &json!({})).status(), StatusCode::INTERNAL_SERVER_ERROR, "it is no status");
    }

    #[test]
    fn a_request_has_one_authorization() {
        let mut headers = HeaderMap::new();
        assert_eq!(one_authorization(&headers), Ok(None));
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Basic YTpi"));
        assert_eq!(one_authorization(&headers), Ok(Some(b"Basic YTpi".to_vec())));
        headers.append(header::AUTHORIZATION, HeaderValue::from_static("Bearer b"));
        assert_eq!(one_authorization(&headers), Err(()));
    }
}
