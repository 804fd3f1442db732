//! A macro for functions that wrap another function and describe themselves as that one does.

/// Implements the methods of `ScalarUDFImpl` that describe a function, by those of the `ScalarUDF` in this field.
macro_rules! delegated_head {
    ($inner:tt) => {
        fn name(&self) -> &str {
            self.$inner.name()
        }

        fn aliases(&self) -> &[String] {
            self.$inner.aliases()
        }

        fn signature(&self) -> &::datafusion::logical_expr::Signature {
            self.$inner.signature()
        }

        fn return_type(
            &self,
            types: &[::arrow::datatypes::DataType],
        ) -> ::datafusion::error::Result<::arrow::datatypes::DataType> {
            self.$inner.inner().return_type(types)
        }

        fn return_field_from_args(
            &self,
            args: ::datafusion::logical_expr::ReturnFieldArgs<'_>,
        ) -> ::datafusion::error::Result<::arrow::datatypes::FieldRef> {
            self.$inner.inner().return_field_from_args(args)
        }

        fn coerce_types(
            &self,
            types: &[::arrow::datatypes::DataType],
        ) -> ::datafusion::error::Result<Vec<::arrow::datatypes::DataType>> {
            self.$inner.inner().coerce_types(types)
        }

        fn documentation(&self) -> Option<&::datafusion::logical_expr::Documentation> {
            self.$inner.documentation()
        }
    };
}

pub(super) use delegated_head;
