//! How a search runs: plans give the ids of traces with matching spans, newest first, and as few traces as the page needs
//! are read as a whole.
//!
//! The first plan reads two columns beside those of the conditions. What rows say of their matching spans is read last, for
//! the rows of the page alone. Where few spans are looked over that plan is a scan. Putting traces together is what stays
//! code of ours: DataFusion has no node that merges the reports of a span and tells shared ids apart.

use std::cmp::Reverse;
use std::collections::VecDeque;

use datafusion::common::Column;
use datafusion::execution::SendableRecordBatchStream;
use datafusion::functions_aggregate::expr_fn::max;
use datafusion::logical_expr::{JoinType, LogicalPlan, LogicalPlanBuilder, ident};
use foldhash::fast::FixedState;
use futures::StreamExt;
use hashbrown::{HashMap, HashSet};
use quiver_query::{Collected, from_datafusion};
use quiver_types::spans::{STATUS_ERROR, SpanColumn, SpanFilter, SpanId, SpanRequest, TraceId, all_columns};
use quiver_types::{Error, ErrorKind};

use super::{FIRST_MAX, HOUR, Page, Search, Sort, cursor};
use crate::assemble::{Trace, assemble_all};
use crate::columns::{Columns, columns};
use crate::engine::{Reader, TraceError, summary_columns};
use crate::plan::built;
use crate::resource::shown;
use crate::summary::{Matched, Summary, summarize};

/// Most traces whose spans are read at once.
const CHUNK: usize = 500;
/// What a span that was seen takes, about, and a trace that is known.
const SEEN_BYTES: usize = 24;
const KNOWN_BYTES: usize = 48;
/// How far a search looks back first, in nanoseconds.
const SLICE: i64 = 120_000_000_000;

/// A trace may begin after another one whose newest match is later by less than this, in nanoseconds; by more than this it
/// seldom does.
const CLOSE: i64 = 2_000_000_000;

/// How much wider a slice may be than the one before.
const WIDER_MAX: i64 = 16;

/// Spans that one slice may have for each trace that is wanted, with conditions and without, where most will do; with
/// conditions in any case, since to plan a slice takes as long as to go over some ten thousand; and at most.
const SLICE_SPANS_EACH: [usize; 2] = [256, 16];
const SLICE_SPANS: usize = 16 * 1024;
const SLICE_SPANS_MAX: usize = 256 * 1024;

/// Of so many spans in a part of the window a map puts the traces together: to plan their groups and order takes longer
/// than to go over some ten thousand, and searches look at one slice after the other.
const FEW_SPANS: usize = SLICE_SPANS_MAX;

/// Whole traces that were read for a page, by id.
pub(super) type Whole = HashMap<TraceId, Trace, FixedState>;

/// A trace with the start of its newest matching span: it cannot begin after that.
type Candidate = (TraceId, i64);

/// Candidates of a part of the window, newest first.
struct Candidates {
    /// Candidates that the plan has still to give, in order; `None`: all are in `ready`.
    rows: Option<SendableRecordBatchStream>,
    ready: VecDeque<Candidate>,
    /// Memory of the candidates that were all there at once.
    _memory: Option<Collected>,
}

impl Candidates {
    /// Gives the next candidates, `many` at most; none when all were given.
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

/// The page as it grows.
struct Pages<'s> {
    search: &'s Search,
    rows: Vec<Summary>,
    /// Rows that must be there before the page can be full: one more than it has tells that there is a next one.
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

    /// Puts the rows in order, no more than are needed.
    fn cut(&mut self) {
        let search = self.search;
        self.rows.sort_by_key(|row| search.key(row));
        self.rows.truncate(self.enough);
    }

    /// Says whether no trace that begins at a time or before can change the page.
    fn is_settled(&self, newest: i64) -> bool {
        self.rows.get(self.enough - 1).is_some_and(|row| row.start > newest)
    }

    /// How far to look next, after a slice of a width, when so many traces matched in all that was looked over: a little
    /// further than the rest of the page lies, if they go on as they came.
    fn width(&self, last: i64, looked: i64, found: usize) -> i64 {
        let most = last.saturating_mul(WIDER_MAX);
        // None, or enough that are not taken: how many of those to come will be, nobody knows.
        if found == 0 || found >= self.enough {
            return last.saturating_mul(4);
        }
        let missing = self.enough - found;
        let wanted = looked as f64 * missing as f64 / found as f64 * 1.25;
        (wanted as i64).clamp(last.min(SLICE), most)
    }

