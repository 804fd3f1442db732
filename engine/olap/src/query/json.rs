//! Converts validated queries back to JSON, which results echo.

use serde_json::{Map, Value, json};

use super::{Filter, Query};

impl Query {
    /// The query as results echo it: times are resolved, and values are texts.
    pub fn to_json(&self) -> Value {
        let names =
            |ids: &[crate::model::MemberId]| ids.iter().map(|id| Value::from(id.to_string())).collect::<Value>();
        let mut out = Map::new();
        out.insert("measures".into(), names(&self.measures));
        out.insert("dimensions".into(), names(&self.dimensions));
        out.insert("segments".into(), names(&self.segments));
        out.insert("timeDimensions".into(), self.times.iter().map(time).collect());
        out.insert("filters".into(), self.filters.iter().map(filter).collect());
        if let Some(order) = &self.order {
            out.insert("order".into(), order.iter().map(|k| json!({"id": k.id, "desc": k.descends})).collect());
        }
        out.insert("limit".into(), self.limit.into());
        out.insert("rowLimit".into(), self.limit.into());
        if self.offset > 0 {
            out.insert("offset".into(), self.offset.into());
        }
        out.insert("timezone".into(), self.timezone.as_str().into());
        for (key, is) in [("total", self.total), ("ungrouped", self.ungrouped)] {
            if is {
                out.insert(key.into(), true.into());
            }
        }
        if let Some(format) = self.format {
            out.insert("responseFormat".into(), format.word().into());
        }
        if self.exemplars > 0 {
            out.insert("exemplars".into(), self.exemplars.into());
        }
        if !self.hints.is_empty() {
            out.insert("joinHints".into(), json!(self.hints));
        }
        Value::Object(out)
    }
}

fn time(entry: &super::TimeEntry) -> Value {
    let mut out = Map::new();
    out.insert("dimension".into(), entry.member.to_string().into());
    if let Some(granularity) = &entry.granularity {
        out.insert("granularity".into(), granularity.name.as_str().into());
    }
    if let Some(range) = &entry.range {
        out.insert("dateRange".into(), json!(range.written()));
    }
    Value::Object(out)
}

fn filter(filter: &Filter) -> Value {
    match filter {
        Filter::And(inner) => json!({"and": inner.iter().map(self::filter).collect::<Vec<_>>()}),
        Filter::Or(inner) => json!({"or": inner.iter().map(self::filter).collect::<Vec<_>>()}),
        Filter::Leaf(leaf) => {
            let mut out = json!({"member": leaf.member.to_string(), "operator": leaf.operator});
            if !leaf.values.is_empty() {
                out["values"] = json!(leaf.values);
            }
            out
        }
    }
}
