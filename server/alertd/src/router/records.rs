//! The stored form of alerts, silences and notification log entries: JSON whose fields never change their meaning.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quiver_alerting::dispatch::{Alert, Entry, LogKey};
use quiver_alerting::matchers::{Matchers, matcher};
use quiver_alerting::silences::Silence;
use quiver_types::{LabelSet, MatchOp, Matcher};
use serde_json::{Value, json};

pub(crate) fn labels(labels: &LabelSet) -> Value {
    labels.iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect::<serde_json::Map<_, _>>().into()
}

pub(crate) fn texts(value: &Value) -> Option<BTreeMap<String, String>> {
    value.as_object()?.iter().map(|(name, v)| Some((name.clone(), v.as_str()?.to_owned()))).collect()
}

pub(crate) fn label_set(value: &Value) -> Option<LabelSet> {
    texts(value).map(|map| LabelSet::from_pairs(map.iter().map(|(n, v)| (n.as_str(), v.as_str()))))
}

pub(super) fn alert(alert: &Alert) -> Value {
    json!({
        "labels": labels(&alert.labels), "annotations": *alert.annotations, "startsAt": alert.starts_at,
        "endsAt": alert.ends_at, "isTimeout": alert.is_timeout, "updatedAt": alert.updated_at,
        "generatorURL": &*alert.generator_url,
    })
}

pub(super) fn read_alert(value: &Value) -> Option<Alert> {
    Some(Alert {
        labels: label_set(&value["labels"])?,
        annotations: Arc::new(texts(&value["annotations"])?),
        starts_at: value["startsAt"].as_i64()?,
        ends_at: value["endsAt"].as_i64()?,
        is_timeout: value["isTimeout"].as_bool()?,
        updated_at: value["updatedAt"].as_i64()?,
        generator_url: value["generatorURL"].as_str()?.into(),
    })
}

fn op(op: MatchOp) -> &'static str {
    op.as_str()
}

fn read_matcher(value: &Value) -> Option<Matcher> {
    let ops = [MatchOp::Equal, MatchOp::NotEqual, MatchOp::Regex, MatchOp::NotRegex];
    let op = ops.into_iter().find(|op| Some(op.as_str()) == value["op"].as_str())?;
    matcher(value["name"].as_str()?, op, value["value"].as_str()?).ok()
}

pub(super) fn silence(silence: &Silence) -> Value {
    let matchers: Vec<Value> =
        silence.matchers.iter().map(|m| json!({"name": m.name, "op": op(m.op), "value": m.value})).collect();
    json!({
        "id": silence.id, "matchers": matchers, "startsAt": silence.starts_at, "endsAt": silence.ends_at,
        "updatedAt": silence.updated_at, "createdBy": silence.created_by, "comment": silence.comment,
        "description": silence.description, "freeLabels": silence.labels, "annotations": silence.annotations,
        "version": silence.version, "createdAt": silence.created_at, "updatedBy": silence.updated_by,
    })
}

pub(super) fn read_silence(value: &Value) -> Option<Silence> {
    let matchers = value["matchers"].as_array()?.iter().map(read_matcher).collect::<Option<Vec<_>>>()?;
    Some(Silence {
        id: value["id"].as_str()?.to_owned(),
        matchers: Matchers::in_order(matchers),
        starts_at: value["startsAt"].as_i64()?,
        ends_at: value["endsAt"].as_i64()?,
        updated_at: value["updatedAt"].as_i64()?,
        created_by: value["createdBy"].as_str()?.to_owned(),
        comment: value["comment"].as_str()?.to_owned(),
        // Rows of earlier builds lack these fields.
        description: value["description"].as_str().unwrap_or_default().to_owned(),
        labels: texts(&value["freeLabels"]).unwrap_or_default(),
        annotations: texts(&value["annotations"]).unwrap_or_default(),
        version: value["version"].as_i64().unwrap_or(1),
        created_at: value["createdAt"].as_i64().unwrap_or(value["updatedAt"].as_i64()?),
        updated_by: value["updatedBy"].as_str().unwrap_or_default().to_owned(),
    })
}

pub(super) fn log_entry_key(key: &LogKey) -> Vec<u8> {
    json!([key.group_key, key.receiver, key.integration, key.idx]).to_string().into_bytes()
}

pub(super) fn log_entry(entry: &Entry) -> Value {
    json!({"at": entry.at, "firing": entry.firing, "resolved": entry.resolved, "held": entry.held, "said": entry.said})
}

