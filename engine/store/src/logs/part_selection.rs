//! Parts of logs in a snapshot: which of them, and which of their row groups, a scan reads.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use quiver_types::logs::{LogRequest, StreamId, StreamSelector};
use quiver_types::read_stats::add;
use quiver_types::tables::logs as table;
use quiver_types::{Access, LabelSet, ReadStats, Result};
use tokio::sync::OnceCell;

use super::open_part::{OpenedLogPart, streams_of};
use super::part_streams::PartSlots;
use super::pruning;
use super::row_group::Group;
use super::stream_selection::{StreamTest, allowed, selects};
use crate::error::leave_out;
use crate::part::logs::{ColumnKind, StreamSet};
use crate::part::{Part, PartMeta};
use crate::snapshot::Snapshot;

/// Number of parts that were pruned, by reason.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct PruneCounts {
    pub(super) total: usize,
    pub(super) time: usize,
    pub(super) service: usize,
    pub(super) name: usize,
}

/// A part within one run of a scan.
#[derive(Debug)]
pub(super) struct PartScan {
    pub(super) part: Arc<Part>,
    access: Access,
    request: Arc<LogRequest>,
    opened: OnceCell<Arc<OpenedLogPart>>,
}

/// Time range of a part, in nanoseconds.
fn range_of(meta: &PartMeta) -> (i64, i64) {
    (meta.min_ts.saturating_mul(1_000_000), meta.max_ts.saturating_mul(1_000_000).saturating_add(999_999))
}

/// Selects the parts that may contain matching rows.
pub(super) fn choose(snapshot: &Snapshot, access: &Access, request: &LogRequest) -> (Vec<Arc<Part>>, PruneCounts) {
    let (min, max) = request.filter.time_bounds();
    let parts = snapshot.visible.table(table::TABLE.name);
    let mut pruned = PruneCounts { total: parts.len(), ..PruneCounts::default() };
    let mut chosen = Vec::new();
    for part in parts {
        let meta = &part.meta;
        let range = range_of(meta);
        if range.1 < min || max < range.0 {
            pruned.time += 1;
        } else if !meta.may_show(access) {
            pruned.service += 1;
        } else if !pruning::part_may_match(&request.filter, meta, range) {
            pruned.name += 1;
        } else {
            chosen.push(Arc::clone(part));
        }
    }
    (chosen, pruned)
}

impl PartScan {
    pub(super) fn new(part: &Arc<Part>, access: &Access, request: &Arc<LogRequest>) -> Self {
        let (part, access, request) = (Arc::clone(part), access.clone(), Arc::clone(request));
        Self { part, access, request, opened: OnceCell::new() }
    }

    /// First and last time, in nanoseconds.
    pub(super) fn range(&self) -> (i64, i64) {
        range_of(&self.part.meta)
    }

    /// The part's row groups, without those that cannot match.
    pub(super) async fn groups(&self, stats: &Arc<ReadStats>) -> Result<Vec<Group>> {
        let opened = self.opened.get_or_try_init(|| self.open(stats)).await?;
        let (min, max) = self.request.filter.time_bounds();
        let logs = &opened.logs;
        let wanted = (0..logs.groups()).filter(|&g| {
            let (first, last) = logs.group_ranges[g];
            first <= max && min <= last
        });
        let mut groups = Vec::new();
        if let Some(slots) = &opened.slots {
            let streams = opened.wanted(slots, &self.request, stats).await?;
            for group in wanted {
                let matching = match &streams {
                    None => true,
                    Some(streams) => streams.any_in(&slots.streams_within(&logs.group_rows(group)).await?),
                };
                if matching {
                    groups.push(Group::new(Arc::clone(opened), group));
                }
            }
            return Ok(groups);
        }
        let all = logs.streams.as_deref().unwrap_or_default();
        for group in wanted {
            let range = logs.group_rows(group);
            let streams = streams_of(all, &range);
            let numbers = streams.start as u32..streams.end as u32;
            let visible = opened.allowed.as_ref().is_none_or(|a| a.any_in(&numbers));
            let matching = visible
                && all[streams].iter().any(|s| pruning::stream_may_match(&self.request.filter, &s.stream, s.range));
            if matching {
                groups.push(Group::new(Arc::clone(opened), group));
            }
        }
        Ok(groups)
    }

