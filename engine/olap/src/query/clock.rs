//! Resolves the dates and phrases of a query.

use chrono_tz::Tz;
use serde_json::Value;

use super::error::{Read, err};
use crate::dates::parse;
use crate::dates::range::WallRange;
use crate::error::Reason;

/// The zone and the current time of a query.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    pub(super) tz: Tz,
    pub(super) now_ns: i64,
}

impl Clock {
    /// Resolves a text or a pair of texts.
    pub(super) fn range(&self, value: &Value, at: &str) -> Read<WallRange> {
        let texts: Option<Vec<&str>> = match value {
            Value::String(text) => {
                return parse::of_text(text, self.tz, self.now_ns).or_else(|e| err(Reason::BadDateRange, at, e));
            }
            Value::Array(list) => list.iter().map(Value::as_str).collect(),
            _ => None,
        };
        let Some(texts) = texts else {
            return err(Reason::BadType, at, "a date range is a text or a pair of texts");
        };
        parse::of_list(&texts, self.tz, self.now_ns).or_else(|e| err(Reason::BadDateRange, at, e))
    }
}
