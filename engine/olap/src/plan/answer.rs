//! Cells of results: Arrow to JSON, exact in every client (`olap-api.md` 6.2).

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Int64Type, TimestampNanosecondType};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use serde_json::Value;

use crate::dates::zone::{Walls, write_wall};
use crate::error::OlapResult;

/// Writes the cells of a column; instants are rendered in `zone`.
///
/// # Errors
/// Values that cannot be shown.
pub fn cells(column: &ArrayRef, zone: chrono_tz::Tz) -> OlapResult<Vec<Value>> {
    let engine = |e: arrow::error::ArrowError| crate::OlapError::from(datafusion::error::DataFusionError::from(e));
    let each = |f: &mut dyn FnMut(usize) -> Value| {
        (0..column.len()).map(|i| if column.is_null(i) { Value::Null } else { f(i) }).collect::<Vec<_>>()
    };
    let as_type = |ty: &DataType| cast_with_options(column, ty, &CastOptions::default()).map_err(engine);
    Ok(match column.data_type() {
        DataType::Timestamp(_, tz) => {
            let is_instant = tz.is_some();
            let ty = DataType::Timestamp(arrow::datatypes::TimeUnit::Nanosecond, tz.clone());
            let times = as_type(&ty)?;
            let times = times.as_primitive::<TimestampNanosecondType>();
            let mut walls = Walls::new(zone);
            each(&mut |i| {
                let time = times.value(i);
                write_wall(if is_instant { walls.wall_ns(time) } else { time }).into()
            })
        }
        DataType::Boolean => each(&mut |i| column.as_boolean().value(i).into()),
        DataType::Int8 | DataType::Int16 | DataType::Int32 | DataType::UInt8 | DataType::UInt16 => {
            let numbers = as_type(&DataType::Int64)?;
            each(&mut |i| numbers.as_primitive::<Int64Type>().value(i).into())
        }
        DataType::Float16 | DataType::Float32 | DataType::Float64 => {
            let numbers = as_type(&DataType::Float64)?;
            each(&mut |i| double(numbers.as_primitive::<arrow::datatypes::Float64Type>().value(i)))
        }
        // Whole numbers of 64 bits, decimals and texts: as text.
        DataType::Utf8View => each(&mut |i| column.as_string_view().value(i).into()),
        DataType::Int64 => each(&mut |i| column.as_primitive::<Int64Type>().value(i).to_string().into()),
        _ => {
            let options = FormatOptions::default();
            let shown = ArrayFormatter::try_new(column, &options).map_err(engine)?;
            each(&mut |i| shown.value(i).to_string().into())
        }
    })
}

/// A double as a JSON number; whole ones without a fraction, NaN and infinities as null.
fn double(value: f64) -> Value {
    const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= WHOLE_MAX { (value as i64).into() } else { value.into() }
}
