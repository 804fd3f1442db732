//! Columns of texts as plans hold them: `Utf8View`, `Utf8`, dictionaries of texts, times. Null and empty are the same.

use std::cell::OnceCell;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, StringArray, StringViewArray, StringViewBuilder,
    TimestampNanosecondArray, UInt32Array,
};
use arrow::datatypes::{DataType, TimeUnit, TimestampNanosecondType, UInt32Type};

use super::values::{Rank, number, numeric, parse_float, push_rfc3339, rank};

/// A column of texts. What is read of dictionary entries is read once.
#[derive(Debug)]
pub struct TextColumn<'a> {
    data: Data<'a>,
    ranks: OnceCell<Vec<Rank>>,
}

#[derive(Debug)]
enum Data<'a> {
    View(&'a StringViewArray),
    Utf8(&'a StringArray),
    Dictionary(&'a UInt32Array, &'a StringArray),
    Time(&'a TimestampNanosecondArray),
    Missing,
}

/// Which values count as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NumberRule {
    /// Plain decimals.
    Plain,
    /// Those with units too.
    Units,
    /// Those, times and addresses.
    Any,
}

impl NumberRule {
    /// Reads a value by the rule; NaN for what is no number.
    pub fn read(self, value: &str) -> f64 {
        match self {
            Self::Plain => parse_float(value),
            Self::Units => number(value),
            Self::Any => numeric(value),
        }
        .unwrap_or(f64::NAN)
    }
}

impl<'a> TextColumn<'a> {
    /// Looks at an array; `None` for a type that holds no texts.
    pub fn new(array: &'a ArrayRef) -> Option<Self> {
        let data = match array.data_type() {
            DataType::Utf8View => Data::View(array.as_string_view()),
            DataType::Utf8 => Data::Utf8(array.as_string()),
            DataType::Timestamp(TimeUnit::Nanosecond, _) => Data::Time(array.as_primitive::<TimestampNanosecondType>()),
            DataType::Null => Data::Missing,
            DataType::Dictionary(..) => {
                let dictionary = array.as_dictionary_opt::<UInt32Type>()?;
                Data::Dictionary(dictionary.keys(), dictionary.values().as_string_opt()?)
            }
            _ => return None,
        };
        Some(Self { data, ranks: OnceCell::new() })
    }

    /// The entries of a dictionary, and the entry of each row.
    pub fn dictionary(&self) -> Option<(&'a UInt32Array, &'a StringArray)> {
        match self.data {
            Data::Dictionary(keys, values) => Some((keys, values)),
            _ => None,
        }
    }

    /// Gives the text of a row; a time is written to the buffer.
    #[inline]
    pub fn text<'b>(&self, row: usize, buffer: &'b mut String) -> &'b str
    where
        'a: 'b,
    {
        match self.data {
            Data::View(array) => {
                if array.is_null(row) {
                    ""
                } else {
                    array.value(row)
                }
            }
            Data::Utf8(array) => {
                if array.is_null(row) {
                    ""
                } else {
                    array.value(row)
                }
            }
            Data::Dictionary(keys, values) => entry(keys, values, row).map_or("", |i| values.value(i)),
            Data::Time(array) => {
                buffer.clear();
                if !array.is_null(row) {
                    push_rfc3339(buffer, array.value(row));
                }
                buffer
            }
            Data::Missing => "",
        }
    }

    /// Says whether the text of a row is empty.
    #[inline]
    pub fn is_empty(&self, row: usize) -> bool {
        match self.data {
            Data::View(array) => array.is_null(row) || array.views()[row] as u32 == 0,
            Data::Utf8(array) => array.is_null(row) || array.value_length(row) == 0,
            Data::Dictionary(keys, values) => entry(keys, values, row).is_none_or(|i| values.value_length(i) == 0),
            Data::Time(array) => array.is_null(row),
            Data::Missing => true,
        }
    }

    /// Gives the length of the text of a row in bytes.
    pub fn len_of(&self, row: usize, buffer: &mut String) -> usize {
        match self.data {
            Data::View(array) if !array.is_null(row) => array.views()[row] as u32 as usize,
            _ => self.text(row, buffer).len(),
        }
    }

    /// Gives the rank of the text of a row, which is `text`.
    #[inline]
    pub fn rank(&self, row: usize, text: &str) -> Rank {
        match self.data {
            // A dictionary larger than the batch is shared by many; most of its entries are not needed here.
            Data::Dictionary(keys, values) if values.len() <= keys.len() => {
                let ranks = self.ranks.get_or_init(|| values.iter().map(|v| rank(v.unwrap_or(""))).collect());
                entry(keys, values, row).map_or_else(|| rank(""), |i| ranks[i])
            }
            _ => rank(text),
        }
    }

    /// Gives all rows as numbers, NaN for what is none.
    pub fn numbers(&self, rows: usize, rule: NumberRule) -> Vec<f64> {
        match self.data {
            Data::Dictionary(keys, values) if values.len() > rows => {
                (0..rows).map(|row| entry(keys, values, row).map_or(f64::NAN, |i| rule.read(values.value(i)))).collect()
            }
            Data::Dictionary(keys, values) => {
                let read: Vec<f64> = values.iter().map(|v| v.map_or(f64::NAN, |v| rule.read(v))).collect();
                (0..rows).map(|row| entry(keys, values, row).map_or(f64::NAN, |i| read[i])).collect()
            }
            Data::View(array) => {
                // Equal neighbours are read once; a view of up to twelve bytes is the text itself.
                let (mut last, mut value) = (None, f64::NAN);
                (0..rows)
                    .map(|row| {
                        if array.is_null(row) {
                            return f64::NAN;
                        }
                        let view = array.views()[row];
                        if last != Some(view) {
                            (last, value) = (Some(view), rule.read(array.value(row)));
                        }
                        value
                    })
                    .collect()
            }
            Data::Utf8(array) => {
                (0..rows).map(|row| if array.is_null(row) { f64::NAN } else { rule.read(array.value(row)) }).collect()
            }
            Data::Time(array) if rule == NumberRule::Any => {
                (0..rows).map(|row| if array.is_null(row) { f64::NAN } else { array.value(row) as f64 }).collect()
            }
            Data::Time(_) | Data::Missing => vec![f64::NAN; rows],
        }
    }
}

