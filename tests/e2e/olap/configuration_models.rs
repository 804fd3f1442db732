//! Built-in models over receivers, silences and the audit log, and their tables, for whoever may see them.

use quiver_tests::server::{Answer, Server};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, user, with_password};

async fn ask(server: &Server, who: &str, method: &str, path: &str, body: &Value) -> Answer {
    let headers = [("authorization", who), ("content-type", "application/json")];
    server.send(method, path, &headers, body.to_string().into_bytes()).await
}

async fn load(server: &Server, who: &str, query: Value) -> Value {
    let answer = ask(server, who, "POST", "/olap-api/v1/load", &json!({ "query": query })).await;
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    answer.json()["data"].take()
}

async fn silence(server: &Server, who: &str, service: &str, hours: i64) {
    let now = chrono::Utc::now();
    let body = json!({
        "matchers": [{"name": "service_name", "value": service, "isRegex": false, "isEqual": true}], "createdBy": "ann",
        "comment": format!("work on {service}"), "startsAt": now.to_rfc3339(),
        "endsAt": (now + chrono::TimeDelta::hours(hours)).to_rfc3339(),
    });
    let answer = ask(server, who, "POST", "/api/v2/silences", &body).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test(flavor = "multi_thread")]
async fn receivers_silences_and_the_audit_log_have_rows() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let hook = json!({"name": "ops", "webhook_configs": [{"url": "https://hooks.example.com/a"}]});
    let made = ask(&server, &admin, "POST", "/rulesapi/rulepolicy/receivers", &hook).await;
    assert_eq!(made.status, 201, "{}", made.text());
    silence(&server, &admin, "shop", 2).await;
    silence(&server, &admin, "pay", 24 * 8).await;
    let receivers = json!({
        "dimensions": ["Receivers.receiver", "Receivers.integrationTypes", "Receivers.usedByRoutes"],
        "measures": ["Receivers.count", "Receivers.unusedCount", "Receivers.failingCount"],
        "filters": [{"member": "Receivers.receiver", "operator": "equals", "values": ["ops"]}],
    });
    assert_eq!(
        load(&server, &admin, receivers).await,
        json!([{
            "Receivers.receiver": "ops", "Receivers.integrationTypes": "webhook", "Receivers.usedByRoutes": "0",
            "Receivers.count": "1", "Receivers.unusedCount": "1", "Receivers.failingCount": "0",
        }])
    );
    let silences = || {
        json!({
            "dimensions": ["Silences.service", "Silences.state", "Silences.comment"],
            "measures": ["Silences.count", "Silences.longLivedCount", "Silences.silencedAlerts"],
            "segments": ["Silences.active"], "order": {"Silences.service": "asc"},
        })
    };
    let row = |service: &str, long: &str| {
        json!({
            "Silences.service": service, "Silences.state": "active", "Silences.comment": format!("work on {service}"),
            "Silences.count": "1", "Silences.longLivedCount": long, "Silences.silencedAlerts": "0",
        })
    };
    // Numbers of a sum come as texts or numbers, by their type.
    let plain = |rows: Value| -> Value {
        let mut rows = rows;
        for row in rows.as_array_mut().into_iter().flatten() {
            let of = &mut row["Silences.silencedAlerts"];
            *of = of.as_i64().map_or_else(|| of.clone(), |n| json!(n.to_string()));
        }
        rows
    };
    assert_eq!(plain(load(&server, &admin, silences()).await), json!([row("pay", "1"), row("shop", "0")]));
    let audit = json!({
        "dimensions": ["AuditLog.actor", "AuditLog.action", "AuditLog.outcome", "AuditLog.entityName"],
        "measures": ["AuditLog.count", "AuditLog.deniedCount"],
        "filters": [
            {"member": "AuditLog.family", "operator": "equals", "values": ["receivers"]},
            // The server itself makes the first policy.
            {"member": "AuditLog.actor", "operator": "notEquals", "values": ["system"]},
        ],
    });
    assert_eq!(
        load(&server, &admin, audit).await,
        json!([{
            "AuditLog.actor": "admin", "AuditLog.action": "create", "AuditLog.outcome": "success",
            "AuditLog.entityName": "ops", "AuditLog.count": "1", "AuditLog.deniedCount": "0",
        }])
    );
    // A failed login is one.
    let form = b"grant_type=password&client_id=ui&username=admin&password=wrong".to_vec();
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    server.post("/realms/platform/protocol/openid-connect/token", &headers, form).await;
    let failed = load(&server, &admin, json!({"measures": ["AuditLog.failedLoginCount"]})).await;
    assert_eq!(failed, json!([{"AuditLog.failedLoginCount": "1"}]));
    // A caller of one service sees silences of that service; what belongs to none is for a caller who sees all.
    user(&server, &admin, "shop", "viewer", json!(["shop"])).await;
    let shop = bearer(&login(&server, "shop", PASSWORD).await);
    assert_eq!(plain(load(&server, &shop, silences()).await), json!([row("shop", "0")]));
    for (statement, expected) in [
        ("SELECT count(*) AS n FROM silences", Some("{\"n\":1}")),
        ("SELECT count(*) AS n FROM receivers", Some("{\"n\":0}")),
    ] {
        let path = format!("/sql-api/v1/query?format=ndjson&query={}", statement.replace(' ', "+"));
        let answer = server.send("GET", &path, &[("authorization", shop.as_str())], Vec::new()).await;
        assert_eq!((answer.status, Some(answer.text().trim())), (200, expected), "{statement}");
    }
}

/// What somebody did himself he sees: here, that he came in. Nobody else gets it as an answer to the same question.
#[tokio::test(flavor = "multi_thread")]
async fn who_sees_not_all_of_the_audit_log_sees_what_he_did() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    user(&server, &admin, "shop", "viewer", json!(["shop"])).await;
    let shop = bearer(&login(&server, "shop", PASSWORD).await);
    let own = || json!({"dimensions": ["AuditLog.actor", "AuditLog.action"], "measures": ["AuditLog.count"]});
    let row = |name: &str| json!([{"AuditLog.actor": name, "AuditLog.action": "login", "AuditLog.count": "1"}]);
    assert_eq!(load(&server, &shop, own()).await, row("shop"));
    user(&server, &admin, "twin", "viewer", json!(["shop"])).await;
    let twin = bearer(&login(&server, "twin", PASSWORD).await);
    assert_eq!(load(&server, &twin, own()).await, row("twin"));
    let path = "/sql-api/v1/query?format=ndjson&query=SELECT+actor,+action+FROM+audit_log";
    let answer = server.send("GET", path, &[("authorization", twin.as_str())], Vec::new()).await;
    assert_eq!((answer.status, answer.text().trim()), (200, "{\"actor\":\"twin\",\"action\":\"LOGIN\"}"));
    // A caller who sees nothing of domain `audit` is told of no such model.
    let role = json!({"name": "logs", "permissions": ["{view, logs, shop}"]});
    let made = ask(&server, &admin, "POST", "/platform-api/rbac/roles", &role).await;
    assert_eq!(made.status, 201, "{}", made.text());
    user(&server, &admin, "reader", "logs", json!(["shop"])).await;
    let reader = bearer(&login(&server, "reader", PASSWORD).await);
    let refused = ask(&server, &reader, "POST", "/olap-api/v1/load", &json!({"query": own()})).await;
    assert_eq!((refused.status, refused.json()["reason"].clone()), (400, json!("UNKNOWN_MODEL")), "{}", refused.text());
}
