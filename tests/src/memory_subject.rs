//! The language on the in-memory source, as a subject of acceptance scripts.

use std::sync::Arc;

use quiver_promql::nodes::extension_planner;
use quiver_promql::query::{PromqlEngine, PromqlSettings, QueryOptions, QueryOutcome};
use quiver_promql::result::{QueryValue, StepResult};
use quiver_query::{EngineSettings, Limits, QueryContext, QueryEngine};
use quiver_types::{Access, LabelSet};
use tokio::runtime::Runtime;

use crate::memory_source::{MemorySource, MemoryTables, MemoryValue};
use crate::promqltest::{Answer, LoadedSeries, Outcome, Subject, Value};

/// Holds what was loaded; asks the engine.
#[derive(Debug)]
pub struct MemorySubject {
    source: MemorySource,
    query: Arc<QueryEngine>,
    runtime: Runtime,
}

impl MemorySubject {
    /// Starts an engine.
    ///
    /// # Errors
    /// The engine cannot be started.
    pub fn new() -> Result<Self, String> {
        let settings = EngineSettings {
            memory_bytes: 1 << 30,
            spill_dir: std::env::temp_dir(),
            spill_bytes: 1 << 20,
            threads: 2,
            concurrent_max: 4,
        };
        let query = QueryEngine::new(&settings, vec![extension_planner()]).map_err(|e| e.to_string())?;
        let runtime = Runtime::new().map_err(|e| e.to_string())?;
        Ok(Self { source: MemorySource::default(), query, runtime })
    }

    fn engine(&self) -> PromqlEngine {
        let source = Arc::new(self.source.clone());
        PromqlEngine::new(source, Arc::new(MemoryTables), Arc::clone(&self.query), PromqlSettings::default())
    }
}

impl Subject for MemorySubject {
    fn clear(&mut self) -> Result<(), String> {
        self.source = MemorySource::default();
        Ok(())
    }

    fn load(&mut self, series: &[LoadedSeries]) -> Result<(), String> {
        for one in series {
            for (ts, start, value) in &one.samples {
                let value = match value {
                    Value::Float(v) => MemoryValue::Float(*v),
                    Value::Histogram(h) => MemoryValue::Histogram(h.clone()),
                };
                self.source.push(&one.labels, *ts, *start, value);
            }
        }
        self.source.settle_hints();
        Ok(())
    }

    fn instant(&mut self, query: &str, time_ms: i64) -> Result<Outcome, String> {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let asked = self.engine();
        let outcome = self.runtime.block_on(asked.instant(query, time_ms, &QueryOptions::default(), &ctx));
        outcome.map(convert).map_err(|e| e.to_string())
    }

    fn range(&mut self, query: &str, start_ms: i64, end_ms: i64, step_ms: i64) -> Result<Outcome, String> {
        let ctx = QueryContext::new(Access::full(), Limits::default());
        let asked = self.engine();
        let options = QueryOptions::default();
        let outcome = self.runtime.block_on(asked.range(query, start_ms, end_ms, step_ms, &options, &ctx));
        outcome.map(convert).map_err(|e| e.to_string())
    }
}

/// Turns an outcome into what scripts compare.
pub fn convert(outcome: QueryOutcome) -> Outcome {
    let answer = match outcome.value {
        QueryValue::Scalar { value, .. } => Answer::Scalar(value),
        QueryValue::String { text, .. } => Answer::String(text),
        QueryValue::Vector(result) => {
            let first = |points: Vec<(i64, Value)>| points.into_iter().next().map(|(_, v)| v);
            Answer::Vector(rows(&result).into_iter().filter_map(|(l, p)| first(p).map(|v| (l, v))).collect())
        }
        QueryValue::Matrix(result) => Answer::Matrix(rows(&result)),
        QueryValue::Samples(result) => Answer::Matrix(
            result
                .series
                .iter()
                .map(|s| {
                    let floats = s.ts.iter().zip(&s.values).map(|(t, v)| (*t, Value::Float(*v)));
                    let hists = s.hist_ts.iter().zip(&s.hists).map(|(t, h)| (*t, Value::Histogram(Box::new(h.clone()))));
                    let mut points: Vec<(i64, Value)> = floats.chain(hists).collect();
                    points.sort_by_key(|p| p.0);
                    (LabelSet::from_pairs(result.table.labels(s.row as usize)), points)
                })
                .collect(),
        ),
    };
    Outcome { answer, warnings: outcome.warnings, infos: outcome.infos }
}

fn rows(result: &StepResult) -> Vec<(LabelSet, Vec<(i64, Value)>)> {
    result
        .rows()
        .map(|row| {
            let floats = row.values.iter().zip(row.present).enumerate().filter(|(_, (_, p))| **p);
            let mut points: Vec<(i64, Value)> =
                floats.map(|(step, (v, _))| (result.grid.at(step), Value::Float(*v))).collect();
            let at = |step: u32| result.grid.at(step as usize);
            points.extend(row.hists.iter().map(|(_, step, h)| (at(*step), Value::Histogram(Box::new(h.clone())))));
            points.sort_by_key(|p| p.0);
            (LabelSet::from_pairs(result.table.labels(row.row as usize)), points)
        })
        .collect()
}
