//! `field_names`: how many rows have each field.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, StringViewBuilder};
use arrow::datatypes::UInt64Type;
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use futures::StreamExt;

use crate::nodes::Open;
use crate::rows::{Rest, Shape, batch, texts_of};

/// Counts fields over all rows; gives one row per field, by name.
pub(crate) fn field_names(input: Shape, output: Shape, filter: Option<String>) -> Open {
    Arc::new(move |mut rows, _| {
        let (input, output, filter) = (input.clone(), output.clone(), filter.clone());
        futures::stream::once(async move {
            let mut hits: BTreeMap<String, u64> = BTreeMap::new();
            while let Some(batch) = rows.next().await {
                count(&batch?, &input, &mut hits)?;
            }
            hits.retain(|name, hits| *hits > 0 && filter.as_ref().is_none_or(|text| name.contains(text.as_str())));
            two_columns(&output, hits.into_iter().map(|(name, hits)| (name, hits.to_string())))
        })
        .boxed()
    })
}

/// Adds up counts of fields (name, rows); gives one row per field, by name.
pub(crate) fn sum_field_counts(output: Shape, filter: Option<String>) -> Open {
    Arc::new(move |mut rows, _| {
        let (output, filter) = (output.clone(), filter.clone());
        futures::stream::once(async move {
            let mut hits: BTreeMap<String, u64> = BTreeMap::new();
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                let (names, counts) =
                    (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<UInt64Type>());
                for (row, count) in counts.values().iter().enumerate() {
                    match hits.get_mut(names.value(row)) {
                        Some(hits) => *hits += count,
                        None => _ = hits.insert(names.value(row).to_owned(), *count),
                    }
                }
            }
            hits.retain(|name, _| filter.as_ref().is_none_or(|text| name.contains(text.as_str())));
            two_columns(&output, hits.into_iter().map(|(name, hits)| (name, hits.to_string())))
        })
        .boxed()
    })
}

fn count(rows: &RecordBatch, shape: &Shape, hits: &mut BTreeMap<String, u64>) -> Result<()> {
    for name in shape.names() {
        let texts = texts_of(rows, shape, name)?;
        let filled = (0..rows.num_rows()).filter(|row| !texts.is_empty(*row)).count() as u64;
        *hits.entry(name.to_owned()).or_insert(0) += filled;
    }
    if let Some(rest) = Rest::of(rows, shape) {
        for row in 0..rows.num_rows() {
            for (name, _) in rest.row(row) {
                match hits.get_mut(name) {
                    Some(hits) => *hits += 1,
                    None => _ = hits.insert(name.to_owned(), 1),
                }
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
