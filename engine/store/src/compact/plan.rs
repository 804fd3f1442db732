//! Decides which parts to merge next: a pure function of the live parts, the time and the settings.
//!
//! Level 0 parts of a closed 2 h window become level 1 (one part per window) if that halves their number. A closed day
//! becomes level 2 (split by series range). Large parts of logs are flushed as level 1, and left alone while there are
//! few. Late data stays beside a day's level 2 parts, and is folded in when that is worth the rewriting. Flush, level 1
//! and level 2 give a write amplification of 3, and no order of arrival raises it above 5 (see `simulation`): parts are
//! merged only with others of similar size, never a few small ones with a large one again and again.

use std::collections::{BTreeMap, HashSet};

use quiver_types::Millis;
use quiver_types::tables;
use quiver_types::time::DAY_MS;

use crate::part::{PartId, PartMeta, PartOrigin, Place};
use crate::settings::CompactionSettings;

/// Level 0 parts that span more windows than this are not split by window; they wait until their day is closed.
const WINDOWS_SPLIT_MAX: i64 = 4;
/// When this many small parts have accumulated beside others, they are merged whether or not it pays off, because each
/// costs every query.
const SMALL_PARTS_MAX: usize = 16;
/// Late data is merged when this many parts of similar size have accumulated: later than other data, because it is
/// rewritten more often.
const LATE_PARTS_MAX: usize = 32;
/// Outputs of level 1 are split at this size: objects above 80 GiB cannot be uploaded.
pub(super) const LEVEL1_BYTES_MAX: u64 = 64 << 30;
/// Up to this many parts of a day that were flushed in compacted form are left as they are.
const PACKED_PARTS_MAX: usize = 16;

/// One compaction: which parts of a table and day are merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Name of the table.
    pub(crate) table: String,
    /// UTC day, in days since 1970.
    pub(crate) day: i32,
    /// Level of the outputs.
    pub(crate) level: u8,
    /// Length of the time windows that outputs are split by; `None`: only by series range.
    pub(crate) window_ms: Option<Millis>,
    /// What to merge.
    pub(crate) inputs: Vec<PartId>,
}

impl Plan {
    /// Number of rows at which an output ends, given the total rows and bytes of the inputs.
    pub(super) fn rows_max(&self, part_bytes: u64, rows: u64, bytes: u64) -> u64 {
        let largest = if self.level >= 2 { part_bytes } else { LEVEL1_BYTES_MAX };
        let share = largest as f64 / bytes.max(1) as f64;
        ((rows as f64 * share) as u64).max(1)
    }
}

/// What the planner knows besides the parts.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    pub(crate) now_ms: Millis,
    pub(crate) settings: &'a CompactionSettings,
    /// Compact everything to level 2, even open windows.
    pub(crate) force: bool,
    /// Budget in bytes for optional rewriting.
    pub(crate) spare_bytes: u64,
}

/// The compactions that are due, at most one per table and day, old days last.
pub(crate) fn plan<'a>(parts: impl IntoIterator<Item = &'a PartMeta>, ctx: &Context<'_>) -> Vec<Plan> {
    let mut days: BTreeMap<(i32, &str), Vec<&PartMeta>> = BTreeMap::new();
    for part in parts {
        days.entry((part.day, &part.table)).or_default().push(part);
    }
    days.into_iter().rev().filter_map(|((day, table), parts)| plan_day(table, day, parts, ctx)).collect()
}

