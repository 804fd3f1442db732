//! Operators by what they give for rows written as text.
//!
//! Rows are `row: cell cell …`, `;` stands between rows and `|` between batches. A cell is a number, `_` for nothing, or
//! `h5` for a native histogram of five observations. Answers are written the same way, batches run together.

use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::GreedyMemoryPool;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use quiver_query::{Limits, QueryContext, from_datafusion};
use quiver_types::series::SeriesTableBuilder;
use quiver_types::{Access, SeriesTable};

use super::batch::{matrix_schema, to_batch, to_block};
use super::literal::Literal;
use super::*;
use crate::annotation::Level;
use crate::histogram::testing::exponential;
use crate::kernel::Block;

mod histogram;
mod join;
mod map;
mod memory;
mod rows;
mod select;
mod set;

/// Reads rows of one batch. What is not there has a number all the same, which nobody must look at; before the first row
/// stands another one, so that the batch begins in the middle of its buffers.
fn batch(text: &str) -> RecordBatch {
    let rows: Vec<(u32, Vec<&str>)> = text
        .split(';')
        .map(|row| {
            let (number, cells) = row.split_once(':').expect("a row");
            (number.trim().parse().expect("a row number"), cells.split_whitespace().collect())
        })
        .collect();
    let steps = rows[0].1.len();
    let mut block =
        Block { rows: vec![u32::MAX], steps, values: vec![777.0; steps], present: vec![true; steps], hists: vec![] };
    for (idx, (number, cells)) in rows.iter().enumerate() {
        assert_eq!(cells.len(), steps, "{text}");
        block.rows.push(*number);
        for (step, cell) in cells.iter().enumerate() {
            let count: Option<f64> = cell.strip_prefix('h').map(|count| count.parse().expect("a count"));
            if let Some(count) = count {
                block.hists.push((idx as u32 + 1, step as u32, exponential(0, 1, &[count])));
            }
            let there = count.is_none() && *cell != "_";
            block.present.push(there);
            block.values.push(if there { cell.parse().expect("a number") } else { 777.0 });
        }
    }
    to_batch(block, &matrix_schema(steps, true)).expect("a batch").slice(1, rows.len())
}

/// A node that gives rows.
fn literal(text: &str) -> Arc<dyn ExecutionPlan> {
    let batches: Vec<RecordBatch> = if text.is_empty() { vec![] } else { text.split('|').map(batch).collect() };
    let schema = batches.first().map_or_else(|| matrix_schema(1, true), RecordBatch::schema);
    Arc::new(StepExec::new(Arc::new(Literal { shown: String::new(), schema, batches }), vec![]))
}

/// Writes the rows of a batch.
fn shown(batch: RecordBatch) -> Vec<String> {
    let block = to_block(batch).expect("a step matrix");
    let cell = |idx: usize, step: usize| {
        let hist = block.hists.iter().find(|h| (h.0 as usize, h.1 as usize) == (idx, step));
        let at = idx * block.steps + step;
        match (block.present[at], hist) {
            (true, None) => block.values[at].to_string(),
            (false, Some(h)) => format!("h{}", h.2.count),
            (false, None) => "_".to_owned(),
            (true, Some(_)) => panic!("a float and a histogram at step {step}"),
        }
    };
    let row = |(idx, row): (usize, &u32)| {
        let cells: Vec<String> = (0..block.steps).map(|step| cell(idx, step)).collect();
        format!("{row}: {}", cells.join(" "))
    };
    block.rows.iter().enumerate().map(row).collect()
}

/// Runs an operator over rows; gives the rows of its answer or its error, and what it had to say.
async fn answer(operator: impl StepOperator, inputs: &[&str]) -> (String, Vec<String>) {
    answer_within(operator, inputs, usize::MAX).await
}

/// As [`answer`], with so many bytes of memory.
async fn answer_within(operator: impl StepOperator, inputs: &[&str], bytes: usize) -> (String, Vec<String>) {
    let inputs = inputs.iter().map(|text| literal(text)).collect();
    let step = Arc::new(Step(Arc::new(operator)));
    let plan = step.physical(inputs, &SessionContext::new().state()).expect("a plan");
    let run = Arc::new(RunState::new(QueryContext::new(Access::full(), Limits::default()), None));
    let shared = Arc::new(RunShared::with(Arc::clone(&run)));
    let config = SessionConfig::new().with_extension(shared);
    let pool = Arc::new(GreedyMemoryPool::new(bytes));
    let runtime = RuntimeEnvBuilder::new().with_memory_pool(pool).build_arc().expect("a runtime");
    let task = Arc::new(TaskContext::default().with_session_config(config).with_runtime(runtime));
    let rows = match collect(plan, task).await {
        Ok(batches) => batches.into_iter().flat_map(shown).collect::<Vec<_>>().join("; "),
        Err(error) => format!("error: {}", from_datafusion(error).message),
    };
    let annotations = run.annotations();
    let mut notes = annotations.texts(Level::Warning, "");
    notes.extend(annotations.texts(Level::Info, ""));
    (rows, notes)
}

/// Runs an operator that has nothing to say.
async fn rows(operator: impl StepOperator, inputs: &[&str]) -> String {
    let (rows, notes) = answer(operator, inputs).await;
    assert!(notes.is_empty(), "{inputs:?}: {notes:?}");
    rows
}

/// A table of so many rows `{a="0"}`, `{a="1"}` …
fn table(rows: usize) -> Arc<SeriesTable> {
    let mut builder = SeriesTableBuilder::default();
    for row in 0..rows {
        builder.push([("a", row.to_string().as_str())]);
    }
    Arc::new(builder.finish())
}
