//! Any array of texts as an array of views, so that a function needs code for one of arrow's three text types only.

use arrow::array::{Array as _, ArrayRef, AsArray, StringViewArray};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::internal_err;
use datafusion::error::Result;

/// Casts values to texts and gives them as views; NULL stays NULL.
///
/// # Errors
/// The type has no text form.
pub(super) fn text_views(values: &ArrayRef) -> Result<StringViewArray> {
    let texts = cast(values, &DataType::Utf8View)?;
    if let Some(views) = texts.as_string_view_opt() {
        Ok(views.clone())
    } else {
        internal_err!("a cast to texts gave `{}`", texts.data_type())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Int64Array, LargeStringArray, StringArray};

    use super::*;

    #[test]
    fn texts_of_every_type_are_views() {
        let texts = [Some("a text that is too long for a view to hold"), None, Some("")];
        let views = StringViewArray::from(texts.to_vec());
        let narrow: ArrayRef = Arc::new(StringArray::from(texts.to_vec()));
        let wide: ArrayRef = Arc::new(LargeStringArray::from(texts.to_vec()));
        let same: ArrayRef = Arc::new(views.clone());
        for values in [narrow, wide, same] {
            assert_eq!(text_views(&values).unwrap(), views, "{}", values.data_type());
        }
        let numbers: ArrayRef = Arc::new(Int64Array::from(vec![Some(7), None]));
        assert_eq!(text_views(&numbers).unwrap(), StringViewArray::from(vec![Some("7"), None]));
    }
}
