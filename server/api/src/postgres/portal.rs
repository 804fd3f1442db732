//! Portals: a statement with its values, and the rows that were not fetched yet. Rows arrive batch by batch, and at
//! most one batch is held here, except for a cursor that scrolls.

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use quiver_query::QueryContext;
use quiver_sql::{Param, Params, Rows};
use quiver_types::{Error, Result};
use serde_json::Value;
use std::sync::Arc;

use super::command::Command;
use super::plan;
use super::scroll::ScrollableRows;

/// The type OID of JSON.
const JSON: u32 = 114;

/// A statement with its values and its running query.
#[derive(Debug)]
pub(super) struct Portal {
    pub(super) text: String,
    pub(super) command: Command,
    pub(super) params: Params,
    /// Formats of the columns, as requested by the client.
    pub(super) results: Vec<i16>,
    /// The columns that were announced to the client.
    pub(super) promised: Option<SchemaRef>,
    pub(super) run: Option<PortalRows>,
    /// Whether all rows were fetched.
    pub(super) done: bool,
    pub(super) hold: CursorHoldability,
    /// The rows that a cursor that scrolls holds; `None`: it only goes forward.
    pub(super) scroll: Option<ScrollableRows>,
    param_bytes: usize,
}

/// Whether a cursor outlives its transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CursorHoldability {
    No,
    /// It will, once the transaction is committed.
    Wanted,
    /// Its transaction was committed.
    Kept,
}

impl Portal {
    /// Makes a portal without values.
    pub(super) fn new(text: String, command: Command) -> Self {
        let (params, results) = (Params::default(), Vec::new());
        Self {
            text,
            command,
            params,
            results,
            promised: None,
            run: None,
            done: false,
            hold: CursorHoldability::No,
            scroll: None,
            param_bytes: 0,
        }
    }

    /// Sets its values.
    pub(super) fn with_params(mut self, params: Vec<Param>, bytes: usize) -> Self {
        self.params = Params::positional(params);
        self.param_bytes = bytes;
        self
    }

    /// Takes the values of another portal, which has none afterwards.
    pub(super) fn take_params(&mut self, other: &mut Self) {
        self.params = std::mem::take(&mut other.params);
        self.param_bytes = std::mem::take(&mut other.param_bytes);
    }

    /// The bytes that it takes before it runs.
    pub(super) fn bytes(&self) -> usize {
        self.text.len() + self.param_bytes
    }
}

/// The rows of a running query.
#[derive(Debug)]
pub(super) struct PortalRows {
    pub(super) schema: SchemaRef,
    rows: Option<Rows>,
    /// The current batch.
    batch: Option<RecordBatch>,
    /// Rows of it that were taken.
    taken: usize,
    /// The context of the query, which holds its memory.
    ctx: Option<QueryContext>,
}

impl PortalRows {
    /// The rows of a query.
    pub(super) fn of(rows: Rows, ctx: QueryContext) -> Self {
        Self { schema: rows.schema(), rows: Some(rows), batch: None, taken: 0, ctx: Some(ctx) }
    }

    /// Lines of text as rows with these columns.
    ///
    /// # Errors
    /// Internal: only by a bug.
    pub(super) fn of_texts(columns: &[(&str, Vec<String>)]) -> Result<Self> {
        let fields: Vec<Field> = columns.iter().map(|(name, _)| Field::new(*name, DataType::Utf8, false)).collect();
        let arrays = columns.iter().map(|(_, texts)| Arc::new(StringArray::from(texts.clone())) as ArrayRef).collect();
        Self::of_columns(Arc::new(Schema::new(fields)), arrays)
    }

    /// A plan as a single column: lines, or a JSON document like PostgreSQL's.
    ///
    /// # Errors
    /// Internal: only by a bug.
    pub(super) fn of_plan(plan: &Value, column: SchemaRef) -> Result<Self> {
        let is_document = column.fields().iter().any(|field| quiver_sql::field_oid(field) == JSON);
        let lines = if is_document { StringArray::from(vec![plan::document(plan)]) } else { plan::lines(plan) };
        Self::of_columns(column, vec![Arc::new(lines)])
    }

