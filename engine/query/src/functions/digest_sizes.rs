//! Approximate percentiles by digests of bounded size. DataFusion makes room for as many centroids as a statement names
//! whenever it merges values, and counts it nowhere: two billion of them took the memory of the server, and ended it.

use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, FieldRef, Schema};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions_aggregate::approx_percentile_cont::approx_percentile_cont_udaf;
use datafusion::functions_aggregate::approx_percentile_cont_with_weight::approx_percentile_cont_with_weight_udaf;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, ColumnarValue, Documentation, Signature};
use quiver_types::{Error, ErrorKind};

use crate::error::to_datafusion;

/// Most centroids of a digest: 160 kB while values are merged.
const CENTROIDS_MAX: u32 = 10_000;

/// A function of DataFusion, with the position of the argument that sets the number of centroids.
#[derive(Debug, PartialEq, Eq, Hash)]
struct BoundedDigest {
    inner: Arc<AggregateUDF>,
    place: usize,
}

/// Gives the functions in the place of DataFusion's.
pub(super) fn functions() -> [Arc<AggregateUDF>; 2] {
    let bounded = |inner, place| AggregateUDF::new_from_impl(BoundedDigest { inner, place });
    let percentile = bounded(approx_percentile_cont_udaf(), 2).with_aliases(["quantile_approx"]);
    [percentile, bounded(approx_percentile_cont_with_weight_udaf(), 3)].map(Arc::new)
}

impl BoundedDigest {
    /// Refuses digests that are too large. What is no number at all is left to the function.
    fn is_small(&self, args: &AccumulatorArgs<'_>) -> Result<()> {
        let Some(size) = args.exprs.get(self.place) else { return Ok(()) };
        let Ok(ColumnarValue::Scalar(size)) = size.evaluate(&RecordBatch::new_empty(Arc::new(Schema::empty()))) else {
            return Ok(());
        };
        match size.cast_to(&DataType::Float64) {
            Ok(ScalarValue::Float64(Some(size))) if size > f64::from(CENTROIDS_MAX) => {
                let text = format!("`{}` has at most {CENTROIDS_MAX} centroids, not {size}", self.name());
                Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)))
            }
            _ => Ok(()),
        }
    }
}

impl AggregateUDFImpl for BoundedDigest {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn signature(&self) -> &Signature {
        self.inner.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.inner.return_type(types)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        self.inner.state_fields(args)
    }

    fn accumulator(&self, args: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        self.is_small(&args)?;
        self.inner.accumulator(args)
    }

    fn supports_within_group_clause(&self) -> bool {
        self.inner.supports_within_group_clause()
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.inner.documentation()
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use crate::testing::answered;

    #[tokio::test]
    async fn digests_are_small() {
        let of = |function: &str, size: &str| {
            let arguments = function.replace("SIZE", size);
            format!("select {arguments} from (values (1.0::double), (2.0::double), (3.0::double)) as t(x)")
        };
        for function in [
            "approx_percentile_cont(0.5, SIZE) within group (order by x)",
            "approx_percentile_cont(x, 0.5, SIZE)",
            "quantile_approx(x, 0.5, SIZE)",
            "approx_percentile_cont_with_weight(1, 0.5, SIZE) within group (order by x)",
            "approx_percentile_cont(x, 0.5, SIZE) over ()",
        ] {
            for size in ["100", "10000"] {
                let statement = of(function, size);
                let rows = answered(&statement).await.unwrap_or_else(|e| panic!("{statement}: {e}"));
                assert!(!rows.is_empty() && rows.iter().all(|row| row == "2.0"), "{statement}: {rows:?}");
            }
            for size in ["10001", "2000000000", "9223372036854775807", "4000000000::bigint"] {
                let statement = of(function, size);
                let error = answered(&statement).await.expect_err(&statement);
                assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{statement}: {error}");
            }
        }
    }
}
