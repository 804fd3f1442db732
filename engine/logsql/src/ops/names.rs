//! `field_names`: how many rows have each field.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, AsArray, StringViewBuilder};
use arrow::datatypes::UInt64Type;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use futures::StreamExt;

use crate::nodes::Open;
use crate::pieces::Pieces;
use crate::rows::{Rest, Shape, batch, texts_of};

/// Counts fields over all rows; gives one row per field, by name.
pub(crate) fn field_names(input: Shape, output: Shape, filter: Option<String>) -> Open {
    Arc::new(move |rows, ctx| {
        let (input, output, filter) = (input.clone(), output.clone(), filter.clone());
        let memory = MemoryConsumer::new("LogsFieldNames").register(ctx.memory_pool());
        futures::stream::once(async move {
            let (mut hits, mut rows) = (BTreeMap::new(), Pieces::new(rows));
            while let Some(piece) = rows.next().await {
                let (piece, began) = (piece?, Instant::now());
                count(&piece, &input, &mut hits, &memory)?;
                rows.took(piece.num_rows(), began.elapsed());
            }
            hits.retain(|name, hits| *hits > 0 && filter.as_ref().is_none_or(|text| name.contains(text.as_str())));
            two_columns(&output, hits.into_iter().map(|(name, hits)| (name, hits.to_string())))
        })
        .boxed()
    })
}

/// Adds up counts of fields (name, rows); gives one row per field, by name.
pub(crate) fn sum_field_counts(output: Shape, filter: Option<String>) -> Open {
    Arc::new(move |mut rows, ctx| {
        let (output, filter) = (output.clone(), filter.clone());
        let memory = MemoryConsumer::new("LogsFieldNames").register(ctx.memory_pool());
        futures::stream::once(async move {
            let mut hits: BTreeMap<String, u64> = BTreeMap::new();
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                let (names, counts) =
                    (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<UInt64Type>());
                for (row, count) in counts.values().iter().enumerate() {
                    add(&mut hits, names.value(row), *count, &memory)?;
                }
            }
            hits.retain(|name, _| filter.as_ref().is_none_or(|text| name.contains(text.as_str())));
            two_columns(&output, hits.into_iter().map(|(name, hits)| (name, hits.to_string())))
        })
        .boxed()
    })
}

/// Adds to the count of a name. A name is held in the map, as text of the answer, and in its array.
fn add(hits: &mut BTreeMap<String, u64>, name: &str, count: u64, memory: &MemoryReservation) -> Result<()> {
    match hits.get_mut(name) {
        Some(hits) => *hits += count,
        None => {
            memory.try_grow(3 * name.len() + 128)?;
            hits.insert(name.to_owned(), count);
        }
    }
    Ok(())
}

fn count(
    rows: &RecordBatch,
    shape: &Shape,
    hits: &mut BTreeMap<String, u64>,
    memory: &MemoryReservation,
) -> Result<()> {
    for name in shape.names() {
        let texts = texts_of(rows, shape, name)?;
        let filled = (0..rows.num_rows()).filter(|row| !texts.is_empty(*row)).count() as u64;
        add(hits, name, filled, memory)?;
    }
    if let Some(rest) = Rest::of(rows, shape) {
        for row in 0..rows.num_rows() {
            for (name, _) in rest.row(row) {
                add(hits, name, 1, memory)?;
            }
        }
    }
    Ok(())
}

/// A batch of two columns of text.
pub(crate) fn two_columns(shape: &Shape, rows: impl Iterator<Item = (String, String)>) -> Result<RecordBatch> {
    let (mut first, mut second) = (StringViewBuilder::new(), StringViewBuilder::new());
    let mut count = 0;
    for (a, b) in rows {
        first.append_value(a);
        second.append_value(b);
        count += 1;
    }
    let columns: Vec<ArrayRef> = vec![Arc::new(first.finish()), Arc::new(second.finish())];
    batch(shape, columns, count)
}
