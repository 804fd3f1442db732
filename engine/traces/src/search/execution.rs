//! Executes a search: plans return the ids of traces with matching spans, newest first, and only as many complete
//! traces as the page needs are read.
//!
//! The first plan reads two columns besides those of the conditions. Details about matching spans are read last, only
//! for the rows of the page. If few spans are involved, the plan is just a scan. Assembling traces is our own code:
//! DataFusion has no operator that merges the reports of a span and separates shared ids.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::sync::Arc;

use datafusion::execution::SendableRecordBatchStream;
use datafusion::functions_aggregate::expr_fn::{bool_or, max};
use datafusion::logical_expr::utils::conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, ident};
use foldhash::fast::FixedState;
use futures::StreamExt;
use hashbrown::{HashMap, HashSet};
use quiver_query::{QueryReservation, from_datafusion, give_way};
use quiver_types::spans::{NumberedFilter, STATUS_ERROR, Span, SpanColumn, SpanId, SpanRequest, TraceId, all_columns};
use quiver_types::{Error, ErrorKind};

use super::{FIRST_MAX, HOUR, Page, Search, Sort};
use crate::assemble::{Trace, assemble_all};
use crate::columns::{Columns, columns};
use crate::engine::{Reader, TraceError, summary_columns};
use crate::plan::built;
use crate::resource::shown;
use crate::summary::{MatchedSpan, Summary, summarize};

/// Maximum number of traces whose spans are read at once.
const CHUNK: usize = 500;
/// Estimated memory of a span that was seen, and of a known trace.
const SEEN_BYTES: usize = 24;
const KNOWN_BYTES: usize = 48;
/// How far a search first looks back, in nanoseconds.
const SLICE: i64 = 120_000_000_000;

/// A trace may start after another one whose newest match is later, if the difference is less than this, in
/// nanoseconds; with a greater difference that is rare.
const CLOSE: i64 = 2_000_000_000;

/// Maximum growth factor from one slice to the next.
const WIDER_MAX: i64 = 16;

/// Spans that one slice may have per wanted trace, with and without conditions, as most of them will match without; a
/// minimum if there are conditions, because planning a slice takes as long as scanning some ten thousand spans; and a
/// maximum.
const SLICE_SPANS_EACH: [usize; 2] = [256, 16];
const SLICE_SPANS: usize = 16 * 1024;
const SLICE_SPANS_MAX: usize = 256 * 1024;

/// With at most this many spans in a part of the window, or few matches to expect, traces are grouped in a map: planning
/// a grouping and sort takes longer than scanning some ten thousand spans, and a search examines slice after slice.
const FEW_SPANS: usize = SLICE_SPANS_MAX;

/// A search that looks at no more spans takes a millisecond or less, mostly, and begins on its caller's thread; likewise one
/// that reads no more traces.
const QUICK_SPANS: usize = 16 * 1024;
const QUICK_TRACES: usize = 64;

/// Complete traces that were read for a page, by id, with the memory that each of them holds.
pub(super) type Whole = HashMap<TraceId, (Trace, QueryReservation), FixedState>;

/// What a trace takes in memory, about.
fn trace_bytes(trace: &Trace) -> usize {
    let shared = trace.spans.chunk_by(|a, b| Arc::ptr_eq(&a.context, &b.context)).map(|spans| {
        let context = &spans[0].context;
        context.resource.bytes().len() + context.scope_attributes.bytes().len()
    });
    shared.sum::<usize>() + trace.spans.iter().map(Span::bytes).sum::<usize>()
}

/// A trace with the start of its newest matching span; the trace cannot start later than that.
type Candidate = (TraceId, i64);

/// Candidates from a part of the window, newest first.
struct Candidates {
    /// Candidates that the plan has yet to return, in order; `None` if all are in `ready`.
    rows: Option<SendableRecordBatchStream>,
    ready: VecDeque<Candidate>,
    /// Memory of candidates that were collected at once.
    _memory: Option<QueryReservation>,
}

