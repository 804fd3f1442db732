//! Tables whose rows are kept as they came: those of alerting (`history`) and of the server's own use (`usage`).

use super::{TableDef, history, usage};

/// All of them.
pub const TABLES: [&TableDef; 8] = [
    &history::ALERT_EVENTS,
    &history::ALERT_ACTIONS,
    &history::RULE_EVALUATIONS,
    &history::NOTIFICATIONS,
    &usage::QUERY_LOG,
    &usage::STORAGE_STATS,
    &usage::RESOURCE_HEALTH,
    &usage::INGEST_USAGE,
];

/// Finds one by its number.
pub fn numbered(number: u16) -> Option<&'static TableDef> {
    TABLES.into_iter().find(|table| table.number == number)
}
