use quiver_traces::lists::facets::{FacetValue, ValueShares};
use quiver_traces::lists::histogram::Series;
use quiver_traces::{Edge, MatchedSpan, Node, ServiceCount};

use super::*;

/// What is written, as text.
fn text_of(write: impl FnOnce(&mut JsonWriter<'_>)) -> String {
    let mut w = JsonWriter::default();
    write(&mut w);
    String::from_utf8(w.finish().expect("JSON")).expect("JSON")
}

/// Breaks if a time of the answer is a number, which clients read as a double.
#[test]
fn rows_have_their_times_as_texts() {
    let row = ServiceRow { name: "a".to_owned(), last_seen: i64::MAX, spans: 2, ..ServiceRow::default() };
    assert_eq!(
        service(&row),
        json!({"name": "a", "operations": 0, "instances": 0, "spans": 2, "errors": 0,
            "lastSeen": "9223372036854775807"})
    );
    let names = ["a", "i", "v", "h", "p"].map(str::to_owned);
    assert_eq!(
        instance(&InstanceRow { names, spans: 1, errors: 1, seen: (-1, 5) }),
        json!({"service": "a", "instance": "i", "version": "v", "host": "h", "pod": "p", "spans": 1, "errors": 1,
            "firstSeen": "-1", "lastSeen": "5"})
    );
    let of_kind = |kind: u8| {
        let (service, name) = ("a".to_owned(), "GET".to_owned());
        operation(&OperationRow { service, name, kind, spans: 1, errors: 0, quantiles: [1, 2, 3] })
    };
    assert_eq!((&of_kind(2)["kind"], &of_kind(0)["kind"]), (&json!("server"), &json!("")));
    assert_eq!((&of_kind(2)["p50"], &of_kind(2)["p99"]), (&json!(1), &json!(3)));
    let key = TagRow { key: "host".to_owned(), scope: "resource", kind: "string", spans: 3, cardinality: 2 };
    assert_eq!(tag(&key), json!({"key": "host", "scope": "resource", "type": "string", "spans": 3, "cardinality": 2}));
}

/// What is no service has none.
#[test]
fn nodes_of_the_graph_name_their_service() {
    let node = |id: &str, kind| Node { id: id.to_owned(), kind, spans: 1, errors: 0, p95: 7 };
    let edge = Edge {
        source: "a".to_owned(),
        target: "db".to_owned(),
        protocol: "db",
        calls: 4,
        errors: 1,
        quantiles: [5, 6],
    };
    let graph = Dependencies { nodes: vec![node("a", "service"), node("db", "database")], edges: vec![edge] };
    assert_eq!(
        dependencies(&graph),
        json!({
            "nodes": [
                {"id": "a", "service": "a", "type": "service", "spans": 1, "errors": 0, "p95": 7},
                {"id": "db", "service": null, "type": "database", "spans": 1, "errors": 0, "p95": 7},
            ],
            "edges": [
                {"source": "a", "target": "db", "protocol": "db", "calls": 4, "errors": 1, "p50": 5, "p95": 6},
            ],
        })
    );
}

/// Breaks if a mean that happens to be whole is told as a count is, or a time as a number.
#[test]
fn points_of_series() {
    let points = vec![(10, Measured::Whole(3)), (20, Measured::Mean(2.0)), (30, Measured::Mean(f64::NAN))];
    let found = Histogram { step: 10, series: vec![Series { name: "a".to_owned(), points }] };
    let expected = r#"{"step":10,"series":[{"name":"a","points":[["10",3],["20",2.0],["30",null]]}]}"#;
    assert_eq!(text_of(|w| histogram(&found, w)), expected);
}

#[test]
fn cells_of_heat_maps() {
    let map = Heatmap {
        times: vec![10, 20],
        bounds: vec![2, 4],
        counts: vec![vec![3], vec![0]],
        errors: vec![vec![1], vec![0]],
        exemplars: vec![vec![Some([3; 16])], vec![None]],
    };
    assert_eq!(
        serde_json::from_str::<Value>(&text_of(|w| heatmap(&map, w))).expect("JSON"),
        json!({"times": ["10", "20"], "bounds": [2, 4], "counts": [[3], [0]], "errors": [[1], [0]],
            "exemplars": [["03".repeat(16)], [null]]})
    );
}

#[test]
fn values_of_keys() {
    let values = vec![FacetValue { value: "x".to_owned(), count: 5, errors: 1 }];
    assert_eq!(
        facet(Facet { key: "k".to_owned(), cardinality: 9, is_approximate: true, values }),
        json!({"key": "k", "cardinality": 9, "approximate": true, "values": [{"value": "x", "count": 5, "errors": 1}]})
    );
    let (key, value) = ("k".to_owned(), "x".to_owned());
    let values = vec![ValueShares { key, value, inside: 1.0, outside: 0.25, difference: 0.75 }];
    assert_eq!(
        difference(Difference { selected: 2, rest: 8, values }),
        json!({"selected": 2, "rest": 8, "values": [
            {"key": "k", "value": "x", "inside": 1.0, "outside": 0.25, "difference": 0.75},
        ]})
    );
}

#[test]
fn figures_of_groups() {
    let row = GroupFigures {
        group: vec![("service".to_owned(), "a".to_owned()), ("tag:span.k".to_owned(), String::new())],
        count: 2,
        errors: 1,
        total: 80,
        own: 70,
        min: 30,
        mean: 40.0,
        max: 50,
        share: 0.8,
        critical_share: 0.7,
    };
    assert_eq!(
        group_figures(row),
        json!({"group": {"service": "a", "tag:span.k": ""}, "count": 2, "errors": 1, "total": 80, "self": 70, "min": 30,
            "avg": 40.0, "max": 50, "share": 0.8, "criticalShare": 0.7})
    );
}

#[test]
fn paths_of_two_traces() {
    let side = Side { count: 1, total: 9, own: 4, errors: 0 };
    let row = |left, right, change| {
        compared_path(ComparedPath { path: vec!["a".to_owned(), "b".to_owned()], left, right, change })
    };
    let shown = json!({"count": 1, "total": 9, "self": 4, "errors": 0});
    assert_eq!(
        row(Some(side), None, Change::Removed),
        json!({"path": ["a", "b"], "left": shown, "right": null, "state": "removed"})
    );
    assert_eq!(
        row(None, Some(side), Change::Added),
        json!({"path": ["a", "b"], "left": null, "right": shown, "state": "added"})
    );
    assert_eq!(row(Some(side), Some(side), Change::Same)["state"], "same");
    assert_eq!(row(Some(side), Some(side), Change::Changed)["state"], "changed");
}

#[test]
fn summaries_name_services_and_matches() {
    let matched = MatchedSpan {
        span_id: [0, 0, 0, 0, 0, 0, 0, 2],
        service: "b".to_owned(),
        name: "op2".to_owned(),
        duration: 40,
        error: true,
    };
    let row = Summary {
        id: [7; 16],
        root_service: "unknown_service".to_owned(),
        root_name: "op2".to_owned(),
        root_missing: true,
        start: 20,
        end: 70,
        spans: 3,
        errors: 1,
        services: vec![ServiceCount { name: "b".to_owned(), spans: 2, errors: 1 }],
        matched: 1,
        first: vec![matched],
        ..Summary::default()
    };
    let expected = json!({
        "traceId": "07".repeat(16), "rootService": "unknown_service", "rootName": "op2", "rootMissing": true,
        "start": "20", "end": "70", "durationNs": 50, "spans": 3, "errors": 1,
        "services": [{"name": "b", "spans": 2, "errors": 1}],
        "matched": {"spans": 1, "first": [
            {"spanId": "0000000000000002", "service": "b", "name": "op2", "durationNs": 40, "error": true},
        ]},
    });
    assert_eq!(summary(&row), expected);
    assert_eq!(
        similar(&SimilarTraces { traces: vec![row], median: None }),
        json!({"traces": [expected], "median": null})
    );
}