impl Candidates {
    /// The next candidates, at most `many`; empty at the end.
    async fn next(&mut self, many: usize) -> Result<Vec<Candidate>, TraceError> {
        while self.ready.len() < many
            && let Some(rows) = &mut self.rows
            && let Some(batch) = rows.next().await
        {
            let batch = batch.map_err(from_datafusion)?;
            let ids = Columns(&batch).ids("trace_id")?;
            let newest = Columns(&batch).times("newest")?;
            let rows = ids.iter().zip(newest.values());
            self.ready.extend(rows.filter_map(|(id, newest)| Some((id?.try_into().ok()?, *newest))));
        }
        Ok(self.ready.drain(..many.min(self.ready.len())).collect())
    }
}

/// The page being built.
struct Pages<'s> {
    search: &'s Search,
    rows: Vec<Summary>,
    /// Number of rows needed for a full page, plus one that shows that there is a next page.
    enough: usize,
}

impl Pages<'_> {
    fn add(&mut self, row: Summary) -> bool {
        let search = self.search;
        let after = search.after.as_ref().map(|c| (c.key, c.trace));
        let wanted = search.takes(&row) && after.is_none_or(|after| search.key(&row) > after);
        if wanted {
            self.rows.push(row);
        }
        wanted
    }

    /// Sorts the rows and drops those not needed.
    fn cut(&mut self) {
        let search = self.search;
        self.rows.sort_by_key(|row| search.key(row));
        self.rows.truncate(self.enough);
    }

    /// Tells whether no trace that starts at this time or earlier can change the page.
    fn is_settled(&self, newest: i64) -> bool {
        self.rows.get(self.enough - 1).is_some_and(|row| row.start > newest)
    }

    /// The width of the next slice, given the last width, the total time searched and the number of matching traces in
    /// it: enough for the rest of the page if matches continue at the same rate.
    fn width(&self, last: i64, looked: i64, found: usize) -> i64 {
        let most = last.saturating_mul(WIDER_MAX);
        // No matches, or more than could be used: there is no rate to extrapolate from.
        if found == 0 || found >= self.enough {
            return last.saturating_mul(4);
        }
        let missing = self.enough - found;
        let wanted = looked as f64 * missing as f64 / found as f64 * 1.25;
        (wanted as i64).clamp(last.min(SLICE), most)
    }

    /// How many spans the next slice may have for its traces to be collected in a map. The first one may find any number;
    /// a later one is as wide as the few matches lie far apart, so it finds few, whatever it reads.
    fn mapped_spans(&self, is_first: bool, found: usize) -> usize {
        if !is_first && found < self.enough { usize::MAX } else { FEW_SPANS }
    }

    /// How many waiting traces to read first: as many as needed, plus those that match so shortly before that they may
    /// start later than the last of these.
    fn first(&self, waiting: &VecDeque<Candidate>, most: usize) -> usize {
        let Some((_, last)) = waiting.get(self.enough - 1) else { return most };
        let close = waiting.iter().skip(self.enough).take_while(|(_, newest)| last.saturating_sub(*newest) < CLOSE);
        most.min(self.enough + close.count())
    }

    /// How many traces to read next.
    fn chunk(&self, read: usize) -> usize {
        // A few more than rows, as their traces may start in a different order than they match.
        let first = self.enough + (self.enough / 4).max(4);
        first.max(read).min(CHUNK)
    }
}

/// Maximum number of conditions that may match different spans: each is tested on all spans that any of them matches.
const JOINED_MAX: usize = 100;

