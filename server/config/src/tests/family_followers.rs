//! Pictures of families that follow their changes.

use std::sync::atomic::AtomicUsize;

use super::*;

#[tokio::test]
async fn pictures_follow_by_reading_what_changed() {
    let fx = fixture().await;
    fx.admin().await;
    let mut ids = Vec::new();
    // More than are read at once.
    for n in 0..7 {
        ids.push(fx.create(&GROUPS, json!({"name": format!("g{n}")})).await.unwrap().id);
    }
    let (mut followed, made) = (FamilyCache::default(), AtomicUsize::new(0));
    let make = |entity: Entity| {
        made.fetch_add(1, SeqCst);
        entity.text("name").to_owned()
    };
    let names = |followed: &FamilyCache<String>| {
        let mut names: Vec<String> = followed.values().cloned().collect();
        names.sort_unstable();
        names.join(" ")
    };
    assert!(fx.config.follow(&GROUPS, &mut followed, make).await.unwrap());
    assert_eq!((names(&followed).as_str(), made.swap(0, SeqCst)), ("g0 g1 g2 g3 g4 g5 g6", 7));
    // Changes of others concern nobody.
    fx.create(&USERS, json!({"username": "other", "password": "secret"})).await.unwrap();
    assert!(!fx.config.follow(&GROUPS, &mut followed, make).await.unwrap());
    assert_eq!(made.swap(0, SeqCst), 0);
    fx.op(&GROUPS, delete(&ids[1])).await.unwrap();
    assert!(fx.config.follow(&GROUPS, &mut followed, make).await.unwrap());
    assert_eq!((followed.get(&ids[1]), made.swap(0, SeqCst)), (None, 0));
    fx.op(&GROUPS, patch(&ids[0], json!({"name": "new"}))).await.unwrap();
    fx.create(&GROUPS, json!({"name": "g7"})).await.unwrap();
    assert!(fx.config.follow(&GROUPS, &mut followed, make).await.unwrap());
    assert_eq!((names(&followed).as_str(), made.swap(0, SeqCst)), ("g2 g3 g4 g5 g6 g7 new", 2));
    assert_eq!(followed.get(&ids[0]).map(String::as_str), Some("new"));
    // Many at once are read with all others.
    for id in &ids[2..5] {
        fx.op(&GROUPS, patch(id, json!({"name": format!("x{id}")}))).await.unwrap();
    }
    assert!(fx.config.follow(&GROUPS, &mut followed, make).await.unwrap());
    assert_eq!((followed.values().filter(|name| name.starts_with('x')).count(), made.load(SeqCst)), (3, 7));
}
