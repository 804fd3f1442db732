//! Converts values to text columns and to the form that query languages read.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, AsArray, DictionaryArray, StringArray, StringBuilder, StringViewArray, UInt32Array, make_view,
};
use arrow::buffer::Buffer;
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt32Type};
use foldhash::fast::FixedState;
use quiver_types::logs::{ID_BYTES, StoredField};

use super::Values;
use crate::logs::typed_text;

/// Strings up to this length are stored in their view.
const VIEW_INLINE_BYTES: usize = 12;
/// After this many rows, addresses that rarely repeat are no longer dictionary-encoded.
const ADDRESSES_TRIED: usize = 4096;

impl Values {
    /// A text column with this number of rows.
    pub(crate) fn to_text(&self, rows: usize) -> StringViewArray {
        match self {
            Self::Text(a) => a.clone(),
            Self::Missing => StringViewArray::new_null(rows),
            Self::Constant(c) => {
                let buffer = Buffer::from(c.as_bytes());
                let view = make_view(c.as_bytes(), 0, 0);
                StringViewArray::new(vec![view; rows].into(), vec![buffer], None)
            }
            Self::Coded(a) => {
                // The strings of a dictionary are valid already and are not validated again.
                let texts = cast(a, &DataType::Utf8View).expect("a dictionary of texts is one of views, too");
                texts.as_string_view().clone()
            }
            Self::Hex(a) => {
                let width = 2 * a.value_length() as usize;
                let mut text = Vec::with_capacity(rows * width);
                let view = |i: usize| {
                    if a.is_null(i) {
                        return 0;
                    }
                    let start = text.len();
                    typed_text::push_hex(a.value(i), &mut text);
                    make_view(&text[start..], 0, start as u32)
                };
                let views: Vec<u128> = (0..rows).map(view).collect();
                StringViewArray::new(views.into(), vec![text.into()], a.nulls().cloned())
            }
            _ => {
                // Strings that fit into a view need no buffer.
                let mut long = String::new();
                let view = |i: usize| {
                    if self.is_null(i) {
                        return 0;
                    }
                    let start = long.len();
                    self.write(i, &mut long);
                    let view = make_view(&long.as_bytes()[start..], 0, start as u32);
                    if long.len() - start <= VIEW_INLINE_BYTES {
                        long.truncate(start);
                    }
                    view
                };
                let views: Vec<u128> = (0..rows).map(view).collect();
                StringViewArray::new(views.into(), vec![long.into_bytes().into()], self.nulls().cloned())
            }
        }
    }

    /// A column of stored values with this number of rows.
    pub(crate) fn to_stored(&self, rows: usize) -> StoredField {
        match self {
            Self::Missing => StoredField::Missing,
            Self::Constant(c) => StoredField::Coded(coded(vec![0; rows], vec![c.to_string()])),
            // With a dictionary much larger than the number of rows, most entries would not be needed.
            Self::Coded(a) if a.values().len() > 1024 && a.values().len() / 4 > rows => {
                StoredField::Text(self.to_text(rows))
            }
            Self::Coded(a) => StoredField::Coded(a.clone()),
            Self::Int(a) => StoredField::Int(a.clone()),
            Self::Float(a) => StoredField::Float(a.clone()),
            Self::Hex(a) if a.value_length() as usize == ID_BYTES => StoredField::Id(a.clone()),
            Self::Ipv4(a) => {
                coded_addresses(a).map_or_else(|| StoredField::Text(self.to_text(rows)), StoredField::Coded)
            }
            Self::Text(_) | Self::Time(..) | Self::Hex(_) => StoredField::Text(self.to_text(rows)),
        }
    }
}

/// Dictionary-encodes addresses, so that grouping need not compare text and each address is formatted once. `None` if
/// most of them are distinct.
fn coded_addresses(array: &UInt32Array) -> Option<DictionaryArray<UInt32Type>> {
    let mut known: HashMap<u32, u32, FixedState> = HashMap::default();
    let mut keys: Vec<u32> = Vec::with_capacity(array.len());
    let (mut texts, mut text) = (StringBuilder::new(), String::new());
    for (row, address) in array.values().iter().enumerate() {
        if row == ADDRESSES_TRIED && known.len() * 4 > row * 3 {
            return None;
        }
        if array.is_null(row) {
            keys.push(0);
            continue;
        }
        let next = known.len() as u32;
        let code = *known.entry(*address).or_insert(next);
        if code == next {
            text.clear();
            typed_text::write_ipv4(*address, &mut text);
            texts.append_value(&text);
        }
        keys.push(code);
    }
    let keys = UInt32Array::new(keys.into(), array.nulls().cloned());
    Some(DictionaryArray::new(keys, Arc::new(texts.finish())))
}

