//! Entry points: a text and a time, or a range of times, in; the answer in columns, or the plan, out.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Instant;

use datafusion::execution::memory_pool::MemoryReservation;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use quiver_query::{
    Explain, Pace, Phase, PlanRecorder, QueryContext, QueryEngine, QueryMemory, from_datafusion, give_way,
};
use quiver_types::{Error, Millis, Result, SeriesSnapshot, SeriesSource};
use serde_json::Value;

use crate::annotation::Level;
use crate::ast::{Expr, ValueType};
use crate::cache::ResultCache;
use crate::error::PromqlError;
use crate::kernel::Grid;
use crate::parser::{ParseOptions, parse_with};
use crate::plan::callers_thread::is_quickly_parsed;
use crate::plan::memory::Room;
use crate::plan::{Planner, QueryTimes, Scope};
use crate::result::QueryValue;
use crate::run_state::RunState;
use crate::sample_stats::{SampleStats, Tallies};
use crate::selectors::repeated;
use crate::single_flight::{FlightResult, Flights};
use crate::stored_samples::RawReader;
use crate::type_check::type_of;

pub(crate) mod evaluation;
mod job;
mod range;

use evaluation::EvaluationResult;
pub use evaluation::QueryTimings;
use job::Job;
use range::{Cacheable, usable};

/// Texts up to this length are parsed without a memory reservation.
const SHORT_TEXT: usize = 16 << 10;
/// Bytes of memory that the tree of an expression takes per byte of its text.
pub const TREE_BYTES: usize = 48;
/// Bytes of memory that a selector takes beside its text.
const SELECTOR_BYTES: usize = 512;
/// Bytes of memory that the small pattern of a matcher takes, compiled and with what a search keeps. Large ones are bounded
/// together while they are parsed.
const PATTERN_BYTES: usize = 16 << 10;
/// Patterns up to this number are parsed without a memory reservation.
const FEW_PATTERNS: usize = 16;

/// About how many patterns the matchers of a text have.
fn patterns_of(text: &str) -> usize {
    text.bytes().filter(|byte| *byte == b'~').count()
}

/// Gives the bytes of memory that selectors take, more or less; 0 for few short ones.
pub fn selector_bytes<'t>(texts: impl Iterator<Item = &'t str>) -> usize {
    let (mut bytes, mut patterns) = (0, 0);
    for text in texts {
        bytes += SELECTOR_BYTES + TREE_BYTES * text.len();
        patterns += patterns_of(text);
    }
    let bytes = bytes + PATTERN_BYTES * patterns;
    if bytes > FEW_PATTERNS * PATTERN_BYTES { bytes } else { 0 }
}

/// Settings of the language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromqlSettings {
    /// How old the newest sample of an instant selector may be, in milliseconds.
    pub lookback_ms: i64,
    /// Step of a subquery that names none, in milliseconds.
    pub subquery_step_ms: i64,
    /// Whether experimental functions and aggregations may be called.
    pub experimental_functions: bool,
    /// Most bytes of cached results of range queries; 0: no cache.
    pub result_cache_bytes: usize,
}

impl Default for PromqlSettings {
    fn default() -> Self {
        Self { lookback_ms: 300_000, subquery_step_ms: 60_000, experimental_functions: true, result_cache_bytes: 0 }
    }
}

/// What a caller may set for one query.
#[derive(Debug, Clone, Copy, Default)]
pub struct QueryOptions {
    /// Look-back in milliseconds, instead of that of the settings.
    pub lookback_ms: Option<i64>,
    /// Whether samples are counted per step.
    pub stats: bool,
    /// Whether to evaluate every step without using or filling the result cache.
    pub no_cache: bool,
}

