//! Parts of logs of a snapshot: which of them a scan reads, and which of their row groups.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use quiver_types::logs::{FieldPattern, LogRequest, OBSERVED_TIME, SEVERITY_NUMBER, StreamId, StreamSelector};
use quiver_types::stats::add;
use quiver_types::tables::logs as table;
use quiver_types::{Access, LabelSet, ReadStats, Result};
use tokio::sync::OnceCell;

use super::block::COMPUTED;
use super::eval::selects;
use super::group::Group;
use super::prune;
use crate::error::leave_out;
use crate::part::logs::{ColumnIndex, ColumnKind, PartLogs, PartStream};
use crate::part::{Part, PartMeta};
use crate::snapshot::Snapshot;

/// By what parts were left out.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Pruned {
    pub(super) total: usize,
    pub(super) time: usize,
    pub(super) service: usize,
    pub(super) name: usize,
}

/// A part as a scan sees it.
#[derive(Debug)]
pub(super) struct PartScan {
    pub(super) part: Arc<Part>,
    access: Access,
    request: Arc<LogRequest>,
    opened: OnceCell<Arc<Opened>>,
}

/// What a scan knows of a part that it reads.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) part: Arc<Part>,
    pub(super) logs: Arc<PartLogs>,
    /// By number of the stream: whether the caller may see its rows; `None`: all of them.
    pub(super) allowed: Option<Vec<bool>>,
    /// Filters of words of columns that the filter has words for.
    pub(super) words: HashMap<String, Arc<ColumnIndex>>,
}

/// First and last nanosecond of what a part may hold.
fn range_of(meta: &PartMeta) -> (i64, i64) {
    (meta.min_ts.saturating_mul(1_000_000), meta.max_ts.saturating_mul(1_000_000).saturating_add(999_999))
}

/// Chooses the parts that may hold rows that match.
pub(super) fn choose(
    snapshot: &Snapshot,
    access: &Access,
    request: &Arc<LogRequest>,
    stats: &ReadStats,
) -> (Vec<Arc<PartScan>>, Pruned) {
    let (min, max) = request.filter.time_bounds();
    let parts = snapshot.visible.table(table::TABLE.name);
    let mut pruned = Pruned { total: parts.len(), ..Pruned::default() };
    let mut chosen = Vec::new();
    for part in parts {
        let meta = &part.meta;
        let range = range_of(meta);
        if range.1 < min || max < range.0 {
            pruned.time += 1;
        } else if !access.is_full() && !meta.services_all && !meta.services.iter().any(|s| access.allows(s)) {
            pruned.service += 1;
        } else if !prune::part_may_match(&request.filter, meta, range) {
            pruned.name += 1;
        } else {
            chosen.push(Arc::new(PartScan {
                part: Arc::clone(part),
                access: access.clone(),
                request: Arc::clone(request),
                opened: OnceCell::new(),
            }));
        }
    }
    add(&stats.parts_total, pruned.total as u64);
    (chosen, pruned)
}

impl PartScan {
    /// First and last time.
    pub(super) fn range(&self) -> (i64, i64) {
        range_of(&self.part.meta)
    }

    /// Gives its row groups, without those that cannot match.
    pub(super) async fn groups(&self, stats: &Arc<ReadStats>) -> Result<Vec<Group>> {
        let opened = self.opened.get_or_try_init(|| self.open(stats)).await?;
        let (min, max) = self.request.filter.time_bounds();
        let logs = &opened.logs;
        let wanted = (0..logs.groups()).filter(|&g| {
            let (first, last) = logs.group_ranges[g];
            first <= max && min <= last
        });
        let mut groups = Vec::new();
        for group in wanted {
            let range = logs.group_rows(group);
            let streams = streams_of(&logs.streams, &range);
            let visible = opened.allowed.as_ref().is_none_or(|a| a[streams.clone()].contains(&true));
            let matching = visible
                && logs.streams[streams]
                    .iter()
                    .any(|s| prune::stream_may_match(&self.request.filter, &s.stream, s.range));
            if matching {
                groups.push(Group::new(Arc::clone(opened), group));
            }
        }
        Ok(groups)
    }

    async fn open(&self, stats: &Arc<ReadStats>) -> Result<Arc<Opened>> {
        let logs = self.part.logs(stats).await?;
        add(&stats.parts_read, 1);
        add(&stats.pages_total, logs.footer.pages());
        let allowed = (!self.access.is_full())
            .then(|| logs.streams.iter().map(|s| self.access.allows(&s.stream.service)).collect());
        let mut words = HashMap::new();
        for name in prune::fields_with_words(&self.request.filter) {
            let kind = logs.columns.find(&name).map(|at| logs.columns.columns[at].kind);
            if matches!(kind, Some(ColumnKind::Text | ColumnKind::Coded | ColumnKind::Hex(_)))
                && let Some(index) = self.part.log_index(&name, stats).await?
            {
                words.insert(name, index);
            }
        }
        Ok(Arc::new(Opened { part: Arc::clone(&self.part), logs, allowed, words }))
    }
}

/// Numbers of the streams that have rows in a range.
pub(super) fn streams_of(streams: &[PartStream], rows: &Range<u64>) -> Range<usize> {
    let first = streams.partition_point(|s| s.rows.end <= rows.start);
    let len = streams[first..].partition_point(|s| s.rows.start < rows.end);
    first..first + len
}

/// Adds the streams that parts hold.
pub(super) async fn streams(
    snapshot: &Snapshot,
    access: &Access,
    selector: &StreamSelector,
    range: (i64, i64),
    stats: &ReadStats,
    found: &mut BTreeMap<StreamId, LabelSet>,
) -> Result<()> {
    let parts = snapshot.visible.table(table::TABLE.name);
    add(&stats.parts_total, parts.len() as u64);
    for part in parts {
        let own = range_of(&part.meta);
        if own.1 < range.0 || range.1 < own.0 {
            continue;
        }
        add(&stats.parts_read, 1);
        let logs = match part.logs(stats).await {
            Ok(logs) => logs,
            Err(e) => {
                leave_out(stats, e)?;
                continue;
            }
        };
        let wanted = logs.streams.iter().filter(|s| {
            s.range.0 <= range.1
                && range.0 <= s.range.1
                && access.allows(&s.stream.service)
                && !found.contains_key(&s.stream.id)
                && selects(selector, &s.stream)
        });
        let wanted: Vec<_> = wanted.map(|s| (s.stream.id, s.stream.labels.clone())).collect();
        found.extend(wanted);
    }
    Ok(())
}

/// Says whether a pattern names fields that are computed.
pub(super) fn names_computed(field: &FieldPattern) -> bool {
    match field {
        FieldPattern::Name(name) => {
            COMPUTED.contains(&name.as_str())
                || [SEVERITY_NUMBER, OBSERVED_TIME, table::SERVICE].contains(&name.as_str())
        }
        FieldPattern::Prefix(_) => false,
    }
}
