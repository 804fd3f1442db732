//! The session of the web interface: its refresh token is in a cookie that scripts cannot read (`identity-and-access`
//! section 7).
//!
//! The cookie is set and used only for requests with a certain header from a page of our own origin, and only refresh
//! and logout read it. Pages of other sites cannot send these headers, so the cookie is of no use to them.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use quiver_auth::Form;
use serde_json::Value;

/// The prefix `__Host-` restricts it to this host, all paths, and TLS (or loopback).
const NAME: &str = "__Host-qv_rt";
const MARK: HeaderName = HeaderName::from_static("x-quiver-ui");

/// A request of the web interface.
#[derive(Debug)]
pub(super) struct Ui {
    cookie: Option<String>,
}

impl Ui {
    /// Reads the headers of a request; `None` if it is not from the web interface. `issuer` is our own URL in tokens.
    pub(super) fn of(headers: &HeaderMap, issuer: &str) -> Option<Self> {
        let one = |name: &HeaderName| {
            let mut values = headers.get_all(name).iter();
            values.next().filter(|_| values.next().is_none())
        };
        let own = url::Url::parse(issuer).ok()?.origin().ascii_serialization();
        let ours = one(&MARK)?.as_bytes() == b"1" && one(&header::ORIGIN)?.as_bytes() == own.as_bytes();
        ours.then(|| Self { cookie: cookie(headers) })
    }

    /// Adds the token of the cookie to a form without one.
    pub(super) fn complete(&self, form: &mut Form) {
        if let Some(token) = self.cookie.as_ref().filter(|_| form.get("refresh_token").is_none()) {
            form.put("refresh_token", token);
        }
    }

    /// Moves the refresh token from a response to a cookie. Returns the `Set-Cookie` header.
    pub(super) fn keep(body: &mut Value) -> Option<HeaderValue> {
        let life_s = body.get("refresh_expires_in").and_then(Value::as_i64).unwrap_or_default();
        let token = body.as_object_mut()?.remove("refresh_token")?;
        HeaderValue::try_from(set(token.as_str()?, life_s)).ok()
    }

    /// Deletes the cookie in the browser.
    pub(super) fn forget(response: &mut Response) {
        let gone = HeaderValue::try_from(set("", 0)).expect("ASCII");
        response.headers_mut().append(header::SET_COOKIE, gone);
    }
}

fn set(token: &str, life_s: i64) -> String {
    format!("{NAME}={token}; Path=/; Max-Age={life_s}; HttpOnly; Secure; SameSite=Strict")
}

/// The token in the cookie; `None` if there are two, since choosing one would be a guess.
fn cookie(headers: &HeaderMap) -> Option<String> {
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = lines.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == NAME).map(|(_, value)| value);
    let value = values.next().filter(|value| !value.is_empty())?;
    values.next().is_none().then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ISSUER: &str = "https://quiver.example/realms/platform";

    fn ui(headers: &[(&'static str, &str)]) -> Option<Ui> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        }
        Ui::of(&map, ISSUER)
    }

    #[test]
    fn only_pages_of_our_own() {
        let (mark, origin) = (("x-quiver-ui", "1"), ("origin", "https://quiver.example"));
        assert!(ui(&[mark, origin]).is_some());
        for headers in [
            &[mark][..],
            &[origin],
            &[("x-quiver-ui", "0"), origin],
            &[mark, ("origin", "null")],
            &[mark, ("origin", "http://quiver.example")],
            &[mark, ("origin", "https://quiver.example:8443")],
            &[mark, ("origin", "https://quiver.example.evil.example")],
            &[mark, origin, origin],
            &[mark, mark, origin],
        ] {
            assert!(ui(headers).is_none(), "{headers:?}");
        }
    }

    #[test]
    fn cookies() {
        let check = |lines: &[&str], expected: Option<&str>| {
            let mut headers = vec![("x-quiver-ui", "1"), ("origin", "https://quiver.example")];
            headers.extend(lines.iter().map(|line| ("cookie", *line)));
            let mut form = Form::parse(b"grant_type=refresh_token").unwrap();
            ui(&headers).unwrap().complete(&mut form);
            assert_eq!(form.get("refresh_token"), expected, "{lines:?}");
            let mut own = Form::parse(b"refresh_token=own").unwrap();
            ui(&headers).unwrap().complete(&mut own);
            assert_eq!(own.get("refresh_token"), Some("own"));
        };
        check(&["__Host-qv_rt=qvr_1"], Some("qvr_1"));
        check(&["a=b; __Host-qv_rt=qvr_1; c=d"], Some("qvr_1"));
        check(&["a=b", "__Host-qv_rt=qvr_1"], Some("qvr_1"));
        check(&["qv_rt=qvr_1"], None);
        check(&["__Host-qv_rt=1; __Host-qv_rt=2"], None);
        check(&["__Host-qv_rt="], None);
        check(&[], None);
    }

    #[test]
    fn answers() {
        let mut body = json!({"access_token": "a", "refresh_token": "qvr_1", "refresh_expires_in": 1800});
        let header = Ui::keep(&mut body).unwrap();
        assert_eq!(header, "__Host-qv_rt=qvr_1; Path=/; Max-Age=1800; HttpOnly; Secure; SameSite=Strict");
        assert_eq!(body, json!({"access_token": "a", "refresh_expires_in": 1800}));
        assert_eq!(Ui::keep(&mut body), None);
    }
}
