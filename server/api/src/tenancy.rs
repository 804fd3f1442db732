//! One organisation per installation: a request for another tenant than 0 is refused, whatever it asks for, rather than
//! mixed with what is here. `X-Scope-OrgID` is ignored: agents send it wherever they go.

use axum::response::Response;
use http::{HeaderMap, StatusCode};

use crate::error::plain;

/// Headers that name a tenant.
const HEADERS: [&str; 2] = ["AccountID", "ProjectID"];

/// Says no to a request for another tenant.
pub(crate) fn refusal(headers: &HeaderMap) -> Option<Response> {
    for name in HEADERS {
        let values = headers.get_all(name).iter().map(|v| String::from_utf8_lossy(v.as_bytes()));
        if let Some(given) = values.into_iter().find(|v| !matches!(v.trim(), "" | "0")) {
            let shown: String = given.chars().take(100).collect();
            return Some(plain(StatusCode::BAD_REQUEST, format!("header `{name}` is `{shown}`; only `0` is served")));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants() {
        let check = |name: &'static str, value: &str, good: bool| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().expect("a value"));
            assert_eq!(refusal(&headers).is_none(), good, "{name} {value}");
        };
        check("accountid", "0", true);
        check("projectid", "", true);
        check("accountid", "1", false);
        check("projectid", "x", false);
        check("x-scope-orgid", "7", true);
    }
}
