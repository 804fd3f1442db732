//! Makes SQL functions of plain Rust functions over strings. `None` becomes NULL.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Builder, StringViewArray, StringViewBuilder};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use datafusion::common::{exec_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The arguments of a row.
pub(super) type Texts<'a> = [Option<&'a str>];

/// What a function gives for a row.
#[derive(Debug, Clone, Copy)]
pub(super) enum Gives {
    /// A text, or NULL.
    Text(fn(&Texts<'_>) -> Option<String>),
    /// A number, or NULL.
    Number(fn(&Texts<'_>) -> Option<f64>),
}

/// A function of texts. Other arguments (numbers) become texts.
#[derive(Debug)]
struct TextFunction {
    name: &'static str,
    arity: usize,
    gives: Gives,
    signature: Signature,
}

// A name stands for one function only.
impl PartialEq for TextFunction {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for TextFunction {}

impl Hash for TextFunction {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name.hash(state);
    }
}

/// Makes a function of `arity` texts.
pub(super) fn function(name: &'static str, arity: usize, gives: Gives) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(TextFunction { name, arity, gives, signature }))
}

impl ScalarUDFImpl for TextFunction {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        if types.len() != self.arity {
            return plan_err!("`{}` takes {} arguments, not {}", self.name, self.arity, types.len());
        }
        if let Some(other) = types.iter().find(|ty| ty.is_nested()) {
            return plan_err!("`{}` reads texts, not `{other}`", self.name);
        }
        Ok(vec![DataType::Utf8View; self.arity])
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        Ok(match self.gives {
            Gives::Text(_) => DataType::Utf8View,
            Gives::Number(_) => DataType::Float64,
        })
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let rows = args.number_rows;
        let mut columns: Vec<StringViewArray> = Vec::with_capacity(self.arity);
        for value in &args.args {
            let texts = cast(&value.to_array(rows)?, &DataType::Utf8View)?;
            let Some(texts) = texts.as_string_view_opt() else { return exec_err!("`{}` reads texts", self.name) };
            columns.push(texts.clone());
        }
        Ok(ColumnarValue::Array(self.run(&columns, rows)))
    }
}

impl TextFunction {
    fn run(&self, columns: &[StringViewArray], rows: usize) -> ArrayRef {
        use arrow::array::Array as _;
        // An empty text is NULL, as in all tables, but where texts are quoted for other statements.
        let takes_empty = self.name.starts_with("quote_");
        let row = |at: usize| -> Vec<Option<&str>> {
            let value = |c: &StringViewArray| c.is_valid(at) && (takes_empty || !c.value(at).is_empty());
            columns.iter().map(|c| value(c).then(|| c.value(at))).collect()
        };
        match self.gives {
            Gives::Text(run) => {
                let mut out = StringViewBuilder::with_capacity(rows);
                (0..rows).for_each(|at| out.append_option(run(&row(at)).filter(|text| !text.is_empty())));
                Arc::new(out.finish())
            }
            Gives::Number(run) => {
                let mut out = Float64Builder::with_capacity(rows);
                (0..rows).for_each(|at| out.append_option(run(&row(at))));
                Arc::new(out.finish())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;

    use super::*;

    fn of_two(gives: Gives) -> TextFunction {
        TextFunction { name: "two", arity: 2, gives, signature: Signature::user_defined(Volatility::Immutable) }
    }

    fn columns() -> [StringViewArray; 2] {
        [
            StringViewArray::from(vec![Some("x"), Some(""), None, Some("é"), Some("last")]),
            StringViewArray::from(vec![
                Some("a text that is longer than twelve bytes"),
                Some("y"),
                Some(""),
                None,
                None,
            ]),
        ]
    }

    fn texts(made: &ArrayRef) -> Vec<Option<&str>> {
        made.as_string_view().iter().collect()
    }

    #[test]
    fn empty_texts_are_null_in_arguments_and_results() {
        let joined = of_two(Gives::Text(|row| Some(row.iter().map(|text| text.unwrap_or("-")).collect())));
        let made = joined.run(&columns(), 5);
        let long = "xa text that is longer than twelve bytes";
        assert_eq!(texts(&made), [Some(long), Some("-y"), Some("--"), Some("é-"), Some("last-")]);
        let first = of_two(Gives::Text(|row| Some(row[0].unwrap_or_default().to_owned())));
        let made = first.run(&columns(), 5);
        assert_eq!(texts(&made), [Some("x"), None, None, Some("é"), Some("last")]);
    }

    #[test]
    fn numbers_of_texts_may_be_null() {
        let length = of_two(Gives::Number(|row| row[0].map(|text| text.len() as f64)));
        let made = length.run(&columns(), 5);
        let numbers: Vec<Option<f64>> = made.as_primitive::<arrow::datatypes::Float64Type>().iter().collect();
        assert_eq!(numbers, [Some(1.0), None, None, Some(2.0), Some(4.0)]);
    }

    #[test]
    fn rows_of_slices_are_their_own() {
        let [a, b] = columns();
        let joined = of_two(Gives::Text(|row| row[0].or(row[1]).map(str::to_owned)));
        let made = joined.run(&[a.slice(1, 3), b.slice(1, 3)], 3);
        assert_eq!(texts(&made), [Some("y"), None, Some("é")]);
        assert!(texts(&joined.run(&[a.slice(0, 0), b.slice(0, 0)], 0)).is_empty());
    }

    /// Breaks if a function is called with fewer texts than it reads, or with a list that would be cast to a text.
    #[test]
    fn other_numbers_of_arguments_are_refused() {
        let function = of_two(Gives::Text(|_| None));
        let refused = |types: &[DataType]| function.coerce_types(types).expect_err("refused").to_string();
        let list = DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true)));
        for (types, expected) in [
            (vec![], "`two` takes 2 arguments, not 0"),
            (vec![DataType::Utf8], "`two` takes 2 arguments, not 1"),
            (vec![DataType::Utf8; 3], "`two` takes 2 arguments, not 3"),
            (vec![DataType::Int64, list], "`two` reads texts, not `"),
        ] {
            let fault = refused(&types);
            assert!(fault.contains(expected), "{types:?}: {fault}");
        }
        let taken = function.coerce_types(&[DataType::Int64, DataType::Null]).expect("taken");
        assert_eq!(taken, vec![DataType::Utf8View; 2]);
    }
}
