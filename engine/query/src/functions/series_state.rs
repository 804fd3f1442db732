//! States of aggregates over series: lists with an entry for each series, or for each sample of one.

use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray};
use arrow::buffer::OffsetBuffer;
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::ScalarValue;

/// Fields of the lists, by the name of the aggregate and that of each list.
pub(super) fn fields<const N: usize>(aggregate: &str, lists: [(&str, DataType); N]) -> Vec<FieldRef> {
    let field = |(name, kind): (&str, DataType)| {
        let list = DataType::List(Arc::new(Field::new_list_field(kind, true)));
        Arc::new(Field::new(format!("{aggregate}[{name}]"), list, true))
    };
    lists.map(field).into()
}

/// A list as one value of a state.
pub(super) fn list(values: ArrayRef) -> ScalarValue {
    let field = Arc::new(Field::new_list_field(values.data_type().clone(), true));
    let offsets = OffsetBuffer::from_lengths([values.len()]);
    ScalarValue::List(Arc::new(ListArray::new(field, offsets, values, None)))
}