impl Reader {
    /// Runs a search. If `whole` is given, the complete traces of the page are stored there.
    pub(super) async fn search(
        &self,
        search: &Search,
        now: i64,
        whole: &mut Option<Whole>,
    ) -> Result<Page, TraceError> {
        if search.is_joined() && search.conditions.len() > JOINED_MAX {
            let text =
                format!("a search over any spans has at most {JOINED_MAX} conditions, not {}", search.conditions.len());
            return Err(Error::new(ErrorKind::LimitExceeded, text).into());
        }
        let mut page = Pages { search, rows: Vec::new(), enough: (search.limit + usize::from(whole.is_none())).max(1) };
        if search.sort == Sort::Start && search.descending && search.ids.is_empty() && !search.is_joined() {
            self.newest(&mut page, now, whole).await?;
        } else {
            self.all(&mut page, whole).await?;
        }
        let mut rows = page.rows;
        let more = rows.len() > search.limit;
        rows.truncate(search.limit);
        if whole.is_none() {
            self.note_matches(search, &mut rows).await?;
        }
        let received = search.after.as_ref().map(|c| c.received);
        let cursor = rows.last().filter(|_| more).map(|last| search.behind(last, received.unwrap_or(now)));
        Ok(Page { rows, cursor })
    }

    /// Reads all matching traces.
    async fn all(&self, page: &mut Pages<'_>, whole: &mut Option<Whole>) -> Result<(), TraceError> {
        let mut found = self.candidates(page.search, page.search.range, FEW_SPANS).await?;
        let mut read = 0;
        loop {
            let chunk = found.next(CHUNK).await?;
            // A plain `explain` must show how the first of them would be read.
            if chunk.is_empty() && !(read == 0 && self.ctx.is_only_planned()) {
                return Ok(());
            }
            read += CHUNK;
            self.add_traces(page, chunk, whole).await?;
            if self.ctx.is_only_planned() {
                return Ok(());
            }
        }
    }

    /// Searches from the newest spans to the oldest, slice by slice, until the page is full.
    async fn newest(&self, page: &mut Pages<'_>, now: i64, whole: &mut Option<Whole>) -> Result<(), TraceError> {
        let range = page.search.range;
        let mut known: HashSet<TraceId, FixedState> = HashSet::default();
        let mut waiting: VecDeque<Candidate> = VecDeque::new();
        let (mut upper, mut width, mut read) = (range.1, SLICE, 0);
        // Everything dated in the future is one slice.
        let ahead = now.saturating_add(HOUR);
        let mut lower = if upper > ahead { ahead.max(range.0) } else { upper.saturating_sub(width) };
        let present = range.1.min(ahead.saturating_sub(1));
        loop {
            lower = lower.max(range.0);
            (lower, width) = self.widened(page, (lower, upper), width)?;
            let mapped = page.mapped_spans(upper >= present, known.len());
            let mut found = self.candidates(page.search, (lower, upper), mapped).await?;
            loop {
                let chunk = page.chunk(read);
                let asked = chunk.saturating_sub(waiting.len());
                let more = found.next(asked).await?;
                let is_last = more.len() < asked || asked == 0;
                let fresh: Vec<Candidate> = more.into_iter().filter(|(id, _)| known.insert(*id)).collect();
                self.collect(fresh.len() * KNOWN_BYTES)?;
                waiting.extend(fresh);
                if waiting.front().is_some_and(|(_, newest)| page.is_settled(*newest)) {
                    return Ok(());
                }
                // Too few traces are not worth a lookup of their own if older ones may follow.
                let may_fill = page.rows.len() + waiting.len() >= page.enough;
                if is_last && !may_fill && lower > range.0 && !self.ctx.is_only_planned() {
                    break;
                }
                let many = if read == 0 { page.first(&waiting, chunk) } else { chunk };
                let chunk: Vec<Candidate> = waiting.drain(..many.min(waiting.len())).collect();
                if chunk.is_empty() && !self.ctx.is_only_planned() {
                    break;
                }
                read += chunk.len();
                self.add_traces(page, chunk, whole).await?;
                if self.ctx.is_only_planned() {
                    return Ok(());
                }
            }
            // No trace found later can start within this slice or after it; waiting ones may.
            if lower <= range.0 || (waiting.is_empty() && page.is_settled(lower - 1)) {
                return Ok(());
            }
            width = page.width(width, range.1.saturating_sub(lower), known.len());
            upper = lower - 1;
            lower = upper.saturating_sub(width);
        }
    }

