//! The product in this process, wired as the binary wires it, and filled with the data set: written, flushed and
//! compacted, so that queries meet what they meet in production.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use quiver::settings::LoadedSettings;
use quiver::wiring;
use quiver_api::AppState;
use quiver_promql::{QueryOptions, QueryOutcome, QueryTimes};
use quiver_query::tables::DomainAccess;
use quiver_query::{Explain, QueryContext, Rules, from_datafusion};
use quiver_sql::{Answer, Request};
use quiver_types::{Access, Matcher, MillisRange, SampleRequest, SelectedSeries, SeriesSelector, SystemClock};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use crate::cpu;
use crate::data::{ROUNDS, SAMPLES, SERIES, batch, last_ms};

/// Which of the caches that keep more than bytes of files are on.
#[derive(Debug, Clone, Copy)]
pub struct Caches {
    /// Decoded columns and samples.
    pub decoded: bool,
    /// Results of range queries: a query that is asked again is not evaluated.
    pub results: bool,
}

impl Default for Caches {
    fn default() -> Self {
        Self { decoded: true, results: false }
    }
}

/// A running product with a folder of its own.
#[derive(Debug)]
pub struct World {
    /// Runtime of the I/O side.
    pub runtime: Runtime,
    /// The product.
    pub app: Arc<AppState>,
    dir: TempDir,
}

impl Drop for World {
    fn drop(&mut self) {
        self.runtime.block_on(self.app.engines.store.close(Duration::from_secs(1)));
    }
}

