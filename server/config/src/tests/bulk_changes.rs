//! Changes of many: what names what among them, and what one that fails leaves behind.

use super::*;
use crate::families::{CI_SUBCLASSES, RECEIVERS, ROOT_ROUTE_ID, ROUTES, TIME_INTERVALS};

fn ids(entities: &[&Entity]) -> Vec<String> {
    entities.iter().map(|entity| entity.id.clone()).collect()
}

/// What is to go together goes, in whichever order it is named; what fails is taken back and noted, and the rest stands.
#[tokio::test]
async fn what_is_named_goes_with_what_names_it() {
    let fx = fixture().await;
    let system = Caller::system();
    let class = async |key: &str, parent: Option<&Entity>| {
        let body = json!({"key": key, "name": key, "parentId": parent.map(|parent| &parent.id)});
        fx.create(&CI_CLASSES, body).await.unwrap()
    };
    let top = class("top", None).await;
    let middle = class("middle", Some(&top)).await;
    let below = class("below", Some(&middle)).await;
    let held = class("held", None).await;
    fx.create(&CI_SUBCLASSES, json!({"key": "s", "name": "s", "classId": held.id})).await.unwrap();
    let place = Place::of(&CI_CLASSES);
    let mut asked = ids(&[&top, &held, &below, &middle]);
    asked.insert(1, "nobody".to_owned());
    let all = AuditQuery::parse(&[("limit".to_owned(), "1000".to_owned())]).unwrap();
    let rows = async || fx.config.audit_rows(&all).await.unwrap().items;
    for (mode, of_this_request) in [(ChangeMode::DryRun, (0, 0, 0)), (ChangeMode::Apply, (5, 2, 1))] {
        let (before, revision) = (rows().await.len(), fx.config.revision());
        let (gone, failed) = fx.config.delete_many(&place, &system, asked.clone(), mode).await.unwrap();
        assert_eq!(gone, ids(&[&top, &below, &middle]), "as they were asked for");
        let failed: Vec<_> = failed.iter().map(|one| (one.id.as_str(), one.problem.code)).collect();
        assert_eq!(failed, [("nobody", "NOT_FOUND"), (held.id.as_str(), "REFERENCED")]);
        let noted = rows().await;
        let new = noted.len() - before;
        let refused = noted[..new].iter().filter(|row| row["outcome"] == "refused").count();
        assert_eq!((new, refused, fx.config.revision() - revision), of_this_request, "{mode:?}");
    }
    assert_eq!(fx.names(&CI_CLASSES, &[("managedBy", "api")]).await, ["held"]);
    assert_eq!(fx.config.audit_verify().await.unwrap().broken_at, None);
    // One that fails leaves nothing of what it had done before: its name is free.
    let other = class("other", None).await;
    let patch = map(json!({"key": "same", "name": "same"}));
    let (done, failed) =
        fx.config.update_many(&place, &system, ids(&[&held, &other]), patch, ChangeMode::Apply).await.unwrap();
    assert_eq!((done, failed[0].problem.code), (ids(&[&held]), "DUPLICATE"));
    assert_eq!(fx.names(&CI_CLASSES, &[("managedBy", "api")]).await, ["other", "same"]);
    class("held", None).await;
    let again = fx.create(&CI_CLASSES, json!({"key": "other", "name": "other"})).await;
    assert_eq!(again.unwrap_err().code, "DUPLICATE", "what failed keeps its own name");
}

