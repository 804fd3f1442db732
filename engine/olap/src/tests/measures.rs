//! The rows that a measure goes over: it aggregates them in groups and in single rows, or the measure is refused.

use std::sync::Arc;

use quiver_query::QueryContext;
use quiver_query::tables::DomainAccess;
use quiver_types::Access;
use serde_json::{Value, json};

use super::open_cases::limits;
use super::rollups::{MODEL, ask, olap, on_a_deep_stack};
use crate::OlapEngine;
use crate::model::load::{SourceFile, load};
use crate::query::request::Request;

/// Gives the models one more measure, `Calls.own`.
fn with(olap: &Arc<OlapEngine>, measure: &str) {
    let own = format!("    measures:\n      - {{name: own, {measure}}}\n");
    let text = MODEL.replace("    measures:\n", &own);
    let file = SourceFile { name: "calls.yml".to_owned(), text, builtin: false };
    olap.replace(load(&[file]).unwrap().0);
}

/// Breaks if windows and filters of measures over measures are passed over, and the numbers are those of all rows.
#[test]
fn windows_and_filters_go_over_rows() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("refused");
        for (measure, expected) in [
            (
                r#"type: number, sql: "{errors} / {count}", rolling_window: {trailing: unbounded}"#,
                Some("rolling_window"),
            ),
            (r#"type: number, sql: "{count}", filters: [{sql: "{CUBE}.failed"}]"#, Some("filters")),
            (r#"type: sum, multi_stage: true, sql: "{count}", filters: [{sql: "{CUBE}.failed"}]"#, Some("filters")),
            (r#"type: number, sql: "SUM({CUBE}.ms)", filters: [{sql: "{CUBE}.failed"}]"#, None),
        ] {
            with(&olap, measure);
            let catalog = olap.catalog();
            let request = Request::parse(&json!({"measures": ["Calls.own"]}), &catalog, 0).unwrap();
            let ctx = QueryContext::new(Access::full(), limits());
            let told = olap.load(&catalog, &request, &DomainAccess::full(), &ctx).await.err().map(|e| e.to_string());
            let expected = expected.map(|what| {
                format!("measure `Calls.own` is made of other measures, and `{what}` goes over rows: give it to these")
            });
            assert_eq!(told, expected, "{measure}");
        }
    });
}

/// Breaks if the filter of a measure with an aggregate of its own is left out of rows that are not grouped.
#[test]
fn single_rows_pass_the_filters_of_measures() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("single");
        for measure in [
            r#"type: sum, sql: ms, filters: [{sql: "{CUBE}.failed"}]"#,
            r#"type: number, sql: "SUM({CUBE}.ms)", filters: [{sql: "{CUBE}.failed"}]"#,
            r#"type: number, sql: "SUM({CUBE}.ms) FILTER (WHERE {CUBE}.failed)""#,
        ] {
            with(&olap, measure);
            let query = json!({
                "measures": ["Calls.own"], "dimensions": ["Calls.id"], "order": [["Calls.id", "asc"]], "ungrouped": true,
            });
            let answer = ask(&olap, &query, &DomainAccess::full()).await;
            let rows = answer["data"].as_array().unwrap();
            let values: Vec<&Value> = rows.iter().map(|row| &row["Calls.own"]).collect();
            let null = Value::Null;
            assert_eq!(values, [&null, &json!(40), &null, &null, &null, &null], "{measure}");
        }
    });
}

/// Breaks if a condition on a time looks for the day before in the day itself.
#[test]
fn conditions_on_times_are_shifted_as_ranges_are() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("shifted");
        with(&olap, r#"type: number, sql: "{count}", multi_stage: true, time_shift: [{interval: 1 day, type: prior}]"#);
        for (operator, values, count, own) in [
            ("inDateRange", json!(["2026-03-29", "2026-03-29"]), 2, 3),
            ("notInDateRange", json!(["2026-03-29"]), 3, 2),
            ("afterOrOnDate", json!(["2026-03-29"]), 2, 5),
            ("beforeOrOnDate", json!(["2026-03-29"]), 5, 3),
            ("equals", json!(["2026-03-29T22:10:00.000"]), 0, 1),
            ("notSet", json!([]), 1, 1),
        ] {
            let filter = json!({"member": "Calls.at", "operator": operator, "values": values});
            let query = json!({"measures": ["Calls.count", "Calls.own"], "filters": [filter]});
            let answer = ask(&olap, &query, &DomainAccess::full()).await;
            let number = |name: &str| answer["data"][0][name].as_str().and_then(|digits| digits.parse::<i64>().ok());
            assert_eq!((number("Calls.count"), number("Calls.own")), (Some(count), Some(own)), "{operator} {values}");
        }
    });
}

