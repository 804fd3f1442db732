//! `mode(x)`: the text that is there most often; of several the first in order. NULL is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field, FieldRef, Int64Type};
use datafusion::common::{ScalarValue, exec_err};
use datafusion::error::Result;
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::{Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility};

/// The function.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Mode {
    signature: Signature,
}

/// Gives the function.
pub(super) fn function() -> Arc<AggregateUDF> {
    let signature = Signature::exact(vec![DataType::Utf8View], Volatility::Immutable);
    Arc::new(AggregateUDF::new_from_impl(Mode { signature }))
}

impl AggregateUDFImpl for Mode {
    fn name(&self) -> &'static str {
        "mode"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _arguments: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        let list = |ty| DataType::List(Arc::new(Field::new_list_field(ty, true)));
        let field = |name, ty| Arc::new(Field::new(format!("{}[{name}]", args.name), list(ty), true));
        Ok(vec![field("values", DataType::Utf8View), field("counts", DataType::Int64)])
    }

    fn accumulator(&self, _arguments: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(Counts::default()))
    }
}

/// How often each text is there.
#[derive(Debug, Default)]
struct Counts {
    counts: BTreeMap<String, i64>,
    bytes: usize,
}

impl Counts {
    fn add(&mut self, text: &str, count: i64) {
        if let Some(known) = self.counts.get_mut(text) {
            *known += count;
        } else {
            self.bytes += text.len() + 2 * size_of::<(String, i64)>();
            self.counts.insert(text.to_owned(), count);
        }
    }

    fn most(&self) -> Option<&str> {
        // Of equal counts `max_by_key` takes the last one.
        self.counts.iter().rev().max_by_key(|(_, count)| **count).map(|(text, _)| text.as_str())
    }
}

impl Accumulator for Counts {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        let Some(texts) = values[0].as_string_view_opt() else { return exec_err!("`mode` reads texts") };
        texts.iter().flatten().for_each(|text| self.add(text, 1));
        Ok(())
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::Utf8View(self.most().map(str::to_owned)))
    }

    fn size(&self) -> usize {
        size_of_val(self) + self.bytes
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        let texts: Vec<ScalarValue> =
            self.counts.keys().map(|text| ScalarValue::Utf8View(Some(text.clone()))).collect();
        let counts: Vec<ScalarValue> = self.counts.values().map(|count| ScalarValue::Int64(Some(*count))).collect();
        Ok(vec![
            ScalarValue::List(ScalarValue::new_list_nullable(&texts, &DataType::Utf8View)),
            ScalarValue::List(ScalarValue::new_list_nullable(&counts, &DataType::Int64)),
        ])
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let (Some(texts), Some(counts)) = (states[0].as_list_opt::<i32>(), states[1].as_list_opt::<i32>()) else {
            return exec_err!("a state of `mode` is of another type");
        };
        for row in (0..texts.len()).filter(|row| texts.is_valid(*row)) {
            let (texts, counts) = (texts.value(row), counts.value(row));
            let (texts, counts) = (texts.as_string_view(), counts.as_primitive::<Int64Type>());
            (0..texts.len()).for_each(|at| self.add(texts.value(at), counts.value(at)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::StringViewArray;

    use super::*;

    #[test]
    fn the_commonest() {
        let texts: ArrayRef = Arc::new(StringViewArray::from(vec![Some("b"), Some("a"), None, Some("b"), Some("a")]));
        let mut counts = Counts::default();
        counts.update_batch(std::slice::from_ref(&texts)).unwrap();
        assert_eq!(counts.most(), Some("a"), "of equal counts the first in order");
        let states: Vec<ArrayRef> = counts.state().unwrap().iter().map(|s| s.to_array().unwrap()).collect();
        let mut merged = Counts::default();
        merged.update_batch(&[Arc::new(StringViewArray::from(vec!["b"])) as ArrayRef]).unwrap();
        merged.merge_batch(&states).unwrap();
        assert_eq!(merged.most(), Some("b"));
        assert_eq!(Counts::default().most(), None);
    }
}
