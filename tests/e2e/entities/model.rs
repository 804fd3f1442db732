//! Random changes of every family compared with a map in memory; then the server is killed, and all acknowledged changes
//! are there. Some tens of steps per family, ten thousand with `QUIVER_SOAK`.

use std::collections::BTreeMap;

use quiver_tests::load::{seed, soak};
use quiver_tests::server::{Options, Server};
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

use crate::configuration::{call, families, numbered};

type Model = BTreeMap<String, Value>;

/// Everything of a family that users made.
async fn listed(server: &Server, path: &str) -> Model {
    let mut all = Model::new();
    let mut cursor = String::new();
    loop {
        let page = format!("{path}?limit=7&filter=managedBy%20eq%20%22api%22&sort=-createdAt{cursor}");
        let page = server.get(&page).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        let page = page.json();
        for item in page["items"].as_array().expect("a list") {
            let id = item["id"].as_str().expect("an id").to_owned();
            assert!(all.insert(id, item.clone()).is_none(), "{path}: an entity stands on two pages");
        }
        let Some(next) = page["nextCursor"].as_str() else { return all };
        cursor = format!("&cursor={next}");
    }
}

/// What a step may have changed behind the model: places of others in their order.
fn without_places(model: &Model) -> Model {
    let bare = |entity: &Value| {
        let mut bare = entity.clone();
        if let Some(map) = bare.as_object_mut() {
            map.remove("position");
        }
        bare
    };
    model.iter().map(|(id, entity)| (id.clone(), bare(entity))).collect()
}

async fn step(server: &Server, path: &str, body: &Value, model: &mut Model, rng: &mut rand::rngs::StdRng) {
    let any = model.keys().nth(rng.random_range(0..model.len().max(1))).cloned();
    let number = rng.random_range(0..30);
    let keep = |model: &mut Model, answer: &quiver_tests::server::Answer| {
        let entity = answer.json();
        model.insert(entity["id"].as_str().expect("an id").to_owned(), entity);
    };
    match (rng.random_range(0..6), any) {
        (0 | 1, _) | (_, None) => {
            let answer = call(server, "POST", path, &[], &numbered(body, number)).await;
            assert!(matches!(answer.status, 201 | 409), "{path}: {}", answer.text());
            if answer.status == 201 {
                keep(model, &answer);
            }
        }
        (2, Some(id)) => {
            let etag = format!("\"{}\"", model[&id]["version"]);
            let patch = json!({"description": format!("d{number}"), "labels": {"n": number.to_string()}});
            let answer = call(server, "PATCH", &format!("{path}/{id}"), &[("if-match", &etag)], &patch).await;
            assert_eq!(answer.status, 200, "{path}: {}", answer.text());
            keep(model, &answer);
        }
        (3, Some(id)) => {
            let answer = call(server, "PUT", &format!("{path}/{id}"), &[], &numbered(body, number)).await;
            assert!(matches!(answer.status, 200 | 409 | 422), "{path}: {}", answer.text());
            if answer.status == 200 {
                keep(model, &answer);
            }
        }
        (4, Some(id)) => {
            let stale = call(server, "DELETE", &format!("{path}/{id}"), &[("if-match", "\"0\"")], &Value::Null).await;
            assert_eq!(stale.status, 412, "{path}");
            let answer = call(server, "DELETE", &format!("{path}/{id}"), &[], &Value::Null).await;
            assert_eq!(answer.status, 204, "{path}: {}", answer.text());
            model.remove(&id);
            if number < 10 {
                let back = json!({"version": 1});
                let answer = call(server, "POST", &format!("{path}/{id}/restore"), &[], &back).await;
                assert!(matches!(answer.status, 200 | 409 | 422), "{path}: {}", answer.text());
                if answer.status == 200 {
                    keep(model, &answer);
                }
            }
        }
        (_, Some(id)) => {
            let answer = server.get(&format!("{path}/{id}")).await;
            assert_eq!(answer.status, 200, "{path}");
            assert_eq!(answer.json()["version"], model[&id]["version"], "{path}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_of_every_family() {
    let dir = tempfile::tempdir().expect("a folder");
    let seed = seed("configuration_model");
    let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
    let steps = if soak() { 10_000 } else { 30 };
    let server = Server::start(dir.path(), &Options::default()).await;
    let mut models: Vec<(&str, Model)> = Vec::new();
    for (path, body) in families() {
        let mut model = Model::new();
        for n in 0..steps {
            step(&server, path, &body, &mut model, &mut rng).await;
            if n % 10 == 9 {
                let seen = listed(&server, path).await;
                assert_eq!(without_places(&seen), without_places(&model), "seed {seed}: {path} after step {n}");
            }
        }
        models.push((path, listed(&server, path).await));
    }
    server.kill();
    let server = Server::start(dir.path(), &Options::default()).await;
    for (path, model) in models {
        assert_eq!(listed(&server, path).await, model, "seed {seed}: {path} after a kill");
    }
}
