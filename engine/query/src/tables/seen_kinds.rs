//! Tables of which more rows are read than whoever asks may see (models that read all). Columns that are found by name have
//! the types of the values that he sees, so that no type tells what others are. Their values are read as texts then, and
//! those of other types are NULL: they are in rows that he does not see.

use std::sync::Arc;

use arrow::datatypes::Field;
use datafusion::catalog::TableProvider;
use datafusion::catalog::view::ViewTable;
use datafusion::common::Column;
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlanBuilder, try_cast};
use quiver_types::Result;

use super::cells::CellKind;
use crate::error::from_datafusion;

/// The kinds as which such columns are read: texts, unless a kind is fixed, whatever the data is.
pub(super) fn read_as(kinds: &[(String, CellKind)], is_fixed: impl Fn(&str) -> bool) -> Vec<(String, CellKind)> {
    let read = |(name, kind): &(String, CellKind)| (name.clone(), if is_fixed(name) { *kind } else { CellKind::Text });
    kinds.iter().map(read).collect()
}

/// The table with columns of these kinds. One that has them already stays as it is.
///
/// # Errors
///
/// Internal only.
pub(super) fn with_kinds(
    table: Arc<dyn TableProvider>,
    kinds: &[(String, CellKind)],
) -> Result<Arc<dyn TableProvider>> {
    let differs = |field: &Field| {
        let kind = kinds.iter().find(|(name, _)| name == field.name()).map(|(_, kind)| kind.data_type());
        kind.filter(|kind| kind != field.data_type())
    };
    let schema = table.schema();
    if schema.fields().iter().all(|field| differs(field).is_none()) {
        return Ok(table);
    }
    let column = |field: &Arc<Field>| {
        let value = Expr::Column(Column::new_unqualified(field.name()));
        match differs(field) {
            Some(kind) => try_cast(value, kind).alias(field.name()),
            None => value,
        }
    };
    let columns: Vec<Expr> = schema.fields().iter().map(column).collect();
    let plan = LogicalPlanBuilder::scan("seen", provider_as_source(table), None)
        .and_then(|rows| rows.project(columns))
        .and_then(LogicalPlanBuilder::build)
        .map_err(from_datafusion)?;
    Ok(Arc::new(ViewTable::new(plan, None)))
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringViewArray};
    use arrow::datatypes::{DataType, Schema};
    use datafusion::catalog::MemTable;

    use super::*;
    use crate::testing::answered_by;

    fn kinds(list: &[(&str, CellKind)]) -> Vec<(String, CellKind)> {
        list.iter().map(|(name, kind)| ((*name).to_owned(), *kind)).collect()
    }

    #[tokio::test]
    async fn values_of_other_types_are_null() {
        let fields = ["n", "attributes.cost", "attributes.share", "attributes.word"];
        let text = |name: &&str| Field::new(*name, DataType::Utf8View, true);
        let fields: Vec<Field> =
            [Field::new(fields[0], DataType::Int64, true)].into_iter().chain(fields[1..].iter().map(text)).collect();
        let schema = Arc::new(Schema::new(fields));
        let texts = |values: [Option<&str>; 3]| Arc::new(StringViewArray::from(values.to_vec())) as ArrayRef;
        let columns = vec![
            Arc::new(Int64Array::from(vec![1, 2, 3])) as ArrayRef,
            texts([Some("7"), Some("secret"), None]),
            texts([Some("7"), Some("0.5"), Some("x")]),
            texts([Some("7"), Some("y"), None]),
        ];
        let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
        let table: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(schema, vec![vec![batch]]).unwrap());
        let seen = kinds(&[
            ("attributes.cost", CellKind::Int),
            ("attributes.share", CellKind::Float),
            ("attributes.word", CellKind::Text),
        ]);
        let typed = with_kinds(Arc::clone(&table), &seen).unwrap();
        let types: Vec<DataType> = typed.schema().fields().iter().map(|f| f.data_type().clone()).collect();
        assert_eq!(types, [DataType::Int64, DataType::Int64, DataType::Float64, DataType::Utf8View]);
        let plan = LogicalPlanBuilder::scan("t", provider_as_source(typed), None).unwrap().build().unwrap();
        let rows = answered_by(move || Ok(plan)).await.unwrap();
        assert_eq!(rows, ["1|7|7.0|7", "2|NULL|0.5|y", "3|NULL|NULL|NULL"]);
        // A table whose columns are texts already is returned as it is.
        let same = with_kinds(Arc::clone(&table), &read_as(&seen, |_| false)).unwrap();
        assert!(Arc::ptr_eq(&same, &table));
    }

    #[test]
    fn fixed_kinds_stay() {
        let found = kinds(&[("@code.line.number", CellKind::Int), ("attributes.cost", CellKind::Int)]);
        let read = read_as(&found, |name| name.starts_with('@'));
        assert_eq!(read, kinds(&[("@code.line.number", CellKind::Int), ("attributes.cost", CellKind::Text)]));
    }
}