/// Builds a coded column from codes and their texts.
pub(crate) fn coded(keys: Vec<u32>, values: Vec<String>) -> DictionaryArray<UInt32Type> {
    DictionaryArray::new(keys.into(), Arc::new(StringArray::from_iter_values(values)))
}

#[cfg(test)]
mod tests {
    use arrow::array::FixedSizeBinaryArray;
    use arrow::buffer::BooleanBuffer;

    use super::super::Column;
    use super::super::tests::texts;
    use super::*;

    #[test]
    fn every_form_gives_the_same_text() {
        let check = |values: Values, expected: &[&str]| {
            let rows = expected.len();
            assert_eq!(texts(&values, rows), expected);
            let text = Values::Text(values.to_text(rows));
            assert_eq!(texts(&text, rows), expected);
            let stored = match values.to_stored(rows) {
                StoredField::Missing => Values::Missing,
                StoredField::Text(a) => Values::Text(a),
                StoredField::Coded(a) => Values::Coded(a),
                StoredField::Int(a) => Values::Int(a),
                StoredField::Float(a) => Values::Float(a),
                StoredField::Id(a) => Values::Hex(a),
            };
            assert_eq!(texts(&stored, rows), expected);
            let rows_set = BooleanBuffer::collect_bool(rows, |i| i % 2 == 0);
            let gathered = Column::whole(values).gather(&rows_set).expect("filters");
            let even: Vec<&str> = expected.iter().copied().step_by(2).collect();
            assert_eq!(texts(&gathered, even.len()), even);
        };
        check(Values::Missing, &["", "", ""]);
        check(Values::Constant("x".into()), &["x", "x", "x"]);
        check(Values::Int(vec![Some(-5), None, Some(i64::MAX)].into()), &["-5", "", "9223372036854775807"]);
        check(Values::Float(vec![Some(0.25), None, Some(1e21)].into()), &["0.25", "", "1000000000000000000000"]);
        check(Values::Ipv4(vec![Some(0x0102_0304), None, Some(u32::MAX)].into()), &["1.2.3.4", "", "255.255.255.255"]);
        check(
            Values::Time(vec![Some(1_741_600_001_500_000_000), None].into(), Some(3)),
            &["2025-03-10T09:46:41.500Z", ""],
        );
        let long = "a text that is longer than twelve bytes";
        check(Values::Text(StringViewArray::from(vec![Some(long), None, Some("b")])), &[long, "", "b"]);
        check(
            Values::Coded(vec![Some(long), None, Some("b"), Some(long)].into_iter().collect()),
            &[long, "", "b", long],
        );
        let hex = FixedSizeBinaryArray::try_from_sparse_iter_with_size(vec![Some([1, 0xab]), None].into_iter(), 2);
        check(Values::Hex(hex.expect("two bytes")), &["01ab", ""]);
    }

    #[test]
    fn addresses_that_come_again_are_coded() {
        let of = |rows: u32, apart: u32| -> Values {
            Values::Ipv4((0..rows).map(|row| (row % 7 > 0).then_some(row % apart)).collect())
        };
        let StoredField::Coded(few) = of(10_000, 100).to_stored(10_000) else { panic!("by code") };
        assert_eq!((few.len(), few.values().len(), few.null_count()), (10_000, 100, 10_000usize.div_ceil(7)));
        let rows = |values: &Values| texts(values, 10_000);
        assert_eq!(rows(&Values::Coded(few)), rows(&of(10_000, 100)));
        let StoredField::Text(many) = of(10_000, 9_000).to_stored(10_000) else { panic!("as text") };
        assert_eq!(rows(&Values::Text(many)), rows(&of(10_000, 9_000)));
        let none = Values::Ipv4(vec![None, None].into()).to_stored(2);
        assert!(matches!(none, StoredField::Coded(array) if array.null_count() == 2));
    }
}