    fn of_columns(schema: SchemaRef, columns: Vec<ArrayRef>) -> Result<Self> {
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns)
            .map_err(|e| Error::internal("cannot show lines").with_source(e))?;
        Ok(Self { schema, rows: None, batch: Some(batch), taken: 0, ctx: None })
    }

    /// The context of the query; none where the rows are no query's.
    pub(super) fn ctx(&self) -> Option<&QueryContext> {
        self.ctx.as_ref()
    }

    /// Frees the query after all rows were taken. The columns can still be described.
    pub(super) fn end(&mut self) {
        *self = Self { schema: Arc::clone(&self.schema), rows: None, batch: None, taken: 0, ctx: None };
    }

    /// Checks that the query was not stopped. A portal may wait for long, and what was found meanwhile is not for a caller
    /// who may not see it any longer.
    ///
    /// # Errors
    /// Cancelled: it was.
    pub(super) fn check(&self) -> Result<()> {
        match self.ctx.as_ref().filter(|ctx| ctx.query().is_stopped()) {
            Some(ctx) => ctx.check("query execution"),
            None => Ok(()),
        }
    }

    /// The next rows, at most `most`; `None` at the end. Cancel-safe: no rows are lost if the future is dropped.
    ///
    /// # Errors
    /// Those of the query.
    pub(super) async fn next(&mut self, most: usize) -> Result<Option<RecordBatch>> {
        self.check()?;
        loop {
            if let Some(batch) = &self.batch {
                let left = batch.num_rows() - self.taken;
                if left > 0 {
                    let rows = left.min(most);
                    let piece = batch.slice(self.taken, rows);
                    self.taken += rows;
                    return Ok(Some(piece));
                }
                self.batch = None;
            }
            let Some(rows) = &mut self.rows else { return Ok(None) };
            if let Some(batch) = rows.next().await? {
                (self.batch, self.taken) = (Some(batch), 0);
            } else {
                self.rows = None;
                return Ok(None);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray as _;
    use quiver_query::{EngineSettings, Limits, QueryEngine};
    use quiver_types::{Access, ErrorKind};

    use super::*;

    #[tokio::test]
    async fn rows_are_taken_in_pieces() {
        let lines = (0..5).map(|n| n.to_string()).collect();
        let mut run = PortalRows::of_texts(&[("line", lines)]).unwrap();
        let mut sizes = Vec::new();
        while let Some(piece) = run.next(2).await.unwrap() {
            sizes.push(piece.num_rows());
        }
        assert_eq!(sizes, [2, 2, 1]);
        assert!(run.next(2).await.unwrap().is_none());
    }

    fn sizes(run: &[Option<RecordBatch>]) -> Vec<Option<usize>> {
        run.iter().map(|piece| piece.as_ref().map(RecordBatch::num_rows)).collect()
    }

    #[tokio::test]
    async fn what_was_taken_is_not_given_again() {
        let lines: Vec<String> = (0..4).map(|n| n.to_string()).collect();
        let mut run = PortalRows::of_texts(&[("a", lines.clone()), ("b", lines)]).unwrap();
        let schema = Arc::clone(&run.schema);
        let pieces = [run.next(1).await.unwrap(), run.next(usize::MAX).await.unwrap(), run.next(1).await.unwrap()];
        assert_eq!(sizes(&pieces), [Some(1), Some(3), None]);
        let texts: Vec<String> = pieces
            .iter()
            .flatten()
            .flat_map(|piece| {
                let column = piece.column(1).as_string::<i32>();
                column.iter().flatten().map(str::to_owned).collect::<Vec<_>>()
            })
            .collect();
        assert_eq!(texts, ["0", "1", "2", "3"]);
        // After the end the columns can be described, and there are no more rows.
        let mut run = PortalRows::of_texts(&[("a", vec!["x".to_owned()])]).unwrap();
        run.end();
        assert_eq!(run.next(10).await.unwrap().map(|piece| piece.num_rows()), None);
        assert_eq!(run.schema.field(0).name(), "a");
        assert_eq!(schema.fields().len(), 2);
        // Without lines there are no rows; columns of different lengths are an error.
        let mut none = PortalRows::of_texts(&[("a", Vec::new())]).unwrap();
        assert!(none.next(1).await.unwrap().is_none());
        assert!(PortalRows::of_texts(&[("a", vec!["x".to_owned()]), ("b", Vec::new())]).is_err());
    }

    /// Rights that are taken away stop a query, and so do operators: rows that were found before are not given then.
    #[tokio::test]
    async fn a_query_that_is_stopped_gives_no_more_rows() {
        let engine = QueryEngine::new(&EngineSettings::small(1 << 20)).unwrap();
        let ctx = QueryContext::new(Access::full(), Limits::default());
        engine.begin(&ctx);
        let lines = (0..5).map(|n| n.to_string()).collect();
        let mut run = PortalRows { ctx: Some(ctx.clone()), ..PortalRows::of_texts(&[("line", lines)]).unwrap() };
        assert_eq!(run.next(1).await.unwrap().map(|piece| piece.num_rows()), Some(1));
        assert!(engine.running().cancel(ctx.query().id).is_some());
        assert_eq!(run.next(1).await.unwrap_err().kind, ErrorKind::Cancelled);
    }

    #[tokio::test]
    async fn plans_are_lines_or_one_document() {
        let nodes = serde_json::json!([{"name": "scan", "depth": 0}, {"name": "leaf", "depth": 1}]);
        let plan = serde_json::json!({"nodes": nodes, "logical": "l"});
        let shown = async |text: &str| -> Vec<String> {
            let mut run = PortalRows::of_plan(&plan, quiver_sql::plan_columns(text).unwrap()).unwrap();
            let piece = run.next(1_000).await.unwrap().expect("rows");
            let column = piece.column(0).as_string::<i32>();
            column.iter().flatten().map(str::to_owned).collect()
        };
        let lines = shown("explain select 1").await;
        assert_eq!(lines, ["scan", "  ->  leaf"]);
        let document = shown("explain (format json) select 1").await;
        let read: Value = serde_json::from_str(&document.concat()).unwrap();
        assert_eq!((document.len(), read[0]["Plan"]["Node Type"].as_str()), (1, Some("scan")));
    }

    #[test]
    fn portals_weigh_what_they_hold() {
        let portal = Portal::new("select $1".to_owned(), Command::Query);
        assert_eq!((portal.bytes(), portal.hold, portal.done), (9, CursorHoldability::No, false));
        assert_eq!(portal.with_params(vec![Param::Null], 100).bytes(), 109);
    }
}
