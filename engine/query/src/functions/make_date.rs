//! `make_date`: years before our era are numbers below zero, and there is no year zero. DataFusion's function counts years as
//! astronomers do, where the year before the first one is zero.

use std::sync::Arc;

use arrow::array::{AsArray as _, Int32Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Int32Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::functions::datetime::make_date;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// DataFusion's function with PostgreSQL's years.
#[derive(Debug, PartialEq, Eq, Hash)]
struct DateOfParts(Arc<ScalarUDF>);

pub(super) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(DateOfParts(make_date())))
}

impl ScalarUDFImpl for DateOfParts {
    delegated_head!(0);

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if let Some(years) = args.args.first_mut() {
            let is_constant = matches!(years, ColumnarValue::Scalar(_));
            let given = cast(&years.to_array(if is_constant { 1 } else { args.number_rows })?, &DataType::Int32)?;
            let counted = given.as_primitive::<Int32Type>().iter().map(|year| year.map(counted).transpose());
            let counted = counted.collect::<Result<Int32Array>>()?;
            *years = if is_constant {
                ColumnarValue::Scalar(ScalarValue::try_from_array(&counted, 0)?)
            } else {
                ColumnarValue::Array(Arc::new(counted))
            };
        }
        self.0.invoke_with_args(args)
    }
}

/// A year as astronomers count it.
fn counted(year: i32) -> Result<i32> {
    match year {
        0 => exec_err!("Year value '0' is out of range"),
        ..0 => Ok(year + 1),
        1.. => Ok(year),
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn years_before_our_era() {
        let days = "select make_date(-44, 3, 15), make_date(1, 1, 1)";
        assert_eq!(answered(days).await.unwrap(), ["-0043-03-15|0001-01-01"]);
        let columns = "select make_date(y, 1, 2) from (values (2024), (null), (-1)) as t(y)";
        assert_eq!(answered(columns).await.unwrap(), ["2024-01-02", "NULL", "0000-01-02"]);
        assert!(answered("select make_date(0, 1, 1)").await.is_err());
        assert!(answered("select make_date(y, 1, 1) from (values (0)) as t(y)").await.is_err());
    }
}
