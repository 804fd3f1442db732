//! Bulk changes of accounts have the same rules and effects as single ones; so do repeated requests, for the caller who
//! made them.

use quiver_tests::server::Server;
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, made, signed_in, user, with_password};
use crate::json_calls::call;

const TOKEN: &str = "/realms/platform/protocol/openid-connect/token";

/// What a session is worth: the answers to its access token, and to its refresh token.
async fn worth(server: &Server, session: &Value) -> (u16, u16) {
    let me = call(server, &bearer(session), "GET", "/platform-api/rbac/me", &Value::Null).await;
    let refresh = session["refresh_token"].as_str().expect("a token");
    let form = format!("grant_type=refresh_token&client_id=ui&refresh_token={refresh}");
    let headers = [("content-type", "application/x-www-form-urlencoded")];
    (me.status, server.post(TOKEN, &headers, form.into_bytes()).await.status)
}

/// A session is over once its user was disabled, deleted or given another password, also if that is undone later.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    user(&server, &admin, "bystander", "viewer", Value::Null).await;
    let bystander = login(&server, "bystander", PASSWORD).await;
    for (n, what) in ["password", "disable", "import", "delete", "ids"].into_iter().enumerate() {
        let name = format!("user-{n}");
        let made = user(&server, &admin, &name, "viewer", Value::Null).await;
        let session = login(&server, &name, PASSWORD).await;
        let (id, users) = (made["id"].as_str().expect("an id"), "/platform-api/rbac/users");
        let on = |enabled: bool| json!({"ids": [id], "patch": {"enabled": enabled}});
        let (update, back) = (format!("{users}/bulk-update"), format!("{users}/{id}/restore"));
        let one = |item: Value| json!({"items": [item]});
        let (method, path, body, undo) = match what {
            "password" => {
                let item = json!({"id": id, "username": name, "password": "another horse battery"});
                ("PUT", users.to_owned(), one(item), None)
            }
            "disable" => ("POST", update.clone(), on(false), Some((update, on(true)))),
            "import" => {
                let item = json!({"id": id, "username": name, "enabled": false});
                ("POST", format!("{users}/import"), one(item), Some((update, on(true))))
            }
            "delete" => {
                ("POST", format!("{users}/bulk-delete"), json!({"ids": [id]}), Some((back, json!({"version": 1}))))
            }
            _ => ("DELETE", format!("{users}?ids={id}"), Value::Null, Some((back, json!({"version": 1})))),
        };
        let done = call(&server, &admin, method, &path, &body).await;
        assert_eq!(done.status, 200, "{what}: {}", done.text());
        if let Some((path, body)) = undo {
            let undone = call(&server, &admin, "POST", &path, &body).await;
            assert_eq!(undone.status, 200, "{what}: {}", undone.text());
        }
        assert_eq!(worth(&server, &session).await, (401, 400), "{what}");
    }
    assert_eq!(worth(&server, &bystander).await, (200, 200));
}

/// A repeated request is answered as before to who made it: a key that may do little is not given the secret that its owner
/// was shown.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_repeated_to_their_own() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = Server::start(dir.path(), &with_password()).await;
    let admin = signed_in(&server, "admin").await;
    let me = call(&server, &admin, "GET", "/platform-api/rbac/me", &Value::Null).await.json();
    let path = format!("users/{}/keys", me["subject"]["id"].as_str().expect("an id"));
    let weak = made(&server, &admin, &path, json!({"name": "weak", "permissions": ["{ingest, logs, *}"]})).await;
    let weak = format!("Bearer {}", weak["key"].as_str().expect("a key"));
    let make = async |who: &str, name: &str, once: &str| {
        let headers = [("authorization", who), ("content-type", "application/json"), ("idempotency-key", once)];
        let body = json!({"name": name}).to_string().into_bytes();
        server.post(&format!("/platform-api/rbac/{path}"), &headers, body).await
    };
    let first = make(&admin, "strong", "k").await;
    assert_eq!(first.status, 201, "{}", first.text());
    let refused = make(&weak, "strong", "k").await;
    assert_eq!((refused.status, refused.json().get("key").cloned()), (409, None), "{}", refused.text());
    let refused = make(&weak, "another", "l").await;
    assert_eq!((refused.status, refused.json().get("key").cloned()), (403, None), "{}", refused.text());
    let again = make(&admin, "strong", "k").await;
    assert_eq!((again.status, again.json()["key"].clone()), (201, first.json()["key"].clone()));
}
