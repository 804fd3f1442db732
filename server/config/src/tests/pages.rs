//! Pages that an index gives are those that the whole family would give.

use quiver_database::statement;

use super::*;
use crate::families::{RULE_GROUPS, RULES, TRANSACTIONS};

/// All pages of a list: ids in their order.
async fn walk(fx: &Fixture, family: &'static Family, caller: &Caller, parameters: &[(&str, &str)]) -> Vec<String> {
    let (mut ids, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let mut own: Vec<(String, String)> =
            parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        own.extend(cursor.take().map(|cursor| ("cursor".to_owned(), cursor)));
        let query = ListQuery::parse(family, &own, &[]).unwrap();
        let page = fx.config.list(&Place::of(family), &query, caller).await.unwrap();
        ids.extend(page.items.iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return ids;
        }
    }
}

/// No index has an order with `id` behind, though it is the same one.
async fn same_as_whole(fx: &Fixture, family: &'static Family, caller: &Caller, sort: &str, more: &[(&str, &str)]) {
    let whole = format!("{sort},id");
    let mut by_index = vec![("sort", sort)];
    by_index.extend_from_slice(more);
    let mut by_all = vec![("sort", whole.as_str())];
    by_all.extend_from_slice(more);
    let expected = walk(fx, family, caller, &by_all).await;
    assert!(!expected.is_empty(), "{sort} {more:?}");
    for limit in ["1", "7", "1000"] {
        let mut parameters = by_index.clone();
        parameters.push(("limit", limit));
        assert_eq!(walk(fx, family, caller, &parameters).await, expected, "{sort} {more:?} by {limit}");
    }
}

#[tokio::test]
async fn an_index_gives_the_same_pages() {
    let fx = fixture().await;
    let names = ["b", "a b", "a", "ab", "A", "é", "a!", "a\"", "\u{1f600}", "\u{fffd}", "10", "9"];
    for (n, name) in names.iter().enumerate() {
        // Several at the same time, and not in the order of their names.
        fx.clock.0.fetch_add(if n % 4 == 0 { 5 } else { 0 }, SeqCst);
        let team = if n % 5 == 0 { "x" } else { "y" };
        fx.create(&GROUPS, json!({"name": name, "labels": {"team": team}})).await.unwrap();
    }
    for n in 0..40 {
        fx.create(&GROUPS, json!({"name": format!("more {n}")})).await.unwrap();
    }
    let system = Caller::system();
    for sort in ["name", "-name", "createdAt", "-createdAt", "updatedAt", "-updatedAt", "id", "-id"] {
        let found: [&[(&str, &str)]; 5] = [
            &[],
            &[("count", "true")],
            &[("labels.team", "x")],
            &[("q", "MORE")],
            &[("filter", r#"name in ("é", "10", "nothing") and not (name eq "10")"#)],
        ];
        for more in found {
            same_as_whole(&fx, &GROUPS, &system, sort, more).await;
        }
    }
    let page = fx.list(&GROUPS, &[("limit", "3"), ("count", "true")]).await.unwrap();
    assert_eq!((page.items.len(), page.total), (3, Some(52)));
    let page = fx.list(&GROUPS, &[("limit", "3"), ("count", "true"), ("name", "é")]).await.unwrap();
    assert_eq!((page.items.len(), page.total, page.next_cursor), (1, Some(1), None));
    let page = fx.list(&GROUPS, &[("limit", "1"), ("labels.team", "none")]).await.unwrap();
    assert_eq!((page.items.len(), page.next_cursor), (0, None));
}

#[tokio::test]
async fn rights_leave_rows_out_of_pages() {
    let fx = fixture().await;
    for n in 0..40 {
        let service = if n % 13 == 0 { "cart" } else { "shop" };
        let body = json!({"name": format!("key {n:02}"), "service": service, "transactionName": format!("t{n}")});
        fx.create(&TRANSACTIONS, body).await.unwrap();
    }
    let narrow = caller(&["{view, transactions, cart}"]);
    for sort in ["name", "-name", "createdAt"] {
        same_as_whole(&fx, &TRANSACTIONS, &narrow, sort, &[]).await;
        assert_eq!(walk(&fx, &TRANSACTIONS, &narrow, &[("sort", sort), ("limit", "2")]).await.len(), 4);
        assert_eq!(walk(&fx, &TRANSACTIONS, &Caller::system(), &[("sort", sort), ("limit", "9")]).await.len(), 40);
    }
    let query = ListQuery::parse(&TRANSACTIONS, &[("count".to_owned(), "true".to_owned())], &[]).unwrap();
    let page = fx.config.list(&Place::of(&TRANSACTIONS), &query, &narrow).await.unwrap();
    assert_eq!(page.total, Some(4));
}

#[tokio::test]
async fn rules_are_sorted_by_group_and_place() {
    let fx = fixture().await;
    for n in 0..24 {
        let group = ["b", "a", "a b"][n % 3];
        fx.create(&RULES, json!({"group": group, "alert": format!("r{n}"), "expr": "up"})).await.unwrap();
    }
    same_as_whole(&fx, &RULES, &Caller::system(), "namespace,group,position", &[]).await;
    same_as_whole(&fx, &RULES, &Caller::system(), "-namespace,-group,-position", &[]).await;
    let page = fx.list(&RULES, &[("group", "a"), ("fields", "position")]).await.unwrap();
    let places: Vec<i64> = page.items.iter().map(|item| item["position"].as_i64().unwrap()).collect();
    assert_eq!(places, (0..8).collect::<Vec<_>>());
    // A rule that changes its group comes behind the others there.
    let id = page.items[0]["id"].as_str().unwrap();
    let moved = fx.op(&RULES, patch(id, json!({"group": "b", "position": null}))).await.unwrap();
    assert_eq!(moved.after.unwrap().body["position"], 8);
    // What a rule says of its group is compared with that one.
    fx.create(&RULE_GROUPS, json!({"namespace": "default", "name": "a", "interval": "7m"})).await.unwrap();
    let rule = |interval: &str| json!({"group": "a", "alert": "x", "expr": "up", "interval": interval});
    fx.create(&RULES, rule("7m")).await.unwrap();
    assert_eq!(fx.create(&RULES, rule("8m")).await.unwrap_err().errors[0].code, "READ_ONLY_FIELD");
}

/// What an earlier build wrote is sorted like all else after the next start.
#[tokio::test]
async fn rows_of_earlier_builds_are_filled_in() {
    let fx = fixture().await;
    for name in ["c", "a", "b"] {
        fx.create(&GROUPS, json!({"name": name})).await.unwrap();
    }
    statement("UPDATE entity SET sort_text = NULL").execute(&fx.config.pool).await.unwrap();
    fx.config.fill_sort_texts().await.unwrap();
    assert_eq!(fx.names(&GROUPS, &[("limit", "2")]).await, ["a", "b"]);
    assert_eq!(fx.names(&GROUPS, &[("name", "c")]).await, ["c"]);
}