impl World {
    /// Starts without data; background compaction is off, so that each bench measures what it names.
    pub fn empty(caches: Caches) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        let flags = [
            ("store.data", dir.path().display().to_string()),
            ("store.retention", "none".to_owned()),
            ("compaction.enabled", "false".to_owned()),
            ("rbac.mode", "off".to_owned()),
            ("memory.limit", "6GiB".to_owned()),
            ("memory.decoded_cache", caches.decoded.to_string()),
            ("query.result_cache", if caches.results { "64MiB" } else { "0" }.to_owned()),
        ];
        let loaded = LoadedSettings::load(None, std::iter::empty(), &flags).expect("valid settings");
        let runtime = Runtime::new().expect("a runtime");
        let app = runtime.block_on(wiring::build(&loaded.settings, Arc::new(SystemClock))).expect("a store");
        Self { runtime, app, dir }
    }

    /// Starts and fills with all of the data set, flushed and compacted; says what that took and how small it is.
    pub fn filled(caches: Caches) -> Self {
        let world = Self::empty(caches);
        let began = Instant::now();
        let (series, rounds) = (1_000, 100);
        for first_round in (0..ROUNDS).step_by(rounds) {
            for first in (0..SERIES).step_by(series) {
                world.write(batch(first, series, first_round, rounds));
            }
        }
        world.flush();
        world.compact();
        let bytes = world.stored_bytes() as f64 / SAMPLES as f64;
        cpu::say(&format!(
            "{SAMPLES} samples in {:.1} s, {bytes:.3} bytes each in the object store",
            began.elapsed().as_secs_f64()
        ));
        world
    }

    /// Writes a batch; waits until it is acknowledged.
    pub fn write(&self, batch: quiver_types::MetricsBatch) {
        self.runtime.block_on(self.app.engines.store.write_metrics(batch)).expect("taken");
    }

    /// Writes log rows; waits until they are acknowledged.
    pub fn write_logs(&self, batch: quiver_types::LogsBatch) {
        self.runtime.block_on(self.app.engines.store.write_logs(batch)).expect("taken");
    }

    /// Scans log rows on the engine's threads; gives how many there are.
    pub fn scan_logs(&self, request: &quiver_types::logs::LogRequest, limit: Option<usize>) -> usize {
        let ctx = self.context();
        let snapshot = self.app.engines.store.logs().snapshot();
        let table = quiver_store::logs_table(&*snapshot, &ctx.access, request.clone(), &ctx.stats).expect("a table");
        let table = quiver_query::scan_table(table);
        let source = datafusion::datasource::provider_as_source(table);
        let plan =
            datafusion::logical_expr::LogicalPlanBuilder::scan_with_filters_fetch("logs", source, None, vec![], limit)
                .and_then(datafusion::logical_expr::LogicalPlanBuilder::build)
                .expect("a plan");
        let (engine, inner) = (Arc::clone(&self.app.engines.query), ctx.clone());
        let work = async move {
            let mut batches = engine.execute(&plan, &inner, Rules::Direct).await?;
            let mut rows = 0;
            while let Some(batch) = batches.next().await {
                rows += batch.map_err(from_datafusion)?.num_rows();
            }
            Ok(rows)
        };
        self.runtime.block_on(self.app.engines.query.run(&ctx, work)).expect("scanned")
    }

    /// Flushes everything.
    pub fn flush(&self) {
        self.runtime.block_on(self.app.engines.store.flush_all()).expect("flushed");
    }

    /// Compacts everything.
    pub fn compact(&self) {
        self.runtime.block_on(self.app.engines.store.compact_all()).expect("compacted");
    }

    /// Bytes of the object store: parts and commit objects.
    pub fn stored_bytes(&self) -> u64 {
        fn size(path: &std::path::Path) -> u64 {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|e| e.metadata().map_or(0, |m| if m.is_dir() { size(&e.path()) } else { m.len() })).sum()
        }
        size(&self.dir.path().join("store"))
    }

    fn context(&self) -> QueryContext {
        QueryContext::new(Access::full(), self.app.limits())
    }

    /// Evaluates at the end of the data.
    pub fn instant(&self, query: &str) -> QueryOutcome {
        let (ctx, options) = (self.context(), QueryOptions::default());
        self.runtime.block_on(self.app.engines.promql.instant(query, last_ms(), &options, &ctx)).expect(query)
    }

    /// Evaluates over the last hour of the data, every 15 s.
    pub fn last_hour(&self, query: &str) -> QueryOutcome {
        let (ctx, options, end) = (self.context(), QueryOptions::default(), last_ms());
        let times = QueryTimes::range(end - 3_600_000, end, 15_000).expect("a range");
        let range = self.app.engines.promql.evaluate(query, times, &options, &ctx);
        self.runtime.block_on(range).expect(query)
    }

    /// Plans the same, without running it.
    pub fn plan_last_hour(&self, query: &str) {
        let (ctx, options, end) = (self.context(), QueryOptions::default(), last_ms());
        let times = QueryTimes::range(end - 3_600_000, end, 15_000).expect("a range");
        let plan = self.app.engines.promql.explain(query, times, &options, Explain::Plan, &ctx);
        self.runtime.block_on(plan).expect(query);
    }

    /// Plans an SQL statement, without running it.
    pub fn plan_sql(&self, statement: &str) {
        let request = Request { text: statement.to_owned(), explain: Some(Explain::Plan), ..Request::default() };
        let ctx = self.context();
        let answer = self.runtime.block_on(self.app.engines.sql.query(request, &DomainAccess::full(), &ctx));
        assert!(matches!(answer.expect(statement), Answer::Plan(_)), "{statement}");
    }

    /// Resolves matchers against a snapshot of its own.
    pub fn select(&self, matchers: Vec<Matcher>, range: MillisRange) -> SelectedSeries {
        let ctx = self.context();
        let snapshot = self.app.engines.series.snapshot();
        let selector = SeriesSelector { matchers, range, labels: None };
        self.runtime.block_on(snapshot.select(&ctx.access, &selector, &ctx.stats)).expect("selected")
    }

    /// Scans the float samples of selected series on the engine's threads; gives how many there are.
    pub fn scan(&self, selected: &SelectedSeries, range: MillisRange) -> usize {
        use datafusion::arrow::array::AsArray;
        let ctx = self.context();
        let request = SampleRequest { range, ..SampleRequest::default() };
        let table = quiver_query::scan_table(selected.samples_table(request, &ctx.stats));
        let source = datafusion::datasource::provider_as_source(table);
        let plan = datafusion::logical_expr::LogicalPlanBuilder::scan("samples", source, None)
            .and_then(datafusion::logical_expr::LogicalPlanBuilder::build)
            .expect("a plan");
        let (engine, inner) = (Arc::clone(&self.app.engines.query), ctx.clone());
        let work = async move {
            let mut batches = engine.execute(&plan, &inner, Rules::Direct).await?;
            let mut samples = 0;
            while let Some(batch) = batches.next().await {
                let batch = batch.map_err(from_datafusion)?;
                let ts = batch.column_by_name("ts").expect("asked for");
                let sizes = ts.as_list_view::<i32>().value_sizes();
                samples += sizes.iter().map(|&n| n as usize).sum::<usize>();
            }
            Ok(samples)
        };
        self.runtime.block_on(self.app.engines.query.run(&ctx, work)).expect("scanned")
    }
}
