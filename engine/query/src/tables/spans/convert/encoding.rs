//! Reads serialized conversions of spans: they are planned anew from the same columns, with ids and texts in the same
//! form.

use std::sync::Arc;

use datafusion::error::Result;
use quiver_types::query_configuration::QueryConfiguration;

use super::SpanRows;
use crate::encoding::context::{At, damaged, pinned};
use crate::error::to_datafusion;
use crate::tables::convert::Convert;
use crate::tables::encoding::WrittenSpans;

impl SpanRows {
    /// Reads the form that [`Convert::written`] returns, and how many stored columns are needed.
    pub(in crate::tables) fn read(rows: WrittenSpans, at: &At<'_>) -> Result<(Arc<dyn Convert>, usize)> {
        let schema = at.forms.read_schema(&rows.schema)?;
        let configured = match rows.configured {
            Some(number) => pinned::<QueryConfiguration>(number)?,
            None => Arc::default(),
        };
        let all: Vec<usize> = (0..schema.fields().len()).collect();
        let plain = Self::new(rows.row_kind, &schema, &all, &rows.kinds, &configured).map_err(to_datafusion)?;
        let columns = plain.stored.len();
        let convert: Option<Arc<dyn Convert>> = match (rows.is_coded, rows.as_bytes.as_slice()) {
            (true, _) => plain.coded(),
            (false, []) => Some(Arc::new(plain)),
            (false, ids) => plain.with_bytes(ids),
        };
        Ok((convert.ok_or_else(|| damaged("spans have no such form"))?, columns))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
    use datafusion::physical_plan::ExecutionPlan;
    use datafusion::physical_plan::empty::EmptyExec;

    use super::*;
    use crate::node_encoding::tests::passed;
    use crate::tables::cells::{CellKind, text};
    use crate::tables::convert::ConvertExec;
    use crate::tables::spans::columns::SpanRowKind;

    /// Puts a conversion over a number of stored columns, serializes it and reads it back.
    fn check(rows: Arc<dyn Convert>, stored: usize) {
        let columns = (0..stored).map(|at| Field::new(at.to_string(), DataType::Binary, true));
        let input = Arc::new(EmptyExec::new(Arc::new(Schema::new(columns.collect::<Vec<_>>()))));
        let node: Arc<dyn ExecutionPlan> = Arc::new(ConvertExec::new("spans", input, rows, Some(7)));
        let (read, names) = passed(Arc::clone(&node));
        assert_eq!(names, BTreeSet::from(["ConvertExec".to_owned()]));
        assert_eq!(format!("{read:?}"), format!("{node:?}"));
    }

    #[test]
    fn conversions_come_back_in_each_form() {
        let names = ["span_id", "name", "attributes.n", "trace_id", "config@apdex_t"];
        let schema: SchemaRef = Arc::new(Schema::new(names.map(text).to_vec()));
        let kinds = vec![("attributes.n".to_owned(), CellKind::Int), ("attributes.other".to_owned(), CellKind::Text)];
        let configured = Arc::<QueryConfiguration>::default();
        for columns in [&[] as &[usize], &[0, 1], &[4, 3, 2, 0]] {
            let plain = SpanRows::new(SpanRowKind::Span, &schema, columns, &kinds, &configured).unwrap();
            let (stored, id) = (plain.stored.len(), usize::from(columns.len() == 4));
            check(plain.coded().unwrap(), stored);
            if !columns.is_empty() {
                check(plain.with_bytes(&[id]).unwrap(), stored);
            }
            check(Arc::new(plain), stored);
        }
    }
}
