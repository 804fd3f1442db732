//! `json_lists(text, levels)`: a JSON array as a list of texts without quotes, or as lists of lists of that many levels, which
//! are all alike. A JSON string is one level of PostgreSQL's text form. NULL where a text is no JSON, or is `null`.

use std::sync::Arc;

use arrow::array::{ArrayBuilder as _, ArrayRef, ListArray, StringBuilder, StringViewArray};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{ScalarValue, exec_err, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::logical_expr::{
    ColumnarValue, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};

use super::json::{document_of, parts, text_of, unquoted};
use super::list_texts::items;
use super::maps;
use super::result_memory::Room;
use super::row_builder::OutputMemory;

const NAME: &str = "json_lists";
/// Bytes of an item and of the lists around it, beside its text.
const ITEM: usize = 16;

#[derive(Debug, PartialEq, Eq, Hash)]
struct JsonLists {
    room: Room,
    signature: Signature,
}

/// Gives the function, of a document and the number of levels, which is a constant.
pub(super) fn function(room: &Room) -> Arc<ScalarUDF> {
    let signature = Signature::user_defined(Volatility::Immutable);
    Arc::new(ScalarUDF::from(JsonLists { room: room.clone(), signature }))
}

impl ScalarUDFImpl for JsonLists {
    fn name(&self) -> &'static str {
        NAME
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, types: &[DataType]) -> Result<Vec<DataType>> {
        let [document, _] = types else { return plan_err!("`{NAME}` takes a document and a number of levels") };
        let Some(read) = maps::document_type(document) else {
            return plan_err!("`{NAME}` reads texts that hold JSON, not `{document}`");
        };
        Ok(vec![read, DataType::Int64])
    }

    fn return_type(&self, _types: &[DataType]) -> Result<DataType> {
        internal_err!("the type of `{NAME}` is that of its levels")
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let Some(Some(ScalarValue::Int64(Some(levels @ 1..=6)))) = args.scalar_arguments.get(1) else {
            return plan_err!("`{NAME}` has from one to six levels");
        };
        let kind = (0..*levels).fold(DataType::Utf8, |item, _| DataType::new_list(item, true));
        Ok(Arc::new(Field::new(NAME, kind, true)))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [documents, _] = args.args.as_slice() else { return internal_err!("`{NAME}` takes a document") };
        let documents = maps::documents(&documents.to_array(args.number_rows)?)?;
        let (mut levels, mut kind) = (0, args.return_field.data_type());
        while let DataType::List(item) = kind {
            (levels, kind) = (levels + 1, item.data_type());
        }
        Ok(ColumnarValue::Array(lists(&documents, levels, &self.room)?))
    }
}

fn lists(documents: &StringViewArray, levels: usize, room: &Room) -> Result<ArrayRef> {
    let mut making = OutputMemory::new(NAME, room);
    let mut built = ListLevels { ends: vec![vec![0]; levels], valid: Vec::new(), values: StringBuilder::new() };
    for text in documents {
        let piece = text.and_then(document_of).filter(|piece| *piece != "null");
        match piece {
            Some(piece) if piece.starts_with('"') && levels == 1 => built.push_text(piece, &mut making)?,
            Some(piece) => {
                built.push(piece, 0, &mut making)?;
            }
            None => built.end(0),
        }
        built.valid.push(piece.is_some());
    }
    built.finish()
}

/// Lists of lists while they are built.
struct ListLevels {
    /// Where the lists of each level end in the next one, behind a zero; the outermost level first.
    ends: Vec<Vec<i32>>,
    valid: Vec<bool>,
    values: StringBuilder,
}

impl ListLevels {
    /// Adds a JSON array to a level. Returns how many items the lists of this level and of those within have.
    fn push(&mut self, piece: &str, level: usize, making: &mut OutputMemory<'_>) -> Result<Vec<usize>> {
        if !piece.starts_with('[') {
            return exec_err!("malformed JSON array: expected an array at level {}", level + 1);
        }
        let mut found = Vec::new();
        let _ = parts(piece, |_, value| {
            found.push(value);
            None::<()>
        });
        making.add(found.len() * ITEM)?;
        let mut within: Option<Vec<usize>> = None;
        for value in &found {
            if level + 1 < self.ends.len() {
                let own = self.push(value, level + 1, making)?;
                if *within.get_or_insert_with(|| own.clone()) != own {
                    return exec_err!("malformed JSON array: the arrays within an array are not of one length");
                }
            } else if value.starts_with('[') {
                return exec_err!("malformed JSON array: it has more levels than its column: write one `[]` for each");
            } else {
                making.add(value.len())?;
                self.values.append_option(text_of(value));
            }
        }
        self.end(level);
        Ok([found.len()].into_iter().chain(within.unwrap_or_default()).collect())
    }

