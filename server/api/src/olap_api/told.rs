//! Answers as they are told to whom rows are hidden: for which request an execution ran follows from when others ask.

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use serde_json::Value;

/// An answer, told as if the request had been the only one to ask for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) answer: &'a Value,
    /// The id of the request.
    pub(super) request_id: &'a str,
}

impl Serialize for Told<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(members) = self.answer.as_object() else { return self.answer.serialize(serializer) };
        let mut out = serializer.serialize_map(Some(members.len()))?;
        for (name, value) in members {
            match (name.as_str(), value) {
                ("requestId", _) => out.serialize_entry(name, self.request_id)?,
                ("results", Value::Array(results)) => {
                    let results: Vec<Self> = results.iter().map(|answer| Self { answer, ..*self }).collect();
                    out.serialize_entry(name, &results)?;
                }
                ("usedPreAggregations", Value::Object(used)) => out.serialize_entry(name, &undated(used))?,
                _ => out.serialize_entry(name, value)?,
            }
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
            let told = Told { answer: &answer, request_id: "ours" };
            let told: Value = serde_json::from_str(&serde_json::to_string(&told).unwrap()).unwrap();
            assert_eq!(told, whole(is_multi, one("ours", Value::Null)));
        }
    }
}
