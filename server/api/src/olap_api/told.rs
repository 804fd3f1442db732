//! Answers as they are told. To whom rows are hidden: for which request an execution ran follows from when others ask.

use quiver_olap::answer::{Packed, packed_columns};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// An answer; to some, as if the request had been the only one to ask for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) answer: &'a Value,
    /// The id of the request; none: the answer is told as it is.
    pub(super) request_id: Option<&'a str>,
}

impl Serialize for Told<'_> {
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

/// Rows of columns, each an object.
struct Rows<'a> {
    columns: Vec<Packed<'a>>,
}

impl Serialize for Rows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.columns.first().map_or(0, |(_, cells)| cells.len());
        serializer.collect_seq((0..rows).map(|at| Row { columns: &self.columns, at }))
    }
}

struct Row<'a> {
    columns: &'a [Packed<'a>],
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

/// Rollups without when each was made: it is made anew when something is written.
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
                let told = Told { answer: &answer, request_id: None };
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
            let told = Told { answer: &answer, request_id: Some("ours") };
            let told: Value = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
            assert_eq!(told, whole(is_multi, one("ours", Value::Null)));
        }
    }
}
