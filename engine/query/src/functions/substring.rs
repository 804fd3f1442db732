//! `substring(text FROM x)`: if `x` is a number it is the position of a character (or byte), if it is a string a
//! regular expression. Only the planner knows which of the two it is.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::plan_err;
use datafusion::error::Result;
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::regex_matches;
use super::result_memory::Room;

#[derive(Debug, PartialEq, Eq, Hash)]
struct Substring {
    /// From a place on.
    part: Arc<ScalarUDF>,
    /// What a pattern finds.
    found: Arc<ScalarUDF>,
    signature: Signature,
}

/// Gives the function, over that of places.
pub(super) fn function(part: Arc<ScalarUDF>, room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(Substring { part, found: regex_matches::first(room), signature }))
}

impl Substring {
    /// The function by what its second argument is.
    fn of(&self, from: Option<&DataType>) -> &Arc<ScalarUDF> {
        if from.is_some_and(DataType::is_string) { &self.found } else { &self.part }
    }
}

impl ScalarUDFImpl for Substring {
    fn name(&self) -> &'static str {
        "substring_from"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        match types {
            [within, from] if from.is_string() && !within.is_string() && !within.is_null() => {
                plan_err!("No function matches `substring` of `{within}` from `{from}`")
            }
            [_, from] => {
                let field = |kind: &DataType| Arc::new(Field::new("argument", kind.clone(), true));
                let fields: Vec<FieldRef> = types.iter().map(field).collect();
                let given = fields_with_udf(&fields, &**self.of(Some(from)))?;
                Ok(given.iter().map(|field| field.data_type().clone()).collect())
            }
            _ => plan_err!("No function matches `substring_from` of {} arguments: it takes 2", types.len()),
        }
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.of(types.get(1)).return_type(types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.of(args.arg_fields.get(1).map(|field| field.data_type())).return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.of(args.args.get(1).map(ColumnarValue::data_type).as_ref()).invoke_with_args(args)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;
    use datafusion::functions::unicode::substr;

    use super::super::testing::{call, column, room, shown, text, texts};
    use super::*;

    #[test]
    fn types_say_what_is_asked_for() {
        let function = function(substr(), &room());
        let within = texts(&[Some("foobar"), Some("foobar"), Some("foobar"), Some("foobar"), None, Some("foobar")]);
        let patterns = texts(&[Some("o(.)b"), Some("o.b"), Some("(x)?b"), Some("z"), Some("o"), None]);
        let found = call(&function, &[within.clone(), patterns], 6).unwrap();
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(shown(&found), [some("o"), some("oob"), None, None, None, None]);
        let places = column(Int64Array::from(vec![Some(4), Some(0), Some(9), None, Some(1), Some(2)]));
        let found = call(&function, &[within, places], 6).unwrap();
        assert_eq!(shown(&found), [some("bar"), some("foobar"), some(""), None, None, some("oobar")]);
    }

    #[test]
    fn others_are_no_such_parts() {
        let function = function(substr(), &room());
        let numbers = column(Int64Array::from(vec![1]));
        let refused = call(&function, &[numbers.clone(), text("a")], 1).unwrap_err().to_string();
        assert!(refused.contains("No function matches"), "{refused}");
        let refused = call(&function, &[text("a"), text("(")], 1).unwrap_err().to_string();
        assert!(refused.contains("`(` is no regular expression"), "{refused}");
        assert!(call(&function, &[text("a"), numbers.clone(), numbers], 1).is_err());
    }
}
