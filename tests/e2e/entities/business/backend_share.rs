//! The share of browser transactions' time that the back end spent on their calls.

use super::*;

/// A span of a trace, some milliseconds after the beginning.
struct Part {
    trace: u8,
    id: u8,
    parent: u8,
    name: &'static str,
    kind: u8,
    from_ms: i64,
    ms: i64,
}

/// What each trace is about.
const PAGES: [&str; 3] = ["cart", "api", "help"];
/// The clock of the back end is an hour ahead of the browser's.
const AHEAD_MS: i64 = 3_600_000;

async fn send_parts(server: &Server, who: &str, began_ns: i64, of: &[(&str, &[Part])]) {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let span = |part: &Part| {
        let at = |ms: i64| (began_ns + ms * 1_000_000).to_string();
        let id = |number: u8| if number == 0 { String::new() } else { format!("{number:016x}") };
        json!({"traceId": format!("{:032x}", part.trace), "spanId": id(part.id), "parentSpanId": id(part.parent),
            "name": part.name, "kind": part.kind, "startTimeUnixNano": at(part.from_ms),
            "endTimeUnixNano": at(part.from_ms + part.ms),
            "attributes": [text("http.method", "GET"),
                text("http.url", &format!("https://shop.example/{}", PAGES[usize::from(part.trace) - 1]))]})
    };
    let resource = |(service, parts): &(&str, &[Part])| {
        let language = if *service == "shop-web" { "webjs" } else { "rust" };
        let attributes = json!([text("service.name", service), text("telemetry.sdk.language", language)]);
        json!({"resource": {"attributes": attributes}, "scopeSpans": [{"spans": parts.iter().map(span).collect::<Value>()}]})
    };
    let body = json!({"resourceSpans": of.iter().map(resource).collect::<Value>()});
    let sent = call(server, who, "POST", "/v1/traces", &body).await;
    assert_eq!(sent.status, 200, "{}", sent.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_back_end_has_a_share_of_transactions() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let (admin, ann) = restricted(&server, "shop-web").await;
    for kind in ["pageLoad", "xhr"] {
        let rule = json!({"name": kind, "application": "shop-web", "kind": kind, "nameTemplate": "{kind} {url.path}",
            "condition": {"field": "url.path", "op": "exists"}});
        made(&server, &admin, "/rum-bt-detection-rules", rule).await;
    }
    let part = |trace, id, parent, name, kind, from_ms, ms| Part { trace, id, parent, name, kind, from_ms, ms };
    let browser = [
        // Of these calls two are served at one time, and one beyond the end of the load.
        part(1, 1, 0, "documentLoad", 1, 0, 1000),
        part(1, 2, 1, "documentFetch", 1, 100, 200),
        part(1, 3, 1, "resourceFetch", 1, 150, 300),
        part(1, 4, 1, "resourceFetch", 1, 900, 400),
        part(2, 5, 0, "HTTP GET", 3, 0, 100),
        part(3, 6, 0, "documentLoad", 1, 0, 500),
    ];
    let back = [
        part(1, 12, 2, "GET", 2, AHEAD_MS, 100),
        part(1, 13, 3, "GET", 2, AHEAD_MS, 200),
        part(1, 14, 4, "GET", 2, AHEAD_MS, 300),
        part(1, 15, 12, "GET", 2, AHEAD_MS, 50),
        part(2, 16, 5, "GET", 2, AHEAD_MS, 40),
    ];
    let began = now_ns() - 60_000_000_000;
    send_parts(&server, &admin, began, &[("shop-web", &browser[..]), ("front", &back[..])]).await;
    let member = |name: &str| format!("RumBusinessTransactions.{name}");
    let query = json!({"dimensions": [member("btName")], "measures": [member("count"), member("backendShare")],
        "order": {member("btName"): "asc"}});
    let shares = async |who: &str| -> Vec<Value> {
        let rows = load(&server, who, query.clone()).await;
        rows.iter().map(|row| json!([row[member("btName")], row[member("backendShare")]])).collect()
    };
    assert_eq!(
        shares(&admin).await,
        [json!(["pageLoad /cart", 0.3]), json!(["pageLoad /help", null]), json!(["xhr /api", 0.4])]
    );
    // Who does not see the back end is told nothing of it.
    assert_eq!(shares(&ann).await, ["pageLoad /cart", "pageLoad /help", "xhr /api"].map(|name| json!([name, null])));
}