/// Names go from one item to another one, whichever comes first; what still stands twice at the end is refused.
#[tokio::test]
async fn names_change_hands() {
    let fx = fixture().await;
    let place = Place::of(&CI_CLASSES);
    let class = async |key: &str| fx.create(&CI_CLASSES, json!({"key": key, "name": key})).await.unwrap();
    let (a, b, c) = (class("a").await, class("b").await, class("c").await);
    let named = |of: &Entity, key: &str| json!({"id": of.id, "key": key, "name": key});
    let put = async |items: Vec<Value>| fx.config.put_many(&place, &Caller::system(), items, ChangeMode::Apply).await;
    let of = async |entity: &Entity| {
        fx.config.get(&place, &entity.id, &Caller::system()).await.unwrap().body["key"].as_str().unwrap().to_owned()
    };
    assert_eq!(put(vec![named(&a, "b"), named(&b, "a")]).await.unwrap().updated, 2);
    assert_eq!((of(&a).await, of(&b).await), ("b".to_owned(), "a".to_owned()));
    // A new one takes the name of one that gets another.
    let done = put(vec![json!({"key": "c", "name": "c"}), named(&c, "d")]).await.unwrap();
    assert_eq!((done.created, done.updated, of(&c).await), (1, 1, "d".to_owned()));
    // What a body writes otherwise and is the same stays whose it was.
    let spaced = json!({"id": a.id, "key": "b", "name": " b "});
    let refused = put(vec![json!({"key": "e", "name": "b"}), spaced]).await.unwrap_err();
    assert_eq!((refused.code, refused.errors[0].field.as_str()), ("DUPLICATE", "/items/1/name"));
    let trimmed = [json!({"id": b.id, "key": "x", "name": "b"}), json!({"id": a.id, "key": "b", "name": " b "})];
    assert_eq!(put(trimmed.to_vec()).await.unwrap_err().code, "DUPLICATE");
    let again = fx.create(&CI_CLASSES, json!({"key": "f", "name": "b"})).await;
    assert_eq!(again.unwrap_err().code, "DUPLICATE", "nothing was given up");
    assert_eq!(put(vec![named(&a, "same"), named(&b, "same")]).await.unwrap_err().code, "DUPLICATE");
}

/// All that is not valid is told at once, but not what may only follow from it.
#[tokio::test]
async fn invalid_fields_of_all_items_are_told() {
    let fx = fixture().await;
    let place = Place::of(&CI_CLASSES);
    let refused = async |items: Vec<Value>| {
        let done = fx.config.put_many(&place, &Caller::system(), items, ChangeMode::Apply).await;
        let problem = done.map(drop).expect_err("an item is not valid");
        let mut fields: Vec<String> = problem.errors.into_iter().map(|e| e.field).collect();
        fields.sort();
        (problem.code, fields)
    };
    let odd = json!({"key": "A b", "name": "a"});
    let fine = json!({"key": "b", "name": "b"});
    let unknown = json!({"key": "c", "name": "c", "nope": 1});
    let lost = json!({"key": "d", "name": "d", "parentId": "01a22c6f-2407-74ee-a850-6fe55408a633"});
    let (code, fields) = refused(vec![odd.clone(), fine, unknown]).await;
    assert_eq!((code, fields), ("VALIDATION_FAILED", vec!["/items/0/key".to_owned(), "/items/2/nope".to_owned()]));
    assert_eq!(refused(vec![odd, lost]).await.1, ["/items/0/key"]);
    assert!(fx.names(&CI_CLASSES, &[("managedBy", "api")]).await.is_empty(), "nothing is made");
}

/// An import that replaces says what stays: that does not go along with what it names.
#[tokio::test]
async fn what_stays_keeps_what_it_names() {
    let fx = fixture().await;
    let above = fx.create(&ROUTES, json!({"receiver": "empty", "group_wait": "1s"})).await.unwrap();
    let below = json!({"receiver": "empty", "parentId": above.id, "group_wait": "2s"});
    let below = fx.create(&ROUTES, below).await.unwrap();
    let place = Place::of(&ROUTES);
    let replaced = async |items: Vec<Value>, filter: Option<&str>| {
        let parameters: Vec<_> = filter.iter().map(|text| ("filter".to_owned(), (*text).to_owned())).collect();
        let query = ListQuery::parse(&ROUTES, &parameters, &[]).unwrap();
        let mode = ImportMode::Replace;
        let options = ImportOptions { mode, within: Some(&query), change_mode: ChangeMode::Apply };
        fx.config.import_many(&place, &Caller::system(), items, options).await
    };
    let only_below = vec![Value::Object(below.shown())];
    for (items, filter) in [(only_below, None), (Vec::new(), Some("group_wait eq \"1s\""))] {
        let refused = replaced(items, filter).await.unwrap_err();
        assert_eq!((refused.code, &refused.more["references"][0]["id"]), ("REFERENCED", &json!(below.id)));
        assert!(refused.detail.contains(&above.id), "{}", refused.detail);
        assert_eq!(fx.list(&ROUTES, &[("managedBy", "api")]).await.unwrap().items.len(), 2, "nothing has changed");
    }
    let only_above = vec![Value::Object(above.shown())];
    assert_eq!(replaced(only_above, None).await.unwrap().deleted, 1);
    assert_eq!(replaced(Vec::new(), None).await.unwrap().deleted, 1);
}