fn entry(keys: &UInt32Array, values: &StringArray, row: usize) -> Option<usize> {
    if keys.is_null(row) {
        return None;
    }
    let i = keys.value(row) as usize;
    (!values.is_null(i)).then_some(i)
}

/// Rewrites a column text by text: `write` gets a text (empty for a missing one) and writes what takes its place. A
/// dictionary that is no larger than the batch stays one, its entries written once; every other column becomes
/// `Utf8View`. Empty results are null.
pub fn map_texts(array: &ArrayRef, mut write: impl FnMut(&str, &mut String)) -> Option<ArrayRef> {
    let column = TextColumn::new(array)?;
    let mut out = String::new();
    if let Some((keys, values)) = column.dictionary().filter(|(keys, values)| values.len() <= keys.len()) {
        let mut run = |text: &str| -> Option<String> {
            out.clear();
            write(text, &mut out);
            (!out.is_empty()).then(|| out.clone())
        };
        let missing = if keys.null_count() > 0 || values.null_count() > 0 { run("") } else { None };
        let mut entries: Vec<Option<String>> = values.iter().map(|v| run(v.unwrap_or(""))).collect();
        let missing_code = missing.map(|text| {
            entries.push(Some(text));
            (entries.len() - 1) as u32
        });
        let keys: UInt32Array = keys
            .iter()
            .map(|key| match key {
                Some(key) => entries[key as usize].is_some().then_some(key),
                None => missing_code,
            })
            .collect();
        let dictionary = DictionaryArray::<UInt32Type>::try_new(keys, Arc::new(StringArray::from(entries))).ok()?;
        return Some(Arc::new(dictionary));
    }
    let mut builder = StringViewBuilder::with_capacity(array.len());
    let mut buffer = String::new();
    for row in 0..array.len() {
        out.clear();
        write(column.text(row, &mut buffer), &mut out);
        if out.is_empty() {
            builder.append_null();
        } else {
            builder.append_value(&out);
        }
    }
    Some(Arc::new(builder.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(array: &ArrayRef) -> Vec<String> {
        let column = TextColumn::new(array).unwrap();
        let mut buffer = String::new();
        (0..array.len()).map(|row| column.text(row, &mut buffer).to_owned()).collect()
    }

    #[test]
    fn all_kinds_of_columns() {
        let plain = [Some("a"), None, Some(""), Some("1.5K"), Some("a longer text than twelve")];
        let dictionary: DictionaryArray<UInt32Type> = plain.iter().copied().collect();
        let arrays: [ArrayRef; 3] = [
            Arc::new(StringViewArray::from(plain.to_vec())),
            Arc::new(StringArray::from(plain.to_vec())),
            Arc::new(dictionary),
        ];
        for array in &arrays {
            let column = TextColumn::new(array).unwrap();
            assert_eq!(texts(array), ["a", "", "", "1.5K", "a longer text than twelve"]);
            let empty: Vec<bool> = (0..5).map(|row| column.is_empty(row)).collect();
            assert_eq!(empty, [false, true, true, false, false]);
            let numbers = column.numbers(5, NumberRule::Units);
            assert!(numbers[0].is_nan() && numbers[1].is_nan() && numbers[3] == 1500.0);
            assert!(column.numbers(5, NumberRule::Plain)[3].is_nan());
            let mapped = map_texts(array, |text, out| {
                if text != "a" {
                    out.push_str(text);
                    out.push('!');
                }
            });
            assert_eq!(texts(&mapped.unwrap()), ["", "!", "!", "1.5K!", "a longer text than twelve!"]);
        }
        let time: ArrayRef = Arc::new(TimestampNanosecondArray::from(vec![Some(1_500_000_000), None]));
        assert_eq!(texts(&time), ["1970-01-01T00:00:01.5Z", ""]);
        assert_eq!(TextColumn::new(&time).unwrap().numbers(2, NumberRule::Any)[0], 1.5e9);
    }
}
