//! Random changes against a map in memory, then the same after the database was opened anew.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};

use super::*;

#[tokio::test]
async fn random_changes() {
    for seed in 0..3_u64 {
        let fx = fixture().await;
        fx.admin().await;
        let mut rng = rand::rngs::StdRng::seed_from_u64(seed);
        let mut model: BTreeMap<String, (String, i64)> = BTreeMap::new();
        for step in 0..300 {
            let name = format!("n{}", rng.random_range(0..12));
            let any = model.keys().nth(rng.random_range(0..model.len().max(1))).cloned();
            let taken = |id: Option<&String>| model.iter().any(|(other, (n, _))| *n == name && Some(other) != id);
            match (rng.random_range(0..4), any) {
                (0 | 1, _) | (_, None) => {
                    let made = fx.create(&GROUPS, json!({"name": name})).await;
                    assert_eq!(made.is_err(), taken(None), "seed {seed} step {step}");
                    model.extend(made.ok().map(|e| (e.id, (name, 1))));
                }
                (2, Some(id)) => {
                    let done = fx.op(&GROUPS, patch(&id, json!({"name": name}))).await;
                    assert_eq!(done.is_err(), taken(Some(&id)), "seed {seed} step {step}");
                    if let Ok(done) = done {
                        let version = model[&id].1 + i64::from(done.changed);
                        model.insert(id, (name, version));
                    }
                }
                (_, Some(id)) => {
                    fx.op(&GROUPS, delete(&id)).await.unwrap();
                    model.remove(&id);
                }
            }
            let page = fx.list(&GROUPS, &[("sort", "createdAt"), ("limit", "1000")]).await.unwrap();
            let text = |i: &Map<String, Value>, key: &str| i[key].as_str().unwrap().to_owned();
            let seen: BTreeMap<_, _> =
                page.items.iter().map(|i| (text(i, "id"), (text(i, "name"), i["version"].as_i64().unwrap()))).collect();
            assert_eq!(seen, model, "seed {seed} step {step}");
        }
        assert_eq!(fx.config.audit_verify().await.unwrap().broken_at, None);
    }
}
