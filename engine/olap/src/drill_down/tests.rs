use super::*;
use crate::testing::catalog;

const MODELS: &str = "cubes:
  - name: A
    sql_table: a
    row_right: {domain: traces, service: service}
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: true}
      - {name: kind, sql: kind, type: string}
      - {name: service, sql: service, type: string}
      - {name: at, sql: at, type: time}
      - {name: hidden, sql: x, type: string, public: false}
    measures:
      - {name: count, type: count, drill_members: [id, kind, hidden, total]}
      - {name: total, type: sum, sql: x}
      - {name: month, type: count, rolling_window: {trailing: 1 month}}
  - name: B
    sql_table: b
    dimensions: [{name: id, sql: id, type: number, primary_key: true, public: true}]
    measures: [{name: count, type: count}]
";

fn reason(error: &QueryError) -> (&'static str, &str) {
    (error.reason.as_str(), error.pointer.as_str())
}

fn read(body: &Value) -> Result<DrillDownRequest, QueryError> {
    DrillDownRequest::parse(body, 0)
}

/// The rows behind a row of the answer to a query, as the query that is asked for them.
fn drilled(query: &Value, body: &Value) -> Result<Value, QueryError> {
    let catalog = catalog(MODELS);
    let request = Request::parse(query, &catalog, 0).expect("a query");
    let asked = read(body)?;
    let (query, measure) = choose(&catalog, &request, &asked)?;
    match super::query(&catalog, query, &measure, &asked, None) {
        Ok(drilled) => Ok(drilled.to_json()),
        Err(crate::OlapError::Query(error)) => Err(error),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn what_is_asked_for_is_read() {
    let asked = read(&json!({})).unwrap();
    assert_eq!((asked.row.len(), asked.measure, asked.limit), (0, None, 100));
    let asked = read(&json!({"row": {"A.kind": null}, "measure": "A.count", "limit": 5.0})).unwrap();
    assert_eq!((asked.row.len(), asked.measure.as_deref(), asked.limit), (1, Some("A.count"), 5));
    assert_eq!(read(&json!({"row": null, "measure": null, "limit": null})).unwrap().limit, 100);
    for (body, expected) in [
        (json!({"row": []}), ("BAD_TYPE", "/row")),
        (json!({"measure": 5}), ("BAD_TYPE", "/measure")),
        (json!({"limit": -1}), ("BAD_LIMIT", "/limit")),
        (json!({"limit": 1.5}), ("BAD_LIMIT", "/limit")),
        (json!({"limit": "5"}), ("BAD_LIMIT", "/limit")),
        (json!({"limit": 50_001}), ("BAD_LIMIT", "/limit")),
    ] {
        assert_eq!(reason(&read(&body).unwrap_err()), expected, "{body}");
    }
}

/// Breaks if rows come that the row of the answer does not count: of another group, or of the rest of a bucket.
#[test]
fn a_row_becomes_conditions() {
    let query = json!({
        "measures": ["A.count", "A.total"],
        "dimensions": ["A.kind", "A.id"],
        "segments": [],
        "timeDimensions": [
            {"dimension": "A.at", "granularity": "week", "dateRange": ["2026-03-31", "2026-04-30"]},
        ],
        "filters": [
            {"member": "A.kind", "operator": "contains", "values": ["x"]},
            {"member": "A.count", "operator": "gt", "values": ["1"]},
        ],
        "order": {"A.count": "desc"},
        "limit": 7,
        "offset": 3,
        "total": true,
        "responseFormat": "compact",
        "timezone": "Europe/Berlin",
    });
    let row = json!({"A.kind": "xy", "A.id": null, "A.at.week": "2026-03-30T00:00:00.000", "A.count": "5"});
    let found = drilled(&query, &json!({"row": row, "measure": "A.count", "limit": 20})).unwrap();
    assert_eq!(
        found,
        json!({
            "measures": ["A.total"],
            "dimensions": ["A.id", "A.kind"],
            "segments": [],
            "timeDimensions": [
                {"dimension": "A.at", "dateRange": ["2026-03-31T00:00:00.000", "2026-04-05T23:59:59.999"]},
            ],
            "filters": [
                {"member": "A.kind", "operator": "contains", "values": ["x"]},
                {"member": "A.kind", "operator": "equals", "values": ["xy"]},
                {"member": "A.id", "operator": "notSet"},
                {"member": "A.count", "operator": "measureFilter"},
            ],
            "limit": 20,
            "rowLimit": 20,
            "timezone": "Europe/Berlin",
            "ungrouped": true,
        })
    );
}

#[test]
fn times_of_a_row() {
    let query = |granularity: &str| {
        json!({
            "measures": ["A.count"],
            "timeDimensions": [{"dimension": "A.at", "granularity": granularity, "dateRange": "2026-03-31"}],
        })
    };
    let range = |granularity: &str, row: Value| {
        let found = drilled(&query(granularity), &json!({"row": row})).unwrap();
        (found["timeDimensions"][0]["dateRange"].clone(), found["filters"].as_array().map_or(0, Vec::len))
    };
    let day = json!(["2026-03-31T00:00:00.000", "2026-03-31T23:59:59.999"]);
    let hour = json!(["2026-03-31T13:00:00.000", "2026-03-31T13:59:59.999"]);
    // The plain member stands for its only bucket; a time within is that of its bucket.
    for name in ["A.at.hour", "A.at"] {
        for time in ["2026-03-31T13:00:00.000", "2026-03-31T13:59:59Z", "2026-03-31 13:30"] {
            assert_eq!(range("hour", json!({name: time})), (hour.clone(), 1), "{name} {time}");
        }
    }
    assert_eq!(range("hour", json!({})), (day.clone(), 1));
    assert_eq!(range("month", json!({"A.at.month": "2026-03-01T00:00:00.000"})), (day.clone(), 1));
    // Rows without a time are those of no bucket.
    assert_eq!(range("hour", json!({"A.at.hour": null})), (day, 2));
    // Of two buckets each is its own, and the plain member is none of them.
    let two = json!({
        "measures": ["A.count"],
        "timeDimensions": [{"dimension": "A.at", "granularity": "day"}, {"dimension": "A.at", "granularity": "hour"}],
    });
    let found = drilled(&two, &json!({"row": {"A.at.hour": "2026-03-31T13:00:00.000", "A.at": "nonsense"}})).unwrap();
    assert_eq!(found["timeDimensions"], json!([{"dimension": "A.at", "dateRange": hour}]));
}

#[test]
fn rows_that_are_none_of_the_answer_are_refused() {
    let query = json!({
        "measures": ["A.count", "A.month"],
        "dimensions": ["A.kind"],
        "timeDimensions": [{"dimension": "A.at", "granularity": "day", "dateRange": "2026-03-31"}],
    });
    let check = |body: Value, expected: (&str, &str)| {
        assert_eq!(reason(&drilled(&query, &body).unwrap_err()), expected, "{body}");
    };
    check(json!({}), ("BAD_VALUE", "/measure"));
    check(json!({"measure": "A.total"}), ("BAD_VALUE", "/measure"));
    check(json!({"measure": "A.kind"}), ("BAD_VALUE", "/measure"));
    // A window counts rows of other groups.
    check(json!({"measure": "A.month"}), ("BAD_VALUE", "/measure"));
    let with = |row: Value| json!({"measure": "A.count", "row": row});
    check(with(json!({"A.id": 5})), ("BAD_VALUE", "/row/A.id"));
    check(with(json!({"A.kind": ["x"]})), ("BAD_TYPE", "/row/A.kind"));
    check(with(json!({"A.at.day": "soon"})), ("BAD_VALUE", "/row/A.at.day"));
    check(with(json!({"A.at.day": 5})), ("BAD_VALUE", "/row/A.at.day"));
    assert!(drilled(&query, &with(json!({"A.kind": true, "A.month": "9", "A.at": null}))).is_ok());
    // What a model shows behind a count it must say.
    let plain = json!({"measures": ["B.count"]});
    assert_eq!(reason(&drilled(&plain, &json!({})).unwrap_err()), ("BAD_VALUE", "/measure"));
}

#[test]
fn a_row_of_compared_ranges_names_its_own() {
    let ranges = json!([["2026-03-01", "2026-03-02"], ["2026-02-01", "2026-02-02"]]);
    let query = json!({
        "measures": ["A.count"],
        "timeDimensions": [{"dimension": "A.at", "granularity": "day", "compareDateRange": ranges}],
    });
    let row = json!({"compareDateRange": "2026-02-01T00:00:00.000 - 2026-02-02T23:59:59.999"});
    let found = drilled(&query, &json!({"row": row})).unwrap();
    let range = json!(["2026-02-01T00:00:00.000", "2026-02-02T23:59:59.999"]);
    assert_eq!(found["timeDimensions"][0]["dateRange"], range);
    for row in [json!({}), json!({"compareDateRange": "yesterday"}), json!({"compareDateRange": 5})] {
        let error = drilled(&query, &json!({"row": row})).unwrap_err();
        assert_eq!(reason(&error), ("BAD_VALUE", "/row/compareDateRange"), "{row}");
    }
    let one = json!({"measures": ["A.count"], "timeDimensions": [{"dimension": "A.at", "granularity": "day"}]});
    assert_eq!(reason(&drilled(&json!([one, one]), &json!({})).unwrap_err()), ("BAD_VALUE", "/query"));
}

/// Breaks if an address leads to rows of another service or time, or a name ends its parameter.
#[test]
fn addresses_of_traces_and_logs() {
    let catalog = catalog(MODELS);
    let address = |query: Value| {
        let request = Request::parse(&query, &catalog, 0).unwrap();
        let found = links(&catalog, &request.queries[0], &MemberId::new("A", "count"));
        ["traces", "logs"].map(|key| found[key].as_str().unwrap_or_default().to_owned())
    };
    let logs = "/logs-api/select/logsql/query?query=";
    assert_eq!(address(json!({"measures": ["A.count"]})), ["/traces?".to_owned(), format!("{logs}*")]);
    let range = json!([{"dimension": "A.at", "dateRange": "2026-03-31"}]);
    let (start, end) = ("1774915200000", "1775001600000");
    let equals = |member: &str, value: &str| json!([{"member": member, "operator": "equals", "values": [value]}]);
    assert_eq!(
        address(json!({"measures": ["A.count"], "timeDimensions": range, "filters": equals("A.service", "a b&\"ü")})),
        [
            format!("/traces?from={start}&to={end}&service=a%20b%26%22%C3%BC"),
            format!("{logs}service.name%3A%3D%22a%20b%26%5C%22%C3%BC%22&start={start}&end=1775001599999"),
        ]
    );
    // Another member is no service, and a condition that names several or none is none of one.
    for filters in [
        equals("A.kind", "x"),
        json!([{"member": "A.service", "operator": "notEquals", "values": ["x"]}]),
        json!([{"member": "A.service", "operator": "equals", "values": [null]}]),
    ] {
        assert_eq!(address(json!({"measures": ["A.count"], "filters": filters}))[0], "/traces?", "{filters}");
    }
}
