use serde_json::json;

use super::request::{QueryType, Request};
use super::*;
use crate::error::QueryError;
use crate::model::catalog::Catalog;
use crate::testing::catalog;

const MODELS: &str = "cubes:
  - name: A
    sql_table: a
    joins: [{name: B, relationship: many_to_one, sql: '{CUBE}.b = {B}.id'}]
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: true}
      - {name: kind, sql: kind, type: string}
      - {name: big, sql: big, type: boolean}
      - {name: at, sql: at, type: time}
    measures: [{name: count, type: count}, {name: total, type: sum, sql: x}]
    segments: [{name: odd, sql: '{CUBE}.id % 2 = 1'}]
  - name: B
    sql_table: b
    dimensions:
      - {name: id, sql: id, type: number, primary_key: true, public: true}
      - {name: name, sql: name, type: string}
      - {name: since, sql: since, type: time}
    measures: [{name: count, type: count}]
";

/// The clock of the tests: 2026-03-31T13:45:27Z.
const NOW: i64 = 1_774_964_727_000_000_000;

fn models() -> Catalog {
    catalog(MODELS)
}

fn read(catalog: &Catalog, query: &Value) -> Result<Request, QueryError> {
    Request::parse(query, catalog, NOW)
}

fn one(catalog: &Catalog, query: &Value) -> Query {
    read(catalog, query).unwrap_or_else(|e| panic!("{query}: {e} at {}", e.pointer)).queries.remove(0)
}

/// Checks that queries are refused: for which reason, and where.
fn check_refused(cases: &[(Value, &str, &str)]) {
    let catalog = models();
    for (query, reason, pointer) in cases {
        let error = read(&catalog, query).err().unwrap_or_else(|| panic!("{query} is read"));
        assert_eq!((error.reason.as_str(), error.pointer.as_str()), (*reason, *pointer), "{query}: {error}");
    }
}

#[test]
fn whole_numbers_as_clients_write_them() {
    for (value, expected) in [
        (json!(0), Some(0)),
        (json!(5), Some(5)),
        (json!(5.0), Some(5)),
        (json!(u64::MAX), Some(u64::MAX)),
        (json!(9_007_199_254_740_992.0), Some(1 << 53)),
        (json!(9_007_199_254_740_994.0), None),
        (json!(-1), None),
        (json!(1.5), None),
        (json!("5"), None),
        (json!(true), None),
        (json!(null), None),
    ] {
        assert_eq!(whole_number(&value), expected, "{value}");
    }
}

/// Breaks if rows come in another order than the reference says of queries without one.
#[test]
fn orders_that_hold_unless_others_are_given() {
    let catalog = models();
    let order = |query: Value| -> Vec<String> {
        let keys = one(&catalog, &query).effective_order().into_iter();
        keys.map(|key| if key.descends { format!("-{}", key.id) } else { key.id }).collect()
    };
    let none: [&str; 0] = [];
    let day = json!([{"dimension": "A.at", "granularity": "day"}]);
    let range = json!([{"dimension": "A.at", "dateRange": "today"}]);
    let both = json!({"measures": ["A.total", "A.count"], "dimensions": ["A.kind"], "timeDimensions": day});
    assert_eq!(order(both), ["A.at"]);
    assert_eq!(order(json!({"measures": ["A.total", "A.count"], "dimensions": ["A.kind"]})), ["-A.total"]);
    assert_eq!(
        order(json!({"measures": ["A.total"], "dimensions": ["A.kind"], "timeDimensions": range})),
        ["-A.total"]
    );
    assert_eq!(order(json!({"dimensions": ["A.kind", "A.id"]})), ["A.kind"]);
    assert_eq!(order(json!({"measures": ["A.total"]})), none, "there is one row");
    // All forms; of equal keys the first counts.
    for given in [
        json!({"A.kind": "desc", "A.count": "asc"}),
        json!([["A.kind", "desc"], ["A.count", "asc"], ["A.kind", "asc"]]),
        json!([{"id": "A.kind", "desc": true}, {"id": "A.count"}]),
        json!([{"id": "A.kind", "desc": true}, ["A.count", "asc"]]),
    ] {
        let query = json!({"measures": ["A.count"], "dimensions": ["A.kind"], "order": given});
        let mut found = order(query);
        // A map has its keys in the order of their names where it keeps no other.
        found.sort_unstable();
        assert_eq!(found, ["-A.kind", "A.count"], "{given}");
    }
    assert_eq!(order(json!({"measures": ["A.count"], "dimensions": ["A.kind"], "order": []})), none);
    // What the groups say: a dimension of the model whose key they have.
    assert_eq!(order(json!({"dimensions": ["A.id"], "order": [["A.kind", "asc"]]})), ["A.kind"]);
    assert_eq!(order(json!({"dimensions": ["A.at.day"], "order": [["A.at", "desc"]]})), ["-A.at"]);
}