fn plan_day(table: &str, day: i32, mut parts: Vec<&PartMeta>, ctx: &Context<'_>) -> Option<Plan> {
    let definition = tables::table(table)?;
    // Oldest first, so that if there are more inputs than one merge can take, they are merged in order of time.
    parts.sort_by_key(|p| (p.min_ts, p.id));
    if parts.iter().filter(|p| is_packed(p)).count() <= PACKED_PARTS_MAX {
        parts.retain(|p| !is_packed(p));
    }
    let (done, open): (Vec<_>, Vec<_>) = parts.iter().copied().partition(|p| p.level >= 2);
    if open.is_empty() {
        return None;
    }
    // Spans are compressed alike at all levels, so rewriting a single part would gain nothing.
    if table == tables::spans::TABLE.name && parts.len() == 1 && parts[0].bytes <= ctx.settings.part_bytes {
        return None;
    }
    let spooled = parts.iter().any(|p| p.place == Place::Spool);
    let make = |level, window_ms, inputs: &[&PartMeta]| Plan {
        table: table.to_owned(),
        day,
        level,
        window_ms,
        inputs: inputs.iter().map(|p| p.id).collect(),
    };
    let inputs_max = ctx.settings.inputs_max.max(2);
    // Compact the whole day at once; or, if it has too many parts, first merge the smallest of them, so that merged
    // data is rewritten as rarely as possible. The outputs of one compaction count as one input, because they are read
    // one after the other.
    let excess = (open.len() + sources(&done)).saturating_sub(inputs_max.max(sources(&done) + 1));
    let whole_day = || match excess {
        0 => make(2, None, &parts),
        _ => make(1, None, &smallest(&open, (excess + 1).min(inputs_max))),
    };
    let day_end = (i64::from(day) + 1) * DAY_MS;
    let close_ms = ctx.settings.close_delay.as_millis() as i64;
    let closed = |end: Millis| end.saturating_add(close_ms) <= ctx.now_ms;
    if ctx.force || (closed(day_end) && done.is_empty()) {
        // While a part is still in the spool, wait: the rest would have to be rewritten when it arrives.
        return (!spooled).then(whole_day).filter(|p| p.level == 2 || p.inputs.len() > 1);
    }
    if closed(day_end) {
        return match plan_late(&done, &open, ctx, spooled)? {
            Late::Fold => Some(whole_day()).filter(|p| p.level == 2 || p.inputs.len() > 1),
            Late::Merge(inputs) => Some(make(1, None, &inputs[..inputs.len().min(inputs_max)])),
        };
    }
    let stored: Vec<_> = open.iter().copied().filter(|p| p.place == Place::Store).collect();
    if definition.window_ms >= DAY_MS {
        let alike = alike(&stored, SMALL_PARTS_MAX)?;
        return Some(make(1, None, &alike[..alike.len().min(inputs_max)]));
    }
    plan_windows(definition.window_ms, &stored, ctx, closed).map(|(window_ms, inputs)| make(1, window_ms, &inputs))
}

/// Tells whether a part was flushed in compacted form (see `logs::flush`): it is so large that rewriting would save few
/// of its bytes and cost as much as the flush.
fn is_packed(part: &PartMeta) -> bool {
    part.level == 1 && matches!(part.origin, PartOrigin::Flushed { .. })
}

/// Number of readers that level 2 parts need: outputs of one compaction do not overlap and share a reader.
fn sources(done: &[&PartMeta]) -> usize {
    let id = |p: &&PartMeta| match &p.origin {
        PartOrigin::Compacted { compaction_id, .. } => *compaction_id,
        PartOrigin::Flushed { flush_id, .. } => *flush_id,
    };
    done.iter().map(id).collect::<HashSet<_>>().len()
}

/// Size class of a part. Sizes of a class are 32 times those of the previous one, so 32 merged parts of a class make
/// one of the next.
fn class(part: &PartMeta) -> u32 {
    part.bytes.max(1).ilog2() / 5
}

/// The smallest parts; within a size class, the oldest.
fn smallest<'p>(parts: &[&'p PartMeta], count: usize) -> Vec<&'p PartMeta> {
    let mut parts = parts.to_vec();
    parts.sort_by_key(|p| (class(p), p.min_ts, p.id));
    parts.truncate(count);
    // If all of them already have about the maximum size, merging them changes nothing.
    if parts.iter().map(|p| p.bytes).sum::<u64>() > LEVEL1_BYTES_MAX / 2 * count as u64 {
        parts.truncate(1);
    }
    parts
}

/// The parts of the smallest size class that has at least `count` parts.
fn alike<'p>(parts: &[&'p PartMeta], count: usize) -> Option<Vec<&'p PartMeta>> {
    let mut classes: BTreeMap<u32, Vec<&PartMeta>> = BTreeMap::new();
    for p in parts {
        classes.entry(class(p)).or_default().push(p);
    }
    classes.into_values().find(|of_class| of_class.len() >= count)
}

/// What to do with late data.
enum Late<'p> {
    /// Fold it into level 2.
    Fold,
    /// Merge these parts of it among themselves.
    Merge(Vec<&'p PartMeta>),
}

/// Late data of a day that is already at level 2: what is due, if anything.
fn plan_late<'p>(done: &[&PartMeta], late: &[&'p PartMeta], ctx: &Context<'_>, spooled: bool) -> Option<Late<'p>> {
    if spooled {
        return None;
    }
    let bytes = |parts: &[&PartMeta]| parts.iter().map(|p| p.bytes).sum::<u64>();
    let (done_bytes, late_bytes) = (bytes(done), bytes(late));
    // At least as much new data as old: rewriting costs at most twice the size of what is new.
    let worth = late_bytes >= done_bytes;
    let cheap = late.len() >= 4 && done_bytes + late_bytes <= ctx.spare_bytes;
    if worth || cheap {
        return Some(Late::Fold);
    }
    alike(late, LATE_PARTS_MAX).map(Late::Merge)
}

type Windows<'a> = (Option<Millis>, Vec<&'a PartMeta>);

