//! Decides which fields get a column, and of which kind, when parts are merged.

use std::collections::BTreeMap;

use super::columns::{ColumnKind, ColumnPlan, LogColumns, NamePolicy};
use super::metadata::PartLogs;
use crate::logs::typed_text;
use crate::part::PartMeta;

/// The columns of a merged part.
#[derive(Debug)]
pub(crate) struct MergedColumns {
    pub(crate) plan: LogColumns,
    /// Whether there may be fields without a column.
    pub(crate) overflow: bool,
}

/// Selects the columns of a part that is merged from others, given their metadata.
pub(crate) fn merged_columns(parts: &[(&PartMeta, &PartLogs)], group_rows: usize) -> MergedColumns {
    let rows: u64 = parts.iter().map(|(meta, _)| meta.rows).sum();
    let mut counts: BTreeMap<&str, u64> = BTreeMap::new();
    for (meta, logs) in parts {
        for column in &logs.columns.columns {
            *counts.entry(&column.name).or_default() += column.rows;
        }
        for name in logs.columns.constants.keys() {
            *counts.entry(name).or_default() += meta.rows;
        }
    }
    let constant = |name: &str| {
        let mut values = parts.iter().map(|(_, logs)| logs.columns.constants.get(name));
        let first = values.next().flatten()?;
        values.all(|v| v == Some(first)).then(|| first.clone())
    };
    let mut plan = LogColumns::default();
    for name in counts.keys() {
        if let Some(value) = constant(name) {
            plan.constants.insert((*name).to_owned(), value);
        }
    }
    let open = counts.iter().filter(|(name, _)| !plan.constants.contains_key(**name));
    let chosen = NamePolicy::new(rows, group_rows).choose(open.map(|(n, c)| ((*n).to_owned(), *c)).collect());
    let left_out = plan.constants.len() + chosen.len() < counts.len();
    for (name, rows) in chosen {
        let kind = merged_kind(parts, &name);
        plan.columns.push(ColumnPlan { name, kind, rows, of_stream: false, in_groups: Vec::new() });
    }
    MergedColumns { plan, overflow: left_out || parts.iter().any(|(_, logs)| logs.has.overflow) }
}

/// The kind that suits the values of all parts. Values in overflow maps can be any text.
fn merged_kind(parts: &[(&PartMeta, &PartLogs)], name: &str) -> ColumnKind {
    let mut kinds: Vec<(ColumnKind, u64)> = Vec::new();
    let mut constants = Vec::new();
    let mut any_text = false;
    for (meta, logs) in parts {
        if let Some(at) = logs.columns.find(name) {
            let column = &logs.columns.columns[at];
            match kinds.iter_mut().find(|k| k.0 == column.kind) {
                Some(known) => known.1 += column.rows,
                None => kinds.push((column.kind, column.rows)),
            }
        } else if let Some(value) = logs.columns.constants.get(name) {
            constants.push(value.as_str());
        } else {
            any_text |= logs.has.overflow && meta.names.may_contain(name);
        }
    }
    let fits = |kind: ColumnKind, value: &&str| match kind {
        ColumnKind::Text | ColumnKind::Coded => true,
        ColumnKind::Int => typed_text::read_int(value).is_some(),
        ColumnKind::Float => typed_text::read_float(value, &mut String::new()).is_some(),
        ColumnKind::Ipv4 => typed_text::read_ipv4(value).is_some(),
        ColumnKind::Time(digits) => typed_text::read_time(value).is_some_and(|t| t.1 == digits),
        ColumnKind::Hex(len) => value.len() == 2 * usize::from(len) && typed_text::read_hex(value, &mut Vec::new()),
    };
    let is_text = |kind: ColumnKind| matches!(kind, ColumnKind::Text | ColumnKind::Coded);
    match kinds[..] {
        // Only constants, with different values.
        [] => ColumnKind::Coded,
        [(kind, _)] if is_text(kind) || (!any_text && constants.iter().all(|c| fits(kind, c))) => kind,
        _ if kinds.iter().all(|k| is_text(k.0)) => kinds.iter().max_by_key(|k| k.1).map_or(ColumnKind::Text, |k| k.0),
        _ => ColumnKind::Text,
    }
}