    /// Extends a slice to an earlier start as long as it has few spans; returns its start and width.
    fn widened(
        &self,
        page: &Pages<'_>,
        (mut lower, upper): (i64, i64),
        mut width: i64,
    ) -> Result<(i64, i64), TraceError> {
        let (search, first) = (page.search, page.search.range.0);
        let [found, any] = SLICE_SPANS_EACH.map(|spans| page.enough.saturating_mul(spans).min(SLICE_SPANS_MAX));
        let most = if search.conditions.is_empty() { any } else { found.max(SLICE_SPANS) };
        while lower > first {
            let earlier = lower.saturating_sub(width.saturating_mul(3)).max(first);
            if self.spans_about(search.filter_in((earlier, upper)))?.is_none_or(|spans| spans > most) {
                break;
            }
            (lower, width) = (earlier, width.saturating_mul(4));
        }
        Ok((lower, width))
    }

    /// Reads traces and adds their rows to the page.
    async fn add_traces(
        &self,
        page: &mut Pages<'_>,
        chunk: Vec<Candidate>,
        whole: &mut Option<Whole>,
    ) -> Result<(), TraceError> {
        if chunk.len() > QUICK_TRACES {
            give_way().await;
        }
        let filter = page.search.of_traces(chunk.iter().map(|(id, _)| *id));
        let columns = if whole.is_some() { all_columns() } else { summary_columns() };
        // Traces that are not taken give back what they held: a query may turn down all that it reads.
        let (reports, memory) = self.spans(filter, columns).await?;
        for trace in assemble_all(reports) {
            let Some(row) = summarize(&trace) else { continue };
            if page.search.accepts.as_ref().is_some_and(|accepts| !(accepts.0)(&trace)) {
                continue;
            }
            if page.add(row)
                && let Some(whole) = whole
            {
                let memory = memory.part(trace_bytes(&trace));
                whole.insert(trace.id, (trace, memory));
            }
        }
        page.cut();
        if let Some(whole) = whole.as_mut().filter(|whole| whole.len() > page.rows.len()) {
            let kept: HashSet<TraceId, FixedState> = page.rows.iter().map(|row| row.id).collect();
            whole.retain(|id, _| kept.contains(id));
        }
        Ok(())
    }

    /// Plans `trace_id` and `newest` of the matching traces in a part of the window, newest first. Of conditions that may
    /// hold on different spans, one scan finds the spans that any of them holds on, and its groups tell which all of them do.
    fn candidates_plan(&self, search: &Search, range: (i64, i64)) -> Result<LogicalPlan, TraceError> {
        let (filter, each) = if search.is_joined() {
            (search.matching(), &*search.conditions)
        } else {
            (search.filter_in(range), &[][..])
        };
        let passes = each.iter().enumerate().map(|(number, condition)| {
            SpanColumn::Passes(NumberedFilter { number, filter: Arc::new(condition.clone()) })
        });
        let passes: Vec<SpanColumn> = passes.collect();
        let names: Vec<String> = passes.iter().map(SpanColumn::name).collect();
        let columns = [columns(&["trace_id", "start"], &[]), passes].concat();
        let scan = LogicalPlanBuilder::from(self.plan(&SpanRequest { filter, columns })?);
        let plan = || {
            let any = names.iter().map(|name| bool_or(ident(name)).alias(name));
            let values = std::iter::once(max(ident("start")).alias("newest")).chain(any);
            let mut plan = scan.aggregate([ident("trace_id")], values.collect::<Vec<Expr>>())?;
            if let Some(all) = conjunction(names.iter().map(ident)) {
                plan = plan.filter(all)?.project([ident("trace_id"), ident("newest")])?;
            }
            plan.sort(vec![ident("newest").sort(false, false), ident("trace_id").sort(true, false)])
        };
        built(plan())
    }