pub(super) fn read_log_entry(key: &[u8], value: &Value) -> Option<(LogKey, Entry)> {
    let key: (String, String, String, usize) = serde_json::from_slice(key).ok()?;
    let set = |name: &str| value[name].as_array()?.iter().map(Value::as_u64).collect::<Option<BTreeSet<u64>>>();
    let entry = Entry {
        at: value["at"].as_i64()?,
        firing: set("firing")?,
        resolved: set("resolved")?,
        held: set("held")?,
        // Rows of earlier builds have none of this.
        said: texts(&value["said"]).unwrap_or_default(),
    };
    Some((LogKey { group_key: key.0, receiver: key.1, integration: key.2, idx: key.3 }, entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_read() {
        let one = Alert {
            labels: LabelSet::from_pairs([("a", "1"), ("ü", "\"")]),
            annotations: Arc::new([("s".to_owned(), "x".to_owned())].into()),
            starts_at: -5,
            ends_at: i64::MAX,
            is_timeout: true,
            updated_at: 7,
            generator_url: "http://g".into(),
        };
        assert_eq!(read_alert(&alert(&one)), Some(one));
        let matchers = quiver_alerting::matchers::read("b=~\"x|y\", a=\"1\", d!~\"z\", c!=\"\"").unwrap().matchers;
        let mine = Silence {
            id: "i".to_owned(),
            matchers: Matchers::in_order(matchers),
            starts_at: 1,
            ends_at: 2,
            updated_at: 3,
            created_by: "me".to_owned(),
            comment: String::new(),
            description: "d".to_owned(),
            labels: [("team".to_owned(), "a".to_owned())].into(),
            annotations: [("link".to_owned(), "b".to_owned())].into(),
            version: 7,
            created_at: 1,
            updated_by: "you".to_owned(),
        };
        assert_eq!(read_silence(&silence(&mine)), Some(mine));
        let key = LogKey { group_key: "{}:{}".into(), receiver: "r".into(), integration: "webhook".into(), idx: 2 };
        let said = [("ts".to_owned(), "1.5".to_owned())].into();
        let entry = Entry { at: 9, firing: [u64::MAX].into(), resolved: [].into(), held: [1, 2].into(), said };
        let mut row = log_entry(&entry);
        assert_eq!(read_log_entry(&log_entry_key(&key), &row), Some((key.clone(), entry.clone())));
        row.as_object_mut().unwrap().remove("said");
        let older = Entry { said: BTreeMap::new(), ..entry };
        assert_eq!(read_log_entry(&log_entry_key(&key), &row), Some((key, older)), "a row of an earlier build");
        assert_eq!(read_alert(&json!({"labels": {"a": 1}})), None);
    }

    /// A row that lacks a field, or has something else there, is none; what earlier builds did not write has its default.
    #[test]
    fn rows_that_lack_something() {
        type Reads<'r> = &'r dyn Fn(&Value) -> bool;
        let one = json!({"labels": {"a": "1"}, "annotations": {}, "startsAt": 1, "endsAt": 2, "isTimeout": false,
            "updatedAt": 3, "generatorURL": ""});
        let mine = json!({"id": "i", "matchers": [{"name": "a", "op": "=", "value": "1"}], "startsAt": 1, "endsAt": 2,
            "updatedAt": 3, "createdBy": "me", "comment": "c"});
        let entry = json!({"at": 1, "firing": [], "resolved": [1], "held": [2]});
        let key =
            log_entry_key(&LogKey { group_key: "g".into(), receiver: "r".into(), integration: "i".into(), idx: 0 });
        let reads: [(&Value, Reads<'_>); 3] = [
            (&one, &|row: &Value| read_alert(row).is_some()),
            (&mine, &|row: &Value| read_silence(row).is_some()),
            (&entry, &|row: &Value| read_log_entry(&key, row).is_some()),
        ];
        for (row, is_read) in reads {
            assert!(is_read(row), "{row}");
            for name in row.as_object().unwrap().keys() {
                let mut lacking = row.clone();
                lacking.as_object_mut().unwrap().remove(name);
                assert!(!is_read(&lacking), "without {name}");
                lacking[name] = json!({"other": 5});
                assert!(!is_read(&lacking), "{name} is something else");
            }
            assert!(!is_read(&Value::Null));
        }
        let older = read_silence(&mine).unwrap();
        assert_eq!((older.version, older.created_at, older.updated_by.as_str(), older.labels.len()), (1, 3, "", 0));
        for bad in [&b""[..], b"[]", b"[\"g\",\"r\",\"i\",-1]", b"[\"g\",\"r\",\"i\"]", b"\xff"] {
            assert_eq!(read_log_entry(bad, &entry), None, "{bad:?}");
        }
        for (op, value) in [("==", "1"), ("=~", "("), ("", "1")] {
            let mut row = mine.clone();
            row["matchers"] = json!([{"name": "a", "op": op, "value": value}]);
            assert_eq!(read_silence(&row), None, "{op} {value}");
        }
    }
}
