//! Columns of views of texts that stand in arrays. What arrow would prove of each view when the column is made, is known
//! here: a view is only ever made of a text in one of the arrays.
#![allow(unsafe_code, reason = "the checks read every text once more; see the SAFETY comment")]

use std::sync::Arc;

use arrow::array::{StringArray, StringViewArray, make_view};
use arrow::buffer::{Buffer, NullBuffer};

/// Arrays that views may point into.
#[derive(Debug, Clone)]
pub(crate) struct TextSources<'a> {
    arrays: Arc<[&'a StringArray]>,
    buffers: Arc<[Buffer]>,
}

impl<'a> TextSources<'a> {
    /// Takes arrays; they are known by their places.
    pub(crate) fn new(arrays: impl IntoIterator<Item = &'a StringArray>) -> Self {
        let arrays: Arc<[&StringArray]> = arrays.into_iter().collect();
        let buffers = arrays.iter().map(|a| a.values().clone()).collect();
        Self { arrays, buffers }
    }
}

/// A column that is being filled; rows without a text are null.
#[derive(Debug)]
pub(crate) struct TextViews<'a> {
    sources: TextSources<'a>,
    views: Vec<u128>,
}

impl<'a> TextViews<'a> {
    /// Makes a column of so many rows.
    pub(crate) fn new(sources: TextSources<'a>, rows: usize) -> Self {
        Self { sources, views: vec![0; rows] }
    }

    /// Sets a row to text number `at` of an array. Panics beyond their ends, as an index does.
    #[inline]
    pub(crate) fn set(&mut self, row: usize, array: usize, at: usize) {
        let texts = self.sources.arrays[array];
        // Offsets of texts are never negative.
        let offset = texts.value_offsets()[at] as u32;
        self.views[row] = make_view(texts.value(at).as_bytes(), array as u32, offset);
    }

    /// Gives the column.
    pub(crate) fn finish(self, nulls: Option<NullBuffer>) -> StringViewArray {
        assert!(nulls.as_ref().is_none_or(|n| n.len() == self.views.len()), "as many rows as there are nulls");
        // SAFETY: a view is 0, which is the empty text, or was made by `set` of the text that stands at that offset of
        // that buffer, in an array whose texts are UTF-8. The nulls are as many as the views.
        unsafe { StringViewArray::new_unchecked(self.views.into(), self.sources.buffers, nulls) }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Array;

    use super::*;

    #[test]
    fn arrow_finds_no_fault() {
        let first = StringArray::from(vec!["", "short", "a text that does not fit into a view", "twelve bytes"]);
        let second = StringArray::from(vec!["grüße, of more than twelve bytes", "é", "x"]).slice(1, 2);
        let mut column = TextViews::new(TextSources::new([&first, &second]), 7);
        for (row, (array, at)) in [(0, 2), (1, 0), (0, 0), (0, 3), (1, 1), (0, 1)].into_iter().enumerate() {
            column.set(row, array, at);
        }
        let nulls = NullBuffer::from(vec![true, true, true, true, true, true, false]);
        let column = column.finish(Some(nulls));
        column.to_data().validate_full().expect("a sound array");
        let texts: Vec<Option<&str>> = column.iter().collect();
        let long = Some("a text that does not fit into a view");
        assert_eq!(texts, [long, Some("é"), Some(""), Some("twelve bytes"), Some("x"), Some("short"), None]);
    }
}