/// What a query gave, and what it took.
#[derive(Debug)]
pub struct QueryOutcome {
    /// The value; equal concurrent queries share it.
    pub value: Arc<QueryValue>,
    /// Texts of warnings, as clients see them.
    pub warnings: Vec<String>,
    /// Texts of infos (`PromQL info: …`), as clients see them.
    pub infos: Vec<String>,
    /// Samples per step, if asked for.
    pub samples: Option<SampleStats>,
    /// Where the time went.
    pub timings: QueryTimings,
    /// The reservation for the value in the memory of queries.
    pub memory: Arc<QueryMemory>,
}

/// A source at one moment.
#[derive(Debug)]
struct Moment(Arc<dyn SeriesSnapshot>);

impl SeriesSource for Moment {
    fn snapshot(&self) -> Arc<dyn SeriesSnapshot> {
        Arc::clone(&self.0)
    }
}

/// Evaluates PromQL on an engine and a source of series.
#[derive(Debug, Clone)]
pub struct PromqlEngine {
    source: Arc<dyn SeriesSource>,
    query: Arc<QueryEngine>,
    settings: PromqlSettings,
    results: Arc<ResultCache>,
    flights: Arc<Flights>,
}

impl PromqlEngine {
    /// Makes the engine.
    pub fn new(source: Arc<dyn SeriesSource>, query: Arc<QueryEngine>, settings: PromqlSettings) -> Self {
        let results = Arc::new(ResultCache::new(settings.result_cache_bytes));
        Self { source, query, settings, results, flights: Arc::default() }
    }

    /// Gives an engine that reads one moment: what it sees was not written later. It shares the cache of results, but
    /// no outcome with equal queries, which may see more.
    #[must_use]
    pub fn at(&self, snapshot: Arc<dyn SeriesSnapshot>) -> Self {
        Self { source: Arc::new(Moment(snapshot)), flights: Arc::default(), ..self.clone() }
    }

    /// The result cache.
    pub fn results(&self) -> &ResultCache {
        &self.results
    }

    /// Gives a reader of stored samples, over a snapshot taken now.
    pub fn raw(&self, ctx: &QueryContext) -> RawReader {
        RawReader { snapshot: self.source.snapshot(), engine: Arc::clone(&self.query), ctx: ctx.clone() }
    }

    /// Says whether experimental functions and aggregations may be called.
    pub fn experimental_functions(&self) -> bool {
        self.settings.experimental_functions
    }

    /// Gives the look-back of instant selectors.
    pub fn lookback_ms(&self) -> i64 {
        self.settings.lookback_ms
    }

