//! `facets`: the most frequent values of each field, out of counts of values: those of the scan, or of rows.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, StringViewBuilder};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::StreamExt;
use quiver_query::to_datafusion;
use quiver_types::logs::{CountedField, FIELD_NAME, FIELD_VALUE, ROW_COUNT, ValueCounts, ValueLimits};

use crate::ast::pipe::Facets;
use crate::nodes::Open;
use crate::pieces::Pieces;
use crate::rows::{Column, Kind, Rest, Shape, Texts, batch, texts_of};

/// The columns of the answer.
pub(crate) fn shape() -> Shape {
    Shape::of_texts(["field_name", "field_value", "hits"], false)
}

/// The columns of counts ([`ValueCounts::schema`]).
pub(crate) fn counts_shape() -> Shape {
    let mut shape = Shape::of_texts([FIELD_NAME, FIELD_VALUE], false);
    shape.columns.push(Column { name: ROW_COUNT.to_owned(), kind: Kind::Count });
    shape
}

/// Which values are counted.
pub(crate) fn limits(facets: &Facets) -> ValueLimits {
    ValueLimits { values: facets.max_values_per_field, bytes: facets.max_value_len }
}

/// Counts the values of rows; gives one batch.
pub(crate) fn count(limits: ValueLimits, input: Shape) -> Open {
    Arc::new(move |rows, ctx| {
        let input = input.clone();
        let memory = MemoryConsumer::new("LogsValueCounts").register(ctx.memory_pool());
        futures::stream::once(async move {
            let (mut counts, mut rows) = (ValueCounts::new(limits), Pieces::new(rows));
            while let Some(piece) = rows.next().await {
                let (piece, began) = (piece?, Instant::now());
                add_rows(&mut counts, &piece, &input)?;
                memory.try_resize(counts.memory_bytes())?;
                rows.took(piece.num_rows(), began.elapsed());
            }
            counts.to_batch().map_err(to_datafusion)
        })
        .boxed()
    })
}

fn add_rows(counts: &mut ValueCounts, rows: &RecordBatch, shape: &Shape) -> Result<()> {
    counts.rows += rows.num_rows() as u64;
    for name in shape.names() {
        let texts = texts_of(rows, shape, name)?;
        let field = counts.field(name);
        add_column(counts, field, &texts, rows.num_rows());
    }
    if let Some(rest) = Rest::of(rows, shape) {
        for row in 0..rows.num_rows() {
            for (name, value) in rest.row(row) {
                let field = counts.field(name);
                counts.add(field, value, 1);
            }
        }
    }
    Ok(())
}

fn add_column(counts: &mut ValueCounts, field: CountedField, texts: &Texts, rows: usize) {
    if let Texts::Dictionary(keys, values) = texts {
        let mut of_codes = vec![0; values.len()];
        keys.iter().flatten().for_each(|key| of_codes[key as usize] += 1);
        for (code, n) in of_codes.into_iter().enumerate().filter(|&(code, n)| n > 0 && values.is_valid(code)) {
            counts.add(field, values.value(code), n);
        }
        return;
    }
    let mut scratch = String::new();
    for row in 0..rows {
        if counts.is_out(field) {
            return;
        }
        counts.add(field, texts.get(row, &mut scratch), 1);
    }
}

/// Adds counts up, and chooses.
pub(crate) fn facets(facets: Facets) -> Open {
    Arc::new(move |mut rows, ctx| {
        let facets = facets.clone();
        let memory: MemoryReservation = MemoryConsumer::new("LogsFacets").register(ctx.memory_pool());
        futures::stream::once(async move {
            let mut counts = ValueCounts::new(limits(&facets));
            while let Some(batch) = rows.next().await {
                counts.add_batch(&batch?).map_err(to_datafusion)?;
                // The answer is made of them, and there before they are gone.
                memory.try_resize(2 * counts.memory_bytes())?;
            }
            answer(&facets, &counts)
        })
        .boxed()
    })
}

fn answer(facets: &Facets, counts: &ValueCounts) -> Result<RecordBatch> {
    let mut builders = [StringViewBuilder::new(), StringViewBuilder::new(), StringViewBuilder::new()];
    let mut count = 0;
    for (name, mut values) in counts.by_name() {
        let constant = values.len() == 1 && values[0].1 == counts.rows;
        if constant && !facets.keep_const_fields {
            continue;
        }
        values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
        values.truncate(usize::try_from(facets.limit).unwrap_or(usize::MAX));
        for (value, hits) in values {
            builders[0].append_value(name);
            builders[1].append_value(value);
            builders[2].append_value(hits.to_string());
            count += 1;
        }
    }
    let columns: Vec<ArrayRef> = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect();
    batch(&shape(), columns, count)
}
