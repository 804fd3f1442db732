//! `date_bin` whose length or origin differs from row to row. DataFusion's function takes constants only; rows that follow one
//! another with the same length and origin are given to it together.

use std::sync::Arc;

use arrow::array::{Array as _, ArrayRef, new_empty_array, new_null_array};
use arrow::compute::{concat, partition};
use datafusion::common::{ScalarValue, internal_err};
use datafusion::error::Result;
use datafusion::functions::datetime::date_bin;
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// DataFusion's function for columns of lengths and origins.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Binned(Arc<ScalarUDF>);

pub(super) fn function() -> ScalarUDF {
    ScalarUDF::from(Binned(date_bin()))
}

impl ScalarUDFImpl for Binned {
    delegated_head!(0);

    fn output_ordering(&self, input: &[ExprProperties]) -> Result<SortProperties> {
        self.0.output_ordering(input)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let is_constant = |arg: Option<&ColumnarValue>| !matches!(arg, Some(ColumnarValue::Array(_)));
        if is_constant(args.args.first()) && is_constant(args.args.get(2)) {
            return self.0.invoke_with_args(args);
        }
        let columns = args.args.iter().map(|arg| arg.to_array(args.number_rows)).collect::<Result<Vec<ArrayRef>>>()?;
        let [lengths, times, origins @ ..] = columns.as_slice() else {
            return internal_err!("`date_bin` takes a length and a time");
        };
        let told: Vec<ArrayRef> = std::iter::once(lengths).chain(origins).map(Arc::clone).collect();
        let mut pieces = Vec::new();
        for rows in partition(&told)?.ranges() {
            if told.iter().any(|column| column.is_null(rows.start)) {
                pieces.push(new_null_array(args.return_field.data_type(), rows.len()));
                continue;
            }
            let mut given = Vec::with_capacity(told.len() + 1);
            for column in &told {
                given.push(ColumnarValue::Scalar(ScalarValue::try_from_array(column, rows.start)?));
            }
            given.insert(1, ColumnarValue::Array(times.slice(rows.start, rows.len())));
            let binned = self.0.invoke_with_args(ScalarFunctionArgs {
                args: given,
                arg_fields: args.arg_fields.clone(),
                number_rows: rows.len(),
                return_field: Arc::clone(&args.return_field),
                config_options: Arc::clone(&args.config_options),
            })?;
            pieces.push(binned.to_array(rows.len())?);
        }
        if pieces.is_empty() {
            return Ok(ColumnarValue::Array(new_empty_array(args.return_field.data_type())));
        }
        Ok(ColumnarValue::Array(concat(&pieces.iter().map(AsRef::as_ref).collect::<Vec<_>>())?))
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn lengths_and_origins_of_rows() {
        let from = "from (values (interval '1 hour', timestamp '2024-01-02 03:04:05', timestamp '2000-01-01 00:30:00'), \
                    (interval '15 minutes', timestamp '2024-01-02 03:20:00', timestamp '2000-01-01 00:00:00'), \
                    (null, timestamp '2024-01-02 03:20:00', null)) as t(i, d, o)";
        let expected = ["2024-01-02T03:00:00", "2024-01-02T03:15:00", "NULL"];
        assert_eq!(answered(&format!("select date_bin(i, d) {from}")).await.unwrap(), expected);
        let expected = ["2024-01-02T02:30:00", "2024-01-02T03:15:00", "NULL"];
        assert_eq!(answered(&format!("select date_bin(i, d, o) {from}")).await.unwrap(), expected);
        let constant = format!("select date_bin(interval '1 hour', d, o) {from} where o is not null");
        assert_eq!(answered(&constant).await.unwrap(), ["2024-01-02T02:30:00", "2024-01-02T03:00:00"]);
    }
}
