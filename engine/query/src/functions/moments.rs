//! `to_timestamp` of texts in columns. DataFusion's function says that it gives moments, which have the zone of the
//! session, and gives times without a zone there: answers and comparisons with other moments failed.

use std::sync::Arc;

use arrow::array::Array as _;
use arrow::compute::cast;
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl};

use super::delegated_head::delegated_head;

/// DataFusion's functions of that kind.
pub(super) const NAMES: [&str; 5] =
    ["to_timestamp", "to_timestamp_seconds", "to_timestamp_millis", "to_timestamp_micros", "to_timestamp_nanos"];

/// DataFusion's function, whose times have the zone that it says.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Moments(Arc<ScalarUDF>);

/// Gives the function around the one that a session has.
pub(super) fn function(inner: Arc<ScalarUDF>) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(Moments(inner)))
}

impl ScalarUDFImpl for Moments {
    delegated_head!(0);

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let said = args.return_field.data_type().clone();
        // DataFusion returns times without the zone that the function declares, and fails if the types differ.
        Ok(match self.0.inner().invoke_with_args(args)? {
            ColumnarValue::Array(times) if *times.data_type() != said => ColumnarValue::Array(cast(&times, &said)?),
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::answered;

    #[tokio::test]
    async fn texts_in_columns_are_moments() {
        for (asked, expected) in [
            ("to_timestamp(s, '%Y-%m-%d %H:%M') < now()", "true"),
            ("to_timestamp(s, '%Y-%m-%d %H:%M') = to_timestamp('2024-01-02T10:11:00Z')", "true"),
            ("to_timestamp(s || ':00Z') = to_timestamp('2024-01-02T10:11:00Z')", "true"),
            ("to_timestamp_seconds(s || ':00Z') < now()", "true"),
            ("to_timestamp(nullif(s, s)) is null", "true"),
            ("date_part('hour', to_timestamp(s, '%Y-%m-%d %H:%M'))", "10"),
        ] {
            let statement = format!("select {asked} from (values ('2024-01-02 10:11')) as t(s)");
            assert_eq!(answered(&statement).await.unwrap(), [expected], "{asked}");
        }
    }
}
