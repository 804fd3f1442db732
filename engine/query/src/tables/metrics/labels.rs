//! Columns that describe the series of a row: computed once per series and repeated for its rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, StringViewBuilder};
use arrow::datatypes::{Field, SchemaRef};
use quiver_types::label::METRIC_NAME;
use quiver_types::{LabelSet, Result, SeriesTable};

use super::columns::label_of;
use super::filter::service;
use crate::tables::cells::{ENTRY_BYTES, TextMaps};

/// How a column about the series is computed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LabelCell {
    /// The name of the metric.
    Name,
    /// The identifier: 32 hex digits.
    Id,
    /// The service: the first of the service labels that the series has.
    Service,
    /// All labels except the name.
    Labels,
    /// The value of one label.
    Label(String),
    /// The column is about the sample, and not computed here.
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

    /// The labels that the columns need; `None` for all.
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

    /// Bytes of the maps of labels that each row of a series has.
    pub(super) fn map_bytes(&self, table: &SeriesTable, row: u32) -> usize {
        let maps = self.cells.iter().filter(|cell| **cell == LabelCell::Labels).count();
        if maps == 0 {
            return 0;
        }
        let own = table.labels(row as usize).filter(|(name, _)| *name != METRIC_NAME);
        maps * own.map(|(name, value)| name.len() + value.len() + ENTRY_BYTES).sum::<usize>()
    }

    /// Computes the columns for some series; those that are not about series are `None`.
    ///
    /// # Errors
    ///
    /// Internal only.
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

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};
    use arrow::datatypes::{DataType, Schema, TimeUnit};
    use quiver_types::series::SeriesTableBuilder;

    use super::*;
    use crate::tables::cells::{text, text_map, time};

    fn planned(fields: Vec<Field>) -> LabelCells {
        LabelCells::new(&Arc::new(Schema::new(fields)), &["service_name", "job"].map(str::to_owned).to_vec().into())
    }

    fn shown(column: Option<&ArrayRef>) -> Vec<Option<&str>> {
        column.unwrap().as_string_view().iter().collect()
    }

    #[test]
    fn columns_are_of_their_series() {
        let mut table = SeriesTableBuilder::default();
        table.push([("__name__", "up"), ("job", "api"), ("zone", "ü")]);
        table.push([("job", "x"), ("service_name", "cart")]);
        table.push([("__name__", "up")]);
        let table = table.finish();
        let value = Field::new("value", DataType::Float64, true);
        let mut fields = ["name", "series_id", "service_name"].map(text).to_vec();
        fields.extend([
            text_map("labels"),
            text("labels.zone"),
            time("time", TimeUnit::Millisecond),
            value,
            text("labels."),
        ]);
        let columns = planned(fields).columns(&table, &[2, 0, 1, 0]).unwrap();
        assert_eq!(shown(columns[0].as_ref()), [Some("up"), Some("up"), None, Some("up")]);
        assert_eq!(shown(columns[2].as_ref()), [None, Some("api"), Some("cart"), Some("api")]);
        assert_eq!(shown(columns[4].as_ref()), [None, Some("ü"), None, Some("ü")]);
        let ids: Vec<&str> = shown(columns[1].as_ref()).into_iter().flatten().collect();
        assert!(ids.iter().all(|id| id.len() == 32 && quiver_types::is_hex(id)), "{ids:?}");
        assert!(ids[1] == ids[3] && ids[0] != ids[1] && ids[1] != ids[2], "each series has its own: {ids:?}");
        let maps = columns[3].as_ref().unwrap().as_map();
        assert_eq!(planned(vec![text("name"), text_map("labels")]).map_bytes(&table, 0), 12 + 2 * ENTRY_BYTES);
        assert_eq!(planned(vec![text("name"), text("labels.zone")]).map_bytes(&table, 0), 0, "they are shared");
        assert_eq!([0, 1, 2, 3].map(|row| maps.value_length(row)), [0, 2, 2, 2], "the name is no label there");
        let keys = maps.value(1);
        assert_eq!(keys.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(), ["job", "zone"]);
        assert!(columns[5..].iter().all(Option::is_none), "these are no columns of series");
        assert!(planned(Vec::new()).columns(&table, &[0]).unwrap().is_empty());
        let none = planned(vec![text("name"), text_map("labels")]).columns(&table, &[]).unwrap();
        for column in none.iter().flatten() {
            assert_eq!(column.len(), 0);
        }
    }

    #[test]
    fn labels_are_asked_for_as_columns_need_them() {
        let labels = |fields: Vec<Field>| planned(fields).labels();
        assert_eq!(labels(Vec::new()), Some(Vec::new()));
        assert_eq!(labels(vec![text("value")]), Some(Vec::new()), "samples need none");
        let some = labels(vec![text("name"), text("service_name"), text("labels.a.b")]);
        assert_eq!(some.unwrap(), ["__name__", "service_name", "job", "a.b"]);
        assert_eq!(labels(vec![text("name"), text("series_id")]), None, "an id is of all labels");
        assert_eq!(labels(vec![text_map("labels")]), None);
    }
}
