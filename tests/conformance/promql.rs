//! Prometheus' own acceptance scripts, against store, engine and language as the binary wires them, in three states.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use quiver_api::AppState;
use quiver_promql::{PromqlError, QueryOptions, QueryOutcome, QueryTimes, QueryValue, StepResult};
use quiver_query::{Limits, QueryContext};
use quiver_tests::promqltest::run::{Case, known_failures, report, run as run_script};
use quiver_tests::promqltest::{Answer, LoadedSeries, Outcome, Subject, Value};
use quiver_types::metrics::HistogramSample;
use quiver_types::{Access, LabelSet, MetricsBatch, SeriesTable};

use crate::store::empty_store;

/// What happens to data between load and eval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Live,
    Flushed,
    /// Every second load is flushed.
    HalfFlushed,
}

struct Quiver {
    runtime: tokio::runtime::Runtime,
    state: State,
    loads: usize,
    open: Option<(Arc<AppState>, tempfile::TempDir)>,
}

impl Quiver {
    fn app(&self) -> Result<&Arc<AppState>, String> {
        self.open.as_ref().map(|o| &o.0).ok_or_else(|| "not open".to_owned())
    }

    fn close(&mut self) {
        if let Some((app, dir)) = self.open.take() {
            self.runtime.block_on(app.engines.store.close(Duration::ZERO));
            drop(app);
            drop(dir);
        }
    }

    /// Over flushed data each plan runs twice, and the second run answers.
    fn context(&self) -> QueryContext {
        let limits = Limits { timeout: Duration::from_mins(5), ..Limits::default() };
        QueryContext::new(Access::full(), limits).rehearsed(self.state == State::Flushed)
    }
}

impl Subject for Quiver {
    fn clear(&mut self) -> Result<(), String> {
        self.close();
        self.open = Some(empty_store(&self.runtime)?);
        self.loads = 0;
        Ok(())
    }