#[test]
fn orders_that_cannot_be_followed() {
    let of = |order: Value| json!({"measures": ["A.count"], "dimensions": ["A.kind"], "order": order});
    check_refused(&[
        (of(json!("A.count")), "BAD_ORDER", "/order"),
        (of(json!([["A.count"]])), "BAD_ORDER", "/order"),
        (of(json!([["A.count", "asc", "x"]])), "BAD_ORDER", "/order"),
        (of(json!([["A.count", "up"]])), "BAD_ORDER", "/order"),
        (of(json!([["A.count", null]])), "BAD_ORDER", "/order"),
        (of(json!([{"desc": true}])), "BAD_ORDER", "/order"),
        (of(json!({"A.count": 1})), "BAD_ORDER", "/order"),
        (of(json!([["A.count", "asc"], ["A.nothing", "asc"]])), "BAD_ORDER", "/order/1"),
        (of(json!([["A.id", "asc"]])), "BAD_ORDER", "/order/0"),
        (of(json!([["A.odd", "asc"]])), "BAD_ORDER", "/order/0"),
        (of(json!([["A.at", "asc"]])), "BAD_ORDER", "/order/0"),
    ]);
}

#[test]
fn columns_stand_once_in_their_order() {
    let catalog = models();
    let query = one(
        &catalog,
        &json!({
            "measures": ["A.count", "A.total", "A.count"],
            "dimensions": ["A.kind", "A.at.day", "A.kind", "A.at.hour", "A.at.day"],
            "timeDimensions": [
                {"dimension": "A.at", "granularity": "day", "dateRange": "today"},
                {"dimension": "A.at", "granularity": "day", "dateRange": "yesterday"},
                {"dimension": "B.since"},
            ],
        }),
    );
    assert_eq!(query.group_columns(), ["A.kind", "A.at.hour", "A.at.day"]);
    assert_eq!(query.columns(), ["A.kind", "A.at.hour", "A.at.day", "A.count", "A.total"]);
    assert_eq!(query.times.len(), 4, "two ranges of one granularity are two conditions");
}

