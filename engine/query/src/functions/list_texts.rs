//! Lists in PostgreSQL's text form: `{1,"a b",NULL}`. `as_list(x)` parses such a string, and returns a value of any
//! other type unchanged. `quiver_sql` puts it around values that are cast to lists, because a plain cast makes a list
//! whose only item is the string.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray as _, ListBuilder, StringBuilder};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};
use datafusion::common::{exec_err, internal_err};
use datafusion::error::Result;
use datafusion::logical_expr::{ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility};

/// The items of a list that is written as a text; none: it is no list, or one of lists.
pub fn items(written: &str) -> Option<Vec<Option<String>>> {
    let inner = written.trim().strip_prefix('{')?.strip_suffix('}')?;
    let (mut items, mut item, mut is_quoted, mut open) = (Vec::new(), String::new(), false, false);
    // Where what stood behind a backslash ends: it is no blank around the item, and the item no NULL.
    let mut kept = 0;
    let mut end = |item: &mut String, is_quoted: &mut bool, kept: &mut usize| {
        let mut found = std::mem::take(item);
        let (was_quoted, kept) = (std::mem::take(is_quoted), std::mem::take(kept));
        if !was_quoted {
            found.truncate(found.trim_end().len().max(kept));
        }
        let is_whole = was_quoted || !found.is_empty();
        let is_null = !was_quoted && kept == 0 && found.eq_ignore_ascii_case("null");
        items.push((!is_null).then_some(found));
        is_whole
    };
    if inner.trim().is_empty() {
        return Some(Vec::new());
    }
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' if open => open = false,
            // A text in quotes is all of an item.
            '"' if is_quoted || !item.is_empty() => return None,
            '"' => (open, is_quoted) = (true, true),
            other if is_quoted && !open && !matches!(other, ',' | '{' | '}') && !other.is_whitespace() => return None,
            '\\' => {
                item.push(letters.next()?);
                kept = item.len();
            }
            '{' | '}' if !open => return None,
            ',' if !open => {
                if !end(&mut item, &mut is_quoted, &mut kept) {
                    return None;
                }
            }
            blank if !open && blank.is_whitespace() && (is_quoted || item.is_empty()) => {}
            other => item.push(other),
        }
    }
    let is_whole = end(&mut item, &mut is_quoted, &mut kept) && !open;
    is_whole.then_some(items)
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct AsList {
    signature: Signature,
}

/// Gives the function, of one value.
pub(crate) fn function() -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(AsList { signature: Signature::any(1, Volatility::Immutable) }))
}

fn is_text(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(_, values) => is_text(values),
        other => matches!(other, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View),
    }
}

impl ScalarUDFImpl for AsList {
    fn name(&self) -> &'static str {
        "as_list"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        let [kind] = types else { return internal_err!("one value is read") };
        if !is_text(kind) {
            return Ok(kind.clone());
        }
        Ok(DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))))
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let [value] = args.args.as_slice() else { return internal_err!("one value is read") };
        if !is_text(&value.data_type()) {
            return Ok(value.clone());
        }
        let texts = cast(&value.to_array(args.number_rows)?, &DataType::Utf8)?;
        Ok(ColumnarValue::Array(lists(&texts)?))
    }
}

fn lists(texts: &ArrayRef) -> Result<ArrayRef> {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for text in texts.as_string::<i32>() {
        if let Some(text) = text {
            let Some(items) = items(text) else {
                return exec_err!("a text is no list of values, which is written as `{{1,\"a b\"}}`");
            };
            for item in items {
                lists.values().append_option(item);
            }
        }
        lists.append(text.is_some());
    }
    Ok(Arc::new(lists.finish()))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array as _, DictionaryArray, Int64Array, StringArray};
    use arrow::datatypes::Int32Type;

    use super::super::testing::{call, column, draws, one, shown};
    use super::*;

    #[test]
    fn texts_are_read_as_lists() {
        let check = |written: &str, expected: &[Option<&str>]| {
            let expected: Vec<Option<String>> = expected.iter().map(|item| item.map(str::to_owned)).collect();
            assert_eq!(items(written), Some(expected), "{written}");
        };
        check("{}", &[]);
        check(" { 1 , null,\"null\", \"a \\\"b\\\",\" } ", &[Some("1"), None, Some("null"), Some("a \"b\",")]);
        check("{\"\",a\\,b}", &[Some(""), Some("a,b")]);
        check("{ \"a\" ,\tb\n}", &[Some("a"), Some("b")]);
        check("{Null,NULLS,\"\\\\\",ä \u{1f980}}", &[None, Some("NULLS"), Some("\\"), Some("ä \u{1f980}")]);
        // What stands behind a backslash is of the text, as in PostgreSQL.
        check(r"{\NULL,nul\l,NULL, NULL }", &[Some("NULL"), Some("null"), None, None]);
        check(r"{\ a\ , \  ,a b\c }", &[Some(" a "), Some(" "), Some("a bc")]);
        for wrong in ["", "1", "{1", "{{1}}", "{1,}", "{,1}", "{\"a}", "{a\\", "}{", "{ , }", "{{}}"] {
            assert_eq!(items(wrong), None, "{wrong}");
        }
        // A text in quotes is all of an item, as in PostgreSQL.
        for wrong in [r#"{a"b"}"#, r#"{"a"b}"#, r#"{"a""b"}"#, r#"{"a"\b}"#, r#"{"a"{}}"#, r#"{\ "a"}"#] {
            assert_eq!(items(wrong), None, "{wrong}");
        }
    }

    /// What is written as a list of texts is read back as it was.
    #[test]
    fn lists_are_read_as_they_are_written() {
        let mut draw = draws(3);
        for _ in 0..300 {
            let letters = ["a", " ", "\"", "\\", ",", "{", "}", "null", "\n", "ß"];
            let mut word = |most: usize| -> String { (0..draw(most)).map(|_| letters[draw(letters.len())]).collect() };
            let list: Vec<Option<String>> = (0..word(5).len()).map(|at| (at % 4 != 3).then(|| word(6))).collect();
            let mut built = ListBuilder::new(StringBuilder::new());
            built.append_value(list.iter().map(Option::as_deref));
            let written = crate::functions::text_output::function();
            let written = one(&written, &[column(built.finish())]).unwrap().unwrap();
            assert_eq!(items(&written), Some(list), "{written}");
        }
    }

    #[test]
    fn what_is_no_text_stays_as_it_is() {
        let numbers = Int64Array::from(vec![Some(1), None]);
        assert_eq!(shown(&call(&function(), &[column(numbers)], 2).unwrap()), [Some("1".to_owned()), None]);
        let coded: DictionaryArray<Int32Type> = vec![Some("{a}"), None, Some("{a}")].into_iter().collect();
        let found = call(&function(), &[column(coded)], 3).unwrap();
        let found = found.as_list::<i32>();
        assert_eq!((found.value_length(0), found.is_null(1), found.value_length(2)), (1, true, 1));
    }

    #[test]
    fn no_text_is_no_list() {
        let texts: ArrayRef = Arc::new(StringArray::from(vec![Some("{a,NULL}"), None, Some("{}")]));
        let found = lists(&texts).unwrap();
        let found = found.as_list::<i32>();
        assert_eq!((found.is_null(1), found.value_length(0), found.value_length(2)), (true, 2, 0));
        assert!(found.value(0).is_null(1) && found.value(0).as_string::<i32>().value(0) == "a");
        let wrong: ArrayRef = Arc::new(StringArray::from(vec!["a"]));
        assert!(lists(&wrong).unwrap_err().to_string().contains("no list of values"));
    }
}
