//! An installation serves one organisation: requests for another tenant than 0 are refused rather than mixed with its
//! data. `X-Scope-OrgID` is ignored, since agents send it to every server.

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

    #[test]
    fn every_value_of_a_header_counts() {
        let refused = |values: &[&[u8]]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("accountid", http::HeaderValue::from_bytes(value).expect("a value"));
            }
            refusal(&headers).map(|response| response.status())
        };
        assert_eq!(refused(&[]), None);
        for good in ["0", "", " 0 ", "\t"] {
            assert_eq!(refused(&[good.as_bytes(), b"0"]), None, "{good:?}");
        }
        for wrong in ["1", "00", "-0", "0,0", "0 1", "ä"] {
            assert_eq!(refused(&[b"0", wrong.as_bytes()]), Some(StatusCode::BAD_REQUEST), "{wrong:?}");
        }
        assert_eq!(refused(&[&[0xff]]), Some(StatusCode::BAD_REQUEST), "what is no text is no tenant");
    }

    #[tokio::test]
    async fn what_is_repeated_is_short() {
        use http_body_util::BodyExt as _;

        let mut headers = HeaderMap::new();
        headers.insert("projectid", http::HeaderValue::from_bytes("é".repeat(5000).as_bytes()).expect("a value"));
        let body = refusal(&headers).expect("it is refused").into_body().collect().await.expect("a body").to_bytes();
        let expected = format!("header `ProjectID` is `{}`; only `0` is served\n", "é".repeat(100));
        assert_eq!(body, expected);
    }
}