    /// Finds the traces in a part of the window; those of at most `mapped` spans are collected in a map.
    async fn candidates(&self, search: &Search, range: (i64, i64), mapped: usize) -> Result<Candidates, TraceError> {
        if search.is_joined() {
            give_way().await;
        } else if let Some(few) = self.mapped(search, range, mapped).await? {
            return Ok(few);
        }
        let rows = self.grouped(&self.candidates_plan(search, range)?).await?;
        Ok(Candidates { rows: Some(rows), ready: VecDeque::new(), _memory: None })
    }

    /// Like `candidates_plan`, from a scan, if a part of the window has few spans; `None` if too many match for a map.
    async fn mapped(&self, search: &Search, range: (i64, i64), most: usize) -> Result<Option<Candidates>, TraceError> {
        let request = SpanRequest { filter: search.filter_in(range), columns: columns(&["trace_id", "start"], &[]) };
        let few = self.plan_of_few(&request, most)?;
        if few.as_ref().is_none_or(|(_, spans)| *spans > QUICK_SPANS) {
            give_way().await;
        }
        let Some((plan, _)) = few else { return Ok(None) };
        let memory = self.collected("traces");
        let mut newest: HashMap<TraceId, i64, FixedState> = HashMap::default();
        let (mut rows, mut read) = (self.grouped(&plan).await?, 0);
        while let Some(batch) = rows.next().await {
            self.ctx.check("query execution")?;
            let batch = batch.map_err(from_datafusion)?;
            read += batch.num_rows();
            // Their number was only estimated. A grouping can spill to disk, while this would hold all of them in
            // memory; each may belong to a new trace.
            if read > 2 * FEW_SPANS || memory.add(batch.num_rows() * KNOWN_BYTES).is_err() {
                return Ok(None);
            }
            let (ids, starts) = (Columns(&batch).ids("trace_id")?, Columns(&batch).times("start")?);
            for (id, start) in ids.iter().zip(starts.values()) {
                let Some(id) = id.and_then(|id| TraceId::try_from(id).ok()) else { continue };
                newest.entry(id).and_modify(|known| *known = (*known).max(*start)).or_insert(*start);
            }
        }
        let mut ready: Vec<Candidate> = newest.into_iter().collect();
        ready.sort_unstable_by_key(|(id, newest)| (Reverse(*newest), *id));
        Ok(Some(Candidates { rows: None, ready: ready.into(), _memory: Some(memory) }))
    }