/// Breaks if a parameter is read as another one, or a limit that is not given as none.
#[test]
fn parameters_beside_members() {
    let catalog = models();
    let with = |key: &str, value: Value| one(&catalog, &json!({"measures": ["A.count"], key: value}));
    let plain = one(&catalog, &json!({"measures": ["A.count"]}));
    assert_eq!(
        (plain.limit, plain.offset, plain.rollups, plain.cache, plain.format),
        (Some(10_000), 0, true, None, None)
    );
    assert_eq!((plain.timezone.as_str(), plain.ungrouped, plain.total, plain.exemplars), ("UTC", false, false, 0));
    assert_eq!(with("limit", json!(0)).limit, Some(0));
    assert_eq!(with("rowLimit", json!(50_000)).limit, Some(50_000));
    let both = one(&catalog, &json!({"measures": ["A.count"], "limit": 5, "rowLimit": 7}));
    assert_eq!(both.limit, Some(5));
    assert_eq!(with("responseFormat", json!("columnar")).format, Some(Format::Columnar));
    for (mode, word) in CacheMode::ALL {
        assert_eq!(with("cache", json!(word)).cache, Some(mode));
        assert_eq!(CacheMode::parse(word), Some(mode));
    }
    assert_eq!(with("renewQuery", json!(true)).cache, Some(CacheMode::MustRevalidate));
    let stale = one(&catalog, &json!({"measures": ["A.count"], "cache": "stale-if-slow", "renewQuery": true}));
    assert_eq!(stale.cache, Some(CacheMode::StaleIfSlow));
    assert!(!with("rollups", json!(false)).rollups && with("rollups", json!(true)).rollups);
    assert_eq!(with("joinHints", json!([["A", "B"], []])).hints, [["A", "B"].map(str::to_owned)]);
    assert_eq!(with("exemplars", json!(3)).exemplars, 3);
    let of = |key: &str, value: Value| json!({"measures": ["A.count"], key: value});
    let long = vec!["A.kind"; 501];
    check_refused(&[
        (of("responseFormat", json!("Columnar")), "BAD_VALUE", "/responseFormat"),
        (of("cache", json!(1)), "BAD_VALUE", "/cache"),
        (of("renewQuery", json!("yes")), "BAD_TYPE", "/renewQuery"),
        (of("ungrouped", json!(1)), "BAD_TYPE", "/ungrouped"),
        (of("exemplars", json!(4)), "BAD_VALUE", "/exemplars"),
        (of("offset", json!(4_294_967_296_u64)), "BAD_LIMIT", "/offset"),
        (of("timezone", json!(5)), "BAD_TYPE", "/timezone"),
        (of("dimensions", json!(long)), "BAD_VALUE", "/dimensions"),
        (of("dimensions", json!([5])), "BAD_TYPE", "/dimensions/0"),
        (of("dimensions", json!(["kind"])), "UNKNOWN_MEMBER", "/dimensions/0"),
        (of("dimensions", json!(["A.kind.day"])), "NOT_TIME", "/dimensions/0"),
        (of("segments", json!(["A.kind"])), "WRONG_KIND", "/segments/0"),
        (of("joinHints", json!(["A"])), "BAD_TYPE", "/joinHints/0"),
        (of("joinHints", json!([["A", 1]])), "BAD_TYPE", "/joinHints/0"),
        (of("joinHints", json!([[], ["A", "X"]])), "UNKNOWN_MODEL", "/joinHints/1"),
        (of("joinHints", json!([["B", "A"]])), "NO_JOIN_PATH", "/joinHints/0"),
    ]);
}

#[test]
fn filters_are_read_as_they_stand() {
    let catalog = models();
    let echo = |filters: Value| {
        one(&catalog, &json!({"measures": ["A.count"], "filters": filters})).to_json()["filters"].clone()
    };
    let leaf = |operator: &str, values: Value| json!({"member": "A.kind", "operator": operator, "values": values});
    // Values are echoed as texts; numbers and truths are texts where texts are compared.
    assert_eq!(
        echo(json!([leaf("equals", json!(["x", 5, true, null]))])),
        json!([leaf("equals", json!(["x", "5", "true", null]))])
    );
    let nested = json!([{"or": [{"and": [leaf("set", json!(["x"]))]}, leaf("contains", json!(["y"]))]}]);
    assert_eq!(echo(nested.clone()), nested);
    assert_eq!(
        echo(json!([{"dimension": "A.at", "operator": "inDateRange", "values": ["today"]}])),
        json!([{"member": "A.at", "operator": "inDateRange",
            "values": ["2026-03-31T00:00:00.000", "2026-03-31T23:59:59.999"]}])
    );
    // A time alone is its day, a pair of times exactly these.
    let at = "2026-03-24T21:00:00.000";
    for (values, expected) in [
        (json!([at]), json!(["2026-03-24T00:00:00.000", "2026-03-24T23:59:59.999"])),
        (json!([at, at]), json!([at, at])),
    ] {
        let found = echo(json!([{"member": "A.at", "operator": "inDateRange", "values": values}]));
        assert_eq!(found[0]["values"], expected);
    }
    // Of phrases the end that counts.
    for (operator, expected) in [
        ("beforeDate", "2026-03-30T00:00:00.000"),
        ("afterOrOnDate", "2026-03-30T00:00:00.000"),
        ("beforeOrOnDate", "2026-03-30T23:59:59.999"),
        ("afterDate", "2026-03-30T23:59:59.999"),
    ] {
        let found = echo(json!([{"member": "A.at", "operator": operator, "values": ["yesterday"]}]));
        assert_eq!(found[0]["values"], json!([expected]), "{operator}");
    }
}