/// A route that says no place comes behind its siblings; lists give routes as they are tried.
#[tokio::test]
async fn routes_stand_behind_their_siblings() {
    let fx = fixture().await;
    let route = async |parent: &str, position: Option<i64>| {
        let body = json!({"receiver": "empty", "parentId": parent, "position": position});
        fx.create(&ROUTES, body).await.unwrap()
    };
    let second = route(ROOT_ROUTE_ID, Some(9)).await;
    let third = route(ROOT_ROUTE_ID, None).await;
    let below = route(&third.id, None).await;
    let greatest = route(ROOT_ROUTE_ID, Some(1_000_000)).await;
    let beside = route(ROOT_ROUTE_ID, None).await;
    let first = route(ROOT_ROUTE_ID, Some(0)).await;
    let place = |route: &Entity| route.body["position"].as_i64();
    assert_eq!([&third, &below, &beside].map(place), [Some(10), Some(0), Some(1_000_000)]);
    let mut expected = vec![ROOT_ROUTE_ID.to_owned()];
    expected.extend(ids(&[&first, &second, &third, &greatest, &beside, &below]));
    let listed = fx.list(&ROUTES, &[]).await.unwrap().items;
    let listed: Vec<&str> = listed.iter().filter_map(|route| route["id"].as_str()).collect();
    assert_eq!(listed, expected);
}

/// What routes name keeps its name, by whichever of their fields.
#[tokio::test]
async fn names_that_routes_have_stay() {
    let fx = fixture().await;
    let makes = |family, name: &str| fx.create(family, json!({"name": name}));
    let [team, other] = [makes(&RECEIVERS, "team").await.unwrap(), makes(&RECEIVERS, "other").await.unwrap()];
    let [night, spare] =
        [makes(&TIME_INTERVALS, "night").await.unwrap(), makes(&TIME_INTERVALS, "spare").await.unwrap()];
    let mutes = json!({"receiver": "team", "mute_time_intervals": ["spare 2", "night"]});
    let mutes = fx.create(&ROUTES, mutes).await.unwrap();
    let acts = json!({"receiver": "team", "active_time_intervals": ["night"], "mute_time_intervals": ["night"]});
    let acts = fx.create(&ROUTES, acts).await.unwrap();
    for (family, held) in [(&RECEIVERS, &team), (&TIME_INTERVALS, &night)] {
        for op in [delete(&held.id), patch(&held.id, json!({"name": "renamed"}))] {
            let refused = fx.op(family, op).await.unwrap_err();
            let listed = [&mutes, &acts].map(|e| json!({"family": "routes", "id": e.id, "name": "team"}));
            assert_eq!((refused.code, &refused.more["references"]), ("REFERENCED", &json!(listed)));
            assert_eq!(refused.more["hiddenReferences"], json!(0));
        }
        fx.op(family, patch(&held.id, json!({"description": "d"}))).await.unwrap();
    }
    for (family, free) in [(&RECEIVERS, &other), (&TIME_INTERVALS, &spare)] {
        fx.op(family, delete(&free.id)).await.unwrap();
    }
    fx.op(&ROUTES, delete(&mutes.id)).await.unwrap();
    fx.op(&ROUTES, patch(&acts.id, json!({"receiver": "empty"}))).await.unwrap();
    fx.op(&RECEIVERS, delete(&team.id)).await.unwrap();
    assert_eq!(fx.op(&TIME_INTERVALS, delete(&night.id)).await.unwrap_err().code, "REFERENCED");
}