/// The level 0 parts of closed windows, together with all parts that share a window with them.
fn plan_windows<'a>(
    window_ms: Millis,
    stored: &[&'a PartMeta],
    ctx: &Context<'_>,
    closed: impl Fn(Millis) -> bool,
) -> Option<Windows<'a>> {
    let window = |ts: Millis| ts.div_euclid(window_ms);
    let flushed: Vec<_> = stored.iter().copied().filter(|p| p.level == 0 || is_packed(p)).collect();
    let (narrow, wide): (Vec<&PartMeta>, Vec<&PartMeta>) =
        flushed.iter().partition(|p| window(p.max_ts) - window(p.min_ts) < WINDOWS_SPLIT_MAX);
    // Find runs of parts with adjoining windows; parts are sorted by their first time, so one pass suffices.
    let mut group: Vec<&PartMeta> = Vec::new();
    let mut last_window = Millis::MIN;
    let enough = |group: &[&PartMeta], last: Millis| {
        // Splitting makes one part per window, so with only a part or two per window there is nothing to gain.
        let windows = group.first().map_or(1, |g| last - window(g.min_ts) + 1) as usize;
        let least = ctx.settings.level0_parts_min.max(2).max(2 * windows - 1);
        group.len() >= least && closed((last + 1) * window_ms)
    };
    let take = |group: &[&'a PartMeta]| group[..group.len().min(ctx.settings.inputs_max.max(2))].to_vec();
    for part in narrow {
        let joins = window(part.min_ts) <= last_window
            && window(part.max_ts) - window(group.first().map_or(part.min_ts, |g| g.min_ts)) < 2 * WINDOWS_SPLIT_MAX;
        if !joins {
            if enough(&group, last_window) {
                return Some((Some(window_ms), take(&group)));
            }
            group.clear();
            last_window = Millis::MIN;
        }
        group.push(part);
        last_window = last_window.max(window(part.max_ts));
    }
    if enough(&group, last_window) {
        return Some((Some(window_ms), take(&group)));
    }
    (wide.len() >= SMALL_PARTS_MAX).then(|| (None, take(&wide)))
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::part::testing::part_meta;

    const HOUR: Millis = 3_600_000;

    struct Case {
        level: u8,
        from: Millis,
        to: Millis,
        bytes: u64,
        place: Place,
        packed: bool,
    }

    fn part(level: u8, from: Millis, to: Millis) -> Case {
        Case { level, from, to, bytes: 1000, place: Place::Store, packed: false }
    }

    fn metas(cases: &[Case]) -> Vec<PartMeta> {
        cases.iter().enumerate().map(|(i, c)| meta(i as u128, c)).collect()
    }

    fn meta(id: u128, c: &Case) -> PartMeta {
        let mut meta = part_meta(id, "metrics");
        if c.packed {
            let nil = PartId::nil();
            meta.origin = PartOrigin::Flushed { writer: nil, generation: 0, flush_id: nil, output: 0, outputs: 1 };
        }
        PartMeta { level: c.level, place: c.place, min_ts: c.from, max_ts: c.to, bytes: c.bytes, ..meta }
    }

    /// `expected`: level, whether split by window, inputs.
    fn check(cases: &[Case], now_ms: Millis, force: bool, spare_bytes: u64, expected: Option<(u8, bool, &[u128])>) {
        let settings = CompactionSettings::default();
        let metas = metas(cases);
        let plans = plan(&metas, &Context { now_ms, settings: &settings, force, spare_bytes });
        assert!(plans.len() <= 1);
        let found = plans.first().map(|p| {
            let inputs: Vec<u128> = p.inputs.iter().map(uuid::Uuid::as_u128).collect();
            (p.level, p.window_ms.is_some(), inputs)
        });
        assert_eq!(found, expected.map(|(l, w, i)| (l, w, i.to_vec())));
    }

    #[test]
    fn windows() {
        let in_window = || [part(0, 0, HOUR), part(0, HOUR, 2 * HOUR - 1), part(0, 2 * HOUR, 3 * HOUR)];
        check(&in_window(), 2 * HOUR, false, 0, None);
        check(&in_window(), 3 * HOUR, false, 0, Some((1, true, &[0, 1])));
        check(&in_window()[1..], 3 * HOUR, false, 0, None);
        // A part over the border ties two windows together.
        let over_border = [part(0, 0, HOUR), part(0, HOUR, 3 * HOUR), part(0, 3 * HOUR, 4 * HOUR - 1)];
        check(&over_border, 3 * HOUR, false, 0, None);
        check(&over_border, 5 * HOUR, false, 0, Some((1, true, &[0, 1, 2])));
        // As many parts as windows would be as many afterwards.
        check(&over_border[..2], 5 * HOUR, false, 0, None);
        check(&[part(0, 0, 5 * HOUR), part(0, 5 * HOUR, 9 * HOUR)], 12 * HOUR, false, 0, None);
        // Level 1 is done until the day ends.
        check(&[part(1, 0, HOUR), part(1, 0, HOUR)], 20 * HOUR, false, 0, None);
        // What is in the spool waits.
        check(&[part(0, 0, HOUR), Case { place: Place::Spool, ..part(0, 0, HOUR) }], 5 * HOUR, false, 0, None);
    }

    #[test]
    fn wide_parts_wait_for_their_day() {
        let wide = |n: usize| (0..n).map(|_| part(0, 0, 20 * HOUR)).collect::<Vec<_>>();
        check(&wide(15), 23 * HOUR, false, 0, None);
        let all: Vec<u128> = (0..16).collect();
        check(&wide(16), 23 * HOUR, false, 0, Some((1, false, &all)));
    }

    #[test]
    fn days() {
        let closed = 25 * HOUR;
        check(&[part(1, 0, HOUR), part(0, HOUR, 3 * HOUR)], closed, false, 0, Some((2, false, &[0, 1])));
        check(&[part(0, 0, HOUR)], closed, false, 0, Some((2, false, &[0])));
        check(&[part(2, 0, HOUR), part(2, 0, HOUR)], closed, false, 0, None);
        check(&[part(1, 0, HOUR), Case { place: Place::Spool, ..part(0, 0, HOUR) }], closed, false, 0, None);
        // Of too many the smallest, so few that the rest fits.
        let mut many: Vec<_> = (0..100).map(|_| part(0, 0, HOUR)).collect();
        many[0].bytes = 1 << 20;
        let first: Vec<u128> = (1..38).collect();
        check(&many, closed, false, 0, Some((1, false, &first)));
        let huge: Vec<_> = (0..100).map(|_| Case { bytes: LEVEL1_BYTES_MAX, ..part(1, 0, HOUR) }).collect();
        check(&huge, closed, false, 0, None);
    }

    #[test]
    fn late_data() {
        let now = 48 * HOUR;
        let with = |n: usize, bytes: u64| {
            let late = (0..n).map(move |_| Case { bytes, ..part(0, 0, HOUR) });
            std::iter::once(part(2, 0, 20 * HOUR)).chain(late).collect::<Vec<_>>()
        };
        check(&with(1, 10), now, false, 0, None);
        check(&with(1, 600), now, false, 0, None);
        check(&with(1, 1000), now, false, 0, Some((2, false, &[0, 1])));
        check(&with(4, 10), now, false, 0, None);
        check(&with(4, 10), now, false, 5000, Some((2, false, &[0, 1, 2, 3, 4])));
        check(&with(31, 10), now, false, 0, None);
        let late: Vec<u128> = (1..33).collect();
        check(&with(32, 10), now, false, 0, Some((1, false, &late)));
        // What was merged stays as it is until there are many like it.
        let mut grown = with(31, 10);
        grown.push(Case { bytes: 320, ..part(1, 0, HOUR) });
        check(&grown, now, false, 0, None);
    }

    #[test]
    fn what_was_packed_stays_while_it_is_little() {
        let packed = |from| Case { packed: true, ..part(1, from, from + HOUR) };
        let many = |n: i64| (0..n).map(move |i| packed(i % 20 * HOUR)).collect::<Vec<_>>();
        for (now, force) in [(2 * HOUR, true), (25 * HOUR, false), (23 * HOUR, false)] {
            check(&many(16), now, force, 0, None);
        }
        // Small parts beside it are merged for themselves.
        let mut beside = many(3);
        beside.extend([part(0, 0, HOUR), part(0, HOUR, 2 * HOUR - 1)]);
        check(&beside, 3 * HOUR, false, 0, Some((1, true, &[3, 4])));
        check(&beside, 25 * HOUR, false, 0, Some((2, false, &[3, 4])));
        // Much of it is merged as other parts are.
        let order: Vec<u128> = (0..17).collect();
        check(&(0..17).map(|i| packed(i * HOUR)).collect::<Vec<_>>(), 25 * HOUR, false, 0, Some((2, false, &order)));
        check(&(0..17).map(|_| packed(0)).collect::<Vec<_>>(), 4 * HOUR, false, 0, Some((1, true, &order)));
    }

    #[test]
    fn force_takes_open_windows() {
        check(&[part(0, 0, HOUR)], HOUR, true, 0, Some((2, false, &[0])));
        check(&[part(2, 0, HOUR), part(0, 0, HOUR)], HOUR, true, 0, Some((2, false, &[0, 1])));
        check(&[part(2, 0, HOUR)], HOUR, true, 0, None);
    }
}