#[test]
fn zones_are_named_in_capitals_or_not() {
    let catalog = models();
    for (named, expected) in [
        ("europe/berlin", "Europe/Berlin"),
        ("utc", "UTC"),
        ("Asia/Calcutta", "Asia/Calcutta"),
        ("Etc/GMT+3", "Etc/GMT+3"),
    ] {
        let query = one(&catalog, &json!({"measures": ["A.count"], "timezone": named}));
        assert_eq!((query.timezone.as_str(), query.tz.name()), (expected, expected));
    }
}

#[test]
fn filters_that_are_none() {
    let of = |filter: Value| json!({"measures": ["A.count"], "filters": [filter]});
    let leaf = |member: &str, operator: &str, values: Value| {
        of(json!({"member": member, "operator": operator, "values": values}))
    };
    let deep = (0..10).fold(json!({"member": "A.kind", "operator": "set"}), |inner, _| json!({"and": [inner]}));
    let at = format!("/filters/0{}", "/and/0".repeat(10));
    check_refused(&[
        (of(json!([])), "BAD_TYPE", "/filters/0"),
        (of(json!({"and": [], "or": []})), "BAD_VALUE", "/filters/0"),
        (of(json!({"and": [], "member": "A.kind"})), "UNKNOWN_KEY", "/filters/0"),
        (of(json!({"or": {}})), "BAD_TYPE", "/filters/0/or"),
        (of(deep), "BAD_VALUE", at.as_str()),
        (of(json!({"operator": "set"})), "BAD_TYPE", "/filters/0"),
        (of(json!({"member": "A.kind", "dimension": "A.kind", "operator": "set"})), "BAD_VALUE", "/filters/0"),
        (of(json!({"member": "A.kind", "operator": "set", "value": 1})), "UNKNOWN_KEY", "/filters/0/value"),
        (of(json!({"member": "A.kind"})), "UNKNOWN_OPERATOR", "/filters/0/operator"),
        (of(json!({"member": "A.odd", "operator": "set"})), "WRONG_KIND", "/filters/0/member"),
        (leaf("A.kind", "equals", json!("x")), "BAD_TYPE", "/filters/0/values"),
        (leaf("A.kind", "equals", json!(["x", {}])), "BAD_VALUE", "/filters/0/values/1"),
        (leaf("A.kind", "gt", json!(["x"])), "UNKNOWN_OPERATOR", "/filters/0/operator"),
        (leaf("A.id", "contains", json!(["1"])), "UNKNOWN_OPERATOR", "/filters/0/operator"),
        (leaf("A.kind", "inDateRange", json!(["today"])), "UNKNOWN_OPERATOR", "/filters/0/operator"),
        (leaf("A.at", "inDateRange", json!([])), "VALUES_REQUIRED", "/filters/0/values"),
        (leaf("A.at", "inDateRange", json!(["soon"])), "BAD_DATE_RANGE", "/filters/0/values"),
        (leaf("A.at", "beforeDate", json!([5])), "BAD_TYPE", "/filters/0/values"),
        (leaf("A.at", "gt", json!(["today"])), "BAD_VALUE", "/filters/0/values/0"),
        (leaf("A.big", "equals", json!(["maybe"])), "BAD_VALUE", "/filters/0/values/0"),
        (leaf("A.id", "equals", json!([1, "NaN"])), "BAD_VALUE", "/filters/0/values/1"),
        (leaf("A.id", "equals", json!(["1_000"])), "BAD_VALUE", "/filters/0/values/0"),
    ]);
}