    /// Evaluates at one time, or at all steps of a range.
    ///
    /// # Errors
    /// Invalid: the text is no expression, or of a range no scalar or instant vector. Execution, LimitExceeded, Timeout,
    /// Cancelled, Internal.
    pub fn evaluate<'a>(
        &'a self,
        query: &'a str,
        times: QueryTimes,
        options: &'a QueryOptions,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<QueryOutcome, PromqlError>> {
        async move {
            let text = Text { text: query.to_owned(), _memory: self.reserve_text(query, TREE_BYTES, ctx)? };
            let evaluated = if options.no_cache || options.stats {
                self.evaluate_unshared(text, times, options, ctx).await?
            } else {
                self.evaluate_shared(text, times, options, ctx).await?
            };
            let EvaluationResult { value, annotations, mut timings, samples, memory } = evaluated;
            // If the outcome is that of an equal query, the files that it left out count for this one, too.
            ctx.stats.left_out.take_over(annotations.left_out())?;
            timings.queue = ctx.waited();
            Ok(QueryOutcome {
                value,
                warnings: annotations.texts(Level::Warning, query),
                infos: annotations.texts(Level::Info, query),
                samples,
                timings,
                memory,
            })
        }
        .boxed()
    }

    /// Evaluates at one time.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn instant<'a>(
        &'a self,
        query: &'a str,
        time_ms: Millis,
        options: &'a QueryOptions,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<QueryOutcome, PromqlError>> {
        self.evaluate(query, QueryTimes::instant(time_ms), options, ctx)
    }

    /// Evaluates the query, or shares the outcome of an equal one that is being evaluated.
    async fn evaluate_shared(
        &self,
        text: Text,
        times: QueryTimes,
        options: &QueryOptions,
        ctx: &QueryContext,
    ) -> Result<EvaluationResult, PromqlError> {
        let lookback_ms = options.lookback_ms.unwrap_or(self.settings.lookback_ms);
        let flight = self.flights.of(&text.text, times, lookback_ms, ctx);
        ctx.query().enter(Phase::Queue);
        let waited = flight.wait(self.source.snapshot().version(), ctx.deadline);
        let first = match ctx.or_cancelled("expression evaluation queue", waited).await? {
            FlightResult::Outcome(outcome) => return *outcome,
            FlightResult::First(first) => first,
        };
        let version = self.source.snapshot().version();
        let outcome = self.evaluate_unshared(text, times, options, ctx).await;
        first.end(version, &outcome);
        outcome
    }

    /// Evaluates the query, whoever else asks the same.
    async fn evaluate_unshared(
        &self,
        text: Text,
        times: QueryTimes,
        options: &QueryOptions,
        ctx: &QueryContext,
    ) -> Result<EvaluationResult, PromqlError> {
        let (engine, options, inner, text) = (self.clone(), *options, ctx.clone(), Arc::new(text));
        let work = move || {
            let (engine, inner, text) = (engine.clone(), inner.clone(), Arc::clone(&text));
            async move {
                if !is_quickly_parsed(&text.text) {
                    give_way().await;
                }
                let began = Instant::now();
                let expr = engine.parse_at(&text, times, &inner)?;
                let parsed = began.elapsed();
                // The cache is looked up only now that the query has left the queue, since it may have been filled
                // meanwhile.
                let mut evaluated = match engine.cacheable(&expr, times, &options, &inner) {
                    None => engine.job(expr, times, &options, &inner, engine.source.snapshot()).evaluate().await?,
                    Some(cacheable) => engine.range_job(expr, times, &options, &inner, cacheable).evaluate().await?,
                };
                evaluated.timings.parse = parsed;
                Ok(evaluated)
            }
        };
        self.run(ctx, work).await
    }

    /// Runs the work of a query on the engine, including the parsing of its text, and repeats it if other queries held its
    /// memory. It begins on the caller's thread, and moves to the engine's threads once it is known to be long.
    async fn run<T, F>(
        &self,
        ctx: &QueryContext,
        mut work: impl FnMut() -> F + Send + 'static,
    ) -> Result<T, PromqlError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, PromqlError>> + Send + 'static,
    {
        let work = move || {
            let work = work();
            let run = async move {
                match work.await {
                    Ok(done) => Ok(Ok(done)),
                    // A text that does not parse does not count as a failed query.
                    Err(PromqlError::Parse(error)) => Ok(Err(error)),
                    Err(PromqlError::Evaluation(error)) => Err(error),
                }
            };
            run.boxed()
        };
        Ok(Box::pin(self.query.run_short_anew(ctx, work)).await??)
    }

    /// Shows the plan of a query.
    ///
    /// # Errors
    /// As [`Self::evaluate`].
    pub fn explain<'a>(
        &'a self,
        query: &'a str,
        times: QueryTimes,
        options: &'a QueryOptions,
        explain: Explain,
        ctx: &'a QueryContext,
    ) -> BoxFuture<'a, Result<Value, PromqlError>> {
        async move {
            let text = Text { text: query.to_owned(), _memory: self.reserve_text(query, TREE_BYTES, ctx)? };
            let (engine, options, asked, text) = (self.clone(), *options, ctx.clone(), Arc::new(text));
            let work = move || {
                // The plans that `count_values` and `info` need during planning must run, and are shown as children.
                let inner = asked.clone().explaining(Some(PlanRecorder::new(explain))).planning();
                let (engine, text) = (engine.clone(), Arc::clone(&text));
                async move {
                    give_way().await;
                    let expr = engine.parse_at(&text, times, &inner)?;
                    let snapshot = engine.source.snapshot();
                    // Not shown if rows are hidden from the caller: which cached steps are still valid tells when hidden
                    // samples were written.
                    let is_told = explain == Explain::Analyze && !inner.stats.is_hidden();
                    let kept = is_told.then(|| engine.shown_cache(&expr, times, &options, &inner, &*snapshot));
                    let mut shown = engine.job(expr, times, &options, &inner, snapshot).explain(explain).await?;
                    // Adds what the cache would have provided; the nodes above show the work without it.
                    if let (Some(kept), Some(shown)) = (kept, shown.as_object_mut()) {
                        shown.insert("result_cache".to_owned(), kept);
                    }
                    Ok(shown)
                }
            };
            self.run(ctx, work).await
        }
        .boxed()
    }

    /// Shows how much of a query the result cache would answer.
    fn shown_cache(
        &self,
        expr: &Expr,
        times: QueryTimes,
        options: &QueryOptions,
        ctx: &QueryContext,
        snapshot: &dyn SeriesSnapshot,
    ) -> Value {
        let Some(Cacheable { key, rests_on }) = self.cacheable(expr, times, options, ctx) else {
            let state = if self.results.is_on() { "not cacheable" } else { "off" };
            return serde_json::json!({"state": state});
        };
        let grid = grid(times);
        let steps = self.results.get(&key).map_or(0..0, |entry| usable(&entry, grid, &rests_on, snapshot));
        let state = match steps.len() {
            all if all == grid.steps => "hit",
            0 => "miss",
            _ => "partial",
        };
        serde_json::json!({"state": state, "steps": grid.steps, "steps_kept": steps.len()})
    }

    /// Parses an expression with the settings of the language, checking the limits of its query. To be called within
    /// [`QueryEngine::run`].
    ///
    /// # Errors
    /// Parse: the text is no valid expression. LimitExceeded, Timeout, Cancelled.
    pub fn parse(&self, query: &str, ctx: &QueryContext) -> Result<Expr, PromqlError> {
        let options =
            ParseOptions { experimental_functions: self.settings.experimental_functions, ..ParseOptions::default() };
        Ok(parse_with(query, &options, Some(&Pace::new(ctx, "query preparation")))?)
    }

    /// Reserves memory for what is made of a text: `times` bytes per byte of it, and some for each pattern of a matcher.
    /// Nothing for short texts of few patterns.
    ///
    /// # Errors
    /// LimitExceeded.
    pub fn reserve_text(&self, query: &str, times: usize, ctx: &QueryContext) -> Result<MemoryReservation> {
        let memory = self.query.reservation("expression", ctx);
        let patterns = patterns_of(query);
        if query.len() > SHORT_TEXT || patterns > FEW_PATTERNS {
            let bytes = query.len().saturating_mul(times).saturating_add(PATTERN_BYTES.saturating_mul(patterns));
            memory.try_grow(bytes).map_err(from_datafusion)?;
        }
        Ok(memory)
    }

    fn parse_at(&self, query: &Text, times: QueryTimes, ctx: &QueryContext) -> Result<Expr, PromqlError> {
        let expr = self.parse(&query.text, ctx)?;
        let given = type_of(&expr);
        if times.step_ms > 0 && !matches!(given, ValueType::Scalar | ValueType::Vector) {
            let name = if given == ValueType::Matrix { "range vector" } else { "string" };
            let text = format!("invalid expression type \"{name}\" for range query, must be Scalar or instant Vector");
            return Err(Error::invalid(text).into());
        }
        times.check_durations(&expr)?;
        Ok(expr)
    }

    fn job(
        &self,
        expr: Expr,
        times: QueryTimes,
        options: &QueryOptions,
        ctx: &QueryContext,
        snapshot: Arc<dyn SeriesSnapshot>,
    ) -> Job {
        let tallies = options.stats.then(|| Tallies::new(grid(times)));
        let planner = Planner {
            snapshot,
            engine: Arc::clone(&self.query),
            run: Arc::new(RunState::new(ctx.clone(), tallies)),
            room: Room::new(&self.query, ctx),
            times,
            lookback_ms: options.lookback_ms.unwrap_or(self.settings.lookback_ms),
            subquery_step_ms: self.settings.subquery_step_ms,
            joins: AtomicUsize::new(0),
            looked_at: AtomicU64::new(0),
            repeated: repeated(&expr),
            wanted: Mutex::default(),
            patterns: Mutex::default(),
        };
        let single = times.start_ms == times.end_ms;
        Job { planner, expr, scope: Scope::whole(grid(times), single) }
    }
}