    async fn open(&self, stats: &Arc<ReadStats>) -> Result<Arc<OpenedLogPart>> {
        let logs = self.part.logs(stats).await?;
        add(&stats.parts_read, 1);
        add(&stats.pages_total, logs.footer.pages());
        let slots = match logs.streams {
            None => Some(PartSlots::new(Arc::clone(&self.part), Arc::clone(stats))),
            Some(_) => None,
        };
        let allowed = match (&logs.streams, &slots) {
            _ if self.access.is_full() => None,
            (_, Some(slots)) => Some(allowed(slots, &self.access).await?),
            (streams, None) => {
                let all = streams.as_deref().unwrap_or_default();
                Some(StreamSet::of(all.len(), |i| self.access.allows(&all[i].stream.service)))
            }
        };
        let mut words = HashMap::new();
        for name in pruning::fields_with_words(&self.request.filter) {
            let kind = logs.columns.find(&name).map(|at| logs.columns.columns[at].kind);
            if matches!(kind, Some(ColumnKind::Text | ColumnKind::Coded | ColumnKind::Hex(_)))
                && let Some(index) = self.part.log_index(&name, stats).await?
            {
                words.insert(name, index);
            }
        }
        Ok(Arc::new(OpenedLogPart { part: Arc::clone(&self.part), logs, allowed, slots, words }))
    }
}

/// Which streams are looked for in parts.
#[derive(Clone, Copy)]
pub(super) struct StreamSearch<'a> {
    pub(super) access: &'a Access,
    pub(super) selector: &'a StreamSelector,
    /// First and last time, Unix nanoseconds.
    pub(super) range: (i64, i64),
    pub(super) stats: &'a Arc<ReadStats>,
}

impl StreamSearch<'_> {
    /// Adds the streams that parts contain.
    pub(super) async fn in_parts(self, snapshot: &Snapshot, found: &mut BTreeMap<StreamId, LabelSet>) -> Result<()> {
        let parts = snapshot.visible.table(table::TABLE.name);
        add(&self.stats.parts_total, parts.len() as u64);
        for part in parts {
            let own = range_of(&part.meta);
            if own.1 < self.range.0 || self.range.1 < own.0 {
                continue;
            }
            add(&self.stats.parts_read, 1);
            if let Err(e) = streams_in(part, self, found).await {
                leave_out(self.stats, e)?;
            }
        }
        Ok(())
    }
}

async fn streams_in(
    part: &Arc<Part>,
    search: StreamSearch<'_>,
    found: &mut BTreeMap<StreamId, LabelSet>,
) -> Result<()> {
    let StreamSearch { access, selector, range, stats } = search;
    let logs = part.logs(stats).await?;
    let Some(streams) = &logs.streams else {
        let slots = PartSlots::new(Arc::clone(part), Arc::clone(stats));
        let mut set = StreamSet::clone(&*slots.set(StreamTest::Selector(selector)).await?);
        if !access.is_full() {
            set = set.and(&allowed(&slots, access).await?);
        }
        let each = &mut |id: StreamId, labels: &dyn Fn() -> Result<LabelSet>| {
            if let std::collections::btree_map::Entry::Vacant(new) = found.entry(id) {
                new.insert(labels()?);
            }
            Ok(())
        };
        return slots.infos(&set, range, each).await;
    };
    let wanted = streams.iter().filter(|s| {
        s.range.0 <= range.1
            && range.0 <= s.range.1
            && access.allows(&s.stream.service)
            && !found.contains_key(&s.stream.id)
            && selects(selector, &s.stream)
    });
    let wanted: Vec<_> = wanted.map(|s| (s.stream.id, s.stream.labels.clone())).collect();
    found.extend(wanted);
    Ok(())
}