    fn load(&mut self, series: &[LoadedSeries]) -> Result<(), String> {
        let mut batch = MetricsBatch::default();
        for s in series {
            let number = batch.push_series(s.labels.canonical());
            for (ts, start_ts, value) in &s.samples {
                match value {
                    Value::Float(v) => batch.push_sample(number, *ts, *v, *start_ts),
                    Value::Histogram(h) => batch.histograms.push(HistogramSample {
                        series: number,
                        ts: *ts,
                        start_ts: *start_ts,
                        histogram: (**h).clone(),
                    }),
                }
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        self.loads += 1;
        let flush = match self.state {
            State::Live => false,
            State::Flushed => true,
            State::HalfFlushed => self.loads % 2 == 1,
        };
        let app = Arc::clone(self.app()?);
        self.runtime.block_on(async {
            let outcome = app.engines.store.write_metrics(batch).await.map_err(|e| e.to_string())?;
            if !outcome.refused.is_empty() {
                return Err(format!("refused: {:?}", outcome.refused));
            }
            if flush {
                app.engines.store.flush_all().await.map_err(|e| e.to_string())?;
            }
            Ok(())
        })
    }

    fn instant(&mut self, query: &str, time_ms: i64) -> Result<Outcome, String> {
        let app = self.app()?;
        let ctx = self.context();
        answer(self.runtime.block_on(app.engines.promql.instant(query, time_ms, &QueryOptions::default(), &ctx)))
    }

    fn range(&mut self, query: &str, start_ms: i64, end_ms: i64, step_ms: i64) -> Result<Outcome, String> {
        let app = self.app()?;
        let ctx = self.context();
        let options = QueryOptions::default();
        let times = QueryTimes::range(start_ms, end_ms, step_ms).map_err(|e| PromqlError::from(e).to_string())?;
        answer(self.runtime.block_on(app.engines.promql.evaluate(query, times, &options, &ctx)))
    }
}

fn answer(outcome: Result<QueryOutcome, PromqlError>) -> Result<Outcome, String> {
    let outcome = outcome.map_err(|e| e.to_string())?;
    let answer = match &*outcome.value {
        QueryValue::Scalar { value, .. } => Answer::Scalar(*value),
        QueryValue::String { text, .. } => Answer::String(text.clone()),
        QueryValue::Vector(result) => {
            Answer::Vector(points(result).into_iter().filter_map(|(l, mut p)| Some((l, p.pop()?.1))).collect())
        }
        QueryValue::Matrix(result) => Answer::Matrix(points(result)),
        QueryValue::Samples(result) => Answer::Matrix(
            result
                .series
                .iter()
                .map(|s| {
                    let floats = s.ts.iter().zip(&s.values).map(|(t, v)| (*t, Value::Float(*v)));
                    let hists =
                        s.hist_ts.iter().zip(&s.hists).map(|(t, h)| (*t, Value::Histogram(Box::new(h.clone()))));
                    let mut all: Vec<(i64, Value)> = floats.chain(hists).collect();
                    all.sort_by_key(|p| p.0);
                    (labels(&result.table, s.row), all)
                })
                .collect(),
        ),
    };
    Ok(Outcome { answer, warnings: outcome.warnings, infos: outcome.infos })
}

fn labels(table: &SeriesTable, row: u32) -> LabelSet {
    LabelSet::from_pairs(table.labels(row as usize))
}

fn points(result: &StepResult) -> Vec<(LabelSet, Vec<(i64, Value)>)> {
    result
        .rows()
        .map(|row| {
            let there = (0..result.grid.steps).filter(|&s| row.present[s]);
            let floats = there.map(|s| (result.grid.at(s), Value::Float(row.values[s])));
            let hists =
                row.hists.iter().map(|h| (result.grid.at(h.1 as usize), Value::Histogram(Box::new(h.2.clone()))));
            let mut all: Vec<(i64, Value)> = floats.chain(hists).collect();
            all.sort_by_key(|p| p.0);
            (labels(&result.table, row.row), all)
        })
        .filter(|(_, points)| !points.is_empty())
        .collect()
}

/// Runs all scripts in all states; says whether every case passed or is on the list of known failures.
pub(crate) fn run(folder: &Path, out: &mut Vec<serde_json::Value>) -> bool {
    let list = concat!(env!("CARGO_MANIFEST_DIR"), "/conformance/promql/expected_failures.txt");
    let known = known_failures(&std::fs::read_to_string(list).unwrap_or_default());
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .map(|entries| {
            entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "test")).collect()
        })
        .unwrap_or_default();
    files.sort();
    if files.is_empty() {
        println!("promql: no scripts in {}", folder.display());
        return false;
    }
    let mut faults: HashMap<String, Case> = HashMap::new();
    let mut order = Vec::new();
    for state in [State::Live, State::Flushed, State::HalfFlushed] {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mut subject = Quiver { runtime, state, loads: 0, open: None };
        for path in &files {
            let file = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let text = std::fs::read_to_string(path).expect("a script is text");
            let cases = run_script(&file, &text, &mut subject).unwrap_or_else(|e| panic!("{file}: {e}"));
            let failed = cases.iter().filter(|c| c.fault.is_some()).count();
            println!("promql {state:?} {file}: {} of {} pass", cases.len() - failed, cases.len());
            for mut case in cases {
                case.fault = case.fault.map(|f| format!("{state:?}: {f}"));
                let seen = faults.entry(case.key.clone()).or_insert_with(|| {
                    order.push(case.key.clone());
                    case.clone()
                });
                if seen.fault.is_none() {
                    seen.fault = case.fault;
                }
            }
        }
        subject.close();
    }
    let cases: Vec<Case> = order.iter().map(|key| faults[key].clone()).collect();
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for case in &cases {
        match (&case.fault, known.get(&case.key)) {
            (None, None) => passed += 1,
            (Some(_), Some(_)) => skipped += 1,
            (Some(fault), None) => {
                failed += 1;
                println!("FAILED {} (line {}): {fault}", case.key, case.line);
            }
            (None, Some(_)) => {
                failed += 1;
                println!("PASSES but is on the list of known failures: {}", case.key);
            }
        }
    }
    if let serde_json::Value::Array(entries) = report(&cases, &known) {
        out.extend(entries);
    }
    println!("promql: {passed} passed, {failed} failed, {skipped} known failures");
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    failed == 0
}