    /// Counts in each row the matching spans of its trace.
    async fn note_matches(&self, search: &Search, rows: &mut [Summary]) -> Result<(), TraceError> {
        if rows.is_empty() && !self.ctx.is_only_planned() {
            return Ok(());
        }
        let filter = search.of_traces(rows.iter().map(|row| row.id)).and(search.matching());
        let own = ["trace_id", "span_id", "start", "end", "status", "name"];
        let mut places: HashMap<TraceId, usize, FixedState> = HashMap::default();
        places.extend(rows.iter().enumerate().map(|(at, row)| (row.id, at)));
        let mut seen: HashSet<(usize, SpanId), FixedState> = HashSet::default();
        let mut first: Vec<Vec<(i64, MatchedSpan)>> = vec![Vec::new(); rows.len()];
        self.scan(filter, columns(&own, &["service"]), |batch| {
            // Each span may be one that was not seen yet.
            self.collect(batch.num_rows() * SEEN_BYTES)?;
            let c = Columns(batch);
            let (ids, span_ids) = (c.ids("trace_id")?, c.ids("span_id")?);
            let (starts, ends, statuses) = (c.times("start")?, c.times("end")?, c.small("status")?);
            let (names, services) = (c.text("name")?, c.view("service")?);
            for i in 0..batch.num_rows() {
                let id: TraceId = ids.value(i).try_into().unwrap_or_default();
                let span_id: SpanId = span_ids.value(i).try_into().unwrap_or_default();
                let Some(&at) = places.get(&id) else { continue };
                if !seen.insert((at, span_id)) {
                    continue;
                }
                rows[at].matched += 1;
                // Keep the earliest span, in whatever order they come.
                let first = &mut first[at];
                first.push((
                    starts.value(i),
                    MatchedSpan {
                        span_id,
                        service: shown(services.value(i)).to_owned(),
                        name: names.value(i).to_owned(),
                        duration: ends.value(i).saturating_sub(starts.value(i)),
                        error: statuses.value(i) == STATUS_ERROR,
                    },
                ));
                first.sort_unstable_by_key(|(start, span)| (*start, span.span_id));
                first.truncate(FIRST_MAX);
            }
            Ok(true)
        })
        .await?;
        for (row, first) in rows.iter_mut().zip(first) {
            row.first = first.into_iter().map(|(_, span)| span).collect();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::Cursor;
    use super::super::tests::row;
    use super::*;

    #[test]
    fn traces_that_match_shortly_before_are_read_at_once() {
        let search = Search::new((0, i64::MAX));
        let page = Pages { search: &search, rows: Vec::new(), enough: 2 };
        let check = |ages: &[i64], expected: usize| {
            let waiting = ages.iter().map(|age| ([1; 16], 100 * CLOSE - age)).collect();
            assert_eq!(page.first(&waiting, 5), expected, "{ages:?}");
        };
        check(&[0, 1, CLOSE + 1, CLOSE + 2], 2);
        check(&[0, 1, CLOSE, CLOSE + 1], 3);
        check(&[0, 1, 2, 3, 4, 5, 6], 5);
        // All that are there where these are too few.
        check(&[0], 5);
    }

    #[test]
    fn what_a_trace_takes_grows_with_all_that_it_holds() {
        use crate::assemble::assemble;
        use crate::assemble::tests::span;
        use quiver_types::spans::{Attributes, Value};

        let of = |spans: Vec<Span>| trace_bytes(&assemble([1; 16], spans));
        let one = of(vec![span(1, 0, "a", 2, 1, 9)]);
        assert!(one >= size_of::<Span>());
        assert!(of(vec![span(1, 0, "a", 2, 1, 9), span(2, 1, "a", 2, 2, 3)]) >= one + size_of::<Span>());
        let mut large = span(1, 0, "a", 2, 1, 9);
        large.attributes = Attributes::of([("k", Value::Text(&"x".repeat(1000)))]);
        assert!(of(vec![large]) >= one + 1000);
    }

    fn page(search: &Search, enough: usize) -> Pages<'_> {
        Pages { search, rows: Vec::new(), enough }
    }

    /// Breaks if a row that ties with the last one of a page comes twice, or never.
    #[test]
    fn pages_behind_each_other_are_the_whole_list() {
        let mut seed = 3_u64;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % end
        };
        let rows: Vec<Summary> = (0..40)
            .map(|id| {
                let start = below(4) as i64;
                row(id, (start, start + below(3) as i64), 1 + below(3), below(2), 1)
            })
            .collect();
        for sort in [Sort::Start, Sort::Duration, Sort::Spans, Sort::Errors] {
            for descending in [true, false] {
                let mut search = Search { sort, descending, limit: 7, ..Search::new((0, i64::MAX)) };
                let value = |row: &Summary| match sort {
                    Sort::Start => row.start,
                    Sort::Duration => row.end - row.start,
                    Sort::Spans => row.spans as i64,
                    Sort::Errors => row.errors as i64,
                };
                let mut whole: Vec<(i64, TraceId)> =
                    rows.iter().map(|row| (if descending { -value(row) } else { value(row) }, row.id)).collect();
                whole.sort_unstable();
                let (mut seen, mut pages) = (Vec::new(), 0);
                loop {
                    let mut page = page(&search, search.limit + 1);
                    // In two parts, as they are read.
                    for part in rows.chunks(25) {
                        for row in part {
                            page.add(row.clone());
                        }
                        page.cut();
                    }
                    let found = page.rows;
                    pages += 1;
                    seen.extend(found.iter().take(7).map(|row| row.id));
                    if found.len() <= 7 {
                        break;
                    }
                    let (key, trace) = search.key(&found[6]);
                    let range = search.range;
                    search.after = Some(Cursor { binds: 0, key, trace, received: 0, range });
                }
                assert_eq!(pages, 6, "{sort:?}");
                assert_eq!(seen, whole.iter().map(|one| one.1).collect::<Vec<_>>(), "{sort:?} {descending}");
            }
        }
    }

