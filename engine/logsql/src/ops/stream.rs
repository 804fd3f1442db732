//! Smaller operators: the stream of a row computed anew, first of a group of fields, what the engine did.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use futures::StreamExt;
use quiver_types::ReadStats;
use quiver_types::logs::{LogFilter, STREAM, STREAM_ID};

use super::cells::{assemble, mask};
use crate::ast::FieldPattern;
use crate::nodes::Open;
use crate::pieces::BatchMap;
use crate::rows::{Rest, Shape, Texts, batch, push_text, texts_of};
use crate::stream_text;

/// Fields of a row that patterns mean, in the order of the patterns.
struct Chosen<'a> {
    columns: Vec<(&'a str, Texts)>,
    rest: Option<Rest>,
    patterns: &'a [FieldPattern],
}

impl<'a> Chosen<'a> {
    fn new(rows: &RecordBatch, shape: &'a Shape, patterns: &'a [FieldPattern]) -> Result<Self> {
        let columns = shape.names().map(|name| Ok((name, texts_of(rows, shape, name)?))).collect::<Result<Vec<_>>>()?;
        Ok(Self { columns, rest: Rest::of(rows, shape), patterns })
    }

    fn row(&self, row: usize) -> Vec<(String, String)> {
        let mut scratch = String::new();
        let mut found = Vec::new();
        for pattern in self.patterns {
            for (name, texts) in self.columns.iter().filter(|(name, _)| pattern.matches(name)) {
                found.push(((*name).to_owned(), texts.get(row, &mut scratch).to_owned()));
            }
            let more = self.rest.iter().flat_map(|rest| rest.row(row)).filter(|(name, _)| pattern.matches(name));
            found.extend(more.map(|(name, value)| (name.to_owned(), value.to_owned())));
        }
        found.retain(|(_, value)| !value.is_empty());
        found
    }
}

/// Makes the stream of each row from some of its fields.
pub(crate) fn set_stream_fields(
    patterns: Vec<FieldPattern>,
    condition: Option<LogFilter>,
    input: Shape,
    output: Shape,
) -> BatchMap {
    Box::new(move |rows| {
        let mask = mask(condition.as_ref(), &rows, &input)?;
        let chosen = Chosen::new(&rows, &input, &patterns)?;
        let old = [texts_of(&rows, &input, STREAM)?, texts_of(&rows, &input, STREAM_ID)?];
        let mut streams = StringViewBuilder::with_capacity(rows.num_rows());
        let mut ids = StringViewBuilder::with_capacity(rows.num_rows());
        let mut scratch = String::new();
        for row in 0..rows.num_rows() {
            if mask.as_ref().is_some_and(|mask| !mask.value(row)) {
                push_text(&mut streams, old[0].get(row, &mut scratch));
                push_text(&mut ids, old[1].get(row, &mut scratch));
                continue;
            }
            let mut fields = chosen.row(row);
            fields.sort_unstable();
            fields.dedup_by(|a, b| a.0 == b.0);
            // It is no stream of the store, so it has no id.
            ids.append_null();
            streams.append_value(stream_text::print(fields.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect()));
        }
        let made: [(&str, ArrayRef); 2] = [(STREAM, Arc::new(streams.finish())), (STREAM_ID, Arc::new(ids.finish()))];
        assemble(&rows, &input, &output, &made)
    })
}

/// The first field of groups that is not empty.
pub(crate) fn coalesce(
    patterns: Vec<FieldPattern>,
    default: String,
    to: String,
    input: Shape,
    output: Shape,
) -> BatchMap {
    Box::new(move |rows| {
        let chosen = Chosen::new(&rows, &input, &patterns)?;
        let mut builder = StringViewBuilder::with_capacity(rows.num_rows());
        for row in 0..rows.num_rows() {
            let fields = chosen.row(row);
            push_text(&mut builder, fields.first().map_or(default.as_str(), |(_, value)| value));
        }
        assemble(&rows, &input, &output, &[(&to, Arc::new(builder.finish()) as ArrayRef)])
    })
}

/// Lets a number of rows through; when there are more, nobody knows which these are, and their hits say 0.
pub(crate) fn limit_hits(limit: u64, hits: String, shape: Shape) -> Open {
    Arc::new(move |mut rows, _| {
        let (hits, shape) = (hits.clone(), shape.clone());
        let all = async move {
            let mut kept: Vec<RecordBatch> = Vec::new();
            let mut left = usize::try_from(limit).unwrap_or(usize::MAX);
            let mut over = false;
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                over = batch.num_rows() > left;
                kept.push(batch.slice(0, batch.num_rows().min(left)));
                left -= kept.last().map_or(0, RecordBatch::num_rows);
                if over {
                    break;
                }
            }
            if over && let Some(index) = shape.index(&hits) {
                for rows in &mut kept {
                    let mut columns = rows.columns().to_vec();
                    let mut zeros = StringViewBuilder::with_capacity(rows.num_rows());
                    (0..rows.num_rows()).for_each(|_| zeros.append_value("0"));
                    columns[index] = Arc::new(zeros.finish());
                    *rows = batch(&shape, columns, rows.num_rows())?;
                }
            }
            Ok(kept)
        };
        futures::stream::once(all)
            .flat_map(|kept: Result<Vec<RecordBatch>>| match kept {
                Ok(kept) => futures::stream::iter(kept.into_iter().map(Ok).collect::<Vec<_>>()),
                Err(e) => futures::stream::iter(vec![Err(e)]),
            })
            .boxed()
    })
}

/// The columns of `block_stats`.
pub(crate) fn block_stats_shape() -> Shape {
    Shape::of_texts(["rows", "columns", "bytes"], false)
}

/// One row for each batch.
pub(crate) fn block_stats(_: Shape, output: Shape) -> BatchMap {
    Box::new(move |rows| {
        let one = |n: usize| Arc::new(arrow::array::StringViewArray::from(vec![n.to_string()])) as ArrayRef;
        let columns = vec![one(rows.num_rows()), one(rows.num_columns()), one(rows.get_array_memory_size())];
        batch(&output, columns, 1)
    })
}

/// The number of batches.
pub(crate) fn blocks_count(output: Shape) -> Open {
    Arc::new(move |mut rows, _| {
        let output = output.clone();
        futures::stream::once(async move {
            let mut count = 0u64;
            while let Some(batch) = rows.next().await {
                batch?;
                count += 1;
            }
            let column = Arc::new(arrow::array::StringViewArray::from(vec![count.to_string()])) as ArrayRef;
            batch(&output, vec![column], 1)
        })
        .boxed()
    })
}

/// The columns of `query_stats`.
pub(crate) fn query_stats_shape(stats: &ReadStats) -> Shape {
    Shape::of_texts(stats.list().into_iter().map(|(name, _)| name), false)
}

/// What the query read, in one row.
pub(crate) fn query_stats(stats: Arc<ReadStats>, output: Shape) -> Open {
    Arc::new(move |mut rows, _| {
        let (stats, output) = (Arc::clone(&stats), output.clone());
        futures::stream::once(async move {
            while let Some(batch) = rows.next().await {
                batch?;
            }
            let one = |n: u64| Arc::new(arrow::array::StringViewArray::from(vec![n.to_string()])) as ArrayRef;
            let columns = stats.list().into_iter().map(|(_, value)| one(value)).collect();
            batch(&output, columns, 1)
        })
        .boxed()
    })
}