    /// How many of the traces that wait to read first: as many as are needed, and those that match so shortly before that
    /// they may begin later than the last of these.
    fn first(&self, waiting: &VecDeque<Candidate>, most: usize) -> usize {
        let Some((_, last)) = waiting.get(self.enough - 1) else { return most };
        let close = waiting.iter().skip(self.enough).take_while(|(_, newest)| last.saturating_sub(*newest) < CLOSE);
        most.min(self.enough + close.count())
    }

    /// How many traces to read next.
    fn chunk(&self, read: usize) -> usize {
        // A few more than rows: their traces may begin in another order than they match.
        let first = self.enough + (self.enough / 4).max(4);
        first.max(read).min(CHUNK)
    }
}

/// Most conditions of a search that may hold on different spans. Planning cannot be cancelled, and takes the square of them.
const JOINED_MAX: usize = 100;

impl Reader {
    /// With `whole` the traces of the page are put there.
    pub(super) async fn search(
        &self,
        search: &Search,
        now: i64,
        whole: &mut Option<Whole>,
    ) -> Result<Page, TraceError> {
        if search.is_joined() && search.conditions.len() > JOINED_MAX {
            let text = format!(
                "a search over any spans has at most {JOINED_MAX} conditions, not {}: each is a join of its own",
                search.conditions.len()
            );
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
        let cursor = rows.last().filter(|_| more).map(|last| {
            let (key, trace) = search.key(last);
            let received = received.unwrap_or(now);
            cursor::Cursor { binds: search.binds(), key, trace, received, range: search.range }.to_string()
        });
        Ok(Page { rows, cursor })
    }

    /// Reads all traces that match.
    async fn all(&self, page: &mut Pages<'_>, whole: &mut Option<Whole>) -> Result<(), TraceError> {
        let mut found = self.candidates(page.search, page.search.range).await?;
        let mut read = 0;
        loop {
            let chunk = found.next(CHUNK).await?;
            // A plain `explain` shows how the first of them would be read.
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

    /// Looks from the newest spans to the oldest, a little further each time, until a page is full.
    async fn newest(&self, page: &mut Pages<'_>, now: i64, whole: &mut Option<Whole>) -> Result<(), TraceError> {
        let range = page.search.range;
        let mut known: HashSet<TraceId, FixedState> = HashSet::default();
        let mut waiting: VecDeque<Candidate> = VecDeque::new();
        let (mut upper, mut width, mut read) = (range.1, SLICE, 0);
        // What is said to lie ahead is one slice.
        let ahead = now.saturating_add(HOUR);
        let mut lower = if upper > ahead { ahead.max(range.0) } else { upper.saturating_sub(width) };
        loop {
            lower = lower.max(range.0);
            (lower, width) = self.widened(page, (lower, upper), width)?;
            let mut found = self.candidates(page.search, (lower, upper)).await?;
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
                // Too few are not worth a look-up of their own while older ones may come.
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
            // No trace that is found further on begins at or after this slice; those that wait may.
            if lower <= range.0 || (waiting.is_empty() && page.is_settled(lower - 1)) {
                return Ok(());
            }
            width = page.width(width, range.1.saturating_sub(lower), known.len());
            upper = lower - 1;
            lower = upper.saturating_sub(width);
        }
    }

    /// Begins a slice earlier, as long as few spans lie in it; gives its begin and the width.
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

    /// Reads traces, and adds their rows to the page.
    async fn add_traces(
        &self,
        page: &mut Pages<'_>,
        chunk: Vec<Candidate>,
        whole: &mut Option<Whole>,
    ) -> Result<(), TraceError> {
        let filter = page.search.of_traces(chunk.iter().map(|(id, _)| *id));
        let columns = if whole.is_some() { all_columns() } else { summary_columns() };
        let (reports, memory) = self.spans(filter, columns).await?;
        if whole.is_some() {
            self.ctx.keep(memory);
        }
        for trace in assemble_all(reports) {
            let Some(row) = summarize(&trace) else { continue };
            if page.search.accepts.as_ref().is_some_and(|accepts| !(accepts.0)(&trace)) {
                continue;
            }
            if page.add(row)
                && let Some(whole) = whole
            {
                whole.insert(trace.id, trace);
            }
        }
        page.cut();
        if let Some(whole) = whole.as_mut().filter(|whole| whole.len() > page.rows.len()) {
            let kept: HashSet<TraceId, FixedState> = page.rows.iter().map(|row| row.id).collect();
            whole.retain(|id, _| kept.contains(id));
        }
        Ok(())
    }

    /// Plans `trace_id` and `newest` of the traces that spans of a part of the window say match, newest first.
    fn candidates_plan(&self, search: &Search, range: (i64, i64)) -> Result<LogicalPlan, TraceError> {
        let scan = |filter: SpanFilter, columns: Vec<SpanColumn>| {
            Ok::<_, TraceError>(LogicalPlanBuilder::from(self.plan(&SpanRequest { filter, columns })?))
        };
        let both = || columns(&["trace_id", "start"], &[]);
        let grouped =
            |scan: LogicalPlanBuilder| scan.aggregate([ident("trace_id")], [max(ident("start")).alias("newest")]);
        let (first, others) = if search.is_joined() {
            let mut each = search.conditions.iter().map(|c| search.base(search.range).and(c.clone()));
            (each.next().unwrap_or(SpanFilter::None), each.collect())
        } else {
            (search.filter_in(range), Vec::new())
        };
        let first = scan(first, both())?;
        let others: Vec<LogicalPlanBuilder> =
            others.into_iter().map(|filter| scan(filter, columns(&["trace_id"], &[]))).collect::<Result<_, _>>()?;
        let plan = || {
            let mut plan = grouped(first)?;
            for (at, other) in others.into_iter().enumerate() {
                let other = other.alias(format!("other_{at}"))?.build()?;
                let keys = (vec![Column::from("trace_id")], vec![Column::from(format!("other_{at}.trace_id"))]);
                plan = plan.join(other, JoinType::LeftSemi, keys, None)?;
            }
            plan.sort(vec![ident("newest").sort(false, false), ident("trace_id").sort(true, false)])
        };
        built(plan())
    }

    async fn candidates(&self, search: &Search, range: (i64, i64)) -> Result<Candidates, TraceError> {
        if !search.is_joined()
            && let Some(few) = self.few_candidates(search, range).await?
        {
            return Ok(few);
        }
        let rows = self.grouped(&self.candidates_plan(search, range)?).await?;
        Ok(Candidates { rows: Some(rows), ready: VecDeque::new(), _memory: None })
    }

    /// The same out of a scan, where few spans lie in a part of the window; `None` where they are not, after all.
    async fn few_candidates(&self, search: &Search, range: (i64, i64)) -> Result<Option<Candidates>, TraceError> {
        let request = SpanRequest { filter: search.filter_in(range), columns: columns(&["trace_id", "start"], &[]) };
        let Some(plan) = self.plan_of_few(&request, FEW_SPANS)? else { return Ok(None) };
        let memory = self.collected("traces");
        let mut newest: HashMap<TraceId, i64, FixedState> = HashMap::default();
        let (mut rows, mut read) = (self.grouped(&plan).await?, 0);
        while let Some(batch) = rows.next().await {
            self.ctx.check("query execution")?;
            let batch = batch.map_err(from_datafusion)?;
            read += batch.num_rows();
            // How many there are was a guess. A grouping spills, where this would hold all of them; each may be of a trace
            // that is not known.
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

    /// Notes in rows which of their spans match.
    async fn note_matches(&self, search: &Search, rows: &mut [Summary]) -> Result<(), TraceError> {
        if rows.is_empty() && !self.ctx.is_only_planned() {
            return Ok(());
        }
        let filter = search.of_traces(rows.iter().map(|row| row.id)).and(search.matching());
        let own = ["trace_id", "span_id", "start", "end", "status", "name"];
        let mut places: HashMap<TraceId, usize, FixedState> = HashMap::default();
        places.extend(rows.iter().enumerate().map(|(at, row)| (row.id, at)));
        let mut seen: HashSet<(usize, SpanId), FixedState> = HashSet::default();
        let mut first: Vec<Vec<(i64, Matched)>> = vec![Vec::new(); rows.len()];
        self.scan(filter, columns(&own, &["service"]), |batch| {
            // Each row may bring a span that was not seen.
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
                // The earliest, in whatever order spans come.
                let first = &mut first[at];
                first.push((
                    starts.value(i),
                    Matched {
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

    fn page(search: &Search, enough: usize) -> Pages<'_> {
        Pages { search, rows: Vec::new(), enough }
    }

    /// Breaks where a row that ties with the last one of a page comes twice, or never.
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
                    search.after = Some(cursor::Cursor { binds: 0, key, trace, received: 0, range });
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

    /// Breaks where a search goes on though nothing older can change its page, or ends before that is so.
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
