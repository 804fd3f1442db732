//! Exports and pages of large entities: all of them, in order, and little of it in memory.

use super::*;
use crate::families::{RESOURCES, SERVICE_TYPE_ID};
use crate::graph::{Direction, Graph, Walk};
use crate::pieces::{PIECE_BYTES, pieces_of};

async fn view(fx: &Fixture, description: &str, query: &str) {
    let body = json!({"path": "/logs", "description": description, "query": query});
    fx.create(&SAVED_VIEWS, body).await.unwrap();
}

fn asked(parameters: &[(&str, &str)]) -> ListQuery {
    let parameters: Vec<(String, String)> =
        parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ListQuery::parse(&SAVED_VIEWS, &parameters, &[]).unwrap()
}

/// An export has all that the pages of a list have, in their order, whichever index the list uses.
#[tokio::test]
async fn exports_have_the_order_of_lists() {
    let fx = fixture().await;
    for n in 0..17 {
        view(&fx, &format!("d{}", n * 7 % 17), &"q".repeat(1 + n * 100)).await;
    }
    for parameters in [
        &[][..],
        &[("sort", "-createdAt")],
        &[("sort", "id")],
        &[("sort", "description")],
        &[("sort", "path,-description")],
        &[("sort", "-query")],
        &[("filter", "description sw \"d1\"")],
        &[("q", "d1"), ("sort", "-description")],
        &[("filter", "query co \"qqqqqqqqqq\""), ("fields", "description")],
        &[("filter", "description eq \"none\"")],
    ] {
        let query = asked(parameters);
        let exported = fx.exported(&Place::of(&SAVED_VIEWS), &query, &Caller::system()).await;
        let page = fx.config.list(&Place::of(&SAVED_VIEWS), &query, &Caller::system()).await.unwrap();
        let listed: Vec<Value> = page.items.into_iter().map(Value::Object).collect();
        assert_eq!(exported, listed, "{parameters:?}");
    }
}

/// Would fail if an export held the trees or the plain texts of its entities.
#[tokio::test]
async fn exports_are_small_until_they_are_sent() {
    let fx = fixture().await;
    for n in 0..20 {
        view(&fx, &format!("d{n}"), &"q".repeat(50_000)).await;
    }
    let place = Place::of(&SAVED_VIEWS);
    let export = async |parameters: &[(&str, &str)], room| {
        let mut form = Lines { room, ..Lines::default() };
        let exported = fx.config.export(&place, &asked(parameters), &Caller::system(), &mut form).await;
        let items = exported.map(|exported| items_of(&exported).len()).map_err(|problem| problem.code);
        (items, form.most)
    };
    let (items, most) = export(&[], usize::MAX).await;
    assert!(items == Ok(20) && most < 100_000, "{items:?}, {most} bytes of a million");
    // What they are ordered by is held, and counted.
    let (items, most) = export(&[("sort", "query")], usize::MAX).await;
    assert!(items == Ok(20) && most > 1_000_000, "{items:?}, {most} bytes");
    assert_eq!(export(&[("sort", "query")], 500_000).await.0, Err("STORE_BUSY"));
    assert_eq!(export(&[], 1000).await.0, Err("STORE_BUSY"));
}

/// Whichever index a list uses, pages of large entities end before they have as many as they may, and leave none out.
#[tokio::test]
async fn pages_of_large_entities_end_early() {
    let fx = fixture().await;
    let large = |n: usize| json!({"path": "/logs", "description": format!("d{}", n * 7 % 300), "query": "q".repeat(65_000 - n)});
    let items = (0..300).map(large).collect();
    let place = Place::of(&SAVED_VIEWS);
    fx.config.put_many(&place, &Caller::system(), items, ChangeMode::Apply).await.unwrap();
    for parameters in [
        &[][..],
        &[("sort", "-createdAt")],
        &[("sort", "id")],
        &[("sort", "description")],
        &[("sort", "path,-description")],
        &[("sort", "-query")],
        &[("filter", "description sw \"d\""), ("sort", "-description")],
        &[("q", "d"), ("count", "true")],
    ] {
        let mut query = asked(parameters);
        let due = fx.exported(&place, &query, &Caller::system()).await;
        query.limit = 1000;
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let page = fx.config.list(&place, &query, &Caller::system()).await.unwrap();
            let bytes: usize = page.items.iter().map(|item| Value::Object(item.clone()).to_string().len()).sum();
            assert!(bytes < 9 << 20, "{parameters:?}: {bytes} bytes");
            found.extend(page.items.into_iter().map(Value::Object));
            pages += 1;
            let Some(cursor) = page.next_cursor else { break };
            query.go_on(&cursor).unwrap();
        }
        assert!(pages == 3 && found == due, "{parameters:?}: {pages} pages of {} entities", found.len());
    }
    let ids = fx.config.ids_of(&place, &asked(&[("q", "d")]), &Caller::system()).await.unwrap();
    assert_eq!(ids.len(), 300, "what is named by a filter is not cut");
}

