//! `facets`: the most frequent values of each field.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::record_batch::RecordBatch;
use datafusion::error::Result;
use futures::StreamExt;

use crate::ast::pipe::Facets;
use crate::nodes::Open;
use crate::rows::{Rest, Shape, batch, texts_of};

/// The columns of the answer.
pub(crate) fn shape() -> Shape {
    Shape::of_texts(["field_name", "field_value", "hits"], false)
}

/// Values of one field; none any more when the field is left out.
type Values = Option<HashMap<String, u64>>;

/// Counts values over all rows.
pub(crate) fn facets(facets: Facets, input: Shape) -> Open {
    Arc::new(move |mut rows, _| {
        let (facets, input) = (facets.clone(), input.clone());
        futures::stream::once(async move {
            let mut fields: BTreeMap<String, Values> = BTreeMap::new();
            let mut total = 0;
            while let Some(batch) = rows.next().await {
                let batch = batch?;
                total += batch.num_rows() as u64;
                count(&batch, &input, &facets, &mut fields)?;
            }
            answer(&facets, fields, total)
        })
        .boxed()
    })
}

fn add(fields: &mut BTreeMap<String, Values>, facets: &Facets, name: &str, value: &str) {
    if value.is_empty() {
        return;
    }
    if !fields.contains_key(name) {
        fields.insert(name.to_owned(), Some(HashMap::new()));
    }
    let Some(entry) = fields.get_mut(name) else { return };
    let Some(values) = entry else { return };
    if value.len() as u64 > facets.max_value_len {
        *entry = None;
    } else if let Some(hits) = values.get_mut(value) {
        *hits += 1;
    } else if values.len() as u64 >= facets.max_values_per_field {
        *entry = None;
    } else {
        values.insert(value.to_owned(), 1);
    }
}

fn count(rows: &RecordBatch, shape: &Shape, facets: &Facets, fields: &mut BTreeMap<String, Values>) -> Result<()> {
    let mut scratch = String::new();
    for name in shape.names() {
        let texts = texts_of(rows, shape, name)?;
        for row in 0..rows.num_rows() {
            add(fields, facets, name, texts.get(row, &mut scratch));
        }
    }
    if let Some(rest) = Rest::of(rows, shape) {
        for row in 0..rows.num_rows() {
            rest.row(row).for_each(|(name, value)| add(fields, facets, name, value));
        }
    }
    Ok(())
}

fn answer(facets: &Facets, fields: BTreeMap<String, Values>, total: u64) -> Result<RecordBatch> {
    let mut builders = [StringViewBuilder::new(), StringViewBuilder::new(), StringViewBuilder::new()];
    let mut count = 0;
    for (name, values) in fields {
        let mut values: Vec<(String, u64)> = values.into_iter().flatten().collect();
        let constant = values.len() == 1 && values[0].1 == total;
        if constant && !facets.keep_const_fields {
            continue;
        }
        values.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        values.truncate(usize::try_from(facets.limit).unwrap_or(usize::MAX));
        for (value, hits) in values {
            builders[0].append_value(&name);
            builders[1].append_value(value);
            builders[2].append_value(hits.to_string());
            count += 1;
        }
    }
    let columns: Vec<ArrayRef> = builders.iter_mut().map(|b| Arc::new(b.finish()) as ArrayRef).collect();
    batch(&shape(), columns, count)
}