/// Breaks if rows of the day before are compared with the start of the day that they are moved to.
#[test]
fn ranges_of_shifted_buckets_are_those_of_their_rows() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("shifted-buckets");
        let own = r#"type: count, filters: [{sql: "{at} >= range_start() AND {at} < range_end()"}]}"#;
        let before = r#"{name: before, type: number, sql: "{own}", multi_stage: true, time_shift: [{interval: 1 day, type: prior}]"#;
        with(&olap, &format!("{own}\n      - {before}"));
        let time = json!([{
            "dimension": "Calls.at", "granularity": "day", "dateRange": ["2026-03-28", "2026-03-30"],
        }]);
        let query =
            json!({"measures": ["Calls.own", "Calls.before"], "timeDimensions": time, "timezone": "Europe/Berlin"});
        let answer = ask(&olap, &query, &DomainAccess::full()).await;
        let cell = |row: &Value, name: &str| row[name].as_str().map(|digits| digits.parse::<i64>().unwrap());
        let rows = answer["data"].as_array().unwrap().iter();
        let found: Vec<_> = rows.map(|row| (cell(row, "Calls.own"), cell(row, "Calls.before"))).collect();
        // In Berlin one call is of the 28th, and four are of the 29th.
        assert_eq!(found, [(Some(1), None), (Some(4), Some(1))]);
    });
}

/// Aggregates that have no type of their own go over rows, or over the groups of an inner query.
#[test]
fn aggregates_are_written_in_sql() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("written");
        for (measure, expected) in [
            (r#"type: number_agg, sql: "PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY {CUBE}.ms)""#, 7.0),
            (r#"type: number_agg, sql: "MAX({count})", multi_stage: true, add_group_by: [service]"#, 4.0),
            (r#"type: number_agg, sql: "MAX({count})", multi_stage: true"#, 6.0),
        ] {
            with(&olap, measure);
            let answer = ask(&olap, &json!({"measures": ["Calls.own"]}), &DomainAccess::full()).await;
            let value = &answer["data"][0]["Calls.own"];
            let number = value.as_f64().or_else(|| value.as_str().and_then(|digits| digits.parse().ok()));
            assert_eq!(number, Some(expected), "{measure}: {value}");
            assert_eq!(answer["annotation"]["measures"]["Calls.own"]["type"], "number");
        }
    });
}

/// Gives the models more dimensions, segments and a measure.
fn with_members(olap: &Arc<OlapEngine>, dimensions: &str, segments: &str, measure: &str) {
    let own = format!("{dimensions}    measures:\n      - {{name: own, {measure}}}\n");
    let text = MODEL.replace("    measures:\n", &own).replace("    segments:\n", &format!("    segments:\n{segments}"));
    let file = SourceFile { name: "calls.yml".to_owned(), text, builtin: false };
    olap.replace(load(&[file]).unwrap().0);
}

/// A cell as a number.
fn number(row: &Value, name: &str) -> Option<f64> {
    row[name].as_f64().or_else(|| row[name].as_str().and_then(|digits| digits.parse().ok()))
}

/// Breaks if what is made of a time stays in the period before, and joins nothing.
#[test]
fn what_is_made_of_times_is_shifted_with_them() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("made");
        with_members(
            &olap,
            "      - {name: day, sql: \"EXTRACT(day FROM {at})\", type: number}\n",
            "      - {name: second, sql: \"EXTRACT(day FROM {at}) = 29\"}\n",
            r#"type: number, sql: "{count}", multi_stage: true, time_shift: [{interval: 1 day, type: prior}]"#,
        );
        let measures = json!(["Calls.count", "Calls.own"]);
        let query = json!({"measures": measures, "dimensions": ["Calls.day"], "order": [["Calls.day", "asc"]]});
        let answer = ask(&olap, &query, &DomainAccess::full()).await;
        let rows = answer["data"].as_array().unwrap().iter();
        let rows: Vec<_> = rows.map(|row| ["Calls.day", "Calls.count", "Calls.own"].map(|n| number(row, n))).collect();
        let expected =
            [[Some(28.0), Some(3.0), None], [Some(29.0), Some(2.0), Some(3.0)], [None, Some(1.0), Some(1.0)]];
        assert_eq!(rows, expected);
        let query = json!({"measures": measures, "segments": ["Calls.second"]});
        let answer = ask(&olap, &query, &DomainAccess::full()).await;
        let row = &answer["data"][0];
        assert_eq!((number(row, "Calls.count"), number(row, "Calls.own")), (Some(2.0), Some(3.0)));
    });
}

