//! What unit tests of this crate share: runs of statements under a rule or in an engine, and columns of long texts.

use std::sync::{Arc, LazyLock};

use arrow::array::{Array as _, AsArray as _, RecordBatch, StringViewArray, StringViewBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;
use futures::TryStreamExt as _;
use quiver_types::{Access, Result};

use crate::name_resolution::Names;
use crate::{EngineSettings, Limits, QueryContext, QueryEngine, Rules, from_datafusion};

/// Rows of a statement under one rule more than DataFusion's, each as its values with `|` between them.
pub(crate) async fn rows(rule: Arc<dyn AnalyzerRule + Send + Sync>, statement: &str) -> Vec<String> {
    let context = SessionContext::new();
    context.add_analyzer_rule(rule);
    let planned = context.sql(statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
    shown(&planned.collect().await.unwrap_or_else(|e| panic!("{statement}: {e}")))
}

/// An engine of 64 MiB.
pub(crate) fn engine() -> Arc<QueryEngine> {
    let settings = EngineSettings { threads: 2, concurrent_max: 8, ..EngineSettings::small(64 << 20) };
    QueryEngine::new(&settings).unwrap()
}

/// The engine of all statements: to make one takes longer than most of them.
pub(crate) static ENGINE: LazyLock<Arc<QueryEngine>> = LazyLock::new(engine);

/// Rows of a statement in the session of SQL, as those of [`rows`].
pub(crate) async fn answered(statement: &str) -> Result<Vec<String>> {
    let statement = statement.to_owned();
    answered_by(move || Names::new(ENGINE.relational()).plan(&statement)).await
}

/// Rows of a plan in the session of SQL, as those of [`rows`].
pub(crate) async fn answered_by(plan: impl FnOnce() -> Result<LogicalPlan> + Send + 'static) -> Result<Vec<String>> {
    let ctx = QueryContext::new(Access::full(), Limits::default());
    let (own, inner) = (Arc::clone(&ENGINE), ctx.clone());
    let work = async move {
        let plan = plan()?;
        let stream = own.execute(&plan, &inner, Rules::Relational).await?;
        let batches: Vec<RecordBatch> = stream.try_collect().await.map_err(from_datafusion)?;
        Ok(shown(&batches))
    };
    ENGINE.run(&ctx, work).await
}

/// Rows as their values with `|` between them.
fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in batches {
        let columns = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap());
        let columns: Vec<ArrayFormatter<'_>> = columns.collect();
        let row = |at: usize| columns.iter().map(|c| c.value(at).to_string()).collect::<Vec<_>>().join("|");
        rows.extend((0..batch.num_rows()).map(row));
    }
    rows
}

/// Columns of texts whose first value is not their own name: rows are made of lists of columns, whose order is all that says
/// which is which.
pub(crate) fn misplaced(rows: &RecordBatch) -> Vec<String> {
    let schema = rows.schema();
    let columns = schema.fields().iter().zip(rows.columns());
    let texts = columns.filter_map(|(field, column)| Some((field.name(), column.as_string_view_opt()?)));
    let others = texts.filter(|(name, texts)| texts.is_null(0) || texts.value(0) != name.as_str());
    others.map(|(name, _)| name.clone()).collect()
}

/// Bytes of a long text of [`texts`].
pub(crate) const TEXT: usize = 1000;

/// A thousand texts in blocks of a hundred, NULL and short ones between them.
pub(crate) fn texts() -> StringViewArray {
    let mut texts = StringViewBuilder::new().with_fixed_block_size(100 * TEXT as u32);
    for n in 0..1000 {
        texts.append_value(format!("{n:0>TEXT$}"));
        texts.append_null();
        texts.append_value("short");
    }
    texts.finish()
}
