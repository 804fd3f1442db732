//! Columns that say of which series a row is: made once per series, then repeated for its rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::{Field, SchemaRef};
use quiver_types::label::METRIC_NAME;
use quiver_types::{LabelSet, Result, SeriesTable};

use super::filter::service;
use super::label_of;
use crate::tables::cells::TextMaps;

/// How a column about the series is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LabelCell {
    /// The name of the metric.
    Name,
    /// Identifier: 32 hex digits.
    Id,
    /// The service: the first of its labels that name one.
    Service,
    /// All labels but the name.
    Labels,
    /// The value of one label.
    Label(String),
    /// None: the column is about the sample.
    Other,
}

/// The columns of a table, in its order.
#[derive(Debug, Clone)]
pub(super) struct LabelCells {
    cells: Vec<LabelCell>,
    service_labels: Arc<[String]>,
}

fn cell(field: &Field) -> LabelCell {
    match field.name().as_str() {
        "name" => LabelCell::Name,
        "series_id" => LabelCell::Id,
        "service_name" => LabelCell::Service,
        "labels" => LabelCell::Labels,
        other => label_of(other).map_or(LabelCell::Other, |label| LabelCell::Label(label.to_owned())),
    }
}

impl LabelCells {
    /// Plans the columns of a schema.
    pub(super) fn new(schema: &SchemaRef, service_labels: &Arc<[String]>) -> Self {
        let cells = schema.fields().iter().map(|field| cell(field)).collect();
        Self { cells, service_labels: Arc::clone(service_labels) }
    }

    /// Labels that name the service.
    pub(super) fn service_labels(&self) -> &Arc<[String]> {
        &self.service_labels
    }

    /// The labels that they need; `None`: all.
    pub(super) fn labels(&self) -> Option<Vec<String>> {
        let mut labels = Vec::new();
        for cell in &self.cells {
            match cell {
                LabelCell::Name => labels.push(METRIC_NAME.to_owned()),
                LabelCell::Service => labels.extend(self.service_labels.iter().cloned()),
                LabelCell::Label(label) => labels.push(label.clone()),
                LabelCell::Id | LabelCell::Labels => return None,
                LabelCell::Other => {}
            }
        }
        Some(labels)
    }

    /// Makes the columns for some series; those that are not about series are `None`.
    ///
    /// # Errors
    /// Internal: only by a fault of ours.
    pub(super) fn columns(&self, table: &SeriesTable, rows: &[u32]) -> Result<Vec<Option<ArrayRef>>> {
        self.cells.iter().map(|cell| self.column(cell, table, rows)).collect()
    }

    fn column(&self, cell: &LabelCell, table: &SeriesTable, rows: &[u32]) -> Result<Option<ArrayRef>> {
        let texts = |of: &dyn Fn(usize) -> String| -> ArrayRef {
            let mut out = StringViewBuilder::with_capacity(rows.len());
            for row in rows {
                out.append_option(Some(of(*row as usize)).filter(|text| !text.is_empty()));
            }
            Arc::new(out.finish())
        };
        Ok(Some(match cell {
            LabelCell::Name => texts(&|row| table.metric(row).to_owned()),
            LabelCell::Id => texts(&|row| format!("{:?}", LabelSet::from_pairs(table.labels(row)).id())),
            LabelCell::Service => texts(&|row| service(table, row, &self.service_labels).to_owned()),
            LabelCell::Label(label) => texts(&|row| table.value(row, label).to_owned()),
            LabelCell::Labels => {
                let mut maps = TextMaps::default();
                for row in rows {
                    let own = table.labels(*row as usize).filter(|(name, _)| *name != METRIC_NAME);
                    own.for_each(|(name, value)| maps.push(name, value));
                    maps.end();
                }
                Arc::new(maps.finish()?)
            }
            LabelCell::Other => return Ok(None),
        }))
    }
}
