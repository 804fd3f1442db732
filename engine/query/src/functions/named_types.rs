//! Casts to types by name (`arrow_cast(x, 'Utf8View')`), bounded. DataFusion reads names of types by recursion, and a type of
//! many levels took the stack of the process. Values of a fixed size have their room even where they are NULL:
//! `arrow_cast(NULL, 'FixedSizeBinary(1000000000)')` takes a gigabyte a row, which nothing counts before it is there.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::ScalarValue;
use datafusion::error::Result;
use datafusion::functions::core::{arrow_cast, arrow_try_cast};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
};
use quiver_types::{Error, ErrorKind};

use crate::error::to_datafusion;

/// Most brackets of a name within one another.
const LEVELS_MAX: usize = 32;

/// Most elements or bytes of one value of a fixed-size type.
const WIDTH_MAX: u64 = 1024;

/// A function of DataFusion whose second argument names a type.
#[derive(Debug, PartialEq, Eq, Hash)]
struct CastByName(Arc<ScalarUDF>);

/// Gives the functions in the place of DataFusion's.
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    [arrow_cast(), arrow_try_cast()].map(|inner| Arc::new(ScalarUDF::from(CastByName(inner))))
}

/// Refuses names of types that are too deep or too wide. What names no type is left to the function.
fn is_bounded(name: Option<&ScalarValue>) -> Result<()> {
    let Some(name) = name.and_then(|name| name.try_as_str().flatten()) else { return Ok(()) };
    let refused = |text: String| Err(to_datafusion(Error::new(ErrorKind::LimitExceeded, text)));
    let (mut levels, mut deepest) = (0_usize, 0);
    for letter in name.bytes() {
        match letter {
            b'(' => levels += 1,
            b')' => levels = levels.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(levels);
    }
    if deepest > LEVELS_MAX {
        return refused(format!("a type has {deepest} levels, at most {LEVELS_MAX} are allowed"));
    }
    match name.parse::<DataType>().map_or(0, |kind| width(&kind)) {
        ..=WIDTH_MAX => Ok(()),
        wide => refused(format!("values of a type have room for {wide} items each, at most {WIDTH_MAX} are allowed")),
    }
}

/// The number of elements or bytes that each value of a fixed-size type takes, whatever its content.
fn width(kind: &DataType) -> u64 {
    let times = |length: i32, items: u64| u64::try_from(length).unwrap_or(0).saturating_mul(items);
    match kind {
        DataType::FixedSizeBinary(length) => times(*length, 1),
        DataType::FixedSizeList(item, length) => times(*length, width(item.data_type())),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::Map(item, _)
        | DataType::RunEndEncoded(_, item) => width(item.data_type()),
        DataType::Dictionary(_, item) => width(item),
        DataType::Struct(fields) => {
            fields.iter().fold(1, |sum: u64, field| sum.saturating_add(width(field.data_type())))
        }
        DataType::Union(fields, _) => {
            fields.iter().fold(1, |sum: u64, (_, field)| sum.saturating_add(width(field.data_type())))
        }
        _ => 1,
    }
}

impl ScalarUDFImpl for CastByName {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        is_bounded(args.scalar_arguments.get(1).copied().flatten())?;
        self.0.inner().return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.0.invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if let [_, Expr::Literal(name, _)] = args.as_slice() {
            is_bounded(Some(name))?;
        }
        self.0.simplify(args, info)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }
}

#[cfg(test)]
mod tests {
    use quiver_types::ErrorKind;

    use super::{LEVELS_MAX, WIDTH_MAX};
    use crate::testing::answered;

    fn nested(levels: usize) -> String {
        format!("{}Int8{}", "List(".repeat(levels), ")".repeat(levels))
    }

    #[tokio::test]
    async fn types_by_name() {
        for (cast, expected) in [
            ("arrow_cast('5', 'Int64')", "5"),
            ("arrow_try_cast('a', 'Int64')", "NULL"),
            ("arrow_typeof(arrow_cast('a', 'Dictionary(Int32, Utf8)'))", "Dictionary(Int32, Utf8)"),
            ("arrow_cast(null, 'FixedSizeBinary(16)')", "NULL"),
            ("arrow_cast(null, 'FixedSizeList(32 x FixedSizeBinary(32))')", "NULL"),
        ] {
            assert_eq!(answered(&format!("select {cast}")).await.unwrap(), [expected], "{cast}");
        }
        let deep = format!("select arrow_cast(null, '{}') is null", nested(LEVELS_MAX));
        assert_eq!(answered(&deep).await.unwrap(), ["true"]);
        assert!(answered("select arrow_cast(1, 'Nothing')").await.is_err());
    }

    #[tokio::test]
    async fn deep_and_wide_types_are_refused() {
        let wide = WIDTH_MAX + 1;
        for name in [
            nested(LEVELS_MAX + 1),
            nested(100_000),
            "Dictionary(Int8, ".repeat(100_000),
            format!("FixedSizeBinary({wide})"),
            "FixedSizeBinary(2147483647)".to_owned(),
            "FixedSizeList(2147483647 x Int64)".to_owned(),
            "FixedSizeList(1000000 x FixedSizeList(1000000 x Int8))".to_owned(),
            "List(FixedSizeList(2147483647 x Int64))".to_owned(),
            "Dictionary(Int8, FixedSizeBinary(1000000000))".to_owned(),
        ] {
            for function in ["arrow_cast", "arrow_try_cast"] {
                let error = answered(&format!("select {function}(null, '{name}')")).await.unwrap_err();
                let name = name.get(..40).unwrap_or(&name);
                assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{function} {name}: {error}");
            }
        }
    }
}
