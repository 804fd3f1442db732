//! What tests of rules share.

use std::sync::Arc;

use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::optimizer::AnalyzerRule;
use datafusion::prelude::SessionContext;

/// Rows of a statement under one rule more than DataFusion's, each as its values with `|` between them.
pub(crate) async fn rows(rule: Arc<dyn AnalyzerRule + Send + Sync>, statement: &str) -> Vec<String> {
    let context = SessionContext::new();
    context.add_analyzer_rule(rule);
    let planned = context.sql(statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
    let batches = planned.collect().await.unwrap_or_else(|e| panic!("{statement}: {e}"));
    let options = FormatOptions::default().with_null("NULL");
    let mut rows = Vec::new();
    for batch in &batches {
        let columns = batch.columns().iter().map(|c| ArrayFormatter::try_new(c, &options).unwrap());
        let columns: Vec<ArrayFormatter<'_>> = columns.collect();
        let row = |at: usize| columns.iter().map(|c| c.value(at).to_string()).collect::<Vec<_>>().join("|");
        rows.extend((0..batch.num_rows()).map(row));
    }
    rows
}
