//! Tables of what alerting did: state changes of alerts, actions on them, evaluations of rules, notifications.
//!
//! Each table is stored in a single file, rows unchanged. As in the WAL, no column is NULL at rest: a missing value is an
//! empty text, the time 0, or NaN.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::columns::millis;
use super::{FileDef, TableDef};

/// Services of a row as [`services_text`] writes them; who may see the row must see all of them.
pub const SERVICE: &str = "__q_service";

/// Services of which a silence holds back alerts and no others, as [`services_text`] writes them; who sees one of them may see
/// the silence. No column of statements.
pub const SILENCE_SERVICES: &str = "__q_silence_services";

/// Writes services, a line each. A name with a line feed is one name all the same: else who sees both of its lines, or sees
/// them as one, would see its rows.
pub fn services_text<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let escaped = |name: T| name.as_ref().replace('\\', r"\\").replace('\n', r"\n");
    names.into_iter().map(escaped).collect::<Vec<_>>().join("\n")
}

/// Gives the services that [`services_text`] wrote.
pub fn services_in(text: &str) -> impl Iterator<Item = Cow<'_, str>> {
    text.split('\n').map(unescaped)
}

fn unescaped(name: &str) -> Cow<'_, str> {
    if !name.contains('\\') {
        return Cow::Borrowed(name);
    }
    let (mut out, mut rest) = (String::with_capacity(name.len()), name);
    while let Some((before, after)) = rest.split_once('\\') {
        out.push_str(before);
        let (meant, skipped) = match after.as_bytes().first() {
            Some(b'n') => ('\n', 1),
            Some(b'\\') => ('\\', 1),
            // Written before names were escaped.
            _ => ('\\', 0),
        };
        out.push(meant);
        rest = &after[skipped..];
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// State changes of alerts.
pub const ALERT_EVENTS: TableDef = TableDef {
    name: "alert_events",
    number: 10,
    version: 1,
    files: &[FileDef { kind: "rows", schema: alert_events }],
    added: &[],
    dynamic: false,
    sort_key: &["time"],
    time_column: "time",
    window_ms: 86_400_000,
};

/// What somebody did to an alert.
pub const ALERT_ACTIONS: TableDef = TableDef {
    name: "alert_actions",
    number: 11,
    version: 2,
    files: &[FileDef { kind: "rows", schema: alert_actions }],
    added: &[(SILENCE_SERVICES, 2)],
    ..ALERT_EVENTS
};

/// Evaluations of rules, those that were left out, too.
pub const RULE_EVALUATIONS: TableDef = TableDef {
    name: "rule_evaluations",
    number: 12,
    version: 2,
    files: &[FileDef { kind: "rows", schema: rule_evaluations }],
    added: &[("scanned_bytes", 2)],
    ..ALERT_EVENTS
};

/// Attempts to tell a receiver.
pub const NOTIFICATIONS: TableDef = TableDef {
    name: "notifications",
    number: 13,
    files: &[FileDef { kind: "rows", schema: notifications }],
    ..ALERT_EVENTS
};

/// Rows of a table that stores them unchanged, with all its columns.
#[derive(Debug, Clone)]
pub struct TableRows {
    /// The table that they belong to.
    pub table: &'static TableDef,
    /// All columns of the table, in the order of its schema.
    pub rows: RecordBatch,
}

pub(super) fn text(name: &str) -> Field {
    Field::new(name, DataType::Utf8, false)
}

pub(super) fn number(name: &str) -> Field {
    Field::new(name, DataType::Int64, false)
}

pub(super) fn float(name: &str) -> Field {
    Field::new(name, DataType::Float64, false)
}

pub(super) fn time(name: &str) -> Field {
    millis(name, false)
}

/// A list of texts.
pub fn text_list() -> DataType {
    DataType::List(Arc::new(Field::new("item", DataType::Utf8, false)))
}

fn map(name: &str) -> Field {
    Field::new(name, super::columns::map(), false)
}

pub(super) fn columns(fields: Vec<Field>) -> SchemaRef {
    Arc::new(Schema::new(fields))
}

/// Columns of `alert_events`.
pub fn alert_events() -> SchemaRef {
    columns(vec![
        time("time"),
        text("episode_id"),
        text("fingerprint"),
        text("from_state"),
        text("to_state"),
        time("starts_at"),
        time("ends_at"),
        float("value"),
        text("source"),
        text("rule_id"),
        text("rule_name"),
        text("namespace"),
        text("rule_group"),
        text("generator_url"),
        map("labels"),
        map("annotations"),
        text(SERVICE),
    ])
}

/// Columns of `alert_actions`.
pub fn alert_actions() -> SchemaRef {
    columns(vec![
        time("time"),
        text("episode_id"),
        text("fingerprint"),
        text("action"),
        text("actor"),
        text("actor_type"),
        text("outcome"),
        text("subject"),
        text("comment"),
        time("starts_at"),
        map("labels"),
        text(SERVICE),
        text(SILENCE_SERVICES),
    ])
}

/// Columns of `rule_evaluations`.
pub fn rule_evaluations() -> SchemaRef {
    columns(vec![
        time("time"),
        time("scheduled_at"),
        time("started_at"),
        text("rule_id"),
        text("rule_name"),
        text("namespace"),
        text("rule_group"),
        text("language"),
        text("outcome"),
        text("error"),
        float("duration_ms"),
        number("result_series"),
        float("scanned_bytes"),
        text(SERVICE),
    ])
}

/// Columns of `notifications`.
pub fn notifications() -> SchemaRef {
    columns(vec![
        time("time"),
        text("notification_id"),
        text("receiver"),
        text("integration"),
        number("integration_index"),
        text("route_path"),
        text("group_key"),
        text("reason"),
        text("outcome"),
        text("error_class"),
        text("error"),
        number("status"),
        text("alert_status"),
        number("attempt"),
        time("sent_at"),
        time("first_alert_at"),
        float("duration_ms"),
        number("alert_count"),
        Field::new("fingerprints", text_list(), false),
        text(SERVICE),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_told_apart() {
        let check = |names: &[&str], text: &str| {
            assert_eq!(services_text(names), text);
            assert_eq!(services_in(text).collect::<Vec<_>>(), names);
        };
        check(&[""], "");
        check(&["cart"], "cart");
        check(&["cart", "pay"], "cart\npay");
        check(&["cart\npay"], r"cart\npay");
        check(&[r"cart\npay", "\n", r"\"], "cart\\\\npay\n\\n\n\\\\");
        let older: Vec<_> = services_in(r"a\b\").collect();
        assert_eq!(older, [r"a\b\"]);
    }
}
