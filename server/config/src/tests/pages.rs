//! Pages that an index gives are those that the whole family would give.

use quiver_database::statement;

use super::*;
use crate::families::{RESOURCES, RULE_GROUPS, RULES, SERVICE_TYPE_ID, TRANSACTIONS};
use crate::filter::Op as FilterOp;
use crate::json::time_text;
use crate::sql_filter::{CandidateSet, FilterLookups};
use crate::time_filters::holding;

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

/// The same without pages, for which the whole family is read.
async fn whole(fx: &Fixture, family: &'static Family, caller: &Caller, parameters: &[(&str, &str)]) -> Vec<String> {
    let own: Vec<(String, String)> =
        parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let query = ListQuery::parse(family, &own, &[]).unwrap().everything();
    let page = fx.config.list(&Place::of(family), &query, caller).await.unwrap();
    page.items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

async fn same_as_whole(fx: &Fixture, family: &'static Family, caller: &Caller, sort: &str, more: &[(&str, &str)]) {
    let mut by_index = vec![("sort", sort)];
    by_index.extend_from_slice(more);
    let expected = whole(fx, family, caller, &by_index).await;
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

/// Resources with what lists are filtered and sorted by.
async fn resources(fx: &Fixture, many: usize) {
    for n in 0..many {
        fx.clock.0.fetch_add(if n % 3 == 0 { 1000 } else { 0 }, SeqCst);
        let name = format!("s{:02}", n * 7 % many);
        let mut body = json!({
            "typeId": SERVICE_TYPE_ID, "displayName": format!("Shop {}", n % 5),
            "tags": (0..n % 3).map(|tag| format!("t{tag}")).collect::<Vec<_>>(),
            "state": (["active", "inactive", "retired"][n / 2 % 3]),
            "description": (["", "Größe ΑΣ", "shop 7", "SHOP 17"][n % 4]),
            "attributes": {"service.name": name.clone()},
        });
        if n % 4 != 0 {
            body["service"] = json!(name);
            body["labels"] = json!({"team": (["a", "b", ""][n % 3]), "k8s.io/zone": "x".repeat(100 + n * 10)});
        }
        fx.create(&RESOURCES, body).await.unwrap();
    }
}

#[tokio::test]
async fn any_field_gives_an_order() {
    let fx = fixture().await;
    resources(&fx, 60).await;
    let system = Caller::system();
    for sort in ["service", "-service", "state", "-state", "key", "-firstSeen", "health", "createdBy", "typeId"] {
        for more in [&[][..], &[("count", "true")], &[("state", "retired")], &[("q", "shop 3")]] {
            same_as_whole(&fx, &RESOURCES, &system, sort, more).await;
        }
    }
}

/// Lists that are asked again and again come from memory, and follow each change at once.
#[tokio::test]
async fn texts_that_are_kept_follow_each_change() {
    let fx = fixture().await;
    resources(&fx, 60).await;
    let system = Caller::system();
    let parts: [&[(&str, &str)]; 4] = [
        &[("filter", "key co \"3\"")],
        &[("filter", "tags co \"t\" and key ew \"7\""), ("count", "true")],
        &[("filter", "labels.k8s.io/zone co \"xx\" and tags ew \"1\"")],
        &[("q", "shop 1")],
    ];
    for more in parts {
        for sort in ["displayName", "-displayName", "key", "-key", "-id", "state", "health", "createdAt"] {
            same_as_whole(&fx, &RESOURCES, &system, sort, more).await;
        }
    }
    assert!(fx.config.lists.len() > 0, "nothing was kept");
    let having = [("filter", "key co \"3\"")];
    let body = json!({"typeId": SERVICE_TYPE_ID, "displayName": "A new one", "attributes": {"service.name": "x3"}});
    let one = fx.create(&RESOURCES, body).await.unwrap();
    let first = fx.list(&RESOURCES, &[having[0], ("sort", "displayName"), ("limit", "1")]).await.unwrap();
    assert_eq!(first.items[0]["id"], json!(one.id));
    same_as_whole(&fx, &RESOURCES, &system, "displayName", &having).await;
    fx.op(&RESOURCES, delete(&one.id)).await.unwrap();
    same_as_whole(&fx, &RESOURCES, &system, "displayName", &having).await;
    // A caller who sees a part of them is shown no others.
    let narrow = caller(&["{view, resources, s1*}", "{view, resources, s3*}"]);
    same_as_whole(&fx, &RESOURCES, &narrow, "displayName", &having).await;
}

/// Lists that count come from memory, too, as do those in the order of times.
#[tokio::test]
async fn texts_that_are_kept_are_counted() {
    let fx = fixture().await;
    resources(&fx, 60).await;
    let (system, narrow) = (Caller::system(), caller(&["{view, resources, s1*}", "{view, resources, s3*}"]));
    let lists = [
        (("filter", r#"displayName co "3""#), "createdAt"),
        (("q", "shop 1"), "-updatedAt"),
        (("filter", r#"tags ew "1""#), "displayName"),
    ];
    for (n, (more, sort)) in lists.into_iter().enumerate() {
        let expected = whole(&fx, &RESOURCES, &system, &[more, ("sort", sort)]).await;
        for _ in 0..4 {
            let parameters = [more, ("sort", sort), ("limit", "3"), ("count", "true")];
            let page = fx.list(&RESOURCES, &parameters).await.unwrap();
            let ids: Vec<&str> = page.items.iter().map(|item| item["id"].as_str().unwrap()).collect();
            assert_eq!(ids, expected[..3]);
            assert_eq!(page.total, Some(expected.len()));
        }
        assert_eq!(fx.config.lists.len(), n + 1, "{sort}");
        for who in [&system, &narrow] {
            same_as_whole(&fx, &RESOURCES, who, sort, &[more, ("count", "true")]).await;
        }
    }
    let parameters = [("filter", r#"displayName co "3""#), ("sort", "createdAt"), ("limit", "3"), ("count", "true")];
    let own = parameters.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let query = ListQuery::parse(&RESOURCES, &own, &[]).unwrap();
    let page = fx.config.list(&Place::of(&RESOURCES), &query, &narrow).await.unwrap();
    let expected = whole(&fx, &RESOURCES, &narrow, &parameters[..2]).await;
    assert_eq!(page.total, Some(expected.len()));
}

/// Orders by several fields are those of the whole family, whatever the groups are.
#[tokio::test]
async fn several_fields_give_an_order() {
    let fx = fixture().await;
    resources(&fx, 60).await;
    let system = Caller::system();
    let sorts = [
        "state,displayName",
        "-state,displayName,-service",
        "displayName,-state,createdAt",
        "managedBy,-updatedAt,state",
        "state,version,-key",
        "state,-attributes.service.name",
        "managedBy,-key",
        "-key",
    ];
    let found: [&[(&str, &str)]; 5] = [
        &[],
        &[("q", "shop"), ("count", "true")],
        &[("filter", r#"service pr and tags co "t""#)],
        &[("filter", r#"attributes.service.name co "1""#)],
        &[("filter", r#"displayName co "op" and not (state eq "active") and key co "1""#)],
    ];
    for (sort, more) in sorts.iter().flat_map(|sort| found.iter().map(move |more| (sort, more))) {
        same_as_whole(&fx, &RESOURCES, &system, sort, more).await;
    }
    let narrow = caller(&["{view, resources, s1*}", "{view, resources, s3*}"]);
    same_as_whole(&fx, &RESOURCES, &narrow, "state,displayName", &[]).await;
}

/// A field in which all entities have one value orders nothing, but for the cursor of a page that was made before.
#[tokio::test]
async fn one_value_of_all_gives_no_order() {
    let fx = fixture().await;
    let mut ids = Vec::new();
    for n in 0..9 {
        let body = json!({
            "typeId": SERVICE_TYPE_ID, "displayName": format!("Shop {}", n % 2), "state": "active",
            "attributes": {"service.name": format!("s{n}")},
        });
        ids.push(fx.create(&RESOURCES, body).await.unwrap().id);
    }
    for sort in ["state,-key", "-state,key", "managedBy,state,-displayName", "-createdAt,state", "-state"] {
        for more in [&[][..], &[("filter", r#"key co "s""#)], &[("count", "true")]] {
            same_as_whole(&fx, &RESOURCES, &Caller::system(), sort, more).await;
        }
    }
    let first = async |sort: &str| {
        let page = fx.list(&RESOURCES, &[("sort", sort), ("limit", "4"), ("count", "true")]).await.unwrap();
        assert_eq!((page.items.len(), page.total), (4, Some(9)));
        page.next_cursor.unwrap()
    };
    let (ascending, descending) = (first("state,key").await, first("-state,key").await);
    for id in &ids {
        fx.op(&RESOURCES, patch(id, json!({"state": "retired"}))).await.unwrap();
    }
    let behind = async |sort: &str, cursor: &str| {
        fx.list(&RESOURCES, &[("sort", sort), ("cursor", cursor)]).await.unwrap().items.len()
    };
    assert_eq!((behind("state,key", &ascending).await, behind("-state,key", &descending).await), (9, 0));
}

/// The conditions on parts of times hold where their texts have these parts.
#[tokio::test]
async fn parts_of_times_are_those_of_their_texts() {
    let fx = fixture().await;
    let times: Vec<i64> = (0..400).map(|n| NOW + n * 8_639_876_543 / 100 + n * n * 61_007).collect();
    let texts: Vec<String> = times.iter().map(|ms| time_text(*ms)).collect();
    let days = NOW / 86_400_000..times[times.len() - 1] / 86_400_000 + 1;
    let rows = times.iter().map(|ms| format!("({ms})")).collect::<Vec<_>>().join(", ");
    let some =
        ["T08", "8:", ":0", "-1", "-01-", "2027", "27-0", "7", "13", "-15T0", "5T1", "T", "Z", "12.", "0.1", ":59:"];
    let others = ["2-01T13:4", "x", "2027-01-15T08:00:05.120Z", "2027-01-15T08:00:05.120ZZ", "T3", "é", "--", "3Z"];
    let own = texts.iter().step_by(57).flat_map(|text| [&text[3..], &text[9..18], &text[14..], &text[..12]]);
    for part in some.into_iter().chain(others).chain(own) {
        for op in [FilterOp::Contains, FilterOp::Ends] {
            let condition = holding("ms", op, part, &days).unwrap();
            let sql = format!("WITH t (ms) AS (VALUES {rows}) SELECT ms FROM t WHERE {condition} ORDER BY ms");
            let found = statement(sql).fetch_all(&fx.config.pool).await.unwrap();
            let found: Vec<i64> = found.iter().map(|row| row.try_get(0).unwrap()).collect();
            let has = |text: &str| if op == FilterOp::Ends { text.ends_with(part) } else { text.contains(part) };
            let wanted = times.iter().zip(&texts).filter(|(_, text)| has(text)).map(|(ms, _)| *ms);
            assert_eq!(found, wanted.collect::<Vec<_>>(), "{part}: {condition}");
        }
    }
}

/// What no list should need is damaged: whoever reads it fails.
#[tokio::test]
async fn lists_read_the_entities_that_they_give() {
    let fx = fixture().await;
    resources(&fx, 60).await;
    let check = async |parameters: &[(&str, &str)], read: &[(&str, &str)]| {
        let expected = fx.list(&RESOURCES, parameters).await.unwrap();
        let read = fx.list(&RESOURCES, read).await.unwrap();
        assert!(read.items.len() < 20, "{parameters:?}");
        let read: Vec<String> = read.items.iter().map(|item| format!("'{}'", item["id"].as_str().unwrap())).collect();
        let others = format!("family = 'resources' AND id NOT IN ('', {})", read.join(", "));
        let damage = format!("UPDATE entity SET body = '!' || body WHERE {others}");
        statement(damage).execute(&fx.config.pool).await.unwrap();
        let found = fx.list(&RESOURCES, parameters).await;
        let mend = format!("UPDATE entity SET body = substr(body, 2) WHERE {others}");
        statement(mend).execute(&fx.config.pool).await.unwrap();
        assert_eq!(found.unwrap(), expected, "{parameters:?}");
    };
    // Whole groups are read: of three states of twenty one, of its five names of four three.
    let groups = [("sort", "state,displayName"), ("limit", "8")];
    check(&groups, &[("sort", "state,displayName"), ("limit", "12")]).await;
    // What leaves some of the family is asked before they are read; one more than the page tells that there is a next one.
    for filter in
        [r#"state eq "retired""#, r#"tags co "1""#, r#"createdAt ew "5.000Z""#, r#"state eq "retired" and tags pr"#]
    {
        for sort in ["displayName", "-createdAt", "service"] {
            let given = [("filter", filter), ("sort", sort), ("limit", "3"), ("count", "true")];
            check(&given, &[("filter", filter), ("sort", sort), ("limit", "4")]).await;
        }
    }
    // A part of what the list is sorted by is looked for in the index that is walked.
    for (filter, sort) in [(r#"displayName co "op 3""#, "displayName"), (r#"displayName ew "3""#, "-displayName")] {
        let given = [("filter", filter), ("sort", sort), ("limit", "3"), ("count", "true")];
        check(&given, &[("filter", filter), ("sort", sort), ("limit", "4")]).await;
    }
    for n in 0..3 {
        let body = json!({
            "typeId": SERVICE_TYPE_ID, "displayName": format!("Rare {n}"), "description": "Seltene Größe",
            "service": format!("rare-{n}"), "attributes": {"service.name": format!("rare-{n}")},
        });
        fx.create(&RESOURCES, body).await.unwrap();
    }
    let rare: [&[(&str, &str)]; 7] = [
        &[("q", "rARE"), ("count", "true")],
        &[("q", "SELTENE größe"), ("limit", "2"), ("sort", "-state,key")],
        &[("filter", r#"service ew "re-1""#), ("count", "true")],
        &[("filter", r#"displayName co "are" and state eq "active""#), ("count", "true"), ("sort", "service,state")],
        &[("filter", r#"labels.team co "none" or key ew "rare-2""#)],
        &[("filter", r#"description co "ltene""#)],
        &[("filter", r#"attributes.service.name sw "rare""#), ("count", "true"), ("sort", "-key")],
    ];
    for parameters in rare {
        check(parameters, &[("filter", r#"service sw "rare-""#)]).await;
    }
    assert_eq!(fx.list(&RESOURCES, &[("q", "rare"), ("count", "true")]).await.unwrap().total, Some(3));
}

/// Filters that the index knows give the entities that each of them alone says it is.
#[tokio::test]
async fn filters_find_the_same() {
    let fx = fixture().await;
    resources(&fx, 60).await;
    let all = fx.list(&RESOURCES, &[("limit", "1000")]).await.unwrap().items;
    assert_eq!(all.len(), 60);
    let place = Place::of(&RESOURCES);
    let check = async |text: &str, known: Option<bool>| {
        let parameters = [("filter".to_owned(), text.to_owned()), ("count".to_owned(), "true".to_owned())];
        let query = ListQuery::parse(&RESOURCES, &parameters, &[]).unwrap();
        let filter = query.filter.clone().unwrap();
        let asked = fx.config.asked(&place, Some(&filter)).await.unwrap();
        assert_eq!(
            CandidateSet::of(Some(&filter), None, &place, &Caller::system(), &asked).map(|narrowed| narrowed.exact),
            known,
            "{text}"
        );
        let expected: Vec<&Value> = all.iter().filter(|item| filter.allows(item)).map(|item| &item["id"]).collect();
        for sort in ["displayName", "service", "displayName,state"] {
            for limit in ["1", "1000"] {
                let parameters = [("filter", text), ("count", "true"), ("sort", sort), ("limit", limit)];
                let page = fx.list(&RESOURCES, &parameters).await.unwrap();
                assert_eq!(page.total, Some(expected.len()), "{text} by {sort}");
                let mut found: Vec<&Value> = page.items.iter().map(|item| &item["id"]).collect();
                assert_eq!(found.len(), expected.len().min(limit.parse().unwrap()), "{text} by {sort}");
                found.retain(|id| !expected.contains(id));
                assert!(found.is_empty(), "{text} by {sort}");
            }
        }
    };
    let id = all[7]["id"].as_str().unwrap();
    check(&format!(r#"id eq "{id}" or state eq "retired""#), Some(true)).await;
    check(r#"service eq "s10""#, Some(true)).await;
    check("service eq null", Some(true)).await;
    check("service ne null and service pr", Some(true)).await;
    check(r#"service sw "s1" or service in ("s20", "s21", null)"#, Some(true)).await;
    check(r#"service gt "s30" and service le "s50" and not (state eq "active")"#, Some(true)).await;
    check(r#"state lt "b" or service ge "s55""#, Some(true)).await;
    check(r#"tags eq "t1""#, Some(true)).await;
    check(r#"tags ne "t1" and tags pr"#, Some(true)).await;
    check("tags eq null", None).await;
    check(r#"labels.team eq "a""#, Some(true)).await;
    check(r#"labels.team ne "a""#, Some(true)).await;
    check("labels.team pr and not labels.none pr", Some(true)).await;
    check("labels.team eq null", None).await;
    check(&format!(r#"labels.k8s.io/zone eq "{}""#, "x".repeat(110)), Some(true)).await;
    // As many characters as are kept of a label, or more: others may begin alike.
    check(&format!(r#"labels.k8s.io/zone eq "{}""#, "x".repeat(370)), Some(false)).await;
    check(&format!(r#"not (labels.k8s.io/zone eq "{}")"#, "x".repeat(370)), None).await;
    check(r#"createdAt gt "2027-01-15T08:00:05Z" and version eq 1"#, Some(true)).await;
    check(r#"createdAt sw "2027-01-15T08:00:0" and not (updatedAt sw "2027-01-15T08:00:05")"#, Some(true)).await;
    check(r#"createdAt sw "soon""#, None).await;
    check(r#"createdAt co "T08:00:0" and not (updatedAt ew "5.000Z")"#, Some(true)).await;
    check(r#"createdAt co "1" or updatedAt co "-15T" or createdAt ew "Z" or updatedAt co "soon""#, Some(true)).await;
    check(r#"createdAt co """#, None).await;
    check("version gt 1 or version eq 2.5", Some(true)).await;
    check("version ge 1 and not (version in (2, 3))", Some(true)).await;
    check(r#"attributes.service.name eq "s10""#, Some(true)).await;
    check(r#"attributes.service.name ne "s10" and attributes.service.name pr"#, Some(true)).await;
    check(r#"attributes.service.name sw "s1" or attributes.service.name gt "s50""#, Some(true)).await;
    check(r#"attributes.service.name co "1""#, Some(false)).await;
    check("attributes.service.name eq 10 or attributes.service pr", Some(true)).await;
    check("attributes.service.name eq 9007199254740993", None).await;
    check(r#"updatedAt ne "2027-01-15T08:00:05Z""#, Some(true)).await;
    check(r#"displayName co "3" and state eq "active""#, Some(true)).await;
    check(r#"displayName co "3" or state eq "active""#, Some(true)).await;
    check(r#"displayName ew "p 3" and not (service co "")"#, Some(true)).await;
    // The sign before each value in the index is no part of it.
    check(r#"displayName co "3Shop" or service ew "3s10" or service co "3s1""#, Some(true)).await;
    check(r#"service co "1" or service ew "20""#, Some(true)).await;
    check(r#"service co "%" or service ew "_""#, Some(true)).await;
    check(r#"tags co "1" and not (tags ew "0")"#, Some(true)).await;
    // Where there are few texts it is known which have a part; of many, some of which are cut, it is not.
    check(r#"labels.team co "a""#, Some(true)).await;
    check(r#"labels.none ew "a" or state co "active" or tags co """#, Some(true)).await;
    check(r#"labels.k8s.io/zone ew "xx""#, Some(false)).await;
    check(r#"key co "s1""#, Some(false)).await;
    check(r#"description co "Größe" or description eq "shop 7""#, Some(false)).await;
    check(r#"description sw "SHOP 1" or description ew "7""#, Some(false)).await;
    check(r#"description ne "shop 7""#, None).await;
    check(r#"description co "Σ""#, None).await;
    check(r#"createdBy eq "system" and managedBy ne "ui""#, Some(true)).await;
}

/// A caller who sees few services of many has their resources from the index.
#[tokio::test]
async fn rights_are_looked_up() {
    let fx = fixture().await;
    resources(&fx, 60).await;
    let all = fx.list(&RESOURCES, &[("limit", "1000")]).await.unwrap().items;
    let place = Place::of(&RESOURCES);
    let cases: [(&[&str], &[&str], bool); 3] = [
        (&["{view, resources, s10}", "{view, resources, s11}"], &["s10", "s11"], true),
        (&["{view, resources, s2*}", "{edit, resources, s30}"], &["s2", "s30"], false),
        (&["{view, resources, other}"], &["other"], true),
    ];
    for (triples, services, exact) in cases {
        let narrow = caller(triples);
        assert_eq!(
            CandidateSet::of(None, None, &place, &narrow, &FilterLookups::default()).map(|narrowed| narrowed.exact),
            Some(exact),
            "{triples:?}"
        );
        for filter in ["", r#"state eq "active""#] {
            let wanted = |item: &&Map<String, Value>| {
                let service = item["service"].as_str().unwrap_or_default();
                services.iter().any(|name| service.starts_with(name))
                    && (filter.is_empty() || item["state"] == "active")
            };
            let expected = all.iter().filter(wanted).count();
            for sort in ["displayName", "service", "displayName,state"] {
                let mut parameters = vec![("count", "true"), ("limit", "3"), ("sort", sort)];
                parameters.extend((!filter.is_empty()).then_some(("filter", filter)));
                let own: Vec<(String, String)> =
                    parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
                let query = ListQuery::parse(&RESOURCES, &own, &[]).unwrap();
                let page = fx.config.list(&place, &query, &narrow).await.unwrap();
                assert_eq!((page.total, page.items.len()), (Some(expected), expected.min(3)), "{triples:?} {sort}");
                assert!(page.items.iter().all(|item| wanted(&item)), "{triples:?} {sort}");
                let found = walk(&fx, &RESOURCES, &narrow, &parameters).await;
                assert_eq!(found.len(), expected, "{triples:?} {sort}");
            }
        }
    }
    let nobody = caller(&["{view, logs, *}"]);
    assert!(walk(&fx, &RESOURCES, &nobody, &[]).await.is_empty());
}

/// The index follows each change, and is made anew where a build knows other fields.
#[tokio::test]
async fn the_index_follows_changes() {
    let fx = fixture().await;
    fx.admin().await;
    resources(&fx, 12).await;
    let rows = async || {
        let sql = "SELECT family || ' ' || owner || ' ' || field || ' ' || value || ' ' || id FROM entity_value \
            ORDER BY family, owner, field, value, id";
        let rows = statement(sql).fetch_all(&fx.config.pool).await.unwrap();
        rows.iter().map(|row| row.try_get::<String>(0).unwrap()).collect::<Vec<_>>()
    };
    let ids = walk(&fx, &RESOURCES, &Caller::system(), &[]).await;
    fx.op(&RESOURCES, patch(&ids[0], json!({"tags": ["x", "y"], "labels": {"team": null, "new": "z"}}))).await.unwrap();
    fx.op(&RESOURCES, patch(&ids[1], json!({"service": null, "state": "retired"}))).await.unwrap();
    fx.op(&RESOURCES, delete(&ids[2])).await.unwrap();
    fx.op(&RESOURCES, delete(&ids[3])).await.unwrap();
    fx.op(&RESOURCES, Op::Restore { id: ids[3].clone(), version: 1 }).await.unwrap();
    let seen = ResourceSighting { id: ids[4].clone(), last_ms: Some(NOW), health: "warning" };
    fx.config.seen(&[seen]).await.unwrap();
    let items = vec![json!({"id": ids[5].clone(), "typeId": SERVICE_TYPE_ID, "attributes": {"service.name": "other"}})];
    fx.config.put_many(&Place::of(&RESOURCES), &Caller::system(), items.clone(), ChangeMode::DryRun).await.unwrap();
    fx.config.put_many(&Place::of(&RESOURCES), &Caller::system(), items, ChangeMode::Apply).await.unwrap();
    let kept = rows().await;
    assert!(kept.iter().any(|row| row.ends_with(&format!("health 3warning {}", ids[4]))));
    assert!(!kept.iter().any(|row| row.ends_with(&ids[2])));
    statement("UPDATE entity_value_of SET fields = 'others'").execute(&fx.config.pool).await.unwrap();
    fx.config.fill_values().await.unwrap();
    assert_eq!(rows().await, kept);
}
