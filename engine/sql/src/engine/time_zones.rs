//! Shows the timestamps of a result in the time zone that the caller asks for, also within lists and structs.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use quiver_types::{Error, Result};

/// Parses the name of a time zone.
///
/// # Errors
///
/// Invalid: there is no such zone.
pub(super) fn zone_of(name: &str) -> Result<Arc<str>> {
    let known = name.parse::<arrow::array::timezone::Tz>().is_ok();
    known
        .then(|| Arc::from(name))
        .ok_or_else(|| Error::invalid(format!("there is no time zone `{}`", name.escape_debug())))
}

/// Refuses types with unknown time zones: functions such as `from_unixtime` take any text as a zone, and rows could
/// not be printed.
pub(super) fn zones_of(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Timestamp(_, Some(zone)) => zone_of(zone).map(|_| ()),
        DataType::List(item) | DataType::LargeList(item) | DataType::FixedSizeList(item, _) => {
            zones_of(item.data_type())
        }
        DataType::Map(entries, _) => zones_of(entries.data_type()),
        DataType::Struct(fields) => fields.iter().try_for_each(|field| zones_of(field.data_type())),
        DataType::Dictionary(_, values) => zones_of(values),
        _ => Ok(()),
    }
}

/// A schema with its timestamps in a zone.
pub(super) fn in_zone(schema: &SchemaRef, zone: Option<&Arc<str>>) -> SchemaRef {
    let Some(zone) = zone else { return Arc::clone(schema) };
    Arc::new(Schema::new(schema.fields().iter().map(|field| field_in(field, zone)).collect::<Vec<_>>()))
}

fn field_in(field: &FieldRef, zone: &Arc<str>) -> FieldRef {
    Arc::new(field.as_ref().clone().with_data_type(type_in(field.data_type(), zone)))
}

fn type_in(data_type: &DataType, zone: &Arc<str>) -> DataType {
    match data_type {
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some(Arc::clone(zone))),
        DataType::List(item) => DataType::List(field_in(item, zone)),
        DataType::LargeList(item) => DataType::LargeList(field_in(item, zone)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(field_in(item, zone), *size),
        DataType::Map(entries, is_sorted) => DataType::Map(field_in(entries, zone), *is_sorted),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(|field| field_in(field, zone)).collect()),
        other => other.clone(),
    }
}

/// Casts a batch to the names and types of the result: the same moments in another zone.
///
/// # Errors
///
/// Internal only.
pub(super) fn shown(batch: RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    if batch.schema_ref().fields() == schema.fields() {
        return Ok(batch);
    }
    let failed = |e| Error::internal("cannot show rows in a time zone").with_source(e);
    let column = |(column, field): (&ArrayRef, &FieldRef)| {
        if column.data_type() == field.data_type() { Ok(Arc::clone(column)) } else { cast(column, field.data_type()) }
    };
    let columns = batch.columns().iter().zip(schema.fields()).map(column).collect::<Result<Vec<_>, _>>();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns.map_err(failed)?, &options).map_err(failed)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, ListArray, StructArray, TimestampMicrosecondArray};
    use arrow::buffer::OffsetBuffer;
    use arrow::datatypes::Field;
    use arrow::util::display::array_value_to_string;

    use super::*;

    #[test]
    fn moments_within_lists_and_rows_are_in_the_zone() {
        let times = TimestampMicrosecondArray::from(vec![Some(1_719_835_200_000_000), None]).with_timezone("UTC");
        let times: ArrayRef = Arc::new(times);
        let item: FieldRef = Arc::new(Field::new("item", times.data_type().clone(), true));
        let list = ListArray::new(Arc::clone(&item), OffsetBuffer::from_lengths([1, 1]), Arc::clone(&times), None);
        let row = StructArray::from(vec![(item, times)]);
        let columns = [("l", Arc::new(list) as ArrayRef), ("r", Arc::new(row) as ArrayRef)];
        let batch = RecordBatch::try_from_iter(columns).expect("a batch");
        let schema = in_zone(&batch.schema(), Some(&Arc::from("Europe/Berlin")));
        let found = shown(batch, &schema).expect("the same moments");
        for column in found.columns() {
            let text = array_value_to_string(column, 0).expect("a text");
            assert!(text.contains("2024-07-01T14:00:00+02:00"), "{text}");
        }
    }
}