/// The text of a query, and the reservation for what is made of it.
struct Text {
    text: String,
    _memory: MemoryReservation,
}

fn grid(times: QueryTimes) -> Grid {
    let steps = if times.step_ms == 0 { 1 } else { (times.end_ms - times.start_ms) / times.step_ms + 1 };
    Grid { start: times.start_ms, step_ms: times.step_ms.max(1), steps: steps as usize }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::*;

    #[test]
    fn selectors_and_their_patterns_take_memory() {
        let bytes = |text: &str, times: usize| selector_bytes(std::iter::repeat_n(text, times));
        assert_eq!(bytes("up", 100), 0, "few short ones");
        assert_eq!(bytes("{a=~\"x.*\"}", 10), 0, "and few patterns");
        assert!(bytes("up", 10_000) >= 10_000 * SELECTOR_BYTES);
        assert!(bytes("{a=~\"x.*\",b!~\"y.*\"}", 10_000) >= 20_000 * PATTERN_BYTES);
        assert!(bytes(&format!("{{a=\"{}\"}}", "x".repeat(1 << 20)), 1) >= TREE_BYTES << 20);
    }

    #[test]
    fn steps_of_a_range() {
        for ((start_ms, end_ms, step_ms), steps) in [
            ((0, 0, 1), 1),
            ((0, 9, 10), 1),
            ((0, 10, 10), 2),
            ((-15, 14, 10), 3),
            ((-15, 15, 10), 4),
            ((5, 1005, 1), 1001),
        ] {
            let times = QueryTimes::range(start_ms, end_ms, step_ms).expect("a range");
            let grid = grid(times);
            assert_eq!((grid.start, grid.step_ms, grid.steps), (start_ms, step_ms, steps), "{times:?}");
            assert!(grid.end() <= end_ms && grid.end() + step_ms > end_ms, "{times:?}");
        }
        let instant = grid(QueryTimes::instant(7));
        assert_eq!((instant.start, instant.step_ms, instant.steps), (7, 1, 1));
        let fault = |start, end, step| QueryTimes::range(start, end, step).map_err(|e| (e.kind, e.message)).err();
        let before = Some((ErrorKind::Invalid, "end timestamp must not be before start time".to_owned()));
        assert_eq!((fault(5, 4, 1), fault(5, 4, 0)), (before.clone(), before));
        let text = "zero or negative query resolution step widths are not accepted. Try a positive integer";
        let width = Some((ErrorKind::Invalid, text.to_owned()));
        assert_eq!((fault(5, 5, 0), fault(5, 9, -1)), (width.clone(), width));
        assert_eq!(QueryTimes::range(0, 9_999_999, 1).map(|times| grid(times).steps).ok(), Some(10_000_000));
        for (end, step) in [(10_000_000, 1), (i64::MAX, 1), (i64::MAX, 1_000_000)] {
            assert_eq!(fault(0, end, step).map(|(kind, _)| kind), Some(ErrorKind::LimitExceeded), "{end} {step}");
        }
        let all = fault(i64::MIN, i64::MAX, 1_000).map(|(_, text)| text).expect("too many steps");
        assert!(all.starts_with("a range query has 18446744073709552 steps, at most 10000000"), "{all}");
    }
}