/// Breaks if ranges that are compared are told apart by anything but their ends.
#[test]
fn compared_ranges_are_queries_of_their_own() {
    let catalog = models();
    let ranges = json!([["2026-03-01", "2026-03-02"], "yesterday"]);
    let request = read(
        &catalog,
        &json!({
            "measures": ["A.count"],
            "dimensions": ["A.kind"],
            "timeDimensions": [{"dimension": "A.at", "granularity": "day", "compareDateRange": ranges}],
        }),
    )
    .unwrap();
    assert_eq!(
        (request.query_type, request.compared, request.queries.len()),
        (QueryType::CompareDateRange, Some(0), 2)
    );
    assert_eq!(request.check(false).map_err(|e| e.reason.as_str()), Err("MULTI_REQUIRED"));
    assert!(request.check(true).is_ok());
    let extra: Vec<Option<String>> =
        request.queries.iter().map(|query| request.extra_column(query).and_then(|(_, value)| value)).collect();
    assert_eq!(
        extra,
        [
            Some("2026-03-01T00:00:00.000 - 2026-03-02T23:59:59.999".to_owned()),
            Some("2026-03-30T00:00:00.000 - 2026-03-30T23:59:59.999".to_owned()),
        ]
    );
    let pivot = request.pivot_query();
    assert_eq!(
        (&pivot["queryType"], &pivot["dimensions"]),
        (&json!("compareDateRangeQuery"), &json!(["compareDateRange", "A.kind"]))
    );
    let of = |time: Value| json!({"measures": ["A.count"], "timeDimensions": time});
    let compared = |member: &str| json!({"dimension": member, "compareDateRange": ["today"]});
    let many = vec!["today"; 17];
    let at = ["", "/compareDateRange", "/compareDateRange/1", "/dimension", "/granularity", "/grain"]
        .map(|part| format!("/timeDimensions/0{part}"));
    let [own, list, second, dimension, granularity, grain] = at.each_ref().map(String::as_str);
    let both = json!({"dimension": "A.at", "dateRange": "today", "compareDateRange": ["today"]});
    let one_is_none = json!({"dimension": "A.at", "compareDateRange": ["today", "soon"]});
    check_refused(&[
        (of(json!([compared("A.at"), compared("B.since")])), "BAD_DATE_RANGE", "/timeDimensions"),
        (of(json!([{"dimension": "A.at", "compareDateRange": []}])), "BAD_DATE_RANGE", list),
        (of(json!([{"dimension": "A.at", "compareDateRange": many}])), "BAD_DATE_RANGE", list),
        (of(json!([one_is_none])), "BAD_DATE_RANGE", second),
        (of(json!([both])), "BAD_DATE_RANGE", own),
        (of(json!([{"granularity": "day"}])), "BAD_TYPE", dimension),
        (of(json!([{"dimension": "A.at", "granularity": 1}])), "BAD_TYPE", granularity),
        (of(json!([{"dimension": "A.at", "grain": "day"}])), "UNKNOWN_KEY", grain),
        (of(json!(["A.at"])), "BAD_TYPE", own),
    ]);
}

#[test]
fn blended_queries_share_a_granularity() {
    let catalog = models();
    let of = |measure: &str, granularity: Option<&str>| {
        let time = json!({"dimension": "A.at", "granularity": granularity, "dateRange": "today"});
        json!({"measures": ["A.count", measure], "timeDimensions": [time]})
    };
    let check =
        |queries: Value| read(&catalog, &queries).unwrap().check(true).map_err(|e| (e.reason.as_str(), e.pointer));
    let blended = json!([of("A.total", Some("day")), of("A.count", Some("day"))]);
    assert_eq!(check(blended.clone()), Ok(()));
    let differ = ("BLEND_GRANULARITY", "/1/timeDimensions".to_owned());
    assert_eq!(check(json!([of("A.total", Some("day")), of("A.total", Some("hour"))])), Err(differ.clone()));
    assert_eq!(check(json!([of("A.total", Some("day")), of("A.total", None)])), Err(differ));
    assert_eq!(check(json!([of("A.total", None)])), Err(("BLEND_GRANULARITY", "/0/timeDimensions".to_owned())));
    let request = read(&catalog, &blended).unwrap();
    assert_eq!(request.extra_column(&request.queries[0]), Some(("time.day".to_owned(), None)));
    let pivot = request.pivot_query();
    assert_eq!(pivot["measures"], json!(["A.count", "A.total"]));
    assert_eq!(pivot["timeDimensions"], json!([{"dimension": "time", "granularity": "day"}]));
    check_refused(&[
        (json!(vec![of("A.total", None); 65]), "BAD_VALUE", ""),
        (json!([of("A.total", None), {"measures": ["A.nothing"]}]), "UNKNOWN_MEMBER", "/1/measures/0"),
        (json!([of("A.total", None), 5]), "BAD_TYPE", "/1"),
    ]);
}
