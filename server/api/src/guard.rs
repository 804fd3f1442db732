//! Refuses browser pages of origins that are not allowed, and remote callers of what only an operator on this machine
//! may do.
//!
//! A browser on this machine can reach a server on loopback from any page. Two headers give such requests away:
//! `Origin`, which browsers send with requests that may change something, and `Host`, if the page's own name was made
//! to resolve to this machine (DNS rebinding). A proxy on this machine makes remote callers look local; the headers in
//! which it forwards their addresses give that away. A token admits callers who are meant to have access.

use std::net::{IpAddr, SocketAddr};

use axum::response::Response;
use http::uri::Authority;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};

use crate::error::plain;
use crate::live_settings::LiveSettings;
use crate::request_families::changes;

/// In which a proxy says for whom it asks.
const FORWARDED: [&str; 5] = ["forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip", "via"];

/// What is looked at of a request.
#[derive(Debug)]
pub(crate) struct GuardedRequest<'a> {
    pub(crate) live: &'a LiveSettings,
    /// Whether rights decide who acts as the operator; where one comes from says nothing then.
    pub(crate) by_rights: bool,
    pub(crate) family: usize,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) method: &'a Method,
    pub(crate) uri: &'a Uri,
    pub(crate) headers: &'a HeaderMap,
}

/// Gives the answer to a request that is refused for whom it comes from.
pub(crate) fn refused(asking: &GuardedRequest<'_>) -> Option<Response> {
    let path = asking.uri.path();
    let operators = path == "/admin" || path.starts_with("/admin/") || path.starts_with("/debug/");
    // Who turns keys ends everybody's sessions.
    if operators || path == "/platform-api/rbac/keys/rotate" {
        return if asking.by_rights { None } else { asking.admin_refused() };
    }
    if changes(asking.family, asking.method) { asking.page_refused(Wildcard::Counts) } else { None }
}

/// Says whether a proxy passed a request on.
pub(crate) fn is_forwarded(headers: &HeaderMap) -> bool {
    FORWARDED.iter().any(|name| headers.contains_key(*name))
}

fn forbidden(text: &str) -> Response {
    plain(StatusCode::FORBIDDEN, text)
}

/// What `*` among the allowed origins means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wildcard {
    /// It lets pages of any origin get data.
    Counts,
    /// What is for operators answers origins that are named.
    IsIgnored,
}

impl GuardedRequest<'_> {
    /// Calls of operators: those who bring the token, where there is one, else only this machine itself.
    fn admin_refused(&self) -> Option<Response> {
        if let Some(token) = &self.live.admin_token {
            let given = self.headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes);
            let given = given
                .and_then(|value| value.split_at_checked(7))
                .filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
            // Who brings it is let in from anywhere: no page of another site knows it.
            if given.is_some_and(|(_, guess)| token.is(guess)) {
                return None;
            }
            let mut response =
                plain(StatusCode::UNAUTHORIZED, "send the token of `http.admin_token_file` as bearer token");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            return Some(response);
        }
        if !self.is_local() {
            return Some(forbidden("this endpoint answers on loopback only; see `http.admin_token_file`"));
        }
        if let Some(name) = FORWARDED.iter().find(|name| self.headers.contains_key(**name)) {
            let text = format!("this endpoint does not answer proxies (header `{name}`); see `http.admin_token_file`");
            return Some(forbidden(&text));
        }
        if !self.host_is_known() {
            return Some(forbidden("this endpoint is not known by that name (header `Host`); see `http.hosts`"));
        }
        self.page_refused(Wildcard::IsIgnored)
    }

    /// Pages in browsers: those of other sites, unless their origin may call.
    fn page_refused(&self, wildcard: Wildcard) -> Option<Response> {
        let Some(origin) = self.headers.get(header::ORIGIN).map(HeaderValue::as_bytes) else {
            let site = self.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
            let foreign = site.is_some_and(|site| site == b"cross-site" || site == b"same-site");
            return foreign.then(|| forbidden("pages of other sites may not call this endpoint"));
        };
        let listed = |o: &String| (o == "*" && wildcard == Wildcard::Counts) || o.as_bytes() == origin;
        if self.live.cors_origins.iter().any(listed) {
            return None;
        }
        let own = std::str::from_utf8(origin).ok().and_then(|o| o.split_once("://"));
        let own =
            own.is_some_and(|(_, authority)| self.host().is_some_and(|host| host.eq_ignore_ascii_case(authority)));
        if !own {
            return Some(forbidden("this origin may not call this endpoint; see `http.cors_origins`"));
        }
        // A name that points here only while a page of its owner is open makes that page's origin look like ours.
        if (self.is_local() || !self.live.hosts.is_empty()) && !self.host_is_known() {
            return Some(forbidden("this server is not known by that name (header `Host`); see `http.hosts`"));
        }
        None
    }

    fn is_local(&self) -> bool {
        self.peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// Name and port that the request was sent to, as its sender wrote them.
    fn host(&self) -> Option<&str> {
        let header = self.headers.get(header::HOST).and_then(|host| host.to_str().ok());
        header.or_else(|| self.uri.authority().map(Authority::as_str))
    }

    /// Whether the request was sent to a name that is ours for certain.
    fn host_is_known(&self) -> bool {
        let Some(authority) = self.host().and_then(|host| host.parse::<Authority>().ok()) else { return false };
        let name = authority.host();
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        let loopback = address.is_ok_and(|ip| ip.to_canonical().is_loopback())
            || name.eq_ignore_ascii_case("localhost")
            || name.to_ascii_lowercase().ends_with(".localhost");
        loopback || self.live.hosts.iter().any(|known| known == "*" || known.eq_ignore_ascii_case(name))
    }
}

#[cfg(test)]
mod tests;