/// A text may refer to a time cut to a granularity: in the zone of the query, and moved as the time is.
#[test]
fn texts_refer_to_buckets_of_times() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("cut");
        with_members(
            &olap,
            "      - {name: day, sql: \"{at.day}\", type: time}\n      \
             - {name: dayNumber, sql: \"EXTRACT(day FROM {CUBE.at.day})\", type: number}\n",
            "",
            r#"type: number, sql: "{count}", multi_stage: true, time_shift: [{interval: 1 day, type: prior}]"#,
        );
        for (timezone, counts) in [("UTC", [3.0, 2.0]), ("Europe/Berlin", [1.0, 4.0])] {
            let query = json!({
                "measures": ["Calls.count", "Calls.own"], "dimensions": ["Calls.day", "Calls.dayNumber"],
                "order": [["Calls.day", "asc"]], "timezone": timezone,
            });
            let answer = ask(&olap, &query, &DomainAccess::full()).await;
            let rows = answer["data"].as_array().unwrap().iter();
            let days: Vec<_> = rows.clone().map(|row| row["Calls.day"].clone()).collect();
            assert_eq!(days, [json!("2026-03-28T00:00:00.000"), json!("2026-03-29T00:00:00.000"), Value::Null]);
            let numbers = rows.map(|row| ["Calls.dayNumber", "Calls.count", "Calls.own"].map(|n| number(row, n)));
            let [first, second] = counts.map(Some);
            let expected = [[Some(28.0), first, None], [Some(29.0), second, first], [None, Some(1.0), Some(1.0)]];
            assert_eq!(numbers.collect::<Vec<_>>(), expected, "{timezone}");
        }
    });
}

/// Breaks if an aggregate looks for the bounds of a bucket in the columns of its group, which its rows lack.
#[test]
fn aggregates_know_the_range_of_their_rows() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("ranged");
        let seconds = "(CAST({at} AS BIGINT) - CAST(range_start() AS BIGINT)) / 1000000000";
        for (measure, expected) in [
            (format!("MAX({seconds})"), [vec![90_000.0], vec![86_399.0, 3600.0]]),
            (format!("MAX({seconds}) FILTER (WHERE {{at}} < range_end())"), [vec![90_000.0], vec![86_399.0, 3600.0]]),
            (
                format!("MAX({seconds}) / range_seconds()"),
                [vec![90_000.0 / 172_800.0], vec![86_399.0 / 86_400.0, 3600.0 / 86_400.0]],
            ),
        ] {
            with(&olap, &format!("type: number, sql: \"{measure}\""));
            for (granularity, expected) in [Value::Null, json!("day")].into_iter().zip(expected) {
                let time = json!({"dimension": "Calls.at", "dateRange": ["2026-03-28", "2026-03-29"], "granularity": granularity});
                let order = if granularity.is_null() { json!([]) } else { json!([["Calls.at", "asc"]]) };
                let query = json!({"measures": ["Calls.own"], "timeDimensions": [time], "order": order});
                let answer = ask(&olap, &query, &DomainAccess::full()).await;
                let rows = answer["data"].as_array().unwrap().iter();
                let values: Vec<f64> = rows.filter_map(|row| number(row, "Calls.own")).collect();
                assert_eq!(values, expected, "{measure} {granularity}");
            }
        }
    });
}

/// Breaks if sums of doubles are rounded at each step: their last digit then depends on the order of the rows.
#[test]
fn sums_of_doubles_are_rounded_once() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("doubles");
        for (measure, expected) in [
            (r#"type: sum, sql: "CASE {CUBE}.id WHEN 1 THEN 1e300 WHEN 2 THEN 1.5 WHEN 3 THEN -1e300 END""#, 1.5),
            (r#"type: avg, sql: "CASE {CUBE}.id WHEN 1 THEN 1e300 WHEN 2 THEN 1.5 WHEN 3 THEN -1e300 END""#, 0.5),
            (
                r#"type: number, sql: "SUM(CASE {CUBE}.id WHEN 1 THEN 1e300 WHEN 2 THEN 3 WHEN 3 THEN -1e300 END) / 2""#,
                1.5,
            ),
        ] {
            with(&olap, measure);
            let answer = ask(&olap, &json!({"measures": ["Calls.own"]}), &DomainAccess::full()).await;
            assert_eq!(answer["data"][0]["Calls.own"], json!(expected), "{measure}");
        }
    });
}

/// Breaks if a branch without conditions stands for all rows, and with it the OR that it is in.
#[test]
fn branches_without_conditions_are_none() {
    on_a_deep_stack(async {
        let (olap, _folders) = olap("branches");
        let leaf = json!({"member": "Calls.service", "operator": "equals", "values": ["a"]});
        let of_groups = json!({"member": "Calls.count", "operator": "gt", "values": ["9"]});
        for (filters, expected) in [
            (json!([{"or": [leaf, {"or": []}]}]), json!([{"Calls.count": "4"}])),
            (json!([{"or": [{"and": []}, {"and": [leaf, {"or": [{"and": []}]}]}]}]), json!([{"Calls.count": "4"}])),
            (json!([{"or": [{"and": []}, {"or": []}]}]), json!([{"Calls.count": "6"}])),
            (json!([{"or": [of_groups, {"and": []}]}]), json!([])),
        ] {
            let query = json!({"measures": ["Calls.count"], "filters": filters});
            assert_eq!(ask(&olap, &query, &DomainAccess::full()).await["data"], expected, "{filters}");
        }
    });
}