    #[test]
    fn what_a_search_does_not_take_is_no_row() {
        let search = Search { spans: (2, 3), ..Search::new((0, i64::MAX)) };
        let mut page = page(&search, 2);
        let added: Vec<bool> = (0..5).map(|spans| page.add(row(1, (5, 6), spans, 0, 1))).collect();
        assert_eq!(added, [false, false, true, true, false]);
        assert_eq!(page.rows.len(), 2);
    }

    /// Breaks if a search goes on though nothing older can change its page, or ends before that is so.
    #[test]
    fn a_page_is_settled_by_the_last_row_that_is_needed() {
        let search = Search::new((0, i64::MAX));
        let mut page = page(&search, 2);
        page.add(row(1, (50, 60), 1, 0, 1));
        page.cut();
        assert!(!page.is_settled(0), "a row lacks");
        page.add(row(2, (40, 90), 1, 0, 1));
        page.add(row(3, (70, 71), 1, 0, 1));
        page.cut();
        assert_eq!(page.rows.iter().map(|row| row.id[0]).collect::<Vec<_>>(), [3, 1]);
        // One that begins when the last row does may go before it, by its name.
        assert_eq!([49, 50, 51].map(|newest| page.is_settled(newest)), [true, false, false]);
    }

    #[test]
    fn slices_are_as_wide_as_the_rest_of_the_page_lies_far() {
        let search = Search::new((0, i64::MAX));
        let page = page(&search, 21);
        for (last, looked, found, expected) in [
            // None were found, or all that are needed, which were not taken.
            (SLICE, SLICE, 0, 4 * SLICE),
            (SLICE, SLICE, 21, 4 * SLICE),
            (SLICE, SLICE, 500, 4 * SLICE),
            // A third is there: twice as far again, and a quarter more.
            (SLICE, SLICE, 7, SLICE / 2 * 5),
            // Nearly all is, or nearly nothing: within bounds.
            (SLICE, SLICE, 20, SLICE),
            (SLICE, 16 * SLICE, 1, 16 * SLICE),
            (10, 10, 20, 10),
            (i64::MAX, i64::MAX, 0, i64::MAX),
            (i64::MAX, i64::MAX, 1, i64::MAX),
        ] {
            assert_eq!(page.width(last, looked, found), expected, "{last} {looked} {found}");
        }
        // Those that are wide since hardly anything matches are not planned with groups.
        let mapped = [(true, 0), (false, 0), (false, 20), (false, 21)].map(|(first, n)| page.mapped_spans(first, n));
        assert_eq!(mapped, [FEW_SPANS, usize::MAX, usize::MAX, FEW_SPANS]);
    }

    #[test]
    fn a_few_more_traces_are_read_than_rows_are_needed() {
        let search = Search::new((0, i64::MAX));
        for (enough, read, expected) in
            [(1, 0, 5), (21, 0, 26), (21, 26, 26), (21, 100, 100), (21, 100_000, 500), (1_001, 0, 500)]
        {
            assert_eq!(page(&search, enough).chunk(read), expected, "{enough} {read}");
        }
    }
}