/// Would fail if one statement gave all of some large entities, or a change by a filter held more of them than their ids.
#[tokio::test]
async fn large_entities_are_read_in_pieces() {
    let fx = fixture().await;
    for bytes in [10, 2 * PIECE_BYTES, 10, 10, 10, 10, PIECE_BYTES / 2, PIECE_BYTES / 2] {
        view(&fx, "d", &"q".repeat(bytes)).await;
    }
    let place = Place::of(&SAVED_VIEWS);
    let query = asked(&[("sort", "createdAt"), ("filter", "description eq \"d\"")]);
    let ids = fx.config.ids_of(&place, &query, &Caller::system()).await.unwrap();
    let mut db = fx.config.pool.acquire().await.unwrap();
    let pieces = pieces_of(&ids, &place, &mut db).await.unwrap();
    let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
    assert_eq!((ids.len(), lengths), (8, vec![1, 1, 3, 2, 1]));
    assert_eq!(pieces.concat(), ids);
    drop(db);
    for (most, found) in [(0, 1), (7, 8), (8, 8), (9, 8)] {
        let ids = fx.config.all_ids(&place, &query, &Caller::system(), most).await.unwrap();
        assert_eq!(ids.len(), found, "at most {most}");
    }
}

/// The audit log has each entity twice in a row: its pages end early as well, and those of its export earlier.
#[tokio::test]
async fn pages_of_the_audit_log_end_early() {
    let fx = fixture().await;
    let place = Place::of(&SAVED_VIEWS);
    let large = |n: usize| json!({"path": "/logs", "description": format!("d{n}"), "query": "q".repeat(60_000)});
    fx.config.put_many(&place, &Caller::system(), (0..50).map(large).collect(), ChangeMode::Apply).await.unwrap();
    for sort in ["at", "-at"] {
        let all = |more: &[(&str, &str)]| {
            let own = [("limit", "1000"), ("sort", sort), ("family", SAVED_VIEWS.name)];
            let parameters = own.iter().chain(more).map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            AuditQuery::parse(&parameters.collect::<Vec<_>>()).unwrap()
        };
        let whole = fx.config.audit_rows(&all(&[])).await.unwrap();
        assert_eq!((whole.items.len(), whole.next_cursor), (50, None));
        let (mut found, mut pages, mut cursor) = (Vec::new(), 0, None::<String>);
        loop {
            let more = cursor.iter().map(|cursor| ("cursor", cursor.as_str())).collect::<Vec<_>>();
            let page = fx.config.audit_rows(&all(&more).in_pieces()).await.unwrap();
            let bytes: usize = page.items.iter().map(|row| Value::Object(row.clone()).to_string().len()).sum();
            assert!(bytes < 5 << 18, "{bytes} bytes");
            found.extend(page.items);
            pages += 1;
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        assert!(pages == 3 && found == whole.items, "{pages} pages of {} rows", found.len());
    }
}

/// A resource whose fields the graph does not hold is shown as one that it holds.
#[tokio::test]
async fn resources_are_read_when_they_are_shown() {
    let fx = fixture().await;
    let mut roots = Vec::new();
    for n in 0..5 {
        let body = json!({
            "typeId": SERVICE_TYPE_ID, "displayName": format!("r{n}"), "description": "d".repeat(2000),
            "service": format!("s{n}"), "attributes": {"service.name": format!("s{n}")},
        });
        roots.push(fx.create(&RESOURCES, body).await.unwrap().id);
    }
    let mut graph = Graph::default();
    fx.config.for_each(&RESOURCES, |resource| graph.add(&resource)).await.unwrap();
    let walk = Walk {
        roots: &roots,
        direction: Direction::Down,
        depth: 1,
        limit: 100,
        relationship_types: None,
        shows: &|_| true,
        through: false,
        may_see: &|_| true,
        at_ms: NOW,
    };
    let mut found = graph.walk(&walk);
    assert!(found.nodes.iter().all(|node| !node.contains_key("description")), "there is no room for it");
    fx.op(&RESOURCES, delete(&roots[3])).await.unwrap();
    fx.config.complete(&mut found).await.unwrap();
    for (n, node) in found.nodes.iter().enumerate() {
        let mut expected = match fx.config.get(&Place::of(&RESOURCES), &roots[n], &Caller::system()).await {
            Ok(resource) => resource.shown(),
            Err(_) => map(json!({"id": roots[3]})),
        };
        expected.insert("depth".to_owned(), json!(0));
        assert_eq!(node, &expected);
    }
}
