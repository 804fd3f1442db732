//! A master key that is lost, or another one: a server says so, and neither starts nor changes anything.

use std::path::Path;
use std::process::Command;

use quiver_testpg::Postgres;
use quiver_tests::server::{Options, Server, binary, over_given_database, run};
use serde_json::{Value, json};

use crate::identity::{PASSWORD, bearer, login, with_password};
use crate::json_calls::{asked, call};

/// What a start that is refused says.
fn refused(data: &Path, options: &Options) -> String {
    let log = data.with_extension("log");
    let _ = std::fs::remove_file(&log);
    // It may say where it listens before it comes to the key.
    let started = Server::spawn(data, &options.clone().log_to(&log)).map(|mut server| server.ended().code());
    let said = std::fs::read_to_string(&log).expect("a log");
    assert!(matches!(started, None | Some(Some(1))), "{started:?}: {said}");
    said
}

fn forget(data: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(binary());
    command.args(["admin", "forget-secrets", "--data"]).arg(data);
    over_given_database(&mut command, data);
    run(&mut command)
}

/// Stores a receiver with a secret; gives its path.
async fn receiver(server: &Server, who: &str) -> String {
    let body = json!({"name": "pager", "webhook_configs": [{"url": "http://user:s3cret@192.0.2.1/x"}]});
    let made = call(server, who, "POST", "/rulesapi/rulepolicy/receivers", &body).await;
    assert_eq!(made.status, 201, "{}", made.text());
    format!("/rulesapi/rulepolicy/receivers/{}", made.json()["id"].as_str().expect("an id"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_one_is_refused_until_the_secrets_are_given_up() {
    let dir = tempfile::tempdir().expect("a folder");
    let data = dir.path().join("data");
    let (file, options) = (data.join("master-key"), with_password());
    let server = Server::start(&data, &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let path = receiver(&server, &admin).await;
    let (code, _, said) = forget(&data);
    assert!(code == Some(1) && said.contains("the server runs"), "{said}");
    assert_eq!(server.stop(), Some(0));
    let right = std::fs::read(&file).expect("a key");
    std::fs::write(&file, [7; 32]).expect("writable");
    let said = refused(&data, &options);
    assert!(said.contains("is not the one") && said.contains("quiver admin forget-secrets"), "{said}");
    std::fs::remove_file(&file).expect("there");
    let said = refused(&data, &options);
    assert!(said.contains("is missing") && said.contains("auth.master_key_file"), "{said}");
    assert!(!file.exists(), "no new one is made that opens nothing");
    // The right one opens everything, and nothing is given up with it.
    std::fs::write(&file, &right).expect("writable");
    let (code, out, said) = forget(&data);
    assert!(code == Some(0) && out.contains("gave up 0 secrets and 0 signing keys"), "{out}{said}");
    let server = Server::start(&data, &options).await;
    // Its address is another one, and with it the issuer of tokens.
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let kept = asked(&server, &admin, "GET", &path, &Value::Null).await;
    let unchanged = json!({"name": "pager", "webhook_configs": kept["webhook_configs"]});
    assert_eq!(call(&server, &admin, "PUT", &path, &unchanged).await.status, 200);
    assert_eq!(server.stop(), Some(0));
    // The master key is lost.
    std::fs::remove_file(&file).expect("there");
    let (code, out, said) = forget(&data);
    assert!(code == Some(0) && !out.contains("gave up 0 ") && !out.contains(" and 0 "), "{out}{said}");
    let server = Server::start(&data, &options).await;
    let admin = bearer(&login(&server, "admin", PASSWORD).await);
    let again = call(&server, &admin, "PUT", &path, &unchanged).await;
    assert_eq!((again.status, &again.json()["errors"][0]["code"]), (422, &json!("REQUIRED")), "{}", again.text());
    let anew = json!({"name": "pager", "webhook_configs": [{"url": "http://user:new@192.0.2.1/x"}]});
    assert_eq!(call(&server, &admin, "PUT", &path, &anew).await.status, 200);
    let noted = "/platform-api/rbac/audit?action=SECRETS_FORGOTTEN";
    let noted = asked(&server, &admin, "GET", noted, &Value::Null).await;
    assert_eq!(noted["items"].as_array().map(Vec::len), Some(1), "{noted}");
    assert_eq!(server.stop(), Some(0));
    std::fs::write(&file, &right).expect("writable");
    assert!(refused(&data, &options).contains("is not the one"), "the old one came too late");
}

/// Without access control there are no signing keys that a start would open.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_of_receivers_alone_need_the_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let (data, options) = (dir.path().join("data"), Options::default());
    let server = Server::start(&data, &options).await;
    receiver(&server, "").await;
    assert_eq!(server.stop(), Some(0));
    std::fs::write(data.join("master-key"), [7; 32]).expect("writable");
    assert!(refused(&data, &options).contains("is not the one"));
}

/// Breaks if two servers over one database start with different keys: each would encrypt secrets under its own.
#[tokio::test(flavor = "multi_thread")]
async fn servers_over_one_database_have_one_key() {
    let dir = tempfile::tempdir().expect("a folder");
    let postgres = Postgres::start();
    let options = Options::default().env("QUIVER_CONFIG__DATABASE_URL", postgres.create("quiver"));
    let (one, two) = (dir.path().join("one"), dir.path().join("two"));
    let server = Server::start(&one, &options).await;
    let said = refused(&two, &options);
    assert!(said.contains("is missing") && said.contains("two/master-key"), "{said}");
    std::fs::create_dir_all(&two).expect("a folder");
    std::fs::write(two.join("master-key"), [7; 32]).expect("writable");
    assert!(refused(&two, &options).contains("is not the one"));
    std::fs::copy(one.join("master-key"), two.join("master-key")).expect("a key");
    assert_eq!(Server::start(&two, &options).await.stop(), Some(0));
    assert_eq!(server.stop(), Some(0));
}
