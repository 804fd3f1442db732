//! Slices and concatenates the values of a column.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, MutableArrayData, make_array};
use arrow::compute::concat;

use super::Values;
use crate::error::{Context, Result};

impl Values {
    /// Applies a function to the underlying array.
    pub(super) fn map(&self, make: impl FnOnce(&dyn Array) -> Result<ArrayRef>) -> Result<Self> {
        let array: &dyn Array = match self {
            Self::Missing | Self::Constant(_) => return Ok(self.clone()),
            Self::Text(a) => a,
            Self::Coded(a) => a,
            Self::Int(a) | Self::Time(a, _) => a,
            Self::Float(a) => a,
            Self::Ipv4(a) => a,
            Self::Hex(a) => a,
        };
        Ok(match (Self::of(&make(array)?, None)?, self) {
            (Self::Int(a), Self::Time(_, digits)) => Self::Time(a, *digits),
            (values, _) => values,
        })
    }

    /// A copy of some of the values that does not keep the others in memory (values of one dictionary still share it).
    pub(crate) fn cut(&self, range: Range<usize>) -> Result<Self> {
        let own = self.map(|array| {
            let data = array.to_data();
            let mut own = MutableArrayData::new(vec![&data], false, range.len());
            own.try_extend(0, range.start, range.end).internal("cannot cut a column")?;
            Ok(make_array(own.freeze()))
        })?;
        Ok(if let Self::Text(a) = own { Self::Text(a.gc()) } else { own })
    }

    /// Concatenates values of the same column, each with its number of rows. Coded values become text, because each
    /// piece has its own dictionary.
    pub(crate) fn concat(pieces: &[(Self, usize)]) -> Result<Self> {
        if let [(only, _)] = pieces {
            return Ok(only.clone());
        }
        let array = |(values, rows): &(Self, usize)| -> ArrayRef {
            match values {
                Self::Int(a) | Self::Time(a, _) => Arc::new(a.clone()),
                Self::Float(a) => Arc::new(a.clone()),
                Self::Ipv4(a) => Arc::new(a.clone()),
                Self::Hex(a) => Arc::new(a.clone()),
                Self::Missing | Self::Constant(_) | Self::Text(_) | Self::Coded(_) => Arc::new(values.to_text(*rows)),
            }
        };
        let arrays: Vec<ArrayRef> = pieces.iter().map(array).collect();
        let whole = concat(&arrays.iter().map(AsRef::as_ref).collect::<Vec<_>>()).internal("cannot join pages")?;
        Ok(match (Self::of(&whole, None)?, pieces.first()) {
            (Self::Int(a), Some((Self::Time(_, digits), _))) => Self::Time(a, *digits),
            (values, _) => values,
        })
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::FixedSizeBinaryArray;
    use arrow::buffer::BooleanBuffer;

    use super::super::Column;
    use super::super::tests::texts;
    use super::*;

    #[test]
    fn pages_are_put_together() {
        let pages = |a: Values, b: Values| Values::concat(&[(a, 2), (b, 1)]).expect("of one column");
        let time = |v: Vec<i64>| Values::Time(v.into(), Some(0));
        let both = pages(time(vec![0, 1_000_000_000]), time(vec![2_000_000_000]));
        assert_eq!(texts(&both, 3), ["1970-01-01T00:00:00Z", "1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"]);
        let coded = |v: Vec<Option<&str>>| Values::Coded(v.into_iter().collect());
        assert_eq!(texts(&pages(coded(vec![Some("a"), None]), coded(vec![Some("b")])), 3), ["a", "", "b"]);
        assert_eq!(texts(&pages(Values::Int(vec![1, 2].into()), Values::Int(vec![3].into())), 3), ["1", "2", "3"]);
    }

    #[test]
    fn some_values_are_those_and_a_cut_holds_no_others() {
        let long = |i: usize| (!i.is_multiple_of(7)).then(|| format!("a text that no view holds, the number {i}"));
        let number = |i: usize| (!i.is_multiple_of(5)).then_some(i as i64);
        let hex = (0..1000usize).map(|i| (i % 3 > 0).then(|| i.to_le_bytes()));
        let hex = FixedSizeBinaryArray::try_from_sparse_iter_with_size(hex, 8).expect("eight bytes");
        let all: Vec<Option<String>> = (0..1000).map(long).collect();
        for values in [
            Values::Text(all.iter().map(Option::as_deref).collect()),
            Values::Text((0..1000).map(|i| Some(i.to_string())).collect()),
            Values::Int((0..1000).map(number).collect()),
            Values::Time((0..1000).map(number).collect(), Some(9)),
            Values::Hex(hex),
            Values::Coded((0..1000).map(|i| [Some("a"), None, Some("b")][i % 3]).collect()),
        ] {
            let cut = values.cut(130..230).expect("cut");
            assert_eq!(texts(&cut, 100), texts(&values, 1000)[130..230]);
            let (own, whole) = (cut.memory_bytes(), values.memory_bytes());
            assert!(own < whole, "{own} of {whole} bytes");
            let (all, column) = (texts(&values, 1000), Column::whole(values));
            for step in [2, 300] {
                let rows = BooleanBuffer::collect_bool(1000, |i| i % step == 1);
                let chosen: Vec<String> = rows.set_indices().map(|i| all[i].clone()).collect();
                assert_eq!(texts(&column.gather(&rows).expect("gathered"), chosen.len()), chosen, "one of {step}");
            }
        }
        assert!(matches!(Values::Missing.cut(1..3), Ok(Values::Missing)));
    }
}
