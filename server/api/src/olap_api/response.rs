//! Serializes responses. For callers to whom rows are hidden they must not reveal for which request an execution ran,
//! since that tells when others asked.

use quiver_olap::response::{PackedColumn, packed_columns};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// A response; for some callers, as if theirs had been the only request.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallerResponse<'a> {
    pub(super) answer: &'a Value,
    /// The id to put into the response. `None`: the response is sent unchanged.
    pub(super) request_id: Option<&'a str>,
}

impl Serialize for CallerResponse<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(members) = self.answer.as_object() else { return self.answer.serialize(serializer) };
        let rows = packed_columns(self.answer).map(|columns| Rows { columns });
        let mut out = serializer.serialize_map(Some(members.len()))?;
        for (name, value) in members {
            match (name.as_str(), value) {
                ("data", _) if rows.is_some() => out.serialize_entry(name, &rows)?,
                ("requestId", _) if self.request_id.is_some() => out.serialize_entry(name, &self.request_id)?,
                ("results", Value::Array(results)) => {
                    let results: Vec<Self> = results.iter().map(|answer| Self { answer, ..*self }).collect();
                    out.serialize_entry(name, &results)?;
                }
                ("usedPreAggregations", Value::Object(used)) if self.request_id.is_some() => {
                    out.serialize_entry(name, &undated(used))?;
                }
                _ => out.serialize_entry(name, value)?,
            }
        }
        out.end()
    }
}

/// Rows as objects, made from columns.
struct Rows<'a> {
    columns: Vec<PackedColumn<'a>>,
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.columns.first().map_or(0, |(_, cells)| cells.len());
        serializer.collect_seq((0..rows).map(|at| Row { columns: &self.columns, at }))
    }
}

struct Row<'a> {
    columns: &'a [PackedColumn<'a>],
    at: usize,
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut out = serializer.serialize_map(Some(self.columns.len()))?;
        for (name, cells) in self.columns {
            out.serialize_entry(name, &cells[self.at])?;
        }
        out.end()
    }
}

/// Rollups without their times: a rollup is rebuilt when something is written.
fn undated(used: &serde_json::Map<String, Value>) -> serde_json::Map<String, Value> {
    let mut used = used.clone();
    for one in used.values_mut() {
        one["lastUpdatedAt"] = Value::Null;
    }
    used
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn packed_rows_are_written_as_objects() {
        let packed = json!({"members": ["b", "a"], "columns": [[1, null], ["x", "y"]]});
        let check = |query: Value, data: &Value, expected: &Value| {
            let one = json!({"query": query, "data": data, "requestId": "theirs"});
            for answer in [one.clone(), json!({"results": [one]})] {
                let told = CallerResponse { answer: &answer, request_id: None };
                let told: Value = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
                let one = if answer["results"].is_null() { &told } else { &told["results"][0] };
                assert_eq!((&one["data"], &one["requestId"]), (expected, &json!("theirs")));
            }
        };
        let rows = json!([{"a": "x", "b": 1}, {"a": "y", "b": null}]);
        check(json!({}), &packed, &rows);
        check(json!({"responseFormat": "default"}), &packed, &rows);
        check(json!({"responseFormat": "columnar"}), &packed, &packed);
        check(json!({}), &json!({"members": ["a"], "columns": [[]]}), &json!([]));
        check(json!({}), &rows, &rows);
    }

    #[test]
    fn it_speaks_of_this_request() {
        let one = |id: &str, made: Value| {
            json!({
                "data": [{"Spans.count": "3", "requestId": "a value"}], "lastRefreshTime": "then", "requestId": id,
                "usedPreAggregations": {"Spans.byHour": {"lastUpdatedAt": made, "type": "rollup"}},
            })
        };
        let whole = |is_multi: bool, one: Value| {
            if is_multi { json!({"queryType": "regularQuery", "results": [one], "slowQuery": false}) } else { one }
        };
        for is_multi in [false, true] {
            let answer = whole(is_multi, one("theirs", json!(5)));
            let told = CallerResponse { answer: &answer, request_id: Some("ours") };
            let told: Value = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
            assert_eq!(told, whole(is_multi, one("ours", Value::Null)));
        }
    }

    fn shown(answer: &Value, request_id: Option<&str>) -> Value {
        serde_json::from_str(&serde_json::to_string(&CallerResponse { answer, request_id }).unwrap()).unwrap()
    }

    #[test]
    fn what_is_no_answer_is_told_as_it_is() {
        for value in [json!(null), json!(7), json!("x"), json!([1, {"requestId": "theirs"}]), json!({})] {
            assert_eq!(shown(&value, Some("ours")), value);
        }
        // Members of these names with other contents are not changed.
        let odd = json!({"results": "none", "usedPreAggregations": [1], "data": {"members": "x"}});
        assert_eq!(shown(&odd, Some("ours")), odd);
    }

    #[test]
    fn rows_of_several_queries_have_their_own_columns() {
        let one =
            |members: Value, columns: Value| json!({"query": {}, "data": {"members": members, "columns": columns}});
        let answer = json!({"results": [
            one(json!(["a"]), json!([[1, 2]])),
            one(json!(["b", "c"]), json!([["x"], [null]])),
            one(json!([]), json!([])),
        ]});
        let told = shown(&answer, None);
        assert_eq!(told["results"][0]["data"], json!([{"a": 1}, {"a": 2}]));
        assert_eq!(told["results"][1]["data"], json!([{"b": "x", "c": null}]));
        assert_eq!(told["results"][2]["data"], json!([]));
    }

    /// The time of a rollup reveals that somebody wrote, so only callers who see all rows get it.
    #[test]
    fn rollups_are_undated_for_who_does_not_see_all() {
        let used = json!({"a": {"lastUpdatedAt": 5, "type": "rollup"}, "b": {"type": "rollup"}});
        let answer = json!({"usedPreAggregations": used, "requestId": "theirs"});
        assert_eq!(shown(&answer, None), answer);
        let told = shown(&answer, Some("ours"));
        assert_eq!(told["requestId"], "ours");
        let expected = json!({
            "a": {"lastUpdatedAt": null, "type": "rollup"}, "b": {"lastUpdatedAt": null, "type": "rollup"},
        });
        assert_eq!(told["usedPreAggregations"], expected);
    }
}
