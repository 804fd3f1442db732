//! Columns of string views into existing arrays, built without Arrow's validation: a view is only ever made from a
//! valid string of one of the arrays.
#![allow(unsafe_code, reason = "the checks read every text once more; see the SAFETY comment")]

use std::sync::Arc;

use arrow::array::{ByteView, StringArray, StringViewArray, make_view};
use arrow::buffer::{Buffer, NullBuffer};

/// Arrays that views may point into.
#[derive(Debug, Clone)]
pub(crate) struct TextSources<'a> {
    arrays: Arc<[&'a StringArray]>,
    buffers: Arc<[Buffer]>,
}

impl<'a> TextSources<'a> {
    /// Takes the arrays; they are referred to by index.
    pub(crate) fn new(arrays: impl IntoIterator<Item = &'a StringArray>) -> Self {
        let arrays: Arc<[&StringArray]> = arrays.into_iter().collect();
        let buffers = arrays.iter().map(|a| a.values().clone()).collect();
        Self { arrays, buffers }
    }

    /// The text of a view with more than [`INLINE`] bytes; the view 0 is the empty text.
    fn long(&self, view: u128) -> &[u8] {
        if view == 0 {
            return &[];
        }
        let view = ByteView::from(view);
        &self.buffers[view.buffer_index as usize][view.offset as usize..][..view.length as usize]
    }
}

/// A column being filled; rows that are not set are null.
#[derive(Debug)]
pub(crate) struct TextViews<'a> {
    sources: TextSources<'a>,
    views: Vec<u128>,
    /// Recently made views of long texts, placed by [`place`]; if empty, texts are not deduplicated.
    lately: Vec<u128>,
}

/// Length up to which texts are stored inside their views.
const INLINE: usize = 12;
/// Number of recent views that are kept.
const LATELY: usize = 256;

/// Index of a long text among the recent views.
fn place(text: &[u8]) -> usize {
    let (first, last) = (text.first_chunk::<8>(), text.last_chunk::<8>());
    let number = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |b| u64::from_le_bytes(*b));
    let mixed = (number(first).rotate_left(29) ^ number(last)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 56) as usize % LATELY
}

impl<'a> TextViews<'a> {
    /// A column with this number of rows.
    pub(crate) fn new(sources: TextSources<'a>, rows: usize) -> Self {
        Self { sources, views: vec![0; rows], lately: Vec::new() }
    }

    /// Like `new`, for columns with few distinct texts: equal ones mostly share a view, which keeps later reads local.
    pub(crate) fn of_few(sources: TextSources<'a>, rows: usize) -> Self {
        Self { lately: vec![0; LATELY], ..Self::new(sources, rows) }
    }

    /// Sets a row to the text at index `at` of an array. Panics if an index is out of bounds.
    #[inline]
    pub(crate) fn set(&mut self, row: usize, array: usize, at: usize) {
        let texts = self.sources.arrays[array];
        let text = texts.value(at).as_bytes();
        // Offsets are never negative.
        let made = || make_view(text, array as u32, texts.value_offsets()[at] as u32);
        self.views[row] = if self.lately.is_empty() || text.len() <= INLINE {
            made()
        } else {
            let known = &mut self.lately[place(text)];
            if self.sources.long(*known) != text {
                *known = made();
            }
            *known
        };
    }

    /// Finishes the column.
    pub(crate) fn finish(self, nulls: Option<NullBuffer>) -> StringViewArray {
        assert!(nulls.as_ref().is_none_or(|n| n.len() == self.views.len()), "as many rows as there are nulls");
        // SAFETY: a view is either 0, which is the empty text, or was made by `set` from the text at that offset of
        // that buffer, which belongs to an array of valid UTF-8. There are as many nulls as views.
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

    #[test]
    fn equal_texts_share_a_view() {
        let texts: Vec<String> = (0..1000).map(|i| format!("{}: value number {}", i % 7, i * i % 11)).collect();
        let (first, second) = texts.split_at(400);
        let (first, second) = (StringArray::from(first.to_vec()), StringArray::from(second.to_vec()));
        let mut column = TextViews::of_few(TextSources::new([&first, &second]), 1000);
        (0..1000).for_each(|row| column.set(row, usize::from(row >= 400), if row < 400 { row } else { row - 400 }));
        let column = column.finish(None);
        column.to_data().validate_full().expect("a sound array");
        assert!(column.iter().flatten().eq(texts.iter().map(String::as_str)));
        let views: std::collections::HashSet<u128> = column.views().iter().copied().collect();
        assert!(views.len() < 500, "{}", views.len());
    }
}