    /// Adds a JSON string that is a list in PostgreSQL's text form.
    fn push_text(&mut self, piece: &str, making: &mut OutputMemory<'_>) -> Result<()> {
        making.add(piece.len())?;
        let Some(found) = unquoted(piece).and_then(|text| items(&text)) else {
            return exec_err!("malformed array literal: {piece}");
        };
        making.add(found.len() * ITEM)?;
        for item in found {
            self.values.append_option(item);
        }
        self.end(0);
        Ok(())
    }

    /// Ends a list of a level.
    fn end(&mut self, level: usize) {
        let count = self.ends.get(level + 1).map_or(self.values.len(), |inner| inner.len() - 1);
        self.ends[level].push(count as i32);
    }

    fn finish(mut self) -> Result<ArrayRef> {
        let mut lists: ArrayRef = Arc::new(self.values.finish());
        let mut valid = Some(NullBuffer::from(self.valid));
        for (level, ends) in self.ends.into_iter().enumerate().rev() {
            let item = Arc::new(Field::new_list_field(lists.data_type().clone(), true));
            let nulls = if level == 0 { valid.take() } else { None };
            lists = Arc::new(ListArray::try_new(item, OffsetBuffer::new(ScalarBuffer::from(ends)), lists, nulls)?);
        }
        Ok(lists)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, AsArray as _};

    use super::super::testing::{call, room, text, texts};
    use super::super::text_output;
    use super::*;

    fn read(documents: &[Option<&str>], levels: i64) -> Result<Vec<Option<String>>> {
        let levels = ColumnarValue::Scalar(ScalarValue::from(levels));
        let found = call(&function(&room()), &[texts(documents), levels], documents.len())?;
        let shown = text_output::texts(&found)?;
        Ok(shown.as_string_view().iter().map(|text| text.map(str::to_owned)).collect())
    }

    #[test]
    fn arrays_are_lists_of_as_many_levels() {
        let check = |documents: &[Option<&str>], levels: i64, expected: &[Option<&str>]| {
            let found = read(documents, levels).unwrap();
            let expected: Vec<Option<String>> = expected.iter().map(|text| text.map(str::to_owned)).collect();
            assert_eq!(found, expected, "{documents:?}");
        };
        let flat = [Some(r#"[1, "a b", null, {"k": [1]}]"#), None, Some("null"), Some("no json"), Some("[]")];
        check(&flat, 1, &[Some(r#"{1,"a b",NULL,"{\"k\": [1]}"}"#), None, None, None, Some("{}")]);
        check(&[Some(r#""{1,\"a\",NULL}""#)], 1, &[Some("{1,a,NULL}")]);
        check(&[Some("[[1, 2], [3, null]]"), None, Some("[[5]]")], 2, &[Some("{{1,2},{3,NULL}}"), None, Some("{{5}}")]);
        check(&[Some(r#"[[["x"]], [["y"]]]"#)], 3, &[Some("{{{x}},{{y}}}")]);
        let empty =
            call(&function(&room()), &[text("[]"), ColumnarValue::Scalar(ScalarValue::from(2_i64))], 1).unwrap();
        assert_eq!(empty.as_list::<i32>().value_length(0), 0);
        assert!(empty.is_valid(0));
    }

    #[test]
    fn arrays_that_are_not_alike_are_refused() {
        for (document, levels, said) in [
            ("[[1, 2], [3]]", 2, "of one length"),
            ("[[1], 2]", 2, "level 2"),
            ("[[1], null]", 2, "level 2"),
            ("5", 1, "level 1"),
            (r#"{"a": 1}"#, 1, "level 1"),
            ("[[1]]", 1, "more levels"),
            (r#""x""#, 1, "malformed array literal"),
            (r#""{1}""#, 2, "level 1"),
            ("[]", 7, "six levels"),
        ] {
            let error = read(&[Some(document)], levels).unwrap_err().to_string();
            assert!(error.contains(said), "{document}: {error}");
        }
    }
}
